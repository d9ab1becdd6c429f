/* Calls for hash tables, statistics, checkpoints, logged processes, parity, global memory, sorts, streams and transactions. */
#ifndef CALLS_APPLICATIONS_H
#define CALLS_APPLICATIONS_H

#include "arguments.h"

/* Jobs of one process: a table waits for nobody. */
static void hash_tables(void)
{
    pw_table **place = &tables[below(TABLES)], *of = handle((void **)tables, TABLES);
    pw_table_options options = {number(200), number(200), number(5000), number(2)};
    pw_element elements[4];
    pw_volume volume;
    static unsigned char value[3000];
    size_t length = below(3) ? below(12) : below(sizeof value), count = below(5);
    uint64_t key = number(60), said;

    for (int i = 0; i < 4; i++)
        elements[i] = (pw_element){number(60), one_in(16) ? NULL : value, one_in(32) ? SIZE_MAX - below(9) : below(sizeof value)};
    switch (below(12)) {
    case 0:
        DO(pw_table_free(*place));
        /* So much that there is none for it, or little. */
        options.cells = one_in(8) ? SIZE_MAX - below(1 << 20) : options.cells % 1000;
        options.spare %= 1000, options.value_bytes %= 100000;
        DO(pw_table_join(one_in(4) ? NODE : nodes[0], one_in(16) ? NULL : &options, one_in(32) ? NULL : place));
        break;
    case 1 ... 3:
        DO(pw_table_insert(of, key, one_in(16) ? NULL : value, length));
        break;
    case 4:
        DO(pw_table_insert_batch(of, one_in(16) ? NULL : elements, one_in(32) ? SIZE_MAX / (1 + below(40)) : count));
        break;
    case 5 ... 6:
        DO(pw_table_lookup(of, key, one_in(16) ? NULL : value, one_in(32) ? SIZE_MAX : length, one_in(16) ? NULL : &said));
        break;
    case 7:
        DO(pw_table_delete(of, key));
        break;
    case 8:
        DO(pw_table_flush(of));
        break;
    case 9:
        DO(pw_table_resize(of, one_in(8) ? SIZE_MAX - below(1 << 20) : below(500)));
        break;
    default:
        DO(pw_table_volume(of, one_in(8) ? NULL : &volume));
    }
}

static void countings_come_and_go(void)
{
    pw_access_statistics **place = &countings[below(COUNTINGS)], *of = handle((void **)countings, COUNTINGS);
    pw_numbered_counts list[5];
    pw_access_counts counts, *to = one_in(16) ? NULL : &counts;
    pw_token token_of;
    size_t most = one_in(16) ? SIZE_MAX - below(9) : below(6), count, *said = one_in(16) ? NULL : &count;
    pw_numbered_counts *at = one_in(16) || most > 5 ? NULL : list;

    switch (below(8)) {
    case 0:
        DO(pw_access_statistics_end(*place));
        DO(pw_access_statistics_start(one_in(4) ? NODE : nodes[0], one_in(16) ? token(&token_of) : &reserved, number(3), number(6), one_in(32) ? NULL : place));
        break;
    case 1:
        DO(pw_access_statistics_total(of, to));
        break;
    case 2:
        DO(pw_access_statistics_page(of, number(5), to));
        break;
    case 3:
        DO(pw_access_statistics_reset(of, to));
        break;
    case 4:
        DO(pw_access_statistics_hottest(of, at, most, said));
        break;
    case 5:
        DO(pw_access_statistics_sources(of, at, most, said));
        pw_source source;
        DO(pw_source_find(NODE, number(1), one_in(8) ? NULL : &source));
        break;
    case 6:
        DO(pw_access_statistics_export(of, one_in(16) ? NULL : &tokens[1 + below(TOKENS - 1)]));
        break;
    default:
        DO(pw_access_statistics_end(one_in(4) ? of : NULL));
    }
}

