//! The tests by name: `cargo test -p pagewire-end-to-end -- FILTER`.
//!
//! `PAGEWIRE_TESTS=all` runs every combination; without it a part that takes minutes.
#![forbid(unsafe_code)]

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use pagewire_cli::arguments::PathChoice;
use pagewire_cli::install::find_program;
use pagewire_cli::interrupt;
use pagewire_end_to_end::ground::{Ground, Setting};
use pagewire_end_to_end::limits::{DEATH, INSTRUCTIONS, KILLS, STRIDE, STRIDE_NETWORK, STRIDE_STOPPED};
use pagewire_end_to_end::pool::{Load, Pool};
use pagewire_end_to_end::{
    basics, checked, checkpoint, combinations, command, connection_ipv6, connection_manager,
    connection_manager_calls, connection_manager_ends, connection_manager_users, connection_storm,
    connection_tools, crowd, death, device_files, encrypted, fail_each, failures, faults, heap, instructions,
    killed, motion, not_checked, paths, perftest, pingpong, queue_pairs, resets, serve, shortage, stack,
    tools, trust, ucx, watch, wire,
};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Prepared at the first test that needs it; when it cannot be had, each test says why. Gone with the last test.
type SharedPool = Arc<LazyLock<Result<Pool, String>>>;

/// How long each test took, without its wait for a ground.
static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// How many of the slowest tests are named at the end.
const SLOWEST: usize = 10;
/// A program of the tests.
const TCP_PROXY: &str = env!("CARGO_BIN_EXE_tcp_proxy");

