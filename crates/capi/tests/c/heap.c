/*
 * What the registered heap promises to C: sizes and alignments, exhaustion, statistics, what stays resident, and how far a token reaches.
 */
#include <errno.h>
#include <pagewire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB ((size_t)1 << 30)

#define require(holds) \
	do { \
		if (!(holds)) { \
			fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #holds, pw_error_message()); \
			exit(1); \
		} \
	} while (0)

static pw_heap_usage statistics(void)
{
	pw_heap_usage now;

	require(!pw_heap_statistics(&now));
	return now;
}

/* Only the first and the last page of an object are touched. */
static void sizes_and_alignments(void)
{
	size_t sizes[] = {0, 1, 4096, 4 << 20, (4 << 20) + 1, GIB, 64 * GIB};
	unsigned long before = statistics().live;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (size_t alignment = 1; alignment <= GIB; alignment *= 32) {
			char *object = pw_aligned_alloc(alignment, sizes[i]);

			require(object && (uintptr_t)object % alignment == 0 && pw_is_registered(object));
			if (sizes[i]) {
				object[0] = object[sizes[i] - 1] = 1;
				require(pw_is_registered(object + sizes[i] - 1));
			}
			require(statistics().live >= before + sizes[i]);
			require(!pw_free(object));
		}
	require(statistics().live == before);
}

static void refused(void *object, const char *said)
{
	require(!object && errno == ENOMEM);
	if (!strstr(pw_error_message(), said)) {
		fprintf(stderr, "\"%s\" is not in: %s\n", said, pw_error_message());
		exit(1);
	}
	errno = 0;
}

static void exhaustion(void)
{
	void *object = pw_malloc(GIB);

	refused(pw_malloc(2048 * GIB), "PAGEWIRE_HEAP_RANGE");
	refused(pw_malloc(SIZE_MAX), "free bytes");
	refused(pw_calloc(SIZE_MAX / 2, 3), "free bytes");
	refused(pw_aligned_alloc(2 * GIB, 1), "alignment of 2147483648 bytes");
	refused(pw_aligned_alloc(3, 1), "alignment of 3 bytes");
	refused(pw_realloc(object, 2048 * GIB), "PAGEWIRE_HEAP_RANGE");
	require(object && !pw_free(object));
}

static void retained(void)
{
	size_t length = 96 << 20;
	char *object = pw_malloc(length);

	require(object);
	memset(object, 1, length);
	require(statistics().resident >= length);
	require(!pw_heap_retain(UINT64_MAX) && !pw_free(object));
	usleep(1500000);
	require(statistics().resident >= length);
	/* Nobody allocates or frees any more. */
	require(!pw_heap_retain(8 << 20));
	object = pw_malloc(5 << 20);
	require(object && !pw_free(object));
	for (int tenths = 0; statistics().resident > (16 << 20); tenths++) {
		require(tenths < 200);
		usleep(100000);
	}
	require(!pw_heap_retain(64 << 20));
}

static void tokens(void)
{
	enum { EACH = 64, COUNT = 64 };
	char *objects[COUNT], bytes[2 * EACH] = {0};
	pw_node *node;
	pw_token token;
	pw_remote *remote;

	for (int i = 0; i < COUNT; i++) {
		objects[i] = pw_malloc(EACH);
		require(objects[i]);
		memset(objects[i], i, EACH);
	}
	require(!pw_node_alone(&node));
	require(!pw_export(node, objects[32], EACH, PW_READ | PW_WRITE, &token) && !pw_open(node, &token, &remote));
	/* Its neighbours in the page are out of reach. */
	require(!pw_put(remote, 0, bytes, EACH));
	require(pw_put(remote, 0, bytes, EACH + 1) == PW_BOUNDS);
	require(pw_put(remote, EACH, bytes, 1) == PW_BOUNDS);
	require(pw_put(remote, (uint64_t)-EACH, bytes, EACH) == PW_BOUNDS);
	require(pw_get(remote, EACH - 1, bytes, 2) == PW_BOUNDS);
	for (int i = 0; i < COUNT; i++)
		for (int byte = 0; byte < EACH; byte++)
			require(objects[i][byte] == (i == 32 ? 0 : i));
	/* The free of a neighbour ends nothing; that of the object does. */
	require(!pw_free(objects[31]) && !pw_get(remote, 0, bytes, EACH));
	require(!pw_free(objects[32]));
	require(pw_put(remote, 0, bytes, EACH) == PW_KEY && pw_get(remote, 0, bytes, 1) == PW_KEY);
	/* Nor does the token reach the next owner of the place. */
	objects[32] = pw_malloc(EACH);
	require(objects[32]);
	memset(objects[32], 9, EACH);
	require(pw_put(remote, 0, bytes, EACH) == PW_KEY && objects[32][0] == 9);
	pw_close(remote);
	require(!pw_node_leave(node));
}

int main(void)
{
	sizes_and_alignments();
	exhaustion();
	retained();
	tokens();
	return 0;
}
