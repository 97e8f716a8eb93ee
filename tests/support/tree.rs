//! Trees as they are on disk, for comparison: every name, kind, mode, time, size, content and link target.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What stands under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// `file`, `dir`, `link`, `socket`, `fifo`, `device`.
    pub kind: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// Seconds and nanoseconds since 1970.
    pub mtime: (i64, i64),
    /// Length in bytes (files only).
    pub size: u64,
    /// BLAKE3 of a file's content; `None` for what is not a file or cannot be read.
    pub content: Option<String>,
    /// A link's target.
    pub target: Option<Vec<u8>>,
}

/// Paths relative to the top (empty for the top itself), as bytes.
pub type Snapshot = BTreeMap<Vec<u8>, Meta>;

/// Looks at everything below `top`, following nothing.
///
/// # Panics
/// If it cannot be walked.
pub fn snapshot(top: &Path) -> Snapshot {
    walkdir::WalkDir::new(top)
        .into_iter()
        // What cannot be listed is there by name, from its parent.
        .filter_map(Result::ok)
        .map(|entry| {
            let path = entry
                .path()
                .strip_prefix(top)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec();
            (path, look(entry.path()))
        })
        .collect()
}

/// Looks at one path.
///
/// # Panics
/// If it is not there.
pub fn look(path: &Path) -> Meta {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let kind = if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "dir"
    } else if kind.is_symlink() {
        "link"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_fifo() {
        "fifo"
    } else {
        "device"
    };
    Meta {
        kind,
        mode: meta.mode() & 0o7777,
        mtime: (meta.mtime(), meta.mtime_nsec()),
        size: if kind == "file" { meta.len() } else { 0 },
        content: if kind == "file" {
            fs::read(path).ok().map(|bytes| hash(&bytes))
        } else {
            None
        },
        target: (kind == "link")
            .then(|| fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec()),
    }
}

/// BLAKE3 in hex.
pub fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Differences in words, one a line; empty if there is none.
pub fn diff(expected: &Snapshot, found: &Snapshot) -> String {
    let mut text = String::new();
    for (path, meta) in expected {
        let shown = path.escape_ascii();
        match found.get(path) {
            None => writeln!(text, "missing: {shown}").unwrap(),
            Some(other) if other != meta => {
                writeln!(text, "{shown}:\n  expected {meta:?}\n  found    {other:?}").unwrap();
            }
            Some(_) => {}
        }
    }
    for path in found.keys().filter(|path| !expected.contains_key(*path)) {
        writeln!(text, "not expected: {}", path.escape_ascii()).unwrap();
    }
    text
}

/// Expects no difference.
///
/// # Panics
/// If there is one.
#[track_caller]
pub fn assert_same(expected: &Snapshot, found: &Snapshot) {
    let differences = diff(expected, found);
    let shown: Vec<_> = differences.lines().take(40).collect();
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.lines().count(),
        shown.join("\n")
    );
}

/// A store, to show that something changed nothing in it: every byte, mode, time and inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    entries: BTreeMap<Vec<u8>, (u64, Meta)>,
}

impl Frozen {
    /// A store as it is now.
    ///
    /// # Panics
    /// If it cannot be walked.
    pub fn of(store: &Path) -> Self {
        let entries = snapshot(store)
            .into_iter()
            .map(|(path, meta)| {
                let inode = fs::symlink_metadata(store.join(std::ffi::OsStr::from_bytes(&path)))
                    .unwrap()
                    .ino();
                (path, (inode, meta))
            })
            .collect();
        Self { entries }
    }

    /// Without what an honest failure may leave behind: the words in LOCK, the log of failures, derived data.
    #[must_use]
    pub fn without_notes(mut self) -> Self {
        const NOTES: [&[u8]; 5] = [
            b"LOCK",
            b"receipts",
            b"receipts/failed.log",
            b"incoming",
            b"cache",
        ];
        self.entries
            .retain(|path, _| !NOTES.contains(&path.as_slice()) && !path.starts_with(b"cache/"));
        // Making and removing a temporary file moves a directory's time, no more.
        for (_, meta) in self
            .entries
            .values_mut()
            .filter(|(_, meta)| meta.kind == "dir")
        {
            meta.mtime = (0, 0);
        }
        self
    }

    /// Only what lies below one of these paths.
    #[must_use]
    pub fn only(mut self, paths: &[&str]) -> Self {
        self.entries.retain(|path, _| {
            paths
                .iter()
                .any(|wanted| path.starts_with(wanted.as_bytes()))
        });
        self
    }

    /// Expects that a later state holds all of this unchanged (it may hold more).
    ///
    /// # Panics
    /// If something differs.
    #[track_caller]
    pub fn assert_kept_in(&self, later: &Self) {
        for (path, was) in &self.entries {
            assert_eq!(
                later.entries.get(path),
                Some(was),
                "{} changed",
                path.escape_ascii()
            );
        }
    }

    /// Expects that nothing at all differs.
    ///
    /// # Panics
    /// If something does.
    #[track_caller]
    pub fn assert_unchanged(&self, later: &Self, what: &str) {
        for (path, was) in &self.entries {
            assert_eq!(
                later.entries.get(path),
                Some(was),
                "{what}: {} changed",
                path.escape_ascii()
            );
        }
        for path in later.entries.keys() {
            assert!(
                self.entries.contains_key(path),
                "{what}: {} appeared",
                path.escape_ascii()
            );
        }
    }
}
