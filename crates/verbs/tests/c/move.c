/*
 * State SQD: both ends of a connection take other addresses of theirs (IBV_QP_AV), and go on. In a network namespace with a device that has the
 * addresses 10.80.0.1 and 10.80.0.2; the program takes the first one away when the ends have moved.
 */
#include "connect.h"

#include <arpa/inet.h>

#define DEPTH 16
#define LENGTH 20000

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[2 * LENGTH];
static struct ibv_wc wc[2];

/* The device with an address, and the index of its GID. */
static int find(const char *address, struct ibv_context **opened)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	unsigned char wanted[16] = { [10] = 0xff, [11] = 0xff };

	CHECK(devices && inet_pton(AF_INET, address, wanted + 12) == 1);
	for (int i = 0; devices[i]; i++) {
		struct ibv_context *candidate = *opened ? *opened : ibv_open_device(devices[i]);
		struct ibv_gid_entry entries[64];
		ssize_t count = ibv_query_gid_table(candidate, entries, 64, 0);

		for (ssize_t entry = 0; entry < count; entry++) {
			if (memcmp(entries[entry].gid.raw, wanted, sizeof(wanted)) == 0) {
				*opened = candidate;
				ibv_free_device_list(devices);
				return entries[entry].gid_index;
			}
		}
		CHECK(!*opened && ibv_close_device(candidate) == 0);
	}
	CHECK(!"no device has the address");
	return -1;
}

static struct ibv_ah_attr vector(int index)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64, .sgid_index = index } };

	CHECK(ibv_query_gid(context, 1, index, &attr.grh.dgid) == 0);
	return attr;
}

static void connect_by(struct ibv_qp *qp, struct ibv_qp *peer, int index)
{
	struct ibv_qp_attr attr = usual_attributes(context, peer->qp_num);

	to_open_init(qp);
	attr.qp_state = IBV_QPS_RTR;
	attr.ah_attr = vector(index);
	CHECK(ibv_modify_qp(qp, &attr, RTR_MASK(IBV_QPT_RC)) == 0);
	to_rts(qp);
}

static int move_to(struct ibv_qp *qp, struct ibv_ah_attr address)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .ah_attr = address };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV);
}

/* A WRITE and a READ of it, by one end. */
static void transfer(struct ibv_qp *qp, char value)
{
	struct ibv_sge sge = { (uintptr_t)memory, LENGTH, mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;

	memset(memory, value, LENGTH);
	set_remote(&wr, (uintptr_t)memory + LENGTH, mr->rkey);
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags |= IBV_SEND_FENCE;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	poll_all(cq, 2, wc);
	CHECK(wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS);
	CHECK(memory[LENGTH] == value && memory[2 * LENGTH - 1] == value);
}

int main(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 1, 1, 0 } };
	const char *path = getenv("PAGEWIRE_PATH");
	struct ibv_ah_attr first, second, elsewhere;
	struct ibv_qp_init_attr answer;
	struct ibv_qp *one, *two;
	struct ibv_qp_attr now;

	first = vector(find("10.80.0.1", &context));
	second = vector(find("10.80.0.2", &context));
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	CHECK(pd && cq);
	init.send_cq = init.recv_cq = cq;
	mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	one = ibv_create_qp(pd, &init);
	two = ibv_create_qp(pd, &init);
	CHECK(mr && one && two);
	connect_by(one, two, first.grh.sgid_index);
	connect_by(two, one, first.grh.sgid_index);
	transfer(one, 1);
	transfer(two, 2);

	/* Not without SQD, and not to another host. */
	now = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .ah_attr = second };
	CHECK(ibv_modify_qp(one, &now, IBV_QP_STATE | IBV_QP_AV) == EINVAL);
	to_state(one, IBV_QPS_SQD);
	to_state(two, IBV_QPS_SQD);
	elsewhere = second;
	elsewhere.grh.dgid.raw[15] = 77;
	CHECK(move_to(one, elsewhere) == EOPNOTSUPP);
	if (strcmp(path, "tcp") == 0) {
		CHECK(move_to(one, second) == EOPNOTSUPP);
	} else {
		CHECK(move_to(one, second) == 0 && move_to(two, second) == 0);
		CHECK(ibv_query_qp(one, &now, IBV_QP_AV, &answer) == 0);
		CHECK(memcmp(&now.ah_attr.grh.dgid, &second.grh.dgid, sizeof(second.grh.dgid)) == 0);
		CHECK(system("ip address del 10.80.0.1/32 dev pw0") == 0);
	}
	to_state(one, IBV_QPS_RTS);
	to_state(two, IBV_QPS_RTS);
	for (int i = 3; i < 10; i++)
		transfer(i % 2 ? one : two, i);
	CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
