/*
 * On-demand paging: what the device says of it, regions for it (implicit ones are the whole address space), and advice about them
 * (ibv_query_device_ex(3), ibv_reg_mr(3), ibv_advise_mr(3)). Whether a page is present is asked of mincore(2).
 */
#define _GNU_SOURCE
#include "pager.h"
#include "connect.h"

#include <sys/resource.h>

#define PAGES 8
#define ON_DEMAND (ALL_ACCESS | IBV_ACCESS_ON_DEMAND)

static size_t page;

static char *fresh(size_t pages)
{
	char *memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	/* Its neighbours would come in with a huge page. */
	CHECK(madvise(memory, pages * page, MADV_NOHUGEPAGE) == 0);
	return memory;
}

static int present(char *memory, size_t pages)
{
	unsigned char there[64];
	int count = 0;

	CHECK(pages <= sizeof(there) && mincore(memory, pages * page, there) == 0);
	for (size_t i = 0; i < pages; i++)
		count += there[i] & 1;
	return count;
}

static void until_present(char *memory, size_t pages)
{
	double end = seconds() + PATIENCE_SECONDS;

	while (present(memory, pages) < (int)pages) {
		CHECK(seconds() < end);
		usleep(100);
	}
}

/* Page faults of this thread when each page is written. */
static long faults_of_writing(char *memory, size_t pages)
{
	struct rusage before, after;

	CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
	for (size_t i = 0; i < pages; i++)
		memory[i * page] = 1;
	CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
	return after.ru_minflt - before.ru_minflt;
}

static void capabilities(struct ibv_context *context)
{
	/* Names of newer headers: IBV_ODP_SUPPORT_FLUSH, IBV_ODP_SUPPORT_ATOMIC_WRITE. */
	const uint32_t flush = 1 << 6, atomic_write = 1 << 7;
	const uint32_t datagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	struct ibv_device_attr_ex attr;

	CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
	CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps ==
	      (datagrams | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | flush | atomic_write));
	CHECK(attr.odp_caps.per_transport_caps.uc_odp_caps == (datagrams | IBV_ODP_SUPPORT_WRITE));
	CHECK(attr.odp_caps.per_transport_caps.ud_odp_caps == datagrams);
	CHECK(attr.xrc_odp_caps == attr.odp_caps.per_transport_caps.rc_odp_caps);
}

static void registrations(struct ibv_pd *pd)
{
	char *memory = fresh(1);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, page, ON_DEMAND), *whole;

	CHECK(mr && present(memory, 1) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	whole = ibv_reg_mr(pd, NULL, SIZE_MAX, ON_DEMAND);
	CHECK(whole && whole->addr == NULL && whole->length == SIZE_MAX);
	/* It stays one for on-demand paging. */
	CHECK(ibv_rereg_mr(whole, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == IBV_REREG_MR_ERR_INPUT);
	CHECK(errno == EINVAL);
	CHECK(ibv_rereg_mr(whole, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ON_DEMAND) == 0);
	CHECK(ibv_dereg_mr(whole) == 0);
	REFUSED(ibv_reg_mr(pd, NULL, SIZE_MAX, ALL_ACCESS), EINVAL);
	REFUSED(ibv_reg_mr(pd, memory, SIZE_MAX, ON_DEMAND), EINVAL);
	REFUSED(ibv_reg_mr(pd, NULL, SIZE_MAX - 1, ON_DEMAND), EINVAL);
	REFUSED(ibv_reg_mr_iova(pd, NULL, SIZE_MAX, page, ON_DEMAND), EINVAL);
	REFUSED(ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK(munmap(memory, page) == 0);
}

struct ends {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *one, *two;
};

static struct ends make(struct ibv_context *context, struct ibv_pd *pd, enum ibv_qp_type type, int with_srq)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ends e = { .cq = ibv_create_cq(context, 16, NULL, NULL, 0) };
	struct ibv_qp_init_attr init = plain_attributes(e.cq, type);

	init.sq_sig_all = 1;
	if (with_srq) {
		e.srq = init.srq = ibv_create_srq(pd, &srq);
		CHECK(e.srq);
	}
	e.one = ibv_create_qp(pd, &init);
	e.two = ibv_create_qp(pd, &init);
	CHECK(e.cq && e.one && e.two);
	connect_pair(e.one, e.two);
	return e;
}

static void destroy(struct ends *e)
{
	CHECK(ibv_destroy_qp(e->one) == 0 && ibv_destroy_qp(e->two) == 0);
	CHECK(!e->srq || ibv_destroy_srq(e->srq) == 0);
	CHECK(ibv_destroy_cq(e->cq) == 0);
}

static void post_receive(struct ends *e, char *into, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)into, length, lkey };
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK((e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->two, &wr, &bad)) == 0);
}

