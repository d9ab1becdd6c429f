/*
 * Descriptors of event channels: what becomes of a channel that is copied, inherited, sent and closed, and what write(2) answers to bytes
 * that are no command of librdmacm.
 *
 * channels ADDRESS NAME: an IPv4 address of this host; which test. `channels ADDRESS exec-inherited DESCRIPTOR` is what a test executes.
 */
#define _GNU_SOURCE
#include "ends.h"

#include <pthread.h>
#include <stdatomic.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <rdma/rdma_cma_abi.h>

static char *program, *address;

/* An answer to GET_EVENT has these bytes since version 4 of the interface. */
static uint8_t answer_to_event[336];
static struct ucma_abi_create_id_resp created;

/* What every command begins with, in bytes. */
#define HEADER 8

static struct ucma_abi_get_event new_get_event(void)
{
	return (struct ucma_abi_get_event){
		.cmd = UCMA_CMD_GET_EVENT,
		.in = sizeof(struct ucma_abi_get_event) - HEADER,
		.out = sizeof(answer_to_event),
		.response = (uintptr_t)answer_to_event,
	};
}

static int get_event(int descriptor)
{
	struct ucma_abi_get_event command = new_get_event();

	return write(descriptor, &command, sizeof(command)) == sizeof(command) ? 0 : errno;
}

static struct ucma_abi_create_id new_create_id(void)
{
	return (struct ucma_abi_create_id){
		.cmd = UCMA_CMD_CREATE_ID,
		.in = sizeof(struct ucma_abi_create_id) - HEADER,
		.out = sizeof(created),
		.uid = 1,
		.response = (uintptr_t)&created,
		.ps = RDMA_PS_TCP,
		.qp_type = IBV_QPT_RC,
	};
}

static int create(int descriptor)
{
	struct ucma_abi_create_id command = new_create_id();

	return write(descriptor, &command, sizeof(command)) == sizeof(command) ? 0 : errno;
}

static void must_be(const char *what, int found, int wanted)
{
	if (found != wanted)
		FAIL("%s: %s, not %s", what, strerrorname_np(found), strerrorname_np(wanted));
}

/* Waits for a child, which must have ended well. */
static void join(pid_t child)
{
	int status;

	MUST(child > 0 && waitpid(child, &status, 0) == child);
	if (status)
		FAIL("the child ended with %d", status);
}

static void set_nonblocking(int descriptor)
{
	MUST(!fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK));
}

