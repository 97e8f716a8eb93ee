//! `activate`: make another complete state live (design section 5). Only the small file CURRENT is replaced; the candidate
//! and every existing generation stay byte-identical; on any failure CURRENT's bytes are as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::{Catalog, CatalogEdit};
use crate::disk::{Dir, Kind, Temporary};
use crate::format::catalog::CheckpointRef;
use crate::format::manifest::{
    Activation, Kept, KeptReason, Manifest, Operation, OperationKind, PackState, Request,
};
use crate::generation::{self, Draft, EpochChoice, NewPack, NotPublished};
use crate::id::{GenerationId, ObjectId, StoreId, to_hex};
use crate::lock::StoreLock;
use crate::objects::index::PackFile;
use crate::objects::reader::PackSet;
use crate::progress::Phase;
use crate::receipts::OpenReceipt;
use crate::root::{Context, Root};
use crate::selector::{self, Raw};
use crate::{Error, Result, SelectorFault, layout};

use super::Warning;
use super::base::{Access, Base};
use super::candidate::Candidate;
use super::commit;
use super::staging::Staging;
use super::verify::{self, VerifyReport};

/// How often checkpoints that are made meanwhile are carried over outside LOCK before it is done under it.
const MAX_ROUNDS: u32 = 4;

/// What to make live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActivateTarget {
    /// A complete generation directory; its packs are copied.
    Directory(PathBuf),
    /// A generation of this store; its packs are linked.
    Generation(GenerationId),
}

/// What the caller has agreed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivateOptions {
    /// Checkpoints that the candidate lacks may be left behind.
    pub leave_behind: bool,
    /// The candidate may be another store's.
    pub foreign: bool,
    /// An untrusted CURRENT may be replaced.
    pub replace_selector: bool,
}

/// What was made live.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Activated {
    /// The generation that is live now.
    pub generation: GenerationId,
    /// The one that was live before; `None` if CURRENT could not be trusted.
    pub previous: Option<GenerationId>,
    /// It was live already; nothing was published.
    pub already: bool,
    /// Checkpoints that were live and are not any more.
    pub left_behind: Vec<CheckpointRef>,
    /// Checkpoints that were made meanwhile and carried over.
    pub carried: Vec<CheckpointRef>,
    /// Things that went wrong without touching the result.
    pub warnings: Vec<Warning>,
}

/// The state before: a trusted one, or what stands at CURRENT instead.
enum Before {
    Trusted(Box<Base>),
    Untrusted { raw: Raw, fault: SelectorFault },
}

impl Before {
    fn raw(&self) -> Raw {
        match self {
            Self::Trusted(base) => Raw::selecting(&base.live.id),
            Self::Untrusted { raw, .. } => raw.clone(),
        }
    }

    fn base(&self) -> Option<&Base> {
        match self {
            Self::Trusted(base) => Some(base),
            Self::Untrusted { .. } => None,
        }
    }
}

/// What is to be activated, once it has a shape.
enum Target {
    Directory(Box<Candidate>),
    Generation(Box<Base>),
}

impl Target {
    fn id(&self) -> GenerationId {
        match self {
            Self::Directory(candidate) => candidate.id,
            Self::Generation(base) => base.live.id,
        }
    }

    fn manifest(&self) -> &Manifest {
        match self {
            Self::Directory(candidate) => &candidate.manifest,
            Self::Generation(base) => base.manifest(),
        }
    }
}

/// Makes a target live.
pub(crate) fn activate(
    root: &Root,
    context: &Context,
    target: &ActivateTarget,
    options: ActivateOptions,
) -> Result<Activated> {
    activate_as(root, context, target, options, None)
}

