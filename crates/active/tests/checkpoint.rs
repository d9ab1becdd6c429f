//! Checkpoints: what peers and the process itself have written comes back byte by byte, whenever the process was killed (PAPERS AA-11).

mod other;

use other::{Other, ROLE, on_each_path};
use pagewire::{Node, Region, RemoteRegion, Rights};
use pagewire_active::{
    AttributesOf, Checkpoint, CheckpointError, CheckpointKind, CheckpointOptions, Inspection, LocalWrites,
    LogOptions, Logs, SaveError, Verified,
};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PAGE: usize = 4096;
/// The last page is cut by the end.
const BYTES: usize = 500 * PAGE + 72;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
    (*state >> 33) ^ *state << 31
}

/// A write of a step: where, and which bytes.
fn writes(step: u64) -> Vec<(usize, Vec<u8>)> {
    let mut state = step.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut writes = Vec::new();
    for _ in 0..40 {
        let length =
            if random(&mut state) % 8 == 0 { 8 * (random(&mut state) % 1500) + 8 } else { 8 } as usize;
        let at = 8 * (random(&mut state) as usize % ((BYTES - length) / 8 + 1));
        let value = random(&mut state).to_le_bytes();
        writes.push((at, value.iter().copied().cycle().take(length).collect()));
    }
    writes
}

/// Makes a step: peers put, and this process writes.
fn run(step: u64, table: &Region<u64>, remote: &RemoteRegion) {
    for (index, (at, bytes)) in writes(step).into_iter().enumerate() {
        match index % 2 {
            0 => table.write_bytes(at as u64, &bytes).unwrap(),
            _ => drop(remote.put(at as u64, bytes).wait().unwrap()),
        }
    }
}

fn apply(step: u64, model: &mut [u8]) {
    for (at, bytes) in writes(step) {
        model[at..at + bytes.len()].copy_from_slice(&bytes);
    }
}

fn contents(table: &Region<u64>) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    table.read_bytes(0, &mut bytes).unwrap();
    bytes
}

struct World {
    table: Region<u64>,
    remote: RemoteRegion,
    node: Node,
    _peer: Node,
}

fn world() -> World {
    let (node, peer) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = node.zeroed::<u64>(BYTES / 8).unwrap();
    let remote = peer.open(&table.export(Rights::all()).unwrap()).unwrap();
    World { table, remote, node, _peer: peer }
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table.checkpoint");
    (directory, path)
}

/// The methods that work here.
fn methods() -> Vec<LocalWrites> {
    let best = LocalWrites::best();
    if best != LocalWrites::WriteProtect {
        eprintln!("not checked: asynchronous write protection; the best that works here is {best:?}");
    }
    if best == LocalWrites::None { vec![best] } else { vec![best, LocalWrites::None] }
}

#[test]
fn what_has_changed_is_saved_and_comes_back() {
    on_each_path("what_has_changed_is_saved_and_comes_back", || {
        for method in methods() {
            let (_directory, path) = directory();
            let options = CheckpointOptions {
                local_writes: Some(method),
                syncs: false,
                ..CheckpointOptions::default()
            };
            let world = world();
            let mut checkpoint = Checkpoint::open_with(&world.node, &path, &options).unwrap();
            assert_eq!(
                (checkpoint.local_writes(), checkpoint.restore(&world.table).unwrap()),
                (method, None)
            );
            // So many that more of the file is out of date than not.
            let last = if method == LocalWrites::None { 10 } else { 50 };
            let mut models = vec![vec![0; BYTES]];
            for number in 1..=last {
                let mut model = models[number as usize - 1].clone();
                run(number, &world.table, &world.remote);
                apply(number, &mut model);
                let saved = checkpoint.save(&world.table).unwrap();
                assert_eq!(
                    (saved.number, saved.kind == CheckpointKind::Full),
                    (number, number == 1 || method == LocalWrites::None)
                );
                if saved.kind == CheckpointKind::Incremental {
                    // Forty writes, of which some have three pages; the two at the edges, and neighbours of pages of the kernel.
                    assert!((20..200).contains(&saved.pages), "{saved:?}");
                }
                models.push(model);
            }
            // Nothing has changed: at most what the region shares with others at its edges.
            let saved = checkpoint.save(&world.table).unwrap();
            assert!(saved.pages <= if method == LocalWrites::None { 501 } else { 4 }, "{saved:?}");
            models.push(models[last as usize].clone());
            drop(checkpoint);
            // Another process, which has memory of its own.
            let node = Node::alone().unwrap();
            let other = node.zeroed::<u64>(BYTES / 8).unwrap();
            let mut checkpoint = Checkpoint::open_with(&node, &path, &options).unwrap();
            let last = last + 1;
            let (first, end) = checkpoint.numbers().unwrap();
            assert!(first > 1 && end == last, "the file was made anew: {first} to {end}");
            for number in [last, first, last - 1] {
                let restored = checkpoint.restore_all(number, &[&other]).unwrap();
                assert_eq!((restored.number, contents(&other) == models[number as usize]), (number, true));
            }
            // It goes on behind what was restored.
            other.set(0, 77).unwrap();
            let saved = checkpoint.save(&other).unwrap();
            assert_eq!((saved.number, checkpoint.numbers()), (last, Some((first, last))));
            drop(checkpoint);
            let mut checkpoint = Checkpoint::open_with(&world.node, &path, &options).unwrap();
            checkpoint.restore(&world.table).unwrap().unwrap();
            let mut model = models[last as usize].clone();
            model[..8].copy_from_slice(&77u64.to_ne_bytes());
            assert!(contents(&world.table) == model);
        }
    });
}

