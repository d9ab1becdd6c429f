/*
 * Durable hash tables: a member is killed, and another process takes its place; then all are, and the job starts again.
 *
 * The processes: "durable_table" starts "durable_table member FOLDER" and "durable_table restart FOLDER RANK", and talks to them by pipes.
 */
#define _GNU_SOURCE
#include <pagewire.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(holds) ((holds) ? (void)0 : (void)(fprintf(stderr, "%d: not so: %s: %s\n", __LINE__, #holds, pw_error_message()), exit(1)))

enum { MEMBERS = 2, KEYS = 400 };

struct member {
    pid_t process;
    int to, from;
    size_t rank;
    pw_volume_ticket ticket;
};

static void send_to(int descriptor, const void *bytes, size_t length)
{
    REQUIRE(write(descriptor, bytes, length) == (ssize_t)length);
}

static void hear(int descriptor, void *bytes, size_t length)
{
    char *to = bytes;
    for (ssize_t count; length > 0; to += count, length -= (size_t)count) {
        count = read(descriptor, to, length);
        REQUIRE(count > 0);
    }
}

/* The value of a key that a member inserts in a round. */
static size_t value_of(uint64_t key, uint64_t round, char *value)
{
    size_t length = key % 50;
    memset(value, (int)(key + round), length);
    return length;
}

static int insert_all(pw_table *table, size_t rank, uint64_t round)
{
    char value[64];
    for (uint64_t key = 1; key <= KEYS; key++) {
        uint64_t own = key << 1 | rank;
        if (pw_table_insert(table, own, value, value_of(own, round, value)))
            return 0;
    }
    return !pw_table_flush(table);
}

static int has_all(pw_table *table, uint64_t round)
{
    char value[64], found[64];
    uint64_t length;
    for (uint64_t key = 2; key < 2 * KEYS + 2; key++) {
        size_t expected = value_of(key, round, value);
        if (pw_table_lookup(table, key, found, sizeof found, &length) || length != expected || memcmp(found, value, expected))
            return 0;
    }
    return 1;
}

static int member(const char *folder, const char *as)
{
    pw_node *node;
    pw_table *table;
    pw_table_options options = {.cells = 100};
    pw_durability durability = {folder, 256 << 10, PW_NO_SYNC};
    pw_volume_ticket tickets[MEMBERS], ticket;
    size_t rank;
    char command;

    if (as) {
        rank = (size_t)atoi(as);
        hear(0, tickets, sizeof tickets);
        if (pw_node_alone(&node) || pw_table_restart(node, &options, &durability, rank, tickets, MEMBERS, &table))
            pw_die("restart");
    } else {
        if (pw_node_from_env(&node) || pw_table_join_durable(node, &options, &durability, &table))
            pw_die("join");
        rank = pw_rank(node);
    }
    REQUIRE(!pw_table_ticket(table, &ticket));
    send_to(1, &rank, sizeof rank);
    send_to(1, &ticket, sizeof ticket);
    while (read(0, &command, 1) == 1) {
        uint64_t round, unflushed;
        int done = 0;
        switch (command) {
        case 'i':
            hear(0, &round, sizeof round);
            done = insert_all(table, rank, round);
            break;
        case 'v':
            hear(0, &round, sizeof round);
            done = has_all(table, round);
            break;
        case 'c':
            done = !pw_table_checkpoint(table);
            break;
        case 'r':
            hear(0, &round, sizeof round);
            hear(0, &ticket, sizeof ticket);
            done = !pw_table_readmit(table, round, &ticket, &unflushed);
        }
        if (!done)
            fprintf(stderr, "member %zu: %c: %s\n", rank, command, pw_error_message());
        send_to(1, &done, sizeof done);
    }
    return 0;
}

static struct member start(const char *folder, const char *rank, const pw_volume_ticket *tickets)
{
    struct member made;
    int in[2], out[2];

