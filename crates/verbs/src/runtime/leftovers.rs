//! What a context still holds when it is closed. A kernel ends everything that belongs to a device file which is closed; programs
//! rely on it, above all for memory that they then use for other things, and for the limits of the device.

use crate::objects::device_memory::DeviceMemory;
use crate::objects::xrc::{OpenedElsewhere, abandon_receiver, close_domain};
use crate::runtime::engine::Host;
use pagewire_nic::memory_window::MemoryWindow;
use pagewire_nic::{
    AddressHandle, CompletionCounter, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, Result,
    SharedReceiveQueue, ThreadDomain, XrcDomain,
};
use pagewire_watching::watch;
use parking_lot::Mutex;
use slab::Slab;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// An object that a program has not destroyed. Those that use others come first.
#[derive(Clone)]
pub enum Leftover {
    QueuePair(Arc<QueuePair<Host>>),
    /// A structure that the program has of a queue pair of type XRC_RECV.
    XrcReceiver(Arc<XrcDomain<Host>>, Arc<QueuePair<Host>>),
    /// A queue pair of another process that the program has open.
    XrcElsewhere(Arc<OpenedElsewhere>),
    XrcDomain(Arc<XrcDomain<Host>>),
    MemoryWindow(Arc<MemoryWindow<Host>>),
    Region(Arc<MemoryRegion<Host>>),
    DeviceMemory(Arc<DeviceMemory>),
    SharedReceiveQueue(Arc<SharedReceiveQueue<Host>>),
    AddressHandle(Arc<AddressHandle<Host>>),
    CompletionCounter(Arc<CompletionCounter<Host>>),
    CompletionQueue(Arc<CompletionQueue<Host>>),
    ProtectionDomain(Arc<ProtectionDomain<Host>>),
    ThreadDomain(Arc<ThreadDomain<Host>>),
}

impl Leftover {
    /// Its place in the order in which they end.
    fn order(&self) -> u8 {
        match self {
            Leftover::QueuePair(_) | Leftover::XrcReceiver(..) | Leftover::XrcElsewhere(_) => 0,
            Leftover::MemoryWindow(_) => 1,
            Leftover::Region(_) => 2,
            Leftover::DeviceMemory(_) => 3,
            Leftover::SharedReceiveQueue(_) => 4,
            Leftover::AddressHandle(_) => 5,
            Leftover::CompletionQueue(_) | Leftover::CompletionCounter(_) => 6,
            Leftover::ProtectionDomain(domain) if domain.is_parent_domain() => 7,
            Leftover::ProtectionDomain(_) => 8,
            Leftover::ThreadDomain(_) => 9,
            Leftover::XrcDomain(_) => 10,
        }
    }

    fn name(&self) -> String {
        match self {
            Leftover::QueuePair(queue_pair) => format!("queue pair {}", queue_pair.number()),
            Leftover::XrcReceiver(_, queue_pair) => format!("queue pair {}", queue_pair.number()),
            Leftover::XrcElsewhere(opened) => format!("queue pair {} of another process", opened.number()),
            Leftover::XrcDomain(_) => "an XRC domain".into(),
            Leftover::MemoryWindow(window) => format!("the memory window with key {:#x}", window.key()),
            Leftover::Region(region) => format!("the region with key {:#x}", region.rkey()),
            Leftover::DeviceMemory(_) => "device memory".into(),
            Leftover::SharedReceiveQueue(_) => "a shared receive queue".into(),
            Leftover::AddressHandle(_) => "an address handle".into(),
            Leftover::CompletionCounter(_) => "a completion counter".into(),
            Leftover::CompletionQueue(_) => "a completion queue".into(),
            Leftover::ProtectionDomain(domain) if domain.is_parent_domain() => "a parent domain".into(),
            Leftover::ProtectionDomain(_) => "a protection domain".into(),
            Leftover::ThreadDomain(_) => "a thread domain".into(),
        }
    }

