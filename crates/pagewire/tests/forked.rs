//! Forked children of a parent with threads: each call on an object of the parent ends at once, and none acts for the parent.

mod in_child;

use in_child::{Child, copy_of, in_child, in_many_children, on_each_path, while_busy};
use pagewire::access_log::{AccessLog, AccessLogInit, Next, PageAttributes, PageFlags, Sources};
use pagewire::bootstrap::Job;
use pagewire::*;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const WORDS: usize = 1 << 14;
/// The log of the pages that redirect puts. It is full after some, as nobody reads it.
const LOG: AccessLogInit = AccessLogInit { sources: 8, bytes: 4096, is_ordered: true };

/// What a parent has.
struct World {
    node: Node,
    peer: Node,
    /// Its puts wait: so it has another connection.
    other_peer: Node,
    job: Job,
    part: Part,
    table: Region<u64>,
    _logged: Region<u64>,
    counters: Region<u64, Atomic>,
    constants: Region<u64, ReadOnly>,
    file: MappedFile,
    token: Token,
    raw_token: Token,
    raw: Box<[u64; 1024]>,
    remote: RemoteRegion,
    logged_remote: RemoteRegion,
    log: AccessLog,
    sources: Sources,
    folder: PathBuf,
}

/// What a parent has started.
struct Started {
    flush: Vec<Flush>,
    done: Vec<Operation<Vec<u64>>>,
    stuck: Vec<Operation<Vec<u64>>>,
    held: Vec<HeldWrite<Vec<u64>>>,
    accepted: Vec<Acceptance>,
    requests: Vec<ConditionalRequest>,
}

impl World {
    fn new(folder: &Path) -> World {
        let [node, peer, other_peer] = [(); 3].map(|()| Node::alone().unwrap());
        let (table, logged) = (node.zeroed::<u64>(WORDS).unwrap(), node.zeroed::<u64>(512).unwrap());
        let file = node.map_file_writable(folder.join("file"), Some(1 << 16)).unwrap();
        let log = node.make_access_log(&LOG).unwrap();
        let flags =
            PageFlags::READ | PageFlags::LOG_WRITE | PageFlags::LOG_WRITE_DATA | PageFlags::TO_ACCESS_LOG;
        logged.set_attributes(.., PageAttributes { flags, user_domain: log.user_domain() }).unwrap();
        let raw = Box::new([0; 1024]);
        let address = NonNull::from(&raw[0]).cast();
        // SAFETY: the parent never accesses the words otherwise, and the node ends before they do.
        let raw_token = unsafe { node.export_raw(address, 8192, Rights::all()) }.unwrap();
        let token = table.export(Rights::all()).unwrap();
        World {
            part: node.split(Some(1), 0).unwrap().unwrap(),
            job: Job::alone(),
            counters: node.words(512).unwrap(),
            constants: node.publish(&[2, 3, 5, 7]).unwrap(),
            remote: peer.open(&token).unwrap(),
            logged_remote: other_peer.open(&logged.export(Rights::all()).unwrap()).unwrap(),
            sources: node.sources(),
            node,
            peer,
            other_peer,
            table,
            _logged: logged,
            file,
            token,
            raw_token,
            raw,
            log,
            folder: folder.to_owned(),
        }
    }

    fn start(&self) -> Started {
        let (node, peer) = (&self.node, &self.peer);
        let mut started = Started {
            flush: vec![self.node.start_flush(), self.remote.start_flush()],
            done: (0..8).map(|_| self.remote.put(0, vec![1u64])).collect(),
            stuck: Vec::new(),
            held: (100..106)
                .map(|tag| peer.conditional_write(node.identity(), tag, vec![1]).unwrap())
                .collect(),
            requests: (0..4).map(|_| node.next_conditional_request(PATIENCE).unwrap()).collect(),
            accepted: (0..5)
                .map(|tag| node.accept_conditional_write(peer.identity(), 200 + tag, &self.token).unwrap())
                .collect(),
        };
        assert!(wait_all(&started.done.iter().map(|put| put as &dyn Waitable).collect::<Vec<_>>(), PATIENCE));
        while started.stuck.iter().filter(|put| !put.is_done()).count() < 8 {
            started.stuck.push(self.logged_remote.put(0, vec![1u64; 64]));
        }
        started.stuck.retain(|put| !put.is_done());
        started
    }

