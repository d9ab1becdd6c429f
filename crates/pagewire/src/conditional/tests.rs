//! Both sides of conditional writes in virtual time: messages in order for each direction and at any time, as RC gives them.

use super::message::{Ending, Release};
use super::releases::{OpenOutcome, Opening, Outgoing, Releases};
use super::tag::{Direction, Tag};
use super::writes::{ReleaseArrival, WriteTable};
use crate::limits::RELEASE_PATIENCE;
use crate::regions::rights::Rights;
use crate::regions::token::{NodeAddress, Token};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

fn node(port: u16) -> NodeAddress {
    NodeAddress { address: Ipv4Addr::LOCALHOST.into(), port, nonce: u64::from(port) }
}

/// Messages arrive sooner: else RC gives their connection up, and both sides learn of that.
const LONGEST_IN_FLIGHT: Duration = Duration::from_secs(40);

const WRITER: u16 = 1;
const RECEIVER: u16 = 2;

/// What the program of either side does, and what time and network do.
#[derive(Debug, Clone, Copy)]
enum ScriptEvent {
    Open(Tag),
    Cancel(Tag),
    Release(Tag),
    ReleaseAny(Tag),
    ToReceiver,
    ToWriter,
    Pass(u64),
    Lose,
}

fn event() -> impl Strategy<Value = ScriptEvent> {
    let tag = 0u64..3;
    prop_oneof![
        4 => tag.clone().prop_map(ScriptEvent::Open),
        2 => tag.clone().prop_map(ScriptEvent::Cancel),
        4 => tag.clone().prop_map(ScriptEvent::Release),
        1 => tag.prop_map(ScriptEvent::ReleaseAny),
        8 => Just(ScriptEvent::ToReceiver),
        8 => Just(ScriptEvent::ToWriter),
        2 => (1u64..40).prop_map(ScriptEvent::Pass),
        1 => Just(ScriptEvent::Lose),
    ]
}

/// How a release ends: with the bytes of its write, or without it.
type ReleaseResult = Result<u64, Ending>;

enum ToReceiver {
    Open(Opening),
    Ended { serial: u64, release: Option<u32>, end: ReleaseResult },
}

/// Both nodes and what is between them. A write is its serial, a release its own number among all of the program.
#[derive(Default)]
struct World {
    now: Duration,
    /// For how long messages may have been on their way.
    in_flight: Duration,
    writes: WriteTable<u64>,
    releases: Releases<u64>,
    to_receiver: VecDeque<ToReceiver>,
    to_writer: VecDeque<Release>,
    serial: u64,
    started: u64,
    /// The writes that are held, as the program knows them.
    open: HashMap<Tag, u64>,
    /// How each write has ended, and each release.
    write_ends: HashMap<u64, &'static str>,
    release_ends: HashMap<u64, Option<ReleaseResult>>,
}

impl World {
    fn end_write(&mut self, serial: u64, how: &'static str) {
        self.open.retain(|_, open| *open != serial);
        assert_eq!(self.write_ends.insert(serial, how), None, "a write ends once");
    }

    fn end_release(&mut self, release: u64, how: Option<ReleaseResult>) {
        assert_eq!(self.release_ends.insert(release, how), None, "a release ends once");
    }

    fn write(&mut self, serial: u64, release: &Release) {
        self.end_write(serial, "written");
        let (release, end) = (Some(release.number), Ok(8));
        self.to_receiver.push_back(ToReceiver::Ended { serial, release, end });
    }

    fn withdraw(&mut self, serial: u64, how: &'static str) {
        self.end_write(serial, how);
        let end = Err(Ending::Withdrawn);
        self.to_receiver.push_back(ToReceiver::Ended { serial, release: None, end });
    }

    fn send(&mut self, outgoing: &Outgoing) {
        assert_eq!(outgoing.peer, node(WRITER));
        self.to_writer.push_back(Release::new(outgoing));
    }