static void checkpoints_come_and_go(void)
{
    pw_checkpoint **place = &checkpoints[below(CHECKPOINTS)], *of = handle((void **)checkpoints, CHECKPOINTS);
    /* Nobody else uses the last page of the buffers while this thread is here, and the first one lies in the room. */
    pw_memory memories[] = {{room, ROOM, one_in(2) ? &reserved : NULL},
                            {one_in(8) ? nothing : one_in(8) ? NULL : buffers, 1 + number(BUFFERS - 1), NULL}};
    pw_remote *peers[] = {remotes[0], REMOTE};
    size_t count = one_in(16) ? SIZE_MAX / (1 + below(40)) : below(3), size = one_in(16) ? SIZE_MAX - below(9) : below(64);
    char path[64], note[64] = "a note";
    uint64_t first, last;
    uint32_t how;
    pw_saved saved;
    pw_restored restored;

    snprintf(path, sizeof path, "%s/%d", one_in(32) ? "/nowhere" : folder, (int)below(3));
    switch (below(10)) {
    case 0 ... 1:
        DO(pw_checkpoint_close(*place));
        if (one_in(4))
            unlink(path);
        DO(pw_checkpoint_open(one_in(4) ? NODE : nodes[0], one_in(32) ? NULL : path, one_in(8) ? number(2) : PW_NO_SYNC,
                              one_in(16) ? NULL : memories, count, one_in(32) ? NULL : place));
        break;
    case 2 ... 4:
        DO(pw_checkpoint_save(of, one_in(8) ? NULL : note, size, one_in(4) ? NULL : &saved));
        break;
    case 5:
        DO(pw_checkpoint_save_together(of, one_in(8) ? NULL : peers, below(2), note, size, &saved));
        break;
    case 6:
        DO(pw_checkpoint_restore(of, one_in(2) ? 0 : number(9), one_in(8) ? NULL : note, size, one_in(16) ? NULL : &restored));
        break;
    case 7:
        DO(pw_checkpoint_restore_together(of, note, size, &restored));
        break;
    default:
        DO(pw_checkpoint_numbers(of, one_in(4) ? NULL : &first, one_in(4) ? NULL : &last, one_in(4) ? NULL : &how));
    }
}

/* Processes of rank 0 and 1, which are threads of nobody: the calls of each go one after the other. */
static void logged_processes(void)
{
    size_t at = below(PROCESSES);
    pw_logged_process **place = &processes[at], *of = handle((void **)processes, PROCESSES);
    pw_logged_process_options options = {one_in(8) ? number(3) : at % 2, one_in(8) ? number(3) : 2, one_in(8) ? number(1 << 16) : 4096,
                                  one_in(8) ? number(1 << 16) : 0, one_in(8) ? number(2) : PW_NO_SYNC};
    static pw_ticket ticket;
    static unsigned char bytes[1024];
    size_t length = one_in(32) ? SIZE_MAX - below(9) : below(sizeof bytes), peer = one_in(8) ? number(3) : below(2);
    void *data = one_in(16) || length > sizeof bytes ? NULL : bytes;
    uint64_t offset = number(4096), said;
    char path[64];

    /* So much that there is none for it, or little. */
    if (options.bytes < SIZE_MAX / 2)
        options.bytes %= 1 << 17;
    if (options.log_bytes < SIZE_MAX / 2)
        options.log_bytes %= 1 << 17;
    snprintf(path, sizeof path, "%s/%d", one_in(32) ? "/nowhere" : folder, CHECKPOINTS + (int)at);
    switch (below(16)) {
    case 0:
        DO(pw_logged_process_end(*place));
        if (one_in(3))
            unlink(path);
        DO(pw_logged_process_start(one_in(8) ? NODE : nodes[0], one_in(32) ? NULL : path, one_in(32) ? NULL : &options,
                            one_in(32) ? NULL : place));
        break;
    case 1 ... 3:
        if (DO(pw_logged_process_ticket(of, peer, one_in(32) ? NULL : &ticket)) && one_in(16))
            ticket.bytes[below(sizeof ticket.bytes)] ^= 1 << below(8);
        DO(pw_logged_process_connect(handle((void **)processes, PROCESSES), one_in(32) ? NULL : &ticket));
        break;
    case 4 ... 5:
        DO(pw_logged_process_put(of, peer, offset, data, length));
        break;
    case 6 ... 7:
        DO(pw_logged_process_get(of, peer, offset, data, length));
        break;
    case 8:
        DO(pw_logged_process_next_epoch(of, one_in(2) ? NULL : &said));
        break;
    case 9:
        DO(pw_logged_process_checkpoint(of, data, length % 64, one_in(2) ? NULL : &said));
        break;
    case 10:
        DO(pw_logged_process_note(of, data, length, one_in(16) ? NULL : &said));
        break;
    case 11:
        DO(pw_logged_process_replay(of));
        break;
    default:
        (void)(pw_logged_process_is_replaying(of) + (pw_logged_process_memory(of) != NULL));
    }
}

