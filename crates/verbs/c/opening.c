/*
 * Opening files: open(2) and fopen(3), and their relatives. See device_files.h.
 *
 * What a path of ours leads to is opened read-only; src/device_files/descriptors.rs says what the descriptor is.
 */
#include "device_files.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* In functions with a variable number of arguments: the mode, if there is one. */
#define MODE(flags, mode) \
	do { \
		if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
			va_list arguments; \
\
			va_start(arguments, flags); \
			(mode) = va_arg(arguments, mode_t); \
			va_end(arguments); \
		} \
	} while (0)

/* Opening a node; a cancellation point as open(2) is. */
static int open_node(const struct place *place, int flags)
{
	pthread_testcancel();
	return pagewire_node_open(place->path, flags);
}

/* Whether a path with a slash behind its last name is one of ours: the kernel makes no such file, whatever is there (EISDIR). */
static __attribute__((noinline)) int names_directory_to_make(int directory, const char *path, struct place *place)
{
	char trimmed[PATH_MAX];
	size_t length = strnlen(path, PATH_MAX);
	enum found found;

	if (length >= PATH_MAX)
		return 0;
	while (length > 1 && path[length - 1] == '/')
		length--;
	memcpy(trimmed, path, length);
	trimmed[length] = '\0';
	found = find(directory, trimmed, AT_SYMLINK_NOFOLLOW, place);
	return found == NODE || found == MISSING;
}

/* Finds what is to be opened. MISSING: it would have to be made, which nobody may. */
static enum found find_file(int directory, const char *path, int flags, struct place *place)
{
	int follow = (flags & O_NOFOLLOW) || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) ? AT_SYMLINK_NOFOLLOW : 0;
	int makes = (flags & O_CREAT) && !(flags & O_PATH);
	enum found found;

	if (makes && concerns(directory, path) && path[0] && path[strlen(path) - 1] == '/' &&
	    names_directory_to_make(directory, path, place)) {
		errno = EISDIR;
		return FAILED;
	}
	found = find(directory, path, follow, place);
	if (found == MISSING)
		errno = flags & O_CREAT ? EACCES : ENOENT;
	return found;
}

#define OPEN_AT(directory, path, flags, mode) \
	do { \
		PLACE(place); \
\
		switch (find_file(directory, path, flags, &place)) { \
		case NODE: \
			return open_node(&place, flags); \
		case KERNEL: \
			return call_openat(AT_FDCWD, place.path, flags, mode); \
		case MISSING: \
		case FAILED: \
			return -1; \
		case ELSEWHERE: \
			break; \
		} \
	} while (0)

typedef int (*open_function)(const char *, int, ...);
typedef int (*openat_function)(int, const char *, int, ...);

REAL(open, open);
REAL(openat, openat);

static int call_openat(int directory, const char *path, int flags, mode_t mode)
{
	openat_function real = next("openat", &real_openat);

	NEED(real, -1);
	return real(directory, path, flags, mode);
}

int pagewire_open(const char *path, int flags, ...)
{
	open_function real;
	mode_t mode = 0;

	MODE(flags, mode);
	OPEN_AT(AT_FDCWD, path, flags, mode);
	real = next("open", &real_open);
	NEED(real, -1);
	return real(path, flags, mode);
}
STANDS_FOR(pagewire_open, open, BASE);
ALSO(int, pagewire_open64, (const char *, int, ...), pagewire_open, open64, BASE);
ALSO(int, pagewire___open, (const char *, int, ...), pagewire_open, __open, BASE);
ALSO(int, pagewire___open64, (const char *, int, ...), pagewire_open, __open64, BASE);

int pagewire_openat(int directory, const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE(flags, mode);
	OPEN_AT(directory, path, flags, mode);
	return call_openat(directory, path, flags, mode);
}
STANDS_FOR(pagewire_openat, openat, SINCE("2.4"));
ALSO(int, pagewire_openat64, (int, const char *, int, ...), pagewire_openat, openat64, SINCE("2.4"));

