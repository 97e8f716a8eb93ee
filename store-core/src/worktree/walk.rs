//! The parallel walk: one task a directory, no recursion, a bounded number of open directories.
//!
//! A task lists and stats its directory, takes unchanged files from the stat cache, reads the others, and starts tasks for
//! its sub-directories. Whichever task brings the last missing piece of a directory makes the directory's tree and hands it
//! upwards, in a loop: depth costs heap, not stack. Directories in which nothing differs are not encoded, hashed or put.

mod dir;
mod listing;

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::format::checkpoint::{LeftOut, LeftOutReason, Rule};
use crate::format::codec::Encoder;
use crate::format::stat_cache::{
    BlockWriter, CachedEntry, CachedLink, FileStat, StatCacheBuilder, Subtree,
};
use crate::format::tree::{self, Extra, MAX_DEPTH, MAX_TARGET_BYTES, MAX_TREE_BYTES, Node};
use crate::id::ObjectId;
use crate::objects::Class;
use crate::worktree::capture::{CaptureRequest, Counts, everything_ignored};
use crate::worktree::door::{self, Found};
use crate::worktree::read::{self, Outcome, Reader};
use crate::worktree::rules::{
    self, CACHEDIR_TAG, Chain, NotLoaded, PYVENV_CFG, RuleWarning, Rules, Verdict,
};
use crate::worktree::tasks::{self, Tasks};
use dir::{Dir, Entered, Leaf, Piece, Slot, Todo, captured, entry_of, lock};
use listing::{Candidates, Listing};

/// Every directory whose depth is a multiple of this stays open until all below it is done: where the budget of open
/// directories is used up, a parent is found again in at most this many steps.
const WAYPOINT: usize = 32;
/// One task reads at most about this many files or bytes.
const BATCH_FILES: usize = 32;
const BATCH_BYTES: u64 = 1 << 20;
/// A directory with less than this to read does so itself.
const INLINE_FILES: usize = 8;
const INLINE_BYTES: u64 = 128 << 10;

/// What a walk comes to.
pub(crate) struct Done<'c> {
    pub(crate) root: DirDone,
    pub(crate) counts: Counts,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) warnings: Vec<RuleWarning>,
    pub(crate) builder: StatCacheBuilder<'c>,
}

/// A directory that was walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirDone {
    pub(crate) tree: ObjectId,
    pub(crate) stat: FileStat,
    pub(crate) subtree: Subtree,
    /// Whether the old stat cache says exactly the same about all of it.
    pub(crate) same_cache: bool,
}

#[derive(Debug, Default)]
struct Tally {
    files: AtomicU64,
    directories: AtomicU64,
    links: AtomicU64,
    bytes: AtomicU64,
    /// What was captured besides rule files.
    substance: AtomicU64,
    entries: AtomicU64,
}

impl Tally {
    fn add(&self, counts: &Counts, substance: u64) {
        self.files.fetch_add(counts.files, Ordering::Relaxed);
        self.directories
            .fetch_add(counts.directories, Ordering::Relaxed);
        self.links.fetch_add(counts.links, Ordering::Relaxed);
        self.bytes.fetch_add(counts.bytes, Ordering::Relaxed);
        self.substance.fetch_add(substance, Ordering::Relaxed);
    }
}

/// One walk.
pub(crate) struct Walk<'a, 'c> {
    request: CaptureRequest<'a, 'c>,
    rules: Rules,
    start: Time,
    /// Whom the threads of the pool act as.
    user: u32,
    budget: usize,
    held: AtomicUsize,
    tally: Tally,
    left_out: Mutex<Vec<LeftOut>>,
    stopped: AtomicBool,
    failure: Mutex<Option<Error>>,
    builder: Mutex<StatCacheBuilder<'c>>,
    root: Mutex<Option<DirDone>>,
}

/// Why a directory is not walked.
enum NotEntered {
    Left(LeftOutReason, String),
    Refused(&'static str, Errno),
    Failed(Error),
    /// Something else stands there now.
    NotADirectory,
}

/// What a directory's own entries come to, before what is below it is known.
#[derive(Default)]
struct Sorted<'c> {
    slots: Vec<Slot>,
    todo: Vec<Todo>,
    below: Vec<Arc<Dir<'c>>>,
    left_out: Vec<LeftOut>,
    counts: Counts,
    substance: u64,
    entries: u64,
    /// Whether a name here could be looked up.
    searchable: bool,
}

