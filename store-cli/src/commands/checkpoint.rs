//! `genstore checkpoint`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use store_core::format::checkpoint::{self as record, LeftOutReason};
use store_core::name;
use store_core::{CheckpointBuilder, Checkpointed, Store};

use crate::capture::Capture;
use crate::context::{self, Context};
use crate::describe;
use crate::error::{Outcome, exit};
use crate::output::{self, append, object};
use crate::units;

/// Captures a directory
///
/// Prints the checkpoint's id, then what changed since the one before. An unchanged directory makes no new checkpoint:
/// the existing id is printed. Version-control metadata, `node_modules`, `__pycache__`, virtualenvs and directories
/// with a CACHEDIR.TAG are left out unless --no-default-ignores is given; secrets such as `.env` are captured.
///
/// Creates the store if nobody named one with --store and there is none yet.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(clap::Args, Debug)]
pub(crate) struct Checkpoint {
    /// The directory to capture.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: OsString,
    /// A message that `log` shows.
    #[arg(
        short,
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    message: String,
    /// A tag for the checkpoint; may be repeated.
    #[arg(short, long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Makes a retry find the first try: the same lineage, role and key give the existing checkpoint.
    #[arg(long, value_name = "KEY")]
    key: Option<OsString>,
    /// Where the checkpoint stands in an agent's turn.
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,
    /// Whose the changes since the checkpoint before are.
    #[arg(long, value_name = "ACTOR")]
    actor: Option<Actor>,
    /// The lineage's name; without it, the directory's canonical path.
    #[arg(long, value_name = "NAME")]
    lineage: Option<OsString>,
    #[command(flatten)]
    capture: Capture,
    /// Gives up after this long; nothing is published then.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    deadline: Option<Duration>,
    /// Makes a checkpoint even if nothing changed.
    #[arg(long)]
    force: bool,
    /// Allows `/` and the home directory.
    #[arg(long)]
    allow_wide: bool,
    /// Takes DIR for a place in a project: the nearest source known to the store that owns it is checkpointed, else the
    /// nearest directory above it with a project's marker (`.git`, `Cargo.toml`, …), never at or above the home directory.
    #[arg(long)]
    discover: bool,
    /// Lists every path that was left out.
    #[arg(short, long)]
    verbose: bool,
}

/// `--role`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Role {
    /// Before the agent works.
    Before,
    /// After it.
    After,
}

/// `--actor`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Actor {
    /// The agent.
    Agent,
    /// A person.
    Person,
    /// Somebody unknown, noticed by a watcher.
    Watch,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: Checkpoint) -> Outcome {
    let verbose = args.verbose;
    let directory = context.directory(&args.directory)?;
    let (store, store_created) = open(context, &directory)?;
    let mut made = build(context, &store, &directory, args)?.run()?;
    if !made.complete {
        context.exit = exit::INCOMPLETE;
    }
    context.warn(std::mem::take(&mut made.warnings));
    if context.json() {
        answer(context, &made, store_created)?;
    } else {
        tell(context, &made, verbose)?;
    }
    context.out.flush()?;
    made.finish();
    Ok(())
}

/// Opens the store, or creates it if nobody named one; whether it did.
fn open(context: &Context, source: &Path) -> Outcome<(Store, bool)> {
    let location = context.location()?;
    if location.explicit {
        return Ok((context.open()?, false));
    }
    // A store is not made for a source that is not there.
    store_core::worktree::Root::open_source(source)?;
    let (store, created) = context.options().open_or_init(&location.path)?;
    if created {
        context.note(&format!(
            "genstore: created the store {}",
            name::quote_path(store.path())
        ));
    }
    Ok((store, created))
}

fn build<'a>(
    context: &Context,
    store: &'a Store,
    directory: &std::path::Path,
    args: Checkpoint,
) -> Outcome<CheckpointBuilder<'a>> {
    let mut builder = store
        .checkpoint(directory)
        .message(&args.message)
        .tags(args.tags)
        .capture(args.capture.options())
        .force(args.force)
        .allow_wide(args.allow_wide)
        .discover(args.discover)
        .home(
            context::environment("HOME")
                .filter(|home| !home.is_empty())
                .map(PathBuf::from),
        )
        .defer_housekeeping(true);
    if let Some(key) = &args.key {
        builder = builder.key(key.as_bytes());
    }
    if let Some(lineage) = &args.lineage {
        builder = builder.lineage(&context.bytes(lineage)?);
    }
    if let Some(deadline) = args.deadline {
        builder = builder.deadline(deadline);
    }
    if let Some(role) = args.role {
        builder = builder.role(match role {
            Role::Before => record::Role::Before,
            Role::After => record::Role::After,
        });
    }
    if let Some(actor) = args.actor {
        builder = builder.actor(match actor {
            Actor::Agent => record::Actor::Agent,
            Actor::Person => record::Actor::Person,
            Actor::Watch => record::Actor::Watch,
        });
    }
    Ok(builder)
}

fn answer(context: &mut Context, made: &Checkpointed, store_created: bool) -> Outcome {
    let changes = &made.changes;
    context.answer(object! {
        "id": made.id.to_string(), "generation": made.generation.to_string(), "created": made.created,
        "complete": made.complete, "lineage": output::name(&made.lineage), "number": made.number,
        "left_out": describe::left_out(&made.left_out), "counts": describe::counts(&made.counts),
        "changes": object! {
            "added": changes.added, "modified": changes.modified, "removed": changes.removed,
            "type_changed": changes.type_changed,
        },
        "source": output::path(&made.source), "previous": output::text(made.previous.as_ref()),
        "healed": made.healed, "maintain_due": made.maintain_due, "store_created": store_created,
    })
}

fn tell(context: &mut Context, made: &Checkpointed, verbose: bool) -> Outcome {
    context.line(made.id.to_string())?;
    let lost = |reason| matches!(reason, LeftOutReason::Unreadable | LeftOutReason::Unstable);
    for item in made.left_out.iter().filter(|item| lost(item.reason)) {
        context.complain(&format!(
            "genstore: not captured, {}",
            describe::left_out_line(item)
        ));
    }
    if !context.global.quiet {
        context.line(summary(made))?;
    }
    if verbose {
        for item in made.left_out.iter().filter(|item| !lost(item.reason)) {
            context.line(format!("left out, {}", describe::left_out_line(item)))?;
        }
    }
    Ok(())
}

/// What changed, on one line.
fn summary(made: &Checkpointed) -> String {
    let left_out = describe::left_out_summary(&made.left_out);
    if made.by_key {
        return format!(
            "made before with this key: #{}; the directory was not compared; {left_out}",
            made.number
        );
    }
    if !made.created {
        return format!("nothing changed since #{}; {left_out}", made.number);
    }
    let changes = &made.changes;
    let mut line = format!(
        "lineage {}  #{}  +{} ~{} -{}  {}, {}; {left_out}",
        name::escape(&made.lineage),
        made.number,
        units::count(changes.added),
        units::count(changes.modified + changes.type_changed),
        units::count(changes.removed),
        units::counted(made.counts.files, "file", "files"),
        units::size(made.counts.bytes),
    );
    if made.healed > 0 {
        let healed = units::counted(
            made.healed,
            "object that was damaged",
            "objects that were damaged",
        );
        append!(line, "; wrote {healed} again");
    }
    if !made.complete {
        line.push_str("; incomplete");
    }
    line
}
