//! The commit: what was prepared outside LOCK meets the state under LOCK, and becomes a generation (design section 4).
//!
//! Every precondition is decided on the state that is resolved while LOCK is held (I5). Packs are only ever linked from
//! the live generation; objects that were relied on in an older one are copied.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::CatalogEdit;
use crate::disk::{Dir, FILE_MODE};
use crate::format::manifest::{
    Kept, KeptReason, Manifest, Operation, PackEntry, PackState, Policy, Request,
};
use crate::format::pack::MAX_BLOCK_BYTES;
use crate::generation::{self, Draft, EpochChoice, NewPack, NotPublished, SharedPack};
use crate::id::{GenerationId, ObjectId};
use crate::lock::StoreLock;
use crate::objects::{Class, ObjectSource};
use crate::root::{self, Context, Root};
use crate::selector::{self, Live, Raw};
use crate::{Error, Result, layout};

use super::base::{Access, Base};
use super::staging::{self, Staging};
use super::{Published, Warning};

/// How much may be copied, because links do not work, on the path of a commit.
const MAX_COPIES_BYTES: u64 = 64 << 20;
/// How often a commit goes around: to copy what a concurrent change took away, or packs that cannot be linked.
const MAX_ROUNDS: u32 = 16;
/// From this size on, a pack is sealed and synced before LOCK is taken.
const SYNC_FIRST_BYTES: u64 = 8 << 20;
/// How many packs a generation should have at most; beyond it `maintain` is due.
pub(crate) const PACKS_TARGET: usize = 64;

/// What a change decided on the state under LOCK.
pub(crate) enum Verdict<T> {
    /// Publish the edited catalog.
    Publish {
        /// What was done, for the manifest.
        request: Request,
        /// Figures for people.
        counts: BTreeMap<String, u64>,
        /// What the caller gets.
        value: T,
    },
    /// Nothing to do: it is so already.
    Nothing(T),
}

/// How a commit ended.
pub(crate) enum Committed<T> {
    /// A generation was published.
    Published {
        generation: GenerationId,
        previous: GenerationId,
        manifest: Box<Manifest>,
        value: T,
        warnings: Vec<Warning>,
    },
    /// It was so already; the state that says so is durable.
    Nothing { generation: GenerationId, value: T },
    /// What was prepared stands on a state that is gone: an activation came in between, or damage was found.
    Restart,
}

impl Committed<()> {
    /// The answer of a verb that changes only the catalog.
    pub(crate) fn published(self) -> Result<Published> {
        match self {
            Self::Published {
                generation,
                previous,
                warnings,
                ..
            } => Ok(Published {
                generation,
                previous,
                created: true,
                warnings,
            }),
            Self::Nothing { generation, .. } => Ok(Published {
                generation,
                previous: generation,
                created: false,
                warnings: Vec::new(),
            }),
            Self::Restart => Err(Error::Conflict),
        }
    }
}

/// New objects, and the state that they were prepared against.
pub(crate) struct Prepared<'b> {
    base: &'b Base,
    incoming: Dir,
    /// Where the catalog's path goes, in a pack of its own: a lost pack of data never takes the history with it.
    catalog: Option<Staging<'b>>,
    /// Packs that are sealed already.
    sealed: Vec<NewPack>,
    /// Packs of the base whose blocks were copied into new ones: they need no link.
    merged: BTreeSet<ObjectId>,
    /// Objects that the base has and the new data needs.
    relied: Vec<ObjectId>,
    /// The checkpoint whose trees were taken over unread: it must still be in the catalog under LOCK.
    pub(crate) stands_on: Option<ObjectId>,
}

impl<'b> Prepared<'b> {
    /// Nothing but a change of the catalog to come.
    pub(crate) fn new(base: &'b Base, incoming: &Dir) -> Self {
        Self {
            base,
            incoming: incoming.clone(),
            catalog: Some(Staging::new(incoming, Some(&base.objects))),
            sealed: Vec::new(),
            merged: BTreeSet::new(),
            relied: Vec::new(),
            stands_on: None,
        }
    }

