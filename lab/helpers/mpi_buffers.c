/*
 * A library in front of MPI (LD_PRELOAD): counts what an application sends, and prepares the buffers of each call before MPI has them.
 * `pagewire reproduce part --applications` compiles it with mpicc.
 *
 * PAGEWIRE_MPI_BUFFERS  plain: nothing is prepared.
 *                       touched: a load and a store back to the first byte of each page that is received into. Of what is sent a
 *                       load alone, because an application may send memory that is read-only.
 *                       pinned: mlock(2) of each buffer. It stays locked, as in the cache of an MPI library.
 * PAGEWIRE_MPI_COUNTS   a file to which each process appends one line of JSON in MPI_Finalize. It says on which host the process is, too.
 *
 * Buffers of these calls are prepared: sends and receives except persistent ones, Bcast, Reduce, Allreduce, Allgather, Allgatherv,
 * Alltoall, Alltoallv and Gather. A persistent request ends the application, because its uses would not be seen.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE ((uintptr_t)4096)

enum mode { PLAIN, TOUCHED, PINNED };
enum use { SENT, RECEIVED };

static enum mode mode;
static unsigned long long sends, send_bytes, receives, collectives, touched_pages, pinned_bytes;

static void fail(const char *what)
{
	fprintf(stderr, "mpi_buffers: %s\n", what);
	PMPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

__attribute__((constructor)) static void choose_mode(void)
{
	const char *name = getenv("PAGEWIRE_MPI_BUFFERS");

	mode = !name || !strcmp(name, "plain") ? PLAIN : !strcmp(name, "touched") ? TOUCHED : PINNED;
}

static void lock(char *start, size_t bytes)
{
	struct rlimit limit;
	char text[160];

	if (mlock(start, bytes) == 0) {
		pinned_bytes += bytes;
		return;
	}
	snprintf(text, sizeof text, "mlock of %zu bytes at %p: %s", bytes, (void *)start, strerror(errno));
	if (errno == EPERM || (errno == ENOMEM && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY))
		fail("mlock: not permitted to lock so much memory (ulimit -l)");
	fail(text);
}

static void touch(char *start, size_t bytes, enum use use)
{
	char *end = start + bytes;

	/* Each byte lies inside the buffer: the rest of its first page may be another receive's. */
	for (char *at = start; at < end; at = (char *)(((uintptr_t)at & ~(PAGE - 1)) + PAGE)) {
		volatile char *byte = at;
		char value = *byte;

		if (use == RECEIVED)
			*byte = value;
		touched_pages++;
	}
}

static void prepare(char *start, size_t bytes, enum use use)
{
	uintptr_t first = (uintptr_t)start & ~(PAGE - 1);
	uintptr_t end = ((uintptr_t)start + bytes + PAGE - 1) & ~(PAGE - 1);

	if (bytes == 0)
		return;
	if (mode == TOUCHED)
		touch(start, bytes, use);
	if (mode == PINNED)
		lock((char *)first, end - first);
}

static void prepare_elements(char *base, long count, MPI_Datatype type, enum use use);

/* One element of a type: each block of it, as a type of holes may span memory that is not mapped. */
static void prepare_one(char *base, MPI_Datatype type, enum use use)
{
	int integers, addresses, types, combiner;
	MPI_Aint lb, extent;

	PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
	if (combiner == MPI_COMBINER_NAMED) {
		PMPI_Type_get_true_extent(type, &lb, &extent);
		prepare(base + lb, (size_t)extent, use);
		return;
	}

	int i[integers + 1];
	MPI_Aint a[addresses + 1];
	MPI_Datatype t[types + 1];

	PMPI_Type_get_contents(type, integers, addresses, types, i, a, t);
	PMPI_Type_get_extent(t[0], &lb, &extent);
	switch (combiner) {
	case MPI_COMBINER_DUP:
	case MPI_COMBINER_RESIZED:
		prepare_elements(base, 1, t[0], use);
		break;
	case MPI_COMBINER_CONTIGUOUS:
		prepare_elements(base, i[0], t[0], use);
		break;
	case MPI_COMBINER_VECTOR:
		for (int k = 0; k < i[0]; k++)
			prepare_elements(base + (MPI_Aint)k * i[2] * extent, i[1], t[0], use);
		break;
	case MPI_COMBINER_HVECTOR:
		for (int k = 0; k < i[0]; k++)
			prepare_elements(base + k * a[0], i[1], t[0], use);
		break;
	case MPI_COMBINER_INDEXED:
		for (int k = 0; k < i[0]; k++)
			prepare_elements(base + i[1 + i[0] + k] * extent, i[1 + k], t[0], use);
		break;
	case MPI_COMBINER_HINDEXED:
		for (int k = 0; k < i[0]; k++)
			prepare_elements(base + a[k], i[1 + k], t[0], use);
		break;
	case MPI_COMBINER_INDEXED_BLOCK:
		for (int k = 0; k < i[0]; k++)
			prepare_elements(base + i[2 + k] * extent, i[1], t[0], use);
		break;
	case MPI_COMBINER_HINDEXED_BLOCK:
		for (int k = 0; k < i[0]; k++)
			prepare_elements(base + a[k], i[1], t[0], use);
		break;
	case MPI_COMBINER_STRUCT:
		for (int k = 0; k < i[0]; k++)
			prepare_elements(base + a[k], i[1 + k], t[k], use);
		break;
	default:
		fail("a buffer of a subarray or distributed array cannot be prepared");
	}
	for (int k = 0; k < types; k++) {
		int inner[3], is;

		PMPI_Type_get_envelope(t[k], &inner[0], &inner[1], &inner[2], &is);
		if (is != MPI_COMBINER_NAMED)
			PMPI_Type_free(&t[k]);
	}
}

