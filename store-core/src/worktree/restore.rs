//! Restore: a checkpoint's trees become files. Plan, then act.
//!
//! [`plan`] reads, compares and decides, and changes nothing; it knows that every object is there before it answers.
//! [`apply`] does what the plan says, path by path; what fails is reported per path and stops nothing else.
//!
//! Every directory is reached from the target's handle, one component at a time, never through a link. Content never stands
//! under its final name before it is known to be right: in an empty target small files are created once their content is
//! checked, and a marker file says until the end that the target is incomplete; everywhere else a temporary file in the
//! same directory is renamed.

mod apply;
mod handles;
mod metadata;
mod plan;
mod removal;
mod select;
#[cfg(test)]
mod tests;
mod write;

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::clock::Time;
use crate::error::Result;
use crate::format::stat_cache::FileStat;
use crate::format::tree::{Entry, Extra, Owner};
use crate::id::ObjectId;
use crate::objects::ObjectSource;
use crate::progress::{Cancel, Progress};
use crate::worktree::capture::RootMeta;
use crate::worktree::door::Root;

/// Stands in a target that is being filled, from before the first file to after the last.
pub const MARKER: &CStr = c".genstore-restore-incomplete";
/// Temporary names are this and 32 hex digits.
pub(crate) const TEMPORARY_PREFIX: &str = ".genstore-tmp-";

/// What may be in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreMode {
    /// Nothing: it is new or empty, or holds what an interrupted restore left there (its marker shows that).
    Empty,
    /// Anything: what differs is replaced.
    Overwrite {
        /// Whether what the checkpoint does not have is removed, unless it is protected.
        delete: bool,
    },
}

/// One restore.
#[derive(Clone, Copy)]
pub struct RestoreRequest<'a> {
    /// Where the objects are.
    pub source: &'a dyn ObjectSource,
    /// What to restore.
    pub root_tree: ObjectId,
    /// The root directory's own metadata, from the checkpoint's record.
    pub root_meta: Option<RootMeta>,
    /// Only these paths and what is below them, relative to the root, taken literally; none means everything.
    pub paths: &'a [Vec<u8>],
    /// Where to.
    pub target: &'a Path,
    /// What may be there.
    pub mode: RestoreMode,
    /// Whether owners are restored.
    pub owner: bool,
    /// Paths (relative to the root) that are never removed: what was left out of the checkpoint, or would be now.
    pub protected: &'a (dyn Fn(&[u8]) -> bool + Sync),
    /// The threads to compare and write with.
    pub pool: &'a rayon::ThreadPool,
    /// Hears how far it is.
    pub progress: &'a dyn Progress,
    /// Stops it.
    pub cancel: &'a Cancel,
}

impl fmt::Debug for RestoreRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreRequest")
            .field("root_tree", &self.root_tree)
            .field("target", &self.target)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// What is to happen to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It is not there.
    Create,
    /// Its content or kind differs.
    Replace,
    /// Only its mode, time or owner differ.
    SetMetadata,
    /// The checkpoint does not have it.
    Remove,
}

impl Action {
    /// One word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::SetMetadata => "set metadata",
            Self::Remove => "remove",
        }
    }
}

/// A path and why something is not done to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathReason {
    /// Relative to the root.
    pub path: Vec<u8>,
    /// Why.
    pub reason: String,
}

/// What a restore will do. Nothing has been changed yet.
#[derive(Debug)]
pub struct RestorePlan {
    target: Target,
    empty: bool,
    owner: bool,
    directories: Vec<PlanDir>,
    items: Vec<PlanItem>,
    removals: Vec<Removal>,
    /// The checkpoint's own entry under the marker's name, written when the marker goes.
    marker_item: Option<Entry>,
    unchanged: u64,
    kept: Vec<PathReason>,
    failed: Vec<PathReason>,
}

impl RestorePlan {
    /// Where to.
    pub fn target(&self) -> &Path {
        self.target.path()
    }

