/* Built-in handlers: chains of steps that run on another process's memory, and no code of its own. See docs/guide/built-in.md. */
#include <pagewire.h>
#include <inttypes.h>
#include <stdio.h>

int main(void)
{
    pw_node *node;
    if (pw_node_alone(&node))
        pw_die("node");
    char *memory = pw_calloc(4096, 1);
    pw_built_ins *served;
    if (!memory || pw_built_ins_serve(node, memory, 4096, &served))
        pw_die("serve");
    if (pw_built_ins_begin_area(served, 64, 128, 4096)) /* where values are appended */
        pw_die("area");
    pw_chain_address address;
    if (pw_built_ins_address(served, &address))
        pw_die("address");

    /* This could be any process that has the address. */
    pw_remote_built_ins *remote;
    if (pw_built_ins_open(node, &address, &remote))
        pw_die("open");
    pw_step count = {PW_STEP_FETCH_ADD, .at = 0, .add = 1};
    if (pw_built_ins_run(remote, &count, 1, NULL)) /* a count */
        pw_die("count");

    /* A value is appended, and the pointer at 8 names it if it is 0 still. */
    uint64_t none = 0, first = 128;
    pw_step push[] = {
        {PW_STEP_APPEND, .at = 64, .data = "hello", .length = 5},
        {PW_STEP_COMPARE_SWAP, .at = 8, .compare = &none, .data = &first, .length = 8},
    };
    pw_outcome outcomes[2];
    if (pw_built_ins_run(remote, push, 2, outcomes))
        pw_die("push");
    printf("appended at %" PRIu64 ", %s\n", outcomes[0].word, outcomes[1].swapped ? "and named" : "and not named");

    /* What the pointer names. */
    char value[6] = "";
    pw_step read = {PW_STEP_READ, PW_PLACE_BEHIND, .at = 8, .length = 5, .found = value};
    if (pw_built_ins_run(remote, &read, 1, NULL))
        pw_die("read");
    printf("the pointer names: %s\n", value);

    pw_built_ins_close(remote);
    pw_built_ins_end(served);
    pw_free(memory);
    return pw_node_leave(node);
}
