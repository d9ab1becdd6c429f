/*
 * How the wrappers of functions that take paths find out whether a path leads to the files of our devices
 * (src/device_files.rs).
 *
 * They must cost next to nothing where it does not: every path of these files has one word in it, and descriptors are
 * looked at only when this process has opened such a file. None of them may be called with a lock held that the C library takes.
 */
#ifndef PAGEWIRE_DEVICE_FILES_H
#define PAGEWIRE_DEVICE_FILES_H

#include "interpose.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* On these architectures the functions whose names end with 64 are the others by another name. */
_Static_assert(sizeof(off_t) == 8 && sizeof(struct stat) == sizeof(struct stat64) &&
		       sizeof(struct dirent) == sizeof(struct dirent64),
	       "files have 64-bit sizes");

/* The canonical path of a node, or a path that the kernel has to be asked for, from malloc(3); NULL where there is none.
 * It is not on the stack, because programs call most of the functions in signal handlers, whose stacks may be small. */
struct place {
	char *path;
};

static inline void release(struct place *place)
{
	int error = errno;

	if (__builtin_expect(place->path != NULL, 0)) {
		free(place->path);
		errno = error;
	}
}

/* A place that is released where its block ends. */
#define PLACE(name) struct place name __attribute__((cleanup(release))) = { NULL }

/* What a path leads to. */
enum found {
	/* Not to us: the call goes to the C library as it is. */
	ELSEWHERE,
	/* Through our files to the kernel's: the C library gets the path in the place. */
	KERNEL,
	/* To the node in the place. */
	NODE,
	/* To nothing, in a directory of ours. */
	MISSING,
	/* Nowhere: errno says why. */
	FAILED = -1
};

/* In src/device_files/descriptors.rs. */
extern _Bool PAGEWIRE_DEVICE_FILES_OPENED;

/* In src/device_files/calls.rs. */
int pagewire_find(int directory, const char *path, int follow, struct place *place);
int pagewire_find_descriptor(int descriptor, struct place *place);
int pagewire_node_stat(const char *path, struct stat *status);
int pagewire_node_statx(const char *path, struct statx *status);
int pagewire_node_access(const char *path, int mode, int flags);
int pagewire_node_open(const char *path, int flags);
ssize_t pagewire_node_readlink(const char *path, char *buffer, size_t size);
ssize_t pagewire_node_getdents(const char *path, int descriptor, void *buffer, size_t size);
DIR *pagewire_node_opendir(const char *path);
DIR *pagewire_node_fdopendir(const char *path, int descriptor);
DIR *pagewire_join_stream(DIR *stream, int descriptor);
int pagewire_is_stream(DIR *stream);
struct dirent *pagewire_stream_next(DIR *stream);
long pagewire_stream_tell(DIR *stream);
void pagewire_stream_seek(DIR *stream, long position);
void pagewire_stream_rewind(DIR *stream);
int pagewire_stream_descriptor(DIR *stream);
int pagewire_stream_close(DIR *stream);

/* Wrappers that others call. */
int pagewire_stat(const char *path, struct stat *status);
int pagewire_lstat(const char *path, struct stat *status);
int pagewire_open(const char *path, int flags, ...);
DIR *pagewire_opendir(const char *path);
DIR *pagewire_fdopendir(int descriptor);
struct dirent *pagewire_readdir(DIR *stream);
int pagewire_closedir(DIR *stream);

/* Whether a descriptor may be one of ours. */
static inline int any_opened(void)
{
	return __atomic_load_n(&PAGEWIRE_DEVICE_FILES_OPENED, __ATOMIC_ACQUIRE);
}

/* Whether a path may lead to us. What is no address, for which the kernel has EFAULT, does not. */
static inline int concerns(int directory, const char *path)
{
	if ((uintptr_t)path < PATH_MAX)
		return 0;
	if (directory != AT_FDCWD && path[0] != '/' && any_opened())
		return 1;
	return __builtin_expect(strstr(path, "infiniband") != NULL, 0);
}

/* What a path leads to; flags are those of fstatat(2). */
static inline enum found find(int directory, const char *path, int flags, struct place *place)
{
	if ((flags & AT_EMPTY_PATH) && path && !path[0])
		return any_opened() ? pagewire_find_descriptor(directory, place) : ELSEWHERE;
	if (!concerns(directory, path))
		return ELSEWHERE;
	return pagewire_find(directory, path, !(flags & AT_SYMLINK_NOFOLLOW), place);
}

/* Returns `answer` for a node and `failure` for nothing; else the call goes on with `directory` and `path`. */
#define ANSWER(directory, path, flags, place, answer, failure) \
	do { \
		switch (find(directory, path, flags, place)) { \
		case NODE: \
			return answer; \
		case KERNEL: \
			(directory) = AT_FDCWD; \
			(path) = (place)->path; \
			break; \
		case MISSING: \
			errno = ENOENT; \
			return failure; \
		case FAILED: \
			return failure; \
		case ELSEWHERE: \
			break; \
		} \
	} while (0)

/* A second name of a function, as which it stands for another one. */
#define ALSO(result, ours, parameters, of, name, version) \
	result ours parameters __attribute__((alias(#of))); \
	STANDS_FOR(ours, name, version)

/* Returns `failure` where the C library does not have the function. */
#define NEED(real, failure) \
	do { \
		if (!(real)) { \
			errno = ENOSYS; \
			return failure; \
		} \
	} while (0)

#endif
