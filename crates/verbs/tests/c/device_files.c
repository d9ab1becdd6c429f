/* Every function that takes a path, on the files of the devices and on a copy of them: the outcomes are the same. */
#include "device_files.h"
#include <glob.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

/* What programs call that were linked with an old C library. */
int __xstat(int version, const char *path, struct stat *status);
int __lxstat(int version, const char *path, struct stat *status);
int __fxstat(int version, int descriptor, struct stat *status);
int __fxstatat(int version, int directory, const char *path, struct stat *status, int flags);
int __xstat64(int version, const char *path, struct stat64 *status);
int __lxstat64(int version, const char *path, struct stat64 *status);
int __fxstatat64(int version, int directory, const char *path, struct stat64 *status, int flags);
/* The fortified ones. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);
int __openat64_2(int directory, const char *path, int flags);
ssize_t __readlink_chk(const char *path, char *buffer, size_t size, size_t room);
ssize_t __readlinkat_chk(int directory, const char *path, char *buffer, size_t size, size_t room);
char *__realpath_chk(const char *path, char *resolved, size_t room);

#if defined(__x86_64__)
enum { VERSION = 1 };
#else
enum { VERSION = 0 };
#endif

/* The outcome of a call in words; what is part of the paths only is left out. */
struct outcome {
	char text[16384];
	size_t length;
};

__attribute__((format(printf, 2, 3))) static void say(struct outcome *outcome, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	outcome->length += (size_t)vsnprintf(outcome->text + outcome->length, sizeof(outcome->text) - outcome->length, format,
					     arguments);
	va_end(arguments);
	CHECK(outcome->length < sizeof(outcome->text));
}

static void say_result(struct outcome *outcome, const char *name, long result)
{
	if (result < 0)
		say(outcome, "%s: errno %d\n", name, errno);
	else
		say(outcome, "%s: %ld\n", name, result);
}

static void say_type(struct outcome *outcome, const char *name, int result, mode_t mode)
{
	if (result == 0)
		say(outcome, "%s: type %o\n", name, mode & S_IFMT);
	else
		say_result(outcome, name, result);
}

/* A path of the copy is named as that which it stands for. */
static void say_path(struct outcome *outcome, const char *name, const char *path)
{
	size_t length = strlen(root);

	if (!path)
		say(outcome, "%s: errno %d\n", name, errno);
	else
		say(outcome, "%s: %s\n", name, strncmp(path, root, length) == 0 ? path + length : path);
}

