//! Failures on demand: each kind of rule with a program that would not see it otherwise. The programs of `tests/failures` print what they see.

use crate::compile;
use crate::connection_manager::await_port;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::{Finished, Pair, Running, run_pair};
use pagewire_cli::workload::next_port;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What a program says when it fails, and the signal that ends one.
const SIGKILL: i32 = 9;

/// A log of failures that programs may write, empty.
fn log_file(ground: &Ground, name: &str) -> Result<PathBuf> {
    let file = ground.stage.writable_file(name)?;
    std::fs::write(&file, "")?;
    Ok(file)
}

/// `pagewire run` with rules, which are logged.
fn command(ground: &Ground, setting: Setting, role: &str, rules: &str, log: &Path) -> Command {
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["run", "--path", setting.path().name(), "--role", role, "--fail", rules, "--fail-log"]);
    command.arg(log).arg("--");
    command
}

fn lines(log: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(log)?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// What has fired, without the numbers of the processes.
fn fired(log: &Path) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for mut line in lines(log)? {
        let of_line = line.as_object_mut().context("an object")?;
        of_line.remove("pid");
        of_line.remove("rule");
        all.push(line.to_string());
    }
    Ok(all)
}

/// A pingpong between two processes of one host, with the same rules at both ends; roles are `server` and `client`.
fn pingpong(ground: &Ground, setting: Setting, arguments: &[&str], rules: &str, log: &Path) -> Result<Pair> {
    let port = next_port();
    let end = |role: &str| {
        let mut command = command(ground, setting, role, rules, log);
        command.args(["ibv_rc_pingpong", "-g", "0", "-p", &port.to_string()]).args(arguments);
        command
    };
    let mut client = end("client");
    client.arg(ground.hosts.first.address.to_string());
    run_pair(end("server"), client, port, RUN)
}

fn alone(ground: &Ground, program: &[&str], rules: &str, log: &Path) -> Result<Finished> {
    alone_by(ground, Setting::Local, program, rules, log)
}

/// [`alone`] by a path.
fn alone_by(
    ground: &Ground,
    setting: Setting,
    program: &[&str],
    rules: &str,
    log: &Path,
) -> Result<Finished> {
    let mut command = command(ground, setting, "alone", rules, log);
    command.args(program);
    Ok(Running::start(command)?.wait_until(Instant::now() + RUN))
}

/// A call fails with an `errno` value, as the rule says which.
///
/// # Errors
/// If not.
pub fn calls_fail(ground: &Ground) -> Result<()> {
    let log = log_file(ground, "failures-calls.jsonl")?;
    let finished = alone(ground, &["ibv_devinfo"], "verb=ibv_open_device errno=EPERM", &log)?;
    ensure!(!finished.success() && finished.output.contains("Failed to open device"), "{}", finished.output);
    let program = ["ibv_rc_pingpong", "-g", "0"];
    let finished = alone(ground, &program, "verb=ibv_reg_mr nth=1 errno=ENOMEM", &log)?;
    ensure!(!finished.success() && finished.output.contains("Couldn't register MR"), "{}", finished.output);
    let events: Vec<String> =
        lines(&log)?.iter().map(|line| line["event"].as_str().unwrap_or_default().to_owned()).collect();
    ensure!(events == ["ibv_open_device", "ibv_reg_mr"], "{events:?}");
    Ok(())
}

/// A work request fails with a status, and its queue pair with it.
///
/// # Errors
/// If not.
pub fn requests_fail(ground: &Ground, setting: Setting) -> Result<()> {
    let log = log_file(ground, &format!("failures-requests-{}.jsonl", setting.name()))?;
    let cases = [
        ("opcode=SEND status=IBV_WC_RETRY_EXC_ERR", "transport retry counter exceeded"),
        ("opcode=SEND status=IBV_WC_RNR_RETRY_EXC_ERR", "RNR retry counter exceeded"),
        ("opcode=RECV status=IBV_WC_LOC_LEN_ERR", "local length error"),
        ("opcode=RECV status=IBV_WC_LOC_PROT_ERR", "local protection error"),
    ];
    let cases = if setting == Setting::Local { &cases[..] } else { &cases[1..3] };
    for (rule, said) in cases {
        let pair = pingpong(ground, setting, &["-n", "50"], &format!("{rule} nth=20 role=client"), &log)?;
        ensure!(!pair.client_success(), "{rule}: the client noticed nothing");
        let client = pair.client.context("the client did not run")?;
        ensure!(client.output.contains(said), "{rule}: {}", client.output);
    }
    ensure!(lines(&log)?.len() == cases.len(), "{:?}", lines(&log)?);
    Ok(())
}

