/* What the moving end does to its memory. Every move puts it back before it returns. */
#include "motion.h"

#include <fcntl.h>
#include <poll.h>
#include <linux/userfaultfd.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* Where the kernel puts no mapping of its own choice while there is room elsewhere: holes stay holes. */
#define PLACE ((char *)0x100000000000)
#define APART 0x100000000

/* Pages of an area, for one move. */
struct part {
	char *at;
	size_t from, bytes;
};

/* A file on disk that has no name. */
static int disk_file(size_t bytes)
{
	FILE *stream = tmpfile();
	int file;

	CHECK(stream);
	file = dup(fileno(stream));
	CHECK(file >= 0 && fclose(stream) == 0 && ftruncate(file, bytes) == 0);
	return file;
}

/* Opens a file once more, with other rights. */
static int open_again(int file, int flags)
{
	char name[32];
	int again;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
	again = open(name, flags);
	CHECK(again >= 0);
	return again;
}

static struct part drawn_part(struct mover *mover, struct area *area)
{
	size_t page = page_size(), pages = area->bytes / page, first = 0, count = pages;

	if (random_below(&mover->random, 3)) {
		first = random_below(&mover->random, pages);
		count = 1 + random_below(&mover->random, pages - first);
	}
	return (struct part){ area->base + first * page, first * page, count * page };
}

/* One byte of an area, when it has its usual content. */
static unsigned char byte_of(const struct mover *mover, size_t at, unsigned char class)
{
	if (at < MARGIN || at >= MARGIN + mover->length)
		return pattern(AROUND, at);
	return pattern(class, at - MARGIN);
}

static void fill_part(struct mover *mover, struct area *area, struct part part)
{
	for (size_t i = part.from; i < part.from + part.bytes; i++)
		area->base[i] = byte_of(mover, i, MOVER);
}

void fill_area(struct mover *mover, struct area *area, unsigned char class)
{
	for (size_t i = 0; i < area->bytes; i++)
		area->base[i] = byte_of(mover, i, class);
}

void check_area(struct mover *mover, struct area *area, const char *when)
{
	size_t page = page_size(), words = MARGIN + mover->length - page / 2;
	bool zeroes = mover->move->flags & ZEROES;

	for (size_t i = 0; i < area->bytes; i++) {
		unsigned char byte = area->base[i];
		bool around = i < MARGIN || i >= MARGIN + mover->length;

		/* The words that atomics change have no pattern. */
		if (!around && i >= words)
			continue;
		if (byte == byte_of(mover, i, MOVER) || (zeroes && byte == 0) || (!around && byte == byte_of(mover, i, PEER)))
			continue;
		VIOLATION("%s: byte %zu of the moving memory (%zu from page %zu of %zu) is 0x%02x", when, i, i % page, i / page,
			  area->bytes / page, byte);
	}
	if (area->base[-1] != (char)pattern(AROUND, 1) || area->base[area->bytes] != (char)pattern(AROUND, 2))
		VIOLATION("%s: beside the moving memory a byte was changed", when);
}

static void map_again(struct area *area, struct part part, int protection)
{
	int flags = area->file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

	CHECK(mmap(part.at, part.bytes, protection, flags | MAP_FIXED, area->file, area->file >= 0 ? (off_t)part.from : 0) ==
	      part.at);
}

static void again(struct mover *mover, struct area *area, struct part part)
{
	map_again(area, part, PROT_READ | PROT_WRITE);
	fill_part(mover, area, part);
}

static void shortly(struct mover *mover)
{
	pause_up_to(&mover->random, 400);
}

static void do_nothing(struct mover *mover, struct area *area)
{
	(void)mover;
	(void)area;
}

static void unmap(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);

	CHECK(munmap(part.at, part.bytes) == 0);
	shortly(mover);
	again(mover, area, part);
}

static void *scratch_place(size_t bytes)
{
	void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(place != MAP_FAILED);
	return place;
}

