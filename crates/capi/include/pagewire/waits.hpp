/* pagewire/waits.hpp: waits for any or all of several operations and signals. A part of pagewire.hpp. */
#ifndef PAGEWIRE_WAITS_HPP
#define PAGEWIRE_WAITS_HPP

#include <pagewire/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace pw {

namespace detail {
/** The object of pagewire.h: the get() of each kind of operation gives it. */
inline pw_operation *handle_of(pw_operation *started) noexcept { return started; }
template <class Operation> pw_operation *handle_of(const Operation &started) noexcept { return started.get(); }
/** A range that makes its operations as it goes ends them before the wait: it does not compile. */
template <class Operation> pw_operation *handle_of(const Operation &&started) = delete;

template <class Operations> std::vector<pw_operation *> handles_of(Operations &operations)
{
    std::vector<pw_operation *> handles;
    for (auto &&started : operations)
        handles.push_back(handle_of(std::forward<decltype(started)>(started)));
    return handles;
}
} // namespace detail

/**
 * Waits until one of several operations has ended, done or not, and gives its place: its wait() then returns at once. None: no one has ended in time, or there
 * are no operations. A bound of zero looks once.
 *
 * operations: a range of operations of one type: operation, owning_operation, basic_atomic_operation, held_write or acceptance. Operations of several types:
 * a range of what their get() gives, as std::array{put.get(), accepted.get()}. One that was moved from is passed over, and so is a null pointer.
 */
template <class Operations>
std::optional<std::size_t> wait_any(Operations &&operations, std::chrono::nanoseconds bound = forever)
{
    auto handles = detail::handles_of(operations);
    std::size_t index;
    pw_error code = pw_wait_any(handles.data(), handles.size(), detail::nanoseconds(bound), &index);
    if (code == PW_UNFINISHED)
        return std::nullopt;
    check(code);
    return index < handles.size() ? std::optional<std::size_t>(index) : std::nullopt;
}

/** Waits until at least one of several operations has ended, and gives the places of all that have. As wait_any(). */
template <class Operations>
std::vector<std::size_t> wait_some(Operations &&operations, std::chrono::nanoseconds bound = forever)
{
    auto handles = detail::handles_of(operations);
    std::vector<std::size_t> indices(handles.size() + 1);
    std::size_t found;
    pw_error code = pw_wait_some(handles.data(), handles.size(), detail::nanoseconds(bound), indices.data(), &found);
    if (code != PW_UNFINISHED)
        check(code);
    indices.resize(found);
    return indices;
}

/** Waits until all of several operations have ended. False: they have not in time. The failure of the first one that has failed is thrown. As wait_any(). */
template <class Operations> bool wait_all(Operations &&operations, std::chrono::nanoseconds bound = forever)
{
    auto handles = detail::handles_of(operations);
    pw_error code = pw_wait_all(handles.data(), handles.size(), detail::nanoseconds(bound));
    if (code == PW_UNFINISHED)
        return false;
    check(code);
    return true;
}

/** How a signal is compared with a value, as numbers without a sign. */
enum class comparison : std::uint32_t {
    equal = PW_EQUAL,
    not_equal = PW_NOT_EQUAL,
    greater = PW_GREATER,
    at_least = PW_AT_LEAST,
    less = PW_LESS,
    at_most = PW_AT_MOST
};

/** What a word of this process is to be; seen: what it was when the wait saw it last. */
struct signal_wish : pw_signal_wish {
    signal_wish(std::uint64_t &word, comparison wish, std::uint64_t value)
        : pw_signal_wish{&word, value, 0, static_cast<std::uint32_t>(wish)}
    {
    }
};

namespace detail {
inline std::vector<pw_signal_wish> wishes_of(const std::vector<signal_wish> &wishes) { return {wishes.begin(), wishes.end()}; }

inline void tell(std::vector<signal_wish> &wishes, const std::vector<pw_signal_wish> &seen)
{
    for (std::size_t i = 0; i < wishes.size(); i++)
        wishes[i].seen = seen[i].seen;
}
} // namespace detail

} // namespace pw

#endif /* PAGEWIRE_WAITS_HPP */
