//! Checking one pack file, whatever is in it: reports problems, changes nothing, never panics.
//!
//! Memory is bounded by the index and two copies of one block.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::format::pack::{BlockRow, HEADER_LEN};
use crate::id::ObjectId;
use crate::objects::block::BlockDecoder;
use crate::objects::index::{Index, PackFile, damaged, read_index};
use crate::{Error, Result};

/// How much is read at once when a file is only hashed.
const PIECE_BYTES: usize = 256 << 10;

/// One thing that is wrong with a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The pack's name.
    pub pack: ObjectId,
    /// The pack's path.
    pub path: PathBuf,
    /// The block, when it is one.
    pub block: Option<u32>,
    /// The object, when it is one.
    pub object: Option<ObjectId>,
    /// What is wrong, for people.
    pub problem: String,
}

/// What a check of a pack found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackReport {
    /// Objects that were compared with their ids and are right (none in a quick check).
    pub good: u64,
    /// Objects that the index names and that cannot be had from this pack.
    pub bad: BTreeSet<ObjectId>,
    /// Whether the index keeps every rule. If not, readers refuse the whole pack, good objects included.
    pub index_usable: bool,
    /// How many problems were reported.
    pub problems: u64,
}

impl PackReport {
    /// Whether nothing is wrong.
    pub const fn is_intact(&self) -> bool {
        self.problems == 0
    }
}

struct Check<'a> {
    id: &'a ObjectId,
    file: &'a dyn PackFile,
    on_problem: &'a mut dyn FnMut(Problem),
    report: PackReport,
    /// The hash of the file as far as it was read; `None` once a part could not be.
    hasher: Option<blake3::Hasher>,
}

/// Checks a whole pack: its name, its index, every block and every object.
///
/// The file is read once, from front to back; the index, which says what is where, is hashed from the copy that is used.
pub fn verify_pack(
    id: &ObjectId,
    file: &dyn PackFile,
    on_problem: &mut dyn FnMut(Problem),
) -> PackReport {
    let mut check = Check::new(id, file, on_problem);
    match read_index(file) {
        Ok(index) => check.index_and_blocks(&index),
        Err(error) => {
            check.report(None, None, text(&error));
            match error {
                Error::Io { .. } => check.hasher = None,
                _ => check.hash_pieces(0, file.len()),
            }
        }
    }
    check.compare_name();
    check.report
}

/// Checks a pack's length, header, trailer, and every rule of its index; reads no block.
pub fn verify_pack_quick(
    id: &ObjectId,
    file: &dyn PackFile,
    on_problem: &mut dyn FnMut(Problem),
) -> PackReport {
    let mut check = Check::new(id, file, on_problem);
    match read_index(file) {
        Ok(index) => check.index_rules(&index),
        Err(error) => check.report(None, None, text(&error)),
    }
    check.report
}

