/* pagewire/logged_process.hpp: processes whose puts and gets are logged. A part of pagewire.hpp. */
#ifndef PAGEWIRE_LOGGED_PROCESS_HPP
#define PAGEWIRE_LOGGED_PROCESS_HPP

#include <pagewire/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pw {

/** What one logged process gives another one: plain bytes, to be sent by any means. It is for one process only. */
using ticket = pw_ticket;

/** How a logged process begins: 0 for what is usual. */
struct logged_process_options {
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
    /** Its memory, until it ends. What others put is there behind next_epoch(). */
    void *memory() const noexcept { return pw_logged_process_memory(started_.get()); }

    /** The note of the checkpoint that it was restored from. Nothing: it was not restored. */
    std::optional<std::string> note() const
    {
        std::uint64_t length;
        check(pw_logged_process_note(started_.get(), nullptr, 0, &length));
        if (length == PW_ABSENT)
            return std::nullopt;
        std::string note(static_cast<std::size_t>(length), '\0');
        check(pw_logged_process_note(started_.get(), note.data(), note.size(), &length));
        return note;
    }

    /** Makes a ticket for another process. */
    ticket make_ticket(std::size_t peer)
    {
        ticket made;
        check(pw_logged_process_ticket(started_.get(), peer, &made));
        return made;
    }

    /** Connects another process by the ticket that it has made for this one. */
    void connect(const ticket &given) { check(pw_logged_process_connect(started_.get(), &given)); }
    /** Takes the logs of all others, of a process that was restored. */
    void replay() { check(pw_logged_process_replay(started_.get())); }
    /** Whether it is in an epoch that the others have left. */
    bool is_replaying() const noexcept { return pw_logged_process_is_replaying(started_.get()); }

    /** A barrier of all processes has been passed. Gives how many were. */
    std::uint64_t next_epoch()
    {
        std::uint64_t epoch;
        check(pw_logged_process_next_epoch(started_.get(), &epoch));
        return epoch;
    }

    /** Puts into the memory of another process, and logs that here first. */
    void put(std::size_t peer, std::uint64_t offset, const void *data, std::size_t length)
    {
        check(pw_logged_process_put(started_.get(), peer, offset, data, length));
    }

    /** Gets from the memory of another process, which logs it. */
    void get(std::size_t peer, std::uint64_t offset, void *data, std::size_t length)
    {
        check(pw_logged_process_get(started_.get(), peer, offset, data, length));
    }

    /** Saves the memory and a note, and trims the logs of the others. Gives the number of the checkpoint. */
    std::uint64_t checkpoint(std::string_view note = {})
    {
        std::uint64_t number;
        check(pw_logged_process_checkpoint(started_.get(), note.data(), note.size(), &number));
        return number;
    }

private:
    friend class node;

    explicit logged_process(pw_logged_process *started) noexcept : started_(started) {}

    detail::owned<pw_logged_process, pw_logged_process_end> started_;
};

} // namespace pw

#endif /* PAGEWIRE_LOGGED_PROCESS_HPP */
