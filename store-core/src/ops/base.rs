//! A pinned generation with its packs open: what every reading operation stands on.

use std::path::PathBuf;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::disk::{Dir, File};
use crate::format::manifest::{Manifest, PackEntry, PackState};
use crate::id::{GenerationId, ObjectId};
use crate::objects::index::{PackFile, PackMap};
use crate::objects::reader::PackSet;
use crate::root::{Context, Root};
use crate::selector::{self, GenerationFault, Live};
use crate::{Error, Result, SelectorFault, Wanted, generation, layout, map};

/// From this size on a pack's index is used where it lies in a map: reading the index of a smaller one costs less.
const MAP_FROM_BYTES: u64 = 256 << 10;

/// How pack indexes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through a map where that is safe: a checkpoint's path.
    Mapped,
    /// With `pread` only: wherever a failing disk must give an error and not a signal.
    Read,
}

/// A pinned generation and its intact packs.
pub(crate) struct Base {
    pub(crate) live: Live,
    /// The manifest's packs as they were found: each one's state looked at.
    pub(crate) packs: Vec<PackEntry>,
    pub(crate) objects: PackSet,
}

impl Base {
    /// Resolves the live generation.
    pub(crate) fn open(root: &Root, context: &Context, access: Access) -> Result<Self> {
        Self::of(selector::resolve(root, context)?, access)
    }

    /// Opens any generation of the store by its id; needs no CURRENT.
    pub(crate) fn open_generation(
        root: &Root,
        context: &Context,
        id: &GenerationId,
        access: Access,
    ) -> Result<Self> {
        let fault = |fault: GenerationFault| match fault {
            GenerationFault::Error(error) => error,
            GenerationFault::Fault(SelectorFault::GenerationMissing { .. }) => Error::not_found(
                Wanted::Generation,
                id.to_string(),
                "it is not in this store",
            ),
            GenerationFault::Fault(SelectorFault::ManifestMissing { .. })
                if is_emptied(root, id) =>
            {
                Error::not_found(
                    Wanted::Generation,
                    id.to_string(),
                    "it was superseded, and its files were reclaimed",
                )
            }
            GenerationFault::Fault(fault) => Error::damaged(
                root.dir
                    .path()
                    .join(layout::GENERATIONS)
                    .join(id.to_string()),
                None,
                fault
                    .to_string()
                    .replace("the live generation", "generation"),
            ),
        };
        for _ in 0..1000 {
            match selector::open_generation(root, id, context).map_err(fault)? {
                Some(dir) => {
                    let manifest = selector::read_manifest(&dir, id).map_err(fault)?;
                    return Self::of(
                        Live {
                            id: *id,
                            dir,
                            manifest,
                        },
                        access,
                    );
                }
                None => std::thread::sleep(std::time::Duration::from_millis(2)),
            }
        }
        Err(Error::Conflict)
    }

    /// What was resolved, with its packs examined.
    pub(crate) fn of(live: Live, access: Access) -> Result<Self> {
        let mut packs = generation::examine_packs(&live.dir, &live.manifest)?;
        let mut objects = open_packs(&live.dir, &packs, access);
        // A writer must know at once which packs it cannot look things up in: what they held is written again.
        if access == Access::Mapped && mark_unusable(&mut packs, &objects)? {
            objects = open_packs(&live.dir, &packs, access);
        }
        Ok(Self {
            live,
            packs,
            objects,
        })
    }

    /// The catalog.
    pub(crate) fn catalog(&self) -> Result<Catalog<'_>> {
        Catalog::open(&self.objects, &self.live.manifest.catalog)
    }

    /// Whether what was opened is still true of a live generation that was resolved since: the same one, with every pack
    /// that was intact still there at its size.
    pub(crate) fn still_describes(&self, live: &Live) -> Result<bool> {
        if live.id != self.live.id {
            return Ok(false);
        }
        let found = generation::examine_packs(&live.dir, &live.manifest)?;
        let same = |(before, now): (&PackEntry, &PackEntry)| {
            before.state != PackState::Ok || now.state == PackState::Ok
        };
        Ok(self.packs.iter().zip(&found).all(same))
    }

    /// The BLAKE3 of the ids of the packs that are missing or damaged, for the stat cache (`docs/format.md` section 10).
    pub(crate) fn damage(&self) -> ObjectId {
        let mut ids = Vec::new();
        for pack in self.packs.iter().filter(|pack| pack.state != PackState::Ok) {
            ids.extend_from_slice(pack.id.as_bytes());
        }
        ObjectId::of(&ids)
    }

    /// Whether a pack is missing or damaged that the manifest still calls intact.
    pub(crate) fn has_unrecorded_damage(&self) -> bool {
        self.packs
            .iter()
            .zip(&self.live.manifest.packs)
            .any(|(found, recorded)| found.state != recorded.state)
    }

    /// Whether some pack is missing or has the wrong size.
    pub(crate) fn is_damaged(&self) -> bool {
        self.packs.iter().any(|pack| pack.state != PackState::Ok)
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.live.manifest
    }
}