    /// Adds captured data: everything that takes time (merging small packs, sealing, syncing what is large) happens
    /// here, before LOCK is taken.
    pub(crate) fn data(&mut self, data: Staging<'b>, merge: bool) -> Result<()> {
        if merge {
            self.merge_into(&data)?;
        }
        self.relied = data
            .relied()
            .into_iter()
            .filter(|id| !data.holds(id))
            .collect();
        for mut pack in data.seal()? {
            if pack.bytes > SYNC_FIRST_BYTES {
                pack.file.file().sync()?;
                pack.synced = true;
            }
            self.sealed.push(pack);
        }
        Ok(())
    }

    /// Merges small packs, so that their number stays small, when there is no data to come.
    pub(crate) fn compact(&mut self) -> Result<()> {
        let data = Staging::new(&self.incoming, None);
        self.data(data, true)
    }

    fn merge_into(&mut self, data: &Staging<'b>) -> Result<()> {
        let Some(catalog) = &self.catalog else {
            return Ok(());
        };
        let intact = self
            .base
            .packs
            .iter()
            .filter(|pack| pack.state == PackState::Ok);
        let mergeable: Vec<(ObjectId, u64)> = intact.map(|pack| (pack.id, pack.bytes)).collect();
        self.merged = staging::merge_small(&self.base.objects, &mergeable, data, catalog)?;
        Ok(())
    }
}

/// A change: what it makes of the state under LOCK, the catalog being edited, and where new objects go.
pub(crate) type Change<'c, T> =
    dyn FnMut(&Base, &mut CatalogEdit<'_>, &Staging<'_>) -> Result<Verdict<T>> + 'c;

/// Applies `change` to the state under LOCK and publishes the result.
///
/// `change` may run several times; each run sees a fresh state and a fresh edit.
///
/// # Errors
/// Unless it is [`Error::PublishUncertain`], nothing was published.
pub(crate) fn commit<T>(
    root: &Root,
    context: &Context,
    mut prepared: Prepared<'_>,
    housekeep: bool,
    change: &mut Change<'_, T>,
) -> Result<Committed<T>> {
    let incoming = root.sub_or_make(layout::INCOMING)?;
    let mut copies: Vec<NewPack> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let lock = StoreLock::acquire(&root.dir, context.wait(), &context.lock_text())?;
        let live = selector::resolve(root, context)?;
        // Mostly nobody came in between: then the indexes that are open already serve.
        let reopened;
        let now = if prepared.base.still_describes(&live)? {
            prepared.base
        } else {
            reopened = Base::of(live, Access::Mapped)?;
            &reopened
        };
        if stands_on_nothing(&prepared, now)? {
            return Ok(Committed::Restart);
        }
        let staging = prepared
            .catalog
            .take()
            .unwrap_or_else(|| Staging::new(&incoming, None));
        let mut edit = CatalogEdit::new(&now.catalog()?);
        let (request, counts, value) = match change(now, &mut edit, &staging)? {
            // Visible is not yet durable: whoever published it may still be syncing.
            Verdict::Nothing(value) => {
                root.dir.sync()?;
                return Ok(Committed::Nothing {
                    generation: now.live.id,
                    value,
                });
            }
            Verdict::Publish {
                request,
                counts,
                value,
            } => (request, counts, value),
        };
        let catalog = edit.finish(&staging)?;
        let relied = missing_now(&prepared, now, &staging)?;
        if !relied.is_empty() {
            drop(lock);
            copy_relied(prepared.base, &relied, &staging)?;
            prepared.catalog = Some(staging);
            continue;
        }
        prepared.sealed.extend(staging.seal()?);
        let highest = generation::clean_incoming(root, &incoming, Some(&now.live))?;
        let after_boot = first_after_boot(root, context, &now.live)?;
        let mut draft = draft_on(
            root,
            context,
            now,
            catalog,
            operation(now, &request, counts),
        )?;
        let looked = after_boot.is_some();
        draft.kept.extend(after_boot.unwrap_or_default());
        draft.sequence = draft.sequence.max(highest + 1);
        draft
            .shared
            .retain(|pack| !prepared.merged.contains(&pack.entry.id));
        use_copies(&mut draft, &mut copies);
        draft.new_packs.append(&mut prepared.sealed);
        let expected = Raw::selecting(&now.live.id);
        match generation::publish(root, &lock, context, &incoming, &expected, draft) {
            Ok((generation, manifest)) => {
                if looked {
                    remember_boot(root);
                }
                let warnings = if housekeep {
                    after_commit(root, &manifest)
                } else {
                    Vec::new()
                };
                drop(lock);
                let manifest = Box::new(manifest);
                return Ok(Committed::Published {
                    generation,
                    previous: now.live.id,
                    manifest,
                    value,
                    warnings,
                });
            }
            Err(NotPublished::Failed(error)) => return Err(error),
            Err(NotPublished::NeedsCopies { packs, draft }) => {
                drop(lock);
                (copies, prepared.sealed) =
                    draft.new_packs.into_iter().partition(|pack| pack.is_copy);
                copy_packs(
                    root,
                    &incoming,
                    now.manifest().policy.as_ref(),
                    &packs,
                    &mut copies,
                )?;
            }
        }
    }
    Err(Error::Conflict)
}

