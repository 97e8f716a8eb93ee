//! The verbs. One file each: the arguments, whose doc comments are the help, and one function.

pub(crate) mod activate;
pub(crate) mod cat;
pub(crate) mod checkpoint;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod init;
pub(crate) mod lineage;
pub(crate) mod log;
pub(crate) mod note;
pub(crate) mod pin;
pub(crate) mod restore;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod tag;
pub(crate) mod undo;
pub(crate) mod verify;

use crate::cli::Verb;
use crate::context::Context;
use crate::error::Outcome;

/// The verb's name, as it is typed.
pub(crate) fn name_of(verb: &Verb) -> &'static str {
    match verb {
        Verb::Init(_) => "init",
        Verb::Checkpoint(_) => "checkpoint",
        Verb::Log(_) => "log",
        Verb::Show(_) => "show",
        Verb::Diff(_) => "diff",
        Verb::Cat(_) => "cat",
        Verb::Restore(_) => "restore",
        Verb::Verify(_) => "verify",
        Verb::Status(_) => "status",
        Verb::Activate(_) => "activate",
        Verb::Undo(_) => "undo",
        Verb::Lineage(_) => "lineage",
        Verb::Tag(_) => "tag",
        Verb::Pin(_) => "pin",
        Verb::Note(_) => "note",
        Verb::Completions(_) => "completions",
    }
}

/// Runs one verb.
pub(crate) fn run(context: &mut Context, verb: Verb) -> Outcome {
    match verb {
        Verb::Init(args) => init::run(context, &args),
        Verb::Checkpoint(args) => checkpoint::run(context, args),
        Verb::Log(args) => log::run(context, &args),
        Verb::Show(args) => show::run(context, &args),
        Verb::Diff(args) => diff::run(context, &args),
        Verb::Cat(args) => cat::run(context, &args),
        Verb::Restore(args) => restore::run(context, &args),
        Verb::Verify(args) => verify::run(context, &args),
        Verb::Status(args) => status::run(context, &args),
        Verb::Activate(args) => activate::run(context, &args),
        Verb::Undo(args) => undo::run(context, &args),
        Verb::Lineage(args) => lineage::run(context, args),
        Verb::Tag(args) => tag::run(context, &args),
        Verb::Pin(args) => pin::run(context, &args),
        Verb::Note(args) => note::run(context, &args),
        Verb::Completions(args) => completions::run(context, &args),
    }
}
