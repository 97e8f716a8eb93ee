//! Packs: header, block table, object table, trailer. `docs/format.md` section 4, limits of section 11.
//!
//! Pure: the bytes come from the caller, owned or borrowed (a memory map), and are never copied here. Structure is
//! checked once, when an index is made; rows are checked again each time one is read, because mapped bytes may change.

use crate::format::codec::{Cursor, DecodeError, Decoded, Encoder};
use crate::id::ObjectId;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 16;
/// Length of the trailer in bytes.
pub const TRAILER_LEN: usize = 80;
/// Length of a block table row in bytes.
pub const BLOCK_ROW_LEN: usize = 24;
/// Length of an object table row in bytes.
pub const OBJECT_ROW_LEN: usize = 44;
/// The largest raw block, and the largest object, in bytes.
pub const MAX_BLOCK_BYTES: u32 = 64 << 20;
/// The largest raw block that holds an object whose own limit is 8 MiB or less, in bytes.
pub const MAX_SMALL_BLOCK_BYTES: u32 = 8 << 20;
/// The largest window that a zstd frame may ask for, in bytes.
pub const MAX_WINDOW_BYTES: u64 = 1 << MAX_WINDOW_LOG;
/// The same as a power of two.
pub const MAX_WINDOW_LOG: u32 = 26;
/// The most blocks in a pack.
pub const MAX_BLOCKS: u32 = 1 << 24;
/// The most objects in a pack.
pub const MAX_OBJECTS: u32 = 1 << 26;

const MAGIC: &[u8; 8] = b"GENSPACK";
const TAIL_MAGIC: &[u8; 8] = b"GENSTAIL";
const VERSION: u32 = 1;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

const fn bad<T>(problem: &'static str, at: usize) -> Decoded<T> {
    Err(DecodeError { problem, at })
}

/// The header, which is the same for every pack of this version.
pub fn encode_header() -> Vec<u8> {
    let mut out = Encoder::tagged(MAGIC);
    out.u32(VERSION);
    out.u32(0);
    out.finish()
}

/// Checks the first [`HEADER_LEN`] bytes of a pack.
///
/// # Errors
/// If they are anything else than the one header of this version.
pub fn check_header(bytes: &[u8]) -> Decoded<()> {
    let mut cursor = Cursor::new(bytes);
    cursor.tag(MAGIC, "not a pack")?;
    if cursor.u32()? != VERSION {
        return cursor.error("a pack of an unknown version");
    }
    if cursor.u32()? != 0 {
        return cursor.error("a reserved field is not zero");
    }
    cursor.finish()
}

/// How a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As it is.
    Raw,
    /// One zstd frame.
    Zstd,
}

/// A row of the block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// Where the stored bytes begin in the file.
    pub offset: u64,
    /// How many bytes are stored.
    pub stored_length: u32,
    /// How many bytes the block holds once decoded.
    pub raw_length: u32,
    /// How it is stored.
    pub codec: Codec,
}

impl BlockRow {
    /// Where the stored bytes end in the file.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.stored_length))
    }

    fn encode(&self, out: &mut Encoder) {
        out.u64(self.offset);
        out.u32(self.stored_length);
        out.u32(self.raw_length);
        out.u8(match self.codec {
            Codec::Raw => 0,
            Codec::Zstd => 1,
        });
        out.raw(&[0; 7]);
    }

    fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        let (offset, stored_length, raw_length) = (cursor.u64()?, cursor.u32()?, cursor.u32()?);
        let codec = match cursor.u8()? {
            0 => Codec::Raw,
            1 => Codec::Zstd,
            _ => return cursor.error("a block of an unknown codec"),
        };
        if cursor.take(7)? != [0; 7] {
            return cursor.error("a reserved field is not zero");
        }
        cursor.finish()?;
        if raw_length > MAX_BLOCK_BYTES {
            return cursor.error("a block is over the limit");
        }
        let lengths_fit = match codec {
            Codec::Raw => stored_length == raw_length,
            Codec::Zstd => stored_length < raw_length,
        };
        if !lengths_fit {
            return cursor.error("a block's lengths do not fit its codec");
        }
        Ok(Self {
            offset,
            stored_length,
            raw_length,
            codec,
        })
    }
}

