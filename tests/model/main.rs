//! Store against model, and every corpus against its property. `fuzz/run.sh` goes on where these end.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step fails the test"
)]

mod corpus;
mod seeds;
mod sequences;
