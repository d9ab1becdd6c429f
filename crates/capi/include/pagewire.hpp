/*
 * pagewire.hpp: RDMA on memory that is never pinned, from C++17. A thin layer over pagewire.h, whose comments say more.
 *
 * Calls that are refused throw pw::error, whose what() is a sentence and whose code() a pw_error. Objects end what they have in their
 * destructors, which never throw. Offsets and lengths are bytes.
 */
#ifndef PAGEWIRE_HPP
#define PAGEWIRE_HPP

#include <pagewire.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace pw {

/** Why a call was refused. */
class error : public std::runtime_error {
public:
    error(pw_error code, const char *sentence) : std::runtime_error(sentence), code_(code) {}

    pw_error code() const noexcept { return code_; }

private:
    pw_error code_;
};

/** Throws what a call of pagewire.h gave, unless that is PW_OK. */
inline void check(pw_error code)
{
    if (code != PW_OK)
        throw error(code, pw_error_message());
}

/** Names exported memory. It is plain bytes: send them by any means. */
using token = pw_token;

/** What the holder of a token may do. */
enum class rights : std::uint32_t { read = PW_READ, write = PW_WRITE, atomic = PW_ATOMIC, all = PW_READ | PW_WRITE | PW_ATOMIC };

constexpr rights operator|(rights left, rights right)
{
    return static_cast<rights>(static_cast<std::uint32_t>(left) | static_cast<std::uint32_t>(right));
}

/** What becomes of a word behind a put. */
struct signal : pw_signal {
    /** Sets the word of 8 bytes at an offset. */
    static signal set(std::uint64_t offset, std::uint64_t value) { return signal{{offset, value, PW_SET}}; }

    /** Adds to the word of 8 bytes at an offset. */
    static signal add(std::uint64_t offset, std::uint64_t value) { return signal{{offset, value, PW_ADD}}; }
};

/**
 * An operation that was started. The destructor waits for its end, so that the buffer may end behind it; it forgets a failure, of which
 * wait() tells.
 */
class [[nodiscard]] operation {
public:
    explicit operation(pw_operation *started) noexcept : started_(started) {}
    operation(operation &&other) noexcept : started_(std::exchange(other.started_, nullptr)) {}
    operation &operator=(operation other) noexcept
    {
        std::swap(started_, other.started_);
        return *this;
    }
    ~operation()
    {
        if (started_) {
            pw_wait(started_);
            pw_operation_free(started_);
        }
    }

    /** Waits until the bytes are visible at the target, or here for a get. */
    void wait() { check(pw_wait(started_)); }

    /** wait() for so long at most. False: it has not ended. A failure is thrown. */
    bool wait_for(std::chrono::nanoseconds time)
    {
        pw_error code = pw_wait_for(started_, time.count() < 0 ? 0 : static_cast<uint64_t>(time.count()));
        if (code == PW_UNFINISHED)
            return false;
        check(code);
        return true;
    }

    /** Whether it has ended. A failure is thrown. */
    bool is_done()
    {
        pw_error code = pw_test(started_);
        if (code == PW_UNFINISHED)
            return false;
        check(code);
        return true;
    }

    /** Has the number 1 written to an eventfd(2) when it has ended. */
    void notify(int descriptor) { check(pw_notify(started_, descriptor)); }

private:
    pw_operation *started_;
};

/** An atomic that was started. */
class [[nodiscard]] atomic_operation {
public:
    atomic_operation(std::unique_ptr<std::uint64_t> before, pw_operation *started) noexcept
        : before_(std::move(before)), operation_(started)
    {
    }

    /** Waits until it has ended, and gives what the word was. */
    std::uint64_t wait()
    {
        operation_.wait();
        return *before_;
    }

    /** Whether it has ended. A failure is thrown. */
    bool is_done() { return operation_.is_done(); }

    /** Has the number 1 written to an eventfd(2) when it has ended. */
    void notify(int descriptor) { operation_.notify(descriptor); }

private:
    std::unique_ptr<std::uint64_t> before_; /* ends behind the operation */
    operation operation_;
};

/** Exported memory of a process, opened by its token. */
class remote {
public:
    remote(remote &&other) noexcept : opened_(std::exchange(other.opened_, nullptr)) {}
    remote &operator=(remote other) noexcept
    {
        std::swap(opened_, other.opened_);
        return *this;
    }
    ~remote() { pw_close(opened_); }

    /** Bytes of it. */
    std::uint64_t length() const { return pw_remote_length(opened_); }

    /** Starts a put of bytes, which stay as they are until it has ended. */
    operation put(std::uint64_t offset, const void *bytes, std::size_t length)
    {
        return started([&](pw_operation **to) { return pw_put_start(opened_, offset, bytes, length, to); });
    }

    /** Starts a get of bytes, which nobody uses until it has ended. */
    operation get(std::uint64_t offset, void *bytes, std::size_t length)
    {
        return started([&](pw_operation **to) { return pw_get_start(opened_, offset, bytes, length, to); });
    }

    /** Starts a put with a signal behind it: who sees the signal changed sees the bytes. */
    operation put_signal(std::uint64_t offset, const void *bytes, std::size_t length, const signal &change)
    {
        return started(
            [&](pw_operation **to) { return pw_put_signal_start(opened_, offset, bytes, length, &change, to); });
    }

    /** Starts a put of pieces of bytes, each to its offset. */
    operation put_scattered(const std::vector<pw_piece> &pieces, const void *bytes, std::size_t length)
    {
        return started([&](pw_operation **to) {
            return pw_put_scattered_start(opened_, pieces.data(), pieces.size(), bytes, length, to);
        });
    }

    /** Starts a get of pieces into bytes, each from its offset. */
    operation get_scattered(const std::vector<pw_piece> &pieces, void *bytes, std::size_t length)
    {
        return started([&](pw_operation **to) {
            return pw_get_scattered_start(opened_, pieces.data(), pieces.size(), bytes, length, to);
        });
    }

    /** Puts a value, and waits until it is visible there. */
    template <class T> void put_value(std::uint64_t offset, const T &value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be put");
        check(pw_put(opened_, offset, &value, sizeof value));
    }

    /** Gets a value. */
    template <class T> T get_value(std::uint64_t offset)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be got");
        T value;
        check(pw_get(opened_, offset, &value, sizeof value));
        return value;
    }

    /** Changes a word without a put, and waits until that is done. */
    void change(const signal &change) { check(pw_signal_change(opened_, &change)); }

    /** Starts an addition to the word of 8 bytes at an offset. */
    atomic_operation fetch_add(std::uint64_t offset, std::uint64_t add)
    {
        return atomic([&](std::uint64_t *before, pw_operation **to) {
            return pw_fetch_add_start(opened_, offset, add, before, to);
        });
    }

    /** Starts a compare-swap of the word of 8 bytes at an offset. */
    atomic_operation compare_swap(std::uint64_t offset, std::uint64_t compare, std::uint64_t swap)
    {
        return atomic([&](std::uint64_t *before, pw_operation **to) {
            return pw_compare_swap_start(opened_, offset, compare, swap, before, to);
        });
    }

    /** Starts a swap of the word of 8 bytes at an offset. */
    atomic_operation swap(std::uint64_t offset, std::uint64_t swap)
    {
        return atomic(
            [&](std::uint64_t *before, pw_operation **to) { return pw_swap_start(opened_, offset, swap, before, to); });
    }

    /** Waits until everything that was started to this peer before has ended. */
    void flush() { check(pw_flush(opened_)); }

    /** Starts a flush of handlers: it ends when the owner's handlers have returned for all that was started to this peer before. */
    operation flush_handled(std::uint32_t domain = PW_ALL_DOMAINS)
    {
        return started([&](pw_operation **to) { return pw_flush_handled_start(opened_, domain, to); });
    }

    /** The object of pagewire.h. */
    pw_remote *get() const noexcept { return opened_; }

