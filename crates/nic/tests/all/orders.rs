//! Rings and wake-ups, in every order that the memory model permits.

use loom::thread;
use pagewire_iommu::ModelWords;
use pagewire_nic::path::ring::{Consumer, Producer, RING_ACKS, RecordKind, RingRecordHeader, has_record};
use pagewire_nic::path::ring_ack::{Awaited, AwaitedRingAcks, PendingRingAcks, RingAck, TakenAcks};
use pagewire_nic::path::wake_request;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How far the reader is, the first area of a ring, and the beginning of its second one.
fn ring() -> ModelWords {
    ModelWords::new((0..16).chain(64..700))
}

fn bounded() -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    // Almost all races show with two preemptions of a thread (loom's documentation).
    builder.preemption_bound = Some(2);
    builder
}

/// Three of these fill the first area, so that the fourth wraps or grows.
const PAYLOAD: usize = 1040;

fn push(producer: &mut Producer<ModelWords>, number: u8) -> bool {
    let header =
        RingRecordHeader { kind: RecordKind::Bytes, header: 12, wants_ack: false, payload: PAYLOAD as u32 };
    producer.push(&header, &[number; 12], &[!number; PAYLOAD])
}

fn assert_whole(header: &RingRecordHeader, bytes: &[u8], number: u8) {
    assert_eq!((header.header, header.payload), (12, PAYLOAD as u32));
    assert_eq!(&bytes[..12], &[number; 12]);
    assert!(bytes[16..].iter().all(|byte| *byte == !number), "half a record");
}

#[test]
fn records_are_whole_and_in_order() {
    let grown = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let seen = grown.clone();
    bounded().check(move || {
        let words = ring();
        let mut producer = Producer::new(words.clone(), 0);
        let reader = thread::spawn({
            let words = words.clone();
            move || {
                let (mut consumer, mut bytes, mut next) = (Consumer::new(words, 0), Vec::new(), 1);
                while next <= 4 {
                    match consumer.pop(&mut bytes).expect("a whole ring") {
                        Some(header) => {
                            assert_whole(&header, &bytes, next);
                            next += 1;
                            consumer.publish_head();
                        }
                        None => thread::yield_now(),
                    }
                }
                consumer.place()
            }
        });
        for number in 1..=4 {
            assert!(push(&mut producer, number));
        }
        let place = reader.join().unwrap();
        assert!(producer.is_drained() && !has_record(&words, place));
        // Both ways to go on at the end of the area are taken.
        let mut second = [0; 8];
        pagewire_iommu::words::SharedWords::read_bytes(&words, 512, &mut second);
        seen[usize::from(second != [0; 8])].fetch_add(1, Ordering::Relaxed);
    });
    assert!(grown.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{grown:?}");
}

#[test]
fn a_sleeper_misses_no_record() {
    let woken = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let seen = woken.clone();
    bounded().check(move || {
        let (words, mailbox) = (ring(), ModelWords::new([0]));
        let sender = thread::spawn({
            let (words, mailbox) = (words.clone(), mailbox.clone());
            move || {
                assert!(push(&mut Producer::new(words, 0), 1));
                wake_request::take(&mailbox)
            }
        });
        wake_request::request(&mailbox);
        let sees = has_record(&words, Consumer::new(words.clone(), 0).place());
        let wakes = sender.join().unwrap();
        assert!(sees || wakes, "the record is there, and the sleeper sleeps on");
        wake_request::withdraw(&mailbox);
        assert!(!wake_request::take(&mailbox), "nobody asks any more");
        seen[usize::from(wakes)].fetch_add(1, Ordering::Relaxed);
    });
    assert!(woken.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{woken:?}");
}

#[test]
fn sleeper_sees_ring_ack() {
    bounded().check(|| {
        let (words, mailbox) = (ModelWords::new(RING_ACKS..RING_ACKS + 2), ModelWords::new([0]));
        let teller = thread::spawn({
            let (words, mailbox) = (words.clone(), mailbox.clone());
            move || {
                let mut pending_acks = PendingRingAcks::default();
                pending_acks.add(RingAck::Acknowledged);
                pending_acks.publish(&words, 0);
                wake_request::take(&mailbox)
            }
        });
        wake_request::request(&mailbox);
        let (mut ring_acks, next) = (AwaitedRingAcks::default(), TakenAcks::default());
        ring_acks.expect(Awaited { queue_pair: Some(1), psn: 2 }, &next);
        let sees = next.has_come(&words, 0);
        let wakes = teller.join().unwrap();
        assert!(sees || wakes, "the ring acknowledgement is there, and the sleeper sleeps on");
        assert!(matches!(ring_acks.take(&words, 0, &next), Some((_, RingAck::Acknowledged))));
    });
}

#[test]
fn one_of_several_senders_wakes() {
    bounded().check(|| {
        let mailbox = ModelWords::new([0]);
        wake_request::request(&mailbox);
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let mailbox = mailbox.clone();
                thread::spawn(move || wake_request::take(&mailbox))
            })
            .collect();
        let wakes = senders.into_iter().map(|sender| sender.join().unwrap());
        assert_eq!(wakes.filter(|wakes| *wakes).count(), 1);
    });
}
