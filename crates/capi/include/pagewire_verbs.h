/*
 * pagewire_verbs.h: conditional writes of verbs programs, on queue pairs of their own.
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

#ifdef __cplusplus
}
#endif
#endif  /* PAGEWIRE_VERBS_H */
