//! `checkpoint`: capture a work tree outside LOCK, then commit its record (design sections 4 and 6).

mod capture;
mod decide;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use crate::format::checkpoint::{
    Actor, CheckpointRecord, Counts, LeftOut, Role, encode_left_out, encode_rules,
};
use crate::format::manifest::Manifest;
use crate::format::stat_cache;
use crate::id::{GenerationId, ObjectId};
use crate::objects::ObjectSource;
use crate::root::{Context, Root};
use crate::worktree;
use crate::worktree::capture::CaptureOptions;
use crate::worktree::compare::{self, ChangeKind};
use crate::{Error, Result, layout};

use super::Warning;
use super::base::{Access, Base};
use super::commit::{self, Committed, PACKS_TARGET, Prepared};
use super::staging::Staging;
use decide::{Change, Decided, Existing, TreeTap};
use source::Source;

pub(crate) use capture::{Captured, cache_bytes, capture_into, usable_cache};

/// How often a checkpoint starts again because an activation came in between.
const MAX_RESTARTS: u32 = 8;

/// What to checkpoint, and as what.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckpointRequest {
    pub(crate) source: PathBuf,
    pub(crate) message: Vec<u8>,
    pub(crate) tags: Vec<String>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) role: Role,
    pub(crate) actor: Actor,
    pub(crate) lineage: Option<Vec<u8>>,
    pub(crate) capture: CaptureOptions,
    pub(crate) force: bool,
    pub(crate) allow_wide: bool,
    pub(crate) discover: bool,
    pub(crate) home: Option<PathBuf>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) defer_housekeeping: bool,
}

/// How many paths differ from the checkpoint before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Paths that are new.
    pub added: u64,
    /// Paths whose content, mode, times or owner differ.
    pub modified: u64,
    /// Paths that are gone.
    pub removed: u64,
    /// Paths that became another kind of thing.
    pub type_changed: u64,
}

/// A checkpoint that was made, or the existing one that says the same.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Debug)]
#[non_exhaustive]
pub struct Checkpointed {
    /// The checkpoint's id.
    pub id: ObjectId,
    /// The generation that is live now and holds it.
    pub generation: GenerationId,
    /// Whether a new generation was published.
    pub created: bool,
    /// False if something is unreadable or was changing all the time; `left_out` says what.
    pub complete: bool,
    /// The lineage's name.
    pub lineage: Vec<u8>,
    /// The checkpoint's number in its lineage.
    pub number: u64,
    /// The source's canonical path.
    pub source: PathBuf,
    /// Every path that is not in it, once at its top, with the reason.
    pub left_out: Vec<LeftOut>,
    /// What it holds.
    pub counts: Counts,
    /// What differs from the checkpoint before.
    pub changes: ChangeCounts,
    /// The checkpoint before.
    pub previous: Option<ObjectId>,
    /// How many objects that the store had lost were written again.
    pub healed: u64,
    /// The key was used before: this is that checkpoint, and the source was not looked at.
    pub by_key: bool,
    /// Things that went wrong without touching the result.
    pub warnings: Vec<Warning>,
    /// Whether `maintain` has something to do.
    pub maintain_due: bool,
    later: Option<Box<Later>>,
}

#[derive(Debug)]
struct Later {
    root: Root,
    context: Context,
    cache: Option<Vec<u8>>,
    manifest: Option<Box<Manifest>>,
}

impl Checkpointed {
    /// Does what can wait until after the answer: writes the stat cache, reclaims old generations.
    ///
    /// Never fails its caller; what goes wrong only makes the next checkpoint slower. Dropping the value does the same.
    pub fn finish(&mut self) {
        let Some(later) = self.later.take() else {
            return;
        };
        if let Some(bytes) = &later.cache {
            capture::write_cache(&later.root, &self.lineage, bytes).ok();
        }
        if later.manifest.is_some() {
            housekeep(&later.root, &later.context).ok();
        }
    }
}

impl Drop for Checkpointed {
    fn drop(&mut self) {
        self.finish();
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("verb", &self.verb)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Root").field(&self.dir.path()).finish()
    }
}

/// Checkpoints a source.
pub(crate) fn checkpoint(
    root: &Root,
    context: &Context,
    request: &CheckpointRequest,
) -> Result<Checkpointed> {
    check_request(request)?;
    let root = root.writable(context)?;
    let source = if request.discover {
        let place = source::discovered(&root, context, request)?;
        source::open_source(
            &root,
            &CheckpointRequest {
                source: place,
                ..request.clone()
            },
        )?
    } else {
        source::open_source(&root, request)?
    };
    for _ in 0..MAX_RESTARTS {
        if let Some(done) = attempt(&root, context, request, &source)? {
            return Ok(done);
        }
    }
    Err(Error::Conflict)
}

