/*
 * Small verbs that programs ask for: thread domains and parent domains, null regions, moderation of completion events, overrun that
 * is ignored, the raw clock (ibv_alloc_td(3), ibv_alloc_parent_domain(3), ibv_alloc_null_mr(3), ibv_modify_cq(3),
 * ibv_create_cq_ex(3), ibv_query_rt_values_ex(3), ibv_get_srq_num(3)).
 */
#include "connect.h"

#include <fcntl.h>
#include <poll.h>

#define LARGE (8 << 20)

static int allocations;

static void *allocate(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	(void)pd, (void)context, (void)size, (void)alignment, (void)type;
	allocations++;
	return IBV_ALLOCATOR_USE_DEFAULT;
}

static void give_back(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	(void)pd, (void)context, (void)memory, (void)type;
	allocations++;
}

static struct ibv_pd *parent_of(struct ibv_pd *pd, struct ibv_td *td)
{
	struct ibv_parent_domain_init_attr init = {
		.pd = pd, .td = td, .alloc = allocate, .free = give_back, .pd_context = pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	};
	struct ibv_pd *parent = ibv_alloc_parent_domain(pd->context, &init);

	CHECK(parent && parent != pd && parent->context == pd->context);
	return parent;
}

static struct ibv_cq *cq_of(struct ibv_pd *parent, int flags, int entries, struct ibv_comp_channel *channel)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = entries, .wc_flags = IBV_WC_STANDARD_FLAGS, .flags = flags, .parent_domain = parent, .channel = channel,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | (parent ? IBV_CQ_INIT_ATTR_MASK_PD : 0),
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex((parent ? parent->context : channel->context), &init);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

/* Whatever is made in a domain keeps it. */
static void users(struct ibv_pd *pd)
{
	struct ibv_td_init_attr none = { 0 };
	struct ibv_td *td = ibv_alloc_td(pd->context, &none);
	struct ibv_pd *parent = parent_of(pd, td);
	struct ibv_ah_attr to = to_own_host(pd->context);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_qp_init_attr init;
	static char byte;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	CHECK(td && td->context == pd->context);
	CHECK(ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
	mr = ibv_reg_mr(parent, &byte, 1, 0);
	CHECK(mr && mr->pd == parent && ibv_dealloc_pd(parent) == EBUSY && ibv_dereg_mr(mr) == 0);
	mr = ibv_alloc_null_mr(parent);
	CHECK(mr && mr->pd == parent && ibv_dealloc_pd(parent) == EBUSY && ibv_dereg_mr(mr) == 0);
	ah = ibv_create_ah(parent, &to);
	CHECK(ah && ah->pd == parent && ibv_dealloc_pd(parent) == EBUSY && ibv_destroy_ah(ah) == 0);
	srq = ibv_create_srq(parent, &srq_init);
	CHECK(srq && srq->pd == parent && ibv_dealloc_pd(parent) == EBUSY && ibv_destroy_srq(srq) == 0);
	cq = cq_of(parent, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, 8, NULL);
	CHECK(cq && ibv_dealloc_pd(parent) == EBUSY);
	init = plain_attributes(cq, IBV_QPT_RC);
	qp = ibv_create_qp(parent, &init);
	CHECK(qp && qp->pd == parent && ibv_dealloc_pd(parent) == EBUSY && ibv_destroy_cq(cq) == EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_dealloc_pd(parent) == EBUSY && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == 0);
	/* One for two parent domains, of which one extends the other's protection domain. */
	td = ibv_alloc_td(pd->context, &none);
	parent = parent_of(pd, td);
	struct ibv_pd *other = parent_of(parent, td);
	CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_dealloc_pd(other) == 0 && ibv_dealloc_td(td) == 0);
	CHECK(allocations == 0);
}

