//! How a run ends: exit codes, error codes, and how an error is told to people and to programs.

use serde_json::{Map, Value};
use store_core::{Error, ErrorKind};

use crate::output::{self, object};

/// What the verbs return: the exit code of a run that did what it was asked for, or why it did not.
pub(crate) type Outcome<T = ()> = std::result::Result<T, Failure>;

/// The exit codes. `docs/cli.md` lists them.
pub(crate) mod exit {
    /// Done.
    pub(crate) const DONE: u8 = 0;
    /// `diff --exit-code` found differences.
    pub(crate) const DIFFERENT: u8 = 1;
    /// The request makes no sense.
    pub(crate) const USAGE: u8 = 2;
    /// Done, but not completely.
    pub(crate) const INCOMPLETE: u8 = 3;
    /// Damage was found.
    pub(crate) const DAMAGE: u8 = 4;
    /// The selector cannot be trusted.
    pub(crate) const UNTRUSTED: u8 = 5;
}

/// What each exit code means, for `docs/cli.md`.
pub(crate) const EXITS: &[(u8, &str)] = &[
    (
        0,
        "done (also when there was nothing to do, or when the reader of standard output went away)",
    ),
    (1, "failed; with `diff --exit-code`: there are differences"),
    (2, "wrong usage"),
    (
        3,
        "done, but incomplete: paths that could not be captured or restored are named",
    ),
    (4, "damage found"),
    (
        5,
        "`CURRENT`, or the generation that it names, cannot be trusted; `genstore status` says what mends it",
    ),
    (6, "busy: somebody else holds the store"),
    (7, "not found"),
    (8, "refused: needs an explicit flag, or somebody else"),
];

/// What each error code means, and its exit code, for `docs/cli.md`.
pub(crate) const CODES: &[(&str, u8, &str)] = &[
    ("usage", 2, "the command line could not be understood"),
    ("invalid", 2, "an argument's value makes no sense"),
    (
        "io",
        1,
        "a system call failed; the message names it, the path and the system's answer",
    ),
    ("disk_full", 1, "no space, or no quota, is left"),
    ("permission_denied", 1, "the system denied access to a path"),
    ("read_only", 1, "the file system is mounted read-only"),
    (
        "resource_busy",
        1,
        "a path is a mount point or otherwise held by the system",
    ),
    (
        "too_many_links",
        1,
        "a directory holds as many entries as its file system allows",
    ),
    (
        "conflict",
        1,
        "the live generation changed more often than the retries allow",
    ),
    (
        "publish_uncertain",
        1,
        "published, but the last sync failed: visible, perhaps not durable",
    ),
    (
        "undo_unavailable",
        1,
        "the operation cannot be undone (any more)",
    ),
    (
        "cancelled",
        1,
        "stopped by Ctrl-C or SIGTERM; nothing was published",
    ),
    (
        "deadline",
        1,
        "stopped because the deadline passed; nothing was published",
    ),
    (
        "object_missing",
        4,
        "an object that is needed is not in the store",
    ),
    (
        "damaged",
        4,
        "stored bytes are not what their name promises",
    ),
    ("candidate_invalid", 4, "the directory cannot be activated"),
    ("selector_missing", 5, "there is no `CURRENT`"),
    ("selector_not_regular", 5, "`CURRENT` is not a regular file"),
    (
        "selector_malformed",
        5,
        "`CURRENT` does not hold exactly one generation id",
    ),
    (
        "generation_missing",
        5,
        "`CURRENT` names a generation that does not exist",
    ),
    (
        "generation_not_directory",
        5,
        "the live generation's name is taken by something else",
    ),
    ("manifest_missing", 5, "the live generation has no manifest"),
    (
        "manifest_mismatch",
        5,
        "the live generation's manifest is not the one that its id names",
    ),
    (
        "manifest_unsupported",
        5,
        "the live generation was written by a newer genstore",
    ),
    (
        "fixed_name_taken",
        5,
        "one of the store's fixed names is taken by something else",
    ),
    (
        "store_busy",
        6,
        "the store's lock was not free within `--lock-wait`",
    ),
    ("store_not_found", 7, "there is no store at that place"),
    ("checkpoint_not_found", 7, "no such checkpoint"),
    (
        "lineage_not_found",
        7,
        "no such lineage, or no lineage of that directory",
    ),
    ("generation_not_found", 7, "no such generation"),
    ("path_not_found", 7, "no such path in the checkpoint"),
    ("tag_not_found", 7, "no such tag"),
    (
        "one_tag_at_a_time",
        8,
        "nothing changed, and an existing checkpoint gets one tag at a time",
    ),
    (
        "rules_unreadable",
        8,
        "a rule file cannot be used, so what must not be removed is not known",
    ),
    ("source_not_found", 7, "there is no such directory"),
    ("ambiguous", 7, "more than one thing has that name"),
    ("not_a_store", 8, "what stands there is not a store"),
    ("store_exists", 8, "there is a store already"),
    (
        "not_owner",
        8,
        "the store belongs to another user (`--as-owner`)",
    ),
    (
        "locks_unsupported",
        8,
        "the file system has no working locks (`--single-host`)",
    ),
    (
        "links_unsupported",
        8,
        "the file system has no hard links, and copies would be large",
    ),
    (
        "source_in_store",
        8,
        "the directory to capture lies in the store",
    ),
    (
        "wide_source",
        8,
        "`/` or the home directory (`--allow-wide`)",
    ),
    (
        "everything_ignored",
        8,
        "the rules leave nothing of a directory that is not empty",
    ),
    (
        "too_many_entries",
        8,
        "the directory has more entries than `--max-entries`",
    ),
    (
        "directory_too_large",
        8,
        "one directory has more entries than a tree object holds",
    ),
    (
        "lineage_has_other_source",
        8,
        "the lineage is of another directory",
    ),
    (
        "target_not_empty",
        8,
        "the directory to restore to is not empty (`--overwrite`)",
    ),
    (
        "target_in_store",
        8,
        "the directory to restore to lies in the store",
    ),
    ("store_read_only", 8, "the store is a read-only copy"),
    (
        "lineage_moving",
        8,
        "the lineage is moving to another store, and takes no new checkpoints",
    ),
    (
        "lineage_archived",
        8,
        "the lineage is archived, and takes no new checkpoints",
    ),
    (
        "tag_exists",
        8,
        "the tag is on another checkpoint (`--move`)",
    ),
    (
        "left_behind",
        8,
        "checkpoints would be left behind (`--leave-behind`)",
    ),
    (
        "cannot_carry",
        8,
        "checkpoints made meanwhile cannot be carried over; run it again",
    ),
    (
        "candidate_foreign",
        8,
        "the candidate is of another store (`--foreign`)",
    ),
    (
        "undo_not_yours",
        8,
        "the operation is another user's or host's, and has to be named",
    ),
    (
        "undo_other_lineage",
        8,
        "the operation is on another lineage, and has to be named",
    ),
    (
        "plan_not_confirmed",
        8,
        "the plan would replace or remove files, and nobody said yes (`--yes`)",
    ),
];