/// Copies objects that the live packs lack from the base, which is pinned and still has them. Not under LOCK.
fn copy_relied(base: &Base, relied: &[ObjectId], staging: &Staging<'_>) -> Result<()> {
    for id in relied {
        let bytes = base.objects.get(id, MAX_BLOCK_BYTES as usize)?;
        staging.put_always(&bytes, Class::Chunk)?;
    }
    Ok(())
}

/// Whether what was prepared stands on a state that is gone: another epoch; damage that was not seen when trees were taken
/// over unread; or the checkpoint that they were taken over from was dropped, so that they may go too.
fn stands_on_nothing(prepared: &Prepared<'_>, now: &Base) -> Result<bool> {
    let base = prepared.base;
    let intact = |id: &ObjectId| {
        let mut packs = base.packs.iter();
        packs.any(|pack| pack.id == *id && pack.state == PackState::Ok)
    };
    let newly_damaged = |pack: &PackEntry| pack.state != PackState::Ok && intact(&pack.id);
    if now.manifest().epoch != base.manifest().epoch || now.packs.iter().any(newly_damaged) {
        return Ok(true);
    }
    match &prepared.stands_on {
        Some(id) => Ok(now.catalog()?.lineage_of(id)?.is_none()),
        None => Ok(false),
    }
}

/// Objects that were found in the base, and are now neither in the live packs nor among the new ones.
fn missing_now(
    prepared: &Prepared<'_>,
    now: &Base,
    staging: &Staging<'_>,
) -> Result<Vec<ObjectId>> {
    let intact = |packs: &[PackEntry]| -> BTreeSet<ObjectId> {
        packs
            .iter()
            .filter(|pack| pack.state == PackState::Ok)
            .map(|pack| pack.id)
            .collect()
    };
    let before = intact(&prepared.base.packs);
    if before
        .iter()
        .all(|id| prepared.merged.contains(id) || intact(&now.packs).contains(id))
    {
        return Ok(Vec::new());
    }
    let mut missing = Vec::new();
    for id in prepared.relied.iter().copied().chain(staging.relied()) {
        if !now.objects.contains(&id)? && !staging.holds(&id) {
            missing.push(id);
        }
    }
    Ok(missing)
}

/// The packs that cannot be linked, copied; refused beyond 64 MiB unless the store was made for it.
fn copy_packs(
    root: &Root,
    incoming: &Dir,
    policy: Option<&Policy>,
    packs: &[SharedPack],
    copies: &mut Vec<NewPack>,
) -> Result<()> {
    let bytes: u64 = packs.iter().map(|pack| pack.entry.bytes).sum();
    if bytes > MAX_COPIES_BYTES && !policy.is_some_and(|policy| policy.copy_packs) {
        return Err(Error::LinksUnsupported {
            path: root.dir.path().to_owned(),
            bytes,
        });
    }
    for pack in packs {
        if !copies.iter().any(|copy| copy.id == pack.entry.id) {
            copies.push(generation::copy_pack(incoming, pack)?);
        }
    }
    Ok(())
}

/// Replaces links by the copies that were made for them; a copy of a pack that is not live any more is dropped.
fn use_copies(draft: &mut Draft, copies: &mut Vec<NewPack>) {
    for copy in copies.drain(..) {
        let before = draft.shared.len();
        draft.shared.retain(|pack| pack.entry.id != copy.id);
        if draft.shared.len() != before {
            draft.new_packs.push(copy);
        }
    }
}