/// Atomics, regions of words, several regions, a note, and puts that the program logs itself.
#[test]
fn regions_are_saved_together_with_a_note() {
    on_each_path("regions_are_saved_together_with_a_note", || {
        let (_directory, path) = directory();
        let (node, peer) = (Node::alone().unwrap(), Node::alone().unwrap());
        let table = node.zeroed::<u64>(1024).unwrap();
        let words = node.words(100_000).unwrap();
        let remote = peer.open(&words.export(Rights::all()).unwrap()).unwrap();
        let options = CheckpointOptions { logs_puts: false, ..CheckpointOptions::default() };
        let mut checkpoint = Checkpoint::open_with(&node, &path, &options).unwrap();
        let log = node.access_log_with(&LogOptions::new(1 << 16)).unwrap();
        words.attributes(..).log_put_data().to(&log).unwrap();
        let (noting, sum) = (checkpoint.remote_writes(), std::sync::atomic::AtomicU64::new(0));
        let handler = |access: pagewire_active::Access<'_>| {
            noting.note(&access);
            sum.fetch_add(access.value().unwrap_or(0), std::sync::atomic::Ordering::Relaxed);
        };
        checkpoint.save_all(&[&table, &words], b"one").unwrap();
        remote.fetch_add(8 * 50_000, 5).wait().unwrap();
        remote.put_value(8 * 99_999, 6u64).wait().unwrap();
        log.poll(handler);
        let saved = checkpoint.save_all(&[&table, &words], b"two").unwrap();
        assert_eq!((saved.kind, sum.into_inner()), (CheckpointKind::Incremental, 11));
        assert!(matches!(checkpoint.save(&table), Err(CheckpointError::Save(SaveError::Regions { .. }))));
        drop(checkpoint);
        let (table, words) = (node.zeroed::<u64>(1024).unwrap(), node.words(100_000).unwrap());
        let mut checkpoint = Checkpoint::open(&node, &path).unwrap();
        let restored = checkpoint.restore_all(2, &[&table, &words]).unwrap();
        let value = |index: usize| words.words()[index].load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((&restored.note[..], value(50_000), value(99_999)), (&b"two"[..], 5, 6));
        assert_eq!(checkpoint.restore_all(1, &[&table, &words]).unwrap().note, b"one");
        assert_eq!((value(50_000), value(99_999)), (0, 0));
    });
}

/// A file with three checkpoints; gives where each ends, and what the memory was.
fn three_checkpoints(path: &Path) -> (Vec<u64>, Vec<Vec<u8>>) {
    let world = world();
    let mut checkpoint = Checkpoint::open(&world.node, path).unwrap();
    let mut models = vec![vec![0; BYTES]];
    for step in 1..=3 {
        run(step, &world.table, &world.remote);
        let mut model = models[step as usize - 1].clone();
        apply(step, &mut model);
        models.push(model);
        checkpoint.save(&world.table).unwrap();
    }
    let inspection = Inspection::open(path).unwrap();
    assert_eq!(inspection.verify().unwrap(), [Verified::Whole; 3]);
    assert_eq!((inspection.regions(), inspection.unfinished()), (&[BYTES as u64][..], 0));
    (inspection.checkpoints().iter().map(|checkpoint| checkpoint.end).collect(), models)
}

