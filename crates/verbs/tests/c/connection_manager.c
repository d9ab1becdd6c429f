/* A program that begins with librdmacm by each of its functions, without its headers. */
#include <errno.h>
#include <stdio.h>

void *rdma_create_event_channel(void);
void *rdma_get_devices(int *count);
int rdma_create_id(void *channel, void **id, void *context, int space);
int rdma_create_ep(void **id, void *address, void *domain, void *attributes);
int rdma_getaddrinfo(const char *node, const char *service, const void *hints, void **result);
int rsocket(int domain, int type, int protocol);
int rdma_connect(void *id, void *parameters);

static int failed;

static void refused(const char *function, int is_refused)
{
	if (!is_refused || errno != EOPNOTSUPP) {
		fprintf(stderr, "%s: not refused with EOPNOTSUPP\n", function);
		failed = 1;
	}
	errno = 0;
}

int main(void)
{
	void *result;
	int count;

	refused("rdma_create_event_channel", !rdma_create_event_channel());
	refused("rdma_get_devices", !rdma_get_devices(&count) && count == 0);
	refused("rdma_create_id", rdma_create_id(NULL, &result, NULL, 0x106) == -1);
	refused("rdma_create_ep", rdma_create_ep(&result, NULL, NULL, NULL) == -1);
	refused("rdma_getaddrinfo", rdma_getaddrinfo("127.0.0.1", "7471", NULL, &result) == -1);
	refused("rsocket", rsocket(2, 1, 0) == -1);
	/* Keeps librdmacm among the libraries of the program. */
	int (*volatile kept)(void *, void *) = rdma_connect;

	return failed || !kept;
}
