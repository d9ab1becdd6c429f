//! The shared object, linked from the archive that cargo has just built beside a test; tests of other crates include this file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Links the library; gives the folder that holds it, in one of the test's own called `name`.
pub fn link(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap();
    let newest = std::fs::read_dir(built)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            let name = entry.file_name().into_string().unwrap();
            name.starts_with("libpagewire_capi") && name.ends_with(".a")
        })
        .max_by_key(|entry| entry.metadata().unwrap().modified().unwrap())
        .expect("cargo builds the static library with the crate");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let archive = folder.join("archive");
    std::fs::create_dir_all(&archive).unwrap();
    std::fs::copy(newest.path(), archive.join("libpagewire_capi.a")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/link-library");
    let status = Command::new(script).arg(&archive).arg(folder.join("lib")).status().unwrap();
    assert!(status.success(), "link-library failed");
    folder.join("lib")
}
