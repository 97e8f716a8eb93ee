//! One run: what every verb needs, opened in one way, and how a run ends.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, IsTerminal as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use store_core::id::GenerationId;
use store_core::progress::Cancel;
use store_core::{CheckpointInfo, LineageInfo, Store, StoreOptions, View, Warning};
use store_core::{Error, Wanted, name};

use crate::cli::{Cli, Global, Verb};
use crate::commands;
use crate::error::{Failure, Outcome, exit, one_line};
use crate::interrupt::{self, Waiting};
use crate::location::{self, Location};
use crate::output::{self, Output, object};
use crate::progress::Display;
use crate::verbs;

/// What a verb works with.
pub(crate) struct Context {
    /// The options that every verb takes.
    pub(crate) global: Global,
    /// Standard output.
    pub(crate) out: Output,
    /// The exit code, should the run end well; a verb sets it before it prints.
    pub(crate) exit: u8,
    verb: &'static str,
    warnings: Vec<Warning>,
    progress: Display,
    cancel: Cancel,
    waiting: Waiting,
}

/// Runs a parsed command line and returns the exit code.
pub(crate) fn run(cli: Cli) -> u8 {
    let verb = commands::name_of(&cli.verb);
    let mut context = Context {
        out: Output::stdout(),
        exit: exit::DONE,
        verb,
        warnings: Vec::new(),
        progress: Display::new(cli.global.progress, cli.global.quiet),
        cancel: Cancel::new(),
        waiting: Waiting::default(),
        global: cli.global,
    };
    let result = context.perform(cli.verb);
    context.progress.clear();
    match result {
        Ok(()) => context.exit,
        Err(failure) if output::is_broken_pipe(failure.error()) => context.exit,
        Err(failure) => context.fail(failure),
    }
}

impl Context {
    fn perform(&mut self, verb: Verb) -> Outcome {
        if verbs::mutates(self.verb) {
            interrupt::install(self.cancel.clone(), self.waiting.clone())?;
        }
        commands::run(self, verb)?;
        Ok(self.out.flush()?)
    }

    /// Tells the failure and returns its exit code.
    fn fail(&mut self, failure: Failure) -> u8 {
        let failure = &self.naming_store(failure);
        // A restore changes no store, and says itself how far it came.
        let publishes = verbs::mutates(self.verb) && self.verb != "restore";
        if !self.json() {
            // What was said so far comes first; that it cannot be said is no second failure.
            drop(self.out.flush());
            failure.tell(publishes);
        } else if !output::is_output(failure.error()) {
            let keys = failure.document(publishes);
            // Nobody is left to hear that this could not be written either; the exit code still says it.
            drop(
                self.out
                    .document("error", &keys)
                    .and_then(|()| self.out.flush()),
            );
        }
        failure.exit_code()
    }

    /// Puts `--store` into the commands of a hint, where the store was named that way: a pasted command must not act on
    /// another store.
    fn naming_store(&self, failure: Failure) -> Failure {
        let Some(store) = &self.global.store else {
            return failure;
        };
        match failure.hint(false) {
            Some(hint) => {
                let named = with_store(&hint, store);
                failure.with_hint(named)
            }
            None => failure,
        }
    }

    /// Whether the answer is one JSON document.
    pub(crate) fn json(&self) -> bool {
        self.global.json
    }

    // --- stores and states

    /// Where the store is.
    pub(crate) fn location(&self) -> Outcome<Location> {
        Ok(location::locate(self.global.store.as_deref(), environment)?)
    }

