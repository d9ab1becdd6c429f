//! The measuring processes of `pagewire bench` for the native interface: each gives a figure, over the path that is asked for.

use serde_json::Value;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

fn probe(words: &[&str], environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire"));
    command.args(["probe", "native"]).args(words).envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

fn figure(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_benchmark_of_two_processes_gives_a_figure() {
    for path in ["local", "udp"] {
        for name in ["put", "put_bw", "get", "get_bw", "fetch_add", "compare_swap", "signal"] {
            // A port that was free a moment ago; rank 1 waits until rank 0 listens there.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let address = format!("127.0.0.1:{port}");
            let end = |rank| {
                let job = [("PAGEWIRE_RENDEZVOUS", address.as_str()), ("PAGEWIRE_SIZE", "2")];
                let own = [("PAGEWIRE_RANK", rank), ("PAGEWIRE_PATH", path)];
                probe(&[name, "4096", "40"], &[job, own].concat())
            };
            let (owner, caller) = (end("0"), end("1"));
            let figure = figure(caller);
            assert!(figure["value"].as_f64().unwrap() > 0.0, "{name}: {figure}");
            assert!(figure["path"].as_str().unwrap().starts_with(path), "{name}: {figure}");
            let owner = owner.wait_with_output().unwrap();
            assert!(owner.status.success() && owner.stdout.is_empty(), "{name}");
        }
    }
}

#[test]
fn the_heap_is_measured_beside_the_c_library() {
    let figure = figure(probe(&["heap", "4096", "1000"], &[]));
    assert!(figure["value"].as_f64().unwrap() > 0.0 && figure["beside"].as_f64().unwrap() > 0.0, "{figure}");
}

#[test]
fn what_cannot_be_measured_is_an_error() {
    for words in [
        ["put", "7", "100"],
        ["put", "0", "100"],
        ["heap", "8", "1"],
        ["nonsense", "8", "100"],
        ["put", "8", "x"],
    ] {
        let output = probe(&words, &[]).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
    }
}
