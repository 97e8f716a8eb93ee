//! Runs the command under test: no inherited environment, a deadline, answers as text and JSON.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::Dir;
use crate::machine;

/// How long any one command may take before it counts as hung.
const HANG: Duration = Duration::from_mins(2);

/// The command under test, set up for one fixture.
#[derive(Clone, Debug)]
pub struct Genstore {
    binary: PathBuf,
    home: PathBuf,
    store: Option<PathBuf>,
    cwd: PathBuf,
    uid: Option<u32>,
    prefix: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
    limit: Duration,
}

impl Genstore {
    /// `binary` on the fixture's store, run in the fixture's tree.
    pub fn new(binary: &str, dir: &Dir) -> Self {
        Self {
            binary: binary.into(),
            home: dir.path("home"),
            store: Some(dir.store()),
            cwd: dir.tree(),
            uid: None,
            prefix: Vec::new(),
            env: Vec::new(),
            input: None,
            limit: HANG,
        }
    }

    /// The program itself.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// On another store.
    #[must_use]
    pub fn on(mut self, store: impl Into<PathBuf>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// With no store named: the default below `HOME` is used.
    #[must_use]
    pub fn on_default_store(mut self) -> Self {
        self.store = None;
        self
    }

    /// In another working directory.
    #[must_use]
    pub fn within(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    /// With one more environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// With text on standard input.
    #[must_use]
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// With another deadline.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// As a user without rights. When the tests do not run as root they already are one, and nothing changes.
    #[must_use]
    pub fn as_nobody(mut self) -> Self {
        if machine::is_root() {
            self.uid = Some(machine::NOBODY);
            let place = self.home.parent().unwrap_or(&self.home);
            self.binary = machine::binary_for_everybody(&self.binary, place);
        }
        self
    }

    /// Under another program (strace, prlimit): `prefix… genstore arguments…`.
    #[must_use]
    pub fn under<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, prefix: I) -> Self {
        self.prefix = prefix.into_iter().map(Into::into).collect();
        self
    }

    /// The `std` command, for callers that spawn it themselves.
    pub fn command<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = match self.prefix.split_first() {
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(&self.binary);
                command
            }
            None => Command::new(&self.binary),
        };
        command.args(args).current_dir(&self.cwd).env_clear();
        command.env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
        );
        command
            .env("HOME", &self.home)
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        if let Some(store) = &self.store {
            command.env("GENSTORE_DIR", store);
        }
        for (name, value) in &self.env {
            command.env(name, value);
        }
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command.stdin(if self.input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If it cannot be started, or hangs.
    pub fn run<I, S>(&self, args: I) -> Ran
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = self.command(args);
        let shown = format!("{command:?}");
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        if let (Some(text), Some(mut stdin)) = (&self.input, child.stdin.take()) {
            // A child that ends without reading is its own business.
            drop(stdin.write_all(text));
        }
        let pid = rustix::process::Pid::from_child(&child);
        let (done, waiting) = mpsc::channel::<()>();
        let limit = self.limit;
        let guard = std::thread::spawn(move || {
            let hung = waiting.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if hung {
                // It may have ended this very moment.
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
            hung
        });
        let output = child.wait_with_output().unwrap();
        drop(done);
        let hung = guard.join().unwrap();
        let ran = Ran {
            shown,
            status: output.status,
            stdout: output.stdout,
            stderr: output.stderr,
        };
        assert!(!hung, "hung for {limit:?}: {ran}");
        ran
    }

    /// Runs it and expects exit 0.
    ///
    /// # Panics
    /// If it ends otherwise.
    pub fn ok<I, S>(&self, args: I) -> Ran
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.run(args).exit(0)
    }

    /// Runs it with `--json`, expects exit 0, and returns the document.
    ///
    /// # Panics
    /// If it ends otherwise, or prints anything else.
    pub fn json<I, S>(&self, args: I) -> Value
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.json_exit(0, args)
    }

    /// Runs it with `--json`, expects that exit code, and returns the document.
    ///
    /// # Panics
    /// If it ends otherwise, or prints anything else.
    pub fn json_exit<I, S>(&self, code: i32, args: I) -> Value
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.run(with_json(args)).exit(code).json()
    }

    /// Runs it with `--json`, expects that exit code and an error document, and returns the error's code.
    ///
    /// # Panics
    /// If it ends otherwise, or prints anything else.
    pub fn fails<I, S>(&self, code: i32, args: I) -> Failed
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.run(with_json(args)).exit(code).error()
    }
}

fn with_json<I, S>(args: I) -> Vec<OsString>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut args: Vec<OsString> = args
        .into_iter()
        .map(|arg| arg.as_ref().to_owned())
        .collect();
    // Before a `--`, which ends the options.
    let at = args
        .iter()
        .position(|arg| arg == "--")
        .unwrap_or(args.len());
    args.insert(at, "--json".into());
    args
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    shown: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it said.
    pub stderr: Vec<u8>,
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\n{}\n--- stdout\n{}\n--- stderr\n{}",
            self.shown,
            self.status,
            String::from_utf8_lossy(&self.stdout),
            String::from_utf8_lossy(&self.stderr)
        )
    }
}

/// An error document.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed {
    /// The stable code.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do next; empty if nothing helps.
    pub hint: String,
}

impl Ran {
    /// Expects that exit code.
    ///
    /// # Panics
    /// If it is another, or a signal.
    #[track_caller]
    #[expect(
        clippy::return_self_not_must_use,
        reason = "the assertion is the point"
    )]
    pub fn exit(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    /// Whether it was killed by that signal.
    pub fn killed_by(&self, signal: i32) -> bool {
        self.status.signal() == Some(signal)
    }

    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The one JSON document on standard output, with a schema.
    ///
    /// # Panics
    /// If it is something else.
    #[track_caller]
    pub fn json(&self) -> Value {
        let value: Value = serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("not one JSON document ({error}): {self}"));
        let schema = value["schema"].as_str().unwrap_or_default();
        assert!(
            schema.starts_with("genstore.") && schema.ends_with("/1"),
            "no schema: {self}"
        );
        value
    }

    /// The error document, with its code, message and hint.
    ///
    /// # Panics
    /// If it is something else.
    #[track_caller]
    pub fn error(&self) -> Failed {
        let value = self.json();
        assert_eq!(value["schema"], "genstore.error/1", "{self}");
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let failed = Failed {
            code: text("code"),
            message: text("message"),
            hint: text("hint"),
        };
        assert!(
            !failed.code.is_empty() && !failed.message.is_empty(),
            "an error without words: {self}"
        );
        assert!(!failed.message.contains('\n'), "more than one line: {self}");
        failed
    }

    /// Standard error is one line (a hint may follow on a second one), and standard output is empty.
    ///
    /// # Panics
    /// If it is otherwise.
    #[track_caller]
    #[expect(
        clippy::return_self_not_must_use,
        reason = "the assertion is the point"
    )]
    pub fn one_clear_line(self) -> Self {
        let err = self.err();
        let lines: Vec<_> = err.lines().collect();
        let (first, rest) = lines
            .split_first()
            .unwrap_or_else(|| panic!("it says nothing: {self}"));
        assert!(first.len() > 10, "it says next to nothing: {self}");
        assert!(
            rest.iter()
                .all(|line| line.trim_start().starts_with("hint:")),
            "more than one line and a hint: {self}"
        );
        assert!(!err.contains("panicked"), "{self}");
        assert!(self.stdout.is_empty(), "an error on stdout: {self}");
        self
    }
}
