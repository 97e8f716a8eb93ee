//! The one door to the disk: every system call on a store is made here.
//!
//! Invariants (`docs/invariants.md`): every open is of a single component relative to a directory handle, does not follow
//! links and is close-on-exec (I8); no function renames, moves or removes a directory (I3); published files are never
//! opened for writing (I1). Each error carries the operation and the path.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self as sys, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::id::Nonce;
use crate::{Error, Result, layout};

/// Mode of directories.
const DIRECTORY_MODE: u32 = 0o700;
/// Mode of files that are rewritten or replaced.
pub(crate) const FILE_MODE: u32 = 0o600;
/// Mode of published files.
pub(crate) const PUBLISHED_MODE: u32 = 0o400;

/// Who gets what is created, where that is not the effective user (`--as-owner`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GiveTo {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// What is known of a name without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    /// Space allocated, in bytes.
    pub(crate) allocated: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) links: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: (i64, u32),
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

impl Kind {
    /// For messages.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::File => "regular file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Fifo => "FIFO",
            Self::Socket => "socket",
            Self::Device => "device",
        }
    }
}

impl Facts {
    #[expect(
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "the widths of stat's fields differ between platforms"
    )]
    fn of(stat: &sys::Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ => Kind::Device,
        };
        Self {
            kind,
            bytes: stat.st_size as u64,
            allocated: (stat.st_blocks as u64).saturating_mul(512),
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            links: stat.st_nlink as u64,
            uid: stat.st_uid,
            gid: stat.st_gid,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        }
    }

    /// Whether both are the same inode.
    pub(crate) fn same_inode(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode
    }
}

/// An open directory of a store (or a candidate directory). Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Dir(Arc<DirInner>);

#[derive(Debug)]
struct DirInner {
    fd: OwnedFd,
    path: PathBuf,
    give_to: Option<GiveTo>,
}

