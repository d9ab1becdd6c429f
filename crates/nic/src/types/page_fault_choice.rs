//! What becomes of packets that find a page absent, device by device.

use pagewire_transport::{FaultHandling, UnknownFaultHandling};
use std::fmt;
use std::str::FromStr;

/// One way for all devices, but those that have another one of their own.
///
/// As text, words with `;` between them: `WAY` for all, `DEVICE=WAY` for one, as in `err;pagewire1=timeout`. A later word takes the place
/// of an earlier one for the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageFaultChoice {
    every: FaultHandling,
    devices: Vec<(String, FaultHandling)>,
}

impl PageFaultChoice {
    /// The one of a device.
    pub fn of(&self, device: &str) -> FaultHandling {
        let own = self.devices.iter().find(|(name, _)| name == device);
        own.map_or(self.every, |(_, handling)| *handling)
    }

    /// The devices that have one of their own.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|(name, _)| name.as_str())
    }
}

impl From<FaultHandling> for PageFaultChoice {
    fn from(every: FaultHandling) -> Self {
        PageFaultChoice { every, devices: Vec::new() }
    }
}

impl fmt::Display for PageFaultChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.every)?;
        self.devices.iter().try_for_each(|(device, handling)| write!(f, ";{device}={handling}"))
    }
}

impl FromStr for PageFaultChoice {
    type Err = UnknownFaultHandling;

    fn from_str(text: &str) -> Result<Self, UnknownFaultHandling> {
        let mut choice = PageFaultChoice::default();
        for word in text.split(';') {
            match word.split_once('=') {
                None => choice.every = word.parse()?,
                Some((device, handling)) => {
                    choice.devices.retain(|(name, _)| name != device);
                    choice.devices.push((device.to_owned(), handling.parse()?));
                }
            }
        }
        Ok(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_may_have_its_own() {
        let choice: PageFaultChoice =
            "err,nto;pagewire1=rnr;pagewire0=timeout;pagewire1=stash".parse().unwrap();
        assert_eq!(choice.of("pagewire0"), FaultHandling::Timeout);
        assert_eq!(choice.of("pagewire1"), FaultHandling::Stash, "the last word holds");
        assert_eq!(choice.of("pagewire2"), FaultHandling::ErrWithoutTimeout);
        assert_eq!(choice.to_string(), "err,nto;pagewire0=timeout;pagewire1=stash");
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }

    #[test]
    fn what_is_said_of_one_device_changes_no_other() {
        let choice: PageFaultChoice = "pagewire1=err".parse().unwrap();
        assert_eq!(
            [choice.of("pagewire0"), choice.of("pagewire1")],
            [FaultHandling::Stash, FaultHandling::Err]
        );
        for handling in FaultHandling::ALL {
            assert_eq!(handling.name().parse(), Ok(PageFaultChoice::from(handling)));
        }
    }

    #[test]
    fn wrong_choice_is_reported() {
        for (text, wrong) in
            [("", "''"), ("err;drop", "'drop'"), ("pagewire0=", "''"), ("pagewire0=nto", "'nto'")]
        {
            let told = text.parse::<PageFaultChoice>().unwrap_err().to_string();
            assert!(told.contains(wrong) && told.contains("err,nto"), "{told}");
        }
    }
}