/// The same, recorded as another operation: an undo of an activation is an activation.
pub(crate) fn activate_as(
    root: &Root,
    context: &Context,
    target: &ActivateTarget,
    options: ActivateOptions,
    request: Option<Request>,
) -> Result<Activated> {
    // Shape first, before anything is written.
    let target = open_target(root, context, target)?;
    let root = root.writable(context)?;
    let before = open_before(&root, context, options)?;
    check_store(&root, &before, &target, options)?;
    if let Some(already) = already_active(&root, context, &before, &target)? {
        return Ok(already);
    }
    let Lacking {
        checkpoints: left_behind,
        unknown,
    } = left_behind(&before, &target)?;
    if (unknown || !left_behind.is_empty()) && !options.leave_behind {
        return Err(refuse_left_behind(&left_behind, unknown));
    }
    let request = request.unwrap_or_else(|| {
        Request::Activate(Activation {
            candidate: target.id(),
            directory: match &target {
                Target::Directory(candidate) => {
                    Some(candidate.dir.path().as_os_str().as_encoded_bytes().to_vec())
                }
                Target::Generation(_) => None,
            },
        })
    });
    let mut receipt = begin_receipt(&root, context, &before, &target)?;
    let act = Act {
        root: &root,
        context,
        before: &before,
        target: &target,
        request: &request,
    };
    match act.run(left_behind) {
        Ok((mut activated, notes)) => {
            for (key, value) in notes {
                receipt.note(&key, value);
            }
            if let Err(error) = receipt.finish(&root, context, Ok(activated.generation.to_string()))
            {
                activated
                    .warnings
                    .push(Warning::from_error("receipt_not_written", &error));
            }
            Ok(activated)
        }
        Err(error) => {
            // The operation's own error is the answer; a receipt that stays an intent shows as interrupted.
            receipt
                .finish(&root, context, Err(format!("{}: {error}", error.code())))
                .ok();
            Err(error)
        }
    }
}

fn open_target(root: &Root, context: &Context, target: &ActivateTarget) -> Result<Target> {
    match target {
        ActivateTarget::Generation(id) => {
            let base = Base::open_generation(root, context, id, Access::Read)?;
            Ok(Target::Generation(Box::new(base)))
        }
        ActivateTarget::Directory(path) => {
            let candidate = Candidate::open(path)?;
            candidate.check_shape()?;
            if let Some(id) = own_generation(root, path)? {
                let base = Base::open_generation(root, context, &id, Access::Read)?;
                return Ok(Target::Generation(Box::new(base)));
            }
            Ok(Target::Directory(Box::new(candidate)))
        }
    }
}

/// The generation that a path names, if it is a directory in this store's `generations/`.
fn own_generation(root: &Root, path: &Path) -> Result<Option<GenerationId>> {
    let path = crate::disk::canonical(path)?;
    let Some(id) = path
        .file_name()
        .and_then(|name| GenerationId::parse(name.as_encoded_bytes()))
    else {
        return Ok(None);
    };
    let Ok(generations) = root.sub(layout::GENERATIONS) else {
        return Ok(None);
    };
    let parent = path
        .parent()
        .map(crate::disk::look_at_path)
        .transpose()?
        .flatten();
    let ours = generations.facts()?;
    Ok(parent
        .is_some_and(|parent| parent.same_inode(&ours))
        .then_some(id))
}

fn open_before(root: &Root, context: &Context, options: ActivateOptions) -> Result<Before> {
    match Base::open(root, context, Access::Read) {
        Ok(base) => Ok(Before::Trusted(Box::new(base))),
        Err(Error::Selector { store, fault }) => {
            let raw = selector::read_raw(&root.dir)?;
            // A directory cannot be replaced by a rename, and is never moved by us: the hint is the `mv` for the operator.
            if options.replace_selector && raw != Raw::Other(Kind::Directory) {
                return Ok(Before::Untrusted { raw, fault });
            }
            Err(Error::Selector { store, fault })
        }
        Err(error) => Err(error),
    }
}

fn check_store(
    root: &Root,
    before: &Before,
    target: &Target,
    options: ActivateOptions,
) -> Result<()> {
    let ours = match before {
        Before::Trusted(base) => Some(base.manifest().store),
        Before::Untrusted { .. } => store_id_on_disk(root)?,
    };
    let theirs = target.manifest().store;
    if let (Some(ours), false) = (ours, options.foreign)
        && ours != theirs
    {
        return Err(Error::refused(
            "candidate_foreign",
            format!("the candidate belongs to store {theirs}, this is store {ours}"),
            "if that is what you want, add --foreign",
        ));
    }
    if let Target::Directory(candidate) = target {
        let needed: u64 = candidate.manifest.packs.iter().map(|pack| pack.bytes).sum();
        let free = root.dir.free_bytes()?;
        if needed > free {
            let full = std::io::Error::from(rustix::io::Errno::NOSPC);
            return Err(Error::io(
                "copy the candidate (too little free space) into",
                root.dir.path(),
                full,
            ));
        }
    }
    Ok(())
}