static void prepare_elements(char *base, long count, MPI_Datatype type, enum use use)
{
	MPI_Aint lb, extent, true_lb, true_extent;
	int size;

	if (mode == PLAIN || count <= 0 || base == (char *)MPI_IN_PLACE)
		return;
	PMPI_Type_size(type, &size);
	PMPI_Type_get_extent(type, &lb, &extent);
	PMPI_Type_get_true_extent(type, &true_lb, &true_extent);
	if (true_extent == size && (count == 1 || extent == size)) {
		prepare(base + true_lb, (size_t)size * (size_t)count, use);
		return;
	}
	for (long k = 0; k < count; k++)
		prepare_one(base + k * extent, type, use);
}

static void prepare_sent(const void *buffer, long count, MPI_Datatype type)
{
	prepare_elements((char *)buffer, count, type, SENT);
}

static void prepare_received(void *buffer, long count, MPI_Datatype type)
{
	prepare_elements(buffer, count, type, RECEIVED);
}

static void count_send(const void *buffer, int count, MPI_Datatype type)
{
	int size;

	PMPI_Type_size(type, &size);
	sends++;
	send_bytes += (unsigned long long)size * (unsigned long long)count;
	prepare_sent(buffer, count, type);
}

static void count_receive(void *buffer, int count, MPI_Datatype type)
{
	receives++;
	prepare_received(buffer, count, type);
}

#define TO const void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm
#define FROM void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm
#define GIVEN buffer, count, type, peer, tag, comm

#define SEND(name) \
	int MPI_##name(TO) { count_send(buffer, count, type); return PMPI_##name(GIVEN); }
#define ISEND(name) \
	int MPI_##name(TO, MPI_Request *request) { count_send(buffer, count, type); return PMPI_##name(GIVEN, request); }
