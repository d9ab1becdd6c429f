//! The raw forms: buffers, exports and signals that are addresses, for interfaces of other languages. Their callers promise what the types
//! of this crate prove elsewhere.
//!
//! Conditional writes that another layer posts are here, too.
//!
//! Start at [`RawBuffer`], [`Node::export_raw`], [`heap`] and [`Deferred`].

pub use crate::conditional::{Deferred, Posted};

use crate::error::{Error, Result, refused};
use crate::nodes::engine;
use crate::nodes::node::Node;
use crate::nodes::services::{NodeServices, RegionExport};
use crate::operations::buffer::{Buffer, BufferMut};
use crate::regions::region::range_of;
use crate::regions::rights::Rights;
use crate::regions::signal::Signal;
use crate::regions::token::Token;
use pagewire_fabric::HostFabric;
use pagewire_heap::{ExportOwner, HeapRef};
use pagewire_memory::fork::{OncePerProcess, PerProcess};
use pagewire_nic::{Nic, PageAttributes};
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause between two tries to end an export while a stopped peer is within an access.
const REVOKE_PAUSE: Duration = Duration::from_millis(100);

/// A buffer that is an address and a count of bytes.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # use pagewire::raw;
/// # use std::ptr::NonNull;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let mut words = [7u64, 8];
/// // SAFETY: the words live and stay as they are until the put has ended, for which this waits.
/// let buffer = unsafe { raw::RawBuffer::new(NonNull::from(&mut words).cast(), 16) };
/// remote.put(0, buffer).wait().unwrap();
/// assert_eq!(table.get(1)?, 8);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RawBuffer {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: it is an address; who makes it promises that the bytes may be used by any thread (`RawBuffer::new`).
unsafe impl Send for RawBuffer {}

// SAFETY: the address is the value's own and never changes.
unsafe impl Buffer for RawBuffer {
    fn bytes(&self) -> (*const u8, usize) {
        (self.address.as_ptr(), self.length)
    }
}

// SAFETY: who makes it promises that nobody else accesses the bytes (`RawBuffer::new`).
unsafe impl BufferMut for RawBuffer {}

impl RawBuffer {
    /// A buffer of `length` bytes at `address`.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # use pagewire::raw;
    /// # use std::ptr::NonNull;
    /// # let table = node.publish(&[7u64, 8])?;
    /// # let remote = node.open(&table.export(Rights::READ)?)?;
    /// let mut words = [0u64; 2];
    /// // SAFETY: the words live until the get has ended, for which this waits, and nobody uses them meanwhile.
    /// let buffer = unsafe { raw::RawBuffer::new(NonNull::from(&mut words).cast(), 16) };
    /// remote.get_into(0, buffer).wait().unwrap();
    /// assert_eq!(words, [7, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// From the start of an operation that gets this value until its end, whether somebody waits for it or not: the bytes stay
    /// allocated, any thread may read them, and nobody writes them. For a get, the bytes may be written, and nobody reads them either.
    pub unsafe fn new(address: NonNull<u8>, length: usize) -> RawBuffer {
        RawBuffer { address, length }
    }
}

/// The registered heap of this process, which the first call makes, and the engine with it.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// let layout = std::alloc::Layout::new::<[u64; 100]>();
/// let object = pagewire::raw::heap()?.allocate_zeroed(layout)?;
/// // SAFETY: it was allocated so, and nobody uses it.
/// unsafe { pagewire::raw::heap()?.deallocate(object, layout) };
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Heap`, `Engine`, `System` and `Environment`: it could not be made.
pub fn heap() -> Result<&'static HeapRef> {
    let nic = engine::engine()?;
    let heap = engine::heap(&nic)?;
    own_exports(heap)?;
    Ok(heap)
}

/// The registered heap of this process, if it was made: by [`heap`], or because it is the program's malloc(3).
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// let heap = pagewire::raw::heap()?;
/// assert_eq!(pagewire::raw::made_heap().map(|heap| heap.range()), Some(heap.range()));
/// # Ok(())
/// # }
/// ```
pub fn made_heap() -> Option<&'static HeapRef> {
    engine::made_heap()
}

/// [`heap`] for a process whose malloc(3) it is to be: without an engine, and a forked child gets a copy. What is exported of it by
/// [`Node::export_raw`] ends with its free all the same.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// let heap = pagewire::raw::heap_for_malloc()?; // no node, and no engine
/// assert!(!heap.contains(std::ptr::from_ref(&heap).cast::<u8>()));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Heap` and `Environment`: it could not be made.
pub fn heap_for_malloc() -> Result<&'static HeapRef> {
    let heap = engine::heap_before_engine(true)?;
    own_exports(heap)?;
    Ok(heap)
}

/// Has peers of this host map the heap, if it was made before the engine.
///
/// # Errors
/// `Heap`: this is a forked child, whose copy has no memory file.
#[doc(hidden)] // For the C ABIs.
pub fn publish_heap(nic: &Nic<HostFabric>) -> Result<()> {
    engine::publish_heap(nic)
}

/// Exported parts of objects of the heap, by {address, number of the export}.
static IN_HEAP: PerProcess<BTreeMap<(usize, u64), InHeap>> = PerProcess::new();

