//! perftest, in all combinations of the table.

use crate::combinations::{Combination, Expected};
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Result, bail, ensure};
use pagewire_cli::arguments::PathChoice;
use pagewire_cli::pair::Running;
use pagewire_cli::perftest::rows;
use std::time::Instant;

/// Messages of one run: few, for what is tried is that it works, not how fast.
const MESSAGES: &str = "100";
/// Where the program sleeps for each: in what order events come depends on which thread is faster.
const MESSAGES_SLEPT_FOR: &str = "1000";

/// Acknowledgement timeout (1.07 s, eight of them): with perftest's own, 67 ms, a peer that gets no processor for half a second
/// counts as dead, as it may on a busy machine.
const TIMEOUT: &str = "18";

/// Nobody repeats a datagram that is lost, as some are over the network on a busy machine, and perftest gives up. That is an error
/// where none of so many runs goes well.
const RUNS_OF_DATAGRAMS: usize = 3;
/// What perftest says then.
const LOST: &str = "Did not get Message";

/// The words of a combination's command line, the program's name not among them. Options of a combination may say
/// otherwise what stands before them: the last counts.
fn arguments(combination: &Combination) -> Vec<&str> {
    let mut words = vec!["-F", "-u", TIMEOUT, "-c", &combination.transport];
    // perftest takes either a number or a duration.
    if !combination.options.iter().any(|option| option == "-D") {
        let sleeps = combination.options.iter().any(|option| option == "-e");
        words.extend(["-n", if sleeps { MESSAGES_SLEPT_FOR } else { MESSAGES }]);
    }
    words.extend(combination.options.iter().map(String::as_str));
    words
}

/// Runs one combination; what comes of it must be what the table says.
///
/// # Errors
/// If it is not.
pub fn check(ground: &Ground, setting: Setting, combination: &Combination) -> Result<()> {
    match &combination.expected {
        Expected::Runs => {
            let run = || ground.must_run(setting, &combination.program, &arguments(combination));
            let may_lose = combination.transport == "UD" && setting.path() == PathChoice::Udp;
            let mut outcome = run();
            for again in 1..RUNS_OF_DATAGRAMS {
                if !may_lose || !outcome.as_ref().is_err_and(|error| format!("{error:#}").contains(LOST)) {
                    break;
                }
                eprintln!("{}: datagrams were lost, run {again} is repeated", combination.program);
                outcome = run();
            }
            let outcome = outcome?;
            // The results are the client's, except for bandwidth of SENDs that both print: one row for each size.
            let client = outcome.pair.client.map(|client| client.output).unwrap_or_default();
            ensure!(!rows(&client).is_empty(), "no result in the client's output:\n{client}");
            Ok(())
        }
        Expected::Denied(message) => denied(ground, setting, combination, message),
        Expected::Refused(message) => refused(ground, setting, combination, message),
    }
}

/// perftest refuses while it reads its arguments: one end shows it, and no server ever waits.
fn refused(ground: &Ground, setting: Setting, combination: &Combination, message: &str) -> Result<()> {
    let mut command = ground.ends(setting).0.command(&ground.stage.command);
    command
        .args(["run", "--path", setting.path().name(), "--", &combination.program])
        .args(arguments(combination));
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    if finished.success() || finished.status.is_none() {
        bail!("was to be refused ({message}), but: {}\n{}", finished.verdict(), finished.output.trim());
    }
    ensure!(
        finished.output.contains(message),
        "was to be refused with \"{message}\", but said:\n{}",
        finished.output.trim()
    );
    Ok(())
}

/// Both ends start; the device refuses what the client asks for, which must end both in good time.
fn denied(ground: &Ground, setting: Setting, combination: &Combination, message: &str) -> Result<()> {
    let outcome = ground.run(setting, &combination.program, &arguments(combination))?;
    let Some(client) = &outcome.pair.client else {
        bail!("the server never listened:\n{}", outcome.pair.server.output.trim())
    };
    if client.success() || client.status.is_none() {
        bail!("was to be denied ({message}), but the client: {}\n{}", client.verdict(), client.output.trim());
    }
    ensure!(
        client.output.contains(message),
        "was to be denied with \"{message}\", but the client said:\n{}",
        client.output.trim()
    );
    Ok(())
}

/// Whether a combination is in the quick part: each program and transport plain, and each option once.
pub fn is_quick(combination: &Combination) -> bool {
    if combination.expected != Expected::Runs {
        return false;
    }
    let plain = combination.options.is_empty();
    // Options on the test that uses most of the engine.
    let (program, transport) = (combination.program.as_str(), combination.transport.as_str());
    plain || program == "ib_send_bw" && transport != "UC" || program == "ib_write_bw" && transport == "RC"
}
