/*
 * pagewire/kokkos.hpp: a Kokkos memory space in the registered heap, from C++17 on Kokkos 3.4 or later.
 *
 * Kokkos::View<double *, pw::kokkos_space> lies in registered memory from its birth (REUSE-5). The type says so: a View of HostSpace may refer to
 * such memory, but a View of this space never refers to memory of HostSpace.
 */
#ifndef PAGEWIRE_KOKKOS_HPP
#define PAGEWIRE_KOKKOS_HPP

#include <Kokkos_Core.hpp>
/* How records of allocations work: what the memory spaces of Kokkos itself include where they are compiled. */
#ifdef KOKKOS_IMPL_PUBLIC_INCLUDE
#include <impl/Kokkos_SharedAlloc_timpl.hpp>
#else
#define KOKKOS_IMPL_PUBLIC_INCLUDE
#include <impl/Kokkos_SharedAlloc_timpl.hpp>
#undef KOKKOS_IMPL_PUBLIC_INCLUDE
#endif

#include <pagewire.hpp>

#include <cstddef>
#include <string>
#include <type_traits>

#if KOKKOS_VERSION < 30400
#error "pagewire/kokkos.hpp needs Kokkos 3.4 or later"
#endif

namespace pw {

/** The registered heap as a memory space of Kokkos. Processors reach it as they reach Kokkos::HostSpace. */
class kokkos_space {
public:
    using memory_space = kokkos_space;
    using size_type = std::size_t;
    using execution_space = Kokkos::HostSpace::execution_space;
    using device_type = Kokkos::Device<execution_space, memory_space>;

    /** Memory of so many bytes. Throws pw::error, which says why there is none. */
    void *allocate(std::size_t bytes) const { return allocate("[unlabeled]", bytes); }

    /** Memory of so many bytes, of which Kokkos' tools are told `reported`, or all where that is 0. Throws pw::error. */
    void *allocate(const char *label, std::size_t bytes, std::size_t reported = 0) const
    {
        void *memory = pw_aligned_alloc(Kokkos::Impl::MEMORY_ALIGNMENT, bytes);
        if (!memory)
            throw error(PW_HEAP, ("View \"" + std::string(label) + "\": " + pw_error_message_for(PW_CPP)).c_str());
        if (Kokkos::Profiling::profileLibraryLoaded())
            Kokkos::Profiling::allocateData(handle(), label, memory, reported ? reported : bytes);
        return memory;
    }

    /** allocate() for an execution space: all of the host use the memory at once. */
    template <class Execution> void *allocate(const Execution &, std::size_t bytes) const { return allocate(bytes); }

    template <class Execution>
    void *allocate(const Execution &, const char *label, std::size_t bytes, std::size_t reported = 0) const
    {
        return allocate(label, bytes, reported);
    }

    void deallocate(void *memory, std::size_t bytes) const { deallocate("[unlabeled]", memory, bytes); }

    /** What is exported of the memory ends first. If a stopped peer is within an access, the memory stays. */
    void deallocate(const char *label, void *memory, std::size_t bytes, std::size_t reported = 0) const
    {
        if (!memory)
            return;
        if (Kokkos::Profiling::profileLibraryLoaded())
            Kokkos::Profiling::deallocateData(handle(), label, memory, reported ? reported : bytes);
        pw_free(memory);
    }

    static constexpr const char *name() { return "Pagewire"; }

private:
    static Kokkos::Profiling::SpaceHandle handle() { return Kokkos::Profiling::make_space_handle(name()); }
};

/** Bytes of the elements of a View, which have no gaps between them. Throws pw::error if they have. */
template <class View> std::size_t view_bytes(const View &view)
{
    using element = typename View::non_const_value_type;
    static_assert(std::is_trivially_copyable_v<element>, "only plain bytes can be exported, put or got");
    if (!view.span_is_contiguous())
        throw error(PW_ARGUMENT, ("View \"" + view.label() + "\" is a part of another one, with gaps: copy it first").c_str());
    return view.span() * sizeof(element);
}

/** Makes a token of the elements of a View. It ends with the last View of the memory, if that is in pw::kokkos_space. */
template <class View> token export_view(node &owner, const View &view, rights given)
{
    return owner.export_memory(static_cast<void *>(view.data()), view_bytes(view), given);
}

/** Starts a put of the elements of a View, which stay as they are until it has ended. The operation has a View of them, too. */
template <class View> owning_operation<View> put_view(remote &to, std::uint64_t offset, const View &view)
{
    return owning_operation<View>::start(View(view), [&](const View &kept) {
        return to.put(offset, borrowed(static_cast<const void *>(kept.data()), view_bytes(kept)));
    });
}

/** Starts a get into the elements of a View, which nobody uses until it has ended. The operation has a View of them, too. */
template <class View> owning_operation<View> get_view(remote &from, std::uint64_t offset, const View &view)
{
    return owning_operation<View>::start(View(view), [&](const View &kept) {
        return from.get(offset, borrowed(static_cast<void *>(kept.data()), view_bytes(kept)));
    });
}

} // namespace pw