static void refused_domains(struct ibv_pd *pd)
{
	struct ibv_context *elsewhere = open_first_device();
	struct ibv_td_init_attr none = { 0 }, unknown = { .comp_mask = 1 };
	struct ibv_td *td = ibv_alloc_td(elsewhere, &none);
	struct ibv_parent_domain_init_attr init = { 0 };
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_pd *parent = parent_of(pd, NULL);

	CHECK(td);
	REFUSED(ibv_alloc_td(elsewhere, &unknown), EINVAL);
	REFUSED(ibv_alloc_parent_domain(pd->context, &init), EINVAL);
	init.pd = pd;
	REFUSED(ibv_alloc_parent_domain(elsewhere, &init), EINVAL);
	init.comp_mask = 1u << 31;
	REFUSED(ibv_alloc_parent_domain(pd->context, &init), EINVAL);
	init.comp_mask = 0;
	init.td = td;
	REFUSED(ibv_alloc_parent_domain(pd->context, &init), EINVAL);
	CHECK(ibv_dealloc_td(td) == 0 && "nothing that was refused uses it");
	REFUSED(ibv_create_cq_ex(pd->context, &cq_init), EINVAL);
	cq_init.parent_domain = pd;
	REFUSED(ibv_create_cq_ex(pd->context, &cq_init), EINVAL);
	cq_init.parent_domain = parent;
	REFUSED(ibv_create_cq_ex(elsewhere, &cq_init), EINVAL);
	CHECK(ibv_dealloc_pd(parent) == 0);
	/* A device that is closed leaves nothing of these. */
	struct ibv_pd *left = ibv_alloc_pd(elsewhere);
	struct ibv_td *left_td = ibv_alloc_td(elsewhere, &none);
	CHECK(left && left_td && cq_of(parent_of(left, left_td), 0, 8, NULL) && ibv_alloc_null_mr(left));
	CHECK(ibv_close_device(elsewhere) == 0);
}

struct ends {
	struct ibv_cq *cq;
	struct ibv_qp *one, *two;
};

static struct ends make(struct ibv_pd *one, struct ibv_pd *two, enum ibv_qp_type type)
{
	struct ends e = { .cq = ibv_create_cq(one->context, 64, NULL, NULL, 0) };
	struct ibv_qp_init_attr init = plain_attributes(e.cq, type);

	init.sq_sig_all = 1;
	init.cap.max_send_sge = init.cap.max_recv_sge = 4;
	e.one = ibv_create_qp(one, &init);
	e.two = ibv_create_qp(two, &init);
	CHECK(e.cq && e.one && e.two);
	connect_pair(e.one, e.two);
	return e;
}

static void destroy(struct ends *e)
{
	CHECK(ibv_destroy_qp(e->one) == 0 && ibv_destroy_qp(e->two) == 0 && ibv_destroy_cq(e->cq) == 0);
}

static void receive(struct ends *e, struct ibv_sge *list, int count)
{
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = list, .num_sge = count }, *bad;

	CHECK(ibv_post_recv(e->two, &wr, &bad) == 0);
}

static void post(struct ends *e, enum ibv_wr_opcode opcode, struct ibv_sge *list, int count, void *at, uint32_t key)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = opcode, .sg_list = list, .num_sge = count }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)at;
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)at;
		wr.wr.rdma.rkey = key;
	}
	CHECK(ibv_post_send(e->one, &wr, &bad) == 0);
}

/* The statuses of so many completions are all the same; the longest message among them. */
static uint32_t statuses(struct ends *e, int count, enum ibv_wc_status status)
{
	struct ibv_wc wc[8];
	uint32_t longest = 0;

	poll_all(e->cq, count, wc);
	for (int i = 0; i < count; i++) {
		CHECK(wc[i].status == status);
		longest = wc[i].byte_len > longest && wc[i].opcode == IBV_WC_RECV ? wc[i].byte_len : longest;
	}
	return longest;
}

