//! A longer network on purpose, and the paths that have one.

use super::path_choice::PathChoice;
use pagewire_fabric::{FaultPlan, NetworkDelay};

/// The environment variable by which an engine delays the packets that it sends.
pub const DELAY_VARIABLE: &str = "PAGEWIRE_DELAY";

/// What [`DELAY_VARIABLE`] asks for, in an engine of this path. Without a value nothing is delayed.
///
/// # Errors
/// What follows "`PAGEWIRE_DELAY` is": the text is no time ([`NetworkDelay`]), or the path may be inside the host, where there are no packets.
pub fn delay(text: Option<&str>, path: PathChoice) -> Result<FaultPlan, String> {
    let Some(text) = text else { return Ok(FaultPlan::default()) };
    let plan = FaultPlan::delayed(text.parse::<NetworkDelay>().map_err(|error| error.to_string())?);
    if !plan.is_empty() && path.may_be_local() {
        return Err(format!(
            "'{text}', and PAGEWIRE_PATH is {path}: inside a host there are no packets to delay; PAGEWIRE_PATH must be udp or tcp"
        ));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn packets_of_udp_and_tcp_are_delayed() {
        for path in [PathChoice::Udp, PathChoice::Tcp] {
            assert_eq!(delay(Some("20us"), path).unwrap().delay, Duration::from_micros(20));
        }
    }

    #[test]
    fn paths_inside_the_host_have_no_delay() {
        for path in [PathChoice::Auto, PathChoice::Local] {
            let error = delay(Some("20us"), path).unwrap_err();
            assert!(error.starts_with(&format!("'20us', and PAGEWIRE_PATH is {path}: ")), "{error}");
            assert!(delay(Some("0us"), path).unwrap().is_empty() && delay(None, path).unwrap().is_empty());
        }
    }

    #[test]
    fn bad_text_says_how_to_write_a_delay() {
        let error = delay(Some("20"), PathChoice::Udp).unwrap_err();
        assert!(error.starts_with("'20': ") && error.ends_with("such as 20us"), "{error}");
    }
}
