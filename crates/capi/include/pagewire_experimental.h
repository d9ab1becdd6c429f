/*
 * pagewire_experimental.h: experimental applications of Pagewire, from C: global memory, a sort, streams and transactions.
 *
 * Made from crates/capi/src/experimental by cbindgen; do not edit it (crates/capi/tests/header.rs).
 *
 * Names, promises and formats may change with any release, unlike those of pagewire.h. The symbols have a version node of their own,
 * PAGEWIRE_EXPERIMENTAL: compile a program that uses them anew with each release. A library that was built without the feature "experimental"
 * has none of them, and such a program does not start.
 *
 * Errors, threads and pointers are as in pagewire.h.
 */

#ifndef PAGEWIRE_EXPERIMENTAL_H
#define PAGEWIRE_EXPERIMENTAL_H

#include <pagewire.h>

/**
 * Words of 8 bytes in a page of global memory.
 */
#define PW_GLOBAL_PAGE_WORDS 512

/**
 * Processes of a sort, at most.
 */
#define PW_MOST_SORT_PROCESSES 256

/**
 * Bytes of the buffer of a stream at least.
 */
#define PW_LEAST_STREAM_BUFFER 4096

/**
 * Bytes of a value of a cell at most.
 */
#define PW_MOST_CELL_BYTES 4096

/**
 * Bytes of a token of a store.
 */
#define PW_TRANSACTION_STORE_TOKEN_SIZE 116

/**
 * Memory that all processes of a job load and store: each has the same words at the same indices.
 */
typedef struct pw_global pw_global;

/**
 * Where other processes ask for streams.
 */
typedef struct pw_listener pw_listener;

/**
 * A stream of bytes to and from another process. Operations of a node to a peer are in order: while a stream
 * is not received from, and its buffer is full, everything else that its sender starts by that node to that process waits. Streams that are received from at different
 * paces have nodes of their own.
 */
typedef struct pw_stream pw_stream;

/**
 * Who makes transactions on the cells of stores, one at a time.
 */
typedef struct pw_transaction_client pw_transaction_client;

/**
 * Cells of this process, which transactions of any process get and put.
 */
typedef struct pw_transaction_store pw_transaction_store;

/**
 * An access to a page, as a handler at its home sees it: once for each time that the page comes to a process.
 */
typedef struct {
    /**
     * The PW_GLOBAL_PAGE_WORDS words that the process will find. What is changed here it finds, if is_alone.
     */
    uint64_t *content;
    /**
     * The first word of the page, as an index of pw_global_words().
     */
    uint64_t first_word;
    /**
     * The process whose thread touched it.
     */
    size_t by;
    /**
     * The page was touched by a store.
     */
    bool is_store;
    /**
     * No other process has a copy. Else content is a copy of its own, and what is changed there is lost.
     */
    bool is_alone;
} pw_page_access;

/**
 * A function that is called at the home of a page, before the page goes to who touched it. context is what was given along with it. It must not touch the global
 * memory, and calls for that memory give PW_IN_HANDLER. No page is served while it runs: it must not wait for a thread that makes such calls, or that touches the memory.
 * It says by pw_handler_failed() that it has failed, which is reported: the page goes all the same. An exception of C++, longjmp(3) and pthread_exit(3) must not leave it; pagewire_experimental.hpp catches exceptions.
 */
typedef void (*pw_page_handler)(void *context, const pw_page_access *access);

/**
 * What has happened at one process.
 */
typedef struct {
    /**
     * Times that a thread waited for a page or a right.
     */
    uint64_t faults;
    /**
     * Pages that came.
     */
    uint64_t pages_in;
    /**
     * Pages that were given back, or are only loaded any more.
     */
    uint64_t pages_out;
    /**
     * Pages whose home this is, and whose last stores were lost with the process that had made them.
     */
    uint64_t lost_stores;
    /**
     * Pages that nobody can give any more, because their home is gone.
     */
    uint64_t poisoned;
} pw_gas_counts;

/**
 * Who sorts, and where its files lie.
 */
