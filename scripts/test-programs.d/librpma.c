/*
 * librpma server|client ADDRESS PORT: memory of the server that the client writes, flushes and reads back by librpma. Both check every byte.
 * `rdmacm` beside this file builds and runs it.
 */
#include <librpma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (4 << 20)

#define MUST(call)                                                                        \
	do {                                                                              \
		int status = (call);                                                      \
		if (status) {                                                             \
			fprintf(stderr, "%s: %s\n", #call, rpma_err_2str(status));        \
			exit(1);                                                          \
		}                                                                         \
	} while (0)

static struct rpma_peer *peer;
static struct rpma_mr_local *region;
static uint8_t *memory;

static uint8_t byte_at(size_t place)
{
	return (uint8_t)(place * 2654435761u >> 24);
}

static void check(const char *who)
{
	for (size_t place = 0; place < SIZE; place++)
		if (memory[place] != byte_at(place)) {
			fprintf(stderr, "%s: byte %zu is another one\n", who, place);
			exit(1);
		}
	printf("%s: %d bytes are right\n", who, SIZE);
}

static void await(struct rpma_conn *connection, enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;

	MUST(rpma_conn_next_event(connection, &event));
	if (event != wanted) {
		fprintf(stderr, "%s\n", rpma_utils_conn_event_2str(event));
		exit(1);
	}
}

static void complete(struct rpma_conn *connection)
{
	struct rpma_cq *queue;
	struct ibv_wc completion;

	MUST(rpma_conn_get_cq(connection, &queue));
	MUST(rpma_cq_wait(queue));
	MUST(rpma_cq_get_wc(queue, 1, &completion, NULL));
	if (completion.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "a completion says %d\n", completion.status);
		exit(1);
	}
}

static void open_at(const char *address, enum rpma_util_ibv_context_type side)
{
	int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST |
		RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
	struct ibv_context *context;

	MUST(rpma_utils_get_ibv_context(address, side, &context));
	MUST(rpma_peer_new(context, &peer));
	memory = aligned_alloc(4096, SIZE);
	memset(memory, 0, SIZE);
	MUST(rpma_mr_reg(peer, memory, SIZE, usage, &region));
}

static void serve(const char *address, const char *port)
{
	char descriptor[256];
	struct rpma_conn_private_data data = { descriptor, 0 };
	struct rpma_conn_req *request;
	struct rpma_conn *connection;
	struct rpma_ep *listener;
	size_t size;

	open_at(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	MUST(rpma_mr_get_descriptor_size(region, &size));
	if (size > sizeof(descriptor))
		exit(1);
	MUST(rpma_mr_get_descriptor(region, descriptor));
	data.len = (uint8_t)size;
	MUST(rpma_ep_listen(peer, address, port, &listener));
	MUST(rpma_ep_next_conn_req(listener, NULL, &request));
	MUST(rpma_conn_req_connect(&request, &data, &connection));
	await(connection, RPMA_CONN_ESTABLISHED);
	await(connection, RPMA_CONN_CLOSED);
	check("server");
	MUST(rpma_conn_disconnect(connection));
	MUST(rpma_conn_delete(&connection));
	MUST(rpma_ep_shutdown(&listener));
}

static void use(const char *address, const char *port)
{
	struct rpma_conn_private_data data;
	struct rpma_mr_remote *remote;
	struct rpma_conn_req *request;
	struct rpma_conn *connection;

	open_at(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	MUST(rpma_conn_req_new(peer, address, port, NULL, &request));
	MUST(rpma_conn_req_connect(&request, NULL, &connection));
	await(connection, RPMA_CONN_ESTABLISHED);
	MUST(rpma_conn_get_private_data(connection, &data));
	/* A REP has more private data than were given. */
	MUST(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote));
	for (size_t place = 0; place < SIZE; place++)
		memory[place] = byte_at(place);
	MUST(rpma_write(connection, remote, 0, region, 0, SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL));
	MUST(rpma_flush(connection, remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
	complete(connection);
	memset(memory, 0, SIZE);
	MUST(rpma_read(connection, region, 0, remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, NULL));
	complete(connection);
	check("client");
	MUST(rpma_conn_disconnect(connection));
	await(connection, RPMA_CONN_CLOSED);
	MUST(rpma_mr_remote_delete(&remote));
	MUST(rpma_conn_delete(&connection));
}

int main(int count, char **words)
{
	if (count != 4) {
		fprintf(stderr, "usage: librpma server|client ADDRESS PORT\n");
		return 2;
	}
	if (!strcmp(words[1], "server"))
		serve(words[2], words[3]);
	else
		use(words[2], words[3]);
	MUST(rpma_mr_dereg(&region));
	MUST(rpma_peer_delete(&peer));
	return 0;
}
