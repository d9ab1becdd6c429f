/* Two stores, and a client that moves money between their accounts (docs/guide/experimental-transactions.md). Here all are nodes of one process. */
#include <pagewire_experimental.h>
#include <inttypes.h>
#include <stdio.h>

/* Account 3 of store 0 gives to account 5 of store 1. Nothing of it is done unless all is. */
static pw_error transfer(pw_transaction_client *client, int64_t amount)
{
    int64_t from, to;
    pw_error code = pw_transaction_get(client, 0, 3, &from, sizeof from, NULL);
    if (!code)
        code = pw_transaction_get(client, 1, 5, &to, sizeof to, NULL);
    if (code)
        return code;
    from -= amount, to += amount;
    code = pw_transaction_put(client, 0, 3, &from, sizeof from);
    if (!code)
        code = pw_transaction_put(client, 1, 5, &to, sizeof to);
    return code ? code : pw_transaction_commit(client);
}

int main(void)
{
    pw_node *nodes[3];
    pw_transaction_store *stores[2];
    pw_transaction_store_token tokens[2]; /* they go to others by any means */
    pw_transaction_store_options options = {.cells = 16, .value_bytes = 8};
    for (size_t at = 0; at < 3; at++)
        if (pw_node_alone(&nodes[at]))
            pw_die("node");
    for (size_t at = 0; at < 2; at++)
        if (pw_transaction_store_make(nodes[at], &options, &stores[at]) || pw_transaction_store_export(stores[at], &tokens[at]))
            pw_die("store");
    for (size_t at = 0; at < 2; at++)
        if (pw_transaction_store_serve(stores[at], at, tokens, 2))
            pw_die("serve");

    pw_transaction_client *client;
    if (pw_transaction_client_open(nodes[2], tokens, 2, &client))
        pw_die("client");
    for (int time = 0; time < 100; time++) {
        pw_error code;
        bool again = false; /* who tries again keeps its age, and wins in the end */
        do {
            if (pw_transaction_start(client, again))
                pw_die("start");
            code = transfer(client, 3);
            again = true;
        } while (code == PW_CONFLICT);
        if (code)
            pw_die("transfer");
    }

    int64_t from, to;
    uint64_t version;
    if (pw_transaction_store_cell(stores[0], 3, &from, sizeof from, &version) || pw_transaction_store_cell(stores[1], 5, &to, sizeof to, NULL))
        pw_die("cell");
    printf("account 3: %" PRId64 ", account 5: %" PRId64 ", after %" PRIu64 " transactions\n", from, to, version);
    pw_transaction_client_close(client);
    for (size_t at = 0; at < 2; at++)
        pw_transaction_store_free(stores[at]);
    for (size_t at = 0; at < 3; at++)
        pw_node_leave(nodes[at]);
    return 0;
}
