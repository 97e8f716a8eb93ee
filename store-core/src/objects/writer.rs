//! Writing new objects into packs, from several threads.
//!
//! Invariants: an object is written once per writer; hashing and compressing happen in the calling thread, and the lock
//! on the file is held only to append; after a failed append nothing can be sealed; a pack is sealed only if every object
//! that was accepted is in it. Published by nobody here: sealed files are handed back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::format::content::MAX_CHUNK_BYTES;
use crate::format::pack::{
    BlockRow, Codec, MAX_BLOCK_BYTES, MAX_BLOCKS, MAX_OBJECTS, ObjectRow, encode_header,
    encode_tail,
};
use crate::id::ObjectId;
use crate::objects::block::BlockEncoder;
use crate::objects::{Class, ObjectSink};
use crate::{Error, Result};

/// How many threads can collect objects at the same time without waiting for each other.
const SLOTS: usize = 16;
/// How many parts the table of ids has, each with its own lock.
const SHARDS: usize = 64;
const CLASSES: [Class; 3] = [Class::Chunk, Class::Tree, Class::Catalog];

/// A pack that is being written: a temporary file, appended to from its beginning.
pub trait PackSinkFile: Send {
    /// Appends all of the bytes.
    ///
    /// # Errors
    /// If they could not all be written. The file is of no use any more.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
}

/// A complete pack in its temporary file: not synced, not under its name.
#[derive(Debug)]
#[must_use = "a sealed pack is lost unless it is moved to its name"]
pub struct SealedPack<F> {
    /// The hash of the whole file, which is its name.
    pub id: ObjectId,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// How many objects it holds.
    pub objects: u64,
    /// The file.
    pub file: F,
}

/// How long a pack may become in a generation of so many packs, in bytes: 256 MiB, doubled with every 8 packs.
pub const fn pack_size_limit(packs: usize) -> u64 {
    let doublings = if packs / 8 > 20 { 20 } else { packs / 8 };
    (256 << 20) << doublings
}

/// Says whether the base state has an object already.
pub type Known<'a> = Box<dyn Fn(&ObjectId) -> Result<bool> + Send + Sync + 'a>;
/// Begins a new temporary file.
pub type NewFile<'a, F> = Box<dyn FnMut() -> Result<F> + Send + 'a>;

/// Collects new objects in packs.
pub struct PackWriter<'a, F> {
    known: Known<'a>,
    slots: Vec<Mutex<Slot>>,
    ids: IdTable,
    output: Mutex<Output<'a, F>>,
    /// Raw bytes in open blocks.
    open_bytes: AtomicU64,
    /// Bytes appended to files.
    written_bytes: AtomicU64,
}

impl<'a, F: PackSinkFile> PackWriter<'a, F> {
    /// A writer that asks `known` before it stores an object, and `new_file` when it needs a file: the first time, and
    /// whenever the last one has reached `limit` bytes.
    pub fn new(known: Known<'a>, new_file: NewFile<'a, F>, limit: u64) -> Self {
        Self {
            known,
            slots: (0..SLOTS).map(|_| Mutex::default()).collect(),
            ids: IdTable::new(),
            output: Mutex::new(Output::new(new_file, limit)),
            open_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// How many objects were accepted that the base state lacks.
    pub fn new_objects(&self) -> u64 {
        self.ids.new.load(Ordering::Relaxed)
    }

    /// How many bytes of packs there are so far: what was written, and open blocks at their raw length.
    pub fn prepared_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed) + self.open_bytes.load(Ordering::Relaxed)
    }

    /// The objects that were put and not stored, because the base state has them; sorted.
    pub fn relied(&self) -> Vec<ObjectId> {
        self.ids.relied()
    }

    /// Whether this writer's packs hold (or will hold) the object.
    pub fn holds(&self, id: &ObjectId) -> bool {
        self.ids.state(id) == Some(Held::New)
    }

