/*
 * Memory that its owner unmaps, protects or truncates while it is exported: accesses of a peer to it, and those that begin before it, are PW_MEMORY.
 * What lies before it is accessed as ever, by the same connection.
 */
#define _GNU_SOURCE
#include <pagewire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REQUIRE(holds) ((holds) ? (void)0 : (void)(fprintf(stderr, "%d: not so: %s: %s\n", __LINE__, #holds, pw_error_message()), exit(1)))

enum kind { UNMAPPED, INACCESSIBLE, READ_ONLY, TRUNCATED, WHOLE, KINDS };
enum { PAGE = 4096, LENGTH = 64 * PAGE };

static void *make(enum kind kind, int *file)
{
    if (kind != TRUNCATED)
        return mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *file = memfd_create("truncated", MFD_CLOEXEC);
    REQUIRE(*file >= 0 && !ftruncate(*file, LENGTH));
    return mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
}

/* Takes all but the first page away. */
static void take_away(enum kind kind, char *memory, int file)
{
    switch (kind) {
    case UNMAPPED: REQUIRE(!munmap(memory + PAGE, LENGTH - PAGE)); break;
    case INACCESSIBLE: REQUIRE(!mprotect(memory + PAGE, LENGTH - PAGE, PROT_NONE)); break;
    case READ_ONLY: REQUIRE(!mprotect(memory + PAGE, LENGTH - PAGE, PROT_READ)); break;
    case TRUNCATED: REQUIRE(!ftruncate(file, PAGE)); break;
    default: break;
    }
}

static void access_all(enum kind kind, pw_remote *remote)
{
    static char buffer[LENGTH];
    const pw_error to_read = kind == WHOLE || kind == READ_ONLY ? PW_OK : PW_MEMORY;
    const pw_error to_write = kind == WHOLE ? PW_OK : PW_MEMORY;
    uint64_t old;
    for (int again = 0; again < 3; again++) {
        REQUIRE(pw_get(remote, PAGE, buffer, 8) == to_read);
        REQUIRE(pw_put(remote, 2 * PAGE, buffer, 8) == to_write);
        REQUIRE(pw_fetch_add(remote, PAGE, 1, &old) == to_write);
        REQUIRE(pw_compare_swap(remote, LENGTH - 8, 0, 0, &old) == to_write);
        REQUIRE(pw_get(remote, PAGE - 8, buffer, 16) == to_read);
        REQUIRE(pw_get(remote, 0, buffer, LENGTH) == to_read);
        REQUIRE(pw_put(remote, PAGE - 8, buffer, 16) == to_write);
        memset(buffer, again + 1, PAGE);
        REQUIRE(pw_put(remote, 0, buffer, PAGE) == PW_OK);
        memset(buffer, 0, PAGE);
        REQUIRE(pw_get(remote, 0, buffer, PAGE) == PW_OK && buffer[0] == again + 1 && buffer[PAGE - 1] == again + 1);
    }
}

int main(void)
{
    pw_node *node;
    REQUIRE(pw_node_from_env(&node) == PW_OK);
    size_t size = pw_size(node), next = (pw_rank(node) + 1) % size;
    pw_token tokens[KINDS], all[16 * KINDS];
    pw_remote *remotes[KINDS];
    void *memory[KINDS];
    int file = -1;
    char byte;
    REQUIRE(size <= 16);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        memory[kind] = make(kind, &file);
        REQUIRE(memory[kind] != MAP_FAILED);
        /* Half of the pages are there. */
        memset(memory[kind], 9, LENGTH / 2);
        REQUIRE(pw_export(node, memory[kind], LENGTH, PW_READ | PW_WRITE | PW_ATOMIC, &tokens[kind]) == PW_OK);
    }
    REQUIRE(pw_all_gather(node, tokens, sizeof tokens, all) == PW_OK);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        REQUIRE(pw_open(node, &all[next * KINDS + kind], &remotes[kind]) == PW_OK);
        /* Some were accessed before, and others never. */
        if (kind % 2)
            REQUIRE(pw_get(remotes[kind], PAGE, &byte, 1) == PW_OK && byte == 9);
    }
    REQUIRE(pw_barrier(node) == PW_OK);
    for (enum kind kind = 0; kind < KINDS; kind++)
        take_away(kind, memory[kind], file);
    REQUIRE(pw_barrier(node) == PW_OK);
    for (enum kind kind = 0; kind < KINDS; kind++)
        access_all(kind, remotes[kind]);
    REQUIRE(pw_barrier(node) == PW_OK);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        REQUIRE(pw_close(remotes[kind]) == PW_OK);
        REQUIRE(pw_unexport(node, &tokens[kind]) == PW_OK);
    }
    puts("done");
    return pw_node_leave(node);
}
