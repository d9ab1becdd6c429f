/*
 * Events that a program writes to a channel of the connection manager itself (rdma_write_cm_event(3) of rdma-core 65), by the command that its
 * librdmacm writes: they are read in order, with the ID and the 8 bytes that were written, and have a bound.
 */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

enum { CREATE_ID = 0, DESTROY_ID = 1, GET_EVENT = 12, WRITE_CM_EVENT = 24 };
enum { ESTABLISHED = 9, USER = 18, INTERNAL = 19, TCP = 0x106, UID = 0x1234 };

struct header {
	uint32_t command;
	uint16_t input, output;
};
struct event {
	uint64_t uid;
	uint32_t id, event;
	int32_t status;
	uint32_t arg[76];
	uint32_t reserved[3];
};

/* 0, or the errno. */
static int command(int channel, uint32_t number, const void *body, uint16_t length, uint16_t output)
{
	char bytes[400];
	struct header header = { number, length, output };

	memcpy(bytes, &header, sizeof(header));
	memcpy(bytes + sizeof(header), body, length);
	return write(channel, bytes, sizeof(header) + length) < 0 ? errno : 0;
}

static uint32_t create_id(int channel)
{
	uint32_t id = 77;
	struct {
		uint64_t uid, response;
		uint16_t space;
		uint8_t type, reserved[5];
	} body = { UID, (uintptr_t)&id, TCP, IBV_QPT_RC, { 0 } };

	CHECK(command(channel, CREATE_ID, &body, sizeof(body), sizeof(id)) == 0);
	return id;
}

static uint32_t destroy_id(int channel, uint32_t id)
{
	uint32_t reported = 77;
	struct {
		uint64_t response;
		uint32_t id, reserved;
	} body = { (uintptr_t)&reported, id, 0 };

	CHECK(command(channel, DESTROY_ID, &body, sizeof(body), sizeof(reported)) == 0);
	return reported;
}

static int write_event(int channel, uint32_t id, uint32_t event, int32_t status, uint64_t arg)
{
	struct {
		uint32_t id, reserved, event;
		int32_t status;
		uint64_t arg[38];
	} body = { id, 0, event, status, { arg } };

	return command(channel, WRITE_CM_EVENT, &body, sizeof(body), 0);
}

static int get_event(int channel, struct event *event)
{
	uint64_t response = (uintptr_t)event;

	memset(event, 0xaa, sizeof(*event));
	return command(channel, GET_EVENT, &response, sizeof(response), sizeof(*event));
}

static int is_readable(int channel)
{
	struct pollfd poll_fd = { channel, POLLIN, 0 };

	return poll(&poll_fd, 1, 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();
	int channel = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	int other = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	uint32_t id = create_id(channel), second = create_id(channel), written = 0;
	struct event event;
	uint64_t arg;

	CHECK(channel >= 0 && other >= 0);
	CHECK(write_event(channel, id, USER, -7, 0x1122334455667788) == 0 && write_event(channel, second, INTERNAL, 0, 16) == 0);
	CHECK(is_readable(channel) && get_event(channel, &event) == 0);
	memcpy(&arg, event.arg, sizeof(arg));
	CHECK(event.uid == UID && event.id == id && event.event == USER && event.status == -7 && arg == 0x1122334455667788);
	CHECK(event.arg[2] == 0 && event.arg[75] == 0);
	CHECK(get_event(channel, &event) == 0 && event.id == second && event.event == INTERNAL && event.arg[0] == 16);
	CHECK(get_event(channel, &event) == EAGAIN && !is_readable(channel));

	/* Events of the state machines are not for a program to write, nor those of another channel. */
	CHECK(write_event(channel, id, ESTABLISHED, 0, 0) == EINVAL && write_event(channel, id, USER + 2, 0, 0) == EINVAL);
	CHECK(write_event(other, id, USER, 0, 0) == EINVAL && write_event(channel, 0x7fffffff, USER, 0, 0) == ENOENT);
	CHECK(command(channel, WRITE_CM_EVENT, &id, sizeof(id), 0) == EINVAL);
	CHECK(!is_readable(channel));

	while (write_event(channel, id, USER, 0, written) == 0)
		CHECK(++written < 1 << 20);
	CHECK(errno == ENOMEM && written == 1 << 16);
	for (uint32_t i = 0; i < 10; i++)
		CHECK(get_event(channel, &event) == 0 && event.arg[0] == i);
	CHECK(write_event(channel, id, USER, 0, 0) == 0);
	/* What waits for an ID ends with it, and who destroys it learns how many were read. */
	CHECK(destroy_id(channel, id) == 11 && destroy_id(channel, second) == 1);
	CHECK(get_event(channel, &event) == EAGAIN);
	CHECK(close(channel) == 0 && close(other) == 0 && ibv_close_device(context) == 0);
	return 0;
}
