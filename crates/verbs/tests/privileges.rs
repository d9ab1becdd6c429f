//! Pairs of processes that lose the right to access each other's memory: bytes go on by the ring or the network, and the reason is shown.
//!
//! Needs a C compiler and libibverbs-dev, as building the library itself does, and root, who alone changes his user.

#[path = "../../../tests/src/compile/command.rs"]
mod compile;
#[path = "../../../tests/src/library.rs"]
mod library;
#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Runs `tests/c/privileges.c` one way on one path; gives the lines of statistics that its processes have written.
fn run(library: &Path, way: &str, path: &str) -> String {
    let folder = library.parent().unwrap();
    let program = folder.join("privileges");
    let file = folder.join(format!("statistics-{way}-{path}"));
    // Whoever the processes become may append to it.
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let output = Command::new(&program)
        .arg(way)
        .env("LD_LIBRARY_PATH", library)
        .env("PAGEWIRE_PATH", path)
        .env("PAGEWIRE_STATS", &file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{way} on path {path}: {}\n{said}", output.status);
    std::fs::read_to_string(&file).unwrap()
}

#[test]
fn a_process_that_gives_up_its_rights_goes_on() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return not_checked::tell("processes that change their user, for want of root");
    }
    let library = library::link("privileges");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/privileges.c");
    let program = library.parent().unwrap().join("privileges");
    let status = compile::command([source], &program).arg(library.join("libibverbs.so.1")).status().unwrap();
    assert!(status.success(), "privileges.c does not compile");
    for way in ["dumpable", "after"] {
        // The reason is that of the moment: the side that ends last has no peer any more, and the other one may not have met the refusal yet.
        let gives_reason = (0..10).any(|_| {
            let statistics = run(&library, way, "auto");
            let of_path = |path| statistics.matches(&format!("\"path\":\"{path}\"")).count();
            assert_eq!((of_path("local"), of_path("udp")), (2, 0), "{statistics}");
            statistics.contains("does not let this process access the peer any more")
        });
        assert!(gives_reason, "{way}: no process says why it goes another way");
        run(&library, way, "local");
        run(&library, way, "udp");
    }
    // These were never allowed to: they connect as processes of two users do.
    for way in ["before", "one"] {
        let statistics = run(&library, way, "auto");
        assert_eq!(statistics.matches("\"path\":\"udp\"").count(), 2, "{statistics}");
        run(&library, way, "udp");
    }
}