    /// Stores an object even if the base state has it; then it is no longer among [`Self::relied`].
    ///
    /// # Errors
    /// As [`ObjectSink::put`].
    pub fn put_always(&self, bytes: &[u8], class: Class) -> Result<ObjectId> {
        check_length(bytes, class)?;
        let id = ObjectId::of(bytes);
        self.store(id, bytes, class)?;
        Ok(id)
    }

    fn store(&self, id: ObjectId, bytes: &[u8], class: Class) -> Result<()> {
        if !self.ids.claim(id) {
            return Ok(());
        }
        let added = self.add(id, bytes, class);
        added.inspect_err(|error| self.output().fail(error))
    }

    fn add(&self, id: ObjectId, bytes: &[u8], class: Class) -> Result<()> {
        let mut slot = self.slot();
        let slot = &mut *slot;
        let target = block_target(class);
        if bytes.len() >= target / 2 {
            return self.write_block(&mut slot.encoder, bytes, &[(id, 0, length_of(bytes))]);
        }
        let open = &mut slot.open[class as usize];
        if open.bytes.len() + bytes.len() > target {
            self.write_open(&mut slot.encoder, open)?;
        }
        open.push(id, bytes);
        self.open_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Any slot that nobody uses, the thread's own first, so that neighbours in a tree are neighbours in a block.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        let own = rayon::current_thread_index().unwrap_or(0) % SLOTS;
        for turn in 0..SLOTS {
            match self.slots[(own + turn) % SLOTS].try_lock() {
                Ok(slot) => return slot,
                Err(TryLockError::Poisoned(slot)) => return slot.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        lock(&self.slots[own])
    }

    fn output(&self) -> MutexGuard<'_, Output<'a, F>> {
        lock(&self.output)
    }

    fn write_open(&self, encoder: &mut Option<BlockEncoder>, open: &mut OpenBlock) -> Result<()> {
        if open.objects.is_empty() {
            return Ok(());
        }
        let written = self.write_block(encoder, &open.bytes, &open.objects);
        self.open_bytes
            .fetch_sub(open.bytes.len() as u64, Ordering::Relaxed);
        open.bytes.clear();
        open.objects.clear();
        written
    }

    fn write_block(
        &self,
        encoder: &mut Option<BlockEncoder>,
        raw: &[u8],
        objects: &[Placed],
    ) -> Result<()> {
        let failed = |error| Error::io("compress", "a block of a pack", error);
        let encoder = match encoder {
            Some(encoder) => encoder,
            None => encoder.insert(BlockEncoder::new().map_err(failed)?),
        };
        let (codec, stored) = encoder.encode(raw).map_err(failed)?;
        let block = NewBlock {
            codec,
            stored,
            raw_length: length_of(raw),
        };
        self.append(&block, objects)
    }

    fn append(&self, block: &NewBlock<'_>, objects: &[Placed]) -> Result<()> {
        let written = self.output().append(block, objects)?;
        self.written_bytes.fetch_add(written, Ordering::Relaxed);
        Ok(())
    }

    /// Copies a stored block as it is, with those of its objects that this writer does not hold yet; `objects` are rows
    /// of the pack it comes from. Returns how many bytes were written.
    ///
    /// The caller has checked the stored bytes.
    pub(crate) fn copy_block(
        &self,
        row: &BlockRow,
        stored: &[u8],
        objects: &[ObjectRow],
    ) -> Result<u64> {
        let wanted = objects.iter().filter(|object| self.ids.claim(object.id));
        let placed: Vec<Placed> = wanted
            .map(|object| (object.id, object.offset, object.length))
            .collect();
        if placed.is_empty() {
            return Ok(0);
        }
        let block = NewBlock {
            codec: row.codec,
            stored,
            raw_length: row.raw_length,
        };
        self.append(&block, &placed)?;
        Ok(stored.len() as u64)
    }

    /// Writes out every open block, those of all threads together, so that few are left half full.
    ///
    /// # Errors
    /// As [`ObjectSink::put`].
    pub fn flush(&self) -> Result<()> {
        let mut encoder = None;
        for class in CLASSES {
            let mut gathered = OpenBlock::default();
            for slot in &self.slots {
                let open = std::mem::take(&mut lock(slot).open[class as usize]);
                if gathered.bytes.len() + open.bytes.len() > block_target(class) {
                    self.flush_open(&mut encoder, &mut gathered)?;
                }
                gathered.append(open);
            }
            self.flush_open(&mut encoder, &mut gathered)?;
        }
        Ok(())
    }

    fn flush_open(&self, encoder: &mut Option<BlockEncoder>, open: &mut OpenBlock) -> Result<()> {
        self.write_open(encoder, open)
            .inspect_err(|error| self.output().fail(error))
    }

    /// Completes the packs and hands their files back, none if nothing was put.
    ///
    /// # Errors
    /// If anything could not be written, now or earlier. Then no pack is complete, and the files were dropped.
    pub fn seal(self) -> Result<Vec<SealedPack<F>>> {
        self.flush()?;
        let accepted = self.new_objects();
        let output = self
            .output
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let sealed = output.seal()?;
        let written: u64 = sealed.iter().map(|pack| pack.objects).sum();
        if written != accepted {
            let lost = std::io::Error::other(format!("{written} of {accepted} objects are there"));
            return Err(Error::io("seal", "a pack", lost));
        }
        Ok(sealed)
    }
}

impl<F: PackSinkFile> ObjectSink for PackWriter<'_, F> {
    fn put(&self, bytes: &[u8], class: Class) -> Result<ObjectId> {
        check_length(bytes, class)?;
        let id = ObjectId::of(bytes);
        if self.ids.state(&id).is_some() {
            return Ok(id);
        }
        if (self.known)(&id)? {
            self.ids.rely(id);
            return Ok(id);
        }
        self.store(id, bytes, class)?;
        Ok(id)
    }
}

fn check_length(bytes: &[u8], class: Class) -> Result<()> {
    let limit = match class {
        Class::Chunk => MAX_CHUNK_BYTES,
        Class::Tree | Class::Catalog => MAX_BLOCK_BYTES as usize,
    };
    if bytes.len() > limit {
        let problem = format!("{} bytes, where the format allows {limit}", bytes.len());
        return Err(Error::invalid("object", problem));
    }
    Ok(())
}

/// How long a block of small objects may become, in bytes. An object of half of that has a block of its own.
const fn block_target(class: Class) -> usize {
    match class {
        Class::Chunk => 256 << 10,
        Class::Tree => 128 << 10,
        Class::Catalog => 64 << 10,
    }
}

fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("BUG: an object over the limit was let in")
}