/* In a job of one: nobody is killed. One table at a time, as one waits for the end of the process that has the folder. */
static void durable_tables(void)
{
    pw_table_options options = {number(50), 0, 0, number(2)};
    char path[64];
    pw_durability durability = {one_in(16) ? NULL : path, one_in(4) ? number(1 << 20) : 0, one_in(8) ? number(2) : PW_NO_SYNC};
    static pw_volume_ticket tickets[2];
    pw_table **place = one_in(32) ? NULL : &durable;
    uint64_t unflushed;

    options.cells %= 1000;
    snprintf(path, sizeof path, "%s/table", one_in(16) ? "/proc/none" : folder);
    switch (below(8)) {
    case 0:
        DO(pw_table_free(durable));
        if (one_in(2))
            DO(pw_table_join_durable(one_in(8) ? NODE : nodes[0], one_in(16) ? NULL : &options, one_in(16) ? NULL : &durability, place));
        else
            DO(pw_table_restart(one_in(8) ? NODE : nodes[0], &options, &durability, one_in(4) ? number(2) : 0, one_in(16) ? NULL : tickets, below(3), place));
        break;
    case 1:
        if (DO(pw_table_ticket(one_in(4) ? handle((void **)tables, TABLES) : durable, one_in(16) ? NULL : &tickets[below(2)])) && one_in(4))
            tickets[below(2)].bytes[below(sizeof tickets->bytes)] ^= 1 << below(8);
        break;
    case 2:
        DO(pw_table_checkpoint(one_in(4) ? handle((void **)tables, TABLES) : durable));
        break;
    case 3:
        DO(pw_table_readmit(one_in(4) ? handle((void **)tables, TABLES) : durable, number(2), one_in(16) ? NULL : &tickets[0], one_in(2) ? NULL : &unflushed));
        break;
    case 4 ... 5:
        DO(pw_table_insert(durable, number(40), arena, below(3000)));
        DO(pw_table_flush(durable));
        break;
    default:
        DO(pw_table_delete(durable, number(40)));
    }
}

static void parities_come_and_go(void)
{
    pw_parity **place = &parities[below(PARITIES)], *of = handle((void **)parities, PARITIES);
    pw_parity_member **to = &members[below(MEMBERS)], *member = handle((void **)members, MEMBERS);
    static pw_token given[3];
    pw_token of_others;
    /* The first page of the buffers lies before those that operations use. */
    pw_memory memories[] = {{one_in(8) ? nothing : one_in(8) ? NULL : room, 1 + number(4095), NULL}, {one_in(8) ? nothing : room + 4096, 64, one_in(8) ? &tokens[0] : NULL}};
    size_t count = one_in(16) ? SIZE_MAX / (1 + below(40)) : 1 + below(2);
    pw_rebuilt rebuilt;
    uint64_t round;

    switch (below(12)) {
    case 0:
        if (!one_in(4))
            break;
        DO(pw_parity_free(*place));
        DO(pw_parity_make(one_in(4) ? NODE : nodes[0], one_in(4) ? number(3) : 2, one_in(8) ? number(4096) : 8192, one_in(32) ? NULL : place));
        break;
    case 1:
        DO(pw_parity_token(of, one_in(4) ? number(2) : below(2), one_in(16) ? NULL : &given[below(2)]));
        break;
    case 2:
        DO(pw_parity_round(of, one_in(8) ? NULL : &round));
        break;
    case 3:
        DO(pw_parity_member_free(*to));
        DO(pw_parity_join(one_in(4) ? NODE : nodes[1], one_in(8) ? token(&of_others) : &given[below(2)], one_in(8) ? number(2) : below(2), one_in(32) ? NULL : to));
        break;
    case 4:
        DO(pw_parity_member_free(*to));
        DO(pw_parity_rebuild(one_in(4) ? NODE : nodes[1], &given[below(2)], below(2), one_in(16) ? NULL : &given[one_in(4) ? 0 : 2], one_in(8) ? number(3) : 1,
                             one_in(4) ? NULL : &rebuilt, one_in(32) ? NULL : to));
        break;
    case 5:
        DO(pw_parity_member_token(member, one_in(16) ? NULL : &given[2]));
        break;
    case 6:
        DO(pw_parity_restore(member, one_in(16) ? NULL : memories, count, one_in(4) ? NULL : &round));
        break;
    case 7:
        DO(pw_parity_wait(member, below(1000000), one_in(4) ? NULL : &round));
        break;
    default:
        DO(pw_parity_save(member, one_in(16) ? NULL : memories, count, one_in(4) ? NULL : &round));
    }
}

