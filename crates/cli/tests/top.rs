//! `pagewire top` as it is run: processes that answer, do not answer, come and go; terminals, and their end.
//!
//! The processes are the tests themselves, which answer as the engine does.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// For what takes a moment where nothing is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of a socket that no other test has: `number` stands for the PID that the process has in another PID namespace.
fn bind(number: u32) -> UnixListener {
    let name = format!("pagewire-explain-{number}.{}", std::process::id());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
}

/// The PIDs of all who asked.
type Asked = Arc<Mutex<Vec<u32>>>;

/// Answers under this program's name, each time with 1,000 bytes more.
fn answering(number: u32, program: &str) -> Asked {
    let (listener, program, asked) = (bind(number), program.to_owned(), Asked::default());
    let counted = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let times = {
                let mut counted = counted.lock().unwrap();
                counted.push(getsockopt(&stream, PeerCredentials).unwrap().pid() as u32);
                counted.len()
            };
            // A reader that was ended reads no more.
            let _ = writeln!(
                stream,
                "{{\"pid\":1,\"program\":\"{program}\",\"counters\":{{\"bytes_sent\":{}}}}}\n\
                 {{\"qpn\":17,\"type\":\"RC\",\"state\":\"RTS\",\"path\":\"udp\",\"packets_sent\":{times},\"page_waits\":7}}",
                times * 1000
            );
        }
    });
    asked
}

fn top(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire"));
    command.arg("top").args(words);
    command
}

