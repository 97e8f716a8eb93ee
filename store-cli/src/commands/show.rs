//! `genstore show`.

use serde_json::Value;
use store_core::format::checkpoint::Rule;
use store_core::format::tree::{Entry, Kind, Node};
use store_core::name;
use store_core::{CheckpointInfo, View};

use crate::cli::{GenerationArg, LineageArg};
use crate::commands::log;
use crate::context::Context;
use crate::describe;
use crate::error::Outcome;
use crate::output::{self, object};
use crate::units;

/// Shows a checkpoint: when, of what, how much, and its files on demand
#[derive(clap::Args, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Show {
    /// The checkpoint: 4 or more digits of its id, `latest`, `latest~N`, `first`, `@TIME` or a tag.
    #[arg(value_name = "ID", default_value = "latest")]
    id: String,
    #[command(flatten)]
    lineage: LineageArg,
    /// Lists what it holds, one path a line.
    #[arg(short, long)]
    files: bool,
    /// With --files: kind, mode, size and time of each path too.
    #[arg(short, long, requires = "files")]
    long: bool,
    /// Lists what was left out, and why.
    #[arg(long)]
    left_out: bool,
    /// Lists the rules that were in force.
    #[arg(long)]
    rules: bool,
    /// Prints names as they are, and ends each with a NUL byte.
    #[arg(short = 'z', long)]
    null: bool,
    #[command(flatten)]
    generation: GenerationArg,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Show) -> Outcome {
    let store = context.open()?;
    let view = args.generation.view(&store)?;
    let info = context.find(&view, &args.id, args.lineage.lineage.as_deref())?;
    if context.json() {
        return answer(context, args, &view, &info);
    }
    if !(args.files || args.left_out || args.rules) {
        return tell(context, &info);
    }
    let out = &mut context.out;
    if args.files {
        view.list(&info, b"", true, &mut |path, entry| {
            let prefix = if args.long {
                long(entry)
            } else {
                String::new()
            };
            out.raw(&describe::row(&prefix, path, args.null))
        })?;
    }
    if args.left_out {
        for item in view.left_out(&info)? {
            if args.null {
                out.raw(&describe::row("", &item.path, true))?;
            } else {
                out.line(describe::left_out_line(&item))?;
            }
        }
    }
    if args.rules {
        for Rule { origin, rule } in view.rules(&info)? {
            out.raw(&describe::row(
                &format!("{}: ", name::escape(&origin)),
                &rule,
                args.null,
            ))?;
        }
    }
    Ok(())
}

fn answer(context: &mut Context, args: &Show, view: &View, info: &CheckpointInfo) -> Outcome {
    let mut keys = describe::checkpoint(info, view.generation());
    if args.files {
        let mut files: Vec<Value> = Vec::new();
        view.list(info, b"", true, &mut |path, entry| {
            let mut row = describe::entry(entry);
            row.extend(object! { "path": output::name(path) });
            files.push(row.into());
            Ok(())
        })?;
        keys.extend(object! { "files": files });
    }
    if args.left_out {
        keys.extend(object! { "left_out": describe::left_out(&view.left_out(info)?) });
    }
    if args.rules {
        let row = |Rule { origin, rule }: &Rule| {
            Value::Object(object! { "origin": output::name(origin), "rule": output::name(rule) })
        };
        keys.extend(object! { "rules": view.rules(info)?.iter().map(row).collect::<Vec<_>>() });
    }
    context.answer(keys)
}

fn tell(context: &mut Context, info: &CheckpointInfo) -> Outcome {
    let record = &info.record;
    context.line(format!("checkpoint  {}", info.id))?;
    context.line(format!(
        "lineage     {} #{}",
        name::escape(&info.lineage),
        info.number
    ))?;
    context.line(format!("time        {}", units::local(record.time)))?;
    context.line(format!(
        "source      {} on {}",
        name::escape(&record.source),
        name::escape(&record.host)
    ))?;
    let counts = &record.counts;
    context.line(format!(
        "holds       {}, {}, {}, {}; left out {}",
        units::counted(counts.files, "file", "files"),
        units::counted(counts.directories, "directory", "directories"),
        units::counted(counts.links, "link", "links"),
        units::size(counts.bytes),
        units::count(counts.left_out),
    ))?;
    let marks = log::marks(info);
    if !marks.is_empty() {
        context.line(format!("marks       {}", marks.join(", ")))?;
    }
    if let Some(parent) = &record.parent {
        context.line(format!("parent      {parent}"))?;
    }
    if let Some(key) = &record.key {
        context.line(format!("key         {}", name::escape(key)))?;
    }
    for (label, text) in [("message", &record.message), ("note", &info.note)] {
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if !text.is_empty() {
                let label = if index == 0 { label } else { "" };
                context.line(format!("{label:<12}{}", name::escape(line)))?;
            }
        }
    }
    Ok(())
}

/// What `--long` puts before a path.
fn long(entry: &Entry) -> String {
    let (kind, size) = match &entry.node {
        Node::File { size, .. } => ('-', *size),
        Node::Directory { .. } => ('d', 0),
        Node::Symlink { target } => ('l', target.len() as u64),
    };
    debug_assert_eq!(kind == 'd', entry.kind() == Kind::Directory);
    format!(
        "{kind} {:04o} {size:>12} {} ",
        entry.mode,
        units::local(entry.mtime)
    )
}
