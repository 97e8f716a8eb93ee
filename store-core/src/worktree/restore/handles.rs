//! Open directories of a plan: a bounded number, found again one component at a time when they are needed once more.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Result as Answer;

use super::PlanDir;
use crate::worktree::door;

/// Directories at such depths stay open as long as there is room: no way back is longer than this.
const WAYPOINT: usize = 32;

pub(super) struct Handles {
    root: Arc<OwnedFd>,
    open: Mutex<HashMap<usize, Arc<OwnedFd>>>,
    budget: usize,
}

impl Handles {
    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    pub(super) fn new(root: OwnedFd) -> Self {
        Self {
            root: Arc::new(root),
            open: Mutex::default(),
            budget: door::handle_budget(),
        }
    }

    /// The directory `at`, which is there. A link on the way is `ENOTDIR`.
    pub(super) fn get(&self, directories: &[PlanDir], at: usize) -> Answer<Arc<OwnedFd>> {
        let mut missing = Vec::new();
        let mut next = at;
        let mut handle = loop {
            if next == 0 {
                break Arc::clone(&self.root);
            }
            if let Some(handle) = self.known(next) {
                break handle;
            }
            missing.push(next);
            next = directories[next].parent;
        };
        for step in missing.into_iter().rev() {
            handle = Arc::new(door::open_dir(&handle, &directories[step].name)?);
            if step == at || directories[step].depth.is_multiple_of(WAYPOINT) {
                self.keep(directories, step, &handle);
            }
        }
        Ok(handle)
    }

    fn known(&self, at: usize) -> Option<Arc<OwnedFd>> {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&at)
            .cloned()
    }

    fn keep(&self, directories: &[PlanDir], at: usize, handle: &Arc<OwnedFd>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= self.budget {
            open.retain(|&at, _| directories[at].depth.is_multiple_of(WAYPOINT));
            if open.len() >= self.budget {
                open.clear();
            }
        }
        open.insert(at, Arc::clone(handle));
    }
}