static void post(struct ends *e, enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = opcode, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_ah *ah = NULL;
	struct ibv_ah_attr attr;

	if (e->one->qp_type == IBV_QPT_UD) {
		attr = to_own_host(e->one->context);
		ah = ibv_create_ah(e->one->pd, &attr);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = e->two->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 7;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(ibv_post_send(e->one, &wr, &bad) == 0);
	if (ah) {
		struct ibv_wc wc;
		double end = seconds() + PATIENCE_SECONDS;

		while (ibv_poll_cq(e->cq, 1, &wc) == 0)
			CHECK(seconds() < end);
		CHECK(wc.status == IBV_WC_SUCCESS && ibv_destroy_ah(ah) == 0);
	}
}

/* All that a transport has, by keys of the whole address space, to pages that are absent at both ends. */
static void operations(struct ibv_context *context, struct ibv_pd *pd, enum ibv_qp_type type, int with_srq)
{
	struct ends e = make(context, pd, type, with_srq);
	struct ibv_mr *whole = ibv_reg_mr(pd, NULL, SIZE_MAX, ON_DEMAND);
	size_t header = type == IBV_QPT_UD ? 40 : 0;
	int answers = type == IBV_QPT_UD ? 1 : 2;
	char *from = fresh(PAGES), *to = fresh(PAGES);
	struct ibv_sge sge = { (uintptr_t)from + 100, 900, whole->lkey };
	struct ibv_wc wc[2];

	for (int i = 0; i < 900; i++)
		from[100 + i] = i * 7 + 1;
	post_receive(&e, to + page - 200, 1000 + header, whole->lkey);
	post(&e, IBV_WR_SEND, sge, 0, 0);
	poll_all(e.cq, answers, wc);
	for (int i = 0; i < answers; i++)
		CHECK(wc[i].status == IBV_WC_SUCCESS);
	CHECK(memcmp(from + 100, to + page - 200 + header, 900) == 0);
	if (type != IBV_QPT_UD) {
		post(&e, IBV_WR_RDMA_WRITE, sge, (uintptr_t)to + 3 * page - 450, whole->rkey);
		poll_all(e.cq, 1, wc);
		CHECK(wc[0].status == IBV_WC_SUCCESS);
		/* UC is not told when it is there. */
		double end = seconds() + PATIENCE_SECONDS;
		while (memcmp(from + 100, to + 3 * page - 450, 900) != 0)
			CHECK(seconds() < end);
	}
	if (type == IBV_QPT_RC) {
		sge.addr = (uintptr_t)from + 5 * page - 10;
		post(&e, IBV_WR_RDMA_READ, sge, (uintptr_t)to + 3 * page - 450, whole->rkey);
		poll_all(e.cq, 1, wc);
		CHECK(wc[0].status == IBV_WC_SUCCESS && memcmp(from + 5 * page - 10, from + 100, 900) == 0);
		sge = (struct ibv_sge){ (uintptr_t)from + 7 * page, 8, whole->lkey };
		post(&e, IBV_WR_ATOMIC_FETCH_AND_ADD, sge, (uintptr_t)to + 7 * page, whole->rkey);
		poll_all(e.cq, 1, wc);
		CHECK(wc[0].status == IBV_WC_SUCCESS && *(uint64_t *)(to + 7 * page) == 7);
	}
	destroy(&e);
	CHECK(ibv_dereg_mr(whole) == 0);
	CHECK(munmap(from, PAGES * page) == 0 && munmap(to, PAGES * page) == 0);
}

/* Addresses of the whole address space where nothing is, or nothing that a program may touch. */
static void nowhere(struct ibv_context *context, struct ibv_pd *pd)
{
	char *memory = fresh(2);
	const uint64_t addresses[] = {
		0, 8, page, (uintptr_t)memory + 2 * page - 8, 0x7fffffffe000, 0x7ffffffff000, 0x800000000000,
		0x0123456789abcdef & ~7ull, 1ull << 62, (1ull << 63) - 64, 1ull << 63, 0xffff800000000000,
		0xffffffffff600000, UINT64_MAX - page, UINT64_MAX - 71, UINT64_MAX - 63, UINT64_MAX - 8, UINT64_MAX - 7,
	};
	const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
					       IBV_WR_SEND };
	struct ibv_mr *whole = ibv_reg_mr(pd, NULL, SIZE_MAX, ON_DEMAND);
	struct ibv_wc wc[2];

	CHECK(munmap(memory + page, page) == 0);
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		for (size_t j = 0; j < sizeof(opcodes) / sizeof(opcodes[0]); j++) {
			struct ibv_sge here = { (uintptr_t)memory, 64, whole->lkey };
			struct ibv_sge there = { addresses[i], 64, whole->lkey };
			uint64_t remote = opcodes[j] == IBV_WR_ATOMIC_FETCH_AND_ADD ? addresses[i] & ~7ull : addresses[i];
			struct ends e = make(context, pd, IBV_QPT_RC, 0);

			/* What the peer's memory is. */
			if (opcodes[j] == IBV_WR_SEND) {
				post_receive(&e, (char *)addresses[i], 64, whole->lkey);
				post(&e, IBV_WR_SEND, here, 0, 0);
				poll_all(e.cq, 2, wc);
				CHECK(wc[0].status != IBV_WC_SUCCESS && wc[1].status != IBV_WC_SUCCESS);
			} else {
				post(&e, opcodes[j], here, remote, whole->rkey);
				poll_all(e.cq, 1, wc);
				CHECK(wc[0].status == IBV_WC_REM_ACCESS_ERR || wc[0].status == IBV_WC_REM_OP_ERR);
			}
			destroy(&e);
			/* What the own memory is. */
			e = make(context, pd, IBV_QPT_RC, 0);
			if (opcodes[j] == IBV_WR_SEND)
				post_receive(&e, memory, 64, whole->lkey);
			post(&e, opcodes[j], there, (uintptr_t)memory, whole->rkey);
			poll_all(e.cq, 1, wc);
			CHECK(wc[0].wr_id == 1 && wc[0].status == IBV_WC_LOC_PROT_ERR);
			destroy(&e);
			there.length = 8;
			CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &there, 1) == EFAULT);
			CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &there, 1) == EFAULT);
		}
	}
	CHECK(ibv_dereg_mr(whole) == 0 && munmap(memory, page) == 0);
}

