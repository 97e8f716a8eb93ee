//! `genstore note`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use crate::cli::LineageArg;
use crate::context::Context;
use crate::describe;
use crate::error::Outcome;
use crate::output::{self, object};

/// The longest note (`docs/format.md` section 8).
const MAX_BYTES: u64 = 4096;

/// Writes a note on a checkpoint, for people
#[derive(clap::Args, Debug)]
pub(crate) struct Note {
    /// The checkpoint: 4 or more digits of its id, `latest`, `latest~N`, `first`, `@TIME` or a tag.
    #[arg(value_name = "ID")]
    id: String,
    /// The note, at most 4,096 bytes; `-` reads it from standard input.
    #[arg(
        value_name = "TEXT",
        required_unless_present = "clear",
        conflicts_with = "clear"
    )]
    text: Option<OsString>,
    /// Takes the note away.
    #[arg(long)]
    clear: bool,
    #[command(flatten)]
    lineage: LineageArg,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Note) -> Outcome {
    let store = context.open()?;
    let info = context.find(&store.view()?, &args.id, args.lineage.lineage.as_deref())?;
    let note = match &args.text {
        None => Vec::new(),
        Some(text) if text == "-" => {
            let mut bytes = context.standard_input(MAX_BYTES + 1)?;
            if bytes.ends_with(b"\n") {
                bytes.pop();
            }
            bytes
        }
        Some(text) => text.as_bytes().to_vec(),
    };
    let at = info.reference();
    let published = store.set_note(&at, &note)?;
    context.warn(published.warnings.clone());
    if context.json() {
        let mut keys = describe::published(&published);
        keys.extend(
            object! { "checkpoint": describe::reference(&at), "note": output::name(&note) },
        );
        return context.answer(keys);
    }
    let done = match (published.created, note.is_empty()) {
        (false, _) => "nothing to do:",
        (true, false) => "noted on",
        (true, true) => "took the note from",
    };
    context.line(format!("{done} {}", describe::place(&at)))
}
