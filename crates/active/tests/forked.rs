//! Forked children of a parent with threads: each call on what memory that reacts has made there ends at once, and none acts for the parent.

#[path = "../../pagewire/tests/in_child/mod.rs"]
mod in_child;

use in_child::{Child, copy_of, in_child, in_many_children, on_each_path, relock_beside_child, while_busy};
use pagewire::{Atomic, Error, Node, Region, RemoteRegion, Rights, Token};
use pagewire_active::built_in::{BuiltIns, Chain, RemoteBuiltIns};
use pagewire_active::hash_table::{Durability, Scheme, Service, TableCursor};
use pagewire_active::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// What threads of a parent use while it forks.
struct World {
    node: Arc<Node>,
    table: Arc<Region<u64>>,
    token: Token,
    log: AccessLog,
    unread_log: AccessLog,
    logged: RemoteRegion,
    statistics: AccessStatistics,
    remote_statistics: RemoteAccessStatistics,
    counted: RemoteRegion,
    words: Arc<Region<u64, Atomic>>,
    built_ins: BuiltIns,
    remote_built_ins: RemoteBuiltIns,
    batches: Batches,
    hash_tables: [HashTable; 3],
    parity: Parity,
    /// Locked by threads of the parent alone.
    busy_batch: Mutex<Batch>,
    busy_process: Mutex<LoggedProcess>,
    folder: PathBuf,
    /// What must live as long as the rest.
    _kept: (Arc<Node>, [Arc<Region<u64>>; 2]),
}

/// What the thread that forks has for itself.
struct Own {
    batch: Batch,
    checkpoint: Checkpoint,
    process: LoggedProcess,
    ticket: Ticket,
    member: ParityMember,
    servings: Vec<Serving>,
}

fn alone() -> Arc<Node> {
    Arc::new(Node::alone().unwrap())
}

fn tables(node: &Arc<Node>, folder: &Path) -> [HashTable; 3] {
    let options = TableOptions { scheme: Scheme::Nearest, ..TableOptions::new(100) };
    let events = Service::Events(Events::default());
    [
        HashTable::join(node, &options).unwrap(),
        HashTable::join_served(node, &options, Service::Owner).unwrap(),
        HashTable::join_durable(node, &options, &durability(folder), events).unwrap(),
    ]
}

fn durability(folder: &Path) -> Durability {
    Durability { syncs: false, ..Durability::new(folder.join("table")) }
}

fn processes(node: &Arc<Node>, peer: &Arc<Node>, folder: &Path) -> ([LoggedProcess; 2], Ticket) {
    let checkpoints = CheckpointOptions { syncs: false, ..CheckpointOptions::default() };
    let options = LoggedProcessOptions { checkpoints, ..LoggedProcessOptions::default() };
    let start = |node, rank, name| {
        LoggedProcess::start(node, (rank, 2), 4096, folder.join(name), &options).unwrap().0
    };
    let (mut first, mut second) = (start(node, 0, "first"), start(peer, 1, "second"));
    let (of_first, of_second) = (first.ticket(1).unwrap(), second.ticket(0).unwrap());
    first.connect(&of_second).unwrap();
    second.connect(&of_first).unwrap();
    ([first, second], of_second)
}

fn make(folder: &Path) -> (World, Own) {
    let (node, peer) = (alone(), alone());
    let [table, logged, counted] = [(); 3].map(|()| Arc::new(node.zeroed::<u64>(1024).unwrap()));
    let words = Arc::new(node.words(512).unwrap());
    let open = |region: &Region<u64>| peer.open(&region.export(Rights::all()).unwrap()).unwrap();
    let [log, unread_log] = [(); 2].map(|()| node.access_log(1 << 16).unwrap());
    logged.attributes(..).redirect_puts().to(&log).unwrap();
    let statistics = AccessStatistics::of(&node, &counted).start().unwrap();
    let built_ins = BuiltIns::serve(&node, &words).unwrap();
    let batches = Batches::to_memory(&node, &table).unwrap();
    let [batch, busy_batch] = [(); 2].map(|()| Batch::open(&peer, &batches.address()).unwrap());
    let parity = Parity::new(&node, 1, 8192).unwrap();
    let member = ParityMember::join(&peer, &parity.token(0).unwrap(), 0).unwrap();
    let ([process, busy_process], ticket) = processes(&node, &peer, folder);
    let own = Own {
        batch,
        checkpoint: Checkpoint::open(&node, folder.join("checkpoint")).unwrap(),
        process,
        ticket,
        member,
        servings: vec![log.serve(|_| ()).unwrap(), unread_log.serve_polling(|_| ()).unwrap()],
    };
    let world = World {
        token: table.export(Rights::all()).unwrap(),
        logged: open(&logged),
        remote_statistics: RemoteAccessStatistics::open(&peer, &statistics.export().unwrap()).unwrap(),
        counted: open(&counted),
        remote_built_ins: RemoteBuiltIns::open(&peer, &built_ins.address()).unwrap(),
        hash_tables: tables(&node, folder),
        busy_batch: Mutex::new(busy_batch),
        busy_process: Mutex::new(busy_process),
        node,
        table,
        log,
        unread_log,
        statistics,
        words,
        built_ins,
        batches,
        parity,
        folder: folder.to_owned(),
        _kept: (peer, [logged, counted]),
    };
    (world, own)
}

