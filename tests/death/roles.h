/* The roles of the death harness; each is given the arguments behind its name. */
#ifndef ROLES_H
#define ROLES_H

/* ROUNDS SEED FIRST: kills a victim in each round, and looks whether everything else is as it should be. */
int survive_kills(char **arguments);

/* OPERATION STRIDE FIRST LAST KILL|STOP: ends or stops a victim at one instruction after the other. */
int survive_steps(char **arguments);

/* SEED: runs traffic with its starter until that has enough, and wants everything to succeed. */
int stay_healthy(char **arguments);

/* SEED: runs traffic with its starter, registers and deregisters, makes and destroys, until it is killed. */
int be_victim(char **arguments);

/* OPERATION KILL|STOP: does one operation between two markers. */
int be_stepped(char **arguments);

/* INSTRUCTION KILL|STOP OPERATION: traces a victim. */
int trace_steps(char **arguments);

#endif
