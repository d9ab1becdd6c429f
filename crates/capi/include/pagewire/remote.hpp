/* pagewire/remote.hpp: memory of other processes, and operations on it. A part of pagewire.hpp. */
#ifndef PAGEWIRE_REMOTE_HPP
#define PAGEWIRE_REMOTE_HPP

#include <pagewire/buffer.hpp>
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
        swap(other);
        return *this;
    }
    void swap(operation &other) noexcept { std::swap(started_, other.started_); }
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
    basic_atomic_operation(basic_atomic_operation &&) noexcept = default;
    basic_atomic_operation &operator=(basic_atomic_operation other) noexcept
    {
        std::swap(before_, other.before_);
        operation_.swap(other.operation_);
        return *this;
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

    /** Starts a put of bytes that the caller keeps: pw::borrowed(values). */
    operation put(std::uint64_t offset, borrowed_bytes<const void> bytes)
    {
        return started([&](pw_operation **to) { return pw_put_start(opened_.get(), offset, bytes.data, bytes.length, to); });
    }

    /** Starts a put of the elements of a container, which the operation takes, and gives back: std::move(values). */
    template <class Container, detail::if_owned<Container> = 0> owning_operation<Container> put(std::uint64_t offset, Container &&values)
    {
        return owning_operation<Container>::start(std::move(values), [&](auto &kept) { return put(offset, borrowed(kept)); });
    }

    /** Say who keeps the elements: std::move(values), or pw::borrowed(values). */
    template <class Container, detail::if_unclear<Container> = 0>
    operation put(std::uint64_t offset, Container &&say_std_move_or_pw_borrowed) = delete;

    /** Puts bytes, and waits for the end, as an address does not say who keeps them. wait() tells a failure. */
    operation put(std::uint64_t offset, const void *bytes, std::size_t length)
    {
        return ended(put(offset, borrowed(bytes, length)));
    }

    /** Starts a get into bytes that the caller keeps, and nobody uses until it has ended. */
    operation get(std::uint64_t offset, borrowed_bytes<void> bytes)
    {
        return started([&](pw_operation **to) { return pw_get_start(opened_.get(), offset, bytes.data, bytes.length, to); });
    }

    /** Starts a get into the elements of a container, which the operation takes, and gives back. */
    template <class Container, detail::if_owned<Container> = 0> owning_operation<Container> get(std::uint64_t offset, Container &&into)
    {
        return owning_operation<Container>::start(std::move(into), [&](auto &kept) { return get(offset, borrowed(kept)); });
    }

    /** Say who keeps the elements: std::move(values), or pw::borrowed(values). */
    template <class Container, detail::if_unclear<Container> = 0>
    operation get(std::uint64_t offset, Container &&say_std_move_or_pw_borrowed) = delete;

    /** Starts a get of so many elements, which wait() gives. */
    template <class T> owning_operation<std::vector<T>> get(std::uint64_t offset, std::size_t count)
    {
        return get(offset, std::vector<T>(count));
    }

    /** Gets bytes, and waits for the end, as an address does not say who keeps them. wait() tells a failure. */
    operation get(std::uint64_t offset, void *bytes, std::size_t length) { return ended(get(offset, borrowed(bytes, length))); }

    /** Starts a put with a signal behind it: who sees the signal changed sees the bytes. The caller keeps the bytes. */
    operation put_signal(std::uint64_t offset, borrowed_bytes<const void> bytes, const signal &change)
    {
        return started([&](pw_operation **to) {
            return pw_put_signal_start(opened_.get(), offset, bytes.data, bytes.length, &change, to);
        });
    }

    /** put_signal() of the elements of a container, which the operation takes. */
    template <class Container, detail::if_owned<Container> = 0>
    owning_operation<Container> put_signal(std::uint64_t offset, Container &&values, const signal &change)
    {
        return owning_operation<Container>::start(std::move(values), [&](auto &kept) { return put_signal(offset, borrowed(kept), change); });
    }

    /** Say who keeps the elements: std::move(values), or pw::borrowed(values). */
    template <class Container, detail::if_unclear<Container> = 0>
    operation put_signal(std::uint64_t offset, Container &&say_std_move_or_pw_borrowed, const signal &change) = delete;

    /** put_signal() that waits for the end, as an address does not say who keeps the bytes. wait() tells a failure. */
    operation put_signal(std::uint64_t offset, const void *bytes, std::size_t length, const signal &change)
    {
        return ended(put_signal(offset, borrowed(bytes, length), change));
    }

    /** Starts a put of pieces of bytes, each to its offset. The caller keeps the bytes. */
    operation put_scattered(const std::vector<pw_piece> &pieces, borrowed_bytes<const void> bytes)
    {
        return started([&](pw_operation **to) {
            return pw_put_scattered_start(opened_.get(), pieces.data(), pieces.size(), bytes.data, bytes.length, to);
        });
    }

    /** put_scattered() of the elements of a container, which the operation takes. */
    template <class Container, detail::if_owned<Container> = 0>
    owning_operation<Container> put_scattered(const std::vector<pw_piece> &pieces, Container &&values)
    {
        return owning_operation<Container>::start(std::move(values), [&](auto &kept) { return put_scattered(pieces, borrowed(kept)); });
    }

    /** Say who keeps the elements: std::move(values), or pw::borrowed(values). */
    template <class Container, detail::if_unclear<Container> = 0>
    operation put_scattered(const std::vector<pw_piece> &pieces, Container &&say_std_move_or_pw_borrowed) = delete;

    /** put_scattered() that waits for the end, as an address does not say who keeps the bytes. wait() tells a failure. */
    operation put_scattered(const std::vector<pw_piece> &pieces, const void *bytes, std::size_t length)
    {
        return ended(put_scattered(pieces, borrowed(bytes, length)));
    }

    /** Starts a get of pieces into bytes that the caller keeps, each from its offset. */
    operation get_scattered(const std::vector<pw_piece> &pieces, borrowed_bytes<void> bytes)
    {
        return started([&](pw_operation **to) {
            return pw_get_scattered_start(opened_.get(), pieces.data(), pieces.size(), bytes.data, bytes.length, to);
        });
    }

    /** get_scattered() into the elements of a container, which the operation takes, and gives back. */
    template <class Container, detail::if_owned<Container> = 0>
    owning_operation<Container> get_scattered(const std::vector<pw_piece> &pieces, Container &&into)
    {
        return owning_operation<Container>::start(std::move(into), [&](auto &kept) { return get_scattered(pieces, borrowed(kept)); });
    }

    /** Say who keeps the elements: std::move(values), or pw::borrowed(values). */
    template <class Container, detail::if_unclear<Container> = 0>
    operation get_scattered(const std::vector<pw_piece> &pieces, Container &&say_std_move_or_pw_borrowed) = delete;

    /** get_scattered() that waits for the end, as an address does not say who keeps the bytes. wait() tells a failure. */
    operation get_scattered(const std::vector<pw_piece> &pieces, void *bytes, std::size_t length)
    {
        return ended(get_scattered(pieces, borrowed(bytes, length)));
    }

    /** Puts bytes in pieces, the first at offset, each stride bytes behind the one before, and waits for the end: a column of a matrix. */
    void put_strided(std::uint64_t offset, std::uint64_t stride, std::size_t piece, borrowed_bytes<const void> bytes)
    {
        check(pw_put_strided(opened_.get(), offset, stride, piece, bytes.data, bytes.length));
    }

    /** put_strided() of the elements of a container, each of which is a piece. */
    template <class Container> std::enable_if_t<detail::is_container<const Container>::value>
    put_strided(std::uint64_t offset, std::uint64_t stride, const Container &values)
    {
        put_strided(offset, stride, sizeof *values.data(), borrowed(values));
    }

    /** Gets pieces into bytes, one behind the other, and waits for the end. As put_strided(). */
    void get_strided(std::uint64_t offset, std::uint64_t stride, std::size_t piece, borrowed_bytes<void> bytes)
    {
        check(pw_get_strided(opened_.get(), offset, stride, piece, bytes.data, bytes.length));
    }

    /** Gets so many elements, the first at offset, each stride bytes behind the one before. */
    template <class T> std::vector<T> get_strided(std::uint64_t offset, std::uint64_t stride, std::size_t count)
    {
        std::vector<T> values(count);
        get_strided(offset, stride, sizeof(T), borrowed(values));
        return values;
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

    static operation ended(operation given)
    {
        pw_wait(given.get());
        return given;
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