/// A chain that only the owner runs: it changes more than a word.
fn wide() -> Chain {
    Chain::new().xor(64, &[1; 32])
}

impl World {
    /// Takes the locks of all objects. Each thread has its own.
    fn use_all(&self, number: u64) {
        match number {
            0 => self.count_and_run(),
            1 => self.use_tables(),
            _ => self.use_process(),
        }
    }

    fn count_and_run(&self) {
        drop(self.counted.put(0, vec![1u64; 600]).wait().unwrap());
        drop(self.logged.put(0, vec![1u64; 64]).wait().unwrap());
        self.statistics.total();
        self.statistics.sources();
        self.statistics.reset();
        self.remote_built_ins.run(&wide()).unwrap();
        self.remote_built_ins.run(&Chain::new().fetch_add(0, 1)).unwrap();
        let mut batch = self.busy_batch.lock().unwrap();
        batch.put(8, &[1; 100]).unwrap();
        batch.flush_handled().unwrap();
    }

    fn use_tables(&self) {
        for table in &self.hash_tables {
            table.insert(7, &[7; 100]).unwrap();
            table.compare_and_set(8, None, Some(b"8")).unwrap();
            table.lookup(7).unwrap().unwrap();
            table.delete(8).unwrap();
            assert!(table.statistics().unwrap().elements > 0);
            table.resize(100).unwrap();
            table.poll();
        }
        self.hash_tables[2].checkpoint().unwrap();
    }

    fn use_process(&self) {
        self.busy_process.lock().unwrap().get(0, 0, 64).unwrap();
    }
}

fn call_logs(child: &mut Child, world: &World, own: &mut Own) {
    let World { node, table, token, log, unread_log, statistics, counted, .. } = world;
    child.refuses("Node::access_log", || node.access_log(1 << 16));
    child.gives("AccessLog::poll", (0, 0, 0), || {
        (log.poll(|_| ()), log.drain(|_| ()), log.poll_at_most(9, |_| ()))
    });
    child.gives("AccessLog::handle_one", PollOutcome::Empty, || log.handle_one(|_| ()));
    child.ends("AccessLog::sleep", || log.sleep(1, PATIENCE));
    child.ends("AccessLog::wake", || log.wake());
    child.refuses("AccessLog::serve", || unread_log.serve(|_| ()));
    child.refuses("AccessLog::serve_events", || unread_log.serve_events(&Events::default(), |_| ()));
    child.refuses("AccessLog::serve_polling", || unread_log.serve_polling(|_| ()));
    child.gives("AccessLog::is_in_handler", false, || log.is_in_handler());
    child.gives("Serving::is_asleep", (false, false), || {
        (own.servings[0].is_asleep(), own.servings[0].is_in_handler())
    });
    child.ends("Serving::summary", || _ = own.servings[0].summary());
    child.ends("Serving::end", || _ = own.servings.pop().unwrap().end());
    child.refuses("PageSetting::set", || table.attributes(..).refuse_puts().set());
    child.refuses("PageSetting::to", || table.attributes(..).log_puts().to(log));
    child.refuses("PageSetting::to_fault_log", || table.attributes(..).log_puts().to_fault_log());
    child.refuses("PageSetting::set of a token", || node.attributes_of(token, ..).refuse_puts().set());
    child.refuses("AccessStatisticsOptions::start", || AccessStatistics::of(node, table).start());
    child.refuses("AccessStatistics::of_token", || AccessStatistics::of_token(node, token).start());
    child.gives("AccessStatistics::total", Counts::default(), || statistics.total());
    child.gives("AccessStatistics::page", Counts::default(), || statistics.page(0));
    child.gives("AccessStatistics::reset", Counts::default(), || statistics.reset());
    child.gives("AccessStatistics::hottest", vec![], || statistics.hottest(9));
    child.gives("AccessStatistics::sources", vec![], || statistics.sources());
    child.refuses("AccessStatistics::export", || statistics.export());
    child.refuses("RemoteAccessStatistics::open", || RemoteAccessStatistics::open(node, token));
    child.refuses("RemoteAccessStatistics::pages", || world.remote_statistics.pages());
    child.refuses("RemoteRegion::put", || counted.put(0, vec![1u64]).wait());
}

