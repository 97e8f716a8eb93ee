//! The command line: global options and the list of verbs. Each verb's own arguments are in `commands/<verb>.rs`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use store_core::{Store, View};

use crate::commands::{
    activate, cat, checkpoint, completions, diff, init, lineage, log, note, pin, restore, show,
    status, tag, undo, verify,
};
use crate::error::Outcome;
use crate::progress::Mode;
use crate::units;

/// Checkpoints of working trees, exact and verified, in a store that repairs without renaming anything.
///
/// `genstore checkpoint` captures a directory; `genstore log`, `diff` and `restore` get any earlier state back.
/// The store is the directory given with --store, else `$GENSTORE_DIR`, else `$XDG_DATA_HOME/genstore`,
/// else `~/.local/share/genstore`. One store serves many directories.
#[derive(Debug, Parser)]
#[command(name = "genstore", version, max_term_width = 100, after_help = EXIT_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXIT_HELP: &str = "Exit codes: 0 done, 1 failed, 2 usage, 3 done but incomplete, 4 damage found, \
5 selector untrusted, 6 busy, 7 not found, 8 refused (needs a flag).";

/// Options that every verb takes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Global {
    /// The store's directory.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Prints one JSON document instead of text, for errors too.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How long to wait for the store's lock.
    #[arg(long, global = true, value_name = "SECONDS", default_value = "30", value_parser = units::parse_duration)]
    pub(crate) lock_wait: Duration,
    /// Works on another user's store; everything written is given to its owner.
    #[arg(long, global = true)]
    pub(crate) as_owner: bool,
    /// Accepts a file system without working locks: only this host uses the store, one command at a time.
    #[arg(long, global = true)]
    pub(crate) single_host: bool,
    /// Progress on standard error.
    #[arg(long, global = true, value_name = "MODE", value_enum, default_value_t)]
    pub(crate) progress: Mode,
    /// How many threads read and hash; 0 is as many as the machine has.
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
    /// Takes names, paths and directories in the arguments as they are printed: `\n`, `\t`, `\\` and `\xNN` stand for
    /// the bytes. Without it they are taken literally.
    #[arg(long, global = true)]
    pub(crate) escaped: bool,
    /// Says only what was asked for: no notes, no progress bar.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Init(init::Init),
    Checkpoint(checkpoint::Checkpoint),
    Log(log::Log),
    Show(show::Show),
    Diff(diff::Diff),
    Cat(cat::Cat),
    Restore(restore::Restore),
    Verify(verify::Verify),
    Status(status::Status),
    Activate(activate::Activate),
    Undo(undo::Undo),
    Lineage(lineage::Lineage),
    Tag(tag::Tag),
    Pin(pin::Pin),
    Note(note::Note),
    Completions(completions::Completions),
}

/// Which lineage a verb is about.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LineageArg {
    /// The lineage's name; without it, the lineage that the current directory belongs to.
    #[arg(long, value_name = "NAME")]
    pub(crate) lineage: Option<std::ffi::OsString>,
}

/// Which generation a reading verb reads.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GenerationArg {
    /// Reads this generation of the store (its id, or a unique prefix) instead of the live one.
    #[arg(long, value_name = "GEN")]
    pub(crate) generation: Option<String>,
}

impl GenerationArg {
    /// The state that the verb reads: the live one, or the one that was named.
    pub(crate) fn view(&self, store: &Store) -> Outcome<View> {
        Ok(match &self.generation {
            Some(prefix) => store.view_generation(&store.find_generation(prefix)?)?,
            None => store.view()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_may_stand_anywhere() {
        for line in [["genstore", "--json", "log"], ["genstore", "log", "--json"]] {
            assert!(Cli::try_parse_from(line).unwrap().global.json);
        }
        let cli = Cli::try_parse_from(["genstore", "status", "--lock-wait", "0.5", "--store", "s"])
            .unwrap();
        assert_eq!(cli.global.lock_wait, Duration::from_millis(500));
        assert_eq!(cli.global.store.as_deref(), Some(std::path::Path::new("s")));
        assert!(Cli::try_parse_from(["genstore", "status", "--lock-wait", "-1"]).is_err());
        assert!(Cli::try_parse_from(["genstore", "status", "--progress", "loud"]).is_err());
    }
}