/* The fortified ones end the program where a mode is missing. */
REAL(open_2, __open_2);
int pagewire_open_2(const char *path, int flags)
{
	int (*real)(const char *, int);

	if (!(flags & O_CREAT) && (flags & O_TMPFILE) != O_TMPFILE)
		return pagewire_open(path, flags);
	real = next("__open_2", &real_open_2);
	NEED(real, -1);
	return real(path, flags);
}
STANDS_FOR(pagewire_open_2, __open_2, SINCE("2.7"));
ALSO(int, pagewire_open64_2, (const char *, int), pagewire_open_2, __open64_2, SINCE("2.7"));

REAL(openat_2, __openat_2);
int pagewire_openat_2(int directory, const char *path, int flags)
{
	int (*real)(int, const char *, int);

	if (!(flags & O_CREAT) && (flags & O_TMPFILE) != O_TMPFILE)
		return pagewire_openat(directory, path, flags);
	real = next("__openat_2", &real_openat_2);
	NEED(real, -1);
	return real(directory, path, flags);
}
STANDS_FOR(pagewire_openat_2, __openat_2, SINCE("2.7"));
ALSO(int, pagewire_openat64_2, (int, const char *, int), pagewire_openat_2, __openat64_2, SINCE("2.7"));

int pagewire_creat(const char *path, mode_t mode)
{
	return pagewire_open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
STANDS_FOR(pagewire_creat, creat, BASE);
ALSO(int, pagewire_creat64, (const char *, mode_t), pagewire_creat, creat64, BASE);

/* The flags that fopen(3) opens with; -1 where the mode is none. */
static int flags_of(const char *mode)
{
	int flags;

	switch (*mode++) {
	case 'r':
		flags = O_RDONLY;
		break;
	case 'w':
		flags = O_WRONLY | O_CREAT | O_TRUNC;
		break;
	case 'a':
		flags = O_WRONLY | O_CREAT | O_APPEND;
		break;
	default:
		return -1;
	}
	/* As many characters as the C library looks at; behind a comma is a character set. */
	for (int i = 0; i < 7 && *mode && *mode != ','; i++, mode++) {
		if (*mode == '+')
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		else if (*mode == 'x')
			flags |= O_EXCL;
		else if (*mode == 'e')
			flags |= O_CLOEXEC;
	}
	return flags;
}

static FILE *fopen_node(const struct place *place, int flags, const char *mode)
{
	int descriptor = open_node(place, flags), error;
	FILE *stream;

	if (descriptor < 0)
		return NULL;
	/* Of a directory nothing can be read (src/device_files/descriptors.rs). */
	stream = fdopen(descriptor, (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_WRONLY ? "w" : mode);
	if (!stream) {
		error = errno;
		close(descriptor);
		errno = error;
	}
	return stream;
}

REAL_LATER(fopen);
FILE *pagewire_fopen(const char *path, const char *mode)
{
	FILE *(*real)(const char *, const char *) = next("fopen", &real_fopen);
	PLACE(place);
	int flags;

	NEED(real, NULL);
	if (!concerns(AT_FDCWD, path) || !mode || (flags = flags_of(mode)) == -1)
		return real(path, mode);
	switch (find_file(AT_FDCWD, path, flags, &place)) {
	case NODE:
		return fopen_node(&place, flags, mode);
	case KERNEL:
		return real(place.path, mode);
	case MISSING:
	case FAILED:
		return NULL;
	case ELSEWHERE:
		break;
	}
	return real(path, mode);
}
STANDS_FOR(pagewire_fopen, fopen, BASE);
ALSO(FILE *, pagewire_fopen64, (const char *, const char *), pagewire_fopen, fopen64, BASE);
ALSO(FILE *, pagewire__IO_fopen, (const char *, const char *), pagewire_fopen, _IO_fopen, BASE);