    /// How stores are opened in this run.
    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions::new()
            .lock_wait(self.global.lock_wait)
            .as_owner(self.global.as_owner)
            .single_host(self.global.single_host)
            .threads(self.global.threads)
            .progress(self.progress.listener())
            .cancel(self.cancel.clone())
            .verb(self.verb)
    }

    /// Opens the store, which has to exist.
    pub(crate) fn open(&self) -> Outcome<Store> {
        let location = self.location()?;
        self.options().open(&location.path).map_err(|error| match error {
            Error::StoreNotFound { .. } if !location.explicit => Failure::from(error)
                .with_hint("name a store with --store DIR, or let `genstore checkpoint` create this one"),
            error => error.into(),
        })
    }

    /// The lineage that `name` names, or else the one that `directory` belongs to, or none.
    pub(crate) fn lineage(
        &self,
        view: &View,
        name: Option<&OsStr>,
        directory: &Path,
    ) -> Outcome<Option<LineageInfo>> {
        match name {
            Some(name) => Ok(Some(view.lineage(&self.bytes(name)?)?)),
            None => Ok(view.discover(directory)?),
        }
    }

    /// The lineage that `name` names, or else the one that the current directory belongs to.
    pub(crate) fn need_lineage(&self, view: &View, name: Option<&OsStr>) -> Outcome<LineageInfo> {
        match self.lineage(view, name, Path::new("."))? {
            Some(lineage) => Ok(lineage),
            None => Err(no_lineage(view, Path::new("."))?),
        }
    }

    /// The checkpoint that a person named. Digits of an id count in the whole store; everything else, such as `latest`
    /// or a tag, in the lineage that is named or that the current directory belongs to.
    pub(crate) fn find(
        &self,
        view: &View,
        revision: &str,
        lineage: Option<&OsStr>,
    ) -> Outcome<CheckpointInfo> {
        if lineage.is_none() && is_id_prefix(revision) {
            return Ok(view.find(revision, None)?);
        }
        let lineage = self.lineage(view, lineage, Path::new("."))?;
        Ok(view.find(
            revision,
            lineage.as_ref().map(|lineage| lineage.name.as_slice()),
        )?)
    }

    // --- arguments

    /// An argument's bytes: as it stands, or unescaped where `--escaped` says so.
    pub(crate) fn bytes(&self, argument: &OsStr) -> Outcome<Vec<u8>> {
        if !self.global.escaped {
            return Ok(argument.as_bytes().to_vec());
        }
        let wrong = || Error::Invalid {
            what: "--escaped",
            problem: format!(
                "{} is not a name as genstore prints it",
                name::quote(argument.as_bytes())
            ),
        };
        Ok(argument
            .to_str()
            .and_then(name::unescape)
            .ok_or_else(wrong)?)
    }

    /// A directory argument as a path.
    pub(crate) fn directory(&self, argument: &OsStr) -> Outcome<PathBuf> {
        let bytes = self.bytes(argument)?;
        if bytes.is_empty() {
            let problem = "the directory's name is empty".to_owned();
            return Err(Error::Invalid {
                what: "directory",
                problem,
            }
            .into());
        }
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }

    /// A path within a checkpoint: relative to its root, `./` before and `/` after it do not count.
    pub(crate) fn inside(&self, argument: &OsStr) -> Outcome<Vec<u8>> {
        let bytes = self.bytes(argument)?;
        let mut path = bytes.as_slice();
        while let Some(rest) = path.strip_prefix(b"./") {
            path = rest;
        }
        while let Some(rest) = path.strip_suffix(b"/") {
            path = rest;
        }
        if path.is_empty() || path == b"." {
            let problem = format!("{} names no path in a checkpoint", name::quote(&bytes));
            return Err(Error::Invalid {
                what: "path",
                problem,
            }
            .into());
        }
        Ok(path.to_vec())
    }

    /// The paths within a checkpoint that a verb is limited to.
    pub(crate) fn all_inside(&self, arguments: &[OsString]) -> Outcome<Vec<Vec<u8>>> {
        arguments
            .iter()
            .map(|argument| self.inside(argument))
            .collect()
    }

    /// What `activate` and `verify` are about: a generation of the store, or a directory.
    pub(crate) fn target(&self, store: &Store, argument: &OsStr) -> Outcome<Target> {
        match argument.to_str() {
            Some(text) if is_generation(argument) => {
                Ok(Target::Generation(store.find_generation(text)?))
            }
            _ => Ok(Target::Directory(self.directory(argument)?)),
        }
    }

    // --- answers

    /// A note for people on standard error.
    pub(crate) fn note(&self, text: &str) {
        if !self.global.quiet && !self.json() {
            self.progress.clear();
            output::say(text);
        }
    }

    /// Something that went wrong with one path, for people, on standard error.
    pub(crate) fn complain(&self, text: &str) {
        if !self.json() {
            self.progress.clear();
            output::say(text);
        }
    }

    /// Keeps warnings for the answer, and tells them to people now.
    pub(crate) fn warn(&mut self, warnings: Vec<Warning>) {
        for warning in &warnings {
            self.complain(&format!(
                "genstore: warning: {}",
                one_line(&warning.message)
            ));
            if let Some(hint) = &warning.hint {
                self.complain(&format!("hint: {}", one_line(hint)));
            }
        }
        self.warnings.extend(warnings);
    }

    /// Writes the JSON answer of this verb; warnings are added to it.
    pub(crate) fn answer(&mut self, mut keys: Map<String, Value>) -> Outcome {
        self.progress.clear();
        keys.insert(
            "warnings".to_owned(),
            self.warnings.iter().map(warning).collect(),
        );
        Ok(self.out.document(self.verb, &keys)?)
    }

    /// Writes a line for people.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Outcome {
        self.progress.clear();
        Ok(self.out.line(text)?)
    }

    /// Asks a person at the terminal. `None` if there is nobody to ask.
    pub(crate) fn ask(&mut self, question: &str) -> Outcome<Option<bool>> {
        if self.json() || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Ok(None);
        }
        self.progress.clear();
        self.out.flush()?;
        output::say(&format!("{question} [y/N]"));
        let mut line = String::new();
        let read = self
            .waiting
            .during(|| io::stdin().lock().read_line(&mut line));
        read.map_err(|source| Error::Io {
            op: "read",
            path: "standard input".into(),
            source,
        })?;
        Ok(Some(matches!(line.trim(), "y" | "Y" | "yes")))
    }

    /// Reads standard input to its end, at most `limit` bytes.
    pub(crate) fn standard_input(&self, limit: u64) -> Outcome<Vec<u8>> {
        use io::Read as _;
        let mut bytes = Vec::new();
        let read = self
            .waiting
            .during(|| io::stdin().lock().take(limit + 1).read_to_end(&mut bytes));
        read.map_err(|source| Error::Io {
            op: "read",
            path: "standard input".into(),
            source,
        })?;
        if bytes.len() as u64 > limit {
            let problem = format!("more than {limit} bytes");
            return Err(Error::Invalid {
                what: "standard input",
                problem,
            }
            .into());
        }
        Ok(bytes)
    }
}

