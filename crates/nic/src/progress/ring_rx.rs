//! What comes over rings: records, handed to their queue pairs, and ring acknowledgements on those that were sent.

use crate::completion::Completion;
use crate::path::local::{LocalChannel, RingReader};
use crate::path::ring::{REFERENCE_BYTES, RecordKind, RingRecordHeader, parse_reference};
use crate::path::ring_ack::{PendingRingAcks, RingAck};
use crate::path::send_record_format;
use crate::progress::arriving_burst::{ArrivingBurst, BurstAccess};
use crate::progress::engine::{Nic, RoundInput, Touched};
use crate::progress::short_receive::ShortReceive;
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::{Incoming, PacketOrigin};
use crate::queue_pair::poll_hint::{CqBinding, HintedSource, Seeker};
use crate::queue_pair::qp_context::QpContext;
use crate::services::ready::Occasion;
use crate::types::limits;
use crate::types::qp_role::QpRole;
use pagewire_fabric::Fabric;
use pagewire_fabric::lock::{LockGuard, light_barrier};
use pagewire_transport::{Disposition, DropCause, Payload, RcConnection, RemoteAddress, SendOnlyRequest};
use pagewire_wire::PacketHeader;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a payload whose copy takes as long as telling a ring acknowledgement.
const LONG: u32 = 1024;

/// A thread that takes what came over a channel.
struct ChannelReceiver<'t, F: Fabric> {
    nic: &'t Nic<F>,
    origin: &'t PacketOrigin<F>,
    channel: &'t LocalChannel<F>,
    /// A thread of the program polls, and the NIC thread sleeps: some of what the peer is to be told can wait until the program
    /// sends or polls again, as it is about to get what came in.
    polled: bool,
    /// The poll that it is done for, if that looks for one completion.
    seeker: Option<Seeker<'t, F>>,
    /// One record is taken at a time: its ring acknowledgement is told as soon as it is known.
    tells: bool,
    touched: Touched<F>,
}

/// A queue pair that the thread drives now.
type TakenOver<'q, F> = (&'q Arc<QueuePair<F>>, LockGuard<'q, QpContext<F>>);

impl<F: Fabric> Nic<F> {
    /// Takes records and ring acknowledgements from all rings.
    pub(crate) fn poll_channels(&self, occasion: Occasion) -> RoundInput {
        self.publish_positions(occasion);
        let (mut taken, mut from) = (RoundInput::Nothing, 0);
        while let Some((origin, next)) = self.next_busy_channel(from) {
            let PacketOrigin::Local(channel) = &origin else { break };
            // Where another thread is at it, that one goes on.
            let more = self.take_records(&origin, channel, channel.reading.try_lock(), occasion);
            taken = taken.max(if more { RoundInput::More } else { RoundInput::All });
            let Some(next) = next else { break };
            from = next;
        }
        taken
    }

    /// The first channel from the one in place `from` on that has news, and where to look on, if there are more. Channels that
    /// come or go meanwhile have their turn in the next round.
    fn next_busy_channel(&self, from: usize) -> Option<(PacketOrigin<F>, Option<usize>)> {
        let channels = self.paths.channels.read();
        let rest = channels.get(from..)?;
        let at = from + rest.iter().position(|channel| channel.has_unread())?;
        Some((PacketOrigin::Local(channels[at].clone()), Some(at + 1).filter(|next| *next < channels.len())))
    }

    /// Takes a round of records from a ring. True: there may be more.
    pub(crate) fn take_records(
        &self,
        origin: &PacketOrigin<F>,
        channel: &LocalChannel<F>,
        reading: Option<LockGuard<'_, RingReader<F::SharedMemory>>>,
        occasion: Occasion,
    ) -> bool {
        let polled = occasion == Occasion::Polled && self.services.arming.leaves_work_to_polls();
        let mut taker = ChannelReceiver::new(self, origin, channel, polled, None);
        taker.take_ring_acks();
        // What has come may be a ring acknowledgement alone.
        let reading = reading.filter(|_| !polled || channel.has_record());
        let more = reading.is_some_and(|mut reading| {
            let most = if polled { channel.poll_batch(&mut reading) } else { limits::ROUND };
            taker.take_records(reading, most) == most
        });
        taker.end();
        more
    }

