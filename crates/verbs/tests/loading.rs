//! The shared object as the dynamic loader meets it: its symbols beside those of rdma-core's libibverbs, and the names by which programs load it.
//!
//! Needs a C compiler, binutils and libibverbs-dev, as building the library itself does.

#[path = "../../../tests/src/compile/command.rs"]
mod compile;
#[path = "../../../tests/src/library.rs"]
mod library;
#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library::link("loading"))
}

/// rdma-core's library, which the compiler finds for -libverbs.
fn system_library() -> Option<PathBuf> {
    let output = Command::new("cc").arg("-print-file-name=libibverbs.so").output().unwrap();
    let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    if path.is_absolute() {
        return Some(path);
    }
    not_checked::tell("what needs rdma-core's libibverbs.so (Debian package libibverbs-dev)");
    None
}

/// What a library exports, by name and version (`@` for each): type, and bytes where it is a variable.
fn exports(library: &Path) -> BTreeMap<String, (String, u64)> {
    let output = Command::new("readelf").args(["--dyn-syms", "--wide"]).arg(library).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let symbols = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, size, kind, _, _, section, name] = fields[..] else { return None };
        let is_export = section.parse::<u32>().is_ok() && name.contains('@');
        let size = if kind == "OBJECT" { size.parse().unwrap() } else { 0 };
        is_export.then(|| (name.replace("@@", "@"), (kind.to_owned(), size)))
    });
    symbols.collect()
}

/// A program or library that was linked with either one finds in the other what it expects: a copy relocation, or a store, takes the type
/// and the size for granted.
#[test]
fn exports_have_the_types_and_sizes_of_rdma_core() {
    let Some(theirs) = system_library() else { return };
    let (theirs, ours) = (exports(&theirs), exports(&library().join("libpagewire.so.1")));
    assert!(theirs.len() > 100 && theirs.values().any(|(kind, size)| kind == "OBJECT" && *size > 0));
    let differ: Vec<_> = theirs
        .iter()
        .filter(|(name, export)| ours.get(*name) != Some(export))
        .map(|(name, export)| format!("{name}: {export:?} there, {:?} here", ours.get(name)))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Compiles sources that stand here into a shared library.
fn shared(folder: &Path, name: &str, source: &str, options: &[&str]) {
    let file = folder.join(name).with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut compiler = compile::command([file], &folder.join(name));
    let status = compiler.args(["-shared", "-fPIC"]).args(options).status().unwrap();
    assert!(status.success(), "{name} does not compile");
}

// Not as the last call, which would be a jump: the caller of dlopen(3) would be the program.
const OPENER: &str = "#include <dlfcn.h>\nvoid *open_by_name(const char *name) { void *library = dlopen(name, RTLD_NOW); \
    __asm__ volatile(\"\" : \"+r\"(library)); return library; }\n";
const COUNT: &str = "#include <errno.h>\n#include <infiniband/verbs.h>\n\
    int count_devices(void) { int count = 0; errno = 0; struct ibv_device **list = ibv_get_device_list(&count); \
    if (!list) return -errno; ibv_free_device_list(list); return count; }\n";

/// With the library preloaded, as `pagewire run` does; the program is linked with libibverbs, or looks for it only by dlopen(3).
#[test]
fn every_name_of_libibverbs_gives_the_engine() {
    let Some(system) = system_library() else { return };
    let folder = library().parent().unwrap().join("names");
    // It may be there from a run before.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let other = folder.join("libother.so");
    shared(&folder, "libother.so", "int other_number(void) { return 7; }\n", &[]);
    let runpath = format!("-Wl,--enable-new-dtags,-rpath,{}", folder.display());
    for name in ["libopener.so", "libopener-deep.so"] {
        shared(&folder, name, OPENER, &["-ldl", &runpath]);
    }
    shared(&folder, "libneeds.so", COUNT, &["-Wl,--no-as-needed", "-libverbs"]);
    // A search path that comes before LD_LIBRARY_PATH.
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", system.parent().unwrap().display());
    shared(&folder, "libneeds-rpath.so", COUNT, &["-Wl,--no-as-needed", "-libverbs", &rpath]);
    assert!(other.is_file());
    let (real, link) = (std::fs::canonicalize(&system).unwrap(), folder.join("a-link.so"));
    symlink(&real, &link).unwrap();
    let copied = folder.join("libibverbs-0a1b2c3d.so.1.14");
    std::fs::copy(&real, &copied).unwrap();
    let soname = system.with_file_name("libibverbs.so.1");
    let mut names = vec!["libibverbs.so".to_owned(), "libibverbs.so.1".to_owned()];
    names.extend([&system, &soname, &real, &link, &copied].map(|path| path.to_str().unwrap().to_owned()));

    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/loading.c");
    let links: [(&str, &[&str]); 3] = [
        ("loading", &[]),
        ("loading-linked", &["-Wl,--no-as-needed", "-libverbs"]),
        ("loading-rpath", &["-Wl,--no-as-needed", "-libverbs", &rpath]),
    ];
    for (name, options) in links {
        let program = folder.join(name);
        let mut compiler = compile::command([&source], &program);
        // It takes the library's functions from nowhere but what it has loaded.
        let status = compiler.args(options).arg("-ldl").status().unwrap();
        assert!(status.success(), "{name} does not compile");
        let folders = [library().to_path_buf(), library().join("pagewire")];
        let mut command = Command::new(&program);
        if name == "loading-rpath" {
            command.env("HAS_SYSTEMS_LIBRARY", "yes");
        }
        let output = command
            .env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap())
            .env("LD_PRELOAD", library().join("libpagewire.so.1"))
            .env("VERBS_NAMES", names.join(":"))
            .env("OTHER_FOLDER", &folder)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{said}", output.status);
        assert_eq!(said.contains("a process has one engine"), name != "loading-rpath", "{name}: {said}");
    }
}
