/* A peer that ends, or is stopped, at one instruction after the other of one operation: nothing that it leaves half done may
 * harm the survivor. */
#define _GNU_SOURCE
#include "companion.h"
#include "leaks.h"
#include "roles.h"
#include "route.h"
#include "tracer.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* As in kill.c. */
#define BOUND 30.0
/* Seconds in which revocation answers while an accessor is stopped: two, and what a busy machine adds. */
#define REVOCATION 4.0
#define GOES_ON 5
#define DEPTH_OF_PAIR 4

/* The memory of each side: a word, then bytes that are written or read by the peer, then bytes to receive into, and guards. */
#define MEMORY (256ul << 10)
#define TARGET (64ul << 10)
#define RECEIVED (160ul << 10)
#define LONG (64u << 10)

/* The shortest route of so many is kept: stepping is slow, and timers run out meanwhile. */
#define RECORDINGS 3
/* A file that holds no route: the victim steps. */
#define NOWHERE "/dev/null"

#define SURVIVORS 0x5eed0
#define VICTIMS 0x5eed1

static const struct operation {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	/* The survivor asks, the victim answers. */
	int answered;
} operations[] = {
	{ "send", IBV_WR_SEND, 64, 0 },
	{ "send-long", IBV_WR_SEND, LONG, 0 },
	{ "write", IBV_WR_RDMA_WRITE, 64, 0 },
	{ "write-long", IBV_WR_RDMA_WRITE, LONG, 0 },
	{ "write-immediate", IBV_WR_RDMA_WRITE_WITH_IMM, 64, 0 },
	{ "read", IBV_WR_RDMA_READ, 64, 0 },
	{ "read-long", IBV_WR_RDMA_READ, LONG, 0 },
	{ "fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0 },
	{ "take-send", IBV_WR_SEND, 64, 1 },
	{ "take-send-long", IBV_WR_SEND, LONG, 1 },
	{ "take-write-immediate", IBV_WR_RDMA_WRITE_WITH_IMM, 64, 1 },
	{ "take-fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1 },
};

/* A message that says nothing. */
static const struct operation probe = { "probe", IBV_WR_SEND, 8, 1 };

/* One queue pair and its memory. */
struct pair {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
	uint32_t key;
	uint64_t address;
	/* Receives and requests, posted and completed, and how many of them did not succeed. */
	unsigned receives, received, requests, completed, failed;
};

struct hello {
	uint32_t number, key;
	uint64_t address;
};

static const struct operation *operation_called(const char *name)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		if (strcmp(operations[i].name, name) == 0)
			return &operations[i];
	}
	fprintf(stderr, "no operation is called %s\n", name);
	exit(2);
}

static void make_pair(struct pair *pair, struct ibv_context *context, char *memory, uint64_t contents)
{
	struct ibv_qp_init_attr init;
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(pair, 0, sizeof(*pair));
	pair->context = context;
	pair->memory = memory;
	fill(memory, MEMORY, contents);
	memset(memory, 0, 8);
	CHECK(pair->pd = ibv_alloc_pd(context));
	CHECK(pair->cq = ibv_create_cq(context, 4 * DEPTH_OF_PAIR, NULL, NULL, 0));
	CHECK(pair->mr = ibv_reg_mr(pair->pd, memory, MEMORY, ALL_ACCESS));
	init = plain_attributes(pair->cq, IBV_QPT_RC);
	CHECK(pair->qp = ibv_create_qp(pair->pd, &init));
	to_open_init(pair->qp);
	sge = (struct ibv_sge){ (uintptr_t)memory + RECEIVED, LONG, pair->mr->lkey };
	for (; pair->receives < DEPTH_OF_PAIR; pair->receives++) {
		wr.wr_id = pair->receives;
		CHECK(ibv_post_recv(pair->qp, &wr, &bad) == 0);
	}
}

static void greet(struct pair *pair, int socket, uint8_t timeout)
{
	struct hello hello = { pair->qp->qp_num, pair->mr->rkey, (uintptr_t)pair->memory };
	struct ibv_qp_attr attr;
	char ready = 'r';

	CHECK(tell(socket, &hello, sizeof(hello)) && hear(socket, &hello, sizeof(hello)));
	pair->key = hello.key;
	pair->address = hello.address;
	attr = usual_attributes(pair->context, hello.number);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(pair->qp, &attr, RTR_MASK(IBV_QPT_RC)) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = timeout;
	CHECK(ibv_modify_qp(pair->qp, &attr, RTS_MASK(IBV_QPT_RC)) == 0);
	CHECK(tell(socket, &ready, 1) && hear(socket, &ready, 1));
}