static void remap(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);
	char *elsewhere = scratch_place(part.bytes);
	size_t half = part.bytes / page_size() / 2 * page_size();

	switch (random_below(&mover->random, 3)) {
	case 0: /* away and back, with all bytes */
		CHECK(mremap(part.at, part.bytes, part.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
		shortly(mover);
		CHECK(mremap(elsewhere, part.bytes, part.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, part.at) == part.at);
		return;
	case 1: /* the pages go, the mapping stays */
		CHECK(mremap(part.at, part.bytes, part.bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, elsewhere) ==
		      elsewhere);
		shortly(mover);
		CHECK(munmap(elsewhere, part.bytes) == 0);
		break;
	default: /* shorter */
		CHECK(munmap(elsewhere, part.bytes) == 0);
		if (half)
			CHECK(mremap(part.at, part.bytes, half, 0) == part.at);
		shortly(mover);
	}
	again(mover, area, part);
}

/* Lets the file end inside the region, and be long again. */
static void truncate_file(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);
	/* Any byte, not only whole pages. */
	size_t end = random_below(&mover->random, area->bytes);

	CHECK(ftruncate(area->file, end) == 0);
	shortly(mover);
	CHECK(ftruncate(area->file, area->bytes) == 0);
	fill_part(mover, area, part);
	/* What lies around the region is 0 now where it was beyond the end. */
}

static void punch(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);

	if (random_below(&mover->random, 2))
		CHECK(madvise(part.at, part.bytes, MADV_REMOVE) == 0);
	else
		CHECK(fallocate(area->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, part.from, part.bytes) == 0);
	shortly(mover);
	fill_part(mover, area, part);
}

static void protect(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);
	int key = random_below(&mover->random, 4) ? -1 : (int)syscall(SYS_pkey_alloc, 0, 0);

	if (key > 0) {
		/* Other threads than this one may not touch it. */
		CHECK(syscall(SYS_pkey_mprotect, part.at, part.bytes, PROT_READ | PROT_WRITE, key) == 0);
		shortly(mover);
		CHECK(syscall(SYS_pkey_mprotect, part.at, part.bytes, PROT_READ | PROT_WRITE, 0) == 0);
		CHECK(syscall(SYS_pkey_free, key) == 0);
		return;
	}
	CHECK(mprotect(part.at, part.bytes, random_below(&mover->random, 2) ? PROT_NONE : PROT_READ) == 0);
	shortly(mover);
	CHECK(mprotect(part.at, part.bytes, PROT_READ | PROT_WRITE) == 0);
}

static void throw_away(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);

	CHECK(madvise(part.at, part.bytes, MADV_DONTNEED) == 0);
	shortly(mover);
	fill_part(mover, area, part);
}

static void set_free(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);

	CHECK(madvise(part.at, part.bytes, MADV_FREE) == 0);
	shortly(mover);
	fill_part(mover, area, part);
}

static void page_out(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);
	static const int advice[] = { MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED };

	if (area->file >= 0 && random_below(&mover->random, 2))
		CHECK(sync_file_range(area->file, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0);
	CHECK(madvise(part.at, part.bytes, advice[random_below(&mover->random, 3)]) == 0);
	if (area->file >= 0)
		CHECK(posix_fadvise(area->file, part.from, part.bytes, POSIX_FADV_DONTNEED) == 0);
	shortly(mover);
}

