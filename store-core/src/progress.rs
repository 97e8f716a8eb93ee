//! Progress and cancellation, as traits that callers implement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What an operation is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Walking and reading a work tree.
    Capture,
    /// Waiting for the lock.
    Lock,
    /// Writing the generation.
    Publish,
    /// Reading and checking packs.
    Verify,
    /// Following every checkpoint to every object.
    Closure,
    /// Copying a candidate's packs.
    Copy,
    /// Writing files out.
    Restore,
    /// Comparing trees.
    Compare,
}

impl Phase {
    /// One word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Lock => "lock",
            Self::Publish => "publish",
            Self::Verify => "verify",
            Self::Closure => "closure",
            Self::Copy => "copy",
            Self::Restore => "restore",
            Self::Compare => "compare",
        }
    }
}

/// Hears how far an operation has come. Called from several threads at once, so implementations must be quick.
pub trait Progress: Send + Sync {
    /// A phase begins; `total` is in the phase's unit (files or bytes) where it is known.
    fn begin(&self, phase: Phase, total: Option<u64>) {
        let _: (Phase, Option<u64>) = (phase, total);
    }
    /// `files` and `bytes` more have been dealt with.
    fn advance(&self, files: u64, bytes: u64) {
        let _: (u64, u64) = (files, bytes);
    }
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// A flag that stops an operation at its next safe point. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks every operation that holds a clone of this flag to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> crate::Result<()> {
        if self.is_cancelled() {
            return Err(crate::Error::Cancelled {
                code: "cancelled",
                reason: "cancelled by the caller".to_owned(),
            });
        }
        Ok(())
    }
}
