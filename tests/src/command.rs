//! The command itself: what it passes on, what it refuses and how it says so.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::not_checked;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pagewire_cli::pair::{Finished, Running};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn command(ground: &Ground, words: &[&str]) -> Command {
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(words).env_remove("PAGEWIRE_PATH");
    command
}

fn run(command: Command) -> Result<Finished> {
    Ok(Running::start(command)?.wait_until(Instant::now() + RUN))
}

fn code(finished: &Finished) -> Option<i32> {
    finished.status.and_then(|status| status.code())
}

/// PAGEWIRE_PATH holds where --path is not given, and is checked.
///
/// # Errors
/// If not.
pub fn path_of_the_environment_holds(ground: &Ground) -> Result<()> {
    let cases: [(Option<&str>, &[&str], &str); 5] = [
        (None, &[], "auto"),
        (Some(""), &[], "auto"),
        (Some("udp"), &[], "udp"),
        (Some("udp"), &["--path", "local"], "local"),
        (Some("wrong"), &["--path", "local"], "local"),
    ];
    for (variable, options, expected) in cases {
        let mut command = command(ground, &["run"]);
        command.args(options).args(["--", "printenv", "PAGEWIRE_PATH"]);
        command.envs(variable.map(|value| ("PAGEWIRE_PATH", value)));
        let finished = run(command)?;
        ensure!(finished.output.trim() == expected, "{variable:?} {options:?}: {}", finished.output);
    }
    // As an empty PAGEWIRE_PATH: none.
    let mut without_library = command(ground, &["run", "--", "true"]);
    without_library.env("PAGEWIRE_LIB", "");
    let finished = run(without_library)?;
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    let mut command = command(ground, &["run", "--", "true"]);
    command.env("PAGEWIRE_PATH", "rdma");
    let finished = run(command)?;
    ensure!(code(&finished) == Some(125), "{}", finished.verdict());
    for wanted in ["PAGEWIRE_PATH", "'rdma'", "auto, local, tcp or udp"] {
        ensure!(finished.output.contains(wanted), "{wanted} is missing in: {}", finished.output);
    }
    Ok(())
}

/// What cannot be done is refused before anything is started, with the exit status promised and with what was wrong.
///
/// # Errors
/// If not.
pub fn refusals_say_what_and_where(ground: &Ground) -> Result<()> {
    let script = ground.stage.file("no-interpreter");
    std::fs::write(&script, "#!/no/such/interpreter\n")?;
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let script = script.to_str().context("a name in UTF-8")?;
    let cases: [(&[&str], i32, &str); 18] = [
        (&["run", "--", "no-program-has-this-name"], 127, "not found in PATH"),
        (&["run", "--", "/no/such/program"], 127, "no such file"),
        (&["run", "--stats", "--", "/no/such/program"], 127, "no such file"),
        (&["run", "--", "/etc/passwd"], 126, "not executable"),
        (&["run", "--", "/etc"], 126, "directory"),
        (&["run", "--", script], 126, "interpreter"),
        (&["run", "--pcap", "/no/such/directory/a.pcap", "--", "echo", "started"], 125, "/no/such/directory"),
        (&["run", "--pcap", "/proc", "--", "echo", "started"], 125, "directory"),
        (&["bench", "write_latency"], 2, "write_lat"),
        (&["bench", "--rounds", "0"], 2, "--rounds"),
        (&["bench", "--path", "auto"], 2, "local, tcp, udp"),
        (&["bench", "--path", "udp", "write_to_polling"], 2, "write_to_polling"),
        (&["bench", "--plot", "/proc/pictures", "reg_mr"], 1, "/proc/pictures"),
        (&["reproduce", "part", "--figure", "8", "--live"], 1, "figure 8"),
        (&["reproduce", "part", "--path", "udp"], 2, "--live"),
        (&["explain", "8388608"], 1, "no such process"),
        (&["explain", "1"], 1, "process 1"),
        (&["nonsense"], 2, "nonsense"),
    ];
    for (words, expected, text) in cases {
        let finished = run(command(ground, words))?;
        let output = &finished.output;
        ensure!(
            code(&finished) == Some(expected),
            "{words:?}: {} instead of {expected}\n{output}",
            finished.verdict()
        );
        ensure!(output.contains(text), "{words:?}: {text} is missing in: {output}");
        for unwanted in ["started\n", "measuring", "panicked"] {
            ensure!(!output.contains(unwanted), "{words:?}: {output}");
        }
    }
    Ok(())
}

