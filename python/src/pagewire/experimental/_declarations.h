#define PW_GLOBAL_PAGE_WORDS 512

#define PW_MOST_SORT_PROCESSES 256

#define PW_LEAST_STREAM_BUFFER 4096

#define PW_MOST_CELL_BYTES 4096

#define PW_TRANSACTION_STORE_TOKEN_SIZE 116

typedef struct pw_global pw_global;

typedef struct pw_listener pw_listener;

typedef struct pw_stream pw_stream;

typedef struct pw_transaction_client pw_transaction_client;

typedef struct pw_transaction_store pw_transaction_store;

typedef struct {
    uint64_t *content;
    uint64_t first_word;
    size_t by;
    bool is_store;
    bool is_alone;
} pw_page_access;

typedef void (*pw_page_handler)(void *context, const pw_page_access *access);

typedef struct {
    uint64_t faults;
    uint64_t pages_in;
    uint64_t pages_out;
    uint64_t lost_stores;
    uint64_t poisoned;
} pw_gas_counts;

typedef struct {
    const char *folder;
    size_t rank;
    size_t size;
    uint64_t patience;
} pw_sort_options;

typedef struct {
    uint64_t *keys;
    size_t count;
    uint64_t position;
    uint64_t gets;
    uint64_t from_logs;
    uint64_t peers_lost;
    bool run_was_saved;
} pw_sorted;

typedef struct {
    uint32_t cells;
    size_t value_bytes;
    const char *journal;
} pw_transaction_store_options;

typedef struct {
    uint8_t bytes[PW_TRANSACTION_STORE_TOKEN_SIZE];
} pw_transaction_store_token;

pw_error pw_global_make(pw_node *node, size_t pages_each, pw_global **memory);

pw_error pw_global_leave(pw_global *memory);

pw_error pw_global_free(pw_global *memory);

uint64_t *pw_global_words(pw_global *memory);

pw_error pw_global_home(pw_global *memory, size_t rank, size_t *first, size_t *count);

pw_error pw_global_on_access(pw_global *memory, pw_page_handler handler, void *context);

pw_error pw_global_take_dirty(pw_global *memory, uint64_t *words, size_t size, size_t *count);

pw_error pw_global_counts(pw_global *memory, pw_gas_counts *counts);

pw_error pw_global_lost(pw_global *memory, size_t *ranks, size_t size, size_t *count);

pw_error pw_sort(pw_node *node, const pw_sort_options *options, const uint64_t *keys, size_t count, pw_sorted *sorted);

pw_error pw_stream_listen(pw_node *node, size_t buffer, pw_listener **listener);

pw_error pw_listener_token(pw_listener *listener, pw_token *token);

pw_error pw_stream_accept(pw_listener *listener, uint64_t nanoseconds, pw_stream **stream);

pw_error pw_listener_close(pw_listener *listener);

pw_error pw_stream_connect(pw_node *node,
                           const pw_token *token,
                           size_t buffer,
                           uint64_t nanoseconds,
                           pw_stream **stream);

pw_error pw_stream_send(pw_stream *stream, const void *data, size_t length, uint64_t nanoseconds, size_t *sent);

pw_error pw_stream_receive(pw_stream *stream, void *data, size_t size, uint64_t nanoseconds, size_t *received);

pw_error pw_stream_flush(pw_stream *stream, uint64_t nanoseconds);

pw_error pw_stream_shutdown(pw_stream *stream, uint64_t nanoseconds);

pw_error pw_stream_close(pw_stream *stream);

pw_error pw_transaction_store_make(pw_node *node,
                                   const pw_transaction_store_options *options,
                                   pw_transaction_store **store);

pw_error pw_transaction_store_export(pw_transaction_store *store, pw_transaction_store_token *token);

pw_error pw_transaction_store_serve(pw_transaction_store *store,
                                    size_t position,
                                    const pw_transaction_store_token *tokens,
                                    size_t count);

pw_error pw_transaction_store_replace(pw_transaction_store *store,
                                      size_t position,
                                      const pw_transaction_store_token *token);

pw_error pw_transaction_store_cell(pw_transaction_store *store,
                                   uint32_t cell,
                                   void *value,
                                   size_t size,
                                   uint64_t *version);

pw_error pw_transaction_store_check(pw_transaction_store *store, size_t *held);

pw_error pw_transaction_store_free(pw_transaction_store *store);

pw_error pw_transaction_client_open(pw_node *node,
                                    const pw_transaction_store_token *tokens,
                                    size_t count,
                                    pw_transaction_client **client);

size_t pw_transaction_client_value_bytes(pw_transaction_client *client, size_t store);

pw_error pw_transaction_start(pw_transaction_client *client, bool again);

pw_error pw_transaction_get(pw_transaction_client *client,
                            size_t store,
                            uint32_t cell,
                            void *value,
                            size_t size,
                            uint64_t *version);

pw_error pw_transaction_put(pw_transaction_client *client,
                            size_t store,
                            uint32_t cell,
                            const void *value,
                            size_t length);

pw_error pw_transaction_commit(pw_transaction_client *client);

pw_error pw_transaction_abort(pw_transaction_client *client);

pw_error pw_transaction_client_close(pw_transaction_client *client);
