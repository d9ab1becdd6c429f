/* Batches: small puts to one owner go together, to a handler of the owner. See docs/guide/batches.md. */
#include <pagewire.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Called by a thread of the library. Each put to a word adds to it. */
static void add(void *context, const pw_batched_put *put)
{
    uint64_t *histogram = context, value;

    if (put->length != sizeof value) {
        pw_handler_failed("a put is one word");
        return;
    }
    memcpy(&value, put->data, sizeof value);
    histogram[put->offset / 8] += value;
}

int main(void)
{
    pw_node *node;
    if (pw_node_alone(&node))
        pw_die("node");
    uint64_t *histogram = pw_calloc(1000, 8);
    pw_token token;
    if (!histogram || pw_export(node, histogram, 8000, PW_WRITE, &token))
        pw_die("histogram");
    pw_batches *served;
    pw_batch_address address;
    if (pw_batches_redirect(node, &token, add, histogram, &served) || pw_batches_address(served, &address))
        pw_die("serve");

    /* This could be any process that has the address. */
    pw_batch *batch;
    if (pw_batch_open(node, &address, &batch))
        pw_die("open");
    uint64_t one = 1;
    for (uint64_t number = 0; number < 100000; number++)
        if (pw_batch_put(batch, 8 * (number * number % 1000), &one, sizeof one))
            pw_die("put");
    if (pw_batch_flush_handled(batch)) /* all of them are added */
        pw_die("flush");

    pw_batch_counts counts;
    if (pw_batches_counts(served, &counts))
        pw_die("counts");
    printf("%" PRIu64 " puts in %" PRIu64 " messages\n", counts.puts, counts.messages);
    printf("%" PRIu64 " squares end in 001, and %" PRIu64 " in 002\n", histogram[1], histogram[2]);
    pw_batch_close(batch);
    pw_batches_end(served);
    pw_free(histogram);
    return pw_node_leave(node);
}
