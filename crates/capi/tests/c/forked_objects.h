/* An object of each kind that pagewire.h, pagewire_experimental.h and pagewire_verbs.h have, in a process that will fork. */
#ifndef FORKED_OBJECTS_H
#define FORKED_OBJECTS_H

enum { ROOM = 1 << 20 };

static pw_node *node, *second;
static size_t own_rank;
static unsigned char *memory;
static uint64_t words[512];
static void *allocated;
static pw_token shared_token;
static char folder[] = "/tmp/pagewire-forked-XXXXXX";

/* forked_calls.h takes object_TYPE for each argument that is a pointer to a TYPE of the library. */
static pw_node *object_pw_node;
static pw_remote *object_pw_remote;
static pw_operation *object_pw_operation;
static pw_conditional_request *object_pw_conditional_request;
static pw_log *object_pw_log;
static pw_serving *object_pw_serving;
static pw_table *object_pw_table;
static pw_access_statistics *object_pw_access_statistics;
static pw_checkpoint *object_pw_checkpoint;
static pw_logged_process *object_pw_logged_process;
static pw_parity *object_pw_parity;
static pw_parity_member *object_pw_parity_member;
static pw_built_ins *object_pw_built_ins;
static pw_remote_built_ins *object_pw_remote_built_ins;
static pw_batches *object_pw_batches;
static pw_batch *object_pw_batch;
static pw_global *object_pw_global;
static pw_listener *object_pw_listener;
static pw_stream *object_pw_stream, *accepted;
static pw_transaction_store *object_pw_transaction_store;
static pw_transaction_client *object_pw_transaction_client;
static pw_part *object_pw_part;
static pw_mapped_file *object_pw_mapped_file;
static struct ibv_mr *object_ibv_mr;
static struct ibv_qp *object_ibv_qp;

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static const uint64_t PATIENCE = 60ull * 1000 * 1000 * 1000;

/* Values for all other arguments, which no refused call looks at. */
static void *place_of_result[64];
static pw_peer a_peer;
static char path[128];

static void sees_access(void *of, const pw_access *access)
{
    (void)of, (void)access;
}

static void sees_batched_put(void *of, const pw_batched_put *put)
{
    (void)of, (void)put;
}

static void sees_page(void *of, const pw_page_access *access)
{
    (void)of, (void)access;
}

static int sees_element(void *of, const pw_element *element)
{
    (void)of, (void)element;
    return 0;
}

#define MUST(call)                                                                                                              \
    do {                                                                                                                        \
        if (call)                                                                                                               \
            pw_die(#call);                                                                                                      \
    } while (0)

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void make_verbs_objects(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);

    if (!devices || !*devices || !(context = ibv_open_device(*devices)) || !(pd = ibv_alloc_pd(context)) ||
        !(cq = ibv_create_cq(context, 16, NULL, NULL, 0)))
        pw_die("a device");
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    object_ibv_mr = ibv_reg_mr(pd, words, sizeof words, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    object_ibv_qp = ibv_create_qp(pd, &init);
    if (!object_ibv_mr || !object_ibv_qp)
        pw_die("verbs objects");
    ibv_free_device_list(devices);
}

static void make_handled(void)
{
    pw_token token;
    pw_chain_address chain;
    pw_batch_address batches;

    MUST(pw_export(node, memory + ROOM / 2, 4096, PW_WRITE, &token));
    MUST(pw_log_make(node, 1 << 16, 4, PW_ORDERED, &object_pw_log));
    MUST(pw_log_serve(object_pw_log, NULL, sees_access, NULL, &object_pw_serving));
    MUST(pw_access_statistics_start(node, &token, PW_COUNT_PUTS | PW_COUNT_GETS, 0, &object_pw_access_statistics));
    MUST(pw_built_ins_serve(node, words, sizeof words, &object_pw_built_ins));
    MUST(pw_built_ins_address(object_pw_built_ins, &chain));
    MUST(pw_built_ins_open(second, &chain, &object_pw_remote_built_ins));
    MUST(pw_batches_to_memory(node, memory + ROOM / 2 + 8192, 4096, &object_pw_batches));
    MUST(pw_batches_address(object_pw_batches, &batches));
    MUST(pw_batch_open(second, &batches, &object_pw_batch));
    /* A child never sends what its parent has collected. */
    MUST(pw_batch_put(object_pw_batch, 0, "12345678", 8));
}

static void *accept_stream(void *listener)
{
    MUST(pw_stream_accept(listener, PATIENCE, &accepted));
    return NULL;
}

static void make_applications(void)
{
    pthread_t accepting;
    pw_memory all = {memory, 8192, NULL};
    pw_logged_process_options options = {.rank = 0, .size = 1, .bytes = 4096, .checkpoints = PW_NO_SYNC};
    pw_table_options table = {.cells = 100};
    pw_transaction_store_options store = {.cells = 4, .value_bytes = 8};
    pw_transaction_store_token of_store;
    pw_token token;

    MUST(pw_table_join(node, &table, &object_pw_table));
    MUST(pw_table_insert(object_pw_table, 7, "value", 5));
    MUST(pw_checkpoint_open(second, in_folder("checkpoint"), PW_NO_SYNC, &all, 1, &object_pw_checkpoint));
    MUST(pw_logged_process_start(second, in_folder("process"), &options, &object_pw_logged_process));
    MUST(pw_parity_make(node, 2, 8192, &object_pw_parity));
    MUST(pw_parity_token(object_pw_parity, 0, &token));
    MUST(pw_parity_join(second, &token, 0, &object_pw_parity_member));
    MUST(pw_split(node, 0, 0, &object_pw_part));
    MUST(pw_map_file(second, in_folder("mapped"), PW_FILE_WRITABLE, 8192, &object_pw_mapped_file));
    MUST(pw_global_make(node, 1, &object_pw_global));
    MUST(pw_stream_listen(second, 8192, &object_pw_listener));
    MUST(pw_listener_token(object_pw_listener, &token));
    MUST(pthread_create(&accepting, NULL, accept_stream, object_pw_listener));
    MUST(pw_stream_connect(node, &token, 8192, PATIENCE, &object_pw_stream));
    MUST(pthread_join(accepting, NULL));
    MUST(pw_transaction_store_make(second, &store, &object_pw_transaction_store));
    MUST(pw_transaction_store_export(object_pw_transaction_store, &of_store));
    MUST(pw_transaction_store_serve(object_pw_transaction_store, 0, &of_store, 1));
    MUST(pw_transaction_client_open(node, &of_store, 1, &object_pw_transaction_client));
}

static void make_objects(void)
{
    pw_operation *write;
    pw_conditional_request_info opening;

    MUST(!mkdtemp(folder));
    MUST(pw_node_from_env(&node));
    MUST(pw_node_alone(&second));
    own_rank = pw_rank(node);
    MUST(!(allocated = pw_malloc(256)));
    memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory == MAP_FAILED);
    object_pw_node = node;
    MUST(pw_export(node, memory, ROOM / 2, PW_READ | PW_WRITE | PW_ATOMIC, &shared_token));
    MUST(pw_open(second, &shared_token, &object_pw_remote));
    MUST(pw_identity(second, &a_peer));
    MUST(pw_conditional_write(node, &a_peer, 7, words, 64, &write));
    MUST(pw_next_conditional_request(second, PATIENCE, &opening, &object_pw_conditional_request));
    /* It ends when the parent releases it, at the end. */
    object_pw_operation = write;
    make_handled();
    make_applications();
    make_verbs_objects();
    if (write != object_pw_operation)
        pw_die("an object was replaced");
}

