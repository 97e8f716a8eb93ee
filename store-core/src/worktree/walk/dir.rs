//! One directory of a walk, from being met to being delivered to its parent.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::DirDone;
use crate::format::stat_cache::{CachedDir, CachedEntry, CachedLink, FileStat, Subtree};
use crate::format::tree::{Entry, Extra, Node};
use crate::worktree::capture::CaptureRequest;
use crate::worktree::rules::Chain;

/// An entry of a directory in the making, in name order.
#[derive(Debug)]
pub(super) enum Slot {
    /// Unchanged: where the old cache has it.
    Kept(usize),
    /// Somebody is at it.
    Waiting,
    /// A file or link that was read.
    Leaf(Box<Leaf>),
    /// A directory below.
    Directory(Box<(Entry, Subtree)>),
    /// Left out.
    Gone,
}

#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) entry: Entry,
    pub(super) stat: FileStat,
    pub(super) racy: bool,
}

/// A file to be read.
#[derive(Debug)]
pub(super) struct Todo {
    pub(super) slot: usize,
    pub(super) name: CString,
    pub(super) seen: FileStat,
    pub(super) candidate: Option<usize>,
}

/// A directory on its way from being met to being delivered.
pub(super) struct Dir<'c> {
    pub(super) parent: Option<Arc<Dir<'c>>>,
    pub(super) name: CString,
    pub(super) depth: usize,
    /// Its place among the parent's entries, and in the old cache's block of the parent.
    pub(super) slot: usize,
    pub(super) candidate: Option<usize>,
    /// A `!` rule names it: what is in it cannot make it a cache directory.
    pub(super) explicit: bool,
    pub(super) cached: Option<CachedDir<'c>>,
    pub(super) entered: OnceLock<Entered>,
    pub(super) handle: Mutex<Option<Arc<OwnedFd>>>,
    /// Tasks that will still ask for the handle.
    pub(super) users: AtomicUsize,
    /// Pieces that are still missing.
    pub(super) pending: AtomicUsize,
    pub(super) slots: Mutex<Vec<Slot>>,
    pub(super) same_tree: AtomicBool,
    pub(super) same_cache: AtomicBool,
}

pub(super) struct Entered {
    pub(super) stat: FileStat,
    pub(super) window_s: i64,
    pub(super) chain: Chain,
}

impl Drop for Dir<'_> {
    /// Not recursive: a chain of thousands of parents would use up the stack.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(parent) = next.and_then(Arc::into_inner) {
            let mut parent = parent;
            next = parent.parent.take();
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'c> Dir<'c> {
    pub(super) fn root(request: &CaptureRequest<'_, 'c>) -> Self {
        let cached = request.cache.as_ref().and_then(|cache| cache.root().ok());
        Self::new(None, CString::default(), 0, None, false, cached)
    }

    pub(super) fn new(
        parent: Option<Arc<Dir<'c>>>,
        name: CString,
        slot: usize,
        candidate: Option<usize>,
        explicit: bool,
        cached: Option<CachedDir<'c>>,
    ) -> Self {
        Self {
            depth: parent.as_ref().map_or(0, |parent| parent.depth + 1),
            parent,
            name,
            slot,
            candidate,
            explicit,
            cached,
            entered: OnceLock::new(),
            handle: Mutex::new(None),
            users: AtomicUsize::new(0),
            pending: AtomicUsize::new(1),
            slots: Mutex::new(Vec::new()),
            same_tree: AtomicBool::new(cached.is_some()),
            same_cache: AtomicBool::new(cached.is_some()),
        }
    }

    pub(super) fn entered(&self) -> &Entered {
        self.entered
            .get()
            .expect("BUG: a directory is used before it was entered")
    }

    /// Its path relative to the root.
    pub(super) fn path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut next = Some(self);
        while let Some(dir) = next.filter(|dir| dir.parent.is_some()) {
            names.push(dir.name.as_bytes());
            next = dir.parent.as_deref();
        }
        names.reverse();
        names.join(&b'/')
    }

    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    pub(super) fn differs(&self) {
        self.same_tree.store(false, Ordering::Relaxed);
        self.same_cache.store(false, Ordering::Relaxed);
    }

    /// Compares what was read with what the old cache says in that place.
    pub(super) fn compare_leaf(&self, candidate: Option<usize>, leaf: &Leaf) {
        let cached = self
            .cached
            .zip(candidate)
            .and_then(|(dir, at)| dir.entry_at(at).ok());
        let Some(cached) = cached.filter(|cached| cached.entry == leaf.entry.borrowed()) else {
            return self.differs();
        };
        let link = CachedLink::Leaf {
            racy: leaf.racy,
            device: leaf.stat.device,
            inode: leaf.stat.inode,
            ctime: leaf.stat.ctime,
        };
        if cached.link != link {
            self.same_cache.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn compare_directory(
        &self,
        candidate: Option<usize>,
        entry: &Entry,
        same_cache: bool,
    ) {
        let cached = self
            .cached
            .zip(candidate)
            .and_then(|(dir, at)| dir.entry_at(at).ok());
        if cached.is_none_or(|cached| cached.entry != entry.borrowed()) {
            self.differs();
        } else if !same_cache {
            self.same_cache.store(false, Ordering::Relaxed);
        }
    }
}

/// What a task brings.
pub(super) enum Piece {
    Leaf(Leaf),
    Directory(DirDone),
    Gone,
}

impl<'c> Dir<'c> {
    pub(super) fn place(&self, slot: usize, candidate: Option<usize>, piece: Piece) {
        self.place_named(c"", slot, candidate, piece);
    }

    /// Puts a piece in its place, and notes whether it is what the old cache says.
    pub(super) fn place_named(
        &self,
        name: &CStr,
        slot: usize,
        candidate: Option<usize>,
        piece: Piece,
    ) {
        let filled = match piece {
            Piece::Leaf(leaf) => {
                self.compare_leaf(candidate, &leaf);
                Slot::Leaf(Box::new(leaf))
            }
            Piece::Directory(done) => {
                let entry = entry_of(name, &done.stat, Node::Directory { tree: done.tree });
                self.compare_directory(candidate, &entry, done.same_cache);
                Slot::Directory(Box::new((entry, done.subtree)))
            }
            Piece::Gone => {
                if candidate.is_some() {
                    self.differs();
                }
                Slot::Gone
            }
        };
        if let Some(place) = lock(&self.slots).get_mut(slot) {
            *place = filled;
        }
    }

    pub(super) fn kept(&self, at: usize) -> CachedEntry<'c> {
        let entry = self.cached.and_then(|cached| cached.entry_at(at).ok());
        entry.expect("BUG: a cached entry was there a moment ago")
    }
}

pub(super) fn entry_of(name: &CStr, stat: &FileStat, node: Node) -> Entry {
    Entry {
        name: name.to_bytes().to_vec(),
        mode: stat.permissions(),
        mtime: stat.mtime,
        owner: Some(stat.owner),
        xattrs: Extra::NotCaptured,
        node,
    }
}

pub(super) fn captured(slots: &[Slot]) -> usize {
    slots
        .iter()
        .filter(|slot| !matches!(slot, Slot::Gone | Slot::Waiting))
        .count()
}
