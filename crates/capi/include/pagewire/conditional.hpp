/* pagewire/conditional.hpp: writes that wait until their receiver accepts them. A part of pagewire.hpp. */
#ifndef PAGEWIRE_CONDITIONAL_HPP
#define PAGEWIRE_CONDITIONAL_HPP

#include <pagewire/remote.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace pw {

/** Names the node of a process. It is plain bytes: send them by any means. */
using peer = pw_peer;

/** The node that made a token. */
inline peer owner_of(const token &given)
{
    peer found;
    check(pw_owner(&given, &found));
    return found;
}

/** A conditional write that was started. The destructor cancels it, unless its receiver has accepted it, and waits for its end. */
class [[nodiscard]] held_write : public operation {
public:
    explicit held_write(pw_operation *started) noexcept : operation(started) {}
    held_write(held_write &&) noexcept = default;
    held_write &operator=(held_write other) noexcept
    {
        swap(other);
        return *this;
    }
    ~held_write()
    {
        if (get())
            pw_cancel(get());
    }

    /** When it returns, no byte will be written that was not accepted before. wait() throws PW_CANCELLED, or the write came first. */
    void cancel() { check(pw_cancel(get())); }

    /** Has it end with PW_TIMEOUT if it was not accepted by then. */
    void within(std::chrono::nanoseconds time) { check(pw_end_after(get(), detail::nanoseconds(time))); }
};

/** The memory for a conditional write was named. It ends with the write. The destructor waits for that, for 60 s at most if no write comes. */
class [[nodiscard]] acceptance {
public:
    acceptance(acceptance &&) noexcept = default;
    acceptance &operator=(acceptance other) noexcept
    {
        std::swap(written_, other.written_);
        operation_.swap(other.operation_);
        return *this;
    }

    /** Waits until the bytes are there, and gives their count. */
    std::uint64_t wait()
    {
        operation_.wait();
        return *written_;
    }

    /** Waits for so long at most. False: it has not ended. A failure is thrown. */
    bool wait_for(std::chrono::nanoseconds time) { return operation_.wait_for(time); }

    /** Whether it has ended. A failure is thrown. */
    bool is_done() { return operation_.is_done(); }

    /** Has the number 1 written to an eventfd(2) when it has ended. */
    void notify(int descriptor) { operation_.notify(descriptor); }

    /** The object of pagewire.h. */
    pw_operation *get() const noexcept { return operation_.get(); }

private:
    friend class node;
    friend class conditional_request;

    template <class Start> static acceptance started(Start start)
    {
        auto written = std::make_unique<std::uint64_t>();
        pw_operation *made = nullptr;
        check(start(written.get(), &made));
        return acceptance(std::move(written), made);
    }

    acceptance(std::unique_ptr<std::uint64_t> written, pw_operation *made) noexcept : written_(std::move(written)), operation_(made) {}

    std::unique_ptr<std::uint64_t> written_; /* ends behind the operation */
    operation operation_;
};

/** What a peer asks for: to write its data to this process, or to be given data of this process. One that is not answered can still be, by its tag. */
class conditional_request {
public:
    /** Who asks. */
    const peer &from() const noexcept { return info_.peer; }
    /** Couples it with its answer. */
    std::uint64_t tag() const noexcept { return info_.tag; }
    /** Bytes of the peer's data, or space for so many. */
    std::uint64_t length() const noexcept { return info_.length; }
    /** Whether the data are the peer's: accept(). Else supply(). */
    bool is_write() const noexcept { return info_.direction == PW_CONDITIONAL_WRITE; }

    /** Has the peer write to the first bytes of a token's memory. */
    acceptance accept(const token &into)
    {
        return acceptance::started(
            [&](std::uint64_t *written, pw_operation **to) { return pw_conditional_request_accept(opened_.get(), &into, written, to); });
    }

    /** Writes bytes that the caller keeps to the memory that the peer has space in. */
    held_write supply(borrowed_bytes<const void> bytes)
    {
        pw_operation *started = nullptr;
        check(pw_conditional_request_supply(opened_.get(), bytes.data, bytes.length, &started));
        return held_write(started);
    }

    /** Writes the elements of a container, which the operation takes. */
    template <class Container, detail::if_owned<Container> = 0> owning_operation<Container, held_write> supply(Container &&values)
    {
        return owning_operation<Container, held_write>::start(std::move(values), [&](auto &kept) { return supply(borrowed(kept)); });
    }

    /** Say who keeps the elements: std::move(values), or pw::borrowed(values). */
    template <class Container, detail::if_unclear<Container> = 0> held_write supply(Container &&say_std_move_or_pw_borrowed) = delete;

    /** Tells the peer that nothing comes of it. */
    void decline() { check(pw_conditional_request_decline(opened_.release())); }

private:
    friend class node;

    conditional_request(const pw_conditional_request_info &info, pw_conditional_request *opened) noexcept : info_(info), opened_(opened) {}

    pw_conditional_request_info info_;
    detail::owned<pw_conditional_request, pw_conditional_request_free> opened_;
};

} // namespace pw

#endif /* PAGEWIRE_CONDITIONAL_HPP */
