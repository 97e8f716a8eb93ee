//! `genstore lineage`.

use std::ffi::{OsStr, OsString};

use serde_json::Value;
use store_core::Published;
use store_core::name;

use crate::cli::GenerationArg;
use crate::context::Context;
use crate::describe;
use crate::error::Outcome;
use crate::output::{self, object};

/// Lists, renames and archives lineages: the series of checkpoints of one directory each
#[derive(clap::Args, Debug)]
pub(crate) struct Lineage {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Lists the lineages by name.
    List {
        #[command(flatten)]
        generation: GenerationArg,
    },
    /// Shows one lineage.
    Show {
        /// The lineage's name.
        name: OsString,
        #[command(flatten)]
        generation: GenerationArg,
    },
    /// Gives a lineage another name.
    Rename {
        /// Its name.
        #[arg(value_name = "OLD")]
        from: OsString,
        /// The new name.
        #[arg(value_name = "NEW")]
        to: OsString,
    },
    /// Closes a lineage: its checkpoints stay readable, and no policy drops them.
    Archive {
        /// The lineage's name.
        name: OsString,
        /// Why, for people.
        #[arg(long)]
        reason: String,
    },
    /// Opens an archived lineage again.
    Unarchive {
        /// The lineage's name.
        name: OsString,
    },
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: Lineage) -> Outcome {
    match args.action {
        Action::List { generation } => list(context, &generation),
        Action::Show { name, generation } => show(context, &name, &generation),
        Action::Rename { from, to } => {
            let (from, to) = (context.bytes(&from)?, context.bytes(&to)?);
            let published = context.open()?.rename_lineage(&from, &to)?;
            changed(context, "rename", &to, &published)
        }
        Action::Archive { name, reason } => {
            let name = context.bytes(&name)?;
            let published = context.open()?.archive_lineage(&name, &reason)?;
            changed(context, "archive", &name, &published)
        }
        Action::Unarchive { name } => {
            let name = context.bytes(&name)?;
            let published = context.open()?.unarchive_lineage(&name)?;
            changed(context, "unarchive", &name, &published)
        }
    }
}

fn list(context: &mut Context, generation: &GenerationArg) -> Outcome {
    let store = context.open()?;
    let view = generation.view(&store)?;
    let lineages = view.lineages()?;
    if context.json() {
        let rows: Vec<Value> = lineages
            .iter()
            .map(|info| describe::lineage(info).into())
            .collect();
        return context.answer(object! {
            "action": "list", "lineages": rows, "generation": view.generation().to_string(),
        });
    }
    for info in &lineages {
        context.line(describe::lineage_line(info))?;
    }
    Ok(())
}

fn show(context: &mut Context, argument: &OsStr, generation: &GenerationArg) -> Outcome {
    let store = context.open()?;
    let view = generation.view(&store)?;
    let info = view.lineage(&context.bytes(argument)?)?;
    if context.json() {
        let mut keys = describe::lineage(&info);
        keys.extend(object! { "action": "show", "generation": view.generation().to_string() });
        return context.answer(keys);
    }
    context.line(describe::lineage_line(&info))?;
    context.line(format!(
        "source {} on {}",
        name::escape(&info.source),
        name::escape(&info.host)
    ))
}

fn changed(context: &mut Context, action: &str, lineage: &[u8], published: &Published) -> Outcome {
    context.warn(published.warnings.clone());
    if context.json() {
        let mut keys = describe::published(published);
        keys.extend(object! { "action": action, "lineage": output::name(lineage) });
        return context.answer(keys);
    }
    let done = match (published.created, action) {
        (false, _) => "nothing to do",
        (true, "rename") => "renamed to",
        (true, "archive") => "archived",
        (true, _) => "opened again",
    };
    context.line(format!("{done}: {}", name::escape(lineage)))
}
