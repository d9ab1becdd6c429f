//! `pagewire reproduce` as a user sees it.

use std::process::{Command, Output};

fn reproduce(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagewire-lab")).arg("reproduce").args(words).output().unwrap()
}

#[test]
fn a_figure_is_printed_and_written_as_csv_and_svg() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("figures");
    let done = reproduce(&["part", "--figure", "12", "--out", inside.to_str().unwrap()]);
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("figure 12") && !text.contains("figure 14"), "{text}");
    assert!(text.contains("Of 13 numbers: predicted 4, sum 0,") && text.contains("Computed from:"), "{text}");
    let mut names: Vec<_> =
        std::fs::read_dir(&inside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["part-figure-12-numbers.csv", "part-figure-12.csv", "part-figure-12.svg"]);
    let numbers = std::fs::read_to_string(inside.join("part-figure-12-numbers.csv")).unwrap();
    assert!(numbers.contains("4 MB: PIA better than touching first") && !numbers.contains("figure 14"));
}

#[test]
fn a_table_of_applications_says_what_is_the_papers_and_what_is_estimated() {
    let directory = tempfile::tempdir().unwrap();
    let done = reproduce(&["part", "--table", "2", "--out", directory.path().to_str().unwrap()]);
    assert!(done.status.success(), "{done:?}");
    let mut names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["part-table-2-numbers.csv", "part-table-2.csv", "part-table-2.svg"]);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let (numbers, points) = (read("part-table-2-numbers.csv"), read("part-table-2.csv"));
    assert!(numbers.contains("98.88") && numbers.contains("\"estimate\""), "{numbers}");
    assert!(
        points.contains("\"paper\",16,1.0")
            && points.contains(",stated,")
            && points.contains("(estimate)\",16,0.04"),
        "{points}"
    );
    for table in ["2", "3", "4", "5"] {
        let words = ["part", "--table", table, "--out", directory.path().to_str().unwrap()];
        assert!(reproduce(&words).status.success(), "{table}");
        assert!(!read(&format!("part-table-{table}.svg")).contains("model"), "{table}");
    }
}

/// The keys that tell lines of JSON apart, in their order.
const KINDS: [&str; 4] = ["verdict", "curves", "input", "counts"];

fn kind_of_line(line: &serde_json::Value) -> &'static str {
    KINDS.into_iter().find(|kind| line.get(kind).is_some()).unwrap()
}

#[test]
fn json_is_an_object_a_line_numbers_figures_inputs_counts() {
    for paper in ["part", "jbmt", "frrwp", "reuse", "active"] {
        let done = reproduce(&[paper, "--json"]);
        assert!(done.status.success(), "{done:?}");
        let text = String::from_utf8(done.stdout).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().all(|line| line["paper"] == paper));
        let kinds: Vec<&str> = lines.iter().map(kind_of_line).collect();
        assert!(kinds.is_sorted_by_key(|kind| KINDS.iter().position(|known| known == kind)), "{kinds:?}");
        assert!(KINDS.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
        let numbers = kinds.iter().filter(|kind| **kind == "verdict").count();
        let counts = lines.last().unwrap();
        assert_eq!(counts["numbers"], numbers);
        let counted = counts["counts"].as_object().unwrap().values().map(|count| count.as_u64().unwrap());
        assert_eq!(counted.sum::<u64>(), numbers as u64);
        // Each number says from what it is computed, and each input of it stands by itself.
        let known: Vec<&serde_json::Value> = lines.iter().map(|line| &line["input"]).collect();
        for line in lines.iter().filter(|line| line["predicted_least"].is_number()) {
            let inputs = line["inputs"].as_array().unwrap();
            assert!(!inputs.is_empty() && inputs.iter().all(|input| known.contains(&input)), "{line}");
        }
    }
}

#[test]
fn what_the_paper_has_not_is_an_error_that_says_what_it_has() {
    let missing = [
        (["part", "--figure", "3"], "figure 16"),
        (["part", "--table", "6"], "table 5"),
        (["jbmt", "--table", "9"], "table 1"),
        (["frrwp", "--figure", "7"], "figure 5"),
        (["reuse", "--figure", "8"], "figure 7"),
        (["active", "--figure", "7e"], "figure 7d"),
        (["active", "--figure", "2"], "figure 9b"),
        (["active", "--table", "1"], "figure 9b"),
    ];
    for (words, known) in missing {
        let refused = reproduce(&words);
        assert_eq!(refused.status.code(), Some(1), "{words:?}");
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(told.contains(known) && !told.contains("section"), "{told}");
    }
    assert_eq!(reproduce(&["part", "--figure", "12", "--table", "2"]).status.code(), Some(2));
}