private:
    friend class node;

    explicit remote(pw_remote *opened) noexcept : opened_(opened) {}

    template <class Start> static operation started(Start start)
    {
        pw_operation *started = nullptr;
        check(start(&started));
        return operation(started);
    }

    template <class Start> static atomic_operation atomic(Start start)
    {
        auto before = std::make_unique<std::uint64_t>();
        pw_operation *started = nullptr;
        check(start(before.get(), &started));
        return atomic_operation(std::move(before), started);
    }

    pw_remote *opened_;
};

/** The registered heap as a memory resource. A process has one heap, so all of these are equal. */
class memory_resource final : public std::pmr::memory_resource {
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        if (void *memory = pw_aligned_alloc(alignment, bytes))
            return memory;
        throw std::bad_alloc();
    }

    /* What is exported of the memory ends first. If a stopped peer is within an access, the memory stays. */
    void do_deallocate(void *memory, std::size_t, std::size_t) override { pw_free(memory); }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return dynamic_cast<const memory_resource *>(&other) != nullptr;
    }
};

/** The registered heap. */
inline std::pmr::memory_resource *heap()
{
    static memory_resource resource;
    return &resource;
}

/** The registered heap as an allocator of containers. */
template <class T> struct allocator {
    using value_type = T;

    allocator() = default;
    template <class U> allocator(const allocator<U> &) noexcept {}

    T *allocate(std::size_t count)
    {
        if (count > static_cast<std::size_t>(-1) / sizeof(T))
            throw std::bad_array_new_length();
        if (void *memory = pw_aligned_alloc(alignof(T), count * sizeof(T)))
            return static_cast<T *>(memory);
        throw std::bad_alloc();
    }

    void deallocate(T *memory, std::size_t) noexcept { pw_free(memory); }

    template <class U> bool operator==(const allocator<U> &) const noexcept { return true; }
    template <class U> bool operator!=(const allocator<U> &) const noexcept { return false; }
};

/** An access of a peer, as a handler gets it: valid until the handler returns. The members of pw_access, and what is made of them. */
struct access : pw_access {
    /** The first bytes of the data as a value. Nothing: there are fewer. */
    template <class T> std::optional<T> value() const
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are logged");
        if (data_length < sizeof(T))
            return std::nullopt;
        T copy;
        std::memcpy(&copy, data, sizeof copy);
        return copy;
    }

    /** How many bytes behind an address it begins. */
    std::ptrdiff_t offset_from(const void *begin) const noexcept
    {
        return static_cast<const char *>(address) - static_cast<const char *>(begin);
    }

    bool is_first() const noexcept { return flags & PW_FIRST; }
    bool is_last() const noexcept { return flags & PW_LAST; }
    bool was_refused() const noexcept { return flags & PW_REFUSED; }
    bool was_redirected() const noexcept { return flags & PW_REDIRECTED; }
    bool may_have_written() const noexcept { return flags & PW_MAY_HAVE_WRITTEN; }
    bool was_repeated() const noexcept { return flags & PW_REPEATED; }
};

/** What was done with a log: `handled`, and of these `failed`, whose handler has thrown. */
using counts = pw_counts;

namespace detail {
/** Calls what handles. What it throws is counted as a failure and reported; the log goes on. */
template <class Call> void guard(Call call) noexcept
{
    try {
        call();
    } catch (const std::exception &thrown) {
        pw_handler_failed(thrown.what());
    } catch (...) {
        pw_handler_failed("it has thrown what is no std::exception");
    }
}

template <class Handler> void handle(Handler &handler, const pw_access *given) noexcept
{
    guard([&] { handler(access{*given}); });
}
}  // namespace detail

/** When a thread that sleeps is woken: when a source has so many records, or so much time has passed. */
struct events {
    std::uint64_t threshold = 1;
    std::chrono::nanoseconds interval = std::chrono::milliseconds(100);
};

/** A thread that serves a log, until the destructor, or end(), has returned. The handler itself may end it, and is called no more then. */
class serving {
public:
    serving(serving &&other) noexcept
        : handler_(std::move(other.handler_)), started_(std::exchange(other.started_, nullptr))
    {
    }
    serving &operator=(serving other) noexcept
    {
        std::swap(handler_, other.handler_);
        std::swap(started_, other.started_);
        return *this;
    }
    ~serving()
    {
        if (started_)
            pw_serving_end(started_, nullptr);
    }

    /** What it has done so far. */
    counts done() const
    {
        counts now;
        check(pw_serving_counts(started_, &now));
        return now;
    }

    /** Ends it when its handler has returned. Records that come later stay in the log. */
    counts end()
    {
        counts last;
        check(pw_serving_end(started_, &last));
        started_ = nullptr;
        return last;
    }

private:
    friend class access_log;
    using function = std::function<void(const access &)>;
    /* The thread has its address. */
    using place = std::unique_ptr<std::shared_ptr<function>>;

    template <class Start> serving(function handler, Start start)
        : handler_(std::make_unique<std::shared_ptr<function>>(std::make_shared<function>(std::move(handler))))
    {
        check(start(&serving::call, handler_.get(), &started_));
    }

    static void call(void *context, const pw_access *given)
    {
        /* It may end the serving that has it. */
        std::shared_ptr<function> handler = *static_cast<std::shared_ptr<function> *>(context);
        detail::handle(*handler, given);
    }

    place handler_; /* ends behind the thread */
    pw_serving *started_ = nullptr;
};

/** What peers did to pages that name it. Its servings go on when it has ended. */
class access_log {
public:
    access_log(access_log &&other) noexcept : made_(std::exchange(other.made_, nullptr)) {}
    access_log &operator=(access_log other) noexcept
    {
        std::swap(made_, other.made_);
        return *this;
    }
    ~access_log() { pw_log_free(made_); }

    /** The user domain of its pages, by which flush_handled() of peers names it. */
    std::uint32_t domain() const { return pw_log_domain(made_); }

    /** Calls a handler with the records that there are, but with `most` at most. It does not wait. What the handler throws is counted and reported. */
    template <class Handler> counts poll(Handler &&handler, std::size_t most = static_cast<std::size_t>(-1))
    {
        using plain = std::remove_reference_t<Handler>;
        auto call = [](void *context, const pw_access *given) { detail::handle(*static_cast<plain *>(context), given); };
        counts done;
        check(pw_log_poll(made_, most, call, const_cast<void *>(static_cast<const void *>(std::addressof(handler))), &done));
        return done;
    }

    /** Calls a handler with each record as it comes, in a thread of its own, which sleeps while there is none. */
    [[nodiscard]] serving serve(std::function<void(const access &)> handler, const events &when = {})
    {
        auto interval = when.interval.count() > 0 ? static_cast<std::uint64_t>(when.interval.count()) : 0;
        pw_events woken{when.threshold, interval};
        return serving(std::move(handler), [&](pw_handler call, void *context, pw_serving **to) {
            return pw_log_serve(made_, &woken, call, context, to);
        });
    }

    /** serve() by a thread that never sleeps. */
    [[nodiscard]] serving serve_polling(std::function<void(const access &)> handler)
    {
        return serving(std::move(handler), [&](pw_handler call, void *context, pw_serving **to) {
            return pw_log_serve_polling(made_, call, context, to);
        });
    }

    /** The object of pagewire.h. */
    pw_log *get() const noexcept { return made_; }

private:
    friend class node;

    explicit access_log(pw_log *made) noexcept : made_(made) {}

    pw_log *made_;
};

/** Attributes of pages that are being described. They count when one of to(), to_fault_log() and set() returns; what is not named is as in ordinary memory. */
class [[nodiscard]] page_setting {
public:
    /** Puts go to the log with their data, and not to memory. */
    page_setting redirect_puts() const { return with(PW_REDIRECT_PUTS); }
    page_setting refuse_puts() const { return with(PW_REFUSE_PUTS); }
    page_setting refuse_gets() const { return with(PW_REFUSE_GETS); }
    page_setting log_puts() const { return with(PW_LOG_PUTS); }
    page_setting log_put_data() const { return with(PW_LOG_PUT_DATA); }
    page_setting log_gets() const { return with(PW_LOG_GETS); }
    page_setting log_get_data() const { return with(PW_LOG_GET_DATA); }