/// A program of `tests/failures`, compiled.
fn program(ground: &Ground, name: &str) -> Result<PathBuf> {
    let program = ground.stage.file(&format!("failure-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("failures/{name}.c"));
    compile::once(&program, || compile::c([&source], &program, &["-libverbs"]))?;
    Ok(program)
}

/// What a program of `tests/failures` prints, which ends well.
fn printed(ground: &Ground, setting: Setting, words: &[&str], rules: &str, log: &Path) -> Result<String> {
    let (name, arguments) = words.split_first().context("a program")?;
    let program = program(ground, name)?;
    let mut all = vec![program.to_str().context("a name in UTF-8")?];
    all.extend(arguments);
    let finished = alone_by(ground, setting, &all, rules, log)?;
    ensure!(finished.success(), "{rules}: {}\n{}", finished.verdict(), finished.output);
    Ok(finished.output)
}

/// What `sends` prints of a completion.
#[derive(Debug, PartialEq)]
struct SendCompletion {
    wr_id: u64,
    status: u32,
    milliseconds: u64,
}

/// The completions that `sends` gets, and its last line.
fn sends(
    ground: &Ground,
    setting: Setting,
    arguments: &[&str],
    rules: &str,
    log: &Path,
) -> Result<(Vec<SendCompletion>, String)> {
    let words: Vec<&str> = std::iter::once("sends").chain(arguments.iter().copied()).collect();
    let output = printed(ground, setting, &words, rules, log)?;
    let (mut completions, mut last) = (Vec::new(), String::new());
    for line in output.lines() {
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        match numbers[..] {
            [wr_id, status, milliseconds] => {
                completions.push(SendCompletion { wr_id, status: status.try_into()?, milliseconds });
            }
            _ => last = line.to_owned(),
        }
    }
    Ok((completions, last))
}

/// A completion comes late, also to a program that sleeps until it comes, and the order stays.
///
/// # Errors
/// If not.
pub fn completions_come_late(ground: &Ground, setting: Setting) -> Result<()> {
    let log = log_file(ground, &format!("failures-late-{}.jsonl", setting.name()))?;
    let rules = "on=completion opcode=SEND nth=4 delay=150ms; on=completion opcode=SEND nth=6 delay=300ms";
    for wait in ["poll", "sleep"] {
        let (completions, last) = sends(ground, setting, &["8", "7", wait], rules, &log)?;
        let order: Vec<u64> = completions.iter().map(|completion| completion.wr_id).collect();
        ensure!(order == [1, 2, 3, 4, 5, 6, 7, 8], "{order:?}");
        for completion in &completions {
            let due = match completion.wr_id {
                ..4 => 0,
                4..6 => 150,
                6.. => 300,
            };
            ensure!(completion.status == 0 && completion.milliseconds >= due, "{completions:?}");
        }
        ensure!(last == "the bytes arrived", "{last}");
    }
    ensure!(lines(&log)?.len() == 4, "{:?}", lines(&log)?);
    Ok(())
}

/// The process is killed, or stopped for a time, at a call and at a completion.
///
/// # Errors
/// If not.
pub fn processes_end_and_stop(ground: &Ground) -> Result<()> {
    use std::os::unix::process::ExitStatusExt;
    let log = log_file(ground, "failures-ends.jsonl")?;
    for rules in
        ["verb=ibv_post_send nth=9 action=kill role=client", "on=completion nth=9 action=kill role=client"]
    {
        let finished = {
            let port = next_port();
            let mut server = command(ground, Setting::Local, "server", rules, &log);
            server.args(["ibv_rc_pingpong", "-g", "0", "-p", &port.to_string()]);
            let mut client = command(ground, Setting::Local, "client", rules, &log);
            client.args(["ibv_rc_pingpong", "-g", "0", "-p", &port.to_string()]);
            client.arg(ground.hosts.first.address.to_string());
            let mut server = Running::start(server)?;
            ensure!(server.wait_listening(port), "the server does not listen");
            let client = Running::start(client)?.wait_until(Instant::now() + RUN);
            server.kill();
            client
        };
        let signal = finished.status.and_then(|status| status.signal());
        ensure!(signal == Some(SIGKILL), "{rules}: {}", finished.verdict());
    }
    let rules = "verb=ibv_post_send nth=9 action=stop for=150ms role=client";
    let began = Instant::now();
    let pair = pingpong(ground, Setting::Local, &["-n", "50"], rules, &log)?;
    ensure!(pair.success(), "{}", pair.complaint());
    ensure!(began.elapsed().as_millis() >= 150, "it was not stopped");
    ensure!(lines(&log)?.len() == 3, "{:?}", lines(&log)?);
    Ok(())
}

/// The numbers of the datagrams that a UD queue pair gets of the twenty sent.
fn datagrams(ground: &Ground, expected: usize, rule: &str, log: &Path) -> Result<Vec<u32>> {
    let rule = format!("on=packet opcode=SEND nth=3 {rule}");
    let output = printed(ground, Setting::Udp, &["datagrams", "20", &expected.to_string()], &rule, log)?;
    output.split_whitespace().map(|word| Ok(word.parse()?)).collect()
}

/// Packets are lost, doubled, late, reordered, damaged, or answered by a NAK: datagrams show it, and a reliable connection gets every byte.
///
/// # Errors
/// If not.
pub fn packets_fail(ground: &Ground) -> Result<()> {
    let log = log_file(ground, "failures-packets.jsonl")?;
    let all_but_third: Vec<u32> = (1..=20).filter(|number| *number != 3).collect();
    // The ICRC of a damaged one is wrong.
    for rule in ["action=lose", "action=corrupt"] {
        let arrived = datagrams(ground, 19, rule, &log)?;
        ensure!(arrived == all_but_third, "{rule}: {arrived:?}");
    }
    let doubled = datagrams(ground, 21, "action=double", &log)?;
    let expected: Vec<u32> = (1..=3).chain(3..=20).collect();
    ensure!(doubled == expected, "{doubled:?}");
    for rule in ["action=reorder", "delay=50ms"] {
        let mut arrived = datagrams(ground, 20, rule, &log)?;
        let place = arrived.iter().position(|number| *number == 3).context("it is not lost")?;
        ensure!(place > 2, "{rule}: nothing has overtaken it: {arrived:?}");
        arrived.remove(place);
        ensure!(arrived == all_but_third, "{rule}: {arrived:?}");
    }

    let rules = "on=packet opcode=SEND nth=3 action=lose; on=packet opcode=SEND nth=6 action=double; \
                 on=packet opcode=SEND nth=9 action=corrupt; on=packet opcode=SEND nth=12 action=reorder; \
                 on=packet opcode=SEND nth=15 delay=5ms; nak=rnr nth=4; nak=sequence nth=6";
    let pair = pingpong(ground, Setting::Udp, &["-n", "60", "-c"], rules, &log)?;
    ensure!(pair.success(), "{}", pair.complaint());

    // The status of `enum ibv_wc_status` that each NAK gives; with the retries that RNR NAKs may have.
    for (kind, rnr_retry, status) in [
        ("rnr", "0", 13),
        ("rnr", "7", 0),
        ("sequence", "7", 0),
        ("invalid_request", "7", 9),
        ("remote_access", "7", 10),
        ("remote_operational", "7", 11),
    ] {
        let rule = format!("nak={kind} nth=1");
        let (completions, _) = sends(ground, Setting::Udp, &["1", rnr_retry, "poll"], &rule, &log)?;
        ensure!(completions.len() == 1 && completions[0].status == status, "{rule}: {completions:?}");
    }
    // The acknowledgements of the second queue pair go to the first one, and the rule names whose they are.
    let rule = "nak=remote_access qp=0";
    let (completions, last) = sends(ground, Setting::Udp, &["4", "7", "poll"], rule, &log)?;
    ensure!(completions.iter().all(|completion| completion.status == 0), "{completions:?}");
    ensure!(last == "the bytes arrived", "{last}");
    let (completions, _) = sends(ground, Setting::Udp, &["1", "7", "poll"], "nak=remote_access qp=1", &log)?;
    ensure!(completions[0].status == 10, "{completions:?}");
    Ok(())
}

/// A page comes late, and the program waits.
///
/// # Errors
/// If not.
pub fn pages_come_late(ground: &Ground) -> Result<()> {
    let log = log_file(ground, "failures-pages.jsonl")?;
    let began = Instant::now();
    let finished = loopback(ground, &["--path", "udp"], "on=page nth=1 delay=150ms", &log)?;
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    ensure!(!lines(&log)?.is_empty() && began.elapsed().as_millis() >= 150, "no page was late");
    Ok(())
}

/// Runs a WRITE whose target is memory that nothing has touched.
fn loopback(ground: &Ground, options: &[&str], rules: &str, log: &Path) -> Result<Finished> {
    let program = ground.stage.file("loopback");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/ci/loopback.c");
    compile::once(&program, || compile::c([&source], &program, &["-libverbs"]))?;
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.arg("run").args(options).args(["--fail", rules, "--fail-log"]).arg(log).arg("--").arg(program);
    Ok(Running::start(command)?.wait_until(Instant::now() + RUN))
}

/// A page never comes: what waits for it ends with its region, its queue pair or its process, or by the retries of `--page-faults timeout`. Other pages come.
///
/// # Errors
/// If not.
pub fn pages_are_lost(ground: &Ground) -> Result<()> {
    for (end, expected) in [
        ("deregister", "2: success\n1: remote access error\nclosed\n"),
        ("error", "2: success\n1: Work Request Flushed Error\nclosed\n"),
        ("destroy", "2: success\nclosed\n"),
        ("exit", "2: success\n"),
    ] {
        for setting in [Setting::Local, Setting::Udp] {
            let log = log_file(ground, &format!("failures-lost-{end}-{}.jsonl", setting.name()))?;
            let words = ["lost_page", end, log.to_str().context("a name in UTF-8")?];
            let output = printed(ground, setting, &words, "on=page nth=1 action=lose", &log)?;
            ensure!(output == expected, "{end}: {output}");
        }
    }
    let log = log_file(ground, "failures-lost.jsonl")?;
    let options = ["--path", "udp", "--page-faults", "timeout"];
    let finished = loopback(ground, &options, "on=page nth=1 action=lose", &log)?;
    ensure!(finished.output.contains("WRITE: transport retry counter exceeded"), "{}", finished.output);
    Ok(())
}

/// A forked child that opens a device has times of its own, and what a rule did to its parent's device does not concern it.
///
/// # Errors
/// If not.
pub fn children_begin_anew(ground: &Ground) -> Result<()> {
    let log = log_file(ground, "failures-children.jsonl")?;
    let rules = "after=20ms event=IBV_EVENT_PORT_ERR; verb=ibv_query_gid nth=1 event=IBV_EVENT_DEVICE_FATAL";
    let output = printed(ground, Setting::Local, &["forked"], rules, &log)?;
    ensure!(output == "parent: port error\nchild: port error\n", "{output}");
    ensure!(lines(&log)?.len() == 3, "{:?}", lines(&log)?);
    Ok(())
}

/// A command of librdmacm fails, and messages of the connection manager are lost, late and refused.
///
/// # Errors
/// If not.
pub fn connections_fail(ground: &Ground) -> Result<()> {
    let log = log_file(ground, "failures-connections.jsonl")?;
    let connect = |rules: &str| -> Result<Finished> {
        let port = next_port().to_string();
        let address = ground.hosts.first.address.to_string();
        let end = |role: &str, words: &[&str]| {
            let mut command = command(ground, Setting::Local, role, rules, &log);
            command.args(words).args(["-p", &port]);
            Running::start(command)
        };
        let mut server = end("server", &["rdma_server"])?;
        await_port(&server, port.parse()?)?;
        let client = end("client", &["rdma_client", "-s", &address])?.wait_until(Instant::now() + RUN);
        server.kill();
        Ok(client)
    };
    for (rules, said) in [
        ("verb=rdma_connect role=client errno=ENOMEM", "Cannot allocate memory"),
        ("verb=rdma_resolve_addr role=client errno=ENODEV", "No such device"),
        ("message=REQ action=reject", "Connection refused"),
    ] {
        let client = connect(rules)?;
        ensure!(!client.success() && client.output.contains(said), "{rules}: {}", client.output);
    }
    for rules in
        ["message=REQ nth=1 delay=50ms", "message=REP nth=1 action=lose", "message=RTU nth=1 action=lose"]
    {
        let client = connect(rules)?;
        ensure!(client.success(), "{rules}: {}", client.output);
    }
    ensure!(lines(&log)?.len() >= 6, "{:?}", lines(&log)?);
    Ok(())
}

/// Asynchronous events come, with what they do to objects: `failures/events.c` prints them.
///
/// # Errors
/// If not.
pub fn events_come(ground: &Ground) -> Result<()> {
    let program = program(ground, "events")?;
    let program = program.to_str().context("a name in UTF-8")?;
    let log = log_file(ground, "failures-events.jsonl")?;
    let cases = [
        ("verb=ibv_query_gid event=IBV_EVENT_PORT_ERR", "port error\nport state 1\nqueue pair state 3\n"),
        (
            "verb=ibv_query_gid event=IBV_EVENT_GID_CHANGE",
            "GID table change\nport state 4\nqueue pair state 3\n",
        ),
        (
            "verb=ibv_query_gid event=IBV_EVENT_QP_FATAL",
            "local work queue catastrophic error\nport state 4\nqueue pair state 6\n",
        ),
        ("verb=ibv_query_gid event=IBV_EVENT_CQ_ERR", "CQ error\nport state 4\nqueue pair state 3\n"),
        (
            "verb=ibv_query_gid event=IBV_EVENT_SRQ_ERR",
            "SRQ catastrophic error\nport state 4\nqueue pair state 6\n",
        ),
        (
            "verb=ibv_query_gid event=IBV_EVENT_SRQ_LIMIT_REACHED",
            "SRQ limit reached\nport state 4\nqueue pair state 3\n",
        ),
        (
            "verb=ibv_query_gid event=IBV_EVENT_QP_LAST_WQE_REACHED",
            "last WQE reached\nport state 4\nqueue pair state 6\n",
        ),
        ("after=20ms event=IBV_EVENT_PORT_ERR", "port error\nport state 1\nqueue pair state 3\n"),
    ];
    for (rules, expected) in cases {
        let counts_gid = rules.contains("GID_CHANGE").then_some("gid");
        let program: Vec<&str> = [program].into_iter().chain(counts_gid).collect();
        let finished = alone(ground, &program, rules, &log)?;
        ensure!(finished.success(), "{rules}: {}\n{}", finished.verdict(), finished.output);
        ensure!(finished.output == expected, "{rules}: {}", finished.output);
    }
    let finished = alone(ground, &[program], "verb=ibv_query_gid event=IBV_EVENT_DEVICE_FATAL", &log)?;
    ensure!(finished.output.contains("local catastrophic error"), "{}", finished.output);
    ensure!(finished.output.contains("ibv_query_port: Input/output error"), "{}", finished.output);
    ensure!(lines(&log)?.len() == cases.len() + 1, "{:?}", lines(&log)?);
    Ok(())
}

/// Equal seeds give equal failures, other seeds others, and a log is repeated.
///
/// # Errors
/// If not.
pub fn seeds_and_logs_repeat(ground: &Ground) -> Result<()> {
    let logs = ["first", "second", "other", "replay"]
        .map(|name| log_file(ground, &format!("failures-{name}.jsonl")));
    let [first, second, other, replay] = logs;
    let (first, second, other, replay) = (first?, second?, other?, replay?);
    let rules = |seed: u32| {
        format!(
            "seed={seed}; verb=ibv_post_send probability=0.05 action=stop for=1ms; on=completion probability=0.1 delay=100us role=server"
        )
    };
    let run = |rules: &str, log: &Path| -> Result<Vec<String>> {
        let pair = pingpong(ground, Setting::Local, &["-n", "40"], rules, log)?;
        ensure!(pair.success(), "{}", pair.complaint());
        let mut all = fired(log)?;
        all.sort();
        Ok(all)
    };
    let expected = run(&rules(7), &first)?;
    ensure!(expected.len() > 3, "hardly anything failed: {expected:?}");
    let again = run(&rules(7), &second)?;
    ensure!(again == expected, "{again:?}\n{expected:?}");
    ensure!(run(&rules(8), &other)? != expected, "the seed makes no difference");
    let repeated = run(&format!("@{}", first.display()), &replay)?;
    ensure!(repeated == expected, "{repeated:?}\n{expected:?}");
    Ok(())
}

/// Wrong rules are refused before the program starts, by the command and by the engine.
///
/// # Errors
/// If not.
pub fn wrong_rules_are_refused(ground: &Ground) -> Result<()> {
    let log = log_file(ground, "failures-wrong.jsonl")?;
    let finished =
        alone(ground, &["echo", "started"], "opcode=RDMA_READ status=IBV_WC_RNR_RETRY_EXC_ERR", &log)?;
    ensure!(!finished.output.contains("started"), "{}", finished.output);
    ensure!(finished.output.contains("the specification knows no RDMA_READ"), "{}", finished.output);
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["run", "--", "ibv_devices"]).env("PAGEWIRE_FAIL", "verb=ibv_reg_mrs errno=EIO");
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(!finished.success() && finished.output.contains("PAGEWIRE_FAIL: rule 1"), "{}", finished.output);
    Ok(())
}