/// A panic of another thread can lose objects, which the count in `seal` then shows; it cannot break these values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An object and its place in a raw block: offset and length.
type Placed = (ObjectId, u32, u32);

/// What one thread at a time collects.
#[derive(Default)]
struct Slot {
    encoder: Option<BlockEncoder>,
    open: [OpenBlock; CLASSES.len()],
}

#[derive(Default)]
struct OpenBlock {
    bytes: Vec<u8>,
    objects: Vec<Placed>,
}

impl OpenBlock {
    fn push(&mut self, id: ObjectId, bytes: &[u8]) {
        self.objects
            .push((id, length_of(&self.bytes), length_of(bytes)));
        self.bytes.extend_from_slice(bytes);
    }

    fn append(&mut self, other: Self) {
        if self.objects.is_empty() {
            *self = other;
            return;
        }
        let base = length_of(&self.bytes);
        let moved = other
            .objects
            .iter()
            .map(|(id, offset, length)| (*id, base + offset, *length));
        self.objects.extend(moved);
        self.bytes.extend_from_slice(&other.bytes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// In this writer's packs.
    New,
    /// In the base state.
    Relied,
}

/// Every id that was put.
struct IdTable {
    shards: Vec<Mutex<HashMap<ObjectId, Held>>>,
    new: AtomicU64,
}

impl IdTable {
    fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            new: AtomicU64::new(0),
        }
    }

