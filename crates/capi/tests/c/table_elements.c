/*
 * A loop over the elements of a hash table, clear, and compare-and-set, in a job: each scheme, while others change the table.
 */
#include <pagewire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(holds) ((holds) ? (void)0 : (void)(fprintf(stderr, "%d: not so: %s: %s\n", __LINE__, #holds, pw_error_message()), exit(1)))

enum { KEYS = 600, COUNTS = 40 };

static size_t size, rank;

/* How often each key came. */
struct seen {
    pw_table *table;
    unsigned counts[KEYS + 1], others;
};

static size_t value_of(uint64_t key, char *value)
{
    size_t length = key % 40;
    memset(value, (int)key, length);
    return length;
}

static int see(void *context, const pw_element *element)
{
    struct seen *seen = context;
    char value[40];
    if (element->key > KEYS) {
        seen->others++;
        return 0;
    }
    seen->counts[element->key]++;
    REQUIRE(element->length == value_of(element->key, value) && !memcmp(element->value, value, element->length));
    /* Anything may be done to the table in its midst: it grows meanwhile. */
    REQUIRE(pw_table_insert(seen->table, 10000 * (rank + 1) + element->key, "meanwhile", 9) == PW_OK);
    return 0;
}

static int stop(void *context, const pw_element *element)
{
    (void)element;
    return ++*(int *)context == 3;
}

static void loop(pw_node *node, pw_table *table)
{
    char value[40];
    for (uint64_t key = 1 + rank; key <= KEYS; key += size)
        REQUIRE(pw_table_insert(table, key, value, value_of(key, value)) == PW_OK);
    REQUIRE(pw_table_flush(table) == PW_OK && pw_barrier(node) == PW_OK);
    struct seen seen = {.table = table};
    REQUIRE(pw_table_for_each(table, see, &seen) == PW_OK && pw_table_flush(table) == PW_OK);
    for (int key = 1; key <= KEYS; key++)
        REQUIRE(seen.counts[key] == 1);
    int stopped = 0;
    REQUIRE(pw_table_for_each(table, stop, &stopped) == PW_OK && stopped == 3);
    REQUIRE(pw_barrier(node) == PW_OK);
    seen = (struct seen){.table = table};
    pw_table_cursor cursor = {0, 0};
    size_t count, all = 0;
    do {
        REQUIRE(pw_table_next(table, &cursor, see, &seen, &count) == PW_OK);
        all += count;
    } while (count);
    REQUIRE(all == KEYS + seen.others && seen.others >= size * KEYS);
    REQUIRE(pw_table_for_each(table, NULL, NULL) == PW_ARGUMENT && pw_barrier(node) == PW_OK);
    REQUIRE(pw_table_flush(table) == PW_OK && pw_barrier(node) == PW_OK);
}

/* Adds 1 to the number that a key has, whose value has so many bytes more. */
static void add(pw_table *table, uint64_t key, size_t more)
{
    char old[64] = {0}, new[64] = {0};
    uint64_t length;
    int was_set = 0;
    while (!was_set) {
        uint32_t number = 0;
        REQUIRE(pw_table_lookup(table, key, old, sizeof old, &length) == PW_OK);
        if (length != PW_ABSENT)
            memcpy(&number, old, sizeof number);
        number++;
        memcpy(new, &number, sizeof number);
        REQUIRE(pw_table_compare_and_set(table, key, old, length, new, sizeof number + more, &was_set) == PW_OK);
    }
}

static void swap(pw_node *node, pw_table *table)
{
    for (int round = 0; round < COUNTS; round++)
        for (uint64_t key = 1; key <= 4; key++)
            add(table, key, key > 2 ? 30 : 0);
    REQUIRE(pw_barrier(node) == PW_OK);
    for (uint64_t key = 1; key <= 4; key++) {
        char value[64];
        uint64_t length;
        uint32_t number;
        REQUIRE(pw_table_lookup(table, key, value, sizeof value, &length) == PW_OK && length != PW_ABSENT);
        memcpy(&number, value, sizeof number);
        REQUIRE(number == COUNTS * size);
    }
    /* One of all gets what nobody has, and deletes it. */
    int was_set;
    REQUIRE(pw_barrier(node) == PW_OK);
    REQUIRE(pw_table_compare_and_set(table, 77, NULL, PW_ABSENT, &rank, sizeof rank, &was_set) == PW_OK);
    unsigned char won = (unsigned char)was_set, all[16] = {0}, winners = 0;
    REQUIRE(size <= sizeof all && pw_all_gather(node, &won, 1, all) == PW_OK);
    for (size_t each = 0; each < size; each++)
        winners += all[each];
    REQUIRE(winners == 1);
    if (won) {
        REQUIRE(pw_table_compare_and_set(table, 77, &rank, sizeof rank, NULL, PW_ABSENT, &was_set) == PW_OK && was_set);
        REQUIRE(pw_table_compare_and_set(table, 77, &rank, sizeof rank, NULL, PW_ABSENT, &was_set) == PW_OK && !was_set);
    }
    REQUIRE(pw_table_compare_and_set(table, 0, NULL, PW_ABSENT, "", 0, &was_set) == PW_ARGUMENT);
    REQUIRE(pw_table_compare_and_set(table, 1, NULL, 5, "", 0, &was_set) == PW_ARGUMENT);
    REQUIRE(pw_table_compare_and_set(table, 1, NULL, PW_ABSENT, "", 0, NULL) == PW_ARGUMENT);
    REQUIRE(pw_barrier(node) == PW_OK);
}

static void clear(pw_node *node, pw_table *table)
{
    struct seen seen = {.table = table};
    /* What this process has not flushed is cleared, too. */
    REQUIRE(pw_table_insert(table, 999, "unflushed", 9) == PW_OK);
    REQUIRE(pw_barrier(node) == PW_OK);
    if (rank == 0)
        REQUIRE(pw_table_clear(table) == PW_OK);
    REQUIRE(pw_barrier(node) == PW_OK && pw_table_flush(table) == PW_OK && pw_barrier(node) == PW_OK);
    pw_volume volume;
    REQUIRE(pw_table_volume(table, &volume) == PW_OK);
    /* One that another process had not flushed may have come behind it. */
    REQUIRE(volume.elements <= 1 && volume.malformed == 0);
    REQUIRE(pw_barrier(node) == PW_OK);
    if (rank == 0)
        REQUIRE(pw_table_clear(table) == PW_OK);
    REQUIRE(pw_barrier(node) == PW_OK);
    REQUIRE(pw_table_for_each(table, see, &seen) == PW_OK && seen.others == 0);
    REQUIRE(pw_barrier(node) == PW_OK);
}

int main(void)
{
    pw_node *node;
    REQUIRE(pw_node_from_env(&node) == PW_OK);
    size = pw_size(node), rank = pw_rank(node);
    const uint32_t schemes[] = {PW_NEAREST, PW_BY_HANDLER, PW_BY_OPERATIONS};
    for (int each = 0; each < 3; each++) {
        pw_table_options options = {.cells = 20, .scheme = schemes[each]};
        pw_table *table;
        REQUIRE(pw_table_join(node, &options, &table) == PW_OK);
        loop(node, table);
        clear(node, table);
        swap(node, table);
        REQUIRE(pw_table_free(table) == PW_OK);
    }
    puts("done");
    return pw_node_leave(node);
}
