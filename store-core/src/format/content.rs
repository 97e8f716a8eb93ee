//! Content of a file: one chunk, or a tree of chunk lists. `docs/format.md` section 5.

use crate::format::codec::{Cursor, Decoded, Encoder};
use crate::id::ObjectId;

/// The largest chunk in bytes.
pub const MAX_CHUNK_BYTES: usize = 8 << 20;
/// The largest chunk list in bytes.
pub const MAX_LIST_BYTES: usize = 1 << 20;
/// How many chunk lists may lie one under the other.
pub const MAX_LIST_DEPTH: u8 = 8;

const TAG: &[u8; 4] = b"lst1";
const ROW_LEN: usize = 8 + ObjectId::LEN;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Nothing.
    Empty,
    /// The bytes of one chunk.
    Chunk(ObjectId),
    /// The chunks under this chunk list.
    List(ObjectId),
}

impl Content {
    /// Writes the field.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Empty => out.u8(0),
            Self::Chunk(id) => {
                out.u8(1);
                out.id(id);
            }
            Self::List(id) => {
                out.u8(2);
                out.id(id);
            }
        }
    }

    /// Reads the field.
    ///
    /// # Errors
    /// If the bytes end too early or the kind is unknown.
    pub fn decode(cursor: &mut Cursor<'_>) -> Decoded<Self> {
        match cursor.u8()? {
            0 => Ok(Self::Empty),
            1 => cursor.id().map(Self::Chunk),
            2 => cursor.id().map(Self::List),
            _ => cursor.error("content of an unknown kind"),
        }
    }

    /// The object that it names, if any.
    pub const fn id(&self) -> Option<&ObjectId> {
        match self {
            Self::Empty => None,
            Self::Chunk(id) | Self::List(id) => Some(id),
        }
    }

    /// Whether a file of `size` bytes can have this content: empty exactly when it has none, one chunk up to 8 MiB.
    pub const fn fits(&self, size: u64) -> bool {
        match self {
            Self::Empty => size == 0,
            Self::Chunk(_) => size > 0 && size <= MAX_CHUNK_BYTES as u64,
            Self::List(_) => size > 1,
        }
    }
}

/// A row of a chunk list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRow {
    /// How many bytes of content are under it.
    pub length: u64,
    /// A chunk on level 0, a chunk list of the level below otherwise.
    pub id: ObjectId,
}

/// A chunk list: consecutive pieces of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkList {
    /// How many levels of lists are below this one.
    pub level: u8,
    /// The pieces, in order.
    pub rows: Vec<ListRow>,
}

impl ChunkList {
    /// How many bytes of content are under it; `None` if that does not fit 64 bits.
    pub fn total(&self) -> Option<u64> {
        self.rows
            .iter()
            .try_fold(0u64, |sum, row| sum.checked_add(row.length))
    }

    /// The object's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::tagged(TAG);
        out.u8(self.level);
        out.count(self.rows.len());
        for row in &self.rows {
            out.u64(row.length);
            out.id(&row.id);
        }
        out.finish()
    }

    /// Decodes an object.
    ///
    /// # Errors
    /// If the bytes are not exactly one chunk list within the limits, or its lengths add up to more than 64 bits hold.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        if bytes.len() > MAX_LIST_BYTES {
            return cursor.error("a chunk list over the limit");
        }
        cursor.tag(TAG, "not a chunk list")?;
        let level = cursor.u8()?;
        if level >= MAX_LIST_DEPTH {
            return cursor.error("chunk lists nested too deep");
        }
        let count = cursor.count(ROW_LEN, MAX_LIST_BYTES / ROW_LEN)?;
        if count == 0 {
            return cursor.error("an empty chunk list");
        }
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let row = ListRow {
                length: cursor.u64()?,
                id: cursor.id()?,
            };
            if row.length == 0 || (level == 0 && row.length > MAX_CHUNK_BYTES as u64) {
                return cursor.error("a length out of range");
            }
            rows.push(row);
        }
        cursor.finish()?;
        let list = Self { level, rows };
        if list.total().is_none() {
            return cursor.error("lengths that add up to too much");
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(level: u8, lengths: &[u64]) -> ChunkList {
        let row = |length: &u64| ListRow {
            length: *length,
            id: ObjectId::of(&length.to_le_bytes()),
        };
        ChunkList {
            level,
            rows: lengths.iter().map(row).collect(),
        }
    }

    #[test]
    fn content_has_one_encoding() {
        let id = ObjectId::of(b"x");
        for content in [Content::Empty, Content::Chunk(id), Content::List(id)] {
            let mut out = Encoder::new();
            content.encode(&mut out);
            let bytes = out.finish();
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(Content::decode(&mut cursor), Ok(content));
            assert_eq!(cursor.finish(), Ok(()));
            assert!(Content::decode(&mut Cursor::new(&bytes[..bytes.len() - 1])).is_err());
        }
        assert!(Content::decode(&mut Cursor::new(&[3; 33])).is_err());
        assert!(Content::Empty.fits(0) && !Content::Empty.fits(1));
        assert!(Content::Chunk(id).fits(8 << 20) && !Content::Chunk(id).fits((8 << 20) + 1));
        assert!(!Content::Chunk(id).fits(0) && !Content::List(id).fits(1));
    }

    #[test]
    fn lists_come_back_and_broken_ones_do_not() {
        for good in [
            list(0, &[1, 8 << 20]),
            list(1, &[1 << 40]),
            list(7, &[5, 6, 7]),
        ] {
            let bytes = good.encode();
            assert_eq!(ChunkList::decode(&bytes), Ok(good));
            for length in 0..bytes.len() {
                assert!(ChunkList::decode(&bytes[..length]).is_err());
            }
            assert!(ChunkList::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        }
        for broken in [
            list(8, &[1]),
            list(0, &[]),
            list(0, &[1, 0]),
            list(0, &[(8 << 20) + 1]),
            list(1, &[u64::MAX, 1]),
        ] {
            assert!(ChunkList::decode(&broken.encode()).is_err(), "{broken:?}");
        }
        let mut huge = list(0, &[1, 2]).encode();
        huge[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(ChunkList::decode(&huge).is_err());
    }
}
