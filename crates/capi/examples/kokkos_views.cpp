/*
 * Kokkos Views in registered memory, in C++17. Each process of the job fills a View and puts it to the next one.
 *
 *     c++ -std=c++17 kokkos_views.cpp -o kokkos_views $(pkg-config --cflags --libs pagewire) -I/usr/include/trilinos -ltrilinos_kokkoscore
 *     mpirun -n 2 ./kokkos_views
 */
#include <pagewire/kokkos.hpp>

#include <cstdio>

using view = Kokkos::View<double *, pw::kokkos_space>; // its elements are registered from their birth

int main(int argc, char **argv)
try {
    Kokkos::ScopeGuard kokkos(argc, argv);
    auto node = pw::node::from_env();
    auto rank = double(node.rank());

    constexpr std::size_t count = 1 << 20;
    view inbox("inbox", count);
    auto tokens = node.all_gather(pw::export_view(node, inbox, pw::rights::write));
    auto next = node.open(tokens[(node.rank() + 1) % node.size()]);

    view field("field", count);
    Kokkos::parallel_for(
        "fill", count, KOKKOS_LAMBDA(std::size_t index) { field(index) = rank + double(index); });
    Kokkos::fence();
    pw::put_view(next, 0, field).wait(); // the elements are there
    node.barrier();

    double sum = 0; // of what came less its index: count times the rank of the process before
    Kokkos::parallel_reduce(
        "sum", count, KOKKOS_LAMBDA(std::size_t index, double &part) { part += inbox(index) - double(index); }, sum);
    std::printf("%zu got %g\n", node.rank(), sum / double(count));
    node.barrier(); // the inbox stays until all have put
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