    fn happen(&mut self, event: ScriptEvent) {
        match event {
            ScriptEvent::Open(tag) => self.open(tag),
            ScriptEvent::Cancel(tag) => {
                let Some(serial) = self.open.get(&tag).copied() else { return };
                if self.writes.take(&(node(RECEIVER), tag), serial, self.now).is_some() {
                    self.withdraw(serial, "cancelled");
                }
            }
            ScriptEvent::Release(tag) => {
                self.started += 1;
                let token = Token::of_node(node(RECEIVER));
                match self.releases.release(node(WRITER), tag, token, (self.started, self.now)) {
                    Ok(outgoing) => self.send(&outgoing),
                    Err((_, release)) => self.end_release(release, None),
                }
            }
            ScriptEvent::ReleaseAny(tag) => {
                self.started += 1;
                let token = Token::of_node(node(RECEIVER));
                match self.releases.release_any(tag, token, (self.started, self.now)) {
                    Ok(Some(outgoing)) => self.send(&outgoing),
                    Ok(None) => {}
                    Err((_, release)) => self.end_release(release, None),
                }
            }
            ScriptEvent::ToReceiver => self.at_receiver(),
            ScriptEvent::ToWriter => self.at_writer(),
            ScriptEvent::Pass(seconds) => {
                let time = Duration::from_secs(seconds);
                if self.in_flight + time > LONGEST_IN_FLIGHT {
                    self.deliver();
                }
                self.now += time;
                self.in_flight += time;
                self.run_timers();
            }
            ScriptEvent::Lose => self.lose(),
        }
    }

    fn open(&mut self, tag: Tag) {
        self.serial += 1;
        let serial = self.serial;
        let opening = Opening { peer: node(WRITER), tag, serial, length: 8, direction: Direction::Write };
        match self.writes.hold((node(RECEIVER), tag), serial, serial) {
            Ok(None) => {
                assert_eq!(self.open.insert(tag, serial), None);
                if serial % 2 == 0 {
                    let deadline = self.now + Duration::from_secs(20);
                    self.writes.set_deadline(&(node(RECEIVER), tag), serial, deadline);
                }
                self.to_receiver.push_back(ToReceiver::Open(opening));
            }
            Ok(Some((serial, release))) => {
                self.to_receiver.push_back(ToReceiver::Open(opening));
                self.write(serial, &release);
            }
            Err((_, serial)) => {
                assert!(self.open.contains_key(&tag), "it is refused since another one is held");
                self.end_write(serial, "refused");
            }
        }
    }

    fn at_receiver(&mut self) {
        match self.to_receiver.pop_front() {
            None => {}
            Some(ToReceiver::Open(opening)) => {
                if let OpenOutcome::Released(outgoing) = self.releases.open(opening) {
                    self.send(&outgoing);
                }
            }
            Some(ToReceiver::Ended { serial, release, end }) => {
                self.releases.close(&node(WRITER), serial);
                if let Some(ended) = release.and_then(|number| self.releases.end(&node(WRITER), number)) {
                    self.end_release(ended, Some(end));
                }
            }
        }
    }

    fn at_writer(&mut self) {
        let Some(release) = self.to_writer.pop_front() else { return };
        self.run_timers();
        let ending = match self.writes.release(node(RECEIVER), &release, self.now) {
            ReleaseArrival::Start(serial) => return self.write(serial, &release),
            ReleaseArrival::Kept => return,
            ReleaseArrival::Withdrawn => Ending::Withdrawn,
            ReleaseArrival::Full => Ending::Full,
        };
        let (serial, release) = (release.serial.unwrap_or_default(), Some(release.number));
        self.to_receiver.push_back(ToReceiver::Ended { serial, release, end: Err(ending) });
    }

    fn run_timers(&mut self) {
        let expired = self.writes.expire(self.now);
        for (_, serial) in expired.writes {
            self.withdraw(serial, "timed out");
        }
        for (_, number) in expired.releases {
            let (release, end) = (Some(number), Err(Ending::NoWrite));
            self.to_receiver.push_back(ToReceiver::Ended { serial: 0, release, end });
        }
        for release in self.releases.expire(self.now) {
            self.end_release(release, Some(Err(Ending::NoWrite)));
        }
    }

    /// The connection is lost, with what is under way in it. Both sides learn of it.
    fn lose(&mut self) {
        self.to_receiver.clear();
        self.to_writer.clear();
        for serial in self.writes.lose(&node(RECEIVER)) {
            self.end_write(serial, "peer lost");
        }
        for release in self.releases.lose(&node(WRITER)) {
            self.end_release(release, Some(Err(Ending::Lost)));
        }
        self.releases.forget(&node(WRITER), self.now);
    }

