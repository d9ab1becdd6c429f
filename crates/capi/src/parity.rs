//! Checkpoints of several processes whose XOR another one keeps.

use crate::boundary::{Result, array, call, optional, place};
use crate::checkpoint::{memories_of, pw_memory};
use crate::error::pw_error;
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use pagewire::{Node, Token};
use pagewire_active::{Memory, Parity, ParityMember};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The parity of the checkpoints of several processes.
pub struct pw_parity {
    _opaque: [u8; 0],
}

/// One of those processes, whose checkpoints lie in its own memory and in the parity.
pub struct pw_parity_member {
    _opaque: [u8; 0],
}

/// A parity, and the node whose memory it takes, which stays until the parity is freed.
pub struct OwnParity {
    parity: Parity,
    _node: Arc<Node>,
}

impl Object for OwnParity {
    type Opaque = pw_parity;
    const MARK: u64 = u64::from_be_bytes(*b"pw_parit");
    const NAME: &str = "parity";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OwnParity> = Places::new();
        &PLACES
    }
}

/// A member, and its node, which stays until the member is freed.
pub struct Member {
    member: Mutex<ParityMember>,
    node: Arc<Node>,
}

impl Object for Member {
    type Opaque = pw_parity_member;
    const MARK: u64 = u64::from_be_bytes(*b"pw_membr");
    const NAME: &str = "member of a parity";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<Member> = Places::new();
        &PLACES
    }
}

/// What was rebuilt.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_rebuilt {
    /// The round of the checkpoint, which all members have.
    pub round: u64,
    /// Bytes of it.
    pub length: u64,
}

/// Makes a parity in memory of this process: of so many members, each of which saves length bytes at most. A thread of the library takes what they save. *parity
/// is NULL after an error. The node stays until pw_parity_free().
///
/// PW_ARGUMENT: there are no members, or more than 65,536; PW_NO_MEMORY, PW_HEAP, PW_SYSTEM; as pw_log_make(), as it takes a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_make(
    node: *mut pw_node,
    members: usize,
    length: u64,
    parity: *mut *mut pw_parity,
) -> pw_error {
    call(|| {
        let to = place(parity, "parity")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let made = OwnParity { parity: Parity::new(node, members, length)?, _node: node.clone() };
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(made)) };
        Ok(())
    })
}

/// Gives the parity's memory back; the pointer is not valid any more. Members get PW_KEY or PW_PEER_LOST. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_free(parity: *mut pw_parity) -> pw_error {
    if parity.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<OwnParity>(parity) }.map(drop))
}

/// Gives the token by which a member joins, and by which it is rebuilt.
///
/// PW_ARGUMENT: there is no such member; PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_token(
    parity: *mut pw_parity,
    member: usize,
    token: *mut pw_token,
) -> pw_error {
    call(|| {
        let to = place(token, "token")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let given = unsafe { object::<OwnParity>(parity) }?.parity.token(member)?;
        // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
        unsafe { to.write(pw_token { bytes: given.to_bytes() }) };
        Ok(())
    })
}

/// The last round that all members have saved. 0: there is none yet.
///
/// PW_ARGUMENT, PW_HANDLE; as pw_flush_handled().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_round(parity: *mut pw_parity, round: *mut u64) -> pw_error {
    call(|| {
        let to = place(round, "round")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let complete = unsafe { object::<OwnParity>(parity) }?.parity.complete_round()?;
        // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
        unsafe { to.write(complete) };
        Ok(())
    })
}

/// Joins a parity as one of its members, by its token of that member. It takes memory for two checkpoints. One process at a time is a member, which nobody checks. *joined is NULL after an error. The node stays until
/// pw_parity_member_free().
///
/// PW_TOKEN: it is not of a parity, or of another member; PW_ARGUMENT: there is no such member; PW_NO_MEMORY, PW_HEAP; as pw_open() and pw_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_join(
    node: *mut pw_node,
    token: *const pw_token,
    member: usize,
    joined: *mut *mut pw_parity_member,
) -> pw_error {
    // SAFETY: pointers of this library, and a place (pagewire.h).
    unsafe { enter(node, joined, |node| Ok(ParityMember::join(node, &token_of(token)?, member)?)) }
}

/// Joins in the place of a member that has died, whose last checkpoint is rebuilt from the parity and from the checkpoints of the others, which save nothing meanwhile.
/// pw_parity_restore() has it reach memory then. *joined is NULL after an error.
///
/// others: the tokens (pw_parity_member_token) of the other members, count of them. rebuilt: gets what was rebuilt; NULL if nobody asks. PW_TOKEN: also, they are not one of each other member of this
/// parity, and which is wrong. PW_PARITY: no round is complete, or
/// what was rebuilt is not what was saved; as pw_parity_join().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_rebuild(
    node: *mut pw_node,
    token: *const pw_token,
    member: usize,
    others: *const pw_token,
    count: usize,
    rebuilt: *mut pw_rebuilt,
    joined: *mut *mut pw_parity_member,
) -> pw_error {
    // SAFETY: pointers of this library, tokens and places (pagewire.h).
    unsafe {
        enter(node, joined, |node| {
            let to = optional(rebuilt, "rebuilt")?;
            let tokens = array(others, count, "others")?.iter().map(|token| token_of(token));
            let others = tokens.collect::<Result<Vec<Token>>>()?;
            let (member, found) = ParityMember::rebuild(node, &token_of(token)?, member, &others)?;
            if let Some(to) = to {
                to.write(pw_rebuilt { round: found.round, length: found.bytes });
            }
            Ok(member)
        })
    }
}

