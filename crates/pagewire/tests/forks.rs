//! Forked children of a process with threads and operations under way: each call on an object of the parent ends at once with `Forked`, drops are
//! silent, and a node of the child's own works.

use pagewire::access_log::{AccessLogInit, Next, PageAttributes, PageFlags};
use pagewire::{Error, Failure, Node, Operation, Region, RemoteRegion, Result, Rights, Token, WriteOutcome};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// What a call of a child may take. One that hangs ends by SIGALRM.
const SECONDS: u32 = 60;
const CHILDREN: usize = 10;

/// Whether each of several children finds what it should.
fn in_children(body: impl Fn() -> Vec<&'static str>) {
    for _ in 0..CHILDREN {
        // SAFETY: the child runs the body, which takes no lock of its parent, and ends by _exit(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: alarm(2) and _exit(2) have no preconditions.
            unsafe { libc::alarm(SECONDS) };
            let wrong = body();
            for what in &wrong {
                let line = format!("in a forked child: {what}\n");
                // SAFETY: write(2) of so many bytes.
                unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
            }
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!wrong.is_empty())) };
        }
        let mut status = -1;
        // SAFETY: waitpid(2) of our own child, with a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "a child ended with {status:#x}");
    }
}

/// The calls that did not end as they should.
#[derive(Default)]
struct Wrong(Vec<&'static str>);

impl Wrong {
    fn check(&mut self, what: &'static str, holds: bool) {
        if !holds {
            self.0.push(what);
        }
    }

    fn refused<T>(&mut self, what: &'static str, outcome: Result<T>) {
        self.check(what, matches!(outcome, Err(Error::Forked | Error::Failed(Failure::Forked { .. }))));
    }

    fn failed<T>(&mut self, what: &'static str, outcome: std::result::Result<T, Failure>) {
        self.check(what, matches!(outcome, Err(Failure::Forked { .. })));
    }

    fn operation<B: Send + 'static>(&mut self, what: &'static str, operation: Operation<B>) {
        let is_done = operation.is_done() && operation.ends_within(Duration::from_secs(1));
        let failure = operation.wait().err().map(|error| error.failure);
        self.check(what, is_done && matches!(failure, Some(Failure::Forked { .. })));
    }
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn calls_of_node(wrong: &mut Wrong, node: &Node, token: &Token) {
    let own = node.identity();
    wrong.refused("barrier", node.barrier());
    wrong.refused("all_gather", node.all_gather(token));
    wrong.refused("all_gather_bytes", node.all_gather_bytes(b"1"));
    wrong.refused("broadcast", node.broadcast(0, b"1"));
    wrong.refused("zeroed", node.zeroed::<u64>(4));
    wrong.refused("words", node.words(4));
    wrong.refused("publish", node.publish(&[1u64]));
    wrong.refused("map_file", node.map_file("/proc/self/exe"));
    wrong.refused("heap", node.heap());
    wrong.refused("open", node.open(token));
    wrong.refused("unexport", node.unexport(token));
    wrong.refused("explain", node.explain(token));
    wrong.refused("descriptor", node.descriptor());
    wrong.refused("check_owner", node.check_owner());
    wrong.failed("flush of a node", node.flush());
    wrong.check("a started flush", matches!(poll_once(node.start_flush()), Poll::Ready(Err(Failure::Forked { .. }))));
    wrong.refused("release", node.release(own, 3, token));
    wrong.refused("release_any", node.release_any(3, token));
    wrong.refused("open_read_into", node.open_read_into(own, 3, token));
    wrong.refused("next_opened", node.next_opened(Duration::from_secs(1)));
    wrong.check("opened", matches!(poll_once(node.opened()), Poll::Ready(Err(Error::Forked))));
    let held = node.open_write(own, 4, vec![1u64]).err().map(|error| error.failure);
    wrong.check("open_write", matches!(held, Some(Failure::Forked { .. })));
    let init = AccessLogInit { sources: 4, bytes: 1 << 16, is_ordered: true };
    wrong.refused("make_access_log", node.make_access_log(&init));
}

fn calls_of_region(wrong: &mut Wrong, region: &Region<u64>) {
    let page = PageAttributes { flags: PageFlags::READ, user_domain: 0 };
    wrong.refused("export", region.export(Rights::all()));
    wrong.refused("get of a region", region.get(0));
    wrong.refused("set of a region", region.set(0, 1));
    wrong.refused("read", region.read(0, &mut [0]));
    wrong.refused("write", region.write(0, &[0]));
    wrong.refused("read_bytes", region.read_bytes(0, &mut [0]));
    wrong.refused("write_bytes", region.write_bytes(0, &[0]));
    wrong.refused("signal of a region", region.signal(0).map(drop));
    wrong.refused("set_attributes", region.set_attributes(.., page));
}

fn calls_of_remote(wrong: &mut Wrong, remote: &RemoteRegion) {
    let signal = remote.signal(8).add(1);
    wrong.operation("put", remote.put(0, vec![1u64]));
    wrong.operation("put_signal", remote.put_signal(0, vec![1u64], signal));
    wrong.operation("signal_only", remote.signal_only(signal));
    wrong.operation("put_scattered", remote.put_scattered(&[(0, 8)], vec![1u64]));
    wrong.operation("get_scattered", remote.get_scattered(&[(0, 8)], vec![1u64]));
    wrong.operation("get_into", remote.get_into(0, vec![1u64]));
    wrong.operation("fetch_add", remote.fetch_add(0, 1));
    wrong.operation("compare_swap", remote.compare_swap(0, 0, 1));
    wrong.operation("swap", remote.swap(0, 1));
    wrong.operation("flush_handled", remote.flush_handled(None));
    for put in remote.put_batch([(0, vec![1u64]), (8, vec![2])]) {
        wrong.operation("put_batch", put);
    }
    let awaited = poll_once(remote.put(0, vec![1u64]));
    wrong.check("an awaited put", matches!(awaited, Poll::Ready(Err(error)) if matches!(error.failure, Failure::Forked { .. })));
    wrong.check("is_mapped", !remote.is_mapped() && remote.with_words(|_| ()).is_none());
    wrong.failed("flush of a remote", remote.flush());
}

#[test]
fn each_call_in_forked_child() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let region = owner.zeroed::<u64>(1 << 16).unwrap();
    let token = region.export(Rights::all()).unwrap();
    let remote = caller.open(&token).unwrap();
    let log = owner.make_access_log(&AccessLogInit { sources: 4, bytes: 1 << 16, is_ordered: true }).unwrap();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    remote.put(4096, vec![0u64; 1 << 12]).wait().unwrap();
                }
            });
        }
        in_children(|| {
            let mut wrong = Wrong::default();
            calls_of_node(&mut wrong, &owner, &token);
            calls_of_region(&mut wrong, &region);
            calls_of_remote(&mut wrong, &remote);
            wrong.check("a log", matches!(log.next(&mut Vec::new()), Next::Empty) && log.check_owner().is_err());
            log.wake();
            log.sleep(1, Duration::from_secs(100));
            wrong.0
        });
        ends.store(true, Ordering::Relaxed);
    });
    remote.put(0, vec![7u64]).wait().unwrap();
    assert_eq!(region.get(0).unwrap(), 7);
    owner.barrier().unwrap();
}

