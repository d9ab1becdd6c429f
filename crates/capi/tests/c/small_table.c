/* A small hash table of a job, in the least heap. */
#include <pagewire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS 300

static void check(pw_error error, const char *what)
{
	if (error)
		pw_die(what);
}

int main(void)
{
	pw_table_options options = {.cells = 100};
	char value[100] = {0}, found[100];
	pw_table *table;
	pw_node *node;
	uint64_t length;

	check(pw_node_from_env(&node), "pw_node_from_env");
	check(pw_table_join(node, &options, &table), "pw_table_join");
	for (uint64_t key = 1; key <= ELEMENTS; key++) {
		value[0] = (char)key;
		check(pw_table_insert(table, key + 1000 * pw_rank(node), value, sizeof(value)), "pw_table_insert");
	}
	check(pw_table_flush(table), "pw_table_flush");
	check(pw_barrier(node), "pw_barrier");
	for (size_t rank = 0; rank < pw_size(node); rank++)
		for (uint64_t key = 1; key <= ELEMENTS; key++) {
			check(pw_table_lookup(table, key + 1000 * rank, found, sizeof(found), &length),
			      "pw_table_lookup");
			if (length != sizeof(value) || found[0] != (char)key) {
				printf("key %lu: %lu bytes\n", (unsigned long)key, (unsigned long)length);
				return 1;
			}
		}
	check(pw_barrier(node), "pw_barrier");
	pw_table_free(table);
	pw_node_leave(node);
	return 0;
}
