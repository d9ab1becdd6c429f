/*
 * malloc(3) and its kin from the registered heap: a library of its own, which `pagewire run --heap` has loaded before the program.
 *
 * What was allocated before the heap was there, and what the heap itself needs, is the C library's. An address says whose it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
/* What malloc(3) promises. */
#define ALIGNMENT 16
#define ELSEWHERE ((void *)UINTPTR_MAX)

extern int pagewire_malloc_begin(uintptr_t *base, size_t *length);
extern void *pagewire_malloc_allocate(size_t size, size_t alignment, bool zeroed);
extern void pagewire_malloc_free(void *object);
extern void *pagewire_malloc_resize(void *object, size_t size);
extern size_t pagewire_malloc_usable_size(void *object);
extern pid_t pagewire_malloc_fork(pid_t (*fork)(void));

/* The C library's own, by the names that stay when malloc stands for something else. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *object, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *object);

/* Of the heap; 0 as long as there is none. */
static uintptr_t base;
static size_t length;

/* The C library's _Fork(3); NULL: it has none. */
static pid_t (*their_fork)(void);

__attribute__((constructor)) static void begin(void)
{
	uintptr_t first;
	size_t bytes;

	their_fork = (pid_t (*)(void))dlsym(RTLD_NEXT, "_Fork");
	if (pagewire_malloc_begin(&first, &bytes))
		_exit(125);
	base = first;
	__atomic_store_n(&length, bytes, __ATOMIC_RELEASE);
}

static inline bool is_ours(const void *object)
{
	size_t bytes = __atomic_load_n(&length, __ATOMIC_ACQUIRE);

	return (uintptr_t)object - base < bytes;
}

static void *allocate(size_t size, size_t alignment, bool zeroed)
{
	void *object = ELSEWHERE;

	if (__builtin_expect(__atomic_load_n(&length, __ATOMIC_ACQUIRE) != 0, 1))
		object = pagewire_malloc_allocate(size, alignment, zeroed);
	if (__builtin_expect(object == ELSEWHERE, 0)) {
		if (alignment > ALIGNMENT)
			return __libc_memalign(alignment, size);
		return zeroed ? __libc_calloc(1, size) : __libc_malloc(size);
	}
	if (__builtin_expect(!object, 0))
		errno = ENOMEM;
	return object;
}

EXPORTED void *malloc(size_t size)
{
	return allocate(size, ALIGNMENT, false);
}

EXPORTED void *calloc(size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return allocate(bytes, ALIGNMENT, true);
}

EXPORTED void free(void *object)
{
	int before = errno;

	if (!is_ours(object)) {
		__libc_free(object);
	} else {
		pagewire_malloc_free(object);
		errno = before;
	}
}

EXPORTED void *realloc(void *object, size_t size)
{
	void *moved;

	if (!object)
		return malloc(size);
	if (!is_ours(object))
		return __libc_realloc(object, size);
	if (size == 0) {
		free(object);
		return NULL;
	}
	moved = pagewire_malloc_resize(object, size);
	if (!moved)
		errno = ENOMEM;
	return moved;
}

EXPORTED void *reallocarray(void *object, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(object, bytes);
}

static bool is_power_of_two(size_t number)
{
	return number && !(number & (number - 1));
}

EXPORTED int posix_memalign(void **place, size_t alignment, size_t size)
{
	int before = errno;
	void *object;

	if (!is_power_of_two(alignment) || alignment % sizeof(void *))
		return EINVAL;
	object = allocate(size, alignment, false);
	errno = before;
	if (!object)
		return ENOMEM;
	*place = object;
	return 0;
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
	if (!is_power_of_two(alignment)) {
		errno = EINVAL;
		return NULL;
	}
	return allocate(size, alignment < ALIGNMENT ? ALIGNMENT : alignment, false);
}

/* An alignment that is no power of two is made one (malloc/malloc.c of the C library does so). */
EXPORTED void *memalign(size_t alignment, size_t size)
{
	size_t power = ALIGNMENT;

	while (power < alignment) {
		if (power > SIZE_MAX / 2) {
			errno = EINVAL;
			return NULL;
		}
		power *= 2;
	}
	return allocate(size, power, false);
}

EXPORTED void *valloc(size_t size)
{
	return allocate(size, (size_t)sysconf(_SC_PAGESIZE), false);
}

EXPORTED void *pvalloc(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), rounded;

	if (__builtin_add_overflow(size, page - 1, &rounded)) {
		errno = ENOMEM;
		return NULL;
	}
	return allocate(rounded / page * page, page, false);
}

EXPORTED size_t malloc_usable_size(void *object)
{
	static size_t (*theirs)(void *);

	if (is_ours(object))
		return pagewire_malloc_usable_size(object);
	if (!theirs) {
		theirs = (size_t (*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
	}
	return theirs ? theirs(object) : 0;
}

/* It runs no handlers, and its child needs a copy of the heap all the same. */
EXPORTED pid_t _Fork(void)
{
	if (!their_fork) {
		errno = ENOSYS;
		return -1;
	}
	if (!__atomic_load_n(&length, __ATOMIC_ACQUIRE))
		return their_fork();
	return pagewire_malloc_fork(their_fork);
}