typedef struct {
    /**
     * A folder that all processes of the sort share, empty at first.
     */
    const char *folder;
    /**
     * The number of this process, from 0 on.
     */
    size_t rank;
    /**
     * How many processes sort, PW_MOST_SORT_PROCESSES at most.
     */
    size_t size;
    /**
     * For how many nanoseconds others are waited for: until they begin, end, or are started again. 0: five minutes. PW_FOREVER: without a bound.
     */
    uint64_t patience;
} pw_sort_options;

/**
 * A part of the sorted keys of all processes, and what it took.
 */
typedef struct {
    /**
     * In the registered heap: pw_free() frees them. NULL after an error.
     */
    uint64_t *keys;
    /**
     * How many they are.
     */
    size_t count;
    /**
     * How many keys of all processes come before.
     */
    uint64_t position;
    /**
     * Gets of 8 bytes.
     */
    uint64_t gets;
    /**
     * Keys that the predecessor of this process had got, from the logs of others.
     */
    uint64_t from_logs;
    /**
     * Times that another process was lost.
     */
    uint64_t peers_lost;
    /**
     * The sorted run of this process came from its file.
     */
    bool run_was_saved;
} pw_sorted;

/**
 * What a store is made of.
 */
typedef struct {
    /**
     * Cells, 1 or more.
     */
    uint32_t cells;
    /**
     * Bytes of the value of each: a multiple of 8, at most PW_MOST_CELL_BYTES.
     */
    size_t value_bytes;
    /**
     * The file in which what is committed survives the death of the process. NULL: it does not.
     */
    const char *journal;
} pw_transaction_store_options;

/**
 * What clients and other stores need to reach a store: plain bytes, to be sent by any means.
 */
typedef struct {
    /**
     * Opaque.
     */
    uint8_t bytes[PW_TRANSACTION_STORE_TOKEN_SIZE];
} pw_transaction_store_token;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes global memory with all processes of the job, each of which calls this with the same number of pages of 4,096 bytes. Each is the home of so many.
 * *memory is NULL after an error. The node stays until pw_global_leave() or pw_global_free().
 *
 * PW_SYSTEM: the kernel does not let this user have such memory (userfaultfd(2)), and what to change, or another process has given another number of pages; PW_LIMIT: no pages, or
 * more than 2^28 together; PW_ARGUMENT; PW_JOB; as pw_log_make(), as it takes a log, and pw_open().
 */
pw_error pw_global_make(pw_node *node,
                        size_t pages_each,
                        pw_global **memory);

/**
 * Ends global memory when all processes of the job have called this; the pointer and the words are not valid any more, behind an error, too. NULL: nothing is done.
 *
 * PW_HANDLE; PW_IN_HANDLER: its handler calls, and nothing was done; PW_JOB: a process did not come, and the memory was freed all the same.
 */
pw_error pw_global_leave(pw_global *memory);

/**
 * Ends global memory of this process without a wait for others, which find it gone: they lose its pages, and what it stored last. The pointer and the words are not valid any more.
 * NULL: nothing is done.
 *
 * PW_HANDLE; PW_IN_HANDLER: its handler calls, and nothing was done.
 */
pw_error pw_global_free(pw_global *memory);

/**
 * The words of all processes, by plain loads and stores: pages of all times the processes times PW_GLOBAL_PAGE_WORDS. NULL: it is no global memory, and
 * pw_error_message() says so.
 *
 * The memory is as that of one x86-64 machine. A store may be overtaken by a later load of its thread of another word; atomic_thread_fence(memory_order_seq_cst) between them
 * prevents that. Read-modify-writes are atomic among all processes. A thread that touches a page whose home is gone gets SIGSEGV. A system call that
 * is given a page that is absent fails with EFAULT: touch it before.
 */
uint64_t *pw_global_words(pw_global *memory);

/**
 * The words whose home is a process of the job: *count of them, from *first on, as indices of pw_global_words().
 *
 * rank: of the process. PW_ARGUMENT: also, there is none; PW_HANDLE, PW_IN_HANDLER.
 */
pw_error pw_global_home(pw_global *memory, size_t rank, size_t *first, size_t *count);