    /* Else another member has their ends, too, and this one does not see that they are closed. */
    REQUIRE(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC));
    made.process = fork();
    REQUIRE(made.process >= 0);
    if (made.process == 0) {
        dup2(in[0], 0), dup2(out[1], 1);
        execl("/proc/self/exe", "durable_table", rank ? "restart" : "member", folder, rank, (char *)NULL);
        _exit(127);
    }
    close(in[0]), close(out[1]);
    made.to = in[1], made.from = out[0];
    if (tickets)
        send_to(made.to, tickets, MEMBERS * sizeof *tickets);
    return made;
}

static void meet(struct member *member)
{
    hear(member->from, &member->rank, sizeof member->rank);
    hear(member->from, &member->ticket, sizeof member->ticket);
}

static void ask(const struct member *member, char command, uint64_t number)
{
    send_to(member->to, &command, 1);
    if (command != 'c')
        send_to(member->to, &number, sizeof number);
}

static int answer(const struct member *member)
{
    int done;
    hear(member->from, &done, sizeof done);
    return done;
}

static void end(struct member *member, int with)
{
    if (with)
        kill(member->process, with);
    close(member->to), close(member->from);
    REQUIRE(waitpid(member->process, NULL, 0) == member->process);
}

/* By rank. */
static void start_job(const char *folder, const char *job, struct member *members)
{
    mkdir(job, 0700);
    setenv("PAGEWIRE_JOB_FILE", job, 1);
    setenv("PAGEWIRE_SIZE", "2", 1);
    struct member started[MEMBERS];
    for (int at = 0; at < MEMBERS; at++)
        started[at] = start(folder, NULL, NULL);
    for (int at = 0; at < MEMBERS; at++) {
        meet(&started[at]);
        REQUIRE(started[at].rank < MEMBERS);
        members[started[at].rank] = started[at];
    }
    unsetenv("PAGEWIRE_JOB_FILE");
    unsetenv("PAGEWIRE_SIZE");
}

static void all(struct member *members, char command, uint64_t round)
{
    for (int at = 0; at < MEMBERS; at++)
        ask(&members[at], command, round);
    for (int at = 0; at < MEMBERS; at++)
        REQUIRE(answer(&members[at]));
}

static void members_are_killed(const char *folder, const char *first_job, const char *second_job)
{
    struct member members[MEMBERS];

    start_job(folder, first_job, members);
    all(members, 'i', 1);
    all(members, 'v', 1);
    ask(&members[0], 'c', 0);
    REQUIRE(answer(&members[0]));
    all(members, 'i', 2);

    end(&members[1], SIGKILL);
    pw_volume_ticket tickets[MEMBERS] = {members[0].ticket};
    members[1] = start(folder, "1", tickets);
    meet(&members[1]);
    ask(&members[0], 'r', 1);
    send_to(members[0].to, &members[1].ticket, sizeof members[1].ticket);
    REQUIRE(answer(&members[0]));
    all(members, 'v', 2);
    all(members, 'i', 3);
    all(members, 'v', 3);

    for (int at = 0; at < MEMBERS; at++)
        end(&members[at], SIGKILL);
    start_job(folder, second_job, members);
    all(members, 'v', 3);
    for (int at = 0; at < MEMBERS; at++)
        end(&members[at], 0);
}

#define EXPECT(code, call) expect(__LINE__, #call, code, call)

static void expect(int line, const char *call, int expected, int found)
{
    if (expected != found) {
        fprintf(stderr, "%d: %s is %s: %s\n", line, call, pw_error_name(found), pw_error_message());
        exit(1);
    }
}

