/*
 * A program with one planted misuse, for `pagewire run --check`: misuse NAME. The line that is to be found has the comment PLANTED.
 * "nothing" has none.
 */
#include "connect.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define LENGTH 4096
#define ENTRIES 8

/* Two queue pairs of this process, connected with each other. */
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *one, *two;
static struct ibv_mr *mr;
static char *memory;

static struct ibv_qp *create_qp(struct ibv_cq *queue)
{
	struct ibv_qp_init_attr init = plain_attributes(queue, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	return qp;
}

static void open_all(void)
{
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	CHECK(pd && channel);
	cq = ibv_create_cq(context, ENTRIES, NULL, channel, 0);
	CHECK(cq);
	memory = aligned_alloc(4096, LENGTH);
	CHECK(memory);
	memset(memory, 1, LENGTH);
	mr = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
	CHECK(mr);
	one = create_qp(cq);
	two = create_qp(cq);
}

static void close_all(void)
{
	if (one)
		CHECK(ibv_destroy_qp(one) == 0);
	if (two)
		CHECK(ibv_destroy_qp(two) == 0);
	if (mr)
		CHECK(ibv_dereg_mr(mr) == 0);
	if (cq)
		CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	free(memory);
}

/* A WRITE of the first half of the memory to the second. */
static int post_write(struct ibv_qp *qp, uint32_t lkey, uint32_t rkey, unsigned int flags)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = LENGTH / 2, .lkey = lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags };
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)memory + LENGTH / 2;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static int post_receive(struct ibv_qp *qp)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = LENGTH, .lkey = mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 8, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static enum ibv_wc_status poll_one(void)
{
	struct ibv_wc wc;

	poll_all(cq, 1, &wc);
	return wc.status;
}

static void write_once(void)
{
	CHECK(post_write(one, mr->lkey, mr->rkey, IBV_SEND_SIGNALED) == 0);
	CHECK(poll_one() == IBV_WC_SUCCESS);
}

static void nothing(void)
{
	open_all();
	connect_pair(one, two);
	/* More than the queues hold, with every second one signaled. */
	for (int i = 0; i < 20; i++) {
		CHECK(post_write(one, mr->lkey, mr->rkey, 0) == 0);
		write_once();
	}
	/* A flushed request uses no buffer, and one that waits for a message may be given up. */
	CHECK(post_receive(two) == 0);
	to_error(two);
	CHECK(poll_one() == IBV_WC_WR_FLUSH_ERR);
	CHECK(post_receive(one) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	mr = NULL;
	close_all();
}

static void left_objects(void)
{
	open_all();
	connect_pair(one, two);
	write_once();
	one = NULL; /* PLANTED elsewhere: what create_qp made stays, with all below. */
}

static void left_region(void)
{
	struct ibv_mr *left;

	open_all();
	for (int i = 0; i < 3; i++) {
		left = ibv_reg_mr(pd, memory, 16, 0); /* PLANTED */
		CHECK(left);
	}
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
}

static void unpolled(void)
{
	double end = seconds() + PATIENCE_SECONDS;
	struct ibv_cq *event_cq;
	void *event_context;

	open_all();
	connect_pair(one, two);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	CHECK(post_write(one, mr->lkey, mr->rkey, IBV_SEND_SIGNALED) == 0);
	CHECK(ibv_get_cq_event(channel, &event_cq, &event_context) == 0 && seconds() < end);
	ibv_ack_cq_events(cq, 1);
}

static void unacknowledged(void)
{
	struct ibv_cq *event_cq;
	void *event_context;

	open_all();
	connect_pair(one, two);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	CHECK(post_write(one, mr->lkey, mr->rkey, IBV_SEND_SIGNALED) == 0);
	CHECK(ibv_get_cq_event(channel, &event_cq, &event_context) == 0); /* PLANTED */
	CHECK(poll_one() == IBV_WC_SUCCESS);
}

static void deregistered_key(void)
{
	uint32_t lkey, rkey;
	struct ibv_mr *other;

	open_all();
	other = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
	CHECK(other);
	lkey = other->lkey;
	rkey = mr->rkey;
	CHECK(ibv_dereg_mr(other) == 0);
	connect_pair(one, two);
	CHECK(post_write(one, lkey, rkey, IBV_SEND_SIGNALED) == 0); /* PLANTED */
	CHECK(poll_one() == IBV_WC_LOC_PROT_ERR);
	close_all();
}

static void deregistered_remote_key(void)
{
	struct ibv_mr *other;
	uint32_t rkey;

	open_all();
	other = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
	CHECK(other);
	rkey = other->rkey;
	connect_pair(one, two);
	CHECK(ibv_dereg_mr(other) == 0);
	CHECK(post_write(one, mr->lkey, rkey, IBV_SEND_SIGNALED) == 0);
	CHECK(poll_one() == IBV_WC_REM_ACCESS_ERR); /* PLANTED */
	close_all();
}

static void send_in_init(void)
{
	open_all();
	to_open_init(one);
	CHECK(post_write(one, mr->lkey, mr->rkey, IBV_SEND_SIGNALED) != 0); /* PLANTED */
	close_all();
}

static void receive_in_reset(void)
{
	open_all();
	CHECK(post_receive(one) != 0); /* PLANTED */
	close_all();
}

static void small_queue(void)
{
	struct ibv_cq *small;
	struct ibv_qp *qp;
	struct ibv_wc wc[2];

	open_all();
	small = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(small);
	qp = create_qp(small);
	connect_pair(qp, two);
	CHECK(post_write(qp, mr->lkey, mr->rkey, IBV_SEND_SIGNALED) == 0);
	CHECK(post_write(qp, mr->lkey, mr->rkey, IBV_SEND_SIGNALED) == 0); /* PLANTED */
	poll_all(small, 1, wc);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(small) == 0);
	close_all();
}

