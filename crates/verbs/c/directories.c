/*
 * Reading directories: opendir(3), readdir(3), scandir(3), glob(3), getdents64(2), and their relatives. See device_files.h.
 *
 * Streams of directories that the tree has are ours (src/device_files/streams.rs). Where the kernel has the directory, too, both
 * are shown.
 */
#include "device_files.h"
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>

REAL(readdir, readdir);
REAL_LATER(rewinddir);
REAL_LATER(telldir);
REAL_LATER(seekdir);
REAL_LATER(dirfd);
REAL_LATER(closedir);

/* The C library's, for src/device_files/streams.rs. */
struct dirent *pagewire_real_readdir(DIR *stream)
{
	struct dirent *(*real)(DIR *) = next("readdir", &real_readdir);

	NEED(real, NULL);
	return real(stream);
}

void pagewire_real_rewinddir(DIR *stream)
{
	void (*real)(DIR *) = next("rewinddir", &real_rewinddir);

	if (real)
		real(stream);
}

long pagewire_real_telldir(DIR *stream)
{
	long (*real)(DIR *) = next("telldir", &real_telldir);

	NEED(real, -1);
	return real(stream);
}

void pagewire_real_seekdir(DIR *stream, long position)
{
	void (*real)(DIR *, long) = next("seekdir", &real_seekdir);

	if (real)
		real(stream, position);
}

int pagewire_real_dirfd(DIR *stream)
{
	int (*real)(DIR *) = next("dirfd", &real_dirfd);

	NEED(real, -1);
	return real(stream);
}

int pagewire_real_closedir(DIR *stream)
{
	int (*real)(DIR *) = next("closedir", &real_closedir);

	NEED(real, -1);
	return real(stream);
}

static DIR *opendir_node(const struct place *place)
{
	pthread_testcancel();
	return pagewire_node_opendir(place->path);
}

/* A stream of the C library, and with it what only the tree has in that directory. */
static DIR *joined(DIR *stream)
{
	return stream ? pagewire_join_stream(stream, pagewire_real_dirfd(stream)) : NULL;
}

REAL_LATER(opendir);
DIR *pagewire_opendir(const char *path)
{
	DIR *(*real)(const char *);
	int directory = AT_FDCWD;
	PLACE(place);

	ANSWER(directory, path, 0, &place, opendir_node(&place), NULL);
	real = next("opendir", &real_opendir);
	NEED(real, NULL);
	return joined(real(path));
}
STANDS_FOR(pagewire_opendir, opendir, BASE);

REAL_LATER(fdopendir);
DIR *pagewire_fdopendir(int descriptor)
{
	DIR *(*real)(int);
	PLACE(place);

	if (any_opened() && pagewire_find_descriptor(descriptor, &place) == NODE)
		return pagewire_node_fdopendir(place.path, descriptor);
	real = next("fdopendir", &real_fdopendir);
	NEED(real, NULL);
	return joined(real(descriptor));
}
STANDS_FOR(pagewire_fdopendir, fdopendir, SINCE("2.4"));

struct dirent *pagewire_readdir(DIR *stream)
{
	return pagewire_is_stream(stream) ? pagewire_stream_next(stream) : pagewire_real_readdir(stream);
}
STANDS_FOR(pagewire_readdir, readdir, BASE);
ALSO(struct dirent *, pagewire_readdir64, (DIR *), pagewire_readdir, readdir64, BASE);

REAL_LATER(readdir_r);
int pagewire_readdir_r(DIR *stream, struct dirent *entry, struct dirent **result)
{
	int (*real)(DIR *, struct dirent *, struct dirent **) = next("readdir_r", &real_readdir_r);
	int before = errno;
	struct dirent *found;

	if (!real)
		return ENOSYS;
	if (!pagewire_is_stream(stream))
		return real(stream, entry, result);
	errno = 0;
	found = pagewire_stream_next(stream);
	if (found)
		memcpy(entry, found, found->d_reclen);
	*result = found ? entry : NULL;
	if (!found && errno)
		return errno;
	errno = before;
	return 0;
}
STANDS_FOR(pagewire_readdir_r, readdir_r, BASE);
ALSO(int, pagewire_readdir64_r, (DIR *, struct dirent *, struct dirent **), pagewire_readdir_r, readdir64_r, BASE);

void pagewire_rewinddir(DIR *stream)
{
	if (pagewire_is_stream(stream))
		pagewire_stream_rewind(stream);
	else
		pagewire_real_rewinddir(stream);
}
STANDS_FOR(pagewire_rewinddir, rewinddir, BASE);