    /** Sets them, with records in a log. When it returns, later accesses obey. */
    void to(const access_log &log) const { apply(bits_, log.get()); }
    /** Sets them, with metadata in the fault log of the process. */
    void to_fault_log() const { apply(bits_, nullptr); }
    /** Sets attributes that log nothing. */
    void set() const { apply(bits_ & (PW_REFUSE_PUTS | PW_REFUSE_GETS), nullptr); }

private:
    friend class node;

    page_setting(pw_node *node, const token &of, std::uint64_t offset, std::uint64_t length, std::uint32_t bits) noexcept
        : node_(node), of_(of), offset_(offset), length_(length), bits_(bits)
    {
    }

    page_setting with(std::uint32_t bit) const { return page_setting(node_, of_, offset_, length_, bits_ | bit); }
    void apply(std::uint32_t bits, pw_log *log) const
    {
        check(pw_set_attributes(node_, &of_, offset_, length_, bits, log));
    }

    pw_node *node_;
    token of_;
    std::uint64_t offset_, length_;
    std::uint32_t bits_;
};

/** How a hash table's volume of this process is made, and how it changes others: 0 for what is usual. */
struct table_options {
    std::size_t cells;
    std::size_t spare = 0;
    std::size_t value_bytes = 0;
    std::uint32_t scheme = PW_NEAREST;
};

/** What the volume of a process has. */
using volume = pw_volume;

/** Where the volumes of a durable table lie when their processes do not run: 0 for what is usual. */
struct durability {
    /** The folder of the files. */
    std::string folder;
    /** Bytes that the logs of one process to one volume take. */
    std::uint64_t log_bytes = 0;
    /** PW_SYNC or PW_NO_SYNC. */
    std::uint32_t checkpoints = PW_SYNC;
};

/** Where the volume of a process is: plain bytes, to be sent by any means. */
using volume_ticket = pw_volume_ticket;

/** A hash table over the processes of a job, from keys that are not 0 to bytes. It ends before its node. */
class hash_table {
public:
    /** A key and the bytes of its value, which the caller has. */
    using element = pw_element;

    hash_table(hash_table &&other) noexcept : joined_(std::exchange(other.joined_, nullptr)) {}
    hash_table &operator=(hash_table other) noexcept
    {
        std::swap(joined_, other.joined_);
        return *this;
    }
    ~hash_table() { pw_table_free(joined_); }

    /** Sets the value of a key. It has happened when flush() has returned. */
    void insert(std::uint64_t key, const void *value, std::size_t length)
    {
        check(pw_table_insert(joined_, key, value, length));
    }
    void insert(std::uint64_t key, std::string_view value) { insert(key, value.data(), value.size()); }

    /** Inserts several elements, in any order. Those of one process go to it together. */
    void insert_batch(const std::vector<element> &elements)
    {
        check(pw_table_insert_batch(joined_, elements.data(), elements.size()));
    }

    /** The bytes of the value of a key, if there is one. */
    std::optional<std::string> lookup(std::uint64_t key) const
    {
        std::string value(64, '\0');
        std::uint64_t length;
        for (;;) {
            check(pw_table_lookup(joined_, key, value.data(), value.size(), &length));
            if (length == PW_ABSENT)
                return std::nullopt;
            bool is_whole = length <= value.size();
            value.resize(static_cast<std::size_t>(length));
            if (is_whole)
                return value;
        }
    }

    /** Deletes the value of a key, if there is one. It has happened when flush() has returned. */
    void erase(std::uint64_t key) { check(pw_table_delete(joined_, key)); }
    /** Waits until everything that this process has inserted and deleted is done at its owners. */
    void flush() { check(pw_table_flush(joined_)); }
    /** Gives the volume of this process so many cells. */
    void resize(std::size_t cells) { check(pw_table_resize(joined_, cells)); }

    /** What the volume of this process has. */
    pw::volume volume() const
    {
        pw::volume now;
        check(pw_table_volume(joined_, &now));
        return now;
    }

    /** Where the volume of this process is, for restart_table() and readmit() elsewhere. */
    volume_ticket ticket() const
    {
        volume_ticket made;
        check(pw_table_ticket(joined_, &made));
        return made;
    }

    /** Writes a checkpoint of the volume of this process, of a durable table. */
    void checkpoint() { check(pw_table_checkpoint(joined_)); }

    /**
     * Has a process of restart_table() take the place of the member of its rank. Gives how many messages for that were not flushed: if there are
     * any, do everything since the last flush again.
     */
    std::uint64_t readmit(std::size_t rank, const volume_ticket &of)
    {
        std::uint64_t unflushed;
        check(pw_table_readmit(joined_, rank, &of, &unflushed));
        return unflushed;
    }

private:
    friend class node;

    explicit hash_table(pw_table *joined) noexcept : joined_(joined) {}

    pw_table *joined_;
};

/** What was counted of a page, of a source, or of all. */
using access_counts = pw_access_counts;
/** What was counted of a page or of a source, by its number. */
using numbered_counts = pw_numbered_counts;

/** Counts what peers do by a token, until it ends. */
class counting {
public:
    counting(counting &&other) noexcept : started_(std::exchange(other.started_, nullptr)) {}
    counting &operator=(counting other) noexcept
    {
        std::swap(started_, other.started_);
        return *this;
    }
    ~counting() { pw_counting_end(started_); }

    /** All that was counted. Whatever had ended at its caller before is in it. */
    access_counts total() const { return tell([&](access_counts *to) { return pw_counting_total(started_, to); }); }
    /** What was counted of a page of 4,096 bytes, from 0 on. */
    access_counts page(std::uint64_t page) const
    {
        return tell([&](access_counts *to) { return pw_counting_page(started_, page, to); });
    }
    /** Sets all counters to zero, and gives the total that there was. */
    access_counts reset() { return tell([&](access_counts *to) { return pw_counting_reset(started_, to); }); }

    /** The pages that were accessed most, and no page that was not. */
    std::vector<numbered_counts> hottest(std::size_t most) const
    {
        std::vector<numbered_counts> list(most);
        std::size_t count;
        check(pw_counting_hottest(started_, list.data(), list.size(), &count));
        list.resize(count);
        return list;
    }

    /** What each source did: a connection of a peer. */
    std::vector<numbered_counts> sources() const
    {
        std::vector<numbered_counts> list;
        std::size_t count = 8;
        do {
            list.resize(count);
            check(pw_counting_sources(started_, list.data(), list.size(), &count));
        } while (count > list.size());
        list.resize(count);
        return list;
    }

    /** A token by which peers read the counters: an access_counts for each page. */
    token export_counters() const
    {
        token made;
        check(pw_counting_export(started_, &made));
        return made;
    }

private:
    friend class node;

    explicit counting(pw_counting *started) noexcept : started_(started) {}

    template <class Call> static access_counts tell(Call call)
    {
        access_counts counts;
        check(call(&counts));
        return counts;
    }

    pw_counting *started_;
};

/** Memory that is saved and restored. token: of exactly these bytes, if peers write them; it must stay until the checkpoint was opened. */
using memory = pw_memory;
/** What was saved. */
using saved = pw_saved;

/** What was restored. */
struct restored {
    std::uint64_t number;
    /** What the program had saved beside the memory. */
    std::string note;
};

/** Checkpoints of memory of this process, in a file. It ends before its node. */
class checkpoint {
public:
    checkpoint(checkpoint &&other) noexcept : opened_(std::exchange(other.opened_, nullptr)) {}
    checkpoint &operator=(checkpoint other) noexcept
    {
        std::swap(opened_, other.opened_);
        return *this;
    }
    ~checkpoint() { pw_checkpoint_close(opened_); }

    /** Saves the memory, with a note of the program's own. */
    pw::saved save(std::string_view note = {})
    {
        pw::saved now;
        check(pw_checkpoint_save(opened_, note.data(), note.size(), &now));
        return now;
    }

    /** Saves together with all processes of the job. remotes: that this process puts to. */
    pw::saved save_together(const std::vector<const remote *> &remotes, std::string_view note = {})
    {
        std::vector<pw_remote *> peers;
        for (const remote *peer : remotes)
            peers.push_back(peer->get());
        pw::saved now;
        check(pw_checkpoint_save_together(opened_, peers.data(), peers.size(), note.data(), note.size(), &now));
        return now;
    }

