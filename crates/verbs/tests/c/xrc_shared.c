/*
 * An XRC domain that processes share by a file (ibv_open_xrcd(3)): requests that come to a queue pair of one process, for shared receive queues
 * and memory of another; queue pairs that other processes have opened; and the end of each process at any time.
 */
#include "xrc_members.h"

#define LONG 50000
#define OFFSET 4096

/* The queue pair is the host's, queue and memory are the owner's, and this process sends. */
static struct member host, owner;
static struct ibv_qp *sender;
static uint32_t receiver;
static struct ibv_wc wc;
static int file;

static void post(enum ibv_wr_opcode opcode, const struct member *to, uint32_t length, uint64_t offset)
{
	post_to(sender, opcode, to->queue, length, to->key, to->address + offset);
}

static void finished(enum ibv_wc_status status)
{
	poll_all(own.cq, 1, &wc);
	if (wc.status != status) fprintf(stderr, "status %d: %s\n", wc.status, ibv_wc_status_str(wc.status));
	CHECK(wc.status == status && wc.qp_num == sender->qp_num);
}

static void drain(void)
{
	while (ibv_poll_cq(own.cq, 1, &wc) > 0)
		;
}

static void connect_all(int rnr_retry)
{
	must(&host, CONNECT, sender->qp_num, 0, 0);
	connect_xrc_sender(sender, receiver, rnr_retry);
}

static void connect_again(int rnr_retry)
{
	to_state(sender, IBV_QPS_RESET);
	must(&host, RESET, 0, 0, 0);
	drain();
	connect_all(rnr_retry);
}

static void arrived(struct member *at, uint64_t wr_id, uint32_t length, uint32_t immediate)
{
	struct answer answer = must(at, COMPLETION, 0, 0, 0);

	CHECK(answer.values[1] == IBV_WC_SUCCESS && answer.values[0] == wr_id && answer.values[2] == length);
	CHECK(answer.values[3] == receiver && answer.values[4] == immediate);
}

static int holds(struct member *member, uint64_t offset, uint64_t length, char value)
{
	return must(member, HOLDS, offset, length, value).values[0];
}

/* Messages for both processes, in any order, of one packet, of many, and of none. */
static void messages(void)
{
	static const uint32_t lengths[] = { 1, 0, 100, 1024, 1025, LONG };

	for (int i = 0; i < 12; i++) {
		struct member *to = i % 3 ? &owner : &host;
		uint32_t length = lengths[i / 2];
		int immediate = i % 2;

		memset(own.memory, 'a' + i, LONG);
		must(to, RECEIVE, 10 + i, SPACE, 0);
		post(immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, to, length, 0);
		finished(IBV_WC_SUCCESS);
		arrived(to, 10 + i, length, immediate ? 7 : 0);
		CHECK(holds(to, 0, length, 'a' + i));
	}
	/* Several under way. */
	for (int i = 0; i < 8; i++) {
		must(&owner, RECEIVE, i, SPACE, 0);
		must(&host, RECEIVE, i, SPACE, 0);
	}
	for (int i = 0; i < 8; i++) {
		post(IBV_WR_SEND, &owner, 3000 + i, 0);
		post(IBV_WR_SEND, &host, 3000 + i, 0);
	}
	for (int i = 0; i < 16; i++)
		finished(IBV_WC_SUCCESS);
	for (int i = 0; i < 8; i++) {
		arrived(&owner, i, 3000 + i, 0);
		arrived(&host, i, 3000 + i, 0);
	}
}

static void flush_owner(enum ibv_wc_status status)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(sender);

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	wr_flush(qp, owner.key, owner.address, 8, FLUSH_GLOBAL, FLUSH_RANGE);
	ibv_wr_set_xrc_srqn(qp, owner.queue);
	CHECK(ibv_wr_complete(qp) == 0);
	finished(status);
}

