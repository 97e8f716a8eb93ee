//! Ctrl-C: the first one asks the operation to stop at its next safe point, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

// signal-hook rather than ctrlc: the second signal takes the signal's own default action (a shell sees 130), which
// ctrlc cannot do, and no `unsafe` is needed here.
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use store_core::progress::Cancel;
use store_core::{Error, Result};

/// Whether the process waits for a person, so that there is no operation that could stop by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// Runs `wait`; a signal meanwhile ends the process at once.
    pub(crate) fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.0.store(true, Ordering::Relaxed);
        let answer = wait();
        self.0.store(false, Ordering::Relaxed);
        answer
    }
}

/// Makes SIGINT, SIGTERM and SIGHUP set `cancel`, unless whoever started the process has them ignored (`nohup`, `&`).
///
/// Only for verbs that write: a verb that only reads leaves nothing behind when it just dies.
///
/// # Errors
/// [`Error::Io`] if the handlers or their thread cannot be set up.
pub(crate) fn install(cancel: Cancel, waiting: Waiting) -> Result<()> {
    let failed = |source| Error::Io {
        op: "handle",
        path: "signals".into(),
        source,
    };
    let ignored = ignored();
    let wanted = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(wanted).map_err(failed)?;
    let watch = move || {
        for signal in signals.forever() {
            if cancel.is_cancelled() || waiting.0.load(Ordering::Relaxed) {
                // Does not return for these two signals; if it could not act, the next signal tries again.
                drop(emulate_default_handler(signal));
            }
            cancel.cancel();
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(watch)
        .map(drop)
        .map_err(failed)
}

/// The signals that were ignored when the process began, as a bit set. Where the system does not say, nothing is
/// ignored but SIGHUP, so that `nohup` works everywhere.
fn ignored() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the system's, not of a store"
    )]
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    ignored_of(&status).unwrap_or(1 << (SIGHUP - 1))
}

fn ignored_of(status: &[u8]) -> Option<u64> {
    let status = String::from_utf8_lossy(status);
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ignored_signals_are_read_from_the_system() {
        assert_eq!(
            ignored_of(b"Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"),
            Some(0x1001)
        );
        assert_eq!(ignored_of(b""), None);
        if cfg!(target_os = "linux") {
            // Rust's runtime ignores SIGPIPE.
            assert_eq!(ignored() >> (signal_hook::consts::SIGPIPE - 1) & 1, 1);
        }
    }
}