/// An error, with what the command line knows better than the library.
#[derive(Debug)]
pub(crate) struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    error: Error,
    hint: Option<String>,
    details: Map<String, Value>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(Box::new(Inner {
            error,
            hint: None,
            details: Map::new(),
        }))
    }
}

impl Failure {
    /// The error itself.
    pub(crate) fn error(&self) -> &Error {
        &self.0.error
    }

    /// A better hint than the library's.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// A key that programs get beside the message.
    pub(crate) fn with_detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(key.to_owned(), value.into());
        self
    }

    /// The exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        exit_code(&self.0.error)
    }

    /// The message: what happened, to which path, the system's answer, and the state of the store.
    pub(crate) fn message(&self, publishes: bool) -> String {
        let mut text = chain(&self.0.error);
        if publishes && promises_nothing_published(&self.0.error) {
            text.push_str("; nothing was published");
        }
        text
    }

    /// The next command, where there is one that helps.
    pub(crate) fn hint(&self, publishes: bool) -> Option<String> {
        if output::is_output(&self.0.error) {
            // The library's hint is about the store's disk, and says that the store is as it was.
            let looked = "the operation itself was done; look at its result with `genstore status` or `genstore log`";
            return publishes.then(|| looked.to_owned());
        }
        self.0
            .hint
            .clone()
            .or_else(|| self.0.error.hint())
            .map(|hint| one_line(&hint))
    }

    /// Tells people: one line, then the hint.
    pub(crate) fn tell(&self, publishes: bool) {
        output::say(&format!("genstore: {}", self.message(publishes)));
        if let Some(hint) = self.hint(publishes) {
            output::say(&format!("hint: {hint}"));
        }
    }

    /// Tells programs: the keys of the error document.
    pub(crate) fn document(&self, publishes: bool) -> Map<String, Value> {
        let mut keys = document(
            self.0.error.code(),
            &self.message(publishes),
            self.hint(publishes),
            self.exit_code(),
        );
        if let Error::Refused { items, .. } = &self.0.error {
            keys.insert("items".to_owned(), Value::from(items.clone()));
        }
        keys.extend(self.0.details.clone());
        keys
    }
}

/// The keys of an error document.
pub(crate) fn document(
    code: &str,
    message: &str,
    hint: Option<String>,
    exit: u8,
) -> Map<String, Value> {
    object! { "code": code, "message": message, "hint": hint, "exit": exit }
}

