//! Queue pairs of type XRC_RECV that another process has made, and this one has opened.

use super::frames::{Purpose, QueuePairCall, receive_answer, send_call};
use super::sharing::Sharing;
use crate::abi::*;
use crate::boundary::{Errno, Result, invalid};
use crate::runtime::engine::Host;
use pagewire_fabric::members::MemberStream;
use pagewire_nic::{QueuePair, XrcDomain};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long other processes may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long each is waited for, also where others have taken all the time.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// A queue pair of another process. Its connection to that process is what keeps the queue pair open.
pub struct OpenedElsewhere {
    domain: Arc<XrcDomain<Host>>,
    /// Has the place of a queue pair in this process, and stays in RESET.
    stand_in: Arc<QueuePair<Host>>,
    number: u32,
    /// `None`: the other process has ended, or has not answered.
    stream: Mutex<Option<MemberStream>>,
}

/// Asks the member with a name for a queue pair, for so long. `None`: it has none with this number.
fn ask_for(
    sharing: &Sharing,
    (name, number): (u32, u32),
    time: Duration,
) -> io::Result<Option<MemberStream>> {
    // No time is no bound to the kernel.
    let time = time.max(SHORTEST_WAIT);
    let Some(stream) = MemberStream::connect(sharing.file(), name, time)? else { return Ok(None) };
    stream.set_patience(time)?;
    Purpose::Open { queue_pair: number }.send(&stream)?;
    let (errno, _) = receive_answer(&stream)?;
    Ok((errno == 0).then_some(stream))
}

impl OpenedElsewhere {
    /// Opens the queue pair with a number.
    ///
    /// # Errors
    /// EINVAL: no process has such a queue pair in the domain. ETIMEDOUT: none of those that answer has it. Those of the kernel.
    pub fn open(domain: &Arc<XrcDomain<Host>>, sharing: &Sharing, number: u32) -> Result<Arc<Self>> {
        let until = Instant::now() + PATIENCE;
        let mut is_late = false;
        for name in sharing.others()? {
            let asked = ask_for(sharing, (name, number), until.saturating_duration_since(Instant::now()));
            match asked {
                Ok(Some(stream)) => {
                    stream.set_patience(PATIENCE)?;
                    let stand_in = domain.open_elsewhere()?;
                    let (domain, stream) = (domain.clone(), Mutex::new(Some(stream)));
                    return Ok(Arc::new(OpenedElsewhere { domain, stand_in, number, stream }));
                }
                Ok(None) => {}
                Err(error) => {
                    // One that ends has none that could be used.
                    is_late |= error.kind() == io::ErrorKind::WouldBlock;
                    log::debug!("the member {name:#x} of an XRC domain does not answer: {error}");
                }
            }
        }
        if is_late { Err(Errno(libc::ETIMEDOUT)) } else { invalid("the XRC domain has no such queue pair") }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What has its place in this process.
    pub fn stand_in(&self) -> &Arc<QueuePair<Host>> {
        &self.stand_in
    }

    /// `ibv_modify_qp(3)`; gives the attributes then.
    ///
    /// # Errors
    /// Those of the other process. EIO: it has ended. ETIMEDOUT: it does not answer.
    pub fn modify(&self, attributes: &ibv_qp_attr, mask: u32) -> Result<ibv_qp_attr> {
        self.call(&QueuePairCall::Modify { attributes: Box::new(*attributes), mask })
    }

    /// `ibv_query_qp(3)`.
    ///
    /// # Errors
    /// As those of [`modify`](Self::modify).
    pub fn query(&self) -> Result<ibv_qp_attr> {
        self.call(&QueuePairCall::Query)
    }

    fn call(&self, call: &QueuePairCall) -> Result<ibv_qp_attr> {
        let mut stream = self.stream.lock();
        let Some(open) = stream.as_ref() else { return Err(Errno(libc::EIO)) };
        match send_call(open, call).and_then(|()| receive_answer(open)) {
            Ok((0, attributes)) => Ok(attributes),
            Ok((errno, _)) => Err(Errno(errno)),
            Err(error) => {
                log::debug!("queue pair {} of another process: {error}", self.number);
                // A late answer would be taken for that to another call.
                *stream = None;
                let is_late = error.kind() == io::ErrorKind::WouldBlock;
                Err(Errno(if is_late { libc::ETIMEDOUT } else { libc::EIO }))
            }
        }
    }

    /// Closes it.
    ///
    /// # Errors
    /// Those of the end of what stands for it.
    pub fn close(&self) -> pagewire_nic::Result<()> {
        self.domain.close_elsewhere(&self.stand_in)?;
        // The other process sees the end of the connection.
        *self.stream.lock() = None;
        Ok(())
    }
}
