/*
 * Memory windows of both types: what a bound one gives peers, what it does not, how its key ends, and which binds are refused (InfiniBand
 * specification, volume 1, section 10.6.7).
 */
#include "connect.h"

#include <pthread.h>

#define LENGTH 4096
#define PART 1024
#define DEPTH 16
#define BINDABLE (ALL_ACCESS | IBV_ACCESS_MW_BIND)
#define RACE_ROUNDS 300

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
/* The owner's memory, and the peer's. */
static char *there, *here;
static struct ibv_mr *region, *own;
/* The owner's queue pairs, and their peers. */
static struct ibv_qp *owner, *peer, *other_owner, *other_peer;
static struct ibv_wc wc;

static struct ibv_qp *create(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .pd = pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);

	CHECK(qp);
	return qp;
}

/* Both ends begin anew, as after an error. */
static void connect_again(struct ibv_qp *one, struct ibv_qp *two)
{
	to_state(one, IBV_QPS_RESET);
	to_state(two, IBV_QPS_RESET);
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
	connect_pair(one, two);
}

static enum ibv_wc_status finish(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags |= IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(qp, wr, &bad) == 0);
	poll_all(cq, 1, &wc);
	CHECK(wc.wr_id == wr->wr_id && wc.qp_num == qp->qp_num);
	return wc.status;
}

/* What becomes of an access of the peer. */
static enum ibv_wc_status access_by(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t address, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)here, length, own->lkey };
	struct ibv_send_wr wr = { .wr_id = 5, .opcode = opcode, .sg_list = &sge, .num_sge = 1 };

	set_remote(&wr, address, rkey);
	return finish(qp, &wr);
}

static void may(enum ibv_wr_opcode opcode, uint32_t rkey, void *address, uint32_t length)
{
	CHECK(access_by(peer, opcode, rkey, (uintptr_t)address, length) == IBV_WC_SUCCESS);
}

/* A peer that asks for too much loses its connection. */
static void may_not(enum ibv_wr_opcode opcode, uint32_t rkey, void *address, uint32_t length)
{
	CHECK(access_by(peer, opcode, rkey, (uintptr_t)address, length) == IBV_WC_REM_ACCESS_ERR);
	connect_again(owner, peer);
}

static uint32_t next(uint32_t key)
{
	return ibv_inc_rkey(key);
}

static struct ibv_mw *allocate(enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);

	CHECK(mw && mw->context == context && mw->pd == pd && mw->type == type);
	return mw;
}

static struct ibv_mw_bind_info part_of(struct ibv_mr *mr, void *address, uint64_t length, unsigned access)
{
	return (struct ibv_mw_bind_info) { .mr = mr, .addr = (uintptr_t)address, .length = length, .mw_access_flags = access };
}

/* Binds a window of type 2. */
static enum ibv_wc_status bind_2(struct ibv_qp *qp, struct ibv_mw *mw, uint32_t rkey, struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = { .wr_id = 6, .opcode = IBV_WR_BIND_MW, .bind_mw = { .mw = mw, .rkey = rkey, .bind_info = info } };
	enum ibv_wc_status status = finish(qp, &wr);

	CHECK(status != IBV_WC_SUCCESS || wc.opcode == IBV_WC_BIND_MW);
	return status;
}

static enum ibv_wc_status invalidate(struct ibv_qp *qp, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey };
	enum ibv_wc_status status = finish(qp, &wr);

	CHECK(status != IBV_WC_SUCCESS || wc.opcode == IBV_WC_LOCAL_INV);
	return status;
}

