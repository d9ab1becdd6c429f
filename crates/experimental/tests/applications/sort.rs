//! A sort between processes that die and are started again.

use crate::other::{Other, role, say};
use pagewire::Node;
use pagewire_experimental::sort::{SortError, SortOptions, sort};
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYS: u64 = 20_000;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pagewire-sort-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Keys of a process: many are there several times.
fn keys(rank: usize) -> Vec<u64> {
    let key = |index: u64| (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (index % 3 * 20);
    (0..KEYS).map(|index| key(rank as u64 * KEYS + index)).collect()
}

fn member() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let (rank, size) = (number("PAGEWIRE_SORT_RANK"), number("PAGEWIRE_SORT_SIZE"));
    let folder = PathBuf::from(std::env::var_os("PAGEWIRE_SORT_FOLDER").unwrap());
    let node = Node::alone().unwrap();
    let options = SortOptions { patience: Duration::from_secs(60), ..SortOptions::new(&folder, rank, size) };
    say("begun");
    let sorted = sort(&node, &options, || keys(rank)).unwrap();
    let all = size as u64 * KEYS;
    assert_eq!(sorted.position, all * rank as u64 / size as u64);
    let bytes: Vec<u8> = sorted.keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    let fresh = folder.join(format!("fresh-{rank}"));
    std::fs::write(&fresh, bytes).unwrap();
    std::fs::rename(fresh, folder.join(format!("sorted-{rank}"))).unwrap();
    let statistics = sorted.statistics;
    say(&format!("sorted {} {} {}", statistics.gets, statistics.from_logs, statistics.peers_lost));
}

fn start(test: &str, path: &str, folder: &Path, rank: usize, size: usize) -> Other {
    let (rank, size) = (rank.to_string(), size.to_string());
    let variables = [
        ("PAGEWIRE_PATH", path),
        ("PAGEWIRE_SORT_FOLDER", folder.to_str().unwrap()),
        ("PAGEWIRE_SORT_RANK", &rank),
        ("PAGEWIRE_SORT_SIZE", &size),
    ];
    Other::start_with(test, "member", &variables)
}

/// Gets, keys from logs, and processes lost.
fn statistics(member: &mut Other) -> [u64; 3] {
    let text = member.expect("sorted ");
    let mut numbers = text.split(' ').map(|number| number.parse().unwrap());
    [0; 3].map(|_| numbers.next().unwrap())
}

fn check(folder: &Path, size: usize) {
    let mut expected: Vec<u64> = (0..size).flat_map(keys).collect();
    expected.sort_unstable();
    let file = |rank: usize| std::fs::read(folder.join(format!("sorted-{rank}"))).unwrap();
    let bytes: Vec<u8> = (0..size).flat_map(file).collect();
    let expected: Vec<u8> = expected.iter().flat_map(|key| key.to_le_bytes()).collect();
    assert!(bytes == expected, "the parts make the sorted whole");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn keys_of_processes_are_sorted() {
    const TEST: &str = "sort::keys_of_processes_are_sorted";
    if role().is_some() {
        return member();
    }
    for (path, size) in [("local", 3), ("udp", 2)] {
        let folder = folder(path);
        let mut members: Vec<Other> = (0..size).map(|rank| start(TEST, path, &folder, rank, size)).collect();
        for member in &mut members {
            let [gets, from_logs, lost] = statistics(member);
            assert!(
                gets >= KEYS && (from_logs, lost) == (0, 0),
                "{gets} gets, {from_logs} from logs, {lost} lost"
            );
        }
        drop(members);
        check(&folder, size);
    }
}

/// One process at a time is killed at any instant, and started again (`PAGEWIRE_ACTIVE_KILLS`: how often).
#[test]
fn a_sort_survives_the_death_of_any_process() {
    const TEST: &str = "sort::a_sort_survives_the_death_of_any_process";
    const SIZE: usize = 2;
    if role().is_some() {
        return member();
    }
    let kills = std::env::var("PAGEWIRE_ACTIVE_KILLS").map_or(6, |kills| kills.parse().unwrap());
    let (mut random, mut from_logs, mut lost) = (3u64, 0, 0);
    for round in 0..kills {
        let path = ["local", "udp"][round % 2];
        let folder = folder(&format!("kill-{round}"));
        let mut members: Vec<Other> = (0..SIZE).map(|rank| start(TEST, path, &folder, rank, SIZE)).collect();
        let victim = round / 2 % SIZE;
        members[victim].expect("begun");
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        // It gets keys from some time on: half of the kills come there.
        let token = folder.join(format!("token-{}", 1 - victim));
        while round % 3 != 0 && !token.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros((random >> 33) % 60_000));
        members[victim].kill();
        if !folder.join(format!("sorted-{victim}")).exists() {
            members[victim] = start(TEST, path, &folder, victim, SIZE);
            for (rank, member) in members.iter_mut().enumerate() {
                let [_, logs, gone] = statistics(member);
                from_logs += if rank == victim { logs } else { 0 };
                lost += gone;
            }
        } else {
            statistics(&mut members[1 - victim]);
        }
        drop(members);
        check(&folder, SIZE);
    }
    assert!(kills < 50 || from_logs > 0 && lost > 0, "some die while they get keys");
    println!("{from_logs} keys came from logs, {lost} times a process was lost");
}

#[test]
fn what_cannot_be_sorted_says_why() {
    let node = Node::alone().unwrap();
    let folder = folder("wrong");
    let error = sort(&node, &SortOptions::new(&folder, 2, 2), Vec::new).unwrap_err();
    assert!(matches!(error, SortError::Processes { rank: 2, size: 2, .. }), "{error}");
    let options = SortOptions { patience: Duration::from_millis(50), ..SortOptions::new(&folder, 0, 2) };
    let error = sort(&node, &options, || vec![1]).unwrap_err();
    assert!(matches!(error, SortError::NotThere { rank: 1, .. }), "{error}");
    std::fs::write(folder.join("run-0"), b"nonsense").unwrap();
    let error = sort(&node, &options, || vec![1]).unwrap_err();
    assert!(matches!(error, SortError::File { .. }) && error.to_string().contains("delete it"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
    let error = sort(&node, &options, || vec![1]).unwrap_err();
    assert!(matches!(error, SortError::File { .. }), "{error}");
}

#[test]
fn no_keys_are_a_result_too() {
    let node = Node::alone().unwrap();
    let folder = folder("none");
    assert_eq!(sort(&node, &SortOptions::new(&folder, 0, 1), Vec::new).unwrap().keys, []);
    std::fs::remove_dir_all(&folder).unwrap();
}
