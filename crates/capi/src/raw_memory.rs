//! Memory by its address, which is copied and changed as the engine does it: memory that is not there is an error, and no fault.

use crate::boundary::{Result, bytes};
use crate::error::Refusal;
use pagewire::{Error, Node, Token};
use pagewire_active::built_in::Words;
use pagewire_active::{AttributesOfTokens, Memory, PageSetting};
use pagewire_memory::{ApplicationMemory, AtomicOperation, HostMemory, MemoryError, Segment};
use std::ffi::c_void;
use std::io;
use std::sync::Arc;

/// Memory of a C program, and the token by which peers reach it.
pub(crate) struct RawMemory {
    node: Arc<Node>,
    address: u64,
    length: u64,
    token: Option<Token>,
    host: HostMemory,
}

impl RawMemory {
    /// So many bytes at an address. `token`: of exactly these.
    pub fn new(
        node: &Arc<Node>,
        (address, length): (*const c_void, usize),
        token: Option<Token>,
    ) -> Result<RawMemory> {
        if address.is_null() || length == 0 {
            return Err(Refusal::argument(
                "memory has the address NULL, or no bytes: there is nothing to use",
            ));
        }
        bytes(address.cast(), length, "address")?;
        let (address, length) = (address as u64, length as u64);
        if token.is_some_and(|token| (token.memory().0, token.length()) != (address, length)) {
            let sentence = format!(
                "the token of {length} bytes at {address:#x} names other bytes: export exactly these"
            );
            return Err(Refusal::argument(sentence));
        }
        Ok(RawMemory { node: node.clone(), address, length, token, host: HostMemory::new() })
    }

    /// The memory that a token of this node names.
    pub fn of_token(node: &Arc<Node>, token: Token) -> Result<RawMemory> {
        let (address, length) = (token.memory().0, token.length());
        let refused = |_| Refusal::argument(format!("a token of {length} bytes, which no memory has"));
        let bytes = usize::try_from(length).map_err(refused)?;
        RawMemory::new(node, (std::ptr::without_provenance(address as usize), bytes), Some(token))
    }

    /// Whether its first and its last byte can be accessed.
    pub fn check_ends(&self) -> Result<()> {
        let ends = [0, self.length - 1].map(|offset| self.copy_out(offset, &mut [0]));
        Ok(ends.into_iter().collect::<pagewire::Result<()>>()?)
    }

    fn segment(&self, offset: u64, count: usize) -> pagewire::Result<Segment> {
        let count = count as u64;
        if offset.checked_add(count).is_none_or(|end| end > self.length) {
            return Err(Error::Range { offset, count, length: self.length });
        }
        Ok(Segment { address: self.address + offset, length: count })
    }

    fn unreachable(&self, error: MemoryError) -> Error {
        let what = format!("memory of {} bytes at {:#x}", self.length, self.address);
        let why = format!("it cannot be accessed ({error:?}): it must be mapped, readable and writeable");
        Error::System { what, why: io::Error::new(io::ErrorKind::InvalidInput, why) }
    }
}

impl Memory for RawMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> u64 {
        self.length
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> pagewire::Result<()> {
        let from = self.segment(offset, bytes.len())?;
        self.host.read(&[from], bytes).map_err(|error| self.unreachable(error))
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) -> pagewire::Result<()> {
        let to = self.segment(offset, bytes.len())?;
        self.host.write(bytes, &[to], false).map_err(|error| self.unreachable(error))
    }

    fn pages(&self) -> Option<PageSetting<'_>> {
        self.token.as_ref().map(|token| self.node.attributes_of(token, ..))
    }
}

/// Words of 8 bytes in memory whose address is a multiple of 8.
pub(crate) struct RawWords(RawMemory);

impl RawWords {
    pub fn new(memory: RawMemory) -> Result<RawWords> {
        let RawMemory { address, length, .. } = memory;
        if address % 8 != 0 || length % 8 != 0 {
            let sentence = format!(
                "memory of {length} bytes at {address:#x}: steps work on words, so both must be multiples of 8"
            );
            return Err(Refusal::argument(sentence));
        }
        memory.check_ends()?;
        Ok(RawWords(memory))
    }

    fn run(&self, index: u64, operation: AtomicOperation) -> pagewire::Result<u64> {
        let word = self.0.segment(index.saturating_mul(8), 8)?;
        self.0.host.atomic(word.address, operation).map_err(|error| self.0.unreachable(error))
    }
}

impl Words for RawWords {
    fn count(&self) -> u64 {
        self.0.length / 8
    }

    fn load(&self, index: u64) -> pagewire::Result<u64> {
        self.run(index, AtomicOperation::CompareSwap { compare: 0, swap: 0 })
    }

    fn compare_swap(&self, index: u64, current: u64, new: u64) -> pagewire::Result<u64> {
        self.run(index, AtomicOperation::CompareSwap { compare: current, swap: new })
    }

    fn fetch_add(&self, index: u64, add: u64) -> pagewire::Result<u64> {
        self.run(index, AtomicOperation::FetchAdd { add })
    }
}
