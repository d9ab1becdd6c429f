//! Forked children of a parent with threads: each call on what an experimental application has made there ends at once, and none acts for the parent.

#[path = "../../pagewire/tests/in_child/mod.rs"]
mod in_child;

use in_child::{Child, copy_of, in_child, in_many_children, on_each_path, relock_beside_child, while_busy};
use pagewire::{Node, Token};
use pagewire_experimental::gas::{GasStatistics, GlobalMemory};
use pagewire_experimental::sort::{SortOptions, sort};
use pagewire_experimental::stream::{Endpoint, Listener, Stream};
use pagewire_experimental::transactions::{Client, ServedStore, Store, StoreOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const STORE: StoreOptions = StoreOptions { cells: 4, value: 8, journal: None };

/// What a thread of a parent uses while another one forks.
struct World {
    node: Arc<Node>,
    global: Option<GlobalMemory>,
    listener: Listener,
    streams: [Stream; 2],
    store: ServedStore,
    /// Locked by a thread of the parent alone.
    busy_client: Mutex<Client>,
    folder: PathBuf,
    /// What must live as long as the rest.
    _kept: [Arc<Node>; 2],
}

/// What the thread that forks has for itself.
struct Own {
    client: Client,
    unserved: Vec<Store>,
    ends: Vec<Endpoint>,
}

fn alone() -> Arc<Node> {
    Arc::new(Node::alone().unwrap())
}

fn streams(node: &Arc<Node>, peer: &Arc<Node>) -> [Stream; 2] {
    let [own, other] = [node, peer].map(|node| Endpoint::new(node, 1 << 14).unwrap());
    let tokens = [own.token(), other.token()];
    let connect = |end: Endpoint, node: &Arc<Node>, token: Token| end.connect(node, &token).unwrap();
    [connect(own, node, tokens[1]), connect(other, peer, tokens[0])]
}

fn make(folder: &Path) -> (World, Own) {
    let (node, peer, clients) = (alone(), alone(), alone());
    let [store, unserved] = [(); 2].map(|()| Store::new(&node, &STORE).unwrap());
    let stores = [store.token()];
    let own = Own {
        client: Client::new(&peer, &stores).unwrap(),
        unserved: vec![unserved],
        ends: (0..2).map(|_| Endpoint::new(&node, 1 << 14).unwrap()).collect(),
    };
    let store = store.serve(&node, 0, &stores).unwrap();
    let world = World {
        global: GlobalMemory::new(&node, 1).inspect_err(|why| eprintln!("not checked: {why}")).ok(),
        listener: Listener::new(&node, 1 << 14).unwrap(),
        streams: streams(&node, &peer),
        busy_client: Mutex::new(Client::new(&clients, &stores).unwrap()),
        node,
        store,
        folder: folder.to_owned(),
        _kept: [peer, clients],
    };
    (world, own)
}

impl World {
    /// Takes the locks of all objects.
    fn use_all(&self) {
        let mut bytes = [0; 100];
        (&self.streams[0]).write_all(&bytes).unwrap();
        (&self.streams[1]).read_exact(&mut bytes).unwrap();
        self.listener.accept(Some(Duration::ZERO)).map(drop).unwrap_err();
        let mut client = self.busy_client.lock().unwrap();
        client.run(|transaction| transaction.put(0, 1, &[1; 8])).unwrap();
        self.store.cell(1).unwrap();
        if let Some(global) = &self.global {
            global.words()[0].fetch_add(1, Ordering::Relaxed);
            global.take_dirty();
            global.statistics();
        }
    }
}

fn call_applications(child: &mut Child, world: &World, own: &mut Own) {
    let World { node, listener, streams: [stream, _], store, folder, .. } = world;
    let other = folder.join("other");
    child.refuses("sort", || sort(node, &SortOptions::new(&other, 0, 1), || vec![1]));
    child.gives("files of the child", false, || other.exists());
    child.refuses("Endpoint::new", || Endpoint::new(node, 1 << 14));
    child.refuses("Endpoint::connect", || {
        own.ends.pop().unwrap().connect(node, &own.ends[0].token()).map(drop)
    });
    child.refuses("Listener::new", || Listener::new(node, 1 << 14));
    child.refuses("Listener::accept", || listener.accept(None).map(drop));
    child.refuses("Stream::connect", || Stream::connect(node, &listener.token(), 1 << 14, None).map(drop));
    child.refuses("Stream::read", || (&mut &*stream).read(&mut [0]));
    child.refuses("Stream::write", || (&mut &*stream).write(b"1"));
    child.refuses("Stream::flush", || (&mut &*stream).flush());
    child.refuses("Stream::read_within", || stream.read_within(&mut [0], None));
    child.refuses("Stream::write_within", || stream.write_within(b"1", None));
    child.refuses("Stream::flush_within", || stream.flush_within(None));
    child.refuses("Stream::finish", || stream.finish());
    child.ends("Stream::set_read_timeout", || stream.set_read_timeout(None));
    child.refuses("Store::new", || Store::new(node, &STORE));
    let token = store.token();
    child.refuses("Store::serve", || {
        let unserved = own.unserved.pop().unwrap();
        let stores = [unserved.token()];
        unserved.serve(node, 0, &stores)
    });
    child.refuses("ServedStore::replace", || store.replace(0, &token));
    child.gives("ServedStore::cell", None, || store.cell(1));
    child.gives("ServedStore::held", 0, || store.held());
    child.gives("ServedStore::failure", true, || store.failure().is_some());
    child.refuses("Client::new", || Client::new(node, &[token]));
    let client = &mut own.client;
    child.refuses("Transaction::get", || client.start().get(0, 1));
    child.refuses("Transaction::put", || client.start().put(0, 1, &[1; 8]));
    child.refuses("Transaction::commit", || client.start().commit());
    child.ends("Transaction::abort", || client.start().abort());
    child.refuses("Client::run", || client.run(|_| Ok(())));
}

fn call_global(child: &mut Child, node: &Node, global: &GlobalMemory) {
    child.refuses("GlobalMemory::new", || GlobalMemory::new(node, 1));
    child.gives("GlobalMemory::words", 0, || global.words().len());
    child.gives("GlobalMemory::own_words", 0..512, || global.own_words());
    child.gives("GlobalMemory::take_dirty", vec![], || global.take_dirty());
    child.gives("GlobalMemory::statistics", GasStatistics::default(), || global.statistics());
    child.gives("GlobalMemory::lost", vec![], || global.lost());
    child.gives("GlobalMemory::is_in_handler", false, || global.is_in_handler());
    child.ends("GlobalMemory::on_access", || global.on_access(|_| ()));
    child.refuses("GlobalMemory::leave", || copy_of(global).leave(node));
}

#[test]
fn parent_objects_refuse_each_call() {
    on_each_path("parent_objects_refuse_each_call", || {
        let folder = tempfile::tempdir().unwrap();
        let (world, mut own) = make(folder.path());
        while_busy(
            1,
            |_| world.use_all(),
            || {
                in_many_children(|child| {
                    call_applications(child, &world, &mut own);
                    if let Some(global) = &world.global {
                        call_global(child, &world.node, global);
                    }
                });
            },
        );
        go_on(&world, own);
    });
}

/// The parent goes on as if it had never forked.
fn go_on(world: &World, mut own: Own) {
    world.use_all();
    own.client.run(|transaction| transaction.get(0, 1)).unwrap();
    let store = own.unserved.pop().unwrap();
    let stores = [store.token()];
    drop(store.serve(&world.node, 0, &stores).unwrap());
}

/// The parent's handles of threads are dropped while the child has threads of its own, which may have got the same numbers.
#[test]
fn child_has_objects_of_its_own() {
    on_each_path("child_has_objects_of_its_own", || {
        let folder = tempfile::tempdir().unwrap();
        let (world, own) = make(folder.path());
        while_busy(
            1,
            |_| world.use_all(),
            || {
                for number in 0..10 {
                    let wrong = in_child(|child| {
                        let drop_parents = || drop((copy_of(&own), copy_of(&world)));
                        child.ends("objects of the child", || {
                            let node = alone();
                            if number % 2 == 0 {
                                drop_parents();
                            }
                            let store = Store::new(&node, &STORE).unwrap();
                            let stores = [store.token()];
                            let store = store.serve(&node, 0, &stores).unwrap();
                            if number % 2 == 1 {
                                drop_parents();
                            }
                            let mut client = Client::new(&node, &stores).unwrap();
                            client.run(|transaction| transaction.put(0, 1, &[7; 8])).unwrap();
                            assert_eq!(store.cell(1).unwrap().1, [7; 8]);
                        });
                    });
                    assert!(wrong.is_empty(), "child {number}: {wrong:#?}");
                }
            },
        );
        go_on(&world, own);
    });
}

/// Makes a store with a journal, in a folder.
fn lock_files(node: &Arc<Node>, folder: &Path) -> ServedStore {
    let store = Store::new(node, &StoreOptions { journal: Some(folder.join("journal")), ..STORE }).unwrap();
    let stores = [store.token()];
    store.serve(node, 0, &stores).unwrap()
}

#[test]
fn child_keeps_no_lock_of_its_parent() {
    let lock = |folder: &Path| {
        let node = alone();
        let store = lock_files(&node, folder);
        (node, store)
    };
    let cell = |folder: &Path| lock_files(&alone(), folder).cell(0).unwrap();
    let served = relock_beside_child("child_keeps_no_lock_of_its_parent", lock, cell);
    assert_eq!(served, (0, vec![0; 8]));
}