    /// A completion of a queue that comes of what has come by its poll hint. `None`: nobody has looked.
    /// Else it is in `found`, if it has come.
    pub(crate) fn seek(&self, queue: &CqBinding<F>, found: &mut Option<Completion>) -> Option<()> {
        let hint = &queue.poll_hint;
        let is_left = hint.left.load(Ordering::Acquire);
        // Where the NIC thread works, too, the rounds of polls find what has come; there is less to do then.
        if !is_left && !self.services.arming.leaves_work_to_polls() {
            return None;
        }
        let hinted = hint.hinted.try_lock()?;
        let HintedSource { origin, queue_pair } = hinted.as_ref()?;
        // It may have become the poll hint just when its channel was closed.
        let is_gone = matches!(origin, PacketOrigin::Local(channel) if channel.is_gone());
        if is_gone || is_left {
            hint.left.store(false, Ordering::Release);
            drop(hinted);
            hint.clear();
            return None;
        }
        self.take_next(origin, Seeker { queue, queue_pair, found })
    }

    /// The completion that a poll looks for, if it comes of a ring acknowledgement or of a record. `None`: there may be more to be done.
    fn take_next(&self, origin: &PacketOrigin<F>, seeker: Seeker<'_, F>) -> Option<()> {
        let PacketOrigin::Local(channel) = origin else { return None };
        if channel.is_broken() {
            return None;
        }
        let (ring_ack, record) = (channel.has_ring_ack(), channel.has_record());
        if !(ring_ack || record) {
            return Some(());
        }
        let mut taker = ChannelReceiver::new(self, origin, channel, true, Some(seeker));
        if ring_ack {
            taker.take_ring_acks();
        }
        if let Some(mut reading) = Some(()).filter(|()| record).and_then(|()| channel.reading.try_lock()) {
            let most = channel.poll_batch(&mut reading);
            taker.tells = most == 1;
            taker.take_records(reading, most);
        }
        taker.end();
        taker.has_found().then_some(())
    }

    /// Makes sure that peers that were told something by a poll do not sleep.
    #[inline]
    pub(crate) fn recheck_sleepers(&self) {
        if self.unsure.load(Ordering::SeqCst) {
            self.wake_unsure_peers();
        }
    }

    #[inline(never)] // Most polls have no need of it.
    fn wake_unsure_peers(&self) {
        if self.unsure.swap(false, Ordering::SeqCst) {
            self.paths.channels.read().iter().for_each(|channel| channel.make_sure(self.fabric()));
        }
    }

    /// Does what polls have left to do: makes peers sure, and tells them where the reader is, some polls later or when there is more
    /// time.
    fn publish_positions(&self, occasion: Occasion) {
        self.recheck_sleepers();
        let left = self.polls_to_publish.load(Ordering::SeqCst);
        if left > 1 && occasion == Occasion::Polled {
            // Lost counts of two threads at once do no harm.
            self.polls_to_publish.store(left - 1, Ordering::Relaxed);
        } else if left > 0 && self.polls_to_publish.swap(0, Ordering::SeqCst) > 0 {
            self.paths.channels.read().iter().for_each(|channel| channel.publish_position());
        }
    }

    /// Whether polls have left something to be done.
    pub(crate) fn has_unpublished(&self) -> bool {
        self.polls_to_publish.load(Ordering::SeqCst) > 0 || self.unsure.load(Ordering::SeqCst)
    }
}

impl<'t, F: Fabric> ChannelReceiver<'t, F> {
    fn new(
        nic: &'t Nic<F>,
        origin: &'t PacketOrigin<F>,
        channel: &'t LocalChannel<F>,
        polled: bool,
        seeker: Option<Seeker<'t, F>>,
    ) -> Self {
        ChannelReceiver { nic, origin, channel, polled, seeker, tells: false, touched: Touched::default() }
    }

    /// Whether what the poll looks for has come.
    fn has_found(&self) -> bool {
        self.seeker.as_ref().is_some_and(Seeker::has_found)
    }

    /// Has done.
    fn end(&mut self) {
        if self.channel.is_broken() && !self.channel.is_gone() {
            self.nic.close(self.channel);
        }
        if !self.touched.is_empty() {
            self.touched.run(Occasion::Round);
        }
    }

    /// Hands records to their queue pairs, `most` of them, and tells the peer of it. Gives how many. The ring is held
    /// meanwhile, so that their order stays.
    fn take_records(
        &mut self,
        mut reading: LockGuard<'_, RingReader<F::SharedMemory>>,
        most: usize,
    ) -> usize {
        let taken = self.hand_out(&mut reading, most);
        if taken > 0 || !self.polled {
            self.conclude(reading);
        }
        taken
    }