/// A row of the object table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRow {
    /// The object.
    pub id: ObjectId,
    /// The number of its block.
    pub block: u32,
    /// Where it begins in the raw block.
    pub offset: u32,
    /// How long it is, in bytes.
    pub length: u32,
}

impl ObjectRow {
    /// The object's bytes within its raw block; `None` if they do not lie in it.
    pub fn slice<'b>(&self, block: &'b [u8]) -> Option<&'b [u8]> {
        let start = self.offset as usize;
        block.get(start..start.checked_add(self.length as usize)?)
    }

    fn encode(&self, out: &mut Encoder) {
        out.id(&self.id);
        out.u32(self.block);
        out.u32(self.offset);
        out.u32(self.length);
    }

    fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        let row = Self {
            id: cursor.id()?,
            block: cursor.u32()?,
            offset: cursor.u32()?,
            length: cursor.u32()?,
        };
        cursor.finish()?;
        Ok(row)
    }
}

/// The trailer: where the index is, what it holds, and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Where the index begins in the file.
    pub index_offset: u64,
    /// How long the index is, in bytes.
    pub index_length: u64,
    /// Rows of the block table.
    pub blocks: u32,
    /// Rows of the object table.
    pub objects: u32,
    /// The BLAKE3 of the index.
    pub index_hash: ObjectId,
    /// How long the file is, in bytes.
    pub file_length: u64,
}

impl Trailer {
    /// Decodes the last [`TRAILER_LEN`] bytes of a file of `file_length` bytes.
    ///
    /// # Errors
    /// If the bytes are no trailer, or do not fit the file's length, or are over a limit.
    pub fn decode(bytes: &[u8], file_length: u64) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        let (index_offset, index_length) = (cursor.u64()?, cursor.u64()?);
        let (blocks, objects) = (cursor.u32()?, cursor.u32()?);
        if cursor.u64()? != 0 {
            return cursor.error("a reserved field is not zero");
        }
        let index_hash = cursor.id()?;
        cursor.tag(TAIL_MAGIC, "the trailer is missing")?;
        if cursor.u64()? != file_length {
            return cursor.error("the file is not as long as its trailer says");
        }
        cursor.finish()?;
        let trailer = Self {
            index_offset,
            index_length,
            blocks,
            objects,
            index_hash,
            file_length,
        };
        trailer.check()?;
        Ok(trailer)
    }

    fn check(&self) -> Decoded<()> {
        if self.objects == 0 || self.objects > MAX_OBJECTS {
            return bad("no objects, or more than the limit", 20);
        }
        if self.blocks == 0 || self.blocks > MAX_BLOCKS {
            return bad("no blocks, or more than the limit", 16);
        }
        if self.index_length != index_length(self.blocks, self.objects) {
            return bad("the index is not as long as its rows", 8);
        }
        let end = self.index_offset.checked_add(self.index_length);
        let expected = self.file_length.checked_sub(TRAILER_LEN as u64);
        if self.index_offset < HEADER_LEN as u64 || end.is_none() || end != expected {
            return bad("the index does not lie before the trailer", 0);
        }
        Ok(())
    }

    /// The trailer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        out.u64(self.index_offset);
        out.u64(self.index_length);
        out.u32(self.blocks);
        out.u32(self.objects);
        out.u64(0);
        out.id(&self.index_hash);
        out.raw(TAIL_MAGIC);
        out.u64(self.file_length);
        out.finish()
    }
}

/// How long the index of so many blocks and objects is, in bytes.
pub const fn index_length(blocks: u32, objects: u32) -> u64 {
    BLOCK_ROW_LEN as u64 * blocks as u64 + OBJECT_ROW_LEN as u64 * objects as u64
}

/// Everything after the blocks: index and trailer of a pack whose blocks end at `index_offset`.
///
/// `objects` are sorted by id, none twice.
///
/// # Panics
/// If there are more rows than the format's limits allow.
pub fn encode_tail(index_offset: u64, blocks: &[BlockRow], objects: &[ObjectRow]) -> Vec<u8> {
    debug_assert!(
        objects.is_sorted_by(|a, b| a.id < b.id),
        "BUG: objects are not sorted"
    );
    let mut index = Encoder::new();
    for row in blocks {
        row.encode(&mut index);
    }
    for row in objects {
        row.encode(&mut index);
    }
    let mut bytes = index.finish();
    let index_length = bytes.len() as u64;
    let trailer = Trailer {
        index_offset,
        index_length,
        blocks: u32::try_from(blocks.len()).expect("BUG: more blocks than the format allows"),
        objects: u32::try_from(objects.len()).expect("BUG: more objects than the format allows"),
        index_hash: ObjectId::of(&bytes),
        file_length: index_offset + index_length + TRAILER_LEN as u64,
    };
    bytes.extend_from_slice(&trailer.encode());
    bytes
}

