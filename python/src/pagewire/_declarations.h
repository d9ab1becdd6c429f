#define PW_VERSION 256

#define PW_CPP 1

#define PW_PYTHON 2

#define PW_READ 1

#define PW_WRITE 2

#define PW_ATOMIC 4

#define PW_TOKEN_SIZE 56

#define PW_FILE_READ_ONLY 0

#define PW_FILE_WRITABLE 1


#define PW_SET 0

#define PW_ADD 1

#define PW_EQUAL 0

#define PW_NOT_EQUAL 1

#define PW_AT_LEAST 2

#define PW_AT_MOST 3

#define PW_GREATER 4

#define PW_LESS 5


#define PW_PEER_SIZE 56

#define PW_CONDITIONAL_WRITE 0

#define PW_CONDITIONAL_READ 1

#define PW_ACCESS_PUT 1

#define PW_ACCESS_GET 2

#define PW_ACCESS_FETCH_ADD 3

#define PW_ACCESS_COMPARE_SWAP 4

#define PW_FIRST 1

#define PW_LAST 2

#define PW_REFUSED 4

#define PW_REDIRECTED 8

#define PW_MAY_HAVE_WRITTEN 16

#define PW_REPEATED 32

#define PW_ORDERED 0

#define PW_UNORDERED 1

#define PW_REDIRECT_PUTS 1

#define PW_REFUSE_PUTS 2

#define PW_REFUSE_GETS 4

#define PW_LOG_PUTS 8

#define PW_LOG_PUT_DATA 16

#define PW_LOG_GETS 32

#define PW_LOG_GET_DATA 64



#define PW_NEAREST 0

#define PW_BY_HANDLER 1

#define PW_BY_OPERATIONS 2


#define PW_TABLE_TICKET_SIZE 136

#define PW_COUNT_PUTS 1

#define PW_COUNT_GETS 2

#define PW_SOURCE_NODE 1

#define PW_SOURCE_QUEUE_PAIR 2


#define PW_SYNC 0

#define PW_NO_SYNC 1

#define PW_FULL_COPIES 0

#define PW_SOFT_DIRTY 1

#define PW_WRITE_PROTECT 2

#define PW_TICKET_SIZE 232

#define PW_STEP_FETCH_ADD 1

#define PW_STEP_COMPARE_SWAP 2

#define PW_STEP_READ 3

#define PW_STEP_WRITE 4

#define PW_STEP_XOR 5

#define PW_STEP_APPEND 6

#define PW_PLACE_AT 0

#define PW_PLACE_BEHIND 1

#define PW_PLACE_FOUND 2

#define PW_MOST_COMPARED 32

#define PW_MOST_MOVED 32768

#define PW_CHAIN_ADDRESS_SIZE 114

#define PW_MOST_BATCHED 31984

#define PW_BATCH_ADDRESS_SIZE 66

typedef enum {
    PW_OK = 0,
    PW_UNFINISHED = 1,
    PW_ARGUMENT = 2,
    PW_HANDLE = 3,
    PW_VERSION_MISMATCH = 4,
    PW_BOUNDS = 5,
    PW_RIGHTS = 6,
    PW_ALIGNMENT = 7,
    PW_PIECES = 8,
    PW_LENGTH = 9,
    PW_KEY = 10,
    PW_MEMORY = 11,
    PW_BUFFER = 12,
    PW_PEER_LOST = 13,
    PW_UNEXPECTED = 14,
    PW_JOB = 15,
    PW_TOKEN = 16,
    PW_CONNECT = 17,
    PW_TIMEOUT = 18,
    PW_LIMIT = 19,
    PW_ENGINE = 20,
    PW_SYSTEM = 21,
    PW_FORKED = 22,
    PW_NO_MEMORY = 23,
    PW_HEAP = 24,
    PW_ENVIRONMENT = 25,
    PW_DEFECT = 26,
    PW_CANCELLED = 27,
    PW_DECLINED = 28,
    PW_TAG = 29,
    PW_RELEASE = 30,
    PW_IN_HANDLER = 31,
    PW_IN_USE = 32,
    PW_FILE = 33,
    PW_REPLAY = 34,
    PW_PARITY = 35,
    PW_STREAM = 36,
    PW_CONFLICT = 37,
    PW_UNDECIDED = 38,
} pw_error;