    fn shard(&self, id: &ObjectId) -> MutexGuard<'_, HashMap<ObjectId, Held>> {
        lock(&self.shards[usize::from(id.as_bytes()[0]) % SHARDS])
    }

    fn state(&self, id: &ObjectId) -> Option<Held> {
        self.shard(id).get(id).copied()
    }

    fn rely(&self, id: ObjectId) {
        self.shard(&id).entry(id).or_insert(Held::Relied);
    }

    /// Whether the caller is the one who has to store it.
    fn claim(&self, id: ObjectId) -> bool {
        match self.shard(&id).entry(id) {
            Entry::Occupied(held) if *held.get() == Held::New => return false,
            Entry::Occupied(mut held) => {
                held.insert(Held::New);
            }
            Entry::Vacant(free) => {
                free.insert(Held::New);
            }
        }
        self.new.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn relied(&self) -> Vec<ObjectId> {
        let mut ids = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            ids.extend(
                shard
                    .iter()
                    .filter(|(_, held)| **held == Held::Relied)
                    .map(|(id, _)| *id),
            );
        }
        ids.sort_unstable();
        ids
    }
}

struct NewBlock<'b> {
    codec: Codec,
    stored: &'b [u8],
    raw_length: u32,
}

/// The files: those that are complete and the one that is open.
struct Output<'a, F> {
    new_file: NewFile<'a, F>,
    limit: u64,
    open: Option<OpenPack<F>>,
    sealed: Vec<SealedPack<F>>,
    failure: Option<Failure>,
}

struct OpenPack<F> {
    file: F,
    hasher: blake3::Hasher,
    length: u64,
    blocks: Vec<BlockRow>,
    objects: Vec<ObjectRow>,
}

impl<'a, F: PackSinkFile> Output<'a, F> {
    fn new(new_file: NewFile<'a, F>, limit: u64) -> Self {
        Self {
            new_file,
            limit,
            open: None,
            sealed: Vec::new(),
            failure: None,
        }
    }

    fn fail(&mut self, error: &Error) {
        self.failure.get_or_insert_with(|| Failure::of(error));
        self.open = None;
        self.sealed.clear();
    }

    /// Appends a block, beginning and completing files as needed; returns how many bytes were written.
    fn append(&mut self, block: &NewBlock<'_>, objects: &[Placed]) -> Result<u64> {
        if let Some(failure) = &self.failure {
            return Err(failure.again());
        }
        self.append_now(block, objects)
            .inspect_err(|error| self.fail(error))
    }

    fn append_now(&mut self, block: &NewBlock<'_>, objects: &[Placed]) -> Result<u64> {
        // Taken out while it is written to, so that not even a panic leaves half a block in it.
        let mut pack = match self.open.take() {
            Some(pack) => pack,
            None => OpenPack::begin((self.new_file)()?)?,
        };
        let before = pack.length;
        pack.append(block, objects)?;
        let written = pack.length - before;
        if pack.is_full(self.limit) {
            self.sealed.push(pack.seal()?);
        } else {
            self.open = Some(pack);
        }
        Ok(written)
    }

    fn seal(mut self) -> Result<Vec<SealedPack<F>>> {
        if let Some(failure) = &self.failure {
            return Err(failure.again());
        }
        if let Some(pack) = self.open.take() {
            self.sealed.push(pack.seal()?);
        }
        Ok(self.sealed)
    }
}