/* A parent domain is the protection domain that it extends, and no other one. */
static void one_domain(struct ibv_pd *pd)
{
	struct ibv_pd *parent = parent_of(pd, NULL), *other = ibv_alloc_pd(pd->context);
	static char from[64], to[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, from, sizeof(from), ALL_ACCESS);
	struct ibv_mr *of_parent = ibv_reg_mr(parent, to, sizeof(to), ALL_ACCESS);
	struct ibv_mr *of_other = ibv_reg_mr(other, to, sizeof(to), ALL_ACCESS);
	struct ibv_sge sge = { (uintptr_t)from, sizeof(from), mr->lkey };
	struct ends e = make(parent, pd, IBV_QPT_RC);

	memset(from, 7, sizeof(from));
	post(&e, IBV_WR_RDMA_WRITE, &sge, 1, to, of_parent->rkey);
	statuses(&e, 1, IBV_WC_SUCCESS);
	CHECK(memcmp(from, to, sizeof(to)) == 0);
	post(&e, IBV_WR_RDMA_WRITE, &sge, 1, to, of_other->rkey);
	statuses(&e, 1, IBV_WC_REM_ACCESS_ERR);
	destroy(&e);
	e = make(parent, pd, IBV_QPT_RC);
	sge.lkey = of_other->lkey;
	post(&e, IBV_WR_RDMA_WRITE, &sge, 1, to, of_parent->rkey);
	statuses(&e, 1, IBV_WC_LOC_PROT_ERR);
	destroy(&e);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(of_parent) == 0 && ibv_dereg_mr(of_other) == 0);
	CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_pd(other) == 0);
}

static int all_are(const char *bytes, size_t length, char value)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != value)
			return 0;
	return 1;
}

/* Zeros come from a null region and everything vanishes in it, at any address and length, alone and between other pieces. */
static void null_region(struct ibv_pd *pd, enum ibv_qp_type type)
{
	static const uint64_t addresses[] = { 0, 4097, UINT64_MAX, 0x8000000000001000 };
	static const uint32_t sizes[] = { 1, 100, 4096, 5000, 70000, LARGE };
	static char mine[LARGE + 16], theirs[LARGE + 16];
	struct ibv_mr *null = ibv_alloc_null_mr(pd);
	struct ibv_mr *from = ibv_reg_mr(pd, mine, sizeof(mine), ALL_ACCESS), *to = ibv_reg_mr(pd, theirs, sizeof(theirs), ALL_ACCESS);
	struct ends e = make(pd, pd, type);

	CHECK(null && null->pd == pd && null->context == pd->context && from && to);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t address = addresses[i % 4];
		/* Nobody repeats what UC loses of a long message on a busy machine. */
		uint32_t size = type == IBV_QPT_RC ? sizes[i] : sizes[i] % LARGE;
		struct ibv_sge nothing = { address, size, null->lkey };
		struct ibv_sge mixed[3] = { { (uintptr_t)mine, 8, from->lkey }, nothing, { (uintptr_t)mine + 8, 8, from->lkey } };
		struct ibv_sge into[3] = { { (uintptr_t)theirs, 8, to->lkey }, nothing, { (uintptr_t)theirs + 8, 8, to->lkey } };
		struct ibv_sge whole = { (uintptr_t)theirs, size + 16, to->lkey };

		memset(mine, 3, sizeof(mine));
		memset(theirs, 7, sizeof(theirs));
		receive(&e, &whole, 1);
		post(&e, IBV_WR_SEND, &nothing, 1, NULL, 0);
		CHECK(statuses(&e, 2, IBV_WC_SUCCESS) == size);
		CHECK(all_are(theirs, size, 0) && all_are(theirs + size, 16, 7));
		receive(&e, &whole, 1);
		post(&e, IBV_WR_SEND, mixed, 3, NULL, 0);
		CHECK(statuses(&e, 2, IBV_WC_SUCCESS) == size + 16);
		CHECK(all_are(theirs, 8, 3) && all_are(theirs + 8, size, 0) && all_are(theirs + 8 + size, 8, 3));
		/* What is received there is gone, and is not what is read there next. */
		memset(theirs, 7, sizeof(theirs));
		receive(&e, into, 3);
		post(&e, IBV_WR_SEND, (struct ibv_sge[]){ { (uintptr_t)mine, size + 16, from->lkey } }, 1, NULL, 0);
		CHECK(statuses(&e, 2, IBV_WC_SUCCESS) == size + 16);
		CHECK(all_are(theirs, 16, 3) && all_are(theirs + 16, size, 7));
		post(&e, IBV_WR_RDMA_WRITE, mixed, 3, theirs, to->rkey);
		statuses(&e, 1, IBV_WC_SUCCESS);
		double end = seconds() + PATIENCE_SECONDS;
		while (!all_are(theirs + 8 + size, 8, 3))
			CHECK(seconds() < end);
		CHECK(all_are(theirs, 8, 3) && all_are(theirs + 8, size, 0));
		if (type != IBV_QPT_RC || size == 0)
			continue;
		memset(theirs, 5, sizeof(theirs));
		post(&e, IBV_WR_RDMA_READ, mixed, 3, theirs, to->rkey);
		statuses(&e, 1, IBV_WC_SUCCESS);
		CHECK(all_are(mine, 16, 5) && all_are(mine + 16, size, 3));
		post(&e, IBV_WR_RDMA_WRITE, &nothing, 1, theirs, to->rkey);
		statuses(&e, 1, IBV_WC_SUCCESS);
		CHECK(all_are(theirs, size, 0));
		nothing.length = 8;
		post(&e, IBV_WR_ATOMIC_FETCH_AND_ADD, &nothing, 1, theirs + 8, to->rkey);
		statuses(&e, 1, IBV_WC_SUCCESS);
		CHECK(*(uint64_t *)(theirs + 8) == (size < 16 ? 0x0505050505050505 : 0) + 5);
	}
	destroy(&e);
	CHECK(ibv_dereg_mr(null) == 0 && ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
}