typedef struct pw_access_statistics pw_access_statistics;

typedef struct pw_batch pw_batch;

typedef struct pw_batches pw_batches;

typedef struct pw_built_ins pw_built_ins;

typedef struct pw_checkpoint pw_checkpoint;

typedef struct pw_conditional_request pw_conditional_request;

typedef struct pw_log pw_log;

typedef struct pw_logged_process pw_logged_process;

typedef struct pw_mapped_file pw_mapped_file;

typedef struct pw_node pw_node;

typedef struct pw_operation pw_operation;

typedef struct pw_parity pw_parity;

typedef struct pw_parity_member pw_parity_member;

typedef struct pw_part pw_part;

typedef struct pw_remote pw_remote;

typedef struct pw_remote_built_ins pw_remote_built_ins;

typedef struct pw_serving pw_serving;

typedef struct pw_table pw_table;

typedef struct {
    uint8_t bytes[PW_TOKEN_SIZE];
} pw_token;

typedef struct {
    uint64_t live;
    uint64_t in_use;
    uint64_t peak;
    uint64_t resident;
    uint64_t registered;
    uint64_t freed;
} pw_heap_usage;

typedef struct {
    uint64_t offset;
    uint64_t value;
    uint32_t change;
} pw_signal;

typedef struct {
    uint64_t offset;
    size_t length;
} pw_piece;

typedef struct {
    uint64_t *word;
    uint64_t value;
    uint64_t seen;
    uint32_t wish;
} pw_signal_wish;

typedef struct {
    uint8_t bytes[PW_PEER_SIZE];
} pw_peer;

typedef struct {
    pw_peer peer;
    uint64_t tag;
    uint64_t length;
    uint32_t direction;
} pw_conditional_request_info;

typedef struct {
    const void *data;
    size_t data_length;
    void *address;
    uint64_t length;
    uint64_t source;
    uint64_t stamp;
    uint32_t operation;
    uint32_t flags;
    uint32_t message;
    uint32_t key;
    uint32_t domain;
} pw_access;

typedef void (*pw_handler)(void *context, const pw_access *access);

typedef struct {
    uint64_t handled;
    uint64_t failed;
} pw_counts;

typedef struct {
    uint64_t threshold;
    uint64_t interval;
} pw_events;

typedef struct {
    size_t cells;
    size_t spare;
    size_t value_bytes;
    uint32_t scheme;
} pw_table_options;

typedef struct {
    uint64_t key;
    const void *value;
    size_t length;
} pw_element;

typedef struct {
    uint64_t elements;
    uint64_t cells;
    uint64_t spare_taken;
    uint64_t resizes;
    uint64_t malformed;
    uint64_t checkpoints;
} pw_volume;

typedef int (*pw_element_function)(void *context, const pw_element *element);

typedef struct {
    size_t rank;
    uint64_t hash;
} pw_table_cursor;

typedef struct {
    const char *folder;
    uint64_t log_bytes;
    uint32_t checkpoints;
} pw_durability;

typedef struct {
    uint8_t bytes[PW_TABLE_TICKET_SIZE];
} pw_volume_ticket;

typedef struct {
    uint64_t puts;
    uint64_t gets;
    uint64_t atomics;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t refused_puts;
    uint64_t refused_gets;
    uint64_t unsure;
} pw_access_counts;

typedef struct {
    uint64_t number;
    pw_access_counts counts;
} pw_numbered_counts;

typedef struct {
    pw_peer peer;
    uint8_t gid[16];
    uint64_t rank;
    uint32_t queue_pair;
    uint32_t kind;
} pw_source;

typedef struct {
    void *address;
    size_t length;
    const pw_token *token;
} pw_memory;

typedef struct {
    uint64_t number;
    uint64_t pages;
    bool is_full;
} pw_saved;

typedef struct {
    uint64_t number;
    uint64_t note_length;
} pw_restored;