static int advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, int flags, struct ibv_mr *mr, char *at, size_t length)
{
	struct ibv_sge sge = { (uintptr_t)at, length, mr->lkey };

	return ibv_advise_mr(pd, advice, flags, &sge, 1);
}

#define READ IBV_ADVISE_MR_ADVICE_PREFETCH
#define WRITE IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define NO_FAULT IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define FLUSH IBV_ADVISE_MR_FLAG_FLUSH

static void advice(struct ibv_pd *pd, int implicit)
{
	char *memory = fresh(64);
	struct ibv_mr *mr = implicit ? ibv_reg_mr(pd, NULL, SIZE_MAX, ON_DEMAND) : ibv_reg_mr(pd, memory, 64 * page, ON_DEMAND);
	struct ibv_sge two[2];

	CHECK(mr && present(memory, 64) == 0);
	/* Only pages that something of is named come in. */
	CHECK(advise(pd, READ, FLUSH, mr, memory + page + 8, page) == 0);
	CHECK(present(memory, 64) == 2 && present(memory + page, 2) == 2);
	CHECK(faults_of_writing(memory + page, 2) >= 2);
	CHECK(advise(pd, WRITE, FLUSH, mr, memory + 4 * page, 4 * page) == 0);
	CHECK(present(memory + 4 * page, 4) == 4 && present(memory, 64) == 6);
	CHECK(faults_of_writing(memory + 4 * page, 4) == 0);
	/* Pages that are there for reading. */
	CHECK(advise(pd, READ, FLUSH, mr, memory + 10 * page, 2 * page) == 0);
	CHECK(advise(pd, WRITE, FLUSH, mr, memory + 10 * page, 2 * page) == 0);
	CHECK(faults_of_writing(memory + 10 * page, 2) == 0);
	/* Bytes stay what they are. */
	strcpy(memory + 12 * page, "unchanged");
	CHECK(advise(pd, WRITE, FLUSH, mr, memory + 12 * page, page) == 0 && strcmp(memory + 12 * page, "unchanged") == 0);
	/* Without FLUSH they come later. */
	CHECK(advise(pd, READ, 0, mr, memory + 14 * page, 2 * page) == 0);
	CHECK(advise(pd, WRITE, 0, mr, memory + 16 * page, 2 * page) == 0);
	until_present(memory + 14 * page, 4);
	/* Several pieces, and one of no length. */
	two[0] = (struct ibv_sge){ (uintptr_t)memory + 20 * page, 1, mr->lkey };
	two[1] = (struct ibv_sge){ (uintptr_t)memory + 22 * page, page, mr->lkey };
	CHECK(ibv_advise_mr(pd, READ, FLUSH, two, 2) == 0);
	CHECK(present(memory + 20 * page, 1) == 1 && present(memory + 21 * page, 1) == 0 && present(memory + 22 * page, 1) == 1);
	CHECK(advise(pd, READ, FLUSH, mr, memory + 30 * page, 0) == 0 && present(memory + 30 * page, 1) == 0);
	/* NO_FAULT brings nothing in. */
	CHECK(advise(pd, NO_FAULT, 0, mr, memory + 32 * page, 8 * page) == 0);
	CHECK(advise(pd, NO_FAULT, FLUSH, mr, memory + 32 * page, 8 * page) == 0);
	memory[33 * page] = 1;
	CHECK(advise(pd, NO_FAULT, FLUSH, mr, memory + 32 * page, 8 * page) == 0);
	usleep(20000);
	CHECK(present(memory + 32 * page, 8) == 1);
	/* Much at once, which threads share. */
	CHECK(munmap(memory, 64 * page) == 0);
	memory = fresh(1024);
	CHECK(implicit || (ibv_dereg_mr(mr) == 0 && (mr = ibv_reg_mr(pd, memory, 1024 * page, ON_DEMAND))));
	CHECK(advise(pd, WRITE, FLUSH, mr, memory, 1024 * page) == 0);
	CHECK(faults_of_writing(memory, 1024) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && munmap(memory, 1024 * page) == 0);
}