    /// Takes the locks of all objects.
    fn use_all(&self, number: u64) {
        let puts = [self.remote.put(0, vec![7u64; WORDS / 2]), self.remote.put(8, vec![number])];
        drop(self.remote.fetch_add(16, 1));
        self.remote.put_value(64, number).wait().unwrap();
        self.remote.get::<u64>(0, 64).unwrap().wait().unwrap();
        puts.into_iter().for_each(|put| drop(put.wait().unwrap()));
        self.remote.flush().unwrap();
        let token = self.counters.export(Rights::all()).unwrap();
        self.node.unexport(&token).unwrap();
        let tag = 1000 + number;
        let held = self.peer.conditional_write(self.node.identity(), tag, vec![number]).unwrap();
        let accepted = self.node.accept_conditional_write(self.peer.identity(), tag, &self.token).unwrap();
        let _ = self.node.next_conditional_request(Duration::ZERO);
        wait_any(&[&held, &accepted], PATIENCE);
        assert!(matches!(held.wait(), WriteOutcome::Written(_)));
        accepted.wait().unwrap();
        self.table
            .signal(2048)
            .unwrap()
            .wait_until_within(Duration::from_micros(300), |word| word == 9)
            .unwrap_err();
        self.job.barrier().unwrap();
        self.part.barrier().unwrap();
        self.node.barrier().unwrap();
        self.sources.find(number);
    }
}

/// The future's end, which must be there at once.
fn poll_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(end) => end,
        Poll::Pending => panic!("the future is pending"),
    }
}

fn call_node(child: &mut Child, World { node, token, file, folder, .. }: &World) {
    child.refuses("Node::check_owner", || node.check_owner());
    child.refuses("Node::all_gather", || node.all_gather(token));
    child.refuses("Node::all_gather_for", || node.all_gather_for(token, FOREVER));
    child.refuses("Node::all_gather_bytes", || node.all_gather_bytes(b"1"));
    child.refuses("Node::all_gather_bytes_for", || node.all_gather_bytes_for(b"1", FOREVER));
    child.refuses("Node::broadcast", || node.broadcast(0, b"1"));
    child.refuses("Node::barrier", || node.barrier());
    child.refuses("Node::barrier_for", || node.barrier_for(FOREVER));
    child.refuses("Node::split", || node.split(Some(1), 0));
    child.refuses("Node::split by no colour", || node.split(None, 0));
    child.refuses("Node::zeroed", || node.zeroed::<u64>(16));
    child.refuses("Node::words", || node.words(16));
    child.refuses("Node::publish", || node.publish(&[1u64]));
    child.refuses("Node::map_file", || node.map_file("/proc/self/exe"));
    child.refuses("Node::map_file_writable", || node.map_file_writable(folder.join("other"), Some(8)));
    assert!(!folder.join("other").exists());
    child.refuses("Node::map_open_file", || {
        node.map_open_file(&std::fs::File::open("/proc/self/exe").unwrap(), false)
    });
    child.refuses("Node::heap", || node.heap());
    child.refuses("Node::open", || node.open(token));
    child.refuses("Node::unexport", || node.unexport(token));
    child.refuses("Node::flush", || node.flush());
    child.gives("Flush::is_done", true, || node.start_flush().is_done());
    child.refuses("Node::start_flush", || poll_once(node.start_flush()));
    child.refuses("Node::descriptor", || node.descriptor());
    child.refuses("async_io::Ready::of", || async_io::Ready::of(node));
    child.refuses("tokio::Ready::of", || tokio::Ready::of(node));
    child.refuses("Node::explain", || node.explain(token));
    child.refuses("Node::make_access_log", || node.make_access_log(&LOG));
    child.gives("Node::take_logged_faults", true, || node.take_logged_faults().0.is_empty());
    child.gives("Node::rank", (0, 1), || (node.rank(), node.size()));
    child.gives("Node::peer", true, || node.peer(0).unwrap() == node.identity());
    child.refuses("MappedFile::export", || file.export(Rights::READ));
    child.refuses("MappedFile::export_part", || file.export_part(..8, Rights::READ));
    child.refuses("MappedFile::sync", || file.sync());
    child.gives("MappedFile::bytes", (1 << 16, true), || (file.bytes(), file.is_writable()));
}

