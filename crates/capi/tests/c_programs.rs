//! The examples, and what callers may do wrong, as C and C++ programs on the shared object.
//!
//! Needs a C compiler and binutils; C++ programs need a C++ compiler.

#[path = "../../../tests/src/compile/command.rs"]
mod compile;
#[path = "../../../tests/src/library.rs"]
mod library;
#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;

#[path = "c_programs/buffers.rs"]
mod buffers;
#[path = "c_programs/checkpoints.rs"]
mod checkpoints;
#[path = "c_programs/experimental.rs"]
mod experimental;
#[path = "c_programs/forks.rs"]
mod forks;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library::link("native"))
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a program against the header and the library.
fn compiled(source: &str) -> PathBuf {
    let source = crate_folder().join(source);
    let program = library().parent().unwrap().join(source.file_stem().unwrap());
    finish(compile::command([&source], &program), &source);
    program
}

fn finish(mut compiler: Command, source: &Path) {
    let status = compiler
        .arg(format!("-I{}", crate_folder().join("include").display()))
        .arg(library().join("libpagewire.so.1"))
        .arg(format!("-Wl,-rpath,{}", library().display()))
        .status()
        .unwrap();
    assert!(status.success(), "{} does not compile", source.display());
}

/// Compiles a C++ program. `None`: there is no compiler, and the test says so.
fn compiled_plus_plus(source: &str) -> Option<PathBuf> {
    compiled_plus_plus_with(source, &[])
}

/// Compiles a C++ program on Debian's Kokkos. `None`: there is none, and the test says so.
fn compiled_on_kokkos(source: &str) -> Option<PathBuf> {
    const HEADERS: &str = "/usr/include/trilinos";
    if !Path::new(HEADERS).join("Kokkos_Core.hpp").exists() {
        not_checked::tell(format!("{source}, for want of Kokkos (Debian package libtrilinos-kokkos-dev)"));
        return None;
    }
    compiled_plus_plus_with(source, &["-isystem", HEADERS, "-ltrilinos_kokkoscore"])
}

fn compiled_plus_plus_with(source: &str, options: &[&str]) -> Option<PathBuf> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        not_checked::tell(format!("{source}, for want of a C++ compiler (Debian package g++)"));
        return None;
    }
    let source = crate_folder().join(source);
    let program = library().parent().unwrap().join(source.file_name().unwrap()).with_extension("cpp.out");
    let mut command = Command::new(compiler);
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-o"]).arg(&program).arg(&source);
    command.arg("-lpthread").args(options);
    finish(command, &source);
    Some(program)
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// Runs a program alone on both paths.
fn run(program: &Path, expected: &str) {
    run_on(&["local", "udp"], program, expected);
}

fn run_on(paths: &[&str], program: &Path, expected: &str) {
    for path in paths {
        assert_eq!(said(&output(Command::new(program).env("PAGEWIRE_PATH", path))), expected, "{path}");
    }
}

/// A page of the guide, after it has been seen to have the example.
fn guide_has(page: &str, name: &str) -> String {
    let file = |name: &str| std::fs::read_to_string(crate_folder().join(name)).unwrap();
    let (page, example) = (file(&format!("../../docs/guide/{page}.md")), file(&format!("examples/{name}.c")));
    let (_, program) = example.split_once("*/\n").unwrap();
    assert!(page.contains(&format!("```c\n/* {name}.c */\n{program}```")), "the guide has another {name}.c");
    page
}

/// Runs a program alone on both paths, each time with a name in an empty folder, or with the folder. It prints nothing.
fn run_in_folder(program: &Path, name: &str) {
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.arg(folder.path().join(name)).env("PAGEWIRE_PATH", path);
        assert_eq!(said(&output(&mut command)), "", "{path}");
    }
}

/// Runs a program as a job of three processes on both paths; gives what they said, sorted.
fn run_job(program: &Path) -> Vec<String> {
    run_job_of(3, program)
}