/* Small pages and large ones, mappings that are split and joined. */
static void regroup(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);

	CHECK(madvise(part.at, part.bytes, random_below(&mover->random, 2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0);
	/* The kernel may find nothing to collapse. */
	if (madvise(area->base, area->bytes, MADV_COLLAPSE) != 0)
		CHECK(errno == EINVAL || errno == EAGAIN || errno == ENOMEM || errno == EBUSY);
	shortly(mover);
	CHECK(mprotect(part.at, part.bytes, PROT_READ | PROT_WRITE) == 0);
}

/* Other memory in its place: peers reach what is mapped there, as far as it lets them. */
static void map_over(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);
	int file;

	switch (random_below(&mover->random, 4)) {
	case 0: /* new memory */
		map_again(area, part, PROT_READ | PROT_WRITE);
		break;
	case 1: /* nothing that could be touched */
		map_again(area, part, PROT_NONE);
		break;
	case 2: /* a file beyond its end */
		file = disk_file(0);
		CHECK(mmap(part.at, part.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == part.at);
		shortly(mover);
		CHECK(close(file) == 0);
		break;
	default: { /* a file that may only be read: not a byte of it changes */
		int writer = disk_file(part.bytes), reader = open_again(writer, O_RDONLY);
		char *bytes;

		bytes = mmap(NULL, part.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
		CHECK(bytes != MAP_FAILED);
		for (size_t i = 0; i < part.bytes; i++)
			bytes[i] = byte_of(mover, part.from + i, MOVER);
		CHECK(mmap(part.at, part.bytes, PROT_READ, MAP_SHARED | MAP_FIXED, reader, 0) == part.at);
		shortly(mover);
		for (size_t i = 0; i < part.bytes; i++) {
			if ((unsigned char)bytes[i] != byte_of(mover, part.from + i, MOVER))
				VIOLATION("byte %zu of a file that may only be read was changed", i);
		}
		CHECK(munmap(bytes, part.bytes) == 0 && close(writer) == 0 && close(reader) == 0);
	}
	}
	shortly(mover);
	again(mover, area, part);
}

static void shrink_break(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);
	char *end = area->base + area->bytes;

	part.bytes = area->bytes - part.from;
	CHECK(sbrk(0) == end + page_size());
	CHECK(brk(part.at) == 0);
	shortly(mover);
	/* Nobody else moves the break: the main thread only waits, and others allocate elsewhere. */
	CHECK(sbrk(0) == part.at);
	CHECK(brk(end + page_size()) == 0);
	fill(end, AROUND, 2, page_size());
	fill_part(mover, area, part);
}

static void attach_again(struct mover *mover, struct area *area)
{
	int rights = random_below(&mover->random, 3) ? 0 : SHM_RDONLY;

	CHECK(shmdt(area->base) == 0);
	shortly(mover);
	if (rights) {
		CHECK(shmat(area->segment, area->base, rights) == area->base);
		shortly(mover);
		CHECK(shmdt(area->base) == 0);
	}
	CHECK(shmat(area->segment, area->base, 0) == area->base);
}

/* A child's copy is its own: nothing that arrives at its parent changes it, and what it writes changes nobody's. */
static void fork_away(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);
	size_t way = random_below(&mover->random, 5), length = random_below(&mover->random, 2000);
	static char *const arguments[] = { "/bin/true", NULL };
	extern char **environ;
	size_t sum[2] = { 0, 0 };
	pid_t child = -1;
	int status;

	if (way == 0)
		CHECK(posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ) == 0);
	else
		child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		switch (way) {
		case 1:
			execve(arguments[0], arguments, environ);
			_exit(127);
		case 2: /* changes all of its copy */
			for (size_t i = 0; i < area->bytes; i++)
				area->base[i] = AFTER | 0x2A;
			usleep(length);
			for (size_t i = 0; i < area->bytes; i++) {
				if ((unsigned char)area->base[i] != (AFTER | 0x2A))
					_exit(2);
			}
			_exit(0);
		case 3: /* looks at it twice */
			for (int look = 0; look < 2; look++) {
				for (size_t i = 0; i < area->bytes; i++)
					sum[look] = sum[look] * 31 + (unsigned char)area->base[i];
				usleep(length);
			}
			_exit(sum[0] == sum[1] ? 0 : 3);
		default: /* has memory no more */
			_exit(munmap(area->base, area->bytes) == 0 ? 0 : 4);
		}
	}
	/* The parent writes first: its pages become copies. */
	if (random_below(&mover->random, 2)) {
		for (size_t i = part.from; i < part.from + part.bytes; i += page_size()) {
			if (i >= MARGIN + page_size())
				continue;
			area->base[0] = pattern(AROUND, 0);
		}
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		VIOLATION("a forked child (way %zu) ended with status 0x%x", way, status);
}

