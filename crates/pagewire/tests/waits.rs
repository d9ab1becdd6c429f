//! Waits for any or all of several operations and signals, by threads and by tasks.

use pagewire::{FOREVER, Failure, Node, Rights, Rule, Waitable, wait_all, wait_any, wait_some};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

const SOON: Duration = Duration::from_millis(5);

#[test]
fn any_and_all_of_operations() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>(16).unwrap();
    let token = table.export(Rights::all()).unwrap();
    let remote = caller.open(&token).unwrap();
    // It ends when it is released.
    let held = caller.conditional_write(owner.identity(), 7, vec![5u64]).unwrap();
    assert_eq!(wait_any(&[&held], Duration::ZERO), None);
    assert_eq!(wait_any(&[&held], SOON), None);
    assert_eq!(wait_any(&[], FOREVER), None);
    assert!(wait_all(&[], Duration::ZERO) && !wait_all(&[&held], SOON));
    let (put, refused) = (remote.put(8, vec![1u64; 8]), remote.put(128, vec![1u64]));
    let all: [&dyn Waitable; 3] = [&held, &put, &refused];
    assert!(matches!(wait_any(&all, FOREVER), Some(1 | 2)));
    assert!(wait_all(&all[1..], FOREVER) && !wait_all(&all, Duration::ZERO));
    assert_eq!(wait_some(&all, Duration::ZERO), [1, 2]);
    let failure = refused.wait().unwrap_err().failure;
    assert!(matches!(failure, Failure::Refused { rule: Rule::Bounds { .. }, .. }), "{failure}");
    put.wait().unwrap();
    // One thread sleeps, another one releases.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| wait_any(&[&held], FOREVER));
        std::thread::sleep(SOON);
        let released = owner.accept_conditional_write(caller.identity(), 7, &token).unwrap();
        assert_eq!(wait_any(&[&released], FOREVER), Some(0));
        assert_eq!((waits.join().unwrap(), released.wait().unwrap()), (Some(0), 8));
    });
    assert_eq!(table.get(0).unwrap(), 5);
}

#[test]
fn lost_peer_ends_the_wait() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let held = caller.conditional_write(owner.identity(), 7, vec![5u64]).unwrap();
    assert_eq!(wait_any(&[&held], SOON), None);
    drop(owner);
    assert_eq!(wait_any(&[&held], Duration::from_secs(60)), Some(0));
}

#[test]
fn many_operations_of_several_nodes_end_each_once() {
    let owner = Node::alone().unwrap();
    let table = owner.zeroed::<u64>(1).unwrap();
    let token = table.export(Rights::ATOMIC).unwrap();
    let callers = [(); 3].map(|()| Node::alone().unwrap());
    let remotes = callers.each_ref().map(|caller| caller.open(&token).unwrap());
    let mut started: Vec<_> = (0..300).map(|number| remotes[number % 3].fetch_add(0, 1)).collect();
    let mut found = Vec::new();
    while !started.is_empty() {
        let list: Vec<&dyn Waitable> = started.iter().map(|add| add as &dyn Waitable).collect();
        let place = wait_any(&list, FOREVER).unwrap();
        found.push(started.swap_remove(place).wait().unwrap());
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(0..300));
}

#[test]
fn any_and_all_of_signals() {
    use pagewire::{signal_wait_all, signal_wait_any, signal_wait_some};
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>(16).unwrap();
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    let signals = [8, 16, 24].map(|offset| table.signal(offset).unwrap());
    assert_eq!(signal_wait_any(&signals, Duration::ZERO, |_, value| value > 0).unwrap(), None);
    assert_eq!(signal_wait_any(&signals, SOON, |_, value| value > 0).unwrap(), None);
    assert_eq!(signal_wait_any(&[], FOREVER, |_, _| true).unwrap(), None);
    assert!(!signal_wait_all(&signals, SOON, |place, value| place < 2 || value != 0).unwrap());
    assert!(signal_wait_some(&signals, SOON, |_, value| value > 0).unwrap().is_empty());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SOON);
            remote.put_signal(0, vec![5u64], remote.signal(16).set(3)).wait().unwrap();
        });
        let found = signal_wait_any(&signals, FOREVER, |_, value| value > 2).unwrap();
        assert_eq!((found, table.get(0).unwrap()), (Some((1, 3)), 5));
    });
    remote.signal_only(remote.signal(24).add(9)).wait().unwrap();
    assert_eq!(signal_wait_some(&signals, FOREVER, |_, value| value != 0).unwrap(), [(1, 3), (2, 9)]);
    assert!(signal_wait_all(&signals, FOREVER, |place, value| value == [0, 3, 9][place]).unwrap());
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor that sleeps until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn tasks_wait_for_signals_without_a_runtime() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>(16).unwrap();
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    let signal = table.signal(8).unwrap();
    assert!(block_on(signal.reaches_within(SOON, |value| value == 1)).is_err());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Behind the time for which a task looks at each poll.
            std::thread::sleep(4 * SOON);
            remote.signal_only(remote.signal(8).set(1)).wait().unwrap();
        });
        assert_eq!(block_on(signal.reaches(|value| value != 0)).unwrap(), 1);
    });
    // One that is dropped in the middle takes nothing with it.
    for _ in 0..100 {
        let mut given_up = pin!(signal.reaches(|value| value == 9));
        let _ = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    let both = [signal, table.signal(16).unwrap()];
    let any = block_on(pagewire::signal_reaches_any(&both, |_, value| value == 1));
    assert_eq!(any.unwrap(), Some((0, 1)));
    block_on(pagewire::signal_reaches_all(&both, |place, value| value == [1, 0][place])).unwrap();
}