/// Whether there ever was one.
static HAS_EXPORTS: AtomicBool = AtomicBool::new(false);

/// An export of a part of an object of the heap.
#[derive(Clone)]
struct InHeap {
    services: Weak<NodeServices>,
    export: Arc<RegionExport>,
}

impl InHeap {
    /// When this returns, no access by its token is under way, and none will come.
    fn revoke(&self) -> Result<()> {
        match self.services.upgrade() {
            Some(services) => services.revoke(&self.export),
            None => self.export.end(),
        }
    }
}

/// Revokes what is exported of an object that is freed by a call that cannot refuse.
struct Revoker;

impl ExportOwner for Revoker {
    fn freed(&self, export: u64, address: usize, length: usize) {
        let Some(entry) = IN_HEAP.lock().remove(&(address, export)) else { return };
        // The memory must not be used for anything else before. What keeps the export is a peer that is stopped within an access.
        while let Err(error) = entry.revoke() {
            if matches!(error, Error::Forked) {
                return;
            }
            log::warn!("{length} bytes at {address:#x} cannot be freed yet: {error}");
            std::thread::sleep(REVOKE_PAUSE);
        }
    }
}

/// Has the free of an exported object revoke its tokens.
fn own_exports(heap: &HeapRef) -> Result<()> {
    static IS_OWNED: OncePerProcess<()> = OncePerProcess::new();
    static OWNING: PerProcess<()> = PerProcess::new();
    // The copy of a parent's heap has the parent's owner, and notes no exports.
    if IS_OWNED.get().is_some() || engine::is_copy(heap) {
        return Ok(());
    }
    let _owning = OWNING.lock();
    if IS_OWNED.get().is_none() {
        heap.set_export_owner(Arc::new(Revoker))?;
        IS_OWNED.get_or_set(());
    }
    Ok(())
}

/// Whether a part of an object of the heap was ever exported.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # use pagewire::raw;
/// let heap = raw::heap()?;
/// let layout = std::alloc::Layout::new::<u64>();
/// let object = heap.allocate_zeroed(layout)?;
/// // SAFETY: nobody but peers uses the object until it is unexported.
/// unsafe { node.export_raw(object, 8, Rights::READ) }?;
/// assert!(raw::has_exports_in_heap());
/// raw::unexport_within(object.as_ptr() as usize, 8)?;
/// // SAFETY: it was allocated so, and nobody uses it.
/// unsafe { heap.deallocate(object, layout) };
/// # Ok(())
/// # }
/// ```
pub fn has_exports_in_heap() -> bool {
    HAS_EXPORTS.load(Ordering::Acquire)
}

/// Ends all exports that begin within these bytes of the heap, for who is about to free them.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # use pagewire::raw;
/// let heap = raw::heap()?;
/// let layout = std::alloc::Layout::new::<u64>();
/// let object = heap.allocate_zeroed(layout)?;
/// // SAFETY: nobody but peers uses the object until it is unexported.
/// let token = unsafe { node.export_raw(object, 8, Rights::READ) }?;
/// raw::unexport_within(object.as_ptr() as usize, 8)?;
/// assert!(node.open(&token)?.get::<u64>(0, 1)?.wait().is_err());
/// // SAFETY: it was allocated so, and nobody uses it.
/// unsafe { heap.deallocate(object, layout) };
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As those of [`Node::unexport`]. The bytes must then stay allocated.
pub fn unexport_within(address: usize, length: usize) -> Result<()> {
    let range = (address, 0)..(address.saturating_add(length), 0);
    let found: Vec<_> = IN_HEAP.lock().range(range).map(|(key, entry)| (*key, entry.clone())).collect();
    for (key, entry) in found {
        entry.revoke()?;
        forget(key);
    }
    Ok(())
}

/// Forgets the exports of a node that has ended, but for those that did not end with it.
pub(crate) fn forget_exports(services: &Arc<NodeServices>) {
    let is_of_node = |entry: &InHeap| std::ptr::eq(entry.services.as_ptr(), Arc::as_ptr(services));
    let ended: Vec<_> = (IN_HEAP.lock().iter())
        .filter(|(_, entry)| is_of_node(entry) && services.exported(&entry.export.token).is_none())
        .map(|(key, _)| *key)
        .collect();
    ended.into_iter().for_each(forget);
}

fn forget(key: (usize, u64)) {
    IN_HEAP.lock().remove(&key);
    if let Ok(heap) = heap() {
        heap.unmark_exported(key.0, key.1);
    }
}

