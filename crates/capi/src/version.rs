//! Which library this is, and which headers it serves.

use crate::error::{Refusal, pw_error};
use std::ffi::c_char;

/// The version of this header: major * 65536 + minor * 256 + patch. pw_version() gives that of the library.
pub const PW_VERSION: u32 = 0x00_01_00;

/// The version of the library: major * 65536 + minor * 256 + patch.
#[unsafe(no_mangle)]
pub extern "C" fn pw_version() -> u32 {
    PW_VERSION
}

/// The version of the library as text. It is static.
#[unsafe(no_mangle)]
pub extern "C" fn pw_version_text() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}

/// Refuses a program that was compiled with a header that this library does not serve.
pub(crate) fn check(header: u32) -> Result<(), Refusal> {
    if is_served(PW_VERSION, header) {
        return Ok(());
    }
    let text = |version: u32| format!("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff);
    let (header, library) = (text(header), text(PW_VERSION));
    Err(Refusal::new(
        pw_error::PW_VERSION_MISMATCH,
        format!(
            "the program was compiled with pagewire.h {header}, and the library is {library}: compile it with the header of this library"
        ),
    ))
}

/// Headers of the same major version that are not younger are served; below 1.0 those of the same minor version.
fn is_served(library: u32, header: u32) -> bool {
    let same = |shift: u32| library >> shift == header >> shift;
    if library >> 16 == 0 { same(8) } else { same(16) && header >> 8 <= library >> 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_that_of_the_package() {
        let parts: Vec<u32> =
            env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap()).collect();
        assert_eq!(PW_VERSION, parts[0] << 16 | parts[1] << 8 | parts[2]);
    }

    #[test]
    fn headers_are_served_by_the_rule() {
        for (library, header, served) in [
            (0x000100, 0x000100, true),
            (0x000100, 0x000105, true),
            (0x000100, 0x000200, false),
            (0x000200, 0x000100, false),
            (0x010203, 0x010100, true),
            (0x010203, 0x010300, false),
            (0x010203, 0x020000, false),
            (0x010203, 0, false),
        ] {
            assert_eq!(is_served(library, header), served, "{library:x} {header:x}");
        }
    }
}
