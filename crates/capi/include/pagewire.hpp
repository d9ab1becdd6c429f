/*
 * pagewire.hpp: RDMA on memory that is never pinned, from C++17. A thin layer over pagewire.h, whose comments say more.
 *
 * Calls that are refused throw pw::error, whose what() is a sentence and whose code() a pw_error. Objects end what they have in their
 * destructors, which never throw. Offsets and lengths are bytes.
 */
#ifndef PAGEWIRE_HPP
#define PAGEWIRE_HPP

#include <pagewire/access_log.hpp>
#include <pagewire/batch.hpp>
#include <pagewire/buffer.hpp>
#include <pagewire/built_in.hpp>
#include <pagewire/checkpoint.hpp>
#include <pagewire/conditional.hpp>
#include <pagewire/access_statistics.hpp>
#include <pagewire/error.hpp>
#include <pagewire/hash_table.hpp>
#include <pagewire/heap.hpp>
#include <pagewire/logged_process.hpp>
#include <pagewire/mapped_file.hpp>
#include <pagewire/parity.hpp>
#include <pagewire/part.hpp>
#include <pagewire/remote.hpp>
#include <pagewire/waits.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pw {

/** This process as others of its job see it. */
class node {
public:
    /** Joins the job that started this process. */
    static node from_env()
    {
        pw_node *made;
        check(pw_node_from_env(&made));
        return node(made);
    }

    /** A node of a job of one process. */
    static node alone()
    {
        pw_node *made;
        check(pw_node_alone(&made));
        return node(made);
    }

    node(node &&other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
    node &operator=(node other) noexcept
    {
        std::swap(node_, other.node_);
        return *this;
    }
    ~node()
    {
        if (node_)
            pw_node_leave(node_);
    }

    /** Who a source of an access log or of statistics is, by its number. */
    pw_source source(std::uint64_t number) const
    {
        pw_source found;
        check(pw_source_find(node_, number, &found));
        return found;
    }

    std::size_t rank() const { return pw_rank(node_); }
    std::size_t size() const { return pw_size(node_); }
    void barrier() { check(pw_barrier(node_)); }
    void flush() { check(pw_flush_all(node_)); }

    /** barrier() with a bound. False: not all have called it in time; it stays begun, and the next barrier waits on for it (pw_barrier_for()). */
    bool barrier_for(std::chrono::nanoseconds bound) { return detail::in_time(pw_barrier_for(node_, detail::nanoseconds(bound))); }

    /** all_gather() with a bound. None: not all have called it in time; it stays begun, and is continued by a call with the same value. */
    template <class T> std::optional<std::vector<T>> all_gather_for(const T &mine, std::chrono::nanoseconds bound)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be gathered");
        std::vector<T> all(size());
        if (!detail::in_time(pw_all_gather_for(node_, &mine, sizeof mine, all.data(), detail::nanoseconds(bound))))
            return std::nullopt;
        return all;
    }

    /**
     * Splits the job: processes that give one colour are a part, in which they are ranked by key, and by rank where that is equal. None: this process
     * has given no colour. All processes of the job call it.
     */
    std::optional<part> split(std::optional<std::uint64_t> colour, std::int64_t key = 0)
    {
        pw_part *made;
        check(pw_split(node_, colour.value_or(PW_NO_PART), key, &made));
        return made ? std::optional<part>(part(made)) : std::nullopt;
    }

    /**
     * A descriptor that poll(2) reports as readable while something of the node is ready whose result was not taken. Read nothing from it, and do not
     * close it: pw_node_descriptor() says what takes it.
     */
    int descriptor()
    {
        int found;
        check(pw_node_descriptor(node_, &found));
        return found;
    }

