//! Arbitrary packets, work requests and times into an RC and a UC connection whose environment answers
//! as the input says: no panic, bounded output, every completion once and in order.

use arbitrary::{Result, Unstructured};
use pagewire_transport::*;
use pagewire_wire::{Opcode, PacketHeader, VendorPacket};

const PSN: u32 = 0xff_fff8;

/// One input; gives how many packets it held.
pub fn run(bytes: &[u8]) -> u64 {
    let mut packets = 0;
    // The input is over: a run like any other.
    let _ = interpret(&mut Unstructured::new(bytes), &mut packets);
    packets
}

fn interpret(input: &mut Unstructured<'_>, packets: &mut u64) -> Result<()> {
    let link = Link {
        request_mtu: 256,
        response_mtu: 256,
        lossless: input.arbitrary()?,
        initiator_copy: false,
        is_stream: false,
    };
    let remote_rights =
        RemoteRights { read: true, write: true, atomic: true, flush_global: true, flush_persistent: true };
    let mut rc = RcConnection::new(RcSettings {
        link,
        destination: 1,
        partition: 0xffff,
        receive_psn: PSN,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 1,
        remote_rights,
        fault_handling: FaultHandling::ALL[input.int_in_range(0..=4)?],
        refusal: if input.arbitrary()? { RefusalScope::Request } else { RefusalScope::Connection },
        is_xrc: input.arbitrary()?,
    });
    let (timeout, retry_count, rnr_retry) = (input.arbitrary()?, input.arbitrary()?, input.arbitrary()?);
    rc.start_requester(RequesterSettings {
        send_psn: PSN,
        timeout,
        retry_count,
        rnr_retry,
        max_rd_atomic: 4,
    });
    rc.set_selective(input.arbitrary()?);
    rc.set_resumes(input.arbitrary()?);
    let mut uc = UcConnection::new(UcSettings {
        link,
        destination: 1,
        partition: 0xffff,
        receive_psn: PSN,
        remote_rights,
    });
    match input.arbitrary::<u8>()? % 3 {
        0 => {}
        kind => uc.set_reporting(kind == 1),
    }
    uc.start_requester(PSN);
    let mut environments = [Model::new(input.arbitrary()?, true), Model::new(input.arbitrary()?, false)];
    let mut now = 0;
    let mut posted = 0;
    while !input.is_empty() {
        match input.arbitrary::<u8>()? % 8 {
            0..=3 => {
                let length = input.int_in_range(0..=300)?;
                let packet = input.bytes(length.min(input.len()))?;
                *packets += 1;
                let Ok((mut header, at)) = PacketHeader::parse(packet) else { continue };
                // Near the PSNs that matter, most of the time.
                if input.ratio(7, 8)? {
                    header.bth.psn = PSN.wrapping_add_signed(input.int_in_range(-4..=12)?) & 0xff_ffff;
                    header.bth.partition = 0xffff;
                }
                let filler = [7; 256];
                let payload = if input.arbitrary()? { &filler } else { &packet[at..] };
                // A packet that waits is offered again or forgotten, as the input goes on.
                let burst = [payload; 3];
                let payload = Payload::Bytes(&burst[..input.int_in_range(1..=3)?]);
                let _ = rc.receive(Time(now), &header, payload, &mut environments[0]);
                let _ = uc.receive(Time(now), &header, payload, &mut environments[1]);
            }
            4 => {
                let length = input.int_in_range(0..=100)?;
                let body = input.bytes(length.min(input.len()))?;
                for opcode in [Opcode::SELECTIVE_ACK, Opcode::HOLD, Opcode::RESUME, Opcode::SKIP] {
                    if let Ok(own) = VendorPacket::parse(opcode, body) {
                        rc.receive_control(Time(now), &own, &mut environments[0]);
                        uc.receive_control(&own);
                    }
                }
            }
            5 => {
                let remote = RemoteAddress { address: input.arbitrary()?, key: input.arbitrary()? };
                let immediate = input.arbitrary()?;
                let operation = match input.arbitrary::<u8>()? % 7 {
                    0 => WorkOperation::Send { immediate, invalidate: None },
                    1 => WorkOperation::Write { remote, immediate },
                    2 => WorkOperation::Read { remote },
                    3 => WorkOperation::Atomic { remote, atomic: AtomicRequest::FetchAdd { add: 1 } },
                    4 => WorkOperation::AtomicWrite { remote },
                    5 => {
                        let [global, whole_region] = input.arbitrary()?;
                        let flush = FlushRequest { global, persistent: !global, whole_region };
                        WorkOperation::Flush { remote, length: input.arbitrary()?, flush }
                    }
                    _ => WorkOperation::Local(LocalWork::Invalidate),
                };
                let length = input.arbitrary::<u32>()? >> (input.arbitrary::<u8>()? % 32).max(1);
                let (fence, solicited, linked) = (input.arbitrary()?, input.arbitrary()?, input.arbitrary()?);
                let work = WorkRequest {
                    id: WorkId(posted),
                    operation,
                    length,
                    fence,
                    solicited,
                    linked,
                    shared_queue: 0,
                };
                posted += 1;
                rc.post(work);
                uc.post(work);
            }
            6 => {
                now += input.arbitrary::<u64>()? % 1_000_000_000;
                rc.progress(Time(now), &mut environments[0]);
                uc.progress(Time(now), &mut environments[1]);
                for deadline in [rc.deadline(), uc.deadline()].into_iter().flatten() {
                    assert!(deadline.0 > now, "drive handles what is due");
                }
                for ops in &mut environments {
                    assert!(ops.sent <= 2 * limits::PROGRESS_PACKETS + 2);
                    ops.sent = 0;
                }
            }
            _ => {
                rc.hold();
                rc.pages_in_for_requests();
                rc.pages_in_for_responses();
                rc.note_overflow();
                environments[0].sent = 0;
                if input.arbitrary()? {
                    uc.peer_began_anew(PSN);
                }
            }
        }
    }
    Ok(())
}