fn run_job_of(size: usize, program: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        let children: Vec<_> = (0..size)
            .map(|_| {
                Command::new(program)
                    .env("PAGEWIRE_PATH", path)
                    .env("PAGEWIRE_JOB_FILE", folder.path())
                    .env("PAGEWIRE_SIZE", size.to_string())
                    .stdout(std::process::Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut lines: Vec<_> =
            children.into_iter().map(|child| said(&child.wait_with_output().unwrap())).collect();
        lines.sort();
        all.push(lines.concat());
    }
    all
}

#[test]
fn the_first_put_goes_round() {
    let program = compiled("examples/first_put.c");
    run(&program, "0 got 100\n");
    for said in run_job(&program) {
        assert_eq!(said, "0 got 102\n1 got 100\n2 got 101\n");
    }
}

/// What the guide "Memory that reacts" shows, too.
const REACTS: &str =
    "a letter: 7\n24 bytes were put\nin memory: 0 and 1, letters: 1\nhandled: 2, failed: 0\n";

/// The page of the guide has the example, and what it prints.
#[test]
fn memory_reacts() {
    run(&compiled("examples/reacts.c"), REACTS);
    let file = |name: &str| std::fs::read_to_string(crate_folder().join(name)).unwrap();
    let (page, example) = (file("../../docs/guide/active.md"), file("examples/reacts.c"));
    let (_, program) = example.split_once("*/\n").unwrap();
    assert!(page.contains(&format!("```c\n/* reacts.c */\n{program}```")), "the guide has another program");
    assert!(page.contains(&format!("$ ./reacts\n{REACTS}```")), "the guide shows something else");
}

/// What a page of the guide says that a program prints, after it has been seen to have the example.
fn shown(page: &str, name: &str) -> String {
    let page = guide_has(page, name);
    let (_, rest) = page.split_once(&format!("$ ./{name}\n")).expect("the guide runs it");
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn elements_are_looped_over_cleared_and_compared() {
    let program = compiled("tests/c/table_elements.c");
    for said in run_job(&program) {
        assert_eq!(said, "done\n".repeat(3));
    }
}

#[test]
fn space_is_used_again_while_others_read() {
    let program = compiled("tests/c/table_churn.c");
    for said in run_job(&program) {
        assert_eq!(said, "done\n".repeat(3));
    }
}

#[test]
fn accesses_to_lost_memory_say_so() {
    let program = compiled("tests/c/lost_memory.c");
    for said in run_job(&program) {
        assert_eq!(said, "done\n".repeat(3));
    }
}

#[test]
fn applications_do_what_the_guide_says() {
    let table = compiled("examples/hash_table.c");
    run(&table, &shown("hash-table", "hash_table"));
    for said in run_job(&table) {
        assert_eq!(said.matches("7: seven\n7 is gone, ").count(), 3, "{said}");
    }
    run(&compiled("examples/access_statistics.c"), &shown("access-statistics", "access_statistics"));
    run(&compiled("examples/built_in.c"), &shown("built-in", "built_in"));
    run(&compiled("examples/batch.c"), &shown("batches", "batch"));
    let shown = shown("checkpoint", "checkpoint");
    let (first, second) = shown.split_once("$ ./checkpoint\n").unwrap();
    let program = compiled("examples/checkpoint.c");
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        for expected in [first, second] {
            let mut command = Command::new(&program);
            command.arg(folder.path().join("counter.checkpoint")).env("PAGEWIRE_PATH", path);
            assert_eq!(said(&output(&mut command)), expected, "{path}");
        }
    }
}

#[test]
fn a_process_repeats_its_work_as_the_guide_says() {
    let (program, expected) =
        (compiled("examples/logged_process.c"), shown("logged-process", "logged_process"));
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(&program);
        assert_eq!(said(&output(command.arg(folder.path()).env("PAGEWIRE_PATH", path))), expected, "{path}");
    }
}

#[test]
fn parity_rebuilds_a_member() {
    run(&compiled("examples/parity.c"), &shown("parity", "parity"));
    run(&compiled("tests/c/parity.c"), "");
}

#[test]
fn built_in_handlers_and_batches_keep_their_promises() {
    let program = compiled("tests/c/batch.c");
    run(&program, "");
    let told = output(&mut Command::new(program)).stderr;
    let told = String::from_utf8_lossy(&told);
    // Of each kind of memory one put. The others tell it themselves, or are in the log.
    assert_eq!(told.matches(": one byte is too little\n").count(), 2, "{told}");
}

/// Members are killed, and others take their place.
#[test]
fn durable_tables_outlive_their_processes() {
    run(&compiled("tests/c/durable_table.c"), "");
    let shown = shown("durable-tables", "durable_table");
    let (first, second) = shown.split_once("$ ./durable_table\n").unwrap();
    let program = compiled("examples/durable_table.c");
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        for expected in [first, second] {
            let mut command = Command::new(&program);
            command.arg(folder.path().join("table")).env("PAGEWIRE_PATH", path);
            assert_eq!(said(&output(&mut command)), expected, "{path}");
        }
    }
}