    /// Hands records of a ring to their queue pairs, and notes the ring acknowledgements on them.
    fn hand_out(&mut self, reading: &mut RingReader<F::SharedMemory>, most: usize) -> usize {
        let channel = self.channel;
        for taken in 0..most {
            let popped = reading.consumer.pop(&mut reading.bytes);
            channel.set_next_record(reading.consumer.place());
            match popped {
                Ok(Some(record)) => {
                    if record.kind == RecordKind::Reference || record.payload > LONG {
                        // It takes its time.
                        channel.publish_ring_acks(self.nic.fabric(), &mut reading.pending_acks);
                    }
                    let RingReader { bytes, pending_acks, .. } = reading;
                    self.deliver_record(&record, bytes, pending_acks);
                }
                Ok(None) => return taken,
                Err(_) => {
                    if !channel.is_broken() {
                        log::warn!(
                            "process {:#x} broke the rules of its ring: nothing more is read from it",
                            channel.channel.instance
                        );
                        channel.set_broken();
                    }
                    return taken;
                }
            }
        }
        most
    }

    /// Tells the peer what became of its records, and where the reader is: at once, or later what can wait.
    fn conclude(&self, mut reading: LockGuard<'_, RingReader<F::SharedMemory>>) {
        let nic = self.nic;
        if !self.polled {
            reading.consumer.publish_head();
            self.channel.publish_ring_acks(nic.fabric(), &mut reading.pending_acks);
            return;
        }
        if self.channel.publish_ring_acks_unfenced(nic.fabric(), &mut reading.pending_acks) {
            nic.unsure.store(true, Ordering::Release);
        }
        drop(reading);
        nic.polls_to_publish.store(limits::POLLS_TO_PUBLISH, Ordering::Relaxed);
        // The NIC thread looks after it has come back: one of the two sees the other.
        light_barrier();
        if !nic.services.arming.leaves_work_to_polls() {
            nic.publish_positions(Occasion::Round);
        }
    }

    /// Acknowledges what the peer has told to be executed.
    fn take_ring_acks(&mut self) {
        while let Some((awaited, ring_ack)) = self.channel.take_ring_ack() {
            if let (RingAck::Acknowledged, Some(queue_pair)) = (ring_ack, awaited.queue_pair) {
                if self.acknowledged_fast(queue_pair, awaited.psn) {
                    continue;
                }
                let header = RcConnection::acknowledgement(queue_pair, awaited.psn);
                let (payload, global_route) = (Payload::Bytes(&[]), None);
                let packet = Incoming { header, payload, deferred: None, global_route, origin: self.origin };
                self.deliver_packet(&packet, false);
            }
        }
    }

    /// Completes a request that was executed, where nothing stands in the way. False: the acknowledgement is to be delivered.
    fn acknowledged_fast(&mut self, number: u32, psn: u32) -> bool {
        let (now, place) = (self.nic.services.roughly_now(), &mut None);
        let Some((queue_pair, mut qpc)) = self.take_over(number, QpRole::Requester, place) else {
            return false;
        };
        let seeker = self.seeker.as_mut();
        let done = ShortReceive::new(queue_pair, &mut qpc).acknowledge(now, psn, self.origin, seeker);
        self.give_back(queue_pair, qpc, QpRole::Requester, done);
        done
    }

