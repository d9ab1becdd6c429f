/* Three processes keep checkpoints of each other without a disk; one of them dies (docs/guide/parity.md). Here they are nodes of one process. */
#include <pagewire.h>
#include <inttypes.h>
#include <stdio.h>

enum { MEMBERS = 3, WORDS = 100000, BYTES = WORDS * 8 };

static pw_node *alone(void)
{
    pw_node *node;
    if (pw_node_alone(&node))
        pw_die("node");
    return node;
}

int main(void)
{
    pw_node *keeper = alone(), *nodes[MEMBERS];
    pw_parity *parity;
    if (pw_parity_make(keeper, MEMBERS, 1 << 20, &parity)) /* three members of up to a mebibyte */
        pw_die("parity");

    pw_parity_member *members[MEMBERS];
    uint64_t *tables[MEMBERS], round;
    pw_token tokens[MEMBERS];
    for (size_t at = 0; at < MEMBERS; at++) {
        nodes[at] = alone();
        tables[at] = pw_calloc(WORDS, 8);
        if (!tables[at] || pw_parity_token(parity, at, &tokens[at]))
            pw_die("member");
        tables[at][50000] = 10 * at;
        pw_memory memory = {tables[at], BYTES, NULL};
        if (pw_parity_join(nodes[at], &tokens[at], at, &members[at]) || pw_parity_save(members[at], &memory, 1, &round))
            pw_die("save");
        printf("member %zu saves round %" PRIu64 "\n", at, round);
    }
    if (pw_parity_wait(members[0], UINT64_C(10000000000), NULL))
        pw_die("wait");

    printf("member 1 dies\n");
    pw_parity_member_free(members[1]);
    pw_node_leave(nodes[1]);
    pw_free(tables[1]);

    pw_token others[2];
    if (pw_parity_member_token(members[0], &others[0]) || pw_parity_member_token(members[2], &others[1]))
        pw_die("tokens");
    nodes[1] = alone();
    pw_rebuilt rebuilt;
    if (pw_parity_rebuild(nodes[1], &tokens[1], 1, others, 2, &rebuilt, &members[1]))
        pw_die("rebuild");
    tables[1] = pw_calloc(WORDS, 8);
    pw_memory memory = {tables[1], BYTES, NULL};
    if (!tables[1] || pw_parity_restore(members[1], &memory, 1, NULL))
        pw_die("restore");
    printf("%" PRIu64 " bytes of round %" PRIu64 " are rebuilt: it had %" PRIu64 "\n", rebuilt.length, rebuilt.round,
           tables[1][50000]);

    for (size_t at = 0; at < MEMBERS; at++) {
        pw_parity_member_free(members[at]);
        pw_node_leave(nodes[at]);
        pw_free(tables[at]);
    }
    pw_parity_free(parity);
    return pw_node_leave(keeper);
}
