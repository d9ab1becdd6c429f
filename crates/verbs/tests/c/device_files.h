/* A directory with the same files as the tree of devices has, to compare with: below it `sys` stands for /sys. */
#ifndef DEVICE_FILES_H
#define DEVICE_FILES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, \
				strerror(errno)); \
			exit(1); \
		} \
	} while (0)

/* The root of the copy, the parts of /sys that are copied, and all paths below /sys that were found there. */
#define PARENT "devices/platform/pagewire_infiniband.0.auto"
static char root[PATH_MAX / 4];
static const char *const above[] = { "", "sys", "sys/class", "sys/bus", "sys/bus/platform", "sys/devices", "sys/devices/platform" };
enum { ABOVE = sizeof(above) / sizeof(above[0]) };
static const char *const parts[] = { "class/infiniband", "class/infiniband_verbs", PARENT };
static char *paths[1024];
static int path_count;

/* Root may do what others may not: the tests are for others. */
static inline void become_nobody(void)
{
	if (geteuid() != 0)
		return;
	CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
}

static inline void read_file(const char *path, char *content, size_t size)
{
	int descriptor = open(path, O_RDONLY);
	ssize_t length;

	CHECK(descriptor >= 0);
	length = read(descriptor, content, size - 1);
	CHECK(length >= 0);
	content[length] = '\0';
	close(descriptor);
}

static inline void copy(const char *below)
{
	char from[PATH_MAX], to[PATH_MAX], content[4096];
	struct stat status;
	struct dirent *entry;
	DIR *stream;
	int descriptor;
	ssize_t length;

	snprintf(from, sizeof(from), "/sys/%s", below);
	snprintf(to, sizeof(to), "%s/sys/%s", root, below);
	CHECK(path_count < 1024);
	paths[path_count++] = strdup(below);
	CHECK(lstat(from, &status) == 0);
	if (S_ISLNK(status.st_mode)) {
		length = readlink(from, content, sizeof(content) - 1);
		CHECK(length > 0);
		content[length] = '\0';
		CHECK(symlink(content, to) == 0);
	} else if (S_ISDIR(status.st_mode)) {
		CHECK(mkdir(to, 0755) == 0);
		stream = opendir(from);
		CHECK(stream);
		while ((entry = readdir(stream))) {
			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
				continue;
			snprintf(content, sizeof(content), "%s/%s", below, entry->d_name);
			copy(content);
		}
		CHECK(closedir(stream) == 0);
		CHECK(chmod(to, 0555) == 0);
	} else {
		CHECK(S_ISREG(status.st_mode));
		read_file(from, content, sizeof(content));
		descriptor = open(to, O_WRONLY | O_CREAT | O_EXCL, 0444);
		CHECK(descriptor >= 0 && write(descriptor, content, strlen(content)) == (ssize_t)strlen(content));
		close(descriptor);
	}
}

/* Sets the mode of the directories above the parts. */
static inline void set_above(mode_t mode)
{
	char path[PATH_MAX];

	for (int i = 1; i < ABOVE; i++) {
		snprintf(path, sizeof(path), "%s/%s", root, above[i]);
		CHECK(chmod(path, mode) == 0);
	}
}

/* Makes the copy. */
static inline void make_copy(void)
{
	char path[PATH_MAX];

	snprintf(root, sizeof(root), "/tmp/pagewire-files-XXXXXX");
	CHECK(mkdtemp(root));
	for (int i = 1; i < ABOVE; i++) {
		snprintf(path, sizeof(path), "%s/%s", root, above[i]);
		CHECK(mkdir(path, 0755) == 0);
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		copy(parts[i]);
	set_above(0555);
}

/* Removes it, the last that was made first. */
static inline void remove_copy(void)
{
	char path[PATH_MAX];

	set_above(0755);
	for (int i = 0; i < path_count; i++) {
		snprintf(path, sizeof(path), "%s/sys/%s", root, paths[i]);
		/* Directories cannot be changed else; links lead elsewhere. */
		if (fchmodat(AT_FDCWD, path, 0755, AT_SYMLINK_NOFOLLOW) != 0)
			CHECK(errno == EOPNOTSUPP);
	}
	for (int i = path_count - 1; i >= 0; i--) {
		snprintf(path, sizeof(path), "%s/sys/%s", root, paths[i]);
		CHECK(remove(path) == 0);
	}
	for (int i = ABOVE - 1; i >= 0; i--) {
		snprintf(path, sizeof(path), "%s/%s", root, above[i]);
		CHECK(rmdir(path) == 0);
	}
}

static inline int open_descriptors(void)
{
	DIR *stream = opendir("/proc/self/fd");
	int count = 0;

	CHECK(stream);
	while (readdir(stream))
		count++;
	closedir(stream);
	return count;
}

#endif
