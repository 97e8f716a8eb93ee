//! `status`: what is live, how big it is, what is wrong. Works while nothing can be trusted, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::disk::{self, Dir, Kind};
use crate::format::manifest::{KeptReason, Manifest, PackState, Policy};
use crate::id::{GenerationId, StoreId};
use crate::root::{Context, Root};
use crate::selector::{self, Raw};
use crate::{Error, Result, layout, lock};

use super::Warning;
use super::base::{Access, Base};
use super::commit::PACKS_TARGET;
use super::init;
use super::read::{LineageInfo, View};

/// How many problems of one kind are warned of singly.
const MAX_NAMED: usize = 8;

/// Everything that can be told about a store at a glance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The store's id, if it can be trusted.
    pub store: Option<StoreId>,
    /// Where it is.
    pub path: PathBuf,
    /// What CURRENT says.
    pub selector: SelectorStatus,
    /// Every generation directory.
    pub generations: Vec<GenerationStatus>,
    /// Every lineage of the live generation.
    pub lineages: Vec<LineageInfo>,
    /// Where the space is.
    pub bytes: BytesStatus,
    /// Emptied generation directories.
    pub husks: u64,
    /// Packs of the live generation.
    pub packs: u64,
    /// Who holds LOCK now.
    pub lock_holder: Option<String>,
    /// The retention rules.
    pub policy: Option<Policy>,
    /// What is wrong, each with the least destructive command.
    pub warnings: Vec<Warning>,
    /// Whether `maintain` has something to do.
    pub maintain_due: bool,
    /// The error that every verb which needs the live generation would give.
    pub fault: Option<String>,
}

/// What CURRENT says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelectorStatus {
    /// `ok` or `untrusted`.
    pub state: &'static str,
    /// The fault's code.
    pub code: Option<&'static str>,
    /// What is wrong, or nothing.
    pub message: String,
    /// The generation that CURRENT names, if its bytes name one.
    pub current: Option<GenerationId>,
    /// CURRENT's bytes, if it is a regular file (at most 4,096).
    pub raw: Option<Vec<u8>>,
    /// The generation that could be made live instead, if CURRENT is untrusted.
    pub mend: Option<GenerationId>,
}

/// One generation directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenerationStatus {
    /// Its id.
    pub id: GenerationId,
    /// `live`, `superseded`, `before`, `evidence`, `unknown` (complete, but no list names it), `incomplete` or `husk`.
    pub state: &'static str,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes that would come back if it went: files that no other generation shares.
    pub own_bytes: u64,
    /// When it was made, RFC 3339.
    pub created: Option<String>,
    /// What made it.
    pub operation: Option<&'static str>,
}

/// Where the space is, in bytes; a file that several generations share counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BytesStatus {
    /// Files of the live generation.
    pub live: u64,
    /// Files that only superseded generations have.
    pub superseded_only: u64,
    /// Files that only evidence has.
    pub evidence: u64,
    /// Temporary files of writers at work (or of crashed ones).
    pub incoming: u64,
    /// Derived data.
    pub cache: u64,
    /// All of it.
    pub total: u64,
}

