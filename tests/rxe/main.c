/* peers -t CHECK -p PORT -x GID-INDEX [-s SEED] [-q QUEUE-PAIRS] [-d] [SERVER]: a plain verbs program for scripts/test-rxe, one
 * end of which runs on Pagewire and the other on soft-RoCE. The ends wait for each other over TCP, so that none leaves early.
 * -d: the network loses packets. */
#include "pair.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct check {
    const char *name;
    void (*run)(int active);
    /* 2: each end is the active one once. */
    int runs;
} checks[] = {
    { "transfers", transfers, 2 }, { "datagrams", datagrams, 2 }, { "events", events, 2 },
    { "losses", losses, 2 },       { "mixed", mixed, 1 },         { "forms", forms, 2 },
    { "unreliable", unreliable, 2 }, { "renewed", renewed, 2 },   { "absent", absent, 2 },
    { "windows", windows, 2 },     { "atomic_writes", atomic_writes, 2 },
    { "flushes", flushes, 2 },
};

/* The status of a process that opens the device by itself and runs the check as the passive end. */
static int child(void (*run)(int active))
{
    int status;
    pid_t process = fork();
    REQUIRE(process >= 0);
    if (process == 0) {
        open_pair();
        run(0);
        close_pair();
        _exit(0);
    }
    REQUIRE(waitpid(process, &status, 0) == process);
    return status;
}

/* The server is killed in the middle of its traffic, and another takes its place. */
static void death(void)
{
    if (pair.server) {
        open_pair();
        dies(1);
        close_pair();
        open_pair();
        succeeds(1);
        close_pair();
        return;
    }
    int status = child(dies);
    REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = child(succeeds);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void run(const struct check *check)
{
    open_pair();
    for (int i = 0; i < check->runs; i++)
        check->run(i == (pair.server ? 0 : 1));
    close_pair();
}

int main(int count, char **words)
{
    const char *name = "";
    const struct check *check = NULL;
    int option;
    pair.seed = 1;
    pair.queue_pairs = 8;
    while ((option = getopt(count, words, "t:p:x:s:q:d")) != -1) {
        switch (option) {
        case 't': name = optarg; break;
        case 'p': pair.port = (uint16_t)atoi(optarg); break;
        case 'x': pair.gid_index = atoi(optarg); break;
        case 's': pair.seed = atoi(optarg); break;
        case 'q': pair.queue_pairs = atoi(optarg); break;
        case 'd': pair.lossy = 1; break;
        default: return 2;
        }
    }
    pair.server = words[optind];
    srandom((unsigned)(pair.seed + (pair.server ? 1 : 0)));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!strcmp(checks[i].name, name))
            check = &checks[i];
    if (check) {
        run(check);
    } else if (!strcmp(name, "death")) {
        death();
    } else {
        fprintf(stderr, "no check is called '%s'\n", name);
        return 2;
    }
    printf("%s: all as expected\n", name);
    return 0;
}