static void remote_memory(void)
{
	struct answer answer;

	memset(own.memory, 'w', LONG);
	post(IBV_WR_RDMA_WRITE, &owner, LONG, OFFSET);
	finished(IBV_WC_SUCCESS);
	CHECK(holds(&owner, OFFSET, LONG, 'w') && !holds(&owner, OFFSET + LONG, 1, 'w'));

	memset(own.memory, 'i', LONG);
	must(&owner, RECEIVE, 40, 0, 0);
	post(IBV_WR_RDMA_WRITE_WITH_IMM, &owner, LONG, OFFSET);
	finished(IBV_WC_SUCCESS);
	answer = must(&owner, COMPLETION, 0, 0, 0);
	CHECK(answer.values[5] == IBV_WC_RECV_RDMA_WITH_IMM && answer.values[0] == 40 && answer.values[2] == LONG && answer.values[4] == 7);
	CHECK(holds(&owner, OFFSET, LONG, 'i'));

	must(&owner, FILL, 0, SPACE, 'r');
	memset(own.memory, 0, SPACE);
	post(IBV_WR_RDMA_READ, &owner, SPACE, 0);
	finished(IBV_WC_SUCCESS);
	CHECK(own.memory[0] == 'r' && !memcmp(own.memory, own.memory + 1, SPACE - 1));
	/* READs of both processes under way at once. */
	must(&host, FILL, 0, SPACE, 'h');
	for (int i = 0; i < 6; i++)
		post(IBV_WR_RDMA_READ, i % 2 ? &host : &owner, LONG, OFFSET);
	for (int i = 0; i < 6; i++)
		finished(IBV_WC_SUCCESS);
	CHECK(own.memory[0] == 'h' && !memcmp(own.memory, own.memory + 1, LONG - 1));

	must(&owner, POKE, OFFSET, 41, 0);
	for (int i = 0; i < 20; i++) {
		post(IBV_WR_ATOMIC_FETCH_AND_ADD, &owner, 8, OFFSET);
		finished(IBV_WC_SUCCESS);
		CHECK(*(uint64_t *)own.memory == 41u + i);
	}
	CHECK(must(&owner, PEEK, OFFSET, 0, 0).values[0] == 61);
	flush_owner(IBV_WC_SUCCESS);
	post(IBV_WR_RDMA_WRITE, &owner, 0, OFFSET);
	finished(IBV_WC_SUCCESS);
}

static void refused(enum ibv_wr_opcode opcode, struct member to, uint32_t length, uint64_t offset, enum ibv_wc_status status)
{
	post(opcode, &to, length, offset);
	finished(status);
	CHECK(must(&host, QUERY, 0, 0, 0).values[0] == IBV_QPS_ERR);
	connect_again(7);
}

static void refused_requests(void)
{
	struct member unknown = owner, nobody = owner, wrong = owner;
	struct answer answer;

	/* No queue of the process, and no process. */
	unknown.queue ^= 0x80;
	nobody.queue ^= 0x800000;
	wrong.key ^= 0x55;
	refused(IBV_WR_SEND, unknown, 8, 0, IBV_WC_REM_INV_REQ_ERR);
	refused(IBV_WR_SEND, nobody, 8, 0, IBV_WC_REM_INV_REQ_ERR);
	refused(IBV_WR_RDMA_READ, nobody, 8, 0, IBV_WC_REM_INV_REQ_ERR);
	refused(IBV_WR_RDMA_WRITE, wrong, LONG, 0, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_RDMA_READ, wrong, 8, 0, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_ATOMIC_FETCH_AND_ADD, wrong, 8, 0, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_RDMA_WRITE, owner, 64, SPACE - 63, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_RDMA_READ, owner, 64, SPACE - 63, IBV_WC_REM_ACCESS_ERR);
	/* A receive that is too short fails there, and here. */
	must(&owner, RECEIVE, 50, 4, 0);
	refused(IBV_WR_SEND, owner, 8, 0, IBV_WC_REM_INV_REQ_ERR);
	answer = must(&owner, COMPLETION, 0, 0, 0);
	CHECK(answer.values[0] == 50 && answer.values[1] == IBV_WC_LOC_LEN_ERR && answer.values[3] == receiver);
}

/* A message that finds no receive waits for it, and those behind it wait, too. */
static void empty_queue(void)
{
	must(&host, RECEIVE, 61, SPACE, 0);
	memset(own.memory, 'n', LONG);
	post(IBV_WR_SEND, &owner, LONG, 0);
	post(IBV_WR_SEND, &host, 64, 0);
	must(&host, NO_COMPLETION, 0, 0, 0);
	must(&owner, RECEIVE, 60, SPACE, 0);
	finished(IBV_WC_SUCCESS);
	finished(IBV_WC_SUCCESS);
	arrived(&owner, 60, LONG, 0);
	arrived(&host, 61, 64, 0);
	CHECK(holds(&owner, 0, LONG, 'n'));
	connect_again(0);
	post(IBV_WR_SEND, &owner, 8, 0);
	finished(IBV_WC_RNR_RETRY_EXC_ERR);
	connect_again(7);
}

