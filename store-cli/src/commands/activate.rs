//! `genstore activate`.

use std::ffi::OsString;

use serde_json::Value;
use store_core::{ActivateOptions, ActivateTarget};

use crate::context::{Context, Target};
use crate::describe;
use crate::error::Outcome;
use crate::output::{self, object};
use crate::units;

/// Makes a repaired candidate, or another generation of the store, the live state
///
/// It is verified in full first. Only `CURRENT` is replaced: no directory is renamed, moved or removed, and what was
/// live is kept. Checkpoints that the new state lacks are listed, and need --leave-behind.
#[derive(clap::Args, Debug)]
pub(crate) struct Activate {
    /// A candidate's directory, or a generation of the store (`gen-…`, or a unique prefix).
    #[arg(value_name = "DIR|GEN")]
    target: OsString,
    /// Accepts that checkpoints of the live state are left behind.
    #[arg(long)]
    leave_behind: bool,
    /// Accepts a candidate of another store.
    #[arg(long)]
    foreign: bool,
    /// Replaces a `CURRENT` that cannot be trusted.
    #[arg(long)]
    replace_selector: bool,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Activate) -> Outcome {
    let store = context.open()?;
    let target = match context.target(&store, &args.target)? {
        Target::Generation(id) => ActivateTarget::Generation(id),
        Target::Directory(path) => ActivateTarget::Directory(path),
    };
    let options = ActivateOptions {
        leave_behind: args.leave_behind,
        foreign: args.foreign,
        replace_selector: args.replace_selector,
    };
    let done = store.activate(&target, options)?;
    context.warn(done.warnings);
    if context.json() {
        return context.answer(object! {
            "generation": done.generation.to_string(), "previous": output::text(done.previous.as_ref()),
            "left_behind": done.left_behind.iter().map(describe::reference).collect::<Vec<Value>>(),
            "carried": done.carried.iter().map(describe::reference).collect::<Vec<Value>>(), "already": done.already,
        });
    }
    if done.already {
        return context.line(format!("already active: {}", done.generation));
    }
    for at in &done.left_behind {
        context.line(format!("left behind {}", describe::place(at)))?;
    }
    for at in &done.carried {
        context.line(format!("carried over {}", describe::place(at)))?;
    }
    context.line(format!(
        "active: {}; {} left behind",
        done.generation,
        units::counted(done.left_behind.len() as u64, "checkpoint", "checkpoints"),
    ))?;
    match done.previous {
        Some(previous) => context.line(format!(
            "replaced {previous}, which is kept; `genstore undo` brings it back"
        )),
        None => Ok(()),
    }
}
