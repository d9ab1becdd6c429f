/* Two processes, one on Pagewire and one on soft-RoCE, that a TCP connection keeps in step: queue pairs between them, bytes that
 * can be computed at both ends, and completions that must be as expected. A check that finds something else ends the process. */
#ifndef PAIR_H
#define PAIR_H

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

/* Seconds in which a completion must come. */
#define PATIENCE 20

/* What one end says of itself and of one of its queue pairs. */
struct end {
    uint32_t number, psn, key, is_rxe;
    uint64_t address;
    union ibv_gid gid;
};

/* How a queue pair is made and connected; a field that is zero has the value behind it. */
struct link {
    enum ibv_qp_type type;      /* IBV_QPT_RC */
    enum ibv_mtu mtu;           /* IBV_MTU_1024 */
    int timeout;                /* 16: as in ibv_modify_qp(3) */
    int no_timer;               /* The timeout is the code 0: never. */
    int retry_cnt, rnr_retry;   /* 6, 7 */
    int depth, segments;        /* 16, 1: of both queues */
    uint32_t inline_bytes;      /* 0 */
    int unsignaled;             /* sq_sig_all is not set */
    uint32_t queue_key;         /* of UD */
    int access;                 /* Rights of the peer besides those for WRITEs, READs and atomics. */
    struct ibv_srq *srq;
    struct ibv_cq *cq;          /* pair.cq */
};

/* This process. */
struct pair {
    int tcp, gid_index, seed, queue_pairs;
    int lossy; /* The network loses packets. */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t *buffer; /* Of `mr`: the lower half is this end's, the upper half the peer's to write. */
    struct ibv_qp *qp;
    struct end mine, theirs; /* Of `qp`, or of the queue pair that was connected last. */
    const char *server;
    uint16_t port;
};
extern struct pair pair;

#define HALF (2u << 20)

/* Opens the device, makes the region and joins the peer. */
void open_pair(void);
void close_pair(void);

/* Waits for the peer to come here. */
void barrier(void);
void tcp_send(const void *bytes, size_t length);
void tcp_receive(void *bytes, size_t length);

/* Bytes that follow from `seed`. */
uint32_t next(uint32_t *state);
void fill_bytes(uint8_t *at, uint32_t length, uint32_t seed);
int bytes_are(const uint8_t *at, uint32_t length, uint32_t seed);

/* Whether this end's device is the kernel's. */
int runs_on_rxe(void);
struct ibv_qp *make_qp(const struct link *link);
/* From RESET to RTS; both ends call it. Sets pair.mine and pair.theirs. */
void connect_qp(struct ibv_qp *qp, const struct link *link);
/* pair.qp anew, connected. */
void join(const struct link *link);

/* The next completion of `cq`, whatever it is. */
struct ibv_wc next_completion(struct ibv_cq *cq);
/* The next completion of pair.cq, which must be that one. */
struct ibv_wc wait_for(uint64_t id, enum ibv_wc_status status);
/* Nothing completes in pair.cq within so many milliseconds. */
void nothing_for(int milliseconds);

/* A request towards the upper half of the peer's region. */
struct ibv_send_wr request(uint64_t id, enum ibv_wr_opcode opcode, uint32_t immediate);
/* Posts it with `length` bytes at `offset` of the region. */
void post(struct ibv_send_wr request, uint32_t offset, uint32_t length);
/* Receives into the upper half. */
void receive(uint64_t id, uint32_t length);

/* The passive end looks at `length` bytes that the active one writes with an immediate. */
void pass_message(int active, uint32_t length, uint32_t seed);

/* The checks. Both ends call each; `active`: this end makes the requests. */
void transfers(int active);
void datagrams(int active);
void events(int active);
void losses(int active);
void mixed(int active);
void forms(int active);
void unreliable(int active);
void renewed(int active);
void absent(int active);
void windows(int active);
void atomic_writes(int active);
void flushes(int active);
/* The passive end is killed, and has a successor. */
void dies(int active);
void succeeds(int active);

#endif