/**
 * Has a handler called at each access to a page whose home this process is, before the page goes to who touched it: to count, to check, or to fill it. It takes the
 * place of the one before, and is called by threads of the library, one at a time, until the memory is freed.
 *
 * context: is given to the handler. PW_ARGUMENT, PW_HANDLE, PW_IN_HANDLER.
 */
pw_error pw_global_on_access(pw_global *memory,
                             pw_page_handler handler,
                             void *context);

/**
 * Takes the pages whose home this is, and that any process may have stored to since the last call, by the first word of each. A page that a process still may store to is
 * among them the next time, too. *count gets how many there were: where there are more than size, the next call gives others of them, and nothing newer.
 *
 * words: size of them. PW_ARGUMENT, PW_HANDLE, PW_IN_HANDLER.
 */
pw_error pw_global_take_dirty(pw_global *memory,
                              uint64_t *words,
                              size_t size,
                              size_t *count);

/**
 * What has happened at this process so far.
 *
 * PW_ARGUMENT, PW_HANDLE, PW_IN_HANDLER.
 */
pw_error pw_global_counts(pw_global *memory, pw_gas_counts *counts);

/**
 * The processes that are gone: *count gets how many there are, of which the first size are written.
 *
 * ranks: size of them. PW_ARGUMENT, PW_HANDLE, PW_IN_HANDLER.
 */
pw_error pw_global_lost(pw_global *memory, size_t *ranks, size_t size, size_t *count);

/**
 * Sorts the keys of all processes of a sort, each of which calls this, and gives this process its part of the result. Any of them may die at any instant: it is
 * started again with the same folder, rank and keys, and the others wait for it. It returns when all have their results.
 *
 * keys: those of this process; they stay as they are. sorted: gets the result. PW_TIMEOUT: a process is not there, and nobody has taken its place within the
 * patience; PW_SYSTEM: a file of the folder cannot be read or written; PW_ARGUMENT, PW_HANDLE; as pw_malloc() and pw_log_make().
 */
pw_error pw_sort(pw_node *node,
                 const pw_sort_options *options,
                 const uint64_t *keys,
                 size_t count,
                 pw_sorted *sorted);

/**
 * Makes a listener, to which any process that has its token connects. *listener is NULL after an error. The node stays until pw_listener_close().
 *
 * buffer: how many bytes the peers of its streams may be ahead of this process, PW_LEAST_STREAM_BUFFER or more. PW_ARGUMENT; as pw_log_make(): a process has 1,024 logs,
 * of which each stream takes one, and a listener that waits two.
 */
pw_error pw_stream_listen(pw_node *node,
                          size_t buffer,
                          pw_listener **listener);

/**
 * Gives the token by which others connect.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_listener_token(pw_listener *listener, pw_token *token);

/**
 * Waits until a process asks for a stream, and makes it. A process that has died meanwhile, or does not take the answer, is skipped, for which
 * this waits up to 5 seconds more. *stream is NULL after an error. The node stays until pw_stream_close().
 *
 * nanoseconds: for how long at most, PW_FOREVER for no bound. PW_TIMEOUT; as pw_stream_listen().
 */
pw_error pw_stream_accept(pw_listener *listener,
                          uint64_t nanoseconds,
                          pw_stream **stream);

/**
 * Closes a listener; the pointer is not valid any more. Its streams go on. Who asks later gets PW_CONNECT. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_listener_close(pw_listener *listener);

/**
 * Asks a listener for a stream, and waits until it has accepted. *stream is NULL after an error. The node stays until pw_stream_close().
 *
 * buffer: how many bytes the peer may be ahead of this process, PW_LEAST_STREAM_BUFFER or more. nanoseconds: for how long at most, PW_FOREVER for no bound.
 * A process that the listener cannot reach gets no answer. PW_TOKEN: it is of no listener; PW_CONNECT: the listener is closed, or its process cannot be reached; PW_PEER_LOST,
 * PW_TIMEOUT; as pw_stream_listen().
 */
pw_error pw_stream_connect(pw_node *node,
                           const pw_token *token,
                           size_t buffer,
                           uint64_t nanoseconds,
                           pw_stream **stream);