/// The store id that the generations on disk agree to, newest first; used only while the selector is untrusted.
fn store_id_on_disk(root: &Root) -> Result<Option<StoreId>> {
    let Ok(generations) = root.sub(layout::GENERATIONS) else {
        return Ok(None);
    };
    let mut ids: Vec<GenerationId> = generations
        .list()?
        .iter()
        .filter_map(|name| GenerationId::parse(name.as_encoded_bytes()))
        .collect();
    ids.sort_unstable();
    for id in ids.iter().rev() {
        if let Ok(dir) = generations.open_dir(&id.to_string())
            && let Ok(manifest) = selector::read_manifest(&dir, id)
        {
            return Ok(Some(manifest.store));
        }
    }
    Ok(None)
}

fn already_active(
    root: &Root,
    context: &Context,
    before: &Before,
    target: &Target,
) -> Result<Option<Activated>> {
    let Some(base) = before.base() else {
        return Ok(None);
    };
    let came_from_it = match target {
        // A retry after a lost answer; checkpoints may have followed.
        Target::Directory(candidate) => base.manifest().epoch.candidate == Some(candidate.id),
        // People who name an older state of the same epoch want to go back to it.
        Target::Generation(generation) => {
            generation.live.id == base.live.id
                || base.manifest().operation == same_activation(base, &generation.live.id)
        }
    };
    if !came_from_it {
        return Ok(None);
    }
    let report = verify::verify_base(base, context, false)?;
    if has_unknown_damage(base.manifest(), &report) {
        // A copy elsewhere may be what mends the live one.
        return match target {
            Target::Directory(_) => Ok(None),
            Target::Generation(generation) if generation.live.id != base.live.id => Ok(None),
            Target::Generation(_) => Err(damaged_candidate(base.live.dir.path(), &report)),
        };
    }
    // Visible is not yet durable; and verifying took its time.
    root.dir.sync()?;
    if selector::read_raw(&root.dir)? != Raw::selecting(&base.live.id) {
        return Err(Error::Conflict);
    }
    Ok(Some(Activated {
        generation: base.live.id,
        previous: Some(base.live.id),
        already: true,
        left_behind: Vec::new(),
        carried: Vec::new(),
        warnings: Vec::new(),
    }))
}

/// The live operation, if it is an activation of exactly this generation; else one that differs from it.
fn same_activation(base: &Base, id: &GenerationId) -> Operation {
    let operation = base.manifest().operation.clone();
    match Request::parse(&operation) {
        Ok(Request::Activate(activation)) if activation.candidate == *id => operation,
        _ => Operation {
            retry_of: Some("no such activation".to_owned()),
            ..operation
        },
    }
}

/// Whether something is damaged that is not recorded as lost.
fn has_unknown_damage(manifest: &Manifest, report: &VerifyReport) -> bool {
    let lost: BTreeSet<ObjectId> = manifest.lost.iter().map(|lost| lost.object).collect();
    let unknown =
        |damage: &verify::Damage| damage.object.is_none_or(|object| !lost.contains(&object));
    report.damage.iter().any(unknown)
}

fn damaged_candidate(path: &Path, report: &VerifyReport) -> Error {
    let first = report.damage.first().map_or_else(String::new, |damage| {
        let at = damage
            .path
            .as_deref()
            .map(crate::name::escape)
            .unwrap_or_default();
        format!("; first: {at}: {}", damage.problem)
    });
    Error::CandidateInvalid {
        path: path.to_owned(),
        problem: format!("{} problems were found in it{first}", report.damage.len()),
    }
}

/// Checkpoints of the live catalog that the target lacks.
fn left_behind(before: &Before, target: &Target) -> Result<Lacking> {
    let Some(base) = before.base() else {
        return Ok(Lacking::default());
    };
    let mut unknown = false;
    let Some(live) = readable(base.catalog(), &mut unknown)? else {
        return Ok(Lacking {
            checkpoints: Vec::new(),
            unknown,
        });
    };
    match target {
        Target::Generation(generation) => lacking(&live, &generation.catalog()?),
        Target::Directory(candidate) => {
            let packs = generation::examine_packs(&candidate.dir, &candidate.manifest)?;
            let objects = super::base::open_packs(&candidate.dir, &packs, Access::Read);
            lacking(
                &live,
                &Catalog::open(&objects, &candidate.manifest.catalog)?,
            )
        }
    }
}