static void ask_status(struct outcome *outcome, const char *path)
{
	static const int flags[] = { 0, AT_SYMLINK_NOFOLLOW, AT_NO_AUTOMOUNT, AT_EMPTY_PATH, 0x40000000 };
	struct stat status = { 0 };
	struct stat64 status64 = { 0 };
	struct statx extended = { 0 };
	int result;

	result = stat(path, &status);
	say_type(outcome, "stat", result, status.st_mode);
	result = lstat(path, &status);
	say_type(outcome, "lstat", result, status.st_mode);
	result = stat64(path, &status64);
	say_type(outcome, "stat64", result, status64.st_mode);
	result = lstat64(path, &status64);
	say_type(outcome, "lstat64", result, status64.st_mode);
	result = __xstat(VERSION, path, &status);
	say_type(outcome, "__xstat", result, status.st_mode);
	result = __lxstat(VERSION, path, &status);
	say_type(outcome, "__lxstat", result, status.st_mode);
	result = __xstat64(VERSION, path, &status64);
	say_type(outcome, "__xstat64", result, status64.st_mode);
	result = __lxstat64(VERSION, path, &status64);
	say_type(outcome, "__lxstat64", result, status64.st_mode);
	for (int i = 0; i < 5; i++) {
		result = fstatat(AT_FDCWD, path, &status, flags[i]);
		say_type(outcome, "fstatat", result, status.st_mode);
		result = fstatat64(AT_FDCWD, path, &status64, flags[i]);
		say_type(outcome, "fstatat64", result, status64.st_mode);
		result = __fxstatat(VERSION, AT_FDCWD, path, &status, flags[i]);
		say_type(outcome, "__fxstatat", result, status.st_mode);
		result = __fxstatat64(VERSION, AT_FDCWD, path, &status64, flags[i]);
		say_type(outcome, "__fxstatat64", result, status64.st_mode);
		result = statx(AT_FDCWD, path, flags[i], STATX_BASIC_STATS, &extended);
		say_type(outcome, "statx", result, extended.stx_mode);
		if (result == 0)
			CHECK((extended.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
	}
	say_result(outcome, "statx reserved", statx(AT_FDCWD, path, 0, 0x80000000, &extended));
}

static void ask_access(struct outcome *outcome, const char *path)
{
	static const int modes[] = { F_OK, R_OK, W_OK, X_OK, R_OK | X_OK, 64 };
	static const int flags[] = { 0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, AT_EACCESS | AT_SYMLINK_NOFOLLOW };

	for (int i = 0; i < 6; i++) {
		say_result(outcome, "access", access(path, modes[i]));
		say_result(outcome, "euidaccess", euidaccess(path, modes[i]));
		say_result(outcome, "eaccess", eaccess(path, modes[i]));
		for (int j = 0; j < 4; j++) {
			struct stat status;

			/* What may be done with a link itself no two kernels say alike. */
			if (flags[j] & AT_SYMLINK_NOFOLLOW && lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
				continue;
			say_result(outcome, "faccessat", faccessat(AT_FDCWD, path, modes[i], flags[j]));
		}
	}
}

static void say_descriptor(struct outcome *outcome, const char *name, int flags, int descriptor)
{
	char content[4096];
	struct stat status = { 0 };
	int result;

	say(outcome, "flags %o ", flags);
	say_result(outcome, name, descriptor);
	if (descriptor < 0)
		return;
	result = fstat(descriptor, &status);
	say_type(outcome, "fstat", result, status.st_mode);
	result = fstatat(descriptor, "", &status, AT_EMPTY_PATH);
	say_type(outcome, "fstatat empty", result, status.st_mode);
	result = __fxstat(VERSION, descriptor, &status);
	say_type(outcome, "__fxstat", result, status.st_mode);
	say(outcome, "path %o, cloexec %d\n", fcntl(descriptor, F_GETFL) & O_PATH, fcntl(descriptor, F_GETFD));
	if (S_ISDIR(status.st_mode))
		/* Not with the kernel's error, EISDIR. */
		CHECK(read(descriptor, content, sizeof(content)) == -1);
	else
		say(outcome, "access mode %o\n", fcntl(descriptor, F_GETFL) & O_ACCMODE);
	if (S_ISREG(status.st_mode)) {
		ssize_t length = read(descriptor, content, sizeof(content));

		say_result(outcome, "read", length);
		if (length > 0)
			say(outcome, "%.*s", (int)length, content);
		say_result(outcome, "write", write(descriptor, "x", 1));
	}
	if (S_ISLNK(status.st_mode))
		say_result(outcome, "readlinkat empty", readlinkat(descriptor, "", content, sizeof(content)));
	close(descriptor);
}

static void ask_open(struct outcome *outcome, const char *path)
{
	static const int flags[] = { O_RDONLY,
				     O_RDONLY | O_CLOEXEC,
				     O_RDONLY | O_NONBLOCK,
				     O_WRONLY,
				     O_RDWR,
				     O_WRONLY | O_TRUNC,
				     O_RDONLY | O_DIRECTORY,
				     O_RDONLY | O_NOFOLLOW,
				     O_RDONLY | O_NOFOLLOW | O_DIRECTORY,
				     O_PATH,
				     O_PATH | O_NOFOLLOW,
				     O_PATH | O_DIRECTORY,
				     O_PATH | O_NOFOLLOW | O_DIRECTORY };
	static const int making[] = { O_RDONLY | O_CREAT, O_WRONLY | O_CREAT | O_EXCL, O_RDWR | O_CREAT };

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		say_descriptor(outcome, "open", flags[i], open(path, flags[i]));
		say_descriptor(outcome, "open64", flags[i], open64(path, flags[i]));
		say_descriptor(outcome, "openat", flags[i], openat(AT_FDCWD, path, flags[i]));
		say_descriptor(outcome, "openat64", flags[i], openat64(AT_FDCWD, path, flags[i]));
		say_descriptor(outcome, "__open_2", flags[i], __open_2(path, flags[i]));
		say_descriptor(outcome, "__open64_2", flags[i], __open64_2(path, flags[i]));
		say_descriptor(outcome, "__openat_2", flags[i], __openat_2(AT_FDCWD, path, flags[i]));
		say_descriptor(outcome, "__openat64_2", flags[i], __openat64_2(AT_FDCWD, path, flags[i]));
	}
	for (size_t i = 0; i < sizeof(making) / sizeof(making[0]); i++) {
		say_descriptor(outcome, "open", making[i], open(path, making[i], 0644));
		say_descriptor(outcome, "openat", making[i], openat(AT_FDCWD, path, making[i], 0644));
	}
	say_descriptor(outcome, "creat", 0, creat(path, 0644));
	say_descriptor(outcome, "creat64", 0, creat64(path, 0644));
}

static void ask_stream(struct outcome *outcome, const char *path)
{
	static const char *const modes[] = { "r", "re", "rb", "r+", "w", "wx", "a", "q", "" };
	char content[4096];
	FILE *stream;

	for (int i = 0; i < 9; i++) {
		stream = i % 2 ? fopen64(path, modes[i]) : fopen(path, modes[i]);
		if (!stream) {
			say(outcome, "fopen %s: errno %d\n", modes[i], errno);
			continue;
		}
		content[0] = '\0';
		errno = 0;
		say(outcome, "fopen %s: %d %d, ", modes[i], fileno(stream), fcntl(fileno(stream), F_GETFD));
		say(outcome, "%s", fgets(content, sizeof(content), stream) ? content : "nothing\n");
		/* The kernel has EISDIR for a directory; links lead to files of network devices that cannot be read. */
		say(outcome, "error %d\n", !ferror(stream) ? 0 : errno == EBADF ? EISDIR : errno);
		fclose(stream);
	}
}

static void ask_link(struct outcome *outcome, const char *path)
{
	static const size_t sizes[] = { 0, 1, 7, PATH_MAX };
	char target[PATH_MAX], *found;
	ssize_t length;

	for (int i = 0; i < 4; i++) {
		length = readlink(path, target, sizes[i]);
		say_result(outcome, "readlink", length);
		say_result(outcome, "__readlink_chk", __readlink_chk(path, target, sizes[i], sizeof(target)));
		say_result(outcome, "readlinkat", readlinkat(AT_FDCWD, path, target, sizes[i]));
		say_result(outcome, "__readlinkat_chk", __readlinkat_chk(AT_FDCWD, path, target, sizes[i], sizeof(target)));
		if (length > 0)
			say(outcome, "%.*s\n", (int)length, target);
	}
	say_path(outcome, "realpath", realpath(path, target));
	say_path(outcome, "__realpath_chk", __realpath_chk(path, target, sizeof(target)));
	found = realpath(path, NULL);
	say_path(outcome, "realpath NULL", found);
	free(found);
	found = canonicalize_file_name(path);
	say_path(outcome, "canonicalize_file_name", found);
	free(found);
}

static int by_name(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

/* The entries of a stream, in order of their names. */
static void say_entries(struct outcome *outcome, DIR *stream)
{
	char *lines[256];
	struct dirent *entry, copied, *result;
	int count = 0;
	long begin = telldir(stream);

	errno = 0;
	while ((entry = readdir(stream))) {
		CHECK(asprintf(&lines[count++], "%s %d", entry->d_name, entry->d_type) > 0 && count < 256);
		CHECK(entry->d_ino != 0 && entry->d_reclen >= offsetof(struct dirent, d_name) + strlen(entry->d_name) + 1);
	}
	CHECK(errno == 0 && !readdir64(stream));
	qsort(lines, (size_t)count, sizeof(lines[0]), by_name);
	for (int i = 0; i < count; i++) {
		say(outcome, "  %s\n", lines[i]);
		free(lines[i]);
	}
	/* All again, by every way back. */
	for (int way = 0; way < 2; way++) {
		int again = 0;

		if (way)
			rewinddir(stream);
		else
			seekdir(stream, begin);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
		do {
			CHECK(readdir_r(stream, &copied, &result) == 0);
			again += result != NULL;
		} while (result);
#pragma GCC diagnostic pop
		CHECK(again == count);
	}
	/* Behind the first. */
	rewinddir(stream);
	CHECK(readdir(stream));
	begin = telldir(stream);
	entry = readdir(stream);
	CHECK(entry);
	copied = (struct dirent){ 0 };
	strcpy(copied.d_name, entry->d_name);
	seekdir(stream, begin);
	CHECK(strcmp(readdir(stream)->d_name, copied.d_name) == 0);
}

static int without_dots(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void say_list(struct outcome *outcome, const char *name, struct dirent **list, int count)
{
	say_result(outcome, name, count);
	for (int i = 0; i < count; i++) {
		say(outcome, "  %s %d\n", list[i]->d_name, list[i]->d_type);
		free(list[i]);
	}
	if (count >= 0)
		free(list);
}

static void ask_directory(struct outcome *outcome, const char *path)
{
	struct dirent **list = NULL;
	char records[1 << 14];
	struct stat status;
	ssize_t length;
	DIR *stream = opendir(path);
	int descriptor, count;

	say(outcome, "opendir: errno %d\n", stream ? 0 : errno);
	if (stream) {
		CHECK(fstat(dirfd(stream), &status) == 0 && S_ISDIR(status.st_mode));
		CHECK(fcntl(dirfd(stream), F_GETFD) == FD_CLOEXEC);
		say(outcome, "dirfd: %d\n", dirfd(stream));
		say_entries(outcome, stream);
		CHECK(closedir(stream) == 0);
	}
	count = scandir(path, &list, without_dots, alphasort);
	say_list(outcome, "scandir", list, count);
	count = scandirat(AT_FDCWD, path, &list, NULL, versionsort);
	say_list(outcome, "scandirat", list, count);
	descriptor = open(path, O_RDONLY);
	if (descriptor < 0)
		return;
	stream = fdopendir(descriptor);
	say(outcome, "fdopendir: errno %d\n", stream ? 0 : errno);
	if (stream) {
		say_entries(outcome, stream);
		CHECK(dirfd(stream) == descriptor && closedir(stream) == 0);
	} else {
		close(descriptor);
	}
	descriptor = open(path, O_RDONLY);
	length = getdents64(descriptor, records, sizeof(records));
	say(outcome, "getdents64: %d\n", length < 0 ? errno : 0);
	if (length >= 0) {
		CHECK(length > 0 && getdents64(descriptor, records, sizeof(records)) == 0);
		CHECK(lseek(descriptor, 0, SEEK_SET) == 0 && getdents64(descriptor, records, 8) == -1 && errno == EINVAL);
	}
	close(descriptor);
}

static void ask_patterns(struct outcome *outcome, const char *base)
{
	static const char *const patterns[] = { "class/infini*",
						"class/infiniband/*/ports/*/gids/*",
						"class/infiniband/*/ports/1/g*/t*/[0-9]",
						"class/{infiniband,infiniband_verbs}/*",
						"class/infiniband/none*",
						"devices/platform/pagewire*/*/*/uevent",
						"class/infiniband/pagewire0/device/net/*/" };
	static const int flags[] = { 0, GLOB_MARK, GLOB_BRACE | GLOB_ONLYDIR, GLOB_NOCHECK, GLOB_PERIOD };
	char pattern[PATH_MAX];

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		for (size_t j = 0; j < sizeof(flags) / sizeof(flags[0]); j++) {
			glob_t found = { 0 };
			int result;

			snprintf(pattern, sizeof(pattern), "%s/%s", base, patterns[i]);
			result = glob(pattern, flags[j], NULL, &found);
			say(outcome, "glob %s %x: %d, flags %x\n", patterns[i], flags[j], result, found.gl_flags & GLOB_ALTDIRFUNC);
			for (size_t k = 0; result == 0 && k < found.gl_pathc; k++)
				say_path(outcome, "  ", found.gl_pathv[k]);
			globfree(&found);
		}
}

/* Ends the program where two outcomes differ, from the line before the first difference on. */
static void same(const char *what, const char *path, const struct outcome *ours, const struct outcome *theirs)
{
	size_t at = 0, begin = 0;

	while (ours->text[at] && ours->text[at] == theirs->text[at]) {
		if (ours->text[at] == '\n' && at > begin + 80)
			begin = at;
		at++;
	}
	if (ours->text[at] == theirs->text[at])
		return;
	fprintf(stderr, "%s of %s: ...%.400s\nof its copy: ...%.400s\n", what, path, ours->text + begin, theirs->text + begin);
	exit(1);
}

typedef void (*question)(struct outcome *outcome, const char *path);

/* Asks about a path below /sys, and about that of the copy. */
static void compare(question ask, const char *name, const char *below)
{
	static struct outcome ours, theirs;
	char path[PATH_MAX * 2];

	ours.length = theirs.length = 0;
	snprintf(path, sizeof(path), "/sys%s", below);
	ask(&ours, path);
	snprintf(path, sizeof(path), "%s/sys%s", root, below);
	ask(&theirs, path);
	same(name, below, &ours, &theirs);
}

/* Whether a path is a link to what is not copied: the bus of the device, the class of network devices. */
static int leads_elsewhere(const char *path)
{
	size_t length = strlen(path), end = strlen("/subsystem");

	return length > end && strcmp(path + length - end, "/subsystem") == 0 && !strstr(path, "/infiniband");
}

static void compare_paths(void)
{
	static const char *const behind[] = { "", "/", "//", "/.", "/..", "/../..", "/missing", "/missing/", "/missing/x",
					      "/../missing", "/device", "/device/", "/device/..", "/subsystem/../infiniband/" };
	char path[PATH_MAX];

	for (int i = 0; i < path_count; i++) {
		if (leads_elsewhere(paths[i]))
			continue;
		for (size_t j = 0; j < sizeof(behind) / sizeof(behind[0]); j++) {
			/* Those of a network device are many, and alike. */
			if (j > 1 && strstr(paths[i], "/net/"))
				break;
			/* Above the parts that are copied /sys has more. */
			if (strncmp(behind[j], "/../..", 6) == 0 && strstr(paths[i], "class/") == paths[i])
				continue;
			snprintf(path, sizeof(path), "/%s/subsystem", paths[i]);
			if (strncmp(behind[j], "/subsystem", 10) == 0 && leads_elsewhere(path))
				continue;
			snprintf(path, sizeof(path), "/%s%s", paths[i], behind[j]);
			compare(ask_status, "status", path);
			compare(ask_link, "link", path);
			compare(ask_access, "access", path);
			compare(ask_open, "open", path);
			compare(ask_stream, "stream", path);
			if (!strstr(behind[j], ".."))
				compare(ask_directory, "directory", path);
		}
	}
	compare(ask_patterns, "glob", "");
	for (int length = NAME_MAX - 1; length <= NAME_MAX + 1; length++) {
		snprintf(path, sizeof(path), "/class/infiniband/%0*d", length, 0);
		compare(ask_status, "status", path);
		compare(ask_open, "open", path);
	}
}

/* Below descriptors of directories, however these came about. */
static void compare_below(const char *below, int flags)
{
	static const char *const relative[] = { "node_guid", "./ports/1/state", "..", "../..", "ports/", "missing", "device",
						"device/numa_node", "node_guid/", "/sys", "" };
	char path[PATH_MAX], target[PATH_MAX];
	struct outcome outcomes[2] = { { .length = 0 }, { .length = 0 } };
	struct stat status = { 0 };
	struct statx extended = { 0 };
	int result;

	for (int of = 0; of < 2; of++) {
		struct outcome *outcome = &outcomes[of];
		int opened, descriptor;

		snprintf(path, sizeof(path), "%s/sys/%s", of ? root : "", below);
		opened = open(path, O_DIRECTORY | flags);
		CHECK(opened >= 0);
		descriptor = fcntl(opened, F_DUPFD_CLOEXEC, 200);
		close(opened);
		for (size_t i = 0; i < sizeof(relative) / sizeof(relative[0]); i++) {
			say(outcome, "%s:\n", relative[i]);
			result = fstatat(descriptor, relative[i], &status, AT_SYMLINK_NOFOLLOW);
			say_type(outcome, "fstatat", result, status.st_mode);
			result = statx(descriptor, relative[i], AT_EMPTY_PATH, STATX_BASIC_STATS, &extended);
			say_type(outcome, "statx", result, extended.stx_mode);
			say_result(outcome, "faccessat", faccessat(descriptor, relative[i], R_OK, 0));
			say_result(outcome, "readlinkat", readlinkat(descriptor, relative[i], target, sizeof(target)));
			say_descriptor(outcome, "openat", O_RDONLY, openat(descriptor, relative[i], O_RDONLY));
			say_descriptor(outcome, "openat64", O_RDONLY, openat64(descriptor, relative[i], O_RDONLY));
		}
		close(descriptor);
	}
	same("what is below", below, &outcomes[0], &outcomes[1]);
}

/* From the current directory, and from a descriptor of a directory above. */
static void see_relative_paths(void)
{
	char content[64];
	int descriptor = open("/", O_RDONLY | O_DIRECTORY), file;
	glob_t found = { 0 };
	struct stat status;

	CHECK(descriptor >= 0);
	CHECK(fstatat(descriptor, "sys/class/infiniband/pagewire0", &status, 0) == 0 && S_ISDIR(status.st_mode));
	file = openat(descriptor, "./dev/../sys//class/infiniband/pagewire0/node_type", O_RDONLY);
	CHECK(file >= 0 && read(file, content, sizeof(content)) == 6 && memcmp(content, "1: CA\n", 6) == 0);
	close(file);
	close(descriptor);
	CHECK(chdir("/sys/class") == 0);
	CHECK(stat("infiniband", &status) == 0 && S_ISDIR(status.st_mode));
	CHECK(stat("../class/./infiniband/pagewire0/device/numa_node", &status) == 0 && S_ISREG(status.st_mode));
	CHECK(stat("infiniband/missing", &status) == -1 && errno == ENOENT);
	CHECK(glob("infini*/*", 0, NULL, &found) == 0 && found.gl_pathc == 3);
	CHECK(strcmp(found.gl_pathv[0], "infiniband/pagewire0") == 0);
	globfree(&found);
	CHECK(chdir("/") == 0);
	CHECK(access("sys/class/infiniband_verbs/uverbs0/ibdev", R_OK) == 0);
	/* As with a directory that the kernel does not have: the manual says so. */
	CHECK(chdir("/sys/class/infiniband") == -1 && errno == ENOENT);
}

static int has_entry(const char *path, const char *name)
{
	DIR *stream = opendir(path);
	struct dirent *entry;
	int times = 0, others = 0;

	CHECK(stream);
	while ((entry = readdir(stream)))
		if (strcmp(entry->d_name, name) == 0)
			times++;
		else
			others++;
	closedir(stream);
	CHECK(others > 2);
	return times;
}

/* Directories that the kernel has show what it has, and ours. */
static void see_directories_above(void)
{
	struct dirent **list;
	int count, found = 0, descriptor;
	DIR *stream;
	long begin;

	CHECK(has_entry("/sys/class", "infiniband") == 1 && has_entry("/sys/class", "infiniband_verbs") == 1);
	CHECK(has_entry("/sys/class", "net") == 1 && has_entry("/dev", "infiniband") == 1 && has_entry("/dev", "null") == 1);
	CHECK(has_entry("/sys/devices/platform", "pagewire_infiniband.0.auto") == 1);
	CHECK(has_entry("/sys/class/net", "infiniband") == 0);
	count = scandir("/sys/class", &list, NULL, alphasort);
	CHECK(count > 3);
	for (int i = 0; i < count; i++) {
		found += strcmp(list[i]->d_name, "infiniband") == 0;
		free(list[i]);
	}
	free(list);
	CHECK(found == 1);
	descriptor = open("/sys/class", O_RDONLY | O_DIRECTORY);
	stream = fdopendir(descriptor);
	CHECK(stream && dirfd(stream) == descriptor);
	count = 0;
	begin = telldir(stream);
	while (readdir(stream))
		count++;
	seekdir(stream, begin);
	/* A position among what only the tree has. */
	for (int i = 0; i < count - 1; i++)
		CHECK(readdir(stream));
	begin = telldir(stream);
	CHECK(readdir(stream) && !readdir(stream));
	seekdir(stream, begin);
	CHECK(readdir(stream) && !readdir(stream));
	rewinddir(stream);
	while (readdir(stream))
		count--;
	CHECK(count == 0 && closedir(stream) == 0);
}

/* An error of the kernel's directory is no end: what the tree has there does not follow it. */
static void see_errors_of_directories_above(void)
{
	DIR *stream = opendir("/sys/class");
	int file = open("/dev/null", O_RDONLY);

	CHECK(stream && file >= 0);
	/* getdents64(2) of what is no directory. */
	CHECK(dup2(file, dirfd(stream)) >= 0 && close(file) == 0);
	errno = 0;
	CHECK(!readdir(stream) && errno == ENOTDIR);
	CHECK(closedir(stream) == 0);
}

static void see_the_device(void)
{
	struct stat status, other;
	char byte = 0;
	int descriptor;

	CHECK(stat("/dev/infiniband/uverbs0", &status) == 0 && S_ISCHR(status.st_mode));
	CHECK((status.st_mode & 0777) == 0666 && status.st_rdev == (231 << 8 | 192) && status.st_nlink == 1);
	CHECK(access("/dev/infiniband/uverbs0", R_OK | W_OK) == 0);
	CHECK(access("/dev/infiniband/uverbs0", X_OK) == -1 && errno == EACCES);
	descriptor = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
	CHECK(descriptor >= 0 && fstat(descriptor, &other) == 0);
	CHECK(other.st_ino == status.st_ino && other.st_dev == status.st_dev && other.st_rdev == status.st_rdev);
	/* No command reaches a kernel's device by it. */
	CHECK(ioctl(descriptor, _IOWR(0x1b, 1, uint64_t), &byte) == -1 && errno == ENOTTY);
	CHECK(write(descriptor, &byte, 1) == -1 && errno == EPERM);
	CHECK(read(descriptor, &byte, 1) == 0);
	close(descriptor);
	CHECK(open("/dev/infiniband/uverbs0", O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
	CHECK(open("/dev/infiniband/missing", O_RDONLY) == -1 && errno == ENOENT);
}

static void see_other_calls(void)
{
	const char *const file = "/sys/class/infiniband/pagewire0/fw_ver";
	/* Not known to be NULL where it is compiled. */
	const char *volatile nowhere = NULL;
	struct stat status, other;
	struct statfs space, above;
	struct statvfs simple;
	char value[8];

	CHECK(statfs(file, &space) == 0 && statfs("/sys", &above) == 0 && space.f_type == above.f_type);
	CHECK(statvfs(file, &simple) == 0);
	CHECK(getxattr(file, "user.x", value, sizeof(value)) == -1 && errno == EOPNOTSUPP);
	CHECK(lgetxattr(file, "user.x", value, sizeof(value)) == -1 && errno == EOPNOTSUPP);
	CHECK(listxattr(file, value, sizeof(value)) == 0 && llistxattr(file, value, sizeof(value)) == 0);
	CHECK(stat(nowhere, &status) == -1 && errno == EFAULT);
	CHECK(access(nowhere, F_OK) == -1 && errno == EFAULT);
	CHECK(open(nowhere, O_RDONLY) == -1 && errno == EFAULT);
	CHECK(readlink(nowhere, value, sizeof(value)) == -1 && errno == EFAULT);
	CHECK(stat(file, &status) == 0 && status.st_size == 4096 && (status.st_mode & 0777) == 0444);
	/* No holes: cp(1) would look for them, and pad its copy to 4096 bytes. */
	CHECK(status.st_blocks == 4096 / 512);
	CHECK(stat("/sys", &other) == 0 && status.st_dev == other.st_dev);
	CHECK(stat("/sys/class/infiniband/pagewire0", &status) == 0 && status.st_nlink == 3);
	/* All ways to a file lead to the same one. */
	CHECK(stat("/sys/class/infiniband/pagewire0/device", &status) == 0);
	CHECK(stat("/sys/class/infiniband_verbs/uverbs0/device", &other) == 0 && status.st_ino == other.st_ino);
	CHECK(__xstat(77, file, &status) == -1 && errno == EINVAL);
	/* A call that succeeds leaves errno. */
	errno = ENOMSG;
	CHECK(stat(file, &status) == 0 && access(file, R_OK) == 0 && errno == ENOMSG);
	CHECK(close(open(file, O_RDONLY)) == 0 && errno == ENOMSG);
}

int main(void)
{
	int before;

	become_nobody();
	CHECK(stat("/tmp/none", &(struct stat){ 0 }) == -1);
	make_copy();
	before = open_descriptors();
	compare_paths();
	compare_below("class/infiniband/pagewire0", O_RDONLY);
	compare_below("class/infiniband/pagewire0", O_PATH);
	see_relative_paths();
	see_directories_above();
	see_errors_of_directories_above();
	see_the_device();
	see_other_calls();
	CHECK(open_descriptors() == before);
	remove_copy();
	return 0;
}
