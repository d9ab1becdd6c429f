/* An MPI program that looks at every byte: send and receive, allreduce, put, get and accumulate. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (4u << 20)
#define ROUNDS 4

static int rank, ranks;
static unsigned char *sent, *received;

static void check(int holds, const char *what, size_t size)
{
	if (!holds) {
		fprintf(stderr, "rank %d: %s of %zu bytes: wrong data\n", rank, what, size);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static unsigned char byte_of(size_t index, int from, int round)
{
	return (unsigned char)(index * 31 + index / 251 + (size_t)from * 67 + (size_t)round * 13 + 1);
}

static void fill(unsigned char *bytes, size_t size, int from, int round)
{
	for (size_t index = 0; index < size; index++)
		bytes[index] = byte_of(index, from, round);
}

static int is_filled(const unsigned char *bytes, size_t size, int from, int round)
{
	for (size_t index = 0; index < size; index++)
		if (bytes[index] != byte_of(index, from, round))
			return 0;
	return 1;
}

/* Each rank sends to the next and receives from the one before. */
static void ring(size_t size)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

	for (int round = 0; round < ROUNDS; round++) {
		fill(sent, size, rank, round);
		MPI_Sendrecv(sent, (int)size, MPI_BYTE, next, round, received, (int)size, MPI_BYTE, before, round,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check(is_filled(received, size, before, round), "a message", size);
	}
}

static void sum(size_t size)
{
	size_t count = size / sizeof(int64_t);
	int64_t *mine = (int64_t *)sent, *all = (int64_t *)received;

	for (size_t index = 0; index < count; index++)
		mine[index] = (int64_t)index * (rank + 1);
	MPI_Allreduce(mine, all, (int)count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (size_t index = 0; index < count; index++)
		check(all[index] == (int64_t)index * ranks * (ranks + 1) / 2, "an allreduce", size);
}

/* Puts into the next rank's window, gets it back, and adds to it. */
static void one_sided(MPI_Win window, unsigned char *memory, size_t size)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	size_t count = size / sizeof(int64_t);
	const int64_t *words = (const int64_t *)memory;

	for (int round = 0; round < ROUNDS; round++) {
		fill(sent, size, rank, round);
		MPI_Win_fence(0, window);
		MPI_Put(sent, (int)size, MPI_BYTE, next, 0, (int)size, MPI_BYTE, window);
		MPI_Win_fence(0, window);
		check(is_filled(memory, size, before, round), "a put", size);
		MPI_Get(received, (int)size, MPI_BYTE, next, 0, (int)size, MPI_BYTE, window);
		MPI_Win_fence(0, window);
		check(is_filled(received, size, rank, round), "a get", size);
	}
	for (size_t index = 0; index < count; index++)
		((int64_t *)sent)[index] = (int64_t)index + 1;
	for (size_t index = 0; index < count; index++)
		((int64_t *)memory)[index] = 5;
	MPI_Win_fence(0, window);
	/* Every rank adds to the window of rank 0. */
	MPI_Accumulate(sent, (int)count, MPI_INT64_T, 0, 0, (int)count, MPI_INT64_T, MPI_SUM, window);
	MPI_Win_fence(0, window);
	for (size_t index = 0; rank == 0 && index < count; index++)
		check(words[index] == 5 + ((int64_t)index + 1) * ranks, "an accumulate", size);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 8, 1024, 65536, 1u << 20, LARGEST };
	unsigned char *memory;
	MPI_Win window;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	sent = malloc(LARGEST);
	received = malloc(LARGEST);
	if (!sent || !received)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Win_allocate(LARGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
	for (size_t index = 0; index < sizeof(sizes) / sizeof(sizes[0]); index++) {
		ring(sizes[index]);
		sum(sizes[index]);
		one_sided(window, memory, sizes[index]);
	}
	MPI_Win_free(&window);
	free(sent);
	free(received);
	if (rank == 0)
		printf("openmpi: %d ranks, messages, allreduce, put, get and accumulate of 8 bytes to 4 MiB verified\n", ranks);
	MPI_Finalize();
	return 0;
}
