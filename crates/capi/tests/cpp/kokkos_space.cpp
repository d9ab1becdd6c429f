// What Views of pw::kokkos_space are: where their elements lie, what may be assigned to what, what a copy does, and what ends with them.
#include <pagewire/kokkos.hpp>

#include <cstdio>
#include <cstring>
#include <string>

using view = Kokkos::View<double *, pw::kokkos_space>;
using host_view = Kokkos::View<double *, Kokkos::HostSpace>;
using access = Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, pw::kokkos_space>;
static_assert(access::accessible);
static_assert(Kokkos::SpaceAccessibility<Kokkos::HostSpace, pw::kokkos_space>::assignable);
static_assert(!Kokkos::SpaceAccessibility<pw::kokkos_space, Kokkos::HostSpace>::assignable);

static void require(bool holds, const char *what)
{
    if (!holds) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

static std::uint64_t live()
{
    pw_heap_usage now;
    pw::check(pw_heap_statistics(&now));
    return now.live;
}

template <class Call> static std::string refusal(Call call)
{
    try {
        call();
    } catch (const pw::error &error) {
        return error.what();
    }
    return "none";
}

static void check_views()
{
    for (std::size_t count : {1, 100, 5000, 1 << 20}) {
        view first("first", count), second("second", count);
        require(pw_is_registered(first.data()), "elements are registered");
        require(pw_is_registered(first.data() + count - 1), "the last one, too");
        require(first(0) == 0 && first(count - 1) == 0, "elements begin as 0");
        Kokkos::parallel_for("fill", count, KOKKOS_LAMBDA(std::size_t index) { first(index) = double(index) + 0.5; });
        Kokkos::deep_copy(second, first);
        host_view plain("plain", count);
        require(!pw_is_registered(plain.data()), "a View of HostSpace is not registered");
        Kokkos::deep_copy(plain, second);
        Kokkos::deep_copy(second, 0.0);
        require(second(count - 1) == 0, "a value is copied to all");
        Kokkos::deep_copy(second, plain);
        require(std::memcmp(second.data(), first.data(), count * sizeof(double)) == 0, "copies are equal");
        host_view name = second;
        require(name.data() == second.data(), "a View of HostSpace may refer to registered memory");
        auto mirror = Kokkos::create_mirror_view(second);
        require(mirror.data() == second.data(), "its mirror is itself");
        Kokkos::resize(first, 2 * count);
        require(first(count - 1) == double(count) - 0.5 && pw_is_registered(first.data()), "resized");
    }
}

static void check_exports(pw::node &node)
{
    pw::token given;
    {
        Kokkos::View<std::uint64_t **, Kokkos::LayoutRight, pw::kokkos_space> table("table", 16, 16);
        given = pw::export_view(node, table, pw::rights::all);
        auto opened = node.open(given);
        require(opened.length() == 16 * 16 * 8, "all elements are exported");
        opened.put_value<std::uint64_t>(8 * 17, 7);
        require(table(1, 1) == 7, "a put is seen in the View");
        auto row = Kokkos::subview(table, 1, Kokkos::ALL);
        auto column = Kokkos::subview(table, Kokkos::ALL, 1);
        require(pw::view_bytes(row) == 16 * 8, "a row has no gaps");
        auto refused = refusal([&] { pw::export_view(node, column, pw::rights::read); });
        require(refused.find("with gaps") != std::string::npos, refused.c_str());
        Kokkos::View<std::uint64_t *, pw::kokkos_space> got("got", 16);
        pw::get_view(opened, 16 * 8, got).wait();
        require(got(1) == 7, "a get fills a View");
    }
    auto ended = refusal([&] { node.open(given).put_value<std::uint64_t>(0, 1); });
    require(ended.find("key") != std::string::npos, ended.c_str());
}

int main(int argc, char **argv)
try {
    Kokkos::ScopeGuard kokkos(argc, argv);
    auto node = pw::node::alone();
    auto before = live();
    check_views();
    require(live() == before, "all is freed");
    check_exports(node);
    auto exported = live(); // what the node keeps for its connection among them
    check_exports(node);
    require(live() == exported, "what was exported is freed");
    auto refused = refusal([] { view huge("huge", std::size_t(1) << 44); });
    require(refused.find("huge") != std::string::npos && refused.find("PAGEWIRE_HEAP_RANGE") != std::string::npos, refused.c_str());
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
