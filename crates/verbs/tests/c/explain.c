/* A process tells about its connections: one line for itself, one for each queue pair. */
#include "check.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char answer[1 << 16];

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_UC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char expected[128];
	size_t length = 0;
	ssize_t part;
	int name = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "pagewire-explain-%d", getpid());
	int reader = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(qp && reader >= 0);
	CHECK(connect(reader, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + name) == 0);
	while ((part = read(reader, answer + length, sizeof(answer) - 1 - length)) > 0)
		length += part;
	CHECK(part == 0);
	snprintf(expected, sizeof(expected), "{\"pid\":%d,\"program\":\"explain\",\"path_choice\":\"", getpid());
	CHECK(strncmp(answer, expected, strlen(expected)) == 0);
	snprintf(expected, sizeof(expected), "\n{\"qpn\":%u,\"type\":\"UC\",\"state\":\"RESET\",\"path\":\"none\"", qp->qp_num);
	CHECK(strstr(answer, expected));
	CHECK(answer[length - 1] == '\n');
	CHECK(close(reader) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
