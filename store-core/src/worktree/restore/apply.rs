//! Carrying out a plan: make way, directories, files, removals, then directories' metadata from the deepest upwards.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use rustix::io::Errno;

use super::handles::Handles;
use super::write::{Writer, Wrote, replace_marker};
use super::{
    Action, ApplyRequest, DirState, MARKER, PathReason, PlanDir, Removal, RestorePlan,
    RestoreReport, Target, item_path, metadata, path_of,
};
use crate::error::{Error, Result};
use crate::format::content::Content;
use crate::format::tree::Node;
use crate::id::ObjectId;
use crate::progress::Phase;
use crate::worktree::door::{self, Found, Root};
use crate::worktree::read::reason;

/// A directory must have these bits while names in it change.
const WORKING_BITS: u16 = 0o700;

pub(super) fn apply(plan: &RestorePlan, request: &ApplyRequest<'_>) -> Result<RestoreReport> {
    request
        .progress
        .begin(Phase::Restore, Some(plan.items.len() as u64));
    let mut report = RestoreReport {
        unchanged: plan.unchanged,
        kept: plan.kept.clone(),
        failed: plan.failed.clone(),
        ..RestoreReport::default()
    };
    if plan.is_empty() {
        return Ok(report);
    }
    let root = open_target(plan)?;
    if plan.empty {
        make_marker(plan, &root)?;
    }
    let work = Work {
        plan,
        request,
        handles: Handles::new(root),
        broken: plan
            .directories
            .iter()
            .map(|_| AtomicBool::new(false))
            .collect(),
        content_missing: AtomicBool::new(!plan.failed.is_empty()),
        report: Mutex::new(std::mem::take(&mut report)),
    };
    let acted = request.pool.install(|| {
        let acted = work.act();
        // Also after a failure: directories must not stay as open as the work needed them.
        work.finish_directories();
        acted
    });
    acted?;
    work.finish()
}

fn open_target(plan: &RestorePlan) -> Result<OwnedFd> {
    let open = |root: &Root, name| {
        door::open_dir(root.handle(), name).map_err(|e| Error::io("open", plan.target(), e))
    };
    match &plan.target {
        Target::Present(root) => open(root, c"."),
        Target::Absent { parent, name, .. } => {
            door::make_dir(parent.handle(), name)
                .map_err(|e| Error::io("make the directory", plan.target(), e))?;
            open(parent, name)
        }
    }
}

fn make_marker(plan: &RestorePlan, root: &OwnedFd) -> Result<()> {
    match door::create_file(root, MARKER) {
        Ok(_) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::io("mark as incomplete", plan.target(), errno)),
    }
}

struct Work<'a> {
    plan: &'a RestorePlan,
    request: &'a ApplyRequest<'a>,
    handles: Handles,
    /// Directories that could not be made.
    broken: Vec<AtomicBool>,
    content_missing: AtomicBool,
    report: Mutex<RestoreReport>,
}

