//! `verify`: every byte of a generation, and the closure of every checkpoint. Changes nothing.
//!
//! References are read first (the pinned manifest), presence after: beside a writer there is no false alarm.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::catalog::{self, Catalog};
use crate::disk::{self, Dir, Kind};
use crate::format::checkpoint::CheckpointRecord;
use crate::format::manifest::{Manifest, PackEntry, PackState};
use crate::format::tree::{Entry, MAX_DEPTH, Node};
use crate::id::{GenerationId, ObjectId};
use crate::objects::ObjectSource;
use crate::objects::chunker;
use crate::objects::reader::PackSet;
use crate::objects::verify::{PackReport, Problem};
use crate::progress::Phase;
use crate::root::{Context, Root};
use crate::worktree::tasks;
use crate::{Error, Result, layout};

use super::base::{Access, Base, open_packs};
use super::candidate::Candidate;
use super::read::load_tree;

/// What to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyTarget {
    /// The live generation.
    Live,
    /// A generation of this store.
    Generation(GenerationId),
    /// Any directory: a generation's, a candidate, or another store (its live generation).
    Directory(PathBuf),
}

/// What was found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The generation that was verified, if its id could be read.
    pub generation: Option<GenerationId>,
    /// Nothing is damaged.
    pub ok: bool,
    /// Everything that is.
    pub damage: Vec<Damage>,
    /// Packs looked at.
    pub packs: u64,
    /// Objects whose bytes were checked.
    pub objects: u64,
    /// Bytes of packs.
    pub bytes: u64,
    /// Checkpoints followed to every object.
    pub checkpoints: u64,
    /// Bodies of file contents were not read.
    pub quick: bool,
}

/// One thing that is damaged: which checkpoint, which path, which object, how much.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The checkpoint that needs it.
    pub checkpoint: Option<ObjectId>,
    /// The checkpoint's lineage.
    pub lineage: Option<Vec<u8>>,
    /// The path in the checkpoint, or the store's file.
    pub path: Option<Vec<u8>>,
    /// The object.
    pub object: Option<ObjectId>,
    /// How many bytes of the file at `path` are concerned: its size.
    pub bytes: Option<u64>,
    /// What is wrong.
    pub problem: String,
}

impl Damage {
    fn file(path: &Path, object: Option<ObjectId>, problem: impl Into<String>) -> Self {
        Self {
            checkpoint: None,
            lineage: None,
            path: Some(path.as_os_str().as_encoded_bytes().to_vec()),
            object,
            bytes: None,
            problem: problem.into(),
        }
    }
}

/// Verifies a target of the store (or any directory).
pub(crate) fn verify(
    root: &Root,
    context: &Context,
    target: &VerifyTarget,
    quick: bool,
) -> Result<VerifyReport> {
    match target {
        VerifyTarget::Live => {
            verify_base(&Base::open(root, context, Access::Read)?, context, quick)
        }
        VerifyTarget::Generation(id) => verify_base(
            &Base::open_generation(root, context, id, Access::Read)?,
            context,
            quick,
        ),
        VerifyTarget::Directory(path) => verify_directory(context, path, quick),
    }
}

/// Verifies a directory that need not be in any store.
pub(crate) fn verify_directory(
    context: &Context,
    path: &Path,
    quick: bool,
) -> Result<VerifyReport> {
    let current = path.join(layout::CURRENT);
    if disk::look_at_path_itself(&current)?.is_some() {
        let root = Root::open(path)?;
        return verify_base(&Base::open(&root, context, Access::Read)?, context, quick);
    }
    if disk::look_at_path_itself(path)?.is_none() {
        return Err(Error::not_found(
            crate::Wanted::Generation,
            path.display().to_string(),
            "there is nothing at that path",
        ));
    }
    let candidate = match Candidate::open(path) {
        Ok(candidate) => candidate,
        Err(Error::CandidateInvalid { path, problem }) => {
            let damage = vec![Damage::file(&path, None, problem)];
            return Ok(VerifyReport {
                damage,
                quick,
                ..VerifyReport::default()
            });
        }
        Err(error) => return Err(error),
    };
    let mut check = Check::new(context, &candidate.manifest, quick);
    check.report.generation = Some(candidate.id);
    if let Err(error) = candidate.check_shape() {
        check.damage(Damage::file(path, None, error.to_string()));
    }
    let packs = crate::generation::examine_packs(&candidate.dir, &candidate.manifest)?;
    for pack in packs.iter().filter(|pack| pack.state != PackState::Ok) {
        check.broken_pack(&candidate.dir, pack);
    }
    let objects = open_packs(&candidate.dir, &packs, Access::Read);
    check.run(&objects)
}

