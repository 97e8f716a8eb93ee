//! The model of a store: which generations there are, what each holds, and what a call makes of them.
//!
//! [`Model::plan`] is a pure prediction; [`Model::settle`] compares it with the answer and learns the ids from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use store_core::clock::Time;
use store_core::format::catalog::CheckpointRef;
use store_core::format::checkpoint::{Actor, Role};
use store_core::format::manifest::{
    Activation, Applied, KeptReason, LineageAction, LineageRequest, NoteRequest, OperationKind,
    PinRequest, Request as Done, TagAction, TagRequest,
};
use store_core::id::{GenerationId, ObjectId};
use store_core::{Checkpointed, Error};

use super::call::{Answer, Call, Request};
use super::catalog::{Catalog, Code, Entry, Record};

/// How many superseded generations stay before older ones are reclaimed.
const KEEP_SUPERSEDED: usize = 8;
/// How many one commit reclaims.
const RECLAIM_PER_COMMIT: usize = 2;

/// Fails with what was expected and what was found, if they differ.
pub fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found:?}\n   expected: {expected:?}"))
}

/// A superseded generation that is still held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub id: GenerationId,
    /// Why.
    pub reason: KeptReason,
    /// Since when, on the model's clock.
    pub since: i64,
}

/// A generation as it was published.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Its catalog.
    pub catalog: Arc<Catalog>,
    /// The records in its packs, those of dropped checkpoints included.
    pub objects: Arc<BTreeSet<ObjectId>>,
    /// What made it.
    pub done: Done,
    /// What was live before, if that could be trusted.
    pub before: Option<GenerationId>,
    /// What it holds on to.
    pub kept: Vec<Kept>,
    /// Which activation it descends from: a running number, and what was activated.
    pub epoch: (u64, Option<GenerationId>),
    /// Its files are gone.
    pub reclaimed: bool,
}

/// What a call comes to.
#[derive(Debug)]
pub enum Step {
    /// Nothing is published; the answer names this checkpoint, if it names one.
    Same(Option<CheckpointRef>),
    /// A generation is published.
    Publish(Box<Publish>),
}

/// A generation that is to be published.
#[derive(Debug)]
pub struct Publish {
    catalog: Catalog,
    done: Done,
    /// A checkpoint that is added on top: its lineage, record and tag.
    added: Option<(Vec<u8>, Record, Option<String>)>,
    /// The existing checkpoint that the answer names.
    about: Option<CheckpointRef>,
    /// The generation that is made live again, and why what was live is then held.
    activated: Option<(GenerationId, KeptReason)>,
    /// Whether CURRENT can be trusted; else everything on disk is kept.
    trusted: bool,
    left_behind: Vec<CheckpointRef>,
    carried: Vec<CheckpointRef>,
}

impl Publish {
    fn of(catalog: Catalog, done: Done) -> Box<Self> {
        Box::new(Self {
            catalog,
            done,
            added: None,
            about: None,
            activated: None,
            trusted: true,
            left_behind: Vec::new(),
            carried: Vec::new(),
        })
    }
}

/// Everything that is known about a store.
#[derive(Debug)]
pub struct Model {
    /// Every generation that was ever live.
    pub generations: BTreeMap<GenerationId, Generation>,
    /// The one that CURRENT names, or should.
    pub live: GenerationId,
    /// Every checkpoint that was ever acknowledged.
    pub records: BTreeMap<ObjectId, Record>,
    /// The code of what is wrong with CURRENT.
    pub fault: Option<Code>,
    /// CURRENT is a directory: before anything else it has to be moved out of the way.
    pub blocked: bool,
    /// Generations that readers hold.
    pub held: Vec<GenerationId>,
    /// The time that the store is told.
    pub now: Time,
    /// The trees' paths.
    sources: Vec<PathBuf>,
    epochs: u64,
}

impl Model {
    /// A store that was just made.
    pub fn new(first: GenerationId, sources: Vec<PathBuf>, now: Time) -> Self {
        let generation = Generation {
            catalog: Arc::default(),
            objects: Arc::default(),
            done: Done::Init,
            before: None,
            kept: Vec::new(),
            epoch: (0, None),
            reclaimed: false,
        };
        Self {
            generations: BTreeMap::from([(first, generation)]),
            live: first,
            records: BTreeMap::new(),
            fault: None,
            blocked: false,
            held: Vec::new(),
            now,
            sources,
            epochs: 0,
        }
    }