/* A datagram from a null region, and one into one. */
static void null_datagrams(struct ibv_pd *pd)
{
	struct ibv_ah_attr attr = to_own_host(pd->context);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_mr *null = ibv_alloc_null_mr(pd), *mr;
	struct ends e = make(pd, pd, IBV_QPT_UD);
	static char memory[140];
	struct ibv_sge nothing = { 77, 1000, null->lkey }, into;
	struct ibv_send_wr wr = { .sg_list = &nothing, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	memset(memory, 7, sizeof(memory));
	into = (struct ibv_sge){ (uintptr_t)memory, sizeof(memory), mr->lkey };
	CHECK(ah && null && mr);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = e.two->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	receive(&e, &nothing, 1);
	receive(&e, &into, 1);
	nothing.length = 100;
	for (int i = 0; i < 2; i++) {
		CHECK(ibv_post_send(e.one, &wr, &bad) == 0);
		CHECK(statuses(&e, 2, IBV_WC_SUCCESS) == 140);
	}
	CHECK(all_are(memory + 40, 100, 0));
	destroy(&e);
	CHECK(ibv_destroy_ah(ah) == 0 && ibv_dereg_mr(null) == 0 && ibv_dereg_mr(mr) == 0);
}

/* Only the own queue pairs of its protection domain use a null region, as long as it is there. */
static void refused_null_regions(struct ibv_pd *pd)
{
	static char memory[64];
	struct ibv_pd *other = ibv_alloc_pd(pd->context);
	struct ibv_mr *null = ibv_alloc_null_mr(pd), *mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	struct ibv_mr *elsewhere = ibv_alloc_null_mr(other);
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey }, nothing = { 0, 8, null->lkey };
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (int i = 0; i < 3; i++) {
		struct ends e = make(pd, pd, IBV_QPT_RC);

		post(&e, opcodes[i], &sge, 1, memory, null->rkey);
		statuses(&e, 1, IBV_WC_REM_ACCESS_ERR);
		destroy(&e);
	}
	CHECK(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 8, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &nothing, 1) == ENOENT);
	CHECK(ibv_dereg_mr(null) == 0);
	for (int i = 0; i < 2; i++) {
		struct ends e = make(pd, pd, IBV_QPT_RC);

		post(&e, IBV_WR_RDMA_WRITE, &nothing, 1, memory, mr->rkey);
		statuses(&e, 1, IBV_WC_LOC_PROT_ERR);
		destroy(&e);
		nothing.lkey = elsewhere->lkey;
	}
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(elsewhere) == 0 && ibv_dealloc_pd(other) == 0);
}

