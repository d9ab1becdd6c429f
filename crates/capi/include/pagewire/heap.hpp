/* pagewire/heap.hpp: the registered heap for containers. A part of pagewire.hpp. */
#ifndef PAGEWIRE_HEAP_HPP
#define PAGEWIRE_HEAP_HPP

#include <pagewire/error.hpp>

#include <cstddef>
#include <memory_resource>
#include <new>

namespace pw {

/** The registered heap as a memory resource. A process has one heap, so all of these are equal. */
class memory_resource final : public std::pmr::memory_resource {
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        if (void *memory = pw_aligned_alloc(alignment, bytes))
            return memory;
        throw std::bad_alloc();
    }

    /* What is exported of the memory ends first. If a stopped peer is within an access, the memory stays. */
    void do_deallocate(void *memory, std::size_t, std::size_t) override { pw_free(memory); }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return dynamic_cast<const memory_resource *>(&other) != nullptr;
    }
};

/** The registered heap. */
inline std::pmr::memory_resource *heap()
{
    static memory_resource resource;
    return &resource;
}

/** The registered heap as an allocator of containers. */
template <class T> struct allocator {
    using value_type = T;

    allocator() = default;
    template <class U> allocator(const allocator<U> &) noexcept {}

    T *allocate(std::size_t count)
    {
        if (count > static_cast<std::size_t>(-1) / sizeof(T))
            throw std::bad_array_new_length();
        if (void *memory = pw_aligned_alloc(alignof(T), count * sizeof(T)))
            return static_cast<T *>(memory);
        throw std::bad_alloc();
    }

    void deallocate(T *memory, std::size_t) noexcept { pw_free(memory); }

    template <class U> bool operator==(const allocator<U> &) const noexcept { return true; }
    template <class U> bool operator!=(const allocator<U> &) const noexcept { return false; }
};

} // namespace pw

#endif /* PAGEWIRE_HEAP_HPP */
