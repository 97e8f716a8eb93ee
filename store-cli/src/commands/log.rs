//! `genstore log`.

use std::ffi::OsString;

use serde_json::Value;
use store_core::CheckpointInfo;
use store_core::format::checkpoint::{Actor, Role};
use store_core::name;

use crate::cli::{GenerationArg, LineageArg};
use crate::context::{self, Context};
use crate::describe;
use crate::error::Outcome;
use crate::output::object;
use crate::units;

/// Lists checkpoints, newest first
///
/// Those of the directory's lineage: DIR may be anywhere in a captured directory.
#[derive(clap::Args, Debug)]
pub(crate) struct Log {
    /// A directory that was captured, or one in it.
    #[arg(value_name = "DIR", default_value = ".", conflicts_with_all = ["all", "lineage"])]
    directory: OsString,
    #[command(flatten)]
    lineage: LineageArg,
    /// Lists those of every lineage.
    #[arg(short, long, conflicts_with = "lineage")]
    all: bool,
    /// Lists at most so many.
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Prints names as they are, and ends each line with a NUL byte.
    #[arg(short = 'z', long)]
    null: bool,
    #[command(flatten)]
    generation: GenerationArg,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Log) -> Outcome {
    let store = context.open()?;
    let view = args.generation.view(&store)?;
    let lineage = if args.all {
        None
    } else {
        let directory = context.directory(&args.directory)?;
        match context.lineage(&view, args.lineage.lineage.as_deref(), &directory)? {
            Some(lineage) => Some(lineage.name),
            None => return Err(context::no_lineage(&view, &directory)?),
        }
    };
    if context.json() {
        let mut rows: Vec<Value> = Vec::new();
        view.log(lineage.as_deref(), args.limit, &mut |info| {
            rows.push(describe::checkpoint(&info, view.generation()).into());
            Ok(())
        })?;
        return context
            .answer(object! { "checkpoints": rows, "generation": view.generation().to_string() });
    }
    let out = &mut context.out;
    view.log(lineage.as_deref(), args.limit, &mut |info| {
        out.raw(&line(&info, args.all, args.null))
    })?;
    Ok(())
}

/// One checkpoint: short id, number, time, lineage if several are listed, marks, message.
fn line(info: &CheckpointInfo, with_lineage: bool, null: bool) -> Vec<u8> {
    let mut line = format!(
        "{}  #{}  {}",
        describe::short(&info.id),
        info.number,
        units::local(info.record.time)
    );
    let mut bytes = Vec::new();
    if with_lineage {
        line.push_str("  ");
        bytes.append(&mut line.into_bytes());
        line = String::new();
        if null {
            bytes.extend_from_slice(&info.lineage);
        } else {
            bytes.extend_from_slice(name::escape(&info.lineage).as_bytes());
        }
    }
    for mark in marks(info) {
        line.push_str("  ");
        line.push_str(&mark);
    }
    if !info.record.message.is_empty() {
        line.push_str("  ");
        line.push_str(&describe::headline(&info.record.message));
    }
    bytes.append(&mut line.into_bytes());
    bytes.push(if null { 0 } else { b'\n' });
    bytes
}

/// What is special about a checkpoint, a word each.
pub(crate) fn marks(info: &CheckpointInfo) -> Vec<String> {
    let mut marks: Vec<String> = Vec::new();
    if !info.tags.is_empty() {
        marks.push(format!("[{}]", info.tags.join(" ")));
    }
    if info.pinned {
        marks.push("pinned".to_owned());
    }
    if !info.record.complete {
        marks.push("incomplete".to_owned());
    }
    if info.record.role != Role::None {
        marks.extend(info.record.role.word().map(str::to_owned));
    }
    if info.record.actor != Actor::None {
        marks.extend(info.record.actor.word().map(|word| format!("by {word}")));
    }
    marks
}