/// Checkpoints that one catalog has and another lacks.
#[derive(Debug, Default)]
struct Lacking {
    checkpoints: Vec<CheckpointRef>,
    /// Part of the catalog could not be read: there may be more.
    unknown: bool,
}

/// Checkpoints of `from` that `other` does not have. Damage in one lineage hides no other, and is not "nothing there".
fn lacking(from: &Catalog<'_>, other: &Catalog<'_>) -> Result<Lacking> {
    let mut found = Lacking::default();
    for lineage in from.lineages() {
        let Some(lineage) = readable(lineage, &mut found.unknown)? else {
            continue;
        };
        for numbered in lineage.oldest_first() {
            let Some(numbered) = readable(numbered, &mut found.unknown)? else {
                // The iterator cannot go on behind a node that cannot be read.
                break;
            };
            if other.lineage_of(&numbered.entry.id)?.is_none() {
                found.checkpoints.push(CheckpointRef {
                    lineage: lineage.name().to_vec(),
                    number: numbered.number,
                    id: numbered.entry.id,
                });
            }
        }
    }
    Ok(found)
}

/// What was read; `None`, and noted, if it is damaged.
fn readable<T>(read: Result<T>, damaged: &mut bool) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Error::Damaged { .. } | Error::ObjectMissing { .. }) => {
            *damaged = true;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn refuse_left_behind(left_behind: &[CheckpointRef], unknown: bool) -> Error {
    let items: Vec<String> = left_behind.iter().map(|at| at.id.to_string()).collect();
    let named: Vec<String> = left_behind
        .iter()
        .rev()
        .take(4)
        .map(|at| {
            format!(
                "{} (#{} of {})",
                &at.id.to_string()[..16],
                at.number,
                crate::name::escape(&at.lineage)
            )
        })
        .collect();
    let more = if left_behind.len() > named.len() {
        ", …"
    } else {
        ""
    };
    let damaged = if unknown {
        "; part of the live catalog cannot be read, and there may be more"
    } else {
        ""
    };
    Error::Refused {
        code: "left_behind",
        message: match named.as_slice() {
            [] => "part of the live catalog cannot be read: which checkpoints would be left behind is not known"
                .to_owned(),
            named => format!(
                "{} checkpoint(s) of the live generation are not in the candidate and would be left behind: {}{more}{damaged}",
                left_behind.len(),
                named.join(", ")
            ),
        },
        hint: "to activate all the same, add --leave-behind; `genstore undo` brings them back"
            .to_owned(),
        items,
    }
}

fn begin_receipt(
    root: &Root,
    context: &Context,
    before: &Before,
    target: &Target,
) -> Result<OpenReceipt> {
    let mut details = BTreeMap::from([("candidate".to_owned(), target.id().to_string())]);
    if let Target::Directory(candidate) = target {
        details.insert(
            "directory_hex".to_owned(),
            to_hex(candidate.dir.path().as_os_str().as_encoded_bytes()),
        );
    }
    let sequence = before.base().map_or(0, |base| base.live.id.sequence());
    if let Before::Untrusted { raw, fault } = before {
        details.insert("selector_fault".to_owned(), fault.code().to_owned());
        match raw {
            Raw::File(bytes) => drop(details.insert("selector_hex".to_owned(), to_hex(bytes))),
            Raw::Other(kind) => {
                drop(details.insert("selector_was".to_owned(), kind.word().to_owned()));
            }
            Raw::Absent => drop(details.insert("selector_was".to_owned(), "absent".to_owned())),
        }
    }
    let live = before.base().map(|base| base.live.id.to_string());
    OpenReceipt::begin(root, context, "activate", sequence, live, details)
}

/// One activation, after everything was agreed to.
struct Act<'a> {
    root: &'a Root,
    context: &'a Context,
    before: &'a Before,
    target: &'a Target,
    request: &'a Request,
}

type Notes = Vec<(String, String)>;

