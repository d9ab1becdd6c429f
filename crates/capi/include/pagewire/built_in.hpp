/* pagewire/built_in.hpp: built-in handlers. A part of pagewire.hpp. */
#ifndef PAGEWIRE_BUILT_IN_HPP
#define PAGEWIRE_BUILT_IN_HPP

#include <pagewire/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pw {

/** The bytes of a plain value, as steps of chains take them. */
template <class T> std::string as_bytes(const T &value)
{
    static_assert(std::is_trivially_copyable_v<T>, "only plain bytes are written");
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

/** Where a step of a chain works: at an offset, if nothing else is said. */
struct step_place {
    step_place(std::uint64_t offset) : at(offset) {}

    /** So many bytes behind the offset that the word at an offset has: a pointer. */
    static step_place behind(std::uint64_t pointer, std::uint64_t by = 0) { return {PW_PLACE_BEHIND, pointer, by}; }
    /** So many bytes behind the offset that an earlier step has found; the first one has the number 0. */
    static step_place found(std::size_t step, std::uint64_t by = 0) { return {PW_PLACE_FOUND, step, by}; }

    std::uint32_t place = PW_PLACE_AT;
    std::uint64_t at;
    std::uint64_t by = 0;

private:
    step_place(std::uint32_t kind, std::uint64_t where, std::uint64_t behind) : place(kind), at(where), by(behind) {}
};

/** Steps that run one after the other at the owner of the memory. Each is an atomic of its own; the chain as a whole is none. */
class chain {
public:
    /** The next step runs only if all compare-swaps before it have swapped. */
    chain &if_swapped()
    {
        if_swapped_ = true;
        return *this;
    }

    /** Adds to a word of 8 bytes. Its word is what that was. */
    chain &fetch_add(step_place at, std::uint64_t add) { return then(PW_STEP_FETCH_ADD, at, {}, 0, add); }
    /** Puts `swap` in the place of `compare`, if that is there: as many bytes, up to 32. Its data are what was there. */
    chain &compare_swap(step_place at, std::string_view compare, std::string_view swap)
    {
        return masked_compare_swap(at, compare, std::string(compare.size(), '\xff'), swap, std::string(swap.size(), '\xff'));
    }
    /** compare_swap() of the bits that are 1 in the masks. */
    chain &masked_compare_swap(step_place at, std::string_view compare, std::string_view compared, std::string_view swap, std::string_view swapped)
    {
        if (compared.size() != compare.size() || swap.size() != compare.size() || swapped.size() != compare.size())
            throw error(PW_ARGUMENT, "a compare-swap: what it compares, what it swaps in and their masks have as many bytes each");
        then(PW_STEP_COMPARE_SWAP, at, swap, swap.size(), 0);
        steps_.back().compare = compare;
        steps_.back().compare_mask = compared;
        steps_.back().data_mask = swapped;
        return *this;
    }
    /** Reads bytes, which are its data. */
    chain &read(step_place at, std::size_t length) { return then(PW_STEP_READ, at, {}, length, 0); }
    /** Writes bytes. */
    chain &write(step_place at, std::string_view bytes) { return then(PW_STEP_WRITE, at, bytes, bytes.size(), 0); }
    /** Changes bytes to their XOR with others. Its data are what they were. */
    chain &exclusive_or(step_place at, std::string_view bytes) { return then(PW_STEP_XOR, at, bytes, bytes.size(), 0); }
    /** Takes space in an area (begin_area), and writes bytes there. Its word is their offset. */
    chain &append(std::uint64_t area, std::string_view bytes) { return then(PW_STEP_APPEND, area, bytes, bytes.size(), 0); }

private:
    friend class remote_built_ins;

    struct step {
        pw_step given;
        std::string data, data_mask, compare, compare_mask;
    };

    chain &then(std::uint32_t action, step_place at, std::string_view data, std::size_t length, std::uint64_t add)
    {
        pw_step given{};
        given.action = action;
        given.place = at.place;
        given.at = at.at;
        given.by = at.by;
        given.add = add;
        given.length = length;
        given.if_swapped = std::exchange(if_swapped_, false);
        steps_.push_back({given, std::string(data), {}, {}, {}});
        return *this;
    }

    std::vector<step> steps_;
    bool if_swapped_ = false;
};

/** What became of a step. */
struct outcome : pw_outcome {
    /** What was found: of a read, a compare-swap, an XOR. */
    std::string data;
};

/** By which others run chains: plain bytes, to be sent by any means. */
using chain_address = pw_chain_address;

/** Memory of this process on which others run chains. It ends before its node and its memory. */
class built_ins {
public:
    /** The address by which others run chains. */
    chain_address address() const
    {
        chain_address made;
        check(pw_built_ins_address(served_.get(), &made));
        return made;
    }

    /** Makes an area for append(): two words at an offset, and the bytes from first to end. */
    void begin_area(std::uint64_t area, std::uint64_t first, std::uint64_t end)
    {
        check(pw_built_ins_begin_area(served_.get(), area, first, end));
    }

private:
    friend class node;

    explicit built_ins(pw_built_ins *served) noexcept : served_(served) {}

    detail::owned<pw_built_ins, pw_built_ins_end> served_;
};

/** Built-in handlers of another process, or of this one. They end before the node that opened them. */
class remote_built_ins {
public:
    /** Runs a chain, and gives what each of its steps has found. */
    std::vector<outcome> run(const chain &what)
    {
        std::vector<pw_step> steps;
        std::vector<pw_outcome> results(what.steps_.size());
        std::vector<outcome> outcomes(what.steps_.size());
        for (std::size_t at = 0; at < outcomes.size(); at++) {
            const chain::step &from = what.steps_[at];
            pw_step step = from.given;
            step.data = from.data.data();
            if (step.action == PW_STEP_COMPARE_SWAP) {
                step.compare = from.compare.data();
                step.compare_mask = from.compare_mask.data();
                step.data_mask = from.data_mask.data();
            }
            bool finds = step.action == PW_STEP_COMPARE_SWAP || step.action == PW_STEP_READ || step.action == PW_STEP_XOR;
            /* What is too long is refused. */
            if (finds && step.length <= PW_MOST_MOVED) {
                outcomes[at].data.resize(step.length);
                step.found = outcomes[at].data.data();
            }
            steps.push_back(step);
        }
        check(pw_built_ins_run(opened_.get(), steps.data(), steps.size(), results.data()));
        for (std::size_t at = 0; at < outcomes.size(); at++) {
            static_cast<pw_outcome &>(outcomes[at]) = results[at];
            if (!results[at].was_run)
                outcomes[at].data.clear();
        }
        return outcomes;
    }

private:
    friend class node;

    explicit remote_built_ins(pw_remote_built_ins *opened) noexcept : opened_(opened) {}

    detail::owned<pw_remote_built_ins, pw_built_ins_close> opened_;
};

} // namespace pw

#endif /* PAGEWIRE_BUILT_IN_HPP */