impl Dir {
    /// Opens a directory by path. Its last component and its ancestors may be symlinks: this is for a store's root only.
    pub(crate) fn open_root(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| sys::open(path, flags, Mode::empty()))
            .map_err(|errno| Error::io("open", path, errno))?;
        Ok(Self(Arc::new(DirInner {
            fd,
            path: path.to_owned(),
            give_to: None,
        })))
    }

    /// Opens a directory by path whose last component must not be a symlink: a candidate.
    pub(crate) fn open_candidate(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = retry_on_intr(|| sys::open(path, flags, Mode::empty()))
            .map_err(|errno| Error::io("open", path, errno))?;
        Ok(Self(Arc::new(DirInner {
            fd,
            path: path.to_owned(),
            give_to: None,
        })))
    }

    /// The same directory, creating everything for another owner.
    pub(crate) fn giving_to(&self, give_to: Option<GiveTo>) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.0.fd, 3)
            .map_err(|errno| Error::io("duplicate the handle of", &self.0.path, errno))?;
        Ok(Self(Arc::new(DirInner {
            fd,
            path: self.0.path.clone(),
            give_to,
        })))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// The path of a name in this directory, for messages.
    pub(crate) fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path.join(name)
    }

    fn err(&self, op: &'static str, name: impl AsRef<Path>, errno: Errno) -> Error {
        Error::io(op, self.path_of(name), errno)
    }

    /// What this directory is.
    pub(crate) fn facts(&self) -> Result<Facts> {
        sys::fstat(self.fd())
            .map(|stat| Facts::of(&stat))
            .map_err(|errno| Error::io("examine", &self.0.path, errno))
    }

    /// What stands under `name`, without following it; `None` only if the system says that nothing does.
    pub(crate) fn look(&self, name: &str) -> Result<Option<Facts>> {
        match sys::statat(self.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Facts::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.err("examine", name, errno)),
        }
    }

    /// Opens a sub-directory. Never through a link.
    pub(crate) fn open_dir(&self, name: &str) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| sys::openat(self.fd(), name, flags, Mode::empty()))
            .map_err(|errno| self.err("open", name, errno))?;
        Ok(Self(Arc::new(DirInner {
            fd,
            path: self.path_of(name),
            give_to: self.0.give_to,
        })))
    }

    /// Makes a sub-directory, 0700 whatever the umask. `false`: the name is taken already.
    pub(crate) fn make_dir(&self, name: &str) -> Result<bool> {
        match sys::mkdirat(self.fd(), name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(false),
            Err(errno) => return Err(self.err("make directory", name, errno)),
        }
        let made = self.open_dir(name)?;
        sys::fchmod(made.fd(), Mode::from_raw_mode(DIRECTORY_MODE))
            .map_err(|errno| self.err("set the mode of", name, errno))?;
        give(made.fd(), self.0.give_to)
            .map_err(|errno| self.err("give to the owner", name, errno))?;
        Ok(true)
    }

    /// Opens a file for reading. Never through a link, never blocking on a FIFO.
    pub(crate) fn open_file(&self, name: &str) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.open_with(name, flags, 0, "open")
    }

    /// Opens (or makes) a file for locking and for its short text: LOCK.
    pub(crate) fn open_or_make_file(&self, name: &str) -> Result<File> {
        for _ in 0..16 {
            match self.create(name, FILE_MODE) {
                Err(error) if error.errno() == Some(Errno::EXIST) => {}
                other => return other,
            }
            match self.open_file_to_lock(name) {
                Err(error) if error.errno() == Some(Errno::NOENT) => {}
                other => return other,
            }
        }
        Err(Error::Conflict)
    }

    /// Opens an existing file for locking and for its short text.
    pub(crate) fn open_file_to_lock(&self, name: &str) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.open_with(name, flags, 0, "open")
    }

    /// Makes a file that must not exist yet, with exactly this mode.
    pub(crate) fn create(&self, name: &str, mode: u32) -> Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.open_with(name, flags, mode, "create")?;
        file.set_mode(mode)?;
        give(file.fd.as_fd(), self.0.give_to)
            .map_err(|errno| self.err("give to the owner", name, errno))?;
        Ok(file)
    }

    fn open_with(&self, name: &str, flags: OFlags, mode: u32, op: &'static str) -> Result<File> {
        let fd = retry_on_intr(|| sys::openat(self.fd(), name, flags, Mode::from_raw_mode(mode)))
            .map_err(|errno| self.err(op, name, errno))?;
        Ok(File {
            fd,
            path: self.path_of(name),
        })
    }

    /// Unlinks a file. `false`: it was gone already.
    pub(crate) fn unlink(&self, name: &str) -> Result<bool> {
        match sys::unlinkat(self.fd(), name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.err("unlink", name, errno)),
        }
    }

    /// Renames a file (never a directory) to a name in `to`, replacing a file of that name.
    pub(crate) fn rename_file(&self, from: &str, to: &Self, name: &str) -> Result<()> {
        sys::renameat(self.fd(), from, to.fd(), name)
            .map_err(|errno| to.err("rename into place", name, errno))
    }

    /// Hard-links a file under the same name in `to`.
    pub(crate) fn link_into(&self, name: &str, to: &Self) -> Result<()> {
        sys::linkat(self.fd(), name, to.fd(), name, AtFlags::empty())
            .map_err(|errno| to.err("link", name, errno))
    }

    /// Whether this directory still has a name.
    pub(crate) fn is_there(&self) -> Result<bool> {
        Ok(self.facts()?.links > 0)
    }

    /// Gives this directory the mode that all directories of a store have.
    pub(crate) fn close_to_others(&self) -> Result<()> {
        sys::fchmod(self.fd(), Mode::from_raw_mode(DIRECTORY_MODE))
            .map_err(|errno| Error::io("set the mode of", &self.0.path, errno))
    }

    /// Makes this directory's entries durable.
    pub(crate) fn sync(&self) -> Result<()> {
        retry_on_intr(|| sys::fsync(self.fd()))
            .map_err(|errno| Error::io("sync", &self.0.path, errno))
    }

    /// The names in this directory, in no order, without `.` and `..`.
    pub(crate) fn list(&self) -> Result<Vec<OsString>> {
        let err = |errno| Error::io("list", &self.0.path, errno);
        let mut names = Vec::new();
        for entry in sys::Dir::read_from(self.fd()).map_err(err)? {
            let entry = entry.map_err(err)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }

    /// Whether this directory has no entries. Reads no further than the first.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        let err = |errno| Error::io("list", &self.0.path, errno);
        for entry in sys::Dir::read_from(self.fd()).map_err(err)? {
            let entry = entry.map_err(err)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a shared lock on this directory without waiting. `false`: somebody holds it exclusively.
    pub(crate) fn pin(&self) -> Result<bool> {
        try_flock(
            self.fd(),
            FlockOperation::NonBlockingLockShared,
            &self.0.path,
        )
    }

    /// Takes an exclusive lock on this directory without waiting. `false`: somebody pins it.
    pub(crate) fn try_lock_exclusive(&self) -> Result<bool> {
        try_flock(
            self.fd(),
            FlockOperation::NonBlockingLockExclusive,
            &self.0.path,
        )
    }

    /// Free space for this user on the directory's file system, in bytes.
    pub(crate) fn free_bytes(&self) -> Result<u64> {
        let facts = sys::fstatvfs(self.fd())
            .map_err(|errno| Error::io("ask for free space at", &self.0.path, errno))?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    /// Whether files here may be mapped: not on network and FUSE file systems, where a lost connection kills the reader.
    pub(crate) fn may_map(&self) -> bool {
        const REMOTE: [u64; 6] = [
            0x6969,
            0xff53_4d42,
            0xfe53_4d42,
            0x517b,
            0x6573_5546,
            0x0102_1997,
        ];
        #[expect(clippy::cast_sign_loss, reason = "file-system magics are bit patterns")]
        sys::fstatfs(self.fd())
            .is_ok_and(|facts| !REMOTE.contains(&(facts.f_type as u64 & 0xffff_ffff)))
    }
}

fn give(fd: BorrowedFd<'_>, to: Option<GiveTo>) -> rustix::io::Result<()> {
    match to {
        Some(to) => sys::fchown(
            fd,
            Some(sys::Uid::from_raw(to.uid)),
            Some(sys::Gid::from_raw(to.gid)),
        ),
        None => Ok(()),
    }
}

fn try_flock(fd: BorrowedFd<'_>, operation: FlockOperation, path: &Path) -> Result<bool> {
    match retry_on_intr(|| sys::flock(fd, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(
            errno @ (Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF | Errno::INVAL),
        ) => Err(Error::LocksUnsupported {
            path: path.to_owned(),
            source: errno.into(),
        }),
        Err(errno) => Err(Error::io("lock", path, errno)),
    }
}

/// An open file of a store.
#[derive(Debug)]
pub(crate) struct File {
    fd: OwnedFd,
    path: PathBuf,
}

impl File {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn facts(&self) -> Result<Facts> {
        sys::fstat(&self.fd)
            .map(|stat| Facts::of(&stat))
            .map_err(|errno| Error::io("examine", &self.path, errno))
    }

    pub(crate) fn set_mode(&self, mode: u32) -> Result<()> {
        sys::fchmod(&self.fd, Mode::from_raw_mode(mode))
            .map_err(|errno| Error::io("set the mode of", &self.path, errno))
    }

    /// Appends at the handle's position, in full.
    pub(crate) fn append(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let written = retry_on_intr(|| rustix::io::write(&self.fd, bytes))
                .map_err(|errno| Error::io("write", &self.path, errno))?;
            if written == 0 {
                return Err(Error::io(
                    "write",
                    &self.path,
                    io::Error::from(io::ErrorKind::WriteZero),
                ));
            }
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            let count = retry_on_intr(|| rustix::io::pread(&self.fd, &mut buffer[filled..], at))
                .map_err(|errno| Error::io("read", &self.path, errno))?;
            if count == 0 {
                break;
            }
            filled += count;
        }
        Ok(filled)
    }

    /// The whole file, if it is no longer than `limit` bytes; otherwise its first `limit + 1` bytes.
    pub(crate) fn read_up_to(&self, limit: u64) -> Result<Vec<u8>> {
        let want = self.facts()?.bytes.min(limit) + 1;
        let mut bytes = vec![0; usize::try_from(want).unwrap_or(usize::MAX)];
        let filled = self.read_at(&mut bytes, 0)?;
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Makes the file's bytes durable.
    pub(crate) fn sync(&self) -> Result<()> {
        retry_on_intr(|| sys::fsync(&self.fd)).map_err(|errno| Error::io("sync", &self.path, errno))
    }

    /// Tells the system that the cached pages are not needed, so that the next read comes from the disk.
    pub(crate) fn drop_cached_pages(&self) {
        #[cfg(target_os = "linux")]
        sys::fadvise(&self.fd, 0, None, sys::Advice::DontNeed).ok();
    }

    /// Replaces the content in place. Only for LOCK, whose text no program reads but for how it begins: that is never
    /// absent in between, so that a full disk or a kill cannot make a finished store look like an unfinished one.
    pub(crate) fn rewrite(&self, bytes: &[u8]) -> Result<()> {
        let err = |errno| Error::io("write", &self.path, errno);
        let mut written = 0;
        while written < bytes.len() {
            let count =
                retry_on_intr(|| rustix::io::pwrite(&self.fd, &bytes[written..], written as u64))
                    .map_err(err)?;
            if count == 0 {
                return Err(Error::io(
                    "write",
                    &self.path,
                    io::Error::from(io::ErrorKind::WriteZero),
                ));
            }
            written += count;
        }
        sys::ftruncate(&self.fd, bytes.len() as u64).map_err(err)
    }

    /// Allocates real space for the whole file.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<()> {
        match retry_on_intr(|| sys::fallocate(&self.fd, sys::FallocateFlags::empty(), 0, bytes)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                // Not all zeros: a compressing file system would set nothing aside.
                let mut block = vec![0u8; 1 << 16];
                blake3::Hasher::new()
                    .update(b"genstore reserve")
                    .finalize_xof()
                    .fill(&mut block);
                for _ in 0..bytes.div_ceil(1 << 16) {
                    self.append(&block)?;
                }
                Ok(())
            }
            Err(errno) => Err(Error::io("allocate space for", &self.path, errno)),
        }
    }

    /// Takes an exclusive lock without waiting. `false`: somebody else holds one.
    pub(crate) fn try_lock_exclusive(&self) -> Result<bool> {
        try_flock(
            self.fd.as_fd(),
            FlockOperation::NonBlockingLockExclusive,
            &self.path,
        )
    }

    /// Whether somebody holds the exclusive lock. Takes it away from nobody: the probe is a shared lock.
    pub(crate) fn is_locked(&self) -> Result<bool> {
        let free = try_flock(
            self.fd.as_fd(),
            FlockOperation::NonBlockingLockShared,
            &self.path,
        )?;
        if free {
            self.unlock();
        }
        Ok(!free)
    }

    /// Gives up the lock.
    pub(crate) fn unlock(&self) {
        // Closing the handle releases it too: failing here changes nothing.
        sys::flock(&self.fd, FlockOperation::Unlock).ok();
    }

    /// Copies all of this file into `to` (which is empty), sharing blocks where the file system can.
    pub(crate) fn copy_into(&self, to: &Self) -> Result<()> {
        let bytes = self.facts()?.bytes;
        #[cfg(target_os = "linux")]
        if self.copy_in_kernel(to, bytes)? {
            return Ok(());
        }
        let mut buffer = vec![0; 1 << 20];
        let mut offset = 0;
        loop {
            let count = self.read_at(&mut buffer, offset)?;
            if count == 0 {
                return Ok(());
            }
            to.append(&buffer[..count])?;
            offset += count as u64;
        }
    }

    /// `false`: the file system cannot, and nothing was copied.
    #[cfg(target_os = "linux")]
    fn copy_in_kernel(&self, to: &Self, bytes: u64) -> Result<bool> {
        let mut done = 0u64;
        while done < bytes {
            let want = usize::try_from((bytes - done).min(1 << 30)).unwrap_or(1 << 30);
            match retry_on_intr(|| {
                sys::copy_file_range(&self.fd, Some(&mut done.clone()), &to.fd, None, want)
            }) {
                // Shorter than it was a moment ago, or not possible here after all.
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => {
                    let short = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(Error::io("copy into", &to.path, short));
                }
                Ok(count) => done += count as u64,
                Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)
                    if done == 0 =>
                {
                    return Ok(false);
                }
                Err(errno) => return Err(Error::io("copy into", &to.path, errno)),
            }
        }
        Ok(true)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A temporary file in `incoming/`: locked while its writer lives, unlinked when dropped unless it was moved into place.
#[derive(Debug)]
pub(crate) struct Temporary {
    dir: Dir,
    name: String,
    file: Option<File>,
}

impl Temporary {
    /// Makes and locks a temporary file.
    ///
    /// A cleaner may see the name before it is locked; so, once locked, the name must still be this inode, else start over.
    pub(crate) fn create(dir: &Dir, kind: &str) -> Result<Self> {
        for _ in 0..16 {
            let name = layout::temporary_name(kind, &random_nonce()?);
            if let Some(temporary) = Self::create_named(dir, name)? {
                return Ok(temporary);
            }
        }
        Err(Error::Conflict)
    }

    /// Makes and locks a file of this very name (a claim). `None`: a cleaner took it before it was locked.
    pub(crate) fn create_named(dir: &Dir, name: String) -> Result<Option<Self>> {
        let file = dir.create(&name, FILE_MODE)?;
        let locked = file.try_lock_exclusive()?;
        let mine = file.facts()?;
        let there = dir.look(&name)?;
        if locked && there.is_some_and(|there| there.same_inode(&mine)) {
            return Ok(Some(Self {
                dir: dir.clone(),
                name,
                file: Some(file),
            }));
        }
        Ok(None)
    }

    pub(crate) fn file(&self) -> &File {
        self.file
            .as_ref()
            .expect("BUG: the file is taken only when the temporary is consumed")
    }

    /// Moves the file to its final name. On failure the temporary stays one.
    #[expect(
        clippy::result_large_err,
        reason = "the temporary is handed back, and this is not a hot path"
    )]
    pub(crate) fn move_to(
        mut self,
        to: &Dir,
        name: &str,
    ) -> std::result::Result<File, (Self, Error)> {
        if let Err(error) = self.dir.rename_file(&self.name, to, name) {
            return Err((self, error));
        }
        let mut file = self
            .file
            .take()
            .expect("BUG: the file is taken only when the temporary is consumed");
        file.unlock();
        file.path = to.path_of(name);
        Ok(file)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // Best effort: what stays is unlocked and goes with the next writer's cleaning.
            self.dir.unlink(&self.name).ok();
            drop(file);
        }
    }
}

