//! The door to people's files: every system call on a work tree is made here.
//!
//! Each call names one component relative to an open directory and never follows a symbolic link; every descriptor is
//! close-on-exec; nothing opens for writing but [`create_file`]. Functions answer with the bare `errno`: a walk would pay
//! for a path at each of them, so callers add operation and path (`Error::io`) when something does fail.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid};
use rustix::io::{Errno, Result as Answer};

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::format::stat_cache::FileStat;
use crate::format::tree::Owner;

/// Racy window on local file systems, and on those whose clock or attributes may lag, in seconds.
const RACY_WINDOW_S: i64 = 2;
const NETWORK_RACY_WINDOW_S: i64 = 60;
/// NFS, SMB (three generations) and FUSE, as `statfs` names them.
const NETWORK_MAGICS: [u32; 5] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x6573_5546];

/// How much of a directory is listed by one call, in bytes.
const LIST_BYTES: usize = 32 * 1024;

const S_IFMT: u32 = 0o170_000;

/// What `lstat` proves a path to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Something that has no content: the word says what.
    Special(&'static str),
}

impl Found {
    pub(crate) const fn of(mode: u32) -> Self {
        match mode & S_IFMT {
            0o100_000 => Self::File,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Special("socket"),
            0o010_000 => Self::Special("fifo"),
            0o020_000 => Self::Special("char device"),
            0o060_000 => Self::Special("block device"),
            _ => Self::Special("unknown kind of file"),
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Special(word) => word,
        }
    }
}

fn unsigned<T: TryInto<u64>>(value: T) -> u64 {
    value.try_into().unwrap_or(u64::MAX)
}

fn time<S: TryInto<i64>, N: TryInto<u32>>(seconds: S, nanoseconds: N) -> Time {
    Time {
        seconds: seconds.try_into().unwrap_or(i64::MAX),
        nanoseconds: nanoseconds.try_into().unwrap_or(0).min(999_999_999),
    }
}

fn convert(stat: &rustix::fs::Stat) -> FileStat {
    FileStat {
        device: unsigned(stat.st_dev),
        inode: unsigned(stat.st_ino),
        mode: u32::try_from(unsigned(stat.st_mode)).unwrap_or(u32::MAX),
        size: unsigned(stat.st_size),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        owner: Owner {
            uid: stat.st_uid,
            gid: stat.st_gid,
        },
    }
}

/// The error for a work tree that cannot be found.
pub(crate) fn no_source(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            let shown = crate::name::escape(path.as_os_str().as_encoded_bytes());
            Error::not_found(crate::Wanted::Source, shown, "")
        }
        std::io::ErrorKind::NotADirectory => Error::invalid(
            "source",
            format!("{} is not a directory", crate::name::quote_path(path)),
        ),
        _ => Error::io("find", path, error),
    }
}

/// A work tree's root, named once: the path may go through symbolic links, and what they lead to is what is meant.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    handle: OwnedFd,
    stat: FileStat,
}

impl Root {
    /// Resolves `path` (links included) and opens the directory there.
    ///
    /// # Errors
    /// [`Error::Io`] if there is nothing, or no directory, or it may not be read.
    #[expect(
        clippy::disallowed_methods,
        reason = "a path comes in here, and only here, to be resolved once"
    )]
    pub fn open(path: &Path) -> Result<Self> {
        let resolved = std::fs::canonicalize(path).map_err(|e| Error::io("find", path, e))?;
        Self::open_resolved(resolved)
    }

    /// The same, for a directory that somebody named as a source.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is nothing; otherwise as [`Self::open`].
    pub fn open_source(path: &Path) -> Result<Self> {
        Self::open(path).map_err(|error| match error {
            Error::Io { path, source, .. } => no_source(&path, source),
            other => other,
        })
    }

    /// Opens the directory at `path`, whose last component must not be a link.
    ///
    /// # Errors
    /// [`Error::Io`] if there is nothing, or no directory, or it may not be read.
    pub fn open_resolved(path: PathBuf) -> Result<Self> {
        let open = || {
            let handle = rustix::fs::open(&path, directory_flags(), Mode::empty())?;
            let stat = fstat(&handle)?;
            Ok((handle, stat))
        };
        match open() {
            Ok((handle, stat)) => Ok(Self { path, handle, stat }),
            Err(errno) => Err(Error::io("open the directory", &path, no_directory(errno))),
        }
    }

    /// Its canonical path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What `fstat` said when it was opened.
    pub const fn stat(&self) -> &FileStat {
        &self.stat
    }

    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// What opening a directory without following links says about a link.
