//! Regions: memory of this process that peers may access.

use crate::error::{Error, Result, refused};
use crate::nodes::engine::Host;
use crate::nodes::services::{NodeServices, RegionExport};
use crate::regions::memory::Block;
use crate::regions::rights::Rights;
use crate::regions::signal::Signal;
use crate::regions::token::Token;
use pagewire_memory::fork::Owner;
use pagewire_nic::{Attributes, PageAttributes};
use parking_lot::Mutex;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Peers may read a region of this kind, and nobody writes it: it gives a plain slice.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// let names = node.publish(b"some names")?;
/// assert_eq!(names.as_slice(), b"some names");
/// assert!(names.export(Rights::WRITE).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReadOnly;

/// Peers and this process change words of 8 bytes as atomics: the region gives `&[AtomicU64]`.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// use std::sync::atomic::Ordering;
/// let counters = node.words(4)?;
/// let remote = node.open(&counters.export(Rights::ATOMIC)?)?;
/// counters.words()[1].fetch_add(1, Ordering::Relaxed);
/// assert_eq!(remote.fetch_add(8, 1).wait()?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Atomic;

/// Peers may read and write: bytes are copied in and out, and no reference to them is given.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::Node;
/// # let node = Node::alone()?;
/// let region: pagewire::Region<u64, pagewire::Shared> = node.zeroed(2)?;
/// region.set(1, 7)?;
/// assert_eq!(region.get(1)?, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Shared;

/// The kinds of regions, and what may be exported of each.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::{Atomic, Kind, ReadOnly, Rights, Shared};
/// assert_eq!(ReadOnly::RIGHTS, Rights::READ);
/// assert_eq!((Atomic::RIGHTS, Shared::RIGHTS), (Rights::all(), Rights::all()));
/// # Ok(())
/// # }
/// ```
pub trait Kind: sealed::Sealed {
    /// The rights that a token may give.
    const RIGHTS: Rights;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ReadOnly {}
    impl Sealed for super::Atomic {}
    impl Sealed for super::Shared {}
}

impl Kind for ReadOnly {
    const RIGHTS: Rights = Rights::READ;
}

impl Kind for Atomic {
    const RIGHTS: Rights = Rights::all();
}

impl Kind for Shared {
    const RIGHTS: Rights = Rights::all();
}

/// Memory of this process, of elements `T`, that peers may access once it is [exported](Region::export).
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::{Node, Rights};
/// let node = Node::alone()?;
/// let table = node.zeroed::<u64>(100)?;
/// let remote = node.open(&table.export(Rights::READ | Rights::WRITE)?)?;
/// remote.put(16, vec![7u64, 8]).wait()?;
/// assert_eq!((table.get(2)?, table.get(3)?), (7, 8));
/// # Ok(())
/// # }
/// ```
pub struct Region<T, K = Shared> {
    exported: Arc<Exported<Block>>,
    of: PhantomData<(T, K)>,
}

/// The memory of a region, and its exports.
pub(crate) struct Exported<M> {
    services: Arc<NodeServices>,
    memory: Option<M>,
    exports: Mutex<Vec<Arc<RegionExport>>>,
    attributes: Mutex<Option<Arc<Attributes<Host>>>>,
    owner: Owner,
}

impl<M> Exported<M> {
    pub fn new(services: &Arc<NodeServices>, memory: M) -> Self {
        Exported {
            services: services.clone(),
            memory: Some(memory),
            exports: Mutex::default(),
            attributes: Mutex::default(),
            owner: Owner::this_process(),
        }
    }

    /// Refuses what a forked child asks for.
    pub fn check_owner(&self) -> Result<()> {
        self.services.check_owner()
    }

    pub fn memory(&self) -> &M {
        match &self.memory {
            Some(memory) => memory,
            None => unreachable!("the memory is there until the region ends"),
        }
    }

    /// Makes a token of some bytes of the memory, which has `length` bytes at `address`.
    pub fn export(
        &self,
        (address, length): (u64, u64),
        bytes: impl RangeBounds<u64>,
        rights: Rights,
    ) -> Result<Token> {
        self.services.check_owner()?;
        let Range { start, end } = range_of(&bytes, length);
        if start > end || end > length {
            return Err(Error::Range { offset: start, count: end.saturating_sub(start), length });
        }
        let export = self.services.export(address + start, end - start, rights)?;
        let token = export.token;
        let attributes = self.attributes.lock();
        if attributes.is_some()
            && let Err(error) = export.region().set_attributes(attributes.as_ref())
        {
            // Nobody has the token yet.
            self.services.revoke(&export)?;
            return Err(refused("attributes of pages")(error));
        }
        self.exports.lock().push(export);
        Ok(token)
    }

