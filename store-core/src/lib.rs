//! A content-addressed, generational checkpoint store.

pub mod clock;
pub mod error;
pub mod format;
pub mod id;
pub mod name;
pub mod objects;
pub mod progress;

pub use error::{Error, ErrorKind, Result, SelectorFault, Wanted};