fn call_job(child: &mut Child, World { job, part, token, .. }: &World) {
    child.refuses("Job::all_gather", || job.all_gather(b"1"));
    child.refuses("Job::all_gather_for", || job.all_gather_for(b"1", FOREVER));
    child.refuses("Job::broadcast", || job.broadcast(0, b"1"));
    child.refuses("Job::barrier", || job.barrier());
    child.refuses("Job::barrier_for", || job.barrier_for(FOREVER));
    child.refuses("Part::all_gather", || part.all_gather(token));
    child.refuses("Part::all_gather_for", || part.all_gather_for(token, FOREVER));
    child.refuses("Part::all_gather_bytes", || part.all_gather_bytes(b"1"));
    child.refuses("Part::all_gather_bytes_for", || part.all_gather_bytes_for(b"1", FOREVER));
    child.refuses("Part::broadcast", || part.broadcast(0, b"1"));
    child.refuses("Part::barrier", || part.barrier());
    child.refuses("Part::barrier_for", || part.barrier_for(FOREVER));
    child.refuses("Part::split", || part.split(Some(1), 0));
    child.gives("Part::rank", (0, 1), || (part.rank(), part.size()));
}

fn call_regions(child: &mut Child, World { node, table, counters, constants, raw_token, raw, .. }: &World) {
    let page = PageAttributes { flags: PageFlags::READ, user_domain: 0 };
    child.refuses("Region::export", || table.export(Rights::READ));
    child.refuses("Region::export_part", || counters.export_part(..8, Rights::READ));
    child.refuses("Region::set_attributes", || table.set_attributes(.., page));
    child.refuses("Region::get", || table.get(0));
    child.refuses("Region::set", || table.set(0, 1));
    child.refuses("Region::read", || table.read(0, &mut [0]));
    child.refuses("Region::write", || table.write(0, &[1]));
    child.refuses("Region::read_bytes", || constants.read_bytes(0, &mut [0]));
    child.refuses("Region::write_bytes", || table.write_bytes(0, &[1]));
    child.refuses("Region::write_bytes of atomics", || counters.write_bytes(0, &[1]));
    child.refuses("Region::signal", || table.signal(8));
    child.refuses("Region::signal of atomics", || counters.signal(1));
    child.gives("Region::words", 0, || counters.words().len());
    child.gives("Region::as_slice", 0, || constants.as_slice().len());
    child.gives("Region::len", (WORDS, 4096), || (table.len(), counters.bytes()));
    let address = NonNull::from(&raw[0]).cast();
    // SAFETY: words of the child's own, which nobody else accesses.
    child.refuses("Node::export_raw", || unsafe { node.export_raw(address, 8192, Rights::READ) });
    child.refuses("Node::unexport_raw", || node.unexport_raw(raw_token));
    child.refuses("Node::set_attributes_raw", || node.set_attributes_raw(raw_token, .., page));
}

fn call_remote(child: &mut Child, World { remote, .. }: &World) {
    let one = || vec![1u64];
    child.refuses("RemoteRegion::put", || remote.put(0, one()).wait());
    child.refuses("RemoteRegion::put beyond the end", || remote.put(1 << 40, one()).wait());
    child.refuses("RemoteRegion::put_value", || remote.put_value(0, 1u64).wait_source());
    child.refuses("RemoteRegion::put_signal", || remote.put_signal(0, one(), remote.signal(8).add(1)).wait());
    child.refuses("RemoteRegion::signal_only", || poll_once(remote.signal_only(remote.signal(8).set(1))));
    child.refuses("RemoteRegion::put_scattered", || remote.put_scattered(&[(0, 8)], one()).wait());
    child.refuses("RemoteRegion::get_scattered", || remote.get_scattered(&[(0, 8)], one()).wait());
    child.refuses("RemoteRegion::put_strided", || remote.put_strided(0, 8, 8, one()).wait());
    child.refuses("RemoteRegion::get_strided", || remote.get_strided(0, 8, 8, one()).wait());
    child.refuses("RemoteRegion::put_batch", || remote.put_batch([(0, one())]).remove(0).wait());
    child.refuses("RemoteRegion::get_batch", || remote.get_batch([(0, one())]).remove(0).wait());
    child.refuses("RemoteRegion::get", || poll_once(remote.get::<u64>(0, 1).unwrap()));
    child.refuses("RemoteRegion::get_into", || remote.get_into(0, one()).wait());
    child.refuses("RemoteRegion::flush_handled", || remote.flush_handled(None).wait());
    child.refuses("RemoteRegion::flush", || remote.flush());
    child.refuses("RemoteRegion::start_flush", || poll_once(remote.start_flush()));
    child.gives("RemoteRegion::is_connected", (false, false), || (remote.is_connected(), remote.is_mapped()));
    child.gives("RemoteRegion::with_words", None, || remote.with_words(<[AtomicU64]>::len));
    child.ends("RemoteRegion::clone", || drop((remote.clone(), remote.length(), remote.rights())));
}