static void sees_page(void *context, const pw_page_access *access)
{
    handled++;
    if (context != room || access->first_word % PW_GLOBAL_PAGE_WORDS || access->by)
        FAIL("an access to the page of the word %llu", (unsigned long long)access->first_word);
    access->content[1] = 7;
}

static void global_memories(void)
{
    pw_global **place = &globals[0], *of = handle((void **)globals, GLOBALS);
    size_t first, count, ranks[2];
    uint64_t dirty[2], *all;
    pw_gas_counts counts;

    switch (below(8)) {
    case 0:
        DO(one_in(2) ? pw_global_free(*place) : pw_global_leave(*place));
        DO(pw_global_make(one_in(4) ? NODE : nodes[0], one_in(2) ? number(4) : 2, one_in(32) ? NULL : place));
        break;
    case 1:
        DO(pw_global_home(of, number(1), one_in(8) ? NULL : &first, one_in(8) ? NULL : &count));
        break;
    case 2:
        DO(pw_global_on_access(of, one_in(8) ? NULL : sees_page, room));
        break;
    case 3:
        DO(pw_global_take_dirty(of, one_in(8) ? NULL : dirty, below(3), one_in(8) ? NULL : &count));
        break;
    case 4:
        DO(pw_global_lost(of, one_in(8) ? NULL : ranks, below(3), one_in(8) ? NULL : &count));
        break;
    case 5:
        DO(pw_global_counts(of, one_in(8) ? NULL : &counts));
        break;
    default:
        all = pw_global_words(of);
        if (all && !pw_global_home(of, 0, &first, &count))
            ((volatile uint64_t *)all)[below(count)] += 1;
    }
}

static void streams_come_and_go(void)
{
    pw_listener **place = &listeners[below(LISTENERS)], *of = handle((void **)listeners, LISTENERS);
    pw_stream **to = &streams[below(STREAMS)], *stream = handle((void **)streams, STREAMS);
    static pw_token given;
    pw_token of_others;
    uint64_t brief = below(2000000);
    size_t count;

    switch (below(12)) {
    case 0:
        DO(pw_listener_close(*place));
        DO(pw_stream_listen(separate_nodes[0], one_in(4) ? number(8192) : 8192, one_in(32) ? NULL : place));
        break;
    case 1:
        DO(pw_listener_token(of, one_in(16) ? NULL : &given));
        break;
    case 2 ... 3:
        DO(pw_stream_close(*to));
        DO(pw_stream_accept(of, brief, one_in(32) ? NULL : to));
        break;
    case 4:
        DO(pw_stream_close(*to));
        DO(pw_stream_connect(separate_nodes[below(2)], one_in(8) ? token(&of_others) : &given, one_in(4) ? number(8192) : 8192, brief, one_in(32) ? NULL : to));
        break;
    case 5:
        DO(pw_stream_flush(stream, brief));
        break;
    case 6:
        DO(pw_stream_shutdown(stream, brief));
        break;
    case 7 ... 8:
        DO(pw_stream_receive(stream, one_in(16) ? NULL : arena + GUARD / 2, one_in(8) ? 0 : 1, brief, one_in(16) ? NULL : &count));
        memset(arena, 0xee, GUARD);
        break;
    default:
        DO(pw_stream_send(stream, one_in(16) ? NULL : arena, below(100), brief, one_in(4) ? NULL : &count));
    }
}

