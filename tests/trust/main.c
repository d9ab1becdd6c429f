/*
 * A process whose memory no other may trace (PR_SET_DUMPABLE 0) and two others of its user: a peer whose engine connects to
 * it, and a spy that speaks the handshake by hand and claims what it cannot prove. The spy searches all that it gets for
 * the owner's key secret, rkey and address, which the owner tells the test.
 *
 * main COMMAND: COMMAND is pagewire, for `explain`. Exits with 77 where the kernel lets the spy read the owner's memory.
 */
#define _GNU_SOURCE
#include "handshake.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pair.h"

#define LENGTH 65536
#define SECRETS 65536
/* Where the spy begins to look for blocks of queue pair numbers that no engine has leased. */
#define SPY_BLOCK 0xEE50
#define LURES 3
#define NOT_HERE 77

/* What nobody may learn: each word that the owner publishes to its peers, its rkey and its address. */
struct secrets {
	uint32_t rkey, qpn;
	uint64_t address;
	size_t count;
	uint64_t words[SECRETS];
	/* No secret: the blocks on which the spy listens. */
	uint32_t lures[LURES];
};

static struct secrets *secrets;

static void add_tables(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	char line[512];
	int found = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "pagewire-tables") || sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		found = 1;
		for (volatile uint64_t *word = (void *)start; word < (uint64_t *)end; word++) {
			uint64_t value = *word;

			if (value >= 1 << 16 && secrets->count < SECRETS)
				secrets->words[secrets->count++] = value;
		}
	}
	fclose(maps);
	CHECK(found && secrets->count > 3);
}

/* Whether the loot has the first bytes of a value, or the value as messages have it: where that is long enough not to be there by chance. */
static int holds(const struct loot *loot, uint64_t value, size_t length)
{
	unsigned char packed[10];
	size_t packed_length = put_number(packed, value);

	return memmem(loot->bytes, loot->length, &value, length) != NULL ||
	       (packed_length > 4 && memmem(loot->bytes, loot->length, packed, packed_length) != NULL);
}

static void expect_nothing(const struct loot *loot, const char *trick)
{
	CHECK(loot->length > 0);
	fprintf(stderr, "%s: %zu bytes, %d files\n", trick, loot->length, loot->files);
	CHECK(loot->files == 0);
	CHECK(!holds(loot, secrets->rkey, 4));
	CHECK(!holds(loot, secrets->address, 8));
	for (size_t i = 0; i < secrets->count; i++)
		CHECK(!holds(loot, secrets->words[i], 8));
}

/* The owner's memory at this address, if the kernel lets this process read it. */
static int reads(pid_t owner, uint64_t address)
{
	uint64_t value;
	struct iovec here = { &value, 8 }, there = { (void *)(uintptr_t)address, 8 };

	return process_vm_readv(owner, &here, 1, &there, 1, 0) == 8;
}

static void take_rest(int socket, struct loot *loot)
{
	while (take(socket, loot))
		;
	close(socket);
}

/* The spy connects to the owner, and tries one trick in each connection. */
static void intrude(void)
{
	static uint64_t nonce = 0x1234567890abcdef;
	const uint64_t identity[3] = { 1, (uintptr_t)&nonce, 0 }, proof = 0;
	uint32_t block = secrets->qpn >> 8;
	struct loot loot;
	int files[3], socket;

	make_files(files);
	for (int trick = 0; trick < 6; trick++) {
		static const char *const names[] = { "a forged proof", "its own nonce as proof", "Accept at once",
						     "Confirm at once", "the older handshake", "only Hello" };

		memset(&loot, 0, sizeof(loot));
		socket = reach(block);
		say(socket, trick == 4 ? 3 : VERSION, HELLO, identity, 3, files, trick == 4 ? 3 : 0);
		take(socket, &loot);
		switch (trick) {
		case 0:
			say(socket, VERSION, READY, &proof, 1, files, 3);
			break;
		case 1:
			say(socket, VERSION, READY, &nonce, 1, files, 3);
			break;
		case 2:
			say(socket, VERSION, ACCEPT, NULL, 0, files, 2);
			break;
		case 3:
			say(socket, VERSION, CONFIRM, NULL, 0, NULL, 0);
			break;
		case 4:
			/* "I can touch your memory", as that version had it. */
			say(socket, 3, READY, &(const uint64_t){ 0 }, 1, NULL, 0);
			break;
		default:
			CHECK(shutdown(socket, SHUT_WR) == 0);
		}
		take_rest(socket, &loot);
		expect_nothing(&loot, names[trick]);
	}
}