/* A thread of the program that brings pages in (userfaultfd(2)). */
struct pager {
	int fd;
	struct mover *mover;
};

static void *bring_in(void *argument)
{
	struct pager *pager = argument;
	size_t page = page_size();
	struct random random = { 7 };
	struct uffd_msg message;
	char *bytes = malloc(page);

	CHECK(bytes);
	for (;;) {
		struct area *area = NULL;
		struct uffdio_copy copy = { .src = (uintptr_t)bytes, .len = page };

		if (read(pager->fd, &message, sizeof(message)) != sizeof(message)) {
			CHECK(errno == EINTR || errno == EAGAIN);
			continue;
		}
		CHECK(message.event == UFFD_EVENT_PAGEFAULT);
		copy.dst = message.arg.pagefault.address / page * page;
		for (int i = 0; i < 2; i++) {
			struct area *one = &pager->mover->areas[i];

			if (copy.dst - (uintptr_t)one->base < one->bytes)
				area = one;
		}
		CHECK(area);
		for (size_t i = 0; i < page; i++)
			bytes[i] = byte_of(pager->mover, copy.dst - (uintptr_t)area->base + i, MOVER);
		pause_up_to(&random, 300);
		/* Pages that are thrown away at this moment, or that two threads asked for. */
		while (ioctl(pager->fd, UFFDIO_COPY, &copy) != 0) {
			CHECK(errno == EEXIST || errno == EAGAIN);
			if (errno == EEXIST) {
				struct uffdio_range range = { .start = copy.dst, .len = page };

				CHECK(ioctl(pager->fd, UFFDIO_WAKE, &range) == 0);
				break;
			}
		}
	}
	return NULL;
}

