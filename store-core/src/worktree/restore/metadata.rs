//! Setting owner, mode and times, and looking whether they took: what a file system drops silently is reported too.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, Result as Answer};

use super::Meta;
use crate::format::stat_cache::FileStat;
use crate::format::tree::Extra;
use crate::worktree::door;
use crate::worktree::read::reason;

/// Collects what could not be set.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn note(&mut self, what: &str, answer: Answer<()>) {
        if let Err(errno) = answer {
            self.0.push(format!("{what}: {}", reason(errno)));
        }
    }

    fn verify(&mut self, meta: &Meta, now: Answer<FileStat>, mode: bool, owner: bool) {
        let now = match now {
            Ok(now) => now,
            Err(errno) => return self.note("stat", Err(errno)),
        };
        if mode && now.permissions() != meta.mode {
            self.0.push(format!(
                "mode: is {:04o} instead of {:04o}",
                now.permissions(),
                meta.mode
            ));
        }
        if now.mtime != meta.mtime {
            self.0
                .push("time: this file system cannot hold it exactly".to_owned());
        }
        if owner && meta.owner.is_some_and(|owner| owner != now.owner) {
            self.0.push("owner: is another one".to_owned());
        }
    }

    fn finish(self, meta: &Meta) -> Result<(), String> {
        let mut problems = self.0;
        if let Extra::Present(_) = meta.xattrs {
            problems.push("extended attributes: not restored by this version".to_owned());
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }
}

/// Gives an open file or directory its metadata. The owner comes first: giving a file away clears set-id bits.
pub(super) fn set(handle: &OwnedFd, meta: &Meta, owner: bool) -> Result<(), String> {
    let mut problems = Problems::default();
    if let Some(owner) = meta.owner.filter(|_| owner) {
        problems.note("owner", door::set_owner(handle, owner));
    }
    problems.note("mode", door::set_mode(handle, meta.mode));
    problems.note("time", door::set_mtime(handle, meta.mtime));
    if problems.0.is_empty() {
        problems.verify(meta, door::fstat(handle), true, owner);
    }
    problems.finish(meta)
}

/// Gives a link its own owner and time. Its permission bits mean nothing and cannot be set.
pub(super) fn set_link(
    parent: &OwnedFd,
    name: &CStr,
    meta: &Meta,
    owner: bool,
) -> Result<(), String> {
    let mut problems = Problems::default();
    if let Some(owner) = meta.owner.filter(|_| owner) {
        problems.note("owner", door::set_link_owner(parent, name, owner));
    }
    match door::set_link_mtime(parent, name, meta.mtime) {
        Err(Errno::NOSYS | Errno::OPNOTSUPP) => {
            problems
                .0
                .push("time: this file system has none for links".to_owned());
        }
        answer => problems.note("time", answer),
    }
    if problems.0.is_empty() {
        problems.verify(meta, door::lstat(parent, name), false, owner);
    }
    problems.finish(meta)
}
