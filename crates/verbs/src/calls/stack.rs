//! Where in the program a verb was called: the stack of the calling thread, without the library's own frames.

use pagewire_checker::report::StackFrame;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

/// Frames that are kept, at most.
const MAX_FRAMES: usize = 48;

/// Frames of the library above the call, at most.
const MAX_OWN: usize = 32;

/// The frames of a thread that called a verb, the innermost first. Modules have the paths that the loader knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CallStack {
    pub frames: Vec<StackFrame>,
}

impl CallStack {
    /// A number that calls from the same place have in common, in all runs of the same files (FNV-1a of names and offsets).
    pub fn hash(&self) -> u64 {
        let mut hash = 0xCBF2_9CE4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
            }
        };
        for frame in &self.frames {
            add(frame.module.as_bytes());
            add(&frame.offset.to_le_bytes());
        }
        hash
    }

    /// The frames with paths that others can open.
    pub fn with_files(&self) -> Vec<StackFrame> {
        let named = |frame: &StackFrame| StackFrame { module: file_of(&frame.module), offset: frame.offset };
        self.frames.iter().map(named).collect()
    }
}

/// The file of a module. The loader has the program's as it was called, which is no path where PATH was searched.
fn file_of(module: &str) -> String {
    let is_program =
        std::env::args_os().next().is_some_and(|name| name.as_encoded_bytes() == module.as_bytes());
    let path = if is_program { std::env::current_exe() } else { std::path::absolute(module) };
    match path {
        Ok(path) if !module.is_empty() => path.to_string_lossy().into_owned(),
        _ => module.to_owned(),
    }
}

/// What the loader says of an address: its module's path and base.
fn module_of(address: *const c_void) -> Option<(String, usize)> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr(3) takes any address and fills the structure where it returns non-zero.
    let info = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr(3) gives a NUL-terminated path that lives as long as the module, in which this thread has a frame.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    Some((path.to_string_lossy().into_owned(), info.dli_fbase as usize))
}

/// The base of this library; `None` where it is linked into the program, whose frames cannot be told from its own.
fn own_library() -> Option<usize> {
    let (_, own) = module_of(own_library as *const c_void)?;
    // SAFETY: getauxval(3) has no preconditions.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let program = module_of(headers as *const c_void).map(|(_, base)| base);
    (program != Some(own)).then_some(own)
}

/// The stack of the calling thread, from the frame that called the library on. A thread whose frames the C library cannot walk has a
/// shorter one. Not for signal handlers: the C library allocates when it walks its first stack.
#[inline(never)]
pub fn capture() -> CallStack {
    let mut addresses = [0; MAX_FRAMES + MAX_OWN];
    let count = capture_addresses(&mut addresses);
    resolve(&addresses[..count])
}

/// The return addresses of the calling thread, those of the library itself among them; how many there are. [`resolve`] makes a stack of them.
#[inline(never)]
pub fn capture_addresses(addresses: &mut [usize]) -> usize {
    let room = c_int::try_from(addresses.len()).unwrap_or(c_int::MAX);
    // SAFETY: backtrace(3) writes at most as many addresses as there is room for, and a `usize` has the layout of a pointer.
    let count = unsafe { libc::backtrace(addresses.as_mut_ptr().cast::<*mut c_void>(), room) };
    usize::try_from(count).unwrap_or(0)
}

/// What return addresses stand for, as long as the loader has their files where they were.
pub fn resolve(addresses: &[usize]) -> CallStack {
    let own = own_library();
    let frames = addresses.iter().map(|&address| {
        // A return address stands behind the call, perhaps in the next function.
        let call = address.wrapping_sub(1);
        match module_of(call as *const c_void) {
            Some((module, base)) => (Some(base), StackFrame { module, offset: (call - base) as u64 }),
            None => (None, StackFrame { module: String::new(), offset: 0 }),
        }
    });
    let all: Vec<(Option<usize>, StackFrame)> = frames.collect();
    let own_frames = all.iter().take_while(|(base, _)| own.is_some() && *base == own).count();
    CallStack { frames: all.into_iter().skip(own_frames).take(MAX_FRAMES).map(|(_, frame)| frame).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn captured_in_loop(times: usize) -> Vec<CallStack> {
        let mut stacks = Vec::new();
        for _ in 0..times {
            stacks.push(capture());
        }
        stacks
    }

    #[test]
    fn place_is_stable_and_distinguished() {
        let stacks = captured_in_loop(3);
        assert!(stacks[0].frames.len() > 2, "{:?}", stacks[0]);
        assert!(stacks.iter().all(|stack| stack.hash() == stacks[0].hash()));
        let other = captured_in_loop(1);
        assert_ne!(other[0].hash(), stacks[0].hash());
    }

    #[test]
    fn hash_depends_on_files_and_offsets_only() {
        let frame = |module: &str, offset| StackFrame { module: module.into(), offset };
        let stack =
            CallStack { frames: vec![frame("/usr/bin/program", 0x10), frame("/lib/libc.so.6", 0x20)] };
        assert_eq!(stack.hash(), stack.clone().hash());
        assert_ne!(stack.hash(), CallStack { frames: stack.frames[..1].to_vec() }.hash());
        assert_eq!(stack.with_files(), stack.frames);
    }
}
