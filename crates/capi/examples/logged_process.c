/* Two processes with logged puts and gets; one of them dies, and repeats its work (docs/guide/logged-process.md). Here they are two nodes of one process. */
#include <pagewire.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

static const char *folder = ".";
static pw_node *nodes[2];
static pw_logged_process *giver, *worker;

#define MUST(call) ((call) ? pw_die(#call) : (void)0)

/* An epoch of the worker: it gets a number, adds it to its sum, and puts the sum to the other one. */
static void work(void)
{
    uint64_t *sum = pw_logged_process_memory(worker), number;

    MUST(pw_logged_process_get(worker, 0, 0, &number, sizeof number));
    *sum += number;
    MUST(pw_logged_process_put(worker, 0, 8, sum, sizeof *sum));
}

static pw_logged_process *begin(size_t rank)
{
    pw_logged_process_options options = {.rank = rank, .size = 2, .bytes = 4096};
    char path[256];
    pw_logged_process *process;

    snprintf(path, sizeof path, "%s/process-%zu.checkpoint", folder, rank);
    MUST(pw_node_alone(&nodes[rank]));
    MUST(pw_logged_process_start(nodes[rank], path, &options, &process));
    return process;
}

static void connect(pw_logged_process *process, pw_logged_process *to, size_t rank)
{
    pw_ticket ticket;

    MUST(pw_logged_process_ticket(to, rank, &ticket));
    MUST(pw_logged_process_connect(process, &ticket));
}

static void epoch(uint64_t number)
{
    uint64_t *shown = pw_logged_process_memory(giver);

    shown[0] = 10 * number;
    work();
    /* Here all processes have a barrier. */
    MUST(pw_logged_process_next_epoch(giver, NULL));
    MUST(pw_logged_process_next_epoch(worker, NULL));
    printf("epoch %" PRIu64 ": the sum is %" PRIu64 "\n", number, shown[1]);
}

int main(int argc, char **argv)
{
    folder = argc > 1 ? argv[1] : folder;
    giver = begin(0);
    worker = begin(1);
    connect(worker, giver, 1);
    connect(giver, worker, 0);
    for (uint64_t number = 1; number <= 4; number++) {
        epoch(number);
        if (number == 2)
            MUST(pw_logged_process_checkpoint(worker, "two epochs", 10, NULL));
    }
    MUST(pw_logged_process_end(worker));
    MUST(pw_node_leave(nodes[1]));
    printf("the worker dies\n");

    /* Another process takes its place. */
    worker = begin(1);
    char note[64];
    uint64_t length, *sum = pw_logged_process_memory(worker);
    MUST(pw_logged_process_note(worker, note, sizeof note, &length));
    printf("it was saved with the note \"%.*s\" and the sum %" PRIu64 "\n", (int)length, note, *sum);
    connect(worker, giver, 1);
    MUST(pw_logged_process_replay(worker));
    while (pw_logged_process_is_replaying(worker)) {
        work(); /* its gets come from the log, its puts have arrived before */
        MUST(pw_logged_process_next_epoch(worker, NULL));
    }
    printf("it has repeated its work: the sum is %" PRIu64 "\n", *sum);
    connect(giver, worker, 0);
    epoch(5);

    MUST(pw_logged_process_end(worker));
    MUST(pw_logged_process_end(giver));
    return pw_node_leave(nodes[0]) || pw_node_leave(nodes[1]);
}
