/*
 * A stranger of this host: messages to queue pair 1 from 127.0.0.1, as UDP datagrams to port 4791 and to each other UDP port, and to the abstract
 * names of ports and of communication IDs. Some are right, some nearly, some are any bytes.
 *
 * stranger ADDRESS victim PORT: listens for ever, and answers each request with a yes or a no.
 * stranger ADDRESS SEED COUNT PORT PROCESS...: an IPv4 address of this host; where the random choices begin; how many messages; a port at which
 * nobody is asked for anything, as its program could not bear it; the processes that must not grow.
 */
#define _GNU_SOURCE
#include "draw.h"
#include "ends.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ROCE_PORT 4791
#define MAD 256
#define BTH 12
#define DETH 8
#define ICRC 4
#define PACKET (BTH + DETH + MAD + ICRC)
/* Two addresses in front of a message to an abstract name. */
#define ADDRESSES 32
#define MOST_PORTS 256
#define MOST_NAMES 256
/* Between two looks at who there is, in messages. */
#define LOOK 2000
/* What a process may grow by, in KiB: a few thousand refused requests that linger. */
#define GROWTH (128 * 1024)
#define OWN 0x7f000001u
#define MOST_PROCESSES 8
/* Of the arguments. */
#define FIRST_PROCESS 5

static uint32_t crc_table[256];
static uint16_t ports[MOST_PORTS];
static char names[MOST_NAMES][64];
static int port_count, name_count;
/* Nobody is asked here. */
static uint16_t spared;

static void put(uint8_t *at, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		at[i] = value >> 8 * (bytes - 1 - i);
}

static uint32_t crc_of(uint32_t crc, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		crc = crc >> 8 ^ crc_table[(crc ^ bytes[i]) & 0xff];
	return crc;
}

static void make_crc_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
		crc_table[i] = crc;
	}
}

/* The invariant CRC (annex A17 of the InfiniBand specification): what routers may change counts as ones. */
static void put_icrc(uint8_t *packet, uint16_t source_port, uint16_t port)
{
	uint8_t head[8 + 20 + 8], bth[BTH];
	uint32_t crc;

	memset(head, 0xff, sizeof(head));
	head[8] = 0x45;
	put(head + 10, 20 + 8 + PACKET, 2);
	/* No identification, and no fragments. */
	put(head + 12, 0x00004000, 4);
	head[17] = IPPROTO_UDP;
	put(head + 20, OWN, 4);
	memcpy(head + 24, &host.sin_addr, 4);
	put(head + 28, source_port, 2);
	put(head + 30, port, 2);
	put(head + 32, 8 + PACKET, 2);
	memcpy(bth, packet, BTH);
	bth[4] = 0xff;
	crc = crc_of(0xffffffff, head, sizeof(head));
	crc = crc_of(crc, bth, BTH);
	crc = ~crc_of(crc, packet + BTH, DETH + MAD);
	memcpy(packet + BTH + DETH + MAD, &crc, ICRC);
}

/* Which UDP ports are open, and which names there are. */
static void look(void)
{
	FILE *table = fopen("/proc/net/udp", "r");
	char line[512];
	unsigned port;

	MUST(table);
	ports[0] = ROCE_PORT;
	port_count = 1;
	while (fgets(line, sizeof(line), table))
		if (sscanf(line, " %*d: %*x:%x", &port) == 1 && port_count < MOST_PORTS)
			ports[port_count++] = port;
	fclose(table);
	table = fopen("/proc/net/unix", "r");
	MUST(table);
	name_count = 0;
	while (fgets(line, sizeof(line), table)) {
		char *name = strstr(line, "@pagewire-c");

		if (!name || name_count == MOST_NAMES)
			continue;
		name[strcspn(name, "\n")] = 0;
		snprintf(names[name_count++], sizeof(*names), "%s", name + 1);
	}
	fclose(table);
}

/* A port of the connection manager, or any, but for the one that is spared; and the upper half of communication IDs. */
static uint16_t any_port(void)
{
	for (int tries = 0; name_count && tries < 8; tries++) {
		unsigned space, port;

		if (sscanf(names[below(name_count)], "pagewire-cm-%x-%u", &space, &port) == 2 && port != spared)
			return port;
	}
	return spared + 1 + below(1000);
}

static uint32_t any_comm_id(void)
{
	for (int tries = 0; name_count && tries < 8; tries++) {
		unsigned block;

		if (sscanf(names[below(name_count)], "pagewire-comm-%u", &block) == 1)
			return block << 16 | (draw() & 0xffff);
	}
	return draw();
}

/* A message of communication management, more or less right. */
static void make_mad(uint8_t *mad)
{
	static const uint16_t spaces[] = { RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB };
	uint8_t *message = mad + 24, *service;
	uint32_t kind = 0x0F + below(12);
	int is_service = kind == 0x17;

	for (int i = 0; i < MAD; i += 8)
		put(mad + i, draw(), 8);
	if (!below(16))
		return;
	put(mad, 0x01070203, 4);
	put(mad + 16, kind, 2);
	put(message + 4, below(8) ? any_comm_id() : 0, 4);
	if (kind == 0x18)
		put(message, any_comm_id(), 4);
	if (kind != 0x10 && !is_service)
		return;
	put(message + 8, (uint64_t)spaces[below(4)] << 16 | any_port(), 8);
	service = message + (is_service ? 16 : 140);
	put(service, below(8) ? 0x0040 : draw(), 2);
	put(service + 16, OWN, 4);
	memcpy(service + 32, &host.sin_addr, 4);
}

