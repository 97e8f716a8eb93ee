//! Merging small packs while committing: a pure plan, and the copy.
//!
//! Packs are sorted into tiers by size; a tier that is full becomes one pack of a higher tier, or one that is too large to
//! be merged again. So every byte is rewritten at most once per tier: a logarithm of the bytes written.
//! A merge never drops an object.

use std::sync::Arc;

use crate::format::pack::{BlockRow, ObjectRow, PackIndex, decode_pack};
use crate::id::ObjectId;
use crate::objects::block::BlockDecoder;
use crate::objects::index::{PackFile, damaged};
use crate::objects::writer::{PackSinkFile, PackWriter};
use crate::{Error, Result};

/// The most that one commit rewrites, in bytes.
pub const MAX_MERGE_BYTES: u64 = 8 << 20;
/// How many packs a generation should have at the most. Not an invariant: beyond it, maintenance is due.
pub const TARGET_PACKS: usize = 64;

/// Two larger packs do not fit into one merge, so rewriting one gains nothing.
const MAX_SOURCE_BYTES: u64 = MAX_MERGE_BYTES / 2;
/// How many packs of a tier become one.
const FAN_OUT: u64 = 8;
/// The same while there are more packs than there should be.
const CROWDED_FAN_OUT: u64 = 2;
/// Packs up to this size are in the lowest tier.
const LOWEST_TIER_BYTES: u64 = 1 << 10;

/// Which of a generation's packs a commit should rewrite into its own new pack; smallest first, often none.
///
/// Together they are at most [`MAX_MERGE_BYTES`]. `packs` are ids and sizes in bytes, in any order.
pub fn plan_merge(packs: &[(ObjectId, u64)]) -> Vec<ObjectId> {
    let fan_out = if packs.len() > TARGET_PACKS {
        CROWDED_FAN_OUT
    } else {
        FAN_OUT
    };
    let mut small: Vec<(u64, ObjectId)> = packs
        .iter()
        .filter(|(_, bytes)| *bytes <= MAX_SOURCE_BYTES)
        .map(|(id, bytes)| (*bytes, *id))
        .collect();
    small.sort_unstable();
    let mut sum = 0;
    let full = &small[..full_tiers(&small, fan_out)];
    // If not all of them fit, what is left out is at most MAX_SOURCE_BYTES, so the result is too large for another round.
    full.iter()
        .take_while(|(bytes, _)| {
            sum += bytes;
            sum <= MAX_MERGE_BYTES
        })
        .map(|(_, id)| *id)
        .collect()
}

/// How many of the sorted packs lie in the highest full tier and those below it.
fn full_tiers(small: &[(u64, ObjectId)], fan_out: u64) -> usize {
    let (mut start, mut end, mut sum) = (0, 0, 0);
    while start < small.len() {
        let tier = tier(small[start].0, fan_out);
        let members = small[start..]
            .iter()
            .take_while(|(bytes, _)| self::tier(*bytes, fan_out) == tier);
        let next = start + members.count();
        // What the tiers below are merged to may arrive in this one as one more pack.
        let arriving = u64::from(end > 0 && self::tier(sum, fan_out) >= tier);
        if (next - start) as u64 + arriving >= fan_out {
            end = next;
            sum = small[..end].iter().map(|(bytes, _)| bytes).sum();
        }
        start = next;
    }
    end
}

fn tier(bytes: u64, fan_out: u64) -> u32 {
    match bytes.div_ceil(LOWEST_TIER_BYTES) {
        0 | 1 => 0,
        units => (units - 1).ilog(fan_out) + 1,
    }
}

/// What a merge did.
#[derive(Debug, Default)]
pub struct Merged {
    /// Packs whose every object is in the writer now; the next generation needs them no longer.
    pub merged: Vec<ObjectId>,
    /// Packs that could not be read or are damaged, and why. Nothing of them was copied.
    pub skipped: Vec<(ObjectId, Error)>,
    /// How many bytes of blocks were copied.
    pub bytes: u64,
}

/// Says which writer a block goes to, by how its first object begins.
pub type Route<'r, 'w, F> = dyn Fn(&[u8]) -> &'r PackWriter<'w, F> + 'r;