static int has_event(struct ibv_comp_channel *channel, int milliseconds)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	int count = poll(&ready, 1, milliseconds);

	CHECK(count >= 0);
	return count;
}

static void take_event(struct ibv_comp_channel *channel, struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_get_cq_event(channel, &cq, &context) == 0 && cq == expected);
	ibv_ack_cq_events(cq, 1);
}

static int moderate(struct ibv_cq *cq, uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { count, period } };

	return ibv_modify_cq(cq, &attr);
}

/* One event for several completions, after a while at the latest. */
static void moderation(struct ibv_pd *pd)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pd->context);
	struct ibv_cq *cq = ibv_create_cq(pd->context, 64, NULL, channel, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_modify_cq_attr unknown = { .attr_mask = 1u << 31 }, nothing = { 0 };
	struct ibv_device_attr_ex device;
	struct ends e = { .cq = cq };
	struct ibv_wc wc[8];
	double begin;

	CHECK(ibv_query_device_ex(pd->context, NULL, &device) == 0);
	CHECK(device.cq_mod_caps.max_cq_count == UINT16_MAX && device.cq_mod_caps.max_cq_period == UINT16_MAX);
	CHECK(ibv_modify_cq(cq, &unknown) == EINVAL && ibv_modify_cq(cq, &nothing) == 0);
	init.sq_sig_all = 1;
	e.one = ibv_create_qp(pd, &init);
	e.two = ibv_create_qp(pd, &init);
	CHECK(channel && cq && e.one && e.two);
	connect_pair(e.one, e.two);
	/* Each completion, as ever. */
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	post(&e, IBV_WR_RDMA_WRITE, NULL, 0, NULL, 0);
	take_event(channel, cq);
	poll_all(cq, 1, wc);
	/* The third of them. */
	CHECK(moderate(cq, 3, 60000) == 0 && ibv_req_notify_cq(cq, 0) == 0);
	begin = seconds();
	for (int i = 0; i < 3; i++) {
		CHECK(!has_event(channel, 0) || seconds() - begin >= 0.06);
		post(&e, IBV_WR_RDMA_WRITE, NULL, 0, NULL, 0);
		poll_all(cq, 1, wc);
	}
	take_event(channel, cq);
	CHECK(!has_event(channel, 0));
	/* The first, after a while. */
	CHECK(moderate(cq, 1000, 50000) == 0 && ibv_req_notify_cq(cq, 0) == 0);
	begin = seconds();
	post(&e, IBV_WR_RDMA_WRITE, NULL, 0, NULL, 0);
	take_event(channel, cq);
	CHECK(seconds() - begin >= 0.05);
	poll_all(cq, 1, wc);
	/* One that is held back is raised where moderation ends. */
	CHECK(moderate(cq, 1000, UINT16_MAX) == 0 && ibv_req_notify_cq(cq, 0) == 0);
	post(&e, IBV_WR_RDMA_WRITE, NULL, 0, NULL, 0);
	poll_all(cq, 1, wc);
	CHECK(moderate(cq, 0, 0) == 0 && has_event(channel, 0));
	take_event(channel, cq);
	/* A failure is told at once. */
	CHECK(moderate(cq, 1000, UINT16_MAX) == 0 && ibv_req_notify_cq(cq, 0) == 0);
	to_error(e.one);
	begin = seconds();
	post(&e, IBV_WR_RDMA_WRITE, NULL, 0, NULL, 0);
	take_event(channel, cq);
	CHECK(has_event(channel, 0) == 0);
	poll_all(cq, 1, wc);
	CHECK(wc[0].status == IBV_WC_WR_FLUSH_ERR);
	/* A queue that goes with an event held back. */
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	CHECK(ibv_destroy_qp(e.one) == 0 && ibv_destroy_qp(e.two) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
}

/* Completions for which there is no room take the places of the oldest, and nothing goes wrong. */
static void ignored_overrun(struct ibv_pd *pd)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pd->context);
	struct ibv_cq *cq = cq_of(NULL, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 4, channel);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct pollfd events = { .fd = pd->context->async_fd, .events = POLLIN };
	static char memory[8], target[8];
	struct ibv_mr *mr = ibv_reg_mr(pd, target, sizeof(target), ALL_ACCESS);
	struct ibv_sge sge = { (uintptr_t)memory, 8, 0 };
	struct ibv_qp *one, *two;
	struct ibv_wc wc[8];
	int count;

	CHECK(channel && cq && cq->cqe == 4 && mr);
	init.cap.max_send_wr = 64;
	one = ibv_create_qp(pd, &init);
	two = ibv_create_qp(pd, &init);
	CHECK(one && two);
	connect_pair(one, two);
	for (uint64_t id = 0; id < 20; id++) {
		struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;

		memory[0] = id + 1;
		wr.wr.rdma.remote_addr = (uintptr_t)target;
		wr.wr.rdma.rkey = mr->rkey;
		CHECK(ibv_post_send(one, &wr, &bad) == 0);
	}
	double end = seconds() + PATIENCE_SECONDS;
	while (*(volatile char *)target != 20) {
		CHECK(seconds() < end);
		usleep(100);
	}
	/* The last acknowledgement. */
	usleep(100000);
	count = ibv_poll_cq(cq, 8, wc);
	CHECK(count == 4);
	for (int i = 0; i < 4; i++)
		CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == 16u + i);
	CHECK(poll(&events, 1, 0) == 0 && state_of(one) == IBV_QPS_RTS && state_of(two) == IBV_QPS_RTS);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_dereg_mr(mr) == 0);
}