/// Verifies a pinned generation.
pub(crate) fn verify_base(base: &Base, context: &Context, quick: bool) -> Result<VerifyReport> {
    let mut check = Check::new(context, base.manifest(), quick);
    check.report.generation = Some(base.live.id);
    for pack in base.packs.iter().filter(|pack| pack.state != PackState::Ok) {
        check.broken_pack(&base.live.dir, pack);
    }
    for name in base.live.dir.list()? {
        let known = disk::as_text(&name).is_some_and(|text| {
            text == layout::MANIFEST
                || text == layout::REPAIR_RECEIPT
                || layout::parse_pack_name(text.as_bytes()).is_some()
        });
        let facts = disk::as_text(&name)
            .map(|text| base.live.dir.look(text))
            .transpose()?
            .flatten();
        if known && facts.is_some_and(|facts| facts.kind != Kind::File) {
            check.damage(Damage::file(
                &base.live.dir.path_of(&name),
                None,
                "it is not a regular file",
            ));
        }
    }
    check.run(&base.objects)
}

/// Verifies packs that are not in a generation yet, in full, against the manifest that they belong to.
pub(crate) fn verify_packs(
    context: &Context,
    manifest: &Manifest,
    objects: &PackSet,
) -> Result<VerifyReport> {
    Check::new(context, manifest, false).run(objects)
}

/// Problems of all packs, and each pack's report.
type PacksFound = (Vec<Problem>, Vec<(ObjectId, PackReport)>);

/// One verification.
struct Check<'a> {
    context: &'a Context,
    manifest: &'a Manifest,
    report: VerifyReport,
    /// Objects that no copy gives.
    bad: BTreeMap<ObjectId, String>,
    /// Objects recorded as lost: their absence is known, and still damage.
    lost: BTreeSet<ObjectId>,
    /// Trees (and chunk lists) below which everything is there.
    clean: HashSet<ObjectId>,
    /// What is wrong with pack files: reported only where no checkpoint's path tells it.
    files: Vec<PackProblem>,
}

/// Something that is wrong with a pack file, and the objects that it may cost.
struct PackProblem {
    damage: Damage,
    objects: BTreeSet<ObjectId>,
    /// Damage only if something else is damaged: nothing may need the pack any more.
    if_needed: bool,
}

impl<'a> Check<'a> {
    fn new(context: &'a Context, manifest: &'a Manifest, quick: bool) -> Self {
        Self {
            context,
            manifest,
            report: VerifyReport {
                quick,
                ..VerifyReport::default()
            },
            bad: BTreeMap::new(),
            lost: manifest.lost.iter().map(|lost| lost.object).collect(),
            clean: HashSet::new(),
            files: Vec::new(),
        }
    }

    fn damage(&mut self, damage: Damage) {
        self.report.damage.push(damage);
    }

    fn broken_pack(&mut self, dir: &Dir, pack: &PackEntry) {
        let problem = match pack.state {
            PackState::Missing => "the pack is missing",
            _ => "the pack cannot be used: its size or its index is not right",
        };
        let damage = Damage::file(
            &dir.path_of(layout::pack_name(&pack.id)),
            Some(pack.id),
            problem,
        );
        // What the manifest records already is damage only as long as something needs it.
        let if_needed = self
            .manifest
            .packs
            .iter()
            .any(|known| known.id == pack.id && known.state != PackState::Ok);
        self.files.push(PackProblem {
            damage,
            objects: BTreeSet::new(),
            if_needed,
        });
    }

