/* The first device has the name of the argument, wherever a program looks for it; if that ends with a number, the others count on. */
#include "check.h"

#include <ctype.h>
#include <dirent.h>
#include <unistd.h>

int main(int count, char **arguments)
{
	int devices = 0, digits, number, entries = 0;
	struct ibv_device **list = ibv_get_device_list(&devices);
	char path[256], wanted[128];
	struct dirent *entry;
	DIR *folder;

	CHECK(count == 2 && list && devices > 0);
	for (digits = strlen(arguments[1]); digits > 0 && isdigit((unsigned char)arguments[1][digits - 1]); digits--)
		;
	number = atoi(arguments[1] + digits);
	for (int i = 0; i < devices; i++) {
		snprintf(wanted, sizeof(wanted), "%.*s%d", digits, arguments[1], number + i);
		CHECK(!strcmp(ibv_get_device_name(list[i]), wanted));
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s", wanted);
		CHECK(!strcmp(list[i]->ibdev_path, path));
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gids/0", wanted);
		CHECK(!access(path, R_OK));
	}
	folder = opendir("/sys/class/infiniband");
	CHECK(folder);
	while ((entry = readdir(folder)))
		entries += !strcmp(entry->d_name, arguments[1]);
	CHECK(entries == 1 && !closedir(folder));
	ibv_free_device_list(list);
	return 0;
}