impl<'a, 'c> Walk<'a, 'c> {
    pub(crate) fn new(request: &CaptureRequest<'a, 'c>, start: Time) -> Result<Self> {
        Ok(Self {
            request: *request,
            rules: Rules::new(&request.options.rules)?,
            start,
            user: request.pool.map_or_else(door::effective_user, |pool| {
                pool.install(door::effective_user)
            }),
            budget: door::handle_budget(),
            held: AtomicUsize::new(0),
            tally: Tally::default(),
            left_out: Mutex::default(),
            stopped: AtomicBool::new(false),
            failure: Mutex::default(),
            builder: Mutex::new(StatCacheBuilder::new(request.cache)),
            root: Mutex::default(),
        })
    }

    pub(crate) fn run(self) -> Result<Done<'c>> {
        let root = Arc::new(Dir::root(&self.request));
        tasks::run(self.request.pool, |tasks| self.visit(tasks, root));
        if let Some(error) = lock(&self.failure).take() {
            return Err(error);
        }
        let root = lock(&self.root)
            .take()
            .expect("BUG: a walk ended without its root");
        let mut left_out = std::mem::take(&mut *lock(&self.left_out));
        // A path may have been met twice (a rule file that is unreadable): the graver reason stays.
        left_out.sort_by(|a, b| (&a.path, gravity(a.reason)).cmp(&(&b.path, gravity(b.reason))));
        left_out.dedup_by(|later, first| later.path == first.path);
        self.refuse_nothing(&left_out)?;
        let (rules, warnings) = self.rules.finish();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Done {
            root,
            counts: Counts {
                files: count(&self.tally.files),
                directories: count(&self.tally.directories),
                links: count(&self.tally.links),
                bytes: count(&self.tally.bytes),
                left_out: left_out.len() as u64,
            },
            left_out,
            rules,
            warnings,
            builder: self
                .builder
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// An ignore file ending in `/*` must not make a checkpoint of nothing that reports success.
    fn refuse_nothing(&self, left_out: &[LeftOut]) -> Result<()> {
        let is_substance = |left: &&LeftOut| {
            let name = left.path.rsplit(|&b| b == b'/').next().unwrap_or_default();
            left.reason == LeftOutReason::Rule
                && !rules::is_vcs_name(name)
                && !rules::is_rule_file(name)
        };
        if self.tally.substance.load(Ordering::Relaxed) == 0
            && left_out.iter().any(|l| is_substance(&l))
        {
            return Err(everything_ignored(left_out));
        }
        Ok(())
    }

    fn full_path(&self, relative: &[u8]) -> PathBuf {
        self.request.root.path().join(OsStr::from_bytes(relative))
    }

    fn fail(&self, error: Error) {
        self.stopped.store(true, Ordering::Relaxed);
        lock(&self.failure).get_or_insert(error);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// An error if the caller or the deadline says that it is enough.
    fn check(&self) -> Result<()> {
        self.request.cancel.check()?;
        if self
            .request
            .options
            .deadline
            .is_some_and(|end| self.request.clock.monotonic() >= end)
        {
            let reason = "the deadline passed before the tree was read".to_owned();
            return Err(Error::Cancelled {
                code: "deadline",
                reason,
            });
        }
        Ok(())
    }

    fn leave_out(&self, path: Vec<u8>, reason: LeftOutReason, rule: String) {
        lock(&self.left_out).push(LeftOut {
            path,
            reason,
            rule: rule.into_bytes(),
        });
    }

    /// One task: a directory from its opening to the start of what is below it.
    fn visit<'s>(&'s self, tasks: &Tasks<'_, 's>, dir: Arc<Dir<'c>>)
    where
        'a: 's,
        'c: 's,
    {
        if self.is_stopped() {
            return;
        }
        if let Err(error) = self.check().and_then(|()| self.walk_directory(tasks, dir)) {
            self.fail(error);
        }
    }

    fn walk_directory<'s>(&'s self, tasks: &Tasks<'_, 's>, dir: Arc<Dir<'c>>) -> Result<()>
    where
        'a: 's,
        'c: 's,
    {
        let entered = self.enter(&dir).and_then(|(handle, listing)| {
            let sorted = self.sort(&dir, &handle, &listing)?;
            Ok((handle, sorted))
        });
        match entered {
            Ok((handle, sorted)) => self.start(tasks, dir, handle, sorted),
            Err(NotEntered::Failed(error)) => Err(error),
            Err(NotEntered::Left(reason, why)) => {
                self.leave_out(dir.path(), reason, why);
                self.deliver(dir, Piece::Gone)
            }
            Err(NotEntered::Refused(op, errno)) => {
                if dir.parent.is_none() || door::is_exhaustion(errno) {
                    return Err(Error::io(op, self.full_path(&dir.path()), errno));
                }
                self.left::<()>(dir.path(), read::left(errno))?;
                self.deliver(dir, Piece::Gone)
            }
            Err(NotEntered::NotADirectory) => self.leaf_instead(dir),
        }
    }

    /// Opens a directory, and decides with what is in it whether to walk it.
    fn enter(&self, dir: &Dir<'c>) -> Result<(Arc<OwnedFd>, Listing), NotEntered> {
        let handle = Arc::new(self.open(dir)?);
        let stat = door::fstat(&handle).map_err(|e| NotEntered::Refused("stat", e))?;
        self.refuse_place(dir, &stat)?;
        let listing = Listing::read(handle.as_fd()).map_err(|e| NotEntered::Refused("list", e))?;
        if dir.parent.is_some() && !dir.explicit {
            let (tag, venv) = (listing.contains(CACHEDIR_TAG), listing.contains(PYVENV_CFG));
            if let Some(rule) = self.rules.marker_rule(handle.as_fd(), tag, venv) {
                let rule = String::from_utf8_lossy(rule).into_owned();
                return Err(NotEntered::Left(LeftOutReason::Rule, rule));
            }
        }
        let above = dir.parent.as_deref().map(Dir::entered);
        let window_s = match above {
            Some(above) if above.stat.device == stat.device => above.window_s,
            _ => door::racy_window_s(&handle),
        };
        let mut chain = above.map(|above| above.chain.clone()).unwrap_or_default();
        for name in self
            .rules
            .rule_files()
            .iter()
            .filter(|name| listing.contains(name))
        {
            self.load_rules(dir, &handle, name, &mut chain)?;
        }
        let fresh = dir
            .entered
            .set(Entered {
                stat,
                window_s,
                chain,
            })
            .is_ok();
        debug_assert!(fresh, "a directory is entered once");
        Ok((handle, listing))
    }

    fn open(&self, dir: &Dir<'c>) -> Result<OwnedFd, NotEntered> {
        let opened = match &dir.parent {
            // A description of its own: the caller's must not be moved by listing.
            None => door::open_dir(self.request.root.handle(), c"."),
            Some(parent) => {
                let handle = self.handle_of(parent);
                let opened = handle.and_then(|handle| door::open_dir(&handle, &dir.name));
                self.release(parent);
                opened
            }
        };
        opened.map_err(|errno| match errno {
            Errno::NOTDIR => NotEntered::NotADirectory,
            errno => NotEntered::Refused("open", errno),
        })
    }

    fn refuse_place(&self, dir: &Dir<'c>, stat: &FileStat) -> Result<(), NotEntered> {
        let left = |reason, why: &str| Err(NotEntered::Left(reason, why.to_owned()));
        if self.request.skip.contains(&(stat.device, stat.inode)) {
            return left(LeftOutReason::Store, "");
        }
        // Directories only: overlay file systems report other devices for their files.
        if self.request.options.one_file_system && stat.device != self.request.root.stat().device {
            return left(LeftOutReason::OtherFileSystem, "");
        }
        if dir.depth >= MAX_DEPTH {
            return left(
                LeftOutReason::Limit,
                &format!("deeper than {MAX_DEPTH} directories"),
            );
        }
        Ok(())
    }

    fn load_rules(
        &self,
        dir: &Dir<'c>,
        handle: &OwnedFd,
        name: &CStr,
        chain: &mut Chain,
    ) -> Result<(), NotEntered> {
        match self.rules.load(chain, handle.as_fd(), &dir.path(), name) {
            Ok(()) | Err(NotLoaded::Gone) => Ok(()),
            Err(NotLoaded::Unreadable(errno)) if door::is_exhaustion(errno) => {
                let path = self.full_path(&dir.path_of(name.to_bytes()));
                Err(NotEntered::Failed(Error::io("open", path, errno)))
            }
            Err(NotLoaded::Unreadable(errno)) => {
                let why = format!("its rules were not applied: {}", read::reason(errno));
                self.leave_out(dir.path_of(name.to_bytes()), LeftOutReason::Unreadable, why);
                Ok(())
            }
        }
    }

    /// Stats every entry and decides what becomes of it.
    fn sort(
        &self,
        dir: &Arc<Dir<'c>>,
        handle: &OwnedFd,
        listing: &Listing,
    ) -> Result<Sorted<'c>, NotEntered> {
        let chain = &dir.entered().chain;
        let mut path = if self.rules.needs_path(chain) {
            Some(dir.path_of(b""))
        } else {
            None
        };
        let prefix = path.as_ref().map_or(0, Vec::len);
        let mut candidates = Candidates::new(dir.cached.as_ref());
        let mut sorted = Sorted {
            slots: Vec::with_capacity(listing.len()),
            ..Sorted::default()
        };
        for (name, kind) in listing.iter() {
            if let Some(path) = &mut path {
                path.truncate(prefix);
                path.extend_from_slice(name.to_bytes());
            }
            let meeting = Meeting {
                name,
                kind,
                path: path.as_deref().unwrap_or_default(),
            };
            self.meet(dir, handle, &meeting, &mut candidates, &mut sorted)?;
        }
        if !candidates.is_exact() {
            dir.differs();
        }
        self.limit_entries(sorted.entries)?;
        Ok(sorted)
    }

    fn limit_entries(&self, more: u64) -> Result<(), NotEntered> {
        let seen = self.tally.entries.fetch_add(more, Ordering::Relaxed) + more;
        match self.request.options.max_entries {
            Some(most) if seen > most => Err(NotEntered::Failed(Error::refused(
                "too_many_entries",
                format!("the tree has more than {most} entries"),
                "raise --max-entries, or leave out what is not needed",
            ))),
            _ => Ok(()),
        }
    }

    fn meet(
        &self,
        dir: &Arc<Dir<'c>>,
        handle: &OwnedFd,
        entry: &Meeting<'_>,
        candidates: &mut Candidates<'c>,
        sorted: &mut Sorted<'c>,
    ) -> Result<(), NotEntered> {
        let name = entry.name.to_bytes();
        // What lstat says is only asked for before the rules where listing did not say what it is.
        let early = match entry.kind {
            FileType::Unknown => Some(door::lstat(handle, entry.name)),
            _ => None,
        };
        let is_dir = match &early {
            Some(stat) => stat
                .as_ref()
                .is_ok_and(|s| Found::of(s.mode) == Found::Directory),
            None => entry.kind == FileType::Directory,
        };
        let explicit = match self
            .rules
            .judge(&dir.entered().chain, entry.path, name, is_dir)
        {
            Verdict::Cut(rule) => {
                let path = dir.path_of(name);
                sorted.left_out.push(LeftOut {
                    path,
                    reason: LeftOutReason::Rule,
                    rule,
                });
                return Ok(());
            }
            verdict => verdict == Verdict::TakeByRule,
        };
        // A directory is looked at once it is open, unless nothing else has shown that names here can be looked up.
        if is_dir && sorted.searchable {
            self.meet_directory(dir, entry.name, explicit, candidates, sorted);
            return Ok(());
        }
        let stat = match early.unwrap_or_else(|| door::lstat(handle, entry.name)) {
            Ok(stat) => stat,
            Err(errno) => return self.not_stated(dir, handle, name, errno, sorted),
        };
        sorted.searchable = true;
        match Found::of(stat.mode) {
            Found::Special(word) => {
                let (path, rule) = (dir.path_of(name), word.as_bytes().to_vec());
                sorted.left_out.push(LeftOut {
                    path,
                    reason: LeftOutReason::Special,
                    rule,
                });
            }
            Found::Directory => self.meet_directory(dir, entry.name, explicit, candidates, sorted),
            found => {
                sorted.entries += 1;
                let candidate = candidates.find(name);
                self.meet_leaf(dir, handle, entry.name, (found, stat), candidate, sorted)
                    .map_err(NotEntered::Failed)?;
            }
        }
        Ok(())
    }

    fn meet_directory(
        &self,
        dir: &Arc<Dir<'c>>,
        name: &CStr,
        explicit: bool,
        candidates: &mut Candidates<'c>,
        sorted: &mut Sorted<'c>,
    ) {
        let candidate = candidates.find(name.to_bytes());
        let cached = candidate.and_then(|entry| match entry.link {
            CachedLink::Directory { block } => self.request.cache?.directory_at(block).ok(),
            CachedLink::Leaf { .. } => None,
        });
        let (parent, slot) = (Some(Arc::clone(dir)), sorted.slots.len());
        let at = candidate.map(|entry| entry.at);
        let below = Dir::new(parent, name.to_owned(), slot, at, explicit, cached);
        sorted.below.push(Arc::new(below));
        sorted.slots.push(Slot::Waiting);
        sorted.entries += 1;
    }

    fn not_stated(
        &self,
        dir: &Dir<'c>,
        handle: &OwnedFd,
        name: &[u8],
        errno: Errno,
        sorted: &mut Sorted<'c>,
    ) -> Result<(), NotEntered> {
        // Without the right to search, nothing in the directory can be looked at: it is listed once, itself.
        if errno == Errno::ACCESS && door::lstat(handle, c".").is_err() {
            return Err(NotEntered::Refused("search", errno));
        }
        let path = dir.path_of(name);
        match read::left::<()>(errno) {
            Outcome::Left(reason, why) => {
                sorted.left_out.push(LeftOut {
                    path,
                    reason,
                    rule: why.into_bytes(),
                });
                Ok(())
            }
            _ => Err(NotEntered::Failed(Error::io(
                "stat",
                self.full_path(&path),
                errno,
            ))),
        }
    }

    fn meet_leaf(
        &self,
        dir: &Dir<'c>,
        handle: &OwnedFd,
        name: &CStr,
        (found, stat): (Found, FileStat),
        candidate: Option<CachedEntry<'c>>,
        sorted: &mut Sorted<'c>,
    ) -> Result<()> {
        let bytes = name.to_bytes();
        let options = self.request.options;
        if let Some(most) = options.max_file_size
            && found == Found::File
            && stat.size > most
        {
            let rule = format!("larger than {most} bytes").into_bytes();
            let path = dir.path_of(bytes);
            sorted.left_out.push(LeftOut {
                path,
                reason: LeftOutReason::Limit,
                rule,
            });
            if candidate.is_some() {
                dir.differs();
            }
            return Ok(());
        }
        let at = candidate.map(|entry| entry.at);
        let kept = candidate.filter(|entry| !options.rehash && entry.proves_unchanged(&stat));
        if let Some(kept) = kept {
            sorted.slots.push(Slot::Kept(kept.at));
        } else if found == Found::Symlink {
            let Some(leaf) = self.read_link(dir, handle, name, stat)? else {
                if candidate.is_some() {
                    dir.differs();
                }
                return Ok(());
            };
            dir.compare_leaf(at, &leaf);
            sorted.slots.push(Slot::Leaf(Box::new(leaf)));
        } else {
            let slot = sorted.slots.len();
            sorted.slots.push(Slot::Waiting);
            sorted.todo.push(Todo {
                slot,
                name: name.to_owned(),
                seen: stat,
                candidate: at,
            });
            return Ok(());
        }
        if found == Found::Symlink {
            sorted.counts.links += 1;
        } else {
            sorted.counts.files += 1;
            sorted.counts.bytes += stat.size;
        }
        sorted.substance += u64::from(!rules::is_rule_file(bytes));
        Ok(())
    }

    fn read_link(
        &self,
        dir: &Dir<'c>,
        handle: &OwnedFd,
        name: &CStr,
        seen: FileStat,
    ) -> Result<Option<Leaf>> {
        let path = || dir.path_of(name.to_bytes());
        let (stat, target) = match read::link(handle.as_fd(), name, seen) {
            Outcome::Read(stat, target) => (stat, target),
            other => return self.left(path(), other).map(|()| None),
        };
        if target.is_empty() || target.len() > MAX_TARGET_BYTES {
            let why = format!("a target of {} bytes", target.len());
            self.leave_out(path(), LeftOutReason::Limit, why);
            return Ok(None);
        }
        Ok(Some(self.leaf(dir, name, stat, Node::Symlink { target })))
    }

    fn leaf(&self, parent: &Dir<'c>, name: &CStr, stat: FileStat, node: Node) -> Leaf {
        let racy = stat.is_racy(self.start, parent.entered().window_s);
        Leaf {
            entry: entry_of(name, &stat, node),
            stat,
            racy,
        }
    }

    /// Lists a path that was not read.
    fn left<T>(&self, path: Vec<u8>, outcome: Outcome<T>) -> Result<()> {
        match outcome {
            Outcome::Left(reason, why) => {
                self.leave_out(path, reason, why);
                Ok(())
            }
            Outcome::Exhausted(errno) => Err(Error::io("open", self.full_path(&path), errno)),
            Outcome::Read(..) => Ok(()),
        }
    }

    /// Starts the tasks for what is below, reads what is here, and leaves the rest to whoever comes last.
    fn start<'s>(
        &'s self,
        tasks: &Tasks<'_, 's>,
        dir: Arc<Dir<'c>>,
        handle: Arc<OwnedFd>,
        sorted: Sorted<'c>,
    ) -> Result<()>
    where
        'a: 's,
        'c: 's,
    {
        let Sorted {
            slots,
            mut todo,
            below,
            mut left_out,
            counts,
            substance,
            ..
        } = sorted;
        *lock(&dir.slots) = slots;
        self.tally.add(&counts, substance);
        self.request
            .progress
            .advance(counts.files + counts.links, counts.bytes);
        if !left_out.is_empty() {
            lock(&self.left_out).append(&mut left_out);
        }
        let bytes = todo
            .iter()
            .map(|todo| todo.seen.size)
            .fold(0, u64::saturating_add);
        let inline = todo.len() <= INLINE_FILES && bytes <= INLINE_BYTES;
        let mine = if inline {
            std::mem::take(&mut todo)
        } else {
            Vec::new()
        };
        let batches = batches(todo);
        let started = below.len() + batches.len();
        dir.pending.fetch_add(started, Ordering::Relaxed);
        dir.users.store(started, Ordering::Relaxed);
        if started > 0 {
            self.hold(&dir, &handle);
        }
        // The last one started is the first one run: files before directories, directories in name order.
        for child in below.into_iter().rev() {
            tasks.spawn(move |tasks| self.visit(tasks, child));
        }
        for batch in batches.into_iter().rev() {
            let dir = Arc::clone(&dir);
            tasks.spawn(move |_| self.visit_batch(&dir, &batch));
        }
        if !mine.is_empty() {
            self.read_files(&dir, &handle, &mine)?;
        }
        drop(handle);
        self.arrive(dir)
    }

