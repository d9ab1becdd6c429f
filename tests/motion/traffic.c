/* Both ends' traffic. */
#include "motion.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define IN_FLIGHT 4 /* slots of an end's own requests */
#define RECEIVES 2
#define RECEIVE_ID 0x100
#define WITH_RDMA 0x80000000u

struct message {
	enum { HELLO, READY, ENOUGH_SEEN, FINISH } type;
	uint32_t epoch, qp_num, psn;
	/* What may be written, and what may be read. */
	uint64_t target, source;
	uint32_t target_key, source_key;
};

struct request {
	bool under_way;
	enum kind kind;
	size_t offset, length;
	uint64_t generation; /* of the moving memory, when it was posted */
};

struct end {
	int number, control;
	const struct settings *settings;
	bool fails_allowed, zeroes, replaces;
	struct mover *mover; /* of the moving end */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *source_mr, *target_mr;
	char *memory, *source, *target; /* of the end that does not move: pages around, then source, then target */
	size_t slot, length;
	uint32_t epoch, psn;
	struct request requests[IN_FLIGHT];
	uint64_t receive_generation[RECEIVES];
	size_t sends, receives, receives_under_way; /* of this connection */
	bool broken, draining, hello, ready, enough, peer_enough, finish, lazy;
	struct random random;
	double began;
	size_t good[KINDS], bad[KINDS], received, connections, compared;
	size_t bad_status[64];
	struct message peer; /* its greeting */
};

struct ibv_pd *pd_of(struct end *end)
{
	return end->pd;
}

static void tell(struct end *end, struct message message)
{
	CHECK(send(end->control, &message, sizeof(message), MSG_NOSIGNAL) == sizeof(message));
}

static void hear(struct end *end, int timeout)
{
	struct pollfd fd = { .fd = end->control, .events = POLLIN };
	struct message message;
	ssize_t length;

	while (poll(&fd, 1, timeout) == 1) {
		length = recv(end->control, &message, sizeof(message), MSG_DONTWAIT);
		if (length == 0 && end->finish)
			return;
		if (length != sizeof(message))
			VIOLATION("end %d: its peer has ended (%zd, errno %d)", end->number, length, errno);
		switch (message.type) {
		case HELLO:
			CHECK(message.epoch == end->epoch + 1 || (message.epoch == end->epoch && !end->hello));
			end->peer = message;
			end->hello = true;
			break;
		case READY:
			CHECK(message.epoch == end->epoch);
			end->ready = true;
			break;
		case ENOUGH_SEEN:
			end->peer_enough = true;
			break;
		case FINISH:
			end->finish = true;
			break;
		}
		timeout = 0;
	}
}

/* The moving memory is touched by way of the kernel, which says when it is not there. */
static bool peek(const struct end *end, size_t offset, char *into, size_t length)
{
	struct iovec here = { into, length };
	struct iovec there = { (void *)(uintptr_t)(what_is_published(end->mover).address + offset), length };

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)length;
}

/* Sets the bytes back that a READ is to replace; false if the memory has another use now. */
static bool poke(const struct end *end, size_t offset, size_t length)
{
	struct iovec here = { malloc(length), length };
	struct iovec there = { (void *)(uintptr_t)(what_is_published(end->mover).address + offset), length };
	bool done = false;

	CHECK(here.iov_base);
	fill(here.iov_base, MOVER, offset, length);
	if (pthread_mutex_trylock(&end->mover->renewing) == 0) {
		done = process_vm_writev(getpid(), &here, 1, &there, 1, 0) == (ssize_t)length;
		pthread_mutex_unlock(&end->mover->renewing);
	}
	free(here.iov_base);
	return done;
}

static void check_moving(struct end *end, enum kind kind, size_t offset, size_t length, uint64_t generation)
{
	char *bytes = malloc(length);
	size_t wrong;

	CHECK(bytes);
	if (length && peek(end, offset, bytes, length) && generation % 2 == 0 &&
	    generation == atomic_load(&end->mover->generation)) {
		wrong = first_wrong(bytes, offset, length, end->zeroes || end->replaces, true, end->zeroes);
		end->compared++;
		if (wrong != length)
			VIOLATION("kind %d: %zu bytes arrived at offset %zu of the moving memory: byte %zu is 0x%02x", kind,
				  length, offset, wrong, (unsigned char)bytes[wrong]);
	}
	free(bytes);
}

