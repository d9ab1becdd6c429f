//! sideway server|client ADDRESS PORT: messages over a connection that the crate sideway makes by librdmacm. The client sends each message, the
//! server sends it back, and both check every byte. `rdmacm` beside this file builds and runs it.

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{ExtendedCompletionQueue, GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostSendGuard, QueuePair, QueuePairState, SetScatterGatherEntry, WorkRequestFlags,
};
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, Event, EventChannel, EventType, Identifier, PortSpace,
};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of a message, more than one packet has.
const SIZE: usize = 100_000;
const MESSAGES: usize = 50;
/// The requests.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const TIMEOUT: Duration = Duration::from_secs(2);

/// What one side sends and receives with.
struct Side {
    queue_pair: BasicQueuePair,
    queue: Arc<ExtendedCompletionQueue>,
    /// The first half is sent, the second one receives.
    memory: Vec<u8>,
    region: Arc<MemoryRegion>,
    /// Completions that nobody has awaited yet, by their requests.
    completed: [u32; 2],
}

impl Side {
    fn new(id: &Identifier) -> Result<Self> {
        let device = id.get_device_context().ok_or("no device")?;
        let domain = device.alloc_pd()?;
        let queue = device.create_cq_builder().setup_cqe(8).build_ex()?;
        let both = GenericCompletionQueue::from(queue.clone());
        let memory = vec![0; 2 * SIZE];
        // SAFETY: the region ends before the memory does, both in this structure.
        let region =
            unsafe { domain.reg_mr(memory.as_ptr() as usize, memory.len(), AccessFlags::LocalWrite)? };
        let mut builder = domain.create_qp_builder();
        builder.setup_max_send_wr(2).setup_max_recv_wr(2).setup_max_send_sge(1).setup_max_recv_sge(1);
        let queue_pair = builder.setup_send_cq(both.clone()).setup_recv_cq(both).build()?;
        Ok(Self { queue_pair, queue, memory, region, completed: [0; 2] })
    }

    /// As the connection manager says.
    fn enter(&mut self, id: &Identifier, states: &[QueuePairState]) -> Result<()> {
        for state in states {
            self.queue_pair.modify(&id.get_qp_attr(*state)?)?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let address = self.memory[SIZE..].as_ptr() as u64;
        let mut guard = self.queue_pair.start_post_recv();
        // SAFETY: the memory is registered.
        unsafe { guard.construct_wr(RECEIVE).setup_sge(self.region.lkey(), address, SIZE as u32) };
        Ok(guard.post()?)
    }

    fn send(&mut self, number: usize) -> Result<()> {
        self.memory[..SIZE].copy_from_slice(&message(number));
        let address = self.memory.as_ptr() as u64;
        let mut guard = self.queue_pair.start_post_send();
        let request = guard.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is registered.
        unsafe { request.setup_sge(self.region.lkey(), address, SIZE as u32) };
        Ok(guard.post()?)
    }

    /// Awaits a completion of a request, and keeps those of the other kind.
    fn complete(&mut self, request: u64) -> Result<()> {
        while self.completed[request as usize] == 0 {
            let Ok(mut poller) = self.queue.start_poll() else { continue };
            while let Some(completion) = poller.next() {
                if completion.status() != WorkCompletionStatus::Success as u32 {
                    return Err(format!("a completion says {}", completion.status()).into());
                }
                self.completed[completion.wr_id() as usize] += 1;
            }
        }
        self.completed[request as usize] -= 1;
        Ok(())
    }

    fn check(&mut self, number: usize) -> Result<()> {
        if self.memory[SIZE..] != message(number) {
            return Err(format!("message {number} is another one").into());
        }
        self.memory[SIZE..].fill(0);
        Ok(())
    }
}

/// Bytes that no other message has in that order.
fn message(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..SIZE).map(|_| next()).collect()
}

/// The next event, which must be of a type.
fn event(channel: &Arc<EventChannel>, wanted: EventType) -> Result<Event> {
    let event = channel.get_cm_event()?;
    if event.event_type() != wanted {
        return Err(
            format!("{:?} instead of {wanted:?}, status {}", event.event_type(), event.status()).into()
        );
    }
    Ok(event)
}

fn parameters(side: &Side) -> ConnectionParameter {
    let mut parameters = ConnectionParameter::default();
    parameters.setup_qp_number(side.queue_pair.qp_number());
    parameters
}

const ALL: [QueuePairState; 3] =
    [QueuePairState::Init, QueuePairState::ReadyToReceive, QueuePairState::ReadyToSend];

fn serve(channel: &Arc<EventChannel>, address: SocketAddr) -> Result<()> {
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.bind_addr(address)?;
    listener.listen(1)?;
    let request = event(channel, EventType::ConnectRequest)?;
    let id = request.cm_id().ok_or("a request without ID")?;
    request.ack()?;
    let mut side = Side::new(&id)?;
    side.enter(&id, &ALL)?;
    side.receive()?;
    id.accept(parameters(&side))?;
    event(channel, EventType::Established)?.ack()?;
    for number in 0..MESSAGES {
        side.complete(RECEIVE)?;
        side.check(number)?;
        side.receive()?;
        side.send(number)?;
        side.complete(SEND)?;
    }
    event(channel, EventType::Disconnected)?.ack()?;
    Ok(id.disconnect()?)
}

fn connect(channel: &Arc<EventChannel>, address: SocketAddr) -> Result<()> {
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, address, TIMEOUT)?;
    event(channel, EventType::AddressResolved)?.ack()?;
    id.resolve_route(TIMEOUT)?;
    event(channel, EventType::RouteResolved)?.ack()?;
    let mut side = Side::new(&id)?;
    id.connect(parameters(&side))?;
    event(channel, EventType::ConnectResponse)?.ack()?;
    side.enter(&id, &ALL)?;
    id.establish()?;
    for number in 0..MESSAGES {
        side.receive()?;
        side.send(number)?;
        side.complete(SEND)?;
        side.complete(RECEIVE)?;
        side.check(number)?;
    }
    id.disconnect()?;
    event(channel, EventType::Disconnected)?.ack()?;
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, side, address, port] = &words[..] else {
        return Err("usage: sideway server|client ADDRESS PORT".into());
    };
    let address = SocketAddr::new(address.parse::<IpAddr>()?, port.parse()?);
    let channel = EventChannel::new()?;
    if side == "server" {
        serve(&channel, address)?
    } else {
        connect(&channel, address)?
    }
    println!("{MESSAGES} messages are right");
    Ok(())
}