long pagewire_telldir(DIR *stream)
{
	return pagewire_is_stream(stream) ? pagewire_stream_tell(stream) : pagewire_real_telldir(stream);
}
STANDS_FOR(pagewire_telldir, telldir, BASE);

void pagewire_seekdir(DIR *stream, long position)
{
	if (pagewire_is_stream(stream))
		pagewire_stream_seek(stream, position);
	else
		pagewire_real_seekdir(stream, position);
}
STANDS_FOR(pagewire_seekdir, seekdir, BASE);

int pagewire_dirfd(DIR *stream)
{
	return pagewire_is_stream(stream) ? pagewire_stream_descriptor(stream) : pagewire_real_dirfd(stream);
}
STANDS_FOR(pagewire_dirfd, dirfd, BASE);

int pagewire_closedir(DIR *stream)
{
	return pagewire_is_stream(stream) ? pagewire_stream_close(stream) : pagewire_real_closedir(stream);
}
STANDS_FOR(pagewire_closedir, closedir, BASE);

REAL_LATER(getdents64);
ssize_t pagewire_getdents64(int descriptor, void *buffer, size_t size)
{
	ssize_t (*real)(int, void *, size_t) = next("getdents64", &real_getdents64);
	PLACE(place);

	NEED(real, -1);
	if (any_opened() && pagewire_find_descriptor(descriptor, &place) == NODE)
		return pagewire_node_getdents(place.path, descriptor, buffer, size);
	return real(descriptor, buffer, size);
}
STANDS_FOR(pagewire_getdents64, getdents64, LATER("2.30"));

typedef int (*choose_function)(const struct dirent *);
typedef int (*compare_function)(const struct dirent **, const struct dirent **);

/* Entries that scandir(3) gives. */
struct list {
	struct dirent **entries;
	size_t count, room;
};

static void forget(void *argument)
{
	struct list *list = argument;

	for (size_t i = 0; i < list->count; i++)
		free(list->entries[i]);
	free(list->entries);
}

static int add(struct list *list, const struct dirent *entry)
{
	struct dirent **entries;
	size_t room;

	if (list->count == list->room) {
		room = list->room ? 2 * list->room : 16;
		entries = reallocarray(list->entries, room, sizeof(*entries));
		if (!entries)
			return -1;
		list->entries = entries;
		list->room = room;
	}
	list->entries[list->count] = malloc(entry->d_reclen);
	if (!list->entries[list->count])
		return -1;
	memcpy(list->entries[list->count++], entry, entry->d_reclen);
	return 0;
}

static void close_stream(void *argument)
{
	pagewire_closedir(argument);
}

static int read_all(DIR *stream, struct list *list, choose_function choose)
{
	struct dirent *entry;

	for (;;) {
		errno = 0;
		entry = pagewire_readdir(stream);
		if (!entry)
			return errno ? -1 : 0;
		if (choose && !choose(entry))
			continue;
		if (add(list, entry) != 0)
			return -1;
	}
}

/* scandir(3) by these functions; ends the stream. */
static int scan(DIR *stream, struct dirent ***result, choose_function choose, compare_function compare)
{
	struct list list = { NULL, 0, 0 };
	int before = errno, failed, error;

	if (!stream)
		return -1;
	/* The program's functions may be cancellation points. */
	pthread_cleanup_push(forget, &list);
	pthread_cleanup_push(close_stream, stream);
	failed = read_all(stream, &list, choose) != 0;
	error = errno;
	pthread_cleanup_pop(1);
	if (!failed && compare && list.count)
		qsort(list.entries, list.count, sizeof(*list.entries), (int (*)(const void *, const void *))compare);
	pthread_cleanup_pop(0);
	if (failed) {
		forget(&list);
		errno = error;
		return -1;
	}
	errno = before;
	*result = list.entries;
	return (int)list.count;
}

/* Whether a directory may have entries of ours: one of our paths, or one of the kernel's above it, or one by a way that has to be
 * walked to be known. */
static int may_be_joined(int directory, const char *path)
{
	if (concerns(directory, path))
		return 1;
	if ((uintptr_t)path < PATH_MAX)
		return 0;
	return path[0] != '/' || path[1] == '\0' || strchr("sd/.", path[1]) != NULL;
}

REAL_LATER(scandir);
int pagewire_scandir(const char *path, struct dirent ***result, choose_function choose, compare_function compare)
{
	int (*real)(const char *, struct dirent ***, choose_function, compare_function);

	if (may_be_joined(AT_FDCWD, path))
		return scan(pagewire_opendir(path), result, choose, compare);
	real = next("scandir", &real_scandir);
	NEED(real, -1);
	return real(path, result, choose, compare);
}
STANDS_FOR(pagewire_scandir, scandir, BASE);
ALSO(int, pagewire_scandir64, (const char *, struct dirent ***, choose_function, compare_function), pagewire_scandir, scandir64,
     BASE);