/// Wherever the writing of the last checkpoint ends, the one before is restored, and the next save goes on behind it.
#[test]
fn a_file_that_ends_anywhere_has_its_last_whole_checkpoint() {
    let (_directory, path) = directory();
    let (ends, models) = three_checkpoints(&path);
    let whole = std::fs::read(&path).unwrap();
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(BYTES / 8).unwrap();
    let cut = _directory.path().join("cut");
    let mut state = 1;
    for round in 0..30 {
        let end = match round {
            0 => ends[2] as usize - 1,
            1 => ends[1] as usize + 1,
            _ => ends[0] as usize + random(&mut state) as usize % (ends[2] - ends[0]) as usize,
        };
        let mut bytes = whole[..end].to_vec();
        let expected = if (end as u64) < ends[1] { 1 } else { 2 };
        if round % 2 == 1 {
            // The header is written last: until then there are zeros.
            let start = ends[expected - 1] as usize;
            let zeros = (start + PAGE).min(end);
            bytes[start..zeros].fill(0);
        }
        std::fs::write(&cut, &bytes).unwrap();
        let inspection = Inspection::open(&cut).unwrap();
        assert_eq!(inspection.unfinished(), end as u64 - ends[expected - 1]);
        let mut checkpoint = Checkpoint::open(&node, &cut).unwrap();
        assert_eq!(checkpoint.restore(&table).unwrap().unwrap().number, expected as u64);
        assert!(contents(&table) == models[expected], "cut at {end}");
        if round < 4 {
            table.set(1, 9).unwrap();
            assert_eq!(checkpoint.save(&table).unwrap().number, expected as u64 + 1);
            assert_eq!(Inspection::open(&cut).unwrap().unfinished(), 0);
        }
    }
}

/// A changed bit anywhere is seen: an error says where, and nothing was restored; or, in the last checkpoint, it counts as unfinished.
#[test]
fn a_changed_bit_is_never_restored() {
    let (_directory, path) = directory();
    let (ends, models) = three_checkpoints(&path);
    let whole = std::fs::read(&path).unwrap();
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(BYTES / 8).unwrap();
    let mut state = 5;
    for round in 0..60 {
        let at = match round {
            // Headers, and commit records.
            0 => 40,
            1 => ends[0] as usize + 16,
            2 => ends[0] as usize - 3,
            3 => ends[2] as usize - 3,
            _ => random(&mut state) as usize % whole.len(),
        };
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (round % 8);
        std::fs::write(&path, &bytes).unwrap();
        table.write_bytes(0, &models[0]).unwrap();
        let verified = Inspection::open(&path).and_then(|inspection| inspection.verify());
        let outcome = Checkpoint::open(&node, &path).and_then(|mut checkpoint| checkpoint.restore(&table));
        let is_last = at as u64 >= ends[1];
        match outcome {
            Ok(Some(restored)) => {
                // Data that were saved anew later are damaged: the checkpoints before are.
                let harms_only_earlier = |verified: &Vec<Verified>| {
                    verified.last() == Some(&Verified::Whole)
                        && verified.iter().any(|one| *one != Verified::Whole)
                };
                assert!(
                    is_last && restored.number == 2
                        || !is_last && verified.as_ref().is_ok_and(harms_only_earlier),
                    "{at}: {verified:?}"
                );
                assert!(contents(&table) == models[restored.number as usize], "{at}");
            }
            Ok(None) => panic!("{at}: nothing was restored"),
            Err(CheckpointError::Save(SaveError::Damaged { whole, .. })) => {
                assert!(!is_last && contents(&table) == models[0], "{at}");
                let before = ends.iter().take_while(|end| **end <= at as u64).count() as u64;
                assert!(
                    whole.is_none_or(|(number, end)| number <= before && end == ends[number as usize - 1])
                );
            }
            Err(error @ CheckpointError::Save(SaveError::Foreign { .. })) => assert!(at < 16, "{error}"),
            Err(error) => panic!("{at}: {error}"),
        }
    }
}

