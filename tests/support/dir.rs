//! A temporary directory with a home, a store path and a work tree, isolated from the machine's user.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::genstore::Genstore;

/// A fixture: `home/`, a place for a store, a place for a tree. Removed when dropped.
#[derive(Debug)]
pub struct Dir {
    root: tempfile::TempDir,
}

impl Default for Dir {
    fn default() -> Self {
        Self::new()
    }
}

impl Dir {
    /// A fresh fixture with an empty `home` and an empty `tree`.
    ///
    /// # Panics
    /// If the machine has no temporary directory.
    pub fn new() -> Self {
        let root = tempfile::Builder::new()
            .prefix("genstore-test-")
            .tempdir()
            .unwrap();
        // Some tests run a child as another user, who has to get in.
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Compared with canonical paths all the time: the fixture's own path is one.
        assert_eq!(
            root.path(),
            fs::canonicalize(root.path()).unwrap(),
            "TMPDIR has to be canonical"
        );
        let dir = Self { root };
        fs::create_dir(dir.path("home")).unwrap();
        fs::create_dir(dir.tree()).unwrap();
        dir
    }

    /// The fixture's directory.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// A path in the fixture.
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.root.path().join(name.as_ref())
    }

    /// The work tree.
    pub fn tree(&self) -> PathBuf {
        self.path("tree")
    }

    /// Where the store is (going to be).
    pub fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// The live generation's directory, as `CURRENT` names it.
    ///
    /// # Panics
    /// If `CURRENT` is not readable.
    pub fn live(&self) -> PathBuf {
        self.store()
            .join("generations")
            .join(self.current().trim_end())
    }

    /// What `CURRENT` says, line feed included.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn current(&self) -> String {
        fs::read_to_string(self.store().join("CURRENT")).unwrap()
    }

    /// The pack files of the live generation.
    ///
    /// # Panics
    /// If the live generation cannot be listed.
    pub fn packs(&self) -> Vec<PathBuf> {
        let mut packs: Vec<_> = fs::read_dir(self.live())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension() == Some(OsStr::new("pack")))
            .collect();
        packs.sort();
        packs
    }

    /// Writes a file of the work tree, making its parents; the name may be any bytes.
    ///
    /// # Panics
    /// If that fails.
    pub fn write(&self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.tree().join(OsStr::from_bytes(name.as_ref()));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Makes a directory of the work tree.
    ///
    /// # Panics
    /// If that fails.
    pub fn mkdir(&self, name: impl AsRef<[u8]>) -> PathBuf {
        let path = self.tree().join(OsStr::from_bytes(name.as_ref()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// The command under test, for this fixture.
    pub fn genstore(&self, binary: &'static str) -> Genstore {
        Genstore::new(binary, self)
    }
}

/// Copies a directory with everything a candidate needs to be: same names, same bytes, same modes and times.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
    fs::set_permissions(to, fs::symlink_metadata(from).unwrap().permissions()).unwrap();
}

/// Disk space that a directory takes: blocks of each inode once, directories and links included.
///
/// # Panics
/// If it cannot be walked.
pub fn disk_bytes(path: &Path) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let mut blocks = 0;
    for entry in walkdir::WalkDir::new(path) {
        let meta = fs::symlink_metadata(entry.unwrap().path()).unwrap();
        if seen.insert((meta.dev(), meta.ino())) {
            blocks += meta.blocks();
        }
    }
    blocks * 512
}

/// Sets the times of a path itself (a link is not followed): seconds and nanoseconds since 1970.
///
/// # Panics
/// If that fails.
pub fn set_mtime(path: &Path, seconds: i64, nanoseconds: i64) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    utimensat(
        CWD,
        path,
        &Timestamps {
            last_access: time,
            last_modification: time,
        },
        AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
}

/// Sets permission bits.
///
/// # Panics
/// If that fails.
pub fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