/// Answers by turns from a seed.
struct Model {
    state: u64,
    begun: bool,
    /// A request that fails ends the connection, not its send queue alone.
    ends: bool,
    dead: bool,
    next: u64,
    sent: u32,
}

impl Model {
    fn new(seed: u64, ends: bool) -> Model {
        Model { state: seed, begun: false, ends, dead: false, next: 0, sent: 0 }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % one_in == 0
    }

    fn answer<T>(&mut self, value: T) -> Outcome<T> {
        if self.chance(8) {
            Outcome::Wait(if self.state >> 63 == 0 { Reason::Page } else { Reason::NoClaim })
        } else if self.chance(64) {
            Outcome::Denied(Denial::RemoteAccess)
        } else {
            Outcome::Done(value)
        }
    }
}

impl Model {
    /// Takes the packets of a burst, or the first alone.
    fn some_of(&mut self, payload: Payload<'_>) -> Outcome<u32> {
        let Payload::Bytes(burst) = payload else { panic!("no reference was given") };
        let taken = if self.chance(2) { 1 } else { burst.len() as u32 };
        self.answer(taken)
    }
}

impl PacketSink for Model {
    fn transmit(&mut self, header: &PacketHeader, source: PayloadSource, count: u32) -> Outcome<u32> {
        assert_eq!(header.bth.opcode.extensions(), Some(header.extensions()));
        if let PayloadSource::Work { length, .. } | PayloadSource::Remote { length, .. } = source {
            assert!(0 < length && length <= 256);
        }
        self.sent += count;
        self.answer(count)
    }
    fn transmit_control(&mut self, header: &PacketHeader, body: &VendorPacket) -> Outcome<u32> {
        assert_eq!(header.bth.opcode, body.opcode());
        self.sent += 1;
        self.answer(1)
    }
    fn link(&mut self) -> LinkState {
        if self.chance(2) { LinkState::Pending } else { LinkState::Delivered }
    }
}

impl MemoryAccess for Model {
    fn check_remote(&mut self, _remote: RemoteAddress, length: u32, _right: Right) -> Outcome<()> {
        assert!(length > 0);
        self.answer(())
    }
    fn write_remote(&mut self, _remote: RemoteAddress, payload: Payload<'_>, _rest: u32) -> Outcome<u32> {
        self.some_of(payload)
    }
    fn atomic_remote(&mut self, remote: RemoteAddress, _atomic: AtomicRequest) -> Outcome<u64> {
        assert_eq!(remote.address % 8, 0);
        self.answer(1)
    }
    fn flush_remote(&mut self, _: RemoteAddress, _: u32, _: FlushRequest) -> Outcome<()> {
        self.answer(())
    }
    fn invalidate(&mut self, _key: u32) -> Outcome<()> {
        self.answer(())
    }
    fn execute_local(&mut self, _work: WorkId) -> Outcome<()> {
        self.answer(())
    }
    fn place_response(
        &mut self,
        _work: WorkId,
        _offset: u64,
        payload: Payload<'_>,
        _last: bool,
    ) -> Outcome<u32> {
        assert!(!payload.is_empty());
        self.some_of(payload)
    }
    fn place_atomic(&mut self, _work: WorkId, _value: u64) -> Outcome<()> {
        self.answer(())
    }
    fn initiator_copy(&mut self, _work: &WorkRequest) -> InitiatorCopy {
        InitiatorCopy::Unavailable
    }
}

impl WorkQueues for Model {
    fn select_shared_queue(&mut self, _number: u32) -> Outcome<()> {
        self.answer(())
    }
    fn begin_receive(&mut self) -> bool {
        assert!(!self.begun);
        self.begun = !self.chance(4);
        self.begun
    }
    fn place_receive(&mut self, _offset: u64, payload: Payload<'_>, _last: bool) -> Outcome<u32> {
        assert!(self.begun);
        self.some_of(payload)
    }
    fn finish_receive(&mut self, _arrival: Arrival) {
        assert!(std::mem::take(&mut self.begun));
    }
    fn fail_receive(&mut self, _status: Status) {
        assert!(std::mem::take(&mut self.begun));
    }
    fn keep_short_receive(&mut self) -> bool {
        assert!(self.begun);
        self.begun = self.chance(2);
        self.begun
    }
    fn complete(&mut self, work: WorkId, status: Status) {
        assert!(!self.dead && work.0 >= self.next);
        self.next = work.0 + 1;
        self.dead = self.ends && status != Status::Success;
    }
    fn end_request(&mut self, work: WorkId, status: Status, _landed: u32) {
        assert!(!self.dead && work.0 >= self.next && status != Status::Success);
        self.next = work.0 + 1;
    }
    fn event(&mut self, _event: QpEvent) {}
}
