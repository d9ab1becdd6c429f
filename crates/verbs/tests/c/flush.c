/*
 * FLUSH (InfiniBand specification, volume 1, annex A19): what was placed before is visible, or in the file that the target maps; what waits for a
 * slow disk, and what is refused. The program has an msync(2) of its own, which notes what is synced and fails or is slow on demand.
 */
#define _GNU_SOURCE
#include "connect.h"
#include "flush.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define DEPTH 16
#define PAGE 4096UL
#define PAGES 16
#define TMPFS 0x01021994
#define OPERATIONS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | QP_EX_WITH_FLUSH)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *from, *to;
static struct ibv_mr *mr, *file_mr, *writable;
static char *file;
static char path[PATH_MAX];
static _Alignas(4096) char here[PAGE], there[PAGE];
static struct ibv_wc wc;

/* What the library syncs. */
static _Atomic(uintptr_t) synced_at;
static atomic_size_t synced_bytes;
static atomic_int syncs, sync_error, sync_microseconds;

int msync(void *address, size_t length, int flags)
{
	if (flags != MS_SYNC)
		abort();
	if (sync_microseconds)
		usleep(sync_microseconds);
	if (sync_error) {
		errno = sync_error;
		return -1;
	}
	synced_at = (uintptr_t)address;
	synced_bytes = length;
	syncs++;
	return syscall(SYS_msync, address, length, flags);
}

/* Pages of the file that the kernel has not written: kilobytes, by proc_pid_smaps(5). */
static long dirty(void)
{
	char line[PATH_MAX + 100];
	FILE *maps = fopen("/proc/self/smaps", "r");
	long all = -1, size;
	int found = 0;

	CHECK(maps != NULL);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
			found = start <= (uintptr_t)file && (uintptr_t)file < end;
			if (found)
				all = 0;
		} else if (found && (sscanf(line, "Shared_Dirty: %ld", &size) == 1 || sscanf(line, "Private_Dirty: %ld", &size) == 1)) {
			all += size;
		}
	}
	fclose(maps);
	return all;
}

static struct ibv_qp *create(enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .pd = pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = operations,
	};

	return ibv_create_qp_ex(context, &init);
}

/* Both from RESET to RTS; the peer's requests may do what `access` says, and as many may be outstanding as `depth` says. */
static void connect_with(struct ibv_qp *one, struct ibv_qp *two, int access, int depth)
{
	struct ibv_qp *ends[] = { one, two };

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = usual_attributes(context, 0);

		to_state(ends[i], IBV_QPS_RESET);
		attr.qp_state = IBV_QPS_INIT;
		attr.qp_access_flags = access;
		CHECK(ibv_modify_qp(ends[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
		to_rtr(ends[i], ends[1 - i]->qp_num);
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = usual_attributes(context, 0);

		attr.qp_state = IBV_QPS_RTS;
		attr.max_rd_atomic = depth;
		CHECK(ibv_modify_qp(ends[i], &attr, RTS_MASK(IBV_QPT_RC)) == 0);
	}
}

static void connect_again(void)
{
	connect_with(from, to, ALL_ACCESS | ACCESS_FLUSH_GLOBAL | ACCESS_FLUSH_PERSISTENT, 4);
}

static int post_flush(struct ibv_qp *by, uint32_t rkey, void *address, size_t length, int type, int level)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(by);

	ibv_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	wr_flush(qp, rkey, (uintptr_t)address, length, type, level);
	return ibv_wr_complete(qp);
}

static void finished(enum ibv_wc_status status)
{
	poll_all(cq, 1, &wc);
	if (wc.status != status)
		fprintf(stderr, "status %d, and not %d\n", wc.status, status);
	CHECK(wc.status == status);
}

static void flushed(uint32_t rkey, void *address, size_t length, int type, int level, enum ibv_wc_status status)
{
	CHECK(post_flush(from, rkey, address, length, type, level) == 0);
	finished(status);
	if (status == IBV_WC_SUCCESS)
		CHECK((int)wc.opcode == WC_FLUSH && wc.wr_id == 7);
	else
		connect_again();
}

/* A WRITE of `value`, then a FLUSH of the same memory, as one list. */
static void write_and_flush(struct ibv_mr *target, char *address, size_t length, char value, int type, int level)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from);

	memset(here, value, length);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, target->rkey, (uintptr_t)address);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)here, length);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	wr_flush(qp, target->rkey, (uintptr_t)address, length, type, level);
	CHECK(ibv_wr_complete(qp) == 0);
	finished(IBV_WC_SUCCESS);
	CHECK((int)wc.opcode == WC_FLUSH && wc.wr_id == 7);
	CHECK(address[0] == value && address[length - 1] == value);
}

static void visible(void)
{
	for (int i = 1; i <= 50; i++)
		write_and_flush(mr, there, 1 + i * 80, i, FLUSH_GLOBAL, i % 2 ? FLUSH_RANGE : FLUSH_MR);
	/* Nothing at all, and a whole region whatever range is named. */
	flushed(mr->rkey, there, 0, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_SUCCESS);
	flushed(mr->rkey, (void *)12345, 1 << 30, FLUSH_GLOBAL, FLUSH_MR, IBV_WC_SUCCESS);
	CHECK(syncs == 0);
}

