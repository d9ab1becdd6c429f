/*
 * Extended reliable connections (InfiniBand specification, volume 1, annex A14): a queue pair that sends to many shared receive queues of its
 * peer, with what each of them gives access to; domains and queue pairs that are opened more than once; and what is refused.
 */
#include "connect.h"
#include "flush.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#define LENGTH 65536
#define SLOT 4096
#define QUEUES 2
#define DEPTH 16
#define LONG 50000
#define ROUNDS 5000

static struct ibv_context *context;
static struct ibv_pd *pd, *pds[QUEUES];
static struct ibv_cq *sent, *received[QUEUES];
static struct ibv_xrcd *xrcd;
static struct ibv_srq *srqs[QUEUES];
static uint32_t numbers[QUEUES];
static struct ibv_qp *sender, *receiver;
static char *here, *there[QUEUES];
static struct ibv_mr *own, *regions[QUEUES];
static struct ibv_wc wc;
static atomic_int came;

static struct ibv_xrcd *open_domain(int fd, int flags)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags };

	return ibv_open_xrcd(context, &init);
}

static struct ibv_srq *create_srq(struct ibv_pd *domain, struct ibv_cq *cq, struct ibv_xrcd *of)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = DEPTH, .max_sge = 2 }, .srq_type = IBV_SRQT_XRC, .pd = domain, .xrcd = of, .cq = cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	};

	return ibv_create_srq_ex(context, &init);
}

static struct ibv_qp *create_sender(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = sent, .qp_type = IBV_QPT_XRC_SEND, .pd = pd,
		.cap = { .max_send_wr = DEPTH, .max_send_sge = 2, .max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				  QP_EX_WITH_FLUSH,
	};

	return ibv_create_qp_ex(context, &init);
}

static struct ibv_qp *create_receiver(struct ibv_xrcd *of)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = of };

	return ibv_create_qp_ex(context, &init);
}

