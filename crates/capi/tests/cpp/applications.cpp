// Applications of memory that reacts, from C++: a hash table, access statistics, checkpoints.
#include <pagewire.hpp>

#include <cstdio>
#include <cstdlib>

#define REQUIRE(holds) ((holds) ? (void)0 : (void)(std::fprintf(stderr, "%d: not so: %s\n", __LINE__, #holds), std::exit(1)))

template <class Call> static pw_error refused(Call call)
{
    try {
        call();
    } catch (const pw::error &error) {
        return error.code();
    }
    return PW_OK;
}

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
    REQUIRE(refused([&] { table.insert(0, "none"); }) == PW_SYSTEM);
    REQUIRE(refused([&] { node.join_table({0}); }) == PW_ARGUMENT);
    auto moved = std::move(table);
    REQUIRE(refused([&] { table.flush(); }) == PW_ARGUMENT && moved.lookup(9));
}

static void counts(pw::node &node, pw::token &token, pw::remote &remote)
{
    auto counting = node.count(token);
    remote.put_value(4096, std::uint64_t{1});
    std::uint64_t word;
    remote.get(0, &word, sizeof word).wait();
    REQUIRE(counting.total().puts == 1 && counting.total().gets == 1 && counting.page(1).bytes_in == 8);
    REQUIRE(counting.hottest(5).size() == 2 && counting.sources().size() == 1);
    auto counters = node.open(counting.export_counters());
    pw::access_counts of[2];
    counters.get(0, of, sizeof of).wait();
    REQUIRE(of[0].gets == 1 && of[1].puts == 1 && of[1].bytes_in == 8);
    REQUIRE(counting.reset().puts == 1 && counting.total().puts == 0);
    REQUIRE(refused([&] { (void)node.count(token, 4); }) == PW_ARGUMENT);
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
        return node.start_process(path + std::to_string(rank), {rank, 2, 4096, 0, PW_NO_SYNC});
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
}