static void check_target(struct end *end, enum kind kind, size_t offset, size_t length)
{
	size_t wrong = first_wrong(end->target + offset, offset, length, true, true, end->zeroes);

	end->compared++;
	if (wrong != length)
		VIOLATION("kind %d: %zu bytes arrived from offset %zu of the moving memory: byte %zu is 0x%02x", kind, length,
			  offset, wrong, (unsigned char)end->target[offset + wrong]);
}

/* Only so much of a slot was to be written. */
static void check_rest_of_slot(struct end *end, size_t offset, size_t length)
{
	size_t slot = offset / end->slot * end->slot, behind = offset + length, wrong;

	wrong = first_filled(end->target + slot, offset - slot);
	if (wrong != offset - slot)
		VIOLATION("byte %zu was changed, %zu before what was to be", slot + wrong, offset - slot - wrong);
	wrong = first_filled(end->target + behind, slot + end->slot - behind);
	if (wrong != slot + end->slot - behind)
		VIOLATION("byte %zu was changed, %zu behind what was to be", behind + wrong, wrong);
}

/* Whatever happened: what the moving end keeps for itself has not come here, and nothing was written beside the region. */
static void check_steady(struct end *end)
{
	size_t page = page_size(), whole = end->slot * SLOTS, wrong;

	for (size_t i = 0; i < whole; i++) {
		unsigned char byte = end->target[i];

		if (byte != EMPTY && byte != 0 && byte != pattern(MOVER, i) && byte != pattern(PEER, i))
			VIOLATION("byte %zu of the target is 0x%02x", i, byte);
	}
	wrong = first_not(end->source, PEER, 0, end->length);
	if (wrong != end->length)
		VIOLATION("byte %zu of what is only read was changed", wrong);
	CHECK(first_not(end->memory, AROUND, 0, page) == page);
	CHECK(first_not(end->source + end->length, AROUND, page, page) == page);
	CHECK(first_not(end->target + end->length, AROUND, 2 * page, page) == page);
}