/* The write that was opened before the forks is released, and ends. */
static void release_write(void)
{
    pw_token token;
    pw_operation *released;

    MUST(pw_export(second, memory + ROOM / 2 + 16384, 64, PW_WRITE, &token));
    MUST(pw_conditional_request_accept(object_pw_conditional_request, &token, NULL, &released));
    MUST(pw_wait(object_pw_operation));
    MUST(pw_wait(released));
    MUST(pw_operation_free(released));
    MUST(pw_conditional_request_free(object_pw_conditional_request));
}

/* Behind the forks each application goes on. */
static void use_applications(void)
{
    char value[8];
    uint64_t length;
    size_t count;

    MUST(pw_part_barrier(object_pw_part));
    MUST(pw_mapped_file_sync(object_pw_mapped_file));
    MUST(pw_table_lookup(object_pw_table, 7, value, sizeof value, &length));
    if (length != 5 || memcmp(value, "value", 5))
        failures++, fprintf(stderr, "the table has another value\n");
    MUST(pw_stream_send(object_pw_stream, "hello", 5, PATIENCE, NULL));
    MUST(pw_stream_receive(accepted, value, 5, PATIENCE, &count));
    MUST(pw_checkpoint_save(object_pw_checkpoint, NULL, 0, NULL));
    MUST(pw_batch_flush_handled(object_pw_batch));
    MUST(memcmp(memory + ROOM / 2 + 8192, "12345678", 8));
    MUST(pw_transaction_start(object_pw_transaction_client, false));
    MUST(pw_transaction_get(object_pw_transaction_client, 0, 1, value, 8, NULL));
    MUST(pw_transaction_commit(object_pw_transaction_client));
    MUST(pw_logged_process_checkpoint(object_pw_logged_process, NULL, 0, NULL));
}

static void free_objects(void)
{
    char command[160];

    MUST(pw_operation_free(object_pw_operation));
    MUST(pw_transaction_client_close(object_pw_transaction_client));
    MUST(pw_transaction_store_free(object_pw_transaction_store));
    MUST(pw_stream_close(object_pw_stream));
    MUST(pw_stream_close(accepted));
    MUST(pw_listener_close(object_pw_listener));
    MUST(pw_mapped_file_close(object_pw_mapped_file));
    MUST(pw_part_free(object_pw_part));
    MUST(pw_global_leave(object_pw_global));
    MUST(pw_parity_member_free(object_pw_parity_member));
    MUST(pw_parity_free(object_pw_parity));
    MUST(pw_logged_process_end(object_pw_logged_process));
    MUST(pw_checkpoint_close(object_pw_checkpoint));
    MUST(pw_table_free(object_pw_table));
    MUST(pw_batch_close(object_pw_batch));
    MUST(pw_batches_end(object_pw_batches));
    MUST(pw_built_ins_close(object_pw_remote_built_ins));
    MUST(pw_built_ins_end(object_pw_built_ins));
    MUST(pw_access_statistics_end(object_pw_access_statistics));
    MUST(pw_serving_end(object_pw_serving, NULL));
    MUST(pw_log_free(object_pw_log));
    MUST(pw_close(object_pw_remote));
    MUST(pw_free(allocated));
    MUST(pw_node_leave(second));
    MUST(pw_node_leave(node));
    MUST(ibv_destroy_qp(object_ibv_qp));
    MUST(ibv_dereg_mr(object_ibv_mr));
    snprintf(command, sizeof command, "rm -r %s", folder);
    MUST(system(command));
}

#endif /* FORKED_OBJECTS_H */