static void connect_xrc(struct ibv_qp *from, struct ibv_qp *to)
{
	struct ibv_qp_attr attr;

	to_open_init(from);
	to_open_init(to);
	attr = usual_attributes(context, to->qp_num);
	attr.qp_state = IBV_QPS_INIT;
	attr.qp_access_flags |= ACCESS_FLUSH_GLOBAL;
	CHECK(ibv_modify_qp(to, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(from, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) == 0);
	attr.dest_qp_num = from->qp_num;
	CHECK(ibv_modify_qp(to, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(from, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	CHECK(ibv_modify_qp(to, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT) == 0);
}

static void connect_again(void)
{
	to_state(sender, IBV_QPS_RESET);
	to_state(receiver, IBV_QPS_RESET);
	while (ibv_poll_cq(sent, 1, &wc) > 0)
		;
	connect_xrc(sender, receiver);
}

static void receive(int queue, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)there[queue] + offset, length, regions[queue]->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_srq_recv(srqs[queue], &wr, &bad) == 0);
}

static void post(uint64_t wr_id, enum ibv_wr_opcode opcode, uint32_t number, uint32_t length, uint32_t rkey, void *address)
{
	struct ibv_sge sge = { (uintptr_t)here, length, own->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .imm_data = 7,
		.qp_type.xrc.remote_srqn = number,
	}, *bad;

	set_remote(&wr, (uintptr_t)address, rkey);
	CHECK(ibv_post_send(sender, &wr, &bad) == 0);
}

static void flush(uint64_t wr_id, uint32_t number, uint32_t rkey, void *address)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(sender);

	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	wr_flush(qp, rkey, (uintptr_t)address, 8, FLUSH_GLOBAL, FLUSH_RANGE);
	ibv_wr_set_xrc_srqn(qp, number);
	CHECK(ibv_wr_complete(qp) == 0);
}

static void finished(uint64_t wr_id, enum ibv_wc_status status)
{
	poll_all(sent, 1, &wc);
	if (wc.status != status) fprintf(stderr, "request %d: status %d\n", (int)wr_id, wc.status);
	CHECK(wc.wr_id == wr_id && wc.status == status && wc.qp_num == sender->qp_num);
}

static void arrived(int queue, uint64_t wr_id, uint32_t length)
{
	poll_all(received[queue], 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id && wc.byte_len == length && wc.qp_num == receiver->qp_num);
}

/* Each message comes to the queue that it names, and completes there. */
static void messages(void)
{
	for (int i = 0; i < 6; i++) {
		int queue = i % QUEUES;
		uint32_t length = i < 4 ? 100 + i : LONG;

		memset(here, 'a' + i, LONG);
		receive(queue, 10 + i, 0, LENGTH);
		post(i, i % 3 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, numbers[queue], length, 0, NULL);
		finished(i, IBV_WC_SUCCESS);
		arrived(queue, 10 + i, length);
		CHECK(there[queue][0] == 'a' + i && there[queue][length - 1] == 'a' + i);
		CHECK(!!(wc.wc_flags & IBV_WC_WITH_IMM) == !(i % 3));
	}
	/* One that finds no receive waits for it, and those for other queues wait behind it. */
	receive(1, 31, 0, 64);
	post(1, IBV_WR_SEND, numbers[0], 64, 0, NULL);
	post(2, IBV_WR_SEND, numbers[1], 64, 0, NULL);
	poll_none(received[1]);
	receive(0, 30, 0, 64);
	finished(1, IBV_WC_SUCCESS);
	finished(2, IBV_WC_SUCCESS);
	arrived(0, 30, 64);
	arrived(1, 31, 64);
	CHECK(ibv_poll_cq(received[0], 1, &wc) == 0);
}

/* Memory is that of the protection domain which the named queue is in. */
static void remote_memory(void)
{
	uint64_t *word = (uint64_t *)(there[0] + SLOT);

	for (int queue = 0; queue < QUEUES; queue++) {
		memset(here, '0' + queue, LONG);
		post(1, IBV_WR_RDMA_WRITE, numbers[queue], LONG, regions[queue]->rkey, there[queue]);
		finished(1, IBV_WC_SUCCESS);
		CHECK(there[queue][0] == '0' + queue && there[queue][LONG - 1] == '0' + queue);
		memset(here, 0, LONG);
		post(2, IBV_WR_RDMA_READ, numbers[queue], LONG, regions[queue]->rkey, there[queue]);
		finished(2, IBV_WC_SUCCESS);
		CHECK(here[0] == '0' + queue && here[LONG - 1] == '0' + queue);
	}
	*word = 41;
	post(3, IBV_WR_ATOMIC_FETCH_AND_ADD, numbers[0], 8, regions[0]->rkey, word);
	finished(3, IBV_WC_SUCCESS);
	CHECK(*word == 42 && *(uint64_t *)here == 41);
	/* READs of both under way at once. */
	for (int i = 0; i < 4; i++)
		post(i, IBV_WR_RDMA_READ, numbers[i % QUEUES], LONG, regions[i % QUEUES]->rkey, there[i % QUEUES]);
	for (int i = 0; i < 4; i++)
		finished(i, IBV_WC_SUCCESS);
	receive(1, 40, 0, 8);
	post(4, IBV_WR_RDMA_WRITE_WITH_IMM, numbers[1], 100, regions[1]->rkey, there[1]);
	finished(4, IBV_WC_SUCCESS);
	poll_all(received[1], 1, &wc);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wr_id == 40 && wc.byte_len == 100);

	for (int queue = 0; queue < QUEUES; queue++) {
		flush(7, numbers[queue], regions[queue]->rkey, there[queue]);
		finished(7, IBV_WC_SUCCESS);
		CHECK((int)wc.opcode == WC_FLUSH);
	}
	flush(8, numbers[1], regions[0]->rkey, there[0]);
	finished(8, IBV_WC_REM_ACCESS_ERR);
	connect_again();

	post(5, IBV_WR_RDMA_WRITE, numbers[1], 8, regions[0]->rkey, there[0]);
	finished(5, IBV_WC_REM_ACCESS_ERR);
	connect_again();
	post(6, IBV_WR_RDMA_READ, numbers[0], 8, regions[1]->rkey, there[1]);
	finished(6, IBV_WC_REM_ACCESS_ERR);
	connect_again();
}

static void refused_requests(void)
{
	struct ibv_recv_wr nothing = { 0 }, *bad_receive;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	/* No such queue. */
	post(1, IBV_WR_SEND, 0xfffffe, 8, 0, NULL);
	finished(1, IBV_WC_REM_INV_REQ_ERR);
	CHECK(state_of(receiver) == IBV_QPS_ERR);
	connect_again();
	/* A receive that is too short fails there, and here. */
	receive(0, 50, 0, 4);
	post(2, IBV_WR_SEND, numbers[0], 8, 0, NULL);
	finished(2, IBV_WC_REM_INV_REQ_ERR);
	poll_all(received[0], 1, &wc);
	CHECK(wc.wr_id == 50 && wc.status == IBV_WC_LOC_LEN_ERR);
	connect_again();
	CHECK(ibv_post_recv(sender, &nothing, &bad_receive) == EINVAL && ibv_post_recv(receiver, &nothing, &bad_receive) == EINVAL);
	CHECK(ibv_post_send(receiver, &wr, &bad) == EINVAL);
	/* Numbers have 24 bits. */
	wr.qp_type.xrc.remote_srqn = numbers[0] | 1 << 24;
	CHECK(ibv_post_send(sender, &wr, &bad) == EINVAL && bad == &wr);
	wr.qp_type.xrc.remote_srqn = numbers[0];
	/* No window is bound by a queue pair of type XRC_RECV. */
	wr.opcode = IBV_WR_SEND_WITH_INV;
	CHECK(ibv_post_send(sender, &wr, &bad) == EINVAL);
}

