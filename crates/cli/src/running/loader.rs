//! Which C library starts a program, and whether the engine can be preloaded there.
//!
//! The engine needs glibc 2.28. A loader that cannot have it would end the program before main, or fail in the midst of it.

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, elf};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The oldest glibc 2.x in which the engine can be loaded.
const OLDEST_MINOR: u32 = 28;

/// Interpreters that name each other, at most (execve(2) follows as many).
const SCRIPT_DEPTH: usize = 5;

/// Bytes of the first line of a script that execve(2) reads.
const SCRIPT_LINE: u64 = 256;

/// Whether the engine can be preloaded into a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preload {
    /// As far as its file tells.
    Possible,
    /// It is linked statically, so that the kernel starts it without a loader.
    NoLoader,
    /// Its loader is another one than glibc's, or too old: the sentence says which.
    Refused(String),
}

/// Looks at the file of a program, or at the interpreter that a script names. What is no ELF file of 64 bits is left to the kernel.
pub fn preload_of(program: &Path) -> Preload {
    let mut file = program.to_path_buf();
    for _ in 0..SCRIPT_DEPTH {
        match script_interpreter(&file) {
            Some(next) => file = next,
            None => break,
        }
    }
    match elf_interpreter(&file) {
        Ok(Some(loader)) => judge(&loader, loader.canonicalize().ok().as_deref()),
        Ok(None) if file == program => Preload::NoLoader,
        // What a static interpreter starts may be anything.
        Ok(None) | Err(_) => Preload::Possible,
    }
}

/// Whether a program names no loader. False where it is no 64-bit ELF file.
pub fn is_static(program: &Path) -> bool {
    matches!(elf_interpreter(program), Ok(None))
}

/// Judges a loader by its name, and by the name of the file that a link of that name leads to (`ld-2.27.so` before glibc 2.34).
fn judge(loader: &Path, file: Option<&Path>) -> Preload {
    let name =
        |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name(loader).starts_with("ld-musl-") {
        return Preload::Refused(format!("its C library is musl ({})", loader.display()));
    }
    let minor = file.and_then(|file| {
        let name = name(file);
        name.strip_prefix("ld-2.")?.strip_suffix(".so")?.split('.').next()?.parse::<u32>().ok()
    });
    match minor {
        Some(minor) if minor < OLDEST_MINOR => Preload::Refused(format!("its C library is glibc 2.{minor}")),
        _ => Preload::Possible,
    }
}

/// The loader that an ELF file names (elf(5), PT_INTERP), if it names one.
fn elf_interpreter(file: &Path) -> object::Result<Option<PathBuf>> {
    let Ok(file) = File::open(file) else { return Ok(Some(PathBuf::new())) };
    let file = ReadCache::new(file);
    let header = elf::FileHeader64::<Endianness>::parse(&file)?;
    let endian = header.endian()?;
    for part in header.program_headers(endian, &file)? {
        if let Some(path) = part.interpreter(endian, &file)? {
            return Ok(Some(PathBuf::from(OsStr::from_bytes(path))));
        }
    }
    Ok(None)
}

/// The program that the first line of a script names (execve(2), "Interpreter scripts").
fn script_interpreter(file: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(File::open(file).ok()?.take(SCRIPT_LINE)).read_until(b'\n', &mut line).ok()?;
    let named = line.strip_prefix(b"#!")?.trim_ascii();
    let path = named.split(|byte| byte.is_ascii_whitespace()).next()?;
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn loaders_are_judged_by_name() {
        let judged = |loader: &str, file: &str| judge(Path::new(loader), Some(Path::new(file)));
        let glibc = "/lib64/ld-linux-x86-64.so.2";
        assert_eq!(judged(glibc, "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"), Preload::Possible);
        assert_eq!(judged(glibc, "/usr/lib/x86_64-linux-gnu/ld-2.31.so"), Preload::Possible);
        assert_eq!(judged(glibc, "/lib/x86_64-linux-gnu/ld-2.28.so"), Preload::Possible);
        assert_eq!(
            judged(glibc, "/lib/x86_64-linux-gnu/ld-2.27.so"),
            Preload::Refused("its C library is glibc 2.27".to_owned())
        );
        assert_eq!(
            judged("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-x86_64.so.1"),
            Preload::Refused("its C library is musl (/lib/ld-musl-x86_64.so.1)".to_owned())
        );
        assert_eq!(judge(Path::new("/no/such/loader"), None), Preload::Possible);
    }

    #[test]
    fn scripts_are_judged_by_interpreter() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("script");
        std::fs::write(&script, "#! /bin/sh -e\nexit 0\n").expect("room");
        assert_eq!(script_interpreter(&script), Some(PathBuf::from("/bin/sh")));
        assert_eq!(preload_of(&script), preload_of(Path::new("/bin/sh")));
        std::fs::write(&script, "#!\n").expect("room");
        assert_eq!(script_interpreter(&script), None);
        std::fs::write(&script, format!("#!{}\n", script.display())).expect("room");
        assert_eq!(preload_of(&script), Preload::Possible, "it names itself");
        assert_eq!(preload_of(Path::new("/no/such/program")), Preload::Possible);
    }

    #[test]
    fn static_programs_have_no_loader() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("program.c");
        std::fs::write(&source, "int main(void) { return 0; }").expect("room");
        for (option, expected) in
            [("-static", Preload::NoLoader), ("-static-pie", Preload::NoLoader), ("-pie", Preload::Possible)]
        {
            let file = directory.path().join(option);
            let mut compiler = Command::new("cc");
            compiler.arg(option).arg("-o").args([&file, &source]);
            assert!(compiler.status().expect("a C compiler").success(), "{option}");
            assert_eq!(preload_of(&file), expected, "{option}");
            assert_eq!(is_static(&file), expected == Preload::NoLoader, "{option}");
        }
        assert!(!is_static(&source) && !is_static(Path::new("/no/such/program")));
    }

    #[test]
    fn program_of_another_loader_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let (source, file) = (directory.path().join("program.c"), directory.path().join("program"));
        std::fs::write(&source, "int main(void) { return 0; }").expect("room");
        let mut compiler = Command::new("cc");
        compiler.arg("-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1").arg("-o").args([&file, &source]);
        assert!(compiler.status().expect("a C compiler").success());
        assert!(matches!(preload_of(&file), Preload::Refused(why) if why.contains("musl")));
    }
}
