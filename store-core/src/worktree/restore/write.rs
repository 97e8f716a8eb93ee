//! Writing one file or link so that wrong or partial content never stands under its final name.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::{Action, Meta, PlanItem, TEMPORARY_PREFIX, metadata};
use crate::error::Error;
use crate::format::content::Content;
use crate::format::tree::{Entry, Node};
use crate::objects::ObjectSource;
use crate::objects::chunker::read_content;
use crate::worktree::door::{self, Found};
use crate::worktree::read::reason;

/// What became of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// It is as in the checkpoint.
    Done,
    /// Its content is, but not all of its metadata.
    WithoutMetadata(String),
    /// It is as it was.
    Failed(String),
    /// The system will refuse everything that follows too.
    Fatal(Errno),
}

impl From<Errno> for Wrote {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::ROFS => Self::Fatal(errno),
            errno if door::is_exhaustion(errno) => Self::Fatal(errno),
            errno => Self::Failed(reason(errno)),
        }
    }
}

impl From<Result<(), String>> for Wrote {
    fn from(metadata: Result<(), String>) -> Self {
        match metadata {
            Ok(()) => Self::Done,
            Err(problem) => Self::WithoutMetadata(problem),
        }
    }
}

/// How items are written.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) source: &'a dyn ObjectSource,
    pub(super) owner: bool,
    /// The target is marked as incomplete: a name that is free may be taken directly, once the content is checked.
    pub(super) marked: bool,
}

impl Writer<'_> {
    pub(super) fn write(&self, parent: &OwnedFd, item: &PlanItem) -> Wrote {
        let Ok(name) = CString::new(item.entry.name.as_slice()) else {
            return Wrote::Failed("a name with a NUL in it".to_owned());
        };
        let written = match (&item.entry.node, item.action) {
            (_, Action::SetMetadata) => return self.set_metadata(parent, &name, item),
            (Node::File { size, content, .. }, _) => self.file(parent, &name, item, *size, content),
            (Node::Symlink { target }, _) => self.link(parent, &name, item, target),
            (Node::Directory { .. }, _) => Err(Wrote::Failed("a directory".to_owned())),
        };
        written.unwrap_or_else(|failed| failed)
    }

    fn file(
        &self,
        parent: &OwnedFd,
        name: &CStr,
        item: &PlanItem,
        size: u64,
        content: &Content,
    ) -> Result<Wrote, Wrote> {
        let whole = match content {
            Content::List(_) => None,
            Content::Empty | Content::Chunk(_) => Some(self.fetch(size, content)?),
        };
        let free = item.action == Action::Create || item.now.is_none();
        let direct = self.marked && free && whole.is_some();
        let temporary = if direct {
            None
        } else {
            Some(temporary_name()?)
        };
        let first = temporary.as_deref().unwrap_or(name);
        let handle = door::create_file(parent, first)?;
        let filled = match whole {
            Some(bytes) => door::write_all(&handle, &bytes).map_err(Wrote::from),
            None => self.stream(&handle, size, content),
        };
        let placed = filled.and_then(|()| {
            let set = metadata::set(&handle, &Meta::of(&item.entry), self.owner);
            if temporary.is_some() {
                place(parent, first, name, item)?;
            }
            Ok(Wrote::from(set))
        });
        if placed.is_err() {
            discard(parent, first);
        }
        placed
    }

    fn fetch(&self, size: u64, content: &Content) -> Result<Vec<u8>, Wrote> {
        let mut bytes = Vec::new();
        let mut give = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        read_content(self.source, content, size, &mut give).map_err(|e| unread(&e))?;
        if bytes.len() as u64 == size {
            Ok(bytes)
        } else {
            Err(Wrote::Failed(wrong_length()))
        }
    }

    fn stream(&self, handle: &OwnedFd, size: u64, content: &Content) -> Result<(), Wrote> {
        let mut total = 0;
        let mut failed = None;
        let read = read_content(self.source, content, size, &mut |piece| {
            total += piece.len() as u64;
            door::write_all(handle, piece).map_err(|errno| {
                failed = Some(errno);
                Error::io("write", "a temporary file", errno)
            })
        });
        if let Some(errno) = failed {
            return Err(errno.into());
        }
        read.map_err(|e| unread(&e))?;
        if total == size {
            Ok(())
        } else {
            Err(Wrote::Failed(wrong_length()))
        }
    }

    fn link(
        &self,
        parent: &OwnedFd,
        name: &CStr,
        item: &PlanItem,
        target: &[u8],
    ) -> Result<Wrote, Wrote> {
        let target = CString::new(target)
            .map_err(|_| Wrote::Failed("a target with a NUL in it".to_owned()))?;
        let free = item.action == Action::Create || item.now.is_none();
        // A link appears with its target or not at all, so a free name can be taken directly.
        let temporary = if free { None } else { Some(temporary_name()?) };
        let first = temporary.as_deref().unwrap_or(name);
        door::make_link(&target, parent, first)?;
        let set = metadata::set_link(parent, first, &Meta::of(&item.entry), self.owner);
        if temporary.is_some()
            && let Err(failed) = place(parent, first, name, item)
        {
            discard(parent, first);
            return Err(failed);
        }
        Ok(set.into())
    }

    fn set_metadata(&self, parent: &OwnedFd, name: &CStr, item: &PlanItem) -> Wrote {
        let meta = Meta::of(&item.entry);
        if let Node::Symlink { .. } = item.entry.node {
            return match door::lstat(parent, name) {
                Ok(now) if Some(now) == item.now => {
                    Wrote::from(metadata::set_link(parent, name, &meta, self.owner))
                }
                Ok(_) => Wrote::Failed(moved_on()),
                Err(errno) => errno.into(),
            };
        }
        let opened =
            door::open_file(parent, name, false).and_then(|file| Ok((door::fstat(&file)?, file)));
        match opened {
            Ok((now, file)) if Some(now) == item.now => {
                Wrote::from(metadata::set(&file, &meta, self.owner))
            }
            Ok(_) => Wrote::Failed(moved_on()),
            Err(errno) => errno.into(),
        }
    }
}

