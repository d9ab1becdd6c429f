//! The raw forms: buffers, exports and signals that are addresses, for interfaces of other languages. Their callers promise what the types
//! of this crate prove elsewhere.
//!
//! Conditional writes that another layer posts are here, too.
//!
//! Start at [`RawBuffer`], [`Node::export_raw`], [`heap`] and [`Deferred`].

pub use crate::conditional::{Deferred, Posted};
#[doc(hidden)] // For the C ABIs.
pub use crate::regions::heap::publish_heap;
pub use crate::regions::heap::{has_exports_in_heap, heap, heap_for_malloc, made_heap, unexport_within};

use crate::error::{Result, refused};
use crate::nodes::node::Node;
use crate::operations::buffer::{Buffer, BufferMut};
use crate::regions::heap::{forget_export, note_export};
use crate::regions::region::range_of;
use crate::regions::rights::Rights;
use crate::regions::signal::Signal;
use crate::regions::token::Token;
use pagewire_nic::PageAttributes;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

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
    /// # Safety
    /// From the start of an operation that gets this value until its end, whether somebody waits for it or not: the bytes stay
    /// allocated, any thread may read them, and nobody writes them. For a get, the bytes may be written, and nobody reads them either.
    pub unsafe fn new(address: NonNull<u8>, length: usize) -> RawBuffer {
        RawBuffer { address, length }
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
        let export = services.export(address.as_ptr() as u64, length as u64, rights)?;
        export.mark_raw();
        note_export(services, &export)?;
        Ok(export.token)
    }

    /// [`unexport`](Self::unexport) of a token of [`export_raw`](Self::export_raw).
    ///
    /// # Errors
    /// As those of `unexport`.
    pub fn unexport_raw(&self, token: &Token) -> Result<()> {
        self.unexport(token)?;
        forget_export(token);
        Ok(())
    }

    /// Sets the attributes of the pages that `bytes` are, for accesses by a token of [`export_raw`](Self::export_raw). Pages have 4,096 bytes,
    /// and the first one begins where the token's bytes do. When this returns, later accesses by the token obey, on all paths (PAPERS AA-2).
    /// Other tokens of the same memory are as they were.
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
