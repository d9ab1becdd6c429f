//! `pagewire fail-each` finds the fault of each program that has one, and none in a program that handles everything: `tests/fail-each/program.c`.

use crate::compile;
use crate::ground::Ground;
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pagewire_cli::pair::{Finished, Running};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

/// A fault that the program has, and how it shows.
#[derive(Clone, Copy, Debug)]
pub struct PlantedFault {
    /// Its name in the program.
    pub name: &'static str,
    /// The kinds of the findings.
    pub kinds: &'static [&'static str],
    /// What fails when it shows, one of these.
    pub calls: &'static [&'static str],
}

/// The faults, one in each program.
pub const PLANTED: [PlantedFault; 11] = [
    PlantedFault { name: "UNCHECKED_REG_MR", kinds: &["crash"], calls: &["ibv_reg_mr"] },
    PlantedFault { name: "UNCHECKED_CREATE_QP", kinds: &["crash"], calls: &["ibv_create_qp"] },
    PlantedFault { name: "IGNORED_POST_SEND", kinds: &["hang"], calls: &["ibv_post_send"] },
    PlantedFault { name: "IGNORED_POST_RECV", kinds: &["hang"], calls: &["ibv_post_recv"] },
    PlantedFault { name: "IGNORED_STATUS", kinds: &["wrong-success"], calls: &["SEND", "RECV"] },
    PlantedFault { name: "LEAK", kinds: &["leak"], calls: &["ibv_reg_mr"] },
    PlantedFault { name: "DOUBLE_DESTROY", kinds: &["misuse"], calls: &["ibv_modify_qp"] },
    PlantedFault { name: "UNCHECKED_EVENT", kinds: &["crash"], calls: &["ibv_get_cq_event"] },
    // Whoever cannot destroy an object leaves it, which the exit status hides, too.
    PlantedFault { name: "WRONG_EXIT", kinds: &["wrong-success", "leak"], calls: &["ibv_", "SEND", "RECV"] },
    PlantedFault { name: "WAITING_END", kinds: &["hang"], calls: &["ibv_post_send"] },
    // Only asynchronous events show it.
    PlantedFault { name: "EVENT_OF_PORT", kinds: &["crash"], calls: &["ibv_post_send"] },
];

/// Runs fail-each with `options` on the program that has the fault.
fn run(ground: &Ground, fault: &str, options: &[&str]) -> Result<Finished> {
    let program = ground.stage.file(&format!("fail-each-{fault}"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fail-each/program.c");
    let define = format!("-DFAULT={fault}");
    compile::once(&program, || compile::c([source], &program, &["-g", &define, "-libverbs"]))?;
    let scenario = scenario(ground, fault, &program)?;
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["fail-each", "--limit", "1"]).args(options).arg(scenario);
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.status.is_some(), "{fault}: {}", finished.output);
    Ok(finished)
}