#[test]
fn applications_go_from_c_plus_plus() {
    if let Some(program) = compiled_plus_plus("tests/cpp/applications.cpp") {
        run(&program, "");
    }
}

#[test]
fn access_logs_keep_their_promises() {
    let program = compiled("tests/c/access_log.c");
    run(&program, "");
    let told = output(&mut Command::new(program)).stderr;
    let told = String::from_utf8_lossy(&told);
    // A handler of three fails so at one access in each of its rounds. The others tell it themselves.
    assert!(told.lines().count() == 3 && told.lines().all(|line| line.ends_with(": it is seven")), "{told}");
}

#[test]
fn memory_reacts_from_c_plus_plus() {
    if let Some(program) = compiled_plus_plus("examples/reacts.cpp") {
        run(&program, REACTS);
    }
    if let Some(program) = compiled_plus_plus("tests/cpp/access_log.cpp") {
        run(&program, "");
    }
}

#[test]
fn the_heap_is_registered() {
    let expected = "registered: heap 1, stack 0\n\
        64 MiB more are live, and not resident before they are touched: 1\n\
        got: of the heap\n\
        after the free: PW_KEY\n\
        purged: 1\n";
    run(&compiled("examples/heap.c"), expected);
}

#[test]
fn the_heap_keeps_its_promises() {
    run(&compiled("tests/c/heap.c"), "");
}

#[test]
fn the_first_put_in_c_plus_plus_goes_round() {
    let Some(program) = compiled_plus_plus("examples/first_put.cpp") else { return };
    run(&program, "0 got 0.5, the next had 0 and 0.5\nrefused: bounds\n");
    for said in run_job(&program) {
        let lines: Vec<_> = said.lines().filter(|line| *line != "refused: bounds").collect();
        let expected = [
            "0 got 2.5, the next had 0 and 0.5",
            "1 got 0.5, the next had 0 and 1.5",
            "2 got 1.5, the next had 0 and 2.5",
        ];
        assert_eq!(lines, expected);
    }
}

#[test]
fn kokkos_views_lie_in_the_heap() {
    let Some(program) = compiled_on_kokkos("tests/cpp/kokkos_space.cpp") else { return };
    run(&program, "");
}

#[test]
fn kokkos_views_go_round() {
    let Some(program) = compiled_on_kokkos("examples/kokkos_views.cpp") else { return };
    run(&program, "0 got 0\n");
    for said in run_job_of(2, &program) {
        assert_eq!(said, "0 got 1\n1 got 0\n");
    }
}

/// Figures, for `cargo test -p pagewire-capi --test c_programs -- --ignored --nocapture views`. It judges nothing.
#[test]
#[ignore = "measures for some seconds"]
fn kokkos_views_are_measured_beside_copies() {
    let Some(program) = compiled_on_kokkos("benches/kokkos_views.cpp") else { return };
    for (path, said) in ["local", "udp"].iter().zip(run_job_of(2, &program)) {
        println!("{path}: bytes, and us of a View: registered, copied in, copied in and out\n{said}");
    }
}

