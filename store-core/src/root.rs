//! An opened store directory and who is at work in it. Nothing here depends on the live state.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::disk::{self, Dir, GiveTo, Kind};
use crate::format::manifest::Writer;
use crate::lock::Wait;
use crate::progress::{Cancel, Progress};
use crate::{Error, Result, layout};

/// What every operation is given: time, patience, progress, and who asks.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) progress: Arc<dyn Progress>,
    pub(crate) cancel: Cancel,
    pub(crate) lock_wait: Duration,
    pub(crate) as_owner: bool,
    pub(crate) single_host: bool,
    pub(crate) threads: usize,
    pub(crate) verb: String,
    #[cfg(feature = "planted")]
    pub(crate) planted: Option<crate::planted::Bug>,
}

impl Context {
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait {
            limit: self.lock_wait,
            clock: &*self.clock,
            cancel: &self.cancel,
        }
    }

    /// LOCK's text: pid, host, since when, for which verb.
    pub(crate) fn lock_text(&self) -> String {
        format!(
            "pid={} host={} since={} verb={}",
            rustix::process::getpid().as_raw_nonzero(),
            host_name(),
            self.clock.now().to_rfc3339(),
            self.verb
        )
    }

    /// A pool for one operation. Deep trees recurse on its threads, so their stacks are large (and only reserved).
    pub(crate) fn pool(&self) -> Result<rayon::ThreadPool> {
        rayon::ThreadPoolBuilder::new()
            .num_threads(self.threads)
            .stack_size(256 << 20)
            .thread_name(|index| format!("genstore-{index}"))
            .build()
            .map_err(|error| {
                Error::io(
                    "start threads for",
                    "this process",
                    std::io::Error::other(error),
                )
            })
    }

    /// The threads that help with one operation; none if the caller's own is all that it may use.
    pub(crate) fn helpers(&self) -> Result<Option<rayon::ThreadPool>> {
        if self.threads == 1 {
            Ok(None)
        } else {
            self.pool().map(Some)
        }
    }

    /// Who writes, as the manifest records it.
    pub(crate) fn writer() -> Writer {
        let stat = disk::system_text("/proc/self/stat");
        // The command name in parentheses may hold anything; fields are counted after the last one.
        let started = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(19));
        Writer {
            boot: boot_id(),
            host: host_name(),
            pid: rustix::process::getpid()
                .as_raw_nonzero()
                .get()
                .unsigned_abs(),
            start_ticks: started.and_then(|ticks| ticks.parse().ok()).unwrap_or(0),
            tool: concat!("genstore ", env!("CARGO_PKG_VERSION")).to_owned(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

/// The id of this boot, or nothing where the system does not tell.
pub(crate) fn boot_id() -> String {
    disk::system_text("/proc/sys/kernel/random/boot_id")
        .trim()
        .to_owned()
}

/// The host's name.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// A store that cannot be entered is most often another user's.
fn not_ours(path: &Path, error: Error) -> Error {
    let user = rustix::process::geteuid().as_raw();
    match disk::look_at_path(path) {
        Ok(Some(facts)) if facts.uid != user && error.code() == "permission_denied" => {
            Error::NotOwner {
                path: path.to_owned(),
                owner: facts.uid,
                user,
            }
        }
        _ => error,
    }
}

/// The open root of a store.
#[derive(Clone)]
pub(crate) struct Root {
    pub(crate) dir: Dir,
}

impl Root {
    /// Opens the store at `path` for reading: it must at least look like one.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        match disk::look_at_path(path)? {
            None => {
                return Err(Error::StoreNotFound {
                    path: path.to_owned(),
                });
            }
            Some(facts) if facts.kind != Kind::Directory => {
                return Err(Error::NotAStore {
                    path: path.to_owned(),
                    problem: format!("it is a {}", facts.kind.word()),
                });
            }
            Some(_) => {}
        }
        let dir = Dir::open_root(path).map_err(|error| not_ours(path, error))?;
        if dir.look(layout::CURRENT)?.is_none()
            && dir.look(layout::LOCK)?.is_none()
            && dir.look(layout::GENERATIONS)?.is_none()
        {
            if dir.is_empty()? {
                return Err(Error::StoreNotFound {
                    path: path.to_owned(),
                });
            }
            return Err(Error::NotAStore {
                path: path.to_owned(),
                problem: "it holds neither CURRENT, nor LOCK, nor generations".to_owned(),
            });
        }
        Ok(Self { dir })
    }

    /// The same root for writing: the effective user must be the owner, unless what is written is given to the owner.
    pub(crate) fn writable(&self, context: &Context) -> Result<Self> {
        let facts = self.dir.facts()?;
        let user = rustix::process::geteuid().as_raw();
        if facts.uid == user {
            return Ok(self.clone());
        }
        if !context.as_owner {
            return Err(Error::NotOwner {
                path: self.dir.path().to_owned(),
                owner: facts.uid,
                user,
            });
        }
        Ok(Self {
            dir: self.dir.giving_to(Some(GiveTo {
                uid: facts.uid,
                gid: facts.gid,
            }))?,
        })
    }

    /// One of the fixed sub-directories.
    pub(crate) fn sub(&self, name: &str) -> Result<Dir> {
        match self.dir.open_dir(name) {
            Ok(dir) => Ok(dir),
            Err(error) => match self.dir.look(name)? {
                Some(facts) if facts.kind != Kind::Directory => Err(Error::FixedNameTaken {
                    path: self.dir.path_of(name),
                    found: facts.kind.word(),
                    expected: Kind::Directory.word(),
                }),
                _ => Err(error),
            },
        }
    }

    /// One of the fixed sub-directories other than `generations`, made again if somebody removed it: it holds nothing
    /// that was acknowledged.
    pub(crate) fn sub_or_make(&self, name: &str) -> Result<Dir> {
        debug_assert_ne!(
            name,
            layout::GENERATIONS,
            "BUG: absence of generations is damage"
        );
        if self.dir.look(name)?.is_none() {
            self.dir.make_dir(name)?;
        }
        self.sub(name)
    }
}
