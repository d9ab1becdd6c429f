// Waits for several operations and signals, atomics, a descriptor and parts of a job, from C++.
#include "require.hpp"

#include <poll.h>

#include <array>
#include <list>
#include <string>

using namespace std::chrono_literals;

alignas(64) static std::uint64_t table[16];

static void operations(pw::node &node, pw::remote &remote)
{
    std::uint64_t values[3] = {1, 2, 3};
    std::vector<pw::operation> puts;
    REQUIRE(!pw::wait_any(puts) && pw::wait_all(puts, 0ns));
    for (std::size_t i = 0; i < 3; i++)
        puts.push_back(remote.put(8 * i, &values[i], 8));
    REQUIRE(*pw::wait_any(puts) < 3 && !pw::wait_some(puts).empty());
    REQUIRE(pw::wait_all(puts) && pw::wait_some(puts, 0ns).size() == 3 && table[2] == 3);
    auto late = remote.put(sizeof table, values, 8);
    auto add = remote.fetch_add(24, 4);
    REQUIRE(refused([&] { pw::wait_all(std::vector<pw_operation *>{add.get(), late.get()}); }) == PW_BOUNDS);
    REQUIRE(add.wait() == 0);

    pollfd ready{node.descriptor(), POLLIN, 0};
    REQUIRE(poll(&ready, 1, 0) == 0);
    auto put = remote.put(0, pw::borrowed(values, 1));
    REQUIRE(poll(&ready, 1, 60000) == 1);
    put.wait();
    REQUIRE(poll(&ready, 1, 0) == 0);
}

/* Lists of operations that have their buffer, and of atomics. */
static void owning_operations(pw::remote &remote)
{
    std::vector<pw::owning_operation<std::vector<std::uint64_t>>> puts;
    REQUIRE(!pw::wait_any(puts) && pw::wait_some(puts).empty() && pw::wait_all(puts));
    for (std::uint64_t i = 0; i < 3; i++)
        puts.push_back(remote.put(8 * i, std::vector<std::uint64_t>{i + 10}));
    const auto &constant = puts;
    REQUIRE(*pw::wait_any(constant, 60s) < 3 && !pw::wait_some(constant).empty() && pw::wait_all(constant, 60s));
    REQUIRE(table[2] == 12 && puts[2].get() != nullptr);
    // One that was moved from is passed over.
    auto first = std::move(puts[0]);
    REQUIRE(pw::wait_any(puts) == std::optional<std::size_t>(1) && first.wait().front() == 10);
    REQUIRE(pw::wait_some(puts, 0ns) == std::vector<std::size_t>({1, 2}) && puts[1].wait().front() == 11);

    std::list<pw::owning_operation<std::vector<std::uint64_t>>> late;
    late.push_back(remote.put(sizeof table, std::vector<std::uint64_t>{13}));
    REQUIRE(refused([&] { pw::wait_all(late); }) == PW_BOUNDS && late.front().take().front() == 13);

    table[9] = 0;
    std::array<pw::atomic_operation, 2> adds{remote.fetch_add(72, 1), remote.fetch_add(72, 1)};
    REQUIRE(pw::wait_all(adds) && adds[0].wait() + adds[1].wait() == 1);
    pw::basic_atomic_operation<std::uint32_t> words[] = {remote.fetch_or_32(72, 4)};
    REQUIRE(pw::wait_any(words) == std::optional<std::size_t>(0) && words[0].wait() == 2);
}

/* Lists of conditional writes and of their acceptances, and of several kinds, of two nodes. */
static void conditional_writes(pw::node &receiver, pw::remote &remote)
{
    auto writer = pw::node::alone();
    auto to = receiver.identity();
    alignas(8) static char inboxes[2][8];
    const pw::token tokens[] = {receiver.export_memory(inboxes[0], 8, pw::rights::write), receiver.export_memory(inboxes[1], 8, pw::rights::write)};

    std::vector<pw::acceptance> accepted;
    accepted.push_back(receiver.accept_any_conditional_write(1, tokens[0]));
    accepted.push_back(receiver.accept_conditional_write(writer.identity(), 2, tokens[1]));
    REQUIRE(!pw::wait_any(accepted, 0ns) && pw::wait_some(accepted, 1ms).empty() && !pw::wait_all(accepted, 1ms));
    std::vector<pw::owning_operation<std::string, pw::held_write>> writes;
    writes.push_back(writer.conditional_write(to, 2, std::string("second")));
    REQUIRE(pw::wait_any(accepted, 60s) == std::optional<std::size_t>(1) && pw::wait_some(accepted, 0ns) == std::vector<std::size_t>({1}));
    REQUIRE(accepted[1].wait() == 6 && std::string(inboxes[1]) == "second");
    writes.push_back(writer.conditional_write(to, 1, std::string("first")));
    REQUIRE(pw::wait_all(accepted, 60s) && pw::wait_all(writes, 60s));
    REQUIRE(accepted[0].wait() == 5 && writes[1].wait() == "first" && std::string(inboxes[0]) == "first");

    // A conditional write that nobody accepts, its acceptance by another tag, a put and an atomic.
    std::vector<pw::held_write> held;
    held.push_back(writer.conditional_write(to, 3, pw::borrowed(std::string_view("third"))));
    auto fourth = receiver.accept_any_conditional_write(4, tokens[0]);
    auto put = remote.put(0, std::vector<std::uint64_t>{20});
    auto add = remote.fetch_add(8, 1);
    const std::array mixed{held[0].get(), fourth.get(), put.get(), add.get()};
    REQUIRE(*pw::wait_any(mixed) >= 2 && !pw::wait_all(mixed, 1ms));
    put.wait();
    (void)add.wait();
    REQUIRE(pw::wait_some(mixed) == std::vector<std::size_t>({2, 3}) && !pw::wait_any(held, 0ns));
    writer.conditional_write(to, 4, std::string("fourth")).wait();
    held[0].cancel();
    REQUIRE(refused([&] { pw::wait_all(mixed, 60s); }) == PW_CANCELLED && fourth.wait() == 6);
    REQUIRE(pw::wait_some(mixed, 0ns).size() == 4 && pw::wait_any(held) == std::optional<std::size_t>(0));
}

