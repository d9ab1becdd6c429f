/*
 * The engine touches memory directly while it knows that its own handler mends faults. Whatever a program does to its
 * handlers and masks, and takes its memory away at that very moment: a request ends with an error, and the program
 * sees no signal.
 */
#define _GNU_SOURCE
#include "connect.h"

#include <signal.h>
#include <sys/mman.h>

/* sigset(3) and sighold(3) are. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define BYTES 64

static void seen(int number)
{
	static const char text[] = "the program saw the engine's fault\n";

	(void)number;
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(3);
	_exit(2);
}

static void by_sigaction(void)
{
	struct sigaction action = { .sa_handler = seen };

	CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
}

static void by_signal(void)
{
	CHECK(signal(SIGSEGV, seen) != SIG_ERR && signal(SIGBUS, seen) != SIG_ERR);
}

static void by_sigset(void)
{
	CHECK(sigset(SIGSEGV, seen) != SIG_ERR && sigset(SIGBUS, seen) != SIG_ERR);
}

static void by_default(void)
{
	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR && signal(SIGBUS, SIG_DFL) != SIG_ERR);
}

/* A fault while its signal is blocked ends a process. */
static void by_pthread_sigmask(void)
{
	sigset_t all;

	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
}

static void by_sigprocmask(void)
{
	sigset_t all;

	sigfillset(&all);
	CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
}

static void by_sighold(void)
{
	CHECK(sighold(SIGSEGV) == 0 && sighold(SIGBUS) == 0);
}

static const struct way {
	const char *name;
	void (*change)(void);
} ways[] = {
	{ "nothing", NULL },
	{ "sigaction", by_sigaction },
	{ "signal", by_signal },
	{ "sigset", by_sigset },
	{ "default", by_default },
	{ "pthread_sigmask", by_pthread_sigmask },
	{ "sigprocmask", by_sigprocmask },
	{ "sighold", by_sighold },
};

static void send_one(struct ibv_qp *one, struct ibv_qp *two, struct ibv_mr *from, struct ibv_mr *to)
{
	struct ibv_sge into = { (uintptr_t)to->addr, BYTES, to->lkey };
	struct ibv_sge sge = { (uintptr_t)from->addr, BYTES, from->lkey };
	struct ibv_recv_wr receive = { .wr_id = 9, .sg_list = &into, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;

	CHECK(ibv_post_recv(two, &receive, &bad_receive) == 0);
	CHECK(ibv_post_send(one, &send, &bad_send) == 0);
}

int main(int argc, char **argv)
{
	const struct way *way = ways;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_wc wc[2];
	size_t page = sysconf(_SC_PAGESIZE);
	char *source, *target;

	alarm(120);
	CHECK(argc == 2);
	while (strcmp(way->name, argv[1]) != 0)
		CHECK(++way < ways + sizeof(ways) / sizeof(*ways));
	context = open_first_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
	source = malloc(BYTES);
	target = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(target != MAP_FAILED);
	struct ibv_mr *from = ibv_reg_mr(pd, source, BYTES, ALL_ACCESS);
	struct ibv_mr *to = ibv_reg_mr(pd, target, BYTES, ALL_ACCESS);

	connect_pair(one, two);
	for (int i = 0; i < 1000; i++) {
		memset(source, i, BYTES);
		send_one(one, two, from, to);
		poll_all(cq, 2, wc);
		CHECK(wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS);
		CHECK(memcmp(source, target, BYTES) == 0);
	}
	if (way->change)
		way->change();
	CHECK(munmap(target, page) == 0);
	send_one(one, two, from, to);
	poll_all(cq, 2, wc);
	for (int i = 0; i < 2; i++)
		CHECK(wc[i].status == (wc[i].wr_id == 9 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR));
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
