//! The tests by name: `cargo test -p pagewire-end-to-end -- FILTER`.
//!
//! `PAGEWIRE_TESTS=all` runs every combination; without it a part that takes minutes.
#![forbid(unsafe_code)]

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use pagewire_cli::arguments::PathChoice;
use pagewire_cli::interrupt;
use pagewire_end_to_end::ground::{Ground, Setting};
use pagewire_end_to_end::limits::{DEATH, INSTRUCTIONS, KILLS, STRIDE, STRIDE_NETWORK, STRIDE_STOPPED};
use pagewire_end_to_end::{
    basics, combinations, command, crowd, death, device_files, faults, instructions, killed, motion,
    perftest, pingpong, shortage, stack, tools, trust, wire,
};
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prepared at the first test that needs it; when it cannot be had, each test says why. Gone with the last test.
type SharedGround = Arc<LazyLock<Result<Ground, String>>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A signal from the terminal does not reach the programs, which are process groups of their own.
    if let Err(error) = interrupt::watch() {
        eprintln!("signals cannot be watched for: {error:#}");
        return ExitCode::FAILURE;
    }
    // Two spinning ends are enough for a small machine: time limits shall mean something.
    arguments.test_threads.get_or_insert(1);
    let conclusion =
        match trials(&Arc::new(LazyLock::new(|| Ground::prepare().map_err(|error| format!("{error:#}"))))) {
            Ok(trials) => libtest_mimic::run(&arguments, trials),
            Err(error) => {
                eprintln!("the table of combinations: {error:#}");
                return ExitCode::FAILURE;
            }
        };
    conclusion.exit_code()
}

fn trials(ground: &SharedGround) -> Result<Vec<Trial>> {
    let all = std::env::var("PAGEWIRE_TESTS").is_ok_and(|value| value == "all");
    let mut trials = vec![
        Trial::test("combinations::table_is_whole", || outcome(combinations::table_is_whole())),
        trial(ground, "basics::devices_are_listed", basics::devices_are_listed),
        trial(ground, "basics::device_is_described", basics::device_is_described),
        trial(ground, "basics::exit_status_passes", basics::exit_status_passes),
        trial(ground, "basics::doctor_is_content", basics::doctor_is_content),
        trial(ground, "basics::explain_finds_a_program", basics::explain_finds_a_program),
        trial(ground, "basics::statistics_are_printed", basics::statistics_are_printed),
        trial(ground, "device_files::programs_find_them", device_files::programs_find_them),
        trial(
            ground,
            "device_files::rates_are_those_of_the_best_path",
            device_files::rates_are_those_of_the_best_path,
        ),
        trial(ground, "device_files::they_can_be_left_out", device_files::they_can_be_left_out),
        trial(ground, "device_files::ucx_finds_the_device", device_files::ucx_finds_the_device),
        trial(ground, "shortage::limits_are_named", shortage::limits_are_named),
        trial(ground, "tools::valgrind_is_content", tools::valgrind_is_content),
        trial(ground, "tools::a_sanitized_program_runs", tools::a_sanitized_program_runs),
        trial(
            ground,
            "tools::the_connection_manager_is_not_built",
            tools::the_connection_manager_is_not_built,
        ),
        trial(
            ground,
            "tools::a_peer_that_asks_to_connect_is_refused",
            tools::a_peer_that_asks_to_connect_is_refused,
        ),
        trial(
            ground,
            "tools::a_killed_demonstration_is_cleaned_up",
            tools::a_killed_demonstration_is_cleaned_up,
        ),
        trial(ground, "command::path_of_the_environment_holds", command::path_of_the_environment_holds),
        trial(ground, "command::refusals_say_what_and_where", command::refusals_say_what_and_where),
        trial(ground, "command::signals_reach_the_program", command::signals_reach_the_program),
        trial(ground, "command::explain_shows_a_busy_connection", command::explain_shows_a_busy_connection),
        trial(ground, "command::another_pid_namespace_is_named", command::another_pid_namespace_is_named),
        trial(
            ground,
            "command::explain_finds_other_pid_namespaces",
            command::explain_finds_other_pid_namespaces,
        ),
        trial(
            ground,
            "command::statistics_have_protocol_counters",
            command::statistics_have_protocol_counters,
        ),
        trial(ground, "command::doctor_names_what_forbids", command::doctor_names_what_forbids),
        trial(ground, "command::ended_early_leaves_nothing", command::ended_early_leaves_nothing),
        trial(ground, "command::root_of_a_user_namespace_may_run", command::root_of_a_user_namespace_may_run),
        trial(ground, "command::pipes_get_plain_text", command::pipes_get_plain_text),
        trial(
            ground,
            "command::papers_are_reproduced_on_this_machine",
            command::papers_are_reproduced_on_this_machine,
        ),
        trial(ground, "trust::nothing_is_shown_without_proof", trust::nothing_is_shown_without_proof),
        trial(ground, "trust::udp_alone_opens_no_listener", trust::udp_alone_opens_no_listener),
        trial(ground, "wire::packets_are_right", wire::packets_are_right),
        trial(ground, "wire::resumes_are_captured", wire::resumes_are_captured),
        trial(ground, "instructions::hot_paths", instructions::hot_paths),
    ];
    for (path, descriptors) in crowd::RUNS {
        trials.push(trial(ground, &format!("crowd::{path}_{descriptors}_descriptors"), move |ground| {
            crowd::every_word_arrives(ground, path, descriptors)
        }));
    }
    for run in motion::runs().into_iter().filter(|run| all || motion::is_quick(run)) {
        trials.push(trial(ground, &motion::title(&run), move |ground| motion::check(ground, &run)));
    }
    for run in faults::runs().into_iter().filter(|run| all || faults::is_quick(run)) {
        trials.push(trial(ground, &faults::title(&run), move |ground| faults::check(ground, &run)));
    }
    for setting in [Setting::Local, Setting::Udp] {
        trials.push(trial(ground, &format!("stack::{}", setting.name()), move |ground| {
            stack::little_is_enough(ground, setting)
        }));
    }
    for setting in Setting::ALL {
        let name = setting.name();
        trials.push(trial(ground, &format!("killed::{name}"), move |ground| {
            killed::survivor_ends(ground, setting)
        }));
        for run in pingpong::runs().into_iter().filter(|run| all || pingpong::is_quick(run)) {
            let title = format!("pingpong::{name}::{}", run.title());
            trials.push(trial(ground, &title, move |ground| pingpong::check(ground, setting, &run)));
        }
        for combination in combinations::table()?.into_iter().filter(|c| all || perftest::is_quick(c)) {
            let (program, transport) = (&combination.program, &combination.transport);
            let title =
                format!("perftest::{name}::{program} -c {transport} {}", combination.options.join(" "));
            trials.push(trial(ground, title.trim_end(), move |ground| {
                perftest::check(ground, setting, &combination)
            }));
        }
    }
    for path in [PathChoice::Local, PathChoice::Udp] {
        trials.extend(deaths(ground, path));
    }
    // Refusals do not depend on the setting; they cost nothing, so that all are tried always.
    if !all {
        let refused = |c: &combinations::Combination| c.expected != combinations::Expected::Runs;
        for combination in combinations::table()?.into_iter().filter(refused) {
            let (program, transport) = (&combination.program, &combination.transport);
            let title =
                format!("perftest::refused::{program} -c {transport} {}", combination.options.join(" "));
            trials.push(trial(ground, title.trim_end(), move |ground| {
                perftest::check(ground, Setting::Udp, &combination)
            }));
        }
    }
    Ok(trials)
}

