/*
 * Connect storms. No connection has a queue pair, unless it is said.
 *
 * storm ADDRESS crowd PROCESSES SEED: so many processes connect at once, several times to the first one and once to each other one. Half of
 * them are killed meanwhile. Every connection between the others is established, and every one with a killed process ends. Then all but the
 * first are killed: it has no more descriptors than at the beginning, and nobody else has a port.
 *
 * storm ADDRESS many CONNECTIONS [qp]: two processes with so many connections, with queue pairs if asked for. One is killed: the other hears of
 * each end.
 */
#define _GNU_SOURCE
#include "ends.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define MOST 256
/* Connections that each process has with the first one, beside the one that each has with each. */
#define LINKS 8
/* Only says that nothing hangs. */
#define LIMIT_SECONDS 240

/* What processes tell each other. */
struct board {
	_Atomic int listening;
	_Atomic int failed;
	/* In network order. */
	_Atomic uint16_t port[MOST];
	/* Set before it is killed. */
	_Atomic int killed[MOST];
	_Atomic int is_done[MOST];
	/* 1: all but the first are killed; 2: that one has looked at what is left. */
	_Atomic int is_over;
};

/* What a REQ and its REP say. */
struct greeting {
	uint32_t from, to, number, check;
};

enum progress { ASKED, ACCEPTED, ESTABLISHED, ENDED };

/* One side of a connection. */
struct link {
	struct rdma_cm_id *id;
	int peer;
	uint32_t number;
	int is_active;
	enum progress progress;
};

static struct board *board;
static int count, self;
static double end;

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static struct link *links;
static size_t link_count, most_links;
/* Of them, ever established. */
static int established;
/* Connections by the process that asked for them. */
static uint32_t asked_by[MOST];
static struct ibv_cq *cq;
static int has_queue_pairs;

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static uint32_t check_of(const struct greeting *greeting)
{
	return (greeting->from * 0x9E3779B1u ^ greeting->to * 0x85EBCA77u) + greeting->number * 0xC2B2AE3Du;
}

static struct greeting greeting_of(int from, int to, uint32_t number)
{
	struct greeting greeting = { from, to, number, 0 };

	greeting.check = check_of(&greeting);
	return greeting;
}

/* What a peer has said, which must be right. */
static struct greeting read_greeting(const struct rdma_cm_event *event)
{
	struct greeting greeting;

	MUST(event->param.conn.private_data_len >= sizeof(greeting));
	memcpy(&greeting, event->param.conn.private_data, sizeof(greeting));
	if (greeting.check != check_of(&greeting))
		FAIL("%s of %u to %u has wrong data", rdma_event_str(event->event), greeting.from, greeting.to);
	return greeting;
}

static struct link *new_link(struct rdma_cm_id *id, int peer, uint32_t number, int is_active)
{
	struct link *link = &links[link_count++];

	MUST(link_count <= most_links);
	*link = (struct link){ id, peer, number, is_active, ASKED };
	id->context = link;
	return link;
}

static int is_killed(int peer)
{
	return atomic_load(&board->killed[peer]);
}

/* Parameters with the number of a queue pair that no other process has: for a peer the second connection of a number would end the first. */
static struct rdma_conn_param own_param(void)
{
	static uint32_t number;
	struct rdma_conn_param param = no_queue_pair();

	param.qp_num = (uint32_t)(self + 1) << 15 | ++number;
	return param;
}

static void give_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };

	if (!cq)
		cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = cq;
	MUST(cq && !rdma_create_qp(id, NULL, &attr));
}

static void ask_for(int peer, uint32_t number)
{
	struct sockaddr_in address = address_of(host.sin_addr.s_addr, atomic_load(&board->port[peer]));
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);

	new_link(id, peer, number, 1);
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS));
}

/* An ID, with what belongs to it, is gone. */
static void drop(struct link *link)
{
	if (link->id->qp)
		rdma_destroy_qp(link->id);
	MUST(!rdma_destroy_id(link->id));
	link->id = NULL;
	link->progress = ENDED;
}

static void take_new_request(struct rdma_cm_event *event)
{
	struct greeting greeting = read_greeting(event), answer;
	struct rdma_cm_id *id = event->id;
	struct rdma_conn_param param = own_param();
	struct link *link;

	if (greeting.to != (uint32_t)self || greeting.from >= (uint32_t)count)
		FAIL("a request of %u to %u", greeting.from, greeting.to);
	asked_by[greeting.from]++;
	link = new_link(id, greeting.from, greeting.number, 0);
	answer = greeting_of(self, greeting.from, greeting.number);
	param.private_data = &answer;
	param.private_data_len = sizeof(answer);
	if (has_queue_pairs)
		give_queue_pair(id);
	MUST(!rdma_ack_cm_event(event));
	link->progress = ACCEPTED;
	if (rdma_accept(id, &param)) {
		/* A peer that is gone has taken its request back. */
		if (!is_killed(link->peer))
			FAIL("accept of %d: %s", link->peer, strerror(errno));
		drop(link);
	}
}

