//! `genstore diff`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use store_core::format::checkpoint::LeftOut;
use store_core::format::tree::{Entry, Node};
use store_core::name;
use store_core::worktree::compare::Change;
use store_core::{CheckpointInfo, View};
use store_core::{Error, Result};

use crate::capture::Capture;
use crate::cli::{GenerationArg, LineageArg};
use crate::context::Context;
use crate::describe;
use crate::error::{Outcome, exit};
use crate::output::{self, object};
use crate::patch::{self, Body, Kind, Side, Stat};
use crate::units;

/// Shows what differs between two checkpoints, or between a checkpoint and the directory
///
/// Without A, the latest checkpoint is compared with the directory as it is now; with A alone, that checkpoint is; with
/// A and B, the two checkpoints are. One line a path: `A` added, `M` modified, `D` deleted, `T` type changed.
/// The directory is read under the rules that the checkpoint was made with, unless others are given.
/// Files over 8 MiB are not compared line by line. Exit code 3 if something in the directory could not be read.
#[derive(clap::Args, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Diff {
    /// The older checkpoint: digits of its id, `latest`, `latest~N`, `first`, `@TIME` or a tag.
    #[arg(value_name = "A")]
    old: Option<String>,
    /// The newer checkpoint.
    #[arg(value_name = "B")]
    new: Option<String>,
    /// Only these paths and what is below them, relative to the captured directory.
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// The directory to compare with; without it, the one that was captured.
    #[arg(long, value_name = "DIR", conflicts_with = "new")]
    dir: Option<OsString>,
    #[command(flatten)]
    lineage: LineageArg,
    /// Counts added and removed lines.
    #[arg(long)]
    stat: bool,
    /// Prints a patch that `git apply` and `patch` read.
    #[arg(short, long, conflicts_with_all = ["stat", "null"])]
    patch: bool,
    /// Exits with 1 if there are differences.
    #[arg(long)]
    exit_code: bool,
    /// Prints names as they are, and ends each line with a NUL byte.
    #[arg(short = 'z', long)]
    null: bool,
    #[command(flatten)]
    generation: GenerationArg,
    #[command(flatten)]
    capture: Capture,
}

/// What is compared with the older checkpoint.
enum Newer {
    Checkpoint(Box<CheckpointInfo>),
    Directory(PathBuf),
}

/// A comparison that was made.
struct Compared {
    changes: Vec<Change>,
    left_out: Vec<LeftOut>,
    complete: bool,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Diff) -> Outcome {
    let store = context.open()?;
    let view = args.generation.view(&store)?;
    let (old, new) = sides(context, args, &view)?;
    let paths = context.all_inside(&args.paths)?;
    let compared = compare(&view, &old, &new, args, &paths)?;
    if !compared.complete {
        context.exit = exit::INCOMPLETE;
    } else if args.exit_code && !compared.changes.is_empty() {
        context.exit = exit::DIFFERENT;
    }
    for item in compared
        .left_out
        .iter()
        .filter(|item| item.reason.makes_incomplete())
    {
        context.complain(&format!(
            "genstore: not compared, {}",
            describe::left_out_line(item)
        ));
    }
    let reader = Reader {
        view: &view,
        new: &new,
    };
    if context.json() {
        answer(context, args, &reader, &old, &compared)
    } else if args.patch {
        tell_patch(context, &reader, &compared.changes)
    } else if args.stat {
        tell_stat(context, args, &reader, &compared.changes)
    } else {
        for change in &compared.changes {
            context.out.raw(&describe::row(
                &format!("{} ", change.kind.letter()),
                &change.path,
                args.null,
            ))?;
        }
        Ok(())
    }
}

/// What is compared with what.
fn sides(context: &Context, args: &Diff, view: &View) -> Outcome<(CheckpointInfo, Newer)> {
    let named = args.lineage.lineage.as_deref();
    if let (Some(old), Some(new)) = (&args.old, &args.new) {
        let new = context.find(view, new, named)?;
        return Ok((
            context.find(view, old, named)?,
            Newer::Checkpoint(Box::new(new)),
        ));
    }
    let directory = args
        .dir
        .as_deref()
        .map(|dir| context.directory(dir))
        .transpose()?;
    if let Some(old) = &args.old {
        let old = context.find(view, old, named)?;
        let directory = match directory {
            Some(directory) => directory,
            None => source_of(&view.lineage(&old.lineage)?.source),
        };
        return Ok((old, Newer::Directory(directory)));
    }
    let lineage = match (named, &directory) {
        (None, Some(directory)) => context.lineage(view, None, directory)?,
        _ => None,
    };
    let lineage = match (lineage, &directory) {
        (Some(lineage), Some(directory)) => {
            refuse_inside(directory, &lineage.source)?;
            lineage
        }
        _ => context.need_lineage(view, named)?,
    };
    let old = view.find("latest", Some(&lineage.name))?;
    Ok((
        old,
        Newer::Directory(directory.unwrap_or_else(|| source_of(&lineage.source))),
    ))
}