namespace Kokkos {
namespace Impl {

/* A View of HostSpace may refer to registered memory, and not the other way. */
template <> struct MemorySpaceAccess<Kokkos::HostSpace, pw::kokkos_space> {
    enum : bool { assignable = true, accessible = true, deepcopy = true };
};
template <> struct MemorySpaceAccess<pw::kokkos_space, Kokkos::HostSpace> {
    enum : bool { assignable = false, accessible = true, deepcopy = true };
};

/* It is the host's memory, so copies are the host's. */
template <class Execution>
struct DeepCopy<pw::kokkos_space, pw::kokkos_space, Execution> : DeepCopy<HostSpace, HostSpace, Execution> {
    using DeepCopy<HostSpace, HostSpace, Execution>::DeepCopy;
};
template <class Execution>
struct DeepCopy<pw::kokkos_space, HostSpace, Execution> : DeepCopy<HostSpace, HostSpace, Execution> {
    using DeepCopy<HostSpace, HostSpace, Execution>::DeepCopy;
};
template <class Execution>
struct DeepCopy<HostSpace, pw::kokkos_space, Execution> : DeepCopy<HostSpace, HostSpace, Execution> {
    using DeepCopy<HostSpace, HostSpace, Execution>::DeepCopy;
};

} // namespace Impl
} // namespace Kokkos

#ifdef KOKKOS_IMPL_SHARED_ALLOCATION_SPECIALIZATION
KOKKOS_IMPL_SHARED_ALLOCATION_SPECIALIZATION(pw::kokkos_space);
#else
namespace Kokkos {
namespace Impl {

/* Counts the Views of an allocation, as Kokkos 3 wants it of each memory space. */
template <>
class SharedAllocationRecord<pw::kokkos_space, void> : public SharedAllocationRecordCommon<pw::kokkos_space> {
    using common = SharedAllocationRecordCommon<pw::kokkos_space>;
    using record = SharedAllocationRecord<void, void>;
    friend class SharedAllocationRecordCommon<pw::kokkos_space>;

    const pw::kokkos_space m_space; /* SharedAllocationRecordCommon names it */
#ifdef KOKKOS_ENABLE_DEBUG
    static inline record s_root_record;
#endif

protected:
    SharedAllocationRecord(const pw::kokkos_space &space, const std::string &label, std::size_t bytes,
                           record::function_type end = &common::deallocate)
        : common(
#ifdef KOKKOS_ENABLE_DEBUG
              &s_root_record,
#endif
              checked_allocation_with_header(space, label, bytes), sizeof(SharedAllocationHeader) + bytes, end),
          m_space(space)
    {
        common::_fill_host_accessible_header_info(*record::m_alloc_ptr, label);
    }

    ~SharedAllocationRecord() override
    {
        m_space.deallocate(record::m_alloc_ptr->label(), record::m_alloc_ptr, record::m_alloc_size, record::size());
    }

public:
    SharedAllocationRecord(const SharedAllocationRecord &) = delete;
    SharedAllocationRecord &operator=(const SharedAllocationRecord &) = delete;

    static SharedAllocationRecord *allocate(const pw::kokkos_space &space, const std::string &label, std::size_t bytes)
    {
        return new SharedAllocationRecord(space, label, bytes);
    }
};

} // namespace Impl
} // namespace Kokkos
#endif

#endif /* PAGEWIRE_KOKKOS_HPP */