/**
 * Sends length bytes. It returns when they are on their way: pw_stream_flush() waits until they are in the peer's log. One thread may send while another one receives.
 *
 * nanoseconds: for how long at most, PW_FOREVER for no bound. sent: gets how many bytes were sent, behind an error, too; NULL if nobody asks. PW_TIMEOUT: the peer does not
 * read, and *sent may be less than length; PW_STREAM: the peer has closed its end, or pw_stream_shutdown() was called; PW_PEER_LOST; PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_stream_send(pw_stream *stream,
                        const void *data,
                        size_t length,
                        uint64_t nanoseconds,
                        size_t *sent);

/**
 * Receives bytes as they come, size at most, and one at least. *received gets how many: 0 says that the peer has sent its last one before, by pw_stream_shutdown() or
 * pw_stream_close().
 *
 * size: 1 or more. nanoseconds: until the first byte at most, PW_FOREVER for no bound. PW_TIMEOUT: none has come; PW_PEER_LOST: the peer is gone, and all that it had sent was received;
 * PW_STREAM: a part of the stream is missing, as the peer was stopped or lost in the midst of it; PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_stream_receive(pw_stream *stream,
                           void *data,
                           size_t size,
                           uint64_t nanoseconds,
                           size_t *received);

/**
 * Waits until all that was sent is in the peer's log. The peer's death loses it from there.
 *
 * nanoseconds: for how long at most, PW_FOREVER for no bound. As pw_stream_send().
 */
pw_error pw_stream_flush(pw_stream *stream, uint64_t nanoseconds);

/**
 * Says that nothing more is sent, and waits until that, and everything before, is in the peer's log. The peer receives 0 bytes behind it, and may send on.
 *
 * nanoseconds: for how long at most, PW_FOREVER for no bound: behind PW_TIMEOUT it is said all the same. As pw_stream_send().
 */
pw_error pw_stream_shutdown(pw_stream *stream,
                            uint64_t nanoseconds);

/**
 * Closes a stream; the pointer is not valid any more. It waits up to 5 seconds until the peer has what was sent. What the peer sends then gives it PW_STREAM. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_stream_close(pw_stream *stream);

/**
 * Makes the memory of a store, whose values are zeros. All owners tell each other their tokens (pw_transaction_store_export), and call pw_transaction_store_serve() then. *store is NULL after an
 * error. The node stays until pw_transaction_store_free().
 *
 * PW_ARGUMENT; PW_LIMIT: the cells take more than 1 GiB, with 128 bytes for each beside its value; PW_NO_MEMORY, PW_HEAP; as pw_log_make(), as it takes a log.
 */
pw_error pw_transaction_store_make(pw_node *node,
                                   const pw_transaction_store_options *options,
                                   pw_transaction_store **store);

/**
 * Gives the token by which clients and other stores reach a store.
 *
 * PW_ARGUMENT, PW_HANDLE.
 */
pw_error pw_transaction_store_export(pw_transaction_store *store, pw_transaction_store_token *token);

/**
 * Takes up what the journal has, and starts the thread that handles accesses.
 *
 * position: of this store in the list. tokens: of all stores, count of them, in the order that all have. PW_ARGUMENT: the token at the position is not that of this store, one stands
 * twice in the list, or the store is served already, or could not be before; PW_TOKEN; PW_FILE: the journal is none, is damaged, or is that of other cells or of another position, and stays as it is; PW_IN_USE: another store has it; PW_SYSTEM: it cannot be read. Behind these free the store, and make another one.
 */
pw_error pw_transaction_store_serve(pw_transaction_store *store,
                                    size_t position,
                                    const pw_transaction_store_token *tokens,
                                    size_t count);

/**
 * A store that was lost is back, at the position that it had, with another token.
 *
 * PW_LIMIT: there is no such position; PW_ARGUMENT: also, this store is not served; PW_TOKEN, PW_HANDLE.
 */
pw_error pw_transaction_store_replace(pw_transaction_store *store,
                                      size_t position,
                                      const pw_transaction_store_token *token);

