/*
 * registration SIZE...: what ibv_reg_mr and ibv_dereg_mr cost for regions of so many bytes of address space (NORESERVE: they
 * have no pages yet), with a connected peer that does nothing. A plain verbs program; `pagewire bench registration` and
 * `pagewire reproduce jbmt --live` run it.
 *
 * Prints for each size one JSON object: {"size": bytes, "reg_mr": median microseconds, "dereg_mr": the same}.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <sys/mman.h>

/* Regions alive together: each clock reading is shared by so many calls. */
#define BATCH 100
/* Batches; their median counts. */
#define BATCHES 101

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, BATCHES, sizeof *values, compare);
    return values[BATCHES / 2];
}

static int measure(struct ibv_pd *pd, size_t size)
{
    static double reg[BATCHES], dereg[BATCHES];
    struct ibv_mr *mr[BATCH];
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now();
        for (int i = 0; i < BATCH; i++) {
            mr[i] = ibv_reg_mr(pd, memory, size, access);
            if (!mr[i]) {
                perror("ibv_reg_mr");
                return 1;
            }
        }
        double middle = now();
        for (int i = 0; i < BATCH; i++) {
            int error = ibv_dereg_mr(mr[i]);
            if (error) {
                fprintf(stderr, "ibv_dereg_mr: error %d\n", error);
                return 1;
            }
        }
        reg[batch] = (middle - start) / BATCH;
        dereg[batch] = (now() - middle) / BATCH;
    }
    printf("{\"size\":%zu,\"reg_mr\":%.4f,\"dereg_mr\":%.4f}\n", size, median(reg), median(dereg));
    munmap(memory, size);
    return 0;
}

int main(int argc, char **argv)
{
	int status = 0, failed = 0;
	pid_t child = fork_peer();
	struct side side = open_side(4096);

	connect_side(&side);
	meet();
	if (!child) {
		/* Idle until the parent has measured. */
		CHECK(wait_for_peer() == 'q');
		return 0;
	}
	for (int i = 1; i < argc && !failed; i++)
		failed = measure(side.pd, strtoull(argv[i], NULL, 10));
	hand_over('q');
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return failed;
}
