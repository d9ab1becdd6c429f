// What it costs to send a View to another process (REUSE-5): a View in registered memory, beside an ordinary one that is copied into a registered
// View first and out of one afterwards, and beside the copy into one alone (the paper's "serialisation").
//
// A job of two processes. The first prints a line for each size and round: bytes, and the microseconds of the three. Filling is not counted.
#include <pagewire/kokkos.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

using registered = Kokkos::View<double *, pw::kokkos_space>;
using ordinary = Kokkos::View<double *, Kokkos::HostSpace>;
using word = Kokkos::View<std::uint64_t *, pw::kokkos_space>;
constexpr std::size_t most = 16 << 20;
constexpr int trials = 31;

struct sides {
    pw::node &node;
    word told{"told", 1};
    registered inbox{"inbox", most / sizeof(double)}, staging{"staging", most / sizeof(double)}, field{"field", most / sizeof(double)};
    ordinary source{"source", most / sizeof(double)}, result{"result", most / sizeof(double)};
    std::uint64_t step = 0;
};

template <class View> void fill(const View &view, std::size_t count, int trial)
{
    Kokkos::parallel_for("fill", count, KOKKOS_LAMBDA(std::size_t index) { view(index) = double(index) + trial; });
    Kokkos::fence();
}

template <class View> auto first(const View &view, std::size_t count)
{
    return Kokkos::subview(view, std::pair<std::size_t, std::size_t>(0, count));
}

// The first process sends; its time ends when the second one has all bytes where its program wants them, and has said so.
double exchange(sides &self, pw::remote &inbox, pw::remote &told, std::size_t count, int trial, bool in, bool out)
{
    bool sends = self.node.rank() == 0;
    if (sends)
        in ? fill(self.source, count, trial) : fill(self.field, count, trial);
    self.node.barrier();
    auto begun = std::chrono::steady_clock::now();
    ++self.step;
    if (sends) {
        if (in)
            Kokkos::deep_copy(first(self.staging, count), first(self.source, count));
        auto view = first(in ? self.staging : self.field, count);
        inbox.put_signal(0, view.data(), pw::view_bytes(view), pw::signal::set(most, self.step)).wait();
        self.node.wait_until_at_least(self.told(0), self.step);
    } else {
        auto *arrived = reinterpret_cast<std::uint64_t *>(self.inbox.data() + most / sizeof(double));
        self.node.wait_until_at_least(*arrived, self.step);
        if (out)
            Kokkos::deep_copy(first(self.result, count), first(self.inbox, count));
        told.change(pw::signal::set(0, self.step));
    }
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
    if (!sends && (out ? self.result(count - 1) : self.inbox(count - 1)) != double(count - 1) + trial)
        throw std::runtime_error("the last element is another one");
    return took.count();
}

double median(std::vector<double> times)
{
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

} // namespace

int main(int argc, char **argv)
try {
    Kokkos::ScopeGuard kokkos(argc, argv);
    auto node = pw::node::from_env();
    sides self{node};
    Kokkos::resize(self.inbox, most / sizeof(double) + 1); // a word for the signal
    auto inboxes = node.all_gather(pw::export_view(node, self.inbox, pw::rights::all));
    auto words = node.all_gather(pw::export_view(node, self.told, pw::rights::all));
    auto inbox = node.open(inboxes[1 - node.rank()]), told = node.open(words[1 - node.rank()]);
    for (int round = 0; round < 5; round++)
        for (std::size_t bytes : {std::size_t(1) << 20, std::size_t(4) << 20, most}) {
            std::vector<double> plain, in, both;
            for (int trial = 0; trial < trials; trial++) {
                plain.push_back(exchange(self, inbox, told, bytes / sizeof(double), 3 * trial, false, false));
                in.push_back(exchange(self, inbox, told, bytes / sizeof(double), 3 * trial + 1, true, false));
                both.push_back(exchange(self, inbox, told, bytes / sizeof(double), 3 * trial + 2, true, true));
            }
            if (node.rank() == 0)
                std::printf("%zu %.1f %.1f %.1f\n", bytes, median(plain), median(in), median(both));
        }
    node.barrier();
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