static void post(struct pair *pair, const struct operation *operation)
{
	/* What READ and atomics bring goes where receives would go: no message comes meanwhile. */
	int brings = operation->opcode == IBV_WR_RDMA_READ || operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct ibv_sge sge = { (uintptr_t)pair->memory + (brings ? RECEIVED : TARGET), operation->length, pair->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 100 + pair->requests, .sg_list = &sge, .num_sge = 1, .opcode = operation->opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = pair->address;
		wr.wr.atomic.rkey = pair->key;
		wr.wr.atomic.compare_add = 1;
	} else if (operation->opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = pair->address + TARGET;
		wr.wr.rdma.rkey = pair->key;
	}
	CHECK(ibv_post_send(pair->qp, &wr, &bad) == 0);
	pair->requests++;
}

/* What may go wrong: with a peer that is silent, or with one whose memory, or one's own, is registered no more. */
enum trouble { NONE, SILENCE, REVOKED };

static void check_failure(uint64_t id, enum ibv_wc_status status, enum trouble trouble)
{
	int silence = status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR;
	int revoked = status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR;
	int permitted = (trouble >= SILENCE && silence) || (trouble == REVOKED && revoked);

	if (!permitted)
		fprintf(stderr, "request %llu: %s\n", (unsigned long long)id, ibv_wc_status_str(status));
	CHECK(permitted);
}

/* Each of them once, and in its order. */
static void take(struct pair *pair, enum trouble trouble)
{
	struct ibv_wc wc[4];
	int found = ibv_poll_cq(pair->cq, 4, wc);

	CHECK(found >= 0);
	for (int i = 0; i < found; i++) {
		if (wc[i].wr_id >= 100)
			CHECK(wc[i].wr_id == 100 + pair->completed++ && pair->completed <= pair->requests);
		else
			CHECK(wc[i].wr_id == pair->received++ && pair->received <= pair->receives);
		if (wc[i].status == IBV_WC_SUCCESS) {
			CHECK(pair->failed == 0);
			continue;
		}
		check_failure(wc[i].wr_id, wc[i].status, trouble);
		pair->failed++;
	}
}

/* Before its operation the side that does not ask sends a message: engines that know each other have nothing left to do for that
 * while threads are held. */
static int has_probed(const struct pair *pair, int sender)
{
	return (sender ? pair->completed : pair->received) == 1;
}

int be_stepped(char **arguments)
{
	const struct operation *operation = operation_called(arguments[0]);
	/* Stopped, it may find the survivor's memory gone. */
	enum trouble trouble = strcmp(arguments[1], "stop") == 0 ? REVOKED : NONE;
	static struct pair pair;

	make_pair(&pair, open_first_device(), pages(MEMORY), VICTIMS);
	greet(&pair, SOCKET, PATIENT);
	if (operation->answered)
		post(&pair, &probe);
	while (!has_probed(&pair, operation->answered))
		take(&pair, trouble);
	/* The engine's threads go to sleep. */
	usleep(1000);
	CHECK(raise(SIGUSR1) == 0);
	if (!operation->answered)
		post(&pair, operation);
	CHECK(raise(SIGUSR2) == 0);
	while (operation->answered ? pair.received == 0 && *(volatile char *)pair.memory == 0 : pair.completed == 0)
		take(&pair, trouble);
	CHECK(raise(SIGUSR1) == 0);
	for (;;)
		take(&pair, REVOKED);
}

struct survivor {
	/* The most that was open between two instants: sockets for single peers come and go with the traffic. */
	int descriptors;
	struct companion companion;
	struct pair pair;
	struct party tracer;
	int orders;
	char *memory, *before;
	const struct operation *operation;
	int stops;
	enum trouble trouble;
	uint64_t instants, stepped, missed, in_library, busy;
	double longest;
};

static uint64_t instruction;
static const char *failing;

static void tell_instruction(void)
{
	if (failing && instruction == RECORD)
		fprintf(stderr, "single-step: failed while %s was recorded\n", failing);
	else if (failing)
		fprintf(stderr, "single-step: failed at instruction %llu of %s\n", (unsigned long long)instruction, failing);
}

/* Goes on with everybody until the tracer says so much. */
static void await(struct survivor *survivor, void *word, size_t length)
{
	/* Each instruction changes processes twice, on a machine where many may want the processor. */
	double end = seconds() + 5 * PATIENCE_SECONDS;

	while (!has_word(survivor->orders)) {
		go_on(&survivor->companion);
		take(&survivor->pair, survivor->trouble);
		CHECK(seconds() < end);
	}
	CHECK(hear(survivor->orders, word, length));
}

static void give_order(struct survivor *survivor, char word)
{
	CHECK(tell(survivor->orders, &word, 1));
}

