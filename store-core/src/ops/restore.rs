//! `restore`: write a checkpoint out. Plan, show, act: nothing is written before the plan is applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::format::checkpoint::{LeftOut, LeftOutReason, Rule};
use crate::id::ObjectId;
use crate::objects::chunker::HashOnly;
use crate::objects::reader::PackSet;
use crate::progress::Phase;
use crate::root::Context;
use crate::worktree;
use crate::worktree::restore::{self, Action, ApplyRequest, RestoreMode};
use crate::{Error, Result};

use super::checkpoint::Captured;
use super::read::{CheckpointInfo, View};

pub use crate::worktree::restore::{PathReason, RestoreReport};

/// How many checkpoints are asked for their rules.
const MAX_RULE_SETS: usize = 1000;

/// What to write where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreRequest {
    /// The target directory.
    pub to: PathBuf,
    /// Paths in the checkpoint, taken literally; none: all of it.
    pub paths: Vec<Vec<u8>>,
    /// The target may hold something: what differs is replaced.
    pub overwrite: bool,
    /// Remove what the checkpoint does not have, except what was left out of it, or would be now.
    pub delete: bool,
    /// Restore owners.
    pub owner: bool,
}

/// What a restore will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestorePlan {
    /// Paths that are not there yet.
    pub create: Vec<Vec<u8>>,
    /// Paths whose content, kind or metadata will be replaced.
    pub replace: Vec<Vec<u8>>,
    /// Paths that will be removed.
    pub remove: Vec<Vec<u8>>,
    /// How many paths are as they should be.
    pub unchanged: u64,
    /// Paths that the checkpoint does not have and that stay, and why.
    pub kept: Vec<PathReason>,
    /// Paths that cannot be restored, and why.
    pub failed: Vec<PathReason>,
}

/// A restore that was planned and not carried out. Every object that it needs was found to be there.
#[must_use = "nothing was written yet"]
pub struct RestorePlanned<'v> {
    view: &'v View,
    context: Context,
    plan: restore::RestorePlan,
    shown: RestorePlan,
}

impl std::fmt::Debug for RestorePlanned<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestorePlanned")
            .field("plan", &self.shown)
            .finish_non_exhaustive()
    }
}

/// Plans a restore.
pub(crate) fn plan<'v>(
    context: &Context,
    view: &'v View,
    checkpoint: &CheckpointInfo,
    request: &RestoreRequest,
) -> Result<RestorePlanned<'v>> {
    refuse_store(view, &request.to)?;
    let mode = if request.overwrite || request.delete {
        RestoreMode::Overwrite {
            delete: request.delete,
        }
    } else {
        RestoreMode::Empty
    };
    let rules_then = if request.delete {
        recorded_rules(view, checkpoint)?
    } else {
        Vec::new()
    };
    let protected = if request.delete {
        protected_paths(view, checkpoint, request)?
    } else {
        Protected::default()
    };
    context
        .progress
        .begin(Phase::Compare, Some(checkpoint.record.counts.files));
    let pool = context.pool()?;
    let plan = restore::plan(&restore::RestoreRequest {
        source: &view.base.objects,
        root_tree: checkpoint.record.tree,
        root_meta: Some(checkpoint.record.root),
        paths: &request.paths,
        target: &request.to,
        mode,
        owner: request.owner,
        protected: &|path| {
            is_protected(&protected.paths, path)
                || is_cut_by(&rules_then, path)
                || (protected.keeps_rule_files && is_rule_file(path))
        },
        pool: &pool,
        progress: &*context.progress,
        cancel: &context.cancel,
    })
    .map_err(|error| match error {
        Error::NotFound { name, .. } => {
            let path = crate::name::unescape(&name).unwrap_or_else(|| name.into_bytes());
            view.path_not_found(checkpoint, &path)
        }
        other => other,
    })?;
    let mut shown = RestorePlan {
        unchanged: plan.unchanged(),
        kept: plan.kept().to_vec(),
        failed: plan.failed().to_vec(),
        ..RestorePlan::default()
    };
    for (path, action) in plan.changes() {
        match action {
            Action::Create => shown.create.push(path),
            Action::Replace | Action::SetMetadata => shown.replace.push(path),
            Action::Remove => shown.remove.push(path),
        }
    }
    Ok(RestorePlanned {
        view,
        context: context.clone(),
        plan,
        shown,
    })
}

