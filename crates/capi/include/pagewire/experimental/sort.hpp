/* pagewire/experimental/sort.hpp: a sort that survives the death of its processes. A part of pagewire_experimental.hpp. */
#ifndef PAGEWIRE_EXPERIMENTAL_SORT_HPP
#define PAGEWIRE_EXPERIMENTAL_SORT_HPP

#include <pagewire.hpp>
#include <pagewire_experimental.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pagewire::experimental {

/** A part of the sorted keys of all processes, and what it took. The keys lie in registered memory. */
class sorted_keys {
public:
    explicit sorted_keys(const pw_sorted &made) : made_(made), keys_(made.keys) {}

    const std::uint64_t *data() const noexcept { return keys_.get(); }
    std::size_t size() const noexcept { return made_.count; }
    const std::uint64_t *begin() const noexcept { return data(); }
    const std::uint64_t *end() const noexcept { return data() + size(); }
    const std::uint64_t &operator[](std::size_t index) const { return data()[index]; }

    /** How many keys of all processes come before. */
    std::uint64_t position() const noexcept { return made_.position; }
    /** Gets, keys from the logs of others, and lost processes. Its `keys` are those of this object. */
    const pw_sorted &statistics() const noexcept { return made_; }

private:
    struct free {
        void operator()(std::uint64_t *keys) const noexcept { (void)pw_free(keys); }
    };

    pw_sorted made_;
    std::unique_ptr<std::uint64_t[], free> keys_;
};

/**
 * Sorts the keys of `size` processes, each of which calls this with the same folder and its own rank, and gives this process its part. A process that dies
 * is started again with the same folder, rank and keys. patience: how long others are waited for.
 */
inline sorted_keys sort(pw::node &node, const std::string &folder, std::size_t rank, std::size_t size, const std::uint64_t *keys, std::size_t count,
                        std::chrono::nanoseconds patience = std::chrono::minutes(5))
{
    pw_sort_options options{folder.c_str(), rank, size, pw::detail::nanoseconds(patience)};
    pw_sorted made;
    pw::check(pw_sort(node.get(), &options, keys, count, &made));
    return sorted_keys(made);
}

} // namespace pagewire::experimental

#endif /* PAGEWIRE_EXPERIMENTAL_SORT_HPP */
