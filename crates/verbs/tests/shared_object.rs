//! The shared object as programs meet it: its exports and their versions, and C programs built against rdma-core's headers.
//!
//! Needs a C compiler, binutils and libibverbs-dev, as building the library itself does.

#[path = "../../../tests/src/compile/command.rs"]
mod compile;
#[path = "../../../tests/src/library.rs"]
mod library;
#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Links the library from the archive that cargo has just built beside this test; gives the folder that holds it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library::link("shared_object"))
}

/// `name@@VERSION` of every export in the list that the library is held to.
fn listed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(crate_folder().join("exports.txt")).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// `name@@VERSION` of every symbol that a version script names.
fn scripted(name: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(crate_folder().join(name)).unwrap();
    let (mut node, mut found) = (String::new(), BTreeSet::new());
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            node = name.to_owned();
        } else if let Some(symbol) = line.strip_suffix(';').filter(|symbol| !symbol.contains(['}', '*', ' ']))
        {
            assert!(found.insert(format!("{symbol}@@{node}")), "{symbol} stands twice");
        }
    }
    found
}

/// Of the nodes in which a symbol is found one is its default (`@@`), which a version script does not say.
#[test]
fn the_version_script_has_the_listed_symbols() {
    let without_default = |symbols: BTreeSet<String>| -> BTreeSet<String> {
        symbols.iter().map(|symbol| symbol.replace("@@", "@")).collect()
    };
    // Those of `c/first_version.c` say their node themselves.
    let listed =
        listed().into_iter().filter(|symbol| !symbol.ends_with("@IBVERBS_1.0") || symbol.contains("@@"));
    let (scripted, listed) =
        (without_default(scripted("libpagewire.map")), without_default(listed.collect()));
    let differ: Vec<_> = scripted.symmetric_difference(&listed).collect();
    assert!(differ.is_empty(), "in one of the two: {differ:?}");
}

#[test]
fn the_library_exports_the_listed_symbols_and_no_others() {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
        .arg(library().join("libpagewire.so.1"))
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let symbols = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // `A` entries are the version nodes themselves.
    let found: BTreeSet<_> =
        symbols.filter(|fields| fields[1] != "A").map(|fields| fields.last().unwrap().to_string()).collect();
    // Those that stand before the C library's have its versions, none of them a default. Other architectures are younger.
    let base = if cfg!(target_arch = "x86_64") { "GLIBC_2.2.5" } else { "GLIBC_2.17" };
    let is_older = |node: &str| {
        let minor = node.strip_prefix("GLIBC_2.").and_then(|version| version.parse().ok());
        node == "BASE" || cfg!(not(target_arch = "x86_64")) && minor.is_some_and(|minor: u32| minor < 17)
    };
    let before = scripted("c-library.map");
    let before = before.iter().map(|symbol| {
        let (name, node) = symbol.split_once("@@").unwrap();
        format!("{name}@{}", if is_older(node) { base } else { node })
    });
    let native = scripted("../capi/pagewire.map");
    let experimental = scripted("../capi/experimental.map");
    let expected = listed().into_iter().chain(before).chain(native).chain(experimental);
    assert_eq!(found, expected.collect());
}

#[test]
fn all_names_are_one_file() {
    let target = std::fs::canonicalize(library().join("libpagewire.so.1")).unwrap();
    for name in ["libibverbs.so.1", "libpagewire.so"] {
        assert_eq!(std::fs::canonicalize(library().join(name)).unwrap(), target);
    }
}

/// Compiles a program of `tests/c` against the installed headers; gives how to run it on the library.
fn program(name: &str, as_name: &str) -> Command {
    program_with(name, as_name, &[])
}

/// Compiles a program of `tests/c` with further libraries.
fn program_with(name: &str, as_name: &str, libraries: &[&str]) -> Command {
    let program = library().parent().unwrap().join(as_name);
    let source = crate_folder().join("tests/c").join(name).with_extension("c");
    let status = compile::command([source], &program)
        .arg("-O1")
        .args(libraries)
        .arg(library().join("libibverbs.so.1"))
        .status()
        .unwrap();
    assert!(status.success(), "{name}.c does not compile");
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", library());
    command
}

/// Runs a program of `tests/c`, which says itself what is wrong.
fn run(name: &str) {
    run_on("auto", name);
}