fn call_atomics(child: &mut Child, World { remote, .. }: &World) {
    child.refuses("fetch_add", || remote.fetch_add(0, 1).wait());
    child.refuses("compare_swap", || remote.compare_swap(0, 0, 1).wait());
    child.refuses("swap", || remote.swap(0, 1).wait());
    child.refuses("fetch_and", || remote.fetch_and(0, 1).wait());
    child.refuses("fetch_or", || remote.fetch_or(0, 1).wait());
    child.refuses("fetch_xor", || remote.fetch_xor(0, 1).wait());
    child.refuses("fetch_min", || remote.fetch_min(0, 1).wait());
    child.refuses("fetch_max", || remote.fetch_max(0, 1).wait());
    child.refuses("fetch_min_signed", || remote.fetch_min_signed(0, 1).wait());
    child.refuses("fetch_max_signed", || remote.fetch_max_signed(0, 1).wait());
    child.refuses("fetch_add_32", || remote.fetch_add_32(0, 1).wait());
    child.refuses("compare_swap_32", || remote.compare_swap_32(0, 0, 1).wait());
    child.refuses("swap_32", || remote.swap_32(0, 1).wait());
    child.refuses("fetch_and_32", || remote.fetch_and_32(0, 1).wait());
    child.refuses("fetch_or_32", || remote.fetch_or_32(0, 1).wait());
    child.refuses("fetch_xor_32", || remote.fetch_xor_32(0, 1).wait());
    child.refuses("fetch_min_32", || remote.fetch_min_32(0, 1).wait());
    child.refuses("fetch_max_32", || remote.fetch_max_32(0, 1).wait());
    child.refuses("fetch_min_signed_32", || remote.fetch_min_signed_32(0, 1).wait());
    child.refuses("fetch_max_signed_32", || remote.fetch_max_signed_32(0, 1).wait());
}

