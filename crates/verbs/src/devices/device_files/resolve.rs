//! Resolves paths as path_resolution(7) says, through a [`Tree`] and the file system of the kernel.
//!
//! Where a path leaves the tree, the kernel decides: it gets the rest of the path, and gives its own errors. This module
//! looks at the kernel's files only by way of [`Kernel`].

use super::tree::{NodeId, NodeKind, ROOT, Tree};
use libc::{ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, NAME_MAX, PATH_MAX};
use std::cell::OnceCell;
use std::ops::Deref;

use crate::boundary::{Errno, Result};

/// Links that may be followed for one path, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// What the kernel has at a path, whose last component is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelNode {
    Directory,
    Link(Vec<u8>),
    /// Something else, nothing, or what cannot be known.
    Other,
}

/// The kernel's file system.
pub trait Kernel {
    /// What is at an absolute path.
    fn look(&self, path: &[u8]) -> KernelNode;
}

/// Where a relative path begins.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// A canonical path.
    pub path: &'a [u8],
    /// Whether the kernel does not have it: a descriptor of a directory of the tree.
    pub is_ours: bool,
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolution {
    /// To a node that only the tree has.
    Node(NodeId),
    /// To nothing: the last component is missing in a directory that only the tree has.
    Missing,
    /// Out of the tree again: the kernel has to be asked for this path.
    Kernel(Vec<u8>),
    /// Not through the tree at all: the kernel has to be asked for the path as it is.
    Elsewhere,
}

/// A tree that is made when a path first needs it.
pub struct Lazy<T, M> {
    made: OnceCell<T>,
    make: M,
    /// The names that its root has.
    roots: &'static [&'static str],
}

impl<T, M: Fn() -> T> Lazy<T, M> {
    /// Not made yet.
    pub fn new(roots: &'static [&'static str], make: M) -> Self {
        Lazy { made: OnceCell::new(), make, roots }
    }

    fn is_root(&self, name: &[u8]) -> bool {
        self.roots.iter().any(|root| root.as_bytes() == name)
    }

    /// The tree.
    pub fn get(&self) -> &T {
        self.made.get_or_init(&self.make)
    }
}

/// One resolution.
struct PathWalk<'a, T, M, K> {
    tree: &'a Lazy<T, M>,
    kernel: &'a K,
    /// The canonical path so far, a directory; empty for the root.
    at: Vec<u8>,
    /// Its node, if it is in the tree.
    node: Option<NodeId>,
    /// What of the path is still to be resolved.
    rest: Vec<u8>,
    links: usize,
    /// The path went through something that the kernel does not have.
    is_ours: bool,
}

/// What a step leads to.
enum ResolveStep {
    /// Further on.
    On,
    /// To the end.
    End(Resolution),
}

/// Resolves `path`. `follow`: whether a link at its end is followed.
///
/// # Errors
/// As path_resolution(7): ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
pub fn resolve<F, T: Deref<Target = Tree<F>>, M: Fn() -> T>(
    tree: &Lazy<T, M>,
    kernel: &impl Kernel,
    base: Base<'_>,
    path: &[u8],
    follow: bool,
) -> Result<Resolution> {
    if path.is_empty() {
        return Err(Errno(ENOENT));
    }
    if path.len() >= PATH_MAX as usize {
        return Err(Errno(ENAMETOOLONG));
    }
    let mut walk = PathWalk {
        tree,
        kernel,
        at: Vec::new(),
        node: Some(ROOT),
        rest: path.to_vec(),
        links: 0,
        is_ours: false,
    };
    if path[0] != b'/' {
        walk.at = trimmed(base.path).to_vec();
        walk.node = walk.node_at();
        walk.is_ours = base.is_ours;
    }
    loop {
        match walk.step(follow)? {
            ResolveStep::On => {}
            ResolveStep::End(Resolution::Kernel(_)) if !walk.is_ours => return Ok(Resolution::Elsewhere),
            ResolveStep::End(found) => return Ok(found),
        }
    }
}

fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

