//! Extended reliable connections (InfiniBand specification, volume 1, annex A14): the domain in which requests of one queue pair reach many
//! shared receive queues.
//!
//! A domain is one of this process. Its queue pairs of type XRC_RECV have neither queues nor a protection domain: each request names a shared
//! receive queue, and by that the completion queue of its message, and the protection domain of the memory that it accesses.

use crate::api::completion::CompletionQueue;
use crate::api::queue_pair::{QueuePair, QueuePairInit};
use crate::queue_pair::shared_receive::{SharedReceiveInit, SharedReceiveQueue, XrcMembership};
use crate::queue_pair::xrc::XrcQueues;
use crate::services::protection::ProtectionDomain;
use crate::types::attributes::{QpCapabilities, QueuePairType};
use crate::types::error::{Error, Result, busy_if, invalid_if};
use pagewire_fabric::Fabric;
use parking_lot::Mutex;
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

struct Members<F: Fabric> {
    /// How often it is open.
    opened: u32,
    /// Queue pairs of type XRC_RECV, each with how often it is open.
    queue_pairs: HashMap<u32, (Arc<QueuePair<F>>, u32)>,
}

impl<F: Fabric> XrcDomain<F> {
    /// An empty domain that is open once.
    ///
    /// # Errors
    /// `NoMemory`: there are too many protection domains or completion queues.
    pub fn new(domain: Arc<ProtectionDomain<F>>, queue: Arc<CompletionQueue<F>>) -> Arc<Self> {
        let members = Members { opened: 1, queue_pairs: HashMap::new() };
        Arc::new(XrcDomain { domain, queue, queues: Arc::default(), members: Mutex::new(members) })
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
        members.opened += u32::from(members.opened > 0);
        members.opened > 0
    }

    /// Closes it once (`ibv_close_xrcd(3)`). True: nobody has it open any more, and it has ended.
    ///
    /// # Errors
    /// `Busy`: it would end, and has shared receive queues or queue pairs.
    pub fn close(&self) -> Result<bool> {
        let mut members = self.members.lock();
        let is_used = !self.queues.is_empty() || !members.queue_pairs.is_empty();
        busy_if(members.opened == 1 && is_used, "the XRC domain is in use")?;
        members.opened = members.opened.saturating_sub(1);
        if members.opened > 0 {
            return Ok(false);
        }
        drop(members);
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
            number: self.queues.free_number(|| domain.services().fabric.random()),
            completion_queue: completion_queue.binding.clone(),
        };
        SharedReceiveQueue::create_in(domain, init, Some(membership))
    }

    /// Makes a queue pair of type XRC_RECV, which is open once.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn create_queue_pair(&self) -> Result<Arc<QueuePair<F>>> {
        let queue_pair = QueuePair::create(
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
        )?;
        self.members.lock().queue_pairs.insert(queue_pair.number(), (queue_pair.clone(), 1));
        Ok(queue_pair)
    }

    /// Opens a queue pair once more (`ibv_open_qp(3)`).
    ///
    /// # Errors
    /// `InvalidArgument`: it is none of this domain.
    pub fn open_queue_pair(&self, number: u32) -> Result<Arc<QueuePair<F>>> {
        let mut members = self.members.lock();
        // One that nobody has open is being destroyed.
        let there = members.queue_pairs.get_mut(&number).filter(|(_, opened)| *opened > 0);
        let (queue_pair, opened) =
            there.ok_or(Error::InvalidArgument("the XRC domain has no such queue pair"))?;
        *opened += 1;
        Ok(queue_pair.clone())
    }

    /// Closes a queue pair once, and destroys it when nobody has it open any more: then it gives true.
    ///
    /// # Errors
    /// Those of [`QueuePair::destroy`]; it is open as before.
    pub fn close_queue_pair(&self, number: u32) -> Result<bool> {
        let mut members = self.members.lock();
        let Some((queue_pair, opened)) = members.queue_pairs.get_mut(&number) else { return Ok(false) };
        *opened = opened.saturating_sub(1);
        if *opened > 0 {
            return Ok(false);
        }
        let queue_pair = queue_pair.clone();
        drop(members);
        // Without the lock: it waits for others.
        let destroyed = queue_pair.destroy();
        let mut members = self.members.lock();
        match (destroyed, members.queue_pairs.get_mut(&number)) {
            (Ok(()), _) => {
                members.queue_pairs.remove(&number);
                Ok(true)
            }
            (Err(error), entry) => {
                if let Some((_, opened)) = entry {
                    *opened = 1;
                }
                Err(error)
            }
        }
    }
}
