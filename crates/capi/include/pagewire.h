/*
 * pagewire.h: RDMA on memory that is never pinned, from C: put, get, atomics and signals between processes.
 *
 * Made from crates/capi/src by cbindgen; do not edit it (crates/capi/tests/header.rs).
 *
 * Calls give PW_OK (0) or another pw_error; pw_error_message() then has a sentence, and pw_die() prints it. Offsets and lengths are bytes.
 * Every call may come from any thread, but for those that end an object (leave, close, free): nobody else uses the object then. No call
 * is a cancellation point. A pointer that is named is to be valid for the call, and NULL is an error, unless its comment says otherwise.
 */

#ifndef PAGEWIRE_H
#define PAGEWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The version of this header: major * 65536 + minor * 256 + patch. pw_version() gives that of the library.
 */
#define PW_VERSION 256

/**
 * For pw_error_message_for(): names of calls as C++ has them.
 */
#define PW_CPP 1

/**
 * For pw_error_message_for(): names of calls as Python has them.
 */
#define PW_PYTHON 2

/**
 * Who has the token may get.
 */
#define PW_READ 1

/**
 * Who has the token may put.
 */
#define PW_WRITE 2

/**
 * Who has the token may use atomics, and signals that are added to.
 */
#define PW_ATOMIC 4

/**
 * Bytes of a token.
 */
#define PW_TOKEN_SIZE 56

/**
 * Peers may read the file.
 */
#define PW_FILE_READ_ONLY 0

/**
 * Peers may read and write the file.
 */
#define PW_FILE_WRITABLE 1

/**
 * The colour of a process that is in no part.
 */
#define PW_NO_PART UINT64_MAX

/**
 * A signal is set to its value.
 */
#define PW_SET 0

/**
 * The value is added to a signal, as an atomic.
 */
#define PW_ADD 1

/**
 * The word is the value.
 */
#define PW_EQUAL 0

/**
 * The word is not the value.
 */
#define PW_NOT_EQUAL 1

/**
 * The word is the value or more.
 */
#define PW_AT_LEAST 2

/**
 * The word is the value or less.
 */
#define PW_AT_MOST 3

/**
 * The word is more than the value.
 */
#define PW_GREATER 4

/**
 * The word is less than the value.
 */
#define PW_LESS 5

/**
 * A time without a bound.
 */
#define PW_FOREVER UINT64_MAX

/**
 * Bytes of a peer.
 */
#define PW_PEER_SIZE 56

/**
 * The data are the peer's: release them.
 */
#define PW_CONDITIONAL_WRITE 0

/**
 * The peer waits for data of this process: write them.
 */
#define PW_CONDITIONAL_READ 1

/**
 * It writes: a put, or a part of one.
 */
#define PW_ACCESS_PUT 1

/**
 * It reads.
 */
#define PW_ACCESS_GET 2

/**
 * It adds to a word. Its data are what it adds.
 */
#define PW_ACCESS_FETCH_ADD 3

/**
 * It changes a word that is as expected. Its data are two words: what it expects, and the new one.
 */
#define PW_ACCESS_COMPARE_SWAP 4

/**
 * The message begins with this record.
 */
#define PW_FIRST 1

/**
 * The message ends with this record.
 */
#define PW_LAST 2

/**
 * The caller got an error, and nothing moved.
 */
#define PW_REFUSED 4

/**
 * Its bytes are in the record, and not in memory.
 */
#define PW_REDIRECTED 8

/**
 * Nobody knows whether it was made: its source has died in its midst, or takes too long.
 */
#define PW_MAY_HAVE_WRITTEN 16

/**
 * A get that was logged before: its answer was lost or late, so it was executed once more.
 */
#define PW_REPEATED 32

/**
 * A record whose access began after another one had ended is never handled before it, whoever made them.
 */
#define PW_ORDERED 0

/**
 * Only the records of one source are in order.
 */
#define PW_UNORDERED 1

/**
 * Puts go to the log with their data, and not to memory.
 */
#define PW_REDIRECT_PUTS 1

/**
 * Puts and atomics are refused: the caller gets PW_KEY, and nothing moves.
 */
#define PW_REFUSE_PUTS 2

/**
 * Gets and atomics are refused.
 */
#define PW_REFUSE_GETS 4

/**
 * Puts and atomics are logged, without data.
 */
#define PW_LOG_PUTS 8

/**
 * Puts and atomics are logged with what they write, or their operands.
 */
#define PW_LOG_PUT_DATA 16

/**
 * Gets are logged, without data.
 */
#define PW_LOG_GETS 32

/**
 * Gets are logged with what they return.
 */
#define PW_LOG_GET_DATA 64

/**
 * To the last byte of the token.
 */
#define PW_TO_END UINT64_MAX

/**
 * All logs of a peer (pw_flush_handled).
 */
#define PW_ALL_DOMAINS UINT32_MAX

/**
 * The caller changes a volume that it has mapped, which is its own or one of a process of its host; else the owner's handler does.
 */
#define PW_NEAREST 0

/**
 * The owner's handler changes it, whatever is mapped: one put an element.
 */
#define PW_BY_HANDLER 1

/**
 * The caller changes it by gets, puts and atomics, whatever is mapped.
 */
#define PW_BY_OPERATIONS 2

/**
 * What pw_table_lookup() says where there is no value.
 */
#define PW_ABSENT UINT64_MAX

/**
 * Bytes of a ticket of a hash table.
 */
#define PW_TABLE_TICKET_SIZE 136

/**
 * Puts and atomics are counted.
 */
#define PW_COUNT_PUTS 1

/**
 * Gets are counted.
 */
#define PW_COUNT_GETS 2

/**
 * The source is a node: peer names it.
 */
#define PW_SOURCE_NODE 1

/**
 * The source is a queue pair of the verbs: gid and queue_pair name it.
 */
#define PW_SOURCE_QUEUE_PAIR 2

/**
 * The source belongs to no job, or to another one.
 */
#define PW_NO_RANK UINT64_MAX

/**
 * A checkpoint is on the disk when it is saved.
 */
#define PW_SYNC 0

/**
 * It survives the process, but not the machine.
 */
#define PW_NO_SYNC 1

/**
 * Each checkpoint is a full copy: the kernel does not say what this process writes.
 */
#define PW_FULL_COPIES 0

/**
 * By soft-dirty bits. No thread of this process may write during a save: the next one could miss it.
 */
#define PW_SOFT_DIRTY 1

/**
 * By asynchronous write protection.
 */
#define PW_WRITE_PROTECT 2

/**
 * Bytes of a ticket.
 */
#define PW_TICKET_SIZE 232

/**
 * Adds `add` to a word of 8 bytes. Its word is what that was.
 */
#define PW_STEP_FETCH_ADD 1

/**
 * Puts `data` in the place of `compare`, if that is there: 1 to 32 bytes. Found: what was there.
 */
#define PW_STEP_COMPARE_SWAP 2

/**
 * Reads. Found: what is there.
 */
#define PW_STEP_READ 3

/**
 * Writes `data`.
 */
#define PW_STEP_WRITE 4

/**
 * Changes bytes to their XOR with `data`. Found: what they were.
 */
#define PW_STEP_XOR 5

/**
 * Takes space in the area at `at` (pw_built_ins_begin_area), and writes `data` there. Its word is their offset, a multiple of 8.
 */
#define PW_STEP_APPEND 6

/**
 * The step works at the offset `at`.
 */
#define PW_PLACE_AT 0

/**
 * It works `by` bytes behind the offset that the word at `at` has: a pointer.
 */
#define PW_PLACE_BEHIND 1

/**
 * It works `by` bytes behind the offset that the step with the number `at` has found. The first one has the number 0.
 */
#define PW_PLACE_FOUND 2

/**
 * Bytes that a compare-swap has at most.
 */
#define PW_MOST_COMPARED 32

/**
 * Bytes that all steps of a chain move at most.
 */
#define PW_MOST_MOVED 32768

/**
 * Bytes of an address of built-in handlers.
 */
#define PW_CHAIN_ADDRESS_SIZE 114

/**
 * Bytes of a put of a batch at most. A longer one is an ordinary put.
 */
#define PW_MOST_BATCHED 31984

/**
 * Bytes of an address of batches.
 */
#define PW_BATCH_ADDRESS_SIZE 66

/**
 * What a call gives: 0, or why it was refused. pw_error_message() says more.
 */
typedef enum {
    /**
     * It was done.
     */
    PW_OK = 0,
    /**
     * The operation has not ended (pw_test), or one of the job that must end first (pw_barrier_for).
     */
    PW_UNFINISHED = 1,
    /**
     * An argument is NULL, or cannot be.
     */
    PW_ARGUMENT = 2,
    /**
     * The pointer is no such object, or the object was freed.
     */
    PW_HANDLE = 3,
    /**
     * The program was compiled with a header that the library does not serve.
     */
    PW_VERSION_MISMATCH = 4,
    /**
     * The bytes are not inside the memory that the token names.
     */
    PW_BOUNDS = 5,
    /**
     * The token does not give the right.
     */
    PW_RIGHTS = 6,
    /**
     * Atomics and signals need offsets and addresses that are multiples of 8; atomics of 4 bytes, of 4.
     */
    PW_ALIGNMENT = 7,
    /**
     * The pieces and the buffer have different lengths.
     */
    PW_PIECES = 8,
    /**
     * One operation moves at most 2 GiB.
     */
    PW_LENGTH = 9,
    /**
     * The owner does not know the key: the memory was unexported or freed. Or its pages refuse such accesses (pw_set_attributes).
     */
    PW_KEY = 10,
    /**
     * The memory was unmapped, protected or truncated at its owner.
     */
    PW_MEMORY = 11,
    /**
     * The caller's own buffer cannot be accessed.
     */
    PW_BUFFER = 12,
    /**
     * The peer is gone. Whether the operation was done is not known.
     */
    PW_PEER_LOST = 13,
    /**
     * The engine gave up for a reason that should not occur.
     */
    PW_UNEXPECTED = 14,
    /**
     * The job could not be joined, or one of its processes is lost.
     */
    PW_JOB = 15,
    /**
     * The bytes are no token.
     */
    PW_TOKEN = 16,
    /**
     * The node that a token names cannot be connected to.
     */
    PW_CONNECT = 17,
    /**
     * What was waited for did not happen in time.
     */
    PW_TIMEOUT = 18,
    /**
     * A documented bound is reached.
     */
    PW_LIMIT = 19,
    /**
     * The engine refused.
     */
    PW_ENGINE = 20,
    /**
     * The operating system refused.
     */
    PW_SYSTEM = 21,
    /**
     * This process was forked from the one that has the object. Each call on an object of the parent ends at once with it, and does
     * nothing; so do those that free. A forked child makes a node of its own by pw_node_alone().
     */
    PW_FORKED = 22,
    /**
     * There is no memory.
     */
    PW_NO_MEMORY = 23,
    /**
     * The registered heap refused.
     */
    PW_HEAP = 24,
    /**
     * A variable of the environment has a value that cannot be.
     */
    PW_ENVIRONMENT = 25,
    /**
     * A defect of Pagewire.
     */
    PW_DEFECT = 26,
    /**
     * A conditional write was cancelled, and wrote nothing.
     */
    PW_CANCELLED = 27,
    /**
     * The peer does not want it, or has no space for it.
     */
    PW_DECLINED = 28,
    /**
     * The tag is in use with this peer.
     */
    PW_TAG = 29,
    /**
     * The token of a release does not take the write.
     */
    PW_RELEASE = 30,
    /**
     * A handler of the same log cannot make this call.
     */
    PW_IN_HANDLER = 31,
    /**
     * Something else uses it still, or has it open.
     */
    PW_IN_USE = 32,
    /**
     * The file is none of this kind and version, or is damaged.
     */
    PW_FILE = 33,
    /**
     * A process that is replayed does something else than before, or in another order, or a log has lost what it needs.
     */
    PW_REPLAY = 34,
    /**
     * The members of a parity have no round that is complete and whole, or one was begun anew.
     */
    PW_PARITY = 35,
    /**
     * Of pagewire_experimental.h. The stream has an end: the peer has closed it, this side sends no more, or a part is missing.
     */
    PW_STREAM = 36,
    /**
     * Of pagewire_experimental.h. Another transaction has won, and nothing of this one was done: start it again.
     */
    PW_CONFLICT = 37,
    /**
     * Of pagewire_experimental.h. The store that decides was lost: all of the transaction is done, or nothing.
     */
    PW_UNDECIDED = 38,
} pw_error;

/**
 * Counts what peers do by a token.
 */
typedef struct pw_access_statistics pw_access_statistics;

/**
 * Puts to one owner that are collected.
 */
typedef struct pw_batch pw_batch;

/**
 * Memory of this process to which others put in batches.
 */
typedef struct pw_batches pw_batches;

/**
 * Memory of this process on which others run chains.
 */
typedef struct pw_built_ins pw_built_ins;

/**
 * Checkpoints of memory of this process, in a file.
 */
typedef struct pw_checkpoint pw_checkpoint;

/**
 * What a peer has opened.
 */