    fn visit_batch(&self, dir: &Arc<Dir<'c>>, batch: &[Todo]) {
        if self.is_stopped() {
            return;
        }
        let handle = self.handle_of(dir);
        self.release(dir);
        let read = match handle {
            Ok(handle) => self.read_files(dir, &handle, batch),
            Err(errno) => batch.iter().try_for_each(|todo| {
                let path = dir.path_of(todo.name.as_bytes());
                self.left::<()>(path, read::left(errno))?;
                dir.place(todo.slot, todo.candidate, Piece::Gone);
                Ok(())
            }),
        };
        if let Err(error) = read.and_then(|()| self.arrive(Arc::clone(dir))) {
            self.fail(error);
        }
    }

    fn read_files(&self, dir: &Dir<'c>, handle: &OwnedFd, files: &[Todo]) -> Result<()> {
        let mut buffer = Vec::new();
        let mut counts = Counts::default();
        let mut substance = 0;
        for todo in files {
            if self.is_stopped() {
                return Ok(());
            }
            let piece = match self.read_file(dir, handle, &todo.name, todo.seen, &mut buffer)? {
                Some(leaf) => {
                    counts.files += 1;
                    counts.bytes += leaf.stat.size;
                    substance += u64::from(!rules::is_rule_file(todo.name.as_bytes()));
                    Piece::Leaf(leaf)
                }
                None => Piece::Gone,
            };
            dir.place(todo.slot, todo.candidate, piece);
        }
        self.tally.add(&counts, substance);
        self.request.progress.advance(counts.files, counts.bytes);
        Ok(())
    }

