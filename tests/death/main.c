/* death ROLE ...: processes that die, and processes that live on. `make kill` and `make single-step` run it. */
#include "check.h"
#include "roles.h"

static const struct {
	const char *name;
	int (*play)(char **arguments);
	int arguments;
} roles[] = {
	{ "kill", survive_kills, 3 },
	{ "companion", stay_healthy, 2 },
	{ "victim", be_victim, 1 },
	{ "single-step", survive_steps, 6 },
	{ "stepped", be_stepped, 2 },
	{ "tracer", trace_steps, 5 },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		if (argc >= 2 && strcmp(argv[1], roles[i].name) == 0 && argc == roles[i].arguments + 2)
			return roles[i].play(argv + 2);
	}
	fprintf(stderr, "usage: death kill ROUNDS SEED FIRST | single-step OPERATION STRIDE FIRST LAST kill|stop PAUSE\n");
	return 2;
}