impl RestorePlanned<'_> {
    /// What will be done.
    pub const fn plan(&self) -> &RestorePlan {
        &self.shown
    }

    /// Does it. What cannot be done to one path is reported there, and everything else is done.
    ///
    /// # Errors
    /// If the target cannot be used at all, the disk is full, or the caller cancelled: some paths are restored then and
    /// others not, each in its old or its new content; running the same restore again completes it.
    pub fn apply(self) -> Result<RestoreReport> {
        let total = self.shown.create.len() + self.shown.replace.len();
        self.context
            .progress
            .begin(Phase::Restore, Some(total as u64));
        let pool = self.context.pool()?;
        let places = Places::new(&self.view.base.objects);
        restore::apply(
            &self.plan,
            &ApplyRequest {
                source: &self.view.base.objects,
                order: Some(&|id| places.of(id)),
                pool: &pool,
                progress: &*self.context.progress,
                cancel: &self.context.cancel,
            },
        )
    }
}

/// Where objects lie, as numbers that grow with pack and block: files are written so that packs are read front to back.
struct Places<'a> {
    objects: &'a PackSet,
    known: Mutex<HashMap<ObjectId, u64>>,
}

impl<'a> Places<'a> {
    fn new(objects: &'a PackSet) -> Self {
        Self {
            objects,
            known: Mutex::default(),
        }
    }

    fn of(&self, id: &ObjectId) -> u64 {
        let mut known = self
            .known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *known
            .entry(*id)
            .or_insert_with(|| match self.objects.locate(id) {
                Ok(Some(at)) => (at.pack as u64) << 40 | u64::from(at.block),
                _ => u64::MAX,
            })
    }
}

/// A restore never writes into the store that it reads.
fn refuse_store(view: &View, to: &std::path::Path) -> Result<()> {
    let Ok(target) = super::read::canonical_as_far_as_possible(to) else {
        return Ok(());
    };
    let store = crate::disk::canonical(view.root.dir.path())?;
    if target.starts_with(&store) {
        return Err(Error::refused(
            "target_in_store",
            format!("{} is inside the store", crate::name::quote_path(to)),
            "restore to another directory",
        ));
    }
    Ok(())
}

/// What was left out of the checkpoint, and what would be left out of the target now: rules of then *and* now protect.
fn protected_paths(
    view: &View,
    checkpoint: &CheckpointInfo,
    request: &RestoreRequest,
) -> Result<Protected> {
    let mut keeps_rule_files = false;
    let mut protected: BTreeSet<Vec<u8>> = view
        .left_out(checkpoint)?
        .into_iter()
        .map(|left| left.path)
        .collect();
    if crate::disk::look_at_path(&request.to)?.is_none() {
        return Ok(Protected {
            paths: protected,
            keeps_rule_files,
        });
    }
    let target = worktree::Root::open(&request.to)?;
    let options = view.capture_options(checkpoint)?;
    match super::checkpoint::capture_into(
        &view.root,
        &view.context,
        &target,
        &options,
        None,
        &HashOnly,
        None,
    ) {
        Ok(captured) => {
            rules_must_be_known(&captured)?;
            let by_file = |left: &LeftOut| {
                left.reason == LeftOutReason::Rule
                    && !left.rule.starts_with(b"default")
                    && !left.rule.starts_with(b"--")
            };
            // A rule file that protects something now must not go: the same restore run again would find no rules.
            keeps_rule_files = captured.left_out.iter().any(by_file);
            protected.extend(captured.left_out.into_iter().map(|left| left.path));
        }
        // Rules that leave nothing of the target protect all of it.
        Err(Error::Refused {
            code: "everything_ignored",
            ..
        }) => drop(protected.insert(Vec::new())),
        Err(error) => return Err(error),
    }
    Ok(Protected {
        paths: protected,
        keeps_rule_files,
    })
}

/// What a removal spares.
#[derive(Default)]
struct Protected {
    paths: BTreeSet<Vec<u8>>,
    keeps_rule_files: bool,
}

