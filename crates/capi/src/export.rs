//! Exported memory, and the tokens that name it.

use crate::boundary::{Result, bytes, call, place};
use crate::error::{Refusal, pw_error};
use crate::node::{node_of, pw_node};
use pagewire::{Rights, Token};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Who has the token may get.
pub const PW_READ: u32 = 1;
/// Who has the token may put.
pub const PW_WRITE: u32 = 2;
/// Who has the token may use atomics, and signals that are added to.
pub const PW_ATOMIC: u32 = 4;

/// Bytes of a token.
pub const PW_TOKEN_SIZE: usize = 56;

/// Names exported memory. It is plain bytes: send them by any means. Who holds them can open it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pw_token {
    /// Opaque.
    pub bytes: [u8; PW_TOKEN_SIZE],
}

const _: () = assert!(PW_TOKEN_SIZE == Token::LEN);

/// Makes a token for length bytes at address, any memory of this process, in constant time. rights: PW_READ, PW_WRITE, PW_ATOMIC, by OR.
///
/// Peers access the bytes at any time until pw_unexport() or pw_node_leave() has returned; whoever reads them here meanwhile uses atomics
/// or signals. Freeing an object of pw_malloc() and its like ends its exports. Other memory that is unmapped gives peers PW_MEMORY.
///
/// PW_ARGUMENT; PW_ENGINE: the bytes cannot be exported, or there are too many exports; PW_HEAP; PW_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_export(
    node: *mut pw_node,
    address: *mut c_void,
    length: usize,
    rights: u32,
    token: *mut pw_token,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let start = NonNull::new(address.cast::<u8>()).filter(|_| length > 0).ok_or_else(|| {
            Refusal::argument("'address' is NULL, or 'length' is 0: there is nothing to export")
        })?;
        bytes(start.as_ptr(), length, "address")?;
        let to = place(token, "token")?;
        let rights = rights_of(rights)?;
        // SAFETY: the caller of C knows from when to when peers access the bytes (pagewire.h).
        let made = unsafe { node.export_raw(start, length, rights) }?;
        // SAFETY: the caller's place for a token (pagewire.h).
        unsafe { to.write(pw_token { bytes: made.to_bytes() }) };
        Ok(())
    })
}

/// Ends what a token gives. When it returns, no access by the token is under way, and none will come.
///
/// PW_TOKEN; PW_ENGINE: the token is of another node or was unexported before, or a stopped peer is within an access.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_unexport(node: *mut pw_node, token: *const pw_token) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and a token (pagewire.h).
        let (node, token) = unsafe { (node_of(node)?, token_of(token)?) };
        Ok(node.unexport_raw(&token)?)
    })
}

/// PW_READ, PW_WRITE, PW_ATOMIC, or several of them.
pub(crate) fn rights_of(rights: u32) -> Result<Rights> {
    let known = u8::try_from(rights).ok().and_then(Rights::from_bits).filter(|rights| !rights.is_empty());
    known.ok_or_else(|| {
        Refusal::argument("'rights' must be PW_READ, PW_WRITE or PW_ATOMIC, or several of them by OR")
    })
}

/// The token at an address.
///
/// # Safety
/// NULL, or a token.
pub(crate) unsafe fn token_of(token: *const pw_token) -> Result<Token> {
    // SAFETY: `token` is NULL or points to a `pw_token` that is valid for the call (pagewire.h); its bytes are copied before that ends.
    let Some(token) = (unsafe { token.as_ref() }) else {
        return Err(Refusal::argument("the token is NULL"));
    };
    Token::from_bytes(&token.bytes).map_err(|error| pagewire::Error::Token(error).into())
}
