// Memory that reacts, from C++: what handlers throw, servings that end themselves, and what is refused.
#include "require.hpp"

#include <array>
#include <optional>

using nine = std::array<char, 9>;

int main()
{
    constexpr std::uint64_t page = 4096;
    auto node = pw::node::alone();
    std::vector<std::uint64_t, pw::allocator<std::uint64_t>> table(4 * 512);
    auto token = node.export_memory(table, pw::rights::all);
    auto remote = node.open(token);
    auto log = node.make_access_log(1 << 16, 8);
    auto pages = node.attributes(token, 0, page);

    // What is thrown is counted, and the log goes on.
    pages.redirect_puts().to(log);
    auto fails = [](const pw::access &access) {
        auto value = access.value<std::uint64_t>().value();
        if (value == 1)
            throw std::runtime_error("it is one");
        if (value == 2)
            throw 2;
    };
    auto put_four = [&] {
        for (std::uint64_t value = 0; value < 4; value++)
            remote.put_value(8, value);
        remote.flush_handled(log.domain()).wait();
    };
    for (bool polls : {false, true}) {
        auto serving = polls ? log.serve_polling(fails) : log.serve(fails, {10, std::chrono::milliseconds(1)});
        put_four();
        auto now = serving.done();
        REQUIRE(now.handled == 4 && now.failed == 2);
        auto moved = std::move(serving);
        auto last = moved.end();
        REQUIRE(last.handled == 4 && last.failed == 2);
        REQUIRE(refused([&] { moved.end(); }) == PW_ARGUMENT);
    }
    for (std::uint64_t value = 0; value < 3; value++)
        remote.put_value(8, value);
    auto polled = log.poll(fails, 2);
    REQUIRE(polled.handled == 2 && polled.failed == 1);
    std::size_t seen = 0;
    polled = log.poll([&](const pw::access &access) {
        seen++;
        REQUIRE(access.offset_from(table.data()) == 8 && access.was_redirected() && access.is_first() && access.is_last());
        REQUIRE(!access.was_refused() && !access.may_have_written() && !access.value<nine>());
        REQUIRE(refused([&] { log.poll(fails); }) == PW_IN_HANDLER);
    });
    REQUIRE(polled.handled == 1 && polled.failed == 0 && seen == 1 && table[1] == 0);

    // A handler may end the serving that has it, and is whole until it returns.
    {
        std::optional<pw::serving> own;
        std::vector<int> kept(1000, 7);
        int sum = 0;
        own = log.serve([&, kept](const pw::access &) {
            own.reset();
            for (int each : kept)
                sum += each;
        });
        remote.put_value(8, std::uint64_t{1});
        remote.flush_handled().wait();
        remote.put_value(8, std::uint64_t{2});
        REQUIRE(sum == 7000 && log.poll(fails).handled == 1);
    }

    // What is refused, and the fault log.
    REQUIRE(refused([&] { pages.redirect_puts().to_fault_log(); }) == PW_ARGUMENT);
    REQUIRE(refused([&] { node.attributes(token, 1, page).log_puts().to(log); }) == PW_BOUNDS);
    REQUIRE(refused([&] { node.make_access_log(1); }) == PW_ENGINE);
    REQUIRE(refused([&] { (void)log.serve(fails, {0, std::chrono::seconds(1)}); }) == PW_ARGUMENT);
    REQUIRE(refused([&] { (void)log.serve(fails, {1, std::chrono::seconds(-1)}); }) == PW_ARGUMENT);
    pages.refuse_puts().refuse_gets().log_puts().log_gets().to_fault_log();
    REQUIRE(refused([&] { remote.put_value(0, std::uint64_t{1}); }) == PW_KEY);
    REQUIRE(refused([&] { remote.get_value<std::uint64_t>(0); }) == PW_KEY);
    int faults = 0;
    REQUIRE(node.take_faults([&](const pw::access &access) { faults += access.was_refused(); }) == 0 && faults == 2);
    pages.log_put_data().log_get_data().to(log);
    remote.put_value(0, std::uint64_t{5});
    REQUIRE(remote.get_value<std::uint64_t>(0) == 5);
    auto both = log.poll([](const pw::access &access) { REQUIRE(access.value<std::uint64_t>() == 5u); });
    REQUIRE(both.handled == 2);
    pages.set();
    remote.put_value(0, std::uint64_t{6});
    REQUIRE(table[0] == 6 && log.poll(fails).handled == 0);

    // A log may end before its serving.
    auto other = std::make_optional(node.make_access_log(1 << 12, 2));
    auto serving = other->serve(fails);
    other.reset();
    REQUIRE(serving.end().handled == 0);
}
