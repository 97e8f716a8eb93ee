//! `genstore undo`.

use std::path::Path;

use serde_json::{Map, Value};
use store_core::name;
use store_core::{Error, Store, UndoPlan};

use crate::cli::LineageArg;
use crate::context::Context;
use crate::describe;
use crate::error::{Failure, Outcome};
use crate::output::{self, append, object};

/// Undoes one operation, by default the latest
///
/// Publishes its inverse on today's state: a checkpoint is dropped, a tag, pin, note or lineage change is reversed, an
/// activation is answered by activating what it replaced. Undoing an undo does it again. An operation of another user
/// or host, or on another lineage than the current directory's, has to be named.
#[derive(clap::Args, Debug)]
pub(crate) struct Undo {
    /// The generation that the operation made; without it, the live one.
    #[arg(value_name = "GEN")]
    generation: Option<String>,
    /// Accepts that undoing an activation leaves checkpoints behind.
    #[arg(long)]
    leave_behind: bool,
    #[command(flatten)]
    lineage: LineageArg,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Undo) -> Outcome {
    let store = context.open()?;
    let named = args
        .generation
        .as_ref()
        .map(|prefix| store.find_generation(prefix))
        .transpose()?;
    let here = here(context, args, &store)?;
    let plan = store.plan_undo(named.as_ref(), here.as_deref())?;
    if let (None, None, Some(lineage)) = (&named, &here, &plan.lineage) {
        return Err(Failure::from(Error::Refused {
            code: "undo_other_lineage",
            message: format!(
                "the latest operation ({}) is on lineage {}, and this directory belongs to none",
                plan.what,
                name::escape(lineage)
            ),
            hint: format!("to undo it all the same: genstore undo {}", plan.generation),
            items: Vec::new(),
        }));
    }
    let published = store.undo(&plan, args.leave_behind)?;
    context.warn(published.warnings.clone());
    if context.json() {
        let mut keys = describe::published(&published);
        keys.extend(object! { "undone": undone(&plan) });
        return context.answer(keys);
    }
    context.line(format!("undid {}", line(&plan)))?;
    context.line(format!("live is {}", published.generation))
}

/// The lineage whose latest operation is meant. It does not matter when the operation is named.
fn here(context: &Context, args: &Undo, store: &Store) -> Outcome<Option<Vec<u8>>> {
    if args.generation.is_some() {
        return Ok(None);
    }
    let lineage = context.lineage(
        &store.view()?,
        args.lineage.lineage.as_deref(),
        Path::new("."),
    )?;
    Ok(lineage.map(|lineage| lineage.name))
}

/// Verb, writer, lineage, time, and what happens.
fn line(plan: &UndoPlan) -> String {
    let writer = &plan.writer;
    let mut line = format!(
        "{} of {}, by user {} on {} (pid {})",
        plan.verb,
        plan.created,
        writer.uid,
        name::escape(writer.host.as_bytes()),
        writer.pid,
    );
    if let Some(lineage) = &plan.lineage {
        append!(line, ", lineage {}", name::escape(lineage));
    }
    append!(line, ": {}", plan.what);
    line
}

fn undone(plan: &UndoPlan) -> Map<String, Value> {
    let writer = &plan.writer;
    object! {
        "generation": plan.generation.to_string(), "verb": plan.verb.clone(), "created": plan.created.clone(),
        "lineage": plan.lineage.as_deref().map(output::name), "checkpoint": output::text(plan.checkpoint.as_ref()),
        "what": plan.what.clone(),
        "writer": object! {
            "host": writer.host.clone(), "uid": writer.uid, "pid": writer.pid, "tool": writer.tool.clone(),
            "boot": writer.boot.clone(),
        },
    }
}