fn no_directory(errno: Errno) -> Errno {
    if errno == Errno::LOOP {
        Errno::NOTDIR
    } else {
        errno
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens a directory for listing; anything else, a link included, is `ENOTDIR`.
pub(crate) fn open_dir(parent: impl AsFd, name: &CStr) -> Answer<OwnedFd> {
    retry(|| rustix::fs::openat(parent.as_fd(), name, directory_flags(), Mode::empty()))
        .map_err(no_directory)
}

/// Opens a file for reading: not through a link, not waiting for a FIFO's other end, and without marking it as accessed
/// where that is allowed (`quiet`: the caller owns it).
pub(crate) fn open_file(parent: impl AsFd, name: &CStr, quiet: bool) -> Answer<OwnedFd> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = |flags| retry(|| rustix::fs::openat(parent.as_fd(), name, flags, Mode::empty()));
    #[cfg(target_os = "linux")]
    if quiet {
        match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => {}
            answer => return answer,
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _: bool = quiet;
    open(flags)
}

/// Whom the calling thread acts as.
pub(crate) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(crate) fn fstat(handle: impl AsFd) -> Answer<FileStat> {
    rustix::fs::fstat(handle).map(|stat| convert(&stat))
}

pub(crate) fn lstat(parent: impl AsFd, name: &CStr) -> Answer<FileStat> {
    rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| convert(&stat))
}

/// How long a change may stay invisible in the times of files here, in seconds.
pub(crate) fn racy_window_s(handle: impl AsFd) -> i64 {
    let Ok(stat) = rustix::fs::fstatfs(handle) else {
        return NETWORK_RACY_WINDOW_S;
    };
    // The field's width and sign differ between platforms; the magic number is its low 32 bits everywhere.
    let bytes = stat.f_type.to_le_bytes();
    let magic = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if NETWORK_MAGICS.contains(&magic) {
        NETWORK_RACY_WINDOW_S
    } else {
        RACY_WINDOW_S
    }
}

/// Gives every name but `.` and `..`, in the directory's own order, with its kind where the file system says it.
pub(crate) fn list(directory: impl AsFd, mut each: impl FnMut(&CStr, FileType)) -> Answer<()> {
    let mut buffer = Vec::<u8>::with_capacity(LIST_BYTES);
    let mut entries = rustix::fs::RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            each(entry.file_name(), entry.file_type());
        }
    }
    Ok(())
}

/// A link's target.
pub(crate) fn read_link(parent: impl AsFd, name: &CStr) -> Answer<Vec<u8>> {
    rustix::fs::readlinkat(parent, name, Vec::new()).map(std::ffi::CString::into_bytes)
}

/// Reads what there is, up to the buffer's length; 0 at the end.
pub(crate) fn read(handle: impl AsFd, buffer: &mut [u8]) -> Answer<usize> {
    retry(|| rustix::io::read(handle.as_fd(), &mut *buffer))
}

/// Reads until the end or until `buffer` is full.
pub(crate) fn read_full(handle: impl AsFd, buffer: &mut [u8]) -> Answer<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(handle.as_fd(), &mut buffer[filled..])? {
            0 => break,
            got => filled += got,
        }
    }
    Ok(filled)
}

/// Goes back to the beginning of an open file.
pub(crate) fn rewind(handle: impl AsFd) -> Answer<()> {
    rustix::fs::seek(handle, rustix::fs::SeekFrom::Start(0)).map(|_| ())
}

/// Makes a directory that only its owner may use.
pub(crate) fn make_dir(parent: impl AsFd, name: &CStr) -> Answer<()> {
    rustix::fs::mkdirat(parent, name, Mode::RWXU)
}

/// Makes a file that nobody else may read yet; the name must be free.
pub(crate) fn create_file(parent: impl AsFd, name: &CStr) -> Answer<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry(|| rustix::fs::openat(parent.as_fd(), name, flags, Mode::RUSR | Mode::WUSR))
}

/// Writes all of `bytes`.
pub(crate) fn write_all(handle: impl AsFd, mut bytes: &[u8]) -> Answer<()> {
    while !bytes.is_empty() {
        match retry(|| rustix::io::write(handle.as_fd(), bytes))? {
            0 => return Err(Errno::IO),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Makes a symbolic link; the name must be free.
pub(crate) fn make_link(target: &CStr, parent: impl AsFd, name: &CStr) -> Answer<()> {
    rustix::fs::symlinkat(target, parent, name)
}

/// Sets permission bits, set-id and sticky bits included.
pub(crate) fn set_mode(handle: impl AsFd, mode: u16) -> Answer<()> {
    rustix::fs::fchmod(handle, Mode::from_raw_mode(mode.into()))
}

/// Sets the time of the last modification; that of the last access stays.
pub(crate) fn set_mtime(handle: impl AsFd, mtime: Time) -> Answer<()> {
    rustix::fs::futimens(handle, &timestamps(mtime))
}

/// Sets a link's own time.
pub(crate) fn set_link_mtime(parent: impl AsFd, name: &CStr, mtime: Time) -> Answer<()> {
    rustix::fs::utimensat(parent, name, &timestamps(mtime), AtFlags::SYMLINK_NOFOLLOW)
}

fn timestamps(mtime: Time) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: mtime.seconds,
            tv_nsec: mtime.nanoseconds.into(),
        },
    }
}

