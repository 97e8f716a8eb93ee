//! The one public error type: a variant per decision that a caller can take.
//!
//! Every variant has a stable [`Error::code`], a [`Error::kind`] (which the command line turns into an exit code) and,
//! where there is a way out, a [`Error::hint`] that names the next command.

use std::io;
use std::path::{Path, PathBuf};

use crate::id::{GenerationId, ObjectId};

/// What this crate's operations return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of answer an error is. The command line's exit codes are these, one to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operation failed (exit 1).
    Failed,
    /// The request makes no sense (exit 2).
    Usage,
    /// The operation was done, but not completely (exit 3).
    Incomplete,
    /// Stored data is damaged (exit 4).
    Damage,
    /// `CURRENT` or the generation that it names cannot be trusted (exit 5).
    Untrusted,
    /// Somebody else holds the store (exit 6).
    Busy,
    /// What was asked for does not exist (exit 7).
    NotFound,
    /// Refused until the caller says so explicitly (exit 8).
    Refused,
}

/// Why the live generation cannot be trusted. Each fault has its own code (`docs/format.md` section 3).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorFault {
    /// There is no `CURRENT`. Absence is damage, never "new".
    #[error("CURRENT is missing")]
    Missing,
    /// `CURRENT` is a symlink, directory, FIFO or device.
    #[error("CURRENT is a {found}, not a regular file")]
    NotRegular {
        /// What it is.
        found: &'static str,
    },
    /// `CURRENT` does not hold exactly one generation id and a line feed.
    #[error("CURRENT does not hold one generation id: {problem}")]
    Malformed {
        /// What is wrong with the bytes.
        problem: String,
    },
    /// The generation's directory does not exist.
    #[error("CURRENT names {id}, which does not exist")]
    GenerationMissing {
        /// The generation that `CURRENT` names.
        id: GenerationId,
    },
    /// The generation's name is taken by something that is not a directory.
    #[error("CURRENT names {id}, which is a {found}, not a directory")]
    GenerationNotDirectory {
        /// The generation that `CURRENT` names.
        id: GenerationId,
        /// What stands there.
        found: &'static str,
    },
    /// The live generation has no manifest (or it is not a regular file).
    #[error("the live generation {id} has no manifest")]
    ManifestMissing {
        /// The live generation.
        id: GenerationId,
    },
    /// The manifest's bytes are not those that the id was made from, or are not canonical.
    #[error("the manifest of the live generation {id} is damaged: {problem}")]
    ManifestMismatch {
        /// The live generation.
        id: GenerationId,
        /// What differs.
        problem: String,
    },
    /// The manifest is of a format that this version does not know.
    #[error("the live generation {id} was written by a newer genstore: {problem}")]
    ManifestUnsupported {
        /// The live generation.
        id: GenerationId,
        /// What is not known.
        problem: String,
    },
}

impl SelectorFault {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "selector_missing",
            Self::NotRegular { .. } => "selector_not_regular",
            Self::Malformed { .. } => "selector_malformed",
            Self::GenerationMissing { .. } => "generation_missing",
            Self::GenerationNotDirectory { .. } => "generation_not_directory",
            Self::ManifestMissing { .. } => "manifest_missing",
            Self::ManifestMismatch { .. } => "manifest_mismatch",
            Self::ManifestUnsupported { .. } => "manifest_unsupported",
        }
    }
}

/// What a lookup was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wanted {
    /// A checkpoint (id prefix, tag, `latest`, …).
    Checkpoint,
    /// A lineage.
    Lineage,
    /// A generation.
    Generation,
    /// A path within a checkpoint.
    Path,
    /// A tag.
    Tag,
    /// A directory to checkpoint or to compare with.
    Source,
}

impl Wanted {
    const fn word(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Lineage => "lineage",
            Self::Generation => "generation",
            Self::Path => "path",
            Self::Tag => "tag",
            Self::Source => "directory",
        }
    }
}