/// Runs a program of `tests/c` on a path.
fn run_on(path: &str, name: &str) {
    let as_name = if path == "auto" { name.into() } else { format!("{name}-{path}") };
    let output = program(name, &as_name).env("PAGEWIRE_PATH", path).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} on path {path}: {}\n{told}", output.status);
    told.lines().filter_map(|line| line.strip_prefix("not checked: ")).for_each(not_checked::tell);
}

#[test]
fn objects_keep_their_rules() {
    run("objects");
}

#[test]
fn events_come_go_and_are_acknowledged() {
    run("events");
}

#[test]
fn ports_tell_of_links_and_addresses() {
    let compiled = program("port_events", "port_events");
    for path in ["local", "udp"] {
        let mut command = Command::new(compiled.get_program());
        command.env("LD_LIBRARY_PATH", library()).env("PAGEWIRE_PATH", path);
        let Some(output) = in_network_namespace("true", &command) else { return };
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "on path {path}: {}\n{told}", output.status);
    }
}

/// A seccomp filter is named with the call that it refuses, and is not taken for a limit.
#[test]
fn seccomp_filter_is_reported() {
    let compiled = program("seccomp", "seccomp");
    let behind = |call: libc::c_long| {
        let mut command = Command::new(compiled.get_program());
        let output = command.env("LD_LIBRARY_PATH", library()).arg(call.to_string()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = behind(libc::SYS_memfd_create);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("a seccomp filter of this process refuses memfd_create(2)"), "{said}");
    assert!(!said.contains("RLIMIT_FSIZE"), "{said}");
    let (code, said) = behind(libc::SYS_prlimit64);
    assert_eq!(code, Some(0), "{said}");
}

/// The limit of a file's size holds for memory files, too: what is said of it has the remedy.
#[test]
fn limit_of_file_size_is_reported() {
    let compiled = program("seccomp", "file_size");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$0\""]).arg(compiled.get_program());
    let output = command.env("LD_LIBRARY_PATH", library()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("RLIMIT_FSIZE") && said.contains("raise that (ulimit -f unlimited)"), "{said}");
}

/// With two addresses, of which the first is taken away when both ends have moved to the second.
#[test]
fn connections_move_to_other_addresses() {
    let prepare = "ip link set lo up && ip link add pw0 type veth peer name pw1 && ip link set pw0 up && ip link set pw1 up \
                   && ip address add 10.80.0.1/32 dev pw0 && ip address add 10.80.0.2/32 dev pw0";
    let compiled = program("move", "move");
    for path in ["local", "udp", "tcp"] {
        let mut command = Command::new(compiled.get_program());
        command.env("LD_LIBRARY_PATH", library()).env("PAGEWIRE_PATH", path);
        let Some(output) = in_network_namespace(prepare, &command) else { return };
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "on path {path}: {}\n{told}", output.status);
    }
}

#[test]
fn states_change_as_the_table_says() {
    for path in ["local", "udp"] {
        run_on(path, "states");
    }
}

#[test]
fn completions_say_what_happened() {
    for path in ["local", "udp"] {
        run_on(path, "completions");
    }
}

#[test]
fn a_send_queue_has_a_slot_again_when_a_completion_is_polled() {
    for path in ["local", "udp"] {
        run_on(path, "slots");
    }
}

#[test]
fn datagrams_say_of_which_ip_version_they_are() {
    for path in ["local", "udp"] {
        run_on(path, "packet_types");
    }
}

#[test]
fn unreadable_source_fails_send() {
    for path in ["local", "udp"] {
        run_on(path, "unreadable");
    }
}

#[test]
fn regions_are_paged_on_demand_and_prefetched() {
    for path in ["local", "udp"] {
        run_on(path, "on_demand");
    }
}

#[test]
fn scatter_gather_lists_at_odd_addresses_are_read() {
    for path in ["local", "udp"] {
        run_on(path, "misaligned");
    }
}

#[test]
fn small_verbs_do_what_their_manual_pages_say() {
    for path in ["local", "udp"] {
        run_on(path, "small_verbs");
    }
}

