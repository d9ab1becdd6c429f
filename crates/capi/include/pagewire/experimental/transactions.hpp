/* pagewire/experimental/transactions.hpp: distributed transactions. A part of pagewire_experimental.hpp. */
#ifndef PAGEWIRE_EXPERIMENTAL_TRANSACTIONS_HPP
#define PAGEWIRE_EXPERIMENTAL_TRANSACTIONS_HPP

#include <pagewire.hpp>
#include <pagewire_experimental.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace pagewire::experimental {

/** What clients and other stores need to reach a store: plain bytes, to be sent by any means. */
using transaction_store_token = pw_transaction_store_token;

/** The value of a cell, and how many transactions have written it. */
template <class T> struct versioned {
    T value;
    std::uint64_t version;
};

/** Cells of this process, which transactions of any process get and put. It ends before its node. */
class transaction_store {
public:
    /** Makes a store of cells, each of which has a value of so many bytes: a multiple of 8. journal: the file in which what is committed survives, or none. */
    transaction_store(pw::node &node, std::uint32_t cells, std::size_t value_bytes, const std::string &journal = {})
        : made_(make(node, {cells, value_bytes, journal.empty() ? nullptr : journal.c_str()}))
    {
    }

    /** By which clients and other stores reach it. */
    transaction_store_token token() const
    {
        transaction_store_token made;
        pw::check(pw_transaction_store_export(made_.get(), &made));
        return made;
    }

    /** Takes up what the journal has, and starts the thread that handles accesses. tokens: of all stores, in the order that all have. */
    void serve(std::size_t position, const std::vector<transaction_store_token> &tokens)
    {
        pw::check(pw_transaction_store_serve(made_.get(), position, tokens.data(), tokens.size()));
    }

    /** A store that was lost is back, at the position that it had. */
    void replace(std::size_t position, const transaction_store_token &token) { pw::check(pw_transaction_store_replace(made_.get(), position, &token)); }

    /** The committed value of a cell. */
    template <class T> T cell(std::uint32_t number) const
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        T value;
        pw::check(pw_transaction_store_cell(made_.get(), number, &value, sizeof value, nullptr));
        return value;
    }

    /** cell() with its version: how many transactions have written it. */
    template <class T> versioned<T> versioned_cell(std::uint32_t number) const
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        versioned<T> found;
        pw::check(pw_transaction_store_cell(made_.get(), number, &found.value, sizeof found.value, &found.version));
        return found;
    }

    /** How many attempts of transactions hold cells now. Throws PW_SYSTEM: the journal cannot be written. */
    std::size_t held() const
    {
        std::size_t count;
        pw::check(pw_transaction_store_check(made_.get(), &count));
        return count;
    }

private:
    static pw_transaction_store *make(pw::node &node, const pw_transaction_store_options &options)
    {
        pw_transaction_store *made;
        pw::check(pw_transaction_store_make(node.get(), &options, &made));
        return made;
    }

    pw::detail::owned<pw_transaction_store, pw_transaction_store_free> made_;
};

/** The transaction of a client that is under way. Each call may throw PW_CONFLICT: nothing of it is done then. */
class transaction {
public:
    /** Gets the value of a cell. */
    template <class T> T get(std::size_t store, std::uint32_t cell)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        T value;
        pw::check(pw_transaction_get(client_, store, cell, &value, sizeof value, nullptr));
        return value;
    }

    /** get() with the version: PW_ABSENT of a cell that this transaction has put. */
    template <class T> versioned<T> get_versioned(std::size_t store, std::uint32_t cell)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        versioned<T> found;
        pw::check(pw_transaction_get(client_, store, cell, &found.value, sizeof found.value, &found.version));
        return found;
    }

    /** Puts a value into a cell, when the transaction commits. */
    template <class T> void put(std::size_t store, std::uint32_t cell, const T &value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        pw::check(pw_transaction_put(client_, store, cell, &value, sizeof value));
    }

private:
    friend class transaction_client;

    explicit transaction(pw_transaction_client *client) noexcept : client_(client) {}

    pw_transaction_client *client_;
};

/** Who makes transactions on the cells of stores, one at a time. It ends before its node. */
class transaction_client {
public:
    /** Connects to stores, by the tokens of all of them in the order that all have. */
    transaction_client(pw::node &node, const std::vector<transaction_store_token> &tokens) : opened_(open(node, tokens)) {}

    /** Makes a transaction, again and again until it has no conflict. What the body does besides gets and puts it may do several times. What it throws gives the transaction up. */
    template <class Body> void run(Body body)
    {
        for (bool again = false;; again = true) {
            try {
                try_once(body, again);
                return;
            } catch (const pw::error &why) {
                if (why.code() != PW_CONFLICT)
                    throw;
            }
        }
    }

    /** Makes a transaction once. Throws PW_CONFLICT: nothing of it is done. again: it is the last one that is tried again, behind a pause, and keeps its age. */
    template <class Body> void try_once(Body &&body, bool again = false)
    {
        pw::check(pw_transaction_start(opened_.get(), again));
        transaction started(opened_.get());
        try {
            body(started);
        } catch (...) {
            pw_transaction_abort(opened_.get());
            throw;
        }
        pw::check(pw_transaction_commit(opened_.get()));
    }

private:
    static pw_transaction_client *open(pw::node &node, const std::vector<transaction_store_token> &tokens)
    {
        pw_transaction_client *opened;
        pw::check(pw_transaction_client_open(node.get(), tokens.data(), tokens.size(), &opened));
        return opened;
    }

    pw::detail::owned<pw_transaction_client, pw_transaction_client_close> opened_;
};

} // namespace pagewire::experimental

#endif /* PAGEWIRE_EXPERIMENTAL_TRANSACTIONS_HPP */
