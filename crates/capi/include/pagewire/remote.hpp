/* pagewire/remote.hpp: memory of other processes, and operations on it. A part of pagewire.hpp. */
#ifndef PAGEWIRE_REMOTE_HPP
#define PAGEWIRE_REMOTE_HPP

#include <pagewire/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace pw {

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

    /** The object of pagewire.h. */
    pw_operation *get() const noexcept { return started_; }

private:
    pw_operation *started_;
};

/** An atomic that was started, on a word of this type. */
template <class Word> class [[nodiscard]] basic_atomic_operation {
public:
    basic_atomic_operation(std::unique_ptr<Word> before, pw_operation *started) noexcept
        : before_(std::move(before)), operation_(started)
    {
    }

    /** Waits until it has ended, and gives what the word was. */
    Word wait()
    {
        operation_.wait();
        return *before_;
    }

    /** Whether it has ended. A failure is thrown. */
    bool is_done() { return operation_.is_done(); }

    /** Has the number 1 written to an eventfd(2) when it has ended. */
    void notify(int descriptor) { operation_.notify(descriptor); }

    /** The object of pagewire.h. */
    pw_operation *get() const noexcept { return operation_.get(); }

private:
    std::unique_ptr<Word> before_; /* ends behind the operation */
    operation operation_;
};

/** An atomic on a word of 8 bytes that was started. */
using atomic_operation = basic_atomic_operation<std::uint64_t>;

/** Exported memory of a process, opened by its token. */
class remote {
public:
    /** Bytes of it. */
    std::uint64_t length() const { return pw_remote_length(opened_.get()); }

    /** Starts a put of bytes, which stay as they are until it has ended. */
    operation put(std::uint64_t offset, const void *bytes, std::size_t length)
    {
        return started([&](pw_operation **to) { return pw_put_start(opened_.get(), offset, bytes, length, to); });
    }

    /** Starts a get of bytes, which nobody uses until it has ended. */
    operation get(std::uint64_t offset, void *bytes, std::size_t length)
    {
        return started([&](pw_operation **to) { return pw_get_start(opened_.get(), offset, bytes, length, to); });
    }

    /** Starts a put with a signal behind it: who sees the signal changed sees the bytes. */
    operation put_signal(std::uint64_t offset, const void *bytes, std::size_t length, const signal &change)
    {
        return started(
            [&](pw_operation **to) { return pw_put_signal_start(opened_.get(), offset, bytes, length, &change, to); });
    }

    /** Starts a put of pieces of bytes, each to its offset. */
    operation put_scattered(const std::vector<pw_piece> &pieces, const void *bytes, std::size_t length)
    {
        return started([&](pw_operation **to) {
            return pw_put_scattered_start(opened_.get(), pieces.data(), pieces.size(), bytes, length, to);
        });
    }

    /** Starts a get of pieces into bytes, each from its offset. */
    operation get_scattered(const std::vector<pw_piece> &pieces, void *bytes, std::size_t length)
    {
        return started([&](pw_operation **to) {
            return pw_get_scattered_start(opened_.get(), pieces.data(), pieces.size(), bytes, length, to);
        });
    }

    /** Puts a value, and waits until it is visible there. */
    template <class T> void put_value(std::uint64_t offset, const T &value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be put");
        check(pw_put(opened_.get(), offset, &value, sizeof value));
    }

