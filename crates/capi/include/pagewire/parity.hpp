/* pagewire/parity.hpp: checkpoints whose XOR another process keeps. A part of pagewire.hpp. */
#ifndef PAGEWIRE_PARITY_HPP
#define PAGEWIRE_PARITY_HPP

#include <pagewire/checkpoint.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pw {

/** What was rebuilt of a member of a parity. */
using rebuilt = pw_rebuilt;

/** The parity of the checkpoints of several processes, which this one keeps. It ends before its node. */
class parity {
public:
    /** The token of a member, which no other one uses. */
    token member_token(std::size_t member) const
    {
        token made;
        check(pw_parity_token(kept_.get(), member, &made));
        return made;
    }

    /** The last round that all members have saved. 0: there is none yet. */
    std::uint64_t round() const
    {
        std::uint64_t complete;
        check(pw_parity_round(kept_.get(), &complete));
        return complete;
    }

private:
    friend class node;

    explicit parity(pw_parity *kept) noexcept : kept_(kept) {}

    detail::owned<pw_parity, pw_parity_free> kept_;
};

/** One of several processes whose checkpoints lie in its own memory and in a parity. It ends before its node. */
class parity_member {
public:
    /** The token of the own checkpoints, for who rebuilds another member. */
    pw::token token() const
    {
        pw::token made;
        check(pw_parity_member_token(joined_.get(), &made));
        return made;
    }

    /** Saves memory as the checkpoint of the next round, which counts when all members have saved. Gives the round. */
    std::uint64_t save(const std::vector<memory> &memories)
    {
        std::uint64_t round;
        check(pw_parity_save(joined_.get(), memories.data(), memories.size(), &round));
        return round;
    }

    /** Restores memory from the own checkpoint of the last round that all members have. Gives the round. */
    std::uint64_t restore(const std::vector<memory> &memories)
    {
        std::uint64_t round;
        check(pw_parity_restore(joined_.get(), memories.data(), memories.size(), &round));
        return round;
    }

    /** Waits until all members have saved the round that this one has saved last, and gives it. Throws PW_TIMEOUT. */
    std::uint64_t wait(std::chrono::nanoseconds bound)
    {
        std::uint64_t round;
        check(pw_parity_wait(joined_.get(), detail::nanoseconds(bound), &round));
        return round;
    }

private:
    friend class node;

    explicit parity_member(pw_parity_member *joined) noexcept : joined_(joined) {}

    detail::owned<pw_parity_member, pw_parity_member_free> joined_;
};

} // namespace pw

#endif /* PAGEWIRE_PARITY_HPP */