    /// Everything arrives.
    fn deliver(&mut self) {
        while !self.to_receiver.is_empty() || !self.to_writer.is_empty() {
            self.at_receiver();
            self.at_writer();
        }
        self.in_flight = Duration::ZERO;
    }

    /// Everything arrives, and time passes until all patience is over.
    fn finish(&mut self) {
        for _ in 0..4 {
            self.deliver();
            self.now += RELEASE_PATIENCE;
            self.run_timers();
        }
        for tag in self.open.clone().into_keys() {
            self.happen(ScriptEvent::Cancel(tag));
        }
        self.now += RELEASE_PATIENCE;
        self.run_timers();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Whatever happens in whichever order: each write and each release has exactly one end, and as many releases end as written as writes do
    /// (except those whose message is lost with the peer).
    #[test]
    fn each_write_and_each_release_ends_once(events in prop::collection::vec(event(), 0..60)) {
        let mut world = World::default();
        let loses = events.iter().any(|event| matches!(event, ScriptEvent::Lose));
        for event in events {
            world.happen(event);
        }
        world.finish();
        prop_assert_eq!(world.write_ends.len() as u64, world.serial, "every write has ended");
        prop_assert_eq!(world.release_ends.len() as u64, world.started, "every release has ended");
        let written = world.write_ends.values().filter(|how| **how == "written").count();
        let released = world.release_ends.values().filter(|how| matches!(how, Some(Ok(_)))).count();
        prop_assert!(released == written || (loses && released < written), "{} written, {} released", written, released);
        prop_assert_eq!(world.writes.next_deadline(), None);
        prop_assert_eq!(world.releases.next_deadline(), None);
    }

    /// Bytes of strangers are no message, or are the message that they encode.
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
        if let Some(message) = super::message::ConditionalMessage::decode(&bytes) {
            prop_assert!(super::message::ConditionalMessage::decode(&message.encode()) == Some(message));
        }
    }
}

#[test]
fn a_release_of_a_cancelled_write_takes_no_later_one() {
    let mut world = World::default();
    // Released before its opening was read, and cancelled before its release was.
    for event in
        [ScriptEvent::Open(1), ScriptEvent::Release(1), ScriptEvent::Cancel(1), ScriptEvent::ToWriter]
    {
        world.happen(event);
    }
    world.happen(ScriptEvent::Open(1));
    world.finish();
    assert_eq!(world.release_ends[&1], Some(Err(Ending::Withdrawn)));
    assert_eq!((world.write_ends[&1], world.write_ends[&2]), ("cancelled", "timed out"));
}

#[test]
fn tokens_of_releases_come_whole() {
    let token = Token { rights: Rights::WRITE, key: 7, base: 8, length: 9, ..Token::of_node(node(1)) };
    let outgoing = Outgoing {
        peer: node(2),
        tag: u64::MAX,
        serial: Some(u64::MAX),
        seen: u64::MAX,
        number: u32::MAX,
        token,
    };
    let message = super::message::ConditionalMessage::Release(Release::new(&outgoing));
    let bytes = message.encode();
    assert!(bytes.len() <= crate::limits::MAX_MESSAGE, "{}", bytes.len());
    assert!(super::message::ConditionalMessage::decode(&bytes) == Some(message));
}

/// What two threads of the writer's process may do at the same time, and what became of the one write.
mod races {
    use super::{RECEIVER, node};
    use crate::conditional::message::Release;
    use crate::conditional::releases::Outgoing;
    use crate::conditional::writes::{ReleaseArrival, WriteTable};
    use crate::limits::RELEASE_PATIENCE;
    use crate::regions::token::Token;
    use std::time::Duration;

    pub const TAG: u64 = 1;
    const SERIAL: u64 = 1;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum WriteAction {
        Post,
        Release,
        Cancel,
        Expire,
        Lose,
    }

    pub const ALL: [WriteAction; 5] = [
        WriteAction::Post,
        WriteAction::Release,
        WriteAction::Cancel,
        WriteAction::Expire,
        WriteAction::Lose,
    ];