/* The owner connects to the spy, which answers with one trick after the other. */
static void lure(pid_t owner, const int *listeners)
{
	static uint64_t nonce = 0x1234567890abcdef;
	const uint64_t welcome[4] = { 1, (uintptr_t)&nonce, 0, nonce };
	int files[3];

	make_files(files);
	for (int trick = 0; trick < LURES; trick++) {
		static const char *const names[] = { "a forged Welcome", "Accept for Hello", "the older Welcome" };
		struct loot loot = { 0 };
		uint64_t instance, address;
		const unsigned char *at = loot.bytes + HEAD + 1;
		int socket = accept4(listeners[trick], NULL, NULL, SOCK_CLOEXEC);

		CHECK(socket >= 0 && take(socket, &loot) == HELLO);
		at += get_number(at, &instance);
		at += get_number(at, &address);
		/* One byte says whether it swaps. */
		CHECK(at + 1 == loot.bytes + loot.length && address % 4096 == 0);
		if (reads(owner, address)) {
			fprintf(stderr, "not checked: the kernel lets this user trace a process that is not dumpable\n");
			exit(NOT_HERE);
		}
		if (trick == 0)
			say(socket, VERSION, WELCOME, welcome, 4, NULL, 0);
		else if (trick == 1)
			say(socket, VERSION, ACCEPT, NULL, 0, files, 2);
		else
			say(socket, 3, WELCOME, welcome, 4, files, 2);
		take_rest(socket, &loot);
		expect_nothing(&loot, names[trick]);
	}
}

static void own(void)
{
	struct side side, lured[LURES];
	struct greeting peer;

	CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	side = open_side(LENGTH);
	memset(side.memory, 0x5a, LENGTH);
	secrets->rkey = side.mr->rkey;
	secrets->address = (uintptr_t)side.memory;
	secrets->qpn = side.qp->qp_num;
	peer = connect_side(&side);
	add_tables();
	/* The spy listens from here on. */
	meet();
	for (int i = 0; i < LURES; i++) {
		lured[i] = open_side(4096);
		to_open_init(lured[i].qp);
		to_rtr(lured[i].qp, secrets->lures[i] << 8);
		to_rts(lured[i].qp);
	}
	meet();
	/* The peer has written, read and asked. */
	meet();
	for (int i = 0; i < LENGTH; i++)
		CHECK(side.memory[i] == (i < LENGTH / 2 ? 0x17 : 0x5a));
	(void)peer;
}

static void transfer(struct side *side, const struct greeting *peer, enum ibv_wr_opcode opcode, size_t offset)
{
	struct ibv_sge sge = { (uintptr_t)side->memory + offset, LENGTH / 2, side->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = peer->address + offset;
	wr.wr.rdma.rkey = peer->rkey;
	CHECK(ibv_post_send(side->qp, &wr, &bad) == 0);
	poll_all(side->cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS);
}

/* Both ends say that they go over udp, and why. */
static void expect_reason(const char *command, pid_t process, const char *reason)
{
	char line[65536], words[4096];
	FILE *explained;
	int udp = 0;

	snprintf(words, sizeof(words), "'%s' explain --json %d", command, process);
	explained = popen(words, "r");
	CHECK(explained);
	while (fgets(line, sizeof(line), explained)) {
		if (strstr(line, "\"path\":\"udp\"") && strstr(line, reason))
			udp++;
	}
	CHECK(pclose(explained) == 0);
	CHECK(udp > 0);
}

int main(int count, char **words)
{
	struct side side;
	struct greeting peer;
	int listeners[LURES], status;
	pid_t child, spy;

	CHECK(count == 2);
	secrets = mmap(NULL, sizeof(*secrets), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(secrets != MAP_FAILED);
	child = fork_peer();
	if (!child) {
		own();
		return 0;
	}
	side = open_side(LENGTH);
	peer = connect_side(&side);
	for (int i = 0; i < LURES; i++) {
		secrets->lures[i] = i ? secrets->lures[i - 1] + 1 : SPY_BLOCK;
		listeners[i] = lie_in_wait(&secrets->lures[i]);
	}
	meet();
	spy = fork();
	CHECK(spy >= 0);
	if (!spy) {
		lure(child, listeners);
		intrude();
		exit(0);
	}
	meet();
	CHECK(waitpid(spy, &status, 0) == spy && WIFEXITED(status));
	if (WEXITSTATUS(status)) {
		kill(child, SIGKILL);
		exit(WEXITSTATUS(status));
	}
	memset(side.memory, 0x17, LENGTH);
	transfer(&side, &peer, IBV_WR_RDMA_WRITE, 0);
	transfer(&side, &peer, IBV_WR_RDMA_READ, LENGTH / 2);
	for (int i = 0; i < LENGTH; i++)
		CHECK(side.memory[i] == (i < LENGTH / 2 ? 0x17 : 0x5a));
	expect_reason(words[1], getpid(), "this process may not touch the peer's memory");
	expect_reason(words[1], child, "the peer may not touch this process's memory");
	meet();
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
