//! The plan: what the checkpoint has, beside what the target has.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use rustix::io::Errno;

use super::handles::Handles;
use super::select::{EVERYTHING, Selection, Wish};
use super::{
    Action, DirState, MARKER, Meta, PathReason, PlanDir, PlanItem, RestoreMode, RestorePlan,
    RestoreRequest, TEMPORARY_PREFIX, Target, item_path, path_of,
};
use crate::error::{Error, Result};
use crate::format::content::{Content, MAX_CHUNK_BYTES};
use crate::format::stat_cache::FileStat;
use crate::format::tree::{Entry, Kind, MAX_DEPTH, Node};
use crate::id::ObjectId;
use crate::objects::ObjectSource;
use crate::objects::chunker::visit_chunks;
use crate::progress::Phase;
use crate::worktree::compare::{read_tree, shown};
use crate::worktree::door::{self, Found, Root};
use crate::worktree::read::reason;

pub(super) fn plan(request: &RestoreRequest<'_>) -> Result<RestorePlan> {
    request.progress.begin(Phase::Compare, None);
    let selection = Selection::new(request.paths)?;
    let target = find_target(request)?;
    let (handles, root) = match &target {
        Target::Present(root) => {
            let handle = door::open_dir(root.handle(), c".")
                .map_err(|e| Error::io("open", root.path(), e))?;
            (Some(Handles::new(handle)), DirState::Present(*root.stat()))
        }
        Target::Absent { .. } => (None, DirState::Create { replaces: false }),
    };
    let meta = request
        .root_meta
        .filter(|_| selection.is_whole() || handles.is_none());
    let root = PlanDir {
        parent: 0,
        name: CString::default(),
        depth: 0,
        state: root,
        meta: meta.map(|m| Meta {
            mode: m.mode,
            mtime: m.mtime,
            owner: m.owner,
            xattrs: m.xattrs,
        }),
        touched: false,
        owner: request.owner,
    };
    let resumes = match &target {
        Target::Present(root) => is_resumable(root, request)?,
        Target::Absent { .. } => false,
    };
    let mut planner = Planner {
        request,
        handles,
        resumes,
        compare: Vec::new(),
        plan: RestorePlan {
            target,
            empty: request.mode == RestoreMode::Empty,
            owner: request.owner,
            directories: vec![root],
            items: Vec::new(),
            removals: Vec::new(),
            marker_item: None,
            unchanged: 0,
            kept: Vec::new(),
            failed: Vec::new(),
        },
    };
    planner.walk(&selection)?;
    planner.compare_contents()?;
    planner.require_objects()?;
    Ok(planner.finish())
}

fn find_target(request: &RestoreRequest<'_>) -> Result<Target> {
    let path = request.target;
    match Root::open(path) {
        Ok(root) => Ok(Target::Present(root)),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let name = path
                .file_name()
                .and_then(|name| CString::new(std::os::unix::ffi::OsStrExt::as_bytes(name)).ok());
            let Some(name) = name else {
                return Err(Error::invalid(
                    "target",
                    format!("{} cannot be made", path.display()),
                ));
            };
            let parent = match path.parent() {
                None => Path::new("."),
                Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
                Some(parent) => parent,
            };
            Ok(Target::Absent {
                parent: Root::open(parent)?,
                name,
                path: path.to_owned(),
            })
        }
        Err(error) => Err(error),
    }
}

/// In mode `Empty`, whether the target holds an unfinished restore.
fn is_resumable(root: &Root, request: &RestoreRequest<'_>) -> Result<bool> {
    if request.mode != RestoreMode::Empty {
        return Ok(false);
    }
    let mut names = 0u32;
    let mut marked = false;
    let handle = door::open_dir(root.handle(), c".");
    handle
        .and_then(|handle| {
            door::list(handle, |name, _| {
                names += 1;
                marked |= name == MARKER;
            })
        })
        .map_err(|e| Error::io("list", root.path(), e))?;
    if names > 0 && !marked {
        return Err(Error::refused(
            "target_not_empty",
            format!("{} is not empty", root.path().display()),
            "restore into a new directory, or add --overwrite",
        ));
    }
    Ok(marked)
}

/// A file whose content has to be compared before it is known what to do.
struct Comparison {
    dir: usize,
    entry: Entry,
    now: FileStat,
}

pub(super) struct Planner<'a> {
    pub(super) request: &'a RestoreRequest<'a>,
    /// `None` as long as the target itself is not there.
    pub(super) handles: Option<Handles>,
    resumes: bool,
    compare: Vec<Comparison>,
    pub(super) plan: RestorePlan,
}

/// A directory whose tree is to be gone through.
struct Visit<'s> {
    dir: usize,
    tree: ObjectId,
    selection: &'s Selection,
}