    /// A queue pair of which one half has something done at once, and its QP context, unless somebody else drives it or something waits
    /// there. Where the poll does not look for a completion of it, it is put in `place`.
    #[inline(always)] // What is moved into a call has to be waited for.
    fn take_over<'q>(
        &self,
        number: u32,
        half: QpRole,
        place: &'q mut Option<Arc<QueuePair<F>>>,
    ) -> Option<TakenOver<'q, F>>
    where
        't: 'q,
    {
        let queue_pair = match self.seeker.as_ref().and_then(|seeker| seeker.expects(number)) {
            Some(queue_pair) => queue_pair,
            None => place.insert(self.nic.queue_pairs.get(number)?),
        };
        if !queue_pair.inbox.is_empty(half) {
            return None;
        }
        Some((queue_pair, queue_pair.qpc.try_lock()?))
    }

    /// Gives back what was [taken over](Self::take_over). `done`: what it was taken for.
    #[inline(always)] // What is moved into a call has to be waited for.
    fn give_back(
        &mut self,
        queue_pair: &Arc<QueuePair<F>>,
        mut qpc: LockGuard<'_, QpContext<F>>,
        half: QpRole,
        done: bool,
    ) {
        if done {
            queue_pair.counters.ring_packets_received.add_alone(1);
            queue_pair.end_if_overrun(&mut qpc);
        }
        // What was acknowledged may let more leave.
        let goes_on = done && half == QpRole::Requester && !qpc.is_idle();
        drop(qpc);
        if goes_on || queue_pair.is_wanted() {
            self.touched.mark(queue_pair.clone());
        }
    }

    /// Hands one record to its queue pair, and notes the ring acknowledgement on it.
    fn deliver_record(
        &mut self,
        record: &RingRecordHeader,
        bytes: &[u8],
        pending_acks: &mut PendingRingAcks,
    ) {
        let payload_at = usize::from(record.header).div_ceil(8) * 8;
        let headers = &bytes[..usize::from(record.header)];
        let payload = &bytes[payload_at..payload_at + record.payload as usize];
        if record.kind == RecordKind::Send {
            let whole = send_record_format::parse(headers);
            let done =
                whole.is_some_and(|send| record.wants_ack && self.execute_fast(&send, payload, pending_acks));
            if !done {
                self.deliver_as_packet(record, whole.map(|send| send.header()), None, payload, pending_acks);
            }
            return;
        }
        let (headers, global_route) = match (record.kind, headers.split_first_chunk::<40>()) {
            (RecordKind::Datagram, Some((global_route, rest))) => (rest, Some(*global_route)),
            (RecordKind::Datagram, None) => (&[][..], None),
            _ => (headers, None),
        };
        let header = PacketHeader::parse(headers).ok().map(|(header, _)| header);
        let may = record.wants_ack && record.kind == RecordKind::Bytes;
        let whole = header.as_ref().filter(|_| may).and_then(SendOnlyRequest::of);
        if !whole.is_some_and(|send| self.execute_fast(&send, payload, pending_acks)) {
            self.deliver_as_packet(record, header, global_route, payload, pending_acks);
        }
    }

    /// Hands what a record brings to its queue pair as a packet, and notes the ring acknowledgement; `None`: it has no header that makes sense.
    fn deliver_as_packet(
        &mut self,
        record: &RingRecordHeader,
        header: Option<PacketHeader>,
        global_route: Option<[u8; 40]>,
        payload: &[u8],
        pending_acks: &mut PendingRingAcks,
    ) {
        let pieces: SmallVec<[(RemoteAddress, u32); 4]>;
        let bytes = [payload];
        let payload = match record.kind {
            RecordKind::Reference => {
                pieces = payload.chunks_exact(REFERENCE_BYTES).map(parse_reference).collect();
                Payload::Reference(&pieces)
            }
            RecordKind::Bytes | RecordKind::Datagram | RecordKind::Send => Payload::Bytes(&bytes),
        };
        let acknowledged = header.is_some_and(|header| {
            let packet = Incoming { header, payload, deferred: None, global_route, origin: self.origin };
            self.deliver_packet(&packet, record.wants_ack)
        });
        if record.wants_ack {
            pending_acks.add(if acknowledged { RingAck::Acknowledged } else { RingAck::Open });
        }
    }

    /// Has a SEND executed that nothing stands in the way of, and notes the ring acknowledgement. False: it is to be delivered.
    #[inline(always)] // What is moved into a call has to be waited for.
    fn execute_fast(
        &mut self,
        send: &SendOnlyRequest,
        payload: &[u8],
        pending_acks: &mut PendingRingAcks,
    ) -> bool {
        let place = &mut None;
        let Some((queue_pair, mut qpc)) = self.take_over(send.destination, QpRole::Responder, place) else {
            return false;
        };
        let mut short = ShortReceive::new(queue_pair, &mut qpc);
        let receive = if short.accepts(send) { short.place(send, payload, self.origin) } else { None };
        if let Some(receive) = receive {
            pending_acks.add(RingAck::Acknowledged);
            // A poll that looks for one completion is about to have it: the ring acknowledgement is not left for what comes behind that.
            // Little is left to do: the line that it is told in travels meanwhile, and stores wait for it.
            if self.tells && self.channel.publish_ring_acks_unfenced(self.nic.fabric(), pending_acks) {
                self.nic.unsure.store(true, Ordering::Release);
            }
            short.complete(self.seeker.as_mut(), send, payload, receive);
        }
        self.give_back(queue_pair, qpc, QpRole::Responder, receive.is_some());
        receive.is_some()
    }

    /// Hands a packet of a ring to its queue pair: at once if nobody else drives it and nothing waits before it, else to its
    /// inbox. True: it is a request, was executed, and its acknowledgement, if the caller `wants_ack`, is the caller's to tell.
    fn deliver_packet(&mut self, packet: &Incoming<'_, F>, wants_ack: bool) -> bool {
        let (nic, header) = (self.nic, &packet.header);
        let Some((queue_pair, needs_progress)) = self.touched.get(&nic.queue_pairs, header.bth.destination)
        else {
            return false;
        };
        if let Err(cause) = packet.check_for(queue_pair.properties.kind, queue_pair.state()) {
            queue_pair.counters.drop_packet(cause);
            return false;
        }
        *needs_progress = true;
        let Some(mut qpc) = queue_pair.qpc.try_lock() else {
            queue_pair.counters.ring_packets_kept.add(1);
            queue_pair.keep_copy(packet);
            return false;
        };
        queue_pair.counters.ring_packets_received.add_alone(1);
        let mut access = BurstAccess::begin(&nic.services);
        let disposition = ArrivingBurst::new(queue_pair, &mut qpc, &mut access).hand_over(packet);
        drop(access);
        if disposition.is_held()
            || matches!(disposition, Disposition::Kept | Disposition::Dropped(DropCause::NoSpace))
        {
            return false;
        }
        let acknowledged = wants_ack && qpc.take_acknowledgement(header.bth.psn);
        let idle = qpc.is_idle();
        queue_pair.end_if_overrun(&mut qpc);
        drop(qpc);
        *needs_progress = !idle || queue_pair.is_wanted();
        acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::ring_ack::Awaited;
    use crate::services::wake_request;
    use crate::types::options::Options;
    use crate::types::path_choice::PathChoice;
    use pagewire_fabric::HostFabric;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// An engine, and its end of a channel.
    type Connected = (Arc<Nic<HostFabric>>, Arc<LocalChannel<HostFabric>>);

    /// Two engines with a channel.
    fn connected() -> [Connected; 2] {
        let nics = [(); 2].map(|()| {
            Nic::new(HostFabric::new().unwrap(), Options { path: PathChoice::Local, ..Options::default() })
        });
        let block = nics[1].fabric().lease_block().unwrap();
        nics[0].fabric().connect(block);
        let start = Instant::now();
        while nics.iter().any(|nic| nic.paths.channels.read().is_empty()) {
            assert!(start.elapsed() < Duration::from_secs(20), "no channel");
            for nic in &nics {
                nic.progress();
            }
        }
        nics.map(|nic| {
            let channel = nic.paths.channels.read()[0].clone();
            (nic, channel)
        })
    }

    /// Whether somebody goes on reading is seen by what was read between two looks.
    #[test]
    fn unread_records_stay_until_polled() {
        let [(sender, out), (receiver, into)] = connected();
        let send = || {
            let awaited = Some(Awaited { queue_pair: None, psn: 7 });
            assert!(out.send(sender.fabric(), RecordKind::Bytes, &[0; 12], &[1; 8], awaited));
        };
        let from_sender = || receiver.paths.unread_from(into.channel.instance);
        assert!(from_sender().is_empty());
        send();
        let first = from_sender();
        assert_eq!(first.len(), 1);
        let reading = into.reading.lock();
        receiver.poll_channels(Occasion::Round);
        assert_eq!(from_sender(), first, "another thread has the ring in its hands");
        drop(reading);
        assert!(receiver.paths.unread_from(0).is_empty(), "another process");
        receiver.poll_channels(Occasion::Round);
        assert!(from_sender().is_empty());
        send();
        assert_eq!(from_sender().len(), 1);
        assert_ne!(from_sender(), first);
        // Ring acknowledgements are read, too.
        receiver.poll_channels(Occasion::Round);
        let before = sender.paths.unread_from(out.channel.instance);
        assert_eq!(before.len(), 1);
        sender.poll_channels(Occasion::Round);
        assert!(sender.paths.unread_from(out.channel.instance).is_empty());
    }

    /// What a poll leaves for later comes to pass: by later polls, or by the NIC thread where there are none.
    #[test]
    fn a_peer_learns_what_a_poll_has_taken() {
        let [(sender, out), (receiver, into)] = connected();
        let send = || {
            let awaited = Some(Awaited { queue_pair: None, psn: 7 });
            assert!(out.send(sender.fabric(), RecordKind::Bytes, &[0; 12], &[1; 8], awaited));
        };
        for polls in [true, false] {
            receiver.services.arming.parked.store(true, Ordering::SeqCst);
            send();
            assert!(into.has_unread() && !out.is_drained());
            assert_ne!(receiver.poll_channels(Occasion::Polled), RoundInput::Nothing);
            assert!(!into.has_unread() && out.has_unread(), "the ring acknowledgement is told at once");
            assert!(!out.is_drained(), "where the reader is can wait");
            if polls {
                for _ in 0..limits::POLLS_TO_PUBLISH {
                    assert_eq!(receiver.poll_channels(Occasion::Polled), RoundInput::Nothing);
                }
            } else {
                // The NIC thread comes back, and does not sleep before.
                receiver.services.arming.parked.store(false, Ordering::SeqCst);
                let now = receiver.fabric().now();
                assert!(receiver.next_due(now).is_some_and(|due| due <= now));
                assert_eq!(receiver.poll_channels(Occasion::Round), RoundInput::Nothing);
            }
            assert!(out.is_drained());
            assert_eq!(receiver.polls_to_publish.load(Ordering::SeqCst), 0);
            sender.progress();
            assert!(!out.has_unread());
        }
        // Where nobody comes back later it is told at once.
        send();
        receiver.poll_channels(Occasion::Polled);
        assert!(out.is_drained());
    }

    /// A peer that goes to sleep just when a poll tells it something is woken by the next poll, by what is sent next, or by the NIC
    /// thread.
    #[test]
    fn a_peer_that_falls_asleep_meanwhile_is_woken() {
        let [(sender, out), (receiver, into)] = connected();
        for way in 0..4 {
            receiver.services.arming.parked.store(true, Ordering::SeqCst);
            // Nothing comes: the next polls may leave their rounds out.
            (0..3).for_each(|_| _ = receiver.progress_by_poller());
            let awaited = Some(Awaited { queue_pair: None, psn: 7 });
            assert!(out.send(sender.fabric(), RecordKind::Bytes, &[0; 12], &[1; 8], awaited));
            assert_ne!(receiver.poll_channels(Occasion::Polled), RoundInput::Nothing);
            // It has looked before what it was told could be seen.
            wake_request::request(sender.fabric().mailbox());
            match way {
                0 => assert_eq!(receiver.poll_channels(Occasion::Polled), RoundInput::Nothing),
                1 => assert!(receiver.may_skip_round()),
                2 => assert!(into.send(receiver.fabric(), RecordKind::Bytes, &[0; 12], &[1; 8], None)),
                _ => {
                    receiver.services.arming.parked.store(false, Ordering::SeqCst);
                    let now = receiver.fabric().now();
                    assert!(receiver.next_due(now).is_some_and(|due| due <= now));
                    receiver.poll_channels(Occasion::Round);
                }
            }
            assert!(!wake_request::is_requested(sender.fabric().mailbox()), "way {way}");
            sender.progress();
        }
    }

    /// What a look would have found as well is no reason to run rounds more often; other things are.
    #[test]
    fn rounds_stay_rare_where_they_come_upon_what_polls_look_for() {
        let [(sender, out), (receiver, _)] = connected();
        receiver.services.arming.parked.store(true, Ordering::SeqCst);
        for expected in [true, false] {
            (0..10).for_each(|_| _ = receiver.progress_by_poller());
            assert!(out.send(sender.fabric(), RecordKind::Bytes, &[0; 12], &[1; 8], None));
            let interval = receiver.progress_by_poller();
            if expected {
                receiver.set_round_interval(interval);
            }
            assert_eq!(receiver.may_skip_round(), expected);
        }
    }

    /// A poll takes more records at a time while they come faster than it takes them, and all of them in the end.
    #[test]
    fn bursts_are_taken_by_fewer_and_fewer_polls() {
        let [(sender, out), (receiver, into)] = connected();
        receiver.services.arming.parked.store(true, Ordering::SeqCst);
        let polls_for = |records: usize| {
            (0..records).for_each(|_| {
                assert!(out.send(sender.fabric(), RecordKind::Bytes, &[0; 12], &[1; 8], None));
            });
            let mut polls = 0;
            while receiver.poll_channels(Occasion::Polled) != RoundInput::Nothing {
                polls += 1;
            }
            assert!(!into.has_unread());
            polls
        };
        assert_eq!(polls_for(1), 1);
        // 1, 2, 4, 8, 16.
        assert_eq!(polls_for(31), 5);
        assert_eq!(polls_for(1), 1);
    }
}
