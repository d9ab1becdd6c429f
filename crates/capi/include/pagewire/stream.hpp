/* pagewire/stream.hpp: streams of bytes. Experimental. A part of pagewire.hpp. */
#ifndef PAGEWIRE_STREAM_HPP
#define PAGEWIRE_STREAM_HPP

#include <pagewire/remote.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pw {

/** Experimental: names and promises may change with any release. A stream of bytes to and from another process. It ends before its node. Its end waits up to 5 seconds until the peer has what was sent. */
class stream {
public:
    /** Sends bytes. It returns when they are on their way. */
    void send(const void *data, std::size_t length) { check(pw_stream_send(opened_.get(), data, length, PW_FOREVER, nullptr)); }
    void send(std::string_view data) { send(data.data(), data.size()); }

    /** Sends bytes for so long at most, and gives how many were sent. */
    std::size_t send_within(std::string_view data, std::chrono::nanoseconds bound)
    {
        std::size_t sent = 0;
        pw_error code = pw_stream_send(opened_.get(), data.data(), data.size(), detail::nanoseconds(bound), &sent);
        if (code != PW_TIMEOUT)
            check(code);
        return sent;
    }

    /** Receives bytes as they come, size at most, and one at least, and gives how many. 0: the peer has sent its last one. */
    std::size_t receive(void *data, std::size_t size)
    {
        std::size_t received;
        check(pw_stream_receive(opened_.get(), data, size, PW_FOREVER, &received));
        return received;
    }

    /** receive() with a bound for the first byte. Throws PW_TIMEOUT. */
    std::size_t receive(void *data, std::size_t size, std::chrono::nanoseconds bound)
    {
        std::size_t received;
        check(pw_stream_receive(opened_.get(), data, size, detail::nanoseconds(bound), &received));
        return received;
    }

    /** Waits until all that was sent is in the peer's log. */
    void flush() { check(pw_stream_flush(opened_.get(), PW_FOREVER)); }
    /** flush() with a bound. Throws PW_TIMEOUT. */
    void flush(std::chrono::nanoseconds bound) { check(pw_stream_flush(opened_.get(), detail::nanoseconds(bound))); }

    /** Says that nothing more is sent, and waits until that is in the peer's log. */
    void shutdown() { check(pw_stream_shutdown(opened_.get(), PW_FOREVER)); }
    /** shutdown() with a bound. Throws PW_TIMEOUT; it is said all the same. */
    void shutdown(std::chrono::nanoseconds bound) { check(pw_stream_shutdown(opened_.get(), detail::nanoseconds(bound))); }

private:
    friend class node;
    friend class listener;

    explicit stream(pw_stream *opened) noexcept : opened_(opened) {}

    detail::owned<pw_stream, pw_stream_close> opened_;
};

/** Experimental: names and promises may change with any release. Where other processes ask for streams. It ends before its node. Its streams go on when it has ended. */
class listener {
public:
    /** By which others connect. */
    pw::token token() const
    {
        pw::token made;
        check(pw_listener_token(opened_.get(), &made));
        return made;
    }

    /** Waits until a process asks for a stream, and makes it. */
    [[nodiscard]] stream accept() { return accepted(PW_FOREVER); }
    /** accept() with a bound. Throws PW_TIMEOUT. */
    [[nodiscard]] stream accept(std::chrono::nanoseconds bound) { return accepted(detail::nanoseconds(bound)); }

private:
    friend class node;

    explicit listener(pw_listener *opened) noexcept : opened_(opened) {}

    stream accepted(std::uint64_t nanoseconds)
    {
        pw_stream *made;
        check(pw_stream_accept(opened_.get(), nanoseconds, &made));
        return stream(made);
    }

    detail::owned<pw_listener, pw_listener_close> opened_;
};

} // namespace pw

#endif /* PAGEWIRE_STREAM_HPP */