/// A program that must write the alphabet, until the message is full.
fn scenario(ground: &Ground, fault: &str, program: &std::path::Path) -> Result<PathBuf> {
    let file = ground.stage.file(&format!("fail-each-{fault}.toml"));
    let message: String = (0..64_u8).map(|place| char::from(b'a' + place % 26)).collect();
    let text = format!(
        "[[role]]\nname = \"program\"\ncommand = [{:?}, \"{{run}}/out\"]\n\n\
         [verifier]\ncommand = [\"sh\", \"-c\", \"test \\\"$(cat {{run}}/out)\\\" = {message}\"]\n",
        program.to_str().context("UTF-8")?
    );
    std::fs::write(&file, text)?;
    // Programs run as another user.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

/// The example of the guide: three kinds of faults are found in the program that nobody tested, and none in the fixed one.
///
/// # Errors
/// If not.
pub fn example_has_three_faults(ground: &Ground) -> Result<()> {
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fail-each");
    let folder = ground.stage.file("fail-each-example");
    std::fs::create_dir(&folder)?;
    // Programs run as another user.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
    std::fs::copy(example.join("input"), folder.join("input"))?;
    for (name, expected) in [("untested", &["crash", "hang", "wrong-success"][..]), ("fixed", &[])] {
        compile::c([example.join(format!("{name}.c"))], &folder.join(name), &["-g", "-libverbs"])?;
        let scenario = folder.join(format!("{name}.toml"));
        std::fs::copy(example.join(format!("{name}.toml")), &scenario)?;
        let mut command = ground.hosts.first.command(&ground.stage.command);
        command.args(["fail-each", "--json"]).arg(scenario);
        let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
        let code = finished.status.and_then(|status| status.code());
        ensure!(code == Some(i32::from(!expected.is_empty())), "{name}: {}", finished.output);
        let faults = objects(&finished);
        let kinds: std::collections::BTreeSet<&str> =
            faults.iter().filter_map(|one| one["kind"].as_str()).collect();
        ensure!(kinds.iter().eq(expected), "{name}: {kinds:?}: {}", finished.output);
    }
    Ok(())
}

/// Whoever interrupts it gets what was found until then.
///
/// # Errors
/// If not.
pub fn interrupt_leaves_results(ground: &Ground) -> Result<()> {
    let folder = ground.stage.file("fail-each-interrupt");
    std::fs::create_dir(&folder)?;
    // Programs run as another user.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))?;
    let (program, scenario, runs) =
        (folder.join("program"), folder.join("scenario.toml"), folder.join("runs"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fail-each/program.c");
    compile::c([source], &program, &["-DFAULT=NONE", "-libverbs"])?;
    let text = format!(
        "[[role]]\nname = \"program\"\ncommand = [{program:?}, \"{{run}}/out\"]\n\n\
         [verifier]\ncommand = [\"sh\", \"-c\", \"echo run >> {}; sleep 0.2\"]\n",
        runs.display()
    );
    std::fs::write(&scenario, text)?;
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["fail-each", "--json", "--jobs", "1"]).arg(&scenario);
    let running = Running::start(command)?;
    let until = Instant::now() + RUN;
    // The first one is without a failure, and the one at hand is no result.
    while std::fs::read_to_string(&runs).unwrap_or_default().lines().count() < 4 {
        ensure!(!running.has_ended() && Instant::now() < until, "the runs do not come");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill(Pid::from_raw(running.pid() as i32), Signal::SIGTERM)?;
    let finished = running.wait_until(until);
    let code = finished.status.and_then(|status| status.code());
    ensure!(code == Some(128 + Signal::SIGTERM as i32), "{}\n{}", finished.verdict(), finished.output);
    ensure!(finished.output.contains("failures were run"), "{}", finished.output);
    ensure!(objects(&finished).len() >= 2, "{}", finished.output);
    Ok(())
}

/// The JSON objects in an output.
fn objects(finished: &Finished) -> Vec<Value> {
    finished.output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Nothing is found in a program that handles each failure, and each of its calls fails.
///
/// # Errors
/// If not.
pub fn nothing_is_found_in_a_correct_program(ground: &Ground) -> Result<()> {
    let finished = run(ground, "NONE", &["--json"])?;
    let code = finished.status.and_then(|status| status.code());
    ensure!(code == Some(0), "{}\n{}", finished.verdict(), finished.output);
    let tried = objects(&finished);
    for verb in ["ibv_open_device", "ibv_reg_mr", "ibv_modify_qp", "ibv_post_send", "ibv_destroy_qp", "SEND"]
    {
        let failed = tried.iter().any(|one| one["call"] == verb && one["result"] == "handled");
        ensure!(failed, "{verb} was not failed:\n{}", finished.output);
    }
    let missed: Vec<_> = tried.iter().filter(|one| one["result"] == "not-reached").collect();
    ensure!(missed.is_empty(), "{missed:?}");
    for event in ["IBV_EVENT_PORT_ERR", "IBV_EVENT_QP_FATAL", "IBV_EVENT_DEVICE_FATAL"] {
        ensure!(tried.iter().any(|one| one["error"] == event), "{event} did not come:\n{}", finished.output);
    }
    // The program does without statistics.
    ensure!(tried.iter().any(|one| one["result"] == "tolerated"), "{}", finished.output);
    Ok(())
}

/// The fault is found, where it is, and nothing else.
///
/// # Errors
/// If not.
pub fn planted_fault_is_found(ground: &Ground, planted: PlantedFault) -> Result<()> {
    let finished = run(ground, planted.name, &["--json"])?;
    let code = finished.status.and_then(|status| status.code());
    ensure!(code == Some(1), "{}\n{}", finished.verdict(), finished.output);
    let faults: Vec<Value> = objects(&finished).into_iter().filter(|one| one["result"] == "fault").collect();
    ensure!(!faults.is_empty(), "{}", finished.output);
    for fault in faults {
        let call = fault["call"].as_str().context("a call")?;
        let is_planted = planted.kinds.iter().any(|kind| fault["kind"] == *kind)
            && planted.calls.iter().any(|expected| call.starts_with(expected));
        ensure!(is_planted, "{planted:?}: {fault}");
        let error = fault["error"].as_str().context("an error")?;
        let is_event = error.starts_with("IBV_EVENT_");
        ensure!(is_event || planted.name != "EVENT_OF_PORT", "{planted:?}: {fault}");
        if call.starts_with("ibv_") {
            let lines = fault["place"].as_array().context("a place")?;
            let is_line = |line: &Value| line.as_str().is_some_and(|line| line.contains("program.c:"));
            ensure!(lines.iter().any(is_line), "{lines:?}");
        }
    }
    Ok(())
}