/// The draft of a generation that follows `now` with another catalog.
pub(crate) fn draft_on(
    root: &Root,
    context: &Context,
    now: &Base,
    catalog: ObjectId,
    operation: Operation,
) -> Result<Draft> {
    let manifest = now.manifest();
    let (shared, missing) = shared_packs(now);
    let reason = reason_for(manifest, &operation);
    Ok(Draft {
        store: manifest.store,
        parent: Some(now.live.id),
        sequence: now.live.id.sequence() + 1,
        epoch: EpochChoice::Inherit(manifest.epoch),
        catalog,
        operation,
        kept: generation::kept_after(root, &now.live, reason, &context.clock.now().to_rfc3339())?,
        lost: manifest.lost.clone(),
        origin: manifest.origin,
        policy: manifest.policy.clone(),
        shared,
        missing,
        new_packs: Vec::new(),
    })
}

/// The state before an undo or an activation is held longer than others.
fn reason_for(_manifest: &Manifest, operation: &Operation) -> KeptReason {
    use crate::format::manifest::OperationKind;
    match operation.kind {
        OperationKind::Undo | OperationKind::Activate | OperationKind::Prune => KeptReason::Before,
        _ => KeptReason::Plain,
    }
}

/// A base's packs: those to link, and those that are only listed because they are missing or damaged.
///
/// A damaged pack (wrong size) is linked too: `repair` may want what is left of it.
pub(crate) fn shared_packs(now: &Base) -> (Vec<SharedPack>, Vec<PackEntry>) {
    let (missing, there): (Vec<&PackEntry>, Vec<&PackEntry>) = now
        .packs
        .iter()
        .partition(|pack| pack.state == PackState::Missing);
    let shared = there
        .into_iter()
        .map(|entry| SharedPack {
            entry: *entry,
            from: now.live.dir.clone(),
        })
        .collect();
    (shared, missing.into_iter().copied().collect())
}

/// What the manifest records of an operation on `now`.
pub(crate) fn operation(now: &Base, request: &Request, counts: BTreeMap<String, u64>) -> Operation {
    Operation {
        before: Some(now.live.id),
        counts,
        kind: request.kind(),
        request: request.to_map(),
        retry_of: None,
    }
}

/// Bounded housekeeping after a durable commit, still under LOCK. Its failure is only a warning.
pub(crate) fn after_commit(root: &Root, manifest: &Manifest) -> Vec<Warning> {
    match generation::reclaim_step(root, manifest) {
        Ok(_) => Vec::new(),
        Err(error) => vec![Warning::from_error("housekeeping_failed", &error)],
    }
}

/// The first writer after a boot looks for what a power loss left without a claim, and gives what is to be kept of it.
/// `None`: somebody looked already; `cache/boot` remembers the boot.
fn first_after_boot(root: &Root, context: &Context, live: &Live) -> Result<Option<Vec<Kept>>> {
    let boot = root::boot_id();
    let cache = root.sub_or_make(layout::CACHE)?;
    let known = cache
        .open_file("boot")
        .and_then(|file| file.read_up_to(256));
    if !boot.is_empty() && known.is_ok_and(|known| known == boot.as_bytes()) {
        return Ok(None);
    }
    let now = context.clock.now().to_rfc3339();
    generation::scan_after_boot(root, live, &now).map(Some)
}

/// Marks that this boot's first writer has looked, once what it found is in a published `kept`.
///
/// Best effort: without the mark the next writer looks again.
fn remember_boot(root: &Root) {
    if let Ok(cache) = root.sub(layout::CACHE) {
        cache.unlink("boot").ok();
        if let Ok(file) = cache.create("boot", FILE_MODE) {
            file.append(root::boot_id().as_bytes()).ok();
        }
    }
}

/// A commit that changes only the catalog.
pub(crate) fn annotate<T>(
    root: &Root,
    context: &Context,
    change: &mut dyn FnMut(&Base, &mut CatalogEdit<'_>) -> Result<Verdict<T>>,
) -> Result<Committed<T>> {
    let root = root.writable(context)?;
    let incoming = root.sub_or_make(layout::INCOMING)?;
    for _ in 0..MAX_ROUNDS {
        let base = Base::open(&root, context, Access::Mapped)?;
        let mut prepared = Prepared::new(&base, &incoming);
        prepared.compact()?;
        let done = commit(&root, context, prepared, true, &mut |now, edit, _| {
            change(now, edit)
        })?;
        if !matches!(done, Committed::Restart) {
            return Ok(done);
        }
    }
    Err(Error::Conflict)
}
