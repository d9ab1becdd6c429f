// Applications of memory that reacts, from C++: hash tables, access statistics, checkpoints, logged processes, built-in handlers, batches, parity.
#include "require.hpp"

#include <filesystem>
#include <map>
#include <thread>

static void tables(pw::node &node)
{
    auto table = node.join_table({100});
    std::string longer(5000, 'x');
    table.insert(7, "seven");
    table.insert(8, longer);
    table.insert_batch({{9, "nine", 4}, {10, nullptr, 0}});
    table.flush();
    REQUIRE(table.lookup(7) == "seven" && table.lookup(8) == longer && table.lookup(10) == "" && !table.lookup(11));
    table.erase(7);
    table.flush();
    table.resize(300);
    REQUIRE(!table.lookup(7) && table.lookup(9) == "nine");
    REQUIRE(table.volume().elements == 3 && table.volume().cells == 300);
    REQUIRE(refused([&] { table.insert(0, "none"); }) == PW_ARGUMENT);
    REQUIRE(refused([&] { node.join_table({0}); }) == PW_ARGUMENT);
    std::map<std::uint64_t, std::string> found;
    for (const auto &[key, value] : table)
        REQUIRE(found.emplace(key, value).second);
    REQUIRE((found == std::map<std::uint64_t, std::string>{{8, longer}, {9, "nine"}, {10, ""}}));
    REQUIRE(table.compare_and_set(7, std::nullopt, "one") && !table.compare_and_set(7, std::nullopt, "two"));
    REQUIRE(table.compare_and_set(7, "one", longer) && !table.compare_and_set(7, "one", "three") && table.lookup(7) == longer);
    REQUIRE(table.compare_and_set(7, longer, std::nullopt) && !table.lookup(7) && !table.compare_and_set(7, "", std::nullopt));
    for (const auto &element : table)
        table.insert(element.first + 1000, element.second);
    table.clear();
    REQUIRE(table.begin() == table.end() && table.volume().elements == 0);
    table.insert(9, "nine");
    auto moved = std::move(table);
    REQUIRE(refused([&] { table.begin(); }) == PW_ARGUMENT);
    REQUIRE(refused([&] { table.flush(); }) == PW_ARGUMENT && moved.lookup(9));
}

static void counts(pw::node &node, pw::token &token, pw::remote &remote)
{
    auto counting = node.count_accesses(token);
    remote.put_value(4096, std::uint64_t{1});
    std::uint64_t word;
    remote.get(0, &word, sizeof word).wait();
    REQUIRE(counting.total().puts == 1 && counting.total().gets == 1 && counting.page(1).bytes_in == 8);
    REQUIRE(counting.hottest(5).size() == 2 && counting.sources().size() == 1);
    const pw_source source = node.source(counting.sources()[0].number);
    REQUIRE(source.kind == PW_SOURCE_NODE && source.rank == 0);
    REQUIRE(refused([&] { (void)node.source(1ull << 40); }) == PW_ARGUMENT);
    auto counters = node.open(counting.export_counters());
    pw::access_counts of[2];
    counters.get(0, of, sizeof of).wait();
    REQUIRE(of[0].gets == 1 && of[1].puts == 1 && of[1].bytes_in == 8);
    REQUIRE(counting.reset().puts == 1 && counting.total().puts == 0);
    REQUIRE(refused([&] { (void)node.count_accesses(token, 4); }) == PW_ARGUMENT);
}

static void checkpoints(pw::node &node, pw::token &token, pw::remote &remote, std::uint64_t *table, const std::string &path)
{
    const std::vector<pw::memory> memory = {{table, 4 * 4096, &token}};
    {
        auto checkpoint = node.open_checkpoint(path, memory, PW_NO_SYNC);
        REQUIRE(!checkpoint.restore());
        REQUIRE(checkpoint.save("the first").is_full);
        remote.put_value(8192, std::uint64_t{77});
        table[0] = 5;
        REQUIRE(checkpoint.save_together({&remote}, "the second").number == 2);
        REQUIRE(refused([&] { node.open_checkpoint(path, memory); }) == PW_IN_USE);
    }
    table[0] = table[1024] = 0;
    auto checkpoint = node.open_checkpoint(path, memory);
    auto restored = checkpoint.restore();
    REQUIRE(restored && restored->number == 2 && restored->note == "the second");
    REQUIRE(table[0] == 5 && table[1024] == 77);
    REQUIRE(checkpoint.restore(1)->note == "the first" && table[0] == 0);
    REQUIRE(checkpoint.restore_together()->number == 2);
    REQUIRE(refused([&] { checkpoint.restore(9); }) == PW_ARGUMENT);
}

