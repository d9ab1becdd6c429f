/*
 * A hash table whose elements are replaced and deleted all the time, so that the space of volumes is used again while others read and change them.
 */
#include <pagewire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(holds) ((holds) ? (void)0 : (void)(fprintf(stderr, "%d: not so: %s: %s\n", __LINE__, #holds, pw_error_message()), exit(1)))

enum { KEYS = 40, ROUNDS = 14, LONGEST = 400 };

/* The value that a key has after a round. 0 bytes in a round that deletes it. */
static size_t value_of(uint64_t key, int round, char *value)
{
    if ((key + (uint64_t)round) % 5 == 0)
        return 0;
    size_t length = 8 + (key * 31 + (uint64_t)round * 17) % (LONGEST - 8);
    memset(value, (int)(key * 7 + (uint64_t)round), length);
    return length;
}

static int is_value(uint64_t key, int round, const char *found, uint64_t length)
{
    char expected[LONGEST];
    size_t bytes = value_of(key, round, expected);
    return bytes ? length == bytes && !memcmp(found, expected, bytes) : length == PW_ABSENT;
}

static void replace(pw_table *table, uint64_t key, int round)
{
    char value[LONGEST];
    size_t length = value_of(key, round, value);
    REQUIRE((length ? pw_table_insert(table, key, value, length) : pw_table_delete(table, key)) == PW_OK);
}

int main(void)
{
    pw_node *node;
    REQUIRE(pw_node_from_env(&node) == PW_OK);
    size_t size = pw_size(node), rank = pw_rank(node);
    const uint32_t schemes[] = {PW_NEAREST, PW_BY_HANDLER, PW_BY_OPERATIONS};
    char found[LONGEST];
    uint64_t length;
    for (int each = 0; each < 3; each++) {
        pw_table_options options = {.cells = 2 * KEYS * size, .value_bytes = 2 * KEYS * LONGEST, .scheme = schemes[each]};
        pw_table *table;
        REQUIRE(pw_table_join(node, &options, &table) == PW_OK);
        for (int round = 0; round < ROUNDS; round++) {
            for (uint64_t key = 1; key <= KEYS; key++) {
                replace(table, (key - 1) * size + rank + 1, round);
                /* What others change meanwhile is as it was before or after. */
                uint64_t other = (key - 1) * size + (rank + 1) % size + 1;
                REQUIRE(pw_table_lookup(table, other, found, sizeof found, &length) == PW_OK);
                int is_known = length == PW_ABSENT;
                for (int at = round > 2 ? round - 2 : 0; at <= round + 2 && !is_known; at++)
                    is_known = is_value(other, at, found, length);
                REQUIRE(is_known);
            }
            REQUIRE(pw_table_flush(table) == PW_OK && pw_barrier(node) == PW_OK);
            for (uint64_t key = 1; key <= KEYS * size; key++) {
                REQUIRE(pw_table_lookup(table, key, found, sizeof found, &length) == PW_OK);
                REQUIRE(is_value(key, round, found, length));
            }
            REQUIRE(pw_barrier(node) == PW_OK);
        }
        pw_volume volume;
        REQUIRE(pw_table_volume(table, &volume) == PW_OK);
        REQUIRE(volume.resizes > 1 && volume.cells == options.cells && volume.malformed == 0);
        REQUIRE(pw_barrier(node) == PW_OK && pw_table_free(table) == PW_OK);
    }
    puts("done");
    return pw_node_leave(node);
}
