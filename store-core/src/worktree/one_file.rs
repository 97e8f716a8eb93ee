//! Reading one file of a work tree, for showing what changed in it.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use crate::worktree::{Root, door};
use crate::{Error, Result};

/// The bytes of one regular file of a work tree. Follows no links below `dir`.
///
/// # Errors
/// [`Error::Io`] if it is not there, not a regular file, longer than `limit` bytes, or cannot be read.
pub fn read_file(dir: &Path, path: &[u8], limit: u64) -> Result<Vec<u8>> {
    let root = Root::open(dir)?;
    let shown = || dir.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path));
    read_below(&root, path, limit).map_err(|errno| Error::io("read", shown(), errno))
}

/// Whether a work tree has something at a path, whatever it is. Follows no links below `dir`.
///
/// # Errors
/// [`Error::Io`] if that cannot be found out: a failed look-up is never "absent".
pub fn has_path(dir: &Path, path: &[u8]) -> Result<bool> {
    let root = Root::open(dir)?;
    let shown = || dir.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path));
    match look_below(&root, path) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
        Err(errno) => Err(Error::io("examine", shown(), errno)),
    }
}

fn look_below(root: &Root, path: &[u8]) -> std::result::Result<(), Errno> {
    let mut names = path.split(|byte| *byte == b'/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        let name = CString::new(name).map_err(|_| Errno::NOENT)?;
        let parent = at.as_ref().map_or(root.handle(), AsFd::as_fd);
        if names.peek().is_none() {
            return door::lstat(parent, &name).map(drop);
        }
        at = Some(door::open_dir(parent, &name)?);
    }
    Err(Errno::NOENT)
}

fn read_below(root: &Root, path: &[u8], limit: u64) -> std::result::Result<Vec<u8>, Errno> {
    let mut names = path.split(|byte| *byte == b'/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        if !crate::name::is_entry_name(name) {
            return Err(Errno::INVAL);
        }
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        if names.peek().is_some() {
            at = Some(match &at {
                Some(parent) => door::open_dir(parent, &name)?,
                None => door::open_dir(root.handle(), &name)?,
            });
            continue;
        }
        let file = match &at {
            Some(parent) => door::open_file(parent, &name, false)?,
            None => door::open_file(root.handle(), &name, false)?,
        };
        let stat = door::fstat(&file)?;
        if stat.size > limit {
            return Err(Errno::FBIG);
        }
        // One byte more, so that a file that grew meanwhile is seen.
        let mut bytes = vec![0; usize::try_from(stat.size).map_err(|_| Errno::FBIG)? + 1];
        let length = door::read_full(&file, &mut bytes)?;
        bytes.truncate(length);
        return if length as u64 > limit {
            Err(Errno::FBIG)
        } else {
            Ok(bytes)
        };
    }
    Err(Errno::NOENT)
}