typedef struct pw_conditional_request pw_conditional_request;

/**
 * What peers did to pages that name it.
 */
typedef struct pw_log pw_log;

/**
 * A process of several, each of which has memory that the others put to and get from, and any one of which may die.
 *
 * Its program must repeat its work when it begins again from a checkpoint: what it does depends on its memory, its note and what it gets, and on nothing else.
 * It reads what others put only behind pw_logged_process_next_epoch(). Calls of several threads wait for each other.
 */
typedef struct pw_logged_process pw_logged_process;

/**
 * A file whose pages peers access.
 */
typedef struct pw_mapped_file pw_mapped_file;

/**
 * This process as others of its job see it.
 */
typedef struct pw_node pw_node;

/**
 * An operation that was started.
 */
typedef struct pw_operation pw_operation;

/**
 * The parity of the checkpoints of several processes.
 */
typedef struct pw_parity pw_parity;

/**
 * One of those processes, whose checkpoints lie in its own memory and in the parity.
 */
typedef struct pw_parity_member pw_parity_member;

/**
 * Some processes of a job, as one of them sees it.
 */
typedef struct pw_part pw_part;

/**
 * Exported memory of a process, opened by its token. Offsets are bytes from its first one.
 */
typedef struct pw_remote pw_remote;

/**
 * Memory of another process, or of this one, on which chains can be run.
 */
typedef struct pw_remote_built_ins pw_remote_built_ins;

/**
 * A thread that serves a log.
 */
typedef struct pw_serving pw_serving;

/**
 * A hash table from keys of 8 bytes, which are not 0, to values of any size up to 128 MiB less one byte. Each process of a job has a part of it, its
 * volume; the hash of a key says in whose volume it is.
 */
typedef struct pw_table pw_table;

/**
 * Names exported memory. It is plain bytes: send them by any means. Who holds them can open it.
 */
typedef struct {
    /**
     * Opaque.
     */
    uint8_t bytes[PW_TOKEN_SIZE];
} pw_token;

/**
 * Bytes of the registered heap, as they were at about one moment.
 */
typedef struct {
    /**
     * In objects.
     */
    uint64_t live;
    /**
     * In pages that hold objects, or that are kept at hand for the next ones.
     */
    uint64_t in_use;
    /**
     * The most that was ever in use.
     */
    uint64_t peak;
    /**
     * That have memory.
     */
    uint64_t resident;
    /**
     * Addresses of the heap, all of which are registered.
     */
    uint64_t registered;
    /**
     * Freed, and not given back to the system yet.
     */
    uint64_t freed;
} pw_heap_usage;

/**
 * A word of 8 bytes that is changed behind a put.
 */
typedef struct {
    /**
     * Of the word, in bytes: a multiple of 8.
     */
    uint64_t offset;
    /**
     * What it is set to, or what is added.
     */
    uint64_t value;
    /**
     * PW_SET, which needs PW_WRITE, or PW_ADD, which needs PW_ATOMIC.
     */
    uint32_t change;
} pw_signal;

/**
 * Bytes of a remote that come from or go to one place of a buffer.
 */
typedef struct {
    /**
     * Of its first byte, in bytes.
     */
    uint64_t offset;
    /**
     * In bytes.
     */
    size_t length;
} pw_piece;

/**
 * What a word of this process is to be, for waits for several.
 */
typedef struct {
    /**
     * The word, aligned to 8 bytes. NULL: the wish is passed over.
     */
    uint64_t *word;
    /**
     * What it is compared with.
     */
    uint64_t value;
    /**
     * Gets the word as the wait saw it last.
     */
    uint64_t seen;
    /**
     * PW_EQUAL, PW_NOT_EQUAL, PW_GREATER, PW_AT_LEAST, PW_LESS or PW_AT_MOST.
     */
    uint32_t wish;
} pw_signal_wish;

/**
 * Names the node of a process. It is plain bytes: send them by any means.
 */
typedef struct {
    /**
     * Opaque.
     */
    uint8_t bytes[PW_PEER_SIZE];
} pw_peer;

/**
 * What there is to know of what a peer has opened.
 */
typedef struct {
    /**
     * Who has opened it.
     */
    pw_peer peer;
    /**
     * Couples it with its answer.
     */
    uint64_t tag;
    /**
     * In bytes: of the peer's data, or space for so many.
     */
    uint64_t length;
    /**
     * PW_CONDITIONAL_WRITE or PW_CONDITIONAL_READ.
     */
    uint32_t direction;
} pw_conditional_request_info;

/**
 * An access of a peer, or a part of one: a long access is several records with the same message.
 */
typedef struct {
    /**
     * What was written or returned, or the operands of an atomic, 8 bytes each. NULL: data are not logged, or there are none.
     */
    const void *data;
    /**
     * Of the data, in bytes.
     */
    size_t data_length;
    /**
     * First byte, in this process.
     */
    void *address;
    /**
     * Bytes that were accessed.
     */
    uint64_t length;
    /**
     * Who accesses: a number that no other source of the log has at the same time. pw_source_find() names the peer.
     */
    uint64_t source;
    /**
     * When it began, in nanoseconds of the clock CLOCK_MONOTONIC.
     */
    uint64_t stamp;
    /**
     * PW_ACCESS_PUT, PW_ACCESS_GET, PW_ACCESS_FETCH_ADD or PW_ACCESS_COMPARE_SWAP.
     */
    uint32_t operation;
    /**
     * PW_FIRST, PW_LAST, PW_REFUSED, PW_REDIRECTED, PW_MAY_HAVE_WRITTEN, PW_REPEATED, by OR.
     */
    uint32_t flags;
    /**
     * All records of one message have this number, and the next message of the source has another one.
     */
    uint32_t message;
    /**
     * The key of the token by which it was made.
     */
    uint32_t key;
    /**
     * The user domain of the pages.
     */
    uint32_t domain;
} pw_access;

/**
 * A function that handles accesses. context is what was given along with it. The access is valid until it returns.
 *
 * It may call the library: put, get, flush, atomics. While it waits, its log goes on being read, as far as four times its bytes. Two owners whose handlers
 * wait for each other get PW_PEER_LOST after 10 seconds. Operations of one node to one peer are in order, but for pw_flush_handled(): nothing that is
 * started later waits behind it. An exception of C++, longjmp(3) and pthread_exit(3) must not leave it, as they would end the process;
 * pagewire.hpp catches exceptions.
 */
typedef void (*pw_handler)(void *context, const pw_access *access);

/**
 * What was done with a log.
 */
typedef struct {
    /**
     * Records that the handler was called with.
     */
    uint64_t handled;
    /**
     * Of these: the handler has failed (pw_handler_failed).
     */
    uint64_t failed;
} pw_counts;

/**
 * When a thread that sleeps is woken: what comes first. A source that has less than a quarter of its space left wakes it, too, and so does a flush of handlers.
 */
typedef struct {
    /**
     * A source has so many records, 1 or more.
     */
    uint64_t threshold;
    /**
     * So many nanoseconds have passed, 1 or more.
     */
    uint64_t interval;
} pw_events;

/**
 * How large the volume of this process is, and how it changes others. Others may have other sizes. It grows when it is full.
 */
typedef struct {
    /**
     * Cells, 1 or more. With as many elements as cells about a third of them collide.
     */
    size_t cells;
    /**
     * Cells for elements that collide. 0: as many as cells.
     */
    size_t spare;
    /**
     * Bytes for values of more than 7 bytes. 0: 64 for each cell.
     */
    size_t value_bytes;
    /**
     * PW_NEAREST, PW_BY_HANDLER or PW_BY_OPERATIONS.
     */
    uint32_t scheme;
} pw_table_options;

/**
 * An element of a batch.
 */
typedef struct {
    /**
     * Not 0.
     */
    uint64_t key;
    /**
     * NULL if it has no bytes.
     */
    const void *value;
    /**
     * Bytes of the value.
     */
    size_t length;
} pw_element;

/**
 * What the volume of a process has.
 */
typedef struct {
    /**
     * Elements, each with its own key.
     */
    uint64_t elements;
    /**
     * Cells of the table.
     */
    uint64_t cells;
    /**
     * Cells of chains that are taken.
     */
    uint64_t spare_taken;
    /**
     * How often it has grown.
     */
    uint64_t resizes;
    /**
     * Messages of other processes that were none. They were not executed.
     */
    uint64_t malformed;
    /**
     * Checkpoints of it since this process has it: of a durable table.
     */
    uint64_t checkpoints;
} pw_volume;

/**
 * What a loop hands the elements of a table to. The element and its bytes are good until it returns. It may call everything but pw_table_free() for the
 * table. Another value than 0 ends the loop.
 */
typedef int (*pw_element_function)(void *context, const pw_element *element);

/**
 * Where a loop over the elements of a table is. All 0: at the beginning.
 */
typedef struct {
    /**
     * The rank of the process whose elements come next.
     */
    size_t rank;
    /**
     * The hash of the key from which on they come.
     */
    uint64_t hash;
} pw_table_cursor;

/**
 * Where the volumes of a table lie when their processes do not run.
 */
typedef struct {
    /**
     * The folder of the files, which is made if there is none. Each process of a host names the same one.
     */
    const char *folder;
    /**
     * Bytes that the logs of one process to one volume take before the owner of the volume makes a checkpoint. 0: 64 MiB.
     */
    uint64_t log_bytes;
    /**
     * PW_SYNC: a checkpoint is on the disk when its call returns. PW_NO_SYNC: it outlives processes, and not the machine.
     */
    uint32_t checkpoints;
} pw_durability;

/**
 * Where the volume of a process is: plain bytes, to be sent by any means.
 */
typedef struct {
    /**
     * Opaque.
     */
    uint8_t bytes[PW_TABLE_TICKET_SIZE];
} pw_volume_ticket;

/**
 * What was counted of a page, of a source, or of all.
 */
typedef struct {
    /**
     * Puts that reached memory.
     */
    uint64_t puts;
    /**
     * Gets that were answered.
     */
    uint64_t gets;
    /**
     * Atomics that were executed.
     */
    uint64_t atomics;
    /**
     * Bytes of these puts and atomics.
     */
    uint64_t bytes_in;
    /**
     * Bytes of these gets.
     */
    uint64_t bytes_out;
    /**
     * Puts and atomics that were refused.
     */
    uint64_t refused_puts;
    /**
     * Gets that were refused.
     */
    uint64_t refused_gets;
    /**
     * Of the puts: nobody knows whether they were made, as their source has died in their midst.
     */
    uint64_t unsure;
} pw_access_counts;

/**
 * What was counted of a page or of a source.
 */
typedef struct {
    /**
     * Of the page, from 0 on; or of the source, as in pw_access.
     */
    uint64_t number;
    /**
     * What was counted.
     */
    pw_access_counts counts;
} pw_numbered_counts;

/**
 * Who made an access.
 */
typedef struct {
    /**
     * The node. Zeros if the source is none.
     */
    pw_peer peer;
    /**
     * The GID of the port of a queue pair. Zeros if the source is none.
     */
    uint8_t gid[16];
    /**
     * The rank in the job of this node, or PW_NO_RANK.
     */
    uint64_t rank;
    /**
     * The number of the queue pair at its port. 0 if the source is none.
     */
    uint32_t queue_pair;
    /**
     * PW_SOURCE_NODE or PW_SOURCE_QUEUE_PAIR.
     */
    uint32_t kind;
} pw_source;

/**
 * Memory that is saved and restored.
 */
typedef struct {
    /**
     * Its first byte.
     */
    void *address;
    /**
     * Bytes of it.
     */
    size_t length;
    /**
     * Of exactly these bytes, by pw_export(): what peers write by it is saved. The checkpoint sets the attributes of its pages. NULL: no peer writes them.
     */
    const pw_token *token;
} pw_memory;

/**
 * What was saved.
 */
typedef struct {
    /**
     * The number of the checkpoint, from 1 on: one more than that of the one before.
     */
    uint64_t number;
    /**
     * Pages of data in it.
     */
    uint64_t pages;
    /**
     * Whether it has all pages, and not only what has changed.
     */
    bool is_full;
} pw_saved;

/**
 * What was restored.
 */
typedef struct {
    /**
     * The number of the checkpoint. 0: there is none, and nothing was changed.
     */
    uint64_t number;
    /**
     * Bytes of the note that was saved with it.
     */
    uint64_t note_length;
} pw_restored;

/**
 * How a process begins.
 */
typedef struct {
    /**
     * Its number, less than size.
     */
    size_t rank;
    /**
     * Processes, 4096 at most.
     */
    size_t size;
    /**
     * Bytes of its memory.
     */
    size_t bytes;
    /**
     * Bytes of each log: of puts to each other process, and of gets of it, between two of its checkpoints. 0: 1 MiB.
     */
    size_t log_bytes;
    /**
     * PW_SYNC or PW_NO_SYNC.
     */
    uint32_t checkpoints;
} pw_logged_process_options;

/**
 * What one process gives another one, so that it may put to it and get from it: plain bytes, to be sent by any means. It is for one process only.
 */
