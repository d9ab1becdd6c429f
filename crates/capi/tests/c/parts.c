/* Parts of a job, and barriers with a time: three processes or more. */
#include "expect.h"
#include <unistd.h>

enum { SOON = 20000000 };

int main(void)
{
    pw_node *node;
    pw_part *part, *none, *inner;
    uint64_t mine, all[16], value;
    size_t rank, size, job_rank;

    if (pw_node_from_env(&node))
        pw_die("join");
    rank = pw_rank(node);
    size = pw_size(node);
    /* The last one comes late: it waits until the others have. */
    if (rank + 1 < size) {
        EXPECT(PW_TIMEOUT, pw_barrier_for(node, rank == 0 ? 0 : SOON));
        EXPECT(PW_UNFINISHED, pw_all_gather(node, &rank, sizeof rank, all));
        EXPECT(PW_UNFINISHED, pw_split(node, 0, 0, &part));
    } else {
        usleep(500000);
    }
    EXPECT(PW_OK, pw_barrier_for(node, PW_FOREVER));
    mine = 10 + rank;
    EXPECT(PW_OK, pw_all_gather_for(node, &mine, sizeof mine, all, PW_FOREVER));
    for (size_t i = 0; i < size; i++)
        REQUIRE(all[i] == 10 + i);
    /* All but the last one, backwards. */
    EXPECT(PW_OK, pw_split(node, rank + 1 < size ? 7 : PW_NO_PART, -(int64_t)rank, &part));
    REQUIRE((part == NULL) == (rank + 1 == size));
    if (part) {
        REQUIRE(pw_part_size(part) == size - 1 && pw_part_rank(part) == size - 2 - rank);
        EXPECT(PW_OK, pw_part_job_rank(part, pw_part_rank(part), &job_rank));
        REQUIRE(job_rank == rank);
        EXPECT(PW_JOB, pw_part_job_rank(part, size - 1, &job_rank));
        EXPECT(PW_OK, pw_part_barrier(part));
        EXPECT(PW_OK, pw_part_all_gather(part, &mine, sizeof mine, all));
        for (size_t i = 0; i + 1 < size; i++)
            REQUIRE(all[i] == 10 + size - 2 - i);
        EXPECT(PW_OK, pw_part_all_gather_for(part, &rank, sizeof rank, all, PW_FOREVER));
        value = mine;
        EXPECT(PW_OK, pw_part_broadcast(part, 0, &value, sizeof value));
        REQUIRE(value == 10 + size - 2);
        EXPECT(PW_ARGUMENT, pw_part_broadcast(part, size - 1, &value, sizeof value));
        EXPECT(PW_OK, pw_part_split(part, pw_part_rank(part), 0, &inner));
        REQUIRE(pw_part_size(inner) == 1 && pw_part_rank(inner) == 0);
        EXPECT(PW_OK, pw_part_barrier_for(inner, 0));
        EXPECT(PW_OK, pw_part_free(inner));
        EXPECT(PW_HANDLE, pw_part_barrier(inner));
        EXPECT(PW_IN_USE, pw_node_leave(node));
        EXPECT(PW_OK, pw_part_barrier_for(part, PW_FOREVER));
        EXPECT(PW_OK, pw_part_free(part));
    }
    EXPECT(PW_OK, pw_split(node, PW_NO_PART, 0, &none));
    REQUIRE(none == NULL);
    EXPECT(PW_ARGUMENT, pw_split(node, 1, 0, NULL));
    EXPECT(PW_ARGUMENT, pw_part_barrier(NULL));
    EXPECT(PW_OK, pw_part_free(NULL));
    EXPECT(PW_OK, pw_barrier(node));
    EXPECT(PW_OK, pw_node_leave(node));
    if (failures == 0)
        printf("process %zu: all is so\n", rank);
    return failures != 0;
}
