//! A hash table over the processes of a job.

use crate::boundary::{Result, array, bytes, bytes_of, call, place};
use crate::error::{Refusal, pw_error};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use pagewire_active::hash_table::Scheme;
use pagewire_active::{HashTable, TableOptions};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ffi::c_void;

/// A hash table from keys of 8 bytes, which are not 0, to values of any size up to 128 MiB less one byte. Each process of a job has a part of it, its
/// volume; the hash of a key says in whose volume it is.
pub struct pw_table {
    _opaque: [u8; 0],
}

/// A table. Whoever takes a member back has it alone.
pub struct OpenTable(RwLock<HashTable>);

impl OpenTable {
    pub(crate) fn new(table: HashTable) -> OpenTable {
        OpenTable(RwLock::new(table))
    }

    /// For calls of any number of threads.
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, HashTable> {
        self.0.read()
    }

    /// For one that changes who the members are.
    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, HashTable> {
        self.0.write()
    }
}

impl Object for OpenTable {
    type Opaque = pw_table;
    const MARK: u64 = u64::from_be_bytes(*b"pw_table");
    const NAME: &str = "hash table";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OpenTable> = Places::new();
        &PLACES
    }
}

/// The caller changes a volume that it has mapped, which is its own or one of a process of its host; else the owner's handler does.
pub const PW_NEAREST: u32 = 0;
/// The owner's handler changes it, whatever is mapped: one put an element.
pub const PW_BY_HANDLER: u32 = 1;
/// The caller changes it by gets, puts and atomics, whatever is mapped.
pub const PW_BY_OPERATIONS: u32 = 2;

/// What pw_table_lookup() says where there is no value.
pub const PW_ABSENT: u64 = u64::MAX;

/// How large the volume of this process is, and how it changes others. Others may have other sizes. It grows when it is full.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_table_options {
    /// Cells, 1 or more. With as many elements as cells about a third of them collide.
    pub cells: usize,
    /// Cells for elements that collide. 0: as many as cells.
    pub spare: usize,
    /// Bytes for values of more than 7 bytes. 0: 64 for each cell.
    pub value_bytes: usize,
    /// PW_NEAREST, PW_BY_HANDLER or PW_BY_OPERATIONS.
    pub scheme: u32,
}

/// An element of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_element {
    /// Not 0.
    pub key: u64,
    /// NULL if it has no bytes.
    pub value: *const c_void,
    /// Bytes of the value.
    pub length: usize,
}

/// What the volume of a process has.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_volume {
    /// Elements, each with its own key.
    pub elements: u64,
    /// Cells of the table.
    pub cells: u64,
    /// Cells of chains that are taken.
    pub spare_taken: u64,
    /// How often it has grown.
    pub resizes: u64,
    /// Messages of other processes that were none. They were not executed.
    pub malformed: u64,
    /// Checkpoints of it since this process has it: of a durable table.
    pub checkpoints: u64,
}

/// Makes a table with all processes of the job, each of which calls this. *table is NULL after an error. The node stays until the table is freed.
///
/// PW_ARGUMENT; PW_NO_MEMORY, PW_HEAP: there is none for the volume; PW_JOB: another process has ended; else as pw_open() and
/// pw_log_make(), as it takes a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_join(
    node: *mut pw_node,
    options: *const pw_table_options,
    table: *mut *mut pw_table,
) -> pw_error {
    call(|| {
        let to = place(table, "table")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let options = place(options.cast_mut(), "options")?;
        // SAFETY: options (pagewire.h), aligned and not NULL.
        let joined = HashTable::join(node, &options_of(unsafe { options.read() })?)?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(OpenTable::new(joined))) };
        Ok(())
    })
}

pub(crate) fn options_of(given: pw_table_options) -> Result<TableOptions> {
    let pw_table_options { cells, spare, value_bytes, scheme } = given;
    if cells == 0 {
        return Err(Refusal::argument("'cells' of 'options' is 0: a volume has 1 or more"));
    }
    let mut options = TableOptions::new(cells);
    if spare > 0 {
        options.spare = spare;
    }
    if value_bytes > 0 {
        options.value_bytes = value_bytes;
    }
    options.scheme = match scheme {
        PW_NEAREST => Scheme::Nearest,
        PW_BY_HANDLER => Scheme::Handler,
        PW_BY_OPERATIONS => Scheme::Operations,
        _ => {
            let sentence =
                format!("'scheme' is {scheme}: it must be PW_NEAREST, PW_BY_HANDLER or PW_BY_OPERATIONS");
            return Err(Refusal::argument(sentence));
        }
    };
    Ok(options)
}