/// 16 random bytes from the system.
pub(crate) fn random_nonce() -> Result<Nonce> {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += retry_on_intr(|| {
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
        })
        .map_err(|errno| Error::io("get random bytes from", "the system", errno))?;
    }
    Ok(Nonce::from_bytes(bytes))
}

/// Makes a directory by path, with each missing ancestor, and syncs every directory that got a new name.
///
/// Ancestors get 0755 less the umask, the last one 0700.
pub(crate) fn make_root(path: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match sys::stat(at) {
            Ok(_) => break,
            Err(Errno::NOENT) => missing.push(at),
            Err(errno) => return Err(Error::io("examine", at, errno)),
        }
        match at.parent() {
            Some(parent) if parent.as_os_str().is_empty() => break,
            Some(parent) => at = parent,
            None => break,
        }
    }
    for directory in missing.into_iter().rev() {
        let mode = if directory == path {
            DIRECTORY_MODE
        } else {
            0o755
        };
        match sys::mkdir(directory, Mode::from_raw_mode(mode)) {
            Ok(()) => {
                if directory == path {
                    let mode = Mode::from_raw_mode(DIRECTORY_MODE);
                    sys::chmod(directory, mode)
                        .map_err(|errno| Error::io("set the mode of", directory, errno))?;
                }
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io("make directory", directory, errno)),
        }
        let parent = match directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Dir::open_root(parent)?.sync()?;
    }
    Ok(())
}

