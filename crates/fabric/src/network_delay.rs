//! A longer network on purpose: each packet leaves later. [`FaultInjector`](crate::faults::FaultInjector) holds packets back; here is how the
//! delay is written.

use std::str::FromStr;
use std::time::Duration;

/// The longest delay, in nanoseconds.
const LONGEST: u64 = 10_000_000_000;

/// How much later each packet of a process leaves, on purpose: up to 10 s, written as `20us`. It acts on the paths udp and tcp; inside a host there
/// are no packets that could be delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkDelay(pub Duration);

impl FromStr for NetworkDelay {
    type Err = InvalidDelay;

    fn from_str(text: &str) -> Result<Self, InvalidDelay> {
        duration(text).map(NetworkDelay).ok_or_else(|| InvalidDelay(text.to_owned()))
    }
}

/// A text that is no [`NetworkDelay`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': it must be a whole number with ns, us, ms or s behind it, up to 10s, such as 20us")]
pub struct InvalidDelay(String);

/// A time such as `100us`, up to ten seconds; `None`: the text is none.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit).filter(|all| *all <= LONGEST).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_a_number_with_its_unit() {
        for (text, nanoseconds) in
            [("0us", 0), ("300ns", 300), ("20us", 20_000), ("2ms", 2_000_000), ("10s", LONGEST)]
        {
            assert_eq!(text.parse(), Ok(NetworkDelay(Duration::from_nanos(nanoseconds))), "{text}");
        }
    }

    #[test]
    fn what_is_no_delay_says_how_to_write_one() {
        for text in ["", "20", "us", "20 us", "-5us", "0.5us", "20h", "11s", "99999999999999999999s"] {
            let error = text.parse::<NetworkDelay>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{text}': ")) && error.contains("such as 20us"), "{error}");
        }
    }
}
