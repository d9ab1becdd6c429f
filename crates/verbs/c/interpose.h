/*
 * How functions of this library stand before those of the C library.
 *
 * They have the C library's versions, not as defaults: programs that run with this library find them, programs that
 * are linked with it do not come to need them from it. They are listed in c-library.map.
 */
#ifndef PAGEWIRE_INTERPOSE_H
#define PAGEWIRE_INTERPOSE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

/* Architectures that are younger than a version of the C library have the one with which they began. */
#if defined(__x86_64__)
#define BASE "GLIBC_2.2.5"
#define SINCE(version) "GLIBC_" version
#elif defined(__aarch64__)
#define BASE "GLIBC_2.17"
#define SINCE(version) BASE
#else
#error "the version of the C library's oldest functions on this architecture"
#endif
/* Versions that are younger than these architectures. */
#define LATER(version) "GLIBC_" version

#define STANDS_FOR(ours, name, version) __asm__(".symver " #ours ", " #name "@" version)

/* Looked up once, by whoever needs it first. dlsym(3) waits for the dynamic loader's lock: what may be called in signal
 * handlers is looked up by REAL when the library is loaded. */
static inline void *next(const char *name, void **known)
{
	void *found = __atomic_load_n(known, __ATOMIC_ACQUIRE);

	if (__builtin_expect(!found, 0)) {
		found = dlsym(RTLD_NEXT, name);
		__atomic_store_n(known, found, __ATOMIC_RELEASE);
	}
	return found;
}

/* The C library's function of that name, looked up when it is first called. */
#define REAL_LATER(ours) static void *real_##ours

/* The C library's function of that name, and the constructor that looks it up. Those who call before that, in constructors of
 * their own, wait for the loader. */
#define REAL(ours, name) \
	static void *real_##ours; \
	__attribute__((constructor)) static void look_up_##ours(void) \
	{ \
		next(#name, &real_##ours); \
	} \
	_Static_assert(1, "a semicolon follows")

#endif