fn check_request(request: &CheckpointRequest) -> Result<()> {
    if request.message.len() > 64 << 10 {
        return Err(Error::invalid("message", "it is longer than 64 KiB"));
    }
    if request
        .key
        .as_ref()
        .is_some_and(|key| key.is_empty() || key.len() > 1024)
    {
        return Err(Error::invalid("key", "a key has 1 to 1,024 bytes"));
    }
    if let Some(tag) = request.tags.iter().find(|tag| !crate::name::is_tag(tag)) {
        return Err(Error::invalid(
            "tag",
            format!(
                "{tag:?} cannot be a tag: it looks like an id, `latest`, `first` or `@TIME`, or has spaces"
            ),
        ));
    }
    if request
        .lineage
        .as_ref()
        .is_some_and(|name| !crate::name::is_lineage_name(name))
    {
        return Err(Error::invalid(
            "lineage",
            "a lineage name has 1 to 4,096 bytes, no NUL and no line feed",
        ));
    }
    Ok(())
}

/// One attempt against one base state. `None`: an activation came in between.
fn attempt(
    root: &Root,
    context: &Context,
    request: &CheckpointRequest,
    source: &Source,
) -> Result<Option<Checkpointed>> {
    let base = Base::open(root, context, Access::Mapped)?;
    decide::refuse_read_only(base.manifest())?;
    let name = source::lineage_name(&base, request, source)?;
    if request.tags.is_empty()
        && let Some(known) = decide::known_key(&base.catalog()?, &name, request)?
    {
        root.dir.sync()?;
        return finish_existing(&base, &known, source, name).map(Some);
    }
    let bytes = if request.capture.rehash {
        None
    } else {
        cache_bytes(root, &name)?
    };
    let cache = bytes
        .as_deref()
        .and_then(|bytes| usable_cache(&base, &name, bytes));
    let incoming = root.sub_or_make(layout::INCOMING)?;
    let staging = if request.capture.rehash {
        Staging::reading_back(&incoming, &base.objects)
    } else {
        Staging::new(&incoming, Some(&base.objects))
    };
    let (captured, trees) = {
        let tap = TreeTap::new(&staging, decide::latest(&base.catalog()?, &name)?.is_some());
        let work_tree = worktree::Root::open_resolved(source.path.clone())?;
        let mut options = request.capture.clone();
        options.deadline = request
            .deadline
            .map(|limit| context.clock.monotonic() + limit);
        let captured = capture_into(
            root,
            context,
            &work_tree,
            &options,
            cache,
            &tap,
            Some((&base, &name)),
        )?;
        (captured, tap.into_trees())
    };
    let rules = decide::store_list(&staging, &captured.rules, encode_rules)?;
    let left_out = decide::store_list(&staging, &captured.left_out, encode_left_out)?;
    let new_objects = staging.new_objects();
    // Once damage is recorded, new objects are ordinary ones again.
    let healing = base.has_unrecorded_damage() || request.capture.rehash;
    let healed = if healing { new_objects } else { 0 };
    let mut prepared = Prepared::new(&base, &incoming);
    prepared.stands_on = cache.map(|cache| cache.header().checkpoint);
    prepared.data(staging, new_objects > 0)?;
    let change = Change {
        #[cfg(feature = "planted")]
        planted: (context.planted, &base),
        request,
        source,
        name: &name,
        captured: &captured,
        trees: &trees,
        rules,
        left_out,
        healed,
    };
    let housekeep = !request.defer_housekeeping;
    let committed = commit::commit(
        root,
        context,
        prepared,
        housekeep,
        &mut |now, edit, staging| change.decide(now, edit, staging),
    )?;
    Ok(answer(
        root, context, request, source, &name, captured, healed, committed,
    ))
}