typedef struct {
    /**
     * Opaque.
     */
    uint8_t bytes[PW_TICKET_SIZE];
} pw_ticket;

/**
 * What was rebuilt.
 */
typedef struct {
    /**
     * The round of the checkpoint, which all members have.
     */
    uint64_t round;
    /**
     * Bytes of it.
     */
    uint64_t length;
} pw_rebuilt;

/**
 * By which others run chains: plain bytes, to be sent by any means. Who holds them may run any chain.
 */
typedef struct {
    /**
     * Opaque.
     */
    uint8_t bytes[PW_CHAIN_ADDRESS_SIZE];
} pw_chain_address;

/**
 * A step of a chain. What it does not need is 0 or NULL, as designated initializers leave it.
 */
typedef struct {
    /**
     * PW_STEP_FETCH_ADD and its like.
     */
    uint32_t action;
    /**
     * PW_PLACE_AT, PW_PLACE_BEHIND or PW_PLACE_FOUND.
     */
    uint32_t place;
    /**
     * Where it works, in bytes from the beginning of the memory; else as `place` says.
     */
    uint64_t at;
    /**
     * Bytes to go on from there.
     */
    uint64_t by;
    /**
     * What is added.
     */
    uint64_t add;
    /**
     * What is written, swapped in, XORed or appended: length bytes.
     */
    const void *data;
    /**
     * The bits of a compare-swap that are changed. NULL: all.
     */
    const void *data_mask;
    /**
     * What a compare-swap compares with: length bytes.
     */
    const void *compare;
    /**
     * The bits that it compares. NULL: all.
     */
    const void *compare_mask;
    /**
     * Bytes of the step.
     */
    size_t length;
    /**
     * Gets the length bytes that were found. NULL: nobody asks.
     */
    void *found;
    /**
     * It runs only if all compare-swaps before it have swapped.
     */
    bool if_swapped;
} pw_step;

/**
 * What became of a step.
 */
typedef struct {
    /**
     * Of a fetch-add: what the word was. Of an append: the offset of what was appended.
     */
    uint64_t word;
    /**
     * Whether it was run.
     */
    bool was_run;
    /**
     * Of a compare-swap: whether it has swapped.
     */
    bool swapped;
} pw_outcome;

/**
 * A put, as a handler gets it: one of a batch, or a single one. A single one of more than 64 KiB comes in parts.
 */
typedef struct {
    /**
     * What it writes.
     */
    const void *data;
    /**
     * Bytes of it.
     */
    size_t length;
    /**
     * Where it goes to, in bytes from the beginning of the memory. It lies inside.
     */
    uint64_t offset;
    /**
     * Where it goes to in this process. memcpy(address, data, length) has it reach memory.
     */
    void *address;
    /**
     * Who puts: as in pw_access.
     */
    uint64_t source;
} pw_batched_put;

/**
 * A function that handles puts of batches. context is what was given along with it. The put is valid until it returns.
 *
 * It may do what a pw_handler may, and says by pw_handler_failed() that it has failed: the put counts as failed, and the next one is handled.
 */
typedef void (*pw_batch_handler)(void *context, const pw_batched_put *put);

/**
 * By which others put in batches: plain bytes, to be sent by any means. Who holds them may put.
 */
typedef struct {
    /**
     * Opaque.
     */
    uint8_t bytes[PW_BATCH_ADDRESS_SIZE];
} pw_batch_address;

/**
 * What has come in batches.
 */
typedef struct {
    /**
     * Messages.
     */
    uint64_t messages;
    /**
     * Puts in them.
     */
    uint64_t puts;
    /**
     * Messages that were refused: they were none, or had a put outside of the memory. Nothing of them was done.
     */
    uint64_t malformed;
    /**
     * Puts that were not done, those of batches and single ones: the handler has failed, or the memory cannot be accessed.
     */
    uint64_t failed;
} pw_batch_counts;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library: major * 65536 + minor * 256 + patch.
 */
uint32_t pw_version(void);

/**
 * The version of the library as text. It is static.
 */
const char *pw_version_text(void);

/**
 * The last refusal of a call of this thread, in a sentence: what was refused, by which side, by which rule. Empty: nothing was refused.
 * It is valid until the next call of this thread that is refused.
 */
const char *pw_error_message(void);

/**
 * As pw_error_message(), with the names of calls that another language has for them: PW_CPP or PW_PYTHON. It is for the packages of these languages.
 */
const char *pw_error_message_for(uint32_t language);

/**
 * The name of a code, as "PW_BOUNDS". It is static. A number that is no code: "unknown".
 */
const char *pw_error_name(int32_t code);

/**
 * Prints "what: " and the last sentence to the standard error output, and ends the process with status 1. what: may be NULL.
 */
void pw_die(const char *what);

/**
 * pw_node_from_env() for other languages: header is the PW_VERSION that the caller was written for.
 */
pw_error pw_node_from_env_for(uint32_t header, pw_node **node);

/**
 * pw_node_alone() for other languages: header is the PW_VERSION that the caller was written for.
 */
pw_error pw_node_alone_for(uint32_t header, pw_node **node);

/**
 * Leaves the job. All exports of the node end; when it returns, no access by their tokens is under way. What was started and has not ended
 * fails with PW_PEER_LOST. The pointer is not valid any more; remotes of the node are to be closed all the same.
 *
 * PW_IN_USE: an application of it is open, as a mapped file, a hash table, access statistics, a checkpoint, a logged process, built-in handlers, batches, a parity, a member
 * of one, a part of the job, a global memory, a listener, a stream, a store or a client of stores: free that before.
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_node_leave(pw_node *node);

/**
 * The number of this process in its job, from 0 on. 0 too if the node is none: pw_error_message() says so.
 */
size_t pw_rank(const pw_node *node);

/**
 * Processes of the job, 1 or more. 0: the node is none, and pw_error_message() says so.
 */
size_t pw_size(const pw_node *node);

/**
 * Waits until all processes of the job have called it, for PAGEWIRE_JOB_TIMEOUT seconds at most (300 by default). What was started may
 * still be under way: see pw_flush().
 *
 * PW_JOB.
 */
pw_error pw_barrier(pw_node *node);

/**
 * pw_barrier() for so many nanoseconds at most, or PW_FOREVER. 0 begins it, and looks.
 *
 * PW_TIMEOUT: the barrier stays begun; for the other processes this one has come. The next pw_barrier() or pw_barrier_for() of this process is no new
 * barrier, but waits on for this one. Until it has ended, each other call of the job gives PW_UNFINISHED and does nothing. PAGEWIRE_JOB_TIMEOUT counts
 * from the beginning of the barrier, and ends it and the job. PW_JOB; PW_UNFINISHED: an all-gather is under way that was late.
 */
pw_error pw_barrier_for(pw_node *node,
                        uint64_t nanoseconds);

/**
 * Gives size bytes to all processes of the job, and takes theirs: all gets size bytes of each, by rank. All processes call it with the same
 * size. It is for tokens and the like, not for bulk data.
 *
 * mine: size bytes. all: size * pw_size(node) bytes. PW_JOB: a process is lost, or gave another count of bytes.
 */
pw_error pw_all_gather(pw_node *node,
                       const void *mine,
                       size_t size,
                       void *all);

/**
 * pw_all_gather() for so many nanoseconds at most, or PW_FOREVER.
 *
 * PW_TIMEOUT: it stays begun, as pw_barrier_for() says, and is continued by a call with the same bytes. As pw_all_gather().
 */
pw_error pw_all_gather_for(pw_node *node,
                           const void *mine,
                           size_t size,
                           void *all,
                           uint64_t nanoseconds);

/**
 * A descriptor that poll(2), select(2) or epoll(7) reports as readable while something of the node is ready: an operation, a conditional write or a release that
 * ended after this call and whose result was not taken, or something that a peer has opened. Read nothing from it, and do not close it: pw_wait(), pw_test(),
 * pw_wait_any() and pw_wait() of what that names, and pw_next_conditional_request() take what is ready, and make it unreadable. Signals are not among that, as peers
 * write them without any notice. It is valid until pw_node_leave().
 *
 * descriptor: gets it, the same one each time. PW_SYSTEM: there is no descriptor left. PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_node_descriptor(pw_node *node,
                            int *descriptor);

/**
 * Gives size bytes of the process root to all. All processes call it with the same root and size.
 *
 * data: size bytes, which are read at root and written elsewhere. PW_JOB: a process is lost, or root gave another count of bytes;
 * PW_ARGUMENT: there is no process root.
 */
pw_error pw_broadcast(pw_node *node,
                      size_t root,
                      void *data,
                      size_t size);

/**
 * Waits until everything that was started by this node before has ended, at all peers.
 *
 * The first failure since the last flush of an operation whose result nobody asked for.
 */
pw_error pw_flush_all(pw_node *node);

/**
 * Writes the path to the owner of a token, and why it is no better one, as a string to text. What is longer than size bytes is cut.
 *
 * As pw_open().
 */
pw_error pw_explain(pw_node *node,
                    const pw_token *token,
                    char *text,
                    size_t size);

/**
 * Makes a token for length bytes at address, any memory of this process, in constant time. rights: PW_READ, PW_WRITE, PW_ATOMIC, by OR.
 *
 * Peers access the bytes at any time until pw_unexport() or pw_node_leave() has returned; whoever reads them here meanwhile uses atomics
 * or signals. Freeing an object of pw_malloc() and its like ends its exports. Other memory that is unmapped gives peers PW_MEMORY.
 *
 * PW_ARGUMENT; PW_ENGINE: the bytes cannot be exported, or there are too many exports; PW_HEAP; PW_FORKED.
 */
pw_error pw_export(pw_node *node,
                   void *address,
                   size_t length,
                   uint32_t rights,
                   pw_token *token);

/**
 * Ends what a token gives. When it returns, no access by the token is under way, and none will come.
 *
 * PW_TOKEN; PW_ENGINE: the token is of another node or was unexported before, or a stopped peer is within an access.
 */
pw_error pw_unexport(pw_node *node, const pw_token *token);

/**
 * Memory of size bytes in the registered heap, aligned to 16 bytes, not initialised. Peers of this host put and get there by plain copies once
 * it is exported. It needs no node. The first call makes the heap and starts the engine.
 *
 * NULL, errno is ENOMEM: pw_error_message() says why.
 */
void *pw_malloc(size_t size);

/**
 * Memory for count objects of size bytes, all zero. As pw_malloc().
 */
void *pw_calloc(size_t count, size_t size);

/**
 * Memory of size bytes at a multiple of alignment, a power of two of at most 1 GiB. As pw_malloc().
 */
void *pw_aligned_alloc(size_t alignment, size_t size);

/**
 * Gives an object another size in bytes. It may move; then what is exported of it ends. pointer: NULL, or of pw_malloc() and its like.
 *
 * NULL, errno is ENOMEM: the object is as it was, and pw_error_message() says why.
 */
void *pw_realloc(void *pointer,
                 size_t size);

/**
 * Frees an object of pw_malloc() and its like. What is exported of it ends first: when it returns, no access by its tokens is under way.
 * NULL: nothing is done. As for free(3), a pointer that was freed before, or that does not begin an object, is not noticed, and harms the heap.
 *
 * PW_ARGUMENT: the pointer is not in the heap. PW_ENGINE: a stopped peer is within an access, and the object stays.
 */
pw_error pw_free(void *pointer);

/**
 * Whether an address is in the registered heap, so that peers of this host can reach it by plain copies once it is exported.
 */
bool pw_is_registered(const void *address);

/**
 * How much memory the registered heap has.
 *
 * PW_HEAP: the heap cannot be made, or is the parent's.
 */
pw_error pw_heap_statistics(pw_heap_usage *statistics);

/**
 * Says how many bytes of freed memory of the heap stay resident, for the next objects: 64 MiB unless it was said. What is more goes back to the
 * system about a second after it was freed. UINT64_MAX: all stays.
 *
 * PW_HEAP: the heap cannot be made.
 */
pw_error pw_heap_retain(uint64_t bytes);

/**
 * Gives all freed memory of the heap back to the system, and what is kept at hand for the calling thread.
 *
 * PW_HEAP: the heap cannot be made, or is the parent's.
 */
pw_error pw_heap_purge(void);

/**
 * Maps a file, of any size: nothing is read in, pages come when peers access them, and what peers write goes to the file. *file is NULL after an error. The
 * node stays until pw_mapped_file_close().
 *
 * mode: PW_FILE_READ_ONLY or PW_FILE_WRITABLE. length: PW_TO_END for as many bytes as the file has; else of a writable one: the file is made if there is none,
 * and has so many bytes then. Others may change the file at any time, and peers then read the new bytes. An access behind the new end of a file that was
 * truncated gives its caller PW_MEMORY or PW_KEY.
 *
 * PW_ARGUMENT; PW_SYSTEM: the file cannot be opened, made that long or mapped, or is no regular file.
 */
pw_error pw_map_file(pw_node *node,
                     const char *path,
                     uint32_t mode,
                     uint64_t length,
                     pw_mapped_file **file);

/**
 * Bytes of a mapped file: as many as it had when it was mapped. 0 too if the pointer is none: pw_error_message() says so.
 */