static void receive(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)here, LENGTH, own->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* A SEND of the peer that invalidates: what both sides see. */
static void send_with_invalidate(uint32_t rkey, enum ibv_wc_status sender, enum ibv_wc_status receiver)
{
	struct ibv_sge sge = { (uintptr_t)here, 8, own->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 8, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = rkey, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc both[2];

	receive(owner, 9);
	CHECK(ibv_post_send(peer, &wr, &bad) == 0);
	poll_all(cq, 2, both);
	for (int i = 0; i < 2; i++) {
		CHECK(both[i].status == (both[i].wr_id == 8 ? sender : receiver));
		if (both[i].wr_id == 9 && receiver == IBV_WC_SUCCESS)
			CHECK(both[i].wc_flags & IBV_WC_WITH_INV && both[i].invalidated_rkey == rkey);
	}
}

static void type_2(void)
{
	struct ibv_mw *mw = allocate(IBV_MW_TYPE_2);
	char *part = there + PART;
	uint32_t key = next(mw->rkey);

	may_not(IBV_WR_RDMA_READ, mw->rkey, part, 8);
	CHECK(bind_2(owner, mw, key, part_of(region, part, PART, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) == IBV_WC_SUCCESS);
	strcpy(here, "by a window");
	may(IBV_WR_RDMA_WRITE, key, part, 12);
	CHECK(!strcmp(part, "by a window"));
	memset(here, 0, LENGTH);
	may(IBV_WR_RDMA_READ, key, part, PART);
	CHECK(!strcmp(here, "by a window"));
	may(IBV_WR_RDMA_WRITE, key, part + PART - 1, 1);

	/* Its bounds, its rights, its queue pair; the key of before, and the bound key as a local one. */
	may_not(IBV_WR_RDMA_READ, key, part - 1, 8);
	may_not(IBV_WR_RDMA_WRITE, key, part + PART - 1, 2);
	may_not(IBV_WR_ATOMIC_FETCH_AND_ADD, key, part, 8);
	may_not(IBV_WR_RDMA_READ, mw->rkey, part, 8);
	CHECK(access_by(other_peer, IBV_WR_RDMA_READ, key, (uintptr_t)part, 8) == IBV_WC_REM_ACCESS_ERR);
	connect_again(other_owner, other_peer);
	{
		struct ibv_sge sge = { (uintptr_t)part, 8, key };
		struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };

		wr.wr.rdma.remote_addr = (uintptr_t)here;
		wr.wr.rdma.rkey = own->rkey;
		CHECK(finish(owner, &wr) == IBV_WC_LOC_PROT_ERR);
		connect_again(owner, peer);
	}

	/* While it is bound its region stays, and it is not bound again. */
	CHECK(ibv_dereg_mr(region) == EBUSY);
	CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) != 0);
	may(IBV_WR_RDMA_READ, key, part, 8);
	CHECK(bind_2(owner, mw, next(key), part_of(region, part, PART, IBV_ACCESS_REMOTE_READ)) == IBV_WC_MW_BIND_ERR);
	connect_again(owner, peer);

	/* Invalidated here, and by the peer. */
	CHECK(invalidate(owner, key) == IBV_WC_SUCCESS);
	may_not(IBV_WR_RDMA_READ, key, part, 8);
	CHECK(bind_2(owner, mw, key, part_of(region, part, PART, IBV_ACCESS_REMOTE_READ)) == IBV_WC_MW_BIND_ERR);
	connect_again(owner, peer);
	key = next(key);
	CHECK(bind_2(owner, mw, key, part_of(region, part, PART, IBV_ACCESS_REMOTE_READ)) == IBV_WC_SUCCESS);
	may(IBV_WR_RDMA_READ, key, part, 8);
	send_with_invalidate(key, IBV_WC_SUCCESS, IBV_WC_SUCCESS);
	may_not(IBV_WR_RDMA_READ, key, part, 8);
	CHECK(invalidate(owner, key) == IBV_WC_LOC_QP_OP_ERR);
	connect_again(owner, peer);
	send_with_invalidate(key, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR);
	connect_again(owner, peer);
	send_with_invalidate(region->rkey, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR);
	connect_again(owner, peer);
	CHECK(invalidate(owner, region->rkey) == IBV_WC_LOC_QP_OP_ERR);
	connect_again(owner, peer);

	/* Bound by another queue pair: that one's peer has it, and may alone invalidate it. */
	key = next(key);
	CHECK(bind_2(other_owner, mw, key, part_of(region, part, PART, IBV_ACCESS_REMOTE_READ)) == IBV_WC_SUCCESS);
	CHECK(access_by(other_peer, IBV_WR_RDMA_READ, key, (uintptr_t)part, 8) == IBV_WC_SUCCESS);
	may_not(IBV_WR_RDMA_READ, key, part, 8);
	send_with_invalidate(key, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR);
	connect_again(owner, peer);
	CHECK(access_by(other_peer, IBV_WR_RDMA_READ, key, (uintptr_t)part, 8) == IBV_WC_SUCCESS);
	/* Its end ends the region's use, so that the region may go; the domain has the window still. */
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_dealloc_mw(mw) == 0);
	CHECK(access_by(other_peer, IBV_WR_RDMA_READ, key, (uintptr_t)part, 8) == IBV_WC_REM_ACCESS_ERR);
	connect_again(other_owner, other_peer);
}