fn call_messages(child: &mut Child, world: &World, Own { batch, .. }: &mut Own) {
    let World { node, table, words, built_ins, remote_built_ins, batches, .. } = world;
    child.refuses("BuiltIns::serve", || BuiltIns::serve(node, words));
    child.refuses("RemoteBuiltIns::open", || RemoteBuiltIns::open(node, &built_ins.address()));
    child.refuses("RemoteBuiltIns::run", || remote_built_ins.run(&wide()));
    child.refuses("RemoteBuiltIns::run of a short chain", || {
        remote_built_ins.run(&Chain::new().fetch_add(0, 1))
    });
    child.refuses("Batches::to_memory", || Batches::to_memory(node, table));
    child.refuses("Batches::redirect", || Batches::redirect(node, table, |_| ()));
    child.gives("Batches::is_in_handler", false, || batches.is_in_handler());
    child.ends("Batches::counts", || drop((batches.counts(), batches.address())));
    child.refuses("Batch::open", || Batch::open(node, &batches.address()));
    child.refuses("Batch::put", || batch.put(0, b"1"));
    child.refuses("Batch::put_value", || batch.put_value(0, 1u64));
    child.refuses("Batch::send", || batch.send());
    child.refuses("Batch::wait", || batch.wait());
    child.refuses("Batch::flush_handled", || batch.flush_handled());
    child.gives("Batch::unsent", (0, 8192), || (batch.unsent(), batch.length()));
}

fn call_table(child: &mut Child, table: &HashTable) {
    child.refuses("HashTable::insert", || table.insert(7, b"7"));
    child.refuses("HashTable::insert_batch", || table.insert_batch([(7, &b"7"[..])]));
    child.refuses("HashTable::lookup", || table.lookup(7));
    child.refuses("HashTable::delete", || table.delete(7));
    child.refuses("HashTable::flush", || table.flush());
    child.refuses("HashTable::resize", || table.resize(10));
    child.refuses("HashTable::clear", || table.clear());
    child.refuses("HashTable::clear_volume", || table.clear_volume());
    child.refuses("HashTable::compare_and_set", || table.compare_and_set(7, None, Some(b"7")));
    child.refuses("HashTable::elements", || table.elements().next().unwrap());
    child.refuses("HashTable::next_elements", || table.next_elements(&mut TableCursor::default()));
    child.refuses("HashTable::statistics", || table.statistics());
    child.refuses("HashTable::checkpoint", || table.checkpoint());
    child.refuses("HashTable::readmit", || copy_of(table).readmit(0, &table.ticket()));
    child.gives("HashTable::poll", 0, || table.poll());
}

fn call_saved(child: &mut Child, world: &World, own: &mut Own) {
    let World { node, table, folder, hash_tables, parity, .. } = world;
    let Own { checkpoint, process, ticket, member, .. } = own;
    let (other, options) = (folder.join("other"), LoggedProcessOptions::default());
    let (one, table_options) = (hash_tables[0].ticket(), TableOptions::new(10));
    let durability = Durability::new(&other);
    child.refuses("HashTable::join", || HashTable::join(node, &table_options));
    child.refuses("HashTable::join_durable", || {
        HashTable::join_durable(node, &table_options, &durability, Service::Polling)
    });
    child.refuses("HashTable::restart", || {
        HashTable::restart(node, &table_options, &durability, Service::Polling, (0, &[&one]))
    });
    child.refuses("Checkpoint::open", || Checkpoint::open(node, &other));
    child.refuses("Checkpoint::save", || checkpoint.save(&**table));
    child.refuses("Checkpoint::save_all", || checkpoint.save_all(&[&**table], b""));
    child.refuses("Checkpoint::save_together", || checkpoint.save_together(node, &[], &[&**table], b""));
    child.refuses("Checkpoint::restore", || checkpoint.restore(&**table));
    child.refuses("Checkpoint::restore_all", || checkpoint.restore_all(1, &[&**table]));
    child.refuses("Checkpoint::restore_together", || checkpoint.restore_together(node, &[&**table]));
    child.ends("Checkpoint::numbers", || drop((checkpoint.numbers(), checkpoint.remote_writes())));
    child.refuses("LoggedProcess::start", || LoggedProcess::start(node, (0, 1), 8, &other, &options));
    child.refuses("LoggedProcess::ticket", || process.ticket(1));
    child.refuses("LoggedProcess::connect", || process.connect(ticket));
    child.refuses("LoggedProcess::replay", || process.replay());
    child.refuses("LoggedProcess::next_epoch", || process.next_epoch());
    child.refuses("LoggedProcess::put", || process.put(1, 0, b"1"));
    child.refuses("LoggedProcess::get", || process.get(1, 0, 1));
    child.refuses("LoggedProcess::checkpoint", || process.checkpoint(b""));
    child.gives("LoggedProcess::epoch", (0, false), || (process.epoch(), process.is_replaying()));
    child.refuses("LoggedProcess::memory", || process.memory().get(0));
    child.refuses("Parity::new", || Parity::new(node, 1, 4096));
    child.refuses("Parity::complete_round", || parity.complete_round());
    let token = parity.token(0).unwrap();
    child.refuses("ParityMember::join", || ParityMember::join(node, &token, 0));
    child.refuses("ParityMember::rebuild", || ParityMember::rebuild(node, &token, 0, &[]));
    child.refuses("ParityMember::token", || member.token());
    child.refuses("ParityMember::save", || member.save(&[]));
    child.refuses("ParityMember::wait_complete", || member.wait_complete(PATIENCE));
    child.refuses("ParityMember::restore", || member.restore(&[]));
    child.gives("files of the child", false, || other.exists());
}

