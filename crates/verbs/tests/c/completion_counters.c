/*
 * Completion counters (ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), ibv_query_comp_cntr_caps(3)), as the header of rdma-core 65 declares
 * them: what each operation adds, of requests and of bytes, at both ends; failures; which attachments are refused; and when a counter ends.
 */
#define _GNU_SOURCE
#include "connect.h"

#include <dlfcn.h>

enum { SEND = 1, RECV = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32, ALL = 63 };
enum { WRS, BYTES };
enum { DEPTH = 64, LONG = 100000 };

struct counter {
	struct ibv_context *context;
	uint32_t handle;
};
struct caps {
	uint64_t max_value;
	uint32_t max_counters, supported_qp_attach_ops;
};
struct init {
	uint32_t comp_mask, type, flags;
};
struct attach {
	uint32_t comp_mask, op_mask;
};

static int (*query_caps)(struct ibv_context *, struct caps *, size_t);
static struct counter *(*create)(struct ibv_context *, struct init *);
static int (*destroy)(struct counter *);
static int (*set)(struct counter *, uint64_t), (*set_err)(struct counter *, uint64_t);
static int (*inc)(struct counter *, uint64_t), (*inc_err)(struct counter *, uint64_t);
static int (*read_count)(struct counter *, uint64_t *), (*read_err)(struct counter *, uint64_t *);
static int (*attach)(struct ibv_qp *, struct counter *, struct attach *);

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[2 * LONG];

/* The counters of one end, by the number of their operation. */
struct end {
	struct ibv_qp *qp;
	struct counter *of[6];
};

static void *function(const char *name)
{
	void *found = dlvsym(RTLD_DEFAULT, name, "IBVERBS_1.18");

	if (!found)
		fprintf(stderr, "%s: ", name);
	CHECK(found);
	return found;
}

static void find_functions(void)
{
	query_caps = function("_ibv_query_comp_cntr_caps");
	create = function("ibv_create_comp_cntr");
	destroy = function("ibv_destroy_comp_cntr");
	set = function("ibv_set_comp_cntr");
	set_err = function("ibv_set_err_comp_cntr");
	inc = function("ibv_inc_comp_cntr");
	inc_err = function("ibv_inc_err_comp_cntr");
	read_count = function("ibv_read_comp_cntr");
	read_err = function("ibv_read_err_comp_cntr");
	attach = function("ibv_qp_attach_comp_cntr");
}

static struct counter *counter_of(uint32_t type)
{
	struct init init = { .type = type };
	struct counter *counter = create(context, &init);

	CHECK(counter && counter->context == context);
	return counter;
}

static uint64_t count_of(struct counter *counter)
{
	uint64_t value = 77;

	CHECK(read_count(counter, &value) == 0);
	return value;
}

static uint64_t errors_of(struct counter *counter)
{
	uint64_t value = 77;

	CHECK(read_err(counter, &value) == 0);
	return value;
}

/* Reads, and nothing else, until the value is there. */
static void await(uint64_t (*value)(struct counter *), struct counter *counter, uint64_t wanted)
{
	double end = seconds() + PATIENCE_SECONDS;
	uint64_t found;

	while ((found = value(counter)) < wanted)
		CHECK(seconds() < end);
	if (found != wanted)
		fprintf(stderr, "%llu in place of %llu: ", (unsigned long long)found, (unsigned long long)wanted);
	CHECK(found == wanted);
}

static struct ibv_qp *queue_pair(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = plain_attributes(cq, type);

	init.cap.max_send_wr = init.cap.max_recv_wr = DEPTH;
	init.srq = srq;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	return qp;
}

static void attach_all(struct end *end, uint32_t type)
{
	for (int i = 0; i < 6; i++) {
		struct attach attr = { .op_mask = 1u << i };

		end->of[i] = counter_of(type);
		CHECK(attach(end->qp, end->of[i], &attr) == 0);
	}
}

static void end_all(struct end *end)
{
	CHECK(ibv_destroy_qp(end->qp) == 0);
	for (int i = 0; i < 6; i++)
		CHECK(destroy(end->of[i]) == 0);
}

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t length, uint32_t rkey, int flags)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = flags }, *bad;

	set_remote(&wr, (uintptr_t)memory + LONG, rkey);
	return ibv_post_send(qp, &wr, &bad);
}