static void zero_based(void)
{
	struct ibv_mw *mw = allocate(IBV_MW_TYPE_2);
	uint32_t key = next(mw->rkey);

	CHECK(bind_2(owner, mw, key, part_of(region, there + PART, PART, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)) == IBV_WC_SUCCESS);
	strcpy(here, "from zero");
	may(IBV_WR_RDMA_WRITE, key, (void *)16, 10);
	CHECK(!strcmp(there + PART + 16, "from zero"));
	may(IBV_WR_RDMA_WRITE, key, (void *)(PART - 8), 8);
	may_not(IBV_WR_RDMA_WRITE, key, (void *)(PART - 7), 8);
	may_not(IBV_WR_RDMA_WRITE, key, there + PART, 8);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

/* By the extended interface: a bind, a SEND that tells of it, and an invalidation in one batch. */
static void built(void)
{
	struct ibv_mw *mw = allocate(IBV_MW_TYPE_2);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(owner);
	struct ibv_mw_bind_info info = part_of(region, there, PART, IBV_ACCESS_REMOTE_READ);
	struct ibv_wc done[2];
	uint32_t key = next(mw->rkey);

	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(qp);
	qp->wr_id = 1;
	ibv_wr_bind_mw(qp, mw, key, &info);
	CHECK(ibv_wr_complete(qp) == 0);
	poll_all(cq, 1, done);
	CHECK(done[0].status == IBV_WC_SUCCESS && done[0].opcode == IBV_WC_BIND_MW);
	may(IBV_WR_RDMA_READ, key, there, 8);
	ibv_wr_start(qp);
	qp->wr_id = 2;
	ibv_wr_local_inv(qp, key);
	qp->wr_id = 3;
	ibv_wr_bind_mw(qp, mw, next(key), &info);
	CHECK(ibv_wr_complete(qp) == 0);
	poll_all(cq, 2, done);
	CHECK(done[0].status == IBV_WC_SUCCESS && done[0].opcode == IBV_WC_LOCAL_INV && done[0].wr_id == 2);
	CHECK(done[1].status == IBV_WC_SUCCESS && done[1].opcode == IBV_WC_BIND_MW && done[1].wr_id == 3);
	may(IBV_WR_RDMA_READ, next(key), there, 8);
	may_not(IBV_WR_RDMA_READ, key, there, 8);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, next(key), NULL);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static int bind_1(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind_info info)
{
	struct ibv_mw_bind bind = { .wr_id = 4, .send_flags = IBV_SEND_SIGNALED, .bind_info = info };
	int error = ibv_bind_mw(qp, mw, &bind);

	if (error)
		return error;
	poll_all(cq, 1, &wc);
	CHECK(wc.wr_id == 4 && (wc.status != IBV_WC_SUCCESS || wc.opcode == IBV_WC_BIND_MW));
	return wc.status == IBV_WC_SUCCESS ? 0 : -(int)wc.status;
}

static void type_1(void)
{
	struct ibv_mw *mw = allocate(IBV_MW_TYPE_1), *second = allocate(IBV_MW_TYPE_2);
	uint32_t first = mw->rkey, bound;

	CHECK(bind_1(owner, mw, part_of(region, there, PART, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) == 0);
	bound = mw->rkey;
	CHECK(bound != first && !((bound ^ first) & ~0xffu));
	/* All queue pairs of the domain have it. */
	may(IBV_WR_RDMA_READ, bound, there, 8);
	may(IBV_WR_ATOMIC_FETCH_AND_ADD, bound, there, 8);
	CHECK(access_by(other_peer, IBV_WR_RDMA_READ, bound, (uintptr_t)there, 8) == IBV_WC_SUCCESS);
	may_not(IBV_WR_RDMA_WRITE, bound, there, 8);
	/* It is no window of type 2: neither end invalidates it. */
	CHECK(invalidate(owner, bound) == IBV_WC_LOC_QP_OP_ERR);
	connect_again(owner, peer);
	send_with_invalidate(bound, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR);
	connect_again(owner, peer);
	may(IBV_WR_RDMA_READ, bound, there, 8);
	/* Another bind takes its place, and one of nothing its key. */
	CHECK(bind_1(owner, mw, part_of(region, there + PART, PART, IBV_ACCESS_REMOTE_WRITE)) == 0);
	CHECK(mw->rkey == next(bound));
	may(IBV_WR_RDMA_WRITE, mw->rkey, there + PART, 8);
	may_not(IBV_WR_RDMA_READ, bound, there, 8);
	CHECK(ibv_dereg_mr(region) == EBUSY);
	bound = mw->rkey;
	CHECK(bind_1(owner, mw, part_of(NULL, NULL, 0, 0)) == 0);
	may_not(IBV_WR_RDMA_WRITE, bound, there + PART, 8);
	may_not(IBV_WR_RDMA_WRITE, mw->rkey, there + PART, 8);

	/* What its post refuses. */
	{
		struct ibv_mw_bind_info info = part_of(region, there, PART, IBV_ACCESS_REMOTE_READ);
		struct ibv_mw_bind bind = { .bind_info = info };
		struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .bind_mw = { .mw = mw, .rkey = next(mw->rkey), .bind_info = info } }, *bad;

		CHECK(ibv_bind_mw(owner, second, &bind) == EINVAL);
		CHECK(ibv_post_send(owner, &wr, &bad) == EINVAL && bad == &wr);
		CHECK(bind_1(owner, mw, part_of(NULL, there, 0, 0)) == EINVAL);
		CHECK(bind_1(owner, mw, part_of(region, there, PART, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED)) == EINVAL);
		CHECK(bind_1(owner, mw, part_of(region, there, PART, IBV_ACCESS_MW_BIND)) == EINVAL);
		wr.bind_mw.mw = second;
		CHECK(ibv_post_send(owner, &wr, &bad) == EINVAL);
	}
	CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(second) == 0);
}

