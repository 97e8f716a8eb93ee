//! New objects on their way into packs in `incoming/`.

use std::collections::BTreeSet;

use crate::disk::{Dir, Temporary};
use crate::format::catalog::is_catalog_object;
use crate::format::pack::MAX_BLOCK_BYTES;
use crate::generation::NewPack;
use crate::id::ObjectId;
use crate::objects::merge;
use crate::objects::reader::PackSet;
use crate::objects::writer::{PackSinkFile, PackWriter, SealedPack, pack_size_limit};
use crate::objects::{Class, ObjectSink, ObjectSource};
use crate::{Error, Result};

/// A pack being written to a temporary file.
struct Growing(Temporary);

impl PackSinkFile for Growing {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.file().append(bytes)
    }
}

/// Collects objects that a base state lacks. Files appear only when there is something to write; dropping it removes them.
pub(crate) struct Staging<'b>(PackWriter<'b, Growing>);

impl<'b> Staging<'b> {
    /// Objects that `base` has are not stored again; without a base everything is.
    pub(crate) fn new(incoming: &Dir, base: Option<&'b PackSet>) -> Self {
        let incoming = incoming.clone();
        Self(PackWriter::new(
            Box::new(move |id| base.map_or(Ok(false), |base| base.contains(id))),
            Box::new(move || Ok(Growing(Temporary::create(&incoming, "pack")?))),
            pack_size_limit(base.map_or(0, PackSet::len)),
        ))
    }

    /// The same, but an object counts as there only if its bytes can be read back and are right: what is damaged is
    /// stored again.
    pub(crate) fn reading_back(incoming: &Dir, base: &'b PackSet) -> Self {
        let incoming = incoming.clone();
        Self(PackWriter::new(
            Box::new(move |id| match base.get(id, MAX_BLOCK_BYTES as usize) {
                Ok(_) => Ok(true),
                Err(Error::ObjectMissing { .. } | Error::Damaged { .. }) => Ok(false),
                Err(error) => Err(error),
            }),
            Box::new(move || Ok(Growing(Temporary::create(&incoming, "pack")?))),
            pack_size_limit(base.len()),
        ))
    }

    /// How many objects were new.
    pub(crate) fn new_objects(&self) -> u64 {
        self.0.new_objects()
    }

    /// Objects that were put and that the base has.
    pub(crate) fn relied(&self) -> Vec<ObjectId> {
        self.0.relied()
    }

    /// Whether the object is among the new ones.
    pub(crate) fn holds(&self, id: &ObjectId) -> bool {
        self.0.holds(id)
    }

    /// Stores an object whatever the base has.
    pub(crate) fn put_always(&self, bytes: &[u8], class: Class) -> Result<ObjectId> {
        self.0.put_always(bytes, class)
    }

    /// Completes the packs: written, not yet synced.
    pub(crate) fn seal(self) -> Result<Vec<NewPack>> {
        let sealed = self.0.seal()?;
        Ok(sealed
            .into_iter()
            .map(
                |SealedPack {
                     id,
                     bytes,
                     objects,
                     file,
                 }| NewPack {
                    id,
                    bytes,
                    objects,
                    synced: false,
                    is_copy: false,
                    file: file.0,
                },
            )
            .collect())
    }
}

/// Copies the blocks of small packs of `from`, by the geometric plan: blocks of the catalog into one staging, all others
/// into the other. Returns the packs that are wholly copied.
///
/// The catalog stays in packs of its own, so that a lost pack of data never takes the history with it.
pub(crate) fn merge_small<'r, 'w>(
    from: &PackSet,
    packs: &[(ObjectId, u64)],
    data: &'r Staging<'w>,
    catalog: &'r Staging<'w>,
) -> Result<BTreeSet<ObjectId>> {
    let plan = merge::plan_merge(packs);
    if plan.is_empty() {
        return Ok(BTreeSet::new());
    }
    let files: Vec<_> = (0..from.len())
        .filter_map(|pack| Some((*from.pack_id(pack)?, from.file(pack)?.clone())))
        .filter(|(id, _)| plan.contains(id))
        .collect();
    let route: &merge::Route<'r, 'w, Growing> = &|first: &[u8]| {
        if is_catalog_object(first) {
            &catalog.0
        } else {
            &data.0
        }
    };
    // A pack that turns out to be damaged is not merged: it stays linked as it is, for verify to name.
    Ok(merge::merge_into(route, &files)?
        .merged
        .into_iter()
        .collect())
}

impl ObjectSink for Staging<'_> {
    fn put(&self, bytes: &[u8], class: Class) -> Result<ObjectId> {
        self.0.put(bytes, class)
    }
}
