/* Operations that own their buffer or borrow it, pieces, conditional writes and mapped files, from C++. */
#include "require.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/mman.h>

static pw::owning_operation<std::vector<int>> a_put_that_outlives_its_caller(pw::remote &remote)
{
    std::vector<int> mine(1000, 7);
    return remote.put(0, std::move(mine));
}

static void buffers(pw::node &node)
{
    std::pmr::vector<int> table(4096, node.resource());
    auto remote = node.open(node.export_memory(table, pw::rights::all));

    REQUIRE(a_put_that_outlives_its_caller(remote).wait().size() == 1000);
    REQUIRE(table[0] == 7 && table[999] == 7 && table[1000] == 0);
    // One is replaced while it runs: its buffer ends behind it.
    auto put = remote.put(0, std::vector<int>(1000, 8));
    put = remote.put(0, std::vector<int>(1000, 9));
    REQUIRE(put.wait()[0] == 9 && table[999] == 9);
    auto word = remote.fetch_add(0, 0);
    word = remote.fetch_add(0, 0);
    REQUIRE(word.wait() == 0x900000009);

    remote.put(0, std::array<int, 2>{1, 2}).wait();
    REQUIRE(table[0] == 1 && table[1] == 2);
    REQUIRE(remote.put(0, std::string("short")).wait() == "short");
    REQUIRE(remote.get<char>(0, 5).wait() == std::vector<char>({'s', 'h', 'o', 'r', 't'}));
    REQUIRE(remote.get(0, std::string(5, ' ')).wait() == "short");
    remote.put(0, pw::borrowed(std::string_view("SHORT"))).wait();
    const int three[] = {3, 4, 5};
    remote.put(8, pw::borrowed(three, 3)).wait();
    std::vector<int> got(3);
    remote.get(8, pw::borrowed(got)).wait();
    REQUIRE(got[0] == 3 && got[2] == 5);
    // By an address, it has ended when the call returns.
    int five = 5;
    auto ended = remote.put(0, &five, sizeof five);
    five = 6;
    REQUIRE(ended.is_done() && table[0] == 5);
    remote.get(0, &five, sizeof five).wait();
    REQUIRE(five == 5);

    // A failure leaves the buffer.
    auto late = remote.put(4096 * sizeof(int) - 4, std::vector<int>{1, 2});
    REQUIRE(refused([&] { late.wait(); }) == PW_BOUNDS);
    REQUIRE(late.take().size() == 2);
}

