/*
 * Opens a device, waits for an error of its port, queries a GID, and forks. The child opens the device, too, and waits for an error of its own. Prints the events of both.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int holds, const char *verb)
{
	if (!holds) {
		printf("%s: %s\n", verb, strerror(errno));
		fflush(stdout);
		_exit(1);
	}
}

static struct ibv_context *open_and_wait(const char *who)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	must(devices && *devices, "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(*devices);
	must(context != NULL, "ibv_open_device");
	enum ibv_event_type type;
	/* The addresses of a new host come a second after it, which changes its GIDs. */
	do {
		struct ibv_async_event event;
		must(!ibv_get_async_event(context, &event), "ibv_get_async_event");
		type = event.event_type;
		ibv_ack_async_event(&event);
	} while (type == IBV_EVENT_GID_CHANGE);
	printf("%s: %s\n", who, ibv_event_type_str(type));
	fflush(stdout);
	return context;
}

int main(void)
{
	struct ibv_context *context = open_and_wait("parent");
	union ibv_gid gid;
	must(!ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
	pid_t child = fork();
	must(child >= 0, "fork");
	if (!child) {
		must(!ibv_query_gid(open_and_wait("child"), 1, 0, &gid), "ibv_query_gid");
		_exit(0);
	}
	int status;
	must(waitpid(child, &status, 0) == child, "waitpid");
	return !WIFEXITED(status) || WEXITSTATUS(status);
}