uint64_t pw_mapped_file_length(const pw_mapped_file *file);

/**
 * Makes a token for length bytes of a mapped file from offset on, in constant time. length: PW_TO_END for the rest. rights: as for pw_export().
 *
 * The token ends with pw_unexport() or pw_mapped_file_close(). PW_ARGUMENT, PW_HANDLE; PW_BOUNDS: the bytes are not in it; PW_ENGINE: the rights are more than
 * PW_READ, and the file is not writable, or there are too many exports.
 */
pw_error pw_mapped_file_export(pw_mapped_file *file,
                               uint64_t offset,
                               uint64_t length,
                               uint32_t rights,
                               pw_token *token);

/**
 * Waits until what peers have written to a mapped file is on its device.
 *
 * PW_SYSTEM: the device refuses; PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_mapped_file_sync(pw_mapped_file *file);

/**
 * Ends the tokens of a mapped file, and its mapping; the pointer is not valid any more. When it returns, no access by the tokens is under way. NULL: nothing
 * is done.
 *
 * PW_HANDLE.
 */
pw_error pw_mapped_file_close(pw_mapped_file *file);

/**
 * Splits the job: processes that give one colour are a part, in which they are ranked by key, and by rank where that is equal. All processes of the job
 * call it. pw_part_free() frees the part; pw_node_leave() is PW_IN_USE before that.
 *
 * colour: any number, or PW_NO_PART for a process that is in no part. part: gets the part; NULL with PW_NO_PART, and after an error.
 *
 * PW_JOB: a process does not come, or is lost. PW_NO_MEMORY, PW_HEAP, PW_UNFINISHED (pw_barrier_for()).
 */
pw_error pw_split(pw_node *node,
                  uint64_t colour,
                  int64_t key,
                  pw_part **part);

/**
 * Splits a part. All its processes call it. As pw_split().
 */
pw_error pw_part_split(pw_part *whole, uint64_t colour, int64_t key, pw_part **part);

/**
 * Frees a part; the pointer is not valid any more. Calls of its other processes that count on this one fail with PW_JOB. NULL: nothing is done.
 *
 * PW_HANDLE: it was freed before. That is noticed as long as its place is not used for another part.
 */
pw_error pw_part_free(pw_part *part);

/**
 * The number of this process in the part, from 0 on. 0 too if the part is none: pw_error_message() says so.
 */
size_t pw_part_rank(const pw_part *part);

/**
 * Processes of the part, 1 or more. 0: the part is none, and pw_error_message() says so.
 */
size_t pw_part_size(const pw_part *part);

/**
 * The rank in the job of a rank of the part.
 *
 * job_rank: gets it. PW_JOB: the part has no such rank.
 */
pw_error pw_part_job_rank(const pw_part *part, size_t rank, size_t *job_rank);

/**
 * Waits until all processes of the part have called it, for PAGEWIRE_JOB_TIMEOUT seconds at most.
 *
 * PW_JOB: a process of the part does not come, or is lost. That ends the part: each later call of it gives PW_JOB. The job goes on.
 */
pw_error pw_part_barrier(pw_part *part);

/**
 * pw_part_barrier() for so many nanoseconds at most, or PW_FOREVER. A late one stays begun, as pw_barrier_for() says.
 *
 * PW_TIMEOUT, PW_UNFINISHED, PW_JOB.
 */
pw_error pw_part_barrier_for(pw_part *part, uint64_t nanoseconds);

/**
 * Gives size bytes to all processes of the part, and takes theirs, by rank of the part. As pw_all_gather().
 *
 * mine: size bytes. all: size * pw_part_size(part) bytes. PW_JOB: a process is lost, or gave another count of bytes.
 */
pw_error pw_part_all_gather(pw_part *part, const void *mine, size_t size, void *all);

/**
 * pw_part_all_gather() for so many nanoseconds at most, or PW_FOREVER. As pw_all_gather_for().
 */
pw_error pw_part_all_gather_for(pw_part *part, const void *mine, size_t size, void *all, uint64_t nanoseconds);

/**
 * Gives size bytes of the process root of the part to all of it. As pw_broadcast().
 */
pw_error pw_part_broadcast(pw_part *part, size_t root, void *data, size_t size);

/**
 * Opens the memory that a token names: connects to its owner if the node is not connected to it. *remote is NULL after an error.
 *
 * PW_TOKEN; PW_CONNECT: the owner has ended, cannot be reached or takes no more peers. Whether the token is still valid is told by the first
 * operation.
 */
pw_error pw_open(pw_node *node,
                 const pw_token *token,
                 pw_remote **remote);

/**
 * Closes a remote; the pointer is not valid any more. Operations that were started go on. NULL: nothing is done.
 *
 * PW_HANDLE: it was closed before. That is noticed as long as its place is not used for another remote.
 */
pw_error pw_close(pw_remote *remote);

/**
 * Bytes of a remote. 0: it is none, and pw_error_message() says so.
 */
uint64_t pw_remote_length(const pw_remote *remote);

/**
 * Puts length bytes of buffer at offset, and waits until they are visible there.
 *
 * PW_BOUNDS, PW_RIGHTS, PW_LENGTH: refused before anything was sent. PW_KEY, PW_MEMORY: refused by the owner. PW_BUFFER, PW_PEER_LOST.
 */
pw_error pw_put(pw_remote *remote,
                uint64_t offset,
                const void *buffer,
                size_t length);

/**
 * Starts a put. The buffer must stay, and must not be changed, until the operation has ended; pw_wait() gives its result, with the codes of
 * pw_put(). operation: NULL if nobody asks for the result; a failure is then told by pw_flush().
 *
 * PW_ARGUMENT, PW_HANDLE: nothing was started.
 */
pw_error pw_put_start(pw_remote *remote,
                      uint64_t offset,
                      const void *buffer,
                      size_t length,
                      pw_operation **operation);

/**
 * Gets length bytes from offset into buffer.
 *
 * As pw_put().
 */
pw_error pw_get(pw_remote *remote, uint64_t offset, void *buffer, size_t length);

/**
 * Starts a get. The buffer must stay, and must not be used, until the operation has ended. As pw_put_start().
 */
pw_error pw_get_start(pw_remote *remote, uint64_t offset, void *buffer, size_t length, pw_operation **operation);

/**
 * Puts length bytes of buffer at offset, then changes a signal: who sees it changed sees the bytes. It waits until both are done.
 *
 * As pw_put(); PW_ALIGNMENT. If the signal is refused by the owner, the bytes are there.
 */
pw_error pw_put_signal(pw_remote *remote,
                       uint64_t offset,
                       const void *buffer,
                       size_t length,
                       const pw_signal *signal);

/**
 * Starts a put with a signal behind it; *signal is read at once. As pw_put_start().
 */
pw_error pw_put_signal_start(pw_remote *remote,
                             uint64_t offset,
                             const void *buffer,
                             size_t length,
                             const pw_signal *signal,
                             pw_operation **operation);

/**
 * Changes a signal without a put.
 *
 * As pw_put(); PW_ALIGNMENT.
 */
pw_error pw_signal_change(pw_remote *remote, const pw_signal *signal);

/**
 * Puts the pieces of buffer, one behind the other in it, each at its offset. count: of the pieces, whose lengths sum up to length. It waits
 * until all are there.
 *
 * As pw_put(); PW_PIECES. Pieces before one that the owner refuses are there.
 */
pw_error pw_put_scattered(pw_remote *remote,
                          const pw_piece *pieces,
                          size_t count,
                          const void *buffer,
                          size_t length);

/**
 * Starts a scattered put; the pieces are read at once. As pw_put_start().
 */
pw_error pw_put_scattered_start(pw_remote *remote,
                                const pw_piece *pieces,
                                size_t count,
                                const void *buffer,
                                size_t length,
                                pw_operation **operation);

/**
 * Gets pieces from several offsets into buffer, one behind the other. As pw_put_scattered().
 */
pw_error pw_get_scattered(pw_remote *remote, const pw_piece *pieces, size_t count, void *buffer, size_t length);

/**
 * Starts a scattered get; the pieces are read at once. As pw_get_start().
 */
pw_error pw_get_scattered_start(pw_remote *remote,
                                const pw_piece *pieces,
                                size_t count,
                                void *buffer,
                                size_t length,
                                pw_operation **operation);

/**
 * Puts buffer in pieces of piece bytes, the first at offset, each stride bytes behind the one before: a column of a matrix. It waits until all
 * are there. The last piece is shorter where length is no multiple of piece. Pieces with a stride below piece overlap: the later one stays.
 *
 * As pw_put_scattered().
 */
pw_error pw_put_strided(pw_remote *remote,
                        uint64_t offset,
                        uint64_t stride,
                        size_t piece,
                        const void *buffer,
                        size_t length);

/**
 * Gets pieces of piece bytes into buffer, one behind the other. As pw_put_strided().
 */
pw_error pw_get_strided(pw_remote *remote, uint64_t offset, uint64_t stride, size_t piece, void *buffer, size_t length);

/**
 * Adds to the word of 8 bytes at offset. before: gets what it was; NULL if nobody asks.
 *
 * PW_BOUNDS, PW_RIGHTS, PW_ALIGNMENT, PW_KEY, PW_MEMORY, PW_PEER_LOST.
 */
pw_error pw_fetch_add(pw_remote *remote, uint64_t offset, uint64_t add, uint64_t *before);

/**
 * Starts an addition. *before is written by the call that gives the result: pw_wait(), pw_test() or pw_notify(). As pw_put_start().
 */
pw_error pw_fetch_add_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t add,
                            uint64_t *before,
                            pw_operation **operation);

/**
 * Sets the word of 8 bytes at offset to swap if it is compare. before: gets what it was; NULL if nobody asks. As pw_fetch_add().
 */
pw_error pw_compare_swap(pw_remote *remote,
                         uint64_t offset,
                         uint64_t compare,
                         uint64_t swap,
                         uint64_t *before);

/**
 * Starts a compare-swap. As pw_fetch_add_start().
 */
pw_error pw_compare_swap_start(pw_remote *remote,
                               uint64_t offset,
                               uint64_t compare,
                               uint64_t swap,
                               uint64_t *before,
                               pw_operation **operation);

/**
 * Sets the word of 8 bytes at offset. before: gets what it was; NULL if nobody asks. It is a compare-swap that comes again until nobody came
 * between, so operations that are started later may overtake it. As pw_fetch_add().
 */
pw_error pw_swap(pw_remote *remote,
                 uint64_t offset,
                 uint64_t swap,
                 uint64_t *before);

/**
 * Starts a swap. As pw_fetch_add_start().
 */
pw_error pw_swap_start(pw_remote *remote, uint64_t offset, uint64_t swap, uint64_t *before, pw_operation **operation);

/**
 * Waits until everything that was started to this peer before has ended.
 *
 * The first failure since the last flush of an operation whose result nobody asked for.
 */
pw_error pw_flush(pw_remote *remote);

/**
 * Keeps the bits of the word of 8 bytes at offset that are in bits. before: gets what it was; NULL if nobody asks. It repeats until nobody came between, as pw_swap().
 *
 * As pw_fetch_add().
 */
pw_error pw_fetch_and(pw_remote *remote,
                      uint64_t offset,
                      uint64_t bits,
                      uint64_t *before);

/**
 * Starts pw_fetch_and(). As pw_fetch_add_start().
 */
pw_error pw_fetch_and_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t bits,
                            uint64_t *before,
                            pw_operation **operation);

/**
 * Sets the bits of the word of 8 bytes at offset that are in bits. As pw_fetch_and().
 */
pw_error pw_fetch_or(pw_remote *remote, uint64_t offset, uint64_t bits, uint64_t *before);

/**
 * Starts pw_fetch_or(). As pw_fetch_add_start().
 */
pw_error pw_fetch_or_start(pw_remote *remote,
                           uint64_t offset,
                           uint64_t bits,
                           uint64_t *before,
                           pw_operation **operation);

/**
 * Inverts the bits of the word of 8 bytes at offset that are in bits. As pw_fetch_and().
 */
pw_error pw_fetch_xor(pw_remote *remote, uint64_t offset, uint64_t bits, uint64_t *before);

/**
 * Starts pw_fetch_xor(). As pw_fetch_add_start().
 */
pw_error pw_fetch_xor_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t bits,
                            uint64_t *before,
                            pw_operation **operation);

/**
 * Sets the word of 8 bytes at offset to value if that is less. As pw_fetch_and().
 */
pw_error pw_fetch_min(pw_remote *remote, uint64_t offset, uint64_t value, uint64_t *before);

/**
 * Starts pw_fetch_min(). As pw_fetch_add_start().
 */
pw_error pw_fetch_min_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t value,
                            uint64_t *before,
                            pw_operation **operation);

/**
 * Sets the word of 8 bytes at offset to value if that is more. As pw_fetch_and().
 */
pw_error pw_fetch_max(pw_remote *remote, uint64_t offset, uint64_t value, uint64_t *before);

/**
 * Starts pw_fetch_max(). As pw_fetch_add_start().
 */
