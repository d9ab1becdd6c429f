//! Extended reliable connections (InfiniBand specification, volume 1, annex A14): the domain in which requests of one queue pair reach many
//! shared receive queues.
//!
//! A domain is one of this process, or is shared with others: then requests may name queues of those, which execute them. An [`XrcSharing`]
//! says how they are reached, and an [`XrcExecutor`](crate::XrcExecutor) executes what they ask for. Its queue pairs of type XRC_RECV have
//! neither queues nor a protection domain: each request names a shared receive queue, and by that the completion queue of its message, and
//! the protection domain of the memory that it accesses.

use crate::api::completion::CompletionQueue;
use crate::api::queue_pair::{QueuePair, QueuePairInit};
use crate::queue_pair::relay::XrcSharing;
use crate::queue_pair::shared_receive::{SharedReceiveInit, SharedReceiveQueue, XrcMembership};
use crate::queue_pair::xrc::{SharedDomain, XrcQueues};
use crate::services::context::Context;
use crate::services::protection::ProtectionDomain;
use crate::services::ready::Again;
use crate::types::attributes::{QpCapabilities, QueuePairType};
use crate::types::error::{Error, Result, busy_if, invalid_if};
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

/// An XRC domain (`ibv_open_xrcd(3)`).
pub struct XrcDomain<F: Fabric> {
    /// What queue pairs of type XRC_RECV have in the place of a protection domain and a completion queue of their own.
    domain: Arc<ProtectionDomain<F>>,
    queue: Arc<CompletionQueue<F>>,
    pub(crate) queues: Arc<XrcQueues<F>>,
    members: Mutex<Members<F>>,
}

#[derive_where(Default)]
struct Members<F: Fabric> {
    /// How often this process has it open.
    opened: u32,
    has_ended: bool,
    /// Queue pairs of type XRC_RECV.
    queue_pairs: HashMap<u32, OpenQueuePair<F>>,
    /// How many queue pairs of other processes this one has open.
    elsewhere: u32,
}

/// A queue pair of type XRC_RECV. It is destroyed when nobody has it open any more.
struct OpenQueuePair<F: Fabric> {
    queue_pair: Arc<QueuePair<F>>,
    /// How often this process has it open.
    here: u32,
    /// How many other processes have it open.
    by_others: u32,
}

/// Who opens or closes a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XrcOpener {
    ThisProcess,
    AnotherProcess,
}

impl<F: Fabric> OpenQueuePair<F> {
    fn count(&mut self, opener: XrcOpener) -> &mut u32 {
        match opener {
            XrcOpener::ThisProcess => &mut self.here,
            XrcOpener::AnotherProcess => &mut self.by_others,
        }
    }

    fn is_open(&self) -> bool {
        self.here + self.by_others > 0
    }
}

impl<F: Fabric> Members<F> {
    /// Whether this process uses what is in the domain.
    fn is_used_here(&self) -> bool {
        self.elsewhere > 0 || self.queue_pairs.values().any(|open| open.here > 0)
    }
}

impl<F: Fabric> XrcDomain<F> {
    /// An empty domain that is open once.
    ///
    /// # Errors
    /// `NoMemory`: there are too many protection domains or completion queues.
    pub fn new(domain: Arc<ProtectionDomain<F>>, queue: Arc<CompletionQueue<F>>) -> Arc<Self> {
        let members = Members { opened: 1, ..Members::default() };
        Arc::new(XrcDomain { domain, queue, queues: Arc::default(), members: Mutex::new(members) })
    }

    /// Other processes may have the domain from now on: before anything is made in it.
    pub fn share(&self, sharing: Arc<dyn XrcSharing>) {
        // Not the engine itself, which has the queue pairs that have these queues.
        let engine = Arc::downgrade(&self.queue.engine);
        let wake = move |number| {
            let Some(engine) = engine.upgrade() else { return };
            if let Some(queue_pair) = engine.queue_pairs.get(number) {
                engine.services.ready(&queue_pair.schedule, Again::Soon);
            }
        };
        self.queues.share(SharedDomain { sharing, wake: Arc::new(wake) });
    }

    fn sharing(&self) -> Option<&dyn XrcSharing> {
        self.queues.shared().map(|shared| &*shared.sharing)
    }

    /// The device that it is of.
    pub fn context(&self) -> &Arc<Context<F>> {
        self.domain.context()
    }

    /// The protection domain of its queue pairs.
    pub fn domain(&self) -> &Arc<ProtectionDomain<F>> {
        &self.domain
    }

    /// The completion queue of its queue pairs, which gets no completions.
    pub fn completion_queue(&self) -> &Arc<CompletionQueue<F>> {
        &self.queue
    }

    /// Opens it once more. False: it has ended.
    pub fn open(&self) -> bool {
        let mut members = self.members.lock();
        members.opened += u32::from(!members.has_ended);
        !members.has_ended
    }

    /// Closes it once (`ibv_close_xrcd(3)`). True: nobody has it open any more, and it has ended. It goes on for queue pairs that other processes
    /// have open.
    ///
    /// # Errors
    /// `Busy`: nobody would have it open, and this process has shared receive queues or queue pairs of it.
    pub fn close(&self) -> Result<bool> {
        let mut members = self.members.lock();
        let is_used = !self.queues.is_empty() || members.is_used_here();
        busy_if(members.opened == 1 && is_used, "the XRC domain is in use")?;
        members.opened = members.opened.saturating_sub(1);
        self.end_if_unused(members)
    }