#[test]
fn one_table_where_there_is_no_terminal() {
    answering(1_000_001, "table-of-one");
    for words in
        [["--interval", "0.1", "table-of-one"].as_slice(), &["--once", "--interval", "0.1", "table-of-one"]]
    {
        let shown = top(words).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.status.success() && shown.stderr.is_empty(), "{words:?}: {text}");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..4], ["PID", "program", "op/s", "bytes/s"], "{text}");
        assert_eq!(
            (lines[1][0], lines[1][1]),
            (std::process::id().to_string().as_str(), "table-of-one"),
            "{text}"
        );
        assert!(!["-", "0"].contains(&lines[1][3]), "{text}");
        assert!(text.contains("0x0011  RC") && !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn an_object_an_interval_whoever_is_stopped_or_ends() {
    answering(1_000_002, "object-lively");
    // Whoever never accepts is like one that is stopped.
    let stopped = bind(1_000_003);
    let mut child = top(&["--json", "--interval", "0.2"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let find = |object: &Value, program: &str| -> Option<Value> {
        object["processes"].as_array().unwrap().iter().find(|process| process["program"] == program).cloned()
    };
    let first = find(&next(), "object-lively").expect("an answer");
    let rate = first["rates"]["bytes"].as_f64().expect("a rate");
    assert!(rate > 0.0, "{first}");
    assert_eq!(first["connections"][0]["rates"]["page_waits"], 0.0, "{first}");
    // The other one is told of as soon as it is given up, and the lively one all the while.
    let silent = |object: &Value| -> bool {
        object["processes"].as_array().unwrap().iter().any(|process| process["silence"].is_string())
    };
    let begun = Instant::now();
    loop {
        let object = next();
        assert!(find(&object, "object-lively").is_some(), "{object}");
        if silent(&object) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{object}");
    }
    // It ends, and another one begins.
    drop(stopped);
    answering(1_000_004, "object-late");
    let begun = Instant::now();
    loop {
        let object = next();
        if !silent(&object)
            && find(&object, "object-late").is_some_and(|late| late["rates"]["bytes"].is_f64())
        {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{object}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_only_object_has_those_too_that_do_not_answer() {
    let _stopped = bind(1_000_010);
    let shown = top(&["--once", "--json", "--interval", "0.1"]).output().unwrap();
    let object: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let processes = object["processes"].as_array().unwrap();
    assert!(processes.iter().any(|process| process["silence"].is_string()), "{object}");
}

#[test]
fn who_was_named_and_does_not_answer_is_told() {
    let shown = top(&["--once", "--interval", "0.1", "8388608", "no-such-program"]).output().unwrap();
    assert_eq!(shown.status.code(), Some(1));
    let told = String::from_utf8(shown.stderr).unwrap();
    assert!(told.contains("process 8388608: there is no such process"), "{told}");
    assert!(told.contains("called no-such-program"), "{told}");
    assert!(shown.stdout.is_empty());
    for interval in ["0", "0.01", "inf", "NaN", "-1", "1e9", "soon"] {
        let refused = top(&[&format!("--interval={interval}")]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{interval}");
    }
}

/// A command on a terminal of its own.
struct OnTerminal {
    child: Child,
    /// This side of the terminal.
    side: File,
    terminal: File,
    seen: Vec<u8>,
}

impl OnTerminal {
    fn start(words: &[&str], variables: &[(&str, &str)]) -> OnTerminal {
        let size = Winsize { ws_row: 30, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
        // Else every command that is started has both.
        for end in [&master, &slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        let terminal = File::from(slave);
        let ends = [0, 1, 2].map(|_| Stdio::from(terminal.try_clone().unwrap()));
        let [input, output, errors] = ends;
        let mut command = top(words);
        command.env_remove("NO_COLOR").env("TERM", "xterm-256color").envs(variables.iter().copied());
        let child = command.stdin(input).stdout(output).stderr(errors).spawn().unwrap();
        OnTerminal { child, side: File::from(master), terminal, seen: Vec::new() }
    }

    /// Reads until the terminal has been sent `text`, which is one word: blanks that stand there already are passed over.
    fn wait_for(&mut self, text: &str) {
        let begun = Instant::now();
        while !self.text().contains(text) {
            self.read();
            assert!(begun.elapsed() < PATIENCE, "no {text:?} in {:?}", self.text());
        }
    }

    /// Reads what there is, if anything comes soon.
    fn read(&mut self) {
        let mut ready = [nix::poll::PollFd::new(self.side.as_fd(), nix::poll::PollFlags::POLLIN)];
        if nix::poll::poll(&mut ready, 20_u16).unwrap() > 0 {
            let mut bytes = [0; 65536];
            let read = self.side.read(&mut bytes).unwrap();
            self.seen.extend(&bytes[..read]);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_flags.contains(LocalFlags::ICANON)
    }

    /// The exit status; the terminal must be as it was before.
    fn finish(mut self) -> Option<i32> {
        let begun = Instant::now();
        let status = loop {
            self.read();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {:?}", self.text());
        };
        self.read();
        assert!(!self.is_raw());
        let text = self.text();
        let (entered, left) = (text.rfind("\u{1b}[?1049h"), text.rfind("\u{1b}[?1049l"));
        assert!(entered.is_some() && entered < left, "{text:?}");
        assert!(text.rfind("\u{1b}[?25l") < text.rfind("\u{1b}[?25h"), "the cursor is hidden: {text:?}");
        status.code()
    }
}

#[test]
fn the_display_ends_by_keys_and_signals_and_gives_the_terminal_back() {
    answering(1_000_005, "display-plain");
    for (ending, expected) in [("q", 0), ("\u{3}", 0), ("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut shown = OnTerminal::start(&["--interval", "0.1", "display-plain"], &[]);
        shown.wait_for("display-plain");
        // A counter that grows, and another.
        shown.wait_for("/s,");
        assert!(shown.is_raw());
        let pid = Pid::from_raw(shown.child.id() as i32);
        match ending {
            "INT" => kill(pid, Signal::SIGINT).unwrap(),
            "TERM" => kill(pid, Signal::SIGTERM).unwrap(),
            "HUP" => kill(pid, Signal::SIGHUP).unwrap(),
            keys => shown.side.write_all(keys.as_bytes()).unwrap(),
        }
        assert_eq!(shown.finish(), Some(expected), "{ending:?}");
    }
}

#[test]
fn the_display_ends_with_its_terminal() {
    answering(1_000_009, "display-orphan");
    let mut shown = OnTerminal::start(&["--interval", "0.1", "display-orphan"], &[]);
    shown.wait_for("display-orphan");
    let OnTerminal { mut child, side, terminal, .. } = shown;
    drop((side, terminal));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let late = begun.elapsed() > PATIENCE;
        if late {
            child.kill().unwrap();
        }
        assert!(!late, "it goes on without a terminal");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(1), "not by a panic");
}

#[test]
fn a_pause_asks_nobody_and_a_process_that_is_stopped_keeps_no_key_waiting() {
    let asked = answering(1_000_006, "display-paused");
    let _stopped = bind(1_000_007);
    let mut shown = OnTerminal::start(&["--interval", "0.1"], &[]);
    shown.wait_for("display-paused");
    shown.side.write_all(b"p").unwrap();
    shown.wait_for("PAUSED");
    // Others ask, too: tests that run at the same time.
    let (asked, asker) = (asked.clone(), shown.child.id());
    let times = || asked.lock().unwrap().iter().filter(|pid| **pid == asker).count();
    let before = times();
    shown.side.write_all(b"?").unwrap();
    shown.wait_for("choose");
    // Many intervals: another display, which does not pause, has asked ten times.
    let mut beside = OnTerminal::start(&["--interval", "0.1"], &[]);
    let other = beside.child.id();
    let by_another = || asked.lock().unwrap().iter().filter(|pid| **pid == other).count();
    let begun = Instant::now();
    while by_another() < 10 {
        beside.read();
        assert!(begun.elapsed() < PATIENCE);
    }
    beside.side.write_all(b"q").unwrap();
    assert_eq!(beside.finish(), Some(0));
    // One question may have been on its way.
    assert!(times() <= before + 1);
    shown.side.write_all(b"p").unwrap();
    let begun = Instant::now();
    while times() < before + 5 {
        shown.read();
        assert!(begun.elapsed() < PATIENCE);
    }
    shown.side.write_all(b"q").unwrap();
    assert_eq!(shown.finish(), Some(0));
}

#[test]
fn no_colours_where_they_are_not_wanted_and_no_display_on_a_dumb_terminal() {
    answering(1_000_008, "display-colours");
    let coloured = |variables: &[(&str, &str)]| {
        let mut shown = OnTerminal::start(&["--interval", "0.1", "display-colours"], variables);
        shown.wait_for("/s,");
        shown.side.write_all(b"p").unwrap();
        shown.wait_for("PAUSED");
        let text = shown.text();
        shown.side.write_all(b"q").unwrap();
        assert_eq!(shown.finish(), Some(0));
        text.contains("[38;5;")
    };
    assert!(coloured(&[]));
    assert!(!coloured(&[("NO_COLOR", "1")]));
    let mut plain = OnTerminal::start(&["--interval", "0.1", "display-colours"], &[("TERM", "dumb")]);
    plain.wait_for("0x0011");
    assert!(!plain.text().contains("\u{1b}[?1049h"), "{}", plain.text());
    assert!(plain.child.wait().unwrap().success());
}
