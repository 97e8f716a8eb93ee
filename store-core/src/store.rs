//! The handle that callers hold. It remembers where the store is and how to work with it, and nothing of its state.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::format::catalog::CheckpointRef;
use crate::format::checkpoint::{Actor, Role};
use crate::id::GenerationId;
use crate::ops::Published;
use crate::ops::activate::{self, ActivateOptions, ActivateTarget, Activated};
use crate::ops::annotate;
use crate::ops::checkpoint::{self, CheckpointRequest, Checkpointed};
use crate::ops::init::{self, InitOutcome, InitRequest};
use crate::ops::read::{CheckpointInfo, View};
use crate::ops::restore::{self, RestorePlanned, RestoreRequest};
use crate::ops::status::{self, Status};
use crate::ops::undo::{self, UndoPlan};
use crate::ops::verify::{self, VerifyReport, VerifyTarget};
use crate::progress::{Cancel, NoProgress, Progress};
use crate::root::{Context, Root};
use crate::worktree::capture::CaptureOptions;
use crate::{Error, Result, Wanted, layout};

/// How to work with a store. Everything that the library does not ask the system for is given here.
#[derive(Clone)]
#[must_use = "options do nothing until a store is opened with them"]
pub struct StoreOptions(Context);

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreOptions {
    /// The defaults: 30 s of waiting for LOCK, the system's clock, no progress, as many threads as there are cores.
    pub fn new() -> Self {
        Self(Context {
            clock: Arc::new(SystemClock),
            progress: Arc::new(NoProgress),
            cancel: Cancel::new(),
            lock_wait: Duration::from_secs(30),
            as_owner: false,
            single_host: false,
            threads: 0,
            verb: "library".to_owned(),
            #[cfg(feature = "planted")]
            planted: None,
        })
    }

    /// How long to wait for LOCK before [`Error::StoreBusy`].
    pub fn lock_wait(mut self, wait: Duration) -> Self {
        self.0.lock_wait = wait;
        self
    }

    /// Write into a store of another user, giving everything to its owner.
    pub fn as_owner(mut self, as_owner: bool) -> Self {
        self.0.as_owner = as_owner;
        self
    }

    /// Accept a file system without working shared locks: only this host uses the store, and nothing reclaims it meanwhile.
    pub fn single_host(mut self, single_host: bool) -> Self {
        self.0.single_host = single_host;
        self
    }

    /// Where the time comes from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.0.clock = clock;
        self
    }

    /// Who hears how far operations have come.
    pub fn progress(mut self, progress: Arc<dyn Progress>) -> Self {
        self.0.progress = progress;
        self
    }

    /// The flag that stops operations.
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.0.cancel = cancel;
        self
    }

    /// How many threads an operation may use; 0: as many as there are cores; 1: only the caller's own.
    pub fn threads(mut self, threads: usize) -> Self {
        self.0.threads = threads;
        self
    }

    /// What LOCK tells others that its holder is doing.
    pub fn verb(mut self, verb: &str) -> Self {
        verb.clone_into(&mut self.0.verb);
        self
    }

    /// Plants a bug that a test harness must catch.
    #[cfg(feature = "planted")]
    #[doc(hidden)]
    pub fn planted(mut self, bug: crate::planted::Bug) -> Self {
        self.0.planted = Some(bug);
        self
    }

    /// Opens an existing store. Succeeds on an untrusted selector: each operation then says what is wrong.
    ///
    /// # Errors
    /// [`Error::StoreNotFound`] if nothing is there, [`Error::NotAStore`] if something else is.
    pub fn open(self, path: &Path) -> Result<Store> {
        Root::open(path)?;
        Ok(Store {
            path: path.to_owned(),
            context: self.0,
        })
    }

    /// Makes a store in an absent or empty directory, or finishes one whose making was interrupted.
    ///
    /// # Durability
    /// The store survives power loss once this returns `Ok`.
    ///
    /// # Errors
    /// [`Error::StoreExists`] if there is one; [`Error::NotAStore`] if the directory holds anything else.
    pub fn init(self, path: &Path, request: InitRequest) -> Result<InitOutcome> {
        init::init(path, &self.0, request)
    }

    /// Opens the store at a default place, making it if nothing is there; `true`: it was made (or finished) by this call.
    ///
    /// Many callers at once get one store.
    ///
    /// # Errors
    /// As [`Self::open`] and [`Self::init`].
    pub fn open_or_init(self, path: &Path) -> Result<(Store, bool)> {
        let unfinished = match Root::open(path) {
            Ok(root) => init::looks_unfinished(&root)?,
            Err(Error::StoreNotFound { .. }) => true,
            Err(error) => return Err(error),
        };
        let made = if unfinished {
            match init::init(path, &self.0, InitRequest::default()) {
                Ok(_) => true,
                // Somebody else was quicker.
                Err(Error::StoreExists { .. }) => false,
                Err(error) => return Err(error),
            }
        } else {
            false
        };
        Ok((self.open(path)?, made))
    }
}