#[test]
fn errors_say_what_to_do() {
    let (directory, path) = directory();
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(512).unwrap();
    let mut checkpoint = Checkpoint::open(&node, &path).unwrap();
    let error = |result: Result<Checkpoint, CheckpointError>| result.err().unwrap().to_string();
    assert!(error(Checkpoint::open(&node, &path)).contains("is used by another process"));
    assert!(error(Checkpoint::open(&node, directory.path())).contains("cannot open the checkpoint file"));
    checkpoint.save(&table).unwrap();
    let number = checkpoint.restore_all(7, &[&table]).unwrap_err();
    assert!(number.to_string().ends_with("has no checkpoint 7: it has 1 to 1"), "{number}");
    let other = node.zeroed::<u64>(513).unwrap();
    assert!(checkpoint.restore(&other).unwrap_err().to_string().contains("[4096] bytes, and not of [4104]"));
    let text = directory.path().join("text");
    std::fs::write(&text, vec![b'a'; 5000]).unwrap();
    assert!(error(Checkpoint::open(&node, &text)).contains("is no checkpoint of this version"));
    assert_eq!(std::fs::read(&text).unwrap(), vec![b'a'; 5000], "somebody's file stays as it is");
    drop(checkpoint);
    // A text that is shorter than a page is somebody's, too, and so are zeros.
    for bytes in [&b"a note"[..], &[0; 3], &[0; 3 * PAGE]] {
        std::fs::write(&text, bytes).unwrap();
        assert!(error(Checkpoint::open(&node, &text)).contains("is no checkpoint of this version"));
        assert_eq!(std::fs::read(&text).unwrap(), bytes);
    }
}

/// A process that peers put to, and that saves and is killed at random instants: what it has acknowledged comes back, byte by byte
/// (`PAGEWIRE_CHECKPOINT_KILLS`: how often).
#[test]
fn a_process_that_is_killed_at_any_instant_is_restored() {
    const TEST: &str = "a_process_that_is_killed_at_any_instant_is_restored";
    if let Some(role) = std::env::var_os(ROLE) {
        let path = PathBuf::from(other::read_line());
        let world = world();
        let options = CheckpointOptions { syncs: role == "syncs", ..CheckpointOptions::default() };
        let mut checkpoint = Checkpoint::open_with(&world.node, &path, &options).unwrap();
        let restored = checkpoint.restore(&world.table).unwrap();
        let mut step = restored.map_or(0, |restored| restored.number);
        println!("begun");
        loop {
            step += 1;
            run(step, &world.table, &world.remote);
            assert_eq!(checkpoint.save(&world.table).unwrap().number, step);
            println!("saved {step}");
        }
    }
    let kills = std::env::var("PAGEWIRE_CHECKPOINT_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let (_directory, path) = directory();
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(BYTES / 8).unwrap();
    let (mut state, mut model, mut known) = (u64::from(std::process::id()), vec![0; BYTES], 0);
    eprintln!("seed {state}");
    for round in 0..kills {
        let role = if round % 4 == 0 { "syncs" } else { "does not sync" };
        let mut owner = Other::start(TEST, role, ["local", "udp"][round % 2]);
        owner.tell(path.to_str().unwrap());
        // Some are killed while they restore.
        let mut acknowledged = known;
        if round % 8 != 7 {
            owner.expect("begun");
            if round == 0 {
                // The first one is full.
                acknowledged = owner.expect("saved").parse().unwrap();
            }
        }
        std::thread::sleep(Duration::from_micros(random(&mut state) % 15_000));
        owner.child.kill().unwrap();
        owner.child.wait().unwrap();
        for line in owner.says.by_ref().lines().map_while(Result::ok) {
            if let Some((_, number)) = line.split_once("saved ") {
                acknowledged = number.parse().unwrap();
            }
        }
        let mut checkpoint = Checkpoint::open(&node, &path).unwrap();
        let restored = checkpoint.restore(&table).unwrap().map_or(0, |restored| restored.number);
        assert!(
            restored == acknowledged || restored == acknowledged + 1,
            "{restored}, {acknowledged} acknowledged"
        );
        (known + 1..=restored).for_each(|step| apply(step, &mut model));
        known = restored;
        if restored > 0 {
            let there = contents(&table);
            let differs = there.iter().zip(&model).position(|(there, model)| there != model);
            assert_eq!(differs, None, "kill {round}, checkpoint {restored}: the first byte that differs");
        }
    }
    eprintln!("{kills} kills, {known} checkpoints");
    assert!(known > 0);
}

/// What a process of a job writes in a round, itself or at the next one: where, and what.
fn of_round(round: u64, rank: usize, is_put: bool) -> (usize, u64) {
    let page = (round * 7 + if is_put { 200 } else { 0 }) % 400;
    (page as usize * PAGE / 8, round * 100 + rank as u64 * 10 + u64::from(is_put))
}

/// A process of a job, which saves together with the others.
fn run_together() {
    const ROUNDS: u64 = 1_000_000;
    let file = PathBuf::from(other::read_line());
    let node = Node::from_env().unwrap();
    let (rank, size) = (node.rank(), node.size());
    let table = node.zeroed::<u64>(BYTES / 8).unwrap();
    let tokens = node.all_gather(&table.export(Rights::all()).unwrap()).unwrap();
    let next = node.open(&tokens[(rank + 1) % size]).unwrap();
    let options = CheckpointOptions { syncs: false, ..CheckpointOptions::default() };
    let mut checkpoint = Checkpoint::open_with(&node, &file, &options).unwrap();
    let restored = checkpoint.restore_together(&node, &[&table]).unwrap();
    let before = restored.map_or(0, |restored| restored.number);
    let mut model = vec![0; BYTES];
    for round in 1..=before {
        let writes = [of_round(round, rank, false), of_round(round, (rank + size - 1) % size, true)];
        writes.iter().for_each(|(at, value)| model[8 * at..8 * at + 8].copy_from_slice(&value.to_ne_bytes()));
    }
    let there = contents(&table);
    let differs = there.iter().zip(&model).position(|(there, model)| there != model);
    let word =
        |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at / 8 * 8..at / 8 * 8 + 8].try_into().unwrap());
    let seen = differs.map(|at| (at, word(&there, at), word(&model, at)));
    assert_eq!(seen, None, "process {rank}, checkpoint {before}: byte, what is there, what was");
    // Nobody puts before all have looked.
    node.barrier().unwrap();
    println!("restored {before}");
    for round in before + 1..ROUNDS {
        let (at, value) = of_round(round, rank, false);
        table.set(at, value).unwrap();
        let (at, value) = of_round(round, rank, true);
        // Nobody waits for it alone.
        drop(next.put_value(8 * at as u64, value));
        let saved = checkpoint.save_together(&node, &[&next], &[&table], &[]).unwrap();
        assert_eq!(saved.number, round);
        if round == before + 1 {
            println!("saved");
        }
    }
}