/// Copies everything in these packs into writers, block by block as they are stored.
///
/// Each pack is compared with its name first; one that is damaged is left alone and reported.
///
/// # Errors
/// If the writer fails.
pub fn merge_into<F: PackSinkFile>(
    route: &Route<'_, '_, F>,
    packs: &[(ObjectId, Arc<dyn PackFile>)],
) -> Result<Merged> {
    let mut done = Merged::default();
    for (id, file) in packs {
        let bytes = match read_pack(id, &**file) {
            Ok(bytes) => bytes,
            Err(error) => {
                done.skipped.push((*id, error));
                continue;
            }
        };
        match decode_pack(&bytes) {
            Ok(index) => done.bytes += copy_blocks(route, &**file, &index, &bytes)?,
            Err(error) => {
                done.skipped.push((*id, damaged(&**file, error)));
                continue;
            }
        }
        done.merged.push(*id);
    }
    Ok(done)
}

fn read_pack(id: &ObjectId, file: &dyn PackFile) -> Result<Vec<u8>> {
    if file.len() > MAX_MERGE_BYTES {
        return Err(Error::invalid(
            "merge",
            format!("{} is too large", file.path().display()),
        ));
    }
    let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    if ObjectId::of(&bytes) != *id {
        let problem = "the file's content is not what its name says";
        return Err(Error::damaged(file.path(), None, problem));
    }
    Ok(bytes)
}

/// The first bytes of a block's first object; nothing if the block cannot be decoded, which readers will report.
fn first_bytes(block: &BlockRow, stored: &[u8], row: &ObjectRow) -> Vec<u8> {
    let Ok(mut decoder) = BlockDecoder::new() else {
        return Vec::new();
    };
    let mut raw = vec![0; block.raw_length as usize];
    if decoder.decode_stored(block, stored, &mut raw).is_err() {
        return Vec::new();
    }
    row.slice(&raw)
        .map(|object| object[..object.len().min(4)].to_vec())
        .unwrap_or_default()
}

