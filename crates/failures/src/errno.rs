//! Names of `errno` values on Linux.

/// Names and values, as `errno-base.h` and `errno.h` have them, without names for one value that has another.
const NAMES: &[(&str, i32)] = &[
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("E2BIG", 7),
    ("EBADF", 9),
    ("ECHILD", 10),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOSPC", 28),
    ("EROFS", 30),
    ("EPIPE", 32),
    ("ERANGE", 34),
    ("EDEADLK", 35),
    ("ENOSYS", 38),
    ("ENODATA", 61),
    ("ENOLINK", 67),
    ("EPROTO", 71),
    ("EOVERFLOW", 75),
    ("EMSGSIZE", 90),
    ("EPROTONOSUPPORT", 93),
    ("EOPNOTSUPP", 95),
    ("EAFNOSUPPORT", 97),
    ("EADDRINUSE", 98),
    ("EADDRNOTAVAIL", 99),
    ("ENETDOWN", 100),
    ("ENETUNREACH", 101),
    ("ECONNABORTED", 103),
    ("ECONNRESET", 104),
    ("ENOBUFS", 105),
    ("EISCONN", 106),
    ("ENOTCONN", 107),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
    ("EHOSTUNREACH", 113),
    ("EALREADY", 114),
    ("EINPROGRESS", 115),
    ("ECANCELED", 125),
];

/// The value of a name, or of a number from 1 to 4095.
pub fn errno_of(text: &str) -> Option<i32> {
    match NAMES.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Some(*value),
        None => text.parse().ok().filter(|value| (1..4096).contains(value)),
    }
}

/// The name of a value, or its number.
pub fn errno_name(value: i32) -> String {
    match NAMES.iter().find(|(_, known)| *known == value) {
        Some((name, _)) => (*name).to_owned(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read() {
        assert_eq!((errno_of("ENOMEM"), errno_of("12"), errno_of("4000")), (Some(12), Some(12), Some(4000)));
        assert_eq!(
            (errno_of("0"), errno_of("ENONE"), errno_of("-1"), errno_of("4096")),
            (None, None, None, None)
        );
        for (name, value) in NAMES {
            assert_eq!((errno_of(name), errno_name(*value).as_str()), (Some(*value), *name));
        }
    }
}
