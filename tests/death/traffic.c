#include "traffic.h"

/* The first words of a message of its own: what the rest is made of. Shorter ones are a part of it. */
struct label {
	uint64_t seed;
	uint32_t length, magic;
};

#define MAGIC 0x9a6e71e5u
/* What everybody's readable bytes are made of. */
#define CONSTANT 0xc0ffee

/* Of the memory that the peer may reach: words for atomics, constant bytes to read, a place for each buffer of
 * each queue pair, areas for WRITEs with immediate data. */
#define WORDS 4096ul
#define PLACES (WORDS + LARGE)
#define AREAS_AT (PLACES + LANES * DEPTH * (size_t)LARGE)

static size_t place(int lane, unsigned slot)
{
	return PLACES + (lane * DEPTH + slot) * (size_t)LARGE;
}

static size_t area(int lane, unsigned number)
{
	return AREAS_AT + (lane * AREAS + number) * (size_t)AREA;
}

size_t reachable_length(void)
{
	return AREAS_AT + LANES * AREAS * (size_t)AREA;
}

/* Of a side's own memory: a buffer for each request, then one for each receive. */
static size_t buffer(int lane, unsigned slot)
{
	return (lane * DEPTH + slot) * (size_t)LARGE;
}

static size_t receive_buffer(int lane, unsigned slot)
{
	return buffer(LANES, 0) + (lane * RECEIVES + slot) * (size_t)MESSAGE;
}

size_t buffers_length(void)
{
	return receive_buffer(LANES, 0);
}

void fill(char *at, uint32_t length, uint64_t seed)
{
	struct random random = { seed };
	uint64_t word;
	uint32_t i;

	for (i = 0; i + 8 <= length; i += 8) {
		word = next_random(&random);
		memcpy(at + i, &word, 8);
	}
	word = next_random(&random);
	memcpy(at + i, &word, length - i);
}

int holds(const char *at, uint32_t length, uint64_t seed)
{
	struct random random = { seed };
	uint64_t word;
	uint32_t i;

	for (i = 0; i + 8 <= length; i += 8) {
		word = next_random(&random);
		if (memcmp(at + i, &word, 8) != 0)
			return 0;
	}
	word = next_random(&random);
	return memcmp(at + i, &word, length - i) == 0;
}

/* A message that tells by itself what it should be, if it is long enough for that. */
static void write_message(char *at, uint32_t length, uint64_t seed)
{
	struct label label = { seed, length, MAGIC };

	fill(at, length, seed);
	if (length >= sizeof(label))
		memcpy(at, &label, sizeof(label));
}

static int is_message(const char *at, uint32_t length)
{
	struct label label;
	uint64_t word;
	struct random random;

	if (length < sizeof(label))
		return 1;
	memcpy(&label, at, sizeof(label));
	if (label.magic != MAGIC || label.length != length)
		return 0;
	random.state = label.seed;
	for (uint32_t i = 0; i < length; i += 8) {
		word = next_random(&random);
		if (i >= sizeof(label) && memcmp(at + i, &word, length - i < 8 ? length - i : 8) != 0)
			return 0;
	}
	return 1;
}

static uint64_t id_of(int lane, int receive, uint64_t number)
{
	return (uint64_t)lane << 60 | (uint64_t)receive << 56 | number;
}

static void post_receive(struct link *link, int number)
{
	struct lane *lane = &link->lanes[number];
	unsigned slot = lane->receives_posted % RECEIVES;
	struct ibv_sge sge = { .length = number == UD ? GRH + DATAGRAM : MESSAGE, .lkey = link->buffers->lkey };
	struct ibv_recv_wr wr = { .wr_id = id_of(number, 1, lane->receives_posted), .sg_list = &sge, .num_sge = 1 }, *bad;

	sge.addr = (uintptr_t)link->buffer_bytes + receive_buffer(number, slot);
	CHECK(ibv_post_recv(lane->qp, &wr, &bad) == 0);
	lane->receives_posted++;
}