    /// The generation of an id.
    pub fn generation(&self, id: &GenerationId) -> Result<&Generation, Code> {
        self.generations
            .get(id)
            .filter(|generation| !generation.reclaimed)
            .ok_or("generation_not_found")
    }

    /// The live generation.
    pub fn current(&self) -> &Generation {
        &self.generations[&self.live]
    }

    /// What a call comes to. `base` is the generation that was live when a checkpoint or activation began.
    pub fn plan(&self, call: &Call, base: &GenerationId) -> Result<Step, Code> {
        if let (Some(fault), false) = (self.fault, matches!(call, Call::Activate { .. })) {
            return Err(fault);
        }
        let catalog = &self.current().catalog;
        match call {
            Call::Checkpoint(request) => self.plan_checkpoint(request, base),
            Call::Tag { at, tag, move_it } => plan_tag(catalog, at, tag, *move_it),
            Call::Untag { lineage, tag } => plan_untag(catalog, lineage, tag),
            Call::Pin { at, value } => {
                let number = catalog.number_of(at).ok_or("checkpoint_not_found")?;
                let mut catalog = Catalog::clone(catalog);
                let was =
                    std::mem::replace(&mut catalog.entry_mut(&at.lineage, number)?.pinned, *value);
                if was == *value {
                    return Ok(Step::Same(None));
                }
                let pin = PinRequest {
                    checkpoint: CheckpointRef {
                        number,
                        ..at.clone()
                    },
                    value: *value,
                    was,
                };
                Ok(Step::Publish(Publish::of(catalog, Done::Pin(pin))))
            }
            Call::Note { at, note } => {
                let number = catalog.number_of(at).ok_or("checkpoint_not_found")?;
                let mut catalog = Catalog::clone(catalog);
                let was = std::mem::replace(
                    &mut catalog.entry_mut(&at.lineage, number)?.note,
                    note.clone(),
                );
                if was == *note {
                    return Ok(Step::Same(None));
                }
                let checkpoint = CheckpointRef {
                    number,
                    ..at.clone()
                };
                let note = NoteRequest {
                    checkpoint,
                    note: note.clone(),
                    was,
                };
                Ok(Step::Publish(Publish::of(catalog, Done::Note(note))))
            }
            Call::Archive { .. } | Call::Unarchive { .. } | Call::Rename { .. } => {
                plan_lineage(catalog, call)
            }
            Call::Undo {
                named,
                here,
                leave_behind,
            } => self.plan_undo(named.as_ref(), here.as_deref(), *leave_behind),
            Call::Activate {
                generation,
                directory,
                leave_behind,
                replace,
            } => self.plan_activate(
                generation,
                directory.as_ref(),
                *leave_behind,
                *replace,
                base,
                None,
            ),
        }
    }

    /// The lineage that a checkpoint goes to.
    fn lineage_for(&self, catalog: &Catalog, request: &Request) -> Result<Vec<u8>, Code> {
        use std::os::unix::ffi::OsStrExt;
        if let Some(name) = &request.lineage {
            return Ok(name.clone());
        }
        let path = self.sources[request.tree].as_os_str().as_bytes();
        if catalog.lineages.contains_key(path) {
            return Ok(path.to_vec());
        }
        let mut known = catalog
            .lineages
            .iter()
            .filter(|(_, lineage)| lineage.tree == request.tree && lineage.archived.is_none());
        match (known.next(), known.next()) {
            (None, _) => Ok(path.to_vec()),
            (Some((name, _)), None) => Ok(name.clone()),
            (Some(_), Some(_)) => Err("ambiguous"),
        }
    }