    /** Restores the memory from a checkpoint; 0 is the last one. Nothing: there is none yet. A note of more than most_note bytes is cut. */
    std::optional<pw::restored> restore(std::uint64_t number = 0, std::size_t most_note = 4096)
    {
        return restored_by(most_note, [&](void *note, std::size_t size, pw_restored *to) {
            return pw_checkpoint_restore(opened_, number, note, size, to);
        });
    }

    /** Restores together with all processes of the job, from the last checkpoint that all have. */
    std::optional<pw::restored> restore_together(std::size_t most_note = 4096)
    {
        return restored_by(most_note, [&](void *note, std::size_t size, pw_restored *to) {
            return pw_checkpoint_restore_together(opened_, note, size, to);
        });
    }

private:
    friend class node;

    explicit checkpoint(pw_checkpoint *opened) noexcept : opened_(opened) {}

    template <class Restore> static std::optional<pw::restored> restored_by(std::size_t most, Restore restore)
    {
        std::string note(most, '\0');
        pw_restored there;
        check(restore(note.data(), note.size(), &there));
        if (there.number == 0)
            return std::nullopt;
        note.resize(std::min(most, static_cast<std::size_t>(there.note_length)));
        return pw::restored{there.number, std::move(note)};
    }

    pw_checkpoint *opened_;
};

/** What one logged process gives another one: plain bytes, to be sent by any means. It is for one process only. */
using ticket = pw_ticket;

/** How a logged process begins: 0 for what is usual. */
struct process_options {
    /** Its number, less than size. */
    std::size_t rank;
    /** Processes. */
    std::size_t size;
    /** Bytes of its memory. */
    std::size_t bytes;
    /** Bytes of each log. */
    std::size_t log_bytes = 0;
    /** PW_SYNC or PW_NO_SYNC. */
    std::uint32_t checkpoints = PW_SYNC;
};

/** A process of several, whose puts and gets are logged, so that any one of them may die and repeat its work. It ends before its node. */
class logged_process {
public:
    logged_process(logged_process &&other) noexcept : started_(std::exchange(other.started_, nullptr)) {}
    logged_process &operator=(logged_process other) noexcept
    {
        std::swap(started_, other.started_);
        return *this;
    }
    ~logged_process() { pw_process_end(started_); }

    /** Its memory, until it ends. What others put is there behind next_epoch(). */
    void *memory() const noexcept { return pw_process_memory(started_); }

    /** The note of the checkpoint that it was restored from. Nothing: it was not restored. */
    std::optional<std::string> note() const
    {
        std::uint64_t length;
        check(pw_process_note(started_, nullptr, 0, &length));
        if (length == PW_ABSENT)
            return std::nullopt;
        std::string note(static_cast<std::size_t>(length), '\0');
        check(pw_process_note(started_, note.data(), note.size(), &length));
        return note;
    }

    /** Makes a ticket for another process. */
    ticket make_ticket(std::size_t peer)
    {
        ticket made;
        check(pw_process_ticket(started_, peer, &made));
        return made;
    }

    /** Connects another process by the ticket that it has made for this one. */
    void connect(const ticket &given) { check(pw_process_connect(started_, &given)); }
    /** Takes the logs of all others, of a process that was restored. */
    void replay() { check(pw_process_replay(started_)); }
    /** Whether it is in an epoch that the others have left. */
    bool is_replaying() const noexcept { return pw_process_is_replaying(started_); }

    /** A barrier of all processes has been passed. Gives how many were. */
    std::uint64_t next_epoch()
    {
        std::uint64_t epoch;
        check(pw_process_next_epoch(started_, &epoch));
        return epoch;
    }

    /** Puts into the memory of another process, and logs that here first. */
    void put(std::size_t peer, std::uint64_t offset, const void *data, std::size_t length)
    {
        check(pw_process_put(started_, peer, offset, data, length));
    }

    /** Gets from the memory of another process, which logs it. */
    void get(std::size_t peer, std::uint64_t offset, void *data, std::size_t length)
    {
        check(pw_process_get(started_, peer, offset, data, length));
    }

    /** Saves the memory and a note, and trims the logs of the others. Gives the number of the checkpoint. */
    std::uint64_t checkpoint(std::string_view note = {})
    {
        std::uint64_t number;
        check(pw_process_checkpoint(started_, note.data(), note.size(), &number));
        return number;
    }

private:
    friend class node;

    explicit logged_process(pw_process *started) noexcept : started_(started) {}

    pw_process *started_;
};

