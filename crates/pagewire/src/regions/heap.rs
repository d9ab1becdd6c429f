//! The registered heap of this process, and what is exported of it: the free of an exported object revokes its tokens.

use crate::error::{Error, Result};
use crate::nodes::engine;
use crate::nodes::services::{NodeServices, RegionExport};
use crate::regions::token::Token;
use pagewire_fabric::HostFabric;
use pagewire_heap::{ExportOwner, HeapRef};
use pagewire_memory::fork::{OncePerProcess, PerProcess};
use pagewire_nic::Nic;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause between two tries to end an export while a stopped peer is within an access.
const REVOKE_PAUSE: Duration = Duration::from_millis(100);

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
pub fn made_heap() -> Option<&'static HeapRef> {
    engine::made_heap()
}

/// [`heap`] for a process whose malloc(3) it is to be: without an engine, and a forked child gets a copy. What is exported of it by
/// [`Node::export_raw`](crate::Node::export_raw) ends with its free all the same.
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
/// As those of [`Node::unexport`](crate::Node::unexport). The bytes must then stay allocated.
pub fn unexport_within(address: usize, length: usize) -> Result<()> {
    let range = (address, 0)..(address.saturating_add(length), 0);
    let found: Vec<_> = IN_HEAP.lock().range(range).map(|(key, entry)| (*key, entry.clone())).collect();
    for (key, entry) in found {
        entry.revoke()?;
        forget(key);
    }
    Ok(())
}

/// Notes an export of memory of this process, if that is in the heap: its free revokes the token. Where it cannot be noted, the export ends.
///
/// # Errors
/// `Heap`: there are too many exports in the heap.
pub(crate) fn note_export(services: &Arc<NodeServices>, export: &Arc<RegionExport>) -> Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Token { base, length, .. } = export.token;
    let (start, length) = (base as usize, length as usize);
    let is_noted = |heap: &HeapRef| heap.contains(start as *const u8) && !engine::is_copy(heap);
    if length == 0 || !engine::made_heap().is_some_and(is_noted) {
        return Ok(());
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let entry = InHeap { services: Arc::downgrade(services), export: export.clone() };
    HAS_EXPORTS.store(true, Ordering::Release);
    IN_HEAP.lock().insert((start, number), entry);
    if let Err(error) = heap().and_then(|heap| Ok(heap.mark_exported(start, length, number)?)) {
        IN_HEAP.lock().remove(&(start, number));
        services.revoke(export)?;
        return Err(error);
    }
    Ok(())
}

/// Forgets the export of a token that was revoked.
pub(crate) fn forget_export(token: &Token) {
    let start = token.base as usize;
    let noted = IN_HEAP.lock();
    let mut entries = noted.range((start, 0)..=(start, u64::MAX));
    let found = entries.find(|(_, entry)| entry.export.token == *token).map(|(key, _)| *key);
    drop(noted);
    if let Some(key) = found {
        forget(key);
    }
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
