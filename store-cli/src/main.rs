//! The `genstore` command line.
fn main() {}
