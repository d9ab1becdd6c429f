//! The measuring processes of `pagewire bench` for the native interface: each gives a figure, over the path that is asked for.

#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;

use serde_json::Value;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

fn probe(words: &[&str], environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire-lab"));
    command.args(["probe", "native"]).args(words).envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

fn figure(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What rank 1 measures in a job of two.
fn of_two(words: &[&str], path: &str) -> Value {
    // A port that was free a moment ago; rank 1 waits until rank 0 listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let end = |rank| {
        let job = [("PAGEWIRE_RENDEZVOUS", address.as_str()), ("PAGEWIRE_SIZE", "2")];
        let own = [("PAGEWIRE_RANK", rank), ("PAGEWIRE_PATH", path)];
        probe(words, &[job, own].concat())
    };
    let (owner, caller) = (end("0"), end("1"));
    let figure = figure(caller);
    assert!(figure["value"].as_f64().unwrap() > 0.0, "{words:?}: {figure}");
    assert!(figure["path"].as_str().unwrap().starts_with(path), "{words:?}: {figure}");
    let owner = owner.wait_with_output().unwrap();
    assert!(owner.status.success() && owner.stdout.is_empty(), "{words:?}");
    figure
}

#[test]
fn each_benchmark_of_two_processes_gives_a_figure() {
    let names = ["put", "put_bw", "get", "get_bw", "fetch_add", "compare_swap", "signal"];
    let orders = ["conditional_write", "rendezvous_write"];
    let schemes = ["counter", "counter_rma", "counter_none", "get_logged", "get_logged_rma", "put_bw_beside"];
    for path in ["local", "udp"] {
        for name in names.into_iter().chain(orders).chain(schemes) {
            of_two(&[name, "4096", "40"], path);
        }
        for name in ["log_order", "log_order_none"] {
            of_two(&[name, "8", "400"], path);
        }
    }
    for name in ["conditional_write_file", "rendezvous_write_file"] {
        let figure = of_two(&[name, "4096", "40"], "local");
        assert!(!figure["path"].as_str().unwrap().contains("mapped"), "{figure}");
    }
}

/// Both orders end with each strategy of registration, at both sides. Buffers are so long that their memory goes back to the kernel.
#[test]
fn each_strategy_of_registration_gives_a_figure() {
    let locked = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_MEMLOCK).unwrap().0;
    if locked < 4 << 20 {
        not_checked::tell("strategies of registration, for want of 4 MiB of locked memory (ulimit -l)");
        return;
    }
    let strategies = ["on-demand", "pieces", "group", "cache", "batched", "mrrc", "pool", "firehose"];
    for strategy in strategies {
        for name in ["conditional_write", "rendezvous_write"] {
            of_two(&[name, "262144", "40", strategy], "local");
        }
    }
}

/// What a job of two measures whose packets are delayed; both ends delay theirs.
fn delayed(words: &[&str], path: &str, delay: &str) -> [std::process::Output; 2] {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let end = |rank| {
        let job = [("PAGEWIRE_RENDEZVOUS", address.as_str()), ("PAGEWIRE_SIZE", "2")];
        let own = [("PAGEWIRE_RANK", rank), ("PAGEWIRE_PATH", path), ("PAGEWIRE_DELAY", delay)];
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire-lab"));
        command.args(["probe", "native"]).args(words).envs(job).envs(own);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    [end("0"), end("1")].map(|child| child.wait_with_output().unwrap())
}

/// No put comes sooner than its delay.
#[test]
fn packets_are_under_way_for_their_delay() {
    for path in ["udp", "tcp"] {
        let [owner, caller] = delayed(&["put", "8", "20"], path, "3ms");
        assert!(owner.status.success() && caller.status.success(), "{owner:?} {caller:?}");
        let figure: Value = serde_json::from_slice(&caller.stdout).unwrap();
        // Microseconds one way.
        assert!(figure["value"].as_f64().unwrap() >= 3_000.0, "{path}: {figure}");
        assert!(figure["path"].as_str().unwrap().starts_with(path), "{figure}");
    }
}

#[test]
fn delay_that_cannot_be_kept_is_an_error() {
    for (path, delay, why) in [
        (
            "local",
            "20us",
            "PAGEWIRE_DELAY is '20us', and PAGEWIRE_PATH is local: inside a host there are no packets",
        ),
        ("auto", "20us", "PAGEWIRE_DELAY is '20us', and PAGEWIRE_PATH is auto: "),
        ("udp", "20", "PAGEWIRE_DELAY is '20': it must be a whole number with ns, us, ms or s behind it"),
    ] {
        for output in delayed(&["put", "8", "20"], path, delay) {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(1) && text.contains(why), "{text}");
        }
    }
}

#[test]
fn the_heap_is_measured_beside_others() {
    let figure = figure(probe(&["heap", "4096", "1000"], &[]));
    let beside: Vec<_> =
        figure["beside"].as_array().unwrap().iter().filter_map(|value| value.as_f64()).collect();
    let is_measured = |value: &f64| *value > 0.0;
    assert!(figure["value"].as_f64().is_some_and(|value| is_measured(&value)), "{figure}");
    // Those of mimalloc on ordinary memory, and of the C library.
    assert!(beside.len() == 2 && beside.iter().all(is_measured), "{figure}");
}

#[test]
fn what_cannot_be_measured_is_an_error() {
    for words in [
        ["put", "7", "100"],
        ["put", "0", "100"],
        ["heap", "8", "1"],
        ["nonsense", "8", "100"],
        ["put", "8", "x"],
        ["conditional_write", "8", "1"],
    ] {
        let output = probe(&words, &[]).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
    }
}