impl<F: PackSinkFile> OpenPack<F> {
    fn begin(file: F) -> Result<Self> {
        let hasher = blake3::Hasher::new();
        let mut pack = Self {
            file,
            hasher,
            length: 0,
            blocks: Vec::new(),
            objects: Vec::new(),
        };
        pack.write(&encode_header())?;
        Ok(pack)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn append(&mut self, block: &NewBlock<'_>, objects: &[Placed]) -> Result<()> {
        let number = u32::try_from(self.blocks.len()).expect("BUG: a full pack was not sealed");
        let row = BlockRow {
            offset: self.length,
            stored_length: length_of(block.stored),
            raw_length: block.raw_length,
            codec: block.codec,
        };
        self.write(block.stored)?;
        self.blocks.push(row);
        let rows = objects.iter().map(|&(id, offset, length)| ObjectRow {
            id,
            block: number,
            offset,
            length,
        });
        self.objects.extend(rows);
        Ok(())
    }

    /// Half the format's limits leave room for any one block.
    fn is_full(&self, limit: u64) -> bool {
        self.length >= limit
            || self.blocks.len() >= MAX_BLOCKS as usize / 2
            || self.objects.len() >= MAX_OBJECTS as usize / 2
    }

    fn seal(mut self) -> Result<SealedPack<F>> {
        self.objects.sort_unstable_by_key(|row| row.id);
        let tail = encode_tail(self.length, &self.blocks, &self.objects);
        self.write(&tail)?;
        Ok(SealedPack {
            id: self.hasher.finalize().into(),
            bytes: self.length,
            objects: self.objects.len() as u64,
            file: self.file,
        })
    }
}

/// The first failure, kept so that everybody after it gets the same answer.
enum Failure {
    Io {
        op: &'static str,
        path: std::path::PathBuf,
        code: Option<i32>,
        text: String,
    },
    Cancelled {
        code: &'static str,
        reason: String,
    },
}

impl Failure {
    fn of(error: &Error) -> Self {
        match error {
            Error::Io { op, path, source } => Self::Io {
                op,
                path: path.clone(),
                code: source.raw_os_error(),
                text: source.to_string(),
            },
            Error::Cancelled { code, reason } => Self::Cancelled {
                code,
                reason: reason.clone(),
            },
            other => Self::Io {
                op: "write",
                path: "a pack".into(),
                code: None,
                text: other.to_string(),
            },
        }
    }

    fn again(&self) -> Error {
        match self {
            Self::Io {
                op,
                path,
                code,
                text,
            } => {
                let source = match code {
                    Some(code) => std::io::Error::from_raw_os_error(*code),
                    None => std::io::Error::other(text.clone()),
                };
                Error::io(op, path, source)
            }
            Self::Cancelled { code, reason } => Error::Cancelled {
                code,
                reason: reason.clone(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::ErrorKind;
    use crate::objects::ObjectSource;
    use crate::objects::index::PackFile;
    use crate::objects::reader::PackSet;
    use crate::objects::testing::{MemoryFile, MemoryPack, Random, noise};

    fn writer(limit: u64) -> PackWriter<'static, MemoryFile> {
        PackWriter::new(
            Box::new(|_| Ok(false)),
            Box::new(|| Ok(MemoryFile::new())),
            limit,
        )
    }

    fn open(packs: Vec<SealedPack<MemoryFile>>) -> PackSet {
        let pack = |pack: SealedPack<MemoryFile>| {
            assert_eq!(pack.id, ObjectId::of(&pack.file.bytes));
            assert_eq!(pack.bytes, pack.file.bytes.len() as u64);
            (
                pack.id,
                Arc::new(MemoryPack::new(pack.file.bytes)) as Arc<dyn PackFile>,
            )
        };
        PackSet::new("memory", packs.into_iter().map(pack).collect())
    }

    /// Objects of all classes and sizes, compressible and not, some of them equal.
    fn objects(seed: u64, count: usize) -> Vec<(Vec<u8>, Class)> {
        let mut random = Random(seed);
        let object = |_| {
            let class = CLASSES[random.size(3)];
            let scale = random.below(8);
            let length = random.size(10 << (2 * scale));
            let bytes = match random.below(3) {
                0 => noise(random.below(1 << 40), length),
                1 => vec![b'x'; length],
                _ => (0..length).map(|at| b"lorem ipsum "[at % 12]).collect(),
            };
            (bytes, class)
        };
        (0..count).map(object).collect()
    }

    #[test]
    fn objects_put_from_four_threads_are_all_read_back() {
        for (seed, limit) in [(1, u64::MAX), (2, 300_000), (3, 1)] {
            let objects = objects(seed, 400);
            let writer = writer(limit);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (objects, writer) = (&objects, &writer);
                    // Each object is put by two threads.
                    let mine = objects
                        .iter()
                        .enumerate()
                        .filter(move |(n, _)| n % 2 == thread % 2);
                    scope.spawn(move || {
                        for (_, (bytes, class)) in mine {
                            assert_eq!(writer.put(bytes, *class).unwrap(), ObjectId::of(bytes));
                        }
                    });
                }
            });
            let mut ids: Vec<_> = objects
                .iter()
                .map(|(bytes, _)| ObjectId::of(bytes))
                .collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(writer.new_objects(), ids.len() as u64);
            let sealed = writer.seal().unwrap();
            assert_eq!(sealed.len() > 1, limit != u64::MAX);
            let set = open(sealed);
            for (bytes, _) in &objects {
                assert!(set.get(&ObjectId::of(bytes), 1 << 26).unwrap() == *bytes);
            }
            let mut good = 0;
            for pack in 0..set.len() {
                good += set
                    .verify_pack(pack, &mut |problem| panic!("{problem:?}"))
                    .unwrap()
                    .good;
            }
            assert_eq!(good, ids.len() as u64);
        }
    }

