/* pagewire/experimental/global_memory.hpp: a global address space. A part of pagewire_experimental.hpp. */
#ifndef PAGEWIRE_EXPERIMENTAL_GLOBAL_MEMORY_HPP
#define PAGEWIRE_EXPERIMENTAL_GLOBAL_MEMORY_HPP

#include <pagewire.hpp>
#include <pagewire_experimental.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace pagewire::experimental {

/** An access to a page of global memory, as a handler at its home sees it. */
using page_access = pw_page_access;
/** What has happened at one process of a global memory. */
using global_counts = pw_gas_counts;

/** Memory that all processes of a job load and store. It ends before its node. */
class global_memory {
public:
    /** A word. Relaxed loads and stores are plain instructions of the processor; read-modify-writes are atomic among all processes. */
    using word = std::atomic<std::uint64_t>;
    static_assert(sizeof(word) == sizeof(std::uint64_t) && word::is_always_lock_free, "words are changed by instructions of the processor");

    /** Makes it with all processes of the job, each of which calls this with the same number of pages of 4,096 bytes. */
    global_memory(pw::node &node, std::size_t pages_each) { pw::check(pw_global_make(node.get(), pages_each, &made_)); }

    global_memory(global_memory &&other) noexcept : handler_(std::move(other.handler_)), made_(std::exchange(other.made_, nullptr)) {}
    global_memory &operator=(global_memory other) noexcept
    {
        std::swap(handler_, other.handler_);
        std::swap(made_, other.made_);
        return *this;
    }
    /** Others lose the pages of this process, and what it stored last, if leave() was not called. */
    ~global_memory()
    {
        /* A handler that ends its own memory is called again. */
        if (pw_global_free(made_) == PW_IN_HANDLER)
            (void)handler_.release();
    }

    /** Ends it when all processes of the job have called this. Throws PW_IN_HANDLER: its handler calls, and nothing was done. */
    void leave()
    {
        pw_error code = pw_global_leave(made_);
        if (code != PW_IN_HANDLER)
            made_ = nullptr;
        pw::check(code);
    }

    /** The words of all processes. A thread that touches a page whose home is gone gets SIGSEGV. */
    word *words() const
    {
        (void)home(0); /* throws why there are none */
        return reinterpret_cast<word *>(pw_global_words(made_));
    }

    /** The words whose home is a process: the first one, and how many. */
    std::pair<std::size_t, std::size_t> home(std::size_t rank) const
    {
        std::size_t first, count;
        pw::check(pw_global_home(made_, rank, &first, &count));
        return {first, count};
    }

    /**
     * Has a handler called at each access to a page whose home this process is. It must not touch this memory, nor wait for a thread that calls for it:
     * no page is served meanwhile. What it throws is reported.
     */
    void on_access(std::function<void(const page_access &)> handler)
    {
        auto kept = std::make_unique<function>(std::move(handler));
        pw::check(pw_global_on_access(made_, &global_memory::call, kept.get()));
        handler_ = std::move(kept);
    }

    /** Takes the pages whose home this is, and that any process may have stored to since the last call, by the first word of each. */
    std::vector<std::uint64_t> take_dirty()
    {
        std::vector<std::uint64_t> all;
        std::size_t most = 1024, count;
        do {
            std::size_t had = all.size();
            all.resize(had + most);
            pw::check(pw_global_take_dirty(made_, all.data() + had, most, &count));
            all.resize(had + std::min(count, most));
        } while (count > most);
        return all;
    }

    /** What has happened at this process so far. */
    global_counts counts() const
    {
        global_counts now;
        pw::check(pw_global_counts(made_, &now));
        return now;
    }

    /** The processes that are gone. */
    std::vector<std::size_t> lost() const
    {
        std::vector<std::size_t> ranks;
        std::size_t count = 8;
        do {
            ranks.resize(count);
            pw::check(pw_global_lost(made_, ranks.data(), ranks.size(), &count));
        } while (count > ranks.size());
        ranks.resize(count);
        return ranks;
    }

private:
    using function = std::function<void(const page_access &)>;

    static void call(void *context, const pw_page_access *given)
    {
        pw::detail::guard([&] { (*static_cast<function *>(context))(*given); });
    }

    std::unique_ptr<function> handler_; /* ends behind the threads that call it */
    pw_global *made_ = nullptr;
};

} // namespace pagewire::experimental

#endif /* PAGEWIRE_EXPERIMENTAL_GLOBAL_MEMORY_HPP */
