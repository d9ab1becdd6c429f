/* The roles of the death harness; each is given the arguments behind its name. */
#ifndef ROLES_H
#define ROLES_H

/* ROUNDS SEED FIRST: kills a victim in each round, and looks whether everything else is as it should be. */
int survive_kills(char **arguments);

/* OPERATION STRIDE FIRST LAST KILL|STOP PAUSE: ends or stops a victim at one instruction after the other; its survivor rests for
 * so many microseconds between two looks. */
int survive_steps(char **arguments);

/* SEED PAUSE: runs traffic with its starter until that has enough, and wants everything to succeed; rests between two looks, likewise. */
int stay_healthy(char **arguments);

/* SEED: runs traffic with its starter, registers and deregisters, makes and destroys, until it is killed. */
int be_victim(char **arguments);

/* OPERATION KILL|STOP: does one operation between two markers. */
int be_stepped(char **arguments);

/* INSTRUCTION KILL|STOP OPERATION PAUSE FILE: traces a victim of a survivor that rests so long between two looks; the route of its
 * operation is in the file, or comes there. */
int trace_steps(char **arguments);

#endif