static void refused_advice(struct ibv_context *context, struct ibv_pd *pd)
{
	char *memory = fresh(4);
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 3 * page, ON_DEMAND);
	struct ibv_mr *reads = ibv_reg_mr(pd, memory, 3 * page, IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *plain = ibv_reg_mr(pd, memory, 3 * page, ALL_ACCESS);
	struct ibv_mr *moved = ibv_reg_mr_iova(pd, memory, 3 * page, 64, ON_DEMAND);
	struct ibv_sge two[2] = { { (uintptr_t)memory, page, mr->lkey }, { (uintptr_t)memory, page, mr->lkey ^ 1 } };
	static const enum ibv_advise_mr_advice advices[] = { READ, WRITE, NO_FAULT };

	CHECK(other && mr && reads && plain && moved);
	for (size_t i = 0; i < 3; i++) {
		for (int flags = 0; flags <= FLUSH; flags++) {
			CHECK(ibv_advise_mr(pd, advices[i], flags, two, 0) == EINVAL);
			CHECK(ibv_advise_mr(pd, advices[i], flags, NULL, 1) == EINVAL);
			CHECK(ibv_advise_mr(pd, advices[i], flags | 2, two, 1) == EINVAL);
			/* The second of two: nothing was done for the first. */
			CHECK(ibv_advise_mr(pd, advices[i], flags, two, 2) == ENOENT);
			CHECK(advise(pd, advices[i], flags, plain, memory, page) == ENOENT);
			CHECK(advise(other, advices[i], flags, mr, memory, page) == EPERM);
			CHECK(advise(pd, advices[i], flags, mr, memory, 3 * page + 1) == EFAULT);
			CHECK(advise(pd, advices[i], flags, mr, memory - 1, 1) == EFAULT);
			CHECK(advise(pd, advices[i], flags, moved, memory, 1) == EFAULT);
		}
	}
	CHECK(ibv_advise_mr(pd, 3, 0, two, 1) == EOPNOTSUPP);
	CHECK(advise(pd, WRITE, FLUSH, reads, memory, page) == EPERM);
	CHECK(present(memory, 4) == 0);
	CHECK(advise(pd, READ, FLUSH, reads, memory, page) == 0 && present(memory, 4) == 1);
	CHECK(advise(pd, READ, FLUSH, moved, (char *)64 + page, page) == 0 && present(memory, 4) == 2);
	CHECK(mprotect(memory, page, PROT_NONE) == 0 && mprotect(memory + page, page, PROT_READ) == 0);
	CHECK(advise(pd, READ, FLUSH, mr, memory, page) == EFAULT);
	CHECK(advise(pd, WRITE, FLUSH, mr, memory + page, page) == EFAULT);
	CHECK(advise(pd, READ, FLUSH, mr, memory + page, page) == 0);
	CHECK(munmap(memory + 2 * page, page) == 0);
	CHECK(advise(pd, READ, FLUSH, mr, memory + page, 2 * page) == EFAULT);
	/* Nobody waits for that. */
	CHECK(advise(pd, READ, 0, mr, memory + page, 2 * page) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(advise(pd, READ, FLUSH, mr = plain, memory, page) == ENOENT);
	CHECK(ibv_dereg_mr(reads) == 0 && ibv_dereg_mr(plain) == 0 && ibv_dereg_mr(moved) == 0);
	CHECK(ibv_dealloc_pd(other) == 0 && munmap(memory, 2 * page) == 0 && munmap(memory + 3 * page, page) == 0);
}

/* Pages of a file that are on the disk only. */
static void from_file(struct ibv_pd *pd)
{
	char name[] = "pagewire-on-demand-XXXXXX", *memory;
	int fd = mkstemp(name);
	struct ibv_mr *mr;
	long faults = -1;

	CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, 8 * page) == 0);
	for (size_t i = 0; i < 8; i++)
		CHECK(pwrite(fd, "x", 1, i * page) == 1);
	CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	memory = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED && close(fd) == 0);
	mr = ibv_reg_mr(pd, memory, 8 * page, ON_DEMAND);
	if (present(memory, 8) != 0)
		fprintf(stderr, "not checked: the file system keeps pages of a file that are not needed\n");
	CHECK(advise(pd, READ, FLUSH, mr, memory, 8 * page) == 0 && present(memory, 8) == 8);
	/* The kernel may write pages back at any moment, and then a write faults again: once in a few rounds it does not. */
	for (int round = 0; faults != 0; round++) {
		CHECK(round < 10 && msync(memory, 8 * page, MS_SYNC) == 0);
		CHECK(advise(pd, WRITE, FLUSH, mr, memory, 8 * page) == 0);
		faults = faults_of_writing(memory, 8);
	}
	CHECK(ibv_dereg_mr(mr) == 0 && munmap(memory, 8 * page) == 0);
}

