//! The path that a user asks for.

/// What the user asked for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, strum::Display, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownPath, parse_err_fn = unknown)]
pub enum PathChoice {
    /// The best that can be had.
    #[default]
    Auto,
    /// The local path or none.
    Local,
    /// Packets in TCP connections, to this host too.
    Tcp,
    /// Packets as datagrams over the network, to this host too.
    Udp,
}

impl PathChoice {
    /// All of them.
    pub const ALL: [PathChoice; 4] = [PathChoice::Auto, PathChoice::Local, PathChoice::Tcp, PathChoice::Udp];

    /// Whether connections may be inside this host, by shared memory.
    pub fn may_be_local(self) -> bool {
        matches!(self, PathChoice::Auto | PathChoice::Local)
    }

    /// Its name in `PAGEWIRE_PATH`, on command lines and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A text that names no [`PathChoice`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': it must be auto, local, tcp or udp")]
pub struct UnknownPath(String);

fn unknown(name: &str) -> UnknownPath {
    UnknownPath(name.to_owned())
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
        assert_eq!(refused.to_string(), "'UDP': it must be auto, local, tcp or udp");
    }
}
