/* pagewire/hash_table.hpp: a hash table over the processes of a job. A part of pagewire.hpp. */
#ifndef PAGEWIRE_HASH_TABLE_HPP
#define PAGEWIRE_HASH_TABLE_HPP

#include <pagewire/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

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

    /** Sets the value of a key. It has happened when flush() has returned. */
    void insert(std::uint64_t key, const void *value, std::size_t length)
    {
        check(pw_table_insert(joined_.get(), key, value, length));
    }
    void insert(std::uint64_t key, std::string_view value) { insert(key, value.data(), value.size()); }

    /** Inserts several elements, in any order. Those of one process go to it together. */
    void insert_batch(const std::vector<element> &elements)
    {
        check(pw_table_insert_batch(joined_.get(), elements.data(), elements.size()));
    }

    /** The bytes of the value of a key, if there is one. */
    std::optional<std::string> lookup(std::uint64_t key) const
    {
        std::string value(64, '\0');
        std::uint64_t length;
        for (;;) {
            check(pw_table_lookup(joined_.get(), key, value.data(), value.size(), &length));
            if (length == PW_ABSENT)
                return std::nullopt;
            bool is_whole = length <= value.size();
            value.resize(static_cast<std::size_t>(length));
            if (is_whole)
                return value;
        }
    }

    /** Deletes the value of a key, if there is one. It has happened when flush() has returned. */
    void erase(std::uint64_t key) { check(pw_table_delete(joined_.get(), key)); }
    /** Waits until everything that this process has inserted and deleted is done at its owners. */
    void flush() { check(pw_table_flush(joined_.get())); }
    /** Gives the volume of this process so many cells. */
    void resize(std::size_t cells) { check(pw_table_resize(joined_.get(), cells)); }

    /** What the volume of this process has. */
    pw::volume volume() const
    {
        pw::volume now;
        check(pw_table_volume(joined_.get(), &now));
        return now;
    }

    /** Where the volume of this process is, for restart_table() and readmit() elsewhere. */
    volume_ticket ticket() const
    {
        volume_ticket made;
        check(pw_table_ticket(joined_.get(), &made));
        return made;
    }

    /** Writes a checkpoint of the volume of this process, of a durable table. */
    void checkpoint() { check(pw_table_checkpoint(joined_.get())); }

    /**
     * Has a process of restart_table() take the place of the member of its rank. Gives how many messages for that were not flushed: if there are
     * any, do everything since the last flush again.
     */
    std::uint64_t readmit(std::size_t rank, const volume_ticket &of)
    {
        std::uint64_t unflushed;
        check(pw_table_readmit(joined_.get(), rank, &of, &unflushed));
        return unflushed;
    }

private:
    friend class node;

    explicit hash_table(pw_table *joined) noexcept : joined_(joined) {}

    detail::owned<pw_table, pw_table_free> joined_;
};

} // namespace pw

#endif /* PAGEWIRE_HASH_TABLE_HPP */