void make_link(struct link *link, const char *name, struct ibv_context *context, char *reachable, char *buffers,
	       uint64_t seed)
{
	static const enum ibv_qp_type types[LANES] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	memset(link, 0, sizeof(*link));
	link->name = name;
	link->context = context;
	link->random.state = seed;
	link->reachable_bytes = reachable;
	link->buffer_bytes = buffers;
	memset(reachable, 0, WORDS);
	fill(reachable + WORDS, LARGE, CONSTANT);
	CHECK(link->pd = ibv_alloc_pd(context));
	CHECK(link->cq = ibv_create_cq(context, LANES * (DEPTH + RECEIVES), NULL, NULL, 0));
	CHECK(link->reachable = ibv_reg_mr(link->pd, reachable, reachable_length(), ALL_ACCESS));
	CHECK(link->buffers = ibv_reg_mr(link->pd, buffers, buffers_length(), IBV_ACCESS_LOCAL_WRITE));
	for (int i = 0; i < LANES; i++) {
		struct ibv_qp_init_attr init = plain_attributes(link->cq, types[i]);

		init.cap.max_send_wr = DEPTH;
		init.cap.max_recv_wr = RECEIVES;
		CHECK(link->lanes[i].qp = ibv_create_qp(link->pd, &init));
		to_open_init(link->lanes[i].qp);
		while (link->lanes[i].receives_posted < RECEIVES)
			post_receive(link, i);
	}
}

struct introduction introduce(const struct link *link)
{
	struct introduction own = { .key = link->reachable->rkey, .address = (uintptr_t)link->reachable_bytes };

	for (int i = 0; i < LANES; i++)
		own.numbers[i] = link->lanes[i].qp->qp_num;
	return own;
}

void connect_link(struct link *link, const struct introduction *peer, uint8_t timeout)
{
	struct ibv_ah_attr address = to_own_host(link->context);

	link->peer = *peer;
	CHECK(link->ah = ibv_create_ah(link->pd, &address));
	for (int i = 0; i < LANES; i++) {
		struct ibv_qp *qp = link->lanes[i].qp;
		struct ibv_qp_attr attr = usual_attributes(link->context, peer->numbers[i]);

		attr.qp_state = IBV_QPS_RTR;
		CHECK(ibv_modify_qp(qp, &attr, RTR_MASK(qp->qp_type)) == 0);
		attr.qp_state = IBV_QPS_RTS;
		attr.timeout = timeout;
		CHECK(ibv_modify_qp(qp, &attr, RTS_MASK(qp->qp_type)) == 0);
	}
}

/* Small ones more often. */
static uint32_t draw_length(struct random *random, uint32_t longest)
{
	static const uint32_t bounds[] = { 256, 256, 8192, LARGE };
	uint32_t bound = bounds[random_below(random, 4)];

	return 1 + random_below(random, bound < longest ? bound : longest);
}

static enum ibv_wr_opcode draw_opcode(struct random *random, int lane)
{
	static const enum ibv_wr_opcode all[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
	};

	return all[random_below(random, lane == UD ? 2 : lane == UC ? 4 : 8)];
}