fn copy_blocks<F: PackSinkFile>(
    route: &Route<'_, '_, F>,
    file: &dyn PackFile,
    index: &PackIndex<&[u8]>,
    bytes: &[u8],
) -> Result<u64> {
    let fail = |error| damaged(file, error);
    let mut objects: Vec<ObjectRow> = index.objects().collect::<Result<_, _>>().map_err(fail)?;
    objects.sort_unstable_by_key(|row| (row.block, row.offset));
    let mut copied = 0;
    for rows in objects.chunk_by(|a, b| a.block == b.block) {
        let block = index.block(rows[0].block).map_err(fail)?;
        let place = usize::try_from(block.offset)
            .ok()
            .zip(usize::try_from(block.end()).ok());
        let Some(stored) = place.and_then(|(start, end)| bytes.get(start..end)) else {
            return Err(Error::damaged(
                file.path(),
                None,
                "a block lies outside of the file",
            ));
        };
        let writer = route(&first_bytes(&block, stored, &rows[0]));
        copied += writer.copy_block(&block, stored, rows)?;
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::reader::PackSet;
    use crate::objects::testing::{MemoryFile, MemoryPack, noise};
    use crate::objects::{Class, ObjectSink, ObjectSource};

    fn id(number: u64) -> ObjectId {
        ObjectId::of(&number.to_le_bytes())
    }

    /// Commits so many packs and merges as planned; returns packs at the end, at the most, bytes new, bytes rewritten.
    fn simulate(sizes: impl Iterator<Item = u64>) -> (usize, usize, u64, u64) {
        let mut packs: Vec<(ObjectId, u64)> = Vec::new();
        let (mut most, mut new, mut rewritten) = (0, 0, 0);
        for (number, size) in (0..).zip(sizes) {
            let plan = plan_merge(&packs);
            let merged: u64 = packs
                .iter()
                .filter(|(id, _)| plan.contains(id))
                .map(|(_, bytes)| bytes)
                .sum();
            assert!(merged <= MAX_MERGE_BYTES && plan.len() != 1);
            packs.retain(|(id, _)| !plan.contains(id));
            packs.push((id(number), size + merged));
            most = most.max(packs.len());
            new += size;
            rewritten += merged;
        }
        (packs.len(), most, new, rewritten)
    }

    #[test]
    fn thousands_of_small_commits_stay_within_64_packs_at_a_logarithmic_price() {
        for count in [100, 2_000, 10_000] {
            let (_, most, new, rewritten) = simulate((0..count).map(|_| 6 << 10));
            assert!(most <= TARGET_PACKS, "{most} packs");
            assert!(rewritten <= 5 * new, "{rewritten} of {new}");
        }
    }

    #[test]
    fn uneven_commits_stay_within_64_packs_too() {
        for seed in 1..20 {
            let mut random = crate::objects::testing::Random(seed);
            let sizes = (0..2_000).map(move |_| {
                let scale = random.below(8);
                1 + random.below(1 << (8 + scale))
            });
            let (_, most, new, rewritten) = simulate(sizes);
            assert!(most <= TARGET_PACKS, "{most} packs");
            assert!(rewritten <= 5 * new, "{rewritten} of {new}");
        }
    }

    #[test]
    fn a_crowded_generation_is_merged_harder_but_never_over_the_ceiling() {
        let mut packs: Vec<_> = (0..100).map(|number| (id(number), 100 << 20)).collect();
        assert_eq!(plan_merge(&packs), []);
        packs.push((id(1000), 6000));
        assert_eq!(plan_merge(&packs), []);
        packs.push((id(1001), 5000));
        assert_eq!(plan_merge(&packs), [id(1001), id(1000)]);
        let many: Vec<_> = (0..100).map(|number| (id(number), 1 << 20)).collect();
        assert_eq!(plan_merge(&many).len(), 8);
        // With large packs in the way, small commits still cost a logarithm.
        let large = (0..80).map(|_| 5 << 20).chain((0..2000).map(|_| 6 << 10));
        let (_, most, _, rewritten) = simulate(large);
        assert!(most <= 80 + 16, "{most} packs");
        assert!(rewritten <= 12 * 2000 * (6 << 10), "{rewritten}");
        assert_eq!(plan_merge(&[]), []);
    }

    fn write(objects: &[Vec<u8>]) -> (ObjectId, Vec<u8>) {
        let writer = writer();
        for object in objects {
            writer.put(object, Class::Tree).unwrap();
        }
        seal(writer)
    }

    fn writer() -> PackWriter<'static, MemoryFile> {
        PackWriter::new(
            Box::new(|_| Ok(false)),
            Box::new(|| Ok(MemoryFile::new())),
            u64::MAX,
        )
    }

    fn seal(writer: PackWriter<'_, MemoryFile>) -> (ObjectId, Vec<u8>) {
        let pack = writer.seal().unwrap().pop().unwrap();
        (pack.id, pack.file.bytes)
    }

    fn file(bytes: &[u8]) -> Arc<dyn PackFile> {
        Arc::new(MemoryPack::new(bytes.to_vec()))
    }

    #[test]
    fn a_merge_drops_nothing_and_doubles_nothing() {
        let objects: Vec<Vec<u8>> = (0..60usize)
            .map(|n| noise(n as u64, 50 + 3000 * (n % 5)))
            .collect();
        let packs: Vec<_> = [&objects[..30], &objects[20..50], &objects[20..30]]
            .map(write)
            .into();
        let writer = writer();
        writer.put(&objects[3], Class::Tree).unwrap();
        let sources: Vec<_> = packs.iter().map(|(id, bytes)| (*id, file(bytes))).collect();
        let done = merge_into(&|_: &[u8]| &writer, &sources).unwrap();
        assert_eq!(
            done.merged,
            packs.iter().map(|(id, _)| *id).collect::<Vec<_>>()
        );
        assert!(done.skipped.is_empty() && done.bytes > 0);
        for object in &objects[40..] {
            writer.put(object, Class::Tree).unwrap();
        }
        assert_eq!(writer.new_objects(), 60);
        let (id, bytes) = seal(writer);
        let set = PackSet::new("memory", vec![(id, file(&bytes))]);
        for object in &objects {
            assert!(&set.get(&ObjectId::of(object), 1 << 20).unwrap() == object);
        }
        let report = set
            .verify_pack(0, &mut |problem| panic!("{problem:?}"))
            .unwrap();
        assert_eq!(report.good, 60);
    }

    #[test]
    fn a_damaged_source_is_left_alone_and_named() {
        let objects: Vec<Vec<u8>> = (0..10).map(|n| noise(n, 500)).collect();
        let (good, bad) = (write(&objects[..5]), write(&objects[5..]));
        let mut broken = bad.1.clone();
        broken[100] ^= 1;
        let writer = writer();
        let done = merge_into(
            &|_: &[u8]| &writer,
            &[(bad.0, file(&broken)), (good.0, file(&good.1))],
        )
        .unwrap();
        assert_eq!(done.merged, [good.0]);
        assert!(matches!(done.skipped.as_slice(), [(id, Error::Damaged { .. })] if *id == bad.0));
        assert_eq!(writer.new_objects(), 5);
    }
}
