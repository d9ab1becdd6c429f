//! The verbs that read files of sysfs. What they read of a device of ours is what [`device_files`](crate::devices::device_files) shows.

use crate::abi::*;
use crate::boundary::unobserved_number;
use crate::devices::device::{DeviceObject, known_at};
use crate::devices::device_files::content_of;
use crate::limits::MAX_SYSTEM_FILE;
use libc::{EINVAL, c_char, c_int};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `ibv_get_sysfs_path`: where sysfs is.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Copies a file's content as the kernel's tools want it: without the final line feed, with a NUL if there is room.
///
/// # Safety
/// `buffer` has room for `size` bytes.
unsafe fn hand_over(content: &[u8], buffer: *mut c_char, size: usize) -> c_int {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let length = content.len().min(size);
    // SAFETY: the caller promises room for `size` bytes at `buffer`, and `length` is not above `size`.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(content.as_ptr(), length);
        if length < size {
            buffer.add(length).write(0);
        }
    }
    length as c_int
}

/// `ibv_read_sysfs_file`: the number of bytes read, or -1. For our devices, which are not in sysfs, it answers itself.
///
/// # Safety
/// The texts are NUL-terminated; `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    unobserved_number(|| {
        if directory.is_null() || file.is_null() || buffer.is_null() {
            return Err(crate::boundary::Errno(EINVAL));
        }
        // SAFETY: the caller promises that the texts are NUL-terminated; neither is NULL here.
        let (directory, file) = unsafe { (CStr::from_ptr(directory), CStr::from_ptr(file)) };
        if let Some(device) = known_at(&directory.to_string_lossy()) {
            let path = [directory.to_bytes(), file.to_bytes()].join(&b'/');
            let content = content_of(device.device(), &path)?;
            // SAFETY: the caller promises that `buffer` has room for `size` bytes.
            return Ok(unsafe { hand_over(content.as_bytes(), buffer, size) });
        }
        // Always below the directory: what begins with a slash would take its place.
        let slashes = file.to_bytes().iter().take_while(|byte| **byte == b'/').count();
        let file = OsStr::from_bytes(&file.to_bytes()[slashes..]);
        let path = Path::new(OsStr::from_bytes(directory.to_bytes())).join(file);
        let mut content = Vec::new();
        File::open(path)?.take(MAX_SYSTEM_FILE.min(size as u64)).read_to_end(&mut content)?;
        // SAFETY: the caller promises that `buffer` has room for `size` bytes.
        Ok(unsafe { hand_over(&content, buffer, size) })
    })
}

/// A device's attribute file by the device: what `ibv_read_ibdev_sysfs_file` (private, for the providers' libraries) calls when it has
/// formatted the name; it is in `c/variadic.c`.
///
/// # Safety
/// `buffer` has room for `size` bytes; `device` is one that the program holds; `file` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_read_device_attribute(
    buffer: *mut c_char,
    size: usize,
    device: *mut ibv_device,
    file: *const c_char,
) -> c_int {
    unobserved_number(|| {
        // SAFETY: the caller promises that `device` is one that the program holds.
        let held = unsafe { DeviceObject::of(device) }?;
        if file.is_null() || buffer.is_null() {
            return Err(crate::boundary::Errno(EINVAL));
        }
        // SAFETY: the caller promises that `file` is NUL-terminated.
        let file = unsafe { CStr::from_ptr(file) };
        let directory = format!("/sys/class/infiniband/{}", held.device().name);
        let content = content_of(held.device(), &[directory.as_bytes(), file.to_bytes()].join(&b'/'))?;
        // SAFETY: the caller promises that `buffer` has room for `size` bytes.
        Ok(unsafe { hand_over(content.as_bytes(), buffer, size) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn ordinary_files_are_read_without_their_line_feed() {
        let folder = std::env::temp_dir().join(format!("pagewire-sysfs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        File::create(folder.join("name")).unwrap().write_all(b"value\n").unwrap();
        let directory = std::ffi::CString::new(folder.as_os_str().as_bytes()).unwrap();
        let mut buffer = [1 as c_char; 32];
        // SAFETY: local texts and 32 bytes of room.
        let length = unsafe {
            ibv_read_sysfs_file(directory.as_ptr(), c"name".as_ptr(), buffer.as_mut_ptr(), buffer.len())
        };
        assert_eq!(length, 5);
        assert_eq!(buffer[..6].iter().map(|byte| *byte as u8).collect::<Vec<_>>(), b"value\0");
        // SAFETY: the texts are NUL-terminated literals or local, and the buffer has room for its own length.
        let below = unsafe {
            ibv_read_sysfs_file(directory.as_ptr(), c"//name".as_ptr(), buffer.as_mut_ptr(), buffer.len())
        };
        assert_eq!(below, 5);
        // SAFETY: the texts are NUL-terminated literals or local, and the buffer has room for its own length.
        let missing = unsafe {
            ibv_read_sysfs_file(directory.as_ptr(), c"none".as_ptr(), buffer.as_mut_ptr(), buffer.len())
        };
        assert_eq!(missing, -1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