    /// Ends it if nobody has it open, and no queue pair is in it.
    fn end_if_unused(&self, mut members: MutexGuard<'_, Members<F>>) -> Result<bool> {
        if members.opened > 0 || !members.queue_pairs.is_empty() || members.has_ended {
            return Ok(false);
        }
        members.has_ended = true;
        drop(members);
        if let Some(sharing) = self.sharing() {
            sharing.end();
        }
        self.queue.destroy()?;
        self.domain.dealloc()?;
        Ok(true)
    }

    /// Makes a shared receive queue of the domain (`ibv_create_srq_ex(3)`, `IBV_SRQT_XRC`), whose messages complete in a queue of their own.
    ///
    /// # Errors
    /// `InvalidArgument`: the attributes, or something is of another context; `NoMemory`.
    pub fn create_queue(
        &self,
        domain: &Arc<ProtectionDomain<F>>,
        init: &SharedReceiveInit,
        completion_queue: &CompletionQueue<F>,
    ) -> Result<Arc<SharedReceiveQueue<F>>> {
        let context = self.domain.context();
        let is_foreign =
            !Arc::ptr_eq(domain.context(), context) || !Arc::ptr_eq(completion_queue.context(), context);
        invalid_if(
            is_foreign,
            "the queue, the protection domain and the XRC domain are of several contexts",
        )?;
        let membership = XrcMembership {
            queues: self.queues.clone(),
            number: self.queues.free_number(|| domain.services().fabric.random())?,
            completion_queue: completion_queue.binding.clone(),
        };
        SharedReceiveQueue::create_in(domain, init, Some(membership))
    }

    /// Makes a queue pair of type XRC_RECV, which is open once.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn create_queue_pair(&self) -> Result<Arc<QueuePair<F>>> {
        let queue_pair = self.make_queue_pair()?;
        let open = OpenQueuePair { queue_pair: queue_pair.clone(), here: 1, by_others: 0 };
        self.members.lock().queue_pairs.insert(queue_pair.number(), open);
        Ok(queue_pair)
    }

    /// Makes what stands for a queue pair of another process that this one has opened: a queue pair that stays in RESET.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn open_elsewhere(&self) -> Result<Arc<QueuePair<F>>> {
        let queue_pair = self.make_queue_pair()?;
        self.members.lock().elsewhere += 1;
        Ok(queue_pair)
    }

    /// Ends what [`open_elsewhere`](Self::open_elsewhere) gave.
    ///
    /// # Errors
    /// Those of [`QueuePair::destroy`].
    pub fn close_elsewhere(&self, queue_pair: &QueuePair<F>) -> Result<()> {
        queue_pair.destroy()?;
        self.members.lock().elsewhere -= 1;
        Ok(())
    }

    pub(crate) fn make_queue_pair(&self) -> Result<Arc<QueuePair<F>>> {
        QueuePair::create(
            &self.domain,
            QueuePairInit {
                kind: QueuePairType::XrcReceive,
                send_cq: self.queue.clone(),
                recv_cq: self.queue.clone(),
                srq: None,
                capabilities: QpCapabilities::default(),
                signal_all: false,
                xrc: Some(self.queues.clone()),
            },
        )
    }

    /// Opens a queue pair once more (`ibv_open_qp(3)`).
    ///
    /// # Errors
    /// `InvalidArgument`: it is none of this domain.
    pub fn open_queue_pair(&self, number: u32, opener: XrcOpener) -> Result<Arc<QueuePair<F>>> {
        let mut members = self.members.lock();
        // One that nobody has open is being destroyed.
        let there = members.queue_pairs.get_mut(&number).filter(|open| open.is_open());
        let open = there.ok_or(Error::InvalidArgument("the XRC domain has no such queue pair"))?;
        *open.count(opener) += 1;
        Ok(open.queue_pair.clone())
    }

    /// Closes a queue pair once, and destroys it when nobody has it open any more.
    ///
    /// # Errors
    /// Those of [`QueuePair::destroy`]; it is open as before.
    pub fn close_queue_pair(&self, number: u32, opener: XrcOpener) -> Result<XrcClosing> {
        let mut members = self.members.lock();
        let Some(open) = members.queue_pairs.get_mut(&number) else { return Ok(XrcClosing::OpenStill) };
        *open.count(opener) -= u32::from(*open.count(opener) > 0);
        if open.is_open() {
            return Ok(XrcClosing::OpenStill);
        }
        let queue_pair = open.queue_pair.clone();
        drop(members);
        // Without the lock: it waits for others.
        let destroyed = queue_pair.destroy();
        let mut members = self.members.lock();
        match (destroyed, members.queue_pairs.get_mut(&number)) {
            (Ok(()), _) => {
                members.queue_pairs.remove(&number);
                if let Some(sharing) = self.sharing() {
                    sharing.give_up(number);
                }
                Ok(match self.end_if_unused(members)? {
                    true => XrcClosing::DomainEnded,
                    false => XrcClosing::Destroyed,
                })
            }
            (Err(error), entry) => {
                if let Some(open) = entry {
                    *open.count(opener) = 1;
                }
                Err(error)
            }
        }
    }
}

/// What has become of a queue pair that was closed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XrcClosing {
    /// Somebody has it open.
    OpenStill,
    Destroyed,
    /// It was destroyed, and with it the domain has ended, which nobody had open any more.
    DomainEnded,
}
