//! What the tests of this module share: a real tree in a temporary directory, a clock that is ahead, a pool of threads.

#![expect(clippy::disallowed_methods, reason = "tests make their own trees")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use rustix::process::{Gid, Uid};

use crate::clock::{Clock, SystemClock, Time};
use crate::error::Result;
use crate::format::stat_cache::{CacheHeader, StatCache};
use crate::format::tree::{Entry, MAX_TREE_BYTES, Node, Tree};
use crate::id::{Nonce, ObjectId};
use crate::objects::chunker::read_content;
use crate::objects::memory::MemoryObjects;
use crate::objects::{ObjectSink, ObjectSource};
use crate::progress::{Cancel, NoProgress};
use crate::worktree::Root;
use crate::worktree::capture::{CaptureOptions, CaptureRequest, Captured, capture};

/// A clock that is ahead of the system's, so that files written a moment ago are not racy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead(pub(crate) i64);

impl Clock for Ahead {
    fn now(&self) -> Time {
        SystemClock.now().minus_seconds(-self.0)
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

pub(crate) fn pool() -> &'static rayon::ThreadPool {
    static POOL: OnceLock<rayon::ThreadPool> = OnceLock::new();
    POOL.get_or_init(|| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(4)
            .build()
            .unwrap()
    })
}

/// A pool whose threads may not read what its owner forbids, even if the tests run as root.
pub(crate) fn nobody() -> &'static rayon::ThreadPool {
    static POOL: OnceLock<rayon::ThreadPool> = OnceLock::new();
    POOL.get_or_init(|| {
        let become_nobody = |_| {
            if rustix::process::geteuid().is_root() {
                let (gid, uid) = (Gid::from_raw(65534), Uid::from_raw(65534));
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
        };
        let builder = rayon::ThreadPoolBuilder::new().num_threads(2);
        builder.start_handler(become_nobody).build().unwrap()
    })
}

/// A real tree.
pub(crate) struct Scene {
    temp: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let scene = Self { temp };
        scene.mode("", 0o755);
        scene
    }

    pub(crate) fn path(&self, relative: impl AsRef<[u8]>) -> PathBuf {
        match relative.as_ref() {
            b"" => self.temp.path().to_owned(),
            relative => self.temp.path().join(OsStr::from_bytes(relative)),
        }
    }

    pub(crate) fn root(&self) -> Root {
        Root::open(self.temp.path()).unwrap()
    }

    pub(crate) fn dir(&self, path: impl AsRef<[u8]>) -> &Self {
        std::fs::create_dir_all(self.path(path)).unwrap();
        self
    }

    /// Writes a file, and the directories above it.
    pub(crate) fn file(&self, path: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        self
    }

    pub(crate) fn link(&self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> &Self {
        std::os::unix::fs::symlink(OsStr::from_bytes(target.as_ref()), self.path(path)).unwrap();
        self
    }

    pub(crate) fn fifo(&self, path: impl AsRef<[u8]>) -> &Self {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, self.path(path), FileType::Fifo, mode, 0).unwrap();
        self
    }

    pub(crate) fn mode(&self, path: impl AsRef<[u8]>, mode: u32) -> &Self {
        std::fs::set_permissions(self.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    pub(crate) fn mtime(&self, path: impl AsRef<[u8]>, seconds: i64, nanoseconds: i64) -> &Self {
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: rustix::fs::UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: seconds,
                tv_nsec: nanoseconds,
            },
        };
        rustix::fs::utimensat(CWD, self.path(path), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        self
    }

    pub(crate) fn remove(&self, path: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        if std::fs::symlink_metadata(&path).unwrap().is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
        self
    }

    pub(crate) fn read(&self, path: impl AsRef<[u8]>) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap()
    }

    /// Everything that `lstat` says about everything (but the times of access), by path, and contents.
    pub(crate) fn look(&self) -> BTreeMap<Vec<u8>, String> {
        let mut seen = BTreeMap::new();
        look(self.temp.path(), &mut Vec::new(), &mut seen);
        seen
    }
}