/* What is refused when the request is executed: the queue pair goes to the error state, and nothing is bound. */
static void refused_binds(void)
{
	struct ibv_pd *foreign = ibv_alloc_pd(context);
	struct ibv_mr *plain = ibv_reg_mr(pd, there, LENGTH, ALL_ACCESS);
	struct ibv_mr *unwritable = ibv_reg_mr(pd, there, LENGTH, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
	struct ibv_mr *elsewhere = ibv_reg_mr(foreign, there, LENGTH, BINDABLE);
	struct ibv_mw *mw = allocate(IBV_MW_TYPE_2), *of_foreign = ibv_alloc_mw(foreign, IBV_MW_TYPE_2);
	const struct {
		struct ibv_mw *mw;
		struct ibv_mw_bind_info info;
	} refused[] = {
		{ mw, part_of(plain, there, 8, IBV_ACCESS_REMOTE_READ) },
		{ mw, part_of(unwritable, there, 8, IBV_ACCESS_REMOTE_WRITE) },
		{ mw, part_of(unwritable, there, 8, IBV_ACCESS_REMOTE_ATOMIC) },
		{ mw, part_of(region, there - 1, 8, IBV_ACCESS_REMOTE_READ) },
		{ mw, part_of(region, there + LENGTH - 7, 8, IBV_ACCESS_REMOTE_READ) },
		{ mw, part_of(region, there, UINT64_MAX, IBV_ACCESS_REMOTE_READ) },
		{ mw, part_of(region, there, 0, IBV_ACCESS_REMOTE_READ) },
		{ mw, part_of(NULL, NULL, 0, 0) },
		{ of_foreign, part_of(elsewhere, there, 8, IBV_ACCESS_REMOTE_READ) },
	};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = mw, .rkey = next(mw->rkey), .bind_info = part_of(elsewhere, there, 8, IBV_ACCESS_REMOTE_READ) },
	}, *bad;

	CHECK(foreign && plain && unwritable && elsewhere && of_foreign);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		CHECK(bind_2(owner, refused[i].mw, next(refused[i].mw->rkey), refused[i].info) == IBV_WC_MW_BIND_ERR);
		CHECK(state_of(owner) == IBV_QPS_ERR);
		connect_again(owner, peer);
		may_not(IBV_WR_RDMA_READ, next(refused[i].mw->rkey), there, 8);
	}
	CHECK(ibv_post_send(owner, &wr, &bad) == EPERM);
	CHECK(bind_2(owner, mw, next(mw->rkey), part_of(unwritable, there, 8, IBV_ACCESS_REMOTE_READ)) == IBV_WC_SUCCESS);
	may(IBV_WR_RDMA_READ, next(mw->rkey), there, 8);
	REFUSED(ibv_alloc_mw(pd, 3), EINVAL);
	CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(of_foreign) == 0);
	CHECK(!ibv_dereg_mr(plain) && !ibv_dereg_mr(unwritable) && !ibv_dereg_mr(elsewhere) && !ibv_dealloc_pd(foreign));
}