pw_error pw_fetch_max_start(pw_remote *remote,
                            uint64_t offset,
                            uint64_t value,
                            uint64_t *before,
                            pw_operation **operation);

/**
 * pw_fetch_min() of numbers with a sign. As pw_fetch_and().
 */
pw_error pw_fetch_min_signed(pw_remote *remote, uint64_t offset, int64_t value, int64_t *before);

/**
 * Starts pw_fetch_min_signed(). As pw_fetch_add_start().
 */
pw_error pw_fetch_min_signed_start(pw_remote *remote,
                                   uint64_t offset,
                                   int64_t value,
                                   int64_t *before,
                                   pw_operation **operation);

/**
 * pw_fetch_max() of numbers with a sign. As pw_fetch_and().
 */
pw_error pw_fetch_max_signed(pw_remote *remote, uint64_t offset, int64_t value, int64_t *before);

/**
 * Starts pw_fetch_max_signed(). As pw_fetch_add_start().
 */
pw_error pw_fetch_max_signed_start(pw_remote *remote,
                                   uint64_t offset,
                                   int64_t value,
                                   int64_t *before,
                                   pw_operation **operation);

/**
 * Adds to the 4 bytes at offset, and wraps around. before: gets what they were; NULL if nobody asks. It repeats until nobody came between, as pw_swap().
 *
 * offset: a multiple of 4. The word of 8 bytes that has them, at an address there that is a multiple of 8, must be inside the memory of the token. So it is for
 * all of it if it begins and ends at multiples of 8.
 *
 * PW_BOUNDS, also where the word of 8 bytes leaves the memory; PW_RIGHTS, PW_ALIGNMENT, PW_KEY, PW_MEMORY, PW_PEER_LOST.
 */
pw_error pw_fetch_add_32(pw_remote *remote,
                         uint64_t offset,
                         uint32_t add,
                         uint32_t *before);

/**
 * Starts pw_fetch_add_32(). As pw_fetch_add_start().
 */
pw_error pw_fetch_add_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t add,
                               uint32_t *before,
                               pw_operation **operation);

/**
 * Sets the 4 bytes at offset to swap if they are compare. As pw_fetch_add_32().
 */
pw_error pw_compare_swap_32(pw_remote *remote, uint64_t offset, uint32_t compare, uint32_t swap, uint32_t *before);

/**
 * Starts pw_compare_swap_32(). As pw_fetch_add_start().
 */
pw_error pw_compare_swap_32_start(pw_remote *remote,
                                  uint64_t offset,
                                  uint32_t compare,
                                  uint32_t swap,
                                  uint32_t *before,
                                  pw_operation **operation);

/**
 * Sets the 4 bytes at offset. As pw_fetch_add_32().
 */
pw_error pw_swap_32(pw_remote *remote, uint64_t offset, uint32_t swap, uint32_t *before);

/**
 * Starts pw_swap_32(). As pw_fetch_add_start().
 */
pw_error pw_swap_32_start(pw_remote *remote,
                          uint64_t offset,
                          uint32_t swap,
                          uint32_t *before,
                          pw_operation **operation);

/**
 * Keeps the bits of the 4 bytes at offset that are in bits. As pw_fetch_add_32().
 */
pw_error pw_fetch_and_32(pw_remote *remote, uint64_t offset, uint32_t bits, uint32_t *before);

/**
 * Starts pw_fetch_and_32(). As pw_fetch_add_start().
 */
pw_error pw_fetch_and_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t bits,
                               uint32_t *before,
                               pw_operation **operation);

/**
 * Sets the bits of the 4 bytes at offset that are in bits. As pw_fetch_add_32().
 */
pw_error pw_fetch_or_32(pw_remote *remote, uint64_t offset, uint32_t bits, uint32_t *before);

/**
 * Starts pw_fetch_or_32(). As pw_fetch_add_start().
 */
pw_error pw_fetch_or_32_start(pw_remote *remote,
                              uint64_t offset,
                              uint32_t bits,
                              uint32_t *before,
                              pw_operation **operation);

/**
 * Inverts the bits of the 4 bytes at offset that are in bits. As pw_fetch_add_32().
 */
pw_error pw_fetch_xor_32(pw_remote *remote, uint64_t offset, uint32_t bits, uint32_t *before);

/**
 * Starts pw_fetch_xor_32(). As pw_fetch_add_start().
 */
pw_error pw_fetch_xor_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t bits,
                               uint32_t *before,
                               pw_operation **operation);

/**
 * Sets the 4 bytes at offset to value if that is less. As pw_fetch_add_32().
 */
pw_error pw_fetch_min_32(pw_remote *remote, uint64_t offset, uint32_t value, uint32_t *before);

/**
 * Starts pw_fetch_min_32(). As pw_fetch_add_start().
 */
pw_error pw_fetch_min_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t value,
                               uint32_t *before,
                               pw_operation **operation);

/**
 * Sets the 4 bytes at offset to value if that is more. As pw_fetch_add_32().
 */
pw_error pw_fetch_max_32(pw_remote *remote, uint64_t offset, uint32_t value, uint32_t *before);

/**
 * Starts pw_fetch_max_32(). As pw_fetch_add_start().
 */
pw_error pw_fetch_max_32_start(pw_remote *remote,
                               uint64_t offset,
                               uint32_t value,
                               uint32_t *before,
                               pw_operation **operation);

/**
 * pw_fetch_min_32() of numbers with a sign. As pw_fetch_add_32().
 */
pw_error pw_fetch_min_signed_32(pw_remote *remote, uint64_t offset, int32_t value, int32_t *before);

/**
 * Starts pw_fetch_min_signed_32(). As pw_fetch_add_start().
 */
pw_error pw_fetch_min_signed_32_start(pw_remote *remote,
                                      uint64_t offset,
                                      int32_t value,
                                      int32_t *before,
                                      pw_operation **operation);

/**
 * pw_fetch_max_32() of numbers with a sign. As pw_fetch_add_32().
 */
pw_error pw_fetch_max_signed_32(pw_remote *remote, uint64_t offset, int32_t value, int32_t *before);

/**
 * Starts pw_fetch_max_signed_32(). As pw_fetch_add_start().
 */
pw_error pw_fetch_max_signed_32_start(pw_remote *remote,
                                      uint64_t offset,
                                      int32_t value,
                                      int32_t *before,
                                      pw_operation **operation);

/**
 * Waits until the operation has ended: the bytes are visible at the target, or at the caller for a get. It may be called again, and gives
 * the same. pw_operation_free() frees the operation.
 *
 * The failure of the operation.
 */
pw_error pw_wait(pw_operation *operation);

/**
 * pw_wait() for so many nanoseconds at most: PW_UNFINISHED if the operation has not ended by then. For waits that something else may interrupt.
 *
 * PW_UNFINISHED; the failure of the operation.
 */
pw_error pw_wait_for(pw_operation *operation,
                     uint64_t nanoseconds);

/**
 * Whether the operation has ended: PW_UNFINISHED if not, else as pw_wait(). It polls the engine once.
 */
pw_error pw_test(pw_operation *operation);

/**
 * Has 8 bytes (the number 1) written to a descriptor once the operation has ended, or at once if it has: for an eventfd(2) in an event loop.
 * pw_test() then gives the result. The descriptor must stay open until then, and must not block.
 *
 * PW_ARGUMENT.
 */
pw_error pw_notify(pw_operation *operation,
                   int descriptor);

/**
 * Frees an operation; the pointer is not valid any more. One that has not ended goes on, and still needs its buffer: pw_flush() waits for it
 * and tells its failure. NULL: nothing is done.
 *
 * PW_HANDLE: it was freed before. That is noticed as long as its place is not used for another operation.
 */
pw_error pw_operation_free(pw_operation *operation);

/**
 * Waits until one of several operations has ended, done or not: pw_wait() of it then gives its result at once. They may be of several nodes, and
 * conditional writes and releases among them.
 *
 * operations: count of them; NULL in a place is passed over, so that a program puts it where an operation was that it has freed. nanoseconds: for how
 * long at most, or PW_FOREVER; 0 looks once. index: gets the first place of one that has ended; count if no place has an operation.
 *
 * PW_UNFINISHED: none has ended in time. PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_wait_any(pw_operation *const *operations,
                     size_t count,
                     uint64_t nanoseconds,
                     size_t *index);

/**
 * Waits until at least one of several operations has ended, and names all that have. As pw_wait_any().
 *
 * indices: gets the places, in order: space for count. found: gets how many these are; 0 if no place has an operation, and after PW_UNFINISHED.
 *
 * PW_UNFINISHED: none has ended in time. PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_wait_some(pw_operation *const *operations,
                      size_t count,
                      uint64_t nanoseconds,
                      size_t *indices,
                      size_t *found);

/**
 * Waits until all of several operations have ended. NULL in a place is passed over.
 *
 * nanoseconds: for how long at most, or PW_FOREVER; 0 looks once.
 *
 * PW_UNFINISHED: one has not ended in time. The failure of the first one in the list that has failed, once all have ended; pw_wait() gives that of each.
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_wait_all(pw_operation *const *operations,
                     size_t count,
                     uint64_t nanoseconds);

/**
 * Waits until a word of this process, which peers change behind their puts, is as wished. Bytes that were put before the signal are visible
 * then.
 *
 * word: aligned to 8 bytes. wish: PW_EQUAL, PW_NOT_EQUAL, PW_GREATER, PW_AT_LEAST, PW_LESS or PW_AT_MOST value, of numbers without a sign. nanoseconds: for
 * how long at most, or PW_FOREVER; 0 looks once. seen: gets the word, also after PW_TIMEOUT; NULL if nobody asks.
 *
 * PW_TIMEOUT, PW_ALIGNMENT, PW_ARGUMENT.
 */
pw_error pw_signal_wait(pw_node *node,
                        uint64_t *word,
                        uint32_t wish,
                        uint64_t value,
                        uint64_t nanoseconds,
                        uint64_t *seen);

/**
 * Waits until one of several words of this process is as wished, each with its own wish. As pw_signal_wait().
 *
 * wishes: count of them; seen of each is written, also after PW_TIMEOUT. nanoseconds: for how long at most, or PW_FOREVER; 0 looks once. index: gets the
 * first place of one that is as wished; count if all are passed over.
 *
 * PW_TIMEOUT, PW_ALIGNMENT, PW_ARGUMENT.
 */
pw_error pw_signal_wait_any(pw_node *node,
                            pw_signal_wish *wishes,
                            size_t count,
                            uint64_t nanoseconds,
                            size_t *index);

/**
 * Waits until at least one of several words is as wished, and names all that are. As pw_signal_wait_any().
 *
 * indices: gets the places, in order: space for count. found: gets how many these are; 0 if all are passed over, and after PW_TIMEOUT.
 *
 * PW_TIMEOUT, PW_ALIGNMENT, PW_ARGUMENT.
 */
pw_error pw_signal_wait_some(pw_node *node,
                             pw_signal_wish *wishes,
                             size_t count,
                             uint64_t nanoseconds,
                             size_t *indices,
                             size_t *found);

/**
 * Waits until all of several words are as wished at once. As pw_signal_wait_any().
 *
 * PW_TIMEOUT, PW_ALIGNMENT, PW_ARGUMENT.
 */
pw_error pw_signal_wait_all(pw_node *node, pw_signal_wish *wishes, size_t count, uint64_t nanoseconds);

/**
 * The node of a rank of the job, below pw_size().
 *
 * PW_JOB: there is no such rank.
 */
pw_error pw_peer_of_rank(pw_node *node, size_t rank, pw_peer *peer);

/**
 * This node, as others name it.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_identity(pw_node *node, pw_peer *peer);

/**
 * The node that made a token.
 *
 * PW_TOKEN.
 */
pw_error pw_owner(const pw_token *token, pw_peer *peer);

/**
 * Starts a conditional write of length bytes of buffer: sends a message to the peer, and holds the write until the peer accepts it. The buffer must stay,
 * and must not be changed, until the operation has ended. A node holds one write of a tag to each peer.
 *
 * pw_wait() and pw_test() give its end: PW_OK: the bytes are visible at the peer; PW_CANCELLED; PW_TIMEOUT; PW_DECLINED; PW_RELEASE: the
 * token that it was released to does not take it; PW_PEER_LOST. operation: NULL if nobody asks.
 *
 * PW_PEER_LOST: the peer cannot be connected to, or is no Pagewire; PW_TAG; PW_LENGTH; PW_LIMIT: nothing is held.
 */
pw_error pw_conditional_write(pw_node *node,
                              const pw_peer *peer,
                              uint64_t tag,
                              const void *buffer,
                              size_t length,
                              pw_operation **operation);

/**
 * Cancels a conditional write, from any thread: when it returns, no byte will be written that was not released before. pw_wait() says how it
 * ended: PW_CANCELLED, or PW_OK if its release came first.
 *
 * PW_ARGUMENT: the operation is no conditional write.
 */
pw_error pw_cancel(pw_operation *operation);

/**
 * Has a conditional write end with PW_TIMEOUT if its release has not come in so many nanoseconds, counted from now.
 *
 * PW_ARGUMENT: the operation is no conditional write.
 */
