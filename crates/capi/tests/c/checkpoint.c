/*
 * Checkpoints of regions. Without arguments: the calls. `steps FILE`: what peers and this process write in steps is saved, and each number that was is
 * printed; whoever kills this process compares. `replay STEP OUT`: writes what memory is after so many steps. `watched OUT`: a program that knows nothing
 * of checkpoints; each line of its input is a step, and it writes what its memory is behind it. `ended`, `again`, `unsaved`: regions that come and go
 * while all are saved.
 */
#define _GNU_SOURCE
#include "loopback.h"
#include <sys/mman.h>
#include <unistd.h>

/* The region begins and ends within pages. */
enum { PAGES = 64, START = 100, BYTES = (PAGES - 1) * PAGE + 200 };

static char *memory;

static unsigned long next(unsigned long *state)
{
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return *state >> 33;
}

/* Half of the writes of a step are this process's own, half a peer's. Without mr: all are plain stores. */
static void step(unsigned long number, char *start, const struct ibv_mr *mr)
{
    unsigned long state = number * 77 + 1;

    for (int i = 0; i < 6; i++) {
        unsigned length = i == 5 ? 3 * PAGE : 1 + next(&state) % 300, at = next(&state) % (BYTES - length);

        for (unsigned byte = 0; byte < length; byte++)
            buffer[byte] = (char)next(&state);
        if (mr && i % 2)
            access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)start + at, length);
        else
            memcpy(start + at, buffer, length);
    }
}

static void dump(const char *file, const char *start)
{
    FILE *out = fopen(file, "w");

    REQUIRE(out && fwrite(start, 1, BYTES, out) == BYTES && !fclose(out));
}