/// # Safety
/// A pointer of this library, and a place for the result, or NULL.
unsafe fn enter(
    node: *mut pw_node,
    joined: *mut *mut pw_parity_member,
    join: impl FnOnce(&Arc<Node>) -> Result<ParityMember>,
) -> pw_error {
    call(|| {
        let to = place(joined, "joined")?;
        // SAFETY: the caller's place for the result, aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: `node` is NULL or a live `pw_node`: pagewire.h lets nobody leave it during the call; `object` checks NULL and the mark.
        let node = unsafe { node_of(node) }?;
        let member = Member { member: Mutex::new(join(node)?), node: node.clone() };
        // SAFETY: the caller's place for the result, aligned and not NULL.
        unsafe { to.write(hand_out(member)) };
        Ok(())
    })
}

/// Gives the memory of a member's checkpoints back; the pointer is not valid any more. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_member_free(member: *mut pw_parity_member) -> pw_error {
    if member.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<Member>(member) }.map(drop))
}

/// Gives the token by which the place of another member is rebuilt: it names the checkpoints of this one.
///
/// PW_ARGUMENT, PW_HANDLE; as pw_export().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_member_token(
    member: *mut pw_parity_member,
    token: *mut pw_token,
) -> pw_error {
    call(|| {
        let to = place(token, "token")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let given = unsafe { object::<Member>(member) }?.member.lock().token()?;
        // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
        unsafe { to.write(pw_token { bytes: given.to_bytes() }) };
        Ok(())
    })
}

/// Saves memory of this process as the member's checkpoint of the next round. It may change as soon as this has returned. The round counts when all members have
/// saved it: pw_parity_wait().
///
/// memories: count of them, 1 or more, whose bytes are copied: they need no token. round: gets the round; NULL if nobody asks. PW_LIMIT: they have more bytes than the parity was made for; PW_PARITY: this
/// member has saved the round already, and others have not, or a member died in it and it was begun anew: save again; as pw_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_save(
    member: *mut pw_parity_member,
    memories: *const pw_memory,
    count: usize,
    round: *mut u64,
) -> pw_error {
    // SAFETY: a pointer of this library, memory and a place (pagewire.h).
    unsafe { with_memory(member, (memories, count), round, |member, regions| Ok(member.save(regions)?)) }
}

/// Has the last checkpoint of this member that all have reach memory: that of pw_parity_rebuild(), or its own.
///
/// As pw_parity_save(). PW_ARGUMENT: the memory has another length than the checkpoint; PW_PARITY: there is none, or it is damaged. Nothing was changed
/// then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_restore(
    member: *mut pw_parity_member,
    memories: *const pw_memory,
    count: usize,
    round: *mut u64,
) -> pw_error {
    // SAFETY: a pointer of this library, memory and a place (pagewire.h).
    unsafe { with_memory(member, (memories, count), round, |member, regions| Ok(member.restore(regions)?)) }
}

/// # Safety
/// A pointer of this library, so many of them, and a place or NULL.
unsafe fn with_memory(
    member: *mut pw_parity_member,
    (memories, count): (*const pw_memory, usize),
    round: *mut u64,
    work: impl FnOnce(&mut ParityMember, &[&dyn Memory]) -> Result<u64>,
) -> pw_error {
    call(|| {
        let to = optional(round, "round")?;
        // SAFETY: `member` is NULL or a live `pw_parity_member`: pagewire.h lets nobody free it during the call; `object` checks the mark.
        let open = unsafe { object::<Member>(member) }?;
        // SAFETY: so many of them (pagewire.h).
        let memories = unsafe { memories_of(&open.node, memories, count) }?;
        let regions: Vec<&dyn Memory> = memories.iter().map(|memory| memory as _).collect();
        let done = work(&mut open.member.lock(), &regions)?;
        if let Some(to) = to {
            // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
            unsafe { to.write(done) };
        }
        Ok(())
    })
}

/// Waits until all members have saved the round that this one has saved last.
///
/// nanoseconds: for how long at most. round: gets the round; NULL if nobody asks. PW_TIMEOUT; as pw_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_parity_wait(
    member: *mut pw_parity_member,
    nanoseconds: u64,
    round: *mut u64,
) -> pw_error {
    call(|| {
        let to = optional(round, "round")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let open = unsafe { object::<Member>(member) }?;
        let complete = open.member.lock().wait_complete(Duration::from_nanos(nanoseconds))?;
        if let Some(to) = to {
            // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
            unsafe { to.write(complete) };
        }
        Ok(())
    })
}
