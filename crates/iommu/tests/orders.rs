//! Revocation against accesses, in every order that the memory model permits.

use loom::thread;
use pagewire_iommu::hazards::Revoked;
use pagewire_iommu::layout::{REGION_WORDS, REGIONS, SECRET_WORD};
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{AccessScope, Hazards, ModelWords, RegionTable, RegionView, RegisteredRegion, Rights};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const DOMAIN: u32 = 7;
const QUEUE_PAIR: u32 = 3;

fn region() -> RegisteredRegion {
    let rights = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE;
    RegisteredRegion { domain: DOMAIN, address: 0x1000, length: 8, iova: 0, rights }
}

fn tables() -> ModelWords {
    ModelWords::new([SECRET_WORD].into_iter().chain(REGIONS..REGIONS + REGION_WORDS))
}

fn bounded() -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    // Almost all races show with two preemptions of a thread (loom's documentation).
    builder.preemption_bound = Some(2);
    builder
}

/// How often either outcome was seen: a model that never gets there proves nothing.
#[derive(Default)]
struct Seen {
    made: AtomicUsize,
    refused: AtomicUsize,
}

impl Seen {
    fn add(&self, made: bool) {
        if made { &self.made } else { &self.refused }.fetch_add(1, Ordering::Relaxed);
    }

    fn assert_both(&self) {
        assert!(self.made.load(Ordering::Relaxed) > 0 && self.refused.load(Ordering::Relaxed) > 0);
    }
}

/// What an accessor does: check, claim, look again, touch, release. True: it touched.
fn access(
    view: &RegionView<ModelWords>,
    hazards: &Hazards<ModelWords>,
    key: u32,
    ended: &AtomicBool,
) -> bool {
    let Ok(granted) = view.check(key, 0, 8, Rights::REMOTE_WRITE, AccessScope::of_domain(DOMAIN)) else {
        return false;
    };
    let claim = hazards.claim(granted.index, QUEUE_PAIR).expect("a slot for each");
    let holds = view.still(&granted);
    if holds {
        // Others run between the two looks; revocation must not have ended at either.
        assert!(!ended.load(Ordering::Relaxed), "an access begins after revocation");
        thread::yield_now();
        assert!(!ended.load(Ordering::Relaxed), "an access is under way after revocation");
    }
    hazards.release(claim);
    holds
}

#[test]
fn no_access_outlives_revocation() {
    let seen = Arc::new(Seen::default());
    let inside = seen.clone();
    bounded().check(move || {
        let table = RegionTable::new(tables(), 5);
        let key = table.register(&region(), 1).unwrap();
        let slots = ModelWords::new(0..2);
        // Not loom's: what a thread finds there is what has really happened.
        let ended = Arc::new(AtomicBool::new(false));
        let accessors: Vec<_> = (0..2)
            .map(|_| {
                let (view, slots) = (table.view().clone(), slots.clone());
                let (ended, seen) = (ended.clone(), inside.clone());
                thread::spawn(move || seen.add(access(&view, &Hazards::new(slots, 0, 2), key, &ended)))
            })
            .collect();
        let index = table.revoke(key).unwrap();
        let hazards = Hazards::new(slots, 0, 2);
        while hazards.holds(Revoked::Region(index)) {
            thread::yield_now();
        }
        ended.store(true, Ordering::Relaxed);
        for accessor in accessors {
            accessor.join().unwrap();
        }
        assert!(!hazards.holds(Revoked::QueuePair(QUEUE_PAIR)));
    });
    seen.assert_both();
}

#[test]
fn a_place_used_again_grants_the_old_key_nothing_new() {
    let seen = Arc::new(Seen::default());
    let inside = seen.clone();
    bounded().check(move || {
        let table = RegionTable::with_unused_places(tables(), 5, 0);
        let old = table.register(&region(), 1).unwrap();
        let (view, seen) = (table.view().clone(), inside.clone());
        let peer = thread::spawn(move || {
            // Whatever is granted is the old region, never half of it and half of the new one.
            let checked = view.check(old, 0, 8, Rights::REMOTE_WRITE, AccessScope::of_domain(DOMAIN));
            seen.add(checked.is_ok());
            if let Ok(granted) = checked {
                assert_eq!(granted.address, 0x1000);
            }
        });
        let index = table.revoke(old).unwrap();
        table.release(index);
        table.register(&RegisteredRegion { address: 0x9000, ..region() }, 1).unwrap();
        peer.join().unwrap();
    });
    seen.assert_both();
}

#[test]
fn two_claims_never_share_a_slot() {
    bounded().check(|| {
        let slots = ModelWords::new(0..2);
        let threads: Vec<_> = (0..2)
            .map(|region| {
                let hazards = Hazards::new(slots.clone(), 0, 2);
                thread::spawn(move || {
                    let claim = hazards.claim(region, QUEUE_PAIR).unwrap();
                    assert!(hazards.holds(Revoked::Region(region)), "somebody else took the slot");
                    hazards.release(claim);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((slots.load(0), slots.load(1)), (0, 0));
    });
}