/// The index of a pack, over bytes that it owns or borrows.
#[derive(Clone, Debug)]
pub struct PackIndex<B> {
    bytes: B,
    trailer: Trailer,
}

impl<B: AsRef<[u8]>> PackIndex<B> {
    /// An index from its bytes and trailer, with its structure checked: the cost grows with the blocks only.
    ///
    /// Hash and object table are checked by [`Self::check_hash`], [`Self::check_order`] and [`Self::check_all`].
    ///
    /// # Errors
    /// If the lengths do not match, or the blocks do not fill the file from the header to the index.
    pub fn new(trailer: Trailer, bytes: B) -> Decoded<Self> {
        trailer.check()?;
        if bytes.as_ref().len() as u64 != trailer.index_length {
            return bad("the index is not as long as its trailer says", 0);
        }
        let index = Self { bytes, trailer };
        let mut end = HEADER_LEN as u64;
        for number in 0..trailer.blocks {
            let row = index.block(number)?;
            if row.offset != end {
                return bad(
                    "a block does not begin where the last one ended",
                    block_at(number),
                );
            }
            end = row.end();
        }
        if end != trailer.index_offset {
            return bad("the last block does not end where the index begins", 0);
        }
        Ok(index)
    }

    /// The trailer.
    pub const fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// The index's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// How many blocks there are.
    pub const fn block_count(&self) -> u32 {
        self.trailer.blocks
    }

    /// How many objects there are.
    pub const fn object_count(&self) -> u32 {
        self.trailer.objects
    }

    fn row(&self, at: usize, length: usize) -> Decoded<&[u8]> {
        let end = at.checked_add(length);
        match end.and_then(|end| self.bytes.as_ref().get(at..end)) {
            Some(bytes) => Ok(bytes),
            None => bad("a row lies outside of the index", at),
        }
    }

    /// A row of the block table.
    ///
    /// # Errors
    /// If there is no such block, or the row breaks a rule.
    pub fn block(&self, number: u32) -> Decoded<BlockRow> {
        let at = block_at(number);
        if number >= self.trailer.blocks {
            return bad("no such block", at);
        }
        let row = BlockRow::decode(self.row(at, BLOCK_ROW_LEN)?).map_err(|error| DecodeError {
            at: at + error.at,
            ..error
        })?;
        if row.offset < HEADER_LEN as u64 || row.end() > self.trailer.index_offset {
            return bad("a block lies outside of the file's blocks", at);
        }
        Ok(row)
    }

    const fn object_at(&self, position: u32) -> usize {
        block_at(self.trailer.blocks) + OBJECT_ROW_LEN * position as usize
    }

    fn key(&self, position: u32) -> Decoded<&[u8]> {
        self.row(self.object_at(position), ObjectId::LEN)
    }

