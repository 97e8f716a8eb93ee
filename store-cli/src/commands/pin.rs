//! `genstore pin`.

use crate::cli::LineageArg;
use crate::context::Context;
use crate::describe;
use crate::error::Outcome;
use crate::output::object;

/// Keeps a checkpoint from being dropped by any policy, or lets it go again
#[derive(clap::Args, Debug)]
pub(crate) struct Pin {
    /// The checkpoint: 4 or more digits of its id, `latest`, `latest~N`, `first`, `@TIME` or a tag.
    #[arg(value_name = "ID")]
    id: String,
    /// Takes the pin away.
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    lineage: LineageArg,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Pin) -> Outcome {
    let store = context.open()?;
    let info = context.find(&store.view()?, &args.id, args.lineage.lineage.as_deref())?;
    let at = info.reference();
    let published = store.set_pinned(&at, !args.remove)?;
    context.warn(published.warnings.clone());
    if context.json() {
        let mut keys = describe::published(&published);
        keys.extend(object! { "checkpoint": describe::reference(&at), "pinned": !args.remove });
        return context.answer(keys);
    }
    let done = match (published.created, args.remove) {
        (false, _) => "nothing to do:",
        (true, false) => "pinned",
        (true, true) => "took the pin from",
    };
    context.line(format!("{done} {}", describe::place(&at)))
}
