//! A content-addressed, generational checkpoint store: checkpoints of work trees that can be trusted.
//!
//! ```text
//! <store>/
//!   CURRENT          one line: the id of the live generation
//!   LOCK             held by whoever publishes
//!   generations/
//!     gen-0000000042-…/   a whole store state, frozen: manifest.json and packs of objects
//!   incoming/        writers at work          cache/   derived data
//! ```
//!
//! A **checkpoint** is one state of one work tree; the checkpoints of one source are its **lineage**; all lineages are the
//! **catalog** of a **generation**. Every change writes a new generation and then replaces `CURRENT`, which is the only
//! commit point. The format is described in `docs/format.md`, the invariants in `docs/invariants.md`.
//!
//! # Promises
//!
//! - A published generation never changes. `CURRENT` alone says which one is live.
//! - Anything doubtful about it fails closed, with a code and a way out: see [`Error::code`], [`Error::hint`] and
//!   [`Error::is_unavailable`]. A [`Store`] handle works again once the fault is mended.
//! - What returned `Ok` is in the store and survives power loss. (A restore writes to a work tree, and syncs nothing there.)
//! - Every byte that is returned was compared with its BLAKE3 since it was read.
//! - The work tree is never written to, except by a restore that was asked for.
//! - This crate does not print, exit, or keep global state; every value is `Send + Sync`. Of the environment it reads
//!   only the time zone, for `@TIME` without an offset.
//!
//! # Limitations
//!
//! - Unix only. Locks are `flock`: a file system without it is refused unless [`StoreOptions::single_host`] is set.
//! - Generations share packs by hard links: a bad block in a shared pack is bad in every generation that links it.
//! - A store through a shared memory map can change a file's bytes without changing its times; such a file is seen only
//!   with [`worktree::capture::CaptureOptions::rehash`].
//! - Extended attributes, hard links within a tree, and holes have their place in the format and are not captured yet.
//!
//! # Example
//!
//! ```
//! use store_core::{RestoreRequest, StoreOptions, VerifyTarget};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let (place, project, target) = (dir.path().join("store"), dir.path().join("project"), dir.path().join("out"));
//! # std::fs::create_dir(&project)?;
//! # std::fs::write(project.join("notes.txt"), "first")?;
//! // A runtime opens its store once and keeps the handle; opening it for the first time makes it.
//! let (store, _made) = StoreOptions::new().verb("my-runtime").open_or_init(&place)?;
//!
//! // Before a risky step:
//! let before = store.checkpoint(&project).message("before the refactoring").key(b"turn-17").run()?;
//! assert!(before.created && before.complete);
//!
//! // The step goes wrong …
//! std::fs::write(project.join("notes.txt"), "overwritten")?;
//!
//! // … and the state of before is written out again.
//! let view = store.view()?;
//! let checkpoint = view.find(&before.id.to_string(), None)?;
//! let plan = store.restore(&view, &checkpoint, RestoreRequest { to: target.clone(), ..RestoreRequest::default() })?;
//! let report = plan.apply()?;
//! assert!(report.failed.is_empty());
//! assert_eq!(std::fs::read_to_string(target.join("notes.txt"))?, "first");
//!
//! // The same key gives the same checkpoint: a retry after a lost answer makes no second one.
//! let again = store.checkpoint(&project).key(b"turn-17").run()?;
//! assert_eq!(again.id, before.id);
//!
//! assert!(store.verify(&VerifyTarget::Live, false)?.ok);
//!
//! // What cannot be trusted fails closed.
//! std::fs::write(place.join("CURRENT"), "gen-1\n")?;
//! let error = store.view().err().expect("a malformed selector is refused");
//! assert!(error.is_unavailable());
//! assert_eq!(error.code(), "selector_malformed");
//! assert!(store.status().is_ok(), "status explains, whatever is broken");
//! # Ok(())
//! # }
//! ```

pub mod catalog;
pub mod clock;
mod disk;
pub mod error;
pub mod format;
mod generation;
pub mod id;
mod layout;
mod lock;
mod map;
pub mod name;
pub mod objects;
mod ops;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub mod planted;
pub mod progress;
mod receipts;
mod root;
mod selector;
mod store;
pub mod worktree;

pub use error::{Error, ErrorKind, Result, SelectorFault, Wanted};
pub use ops::activate::{ActivateOptions, ActivateTarget, Activated};
pub use ops::checkpoint::{ChangeCounts, Checkpointed};
pub use ops::init::{InitOutcome, InitRequest};
pub use ops::read::{CheckpointInfo, LineageInfo, View, WorktreeDiff};
pub use ops::restore::{PathReason, RestorePlan, RestorePlanned, RestoreReport, RestoreRequest};
pub use ops::status::{BytesStatus, GenerationStatus, SelectorStatus, Status};
pub use ops::undo::UndoPlan;
pub use ops::verify::{Damage, VerifyReport, VerifyTarget};
pub use ops::{Published, Warning};
pub use store::{CheckpointBuilder, Store, StoreOptions};