    fn plan_checkpoint(&self, request: &Request, base: &GenerationId) -> Result<Step, Code> {
        let now = self.current();
        let begun = &self.generations[base];
        let name = self.lineage_for(&begun.catalog, request)?;
        if request.tag.is_none()
            && let Some(known) = keyed(&begun.catalog, &name, request)
        {
            return Ok(Step::Same(Some(known)));
        }
        // An activation meanwhile: it all begins again.
        let again = begun.epoch != now.epoch;
        let name = if again {
            self.lineage_for(&now.catalog, request)?
        } else {
            name
        };
        let known = keyed(&now.catalog, &name, request);
        if let (true, None, Some(known)) = (again, &request.tag, &known) {
            return Ok(Step::Same(Some(known.clone())));
        }
        let catalog = Catalog::clone(&now.catalog);
        if let Some(lineage) = catalog.lineages.get(&name) {
            if lineage.archived.is_some() {
                return Err("lineage_archived");
            }
            if lineage.tree != request.tree {
                return Err("lineage_has_other_source");
            }
        }
        let tagged = request
            .tag
            .as_ref()
            .and_then(|tag| catalog.lineages.get(&name)?.tagged(tag));
        if let Some(known) = known {
            return unchanged(&catalog, known, request, tagged);
        }
        let latest = catalog
            .lineages
            .get(&name)
            .and_then(|lineage| lineage.latest());
        if let Some((number, entry)) = latest
            && !request.force
            && self.says_the_same(request, &entry.id)
        {
            let at = CheckpointRef {
                lineage: name.clone(),
                number,
                id: entry.id,
            };
            return unchanged(&catalog, at, request, tagged);
        }
        if tagged.is_some() {
            return Err("tag_exists");
        }
        let record = Record {
            parent: latest.map(|(_, entry)| entry.id),
            time: self.now,
            tree: request.tree,
            state: Arc::clone(&request.state),
            role: request.role,
            actor: request.actor,
            key: request.key.clone(),
            message: request.message.clone(),
        };
        let mut publish = Publish::of(catalog.clone(), Done::Init);
        publish.added = Some((name, record, request.tag.clone()));
        Ok(Step::Publish(publish))
    }

    /// Whether a record of the request would say nothing that the latest one does not.
    fn says_the_same(&self, request: &Request, latest: &ObjectId) -> bool {
        let record = &self.records[latest];
        let asked = request.role != Role::None || request.actor != Actor::None;
        let as_before = record.role == request.role
            && record.actor == request.actor
            && record.key == request.key;
        (as_before || !asked) && record.state.same_state(&request.state)
    }

    fn plan_activate(
        &self,
        id: &GenerationId,
        directory: Option<&PathBuf>,
        leave_behind: bool,
        replace: bool,
        base: &GenerationId,
        undo: Option<Done>,
    ) -> Result<Step, Code> {
        use std::os::unix::ffi::OsStrExt;
        let target = match directory {
            None => self.generation(id)?,
            Some(_) => self.generations.get(id).ok_or("candidate_invalid")?,
        };
        if let (Some(fault), true) = (self.fault, self.blocked || !replace) {
            return Err(fault);
        }
        let trusted = self.fault.is_none();
        let begun = &self.generations[base];
        if trusted {
            let already = match (directory, &begun.done) {
                (Some(_), _) => begun.epoch.1 == Some(*id),
                (None, Done::Activate(activation)) if activation.candidate == *id => true,
                (None, _) => id == base,
            };
            if already {
                // What was found active is not live any more.
                return if *base == self.live {
                    Ok(Step::Same(None))
                } else {
                    Err("conflict")
                };
            }
        }
        let lacking = |from: &Catalog, other: &Catalog| -> Vec<CheckpointRef> {
            from.checkpoints()
                .into_iter()
                .filter(|at| !other.has(&at.id))
                .collect()
        };
        let left_behind = if trusted {
            lacking(&begun.catalog, &target.catalog)
        } else {
            Vec::new()
        };
        if !left_behind.is_empty() && !leave_behind {
            return Err("left_behind");
        }
        let directory_bytes = directory.map(|path| path.as_os_str().as_bytes().to_vec());
        let done = undo.unwrap_or(Done::Activate(Activation {
            candidate: *id,
            directory: directory_bytes,
        }));
        let mut publish = Publish::of(Catalog::clone(&target.catalog), done);
        if trusted && *base != self.live {
            if begun.epoch != self.current().epoch {
                return Err("cannot_carry");
            }
            self.carry(&mut publish, &begun.catalog)?;
        }
        let reason = if directory.is_some() {
            KeptReason::Evidence
        } else {
            KeptReason::Before
        };
        publish.activated = Some((*id, reason));
        publish.trusted = trusted;
        publish.left_behind = left_behind;
        Ok(Step::Publish(publish))
    }