    fn run(mut self, objects: &PackSet) -> Result<VerifyReport> {
        self.packs(objects)?;
        self.closure(objects)?;
        self.add_files();
        self.report.ok = self.report.damage.is_empty();
        Ok(self.report)
    }

    /// A pack's problem is told by the paths that it costs; what costs no path is told by the pack.
    fn add_files(&mut self) {
        let told: BTreeSet<ObjectId> = self
            .report
            .damage
            .iter()
            .filter_map(|damage| damage.object)
            .collect();
        for problem in std::mem::take(&mut self.files) {
            let costs_more = problem.objects.iter().any(|object| !told.contains(object));
            let wanted = if problem.if_needed {
                !told.is_empty()
            } else {
                problem.objects.is_empty()
            };
            if wanted || costs_more {
                self.report.damage.push(problem.damage);
            }
        }
    }

    /// Every pack's name, index, blocks and objects; several packs at the same time.
    fn packs(&mut self, objects: &PackSet) -> Result<()> {
        let bytes: u64 = (0..objects.len())
            .filter_map(|pack| objects.file(pack))
            .map(|file| file.len())
            .sum();
        self.context.progress.begin(Phase::Verify, Some(bytes));
        self.report.packs = objects.len() as u64;
        self.report.bytes = bytes;
        let found: Mutex<PacksFound> = Mutex::default();
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let quick = self.report.quick;
        let context = self.context;
        let helpers = context.helpers()?;
        tasks::run(helpers.as_ref(), |tasks| {
            for pack in 0..objects.len() {
                let (found, failed) = (&found, &failed);
                tasks.spawn(move |_| {
                    let mut problems = Vec::new();
                    let checked = context.cancel.check().and_then(|()| {
                        let mut note = |problem| problems.push(problem);
                        if quick {
                            objects.verify_pack_quick(pack, &mut note)
                        } else {
                            objects.verify_pack(pack, &mut note)
                        }
                    });
                    context
                        .progress
                        .advance(0, objects.file(pack).map_or(0, |file| file.len()));
                    match checked {
                        Ok(report) => {
                            let mut found = found
                                .lock()
                                .unwrap_or_else(std::sync::PoisonError::into_inner);
                            found.0.extend(problems);
                            found.1.push((
                                objects
                                    .pack_id(pack)
                                    .copied()
                                    .unwrap_or(ObjectId::from_bytes([0; 32])),
                                report,
                            ));
                        }
                        Err(error) => {
                            *failed
                                .lock()
                                .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                        }
                    }
                });
            }
        });
        if let Some(error) = failed
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
        {
            return Err(error);
        }
        let (problems, reports) = found
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let bad_of: BTreeMap<ObjectId, BTreeSet<ObjectId>> = reports
            .iter()
            .map(|(pack, report)| (*pack, report.bad.clone()))
            .collect();
        for problem in problems {
            let objects = match problem.object {
                Some(object) => BTreeSet::from([object]),
                None => bad_of.get(&problem.pack).cloned().unwrap_or_default(),
            };
            let damage = Damage::file(
                &problem.path,
                problem.object.or(Some(problem.pack)),
                problem.problem,
            );
            self.files.push(PackProblem {
                damage,
                objects,
                if_needed: false,
            });
        }
        for (_, report) in reports {
            self.report.objects += report.good;
            for id in report.bad {
                // Another pack may have a good copy.
                if let Err(error) = objects.get(&id, crate::format::pack::MAX_BLOCK_BYTES as usize)
                {
                    self.bad.insert(id, error.to_string());
                }
            }
        }
        Ok(())
    }