    /// A row of the object table as it stands, not compared with its block.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn object_unchecked(&self, position: u32) -> Decoded<ObjectRow> {
        if position >= self.trailer.objects {
            return bad("no such object", self.object_at(position));
        }
        ObjectRow::decode(self.row(self.object_at(position), OBJECT_ROW_LEN)?)
    }

    /// A row of the object table whose place lies in its block.
    ///
    /// # Errors
    /// If there is no such row, or it names a place that does not exist.
    pub fn object(&self, position: u32) -> Decoded<ObjectRow> {
        let row = self.object_unchecked(position)?;
        let block = self.block(row.block)?;
        match row.offset.checked_add(row.length) {
            Some(end) if end <= block.raw_length => Ok(row),
            _ => bad(
                "an object lies outside of its block",
                self.object_at(position),
            ),
        }
    }

    /// All rows of the object table, in the order of their ids.
    pub fn objects(&self) -> impl Iterator<Item = Decoded<ObjectRow>> + '_ {
        (0..self.trailer.objects).map(|position| self.object(position))
    }

    /// Looks an object up. A table that is not sorted gives a wrong "absent", never a wrong row.
    ///
    /// # Errors
    /// If the row that was found breaks a rule.
    pub fn find(&self, id: &ObjectId) -> Decoded<Option<ObjectRow>> {
        let (mut low, mut high) = self.window(id)?;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle)?.cmp(id.as_bytes().as_slice()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.object(middle).map(Some),
            }
        }
        Ok(None)
    }

    /// Ids are evenly spread, so an id's place is known within some √n rows: few pages of a map are touched.
    fn window(&self, id: &ObjectId) -> Decoded<(u32, u32)> {
        let count = self.trailer.objects;
        let mut head = [0; 4];
        head.copy_from_slice(&id.as_bytes()[..4]);
        let guess = (u64::from(u32::from_be_bytes(head)) * u64::from(count)) >> 32;
        let guess = u32::try_from(guess).unwrap_or(count);
        let reach = 2 * count.isqrt() + 4;
        let (mut low, mut high) = (guess.saturating_sub(reach), guess.saturating_add(reach));
        if low > 0 && self.key(low)? > id.as_bytes().as_slice() {
            low = 0;
        }
        if high >= count || self.key(high)? <= id.as_bytes().as_slice() {
            high = count;
        }
        Ok((low, high))
    }

    /// Compares the index with its hash in the trailer.
    ///
    /// # Errors
    /// If it differs.
    pub fn check_hash(&self) -> Decoded<()> {
        if ObjectId::of(self.bytes.as_ref()) == self.trailer.index_hash {
            return Ok(());
        }
        bad("the index does not match its hash", 0)
    }

    /// Checks that the object table is sorted, without duplicates, and that every object lies in its block.
    ///
    /// # Errors
    /// If not.
    pub fn check_order(&self) -> Decoded<()> {
        let mut last: Option<ObjectId> = None;
        for (position, row) in (0..).zip(self.objects()) {
            let id = row?.id;
            if last.is_some_and(|last| last >= id) {
                return bad("the objects are not sorted by id", self.object_at(position));
            }
            last = Some(id);
        }
        Ok(())
    }

    /// Checks every rule of the index: its hash, the object table, and that no two objects of a block overlap.
    ///
    /// # Errors
    /// If one is broken.
    pub fn check_all(&self) -> Decoded<()> {
        self.check_hash()?;
        self.check_order()?;
        let mut last: Option<ObjectRow> = None;
        for position in self.positions_by_block() {
            let row = self.object(position)?;
            let overlaps = last.is_some_and(|last| {
                last.block == row.block && last.offset + last.length > row.offset
            });
            if overlaps {
                return bad("two objects of a block overlap", self.object_at(position));
            }
            last = Some(row);
        }
        Ok(())
    }

    /// The positions of all object rows, in the order in which the objects lie in the file.
    pub fn positions_by_block(&self) -> Vec<u32> {
        let place = |position: &u32| {
            self.object_unchecked(*position)
                .map_or((u32::MAX, 0, 0), |row| (row.block, row.offset, row.length))
        };
        let mut positions: Vec<u32> = (0..self.trailer.objects).collect();
        positions.sort_by_cached_key(place);
        positions
    }
}

const fn block_at(number: u32) -> usize {
    BLOCK_ROW_LEN * number as usize
}

/// Decodes a whole pack's frame (all but the blocks' content) and checks every rule of it.
///
/// # Errors
/// If the bytes are not a pack.
pub fn decode_pack(bytes: &[u8]) -> Decoded<PackIndex<&[u8]>> {
    let Some((header, _)) = bytes.split_at_checked(HEADER_LEN) else {
        return bad("too short for a pack", bytes.len());
    };
    check_header(header)?;
    let Some(tail_at) = bytes.len().checked_sub(TRAILER_LEN) else {
        return bad("too short for a pack", bytes.len());
    };
    let trailer = Trailer::decode(&bytes[tail_at..], bytes.len() as u64)?;
    let Some(start) = usize::try_from(trailer.index_offset)
        .ok()
        .filter(|at| *at <= tail_at)
    else {
        return bad("the index does not lie before the trailer", 0);
    };
    let index = PackIndex::new(trailer, &bytes[start..tail_at])?;
    index.check_all()?;
    Ok(index)
}