static void built(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(sender);

	CHECK(qp);
	receive(1, 60, 0, 64);
	strcpy(here, "built for xrc");
	ibv_wr_start(qp);
	qp->wr_id = 61;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_xrc_srqn(qp, numbers[1]);
	ibv_wr_set_sge(qp, own->lkey, (uintptr_t)here, 14);
	CHECK(ibv_wr_complete(qp) == 0);
	finished(61, IBV_WC_SUCCESS);
	arrived(1, 60, 14);
	CHECK(!strcmp(there[1], "built for xrc"));
}

static void *receive_messages(void *unused)
{
	(void)unused;
	while (atomic_load(&came) < ROUNDS) {
		struct ibv_wc its;

		if (ibv_poll_cq(received[0], 1, &its) == 0) continue;
		CHECK(its.status == IBV_WC_SUCCESS);
		if (atomic_fetch_add(&came, 1) + 1 < ROUNDS) receive(0, 1, 0, 64);
	}
	return NULL;
}

/* Whoever has seen a completion may post the next receive, also to a queue of one: while another thread polls, which delivers messages, too. */
static void queue_of_one(void)
{
	struct ibv_srq_attr one = { .max_wr = 1 }, usual = { .max_wr = DEPTH };
	pthread_t threads[2];

	CHECK(ibv_modify_srq(srqs[0], &one, IBV_SRQ_MAX_WR) == 0);
	receive(0, 0, 0, 64);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, receive_messages, NULL) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		post(i, IBV_WR_SEND, numbers[0], 8, 0, NULL);
		finished(i, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(ibv_modify_srq(srqs[0], &usual, IBV_SRQ_MAX_WR) == 0);
}

/* A queue pair lives as long as somebody has it open. */
static void opened_again(void)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_num = receiver->qp_num, .xrcd = xrcd, .qp_context = &attr, .qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *again = ibv_open_qp(context, &attr);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now;

	CHECK(again && again != receiver && again->qp_num == receiver->qp_num && again->qp_context == &attr);
	CHECK(ibv_query_qp(again, &now, IBV_QP_STATE, &init) == 0 && now.qp_state == IBV_QPS_RTS && init.qp_type == IBV_QPT_XRC_RECV);
	CHECK(ibv_destroy_qp(receiver) == 0);
	receiver = again;
	receive(0, 70, 0, 64);
	post(71, IBV_WR_SEND, numbers[0], 64, 0, NULL);
	finished(71, IBV_WC_SUCCESS);
	arrived(0, 70, 64);

	/* The one that was opened last may be closed first: later events name the other. */
	again = ibv_open_qp(context, &attr);
	CHECK(again && ibv_destroy_qp(again) == 0);
	post(72, IBV_WR_SEND, 0xfffffe, 8, 0, NULL);
	finished(72, IBV_WC_REM_INV_REQ_ERR);
	{
		struct ibv_async_event event;

		do {
			CHECK(ibv_get_async_event(context, &event) == 0);
			CHECK(event.element.qp == receiver || event.event_type == IBV_EVENT_COMM_EST);
			ibv_ack_async_event(&event);
		} while (event.event_type != IBV_EVENT_QP_REQ_ERR);
	}
	connect_again();

	attr.qp_num ^= 1;
	REFUSED(ibv_open_qp(context, &attr), EINVAL);
	attr.qp_num ^= 1;
	attr.qp_type = IBV_QPT_RC;
	REFUSED(ibv_open_qp(context, &attr), EINVAL);
	attr.qp_type = IBV_QPT_XRC_RECV;
	attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE;
	REFUSED(ibv_open_qp(context, &attr), EINVAL);
}

