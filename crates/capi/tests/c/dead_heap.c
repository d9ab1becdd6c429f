/*
 * Operations on the mapped heap of a process that was killed: none that begins after it has become a zombie succeeds, and they end with
 * PW_PEER_LOST. A job of two. Argument: which operation.
 */
#include <pagewire.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds after which an operation must have ended: a bound of liveness. */
#define BOUND 60

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static bool is_zombie(pid_t process)
{
	char path[64], text[512], *after;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", process);
	file = fopen(path, "r");
	if (!file)
		return true;
	after = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
	fclose(file);
	return !after || after[2] == 'Z' || after[2] == 'X';
}

static pw_error execute(char which, pw_remote *remote)
{
	uint64_t word = 0;
	pw_signal signal = {.offset = 8, .value = 1, .change = PW_ADD};

	switch (which) {
	case 'p':
		return pw_put(remote, 0, &word, sizeof(word));
	case 'g':
		return pw_get(remote, 0, &word, sizeof(word));
	case 'a':
		return pw_fetch_add(remote, 0, 1, NULL);
	default:
		return pw_put_signal(remote, 0, &word, sizeof(word), &signal);
	}
}

int main(int count, char **arguments)
{
	char which = count > 1 ? arguments[1][0] : 'p', *memory;
	pid_t own = getpid(), processes[2];
	pw_token token, tokens[2];
	pw_error error = PW_OK;
	pw_remote *remote;
	double begin;
	pw_node *node;
	bool dead;

	if (pw_node_from_env(&node))
		pw_die("pw_node_from_env");
	memory = pw_calloc(4096, 1);
	if (pw_export(node, memory, 4096, PW_READ | PW_WRITE | PW_ATOMIC, &token) || pw_all_gather(node, &token, sizeof(token), tokens) ||
	    pw_all_gather(node, &own, sizeof(own), processes) || pw_open(node, &tokens[1], &remote) || pw_barrier(node))
		pw_die("job");
	if (pw_rank(node) == 1)
		for (;;)
			pause();
	if (execute(which, remote))
		pw_die("an operation on a process that lives");
	kill(processes[1], SIGKILL);
	for (begin = now(); !error && now() - begin < BOUND;) {
		dead = is_zombie(processes[1]);
		error = execute(which, remote);
		if (!error && dead) {
			printf("%c succeeded after the end of its target\n", which);
			return 1;
		}
	}
	if (error != PW_PEER_LOST) {
		printf("%c ended with %s\n", which, pw_error_name(error));
		return 1;
	}
	pw_node_leave(node);
	return 0;
}