/** The bytes of a plain value, as steps of chains take them. */
template <class T> std::string as_bytes(const T &value)
{
    static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are written");
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

/** Where a step of a chain works: at an offset, if nothing else is said. */
struct step_place {
    step_place(std::uint64_t offset) : at(offset) {}

    /** So many bytes behind the offset that the word at an offset has: a pointer. */
    static step_place behind(std::uint64_t pointer, std::uint64_t by = 0) { return {PW_PLACE_BEHIND, pointer, by}; }
    /** So many bytes behind the offset that an earlier step has found; the first one has the number 0. */
    static step_place found(std::size_t step, std::uint64_t by = 0) { return {PW_PLACE_FOUND, step, by}; }

    std::uint32_t place = PW_PLACE_AT;
    std::uint64_t at;
    std::uint64_t by = 0;

private:
    step_place(std::uint32_t kind, std::uint64_t where, std::uint64_t behind) : place(kind), at(where), by(behind) {}
};

/** Steps that run one after the other at the owner of the memory. Each is an atomic of its own; the chain as a whole is none. */
class chain {
public:
    /** The next step runs only if all compare-swaps before it have swapped. */
    chain &if_swapped()
    {
        if_swapped_ = true;
        return *this;
    }

    /** Adds to a word of 8 bytes. Its word is what that was. */
    chain &fetch_add(step_place at, std::uint64_t add) { return then(PW_STEP_FETCH_ADD, at, {}, 0, add); }
    /** Puts `swap` in the place of `compare`, if that is there: as many bytes, up to 32. Its data are what was there. */
    chain &compare_swap(step_place at, std::string_view compare, std::string_view swap)
    {
        return masked_compare_swap(at, compare, std::string(compare.size(), '\xff'), swap, std::string(swap.size(), '\xff'));
    }
    /** compare_swap() of the bits that are 1 in the masks. */
    chain &masked_compare_swap(step_place at, std::string_view compare, std::string_view compared, std::string_view swap, std::string_view swapped)
    {
        if (compared.size() != compare.size() || swap.size() != compare.size() || swapped.size() != compare.size())
            throw error(PW_ARGUMENT, "a compare-swap: what it compares, what it swaps in and their masks have as many bytes each");
        then(PW_STEP_COMPARE_SWAP, at, swap, swap.size(), 0);
        steps_.back().compare = compare;
        steps_.back().compare_mask = compared;
        steps_.back().data_mask = swapped;
        return *this;
    }
    /** Reads bytes, which are its data. */
    chain &read(step_place at, std::size_t length) { return then(PW_STEP_READ, at, {}, length, 0); }
    /** Writes bytes. */
    chain &write(step_place at, std::string_view bytes) { return then(PW_STEP_WRITE, at, bytes, bytes.size(), 0); }
    /** Changes bytes to their XOR with others. Its data are what they were. */
    chain &exclusive_or(step_place at, std::string_view bytes) { return then(PW_STEP_XOR, at, bytes, bytes.size(), 0); }
    /** Takes space in an area (begin_area), and writes bytes there. Its word is their offset. */
    chain &append(std::uint64_t area, std::string_view bytes) { return then(PW_STEP_APPEND, area, bytes, bytes.size(), 0); }

private:
    friend class remote_built_ins;

    struct step {
        pw_step given;
        std::string data, data_mask, compare, compare_mask;
    };

    chain &then(std::uint32_t action, step_place at, std::string_view data, std::size_t length, std::uint64_t add)
    {
        pw_step given{};
        given.action = action;
        given.place = at.place;
        given.at = at.at;
        given.by = at.by;
        given.add = add;
        given.length = length;
        given.if_swapped = std::exchange(if_swapped_, false);
        steps_.push_back({given, std::string(data), {}, {}, {}});
        return *this;
    }

    std::vector<step> steps_;
    bool if_swapped_ = false;
};

/** What became of a step. */
struct outcome : pw_outcome {
    /** What was found: of a read, a compare-swap, an XOR. */
    std::string data;
};

/** By which others run chains: plain bytes, to be sent by any means. */
using chain_address = pw_chain_address;

/** Memory of this process on which others run chains. It ends before its node and its memory. */
class built_ins {
public:
    built_ins(built_ins &&other) noexcept : served_(std::exchange(other.served_, nullptr)) {}
    built_ins &operator=(built_ins other) noexcept
    {
        std::swap(served_, other.served_);
        return *this;
    }
    ~built_ins() { pw_built_ins_end(served_); }

    /** The address by which others run chains. */
    chain_address address() const
    {
        chain_address made;
        check(pw_built_ins_address(served_, &made));
        return made;
    }

    /** Makes an area for append(): two words at an offset, and the bytes from first to end. */
    void begin_area(std::uint64_t area, std::uint64_t first, std::uint64_t end)
    {
        check(pw_built_ins_begin_area(served_, area, first, end));
    }

private:
    friend class node;

    explicit built_ins(pw_built_ins *served) noexcept : served_(served) {}

    pw_built_ins *served_;
};

/** Built-in handlers of another process, or of this one. They end before the node that opened them. */
class remote_built_ins {
public:
    remote_built_ins(remote_built_ins &&other) noexcept : opened_(std::exchange(other.opened_, nullptr)) {}
    remote_built_ins &operator=(remote_built_ins other) noexcept
    {
        std::swap(opened_, other.opened_);
        return *this;
    }
    ~remote_built_ins() { pw_built_ins_close(opened_); }

    /** Runs a chain, and gives what each of its steps has found. */
    std::vector<outcome> run(const chain &what)
    {
        std::vector<pw_step> steps;
        std::vector<pw_outcome> told(what.steps_.size());
        std::vector<outcome> outcomes(what.steps_.size());
        for (std::size_t at = 0; at < outcomes.size(); at++) {
            const chain::step &from = what.steps_[at];
            pw_step step = from.given;
            step.data = from.data.data();
            if (step.action == PW_STEP_COMPARE_SWAP) {
                step.compare = from.compare.data();
                step.compare_mask = from.compare_mask.data();
                step.data_mask = from.data_mask.data();
            }
            bool finds = step.action == PW_STEP_COMPARE_SWAP || step.action == PW_STEP_READ || step.action == PW_STEP_XOR;
            /* What is too long is refused. */
            if (finds && step.length <= PW_MOST_MOVED) {
                outcomes[at].data.resize(step.length);
                step.found = outcomes[at].data.data();
            }
            steps.push_back(step);
        }
        check(pw_built_ins_run(opened_, steps.data(), steps.size(), told.data()));
        for (std::size_t at = 0; at < outcomes.size(); at++) {
            static_cast<pw_outcome &>(outcomes[at]) = told[at];
            if (!told[at].was_run)
                outcomes[at].data.clear();
        }
        return outcomes;
    }

private:
    friend class node;

    explicit remote_built_ins(pw_remote_built_ins *opened) noexcept : opened_(opened) {}

    pw_remote_built_ins *opened_;
};

/** By which others put in batches: plain bytes, to be sent by any means. */
using batch_address = pw_batch_address;
/** What has come in batches. */
using batch_counts = pw_batch_counts;

/** A put, as a handler gets it: valid until the handler returns. The members of pw_batched_put, and what is made of them. */
struct batched_put : pw_batched_put {
    /** The first bytes as a value. Nothing: there are fewer. */
    template <class T> std::optional<T> value() const
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are put");
        if (length < sizeof(T))
            return std::nullopt;
        T copy;
        std::memcpy(&copy, data, sizeof copy);
        return copy;
    }

    /** Has it reach memory, which it has not yet. */
    void write() const { std::memcpy(address, data, length); }
};

/** Memory of this process to which others put in batches. It ends before its node and its memory, and not by its handler. */
class batches {
public:
    batches(batches &&other) noexcept : handler_(std::move(other.handler_)), served_(std::exchange(other.served_, nullptr)) {}
    batches &operator=(batches other) noexcept
    {
        std::swap(handler_, other.handler_);
        std::swap(served_, other.served_);
        return *this;
    }
    ~batches()
    {
        /* A handler that ends itself is called again. */
        if (pw_batches_end(served_) == PW_IN_HANDLER)
            (void)handler_.release();
    }

    /** The address by which others put in batches. */
    batch_address address() const
    {
        batch_address made;
        check(pw_batches_address(served_, &made));
        return made;
    }

    /** What has come in batches so far. */
    batch_counts counts() const
    {
        batch_counts now;
        check(pw_batches_counts(served_, &now));
        return now;
    }

private:
    friend class node;
    using function = std::function<void(const batched_put &)>;

    template <class Start> batches(function handler, Start start) : handler_(std::make_unique<function>(std::move(handler)))
    {
        check(start(&batches::call, handler_.get(), &served_));
    }

    static void call(void *context, const pw_batched_put *given)
    {
        detail::guard([&] { (*static_cast<function *>(context))(batched_put{*given}); });
    }

    std::unique_ptr<function> handler_; /* ends behind the thread that calls it */
    pw_batches *served_ = nullptr;
};

/** Collects small puts to one owner, and sends them together. The destructor sends what there is, and nobody learns whether it arrives. It ends before its node. */
class batch {
public:
    batch(batch &&other) noexcept : opened_(std::exchange(other.opened_, nullptr)) {}
    batch &operator=(batch other) noexcept
    {
        std::swap(opened_, other.opened_);
        return *this;
    }
    ~batch() { pw_batch_close(opened_); }

    /** Adds a put of at most PW_MOST_BATCHED bytes, which are copied. If the message is full, it is sent first. */
    void put(std::uint64_t offset, const void *bytes, std::size_t length) { check(pw_batch_put(opened_, offset, bytes, length)); }

    /** Adds a put of a plain value. */
    template <class T> void put_value(std::uint64_t offset, const T &value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be put");
        put(offset, &value, sizeof value);
    }

    /** Sends what was added. It waits only where 16 messages are under way. */
    void send() { check(pw_batch_send(opened_)); }
    /** Sends what was added, and waits until all messages are in the owner's log. */
    void wait() { check(pw_batch_wait(opened_)); }
    /** wait(), and until the owner has handled all of them. */
    void flush_handled() { check(pw_batch_flush_handled(opened_)); }
    /** Puts that were added and not sent yet. */
    std::size_t unsent() const { return pw_batch_unsent(opened_); }
    /** Bytes of the memory that puts go to. */
    std::uint64_t length() const { return pw_batch_length(opened_); }

private:
    friend class node;

    explicit batch(pw_batch *opened) noexcept : opened_(opened) {}

    pw_batch *opened_;
};

/** What was rebuilt of a member of a parity. */
using rebuilt = pw_rebuilt;

/** The parity of the checkpoints of several processes, which this one keeps. It ends before its node. */
class parity {
public:
    parity(parity &&other) noexcept : kept_(std::exchange(other.kept_, nullptr)) {}
    parity &operator=(parity other) noexcept
    {
        std::swap(kept_, other.kept_);
        return *this;
    }
    ~parity() { pw_parity_free(kept_); }

    /** The token of a member, which no other one uses. */
    token member_token(std::size_t member) const
    {
        token made;
        check(pw_parity_token(kept_, member, &made));
        return made;
    }

    /** The last round that all members have saved. 0: there is none yet. */
    std::uint64_t round() const
    {
        std::uint64_t complete;
        check(pw_parity_round(kept_, &complete));
        return complete;
    }

private:
    friend class node;

    explicit parity(pw_parity *kept) noexcept : kept_(kept) {}

    pw_parity *kept_;
};