/// A store. Cheap, `Send` and `Sync`; every operation resolves the live generation afresh, so a handle that was held
/// while CURRENT was broken works again once it is mended.
#[derive(Clone)]
pub struct Store {
    path: PathBuf,
    context: Context,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store with the default options.
    ///
    /// # Errors
    /// As [`StoreOptions::open`].
    pub fn open(path: &Path) -> Result<Self> {
        StoreOptions::new().open(path)
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn root(&self) -> Result<Root> {
        Root::open(&self.path)
    }

    /// Resolves and pins the live generation for reading.
    ///
    /// # Errors
    /// [`Error::Selector`] if it cannot be trusted.
    pub fn view(&self) -> Result<View> {
        View::open(&self.root()?, &self.context, None)
    }

    /// Pins any generation of the store for reading; needs no CURRENT.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not there, [`Error::Damaged`] if its manifest is not what its name says.
    pub fn view_generation(&self, id: &GenerationId) -> Result<View> {
        View::open(&self.root()?, &self.context, Some(id))
    }

    /// The generation of a full id, `gen-` and a sequence number, or any unique beginning of an id.
    ///
    /// # Errors
    /// [`Error::NotFound`] or [`Error::Ambiguous`].
    pub fn find_generation(&self, prefix: &str) -> Result<GenerationId> {
        let mut found: Vec<GenerationId> = Vec::new();
        for name in self.root()?.sub(layout::GENERATIONS)?.list()? {
            let Some(id) = GenerationId::parse(name.as_encoded_bytes()) else {
                continue;
            };
            if id.to_string().starts_with(prefix) || sequence_of(prefix) == Some(id.sequence()) {
                found.push(id);
            }
        }
        found.sort_unstable();
        match &found[..] {
            [] => Err(Error::not_found(Wanted::Generation, prefix, "")),
            [only] => Ok(*only),
            several => Err(Error::Ambiguous {
                wanted: Wanted::Generation,
                name: prefix.to_owned(),
                candidates: several.iter().take(8).map(ToString::to_string).collect(),
            }),
        }
    }

    /// A checkpoint of a source directory, to be described further and then run.
    pub fn checkpoint(&self, source: &Path) -> CheckpointBuilder<'_> {
        let request = CheckpointRequest {
            source: source.to_owned(),
            ..CheckpointRequest::default()
        };
        CheckpointBuilder {
            store: self,
            request,
        }
    }

    /// Plans writing a checkpoint out. Nothing is written until the plan is applied.
    ///
    /// # Errors
    /// [`Error::NotFound`] if a path is not in the checkpoint, [`Error::Refused`] if the target is not empty (and
    /// overwriting was not asked for), [`Error::ObjectMissing`] if anything that is needed is not there.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers build the request in place"
    )]
    pub fn restore<'v>(
        &self,
        view: &'v View,
        checkpoint: &CheckpointInfo,
        request: RestoreRequest,
    ) -> Result<RestorePlanned<'v>> {
        restore::plan(&self.context, view, checkpoint, &request)
    }

    /// Reports on the store; `Ok` also while the selector cannot be trusted, with the fault inside.
    ///
    /// # Errors
    /// Only if the store's directory cannot be read at all.
    pub fn status(&self) -> Result<Status> {
        status::status(&self.root()?, &self.context)
    }

    /// Checks a generation: every byte of every pack, and that each checkpoint has everything it needs. Changes nothing.
    ///
    /// # Errors
    /// If the target cannot be read; damage is part of the report.
    pub fn verify(&self, target: &VerifyTarget, quick: bool) -> Result<VerifyReport> {
        verify::verify(&self.root()?, &self.context, target, quick)
    }

    /// Makes another complete state live: a candidate directory, or a generation of this store.
    ///
    /// # Durability
    /// Survives power loss once this returns `Ok`. On any other error than [`Error::PublishUncertain`], CURRENT's bytes are as they were.
    ///
    /// # Errors
    /// [`Error::CandidateInvalid`], [`Error::Refused`] (`left_behind`, `candidate_foreign`, `cannot_carry`), [`Error::Selector`]
    /// unless an untrusted selector may be replaced.
    pub fn activate(&self, target: &ActivateTarget, options: ActivateOptions) -> Result<Activated> {
        activate::activate(&self.root()?, &self.context, target, options)
    }

    /// Says what an undo would take back: the operation that made `generation`, by default the latest, if it is this
    /// user's and on the lineage `here`.
    ///
    /// # Errors
    /// [`Error::UndoUnavailable`] or [`Error::Refused`].
    pub fn plan_undo(
        &self,
        generation: Option<&GenerationId>,
        here: Option<&[u8]>,
    ) -> Result<UndoPlan> {
        undo::plan(&self.root()?, &self.context, generation, here)
    }

    /// Publishes the inverse of one operation on today's catalog.
    ///
    /// # Errors
    /// [`Error::UndoUnavailable`] if the state does not allow it any more.
    pub fn undo(&self, plan: &UndoPlan, leave_behind: bool) -> Result<Published> {
        undo::undo(&self.root()?, &self.context, plan, leave_behind)
    }

    /// Puts a tag on a checkpoint.
    ///
    /// # Errors
    /// [`Error::Refused`] (`tag_exists`) if another checkpoint of the lineage has it and it is not to be moved.
    pub fn set_tag(&self, at: &CheckpointRef, tag: &str, move_it: bool) -> Result<Published> {
        annotate::set_tag(&self.root()?, &self.context, at, tag, move_it)
    }

    /// Takes a tag away.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the lineage has no such tag.
    pub fn remove_tag(&self, lineage: &[u8], tag: &str) -> Result<Published> {
        annotate::remove_tag(&self.root()?, &self.context, lineage, tag)
    }

    /// Pins a checkpoint, so that retention spares it, or unpins it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not there any more.
    pub fn set_pinned(&self, at: &CheckpointRef, pinned: bool) -> Result<Published> {
        annotate::set_pinned(&self.root()?, &self.context, at, pinned)
    }

    /// Sets a checkpoint's note (at most 4,096 bytes); an empty one removes it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not there any more.
    pub fn set_note(&self, at: &CheckpointRef, note: &[u8]) -> Result<Published> {
        annotate::set_note(&self.root()?, &self.context, at, note)
    }

    /// Archives a lineage: kept, out of use.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none of that name.
    pub fn archive_lineage(&self, name: &[u8], reason: &str) -> Result<Published> {
        annotate::archive(&self.root()?, &self.context, name, reason)
    }

    /// Takes a lineage back into use.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none of that name.
    pub fn unarchive_lineage(&self, name: &[u8]) -> Result<Published> {
        annotate::unarchive(&self.root()?, &self.context, name)
    }

    /// Gives a lineage another name.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none of that name, [`Error::Invalid`] or [`Error::Refused`] if the new one cannot be had.
    pub fn rename_lineage(&self, from: &[u8], to: &[u8]) -> Result<Published> {
        annotate::rename(&self.root()?, &self.context, from, to)
    }

    /// Looks for contradictions in the live catalog; for tests.
    ///
    /// # Errors
    /// If the live generation cannot be resolved.
    #[doc(hidden)]
    pub fn check_catalog(&self) -> Result<Vec<String>> {
        self.view()?.check_catalog()
    }
}

