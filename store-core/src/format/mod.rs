//! Bytes ⇄ values. Pure functions: limits, then parse, then use. `docs/format.md` is the text; each module names its section.

pub mod codec;
