/* Conditional writes between two nodes of one process: written, cancelled, timed out, declined, refused, and a read. */
#include <pagewire.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s (%s)\n", what, pw_error_message());
        exit(1);
    }
}

static pw_operation *cancelled;

static void *cancel_it(void *unused)
{
    require(pw_cancel(cancelled) == PW_OK, "a cancel while another thread waits");
    return unused;
}

int main(void)
{
    pw_node *writer, *receiver;
    pw_peer to, from, owner;
    require(!pw_node_alone(&writer) && !pw_node_alone(&receiver), "nodes");
    require(!pw_identity(writer, &from) && !pw_identity(receiver, &to), "identities");
    char *table = pw_calloc(1, 4096);
    pw_token token;
    require(table && !pw_export(receiver, table, 4096, PW_WRITE, &token), "an export");
    require(!pw_owner(&token, &owner) && !memcmp(&owner, &to, sizeof to), "the owner of a token");

    /* Written. */
    pw_operation *held, *released;
    pw_conditional_request_info opening;
    pw_conditional_request *opened;
    uint64_t written = 0;
    require(!pw_conditional_write(writer, &to, 7, "bytes", 6, &held), "an open write");
    require(pw_test(held) == PW_UNFINISHED, "nothing was released");
    require(!pw_next_conditional_request(receiver, 20 * SECOND, &opening, &opened), "an opening");
    require(opening.tag == 7 && opening.length == 6 && opening.direction == PW_CONDITIONAL_WRITE, "what it says");
    require(!memcmp(&opening.peer, &from, sizeof from), "whose it is");
    require(!pw_conditional_request_accept(opened, &token, &written, &released), "a release");
    require(!pw_conditional_request_free(opened) && pw_conditional_request_free(opened) == PW_HANDLE, "freed once");
    require(!pw_wait(released) && written == 6 && !strcmp(table, "bytes"), "it is written");
    require(!pw_wait(held) && !pw_operation_free(held) && !pw_operation_free(released), "its end");

    /* Released before, to any peer. */
    require(!pw_accept_conditional_write(receiver, NULL, 8, &token, NULL, &released), "a release to any");
    require(!pw_conditional_write(writer, &to, 8, "other", 6, &held), "its write");
    require(!pw_wait(held) && !pw_wait(released) && !strcmp(table, "other"), "written");
    require(!pw_operation_free(held) && !pw_operation_free(released), "frees");

    /* A tag is used once; cancelled by another thread. */
    require(!pw_conditional_write(writer, &to, 9, "nothing", 8, &cancelled), "an open write");
    require(pw_conditional_write(writer, &to, 9, "nothing", 8, &held) == PW_TAG, "the tag is in use");
    pthread_t thread;
    require(!pthread_create(&thread, NULL, cancel_it, NULL), "a thread");
    require(pw_wait(cancelled) == PW_CANCELLED, "it was cancelled");
    pthread_join(thread, NULL);
    require(!pw_operation_free(cancelled), "its free");

    /* Its time is over. */
    require(!pw_conditional_write(writer, &to, 10, "nothing", 8, &held), "an open write");
    require(!pw_end_after(held, SECOND / 50) && pw_wait(held) == PW_TIMEOUT, "it has timed out");
    require(pw_cancel(held) == PW_OK && pw_wait(held) == PW_TIMEOUT, "a cancel comes too late");
    require(!pw_operation_free(held), "its free");

    /* Declined. What ended before may be there still. */
    require(!pw_conditional_write(writer, &to, 11, "nothing", 8, &held), "an open write");
    do
        require(!pw_next_conditional_request(receiver, 20 * SECOND, &opening, &opened), "an opening");
    while (opening.tag != 11);
    require(!pw_conditional_request_decline(opened) && pw_wait(held) == PW_DECLINED && !pw_operation_free(held), "declined");

    /* The token is too short. */
    char *longer = calloc(2, 4096);
    require(!pw_conditional_write(writer, &to, 12, longer, 8192, &held), "an open write");
    require(!pw_accept_conditional_write(receiver, &from, 12, &token, NULL, &released), "a release");
    require(pw_wait(released) == PW_RELEASE && pw_wait(held) == PW_RELEASE, "the token does not take it");
    require(!pw_operation_free(held) && !pw_operation_free(released), "frees");
    require(!strcmp(table, "other"), "nothing was written since");

    /* A read, which the peer answers. */
    require(!pw_conditional_read(receiver, &from, 13, &token, &written, &released), "an open read");
    require(!pw_next_conditional_request(writer, 20 * SECOND, &opening, &opened), "an opening");
    require(opening.direction == PW_CONDITIONAL_READ && opening.length == 4096, "what it says");
    require(!pw_conditional_request_supply(opened, "answer", 7, &held) && !pw_conditional_request_free(opened), "an answer");
    require(!pw_wait(released) && written == 7 && !strcmp(table, "answer"), "it is there");
    require(!pw_wait(held) && !pw_operation_free(held) && !pw_operation_free(released), "its end");

    /* Nonsense. */
    pw_peer nobody;
    memset(&nobody, 0, sizeof nobody);
    require(pw_conditional_write(writer, &nobody, 1, "x", 1, &held) == PW_TOKEN, "no peer");
    require(pw_conditional_write(writer, NULL, 1, "x", 1, &held) == PW_ARGUMENT, "NULL for a peer");
    require(pw_conditional_write(writer, &to, 1, NULL, 1, &held) == PW_ARGUMENT, "NULL for a buffer");
    require(pw_accept_conditional_write(receiver, &from, 1, NULL, NULL, &released) == PW_ARGUMENT, "NULL for a token");
    require(pw_next_conditional_request(receiver, 0, NULL, &opened) == PW_ARGUMENT, "NULL for an opening");
    require(pw_next_conditional_request(receiver, 0, &opening, &opened) == PW_TIMEOUT, "nothing is opened");
    require(pw_peer_of_rank(writer, 1, &nobody) == PW_JOB, "no such rank");
    free(longer);
    require(!pw_node_leave(writer) && !pw_node_leave(receiver), "the end");
    return 0;
}