/* What is refused, in a job of one. */
static void misuse(const char *folder)
{
    pw_node *node;
    pw_table *table = (pw_table *)1, *plain, *other;
    pw_table_options options = {.cells = 10};
    pw_durability durability = {.folder = folder, .checkpoints = PW_NO_SYNC};
    pw_volume_ticket ticket, tickets[2] = {{{0}}};
    pw_volume volume;

    REQUIRE(!pw_node_alone(&node));
    EXPECT(PW_ARGUMENT, pw_table_join_durable(node, &options, NULL, &table));
    REQUIRE(!table);
    EXPECT(PW_ARGUMENT, pw_table_join_durable(node, NULL, &durability, &table));
    EXPECT(PW_ARGUMENT, pw_table_join_durable(node, &options, &durability, NULL));
    durability.folder = NULL;
    EXPECT(PW_ARGUMENT, pw_table_join_durable(node, &options, &durability, &table));
    durability.folder = "/proc/none";
    EXPECT(PW_SYSTEM, pw_table_join_durable(node, &options, &durability, &table));
    durability.folder = folder, durability.checkpoints = 2;
    EXPECT(PW_ARGUMENT, pw_table_join_durable(node, &options, &durability, &table));
    durability.checkpoints = PW_NO_SYNC, options.scheme = PW_BY_OPERATIONS;
    EXPECT(PW_ARGUMENT, pw_table_join_durable(node, &options, &durability, &table));
    REQUIRE(strstr(pw_error_message(), "PW_BY_OPERATIONS"));
    options.scheme = PW_NEAREST;
    EXPECT(PW_OK, pw_table_join_durable(node, &options, &durability, &table));
    EXPECT(PW_OK, pw_table_insert(table, 7, "seven", 5));
    EXPECT(PW_OK, pw_table_checkpoint(table));
    EXPECT(PW_OK, pw_table_volume(table, &volume));
    REQUIRE(volume.elements == 1 && volume.checkpoints >= 1);
    EXPECT(PW_OK, pw_table_ticket(table, &ticket));
    EXPECT(PW_ARGUMENT, pw_table_readmit(table, 0, &ticket, NULL));
    EXPECT(PW_ARGUMENT, pw_table_readmit(table, SIZE_MAX, &ticket, NULL));
    EXPECT(PW_ARGUMENT, pw_table_readmit(table, 0, NULL, NULL));
    EXPECT(PW_ARGUMENT, pw_table_ticket(table, NULL));
    EXPECT(PW_IN_USE, pw_node_leave(node));
    EXPECT(PW_ARGUMENT, pw_table_restart(node, &options, &durability, 1, &ticket, 1, &other));
    EXPECT(PW_ARGUMENT, pw_table_restart(node, &options, &durability, 0, NULL, 1, &other));
    EXPECT(PW_ARGUMENT, pw_table_restart(node, &options, &durability, 0, NULL, 0, &other));
    EXPECT(PW_OK, pw_table_free(table));
    EXPECT(PW_HANDLE, pw_table_checkpoint(table));
    /* The folder has a job of one. */
    EXPECT(PW_SYSTEM, pw_table_restart(node, &options, &durability, 0, tickets, 2, &other));
    EXPECT(PW_OK, pw_table_restart(node, &options, &durability, 0, &ticket, 1, &other));
    EXPECT(PW_OK, pw_table_volume(other, &volume));
    REQUIRE(volume.elements == 1);
    EXPECT(PW_OK, pw_table_free(other));
    EXPECT(PW_OK, pw_table_join(node, &options, &plain));
    EXPECT(PW_ARGUMENT, pw_table_checkpoint(plain));
    EXPECT(PW_OK, pw_table_free(plain));
    EXPECT(PW_OK, pw_node_leave(node));
}

int main(int count, char **arguments)
{
    static char names[4][64];
    char folder[] = "/tmp/pagewire-table-XXXXXX";

    signal(SIGPIPE, SIG_IGN);
    if (count > 2)
        return member(arguments[2], arguments[3]);
    if (!mkdtemp(folder))
        return 1;
    for (int at = 0; at < 4; at++)
        snprintf(names[at], sizeof names[at], "%s/%d", folder, at);
    members_are_killed(names[0], names[1], names[2]);
    misuse(names[3]);
    char remove[96];
    snprintf(remove, sizeof remove, "rm -r %s", folder);
    return system(remove);
}