impl Work<'_> {
    fn dirs(&self) -> &[PlanDir] {
        &self.plan.directories
    }

    fn report(&self, add: impl FnOnce(&mut RestoreReport)) {
        add(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn failed(&self, path: Vec<u8>, reason: String) {
        self.report(|report| report.failed.push(PathReason { path, reason }));
    }

    fn act(&self) -> Result<()> {
        self.unlock_directories();
        self.remove(|removal| removal.first)?;
        self.make_directories()?;
        self.write_items()?;
        self.remove(|removal| !removal.first)
    }

    /// Lets their owner work in directories that are not to be written to. What that does not help with fails on its own.
    fn unlock_directories(&self) {
        for (at, dir) in self.dirs().iter().enumerate() {
            if let Some(mode) = locked_mode(dir)
                && let Ok(handle) = self.handles.get(self.dirs(), at)
            {
                door::regardless(door::set_mode(&handle, mode | WORKING_BITS));
            }
        }
    }

    fn remove(&self, which: impl Fn(&Removal) -> bool) -> Result<()> {
        for removal in self.plan.removals.iter().filter(|removal| which(removal)) {
            self.request.cancel.check()?;
            let path = item_path(self.dirs(), removal.dir, removal.name.as_bytes());
            match self.remove_one(removal) {
                Ok(()) if removal.replaced => {}
                Ok(()) => self.report(|report| report.removed.push(path)),
                Err(reason) => self.failed(path, reason),
            }
        }
        Ok(())
    }

    fn remove_one(&self, removal: &Removal) -> Result<(), String> {
        let say = |errno: Errno| reason(errno);
        let handle = self.handles.get(self.dirs(), removal.dir).map_err(say)?;
        let now = match door::lstat(&handle, &removal.name) {
            Ok(now) => now,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(say(errno)),
        };
        // A directory changed as its names were removed; anything else must be what was planned to go.
        let is_dir = Found::of(removal.stat.mode) == Found::Directory;
        let same_inode = (now.device, now.inode) == (removal.stat.device, removal.stat.inode);
        if !same_inode || (!is_dir && now != removal.stat) {
            return Err("changed since the plan was made".to_owned());
        }
        let removed = if is_dir {
            door::remove_dir(&handle, &removal.name)
        } else {
            door::remove_file(&handle, &removal.name)
        };
        removed.map_err(say)
    }

    /// Level by level, so that all of one level can be made at once.
    fn make_directories(&self) -> Result<()> {
        let missing = |dir: &PlanDir| matches!(dir.state, DirState::Create { .. });
        for level in self.levels(missing) {
            self.request.cancel.check()?;
            level
                .par_iter()
                .try_for_each(|&at| self.make_directory(at))?;
        }
        Ok(())
    }

    fn make_directory(&self, at: usize) -> Result<()> {
        let dir = &self.dirs()[at];
        if self.is_broken(dir.parent) {
            self.break_directory(
                at,
                "the directory that it is in could not be made".to_owned(),
            );
            return Ok(());
        }
        let made = self
            .handles
            .get(self.dirs(), dir.parent)
            .and_then(|parent| door::make_dir(&parent, &dir.name));
        match made.map_err(Wrote::from) {
            Ok(()) | Err(Wrote::Done) => Ok(()),
            Err(Wrote::Fatal(errno)) => Err(Error::io(
                "make the directory",
                self.full_path(&path_of(self.dirs(), at)),
                errno,
            )),
            Err(Wrote::Failed(reason) | Wrote::WithoutMetadata(reason)) => {
                self.break_directory(at, reason);
                Ok(())
            }
        }
    }

    fn break_directory(&self, at: usize, reason: String) {
        self.broken[at].store(true, Ordering::Relaxed);
        self.content_missing.store(true, Ordering::Relaxed);
        self.failed(path_of(self.dirs(), at), reason);
    }

    fn is_broken(&self, at: usize) -> bool {
        self.broken[at].load(Ordering::Relaxed)
    }

    fn full_path(&self, relative: &[u8]) -> std::path::PathBuf {
        let relative: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(relative);
        self.plan.target().join(relative)
    }

    /// The places of directories that `which` names, the target excepted, one list a depth, from the top.
    fn levels(&self, which: impl Fn(&PlanDir) -> bool) -> Vec<Vec<usize>> {
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for (at, dir) in self
            .dirs()
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(_, dir)| which(dir))
        {
            if levels.len() <= dir.depth {
                levels.resize_with(dir.depth + 1, Vec::new);
            }
            levels[dir.depth].push(at);
        }
        levels
    }

    fn write_items(&self) -> Result<()> {
        let mut items: Vec<_> = self.plan.items.iter().collect();
        if let Some(order) = self.request.order {
            items.sort_by_cached_key(|item| first_object(&item.entry.node).map(|id| order(&id)));
        }
        let writer = self.writer();
        items.par_iter().try_for_each(|item| {
            self.request.cancel.check()?;
            let wrote = if self.is_broken(item.dir) {
                Wrote::Failed("the directory that it is in could not be made".to_owned())
            } else {
                match self.handles.get(self.dirs(), item.dir) {
                    Ok(parent) => writer.write(&parent, item),
                    Err(errno) => errno.into(),
                }
            };
            let bytes = if let Node::File { size, .. } = item.entry.node {
                size
            } else {
                0
            };
            self.request.progress.advance(1, bytes);
            self.note(
                item_path(self.dirs(), item.dir, &item.entry.name),
                wrote,
                item.action,
            )
        })
    }

    fn writer(&self) -> Writer<'_> {
        Writer {
            source: self.request.source,
            owner: self.plan.owner,
            marked: self.plan.empty,
        }
    }

    fn note(&self, path: Vec<u8>, wrote: Wrote, action: Action) -> Result<()> {
        match wrote {
            Wrote::Done => self.report(|report| report.restored.push(path)),
            Wrote::WithoutMetadata(reason) => self.failed(path, reason),
            Wrote::Failed(reason) => {
                if action != Action::SetMetadata {
                    self.content_missing.store(true, Ordering::Relaxed);
                }
                self.failed(path, reason);
            }
            Wrote::Fatal(errno) => return Err(Error::io("write", self.full_path(&path), errno)),
        }
        Ok(())
    }

    /// The deepest first: what is done in a directory changes its time, and some cannot be entered afterwards.
    fn finish_directories(&self) {
        let needs = |dir: &PlanDir| {
            dir.action().is_some()
                || (dir.touched && dir.meta.is_some())
                || locked_mode(dir).is_some()
        };
        for level in self.levels(needs).into_iter().rev() {
            level.par_iter().for_each(|&at| self.finish_directory(at));
        }
    }

    fn finish_directory(&self, at: usize) {
        let dir = &self.dirs()[at];
        if self.is_broken(at) {
            return;
        }
        let handle = match self.handles.get(self.dirs(), at) {
            Ok(handle) => handle,
            // It was to be removed, and was.
            Err(_) if matches!(dir.state, DirState::Doomed(_)) => return,
            Err(errno) => return self.failed(path_of(self.dirs(), at), reason(errno)),
        };
        self.finish_handle(at, &handle);
    }

    fn finish_handle(&self, at: usize, handle: &OwnedFd) {
        let dir = &self.dirs()[at];
        let set = match (&dir.meta, locked_mode(dir)) {
            (Some(meta), _) => metadata::set(handle, meta, dir.owner),
            (None, Some(mode)) => {
                door::set_mode(handle, mode).map_err(|e| format!("mode: {}", reason(e)))
            }
            (None, None) => Ok(()),
        };
        match set {
            Ok(()) if dir.action().is_some() && at != 0 => {
                self.report(|report| report.restored.push(path_of(self.dirs(), at)));
            }
            Ok(()) => {}
            Err(reason) => self.failed(path_of(self.dirs(), at), reason),
        }
    }

    /// The marker goes last of all names, then the target gets its own metadata.
    fn finish(self) -> Result<RestoreReport> {
        let root = self.handles.root();
        if self.plan.empty {
            self.finish_marker(root)?;
        }
        let target = &self.dirs()[0];
        if target.touched || self.plan.empty || target.meta_differs() {
            self.finish_handle(0, root);
        }
        let mut report = self
            .report
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        report.restored.sort();
        report.removed.sort();
        report.failed.sort();
        Ok(report)
    }

    fn finish_marker(&self, root: &OwnedFd) -> Result<()> {
        if self.content_missing.load(Ordering::Relaxed) {
            self.report(|report| report.unfinished = true);
            return Ok(());
        }
        if let Some(entry) = &self.plan.marker_item {
            let wrote = replace_marker(self.writer(), root, entry, MARKER);
            return self.note(entry.name.clone(), wrote, Action::Create);
        }
        door::remove_file(root, MARKER)
            .map_err(|e| Error::io("remove the marker of", self.plan.target(), e))
    }
}

/// The mode of a directory that has to be opened up while names in it change.
fn locked_mode(dir: &PlanDir) -> Option<u16> {
    match dir.state {
        DirState::Present(now) | DirState::Doomed(now) if dir.touched => {
            let mode = now.permissions();
            (mode & WORKING_BITS != WORKING_BITS).then_some(mode)
        }
        _ => None,
    }
}

fn first_object(node: &Node) -> Option<ObjectId> {
    match node {
        Node::File {
            content: Content::Chunk(id) | Content::List(id),
            ..
        } => Some(*id),
        _ => None,
    }
}