/** One of several processes whose checkpoints lie in its own memory and in a parity. It ends before its node. */
class parity_member {
public:
    parity_member(parity_member &&other) noexcept : joined_(std::exchange(other.joined_, nullptr)) {}
    parity_member &operator=(parity_member other) noexcept
    {
        std::swap(joined_, other.joined_);
        return *this;
    }
    ~parity_member() { pw_parity_member_free(joined_); }

    /** The token of the own checkpoints, for who rebuilds another member. */
    pw::token token() const
    {
        pw::token made;
        check(pw_parity_member_token(joined_, &made));
        return made;
    }

    /** Saves memory as the checkpoint of the next round, which counts when all members have saved. Gives the round. */
    std::uint64_t save(const std::vector<memory> &memories)
    {
        std::uint64_t round;
        check(pw_parity_save(joined_, memories.data(), memories.size(), &round));
        return round;
    }

    /** Restores memory from the own checkpoint of the last round that all members have. Gives the round. */
    std::uint64_t restore(const std::vector<memory> &memories)
    {
        std::uint64_t round;
        check(pw_parity_restore(joined_, memories.data(), memories.size(), &round));
        return round;
    }

    /** Waits until all members have saved the round that this one has saved last, and gives it. Throws PW_TIMEOUT. */
    std::uint64_t wait(std::chrono::nanoseconds bound)
    {
        std::uint64_t round;
        check(pw_parity_wait(joined_, bound.count() > 0 ? static_cast<std::uint64_t>(bound.count()) : 0, &round));
        return round;
    }

private:
    friend class node;

    explicit parity_member(pw_parity_member *joined) noexcept : joined_(joined) {}

    pw_parity_member *joined_;
};

/** Experimental. An access to a page of global memory, as a handler at its home sees it. */
using page_access = pw_page_access;
/** Experimental. What has happened at one process of a global memory. */
using global_counts = pw_gas_counts;

/** Experimental: names and promises may change with any release. Memory that all processes of a job load and store. It ends before its node. */
class global_memory {
public:
    /** A word. Relaxed loads and stores are plain instructions of the processor; read-modify-writes are atomic among all processes. */
    using word = std::atomic<std::uint64_t>;
    static_assert(sizeof(word) == sizeof(std::uint64_t) && word::is_always_lock_free, "words are changed by instructions of the processor");

    global_memory(global_memory &&other) noexcept : handler_(std::move(other.handler_)), made_(std::exchange(other.made_, nullptr)) {}
    global_memory &operator=(global_memory other) noexcept
    {
        std::swap(handler_, other.handler_);
        std::swap(made_, other.made_);
        return *this;
    }
    /** Others lose the pages of this process, and what it stored last, if leave() was not called. */
    ~global_memory() { pw_global_free(made_); }

    /** Ends it when all processes of the job have called this. */
    void leave() { check(pw_global_leave(std::exchange(made_, nullptr))); }

    /** The words of all processes. A thread that touches a page whose home is gone gets SIGSEGV. */
    word *words() const
    {
        (void)home(0); /* throws why there are none */
        return reinterpret_cast<word *>(pw_global_words(made_));
    }

    /** The words whose home is a process: the first one, and how many. */
    std::pair<std::size_t, std::size_t> home(std::size_t rank) const
    {
        std::size_t first, count;
        check(pw_global_home(made_, rank, &first, &count));
        return {first, count};
    }

    /** Has a handler called at each access to a page whose home this process is. It must not touch this memory; what it throws is reported. */
    void on_access(std::function<void(const page_access &)> handler)
    {
        auto kept = std::make_unique<function>(std::move(handler));
        check(pw_global_on_access(made_, &global_memory::call, kept.get()));
        handler_ = std::move(kept);
    }

    /** Takes the pages whose home this is, and that any process may have stored to since the last call, by the first word of each. */
    std::vector<std::uint64_t> take_dirty()
    {
        std::vector<std::uint64_t> all;
        std::size_t most = 1024, count;
        do {
            std::size_t had = all.size();
            all.resize(had + most);
            check(pw_global_take_dirty(made_, all.data() + had, most, &count));
            all.resize(had + std::min(count, most));
        } while (count > most);
        return all;
    }

    /** What has happened at this process so far. */
    global_counts counts() const
    {
        global_counts now;
        check(pw_global_counts(made_, &now));
        return now;
    }

    /** The processes that are gone. */
    std::vector<std::size_t> lost() const
    {
        std::vector<std::size_t> ranks;
        std::size_t count = 8;
        do {
            ranks.resize(count);
            check(pw_global_lost(made_, ranks.data(), ranks.size(), &count));
        } while (count > ranks.size());
        ranks.resize(count);
        return ranks;
    }

private:
    friend class node;
    using function = std::function<void(const page_access &)>;

    explicit global_memory(pw_global *made) noexcept : made_(made) {}

    static void call(void *context, const pw_page_access *given)
    {
        detail::guard([&] { (*static_cast<function *>(context))(*given); });
    }

    std::unique_ptr<function> handler_; /* ends behind the threads that call it */
    pw_global *made_;
};

/** Experimental: names and promises may change with any release. A stream of bytes to and from another process. It ends before its node. */
class stream {
public:
    stream(stream &&other) noexcept : opened_(std::exchange(other.opened_, nullptr)) {}
    stream &operator=(stream other) noexcept
    {
        std::swap(opened_, other.opened_);
        return *this;
    }
    /** Waits up to 5 seconds until the peer has what was sent. */
    ~stream() { pw_stream_close(opened_); }

    /** Sends bytes. It returns when they are on their way. */
    void send(const void *data, std::size_t length) { check(pw_send(opened_, data, length, PW_FOREVER, nullptr)); }
    void send(std::string_view data) { send(data.data(), data.size()); }

    /** Sends bytes for so long at most, and gives how many were sent. */
    std::size_t send_within(std::string_view data, std::chrono::nanoseconds bound)
    {
        std::size_t sent = 0;
        pw_error code = pw_send(opened_, data.data(), data.size(), bound.count() > 0 ? static_cast<std::uint64_t>(bound.count()) : 0, &sent);
        if (code != PW_TIMEOUT)
            check(code);
        return sent;
    }

    /** Receives bytes as they come, size at most, and one at least, and gives how many. 0: the peer has sent its last one. */
    std::size_t receive(void *data, std::size_t size)
    {
        std::size_t received;
        check(pw_receive(opened_, data, size, PW_FOREVER, &received));
        return received;
    }

    /** receive() with a bound for the first byte. Throws PW_TIMEOUT. */
    std::size_t receive(void *data, std::size_t size, std::chrono::nanoseconds bound)
    {
        std::size_t received;
        check(pw_receive(opened_, data, size, bound.count() > 0 ? static_cast<std::uint64_t>(bound.count()) : 0, &received));
        return received;
    }

    /** Waits until all that was sent is in the peer's log. */
    void flush() { check(pw_stream_flush(opened_, PW_FOREVER)); }
    /** Says that nothing more is sent, and waits until that is in the peer's log. */
    void shutdown() { check(pw_stream_shutdown(opened_, PW_FOREVER)); }

private:
    friend class node;
    friend class listener;

    explicit stream(pw_stream *opened) noexcept : opened_(opened) {}

    pw_stream *opened_;
};

/** Experimental: names and promises may change with any release. Where other processes ask for streams. It ends before its node. */
class listener {
public:
    listener(listener &&other) noexcept : opened_(std::exchange(other.opened_, nullptr)) {}
    listener &operator=(listener other) noexcept
    {
        std::swap(opened_, other.opened_);
        return *this;
    }
    /** Its streams go on. */
    ~listener() { pw_listener_close(opened_); }

    /** By which others connect. */
    pw::token token() const
    {
        pw::token made;
        check(pw_listener_token(opened_, &made));
        return made;
    }

    /** Waits until a process asks for a stream, and makes it. */
    [[nodiscard]] stream accept() { return accepted(PW_FOREVER); }
    /** accept() with a bound. Throws PW_TIMEOUT. */
    [[nodiscard]] stream accept(std::chrono::nanoseconds bound)
    {
        return accepted(bound.count() > 0 ? static_cast<std::uint64_t>(bound.count()) : 0);
    }

private:
    friend class node;