/// Reports on a store.
///
/// # Errors
/// Only if the store's own directory cannot be read; a fault of the selector is part of the report.
pub(crate) fn status(root: &Root, context: &Context) -> Result<Status> {
    let mut warnings = Vec::new();
    let raw = selector::read_raw(&root.dir)?;
    let resolved = Base::open(root, context, Access::Read);
    let mut generations = survey(root, &mut warnings)?;
    let (base, selector) = match resolved {
        Ok(base) => {
            let current = Some(base.live.id);
            (
                Some(base),
                SelectorStatus {
                    state: "ok",
                    code: None,
                    message: String::new(),
                    current,
                    raw: bytes(&raw),
                    mend: None,
                },
            )
        }
        Err(error) if error.is_unavailable() => {
            let selector = untrusted(root, context, &raw, &error, &generations, &mut warnings)?;
            (None, selector)
        }
        Err(error) => return Err(error),
    };
    classify(
        &mut generations,
        base.as_ref().map(|base| (base.live.id, base.manifest())),
    );
    let mut status = Status {
        store: base.as_ref().map(|base| base.manifest().store),
        path: root.dir.path().to_owned(),
        fault: (selector.state != "ok").then(|| selector.message.clone()),
        selector,
        bytes: BytesStatus::default(),
        husks: generations
            .iter()
            .filter(|found| found.status.state == "husk")
            .count() as u64,
        packs: base.as_ref().map_or(0, |base| base.packs.len() as u64),
        lock_holder: lock::current_holder(&root.dir)?,
        policy: base
            .as_ref()
            .and_then(|base| base.manifest().policy.clone()),
        lineages: Vec::new(),
        generations: Vec::new(),
        maintain_due: base
            .as_ref()
            .is_some_and(|base| base.packs.len() > PACKS_TARGET),
        warnings: Vec::new(),
    };
    status.bytes = price(&mut generations);
    status.bytes.incoming = files_in(root, layout::INCOMING, &mut warnings);
    status.bytes.cache = files_in(root, layout::CACHE, &mut warnings);
    status.bytes.total = status.bytes.live
        + status.bytes.superseded_only
        + status.bytes.evidence
        + status.bytes.incoming
        + status.bytes.cache;
    status.generations = generations.into_iter().map(|found| found.status).collect();
    if let Some(base) = base {
        warn_of_damage(&base, &mut warnings);
        let view = View {
            base,
            root: root.clone(),
            context: context.clone(),
        };
        match view.lineages() {
            Ok(lineages) => status.lineages = lineages,
            Err(error) => warnings.push(Warning::from_error("catalog_unreadable", &error)),
        }
    }
    warn_of_names(root, &mut warnings)?;
    if status.maintain_due {
        warnings.push(Warning {
            code: "maintain_due",
            message: format!(
                "the live generation has {} packs, more than {PACKS_TARGET}",
                status.packs
            ),
            hint: None,
        });
    }
    status.warnings = warnings;
    Ok(status)
}

