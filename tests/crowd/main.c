/*
 * main PROCESSES TIMEOUT [FILE FIRST COUNT]: a crowd of processes, each connected to each other one, all polling. Each sends one WRITE to
 * each other in turn, of a word that names both, with that timeout and retry_cnt 7; then each checks every word that it got. No WRITE may
 * fail, though a process may get no processor for seconds. With FILE, by which they find each other, it starts COUNT of them from FIRST on:
 * others start on another host.
 *
 * Prints one line: how many connections took which path is for `pagewire explain` and the statistics to say.
 */
#define _GNU_SOURCE
#include "../../crates/verbs/tests/c/connect.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MOST 512
/* What the whole may take: processes wait for each other. */
#define LIMIT_SECONDS 280

/* What the processes tell each other. */
struct board {
	_Atomic int arrived[4];
	_Atomic int failed;
	uint64_t address[MOST];
	uint32_t rkey[MOST];
	union ibv_gid gid[MOST];
	/* The number of the queue pair of one process for another. */
	uint32_t number[MOST][MOST];
};

static struct board *board;
static double end;

/* ibv_modify_qp(3): 4.096 us times 2 to the power of it. */
static int timeout;

static void must_go_on(void)
{
	if (atomic_load(&board->failed))
		exit(1);
	if (seconds() > end) {
		fprintf(stderr, "not done in %d s\n", LIMIT_SECONDS);
		exit(1);
	}
}

/* Until all have come here; who waits polls, as programs do that have nothing else to do. */
static void wait_for_all(int step, int count, struct ibv_cq *cq)
{
	struct ibv_wc wc;

	atomic_fetch_add(&board->arrived[step], 1);
	while (atomic_load(&board->arrived[step]) < count) {
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
		must_go_on();
	}
}

static uint64_t word_of(int from, int to)
{
	return 0xc0de000000000000 | (uint64_t)from << 16 | to;
}

static void write_to(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, int self, int peer)
{
	struct ibv_sge sge = { (uintptr_t)((uint64_t *)mr->addr + MOST + peer), 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = board->address[peer] + 8 * self;
	wr.wr.rdma.rkey = board->rkey[peer];
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		must_go_on();
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "WRITE of %d to %d: %s\n", self, peer, ibv_wc_status_str(wc.status));
		atomic_store(&board->failed, 1);
		exit(1);
	}
}

static int run(int self, int count)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp_attr attr = usual_attributes(context, 0);
	uint64_t *words = calloc(2 * MOST, sizeof(*words));
	struct ibv_qp *qps[MOST] = { NULL };
	struct ibv_mr *mr;

	CHECK(pd && cq && words);
	for (int peer = 0; peer < count; peer++)
		words[MOST + peer] = word_of(self, peer);
	mr = ibv_reg_mr(pd, words, 2 * MOST * sizeof(*words), ALL_ACCESS);
	CHECK(mr);
	board->address[self] = (uintptr_t)words;
	board->rkey[self] = mr->rkey;
	board->gid[self] = attr.ah_attr.grh.dgid;
	for (int peer = 0; peer < count; peer++) {
		if (peer == self)
			continue;
		qps[peer] = ibv_create_qp(pd, &init);
		CHECK(qps[peer]);
		to_open_init(qps[peer]);
		board->number[self][peer] = qps[peer]->qp_num;
	}
	wait_for_all(0, count, cq);
	for (int peer = 0; peer < count; peer++) {
		if (peer == self)
			continue;
		attr.qp_state = IBV_QPS_RTR;
		attr.dest_qp_num = board->number[peer][self];
		attr.ah_attr.grh.dgid = board->gid[peer];
		CHECK(ibv_modify_qp(qps[peer], &attr, RTR_MASK(IBV_QPT_RC)) == 0);
		attr.qp_state = IBV_QPS_RTS;
		attr.timeout = timeout;
		attr.retry_cnt = 7;
		CHECK(ibv_modify_qp(qps[peer], &attr, RTS_MASK(IBV_QPT_RC)) == 0);
	}
	wait_for_all(1, count, cq);
	for (int step = 1; step < count; step++) {
		int peer = (self + step) % count;

		write_to(qps[peer], cq, mr, self, peer);
	}
	wait_for_all(2, count, cq);
	for (int peer = 0; peer < count; peer++)
		CHECK(((volatile uint64_t *)words)[peer] == (peer == self ? 0 : word_of(peer, self)));
	wait_for_all(3, count, cq);
	return 0;
}

/* By a file, or of this process and its children. */
static void map_board(const char *file)
{
	int fd = -1;

	if (file) {
		fd = open(file, O_RDWR | O_CREAT, 0666);
		CHECK(fd >= 0 && ftruncate(fd, sizeof(*board)) == 0);
	}
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | (file ? 0 : MAP_ANONYMOUS), fd, 0);
	CHECK(board != MAP_FAILED);
}

int main(int argc, char **argv)
{
	int is_part = argc == 6, is_whole = argc == 3;
	int count = is_part || is_whole ? atoi(argv[1]) : 0, failed = 0, status;
	int first = is_part ? atoi(argv[4]) : 0, own = is_part ? atoi(argv[5]) : count;

	timeout = count ? atoi(argv[2]) : 0;
	if (count < 2 || count > MOST || timeout < 1 || timeout > 31 || first < 0 || own < 1 || first + own > count) {
		fprintf(stderr, "usage: %s PROCESSES TIMEOUT [FILE FIRST COUNT] (2 to %d processes)\n", argv[0], MOST);
		return 2;
	}
	end = seconds() + LIMIT_SECONDS;
	map_board(is_part ? argv[3] : NULL);
	for (int self = first; self < first + own; self++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0)
			exit(run(self, count));
	}
	while (wait(&status) > 0) {
		if (status) {
			failed++;
			atomic_store(&board->failed, 1);
		}
	}
	if (failed == 0)
		printf("%d processes, %d WRITEs\n", own, own * (count - 1));
	return failed != 0;
}
