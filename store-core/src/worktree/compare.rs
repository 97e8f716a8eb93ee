//! Comparing two trees by their ids first: sub-trees that are equal are never entered.
//!
//! The two sides may come from different sources, so a work tree captured into memory compares with a checkpoint.

use std::ffi::OsStr;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::tree::{Entry, Extra, Kind, MAX_DEPTH, MAX_TREE_BYTES, Node, Tree};
use crate::id::ObjectId;
use crate::objects::ObjectSource;

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is of the same kind, but differs.
    Modified,
    /// It is gone.
    Deleted,
    /// It is of another kind.
    TypeChanged,
}

impl ChangeKind {
    /// The letter that `diff` shows.
    pub const fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Modified => 'M',
            Self::Deleted => 'D',
            Self::TypeChanged => 'T',
        }
    }
}

/// In what two entries of the same kind differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not states"
)]
pub struct Differences {
    /// Bytes of a file, target of a link. Never set for directories.
    pub content: bool,
    /// Permission bits.
    pub mode: bool,
    /// Time of the last modification. Of a directory it is no change by itself.
    pub mtime: bool,
    /// Owner, where both sides captured it.
    pub owner: bool,
    /// Extended attributes, where both sides captured them.
    pub xattrs: bool,
    /// Holes, where both sides captured them.
    pub holes: bool,
    /// One side captured something that the other did not look at.
    pub unknown: bool,
}

impl Differences {
    fn between(old: &Entry, new: &Entry) -> Self {
        let mut this = Self {
            mode: old.mode != new.mode,
            mtime: old.mtime != new.mtime,
            ..Self::default()
        };
        match (old.owner, new.owner) {
            (Some(old), Some(new)) => this.owner = old != new,
            (None, None) => {}
            _ => this.unknown = true,
        }
        this.xattrs = this.extra(old.xattrs, new.xattrs);
        match (&old.node, &new.node) {
            (
                Node::File {
                    size: old_size,
                    content: old_content,
                    holes: old_holes,
                },
                Node::File {
                    size,
                    content,
                    holes,
                },
            ) => {
                this.content = (old_size, old_content) != (size, content);
                this.holes = this.extra(*old_holes, *holes);
            }
            (Node::Symlink { target: old }, Node::Symlink { target: new }) => {
                this.content = old != new;
            }
            _ => {}
        }
        this
    }

    fn extra(&mut self, old: Extra, new: Extra) -> bool {
        if old == new {
            return false;
        }
        if old == Extra::NotCaptured || new == Extra::NotCaptured {
            self.unknown = true;
            return false;
        }
        true
    }

    /// Whether an entry of that kind counts as modified.
    const fn is_change(self, kind: Kind) -> bool {
        let mtime = self.mtime && !matches!(kind, Kind::Directory);
        self.content || self.mode || mtime || self.owner || self.xattrs || self.holes
    }
}

/// One path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Relative to the root.
    pub path: Vec<u8>,
    /// What happened.
    pub kind: ChangeKind,
    /// What was there.
    pub old: Option<Entry>,
    /// What is there.
    pub new: Option<Entry>,
    /// In what it differs, if it was modified.
    pub differs: Differences,
}

/// One of two trees to compare; no tree is an empty one.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// Where its objects are.
    pub source: &'a dyn ObjectSource,
    /// The root tree.
    pub tree: Option<ObjectId>,
}

impl std::fmt::Debug for Side<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Side").field(&self.tree).finish()
    }
}

/// Names every path that differs between two trees of one source, in the order of a walk that sorts names.
///
/// A directory whose only difference is its own mtime is no change. A directory that is added or deleted is named, and so
/// is everything in it.
///
/// # Errors
/// If a tree is missing or damaged.
pub fn diff_trees(
    source: &dyn ObjectSource,
    old: Option<ObjectId>,
    new: Option<ObjectId>,
    each: &mut dyn FnMut(Change),
) -> Result<()> {
    diff(
        Side { source, tree: old },
        Side { source, tree: new },
        &mut |change| {
            each(change);
            ControlFlow::Continue(())
        },
    )
}

