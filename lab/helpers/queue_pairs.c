/*
 * queue_pairs COUNT TIMES: what an operation costs where a process has many queue pairs. A plain verbs program;
 * `pagewire bench` runs it.
 *
 * Two processes make COUNT queue pairs each and connect them one to one; TIMES times over, destroying them in between. The
 * initiator then executes WRITEs of 8 bytes, and SENDs, one after the other, each on a queue pair drawn at random. Both sides
 * poll one completion queue.
 *
 * Prints for each time one JSON object, times in microseconds: "create" and "connect" are means of the queue pairs from the
 * 257th on (of all, if there are fewer), "write" and "send" medians of means of 1,000 operations each; "kilobytes" is the
 * resident memory of the initiator after the queue pairs were destroyed, "descriptors" its open files then.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>

/* Numbers of one block: what comes behind the first is counted. */
#define FIRST 256
#define BATCH 1000
#define BATCHES 15
#define PEER_LENGTH 64

struct crowd {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *memory;
	struct ibv_qp **qps;
	uint32_t *numbers;
	int count;
	/* Queue pair numbers of this process to places in `qps`. */
	uint32_t *places;
};

static uint64_t random_state = 88172645463325252;

static uint32_t draw(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 32) % below;
}

static void move(int write_it, void *bytes, size_t length)
{
	while (length) {
		ssize_t done = write_it ? write(to_peer, bytes, length) : read(from_peer, bytes, length);

		CHECK(done > 0);
		bytes = (char *)bytes + done;
		length -= done;
	}
}

