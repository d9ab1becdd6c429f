/* Arguments, the two processes, the end. */
#include "motion.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void *move_about(void *argument)
{
	struct mover *mover = argument;

	while (!atomic_load(&mover->stop)) {
		mover->move->run(mover, &mover->areas[mover->current]);
		atomic_fetch_add(&mover->rounds, 1);
		if (mover->move->flags & FAULTS && random_below(&mover->random, 8) == 0)
			renew(mover);
		/* Both ends are to get work done in between. */
		pause_up_to(&mover->random, 3000);
	}
	return NULL;
}

static size_t slot_of(const struct settings *settings)
{
	static const size_t pages[] = { 1, 4, 64 };
	struct random random = { settings->seed };

	return pages[random_below(&random, 3)] * page_size();
}

static void run_moving_end(int control, const struct settings *settings)
{
	struct ibv_context *context;
	struct mover *mover = calloc(1, sizeof(*mover));
	size_t slot = slot_of(settings);
	struct end *end;
	pthread_t thread;

	CHECK(mover);
	mover->settings = settings;
	mover->move = move_named(settings->move);
	mover->length = SLOTS * slot + page_size() / 2;
	mover->random.state = settings->seed + 17;
	CHECK(pthread_mutex_init(&mover->renewing, NULL) == 0 && pthread_mutex_init(&mover->publishing, NULL) == 0);
	handlers_before(settings);
	context = open_first_device();
	end = make_end(0, control, settings, slot, mover, context);
	mover->pd = pd_of(end);
	make_area(mover, &mover->areas[0], 0);
	if (mover->move->backing != BREAK)
		make_area(mover, &mover->areas[1], 1);
	first_registration(mover);
	CHECK(pthread_create(&thread, NULL, move_about, mover) == 0);
	run_end(end);
	atomic_store(&mover->stop, true);
	CHECK(pthread_join(thread, NULL) == 0);
	last_deregistration(mover);
	handlers_end();
	if (!settings->quiet) {
		say_end(end);
		printf("%s: %zu moves, %zu renewals, %zu times EBUSY\n", settings->move, mover->rounds, mover->renewals,
		       mover->busy);
	}
}

static void run_steady_end(int control, const struct settings *settings)
{
	struct end *end = make_end(1, control, settings, slot_of(settings), NULL, open_first_device());

	run_end(end);
	if (!settings->quiet)
		say_end(end);
}

struct both {
	int control;
	const struct settings *settings;
};

static void *steady_thread(void *argument)
{
	struct both *both = argument;

	run_steady_end(both->control, both->settings);
	return NULL;
}

static void *moving_thread(void *argument)
{
	struct both *both = argument;

	run_moving_end(both->control, both->settings);
	return NULL;
}

/* The peer is this program anew, or one that PEER names: where the moving end lives in a Java or Go process. */
static pid_t start_peer(int control, char **arguments, int count)
{
	const char *peer = getenv("MOTION_PEER");
	char **words = calloc(count + 4, sizeof(*words)), number[16];
	pid_t child;

	CHECK(words);
	snprintf(number, sizeof(number), "%d", control);
	for (int i = 0; i < count; i++)
		words[i] = arguments[i];
	words[count] = "--control";
	words[count + 1] = number;
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		execv(peer ? peer : "/proc/self/exe", words);
		_exit(127);
	}
	free(words);
	return child;
}

int motion_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "move", required_argument, NULL, 'm' },     { "handlers", required_argument, NULL, 'h' },
		{ "seed", required_argument, NULL, 's' },     { "rounds", required_argument, NULL, 'r' },
		{ "together", no_argument, NULL, 't' },       { "quiet", no_argument, NULL, 'q' },
		{ "control", required_argument, NULL, 'c' },  { NULL, 0, NULL, 0 },
	};
	struct settings settings = { .move = "any", .handlers = "none", .rounds = 100 };
	int option, sockets[2], control = -1, status = 0;
	pthread_t steady, moving;
	pid_t peer = 0;

	settings.seed = time(NULL);
	optind = 1;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'm': settings.move = optarg; break;
		case 'h': settings.handlers = optarg; break;
		case 's': settings.seed = strtoull(optarg, NULL, 0); break;
		case 'r': settings.rounds = strtoull(optarg, NULL, 0); break;
		case 't': settings.together = true; break;
		case 'q': settings.quiet = true; break;
		case 'c': control = atoi(optarg); break;
		default: return 2;
		}
	}
	if (!move_named(settings.move)) {
		fprintf(stderr, "no move is called %s\n", settings.move);
		return 2;
	}
	/* A crash is seen without its memory. */
	CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) == 0);
	alarm(LIMIT_SECONDS + 60);
	if (control >= 0) {
		run_steady_end(control, &settings);
		return 0;
	}
	printf("again: --move %s --handlers %s --seed %llu --rounds %zu%s\n", settings.move, settings.handlers,
	       (unsigned long long)settings.seed, settings.rounds, settings.together ? " --together" : "");
	fflush(stdout);
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	struct both ours = { sockets[0], &settings }, theirs = { sockets[1], &settings };

	if (settings.together) {
		CHECK(pthread_create(&steady, NULL, steady_thread, &theirs) == 0);
	} else {
		/* Not inherited by what the moves start. */
		CHECK(fcntl(sockets[1], F_SETFD, 0) == 0);
		peer = start_peer(sockets[1], argv, argc);
		CHECK(close(sockets[1]) == 0);
	}
	if (strcmp(settings.handlers, "foreign") == 0) {
		/* In a thread of the language's runtime. */
		moving_thread(&ours);
	} else {
		/* The main thread does nothing more: the program break is the mover's. */
		CHECK(pthread_create(&moving, NULL, moving_thread, &ours) == 0);
		CHECK(pthread_join(moving, NULL) == 0);
	}
	if (settings.together)
		CHECK(pthread_join(steady, NULL) == 0);
	else
		CHECK(waitpid(peer, &status, 0) == peer);
	if (status)
		fprintf(stderr, "the peer ended with status 0x%x\n", status);
	return status != 0;
}