typedef struct {
    size_t rank;
    size_t size;
    size_t bytes;
    size_t log_bytes;
    uint32_t checkpoints;
} pw_logged_process_options;

typedef struct {
    uint8_t bytes[PW_TICKET_SIZE];
} pw_ticket;

typedef struct {
    uint64_t round;
    uint64_t length;
} pw_rebuilt;

typedef struct {
    uint8_t bytes[PW_CHAIN_ADDRESS_SIZE];
} pw_chain_address;

typedef struct {
    uint32_t action;
    uint32_t place;
    uint64_t at;
    uint64_t by;
    uint64_t add;
    const void *data;
    const void *data_mask;
    const void *compare;
    const void *compare_mask;
    size_t length;
    void *found;
    bool if_swapped;
} pw_step;

typedef struct {
    uint64_t word;
    bool was_run;
    bool swapped;
} pw_outcome;

typedef struct {
    const void *data;
    size_t length;
    uint64_t offset;
    void *address;
    uint64_t source;
} pw_batched_put;

typedef void (*pw_batch_handler)(void *context, const pw_batched_put *put);

typedef struct {
    uint8_t bytes[PW_BATCH_ADDRESS_SIZE];
} pw_batch_address;

typedef struct {
    uint64_t messages;
    uint64_t puts;
    uint64_t malformed;
    uint64_t failed;
} pw_batch_counts;

uint32_t pw_version(void);

const char *pw_version_text(void);

const char *pw_error_message(void);

const char *pw_error_message_for(uint32_t language);

const char *pw_error_name(int32_t code);

void pw_die(const char *what);

pw_error pw_node_from_env_for(uint32_t header, pw_node **node);

pw_error pw_node_alone_for(uint32_t header, pw_node **node);

pw_error pw_node_leave(pw_node *node);

size_t pw_rank(const pw_node *node);

size_t pw_size(const pw_node *node);

pw_error pw_barrier(pw_node *node);

pw_error pw_barrier_for(pw_node *node, uint64_t nanoseconds);

pw_error pw_all_gather(pw_node *node, const void *mine, size_t size, void *all);

pw_error pw_all_gather_for(pw_node *node, const void *mine, size_t size, void *all, uint64_t nanoseconds);

pw_error pw_node_descriptor(pw_node *node, int *descriptor);

pw_error pw_broadcast(pw_node *node, size_t root, void *data, size_t size);

pw_error pw_flush_all(pw_node *node);

pw_error pw_explain(pw_node *node, const pw_token *token, char *text, size_t size);

pw_error pw_export(pw_node *node, void *address, size_t length, uint32_t rights, pw_token *token);

pw_error pw_unexport(pw_node *node, const pw_token *token);

void *pw_malloc(size_t size);

void *pw_calloc(size_t count, size_t size);

void *pw_aligned_alloc(size_t alignment, size_t size);

void *pw_realloc(void *pointer, size_t size);

pw_error pw_free(void *pointer);

bool pw_is_registered(const void *address);

pw_error pw_heap_statistics(pw_heap_usage *statistics);

pw_error pw_heap_retain(uint64_t bytes);

pw_error pw_heap_purge(void);

pw_error pw_map_file(pw_node *node, const char *path, uint32_t mode, uint64_t length, pw_mapped_file **file);

uint64_t pw_mapped_file_length(const pw_mapped_file *file);

pw_error pw_mapped_file_export(pw_mapped_file *file,
                               uint64_t offset,
                               uint64_t length,
                               uint32_t rights,
                               pw_token *token);

pw_error pw_mapped_file_sync(pw_mapped_file *file);

pw_error pw_mapped_file_close(pw_mapped_file *file);

pw_error pw_split(pw_node *node, uint64_t colour, int64_t key, pw_part **part);

pw_error pw_part_split(pw_part *whole, uint64_t colour, int64_t key, pw_part **part);

pw_error pw_part_free(pw_part *part);

size_t pw_part_rank(const pw_part *part);

size_t pw_part_size(const pw_part *part);

