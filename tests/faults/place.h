/* Memory whose pages can be made absent in one of several ways, and what its bytes must be when they are there again. */
#ifndef PLACE_H
#define PLACE_H

#include "../motion/pattern.h"
#include "pager.h"

#include <sys/syscall.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

/* The last two are resident; their owner can read them, and a peer cannot (process_vm_readv(2)). */
enum kind {
	RESIDENT, ZERO_FILL, SHARED, SWAPPED, FILE_PAGES, PAGER, PAGER_USER, HUGE, HUGETLB, WRITE_ONLY, SECRET, KINDS
};
static const char *const kind_names[KINDS] = {
	"resident", "zero-fill", "shared", "swapped", "file", "pager", "pager-user", "huge", "hugetlb", "write-only",
	"secret",
};

#define PAGE 4096
#define HUGE_PAGE (2 << 20)

/* What the other side's memory is called there. */
struct remote {
	uint64_t address;
	uint32_t rkey;
};

struct place {
	enum kind kind;
	char *base;
	size_t length;
	/* Its bytes after make_absent(). */
	const char *before;
	int file;
	/* [dirty_from, dirty_to) may differ from `before`. */
	size_t dirty_from, dirty_to;
	struct pager pager;
};

static inline char *map(size_t length, int flags, int file)
{
	/* Far below all else: what somebody else maps, as the engine its buffers, comes into no place that is unmapped later. */
	static char *low = (char *)(1UL << 40);
	/* Aligned as huge pages are, whatever it is. */
	char *hole = mmap(low, length + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *base = (char *)(((uintptr_t)hole + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);

	CHECK(hole != MAP_FAILED);
	low += length + 2 * HUGE_PAGE;
	base = mmap(base, length, PROT_READ | PROT_WRITE, MAP_FIXED | flags, file, 0);
	return base == MAP_FAILED ? NULL : base;
}

/* A file without a name, on a disk if TMPDIR is. */
static inline int disk_file(size_t length)
{
	const char *folder = getenv("TMPDIR");
	int file = open(folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	CHECK(file >= 0 && ftruncate(file, length) == 0);
	return file;
}

/* NULL, or why this machine has no such memory. `class` is that of pattern.h: whose bytes these are. */
static inline const char *make_place(struct place *place, enum kind kind, size_t length, unsigned char class)
{
	char *before = map(length, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	CHECK(before && length % HUGE_PAGE == 0);
	*place = (struct place){ .kind = kind, .length = length, .before = before, .file = -1, .dirty_to = length };
	if (kind != ZERO_FILL && kind != SHARED && kind != HUGE && kind != HUGETLB)
		fill(before, class, 0, length);
	if (kind == FILE_PAGES) {
		place->file = disk_file(length);
		place->base = map(length, MAP_SHARED, place->file);
	} else if (kind == SHARED) {
		place->file = memfd_create("place", MFD_CLOEXEC);
		CHECK(place->file >= 0 && ftruncate(place->file, length) == 0);
		place->base = map(length, MAP_SHARED, place->file);
	} else if (kind == HUGETLB) {
		place->base = map(length, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
		if (!place->base)
			return "no hugetlb pages are free";
	} else if (kind == SECRET) {
		place->file = syscall(SYS_memfd_secret, 0);
		if (place->file < 0)
			return "no memfd_secret(2)";
		CHECK(ftruncate(place->file, length) == 0);
		place->base = map(length, MAP_SHARED, place->file);
		if (!place->base)
			return "so much memory may not be locked";
	} else {
		place->base = map(length, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	}
	CHECK(place->base);
	if (kind != HUGETLB)
		CHECK(madvise(place->base, length, kind == HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	if (kind == PAGER || kind == PAGER_USER) {
		if (!start_pager(&place->pager, place->base, length, before, kind == PAGER_USER))
			return kind == PAGER ? "userfaultfd for the kernel's accesses is not permitted" : "no userfaultfd";
		place->dirty_to = 0;
	}
	if (kind == WRITE_ONLY)
		CHECK(mprotect(place->base, length, PROT_WRITE) == 0);
	return NULL;
}

/* Nothing is ever absent there. */
static inline int is_resident(enum kind kind) { return kind == RESIDENT || kind == WRITE_ONLY || kind == SECRET; }

static inline size_t down(size_t offset) { return offset / PAGE * PAGE; }
static inline size_t up(size_t offset) { return down(offset + PAGE - 1); }

/* How many pages of the range no access finds without a fault. */
static inline size_t absent_pages(const struct place *place, size_t from, size_t to)
{
	size_t pages = (to - from) / PAGE, absent = 0;
	static unsigned char resident[64 << 20 >> 12];
	static uint64_t entries[64 << 20 >> 12];
	static int pagemap = -1;

	CHECK(pages <= sizeof(resident));
	if (place->kind == FILE_PAGES) {
		CHECK(mincore(place->base + from, to - from, resident) == 0);
		for (size_t i = 0; i < pages; i++)
			absent += !(resident[i] & 1);
		return absent;
	}
	if (pagemap < 0)
		CHECK((pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) >= 0);
	CHECK(pread(pagemap, entries, pages * 8, ((uintptr_t)place->base + from) / PAGE * 8) == (ssize_t)(pages * 8));
	for (size_t i = 0; i < pages; i++)
		absent += !(entries[i] >> 63);
	return absent;
}

/* The bytes that somebody may have changed become what they were; the pages are there then. */
static inline void restore(struct place *place)
{
	size_t from = place->dirty_from, to = place->dirty_to;

	if (from >= to)
		return;
	if (place->kind == HUGE || place->kind == HUGETLB) {
		from = from / HUGE_PAGE * HUGE_PAGE;
		to = (to + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	}
	if (is_resident(place->kind) || place->kind == SWAPPED || place->kind == FILE_PAGES)
		memcpy(place->base + from, place->before + from, to - from);
	else if (place->kind == SHARED)
		CHECK(madvise(place->base + from, to - from, MADV_REMOVE) == 0);
	else
		CHECK(madvise(place->base + from, to - from, MADV_DONTNEED) == 0);
	place->dirty_from = place->dirty_to = 0;
}

/* Takes the pages away that contain [offset, offset + length), and with them what was written there. Gives how many are
 * absent: of swapped and file pages the kernel may keep some for reasons of its own, and an engine may have brought one in
 * again that it has been asked for shortly before. */
static inline size_t make_absent(struct place *place, size_t offset, size_t length)
{
	size_t from = down(offset), to = up(offset + length), absent = 0;

	restore(place);
	switch (place->kind) {
	case HUGE:
	case HUGETLB:
		from = from / HUGE_PAGE * HUGE_PAGE;
		to = (to + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
		/* fallthrough */
	case ZERO_FILL:
	case PAGER:
	case PAGER_USER:
		CHECK(madvise(place->base + from, to - from, MADV_DONTNEED) == 0);
		break;
	case SHARED:
		CHECK(madvise(place->base + from, to - from, MADV_REMOVE) == 0);
		break;
	case SWAPPED:
		for (int i = 0; i < 20 && absent == 0; i++) {
			CHECK(madvise(place->base + from, to - from, MADV_PAGEOUT) == 0);
			absent = absent_pages(place, from, to);
		}
		return absent;
	case FILE_PAGES:
		CHECK(msync(place->base + from, to - from, MS_SYNC) == 0);
		for (int i = 0; i < 20 && absent == 0; i++) {
			CHECK(madvise(place->base + from, to - from, MADV_DONTNEED) == 0);
			CHECK(posix_fadvise(place->file, from, to - from, POSIX_FADV_DONTNEED) == 0);
			absent = absent_pages(place, from, to);
		}
		return absent;
	default:
		return 0;
	}
	return absent_pages(place, from, to);
}

static inline void touch(struct place *place, size_t offset, size_t length)
{
	for (size_t at = down(offset); at < offset + length; at += PAGE)
		*(volatile char *)(place->base + at) = place->base[at];
}

#endif
