//! Buffers that operations own until they end.

use pagewire_heap::HeapRef;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A vector in the registered heap ([`Node::heap`](crate::Node::heap)).
type RegisteredVec<T> = allocator_api2::vec::Vec<T, HeapRef>;

/// Memory that an operation may own: its bytes lie still while the value itself is moved.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// use std::sync::Arc;
/// remote.put(0, vec![1u8, 2]).wait()?;
/// remote.put(8, Vec::from(Box::<[u64]>::from([3, 4]))).wait()?;
/// remote.put(24, &b"static"[..]).wait()?;
/// // Several puts of the same bytes, with no copy.
/// let shared: Arc<[u64]> = Arc::from([5, 6]);
/// for put in [32, 48].map(|offset| remote.put(offset, shared.clone())) {
///     put.wait()?;
/// }
/// assert_eq!((table.get(5)?, table.get(7)?), (6, 6));
/// # Ok(())
/// # }
/// ```
///
/// # Safety
/// [`bytes`](Self::bytes) gives the same address each time until the value is dropped or changed through `&mut`, and moving the
/// value changes neither the address nor the bytes. A `Box` is none: moving it tells the compiler that nobody else has its address. Make a
/// vector of it, which copies nothing.
pub unsafe trait Buffer: Send + 'static {
    /// Address and count of its bytes.
    fn bytes(&self) -> (*const u8, usize);
}

/// A buffer that may be written to, with any bytes.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// remote.get_into(0, vec![0u8; 128]).wait()?;
/// remote.get_into(0, vec![0u64; 16]).wait()?;
/// # Ok(())
/// # }
/// ```
///
/// # Safety
/// Nobody else can access the bytes while the value is owned, and each byte may have any value.
pub unsafe trait BufferMut: Buffer {}

macro_rules! slices {
    ($($(#[$doc:meta])* $type:ty),*) => {$(
        // SAFETY: the elements lie behind a pointer that a move of the value copies; they have no padding (`IntoBytes`) and do not
        // change behind a shared reference (`Immutable`).
        unsafe impl<T: IntoBytes + Immutable + Send + Sync + 'static> Buffer for $type {
            fn bytes(&self) -> (*const u8, usize) {
                (self.as_ptr().cast(), self.len() * size_of::<T>())
            }
        }
    )*};
}

slices!(Vec<T>, Arc<[T]>, &'static [T], RegisteredVec<T>);

// SAFETY: a vector owns its elements alone, and any bytes make some (`FromBytes`).
unsafe impl<T: IntoBytes + FromBytes + Immutable + Send + Sync + 'static> BufferMut for Vec<T> {}

/// The life of a buffer, for Miri (`make miri`): what an engine does with the bytes of an operation whose future is given up.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::pending::{AnyPending, PendingOperation, Sleep};
    use std::task::Waker;

    /// What the program does with a future.
    #[derive(Clone, Copy, PartialEq)]
    enum FutureUse {
        Waits,
        Drops,
        Forgets,
    }

    /// What an engine has of an operation: an address, as work requests have it.
    struct PostedAddress {
        pending: Arc<AnyPending>,
        address: usize,
        length: usize,
    }

    impl PostedAddress {
        /// Writes and reads each byte, as a get and a put do, then ends the operation.
        fn run(self) {
            for index in 0..self.length {
                let byte = std::ptr::with_exposed_provenance_mut::<u8>(self.address + index);
                // SAFETY: the operation owns the bytes until it has ended (`Buffer`), and it has not.
                unsafe { byte.write(byte.read().wrapping_add(1)) };
            }
            self.pending.end(None, None).wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Starts an operation, as `RemoteRegion` does, and gives its future up after so many polls.
    fn run(buffer: Vec<u64>, polls: usize, end: FutureUse) {
        let (address, length) = buffer.bytes();
        let address = address.expose_provenance();
        let pending = Arc::new(PendingOperation::new("get", buffer));
        let posted = PostedAddress { pending: pending.clone(), address, length };
        let engine = std::thread::spawn(|| posted.run());
        let is_ended = (0..polls).any(|_| pending.wake(Waker::noop()) == Sleep::Ended);
        match end {
            FutureUse::Waits => {
                while !pending.is_ended() {
                    std::thread::yield_now();
                }
                assert_eq!(pending.take_payload().unwrap(), [0x0101_0101_0101_0101; 3]);
                assert!(pending.take_payload().is_none() && pending.take_failure().is_none());
            }
            FutureUse::Drops if is_ended => drop(pending.take_payload()),
            FutureUse::Drops => {
                pending.abandon();
                drop(pending);
            }
            FutureUse::Forgets => std::mem::forget(pending),
        }
        engine.join().unwrap();
    }

    #[test]
    fn an_engine_may_use_the_bytes_until_the_end() {
        for polls in 0..4 {
            for end in [FutureUse::Waits, FutureUse::Drops, FutureUse::Forgets] {
                run(vec![0; 3], polls, end);
            }
        }
    }
}
