//! What a plan removes: only what is not protected, not special and not on another file system, contents before directories.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::plan::Planner;
use super::{DirState, PathReason, PlanDir, Removal, item_path};
use crate::format::stat_cache::FileStat;
use crate::worktree::door::{self, Found};
use crate::worktree::read::reason;

/// A directory that is to go, on the way through its names.
struct Frame {
    /// Its place in the plan.
    dir: usize,
    names: std::vec::IntoIter<CString>,
    /// Whether something in it stays.
    stays: bool,
    stat: FileStat,
}

impl Planner<'_> {
    /// Plans to remove `name` and all below it, as far as nothing speaks against it. `false`: something stays.
    pub(super) fn remove(
        &mut self,
        dir: usize,
        handle: &OwnedFd,
        name: &CStr,
        makes_way: bool,
    ) -> bool {
        let mut stack: Vec<Frame> = Vec::new();
        let Some(first) = self.look(dir, handle, name, makes_way, &mut stack) else {
            return false;
        };
        if !first {
            return true;
        }
        let mut stays = false;
        while let Some(frame) = stack.last_mut() {
            let at = frame.dir;
            if let Some(name) = frame.names.next() {
                let handles = self
                    .handles
                    .as_ref()
                    .expect("BUG: names of a target that is not there");
                let kept = match handles.get(&self.plan.directories, at) {
                    Ok(handle) => self
                        .look(at, &handle, &name, makes_way, &mut stack)
                        .is_none(),
                    Err(errno) => {
                        self.keep(at, &name, reason(errno));
                        true
                    }
                };
                if kept && let Some(frame) = stack.iter_mut().rev().find(|frame| frame.dir == at) {
                    frame.stays = true;
                }
                continue;
            }
            let Some(done) = stack.pop() else { break };
            if done.stays {
                if let Some(above) = stack.last_mut() {
                    above.stays = true;
                }
                stays = true;
            } else {
                let (parent, name) = {
                    let doomed = &self.plan.directories[done.dir];
                    (doomed.parent, doomed.name.clone())
                };
                self.doom(parent, name, done.stat, makes_way, stack.is_empty());
            }
        }
        !stays
    }

    /// Looks at one name. `None`: it stays. `Some(true)`: a directory, pushed. `Some(false)`: it goes, or is gone.
    fn look(
        &mut self,
        dir: usize,
        handle: &OwnedFd,
        name: &CStr,
        makes_way: bool,
        stack: &mut Vec<Frame>,
    ) -> Option<bool> {
        let path = item_path(&self.plan.directories, dir, name.to_bytes());
        if (self.request.protected)(&path) {
            self.keep(
                dir,
                name,
                "left out of the checkpoint, or by the rules now".to_owned(),
            );
            return None;
        }
        let stat = match door::lstat(handle, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Some(false),
            Err(errno) => {
                self.keep(dir, name, reason(errno));
                return None;
            }
        };
        match Found::of(stat.mode) {
            Found::Special(word) => {
                self.keep(dir, name, format!("a {word}"));
                None
            }
            Found::File | Found::Symlink => {
                self.doom(dir, name.to_owned(), stat, makes_way, stack.is_empty());
                Some(false)
            }
            Found::Directory => self.enter(dir, handle, name, stat, stack),
        }
    }

    fn enter(
        &mut self,
        dir: usize,
        handle: &OwnedFd,
        name: &CStr,
        stat: FileStat,
        stack: &mut Vec<Frame>,
    ) -> Option<bool> {
        let mut names = Vec::new();
        let entered = door::fstat(handle).and_then(|above| {
            if above.device != stat.device {
                return Err(Errno::XDEV);
            }
            let inner = door::open_dir(handle, name)?;
            door::list(inner, |name, _| names.push(name.to_owned()))
        });
        match entered {
            Ok(()) => {}
            Err(Errno::XDEV) => {
                self.keep(dir, name, "another file system is mounted there".to_owned());
                return None;
            }
            Err(errno) => {
                self.keep(dir, name, reason(errno));
                return None;
            }
        }
        names.sort();
        self.plan.directories.push(PlanDir {
            parent: dir,
            name: name.to_owned(),
            depth: self.plan.directories[dir].depth + 1,
            state: DirState::Doomed(stat),
            meta: None,
            touched: false,
            owner: false,
        });
        let at = self.plan.directories.len() - 1;
        stack.push(Frame {
            dir: at,
            names: names.into_iter(),
            stays: false,
            stat,
        });
        Some(true)
    }

    fn doom(&mut self, dir: usize, name: CString, stat: FileStat, makes_way: bool, top: bool) {
        self.plan.directories[dir].touched = true;
        let replaced = makes_way && top;
        self.plan.removals.push(Removal {
            dir,
            name,
            stat,
            first: makes_way,
            replaced,
        });
    }

    fn keep(&mut self, dir: usize, name: &CStr, reason: String) {
        let path = item_path(&self.plan.directories, dir, name.to_bytes());
        self.plan.kept.push(PathReason { path, reason });
    }
}
