//! What `pagewire run --checkpoint` and `PAGEWIRE_CHECKPOINT` ask for.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// How often regions are saved, if nothing is said.
const EVERY: Duration = Duration::from_secs(10);

/// Seconds between two checkpoints at most: a week.
const MAX_SECONDS: f64 = 604_800.0;

/// Checkpoints of all regions of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointChoice {
    /// Where the folders of processes are.
    pub folder: PathBuf,
    /// How often they are saved. `None`: only on request.
    pub every: Option<Duration>,
}

impl CheckpointChoice {
    /// Reads `FOLDER` or `FOLDER,every=SECONDS`. The folder becomes absolute, as a program may change its directory.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(value: &OsStr) -> Result<CheckpointChoice, String> {
        let wrong = |what: &str| {
            format!("{what}: it must be FOLDER or FOLDER,every=SECONDS, and 0 seconds save only on request")
        };
        let (bytes, word) = (value.as_bytes(), b",every=");
        let at = bytes.windows(word.len()).rposition(|part| part == word);
        let (folder, every) = match at {
            None => match unknown_word(bytes) {
                Some(word) => {
                    return Err(wrong(&format!(
                        "'{word}' may not follow a comma, and a folder of this name ends in '/'"
                    )));
                }
                None => (bytes, Some(EVERY)),
            },
            Some(at) => {
                let text = str::from_utf8(&bytes[at + word.len()..]).unwrap_or_default();
                let seconds = text.parse().ok().filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
                let seconds: f64 = seconds
                    .ok_or_else(|| wrong(&format!("'{text}' is no number of seconds up to a week")))?;
                (&bytes[..at], (seconds > 0.0).then(|| Duration::from_secs_f64(seconds)))
            }
        };
        if folder.is_empty() {
            return Err(wrong("no folder is named"));
        }
        let folder =
            std::path::absolute(OsStr::from_bytes(folder)).map_err(|error| wrong(&error.to_string()))?;
        Ok(CheckpointChoice { folder, every })
    }

    /// What [`parse`](Self::parse) reads.
    pub fn to_word(&self) -> OsString {
        let mut word = self.folder.clone().into_os_string();
        let seconds = self.every.map_or(0.0, |every| every.as_secs_f64());
        word.push(format!(",every={seconds}"));
        word
    }
}

/// The word after the last comma, if it sets something: `evry=1` is no part of the name of a folder.
fn unknown_word(value: &[u8]) -> Option<Cow<'_, str>> {
    let at = value.iter().rposition(|byte| *byte == b',')?;
    let word = &value[at + 1..];
    (word.contains(&b'=') && !word.contains(&b'/')).then(|| String::from_utf8_lossy(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_and_a_time_are_read() {
        let parse = |value: &str| CheckpointChoice::parse(value.as_ref());
        let choice = |folder: &str, every: Option<f64>| CheckpointChoice {
            folder: folder.into(),
            every: every.map(Duration::from_secs_f64),
        };
        let good = [
            ("/tmp/a,b", choice("/tmp/a,b", Some(10.0))),
            ("/tmp/a,b,every=0.5", choice("/tmp/a,b", Some(0.5))),
            ("/tmp/x,every=1,every=2", choice("/tmp/x,every=1", Some(2.0))),
            ("/tmp,every=0", choice("/tmp", None)),
            ("/tmp/x,evry=1/", choice("/tmp/x,evry=1/", Some(10.0))),
            ("/tmp/x,y=1/z", choice("/tmp/x,y=1/z", Some(10.0))),
            ("/tmp/x=1", choice("/tmp/x=1", Some(10.0))),
        ];
        for (word, expected) in good {
            assert_eq!(parse(word), Ok(expected.clone()));
            assert_eq!(CheckpointChoice::parse(&expected.to_word()), Ok(expected));
        }
        assert!(parse("there,every=2").unwrap().folder.is_absolute());
        let wrong = [
            ",every=1",
            "",
            "/tmp,every=",
            "/tmp,every=-1",
            "/tmp,every=1s",
            "/tmp,every=1e9",
            "/tmp,every=nan",
            "/tmp,evry=1",
            "/tmp,a=b,=",
        ];
        for wrong in wrong {
            assert!(parse(wrong).unwrap_err().contains("FOLDER,every=SECONDS"), "{wrong}");
        }
    }
}
