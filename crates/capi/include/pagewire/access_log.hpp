/* pagewire/access_log.hpp: what peers do to pages, and handlers for it. A part of pagewire.hpp. */
#ifndef PAGEWIRE_ACCESS_LOG_HPP
#define PAGEWIRE_ACCESS_LOG_HPP

#include <pagewire/remote.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace pw {

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
template <class Handler> void handle(Handler &handler, const pw_access *given) noexcept
{
    guard([&] { handler(access{*given}); });
}
} // namespace detail

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
    /** The user domain of its pages, by which flush_handled() of peers names it. */
    std::uint32_t domain() const { return pw_log_domain(made_.get()); }

    /** Calls a handler with the records that there are, but with `most` at most. It does not wait. What the handler throws is counted and reported. */
    template <class Handler> counts poll(Handler &&handler, std::size_t most = static_cast<std::size_t>(-1))
    {
        using plain = std::remove_reference_t<Handler>;
        auto call = [](void *context, const pw_access *given) { detail::handle(*static_cast<plain *>(context), given); };
        counts done;
        check(pw_log_poll(made_.get(), most, call, const_cast<void *>(static_cast<const void *>(std::addressof(handler))), &done));
        return done;
    }

    /** Calls a handler with each record as it comes, in a thread of its own, which sleeps while there is none. */
    [[nodiscard]] serving serve(std::function<void(const access &)> handler, const events &when = {})
    {
        auto interval = detail::nanoseconds(when.interval);
        pw_events woken{when.threshold, interval};
        return serving(std::move(handler), [&](pw_handler call, void *context, pw_serving **to) {
            return pw_log_serve(made_.get(), &woken, call, context, to);
        });
    }

    /** serve() by a thread that never sleeps. */
    [[nodiscard]] serving serve_polling(std::function<void(const access &)> handler)
    {
        return serving(std::move(handler), [&](pw_handler call, void *context, pw_serving **to) {
            return pw_log_serve_polling(made_.get(), call, context, to);
        });
    }

    /** The object of pagewire.h. */
    pw_log *get() const noexcept { return made_.get(); }

private:
    friend class node;

    explicit access_log(pw_log *made) noexcept : made_(made) {}

    detail::owned<pw_log, pw_log_free> made_;
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

} // namespace pw

#endif /* PAGEWIRE_ACCESS_LOG_HPP */
