//! Jobs by an address and by a directory. Their processes are threads here, except where a test kills one.

mod bootstrap_support;

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bootstrap_support::exercise;
use pagewire::bootstrap::{Job, JobError, OperationKind, Refusal, Result};

const SIZE: usize = 4;

/// Variables of one process.
type Variables = HashMap<String, String>;

fn variables<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Variables {
    pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

fn join(variables: &Variables) -> Result<Job> {
    Job::from_variables(&|name| variables.get(name).map(Into::into))
}

/// Runs each member in a thread, and returns what each returns.
fn run<T: Send>(members: &[Variables], body: impl Fn(Result<Job>) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = members.iter().map(|member| scope.spawn(move || body(join(member)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a member")).collect()
    })
}

/// The ranks that an error names as absent.
fn absent(error: &JobError) -> &[usize] {
    match error {
        JobError::Absent { ranks, .. } => ranks.listed(),
        other => panic!("nobody is absent: {other}"),
    }
}

/// An address of the loopback at which nobody listens.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").to_string()
}

fn by_address(address: &str, rank: usize, size: usize, job: &str, seconds: u64) -> Variables {
    variables([
        ("PAGEWIRE_RENDEZVOUS", address.to_string()),
        ("PAGEWIRE_RANK", rank.to_string()),
        ("PAGEWIRE_SIZE", size.to_string()),
        ("PAGEWIRE_JOB", job.to_string()),
        ("PAGEWIRE_JOB_TIMEOUT", seconds.to_string()),
    ])
}

fn by_directory(path: &Path, rank: Option<usize>, size: usize, job: &str, seconds: u64) -> Variables {
    let mut all = variables([
        ("PAGEWIRE_JOB_FILE", path.display().to_string()),
        ("PAGEWIRE_SIZE", size.to_string()),
        ("PAGEWIRE_JOB", job.to_string()),
        ("PAGEWIRE_JOB_TIMEOUT", seconds.to_string()),
    ]);
    all.extend(rank.map(|rank| ("PAGEWIRE_RANK".to_string(), rank.to_string())));
    all
}

/// A job of four in one of the two forms.
enum Form {
    Address(String),
    Directory(tempfile::TempDir),
}

impl Form {
    fn both() -> [Self; 2] {
        [Self::Address(free_address()), Self::Directory(tempfile::tempdir().expect("a directory"))]
    }

    fn member(&self, rank: usize, seconds: u64) -> Variables {
        match self {
            Self::Address(address) => by_address(address, rank, SIZE, "a job", seconds),
            Self::Directory(path) => {
                by_directory(&path.path().join("job"), Some(rank), SIZE, "a job", seconds)
            }
        }
    }

    fn members(&self, ranks: impl IntoIterator<Item = usize>, seconds: u64) -> Vec<Variables> {
        ranks.into_iter().map(|rank| self.member(rank, seconds)).collect()
    }
}

#[test]
fn four_processes_exchange_everything() {
    for form in Form::both() {
        let ranks = run(&form.members(0..SIZE, 60), |job| {
            let job = job.expect("join");
            assert_eq!(job.size(), SIZE);
            exercise(&job);
            job.rank()
        });
        assert_eq!(ranks, [0, 1, 2, 3]);
    }
}

#[test]
fn job_of_one_joins_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let forms = [
        by_address(&free_address(), 0, 1, "", 5),
        by_directory(&directory.path().join("job"), None, 1, "", 5),
    ];
    run(&forms, |job| exercise(&job.expect("join")));
}

#[test]
fn absent_rank_is_reported_by_all() {
    for form in Form::both() {
        run(&form.members([0, 1, 3], 2), |job| {
            let error = job.expect_err("rank 2 is absent");
            assert_eq!(absent(&error), [2], "{error}");
            assert!(error.to_string().starts_with("join: rank 2 did not answer at "), "{error}");
        });
    }
}

#[test]
fn missing_caller_is_reported_by_all() {
    for form in Form::both() {
        let others_have_failed = AtomicBool::new(false);
        let failed = Mutex::new(0);
        run(&form.members(0..SIZE, 2), |job| {
            let job = job.expect("join");
            job.barrier().expect("barrier");
            if job.rank() == 2 {
                let start = Instant::now();
                while !others_have_failed.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(60)
                {
                    thread::sleep(Duration::from_millis(10));
                }
                return;
            }
            let error = job.all_gather(b"x").expect_err("rank 2 does not call");
            let again = job.barrier().expect_err("the job has ended");
            let mut failed = failed.lock().expect("no member panics");
            *failed += 1;
            others_have_failed.store(*failed == SIZE - 1, Ordering::Release);
            assert_eq!(absent(&error), [2], "{error}");
            assert_eq!(again, JobError::Ended(Box::new(error)));
        });
    }
}

#[test]
fn one_that_leaves_is_noticed_long_before_the_timeout() {
    for form in Form::both() {
        let start = Instant::now();
        run(&form.members(0..SIZE, 300), |job| {
            let job = job.expect("join");
            job.barrier().expect("barrier");
            if job.rank() == 2 {
                return;
            }
            let error = job.barrier().expect_err("rank 2 has left");
            assert!(matches!(error, JobError::Lost { rank: 2, .. }), "rank {}: {error}", job.rank());
        });
        assert!(start.elapsed() < Duration::from_secs(150));
    }
}