fn bytes(raw: &Raw) -> Option<Vec<u8>> {
    match raw {
        Raw::File(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// A generation directory with its files, by inode.
struct Surveyed {
    status: GenerationStatus,
    manifest: Option<Manifest>,
    files: BTreeMap<(u64, u64), u64>,
}

/// Looks at every generation directory. One that cannot be read is a warning; the others are still shown.
fn survey(root: &Root, warnings: &mut Vec<Warning>) -> Result<Vec<Surveyed>> {
    let generations = match root.sub(layout::GENERATIONS) {
        Ok(generations) => generations,
        Err(error) => {
            warnings.push(Warning::from_error("generations_unreadable", &error));
            return Ok(Vec::new());
        }
    };
    let mut found = Vec::new();
    let mut foreign = Vec::new();
    for name in generations.list()? {
        let Some(id) = GenerationId::parse(name.as_encoded_bytes()) else {
            foreign.push(crate::name::escape(name.as_encoded_bytes()));
            continue;
        };
        match survey_one(&generations, id) {
            Ok(surveyed) => found.push(surveyed),
            Err(error) => warnings.push(Warning::from_error("generation_unreadable", &error)),
        }
    }
    warn_of_foreign(&generations, foreign, warnings);
    found.sort_by_key(|surveyed| surveyed.status.id);
    Ok(found)
}

fn survey_one(generations: &Dir, id: GenerationId) -> Result<Surveyed> {
    let dir = generations.open_dir(&id.to_string())?;
    let mut files = BTreeMap::new();
    for name in dir.list()? {
        let Some(name) = disk::as_text(&name) else {
            continue;
        };
        if let Some(facts) = dir.look(name)? {
            files.insert((facts.device, facts.inode), facts.bytes);
        }
    }
    let manifest = selector::read_manifest(&dir, &id).ok();
    let state = match (&manifest, files.is_empty()) {
        (_, true) => "husk",
        (None, false) => "incomplete",
        (Some(_), false) => "unknown",
    };
    let status = GenerationStatus {
        id,
        state,
        bytes: files.values().sum(),
        own_bytes: 0,
        created: manifest.as_ref().map(|manifest| manifest.created.clone()),
        operation: manifest
            .as_ref()
            .map(|manifest| manifest.operation.kind.word()),
    };
    Ok(Surveyed {
        status,
        manifest,
        files,
    })
}

fn classify(generations: &mut [Surveyed], live: Option<(GenerationId, &Manifest)>) {
    let Some((live, manifest)) = live else { return };
    let kept: BTreeMap<GenerationId, KeptReason> = manifest
        .kept
        .iter()
        .map(|kept| (kept.id, kept.reason))
        .collect();
    for found in generations {
        let status = &mut found.status;
        if status.id == live {
            status.state = "live";
        } else if status.state == "unknown"
            && let Some(reason) = kept.get(&status.id)
        {
            status.state = match reason {
                KeptReason::Plain => "superseded",
                KeptReason::Before => "before",
                KeptReason::Evidence => "evidence",
            };
        }
    }
}

/// Shares out the bytes: a file counts for the most important generation that has it.
fn price(generations: &mut [Surveyed]) -> BytesStatus {
    let mut holders: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for found in generations.iter() {
        for inode in found.files.keys() {
            *holders.entry(*inode).or_default() += 1;
        }
    }
    for found in generations.iter_mut() {
        found.status.own_bytes = found
            .files
            .iter()
            .filter(|(inode, _)| holders.get(inode) == Some(&1))
            .map(|(_, bytes)| bytes)
            .sum();
    }
    let mut counted: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut bytes = BytesStatus::default();
    for wanted in ["live", "other", "evidence"] {
        for found in generations.iter() {
            let class = match found.status.state {
                "live" => "live",
                "evidence" => "evidence",
                _ => "other",
            };
            if class != wanted {
                continue;
            }
            let sum: u64 = found
                .files
                .iter()
                .filter(|(inode, _)| counted.insert(**inode))
                .map(|(_, bytes)| bytes)
                .sum();
            match class {
                "live" => bytes.live += sum,
                "evidence" => bytes.evidence += sum,
                _ => bytes.superseded_only += sum,
            }
        }
    }
    bytes
}

fn files_in(root: &Root, name: &'static str, warnings: &mut Vec<Warning>) -> u64 {
    let count = || -> Result<u64> {
        let dir = root.sub(name)?;
        let mut sum = 0;
        for file in dir.list()? {
            if let Some(file) = disk::as_text(&file) {
                sum += dir.look(file)?.map_or(0, |facts| facts.bytes);
            }
        }
        Ok(sum)
    };
    match count() {
        Ok(sum) => sum,
        // Made again by the next writer.
        Err(error) if error.errno() == Some(rustix::io::Errno::NOENT) => 0,
        Err(error) => {
            warnings.push(Warning::from_error("directory_unreadable", &error));
            0
        }
    }
}

/// The report on a CURRENT that cannot be trusted, with the exact command that would mend it.
fn untrusted(
    root: &Root,
    context: &Context,
    raw: &Raw,
    error: &Error,
    generations: &[Surveyed],
    warnings: &mut Vec<Warning>,
) -> Result<SelectorStatus> {
    let store = crate::name::quote_path(root.dir.path());
    let named = selector::selected(raw).ok();
    let mend = best_to_activate(root, context, generations);
    let mut hint = match mend {
        _ if init::looks_unfinished(root)? && mend.is_none() => format!("finish the init: genstore init --store {store}"),
        Some(id) => format!("genstore activate {id} --replace-selector --store {store}"),
        None => "no generation here is intact: activate one from a backup with `genstore activate DIR --replace-selector`".to_owned(),
    };
    if *raw == Raw::Other(Kind::Directory) {
        let current = crate::name::quote_path(&root.dir.path_of(layout::CURRENT));
        hint = format!("mv {current} {current}.aside && {hint}");
    }
    if let (Some(mend), Some(named)) = (mend, named)
        && mend.sequence() < named.sequence()
    {
        warnings.push(Warning::new(
            "older_state",
            format!(
                "the newest intact generation is {mend}, older than {named} which CURRENT names"
            ),
            format!(
                "see what it holds first: genstore log --all --generation {mend} --store {store}"
            ),
        ));
    }
    warnings.push(Warning::new(error.code(), error.to_string(), hint));
    Ok(SelectorStatus {
        state: "untrusted",
        code: Some(error.code()),
        message: error.to_string(),
        current: named,
        raw: bytes(raw),
        mend,
    })
}

/// The newest generation whose manifest, packs (by size) and catalog are there, and that was live at some time.
///
/// A complete generation that no other names as its parent may never have been published: the newest one that is a
/// parent, or kept, or that CURRENT's last writer made, is still the best guess; it is only ever a suggestion.
fn best_to_activate(
    root: &Root,
    context: &Context,
    generations: &[Surveyed],
) -> Option<GenerationId> {
    generations
        .iter()
        .rev()
        .filter(|found| found.manifest.is_some())
        .find(|found| {
            Base::open_generation(root, context, &found.status.id, Access::Read)
                .is_ok_and(|base| !base.is_damaged() && base.catalog().is_ok())
        })
        .map(|found| found.status.id)
}

fn warn_of_damage(base: &Base, warnings: &mut Vec<Warning>) {
    let broken: Vec<_> = base
        .packs
        .iter()
        .filter(|pack| pack.state != PackState::Ok)
        .collect();
    for pack in broken.iter().take(MAX_NAMED) {
        let what = if pack.state == PackState::Missing {
            "is missing"
        } else {
            "has the wrong size"
        };
        warnings.push(Warning::new(
            "pack_damaged",
            format!("{} {what}", base.live.dir.path_of(layout::pack_name(&pack.id)).display()),
            "see what it concerns: genstore verify; a checkpoint of each source writes again what is still there",
        ));
    }
    if !base.manifest().lost.is_empty() {
        warnings.push(Warning::new(
            "objects_lost",
            format!(
                "{} objects are recorded as lost",
                base.manifest().lost.len()
            ),
            "see which paths need them: genstore verify",
        ));
    }
}

fn warn_of_names(root: &Root, warnings: &mut Vec<Warning>) -> Result<()> {
    let foreign = root
        .dir
        .list()?
        .iter()
        .filter(|name| !layout::is_fixed_name(name.as_encoded_bytes()))
        .map(|name| crate::name::escape(name.as_encoded_bytes()))
        .collect();
    warn_of_foreign(&root.dir, foreign, warnings);
    for name in [layout::LOCK, layout::GITIGNORE, layout::RESERVE] {
        match root.dir.look(name)? {
            Some(facts) if facts.kind != Kind::File => warnings.push(Warning::new(
                "fixed_name_taken",
                format!(
                    "{} is a {}",
                    root.dir.path_of(name).display(),
                    facts.kind.word()
                ),
                "move it out of the way with mv",
            )),
            _ => {}
        }
    }
    for name in layout::DIRECTORIES {
        match root.dir.look(name)? {
            Some(facts) if facts.kind == Kind::Directory => {}
            Some(facts) => warnings.push(Warning::new(
                "fixed_name_taken",
                format!(
                    "{} is a {}",
                    root.dir.path_of(name).display(),
                    facts.kind.word()
                ),
                "move it out of the way with mv",
            )),
            None if name == layout::GENERATIONS => {}
            None => warnings.push(Warning {
                code: "directory_missing",
                message: format!(
                    "{} is missing; the next writer makes it again",
                    root.dir.path_of(name).display()
                ),
                hint: None,
            }),
        }
    }
    Ok(())
}

fn warn_of_foreign(dir: &Dir, mut names: Vec<String>, warnings: &mut Vec<Warning>) {
    if names.is_empty() {
        return;
    }
    names.sort();
    let count = names.len();
    names.truncate(MAX_NAMED);
    warnings.push(Warning {
        code: "foreign_names",
        message: format!(
            "{} holds {count} name(s) that are not genstore's: {}",
            dir.path().display(),
            names.join(", ")
        ),
        hint: None,
    });
}