/// From a room in which no engine starts to one in which it works.
#[test]
fn with_little_address_space_requests_have_an_end() {
    let compiled = program("little_room", "little_room");
    for path in ["local", "udp"] {
        for megabytes in (16..512).step_by(32) {
            let mut command = Command::new(compiled.get_program());
            command.env("LD_LIBRARY_PATH", library()).env("PAGEWIRE_PATH", path).arg(megabytes.to_string());
            let output = command.output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{megabytes} MiB of room on path {path}: {}\n{told}",
                output.status
            );
        }
    }
}

#[test]
fn wrong_arguments_are_refused() {
    for path in ["local", "udp"] {
        run_on(path, "hostile");
    }
}

/// Longer with `PAGEWIRE_FUZZ_SECONDS`, others with `PAGEWIRE_FUZZ_SEED`.
#[test]
fn random_calls_are_answered_or_refused() {
    let seed = match std::env::var("PAGEWIRE_FUZZ_SEED") {
        Ok(seed) => seed.parse::<u64>().expect("PAGEWIRE_FUZZ_SEED is a number"),
        Err(_) => 1,
    };
    let seconds: Option<u64> = std::env::var("PAGEWIRE_FUZZ_SECONDS")
        .ok()
        .map(|seconds| seconds.parse().expect("PAGEWIRE_FUZZ_SECONDS is a number"));
    let compiled = program("calls", "calls");
    for (path, seed) in [("local", seed), ("udp", seed), ("local", seed + 1), ("udp", seed + 1)] {
        let mut command = Command::new(compiled.get_program());
        command.env("LD_LIBRARY_PATH", library()).env("PAGEWIRE_PATH", path);
        command.arg(seed.to_string()).arg("50000");
        if let Some(seconds) = seconds {
            command.arg((seconds / 4).to_string());
        }
        let output = command.output().unwrap();
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "seed {seed} on path {path}: {}\n{told}", output.status);
        assert!(!told.contains("panicked"), "seed {seed} on path {path}: {told}");
        print!("path {path}, {said}");
    }
}

#[test]
fn limits_are_what_the_device_says() {
    run("limits");
}

#[test]
fn a_closed_device_holds_nothing_of_the_limits() {
    run("forgotten");
}

#[test]
fn threads_do_not_disturb_each_other() {
    for path in ["local", "udp"] {
        run_on(path, "threads");
    }
}

#[test]
fn what_is_not_supported_is_refused() {
    run("refused");
}

#[test]
fn datagrams_of_a_group_reach_its_queue_pairs() {
    for path in ["local", "udp"] {
        run_on(path, "groups");
    }
}

#[test]
fn functions_of_newer_releases_are_there_in_every_version_node() {
    for path in ["local", "udp"] {
        run_on(path, "newer");
    }
}

#[test]
fn whatever_a_program_does_to_its_handlers_it_sees_no_fault_of_the_engine() {
    let compiled = program("signals", "signals");
    let ways =
        ["nothing", "sigaction", "signal", "sigset", "default", "pthread_sigmask", "sigprocmask", "sighold"];
    for (path, way) in ["local", "udp"].into_iter().flat_map(|path| ways.map(|way| (path, way))) {
        let mut command = Command::new(compiled.get_program());
        command.env("LD_LIBRARY_PATH", library()).env("PAGEWIRE_PATH", path).arg(way);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{way} on path {path}: {}\n{told}", output.status);
    }
}

#[test]
fn functions_for_signal_handlers_do_not_wait_for_the_loader() {
    run("loader");
}

/// pthreads(7) lists the cancellation points; of the verbs only those that sleep in read(2) come by one.
#[test]
fn threads_may_be_cancelled() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "cancel");
    }
}

#[test]
fn requests_are_built_and_posted_together() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "extended_post");
    }
}

#[test]
fn windows_give_parts_of_regions_to_peers() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "memory_windows");
    }
}

#[test]
fn device_memory_is_read_and_written_by_peers() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "device_memory");
    }
}

#[test]
fn completions_have_time_stamps() {
    for (path, way) in [("local", "at-once"), ("tcp", "later"), ("udp", "later")] {
        let mut command = program("stamps", &format!("stamps-{path}"));
        let output = command.env("PAGEWIRE_PATH", path).arg(way).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "on path {path}: {}\n{told}", output.status);
    }
}

#[test]
fn functions_for_other_libraries_work() {
    run("conversions");
}

#[test]
fn objects_are_imported_within_a_process() {
    run("imports");
}

#[test]
fn completion_counters_count_at_both_ends() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "completion_counters");
    }
}

