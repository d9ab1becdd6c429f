//! The path that a user asks for.

use std::fmt;
use std::str::FromStr;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathChoice {
    /// The best that can be had.
    #[default]
    Auto,
    /// The local path or none.
    Local,
    /// Packets over the network, to this host too.
    Udp,
}

impl PathChoice {
    /// All of them.
    pub const ALL: [PathChoice; 3] = [PathChoice::Auto, PathChoice::Local, PathChoice::Udp];

    /// Its name in `PAGEWIRE_PATH`, on command lines and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            PathChoice::Auto => "auto",
            PathChoice::Local => "local",
            PathChoice::Udp => "udp",
        }
    }
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no [`PathChoice`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': it must be auto, local or udp")]
pub struct UnknownPath(String);

impl FromStr for PathChoice {
    type Err = UnknownPath;

    fn from_str(name: &str) -> Result<Self, UnknownPath> {
        let named = PathChoice::ALL.into_iter().find(|choice| choice.name() == name);
        named.ok_or_else(|| UnknownPath(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_have_names() {
        for choice in PathChoice::ALL {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let refused = "UDP".parse::<PathChoice>().unwrap_err();
        assert_eq!(refused.to_string(), "'UDP': it must be auto, local or udp");
    }
}