impl Act<'_> {
    fn run(&self, left_behind: Vec<CheckpointRef>) -> Result<(Activated, Notes)> {
        let incoming = self.root.sub_or_make(layout::INCOMING)?;
        // Everything that takes time is outside LOCK.
        let mut copies = Vec::new();
        let objects = match self.target {
            Target::Directory(candidate) => {
                copies = copy_candidate(self.context, &incoming, candidate)?;
                candidate_unchanged(candidate)?;
                Some(open_copies(&incoming, &copies)?)
            }
            Target::Generation(_) => None,
        };
        let objects: &PackSet = match (&objects, self.target) {
            (Some(objects), _) => objects,
            (None, Target::Generation(base)) => &base.objects,
            (None, Target::Directory(_)) => return Err(Error::Conflict),
        };
        self.verify_in_full(objects)?;
        if let Target::Generation(base) = self.target {
            // It may never have been live: what was verified came from memory, and has to be on the disk before the flip.
            sync_packs(base)?;
        }
        let (manifest, generation, carried) = self.publish(&incoming, objects, copies)?;
        let notes = vec![
            ("carried".to_owned(), carried.len().to_string()),
            ("left_behind".to_owned(), left_behind.len().to_string()),
        ];
        let activated = Activated {
            generation,
            previous: manifest.parent,
            already: false,
            left_behind,
            carried,
            warnings: Vec::new(),
        };
        Ok((activated, notes))
    }

    fn verify_in_full(&self, objects: &PackSet) -> Result<()> {
        let manifest = self.target.manifest();
        let report = verify::verify_packs(self.context, manifest, objects)?;
        if has_unknown_damage(manifest, &report) {
            return Err(damaged_candidate(objects.place(), &report));
        }
        Ok(())
    }

    /// Compare-and-swap against the before-state; checkpoints that were made meanwhile are carried over.
    fn publish(
        &self,
        incoming: &Dir,
        objects: &PackSet,
        mut copies: Vec<NewPack>,
    ) -> Result<(Manifest, GenerationId, Vec<CheckpointRef>)> {
        let mut seen = self.before.raw();
        let mut moved: Option<Base> = None;
        let mut round = 0;
        loop {
            let lock = StoreLock::acquire(
                &self.root.dir,
                self.context.wait(),
                &self.context.lock_text(),
            )?;
            let raw = selector::read_raw(&self.root.dir)?;
            let mut held = Some(lock);
            if raw != seen {
                if round < MAX_ROUNDS {
                    held = None;
                }
                round += 1;
                moved = Some(self.look_again()?);
                seen = moved
                    .as_ref()
                    .map_or(raw, |base| Raw::selecting(&base.live.id));
                if held.is_none() {
                    continue;
                }
            }
            let Some(lock) = held else { continue };
            let staging = Staging::new(incoming, Some(objects));
            let (catalog, carried) = match &moved {
                None => (self.target.manifest().catalog, Vec::new()),
                Some(now) => self.carry(now, objects, &staging)?,
            };
            let mut draft = self.draft(incoming, moved.as_ref(), catalog)?;
            draft.new_packs.extend(staging.seal()?);
            let carried_packs: BTreeSet<ObjectId> =
                draft.new_packs.iter().map(|pack| pack.id).collect();
            draft
                .shared
                .retain(|shared| !copies.iter().any(|copy| copy.id == shared.entry.id));
            draft.new_packs.append(&mut copies);
            match generation::publish(self.root, &lock, self.context, incoming, &seen, draft) {
                Ok((generation, manifest)) => return Ok((manifest, generation, carried)),
                Err(NotPublished::Failed(error)) => return Err(error),
                Err(NotPublished::NeedsCopies { packs, draft }) => {
                    drop(lock);
                    // The packs with carried objects are made again; the copies are used again.
                    copies = draft
                        .new_packs
                        .into_iter()
                        .filter(|pack| !carried_packs.contains(&pack.id))
                        .collect();
                    for pack in &packs {
                        copies.push(generation::copy_pack(incoming, pack)?);
                    }
                }
            }
        }
    }

    /// CURRENT moved: what it selects now must descend from what was live when this began.
    fn look_again(&self) -> Result<Base> {
        let now = Base::open(self.root, self.context, Access::Read)?;
        let same_epoch = self
            .before
            .base()
            .is_some_and(|base| base.manifest().epoch == now.manifest().epoch);
        if same_epoch {
            return Ok(now);
        }
        Err(Error::StoreBusy {
            holder: "another activation was made meanwhile".to_owned(),
            waited_ms: 0,
        })
    }

    /// Copies the checkpoints that were made since the beginning, with everything they need.
    fn carry(
        &self,
        now: &Base,
        objects: &PackSet,
        staging: &Staging<'_>,
    ) -> Result<(ObjectId, Vec<CheckpointRef>)> {
        let Some(before) = self.before.base() else {
            return Err(Error::Conflict);
        };
        self.only_checkpoints_since(before, now)?;
        let base = Catalog::open(objects, &self.target.manifest().catalog)?;
        let catalog = now.catalog()?;
        let Lacking {
            checkpoints: made,
            unknown,
        } = lacking(&catalog, &before.catalog()?)?;
        if unknown {
            return Err(cannot_carry("part of its catalog cannot be read"));
        }
        let mut edit = CatalogEdit::new(&base);
        let mut carried = Vec::new();
        for at in made {
            if base.lineage_of(&at.id)?.is_some() {
                continue;
            }
            super::copy::checkpoint(now, &at, &mut edit, staging)
                .map_err(|error| cannot_carry(&format!("checkpoint {}: {error}", at.id)))?;
            carried.push(at);
        }
        if carried.is_empty() {
            return Ok((self.target.manifest().catalog, carried));
        }
        Ok((edit.finish(staging)?, carried))
    }

    /// Checkpoints can be carried over. A tag, a note, an undo or anything else that was acknowledged meanwhile cannot.
    fn only_checkpoints_since(&self, before: &Base, now: &Base) -> Result<()> {
        let mut manifest = now.manifest().clone();
        let mut id = now.live.id;
        while id != before.live.id {
            if !matches!(
                manifest.operation.kind,
                OperationKind::Checkpoint | OperationKind::Heal
            ) {
                let verb = manifest.operation.kind.word();
                return Err(cannot_carry(&format!("{verb} was run in between ({id})")));
            }
            let Some(parent) = manifest.parent else {
                return Err(cannot_carry("its history is not known"));
            };
            let base = Base::open_generation(self.root, self.context, &parent, Access::Read)
                .map_err(|error| cannot_carry(&format!("{parent} cannot be read: {error}")))?;
            manifest = base.manifest().clone();
            id = parent;
        }
        Ok(())
    }

    fn draft(&self, incoming: &Dir, moved: Option<&Base>, catalog: ObjectId) -> Result<Draft> {
        let manifest = self.target.manifest();
        let now = self.context.clock.now().to_rfc3339();
        let live = moved.or(self.before.base());
        let highest = generation::clean_incoming(self.root, incoming, live.map(|base| &base.live))?;
        let kept = match live {
            Some(base) => generation::kept_after(self.root, &base.live, self.reason(), &now)?,
            None => self.everything_on_disk(&now)?,
        };
        let sequence = match live {
            Some(base) => base.live.id.sequence(),
            None => highest_sequence(self.root)?,
        };
        let request = self.request;
        let (shared, missing) = match self.target {
            Target::Generation(base) => commit::shared_packs(base),
            Target::Directory(_) => (Vec::new(), Vec::new()),
        };
        Ok(Draft {
            store: live.map_or(manifest.store, |base| base.manifest().store),
            parent: live.map(|base| base.live.id),
            sequence: sequence.max(highest) + 1,
            epoch: EpochChoice::Begin {
                candidate: Some(self.target.id()),
            },
            catalog,
            operation: Operation {
                before: live.map(|base| base.live.id),
                counts: BTreeMap::new(),
                kind: request.kind(),
                request: request.to_map(),
                retry_of: None,
            },
            kept,
            lost: manifest.lost.clone(),
            origin: live.map_or(manifest.origin, |base| base.manifest().origin),
            policy: live.map_or_else(
                || manifest.policy.clone(),
                |base| base.manifest().policy.clone(),
            ),
            shared,
            missing,
            new_packs: Vec::new(),
        })
    }

    /// What a generation becomes that is replaced by a directory's state: evidence. By one of the store's own: a before.
    fn reason(&self) -> KeptReason {
        match self.target {
            Target::Directory(_) => KeptReason::Evidence,
            Target::Generation(_) => KeptReason::Before,
        }
    }

    /// While nothing can be trusted, whatever is on disk may have been acknowledged to somebody: it is all kept.
    fn everything_on_disk(&self, now: &str) -> Result<Vec<Kept>> {
        let generations = self.root.sub(layout::GENERATIONS)?;
        let known = &self.target.manifest().kept;
        let mut kept = Vec::new();
        for name in generations.list()? {
            let Some(id) = GenerationId::parse(name.as_encoded_bytes()) else {
                continue;
            };
            if !generation::holds_something(&generations, &id) {
                continue;
            }
            kept.push(match known.iter().find(|kept| kept.id == id) {
                Some(kept) => kept.clone(),
                None => Kept {
                    id,
                    reason: KeptReason::Evidence,
                    since: now.to_owned(),
                },
            });
        }
        Ok(kept)
    }
}