#[test]
fn applications_need_a_folder_and_are_of_part() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    for words in [
        &["part", "--applications"][..],
        &["jbmt", "--applications", "--out", out],
        &["all", "--applications", "--out", out],
        &["part", "--applications", "--out", out, "--table", "1"],
        &["part", "--applications", "--out", out, "--figure", "12"],
        &["part", "--applications", "--out", out, "--live"],
        &["part", "--applications", "--out", out, "--budget", "-1"],
        &["part", "--applications", "--out", out, "--hosts", "3"],
        &["part", "--applications", "--out", out, "--hosts", "2", "--path", "local"],
        &["part", "--out", out, "--hosts", "2"],
        &["part", "--out", out, "--budget", "1"],
        &["part", "--out", out, "--hpcg", out],
        &["part", "--live", "--path", "tcp"],
    ] {
        let refused = reproduce(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {refused:?}");
    }
}

/// Both processes are started, and each curve has a point for each size; mlock may be refused, and then a note says so.
#[test]
fn registered_memory_is_measured_on_this_machine() {
    let places = [
        ("reuse", "5", "reused", 15),
        ("reuse", "7", "plain buffer: copied", 15),
        ("frrwp", "1", "RDMA write", 8),
        ("frrwp", "4", "the whole", 2),
    ];
    for (paper, figure, curve, points) in places {
        let done =
            reproduce(&[paper, "--figure", figure, "--live", "--path", "local", "--rounds", "2", "--json"]);
        assert!(done.status.success(), "{done:?}");
        let text = String::from_utf8(done.stdout).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let figures: Vec<_> = lines.filter(|line| line["curves"].is_object()).collect();
        let here = &figures[0]["this_machine"];
        let notes = here["notes"].to_string();
        assert!(notes.contains("mlock(2) stands for the registration"), "{notes}");
        let measured = here["curves"][curve].as_array().map_or(0, Vec::len);
        let is_refused = notes.contains("not permitted to lock");
        assert!(measured == points || is_refused && curve == "the whole", "{curve}: {here}");
    }
}

/// From an empty folder: a paper that is complete is not made again, whenever the command was interrupted. Other options begin anew.
#[test]
fn all_papers_go_on_where_they_were_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("papers");
    let words = ["reproduce", "all", "--out", out.to_str().unwrap()];
    let mut first = Command::new(env!("CARGO_BIN_EXE_pagewire-lab"))
        .args(words)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let complete = |paper: &str| out.join(format!("{paper}-complete")).is_file();
    while !complete("part") {
        assert!(first.try_wait().unwrap().is_none_or(|status| status.success()));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let made = std::fs::metadata(out.join("part-numbers.csv")).unwrap().modified().unwrap();
    let done = reproduce(&words[1..]);
    assert!(done.status.success(), "{done:?}");
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(told.contains("part is complete in"), "{told}");
    for paper in ["part", "jbmt", "frrwp", "reuse", "active"] {
        assert!(complete(paper) && out.join(format!("{paper}-sheet.png")).is_file(), "{paper}");
    }
    assert_eq!(std::fs::metadata(out.join("part-numbers.csv")).unwrap().modified().unwrap(), made);
    std::fs::write(out.join("jbmt-complete"), "other options").unwrap();
    let again = String::from_utf8(reproduce(&words[1..]).stderr).unwrap();
    assert!(!again.contains("jbmt is complete") && again.contains("reuse is complete"), "{again}");
    assert_eq!(reproduce(&["all"]).status.code(), Some(2));
    assert_eq!(reproduce(&["all", "--figure", "1", "--out", out.to_str().unwrap()]).status.code(), Some(2));
}

/// A figure's number alone means all of its parts.
#[test]
fn parts_of_a_figure_are_chosen_together_or_by_letter() {
    let directory = tempfile::tempdir().unwrap();
    let written = |figure: &str| {
        let inside = directory.path().join(figure);
        let done = reproduce(&["active", "--figure", figure, "--out", inside.to_str().unwrap()]);
        assert!(done.status.success(), "{done:?}");
        let names = std::fs::read_dir(&inside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".csv")).collect();
        names.sort();
        names
    };
    let all = [
        "active-figure-9-numbers.csv",
        "active-figure-9a.csv",
        "active-figure-9b-less.csv",
        "active-figure-9b.csv",
    ];
    assert_eq!(written("9"), all);
    assert_eq!(written("9a"), ["active-figure-9a-numbers.csv", "active-figure-9a.csv"]);
    assert_eq!(reproduce(&["active", "--figure", "a"]).status.code(), Some(2));
}

