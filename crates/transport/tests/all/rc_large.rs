//! Messages of 2 GiB, without the bytes.

use pagewire_transport::*;
use pagewire_wire::{PacketHeader, VendorPacket};

/// Counts bytes and answers everything.
#[derive(Default)]
struct Counting {
    sent: Vec<(PacketHeader, u64)>,
    placed: u64,
    ended: bool,
    arrival: Option<Arrival>,
    completions: Vec<(WorkId, Status)>,
}

impl Counting {
    fn place(&mut self, offset: u64, payload: Payload<'_>, last: bool) -> Outcome<u32> {
        assert!(!self.ended);
        assert_eq!(offset, self.placed);
        self.placed += payload.len();
        self.ended = last;
        Outcome::Done(1)
    }
}

impl PacketSink for Counting {
    fn transmit(&mut self, header: &PacketHeader, source: PayloadSource, _count: u32) -> Outcome<u32> {
        let length = match source {
            PayloadSource::None => 0,
            PayloadSource::Work { length, .. } | PayloadSource::Remote { length, .. } => length.into(),
        };
        self.sent.push((*header, length));
        Outcome::Done(1)
    }
    fn transmit_control(&mut self, _header: &PacketHeader, _body: &VendorPacket) -> Outcome<u32> {
        panic!("nothing is lost")
    }
    fn link(&mut self) -> LinkState {
        LinkState::Delivered
    }
}

impl MemoryAccess for Counting {
    fn check_remote(&mut self, _remote: RemoteAddress, length: u32, _right: Right) -> Outcome<()> {
        assert!(length <= limits::MAX_MESSAGE);
        Outcome::Done(())
    }
    fn write_remote(&mut self, remote: RemoteAddress, payload: Payload<'_>, rest: u32) -> Outcome<u32> {
        self.place(remote.address, payload, rest == 0)
    }
    fn atomic_remote(&mut self, _remote: RemoteAddress, _atomic: AtomicRequest) -> Outcome<u64> {
        panic!("no atomics")
    }
    fn flush_remote(&mut self, _: RemoteAddress, _: u32, _: FlushRequest) -> Outcome<()> {
        panic!("no FLUSH")
    }
    fn invalidate(&mut self, _key: u32) -> Outcome<()> {
        panic!("no invalidation")
    }
    fn execute_local(&mut self, _work: WorkId) -> Outcome<()> {
        panic!("no local work")
    }
    fn place_response(
        &mut self,
        _work: WorkId,
        offset: u64,
        payload: Payload<'_>,
        last: bool,
    ) -> Outcome<u32> {
        self.place(offset, payload, last)
    }
    fn place_atomic(&mut self, _work: WorkId, _value: u64) -> Outcome<()> {
        panic!("no atomics")
    }
    fn initiator_copy(&mut self, _work: &WorkRequest) -> InitiatorCopy {
        panic!("not direct")
    }
}

impl WorkQueues for Counting {
    fn select_shared_queue(&mut self, _number: u32) -> Outcome<()> {
        panic!("no XRC")
    }
    fn begin_receive(&mut self) -> bool {
        true
    }
    fn place_receive(&mut self, offset: u64, payload: Payload<'_>, last: bool) -> Outcome<u32> {
        self.place(offset, payload, last)
    }
    fn finish_receive(&mut self, arrival: Arrival) {
        self.arrival = Some(arrival);
    }
    fn fail_receive(&mut self, status: Status) {
        panic!("{status:?}")
    }
    fn keep_short_receive(&mut self) -> bool {
        panic!("receives are of UC here")
    }
    fn complete(&mut self, work: WorkId, status: Status) {
        self.completions.push((work, status));
    }
    fn end_request(&mut self, work: WorkId, status: Status, _landed: u32) {
        panic!("{work:?}: {status:?}")
    }
    fn event(&mut self, event: QpEvent) {
        panic!("{event:?}")
    }
}

fn run(link: Link, operation: WorkOperation) -> [Counting; 2] {
    let psn = 0xff_0000;
    let mut connections = [0, 1].map(|_| {
        let mut connection = RcConnection::new(RcSettings {
            link,
            destination: 1,
            partition: 0xffff,
            receive_psn: psn,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 0,
            remote_rights: RemoteRights { read: true, write: true, ..RemoteRights::default() },
            fault_handling: FaultHandling::Stash,
            refusal: RefusalScope::Connection,
            is_xrc: false,
        });
        connection.start_requester(RequesterSettings {
            send_psn: psn,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
        });
        connection
    });
    let mut operations = [Counting::default(), Counting::default()];
    connections[0].post(WorkRequest {
        id: WorkId(0),
        operation,
        length: limits::MAX_MESSAGE,
        ..WorkRequest::default()
    });
    while operations[0].completions.is_empty() {
        let mut moved = 0;
        for at in 0..2 {
            connections[at].progress(Time(0), &mut operations[at]);
            for (header, length) in std::mem::take(&mut operations[at].sent) {
                moved += 1;
                let payload = [(NOWHERE, length as u32)];
                let outcome = connections[1 - at].receive(
                    Time(0),
                    &header,
                    Payload::Reference(&payload[..usize::from(length > 0)]),
                    &mut operations[1 - at],
                );
                assert!(!outcome.is_held());
            }
        }
        assert!(moved > 0, "stuck");
    }
    assert_eq!(operations[0].completions, [(WorkId(0), Status::Success)]);
    operations
}

const NOWHERE: RemoteAddress = RemoteAddress { address: 0, key: 0 };

fn links() -> [Link; 3] {
    let link = |mtu, lossless| Link {
        request_mtu: mtu,
        response_mtu: mtu,
        lossless,
        initiator_copy: false,
        is_stream: false,
    };
    [link(4096, false), link(4096, true), link(1 << 31, true)]
}

#[test]
fn send_and_write_of_2_gib() {
    for link in links() {
        for operation in [
            WorkOperation::Send { immediate: Some(5), invalidate: None },
            WorkOperation::Write { remote: NOWHERE, immediate: Some(5) },
        ] {
            let [_, receiver] = run(link, operation);
            assert_eq!(receiver.placed, 1 << 31);
            assert!(receiver.ended);
            assert_eq!(receiver.arrival.unwrap().length, 1 << 31);
        }
    }
}

#[test]
fn read_of_2_gib() {
    for link in links() {
        let [reader, _] = run(link, WorkOperation::Read { remote: NOWHERE });
        assert_eq!(reader.placed, 1 << 31);
        assert!(reader.ended);
    }
}
