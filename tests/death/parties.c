#define _GNU_SOURCE
#include "parties.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern char **environ;

struct party start_party(char *const arguments[], int other)
{
	posix_spawn_file_actions_t actions;
	struct party party;
	int ends[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	CHECK(posix_spawn_file_actions_init(&actions) == 0);
	CHECK(ends[1] > OTHER && posix_spawn_file_actions_adddup2(&actions, ends[1], SOCKET) == 0);
	if (other >= 0)
		CHECK(posix_spawn_file_actions_adddup2(&actions, other, OTHER) == 0);
	CHECK(posix_spawn(&party.pid, "/proc/self/exe", &actions, NULL, arguments, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	party.socket = ends[0];
	return party;
}

void follow_starter(void)
{
	char byte;

	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	/* It may have ended before. */
	CHECK(recv(SOCKET, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0);
}

int tell(int socket, const void *bytes, size_t length)
{
	ssize_t sent;

	for (size_t done = 0; done < length; done += sent) {
		sent = send(socket, (const char *)bytes + done, length - done, MSG_NOSIGNAL);
		if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
			return 0;
		CHECK(sent > 0);
	}
	return 1;
}

int hear(int socket, void *bytes, size_t length)
{
	ssize_t got;

	for (size_t done = 0; done < length; done += got) {
		got = recv(socket, (char *)bytes + done, length - done, 0);
		if (got == 0 || (got < 0 && errno == ECONNRESET))
			return 0;
		CHECK(got > 0);
	}
	return 1;
}

int has_word(int socket)
{
	struct pollfd fd = { .fd = socket, .events = POLLIN };

	return poll(&fd, 1, 0) == 1;
}

int end_of(struct party *party)
{
	int status;

	CHECK(waitpid(party->pid, &status, 0) == party->pid);
	close(party->socket);
	party->pid = 0;
	return status;
}

char *pages(size_t length)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}
