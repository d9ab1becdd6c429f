//! Files as exported memory: a file is mapped, not read in, and peers access its pages.

use crate::access_log::PW_TO_END;
use crate::boundary::{call, give, path_of, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, rights_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use pagewire::{MappedFile, Node};
use std::ffi::c_char;
use std::sync::Arc;

/// A file whose pages peers access.
pub struct pw_mapped_file {
    _opaque: [u8; 0],
}

/// A mapped file, and its node, which stays until the file is closed.
pub struct Mapped {
    file: MappedFile,
    _node: Arc<Node>,
}

impl Object for Mapped {
    type Opaque = pw_mapped_file;
    const MARK: u64 = u64::from_be_bytes(*b"pw_mapf!");
    const NAME: &str = "mapped file";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<Mapped> = Places::new();
        &PLACES
    }
}

/// Peers may read the file.
pub const PW_FILE_READ_ONLY: u32 = 0;
/// Peers may read and write the file.
pub const PW_FILE_WRITABLE: u32 = 1;

/// Maps a file, of any size: nothing is read in, pages come when peers access them, and what peers write goes to the file. *file is NULL after an error. The
/// node stays until pw_mapped_file_close().
///
/// mode: PW_FILE_READ_ONLY or PW_FILE_WRITABLE. length: PW_TO_END for as many bytes as the file has; else of a writable one: the file is made if there is none,
/// and has so many bytes then. Others may change the file at any time, and peers then read the new bytes. An access behind the new end of a file that was
/// truncated gives its caller PW_MEMORY or PW_KEY.
///
/// PW_ARGUMENT; PW_SYSTEM: the file cannot be opened, made that long or mapped, or is no regular file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_map_file(
    node: *mut pw_node,
    path: *const c_char,
    mode: u32,
    length: u64,
    file: *mut *mut pw_mapped_file,
) -> pw_error {
    call(|| {
        let to = place(file, "file")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library, and a string (pagewire.h).
        let (node, path) = unsafe { (node_of(node)?, path_of(path, "path")?) };
        let length = (length != PW_TO_END).then_some(length);
        let mapped = match (mode, length) {
            (PW_FILE_READ_ONLY, None) => node.map_file(path)?,
            (PW_FILE_READ_ONLY, Some(_)) => {
                let sentence = "'length' must be PW_TO_END for a file that is mapped with PW_FILE_READ_ONLY";
                return Err(Refusal::argument(sentence));
            }
            (PW_FILE_WRITABLE, length) => node.map_file_writable(path, length)?,
            _ => {
                let sentence = format!("'mode' is {mode}: it must be PW_FILE_READ_ONLY or PW_FILE_WRITABLE");
                return Err(Refusal::argument(sentence));
            }
        };
        let mapped = Mapped { file: mapped, _node: node.clone() };
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(mapped)) };
        Ok(())
    })
}

/// Bytes of a mapped file: as many as it had when it was mapped. 0 too if the pointer is none: pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_mapped_file_length(file: *const pw_mapped_file) -> u64 {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| Ok(unsafe { object::<Mapped>(file) }?.file.bytes()), |_| 0)
}

/// Makes a token for length bytes of a mapped file from offset on, in constant time. length: PW_TO_END for the rest. rights: as for pw_export().
///
/// The token ends with pw_unexport() or pw_mapped_file_close(). PW_ARGUMENT, PW_HANDLE; PW_BOUNDS: the bytes are not in it; PW_ENGINE: the rights are more than
/// PW_READ, and the file is not writable, or there are too many exports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_mapped_file_export(
    file: *mut pw_mapped_file,
    offset: u64,
    length: u64,
    rights: u32,
    token: *mut pw_token,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let Mapped { file, .. } = unsafe { object::<Mapped>(file) }?;
        let to = place(token, "token")?;
        let end = if length == PW_TO_END { file.bytes() } else { offset.saturating_add(length) };
        let made = file.export_part(offset..end, rights_of(rights)?)?;
        // SAFETY: the caller's place for a token (pagewire.h).
        unsafe { to.write(pw_token { bytes: made.to_bytes() }) };
        Ok(())
    })
}

/// Waits until what peers have written to a mapped file is on its device.
///
/// PW_SYSTEM: the device refuses; PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_mapped_file_sync(file: *mut pw_mapped_file) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<Mapped>(file) }?.file.sync()?))
}

/// Ends the tokens of a mapped file, and its mapping; the pointer is not valid any more. When it returns, no access by the tokens is under way. NULL: nothing
/// is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_mapped_file_close(file: *mut pw_mapped_file) -> pw_error {
    if file.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<Mapped>(file) }.map(drop))
}