    /// Checkpoints that were made since the activation began come along.
    fn carry(&self, publish: &mut Publish, begun: &Catalog) -> Result<(), Code> {
        for at in self.current().catalog.checkpoints() {
            if begun.has(&at.id) || publish.catalog.has(&at.id) {
                continue;
            }
            let from = self.current().catalog.lineage(&at.lineage)?;
            let record = &self.records[&at.id];
            let mut lineage = from.clone();
            (lineage.next, lineage.archived) = (1, None);
            lineage.checkpoints.clear();
            lineage.keys.clear();
            let there = publish
                .catalog
                .lineages
                .entry(at.lineage.clone())
                .or_insert(lineage);
            there.tree = from.tree;
            let entry = from.checkpoints[&at.number].clone();
            let key = record.key.clone().map(|key| (record.role, key));
            publish.catalog.bring_back(&at.lineage, entry, key)?;
            publish.carried.push(at);
        }
        Ok(())
    }

    fn plan_undo(
        &self,
        named: Option<&GenerationId>,
        here: Option<&[u8]>,
        leave_behind: bool,
    ) -> Result<Step, Code> {
        let now = self.current();
        let id = *named.unwrap_or(&self.live);
        if id != self.live && !now.kept.iter().any(|kept| kept.id == id) {
            return Err("undo_unavailable");
        }
        let undone = self.generation(&id).map_err(|_| "undo_unavailable")?;
        let (applied, of_undo) = match &undone.done {
            Done::Init | Done::Heal(_) => return Err("undo_unavailable"),
            Done::Checkpoint(at) => (Applied::Return(at.clone()), false),
            Done::Activate(activation) => (Applied::Activate(activation.clone()), false),
            Done::Tag(tag) => (Applied::Tag(tag.clone()), false),
            Done::Pin(pin) => (Applied::Pin(pin.clone()), false),
            Done::Note(note) => (Applied::Note(note.clone()), false),
            Done::Lineage(lineage) => (Applied::Lineage(lineage.clone()), false),
            Done::Undo { applied, .. } => (applied.clone(), true),
        };
        if let (None, Some(here), Some(lineage)) = (named, here, lineage_of(&applied))
            && here != lineage
        {
            return Err("undo_other_lineage");
        }
        let kind = undone.done.kind();
        let done = |applied| Done::Undo {
            undoes: id,
            undone_kind: kind,
            applied,
        };
        if let Applied::Activate(_) = &applied {
            let before = undone.before.ok_or("undo_unavailable")?;
            let applied = Applied::Activate(Activation {
                candidate: before,
                directory: None,
            });
            let planned = self.plan_activate(
                &before,
                None,
                leave_behind,
                false,
                &self.live,
                Some(done(applied)),
            );
            return planned.map_err(|code| {
                if code == "generation_not_found" {
                    "undo_unavailable"
                } else {
                    code
                }
            });
        }
        let mut catalog = Catalog::clone(&now.catalog);
        let applied = match &applied {
            Applied::Drop(at) => {
                debug_assert!(of_undo, "only an undo drops");
                self.bring_back(&mut catalog, at, undone.before)?
            }
            other => invert(&mut catalog, other)?,
        };
        debug_assert_eq!(kind == OperationKind::Undo, of_undo);
        Ok(Step::Publish(Publish::of(catalog, done(applied))))
    }

    /// A redo: the checkpoint returns with what was noted on it before the undo, while that state is still held.
    fn bring_back(
        &self,
        catalog: &mut Catalog,
        at: &CheckpointRef,
        before: Option<GenerationId>,
    ) -> Result<Applied, Code> {
        if !self.current().objects.contains(&at.id) || catalog.has(&at.id) {
            return Err("undo_unavailable");
        }
        let bare = Entry {
            id: at.id,
            tags: BTreeSet::new(),
            pinned: false,
            note: Vec::new(),
        };
        let former = before.and_then(|before| self.generation(&before).ok());
        let former = former.and_then(|former| {
            let lineage = former.catalog.lineages.get(&at.lineage)?;
            lineage.checkpoints.get(&lineage.find(&at.id)?).cloned()
        });
        let record = &self.records[&at.id];
        let key = record.key.clone().map(|key| (record.role, key));
        let number = catalog.bring_back(&at.lineage, former.unwrap_or(bare), key)?;
        Ok(Applied::Return(CheckpointRef {
            number,
            ..at.clone()
        }))
    }