    /// Every path that something is to happen to, sorted.
    pub fn changes(&self) -> Vec<(Vec<u8>, Action)> {
        let directories = self
            .directories
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(at, dir)| {
                let action = dir.action()?;
                Some((path_of(&self.directories, at), action))
            });
        let items = self.items.iter().map(|item| {
            (
                item_path(&self.directories, item.dir, &item.entry.name),
                item.action,
            )
        });
        let removals = self
            .removals
            .iter()
            .filter(|removal| !removal.replaced)
            .map(|removal| {
                (
                    item_path(&self.directories, removal.dir, removal.name.as_bytes()),
                    Action::Remove,
                )
            });
        let mut changes: Vec<_> = directories.chain(items).chain(removals).collect();
        if let Some(entry) = &self.marker_item {
            changes.push((entry.name.clone(), Action::Create));
        }
        changes.sort();
        changes
    }

    /// How many paths are as they should be.
    pub const fn unchanged(&self) -> u64 {
        self.unchanged
    }

    /// Paths that the checkpoint does not have and that stay, and why.
    pub fn kept(&self) -> &[PathReason] {
        &self.kept
    }

    /// Paths that cannot be restored, and why.
    pub fn failed(&self) -> &[PathReason] {
        &self.failed
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
            && self.removals.is_empty()
            && self.marker_item.is_none()
            && !self.empty
            && !self
                .directories
                .iter()
                .any(|dir| dir.action().is_some() || dir.meta_differs())
    }
}

impl fmt::Display for RestorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, action) in self.changes() {
            writeln!(f, "{} {}", action.word(), crate::name::escape(&path))?;
        }
        for kept in &self.kept {
            writeln!(
                f,
                "keep {} ({})",
                crate::name::escape(&kept.path),
                kept.reason
            )?;
        }
        for failed in &self.failed {
            writeln!(
                f,
                "cannot restore {} ({})",
                crate::name::escape(&failed.path),
                failed.reason
            )?;
        }
        write!(f, "{} unchanged", self.unchanged)
    }
}

/// What a restore did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Paths that were created, replaced or given other metadata, sorted.
    pub restored: Vec<Vec<u8>>,
    /// Paths that were removed, sorted.
    pub removed: Vec<Vec<u8>>,
    /// How many paths were as they should be.
    pub unchanged: u64,
    /// Paths that the checkpoint does not have and that stay, and why.
    pub kept: Vec<PathReason>,
    /// Paths that are not, or not in everything, as in the checkpoint, and why.
    pub failed: Vec<PathReason>,
    /// Whether the marker was left in the target because content is missing there: run the same restore again.
    pub unfinished: bool,
}

/// How to carry out a plan.
#[derive(Clone, Copy)]
pub struct ApplyRequest<'a> {
    /// Where the objects are.
    pub source: &'a dyn ObjectSource,
    /// Where an object lies, as a number: files are written in this order, so that packs are read from front to back.
    pub order: Option<&'a (dyn Fn(&ObjectId) -> u64 + Sync)>,
    /// The threads to write with.
    pub pool: &'a rayon::ThreadPool,
    /// Hears how far it is.
    pub progress: &'a dyn Progress,
    /// Stops it.
    pub cancel: &'a Cancel,
}

impl fmt::Debug for ApplyRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyRequest").finish_non_exhaustive()
    }
}

/// Decides what a restore has to do, and checks that it can be done. Changes nothing.
///
/// # Errors
/// - [`crate::Error::NotFound`]: a path is not in the checkpoint.
/// - [`crate::Error::Refused`] `target_not_empty`: in mode [`RestoreMode::Empty`].
/// - [`crate::Error::ObjectMissing`], [`crate::Error::Damaged`]: something that would be needed is not there.
/// - [`crate::Error::Io`]: the target, or the directory that it would be made in, cannot be used.
/// - [`crate::Error::Invalid`]: a path is not one.
/// - [`crate::Error::Cancelled`].
pub fn plan(request: &RestoreRequest<'_>) -> Result<RestorePlan> {
    plan::plan(request)
}