/* A copy is the same channel: events come at both, flags are of both, and the first close ends nothing. */
static void duplicated(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	int copy = dup(ends.active->fd), original = ends.active->fd;

	MUST(copy >= 0);
	set_nonblocking(copy);
	must_be("the original", get_event(original), EAGAIN);
	resolve_address(ends.caller, rdma_get_src_port(ends.listener));
	must_be("the copy", get_event(copy), EAGAIN);
	MUST(!close(original));
	must_be("the original, closed", get_event(original), EBADF);
	ends.active->fd = copy;
	MUST(!rdma_resolve_route(ends.caller, RESOLVE_MS));
	expect(ends.active, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(dup2(copy, original) == original && !close(copy));
	ends.active->fd = original;
	MUST(!connect_to(ends.caller, NULL, 0));
	ends.child = take_request(ends.passive);
	destroy_ends(&ends);
}

/* A forked child has no connection manager for its parent's channels; that it ends takes nothing from the parent. */
static void forked(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	struct ends own;
	pid_t child;

	resolve(ends.caller, rdma_get_src_port(ends.listener));
	child = fork();
	if (!child) {
		must_be("GET_EVENT in the child", get_event(ends.active->fd), EBADF);
		must_be("CREATE_ID in the child", create(ends.active->fd), EBADF);
		MUST(rdma_disconnect(ends.caller) && errno == EBADF);
		/* One of its own works. */
		own = new_ends(RDMA_PS_TCP);
		establish(&own);
		destroy_ends(&own);
		MUST(!close(ends.active->fd) && !close(ends.passive->fd));
		exit(0);
	}
	join(child);
	MUST(!connect_to(ends.caller, NULL, 0));
	ends.child = take_request(ends.passive);
	MUST(!accept_with(ends.child, NULL, 0));
	expect(ends.active, RDMA_CM_EVENT_CONNECT_RESPONSE);
	destroy_ends(&ends);
}

/* What the executed program finds. */
static int exec_inherited(int descriptor)
{
	struct ends own;

	/* To the new program it is the end of a socket, whose other end is closed: no command is executed. */
	MUST(get_event(descriptor));
	own = new_ends(RDMA_PS_TCP);
	establish(&own);
	destroy_ends(&own);
	MUST(!close(descriptor));
	return 0;
}

static void executed(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	char number[16];
	pid_t child;

	MUST(fcntl(ends.active->fd, F_GETFD) & FD_CLOEXEC);
	MUST(!fcntl(ends.active->fd, F_SETFD, 0));
	snprintf(number, sizeof(number), "%d", ends.active->fd);
	child = fork();
	if (!child) {
		signal(SIGPIPE, SIG_IGN);
		execl(program, program, address, "exec-inherited", number, NULL);
		FAIL("%s: %s", program, strerror(errno));
	}
	join(child);
	establish(&ends);
	destroy_ends(&ends);
}

/* A channel goes to another process as a descriptor: commands work only where it was opened. */
static void sent(void)
{
	int pair[2], channel = -1;
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec piece = { &byte, 1 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *header;
	struct ends ends, own;
	pid_t child;

	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	child = fork();
	if (!child) {
		signal(SIGPIPE, SIG_IGN);
		own = new_ends(RDMA_PS_TCP);
		MUST(recvmsg(pair[1], &message, 0) == 1);
		header = CMSG_FIRSTHDR(&message);
		MUST(header && header->cmsg_type == SCM_RIGHTS);
		memcpy(&channel, CMSG_DATA(header), sizeof(channel));
		/* An ID of the other process cannot come over. */
		own.active->fd = dup(own.active->fd);
		MUST(rdma_migrate_id(own.caller, &(struct rdma_event_channel){ channel }));
		establish(&own);
		destroy_ends(&own);
		exit(0);
	}
	ends = new_ends(RDMA_PS_TCP);
	header = CMSG_FIRSTHDR(&message);
	*header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(header), &ends.active->fd, sizeof(int));
	MUST(sendmsg(pair[0], &message, 0) == 1);
	join(child);
	establish(&ends);
	destroy_ends(&ends);
	MUST(!close(pair[0]) && !close(pair[1]));
}

/* How far the connections of a channel are that is closed, and what the peer hears. */
static void closed(int step)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	int copy = dup(ends.active->fd);

	MUST(copy >= 0);
	if (step == 0)
		answer(&ends);
	else
		establish(&ends);
	MUST(!close(ends.active->fd));
	expect_nothing(ends.passive);
	MUST(!close(copy));
	expect(ends.passive, step ? RDMA_CM_EVENT_DISCONNECTED : RDMA_CM_EVENT_REJECTED);
	expect_nothing(ends.passive);
	/* The library's part of the ID cannot be destroyed any more: its channel is gone. */
	MUST(rdma_destroy_id(ends.caller) && errno == EBADF);
	MUST(!rdma_destroy_id(ends.child) && !rdma_destroy_id(ends.listener));
	rdma_destroy_event_channel(ends.passive);
}

/* Requests to a listener whose channel is closed are refused, also those that it has not taken. */
static void closed_listener(void)
{
	struct ends ends = new_ends(RDMA_PS_TCP);
	uint16_t port = rdma_get_src_port(ends.listener);
	struct rdma_cm_id *late = new_id(ends.active, RDMA_PS_TCP);

	ask(&ends);
	MUST(!close(ends.passive->fd));
	MUST(expect(ends.active, RDMA_CM_EVENT_REJECTED) == 28);
	resolve(late, port);
	MUST(!connect_to(late, NULL, 0));
	MUST(expect(ends.active, RDMA_CM_EVENT_REJECTED) == 8);
	MUST(!rdma_destroy_id(late) && !rdma_destroy_id(ends.caller));
	rdma_destroy_event_channel(ends.active);
}

static void closed_last_copy(void)
{
	closed(0);
	closed(1);
	closed_listener();
}

/* Sockets and pipes that are made after a channel was closed are none, whatever their numbers. */
static void reused(void)
{
	for (int i = 0; i < 200; i++) {
		struct rdma_event_channel *channel = new_channel();
		int number = channel->fd, pair[2];
		struct ucma_abi_get_event command = new_get_event();
		char bytes[sizeof(command)];

		rdma_destroy_event_channel(channel);
		MUST(!(i % 2 ? pipe(pair) : socketpair(AF_UNIX, SOCK_STREAM, 0, pair)));
		MUST(pair[0] == number || pair[1] == number || i % 2);
		MUST(write(pair[1], &command, sizeof(command)) == sizeof(command));
		MUST(read(pair[0], bytes, sizeof(bytes)) == sizeof(bytes) && !memcmp(bytes, &command, sizeof(bytes)));
		MUST(!close(pair[0]) && !close(pair[1]));
	}
}