/// The exit code that goes with a kind of error.
fn exit_code(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Usage => exit::USAGE,
        ErrorKind::Incomplete => exit::INCOMPLETE,
        ErrorKind::Damage => exit::DAMAGE,
        ErrorKind::Untrusted => exit::UNTRUSTED,
        ErrorKind::Busy => 6,
        ErrorKind::NotFound => 7,
        ErrorKind::Refused => 8,
        // `Failed`, and kinds that a later library may add.
        _ => 1,
    }
}

/// An error and its sources on one line.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    one_line(&text)
}

/// Text without anything that would end the line or move the cursor: a path may hold any bytes.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut line, c| {
            match c {
                '\n' => line.push_str("\\n"),
                c if c.is_control() => line.extend(c.escape_default()),
                c => line.push(c),
            }
            line
        })
}

/// Whether the message should add that the store is as it was: for failures in the middle of something.
/// An answer that could not be written says nothing about the store.
fn promises_nothing_published(error: &Error) -> bool {
    match error {
        Error::Io { .. } => !output::is_output(error),
        Error::Conflict | Error::LinksUnsupported { .. } | Error::Cancelled { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_message_names_path_cause_and_state() {
        let full = || {
            let source = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
            Failure::from(Error::Io {
                op: "write",
                path: "/s/incoming/x".into(),
                source,
            })
        };
        let message = full().message(true);
        assert!(
            message.starts_with("cannot write /s/incoming/x: No space left"),
            "{message}"
        );
        assert!(message.ends_with("; nothing was published"), "{message}");
        assert!(!full().message(false).contains("published"));
        let document = full().with_detail("plan", 1).document(true);
        assert_eq!(document["code"], "disk_full");
        assert_eq!(document["exit"], 1);
        assert_eq!(document["plan"], 1);
        assert_eq!(document["message"], Value::from(message));
        assert!(
            document["hint"]
                .as_str()
                .unwrap()
                .contains("free some space")
        );
    }

    #[test]
    fn a_message_is_one_line() {
        let error = Error::Invalid {
            what: "x",
            problem: "a\nb\u{1b}[2J".into(),
        };
        assert_eq!(Failure::from(error).message(false), "x: a\\nb\\u{1b}[2J");
    }

    #[test]
    fn every_code_of_the_library_is_documented_with_its_exit_code() {
        let mut found = Vec::new();
        for (file, text) in sources() {
            for marker in ["refused(", "Refused {", "Cancelled {"] {
                for (at, _) in text.match_indices(marker) {
                    let after = text[at + marker.len()..].trim_start();
                    let after = after.strip_prefix("code:").unwrap_or(after).trim_start();
                    if let Some(quoted) = after.strip_prefix('"') {
                        found.push((file.clone(), quoted.split('"').next().unwrap().to_owned()));
                    }
                }
            }
            if file.ends_with("error.rs") {
                let mut quoted = text.split('"').skip(1).step_by(2);
                let snake = |word: &&str| {
                    word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
                };
                found.extend(
                    quoted
                        .by_ref()
                        .filter(snake)
                        .map(|code| (file.clone(), code.to_owned())),
                );
            }
        }
        assert!(
            found.len() > 20,
            "the sources of the library were not found"
        );
        found.retain(|(_, code)| !CODES.iter().any(|(known, ..)| known == code));
        assert!(found.is_empty(), "not in CODES: {found:?}");
        let fault = store_core::SelectorFault::Missing;
        for error in [
            Error::Selector {
                store: "/s".into(),
                fault,
            },
            Error::Conflict,
            Error::StoreNotFound { path: "/s".into() },
            Error::StoreExists { path: "/s".into() },
            Error::StoreBusy {
                holder: String::new(),
                waited_ms: 0,
            },
            Error::Invalid {
                what: "x",
                problem: String::new(),
            },
            Error::CandidateInvalid {
                path: "/s".into(),
                problem: String::new(),
            },
            Error::UndoUnavailable {
                what: String::new(),
                problem: String::new(),
            },
        ] {
            let row = CODES
                .iter()
                .find(|(code, ..)| *code == error.code())
                .unwrap();
            assert_eq!(row.1, exit_code(&error), "{}", row.0);
        }
        for (code, exit, _) in CODES {
            assert!(EXITS.iter().any(|(known, _)| known == exit), "{code}");
        }
    }

    /// The library's source files, without their tests.
    fn sources() -> Vec<(String, String)> {
        let mut files = Vec::new();
        let mut open = vec![std::path::PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../store-core/src"
        ))];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                } else {
                    let text = std::fs::read_to_string(entry.path()).unwrap();
                    let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
                    files.push((entry.path().display().to_string(), code));
                }
            }
        }
        files
    }
}