pw_error pw_part_job_rank(const pw_part *part, size_t rank, size_t *job_rank);

pw_error pw_part_barrier(pw_part *part);

pw_error pw_part_barrier_for(pw_part *part, uint64_t nanoseconds);

pw_error pw_part_all_gather(pw_part *part, const void *mine, size_t size, void *all);

pw_error pw_part_all_gather_for(pw_part *part, const void *mine, size_t size, void *all, uint64_t nanoseconds);

pw_error pw_part_broadcast(pw_part *part, size_t root, void *data, size_t size);

pw_error pw_open(pw_node *node, const pw_token *token, pw_remote **remote);

pw_error pw_close(pw_remote *remote);

uint64_t pw_remote_length(const pw_remote *remote);

pw_error pw_put(pw_remote *remote, uint64_t offset, const void *buffer, size_t length);

pw_error pw_put_start(pw_remote *remote, uint64_t offset, const void *buffer, size_t length, pw_operation **operation);

pw_error pw_get(pw_remote *remote, uint64_t offset, void *buffer, size_t length);

pw_error pw_get_start(pw_remote *remote, uint64_t offset, void *buffer, size_t length, pw_operation **operation);

pw_error pw_put_signal(pw_remote *remote, uint64_t offset, const void *buffer, size_t length, const pw_signal *signal);

pw_error pw_put_signal_start(pw_remote *remote,
                             uint64_t offset,
                             const void *buffer,
                             size_t length,
                             const pw_signal *signal,
                             pw_operation **operation);

pw_error pw_signal_change(pw_remote *remote, const pw_signal *signal);

pw_error pw_put_scattered(pw_remote *remote, const pw_piece *pieces, size_t count, const void *buffer, size_t length);

pw_error pw_put_scattered_start(pw_remote *remote,
                                const pw_piece *pieces,
                                size_t count,
                                const void *buffer,
                                size_t length,
                                pw_operation **operation);

pw_error pw_get_scattered(pw_remote *remote, const pw_piece *pieces, size_t count, void *buffer, size_t length);

pw_error pw_get_scattered_start(pw_remote *remote,
                                const pw_piece *pieces,
                                size_t count,
                                void *buffer,
                                size_t length,
                                pw_operation **operation);

pw_error pw_put_strided(pw_remote *remote,
                        uint64_t offset,
                        uint64_t stride,
                        size_t piece,
                        const void *buffer,
                        size_t length);

pw_error pw_get_strided(pw_remote *remote, uint64_t offset, uint64_t stride, size_t piece, void *buffer, size_t length);

pw_error pw_fetch_add(pw_remote *remote, uint64_t offset, uint64_t add, uint64_t *before);

pw_error pw_fetch_add_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t add,
                            uint64_t *before,
                            pw_operation **operation);

pw_error pw_compare_swap(pw_remote *remote, uint64_t offset, uint64_t compare, uint64_t swap, uint64_t *before);

pw_error pw_compare_swap_start(pw_remote *remote,
                               uint64_t offset,
                               uint64_t compare,
                               uint64_t swap,
                               uint64_t *before,
                               pw_operation **operation);

pw_error pw_swap(pw_remote *remote, uint64_t offset, uint64_t swap, uint64_t *before);

pw_error pw_swap_start(pw_remote *remote, uint64_t offset, uint64_t swap, uint64_t *before, pw_operation **operation);

pw_error pw_flush(pw_remote *remote);

pw_error pw_fetch_and(pw_remote *remote, uint64_t offset, uint64_t bits, uint64_t *before);

pw_error pw_fetch_and_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t bits,
                            uint64_t *before,
                            pw_operation **operation);

pw_error pw_fetch_or(pw_remote *remote, uint64_t offset, uint64_t bits, uint64_t *before);

pw_error pw_fetch_or_start(pw_remote *remote,
                           uint64_t offset,
                           uint64_t bits,
                           uint64_t *before,
                           pw_operation **operation);

pw_error pw_fetch_xor(pw_remote *remote, uint64_t offset, uint64_t bits, uint64_t *before);

