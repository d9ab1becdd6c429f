/* Time stamps of completions: by the device's clock, which ibv_query_rt_values_ex(3) reads, and by the wall clock. */
#include "connect.h"

#define LENGTH 64
#define MESSAGES 8

static struct ibv_context *context;

static uint64_t device_time(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	CHECK(ibv_query_rt_values_ex(context, &values) == 0 && values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
	return values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec;
}

static uint64_t wall_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static struct ibv_cq_ex *create(uint32_t entries, uint64_t fields, uint32_t flags)
{
	struct ibv_cq_init_attr_ex init = { .cqe = entries, .wc_flags = fields, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = flags };

	return ibv_create_cq_ex(context, &init);
}

int main(int argc, char **argv)
{
	const uint64_t both = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	struct ibv_device_attr_ex attributes;
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *plain, *stamped, *few;
	struct ibv_qp_init_attr init;
	struct ibv_qp *one, *two;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	char *memory = calloc(2, LENGTH);
	uint64_t begin, wall_begin, posted, before = 0;
	double end;
	int found = 0, round, status;
	/* On this path requests to the own process are executed at their post, but for the first. */
	int at_once = argc > 1 && !strcmp(argv[1], "at-once");

	context = open_first_device();
	CHECK(ibv_query_device_ex(context, NULL, &attributes) == 0);
	CHECK(attributes.completion_timestamp_mask == UINT64_MAX && attributes.hca_core_clock == 1000000);
	pd = ibv_alloc_pd(context);
	plain = create(64, IBV_WC_STANDARD_FLAGS, 0);
	stamped = create(64, both, 0);
	few = create(2, both, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	CHECK(memory && pd && plain && stamped && few);
	CHECK(!plain->read_completion_ts && !plain->read_completion_wallclock_ns);
	CHECK(stamped->read_completion_ts && stamped->read_completion_wallclock_ns && !stamped->read_byte_len);
	mr = ibv_reg_mr(pd, memory, 2 * LENGTH, ALL_ACCESS);
	init = plain_attributes(ibv_cq_ex_to_cq(stamped), IBV_QPT_RC);
	init.cap.max_send_wr = 2 * MESSAGES;
	one = ibv_create_qp(pd, &init);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(few);
	two = ibv_create_qp(pd, &init);
	CHECK(mr && one && two);
	connect_pair(one, two);

	for (round = 0; round < MESSAGES; round++) {
		struct ibv_sge sge = { (uintptr_t)memory, LENGTH, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = round, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;

		wr.wr.rdma.remote_addr = (uintptr_t)memory + LENGTH;
		wr.wr.rdma.rkey = mr->rkey;
		begin = device_time();
		wall_begin = wall_time();
		CHECK(ibv_post_send(one, &wr, &bad) == 0);
		posted = device_time();
		/* Its stamp is that of its coming, however late it is polled. */
		usleep(20000);
		end = seconds() + PATIENCE_SECONDS;
		while ((status = ibv_start_poll(stamped, &attr)) == ENOENT)
			CHECK(seconds() < end);
		CHECK(status == 0 && stamped->status == IBV_WC_SUCCESS && stamped->wr_id == (uint64_t)round);
		{
			uint64_t raw = ibv_wc_read_completion_ts(stamped), wall = ibv_wc_read_completion_wallclock_ns(stamped);

			CHECK(raw >= begin && raw <= device_time() && raw >= before);
			CHECK(wall >= wall_begin && wall <= wall_time());
			CHECK(!at_once || round == 0 || raw <= posted);
			before = raw;
		}
		ibv_end_poll(stamped);
	}

	/* Of completions that make room for others the stamps go, too. */
	for (round = 0; round < 5; round++) {
		struct ibv_sge sge = { (uintptr_t)memory, LENGTH, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = round, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;

		wr.wr.rdma.remote_addr = (uintptr_t)memory + LENGTH;
		wr.wr.rdma.rkey = mr->rkey;
		if (round == 4)
			begin = device_time();
		while (ibv_post_send(two, &wr, &bad) == ENOMEM)
			;
		if (at_once)
			usleep(1000);
	}
	usleep(100000);
	end = seconds() + PATIENCE_SECONDS;
	while (ibv_start_poll(few, &attr) == ENOENT)
		CHECK(seconds() < end);
	do {
		CHECK(ibv_wc_read_completion_ts(few) <= device_time());
		CHECK(few->wr_id != 4 || ibv_wc_read_completion_ts(few) >= begin);
		CHECK(!at_once || few->wr_id == 4 || ibv_wc_read_completion_ts(few) < begin);
		found++;
	} while (ibv_next_poll(few) == 0);
	ibv_end_poll(few);
	CHECK(found > 0);

	CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(plain)) && !ibv_destroy_cq(ibv_cq_ex_to_cq(stamped)) && !ibv_destroy_cq(ibv_cq_ex_to_cq(few)));
	CHECK(ibv_close_device(context) == 0);
	free(memory);
	return 0;
}
