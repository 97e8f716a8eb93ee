//! The test kit: what tests, fuzz targets and benches of genstore share. Nothing here is shipped.
//!
//! Tests look at the store and at people's files as any other program would, through `std::fs` and strace, never through genstore's own door.

#![expect(
    clippy::unwrap_used,
    reason = "in the kit of tests a failed step fails the test"
)]

pub mod dir;
pub mod genstore;
pub mod machine;
pub mod model;
pub mod properties;
pub mod random;
pub mod reader;
pub mod source;
pub mod strace;
pub mod tree;

pub use dir::Dir;
pub use genstore::{Failed, Genstore, Ran};

/// Whether the tests run where everything must run (`CI` is set): there, a test that cannot run fails.
pub fn on_ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// Skips a test that needs something this machine lacks, in words; on CI that is a failure.
///
/// # Panics
/// On CI.
#[expect(clippy::print_stdout, reason = "the test runner shows it")]
pub fn skip(why: &str) {
    assert!(!on_ci(), "must run on CI, but: {why}");
    println!("skipped: {why}");
}

/// A flag for threads that work until a test is over. Dropping it sets it: a failing test must not leave its threads running for ever.
#[derive(Debug, Default)]
pub struct Over(std::sync::atomic::AtomicBool);

impl Over {
    /// Whether the test is over.
    pub fn is_set(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Says that it is.
    pub fn set(&self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Runs `body`, and sets the flag when it ends, also by a panic.
    pub fn after<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Guard<'a>(&'a Over);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.set();
            }
        }
        let _guard = Guard(self);
        body()
    }
}