/// Gives what was written its final name: a free one, or that of exactly what the plan saw there.
fn place(parent: &OwnedFd, from: &CStr, name: &CStr, item: &PlanItem) -> Result<(), Wrote> {
    let Some(expected) = item.now else {
        return Ok(door::rename_new(parent, from, name)?);
    };
    match door::lstat(parent, name) {
        Ok(now) if now == expected && Found::of(now.mode) != Found::Directory => {
            Ok(door::rename(parent, from, name)?)
        }
        Ok(_) => Err(Wrote::Failed(moved_on())),
        Err(Errno::NOENT) => Ok(door::rename_new(parent, from, name)?),
        Err(errno) => Err(errno.into()),
    }
}

/// Puts the checkpoint's own entry in the place of the marker, which thereby goes.
pub(super) fn replace_marker(
    writer: Writer<'_>,
    root: &OwnedFd,
    entry: &Entry,
    marker: &CStr,
) -> Wrote {
    match door::lstat(root, marker) {
        Ok(now) => {
            let item = PlanItem {
                dir: 0,
                entry: entry.clone(),
                action: Action::Replace,
                now: Some(now),
            };
            writer.write(root, &item)
        }
        Err(errno) => errno.into(),
    }
}

fn discard(parent: &OwnedFd, name: &CStr) {
    // If this fails too, the name says what it is, and the next restore removes it.
    door::regardless(door::remove_file(parent, name));
}

fn temporary_name() -> Result<CString, Wrote> {
    let name = format!("{TEMPORARY_PREFIX}{}", door::random_hex()?);
    CString::new(name).map_err(|_| Wrote::Failed("no temporary name".to_owned()))
}

fn unread(error: &Error) -> Wrote {
    Wrote::Failed(error.to_string())
}

fn wrong_length() -> String {
    "its chunks do not add up to its size".to_owned()
}

fn moved_on() -> String {
    "changed since the plan was made".to_owned()
}
