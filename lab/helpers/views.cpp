/*
 * views SIZE...: what it takes to send a Kokkos View of so many bytes to another process (REUSE-5): one of pw::kokkos_space, which is registered
 * from its birth; one of HostSpace that is registered by hand (mlock(2) stands for that); one of HostSpace that is copied into a registered one
 * (the paper's "serialisation"). A program of the native interface, as two processes of a job; `pagewire reproduce reuse --live` runs it.
 *
 * The first process prints for each size one JSON object of median microseconds: {"size": bytes, "view_registered", "view_by_hand", "view_copied"}.
 * The time is that to have the View with its pages, to register or copy it, and of the put. Filling it is not counted. What the user may not lock is
 * null.
 */
#include <pagewire/kokkos.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sys/mman.h>
#include <vector>

namespace {

using registered = Kokkos::View<double *, pw::kokkos_space>;
using ordinary = Kokkos::View<double *, Kokkos::HostSpace>;
using steady = std::chrono::steady_clock;

constexpr std::size_t page = 4096;
/* Trials of one size and way, at most and at least; the time that they may take decides between both. */
constexpr std::size_t most_trials = 300, least_trials = 5;
constexpr std::chrono::milliseconds patience{40};

double elapsed(steady::time_point start)
{
    return std::chrono::duration<double, std::micro>(steady::now() - start).count();
}

double median(std::vector<double> times)
{
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* Microseconds between two looks at the clock with nothing between them. */
double clock_cost()
{
    std::vector<double> looks;
    for (int look = 0; look < 1001; look++)
        looks.push_back(elapsed(steady::now()));
    return median(looks);
}

/* What a part of a trial took, without the look at the clock. */
double microseconds(steady::time_point start)
{
    static const double cost = clock_cost();
    return std::max(elapsed(start) - cost, 0.0);
}

/* A View whose pages are in memory. */
template <class View> View touched(std::size_t bytes)
{
    View view(Kokkos::view_alloc(Kokkos::WithoutInitializing, "view"), bytes / sizeof(double));
    for (std::size_t index = 0; index < view.size(); index += page / sizeof(double))
        *static_cast<volatile double *>(&view(index)) = 1;
    return view;
}

template <class View> double timed_put(pw::remote &to, const View &view)
{
    auto start = steady::now();
    pw::put_view(to, 0, view).wait();
    return microseconds(start);
}

std::optional<double> of_registered(pw::remote &to, std::size_t bytes)
{
    auto start = steady::now();
    auto view = touched<registered>(bytes);
    double acquired = microseconds(start);
    Kokkos::deep_copy(view, 1.0);
    return acquired + timed_put(to, view);
}

std::optional<double> by_hand(pw::remote &to, std::size_t bytes)
{
    auto start = steady::now();
    auto view = touched<ordinary>(bytes);
    if (mlock(view.data(), bytes))
        return std::nullopt;
    double acquired = microseconds(start);
    Kokkos::deep_copy(view, 1.0);
    double took = acquired + timed_put(to, view);
    munlock(view.data(), bytes);
    return took;
}

std::optional<double> copied(pw::remote &to, std::size_t bytes)
{
    auto start = steady::now();
    auto view = touched<ordinary>(bytes);
    double took = microseconds(start);
    Kokkos::deep_copy(view, 1.0);
    start = steady::now();
    auto copy = touched<registered>(bytes);
    Kokkos::deep_copy(copy, view);
    took += microseconds(start);
    return took + timed_put(to, copy);
}

using way = std::optional<double> (*)(pw::remote &, std::size_t);

/* The median of as many trials as there is time for; none: the user may not lock the memory. */
std::optional<double> median_of(way trial, pw::remote &to, std::size_t bytes)
{
    std::vector<double> times;
    auto start = steady::now();
    while (times.size() < least_trials || (times.size() < most_trials && steady::now() - start < patience)) {
        auto took = trial(to, bytes);
        if (!took)
            return std::nullopt;
        times.push_back(*took);
    }
    return median(times);
}

void print(const char *name, std::optional<double> value)
{
    if (value)
        std::printf(", \"%s\": %.4f", name, *value);
    else
        std::printf(", \"%s\": null", name);
}

} // namespace

int main(int argc, char **argv)
try {
    std::vector<std::size_t> sizes;
    for (int index = 1; index < argc; index++) {
        sizes.push_back(std::strtoull(argv[index], nullptr, 10));
        if (sizes.back() == 0 || sizes.back() % sizeof(double) || sizes.back() > (64u << 20)) {
            std::fprintf(stderr, "views SIZE...: %s is no multiple of 8 from 8 to 67108864\n", argv[index]);
            return 2;
        }
    }
    if (sizes.empty()) {
        std::fprintf(stderr, "views SIZE...\n");
        return 2;
    }
    Kokkos::ScopeGuard kokkos;
    auto node = pw::node::from_env();
    if (node.size() != 2) {
        std::fprintf(stderr, "views: these are two processes\n");
        return 1;
    }
    registered inbox("inbox", *std::max_element(sizes.begin(), sizes.end()) / sizeof(double));
    auto tokens = node.all_gather(pw::export_view(node, inbox, pw::rights::write));
    if (node.rank() == 0) {
        auto there = node.open(tokens[1]);
        for (std::size_t size : sizes) {
            std::printf("{\"size\": %zu", size);
            print("view_registered", median_of(of_registered, there, size));
            print("view_by_hand", median_of(by_hand, there, size));
            print("view_copied", median_of(copied, there, size));
            std::printf("}\n");
        }
    }
    node.barrier(); /* the inbox stays until the last put */
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "views: %s\n", error.what());
    return 1;
}