/// The answer for a committed (or existing) checkpoint.
#[expect(
    clippy::too_many_arguments,
    reason = "what was asked, what was captured, and how it ended"
)]
fn answer(
    root: &Root,
    context: &Context,
    request: &CheckpointRequest,
    source: &Source,
    name: &[u8],
    captured: Captured,
    healed: u64,
    committed: Committed<Decided>,
) -> Option<Checkpointed> {
    let (generation, created, decided, manifest, warnings) = match committed {
        Committed::Restart => return None,
        Committed::Nothing { generation, value } => (generation, false, value, None, Vec::new()),
        Committed::Published {
            generation,
            value,
            manifest,
            warnings,
            ..
        } => (generation, true, value, Some(manifest), warnings),
    };
    let is_new = decided
        .previous
        .as_ref()
        .is_none_or(|previous| previous.at.id != decided.at.id);
    let previous = decided.previous.as_ref();
    let (changes, mut warnings) = match previous {
        Some(previous) if is_new => {
            count_changes(root, context, &previous.record, &decided.record, warnings)
        }
        Some(_) => (ChangeCounts::default(), warnings),
        None => {
            let counts = &decided.record.counts;
            let added = counts.files + counts.directories + counts.links;
            (
                ChangeCounts {
                    added,
                    ..ChangeCounts::default()
                },
                warnings,
            )
        }
    };
    warnings.extend(captured.warnings.iter().map(capture::rule_warning));
    // The cache describes the tree of a checkpoint: the new one, or the existing one that has the very same tree.
    let same_tree = decided.record.tree == captured.root_tree;
    let cache = captured.new_cache.filter(|_| same_tree).map(|mut bytes| {
        stat_cache::seal(&mut bytes, &decided.at.id);
        bytes
    });
    let maintain_due = manifest
        .as_ref()
        .is_some_and(|manifest| manifest.packs.len() > PACKS_TARGET);
    Some(Checkpointed {
        id: decided.at.id,
        generation,
        created,
        complete: captured.complete,
        lineage: name.to_vec(),
        number: decided.at.number,
        source: source.path.clone(),
        left_out: captured.left_out,
        counts: decided.record.counts,
        changes,
        previous: previous.filter(|_| is_new).map(|previous| previous.at.id),
        healed,
        by_key: false,
        warnings,
        maintain_due,
        later: Some(Box::new(Later {
            root: root.clone(),
            context: context.clone(),
            cache,
            manifest: manifest.filter(|_| request.defer_housekeeping),
        })),
    })
}

/// Reclaims old generations, if nobody else is publishing right now.
fn housekeep(root: &Root, context: &Context) -> Result<()> {
    let patience = Context {
        lock_wait: Duration::ZERO,
        ..context.clone()
    };
    let _lock = crate::lock::StoreLock::acquire(&root.dir, patience.wait(), &context.lock_text())?;
    let live = crate::selector::resolve(root, context)?;
    // An unlink of published files only after the state that does without them is durable.
    root.dir.sync()?;
    crate::generation::reclaim_step(root, &live.manifest).map(drop)
}

/// How many paths differ from the checkpoint before. Only for the answer: a failure is a warning.
fn count_changes(
    root: &Root,
    context: &Context,
    before: &CheckpointRecord,
    after: &CheckpointRecord,
    mut warnings: Vec<Warning>,
) -> (ChangeCounts, Vec<Warning>) {
    let mut counts = ChangeCounts::default();
    let counted = Base::open(root, context, Access::Mapped).and_then(|now| {
        compare::diff_trees(
            &now.objects,
            Some(before.tree),
            Some(after.tree),
            &mut |change| match change.kind {
                ChangeKind::Added => counts.added += 1,
                ChangeKind::Modified => counts.modified += 1,
                ChangeKind::Deleted => counts.removed += 1,
                ChangeKind::TypeChanged => counts.type_changed += 1,
            },
        )
    });
    if let Err(error) = counted {
        warnings.push(Warning::from_error("changes_not_counted", &error));
    }
    (counts, warnings)
}

/// The answer for a key that was used before: nothing was captured.
fn finish_existing(
    base: &Base,
    known: &Existing,
    source: &Source,
    lineage: Vec<u8>,
) -> Result<Checkpointed> {
    let left_out = match &known.record.left_out {
        None => Vec::new(),
        Some(id) => {
            let bytes = base
                .objects
                .get(id, crate::format::checkpoint::MAX_LIST_BYTES)?;
            crate::format::checkpoint::decode_left_out(&bytes).map_err(|error| {
                Error::damaged(format!("object {id}"), Some(*id), error.to_string())
            })?
        }
    };
    Ok(Checkpointed {
        id: known.at.id,
        generation: base.live.id,
        created: false,
        complete: known.record.complete,
        lineage,
        number: known.at.number,
        source: source.path.clone(),
        left_out,
        counts: known.record.counts,
        changes: ChangeCounts::default(),
        previous: None,
        healed: 0,
        by_key: true,
        warnings: Vec::new(),
        maintain_due: false,
        later: None,
    })
}