static void post_request(struct link *link, int number)
{
	struct lane *lane = &link->lanes[number];
	unsigned slot = (lane->first + lane->under_way) % DEPTH;
	struct request *request = &lane->requests[slot];
	const struct request *last = &lane->requests[(slot + DEPTH - 1) % DEPTH];
	char *bytes = link->buffer_bytes + buffer(number, slot);
	struct ibv_sge sge = { .addr = (uintptr_t)bytes, .lkey = link->buffers->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	uint64_t remote = link->peer.address;

	wr.wr_id = request->id = id_of(number, 0, lane->posted);
	wr.opcode = request->opcode = draw_opcode(&link->random, number);
	request->seed = next_random(&link->random);
	/* Two in a row are never silent, so that there is always something to wait for. */
	request->signaled = lane->under_way == 0 || !last->signaled || random_below(&link->random, 4) != 0;
	request->reads_back = 0;
	wr.send_flags = request->signaled ? IBV_SEND_SIGNALED : 0;
	switch (wr.opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		request->length = draw_length(&link->random, number == UD ? DATAGRAM : MESSAGE);
		wr.imm_data = htobe32(request->length);
		write_message(bytes, request->length, request->seed);
		break;
	case IBV_WR_RDMA_WRITE:
		request->length = draw_length(&link->random, LARGE);
		remote += place(number, slot);
		fill(bytes, request->length, request->seed);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		request->length = draw_length(&link->random, AREA);
		wr.imm_data = htobe32(lane->areas);
		remote += area(number, lane->areas);
		lane->areas = (lane->areas + 1) % AREAS;
		write_message(bytes, request->length, request->seed);
		break;
	case IBV_WR_RDMA_READ:
		request->reads_back = lane->written[slot].length > 0 && random_below(&link->random, 2);
		request->length = request->reads_back ? lane->written[slot].length : draw_length(&link->random, LARGE);
		request->seed = request->reads_back ? lane->written[slot].seed : CONSTANT;
		remote += request->reads_back ? place(number, slot) : WORDS;
		break;
	default:
		request->length = 8;
		request->expected = lane->atomics++;
		wr.wr.atomic.remote_addr = remote + number * 8;
		wr.wr.atomic.rkey = link->peer.key;
		wr.wr.atomic.compare_add = 1;
		if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
			wr.wr.atomic.compare_add = request->expected;
			wr.wr.atomic.swap = request->expected + 1;
		}
	}
	sge.length = request->length;
	if (wr.opcode != IBV_WR_ATOMIC_FETCH_AND_ADD && wr.opcode != IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = link->peer.key;
	}
	if (number == UD) {
		wr.wr.ud.ah = link->ah;
		wr.wr.ud.remote_qpn = link->peer.numbers[UD];
		wr.wr.ud.remote_qkey = QKEY;
	}
	CHECK(ibv_post_send(lane->qp, &wr, &bad) == 0);
	lane->posted++;
	lane->under_way++;
}

void post_some(struct link *link)
{
	for (int i = 0; i < LANES; i++) {
		struct lane *lane = &link->lanes[i];

		if (!lane->failed && !lane->closed && lane->under_way < DEPTH && random_below(&link->random, 2))
			post_request(link, i);
	}
}

/* A request that succeeded: looks at what it brought. */
static void finish_request(struct link *link, int number, unsigned slot)
{
	struct lane *lane = &link->lanes[number];
	const struct request *request = &lane->requests[slot];
	const char *bytes = link->buffer_bytes + buffer(number, slot);
	uint64_t original;

	link->done++;
	switch (request->opcode) {
	case IBV_WR_RDMA_WRITE:
		lane->written[slot].seed = request->seed;
		lane->written[slot].length = request->length;
		break;
	case IBV_WR_RDMA_READ:
		CHECK(holds(bytes, request->length, request->seed));
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		memcpy(&original, bytes, 8);
		CHECK(original == request->expected);
		break;
	default:
		break;
	}
}

static enum ibv_wc_opcode opcode_of(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return IBV_WC_SEND;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	default:
		return IBV_WC_RDMA_WRITE;
	}
}

/* The first failure of a queue pair is that of a silent peer, or it was flushed; all that follows was flushed. */
static void check_failure(struct link *link, struct lane *lane, const struct ibv_wc *wc)
{
	int permitted = link->killed_at != 0 || lane->closed;
	int known = wc->status == IBV_WC_WR_FLUSH_ERR || (wc->status == IBV_WC_RETRY_EXC_ERR && !lane->failed);

	if (!permitted || !known)
		fprintf(stderr, "%s: queue pair %#x, request %#lx: %s%s\n", link->name, wc->qp_num, (long)wc->wr_id,
			ibv_wc_status_str(wc->status), permitted ? "" : " though nobody was killed");
	CHECK(permitted && known);
	lane->failed = 1;
}