#[test]
fn waits_for_several_have_codes() {
    run(&compiled("tests/c/waits.c"), "waits: all is so\n");
    if let Some(program) = compiled_plus_plus("tests/cpp/waits.cpp") {
        run(&program, "waits.cpp: all is so\n");
    }
}

#[test]
fn parts_of_a_job_exchange() {
    let expected: String = (0..4).map(|rank| format!("process {rank}: all is so\n")).collect();
    for said in run_job_of(4, &compiled("tests/c/parts.c")) {
        assert_eq!(said, expected);
    }
}

#[test]
fn misuse_has_codes_and_sentences() {
    run(&compiled("tests/c/misuse.c"), "");
}

#[test]
fn names_from_before_the_first_release_compile() {
    run(&compiled("tests/c/renamed.c"), "");
}

#[test]
fn conditional_writes_end_once() {
    run(&compiled("tests/c/conditional.c"), "");
}

/// Of a verbs program, on its own queue pairs, whose peer is another process.
#[test]
fn conditional_writes_of_verbs_end_once() {
    run(&compiled("tests/c/verbs_held.c"), "");
}

/// Whether the program asks for it, or whoever started it (`pagewire run --watch`).
#[test]
fn accesses_to_regions_are_counted_by_page() {
    let program = compiled("tests/c/watch.c");
    run(&program, "");
    for path in ["local", "udp"] {
        let mut command = Command::new(&program);
        command.env("PAGEWIRE_PATH", path).env("PAGEWIRE_WATCH", "writes=count,reads=count");
        assert_eq!(said(&output(&mut command)), "", "{path}");
    }
}

/// What `pagewire run --heap` does: malloc(3) of a program that knows nothing of it comes from the heap.
fn with_heap(command: &mut Command) {
    let preloaded = ["libpagewire.so.1", "libpagewire-malloc.so.1"].map(|name| library().join(name));
    command.env("LD_PRELOAD", format!("{}:{}", preloaded[0].display(), preloaded[1].display()));
}

/// PAGEWIRE_HEAP_FORKS sets how many forks there are.
#[test]
fn children_find_their_copy_of_the_heap() {
    let mut program = Command::new(compiled("tests/c/heap_fork.c"));
    with_heap(&mut program);
    assert_eq!(said(&output(&mut program)), "");
    if Command::new("python3").arg("--version").output().is_err() {
        not_checked::tell("forks of Python with malloc from the heap, for want of python3".to_owned());
        return;
    }
    let mut python = Command::new("python3");
    python.arg(crate_folder().join("tests/heap_fork.py"));
    with_heap(&mut python);
    let text = said(&output(&mut python));
    assert!(text.starts_with("0 of"), "{text}");
}

/// mpirun forks its helpers with threads of its own about.
#[test]
fn mpirun_may_take_its_memory_from_the_heap() {
    let mpirun = || {
        let mut command = Command::new("mpirun");
        command.envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")));
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command
    };
    if mpirun().arg("--version").output().is_err() {
        not_checked::tell("mpirun with malloc from the heap, for want of Open MPI (openmpi-bin)".to_owned());
        return;
    }
    let mut command = mpirun();
    command.args(["-n", "2", "echo", "runs"]);
    with_heap(&mut command);
    assert_eq!(said(&output(&mut command)), "runs\nruns\n");
}