static void post_receives(struct ibv_qp *qp, int count)
{
	struct ibv_sge sge = { (uintptr_t)memory + LONG, LONG, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 8, .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int i = 0; i < count; i++)
		CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void capabilities(void)
{
	struct {
		struct caps caps;
		uint64_t newer;
	} longer = { .newer = 1 };
	struct caps caps = { 0 };

	CHECK(query_caps(context, &caps, sizeof(caps)) == 0);
	CHECK(caps.max_value == UINT64_MAX && caps.max_counters >= 1024 && caps.supported_qp_attach_ops == ALL);
	CHECK(query_caps(context, &longer.caps, sizeof(longer)) == 0);
	CHECK(longer.caps.max_counters == caps.max_counters && longer.newer == 0);
	CHECK(query_caps(context, NULL, sizeof(caps)) == EINVAL);
	CHECK(query_caps(NULL, &caps, sizeof(caps)) == EINVAL);
}

static void objects(void)
{
	struct counter *counter = counter_of(WRS);
	struct init wrong[] = { { .comp_mask = 1 }, { .flags = 1 }, { .type = 2 } };
	uint64_t value;

	CHECK(count_of(counter) == 0 && errors_of(counter) == 0);
	CHECK(set(counter, 5) == 0 && set_err(counter, 6) == 0);
	CHECK(inc(counter, 10) == 0 && inc_err(counter, 20) == 0);
	CHECK(count_of(counter) == 15 && errors_of(counter) == 26);
	/* It wraps (ibv_query_comp_cntr_caps(3)). */
	CHECK(set(counter, UINT64_MAX) == 0 && inc(counter, 3) == 0 && count_of(counter) == 2);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		REFUSED(create(context, &wrong[i]), EINVAL);
	REFUSED(create(context, NULL), EINVAL);
	REFUSED(create(NULL, &(struct init){ 0 }), EINVAL);
	CHECK(set(NULL, 1) == EINVAL && inc_err(NULL, 1) == EINVAL && read_count(NULL, &value) == EINVAL);
	CHECK(read_count(counter, NULL) == EINVAL && read_err(counter, NULL) == EINVAL);
	CHECK(destroy(NULL) == EINVAL && destroy(counter) == 0);
}

static void attachments(void)
{
	struct ibv_context *other = open_first_device();
	struct ibv_qp *one = queue_pair(IBV_QPT_RC, NULL), *two = queue_pair(IBV_QPT_RC, NULL);
	struct counter *counter = counter_of(WRS), *second = counter_of(WRS), *foreign;
	struct attach attr = { .op_mask = SEND | WRITE }, overlap = { .op_mask = RECV | WRITE }, rest = { .op_mask = RECV };

	foreign = create(other, &(struct init){ .type = WRS });
	CHECK(foreign);
	CHECK(attach(one, foreign, &attr) == EINVAL);
	CHECK(attach(one, counter, &(struct attach){ .op_mask = 0 }) == EINVAL);
	CHECK(attach(one, counter, &(struct attach){ .op_mask = SEND, .comp_mask = 1 }) == EINVAL);
	CHECK(attach(one, counter, &(struct attach){ .op_mask = 64 | SEND }) == EOPNOTSUPP);
	CHECK(attach(one, counter, NULL) == EINVAL && attach(one, NULL, &attr) == EINVAL && attach(NULL, counter, &attr) == EINVAL);
	CHECK(attach(one, counter, &attr) == 0);
	/* What is refused attaches nothing. */
	CHECK(attach(one, second, &overlap) == EBUSY && attach(one, counter, &attr) == EBUSY);
	to_open_init(one);
	CHECK(attach(one, second, &rest) == 0);
	CHECK(attach(two, counter, &attr) == 0);
	CHECK(destroy(counter) == EBUSY && destroy(second) == EBUSY);
	to_rtr(one, two->qp_num);
	CHECK(attach(one, second, &(struct attach){ .op_mask = READ }) == EINVAL);
	to_error(one);
	CHECK(attach(one, second, &(struct attach){ .op_mask = READ }) == EINVAL);
	/* It stays attached over a reset. */
	to_state(one, IBV_QPS_RESET);
	CHECK(attach(one, counter, &attr) == EBUSY);
	CHECK(ibv_destroy_qp(one) == 0 && destroy(second) == 0 && destroy(counter) == EBUSY);
	CHECK(ibv_destroy_qp(two) == 0 && destroy(counter) == 0);
	CHECK(destroy(foreign) == 0 && ibv_close_device(other) == 0);
}

/* Adds what `times` requests of this length do at both ends. */
struct expected {
	uint64_t requester[6], responder[6];
};

static void expect(struct expected *sum, enum ibv_wr_opcode opcode, uint32_t type, uint64_t length, uint64_t times)
{
	uint64_t amount = type == WRS ? times : times * length;

	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		sum->requester[0] += amount;
		sum->responder[1] += amount;
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		sum->responder[1] += amount;
		/* fallthrough */
	case IBV_WR_RDMA_WRITE:
		sum->requester[4] += amount;
		sum->responder[5] += amount;
		break;
	case IBV_WR_RDMA_READ:
		sum->requester[2] += amount;
		sum->responder[3] += amount;
		break;
	default:
		break;
	}
}

