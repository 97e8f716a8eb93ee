//! Bytes ⇄ values. Pure functions: limits, then parse, then use. `docs/format.md` is the text; each module names its section.

pub mod catalog;
pub mod checkpoint;
pub mod codec;
pub mod content;
pub mod manifest;
pub mod pack;
pub mod selector;
pub mod stat_cache;
pub mod tree;