static void take_send(struct link *link, int number, const struct ibv_wc *wc)
{
	struct lane *lane = &link->lanes[number];

	for (;;) {
		unsigned slot = lane->first;
		struct request *request = &lane->requests[slot];

		/* Not one that has completed before, nor one that was never posted. */
		CHECK(lane->under_way > 0);
		lane->first = (slot + 1) % DEPTH;
		lane->under_way--;
		if (request->id != wc->wr_id) {
			/* A silent one before it, which succeeded. */
			CHECK(!request->signaled && !lane->send_failed);
			finish_request(link, number, slot);
			continue;
		}
		if (wc->status == IBV_WC_SUCCESS) {
			CHECK(request->signaled && !lane->send_failed);
			CHECK(wc->opcode == opcode_of(request->opcode));
			finish_request(link, number, slot);
		} else {
			check_failure(link, lane, wc);
			lane->send_failed = 1;
		}
		return;
	}
}

static void take_receive(struct link *link, int number, const struct ibv_wc *wc)
{
	struct lane *lane = &link->lanes[number];
	unsigned slot = lane->receives_done % RECEIVES, header = number == UD ? GRH : 0;
	const char *bytes = link->buffer_bytes + receive_buffer(number, slot);

	CHECK(wc->wr_id == id_of(number, 1, lane->receives_done) && lane->receives_done < lane->receives_posted);
	lane->receives_done++;
	if (wc->status != IBV_WC_SUCCESS) {
		CHECK(wc->status == IBV_WC_WR_FLUSH_ERR);
		check_failure(link, lane, wc);
		return;
	}
	link->done++;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		unsigned written = be32toh(wc->imm_data);

		CHECK(written < AREAS && wc->wc_flags & IBV_WC_WITH_IMM);
		/* UC has no flow control: the next one may lie there already. */
		if (number != UC)
			CHECK(is_message(link->reachable_bytes + area(number, written), wc->byte_len));
	} else {
		CHECK(wc->opcode == IBV_WC_RECV && wc->byte_len > header);
		CHECK(is_message(bytes + header, wc->byte_len - header));
		if (wc->wc_flags & IBV_WC_WITH_IMM)
			CHECK(be32toh(wc->imm_data) == wc->byte_len - header);
	}
	if (!lane->failed && !lane->closed)
		post_receive(link, number);
}

void take_completions(struct link *link)
{
	struct ibv_wc wc[16];
	int found = ibv_poll_cq(link->cq, 16, wc);

	CHECK(found >= 0);
	for (int i = 0; i < found; i++) {
		int lane = wc[i].wr_id >> 60;

		CHECK(lane < LANES && wc[i].qp_num == link->lanes[lane].qp->qp_num);
		if (wc[i].wr_id >> 56 & 1)
			take_receive(link, lane, &wc[i]);
		else
			take_send(link, lane, &wc[i]);
	}
}

void close_lane(struct lane *lane)
{
	lane->closed = 1;
	to_error(lane->qp);
}

int is_flushed(const struct lane *lane)
{
	/* A silent one that succeeded says nothing, if none comes after it. */
	int silent = lane->under_way == 1 && !lane->send_failed && !lane->requests[lane->first].signaled;

	return (lane->under_way == 0 || silent) && lane->receives_done == lane->receives_posted;
}

void drain(struct link *link)
{
	double end = seconds() + PATIENCE_SECONDS;

	for (int i = 0; i < LANES; i++) {
		struct lane *lane = &link->lanes[i];

		while (lane->under_way) {
			/* A silent one says nothing until one behind it does. */
			if (lane->under_way == 1 && !lane->requests[lane->first].signaled)
				post_request(link, i);
			take_completions(link);
			CHECK(seconds() < end);
		}
	}
}

void destroy_link(struct link *link)
{
	for (int i = 0; i < LANES; i++) {
		if (link->lanes[i].qp)
			CHECK(ibv_destroy_qp(link->lanes[i].qp) == 0);
	}
	if (link->ah)
		CHECK(ibv_destroy_ah(link->ah) == 0);
	if (link->reachable)
		CHECK(ibv_dereg_mr(link->reachable) == 0);
	if (link->buffers)
		CHECK(ibv_dereg_mr(link->buffers) == 0);
	CHECK(ibv_destroy_cq(link->cq) == 0);
	CHECK(ibv_dealloc_pd(link->pd) == 0);
}