/* Windows of a queue pair end with it. */
static void queue_pair_ends(void)
{
	struct ibv_qp *one = create(IBV_QPT_UC), *two = create(IBV_QPT_UC);
	struct ibv_mw *mw = allocate(IBV_MW_TYPE_2);
	uint32_t key = next(mw->rkey);

	connect_pair(one, two);
	CHECK(bind_2(one, mw, key, part_of(region, there, PART, IBV_ACCESS_REMOTE_WRITE)) == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(region) == EBUSY);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	/* No more bound: the region may end. */
	CHECK(ibv_dereg_mr(region) == 0);
	region = ibv_reg_mr(pd, there, LENGTH, BINDABLE);
	CHECK(region);
	CHECK(bind_2(owner, mw, next(key), part_of(region, there, PART, IBV_ACCESS_REMOTE_READ)) == IBV_WC_SUCCESS);
	may(IBV_WR_RDMA_READ, next(key), there, 8);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static _Atomic int stops;

/* Writes by whatever key is valid, from a queue pair of its own. */
static void *write_all_the_time(void *number)
{
	struct ibv_cq *own_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	_Atomic uint32_t *key = number;
	struct ibv_sge sge = { (uintptr_t)here, 64, own->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_init_attr init = plain_attributes(own_cq, IBV_QPT_RC);
	struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
	struct ibv_wc done;

	CHECK(own_cq && one && two);
	connect_pair(one, two);
	while (!stops) {
		wr.wr.rdma.remote_addr = (uintptr_t)there;
		wr.wr.rdma.rkey = *key;
		CHECK(ibv_post_send(one, &wr, &bad) == 0);
		poll_all(own_cq, 1, &done);
		if (done.status != IBV_WC_SUCCESS) {
			CHECK(done.status == IBV_WC_REM_ACCESS_ERR);
			to_state(one, IBV_QPS_RESET);
			to_state(two, IBV_QPS_RESET);
			connect_pair(one, two);
		}
	}
	CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_cq(own_cq));
	return NULL;
}

/* After a window has been bound to nothing no byte lands by its key, though others write all the time. */
static void nothing_lands_after_the_end(void)
{
	struct ibv_mw *mw = allocate(IBV_MW_TYPE_1);
	_Atomic uint32_t key = mw->rkey;
	pthread_t threads[2];
	int landed = 0;

	memset(here, 0xAA, 64);
	stops = 0;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, write_all_the_time, &key) == 0);
	for (int i = 0; i < RACE_ROUNDS; i++) {
		CHECK(bind_1(owner, mw, part_of(region, there, PART, IBV_ACCESS_REMOTE_WRITE)) == 0);
		key = mw->rkey;
		usleep(i % 7 * 20);
		CHECK(bind_1(owner, mw, part_of(NULL, NULL, 0, 0)) == 0);
		landed += there[0] != 0;
		memset(there, 0, PART);
		usleep(i % 5 * 20);
		for (int at = 0; at < 64; at++)
			CHECK(there[at] == 0);
	}
	stops = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	/* Else nothing was tried. */
	CHECK(landed > 0);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

