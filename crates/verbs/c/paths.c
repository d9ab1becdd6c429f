/*
 * What is at a path: stat(2), access(2), readlink(2), realpath(3), statfs(2) and getxattr(2), and their relatives. See
 * device_files.h.
 */
#include "device_files.h"
#include <stdlib.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

/* What the functions know; a call with anything else goes to the C library, which refuses it before it looks at the path. */
enum {
	STAT_FLAGS = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH,
	STATX_FLAGS = STAT_FLAGS | AT_STATX_SYNC_TYPE,
	STATX_RESERVED_MASK = (int)0x80000000,
	ACCESS_FLAGS = AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH,
	ACCESS_MODES = R_OK | W_OK | X_OK
};

/* stat(2) and lstat(2). */
#define STAT(ours, name, flags) \
	REAL(ours, name); \
	int pagewire_##ours(const char *path, struct stat *status) \
	{ \
		int (*real)(const char *, struct stat *); \
		int directory = AT_FDCWD; \
		PLACE(place); \
\
		ANSWER(directory, path, flags, &place, pagewire_node_stat(place.path, status), -1); \
		real = next(#name, &real_##ours); \
		NEED(real, -1); \
		return real(path, status); \
	} \
	STANDS_FOR(pagewire_##ours, name, LATER("2.33")); \
	ALSO(int, pagewire_##ours##64, (const char *, struct stat *), pagewire_##ours, name##64, LATER("2.33"))

STAT(stat, stat, 0);
STAT(lstat, lstat, AT_SYMLINK_NOFOLLOW);

REAL(fstat, fstat);
int pagewire_fstat(int descriptor, struct stat *status)
{
	int (*real)(int, struct stat *);
	PLACE(place);

	if (any_opened() && pagewire_find_descriptor(descriptor, &place) == NODE)
		return pagewire_node_stat(place.path, status);
	real = next("fstat", &real_fstat);
	NEED(real, -1);
	return real(descriptor, status);
}
STANDS_FOR(pagewire_fstat, fstat, LATER("2.33"));
ALSO(int, pagewire_fstat64, (int, struct stat *), pagewire_fstat, fstat64, LATER("2.33"));

REAL(fstatat, fstatat);
int pagewire_fstatat(int directory, const char *path, struct stat *status, int flags)
{
	int (*real)(int, const char *, struct stat *, int);
	PLACE(place);

	if (!(flags & ~STAT_FLAGS))
		ANSWER(directory, path, flags, &place, pagewire_node_stat(place.path, status), -1);
	real = next("fstatat", &real_fstatat);
	NEED(real, -1);
	return real(directory, path, status, flags);
}
STANDS_FOR(pagewire_fstatat, fstatat, LATER("2.33"));
ALSO(int, pagewire_fstatat64, (int, const char *, struct stat *, int), pagewire_fstatat, fstatat64, LATER("2.33"));

REAL(statx, statx);
int pagewire_statx(int directory, const char *path, int flags, unsigned mask, struct statx *status)
{
	int (*real)(int, const char *, int, unsigned, struct statx *);
	PLACE(place);

	if (!(flags & ~STATX_FLAGS) && (flags & AT_STATX_SYNC_TYPE) != AT_STATX_SYNC_TYPE && !(mask & STATX_RESERVED_MASK))
		ANSWER(directory, path, flags, &place, pagewire_node_statx(place.path, status), -1);
	real = next("statx", &real_statx);
	NEED(real, -1);
	return real(directory, path, flags, mask, status);
}
STANDS_FOR(pagewire_statx, statx, LATER("2.28"));

/* Versions of `struct stat` that the old functions know (_STAT_VER of the C library): those of the kernel and of Linux. */
static int is_version(int version)
{
#if defined(__x86_64__)
	return version == 0 || version == 1;
#else
	return version == 0;
#endif
}

/* What programs call that were linked with a C library before 2.33. */
#define OLD_STAT(ours, name, flags) \
	REAL(ours, name); \
	int pagewire_##ours(int version, const char *path, struct stat *status) \
	{ \
		int (*real)(int, const char *, struct stat *); \
		int directory = AT_FDCWD; \
		PLACE(place); \
\
		if (is_version(version)) \
			ANSWER(directory, path, flags, &place, pagewire_node_stat(place.path, status), -1); \
		real = next(#name, &real_##ours); \
		NEED(real, -1); \
		return real(version, path, status); \
	} \
	STANDS_FOR(pagewire_##ours, name, BASE); \
	ALSO(int, pagewire_##ours##64, (int, const char *, struct stat *), pagewire_##ours, name##64, BASE)

OLD_STAT(xstat, __xstat, 0);
OLD_STAT(lxstat, __lxstat, AT_SYMLINK_NOFOLLOW);

REAL(fxstat, __fxstat);
int pagewire_fxstat(int version, int descriptor, struct stat *status)
{
	int (*real)(int, int, struct stat *);
	PLACE(place);

	if (any_opened() && is_version(version) && pagewire_find_descriptor(descriptor, &place) == NODE)
		return pagewire_node_stat(place.path, status);
	real = next("__fxstat", &real_fxstat);
	NEED(real, -1);
	return real(version, descriptor, status);
}
STANDS_FOR(pagewire_fxstat, __fxstat, BASE);
ALSO(int, pagewire_fxstat64, (int, int, struct stat *), pagewire_fxstat, __fxstat64, BASE);

REAL(fxstatat, __fxstatat);
int pagewire_fxstatat(int version, int directory, const char *path, struct stat *status, int flags)
{
	int (*real)(int, int, const char *, struct stat *, int);
	PLACE(place);

	if (!(flags & ~STAT_FLAGS) && is_version(version))
		ANSWER(directory, path, flags, &place, pagewire_node_stat(place.path, status), -1);
	real = next("__fxstatat", &real_fxstatat);
	NEED(real, -1);
	return real(version, directory, path, status, flags);
}
STANDS_FOR(pagewire_fxstatat, __fxstatat, SINCE("2.4"));
ALSO(int, pagewire_fxstatat64, (int, int, const char *, struct stat *, int), pagewire_fxstatat, __fxstatat64, SINCE("2.4"));

/* `ignored`: bits of the mode that the function does not look at. */
#define ACCESS(ours, name, version, flags, ignored) \
	REAL(ours, name); \
	int pagewire_##ours(const char *path, int mode) \
	{ \
		int (*real)(const char *, int); \
		int directory = AT_FDCWD; \
		PLACE(place); \
\
		if (!(mode & ~ACCESS_MODES & ~(ignored))) \
			ANSWER(directory, path, 0, &place, pagewire_node_access(place.path, mode, flags), -1); \
		real = next(#name, &real_##ours); \
		NEED(real, -1); \
		return real(path, mode); \
	} \
	STANDS_FOR(pagewire_##ours, name, version)

ACCESS(access, access, BASE, 0, 0);
ACCESS(euidaccess, euidaccess, BASE, AT_EACCESS, ~0);
ACCESS(eaccess, eaccess, SINCE("2.4"), AT_EACCESS, ~0);

REAL(faccessat, faccessat);
int pagewire_faccessat(int directory, const char *path, int mode, int flags)
{
	int (*real)(int, const char *, int, int);
	PLACE(place);

	if (!(flags & ~ACCESS_FLAGS) && !(mode & ~ACCESS_MODES))
		ANSWER(directory, path, flags, &place, pagewire_node_access(place.path, mode, flags), -1);
	real = next("faccessat", &real_faccessat);
	NEED(real, -1);
	return real(directory, path, mode, flags);
}
STANDS_FOR(pagewire_faccessat, faccessat, SINCE("2.4"));

/* Whether the kernel looks at the path before it refuses the size of the buffer, which it takes as an int. */
static int takes_size(size_t size)
{
	return (int)size > 0;
}

REAL(readlink, readlink);
ssize_t pagewire_readlink(const char *path, char *buffer, size_t size)
{
	ssize_t (*real)(const char *, char *, size_t);
	int directory = AT_FDCWD;
	PLACE(place);

	if (takes_size(size))
		ANSWER(directory, path, AT_SYMLINK_NOFOLLOW, &place, pagewire_node_readlink(place.path, buffer, size), -1);
	real = next("readlink", &real_readlink);
	NEED(real, -1);
	return real(path, buffer, size);
}
STANDS_FOR(pagewire_readlink, readlink, BASE);

/* An empty path is the descriptor itself, which may be that of a link (O_PATH and O_NOFOLLOW); for another the kernel has ENOENT. */
static ssize_t readlink_below(const char *node, const char *path, char *buffer, size_t size)
{
	ssize_t length = pagewire_node_readlink(node, buffer, size);

	if (length < 0 && errno == EINVAL && !path[0])
		errno = ENOENT;
	return length;
}

REAL(readlinkat, readlinkat);
ssize_t pagewire_readlinkat(int directory, const char *path, char *buffer, size_t size)
{
	ssize_t (*real)(int, const char *, char *, size_t);
	PLACE(place);

	if (takes_size(size))
		ANSWER(directory, path, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, &place,
		       readlink_below(place.path, path, buffer, size), -1);
	real = next("readlinkat", &real_readlinkat);
	NEED(real, -1);
	return real(directory, path, buffer, size);
}
STANDS_FOR(pagewire_readlinkat, readlinkat, SINCE("2.4"));

/* The fortified ones end the program where its buffer is smaller than it says. */
REAL(readlink_chk, __readlink_chk);
ssize_t pagewire_readlink_chk(const char *path, char *buffer, size_t size, size_t room)
{
	ssize_t (*real)(const char *, char *, size_t, size_t);

	if (size <= room)
		return pagewire_readlink(path, buffer, size);
	real = next("__readlink_chk", &real_readlink_chk);
	NEED(real, -1);
	return real(path, buffer, size, room);
}
STANDS_FOR(pagewire_readlink_chk, __readlink_chk, SINCE("2.4"));

REAL(readlinkat_chk, __readlinkat_chk);
ssize_t pagewire_readlinkat_chk(int directory, const char *path, char *buffer, size_t size, size_t room)
{
	ssize_t (*real)(int, const char *, char *, size_t, size_t);

	if (size <= room)
		return pagewire_readlinkat(directory, path, buffer, size);
	real = next("__readlinkat_chk", &real_readlinkat_chk);
	NEED(real, -1);
	return real(directory, path, buffer, size, room);
}
STANDS_FOR(pagewire_readlinkat_chk, __readlinkat_chk, SINCE("2.5"));

static char *give_path(const struct place *place, char *resolved)
{
	return resolved ? strcpy(resolved, place->path) : strdup(place->path);
}

REAL_LATER(realpath);
char *pagewire_realpath(const char *path, char *resolved)
{
	char *(*real)(const char *, char *);
	int directory = AT_FDCWD;
	PLACE(place);

	ANSWER(directory, path, 0, &place, give_path(&place, resolved), NULL);
	real = next("realpath", &real_realpath);
	NEED(real, NULL);
	return real(path, resolved);
}
STANDS_FOR(pagewire_realpath, realpath, SINCE("2.3"));

/* Gives no memory. */
char *pagewire_realpath_of_old(const char *path, char *resolved)
{
	if (!resolved) {
		errno = EINVAL;
		return NULL;
	}
	return pagewire_realpath(path, resolved);
}
#if defined(__x86_64__)
STANDS_FOR(pagewire_realpath_of_old, realpath, BASE);
#endif

REAL_LATER(realpath_chk);
char *pagewire_realpath_chk(const char *path, char *resolved, size_t room)
{
	char *(*real)(const char *, char *, size_t);

	if (room >= PATH_MAX)
		return pagewire_realpath(path, resolved);
	real = next("__realpath_chk", &real_realpath_chk);
	NEED(real, NULL);
	return real(path, resolved, room);
}
STANDS_FOR(pagewire_realpath_chk, __realpath_chk, SINCE("2.4"));

char *pagewire_canonicalize_file_name(const char *path)
{
	return pagewire_realpath(path, NULL);
}
STANDS_FOR(pagewire_canonicalize_file_name, canonicalize_file_name, BASE);

/* The file system that a node would be in. */
static const char *file_system(const struct place *place)
{
	return strncmp(place->path, "/dev/", 5) == 0 ? "/dev" : "/sys";
}

#define STATFS(name, type) \
	REAL(name, name); \
	int pagewire_##name(const char *path, struct type *status) \
	{ \
		int (*real)(const char *, struct type *) = next(#name, &real_##name); \
		int directory = AT_FDCWD; \
		PLACE(place); \
\
		NEED(real, -1); \
		ANSWER(directory, path, 0, &place, real(file_system(&place), status), -1); \
		return real(path, status); \
	} \
	STANDS_FOR(pagewire_##name, name, BASE); \
	ALSO(int, pagewire_##name##64, (const char *, struct type *), pagewire_##name, name##64, BASE)

STATFS(statfs, statfs);
STATFS(statvfs, statvfs);

/* Nodes have no extended attributes. */
static ssize_t no_attributes(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

#define GETXATTR(name, flags) \
	REAL(name, name); \
	ssize_t pagewire_##name(const char *path, const char *attribute, void *value, size_t size) \
	{ \
		ssize_t (*real)(const char *, const char *, void *, size_t); \
		int directory = AT_FDCWD; \
		PLACE(place); \
\
		ANSWER(directory, path, flags, &place, no_attributes(), -1); \
		real = next(#name, &real_##name); \
		NEED(real, -1); \
		return real(path, attribute, value, size); \
	} \
	STANDS_FOR(pagewire_##name, name, SINCE("2.3"))

#define LISTXATTR(name, flags) \
	REAL(name, name); \
	ssize_t pagewire_##name(const char *path, char *list, size_t size) \
	{ \
		ssize_t (*real)(const char *, char *, size_t); \
		int directory = AT_FDCWD; \
		PLACE(place); \
\
		ANSWER(directory, path, flags, &place, 0, -1); \
		real = next(#name, &real_##name); \
		NEED(real, -1); \
		return real(path, list, size); \
	} \
	STANDS_FOR(pagewire_##name, name, SINCE("2.3"))

GETXATTR(getxattr, 0);
GETXATTR(lgetxattr, AT_SYMLINK_NOFOLLOW);
LISTXATTR(listxattr, 0);
LISTXATTR(llistxattr, AT_SYMLINK_NOFOLLOW);
