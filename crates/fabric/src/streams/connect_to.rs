//! Where connections go whose address is not that of the peer's GID: port maps of containers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// For some addresses of peers, where TCP connections to them go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectTo(Vec<(IpAddr, SocketAddr)>);

impl ConnectTo {
    /// Where connections to an address go. `None`: to the address itself.
    pub fn target(&self, address: IpAddr) -> Option<SocketAddr> {
        self.0.iter().find(|(known, _)| *known == address).map(|(_, target)| *target)
    }

    /// Whether the address is one of those that are mapped.
    pub fn names(&self, address: IpAddr) -> bool {
        self.target(address).is_some()
    }
}

/// What is wrong with a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}': {what}, as in 10.0.0.5=192.0.2.7:31791")]
pub struct InvalidConnectTo {
    word: String,
    what: &'static str,
}

/// `ADDRESS=ADDRESS:PORT`, several with commas between them.
impl FromStr for ConnectTo {
    type Err = InvalidConnectTo;

    fn from_str(text: &str) -> Result<Self, InvalidConnectTo> {
        let mut map = ConnectTo::default();
        for word in text.split(',').map(str::trim) {
            let invalid = |what| InvalidConnectTo { word: word.to_owned(), what };
            let (from, to) = word
                .split_once('=')
                .ok_or_else(|| invalid("it must be the address of a peer's GID, '=' and where to connect"))?;
            let from: IpAddr = from.parse().map_err(|_| invalid("before '=' must stand an IP address"))?;
            let to: SocketAddr =
                to.parse().map_err(|_| invalid("behind '=' must stand an IP address, ':' and a TCP port"))?;
            if to.port() == 0 {
                return Err(invalid("0 is no port"));
            }
            if map.names(from) {
                return Err(invalid("the address is mapped twice"));
            }
            map.0.push((from, to));
        }
        Ok(map)
    }
}

impl fmt::Display for ConnectTo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (from, to)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(formatter, "{comma}{from}={to}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn maps_of_both_families() {
        let map: ConnectTo = "10.0.0.5=192.0.2.7:31791, fd00::5=[2001:db8::7]:31792".parse().unwrap();
        assert_eq!(map.target([10, 0, 0, 5].into()), Some("192.0.2.7:31791".parse().unwrap()));
        assert_eq!(map.target("fd00::5".parse().unwrap()), Some("[2001:db8::7]:31792".parse().unwrap()));
        assert_eq!(map.target([10, 0, 0, 6].into()), None);
        assert_eq!(map.to_string().parse(), Ok(map));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("", "the address of a peer's GID"),
            ("10.0.0.5", "the address of a peer's GID"),
            ("node=192.0.2.7:31791", "before '='"),
            ("10.0.0.5=192.0.2.7", "behind '='"),
            ("10.0.0.5=node:31791", "behind '='"),
            ("10.0.0.5=192.0.2.7:70000", "behind '='"),
            ("10.0.0.5=192.0.2.7:0", "0 is no port"),
            ("10.0.0.5=192.0.2.7:1,10.0.0.5=192.0.2.7:2", "twice"),
        ] {
            let error = text.parse::<ConnectTo>().unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("10.0.0.5="), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text(text in ".{0,60}") {
            if let Ok(map) = text.parse::<ConnectTo>() {
                prop_assert_eq!(map.to_string().parse(), Ok(map));
            }
        }
    }
}