#[test]
fn the_end_of_rank_0_is_noticed() {
    for form in Form::both() {
        run(&form.members(0..SIZE, 300), |job| {
            let job = job.expect("join");
            job.barrier().expect("barrier");
            if job.rank() == 0 {
                return;
            }
            // Members of a directory notice whoever left first.
            let error = job.barrier().expect_err("rank 0 has left");
            assert!(matches!(error, JobError::Lost { .. }), "rank {}: {error}", job.rank());
        });
    }
}

#[test]
fn different_operations_are_an_error() {
    for form in Form::both() {
        let errors = run(&form.members(0..SIZE, 5), |job| {
            let job = job.expect("join");
            if job.rank() == 3 { job.barrier().err() } else { job.broadcast(1, b"x").err() }
        });
        let error = errors[0].as_ref().expect("rank 0 sees the mismatch");
        assert!(matches!(error, JobError::Mismatch { rank: 3, .. }), "{error}");
        assert!(errors.iter().all(Option::is_some), "{errors:?}");
    }
}

#[test]
fn two_jobs_beside_each_other() {
    let root = tempfile::tempdir().expect("a directory");
    let (one, two) = (free_address(), free_address());
    let mut members = Vec::new();
    for rank in 0..SIZE {
        members.push(by_address(&one, rank, SIZE, "one", 60));
        members.push(by_address(&two, rank, SIZE, "two", 60));
        members.push(by_directory(&root.path().join("one"), None, SIZE, "one", 60));
        members.push(by_directory(&root.path().join("two"), None, SIZE, "two", 60));
    }
    let mut ranks = run(&members, |job| {
        let job = job.expect("join");
        exercise(&job);
        job.rank()
    });
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
}

#[test]
fn strangers_do_no_harm() {
    let address = free_address();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Rubbish, silence, half a hello, a hello with a wrong proof, and more connections than may be pending.
        scope.spawn(|| {
            let mut open = Vec::new();
            let mut hello = b"PWJOB\0\0\x01".to_vec();
            hello.extend([1, 0, 0, 0, 4, 0, 0, 0]);
            hello.extend([7; 64]);
            for round in 0.. {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                let Ok(mut stream) = TcpStream::connect(&address) else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let bytes: &[u8] = match round % 4 {
                    0 => b"GET / HTTP/1.1\r\nHost: a-long-enough-host-name-to-fill-the-hello-of-a-member\r\n\r\n",
                    1 => b"",
                    2 => &hello[..50],
                    _ => &hello,
                };
                // Rank 0 may have closed it already.
                let _ = stream.write_all(bytes);
                open.push(stream);
                if open.len() > 300 {
                    open.clear();
                }
            }
        });
        let members: Vec<_> = (0..SIZE).map(|rank| by_address(&address, rank, SIZE, "secret", 60)).collect();
        // Rank 0 hears the strangers for a while before the other ranks come.
        let late = scope.spawn(move || {
            thread::scope(|scope| {
                let root = scope.spawn(|| exercise(&join(&members[0]).expect("join")));
                thread::sleep(Duration::from_millis(500));
                run(&members[1..], |job| exercise(&job.expect("join")));
                root.join().expect("rank 0");
            })
        });
        let done = late.join();
        stop.store(true, Ordering::Release);
        done.expect("the job");
    });
}

#[test]
fn a_stranger_learns_only_that_it_is_one() {
    let address = free_address();
    thread::scope(|scope| {
        let root = scope.spawn(|| join(&by_address(&address, 0, 2, "secret", 2)).expect_err("nobody comes"));
        let error = join(&by_address(&address, 1, 2, "guess", 10)).expect_err("another job");
        assert!(matches!(error, JobError::Refused { reason: Refusal::AnotherJob, .. }), "{error}");
        let error = join(&by_address(&address, 1, 3, "secret", 10)).expect_err("another size");
        assert!(matches!(error, JobError::Refused { reason: Refusal::AnotherSize, .. }), "{error}");
        assert_eq!(absent(&root.join().expect("rank 0")), [1]);
    });
}