static void calls(void)
{
    char *start = memory + START, *kept = malloc(BYTES), *wanted = malloc(BYTES);
    char file[] = "/tmp/pagewire-checkpoint-XXXXXX", other[64], absent[64];
    int descriptor = mkstemp(file);
    struct ibv_mr *mr = ibv_reg_mr(pd, start, BYTES, ALL), *short_mr = ibv_reg_mr(pd, memory, PAGE, ALL);
    pw_saved saved;
    uint64_t number = 9;

    REQUIRE(descriptor >= 0 && !close(descriptor) && kept && wanted && mr && short_mr);
    snprintf(other, sizeof other, "%s.other", file);
    snprintf(absent, sizeof absent, "%s.absent", file);
    step(1, start, mr);
    REQUIRE(pw_checkpoint_region(mr, file, &saved) == PW_OK);
    REQUIRE(saved.number == 1 && saved.is_full && saved.pages > 0 && saved.pages <= PAGES);
    memcpy(kept, start, BYTES);
    step(2, start, mr);
    REQUIRE(pw_checkpoint_region(mr, NULL, &saved) == PW_OK);
    /* Six writes, of which one has four pages; and what the region shares with others. A page of memory lies in two of the region. */
    REQUIRE(saved.number == 2 && !saved.is_full && saved.pages <= 6 * 5 + 5 + 4);
    memcpy(wanted, start, BYTES);
    /* A peer alone. */
    buffer[0] ^= 1;
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)start + 20 * PAGE, 1);
    REQUIRE(pw_checkpoint_region(mr, file, &saved) == PW_OK && saved.pages >= 1 && saved.pages <= 6 && !saved.is_full);
    access_memory(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, (uintptr_t)memory + 30 * PAGE, 8);
    REQUIRE(pw_checkpoint_region(mr, NULL, &saved) == PW_OK && saved.pages >= 1 && saved.pages <= 6);

    REQUIRE(pw_restore_region(mr, file, 2, &number) == PW_OK && number == 2 && !memcmp(start, wanted, BYTES));
    REQUIRE(pw_restore_region(mr, file, 1, NULL) == PW_OK && !memcmp(start, kept, BYTES));
    /* What is saved behind that takes the place of the others. */
    start[5 * PAGE] ^= 1;
    REQUIRE(pw_checkpoint_region(mr, NULL, &saved) == PW_OK && saved.number == 2 && !saved.is_full && saved.pages <= 6);
    kept[5 * PAGE] ^= 1;
    memset(start, 7, BYTES);
    REQUIRE(pw_restore_region(mr, file, 0, &number) == PW_OK && number == 2 && !memcmp(start, kept, BYTES));

    /* Another file, and what is refused. */
    REQUIRE(pw_checkpoint_region(mr, other, &saved) == PW_OK && saved.number == 1 && saved.is_full);
    REQUIRE(pw_restore_region(mr, other, 7, NULL) == PW_ARGUMENT && strstr(pw_error_message(), "has no checkpoint 7"));
    REQUIRE(pw_restore_region(mr, file, 7, NULL) == PW_ARGUMENT && strstr(pw_error_message(), "has no checkpoint 7"));
    REQUIRE(pw_restore_region(short_mr, file, 0, NULL) == PW_ARGUMENT && strstr(pw_error_message(), "has regions of"));
    REQUIRE(pw_checkpoint_region(short_mr, file, NULL) == PW_ARGUMENT);
    REQUIRE(pw_checkpoint_region(short_mr, other, NULL) == PW_IN_USE && strstr(pw_error_message(), "another region of this one"));
    REQUIRE(pw_checkpoint_region(short_mr, "/", NULL) == PW_SYSTEM && strstr(pw_error_message(), "cannot open"));
    /* That leaves a region where it is saved, with what is known of its changes, and makes no file. */
    REQUIRE(pw_checkpoint_region(mr, "/", NULL) == PW_SYSTEM && pw_restore_region(mr, absent, 0, NULL) == PW_SYSTEM);
    REQUIRE(access(absent, F_OK) && pw_checkpoint_region(mr, NULL, &saved) == PW_OK && saved.number == 2 && !saved.is_full);
    REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE));
    REQUIRE(pw_checkpoint_region(mr, other, &saved) == PW_OK && saved.number == 3 && !saved.is_full);
    REQUIRE(pw_checkpoint_region(NULL, file, NULL) == PW_ARGUMENT && pw_restore_region(mr, NULL, 0, NULL) == PW_ARGUMENT);
    REQUIRE(pw_checkpoint_all(&number) == PW_ENGINE && strstr(pw_error_message(), "pagewire run --checkpoint"));
    REQUIRE(!memcmp(start, kept, BYTES));
    REQUIRE(!ibv_dereg_mr(short_mr));

    /* Counts are of what was asked for, with a checkpoint beside them. */
    size_t found = 9;
    pw_page_count count;
    REQUIRE(pw_page_counts(memory, PAGES * PAGE, &count, 1, &found) == PW_OK && !found);
    REQUIRE(pw_watch_region(mr, PW_WATCH_READS) == PW_OK);
    memset(buffer, 9, 8);
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)start, 8);
    access_memory(IBV_WR_RDMA_READ, mr, (uintptr_t)start, 8);
    REQUIRE(pw_page_counts(memory, PAGES * PAGE, &count, 1, &found) == PW_OK && found == 1);
    REQUIRE(!count.writes && count.reads == 1);
    REQUIRE(pw_checkpoint_region(mr, NULL, &saved) == PW_OK && !saved.is_full && saved.pages >= 1);

    /* Registered anew it is another region. Memory that comes and goes below a region is one that has changed. */
    REQUIRE(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    REQUIRE(pw_checkpoint_region(mr, NULL, NULL) == PW_ARGUMENT);
    REQUIRE(pw_checkpoint_region(mr, other, &saved) == PW_OK && saved.is_full);
    access_memory(IBV_WR_RDMA_WRITE, mr, (uintptr_t)start, 8);
    char *hole = memory + 8 * PAGE;
    REQUIRE(mmap(hole, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == hole);
    hole[PAGE] = 5;
    REQUIRE(pw_checkpoint_region(mr, NULL, &saved) == PW_OK);
    memcpy(kept, start, BYTES);
    hole[PAGE] = 6;
    REQUIRE(pw_checkpoint_region(mr, NULL, &saved) == PW_OK);
    REQUIRE(pw_restore_region(mr, other, saved.number - 1, NULL) == PW_OK && !memcmp(start, kept, BYTES));
    /* What is not there cannot have changed, and cannot be read. */
    REQUIRE(!munmap(hole, PAGE) && pw_checkpoint_region(mr, NULL, &saved) == PW_OK);
    REQUIRE(pw_checkpoint_region(mr, file, &saved) == PW_SYSTEM && strstr(pw_error_message(), "cannot be accessed"));
    REQUIRE(mmap(hole, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == hole);
    hole[0] = 8;
    REQUIRE(pw_checkpoint_region(mr, file, &saved) == PW_OK && saved.is_full);
    memcpy(kept, start, BYTES);
    hole[0] = 9;
    REQUIRE(pw_restore_region(mr, file, 0, NULL) == PW_OK && hole[0] == 8 && !memcmp(start, kept, BYTES));
    REQUIRE(!ibv_dereg_mr(mr) && !remove(file) && !remove(other));
}

/* What is written through another mapping, as other processes do, is in the next checkpoint. */
static void shared_memory(void)
{
    char file[] = "/tmp/pagewire-checkpoint-XXXXXX";
    int named = mkstemp(file), memory_file = memfd_create("shared", MFD_CLOEXEC), all = PROT_READ | PROT_WRITE;
    char *here, *elsewhere;
    struct ibv_mr *mr;
    pw_saved saved;

    REQUIRE(named >= 0 && !close(named) && memory_file >= 0 && !ftruncate(memory_file, 4 * PAGE));
    here = mmap(NULL, 4 * PAGE, all, MAP_SHARED, memory_file, 0);
    elsewhere = mmap(NULL, 4 * PAGE, all, MAP_SHARED, memory_file, 0);
    REQUIRE(here != MAP_FAILED && elsewhere != MAP_FAILED && (mr = ibv_reg_mr(pd, here, 4 * PAGE, ALL)) != NULL);
    memset(here, 1, 4 * PAGE);
    REQUIRE(pw_checkpoint_region(mr, file, &saved) == PW_OK && saved.is_full);
    elsewhere[2 * PAGE] = 2;
    REQUIRE(pw_checkpoint_region(mr, NULL, &saved) == PW_OK && saved.number == 2);
    here[2 * PAGE] = 3;
    REQUIRE(pw_restore_region(mr, file, 0, NULL) == PW_OK && here[2 * PAGE] == 2 && here[0] == 1);
    REQUIRE(!ibv_dereg_mr(mr) && !remove(file) && !munmap(here, 4 * PAGE) && !munmap(elsewhere, 4 * PAGE) && !close(memory_file));
}

/* There is a bound of regions that are saved, which an error says. */
static void many(void)
{
    enum { MOST = 128 };
    char folder[] = "/tmp/pagewire-checkpoints-XXXXXX", file[64];
    struct ibv_mr *mrs[MOST + 1];

    REQUIRE(mkdtemp(folder) != NULL);
    for (int i = 0; i <= MOST; i++) {
        snprintf(file, sizeof file, "%s/%d", folder, i);
        REQUIRE((mrs[i] = ibv_reg_mr(pd, memory + i * 16, 16, IBV_ACCESS_LOCAL_WRITE)) != NULL);
        REQUIRE(pw_checkpoint_region(mrs[i], file, NULL) == (i < MOST ? PW_OK : PW_LIMIT));
    }
    for (int i = 0; i <= MOST; i++) {
        snprintf(file, sizeof file, "%s/%d", folder, i);
        REQUIRE(!ibv_dereg_mr(mrs[i]) && (i == MOST || !remove(file)));
    }
    REQUIRE(!rmdir(folder));
}

/* Regions that were never saved come and go behind one that was. */
static void ended(void)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, PAGE, ALL);
    uint64_t saved;

    REQUIRE(mr && pw_checkpoint_all(&saved) == PW_OK && saved == 2 && !ibv_dereg_mr(mr));
    for (int i = 0; i < 70; i++)
        REQUIRE((mr = ibv_reg_mr(pd, memory, PAGE, ALL)) && !ibv_dereg_mr(mr));
}

