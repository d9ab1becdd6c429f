//! Names and lines of the source for addresses in files: of the debug information, where there is some, else of the symbol table.

use addr2line::Loader;
use object::{Object, ObjectSegment, ReadCache};
use pagewire_checker::report::StackFrame;
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;

/// The page in which the loader puts the first byte of a file.
const PAGE: u64 = 4096;

/// Functions of the C library that call `main`, as its symbol tables name them.
const START: [&str; 4] = ["__libc_start_call_main", "__libc_init_first", "__libc_start_main", "_start"];

/// A frame as people read it. An inlined function has a frame of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFrame {
    #[serde(flatten)]
    pub address: StackFrame,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl SourceFrame {
    /// The function; without a name: the file of the code and the offset in it.
    pub fn name(&self) -> String {
        self.function.clone().unwrap_or_else(|| {
            let StackFrame { module, offset } = &self.address;
            StackFrame { module: last_part(module).to_owned(), offset: *offset }.to_string()
        })
    }

    /// `FILE:LINE` without folders, as far as that is known.
    pub fn position(&self) -> Option<String> {
        let name = last_part(self.file.as_deref()?);
        Some(self.line.map_or_else(|| name.to_owned(), |line| format!("{name}:{line}")))
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A file with code.
struct Module {
    loader: Loader,
    /// The lowest address that the file itself names.
    base: u64,
}

/// The files that were asked for, each opened once.
#[derive(Default)]
pub struct Symbols {
    modules: HashMap<String, Option<Module>>,
}

impl Symbols {
    /// The frames that stand for a frame, the innermost first: one with its file and offset alone where nothing is known.
    pub fn frames(&mut self, frame: &StackFrame) -> Vec<SourceFrame> {
        let module = self.modules.entry(frame.module.clone()).or_insert_with(|| open(&frame.module));
        let plain = SourceFrame { address: frame.clone(), function: None, file: None, line: None };
        let Some(module) = module else { return vec![plain] };
        let address = module.base + frame.offset;
        let found = lines(&module.loader, address, &plain);
        if !found.is_empty() {
            return found;
        }
        let function = module.loader.find_symbol(address).map(demangled);
        vec![SourceFrame { function, ..plain }]
    }

    /// [`frames`](Self::frames) of a stack, up to `main`, or to what the C library has before it.
    pub fn stack(&mut self, frames: &[StackFrame]) -> Vec<SourceFrame> {
        let mut all: Vec<SourceFrame> = frames.iter().flat_map(|frame| self.frames(frame)).collect();
        // The header's own inline functions only call the library.
        let is_header = |frame: &SourceFrame| {
            frame.file.as_deref().is_some_and(|file| file.ends_with("infiniband/verbs.h"))
        };
        let own = all.iter().take_while(|frame| is_header(frame)).count();
        all.drain(..own);
        let is = |frame: &SourceFrame, names: &[&str]| {
            frame.function.as_deref().is_some_and(|function| names.contains(&function))
        };
        if let Some(main) = all.iter().position(|frame| is(frame, &["main"])) {
            all.truncate(main + 1);
        } else if let Some(start) = all.iter().position(|frame| is(frame, &START)) {
            all.truncate(start);
        }
        all
    }
}

/// Opens a file. `None`: it is gone, or nothing of it can be read.
fn open(path: &str) -> Option<Module> {
    let loader = Loader::new(path).ok()?;
    let file = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&file).ok()?;
    let lowest = object.segments().map(|segment| segment.address()).min()?;
    Some(Module { loader, base: lowest - lowest % PAGE })
}

fn demangled(name: &str) -> String {
    addr2line::demangle_auto(name.into(), None).into_owned()
}

/// What the debug information says of an address; nothing, if there is none for it.
fn lines(loader: &Loader, address: u64, plain: &SourceFrame) -> Vec<SourceFrame> {
    let mut all = Vec::new();
    let Ok(mut frames) = loader.find_frames(address) else { return all };
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.and_then(|name| name.demangle().ok().map(|name| name.into_owned()));
        let (file, line) = match frame.location {
            Some(location) => (location.file.map(str::to_owned), location.line),
            None => (None, None),
        };
        if function.is_some() || file.is_some() {
            all.push(SourceFrame { function, file, line, ..plain.clone() });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_functions_have_names() {
        let file = std::env::current_exe().expect("a program").to_string_lossy().into_owned();
        let text = std::fs::read(&file).expect("its file");
        let object = object::File::parse(&*text).expect("ELF");
        let entry = object.entry();
        let frame = StackFrame { module: file.clone(), offset: entry };
        let found = Symbols::default().frames(&frame);
        assert_eq!(found[0].function.as_deref(), Some("_start"));
        let gone = StackFrame { module: "/no/such/file".into(), offset: 7 };
        let plain = Symbols::default().frames(&gone);
        assert_eq!((plain.len(), plain[0].address.offset, plain[0].function.as_deref()), (1, 7, None));
    }
}