#define REFUSED(name, arguments) \
	int MPI_##name(arguments, MPI_Request *request) \
	{ \
		(void)buffer, (void)count, (void)type, (void)peer, (void)tag, (void)comm, (void)request; \
		fail("MPI_" #name ": persistent requests are not counted"); \
		return MPI_ERR_OTHER; \
	}

SEND(Send)
SEND(Ssend)
SEND(Rsend)
SEND(Bsend)
ISEND(Isend)
ISEND(Issend)
ISEND(Irsend)
ISEND(Ibsend)
REFUSED(Send_init, TO)
REFUSED(Ssend_init, TO)
REFUSED(Rsend_init, TO)
REFUSED(Bsend_init, TO)
REFUSED(Recv_init, FROM)

int MPI_Recv(FROM, MPI_Status *status)
{
	count_receive(buffer, count, type);
	return PMPI_Recv(GIVEN, status);
}

int MPI_Irecv(FROM, MPI_Request *request)
{
	count_receive(buffer, count, type);
	return PMPI_Irecv(GIVEN, request);
}

int MPI_Sendrecv(const void *sent, int sent_count, MPI_Datatype sent_type, int to, int sent_tag, void *received, int received_count,
		 MPI_Datatype received_type, int from, int received_tag, MPI_Comm comm, MPI_Status *status)
{
	count_send(sent, sent_count, sent_type);
	count_receive(received, received_count, received_type);
	return PMPI_Sendrecv(sent, sent_count, sent_type, to, sent_tag, received, received_count, received_type, from, received_tag,
			     comm, status);
}

int MPI_Sendrecv_replace(void *buffer, int count, MPI_Datatype type, int to, int sent_tag, int from, int received_tag, MPI_Comm comm,
			 MPI_Status *status)
{
	count_send(buffer, count, type);
	count_receive(buffer, count, type);
	return PMPI_Sendrecv_replace(buffer, count, type, to, sent_tag, from, received_tag, comm, status);
}

static int ranks(MPI_Comm comm)
{
	int size;

	PMPI_Comm_size(comm, &size);
	return size;
}

static int is_rank(int rank, MPI_Comm comm)
{
	int own;

	PMPI_Comm_rank(comm, &own);
	return own == rank;
}

/* Of each rank so many elements, so many elements from the start. */
static void prepare_parts(char *base, const int *counts, const int *offsets, MPI_Datatype type, int parts, enum use use)
{
	MPI_Aint lb, extent;

	if (mode == PLAIN || base == (char *)MPI_IN_PLACE)
		return;
	PMPI_Type_get_extent(type, &lb, &extent);
	for (int k = 0; k < parts; k++)
		prepare_elements(base + offsets[k] * extent, counts[k], type, use);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	collectives++;
	prepare_elements(buffer, count, type, is_rank(root, comm) ? SENT : RECEIVED);
	return PMPI_Bcast(buffer, count, type, root, comm);
}

int MPI_Reduce(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
	collectives++;
	prepare_sent(sent, count, type);
	if (is_rank(root, comm))
		prepare_received(received, count, type);
	return PMPI_Reduce(sent, received, count, type, op, root, comm);
}

int MPI_Allreduce(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	collectives++;
	prepare_sent(sent, count, type);
	prepare_received(received, count, type);
	return PMPI_Allreduce(sent, received, count, type, op, comm);
}

int MPI_Allgather(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int received_count,
		  MPI_Datatype received_type, MPI_Comm comm)
{
	collectives++;
	prepare_sent(sent, sent_count, sent_type);
	prepare_received(received, (long)received_count * ranks(comm), received_type);
	return PMPI_Allgather(sent, sent_count, sent_type, received, received_count, received_type, comm);
}

int MPI_Allgatherv(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, const int *counts, const int *offsets,
		   MPI_Datatype received_type, MPI_Comm comm)
{
	collectives++;
	prepare_sent(sent, sent_count, sent_type);
	prepare_parts(received, counts, offsets, received_type, ranks(comm), RECEIVED);
	return PMPI_Allgatherv(sent, sent_count, sent_type, received, counts, offsets, received_type, comm);
}

int MPI_Alltoall(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int received_count,
		 MPI_Datatype received_type, MPI_Comm comm)
{
	collectives++;
	prepare_sent(sent, (long)sent_count * ranks(comm), sent_type);
	prepare_received(received, (long)received_count * ranks(comm), received_type);
	return PMPI_Alltoall(sent, sent_count, sent_type, received, received_count, received_type, comm);
}

int MPI_Alltoallv(const void *sent, const int *sent_counts, const int *sent_offsets, MPI_Datatype sent_type, void *received,
		  const int *received_counts, const int *received_offsets, MPI_Datatype received_type, MPI_Comm comm)
{
	collectives++;
	prepare_parts((char *)sent, sent_counts, sent_offsets, sent_type, ranks(comm), SENT);
	prepare_parts(received, received_counts, received_offsets, received_type, ranks(comm), RECEIVED);
	return PMPI_Alltoallv(sent, sent_counts, sent_offsets, sent_type, received, received_counts, received_offsets, received_type,
			      comm);
}

int MPI_Gather(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int received_count,
	       MPI_Datatype received_type, int root, MPI_Comm comm)
{
	collectives++;
	prepare_sent(sent, sent_count, sent_type);
	if (is_rank(root, comm))
		prepare_received(received, (long)received_count * ranks(comm), received_type);
	return PMPI_Gather(sent, sent_count, sent_type, received, received_count, received_type, root, comm);
}

static void write_counts(const char *file)
{
	char line[512], network[64];
	/* The name of the network namespace, which is that of the host. */
	ssize_t named = readlink("/proc/self/ns/net", network, sizeof network);

	if (named < 0)
		fail("/proc/self/ns/net cannot be read");
	int length = snprintf(line, sizeof line,
			      "{\"sends\":%llu,\"send_bytes\":%llu,\"receives\":%llu,\"collectives\":%llu,\"touched_pages\":%llu,"
			      "\"pinned_bytes\":%llu,\"network\":\"%.*s\"}\n",
			      sends, send_bytes, receives, collectives, touched_pages, pinned_bytes, (int)named, network);
	int descriptor = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);

	/* In one write, because other processes append, too. */
	if (descriptor < 0 || write(descriptor, line, (size_t)length) != length)
		fail("the file of PAGEWIRE_MPI_COUNTS cannot be written");
	close(descriptor);
}

int MPI_Finalize(void)
{
	const char *file = getenv("PAGEWIRE_MPI_COUNTS");

	if (file)
		write_counts(file);
	return PMPI_Finalize();
}