/// Short runs of the death harness. The instants are others each day; the program prints which they were.
fn deaths(ground: &SharedGround, path: PathChoice) -> Vec<Trial> {
    let name = path.name();
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let mut trials = vec![trial(ground, &format!("death::kill::{name}"), move |ground| {
        death::Program::compile(ground)?.kill(path, KILLS, seed, 0)?.finish(DEATH).map(drop)
    })];
    for operation in death::OPERATIONS {
        let mut step = |fate, stride| {
            trials.push(trial(ground, &format!("death::{fate:?}::{name}::{operation}"), move |ground| {
                let instants = death::Instants { first: seed % stride, stride, last: INSTRUCTIONS };
                let run = death::Program::compile(ground)?.single_step(
                    path,
                    operation,
                    fate,
                    instants,
                    Duration::ZERO,
                )?;
                run.finish(DEATH).map(drop)
            }));
        };
        if path == PathChoice::Local {
            step(death::Fate::Killed, STRIDE);
            step(death::Fate::Stopped, STRIDE_STOPPED);
        } else if !operation.ends_with("-long") {
            step(death::Fate::Killed, STRIDE_NETWORK);
        }
    }
    trials
}

fn trial(ground: &SharedGround, name: &str, test: impl Fn(&Ground) -> Result<()> + Send + 'static) -> Trial {
    let ground = ground.clone();
    Trial::test(name, move || match &**ground {
        Ok(ground) => outcome(interrupt::check().map_err(Into::into).and_then(|()| test(ground))),
        Err(error) => Err(Failed::from(error.as_str())),
    })
}

fn outcome(result: Result<()>) -> Result<(), Failed> {
    result.map_err(|error| Failed::from(format!("{error:#}")))
}