pw_error pw_fetch_xor_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t bits,
                            uint64_t *before,
                            pw_operation **operation);

pw_error pw_fetch_min(pw_remote *remote, uint64_t offset, uint64_t value, uint64_t *before);

pw_error pw_fetch_min_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t value,
                            uint64_t *before,
                            pw_operation **operation);

pw_error pw_fetch_max(pw_remote *remote, uint64_t offset, uint64_t value, uint64_t *before);

pw_error pw_fetch_max_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t value,
                            uint64_t *before,
                            pw_operation **operation);

pw_error pw_fetch_min_signed(pw_remote *remote, uint64_t offset, int64_t value, int64_t *before);

pw_error pw_fetch_min_signed_start(pw_remote *remote,
                                   uint64_t offset,
                                   int64_t value,
                                   int64_t *before,
                                   pw_operation **operation);

pw_error pw_fetch_max_signed(pw_remote *remote, uint64_t offset, int64_t value, int64_t *before);

pw_error pw_fetch_max_signed_start(pw_remote *remote,
                                   uint64_t offset,
                                   int64_t value,
                                   int64_t *before,
                                   pw_operation **operation);

pw_error pw_fetch_add_32(pw_remote *remote, uint64_t offset, uint32_t add, uint32_t *before);

pw_error pw_fetch_add_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t add,
                               uint32_t *before,
                               pw_operation **operation);

pw_error pw_compare_swap_32(pw_remote *remote, uint64_t offset, uint32_t compare, uint32_t swap, uint32_t *before);

pw_error pw_compare_swap_32_start(pw_remote *remote,
                                  uint64_t offset,
                                  uint32_t compare,
                                  uint32_t swap,
                                  uint32_t *before,
                                  pw_operation **operation);

pw_error pw_swap_32(pw_remote *remote, uint64_t offset, uint32_t swap, uint32_t *before);

pw_error pw_swap_32_start(pw_remote *remote,
                          uint64_t offset,
                          uint32_t swap,
                          uint32_t *before,
                          pw_operation **operation);

pw_error pw_fetch_and_32(pw_remote *remote, uint64_t offset, uint32_t bits, uint32_t *before);

pw_error pw_fetch_and_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t bits,
                               uint32_t *before,
                               pw_operation **operation);

pw_error pw_fetch_or_32(pw_remote *remote, uint64_t offset, uint32_t bits, uint32_t *before);

pw_error pw_fetch_or_32_start(pw_remote *remote,
                              uint64_t offset,
                              uint32_t bits,
                              uint32_t *before,
                              pw_operation **operation);

pw_error pw_fetch_xor_32(pw_remote *remote, uint64_t offset, uint32_t bits, uint32_t *before);

pw_error pw_fetch_xor_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t bits,
                               uint32_t *before,
                               pw_operation **operation);

pw_error pw_fetch_min_32(pw_remote *remote, uint64_t offset, uint32_t value, uint32_t *before);

pw_error pw_fetch_min_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t value,
                               uint32_t *before,
                               pw_operation **operation);

pw_error pw_fetch_max_32(pw_remote *remote, uint64_t offset, uint32_t value, uint32_t *before);

pw_error pw_fetch_max_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t value,
                               uint32_t *before,
                               pw_operation **operation);

pw_error pw_fetch_min_signed_32(pw_remote *remote, uint64_t offset, int32_t value, int32_t *before);

pw_error pw_fetch_min_signed_32_start(pw_remote *remote,
                                      uint64_t offset,
                                      int32_t value,
                                      int32_t *before,
                                      pw_operation **operation);

pw_error pw_fetch_max_signed_32(pw_remote *remote, uint64_t offset, int32_t value, int32_t *before);

pw_error pw_fetch_max_signed_32_start(pw_remote *remote,
                                      uint64_t offset,
                                      int32_t value,
                                      int32_t *before,
                                      pw_operation **operation);

pw_error pw_wait(pw_operation *operation);

pw_error pw_wait_for(pw_operation *operation, uint64_t nanoseconds);

pw_error pw_test(pw_operation *operation);

pw_error pw_notify(pw_operation *operation, int descriptor);