/// Both processes are started, for each part of inserts that collide.
#[test]
fn a_scheme_of_the_hash_table_is_measured_on_this_machine() {
    let done =
        reproduce(&["active", "--figure", "1", "--live", "--path", "local", "--rounds", "1", "--json"]);
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let figures: Vec<_> = lines.filter(|line| line["curves"].is_object()).collect();
    let points = figures[0]["this_machine"]["curves"]["RMA"].as_array().unwrap();
    assert_eq!(points.len(), 3, "{text}");
    assert!(points.iter().all(|point| point[1].as_f64().unwrap() > 0.0));
}

/// Every scheme over a longer network, each beside all others, with a verdict; no scheme is left out.
#[test]
fn schemes_are_compared_over_a_longer_network() {
    let words =
        ["active", "--figure", "7a", "--live", "--path", "udp", "--delay", "20", "--rounds", "1", "--json"];
    let done = reproduce(&words);
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let figures: Vec<_> = lines.filter(|line| line["curves"].is_object()).collect();
    let [figure] = &figures[..] else { panic!("{text}") };
    assert_eq!(figure["place"], "figure 7a by network delay");
    let here = &figure["this_machine"];
    let curves = here["curves"].as_object().unwrap();
    assert_eq!(curves.len(), 13, "{text}");
    assert!(curves.values().all(|points| points[0][0] == 20.0 && points[0][1].as_f64().unwrap() > 0.0));
    // Three schemes, each to ten others and to two best.
    assert_eq!(here["comparison"]["ratios"].as_array().unwrap().len(), 3 * 12, "{text}");
    assert_eq!(here["comparison"]["verdicts"].as_array().unwrap().len(), 3 * 2, "{text}");
}