static void processes(pw::node &node, const std::string &path)
{
    auto begin = [&](std::size_t rank) {
        return node.start_logged_process(path + std::to_string(rank), {rank, 2, 4096, 0, PW_NO_SYNC});
    };
    auto first = begin(0);
    std::uint64_t value = 7, found;
    {
        auto second = begin(1);
        second.connect(first.make_ticket(1));
        first.connect(second.make_ticket(0));
        REQUIRE(!second.note() && second.checkpoint("at the beginning") == 1);
        static_cast<std::uint64_t *>(first.memory())[1] = 5;
        second.get(0, 8, &found, sizeof found);
        REQUIRE(found == 5 && second.next_epoch() == 1 && first.next_epoch() == 1);
        first.put(1, 16, &value, sizeof value);
        REQUIRE(refused([&] { first.put(1, 4095, &value, sizeof value); }) == PW_BOUNDS);
    }
    auto again = begin(1);
    REQUIRE(again.note() == "at the beginning");
    again.connect(first.make_ticket(1));
    again.replay();
    REQUIRE(again.is_replaying());
    static_cast<std::uint64_t *>(first.memory())[1] = 6;
    REQUIRE(refused([&] { again.get(0, 16, &found, sizeof found); }) == PW_REPLAY);
    again.get(0, 8, &found, sizeof found);
    REQUIRE(found == 5 && again.next_epoch() == 1 && !again.is_replaying());
    REQUIRE(static_cast<std::uint64_t *>(again.memory())[2] == 7);
}

static void durable_tables(pw::node &node, const std::string &folder)
{
    const pw::durability where{folder, 0, PW_NO_SYNC};
    pw::volume_ticket ticket;
    {
        auto table = node.join_durable_table({100}, where);
        table.insert(7, "seven");
        table.checkpoint();
        table.insert(8, "eight");
        table.flush();
        ticket = table.ticket();
        REQUIRE(table.volume().checkpoints >= 1);
        REQUIRE(refused([&] { table.readmit(0, ticket); }) == PW_ARGUMENT);
        REQUIRE(refused([&] { node.join_durable_table({100, 0, 0, PW_BY_OPERATIONS}, where); }) == PW_ARGUMENT);
    }
    auto again = node.restart_table({100}, where, 0, {ticket});
    REQUIRE(again.lookup(7) == "seven" && again.lookup(8) == "eight" && again.volume().elements == 2);
    REQUIRE(refused([&] { node.restart_table({100}, where, 1, {ticket}); }) == PW_ARGUMENT);
}

static void chains(pw::node &node)
{
    std::vector<std::uint64_t, pw::allocator<std::uint64_t>> memory(512);
    auto served = node.serve_built_ins(memory.data(), 4096);
    served.begin_area(64, 128, 4096);
    auto remote = node.open_built_ins(served.address());
    pw::chain push;
    push.append(64, "hello").if_swapped().compare_swap(8, pw::as_bytes(std::uint64_t{0}), pw::as_bytes(std::uint64_t{128}));
    auto pushed = remote.run(push);
    REQUIRE(pushed.size() == 2 && pushed[0].word == 128 && pushed[1].swapped && pushed[1].data == std::string(8, '\0'));
    pw::chain more;
    more.fetch_add(0, 5).read(pw::step_place::behind(8), 5).exclusive_or(128, "HE");
    auto found = remote.run(more);
    REQUIRE(found[0].word == 0 && memory[0] == 5 && found[1].data == "hello" && found[2].data == "he");
    pw::chain wide;
    wide.compare_swap(256, std::string(32, '\1'), std::string(32, '\2')).if_swapped().write(300, "no").append(64, "x").read(pw::step_place::found(2), 1);
    auto not_swapped = remote.run(wide);
    REQUIRE(!not_swapped[0].swapped && not_swapped[0].data == std::string(32, '\0') && !not_swapped[1].was_run);
    REQUIRE(not_swapped[2].word == 136 && not_swapped[3].data == "x");
    pw::chain masked;
    masked.masked_compare_swap(0, std::string_view("\x05\x09", 2), std::string_view("\xff\0", 2), std::string_view("\x01\x80", 2), std::string_view("\0\x80", 2));
    REQUIRE(remote.run(masked)[0].swapped && memory[0] == 0x8005);
    REQUIRE(refused([&] { remote.run(pw::chain().fetch_add(4096, 1)); }) == PW_BOUNDS);
    REQUIRE(refused([&] { remote.run(pw::chain().fetch_add(1, 1)); }) == PW_ALIGNMENT);
    REQUIRE(refused([&] { remote.run(pw::chain().read(0, std::size_t{1} << 40)); }) == PW_LIMIT);
    REQUIRE(refused([&] { pw::chain().compare_swap(0, "a", "ab"); }) == PW_ARGUMENT);
    REQUIRE(remote.run(pw::chain()).empty());
}