#[test]
fn parent_objects_refuse_each_call() {
    on_each_path("parent_objects_refuse_each_call", || {
        let folder = tempfile::tempdir().unwrap();
        let (world, mut own) = make(folder.path());
        own.checkpoint.save(&*world.table).unwrap();
        while_busy(
            3,
            |number| world.use_all(number),
            || {
                in_many_children(|child| {
                    call_logs(child, &world, &mut own);
                    call_messages(child, &world, &mut own);
                    for table in &world.hash_tables {
                        call_table(child, table);
                    }
                    call_saved(child, &world, &mut own);
                });
            },
        );
        go_on(&world, own);
    });
}

/// The parent goes on as if it had never forked.
fn go_on(world: &World, mut own: Own) {
    (0..3).for_each(|number| world.use_all(number));
    own.batch.put(0, b"12345678").unwrap();
    own.batch.flush_handled().unwrap();
    assert_eq!(world.table.get(0).unwrap(), u64::from_ne_bytes(*b"12345678"));
    own.checkpoint.save(&*world.table).unwrap();
    own.process.get(1, 0, 8).unwrap();
    own.process.next_epoch().unwrap();
    own.process.checkpoint(b"").unwrap();
    own.member.save(&[&*world.table]).unwrap();
    own.servings.into_iter().for_each(|serving| _ = serving.end());
}

/// The parent's handles of threads are dropped while the child has threads of its own, which may have got the same numbers.
#[test]
fn child_has_objects_of_its_own() {
    on_each_path("child_has_objects_of_its_own", || {
        let folder = tempfile::tempdir().unwrap();
        let (world, own) = make(folder.path());
        while_busy(
            3,
            |number| world.use_all(number),
            || {
                for number in 0..10 {
                    let wrong = in_child(|child| {
                        let drop_parents = || drop((copy_of(&own), copy_of(&world)));
                        child.ends("objects of the child", || {
                            let (node, options) = (alone(), TableOptions::new(10));
                            let pages = node.zeroed::<u64>(512).unwrap();
                            let refused = pages.attributes(..).log_puts().to(&world.log);
                            assert!(matches!(refused, Err(Error::Forked)), "{refused:?}");
                            if number % 2 == 0 {
                                drop_parents();
                            }
                            let table = HashTable::join(&node, &options).unwrap();
                            table.insert(7, b"seven").unwrap();
                            if number % 2 == 1 {
                                drop_parents();
                            }
                            assert_eq!(table.lookup(7).unwrap().unwrap(), b"seven");
                        });
                    });
                    assert!(wrong.is_empty(), "child {number}: {wrong:#?}");
                }
            },
        );
        go_on(&world, own);
    });
}

/// Makes a durable table, in a folder.
fn lock_files(node: &Arc<Node>, folder: &Path) -> HashTable {
    let events = Service::Events(Events::default());
    HashTable::join_durable(node, &TableOptions::new(10), &durability(folder), events).unwrap()
}

#[test]
fn child_keeps_no_lock_of_its_parent() {
    let lock = |folder: &Path| {
        let node = alone();
        let table = lock_files(&node, folder);
        table.insert(7, b"seven").unwrap();
        (node, table)
    };
    let lookup = |folder: &Path| lock_files(&alone(), folder).lookup(7).unwrap().unwrap();
    let found = relock_beside_child("child_keeps_no_lock_of_its_parent", lock, lookup);
    assert_eq!(found, b"seven");
}
