/*
 * Every name by which programs load libibverbs gives this library, and the loader's functions keep their meaning for all other names. Run by
 * shared_object.rs with the library preloaded, and with the names in the environment:
 *   VERBS_NAMES    names and paths of libibverbs, separated by colons
 *   OTHER_FOLDER   a folder of which the program has no search path, with libother.so, and libopener.so, whose RUNPATH has that folder
 */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

static struct link_map *map_of(void *library)
{
	struct link_map *map = NULL;

	CHECK(!dlinfo(library, RTLD_DI_LINKMAP, &map));
	return map;
}

static void is_ours(void *library, const char *name)
{
	struct ibv_device **(*list)(int *), **devices;
	void *own = dlsym(RTLD_DEFAULT, "ibv_get_device_list");
	Dl_info about;
	int count = -1;

	if (!library) {
		fprintf(stderr, "%s: %s\n", name, dlerror());
		exit(1);
	}
	list = (struct ibv_device **(*)(int *))dlsym(library, "ibv_get_device_list");
	CHECK(list && dladdr((void *)list, &about));
	if ((void *)list != own || !strstr(about.dli_fname, "libpagewire")) {
		fprintf(stderr, "%s gave %s\n", name, about.dli_fname);
		exit(1);
	}
	devices = list(&count);
	CHECK(devices && count > 0);
	((void (*)(struct ibv_device **))dlsym(library, "ibv_free_device_list"))(devices);
	CHECK(strstr(map_of(library)->l_name, "libpagewire"));
}

static void open_all(char *names)
{
	static const int modes[] = { RTLD_NOW, RTLD_LAZY | RTLD_GLOBAL, RTLD_NOW | RTLD_DEEPBIND, RTLD_LAZY | RTLD_NOLOAD };
	char *rest = names, *name;

	while ((name = strsep(&rest, ":"))) {
		for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
			void *library = dlopen(name, modes[i]);

			is_ours(library, name);
			CHECK(!dlclose(library));
		}
		/* A process has one engine: the first namespace's. */
		is_ours(dlmopen(LM_ID_NEWLM, name, RTLD_NOW), name);
	}
}

/* What is no name of libibverbs goes on as if it had been called by its caller. */
static void others_keep_their_meaning(const char *folder)
{
	void *(*open_by)(const char *), *other, *opener;
	char path[4096];
	Lmid_t space;

	CHECK(dlopen(NULL, RTLD_NOW));
	CHECK(!dlopen("/no/such/libibverbs-private.so", RTLD_NOW) && strstr(dlerror(), "libibverbs-private.so"));
	CHECK(!dlopen("libibverbs.so.2", RTLD_NOW) && strstr(dlerror(), "libibverbs.so.2"));
	CHECK(!dlopen("libother.so", RTLD_NOW));
	CHECK(snprintf(path, sizeof(path), "%s/libopener.so", folder) < (int)sizeof(path));
	opener = dlopen(path, RTLD_NOW);
	CHECK(opener);
	/* The search path of the library that calls dlopen holds. */
	open_by = (void *(*)(const char *))dlsym(opener, "open_by_name");
	CHECK(open_by && (other = open_by("libother.so")));
	CHECK(dlsym(other, "other_number"));
	is_ours(open_by("libibverbs.so.1"), "by a library");
	CHECK(snprintf(path, sizeof(path), "%s/libother.so", folder) < (int)sizeof(path));
	other = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
	CHECK(other && !dlinfo(other, RTLD_DI_LMID, &space) && space != LM_ID_BASE);
}

/* A library that calls past this one (RTLD_DEEPBIND) finds it by name. */
static void deeply_bound(const char *folder)
{
	void *(*open_by)(const char *), *opener;
	char path[4096];

	CHECK(snprintf(path, sizeof(path), "%s/libopener-deep.so", folder) < (int)sizeof(path));
	opener = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
	CHECK(opener);
	open_by = (void *(*)(const char *))dlsym(opener, "open_by_name");
	is_ours(open_by("libibverbs.so.1"), "libibverbs.so.1 by a library with RTLD_DEEPBIND");
	is_ours(open_by("libibverbs.so"), "libibverbs.so by a library with RTLD_DEEPBIND");
}

/* A library that needs libibverbs, in a namespace of its own: what it gets is a second copy, which says so. */
static void second_namespace(const char *folder)
{
	int (*count_devices)(void);
	char path[4096];
	void *library;

	CHECK(snprintf(path, sizeof(path), "%s/libneeds.so", folder) < (int)sizeof(path));
	library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s: %s\n", path, dlerror());
		exit(1);
	}
	count_devices = (int (*)(void))dlsym(library, "count_devices");
	CHECK(count_devices && count_devices() == -EBUSY);
	/* In the first one it is this, whatever search path the library has itself. */
	CHECK(snprintf(path, sizeof(path), "%s/libneeds-rpath.so", folder) < (int)sizeof(path));
	library = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
	CHECK(library);
	count_devices = (int (*)(void))dlsym(library, "count_devices");
	CHECK(count_devices && count_devices() > 0);
}

int main(void)
{
	const char *names = getenv("VERBS_NAMES"), *folder = getenv("OTHER_FOLDER");
	void *first;

	CHECK(names && folder);
	open_all(strdup(names));
	others_keep_their_meaning(folder);
	/* A search path in the program itself (DT_RPATH) has loaded the system's library before this one could take its names. */
	if (!getenv("HAS_SYSTEMS_LIBRARY")) {
		deeply_bound(folder);
		second_namespace(folder);
	}
	/* The names of libibverbs 1.0 are there, and refuse. */
	first = dlvsym(RTLD_DEFAULT, "ibv_get_device_list", "IBVERBS_1.0");
	CHECK(first && first != dlsym(RTLD_DEFAULT, "ibv_get_device_list"));
	errno = 0;
	CHECK(!((void *(*)(int *))first)(NULL) && errno == EOPNOTSUPP);
	return 0;
}
