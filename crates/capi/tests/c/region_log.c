/*
 * Attributes of pages of a memory region: what a peer writes and reads there is logged with its data, redirected, or refused, and a function of this
 * program gets the records.
 */
#include "loopback.h"

enum { PAGES = 8, MOST = 64 };

static char *memory;
static struct {
    unsigned count;
    pw_access accesses[MOST];
    char data[MOST][64];
} seen;

static void keep(void *unused, const pw_access *access)
{
    (void)unused;
    if (seen.count == MOST)
        abort();
    seen.accesses[seen.count] = *access;
    if (access->data)
        memcpy(seen.data[seen.count], access->data, access->data_length < 64 ? access->data_length : 64);
    seen.count++;
}

/* Reads the log until it has so many records more. */
static void expect(int line, pw_log *log, unsigned count)
{
    time_t end = time(NULL) + 30;

    seen.count = 0;
    while (seen.count < count && time(NULL) < end)
        REQUIRE(pw_log_poll(log, MOST, keep, NULL, NULL) == PW_OK);
    REQUIRE(pw_log_poll(log, MOST, keep, NULL, NULL) == PW_OK);
    if (seen.count != count) {
        fprintf(stderr, "%d: %u records, and not %u\n", line, seen.count, count);
        exit(1);
    }
}

#define EXPECT(count) expect(__LINE__, log, count)

/* One request that is refused, and the queue pairs anew. */
static void refused_access(enum ibv_wr_opcode opcode, const struct ibv_mr *mr, uint64_t address)
{
    REQUIRE(try_access(opcode, mr, address, 8) == IBV_WC_REM_ACCESS_ERR);
    REQUIRE(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]));
    connect_queue_pairs();
}

int main(void)
{
    pw_node *node;
    pw_log *log;
    struct ibv_mr *mr;

    if (posix_memalign((void **)&memory, PAGE, PAGES * PAGE) || !(buffer = calloc(3, PAGE)))
        return 1;
    memset(memory, 0, PAGES * PAGE);
    make_queue_pairs();
    REQUIRE((local = ibv_reg_mr(pd, buffer, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    REQUIRE(pw_node_alone(&node) == PW_OK && pw_log_make(node, 1 << 16, 0, PW_ORDERED, &log) == PW_OK);
    /* Its pages begin where it does, and its addresses are others than those of memory. */
    REQUIRE((mr = ibv_reg_mr_iova(pd, memory + 64, 4 * PAGE, 1 << 20, ALL)) != NULL);
    const uint64_t at = 1 << 20;

    access_memory(IBV_WR_RDMA_WRITE, mr, at, 8);
    EXPECT(0);
    REQUIRE(pw_set_region_attributes(mr, 0, PAGE, PW_LOG_PUT_DATA | PW_LOG_GET_DATA, log) == PW_OK);
    REQUIRE(pw_set_region_attributes(mr, PAGE, PAGE, PW_REDIRECT_PUTS, log) == PW_OK);
    REQUIRE(pw_set_region_attributes(mr, 2 * PAGE, PW_TO_END, PW_REFUSE_PUTS | PW_LOG_PUTS, log) == PW_OK);

    memcpy(buffer, "written!", 8);
    access_memory(IBV_WR_RDMA_WRITE, mr, at + 16, 8);
    access_memory(IBV_WR_RDMA_READ, mr, at + 16, 8);
    access_memory(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, at + 64, 8);
    EXPECT(3);
    REQUIRE(!memcmp(memory + 64 + 16, "written!", 8) && memory[64 + 64] == 1);
    REQUIRE(seen.accesses[0].address == memory + 64 + 16 && seen.accesses[0].length == 8);
    REQUIRE(seen.accesses[0].operation == PW_ACCESS_PUT && !memcmp(seen.data[0], "written!", 8));
    REQUIRE(seen.accesses[1].operation == PW_ACCESS_GET && !memcmp(seen.data[1], "written!", 8));
    REQUIRE(seen.accesses[2].operation == PW_ACCESS_FETCH_ADD && seen.accesses[2].key == mr->rkey);

    memcpy(buffer, "in a log", 8);
    access_memory(IBV_WR_RDMA_WRITE, mr, at + PAGE, 8);
    EXPECT(1);
    REQUIRE(!memcmp(seen.data[0], "in a log", 8) && !memory[64 + PAGE]);

    refused_access(IBV_WR_RDMA_WRITE, mr, at + 3 * PAGE);
    EXPECT(1);
    REQUIRE(seen.accesses[0].operation == PW_ACCESS_PUT && !seen.accesses[0].data && !memory[64 + 3 * PAGE]);
    access_memory(IBV_WR_RDMA_READ, mr, at + 3 * PAGE, 8);
    EXPECT(0);

    /* Ordinary pages again. */
    REQUIRE(pw_set_region_attributes(mr, 0, PW_TO_END, 0, log) == PW_OK);
    memcpy(buffer, "ordinary", 8);
    access_memory(IBV_WR_RDMA_WRITE, mr, at + PAGE, 8);
    EXPECT(0);
    REQUIRE(!memcmp(memory + 64 + PAGE, "ordinary", 8));

    REQUIRE(pw_set_region_attributes(NULL, 0, PAGE, 0, log) == PW_ENGINE && strstr(pw_error_message(), "no memory region"));
    REQUIRE(pw_set_region_attributes(mr, 1, PAGE, 0, log) == PW_BOUNDS);
    REQUIRE(pw_set_region_attributes(mr, 0, 5 * PAGE, 0, log) == PW_BOUNDS);
    REQUIRE(pw_set_region_attributes(mr, 0, PAGE, 1 << 20, log) == PW_ARGUMENT);
    REQUIRE(pw_watch_region(mr, PW_WATCH_READS) == PW_ENGINE && strstr(pw_error_message(), "that the program has set"));
    REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, PAGE, 0));
    REQUIRE(!ibv_dereg_mr(mr) && (mr = ibv_reg_mr(pd, memory, PAGE, ALL)) && pw_watch_region(mr, PW_WATCH_READS) == PW_OK);
    REQUIRE(pw_set_region_attributes(mr, 0, PAGE, 0, log) == PW_ENGINE && strstr(pw_error_message(), "one log"));
    REQUIRE(!ibv_dereg_mr(mr) && pw_log_free(log) == PW_OK);
    pw_node_leave(node);
    return 0;
}
