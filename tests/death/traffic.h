/* Mixed traffic between two processes, every byte and every completion checked on both sides.
 *
 * A link is four queue pairs to one peer (two RC, one UC, one UD), one completion queue for all of them, memory that the peer
 * may reach and buffers of its own. Both sides run the same traffic at each other; what arrives tells by itself what it
 * should be, so that nobody has to agree on anything. A link to a process that has been killed may fail, and is
 * then held to what the specification says of that: each request completed once, in order, the first one of a queue
 * pair with RETRY_EXC_ERR, what follows flushed (InfiniBand specification, volume 1, sections 9.9.2.4.2 and 10.10.2). */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "connect.h"
#include "random.h"

enum { RC_ONE, RC_TWO, UC, UD, LANES };

/* Requests under way on a queue pair, and receives posted to it. */
#define DEPTH 6
#define RECEIVES 16
/* Areas into which a queue pair's WRITEs with immediate data go in turn: more than receives and requests together,
 * so that none is written again before the receiver has looked at it. */
#define AREAS 32

/* Longest message of WRITE and READ, of SEND, of WRITE with immediate data, and of UD. */
#define LARGE (128u << 10)
#define MESSAGE (64u << 10)
#define AREA (8u << 10)
#define DATAGRAM 1024u
#define GRH 40u

/* Acknowledgement timeouts of ibv_modify_qp(3), all with 7 retries: 268 ms where nobody's silence on a busy machine may
 * be taken for death, 67 ms where a survivor is to see one, over the network after 1 s or so. */
#define PATIENT 16
#define WATCHFUL 14

/* What a side must know of the other. */
struct introduction {
	uint32_t numbers[LANES];
	uint32_t key;
	uint64_t address;
};

struct request {
	uint64_t id, seed, expected;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	int signaled, reads_back;
};

/* One queue pair and what is under way on it. */
struct lane {
	struct ibv_qp *qp;
	uint32_t peer;
	struct request requests[DEPTH];
	unsigned first, under_way;
	uint64_t posted, receives_posted, receives_done, atomics, areas;
	/* What the last WRITE from each buffer has put at the peer. */
	struct {
		uint64_t seed;
		uint32_t length;
	} written[DEPTH];
	/* Something has failed, and a send among it; the program has moved the queue pair to the error state. */
	int failed, send_failed, closed;
};

struct link {
	const char *name;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *reachable, *buffers;
	char *reachable_bytes, *buffer_bytes;
	struct ibv_ah *ah;
	struct lane lanes[LANES];
	struct introduction peer;
	struct random random;
	/* Seconds when the peer was killed, or 0: before that nothing may fail. Another thread may set it. */
	volatile double killed_at;
	/* Requests and receives that succeeded. */
	uint64_t done;
};

/* Bytes of the two pieces of memory of a link. */
size_t reachable_length(void);
size_t buffers_length(void);

/* Makes all objects of a link; receives are posted. The memory is the caller's, page aligned. */
void make_link(struct link *link, const char *name, struct ibv_context *context, char *reachable, char *buffers,
	       uint64_t seed);

/* What the peer must know of this side. */
struct introduction introduce(const struct link *link);

/* Connects all queue pairs (INIT to RTS). */
void connect_link(struct link *link, const struct introduction *peer, uint8_t timeout);

/* Posts a few requests where there is room. */
void post_some(struct link *link);

/* Takes and checks what has completed. */
void take_completions(struct link *link);

/* Moves a queue pair to the error state: from now on its requests may be flushed. */
void close_lane(struct lane *lane);

/* Whether everything that was posted to a queue pair has completed. */
int is_flushed(const struct lane *lane);

/* Waits until no request is under way. */
void drain(struct link *link);

/* Destroys what is left of a link. */
void destroy_link(struct link *link);

/* Fills memory with what `seed` says, and looks whether it holds that. */
void fill(char *at, uint32_t length, uint64_t seed);
int holds(const char *at, uint32_t length, uint64_t seed);

#endif