impl Node {
    /// Makes a token of any memory of this process, in constant time. If it is in the [heap](heap), freeing its object revokes the token.
    /// Other memory that is unmapped gives peers an error.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # use std::ptr::NonNull;
    /// static WORDS: [u64; 2] = [7, 8];
    /// // SAFETY: nobody ever changes the words, and they live as long as the process.
    /// let token = unsafe { node.export_raw(NonNull::from(&WORDS).cast(), 16, Rights::READ) }?;
    /// assert_eq!(node.open(&token)?.get::<u64>(8, 1)?.wait()?, [8]);
    /// node.unexport_raw(&token)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// Until [`unexport_raw`](Self::unexport_raw) has returned, or the node has ended: peers may read the bytes, and write them if `rights`
    /// says so. So this program accesses them only in ways that are defined while others do.
    ///
    /// # Errors
    /// `Engine`: the rights or the bytes cannot be exported, or there are too many exports; `Heap`: too many exports in the heap; `Forked`.
    pub unsafe fn export_raw(&self, address: NonNull<u8>, length: usize, rights: Rights) -> Result<Token> {
        let services = self.services();
        let start = address.as_ptr() as usize;
        let export = services.export(start as u64, length as u64, rights)?;
        export.mark_raw();
        let token = export.token;
        let is_noted = |heap: &HeapRef| heap.contains(address.as_ptr()) && !engine::is_copy(heap);
        if length > 0 && engine::made_heap().is_some_and(is_noted) {
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let entry = InHeap { services: Arc::downgrade(services), export: export.clone() };
            HAS_EXPORTS.store(true, Ordering::Release);
            IN_HEAP.lock().insert((start, number), entry);
            if let Err(error) = heap().and_then(|heap| Ok(heap.mark_exported(start, length, number)?)) {
                IN_HEAP.lock().remove(&(start, number));
                services.revoke(&export)?;
                return Err(error);
            }
        }
        Ok(token)
    }

    /// [`unexport`](Self::unexport) of a token of [`export_raw`](Self::export_raw).
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # use std::ptr::NonNull;
    /// static WORD: u64 = 7;
    /// // SAFETY: nobody ever changes the word, and it lives as long as the process.
    /// let token = unsafe { node.export_raw(NonNull::from(&WORD).cast(), 8, Rights::READ) }?;
    /// node.unexport_raw(&token)?;
    /// assert!(node.unexport_raw(&token).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As those of `unexport`.
    pub fn unexport_raw(&self, token: &Token) -> Result<()> {
        self.unexport(token)?;
        let start = token.base as usize;
        let noted = IN_HEAP.lock();
        let mut entries = noted.range((start, 0)..=(start, u64::MAX));
        let found = entries.find(|(_, entry)| entry.export.token == *token).map(|(key, _)| *key);
        drop(noted);
        if let Some(key) = found {
            forget(key);
        }
        Ok(())
    }

    /// Sets the attributes of the pages that `bytes` are, for accesses by a token of [`export_raw`](Self::export_raw). Pages have 4,096 bytes,
    /// and the first one begins where the token's bytes do. When this returns, later accesses by the token obey, on all paths (PAPERS AA-2).
    /// Other tokens of the same memory are as they were.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use std::ptr::NonNull;
    /// # use std::sync::atomic::AtomicU64;
    /// use pagewire::access_log::{PageAttributes, PageFlags};
    /// use pagewire::{Node, Rights};
    /// let node = Node::alone()?;
    /// static WORD: AtomicU64 = AtomicU64::new(7);
    /// // SAFETY: the word lives as long as the process, and is an atomic.
    /// let token = unsafe { node.export_raw(NonNull::from(&WORD).cast(), 8, Rights::READ | Rights::WRITE) }?;
    /// let remote = node.open(&token)?;
    /// node.set_attributes_raw(&token, .., PageAttributes { flags: PageFlags::READ, user_domain: 0 })?;
    /// assert!(remote.put_value(0, 1u64).wait().is_err(), "the page refuses puts");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Engine`: the token is of another node, was unexported before, or is of a region, which has [attributes](crate::Region::set_attributes)
    /// itself; the others as those of `Region::set_attributes`.
    pub fn set_attributes_raw(
        &self,
        token: &Token,
        bytes: impl RangeBounds<u64>,
        page: PageAttributes,
    ) -> Result<()> {
        self.services().check_owner()?;
        let services = self.services();
        let none = || pagewire_nic::Error::NotFound("the token is of another node, or was unexported before");
        let export = services.exported(token).ok_or_else(|| refused("attributes of pages")(none()))?;
        export.set_attributes(&services.nic, range_of(&bytes, token.length), page)
    }

    /// A word of this process as a signal, which peers set or add to behind their puts.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::Node;
    /// # let node = Node::alone()?;
    /// # use std::ptr::NonNull;
    /// use std::sync::atomic::AtomicU64;
    /// static WORD: AtomicU64 = AtomicU64::new(3);
    /// // SAFETY: the word lives as long as the process, and is an atomic.
    /// let signal = unsafe { node.signal_raw(NonNull::from(&WORD).cast()) };
    /// assert_eq!(signal.wait_until(|value| value >= 3)?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// The word is aligned to 8 bytes and stays allocated as long as the signal lives. Threads of this process change it as an atomic only.
    pub unsafe fn signal_raw(&self, word: NonNull<u64>) -> Signal<'_> {
        // SAFETY: the caller promises that the word is aligned, outlives the signal and changes as an atomic only; an
        // atomic has the layout of its integer.
        let word: &AtomicU64 = unsafe { word.cast().as_ref() };
        Signal::new(&self.services().completions, word)
    }
}