static void signals(pw::node &node, pw::remote &remote)
{
    std::vector<pw::signal_wish> wishes = {{table[4], pw::comparison::greater, 3}, {table[5], pw::comparison::equal, 1}};
    REQUIRE(!node.signal_wait_any(wishes, 0ns) && !node.signal_wait_all(wishes, 5ms) && node.signal_wait_some(wishes, 5ms).empty());
    remote.change(pw::signal::set(40, 1));
    REQUIRE(node.signal_wait_any(wishes) == std::optional<std::size_t>(1) && wishes[1].seen == 1);
    remote.change(pw::signal::add(32, 5));
    REQUIRE(node.signal_wait_all(wishes, pw::forever) && wishes[0].seen == 5 && node.signal_wait_some(wishes).size() == 2);
    REQUIRE(node.signal_wait(table[4], pw::comparison::less, 6) == 5);
    REQUIRE(refused([&] { node.signal_wait(table[4], pw::comparison::at_most, 4, 5ms); }) == PW_TIMEOUT);
}

static void atomics(pw::remote &remote)
{
    table[8] = 6;
    REQUIRE(remote.fetch_and(64, 3).wait() == 6 && remote.fetch_or(64, 8).wait() == 2 && remote.fetch_xor(64, 2).wait() == 10);
    REQUIRE(remote.fetch_min(64, 5).wait() == 8 && remote.fetch_max(64, 7).wait() == 5);
    REQUIRE(remote.fetch_min_signed(64, -2).wait() == 7 && remote.fetch_max_signed(64, 0).wait() == -2);
    REQUIRE(remote.fetch_add_32(68, 5).wait() == 0 && remote.compare_swap_32(68, 5, 6).wait() == 5 && remote.swap_32(68, 7).wait() == 6);
    REQUIRE(remote.fetch_and_32(68, 6).wait() == 7 && remote.fetch_or_32(68, 8).wait() == 6 && remote.fetch_xor_32(68, 2).wait() == 14);
    REQUIRE(remote.fetch_min_32(68, 4).wait() == 12 && remote.fetch_max_32(68, 9).wait() == 4);
    REQUIRE(remote.fetch_min_signed_32(68, -3).wait() == 9 && remote.fetch_max_signed_32(68, 1).wait() == -3);
    REQUIRE(table[8] == std::uint64_t{1} << 32);
    REQUIRE(refused([&] { (void)remote.fetch_add_32(66, 1).wait(); }) == PW_ALIGNMENT);
}

static void parts(pw::node &node)
{
    REQUIRE(node.barrier_for(0ns) && node.all_gather_for(7, 1s)->size() == 1);
    auto part = node.split(3, -1);
    REQUIRE(part && part->rank() == 0 && part->size() == 1 && part->job_rank(0) == 0);
    part->barrier();
    REQUIRE(part->barrier_for(1s) && part->all_gather(5) == std::vector<int>{5} && part->broadcast(0, 6) == 6);
    REQUIRE(part->all_gather_for(5, 1s)->front() == 5 && part->split(1)->size() == 1);
    REQUIRE(!node.split(std::nullopt) && refused([&] { (void)part->job_rank(1); }) == PW_JOB);
}

int main()
{
    auto node = pw::node::alone();
    auto token = node.export_memory(table, sizeof table, pw::rights::all);
    auto remote = node.open(token);
    operations(node, remote);
    owning_operations(remote);
    conditional_writes(node, remote);
    signals(node, remote);
    atomics(remote);
    parts(node);
    std::puts("waits.cpp: all is so");
}
