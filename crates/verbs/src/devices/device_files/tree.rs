//! A tree of directories, files, links and character devices that exists in this process only.
//!
//! It is pure: it looks at no file system, and holds no contents but those that its files were made with. The paths of
//! its nodes are absolute and canonical: they begin with `/`, and have neither `.`, `..` nor a slash at the end.

use std::collections::BTreeMap;

/// The place of a node in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(usize);

/// The root.
pub const ROOT: NodeId = NodeId(0);

/// One node.
#[derive(Debug, PartialEq, Eq)]
pub struct TreeNode<F> {
    /// Its canonical path.
    pub path: String,
    /// The directory that has it; of the root, itself.
    pub parent: NodeId,
    pub kind: NodeKind<F>,
}

/// What a node is; `F` is what a file holds.
#[derive(Debug, PartialEq, Eq)]
pub enum NodeKind<F> {
    /// `shared`: the kernel may have a directory of this path, too. Its entries are then the tree's and the kernel's.
    Directory {
        entries: BTreeMap<String, NodeId>,
        shared: bool,
    },
    File(F),
    Link(String),
    CharacterDevice {
        major: u32,
        minor: u32,
    },
}

/// The tree.
#[derive(Debug, PartialEq, Eq)]
pub struct Tree<F>(Vec<TreeNode<F>>);

impl<F> Tree<F> {
    /// A tree of a root only.
    pub fn new() -> Self {
        let kind = NodeKind::Directory { entries: BTreeMap::new(), shared: true };
        Tree(vec![TreeNode { path: "/".into(), parent: ROOT, kind }])
    }

    /// Adds a directory that the kernel may have, too. The kernel may also have each directory above it.
    pub fn add_shared(&mut self, path: &str) {
        self.directory(path, true);
    }

    /// Adds a node; directories above it that are missing are the tree's alone.
    ///
    /// # Panics
    /// If a node above it is no directory. Only code of this crate makes paths of the tree.
    pub fn add(&mut self, path: &str, kind: NodeKind<F>) {
        let (above, name) = split(path);
        let parent = self.directory(above, false);
        self.insert(parent, name, kind);
    }

    /// The node of a directory, which is added if it is missing.
    fn directory(&mut self, path: &str, shared: bool) -> NodeId {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = match self.entry(at, name.as_bytes()) {
                Some(entry) => entry,
                None => self.insert(at, name, NodeKind::Directory { entries: BTreeMap::new(), shared }),
            };
        }
        at
    }

    fn insert(&mut self, parent: NodeId, name: &str, kind: NodeKind<F>) -> NodeId {
        let new = NodeId(self.0.len());
        let above = &mut self.0[parent.0];
        let path = format!("{}/{name}", above.path.trim_end_matches('/'));
        let NodeKind::Directory { entries, .. } = &mut above.kind else {
            panic!("{} is no directory", above.path);
        };
        entries.insert(name.into(), new);
        self.0.push(TreeNode { path, parent, kind });
        new
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &TreeNode<F> {
        &self.0[id.0]
    }

    /// The entry of a directory by its name.
    pub fn entry(&self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        let NodeKind::Directory { entries, .. } = &self.node(directory).kind else { return None };
        entries.get(std::str::from_utf8(name).ok()?).copied()
    }

    /// The node of a canonical path. Links are not followed.
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |at, name| self.entry(at, name))
    }

    /// Directories in a directory: what its count of links tells.
    pub fn directories_in(&self, directory: NodeId) -> usize {
        let NodeKind::Directory { entries, .. } = &self.node(directory).kind else { return 0 };
        entries.values().filter(|entry| self.node(**entry).is_directory()).count()
    }
}

impl<F> TreeNode<F> {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, NodeKind::Directory { .. })
    }

    /// Whether the kernel may have a directory of this path, too.
    pub fn is_shared(&self) -> bool {
        matches!(self.kind, NodeKind::Directory { shared: true, .. })
    }
}

/// The directory and the name of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_their_paths() {
        let mut tree = Tree::new();
        tree.add_shared("/sys/class");
        tree.add("/sys/class/one/file", NodeKind::File(7));
        tree.add("/sys/class/link", NodeKind::Link("one".into()));
        let class = tree.find(b"/sys/class").unwrap();
        let one = tree.find(b"/sys/class/one").unwrap();
        let file = tree.find(b"/sys/class/one/file").unwrap();
        assert!(tree.node(class).is_shared() && !tree.node(one).is_shared());
        assert_eq!(
            tree.node(file),
            &TreeNode { path: "/sys/class/one/file".into(), parent: one, kind: NodeKind::File(7) }
        );
        assert_eq!(tree.directories_in(class), 1);
        assert_eq!(tree.find(b"/"), Some(ROOT));
        for missing in ["/sys/class/two", "/sys/class/link/file", "/sys/class/one/file/below"] {
            assert_eq!(tree.find(missing.as_bytes()), None, "{missing}");
        }
    }
}
