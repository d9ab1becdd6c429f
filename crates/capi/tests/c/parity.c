/* Parity: what each member has saved comes back when one is gone, and calls that are refused. */
#include "expect.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 3, BYTES = 6 * 4096 };

static const uint64_t PATIENCE = 10ull * 1000 * 1000 * 1000;

/* What a member has in a round. */
static void fill(char *memory, int member, uint64_t round)
{
    for (int at = 0; at < BYTES; at++)
        memory[at] = (char)(at * (member + 3) + 31 * (int)round);
}

int main(void)
{
    pw_node *keeper, *nodes[MEMBERS], *node;
    pw_parity *parity;
    pw_parity_member *members[MEMBERS], *member;
    pw_token tokens[MEMBERS], others[MEMBERS - 1];
    char *memory[MEMBERS], *expected = malloc(BYTES);
    pw_rebuilt rebuilt;
    uint64_t round;

    if (pw_node_alone(&keeper))
        pw_die("keeper");
    EXPECT(PW_ARGUMENT, pw_parity_make(keeper, 1000000, BYTES, &parity));
    REQUIRE(!parity);
    EXPECT(PW_ARGUMENT, pw_parity_make(keeper, MEMBERS, BYTES, NULL));
    EXPECT(PW_OK, pw_parity_make(keeper, MEMBERS, BYTES, &parity));
    EXPECT(PW_ARGUMENT, pw_parity_token(parity, MEMBERS, &tokens[0]));
    EXPECT(PW_IN_USE, pw_node_leave(keeper));

    for (int at = 0; at < MEMBERS; at++) {
        memory[at] = malloc(BYTES + 1);
        if (!memory[at] || pw_node_alone(&nodes[at]))
            pw_die("member");
        EXPECT(PW_OK, pw_parity_token(parity, (size_t)at, &tokens[at]));
        EXPECT(PW_OK, pw_parity_join(nodes[at], &tokens[at], (size_t)at, &members[at]));
    }
    EXPECT(PW_PARITY, pw_parity_restore(members[0], &(pw_memory){memory[0], BYTES, NULL}, 1, NULL));
    EXPECT(PW_LIMIT, pw_parity_save(members[0], &(pw_memory){memory[0], BYTES + 1, NULL}, 1, NULL));
    EXPECT(PW_ARGUMENT, pw_parity_save(members[0], NULL, 0, NULL));
    for (uint64_t number = 1; number <= 3; number++) {
        for (int at = 0; at < MEMBERS; at++) {
            fill(memory[at], at, number);
            EXPECT(PW_OK, pw_parity_save(members[at], &(pw_memory){memory[at], BYTES, NULL}, 1, &round));
            REQUIRE(round == number);
            if (at == 0) {
                EXPECT(PW_TIMEOUT, pw_parity_wait(members[at], 1000 * 1000, NULL));
                EXPECT(PW_PARITY, pw_parity_save(members[at], &(pw_memory){memory[at], BYTES, NULL}, 1, NULL));
            }
        }
        for (int at = 0; at < MEMBERS; at++) {
            EXPECT(PW_OK, pw_parity_wait(members[at], PATIENCE, &round));
            REQUIRE(round == number);
        }
        EXPECT(PW_OK, pw_parity_round(parity, &round));
        REQUIRE(round == number);
    }
    /* One member is gone, and another process takes its place. */
    EXPECT(PW_IN_USE, pw_node_leave(nodes[1]));
    EXPECT(PW_OK, pw_parity_member_free(members[1]));
    EXPECT(PW_OK, pw_node_leave(nodes[1]));
    EXPECT(PW_OK, pw_parity_member_token(members[0], &others[0]));
    EXPECT(PW_OK, pw_parity_member_token(members[2], &others[1]));
    if (pw_node_alone(&node))
        pw_die("place of a member");
    EXPECT(PW_TOKEN, pw_parity_join(node, &others[0], 1, &member));
    REQUIRE(!member);
    EXPECT(PW_TOKEN, pw_parity_join(node, &tokens[0], 1, &member));
    EXPECT(PW_TOKEN, pw_parity_rebuild(node, &tokens[0], 1, others, MEMBERS - 1, &rebuilt, &member));
    EXPECT(PW_TOKEN, pw_parity_rebuild(node, &tokens[1], 1, others, 1, &rebuilt, &member));
    EXPECT(PW_TOKEN, pw_parity_rebuild(node, &tokens[1], 1, (pw_token[]){others[0], others[0]}, 2, &rebuilt, &member));
    REQUIRE(!member);
    EXPECT(PW_OK, pw_parity_rebuild(node, &tokens[1], 1, others, MEMBERS - 1, &rebuilt, &member));
    REQUIRE(rebuilt.round == 3 && rebuilt.length == BYTES);
    memset(memory[1], 0, BYTES);
    EXPECT(PW_ARGUMENT, pw_parity_restore(member, &(pw_memory){memory[1], BYTES - 1, NULL}, 1, NULL));
    EXPECT(PW_OK, pw_parity_restore(member, &(pw_memory){memory[1], BYTES, NULL}, 1, &round));
    fill(expected, 1, 3);
    REQUIRE(round == 3 && !memcmp(memory[1], expected, BYTES));

    EXPECT(PW_OK, pw_parity_member_free(member));
    EXPECT(PW_HANDLE, pw_parity_member_free(member));
    EXPECT(PW_OK, pw_node_leave(node));
    for (int at = 0; at < MEMBERS; at += 2) {
        EXPECT(PW_OK, pw_parity_member_free(members[at]));
        EXPECT(PW_OK, pw_node_leave(nodes[at]));
    }
    EXPECT(PW_OK, pw_parity_free(parity));
    EXPECT(PW_OK, pw_node_leave(keeper));
    return failures != 0;
}