    /// Sets the attributes of pages of the memory, which has `length` bytes at `address`. When this returns, later accesses of peers obey.
    pub fn set_attributes(
        &self,
        (address, length): (u64, u64),
        bytes: Range<u64>,
        page: PageAttributes,
    ) -> Result<()> {
        self.services.check_owner()?;
        let what = "attributes of pages";
        let mut attributes = self.attributes.lock();
        let (table, is_new) = match &*attributes {
            Some(table) => (table.clone(), false),
            None => {
                let table = self.services.nic.make_attributes(address..address + length);
                (table.map_err(refused(what))?, true)
            }
        };
        table.set(bytes, page).map_err(Error::Attributes)?;
        // Exports that were made before learn of the table; those to come are made with it.
        let mut outcome = Ok(());
        for export in self.exports.lock().iter() {
            let region = export.region();
            let set = if is_new { region.set_attributes(Some(&table)) } else { region.await_accesses() };
            // All of them learn of it, also behind one whose accesses do not end.
            outcome = outcome.and(set.map_err(refused(what)));
        }
        *attributes = Some(table);
        outcome
    }
}

/// The bytes that a range names of memory with so many.
pub(crate) fn range_of(bytes: &impl RangeBounds<u64>, length: u64) -> Range<u64> {
    let start = match bytes.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match bytes.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => length,
    };
    start..end
}

impl<M> Drop for Exported<M> {
    fn drop(&mut self) {
        // Without exports, too, the memory is the parent's.
        let mut stays = self.services.is_forked();
        for export in self.exports.get_mut().drain(..) {
            match self.services.revoke(&export) {
                Ok(()) => {}
                Err(Error::Forked) => {}
                Err(error) => {
                    // A stopped peer may be inside: the memory must stay.
                    log::warn!("a region of memory stays: {error}");
                    stays = true;
                }
            }
        }
        if stays {
            std::mem::forget(self.memory.take());
        }
    }
}

impl<T, K: Kind> Region<T, K> {
    pub(crate) fn new(services: &Arc<NodeServices>, block: Block) -> Self {
        Region { exported: Arc::new(Exported::new(services, block)), of: PhantomData }
    }

    fn block(&self) -> &Block {
        self.exported.memory()
    }

    /// Elements in it.
    pub fn len(&self) -> usize {
        self.block().length() / size_of::<T>().max(1)
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.block().length() as u64
    }

    /// Makes a token of all of it.
    ///
    /// # Errors
    /// As those of [`export_part`](Self::export_part).
    pub fn export(&self, rights: Rights) -> Result<Token> {
        self.export_part(.., rights)
    }

    /// Makes a token of some of its bytes, with a key of its own: in constant time, whatever the count of bytes. What lies beside them, in
    /// the same page too, is out of the reach of who holds the token.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// let token = table.export_part(8..16, Rights::WRITE)?;
    /// let remote = node.open(&token)?; // Its offset 0 is byte 8 of the region.
    /// remote.put(0, vec![7u64]).wait()?;
    /// assert!(remote.put(8, vec![7u64]).wait().is_err());
    /// assert_eq!((table.get(1)?, table.get(2)?), (7, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Range`: the bytes are not in it; `Engine`: this kind of region does not give the rights, or there are too many exports.
    pub fn export_part(&self, bytes: impl RangeBounds<u64>, rights: Rights) -> Result<Token> {
        if !K::RIGHTS.contains(rights) {
            let why =
                pagewire_nic::Error::InvalidArgument("peers may only read a region of the kind ReadOnly");
            return Err(refused("an export")(why));
        }
        self.exported.export((self.block().address(), self.bytes()), bytes, rights)
    }

    /// Sets the attributes of the pages that `bytes` are, in all tokens of the region, made before or later. Pages have 4,096 bytes, and the
    /// first one begins where the region does. When this returns, later accesses of peers obey, on all paths (PAPERS AA-2).
    ///
    /// This is the raw form: `pagewire_active` has one that reads better.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// use pagewire::access_log::{PageAttributes, PageFlags};
    /// use pagewire::{Node, Rights};
    /// let node = Node::alone()?;
    /// let table = node.zeroed::<u64>(1024)?;
    /// let remote = node.open(&table.export(Rights::all())?)?;
    /// table.set_attributes(0..4096, PageAttributes { flags: PageFlags::READ, user_domain: 0 })?;
    /// assert!(remote.put_value(0, 1u64).wait().is_err(), "the first page refuses puts");
    /// remote.put_value(4096, 1u64).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Attributes`: the range cuts a page or leaves the region, or there is no such user domain; `Engine`: an access that was under way does
    /// not end, or there is no memory for the table.
    pub fn set_attributes(&self, bytes: impl RangeBounds<u64>, page: PageAttributes) -> Result<()> {
        let memory = (self.block().address(), self.bytes());
        self.exported.set_attributes(memory, range_of(&bytes, memory.1), page)
    }