/// Whether an argument names a generation: `gen-…` does, and anything with a `/` is a directory.
pub(crate) fn is_generation(argument: &OsStr) -> bool {
    argument
        .to_str()
        .is_some_and(|text| text.starts_with("gen-") && !text.contains('/'))
}

/// What an argument of `activate` or `verify` names.
#[derive(Debug)]
pub(crate) enum Target {
    /// A generation of the store.
    Generation(GenerationId),
    /// A directory anywhere.
    Directory(PathBuf),
}

/// The error for a directory that belongs to no lineage. It names the lineages below, and how to list them.
pub(crate) fn no_lineage(view: &View, directory: &Path) -> Outcome<Failure> {
    let nested = view.nested(directory)?;
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let not_found = |detail: &str| Error::NotFound {
        wanted: Wanted::Lineage,
        name: name::escape(absolute.as_os_str().as_bytes()),
        detail: detail.to_owned(),
    };
    let Some(first) = nested.first() else {
        let error = not_found("no checkpoint was made of it, or of a directory that it is in");
        return Ok(Failure::from(error).with_hint(format!(
            "make one: genstore checkpoint {}; or list all: genstore log --all",
            name::quote_path(directory)
        )));
    };
    let mut shown: Vec<String> = nested
        .iter()
        .take(10)
        .map(|lineage| name::escape(&lineage.source))
        .collect();
    if nested.len() > shown.len() {
        shown.push("…".to_owned());
    }
    let error = not_found(&format!(
        "there are checkpoints of directories in it: {}",
        shown.join(", ")
    ));
    let names: Vec<Value> = nested
        .iter()
        .map(|lineage| output::name(&lineage.name))
        .collect();
    let source = relative(directory, &first.source);
    Ok(Failure::from(error)
        .with_detail("nested", names)
        .with_hint(format!(
            "list one: genstore log {}; or all: genstore log --all",
            name::quote(&source)
        )))
}