static void persistent(void)
{
	int count = syncs;

	for (int i = 0; i < PAGES; i++) {
		char *at = file + i * PAGE + 8 * i;

		write_and_flush(file_mr, at, 100, i + 1, i % 2 ? FLUSH_PERSISTENT : FLUSH_PERSISTENT | FLUSH_GLOBAL, FLUSH_RANGE);
		CHECK(syncs == ++count);
		CHECK(synced_at == (uintptr_t)at / PAGE * PAGE && synced_bytes == PAGE);
		CHECK(dirty() == 0);
	}
	memset(file, 77, PAGES * PAGE);
	CHECK(dirty() == (long)(PAGES * PAGE / 1024));
	flushed(file_mr->rkey, file + 2 * PAGE + 1, 2 * PAGE, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_SUCCESS);
	CHECK(syncs == ++count && synced_at == (uintptr_t)file + 2 * PAGE && synced_bytes == 3 * PAGE);
	/* A kernel may write more than it is asked for. */
	CHECK(dirty() <= (long)((PAGES - 3) * PAGE / 1024));
	flushed(file_mr->rkey, NULL, 0, FLUSH_PERSISTENT, FLUSH_MR, IBV_WC_SUCCESS);
	CHECK(syncs == ++count && synced_at == (uintptr_t)file && synced_bytes == PAGES * PAGE);
	CHECK(dirty() == 0);
	flushed(file_mr->rkey, file, 0, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_SUCCESS);
	CHECK(syncs == count);
}

/* Others go on while one waits for a disk, and what is behind it waits. */
static void slow(void)
{
	struct ibv_cq *other_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0), *first_cq = cq;
	struct ibv_qp *others[2];
	struct ibv_sge sge = { (uintptr_t)here, 8, mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
	double began;

	cq = other_cq;
	CHECK((others[0] = create(IBV_QPT_RC, OPERATIONS)) && (others[1] = create(IBV_QPT_RC, 0)));
	cq = first_cq;
	connect_with(others[0], others[1], ALL_ACCESS, 4);
	sync_microseconds = 500000;
	CHECK(post_flush(from, file_mr->rkey, file, 8, FLUSH_PERSISTENT, FLUSH_RANGE) == 0);
	set_remote(&wr, (uintptr_t)there, mr->rkey);
	began = seconds();
	memset(here, 42, 8);
	CHECK(ibv_post_send(from, &wr, &bad) == 0);
	for (int i = 0; i < 20; i++) {
		CHECK(ibv_post_send(others[0], &wr, &bad) == 0);
		poll_all(other_cq, 1, &wc);
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	if (seconds() - began < 0.4)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	finished(IBV_WC_SUCCESS);
	CHECK((int)wc.opcode == WC_FLUSH);
	finished(IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RDMA_WRITE);
	sync_microseconds = 0;
	CHECK(!ibv_destroy_qp(others[0]) && !ibv_destroy_qp(others[1]) && !ibv_destroy_cq(other_cq));
}

static void failing(void)
{
	void *anonymous = file + 4 * PAGE;

	/* The program has something else there now, and then nothing. */
	CHECK(mmap(anonymous, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == anonymous);
	flushed(file_mr->rkey, anonymous, 8, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_OP_ERR);
	flushed(file_mr->rkey, file + PAGE, 8, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_SUCCESS);
	CHECK(munmap(anonymous, PAGE) == 0);
	flushed(file_mr->rkey, anonymous, 8, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
	flushed(file_mr->rkey, anonymous, 8, FLUSH_PERSISTENT, FLUSH_MR, IBV_WC_REM_ACCESS_ERR);
	flushed(file_mr->rkey, file, 8, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_SUCCESS);
	/* The kernel tells of lost bytes once. From then on the file is not persistent. */
	sync_error = EIO;
	flushed(file_mr->rkey, file, 8, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_OP_ERR);
	sync_error = 0;
	flushed(file_mr->rkey, file + PAGE, 8, FLUSH_PERSISTENT | FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_OP_ERR);
	flushed(file_mr->rkey, file, 8, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_SUCCESS);
	CHECK(!ibv_reg_mr(pd, file, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_PERSISTENT) && errno == EINVAL);
}

static void refused_regions(void)
{
	int shared = memfd_create("flush", 0), private_file = open(path, O_RDWR);
	char *memory, *copy;
	int persistent_access = ALL_ACCESS | ACCESS_FLUSH_PERSISTENT;

	CHECK(shared >= 0 && private_file >= 0 && ftruncate(shared, PAGE) == 0);
	memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
	copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, private_file, 0);
	CHECK(memory != MAP_FAILED && copy != MAP_FAILED);
	CHECK(!ibv_reg_mr(pd, there, PAGE, persistent_access) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, memory, PAGE, persistent_access) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, copy, PAGE, persistent_access) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | persistent_access) && errno == EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, persistent_access) != 0 && errno == EINVAL);
	CHECK(!munmap(memory, PAGE) && !munmap(copy, PAGE) && !close(shared) && !close(private_file));
}