/* Each opener may change a queue pair, which lives as long as one has it open. */
static void opened_elsewhere(void)
{
	struct answer answer;

	CHECK(ask(&owner, OPEN, receiver ^ 1, 0, 0).error == EINVAL);
	must(&owner, OPEN, receiver, 0, 0);
	answer = must(&owner, QUERY, 0, 0, 0);
	CHECK(answer.values[0] == IBV_QPS_RTS && answer.values[1] == sender->qp_num);
	must(&owner, TIMER, 9, 0, 0);
	CHECK(must(&host, QUERY, 0, 0, 0).values[2] == 9);
	CHECK(ask(&owner, TIMER, 77, 0, 0).error == EINVAL);
	CHECK(ask(&owner, LEAVE, 0, 0, 0).error == EBUSY);
	owner.queue = 0;
	must(&owner, DESTROY, 0, 0, 0);
	must(&owner, LEAVE, 0, 0, 0);
	join(&owner);

	/* The one that has made it closes it first, and leaves. */
	must(&owner, OPEN, receiver, 0, 0);
	must(&host, DESTROY, 0, 0, 0);
	must(&owner, RECEIVE, 70, SPACE, 0);
	post(IBV_WR_SEND, &owner, 64, 0);
	finished(IBV_WC_SUCCESS);
	arrived(&owner, 70, 64, 0);
	must(&host, LEAVE, 0, 0, 0);
	must(&owner, RECEIVE, 71, SPACE, 0);
	post(IBV_WR_SEND, &owner, 64, 0);
	finished(IBV_WC_SUCCESS);
	arrived(&owner, 71, 64, 0);
	/* It comes back, and opens it as any other. */
	join(&host);
	must(&host, OPEN, receiver, 0, 0);
	must(&owner, DESTROY, 0, 0, 0);
	must(&host, RECEIVE, 72, SPACE, 0);
	post(IBV_WR_SEND, &host, 64, 0);
	finished(IBV_WC_SUCCESS);
	arrived(&host, 72, 64, 0);
	CHECK(ask(&host, LEAVE, 0, 0, 0).error == EBUSY);
	must(&host, DESTROY, 0, 0, 0);
	CHECK(ask(&owner, OPEN, receiver, 0, 0).error == EINVAL);
	must(&host, LEAVE, 0, 0, 0);
	join(&host);
	receiver = must(&host, CREATE, 0, 0, 0).values[0];
	to_state(sender, IBV_QPS_RESET);
	drain();
	connect_all(7);
}

static void start(struct member *member)
{
	*member = start_member(file);
	join(member);
}

/* The owner of the queue ends: nobody has the queue any more. What others have goes on. */
static void killed_owner(void)
{
	must(&owner, OPEN, receiver, 0, 0);
	must(&owner, RECEIVE, 1, SPACE, 0);
	post(IBV_WR_SEND, &owner, 64, 0);
	finished(IBV_WC_SUCCESS);
	kill_member(&owner);
	post(IBV_WR_SEND, &owner, 64, 0);
	finished(IBV_WC_REM_INV_REQ_ERR);
	connect_again(7);
	must(&host, RECEIVE, 80, SPACE, 0);
	post(IBV_WR_SEND, &host, 64, 0);
	finished(IBV_WC_SUCCESS);
	arrived(&host, 80, 64, 0);
	/* With requests under way. */
	start(&owner);
	for (int i = 0; i < DEPTH; i++)
		must(&owner, RECEIVE, i, SPACE, 0);
	for (int i = 0; i < DEPTH; i++)
		post(IBV_WR_SEND, &owner, LONG, 0);
	kill_member(&owner);
	for (int i = 0; i < DEPTH; i++) {
		poll_all(own.cq, 1, &wc);
		CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
	}
	start(&owner);
	connect_again(7);
}

/*
 * The owner is stopped: what is for it waits, and nothing else. A queue pair ends when the owner does nothing for it any more, and is waited for no
 * longer than two seconds.
 */