/// Kind, mode, mtime and content of everything under `directory`, the directory itself as the empty path.
fn look(directory: &Path, path: &mut Vec<u8>, seen: &mut BTreeMap<Vec<u8>, String>) {
    use std::os::unix::fs::MetadataExt;
    let full = if path.is_empty() {
        directory.to_owned()
    } else {
        directory.join(OsStr::from_bytes(path))
    };
    let stat = std::fs::symlink_metadata(&full).unwrap();
    let content = if stat.is_symlink() {
        format!("{:?}", std::fs::read_link(&full).unwrap())
    } else if stat.is_file() {
        ObjectId::of(&std::fs::read(&full).unwrap_or_default()).to_string()
    } else {
        String::new()
    };
    let line = format!(
        "{:o} {}.{:09} {} {content}",
        stat.mode(),
        stat.mtime(),
        stat.mtime_nsec(),
        stat.uid()
    );
    seen.insert(path.clone(), line);
    if stat.is_dir() {
        for entry in std::fs::read_dir(&full).unwrap() {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(entry.unwrap().file_name().as_bytes());
            look(directory, path, seen);
            path.truncate(length);
        }
    }
}

/// A capture in the making.
pub(crate) struct Take<'a> {
    pub(crate) options: CaptureOptions,
    pub(crate) cache: Option<&'a [u8]>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) pool: &'a rayon::ThreadPool,
    pub(crate) skip: &'a [(u64, u64)],
}

impl Default for Take<'_> {
    fn default() -> Self {
        Self {
            options: CaptureOptions::default(),
            cache: None,
            clock: &Ahead(3600),
            pool: pool(),
            skip: &[],
        }
    }
}

/// A capture without what borrows.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) captured: Captured<'static>,
    pub(crate) cache: Option<Vec<u8>>,
}

impl Taken {
    /// Whether the cache that was given still says it all.
    pub(crate) fn is_current(&self) -> bool {
        self.cache.is_none()
    }
}

impl Take<'_> {
    pub(crate) fn of(&self, root: &Root, sink: &dyn ObjectSink) -> Result<Taken> {
        let cache = self.cache.map(|bytes| StatCache::open(bytes).unwrap());
        let captured = capture(&CaptureRequest {
            root,
            options: &self.options,
            cache,
            sink,
            pool: Some(self.pool),
            clock: self.clock,
            progress: &NoProgress,
            cancel: &Cancel::new(),
            skip: self.skip,
        })?;
        assert_eq!(captured.cache_is_current(), captured.new_cache.is_none());
        let cache = captured
            .new_cache
            .as_ref()
            .map(|cache| cache.encode(&header()));
        Ok(Taken {
            captured: Captured {
                new_cache: None,
                ..captured
            },
            cache,
        })
    }
}

pub(crate) fn header() -> CacheHeader {
    CacheHeader {
        store: Nonce::from_bytes([1; 16]),
        epoch: Nonce::from_bytes([2; 16]),
        lineage: ObjectId::of(b"lineage"),
        checkpoint: ObjectId::of(b"checkpoint"),
        damage: ObjectId::of(b"damage"),
        walk_start: Time::default(),
    }
}

/// Every entry of a tree by path.
pub(crate) fn flatten(source: &dyn ObjectSource, tree: &ObjectId) -> BTreeMap<Vec<u8>, Entry> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(Vec::new(), *tree)];
    while let Some((path, id)) = todo.pop() {
        for entry in Tree::decode(&source.get(&id, MAX_TREE_BYTES).unwrap())
            .unwrap()
            .entries
        {
            let mut path: Vec<u8> = path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            if let Node::Directory { tree } = &entry.node {
                todo.push((path.clone(), *tree));
            }
            all.insert(path, entry);
        }
    }
    all
}

pub(crate) fn paths(source: &dyn ObjectSource, tree: &ObjectId) -> Vec<String> {
    flatten(source, tree)
        .keys()
        .map(|path| crate::name::escape(path))
        .collect()
}

pub(crate) fn content(source: &dyn ObjectSource, entry: &Entry) -> Vec<u8> {
    let Node::File { size, content, .. } = &entry.node else {
        panic!("not a file: {entry:?}")
    };
    let mut bytes = Vec::new();
    let mut give = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    read_content(source, content, *size, &mut give).unwrap();
    bytes
}

pub(crate) fn left_out(captured: &Captured<'_>) -> Vec<String> {
    let line = |left: &crate::format::checkpoint::LeftOut| {
        let rule = String::from_utf8_lossy(&left.rule).into_owned();
        format!(
            "{} {:?} {rule}",
            crate::name::escape(&left.path),
            left.reason
        )
    };
    captured.left_out.iter().map(line).collect()
}

/// Captures into a fresh memory, as if it were an hour later.
pub(crate) fn take(scene: &Scene) -> (MemoryObjects, Taken) {
    let memory = MemoryObjects::default();
    let taken = Take::default().of(&scene.root(), &memory).unwrap();
    (memory, taken)
}
