#define _GNU_SOURCE
#include "leaks.h"

#include "check.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/un.h>
#include <unistd.h>

#define ARENA "/memfd:pagewire-arena"
/* More than a survivor, a companion and a few victims have. */
#define NAMES 256

static int entries(const char *folder, const char *with)
{
	DIR *open = opendir(folder);
	struct dirent *entry;
	int count = 0;

	CHECK(open);
	while ((entry = readdir(open)))
		count += entry->d_name[0] != '.' && strstr(entry->d_name, with) != NULL;
	closedir(open);
	return count;
}

static int lines(const char *file, const char *with)
{
	FILE *open = fopen(file, "re");
	char *line = NULL;
	size_t room = 0;
	int count = 0;

	CHECK(open);
	while (getline(&line, &room, open) > 0)
		count += strstr(line, with) != NULL;
	free(line);
	fclose(open);
	return count;
}

/* Different names that begin so. The sockets of accepted connections have the name of their listener, and are no more of them. */
static int names(const char *start)
{
	static char seen[NAMES][sizeof(((struct sockaddr_un *)0)->sun_path)];
	FILE *open = fopen("/proc/self/net/unix", "re");
	char *line = NULL, *name;
	size_t room = 0;
	int count = 0;

	CHECK(open);
	while (getline(&line, &room, open) > 0) {
		int known = 0;

		if (!(name = strstr(line, start)))
			continue;
		for (int i = 0; i < count && !known; i++)
			known = strcmp(seen[i], name) == 0;
		if (known)
			continue;
		CHECK(count < NAMES && strlen(name) < sizeof(seen[0]));
		strcpy(seen[count++], name);
	}
	free(line);
	fclose(open);
	return count;
}

static int status(const char *field)
{
	FILE *open = fopen("/proc/self/status", "re");
	char line[256];
	int value = -1;

	CHECK(open);
	while (fgets(line, sizeof(line), open)) {
		if (strncmp(line, field, strlen(field)) == 0)
			value = atoi(line + strlen(field));
	}
	fclose(open);
	CHECK(value >= 0);
	return value;
}

/* Descriptors that are an engine's own buffer, or that are not. */
static int descriptors(int of_arenas)
{
	DIR *open = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[64];
	int count = 0;

	CHECK(open);
	while ((entry = readdir(open))) {
		ssize_t length = readlinkat(dirfd(open), entry->d_name, target, sizeof(target) - 1);

		/* The two folders, or one that another thread has closed just now. */
		if (length < 0)
			continue;
		target[length] = 0;
		count += of_arenas == (strncmp(target, ARENA, strlen(ARENA)) == 0);
	}
	closedir(open);
	/* One is the folder's own. */
	return of_arenas ? count : count - 1;
}

int descriptors_held(void)
{
	return descriptors(0);
}

struct held what_is_held(void)
{
	struct mallinfo2 heap = mallinfo2();
	struct held held = {
		.descriptors = descriptors(0),
		.arenas = descriptors(1),
		.mappings = lines("/proc/self/maps", "") - lines("/proc/self/maps", ARENA),
		.resident = status("RssAnon:"),
		.allocated = (heap.uordblks + heap.hblkhd) / 1024,
		.names = names("@pagewire"),
		.files = entries("/dev/shm", "pagewire"),
	};

	return held;
}
