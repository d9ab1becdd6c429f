/* pagewire/error.hpp: refusals, and what ends with its object. A part of pagewire.hpp. */
#ifndef PAGEWIRE_ERROR_HPP
#define PAGEWIRE_ERROR_HPP

#include <pagewire.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>

namespace pw {

/** Why a call was refused. */
class error : public std::runtime_error {
public:
    error(pw_error code, const char *sentence) : std::runtime_error(sentence), code_(code) {}

    pw_error code() const noexcept { return code_; }

private:
    pw_error code_;
};

/** Throws what a call of pagewire.h gave, unless that is PW_OK. */
inline void check(pw_error code)
{
    if (code != PW_OK)
        throw error(code, pw_error_message_for(PW_CPP));
}

/** A time without a bound. */
constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

namespace detail {
/** Calls what handles. What it throws is counted as a failure and reported; the log goes on. */
template <class Call> void guard(Call call) noexcept
{
    try {
        call();
    } catch (const std::exception &thrown) {
        pw_handler_failed(thrown.what());
    } catch (...) {
        pw_handler_failed("it has thrown what is no std::exception");
    }
}

/** Ends what pagewire.h has given out. */
template <auto End> struct ends {
    template <class Object> void operator()(Object *given) const noexcept { End(given); }
};

/** An object of pagewire.h, which ends with this. */
template <class Object, auto End> using owned = std::unique_ptr<Object, ends<End>>;

/** A bound for pagewire.h. One that is over is none that is far away. */
inline std::uint64_t nanoseconds(std::chrono::nanoseconds bound) noexcept
{
    if (bound == std::chrono::nanoseconds::max())
        return PW_FOREVER;
    return bound.count() > 0 ? static_cast<std::uint64_t>(bound.count()) : 0;
}
} // namespace detail

} // namespace pw

#endif /* PAGEWIRE_ERROR_HPP */