/// Rules that cannot be read never mean "no rules": then nothing is removed at all.
fn rules_must_be_known(captured: &Captured) -> Result<()> {
    let warned = captured
        .warnings
        .iter()
        .find(|warning| warning.line == 0)
        .map(|warning| &warning.path);
    let unreadable = captured
        .left_out
        .iter()
        .find(|left| left.reason == LeftOutReason::Unreadable && is_rule_file(&left.path))
        .map(|left| &left.path);
    match warned.or(unreadable) {
        None => Ok(()),
        Some(path) => Err(Error::refused(
            "rules_unreadable",
            format!(
                "{} cannot be used, so what must not be removed is not known",
                crate::name::escape(path)
            ),
            "mend or move that file, or restore without --delete",
        )),
    }
}

fn is_rule_file(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name == b".genstoreignore" || name == b".gitignore"
}

/// A rule file as the checkpoint recorded it: where it stood, and what it cut.
struct RecordedRules {
    /// The directory, relative to the root; empty for the root.
    below: Vec<u8>,
    matcher: Gitignore,
}

/// The rules of then: what they would have left out then is nobody's to remove now.
fn recorded_rules(view: &View, checkpoint: &CheckpointInfo) -> Result<Vec<RecordedRules>> {
    let mut by_file: BTreeMap<Vec<u8>, GitignoreBuilder> = BTreeMap::new();
    for rule in rules_of_lineage(view, checkpoint)? {
        let directory = match rule.origin.as_slice() {
            b"-exclude" => Vec::new(),
            b"-default" | b"-option" => continue,
            file => file
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or(Vec::new(), |at| file[..at].to_vec()),
        };
        let Ok(line) = std::str::from_utf8(&rule.rule) else {
            continue;
        };
        let builder = by_file
            .entry(directory)
            .or_insert_with(|| GitignoreBuilder::new(""));
        builder
            .add_line(None, line)
            .map_err(|error| Error::invalid("recorded rule", error.to_string()))?;
    }
    by_file
        .into_iter()
        .map(|(below, builder)| {
            let matcher = builder
                .build()
                .map_err(|error| Error::invalid("recorded rule", error.to_string()))?;
            Ok(RecordedRules { below, matcher })
        })
        .collect()
}

/// The distinct rules of the checkpoint and of the others of its lineage, as far as they can be read: a rule that was ever
/// in force protects.
fn rules_of_lineage(view: &View, checkpoint: &CheckpointInfo) -> Result<Vec<Rule>> {
    let mut rules = view.rules(checkpoint)?;
    let mut seen = BTreeSet::from([checkpoint.record.rules]);
    view.log(
        Some(&checkpoint.lineage),
        Some(MAX_RULE_SETS),
        &mut |other| {
            if seen.insert(other.record.rules) {
                rules.extend(view.rules(&other)?);
            }
            Ok(())
        },
    )?;
    Ok(rules)
}

/// Whether any of the recorded rule files cuts a path, or a directory that it is in.
fn is_cut_by(rules: &[RecordedRules], path: &[u8]) -> bool {
    rules.iter().any(|file| {
        let inside = match file.below.as_slice() {
            b"" => Some(path),
            below => path
                .strip_prefix(below)
                .and_then(|rest| rest.strip_prefix(b"/")),
        };
        let Some(inside) = inside.filter(|inside| !inside.is_empty()) else {
            return false;
        };
        let inside = std::path::Path::new(std::ffi::OsStr::from_bytes(inside));
        // Whether it is a directory is not known here: a rule for directories protects a file of that name too.
        file.matcher
            .matched_path_or_any_parents(inside, true)
            .is_ignore()
            || file
                .matcher
                .matched_path_or_any_parents(inside, false)
                .is_ignore()
    })
}

/// A path is protected if it, or a directory that it is in, is.
fn is_protected(protected: &BTreeSet<Vec<u8>>, path: &[u8]) -> bool {
    if protected.is_empty() {
        return false;
    }
    let ends = path
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| at);
    std::iter::once(0)
        .chain(ends)
        .chain(std::iter::once(path.len()))
        .any(|end| protected.contains(&path[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_protected_directory_is_protected() {
        let protected = BTreeSet::from([b"a/b".to_vec(), b"x".to_vec()]);
        for path in [&b"a/b"[..], b"a/b/c", b"x", b"x/y/z"] {
            assert!(is_protected(&protected, path));
        }
        for path in [&b"a"[..], b"a/bc", b"xy", b"a/c"] {
            assert!(!is_protected(&protected, path));
        }
        assert!(is_protected(&BTreeSet::from([Vec::new()]), b"anything"));
    }
}