static void await_all(struct end *requester, struct end *responder, const struct expected *sum)
{
	for (int i = 0; i < 6; i++) {
		await(count_of, requester->of[i], sum->requester[i]);
		await(count_of, responder->of[i], sum->responder[i]);
		CHECK(errors_of(requester->of[i]) == 0 && errors_of(responder->of[i]) == 0);
	}
}

/* Nobody polls, and few requests are signaled. */
static void reliable(uint32_t type)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						      IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	static const uint32_t lengths[] = { 8, 3000, 0, 60000, LONG };
	struct end one = { queue_pair(IBV_QPT_RC, NULL) }, two = { queue_pair(IBV_QPT_RC, NULL) };
	struct expected sum = { { 0 }, { 0 } };
	struct ibv_wc wc[8];

	attach_all(&one, type);
	attach_all(&two, type);
	connect_pair(one.qp, two.qp);
	for (size_t o = 0; o < sizeof(opcodes) / sizeof(opcodes[0]); o++) {
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			uint32_t length = opcodes[o] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : lengths[l];
			int signals = o == 0 && l < 2, receives;

			receives = opcodes[o] == IBV_WR_SEND || opcodes[o] == IBV_WR_SEND_WITH_IMM || opcodes[o] == IBV_WR_RDMA_WRITE_WITH_IMM;
			post_receives(two.qp, receives ? 3 : 0);
			for (int i = 0; i < 3; i++)
				CHECK(post(one.qp, opcodes[o], length, mr->rkey, signals ? IBV_SEND_SIGNALED : 0) == 0);
			expect(&sum, opcodes[o], type, length, 3);
			await_all(&one, &two, &sum);
			/* What was counted can be polled. */
			if (signals)
				CHECK(ibv_poll_cq(cq, 6, wc) == 6);
			else if (receives)
				CHECK(ibv_poll_cq(cq, 3, wc) == 3);
		}
	}
	end_all(&one);
	end_all(&two);
}

/* What a request that is refused ends with it, at both ends, and what is posted after. */
static void failures(uint32_t type)
{
	struct end one = { queue_pair(IBV_QPT_RC, NULL) }, two = { queue_pair(IBV_QPT_RC, NULL) };
	struct ibv_wc wc[DEPTH];

	attach_all(&one, type);
	attach_all(&two, type);
	connect_pair(one.qp, two.qp);
	post_receives(two.qp, 5);
	CHECK(post(one.qp, IBV_WR_RDMA_WRITE, 8, mr->rkey ^ 0x100, 0) == 0);
	poll_all(cq, 6, wc);
	await(errors_of, one.of[4], 1);
	await(errors_of, two.of[1], 5);
	CHECK(state_of(one.qp) == IBV_QPS_ERR && state_of(two.qp) == IBV_QPS_ERR);
	CHECK(post(one.qp, IBV_WR_SEND, 8, 0, 0) == 0);
	CHECK(post(one.qp, IBV_WR_RDMA_READ, 8, mr->rkey, 0) == 0);
	post_receives(one.qp, 2);
	CHECK(errors_of(one.of[0]) == 1 && errors_of(one.of[2]) == 1 && errors_of(one.of[1]) == 2);
	for (int i = 0; i < 6; i++)
		CHECK(count_of(one.of[i]) == 0 && count_of(two.of[i]) == 0);
	CHECK(errors_of(one.of[3]) == 0 && errors_of(two.of[5]) == 0);
	poll_all(cq, 4, wc);
	end_all(&one);
	end_all(&two);
}

/* UC counts as RC does. Its WRITEs are counted at the peer, too. */
static void unreliable(void)
{
	struct end one = { queue_pair(IBV_QPT_UC, NULL) }, two = { queue_pair(IBV_QPT_UC, NULL) };
	struct expected sum = { { 0 }, { 0 } };
	struct ibv_wc wc[2];

	attach_all(&one, BYTES);
	attach_all(&two, BYTES);
	connect_pair(one.qp, two.qp);
	post_receives(two.qp, 2);
	CHECK(post(one.qp, IBV_WR_SEND, 4000, 0, 0) == 0);
	CHECK(post(one.qp, IBV_WR_RDMA_WRITE, 5000, mr->rkey, 0) == 0);
	CHECK(post(one.qp, IBV_WR_RDMA_WRITE_WITH_IMM, 6000, mr->rkey, 0) == 0);
	expect(&sum, IBV_WR_SEND, BYTES, 4000, 1);
	expect(&sum, IBV_WR_RDMA_WRITE, BYTES, 5000, 1);
	expect(&sum, IBV_WR_RDMA_WRITE_WITH_IMM, BYTES, 6000, 1);
	await_all(&one, &two, &sum);
	poll_all(cq, 2, wc);
	end_all(&one);
	end_all(&two);
}