/// Signals that are sent to `pagewire run` reach the program, with --stats too, and its exit status comes back.
///
/// # Errors
/// If not.
pub fn signals_reach_the_program(ground: &Ground) -> Result<()> {
    for (index, (options, signal)) in [
        (&["run"] as &[&str], Signal::SIGTERM),
        (&["run"], Signal::SIGINT),
        (&["run", "--stats"], Signal::SIGTERM),
        (&["run", "--stats"], Signal::SIGINT),
        (&["run", "--stats"], Signal::SIGUSR1),
    ]
    .into_iter()
    .enumerate()
    {
        let ready = ground.stage.writable_file(&format!("ready-{index}"))?;
        let mut command = command(ground, options);
        // A shell cannot trap a signal that it is started without, as those are that a script starts behind its back.
        command.args([
            "--",
            "env",
            "--default-signal=INT,TERM,USR1",
            "sh",
            "-c",
            "trap 'exit 9' TERM INT USR1; echo ready > \"$0\"; for i in $(seq 600); do sleep 0.05; done",
        ]);
        command.arg(&ready);
        let program = Running::start(command)?;
        let patience = Instant::now() + RUN;
        while ready.metadata()?.len() == 0 {
            ensure!(Instant::now() < patience, "the program did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(Pid::from_raw(program.pid() as i32), signal)?;
        let finished = program.wait_until(patience);
        ensure!(
            code(&finished) == Some(9),
            "{options:?} {signal}: {}\n{}",
            finished.verdict(),
            finished.output
        );
    }
    Ok(())
}

/// `pagewire explain` shows path, reason, peer and named counters of a connection that is being driven all the time.
///
/// # Errors
/// If not.
pub fn explain_shows_a_busy_connection(ground: &Ground) -> Result<()> {
    let port = "18510";
    let end =
        || command(ground, &["run", "--path", "udp", "--", "ib_write_bw", "-F", "-D", "30", "-p", port]);
    let mut server = Running::start(end())?;
    ensure!(server.wait_listening(port.parse()?), "the server did not listen");
    let mut client = end();
    client.arg(ground.hosts.first.address.to_string());
    let client = Running::start(client)?;
    let asked = client.pid().to_string();

    let patience = Instant::now() + RUN;
    let text = loop {
        let text = run(command(ground, &["explain", &asked]))?.output;
        // A greeting is the first packet, before any request.
        if text.contains("RTS") && text.contains("packets sent") && text.contains("send requests") {
            break text;
        }
        ensure!(Instant::now() < patience, "no connection was shown:\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let peer = format!("{} QPN 0x", ground.hosts.first.address);
    for wanted in ["device: pagewire0", "counters: ", "datagrams sent ", "asked for", "send requests", &peer]
    {
        ensure!(text.contains(wanted), "{wanted} is missing in:\n{text}");
    }
    for _ in 0..20 {
        let json = run(command(ground, &["explain", "--json", &asked]))?.output;
        let connection = json.lines().nth(1).with_context(|| format!("no connection in:\n{json}"))?;
        let start = format!("{{\"pid\":{asked},\"qpn\":");
        ensure!(connection.starts_with(&start), "{connection}");
        for wanted in ["\"path\":\"udp\"", "\"reason\":\"asked for\"", "\"peer\":\""] {
            ensure!(connection.contains(wanted), "{wanted} is missing in: {connection}");
        }
        counters_are_described(connection)?;
    }
    Ok(())
}

/// Each number that a queue pair has in JSON is in the manual.
fn counters_are_described(connection: &str) -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../man/pagewire-explain.1");
    let page = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let words: Vec<&str> =
        page.lines().filter(|line| line.contains("Li ")).flat_map(str::split_whitespace).collect();
    let connection: serde_json::Map<String, serde_json::Value> = serde_json::from_str(connection)?;
    let counters = connection.iter().filter(|(_, value)| value.is_u64()).map(|(name, _)| name.as_str());
    for name in counters.filter(|name| !["pid", "qpn", "peer_qpn"].contains(name)) {
        ensure!(words.contains(&name), "{name} is not in pagewire-explain(1)");
    }
    Ok(())
}

/// Two processes that do not see each other's PIDs talk over UDP, and the reason says so.
///
/// # Errors
/// If not.
pub fn another_pid_namespace_is_named(ground: &Ground) -> Result<()> {
    let port = "18511";
    let pingpong =
        ["run", "--path", "auto", "--stats", "--", "ibv_rc_pingpong", "-g", "0", "-n", "50", "-p", port];
    let mut server = ground.hosts.first.privileged(&ground.stage.command);
    server.args(pingpong);
    let mut server = Running::start(server)?;
    ensure!(server.wait_listening(port.parse()?), "the server did not listen");
    let mut client = ground.hosts.first.privileged("unshare");
    client.args(["--pid", "--fork", "--kill-child"]).arg(&ground.stage.command).args(pingpong);
    client.arg(ground.hosts.first.address.to_string());
    let client = run(client)?;
    let server = server.wait_until(Instant::now() + RUN);
    for finished in [client, server] {
        ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
        let found = finished.output.contains("(another PID namespace)");
        ensure!(found, "no such reason in:\n{}", finished.output);
    }
    Ok(())
}

/// Processes of several PID namespaces on one host, which have the same number there, are all found, and by the numbers that
/// whoever asks sees.
///
/// # Errors
/// If not.
pub fn explain_finds_other_pid_namespaces(ground: &Ground) -> Result<()> {
    let mut running = Vec::new();
    // No other test's: they run side by side on one host.
    for port in [18_521_u16, 18_522] {
        let mut command = ground.hosts.first.privileged("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).arg(&ground.stage.command);
        command.args(["run", "--", "ib_write_bw", "-F", "-p", &port.to_string()]);
        let mut program = Running::start(command)?;
        ensure!(program.wait_listening(port), "{port}: nobody listens");
        running.push(program);
    }
    let ask = |words: &[&str]| {
        let mut command = ground.hosts.first.privileged(&ground.stage.command);
        command.arg("explain").args(words);
        run(command)
    };
    let mut pids = Vec::new();
    for program in &running {
        let children = format!("/proc/{0}/task/{0}/children", program.pid());
        pids.push(std::fs::read_to_string(&children).context(children)?.trim().to_owned());
    }
    let all = ask(&[])?;
    for pid in &pids {
        let title = format!("ib_write_bw (PID {pid})");
        ensure!(all.output.contains(&title), "{title} is missing in:\n{}", all.output);
        let one = ask(&[pid])?;
        ensure!(one.success() && one.output.contains(&title), "{}\n{}", one.verdict(), one.output);
        let others = pids.iter().filter(|other| *other != pid);
        ensure!(others.clone().all(|other| !one.output.contains(&format!("PID {other})"))), "{}", one.output);
    }
    Ok(())
}

/// The statistics that a program leaves name what the protocol counted, of queue pairs that are gone too.
///
/// # Errors
/// If not.
pub fn statistics_have_protocol_counters(ground: &Ground) -> Result<()> {
    let outcome = ground.must_run(Setting::Udp, "ibv_rc_pingpong", &["-g", "0", "-n", "50"])?;
    for report in outcome.server.iter().chain(&outcome.client) {
        let connection = report.connections.first().context("no queue pair")?;
        let protocol = connection.get("protocol").and_then(|protocol| protocol.as_object());
        let protocol = protocol.with_context(|| format!("no protocol counters in {connection:?}"))?;
        for name in ["retransmissions", "timeouts", "rnr_naks_sent"] {
            ensure!(
                protocol.get(name).is_some_and(|count| count.is_u64()),
                "{name} is missing in {protocol:?}"
            );
        }
    }
    Ok(())
}

/// Nothing is coloured where the output is no terminal, and a reader that goes away early is no failure.
///
/// # Errors
/// If not.
pub fn pipes_get_plain_text(ground: &Ground) -> Result<()> {
    for words in
        [&["doctor"] as &[&str], &["explain"], &["--help"], &["run", "--help"], &["bench", "nonsense"]]
    {
        let finished = run(command(ground, words))?;
        ensure!(!finished.output.contains('\u{1b}'), "{words:?}: {:?}", finished.output);
    }
    let mut shell = ground.hosts.first.command("sh");
    shell.args(["-c", "\"$0\" doctor --json | head -n 1"]).arg(&ground.stage.command);
    let finished = run(shell)?;
    ensure!(finished.output.lines().count() == 1 && finished.success(), "{}", finished.output);
    Ok(())
}

/// The install tree has the programs of further commands: help and completions show them.
///
/// # Errors
/// If not.
pub fn commands_of_programs_are_installed(ground: &Ground) -> Result<()> {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--help"], &["\n  bench  ", "\n  reproduce  "]),
        (&["help", "bench"], &["Usage: pagewire bench [OPTIONS] [NAME]..."]),
        (&["reproduce", "--version"], &["pagewire-reproduce "]),
        (&["completions", "bash"], &["write_lat", "--figure"]),
    ];
    for (words, expected) in cases {
        let finished = run(command(ground, words))?;
        ensure!(finished.success(), "{words:?}: {}\n{}", finished.verdict(), finished.output);
        for text in expected {
            ensure!(finished.output.contains(text), "{words:?}: {text} is missing in: {}", finished.output);
        }
    }
    Ok(())
}

/// A demonstration that is interrupted, or whose reader goes away, leaves no file and no program behind.
///
/// # Errors
/// If it does.
pub fn ended_early_leaves_nothing(ground: &Ground) -> Result<()> {
    let temporary = ground.stage.file("temporary");
    std::fs::create_dir(&temporary)?;
    std::fs::set_permissions(&temporary, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let is_empty = || -> Result<bool> { Ok(std::fs::read_dir(&temporary)?.next().is_none()) };

    let mut demo = command(ground, &["demo", "--one-host"]);
    demo.env("TMPDIR", &temporary);
    let demo = Running::start(demo)?;
    let patience = Instant::now() + RUN;
    while is_empty()? {
        ensure!(Instant::now() < patience, "the demonstration did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(demo.pid() as i32), Signal::SIGTERM)?;
    let finished = demo.wait_until(patience);
    ensure!(code(&finished) == Some(128 + 15), "{}\n{}", finished.verdict(), finished.output);
    ensure!(is_empty()?, "files are left in {}", temporary.display());

    let mut shell = ground.hosts.first.command("sh");
    shell.args(["-c", "\"$0\" demo --one-host | head -n 1"]).arg(&ground.stage.command);
    shell.env("TMPDIR", &temporary);
    let finished = run(shell)?;
    ensure!(finished.success() && !finished.output.contains("panicked"), "{}", finished.output);
    ensure!(is_empty()?, "files are left in {}", temporary.display());
    Ok(())
}

/// Root of a user namespace in which nobody has no number (a container of an ordinary user) can run programs too.
///
/// # Errors
/// If not.
pub fn root_of_a_user_namespace_may_run(ground: &Ground) -> Result<()> {
    let mut command = ground.hosts.first.privileged("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c"]);
    command.arg("ip link set lo up && exec \"$0\" bench --json --rounds 1 reg_mr");
    command.arg(&ground.stage.command);
    let finished = run(command)?;
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    ensure!(
        finished.output.contains("\"bench\":\"reg_mr\",\"size\":4096,\"path\":\"-\",\"value\":"),
        "{}",
        finished.output
    );
    Ok(())
}

/// `pagewire reproduce --live` puts what it measured beside the model, in what it prints and in files, and says what it cannot
/// measure.
///
/// # Errors
/// If not.
pub fn papers_are_reproduced_on_this_machine(ground: &Ground) -> Result<()> {
    let directory = ground.stage.file("reproduced");
    std::fs::create_dir(&directory)?;
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let words: [(&[&str], &str, &str); 2] =
        [(&["part", "--figure", "13"], "udp", "transfer"), (&["jbmt", "--figure", "4"], "local", "get")];
    for (figure, path, curve) in words {
        let mut command = command(ground, &["reproduce"]);
        command.args(figure).args(["--json", "--live", "--path", path, "--out"]).arg(&directory);
        let finished = run(command)?;
        ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
        let lines = finished.output.lines().filter(|line| line.starts_with('{'));
        let lines: Vec<serde_json::Value> = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        let shown = lines.iter().find(|line| line["curves"].is_object()).context("no figure")?;
        let mine = &shown["this_machine"];
        ensure!(mine["path"] == path, "{mine}");
        let points = mine["curves"][curve].as_array().with_context(|| finished.output.clone())?;
        let positive = |point: &serde_json::Value| point[1].as_f64().is_some_and(|value| value > 0.0);
        ensure!(!points.is_empty() && points.iter().all(positive), "{mine}");
        let number = lines.iter().find_map(|line| line["this_machine"].as_f64());
        ensure!(number.is_some_and(|number| number > 0.0), "{}", finished.output);
        let csv = directory.join(format!("{}-figure-{}.csv", figure[0], figure[2]));
        let csv = std::fs::read_to_string(&csv).with_context(|| csv.display().to_string())?;
        let name = format!("\"{curve}, this machine\",");
        let values = csv.lines().filter_map(|line| line.strip_prefix(&name)?.split(',').nth(1));
        let values: Vec<f64> = values.map(str::parse).collect::<Result<_, _>>()?;
        ensure!(values.len() == points.len() && values.iter().all(|value| *value > 0.0), "{csv}");
    }
    let finished =
        run(command(ground, &["reproduce", "part", "--figure", "15", "--live", "--path", "local"]))?;
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    ensure!(
        finished.output.contains("not measured: inside a host nothing is sent again"),
        "{}",
        finished.output
    );
    Ok(())
}

/// `pagewire reproduce reuse --live` sends Views of Kokkos, where an installation has the program for it.
///
/// # Errors
/// If not.
pub fn views_of_kokkos_are_reproduced(ground: &Ground) -> Result<()> {
    if !ground.stage.helpers.join("views").is_file() {
        not_checked::tell("command::views_of_kokkos_are_reproduced: Kokkos is not installed");
        return Ok(());
    }
    for path in ["local", "udp"] {
        let mut command = command(ground, &["reproduce", "reuse", "--figure", "7", "--live", "--json"]);
        command.args(["--path", path, "--rounds", "1"]);
        let finished = run(command)?;
        ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
        let lines = finished.output.lines().filter(|line| line.starts_with('{'));
        let lines: Vec<serde_json::Value> = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        let shown = lines.iter().find(|line| line["curves"].is_object()).context("no figure")?;
        let mine = &shown["this_machine"];
        let is_refused = mine["notes"].to_string().contains("not permitted to lock");
        for way in ["registered space", "by hand", "copied"] {
            let points = mine["curves"][format!("Kokkos View: {way}")].as_array().map_or(0, Vec::len);
            ensure!(points == 15 || is_refused && way == "by hand", "{way}: {points} points: {mine}");
        }
        let numbers = lines.iter().filter(|line| line["this_machine"].is_number());
        ensure!(numbers.filter(|line| line["measured_as"].is_null()).count() >= 2, "{}", finished.output);
    }
    Ok(())
}

/// `pagewire doctor` names what a namespace without any working device, or a limit, forbids, with the way to mend it.
///
/// # Errors
/// If not.
pub fn doctor_names_what_forbids(ground: &Ground) -> Result<()> {
    let mut shell = ground.hosts.first.privileged("unshare");
    shell.args([
        "--user",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        "ulimit -f 1000; exec \"$0\" doctor --json",
    ]);
    shell.arg(&ground.stage.command);
    let finished = run(shell)?;
    ensure!(code(&finished) == Some(1), "{}\n{}", finished.verdict(), finished.output);
    for wanted in [
        r#"{"check":"file size","verdict":"forbids","#,
        r#"{"check":"network devices","verdict":"forbids","#,
        r#"{"check":"loopback device","verdict":"costs","#,
        "ip link set lo up",
        "ulimit -f unlimited",
    ] {
        ensure!(finished.output.contains(wanted), "{wanted} is missing in:\n{}", finished.output);
    }
    ensure!(!finished.output.contains("GSO"), "tried without a device:\n{}", finished.output);
    let mut program = ground.hosts.first.privileged("unshare");
    program.args(["--user", "--map-root-user", "--net"]).arg(&ground.stage.command).args([
        "run",
        "--",
        "ibv_devinfo",
    ]);
    let finished = run(program)?;
    let said = "pagewire: no verbs device: no network device in this network namespace is up";
    ensure!(finished.output.contains(said), "{said} is missing in:\n{}", finished.output);
    ensure!(finished.output.contains("ip link set lo up"), "no mend is named:\n{}", finished.output);
    // Where one limit alone keeps a program from its device.
    for (limit, check) in [("ulimit -n 12", "open files"), ("ulimit -v 300000", "address space")] {
        let run_under = |words: &str| {
            let mut shell = ground.hosts.first.command("sh");
            shell.arg("-c").arg(format!("{limit}; exec \"$0\" {words}")).arg(&ground.stage.command);
            run(shell)
        };
        let refused = run_under("run -- ibv_devinfo")?;
        ensure!(code(&refused) == Some(1), "{limit}: {}\n{}", refused.verdict(), refused.output);
        let finished = run_under("doctor --json")?;
        let wanted = format!(r#"{{"check":"{check}","verdict":"forbids","#);
        ensure!(code(&finished) == Some(1), "{limit}: {}\n{}", finished.verdict(), finished.output);
        ensure!(finished.output.contains(&wanted), "{wanted} is missing in:\n{}", finished.output);
    }
    agrees_about_descriptors(ground)
}

/// The doctor forbids as few open files as do not suffice for a queue pair, and no more.
fn agrees_about_descriptors(ground: &Ground) -> Result<()> {
    let mut verdicts = [0, 0];
    for limit in 12..=24 {
        let run_under = |words: &str| {
            let mut shell = ground.hosts.first.command("bash");
            // What whoever started the tests left open would count, too.
            let script = format!(
                "for open in {{3..255}}; do eval \"exec $open>&-\"; done; ulimit -n {limit}; exec \"$0\" {words}"
            );
            shell.arg("-c").arg(script).arg(&ground.stage.command);
            run(shell)
        };
        // Nobody listens there: it ends as soon as its queue pair is made. Sockets that are open for a moment may be in its way.
        let mut made = false;
        for _ in 0..20 {
            let program = run_under("run -- ibv_rc_pingpong -g 0 -p 1 127.0.0.1")?;
            made = program.output.contains("Couldn't connect");
            let refused = ["Couldn't get context", "Couldn't create QP"];
            let refused = refused.iter().any(|words| program.output.contains(words));
            ensure!(made != refused, "ulimit -n {limit}: {}\n{}", program.verdict(), program.output);
            if made {
                break;
            }
        }
        let doctor = run_under("doctor --json")?;
        let forbids = doctor.output.contains(r#"{"check":"open files","verdict":"forbids","#);
        ensure!(forbids != made, "ulimit -n {limit}: a queue pair was made: {made}\n{}", doctor.output);
        verdicts[usize::from(forbids)] += 1;
    }
    ensure!(verdicts.iter().all(|&times| times > 0), "always the same: {verdicts:?}");
    Ok(())
}