/// As [`diff_trees`], for two sources; stops when `each` breaks.
///
/// # Errors
/// If a tree is missing or damaged.
pub fn diff(
    old: Side<'_>,
    new: Side<'_>,
    each: &mut dyn FnMut(Change) -> ControlFlow<()>,
) -> Result<()> {
    Comparison {
        old,
        new,
        strict: false,
        each,
        stack: Vec::new(),
    }
    .run()
}

/// Whether two trees are the same state: equal but for mtimes of directories (`docs/format.md` section 6).
///
/// What one side captured and the other did not look at makes them different.
///
/// # Errors
/// If a tree is missing or damaged.
pub fn same_state(old: Side<'_>, new: Side<'_>) -> Result<bool> {
    let mut same = true;
    let mut each = |_| {
        same = false;
        ControlFlow::Break(())
    };
    Comparison {
        old,
        new,
        strict: true,
        each: &mut each,
        stack: Vec::new(),
    }
    .run()?;
    Ok(same)
}

type Entries = Peekable<std::vec::IntoIter<Entry>>;

struct Frame {
    path: Vec<u8>,
    old: Entries,
    new: Entries,
}

struct Comparison<'a, 'f> {
    old: Side<'a>,
    new: Side<'a>,
    /// Whether what only one side captured is a change.
    strict: bool,
    each: &'f mut dyn FnMut(Change) -> ControlFlow<()>,
    stack: Vec<Frame>,
}

impl Comparison<'_, '_> {
    fn run(mut self) -> Result<()> {
        if self.old.tree == self.new.tree {
            return Ok(());
        }
        self.push(Vec::new(), self.old.tree, self.new.tree)?;
        while let Some(frame) = self.stack.last_mut() {
            let (old, new) = match (frame.old.peek(), frame.new.peek()) {
                (None, None) => {
                    self.stack.pop();
                    continue;
                }
                (Some(old), Some(new)) if old.name == new.name => {
                    (frame.old.next(), frame.new.next())
                }
                (Some(old), Some(new)) if old.name < new.name => (frame.old.next(), None),
                (Some(_), None) => (frame.old.next(), None),
                (_, Some(_)) => (None, frame.new.next()),
            };
            let mut path = frame.path.clone();
            if let Some(entry) = old.as_ref().or(new.as_ref()) {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&entry.name);
            }
            if self.entry(path, old, new)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: Vec<u8>,
        old: Option<Entry>,
        new: Option<Entry>,
    ) -> Result<ControlFlow<()>> {
        let trees = (tree_of(old.as_ref()), tree_of(new.as_ref()));
        let below = if trees.0 == trees.1 {
            None
        } else {
            Some((path.clone(), trees))
        };
        let flow = match self.change(path, old, new) {
            Some(change) => (self.each)(change),
            None => ControlFlow::Continue(()),
        };
        if let Some((path, (old, new))) = below
            && flow.is_continue()
        {
            self.push(path, old, new)?;
        }
        Ok(flow)
    }

    fn change(&self, path: Vec<u8>, old: Option<Entry>, new: Option<Entry>) -> Option<Change> {
        let (kind, differs) = match (&old, &new) {
            (None, None) => return None,
            (None, Some(_)) => (ChangeKind::Added, Differences::default()),
            (Some(_), None) => (ChangeKind::Deleted, Differences::default()),
            (Some(old), Some(new)) if old.kind() != new.kind() => {
                (ChangeKind::TypeChanged, Differences::between(old, new))
            }
            (Some(old), Some(new)) => {
                let differs = Differences::between(old, new);
                let counts = differs.is_change(new.kind()) || (self.strict && differs.unknown);
                if !counts {
                    return None;
                }
                (ChangeKind::Modified, differs)
            }
        };
        Some(Change {
            path,
            kind,
            old,
            new,
            differs,
        })
    }

