//! Futures that are dropped or forgotten after each number of polls: what they own is nobody else's before their operation has ended.
//!
//! The checker is a buffer that notices its end: from then on nothing may write it, and a put must not have sent what it holds then.

use pagewire::*;
use std::future::Future;
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

/// What a buffer holds behind its end.
const ENDED: u64 = 0xDEAD_DEAD_DEAD_DEAD;
/// What those of puts hold.
const SENT: u64 = 0x5555_5555_5555_5555;
/// Polls before a future is given up.
const POLLS: usize = 3;
/// Words of the table of the owner.
const TABLE: usize = 1 << 16;

/// Buffers that have ended. Their memory is never given back.
static QUARANTINE: Mutex<Vec<&'static [AtomicU64]>> = Mutex::new(Vec::new());

fn quarantine() -> MutexGuard<'static, Vec<&'static [AtomicU64]>> {
    // A check that has failed leaves it as it was.
    QUARANTINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A buffer that notices its end.
struct Watched {
    words: &'static [AtomicU64],
}

impl Watched {
    fn new(count: usize, value: u64) -> Self {
        Watched { words: Vec::leak((0..count).map(|_| AtomicU64::new(value)).collect()) }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.words.iter().for_each(|word| word.store(ENDED, Ordering::Relaxed));
        quarantine().push(self.words);
    }
}

// SAFETY: the words are leaked, so they lie where they are for ever.
unsafe impl Buffer for Watched {
    fn bytes(&self) -> (*const u8, usize) {
        (self.words.as_ptr().cast(), size_of_val(self.words))
    }
}

// SAFETY: they are atomics of this value alone, and may have any value.
unsafe impl BufferMut for Watched {}

/// Nothing has written a buffer behind its end.
fn check_quarantine(what: &str) {
    for words in quarantine().iter() {
        let written = words.iter().position(|word| word.load(Ordering::Relaxed) != ENDED);
        assert_eq!(written, None, "{what}: word {written:?} of {} was written behind its end", words.len());
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum GivenUp {
    Dropped,
    Forgotten,
}

/// Polls a future so often, and gives it up.
fn give_up<F: Future>(future: F, polls: usize, how: GivenUp) {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if future.as_mut().poll(&mut context).is_ready() {
            break;
        }
    }
    match how {
        GivenUp::Dropped => drop(future),
        GivenUp::Forgotten => std::mem::forget(future),
    }
}

/// Does something for each number of polls, and both ways to give a future up.
fn each(mut run: impl FnMut(usize, GivenUp)) {
    for polls in 0..=POLLS {
        for how in [GivenUp::Dropped, GivenUp::Forgotten] {
            run(polls, how);
        }
    }
}

struct Pair {
    owner: Node,
    caller: Node,
    table: Region<u64>,
    remote: RemoteRegion,
}

impl Pair {
    fn new() -> Self {
        let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
        let table = owner.zeroed::<u64>(TABLE).unwrap();
        let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
        Pair { owner, caller, table, remote }
    }

    /// Everything has ended: what was sent is what the buffers held then.
    fn flush_and_check(&self, what: &str) {
        match self.caller.flush() {
            // Of a write that was given up before it was cancelled.
            Ok(()) | Err(Failure::Cancelled { .. }) => {}
            Err(failure) => panic!("{what}: {failure}"),
        }
        check_quarantine(what);
        let mut words = vec![0; TABLE];
        self.table.read(0, &mut words).unwrap();
        let strange = words.iter().position(|word| ![0, SENT].contains(word) && *word > 1 << 20);
        assert_eq!(strange, None, "{what}: a word was sent from a buffer that had ended");
    }
}

fn puts(pair: &Pair, count: usize) {
    let remote = &pair.remote;
    each(|polls, how| {
        give_up(remote.put(0, Watched::new(count, SENT)), polls, how);
        let signal = remote.signal(8 * (TABLE as u64 - 1)).add(1);
        give_up(remote.put_signal(0, Watched::new(count, SENT), signal), polls, how);
        let half = 8 * (count as u64 / 2);
        let pieces = [(half, 8 * count - half as usize), (0, half as usize)];
        give_up(remote.put_scattered(&pieces, Watched::new(count, SENT)), polls, how);
        give_up(remote.put_strided(0, 8, 8, Watched::new(count.min(300), SENT)), polls, how);
        for put in remote.put_batch([(0, Watched::new(count, SENT)), (8, Watched::new(8, SENT))]) {
            give_up(put, polls, how);
        }
    });
    pair.flush_and_check("puts");
}

fn gets(pair: &Pair, count: usize) {
    let remote = &pair.remote;
    each(|polls, how| {
        give_up(remote.get_into(0, Watched::new(count, 0)), polls, how);
        give_up(remote.get_scattered(&[(64, 8 * count - 8), (0, 8)], Watched::new(count, 0)), polls, how);
        give_up(remote.get_strided(0, 16, 8, Watched::new(count.min(300), 0)), polls, how);
    });
    pair.flush_and_check("gets");
}

fn words(pair: &Pair) {
    let (remote, word) = (&pair.remote, 8 * (TABLE as u64 - 2));
    let mut sum = 0;
    each(|polls, how| {
        give_up(remote.fetch_add(word, 1), polls, how);
        give_up(remote.compare_swap(word - 8, 0, 1), polls, how);
        give_up(remote.swap(word - 8, 1), polls, how);
        give_up(remote.signal_only(remote.signal(word + 8).add(1)), polls, how);
        sum += 1;
    });
    pair.flush_and_check("atomics");
    assert_eq!(pair.table.get(TABLE - 2).unwrap(), sum, "each was done once");
}

fn flushes(pair: &Pair) {
    each(|polls, how| {
        drop(pair.remote.get_into(0, Watched::new(TABLE, 0)));
        give_up(pair.remote.start_flush(), polls, how);
        give_up(pair.caller.start_flush(), polls, how);
    });
    pair.flush_and_check("flushes");
}

/// What is waited for by nobody else: an opening goes to who asks next, and a signal is the owner's own.
fn waits(pair: &Pair) {
    let signal = pair.table.signal(8 * (TABLE as u64 - 3)).unwrap();
    each(|polls, how| {
        give_up(pair.owner.conditional_request(), polls, how);
        give_up(signal.reaches(|value| value == 9), polls, how);
    });
    let held = pair.caller.conditional_write(pair.owner.identity(), 1, vec![1u64]).unwrap();
    let opened = pair.owner.next_conditional_request(Duration::from_secs(20)).unwrap();
    opened.decline();
    assert!(matches!(held.wait(), WriteOutcome::Refused(..)));
}

fn conditional(pair: &Pair, count: usize) {
    let (writer, receiver) = (&pair.caller, &pair.owner);
    let token = pair.table.export_part(0..8 * count as u64, Rights::WRITE).unwrap();
    let mut tag = 100;
    each(|polls, how| {
        // Released before it is given up, behind that, and never.
        for order in 0..3 {
            tag += 1;
            let held = writer.conditional_write(receiver.identity(), tag, Watched::new(count, SENT)).unwrap();
            let canceller = held.canceller();
            let release = || receiver.accept_conditional_write(writer.identity(), tag, &token).unwrap();
            let released = (order == 0).then(release);
            give_up(held, polls, how);
            match released.or_else(|| (order == 1).then(release)) {
                // Its end comes, whoever has given up.
                Some(released) if polls % 2 == 0 => assert_eq!(released.wait().unwrap(), 8 * count as u64),
                Some(released) => give_up(released, polls, how),
                None => canceller.cancel(),
            }
        }
    });
    pair.flush_and_check("conditional writes");
}

/// Nodes that end while operations of given-up futures are under way.
fn ends(count: usize) {
    each(|polls, how| {
        let Pair { owner, caller, table, remote } = Pair::new();
        give_up(remote.get_into(0, Watched::new(count, 0)), polls, how);
        give_up(remote.put(0, Watched::new(count, SENT)), polls, how);
        give_up(
            caller.conditional_write(owner.identity(), 5, Watched::new(count, SENT)).unwrap(),
            polls,
            how,
        );
        if polls % 2 == 0 {
            drop((caller, remote));
            check_quarantine("a caller that ends");
            drop((table, owner));
        } else {
            drop((table, owner));
            drop((caller, remote));
        }
        check_quarantine("nodes that end");
    });
}

fn all() {
    let pair = Pair::new();
    for count in [1, TABLE / 2] {
        puts(&pair, count);
        gets(&pair, count);
        conditional(&pair, count);
    }
    words(&pair);
    flushes(&pair);
    waits(&pair);
    ends(TABLE);
    drop(pair);
    std::thread::sleep(Duration::from_millis(50));
    check_quarantine("the end");
    assert!(quarantine().len() > 100, "{} buffers have ended", quarantine().len());
}

/// This test, in a process of its own for each path.
#[test]
fn what_futures_own_outlives_them() {
    const PATH: &str = "PAGEWIRE_TEST_FORGOTTEN";
    if std::env::var_os(PATH).is_some() {
        return all();
    }
    for path in ["auto", "udp"] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "what_futures_own_outlives_them", "--nocapture"])
            .envs([(PATH, "yes"), ("PAGEWIRE_PATH", path)])
            .status()
            .unwrap();
        assert!(status.success(), "path {path}");
    }
}

/// The checker itself: it notices a write behind the end.
#[test]
fn a_write_behind_the_end_is_noticed() {
    let buffer = Watched::new(4, 0);
    let words = buffer.words;
    drop(buffer);
    words[2].store(1, Ordering::Relaxed);
    let noticed = std::panic::catch_unwind(|| check_quarantine("a test"));
    words[2].store(ENDED, Ordering::Relaxed);
    assert!(noticed.is_err());
}

/// A future that has given its result is not polled again; one that has not is, by whatever waker comes last.
#[test]
fn the_last_waker_is_woken_too() {
    let pair = Pair::new();
    let mut get = pin!(pair.remote.get_into(0, Watched::new(TABLE, 0)));
    if get.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        // It has ended before it could be waited for.
        return;
    }
    let result = ::async_io::block_on(std::future::poll_fn(|context| Pin::as_mut(&mut get).poll(context)));
    assert!(result.is_ok());
}
