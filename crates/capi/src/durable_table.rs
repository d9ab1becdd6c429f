//! Hash tables that outlive their processes: their volumes lie in files, and another process takes the place of one that was killed.

use crate::boundary::{Result, array, call, optional, path_of, place};
use crate::checkpoint::syncs_of;
use crate::error::{Refusal, pw_error};
use crate::handle::{hand_out, object};
use crate::node::{node_of, pw_node};
use crate::table::{OpenTable, PW_BY_OPERATIONS, options_of, pw_table, pw_table_options};
use pagewire::Node;
use pagewire_active::hash_table::{Durability, Service, TICKET_LEN};
use pagewire_active::{Events, HashTable, TableOptions};
use std::ffi::c_char;
use std::sync::Arc;

/// Where the volumes of a table lie when their processes do not run.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_durability {
    /// The folder of the files, which is made if there is none. Each process of a host names the same one.
    pub folder: *const c_char,
    /// Bytes that the logs of one process to one volume take before the owner of the volume makes a checkpoint. 0: 64 MiB.
    pub log_bytes: u64,
    /// PW_SYNC: a checkpoint is on the disk when its call returns. PW_NO_SYNC: it outlives processes, and not the machine.
    pub checkpoints: u32,
}

/// Bytes of a ticket of a hash table.
pub const PW_TABLE_TICKET_SIZE: usize = 136;

/// Where the volume of a process is: plain bytes, to be sent by any means.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_volume_ticket {
    /// Opaque.
    pub bytes: [u8; PW_TABLE_TICKET_SIZE],
}

const _: () = assert!(PW_TABLE_TICKET_SIZE == TICKET_LEN);

impl AsRef<[u8]> for pw_volume_ticket {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// As pw_table_join(), with volumes that outlive their processes. A volume that a process of the same rank has left in the folder is this process's, with all its
/// elements. All processes of the job call this. *table is NULL after an error. The node stays until the table is freed.
///
/// PW_ARGUMENT: also, PW_BY_OPERATIONS cannot log what it changes; PW_SYSTEM: a file cannot be used, and why; else as pw_table_join().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_join_durable(
    node: *mut pw_node,
    options: *const pw_table_options,
    durability: *const pw_durability,
    table: *mut *mut pw_table,
) -> pw_error {
    // SAFETY: a pointer of this library, options and a place (pagewire.h).
    unsafe {
        make(node, (options, durability), table, |node, options, durability| {
            Ok(HashTable::join_durable(node, options, durability, service())?)
        })
    }
}

/// Takes the place of a member of a durable table that was killed, and has all its elements: what came into its volume, by whomever. The others give the ticket of
/// this process to pw_table_readmit(). The node may be one of pw_node_alone(), as the job that the dead process was of has ended.
///
/// rank: of the member. tickets: count of them, of all members by rank, as pw_table_ticket() gives them. That of this rank is not looked at, and all others are
/// valid: if more than one member is dead, end the others, and start the job again with pw_table_join_durable(). It waits up to 3 seconds for the end of the process
/// before. PW_TOKEN: a ticket is none; as pw_table_join_durable().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_restart(
    node: *mut pw_node,
    options: *const pw_table_options,
    durability: *const pw_durability,
    rank: usize,
    tickets: *const pw_volume_ticket,
    count: usize,
    table: *mut *mut pw_table,
) -> pw_error {
    // SAFETY: a pointer of this library, options, so many tickets and a place (pagewire.h).
    unsafe {
        make(node, (options, durability), table, |node, options, durability| {
            let tickets = array(tickets, count, "tickets")?;
            if rank >= count {
                let sentence = format!("'rank' is {rank}, and there are tickets of {count} members");
                return Err(Refusal::argument(sentence));
            }
            Ok(HashTable::restart(node, options, durability, service(), (rank, tickets))?)
        })
    }
}

fn service() -> Service {
    Service::Events(Events::default())
}

