//! Why a call is refused.

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call is refused. librdmacm's functions return these as `errno`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The endpoint is in a state without this call, or an argument is none of those that the call knows (EINVAL).
    Invalid,
    /// There are [`MAX_ENDPOINTS`](crate::limits::MAX_ENDPOINTS) endpoints (ENOMEM).
    TooManyEndpoints,
    /// The connection is established already (EISCONN).
    AlreadyConnected,
}

impl std::error::Error for Error {}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Error::Invalid => "the endpoint's state, or an argument, does not allow the call",
            Error::TooManyEndpoints => "there are as many endpoints as there can be",
            Error::AlreadyConnected => "the connection is established already",
        })
    }
}