    explicit listener(pw_listener *opened) noexcept : opened_(opened) {}

    stream accepted(std::uint64_t nanoseconds)
    {
        pw_stream *made;
        check(pw_accept(opened_, nanoseconds, &made));
        return stream(made);
    }

    pw_listener *opened_;
};

/** Experimental. What clients and other stores need to reach a store: plain bytes, to be sent by any means. */
using store_token = pw_store_token;

/** Experimental: names and promises may change with any release. Cells of this process, which transactions of any process get and put. It ends before its node. */
class store {
public:
    store(store &&other) noexcept : made_(std::exchange(other.made_, nullptr)) {}
    store &operator=(store other) noexcept
    {
        std::swap(made_, other.made_);
        return *this;
    }
    ~store() { pw_store_free(made_); }

    /** By which clients and other stores reach it. */
    store_token token() const
    {
        store_token made;
        check(pw_store_export(made_, &made));
        return made;
    }

    /** Takes up what the journal has, and starts the thread that handles accesses. tokens: of all stores, in the order that all have. */
    void serve(std::size_t position, const std::vector<store_token> &tokens)
    {
        check(pw_store_serve(made_, position, tokens.data(), tokens.size()));
    }

    /** A store that was lost is back, at the position that it had. */
    void replace(std::size_t position, const store_token &token) { check(pw_store_replace(made_, position, &token)); }

    /** The committed value of a cell. */
    template <class T> T cell(std::uint32_t number) const
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        T value;
        check(pw_store_cell(made_, number, &value, sizeof value, nullptr));
        return value;
    }

    /** How many attempts of transactions hold cells now. Throws PW_FILE: the journal cannot be written. */
    std::size_t held() const
    {
        std::size_t count;
        check(pw_store_check(made_, &count));
        return count;
    }

private:
    friend class node;

    explicit store(pw_store *made) noexcept : made_(made) {}

    pw_store *made_;
};

/** Experimental. The transaction of a client that is under way. Each call may throw PW_CONFLICT: nothing of it is done then. */
class transaction {
public:
    /** Gets the value of a cell. */
    template <class T> T get(std::size_t store, std::uint32_t cell)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        T value;
        check(pw_transaction_get(client_, store, cell, &value, sizeof value, nullptr));
        return value;
    }

    /** Puts a value into a cell, when the transaction commits. */
    template <class T> void put(std::size_t store, std::uint32_t cell, const T &value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        check(pw_transaction_put(client_, store, cell, &value, sizeof value));
    }

private:
    friend class transaction_client;

    explicit transaction(pw_client *client) noexcept : client_(client) {}

    pw_client *client_;
};

/** Experimental: names and promises may change with any release. Who makes transactions on the cells of stores, one at a time. It ends before its node. */
class transaction_client {
public:
    transaction_client(transaction_client &&other) noexcept : opened_(std::exchange(other.opened_, nullptr)) {}
    transaction_client &operator=(transaction_client other) noexcept
    {
        std::swap(opened_, other.opened_);
        return *this;
    }
    ~transaction_client() { pw_client_close(opened_); }

    /** Makes a transaction, again and again until it has no conflict. What the body does besides gets and puts it may do several times. What it throws gives the transaction up. */
    template <class Body> void run(Body body)
    {
        auto pause = std::chrono::microseconds(50);
        for (bool again = false;; again = true) {
            try {
                try_once(body, again);
                return;
            } catch (const error &why) {
                if (why.code() != PW_CONFLICT)
                    throw;
            }
            std::this_thread::sleep_for(pause);
            pause = std::min(2 * pause, std::chrono::microseconds(3200));
        }
    }

    /** Makes a transaction once. Throws PW_CONFLICT: nothing of it is done. again: it is the last one that is tried again, and keeps its age. */
    template <class Body> void try_once(Body &&body, bool again = false)
    {
        check(pw_transaction_start(opened_, again));
        transaction started(opened_);
        try {
            body(started);
        } catch (...) {
            pw_transaction_abort(opened_);
            throw;
        }
        check(pw_transaction_commit(opened_));
    }

private:
    friend class node;

    explicit transaction_client(pw_client *opened) noexcept : opened_(opened) {}

    pw_client *opened_;
};

/** This process as others of its job see it. */
class node {
public:
    /** Joins the job that started this process. */
    static node from_env()
    {
        pw_node *made;
        check(pw_node_from_env(&made));
        return node(made);
    }

    /** A node of a job of one process. */
    static node alone()
    {
        pw_node *made;
        check(pw_node_alone(&made));
        return node(made);
    }

    node(node &&other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
    node &operator=(node other) noexcept
    {
        std::swap(node_, other.node_);
        return *this;
    }
    ~node()
    {
        if (node_)
            pw_node_leave(node_);
    }

    std::size_t rank() const { return pw_rank(node_); }
    std::size_t size() const { return pw_size(node_); }
    void barrier() { check(pw_barrier(node_)); }
    void flush() { check(pw_flush_all(node_)); }

    /** Gives a plain value to all processes, and takes theirs, by rank. */
    template <class T> std::vector<T> all_gather(const T &mine)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be gathered");
        std::vector<T> all(size());
        check(pw_all_gather(node_, &mine, sizeof mine, all.data()));
        return all;
    }

    /** Gives the plain value of the process root to all. */
    template <class T> T broadcast(std::size_t root, T value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be sent");
        check(pw_broadcast(node_, root, &value, sizeof value));
        return value;
    }

    /** Makes a token of any memory of this process. */
    token export_memory(void *address, std::size_t length, rights given)
    {
        token made;
        check(pw_export(node_, address, length, static_cast<std::uint32_t>(given), &made));
        return made;
    }

    /** Makes a token of the elements of a container that has data() and size(). */
    template <class Container> token export_memory(Container &container, rights given)
    {
        using element = std::remove_reference_t<decltype(*container.data())>;
        static_assert(std::is_trivially_copyable_v<element>, "only plain bytes can be exported");
        return export_memory(container.data(), container.size() * sizeof(element), given);
    }

    /** Ends what a token gives. When it returns, no access by the token is under way. */
    void unexport(const token &given) { check(pw_unexport(node_, &given)); }

    /** Opens the memory that a token names. */
    remote open(const token &given)
    {
        pw_remote *opened;
        check(pw_open(node_, &given, &opened));
        return remote(opened);
    }

    /** Makes an access log with so many bytes for each source, a connection of a peer. sources: at once, 0 for 256. */
    access_log make_access_log(std::size_t bytes, std::size_t sources = 0, bool is_ordered = true)
    {
        pw_log *made;
        check(pw_log_make(node_, bytes, sources, is_ordered ? PW_ORDERED : PW_UNORDERED, &made));
        return access_log(made);
    }

    /**
     * Begins to describe the attributes of pages of a token of this node: whole pages of 4,096 bytes, the first of which begins where the token's
     * bytes do. attributes(token, 0, 4096).redirect_puts().to(log)
     */
    page_setting attributes(const token &of, std::uint64_t offset = 0, std::uint64_t length = PW_TO_END) const
    {
        return page_setting(node_, of, offset, length, 0);
    }

    /** Makes a hash table with all processes of the job, each of which calls this. */
    hash_table join_table(const table_options &options)
    {
        pw_table_options given{options.cells, options.spare, options.value_bytes, options.scheme};
        pw_table *joined;
        check(pw_table_join(node_, &given, &joined));
        return hash_table(joined);
    }

    /** join_table() with volumes that outlive their processes: what one of the same rank has left in the folder is there. */
    hash_table join_durable_table(const table_options &options, const durability &where)
    {
        pw_table_options given{options.cells, options.spare, options.value_bytes, options.scheme};
        pw_durability kept{where.folder.c_str(), where.log_bytes, where.checkpoints};
        pw_table *joined;
        check(pw_table_join_durable(node_, &given, &kept, &joined));
        return hash_table(joined);
    }

