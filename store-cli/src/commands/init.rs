//! `genstore init`.

use store_core::InitRequest;
use store_core::name;

use crate::context::Context;
use crate::error::Outcome;
use crate::output::{self, object};
use crate::units;

/// Creates a store, or finishes an init that was interrupted
///
/// The directory must be absent or empty. The new store keeps the last 100 checkpoints of each lineage, and one a day
/// for 30 days, unless --no-policy says otherwise.
#[derive(clap::Args, Debug)]
pub(crate) struct Init {
    /// Keeps every checkpoint.
    #[arg(long)]
    no_policy: bool,
    /// Allows packs to be copied, however large, where the file system has no hard links.
    #[arg(long)]
    copy_packs: bool,
    /// Drops the oldest checkpoints beyond this size, as far as the policy allows.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    max_size: Option<u64>,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Init) -> Outcome {
    let request = InitRequest {
        no_policy: args.no_policy,
        copy_packs: args.copy_packs,
        max_size_bytes: args.max_size,
    };
    let made = context.options().init(&context.location()?.path, request)?;
    if !made.links {
        context.complain(
            "genstore: warning: hard links do not work here: each checkpoint copies its packs",
        );
    }
    if context.json() {
        return context.answer(object! {
            "store": made.store.to_string(), "generation": made.generation.to_string(),
            "path": output::path(&made.path), "finished": made.finished, "links": made.links,
        });
    }
    let verb = if made.finished {
        "finished the unfinished store"
    } else {
        "created the store"
    };
    context.line(format!(
        "{verb} {} ({})",
        name::quote_path(&made.path),
        made.store
    ))
}