static void domains(void)
{
	char name[] = "/tmp/pagewire-xrc-XXXXXX";
	int file = mkstemp(name);
	struct ibv_xrcd *first, *second;
	struct ibv_srq_init_attr_ex incomplete = { .srq_type = IBV_SRQT_XRC, .pd = pd, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
						   .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex basic = { .pd = pd, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD, .srq_type = IBV_SRQT_BASIC,
					      .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_xrcd_init_attr without = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1 };
	struct ibv_qp_init_attr plain = plain_attributes(sent, IBV_QPT_XRC_RECV), ordinary = plain_attributes(sent, IBV_QPT_RC);
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t number;

	CHECK(file >= 0 && unlink(name) == 0);
	REFUSED(open_domain(file, 0), EAGAIN);
	first = open_domain(file, O_CREAT);
	second = open_domain(file, 0);
	CHECK(first && second && first != second);
	REFUSED(open_domain(file, O_CREAT | O_EXCL), EINVAL);
	/* What is made by one of them is of both. */
	srq = create_srq(pd, sent, first);
	qp = create_receiver(second);
	CHECK(srq && qp && ibv_close_xrcd(first) == 0);
	CHECK(ibv_close_xrcd(second) == EBUSY);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_close_xrcd(second) == EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_close_xrcd(second) == 0);
	REFUSED(open_domain(file, 0), EAGAIN);
	CHECK(close(file) == 0);
	REFUSED(open_domain(-1, 0), EAGAIN);
	REFUSED(open_domain(file, O_CREAT), EBADF);
	REFUSED(open_domain(-7, O_CREAT), EBADF);
	REFUSED(ibv_open_xrcd(context, &without), EINVAL);
	REFUSED(ibv_create_srq_ex(context, &incomplete), EINVAL);
	incomplete.srq_type = IBV_SRQT_TM;
	REFUSED(ibv_create_srq_ex(context, &incomplete), EOPNOTSUPP);
	REFUSED(ibv_create_qp(pd, &plain), EINVAL);
	ordinary.srq = srqs[0];
	REFUSED(ibv_create_qp(pd, &ordinary), EINVAL);
	srq = ibv_create_srq_ex(context, &basic);
	CHECK(srq && ibv_get_srq_num(srq, &number) == EOPNOTSUPP && ibv_destroy_srq(srq) == 0);
}

int main(void)
{
	struct ibv_device_attr attributes;

	context = open_first_device();
	CHECK(ibv_query_device(context, &attributes) == 0 && attributes.device_cap_flags & IBV_DEVICE_XRC);
	pd = ibv_alloc_pd(context);
	sent = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	xrcd = open_domain(-1, O_CREAT);
	CHECK(posix_memalign((void **)&here, 64, LENGTH) == 0);
	own = ibv_reg_mr(pd, here, LENGTH, ALL_ACCESS);
	CHECK(pd && sent && xrcd && own);
	for (int i = 0; i < QUEUES; i++) {
		pds[i] = ibv_alloc_pd(context);
		received[i] = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
		CHECK(pds[i] && received[i] && posix_memalign((void **)&there[i], 64, LENGTH) == 0);
		regions[i] = ibv_reg_mr(pds[i], there[i], LENGTH, ALL_ACCESS | ACCESS_FLUSH_GLOBAL);
		srqs[i] = create_srq(pds[i], received[i], xrcd);
		CHECK(regions[i] && srqs[i] && ibv_get_srq_num(srqs[i], &numbers[i]) == 0 && numbers[i]);
	}
	CHECK(numbers[0] != numbers[1]);
	sender = create_sender();
	receiver = create_receiver(xrcd);
	CHECK(sender && receiver && receiver->qp_type == IBV_QPT_XRC_RECV);
	connect_xrc(sender, receiver);

	messages();
	remote_memory();
	refused_requests();
	built();
	queue_of_one();
	opened_again();
	domains();

	CHECK(ibv_close_xrcd(xrcd) == EBUSY && ibv_destroy_cq(received[0]) == EBUSY);
	CHECK(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(receiver) == 0);
	for (int i = 0; i < QUEUES; i++) {
		CHECK(!ibv_destroy_srq(srqs[i]) && !ibv_dereg_mr(regions[i]) && !ibv_destroy_cq(received[i]) && !ibv_dealloc_pd(pds[i]));
		free(there[i]);
	}
	CHECK(ibv_close_xrcd(xrcd) == 0);
	CHECK(!ibv_dereg_mr(own) && !ibv_destroy_cq(sent) && !ibv_dealloc_pd(pd));
	/* What a closed device still holds ends with it. */
	xrcd = open_domain(-1, O_CREAT);
	CHECK(xrcd && create_receiver(xrcd));
	CHECK(ibv_close_device(context) == 0);
	free(here);
	return 0;
}