/// Tests that failed, and why.
static FAILURES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Lines of a failure that are told once more at the end, where only the end of a log is kept.
const FAILURE_LINES: usize = 6;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A signal from the terminal does not reach the programs, which are process groups of their own.
    if let Err(error) = interrupt::watch() {
        eprintln!("signals cannot be watched for: {error:#}");
        return ExitCode::FAILURE;
    }
    let pool: SharedPool = Arc::new(LazyLock::new(|| Pool::prepare().map_err(|error| format!("{error:#}"))));
    let trials = match trials(&pool) {
        Ok(trials) => trials,
        Err(error) => {
            eprintln!("the table of combinations: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    // Each test has a thread, in which it waits for a ground: the pool decides how many run.
    arguments.test_threads.get_or_insert(trials.len());
    let conclusion = libtest_mimic::run(&arguments, trials);
    print_slowest();
    print_failures();
    conclusion.exit_code()
}

fn trials(pool: &SharedPool) -> Result<Vec<Trial>> {
    let all = std::env::var("PAGEWIRE_TESTS").is_ok_and(|value| value == "all");
    let mut trials = vec![
        Trial::test("combinations::table_is_whole", || outcome(combinations::table_is_whole())),
        trial(pool, "basics::devices_are_listed", basics::devices_are_listed),
        trial(pool, "basics::device_is_described", basics::device_is_described),
        trial(pool, "basics::exit_status_passes", basics::exit_status_passes),
        trial(pool, "basics::doctor_is_content", basics::doctor_is_content),
        trial(pool, "basics::explain_finds_a_program", basics::explain_finds_a_program),
        trial(pool, "basics::statistics_are_printed", basics::statistics_are_printed),
        trial(pool, "device_files::programs_find_them", device_files::programs_find_them),
        trial(
            pool,
            "device_files::rates_are_those_of_the_best_path",
            device_files::rates_are_those_of_the_best_path,
        ),
        trial(pool, "device_files::they_can_be_left_out", device_files::they_can_be_left_out),
        trial(pool, "device_files::ucx_finds_the_device", device_files::ucx_finds_the_device),
        trial(pool, "shortage::limits_are_named", shortage::limits_are_named),
        trial(
            pool,
            "shortage::doctor_tells_untried_from_refused",
            shortage::doctor_tells_untried_from_refused,
        ),
        trial(pool, "failures::calls_fail", failures::calls_fail),
        trial(pool, "failures::processes_end_and_stop", failures::processes_end_and_stop),
        trial(pool, "failures::packets_fail", failures::packets_fail),
        trial(pool, "failures::pages_come_late", failures::pages_come_late),
        trial(pool, "failures::pages_are_lost", failures::pages_are_lost),
        trial(pool, "failures::children_begin_anew", failures::children_begin_anew),
        trial(pool, "failures::connections_fail", failures::connections_fail),
        trial(pool, "failures::events_come", failures::events_come),
        trial(pool, "failures::seeds_and_logs_repeat", failures::seeds_and_logs_repeat),
        trial(pool, "failures::wrong_rules_are_refused", failures::wrong_rules_are_refused),
        trial(pool, "failures::requests_fail::local", |ground| {
            failures::requests_fail(ground, Setting::Local)
        }),
        trial(pool, "failures::requests_fail::udp", |ground| failures::requests_fail(ground, Setting::Udp)),
        trial(pool, "failures::completions_come_late::local", |ground| {
            failures::completions_come_late(ground, Setting::Local)
        }),
        trial(pool, "failures::completions_come_late::udp", |ground| {
            failures::completions_come_late(ground, Setting::Udp)
        }),
        trial(pool, "tools::valgrind_is_content", tools::valgrind_is_content),
        trial(pool, "tools::a_sanitized_program_runs", tools::a_sanitized_program_runs),
        trial(
            pool,
            "tools::a_peer_that_asks_to_connect_is_refused",
            tools::a_peer_that_asks_to_connect_is_refused,
        ),
        trial(
            pool,
            "tools::a_killed_demonstration_is_cleaned_up",
            tools::a_killed_demonstration_is_cleaned_up,
        ),
        trial(pool, "command::path_of_the_environment_holds", command::path_of_the_environment_holds),
        trial(pool, "command::refusals_say_what_and_where", command::refusals_say_what_and_where),
        trial(pool, "command::signals_reach_the_program", command::signals_reach_the_program),
        trial(pool, "command::explain_shows_a_busy_connection", command::explain_shows_a_busy_connection),
        trial(pool, "command::another_pid_namespace_is_named", command::another_pid_namespace_is_named),
        trial(
            pool,
            "command::explain_finds_other_pid_namespaces",
            command::explain_finds_other_pid_namespaces,
        ),
        trial(pool, "command::statistics_have_protocol_counters", command::statistics_have_protocol_counters),
        trial(pool, "command::doctor_names_what_forbids", command::doctor_names_what_forbids),
        trial(pool, "command::ended_early_leaves_nothing", command::ended_early_leaves_nothing),
        trial(pool, "command::root_of_a_user_namespace_may_run", command::root_of_a_user_namespace_may_run),
        trial(pool, "command::pipes_get_plain_text", command::pipes_get_plain_text),
        trial(
            pool,
            "command::commands_of_programs_are_installed",
            command::commands_of_programs_are_installed,
        ),
        trial(
            pool,
            "command::papers_are_reproduced_on_this_machine",
            command::papers_are_reproduced_on_this_machine,
        ),
        trial(pool, "command::views_of_kokkos_are_reproduced", command::views_of_kokkos_are_reproduced),
        trial(pool, "connection_manager::programs_connect", connection_manager::programs_connect),
        trial(pool, "connection_ipv6::programs_connect", connection_ipv6::programs_connect),
        trial(pool, "connection_manager_ends::death_is_told", connection_manager_ends::death_is_told),
        trial(pool, "connection_manager_ends::users_connect", connection_manager_ends::users_connect),
        trial(
            pool,
            "connection_manager_users::users_connect_between_hosts",
            connection_manager_users::users_connect_between_hosts,
        ),
        trial(pool, "connection_tools::connections_are_shown", connection_tools::connections_are_shown),
        trial(pool, "connection_tools::messages_are_captured", connection_tools::messages_are_captured),
        trial(pool, "connection_manager::refusals_are_announced", connection_manager::refusals_are_announced),
        trial(pool, "checked::misuses_are_found", checked::misuses_are_found),
        trial(pool, "checked::changed_buffers_are_found", checked::changed_buffers_are_found),
        trial(pool, "checked::findings_are_shown", checked::findings_are_shown),
        trial(pool, "checked::long_lists_are_refused_unread", checked::long_lists_are_refused_unread),
        trial(pool, "heap::refusals_name_the_variable", heap::refusals_name_the_variable),
        trial(pool, "watch::top_shows_hot_pages", watch::top_shows_hot_pages),
        trial(pool, "watch::counts_outlive_a_signal", checkpoint::counts_outlive_a_signal),
        trial(
            pool,
            "checkpoint::a_program_without_verbs_is_told",
            checkpoint::a_program_without_verbs_is_told,
        ),
        trial(pool, "paths::streams_between_hosts", paths::streams_between_hosts),
        trial(pool, "paths::datagrams_where_no_stream_is", paths::datagrams_where_no_stream_is),
        trial(pool, "paths::streams_through_mapped_ports", |ground| {
            paths::streams_through_mapped_ports(ground, Path::new(TCP_PROXY))
        }),
        trial(pool, "encrypted::programs_run", encrypted::programs_run),
        trial(pool, "encrypted::others_are_refused", encrypted::others_are_refused),
        trial(pool, "encrypted::nodes_are_cut_off", encrypted::nodes_are_cut_off),
        trial(pool, "resets::nothing_is_lost", resets::nothing_is_lost),
        trial(pool, "resets::nothing_is_lost_behind_a_proxy", |ground| {
            resets::nothing_is_lost_behind_a_proxy(ground, Path::new(TCP_PROXY))
        }),
        trial(pool, "trust::nothing_is_shown_without_proof", trust::nothing_is_shown_without_proof),
        trial(pool, "trust::udp_alone_opens_no_listener", trust::udp_alone_opens_no_listener),
        trial(pool, "wire::packets_are_right", wire::packets_are_right),
        trial(pool, "wire::resumes_are_captured", wire::resumes_are_captured),
        trial(pool, "instructions::hot_paths", instructions::hot_paths),
    ];
    for run in crowd::runs()? {
        trials.push(trial(pool, &crowd::title(&run), move |ground| crowd::every_word_arrives(ground, &run)));
    }
    for setting in Setting::PATHS.into_iter().filter(|setting| all || !setting.is_tcp()) {
        for &count in if all { &[2048, 32_768][..] } else { &[2048] } {
            trials.push(trial(
                pool,
                &format!("crowd::{} {count} queue pairs", setting.name()),
                move |ground| queue_pairs::nothing_grows(ground, setting, count),
            ));
        }
    }
    for run in motion::runs().into_iter().filter(|run| all || motion::is_quick(run)) {
        trials.push(trial(pool, &motion::title(&run), move |ground| motion::check(ground, &run)));
    }
    for run in faults::runs().into_iter().filter(|run| all || faults::is_quick(run)) {
        trials.push(trial(pool, &faults::title(&run), move |ground| faults::check(ground, &run)));
    }
    trials.extend(connection_manager_trials(pool)?);
    trials.extend(connection_storm_trials(pool, all));
    for setting in Setting::PATHS {
        trials.push(trial(pool, &format!("stack::{}", setting.name()), move |ground| {
            stack::little_is_enough(ground, setting)
        }));
    }
    trials.push(trial(
        pool,
        "fail_each::nothing_is_found_in_a_correct_program",
        fail_each::nothing_is_found_in_a_correct_program,
    ));
    trials.push(trial(pool, "fail_each::example_has_three_faults", fail_each::example_has_three_faults));
    trials.push(trial(pool, "fail_each::interrupt_leaves_results", fail_each::interrupt_leaves_results));
    for planted in fail_each::PLANTED {
        trials.push(trial(pool, &format!("fail_each::{}", planted.name), move |ground| {
            fail_each::planted_fault_is_found(ground, planted)
        }));
    }
    let has_ucx = find_program(ucx::PROGRAM).is_some();
    if !has_ucx {
        not_checked::tell(format!("UCX over verbs: {} is missing (ucx-utils)", ucx::PROGRAM));
    }
    for (place, setting) in
        Setting::ALL.into_iter().enumerate().filter(|(_, setting)| all || *setting != Setting::Tcp)
    {
        let name = setting.name();
        trials.push(trial(pool, &format!("killed::{name}"), move |ground| {
            killed::survivor_ends(ground, setting)
        }));
        trials
            .push(trial(pool, &format!("serve::{name}"), move |ground| serve::files_travel(ground, setting)));
        for size in pingpong::XRC_SIZES {
            let title = format!("pingpong::{name}::ibv_xsrq_pingpong -s {size}");
            trials.push(trial(pool, &title, move |ground| pingpong::over_xrc(ground, setting, size)));
        }
        for clients in pingpong::XRC_CLIENTS {
            let title = format!("pingpong::{name}::ibv_xsrq_pingpong -c {clients}");
            trials
                .push(trial(pool, &title, move |ground| pingpong::over_shared_xrc(ground, setting, clients)));
        }
        for run in pingpong::runs().into_iter().filter(|run| all || pingpong::is_quick(run)) {
            let title = format!("pingpong::{name}::{}", run.title());
            trials.push(trial(pool, &title, move |ground| pingpong::check(ground, setting, &run)));
        }
        for run in ucx::runs().into_iter().filter(|run| has_ucx && (all || ucx::is_quick(setting, run))) {
            let title = format!("ucx::{name}::{}", run.title());
            trials.push(trial(pool, &title, move |ground| ucx::check(ground, setting, &run, all)));
        }
        let is_tried = |(row, combination): &(usize, combinations::Combination)| {
            all || perftest::is_quick(combination)
                // Options are tried in one setting each, in turn.
                && (combination.options.is_empty() || row % Setting::ALL.len() == place)
        };
        let tried = combinations::table()?.into_iter().enumerate().filter(is_tried);
        for combination in tried.map(|(_, combination)| combination) {
            let (program, transport) = (&combination.program, &combination.transport);
            let title =
                format!("perftest::{name}::{program} -c {transport} {}", combination.options.join(" "));
            trials.push(trial(pool, title.trim_end(), move |ground| {
                perftest::check(ground, setting, &combination)
            }));
        }
    }
    for setting in Setting::PATHS.into_iter().filter(|setting| all || !setting.is_tcp()) {
        let name = setting.name();
        for program in heap::PERFTEST {
            trials.push(trial(pool, &format!("heap::{name}::{program}"), move |ground| {
                heap::perftest_runs(ground, setting, program, all)
            }));
        }
        for (program, arguments) in &checked::CLEAN {
            trials.push(trial(pool, &format!("checked::{name}::{program}"), move |ground| {
                checked::clean_program_has_no_findings(ground, setting, program, arguments)
            }));
        }
        for run in &watch::RUNS {
            trials.push(trial(pool, &format!("watch::{name}::{}", run.program), move |ground| {
                watch::counts_agree(ground, setting, run)
            }));
        }
        trials.push(trial(pool, &format!("checkpoint::{name}::ib_write_bw"), move |ground| {
            checkpoint::a_program_is_saved(ground, setting)
        }));
        trials.push(trial(pool, &format!("heap::{name}::ibv_rc_pingpong"), move |ground| {
            heap::bytes_are_right(ground, setting)
        }));
    }
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        trials.extend(deaths(pool, path, all));
    }
    // Refusals do not depend on the setting; they cost nothing, so that all are tried always.
    if !all {
        let refused = |c: &combinations::Combination| c.expected != combinations::Expected::Runs;
        for combination in combinations::table()?.into_iter().filter(refused) {
            let (program, transport) = (&combination.program, &combination.transport);
            let title =
                format!("perftest::refused::{program} -c {transport} {}", combination.options.join(" "));
            trials.push(trial(pool, title.trim_end(), move |ground| {
                perftest::check(ground, Setting::Udp, &combination)
            }));
        }
    }
    Ok(trials)
}

/// Calls, traps and channels of the connection manager. Its random choices are others each day.
fn connection_manager_trials(pool: &SharedPool) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    let seed = day();
    for setting in [Setting::Local, Setting::Udp] {
        let name = setting.name();
        let title = format!("connection_manager::{name}::answers_are_the_kernels");
        trials.push(trial(pool, &title, move |ground| {
            connection_manager_calls::answers_are_the_kernels(ground, setting)
        }));
        for number in connection_manager_calls::traps()? {
            trials.push(trial(
                pool,
                &format!("connection_manager::{name}::trap {number:02}"),
                move |ground| connection_manager_calls::trap_is_avoided(ground, setting, number, seed),
            ));
        }
        trials.push(trial(pool, &format!("connection_manager::{name}::hostile commands"), move |ground| {
            connection_manager_calls::hostile_commands_end(ground, setting, seed)
        }));
        for test in connection_manager_calls::CHANNELS {
            trials.push(trial(pool, &format!("connection_manager::{name}::channel {test}"), move |ground| {
                connection_manager_calls::channels_behave(ground, setting, test)
            }));
        }
    }
    Ok(trials)
}