    fn push(&mut self, path: Vec<u8>, old: Option<ObjectId>, new: Option<ObjectId>) -> Result<()> {
        if self.stack.len() >= MAX_DEPTH {
            let problem = "trees nest deeper than the format allows";
            return Err(Error::damaged(shown(&path), old.or(new), problem));
        }
        let old = read(self.old.source, &path, old)?;
        let new = read(self.new.source, &path, new)?;
        self.stack.push(Frame { path, old, new });
        Ok(())
    }
}

fn tree_of(entry: Option<&Entry>) -> Option<ObjectId> {
    match entry.map(|entry| &entry.node) {
        Some(Node::Directory { tree }) => Some(*tree),
        _ => None,
    }
}

/// A path relative to the root, to show.
pub(crate) fn shown(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(if path.is_empty() { b"." } else { path }))
}

fn read(source: &dyn ObjectSource, path: &[u8], tree: Option<ObjectId>) -> Result<Entries> {
    let entries = match tree {
        None => Vec::new(),
        Some(id) => read_tree(source, path, &id)?.entries,
    };
    Ok(entries.into_iter().peekable())
}

/// The tree of the directory at `path` (relative to the root).
///
/// # Errors
/// If it is missing, or not a tree.
pub(crate) fn read_tree(source: &dyn ObjectSource, path: &[u8], id: &ObjectId) -> Result<Tree> {
    let bytes = source.get(id, MAX_TREE_BYTES)?;
    Tree::decode(&bytes).map_err(|e| Error::damaged(shown(path), Some(*id), e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tree::Owner;
    use crate::objects::memory::MemoryObjects;
    use crate::objects::{Class, ObjectSink};
    use crate::worktree::testing::{Scene, take};

    fn lines(
        memory: &dyn ObjectSource,
        old: Option<ObjectId>,
        new: Option<ObjectId>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let mut each = |change: Change| {
            lines.push(format!(
                "{} {}",
                change.kind.letter(),
                crate::name::escape(&change.path)
            ));
        };
        diff_trees(memory, old, new, &mut each).unwrap();
        lines
    }

    fn capture_into(memory: &MemoryObjects, scene: &Scene) -> ObjectId {
        let take = crate::worktree::testing::Take::default();
        take.of(&scene.root(), memory).unwrap().captured.root_tree
    }

    #[test]
    fn every_kind_of_change_is_named_in_walk_order() {
        let scene = Scene::new();
        let memory = MemoryObjects::default();
        scene
            .file("a", "1")
            .file("b/c", "2")
            .file("b.d", "x")
            .file("gone/x/y", "3")
            .file("t", "4");
        scene
            .file("dir/f", "5")
            .link("link", "a")
            .file("same/s", "6")
            .file("mode", "7");
        let old = capture_into(&memory, &scene);
        scene
            .file("a", "changed")
            .remove("gone")
            .file("b/new", "8")
            .mode("mode", 0o600);
        scene
            .remove("t")
            .link("t", "a")
            .remove("dir")
            .file("dir", "now a file");
        scene.remove("link").file("link/inside", "9");
        let new = capture_into(&memory, &scene);
        let expected = [
            "M a",
            "A b/new",
            "T dir",
            "D dir/f",
            "D gone",
            "D gone/x",
            "D gone/x/y",
            "T link",
            "A link/inside",
            "M mode",
            "T t",
        ];
        assert_eq!(lines(&memory, Some(old), Some(new)), expected);
        assert!(lines(&memory, Some(new), Some(new)).is_empty());
        let side = |tree| Side {
            source: &memory,
            tree: Some(tree),
        };
        assert!(!same_state(side(old), side(new)).unwrap());
        assert_eq!(
            lines(&memory, None, Some(old)).len(),
            lines(&memory, Some(old), None).len()
        );
        assert_eq!(lines(&memory, None, Some(old))[0], "A a");
    }

    #[test]
    fn flags_say_what_differs() {
        let scene = Scene::new();
        let memory = MemoryObjects::default();
        scene.file("f", "1").mtime("f", 10, 0).mode("f", 0o644);
        let old = capture_into(&memory, &scene);
        scene.file("f", "2").mtime("f", 10, 1).mode("f", 0o600);
        let new = capture_into(&memory, &scene);
        let mut seen = Vec::new();
        diff_trees(&memory, Some(old), Some(new), &mut |change| {
            seen.push(change);
        })
        .unwrap();
        let expected = Differences {
            content: true,
            mode: true,
            mtime: true,
            ..Differences::default()
        };
        assert_eq!(seen[0].differs, expected);
        assert_eq!(seen[0].old.as_ref().unwrap().mode, 0o644);
        assert_eq!(seen[0].new.as_ref().unwrap().mode, 0o600);
    }

    #[test]
    fn a_directorys_own_time_is_no_change_but_its_mode_is() {
        let scene = Scene::new();
        scene.file("d/e/f", "1").mtime("d/e", 5, 5).mtime("d", 5, 5);
        let (old_memory, old) = take(&scene);
        scene.mtime("d/e", 6, 6).mtime("d", 7, 7);
        let (new_memory, new) = take(&scene);
        let (old, new) = (old.captured.root_tree, new.captured.root_tree);
        assert_ne!(old, new);
        let side = |source, tree| Side {
            source,
            tree: Some(tree),
        };
        assert!(same_state(side(&old_memory, old), side(&new_memory, new)).unwrap());
        let mut count = 0;
        diff(side(&old_memory, old), side(&new_memory, new), &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(count, 0);
        scene.mode("d/e", 0o700);
        let changed = capture_into(&new_memory, &scene);
        assert_eq!(lines(&new_memory, Some(new), Some(changed)), ["M d/e"]);
        assert!(!same_state(side(&old_memory, old), side(&new_memory, changed)).unwrap());
    }

    #[test]
    fn equal_subtrees_are_not_read() {
        let scene = Scene::new();
        let memory = MemoryObjects::default();
        scene.file("same/deep/f", "1").file("a", "1");
        let old = capture_into(&memory, &scene);
        let same = read_tree(&memory, b"", &old).unwrap();
        scene.file("a", "2");
        let new = capture_into(&memory, &scene);
        memory.remove(&tree_of(same.find(b"same")).unwrap());
        assert_eq!(lines(&memory, Some(old), Some(new)), ["M a"]);
        assert!(diff_trees(&memory, None, Some(new), &mut |_| {}).is_err());
    }

    #[test]
    fn what_was_not_captured_is_no_change_to_show_but_no_same_state_either() {
        let memory = MemoryObjects::default();
        let put = |owner, xattrs| {
            let node = Node::Symlink {
                target: b"t".to_vec(),
            };
            let name = b"l".to_vec();
            let entry = Entry {
                name,
                mode: 0o777,
                mtime: crate::clock::Time::default(),
                owner,
                xattrs,
                node,
            };
            memory
                .put(
                    &Tree {
                        entries: vec![entry],
                    }
                    .encode(),
                    Class::Tree,
                )
                .unwrap()
        };
        let (nobody, somebody) = (
            put(None, Extra::NotCaptured),
            put(Some(Owner { uid: 1, gid: 1 }), Extra::Absent),
        );
        let other = put(Some(Owner { uid: 2, gid: 1 }), Extra::Absent);
        assert!(lines(&memory, Some(nobody), Some(somebody)).is_empty());
        let side = |tree| Side {
            source: &memory,
            tree: Some(tree),
        };
        assert!(!same_state(side(nobody), side(somebody)).unwrap());
        assert_eq!(lines(&memory, Some(somebody), Some(other)), ["M l"]);
    }
}
