//! What this machine has: users, tools, real trees, small file systems.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dir::set_mtime;

/// The uid of a user without rights.
pub const NOBODY: u32 = 65534;

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program is on `PATH`.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A copy of a program in a place where every user can run it (a target directory is often below somebody's private home).
///
/// # Panics
/// If it cannot be copied.
pub fn binary_for_everybody(binary: &Path, place: &Path) -> PathBuf {
    let copy = place.join("genstore-for-everybody");
    if !copy.exists() {
        // By another process: a file that this one has open for writing would be inherited by children of other tests, and then
        // nobody could run it ("text file busy").
        let copied = Command::new("cp").arg(binary).arg(&copy).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

/// Gives a path and everything below it to [`NOBODY`], when the tests run as root.
///
/// # Panics
/// If that fails.
pub fn give_to_nobody(path: &Path) {
    if is_root() {
        for entry in walkdir::WalkDir::new(path) {
            std::os::unix::fs::lchown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

/// A file system of its own, so small that it fills up. Unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Mounts a tmpfs of that size, where the machine allows it (root with the right to mount).
    pub fn mount(at: &Path, kibibytes: u64) -> Option<Self> {
        fs::create_dir_all(at).ok()?;
        let options = format!("size={kibibytes}k,mode=0755");
        let mounted = is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "genstore-test"])
                .arg(at)
                .output()
                .is_ok_and(|output| output.status.success());
        mounted.then(|| Self { at: at.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a child that is just ending must not fail the test.
        drop(Command::new("umount").arg("-l").arg(&self.at).output());
    }
}

/// Places on a build machine where real trees are, the best first.
fn real_sources() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let mut found: Vec<PathBuf> = fs::read_dir(cargo.join("registry/src"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    if let Ok(output) = sysroot {
        let sysroot = PathBuf::from(OsStr::from_bytes(output.stdout.trim_ascii_end()));
        found.push(sysroot.join("lib"));
        found.push(sysroot.join("share"));
    }
    found.extend(["/usr/include", "/usr/share/doc", "/usr/share", "/usr/lib"].map(PathBuf::from));
    found
}

/// Copies real files of this machine to `to`, at least `files` of them, with structure, modes, times and links as they are.
/// No file over 8 MiB is taken: a toolchain's libraries would make the test about copying.
///
/// # Panics
/// If the machine does not have that many files.
pub fn real_tree(to: &Path, files: usize) -> usize {
    let mut copied = 0;
    fs::create_dir_all(to).unwrap();
    for (number, source) in real_sources().iter().enumerate() {
        if copied >= files {
            break;
        }
        if source.is_dir() {
            copied += copy_real(
                source,
                &to.join(format!("{number}")),
                files + files / 5 - copied,
            );
        }
    }
    assert!(
        copied >= files,
        "this machine has no tree of {files} files to test with ({copied} found)"
    );
    copied
}

fn copy_real(from: &Path, to: &Path, limit: usize) -> usize {
    let mut copied = 0;
    let mut directories = Vec::new();
    for entry in walkdir::WalkDir::new(from)
        .sort_by_file_name()
        .into_iter()
        .flatten()
    {
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        let Ok(meta) = fs::symlink_metadata(entry.path()) else {
            continue;
        };
        if meta.is_dir() {
            fs::create_dir_all(&target).unwrap();
            directories.push((target, meta));
            continue;
        }
        if meta.file_type().is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), &target).unwrap();
        } else if meta.is_file() && meta.len() <= 8 << 20 && fs::copy(entry.path(), &target).is_ok()
        {
            fs::set_permissions(&target, meta.permissions()).unwrap();
        } else {
            continue;
        }
        set_mtime(&target, meta.mtime(), meta.mtime_nsec());
        copied += 1;
        if copied >= limit {
            break;
        }
    }
    for (target, meta) in directories.into_iter().rev() {
        fs::set_permissions(&target, meta.permissions()).unwrap();
        set_mtime(&target, meta.mtime(), meta.mtime_nsec());
    }
    copied
}

/// A temporary directory in memory where the machine has one: making many files on a disk takes longer than any test of them.
///
/// # Panics
/// If no temporary directory can be made.
pub fn quick_directory() -> tempfile::TempDir {
    let builder = || tempfile::Builder::new().prefix("genstore-test-").to_owned();
    let memory = builder().tempdir_in("/dev/shm");
    memory.unwrap_or_else(|_| builder().tempdir().unwrap())
}

/// Makes `directories` × `files_each` small files.
///
/// # Panics
/// If they cannot be written.
pub fn many_files(to: &Path, directories: usize, files_each: usize) {
    for directory in 0..directories {
        let path = to.join(format!("d{directory:04}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..files_each {
            fs::write(
                path.join(format!("f{file:03}")),
                format!("{directory} {file}\n"),
            )
            .unwrap();
        }
    }
}