    fn read_file(
        &self,
        dir: &Dir<'c>,
        handle: &OwnedFd,
        name: &CStr,
        seen: FileStat,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Leaf>> {
        self.check()?;
        let check = || self.check();
        let reader = Reader {
            sink: self.request.sink,
            clock: self.request.clock,
            user: self.user,
            check: &check,
        };
        match reader.file(handle.as_fd(), name, seen, buffer)? {
            Outcome::Read(stat, content) => {
                let node = Node::File {
                    size: stat.size,
                    content,
                    holes: Extra::NotCaptured,
                };
                Ok(Some(self.leaf(dir, name, stat, node)))
            }
            other => self
                .left(dir.path_of(name.to_bytes()), other)
                .map(|()| None),
        }
    }

    /// What was a directory when it was listed is something else now.
    fn leaf_instead(&self, dir: Arc<Dir<'c>>) -> Result<()> {
        let parent = Arc::clone(dir.parent.as_ref().expect("BUG: the root was open already"));
        let look = || {
            let handle = self.handle_of(&parent)?;
            let stat = door::lstat(&handle, &dir.name)?;
            Ok((handle, stat))
        };
        let leaf = match look() {
            Err(errno) => self
                .left::<()>(dir.path(), read::left(errno))
                .map(|()| None)?,
            Ok((handle, stat)) => match Found::of(stat.mode) {
                Found::File => {
                    self.read_file(&parent, &handle, &dir.name, stat, &mut Vec::new())?
                }
                Found::Symlink => self.read_link(&parent, &handle, &dir.name, stat)?,
                Found::Directory | Found::Special(_) => {
                    let why = "changed while read".to_owned();
                    self.leave_out(dir.path(), LeftOutReason::Unstable, why);
                    None
                }
            },
        };
        match leaf {
            None => self.deliver(dir, Piece::Gone),
            Some(leaf) => {
                let mut counts = Counts::default();
                if let Node::Symlink { .. } = leaf.entry.node {
                    counts.links = 1;
                } else {
                    (counts.files, counts.bytes) = (1, leaf.stat.size);
                }
                self.tally.add(&counts, 1);
                self.deliver(dir, Piece::Leaf(leaf))
            }
        }
    }

    /// One piece of `dir` is there; if it was the last one, so is `dir`.
    fn arrive(&self, dir: Arc<Dir<'c>>) -> Result<()> {
        if dir.pending.fetch_sub(1, Ordering::AcqRel) != 1 || self.is_stopped() {
            return Ok(());
        }
        let done = self.finish(&dir)?;
        self.deliver(dir, Piece::Directory(done))
    }

    /// Hands a finished directory (or what became of it) to its parent, and goes on upwards as long as it was the last.
    fn deliver(&self, mut dir: Arc<Dir<'c>>, mut piece: Piece) -> Result<()> {
        loop {
            let Some(parent) = dir.parent.clone() else {
                if let Piece::Directory(done) = piece {
                    *lock(&self.root) = Some(done);
                }
                return Ok(());
            };
            if let Piece::Directory(_) = piece {
                self.tally.add(
                    &Counts {
                        directories: 1,
                        ..Counts::default()
                    },
                    1,
                );
            }
            parent.place_named(&dir.name, dir.slot, dir.candidate, piece);
            if parent.pending.fetch_sub(1, Ordering::AcqRel) != 1 || self.is_stopped() {
                return Ok(());
            }
            piece = Piece::Directory(self.finish(&parent)?);
            dir = parent;
        }
    }

    /// Makes a directory's tree, unless the old cache has it, and its block for the next cache, likewise.
    fn finish(&self, dir: &Dir<'c>) -> Result<DirDone> {
        self.let_go(dir);
        let slots = std::mem::take(&mut *lock(&dir.slots));
        let stat = dir.entered().stat;
        let same_tree = dir.same_tree.load(Ordering::Relaxed);
        let same_cache = same_tree && dir.same_cache.load(Ordering::Relaxed);
        let known = dir.cached.filter(|_| same_tree);
        let tree = match known {
            Some(cached) => cached.tree(),
            None => self.put_tree(dir, &slots)?,
        };
        let subtree = match known {
            Some(cached) if same_cache => cached.subtree(),
            _ => self.add_block(dir, &tree, &slots),
        };
        Ok(DirDone {
            tree,
            stat,
            subtree,
            same_cache,
        })
    }

    fn put_tree(&self, dir: &Dir<'c>, slots: &[Slot]) -> Result<ObjectId> {
        let mut encoder = Encoder::new();
        tree::begin(&mut encoder, captured(slots));
        for slot in slots {
            match slot {
                Slot::Kept(at) => encoder.raw(dir.kept(*at).encoded),
                Slot::Leaf(leaf) => leaf.entry.encode(&mut encoder),
                Slot::Directory(below) => below.0.encode(&mut encoder),
                Slot::Waiting | Slot::Gone => {}
            }
        }
        if encoder.len() > MAX_TREE_BYTES {
            let path = crate::name::escape(&dir.path());
            return Err(Error::refused(
                "directory_too_large",
                format!("the directory {path:?} has too many entries for one tree"),
                "leave it out with --exclude, or spread it over sub-directories",
            ));
        }
        self.request.sink.put(encoder.as_slice(), Class::Tree)
    }

    fn add_block(&self, dir: &Dir<'c>, tree: &ObjectId, slots: &[Slot]) -> Subtree {
        let below = slots.iter().filter_map(|slot| match slot {
            Slot::Directory(below) => Some(below.1),
            _ => None,
        });
        let device = dir.entered().stat.device;
        let mut block = BlockWriter::new(device, tree, captured(slots), below.collect());
        for slot in slots {
            match slot {
                Slot::Kept(at) => block.kept(&dir.kept(*at)),
                Slot::Leaf(leaf) => block.leaf(&leaf.entry.borrowed(), &leaf.stat, leaf.racy),
                Slot::Directory(below) => block.directory(&below.0.borrowed()),
                Slot::Waiting | Slot::Gone => {}
            }
        }
        lock(&self.builder).add(block)
    }

    /// Keeps a directory open for the tasks that were started for it, as far as the budget allows.
    fn hold(&self, dir: &Dir<'c>, handle: &Arc<OwnedFd>) {
        let waypoint = dir.depth.is_multiple_of(WAYPOINT);
        if waypoint || self.held.load(Ordering::Relaxed) < self.budget {
            self.held.fetch_add(1, Ordering::Relaxed);
            *lock(&dir.handle) = Some(Arc::clone(handle));
        }
    }

    /// One task less needs the directory open.
    fn release(&self, dir: &Dir<'c>) {
        let last = dir.users.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && !dir.depth.is_multiple_of(WAYPOINT) {
            self.let_go(dir);
        }
    }

    fn let_go(&self, dir: &Dir<'c>) {
        if lock(&dir.handle).take().is_some() {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A directory that was entered, open: as it was kept, or found again from the nearest one above that was.
    fn handle_of(&self, dir: &Dir<'c>) -> rustix::io::Result<Arc<OwnedFd>> {
        let mut missing = Vec::new();
        let mut next = Some(dir);
        let mut handle = loop {
            let Some(dir) = next else {
                break Arc::new(door::open_dir(self.request.root.handle(), c".")?);
            };
            if let Some(handle) = &*lock(&dir.handle) {
                break Arc::clone(handle);
            }
            if dir.parent.is_some() {
                missing.push(dir);
            }
            next = dir.parent.as_deref();
        };
        for dir in missing.into_iter().rev() {
            let found = door::open_dir(&handle, &dir.name)?;
            let (now, then) = (door::fstat(&found)?, dir.entered().stat);
            if (now.device, now.inode) != (then.device, then.inode) {
                return Err(Errno::STALE);
            }
            handle = Arc::new(found);
        }
        Ok(handle)
    }
}

/// One name of a listing, with its path relative to the root where rules look at it.
struct Meeting<'n> {
    name: &'n CStr,
    kind: FileType,
    path: &'n [u8],
}

/// Of two reasons for one path, the graver one comes first.
const fn gravity(reason: LeftOutReason) -> u8 {
    match reason {
        LeftOutReason::Unreadable => 0,
        LeftOutReason::Unstable => 1,
        _ => 2,
    }
}

fn batches(todo: Vec<Todo>) -> Vec<Vec<Todo>> {
    let mut batches: Vec<Vec<Todo>> = Vec::new();
    let mut bytes = 0u64;
    for file in todo {
        let full = batches
            .last()
            .is_none_or(|batch| batch.len() >= BATCH_FILES || bytes >= BATCH_BYTES);
        if full {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes = bytes.saturating_add(file.seen.size);
        if let Some(batch) = batches.last_mut() {
            batch.push(file);
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::objects::memory::MemoryObjects;
    use crate::progress::{Cancel, NoProgress};
    use crate::worktree::capture::CaptureOptions;
    use crate::worktree::testing::{Scene, take};

    /// A comb: every level has a side branch, so that every parent is needed again after its deep child.
    #[test]
    fn parents_are_found_again_when_the_budget_of_open_directories_is_used_up() {
        let scene = Scene::new();
        let mut path = String::new();
        for level in 0..90 {
            scene
                .file(format!("{path}side{}/f", level % 3), "x")
                .file(format!("{path}zz/g"), "y");
            path.push_str("m/");
        }
        let (_, expected) = take(&scene);
        let (root, options, sink, cancel) = (
            scene.root(),
            CaptureOptions::default(),
            MemoryObjects::default(),
            Cancel::new(),
        );
        let request = CaptureRequest {
            root: &root,
            options: &options,
            cache: None,
            sink: &sink,
            pool: Some(crate::worktree::testing::pool()),
            clock: &SystemClock,
            progress: &NoProgress,
            cancel: &cancel,
            skip: &[],
        };
        let mut walk = Walk::new(&request, SystemClock.now()).unwrap();
        walk.budget = 0;
        let done = walk.run().unwrap();
        assert_eq!(done.root.tree, expected.captured.root_tree);
        assert!(done.left_out.is_empty(), "{:?}", done.left_out);
    }
}