pw_error pw_operation_free(pw_operation *operation);

pw_error pw_wait_any(pw_operation *const *operations, size_t count, uint64_t nanoseconds, size_t *index);

pw_error pw_wait_some(pw_operation *const *operations,
                      size_t count,
                      uint64_t nanoseconds,
                      size_t *indices,
                      size_t *found);

pw_error pw_wait_all(pw_operation *const *operations, size_t count, uint64_t nanoseconds);

pw_error pw_signal_wait(pw_node *node,
                        uint64_t *word,
                        uint32_t wish,
                        uint64_t value,
                        uint64_t nanoseconds,
                        uint64_t *seen);

pw_error pw_signal_wait_any(pw_node *node, pw_signal_wish *wishes, size_t count, uint64_t nanoseconds, size_t *index);

pw_error pw_signal_wait_some(pw_node *node,
                             pw_signal_wish *wishes,
                             size_t count,
                             uint64_t nanoseconds,
                             size_t *indices,
                             size_t *found);

pw_error pw_signal_wait_all(pw_node *node, pw_signal_wish *wishes, size_t count, uint64_t nanoseconds);

pw_error pw_peer_of_rank(pw_node *node, size_t rank, pw_peer *peer);

pw_error pw_identity(pw_node *node, pw_peer *peer);

pw_error pw_owner(const pw_token *token, pw_peer *peer);

pw_error pw_conditional_write(pw_node *node,
                              const pw_peer *peer,
                              uint64_t tag,
                              const void *buffer,
                              size_t length,
                              pw_operation **operation);

pw_error pw_cancel(pw_operation *operation);

pw_error pw_end_after(pw_operation *operation, uint64_t nanoseconds);

pw_error pw_accept_conditional_write(pw_node *node,
                                     const pw_peer *peer,
                                     uint64_t tag,
                                     const pw_token *token,
                                     uint64_t *written,
                                     pw_operation **operation);

pw_error pw_conditional_read(pw_node *node,
                             const pw_peer *peer,
                             uint64_t tag,
                             const pw_token *token,
                             uint64_t *written,
                             pw_operation **operation);

pw_error pw_next_conditional_request(pw_node *node,
                                     uint64_t nanoseconds,
                                     pw_conditional_request_info *opening,
                                     pw_conditional_request **opened);

pw_error pw_conditional_request_accept(pw_conditional_request *opened,
                                       const pw_token *token,
                                       uint64_t *written,
                                       pw_operation **operation);

pw_error pw_conditional_request_supply(pw_conditional_request *opened,
                                       const void *buffer,
                                       size_t length,
                                       pw_operation **operation);

pw_error pw_conditional_request_decline(pw_conditional_request *opened);

pw_error pw_conditional_request_free(pw_conditional_request *opened);

pw_error pw_handler_failed(const char *why);

pw_error pw_log_make(pw_node *node, size_t bytes, size_t sources, uint32_t order, pw_log **log);

pw_error pw_log_free(pw_log *log);

uint32_t pw_log_domain(const pw_log *log);

pw_error pw_set_attributes(pw_node *node,
                           const pw_token *token,
                           uint64_t offset,
                           uint64_t length,
                           uint32_t attributes,
                           pw_log *log);

pw_error pw_log_poll(pw_log *log, size_t most, pw_handler handler, void *context, pw_counts *counts);

pw_error pw_log_serve(pw_log *log, const pw_events *events, pw_handler handler, void *context, pw_serving **serving);

pw_error pw_log_serve_polling(pw_log *log, pw_handler handler, void *context, pw_serving **serving);

pw_error pw_serving_counts(pw_serving *serving, pw_counts *counts);

pw_error pw_serving_end(pw_serving *serving, pw_counts *counts);

pw_error pw_take_faults(pw_node *node, pw_handler handler, void *context, uint64_t *dropped);

pw_error pw_flush_handled(pw_remote *remote, uint32_t domain);

pw_error pw_flush_handled_start(pw_remote *remote, uint32_t domain, pw_operation **operation);

