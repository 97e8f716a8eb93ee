//! Reading objects from the packs of one generation.
//!
//! Invariants: no object leaves here that was not hashed and compared with its id; a look-up that failed is an error and
//! never "absent"; when one copy of an object cannot be used, the others are tried.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::format::pack::{BlockRow, MAX_BLOCK_BYTES, MAX_SMALL_BLOCK_BYTES, ObjectRow};
use crate::id::ObjectId;
use crate::objects::ObjectSource;
use crate::objects::block::BlockDecoder;
use crate::objects::cache::{BlockCache, CachedBlock};
use crate::objects::index::{Index, Location, PackFile, damaged, object_in, open_index};
use crate::objects::verify::{PackReport, Problem, verify_pack, verify_pack_quick};
use crate::{Error, Result};

/// How many bytes of decoded blocks are kept.
const CACHE_BYTES: usize = 16 << 20;
/// Larger blocks are not kept: they hold one object, which is rarely wanted twice.
const CACHED_BLOCK_BYTES: u32 = 512 << 10;
/// An object up to this size is worth keeping even when it fills its block.
const CACHED_OBJECT_BYTES: u32 = 64 << 10;
/// Decoders that wait for the next reader.
const IDLE_DECODERS: usize = 16;

struct Pack {
    id: ObjectId,
    file: Arc<dyn PackFile>,
    index: OnceLock<Index>,
}

/// The packs of one generation.
pub struct PackSet {
    place: PathBuf,
    packs: Vec<Pack>,
    cache: BlockCache,
    decoders: Mutex<Vec<BlockDecoder>>,
}

impl PackSet {
    /// The packs of the generation at `place`, those first in which objects are to be looked for first. Reads nothing yet.
    pub fn new(place: impl Into<PathBuf>, packs: Vec<(ObjectId, Arc<dyn PackFile>)>) -> Self {
        let pack = |(id, file)| Pack {
            id,
            file,
            index: OnceLock::new(),
        };
        Self {
            place: place.into(),
            packs: packs.into_iter().map(pack).collect(),
            cache: BlockCache::new(CACHE_BYTES),
            decoders: Mutex::default(),
        }
    }

    /// The generation's directory, for messages.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// How many packs there are.
    pub fn len(&self) -> usize {
        self.packs.len()
    }

