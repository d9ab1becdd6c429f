//! How devices are named: programs look for one by name.

use std::str::FromStr;

/// Bytes of a name with its number: one less than a name of the kernel may have (IB_DEVICE_NAME_MAX), as much as fits in `struct ibv_device`.
const LONGEST: usize = 63;
/// Bytes that are left for the number.
const DIGITS: usize = 10;

/// The names of all devices of a process: that of the first one, from which the others count on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNames {
    /// What stands before the number.
    stem: String,
    /// The first device's number; none where its name has no number.
    first: Option<u32>,
}

impl Default for DeviceNames {
    /// `pagewire0`, `pagewire1` and so on.
    fn default() -> Self {
        DeviceNames { stem: "pagewire".to_owned(), first: Some(0) }
    }
}

/// A text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}': it must be letters, digits, '_', '-' and '.', 53 at most before the number, no '.' first, and a number below 4294901760 without \
     zeros before it"
)]
pub struct InvalidDeviceName(String);

impl FromStr for DeviceNames {
    type Err = InvalidDeviceName;

    fn from_str(name: &str) -> Result<Self, InvalidDeviceName> {
        let invalid = || InvalidDeviceName(name.to_owned());
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if stem.is_empty()
            || stem.starts_with('.')
            || stem.len() > LONGEST - DIGITS
            || !stem.bytes().all(is_allowed)
        {
            return Err(invalid());
        }
        let digits = &name[stem.len()..];
        let first: Option<u32> = match digits {
            "" => None,
            _ => Some(digits.parse().map_err(|_| invalid())?),
        };
        // Others count on from it. `mlx5_00` would be another name than the one that its number gives.
        if first.is_some_and(|first| first.to_string() != digits || first >= u32::MAX - u32::from(u16::MAX)) {
            return Err(invalid());
        }
        Ok(DeviceNames { stem: stem.to_owned(), first })
    }
}

impl DeviceNames {
    /// The name of the device at a place in the list of devices, from 0.
    pub fn of(&self, index: u32) -> String {
        match (self.first, index) {
            (Some(first), _) => format!("{}{}", self.stem, first.saturating_add(index)),
            (None, 0) => self.stem.clone(),
            (None, _) => format!("{}{index}", self.stem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_on() {
        let names = |first: &str| {
            let names: DeviceNames = first.parse().unwrap();
            [0, 1, 10].map(|index| names.of(index))
        };
        assert_eq!(names("mlx5_0"), ["mlx5_0", "mlx5_1", "mlx5_10"]);
        assert_eq!(names("mlx5_7"), ["mlx5_7", "mlx5_8", "mlx5_17"]);
        assert_eq!(names("rocep1s0f"), ["rocep1s0f", "rocep1s0f1", "rocep1s0f10"]);
        assert_eq!(names("pagewire0"), [0, 1, 10].map(|index| DeviceNames::default().of(index)));
    }

    #[test]
    fn invalid_names_are_refused() {
        let long = "x".repeat(54);
        for name in
            ["", "0", ".", ".a0", "a/b", "a b", "m\u{e9}0", "mlx5_00", "a4294967295", "a99999999999", &long]
        {
            assert!(name.parse::<DeviceNames>().is_err(), "{name}");
        }
        assert!("x".repeat(53).parse::<DeviceNames>().is_ok());
    }
}
