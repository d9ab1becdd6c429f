/* pagewire/batch.hpp: puts in batches. A part of pagewire.hpp. */
#ifndef PAGEWIRE_BATCH_HPP
#define PAGEWIRE_BATCH_HPP

#include <pagewire/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace pw {

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
    /** Adds a put of at most PW_MOST_BATCHED bytes, which are copied. If the message is full, it is sent first. */
    void put(std::uint64_t offset, const void *bytes, std::size_t length) { check(pw_batch_put(opened_.get(), offset, bytes, length)); }

    /** Adds a put of a plain value. */
    template <class T> void put_value(std::uint64_t offset, const T &value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be put");
        put(offset, &value, sizeof value);
    }

    /** Sends what was added. It waits only where 16 messages are under way. */
    void send() { check(pw_batch_send(opened_.get())); }
    /** Sends what was added, and waits until all messages are in the owner's log. */
    void wait() { check(pw_batch_wait(opened_.get())); }
    /** wait(), and until the owner has handled all of them. */
    void flush_handled() { check(pw_batch_flush_handled(opened_.get())); }
    /** Puts that were added and not sent yet. */
    std::size_t unsent() const { return pw_batch_unsent(opened_.get()); }
    /** Bytes of the memory that puts go to. */
    std::uint64_t length() const { return pw_batch_length(opened_.get()); }

private:
    friend class node;

    explicit batch(pw_batch *opened) noexcept : opened_(opened) {}

    detail::owned<pw_batch, pw_batch_close> opened_;
};

} // namespace pw

#endif /* PAGEWIRE_BATCH_HPP */