/// Storms of connections, and strangers.
fn connection_storm_trials(pool: &SharedPool, all: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    let seed = day();
    for setting in [Setting::Local, Setting::Udp] {
        let name = setting.name();
        // Beside the crowds of queue pairs.
        trials.push(trial(pool, &format!("crowd::{name} connections"), move |ground| {
            connection_storm::crowds_connect(ground, setting, seed, all)
        }));
        trials.push(trial(pool, &format!("connection_storm::{name}::thousands_live"), move |ground| {
            connection_storm::thousands_live(ground, setting)
        }));
        trials.push(trial(pool, &format!("connection_storm::{name}::strangers"), move |ground| {
            connection_storm::strangers_do_no_harm(ground, setting, seed)
        }));
    }
    trials
}

/// The number of the day, for random choices that are others each day.
fn day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400)
}

/// Short runs of the death harness. The instants are others each day; the program prints which they were.
fn deaths(pool: &SharedPool, path: PathChoice, all: bool) -> Vec<Trial> {
    let name = path.name();
    let seed = day();
    let mut trials = vec![trial(pool, &format!("death::kill::{name}"), move |ground| {
        death::Program::compile(ground)?.kill(path, KILLS, seed, 0)?.finish(DEATH).map(drop)
    })];
    // Instruction by instruction the path is one of packets, as udp.
    let stepped = death::OPERATIONS.into_iter().filter(|_| all || path != PathChoice::Tcp);
    for operation in stepped {
        let mut step = |fate, stride| {
            trials.push(trial(pool, &format!("death::{fate:?}::{name}::{operation}"), move |ground| {
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

/// What a test does, by its name.
fn load(name: &str) -> Load {
    let polls = [
        "perftest::local",
        "perftest::udp",
        "perftest::hosts",
        "perftest::tcp",
        "pingpong::",
        "ucx::",
        "heap::local",
        "heap::udp",
        "heap::tcp",
        // Many processes that poll: beside others of the kind they time out for want of a processor.
        "crowd::",
        "resets::",
    ];
    if polls.iter().any(|family| name.starts_with(family)) { Load::Polls } else { Load::Waits }
}

fn trial(pool: &SharedPool, name: &str, test: impl Fn(&Ground) -> Result<()> + Send + 'static) -> Trial {
    let (pool, load, title) = (pool.clone(), load(name), name.to_owned());
    Trial::test(name, move || match &**pool {
        Ok(pool) => outcome(pool.borrow(load).and_then(|ground| {
            interrupt::check()?;
            let begun = Instant::now();
            let result = test(&ground);
            locked(&TIMES).push((begun.elapsed(), title.clone()));
            if let Err(error) = &result {
                locked(&FAILURES).push((title.clone(), format!("{error:#}")));
            }
            result
        })),
        Err(error) => Err(Failed::from(error.as_str())),
    })
}

/// Lists are pushed to whole: a thread that panicked meanwhile has left them right.
fn locked<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print_slowest() {
    let mut times = locked(&TIMES);
    times.sort_unstable();
    for (took, title) in times.iter().rev().take(SLOWEST) {
        println!("{:6.1} s {title}", took.as_secs_f64());
    }
}

fn print_failures() {
    for (title, reason) in locked(&FAILURES).iter() {
        println!("{title} failed:");
        let lines: Vec<&str> = reason.lines().filter(|line| !line.trim().is_empty()).collect();
        let left_out = lines.len().saturating_sub(FAILURE_LINES);
        // The first line says what failed, the last ones how.
        for line in lines.iter().take(1).chain(lines.iter().skip(left_out + 1)) {
            println!("  {line}");
        }
    }
}

fn outcome(result: Result<()>) -> Result<(), Failed> {
    result.map_err(|error| Failed::from(format!("{error:#}")))
}