/// What a child has of its parent it can drop, too: nothing is waited for, and nothing of the parent's ends.
#[test]
fn child_ends_and_drops_what_its_parent_has_started() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let region = owner.zeroed::<u64>(1 << 16).unwrap();
    let remote = caller.open(&region.export(Rights::all()).unwrap()).unwrap();
    let log = owner.make_access_log(&AccessLogInit { sources: 4, bytes: 1 << 16, is_ordered: true }).unwrap();
    let put = remote.put(0, vec![7u64; 1 << 15]);
    let held = caller.open_write(owner.identity(), 7, vec![1u64; 4]).unwrap();
    let opened = owner.next_opened(Duration::from_secs(60)).unwrap();
    let released = owner.release_any(8, &region.export(Rights::WRITE).unwrap()).unwrap();
    // The child has copies of the values, and drops those.
    macro_rules! copy {
        ($($name:ident),*) => {
            // SAFETY: in the child alone, where the originals are never used nor dropped: it ends by _exit(2).
            ($(unsafe { std::ptr::read(&raw const $name) }),*)
        };
    }
    in_children(|| {
        let mut wrong = Wrong::default();
        let (put, held, released) = copy!(put, held, released);
        wrong.operation("a put of the parent", put);
        wrong.check("a held write", matches!(held.wait(), WriteOutcome::Refused(_, Failure::Forked { .. })));
        wrong.refused("a release", released.wait());
        let (put, held, released) = copy!(put, held, released);
        drop((put, held, released));
        let (opened, log, remote, region) = copy!(opened, log, remote, region);
        drop((opened, log, remote, region));
        let (owner, caller) = copy!(owner, caller);
        drop((owner, caller));
        wrong.0
    });
    put.wait().unwrap();
    opened.release(&region.export(Rights::WRITE).unwrap()).unwrap().wait().unwrap();
    assert!(matches!(held.wait(), WriteOutcome::Written(_)));
    drop(released);
    assert_eq!(region.get(9).unwrap(), 7);
}

#[test]
fn child_has_a_node_of_its_own() {
    let owner = Node::alone().unwrap();
    let region = owner.zeroed::<u64>(16).unwrap();
    let token = region.export(Rights::all()).unwrap();
    let caller = Node::alone().unwrap();
    caller.open(&token).unwrap().put(0, vec![1u64]).wait().unwrap();
    in_children(|| {
        let works = || -> Result<()> {
            let node = Node::alone()?;
            let own = node.zeroed::<u64>(16)?;
            let remote = node.open(&own.export(Rights::all())?)?;
            remote.put(8, vec![5u64]).wait()?;
            assert_eq!(own.get(1)?, 5);
            node.open(&token)?.fetch_add(8, 1).wait()?;
            Ok(())
        };
        match works() {
            Ok(()) => Vec::new(),
            Err(_) => vec!["a node of its own"],
        }
    });
    assert_eq!(region.get(1).unwrap(), CHILDREN as u64);
}
