//! Objects: how bytes get into packs and out of them. `docs/format.md` sections 4 and 5.

mod block;
mod cache;
pub mod chunker;
pub mod index;
#[doc(hidden)]
pub mod memory;
pub mod merge;
pub mod reader;
#[cfg(test)]
pub(crate) mod testing;
pub mod verify;
pub mod writer;

use crate::Result;
use crate::id::ObjectId;

/// What an object is for: decides with which others it shares a block, so that reading metadata never decompresses file content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// File content.
    Chunk,
    /// Trees, chunk lists and what hangs on them.
    Tree,
    /// The catalog, its entries and checkpoint records.
    Catalog,
}

/// Where objects are read from: the packs of one pinned generation, or a test's map.
pub trait ObjectSource: Sync {
    /// The object's bytes, checked against its id before they are returned.
    ///
    /// # Errors
    /// [`crate::Error::ObjectMissing`], [`crate::Error::Damaged`] (also when it is longer than `limit` bytes), [`crate::Error::Io`].
    fn get(&self, id: &ObjectId, limit: usize) -> Result<Vec<u8>>;

    /// Whether the object is there (by index; its bytes are not read).
    ///
    /// # Errors
    /// If that cannot be found out. A failed look-up is never "absent".
    fn contains(&self, id: &ObjectId) -> Result<bool>;
}

/// Where new objects go. Stores only what is not there yet.
pub trait ObjectSink: Sync {
    /// Stores an object and returns its id. May be called from several threads.
    ///
    /// # Errors
    /// If it cannot be written. Nothing is published by this.
    fn put(&self, bytes: &[u8], class: Class) -> Result<ObjectId>;
}