static void prepare_pager(struct mover *mover, struct area *area)
{
	static struct pager pager = { .fd = -1 };
	struct uffdio_register range = {
		.range = { .start = (uintptr_t)area->base, .len = area->bytes }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	pthread_t thread;

	if (pager.fd < 0) {
		struct uffdio_api api = { .api = UFFD_API };

		pager.fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
		if (pager.fd < 0) {
			/* 77: this kernel does not let anybody do it. */
			CHECK(errno == ENOSYS || errno == EPERM);
			fprintf(stderr, "no userfaultfd: %s\n", strerror(errno));
			_exit(77);
		}
		pager.mover = mover;
		CHECK(ioctl(pager.fd, UFFDIO_API, &api) == 0);
		CHECK(pthread_create(&thread, NULL, bring_in, &pager) == 0);
	}
	CHECK(ioctl(pager.fd, UFFDIO_REGISTER, &range) == 0);
}

static void let_page_in(struct mover *mover, struct area *area)
{
	struct part part = drawn_part(mover, area);
	size_t few = 8 * page_size();

	/* Bringing in must get ahead of throwing away. */
	part.bytes = part.bytes < few ? part.bytes : few;
	CHECK(madvise(part.at, part.bytes, MADV_DONTNEED) == 0);
	pause_up_to(&mover->random, 3000);
}

static void do_any(struct mover *mover, struct area *area)
{
	static void (*const any[])(struct mover *, struct area *) = {
		unmap, remap, protect, throw_away, set_free, page_out, regroup, map_over, fork_away,
	};

	any[random_below(&mover->random, sizeof(any) / sizeof(*any))](mover, area);
}

static void renew_only(struct mover *mover, struct area *area)
{
	(void)area;
	renew(mover);
}

const struct move moves[] = {
	{ "nothing", 0, ANONYMOUS, do_nothing, NULL },
	{ "munmap", FAULTS | ZEROES, ANONYMOUS, unmap, NULL },
	{ "mremap", FAULTS | ZEROES, ANONYMOUS, remap, NULL },
	{ "ftruncate-memfd", FAULTS | ZEROES, MEMORY_FILE, truncate_file, NULL },
	{ "ftruncate-file", FAULTS | ZEROES, DISK_FILE, truncate_file, NULL },
	{ "mprotect", FAULTS, ANONYMOUS, protect, NULL },
	{ "dontneed", ZEROES, ANONYMOUS, throw_away, NULL },
	{ "free", ZEROES, ANONYMOUS, set_free, NULL },
	{ "pageout", 0, ANONYMOUS, page_out, NULL },
	{ "pageout-file", 0, DISK_FILE, page_out, NULL },
	{ "punch", ZEROES, MEMORY_FILE, punch, NULL },
	{ "hugepages", 0, ANONYMOUS, regroup, NULL },
	{ "fork", 0, ANONYMOUS, fork_away, NULL },
	{ "userfaultfd", REPLACES, ANONYMOUS, let_page_in, prepare_pager },
	{ "map-fixed", FAULTS | ZEROES, ANONYMOUS, map_over, NULL },
	{ "brk", FAULTS | ZEROES, BREAK, shrink_break, NULL },
	{ "shm", FAULTS, SHARED_MEMORY, attach_again, NULL },
	{ "dereg", FAULTS, ANONYMOUS, renew_only, NULL },
	{ "any", FAULTS | ZEROES, ANONYMOUS, do_any, NULL },
	{ NULL, 0, ANONYMOUS, NULL, NULL },
};

const struct move *move_named(const char *name)
{
	for (const struct move *move = moves; move->name; move++) {
		if (strcmp(move->name, name) == 0)
			return move;
	}
	return NULL;
}

static int file_of(enum backing backing, size_t bytes)
{
	int file;

	if (backing == DISK_FILE)
		return disk_file(bytes);
	if (backing != MEMORY_FILE)
		return -1;
	file = memfd_create("motion", MFD_CLOEXEC);
	CHECK(file >= 0 && ftruncate(file, bytes) == 0);
	return file;
}

void make_area(struct mover *mover, struct area *area, int number)
{
	size_t page = page_size();
	char *whole = PLACE + number * APART;

	area->bytes = (MARGIN + mover->length + MARGIN + page - 1) / page * page;
	area->file = file_of(mover->move->backing, area->bytes);
	area->segment = -1;
	if (mover->move->backing == BREAK && number == 0) {
		char *now = sbrk(0);
		size_t odd = (uintptr_t)now % page;

		CHECK(sbrk((odd ? page - odd : 0) + page + area->bytes + page) != (void *)-1);
		area->base = (char *)sbrk(0) - page - area->bytes;
	} else {
		CHECK(mmap(whole, area->bytes + 2 * page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == whole);
		area->base = whole + page;
		if (area->file >= 0)
			map_again(area, (struct part){ area->base, 0, area->bytes }, PROT_READ | PROT_WRITE);
	}
	if (mover->move->backing == SHARED_MEMORY) {
		area->segment = shmget(IPC_PRIVATE, area->bytes, IPC_CREAT | 0600);
		CHECK(area->segment >= 0);
		/* A second attachment lets it live while the first one is away; it goes with the process. */
		CHECK(shmat(area->segment, NULL, 0) != (void *)-1);
		CHECK(munmap(area->base, area->bytes) == 0);
		CHECK(shmat(area->segment, area->base, 0) == area->base);
		CHECK(shmctl(area->segment, IPC_RMID, NULL) == 0);
	}
	area->base[-1] = pattern(AROUND, 1);
	fill(area->base + area->bytes, AROUND, 2, page);
	if (mover->move->prepare)
		mover->move->prepare(mover, area);
	fill_area(mover, area, MOVER);
}