/// By plain stores and loads, which no kernel refuses.
#[test]
fn operations_on_the_heap_of_a_dead_peer_are_lost() {
    let program = compiled("tests/c/dead_heap.c");
    for operation in ["put", "get", "atomic", "signal"] {
        let folder = tempfile::tempdir().unwrap();
        let member = |rank: &str| {
            let mut command = Command::new(&program);
            command.arg(operation).env("PAGEWIRE_PATH", "local").env("PAGEWIRE_JOB_FILE", folder.path());
            command.env("PAGEWIRE_SIZE", "2").env("PAGEWIRE_RANK", rank);
            command.stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let [first, mut second] = ["0", "1"].map(member);
        let said = said(&first.wait_with_output().unwrap());
        second.wait().unwrap();
        assert_eq!(said, "", "{operation}");
    }
}

/// A hash table takes messages of up to 128 MiB: the least range holds a small one.
#[test]
fn the_least_range_holds_a_small_table() {
    let program = compiled("tests/c/small_table.c");
    let folder = tempfile::tempdir().unwrap();
    let member = |rank: &str| {
        let mut command = Command::new(&program);
        command.env("PAGEWIRE_HEAP_RANGE", "268435456").env("PAGEWIRE_JOB_FILE", folder.path());
        command.env("PAGEWIRE_SIZE", "2").env("PAGEWIRE_RANK", rank);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    for child in ["0", "1"].map(member) {
        assert_eq!(said(&child.wait_with_output().unwrap()), "");
    }
}

/// The guide's first program in a process that may have little memory, or whose heap is to be too small.
#[test]
fn memory_limit_is_reported() {
    let program = compiled("examples/first_put.c");
    let run = |limit: &str, range: Option<&str>| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v {limit}; exec {}", program.display())]);
        range.inspect(|range| _ = shell.env("PAGEWIRE_HEAP_RANGE", range));
        output(&mut shell)
    };
    let errors = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    // KB: no heap of 1 TiB, and hardly the engine.
    for limit in ["8000000", "200000"] {
        let refused = run(limit, None);
        let text = errors(&refused);
        assert!(!refused.status.success() && text.contains("ulimit -v"), "{limit}: {text}");
    }
    let refused = run("8000000", None);
    assert!(errors(&refused).contains("PAGEWIRE_HEAP_RANGE to fewer bytes"), "{}", errors(&refused));
    said(&run("8000000", Some("268435456")));
    // An empty variable is none.
    said(&run("unlimited", Some("")));
    for range in ["67108864", "268435457"] {
        let text = errors(&run("unlimited", Some(range)));
        let named = ["PAGEWIRE_HEAP_RANGE", range, "268435456 at least"];
        assert!(named.iter().all(|name| text.contains(name)), "{range}: {text}");
    }
}

/// Before a node, with one, and once the program calls the heap itself.
#[test]
fn malloc_from_the_heap_is_registered() {
    let mut program = Command::new(compiled("tests/c/malloc_is_registered.c"));
    assert_eq!(said(&output(&mut program)), "0 0, 0 0, 0 0 1\n");
    with_heap(&mut program);
    assert_eq!(said(&output(&mut program)), "1 1, 1 1, 1 1 1\n");
}

#[test]
fn malloc_of_any_program_may_come_from_the_heap() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ls / | wc -l && sort -r </etc/passwd | tail -1 >/dev/null"]);
    with_heap(&mut shell);
    said(&output(&mut shell));
    let Some(program) = compiled_plus_plus("tests/cpp/stl_heap.cpp") else { return };
    let mut plain = Command::new(&program);
    assert_eq!(said(&output(&mut plain)), "0 0\n");
    with_heap(&mut plain);
    assert_eq!(said(&output(&mut plain)), "1 1\n");
    // There is no room for its addresses: the error says which variable makes the range smaller.
    let preload = format!(
        "ulimit -v 8000000 && LD_PRELOAD={0}/libpagewire.so.1:{0}/libpagewire-malloc.so.1 /bin/true",
        library().display()
    );
    let refused = output(Command::new("sh").args(["-c", &preload]));
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && errors.contains("PAGEWIRE_HEAP_RANGE"), "{errors}");
    let smaller = format!("export PAGEWIRE_HEAP_RANGE=1073741824; {preload}");
    said(&output(Command::new("sh").args(["-c", &smaller])));
}

#[test]
fn verbs_and_puts_share_an_engine() {
    run(&compiled("tests/c/one_engine.c"), "");
}

