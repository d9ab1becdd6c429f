/* pagewire/access_statistics.hpp: statistics of accesses. A part of pagewire.hpp. */
#ifndef PAGEWIRE_ACCESS_STATISTICS_HPP
#define PAGEWIRE_ACCESS_STATISTICS_HPP

#include <pagewire/remote.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pw {

/** What was counted of a page, of a source, or of all. */
using access_counts = pw_access_counts;
/** What was counted of a page or of a source, by its number. */
using numbered_counts = pw_numbered_counts;

/** Counts what peers do by a token, until it ends. */
class access_statistics {
public:
    /** All that was counted. Whatever had ended at its caller before is in it. */
    access_counts total() const { return tell([&](access_counts *to) { return pw_access_statistics_total(started_.get(), to); }); }
    /** What was counted of a page of 4,096 bytes, from 0 on. */
    access_counts page(std::uint64_t page) const
    {
        return tell([&](access_counts *to) { return pw_access_statistics_page(started_.get(), page, to); });
    }
    /** Sets all counters to zero, and gives the total that there was. */
    access_counts reset() { return tell([&](access_counts *to) { return pw_access_statistics_reset(started_.get(), to); }); }

    /** The pages that were accessed most, and no page that was not. */
    std::vector<numbered_counts> hottest(std::size_t most) const
    {
        std::vector<numbered_counts> list(most);
        std::size_t count;
        check(pw_access_statistics_hottest(started_.get(), list.data(), list.size(), &count));
        list.resize(count);
        return list;
    }

    /** What each source did: a connection of a peer. */
    std::vector<numbered_counts> sources() const
    {
        std::vector<numbered_counts> list;
        std::size_t count = 8;
        do {
            list.resize(count);
            check(pw_access_statistics_sources(started_.get(), list.data(), list.size(), &count));
        } while (count > list.size());
        list.resize(count);
        return list;
    }

    /** A token by which peers read the counters: an access_counts for each page. */
    token export_counters() const
    {
        token made;
        check(pw_access_statistics_export(started_.get(), &made));
        return made;
    }

private:
    friend class node;

    explicit access_statistics(pw_access_statistics *started) noexcept : started_(started) {}

    template <class Call> static access_counts tell(Call call)
    {
        access_counts counts;
        check(call(&counts));
        return counts;
    }

    detail::owned<pw_access_statistics, pw_access_statistics_end> started_;
};

} // namespace pw

#endif /* PAGEWIRE_ACCESS_STATISTICS_HPP */
