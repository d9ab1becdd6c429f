/*
 * pagewire_verbs.h: what Pagewire adds to verbs programs: conditional writes on queue pairs of their own, and for their regions counts of accesses,
 * checkpoints, and attributes of pages.
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
 *   PW_WC_DECLINED          the peer has declined it (pw_conditional_request_decline()), or holds too many openings
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
 * pw_next_conditional_request() tells of held writes, too; one that is not declined is to be freed by pw_conditional_request_free() and released by its tag.
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

/**
 * Saves a memory region to a file, which is made if it is absent. The first checkpoint is full, or the first one behind a restore has what has changed
 * since. What peers have completed before the call is in it, and what this process has written before. A page that somebody writes during the call is as
 * it was at some instant of the call, or in part, and comes again with the next one: stop writing where that matters. The file survives the process at any
 * instant with its last whole checkpoint. `pagewire checkpoint` lists, verifies and extracts what it has.
 *
 * file: one region has one file; another name begins a full checkpoint there. NULL: the file that the region has, as by pagewire run --checkpoint. saved: gets
 * what was saved; NULL if nobody asks.
 *
 * Writes of this process are seen by asynchronous write protection (Linux 6.7). Elsewhere, for memory that cannot be protected so, and for memory that is
 * mapped shared, as other processes may write it, each checkpoint is a full copy, which a line on the standard error output says. What peers write through
 * another region over the same memory is seen, too, if that memory is not of the registered heap, or the other region is saved as well.
 *
 * mr: registered, and not deregistered meanwhile. A reregistration ends its checkpoints: the next one is full.
 *
 * PW_ARGUMENT: mr or file cannot be, pagewire run --checkpoint saves the region elsewhere, or the file has a region of another length. PW_IN_USE: another
 * process, or another region, has the file. PW_FILE: it is no checkpoint file, or damaged. PW_LIMIT: 128 regions are saved already. PW_SYSTEM: the file or the
 * memory cannot be used. pw_error_message() says more. The checkpoints before stay, and the region is saved where it was.
 */
pw_error pw_checkpoint_region(struct ibv_mr *mr, const char *file, pw_saved *saved);

/**
 * Restores the memory of a region from a checkpoint, of a region with the same length. Nobody else uses the memory meanwhile. All data are compared with
 * their checksums before any is changed. Later checkpoints of this region to the same file have what has changed since; those behind number are then
 * forgotten.
 *
 * number: of a checkpoint; 0: the last one. restored: gets its number; NULL if nobody asks. PW_ARGUMENT: the file has no such checkpoint. No file is made.
 * The others as for pw_checkpoint_region().
 */
pw_error pw_restore_region(struct ibv_mr *mr, const char *file, uint64_t number, uint64_t *restored);

/**
 * Saves all regions of a program that was started by pagewire run --checkpoint, each to its file, as pw_checkpoint_region() does: for a program that
 * knows when nobody writes. saved: gets how many were; NULL if nobody asks.
 *
 * PW_ENGINE: the program was not started so, or a region was not saved.
 */
pw_error pw_checkpoint_all(uint64_t *saved);

/**
 * Sets the attributes of pages of a memory region: what peers WRITE, READ and add there is then logged, with data or without, redirected into the log, or
 * refused with IBV_WC_REM_ACCESS_ERR. As pw_set_attributes() of pagewire.h, whose attributes and logs these are: pw_log_make() makes a log,
 * pw_log_poll() and pw_log_serve() read it. WRITEs are puts, READs are gets. SENDs are no accesses to a region.
 *
 * offset, length: whole pages of 4,096 bytes, the first of which begins where the region does; the last one may be shorter. PW_TO_END for the rest. log:
 * NULL for the fault log. A reregistration with another protection domain or other memory is refused while the pages have attributes; nothing takes
 * these away but ibv_dereg_mr().
 *
 * mr: registered, and not deregistered meanwhile. PW_BOUNDS, PW_ARGUMENT; PW_ENGINE: mr is none; its accesses are counted or it is saved to checkpoints,
 * which use the log of its pages; or a stopped peer is within an access.
 */
pw_error pw_set_region_attributes(struct ibv_mr *mr, uint64_t offset, uint64_t length, uint32_t attributes, pw_log *log);

/**
 * Makes a region one of flushes: a READ of it by a peer completes when the handlers of this process have returned for all that was logged of the peer's
 * queue pair before, whatever region and log. The peer calls nothing of Pagewire: it READs the 8 bytes, which mean nothing, on the queue pair of its
 * accesses. Requests behind that READ wait for it. The logs are handled at once, whatever count or time pw_log_serve() sleeps for. While a handler does
 * not return, or nobody reads the log, the READ does not end: a requester on Pagewire waits without bound, and the READ of another one fails with
 * IBV_WC_RETRY_EXC_ERR. After a log was damaged one READ fails with IBV_WC_REM_OP_ERR.
 *
 * mr: 8 bytes long, registered with IBV_ACCESS_REMOTE_READ, without IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC and IBV_ACCESS_MW_BIND, and not
 * deregistered meanwhile. It stays one of flushes until ibv_dereg_mr(), and ibv_rereg_mr() is refused. Calling it once more changes nothing.
 *
 * PW_ARGUMENT: mr is not such a region; PW_ENGINE: mr is none; it is watched or saved, its pages have attributes, or a stopped peer is within an access.
 */
pw_error pw_make_flush_region(struct ibv_mr *mr);

#ifdef __cplusplus
}
#endif
#endif  /* PAGEWIRE_VERBS_H */