pw_error pw_table_join(pw_node *node, const pw_table_options *options, pw_table **table);

pw_error pw_table_free(pw_table *table);

pw_error pw_table_insert(pw_table *table, uint64_t key, const void *value, size_t length);

pw_error pw_table_insert_batch(pw_table *table, const pw_element *elements, size_t count);

pw_error pw_table_lookup(pw_table *table, uint64_t key, void *value, size_t size, uint64_t *length);

pw_error pw_table_delete(pw_table *table, uint64_t key);

pw_error pw_table_flush(pw_table *table);

pw_error pw_table_resize(pw_table *table, size_t cells);

pw_error pw_table_volume(pw_table *table, pw_volume *volume);

pw_error pw_table_for_each(pw_table *table, pw_element_function each, void *context);

pw_error pw_table_next(pw_table *table,
                       pw_table_cursor *cursor,
                       pw_element_function each,
                       void *context,
                       size_t *count);

pw_error pw_table_clear(pw_table *table);

pw_error pw_table_compare_and_set(pw_table *table,
                                  uint64_t key,
                                  const void *expected,
                                  uint64_t expected_length,
                                  const void *value,
                                  uint64_t length,
                                  int *was_set);

pw_error pw_table_join_durable(pw_node *node,
                               const pw_table_options *options,
                               const pw_durability *durability,
                               pw_table **table);

pw_error pw_table_restart(pw_node *node,
                          const pw_table_options *options,
                          const pw_durability *durability,
                          size_t rank,
                          const pw_volume_ticket *tickets,
                          size_t count,
                          pw_table **table);

pw_error pw_table_ticket(pw_table *table, pw_volume_ticket *ticket);

pw_error pw_table_checkpoint(pw_table *table);

pw_error pw_table_readmit(pw_table *table, size_t rank, const pw_volume_ticket *ticket, uint64_t *unflushed);

pw_error pw_access_statistics_start(pw_node *node,
                                    const pw_token *token,
                                    uint32_t counted,
                                    uint32_t refused,
                                    pw_access_statistics **counting);

pw_error pw_access_statistics_end(pw_access_statistics *counting);

pw_error pw_access_statistics_total(pw_access_statistics *counting, pw_access_counts *counts);

pw_error pw_access_statistics_page(pw_access_statistics *counting, uint64_t page, pw_access_counts *counts);

pw_error pw_access_statistics_reset(pw_access_statistics *counting, pw_access_counts *counts);

pw_error pw_access_statistics_hottest(pw_access_statistics *counting,
                                      pw_numbered_counts *list,
                                      size_t most,
                                      size_t *count);

pw_error pw_access_statistics_sources(pw_access_statistics *counting,
                                      pw_numbered_counts *list,
                                      size_t most,
                                      size_t *count);

pw_error pw_access_statistics_export(pw_access_statistics *counting, pw_token *token);

pw_error pw_source_find(pw_node *node, uint64_t source, pw_source *found);

pw_error pw_checkpoint_open(pw_node *node,
                            const char *path,
                            uint32_t options,
                            const pw_memory *memories,
                            size_t count,
                            pw_checkpoint **checkpoint);

pw_error pw_checkpoint_close(pw_checkpoint *checkpoint);

pw_error pw_checkpoint_numbers(pw_checkpoint *checkpoint, uint64_t *first, uint64_t *last, uint32_t *local_writes);

pw_error pw_checkpoint_save(pw_checkpoint *checkpoint, const void *note, size_t length, pw_saved *saved);

pw_error pw_checkpoint_save_together(pw_checkpoint *checkpoint,
                                     pw_remote *const *remotes,
                                     size_t count,
                                     const void *note,
                                     size_t length,
                                     pw_saved *saved);

pw_error pw_checkpoint_restore(pw_checkpoint *checkpoint,
                               uint64_t number,
                               void *note,
                               size_t size,
                               pw_restored *restored);

pw_error pw_checkpoint_restore_together(pw_checkpoint *checkpoint, void *note, size_t size, pw_restored *restored);

pw_error pw_logged_process_start(pw_node *node,
                                 const char *path,
                                 const pw_logged_process_options *options,
                                 pw_logged_process **process);