/* Of one process, or of two of which the other one never comes. */
static void sorts(void)
{
    static uint64_t keys[8];
    char into[96];
    pw_sort_options options = {into, one_in(8) ? number(2) : 0, one_in(8) ? number(2) : 1, 1};
    pw_sorted sorted = {0};

    snprintf(into, sizeof into, "%s/sort", folder);
    mkdir(into, 0700);
    for (size_t key = 0; key < 8; key++)
        keys[key] = below(100);
    if (one_in(16))
        options.folder = NULL;
    if (DO(pw_sort(separate_nodes[0], one_in(16) ? NULL : &options, one_in(16) ? NULL : keys, one_in(16) ? SIZE_MAX / (1 + below(40)) : below(9), one_in(32) ? NULL : &sorted)))
        return;
    for (size_t key = 1; key < sorted.count; key++)
        if (sorted.keys[key - 1] > sorted.keys[key])
            FAIL("keys are out of order");
    DO(pw_free(sorted.keys));
}

static void transactions_come_and_go(void)
{
    pw_transaction_store **place = &stores[below(STORES)], *of = handle((void **)stores, STORES);
    pw_transaction_client **to = &clients[below(CLIENTS)], *client = handle((void **)clients, CLIENTS);
    static pw_transaction_store_token given;
    pw_transaction_store_options options = {one_in(8) ? number(4) : 4, one_in(8) ? number(64) : 16, NULL};
    unsigned char value[16] = {0};
    uint64_t version;
    size_t held, size = one_in(8) ? below(17) : 16;

    switch (below(16)) {
    case 0:
        DO(pw_transaction_store_free(*place));
        if (!DO(pw_transaction_store_make(separate_nodes[0], one_in(32) ? NULL : &options, one_in(32) ? NULL : place)))
            break;
        DO(pw_transaction_store_export(*place, &given));
        /* A commit waits 30 seconds for a store that is not served. */
        if (!DO(pw_transaction_store_serve(*place, number(0), &given, one_in(16) ? 0 : 1)))
            DO(pw_transaction_store_free(*place));
        break;
    case 1:
        if (DO(pw_transaction_store_export(of, one_in(16) ? NULL : &given)) && one_in(16))
            given.bytes[below(sizeof given.bytes)] ^= 1 << below(8);
        break;
    case 2:
        DO(pw_transaction_store_serve(of, number(1), one_in(16) ? NULL : &given, 1));
        break;
    case 3:
        DO(pw_transaction_store_cell(of, number(4), one_in(16) ? NULL : value, size, one_in(4) ? NULL : &version));
        break;
    case 4:
        DO(pw_transaction_store_check(of, one_in(4) ? NULL : &held));
        break;
    case 5:
        DO(pw_transaction_store_replace(of, number(2), one_in(8) ? NULL : &given));
        break;
    case 6:
        DO(pw_transaction_client_close(*to));
        DO(pw_transaction_client_open(separate_nodes[1], one_in(16) ? NULL : &given, one_in(16) ? SIZE_MAX / (1 + below(40)) : 1, one_in(32) ? NULL : to));
        break;
    case 7 ... 9:
        DO(pw_transaction_start(client, one_in(2)));
        break;
    case 10:
        DO(pw_transaction_abort(client));
        break;
    case 11:
        DO(pw_transaction_commit(client));
        break;
    case 12 ... 13:
        DO(pw_transaction_get(client, one_in(8) ? number(2) : 0, number(4), one_in(16) ? NULL : value, size, one_in(4) ? NULL : &version));
        break;
    default:
        (void)pw_transaction_client_value_bytes(client, number(1));
        DO(pw_transaction_put(client, one_in(8) ? number(2) : 0, number(4), one_in(16) ? NULL : value, size));
    }
}

#endif /* CALLS_APPLICATIONS_H */