int pagewire_openat(int directory, const char *path, int flags, ...);

/* A stream of a directory below another one. */
static DIR *opendir_at(int directory, const char *path)
{
	int descriptor = pagewire_openat(directory, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC), error;
	DIR *stream;

	if (descriptor < 0)
		return NULL;
	stream = pagewire_fdopendir(descriptor);
	if (!stream) {
		error = errno;
		close(descriptor);
		errno = error;
	}
	return stream;
}

REAL_LATER(scandirat);
int pagewire_scandirat(int directory, const char *path, struct dirent ***result, choose_function choose,
		       compare_function compare)
{
	int (*real)(int, const char *, struct dirent ***, choose_function, compare_function);

	if (may_be_joined(directory, path))
		return scan(opendir_at(directory, path), result, choose, compare);
	real = next("scandirat", &real_scandirat);
	NEED(real, -1);
	return real(directory, path, result, choose, compare);
}
STANDS_FOR(pagewire_scandirat, scandirat, SINCE("2.15"));
ALSO(int, pagewire_scandirat64, (int, const char *, struct dirent ***, choose_function, compare_function), pagewire_scandirat,
     scandirat64, SINCE("2.15"));

typedef int (*glob_function)(const char *, int, int (*)(const char *, int), glob_t *);

static void close_for_glob(void *stream)
{
	pagewire_closedir(stream);
}

static struct dirent *read_for_glob(void *stream)
{
	return pagewire_readdir(stream);
}

static void *open_for_glob(const char *path)
{
	return pagewire_opendir(path);
}

/* Whether a pattern may name something of ours. A relative one may from the root, and from what the kernel has above ours. */
static int may_match(const char *pattern)
{
	char directory[PATH_MAX];

	if ((uintptr_t)pattern < PATH_MAX)
		return 0;
	if (strstr(pattern, "infiniband"))
		return 1;
	if (pattern[0] == '/')
		return pattern[1] && strchr("sd/.*?[{\\", pattern[1]) != NULL;
	if (!getcwd(directory, sizeof(directory)))
		return 0;
	return !directory[1] || strncmp(directory, "/sys", 4) == 0 || strncmp(directory, "/dev", 4) == 0;
}

/* glob(3) of the C library, which does not come by these functions unless it is given them. */
static int glob_by_ours(glob_function real, const char *pattern, int flags, int (*failed)(const char *, int), glob_t *result)
{
	glob_t before;
	int outcome;

	if (flags & GLOB_ALTDIRFUNC || !result || !may_match(pattern))
		return real(pattern, flags, failed, result);
	before = *result;
	result->gl_closedir = close_for_glob;
	result->gl_readdir = read_for_glob;
	result->gl_opendir = open_for_glob;
	result->gl_lstat = pagewire_lstat;
	result->gl_stat = pagewire_stat;
	outcome = real(pattern, flags | GLOB_ALTDIRFUNC, failed, result);
	result->gl_flags &= ~GLOB_ALTDIRFUNC;
	result->gl_closedir = before.gl_closedir;
	result->gl_readdir = before.gl_readdir;
	result->gl_opendir = before.gl_opendir;
	result->gl_lstat = before.gl_lstat;
	result->gl_stat = before.gl_stat;
	return outcome;
}

REAL_LATER(glob);
int pagewire_glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *result)
{
	glob_function real = next("glob", &real_glob);

	NEED(real, GLOB_ABORTED);
	return glob_by_ours(real, pattern, flags, failed, result);
}
STANDS_FOR(pagewire_glob, glob, LATER("2.27"));
ALSO(int, pagewire_glob64, (const char *, int, int (*)(const char *, int), glob_t *), pagewire_glob, glob64, LATER("2.27"));

/* Follows links at the end of a path that the newer one gives as they are. */
REAL_LATER(glob_of_old);
int pagewire_glob_of_old(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *result)
{
	glob_function real = (glob_function)__atomic_load_n(&real_glob_of_old, __ATOMIC_ACQUIRE);

	if (!real) {
		real = (glob_function)dlvsym(RTLD_NEXT, "glob", BASE);
		__atomic_store_n(&real_glob_of_old, (void *)real, __ATOMIC_RELEASE);
	}
	NEED(real, GLOB_ABORTED);
	return glob_by_ours(real, pattern, flags, failed, result);
}
STANDS_FOR(pagewire_glob_of_old, glob, BASE);
ALSO(int, pagewire_glob64_of_old, (const char *, int, int (*)(const char *, int), glob_t *), pagewire_glob_of_old, glob64, BASE);