/// The install tree as far as compilers need it.
fn tree() -> &'static Path {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    TREE.get_or_init(|| {
        let tree = library().parent().unwrap();
        let script = crate_folder().join("../../scripts/install-headers");
        assert!(Command::new(script).arg(tree).status().unwrap().success(), "install-headers failed");
        tree.to_owned()
    })
}

#[test]
fn pkg_config_finds_the_library() {
    let pkg_config = || {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", tree().join("lib/pkgconfig"));
        command
    };
    if pkg_config().arg("--version").output().is_err() {
        not_checked::tell("pagewire.pc, for want of pkg-config (Debian package pkg-config)");
        return;
    }
    let version = said(&output(pkg_config().args(["--modversion", "pagewire"])));
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    let flags = said(&output(pkg_config().args(["--cflags", "--libs", "pagewire"])));
    // One of pagewire.h, and one of pagewire_experimental.h.
    for name in ["heap", "stream"] {
        let program = tree().join(format!("{name}-by-pkg-config"));
        let source = crate_folder().join("examples").join(name).with_extension("c");
        let status = compile::command([source], &program)
            .args(flags.split_whitespace())
            .arg("-lpthread")
            .status()
            .unwrap();
        assert!(status.success(), "{flags}");
        said(&output(Command::new(&program).env("LD_LIBRARY_PATH", library())));
    }
}

#[test]
fn cmake_finds_the_library() {
    if Command::new("cmake").arg("--version").output().is_err() {
        not_checked::tell("pagewire-config.cmake, for want of cmake (Debian package cmake)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = crate_folder().join("examples/heap.c");
    let lists = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(heap C)\nfind_package(pagewire 0.1 REQUIRED)\n\
         add_executable(heap {})\ntarget_link_libraries(heap pagewire::pagewire)\n",
        source.display()
    );
    std::fs::write(folder.path().join("CMakeLists.txt"), lists).unwrap();
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", tree().display());
    said(&output(Command::new("cmake").args([".", &prefix]).current_dir(folder.path())));
    said(&output(Command::new("cmake").args(["--build", "."]).current_dir(folder.path())));
    said(&output(&mut Command::new(folder.path().join("heap"))));
}

/// Else dlopen(3) would refuse the library in processes that have opened many others, as those do that open libibverbs late.
#[test]
fn the_library_has_no_static_part_of_threads() {
    let flags = said(&output(Command::new("readelf").arg("-d").arg(library().join("libpagewire.so.1"))));
    assert!(flags.contains("BIND_NOW") && !flags.contains("STATIC_TLS"), "{flags}");
}

#[test]
fn wrong_environment_is_reported() {
    let refused = output(Command::new(compiled("examples/heap.c")).env("PAGEWIRE_PATH", "rdma"));
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.starts_with("allocate: the engine cannot start: PAGEWIRE_PATH"), "{told}");
    assert!(told.contains("auto, local, tcp or udp"), "{told}");
}

#[test]
fn threads_are_cancelled_between_calls() {
    run_on(&["local", "tcp", "udp"], &compiled("tests/c/cancelled.c"), "");
}

/// A number of the environment, or `usual`.
fn number_of(variable: &str, usual: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number")),
        Err(_) => usual,
    }
}

/// `PAGEWIRE_FUZZ_SEED` is the seed; `PAGEWIRE_FUZZ_SECONDS` has it go on for so long.
#[test]
fn random_calls_are_answered_or_refused() {
    let (seed, seconds) = (number_of("PAGEWIRE_FUZZ_SEED", 1), number_of("PAGEWIRE_FUZZ_SECONDS", 0));
    let program = compiled("tests/c/calls.c");
    for (path, seed) in [("local", seed), ("udp", seed), ("local", seed + 1), ("udp", seed + 1)] {
        let mut command = Command::new(&program);
        command.env("PAGEWIRE_PATH", path).args([seed.to_string(), "10000".into()]);
        if seconds > 0 {
            command.arg((seconds / 4).to_string());
        }
        let output = output(&mut command);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("panicked"), "seed {seed} on path {path}: {told}");
        print!("path {path}, {}", said(&output));
    }
}