static void pieces(pw::node &node)
{
    std::pmr::vector<int> table(64, node.resource());
    auto remote = node.open(node.export_memory(table, pw::rights::all));
    // The second column of a matrix of 8 by 8.
    remote.put_strided(4, 32, std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
    for (int row = 0; row < 8; row++)
        REQUIRE(table[row * 8 + 1] == row + 1 && table[row * 8] == 0);
    REQUIRE(remote.get_strided<int>(4, 64, 4) == std::vector<int>({1, 3, 5, 7}));
    std::vector<int> both(4);
    remote.get_strided(4, 32, 8, pw::borrowed(both));
    REQUIRE(both == std::vector<int>({1, 0, 2, 0}));
    REQUIRE(refused([&] { remote.get_strided<int>(0, 32, 9); }) == PW_BOUNDS);

    std::vector<pw_piece> two{{0, 4}, {252, 4}};
    remote.put_scattered(two, std::vector<int>{-1, -2}).wait();
    REQUIRE(table[0] == -1 && table[63] == -2);
    REQUIRE(remote.get_scattered(two, std::vector<int>(2)).wait() == std::vector<int>({-1, -2}));
    remote.put_scattered(two, pw::borrowed(both.data(), 2)).wait();
    REQUIRE(table[0] == 1 && table[63] == 0);
    auto last = pw::signal::set(8, 7);
    REQUIRE(remote.put_signal(0, std::vector<int>{11}, last).wait()[0] == 11);
    REQUIRE(table[0] == 11 && table[2] == 7);
}

static void conditional(pw::node &writer)
{
    auto receiver = pw::node::alone();
    std::pmr::string inbox(4096, '\0', receiver.resource());
    auto token = receiver.export_memory(inbox, pw::rights::write);
    auto to = receiver.identity();
    auto owner = pw::owner_of(token);
    REQUIRE(!std::memcmp(&owner, &to, sizeof to));

    auto held = writer.conditional_write(to, 7, std::string("seven"));
    REQUIRE(!held.is_done() && !held.wait_for(std::chrono::milliseconds(1)));
    auto request = receiver.next_conditional_request(std::chrono::seconds(60));
    REQUIRE(request.is_write() && request.tag() == 7 && request.length() == 5);
    REQUIRE(request.accept(token).wait() == 5);
    REQUIRE(held.wait() == "seven" && !inbox.compare(0, 5, "seven"));

    auto accepted = receiver.accept_any_conditional_write(8, token);
    writer.conditional_write(to, 8, pw::borrowed(std::string_view("eight"))).wait();
    REQUIRE(accepted.wait() == 5 && !inbox.compare(0, 5, "eight"));
    auto cancelled = writer.conditional_write(to, 9, std::string("nothing"));
    cancelled.cancel();
    REQUIRE(refused([&] { cancelled.wait(); }) == PW_CANCELLED && cancelled.take() == "nothing");
    cancelled = writer.conditional_write(to, 10, std::string("nothing"));
    cancelled.within(std::chrono::milliseconds(1));
    REQUIRE(refused([&] { cancelled.wait(); }) == PW_TIMEOUT);
    // Whoever lets go of one cancels it, and nothing hangs.
    cancelled = writer.conditional_write(to, 11, std::string("nothing"));
    cancelled = writer.conditional_write(to, 12, std::string("declined"));
    for (std::uint64_t tag = 0; tag != 12;) {
        auto next = receiver.next_conditional_request(std::chrono::seconds(60));
        tag = next.tag();
        if (tag == 12)
            next.decline();
    }
    REQUIRE(refused([&] { cancelled.wait(); }) == PW_DECLINED);

    // A read: the data are the peer's.
    auto asked = receiver.conditional_read(writer.identity(), 13, token);
    auto read = writer.next_conditional_request(std::chrono::seconds(60));
    REQUIRE(!read.is_write() && read.length() == inbox.size());
    auto supplied = read.supply(std::string("thirteen"));
    REQUIRE(asked.wait() == 8 && supplied.wait() == "thirteen" && !inbox.compare(0, 8, "thirteen"));
    REQUIRE(refused([&] { writer.next_conditional_request(std::chrono::nanoseconds(0)); }) == PW_TIMEOUT);
}

static void files(pw::node &node, const std::string &path)
{
    REQUIRE(refused([&] { node.map_file(path + ".none"); }) == PW_SYSTEM);
    auto file = node.map_file_writable(path, 8192);
    REQUIRE(file.length() == 8192);
    {
        auto remote = node.open(file.export_memory(pw::rights::read | pw::rights::write, 4096));
        REQUIRE(remote.length() == 4096);
        remote.put(0, std::string("in the file")).wait();
        file.sync();
    }
    std::ifstream stream(path, std::ios::binary);
    std::string all{std::istreambuf_iterator<char>(stream), {}};
    REQUIRE(all.size() == 8192 && !all.compare(4096, 11, "in the file"));
    auto read_only = node.map_file(path);
    REQUIRE(refused([&] { read_only.export_memory(pw::rights::write); }) == PW_ENGINE);
    REQUIRE(node.open(read_only.export_memory(pw::rights::read)).get(4096, std::string(11, ' ')).wait() == "in the file");
}

/* Memory that its owner unmaps while it is exported. What lies before it is accessed as ever. */
static void unmapped(pw::node &node)
{
    constexpr std::size_t page = 4096, length = 64 * page;
    void *mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    auto token = node.export_memory(mapped, length, pw::rights::all);
    auto remote = node.open(token);
    remote.put_value(page, 7);
    REQUIRE(remote.get_value<int>(page) == 7);
    REQUIRE(!munmap(static_cast<char *>(mapped) + page, length - page));
    REQUIRE(refused([&] { remote.get_value<int>(page); }) == PW_MEMORY);
    REQUIRE(refused([&] { remote.put_value(2 * page, 8); }) == PW_MEMORY);
    REQUIRE(refused([&] { (void)remote.fetch_add(page, 1).wait(); }) == PW_MEMORY);
    auto put = remote.put(page - sizeof(int), std::vector<int>{1, 2});
    REQUIRE(refused([&] { put.wait(); }) == PW_MEMORY && put.take().size() == 2);
    remote.put_value(0, 9);
    REQUIRE(remote.get_value<int>(0) == 9);
    node.unexport(token);
    REQUIRE(!munmap(mapped, page));
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    auto node = pw::node::alone();
    buffers(node);
    pieces(node);
    conditional(node);
    files(node, argv[1]);
    unmapped(node);
}
