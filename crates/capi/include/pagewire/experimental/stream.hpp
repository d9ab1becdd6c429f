/* pagewire/experimental/stream.hpp: streams of bytes. A part of pagewire_experimental.hpp. */
#ifndef PAGEWIRE_EXPERIMENTAL_STREAM_HPP
#define PAGEWIRE_EXPERIMENTAL_STREAM_HPP

#include <pagewire.hpp>
#include <pagewire_experimental.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pagewire::experimental {

/** A stream of bytes to and from another process. It ends before its node. Its end waits up to 5 seconds until the peer has what was sent. */
class stream {
public:
    /**
     * Asks a listener for a stream, and waits until it has accepted, without a bound if none is given. Throws PW_TIMEOUT. buffer: bytes that the peer may be
     * ahead of this process.
     */
    stream(pw::node &node, const pw::token &of, std::size_t buffer = 1 << 16, std::optional<std::chrono::nanoseconds> bound = std::nullopt)
        : opened_(connect(node, of, buffer, bound ? pw::detail::nanoseconds(*bound) : PW_FOREVER))
    {
    }

    /** Sends bytes. It returns when they are on their way. */
    void send(const void *data, std::size_t length) { pw::check(pw_stream_send(opened_.get(), data, length, PW_FOREVER, nullptr)); }
    void send(std::string_view data) { send(data.data(), data.size()); }

    /** Sends bytes for so long at most, and gives how many were sent. */
    std::size_t send_within(std::string_view data, std::chrono::nanoseconds bound)
    {
        std::size_t sent = 0;
        pw_error code = pw_stream_send(opened_.get(), data.data(), data.size(), pw::detail::nanoseconds(bound), &sent);
        if (code != PW_TIMEOUT)
            pw::check(code);
        return sent;
    }

    /** Receives bytes as they come, size at most, and one at least, and gives how many. 0: the peer has sent its last one. */
    std::size_t receive(void *data, std::size_t size)
    {
        std::size_t received;
        pw::check(pw_stream_receive(opened_.get(), data, size, PW_FOREVER, &received));
        return received;
    }

    /** receive() with a bound for the first byte. Throws PW_TIMEOUT. */
    std::size_t receive(void *data, std::size_t size, std::chrono::nanoseconds bound)
    {
        std::size_t received;
        pw::check(pw_stream_receive(opened_.get(), data, size, pw::detail::nanoseconds(bound), &received));
        return received;
    }

    /** Waits until all that was sent is in the peer's log. */
    void flush() { pw::check(pw_stream_flush(opened_.get(), PW_FOREVER)); }
    /** flush() with a bound. Throws PW_TIMEOUT. */
    void flush(std::chrono::nanoseconds bound) { pw::check(pw_stream_flush(opened_.get(), pw::detail::nanoseconds(bound))); }

    /** Says that nothing more is sent, and waits until that is in the peer's log. */
    void shutdown() { pw::check(pw_stream_shutdown(opened_.get(), PW_FOREVER)); }
    /** shutdown() with a bound. Throws PW_TIMEOUT; it is said all the same. */
    void shutdown(std::chrono::nanoseconds bound) { pw::check(pw_stream_shutdown(opened_.get(), pw::detail::nanoseconds(bound))); }

private:
    friend class listener;

    explicit stream(pw_stream *opened) noexcept : opened_(opened) {}

    static pw_stream *connect(pw::node &node, const pw::token &of, std::size_t buffer, std::uint64_t nanoseconds)
    {
        pw_stream *opened;
        pw::check(pw_stream_connect(node.get(), &of, buffer, nanoseconds, &opened));
        return opened;
    }

    pw::detail::owned<pw_stream, pw_stream_close> opened_;
};

/** Where other processes ask for streams. It ends before its node. Its streams go on when it has ended. */
class listener {
public:
    /** Makes a listener. buffer: bytes that the peers of its streams may be ahead of this process. */
    explicit listener(pw::node &node, std::size_t buffer = 1 << 16) : opened_(make(node, buffer)) {}

    /** By which others connect. */
    pw::token token() const
    {
        pw::token made;
        pw::check(pw_listener_token(opened_.get(), &made));
        return made;
    }

    /** Waits until a process asks for a stream, and makes it. */
    [[nodiscard]] stream accept() { return accept_within(PW_FOREVER); }
    /** accept() with a bound. Throws PW_TIMEOUT. */
    [[nodiscard]] stream accept(std::chrono::nanoseconds bound) { return accept_within(pw::detail::nanoseconds(bound)); }

private:
    static pw_listener *make(pw::node &node, std::size_t buffer)
    {
        pw_listener *opened;
        pw::check(pw_stream_listen(node.get(), buffer, &opened));
        return opened;
    }

    stream accept_within(std::uint64_t nanoseconds)
    {
        pw_stream *made;
        pw::check(pw_stream_accept(opened_.get(), nanoseconds, &made));
        return stream(made);
    }

    pw::detail::owned<pw_listener, pw_listener_close> opened_;
};

} // namespace pagewire::experimental

#endif /* PAGEWIRE_EXPERIMENTAL_STREAM_HPP */
