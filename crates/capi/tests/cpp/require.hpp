// What calls must give. The program ends at the first requirement that does not hold.
#ifndef REQUIRE_HPP
#define REQUIRE_HPP

#include <pagewire.hpp>

#include <cstdio>
#include <cstdlib>

#define REQUIRE(holds) ((holds) ? (void)0 : (void)(std::fprintf(stderr, "%d: not so: %s\n", __LINE__, #holds), std::exit(1)))

/// The code of the error that a call throws; PW_OK: it throws none.
template <class Call> pw_error refused(Call call)
{
    try {
        call();
    } catch (const pw::error &error) {
        return error.code();
    }
    return PW_OK;
}

#endif /* REQUIRE_HPP */
