//! The library, as an agent runtime embeds it: one handle that lives through every fault, threads, clocks, cancellation, silence.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed step fails the test"
)]

mod faults;
mod promises;