fn cannot_carry(problem: &str) -> Error {
    Error::refused(
        "cannot_carry",
        format!("the live generation moved while the candidate was prepared, and {problem}"),
        "nothing was changed; run the same command again",
    )
}

/// The highest sequence that any directory or receipt names; counts only while the selector is untrusted.
fn highest_sequence(root: &Root) -> Result<u64> {
    let mut highest = 0;
    for name in root.sub(layout::GENERATIONS)?.list()? {
        highest =
            highest.max(GenerationId::parse(name.as_encoded_bytes()).map_or(0, |id| id.sequence()));
    }
    if let Ok(receipts) = root.sub(layout::RECEIPTS) {
        for name in receipts.list()? {
            let digits = name
                .to_str()
                .and_then(|name| name.get(..10))
                .and_then(|digits| digits.parse().ok());
            highest = highest.max(digits.unwrap_or(0));
        }
    }
    Ok(highest)
}

/// Copies the candidate's packs into `incoming/` as fresh files: hashed on the way, synced, dropped from the page cache.
fn copy_candidate(
    context: &Context,
    incoming: &Dir,
    candidate: &Candidate,
) -> Result<Vec<NewPack>> {
    let total = candidate.manifest.packs.iter().map(|pack| pack.bytes).sum();
    context.progress.begin(Phase::Copy, Some(total));
    let mut copies = Vec::new();
    for entry in &candidate.manifest.packs {
        context.cancel.check()?;
        let from = candidate.dir.open_file(&layout::pack_name(&entry.id))?;
        let file = Temporary::create(incoming, "pack")?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut offset = 0;
        loop {
            let count = from.read_at(&mut buffer, offset)?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            file.file().append(&buffer[..count])?;
            offset += count as u64;
            context.progress.advance(0, count as u64);
        }
        if ObjectId::from(hasher.finalize()) != entry.id || offset != entry.bytes {
            return Err(Error::CandidateInvalid {
                path: candidate.dir.path().to_owned(),
                problem: format!(
                    "{} does not hold what its name says",
                    layout::pack_name(&entry.id)
                ),
            });
        }
        file.file().sync()?;
        file.file().drop_cached_pages();
        copies.push(NewPack {
            id: entry.id,
            bytes: entry.bytes,
            objects: entry.objects,
            synced: true,
            is_copy: true,
            file,
        });
    }
    Ok(copies)
}