static void post_receive(struct end *end)
{
	size_t place = end->receives % RECEIVES;
	size_t offset = (4 * (1 - end->number) + 2 + place) * end->slot;
	struct ibv_sge sge = { .length = end->slot };
	struct ibv_recv_wr wr = { .wr_id = RECEIVE_ID + place, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct published own;

	if (end->mover) {
		end->receive_generation[place] = atomic_load(&end->mover->generation);
		own = what_is_published(end->mover);
		sge.addr = own.address + offset;
		sge.lkey = own.lkey;
	} else {
		memset(end->target + offset, EMPTY, end->slot);
		sge.addr = (uintptr_t)end->target + offset;
		sge.lkey = end->target_mr->lkey;
	}
	CHECK(ibv_post_recv(end->qp, &wr, &bad) == 0);
	end->receives++;
	end->receives_under_way++;
}

static const enum ibv_wr_opcode opcodes[KINDS] = {
	[SEND] = IBV_WR_SEND_WITH_IMM, [WRITE] = IBV_WR_RDMA_WRITE, [WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[READ] = IBV_WR_RDMA_READ, [FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD, [COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

static size_t drawn_length(struct end *end)
{
	switch (random_below(&end->random, 4)) {
	case 0: return 1 + random_below(&end->random, 64);
	case 1: return 1 + random_below(&end->random, page_size());
	case 2: return end->slot;
	default: return 1 + random_below(&end->random, end->slot);
	}
}

static void post_request(struct end *end)
{
	struct ibv_sge sge[2] = { 0 };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
	enum kind kind = random_below(&end->random, KINDS);
	struct published own = { 0 };
	struct request *request;
	char own_bytes[32];
	size_t place, cut;
	int error;

	/* A SEND's place is that of the receive that it will find. */
	place = kind == SEND ? 2 + end->sends % RECEIVES : random_below(&end->random, 2);
	request = &end->requests[place];
	if (request->under_way)
		return;
	*request = (struct request){ .kind = kind, .length = drawn_length(end) };
	request->offset = (4 * end->number + place) * end->slot;
	if (kind != SEND)
		request->offset += random_below(&end->random, end->slot - request->length + 1);
	if (kind >= FETCH_ADD) {
		/* Words behind the slots: one that is added to, and places for answers. */
		request->offset = SLOTS * end->slot + 64 + 8 * (2 * end->number + place);
		request->length = 8;
	}
	if (end->mover) {
		bool poked = kind != READ || poke(end, request->offset, request->length);

		request->generation = poked ? atomic_load(&end->mover->generation) : 1;
		own = what_is_published(end->mover);
		sge[0].addr = own.address + request->offset;
		sge[0].lkey = own.lkey;
	} else if (kind >= READ) {
		if (kind == READ)
			memset(end->target + request->offset / end->slot * end->slot, EMPTY, end->slot);
		sge[0].addr = (uintptr_t)end->target + request->offset;
		sge[0].lkey = end->target_mr->lkey;
	} else {
		sge[0].addr = (uintptr_t)end->source + request->offset;
		sge[0].lkey = end->source_mr->lkey;
	}
	sge[0].length = request->length;
	if (kind < FETCH_ADD && request->length > 1 && random_below(&end->random, 4) == 0) {
		cut = 1 + random_below(&end->random, request->length - 1);
		sge[1] = (struct ibv_sge){ sge[0].addr + cut, request->length - cut, sge[0].lkey };
		sge[0].length = cut;
		wr.num_sge = 2;
	}
	if (kind < READ && request->length <= sizeof(own_bytes) && random_below(&end->random, 2) == 0) {
		wr.send_flags |= IBV_SEND_INLINE;
		/* The call itself reads these bytes, and asks for no key: to pass it memory that is being unmapped is as wrong
		 * as to pass it to memcpy. */
		if (end->mover) {
			fill(own_bytes, MOVER, request->offset, request->length);
			sge[1].addr = (uintptr_t)own_bytes + (sge[1].addr - sge[0].addr);
			sge[0].addr = (uintptr_t)own_bytes;
		}
	}
	wr.wr_id = place;
	wr.opcode = opcodes[kind];
	if (kind >= FETCH_ADD) {
		wr.wr.atomic.remote_addr = end->peer.target + SLOTS * end->slot + 8 * end->number;
		wr.wr.atomic.rkey = end->peer.target_key;
		wr.wr.atomic.compare_add = kind == FETCH_ADD ? 1 : UINT64_MAX;
	} else {
		wr.wr.rdma.remote_addr = (kind == READ ? end->peer.source : end->peer.target) + request->offset;
		wr.wr.rdma.rkey = kind == READ ? end->peer.source_key : end->peer.target_key;
		wr.imm_data = htobe32((kind == WRITE_IMM ? WITH_RDMA : 0) | request->offset);
	}
	error = ibv_post_send(end->qp, &wr, &bad);
	if (error)
		VIOLATION("end %d: ibv_post_send of kind %d gives %d", end->number, kind, error);
	request->under_way = true;
	if (kind == SEND || kind == WRITE_IMM)
		end->sends++;
}

static void take_receive(struct end *end, const struct ibv_wc *wc)
{
	size_t place = wc->wr_id - RECEIVE_ID, offset;
	uint32_t what = be32toh(wc->imm_data);
	enum kind kind = what & WITH_RDMA ? WRITE_IMM : SEND;

	CHECK(end->receives_under_way > 0);
	end->receives_under_way--;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	CHECK(wc->wc_flags & IBV_WC_WITH_IMM);
	offset = what & ~WITH_RDMA;
	CHECK(offset + wc->byte_len <= end->slot * SLOTS);
	end->received++;
	if (end->mover) {
		check_moving(end, kind, offset, wc->byte_len, end->receive_generation[place]);
	} else {
		check_target(end, kind, offset, wc->byte_len);
		if (kind == SEND)
			check_rest_of_slot(end, offset, wc->byte_len);
	}
	if (kind == SEND)
		CHECK(offset / end->slot == 4u * (1 - end->number) + 2 + place);
}

static void take_completion(struct end *end, const struct ibv_wc *wc)
{
	struct request *request;

	if (wc->status != IBV_WC_SUCCESS) {
		CHECK(wc->status < 64);
		end->bad_status[wc->status]++;
		end->broken = true;
		/* The peer says that it comes to its end before it does. */
		if (!end->fails_allowed && !end->draining)
			hear(end, 0);
		if (!end->fails_allowed && !end->draining && !end->finish)
			VIOLATION("end %d: a request ended with %s", end->number, ibv_wc_status_str(wc->status));
	}
	if (wc->wr_id >= RECEIVE_ID) {
		take_receive(end, wc);
		return;
	}
	CHECK(wc->wr_id < IN_FLIGHT);
	request = &end->requests[wc->wr_id];
	CHECK(request->under_way);
	request->under_way = false;
	if (wc->status != IBV_WC_SUCCESS) {
		end->bad[request->kind]++;
		return;
	}
	end->good[request->kind]++;
	if (request->kind != READ)
		return;
	if (end->mover) {
		check_moving(end, READ, request->offset, request->length, request->generation);
	} else {
		check_target(end, READ, request->offset, request->length);
		check_rest_of_slot(end, request->offset, request->length);
	}
}

static int poll_completions(struct end *end)
{
	struct ibv_wc wc[8];
	int found = ibv_poll_cq(end->cq, 8, wc);

	CHECK(found >= 0);
	for (int i = 0; i < found; i++) {
		take_completion(end, &wc[i]);
		if (wc[i].wr_id >= RECEIVE_ID && wc[i].status == IBV_WC_SUCCESS)
			post_receive(end);
	}
	return found;
}

static void make_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 32 },
	};

	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp);
}

/* Every request that was posted has a completion, although the connection is broken. */
static void drain(struct end *end)
{
	double limit = seconds() + PATIENCE_SECONDS;
	struct ibv_wc wc[8];
	int found, under_way;

	end->draining = true;
	to_state(end->qp, IBV_QPS_ERR);
	do {
		found = ibv_poll_cq(end->cq, 8, wc);
		CHECK(found >= 0);
		for (int i = 0; i < found; i++)
			take_completion(end, &wc[i]);
		under_way = end->receives_under_way;
		for (int i = 0; i < IN_FLIGHT; i++)
			under_way += end->requests[i].under_way;
		if (seconds() > limit)
			VIOLATION("end %d: %d requests never completed", end->number, under_way);
	} while (under_way);
	end->draining = false;
}

static void tear_down(struct end *end)
{
	drain(end);
	if (!end->mover)
		check_steady(end);
	if (random_below(&end->random, 4) == 0) {
		CHECK(ibv_destroy_qp(end->qp) == 0);
		make_qp(end);
	} else {
		to_state(end->qp, IBV_QPS_RESET);
	}
}

static void wait_for(struct end *end, bool *what)
{
	double limit = seconds() + PATIENCE_SECONDS;

	while (!*what && !end->finish) {
		hear(end, 100);
		if (seconds() > limit)
			VIOLATION("end %d: its peer does not answer", end->number);
	}
}

static void greet(struct end *end)
{
	struct message hello = { .type = HELLO, .epoch = end->epoch, .qp_num = end->qp->qp_num, .psn = end->psn };
	struct published own;

	if (end->mover) {
		own = what_is_published(end->mover);
		hello.target = hello.source = own.address;
		hello.target_key = hello.source_key = own.rkey;
	} else {
		hello.target = (uintptr_t)end->target;
		hello.target_key = end->target_mr->rkey;
		hello.source = (uintptr_t)end->source;
		hello.source_key = end->source_mr->rkey;
	}
	tell(end, hello);
}

static void connect_end(struct end *end)
{
	struct ibv_qp_attr attr;

	end->epoch++;
	end->connections++;
	end->psn = next_random(&end->random) & 0xffffff;
	end->sends = end->receives = 0;
	end->ready = false;
	to_open_init(end->qp);
	greet(end);
	wait_for(end, &end->hello);
	if (end->finish)
		return;
	CHECK(end->peer.epoch == end->epoch);
	attr = usual_attributes(end->context, end->peer.qp_num);
	attr.qp_state = IBV_QPS_RTR;
	attr.rq_psn = end->peer.psn;
	CHECK(ibv_modify_qp(end->qp, &attr, RTR_MASK(IBV_QPT_RC)) == 0);
	end->broken = end->hello = false;
	for (int i = 0; i < RECEIVES; i++)
		post_receive(end);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = end->psn;
	attr.timeout = 17; /* half a second: no time-out of a busy machine's */
	CHECK(ibv_modify_qp(end->qp, &attr, RTS_MASK(IBV_QPT_RC)) == 0);
	tell(end, (struct message){ .type = READY, .epoch = end->epoch });
	wait_for(end, &end->ready);
}

static void make_steady_memory(struct end *end)
{
	size_t page = page_size();
	size_t bytes = 2 * end->length + 3 * page;

	end->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(end->memory != MAP_FAILED);
	end->source = end->memory + page;
	end->target = end->source + end->length + page;
	fill(end->memory, AROUND, 0, page);
	fill(end->source, PEER, 0, end->length);
	fill(end->source + end->length, AROUND, page, page);
	memset(end->target, EMPTY, end->slot * SLOTS);
	fill(end->target + end->length, AROUND, 2 * page, page);
	end->source_mr = ibv_reg_mr(end->pd, end->source, end->length, IBV_ACCESS_REMOTE_READ);
	end->target_mr = ibv_reg_mr(end->pd, end->target, end->length, ALL_ACCESS);
	CHECK(end->source_mr && end->target_mr);
}

struct end *make_end(int number, int control, const struct settings *settings, size_t slot, struct mover *mover,
		     struct ibv_context *context)
{
	struct end *end = calloc(1, sizeof(*end));
	const struct move *move = move_named(settings->move);

	CHECK(end && move);
	end->number = number;
	end->control = control;
	end->settings = settings;
	end->fails_allowed = move->flags & FAULTS;
	end->zeroes = move->flags & ZEROES;
	end->replaces = move->flags & REPLACES;
	end->mover = mover;
	end->slot = slot;
	end->length = SLOTS * slot + page_size() / 2;
	end->random.state = settings->seed * 2 + number;
	end->lazy = random_below(&end->random, 2);
	end->context = context;
	end->pd = ibv_alloc_pd(context);
	end->cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(end->pd && end->cq);
	make_qp(end);
	if (!mover)
		make_steady_memory(end);
	return end;
}

static bool enough(const struct end *end)
{
	for (int kind = 0; kind < KINDS; kind++) {
		if (end->good[kind] < ENOUGH)
			return false;
	}
	return end->received >= ENOUGH;
}

static void see_whether_enough(struct end *end)
{
	if (!end->enough && enough(end)) {
		end->enough = true;
		tell(end, (struct message){ .type = ENOUGH_SEEN });
	}
	if (end->mover && !end->finish && end->enough && end->peer_enough &&
	    atomic_load(&end->mover->rounds) >= end->settings->rounds) {
		end->finish = true;
		tell(end, (struct message){ .type = FINISH });
	}
}

void run_end(struct end *end)
{
	double limit = seconds() + LIMIT_SECONDS;
	bool used = false;
	size_t turn = 0;

	end->began = seconds();
	connect_end(end);
	while (!end->finish) {
		if (!used && end->mover && end->received > 4) {
			handlers_after();
			used = true;
		}
		if (used)
			handlers_turn(&end->random);
		post_request(end);
		if (poll_completions(end) == 0 && end->lazy)
			usleep(200); /* meanwhile the NIC's own thread does the work */
		if (++turn % 16 == 0 || end->lazy)
			hear(end, 0);
		if (end->finish)
			break;
		if (end->broken || end->hello) {
			tear_down(end);
			connect_end(end);
		}
		see_whether_enough(end);
		if (seconds() > limit)
			VIOLATION("end %d: hangs", end->number);
	}
	drain(end);
	if (!end->mover)
		check_steady(end);
	/* The peer drains too, and would take the end of this process for its death. */
	CHECK(shutdown(end->control, SHUT_WR) == 0);
	while (recv(end->control, &(struct message){ 0 }, sizeof(struct message), 0) > 0)
		continue;
}

void say_end(struct end *end)
{
	static const char *names[KINDS] = { "SEND", "WRITE", "WRITE_IMM", "READ", "FETCH_ADD", "COMPARE_SWAP" };

	printf("end %d: %.1f s, %zu connections, %zu received, %zu compared;", end->number, seconds() - end->began,
	       end->connections, end->received, end->compared);
	for (int kind = 0; kind < KINDS; kind++)
		printf(" %s %zu+%zu", names[kind], end->good[kind], end->bad[kind]);
	for (int status = 0; status < 64; status++) {
		if (end->bad_status[status])
			printf("; %zu %s", end->bad_status[status], ibv_wc_status_str(status));
	}
	printf("\n");
	fflush(stdout);
}