pw_error pw_end_after(pw_operation *operation, uint64_t nanoseconds);

/**
 * Accepts the conditional write of a tag that a peer holds, or will hold: it goes to the first bytes of the token's memory, which must be of
 * this node. peer: NULL for whichever peer has opened one, or will first.
 *
 * operation: ends with the write; NULL if nobody asks. pw_wait() gives PW_OK; PW_CANCELLED; PW_TIMEOUT: no write came within 60 s;
 * PW_RELEASE: the token does not take the write; PW_DECLINED: the peer keeps as many releases as it can; PW_PEER_LOST. written: gets the count of bytes with PW_OK; it must stay until then; NULL if
 * nobody asks.
 *
 * PW_TAG: a release of the tag to this peer is under way; PW_TOKEN; PW_LIMIT.
 */
pw_error pw_accept_conditional_write(pw_node *node,
                                     const pw_peer *peer,
                                     uint64_t tag,
                                     const pw_token *token,
                                     uint64_t *written,
                                     pw_operation **operation);

/**
 * Starts a conditional read: asks a peer for data, which come as its conditional write to the memory of the token. As pw_accept_conditional_write().
 */
pw_error pw_conditional_read(pw_node *node,
                             const pw_peer *peer,
                             uint64_t tag,
                             const pw_token *token,
                             uint64_t *written,
                             pw_operation **operation);

/**
 * Waits for a conditional write or read that a peer opens, for so many nanoseconds at most (PW_FOREVER: without a bound). Each is given to one
 * caller. opening: gets what there is to know of it. opened: is answered by one of the three calls below, and freed by pw_conditional_request_free().
 *
 * PW_TIMEOUT.
 */
pw_error pw_next_conditional_request(pw_node *node,
                                     uint64_t nanoseconds,
                                     pw_conditional_request_info *opening,
                                     pw_conditional_request **opened);

/**
 * Has the peer write to the first bytes of the token's memory. As pw_accept_conditional_write().
 */
pw_error pw_conditional_request_accept(pw_conditional_request *opened,
                                       const pw_token *token,
                                       uint64_t *written,
                                       pw_operation **operation);

/**
 * Writes length bytes of buffer to the memory that the peer has space in. As pw_conditional_write().
 */
pw_error pw_conditional_request_supply(pw_conditional_request *opened,
                                       const void *buffer,
                                       size_t length,
                                       pw_operation **operation);

/**
 * Declines what the peer has opened, and frees the opening.
 *
 * PW_HANDLE.
 */
pw_error pw_conditional_request_decline(pw_conditional_request *opened);

/**
 * Frees an opening; the pointer is not valid any more. One that was not answered can still be answered by its tag. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_conditional_request_free(pw_conditional_request *opened);

/**
 * Says within a handler that it has failed: the access counts as handled and as failed, and the log goes on. why: a sentence, which is reported on the
 * standard error output: the first 20 failures of a process each, and of the others some, with their number. NULL: the handler has told it itself.
 *
 * PW_ARGUMENT: no handler of this thread is running.
 */
pw_error pw_handler_failed(const char *why);

/**
 * Makes an access log. *log is NULL after an error.
 *
 * bytes: space for each source, a connection of a peer; a record takes 48, and its data. A source whose space is used up waits, and nobody else does.
 * sources: how many at once, 4096 at most, or 0 for 256; one more waits until another one has left. order: PW_ORDERED or PW_UNORDERED.
 *
 * PW_ARGUMENT; PW_ENGINE: the numbers cannot be, the process has had 1,024 logs, or there is no memory.
 */
pw_error pw_log_make(pw_node *node,
                     size_t bytes,
                     size_t sources,
                     uint32_t order,
                     pw_log **log);

/**
 * Frees a log; the pointer is not valid any more. Servings go on until they are ended. Behind that nobody reads the log: its pages refuse what they would have
 * redirected, and what they would have logged goes to the fault log. NULL: nothing is done.
 *
 * PW_HANDLE; PW_IN_HANDLER: a handler of the log calls.
 */
pw_error pw_log_free(pw_log *log);

/**
 * The user domain of a log, by which its records and pw_flush_handled() name it: 0 to 1023. PW_ALL_DOMAINS: the log is none, and pw_error_message() says
 * so.
 */
uint32_t pw_log_domain(const pw_log *log);

/**
 * Sets the attributes of pages, for accesses by a token of pw_export(). When it returns, later accesses obey, on all paths. What is not named is as in
 * ordinary memory, whatever it was before. Other tokens of the same memory are as they were.
 *
 * offset, length: of the first byte, and how many: whole pages of 4,096 bytes, the first of which begins where the token's bytes do; the last one may be
 * shorter. PW_TO_END for the rest. attributes: PW_REDIRECT_PUTS and its like by OR, 0 for ordinary pages. log: which log gets the records. NULL: the fault
 * log of the process, without data; nothing can be redirected then.
 *
 * PW_BOUNDS: the range cuts a page, or leaves the token's bytes; PW_ARGUMENT; PW_TOKEN; PW_ENGINE: the token is of another node, or was unexported, or a
 * stopped peer is within an access.
 */
pw_error pw_set_attributes(pw_node *node,
                           const pw_token *token,
                           uint64_t offset,
                           uint64_t length,
                           uint32_t attributes,
                           pw_log *log);

/**
 * Calls a handler with the records that there are, one after the other, but with most at most: peers may make new ones as fast as they are read. It does not
 * wait, and takes none while another thread handles one. handler: see pw_handler. counts: gets how many; NULL if nobody asks.
 *
 * PW_IN_HANDLER: a handler of the log calls. PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_log_poll(pw_log *log,
                     size_t most,
                     pw_handler handler,
                     void *context,
                     pw_counts *counts);

/**
 * Calls a handler with each record as it comes, in a thread of its own, which sleeps while there is none. *serving is NULL after an error.
 *
 * events: when the thread is woken; NULL: at each record, and every 100 ms. handler, context: see pw_handler; they are used until pw_serving_end() has returned.
 *
 * PW_ARGUMENT; PW_SYSTEM: the thread cannot start.
 */
pw_error pw_log_serve(pw_log *log,
                      const pw_events *events,
                      pw_handler handler,
                      void *context,
                      pw_serving **serving);

/**
 * pw_log_serve() by a thread that never sleeps: the shortest time, for a processor of its own.
 */
pw_error pw_log_serve_polling(pw_log *log, pw_handler handler, void *context, pw_serving **serving);

/**
 * What a serving has done so far.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_serving_counts(pw_serving *serving, pw_counts *counts);

/**
 * Ends a serving, when its handler has returned; the pointer is not valid any more. Records that come later stay in the log. counts: gets what it has done;
 * NULL if nobody asks.
 *
 * The handler itself may call it. Then it does not wait: the handler is called no more when it has returned, and counts have the record that it is at. Two
 * handlers that end each other's servings wait for each other.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_serving_end(pw_serving *serving,
                        pw_counts *counts);

/**
 * Takes the records of the fault log of the process, and calls a handler with each: accesses to pages that have no log. It keeps 4,096 of them. dropped: gets
 * how many found no space there since the beginning; NULL if nobody asks.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_take_faults(pw_node *node,
                        pw_handler handler,
                        void *context,
                        uint64_t *dropped);

/**
 * Waits until the owner's handlers have returned for all accesses to this peer that were started before. domain: only those that are in one log of the owner
 * (pw_log_domain() there), or PW_ALL_DOMAINS. It has them begin at once, whatever number of records or time their thread waits for (pw_events). It ends at once
 * where nothing was logged. What is started behind it does not wait for it. While a handler does not return it does not end, either: see
 * pw_flush_handled_start() for a bound. A handler that waits so for its own log waits for itself.
 *
 * PW_ARGUMENT, PW_PEER_LOST.
 */
pw_error pw_flush_handled(pw_remote *remote,
                          uint32_t domain);

/**
 * Starts a flush of handlers: pw_wait_for() bounds the wait. As pw_flush_handled() and pw_put_start().
 */
pw_error pw_flush_handled_start(pw_remote *remote, uint32_t domain, pw_operation **operation);

/**
 * Makes a table with all processes of the job, each of which calls this. *table is NULL after an error. The node stays until the table is freed.
 *
 * PW_ARGUMENT; PW_NO_MEMORY, PW_HEAP: there is none for the volume; PW_JOB: another process has ended; else as pw_open() and
 * pw_log_make(), as it takes a log.
 */
pw_error pw_table_join(pw_node *node,
                       const pw_table_options *options,
                       pw_table **table);

/**
 * Frees a table; the pointer is not valid any more. The volume of this process ends with it, and others get errors for its keys: let all processes meet in
 * pw_barrier() before. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_table_free(pw_table *table);

/**
 * Sets the value of a key, which is added if it is new. It has happened when pw_table_flush() has returned, and behind everything that this process did to
 * the same key before.
 *
 * value: length bytes, NULL if there are none. PW_ARGUMENT, also: the key is 0, or the value too long; PW_NO_MEMORY, PW_HEAP: the volume cannot grow;
 * else as pw_put() and pw_get().
 */
pw_error pw_table_insert(pw_table *table,
                         uint64_t key,
                         const void *value,
                         size_t length);

/**
 * Inserts several elements, in any order. Those of one process go to it together: with a key that is there twice, either value may stay.
 *
 * elements: count of them. As pw_table_insert(); some may be inserted after an error.
 */
pw_error pw_table_insert_batch(pw_table *table,
                               const pw_element *elements,
                               size_t count);

/**
 * Copies the value of a key. *length gets how many bytes the value has, or PW_ABSENT. A value of more than size bytes is cut: call again with a larger
 * place, as the value may be another one by then.
 *
 * value: size bytes, NULL if size is 0. PW_ARGUMENT, PW_HANDLE; else as pw_get().
 */
pw_error pw_table_lookup(pw_table *table,
                         uint64_t key,
                         void *value,
                         size_t size,
                         uint64_t *length);

/**
 * Deletes the value of a key, if there is one. It has happened when pw_table_flush() has returned.
 *
 * As pw_table_insert().
 */
pw_error pw_table_delete(pw_table *table, uint64_t key);

/**
 * Waits until everything that this process has inserted and deleted is done at its owners.
 *
 * PW_PEER_LOST: an owner is lost; of a durable table see pw_table_readmit(). PW_NO_MEMORY, PW_HEAP, PW_SYSTEM: a volume was full and could not grow since the last flush, and elements that this process or
 * another one has inserted into it are not there; or messages were lost, which a call has reported. Do everything since the last flush again.
 */
pw_error pw_table_flush(pw_table *table);

/**
 * Gives the volume of this process so many cells, and spare ones for all of its elements at least, and leaves the bytes of values out that nothing names any
 * more. cells: 0 is taken as 1.
 *
 * PW_NO_MEMORY, PW_HEAP: there is none for it, and it stays as it was.
 */
pw_error pw_table_resize(pw_table *table,
                         size_t cells);

/**
 * Walks the chains of the volume of this process, and says what it has.
 *
 * PW_ARGUMENT, PW_HANDLE; PW_SYSTEM: a process has written over it.
 */
pw_error pw_table_volume(pw_table *table, pw_volume *volume);

/**
 * Hands over all elements of a table, in any order. Each element that is there during the whole loop comes exactly once, with a value that it has had
 * meanwhile. One that is inserted or deleted meanwhile comes once or not at all. The loop holds nothing that others wait for.
 *
 * each: is called by this thread, with the context. PW_ARGUMENT, PW_HANDLE; as pw_table_lookup(), and then not all elements came.
 */
pw_error pw_table_for_each(pw_table *table,
                           pw_element_function each,
                           void *context);

/**
 * Hands over the next elements of a loop, some at a time, and moves its cursor behind them: for loops that are not one call, of which pw_table_for_each() says
 * what they give.
 *
 * *count: gets how many they are, 0 if there are no more. each: its value is not looked at. PW_ARGUMENT, PW_HANDLE; as pw_table_lookup(), and the cursor stays.
 */
pw_error pw_table_next(pw_table *table,
                       pw_table_cursor *cursor,
                       pw_element_function each,
                       void *context,
                       size_t *count);

/**
 * Removes all elements of a table, of the volumes of all processes, behind everything that this process did before. One process calls this, and others
 * need not. Each volume is emptied at one instant, but not all at the same one: what others insert meanwhile may stay or not. When this returns all are emptied.
 *
 * As pw_table_flush(); as pw_table_checkpoint(), which the owner of a durable volume makes first. Then some volumes are emptied, and others have all their elements.
 */
pw_error pw_table_clear(pw_table *table);

/**
 * Sets the value of a key if it is the expected one. It is atomic against all that is done to the key, by whomever, and it has happened when this returns,
 * behind everything that this process did to the same key before.
 *
 * expected: of expected_length bytes. value: the new one, of length bytes. A length of PW_ABSENT stands for no value, so this inserts a key that is not there,
 * replaces or deletes a value. *was_set: gets 1, or 0 if the value is another one than expected. PW_ARGUMENT, also: the key is 0, or both values together
 * are too long; else as pw_table_insert(). Where a process is lost meanwhile it may have happened.
 */