/* All are deregistered before the first save. */
static void unsaved(void)
{
    REQUIRE(!ibv_dereg_mr(local));
}

/* A region is registered anew while it is saved. */
static void again(void)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, PAGES * PAGE, ALL);

    REQUIRE(mr != NULL);
    for (int i = 0; i < 1000; i++) {
        memory[i % PAGES * PAGE] ^= 1;
        REQUIRE(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, PAGES * PAGE, 0));
        if (i % 4 == 0)
            usleep(1000);
    }
}

static void steps(const char *file)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory + START, BYTES, ALL);
    pw_saved saved;

    REQUIRE(mr != NULL);
    for (unsigned long number = 1;; number++) {
        step(number, memory + START, mr);
        REQUIRE(pw_checkpoint_region(mr, file, &saved) == PW_OK && saved.number == number);
        printf("%lu\n", number);
        fflush(stdout);
    }
}

static void watched(const char *out)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory + START, BYTES, ALL);
    char line[64];

    REQUIRE(mr != NULL);
    for (unsigned long number = 1; fgets(line, sizeof line, stdin); number++) {
        step(number, memory + START, mr);
        dump(out, memory + START);
        printf("%lu\n", number);
        fflush(stdout);
    }
}

int main(int count, char **words)
{
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || !(buffer = calloc(3, PAGE)))
        return 1;
    if (count == 4 && !strcmp(words[1], "replay")) {
        for (unsigned long number = 1; number <= strtoul(words[2], NULL, 10); number++)
            step(number, memory + START, NULL);
        dump(words[3], memory + START);
        return 0;
    }
    make_queue_pairs();
    REQUIRE((local = ibv_reg_mr(pd, buffer, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    if (count == 3 && !strcmp(words[1], "steps"))
        steps(words[2]);
    else if (count == 3 && !strcmp(words[1], "watched"))
        watched(words[2]);
    else if (count == 2 && !strcmp(words[1], "ended"))
        ended();
    else if (count == 2 && !strcmp(words[1], "unsaved"))
        unsaved();
    else if (count == 2 && !strcmp(words[1], "again"))
        again();
    else {
        calls();
        shared_memory();
        many();
    }
    return 0;
}