/* Pages that a thread of the program gives. */
static void from_pager(struct ibv_pd *pd)
{
	char *memory = fresh(4), content[4 * page];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 4 * page, ON_DEMAND);
	struct pager pager;

	memset(content, 'p', sizeof(content));
	if (!start_pager(&pager, memory, 4 * page, content, true)) {
		fprintf(stderr, "not checked: this user may have no userfaultfd\n");
		CHECK(ibv_dereg_mr(mr) == 0);
		return;
	}
	CHECK(advise(pd, NO_FAULT, FLUSH, mr, memory, 4 * page) == 0 && pager.faults == 0);
	CHECK(advise(pd, READ, FLUSH, mr, memory, page) == 0 && present(memory, 4) == 1 && pager.faults == 1);
	CHECK(advise(pd, WRITE, FLUSH, mr, memory + page, page) == 0 && memory[page] == 'p');
	/* What does not come is waited for by nobody without FLUSH, and by no end of the region. */
	pager.held = true;
	CHECK(advise(pd, READ, 0, mr, memory + 2 * page, 2 * page) == 0);
	while (pager.faults < 3)
		usleep(100);
	CHECK(ibv_dereg_mr(mr) == 0);
	pager.held = false;
	stop_pager(&pager);
	CHECK(munmap(memory, 4 * page) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);

	page = sysconf(_SC_PAGESIZE);
	alarm(240);
	CHECK(pd);
	capabilities(context);
	registrations(pd);
	operations(context, pd, IBV_QPT_RC, 0);
	operations(context, pd, IBV_QPT_RC, 1);
	operations(context, pd, IBV_QPT_UC, 0);
	operations(context, pd, IBV_QPT_UC, 1);
	operations(context, pd, IBV_QPT_UD, 0);
	operations(context, pd, IBV_QPT_UD, 1);
	nowhere(context, pd);
	advice(pd, 0);
	advice(pd, 1);
	refused_advice(context, pd);
	from_file(pd);
	from_pager(pd);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