    #[test]
    fn small_objects_share_blocks_of_their_class_and_large_ones_stand_alone() {
        let writer = writer(u64::MAX);
        let mut of_class = [Vec::new(), Vec::new(), Vec::new()];
        for n in 0..300 {
            let class = CLASSES[n % 3];
            let bytes = noise(n as u64, 1000);
            of_class[class as usize].push(writer.put(&bytes, class).unwrap());
        }
        let large = writer.put(&noise(1000, 128 << 10), Class::Chunk).unwrap();
        let prepared = writer.prepared_bytes();
        assert_eq!(prepared, 300 * 1000 + (128 << 10));
        writer.flush().unwrap();
        assert_eq!(writer.prepared_bytes(), prepared, "noise does not shrink");
        let set = open(writer.seal().unwrap());
        // 100 kB of chunks and of trees are one block each, of the catalog two; and the large chunk.
        assert_eq!(set.block_count(0).unwrap(), 5);
        let blocks = |ids: &[ObjectId]| {
            let locate = |id| set.locate(id).unwrap().unwrap().block;
            ids.iter()
                .map(locate)
                .collect::<std::collections::BTreeSet<_>>()
        };
        let [chunks, trees, catalog] = of_class.map(|ids| blocks(&ids));
        assert!(chunks.is_disjoint(&trees) && trees.is_disjoint(&catalog));
        assert_eq!((chunks.len(), trees.len(), catalog.len()), (1, 1, 2));
        let alone = blocks(&[large]).pop_first().unwrap();
        assert_eq!(
            set.objects(0)
                .unwrap()
                .iter()
                .filter(|row| row.block == alone)
                .count(),
            1
        );
    }

    #[test]
    fn open_blocks_of_many_threads_are_written_together() {
        let writer = writer(u64::MAX);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(8)
            .build()
            .unwrap();
        pool.broadcast(|thread| {
            writer
                .put(&noise(thread.index() as u64, 100), Class::Tree)
                .unwrap();
        });
        let set = open(writer.seal().unwrap());
        assert_eq!(set.block_count(0).unwrap(), 1);
        assert_eq!(set.objects(0).unwrap().len(), 8);
    }