fn source_of(source: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(source))
}

/// A directory in a captured one would be compared with the whole checkpoint, which nobody means.
fn refuse_inside(directory: &Path, source: &[u8]) -> Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a path comes in; it is only compared"
    )]
    let canonical = std::fs::canonicalize(directory).map_err(|source| Error::Io {
        op: "resolve",
        path: directory.to_owned(),
        source,
    })?;
    if canonical.as_os_str().as_bytes() == source {
        return Ok(());
    }
    let problem = format!(
        "it lies in {}, which was captured as a whole; name paths in it after `--` instead",
        name::quote(source)
    );
    Err(Error::Invalid {
        what: "--dir",
        problem,
    })
}

fn compare(
    view: &View,
    old: &CheckpointInfo,
    new: &Newer,
    args: &Diff,
    paths: &[Vec<u8>],
) -> Outcome<Compared> {
    let mut changes = Vec::new();
    let mut keep = |change: Change| {
        if paths.is_empty() || paths.iter().any(|path| is_at_or_below(&change.path, path)) {
            changes.push(change);
        }
        Ok(())
    };
    for path in paths {
        known_path(view, old, new, path)?;
    }
    let (left_out, complete) = match new {
        Newer::Checkpoint(new) => {
            view.diff(old, new, &mut keep)?;
            (Vec::new(), true)
        }
        Newer::Directory(directory) => {
            let options = if args.capture.has_rules() {
                args.capture.options()
            } else {
                args.capture.limit(view.capture_options(old)?)
            };
            let found = view.diff_worktree(old, directory, &options, &mut keep)?;
            (found.left_out, found.complete)
        }
    };
    Ok(Compared {
        changes,
        left_out,
        complete,
    })
}

/// A path that is in neither state is a mistake, not "no difference".
fn known_path(view: &View, old: &CheckpointInfo, new: &Newer, path: &[u8]) -> Outcome {
    let Err(missing) = view.entry(old, path) else {
        return Ok(());
    };
    if !matches!(missing, Error::NotFound { .. }) {
        return Err(missing.into());
    }
    let is_new = match new {
        Newer::Checkpoint(new) => match view.entry(new, path) {
            Ok(_) => true,
            Err(Error::NotFound { .. }) => false,
            Err(error) => return Err(error.into()),
        },
        Newer::Directory(directory) => store_core::worktree::has_path(directory, path)?,
    };
    if is_new { Ok(()) } else { Err(missing.into()) }
}

fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Reads both states of a changed path.
struct Reader<'a> {
    view: &'a View,
    new: &'a Newer,
}

impl Reader<'_> {
    fn read_old(&self, change: &Change) -> Result<Option<Side>> {
        change
            .old
            .as_ref()
            .map(|entry| self.stored(entry))
            .transpose()
    }

    fn read_new(&self, change: &Change) -> Result<Option<Side>> {
        let Some(entry) = &change.new else {
            return Ok(None);
        };
        match (self.new, &entry.node) {
            (Newer::Directory(directory), Node::File { size, .. }) if *size <= patch::MAX_BYTES => {
                let bytes =
                    store_core::worktree::read_file(directory, &change.path, patch::MAX_BYTES)?;
                Ok(Some(side(entry, Body::Bytes(bytes))))
            }
            _ => self.stored(entry).map(Some),
        }
    }

    fn stored(&self, entry: &Entry) -> Result<Side> {
        let body = match &entry.node {
            Node::File { size, .. } if *size > patch::MAX_BYTES => Body::TooLarge(*size),
            Node::File { .. } => {
                let mut bytes = Vec::new();
                self.view.read_content(entry, &mut |part| {
                    bytes.extend_from_slice(part);
                    Ok(())
                })?;
                Body::Bytes(bytes)
            }
            Node::Symlink { target } => Body::Bytes(target.clone()),
            Node::Directory { .. } => Body::Bytes(Vec::new()),
        };
        Ok(side(entry, body))
    }
}

fn side(entry: &Entry, body: Body) -> Side {
    let kind = match entry.node {
        Node::File { .. } => Kind::File,
        Node::Symlink { .. } => Kind::Link,
        Node::Directory { .. } => Kind::Directory,
    };
    Side {
        kind,
        mode: entry.mode,
        body,
    }
}