/// An error with its cause: a report has no other place for it.
fn text(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

impl<'a> Check<'a> {
    fn new(
        id: &'a ObjectId,
        file: &'a dyn PackFile,
        on_problem: &'a mut dyn FnMut(Problem),
    ) -> Self {
        let hasher = Some(blake3::Hasher::new());
        Self {
            id,
            file,
            on_problem,
            report: PackReport::default(),
            hasher,
        }
    }

    fn report(&mut self, block: Option<u32>, object: Option<ObjectId>, problem: String) {
        self.report.problems += 1;
        let path = self.file.path();
        (self.on_problem)(Problem {
            pack: *self.id,
            path,
            block,
            object,
            problem,
        });
    }

    fn index_rules(&mut self, index: &Index) {
        match index.check_all() {
            Ok(()) => self.report.index_usable = true,
            Err(error) => self.report(None, None, text(&damaged(self.file, error))),
        }
    }

    fn index_and_blocks(&mut self, index: &Index) {
        self.index_rules(index);
        self.hash_pieces(0, HEADER_LEN as u64);
        match BlockDecoder::new() {
            Ok(decoder) => self.blocks(index, decoder),
            Err(error) => {
                self.report(None, None, format!("cannot set zstd up: {error}"));
                self.hasher = None;
            }
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(index.bytes());
            hasher.update(&index.trailer().encode());
        }
    }

    fn blocks(&mut self, index: &Index, mut decoder: BlockDecoder) {
        let positions = index.positions_by_block();
        let mut positions = positions.as_slice();
        let mut raw = Vec::new();
        for number in 0..index.block_count() {
            let in_block = |position: &u32| {
                index
                    .object_unchecked(*position)
                    .is_ok_and(|row| row.block == number)
            };
            let count = positions
                .iter()
                .take_while(|position| in_block(position))
                .count();
            let (objects, rest) = positions.split_at(count);
            positions = rest;
            // The index's structure was checked and its bytes are ours, so the row is there.
            let Ok(row) = index.block(number) else {
                continue;
            };
            let usable = match self.read_block(&mut decoder, &row, &mut raw) {
                Ok(()) => true,
                Err(problem) => {
                    self.report(Some(number), None, format!("block {number}: {problem}"));
                    false
                }
            };
            self.objects(index, objects, usable.then_some(raw.as_slice()));
        }
        self.objects(index, positions, None);
    }

    fn read_block(
        &mut self,
        decoder: &mut BlockDecoder,
        row: &BlockRow,
        raw: &mut Vec<u8>,
    ) -> Result<(), String> {
        match decoder.read_stored(self.file, row) {
            Ok(stored) => {
                if let Some(hasher) = &mut self.hasher {
                    hasher.update(stored);
                }
            }
            Err(error) => {
                self.hasher = None;
                return Err(text(&error));
            }
        }
        raw.resize(row.raw_length as usize, 0);
        decoder.decode(row, raw).map_err(str::to_owned)
    }

    /// Compares the objects of one block with their ids; without the block they are all bad.
    fn objects(&mut self, index: &Index, positions: &[u32], block: Option<&[u8]>) {
        for &position in positions {
            let Ok(row) = index.object_unchecked(position) else {
                continue;
            };
            let right = block
                .and_then(|block| row.slice(block))
                .is_some_and(|bytes| ObjectId::of(bytes) == row.id);
            if right {
                self.report.good += 1;
                continue;
            }
            self.report.bad.insert(row.id);
            if block.is_some() {
                let problem = format!("object {} has other bytes", row.id);
                self.report(Some(row.block), Some(row.id), problem);
            }
        }
    }

    fn hash_pieces(&mut self, from: u64, to: u64) {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = from;
        while at < to {
            let length = usize::try_from(to - at)
                .unwrap_or(PIECE_BYTES)
                .min(PIECE_BYTES);
            if let Err(error) = self.file.read_exact_at(&mut buffer[..length], at) {
                self.report(None, None, text(&error));
                self.hasher = None;
                return;
            }
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&buffer[..length]);
            }
            at += length as u64;
        }
    }

    fn compare_name(&mut self) {
        // What could not be read was reported where it was met.
        let Some(hasher) = self.hasher.take() else {
            return;
        };
        if ObjectId::from(hasher.finalize()) != *self.id {
            self.report(
                None,
                None,
                "the file's content is not what its name says".to_owned(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::objects::reader::PackSet;
    use crate::objects::testing::{MemoryFile, MemoryPack, Random, noise};
    use crate::objects::writer::PackWriter;
    use crate::objects::{Class, ObjectSink, ObjectSource};

    /// A small pack with raw and compressed blocks of each class, and what is in it.
    fn sample() -> (ObjectId, Vec<u8>, Vec<Vec<u8>>) {
        let writer = PackWriter::new(
            Box::new(|_| Ok(false)),
            Box::new(|| Ok(MemoryFile::new())),
            u64::MAX,
        );
        let text = b"the quick brown fox jumps over the lazy dog; the lazy dog sleeps on";
        let objects = vec![
            noise(1, 90),
            text.repeat(3),
            text[5..].repeat(2),
            noise(2, 40),
        ];
        for (bytes, class) in
            objects
                .iter()
                .zip([Class::Chunk, Class::Tree, Class::Tree, Class::Catalog])
        {
            writer.put(bytes, class).unwrap();
        }
        let pack = writer.seal().unwrap().pop().unwrap();
        (pack.id, pack.file.bytes, objects)
    }

    fn check(id: &ObjectId, file: &MemoryPack) -> (PackReport, Vec<Problem>) {
        let mut problems = Vec::new();
        let report = verify_pack(id, file, &mut |problem| problems.push(problem));
        assert_eq!(report.problems, problems.len() as u64);
        assert_eq!(report.is_intact(), problems.is_empty());
        (report, problems)
    }

    /// Whatever the file holds: an object is right or an error.
    fn never_wrong(id: ObjectId, file: MemoryPack, objects: &[Vec<u8>]) -> usize {
        let set = PackSet::new("memory", vec![(id, Arc::new(file) as Arc<dyn PackFile>)]);
        let read = |object: &&Vec<u8>| match set.get(&ObjectId::of(object), 1 << 20) {
            Ok(bytes) => {
                assert!(bytes == **object);
                true
            }
            Err(_) => false,
        };
        // Twice, so that what is remembered of the first round is checked too.
        let first = objects.iter().filter(read).count();
        assert_eq!(objects.iter().filter(read).count(), first);
        first
    }

    #[test]
    fn an_intact_pack_is_intact() {
        let (id, bytes, objects) = sample();
        let (report, problems) = check(&id, &MemoryPack::new(bytes.clone()));
        assert_eq!(problems, []);
        assert_eq!(
            (report.good, report.bad.len(), report.index_usable),
            (4, 0, true)
        );
        let quick = verify_pack_quick(&id, &MemoryPack::new(bytes.clone()), &mut |_| {});
        assert!(quick.is_intact() && quick.index_usable);
        assert_eq!(never_wrong(id, MemoryPack::new(bytes), &objects), 4);
    }

    #[test]
    fn every_flipped_byte_is_reported_and_nothing_wrong_is_ever_read() {
        let (id, bytes, objects) = sample();
        let index_at = bytes.len() - 80 - 44 * 4 - 24 * 3;
        for at in 0..bytes.len() {
            for flip in [1, 0x40, 0xff] {
                let mut broken = bytes.clone();
                broken[at] ^= flip;
                let (report, problems) = check(&id, &MemoryPack::new(broken.clone()));
                assert!(!problems.is_empty(), "byte {at}");
                let in_block = (16..index_at).contains(&at);
                assert_eq!(report.index_usable, in_block, "byte {at}");
                let quick = verify_pack_quick(&id, &MemoryPack::new(broken.clone()), &mut |_| {});
                assert_eq!(quick.is_intact(), in_block, "byte {at}");
                let readable = never_wrong(id, MemoryPack::new(broken.clone()), &objects);
                if in_block {
                    assert_eq!(readable, objects.len() - report.bad.len(), "byte {at}");
                } else {
                    assert_eq!(readable, 0, "byte {at}");
                }
                let mapped = MemoryPack {
                    mapped: true,
                    ..MemoryPack::new(broken)
                };
                never_wrong(id, mapped, &objects);
            }
        }
    }

    #[test]
    fn truncated_and_extended_files_are_reported() {
        let (id, bytes, objects) = sample();
        for length in 0..bytes.len() {
            let short = bytes[..length].to_vec();
            assert!(
                !check(&id, &MemoryPack::new(short.clone())).1.is_empty(),
                "length {length}"
            );
            assert_eq!(never_wrong(id, MemoryPack::new(short.clone()), &objects), 0);
            let mapped = MemoryPack {
                mapped: true,
                ..MemoryPack::new(short.clone())
            };
            assert_eq!(never_wrong(id, mapped, &objects), 0);
            assert!(!verify_pack_quick(&id, &MemoryPack::new(short), &mut |_| {}).is_intact());
        }
        let long = [bytes.as_slice(), b"more"].concat();
        assert!(!check(&id, &MemoryPack::new(long)).1.is_empty());
    }

    #[test]
    fn garbage_is_reported() {
        let mut random = Random(7);
        let (id, bytes, objects) = sample();
        for round in 0..2000 {
            let mut garbage = if round % 2 == 0 {
                noise(round, random.size(600))
            } else {
                bytes.clone()
            };
            for _ in 0..random.below(20) {
                if let Some(at) = garbage.len().checked_sub(1 + random.size(400)) {
                    garbage[at] = [0, 0xff, 1, 0x80][random.size(4)];
                }
            }
            let intact = garbage == bytes;
            assert_eq!(
                check(&id, &MemoryPack::new(garbage.clone())).0.is_intact(),
                intact
            );
            never_wrong(
                id,
                MemoryPack {
                    mapped: round % 3 == 0,
                    ..MemoryPack::new(garbage)
                },
                &objects,
            );
        }
    }

    #[test]
    fn a_file_under_a_wrong_name_is_reported_though_all_in_it_is_right() {
        let (_, bytes, _) = sample();
        let (report, problems) = check(&ObjectId::of(b"other"), &MemoryPack::new(bytes));
        assert_eq!((report.good, problems.len()), (4, 1));
        assert!(report.index_usable && !report.is_intact());
    }

    #[test]
    fn an_unreadable_place_costs_its_block_only() {
        let (id, bytes, objects) = sample();
        for at in 0..bytes.len() as u64 {
            let file = || MemoryPack {
                unreadable_at: Some(at),
                ..MemoryPack::new(bytes.clone())
            };
            let (report, problems) = check(&id, &file());
            assert_eq!(problems.len(), 1, "byte {at}: {problems:?}");
            let readable = never_wrong(id, file(), &objects);
            if report.index_usable {
                assert!(
                    readable >= 2 && readable + report.bad.len() == 4,
                    "byte {at}"
                );
                assert_eq!(report.good, readable as u64);
            }
        }
    }

    #[test]
    fn another_copy_is_tried_when_one_cannot_be_used() {
        let (id, bytes, objects) = sample();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            let packs: [Arc<dyn PackFile>; 2] = [
                Arc::new(MemoryPack::new(broken)),
                Arc::new(MemoryPack::new(bytes.clone())),
            ];
            let set = PackSet::new("memory", packs.map(|file| (id, file)).into());
            for object in &objects {
                assert!(set.get(&ObjectId::of(object), 1 << 20).unwrap() == *object);
                assert!(set.contains(&ObjectId::of(object)).unwrap());
            }
            // Absence cannot be concluded from a pack whose index is broken.
            let absent = set.contains(&ObjectId::of(b"absent"));
            assert_eq!(absent.is_err(), set.index(0).is_err());
            assert!(matches!(absent, Err(Error::Damaged { .. }) | Ok(false)));
        }
    }
}