/* What write(2) answers: 0 or errno. */
static int write_bytes(int descriptor, const void *bytes, size_t length)
{
	ssize_t written = write(descriptor, bytes, length);

	if (written >= 0 && (size_t)written != length)
		FAIL("%zd of %zu bytes are written", written, length);
	return written >= 0 ? 0 : errno;
}

/* Lengths, addresses, numbers and IDs that are wrong; the answers are those of ucma.c. */
static void wrong_bytes(void)
{
	struct rdma_event_channel *channel = new_channel(), *other = new_channel();
	struct ucma_abi_create_id command = new_create_id(), changed;
	struct rdma_cm_id *foreign = new_id(other, RDMA_PS_TCP);
	struct ucma_abi_destroy_id_resp destroyed;
	struct ucma_abi_destroy_id destroy = {
		.cmd = UCMA_CMD_DESTROY_ID,
		.in = sizeof(destroy) - HEADER,
		.out = sizeof(destroyed),
		.response = (uintptr_t)&destroyed,
	};
	char *guarded = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = channel->fd;

	set_nonblocking(fd);
	MUST(guarded != MAP_FAILED && !mprotect(guarded + 4096, 4096, PROT_NONE));
	must_be("nothing", write_bytes(fd, &command, 0), EINVAL);
	must_be("less than a header", write_bytes(fd, &command, 7), EINVAL);
	must_be("no memory", write_bytes(fd, NULL, sizeof(command)), EFAULT);
	must_be("memory that ends", write_bytes(fd, guarded + 4092, sizeof(command)), EFAULT);
	changed = command;
	changed.in = sizeof(command);
	must_be("a body longer than the write", write_bytes(fd, &changed, sizeof(changed)), EINVAL);
	changed = command;
	changed.cmd = 25;
	must_be("a number after the last", write_bytes(fd, &changed, sizeof(changed)), EINVAL);
	changed.cmd = UINT32_MAX;
	must_be("the greatest number", write_bytes(fd, &changed, sizeof(changed)), EINVAL);
	changed.cmd = UCMA_CMD_GET_OPTION;
	must_be("GET_OPTION", write_bytes(fd, &changed, sizeof(changed)), ENOSYS);
	changed = command;
	changed.out = sizeof(created) - 1;
	must_be("an answer without room", write_bytes(fd, &changed, sizeof(changed)), ENOSPC);
	changed = command;
	changed.response = (uintptr_t)(guarded + 4096);
	must_be("an answer to nowhere", write_bytes(fd, &changed, sizeof(changed)), EFAULT);
	changed = command;
	changed.ps = 0;
	must_be("no port space", write_bytes(fd, &changed, sizeof(changed)), EINVAL);
	must_be("a good command", write_bytes(fd, &command, sizeof(command)), 0);
	/* Of a command at the end of memory only the command is read, whatever the length says. */
	memcpy(guarded + 4096 - sizeof(command), &command, sizeof(command));
	must_be("a length beyond memory", write_bytes(fd, guarded + 4096 - sizeof(command), 4096), 0);
	destroy.id = UINT32_MAX;
	must_be("an ID that is none", write_bytes(fd, &destroy, sizeof(destroy)), ENOENT);
	destroy.id = created.id;
	must_be("an ID of another channel", write_bytes(other->fd, &destroy, sizeof(destroy)), EINVAL);
	must_be("its own", write_bytes(fd, &destroy, sizeof(destroy)), 0);
	must_be("once more", write_bytes(fd, &destroy, sizeof(destroy)), ENOENT);
	must_be("no event", get_event(fd), EAGAIN);
	MUST(!rdma_destroy_id(foreign) && !munmap(guarded, 8192));
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(other);
}

static void *take_events(void *channel)
{
	struct rdma_cm_event *event;

	for (;;)
		MUST(!rdma_get_cm_event(channel, &event) && !rdma_ack_cm_event(event));
}