pw_error pw_table_compare_and_set(pw_table *table,
                                  uint64_t key,
                                  const void *expected,
                                  uint64_t expected_length,
                                  const void *value,
                                  uint64_t length,
                                  int *was_set);

/**
 * As pw_table_join(), with volumes that outlive their processes. A volume that a process of the same rank has left in the folder is this process's, with all its
 * elements. All processes of the job call this. *table is NULL after an error. The node stays until the table is freed.
 *
 * PW_ARGUMENT: also, PW_BY_OPERATIONS cannot log what it changes; PW_SYSTEM: a file cannot be used, and why; else as pw_table_join().
 */
pw_error pw_table_join_durable(pw_node *node,
                               const pw_table_options *options,
                               const pw_durability *durability,
                               pw_table **table);

/**
 * Takes the place of a member of a durable table that was killed, and has all its elements: what came into its volume, by whomever. The others give the ticket of
 * this process to pw_table_readmit(). The node may be one of pw_node_alone(), as the job that the dead process was of has ended.
 *
 * rank: of the member. tickets: count of them, of all members by rank, as pw_table_ticket() gives them. That of this rank is not looked at, and all others are
 * valid: if more than one member is dead, end the others, and start the job again with pw_table_join_durable(). It waits up to 3 seconds for the end of the process
 * before. PW_TOKEN: a ticket is none; as pw_table_join_durable().
 */
pw_error pw_table_restart(pw_node *node,
                          const pw_table_options *options,
                          const pw_durability *durability,
                          size_t rank,
                          const pw_volume_ticket *tickets,
                          size_t count,
                          pw_table **table);

/**
 * Makes the ticket of the volume of this process, for pw_table_restart() and pw_table_readmit() elsewhere.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_table_ticket(pw_table *table, pw_volume_ticket *ticket);

/**
 * Writes a checkpoint of the volume of this process to its file, so that its logs begin anew. Others go on meanwhile. A log that is full asks for one, too.
 *
 * PW_ARGUMENT: the table is not durable. PW_SYSTEM: the file cannot be written, and the logs have all that they had.
 */
pw_error pw_table_checkpoint(pw_table *table);

/**
 * Has a process of pw_table_restart() take the place of the member of its rank, when the calls of other threads have returned. What this process had inserted there
 * and flushed is there. Do again what has failed.
 *
 * unflushed: gets how many messages for that member were not flushed: if there are any, do everything since the last flush again. NULL if nobody asks.
 *
 * PW_ARGUMENT: the rank is this process's own, or no member's; PW_TOKEN: the ticket is none; as pw_table_join().
 */
pw_error pw_table_readmit(pw_table *table,
                          size_t rank,
                          const pw_volume_ticket *ticket,
                          uint64_t *unflushed);

/**
 * Begins to count what peers do by a token of pw_export(), by pages of 4,096 bytes, the first of which begins where the token's bytes do. This sets the
 * attributes of all of its pages (pw_set_attributes), and a checkpoint of the same token sees no puts while it counts. *counting is NULL after an error.
 * The node stays until pw_access_statistics_end().
 *
 * counted: PW_COUNT_PUTS, PW_COUNT_GETS, or both by OR; the others cost nothing then. refused: PW_REFUSE_PUTS, PW_REFUSE_GETS, both by OR, or 0: callers get
 * PW_KEY, and it is counted that they tried.
 *
 * PW_ARGUMENT, PW_TOKEN; PW_ENGINE: the token is of another node, or was unexported, or as pw_log_make(), as it takes a log; PW_HEAP,
 * PW_NO_MEMORY, PW_SYSTEM.
 */
pw_error pw_access_statistics_start(pw_node *node,
                                    const pw_token *token,
                                    uint32_t counted,
                                    uint32_t refused,
                                    pw_access_statistics **counting);

/**
 * Counts no more; the pointer is not valid any more. The attributes stay: what would have been refused is, and nothing else is. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_access_statistics_end(pw_access_statistics *counting);

/**
 * All that was counted. Whatever had ended at its caller before is in it.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_access_statistics_total(pw_access_statistics *counting, pw_access_counts *counts);

/**
 * What was counted of a page, from 0 on: zeros for one that the token does not have. An access of several pages counts in each.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_access_statistics_page(pw_access_statistics *counting,
                                   uint64_t page,
                                   pw_access_counts *counts);

/**
 * Sets all counters to zero, and gives the total that there was.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_access_statistics_reset(pw_access_statistics *counting, pw_access_counts *counts);

/**
 * The pages that were accessed most, and no page that was not: the first one most, of equal ones the lower.
 *
 * list: most places, NULL if most is 0. *count gets how many there are. PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_access_statistics_hottest(pw_access_statistics *counting,
                                      pw_numbered_counts *list,
                                      size_t most,
                                      size_t *count);

/**
 * What each peer did, by the number of a source of its, which is one of its connections: see pw_source_find().
 *
 * list: most places, NULL if most is 0. *count gets how many peers there are, which may be more. PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_access_statistics_sources(pw_access_statistics *counting,
                                      pw_numbered_counts *list,
                                      size_t most,
                                      size_t *count);

/**
 * Makes a token by which peers read the counters with pw_open() and pw_get(): a pw_access_counts for each page. They may lag behind by what was not counted
 * yet, and nobody who counts is delayed. It ends with the statistics.
 *
 * PW_ARGUMENT, PW_HANDLE; PW_ENGINE: there are too many exports.
 */
pw_error pw_access_statistics_export(pw_access_statistics *counting,
                                     pw_token *token);

/**
 * Says who a source is, by the number that a pw_access or pw_access_statistics_sources() gives. The last 65,536 connections that have ended are known, too.
 * A handler may call it.
 *
 * PW_ARGUMENT: nobody is known by this number, or no more; found is NULL. PW_HANDLE.
 */
pw_error pw_source_find(pw_node *node,
                        uint64_t source,
                        pw_source *found);

/**
 * Opens a file of checkpoints of some memory, and makes it if there is none. One process at a time has it open. *checkpoint is NULL after an error. The node
 * stays until the checkpoint is closed.
 *
 * path: of the file. options: PW_SYNC or PW_NO_SYNC. memories: count of them, 1 or more: the same for each open of the file, in the same order. They are used by
 * saves and restores only.
 *
 * PW_IN_USE; PW_FILE: it is no file of checkpoints of this version, or damaged; PW_SYSTEM: it cannot be opened, or the memory not be read; PW_LIMIT:
 * the memory has more than 16 TiB; PW_TOKEN; PW_ARGUMENT: also, a token names other bytes; as pw_log_make(), as it takes a log.
 */
pw_error pw_checkpoint_open(pw_node *node,
                            const char *path,
                            uint32_t options,
                            const pw_memory *memories,
                            size_t count,
                            pw_checkpoint **checkpoint);

/**
 * Closes the file; the pointer is not valid any more. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_checkpoint_close(pw_checkpoint *checkpoint);

/**
 * The numbers of the first and the last checkpoint that can be restored: *first and *last are 0 if there is none. *local_writes gets how writes of this process are
 * seen: PW_FULL_COPIES, PW_SOFT_DIRTY or PW_WRITE_PROTECT. Each may be NULL.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_checkpoint_numbers(pw_checkpoint *checkpoint,
                               uint64_t *first,
                               uint64_t *last,
                               uint32_t *local_writes);

/**
 * Saves the memory as one checkpoint, with a note of the program's own. It has what peers had put before the call, and what this process had written before. The
 * first one since pw_checkpoint_open() is full, unless the memory was restored.
 *
 * note: length bytes, NULL if there are none. saved: gets what was saved; NULL if nobody asks.
 *
 * PW_ARGUMENT: the file has other memory; PW_SYSTEM: the file could not be written, and the checkpoints before stay; PW_ENGINE: a token is of another node, or
 * was unexported; PW_LIMIT.
 */
pw_error pw_checkpoint_save(pw_checkpoint *checkpoint,
                            const void *note,
                            size_t length,
                            pw_saved *saved);

/**
 * Saves together with all processes of the job, each of which calls this with its own file: what a process has put before the call is in the checkpoint of
 * whom it has put to. When it returns, all have saved.
 *
 * remotes: count of them, that this process puts to; NULL if there are none. Else as pw_checkpoint_save(). If any process has an error, all have one: then
 * pw_checkpoint_restore_together() before the next save. PW_JOB: another process could not save; as pw_flush_handled() and pw_barrier().
 */
pw_error pw_checkpoint_save_together(pw_checkpoint *checkpoint,
                                     pw_remote *const *remotes,
                                     size_t count,
                                     const void *note,
                                     size_t length,
                                     pw_saved *saved);

/**
 * Restores the memory from a checkpoint. Nobody else may use it meanwhile. All data are compared with their checksums before anything is changed. Later
 * checkpoints are forgotten by the next save.
 *
 * number: of the checkpoint, or 0 for the last one. note: gets the note, of which size bytes at most are copied; NULL if size is 0. restored: gets what was
 * restored; its number is 0 if there is no checkpoint yet.
 *
 * PW_ARGUMENT: there is no such checkpoint, or the file has other memory; PW_FILE: it is damaged; PW_SYSTEM.
 */
pw_error pw_checkpoint_restore(pw_checkpoint *checkpoint,
                               uint64_t number,
                               void *note,
                               size_t size,
                               pw_restored *restored);

/**
 * Restores together with all processes of the job, each of which calls this, from the last checkpoint that all have. As pw_checkpoint_restore(), and PW_JOB.
 */
pw_error pw_checkpoint_restore_together(pw_checkpoint *checkpoint,
                                        void *note,
                                        size_t size,
                                        pw_restored *restored);

/**
 * Begins as a process of several. If the file has a checkpoint of it, that is restored: then pw_logged_process_note() gives its note, and the process connects all
 * others, calls pw_logged_process_replay(), and repeats its work from there. Else its memory is zeros. *process is NULL after an error. The node stays until the
 * process has ended.
 *
 * path: of the file, which is made if there is none. PW_ARGUMENT; PW_IN_USE, PW_FILE, PW_SYSTEM: as pw_checkpoint_open(); PW_REPLAY: the file is of another
 * program; PW_NO_MEMORY, PW_HEAP; as pw_log_make(), as it takes a log.
 */
pw_error pw_logged_process_start(pw_node *node,
                                 const char *path,
                                 const pw_logged_process_options *options,
                                 pw_logged_process **process);

/**
 * Ends a process; the pointer is not valid any more, and its memory is gone. What others had logged of it stays with them. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_logged_process_end(pw_logged_process *process);

/**
 * The memory of a process, until it has ended. What others put is there behind pw_logged_process_next_epoch(). NULL: the process is none, and pw_error_message() says
 * so.
 */
void *pw_logged_process_memory(pw_logged_process *process);

/**
 * The note of the checkpoint that the process was restored from. *length gets its bytes, or PW_ABSENT: it was not restored. A note of more than size bytes is
 * cut.
 *
 * note: size bytes, NULL if size is 0. PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_logged_process_note(pw_logged_process *process,
                                void *note,
                                size_t size,
                                uint64_t *length);

/**
 * Makes a ticket for another process.
 *
 * PW_ARGUMENT: there is no process of this rank; PW_ENGINE: there are too many exports.
 */
pw_error pw_logged_process_ticket(pw_logged_process *process, size_t peer, pw_ticket *ticket);

/**
 * Connects another process by the ticket that it has made for this one, once in its life. A process that takes the place of one that died makes its tickets when
 * it is replaying no more: what others had put meanwhile is put when they connect it.
 *
 * PW_TOKEN: it is no ticket for this process; as pw_open(), pw_get() and pw_put().
 */
pw_error pw_logged_process_connect(pw_logged_process *process,
                                   const pw_ticket *ticket);

/**
 * Takes the logs of all others, of a process that was restored: what they had put, what gets had returned, and which puts had arrived.
 *
 * PW_ARGUMENT: a process is not connected; PW_REPLAY: this one was not restored, or a log has lost a get; as pw_get().
 */
pw_error pw_logged_process_replay(pw_logged_process *process);

/**
 * Whether the process is in an epoch that the others have left: there is no barrier to wait for, and nobody may put to it yet. False too if it is none:
 * pw_error_message() says so.
 */
bool pw_logged_process_is_replaying(pw_logged_process *process);

/**
 * A barrier of all processes has been passed: what they had put before is in the memory, in a replay, too. *epoch gets how many were passed; NULL if nobody asks.
 *
 * PW_REPLAY: pw_logged_process_replay() was not called.
 */
pw_error pw_logged_process_next_epoch(pw_logged_process *process,
                                      uint64_t *epoch);

/**
 * Puts length bytes into the memory of another process, and logs them here first. In a replay, a put that had arrived is not made again.
 *
 * PW_LIMIT: the log has no space, and the peer must save a checkpoint. PW_PEER_LOST and its like: the put is logged, and pw_logged_process_connect() makes it.
 * PW_BOUNDS; PW_ARGUMENT: the peer is not connected; PW_REPLAY.
 */
