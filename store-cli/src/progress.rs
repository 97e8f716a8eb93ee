//! Progress on standard error: a bar on a terminal, JSON lines for programs, or nothing.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use store_core::progress::{NoProgress, Phase, Progress};

use crate::output::object;
use crate::units;

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// A bar if standard error is a terminal, nothing otherwise.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// Nothing.
    None,
}

/// An operation shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(400);
/// The shortest time between two JSON lines of one phase.
const INTERVAL: Duration = Duration::from_millis(100);

/// What shows progress during a run.
pub(crate) enum Display {
    /// A bar on the terminal.
    Bar(Arc<Bar>),
    /// JSON lines, which need no end.
    Lines(Arc<Lines>),
    /// Nothing.
    Nothing,
}

impl Display {
    /// The display for `mode`.
    pub(crate) fn new(mode: Mode, quiet: bool) -> Self {
        match mode {
            Mode::Auto if !quiet && io::stderr().is_terminal() => Self::Bar(Arc::new(Bar::new())),
            Mode::Json => Self::Lines(Arc::new(Lines::new())),
            Mode::Auto | Mode::None => Self::Nothing,
        }
    }

    /// What the library reports to.
    pub(crate) fn listener(&self) -> Arc<dyn Progress> {
        match self {
            Self::Bar(bar) => Arc::<Bar>::clone(bar),
            Self::Lines(lines) => Arc::<Lines>::clone(lines),
            Self::Nothing => Arc::new(NoProgress),
        }
    }

    /// Takes the bar away, so that other lines can be written; the next phase brings it back.
    pub(crate) fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.0.finish_and_clear();
        }
    }
}

/// A bar, or a spinner where the end is not known.
pub(crate) struct Bar(ProgressBar, Instant, AtomicU64, AtomicU64);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self(bar, Instant::now(), AtomicU64::new(0), AtomicU64::new(0))
    }
}

impl Progress for Bar {
    fn begin(&self, phase: Phase, _: Option<u64>) {
        let Self(bar, _, files, bytes) = self;
        files.store(0, Ordering::Relaxed);
        bytes.store(0, Ordering::Relaxed);
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.reset();
        bar.set_prefix(phase.word());
        bar.set_message("");
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {msg}") {
            bar.set_style(style);
        }
    }

    fn advance(&self, more_files: u64, more_bytes: u64) {
        let Self(bar, since, files, bytes) = self;
        let files = files.fetch_add(more_files, Ordering::Relaxed) + more_files;
        let bytes = bytes.fetch_add(more_bytes, Ordering::Relaxed) + more_bytes;
        if since.elapsed() < PATIENCE {
            return;
        }
        if bar.is_hidden() && !bar.is_finished() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
        bar.set_message(format!(
            "{}, {}",
            units::counted(files, "file", "files"),
            units::size(bytes)
        ));
        bar.tick();
    }
}

/// JSON lines: one at the beginning of a phase, then at most ten a second.
pub(crate) struct Lines(Mutex<State>);

struct State {
    phase: Phase,
    total: Option<u64>,
    files: u64,
    bytes: u64,
    written: Instant,
}

impl Lines {
    fn new() -> Self {
        let written = Instant::now();
        Self(Mutex::new(State {
            phase: Phase::Lock,
            total: None,
            files: 0,
            bytes: 0,
            written,
        }))
    }
}

impl State {
    fn write(&mut self) {
        self.written = Instant::now();
        let line = object! {
            "schema": "genstore.progress/1", "phase": self.phase.word(), "total": self.total,
            "files": self.files, "bytes": self.bytes,
        };
        let written = writeln!(io::stderr().lock(), "{}", serde_json::Value::Object(line));
        drop(written);
    }
}

impl Progress for Lines {
    fn begin(&self, phase: Phase, total: Option<u64>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State {
            phase,
            total,
            files: 0,
            bytes: 0,
            written: state.written,
        };
        state.write();
    }

    fn advance(&self, files: u64, bytes: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.files += files;
        state.bytes += bytes;
        if state.written.elapsed() >= INTERVAL {
            state.write();
        }
    }
}
