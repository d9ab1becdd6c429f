//! Checkpoints of regions of verbs programs: by calls, and of programs that know nothing of them.

use super::{compiled, output, run, run_on, said};
use pagewire_active::{Inspection, MemoryError, SavedMemory, Verified};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How often a process is killed; in `make test` a few times.
fn kills() -> u32 {
    std::env::var("PAGEWIRE_CHECKPOINT_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// Several tests run it.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("tests/c/checkpoint.c"))
}

/// A region as it is restored.
struct Bytes(RefCell<Vec<u8>>);

impl SavedMemory for Bytes {
    fn address(&self) -> u64 {
        0
    }

    fn bytes(&self) -> u64 {
        self.0.borrow().len() as u64
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        bytes.copy_from_slice(&self.0.borrow()[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.0.borrow_mut()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// The number of the last checkpoint of a file that is whole, and its bytes.
fn last(file: &Path) -> (u64, Vec<u8>) {
    let inspection = Inspection::open(file).unwrap();
    assert_eq!(inspection.verify().unwrap().last(), Some(&Verified::Whole));
    let number = inspection.checkpoints().last().unwrap().number;
    let bytes = Bytes(RefCell::new(vec![0xA5; inspection.regions()[0] as usize]));
    inspection.restore(number, &[&bytes]).unwrap();
    (number, bytes.0.into_inner())
}

/// A program whose output is read line by line.
struct Started {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Started {
    fn new(command: &mut Command) -> Started {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, lines) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Started { child, input, lines }
    }

    fn line(&mut self) -> Option<u64> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().parse().ok()
    }

    fn step(&mut self) -> u64 {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
        self.line().unwrap()
    }

    /// Has it saved, as `pagewire checkpoint --now` does; gives what it answers.
    fn save(&self) -> String {
        let name = format!("pagewire-checkpoint-{}", self.child.id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let mut answer = String::new();
        UnixStream::connect_addr(&address).unwrap().read_to_string(&mut answer).unwrap();
        answer
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The folder of the one process that has saved something.
fn folder_of(folder: &Path) -> PathBuf {
    let mut found = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let only = found.next().unwrap();
    assert!(found.next().is_none());
    only
}

#[test]
fn regions_are_saved_and_restored_by_calls() {
    run(program(), "");
}

#[test]
fn pages_of_regions_have_attributes_and_logs() {
    run(&compiled("tests/c/region_log.c"), "");
}

#[test]
fn read_of_a_flush_region_waits_for_handlers() {
    run_on(&["local", "tcp", "udp"], &compiled("tests/c/flush_region.c"), "");
}

/// What was acknowledged is there, byte by byte, whenever the process was killed.
#[test]
fn a_program_that_is_killed_while_it_saves_has_its_last_checkpoint() {
    let program = program();
    let folder = tempfile::tempdir().unwrap();
    let expected = folder.path().join("expected");
    let mut random = 0x9E37_79B9u64;
    for kill in 0..kills() {
        let path = ["local", "udp"][kill as usize % 2];
        let file = folder.path().join(format!("{kill}.checkpoint"));
        let mut command = Command::new(program);
        command.arg("steps").arg(&file).env("PAGEWIRE_PATH", path);
        let mut started = Started::new(&mut command);
        let first = started.line().expect("a first checkpoint");
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        std::thread::sleep(Duration::from_micros((random >> 33) % 150_000));
        started.child.kill().unwrap();
        let acknowledged = std::iter::from_fn(|| started.line()).last().unwrap_or(first);
        let (number, bytes) = last(&file);
        assert!(number == acknowledged || number == acknowledged + 1, "{number} after {acknowledged}");
        said(&output(Command::new(program).arg("replay").arg(number.to_string()).arg(&expected)));
        assert!(bytes == std::fs::read(&expected).unwrap(), "{path}: checkpoint {number} is another memory");
    }
}

/// On request, while it stands still: what is restored is its memory.
#[test]
fn a_program_that_knows_nothing_of_it_is_saved() {
    let program = program();
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        let memory = folder.path().join("memory");
        let saved = folder.path().join("saved");
        let mut choice = saved.clone().into_os_string();
        choice.push(",every=0");
        let mut command = Command::new(program);
        command.arg("watched").arg(&memory).env("PAGEWIRE_PATH", path).env("PAGEWIRE_CHECKPOINT", &choice);
        let mut started = Started::new(&mut command);
        for number in 1..=5 {
            assert_eq!(started.step(), number);
            let answer = started.save();
            let kind = if number == 1 { "full" } else { "incremental" };
            assert!(
                answer.contains(&format!("\"round\":{number},")) && !answer.contains("error"),
                "{answer}"
            );
            assert!(answer.contains(&format!("\"checkpoint\":{number},\"kind\":\"{kind}\"")), "{answer}");
            // The first region is the one that it sends from.
            let file = folder_of(&saved).join("region-1.checkpoint");
            let (last, bytes) = last(&file);
            assert!(last == number && bytes == std::fs::read(&memory).unwrap(), "{path}: {number}");
            let pages = Inspection::open(&file).unwrap().checkpoints().last().unwrap().pages;
            assert!(number == 1 || pages <= 24, "{pages} pages of six writes");
        }
        // At its end it is saved once more.
        started.step();
        started.end();
        let (number, bytes) = last(&folder_of(&saved).join("region-1.checkpoint"));
        assert!(number == 6 && bytes == std::fs::read(&memory).unwrap());
    }
}

/// A file that has data stays, whatever was registered and never saved behind it.
#[test]
fn regions_that_were_never_saved_push_out_none_that_were() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    let mut choice = saved.clone().into_os_string();
    choice.push(",every=0");
    said(&output(Command::new(program()).arg("ended").env("PAGEWIRE_CHECKPOINT", &choice)));
    let own = folder_of(&saved);
    assert_eq!(last(&own.join("region-1.checkpoint")).0, 1);
    assert_eq!(std::fs::read_dir(&own).unwrap().count(), 2, "no others have data");
}

/// Who has asked for checkpoints learns that there are none, and why.
#[test]
fn a_program_that_ends_before_it_was_saved_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut choice = folder.path().join("saved").into_os_string();
    choice.push(",every=60");
    let said_of = |mode: &str| {
        let output = output(Command::new(program()).arg(mode).env("PAGEWIRE_CHECKPOINT", &choice));
        said(&output);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unsaved = said_of("unsaved");
    assert!(unsaved.contains("no region was saved: the program deregistered all 1 "), "{unsaved}");
    assert!(!said_of("ended").contains("no region was saved"));
}

/// The saves of another thread do not have it fail.
#[test]
fn a_region_is_registered_anew_while_it_is_saved() {
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        let mut choice = folder.path().join("saved").into_os_string();
        choice.push(",every=0.001");
        let mut command = Command::new(program());
        said(&output(command.arg("again").env("PAGEWIRE_PATH", path).env("PAGEWIRE_CHECKPOINT", &choice)));
    }
}

/// Saved all the time, and killed at any instant: the last checkpoint is whole.
#[test]
fn a_program_that_is_killed_has_whole_checkpoints() {
    let program = program();
    let mut random = 0x1234_5678u64;
    for kill in 0..kills() {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("saved");
        let mut choice = saved.clone().into_os_string();
        choice.push(",every=0.001");
        let mut command = Command::new(program);
        let path = ["local", "udp"][kill as usize % 2];
        let memory = folder.path().join("memory");
        command.arg("watched").arg(&memory).env("PAGEWIRE_PATH", path).env("PAGEWIRE_CHECKPOINT", &choice);
        let mut started = Started::new(&mut command);
        started.step();
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let end = Instant::now() + Duration::from_micros((random >> 33) % 200_000);
        let file = loop {
            started.step();
            let file = folder_of(&saved).join("region-1.checkpoint");
            // Before the first checkpoint there is none that could be restored.
            let is_saved = || Inspection::open(&file).is_ok_and(|file| !file.checkpoints().is_empty());
            if Instant::now() >= end && is_saved() {
                break file;
            }
        };
        started.child.kill().unwrap();
        started.child.wait().unwrap();
        last(&file);
    }
}