static void go_on(struct link *link, struct rdma_cm_event *event)
{
	struct greeting greeting = greeting_of(self, link->peer, link->number), answer;
	struct rdma_conn_param param = own_param();

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		MUST(!rdma_resolve_route(link->id, RESOLVE_MS));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (has_queue_pairs)
			give_queue_pair(link->id);
		param.private_data = &greeting;
		param.private_data_len = sizeof(greeting);
		MUST(!rdma_connect(link->id, &param));
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
		MUST(link->progress == (link->is_active ? ASKED : ACCEPTED));
		if (link->is_active) {
			answer = read_greeting(event);
			MUST(answer.from == (uint32_t)link->peer && answer.to == (uint32_t)self && answer.number == link->number);
		}
		if (event->event == RDMA_CM_EVENT_CONNECT_RESPONSE && rdma_establish(link->id))
			/* It has ended meanwhile, as its event will say. */
			MUST(is_killed(link->peer));
		link->progress = ESTABLISHED;
		established++;
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_DISCONNECTED:
		if (!is_killed(link->peer))
			FAIL("%d with %d, who lives: %s, status %d", self, link->peer, rdma_event_str(event->event), event->status);
		link->progress = ENDED;
		break;
	default:
		FAIL("%d with %d: %s, status %d", self, link->peer, rdma_event_str(event->event), event->status);
	}
}

/* Takes an event, if one comes soon. */
static void step(void)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct link *link;

	if (seconds() > end || atomic_load(&board->failed))
		FAIL("%d is not done in %d s", self, LIMIT_SECONDS);
	if (poll(&ready, 1, 20) != 1)
		return;
	MUST(!rdma_get_cm_event(channel, &event));
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return take_new_request(event);
	link = event->id->context;
	/* An end may have been heard of before, of which this says more. */
	if (link && link->progress != ENDED)
		go_on(link, event);
	MUST(!rdma_ack_cm_event(event));
	if (link && link->progress == ENDED)
		drop(link);
}

/* How many connections a process asks another one for. */
static uint32_t wanted(int from, int to)
{
	return from == to ? 0 : to == 0 ? 1 + LINKS : 1;
}

/* Whether each connection with a living process is established, and each with a killed one has ended. */
static int is_settled(void)
{
	for (int peer = 0; peer < count; peer++)
		if (!is_killed(peer) && asked_by[peer] < wanted(peer, self))
			return 0;
	for (size_t i = 0; i < link_count; i++)
		if (links[i].progress != (is_killed(links[i].peer) ? ENDED : ESTABLISHED))
			return 0;
	return 1;
}

static int count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int found = 0;

	MUST(directory);
	while (readdir(directory))
		found++;
	closedir(directory);
	return found;
}

/* How many names of the connection manager there are in this network namespace. */
static int count_names(void)
{
	FILE *table = fopen("/proc/net/unix", "r");
	char line[512];
	int found = 0;

	MUST(table);
	while (fgets(line, sizeof(line), table))
		found += strstr(line, "@pagewire-cm-") != NULL;
	fclose(table);
	return found;
}

/* Waits until others have come as far. */
static void await(_Atomic int *number, int least)
{
	while (atomic_load(number) < least) {
		if (seconds() > end || atomic_load(&board->failed))
			FAIL("%d waits in vain", self);
		usleep(1000);
	}
}

/* Before others connect: what the first process has, and is to have when they are gone. */
static int descriptors_alone;

static void prepare(void)
{
	MUST(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	most_links = 2 * (size_t)count * (1 + LINKS) + 16;
	links = calloc(most_links, sizeof(*links));
	MUST(links);
	/* The first one is alone at that time. */
	if (self)
		await(&board->listening, 1);
	channel = new_channel();
	listener = new_id(channel, RDMA_PS_TCP);
	listener->context = NULL;
	bind_to(listener, host.sin_addr.s_addr);
	MUST(!rdma_listen(listener, 0));
	atomic_store(&board->port[self], rdma_get_src_port(listener));
	descriptors_alone = count_descriptors();
	atomic_fetch_add(&board->listening, 1);
}

/* All others are killed: nothing is left of them, and of what this process had with them. */
static void end_alone(void)
{

	int descriptors, names;

	while (!is_settled())
		step();
	do {
		usleep(10000);
		descriptors = count_descriptors();
		names = count_names();
		if (seconds() > end)
			FAIL("%d descriptors, before %d; %d names", descriptors, descriptors_alone, names);
	} while (descriptors > descriptors_alone || names != 1);
}

static void run_one(void)
{
	uint32_t asked[MOST] = { 0 };
	double begun;

	prepare();
	await(&board->listening, count);
	begun = seconds();
	for (int round = 0; round <= LINKS; round++)
		for (int i = 1; i < count; i++) {
			int peer = (self + i) % count;

			if (asked[peer] < wanted(self, peer))
				ask_for(peer, asked[peer]++);
		}
	while (!is_settled())
		step();
	if (self == 0)
		printf("%zu connections of one process, settled in %.2f s\n", link_count, seconds() - begun);
	fflush(stdout);
	atomic_store(&board->is_done[self], 1);
	while (!atomic_load(&board->is_over))
		step();
	end_alone();
	atomic_store(&board->is_over, 2);
	for (;;)
		pause();
}

static pid_t children[MOST];

/* The parent: a child must be killed by nobody else. */
static void kill_one(int which)
{
	int status;

	atomic_store(&board->killed[which], 1);
	MUST(!kill(children[which], SIGKILL) && waitpid(children[which], &status, 0) == children[which]);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		atomic_store(&board->failed, 1);
		FAIL("%d ended with %d", which, status);
	}
}