    /// Every checkpoint of every lineage, to every object.
    fn closure(&mut self, objects: &PackSet) -> Result<()> {
        let catalog = match Catalog::open(objects, &self.manifest.catalog) {
            Ok(catalog) => catalog,
            Err(error) => {
                self.unreadable(None, None, &error);
                return Ok(());
            }
        };
        self.context
            .progress
            .begin(Phase::Closure, catalog.count().ok());
        for problem in catalog::check(&catalog) {
            self.damage(Damage {
                checkpoint: None,
                lineage: None,
                path: None,
                object: Some(self.manifest.catalog),
                bytes: None,
                problem: format!("catalog: {problem}"),
            });
        }
        for lineage in catalog.lineages() {
            let lineage = match lineage {
                Ok(lineage) => lineage,
                Err(error) => {
                    self.unreadable(None, None, &error);
                    continue;
                }
            };
            for numbered in lineage.newest_first() {
                self.context.cancel.check()?;
                match numbered {
                    Ok(numbered) => {
                        self.checkpoint(objects, &catalog, lineage.name(), &numbered.entry.id)?;
                    }
                    // The iterator cannot go on behind a node that cannot be read.
                    Err(error) => {
                        self.unreadable(None, Some(lineage.name()), &error);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn unreadable(&mut self, checkpoint: Option<ObjectId>, lineage: Option<&[u8]>, error: &Error) {
        let object = match error {
            Error::ObjectMissing { object, .. } => Some(*object),
            Error::Damaged { object, .. } => *object,
            _ => None,
        };
        self.damage(Damage {
            checkpoint,
            lineage: lineage.map(<[u8]>::to_vec),
            path: None,
            object,
            bytes: None,
            problem: error.to_string(),
        });
    }

    fn checkpoint(
        &mut self,
        objects: &PackSet,
        catalog: &Catalog<'_>,
        lineage: &[u8],
        id: &ObjectId,
    ) -> Result<()> {
        self.report.checkpoints += 1;
        self.context.progress.advance(1, 0);
        let record = match catalog.record(id) {
            Ok(record) => record,
            Err(error) => {
                self.unreadable(Some(*id), Some(lineage), &error);
                return Ok(());
            }
        };
        let at = At {
            checkpoint: *id,
            lineage,
        };
        for (what, list) in lists_of(&record) {
            if let Some(problem) = self.problem_with(objects, &list)? {
                self.broken(&at, Vec::new(), list, 0, format!("{what}: {problem}"));
            }
        }
        self.tree(objects, &at, &record.tree)
    }

    /// What is wrong with an object that must be there.
    fn problem_with(&self, objects: &PackSet, id: &ObjectId) -> Result<Option<String>> {
        if let Some(problem) = self.bad.get(id) {
            return Ok(Some(problem.clone()));
        }
        match objects.contains(id) {
            Ok(true) => Ok(None),
            Ok(false) if self.lost.contains(id) => {
                Ok(Some("the content is recorded as lost".to_owned()))
            }
            Ok(false) => Ok(Some("the object is missing".to_owned())),
            Err(error @ (Error::Damaged { .. } | Error::ObjectMissing { .. })) => {
                Ok(Some(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn broken(
        &mut self,
        at: &At<'_>,
        path: Vec<u8>,
        object: ObjectId,
        bytes: u64,
        problem: String,
    ) {
        self.damage(Damage {
            checkpoint: Some(at.checkpoint),
            lineage: Some(at.lineage.to_vec()),
            path: Some(path),
            object: Some(object),
            bytes: Some(bytes),
            problem,
        });
    }

    /// Depth first with a stack of its own. A tree below which all is well is followed only once.
    fn tree(&mut self, objects: &PackSet, at: &At<'_>, root: &ObjectId) -> Result<()> {
        let mut stack: Vec<Level> = Vec::new();
        self.enter(objects, at, *root, Vec::new(), &mut stack)?;
        while let Some(level) = stack.last_mut() {
            let Some(entry) = level.entries.next() else {
                let done = stack.pop().expect("BUG: looked at just above");
                if done.clean {
                    self.clean.insert(done.id);
                } else if let Some(above) = stack.last_mut() {
                    above.clean = false;
                }
                continue;
            };
            let path = if level.path.is_empty() {
                entry.name.clone()
            } else {
                [&level.path, &b"/"[..], &entry.name].concat()
            };
            let before = self.report.damage.len();
            for extra in extras_of(&entry) {
                if let Some(problem) = self.problem_with(objects, &extra)? {
                    self.broken(at, path.clone(), extra, 0, problem);
                }
            }
            match &entry.node {
                Node::Directory { tree } => self.enter(objects, at, *tree, path, &mut stack)?,
                Node::File { .. } => self.file(objects, at, path, &entry)?,
                Node::Symlink { .. } => {}
            }
            if self.report.damage.len() != before {
                // A directory that could not be entered was not pushed: the level on top is the one that holds it.
                if let Some(above) = stack.last_mut() {
                    above.clean = false;
                }
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        objects: &PackSet,
        at: &At<'_>,
        id: ObjectId,
        path: Vec<u8>,
        stack: &mut Vec<Level>,
    ) -> Result<()> {
        if self.clean.contains(&id) {
            return Ok(());
        }
        if stack.len() > MAX_DEPTH {
            self.broken(at, path, id, 0, "trees nest too deep".to_owned());
            return Ok(());
        }
        match load_tree(objects, &id) {
            Ok(tree) => stack.push(Level {
                id,
                path,
                entries: tree.entries.into_iter(),
                clean: true,
            }),
            Err(error @ (Error::Damaged { .. } | Error::ObjectMissing { .. })) => {
                self.broken(
                    at,
                    path,
                    id,
                    0,
                    format!("the directory cannot be read: {error}"),
                );
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn file(&mut self, objects: &PackSet, at: &At<'_>, path: Vec<u8>, entry: &Entry) -> Result<()> {
        let Node::File { size, content, .. } = &entry.node else {
            return Ok(());
        };
        let Some(top) = content.id().copied() else {
            return Ok(());
        };
        if self.clean.contains(&top) {
            return Ok(());
        }
        let mut wrong: Vec<(ObjectId, String)> = Vec::new();
        let visited = chunker::visit_chunks(objects, content, *size, &mut |chunk, length| {
            if let Some(problem) = self.problem_with(objects, &chunk)? {
                wrong.push((chunk, problem));
            } else if let Some(at) = objects.locate(&chunk)?
                && u64::from(at.length) != length
            {
                wrong.push((
                    chunk,
                    format!("{} bytes long instead of {length}", at.length),
                ));
            }
            Ok(())
        });
        match visited {
            Ok(()) if wrong.is_empty() => {
                if matches!(content, crate::format::content::Content::List(_)) {
                    self.clean.insert(top);
                }
            }
            Ok(()) => {
                for (chunk, problem) in wrong {
                    self.broken(at, path.clone(), chunk, *size, problem);
                }
            }
            Err(error @ (Error::Damaged { .. } | Error::ObjectMissing { .. })) => {
                self.broken(at, path, top, *size, error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The objects beside its content that an entry names.
pub(crate) fn extras_of(entry: &Entry) -> impl Iterator<Item = ObjectId> {
    let holes = match &entry.node {
        Node::File { holes, .. } => holes.object().copied(),
        _ => None,
    };
    entry.xattrs.object().copied().into_iter().chain(holes)
}

struct At<'a> {
    checkpoint: ObjectId,
    lineage: &'a [u8],
}

struct Level {
    id: ObjectId,
    path: Vec<u8>,
    entries: std::vec::IntoIter<Entry>,
    clean: bool,
}

/// The lists that a record names.
fn lists_of(record: &CheckpointRecord) -> Vec<(&'static str, ObjectId)> {
    let mut lists = Vec::new();
    lists.extend(record.rules.map(|id| ("rules", id)));
    lists.extend(record.left_out.map(|id| ("left-out list", id)));
    lists.extend(record.wrote.map(|id| ("written paths", id)));
    lists.extend(record.hard_links.object().map(|id| ("hard links", *id)));
    lists.extend(record.root.xattrs.object().map(|id| ("attributes", *id)));
    lists
}