struct writer {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	uint32_t key;
};

/* Writes to the window until the peer refuses it. */
static void *write_until_refused(void *given)
{
	struct writer *writer = given;
	struct ibv_sge sge = { (uintptr_t)here, LENGTH, own->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc done;

	wr.wr.rdma.remote_addr = (uintptr_t)there;
	wr.wr.rdma.rkey = writer->key;
	do {
		CHECK(ibv_post_send(writer->qp, &wr, &bad) == 0);
		poll_all(writer->cq, 1, &done);
	} while (done.status == IBV_WC_SUCCESS);
	CHECK(done.status == IBV_WC_REM_ACCESS_ERR);
	return NULL;
}

/* An invalidation has succeeded, though a peer uses the key meanwhile and so ends the queue pair on which it is executed. */
static void invalidations_under_traffic(void)
{
	struct ibv_cq *own_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(own_cq, IBV_QPT_RC);
	struct ibv_qp *server = create(IBV_QPT_RC);
	struct writer writer = { ibv_create_qp(pd, &init), own_cq, 0 };
	struct ibv_mw *mw = allocate(IBV_MW_TYPE_2);
	pthread_t thread;

	CHECK(own_cq && writer.qp);
	writer.key = mw->rkey;
	connect_pair(server, writer.qp);
	for (int i = 0; i < RACE_ROUNDS; i++) {
		writer.key = next(writer.key);
		CHECK(bind_2(server, mw, writer.key, part_of(region, there, LENGTH, IBV_ACCESS_REMOTE_WRITE)) == IBV_WC_SUCCESS);
		CHECK(pthread_create(&thread, NULL, write_until_refused, &writer) == 0);
		usleep(i % 50 * 20);
		CHECK(invalidate(server, writer.key) == IBV_WC_SUCCESS);
		CHECK(pthread_join(thread, NULL) == 0);
		connect_again(server, writer.qp);
	}
	CHECK(!ibv_destroy_qp(server) && !ibv_destroy_qp(writer.qp) && !ibv_destroy_cq(own_cq) && !ibv_dealloc_mw(mw));
}

int main(void)
{
	struct ibv_device_attr attributes;

	context = open_first_device();
	CHECK(ibv_query_device(context, &attributes) == 0);
	CHECK(attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW && attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	CHECK(attributes.max_mw > 0);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 8 * DEPTH, NULL, NULL, 0);
	CHECK(posix_memalign((void **)&there, 64, LENGTH) == 0 && posix_memalign((void **)&here, 64, LENGTH) == 0);
	memset(there, 0, LENGTH);
	region = ibv_reg_mr(pd, there, LENGTH, BINDABLE);
	own = ibv_reg_mr(pd, here, LENGTH, ALL_ACCESS);
	CHECK(pd && cq && region && own);
	owner = create(IBV_QPT_RC);
	peer = create(IBV_QPT_RC);
	other_owner = create(IBV_QPT_RC);
	other_peer = create(IBV_QPT_RC);
	connect_pair(owner, peer);
	connect_pair(other_owner, other_peer);

	type_2();
	zero_based();
	built();
	type_1();
	refused_binds();
	queue_pair_ends();
	nothing_lands_after_the_end();
	invalidations_under_traffic();

	CHECK(!ibv_destroy_qp(owner) && !ibv_destroy_qp(peer) && !ibv_destroy_qp(other_owner) && !ibv_destroy_qp(other_peer));
	CHECK(!ibv_dereg_mr(region) && !ibv_dereg_mr(own) && !ibv_destroy_cq(cq));
	/* What a closed device still holds ends with it. */
	CHECK(ibv_alloc_mw(pd, IBV_MW_TYPE_2) != NULL);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
