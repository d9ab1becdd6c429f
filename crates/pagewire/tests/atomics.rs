//! Atomics that RDMA does not have, against a model, beside others, and their refusals. PAGEWIRE_PATH names the path.

use pagewire::{Failure, Node, Operation, RemoteRegion, Rights, Rule, Side};
use std::sync::atomic::Ordering::Relaxed;

/// A row of numbers that looks random.
fn numbers(mut state: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(state ^ state >> 29)
    })
}

type Whole = (fn(&RemoteRegion, u64, u64) -> Operation<u64>, fn(u64, u64) -> u64);
type Half = (fn(&RemoteRegion, u64, u32) -> Operation<u32>, fn(u32, u32) -> u32);

#[test]
fn each_gives_what_was_and_leaves_what_is_due() {
    const WHOLE: [Whole; 6] = [
        (RemoteRegion::swap, |_, operand| operand),
        (RemoteRegion::fetch_and, |word, operand| word & operand),
        (RemoteRegion::fetch_or, |word, operand| word | operand),
        (RemoteRegion::fetch_xor, |word, operand| word ^ operand),
        (RemoteRegion::fetch_min, u64::min),
        (RemoteRegion::fetch_max, u64::max),
    ];
    const HALF: [Half; 7] = [
        (RemoteRegion::swap_32, |_, operand| operand),
        (RemoteRegion::fetch_add_32, u32::wrapping_add),
        (RemoteRegion::fetch_and_32, |half, operand| half & operand),
        (RemoteRegion::fetch_or_32, |half, operand| half | operand),
        (RemoteRegion::fetch_xor_32, |half, operand| half ^ operand),
        (RemoteRegion::fetch_min_32, u32::min),
        (RemoteRegion::fetch_max_32, u32::max),
    ];
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.words(3).unwrap();
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    let words = table.words();
    words[0].store(1, Relaxed);
    words[2].store(2, Relaxed);
    for (round, number) in numbers(39).take(400).enumerate() {
        let before = words[1].load(Relaxed);
        if round % 2 == 0 {
            let (start, model) = WHOLE[round / 2 % WHOLE.len()];
            assert_eq!(start(&remote, 8, number).wait().unwrap(), before);
            assert_eq!(words[1].load(Relaxed), model(before, number));
            continue;
        }
        let (start, model) = HALF[round / 2 % HALF.len()];
        let (offset, shift) = if number % 3 == 0 { (12, 32) } else { (8, 0) };
        let half = (before >> shift) as u32;
        assert_eq!(start(&remote, offset, number as u32).wait().unwrap(), half);
        let expected = before & !(0xffff_ffff << shift) | u64::from(model(half, number as u32)) << shift;
        assert_eq!(words[1].load(Relaxed), expected, "round {round}");
    }
    assert_eq!((words[0].load(Relaxed), words[2].load(Relaxed)), (1, 2));
}

#[test]
fn signed_ones_and_compare_swap_of_4_bytes() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.words(1).unwrap();
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    assert_eq!(remote.fetch_min_signed(0, -5).wait().unwrap(), 0);
    assert_eq!(remote.fetch_max_signed(0, i64::MIN).wait().unwrap(), -5);
    assert_eq!(remote.fetch_max_signed(0, 3).wait().unwrap(), -5);
    assert_eq!(remote.fetch_min_signed_32(4, -1).wait().unwrap(), 0);
    assert_eq!(remote.fetch_max_signed_32(4, -7).wait().unwrap(), -1);
    assert_eq!(remote.compare_swap_32(0, 4, 9).wait().unwrap(), 3);
    assert_eq!(remote.compare_swap_32(0, 3, 9).wait().unwrap(), 3);
    assert_eq!(remote.compare_swap_32(4, u32::MAX, 8).wait().unwrap(), u32::MAX);
    assert_eq!(table.words()[0].load(Relaxed), 8 << 32 | 9);
}

/// Two processes and the owner's own processor change the halves of one word: nothing is lost.
#[test]
fn halves_are_changed_side_by_side() {
    const EACH: u32 = 500;
    let owner = Node::alone().unwrap();
    let table = owner.words(1).unwrap();
    let token = table.export(Rights::ATOMIC).unwrap();
    std::thread::scope(|scope| {
        for offset in [0, 4, 4] {
            scope.spawn(move || {
                let caller = Node::alone().unwrap();
                let remote = caller.open(&token).unwrap();
                // Several at a time.
                for _ in 0..EACH / 10 {
                    let started: Vec<_> = (0..10).map(|_| remote.fetch_add_32(offset, 3)).collect();
                    for add in started {
                        add.wait().unwrap();
                    }
                }
            });
        }
        for _ in 0..EACH {
            table.words()[0].fetch_add(1 << 32, Relaxed);
        }
    });
    let expected = (u64::from(2 * 3 * EACH + EACH) << 32) + u64::from(3 * EACH);
    assert_eq!(table.words()[0].load(Relaxed), expected);
}

fn rule_of<W: std::fmt::Debug + Send + 'static>(operation: Operation<W>) -> Rule {
    match operation.wait().unwrap_err().failure {
        Failure::Refused { rule, side: Side::Caller, .. } => rule,
        other => panic!("{other}"),
    }
}

#[test]
fn half_words_have_bounds_of_their_own() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.words(4).unwrap();
    let remote = caller.open(&table.export_part(4..28, Rights::ATOMIC).unwrap()).unwrap();
    // The first 4 bytes and the last ones belong to words that are not whole in it.
    assert_eq!(rule_of(remote.fetch_add_32(0, 1)), Rule::HalfOutside { offset: 0, length: 24 });
    assert_eq!(rule_of(remote.swap_32(20, 1)), Rule::HalfOutside { offset: 20, length: 24 });
    assert_eq!(remote.fetch_or_32(4, 1).wait().unwrap(), 0);
    assert_eq!(remote.fetch_or_32(16, 2).wait().unwrap(), 0);
    assert_eq!(rule_of(remote.fetch_min_32(6, 1)), Rule::HalfAlignment { offset: 6 });
    assert_eq!(rule_of(remote.fetch_min_signed_32(24, 1)), Rule::Bounds { offset: 24, count: 4, length: 24 });
    assert_eq!(rule_of(remote.fetch_max(8, 1)), Rule::Alignment { offset: 8 });
    let words = table.words();
    assert_eq!(words.iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>(), [0, 1, 2 << 32, 0]);
    let readable = caller.open(&table.export(Rights::READ).unwrap()).unwrap();
    assert!(matches!(rule_of(readable.fetch_and(0, 1)), Rule::Rights(_)));
    assert!(matches!(rule_of(readable.fetch_and_32(0, 1)), Rule::Rights(_)));
}

#[test]
fn refused_and_lost_ones_say_so() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.words(2).unwrap();
    let token = table.export(Rights::ATOMIC).unwrap();
    let remote = caller.open(&token).unwrap();
    owner.unexport(&token).unwrap();
    let refused = remote.fetch_max(0, 1).wait().unwrap_err().failure;
    assert!(matches!(refused, Failure::Refused { rule: Rule::Key, side: Side::Target, .. }), "{refused}");
    let remote = caller.open(&table.export(Rights::ATOMIC).unwrap()).unwrap();
    drop(table);
    drop(owner);
    let lost = remote.fetch_xor_32(4, 1).wait().unwrap_err().failure;
    assert!(matches!(lost, Failure::PeerLost { .. }), "{lost}");
}