/// Carries out a plan.
///
/// What cannot be done to one path is reported there, and everything else is done.
///
/// # Errors
/// [`crate::Error::Io`] if the target cannot be used at all or the disk is full, [`crate::Error::Cancelled`]. Some paths are
/// then restored and others not: running the same restore again completes it. In an empty target the marker is left.
pub fn apply(plan: &RestorePlan, request: &ApplyRequest<'_>) -> Result<RestoreReport> {
    apply::apply(plan, request)
}

/// Where a restore goes to.
#[derive(Debug)]
enum Target {
    /// A directory that is there.
    Present(Root),
    /// A name in a directory, to be made.
    Absent {
        parent: Root,
        name: CString,
        path: PathBuf,
    },
}

impl Target {
    fn path(&self) -> &Path {
        match self {
            Self::Present(root) => root.path(),
            Self::Absent { path, .. } => path,
        }
    }
}

/// Metadata that a directory is to have in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meta {
    mode: u16,
    mtime: Time,
    owner: Option<Owner>,
    xattrs: Extra,
}

impl Meta {
    const fn of<B>(entry: &Entry<B>) -> Self {
        Self {
            mode: entry.mode,
            mtime: entry.mtime,
            owner: entry.owner,
            xattrs: entry.xattrs,
        }
    }

    /// Whether a file that looks like this has it.
    fn is_met_by(&self, now: &FileStat, owner: bool) -> bool {
        now.permissions() == self.mode && self.is_time_met_by(now, owner)
    }

    /// The same without the mode, which links do not have.
    fn is_time_met_by(&self, now: &FileStat, owner: bool) -> bool {
        now.mtime == self.mtime && (!owner || self.owner.is_none_or(|owner| owner == now.owner))
    }
}

/// A directory that the restore passes through. The first one is the target.
#[derive(Debug)]
struct PlanDir {
    parent: usize,
    name: CString,
    depth: usize,
    state: DirState,
    /// What it is to look like; `None` for one that only leads to what is restored, or is removed.
    meta: Option<Meta>,
    /// Whether names in it come, go or change.
    touched: bool,
    owner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirState {
    /// To be made; whether something else has the name now.
    Create { replaces: bool },
    /// There already.
    Present(FileStat),
    /// There, and to be removed.
    Doomed(FileStat),
}

impl PlanDir {
    fn meta_differs(&self) -> bool {
        match (self.state, &self.meta) {
            (DirState::Present(now), Some(meta)) => !meta.is_met_by(&now, self.owner),
            _ => false,
        }
    }

    fn action(&self) -> Option<Action> {
        match self.state {
            DirState::Create { replaces: false } => Some(Action::Create),
            DirState::Create { replaces: true } => Some(Action::Replace),
            DirState::Present(_) if self.meta_differs() => Some(Action::SetMetadata),
            DirState::Present(_) | DirState::Doomed(_) => None,
        }
    }
}

/// A file or link to write or to set.
#[derive(Debug)]
struct PlanItem {
    dir: usize,
    entry: Entry,
    action: Action,
    /// What has the name now, and must still look like this when it is replaced.
    now: Option<FileStat>,
}

/// A name to remove.
#[derive(Debug)]
struct Removal {
    dir: usize,
    name: CString,
    stat: FileStat,
    /// It goes before anything is written, because something else takes its name or that of a directory above it.
    first: bool,
    /// Something else takes its very name, so that it counts as replaced and not as removed.
    replaced: bool,
}

/// The path of a directory of a plan, relative to the target.
fn path_of(directories: &[PlanDir], mut at: usize) -> Vec<u8> {
    let mut names = Vec::new();
    while at != 0 {
        names.push(directories[at].name.as_bytes());
        at = directories[at].parent;
    }
    names.reverse();
    names.join(&b'/')
}

/// The path of a name in a directory of a plan.
fn item_path(directories: &[PlanDir], dir: usize, name: &[u8]) -> Vec<u8> {
    let mut path = path_of(directories, dir);
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