/// Marks packs whose trailer or index is damaged; whether there were any.
fn mark_unusable(packs: &mut [PackEntry], objects: &PackSet) -> Result<bool> {
    let mut found = false;
    for at in 0..objects.len() {
        match objects.index(at) {
            Ok(_) => {}
            Err(Error::Damaged { .. }) => {
                let id = objects.pack_id(at).copied();
                for pack in packs.iter_mut().filter(|pack| Some(pack.id) == id) {
                    pack.state = PackState::Damaged;
                    found = true;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Whether nothing is left in a generation's directory.
fn is_emptied(root: &Root, id: &GenerationId) -> bool {
    root.sub(layout::GENERATIONS)
        .is_ok_and(|generations| !generation::holds_something(&generations, id))
}

/// Opens the intact packs of a directory, smallest first: recent metadata lives in small packs.
pub(crate) fn open_packs(dir: &Dir, packs: &[PackEntry], access: Access) -> PackSet {
    let mut intact: Vec<&PackEntry> = packs
        .iter()
        .filter(|pack| pack.state == PackState::Ok)
        .collect();
    intact.sort_by_key(|pack| (pack.bytes, pack.id));
    let may_map = access == Access::Mapped && dir.may_map();
    let files = intact
        .into_iter()
        .map(|entry| {
            (
                entry.id,
                Arc::new(StoredPack::new(dir, entry, may_map)) as Arc<dyn PackFile>,
            )
        })
        .collect();
    PackSet::new(dir.path(), files)
}

/// A pack in a directory, opened when it is first read.
pub(crate) struct StoredPack {
    dir: Dir,
    id: ObjectId,
    bytes: u64,
    may_map: bool,
    file: std::sync::OnceLock<File>,
}

impl StoredPack {
    pub(crate) fn new(dir: &Dir, entry: &PackEntry, may_map: bool) -> Self {
        Self {
            dir: dir.clone(),
            id: entry.id,
            bytes: entry.bytes,
            may_map,
            file: std::sync::OnceLock::new(),
        }
    }

    fn file(&self) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.dir.open_file(&layout::pack_name(&self.id))?;
        let facts = file.facts()?;
        if facts.kind != crate::disk::Kind::File || facts.bytes != self.bytes {
            return Err(Error::damaged(
                file.path(),
                None,
                format!("it is not a regular file of {} bytes", self.bytes),
            ));
        }
        Ok(self.file.get_or_init(|| file))
    }
}

impl PackFile for StoredPack {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let file = self.file()?;
        let filled = file.read_at(buffer, offset)?;
        if filled == buffer.len() {
            return Ok(());
        }
        Err(Error::damaged(
            file.path(),
            None,
            format!("it ends at byte {}", offset + filled as u64),
        ))
    }

    fn path(&self) -> PathBuf {
        self.dir.path_of(layout::pack_name(&self.id))
    }

    fn map(&self) -> Option<PackMap> {
        if self.may_map && self.bytes >= MAP_FROM_BYTES {
            map::map_sealed(self.file().ok()?, self.bytes)
        } else {
            None
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test makes its own work tree")]
mod tests {
    use std::path::PathBuf;

    use crate::id::GenerationId;
    use crate::{InitRequest, Store, StoreOptions};

    fn store() -> (tempfile::TempDir, GenerationId, Store, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let (path, source) = (place.path().join("store"), place.path().join("source"));
        std::fs::create_dir(&source).unwrap();
        let first = StoreOptions::new()
            .init(&path, InitRequest::default())
            .unwrap()
            .generation;
        let store = StoreOptions::new().threads(1).open(&path).unwrap();
        (place, first, store, source)
    }

    #[test]
    fn a_reclaimed_generation_is_absent_and_not_damaged() {
        let (_place, first, store, source) = store();
        for _ in 0..9 {
            assert!(store.view_generation(&first).is_ok());
            store.checkpoint(&source).force(true).run().unwrap();
        }
        // The last commit reclaimed it; only the next one takes it from the list of what is held.
        assert!(
            store
                .view()
                .unwrap()
                .manifest()
                .kept
                .iter()
                .any(|kept| kept.id == first)
        );
        assert_eq!(
            store.view_generation(&first).err().unwrap().code(),
            "generation_not_found"
        );
        assert_eq!(
            store.plan_undo(Some(&first), None).unwrap_err().code(),
            "undo_unavailable"
        );
    }

    #[test]
    fn pinned_generations_do_not_keep_those_behind_them() {
        let (_place, first, store, source) = store();
        let mut readers = vec![store.view_generation(&first).unwrap()];
        for _ in 0..20 {
            store.checkpoint(&source).force(true).run().unwrap();
            if readers.len() < 2 {
                readers.push(store.view().unwrap());
            }
        }
        let held = store.view().unwrap().manifest().kept.len();
        // The newest eight, those two, and what the last commit reclaimed.
        assert!((10..=12).contains(&held), "{held} generations are held");
        assert!(
            readers
                .iter()
                .all(|reader| store.view_generation(&reader.generation()).is_ok())
        );
    }
}
