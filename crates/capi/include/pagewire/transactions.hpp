/* pagewire/transactions.hpp: distributed transactions. Experimental. A part of pagewire.hpp. */
#ifndef PAGEWIRE_TRANSACTIONS_HPP
#define PAGEWIRE_TRANSACTIONS_HPP

#include <pagewire/error.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace pw {

/** Experimental. What clients and other stores need to reach a store: plain bytes, to be sent by any means. */
using transaction_store_token = pw_transaction_store_token;

/** Experimental. The value of a cell, and how many transactions have written it. */
template <class T> struct versioned {
    T value;
    std::uint64_t version;
};

/** Experimental: names and promises may change with any release. Cells of this process, which transactions of any process get and put. It ends before its node. */
class transaction_store {
public:
    /** By which clients and other stores reach it. */
    transaction_store_token token() const
    {
        transaction_store_token made;
        check(pw_transaction_store_export(made_.get(), &made));
        return made;
    }

    /** Takes up what the journal has, and starts the thread that handles accesses. tokens: of all stores, in the order that all have. */
    void serve(std::size_t position, const std::vector<transaction_store_token> &tokens)
    {
        check(pw_transaction_store_serve(made_.get(), position, tokens.data(), tokens.size()));
    }

    /** A store that was lost is back, at the position that it had. */
    void replace(std::size_t position, const transaction_store_token &token) { check(pw_transaction_store_replace(made_.get(), position, &token)); }

    /** The committed value of a cell. */
    template <class T> T cell(std::uint32_t number) const
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        T value;
        check(pw_transaction_store_cell(made_.get(), number, &value, sizeof value, nullptr));
        return value;
    }

    /** cell() with its version: how many transactions have written it. */
    template <class T> versioned<T> versioned_cell(std::uint32_t number) const
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        versioned<T> found;
        check(pw_transaction_store_cell(made_.get(), number, &found.value, sizeof found.value, &found.version));
        return found;
    }

    /** How many attempts of transactions hold cells now. Throws PW_SYSTEM: the journal cannot be written. */
    std::size_t held() const
    {
        std::size_t count;
        check(pw_transaction_store_check(made_.get(), &count));
        return count;
    }

private:
    friend class node;

    explicit transaction_store(pw_transaction_store *made) noexcept : made_(made) {}

    detail::owned<pw_transaction_store, pw_transaction_store_free> made_;
};

/** Experimental. The transaction of a client that is under way. Each call may throw PW_CONFLICT: nothing of it is done then. */
class transaction {
public:
    /** Gets the value of a cell. */
    template <class T> T get(std::size_t store, std::uint32_t cell)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        T value;
        check(pw_transaction_get(client_, store, cell, &value, sizeof value, nullptr));
        return value;
    }

    /** get() with the version: PW_ABSENT of a cell that this transaction has put. */
    template <class T> versioned<T> get_versioned(std::size_t store, std::uint32_t cell)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        versioned<T> found;
        check(pw_transaction_get(client_, store, cell, &found.value, sizeof found.value, &found.version));
        return found;
    }

    /** Puts a value into a cell, when the transaction commits. */
    template <class T> void put(std::size_t store, std::uint32_t cell, const T &value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are values");
        check(pw_transaction_put(client_, store, cell, &value, sizeof value));
    }

private:
    friend class transaction_client;

    explicit transaction(pw_transaction_client *client) noexcept : client_(client) {}

    pw_transaction_client *client_;
};

/** Experimental: names and promises may change with any release. Who makes transactions on the cells of stores, one at a time. It ends before its node. */
class transaction_client {
public:
    /** Makes a transaction, again and again until it has no conflict. What the body does besides gets and puts it may do several times. What it throws gives the transaction up. */
    template <class Body> void run(Body body)
    {
        for (bool again = false;; again = true) {
            try {
                try_once(body, again);
                return;
            } catch (const error &why) {
                if (why.code() != PW_CONFLICT)
                    throw;
            }
        }
    }

    /** Makes a transaction once. Throws PW_CONFLICT: nothing of it is done. again: it is the last one that is tried again, behind a pause, and keeps its age. */
    template <class Body> void try_once(Body &&body, bool again = false)
    {
        check(pw_transaction_start(opened_.get(), again));
        transaction started(opened_.get());
        try {
            body(started);
        } catch (...) {
            pw_transaction_abort(opened_.get());
            throw;
        }
        check(pw_transaction_commit(opened_.get()));
    }

private:
    friend class node;

    explicit transaction_client(pw_transaction_client *opened) noexcept : opened_(opened) {}

    detail::owned<pw_transaction_client, pw_transaction_client_close> opened_;
};

} // namespace pw

#endif /* PAGEWIRE_TRANSACTIONS_HPP */