/* Datagrams to itself: one counter counts both ways, and what its completion says of the length of a receive. */
static void datagrams(void)
{
	struct ibv_qp *qp = queue_pair(IBV_QPT_UD, NULL);
	struct counter *both = counter_of(BYTES);
	struct attach attr = { .op_mask = SEND | RECV };
	struct ibv_ah_attr address = to_own_host(context);
	struct ibv_sge sge = { (uintptr_t)memory, 100, mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	CHECK(attach(qp, both, &attr) == 0);
	to_open_init(qp);
	to_rtr(qp, 0);
	to_rts(qp);
	post_receives(qp, 1);
	wr.wr.ud.ah = ibv_create_ah(pd, &address);
	CHECK(wr.wr.ud.ah);
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	await(count_of, both, 100 + 140);
	poll_all(cq, 1, &wc);
	CHECK(wc.byte_len == 140);
	CHECK(ibv_destroy_ah(wr.wr.ud.ah) == 0 && ibv_destroy_qp(qp) == 0 && destroy(both) == 0);
}

/* Two queue pairs add to one counter, and receive from one shared queue. */
static void shared(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_qp *from[2], *to[2];
	struct counter *counter = counter_of(WRS);
	struct attach attr = { .op_mask = RECV };
	struct ibv_sge sge = { (uintptr_t)memory + LONG, 64, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc[6];

	CHECK(srq);
	for (int i = 0; i < 2; i++) {
		from[i] = queue_pair(IBV_QPT_RC, NULL);
		to[i] = queue_pair(IBV_QPT_RC, srq);
		CHECK(attach(to[i], counter, &attr) == 0);
		connect_pair(from[i], to[i]);
	}
	for (int i = 0; i < 6; i++) {
		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
		CHECK(post(from[i % 2], IBV_WR_SEND, 16, 0, 0) == 0);
	}
	await(count_of, counter, 6);
	poll_all(cq, 6, wc);
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_qp(from[i]) == 0 && ibv_destroy_qp(to[i]) == 0);
	CHECK(destroy(counter) == 0 && ibv_destroy_srq(srq) == 0);
}

/* A counter takes the place of completions: each request is one more credit, for a queue that holds few. */
static void credits(void)
{
	enum { REQUESTS = 5000, WINDOW = 16 };
	struct ibv_qp *one = queue_pair(IBV_QPT_RC, NULL), *two = queue_pair(IBV_QPT_RC, NULL);
	struct counter *sent = counter_of(WRS), *written = counter_of(BYTES);

	CHECK(attach(one, sent, &(struct attach){ .op_mask = WRITE }) == 0);
	CHECK(attach(two, written, &(struct attach){ .op_mask = REMOTE_WRITE }) == 0);
	connect_pair(one, two);
	for (uint64_t i = 0; i < REQUESTS; i++) {
		double end = seconds() + PATIENCE_SECONDS;

		while (count_of(written) + WINDOW * 24 <= i * 24 || count_of(sent) + DEPTH <= i)
			CHECK(seconds() < end);
		CHECK(post(one, IBV_WR_RDMA_WRITE, 24, mr->rkey, 0) == 0);
	}
	await(count_of, sent, REQUESTS);
	await(count_of, written, REQUESTS * 24);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && destroy(sent) == 0 && destroy(written) == 0);
}

/* The limit is what the device says, and a closed device holds nothing of it. */
static void limit(void)
{
	struct ibv_context *own = open_first_device();
	struct caps caps;

	CHECK(query_caps(own, &caps, sizeof(caps)) == 0);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < caps.max_counters; i++)
			CHECK(create(own, &(struct init){ 0 }));
		REFUSED(create(own, &(struct init){ 0 }), ENOMEM);
		CHECK(ibv_close_device(own) == 0);
		own = open_first_device();
	}
	CHECK(ibv_close_device(own) == 0);
}

int main(void)
{
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(pd && cq);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	CHECK(mr);
	find_functions();
	capabilities();
	objects();
	attachments();
	for (uint32_t type = WRS; type <= BYTES; type++) {
		reliable(type);
		failures(type);
	}
	unreliable();
	datagrams();
	shared();
	credits();
	limit();
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