pw_error pw_logged_process_end(pw_logged_process *process);

void *pw_logged_process_memory(pw_logged_process *process);

pw_error pw_logged_process_note(pw_logged_process *process, void *note, size_t size, uint64_t *length);

pw_error pw_logged_process_ticket(pw_logged_process *process, size_t peer, pw_ticket *ticket);

pw_error pw_logged_process_connect(pw_logged_process *process, const pw_ticket *ticket);

pw_error pw_logged_process_replay(pw_logged_process *process);

bool pw_logged_process_is_replaying(pw_logged_process *process);

pw_error pw_logged_process_next_epoch(pw_logged_process *process, uint64_t *epoch);

pw_error pw_logged_process_put(pw_logged_process *process,
                               size_t peer,
                               uint64_t offset,
                               const void *data,
                               size_t length);

pw_error pw_logged_process_get(pw_logged_process *process, size_t peer, uint64_t offset, void *data, size_t length);

pw_error pw_logged_process_checkpoint(pw_logged_process *process, const void *note, size_t length, uint64_t *number);

pw_error pw_parity_make(pw_node *node, size_t members, uint64_t length, pw_parity **parity);

pw_error pw_parity_free(pw_parity *parity);

pw_error pw_parity_token(pw_parity *parity, size_t member, pw_token *token);

pw_error pw_parity_round(pw_parity *parity, uint64_t *round);

pw_error pw_parity_join(pw_node *node, const pw_token *token, size_t member, pw_parity_member **joined);

pw_error pw_parity_rebuild(pw_node *node,
                           const pw_token *token,
                           size_t member,
                           const pw_token *others,
                           size_t count,
                           pw_rebuilt *rebuilt,
                           pw_parity_member **joined);

pw_error pw_parity_member_free(pw_parity_member *member);

pw_error pw_parity_member_token(pw_parity_member *member, pw_token *token);

pw_error pw_parity_save(pw_parity_member *member, const pw_memory *memories, size_t count, uint64_t *round);

pw_error pw_parity_restore(pw_parity_member *member, const pw_memory *memories, size_t count, uint64_t *round);

pw_error pw_parity_wait(pw_parity_member *member, uint64_t nanoseconds, uint64_t *round);

pw_error pw_built_ins_serve(pw_node *node, void *address, size_t length, pw_built_ins **built_ins);

pw_error pw_built_ins_end(pw_built_ins *built_ins);

pw_error pw_built_ins_address(pw_built_ins *built_ins, pw_chain_address *address);

pw_error pw_built_ins_begin_area(pw_built_ins *built_ins, uint64_t area, uint64_t first, uint64_t end);

pw_error pw_built_ins_open(pw_node *node, const pw_chain_address *address, pw_remote_built_ins **remote);

pw_error pw_built_ins_close(pw_remote_built_ins *remote);

pw_error pw_built_ins_run(pw_remote_built_ins *remote, const pw_step *steps, size_t count, pw_outcome *outcomes);

pw_error pw_batches_to_memory(pw_node *node, void *address, size_t length, pw_batches **batches);

pw_error pw_batches_redirect(pw_node *node,
                             const pw_token *token,
                             pw_batch_handler handler,
                             void *context,
                             pw_batches **batches);

pw_error pw_batches_end(pw_batches *batches);

pw_error pw_batches_address(pw_batches *batches, pw_batch_address *address);

pw_error pw_batches_counts(pw_batches *batches, pw_batch_counts *counts);

pw_error pw_batch_open(pw_node *node, const pw_batch_address *address, pw_batch **batch);

pw_error pw_batch_close(pw_batch *batch);

pw_error pw_batch_put(pw_batch *batch, uint64_t offset, const void *data, size_t length);

pw_error pw_batch_send(pw_batch *batch);

pw_error pw_batch_wait(pw_batch *batch);

pw_error pw_batch_flush_handled(pw_batch *batch);

size_t pw_batch_unsent(pw_batch *batch);

uint64_t pw_batch_length(pw_batch *batch);
