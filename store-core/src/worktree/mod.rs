//! Work trees: reading people's files into trees, writing trees out, comparing.

pub mod capture;
#[cfg(test)]
mod capture_tests;
pub mod compare;
mod door;
mod one_file;
mod read;
pub mod restore;
pub mod rules;
pub(crate) mod tasks;
#[cfg(test)]
mod testing;
mod walk;

pub use door::Root;
pub(crate) use door::no_source;
pub use one_file::{has_path, read_file};
