/* pagewire/buffer.hpp: who keeps the buffer of an operation. A part of pagewire.hpp. */
#ifndef PAGEWIRE_BUFFER_HPP
#define PAGEWIRE_BUFFER_HPP

#include <pagewire/error.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <ranges>
#endif

namespace pw {

/** Bytes that the caller keeps: they live, and are not used otherwise, until the operation that borrows them has ended. pw::borrowed() makes it. */
template <class Byte> struct borrowed_bytes {
    Byte *data;
    std::size_t length;

    /** What a get may write, a put may read. */
    operator borrowed_bytes<const void>() const noexcept { return {data, length}; }
};

namespace detail {

template <class Container> using element_of = std::remove_reference_t<decltype(*std::declval<Container &>().data())>;

/** Whether a type owns elements that have data() and size(), as a vector does. A view of the elements of others is none. */
template <class Container> struct is_view : std::false_type {};
template <class Char, class Traits> struct is_view<std::basic_string_view<Char, Traits>> : std::true_type {};
#if __cplusplus >= 202002L
template <class Container>
    requires std::ranges::enable_borrowed_range<Container>
struct is_view<Container> : std::true_type {};
#endif

template <class Container, class = void> struct is_container : std::false_type {};
template <class Container>
struct is_container<Container, std::void_t<decltype(std::declval<Container &>().data()), decltype(std::declval<Container &>().size())>>
    : std::true_type {};

/** Of `Container &&values`: an rvalue of a container that owns its elements, so that the operation can take it. */
template <class Container>
using if_owned = std::enable_if_t<!std::is_lvalue_reference_v<Container> && !std::is_const_v<Container> &&
                                      is_container<Container>::value && !is_view<Container>::value,
                                  int>;

/** Of `Container &&values`: what names no owner: an lvalue of a container, or a view. */
template <class Container>
using if_unclear = std::enable_if_t<is_container<std::remove_reference_t<Container>>::value &&
                                        (std::is_lvalue_reference_v<Container> || std::is_const_v<Container> ||
                                         is_view<std::remove_cv_t<std::remove_reference_t<Container>>>::value),
                                    int>;

template <class Container> std::size_t bytes_of(Container &values)
{
    static_assert(std::is_trivially_copyable_v<element_of<Container>>, "only plain bytes can be put or got");
    return values.size() * sizeof(element_of<Container>);
}

template <class Element>
using borrowed_of = borrowed_bytes<std::conditional_t<std::is_const_v<Element>, const void, void>>;

} // namespace detail

/** The elements of a container or a view, which the caller keeps until the operation has ended. */
template <class Container> detail::borrowed_of<detail::element_of<Container>> borrowed(Container &values)
{
    return {values.data(), detail::bytes_of(values)};
}

/** The elements of others that a view names. */
template <class View, std::enable_if_t<detail::is_view<View>::value, int> = 0>
detail::borrowed_of<detail::element_of<View>> borrowed(View &&values)
{
    return {values.data(), detail::bytes_of(values)};
}

/** A temporary ends before the operation does: give it to the operation instead, which takes it. */
template <class Container, std::enable_if_t<!std::is_lvalue_reference_v<Container> && !detail::is_view<std::remove_cv_t<Container>>::value, int> = 0>
void borrowed(Container &&a_temporary_ends_before_the_operation) = delete;

/** So many elements at an address, which the caller keeps until the operation has ended. */
template <class Element> detail::borrowed_of<Element> borrowed(Element *first, std::size_t count)
{
    if constexpr (std::is_void_v<Element>) {
        return {first, count};
    } else {
        static_assert(std::is_trivially_copyable_v<Element>, "only plain bytes can be put or got");
        return {first, count * sizeof(Element)};
    }
}

class operation;
class held_write;

namespace detail {
/** Of an operation: a conditional write, which can be cancelled. */
template <class Operation> using if_held = std::enable_if_t<std::is_same_v<Operation, held_write>, int>;
} // namespace detail

/**
 * An operation that has its buffer, and gives it back. The destructor waits for the end, and then ends the buffer; it forgets a failure, of
 * which wait() tells.
 */
template <class Buffer, class Operation = operation> class [[nodiscard]] owning_operation {
public:
    /** Starts an operation on a buffer, which `values` has again if it is refused at once. */
    template <class Start> static owning_operation start(Buffer &&values, Start start)
    {
        auto kept = std::make_unique<Buffer>(std::move(values));
        try {
            Operation started = start(*kept);
            return owning_operation(std::move(kept), std::move(started));
        } catch (...) {
            values = std::move(*kept);
            throw;
        }
    }

    owning_operation(owning_operation &&) noexcept = default;
    owning_operation &operator=(owning_operation other) noexcept
    {
        std::swap(buffer_, other.buffer_);
        operation_.swap(other.operation_);
        return *this;
    }

    /** Waits for the end, and gives the buffer back. After a failure, which is thrown, take() gives it. */
    Buffer wait()
    {
        operation_.wait();
        return std::move(*buffer_);
    }

    /** Waits for the end, and gives the buffer back, whatever became of the operation. */
    Buffer take()
    {
        try {
            operation_.wait();
        } catch (const error &) {
        }
        return std::move(*buffer_);
    }

    /** Waits for so long at most. False: it has not ended. A failure is thrown. wait() then gives the buffer. */
    bool wait_for(std::chrono::nanoseconds time) { return operation_.wait_for(time); }

    /** Whether it has ended. A failure is thrown. */
    bool is_done() { return operation_.is_done(); }

    /** Has the number 1 written to an eventfd(2) when it has ended. */
    void notify(int descriptor) { operation_.notify(descriptor); }

    /** held_write::cancel(). take() then gives the buffer. Only a conditional write has this call. */
    template <class Held = Operation, detail::if_held<Held> = 0>
    void cancel()
    {
        operation_.cancel();
    }

    /** held_write::within(). Only a conditional write has this call. */
    template <class Held = Operation, detail::if_held<Held> = 0>
    void within(std::chrono::nanoseconds time)
    {
        operation_.within(time);
    }

    /** The operation without its buffer. */
    Operation &inner() noexcept { return operation_; }

    /** The object of pagewire.h. */
    pw_operation *get() const noexcept { return operation_.get(); }

private:
    owning_operation(std::unique_ptr<Buffer> buffer, Operation started) noexcept
        : buffer_(std::move(buffer)), operation_(std::move(started))
    {
    }

    std::unique_ptr<Buffer> buffer_; /* ends behind the operation */
    Operation operation_;
};

} // namespace pw

#endif /* PAGEWIRE_BUFFER_HPP */
