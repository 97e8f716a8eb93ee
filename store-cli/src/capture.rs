//! The options that say what is captured of a directory, shared by the verbs that walk one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use store_core::worktree::capture::CaptureOptions;

use crate::units;

/// What is captured of a directory.
#[derive(clap::Args, Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Capture {
    /// Leaves out what matches (gitignore syntax); may be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Captures also what is left out by default.
    #[arg(long)]
    no_default_ignores: bool,
    /// Applies .gitignore files too.
    #[arg(long)]
    gitignore: bool,
    /// Refuses a directory with more entries than this.
    #[arg(long, value_name = "N")]
    max_entries: Option<u64>,
    /// Leaves out larger files, and says so.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    max_file_size: Option<u64>,
    /// Leaves out other file systems mounted in the directory.
    #[arg(long)]
    one_file_system: bool,
    /// Reads every file, also those whose times say that they did not change.
    #[arg(long)]
    rehash: bool,
}

impl Capture {
    /// The library's form.
    pub(crate) fn options(&self) -> CaptureOptions {
        let mut options = CaptureOptions::default();
        options.rules.default_ignores = !self.no_default_ignores;
        options.rules.gitignore = self.gitignore;
        options.rules.exclude = self
            .exclude
            .iter()
            .map(|pattern| pattern.as_bytes().to_vec())
            .collect();
        options.max_file_size = self.max_file_size;
        options.one_file_system = self.one_file_system;
        self.limit(options)
    }

    /// Whether any rule is given, so that the directory is not read under the rules of the checkpoint that it is
    /// compared with.
    pub(crate) fn has_rules(&self) -> bool {
        !self.exclude.is_empty()
            || self.no_default_ignores
            || self.gitignore
            || self.max_file_size.is_some()
            || self.one_file_system
    }

    /// The limits, which are no rules, in `options`.
    pub(crate) fn limit(&self, mut options: CaptureOptions) -> CaptureOptions {
        options.max_entries = self.max_entries;
        options.rehash = self.rehash;
        options
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        capture: Capture,
    }

    fn parse(line: &[&str]) -> Capture {
        Line::parse_from([&["x"], line].concat()).capture
    }

    #[test]
    fn flags_become_options() {
        let options = parse(&[
            "--exclude",
            "*.o",
            "--exclude",
            "t",
            "--max-file-size",
            "1K",
            "--no-default-ignores",
        ])
        .options();
        assert_eq!(options.rules.exclude, [b"*.o".to_vec(), b"t".to_vec()]);
        assert_eq!(options.max_file_size, Some(1024));
        assert!(!options.rules.default_ignores && !options.rules.gitignore);
        assert!(parse(&[]).options().rules.default_ignores);
    }

    #[test]
    fn limits_are_no_rules() {
        let limits = parse(&["--max-entries", "9", "--rehash"]);
        assert!(!limits.has_rules());
        let mut recalled = CaptureOptions::default();
        recalled.rules.gitignore = true;
        let limited = limits.limit(recalled);
        assert!(limited.rules.gitignore && limited.rehash);
        assert_eq!(limited.max_entries, Some(9));
        for flag in [
            "--exclude=x",
            "--gitignore",
            "--no-default-ignores",
            "--one-file-system",
            "--max-file-size=1",
        ] {
            assert!(parse(&[flag]).has_rules(), "{flag}");
        }
    }
}