#[test]
fn programs_write_events_to_their_channels() {
    run("user_events");
}

#[test]
fn atomic_writes_appear_at_once() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "atomic_write");
    }
}

#[test]
fn flushes_make_placements_visible_and_persistent() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "flush");
    }
}

#[test]
fn one_queue_pair_reaches_many_shared_receive_queues() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "xrc");
    }
}

#[test]
fn processes_share_an_xrc_domain() {
    for path in ["local", "tcp", "udp"] {
        run_on(path, "xrc_shared");
    }
}

#[test]
fn the_standard_descriptors_are_left_to_the_program() {
    for path in ["local", "udp"] {
        run_on(path, "standard");
    }
}

#[test]
fn a_forked_child_has_no_engine() {
    run("fork");
}

/// Compared with a copy of them in the kernel's file system, by all functions that take paths.
#[test]
fn the_files_of_devices_are_like_the_kernels() {
    run("device_files");
}

#[test]
fn files_of_devices_are_there_for_constructors_threads_and_children() {
    run("device_files_early");
}

#[test]
fn ports_count_in_their_files() {
    for path in ["local", "udp"] {
        run_on(path, "port_counters");
    }
}

#[test]
fn a_process_explains_its_connections() {
    run("explain");
}

/// Runs a command in a network namespace of its own that shell commands have prepared; `None`, and a line that it was not checked,
/// where none can be made.
fn in_network_namespace(prepare: &str, command: &Command) -> Option<std::process::Output> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let user: &[&str] = if root { &[] } else { &["--user", "--map-root-user"] };
    let run = |program: &std::ffi::OsStr| {
        let mut within = Command::new("unshare");
        let script = format!("{prepare} && exec \"$0\" \"$@\"");
        within.args(user).args(["--net", "sh", "-c", &script]).arg(program).args(command.get_args());
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        within.envs(variables).output()
    };
    match run("true".as_ref()) {
        Ok(tried) if tried.status.success() => {}
        refused => {
            not_checked::tell(format_args!("no network namespace can be made: {refused:?}"));
            return None;
        }
    }
    Some(run(command.get_program()).unwrap())
}

/// In a network namespace of its own, which sysfs does not show.
#[test]
fn a_device_knows_its_ethernet_address_in_any_network_namespace() {
    const ADDRESS: &str = "02:50:57:00:00:01";
    let prepare = format!(
        "ip link set lo up && ip link add pw0 address {ADDRESS} type veth peer name pw1 \
         && ip address add 10.80.0.1/24 dev pw0 && ip link set pw0 up"
    );
    let mut command = program("neighbour", "neighbour");
    let Some(output) = in_network_namespace(&prepare, command.arg(ADDRESS)) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_id_hears_that_its_device_is_removed() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return not_checked::tell("device_removal: rdma/rdma_cma.h is missing (librdmacm-dev)");
    }
    let prepare = "ip link set lo up && ip link add pw0 type veth peer name pw1 && ip link add pw2 type veth peer name pw3 \
                   && ip address add 10.80.0.1/24 dev pw0 && ip address add 10.81.0.1/24 dev pw2 \
                   && ip link set pw0 up && ip link set pw1 up && ip link set pw2 up && ip link set pw3 up";
    let command = program_with("device_removal", "device_removal", &["-lrdmacm"]);
    let Some(output) = in_network_namespace(prepare, &command) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// With 1500 bytes a packet, as Ethernet has.
