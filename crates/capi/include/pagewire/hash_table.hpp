/* pagewire/hash_table.hpp: a hash table over the processes of a job. A part of pagewire.hpp. */
#ifndef PAGEWIRE_HASH_TABLE_HPP
#define PAGEWIRE_HASH_TABLE_HPP

#include <pagewire/error.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
    /** Removes all elements, of the volumes of all processes. One process calls this, and others need not. pagewire.h says more. */
    void clear() { check(pw_table_clear(joined_.get())); }

    /**
     * Sets the value of a key if it is the expected one, and says whether it was. nullopt stands for no value. It is atomic against all that is done to the
     * key, by whomever, and has happened when this returns.
     */
    bool compare_and_set(std::uint64_t key, std::optional<std::string_view> expected, std::optional<std::string_view> value)
    {
        const auto length = [](const auto &of) { return of ? static_cast<std::uint64_t>(of->size()) : PW_ABSENT; };
        const auto bytes = [](const auto &of) { return of ? of->data() : nullptr; };
        int was_set;
        check(pw_table_compare_and_set(joined_.get(), key, bytes(expected), length(expected), bytes(value), length(value), &was_set));
        return was_set != 0;
    }

    /**
     * Goes over all elements, in any order: for (const auto &[key, value] : table). Each element that is there during the whole loop comes exactly once.
     * Anything may be done to the table in its midst. A step throws pw::error, as lookup() does.
     */
    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = std::pair<std::uint64_t, std::string>;
        using difference_type = std::ptrdiff_t;
        using pointer = const value_type *;
        using reference = const value_type &;

        /** The end of all loops. */
        iterator() noexcept = default;

        reference operator*() const { return part_[at_]; }
        pointer operator->() const { return &part_[at_]; }
        iterator &operator++()
        {
            if (++at_ >= part_.size())
                read();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator &one, const iterator &other) noexcept { return one.table_ == other.table_; }
        friend bool operator!=(const iterator &one, const iterator &other) noexcept { return !(one == other); }

    private:
        friend class hash_table;

        explicit iterator(pw_table *table) : table_(table) { read(); }

        /** What pw_table_next() hands elements to. No exception leaves it. */
        struct collector {
            std::vector<value_type> part;
            std::exception_ptr thrown;

            static int take(void *context, const pw_element *given) noexcept
            {
                auto &to = *static_cast<collector *>(context);
                try {
                    to.part.emplace_back(given->key, std::string(static_cast<const char *>(given->value), given->length));
                } catch (...) {
                    to.thrown = std::current_exception();
                }
                return 0;
            }
        };

        void read()
        {
            collector next;
            std::size_t count;
            check(pw_table_next(table_, &cursor_, collector::take, &next, &count));
            if (next.thrown)
                std::rethrow_exception(next.thrown);
            part_ = std::move(next.part);
            at_ = 0;
            if (count == 0)
                table_ = nullptr;
        }

        pw_table *table_ = nullptr;
        pw_table_cursor cursor_ = {};
        std::vector<value_type> part_;
        std::size_t at_ = 0;
    };

    /** The first element. */
    iterator begin() const { return iterator(joined_.get()); }
    /** The end of a loop. */
    iterator end() const noexcept { return {}; }

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