impl<F, T: Deref<Target = Tree<F>>, M: Fn() -> T, K: Kernel> PathWalk<'_, T, M, K> {
    /// Takes one component of the path.
    fn step(&mut self, follow: bool) -> Result<ResolveStep> {
        let begin = self.rest.iter().take_while(|byte| **byte == b'/').count();
        let length = self.rest[begin..].iter().take_while(|byte| **byte != b'/').count();
        if length == 0 {
            return Ok(ResolveStep::End(self.end()));
        }
        let name = self.rest[begin..begin + length].to_vec();
        self.rest.drain(..begin + length);
        match name.as_slice() {
            b"." => Ok(ResolveStep::On),
            b".." => {
                let parent = self.at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                self.at.truncate(parent);
                self.node = self.node_at();
                Ok(ResolveStep::On)
            }
            name if name.len() > NAME_MAX as usize => Err(Errno(ENAMETOOLONG)),
            name => self.enter(name, follow),
        }
    }

    /// Takes a component that is a name.
    fn enter(&mut self, name: &[u8], follow: bool) -> Result<ResolveStep> {
        let is_last = self.rest.iter().all(|byte| *byte == b'/');
        let follow = follow || !is_last || !self.rest.is_empty();
        // The names in the root are known without the tree.
        let may_be_ours = self.node.is_some_and(|node| node != ROOT || self.tree.is_root(name));
        let node = self.node.filter(|_| may_be_ours);
        let Some(directory) = node else { return self.enter_kernel(name, follow) };
        let tree = self.tree.get();
        if let Some(entry) = tree.entry(directory, name) {
            return self.enter_node(entry, name, is_last, follow);
        }
        if self.is_kernels(directory) {
            return self.enter_kernel(name, follow);
        }
        if is_last && self.rest.is_empty() {
            Ok(ResolveStep::End(Resolution::Missing))
        } else {
            Err(Errno(ENOENT))
        }
    }

    fn enter_node(&mut self, entry: NodeId, name: &[u8], is_last: bool, follow: bool) -> Result<ResolveStep> {
        match &self.tree.get().node(entry).kind {
            NodeKind::Directory { .. } => {
                self.down(name);
                self.node = Some(entry);
                self.is_ours |= !self.is_kernels(entry);
                Ok(ResolveStep::On)
            }
            NodeKind::Link(target) if follow => {
                let target = target.clone().into_bytes();
                self.is_ours = true;
                self.expand(target)
            }
            // What follows is a slash at least.
            _ if !is_last || !self.rest.is_empty() => Err(Errno(ENOTDIR)),
            _ => Ok(ResolveStep::End(Resolution::Node(entry))),
        }
    }

    /// Takes a name in a directory of the kernel.
    fn enter_kernel(&mut self, name: &[u8], follow: bool) -> Result<ResolveStep> {
        self.down(name);
        match self.kernel.look(&self.at) {
            KernelNode::Directory => {
                self.node = self.node_at();
                Ok(ResolveStep::On)
            }
            KernelNode::Link(target) if follow => {
                self.at.truncate(self.at.len() - name.len() - 1);
                self.expand(target)
            }
            KernelNode::Link(_) | KernelNode::Other => {
                let mut path = std::mem::take(&mut self.at);
                path.append(&mut self.rest);
                if path.len() >= PATH_MAX as usize {
                    return Err(Errno(ENAMETOOLONG));
                }
                Ok(ResolveStep::End(Resolution::Kernel(path)))
            }
        }
    }

    /// Goes on with the target of a link, and then with what is left of the path.
    fn expand(&mut self, mut target: Vec<u8>) -> Result<ResolveStep> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno(ELOOP));
        }
        if target.is_empty() {
            return Err(Errno(ENOENT));
        }
        if target[0] == b'/' {
            self.at.clear();
            self.node = Some(ROOT);
        }
        target.append(&mut self.rest);
        self.rest = target;
        Ok(ResolveStep::On)
    }

    /// The path ends at a directory.
    fn end(&mut self) -> Resolution {
        match self.node.filter(|node| *node != ROOT && !self.is_kernels(*node)) {
            Some(node) => Resolution::Node(node),
            None if self.at.is_empty() => Resolution::Kernel(b"/".to_vec()),
            None => Resolution::Kernel(std::mem::take(&mut self.at)),
        }
    }

    fn down(&mut self, name: &[u8]) {
        self.at.push(b'/');
        self.at.extend_from_slice(name);
    }

    /// The node at the path so far.
    fn node_at(&self) -> Option<NodeId> {
        let first = self.at.split(|byte| *byte == b'/').nth(1);
        match first {
            None => Some(ROOT),
            Some(name) if self.tree.is_root(name) => self.tree.get().find(&self.at),
            Some(_) => None,
        }
    }

    /// Whether the kernel has a directory, too.
    fn is_kernels(&self, directory: NodeId) -> bool {
        if directory == ROOT {
            return true;
        }
        let node = self.tree.get().node(directory);
        node.is_shared() && self.kernel.look(node.path.as_bytes()) == KernelNode::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Files;
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{FileType, lstat, stat};
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::Arc;

    /// A directory of its own: beside the kernel's files in `real` there are those of a tree in `tree`, which the kernel does
    /// not have.
    struct TestDirectory {
        directory: tempfile::TempDir,
        tree: Arc<Tree<()>>,
    }

    /// What is made at a path.
    #[derive(Debug, Clone)]
    enum MadeEntry {
        Directory,
        File,
        Link { target: String, absolute: bool },
    }

    const ROOTS: &[&str] = &["tmp"];

    impl TestDirectory {
        fn new(made: &[(Vec<String>, MadeEntry)]) -> Self {
            let directory = tempfile::Builder::new().prefix("pagewire-").tempdir_in("/tmp").unwrap();
            let at = directory.path().to_str().unwrap().to_owned();
            let mut tree = Tree::new();
            tree.add_shared(&at);
            tree.add(&format!("{at}/tree/file"), NodeKind::File(()));
            fs::create_dir(format!("{at}/real")).unwrap();
            fs::write(format!("{at}/real/file"), "").unwrap();
            for (path, made) in made {
                let path = path.join("/");
                let (real, ours) = (format!("{at}/real/{path}"), format!("{at}/tree/{path}"));
                // What is there already, or stands where a directory would have to be, is left.
                let above = Path::new(&real).ancestors().skip(1).take(3);
                let is_free =
                    above.into_iter().all(|above| above.symlink_metadata().map_or(true, |is| is.is_dir()));
                if !is_free || fs::symlink_metadata(&real).is_ok() {
                    continue;
                }
                fs::create_dir_all(Path::new(&real).parent().unwrap()).unwrap();
                match made {
                    MadeEntry::Directory => {
                        fs::create_dir(&real).unwrap();
                        tree.add(&format!("{ours}/inner"), NodeKind::File(()));
                        fs::write(format!("{real}/inner"), "").unwrap();
                    }
                    MadeEntry::File => {
                        fs::write(&real, "").unwrap();
                        tree.add(&ours, NodeKind::File(()));
                    }
                    MadeEntry::Link { target, absolute } => {
                        let to = |folder| {
                            if *absolute { format!("{at}/{folder}/{target}") } else { target.clone() }
                        };
                        symlink(to("real"), &real).unwrap();
                        tree.add(&ours, NodeKind::Link(to("tree")));
                    }
                }
            }
            TestDirectory { directory, tree: Arc::new(tree) }
        }

        /// What the kernel has at a path below `real`: kind, canonical path where links are followed, target where it is one.
        fn expected(&self, path: &str, follow: bool) -> Result<(String, String)> {
            let path = self.directory.path().join("real").to_str().unwrap().to_owned() + "/" + path;
            Ok(self.seen(path.as_bytes(), follow)?)
        }

        fn seen(
            &self,
            path: &[u8],
            follow: bool,
        ) -> std::result::Result<(String, String), rustix::io::Errno> {
            let status = if follow { stat(path)? } else { lstat(path)? };
            let path = Path::new(std::ffi::OsStr::from_bytes(path));
            let text = |path: &Path| path.to_str().unwrap().to_owned();
            Ok(match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory => ("directory".into(), text(&fs::canonicalize(path).unwrap())),
                FileType::Symlink => ("link".into(), text(&fs::read_link(path).unwrap())),
                _ => ("file".into(), text(&fs::canonicalize(path).unwrap())),
            })
        }

        /// What this module finds at a path below `tree`, in the words of the kernel.
        fn found(&self, path: &str, follow: bool) -> Result<(String, String)> {
            let path = self.directory.path().join("tree").to_str().unwrap().to_owned() + "/" + path;
            let lazy = Lazy::new(ROOTS, || self.tree.clone());
            let base = Base { path: b"/", is_ours: false };
            match resolve(&lazy, &Files, base, path.as_bytes(), follow)? {
                Resolution::Missing => Err(Errno(ENOENT)),
                Resolution::Elsewhere => Ok(self.seen(path.as_bytes(), follow)?),
                Resolution::Kernel(path) => Ok(self.seen(&path, follow)?),
                Resolution::Node(node) => {
                    let node = self.tree.node(node);
                    Ok(match &node.kind {
                        NodeKind::Directory { .. } => ("directory".into(), node.path.clone()),
                        NodeKind::Link(target) => ("link".into(), target.clone()),
                        _ => ("file".into(), node.path.clone()),
                    })
                }
            }
        }

        fn compare(&self, path: &str, follow: bool) {
            let at = self.directory.path().to_str().unwrap();
            let expected = self.expected(path, follow);
            let expected = expected
                .map(|(kind, path)| (kind, path.replace(&format!("{at}/real"), &format!("{at}/tree"))));
            assert_eq!(self.found(path, follow), expected, "{path:?}, follow: {follow}\n{:?}", self.tree);
        }
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(str::to_owned)
    }

    fn component() -> impl Strategy<Value = String> {
        let odd = prop_oneof![
            3 => Just(".."),
            2 => Just("."),
            1 => Just(""),
            1 => Just("file"),
            1 => Just("inner"),
            1 => Just("missing")
        ];
        prop_oneof![3 => name(), 2 => odd.prop_map(str::to_owned), 1 => Just("n".repeat(256))]
    }

    fn path() -> impl Strategy<Value = String> {
        (prop::collection::vec(component(), 1..7), any::<bool>()).prop_map(|(components, slash)| {
            let path = components.join("/");
            // A path that begins with a slash would be another one.
            let path = path.trim_start_matches('/');
            format!("{}{}", if path.is_empty() { "." } else { path }, if slash { "/" } else { "" })
        })
    }

    fn made() -> impl Strategy<Value = (Vec<String>, MadeEntry)> {
        let link =
            (path(), any::<bool>()).prop_map(|(target, absolute)| MadeEntry::Link { target, absolute });
        let kind = prop_oneof![2 => Just(MadeEntry::Directory), 1 => Just(MadeEntry::File), 3 => link];
        (prop::collection::vec(name(), 1..4), kind)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn paths_lead_where_the_kernel_leads_them(
            made in prop::collection::vec(made(), 0..12),
            paths in prop::collection::vec(path(), 1..24),
        ) {
            let ground = TestDirectory::new(&made);
            for path in paths {
                ground.compare(&path, true);
                ground.compare(&path, false);
            }
        }
    }

    #[test]
    fn links_have_the_kernels_bound() {
        // A row of links, each to the next; the last is to a file.
        let link = |to: usize| MadeEntry::Link { target: format!("l{to}"), absolute: false };
        let mut made: Vec<_> = (1..60).map(|index| (vec![format!("l{index}")], link(index + 1))).collect();
        made.push((vec!["l60".into()], MadeEntry::Link { target: "file".into(), absolute: true }));
        made.push((vec!["loop".into()], MadeEntry::Link { target: "loop".into(), absolute: false }));
        let ground = TestDirectory::new(&made);
        for index in 1..=60 {
            ground.compare(&format!("l{index}"), true);
            ground.compare(&format!("l{index}"), false);
            ground.compare(&format!("l{index}/"), false);
        }
        ground.compare("loop", true);
        ground.compare("loop/x", false);
    }

    #[test]
    fn long_paths_are_refused_as_by_the_kernel() {
        let ground = TestDirectory::new(&[]);
        let at = ground.directory.path().as_os_str().len() + "/tree/".len() + "file".len();
        for extra in -3_isize..3 {
            let dots = (PATH_MAX as isize - at as isize + extra) as usize / 2;
            ground.compare(&format!("{}file", "./".repeat(dots)), true);
            ground.compare(&format!("{}/file", "./".repeat(dots)), true);
        }
    }

    #[test]
    fn what_cannot_be_ours_needs_no_tree() {
        let lazy = Lazy::new(ROOTS, || -> Arc<Tree<()>> { panic!("the tree is not needed") });
        let base = Base { path: b"/usr", is_ours: false };
        for path in
            ["/usr/include/infiniband", "include/infiniband/verbs.h", "/proc/self/root/usr/infiniband"]
        {
            assert_eq!(
                resolve(&lazy, &Files, base, path.as_bytes(), true),
                Ok(Resolution::Elsewhere),
                "{path}"
            );
        }
    }

    #[test]
    fn paths_may_begin_at_a_directory_of_the_tree() {
        let ground = TestDirectory::new(&[(vec!["a".into()], MadeEntry::Directory)]);
        let lazy = Lazy::new(ROOTS, || ground.tree.clone());
        let at = ground.directory.path().join("tree/a");
        let base = Base { path: at.as_os_str().as_bytes(), is_ours: true };
        let found = |path: &str| resolve(&lazy, &Files, base, path.as_bytes(), true);
        let node =
            |path: &str| ground.tree.find(ground.directory.path().join(path).as_os_str().as_bytes()).unwrap();
        assert_eq!(found("inner"), Ok(Resolution::Node(node("tree/a/inner"))));
        assert_eq!(found("../file"), Ok(Resolution::Node(node("tree/file"))));
        assert_eq!(found("../missing"), Ok(Resolution::Missing));
        let real = ground.directory.path().join("real/file").as_os_str().as_bytes().to_vec();
        assert_eq!(found("../../real/file"), Ok(Resolution::Kernel(real)));
        assert_eq!(found("/usr"), Ok(Resolution::Elsewhere));
    }
}
