//! What a member of an XRC domain does for another one: it executes requests for its shared receive queues, and lets the other use a queue
//! pair of its own.

use super::frames::{Purpose, QueuePairCall, receive_call, receive_request, send_answer, send_outcome};
use super::{close_for_another, forget_domain};
use crate::abi::*;
use crate::boundary::Errno;
use crate::objects::queue_pair::{attributes_now, change_from};
use crate::runtime::engine::Host;
use pagewire_fabric::members::MemberStream;
use pagewire_nic::{Denial, QueuePair, RelayOutcome, XrcDomain, XrcExecutor, XrcOpener};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Between two tries to close a queue pair.
const CLOSE_INTERVAL: Duration = Duration::from_millis(100);

/// Serves one connection until it ends.
pub fn serve(domain: &Arc<XrcDomain<Host>>, stream: &MemberStream) {
    let served = match Purpose::receive(stream) {
        Ok(Purpose::Relay { queue_pair }) => execute_requests(domain, stream, queue_pair),
        Ok(Purpose::Open { queue_pair }) => serve_opener(domain, stream, queue_pair),
        Err(error) => Err(error),
    };
    match served {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(error) => log::debug!("the connection of another member of an XRC domain has ended: {error}"),
        Ok(()) => {}
    }
}

/// Executes what came to a queue pair of the other process.
fn execute_requests(domain: &Arc<XrcDomain<Host>>, stream: &MemberStream, queue_pair: u32) -> io::Result<()> {
    let mut executor = XrcExecutor::new(domain, queue_pair);
    let served = loop {
        let request = match receive_request(stream, queue_pair) {
            Ok(request) => request,
            Err(error) => break error,
        };
        let executed = match &mut executor {
            // Given up before it began.
            Ok(_) if stream.is_at_end() => break io::ErrorKind::UnexpectedEof.into(),
            Ok(executor) => executor.execute(&request, &mut || stream.is_at_end()),
            Err(error) => Err(*error),
        };
        let outcome = executed.unwrap_or_else(|error| {
            log::warn!(
                "a request that came to queue pair {queue_pair} of another process is refused: {error}"
            );
            RelayOutcome::Denied(Denial::Operational)
        });
        if let Err(error) = send_outcome(stream, &outcome) {
            break error;
        }
    };
    if let Ok(executor) = executor
        && let Err(error) = executor.destroy()
    {
        log::warn!("what was done for queue pair {queue_pair} of another process does not end: {error}");
    }
    Err(served)
}

/// Lets the other process use a queue pair of this one, until it closes it or ends.
fn serve_opener(domain: &Arc<XrcDomain<Host>>, stream: &MemberStream, number: u32) -> io::Result<()> {
    let queue_pair = match domain.open_queue_pair(number, XrcOpener::AnotherProcess) {
        Ok(queue_pair) => queue_pair,
        Err(error) => return send_answer(stream, error.errno(), &ibv_qp_attr::zeroed()),
    };
    let served = serve_calls(&queue_pair, stream);
    // A process that is stopped at a request holds the end up, and nobody else would close it.
    let closed = loop {
        match close_for_another(domain, &queue_pair) {
            Err(Errno(libc::EBUSY)) => std::thread::sleep(CLOSE_INTERVAL),
            closed => break closed,
        }
    };
    match closed {
        Ok(true) => forget_domain(domain),
        Ok(false) => {}
        Err(error) => log::warn!("queue pair {number} does not end: error {}", error.0),
    }
    served
}

fn serve_calls(queue_pair: &Arc<QueuePair<Host>>, stream: &MemberStream) -> io::Result<()> {
    send_answer(stream, 0, &attributes_now(queue_pair))?;
    loop {
        let errno = match receive_call(stream)? {
            QueuePairCall::Query => 0,
            QueuePairCall::Modify { attributes, mask } => {
                let changed = change_from(queue_pair.number(), &attributes, mask)
                    .and_then(|change| Ok(queue_pair.modify(&change)?));
                changed.err().map_or(0, |error| error.0)
            }
        };
        send_answer(stream, errno, &attributes_now(queue_pair))?;
    }
}
