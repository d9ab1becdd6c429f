/*
 * Regions that are watched: two queue pairs of one process, of which one writes, reads and adds. What is counted is what it did, page by page, also
 * where a region begins within a page, behind a reregistration, and with iova.
 */
#include "loopback.h"

enum { PAGES = 40 };

static char *memory;

static pw_page_count count_of(const void *page)
{
    pw_page_count count = {0};
    size_t found = 9;

    REQUIRE(pw_page_counts(page, 1, &count, 1, &found) == PW_OK && found <= 1);
    REQUIRE(!found || count.page == (void *)((uintptr_t)page & -(uintptr_t)PAGE));
    return count;
}

#define COUNT(at, ...) expect_count(__LINE__, at, (uint64_t[]){__VA_ARGS__})

/* expected: writes, bytes written, reads, bytes read, atomics. Over a network a long READ is several requests, and what is lost is read again. */
static void expect_count(int line, const void *page, const uint64_t *expected)
{
    const char *path = getenv("PAGEWIRE_PATH");
    int is_udp = path && !strcmp(path, "udp");
    pw_page_count is = count_of(page);
    int reads = is.reads == expected[2] && is.read_bytes == expected[3];

    if (is_udp && expected[2])
        reads = is.reads >= expected[2] && is.read_bytes >= expected[3];
    if (is.writes != expected[0] || is.written_bytes != expected[1] || !reads || is.atomics != expected[4]) {
        fprintf(stderr, "%d: %ld writes (%ld bytes), %ld reads (%ld bytes), %ld atomics\n", line, (long)is.writes,
                (long)is.written_bytes, (long)is.reads, (long)is.read_bytes, (long)is.atomics);
        exit(1);
    }
}

static void pages(void)
{
    /* It begins and ends within pages of memory. */
    char *start = memory + 100;
    struct ibv_mr *mr = ibv_reg_mr(pd, start, 3 * PAGE, ALL);

    REQUIRE(mr != NULL);
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)start, 8);
    COUNT(memory, 0, 0, 0, 0, 0); /* it is not watched yet */
    REQUIRE(pw_watch_region(mr, PW_WATCH_WRITES | PW_WATCH_READS) == PW_OK);
    for (int i = 0; i < 5; i++)
        access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)start, 8);
    access_memory(IBV_WR_RDMA_READ, mr, (uintptr_t)memory + PAGE - 4, 10);
    access_memory(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, (uintptr_t)memory + 3 * PAGE + 8, 8);
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)start, 3 * PAGE);
    COUNT(memory, 6, 40 + PAGE - 100, 1, 4, 0);
    COUNT(memory + PAGE, 1, PAGE, 1, 6, 0);
    COUNT(memory + 3 * PAGE, 1, 100, 0, 0, 1);
    COUNT(memory + 4 * PAGE, 0, 0, 0, 0, 0);
    pw_page_count all[2];
    size_t found = 0;
    REQUIRE(pw_page_counts(memory, PAGES * PAGE, all, 2, &found) == PW_OK && found == 4);
    REQUIRE(all[0].page == memory && all[1].page == memory + PAGE);
    REQUIRE(pw_page_counts(memory, PAGES * PAGE, NULL, 0, &found) == PW_OK && found == 4);

    /* READs alone, then nothing. */
    REQUIRE(pw_watch_region(mr, PW_WATCH_READS) == PW_OK);
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)start, 8);
    access_memory(IBV_WR_RDMA_READ, mr, (uintptr_t)start, 8);
    COUNT(memory, 6, 40 + PAGE - 100, 2, 12, 0);
    REQUIRE(pw_watch_region(mr, 0) == PW_OK);
    access_memory(IBV_WR_RDMA_READ, mr, (uintptr_t)start, 8);
    COUNT(memory, 6, 40 + PAGE - 100, 2, 12, 0);
    REQUIRE(!ibv_dereg_mr(mr));
}

/* It is watched no more, unless all regions are. */
static void registered_anew(void)
{
    int all = getenv("PAGEWIRE_WATCH") != NULL;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, PAGE, ALL);

    REQUIRE(mr && pw_watch_region(mr, PW_WATCH_WRITES) == PW_OK);
    REQUIRE(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 8 * PAGE, PAGE, 0));
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)memory + 8 * PAGE, 8);
    COUNT(memory + 8 * PAGE, all, all * 8, 0, 0, 0);
    REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, PAGE, 0));
    REQUIRE(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)memory + 8 * PAGE, 8);
    COUNT(memory + 8 * PAGE, 2 * all, 16 * all, 0, 0, 0);
    REQUIRE(!ibv_dereg_mr(mr));
}

/* Addresses that peers use and that are no addresses of memory; and a message of many pages and packets. */
static void long_messages(void)
{
    char *start = memory + 10 * PAGE;
    struct ibv_mr *mr = ibv_reg_mr_iova(pd, start, 30 * PAGE, 64, ALL);

    REQUIRE(mr && pw_watch_region(mr, PW_WATCH_WRITES | PW_WATCH_READS) == PW_OK);
    for (int i = 0; i < 3; i++) {
        access_memory(IBV_WR_RDMA_WRITE, mr, 64 + 10, 30 * PAGE - 10);
        access_memory(IBV_WR_RDMA_READ, mr, 64 + 10, 30 * PAGE - 10);
    }
    COUNT(start, 3, 3 * (PAGE - 10), 3, 3 * (PAGE - 10), 0);
    for (int page = 1; page < 30; page++)
        COUNT(start + page * PAGE, 3, 3 * PAGE, 3, 3 * PAGE, 0);
    REQUIRE(!ibv_dereg_mr(mr));
    /* Counts stay when the region has ended. */
    COUNT(start + PAGE, 3, 3 * PAGE, 3, 3 * PAGE, 0);
}

static void refused(void)
{
    size_t found;
    pw_page_count counts;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, PAGE, ALL);

    REQUIRE(pw_watch_region(NULL, PW_WATCH_READS) == PW_ENGINE && strstr(pw_error_message(), "no memory region"));
    REQUIRE(pw_watch_region(mr, 4) == PW_ARGUMENT);
    REQUIRE(pw_page_counts(memory, 1, NULL, 1, &found) == PW_ARGUMENT);
    REQUIRE(pw_page_counts(memory, 1, &counts, 1, NULL) == PW_ARGUMENT);
    REQUIRE(pw_page_counts((void *)-1, (size_t)-1, &counts, 1, &found) == PW_OK && found == 0);
    REQUIRE(!ibv_dereg_mr(mr));
    mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
    REQUIRE(mr && pw_watch_region(mr, PW_WATCH_READS) == PW_ENGINE && strstr(pw_error_message(), "longer than 64 GiB"));
    REQUIRE(!ibv_dereg_mr(mr));
}

int main(void)
{
    if (posix_memalign((void **)&memory, PAGE, PAGES * PAGE) || !(buffer = calloc(30, PAGE)))
        return 1;
    memset(memory, 0, PAGES * PAGE);
    make_queue_pairs();
    REQUIRE((local = ibv_reg_mr(pd, buffer, 30 * PAGE, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    if (!getenv("PAGEWIRE_WATCH"))
        pages();
    registered_anew();
    long_messages();
    refused();
    return 0;
}