static void stopped_owner(void)
{
	stop(&owner);
	memset(own.memory, 's', LONG);
	post(IBV_WR_RDMA_WRITE, &owner, LONG, OFFSET);
	/* The host has it by then. The retries of the sender take 500 ms. */
	for (int i = 0; i < 8; i++)
		poll_none(own.cq);
	CHECK(ask(&host, RESET, 0, 0, 0).error == EBUSY);
	CHECK(kill(owner.pid, SIGCONT) == 0);
	must(&host, RESET, 0, 0, 0);
	must(&owner, FILL, 0, SPACE, 0);
	to_state(sender, IBV_QPS_RESET);
	drain();
	connect_all(7);
	/* Nothing of the former connection lands. */
	must(&host, RECEIVE, 90, SPACE, 0);
	post(IBV_WR_SEND, &host, 64, 0);
	finished(IBV_WC_SUCCESS);
	arrived(&host, 90, 64, 0);
	CHECK(holds(&owner, 0, SPACE, 0));

	stop(&owner);
	must(&host, RECEIVE, 91, SPACE, 0);
	post(IBV_WR_SEND, &host, 64, 0);
	post(IBV_WR_RDMA_WRITE, &owner, LONG, OFFSET);
	finished(IBV_WC_SUCCESS);
	arrived(&host, 91, 64, 0);
	poll_none(own.cq);
	CHECK(kill(owner.pid, SIGCONT) == 0);
	finished(IBV_WC_SUCCESS);
	CHECK(holds(&owner, OFFSET, LONG, 's'));
}

/* A sender ends. The queue pair serves the next one. */
static void killed_sender(void)
{
	struct member other = start_member(file);

	must(&host, RESET, 0, 0, 0);
	must(&host, CONNECT, must(&other, SEND_TO, 0, 0, 0).values[0], 0, 0);
	must(&owner, RECEIVE, 1, SPACE, 0);
	must(&other, SEND_TO, receiver, owner.queue, LONG);
	CHECK(must(&owner, COMPLETION, 0, 0, 0).values[1] == IBV_WC_SUCCESS);
	must(&other, SEND_TO, receiver, owner.queue, LONG);
	must(&other, SEND_TO, receiver, owner.queue, LONG);
	kill_member(&other);
	connect_again(7);
	must(&owner, RECEIVE, 2, SPACE, 0);
	post(IBV_WR_SEND, &owner, 64, 0);
	finished(IBV_WC_SUCCESS);
	arrived(&owner, 2, 64, 0);
}

/* The process that has made the queue pair ends, and the queue pair with it. Others learn that, and can end what they have. */
static void killed_host(void)
{
	must(&owner, OPEN, receiver, 0, 0);
	kill_member(&host);
	CHECK(ask(&owner, QUERY, 0, 0, 0).error == EIO && ask(&owner, TIMER, 3, 0, 0).error == EIO);
	CHECK(ask(&owner, LEAVE, 0, 0, 0).error == EBUSY);
	owner.queue = 0;
	must(&owner, DESTROY, 0, 0, 0);
	must(&owner, LEAVE, 0, 0, 0);
	join(&owner);
	start(&host);
	receiver = must(&host, CREATE, 0, 0, 0).values[0];
	to_state(sender, IBV_QPS_RESET);
	drain();
	connect_all(7);
	must(&owner, RECEIVE, 3, SPACE, 0);
	post(IBV_WR_SEND, &owner, 64, 0);
	finished(IBV_WC_SUCCESS);
	arrived(&owner, 3, 64, 0);
}

int main(int count, char **arguments)
{
	char name[] = "/tmp/pagewire-xrc-XXXXXX";

	if (count == 3) return be_member(atoi(arguments[1]), atoi(arguments[2]));
	file = mkstemp(name);
	CHECK(file >= 0 && unlink(name) == 0);
	open_objects();
	sender = create_xrc_sender();
	CHECK(sender);
	host = start_member(file);
	CHECK(ask(&host, JOIN, 0, 0, 0).error == EAGAIN);
	join(&host);
	owner = start_member(file);
	CHECK(ask(&owner, JOIN, O_CREAT | O_EXCL, 0, 0).error == EINVAL);
	join(&owner);
	CHECK(host.queue != owner.queue);
	receiver = must(&host, CREATE, 0, 0, 0).values[0];
	connect_all(7);

	messages();
	remote_memory();
	refused_requests();
	empty_queue();
	opened_elsewhere();
	stopped_owner();
	killed_owner();
	killed_sender();
	killed_host();

	must(&host, DESTROY, 0, 0, 0);
	must(&host, LEAVE, 0, 0, 0);
	end_member(&host);
	must(&owner, LEAVE, 0, 0, 0);
	end_member(&owner);
	CHECK(ibv_destroy_qp(sender) == 0 && ibv_dereg_mr(own.mr) == 0);
	REFUSED(open_file_domain(file, 0), EAGAIN);
	CHECK(ibv_destroy_cq(own.cq) == 0 && ibv_dealloc_pd(own.pd) == 0 && ibv_close_device(own.context) == 0);
	return 0;
}