/// The processes of a job of a probe, which all have to end well.
fn job(words: &[&str], path: &str, processes: usize) -> Vec<Output> {
    let job = tempfile::tempdir().unwrap();
    let start = |rank: usize| {
        Command::new(env!("CARGO_BIN_EXE_pagewire-lab"))
            .arg("probe")
            .args(words)
            .env("PAGEWIRE_JOB_FILE", job.path())
            .envs([("PAGEWIRE_JOB_TIMEOUT", "30"), ("PAGEWIRE_PATH", path)])
            .envs([("PAGEWIRE_SIZE", processes.to_string()), ("PAGEWIRE_RANK", rank.to_string())])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..processes).map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

/// What rank 0 says of a job that has ended well.
fn figure_of(words: &[&str], path: &str, processes: usize) -> f64 {
    let all = job(words, path, processes);
    assert!(all.iter().all(|done| done.status.success()), "{words:?}: {all:?}");
    let figure: serde_json::Value = serde_json::from_slice(&all[0].stdout).unwrap();
    assert!(figure["path"].as_str().unwrap().starts_with(path), "{words:?}: {figure}");
    figure["value"].as_f64().unwrap()
}

/// Both orders of a WRITE, for each cost of a registration. In the traditional order both processes register one after the other.
#[test]
fn orders_of_a_write_are_measured_for_each_registration() {
    for path in ["local", "udp"] {
        let both = job(&["registered", "saving", "4096,65536"], path, 2);
        assert!(both.iter().all(|done| done.status.success()), "{both:?}");
        let text = String::from_utf8(both[0].stdout.clone()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.iter().map(|line| &line["size"]).collect::<Vec<_>>(), [4096, 65536]);
        for (line, pages) in lines.iter().zip([1.0, 16.0]) {
            let of = |name: &str| line[name].as_f64().unwrap();
            let registration = 0.77 * pages + 7.42;
            assert!(of("work_traditional") >= 2.0 * registration, "{line}");
            assert!(of("work_conditional") >= registration && of("none_conditional") > 0.0, "{line}");
            let (traditional, conditional) = (of("none_traditional"), of("none_conditional"));
            let saved = (traditional - conditional) / traditional.max(conditional) * 100.0;
            assert!((of("none_saved") - saved).abs() < 1e-6, "{line}");
            assert!(line["lock_traditional"].is_null() == line["lock_saved"].is_null(), "{line}");
        }
    }
}

/// With so small a table that most elements collide.
fn scheme_of_two(scheme: &str, operation: &str) -> Vec<Output> {
    job(&["hashtable", operation, scheme, "50", "300", "1"], "local", 2)
}

/// Each process compares what was counted, logged or sorted with what was accessed, and ends with an error if they differ.
#[test]
fn each_scheme_of_accesses_counts_logs_and_sorts_all() {
    for (workload, scheme, size, times) in [
        ("counter", "aa-poll", "8", "1000"),
        ("counter", "rma", "8", "500"),
        ("counter", "a-kv", "8", "1000"),
        ("counter", "allreduce", "8", "200"),
        ("counter", "none", "8", "1000"),
        ("get_logged", "aa", "8", "1000"),
        ("get_logged", "rma", "4096", "100"),
        ("get_logged", "am", "8192", "100"),
        ("get_logged", "none", "8", "1000"),
        ("sort", "aa", "64", "3000"),
        ("sort", "rma", "8", "300"),
        ("sort", "am", "64", "3000"),
        ("sort", "none", "4096", "1"),
    ] {
        for (path, processes) in [("local", 3), ("udp", 2)] {
            let value = figure_of(&["accesses", workload, scheme, size, times, "1"], path, processes);
            assert!(value > 0.0, "{workload} {scheme}");
        }
    }
    let refused = job(&["accesses", "counter", "am", "8", "10", "1"], "local", 1);
    assert_eq!(refused[0].status.code(), Some(1), "{refused:?}");
    let alone = job(&["accesses", "counter", "none", "8", "10", "1"], "local", 1);
    assert!(String::from_utf8_lossy(&alone[0].stderr).contains("two processes at least"), "{alone:?}");
}

/// Computation makes inserts rarer; processes that handle alone insert nothing; intervals are those that are asked for.
#[test]
fn inserts_take_computation_and_handlers() {
    let rate = |last: [&str; 3], processes: usize| {
        let first = ["hashtable", "insert", "am", "50", "300", "1"];
        figure_of(&[&first[..], &last].concat(), "local", processes)
    };
    // 300 inserts with 100 us before each take 30 ms at least.
    assert!(rate(["100000", "4", "0"], 2) <= 2.0 * 300.0 / 0.03);
    assert!(rate(["0", "16", "2"], 3) > 0.0);
    let refused = job(&["hashtable", "insert", "am", "50", "300", "1", "0", "8", "2"], "local", 2);
    assert!(refused.iter().all(|done| !done.status.success()));
    assert!(String::from_utf8_lossy(&refused[0].stderr).contains("at least one is to insert"), "{refused:?}");
}

/// Options of the schemes are refused where they mean nothing, before anything is measured.
#[test]
fn options_of_schemes_are_of_their_rows() {
    for (words, told) in [
        (&["counter", "--scheme", "am"][..], "counter has no scheme am: take one of aa-poll"),
        (&["sort", "--scheme", "aa-poll"], "sort has no scheme aa-poll: take one of aa, rma, am, none"),
        (&["hashtable", "--scheme", "none"], "a hash table has no scheme none"),
        (&["counter", "--accesses", "5"], "--accesses is for sort"),
        (&["sort", "--cells", "5"], "--cells and --inserts are for hashtable"),
        (&["put", "--processes", "3"], "--processes and --scheme are for"),
        (&["sort", "--accesses", "0"], "0 is not in 1.."),
    ] {
        let refused =
            Command::new(env!("CARGO_BIN_EXE_pagewire-lab")).arg("bench").args(words).output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && text.contains(told), "{words:?}: {text}");
    }
    for words in [
        &["part", "--live", "--processes", "4"][..],
        &["active", "--processes", "4"],
        &["part", "--live", "--delay", "5"],
        &["active", "--live", "--path", "local", "--delay", "5"],
        &["active", "--live", "--path", "tcp"],
        &["active", "--delay", "5"],
    ] {
        assert_eq!(reproduce(words).status.code(), Some(2), "{words:?}");
    }
}

/// Each walks its chains behind each round, and ends with an error if an element is missing.
#[test]
fn each_scheme_of_the_hash_table_loses_nothing() {
    let schemes = [
        "nearest",
        "handler",
        "operations",
        "aa-int",
        "aa-poll",
        "aa-sp",
        "rma",
        "am",
        "am-exp",
        "am-onload",
        "am-ints",
        "am-aggregated",
    ];
    for scheme in schemes {
        let both = scheme_of_two(scheme, "insert");
        assert!(both.iter().all(|done| done.status.success()), "{scheme}: {both:?}");
        assert!(String::from_utf8_lossy(&both[0].stdout).contains("\"path\":\"local"), "{scheme}: {both:?}");
    }
    let refused = scheme_of_two("rma", "lookup");
    assert!(refused.iter().all(|done| !done.status.success()));
    assert!(String::from_utf8_lossy(&refused[0].stderr).contains("has inserts alone"), "{refused:?}");
}
