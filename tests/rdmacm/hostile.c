/*
 * Hostile commands: random numbers, bodies, lengths, addresses and IDs, written to channels. The process must live, and each write must end.
 *
 * hostile ADDRESS SEED COUNT: an IPv4 address of this host; where the random choices begin; how many commands.
 */
#define _GNU_SOURCE
#include "draw.h"
#include "ends.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <rdma/rdma_cma_abi.h>

#define CHANNELS 4
/* Numbers of commands that newer kernels have, too. */
#define NUMBERS 25
/* IDs are numbered from 0 on. */
#define IDS 24
#define PAGE 4096
#define HEADER 8
/* The longest body of a command, and some more. */
#define LONGEST 400
/* So many IDs and channels live at most: those of a round go with its channels. */
#define ROUND 2000

/* Memory for answers, behind which there is none. */
static uint8_t *memory;

static uint64_t any_address(void)
{
	switch (below(8)) {
	case 0:
		return 0;
	case 1:
		return draw();
	case 2:
		return (uintptr_t)memory + PAGE - below(64);
	default:
		return (uintptr_t)memory + 8 * below(PAGE / 16);
	}
}

static uint32_t any_id(void)
{
	return below(16) ? below(IDS) : draw();
}

/* An address of a socket: of this host, of all, of nobody, of another family. */
static void put_address(uint8_t *into)
{
	struct sockaddr_in own = address_of(host.sin_addr.s_addr, htons(below(3) ? 20000 + below(64) : 0));

	if (!below(4))
		own.sin_addr.s_addr = below(2) ? 0 : draw();
	if (!below(16))
		own.sin_family = draw();
	memcpy(into, &own, sizeof(own));
}

static void put(uint8_t *body, size_t offset, uint64_t value, size_t length)
{
	memcpy(body + offset, &value, length);
}

/* The body that a command should have, more or less. Gives its length. */
static size_t plausible(uint32_t number, uint8_t *body)
{
	static const uint16_t spaces[] = { RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB };
	size_t id = 0, length = 16;

	put(body, 0, any_address(), 8);
	id = 8;
	switch (number) {
	case UCMA_CMD_CREATE_ID:
		put(body, 0, draw(), 8);
		put(body, 8, any_address(), 8);
		put(body, 16, spaces[below(4)], 2);
		return 24;
	case UCMA_CMD_BIND_IP:
		put_address(body + 8);
		id = 36;
		length = 40;
		break;
	case UCMA_CMD_RESOLVE_IP:
		memset(body, 0, 56);
		if (below(2))
			put_address(body);
		put_address(body + 28);
		put(body, 60, below(3000), 4);
		id = 56;
		length = 64;
		break;
	case UCMA_CMD_RESOLVE_ROUTE:
	case UCMA_CMD_LISTEN:
	case UCMA_CMD_DISCONNECT:
	case UCMA_CMD_NOTIFY:
		put(body, 4, below(6), 4);
		id = 0;
		length = 8;
		break;
	case UCMA_CMD_CONNECT:
		put(body, 271, below(4) != 0, 1);
		id = 272;
		length = 288;
		break;
	case UCMA_CMD_ACCEPT:
		put(body, 279, below(4) != 0, 1);
		id = 280;
		length = 296;
		break;
	case UCMA_CMD_REJECT:
		id = 0;
		length = 264;
		break;
	case UCMA_CMD_GET_EVENT:
		return 8;
	case UCMA_CMD_SET_OPTION:
		put(body, 12, below(3), 4);
		put(body, 16, below(6), 4);
		put(body, 20, below(3) ? 1 + 3 * below(2) : draw(), 4);
		length = 24;
		break;
	case UCMA_CMD_MIGRATE_ID:
		put(body, 12, below(4) ? below(64) : draw(), 4);
		break;
	case UCMA_CMD_JOIN_IP_MCAST:
		put_address(body + 16);
		id = 44;
		length = 48;
		break;
	case UCMA_CMD_JOIN_MCAST:
		put_address(body + 24);
		put(body, 20, 16, 2);
		put(body, 22, below(3), 2);
		id = 16;
		length = 152;
		break;
	default:
		put(body, 12, below(8), 4);
	}
	put(body, id, any_id(), 4);
	return length;
}

/* Writes one command to one of the channels. Gives its errno. */
static int write_one(const struct rdma_event_channel *channel)
{
	uint8_t bytes[HEADER + LONGEST];
	uint32_t number = below(32) ? below(NUMBERS) : draw();
	size_t length, total;

	for (size_t i = 0; i < sizeof(bytes); i += 8)
		put(bytes, i, draw(), 8);
	length = below(8) ? plausible(number, bytes + HEADER) : below(LONGEST);
	put(bytes, 0, number, 4);
	put(bytes, 4, below(16) ? length : draw(), 2);
	put(bytes, 6, below(16) ? 340 : draw(), 2);
	total = below(32) ? HEADER + length : below(sizeof(bytes));
	/* At the end of memory, so that bytes after the command are read as an error. */
	memcpy(memory + PAGE - total, bytes, total);
	if (write(channel->fd, below(64) ? (void *)(memory + PAGE - total) : (void *)(uintptr_t)draw(), total) >= 0)
		return 0;
	return errno;
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channels[CHANNELS];
	unsigned long count, good = 0;
	/* The last is of what has no number here. */
	unsigned long errors[134] = { 0 };

	if (argc != 4)
		FAIL("usage: hostile ADDRESS SEED COUNT");
	set_host(argv[1]);
	random_numbers.state = strtoull(argv[2], NULL, 10);
	count = strtoul(argv[3], NULL, 10);
	memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED && !mprotect(memory + PAGE, PAGE, PROT_NONE));
	while (count) {
		for (int i = 0; i < CHANNELS; i++) {
			channels[i] = new_channel();
			/* Nobody may wait for an event that does not come. */
			MUST(!fcntl(channels[i]->fd, F_SETFL, O_NONBLOCK));
		}
		for (int i = 0; i < ROUND && count; i++, count--) {
			int error = write_one(channels[below(CHANNELS)]);

			good += !error;
			errors[error < 133 ? error : 133]++;
		}
		for (int i = 0; i < CHANNELS; i++)
			rdma_destroy_event_channel(channels[i]);
	}
	/* Most parts of the commands were reached. */
	printf("%lu good", good);
	for (int i = 1; i < 134; i++)
		if (errors[i])
			printf(", %lu %s", errors[i], strerrorname_np(i) ?: "?");
	putchar('\n');
	if (!good || !errors[EINVAL] || !errors[ENOENT] || !errors[EFAULT] || errors[133])
		FAIL("too few kinds of answers, or a strange one");
	struct ends ends = new_ends(RDMA_PS_TCP);

	/* The connection manager still works. */
	establish(&ends);
	destroy_ends(&ends);
	return 0;
}