/// Signals that the parent has made.
fn call_signals(child: &mut Child, signals: &[Signal<'_>]) {
    let signal = signals[0];
    child.gives("Signal::value", 0, || signal.value());
    child.ends("Signal::set", || signal.set(7));
    child.refuses("Signal::wait_until", || signal.wait_until(|_| false));
    child.refuses("Signal::wait_until of any value", || signal.wait_until(|_| true));
    child.refuses("Signal::wait_until_within", || signal.wait_until_within(FOREVER, |_| false));
    child.refuses("Signal::reaches", || poll_once(signal.reaches(|_| false)));
    child.refuses("Signal::reaches_within", || poll_once(signal.reaches_within(FOREVER, |_| false)));
    child.refuses("signal_wait_any", || signal_wait_any(signals, FOREVER, |_, _| false));
    child.refuses("signal_wait_all", || signal_wait_all(signals, FOREVER, |_, _| false));
    child.refuses("signal_wait_some", || signal_wait_some(signals, FOREVER, |_, _| false));
    child.refuses("signal_reaches_any", || poll_once(signal_reaches_any(signals, |_, _| false)));
    child.refuses("signal_reaches_all", || poll_once(signal_reaches_all(signals, |_, _| false)));
}

fn call_conditional(child: &mut Child, World { node, peer, table, token, .. }: &World) {
    let other = peer.identity();
    child.refuses("Node::conditional_write", || node.conditional_write(other, 300, vec![1u64]).map(drop));
    child.refuses("Node::accept_conditional_write", || node.accept_conditional_write(other, 301, token));
    child.refuses("Node::accept_any_conditional_write", || node.accept_any_conditional_write(302, token));
    child.refuses("Node::conditional_read", || node.conditional_read(other, 303, table));
    child.refuses("Node::conditional_read_into", || node.conditional_read_into(other, 304, token));
    child.refuses("Node::next_conditional_request", || node.next_conditional_request(FOREVER));
    child.refuses("Node::conditional_request", || poll_once(node.conditional_request()));
}

/// What the parent has started ends at once here, whatever becomes of it there.
fn call_started(child: &mut Child, started: &mut Started, token: &Token) {
    let Started { flush, done, stuck, held, accepted, requests } = started;
    for operations in [done, stuck] {
        let operation = &operations[0];
        child.gives("Operation::is_done", (true, true), || {
            (operation.is_done(), operation.ends_within(FOREVER))
        });
        child.gives("wait_any", Some(0), || wait_any(&[operation], FOREVER));
        child.refuses("Operation::wait", || operations.pop().unwrap().wait());
        child.refuses("Operation::wait_source", || operations.pop().unwrap().wait_source());
        child.refuses("Operation::try_wait", || {
            operations.pop().unwrap().try_wait().map_err(|_| "pending").unwrap()
        });
        child.refuses("Operation::await", || poll_once(operations.pop().unwrap()));
        child.ends("drop of an Operation", || drop(operations.pop()));
    }
    child.gives("Flush::is_done", true, || flush[0].is_done());
    child.refuses("Flush::wait of a region", || flush.pop().unwrap().wait());
    child.refuses("Flush::await", || poll_once(flush.pop().unwrap()));
    let all: [&dyn Waitable; 2] = [&held[0], &accepted[0]];
    child.gives("wait_all", true, || wait_all(&all, FOREVER));
    child.gives("wait_some", vec![0, 1], || wait_some(&all, FOREVER));
    child.gives("wait_any of an Acceptance", Some(0), || wait_any(&all[1..], FOREVER));
    child.gives("HeldWrite::is_done", (true, true), || (held[0].is_done(), held[0].ends_within(FOREVER)));
    child.ends("Canceller", || {
        held[0].canceller().end_after(Duration::ZERO);
        held[0].canceller().cancel();
    });
    child.refuses("HeldWrite::wait", || held.pop().unwrap().wait().into_result());
    child.refuses("HeldWrite::cancel", || held.pop().unwrap().cancel().into_result());
    child.refuses("HeldWrite::await", || poll_once(held.pop().unwrap().within(Duration::ZERO)).into_result());
    child.ends("drop of a HeldWrite", || drop(held.pop()));
    child.gives("Acceptance::is_done", true, || accepted[0].is_done());
    child.refuses("Acceptance::ends_within", || accepted[0].ends_within(FOREVER));
    child.refuses("Acceptance::wait", || accepted.pop().unwrap().wait());
    child.refuses("Acceptance::await", || poll_once(accepted.pop().unwrap()));
    child.ends("drop of an Acceptance", || drop(accepted.pop()));
    child.refuses("ConditionalRequest::accept", || requests[0].accept(token));
    child.refuses("ConditionalRequest::supply", || requests[0].supply(vec![1u64]).map(drop));
    child.ends("ConditionalRequest::decline", || requests.pop().unwrap().decline());
    child.ends("drop of a ConditionalRequest", || drop(requests.pop()));
}

fn call_log(child: &mut Child, World { log, sources, .. }: &World) {
    child.refuses("AccessLog::check_owner", || log.check_owner());
    child.gives("AccessLog::next", true, || matches!(log.next(&mut Vec::new()), Next::Empty));
    child.ends("AccessLog::sleep", || log.sleep(1, FOREVER));
    child.ends("AccessLog::wake", || log.wake());
    child.gives("AccessLog::is_asleep", false, || log.is_asleep());
    child.gives("Sources::find", None, || sources.find(1));
}

/// A node of the child's own, which also opens memory of the parent.
fn use_own_node(child: &mut Child, token: &Token) {
    child.ends("a node of the child", || {
        let node = Node::alone().unwrap();
        let table = node.zeroed::<u64>(16).unwrap();
        let remote = node.open(&table.export(Rights::all()).unwrap()).unwrap();
        let put = remote.put_signal(0, vec![5u64], remote.signal(8).add(1));
        assert_eq!(table.signal(8).unwrap().wait_until(|count| count == 1).unwrap(), 1);
        put.wait().unwrap();
        assert_eq!(table.get(0).unwrap(), 5);
        let of_parent = node.open(token).unwrap();
        of_parent.put(8 * (WORDS as u64 - 1), vec![11u64]).wait().unwrap();
        let (held, own) = (
            node.conditional_write(node.identity(), 1, vec![6u64]).unwrap(),
            table.export(Rights::WRITE).unwrap(),
        );
        node.next_conditional_request(PATIENCE).unwrap().accept(&own).unwrap().wait().unwrap();
        assert!(matches!(held.wait(), WriteOutcome::Written(_)));
        node.barrier().unwrap();
    });
}

#[test]
fn parent_objects_refuse_each_call() {
    on_each_path("parent_objects_refuse_each_call", || {
        let folder = tempfile::tempdir().unwrap();
        let world = World::new(folder.path());
        let mut started = world.start();
        let signals =
            [world.table.signal(8 * (WORDS as u64 - 2)).unwrap(), world.counters.signal(3).unwrap()];
        while_busy(
            3,
            |number| world.use_all(number),
            || {
                in_many_children(|child| {
                    call_node(child, &world);
                    call_job(child, &world);
                    call_regions(child, &world);
                    call_remote(child, &world);
                    call_atomics(child, &world);
                    call_signals(child, &signals);
                    call_conditional(child, &world);
                    call_started(child, &mut started, &world.token);
                    call_log(child, &world);
                    child.ends("drop of what was started", || drop(copy_of(&started)));
                    child.ends("drop of the world", || drop(copy_of(&world)));
                });
            },
        );
        assert_eq!((signals[0].value(), signals[1].value()), (0, 0));
        end_started(&world, started);
    });
}

/// What was started before the forks ends as if there had been none.
fn end_started(world: &World, started: Started) {
    let Started { flush, done, stuck, held, accepted, requests } = started;
    flush.into_iter().for_each(|flush| flush.wait().unwrap());
    done.into_iter().for_each(|put| drop(put.wait().unwrap()));
    let all: Vec<&dyn Waitable> = stuck.iter().map(|put| put as &dyn Waitable).collect();
    let mut data = Vec::new();
    while !wait_all(&all, Duration::ZERO) {
        if let Next::Record(_, receipt) = world.log.next(&mut data) {
            world.log.handled(receipt);
        }
    }
    stuck.into_iter().for_each(|put| drop(put.wait().unwrap()));
    drop(requests);
    for tag in 100..106 {
        world
            .node
            .accept_conditional_write(world.peer.identity(), tag, &world.token)
            .unwrap()
            .wait()
            .unwrap();
    }
    held.into_iter().for_each(|held| assert!(matches!(held.wait(), WriteOutcome::Written(_))));
    for tag in 200..205 {
        let written = world.peer.conditional_write(world.node.identity(), tag, vec![1u64]).unwrap();
        assert!(matches!(written.wait(), WriteOutcome::Written(_)));
    }
    accepted.into_iter().for_each(|accepted| assert_eq!(accepted.wait().unwrap(), 8));
}

#[test]
fn child_has_its_own_node() {
    on_each_path("child_has_its_own_node", || {
        let folder = tempfile::tempdir().unwrap();
        let world = World::new(folder.path());
        while_busy(
            1,
            |number| world.use_all(number),
            || {
                for number in 0..8 {
                    // Values of the parent are dropped before, after and beside the child's own.
                    let wrong = in_child(|child| {
                        if number % 2 == 0 {
                            child.ends("drop of the world", || drop(copy_of(&world)));
                        }
                        use_own_node(child, &world.token);
                        if number % 2 == 1 {
                            child.ends("drop of the world", || drop(copy_of(&world)));
                        }
                    });
                    assert!(wrong.is_empty(), "child {number}: {wrong:#?}");
                }
            },
        );
        assert_eq!(world.table.get(WORDS - 1).unwrap(), 11);
    });
}

/// The node has left before the fork, and its remote region, its region and its operation are dropped in the child.
#[test]
fn child_drops_what_outlives_its_node() {
    on_each_path("child_drops_what_outlives_its_node", || {
        let folder = tempfile::tempdir().unwrap();
        let world = World::new(folder.path());
        let started = world.start();
        let World { node, peer, other_peer, table, remote, counters, part, sources, .. } = world;
        drop((node, peer, other_peer));
        let wrong = in_child(|child| {
            child.refuses("RemoteRegion::put", || remote.put(0, vec![1u64]).wait());
            child.refuses("Region::get", || table.get(0));
            child.ends("drop of what was started", || drop(copy_of(&started)));
            child.ends("drop of a RemoteRegion", || drop(copy_of(&remote)));
            child.ends("drop of a Part", || drop(copy_of(&part)));
            child.ends("drop of regions", || drop((copy_of(&table), copy_of(&counters), copy_of(&sources))));
        });
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}
