//! Encrypted streams between two fabrics of one process, and those who stand between them.

mod common;

use common::{PATIENCE, alone, answer, packet, receive, route, serve};
use pagewire_fabric::{Fabric, FabricOptions, HostFabric, Route, SendBatch, StreamOptions, Tls, TlsChoice};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tempfile::TempDir;

const HERE: &str = "127.0.0.1";

fn fabric(tls: Option<&TlsChoice>, connect_to: &str) -> HostFabric {
    let tls = tls.map(|choice| Tls::load(choice).unwrap());
    let connect_to = if connect_to.is_empty() { Default::default() } else { connect_to.parse().unwrap() };
    let streams = StreamOptions { connect_to, tls };
    HostFabric::with_options(FabricOptions { streams, ..FabricOptions::default() }).unwrap()
}

fn secret(folder: &TempDir, text: &str) -> TlsChoice {
    let file = folder.path().join("secret");
    std::fs::write(&file, text.repeat(8)).unwrap();
    TlsChoice::Secret(file)
}

/// An authority, which writes the files of its peers to a folder.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(folder.path().join("ca"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { folder, issuer: Issuer::new(params, key) }
    }

    /// A peer whose certificate is for an address or a name; `wished`: the name that its peers must have.
    fn peer(&self, subject: &str, wished: Option<&str>) -> TlsChoice {
        let path = |what: &str| self.folder.path().join(format!("{subject}-{what}"));
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([subject.to_owned()]).unwrap();
        std::fs::write(path("cert"), params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        TlsChoice::Certificates {
            certificate: path("cert"),
            key: path("key"),
            authority: self.folder.path().join("ca"),
            name: wished.map(str::to_owned),
        }
    }
}

/// The stream from one fabric to another, once both have told.
fn between(a: &HostFabric, b: &HostFabric) -> Result<(Route, u32), String> {
    a.lease_block().unwrap();
    let block = b.lease_block().unwrap();
    answer(a, &[b], block, &route(HERE, HERE, b)).map(|route| (route, block))
}

fn connects(a: Option<&TlsChoice>, b: Option<&TlsChoice>) -> Result<(), String> {
    between(&fabric(a, ""), &fabric(b, "")).map(drop)
}

/// Sends a packet if there is a stream; it waits for none.
fn offer(fabric: &HostFabric, route: &Route, bytes: &[u8]) {
    let mut batch = fabric.batch();
    if let Some(room) = batch.packet(route, bytes.len()) {
        room.copy_from_slice(bytes);
    }
    fabric.flush(batch);
}

#[test]
fn peers_are_known_by_their_secret() {
    let _alone = alone();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [ours, theirs] = [secret(&folders[0], "ours"), secret(&folders[1], "theirs")];
    assert_eq!(connects(Some(&ours), Some(&ours)), Ok(()));
    let reason = connects(Some(&ours), Some(&theirs)).unwrap_err();
    assert!(reason.contains("the peer does not have the same secret"), "{reason}");
    let reason = connects(Some(&ours), None).unwrap_err();
    assert!(reason.contains("takes no encrypted connections"), "{reason}");
    let reason = connects(None, Some(&ours)).unwrap_err();
    assert!(reason.contains("takes encrypted connections only"), "{reason}");
}

#[test]
fn peers_are_known_by_their_certificates() {
    let _alone = alone();
    let (authority, other) = (Authority::new(), Authority::new());
    let here = authority.peer(HERE, None);
    assert_eq!(connects(Some(&here), Some(&here)), Ok(()));
    let elsewhere = authority.peer("127.0.0.9", None);
    let reason = connects(Some(&here), Some(&elsewhere)).unwrap_err();
    assert!(reason.contains("not valid for name"), "{reason}");
    let reason = connects(Some(&elsewhere), Some(&here)).unwrap_err();
    assert!(reason.contains("the certificate is not for it"), "{reason}");
    let stranger = other.peer(HERE, None);
    let reason = connects(Some(&here), Some(&stranger)).unwrap_err();
    assert!(reason.contains("the certificate of the peer is of no use"), "{reason}");
    // One name for all of a job, wherever they are.
    let member = authority.peer("job.example", Some("job.example"));
    assert_eq!(connects(Some(&member), Some(&member)), Ok(()));
    let reason = connects(Some(&member), Some(&here)).unwrap_err();
    assert!(reason.contains("not valid for name"), "{reason}");
}

/// What somebody does who stands between the ends, at some byte of the first connection.
#[derive(Debug, Clone, Copy)]
enum Attack {
    Nothing,
    Flip,
    Cut,
    /// The last bytes once more.
    Replay,
    /// The next bytes behind those that follow them.
    Reorder,
}

/// Bytes that are repeated or change their places.
const FEW: usize = 40;

/// Forwards connections to the port of streams and does something at byte `at` of what the opening side says. Gives where it listens, and what it
/// has seen.
fn stand_between(attack: Attack, at: usize) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
    let all = seen.clone();
    let connections = AtomicUsize::new(0);
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let Ok(to) = TcpStream::connect((HERE, 4791)) else { continue };
            let attack = match connections.fetch_add(1, Ordering::Relaxed) {
                0 => attack,
                _ => Attack::Nothing,
            };
            let (back, forth) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            let all = all.clone();
            std::thread::spawn(move || forward(from, to, (attack, at), &all));
            std::thread::spawn(move || forward(back, forth, (Attack::Nothing, 0), &Mutex::default()));
        }
    });
    (address, seen)
}