/// # Safety
/// A pointer of this library, options, and a place for the result, or NULL.
unsafe fn make(
    node: *mut pw_node,
    (options, durability): (*const pw_table_options, *const pw_durability),
    table: *mut *mut pw_table,
    how: impl FnOnce(&Arc<Node>, &TableOptions, &Durability) -> Result<HashTable>,
) -> pw_error {
    call(|| {
        let to = place(table, "table")?;
        // SAFETY: the caller's place for the result, aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: `node` is NULL or a live `pw_node`: pagewire.h lets nobody leave it during the call; `object` checks NULL and the mark.
        let node = unsafe { node_of(node) }?;
        let options = place(options.cast_mut(), "options")?;
        let durability = place(durability.cast_mut(), "durability")?;
        // SAFETY: the caller's promise; aligned and not NULL.
        let (options, durability) = unsafe { (options.read(), durability_of(durability.read())?) };
        if options.scheme == PW_BY_OPERATIONS {
            let sentence = "'scheme' is PW_BY_OPERATIONS, which changes volumes without a log: a durable table takes PW_NEAREST or PW_BY_HANDLER";
            return Err(Refusal::argument(sentence));
        }
        let made = how(node, &options_of(options)?, &durability)?;
        // SAFETY: the caller's place for the result, aligned and not NULL.
        unsafe { to.write(hand_out(OpenTable::new(made))) };
        Ok(())
    })
}

/// # Safety
/// Its folder is NULL, or a string.
unsafe fn durability_of(given: pw_durability) -> Result<Durability> {
    // SAFETY: `given.folder` is NULL, which `path_of` refuses, or a string with a NUL at its end that is valid for the call (pagewire.h).
    let folder = unsafe { path_of(given.folder, "folder") }?;
    let mut durability = Durability::new(folder);
    durability.syncs = syncs_of(given.checkpoints, "checkpoints")?;
    if given.log_bytes > 0 {
        durability.log_bytes = given.log_bytes;
    }
    Ok(durability)
}

/// Makes the ticket of the volume of this process, for pw_table_restart() and pw_table_readmit() elsewhere.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_ticket(table: *mut pw_table, ticket: *mut pw_volume_ticket) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let table = unsafe { object::<OpenTable>(table) }?;
        let to = place(ticket, "ticket")?;
        let mut bytes = [0; PW_TABLE_TICKET_SIZE];
        bytes.copy_from_slice(&table.shared().ticket());
        // SAFETY: the caller's place (pagewire.h).
        unsafe { to.write(pw_volume_ticket { bytes }) };
        Ok(())
    })
}

/// Writes a checkpoint of the volume of this process to its file, so that its logs begin anew. Others go on meanwhile. A log that is full asks for one, too.
///
/// PW_ARGUMENT: the table is not durable. PW_SYSTEM: the file cannot be written, and the logs have all that they had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_checkpoint(table: *mut pw_table) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<OpenTable>(table) }?.shared().checkpoint()?))
}

/// Has a process of pw_table_restart() take the place of the member of its rank, when the calls of other threads have returned. What this process had inserted there
/// and flushed is there. Do again what has failed.
///
/// unflushed: gets how many messages for that member were not flushed: if there are any, do everything since the last flush again. NULL if nobody asks.
///
/// PW_ARGUMENT: the rank is this process's own, or no member's; PW_TOKEN: the ticket is none; as pw_table_join().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_readmit(
    table: *mut pw_table,
    rank: usize,
    ticket: *const pw_volume_ticket,
    unflushed: *mut u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let table = unsafe { object::<OpenTable>(table) }?;
        let (from, to) = (place(ticket.cast_mut(), "ticket")?, optional(unflushed, "unflushed")?);
        // SAFETY: a ticket (pagewire.h), aligned and not NULL.
        let ticket = unsafe { from.read() };
        let count = table.alone().readmit(rank, &ticket.bytes)?;
        if let Some(to) = to {
            // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
            unsafe { to.write(count) };
        }
        Ok(())
    })
}
