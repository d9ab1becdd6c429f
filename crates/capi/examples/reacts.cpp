/* Memory that reacts, in C++17: a counter and a mailbox made of plain puts. */
#include <pagewire.hpp>

#include <iostream>

int main()
try {
    auto node = pw::node::alone();
    pw::allocator<std::uint64_t> registered;
    std::vector<std::uint64_t, decltype(registered)> table(2 * 512, registered); /* two pages */
    auto token = node.export_memory(table, pw::rights::read | pw::rights::write);
    auto log = node.make_access_log(1 << 20); /* bytes for each source */

    /* Puts to the first page go to the log, and not to memory. Those to the second are counted, and reach memory. */
    node.attributes(token, 0, 4096).redirect_puts().to(log);
    node.attributes(token, 4096).log_puts().to(log);

    int letters = 0;
    auto serving = log.serve([&](const pw::access &access) {
        if (auto letter = access.value<std::uint64_t>()) {
            std::cout << "a letter: " << *letter << '\n';
            letters++;
        } else {
            std::cout << access.length << " bytes were put\n";
        }
    });

    /* This could be any other process that has the token. */
    auto remote = node.open(token);
    remote.put_value(0, std::uint64_t{7});
    std::uint64_t some[] = {1, 2, 3};
    remote.put(4096, some, sizeof some).wait();
    remote.flush_handled().wait(); /* both handlers have returned */

    std::cout << "in memory: " << table[0] << " and " << table[512] << ", letters: " << letters << '\n';
    auto counts = serving.end();
    std::cout << "handled: " << counts.handled << ", failed: " << counts.failed << '\n';
} catch (const pw::error &refused) {
    std::cerr << refused.what() << '\n';
    return 1;
}