static void batches(pw::node &node)
{
    std::vector<std::uint64_t, pw::allocator<std::uint64_t>> words(512);
    auto token = node.export_memory(words, pw::rights::write);
    std::uint64_t sum = 0;
    {
        auto served = node.redirect_batches(token, [&](const pw::batched_put &put) {
            if (put.offset == 8)
                throw std::runtime_error("not there");
            sum += put.value<std::uint64_t>().value();
            put.write();
        });
        auto moved = std::move(served);
        auto batch = node.open_batch(moved.address());
        for (std::uint64_t value = 0; value < 100; value++)
            batch.put_value(8 * value, value);
        REQUIRE(batch.unsent() == 100 && batch.length() == 4096);
        batch.flush_handled();
        REQUIRE(sum == 4949 && words[1] == 0 && words[99] == 99);
        auto counts = moved.counts();
        REQUIRE(counts.puts == 100 && counts.messages == 1 && counts.failed == 1 && counts.malformed == 0);
        REQUIRE(refused([&] { batch.put_value(4092, sum); }) == PW_BOUNDS);
    }
    auto served = node.batches_to_memory(words.data(), 4096);
    auto batch = node.open_batch(served.address());
    batch.put_value(16, std::uint64_t{77});
    batch.send();
    batch.wait();
    batch.flush_handled();
    REQUIRE(words[2] == 77);
}

static void parities(pw::node &keeper)
{
    using namespace std::chrono_literals;
    std::vector<std::uint64_t, pw::allocator<std::uint64_t>> table(1000);
    auto node = pw::node::alone();
    auto parity = keeper.make_parity(2, 8000);
    auto memory = [](auto &values) { return std::vector<pw::memory>{{values.data(), 8 * values.size(), nullptr}}; };
    auto first = node.join_parity(parity.member_token(0), 0);
    {
        auto second = node.join_parity(parity.member_token(1), 1);
        REQUIRE(refused([&] { first.restore(memory(table)); }) == PW_PARITY);
        table[7] = 70;
        REQUIRE(first.save(memory(table)) == 1);
        REQUIRE(refused([&] { first.wait(1ms); }) == PW_TIMEOUT);
        table[7] = 71;
        REQUIRE(second.save(memory(table)) == 1 && second.wait(10s) == 1 && parity.round() == 1);
    }
    table[7] = 0;
    auto [again, rebuilt] = node.rebuild_parity(parity.member_token(1), 1, {first.token()});
    REQUIRE(rebuilt.round == 1 && rebuilt.length == 8000);
    REQUIRE(again.restore(memory(table)) == 1 && table[7] == 71);
    REQUIRE(first.restore(memory(table)) == 1 && table[7] == 70);
    REQUIRE(refused([&] { (void)parity.member_token(2); }) == PW_ARGUMENT);
    REQUIRE(refused([&] { (void)node.join_parity(first.token(), 0); }) == PW_TOKEN);
}

int main(int, char **argv)
{
    auto node = pw::node::alone();
    std::vector<std::uint64_t, pw::allocator<std::uint64_t>> table(4 * 512);
    auto token = node.export_memory(table, pw::rights::all);
    auto remote = node.open(token);
    tables(node);
    counts(node, token, remote);
    std::string path = std::string(argv[0]) + "." + std::to_string(reinterpret_cast<std::uintptr_t>(&node)) + ".checkpoint";
    checkpoints(node, token, remote, table.data(), path);
    processes(node, path);
    for (const char *end : {"", "0", "1"})
        std::remove((path + end).c_str());
    durable_tables(node, path + ".table");
    std::filesystem::remove_all(path + ".table");
    chains(node);
    batches(node);
    parities(node);
}