/// Gives an open file to somebody.
pub(crate) fn set_owner(handle: impl AsFd, owner: Owner) -> Answer<()> {
    rustix::fs::fchown(
        handle,
        Some(Uid::from_raw(owner.uid)),
        Some(Gid::from_raw(owner.gid)),
    )
}

/// Gives a link itself to somebody.
pub(crate) fn set_link_owner(parent: impl AsFd, name: &CStr, owner: Owner) -> Answer<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    rustix::fs::chownat(
        parent,
        name,
        Some(uid),
        Some(gid),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

/// Gives a file another name in the same directory, replacing what has it.
pub(crate) fn rename(directory: impl AsFd, from: &CStr, to: &CStr) -> Answer<()> {
    rustix::fs::renameat(directory.as_fd(), from, directory.as_fd(), to)
}

/// Gives a file another name in the same directory, which must be free.
pub(crate) fn rename_new(directory: impl AsFd, from: &CStr, to: &CStr) -> Answer<()> {
    let directory = directory.as_fd();
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            // The file system cannot refuse to replace: look first. Nobody else is at work in a directory being restored.
            match lstat(directory, to) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => rename(directory, from, to),
                Err(errno) => Err(errno),
            }
        }
        answer => answer,
    }
}

/// Unlinks a name that is not a directory.
pub(crate) fn remove_file(parent: impl AsFd, name: &CStr) -> Answer<()> {
    rustix::fs::unlinkat(parent, name, AtFlags::empty())
}

/// Removes an empty directory of a work tree.
pub(crate) fn remove_dir(parent: impl AsFd, name: &CStr) -> Answer<()> {
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// How many directories a walk may hold open: a share of the soft limit, as the store and the caller need descriptors too.
pub(crate) fn handle_budget() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    usize::try_from(limit.unwrap_or(4096) / 4)
        .unwrap_or(1024)
        .clamp(16, 1024)
}

/// 128 random bits in hex, for the name of a temporary file.
pub(crate) fn random_hex() -> Answer<String> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += retry(|| rustix::rand::getrandom(&mut bytes[filled..], flags))?;
    }
    Ok(crate::id::to_hex(&bytes))
}

fn retry<T>(mut call: impl FnMut() -> Answer<T>) -> Answer<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

/// Drops an answer that nothing could be done about.
pub(crate) fn regardless(_: Answer<()>) {}

/// Whether a failure is about this process or the whole system rather than about one path.
pub(crate) fn is_exhaustion(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_opened_through_a_link_and_a_fifo_does_not_block() {
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", temp.path().join("dir")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", temp.path().join("file")).unwrap();
        let root = Root::open(temp.path()).unwrap();
        rustix::fs::mknodat(root.handle(), c"fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(open_dir(root.handle(), c"dir").unwrap_err(), Errno::NOTDIR);
        assert_eq!(
            open_file(root.handle(), c"file", true).unwrap_err(),
            Errno::LOOP
        );
        let fifo = open_file(root.handle(), c"fifo", true).unwrap();
        assert_eq!(
            Found::of(fstat(&fifo).unwrap().mode),
            Found::Special("fifo")
        );
    }

    #[test]
    fn a_root_may_be_a_link_but_is_known_by_where_it_leads() {
        let temp = tempfile::tempdir().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test makes its own tree")]
        std::fs::create_dir(temp.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", temp.path().join("link")).unwrap();
        let real = Root::open(&temp.path().join("real")).unwrap();
        let link = Root::open(&temp.path().join("link")).unwrap();
        assert_eq!(real.path(), link.path());
        assert_eq!(real.stat().inode, link.stat().inode);
        let error = Root::open(&temp.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
        assert!(Root::open_resolved(temp.path().join("link")).is_err());
    }

    #[test]
    fn renaming_to_a_taken_name_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        for name in [c"a", c"b"] {
            drop(create_file(root.handle(), name).unwrap());
        }
        assert_eq!(rename_new(root.handle(), c"a", c"b"), Err(Errno::EXIST));
        assert_eq!(rename_new(root.handle(), c"a", c"c"), Ok(()));
        assert_eq!(create_file(root.handle(), c"b").unwrap_err(), Errno::EXIST);
    }
}