/* A thread that waits for events is cancelled, as rping does it; the channel goes on. */
static void cancelled(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, htons(9));
	pthread_t thread;
	void *result;

	MUST(!pthread_create(&thread, NULL, take_events, channel));
	usleep(100000);
	MUST(!pthread_cancel(thread));
	MUST(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
	MUST(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ADDR_RESOLVED)));
	MUST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* The channel that is closed as soon as a thread waits for its events; it is none any more then. */
static _Atomic int closing = -1;
/* Whether another one gets its number then, and that one. */
static int replaces;
static struct rdma_event_channel *replacement;

/* Stands before the C library's: where a command of the kernel's is one call, ours waits by recv(2). */
ssize_t recv(int descriptor, void *to, size_t length, int flags)
{
	int number = descriptor;

	if (flags & MSG_PEEK && number >= 0 && atomic_compare_exchange_strong(&closing, &number, -2)) {
		MUST(!close(descriptor));
		if (replaces)
			replacement = new_channel();
		closing = -1;
	}
	return recvfrom(descriptor, to, length, flags, NULL, NULL);
}

static void *take_one(void *number)
{
	int error = get_event((intptr_t)number);

	FAIL("the command has ended: %s", strerrorname_np(error));
}

/* A thread closes a channel for whose events another begins to wait: that one waits on, as with the kernel. rping ends like this. */
static void closed_meanwhile(void)
{
	struct rdma_event_channel *channel = new_channel();
	pthread_t thread;

	closing = channel->fd;
	MUST(!pthread_create(&thread, NULL, take_one, (void *)(intptr_t)channel->fd));
	usleep(200000);
	MUST(closing == -1);
	must_be("the channel", get_event(channel->fd), EBADF);
	free(channel);
}

/* A channel is destroyed while a thread waits for its events, and a new one gets its number: the thread gets no event of the new one. */
static void replaced_meanwhile(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, htons(9));
	struct rdma_cm_id *id;
	pthread_t thread;

	replaces = 1;
	closing = channel->fd;
	MUST(!pthread_create(&thread, NULL, take_one, (void *)(intptr_t)channel->fd));
	usleep(200000);
	MUST(closing == -1 && replacement->fd == channel->fd);
	id = new_id(replacement, RDMA_PS_TCP);
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
	MUST(!rdma_ack_cm_event(take(replacement, RDMA_CM_EVENT_ADDR_RESOLVED)));
	usleep(100000);
	MUST(!rdma_destroy_id(id));
	free(channel);
}

/* An event that cannot be written where the command says stays the next one. */
static void untold(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, htons(9));
	struct ucma_abi_get_event command = new_get_event();
	struct pollfd waiting = { .fd = channel->fd, .events = POLLIN };

	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
	command.response = 0;
	for (int i = 0; i < 2; i++) {
		MUST(poll(&waiting, 1, RESOLVE_MS) == 1);
		must_be("an event to nowhere", write_bytes(channel->fd, &command, sizeof(command)), EFAULT);
	}
	MUST(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ADDR_RESOLVED)));
	MUST(!poll(&waiting, 1, 0));
	MUST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* Internet sockets that this function was asked for. It stands before that of the C library, as that of librspreload.so does. */
static _Atomic int asked;

int socket(int domain, int type, int protocol)
{
	asked += domain == AF_INET || domain == AF_INET6;
	return syscall(SYS_socket, domain, type, protocol);
}

/* librspreload.so would open a channel for each, while the connection manager is at work. */
static void own_sockets(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	struct sockaddr_in peer = address_of(host.sin_addr.s_addr, htons(9));

	asked = 0;
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_MS));
	MUST(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ADDR_RESOLVED)));
	if (asked)
		FAIL("%d sockets of the engine are of others' making", asked);
	MUST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "duplicated", duplicated }, { "forked", forked }, { "executed", executed }, { "sent", sent },
	{ "closed", closed_last_copy }, { "reused", reused }, { "wrong-bytes", wrong_bytes },
	{ "cancelled", cancelled }, { "closed-meanwhile", closed_meanwhile }, { "replaced-meanwhile", replaced_meanwhile }, { "untold", untold }, { "own-sockets", own_sockets },
};

int main(int argc, char **argv)
{
	if (argc < 3)
		FAIL("usage: channels ADDRESS NAME");
	program = argv[0];
	address = argv[1];
	set_host(address);
	if (argc > 3 && !strcmp(argv[2], "exec-inherited"))
		return exec_inherited(atoi(argv[3]));
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		if (!strcmp(argv[2], tests[i].name)) {
			tests[i].run();
			return 0;
		}
	FAIL("no test %s", argv[2]);
}