    /// Ends the engine's object. Closing does not wait for the program to acknowledge events (ibv_close_device(3)).
    fn end(&self) -> Result<()> {
        match self {
            Leftover::QueuePair(queue_pair) => {
                queue_pair.async_events().abandon();
                queue_pair.destroy()
            }
            Leftover::XrcReceiver(domain, queue_pair) => abandon_receiver(domain, queue_pair),
            Leftover::XrcElsewhere(opened) => opened.close(),
            Leftover::XrcDomain(domain) => close_domain(domain),
            Leftover::MemoryWindow(window) => window.deallocate(),
            Leftover::Region(region) => {
                let key = region.rkey();
                region.deregister()?;
                if watch::is_used() {
                    watch::ended(key);
                }
                Ok(())
            }
            Leftover::DeviceMemory(memory) => {
                memory.end();
                Ok(())
            }
            Leftover::SharedReceiveQueue(queue) => {
                queue.async_events().abandon();
                queue.destroy()
            }
            Leftover::AddressHandle(handle) => handle.destroy(),
            Leftover::CompletionCounter(counter) => counter.destroy(),
            Leftover::CompletionQueue(queue) => {
                queue.completion_events().abandon();
                queue.async_events().abandon();
                queue.destroy()
            }
            Leftover::ProtectionDomain(domain) => domain.dealloc(),
            Leftover::ThreadDomain(domain) => domain.dealloc(),
        }
    }
}

/// The objects of a context, and of those that were imported from it, each under a number.
#[derive(Default)]
pub struct Leftovers {
    /// The structure that the program ends may not be the only one of its object: the context was closed, or objects were imported.
    may_have_ended: AtomicBool,
    /// Imported contexts that are open.
    imports: AtomicU32,
    objects: Mutex<Slab<Leftover>>,
}

/// The place of one object among those of its context.
#[derive(Clone)]
pub struct Membership {
    of: Arc<Leftovers>,
    number: usize,
}

impl Leftovers {
    /// Notes an object that was made.
    pub fn add(self: &Arc<Self>, object: Leftover) -> Membership {
        Membership { number: self.objects.lock().insert(object), of: self.clone() }
    }

    /// Another context has these objects, too.
    pub fn share(&self) {
        self.imports.fetch_add(1, Ordering::AcqRel);
    }

    /// A context that has these objects is closed. True: it was the last one.
    pub fn leave(&self) -> bool {
        let left = self.imports.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        left.is_err()
    }

    /// The object with a handle ([`Membership::handle`]), and its place, for another structure of it.
    pub fn import(self: &Arc<Self>, handle: u32) -> Option<(Leftover, Membership)> {
        let number = handle as usize;
        let object = self.objects.lock().get(number).cloned()?;
        self.may_have_ended.store(true, Ordering::Release);
        Some((object, Membership { of: self.clone(), number }))
    }

    /// Ends what is left.
    ///
    /// # Errors
    /// The first of what does not end (an access is under way), and stays among the leftovers; this may be called again.
    pub fn end(&self) -> Result<()> {
        self.may_have_ended.store(true, Ordering::Release);
        let mut left: Vec<_> =
            self.objects.lock().iter().map(|(number, object)| (number, object.clone())).collect();
        left.sort_by_key(|(_, object)| object.order());
        let mut ended = Ok(());
        for (number, object) in left {
            match object.end() {
                Ok(()) => drop(self.objects.lock().try_remove(number)),
                Err(error) => {
                    log::debug!("the device is not closed: {}: {error}", object.name());
                    ended = ended.and(Err(error));
                }
            }
        }
        ended
    }
}

impl Membership {
    /// The number by which a program imports the object.
    #[inline]
    pub fn handle(&self) -> u32 {
        self.number as u32
    }

    /// Has `destroy` end the object, unless it ended with its context, or by another structure of it.
    ///
    /// # Errors
    /// Those of `destroy`; the object then is what it was.
    pub fn end<E>(&self, destroy: impl FnOnce() -> std::result::Result<(), E>) -> std::result::Result<(), E> {
        if !self.of.may_have_ended.load(Ordering::Acquire) || self.of.objects.lock().contains(self.number) {
            destroy()?;
            self.of.objects.lock().try_remove(self.number);
        }
        Ok(())
    }
}