/// A candidate that changes meanwhile is refused: somebody is still writing it.
fn candidate_unchanged(candidate: &Candidate) -> Result<()> {
    let again = Candidate::open(candidate.dir.path())?;
    again.check_shape()?;
    if again.bytes == candidate.bytes {
        return Ok(());
    }
    Err(Error::CandidateInvalid {
        path: candidate.dir.path().to_owned(),
        problem: "it changed while it was being copied".to_owned(),
    })
}

/// Makes the packs of a generation durable.
fn sync_packs(base: &Base) -> Result<()> {
    for pack in base.packs.iter().filter(|pack| pack.state == PackState::Ok) {
        base.live
            .dir
            .open_file(&layout::pack_name(&pack.id))?
            .sync()?;
    }
    base.live.dir.sync()
}

/// A copied pack, read back from its temporary file through a handle of its own.
struct CopiedPack {
    file: crate::disk::File,
    bytes: u64,
}

impl PackFile for CopiedPack {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        if self.file.read_at(buffer, offset)? == buffer.len() {
            return Ok(());
        }
        Err(Error::damaged(self.file.path(), None, "it ends too early"))
    }

    fn path(&self) -> PathBuf {
        self.file.path().to_owned()
    }
}

fn open_copies(incoming: &Dir, copies: &[NewPack]) -> Result<PackSet> {
    let mut files: Vec<(ObjectId, Arc<dyn PackFile>)> = Vec::new();
    for copy in copies {
        let file = copy.file.file().reopen()?;
        files.push((
            copy.id,
            Arc::new(CopiedPack {
                file,
                bytes: copy.bytes,
            }),
        ));
    }
    Ok(PackSet::new(incoming.path(), files))
}