#[test]
fn a_path_mtu_above_what_the_link_carries_is_taken() {
    for path in ["local", "udp"] {
        let mut command = program("path_mtu", &format!("path_mtu-{path}"));
        command.env("PAGEWIRE_PATH", path);
        let Some(output) = in_network_namespace("ip link set lo mtu 1500 up", &command) else { return };
        assert!(output.status.success(), "path {path}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_refused_rtr_is_explained_to_a_terminal_and_to_whoever_asks_for_a_log() {
    let compiled = program("rtr", "rtr");
    let reasons = [("grh", "-g 0"), ("family", "another IP version"), ("mtu", "path_mtu")];
    for (wrong, reason) in reasons {
        let is_told = |mut command: Command| {
            let output = command.env("LD_LIBRARY_PATH", library()).output().unwrap();
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(output.status.success(), "{wrong}: {text}");
            let lines: Vec<&str> = text.lines().filter(|line| line.contains("refused RTR")).collect();
            assert!(lines.len() <= 1 && lines.iter().all(|line| line.contains(reason)), "{wrong}: {text}");
            lines.len() == 1
        };
        let plain = || {
            let mut command = Command::new(compiled.get_program());
            command.arg(wrong);
            command
        };
        assert!(!is_told(plain()), "{wrong}: told where nobody asked");
        for level in ["error", "debug"] {
            let mut command = plain();
            command.env("PAGEWIRE_LOG", level);
            assert!(is_told(command), "{wrong}: not told at {level}");
        }
        let mut terminal = Command::new("script");
        let line = format!("'{}' {wrong}", compiled.get_program().to_str().unwrap());
        terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        assert!(is_told(terminal), "{wrong}: not told to a terminal");
    }
}

#[test]
fn statistics_are_written_at_exit() {
    let file = library().parent().unwrap().join(format!("statistics-{}", std::process::id()));
    let mut program = program("objects", "objects-statistics");
    let output = program.env("PAGEWIRE_STATS", &file).env("PAGEWIRE_PATH", "udp").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(line["path_choice"], "udp");
    assert_eq!(line["connections"][0]["type"], "RC");
    assert!(line["counters"]["datagrams_sent"].is_u64());
}

#[test]
fn statistics_say_how_many_queue_pairs_they_leave_out() {
    let file = library().parent().unwrap().join(format!("statistics-many-{}", std::process::id()));
    let output = program("many_gone", "many_gone").env("PAGEWIRE_STATS", &file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(line["connections"].as_array().unwrap().len(), 1024);
    assert_eq!(line["connections_left_out"], 6);
}

#[test]
fn parent_and_child_write_a_line_of_statistics_each() {
    let file = library().parent().unwrap().join(format!("statistics-fork-{}", std::process::id()));
    let output = program("fork_exit", "fork_exit").env("PAGEWIRE_STATS", &file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let queue_pairs: Vec<_> = lines
        .map(|line| {
            let connections = line["connections"].as_array().unwrap();
            connections.iter().map(|one| one["qpn"].as_u64().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    // The child ends first.
    assert_eq!(queue_pairs.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2], "{text}");
    assert!(!queue_pairs[1].contains(&queue_pairs[0][0]), "{text}");
}

#[test]
fn wrong_setting_is_reported() {
    for (variable, value, mend) in [
        ("PAGEWIRE_PATH", "rdma", "it must be auto, local, tcp or udp"),
        ("PAGEWIRE_RATE", "30", "it must be one of 10, 20, 25, 40, 50, 100, 200, 400 (Gb/s)"),
        ("PAGEWIRE_DEVICE_NAME", "a/b", "it must be letters, digits"),
        ("PAGEWIRE_DEVICE_FILES", "maybe", "it must be yes or no"),
        ("PAGEWIRE_LOG", "verbose", "it must be off, error, warn, info, debug or trace"),
    ] {
        let output = program("explain", "explain-wrong").env(variable, value).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert_eq!(told.matches(mend).count(), 1, "{told}");
    }
}

#[test]
fn each_of_a_thousand_threads_gets_queue_pairs() {
    for path in ["local", "udp"] {
        run_on(path, "crowd");
    }
}

#[test]
fn forbidden_socket_family_is_reported() {
    let compiled = program("families", "families");
    let run = |path: &str, family: &str| {
        let mut command = Command::new(compiled.get_program());
        let output =
            command.env("LD_LIBRARY_PATH", library()).env("PAGEWIRE_PATH", path).arg(family).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{family} on path {path}: {}\n{said}", output.status);
        said
    };
    for path in ["local", "udp"] {
        assert_eq!(run(path, "netlink"), "");
        let said = run(path, "unix");
        assert!(said.contains("may have no sockets of AF_UNIX") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_device_has_the_name_that_the_environment_gives() {
    let compiled = program("device_name", "device_name");
    for (name, first) in [("mlx5_0", "mlx5_0"), ("rocep1s0f3", "rocep1s0f3"), ("", "pagewire0")] {
        let mut command = Command::new(compiled.get_program());
        command.env("LD_LIBRARY_PATH", library()).env("PAGEWIRE_DEVICE_NAME", name).arg(first);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    }
}
