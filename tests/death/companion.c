#include "companion.h"

#include "roles.h"

#include <sys/wait.h>
#include <unistd.h>

/* Requests and receives after which everything has been used. */
#define SETTLED 200
/* What a survivor tells its companion: to complete what is under way and rest, to go on then, or to end. */
#define REST 'r'
#define GO_ON 'g'
#define END 'e'

int meet(struct link *link, int socket)
{
	struct introduction own = introduce(link), peer;
	char ready = 'r';

	if (!tell(socket, &own, sizeof(own)) || !hear(socket, &peer, sizeof(peer)))
		return 0;
	connect_link(link, &peer, PATIENT);
	return tell(socket, &ready, 1) && hear(socket, &ready, 1);
}

/* What both sides do again and again. */
static void work_a_little(struct link *link, unsigned pause)
{
	post_some(link);
	take_completions(link);
	if (pause)
		usleep(pause);
}

int stay_healthy(char **arguments)
{
	static struct link link;
	unsigned pause = strtoul(arguments[1], NULL, 10);
	char word = GO_ON;

	follow_starter();
	make_link(&link, "companion", open_first_device(), pages(reachable_length()), pages(buffers_length()),
		  strtoull(arguments[0], NULL, 10));
	CHECK(meet(&link, SOCKET));
	while (word == GO_ON) {
		for (uint64_t round = 0; (pause == 0 && round % 256 != 0) || !has_word(SOCKET); round++)
			work_a_little(&link, pause);
		CHECK(hear(SOCKET, &word, 1) && word == REST);
		drain(&link);
		CHECK(tell(SOCKET, &word, 1));
		/* What the survivor has under way still needs this side. */
		while (!has_word(SOCKET))
			take_completions(&link);
		CHECK(hear(SOCKET, &word, 1));
	}
	CHECK(word == END);
	destroy_link(&link);
	return 0;
}

void start_companion(struct companion *companion, struct ibv_context *context, uint64_t seed, unsigned pause)
{
	char number[32], microseconds[16];
	char *arguments[] = { "death", "companion", number, microseconds, NULL };

	snprintf(number, sizeof(number), "%llu", (unsigned long long)seed + 1);
	snprintf(microseconds, sizeof(microseconds), "%u", pause);
	companion->pause = pause;
	make_link(&companion->link, "companion", context, pages(reachable_length()), pages(buffers_length()), seed);
	companion->party = start_party(arguments, -1);
	CHECK(meet(&companion->link, companion->party.socket));
	/* Channels in both directions are open, and counted as what is held. */
	must_go_on(companion, SETTLED);
}

void go_on(struct companion *companion)
{
	work_a_little(&companion->link, companion->pause);
}

void must_go_on(struct companion *companion, uint64_t more)
{
	uint64_t enough = companion->link.done + more;
	double end = seconds() + PATIENCE_SECONDS;

	while (companion->link.done < enough) {
		go_on(companion);
		CHECK(seconds() < end);
	}
}

void rest(struct companion *companion)
{
	char word = REST;

	CHECK(tell(companion->party.socket, &word, 1));
	while (!has_word(companion->party.socket))
		take_completions(&companion->link);
	CHECK(hear(companion->party.socket, &word, 1));
	drain(&companion->link);
}

void work_again(struct companion *companion)
{
	char word = GO_ON;

	CHECK(tell(companion->party.socket, &word, 1));
}

void end_companion(struct companion *companion)
{
	char word = END;
	int status;

	rest(companion);
	CHECK(tell(companion->party.socket, &word, 1));
	destroy_link(&companion->link);
	status = end_of(&companion->party);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
