//! The order of LD_PRELOAD: the runtimes of sanitizers, the engine, whatever else the caller preloads.
//!
//! AddressSanitizer's runtime ends a program in which it is not the first library, and all of them must stand before whatever
//! they intercept.

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, ReadCache};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The value of LD_PRELOAD for a program that needs the libraries `needed`, with `engine` in it, if the caller's is `before`. A caller that
/// `pagewire run` has started has an engine there, which this one replaces.
pub fn order(before: &OsStr, needed: &[String], engine: &OsStr) -> OsString {
    // ld.so(8): separated by spaces or colons, with no way to quote either.
    let is_engine = |name: &[u8]| {
        engine.as_bytes().split(|byte| *byte == b':').any(|own| file_name(own) == file_name(name))
    };
    let names = before.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    let listed = names.filter(|name| !name.is_empty() && !is_engine(name));
    let (mut first, rest): (Vec<&[u8]>, Vec<&[u8]>) = listed.partition(|name| is_sanitizer(name));
    for name in needed.iter().map(|name| name.as_bytes()).filter(|name| is_sanitizer(name)) {
        if !first.iter().any(|listed| file_name(listed) == name) {
            first.push(name);
        }
    }
    let all: Vec<&[u8]> = first.into_iter().chain([engine.as_bytes()]).chain(rest).collect();
    OsString::from_vec(all.join(&b':'))
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Whether a library is the runtime of a sanitizer, by its name: GCC's (`libasan.so.8`) or Clang's
/// (`libclang_rt.asan-x86_64.so`).
pub fn is_sanitizer(path: &[u8]) -> bool {
    const KINDS: [&str; 6] = ["asan", "hwasan", "lsan", "msan", "tsan", "ubsan"];
    let name = String::from_utf8_lossy(file_name(path));
    let Some(kind) = name.strip_prefix("libclang_rt.").or_else(|| name.strip_prefix("lib")) else {
        return false;
    };
    KINDS.iter().any(|known| kind.strip_prefix(known).is_some_and(|rest| rest.starts_with(['.', '-', '_'])))
}

/// The libraries that an ELF program of 64 bits names (DT_NEEDED); none where it is something else.
pub fn needed(program: &Path) -> Vec<String> {
    let Ok(file) = File::open(program) else { return Vec::new() };
    let file = ReadCache::new(file);
    let read = || -> object::Result<Vec<String>> {
        let header = FileHeader64::<Endianness>::parse(&file)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, &file)?;
        let Some((entries, link)) = sections.dynamic(endian, &file)? else { return Ok(Vec::new()) };
        let strings = sections.strings(endian, &file, link)?;
        let needed = entries.iter().filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED));
        let name =
            |entry: &elf::Dyn64<Endianness>| strings.get(u32::try_from(entry.d_val(endian)).ok()?).ok();
        Ok(needed.filter_map(name).map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(before: &str, needed: &[&str]) -> String {
        let needed: Vec<String> = needed.iter().map(|&name| name.to_owned()).collect();
        order(before.as_ref(), &needed, "/e/libpagewire.so.1".as_ref()).into_string().expect("UTF-8")
    }

    #[test]
    fn sanitizers_stay_before_the_engine_and_others_behind_it() {
        assert_eq!(ordered("", &[]), "/e/libpagewire.so.1");
        assert_eq!(ordered("/u/libasan.so.8", &[]), "/u/libasan.so.8:/e/libpagewire.so.1");
        assert_eq!(
            ordered("a.so /u/libtsan.so.2::b.so", &["libc.so.6"]),
            "/u/libtsan.so.2:/e/libpagewire.so.1:a.so:b.so"
        );
        assert_eq!(
            ordered("/l/libclang_rt.asan-x86_64.so", &[]),
            "/l/libclang_rt.asan-x86_64.so:/e/libpagewire.so.1"
        );
        assert_eq!(ordered("libasanother.so", &[]), "/e/libpagewire.so.1:libasanother.so");
        // Its write(2) calls the C library's, past the engine's.
        assert_eq!(
            ordered("/l/rsocket/librspreload.so", &[]),
            "/e/libpagewire.so.1:/l/rsocket/librspreload.so"
        );
    }

    #[test]
    fn engine_is_preloaded_once() {
        assert_eq!(ordered("/e/libpagewire.so.1:a.so", &[]), "/e/libpagewire.so.1:a.so");
        assert_eq!(ordered("/other/libpagewire.so.1", &[]), "/e/libpagewire.so.1");
        let heap = "/e/libpagewire.so.1:/e/libpagewire-malloc.so.1";
        assert_eq!(ordered(heap, &[]), heap, "the heap of the caller stays");
        assert_eq!(order(heap.as_ref(), &[], heap.as_ref()), *heap);
    }

    #[test]
    fn the_sanitizer_that_a_program_is_linked_with_is_preloaded_once() {
        assert_eq!(ordered("", &["libasan.so.8", "libc.so.6"]), "libasan.so.8:/e/libpagewire.so.1");
        assert_eq!(ordered("/u/libasan.so.8", &["libasan.so.8"]), "/u/libasan.so.8:/e/libpagewire.so.1");
    }

    #[test]
    fn a_program_names_its_libraries() {
        let needs = needed(&std::env::current_exe().expect("this test"));
        assert!(needs.iter().any(|name| name.starts_with("libc.so")), "{needs:?}");
        assert!(needed(Path::new("/etc/passwd")).is_empty() && needed(Path::new("/no/such")).is_empty());
    }
}