static void start_all(void (*run)(void))
{
	for (int i = 0; i < count; i++) {
		children[i] = fork();
		MUST(children[i] >= 0);
		if (children[i])
			continue;
		self = i;
		run();
		exit(0);
	}
}

/* Ends with an error if a child has ended. */
static void must_all_live(void)
{
	int status;
	pid_t child = waitpid(-1, &status, WNOHANG);

	if (child > 0) {
		atomic_store(&board->failed, 1);
		FAIL("a process ended with %d", status);
	}
	/* Who hangs tells more. */
	if (seconds() > end + 1)
		FAIL("not done in %d s", LIMIT_SECONDS);
	usleep(1000);
}

static void run_crowd(unsigned seed)
{
	int victims = count / 2;

	srand(seed);
	start_all(run_one);
	while (atomic_load(&board->listening) < count)
		must_all_live();
	while (victims) {
		int which = 1 + rand() % (count - 1);

		if (is_killed(which))
			continue;
		usleep(rand() % 20000);
		kill_one(which);
		victims--;
	}
	for (int i = 0; i < count; i++)
		while (!is_killed(i) && !atomic_load(&board->is_done[i]))
			must_all_live();
	for (int i = 1; i < count; i++)
		if (!is_killed(i))
			kill_one(i);
	atomic_store(&board->is_over, 1);
	while (atomic_load(&board->is_over) != 2)
		must_all_live();
	kill_one(0);
}

static int many;

/* Until so many connections are established; gives the time from the first event on. */
static double until_established(void)
{
	double begun = 0;

	while (established < many) {
		if (!begun && link_count)
			begun = seconds();
		step();
	}
	return seconds() - begun;
}

static void run_many(void)
{
	double took = seconds();

	MUST(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	most_links = many;
	links = calloc(most_links, sizeof(*links));
	MUST(links);
	channel = new_channel();
	if (self == 0) {
		listener = new_id(channel, RDMA_PS_TCP);
		listener->context = NULL;
		bind_to(listener, host.sin_addr.s_addr);
		MUST(!rdma_listen(listener, 0));
		atomic_store(&board->port[0], rdma_get_src_port(listener));
		atomic_store(&board->listening, 1);
		took = until_established();
		printf("%d connections accepted in %.2f s, %.0f a second; %d descriptors\n", many, took, many / took, count_descriptors());
		fflush(stdout);
		atomic_store(&board->is_done[0], 1);
		/* The other one is killed. */
		took = seconds();
		for (size_t i = 0; i < link_count; i++)
			while (links[i].progress != ENDED)
				step();
		printf("%d ends heard of in %.2f s\n", many, seconds() - took);
		exit(0);
	}
	await(&board->listening, 1);
	for (int i = 0; i < many; i++) {
		ask_for(0, i);
		/* As a program does that connects in turn, and so that events do not pile up. */
		for (struct pollfd ready = { .fd = channel->fd, .events = POLLIN }; poll(&ready, 1, 0) == 1;)
			step();
	}
	until_established();
	printf("%d connections asked for in %.2f s; %d descriptors\n", many, seconds() - took, count_descriptors());
	fflush(stdout);
	atomic_store(&board->is_done[1], 1);
	for (;;)
		pause();
}

static void run_pair(void)
{
	int status;

	count = 2;
	start_all(run_many);
	while (!atomic_load(&board->is_done[0]) || !atomic_load(&board->is_done[1]))
		must_all_live();
	kill_one(1);
	MUST(waitpid(children[0], &status, 0) == children[0]);
	if (status)
		FAIL("the listener ended with %d", status);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		FAIL("usage: storm ADDRESS crowd PROCESSES SEED | many CONNECTIONS [qp]");
	set_host(argv[1]);
	end = seconds() + LIMIT_SECONDS;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(board != MAP_FAILED);
	if (!strcmp(argv[2], "crowd") && argc == 5) {
		count = atoi(argv[3]);
		MUST(count >= 4 && count <= MOST);
		run_crowd(strtoul(argv[4], NULL, 10));
	} else {
		many = atoi(argv[3]);
		has_queue_pairs = argc == 5;
		MUST(many > 0);
		run_pair();
	}
	return 0;
}