#[test]
fn a_rank_is_given_once() {
    let address = free_address();
    thread::scope(|scope| {
        let first: Vec<_> = (0..2)
            .map(|rank| {
                let member = by_address(&address, rank, 3, "", 3);
                scope.spawn(move || join(&member).expect_err("rank 2 never comes"))
            })
            .collect();
        // Whoever of the two comes second is refused.
        let second = join(&by_address(&address, 1, 3, "", 3)).expect_err("no place");
        let errors: Vec<_> = first.into_iter().map(|thread| thread.join().expect("a member")).collect();
        let taken = |error: &JobError| matches!(error, JobError::Refused { reason: Refusal::RankTaken, .. });
        assert!(taken(&second) != taken(&errors[1]), "{second}, {errors:?}");
        assert_eq!(absent(&errors[0]), [2]);
    });

    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("job");
    let (one, two) = (by_directory(&path, Some(0), 2, "", 20), by_directory(&path, Some(1), 2, "", 20));
    run(&[one.clone(), two.clone()], |job| {
        let job = job.expect("join");
        job.barrier().expect("barrier");
        for member in [&one, &two] {
            let error = join(member).expect_err("taken");
            assert!(matches!(error, JobError::Refused { reason: Refusal::RankTaken, .. }), "{error}");
        }
        let error = join(&by_directory(&path, None, 2, "", 20)).expect_err("full");
        assert!(error.to_string().contains("all processes of its job have come"), "{error}");
        let error = join(&by_directory(&path, None, 3, "", 20)).expect_err("another size");
        assert!(error.to_string().contains("another PAGEWIRE_JOB or PAGEWIRE_SIZE"), "{error}");
        job.barrier().expect("barrier");
    });
}

#[test]
fn a_directory_serves_one_job_after_another() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("job");
    for (round, size) in [4, 2, 3].into_iter().enumerate() {
        let members = vec![by_directory(&path, None, size, &format!("job {round}"), 60); size];
        run(&members, |job| exercise(&job.expect("join")));
        let left: Vec<_> =
            fs::read_dir(&path).expect("the directory").map(|it| it.expect("a file").file_name()).collect();
        assert_eq!(left, ["job"]);
    }
}

#[test]
fn a_directory_of_others_is_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("job");
    fs::create_dir(&path).expect("a directory");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("its mode");
    let error = join(&by_directory(&path, None, 1, "", 5)).expect_err("anybody may write to it");
    assert!(matches!(error, JobError::WrongPlace { .. }), "{error}");
    let file = root.path().join("file");
    fs::write(&file, "x").expect("a file");
    let link = root.path().join("link");
    std::os::unix::fs::symlink(root.path(), &link).expect("a link");
    for wrong in [file, link, root.path().join("absent/job")] {
        let error = join(&by_directory(&wrong, None, 1, "", 5)).expect_err("no directory");
        assert!(matches!(error, JobError::System { .. }), "{error}");
        assert!(error.to_string().contains("PAGEWIRE_JOB_FILE"), "{error}");
    }
}

#[test]
fn an_address_that_serves_something_else_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let error = join(&by_address(&address, 0, 2, "", 5)).expect_err("the port is taken");
    assert!(error.to_string().contains("take another port"), "{error}");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\nabcdefgh").expect("a greeting");
            // Until the member closes it.
            let _ = stream.read(&mut [0; 100]);
        });
        let error = join(&by_address(&address, 1, 2, "", 20)).expect_err("another protocol");
        assert!(matches!(error, JobError::WrongPlace { .. }), "{error}");
    });
}

#[test]
fn an_address_outside_the_loopback_needs_a_secret() {
    // An address for documentation (RFC 5737): nothing is sent to it, since the variable is missing.
    let error = join(&by_address("192.0.2.1:7000", 1, 2, "", 5)).expect_err("no secret");
    assert!(matches!(error, JobError::MissingVariable { name: "PAGEWIRE_JOB", .. }), "{error}");
}

#[test]
fn absent_listener_is_absent_rank_0() {
    let error = join(&by_address(&free_address(), 1, 2, "", 1)).expect_err("nobody listens");
    assert_eq!(absent(&error), [0]);
    assert!(matches!(error, JobError::Absent { operation, .. } if operation.kind == OperationKind::Join));
}

/// A process of a job. `a_killed_process_is_noticed` starts it: joins, meets the others once, and waits for its end.
#[test]
#[ignore = "a process of another test"]
fn member_that_waits() {
    let job = Job::from_env().expect("join");
    job.barrier().expect("barrier");
    println!("met");
    thread::sleep(Duration::from_secs(60));
}

fn start_member(variables: &Variables) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", "member_that_waits", "--nocapture"]).envs(variables);
    command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("a process")
}

/// Waits until the process has printed a line with this word.
fn wait_for(child: &mut Child, word: &str) {
    let mut output = child.stdout.take().expect("its output");
    let (mut seen, mut bytes) = (String::new(), [0; 1000]);
    while !seen.contains(word) {
        let count = output.read(&mut bytes).expect("its output");
        assert_ne!(count, 0, "it ended: {seen}");
        seen += &String::from_utf8_lossy(&bytes[..count]);
    }
}

#[test]
fn a_killed_process_is_noticed() {
    for form in Form::both() {
        let mut killed = start_member(&form.member(2, 60));
        let killed = Mutex::new(&mut killed);
        run(&form.members([0, 1, 3], 60), |job| {
            let job = job.expect("join");
            job.barrier().expect("barrier");
            if job.rank() == 0 {
                let mut child = killed.lock().expect("no member panics");
                wait_for(&mut child, "met");
                child.kill().expect("kill");
                child.wait().expect("its end");
            }
            let error = job.all_gather(b"x").expect_err("rank 2 is dead");
            assert!(matches!(error, JobError::Lost { rank: 2, .. }), "rank {}: {error}", job.rank());
        });
    }
}
