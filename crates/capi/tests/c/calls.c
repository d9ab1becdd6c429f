/*
 * Calls in a random order with random arguments: calls SEED CALLS [SECONDS] (SECONDS: as many as fit into the time).
 *
 * What a caller may get wrong (NULL, freed and wrong pointers to objects, sizes, offsets, tokens, enumerations, memory that cannot be
 * accessed) gets a code and a sentence, and harms nothing. What the headers say that no caller may do is not done: places for results that
 * are no memory, buffers that are changed while an operation has them, waits that nothing ends.
 */
#include "calls/applications.h"
#include "calls/handlers.h"
#include "calls/memory.h"

static void check_guards(void)
{
    for (int i = 0; i < GUARD; i++)
        if (arena[i] != 0xee || room[ROOM + i] != 0xee || buffers[BUFFERS + i] != 0xee)
            FAIL("byte %d of a guard was written", i);
}

/* Memory, and nodes that stay. */
static void begin(void)
{
    static unsigned char plain[1024];
    pw_node *own;
    pw_token of_plain;

    arena = mmap(NULL, 3 * GUARD + ROOM + BUFFERS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    nothing = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (arena == MAP_FAILED || nothing == MAP_FAILED || event < 0 || !mkdtemp(folder))
        FAIL("there is no memory");
    room = arena + GUARD;
    buffers = room + ROOM + GUARD;
    memset(arena, 0xee, 3 * GUARD + ROOM + BUFFERS);
    for (int i = 0; i < NODES; i++)
        if (pw_node_alone(&nodes[i]))
            pw_die("join");
    if (pw_export(nodes[0], room, ROOM, PW_READ | PW_WRITE | PW_ATOMIC, &tokens[0]) ||
        pw_export(nodes[0], room, ROOM, PW_READ | PW_WRITE | PW_ATOMIC, &reserved) ||
        pw_open(nodes[1], &tokens[0], &remotes[0]) || pw_open(nodes[1], &reserved, &remotes[1]))
        pw_die("open");
    if (pw_node_alone(&separate_nodes[0]) || pw_node_alone(&separate_nodes[1]))
        pw_die("join");
    if (pw_node_alone(&own) || pw_export(own, plain, sizeof plain, PW_READ | PW_WRITE, &of_plain) || pw_open(own, &of_plain, &inner))
        pw_die("open");
}

static void make_calls(void)
{
    switch (below(53)) {
    case 0:
        if (one_in(8))
            nodes_come_and_go();
        break;
    case 1:
        job();
        break;
    case 2 ... 3:
        exports();
        break;
    case 4 ... 5:
        heap();
        break;
    case 6 ... 7:
        opens();
        break;
    case 8 ... 13:
        waiting();
        break;
    case 14 ... 20:
        starting();
        break;
    case 21 ... 24:
        results();
        break;
    case 25:
        signals();
        break;
    case 32 ... 35:
        reacting();
        break;
    case 36 ... 39:
        hash_tables();
        break;
    case 40:
        countings_come_and_go();
        break;
    case 42 ... 43:
        logged_processes();
        break;
    case 44:
        if (one_in(2))
            durable_tables();
        break;
    case 45 ... 46:
        chains_come_and_go();
        break;
    case 47:
        batches_come_and_go();
        break;
    case 48:
        parities_come_and_go();
        break;
    case 49:
        if (one_in(2))
            global_memories();
        break;
    case 50:
        if (one_in(2))
            streams_come_and_go();
        break;
    case 51:
        transactions_come_and_go();
        break;
    case 41:
        if (one_in(2))
            checkpoints_come_and_go();
        break;
    case 52:
        if (one_in(4))
            sorts();
        break;
    default:
        conditional();
    }
}

static void end_all(void)
{
    char remove[96];

    alarm(120);
    end_servings();
    for (int i = 0; i < LOGS; i++) {
        DO(pw_serving_end(keepers[i], NULL));
        DO(pw_log_free(logs[i]));
    }
    for (int i = 0; i < TABLES; i++)
        DO(pw_table_free(tables[i]));
    for (int i = 0; i < CHAINS; i++)
        DO(pw_built_ins_close(chains[i]));
    for (int i = 0; i < BUILT_INS; i++)
        DO(pw_built_ins_end(built_ins[i]));
    for (int i = 0; i < BATCHES; i++)
        DO(pw_batch_close(batches[i]));
    for (int i = 0; i < SERVED; i++)
        DO(pw_batches_end(served[i]));
    for (int i = 0; i < MEMBERS; i++)
        DO(pw_parity_member_free(members[i]));
    for (int i = 0; i < PARITIES; i++)
        DO(pw_parity_free(parities[i]));
    for (int i = 0; i < GLOBALS; i++)
        DO(pw_global_free(globals[i]));
    for (int i = 0; i < STREAMS; i++)
        DO(pw_stream_close(streams[i]));
    for (int i = 0; i < LISTENERS; i++)
        DO(pw_listener_close(listeners[i]));
    for (int i = 0; i < CLIENTS; i++)
        DO(pw_transaction_client_close(clients[i]));
    for (int i = 0; i < STORES; i++)
        DO(pw_transaction_store_free(stores[i]));
    for (int i = 0; i < 2; i++)
        DO(pw_node_leave(separate_nodes[i]));
    DO(pw_table_free(durable));
    snprintf(remove, sizeof remove, "rm -rf %s/table %s/sort", folder, folder);
    if (system(remove))
        FAIL("the folders of durable tables and sorts stay");
    for (int i = 0; i < COUNTINGS; i++)
        DO(pw_access_statistics_end(countings[i]));
    for (int i = 0; i < CHECKPOINTS + PROCESSES; i++) {
        char path[64];

        if (i < CHECKPOINTS)
            DO(pw_checkpoint_close(checkpoints[i]));
        else
            DO(pw_logged_process_end(processes[i - CHECKPOINTS]));
        snprintf(path, sizeof path, "%s/%d", folder, i);
        unlink(path);
    }
    if (rmdir(folder))
        FAIL("the folder of checkpoints has something else in it");
    for (int i = 0; i < NODES; i++)
        DO(pw_node_leave(nodes[i]));
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, wanted = argc > 2 ? strtoull(argv[2], NULL, 0) : 20000;
    double end = argc > 3 ? seconds() + strtod(argv[3], NULL) : 0;

    random_numbers.state = seed;
    begin();
    while (end ? seconds() < end : calls < wanted) {
        /* A call that does not return is an error, too. */
        alarm(120);
        make_calls();
        if (one_in(256))
            check_guards();
    }
    end_all();
    check_guards();
    printf("seed %llu: %llu calls, %llu refused, %llu records handled\n", (unsigned long long)seed,
           (unsigned long long)calls, (unsigned long long)refused, (unsigned long long)handled);
    return 0;
}