    /// What an action has done to the write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ActionEffect {
        Nothing,
        /// Its bytes go out.
        Starts,
        /// It has ended, and no byte goes out.
        Ends,
    }

    fn ends(taken: bool) -> ActionEffect {
        if taken { ActionEffect::Ends } else { ActionEffect::Nothing }
    }

    /// Does it, with the table's lock held.
    pub fn act(writes: &mut WriteTable<()>, action: WriteAction) -> ActionEffect {
        let key = (node(RECEIVER), TAG);
        match action {
            WriteAction::Post => match writes.hold(key, SERIAL, ()) {
                Ok(None) => {
                    writes.set_deadline(&key, SERIAL, Duration::from_secs(1));
                    ActionEffect::Nothing
                }
                Ok(Some(_)) => ActionEffect::Starts,
                Err(_) => panic!("there is one write"),
            },
            WriteAction::Release => {
                let token = Token::of_node(node(RECEIVER));
                let peer = node(RECEIVER);
                let outgoing = Outgoing { peer, tag: TAG, serial: None, seen: 0, number: 1, token };
                match writes.release(node(RECEIVER), &Release::new(&outgoing), Duration::ZERO) {
                    ReleaseArrival::Start(()) => ActionEffect::Starts,
                    ReleaseArrival::Kept | ReleaseArrival::Withdrawn => ActionEffect::Nothing,
                    ReleaseArrival::Full => panic!("there is one release"),
                }
            }
            WriteAction::Cancel => ends(writes.take(&key, SERIAL, Duration::ZERO).is_some()),
            WriteAction::Expire => {
                ends(!writes.expire(RELEASE_PATIENCE - Duration::from_secs(1)).writes.is_empty())
            }
            WriteAction::Lose => ends(!writes.lose(&node(RECEIVER)).is_empty()),
        }
    }

    /// The write was posted: it has one end, or is held still and then has one.
    pub fn finish(writes: &mut WriteTable<()>, effects: &[ActionEffect]) {
        let before = effects.iter().filter(|effect| **effect != ActionEffect::Nothing).count();
        let after = act(writes, WriteAction::Cancel);
        assert_eq!(before + usize::from(after == ActionEffect::Ends), 1, "{effects:?}, then {after:?}");
    }
}

/// Two actions at the same time, in all orders of their steps: one end, and no byte behind a cancel that has returned.
#[test]
fn pairs_of_actions_end_a_write_once() {
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::sync::{Arc, Mutex};
    use races::{ALL, ActionEffect, WriteAction, act, finish};
    for (index, one) in ALL.into_iter().enumerate() {
        for other in ALL.into_iter().skip(index + 1) {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(3);
            model.check(move || {
                let writes = Arc::new(Mutex::new(WriteTable::default()));
                let (written, cancelled) =
                    (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
                if one != WriteAction::Post {
                    act(&mut writes.lock().unwrap(), WriteAction::Post);
                }
                let threads = [one, other].map(|action| {
                    let (writes, written, cancelled) = (writes.clone(), written.clone(), cancelled.clone());
                    loom::thread::spawn(move || {
                        let effect = act(&mut writes.lock().unwrap(), action);
                        match (effect, action) {
                            (ActionEffect::Starts, _) => {
                                // The bytes go out with no lock held.
                                written.store(true, Ordering::SeqCst);
                                assert!(!cancelled.load(Ordering::SeqCst), "a byte behind a cancel");
                            }
                            (ActionEffect::Ends, WriteAction::Cancel) => {
                                cancelled.store(true, Ordering::SeqCst);
                                assert!(!written.load(Ordering::SeqCst), "a byte before a cancel");
                            }
                            _ => {}
                        }
                        effect
                    })
                });
                let effects = threads.map(|thread| thread.join().unwrap());
                finish(&mut writes.lock().unwrap(), &effects);
            });
        }
    }
}

/// All five at the same time, by so many random schedules (`PAGEWIRE_SCHEDULES`).
#[test]
fn all_actions_at_once_end_a_write_once() {
    use races::{ALL, act, finish};
    use shuttle::sync::{Arc, Mutex};
    let schedules = std::env::var("PAGEWIRE_SCHEDULES").map_or(2000, |text| text.parse().expect("a number"));
    shuttle::check_random(
        || {
            let writes = Arc::new(Mutex::new(WriteTable::default()));
            let threads = ALL.map(|action| {
                let writes = writes.clone();
                shuttle::thread::spawn(move || act(&mut writes.lock().unwrap(), action))
            });
            let effects = threads.map(|thread| thread.join().unwrap());
            finish(&mut writes.lock().unwrap(), &effects);
        },
        schedules,
    );
}
