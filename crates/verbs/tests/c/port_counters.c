/* The files in which a port counts grow with the traffic of this process, and keep what destroyed queue pairs counted. */
#include "connect.h"

#include <fcntl.h>

enum { MESSAGES = 50, SIZE = 8192 };

static long count(struct ibv_context *context, const char *name)
{
	char path[256], content[64];
	int file;
	ssize_t length;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/%s", ibv_get_device_name(context->device), name);
	file = open(path, O_RDONLY);
	CHECK(file >= 0);
	length = read(file, content, sizeof(content) - 1);
	CHECK(length > 1 && content[length - 1] == '\n' && close(file) == 0);
	content[length] = '\0';
	return atol(content);
}

int main(void)
{
	int is_udp = strcmp(getenv("PAGEWIRE_PATH"), "udp") == 0;
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * MESSAGES, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
	static char memory[2 * SIZE];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	struct ibv_sge from = { (uintptr_t)memory, SIZE, mr->lkey };
	struct ibv_send_wr write = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	long sent, received;

	CHECK(one && two && mr);
	CHECK(count(context, "hw_counters/sent_pkts") == 0 && count(context, "hw_counters/local_bytes") == 0);
	connect_pair(one, two);
	write.wr.rdma.remote_addr = (uintptr_t)memory + SIZE;
	write.wr.rdma.rkey = mr->rkey;
	for (int i = 0; i < MESSAGES; i++) {
		CHECK(ibv_post_send(one, &write, &bad) == 0);
		poll_all(cq, 1, &wc);
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	sent = count(context, "hw_counters/sent_pkts");
	received = count(context, "hw_counters/rcvd_pkts");
	/* A WRITE is as many packets as its path MTU makes of it, and their acknowledgements. */
	if (is_udp)
		CHECK(sent > MESSAGES * SIZE / 1024 && received >= MESSAGES * SIZE / 1024);
	else
		CHECK(count(context, "hw_counters/local_bytes") >= (MESSAGES - 1) * SIZE);
	CHECK(count(context, "hw_counters/rcvd_rnr_err") == 0);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	CHECK(count(context, "counters/port_xmit_packets") >= sent);
	CHECK(count(context, "counters/port_rcv_packets") >= received);
	if (!is_udp)
		CHECK(count(context, "hw_counters/local_bytes") >= (MESSAGES - 1) * SIZE);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