/// Checks the header of a zstd frame: no dictionary, the window within the limit, the content size that of the row.
///
/// RFC 8878, section 3.1.1.1.
///
/// # Errors
/// If one of these is not so, or the bytes are no frame.
pub fn check_frame(stored: &[u8], raw_length: u32) -> Decoded<()> {
    let mut cursor = Cursor::new(stored);
    cursor.tag(&ZSTD_MAGIC, "not a zstd frame")?;
    let descriptor = cursor.u8()?;
    let single_segment = descriptor & 0x20 != 0;
    if descriptor & 0x0b != 0 {
        return cursor.error("a zstd frame with a dictionary or reserved bits");
    }
    let window = if single_segment {
        None
    } else {
        Some(cursor.u8()?)
    };
    let size = match descriptor >> 6 {
        0 if single_segment => Some(u64::from(cursor.u8()?)),
        0 => None,
        1 => Some(u64::from(cursor.u16()?) + 256),
        2 => Some(u64::from(cursor.u32()?)),
        _ => Some(cursor.u64()?),
    };
    if size.is_some_and(|size| size != u64::from(raw_length)) {
        return cursor.error("a zstd frame of another content size");
    }
    let window = match window {
        Some(byte) => {
            let base = 1u64 << (10 + (byte >> 3));
            base + base / 8 * u64::from(byte & 7)
        }
        None => u64::from(raw_length),
    };
    if window > MAX_WINDOW_BYTES {
        return cursor.error("a zstd window over the limit");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: u8, block: u32, offset: u32, length: u32) -> ObjectRow {
        ObjectRow {
            id: ObjectId::from_bytes([name; 32]),
            block,
            offset,
            length,
        }
    }

    fn raw_block(offset: u64, length: u32) -> BlockRow {
        BlockRow {
            offset,
            stored_length: length,
            raw_length: length,
            codec: Codec::Raw,
        }
    }

    fn pack(blocks: &[BlockRow], objects: &[ObjectRow]) -> Vec<u8> {
        let mut bytes = encode_header();
        let end = blocks.last().map_or(16, BlockRow::end);
        bytes.resize(usize::try_from(end).unwrap(), 7);
        bytes.extend(encode_tail(end, blocks, objects));
        bytes
    }

    fn sample() -> Vec<u8> {
        let zstd = BlockRow {
            offset: 26,
            stored_length: 5,
            raw_length: 100,
            codec: Codec::Zstd,
        };
        let objects = [object(1, 0, 0, 4), object(2, 1, 0, 100), object(9, 0, 4, 6)];
        pack(&[raw_block(16, 10), zstd], &objects)
    }

    #[test]
    fn what_was_encoded_is_found_again() {
        let bytes = sample();
        let index = decode_pack(&bytes).unwrap();
        assert_eq!((index.block_count(), index.object_count()), (2, 3));
        let found = index.find(&ObjectId::from_bytes([9; 32])).unwrap();
        assert_eq!(found, Some(object(9, 0, 4, 6)));
        for absent in [0, 3, 255] {
            assert_eq!(
                index.find(&ObjectId::from_bytes([absent; 32])).unwrap(),
                None
            );
        }
        let blocks: Vec<_> = (0..2).map(|number| index.block(number).unwrap()).collect();
        let objects: Vec<_> = index.objects().map(|row| row.unwrap()).collect();
        assert_eq!(encode_tail(31, &blocks, &objects), bytes[31..]);
        assert_eq!(index.positions_by_block(), [0, 2, 1]);
    }

    #[test]
    fn every_flipped_byte_of_the_frame_is_noticed() {
        let bytes = sample();
        for at in (0..16).chain(31..bytes.len()) {
            for bit in [1, 0x80] {
                let mut copy = bytes.clone();
                copy[at] ^= bit;
                assert!(decode_pack(&copy).is_err(), "byte {at}");
            }
        }
        for length in 0..bytes.len() {
            assert!(decode_pack(&bytes[..length]).is_err(), "length {length}");
        }
        assert!(decode_pack(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn each_rule_of_the_index_is_checked() {
        let block = raw_block(16, 10);
        let one = object(1, 0, 0, 10);
        let problem = |blocks: &[BlockRow], objects: &[ObjectRow]| {
            decode_pack(&pack(blocks, objects)).unwrap_err().problem
        };
        assert_eq!(problem(&[block], &[]), "no objects, or more than the limit");
        assert_eq!(problem(&[], &[one]), "no blocks, or more than the limit");
        assert_eq!(problem(&[block], &[object(1, 1, 0, 1)]), "no such block");
        assert_eq!(
            problem(&[block], &[object(1, 0, 4, 7)]),
            "an object lies outside of its block"
        );
        assert_eq!(
            problem(&[block], &[object(1, 0, u32::MAX, 2)]),
            "an object lies outside of its block"
        );
        assert_eq!(
            problem(&[block], &[object(1, 0, 0, 5), object(2, 0, 4, 6)]),
            "two objects of a block overlap"
        );
        assert_eq!(
            problem(&[raw_block(17, 9)], &[one]),
            "a block does not begin where the last one ended"
        );
        let unequal = BlockRow {
            raw_length: 11,
            ..block
        };
        assert_eq!(
            problem(&[unequal], &[one]),
            "a block's lengths do not fit its codec"
        );
        let grown = BlockRow {
            codec: Codec::Zstd,
            ..block
        };
        assert_eq!(
            problem(&[grown], &[one]),
            "a block's lengths do not fit its codec"
        );
        let huge = BlockRow {
            codec: Codec::Zstd,
            raw_length: MAX_BLOCK_BYTES + 1,
            ..block
        };
        assert_eq!(problem(&[huge], &[one]), "a block is over the limit");
    }

    #[test]
    fn unsorted_and_doubled_ids_are_rejected() {
        let rows = [object(2, 0, 0, 1), object(1, 0, 1, 1)];
        for rows in [rows, [rows[1], rows[1]]] {
            let mut index = Encoder::new();
            raw_block(16, 10).encode(&mut index);
            for row in &rows {
                row.encode(&mut index);
            }
            let index = index.finish();
            let trailer = Trailer {
                index_offset: 26,
                index_length: index.len() as u64,
                blocks: 1,
                objects: 2,
                index_hash: ObjectId::of(&index),
                file_length: 26 + index.len() as u64 + 80,
            };
            let index = PackIndex::new(trailer, index).unwrap();
            assert_eq!(
                index.check_all().unwrap_err().problem,
                "the objects are not sorted by id"
            );
        }
    }

    #[test]
    fn look_ups_work_at_every_position_of_uneven_tables() {
        for count in [1u32, 2, 3, 50, 1000] {
            for shift in [0, 200] {
                let mut objects: Vec<_> = (0..count)
                    .map(|n| {
                        let mut id = *ObjectId::of(&n.to_le_bytes()).as_bytes();
                        id[0] = id[0].max(shift);
                        ObjectRow {
                            id: ObjectId::from_bytes(id),
                            block: 0,
                            offset: n,
                            length: 1,
                        }
                    })
                    .collect();
                objects.sort_by_key(|row| row.id);
                let bytes = pack(&[raw_block(16, count)], &objects);
                let index = decode_pack(&bytes).unwrap();
                for row in &objects {
                    assert_eq!(index.find(&row.id).unwrap(), Some(*row));
                }
                assert_eq!(index.find(&ObjectId::of(b"absent")).unwrap(), None);
            }
        }
    }

    #[test]
    fn frames_with_dictionaries_large_windows_or_other_sizes_are_rejected() {
        let raw = vec![b'a'; 5000];
        let frame = zstd::bulk::compress(&raw, 1).unwrap();
        assert_eq!(check_frame(&frame, 5000), Ok(()));
        assert!(check_frame(&frame, 5001).is_err());
        assert!(check_frame(&frame[..3], 5000).is_err());
        assert!(
            check_frame(b"\x50\x2a\x4d\x18\0\0\0\0", 0).is_err(),
            "a skippable frame"
        );
        let with = |descriptor: u8, rest: &[u8]| {
            check_frame(&[ZSTD_MAGIC.as_slice(), &[descriptor], rest].concat(), 5000)
        };
        assert_eq!(with(0, &[16 << 3]), Ok(()), "64 MiB");
        assert_eq!(
            with(0, &[16 << 3 | 1]).unwrap_err().problem,
            "a zstd window over the limit"
        );
        assert!(with(0, &[0xff]).is_err());
        assert!(with(1, &[0, 1]).is_err(), "a dictionary");
        assert!(with(8, &[0]).is_err(), "a reserved bit");
    }
}