    /** Gives a plain value to all processes, and takes theirs, by rank. */
    template <class T> std::vector<T> all_gather(const T &mine)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be gathered");
        std::vector<T> all(size());
        check(pw_all_gather(node_, &mine, sizeof mine, all.data()));
        return all;
    }

    /** Gives the plain value of the process root to all. */
    template <class T> T broadcast(std::size_t root, T value)
    {
        static_assert(std::is_trivially_copyable_v<T>, "only plain bytes can be sent");
        check(pw_broadcast(node_, root, &value, sizeof value));
        return value;
    }

    /** Makes a token of any memory of this process. */
    token export_memory(void *address, std::size_t length, rights given)
    {
        token made;
        check(pw_export(node_, address, length, static_cast<std::uint32_t>(given), &made));
        return made;
    }

    /** Makes a token of the elements of a container that has data() and size(). */
    template <class Container> token export_memory(Container &container, rights given)
    {
        using element = std::remove_reference_t<decltype(*container.data())>;
        static_assert(std::is_trivially_copyable_v<element>, "only plain bytes can be exported");
        return export_memory(container.data(), container.size() * sizeof(element), given);
    }

    /** Ends what a token gives. When it returns, no access by the token is under way. */
    void unexport(const token &given) { check(pw_unexport(node_, &given)); }

    /** Opens the memory that a token names. */
    remote open(const token &given)
    {
        pw_remote *opened;
        check(pw_open(node_, &given, &opened));
        return remote(opened);
    }

    /** Maps a file, which peers may read. Nothing is read in. Throws PW_SYSTEM. */
    mapped_file map_file(const std::string &path) { return mapped(path, PW_FILE_READ_ONLY, PW_TO_END); }

    /** Maps a file, which peers may read and write. length: it is made if there is none, and has so many bytes then. */
    mapped_file map_file_writable(const std::string &path, std::optional<std::uint64_t> length = std::nullopt)
    {
        return mapped(path, PW_FILE_WRITABLE, length.value_or(PW_TO_END));
    }

    /** This node, as others name it. */
    peer identity() const
    {
        peer found;
        check(pw_identity(node_, &found));
        return found;
    }

    /** The node of a rank of the job. */
    peer peer_of(std::size_t rank) const
    {
        peer found;
        check(pw_peer_of_rank(node_, rank, &found));
        return found;
    }

    /** Starts a conditional write of bytes that the caller keeps: it is held until the peer accepts it, and says where the bytes go. */
    held_write conditional_write(const peer &to, std::uint64_t tag, borrowed_bytes<const void> bytes)
    {
        pw_operation *started = nullptr;
        check(pw_conditional_write(node_, &to, tag, bytes.data, bytes.length, &started));
        return held_write(started);
    }

    /** conditional_write() of the elements of a container, which the operation takes, and gives back. */
    template <class Container, detail::if_owned<Container> = 0>
    owning_operation<Container, held_write> conditional_write(const peer &to, std::uint64_t tag, Container &&values)
    {
        return owning_operation<Container, held_write>::start(std::move(values),
                                                              [&](auto &kept) { return conditional_write(to, tag, borrowed(kept)); });
    }

    /** Say who keeps the elements: std::move(values), or pw::borrowed(values). */
    template <class Container, detail::if_unclear<Container> = 0>
    held_write conditional_write(const peer &to, std::uint64_t tag, Container &&say_std_move_or_pw_borrowed) = delete;

    /** Asks a peer for data, which come as its conditional write to the first bytes of a token's memory, of this node. */
    acceptance conditional_read(const peer &from, std::uint64_t tag, const token &into)
    {
        return acceptance::started(
            [&](std::uint64_t *written, pw_operation **to) { return pw_conditional_read(node_, &from, tag, &into, written, to); });
    }

    /** Accepts the conditional write of a tag that a peer holds, or will hold: it goes to the first bytes of a token's memory, of this node. */
    acceptance accept_conditional_write(const peer &from, std::uint64_t tag, const token &into)
    {
        return acceptance::started(
            [&](std::uint64_t *written, pw_operation **to) { return pw_accept_conditional_write(node_, &from, tag, &into, written, to); });
    }

    /** accept_conditional_write() of whichever peer holds one of the tag, or will first. */
    acceptance accept_any_conditional_write(std::uint64_t tag, const token &into)
    {
        return acceptance::started(
            [&](std::uint64_t *written, pw_operation **to) { return pw_accept_conditional_write(node_, nullptr, tag, &into, written, to); });
    }

    /** Waits for a conditional write or read of a peer, without a bound if none is given. Throws PW_TIMEOUT. */
    conditional_request next_conditional_request(std::optional<std::chrono::nanoseconds> bound = std::nullopt)
    {
        pw_conditional_request_info info;
        pw_conditional_request *opened;
        check(pw_next_conditional_request(node_, bound ? detail::nanoseconds(*bound) : PW_FOREVER, &info, &opened));
        return conditional_request(info, opened);
    }

    /** Makes an access log with so many bytes for each source, a connection of a peer. sources: at once, 0 for 256. */
    access_log make_access_log(std::size_t bytes, std::size_t sources = 0, bool is_ordered = true)
    {
        pw_log *made;
        check(pw_log_make(node_, bytes, sources, is_ordered ? PW_ORDERED : PW_UNORDERED, &made));
        return access_log(made);
    }

    /**
     * Begins to describe the attributes of pages of a token of this node: whole pages of 4,096 bytes, the first of which begins where the token's
     * bytes do. attributes(token, 0, 4096).redirect_puts().to(log)
     */
    page_setting attributes(const token &of, std::uint64_t offset = 0, std::uint64_t length = PW_TO_END) const
    {
        return page_setting(node_, of, offset, length, 0);
    }

    /** Makes a hash table with all processes of the job, each of which calls this. */
    hash_table join_table(const table_options &options)
    {
        pw_table_options given{options.cells, options.spare, options.value_bytes, options.scheme};
        pw_table *joined;
        check(pw_table_join(node_, &given, &joined));
        return hash_table(joined);
    }

    /** join_table() with volumes that outlive their processes: what one of the same rank has left in the folder is there. */
    hash_table join_durable_table(const table_options &options, const durability &where)
    {
        pw_table_options given{options.cells, options.spare, options.value_bytes, options.scheme};
        pw_durability kept{where.folder.c_str(), where.log_bytes, where.checkpoints};
        pw_table *joined;
        check(pw_table_join_durable(node_, &given, &kept, &joined));
        return hash_table(joined);
    }

    /** Takes the place of a member of a durable table that was killed. tickets: of all members, by rank; that of this one is not looked at. */
    hash_table restart_table(const table_options &options, const durability &where, std::size_t rank, const std::vector<volume_ticket> &tickets)
    {
        pw_table_options given{options.cells, options.spare, options.value_bytes, options.scheme};
        pw_durability kept{where.folder.c_str(), where.log_bytes, where.checkpoints};
        pw_table *joined;
        check(pw_table_restart(node_, &given, &kept, rank, tickets.data(), tickets.size(), &joined));
        return hash_table(joined);
    }

    /** Has others run chains on memory of this process, whose address and length are multiples of 8. */
    [[nodiscard]] built_ins serve_built_ins(void *address, std::size_t length)
    {
        pw_built_ins *served;
        check(pw_built_ins_serve(node_, address, length, &served));
        return built_ins(served);
    }

    /** Opens the built-in handlers that an address names. */
    remote_built_ins open_built_ins(const chain_address &address)
    {
        pw_remote_built_ins *opened;
        check(pw_built_ins_open(node_, &address, &opened));
        return remote_built_ins(opened);
    }

    /** Redirects the puts by a token to a handler, those of batches and single ones. What it throws is counted and reported. */
    [[nodiscard]] batches redirect_batches(const token &of, std::function<void(const batched_put &)> handler)
    {
        return batches(std::move(handler), [&](pw_batch_handler call, void *context, pw_batches **to) {
            return pw_batches_redirect(node_, &of, call, context, to);
        });
    }

    /** Has the puts of batches reach memory, by a thread of the library. */
    [[nodiscard]] batches batches_to_memory(void *address, std::size_t length)
    {
        return batches({}, [&](pw_batch_handler, void *, pw_batches **to) { return pw_batches_to_memory(node_, address, length, to); });
    }

    /** Opens the memory that an address names for batches. */
    batch open_batch(const batch_address &address)
    {
        pw_batch *opened;
        check(pw_batch_open(node_, &address, &opened));
        return batch(opened);
    }

    /** Begins to count what peers do by a token. counted: PW_COUNT_PUTS, PW_COUNT_GETS; refused: PW_REFUSE_PUTS, PW_REFUSE_GETS. */
    [[nodiscard]] access_statistics count_accesses(const token &of, std::uint32_t counted = PW_COUNT_PUTS | PW_COUNT_GETS, std::uint32_t refused = 0)
    {
        pw_access_statistics *started;
        check(pw_access_statistics_start(node_, &of, counted, refused, &started));
        return access_statistics(started);
    }

    /** Opens a file of checkpoints of some memory, and makes it if there is none. */
    checkpoint open_checkpoint(const std::string &path, const std::vector<memory> &memories, std::uint32_t options = PW_SYNC)
    {
        pw_checkpoint *opened;
        check(pw_checkpoint_open(node_, path.c_str(), options, memories.data(), memories.size(), &opened));
        return checkpoint(opened);
    }

    /** Begins as a process whose puts and gets are logged. If the file has a checkpoint of it, that is restored: then note() is there. */
    logged_process start_logged_process(const std::string &path, const logged_process_options &options)
    {
        pw_logged_process_options given{options.rank, options.size, options.bytes, options.log_bytes, options.checkpoints};
        pw_logged_process *started;
        check(pw_logged_process_start(node_, path.c_str(), &given, &started));
        return logged_process(started);
    }

    /** Makes a parity of the checkpoints of so many members, each of which has so many bytes at most. */
    [[nodiscard]] parity make_parity(std::size_t members, std::uint64_t length)
    {
        pw_parity *made;
        check(pw_parity_make(node_, members, length, &made));
        return parity(made);
    }

    /** Joins a parity as one of its members. */
    [[nodiscard]] parity_member join_parity(const token &of, std::size_t member)
    {
        pw_parity_member *joined;
        check(pw_parity_join(node_, &of, member, &joined));
        return parity_member(joined);
    }

    /** Joins in the place of a member that died, and rebuilds its checkpoint. others: the tokens of all other members. */
    [[nodiscard]] std::pair<parity_member, rebuilt> rebuild_parity(const token &of, std::size_t member, const std::vector<token> &others)
    {
        pw_parity_member *joined;
        rebuilt found;
        check(pw_parity_rebuild(node_, &of, member, others.data(), others.size(), &found, &joined));
        return {parity_member(joined), found};
    }

    /** Takes the records of the fault log of the process, and calls a handler with each. Gives how many found no space there so far. */
    template <class Handler> std::uint64_t take_faults(Handler &&handler)
    {
        using plain = std::remove_reference_t<Handler>;
        auto call = [](void *context, const pw_access *given) { detail::handle(*static_cast<plain *>(context), given); };
        std::uint64_t dropped;
        check(pw_take_faults(node_, call, const_cast<void *>(static_cast<const void *>(std::addressof(handler))), &dropped));
        return dropped;
    }

    /** The path to the owner of a token, and why it is no better one. */
    std::string explain(const token &given)
    {
        char text[512];
        check(pw_explain(node_, &given, text, sizeof text));
        return text;
    }

    /** Waits until a word that peers change is as wished, and gives it. Throws PW_TIMEOUT. A bound of zero looks once. */
    std::uint64_t signal_wait(std::uint64_t &word, comparison wish, std::uint64_t value, std::chrono::nanoseconds bound = forever)
    {
        std::uint64_t seen;
        check(pw_signal_wait(node_, &word, static_cast<std::uint32_t>(wish), value, detail::nanoseconds(bound), &seen));
        return seen;
    }

    /** Waits until one of several words is as wished, and gives its place. None: no one is in time, or there are none. */
    std::optional<std::size_t> signal_wait_any(std::vector<signal_wish> &wishes, std::chrono::nanoseconds bound = forever)
    {
        auto given = detail::wishes_of(wishes);
        std::size_t index;
        bool met = detail::in_time(pw_signal_wait_any(node_, given.data(), given.size(), detail::nanoseconds(bound), &index));
        detail::tell(wishes, given);
        return met && index < given.size() ? std::optional<std::size_t>(index) : std::nullopt;
    }

    /** Waits until at least one of several words is as wished, and gives the places of all that are. Empty: no one is in time. */
    std::vector<std::size_t> signal_wait_some(std::vector<signal_wish> &wishes, std::chrono::nanoseconds bound = forever)
    {
        auto given = detail::wishes_of(wishes);
        std::vector<std::size_t> indices(given.size() + 1);
        std::size_t found;
        detail::in_time(
            pw_signal_wait_some(node_, given.data(), given.size(), detail::nanoseconds(bound), indices.data(), &found));
        detail::tell(wishes, given);
        indices.resize(found);
        return indices;
    }

    /** Waits until all of several words are as wished at once. False: they are not in time. */
    bool signal_wait_all(std::vector<signal_wish> &wishes, std::chrono::nanoseconds bound = forever)
    {
        auto given = detail::wishes_of(wishes);
        bool met = detail::in_time(pw_signal_wait_all(node_, given.data(), given.size(), detail::nanoseconds(bound)));
        detail::tell(wishes, given);
        return met;
    }

    /** Waits until a word that peers change is at least a value, and gives it. */
    std::uint64_t wait_until_at_least(std::uint64_t &word, std::uint64_t value)
    {
        std::uint64_t seen;
        check(pw_signal_wait(node_, &word, PW_AT_LEAST, value, PW_FOREVER, &seen));
        return seen;
    }

    /** wait_until_at_least() with a bound. Throws PW_TIMEOUT. */
    std::uint64_t wait_until_at_least(std::uint64_t &word, std::uint64_t value, std::chrono::nanoseconds bound)
    {
        std::uint64_t seen;
        // A bound that is over is none that is far away.
        auto left = detail::nanoseconds(bound);
        check(pw_signal_wait(node_, &word, PW_AT_LEAST, value, left, &seen));
        return seen;
    }

    /** The registered heap, which all nodes of the process share. */
    std::pmr::memory_resource *resource() const { return heap(); }

    /** The object of pagewire.h. */
    pw_node *get() const noexcept { return node_; }

private:
    explicit node(pw_node *made) noexcept : node_(made) {}

    mapped_file mapped(const std::string &path, std::uint32_t mode, std::uint64_t length)
    {
        pw_mapped_file *made;
        check(pw_map_file(node_, path.c_str(), mode, length, &made));
        return mapped_file(made);
    }

    pw_node *node_;
};

} // namespace pw

#endif /* PAGEWIRE_HPP */