    /// The address of its first byte in this process, to which records of accesses refer.
    pub fn address(&self) -> u64 {
        self.block().address()
    }
}

impl<T, K> Region<T, K> {
    fn range(&self, index: usize, count: usize) -> Result<usize> {
        self.exported.services.check_owner()?;
        let (size, length) = (size_of::<T>(), self.exported.memory().length());
        let fits =
            index.checked_add(count).and_then(|end| end.checked_mul(size)).is_some_and(|end| end <= length);
        if fits {
            return Ok(index * size);
        }
        let bytes = |count: usize| (count as u64).saturating_mul(size as u64);
        Err(Error::Range { offset: bytes(index), count: bytes(count), length: length as u64 })
    }
}

impl<T, K: Kind> Region<T, K> {
    /// Copies bytes from `offset` on out, whatever the elements are. What is written meanwhile is there in part.
    ///
    /// # Errors
    /// `Range`.
    pub fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let offset = self.byte_range(offset, bytes.len())?;
        self.block().read(offset, bytes);
        Ok(())
    }

    fn byte_range(&self, offset: u64, count: usize) -> Result<usize> {
        self.exported.services.check_owner()?;
        let length = self.bytes();
        let fits = offset.checked_add(count as u64).is_some_and(|end| end <= length);
        let start = usize::try_from(offset).ok().filter(|_| fits);
        start.ok_or(Error::Range { offset, count: count as u64, length })
    }
}

impl<T: FromBytes> Region<T, Shared> {
    /// Copies bytes in, from `offset` on, whatever the elements are.
    ///
    /// # Errors
    /// `Range`.
    pub fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let offset = self.byte_range(offset, bytes.len())?;
        self.block().write(offset, bytes);
        Ok(())
    }
}

impl<T: IntoBytes + FromBytes + Immutable + Copy> Region<T, Shared> {
    /// The element at `index`. One of 8 bytes or less that does not cross a word is read at once; a longer one may be half written.
    ///
    /// # Errors
    /// `Range`.
    pub fn get(&self, index: usize) -> Result<T> {
        let mut element = [T::new_zeroed()];
        self.read(index, &mut element)?;
        Ok(element[0])
    }

    /// Sets the element at `index`.
    ///
    /// # Errors
    /// `Range`.
    pub fn set(&self, index: usize, element: T) -> Result<()> {
        self.write(index, &[element])
    }

    /// Copies elements from `index` on out.
    ///
    /// # Errors
    /// `Range`.
    pub fn read(&self, index: usize, elements: &mut [T]) -> Result<()> {
        let offset = self.range(index, elements.len())?;
        self.exported.memory().read(offset, elements.as_mut_bytes());
        Ok(())
    }

    /// Copies elements in, from `index` on.
    ///
    /// # Errors
    /// `Range`.
    pub fn write(&self, index: usize, elements: &[T]) -> Result<()> {
        let offset = self.range(index, elements.len())?;
        self.exported.memory().write(offset, elements.as_bytes());
        Ok(())
    }

    /// The word of 8 bytes at `offset` as a signal, which peers set or add to behind their puts.
    ///
    /// # Errors
    /// `Range` and `Alignment`.
    pub fn signal(&self, offset: u64) -> Result<Signal<'_>> {
        self.exported.services.check_owner()?;
        let block = self.exported.memory();
        Signal::at(&self.exported.services.completions, block.words(), block.length() as u64, offset)
    }
}

impl<T: FromBytes + Immutable> Region<T, ReadOnly> {
    /// Its elements. A forked child finds none: it does not have the memory.
    pub fn as_slice(&self) -> &[T] {
        if self.exported.owner.is_this_process() { self.block().read_only() } else { &[] }
    }
}

impl Region<u64, Atomic> {
    /// Its words. A forked child finds none: it does not have the memory.
    pub fn words(&self) -> &[AtomicU64] {
        if self.exported.owner.is_this_process() { &self.block().words()[..self.len()] } else { &[] }
    }

    /// Copies bytes in, from `offset` on. The other bytes of the first and the last word stay what they are, whoever writes them.
    ///
    /// # Errors
    /// `Range`.
    pub fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let offset = self.byte_range(offset, bytes.len())?;
        self.block().write(offset, bytes);
        Ok(())
    }

    /// The word at `index` as a signal.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// let words = node.words(2)?;
    /// let remote = node.open(&words.export(Rights::ATOMIC)?)?;
    /// remote.signal_only(remote.signal(8).add(2)).wait()?;
    /// assert_eq!(words.signal(1)?.wait_until(|count| count >= 2)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Range`.
    pub fn signal(&self, index: usize) -> Result<Signal<'_>> {
        self.exported.services.check_owner()?;
        let block = self.block();
        Signal::at(
            &self.exported.services.completions,
            block.words(),
            block.length() as u64,
            (index as u64).saturating_mul(8),
        )
    }
}