static void open_crowd(struct crowd *crowd, int count)
{
	crowd->count = count;
	crowd->context = open_first_device();
	crowd->pd = ibv_alloc_pd(crowd->context);
	/* The initiator goes on before the target has polled: each queue pair may have a completion there. */
	crowd->cq = ibv_create_cq(crowd->context, count + 1, NULL, NULL, 0);
	crowd->memory = aligned_alloc(4096, 4096);
	CHECK(crowd->pd && crowd->cq && crowd->memory);
	memset(crowd->memory, 0, 4096);
	crowd->mr = ibv_reg_mr(crowd->pd, crowd->memory, 4096, ALL_ACCESS);
	crowd->qps = calloc(count, sizeof(*crowd->qps));
	crowd->numbers = calloc(count, sizeof(*crowd->numbers));
	/* 24 bits of numbers. Only what is used takes memory. */
	crowd->places = mmap(NULL, sizeof(uint32_t) << 24, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(crowd->mr && crowd->qps && crowd->numbers && crowd->places != MAP_FAILED);
}

/* Gives the mean time of the queue pairs behind the first block, in microseconds. */
static double create_all(struct crowd *crowd)
{
	struct ibv_qp_init_attr init = plain_attributes(crowd->cq, IBV_QPT_RC);
	int from = crowd->count > FIRST ? FIRST : 0;
	double start = seconds();

	init.cap.max_send_wr = init.cap.max_recv_wr = 2;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	for (int i = 0; i < crowd->count; i++) {
		if (i == from)
			start = seconds();
		crowd->qps[i] = ibv_create_qp(crowd->pd, &init);
		CHECK(crowd->qps[i]);
	}
	start = (seconds() - start) * 1e6 / (crowd->count - from);
	for (int i = 0; i < crowd->count; i++) {
		crowd->numbers[i] = crowd->qps[i]->qp_num;
		crowd->places[crowd->numbers[i]] = i;
	}
	return start;
}

static double connect_all(struct crowd *crowd, int initiates)
{
	uint32_t *peers = calloc(crowd->count, sizeof(*peers));
	struct ibv_qp_attr attr = usual_attributes(crowd->context, 0);
	double start;

	CHECK(peers);
	attr.timeout = 22;
	/* One writes first: a pipe may be too small for both. */
	for (int step = 0; step < 2; step++)
		move(step != initiates, step != initiates ? crowd->numbers : peers, crowd->count * sizeof(*peers));
	start = seconds();
	for (int i = 0; i < crowd->count; i++) {
		to_open_init(crowd->qps[i]);
		attr.qp_state = IBV_QPS_RTR;
		attr.dest_qp_num = peers[i];
		CHECK(ibv_modify_qp(crowd->qps[i], &attr, RTR_MASK(IBV_QPT_RC)) == 0);
		attr.qp_state = IBV_QPS_RTS;
		CHECK(ibv_modify_qp(crowd->qps[i], &attr, RTS_MASK(IBV_QPT_RC)) == 0);
	}
	free(peers);
	return (seconds() - start) * 1e6 / crowd->count;
}

static void receive(struct crowd *crowd, int place)
{
	struct ibv_sge sge = { (uintptr_t)crowd->memory + 64, 8, crowd->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(crowd->qps[place], &wr, &bad) == 0);
}

static void execute(struct crowd *crowd, int place, enum ibv_wr_opcode opcode, const struct greeting *peer)
{
	struct ibv_sge sge = { (uintptr_t)crowd->memory, 8, crowd->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	int got;

	wr.wr.rdma.remote_addr = peer->address;
	wr.wr.rdma.rkey = peer->rkey;
	CHECK(ibv_post_send(crowd->qps[place], &wr, &bad) == 0);
	while ((got = ibv_poll_cq(crowd->cq, 1, &wc)) == 0)
		;
	CHECK(got == 1 && wc.status == IBV_WC_SUCCESS);
}

static int ascending(const void *one, const void *two)
{
	double a = *(const double *)one, b = *(const double *)two;

	return (a > b) - (a < b);
}

static double measure(struct crowd *crowd, enum ibv_wr_opcode opcode, const struct greeting *peer)
{
	double means[BATCHES];

	/* Each queue pair once: it has found its path then, and its peer has heard of it. */
	for (int i = 0; i < crowd->count; i++)
		execute(crowd, i, opcode, peer);
	for (int batch = 0; batch < BATCHES; batch++) {
		double start = seconds();

		for (int i = 0; i < BATCH; i++)
			execute(crowd, draw(crowd->count), opcode, peer);
		means[batch] = (seconds() - start) * 1e6 / BATCH;
	}
	qsort(means, BATCHES, sizeof(*means), ascending);
	return means[BATCHES / 2];
}

/* The target polls until the initiator has done; it gives each receive back. */
static void serve(struct crowd *crowd)
{
	char done = 0;

	for (int i = 0; i < crowd->count; i++)
		receive(crowd, i);
	meet();
	CHECK(fcntl(from_peer, F_SETFL, O_NONBLOCK) == 0);
	while (read(from_peer, &done, 1) != 1) {
		CHECK(errno == EAGAIN);
		for (int i = 0; i < 1000; i++) {
			struct ibv_wc wc;
			int got = ibv_poll_cq(crowd->cq, 1, &wc);

			CHECK(got >= 0);
			if (got) {
				CHECK(wc.status == IBV_WC_SUCCESS);
				receive(crowd, crowd->places[wc.qp_num]);
			}
		}
	}
	CHECK(fcntl(from_peer, F_SETFL, 0) == 0);
}

static void destroy_all(struct crowd *crowd)
{
	for (int i = 0; i < crowd->count; i++)
		CHECK(ibv_destroy_qp(crowd->qps[i]) == 0);
}

static long resident_kilobytes(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kilobytes = -1;

	CHECK(status);
	while (fgets(line, sizeof(line), status))
		sscanf(line, "VmRSS: %ld", &kilobytes);
	fclose(status);
	return kilobytes;
}

static int open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	CHECK(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

int main(int argc, char **argv)
{
	struct greeting mine = { 0 }, peer;
	struct crowd crowd;
	int status, initiates, times;
	pid_t child;

	if (argc != 3 || atoi(argv[1]) < 1 || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: %s COUNT TIMES\n", argv[0]);
		return 2;
	}
	times = atoi(argv[2]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	child = fork_peer();
	initiates = child != 0;
	open_crowd(&crowd, atoi(argv[1]));
	mine.rkey = crowd.mr->rkey;
	mine.address = (uintptr_t)crowd.memory;
	move(1, &mine, sizeof(mine));
	move(0, &peer, sizeof(peer));
	for (int time = 0; time < times; time++) {
		double created = create_all(&crowd), connected = connect_all(&crowd, initiates), write, send;

		if (!initiates) {
			serve(&crowd);
			destroy_all(&crowd);
			hand_over('d');
			continue;
		}
		meet();
		write = measure(&crowd, IBV_WR_RDMA_WRITE, &peer);
		send = measure(&crowd, IBV_WR_SEND, &peer);
		hand_over('q');
		CHECK(wait_for_peer() == 'd');
		destroy_all(&crowd);
		printf("{\"count\":%d,\"create\":%.3f,\"connect\":%.3f,\"write\":%.3f,\"send\":%.3f,"
		       "\"kilobytes\":%ld,\"descriptors\":%d}\n",
		       crowd.count, created, connected, write, send, resident_kilobytes(), open_descriptors());
	}
	if (child)
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