pw_error pw_logged_process_put(pw_logged_process *process,
                               size_t peer,
                               uint64_t offset,
                               const void *data,
                               size_t length);

/**
 * Gets length bytes from the memory of another process, which logs them. In a replay they come from that log.
 *
 * PW_LIMIT: the log has no space, and this process must save a checkpoint. PW_REPLAY: it does something else than before. PW_PEER_LOST and its like: the get
 * may be made again when another process is in the peer's place. PW_ARGUMENT: the peer is not connected; PW_BOUNDS.
 */
pw_error pw_logged_process_get(pw_logged_process *process,
                               size_t peer,
                               uint64_t offset,
                               void *data,
                               size_t length);

/**
 * Saves the memory and a note, which says where the work is; then trims the logs of the others. No other process takes part.
 *
 * note: length bytes, NULL if there are none. number: gets that of the checkpoint; NULL if nobody asks. PW_REPLAY: the process repeats its work still; as
 * pw_checkpoint_save().
 */
pw_error pw_logged_process_checkpoint(pw_logged_process *process,
                                      const void *note,
                                      size_t length,
                                      uint64_t *number);

/**
 * Makes a parity in memory of this process: of so many members, each of which saves length bytes at most. A thread of the library takes what they save. *parity
 * is NULL after an error. The node stays until pw_parity_free().
 *
 * PW_ARGUMENT: there are no members, or more than 65,536; PW_NO_MEMORY, PW_HEAP, PW_SYSTEM; as pw_log_make(), as it takes a log.
 */
pw_error pw_parity_make(pw_node *node,
                        size_t members,
                        uint64_t length,
                        pw_parity **parity);

/**
 * Gives the parity's memory back; the pointer is not valid any more. Members get PW_KEY or PW_PEER_LOST. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_parity_free(pw_parity *parity);

/**
 * Gives the token by which a member joins, and by which it is rebuilt.
 *
 * PW_ARGUMENT: there is no such member; PW_HANDLE.
 */
pw_error pw_parity_token(pw_parity *parity, size_t member, pw_token *token);

/**
 * The last round that all members have saved. 0: there is none yet.
 *
 * PW_ARGUMENT, PW_HANDLE; as pw_flush_handled().
 */
pw_error pw_parity_round(pw_parity *parity, uint64_t *round);

/**
 * Joins a parity as one of its members, by its token of that member. It takes memory for two checkpoints. One process at a time is a member, which nobody checks. *joined is NULL after an error. The node stays until
 * pw_parity_member_free().
 *
 * PW_TOKEN: it is not of a parity, or of another member; PW_ARGUMENT: there is no such member; PW_NO_MEMORY, PW_HEAP; as pw_open() and pw_get().
 */
pw_error pw_parity_join(pw_node *node,
                        const pw_token *token,
                        size_t member,
                        pw_parity_member **joined);

/**
 * Joins in the place of a member that has died, whose last checkpoint is rebuilt from the parity and from the checkpoints of the others, which save nothing meanwhile.
 * pw_parity_restore() has it reach memory then. *joined is NULL after an error.
 *
 * others: the tokens (pw_parity_member_token) of the other members, count of them. rebuilt: gets what was rebuilt; NULL if nobody asks. PW_TOKEN: also, they are not one of each other member of this
 * parity, and which is wrong. PW_PARITY: no round is complete, or
 * what was rebuilt is not what was saved; as pw_parity_join().
 */
pw_error pw_parity_rebuild(pw_node *node,
                           const pw_token *token,
                           size_t member,
                           const pw_token *others,
                           size_t count,
                           pw_rebuilt *rebuilt,
                           pw_parity_member **joined);

/**
 * Gives the memory of a member's checkpoints back; the pointer is not valid any more. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_parity_member_free(pw_parity_member *member);

/**
 * Gives the token by which the place of another member is rebuilt: it names the checkpoints of this one.
 *
 * PW_ARGUMENT, PW_HANDLE; as pw_export().
 */
pw_error pw_parity_member_token(pw_parity_member *member, pw_token *token);

/**
 * Saves memory of this process as the member's checkpoint of the next round. It may change as soon as this has returned. The round counts when all members have
 * saved it: pw_parity_wait().
 *
 * memories: count of them, 1 or more, whose bytes are copied: they need no token. round: gets the round; NULL if nobody asks. PW_LIMIT: they have more bytes than the parity was made for; PW_PARITY: this
 * member has saved the round already, and others have not, or a member died in it and it was begun anew: save again; as pw_put().
 */
pw_error pw_parity_save(pw_parity_member *member,
                        const pw_memory *memories,
                        size_t count,
                        uint64_t *round);

/**
 * Has the last checkpoint of this member that all have reach memory: that of pw_parity_rebuild(), or its own.
 *
 * As pw_parity_save(). PW_ARGUMENT: the memory has another length than the checkpoint; PW_PARITY: there is none, or it is damaged. Nothing was changed
 * then.
 */
pw_error pw_parity_restore(pw_parity_member *member,
                           const pw_memory *memories,
                           size_t count,
                           uint64_t *round);

/**
 * Waits until all members have saved the round that this one has saved last.
 *
 * nanoseconds: for how long at most. round: gets the round; NULL if nobody asks. PW_TIMEOUT; as pw_get().
 */
pw_error pw_parity_wait(pw_parity_member *member, uint64_t nanoseconds, uint64_t *round);

/**
 * Has others run chains on length bytes at address, any memory of this process: a thread of the library runs them. A caller of this host that has the memory mapped
 * runs one itself if each of its steps changes one word at most. *built_ins is NULL after an error. The memory and the node stay until pw_built_ins_end().
 *
 * address, length: multiples of 8. PW_ARGUMENT; PW_SYSTEM: the memory cannot be accessed; PW_NO_MEMORY, PW_HEAP; as pw_export() and pw_log_make(), as it
 * takes a log.
 */
pw_error pw_built_ins_serve(pw_node *node,
                            void *address,
                            size_t length,
                            pw_built_ins **built_ins);

/**
 * Runs no chains any more; the pointer is not valid any more. Callers get PW_KEY or PW_PEER_LOST. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_built_ins_end(pw_built_ins *built_ins);

/**
 * Gives the address by which others run chains.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_built_ins_address(pw_built_ins *built_ins, pw_chain_address *address);

/**
 * Makes an area for PW_STEP_APPEND: two words at the offset area, the offset of the next byte that is free and that of the end. What is appended goes to the bytes
 * from first to end. Nobody may append to it meanwhile.
 *
 * PW_BOUNDS, PW_ALIGNMENT: one of them is not inside the memory, or no multiple of 8; PW_HANDLE; PW_SYSTEM: the memory cannot be accessed.
 */
pw_error pw_built_ins_begin_area(pw_built_ins *built_ins,
                                 uint64_t area,
                                 uint64_t first,
                                 uint64_t end);

/**
 * Opens the built-in handlers that an address names. *remote is NULL after an error. The node stays until they are closed.
 *
 * PW_TOKEN: it is no address; PW_ARGUMENT; PW_NO_MEMORY, PW_HEAP; as pw_open().
 */
pw_error pw_built_ins_open(pw_node *node,
                           const pw_chain_address *address,
                           pw_remote_built_ins **remote);

/**
 * Closes them; the pointer is not valid any more. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_built_ins_close(pw_remote_built_ins *remote);

/**
 * Runs the steps of a chain, one after the other, and waits for what they have found. Each step is an atomic of its own, the chain as a whole is none: a step that
 * changes one word is atomic against everything, a wider one against other wider ones.
 *
 * steps: count of them. outcomes: count places; NULL if nobody asks.
 *
 * PW_ARGUMENT; PW_LIMIT: its steps move more than PW_MOST_MOVED bytes; PW_BOUNDS, PW_ALIGNMENT: a step leaves the memory, or its word is at no multiple of 8;
 * PW_SYSTEM: an area is full, or a step has found no offset. The steps before that one were run. As pw_put(): the owner is lost, or has ended them.
 */
pw_error pw_built_ins_run(pw_remote_built_ins *remote,
                          const pw_step *steps,
                          size_t count,
                          pw_outcome *outcomes);

/**
 * Has the puts of batches reach length bytes at address, any memory of this process, by a thread of the library. Single puts reach it as ever, and may overtake a
 * batch that was not flushed. *batches is NULL after an error. The memory and the node stay until pw_batches_end().
 *
 * PW_ARGUMENT; PW_SYSTEM: the memory cannot be accessed; PW_NO_MEMORY, PW_HEAP; as pw_log_make(), as it takes a log.
 */
pw_error pw_batches_to_memory(pw_node *node,
                              void *address,
                              size_t length,
                              pw_batches **batches);

/**
 * Redirects the puts by a token of pw_export() to a handler, which a thread of the library calls: those of batches and single ones, each caller's in their order.
 * Nothing reaches memory but what the handler copies there. This sets the attributes of all pages of the token (pw_set_attributes); behind pw_batches_end() they
 * are ordinary ones. *batches is NULL after an error. The memory and the node stay until pw_batches_end().
 *
 * context: is given to the handler. PW_ARGUMENT, PW_TOKEN; PW_ENGINE: the token is of another node, or was unexported, or as pw_log_make(), as it takes a log;
 * PW_NO_MEMORY, PW_HEAP, PW_SYSTEM.
 */
pw_error pw_batches_redirect(pw_node *node,
                             const pw_token *token,
                             pw_batch_handler handler,
                             void *context,
                             pw_batches **batches);

/**
 * Handles no batches any more, when the handler has returned; the pointer is not valid any more. Callers get PW_KEY or PW_PEER_LOST, and what they have not flushed
 * may be lost. NULL: nothing is done.
 *
 * PW_HANDLE; PW_IN_HANDLER: its handler calls.
 */
pw_error pw_batches_end(pw_batches *batches);

/**
 * Gives the address by which others put in batches.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_batches_address(pw_batches *batches, pw_batch_address *address);

/**
 * What has come in batches so far.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_batches_counts(pw_batches *batches, pw_batch_counts *counts);

/**
 * Opens the memory that an address names for batches. *batch is NULL after an error. Calls of several threads wait for each other. The node stays until
 * pw_batch_close().
 *
 * PW_TOKEN: it is no address; PW_ARGUMENT; as pw_open().
 */
pw_error pw_batch_open(pw_node *node,
                       const pw_batch_address *address,
                       pw_batch **batch);

/**
 * Sends what the batch has, and closes it; the pointer is not valid any more. Nobody learns whether that arrives: pw_batch_wait() before. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_batch_close(pw_batch *batch);

/**
 * Adds a put of length bytes, PW_MOST_BATCHED at most. If the message is full, it is sent first; that waits where 16 are under way. No bytes: nothing is done.
 *
 * data: is copied. PW_BOUNDS: they are not inside the memory; PW_LIMIT: they are too many; PW_ARGUMENT; as pw_put(): a message before did not arrive, and its puts
 * were not made, or nobody knows. The put is not in the batch then.
 */
pw_error pw_batch_put(pw_batch *batch,
                      uint64_t offset,
                      const void *data,
                      size_t length);

/**
 * Sends what was added. It waits only where 16 messages are under way.
 *
 * PW_HANDLE; as pw_put(): a message before did not arrive, and its puts were not made, or nobody knows. What was added is sent all the same.
 */
pw_error pw_batch_send(pw_batch *batch);

/**
 * Sends what was added, and waits until all messages are in the owner's log. The owner's death loses them from there.
 *
 * As pw_batch_send().
 */
pw_error pw_batch_wait(pw_batch *batch);

/**
 * As pw_batch_wait(), and until the owner has handled all of them: what they were to write is in memory then. A handler must not wait so for itself.
 *
 * As pw_batch_send().
 */
pw_error pw_batch_flush_handled(pw_batch *batch);

/**
 * Puts that were added and not sent yet. 0 too if it is no batch: pw_error_message() says so.
 */
size_t pw_batch_unsent(pw_batch *batch);

/**
 * Bytes of the memory that puts go to. 0: it is no batch, and pw_error_message() says so.
 */
uint64_t pw_batch_length(pw_batch *batch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEWIRE_H */

#ifndef PAGEWIRE_H_INLINE
#define PAGEWIRE_H_INLINE
#ifdef __cplusplus
extern "C" {
#endif
/**
 * Joins the job that started this process: what mpirun and srun start, or what the environment describes. Without any of these the job has
 * one process. *node is NULL after an error.
 *
 * PW_VERSION_MISMATCH: header and library do not go together. PW_JOB, PW_ENVIRONMENT, PW_SYSTEM, PW_ENGINE: what could not be had, and why.
 */
static inline pw_error pw_node_from_env(pw_node **node) { return pw_node_from_env_for(PW_VERSION, node); }

/** A node of a job of one process, whatever the environment says. Others can reach it by tokens all the same. As pw_node_from_env(). */
static inline pw_error pw_node_alone(pw_node **node) { return pw_node_alone_for(PW_VERSION, node); }
#ifdef __cplusplus
}
#endif
#endif  /* PAGEWIRE_H_INLINE */

/* Names from before the first release. */
#include <pagewire/renamed.h>
