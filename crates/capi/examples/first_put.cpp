/*
 * Your first put, in C++17. Each process of the job puts a vector to the next one, then adds to a signal there.
 *
 *     c++ -std=c++17 first_put.cpp -o first_put $(pkg-config --cflags --libs pagewire)
 *     ./first_put
 *     mpirun -n 4 --oversubscribe ./first_put
 */
#include <pagewire.hpp>

#include <iostream>

int main()
try {
    auto node = pw::node::from_env();
    std::pmr::vector<double> table(1024, node.resource()); // any container in registered memory
    std::vector<std::uint64_t, pw::allocator<std::uint64_t>> arrived(1);

    auto tables = node.all_gather(node.export_memory(table, pw::rights::read | pw::rights::write));
    auto signals = node.all_gather(node.export_memory(arrived, pw::rights::atomic));
    auto next = (node.rank() + 1) % node.size();
    auto remote = node.open(tables[next]);

    std::vector<double> values(10, 0.5 + double(node.rank()));
    auto put = remote.put(80, std::move(values)); // starts now, and has the values
    values = put.wait(); // they are there, and here again
    auto before = node.open(signals[next]).fetch_add(0, 1).wait();
    node.wait_until_at_least(arrived[0], 1);

    std::cout << node.rank() << " got " << table[10] << ", the next had " << before << " and "
              << remote.get_value<double>(80) << '\n';
    try {
        remote.put_value(8192, 1.0);
    } catch (const pw::error &error) {
        std::cout << (error.code() == PW_BOUNDS ? "refused: bounds" : error.what()) << '\n';
    }
    node.barrier();
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