/// `source` as it would be typed from the current directory, where it lies below it.
fn relative(directory: &Path, source: &[u8]) -> Vec<u8> {
    let source_path = Path::new(OsStr::from_bytes(source));
    if directory != Path::new(".") {
        return source.to_vec();
    }
    let below = std::env::current_dir()
        .ok()
        .and_then(|here| source_path.strip_prefix(here).ok().map(Path::to_owned));
    match below {
        Some(path) if !path.as_os_str().is_empty() => path.into_os_string().into_vec(),
        _ => source.to_vec(),
    }
}

/// Whether a revision is digits of an id rather than a tag or a word: no tag looks like that.
fn is_id_prefix(revision: &str) -> bool {
    (4..=64).contains(&revision.len())
        && revision
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Adds `--store` to each command of a hint that does not name a store.
fn with_store(hint: &str, store: &Path) -> String {
    if hint.contains("--store") {
        return hint.to_owned();
    }
    let store = std::path::absolute(store).unwrap_or_else(|_| store.to_owned());
    let verbs: Vec<&str> = verbs::VERBS.iter().map(|verb| verb.name).collect();
    let mut text = String::with_capacity(hint.len() + 64);
    for (number, piece) in hint.split("genstore ").enumerate() {
        if number > 0 {
            text.push_str("genstore ");
            let word: String = piece.chars().take_while(char::is_ascii_lowercase).collect();
            if verbs.contains(&word.as_str()) {
                text.push_str("--store ");
                text.push_str(&name::quote_path(&store));
                text.push(' ');
            }
        }
        text.push_str(piece);
    }
    text
}

fn warning(warning: &Warning) -> Value {
    Value::Object(object! {
        "code": warning.code, "message": warning.message.clone(), "hint": warning.hint.clone(),
    })
}

/// A variable of the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the environment"
)]
pub(crate) fn environment(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pasted_hint_acts_on_the_same_store() {
        let store = Path::new("/srv/s 2");
        assert_eq!(
            with_store("look: genstore log --all; or run `genstore undo X`", store),
            "look: genstore --store '/srv/s 2' log --all; or run `genstore --store '/srv/s 2' undo X`"
        );
        let named = "run `genstore status --store /x`";
        assert_eq!(with_store(named, store), named);
        assert_eq!(with_store("a genstore store", store), "a genstore store");
    }

    #[test]
    fn a_slash_makes_a_directory() {
        assert!(is_generation(OsStr::new("gen-42")));
        assert!(!is_generation(OsStr::new("./gen-42")) && !is_generation(OsStr::new("candidate")));
        assert!(!is_generation(OsStr::from_bytes(b"gen-\xff")));
    }

    #[test]
    fn only_lower_case_hex_is_an_id() {
        assert!(is_id_prefix("dead") && is_id_prefix("0123456789abcdef"));
        assert!(
            !is_id_prefix("abc")
                && !is_id_prefix("DEAD")
                && !is_id_prefix("latest")
                && !is_id_prefix("v1.0")
        );
        assert!(!is_id_prefix(&"a".repeat(65)));
    }
}