/// An error of an operation on a store. Unless a variant says otherwise, nothing was published and nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operating-system call failed.
    #[error("cannot {op} {}", path.display())]
    Io {
        /// What was tried, as a verb: "open", "sync", "read".
        op: &'static str,
        /// The path it was tried on.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The live generation cannot be trusted; every operation that needs it refuses.
    #[error("{fault} (store {})", store.display())]
    Selector {
        /// The store.
        store: PathBuf,
        /// What is wrong.
        fault: SelectorFault,
    },
    /// There is nothing at the store's path.
    #[error("there is no store at {}", path.display())]
    StoreNotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// What stands at the store's path is not a store, or not one that this operation may touch.
    #[error("{} is not a genstore store: {problem}", path.display())]
    NotAStore {
        /// The path.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// `init` on something that is neither absent, empty nor an unfinished init.
    #[error("{} already holds a store", path.display())]
    StoreExists {
        /// The path.
        path: PathBuf,
    },
    /// One of the store's fixed files or directories is something else.
    #[error("{} is a {found}, not a {expected}", path.display())]
    FixedNameTaken {
        /// The path.
        path: PathBuf,
        /// What stands there.
        found: &'static str,
        /// What should.
        expected: &'static str,
    },
    /// The effective user is not the store's owner.
    #[error("the store {} belongs to user {owner}, not to user {user}", path.display())]
    NotOwner {
        /// The store.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
        /// The effective uid.
        user: u32,
    },
    /// The file system has no working shared flock.
    #[error("the file system of {} has no working locks", path.display())]
    LocksUnsupported {
        /// Where the lock was tried.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The lock was not free within the wait.
    #[error("the store is in use: {holder}")]
    StoreBusy {
        /// What LOCK says about its holder.
        holder: String,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
    /// The state moved more often than the bounded retries allow.
    #[error("the live generation kept changing while the operation ran")]
    Conflict,
    /// CURRENT was renamed but the sync after it failed: the new state is visible, perhaps not durable.
    /// Nothing was rolled back. Resolve again to learn the outcome.
    #[error("published {generation}, but it is not certain to survive a power loss")]
    PublishUncertain {
        /// The generation that CURRENT names now.
        generation: GenerationId,
        /// The failed sync.
        source: io::Error,
    },
    /// Packs cannot be hard-linked here, and copying them was not allowed.
    #[error("hard links are not supported at {}, and a checkpoint would copy {bytes} bytes", path.display())]
    LinksUnsupported {
        /// The store.
        path: PathBuf,
        /// How much would be copied, in bytes.
        bytes: u64,
    },
    /// An object that is needed is not in the store.
    #[error("object {object}{} is missing from {}", needed_by(needed.as_deref()), place.display())]
    ObjectMissing {
        /// The object.
        object: ObjectId,
        /// The generation's directory.
        place: PathBuf,
        /// The path of the checkpoint that needs it, where that is known.
        needed: Option<Vec<u8>>,
    },
    /// An object, pack or manifest does not hold what its name promises.
    #[error("{} is damaged: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The object, when it is one.
        object: Option<ObjectId>,
        /// What is wrong.
        problem: String,
    },
    /// No such thing.
    #[error("no {} {}{}", wanted.word(), quoted(name), context(detail))]
    NotFound {
        /// What was looked for.
        wanted: Wanted,
        /// The name as given.
        name: String,
        /// Where it was looked for, or what was there instead; may be empty.
        detail: String,
    },
    /// More than one thing has that name.
    #[error("{} {} is ambiguous: {}", wanted.word(), quoted(name), candidates.join(", "))]
    Ambiguous {
        /// What was looked for.
        wanted: Wanted,
        /// The name as given.
        name: String,
        /// What it could be.
        candidates: Vec<String>,
    },
    /// The request itself is wrong.
    #[error("{what}: {problem}")]
    Invalid {
        /// Which part of the request.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The operation needs an explicit word from the caller. `code` says which.
    #[error("{message}")]
    Refused {
        /// Stable code, such as `wide_source` or `left_behind`.
        code: &'static str,
        /// What was refused, and why.
        message: String,
        /// What to run or add.
        hint: String,
        /// The things concerned (checkpoints left behind, paths in the way), for programs.
        items: Vec<String>,
    },
    /// The operation cannot be undone (any more).
    #[error("cannot undo {what}: {problem}")]
    UndoUnavailable {
        /// The operation.
        what: String,
        /// Why not.
        problem: String,
    },
    /// The directory given to `activate` is not a candidate that could be activated. Nothing was written.
    #[error("{} cannot be activated: {problem}", path.display())]
    CandidateInvalid {
        /// The candidate.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// The caller cancelled, or a deadline passed. Nothing was published; temporary files are gone.
    #[error("stopped: {reason}")]
    Cancelled {
        /// Stable code: `cancelled` or `deadline`.
        code: &'static str,
        /// Which.
        reason: String,
    },
}

/// A name for people. Names from a store are escaped already; what somebody typed may hold anything.
fn quoted(name: &str) -> String {
    if name.chars().any(char::is_control) {
        format!("{name:?}")
    } else {
        format!("\"{name}\"")
    }
}

fn needed_by(path: Option<&[u8]>) -> String {
    path.map(|path| format!(", which {} needs,", crate::name::escape(path)))
        .unwrap_or_default()
}

fn context(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    }
}

impl Error {
    pub(crate) fn io(
        op: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io {
            op,
            path: path.as_ref().to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn not_found(
        wanted: Wanted,
        name: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self::NotFound {
            wanted,
            name: name.into(),
            detail: detail.into(),
        }
    }

    pub(crate) fn invalid(what: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            what,
            problem: problem.into(),
        }
    }

    pub(crate) fn damaged(
        path: impl AsRef<Path>,
        object: Option<ObjectId>,
        problem: impl Into<String>,
    ) -> Self {
        Self::Damaged {
            path: path.as_ref().to_owned(),
            object,
            problem: problem.into(),
        }
    }

    pub(crate) fn refused(
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Refused {
            code,
            message: message.into(),
            hint: hint.into(),
            items: Vec::new(),
        }
    }

    /// The stable, documented code (`docs/cli.md` lists them all).
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { source, .. } => match source
                .raw_os_error()
                .map(rustix::io::Errno::from_raw_os_error)
            {
                Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => "disk_full",
                Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => "permission_denied",
                Some(rustix::io::Errno::ROFS) => "read_only",
                Some(rustix::io::Errno::BUSY) => "resource_busy",
                Some(rustix::io::Errno::MLINK) => "too_many_links",
                _ => "io",
            },
            Self::Selector { fault, .. } => fault.code(),
            Self::StoreNotFound { .. } => "store_not_found",
            Self::NotAStore { .. } => "not_a_store",
            Self::StoreExists { .. } => "store_exists",
            Self::FixedNameTaken { .. } => "fixed_name_taken",
            Self::NotOwner { .. } => "not_owner",
            Self::LocksUnsupported { .. } => "locks_unsupported",
            Self::StoreBusy { .. } => "store_busy",
            Self::Conflict => "conflict",
            Self::PublishUncertain { .. } => "publish_uncertain",
            Self::LinksUnsupported { .. } => "links_unsupported",
            Self::ObjectMissing { .. } => "object_missing",
            Self::Damaged { .. } => "damaged",
            Self::NotFound { wanted, .. } => match wanted {
                Wanted::Checkpoint => "checkpoint_not_found",
                Wanted::Lineage => "lineage_not_found",
                Wanted::Generation => "generation_not_found",
                Wanted::Path => "path_not_found",
                Wanted::Tag => "tag_not_found",
                Wanted::Source => "source_not_found",
            },
            Self::Ambiguous { .. } => "ambiguous",
            Self::Invalid { .. } => "invalid",
            Self::Refused { code, .. } | Self::Cancelled { code, .. } => code,
            Self::UndoUnavailable { .. } => "undo_unavailable",
            Self::CandidateInvalid { .. } => "candidate_invalid",
        }
    }

    /// What kind of answer this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. }
            | Self::Conflict
            | Self::PublishUncertain { .. }
            | Self::UndoUnavailable { .. }
            | Self::Cancelled { .. } => ErrorKind::Failed,
            Self::Invalid { .. } => ErrorKind::Usage,
            Self::ObjectMissing { .. } | Self::Damaged { .. } | Self::CandidateInvalid { .. } => {
                ErrorKind::Damage
            }
            Self::Selector { .. } | Self::FixedNameTaken { .. } => ErrorKind::Untrusted,
            Self::StoreBusy { .. } => ErrorKind::Busy,
            Self::StoreNotFound { .. } | Self::NotFound { .. } | Self::Ambiguous { .. } => {
                ErrorKind::NotFound
            }
            Self::NotAStore { .. }
            | Self::StoreExists { .. }
            | Self::NotOwner { .. }
            | Self::LocksUnsupported { .. }
            | Self::LinksUnsupported { .. }
            | Self::Refused { .. } => ErrorKind::Refused,
        }
    }

    /// Whether the store's live state is unavailable: nothing is lost, but `CURRENT` has to be mended first.
    /// The same handle works again afterwards.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Selector { .. } | Self::FixedNameTaken { .. })
    }

    /// The next command or action, if there is one that helps.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io { .. } => match self.code() {
                "disk_full" => "free some space and run the same command again; the store is as it was".to_owned(),
                "permission_denied" => "check the permissions of that path".to_owned(),
                "resource_busy" => {
                    "that path is a mount point; unmount it, or keep the store on one file system, then run the same command again".to_owned()
                }
                "too_many_links" => {
                    "remove emptied generation directories: find generations -mindepth 1 -type d -empty -mmin +60 -delete".to_owned()
                }
                _ => return None,
            },
            Self::Selector { store, fault } => {
                let status = format!("genstore status --store {}", crate::name::quote_path(store));
                match fault {
                    SelectorFault::NotRegular { found: "directory" } => {
                        let current = crate::name::quote_path(&store.join("CURRENT"));
                        format!("move it out of the way: mv {current} {current}.aside; then `{status}` names the generation to activate")
                    }
                    _ => format!("run `{status}`: it names the generation to activate"),
                }
            }
            Self::FixedNameTaken { path, .. } => format!(
                "move it out of the way: mv {0} {0}.aside; then run `genstore status`",
                crate::name::quote_path(path)
            ),
            Self::StoreNotFound { path } => {
                format!("create one: genstore init --store {}", crate::name::quote_path(path))
            }
            Self::NotAStore { .. } => "name another directory with --store".to_owned(),
            Self::StoreExists { path } => {
                format!("use it: genstore status --store {}", crate::name::quote_path(path))
            }
            Self::NotOwner { user, .. } if *user != 0 => "run as the owner of the store, or name another store".to_owned(),
            Self::NotOwner { .. } => "run as the owner, or add --as-owner to give what is written to the owner".to_owned(),
            Self::LocksUnsupported { .. } => {
                "if only this host uses the store, add --single-host; else move the store to a local file system".to_owned()
            }
            Self::StoreBusy { .. } => "run the same command again, or wait longer with --lock-wait SECONDS".to_owned(),
            Self::Conflict => "run the same command again".to_owned(),
            Self::PublishUncertain { .. } => {
                "run `genstore status` to see the live generation; check the disk before relying on it".to_owned()
            }
            Self::LinksUnsupported { .. } => {
                "create the store with `genstore init --copy-packs`, or on a file system with hard links".to_owned()
            }
            Self::ObjectMissing { .. } | Self::Damaged { .. } => {
                "run `genstore verify` to see which checkpoints and paths are concerned".to_owned()
            }
            Self::NotFound { wanted, .. } => match wanted {
                Wanted::Checkpoint | Wanted::Tag => "list them: genstore log --all".to_owned(),
                Wanted::Lineage => "list them: genstore lineage list".to_owned(),
                Wanted::Generation => "list them: genstore status".to_owned(),
                Wanted::Path => "list what is there: genstore show ID --files".to_owned(),
                Wanted::Source => "name a directory that exists".to_owned(),
            },
            Self::Ambiguous { wanted, .. } => match wanted {
                Wanted::Lineage | Wanted::Tag => "name one with --lineage".to_owned(),
                _ => "give more digits of the id".to_owned(),
            },
            Self::Refused { hint, .. } if !hint.is_empty() => hint.clone(),
            Self::CandidateInvalid { path, .. } => {
                format!("see what is wrong with it: genstore verify {}", crate::name::quote_path(path))
            }
            Self::Invalid { .. }
            | Self::Refused { .. }
            | Self::UndoUnavailable { .. }
            | Self::Cancelled { .. } => return None,
        })
    }
}
