//! The installation that this command belongs to: without the library no program runs on Pagewire.

use super::Finding;
use crate::running::install::{Installation, LIBRARY};
use anyhow::Result;

pub(super) fn findings() -> Vec<Finding> {
    vec![finding(Installation::find())]
}

fn finding(installation: Result<Installation>) -> Finding {
    const CHECK: &str = "library";
    match installation {
        Ok(installation) => Finding::ok(
            CHECK,
            installation.library.join(LIBRARY).display().to_string(),
            "programs that `pagewire run` starts get it",
        ),
        Err(error) => Finding::forbids(
            CHECK,
            format!("{error:#}"),
            "no program runs on Pagewire",
            "install Pagewire again (pip, apt or make install), or name the directory of its library in PAGEWIRE_LIB",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn missing_library_forbids() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = finding(Installation::of(&folder.path().join("bin/pagewire")));
        assert_eq!(missing.verdict, Verdict::Forbids);
        assert!(missing.found.contains("libpagewire.so.1 is missing"), "{missing:?}");
        assert!(missing.mend.is_some_and(|mend| mend.contains("PAGEWIRE_LIB")));
        std::fs::create_dir(folder.path().join("lib")).expect("made");
        std::fs::write(folder.path().join("lib").join(LIBRARY), "").expect("written");
        let whole = finding(Installation::of(&folder.path().join("bin/pagewire")));
        assert_eq!(whole.verdict, Verdict::Ok);
    }
}