    /// Whether there is no pack.
    pub fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }

    /// The id of a pack.
    pub fn pack_id(&self, pack: usize) -> Option<&ObjectId> {
        self.packs.get(pack).map(|pack| &pack.id)
    }

    /// The file of a pack.
    pub fn file(&self, pack: usize) -> Option<&Arc<dyn PackFile>> {
        self.packs.get(pack).map(|pack| &pack.file)
    }

    fn pack(&self, pack: usize) -> Result<&Pack> {
        self.packs
            .get(pack)
            .ok_or_else(|| Error::invalid("pack", format!("no pack number {pack}")))
    }

    /// The index of a pack, opened at the first use.
    ///
    /// # Errors
    /// If it cannot be read or is damaged. That is not remembered: the next call tries again.
    pub fn index(&self, pack: usize) -> Result<&Index> {
        let pack = self.pack(pack)?;
        if let Some(index) = pack.index.get() {
            return Ok(index);
        }
        let index = open_index(&*pack.file)?;
        Ok(pack.index.get_or_init(|| index))
    }

    fn find(&self, pack: usize, id: &ObjectId) -> Result<Option<Location>> {
        let found = self.index(pack)?.find(id);
        let found = found.map_err(|error| damaged(&*self.packs[pack].file, error))?;
        Ok(found.map(|row| Location {
            pack,
            block: row.block,
            offset: row.offset,
            length: row.length,
        }))
    }

    /// Where the first copy of an object is.
    ///
    /// # Errors
    /// If it was not found and one of the packs could not be searched.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<Location>> {
        let mut failure = None;
        for pack in 0..self.packs.len() {
            match self.find(pack, id) {
                Ok(Some(location)) => return Ok(Some(location)),
                Ok(None) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// Where all copies of an object are, as far as the packs can be searched.
    pub fn copies(&self, id: &ObjectId) -> Vec<Location> {
        (0..self.packs.len())
            .filter_map(|pack| self.find(pack, id).ok().flatten())
            .collect()
    }

    /// How many blocks a pack has.
    ///
    /// # Errors
    /// If its index cannot be used.
    pub fn block_count(&self, pack: usize) -> Result<u32> {
        Ok(self.index(pack)?.block_count())
    }

    /// The block table row of a block.
    ///
    /// # Errors
    /// If the pack's index cannot be used, or has no such block.
    pub fn block_row(&self, pack: usize, block: u32) -> Result<BlockRow> {
        let row = self.index(pack)?.block(block);
        row.map_err(|error| damaged(&*self.packs[pack].file, error))
    }

    /// All objects of a pack, in the order in which they lie in the file: block by block.
    ///
    /// # Errors
    /// If the pack's index cannot be used.
    pub fn objects(&self, pack: usize) -> Result<Vec<ObjectRow>> {
        let index = self.index(pack)?;
        let rows = index
            .positions_by_block()
            .into_iter()
            .map(|position| index.object(position));
        let rows: std::result::Result<Vec<_>, _> = rows.collect();
        rows.map_err(|error| damaged(&*self.packs[pack].file, error))
    }

    /// The content of a block, not compared with anything: pass each object of it through [`Self::check_object`].
    ///
    /// # Errors
    /// If the block cannot be read or does not decode.
    pub fn read_block(&self, pack: usize, block: u32) -> Result<Arc<[u8]>> {
        let row = self.block_row(pack, block)?;
        if row.raw_length > CACHED_BLOCK_BYTES {
            return self.decode_block(pack, block, &row);
        }
        Ok(Arc::clone(&self.cached_block(pack, block, &row)?.bytes))
    }

    /// Compares an object of a block that [`Self::read_block`] returned with its id, and returns its bytes.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they are others.
    pub fn check_object<'b>(
        &self,
        block: &'b [u8],
        location: &Location,
        id: &ObjectId,
    ) -> Result<&'b [u8]> {
        object_in(block, location, id, &*self.pack(location.pack)?.file)
    }

    /// Checks a whole pack: its name, its index, every block and every object. Reads the file once, a block at a time.
    ///
    /// # Errors
    /// Only if there is no such pack; whatever is wrong with it goes to `on_problem`.
    pub fn verify_pack(
        &self,
        pack: usize,
        on_problem: &mut dyn FnMut(Problem),
    ) -> Result<PackReport> {
        let pack = self.pack(pack)?;
        Ok(verify_pack(&pack.id, &*pack.file, on_problem))
    }

    /// Checks a pack's length, trailer and index, and no content.
    ///
    /// # Errors
    /// Only if there is no such pack.
    pub fn verify_pack_quick(
        &self,
        pack: usize,
        on_problem: &mut dyn FnMut(Problem),
    ) -> Result<PackReport> {
        let pack = self.pack(pack)?;
        Ok(verify_pack_quick(&pack.id, &*pack.file, on_problem))
    }

    fn cached_block(&self, pack: usize, block: u32, row: &BlockRow) -> Result<Arc<CachedBlock>> {
        if let Some(cached) = self.cache.get(pack, block) {
            return Ok(cached);
        }
        let bytes = self.decode_block(pack, block, row)?;
        Ok(self.cache.put(pack, block, bytes))
    }

    fn decode_block(&self, pack: usize, block: u32, row: &BlockRow) -> Result<Arc<[u8]>> {
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, row.raw_length as usize).collect();
        let raw = Arc::get_mut(&mut bytes).expect("BUG: nobody else has the new block");
        self.decode_into(pack, block, row, raw)?;
        Ok(bytes)
    }

    fn decode_into(&self, pack: usize, block: u32, row: &BlockRow, raw: &mut [u8]) -> Result<()> {
        let file = &*self.pack(pack)?.file;
        let idle = self.idle().pop();
        let mut decoder = match idle {
            Some(decoder) => decoder,
            None => BlockDecoder::new().map_err(|error| Error::io("decode", file.path(), error))?,
        };
        let result = decoder.read(file, block, row, raw);
        let mut idle = self.idle();
        if idle.len() < IDLE_DECODERS {
            idle.push(decoder);
        }
        result
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<BlockDecoder>> {
        self.decoders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one copy of an object.
    ///
    /// # Errors
    /// If this copy cannot be used; there may be others ([`Self::copies`], or [`ObjectSource::get`], which tries all).
    pub fn read_copy(&self, location: &Location, id: &ObjectId, limit: usize) -> Result<Vec<u8>> {
        let file = &*self.pack(location.pack)?.file;
        let row = self.block_row(location.pack, location.block)?;
        check_limits(location, &row, limit)
            .map_err(|problem| Error::damaged(file.path(), Some(*id), problem))?;
        let whole = location.offset == 0 && location.length == row.raw_length;
        if whole && location.length > CACHED_OBJECT_BYTES {
            let mut bytes = vec![0; row.raw_length as usize];
            self.decode_into(location.pack, location.block, &row, &mut bytes)?;
            object_in(&bytes, location, id, file)?;
            return Ok(bytes);
        }
        if row.raw_length > CACHED_BLOCK_BYTES {
            let block = self.decode_block(location.pack, location.block, &row)?;
            return object_in(&block, location, id, file).map(<[u8]>::to_vec);
        }
        let block = self.cached_block(location.pack, location.block, &row)?;
        if block.is_checked(id, location) {
            let start = location.offset as usize;
            if let Some(bytes) = block.bytes.get(start..start + location.length as usize) {
                return Ok(bytes.to_vec());
            }
        }
        let bytes = object_in(&block.bytes, location, id, file)?.to_vec();
        block.set_checked(id, location);
        Ok(bytes)
    }
}

/// What may be read for a caller who wants at most `limit` bytes, before anything is allocated.
fn check_limits(location: &Location, row: &BlockRow, limit: usize) -> Result<(), String> {
    if location.length as usize > limit {
        return Err(format!(
            "object of {} bytes where at most {limit} are allowed",
            location.length
        ));
    }
    let block_limit = if limit <= MAX_SMALL_BLOCK_BYTES as usize {
        MAX_SMALL_BLOCK_BYTES
    } else {
        MAX_BLOCK_BYTES
    };
    if row.raw_length > block_limit {
        return Err(format!(
            "a block of {} bytes for an object of this kind",
            row.raw_length
        ));
    }
    match location.offset.checked_add(location.length) {
        Some(end) if end <= row.raw_length => Ok(()),
        _ => Err("the object lies outside of its block".to_owned()),
    }
}

impl ObjectSource for PackSet {
    fn get(&self, id: &ObjectId, limit: usize) -> Result<Vec<u8>> {
        let mut failure = None;
        for pack in 0..self.packs.len() {
            let read = self.find(pack, id).and_then(|location| {
                location
                    .map(|location| self.read_copy(&location, id, limit))
                    .transpose()
            });
            match read {
                Ok(Some(bytes)) => return Ok(bytes),
                Ok(None) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| Error::ObjectMissing {
            object: *id,
            needed: None,
            place: self.place.clone(),
        }))
    }

    fn contains(&self, id: &ObjectId) -> Result<bool> {
        self.locate(id).map(|location| location.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::{MemoryFile, MemoryPack, noise};
    use crate::objects::writer::PackWriter;
    use crate::objects::{Class, ObjectSink};

    #[test]
    fn readers_and_writers_are_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<PackSet>();
        shared::<PackWriter<'static, MemoryFile>>();
    }

    fn set(objects: &[Vec<u8>], mapped: bool) -> PackSet {
        let new_file = Box::new(|| Ok(MemoryFile::new()));
        let writer = PackWriter::new(Box::new(|_| Ok(false)), new_file, u64::MAX);
        for object in objects {
            writer.put(object, Class::Chunk).unwrap();
        }
        let pack = writer.seal().unwrap().pop().unwrap();
        let file = MemoryPack {
            mapped,
            ..MemoryPack::new(pack.file.bytes)
        };
        PackSet::new("gen", vec![(pack.id, Arc::new(file) as Arc<dyn PackFile>)])
    }

    #[test]
    fn objects_are_read_through_a_map_and_without() {
        let objects: Vec<_> = (0..200usize)
            .map(|n| noise(n as u64, 100 + 4000 * (n % 60)))
            .collect();
        for mapped in [false, true] {
            let set = set(&objects, mapped);
            assert_eq!(set.index(0).unwrap().object_count(), 200);
            for _ in 0..2 {
                for object in &objects {
                    assert!(set.get(&ObjectId::of(object), 1 << 20).unwrap() == *object);
                }
            }
            for row in set.objects(0).unwrap() {
                let block = set.read_block(0, row.block).unwrap();
                let location = set.locate(&row.id).unwrap().unwrap();
                assert_eq!(set.copies(&row.id), [location]);
                let bytes = set.check_object(&block, &location, &row.id).unwrap();
                assert_eq!(row.slice(&block), Some(bytes));
                let other = ObjectId::of(b"other");
                assert_eq!(
                    set.check_object(&block, &location, &other)
                        .unwrap_err()
                        .code(),
                    "damaged"
                );
            }
        }
    }

    #[test]
    fn absence_and_limits_have_their_own_errors() {
        let object = noise(1, 5000);
        let set = set(std::slice::from_ref(&object), false);
        let id = ObjectId::of(&object);
        assert_eq!(
            set.get(&ObjectId::of(b"no"), 10).unwrap_err().code(),
            "object_missing"
        );
        assert_eq!(set.get(&id, 4999).unwrap_err().code(), "damaged");
        assert_eq!(set.get(&id, 5000).unwrap(), object);
        assert!(
            set.index(1).is_err() && set.block_row(0, 1).is_err() && set.read_block(0, 9).is_err()
        );
    }

    #[test]
    fn a_place_made_up_by_the_caller_gives_an_error_even_when_the_block_is_cached() {
        let objects = [noise(1, 500), noise(2, 500)];
        let set = set(&objects, false);
        let id = ObjectId::of(&objects[0]);
        set.get(&id, 500).unwrap();
        let right = set.locate(&id).unwrap().unwrap();
        for (offset, length) in [
            (right.offset + 1, 500),
            (0, u32::MAX),
            (u32::MAX, 1),
            (900, 101),
        ] {
            let made_up = Location {
                offset,
                length,
                ..right
            };
            assert_eq!(
                set.read_copy(&made_up, &id, 1 << 20).unwrap_err().code(),
                "damaged"
            );
        }
    }

    #[test]
    fn an_index_that_could_not_be_read_is_read_again() {
        struct Flaky(MemoryPack, std::sync::atomic::AtomicBool);
        impl PackFile for Flaky {
            fn len(&self) -> u64 {
                self.0.len()
            }
            fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
                if self.1.swap(false, std::sync::atomic::Ordering::Relaxed) {
                    return Err(Error::io(
                        "read",
                        self.path(),
                        std::io::Error::from_raw_os_error(5),
                    ));
                }
                self.0.read_exact_at(buffer, offset)
            }
            fn path(&self) -> PathBuf {
                self.0.path()
            }
        }
        let object = noise(1, 10);
        let steady = set(std::slice::from_ref(&object), false);
        let mut bytes = vec![0; usize::try_from(steady.file(0).unwrap().len()).unwrap()];
        steady
            .file(0)
            .unwrap()
            .read_exact_at(&mut bytes, 0)
            .unwrap();
        let flaky = Flaky(MemoryPack::new(bytes), true.into());
        let set = PackSet::new(
            "gen",
            vec![(*steady.pack_id(0).unwrap(), Arc::new(flaky) as _)],
        );
        let id = ObjectId::of(&object);
        assert_eq!(set.contains(&id).unwrap_err().code(), "io");
        assert!(set.contains(&id).unwrap());
    }
}
