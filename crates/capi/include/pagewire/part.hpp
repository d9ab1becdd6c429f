/* pagewire/part.hpp: parts of a job. A part of pagewire.hpp. */
#ifndef PAGEWIRE_PART_HPP
#define PAGEWIRE_PART_HPP

#include <pagewire/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

namespace pw {

namespace detail {
/** Whether a call that has a bound was done in time. */
inline bool in_time(pw_error code)
{
    if (code == PW_TIMEOUT)
        return false;
    check(code);
    return true;
}
} // namespace detail

/** Some processes of a job, as one of them sees it. The destructor frees it: calls of others that count on this process then fail with PW_JOB. */
class part {
public:
    /** The number of this process in the part, from 0 on. */
    std::size_t rank() const { return pw_part_rank(part_.get()); }

    /** Processes of the part. */
    std::size_t size() const { return pw_part_size(part_.get()); }

    /** The rank in the job of a rank of the part. */
    std::size_t job_rank(std::size_t rank) const
    {
        std::size_t found;
        check(pw_part_job_rank(part_.get(), rank, &found));
        return found;
    }

    /** Waits until all processes of the part have called it. */
    void barrier() { check(pw_part_barrier(part_.get())); }

    /** barrier() with a bound. False: they have not in time; it stays begun, and the next barrier waits on for it. */
    bool barrier_for(std::chrono::nanoseconds bound) { return detail::in_time(pw_part_barrier_for(part_.get(), detail::nanoseconds(bound))); }

    /** Gives a plain value to all processes of the part, and takes theirs, by rank. */
    template <class T> std::vector<T> all_gather(const T &mine)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be gathered");
        std::vector<T> all(size());
        check(pw_part_all_gather(part_.get(), &mine, sizeof mine, all.data()));
        return all;
    }

    /** all_gather() with a bound. None: they have not in time; it stays begun, and is continued by a call with the same value. */
    template <class T> std::optional<std::vector<T>> all_gather_for(const T &mine, std::chrono::nanoseconds bound)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be gathered");
        std::vector<T> all(size());
        if (!detail::in_time(pw_part_all_gather_for(part_.get(), &mine, sizeof mine, all.data(), detail::nanoseconds(bound))))
            return std::nullopt;
        return all;
    }

    /** Gives the plain value of the process root of the part to all. */
    template <class T> T broadcast(std::size_t root, T value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be sent");
        check(pw_part_broadcast(part_.get(), root, &value, sizeof value));
        return value;
    }

    /** Splits the part: as node::split(). */
    std::optional<part> split(std::optional<std::uint64_t> colour, std::int64_t key = 0)
    {
        pw_part *made;
        check(pw_part_split(part_.get(), colour.value_or(PW_NO_PART), key, &made));
        return made ? std::optional<part>(part(made)) : std::nullopt;
    }

    /** The object of pagewire.h. */
    pw_part *get() const noexcept { return part_.get(); }

private:
    friend class node;

    explicit part(pw_part *made) noexcept : part_(made) {}

    detail::owned<pw_part, pw_part_free> part_;
};

} // namespace pw

#endif /* PAGEWIRE_PART_HPP */