impl Planner<'_> {
    fn walk(&mut self, selection: &Selection) -> Result<()> {
        let mut todo = vec![Visit {
            dir: 0,
            tree: self.request.root_tree,
            selection,
        }];
        while let Some(visit) = todo.pop() {
            self.request.cancel.check()?;
            let path = path_of(&self.plan.directories, visit.dir);
            if self.plan.directories[visit.dir].depth >= MAX_DEPTH {
                let problem = "trees nest deeper than the format allows";
                return Err(Error::damaged(shown(&path), Some(visit.tree), problem));
            }
            let tree = read_tree(self.request.source, &path, &visit.tree)?;
            for name in visit.selection.named() {
                let entry = tree.find(name);
                let leads_on = matches!(visit.selection.wish(name), Some(Wish::Through(_)));
                if entry.is_none_or(|entry| leads_on && entry.kind() != Kind::Directory) {
                    return Err(visit.selection.not_found(&path, name));
                }
            }
            let handle = match self.handle(visit.dir) {
                Ok(handle) => handle,
                Err(errno) => {
                    self.fail(path, errno);
                    continue;
                }
            };
            self.remove_others(&visit, &tree.entries, handle.as_deref());
            let first = todo.len();
            for entry in tree.entries {
                let Some(wish) = visit.selection.wish(&entry.name) else {
                    continue;
                };
                if let Some(below) = self.entry(visit.dir, entry, wish, handle.as_deref())? {
                    todo.push(below);
                }
            }
            // In name order, as the checkpoint was written.
            todo[first..].reverse();
        }
        Ok(())
    }

    /// The directory `dir` of the plan if it is there already.
    fn handle(&self, dir: usize) -> rustix::io::Result<Option<Arc<OwnedFd>>> {
        match (&self.handles, self.plan.directories[dir].state) {
            (Some(handles), DirState::Present(_)) => {
                handles.get(&self.plan.directories, dir).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn fail(&mut self, path: Vec<u8>, errno: Errno) {
        self.plan.failed.push(PathReason {
            path,
            reason: reason(errno),
        });
    }

    fn fail_because(&mut self, dir: usize, name: &[u8], reason: &str) {
        let path = item_path(&self.plan.directories, dir, name);
        self.plan.failed.push(PathReason {
            path,
            reason: reason.to_owned(),
        });
    }

    /// Decides about one entry of the checkpoint; a directory is to be gone through then.
    fn entry<'s>(
        &mut self,
        dir: usize,
        entry: Entry,
        wish: Wish<'s>,
        handle: Option<&OwnedFd>,
    ) -> Result<Option<Visit<'s>>> {
        if dir == 0 && self.plan.empty && entry.name == MARKER.to_bytes() {
            self.take_marker_entry(entry);
            return Ok(None);
        }
        let name = c_name(&entry.name)?;
        let now = match handle.map(|handle| door::lstat(handle, &name)) {
            None | Some(Err(Errno::NOENT)) => None,
            Some(Ok(now)) => Some(now),
            Some(Err(errno)) => {
                let path = item_path(&self.plan.directories, dir, &entry.name);
                self.fail(path, errno);
                return Ok(None);
            }
        };
        match entry.node {
            Node::Directory { tree } => {
                Ok(self.directory(dir, &entry, name, wish, now).map(|below| {
                    let selection = match wish {
                        Wish::Whole => &EVERYTHING,
                        Wish::Through(selection) => selection,
                    };
                    Visit {
                        dir: below,
                        tree,
                        selection,
                    }
                }))
            }
            Node::File { .. } | Node::Symlink { .. } => {
                self.leaf(dir, entry, &name, now, handle);
                Ok(None)
            }
        }
    }

    fn take_marker_entry(&mut self, entry: Entry) {
        if entry.kind() == Kind::Directory {
            self.fail_because(0, &entry.name, "the name of restore's own marker");
        } else {
            self.plan.marker_item = Some(entry);
        }
    }

    fn directory(
        &mut self,
        dir: usize,
        entry: &Entry,
        name: CString,
        wish: Wish<'_>,
        now: Option<FileStat>,
    ) -> Option<usize> {
        let state = match now {
            None => DirState::Create { replaces: false },
            Some(now) => match Found::of(now.mode) {
                Found::Directory => DirState::Present(now),
                found => {
                    // Only what is itself wanted may take another's name; the way to it must be there.
                    if let Wish::Through(_) = wish {
                        let why = format!("a {} is in the way", found.word());
                        self.fail_because(dir, &entry.name, &why);
                        return None;
                    }
                    if !self.make_way(dir, &name, now) {
                        return None;
                    }
                    DirState::Create { replaces: true }
                }
            },
        };
        let keeps = matches!((wish, state), (Wish::Through(_), DirState::Present(_)));
        let planned = PlanDir {
            parent: dir,
            name,
            depth: self.plan.directories[dir].depth + 1,
            state,
            meta: (!keeps).then(|| Meta::of(entry)),
            touched: false,
            owner: self.request.owner,
        };
        if planned.action().is_none() && !keeps {
            self.plan.unchanged += 1;
        }
        if matches!(state, DirState::Create { .. }) {
            self.plan.directories[dir].touched = true;
        }
        self.plan.directories.push(planned);
        Some(self.plan.directories.len() - 1)
    }

    fn leaf(
        &mut self,
        dir: usize,
        entry: Entry,
        name: &CString,
        now: Option<FileStat>,
        handle: Option<&OwnedFd>,
    ) {
        let (Some(now), Some(handle)) = (now, handle) else {
            return self.item(dir, entry, Action::Create, None);
        };
        match (Found::of(now.mode), &entry.node) {
            (Found::File, Node::File { size, .. }) if now.size == *size => {
                self.compare.push(Comparison { dir, entry, now });
            }
            (Found::Symlink, Node::Symlink { target }) => {
                let same = door::read_link(handle, name).is_ok_and(|there| there == *target);
                let met = Meta::of(&entry).is_time_met_by(&now, self.request.owner);
                match (same, met) {
                    (true, true) => self.plan.unchanged += 1,
                    (true, false) => self.item(dir, entry, Action::SetMetadata, Some(now)),
                    (false, _) => self.item(dir, entry, Action::Replace, Some(now)),
                }
            }
            (Found::File | Found::Symlink, _) => self.item(dir, entry, Action::Replace, Some(now)),
            (Found::Directory, _) => {
                if self.make_way(dir, name, now) {
                    self.item(dir, entry, Action::Replace, None);
                }
            }
            (Found::Special(word), _) => {
                self.fail_because(dir, &entry.name, &format!("a {word} is in the way"));
            }
        }
    }

    fn item(&mut self, dir: usize, entry: Entry, action: Action, now: Option<FileStat>) {
        // Setting metadata changes no name, so the directory's own time stays.
        if action != Action::SetMetadata {
            self.plan.directories[dir].touched = true;
        }
        self.plan.items.push(PlanItem {
            dir,
            entry,
            action,
            now,
        });
    }

    /// What the checkpoint does not have goes, if that was asked for; so do temporary files of an interrupted restore.
    fn remove_others(&mut self, visit: &Visit<'_>, entries: &[Entry], handle: Option<&OwnedFd>) {
        let delete = matches!(self.request.mode, RestoreMode::Overwrite { delete: true });
        let delete = delete && visit.selection.is_whole();
        let Some(handle) = handle.filter(|_| delete || self.resumes) else {
            return;
        };
        let mut others = Vec::new();
        let listed = door::open_dir(handle, c".").and_then(|handle| {
            door::list(handle, |name, _| {
                let bytes = name.to_bytes();
                let ours = is_temporary(bytes);
                let known = entries
                    .binary_search_by(|entry| entry.name.as_slice().cmp(bytes))
                    .is_ok();
                if !known && (delete || ours) {
                    others.push(name.to_owned());
                }
            })
        });
        if let Err(errno) = listed {
            let path = path_of(&self.plan.directories, visit.dir);
            return self.fail(path, errno);
        }
        others.sort();
        for name in others {
            self.remove(visit.dir, handle, &name, false);
        }
    }

    /// Plans to remove what has the name of something of another kind. `false`: it stays, and that was reported.
    fn make_way(&mut self, dir: usize, name: &CString, now: FileStat) -> bool {
        let found = Found::of(now.mode);
        if let Found::Special(word) = found {
            self.fail_because(dir, name.as_bytes(), &format!("a {word} is in the way"));
            return false;
        }
        let handle = match self.handle(dir) {
            Ok(Some(handle)) => handle,
            Ok(None) => return true,
            Err(errno) => {
                let path = item_path(&self.plan.directories, dir, name.as_bytes());
                self.fail(path, errno);
                return false;
            }
        };
        let delete = matches!(self.request.mode, RestoreMode::Overwrite { delete: true });
        if found == Found::Directory && !delete && !is_empty_dir(&handle, name) {
            let why = "a directory with content is in the way; add --delete to remove it";
            self.fail_because(dir, name.as_bytes(), why);
            return false;
        }
        let kept = self.plan.kept.len();
        if self.remove(dir, &handle, name, true) {
            return true;
        }
        let why = match self.plan.kept.get(kept) {
            Some(first) => format!(
                "{} in the way is kept: {}",
                crate::name::escape(&first.path),
                first.reason
            ),
            None => "what is in the way cannot be removed".to_owned(),
        };
        self.fail_because(dir, name.as_bytes(), &why);
        false
    }

    fn compare_contents(&mut self) -> Result<()> {
        let compare = std::mem::take(&mut self.compare);
        let Some(handles) = &self.handles else {
            return Ok(());
        };
        let (request, directories) = (self.request, &self.plan.directories);
        let verdicts: Vec<Result<bool>> = request.pool.install(|| {
            compare
                .par_iter()
                .map(|file| {
                    request.cancel.check()?;
                    let same = has_content(request.source, handles, directories, file)?;
                    request.progress.advance(1, file.now.size);
                    Ok(same)
                })
                .collect()
        });
        for (file, same) in compare.into_iter().zip(verdicts) {
            let met = Meta::of(&file.entry).is_met_by(&file.now, request.owner);
            match (same?, met) {
                (true, true) => self.plan.unchanged += 1,
                (true, false) => {
                    self.item(file.dir, file.entry, Action::SetMetadata, Some(file.now));
                }
                (false, _) => self.item(file.dir, file.entry, Action::Replace, Some(file.now)),
            }
        }
        Ok(())
    }

    /// Every object that will be written must be there before the first byte is.
    fn require_objects(&self) -> Result<()> {
        let request = self.request;
        let directories = &self.plan.directories;
        let entries: Vec<(usize, &Entry)> = self
            .plan
            .items
            .iter()
            .filter(|item| item.action != Action::SetMetadata)
            .map(|item| (item.dir, &item.entry))
            .chain(self.plan.marker_item.iter().map(|entry| (0, entry)))
            .collect();
        request.pool.install(|| {
            entries.par_iter().try_for_each(|(dir, entry)| {
                request.cancel.check()?;
                let Node::File { size, content, .. } = &entry.node else {
                    return Ok(());
                };
                visit_chunks(request.source, content, *size, &mut |id, _| {
                    require(request.source, &id)
                })
                .map_err(|error| match error {
                    Error::ObjectMissing { object, place, .. } => {
                        let needed = Some(item_path(directories, *dir, &entry.name));
                        Error::ObjectMissing {
                            object,
                            place,
                            needed,
                        }
                    }
                    other => other,
                })
            })
        })
    }

    fn finish(self) -> RestorePlan {
        let mut plan = self.plan;
        plan.kept.sort();
        plan.failed.sort();
        plan
    }
}