    #[test]
    fn what_the_base_has_is_relied_on_and_not_written_unless_asked_to() {
        let base = [ObjectId::of(b"one"), ObjectId::of(b"two")];
        let known = move |id: &ObjectId| Ok(base.contains(id));
        let file = Box::new(|| Ok(MemoryFile::new()));
        let writer = PackWriter::new(Box::new(known), file, u64::MAX);
        for bytes in [b"one".as_slice(), b"two", b"one", b"new"] {
            writer.put(bytes, Class::Catalog).unwrap();
        }
        let mut relied = base.to_vec();
        relied.sort_unstable();
        assert_eq!((writer.relied(), writer.new_objects()), (relied, 1));
        assert!(writer.holds(&ObjectId::of(b"new")) && !writer.holds(&base[0]));
        writer.put_always(b"one", Class::Catalog).unwrap();
        writer.put_always(b"one", Class::Catalog).unwrap();
        assert_eq!((writer.relied(), writer.new_objects()), (vec![base[1]], 2));
        let set = open(writer.seal().unwrap());
        assert!(set.contains(&base[0]).unwrap() && !set.contains(&base[1]).unwrap());
    }

    #[test]
    fn nothing_put_makes_no_file() {
        let made = AtomicUsize::new(0);
        let new_file = || {
            made.fetch_add(1, Ordering::Relaxed);
            Ok(MemoryFile::new())
        };
        let writer = PackWriter::new(Box::new(|_| Ok(true)), Box::new(new_file), 1);
        writer.put(b"there already", Class::Chunk).unwrap();
        assert_eq!(writer.seal().unwrap().len(), 0);
        assert_eq!(made.into_inner(), 0);
    }

    #[test]
    fn after_a_failed_append_nothing_can_be_put_or_sealed() {
        for room in [0, 10, 16, 5_000, 200_000, 450_000, 500_000] {
            let new_file = Box::new(move || {
                Ok(MemoryFile {
                    bytes: Vec::new(),
                    room,
                })
            });
            let writer = PackWriter::new(Box::new(|_| Ok(false)), new_file, 150_000);
            let put = (0..100).try_for_each(|n| {
                let length = if n % 10 == 0 { 140_000 } else { 1_000 };
                writer.put(&noise(n, length), Class::Chunk).map(|_| ())
            });
            if put.is_err() {
                // Even with room again (a new file), the objects that were lost are not forgotten.
                let again = writer.put(&noise(1000, 200_000), Class::Chunk).unwrap_err();
                assert_eq!(again.code(), "disk_full");
            }
            let sealed = writer.seal();
            assert_eq!(sealed.is_ok(), room >= 450_000, "room for {room} bytes");
            if let Err(error) = sealed {
                assert_eq!(
                    (error.code(), error.kind()),
                    ("disk_full", ErrorKind::Failed)
                );
            }
        }
    }

    #[test]
    fn a_failed_question_to_the_base_is_an_error_and_the_object_can_be_put_again() {
        let asked = AtomicUsize::new(0);
        let known = |_: &ObjectId| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Error::damaged("base", None, "unreadable")),
            _ => Ok(false),
        };
        let file = Box::new(|| Ok(MemoryFile::new()));
        let writer = PackWriter::new(Box::new(known), file, u64::MAX);
        assert_eq!(
            writer.put(b"x", Class::Chunk).unwrap_err().code(),
            "damaged"
        );
        let id = writer.put(b"x", Class::Chunk).unwrap();
        assert_eq!(open(writer.seal().unwrap()).get(&id, 1).unwrap(), b"x");
    }

    #[test]
    fn objects_over_the_limits_are_refused() {
        let writer = writer(u64::MAX);
        let large = vec![0; (8 << 20) + 1];
        assert_eq!(
            writer.put(&large, Class::Chunk).unwrap_err().code(),
            "invalid"
        );
        let tree = writer.put(&large, Class::Tree).unwrap();
        let set = open(writer.seal().unwrap());
        assert!(set.get(&tree, 64 << 20).unwrap() == large);
        assert_eq!(set.get(&tree, 8 << 20).unwrap_err().code(), "damaged");
    }

    #[test]
    fn the_size_limit_doubles_with_every_eight_packs() {
        assert_eq!(pack_size_limit(0), 256 << 20);
        assert_eq!(pack_size_limit(7), 256 << 20);
        assert_eq!(pack_size_limit(8), 512 << 20);
        assert_eq!(pack_size_limit(64), 256 << 28);
        assert!(pack_size_limit(usize::MAX) > 1 << 40);
    }
}
