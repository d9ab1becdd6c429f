/* Two processes, parent and forked child, each with an engine of its own, and queue pairs between them. */
#ifndef LINK_H
#define LINK_H

#include "pair.h"

/* Of each queue. */
#define DEPTH 128

struct link {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static inline void tell_peer(const void *what, size_t length)
{
	CHECK(write(to_peer, what, length) == (ssize_t)length);
}

static inline void hear_peer(void *what, size_t length)
{
	for (size_t got = 0; got < length;) {
		ssize_t more = read(from_peer, (char *)what + got, length - got);

		/* 0: the peer has ended, and has said why. */
		if (more == 0)
			exit(1);
		CHECK(more > 0);
		got += more;
	}
}

/* Tells the peer something of a kind of which it tells the same. */
static inline void exchange(const void *mine, void *its, size_t length)
{
	tell_peer(mine, length);
	hear_peer(its, length);
}

/* Both sides call this with as many. `timeout`: as ibv_modify_qp(3) has it, 4.096 us times 2 to its power. */
static inline void make_links(struct ibv_pd *pd, struct ibv_cq *cq, struct link *links, int count, int timeout)
{
	struct ibv_port_attr port;

	CHECK(ibv_query_port(pd->context, 1, &port) == 0);
	for (int i = 0; i < count; i++) {
		struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
		struct ibv_qp_attr attr;
		uint32_t peer;

		init.cap.max_send_wr = init.cap.max_recv_wr = DEPTH;
		links[i] = (struct link){ cq, ibv_create_qp(pd, &init) };
		CHECK(links[i].qp);
		exchange(&links[i].qp->qp_num, &peer, sizeof(peer));
		to_open_init(links[i].qp);
		attr = usual_attributes(pd->context, peer);
		attr.qp_state = IBV_QPS_RTR;
		attr.path_mtu = port.active_mtu;
		CHECK(ibv_modify_qp(links[i].qp, &attr, RTR_MASK(IBV_QPT_RC)) == 0);
		attr = usual_attributes(pd->context, 0);
		attr.qp_state = IBV_QPS_RTS;
		attr.timeout = timeout;
		CHECK(ibv_modify_qp(links[i].qp, &attr, RTS_MASK(IBV_QPT_RC)) == 0);
	}
	meet();
}

static inline void post_receive(struct ibv_qp *qp, uint64_t id, struct ibv_sge *sge)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = sge ? 1 : 0 }, *bad;

	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* What is said if it does not come. */
static char waiting_for[256] = "a completion";

/* The next completion, whatever its status; the program fails if there is none for long. */
static inline struct ibv_wc next_completion(struct ibv_cq *cq, double patience)
{
	double end = seconds() + patience;
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) {
		if (seconds() > end) {
			fprintf(stderr, "not in %.0f s: %s\n", patience, waiting_for);
			exit(1);
		}
	}
	CHECK(got == 1);
	return wc;
}

/* The child's status must be that of success. */
static inline void end_of_peer(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