/* Nothing has changed but what the operation changes, and that only to what it should become. */
static void check_memory(const struct survivor *survivor)
{
	const struct operation *operation = survivor->operation;
	int writes = !operation->answered && (operation->opcode == IBV_WR_RDMA_WRITE ||
					      operation->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
	int sends = !operation->answered && operation->opcode == IBV_WR_SEND;
	int adds = operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	const char *now = survivor->memory, *before = survivor->before;
	static char theirs[MEMORY];
	size_t at = writes ? TARGET : RECEIVED;

	fill(theirs, MEMORY, VICTIMS);
	for (size_t i = 0; i < MEMORY; i++) {
		int may_come = (writes || sends) && i >= at && i < at + operation->length;

		if (now[i] == before[i])
			continue;
		if (may_come && now[i] == theirs[TARGET + i - at])
			continue;
		/* The word that the victim adds to, and where the old value of the survivor's own comes to lie. */
		if (adds && !operation->answered && i == 0 && now[i] == 1)
			continue;
		if (adds && operation->answered && i >= RECEIVED && i < RECEIVED + 8 && now[i] == 0)
			continue;
		fprintf(stderr, "byte %zu is %#x\n", i, now[i]);
		CHECK(!"memory that nobody should have written");
	}
	if (sends && survivor->pair.received > survivor->pair.failed)
		CHECK(memcmp(now + at, theirs + TARGET, operation->length) == 0);
}

static void wait_for_flush(struct survivor *survivor)
{
	struct pair *pair = &survivor->pair;
	double killed = seconds(), needed;

	/* RC notices a death only if it wants something. */
	post(pair, &probe);
	while (pair->completed < pair->requests || pair->received < pair->receives) {
		go_on(&survivor->companion);
		take(pair, survivor->trouble);
		CHECK(seconds() < killed + BOUND);
	}
	needed = seconds() - killed;
	survivor->longest = needed > survivor->longest ? needed : survivor->longest;
	CHECK(pair->failed > 0);
	for (int i = 0; i < 8; i++)
		take(pair, survivor->trouble);
}

static int timed(struct survivor *survivor, int (*end)(struct pair *))
{
	double begun = seconds(), needed;
	int error = end(&survivor->pair);

	needed = seconds() - begun;
	survivor->longest = needed > survivor->longest ? needed : survivor->longest;
	CHECK(error == 0 || error == EBUSY);
	CHECK(needed < REVOCATION);
	survivor->busy += error == EBUSY;
	return error;
}

static int deregister(struct pair *pair)
{
	int error = pair->mr ? ibv_dereg_mr(pair->mr) : 0;

	if (error == 0)
		pair->mr = NULL;
	return error;
}

static int destroy(struct pair *pair)
{
	int error = pair->qp ? ibv_destroy_qp(pair->qp) : 0;

	if (error == 0)
		pair->qp = NULL;
	return error;
}

/* While the victim is stopped: revocation ends within its bound, the others go on, and where it has succeeded the victim
 * writes nothing any more. */
static void revoke_while_stopped(struct survivor *survivor)
{
	int queue_pair_first = instruction & 1, error;
	double end;

	error = timed(survivor, queue_pair_first ? destroy : deregister);
	must_go_on(&survivor->companion, GOES_ON);
	memcpy(survivor->before, survivor->memory, MEMORY);
	give_order(survivor, GO_ON);
	end = seconds() + 0.005;
	while (seconds() < end)
		queue_pair_first ? go_on(&survivor->companion) : take(&survivor->pair, survivor->trouble);
	if (error == 0)
		CHECK(memcmp(survivor->before, survivor->memory, MEMORY) == 0);
	give_order(survivor, KILL);
}

static void probe_victim(struct survivor *survivor)
{
	int sender = !survivor->operation->answered;
	double end = seconds() + PATIENCE_SECONDS;

	if (sender)
		post(&survivor->pair, &probe);
	while (!has_probed(&survivor->pair, sender)) {
		go_on(&survivor->companion);
		take(&survivor->pair, NONE);
		CHECK(seconds() < end);
	}
	memcpy(survivor->before, survivor->memory, MEMORY);
}

/* Plays to the present instruction, by the route that is in a file. */
static struct instant play(struct survivor *survivor, char *file)
{
	char number[32], pause[16], word;
	char *arguments[] = { "death", "tracer", number, survivor->stops ? "stop" : "kill",
			      (char *)survivor->operation->name, pause, file, NULL };
	struct pair *pair = &survivor->pair;
	int held = descriptors_held(), ends[2], status;
	struct instant instant;
	double end;

	if (survivor->descriptors < held)
		survivor->descriptors = held;
	snprintf(number, sizeof(number), "%llu", (unsigned long long)instruction);
	snprintf(pause, sizeof(pause), "%u", survivor->companion.pause);
	make_pair(pair, survivor->companion.link.context, survivor->memory, SURVIVORS);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	survivor->trouble = NONE;
	survivor->tracer = start_party(arguments, ends[1]);
	close(ends[1]);
	survivor->orders = ends[0];
	greet(pair, survivor->tracer.socket, WATCHFUL);
	probe_victim(survivor);
	await(survivor, &word, 1);
	CHECK(word == HELD);
	if (survivor->operation->answered)
		post(pair, survivor->operation);
	survivor->trouble = survivor->stops ? REVOKED : SILENCE;
	give_order(survivor, BEGIN);
	await(survivor, &instant, sizeof(instant));
	if (survivor->stops) {
		revoke_while_stopped(survivor);
	} else {
		wait_for_flush(survivor);
		check_memory(survivor);
	}
	status = end_of(&survivor->tracer);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(survivor->orders);
	for (end = seconds() + BOUND; deregister(pair) || destroy(pair);)
		CHECK(seconds() < end);
	CHECK(ibv_destroy_cq(pair->cq) == 0 && ibv_dealloc_pd(pair->pd) == 0);
	must_go_on(&survivor->companion, GOES_ON);
	for (end = seconds() + BOUND; descriptors_held() > survivor->descriptors + COMPANION_SOCKETS + PAGE_DESCRIPTORS;) {
		go_on(&survivor->companion);
		CHECK(seconds() < end);
	}
	return instant;
}

/* A file without a name that others can open by this one. */
static void make_route_file(char *name, size_t length)
{
	int file = memfd_create("route", MFD_CLOEXEC);

	CHECK(file >= 0);
	snprintf(name, length, "/proc/%d/fd/%d", getpid(), file);
}

/* Instructions of the route in a file. */
static uint64_t recorded(const char *file)
{
	struct route route = read_route(file);

	free(route.addresses);
	return route.length;
}

int survive_steps(char **arguments)
{
	static struct survivor survivor;
	uint64_t stride = strtoull(arguments[1], NULL, 10), last = strtoull(arguments[3], NULL, 10);
	struct instant instant = { 0 };
	uint64_t length;
	int ended = 0;
	double begun = seconds();
	char file[64];

	survivor.operation = operation_called(arguments[0]);
	survivor.stops = strcmp(arguments[4], "stop") == 0;
	survivor.memory = pages(MEMORY);
	survivor.before = pages(MEMORY);
	CHECK(stride > 0 && atexit(tell_instruction) == 0);
	start_companion(&survivor.companion, open_first_device(), 1, strtoul(arguments[5], NULL, 10));
	failing = survivor.operation->name;
	make_route_file(file, sizeof(file));
	instruction = RECORD;
	for (int recording = 0; recording < RECORDINGS; recording++) {
		instant = play(&survivor, file);
		CHECK(instant.over);
	}
	length = recorded(file);
	for (instruction = strtoull(arguments[2], NULL, 10); instruction <= last; instruction += stride) {
		int routed = instruction < length;

		instant = play(&survivor, file);
		/* This time the operation went another way. */
		if (routed && instant.over) {
			instant = play(&survivor, NOWHERE);
			survivor.missed += instant.over;
			routed = -1;
		}
		survivor.stepped += routed != 1;
		survivor.instants++;
		survivor.in_library += instant.in_library;
		/* Behind the route's end victims step through ever longer ways: it is the last. Where there is none, a victim has come to the
		 * operation's end. */
		ended = length > 0 ? instruction + stride >= length : instant.over && routed == 0;
		if (ended)
			break;
	}
	if (ended && length > 0) {
		/* One more victim comes to the end, whatever way it goes. */
		instruction = RECORD - 1;
		instant = play(&survivor, NOWHERE);
		CHECK(instant.over);
	}
	failing = NULL;
	end_companion(&survivor.companion);
	printf("single-step: path %s, %s, %s: %llu instants, %llu of them in libpagewire, %llu come to step by step, %llu not come to, up to instruction %llu%s, in %.0f s; "
	       "%s after %.0f ms at most", getenv("PAGEWIRE_PATH"), survivor.operation->name,
	       survivor.stops ? "stopped" : "killed", (unsigned long long)survivor.instants,
	       (unsigned long long)survivor.in_library, (unsigned long long)survivor.stepped,
	       (unsigned long long)survivor.missed,
	       (unsigned long long)instant.instructions,
	       ended ? " (the last)" : "", seconds() - begun,
	       survivor.stops ? "revocation answered" : "everything completed", 1e3 * survivor.longest);
	if (survivor.stops)
		printf(", %llu times EBUSY", (unsigned long long)survivor.busy);
	printf("\n");
	return 0;
}