/// All processes of a job go on from a checkpoint that all have, whenever they were killed: what one has put before a save is in the
/// checkpoint of the other.
#[test]
fn processes_of_a_job_are_restored_together() {
    const TEST: &str = "processes_of_a_job_are_restored_together";
    const SIZE: usize = 3;
    if std::env::var_os(ROLE).is_some() {
        return run_together();
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut state, mut least) = (u64::from(std::process::id()), 0);
    for run in 0..5 {
        let job = directory.path().join(format!("job{run}"));
        std::fs::create_dir(&job).unwrap();
        let start = |rank: usize| {
            let (rank, size) = (rank.to_string(), SIZE.to_string());
            let variables = [
                ("PAGEWIRE_JOB_FILE", job.to_str().unwrap()),
                ("PAGEWIRE_RANK", &rank),
                ("PAGEWIRE_SIZE", &size),
                ("PAGEWIRE_PATH", "auto"),
            ];
            let mut process = Other::start_with(TEST, "process", &variables);
            process.tell(directory.path().join(format!("checkpoint{rank}")).to_str().unwrap());
            process
        };
        let mut processes: Vec<Other> = (0..SIZE).map(start).collect();
        let restored: Vec<u64> =
            processes.iter_mut().map(|process| process.expect("restored").parse().unwrap()).collect();
        assert_eq!(restored, [restored[0]; SIZE]);
        assert!(restored[0] >= least, "run {run}: {} after {least}", restored[0]);
        least = restored[0];
        if run == 0 {
            processes[0].expect("saved");
        }
        std::thread::sleep(Duration::from_micros(20_000 + random(&mut state) % 50_000));
        let first = random(&mut state) as usize % SIZE;
        for rank in 0..SIZE {
            let process = &mut processes[(first + rank) % SIZE];
            process.child.kill().unwrap();
            process.child.wait().unwrap();
        }
    }
    assert!(least > 0, "no run has saved anything");
}