fn require(source: &dyn ObjectSource, id: &ObjectId) -> Result<()> {
    if source.contains(id)? {
        return Ok(());
    }
    // The source knows best how to say where it looked.
    source.get(id, usize::MAX).map(|_| ())
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Error::invalid("name", "a name with a NUL in it"))
}

fn is_temporary(name: &[u8]) -> bool {
    name.strip_prefix(TEMPORARY_PREFIX.as_bytes())
        .is_some_and(|rest| {
            rest.len() == 32 && rest.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
}

fn is_empty_dir(parent: &OwnedFd, name: &CString) -> bool {
    let mut names = 0u32;
    let listed =
        door::open_dir(parent, name).and_then(|handle| door::list(handle, |_, _| names += 1));
    listed.is_ok() && names == 0
}

/// Whether a file holds exactly an entry's content: hashed chunk by chunk as the checkpoint cut it, never by its times.
/// A file that cannot be read does not.
fn has_content(
    source: &dyn ObjectSource,
    handles: &Handles,
    directories: &[PlanDir],
    file: &Comparison,
) -> Result<bool> {
    let Node::File { size, content, .. } = &file.entry.node else {
        return Ok(false);
    };
    if matches!(content, Content::Empty) {
        return Ok(true);
    }
    let name = c_name(&file.entry.name)?;
    let opened = handles
        .get(directories, file.dir)
        .and_then(|parent| door::open_file(&parent, &name, false))
        .and_then(|handle| Ok((door::fstat(&handle)?, handle)));
    let handle = match opened {
        Ok((stat, handle)) if stat == file.now => handle,
        Err(errno) if door::is_exhaustion(errno) => {
            let path = item_path(directories, file.dir, &file.entry.name);
            return Err(Error::io("open", shown(&path), errno));
        }
        Ok(_) | Err(_) => return Ok(false),
    };
    let mut same = true;
    let mut buffer = Vec::new();
    visit_chunks(source, content, *size, &mut |id, length| {
        if same {
            let Some(length) = usize::try_from(length)
                .ok()
                .filter(|&l| l <= MAX_CHUNK_BYTES)
            else {
                same = false;
                return Ok(());
            };
            buffer.resize(length, 0);
            let read = door::read_full(&handle, &mut buffer);
            same = read == Ok(buffer.len()) && ObjectId::of(&buffer) == id;
        }
        Ok(())
    })?;
    Ok(same)
}