static void send_packet(int socket, uint16_t own_port)
{
	struct sockaddr_in to = host;
	uint8_t packet[PACKET];
	size_t length = below(16) ? PACKET : below(PACKET);
	uint16_t port = ports[below(2) ? 0 : below(port_count)];

	put(packet, 0x6400ffff, 4);
	put(packet + 4, below(16) ? 1 : draw() & 0xffffff, 4);
	put(packet + 8, draw(), 4);
	put(packet + BTH, below(16) ? 0x80010000 : draw(), 4);
	put(packet + BTH + 4, 1, 4);
	make_mad(packet + BTH + DETH);
	put_icrc(packet, own_port, port);
	if (!below(16))
		packet[below(PACKET)] ^= 1 << below(8);
	to.sin_port = htons(port);
	/* Where a port is closed meanwhile the next call tells. */
	if (sendto(socket, packet, length, 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		MUST(errno == ECONNREFUSED || errno == ENOBUFS || errno == EPERM || errno == EAGAIN);
}

static void send_to_name(int socket)
{
	uint8_t message[ADDRESSES + MAD + 8] = { [10] = 0xff, [11] = 0xff, [26] = 0xff, [27] = 0xff };
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t length = below(16) ? ADDRESSES + MAD : below(sizeof(message));
	const char *name;

	if (!name_count)
		return;
	name = names[below(name_count)];
	/* Another host's, or of this one. */
	put(message + 12, below(2) ? OWN : 0xC0000200 + below(256), 4);
	memcpy(message + 28, &host.sin_addr, 4);
	make_mad(message + ADDRESSES);
	memcpy(to.sun_path + 1, name, strlen(name));
	/* Names of another type, of processes that are gone or busy. */
	if (sendto(socket, message, length, MSG_DONTWAIT, (struct sockaddr *)&to, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)) < 0)
		MUST(errno == ECONNREFUSED || errno == EAGAIN || errno == EPROTOTYPE || errno == EPERM);
}

/* Resident memory of a process in KiB. */
static long resident(const char *process)
{
	char path[64], line[256];
	long kib = 0;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/%s/status", process);
	status = fopen(path, "r");
	if (!status)
		FAIL("process %s is not there", process);
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	fclose(status);
	return kib;
}

/* A listener of a space, at a port of all addresses. */
static void listen_at(struct rdma_event_channel *channel, enum rdma_port_space space, uint16_t port)
{
	struct rdma_cm_id *id = new_id(channel, space);
	struct sockaddr_in all = address_of(0, htons(port));

	id->context = NULL;
	MUST(!rdma_bind_addr(id, (struct sockaddr *)&all) && !rdma_listen(id, 0));
}

__attribute__((noreturn)) static void be_victim(uint16_t port)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_event *event;

	listen_at(channel, RDMA_PS_TCP, port);
	listen_at(channel, RDMA_PS_UDP, port);
	for (;;) {
		MUST(!rdma_get_cm_event(channel, &event));
		struct rdma_cm_id *id = event->id;
		int is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		/* Of a request for datagrams the answer is the end. */
		int is_over = is_request ? id->ps == RDMA_PS_UDP : event->event != RDMA_CM_EVENT_ESTABLISHED;

		MUST(!rdma_ack_cm_event(event));
		/* Either fails where the peer has given up. */
		if (is_request && below(2)) {
			accept_with(id, NULL, 0);
		} else if (is_request) {
			rdma_reject(id, NULL, 0);
			is_over = 1;
		}
		if (is_over)
			MUST(!rdma_destroy_id(id));
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in own = address_of(htonl(OWN), 0);
	int udp = socket(AF_INET, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_DGRAM, 0), discover = IP_PMTUDISC_DO;
	socklen_t length = sizeof(own);
	unsigned long count;
	long before[MOST_PROCESSES];
	int processes = argc - FIRST_PROCESS;

	if (argc == 4 && !strcmp(argv[2], "victim")) {
		set_host(argv[1]);
		be_victim(atoi(argv[3]));
	}
	if (processes < 1 || processes > MOST_PROCESSES)
		FAIL("usage: stranger ADDRESS victim PORT | stranger ADDRESS SEED COUNT PORT PROCESS...");
	set_host(argv[1]);
	random_numbers.state = strtoull(argv[2], NULL, 10);
	count = strtoul(argv[3], NULL, 10);
	spared = atoi(argv[4]);
	make_crc_table();
	MUST(udp >= 0 && local >= 0 && !bind(udp, (struct sockaddr *)&own, sizeof(own)));
	MUST(!getsockname(udp, (struct sockaddr *)&own, &length));
	MUST(!setsockopt(udp, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover)));
	for (int i = 0; i < processes; i++)
		before[i] = resident(argv[FIRST_PROCESS + i]);
	for (unsigned long i = 0; i < count; i++) {
		if (i % LOOK == 0)
			look();
		if (below(2))
			send_packet(udp, ntohs(own.sin_port));
		else
			send_to_name(local);
	}
	for (int i = 0; i < processes; i++) {
		long after = resident(argv[FIRST_PROCESS + i]);

		printf("process %s: %ld KiB, then %ld\n", argv[FIRST_PROCESS + i], before[i], after);
		if (after > before[i] + GROWTH)
			FAIL("process %s has grown", argv[FIRST_PROCESS + i]);
	}
	printf("%lu messages to %d ports and %d names\n", count, port_count, name_count);
	return 0;
}
