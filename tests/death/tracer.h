/* What a tracer and the survivor tell each other over the descriptor OTHER of the tracer. */
#ifndef TRACER_H
#define TRACER_H

#include <stdint.h>

/* The tracer: the victim stands before its operation, and all of its other threads are held. */
#define HELD 'h'
/* The survivor: begin; let the victim go on from where it was stopped; kill it. */
#define BEGIN 'b'
#define GO_ON 'g'
#define KILL 'k'

/* In place of a number of instructions: all of them, and the route is recorded. */
#define RECORD UINT64_MAX

/* The tracer: so far the victim has come. */
struct instant {
	uint64_t instructions;
	/* The operation was over before. */
	int32_t over;
	/* The next instruction is one of libpagewire. */
	int32_t in_library;
};

#endif