static void clocks(struct ibv_pd *pd)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, later = values;
	struct ibv_values_ex nothing = { .raw_clock = { 1, 2 } }, unknown = { .comp_mask = IBV_VALUES_MASK_RESERVED };
	struct ibv_device_attr_ex device;
	double between;

	CHECK(ibv_query_device_ex(pd->context, NULL, &device) == 0);
	/* In kHz. */
	CHECK(device.hca_core_clock == 1000000 && device.completion_timestamp_mask == UINT64_MAX);
	CHECK(ibv_query_rt_values_ex(pd->context, &values) == 0 && values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
	usleep(20000);
	CHECK(ibv_query_rt_values_ex(pd->context, &later) == 0);
	between = later.raw_clock.tv_sec - values.raw_clock.tv_sec + (later.raw_clock.tv_nsec - values.raw_clock.tv_nsec) * 1e-9;
	CHECK(between >= 0.0199);
	CHECK(ibv_query_rt_values_ex(pd->context, &nothing) == 0 && nothing.comp_mask == 0 && nothing.raw_clock.tv_nsec == 2);
	CHECK(ibv_query_rt_values_ex(pd->context, &unknown) == EINVAL);
}

/* Only shared receive queues of XRC have numbers. */
static void numbers(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	uint32_t number;

	CHECK(srq && ibv_get_srq_num(srq, &number) == EOPNOTSUPP && ibv_destroy_srq(srq) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);

	alarm(240);
	CHECK(pd);
	users(pd);
	refused_domains(pd);
	one_domain(pd);
	null_region(pd, IBV_QPT_RC);
	null_region(pd, IBV_QPT_UC);
	null_datagrams(pd);
	refused_null_regions(pd);
	moderation(pd);
	ignored_overrun(pd);
	clocks(pd);
	numbers(pd);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