    /** Takes the place of a member of a durable table that was killed. tickets: of all members, by rank; that of this one is not looked at. */
    hash_table restart_table(const table_options &options, const durability &where, std::size_t rank, const std::vector<volume_ticket> &tickets)
    {
        pw_table_options given{options.cells, options.spare, options.value_bytes, options.scheme};
        pw_durability kept{where.folder.c_str(), where.log_bytes, where.checkpoints};
        pw_table *joined;
        check(pw_table_restart(node_, &given, &kept, rank, tickets.data(), tickets.size(), &joined));
        return hash_table(joined);
    }

    /** Has others run chains on memory of this process, whose address and length are multiples of 8. */
    [[nodiscard]] built_ins serve_built_ins(void *address, std::size_t length)
    {
        pw_built_ins *served;
        check(pw_built_ins_serve(node_, address, length, &served));
        return built_ins(served);
    }

    /** Opens the built-in handlers that an address names. */
    remote_built_ins open_built_ins(const chain_address &address)
    {
        pw_remote_built_ins *opened;
        check(pw_built_ins_open(node_, &address, &opened));
        return remote_built_ins(opened);
    }

    /** Redirects the puts by a token to a handler, those of batches and single ones. What it throws is counted and reported. */
    [[nodiscard]] batches redirect_batches(const token &of, std::function<void(const batched_put &)> handler)
    {
        return batches(std::move(handler), [&](pw_batch_handler call, void *context, pw_batches **to) {
            return pw_batches_redirect(node_, &of, call, context, to);
        });
    }

    /** Has the puts of batches reach memory, by a thread of the library. */
    [[nodiscard]] batches batches_to_memory(void *address, std::size_t length)
    {
        return batches({}, [&](pw_batch_handler, void *, pw_batches **to) { return pw_batches_to_memory(node_, address, length, to); });
    }

    /** Opens the memory that an address names for batches. */
    batch open_batch(const batch_address &address)
    {
        pw_batch *opened;
        check(pw_batch_open(node_, &address, &opened));
        return batch(opened);
    }

    /** Begins to count what peers do by a token. counted: PW_COUNT_PUTS, PW_COUNT_GETS; refused: PW_REFUSE_PUTS, PW_REFUSE_GETS. */
    [[nodiscard]] counting count(const token &of, std::uint32_t counted = PW_COUNT_PUTS | PW_COUNT_GETS, std::uint32_t refused = 0)
    {
        pw_counting *started;
        check(pw_counting_start(node_, &of, counted, refused, &started));
        return counting(started);
    }

    /** Opens a file of checkpoints of some memory, and makes it if there is none. */
    checkpoint open_checkpoint(const std::string &path, const std::vector<memory> &memories, std::uint32_t options = PW_SYNC)
    {
        pw_checkpoint *opened;
        check(pw_checkpoint_open(node_, path.c_str(), options, memories.data(), memories.size(), &opened));
        return checkpoint(opened);
    }

    /** Begins as a process whose puts and gets are logged. If the file has a checkpoint of it, that is restored: then note() is there. */
    logged_process start_process(const std::string &path, const process_options &options)
    {
        pw_process_options given{options.rank, options.size, options.bytes, options.log_bytes, options.checkpoints};
        pw_process *started;
        check(pw_process_start(node_, path.c_str(), &given, &started));
        return logged_process(started);
    }

    /** Makes a parity of the checkpoints of so many members, each of which has so many bytes at most. */
    [[nodiscard]] parity make_parity(std::size_t members, std::uint64_t length)
    {
        pw_parity *made;
        check(pw_parity_make(node_, members, length, &made));
        return parity(made);
    }

    /** Joins a parity as one of its members. */
    [[nodiscard]] parity_member join_parity(const token &of, std::size_t member)
    {
        pw_parity_member *joined;
        check(pw_parity_join(node_, &of, member, &joined));
        return parity_member(joined);
    }

    /** Joins in the place of a member that died, and rebuilds its checkpoint. others: the tokens of all other members. */
    [[nodiscard]] std::pair<parity_member, rebuilt> rebuild_parity(const token &of, std::size_t member, const std::vector<token> &others)
    {
        pw_parity_member *joined;
        rebuilt found;
        check(pw_parity_rebuild(node_, &of, member, others.data(), others.size(), &found, &joined));
        return {parity_member(joined), found};
    }

    /** Experimental. Makes memory that all processes of the job load and store, each of which calls this with the same number of pages of 4,096 bytes. */
    [[nodiscard]] global_memory make_global_memory(std::size_t pages_each)
    {
        pw_global *made;
        check(pw_global_make(node_, pages_each, &made));
        return global_memory(made);
    }

    /** Experimental. Makes a listener for streams. buffer: bytes that the peers of its streams may be ahead of this process. */
    [[nodiscard]] listener listen(std::size_t buffer = 1 << 16)
    {
        pw_listener *made;
        check(pw_listen(node_, buffer, &made));
        return listener(made);
    }

    /** Experimental. Asks a listener for a stream, and waits until it has accepted, without a bound if none is given. Throws PW_TIMEOUT. */
    [[nodiscard]] stream connect(const token &of, std::size_t buffer = 1 << 16, std::optional<std::chrono::nanoseconds> bound = std::nullopt)
    {
        std::uint64_t nanoseconds = !bound ? PW_FOREVER : bound->count() > 0 ? static_cast<std::uint64_t>(bound->count()) : 0;
        pw_stream *opened;
        check(pw_connect(node_, &of, buffer, nanoseconds, &opened));
        return stream(opened);
    }

    /** Experimental. Makes a store of cells, each of which has a value of so many bytes: a multiple of 8. journal: the file in which what is committed survives, or none. */
    [[nodiscard]] store make_store(std::uint32_t cells, std::size_t value_bytes, const std::string &journal = {})
    {
        pw_store_options given{cells, value_bytes, journal.empty() ? nullptr : journal.c_str()};
        pw_store *made;
        check(pw_store_make(node_, &given, &made));
        return store(made);
    }

    /** Experimental. Connects to stores, by the tokens of all of them in the order that all have. */
    [[nodiscard]] transaction_client open_stores(const std::vector<store_token> &tokens)
    {
        pw_client *opened;
        check(pw_client_open(node_, tokens.data(), tokens.size(), &opened));
        return transaction_client(opened);
    }

    /** Takes the records of the fault log of the process, and calls a handler with each. Gives how many found no space there so far. */
    template <class Handler> std::uint64_t take_faults(Handler &&handler)
    {
        using plain = std::remove_reference_t<Handler>;
        auto call = [](void *context, const pw_access *given) { detail::handle(*static_cast<plain *>(context), given); };
        std::uint64_t dropped;
        check(pw_take_faults(node_, call, const_cast<void *>(static_cast<const void *>(std::addressof(handler))), &dropped));
        return dropped;
    }

    /** The path to the owner of a token, and why it is no better one. */
    std::string explain(const token &given)
    {
        char text[512];
        check(pw_explain(node_, &given, text, sizeof text));
        return text;
    }

    /** Waits until a word that peers change is at least a value, and gives it. */
    std::uint64_t wait_until_at_least(std::uint64_t &word, std::uint64_t value)
    {
        std::uint64_t seen;
        check(pw_signal_wait(node_, &word, PW_AT_LEAST, value, PW_FOREVER, &seen));
        return seen;
    }

    /** wait_until_at_least() with a bound. Throws PW_TIMEOUT. */
    std::uint64_t wait_until_at_least(std::uint64_t &word, std::uint64_t value, std::chrono::nanoseconds bound)
    {
        std::uint64_t seen;
        // A bound that is over is none that is far away.
        auto left = bound.count() > 0 ? static_cast<std::uint64_t>(bound.count()) : 0;
        check(pw_signal_wait(node_, &word, PW_AT_LEAST, value, left, &seen));
        return seen;
    }

    /** The registered heap, which all nodes of the process share. */
    std::pmr::memory_resource *resource() const { return heap(); }

    /** The object of pagewire.h. */
    pw_node *get() const noexcept { return node_; }

private:
    explicit node(pw_node *made) noexcept : node_(made) {}

    pw_node *node_;
};

} // namespace pw

#endif /* PAGEWIRE_HPP */
