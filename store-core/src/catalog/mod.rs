//! The catalog: lineages and their checkpoints, as copy-on-write maps of small objects. `docs/format.md` section 8.
//!
//! [`view`] reads, [`edit`] makes the next catalog out of one, [`check()`] looks for contradictions, [`revision`] is what people
//! type, and [`map`] is the tree below them all. Nothing here knows where objects are kept.

pub mod check;
pub mod edit;
pub mod map;
pub mod revision;
pub mod view;

pub use check::check;
pub use edit::{CatalogEdit, Removed, Returned, TagChange};
pub use revision::Revision;
pub use view::{Catalog, Found, LineageView, Numbered};

use crate::error::{Error, Result};
use crate::format::catalog::{CheckpointEntry, MAX_OBJECT_BYTES, parse_number};
use crate::format::codec::Decoded;
use crate::id::ObjectId;
use crate::objects::ObjectSource;

/// Reads and decodes one object of the catalog.
fn load<T>(
    source: &dyn ObjectSource,
    id: &ObjectId,
    decode: impl FnOnce(&[u8]) -> Decoded<T>,
) -> Result<T> {
    let bytes = source.get(id, MAX_OBJECT_BYTES)?;
    decode(&bytes).map_err(|error| damaged(id, error.to_string()))
}

/// An object of the catalog that is not what the place that names it promises.
fn damaged(id: &ObjectId, problem: impl Into<String>) -> Error {
    Error::damaged(format!("object {id}"), Some(*id), problem)
}

/// A row of the catalog that contradicts the others.
fn contradiction(problem: impl Into<String>) -> Error {
    Error::damaged("catalog", None, problem)
}

fn number_value(bytes: &[u8]) -> Result<u64> {
    match parse_number(bytes) {
        Some(number) if number > 0 => Ok(number),
        _ => Err(contradiction("a checkpoint's number is malformed")),
    }
}

fn entry_value(number: u64, bytes: &[u8]) -> Result<CheckpointEntry> {
    CheckpointEntry::decode(bytes).map_err(|error| {
        contradiction(format!(
            "the entry of checkpoint {number} is malformed: {error}"
        ))
    })
}

fn id_value(bytes: &[u8], what: &str) -> Result<ObjectId> {
    match bytes.try_into() {
        Ok(bytes) => Ok(ObjectId::from_bytes(bytes)),
        Err(_) => Err(contradiction(format!("{what} is not an id"))),
    }
}
