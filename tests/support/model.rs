//! A model of a store, and a driver that takes the same operations to it and to a real store and compares them after each.
//!
//! The same function serves plain tests (seeded bytes) and libFuzzer (its bytes). A sequence that fails is shortened
//! before it is shown, so that what is printed is what is needed.

#![allow(
    unreachable_pub,
    clippy::verbose_bit_mask,
    clippy::unnecessary_wraps,
    clippy::needless_pass_by_value,
    reason = "the parts of the model are private; `pub` says what other parts use; bytes are taken apart as they are meant"
)]

mod call;
mod catalog;
mod check;
mod driver;
mod operation;
mod state;
mod tree;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use store_core::StoreOptions;

use driver::Driver;
pub use driver::Options;
pub use operation::{BYTES, Operation};

/// The longest sequence: longer inputs are cut.
pub const MAX_OPERATIONS: usize = 256;

/// What a sequence that went well did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Sequences: 1, unless several are added up.
    pub sequences: u64,
    /// Operations, edits of the trees included.
    pub operations: u64,
    /// Checkpoints that were made.
    pub checkpoints: u64,
}

/// A sequence after which store and model differ.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The operations, up to the one that shows it.
    pub operations: Vec<Operation>,
    /// What differs.
    pub problem: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "store and model differ after {} operations:",
            self.operations.len()
        )?;
        for operation in &self.operations {
            writeln!(f, "  {operation:?}")?;
        }
        write!(f, "{}", self.problem)
    }
}

/// The options of a store without planted bugs.
pub fn honest() -> StoreOptions {
    StoreOptions::new()
}

/// Runs the sequence that an input stands for.
///
/// # Errors
/// The shortest sequence found that fails.
pub fn run(bytes: &[u8], options: &Options) -> Result<Done, Failure> {
    let operations = Operation::sequence(bytes, MAX_OPERATIONS);
    attempt(&operations, options).map_err(|failure| shorten(failure, options))
}

/// One run of a sequence. A panic is a failure like any other.
fn attempt(operations: &[Operation], options: &Options) -> Result<Done, Failure> {
    let mut reached = 0;
    let run = catch_unwind(AssertUnwindSafe(|| {
        let mut driver = Driver::new(options)?;
        for operation in operations {
            reached += 1;
            driver.step(operation)?;
        }
        driver.finish()?;
        Ok(driver.checkpoints())
    }));
    let problem = match run {
        Ok(Ok(checkpoints)) => {
            return Ok(Done {
                sequences: 1,
                operations: operations.len() as u64,
                checkpoints,
            });
        }
        Ok(Err(problem)) => problem,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or("a panic".to_owned())
        }
    };
    Err(Failure {
        operations: operations[..reached].to_vec(),
        problem,
    })
}

/// Leaves operations out, many at a time at first, for as long as it still fails.
fn shorten(mut failure: Failure, options: &Options) -> Failure {
    let mut piece = failure.operations.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < failure.operations.len() {
            let end = (at + piece).min(failure.operations.len());
            let rest = [&failure.operations[..at], &failure.operations[end..]].concat();
            match attempt(&rest, options) {
                Err(shorter) => failure = shorter,
                Ok(_) => at = end,
            }
        }
        piece /= 2;
    }
    failure
}
