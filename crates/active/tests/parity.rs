//! XOR parity: a member that is killed at any instant is rebuilt, byte by byte (PAPERS AA-13).

mod other;

use other::{Other, ROLE, hex, on_each_path, read_line, token_of};
use pagewire::{Node, Region, Rights, Token};
use pagewire_active::{AttributesOf, Logs, Parity, ParityError, ParityMember};
use std::time::Duration;

const MEMBERS: usize = 3;
const PATHS: [&str; 2] = ["auto", "udp"];
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a member's regions, of which no two have as many.
fn length(member: usize) -> usize {
    150_000 + 20_008 * member
}

/// What the regions of a member have in a round.
fn model(member: usize, round: u64) -> Vec<u8> {
    let mut state = (round << 8 | member as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut bytes = Vec::with_capacity(length(member));
    while bytes.len() < length(member) {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn contents(regions: &[Region<u64>; 2]) -> Vec<u8> {
    let mut bytes = vec![0; (regions[0].bytes() + regions[1].bytes()) as usize];
    let (first, second) = bytes.split_at_mut(regions[0].bytes() as usize);
    regions[0].read_bytes(0, first).unwrap();
    regions[1].read_bytes(0, second).unwrap();
    bytes
}

fn fill(regions: &[Region<u64>; 2], bytes: &[u8]) {
    let (first, second) = bytes.split_at(regions[0].bytes() as usize);
    regions[0].write_bytes(0, first).unwrap();
    regions[1].write_bytes(0, second).unwrap();
}

fn regions(node: &Node, member: usize) -> [Region<u64>; 2] {
    [1000, length(member) / 8 - 1000].map(|words| node.zeroed(words).unwrap())
}

/// A member in a process of its own.
fn run_member() {
    let words = read_line();
    let words: Vec<&str> = words.split_whitespace().collect();
    let (token, member): (Token, usize) = (token_of(words[0]), words[1].parse().unwrap());
    let node = Node::alone().unwrap();
    let regions = regions(&node, member);
    let tokens: Vec<Token> = words[2..].iter().map(|token| token_of(token)).collect();
    let mut this = if tokens.is_empty() {
        ParityMember::join(&node, &token, member).unwrap()
    } else {
        let (this, rebuilt) = ParityMember::rebuild(&node, &token, member, &tokens).unwrap();
        assert_eq!(this.restore(&[&regions[0], &regions[1]]).unwrap(), rebuilt.round);
        assert!(
            contents(&regions) == model(member, rebuilt.round),
            "member {member}, round {}",
            rebuilt.round
        );
        println!("rebuilt {}", rebuilt.round);
        this
    };
    println!("token {}", hex(&this.token().unwrap().to_bytes()));
    loop {
        let Ok(round) = read_line().parse() else { return };
        fill(&regions, &model(member, round));
        loop {
            match this.save(&[&regions[0], &regions[1]]) {
                Ok(saved) => break assert_eq!(saved, round),
                Err(ParityError::BegunAnew { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // What was saved is what counts.
        fill(&regions, &vec![0; length(member)]);
        println!("complete {}", this.wait_complete(PATIENCE).unwrap());
    }
}

/// `PAGEWIRE_PARITY_KILLS`: how often.
#[test]
fn a_member_that_is_killed_at_any_instant_is_rebuilt() {
    const TEST: &str = "a_member_that_is_killed_at_any_instant_is_rebuilt";
    if std::env::var_os(ROLE).is_some() {
        return run_member();
    }
    let kills = std::env::var("PAGEWIRE_PARITY_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let keeper = Node::alone().unwrap();
    let parity = Parity::new(&keeper, MEMBERS, length(MEMBERS - 1) as u64).unwrap();
    let start = |member: usize, path: &str, others: &[String]| {
        let mut process = Other::start(TEST, "member", path);
        let token = hex(&parity.token(member).unwrap().to_bytes());
        process.tell(&format!("{token} {member} {}", others.join(" ")));
        process
    };
    let mut members: Vec<Other> = (0..MEMBERS).map(|member| start(member, PATHS[member % 2], &[])).collect();
    let mut tokens: Vec<String> = members.iter_mut().map(|member| member.expect("token")).collect();
    let mut round = 1;
    let mut state = u64::from(std::process::id());
    eprintln!("seed {state}");
    let complete = |members: &mut [Other], round: u64| {
        members.iter_mut().for_each(|member| assert_eq!(member.expect("complete"), round.to_string()));
    };
    members.iter_mut().for_each(|member| member.tell("1"));
    complete(&mut members, 1);
    let mut in_the_midst = 0;
    for kill in 0..kills {
        round += 1;
        members.iter_mut().for_each(|member| member.tell(&round.to_string()));
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        std::thread::sleep(Duration::from_micros((state >> 33) % 4_000));
        let victim = (state >> 40) as usize % MEMBERS;
        members[victim].child.kill().unwrap();
        members[victim].child.wait().unwrap();
        let others: Vec<String> =
            (0..MEMBERS).filter(|other| *other != victim).map(|other| tokens[other].clone()).collect();
        members[victim] = start(victim, PATHS[(kill + victim) % 2], &others);
        let rebuilt: u64 = members[victim].expect("rebuilt").parse().unwrap();
        assert!(rebuilt == round || rebuilt + 1 == round, "{rebuilt} after round {round} was begun");
        tokens[victim] = members[victim].expect("token");
        if rebuilt == round {
            members.iter_mut().enumerate().filter(|(member, _)| *member != victim).for_each(|(_, member)| {
                assert_eq!(member.expect("complete"), round.to_string());
            });
        } else {
            in_the_midst += 1;
            members[victim].tell(&round.to_string());
            complete(&mut members, round);
        }
    }
    eprintln!("{kills} kills, {in_the_midst} in the midst of a round");
    assert_eq!(parity.complete_round().unwrap(), round);
    members.iter_mut().for_each(|member| member.tell("end"));
}

#[test]
fn each_member_can_be_rebuilt_from_the_others() {
    on_each_path("each_member_can_be_rebuilt_from_the_others", || {
        let keeper = Node::alone().unwrap();
        let parity = Parity::new(&keeper, MEMBERS, length(MEMBERS - 1) as u64).unwrap();
        let nodes = [(); MEMBERS].map(|()| Node::alone().unwrap());
        let memory: Vec<_> = (0..MEMBERS).map(|member| regions(&nodes[member], member)).collect();
        let join = |member: usize| ParityMember::join(&nodes[member], &parity.token(member).unwrap(), member);
        let mut members: Vec<_> = (0..MEMBERS).map(|member| join(member).unwrap()).collect();
        for round in 1..=3 {
            for (member, this) in members.iter_mut().enumerate() {
                fill(&memory[member], &model(member, round));
                assert_eq!(this.save(&[&memory[member][0], &memory[member][1]]).unwrap(), round);
            }
            let waited: Vec<u64> =
                members.iter_mut().map(|member| member.wait_complete(PATIENCE).unwrap()).collect();
            assert_eq!((waited, parity.complete_round().unwrap()), (vec![round; MEMBERS], round));
            for lost in 0..MEMBERS {
                let others =
                    (0..MEMBERS).filter(|other| *other != lost).map(|other| members[other].token().unwrap());
                let others: Vec<_> = others.collect();
                let token = parity.token(lost).unwrap();
                let (new, rebuilt) = ParityMember::rebuild(&keeper, &token, lost, &others).unwrap();
                let there = regions(&keeper, lost);
                new.restore(&[&there[0], &there[1]]).unwrap();
                assert_eq!((rebuilt.round, contents(&there) == model(lost, round)), (round, true));
                let twice = [others[0], others[0]];
                let wrong = ParityMember::rebuild(&keeper, &token, lost, &twice).err().unwrap();
                assert!(matches!(wrong, ParityError::Others { .. }), "{wrong}");
            }
        }
    });
}

#[test]
fn errors_say_what_to_do() {
    let node = Node::alone().unwrap();
    let parity = Parity::new(&node, 2, 4096).unwrap();
    let mut member = ParityMember::join(&node, &parity.token(0).unwrap(), 0).unwrap();
    let (table, large) = (node.zeroed::<u64>(100).unwrap(), node.zeroed::<u64>(513).unwrap());
    let text = |error: ParityError| error.to_string();
    assert!(text(member.save(&[&large]).unwrap_err()).contains("4104 bytes do not fit"));
    assert!(matches!(member.restore(&[&table]), Err(ParityError::Nothing)));
    assert_eq!(member.save(&[&table]).unwrap(), 1);
    assert!(text(member.save(&[&table]).unwrap_err()).contains("round 1 is not complete"));
    let error = member.wait_complete(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(error, ParityError::Timeout { round: 1, .. }), "{error}");
    let join = |token: &Token, member| ParityMember::join(&node, token, member).map(|_| ()).unwrap_err();
    assert!(text(join(&parity.token(1).unwrap(), 2)).contains("member 2 is none of the 2"));
    assert!(text(join(&table.export(Rights::all()).unwrap(), 1)).contains("not that of a parity"));
    assert!(parity.token(2).is_err() && Parity::new(&node, 0, 4096).is_err());
    let nothing = ParityMember::rebuild(&node, &parity.token(1).unwrap(), 1, &[member.token().unwrap()]);
    assert!(matches!(nothing.map(|_| ()), Err(ParityError::Nothing)));
    let mut other = ParityMember::join(&node, &parity.token(1).unwrap(), 1).unwrap();
    other.save(&[&table]).unwrap();
    assert_eq!(member.wait_complete(PATIENCE).unwrap(), 1);
    assert!(text(member.restore(&[&large]).unwrap_err()).contains("has 800 bytes"));
    // Members may read the status and the parity, and change nothing but by their puts to the handler.
    let raw = node.open(&parity.token(0).unwrap()).unwrap();
    assert!(raw.put_value(24, 9u64).wait().is_err());
    drop(raw);
    let raw = node.open(&parity.token(1).unwrap()).unwrap();
    raw.put(4096, vec![0xFFu8; 4096]).wait().unwrap();
    raw.put(2 * 4096, vec![0xFFu8; 4096]).wait().unwrap();
    raw.flush_handled(None).wait().unwrap();
    let rebuilt = ParityMember::rebuild(&node, &parity.token(1).unwrap(), 1, &[member.token().unwrap()]);
    assert_eq!(rebuilt.unwrap().1.bytes, 800, "a round that is complete stays");
}

/// Nothing of them is used: a round that is under way goes on.
#[test]
fn tokens_of_other_members_and_other_parities_are_refused() {
    on_each_path("tokens_of_other_members_and_other_parities_are_refused", || {
        let node = Node::alone().unwrap();
        let parities = [0, 1].map(|_| Parity::new(&node, MEMBERS, 8192).unwrap());
        let table = node.zeroed::<u64>(1000).unwrap();
        let join = |group: usize, token: usize, member: usize| {
            ParityMember::join(&node, &parities[group].token(token).unwrap(), member)
        };
        let mut members = [0, 1].map(|group| [0, 1, 2].map(|member| join(group, member, member).unwrap()));
        for (given, member) in [(0, 1), (1, 0), (2, 0)] {
            let error = join(0, given, member).err().unwrap();
            assert!(matches!(error, ParityError::NotOfMember { .. }), "{error}");
        }
        for group in &mut members {
            group.iter_mut().enumerate().for_each(|(member, this)| {
                table.set(5, member as u64).unwrap();
                assert_eq!(this.save(&[&table]).unwrap(), 1);
            });
        }
        members[0][0].save(&[&table]).unwrap();
        let token = |group: usize, member: usize| members[group][member].token().unwrap();
        let rebuild = |given: usize, others: &[Token]| {
            ParityMember::rebuild(&node, &parities[0].token(given).unwrap(), 1, others)
        };
        let keeper = parities[0].token(2).unwrap();
        let wrong = [
            (vec![token(0, 0), token(0, 0)], "two are of member 0"),
            (vec![token(0, 0), token(0, 1)], "one is of member 1, which is to be rebuilt"),
            (vec![token(0, 0), token(1, 2)], "one is of another parity"),
            (vec![token(0, 0), keeper], "one is not of the checkpoints of a member"),
            (vec![token(0, 0)], "there is 1, and 2 are needed"),
            (vec![], "there is 0, and 2 are needed"),
        ];
        for (others, why) in &wrong {
            let error = rebuild(1, others).err().unwrap();
            assert!(
                matches!(error, ParityError::Others { .. }) && error.to_string().contains(why),
                "{error}"
            );
        }
        let error = rebuild(0, &[token(0, 0), token(0, 2)]).err().unwrap();
        assert!(matches!(error, ParityError::NotOfMember { member: 1 }), "{error}");
        for member in [1, 2] {
            assert_eq!(members[0][member].save(&[&table]).unwrap(), 2);
        }
        assert_eq!(members[0][0].wait_complete(PATIENCE).unwrap(), 2);
        let token = |member: usize| members[0][member].token().unwrap();
        assert_eq!(rebuild(1, &[token(2), token(0)]).unwrap().1.round, 2, "in any order");
    });
}

/// What nobody has read in another log of the keeper holds a member back neither when it joins nor when it saves.
#[test]
fn a_member_waits_for_no_other_handlers_of_the_keeper() {
    let (keeper, node) = (Node::alone().unwrap(), Node::alone().unwrap());
    let (unread, region) = (keeper.access_log(1 << 14).unwrap(), keeper.zeroed::<u64>(512).unwrap());
    region.attributes(..).redirect_puts().to(&unread).unwrap();
    node.open(&region.export(Rights::WRITE).unwrap()).unwrap().put_value(0, 1u64).wait().unwrap();
    let parity = Parity::new(&keeper, 1, 4096).unwrap();
    let mut member = ParityMember::join(&node, &parity.token(0).unwrap(), 0).unwrap();
    assert_eq!(member.save(&[&node.zeroed::<u64>(8).unwrap()]).unwrap(), 1);
    assert_eq!(member.wait_complete(PATIENCE).unwrap(), 1);
}
