// Experimental applications from C++: global memory, a sort, streams, transactions.
#include <pagewire_experimental.hpp>

#include "require.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

namespace experimental = pagewire::experimental;

static void global_memories(pw::node &node)
{
    try {
        experimental::global_memory memory(node, 2);
        auto moved = std::move(memory);
        std::size_t calls = 0;
        moved.on_access([&](const experimental::page_access &access) {
            REQUIRE(access.first_word % PW_GLOBAL_PAGE_WORDS == 0 && access.by == 0 && access.is_alone);
            access.content[5] = 50;
            calls++;
        });
        auto words = moved.words();
        words[0].fetch_add(3);
        REQUIRE(words[0] == 3 && words[5] == 50 && words[512 + 5] == 50 && calls >= 2);
        REQUIRE(moved.home(0) == (std::pair<std::size_t, std::size_t>{0, 1024}));
        auto dirty = moved.take_dirty();
        REQUIRE(!dirty.empty() && dirty[0] == 0);
        REQUIRE(moved.counts().faults >= 2 && moved.lost().empty());
        REQUIRE(refused([&] { moved.home(1); }) == PW_ARGUMENT);
        REQUIRE(refused([&] { memory.words(); }) == PW_ARGUMENT);
        REQUIRE(refused([&] { experimental::global_memory none(node, 0); }) == PW_LIMIT);
        moved.leave();
        REQUIRE(refused([&] { moved.counts(); }) == PW_ARGUMENT);
        pw_error code = PW_OK;
        experimental::global_memory large(node, 1100);
        /* By its own handler it is not ended. */
        large.on_access([&](const experimental::page_access &) { code = refused([&] { large.leave(); }); });
        /* More than are taken at once, and all may still be stored to. */
        for (std::size_t page = 0; page < 1100; page++)
            large.words()[page * PW_GLOBAL_PAGE_WORDS].store(1);
        auto all = large.take_dirty();
        REQUIRE(all.size() == 1100 && all.back() == 1099 * PW_GLOBAL_PAGE_WORDS);
        REQUIRE(code == PW_IN_HANDLER);
    } catch (const pw::error &error) {
        if (error.code() != PW_SYSTEM)
            throw;
        std::fprintf(stderr, "not checked: global memory: %s\n", error.what());
    }
}

static void sorts(pw::node &node)
{
    using namespace std::chrono_literals;
    char folder[] = "/tmp/pagewire-sort-XXXXXX";
    REQUIRE(mkdtemp(folder));
    std::vector<std::uint64_t> keys{3, 1, 2};
    REQUIRE(refused([&] { experimental::sort(node, folder, 0, 2, keys.data(), keys.size(), 1ms); }) == PW_TIMEOUT);
    REQUIRE(refused([&] { experimental::sort(node, folder, 1, 1, keys.data(), keys.size()); }) == PW_ARGUMENT);
    {
        auto made = experimental::sort(node, folder, 0, 1, keys.data(), keys.size());
        auto sorted = std::move(made);
        REQUIRE((std::vector<std::uint64_t>(sorted.begin(), sorted.end()) == std::vector<std::uint64_t>{1, 2, 3}));
        REQUIRE(sorted.size() == 3 && sorted[2] == 3 && sorted.position() == 0 && pw_is_registered(sorted.data()));
        REQUIRE(sorted.statistics().run_was_saved);
    }
    std::filesystem::remove_all(folder);
}

static void streams(pw::node &node)
{
    using namespace std::chrono_literals;
    experimental::listener listener(node, 8192);
    auto token = listener.token();
    REQUIRE(refused([&] { (void)listener.accept(1ms); }) == PW_TIMEOUT);
    REQUIRE(refused([&] { experimental::stream none(node, token, 8192, 1ms); }) == PW_TIMEOUT);
    std::thread asks([&] {
        auto own = pw::node::alone();
        experimental::stream stream(own, token);
        stream.send("hello");
        stream.shutdown();
        char found[16];
        REQUIRE(stream.receive(found, sizeof found) == 5 && std::string_view(found, 5) == "HELLO");
        REQUIRE(stream.receive(found, sizeof found) == 0);
        REQUIRE(refused([&] { stream.send("more"); }) == PW_STREAM);
    });
    {
        auto stream = listener.accept(10s);
        char found[16];
        REQUIRE(stream.receive(found, sizeof found, 10s) == 5 && stream.receive(found, sizeof found) == 0);
        stream.send("HELLO");
        stream.flush();
        REQUIRE(stream.send_within("", 0s) == 0);
    }
    asks.join();
    REQUIRE(refused([&] { experimental::listener none(node, 1); }) == PW_ARGUMENT);
}

static void transactions(pw::node &node)
{
    std::vector<pw::node> owners;
    std::vector<experimental::transaction_store> stores;
    std::vector<experimental::transaction_store_token> tokens;
    for (int at = 0; at < 2; at++) {
        owners.push_back(pw::node::alone());
        stores.emplace_back(owners[at], 4, 8);
        tokens.push_back(stores[at].token());
    }
    REQUIRE(refused([&] { stores[0].held(); }) == PW_ARGUMENT);
    for (std::size_t at = 0; at < 2; at++)
        stores[at].serve(at, tokens);
    auto transfer = [](experimental::transaction &of) {
        of.put(0, 3, of.get<std::int64_t>(0, 3) - 1);
        of.put(1, 2, of.get<std::int64_t>(1, 2) + 1);
    };
    experimental::transaction_client client(node, tokens);
    std::thread other([&] {
        auto own = pw::node::alone();
        experimental::transaction_client moves(own, tokens);
        for (int time = 0; time < 40; time++)
            moves.run(transfer);
    });
    for (int time = 0; time < 40; time++)
        client.run(transfer);
    other.join();
    REQUIRE(stores[0].cell<std::int64_t>(3) == -80 && stores[1].cell<std::int64_t>(2) == 80);
    REQUIRE(refused([&] { client.run([](experimental::transaction &of) { of.get<std::int32_t>(0, 3); }); }) == PW_ARGUMENT);
    REQUIRE(refused([&] { client.try_once([](experimental::transaction &of) { of.put(0, 4, std::int64_t{1}); }); }) == PW_ARGUMENT);
    bool was_given_up = false;
    try {
        client.run([&](experimental::transaction &of) {
            of.put(0, 0, std::int64_t{1});
            throw std::runtime_error("not at all");
        });
    } catch (const std::runtime_error &) {
        was_given_up = true;
    }
    REQUIRE(was_given_up && stores[0].cell<std::int64_t>(0) == 0);
    REQUIRE(refused([&] { experimental::transaction_store none(node, 4, 9); }) == PW_ARGUMENT);
    stores.clear();
}

int main()
{
    auto node = pw::node::alone();
    global_memories(node);
    sorts(node);
    streams(node);
    transactions(node);
}