/**
 * Gets the committed value of a cell of this process's own store.
 *
 * value: size bytes, as many as a value has. version: gets how many transactions have written it; NULL if nobody asks. PW_ARGUMENT: also, there is no such cell, or the store is not served.
 */
pw_error pw_transaction_store_cell(pw_transaction_store *store,
                                   uint32_t cell,
                                   void *value,
                                   size_t size,
                                   uint64_t *version);

/**
 * Whether a store is served, and commits. held: gets how many attempts of transactions hold cells now; NULL if nobody asks.
 *
 * PW_SYSTEM: its journal cannot be written, and it commits nothing any more; PW_ARGUMENT: it is not served; PW_HANDLE.
 */
pw_error pw_transaction_store_check(pw_transaction_store *store,
                                    size_t *held);

/**
 * Ends a store; the pointer is not valid any more. Transactions of others get PW_PEER_LOST. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_transaction_store_free(pw_transaction_store *store);

/**
 * Connects to stores. *client is NULL after an error. The node stays until pw_transaction_client_close(). Calls of several threads wait for each other. A node has one client
 * of a store: threads that make transactions at the same time have a node each.
 *
 * tokens: of all stores, count of them, 64 at most, in the order that all have. PW_LIMIT: also, the node has a client of one of them already; PW_ARGUMENT: also,
 * a store is served at another position; PW_TOKEN; as pw_open(), and as pw_log_make(), as it takes a log.
 */
pw_error pw_transaction_client_open(pw_node *node,
                                    const pw_transaction_store_token *tokens,
                                    size_t count,
                                    pw_transaction_client **client);

/**
 * Bytes of a value of the cells of a store, by its position in the tokens. 0: there is no such store, or it is no client, and pw_error_message() says so.
 */
size_t pw_transaction_client_value_bytes(pw_transaction_client *client,
                                         size_t store);

/**
 * Starts a transaction. One that was started and has not ended is given up.
 *
 * again: the last one is tried again, behind a pause of up to 3.2 ms, and keeps its age, by which it wins in the end. PW_HANDLE.
 */
pw_error pw_transaction_start(pw_transaction_client *client,
                              bool again);

/**
 * Gets the value of a cell, by one get. Values may not belong together before the transaction learns of its conflict: it does not commit then.
 *
 * store: its position in the tokens. value: size bytes, as many as a value has. version: gets how many transactions have written it, PW_ABSENT of a cell that this transaction has put; NULL if
 * nobody asks. PW_CONFLICT: another transaction has won, and nothing of this one is done: start it again; PW_PEER_LOST: the store is gone; PW_ARGUMENT: also, there is no such store or cell, or no
 * transaction was started; PW_HANDLE.
 */
pw_error pw_transaction_get(pw_transaction_client *client,
                            size_t store,
                            uint32_t cell,
                            void *value,
                            size_t size,
                            uint64_t *version);

/**
 * Puts a value into a cell, when the transaction commits.
 *
 * value: length bytes, as many as a value has. As pw_transaction_get().
 */
pw_error pw_transaction_put(pw_transaction_client *client,
                            size_t store,
                            uint32_t cell,
                            const void *value,
                            size_t length);

/**
 * Commits: when it returns, all is done, and every transaction that starts later sees it. The transaction has ended, whatever this gives.
 *
 * PW_CONFLICT, PW_PEER_LOST: nothing was done; PW_UNDECIDED: all or nothing was done; PW_ARGUMENT: no transaction was started; PW_HANDLE.
 */
pw_error pw_transaction_commit(pw_transaction_client *client);

/**
 * Gives a transaction up: nothing of it is done. Nothing is done if none was started.
 *
 * PW_HANDLE.
 */
pw_error pw_transaction_abort(pw_transaction_client *client);

/**
 * Closes a client, whose transaction is given up; the pointer is not valid any more. NULL: nothing is done.
 *
 * PW_HANDLE.
 */
pw_error pw_transaction_client_close(pw_transaction_client *client);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEWIRE_EXPERIMENTAL_H */

/* Names from before the first release. */
#include <pagewire/experimental/renamed.h>