fn forward(mut from: TcpStream, mut to: TcpStream, (attack, at): (Attack, usize), seen: &Mutex<Vec<u8>>) {
    let (mut passed, mut held) = (0, Vec::<u8>::new());
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        held.extend_from_slice(&bytes[..read]);
        seen.lock().unwrap().extend_from_slice(&bytes[..read]);
        let is_near = passed <= at && at < passed + held.len();
        let mut is_over = false;
        if is_near {
            let place = at - passed;
            match attack {
                Attack::Nothing => {}
                Attack::Flip => held[place] ^= 1,
                Attack::Cut => {
                    held.truncate(place);
                    is_over = true;
                }
                Attack::Replay => {
                    let again = held[place.saturating_sub(FEW)..place].to_vec();
                    held.splice(place..place, again);
                }
                // Until both parts are here.
                Attack::Reorder if held.len() < place + 2 * FEW => continue,
                Attack::Reorder => held[place..place + 2 * FEW].rotate_left(FEW),
            }
        }
        if to.write_all(&held).is_err() {
            break;
        }
        passed += held.len();
        held.clear();
        if is_over {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Whatever is done to what travels: no packet comes that was not sent, each comes once and in its turn, and the stream goes on.
#[test]
fn who_stands_between_changes_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let tls = secret(&folder, "ours");
    let attacks = [Attack::Nothing, Attack::Flip, Attack::Cut, Attack::Replay, Attack::Reorder];
    // In the preface (kind, block, flag, address), in the handshake, in what is encrypted.
    for at in [9, 11, 12, 47, 70, 200, 330, 500, 700, 3_000, 20_000] {
        for attack in attacks {
            let (between, seen) = stand_between(attack, at);
            let (a, b) = (fabric(Some(&tls), &format!("{HERE}={between}")), fabric(Some(&tls), ""));
            a.lease_block().unwrap();
            let block = b.lease_block().unwrap();
            let until = Instant::now() + PATIENCE;
            let (mut next, mut last, mut count) = (0, None, 0);
            while count < 100 {
                assert!(Instant::now() < until, "{attack:?} at {at}: {count} packets");
                let Ok(way) = answer(&a, &[&b], block, &route(HERE, HERE, &b)) else { continue };
                for _ in 0..8 {
                    offer(&a, &way, &packet(block << 8 | 5, next, 400));
                    next += 1;
                }
                for got in receive(&[&b], 8, std::time::Duration::from_millis(1)).remove(0) {
                    let seed = u32::from_be_bytes(*got.bytes[8..12].first_chunk().unwrap());
                    assert_eq!(got.bytes, packet(block << 8 | 5, seed, 400), "{attack:?} at {at}");
                    assert!(last < Some(seed), "{attack:?} at {at}: {seed} behind {last:?}");
                    (last, count) = (Some(seed), count + 1);
                }
                serve(&[&a, &b]);
            }
            let (plain, seen) = (packet(block << 8 | 5, 0, 400), seen.lock().unwrap());
            assert!(!seen.windows(16).any(|bytes| bytes == &plain[100..116]), "it travels in the clear");
        }
    }
}

/// Who answers in the clear may refuse, and not accept.
#[test]
fn acceptance_in_the_clear_is_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let tls = secret(&folder, "ours");
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let a = fabric(Some(&tls), &format!("{HERE}={}", listener.local_addr().unwrap()));
    a.lease_block().unwrap();
    std::thread::spawn(move || {
        for mut asking in listener.incoming().flatten() {
            let mut preface = [0; 64];
            let _ = asking.read_exact(&mut preface);
            preface[9] = 1;
            let _ = asking.write_all(&preface);
        }
    });
    let reason = answer(&a, &[], 5, &route(HERE, HERE, &a)).unwrap_err();
    assert!(reason.contains("it answers in the clear"), "{reason}");
    assert!(Path::new(folder.path()).exists());
}

/// Who asks for an encrypted stream where there is none, and then talks without end, keeps nobody busy.
#[test]
fn strangers_who_go_on_talking_are_not_listened_to() {
    let _alone = alone();
    let a = fabric(None, "");
    let block = a.lease_block().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, mut stranger) = (is_over.clone(), TcpStream::connect((HERE, 4791)).unwrap());
    let talking = std::thread::spawn(move || {
        let mut preface = [0; 64];
        preface[..9].copy_from_slice(b"pagewire\x01");
        preface[10..12].copy_from_slice(&(block as u16).to_be_bytes());
        preface[12] = 1;
        stranger.write_all(&preface).unwrap();
        // Until it is closed.
        while !over.load(Ordering::Relaxed) && stranger.write_all(&[7; 1 << 16]).is_ok() {}
    });
    for _ in 0..200 {
        serve(&[&a]);
    }
    is_over.store(true, Ordering::Relaxed);
    drop(a);
    talking.join().unwrap();
}

/// Datagrams are not encrypted: nobody reads them.
#[test]
fn datagrams_do_not_come() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let tls = secret(&folder, "ours");
    let b = fabric(Some(&tls), "");
    let block = b.lease_block().unwrap();
    let a = fabric(None, "");
    a.lease_block().unwrap();
    for seed in 0..20 {
        offer(&a, &route(HERE, HERE, &b), &packet(block << 8 | 5, seed, 64));
        serve(&[&a, &b]);
    }
    let got = receive(&[&b], 1, std::time::Duration::from_millis(50)).remove(0);
    assert!(got.is_empty());
    assert!(a.counters().datagrams_sent.get() > 0);
    assert_eq!(b.counters().datagrams_received.get(), 0);
}