static void busy_region(void)
{
	struct ibv_mr *target;

	open_all();
	target = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
	CHECK(target);
	connect_pair(one, two);
	CHECK(post_write(one, mr->lkey, target->rkey, IBV_SEND_SIGNALED) == 0);
	CHECK(ibv_dereg_mr(mr) == 0); /* PLANTED */
	poll_one();
	mr = target;
	close_all();
}

/* The receive request waits for a message, which comes after its region has gone. */
static void busy_receive(void)
{
	struct ibv_send_wr wr = { .wr_id = 9, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_sge sge = { .addr = (uintptr_t)"message", .length = 7 };
	struct ibv_wc wc[2];

	wr.send_flags |= IBV_SEND_INLINE;
	wr.sg_list = &sge;
	open_all();
	connect_pair(one, two);
	CHECK(post_receive(two) == 0);
	CHECK(ibv_dereg_mr(mr) == 0); /* PLANTED */
	mr = NULL;
	CHECK(ibv_post_send(one, &wr, &bad) == 0);
	poll_all(cq, 2, wc);
	CHECK(wc[0].status != IBV_WC_SUCCESS && wc[1].status != IBV_WC_SUCCESS);
	close_all();
}

static void unsignaled(void)
{
	open_all();
	connect_pair(one, two);
	/* max_send_wr is 4. */
	for (int i = 0; i < 5; i++)
		post_write(one, mr->lkey, mr->rkey, 0); /* PLANTED */
	close_all();
}

static void ended_object(void)
{
	struct ibv_mr *ended;

	open_all();
	ended = mr;
	mr = NULL;
	CHECK(ibv_dereg_mr(ended) == 0);
	CHECK(ibv_dereg_mr(ended) == EINVAL); /* PLANTED */
	close_all();
}

/* An inline function reads the structure before the library is called. */
static void ended_queue_pair(void)
{
	struct ibv_qp *ended;

	open_all();
	connect_pair(one, two);
	ended = one;
	one = NULL;
	CHECK(ibv_destroy_qp(ended) == 0);
	CHECK(post_write(ended, mr->lkey, mr->rkey, IBV_SEND_SIGNALED) == EINVAL); /* PLANTED */
	close_all();
}

/* Lists of more elements than the queues take are refused unread: behind the first element is no memory. */
static void long_lists(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* One more than plain_attributes asks for, as many as the adapter has, and no number of elements. */
	static const int counts[] = { 3, 20, INT_MAX, -1 };
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_recv_wr receive = { .wr_id = 8 }, *bad_receive;
	struct ibv_send_wr send = { .wr_id = 7, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad_send;
	struct ibv_sge *last;
	struct ibv_srq *srq;

	CHECK(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
	last = (struct ibv_sge *)(pages + page) - 1;
	open_all();
	srq = ibv_create_srq(pd, &shared);
	CHECK(srq);
	connect_pair(one, two);
	*last = (struct ibv_sge){ .addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey };
	send.sg_list = receive.sg_list = last;
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		send.num_sge = receive.num_sge = counts[i];
		CHECK(ibv_post_send(one, &send, &bad_send) == EINVAL && bad_send == &send);
		CHECK(ibv_post_recv(one, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
		CHECK(ibv_post_srq_recv(srq, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	}
	/* A list of requests without an end fills the queue. */
	receive.num_sge = 1;
	receive.next = &receive;
	CHECK(ibv_post_recv(one, &receive, &bad_receive) == ENOMEM);
	CHECK(ibv_post_srq_recv(srq, &receive, &bad_receive) == ENOMEM);
	CHECK(ibv_destroy_srq(srq) == 0);
	close_all();
}

/* With --check=buffers. */
static void changed_buffer(void)
{
	open_all();
	connect_pair(one, two);
	CHECK(post_write(one, mr->lkey, mr->rkey, IBV_SEND_SIGNALED) == 0); /* PLANTED */
	memory[1]++;
	CHECK(poll_one() == IBV_WC_SUCCESS);
	close_all();
}

/* A forked child has nothing of its parent's, and reports what it leaves itself. */
static void forked(void)
{
	pid_t child;
	int status;

	open_all();
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct ibv_context *own = open_first_device();

		CHECK(ibv_alloc_pd(own)); /* PLANTED */
		CHECK(ibv_close_device(own) == 0);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* This one only exits. */
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		exit(0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close_all();
}

/* What a destructor of the program ends is not left. */
static int ends_late;

__attribute__((destructor)) static void end_late(void)
{
	if (ends_late)
		close_all();
}

static void late_end(void)
{
	open_all();
	ends_late = 1;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{ "nothing", nothing },
		{ "left-objects", left_objects },
		{ "left-region", left_region },
		{ "unpolled", unpolled },
		{ "unacknowledged", unacknowledged },
		{ "deregistered-key", deregistered_key },
		{ "deregistered-remote-key", deregistered_remote_key },
		{ "send-in-init", send_in_init },
		{ "receive-in-reset", receive_in_reset },
		{ "small-queue", small_queue },
		{ "busy-region", busy_region },
		{ "busy-receive", busy_receive },
		{ "unsignaled", unsignaled },
		{ "ended-object", ended_object },
		{ "ended-queue-pair", ended_queue_pair },
		{ "long-lists", long_lists },
		{ "changed-buffer", changed_buffer },
		{ "forked", forked },
		{ "late-end", late_end },
	};

	CHECK(argc == 2);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (strcmp(argv[1], all[i].name) == 0) {
			all[i].run();
			return 0;
		}
	}
	return 2;
}
