/*
 * pagewire_verbs.h: what Pagewire adds to verbs programs: conditional writes on queue pairs of their own, and counts of the accesses to their regions.
 *
 * Conditional writes.
 *
 * The writer holds a WRITE under a tag before it knows the peer's memory. The peer releases it with address and rkey, and it is then posted on
 * the writer's queue pair, whatever the program does. Its completion comes to the send completion queue of that queue pair, with its wr_id.
 *
 * Both processes need Pagewire, and a node each (pw_node_alone()), whose pw_peer (pw_identity()) they exchange along with queue pair numbers.
 * With any other libibverbs a program does not link, or finds no such symbol by dlsym(3).
 *
 * Each held write has exactly one completion, signaled or not. None comes if its queue pair is reset or destroyed before, as for any request.
 *
 *   IBV_WC_SUCCESS          the bytes are at the peer
 *   IBV_WC_REM_ACCESS_ERR   the responder has refused the rkey or the address: the queue pair is in the error state, as after any such WRITE
 *   PW_WC_TOO_SHORT         the released memory is shorter than the write
 *   PW_WC_DECLINED          the peer has declined it (pw_opened_decline()), or holds too many openings
 *   PW_WC_CANCELLED         pw_cancel_held_write(), or the end of the node
 *   PW_WC_TIMED_OUT         its release has not come in time
 *   IBV_WC_WR_FLUSH_ERR     the peer's node is lost, or the queue pair has gone to the error state
 *   others                  as for any posted WRITE
 *
 * All but the first two, and those of posted WRITEs, leave the queue pair as it is: nothing was sent. These completions hold no slot of the send queue, so the
 * completion queue needs an entry for each held write besides.
 */
#ifndef PAGEWIRE_VERBS_H
#define PAGEWIRE_VERBS_H

#include <infiniband/verbs.h>
#include <pagewire.h>

#define PW_WC_CANCELLED IBV_WC_GENERAL_ERR
#define PW_WC_TIMED_OUT IBV_WC_RESP_TIMEOUT_ERR
#define PW_WC_DECLINED IBV_WC_REM_ABORT_ERR
#define PW_WC_TOO_SHORT IBV_WC_REM_INV_REQ_ERR

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Holds one WRITE, with or without immediate, until the peer releases it. The remote address and rkey of wr are not looked at. It takes no place in the send
 * queue, and delays no request, before it is released; then it is posted behind what is posted by that time. If the send queue is full then, it
 * waits for a slot. The bytes must stay, and must not be changed, until its completion; wr itself may go.
 *
 * qp: an RC queue pair in RTS, connected to a queue pair of the peer's process. wr: one request, not inline. nanoseconds: how long it waits for its
 * release; PW_FOREVER: without a bound. A node holds one write of a tag to each peer.
 *
 * PW_ARGUMENT: qp or wr cannot be held; PW_PEER_LOST: the peer cannot be connected to, or is no Pagewire; PW_TAG; PW_LIMIT; PW_TOKEN: peer is none.
 * Nothing is held then, and no completion comes.
 */
pw_error pw_post_held_write(pw_node *node, const pw_peer *peer, uint64_t tag, struct ibv_qp *qp, const struct ibv_send_wr *wr, uint64_t nanoseconds);

/**
 * Cancels a held write. Its completion says how it ended: PW_WC_CANCELLED, or another one if its release or its end came first. PW_OK also if none of
 * this tag is held.
 *
 * PW_TOKEN: peer is none.
 */
pw_error pw_cancel_held_write(pw_node *node, const pw_peer *peer, uint64_t tag);

/**
 * Releases the write of a tag that the peer holds, or will hold: it goes to at most length bytes at address, of a memory region of the protection
 * domain of this side's queue pair.
 *
 * operation: ends once the peer has posted the write; NULL if nobody asks. The bytes come later, as of any WRITE: let it have an immediate to learn of
 * them. pw_wait() gives PW_OK; PW_CANCELLED: it has ended before; PW_TIMEOUT: no write came within 60 s; PW_RELEASE: length is too short;
 * PW_DECLINED: the peer keeps as many releases as it can; PW_PEER_LOST.
 *
 * pw_next_opened() tells of held writes, too; one that is not declined is to be freed by pw_opened_free() and released by its tag.
 *
 * PW_TAG: a release of the tag to this peer is under way; PW_LIMIT; PW_TOKEN: peer is none.
 */
pw_error pw_release_held_write(pw_node *node, const pw_peer *peer, uint64_t tag, uint64_t address, uint32_t rkey, uint64_t length,
                               pw_operation **operation);

/** WRITEs and atomics of peers are counted. */
#define PW_WATCH_WRITES 1
/** READs of peers are counted. */
#define PW_WATCH_READS 2

/** Accesses of peers to a page of memory, 4,096 bytes. */
typedef struct {
    /** Its first byte. */
    void *page;
    /** WRITEs that touched it, and bytes that they wrote there. */
    uint64_t writes;
    uint64_t written_bytes;
    /** READs that touched it, and bytes that they read there. */
    uint64_t reads;
    uint64_t read_bytes;
    /** Atomics. */
    uint64_t atomics;
} pw_page_count;

/**
 * Has accesses of peers to a memory region counted by page, by a thread of the library. It needs no node. accesses: PW_WATCH_WRITES, PW_WATCH_READS, both
 * by OR; 0: no more. When it returns, later accesses are counted, or no more. The region is watched whole, wherever it begins; the counts are those of pages
 * of memory. SENDs are no accesses to a region. pagewire run --watch has this done with each region, and pagewire top shows the pages.
 *
 * mr: registered, and not deregistered meanwhile. PW_ENGINE: it cannot be watched (it is longer than 64 GiB, or there is no memory), or a stopped peer is
 * within an access; PW_ARGUMENT.
 */
pw_error pw_watch_region(struct ibv_mr *mr, uint32_t accesses);

/**
 * What was counted of the pages that lie in length bytes at address, wholly or in part, and were accessed, in the order of their addresses. What peers have
 * completed before is in the counts. Counts stay when the region has ended.
 *
 * counts: gets the first `most` of them; NULL with 0. found: gets how many there are, which may be more. PW_ARGUMENT.
 */
pw_error pw_page_counts(const void *address, size_t length, pw_page_count *counts, size_t most, size_t *found);

#ifdef __cplusplus
}
#endif
#endif  /* PAGEWIRE_VERBS_H */
