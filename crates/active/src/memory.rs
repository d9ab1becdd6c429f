//! Memory of this process that an application works on: regions, and what other crates make of memory by its address.

use crate::attributes::{AttributesOf, PageSetting};
use pagewire::{Atomic, Region, Result, Shared};
use zerocopy::FromBytes;

/// Memory that can be saved, restored and put to in batches: regions of the kinds [`Shared`] and [`Atomic`].
pub trait Memory {
    /// The address of its first byte.
    fn address(&self) -> u64;
    /// Bytes in it.
    fn bytes(&self) -> u64;
    /// Copies bytes out.
    ///
    /// # Errors
    /// `Range`.
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
    /// Copies bytes in.
    ///
    /// # Errors
    /// `Range`.
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Begins to describe the attributes of all of its pages. `None`: no peer reaches it.
    fn pages(&self) -> Option<PageSetting<'_>>;
}

/// Regions of both kinds have the same calls, each of its own.
macro_rules! memory_of_region {
    ($([$($parameter:tt)*] $region:ty),*) => {$(
        impl<$($parameter)*> Memory for $region {
            fn address(&self) -> u64 {
                self.address()
            }

            fn bytes(&self) -> u64 {
                self.bytes()
            }

            fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
                self.read_bytes(offset, bytes)
            }

            fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
                self.write_bytes(offset, bytes)
            }

            fn pages(&self) -> Option<PageSetting<'_>> {
                Some(self.attributes(..))
            }
        }
    )*};
}

memory_of_region!([T: FromBytes] Region<T, Shared>, [] Region<u64, Atomic>);