/// Syncs the directory that holds `path`, as far as it can be opened.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match Dir::open_root(parent) {
        Ok(dir) => dir.sync(),
        // One that this user may pass through and not read: it was there before, with the name in it.
        Err(error) if error.errno() == Some(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What stands at a path, following links in it: `None` only if the system says that nothing does.
pub(crate) fn look_at_path(path: &Path) -> Result<Option<Facts>> {
    match sys::stat(path) {
        Ok(stat) => Ok(Some(Facts::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::io("examine", path, errno)),
    }
}

/// What stands at a path, not following its last component.
pub(crate) fn look_at_path_itself(path: &Path) -> Result<Option<Facts>> {
    match sys::lstat(path) {
        Ok(stat) => Ok(Some(Facts::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::io("examine", path, errno)),
    }
}

/// The canonical absolute form of a path that a caller gave. The one place where links are resolved.
#[expect(
    clippy::disallowed_methods,
    reason = "where a path comes in, its links are resolved once"
)]
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|source| Error::io("resolve", path, source))
}

/// A small file of the running system (`/proc`), for naming a writer. Empty if it cannot be read.
pub(crate) fn system_text(path: &str) -> String {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(fd) = sys::open(path, flags, Mode::empty()) else {
        return String::new();
    };
    let mut buffer = [0u8; 4096];
    let count = retry_on_intr(|| rustix::io::read(&fd, &mut buffer)).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

/// A name that came from a listing, as text, if it is UTF-8 (all of our own names are).
pub(crate) fn as_text(name: &OsString) -> Option<&str> {
    std::str::from_utf8(name.as_bytes()).ok()
}

impl Error {
    /// The system's error number, if this is an I/O error.
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => source.raw_os_error().map(Errno::from_raw_os_error),
            _ => None,
        }
    }
}

impl Temporary {
    /// Whether hard links work from here into `to` (tried with this file, and undone).
    pub(crate) fn can_be_linked(&self, to: &Dir) -> bool {
        let linked = self.dir.link_into(&self.name, to).is_ok();
        if linked {
            // Best effort: `cache/` may hold anything.
            to.unlink(&self.name).ok();
        }
        linked
    }
}

impl File {
    /// Another handle of the same open file, for reading at places of its own.
    pub(crate) fn reopen(&self) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 3)
            .map_err(|errno| Error::io("duplicate the handle of", &self.path, errno))?;
        Ok(Self {
            fd,
            path: self.path.clone(),
        })
    }
}