    /** Gets a value. */
    template <class T> T get_value(std::uint64_t offset)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be got");
        T value;
        check(pw_get(opened_.get(), offset, &value, sizeof value));
        return value;
    }

    /** Changes a word without a put, and waits until that is done. */
    void change(const signal &change) { check(pw_signal_change(opened_.get(), &change)); }

    /** Starts an addition to the word of 8 bytes at an offset. */
    atomic_operation fetch_add(std::uint64_t offset, std::uint64_t add)
    {
        return atomic([&](std::uint64_t *before, pw_operation **to) {
            return pw_fetch_add_start(opened_.get(), offset, add, before, to);
        });
    }

    /** Starts a compare-swap of the word of 8 bytes at an offset. */
    atomic_operation compare_swap(std::uint64_t offset, std::uint64_t compare, std::uint64_t swap)
    {
        return atomic([&](std::uint64_t *before, pw_operation **to) {
            return pw_compare_swap_start(opened_.get(), offset, compare, swap, before, to);
        });
    }

    /** Starts a swap of the word of 8 bytes at an offset. */
    atomic_operation swap(std::uint64_t offset, std::uint64_t swap)
    {
        return atomic(
            [&](std::uint64_t *before, pw_operation **to) { return pw_swap_start(opened_.get(), offset, swap, before, to); });
    }

    /** Starts to keep the bits of the word of 8 bytes at an offset that are in bits. */
    atomic_operation fetch_and(std::uint64_t offset, std::uint64_t bits)
    {
        return atomic_of<std::uint64_t>(pw_fetch_and_start, offset, bits);
    }

    /** Starts to set the bits of the word of 8 bytes at an offset that are in bits. */
    atomic_operation fetch_or(std::uint64_t offset, std::uint64_t bits)
    {
        return atomic_of<std::uint64_t>(pw_fetch_or_start, offset, bits);
    }

    /** Starts to invert the bits of the word of 8 bytes at an offset that are in bits. */
    atomic_operation fetch_xor(std::uint64_t offset, std::uint64_t bits)
    {
        return atomic_of<std::uint64_t>(pw_fetch_xor_start, offset, bits);
    }

    /** Starts to set the word of 8 bytes at an offset to a value if that is less. */
    atomic_operation fetch_min(std::uint64_t offset, std::uint64_t value)
    {
        return atomic_of<std::uint64_t>(pw_fetch_min_start, offset, value);
    }

    /** Starts to set the word of 8 bytes at an offset to a value if that is more. */
    atomic_operation fetch_max(std::uint64_t offset, std::uint64_t value)
    {
        return atomic_of<std::uint64_t>(pw_fetch_max_start, offset, value);
    }

    /** fetch_min() of numbers with a sign. */
    basic_atomic_operation<std::int64_t> fetch_min_signed(std::uint64_t offset, std::int64_t value)
    {
        return atomic_of<std::int64_t>(pw_fetch_min_signed_start, offset, value);
    }

    /** fetch_max() of numbers with a sign. */
    basic_atomic_operation<std::int64_t> fetch_max_signed(std::uint64_t offset, std::int64_t value)
    {
        return atomic_of<std::int64_t>(pw_fetch_max_signed_start, offset, value);
    }

    /** Starts an addition to the 4 bytes at an offset. pw_fetch_add_32() says where these may lie. */
    basic_atomic_operation<std::uint32_t> fetch_add_32(std::uint64_t offset, std::uint32_t add)
    {
        return atomic_of<std::uint32_t>(pw_fetch_add_32_start, offset, add);
    }

    /** Starts a compare-swap of the 4 bytes at an offset. */
    basic_atomic_operation<std::uint32_t> compare_swap_32(std::uint64_t offset, std::uint32_t compare, std::uint32_t swap)
    {
        return atomic_of<std::uint32_t>(pw_compare_swap_32_start, offset, compare, swap);
    }

    /** Starts a swap of the 4 bytes at an offset. */
    basic_atomic_operation<std::uint32_t> swap_32(std::uint64_t offset, std::uint32_t swap)
    {
        return atomic_of<std::uint32_t>(pw_swap_32_start, offset, swap);
    }

    /** fetch_and() of the 4 bytes at an offset. */
    basic_atomic_operation<std::uint32_t> fetch_and_32(std::uint64_t offset, std::uint32_t bits)
    {
        return atomic_of<std::uint32_t>(pw_fetch_and_32_start, offset, bits);
    }

    /** fetch_or() of the 4 bytes at an offset. */
    basic_atomic_operation<std::uint32_t> fetch_or_32(std::uint64_t offset, std::uint32_t bits)
    {
        return atomic_of<std::uint32_t>(pw_fetch_or_32_start, offset, bits);
    }

    /** fetch_xor() of the 4 bytes at an offset. */
    basic_atomic_operation<std::uint32_t> fetch_xor_32(std::uint64_t offset, std::uint32_t bits)
    {
        return atomic_of<std::uint32_t>(pw_fetch_xor_32_start, offset, bits);
    }

    /** fetch_min() of the 4 bytes at an offset. */
    basic_atomic_operation<std::uint32_t> fetch_min_32(std::uint64_t offset, std::uint32_t value)
    {
        return atomic_of<std::uint32_t>(pw_fetch_min_32_start, offset, value);
    }

    /** fetch_max() of the 4 bytes at an offset. */
    basic_atomic_operation<std::uint32_t> fetch_max_32(std::uint64_t offset, std::uint32_t value)
    {
        return atomic_of<std::uint32_t>(pw_fetch_max_32_start, offset, value);
    }

    /** fetch_min_signed() of the 4 bytes at an offset. */
    basic_atomic_operation<std::int32_t> fetch_min_signed_32(std::uint64_t offset, std::int32_t value)
    {
        return atomic_of<std::int32_t>(pw_fetch_min_signed_32_start, offset, value);
    }

    /** fetch_max_signed() of the 4 bytes at an offset. */
    basic_atomic_operation<std::int32_t> fetch_max_signed_32(std::uint64_t offset, std::int32_t value)
    {
        return atomic_of<std::int32_t>(pw_fetch_max_signed_32_start, offset, value);
    }

    /** Waits until everything that was started to this peer before has ended. */
    void flush() { check(pw_flush(opened_.get())); }

    /** Starts a flush of handlers: it ends when the owner's handlers have returned for all that was started to this peer before. */
    operation flush_handled(std::uint32_t domain = PW_ALL_DOMAINS)
    {
        return started([&](pw_operation **to) { return pw_flush_handled_start(opened_.get(), domain, to); });
    }

    /** The object of pagewire.h. */
    pw_remote *get() const noexcept { return opened_.get(); }

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

    template <class Word, class Start, class... Words>
    basic_atomic_operation<Word> atomic_of(Start start, std::uint64_t offset, Words... words)
    {
        auto before = std::make_unique<Word>();
        pw_operation *started = nullptr;
        check(start(opened_.get(), offset, words..., before.get(), &started));
        return basic_atomic_operation<Word>(std::move(before), started);
    }

    detail::owned<pw_remote, pw_close> opened_;
};

} // namespace pw

#endif /* PAGEWIRE_REMOTE_HPP */
