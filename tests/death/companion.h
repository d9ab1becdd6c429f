/* The third process: a survivor's traffic with it must go on, whatever happens to others. */
#ifndef COMPANION_H
#define COMPANION_H

#include "parties.h"

/* Sockets for the companion alone, one each way, which open over udp once much goes between the two, at any time. */
#define COMPANION_SOCKETS 2
/*
 * What the engine opens when it first meets an absent page, and keeps: a userfaultfd by which it asks who watches memory, its own
 * pagemap and that of the companion. Once for all peers that die.
 */
#define PAGE_DESCRIPTORS 3

struct companion {
	struct party party;
	struct link link;
	/* Microseconds for which both sides rest between two looks: where more of them than processors are at work. */
	unsigned pause;
};

/* Starts it and connects. */
void start_companion(struct companion *companion, struct ibv_context *context, uint64_t seed, unsigned pause);

/* A little of the traffic with it, and the pause. */
void go_on(struct companion *companion);

/* Goes on until so many more requests and receives have succeeded; fails after PATIENCE_SECONDS. */
void must_go_on(struct companion *companion, uint64_t more);

/* Completes what is under way on both sides, and posts no more until told to work again. */
void rest(struct companion *companion);
void work_again(struct companion *companion);

/* Ends the traffic, in order, on both sides. */
void end_companion(struct companion *companion);

/* Exchanges introductions over a socket and connects, patiently. 0: the other side has ended. */
int meet(struct link *link, int socket);

#endif