/// In what a path differs, a word each.
fn aspects(change: &Change) -> Vec<&'static str> {
    let differs = &change.differs;
    [
        (differs.content, "content"),
        (differs.mode, "mode"),
        (differs.mtime, "mtime"),
        (differs.owner, "owner"),
        (differs.xattrs, "xattrs"),
        (differs.holes, "holes"),
    ]
    .into_iter()
    .filter_map(|(differs, word)| differs.then_some(word))
    .collect()
}

fn patch_of(reader: &Reader<'_>, change: &Change) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    patch::write(
        &mut text,
        &change.path,
        reader.read_old(change)?.as_ref(),
        reader.read_new(change)?.as_ref(),
    );
    Ok(text)
}

fn tell_patch(context: &mut Context, reader: &Reader<'_>, changes: &[Change]) -> Outcome {
    for change in changes {
        let mut text = patch_of(reader, change)?;
        if text.is_empty() {
            text = format!(
                "{}: {} differs\n",
                name::escape(&change.path),
                aspects(change).join(", ")
            )
            .into_bytes();
        }
        context.out.raw(&text)?;
    }
    Ok(())
}

fn tell_stat(
    context: &mut Context,
    args: &Diff,
    reader: &Reader<'_>,
    changes: &[Change],
) -> Outcome {
    let (mut all_added, mut all_removed) = (0, 0);
    for change in changes {
        let prefix = match patch::stat(
            reader.read_old(change)?.as_ref(),
            reader.read_new(change)?.as_ref(),
        ) {
            Stat::Lines { added, removed } => {
                all_added += added;
                all_removed += removed;
                format!("{:>7} {:>7}  ", format!("+{added}"), format!("-{removed}"))
            }
            Stat::Binary(old, new) => {
                format!("binary, {} -> {}  ", units::size(old), units::size(new))
            }
            Stat::TooLarge(old, new) => {
                format!("large, {} -> {}  ", units::size(old), units::size(new))
            }
        };
        context
            .out
            .raw(&describe::row(&prefix, &change.path, args.null))?;
    }
    if args.null {
        return Ok(());
    }
    context.line(format!(
        "{} changed, {} added, {} removed",
        units::counted(changes.len() as u64, "path", "paths"),
        units::counted(all_added, "line", "lines"),
        units::count(all_removed),
    ))
}

fn answer(
    context: &mut Context,
    args: &Diff,
    reader: &Reader<'_>,
    old: &CheckpointInfo,
    compared: &Compared,
) -> Outcome {
    let (mut added, mut removed) = (0, 0);
    let mut rows: Vec<Value> = Vec::new();
    for change in &compared.changes {
        let mut row = object! {
            "path": output::name(&change.path), "change": change.kind.letter().to_string(), "differs": aspects(change),
            "old": change.old.as_ref().map(describe::entry).map(Value::Object),
            "new": change.new.as_ref().map(describe::entry).map(Value::Object),
        };
        if args.stat {
            let stat = patch::stat(
                reader.read_old(change)?.as_ref(),
                reader.read_new(change)?.as_ref(),
            );
            if let Stat::Lines {
                added: more,
                removed: fewer,
            } = stat
            {
                added += more;
                removed += fewer;
            }
            row.extend(stat_keys(stat));
        }
        if args.patch {
            row.extend(object! { "patch": output::name(&patch_of(reader, change)?) });
        }
        rows.push(row.into());
    }
    let mut keys = object! {
        "changes": rows, "complete": compared.complete, "left_out": describe::left_out(&compared.left_out),
        "old": describe::reference(&old.reference()),
        "new": match reader.new {
            Newer::Checkpoint(info) => describe::reference(&info.reference()),
            Newer::Directory(directory) => object! { "directory": output::path(directory) }.into(),
        },
    };
    if args.stat {
        keys.extend(object! { "added": added, "removed": removed });
    }
    context.answer(keys)
}

fn stat_keys(stat: Stat) -> Map<String, Value> {
    match stat {
        Stat::Lines { added, removed } => {
            object! { "added": added, "removed": removed, "binary": false }
        }
        Stat::Binary(..) => {
            object! { "added": Value::Null, "removed": Value::Null, "binary": true }
        }
        Stat::TooLarge(..) => {
            object! { "added": Value::Null, "removed": Value::Null, "binary": false, "too_large": true }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_covers_itself_and_what_is_below() {
        assert!(is_at_or_below(b"a/b", b"a/b") && is_at_or_below(b"a/b/c", b"a/b"));
        assert!(!is_at_or_below(b"a/bc", b"a/b") && !is_at_or_below(b"a", b"a/b"));
    }
}