    /// Compares an answer with what was planned, and learns what is live now.
    pub fn settle(
        &mut self,
        planned: Result<Step, Code>,
        answer: &Result<Answer, Error>,
    ) -> Result<(), String> {
        let (step, answer) = match (planned, answer) {
            (Err(code), Err(error)) => return same("the error", &error.code(), &code),
            (Err(code), Ok(answer)) => {
                return Err(format!("expected the error {code}, and got {answer:?}"));
            }
            (Ok(step), Err(error)) => {
                let cause = std::error::Error::source(error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                return Err(format!(
                    "the error {} ({error}: {cause})\n   expected: {step:?}",
                    error.code()
                ));
            }
            (Ok(step), Ok(answer)) => (step, answer),
        };
        let previous = self.live;
        match (step, answer) {
            (Step::Same(about), Answer::Checkpointed(done)) => {
                same("created", &done.created, &false)?;
                let at = about.ok_or("BUG: an answer about no checkpoint")?;
                self.check_checkpointed(done, &at, None)?;
                same("the generation", &done.generation, &self.live)
            }
            (Step::Same(_), Answer::Published(done)) => {
                same("created", &done.created, &false)?;
                same("the generation", &done.generation, &self.live)
            }
            (Step::Same(_), Answer::Activated(done)) => same("already", &done.already, &true),
            (Step::Publish(publish), Answer::Checkpointed(done)) => {
                self.settle_checkpoint(*publish, done)
            }
            (Step::Publish(publish), Answer::Published(done)) => {
                same("created", &done.created, &true)?;
                same("the warnings", &done.warnings, &Vec::new())?;
                same("the previous generation", &done.previous, &previous)?;
                self.publish(*publish, done.generation)
            }
            (Step::Publish(publish), Answer::Activated(done)) => {
                same("already", &done.already, &false)?;
                same("the warnings", &done.warnings, &Vec::new())?;
                same(
                    "the previous generation",
                    &done.previous,
                    &publish.trusted.then_some(previous),
                )?;
                same("left behind", &done.left_behind, &publish.left_behind)?;
                same("carried", &done.carried, &publish.carried)?;
                self.publish(*publish, done.generation)
            }
        }
    }

    fn settle_checkpoint(
        &mut self,
        mut publish: Publish,
        done: &Checkpointed,
    ) -> Result<(), String> {
        same("created", &done.created, &true)?;
        same("the warnings", &done.warnings, &Vec::new())?;
        let Some((name, record, tag)) = publish.added.take() else {
            let at = publish
                .about
                .take()
                .ok_or("BUG: an answer about no checkpoint")?;
            self.check_checkpointed(done, &at, None)?;
            return self.publish(publish, done.generation);
        };
        same(
            "a new checkpoint's id is known",
            &self.records.contains_key(&done.id),
            &false,
        )?;
        let number = publish.catalog.add(&name, done.id, &record, tag.as_ref());
        let at = CheckpointRef {
            lineage: name,
            number,
            id: done.id,
        };
        let parent = record.parent;
        self.records.insert(done.id, record);
        self.check_checkpointed(done, &at, parent)?;
        publish.done = Done::Checkpoint(at);
        self.publish(publish, done.generation)
    }

    fn check_checkpointed(
        &self,
        done: &Checkpointed,
        at: &CheckpointRef,
        previous: Option<ObjectId>,
    ) -> Result<(), String> {
        same("the lineage", &done.lineage, &at.lineage)?;
        same("the number", &done.number, &at.number)?;
        same("the id", &done.id, &at.id)?;
        same("the previous checkpoint", &done.previous, &previous)?;
        same("complete", &done.complete, &true)?;
        same("left out", &done.left_out, &Vec::new())?;
        same("healed", &done.healed, &0)?;
        let counts = self.records[&at.id].state.counts();
        let found = (
            done.counts.files,
            done.counts.directories,
            done.counts.links,
            done.counts.bytes,
        );
        same(
            "counts",
            &found,
            &(counts.files, counts.directories, counts.links, counts.bytes),
        )
    }

    fn publish(&mut self, publish: Publish, id: GenerationId) -> Result<(), String> {
        let highest = self
            .generations
            .keys()
            .map(GenerationId::sequence)
            .max()
            .unwrap_or(0);
        same(
            "the sequence of the new generation",
            &id.sequence(),
            &(highest + 1),
        )?;
        let now = self.now.seconds;
        let kept = self.kept_after(&publish, now);
        let (objects, epoch) = match &publish.activated {
            None => (&self.current().objects, self.current().epoch),
            Some((target, _)) => {
                self.epochs += 1;
                (
                    &self.generations[target].objects,
                    (self.epochs, Some(*target)),
                )
            }
        };
        let mut objects = Arc::clone(objects);
        for at in publish.catalog.checkpoints() {
            if !objects.contains(&at.id) {
                Arc::make_mut(&mut objects).insert(at.id);
            }
        }
        let generation = Generation {
            catalog: Arc::new(publish.catalog),
            objects,
            done: publish.done,
            before: publish.trusted.then_some(self.live),
            kept,
            epoch,
            reclaimed: false,
        };
        let is_commit = publish.activated.is_none();
        self.generations.insert(id, generation);
        self.live = id;
        self.fault = None;
        if is_commit {
            self.reclaim();
        }
        Ok(())
    }

    fn kept_after(&self, publish: &Publish, now: i64) -> Vec<Kept> {
        let reason = match (&publish.activated, &publish.done) {
            (Some((_, reason)), _) => *reason,
            (None, Done::Undo { .. }) => KeptReason::Before,
            (None, _) => KeptReason::Plain,
        };
        let holds_something =
            |id: &GenerationId| self.generations.get(id).is_some_and(|kept| !kept.reclaimed);
        if !publish.trusted {
            let known = publish
                .activated
                .and_then(|(target, _)| self.generations.get(&target));
            let known = known
                .map(|target| target.kept.as_slice())
                .unwrap_or_default();
            let evidence = |id: &GenerationId| Kept {
                id: *id,
                reason: KeptReason::Evidence,
                since: now,
            };
            let kept = |id: &GenerationId| known.iter().find(|kept| kept.id == *id).cloned();
            let ids = self.generations.keys().filter(|id| holds_something(id));
            return ids
                .map(|id| kept(id).unwrap_or_else(|| evidence(id)))
                .collect();
        }
        let mut kept: Vec<Kept> = self
            .current()
            .kept
            .iter()
            .filter(|kept| holds_something(&kept.id))
            .cloned()
            .collect();
        for kept in &mut kept {
            if kept.reason == KeptReason::Before && (now - kept.since) / 3600 >= 24 {
                kept.reason = KeptReason::Plain;
            }
        }
        kept.push(Kept {
            id: self.live,
            reason,
            since: now,
        });
        kept.sort_by_key(|kept| kept.id);
        kept
    }

    fn reclaim(&mut self) {
        let plain = self
            .current()
            .kept
            .iter()
            .filter(|kept| kept.reason == KeptReason::Plain);
        let plain: Vec<GenerationId> = plain.map(|kept| kept.id).collect();
        let beyond = plain.len().saturating_sub(KEEP_SUPERSEDED);
        let free = plain[..beyond].iter().filter(|id| !self.held.contains(id));
        for id in free.copied().take(RECLAIM_PER_COMMIT).collect::<Vec<_>>() {
            if let Some(generation) = self.generations.get_mut(&id) {
                generation.reclaimed = true;
            }
        }
    }
}

/// The checkpoint that has the request's key.
fn keyed(catalog: &Catalog, name: &[u8], request: &Request) -> Option<CheckpointRef> {
    let lineage = catalog.lineages.get(name)?;
    let number = *lineage.keys.get(&(request.role, request.key.clone()?))?;
    Some(CheckpointRef {
        lineage: name.to_vec(),
        number,
        id: lineage.checkpoints.get(&number)?.id,
    })
}

/// A tree that has not changed: the existing checkpoint, which may get a tag.
fn unchanged(
    catalog: &Catalog,
    at: CheckpointRef,
    request: &Request,
    tagged: Option<(u64, ObjectId)>,
) -> Result<Step, Code> {
    match (&request.tag, tagged) {
        (Some(_), Some((_, id))) if id != at.id => Err("tag_exists"),
        (None, _) | (Some(_), Some(_)) => Ok(Step::Same(Some(at))),
        (Some(tag), None) => {
            let mut catalog = catalog.clone();
            catalog.set_tag(&at.lineage, at.number, tag)?;
            let action = TagAction::Add { moved_from: None };
            let done = Done::Tag(TagRequest {
                checkpoint: at.clone(),
                tag: tag.clone(),
                action,
            });
            let mut publish = Publish::of(catalog, done);
            publish.about = Some(at);
            Ok(Step::Publish(publish))
        }
    }
}

fn plan_tag(catalog: &Catalog, at: &CheckpointRef, tag: &str, move_it: bool) -> Result<Step, Code> {
    let number = catalog.number_of(at).ok_or("checkpoint_not_found")?;
    let holder = catalog.lineage(&at.lineage)?.tagged(tag);
    let moved_from = match holder {
        Some((_, id)) if id == at.id => return Ok(Step::Same(None)),
        Some(_) if !move_it => return Err("tag_exists"),
        holder => holder.map(|(number, _)| number),
    };
    let mut catalog = catalog.clone();
    catalog.set_tag(&at.lineage, number, tag)?;
    let checkpoint = CheckpointRef {
        number,
        ..at.clone()
    };
    let done = TagRequest {
        checkpoint,
        tag: tag.to_owned(),
        action: TagAction::Add { moved_from },
    };
    Ok(Step::Publish(Publish::of(catalog, Done::Tag(done))))
}

fn plan_untag(catalog: &Catalog, lineage: &[u8], tag: &str) -> Result<Step, Code> {
    let (number, id) = catalog
        .lineage(lineage)?
        .tagged(tag)
        .ok_or("tag_not_found")?;
    let mut catalog = catalog.clone();
    catalog.remove_tag(lineage, tag)?;
    let checkpoint = CheckpointRef {
        lineage: lineage.to_vec(),
        number,
        id,
    };
    let done = TagRequest {
        checkpoint,
        tag: tag.to_owned(),
        action: TagAction::Remove,
    };
    Ok(Step::Publish(Publish::of(catalog, Done::Tag(done))))
}

fn plan_lineage(catalog: &Catalog, call: &Call) -> Result<Step, Code> {
    let mut catalog = catalog.clone();
    let (lineage, action) = match call {
        Call::Archive { lineage, reason } => {
            let reason = reason.clone().into_bytes();
            let there = catalog.lineage_mut(lineage)?;
            if there.archived.is_some() {
                return Ok(Step::Same(None));
            }
            there.archived = Some(reason.clone());
            (lineage, LineageAction::Archive { reason })
        }
        Call::Unarchive { lineage } => match catalog.lineage_mut(lineage)?.archived.take() {
            None => return Ok(Step::Same(None)),
            Some(reason) => (lineage, LineageAction::Unarchive { reason }),
        },
        Call::Rename { from, to } => {
            catalog.rename(from, to)?;
            if from == to {
                return Ok(Step::Same(None));
            }
            (from, LineageAction::Rename { to: to.clone() })
        }
        _ => return Err("BUG: not about a lineage"),
    };
    let done = Done::Lineage(LineageRequest {
        lineage: lineage.clone(),
        action,
    });
    Ok(Step::Publish(Publish::of(catalog, done)))
}

/// The lineage that an operation is on now.
fn lineage_of(applied: &Applied) -> Option<&[u8]> {
    Some(match applied {
        Applied::Drop(at) | Applied::Return(at) => &at.lineage,
        Applied::Tag(tag) => &tag.checkpoint.lineage,
        Applied::Pin(pin) => &pin.checkpoint.lineage,
        Applied::Note(note) => &note.checkpoint.lineage,
        Applied::Lineage(LineageRequest {
            action: LineageAction::Rename { to },
            ..
        }) => to,
        Applied::Lineage(request) => &request.lineage,
        Applied::Activate(_) => return None,
    })
}

/// Applies the inverse of what was applied, and says what that was.
fn invert(catalog: &mut Catalog, applied: &Applied) -> Result<Applied, Code> {
    let number_of =
        |catalog: &Catalog, at: &CheckpointRef| catalog.number_of(at).ok_or("undo_unavailable");
    match applied {
        Applied::Return(at) => {
            let number = number_of(catalog, at)?;
            catalog.drop_checkpoint(&at.lineage, number)?;
            Ok(Applied::Drop(CheckpointRef {
                number,
                ..at.clone()
            }))
        }
        Applied::Tag(tag) => invert_tag(catalog, tag).map(Applied::Tag),
        Applied::Pin(pin) => {
            let number = number_of(catalog, &pin.checkpoint)?;
            let entry = catalog.entry_mut(&pin.checkpoint.lineage, number)?;
            let was = std::mem::replace(&mut entry.pinned, pin.was);
            let checkpoint = CheckpointRef {
                number,
                ..pin.checkpoint.clone()
            };
            Ok(Applied::Pin(PinRequest {
                checkpoint,
                value: pin.was,
                was,
            }))
        }
        Applied::Note(note) => {
            let number = number_of(catalog, &note.checkpoint)?;
            let entry = catalog.entry_mut(&note.checkpoint.lineage, number)?;
            let was = std::mem::replace(&mut entry.note, note.was.clone());
            if was != note.note {
                return Err("undo_unavailable");
            }
            let checkpoint = CheckpointRef {
                number,
                ..note.checkpoint.clone()
            };
            Ok(Applied::Note(NoteRequest {
                checkpoint,
                note: note.was.clone(),
                was,
            }))
        }
        Applied::Lineage(request) => invert_lineage(catalog, request).map(Applied::Lineage),
        Applied::Drop(_) | Applied::Activate(_) => Err("BUG: dealt with elsewhere"),
    }
}

fn invert_tag(catalog: &mut Catalog, tag: &TagRequest) -> Result<TagRequest, Code> {
    let name = &tag.checkpoint.lineage;
    let lineage = catalog.lineage(name).map_err(|_| "undo_unavailable")?;
    match (tag.action, lineage.tagged(&tag.tag)) {
        (TagAction::Remove, None) => {
            let number = catalog
                .number_of(&tag.checkpoint)
                .ok_or("undo_unavailable")?;
            catalog.set_tag(name, number, &tag.tag)?;
            let checkpoint = CheckpointRef {
                number,
                ..tag.checkpoint.clone()
            };
            Ok(TagRequest {
                checkpoint,
                tag: tag.tag.clone(),
                action: TagAction::Add { moved_from: None },
            })
        }
        (TagAction::Add { moved_from }, Some((holder, id))) if id == tag.checkpoint.id => {
            let back =
                moved_from.and_then(|number| Some((number, lineage.checkpoints.get(&number)?.id)));
            let Some((number, id)) = back else {
                catalog.remove_tag(name, &tag.tag)?;
                return Ok(TagRequest {
                    action: TagAction::Remove,
                    ..tag.clone()
                });
            };
            catalog.set_tag(name, number, &tag.tag)?;
            let checkpoint = CheckpointRef {
                lineage: name.clone(),
                number,
                id,
            };
            let action = TagAction::Add {
                moved_from: Some(holder),
            };
            Ok(TagRequest {
                checkpoint,
                tag: tag.tag.clone(),
                action,
            })
        }
        _ => Err("undo_unavailable"),
    }
}

fn invert_lineage(catalog: &mut Catalog, request: &LineageRequest) -> Result<LineageRequest, Code> {
    let lineage = request.lineage.clone();
    let action = match &request.action {
        LineageAction::Archive { reason } => {
            catalog
                .lineage_mut(&lineage)?
                .archived
                .take()
                .ok_or("undo_unavailable")?;
            LineageAction::Unarchive {
                reason: reason.clone(),
            }
        }
        LineageAction::Unarchive { reason } => {
            let there = catalog.lineage_mut(&lineage)?;
            if there.archived.replace(reason.clone()).is_some() {
                return Err("undo_unavailable");
            }
            LineageAction::Archive {
                reason: reason.clone(),
            }
        }
        LineageAction::Rename { to } => {
            catalog.rename(to, &lineage)?;
            return Ok(LineageRequest {
                lineage: to.clone(),
                action: LineageAction::Rename { to: lineage },
            });
        }
    };
    Ok(LineageRequest { lineage, action })
}