/// `gen-42` means sequence 42.
fn sequence_of(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("gen-")?;
    if digits.is_empty() || digits.len() > 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// A checkpoint that is being described.
#[derive(Debug)]
#[must_use = "nothing is done until it is run"]
pub struct CheckpointBuilder<'s> {
    store: &'s Store,
    request: CheckpointRequest,
}

impl CheckpointBuilder<'_> {
    /// The message, at most 64 KiB.
    pub fn message(mut self, message: &str) -> Self {
        self.request.message = message.as_bytes().to_vec();
        self
    }

    /// Tags to put on it.
    pub fn tags(mut self, tags: Vec<String>) -> Self {
        self.request.tags = tags;
        self
    }

    /// A key: the same lineage, role and key give the existing checkpoint (a retry after a lost answer).
    pub fn key(mut self, key: &[u8]) -> Self {
        self.request.key = Some(key.to_vec());
        self
    }

    /// Where in a turn it stands.
    pub fn role(mut self, role: Role) -> Self {
        self.request.role = role;
        self
    }

    /// Who made the changes.
    pub fn actor(mut self, actor: Actor) -> Self {
        self.request.actor = actor;
        self
    }

    /// The lineage, if it is not the source's own.
    pub fn lineage(mut self, name: &[u8]) -> Self {
        self.request.lineage = Some(name.to_vec());
        self
    }

    /// What to leave out, and other limits of the walk.
    pub fn capture(mut self, options: CaptureOptions) -> Self {
        self.request.capture = options;
        self
    }

    /// Make a checkpoint even if nothing changed.
    pub fn force(mut self, force: bool) -> Self {
        self.request.force = force;
        self
    }

    /// Accept `/` or the home directory as the source.
    pub fn allow_wide(mut self, allow: bool) -> Self {
        self.request.allow_wide = allow;
        self
    }

    /// Take the path for a place *in* a source: the nearest registered source that owns it is checkpointed, else the
    /// nearest directory with a project's marker (never at or above the home directory), else the path itself.
    pub fn discover(mut self, discover: bool) -> Self {
        self.request.discover = discover;
        self
    }

    /// The user's home directory, which counts as too wide a source.
    pub fn home(mut self, home: Option<PathBuf>) -> Self {
        self.request.home = home;
        self
    }

    /// How long the walk may take; then it stops with `deadline` and nothing stays behind.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.request.deadline = Some(deadline);
        self
    }

    /// Leave housekeeping to [`Checkpointed::finish`], so that the answer comes first.
    pub fn defer_housekeeping(mut self, defer: bool) -> Self {
        self.request.defer_housekeeping = defer;
        self
    }

    /// Captures the source and publishes the checkpoint; an unchanged source gives the existing one.
    ///
    /// # Durability
    /// What the answer names survives power loss once this returns `Ok`.
    ///
    /// # Errors
    /// Unless it is [`Error::PublishUncertain`], nothing was published and temporary files are gone.
    pub fn run(self) -> Result<Checkpointed> {
        checkpoint::checkpoint(&self.store.root()?, &self.store.context, &self.request)
    }
}