/// Frees a table; the pointer is not valid any more. The volume of this process ends with it, and others get errors for its keys: let all processes meet in
/// pw_barrier() before. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_free(table: *mut pw_table) -> pw_error {
    if table.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<OpenTable>(table) }.map(drop))
}

/// Sets the value of a key, which is added if it is new. It has happened when pw_table_flush() has returned, and behind everything that this process did to
/// the same key before.
///
/// value: length bytes, NULL if there are none. PW_ARGUMENT, also: the key is 0, or the value too long; PW_NO_MEMORY, PW_HEAP: the volume cannot grow;
/// else as pw_put() and pw_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_insert(
    table: *mut pw_table,
    key: u64,
    value: *const c_void,
    length: usize,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and so many bytes (pagewire.h).
        let (table, value) = unsafe { (object::<OpenTable>(table)?, bytes_of(value, length, "value")?) };
        Ok(table.shared().insert(key, value)?)
    })
}

/// Inserts several elements, in any order. Those of one process go to it together: with a key that is there twice, either value may stay.
///
/// elements: count of them. As pw_table_insert(); some may be inserted after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_insert_batch(
    table: *mut pw_table,
    elements: *const pw_element,
    count: usize,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let table = unsafe { object::<OpenTable>(table) }?;
        // SAFETY: so many elements (pagewire.h).
        let elements = unsafe { array(elements, count, "elements") }?;
        // SAFETY: each has so many bytes (pagewire.h).
        let of = |element: &pw_element| unsafe {
            Ok((element.key, bytes_of(element.value, element.length, "value")?))
        };
        let elements = elements.iter().map(of).collect::<Result<Vec<_>>>()?;
        Ok(table.shared().insert_batch(elements)?)
    })
}

/// Copies the value of a key. *length gets how many bytes the value has, or PW_ABSENT. A value of more than size bytes is cut: call again with a larger
/// place, as the value may be another one by then.
///
/// value: size bytes, NULL if size is 0. PW_ARGUMENT, PW_HANDLE; else as pw_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_lookup(
    table: *mut pw_table,
    key: u64,
    value: *mut c_void,
    size: usize,
    length: *mut u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let table = unsafe { object::<OpenTable>(table) }?;
        let (to, said) = (bytes(value.cast(), size, "value")?, place(length, "length")?);
        let found = table.shared().lookup(key)?;
        let count = found.as_ref().map_or(PW_ABSENT, |found| found.len() as u64);
        let found = found.unwrap_or_default();
        let copied = found.len().min(size);
        // SAFETY: `value` has `size` bytes, which nobody else uses now, and `length` is the caller's place (pagewire.h).
        unsafe {
            to.as_ptr().copy_from(found.as_ptr(), copied);
            said.write(count);
        }
        Ok(())
    })
}

/// Deletes the value of a key, if there is one. It has happened when pw_table_flush() has returned.
///
/// As pw_table_insert().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_delete(table: *mut pw_table, key: u64) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<OpenTable>(table) }?.shared().delete(key)?))
}

/// Waits until everything that this process has inserted and deleted is done at its owners.
///
/// PW_PEER_LOST: an owner is lost; of a durable table see pw_table_readmit(). PW_NO_MEMORY, PW_HEAP, PW_SYSTEM: a volume was full and could not grow since the last flush, and elements that this process or
/// another one has inserted into it are not there; or messages were lost, which a call has reported. Do everything since the last flush again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_flush(table: *mut pw_table) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<OpenTable>(table) }?.shared().flush()?))
}

/// Gives the volume of this process so many cells, and spare ones for all of its elements at least, and leaves the bytes of values out that nothing names any
/// more. cells: 0 is taken as 1.
///
/// PW_NO_MEMORY, PW_HEAP: there is none for it, and it stays as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_resize(table: *mut pw_table, cells: usize) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<OpenTable>(table) }?.shared().resize(cells)?))
}

/// Walks the chains of the volume of this process, and says what it has.
///
/// PW_ARGUMENT, PW_HANDLE; PW_SYSTEM: a process has written over it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_volume(table: *mut pw_table, volume: *mut pw_volume) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let table = unsafe { object::<OpenTable>(table) }?;
        let to = place(volume, "volume")?;
        let now = table.shared().statistics()?;
        let volume = pw_volume {
            elements: now.elements as u64,
            cells: now.cells as u64,
            spare_taken: now.spare_taken as u64,
            resizes: now.resizes,
            malformed: now.malformed,
            checkpoints: now.checkpoints,
        };
        // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
        unsafe { to.write(volume) };
        Ok(())
    })
}