static void refused_requests(void)
{
	struct ibv_sge sge = { (uintptr_t)here, 8, mr->lkey };
	struct ibv_send_wr wr = { .opcode = WR_FLUSH, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(post_flush(from, mr->rkey, there, 8, 0, FLUSH_RANGE) == EINVAL);
	CHECK(post_flush(from, mr->rkey, there, 8, 4 | FLUSH_GLOBAL, FLUSH_RANGE) == EINVAL);
	CHECK(post_flush(from, mr->rkey, there, 8, FLUSH_GLOBAL, 2) == EINVAL);
	CHECK(post_flush(from, mr->rkey, there, (1UL << 31) + 1, FLUSH_GLOBAL, FLUSH_RANGE) == EINVAL);
	CHECK(post_flush(from, mr->rkey, there, 1UL << 32, FLUSH_GLOBAL, FLUSH_RANGE) == EINVAL);
	/* struct ibv_send_wr has no members for it. */
	CHECK(ibv_post_send(from, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(!create(IBV_QPT_UC, QP_EX_WITH_FLUSH) && errno == EOPNOTSUPP);
	CHECK(!create(IBV_QPT_UD, QP_EX_WITH_FLUSH) && errno == EOPNOTSUPP);

	flushed(mr->rkey ^ 0x100, there, 8, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
	flushed(writable->rkey, there, 8, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
	flushed(writable->rkey, there, 8, FLUSH_GLOBAL, FLUSH_MR, IBV_WC_REM_ACCESS_ERR);
	flushed(mr->rkey, there, 8, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
	flushed(mr->rkey, there, 8, FLUSH_PERSISTENT | FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
	/* Beyond the file's region, in part and whole. */
	if (file_mr) {
		flushed(file_mr->rkey, file + PAGES * PAGE - 4, 8, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
		flushed(file_mr->rkey, file - 8, 8, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
		flushed(file_mr->rkey, file + PAGES * PAGE + 1, 0, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
	}
	/* The queue pair of the target needs the right of each placement, too. */
	connect_with(from, to, ALL_ACCESS | ACCESS_FLUSH_PERSISTENT, 4);
	flushed(mr->rkey, there, 8, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_INV_REQ_ERR);
	connect_with(from, to, ALL_ACCESS | ACCESS_FLUSH_GLOBAL, 4);
	flushed(mr->rkey, there, 8, FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_INV_REQ_ERR);
	/* As READs they have a depth. */
	connect_with(from, to, ALL_ACCESS | ACCESS_FLUSH_GLOBAL, 0);
	CHECK(post_flush(from, mr->rkey, there, 8, FLUSH_GLOBAL, FLUSH_RANGE) == EINVAL);
	connect_again();
}

/* A file beside the program, which is on a disk where the build is. */
static void map_file(const char *program)
{
	struct statfs system;
	int descriptor;

	snprintf(path, sizeof(path), "%s.%d.volume", program, (int)getpid());
	descriptor = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(descriptor >= 0 && fstatfs(descriptor, &system) == 0);
	CHECK(ftruncate(descriptor, PAGES * PAGE) == 0);
	file = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	CHECK(file != MAP_FAILED && close(descriptor) == 0);
	if (system.f_type == TMPFS) {
		fprintf(stderr, "not checked: persistent FLUSHes, as %s is in memory\n", path);
		CHECK(!ibv_reg_mr(pd, file, PAGES * PAGE, ALL_ACCESS | ACCESS_FLUSH_PERSISTENT) && errno == EINVAL);
		return;
	}
	file_mr = ibv_reg_mr(pd, file, PAGES * PAGE, ALL_ACCESS | ACCESS_FLUSH_GLOBAL | ACCESS_FLUSH_PERSISTENT);
	CHECK(file_mr);
}

int main(int count, char **arguments)
{
	struct ibv_device_attr_ex attributes;

	CHECK(count == 1);
	context = open_first_device();
	CHECK(ibv_query_device_ex(context, NULL, &attributes) == 0);
	CHECK((attributes.device_cap_flags_ex & DEVICE_FLUSH) == DEVICE_FLUSH);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(pd && cq);
	from = create(IBV_QPT_RC, OPERATIONS);
	to = create(IBV_QPT_RC, 0);
	/* Both arrays, by one key. */
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | ALL_ACCESS | ACCESS_FLUSH_GLOBAL);
	writable = ibv_reg_mr(pd, there, sizeof(there), ALL_ACCESS);
	CHECK(from && to && mr && writable);
	map_file(arguments[0]);
	connect_again();
	visible();
	refused_regions();
	refused_requests();
	if (file_mr) {
		persistent();
		slow();
		failing();
		CHECK(!ibv_dereg_mr(file_mr));
	}
	CHECK(unlink(path) == 0);
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_dereg_mr(mr) && !ibv_dereg_mr(writable));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
