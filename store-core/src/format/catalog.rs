//! The catalog's objects and values, `docs/format.md` section 8: catalog root, map nodes, lineages, checkpoint entries.
//!
//! `encode` keeps the same rules as `decode`, so that nothing is ever written that could not be read back.

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::format::codec::{Cursor, Decoded, Encoder};
use crate::id::{ObjectId, StoreId};
use crate::name::{is_entry_name, is_lineage_name, is_tag};

/// The longest catalog object: node, lineage, checkpoint record.
pub const MAX_OBJECT_BYTES: usize = 1 << 20;
/// The most rows of a map node.
pub const MAX_ROWS: usize = 64;
/// The highest level of a map node: a map is at most 16 nodes deep.
pub const MAX_LEVEL: u8 = 15;
/// The longest lineage name.
pub const MAX_LINEAGE_NAME_BYTES: usize = 4096;
/// The longest source path.
pub const MAX_SOURCE_BYTES: usize = 4096;
/// The longest host name.
pub const MAX_HOST_BYTES: usize = 255;
/// The longest reason for archiving.
pub const MAX_REASON_BYTES: usize = 4096;
/// The longest note on a checkpoint.
pub const MAX_NOTE_BYTES: usize = 4096;
/// The most tags of one checkpoint.
pub const MAX_TAGS: usize = 32;
const MAX_TAG_BYTES: usize = 255;

/// Whether an object that begins like this belongs to the catalog. Only for deciding which pack it goes to.
pub fn is_catalog_object(bytes: &[u8]) -> bool {
    [&b"cat1"[..], b"map1", b"lin1", b"ckp1"]
        .iter()
        .any(|tag| bytes.starts_with(tag))
}

/// Whether `path` may be a source: absolute, with no component that is empty, `.` or `..`, and of at most
/// [`MAX_SOURCE_BYTES`].
pub fn is_source(path: &[u8]) -> bool {
    path == b"/"
        || path.len() <= MAX_SOURCE_BYTES
            && path
                .strip_prefix(b"/")
                .is_some_and(|rest| rest.split(|&byte| byte == b'/').all(is_entry_name))
}

/// A number as a key or value of a map: big-endian, so that byte order is number order.
pub const fn number_bytes(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number of a key or value of a map.
pub fn parse_number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

/// The key of a row of the sources map.
pub fn source_key(source: &[u8], lineage: &[u8]) -> Vec<u8> {
    [source, b"\0", lineage].concat()
}

/// Source and lineage name of a key of the sources map.
pub fn parse_source_key(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let nul = key.iter().position(|&byte| byte == 0)?;
    let (source, lineage) = (&key[..nul], &key[nul + 1..]);
    (is_source(source) && is_lineage_name(lineage)).then_some((source, lineage))
}

/// Which checkpoint: enough for people (lineage, number) and for proof (id).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointRef {
    /// The lineage's name.
    pub lineage: Vec<u8>,
    /// The checkpoint's number in it.
    pub number: u64,
    /// The checkpoint's id.
    pub id: ObjectId,
}

/// The object that a manifest names: the top nodes of the three maps. `None` is an empty map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogRoot {
    /// Lineage name → id of the lineage object.
    pub lineages: Option<ObjectId>,
    /// Source path, NUL, lineage name → nothing.
    pub sources: Option<ObjectId>,
    /// Checkpoint id → lineage name.
    pub ids: Option<ObjectId>,
}

impl CatalogRoot {
    /// The object's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::tagged(b"cat1");
        for map in [&self.lineages, &self.sources, &self.ids] {
            out.opt(map.as_ref(), Encoder::id);
        }
        out.finish()
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If the bytes are anything but the encoding of one catalog root.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        cursor.tag(b"cat1", "not a catalog root")?;
        let root = Self {
            lineages: cursor.opt(Cursor::id)?,
            sources: cursor.opt(Cursor::id)?,
            ids: cursor.opt(Cursor::id)?,
        };
        cursor.finish()?;
        Ok(root)
    }
}

/// A row of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafRow {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// A row of a node above the leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRow {
    /// The first key under the row.
    pub key: Vec<u8>,
    /// The node one level below.
    pub child: ObjectId,
    /// How many leaf rows are under it.
    pub count: u64,
}

/// The rows of a node: those of a leaf (level 0) or of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Level 0.
    Leaf(Vec<LeafRow>),
    /// Any level above.
    Branch(Vec<BranchRow>),
}

/// A node of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// 0 for a leaf; one more than the level of its children for a branch.
    pub level: u8,
    /// Its rows, sorted by key.
    pub rows: Rows,
}

impl Node {
    /// The object's bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the node breaks a rule of the format.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check()
            .map_err(|problem| Error::invalid("map node", problem))?;
        let mut out = Encoder::tagged(b"map1");
        out.u8(self.level);
        match &self.rows {
            Rows::Leaf(rows) => {
                out.count(rows.len());
                for row in rows {
                    out.bytes16(&row.key);
                    out.bytes32(&row.value);
                }
            }
            Rows::Branch(rows) => {
                out.count(rows.len());
                for row in rows {
                    out.bytes16(&row.key);
                    out.id(&row.child);
                    out.u64(row.count);
                }
            }
        }
        let bytes = out.finish();
        if bytes.len() > MAX_OBJECT_BYTES {
            return Err(Error::invalid(
                "map node",
                "longer than an object of the catalog may be",
            ));
        }
        Ok(bytes)
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If the bytes are anything but the encoding of one node.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        if bytes.len() > MAX_OBJECT_BYTES {
            return cursor.error("longer than an object of the catalog may be");
        }
        cursor.tag(b"map1", "not a map node")?;
        let level = cursor.u8()?;
        let rows = if level == 0 {
            let count = cursor.count(2 + 4, MAX_ROWS)?;
            let mut rows = Vec::with_capacity(count);
            for _ in 0..count {
                rows.push(LeafRow {
                    key: cursor.bytes16(usize::MAX)?.to_vec(),
                    value: cursor.bytes32(MAX_OBJECT_BYTES)?.to_vec(),
                });
            }
            Rows::Leaf(rows)
        } else {
            let count = cursor.count(2 + ObjectId::LEN + 8, MAX_ROWS)?;
            let mut rows = Vec::with_capacity(count);
            for _ in 0..count {
                rows.push(BranchRow {
                    key: cursor.bytes16(usize::MAX)?.to_vec(),
                    child: cursor.id()?,
                    count: cursor.u64()?,
                });
            }
            Rows::Branch(rows)
        };
        cursor.finish()?;
        let node = Self { level, rows };
        node.check().or_else(|problem| cursor.error(problem))?;
        Ok(node)
    }

    fn check(&self) -> Result<(), &'static str> {
        match &self.rows {
            Rows::Leaf(rows) => {
                if self.level != 0 {
                    return Err("a leaf is not on level 0");
                }
                if rows.iter().any(|row| row.key.len() > usize::from(u16::MAX)) {
                    return Err("a key is too long");
                }
                if rows.iter().any(|row| row.value.len() > MAX_OBJECT_BYTES) {
                    return Err("a value is too long");
                }
                check_keys(rows.iter().map(|row| row.key.as_slice()))
            }
            Rows::Branch(rows) => {
                if self.level == 0 || self.level > MAX_LEVEL {
                    return Err("a level is out of range");
                }
                if rows.iter().any(|row| row.key.len() > usize::from(u16::MAX)) {
                    return Err("a key is too long");
                }
                if rows.iter().any(|row| row.count == 0) {
                    return Err("a row counts nothing under it");
                }
                let total = rows
                    .iter()
                    .try_fold(0u64, |sum, row| sum.checked_add(row.count));
                if total.is_none() {
                    return Err("the counts of the rows overflow");
                }
                check_keys(rows.iter().map(|row| row.key.as_slice()))
            }
        }
    }
}

fn check_keys<'k>(
    keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
) -> Result<(), &'static str> {
    if keys.len() == 0 || keys.len() > MAX_ROWS {
        return Err("a node has no rows, or too many");
    }
    if !is_strictly_ascending(keys) {
        return Err("the keys are not in ascending order");
    }
    Ok(())
}

/// Whether each item is above the one before it.
pub(super) fn is_strictly_ascending<T: PartialOrd>(items: impl Iterator<Item = T> + Clone) -> bool {
    items
        .clone()
        .zip(items.skip(1))
        .all(|(left, right)| left < right)
}

/// Where a lineage's source directory stood: the inode of its parent and the device of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceIdentity {
    /// The parent's device.
    pub device: u64,
    /// The parent's inode.
    pub inode: u64,
}

/// Whether a lineage accepts checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineageState {
    /// It does.
    Active,
    /// Another store is adopting it: readable, but closed to new checkpoints.
    Moving {
        /// The adopting store.
        to: StoreId,
    },
    /// Kept, out of use.
    Archived {
        /// Why, for people.
        reason: Vec<u8>,
        /// Since when.
        time: Time,
    },
}

impl LineageState {
    /// Whether the lineage is archived.
    pub const fn is_archived(&self) -> bool {
        matches!(self, Self::Archived { .. })
    }
}

/// A lineage object: the series of checkpoints of one source directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Its name, the key under which it stands.
    pub name: Vec<u8>,
    /// The canonical path of its source.
    pub source: Vec<u8>,
    /// The host that the source is on; may be empty.
    pub host: Vec<u8>,
    /// Where the source directory stood, if known.
    pub identity: Option<SourceIdentity>,
    /// The number of the next checkpoint; numbers start at 1 and are never reused.
    pub next_number: u64,
    /// Whether it accepts checkpoints.
    pub state: LineageState,
    /// Number → checkpoint entry.
    pub checkpoints: Option<ObjectId>,
    /// Role and key → number.
    pub keys: Option<ObjectId>,
    /// Tag → number.
    pub tags: Option<ObjectId>,
}

impl Lineage {
    /// The object's bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lineage breaks a rule of the format.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check()
            .map_err(|problem| Error::invalid("lineage", problem))?;
        let mut out = Encoder::tagged(b"lin1");
        out.bytes16(&self.name);
        out.bytes32(&self.source);
        out.bytes16(&self.host);
        out.opt(self.identity.as_ref(), |out, identity| {
            out.u64(identity.device);
            out.u64(identity.inode);
        });
        out.u64(self.next_number);
        match &self.state {
            LineageState::Active => out.u8(0),
            LineageState::Moving { to } => {
                out.u8(1);
                out.nonce(to);
            }
            LineageState::Archived { reason, time } => {
                out.u8(2);
                out.bytes32(reason);
                out.time(*time);
            }
        }
        for map in [&self.checkpoints, &self.keys, &self.tags] {
            out.opt(map.as_ref(), Encoder::id);
        }
        Ok(out.finish())
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If the bytes are anything but the encoding of one lineage.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        cursor.tag(b"lin1", "not a lineage")?;
        let lineage = Self {
            name: cursor.bytes16(MAX_LINEAGE_NAME_BYTES)?.to_vec(),
            source: cursor.bytes32(MAX_SOURCE_BYTES)?.to_vec(),
            host: cursor.bytes16(MAX_HOST_BYTES)?.to_vec(),
            identity: cursor.opt(|cursor| {
                Ok(SourceIdentity {
                    device: cursor.u64()?,
                    inode: cursor.u64()?,
                })
            })?,
            next_number: cursor.u64()?,
            state: match cursor.u8()? {
                0 => LineageState::Active,
                1 => LineageState::Moving {
                    to: cursor.nonce()?,
                },
                2 => LineageState::Archived {
                    reason: cursor.bytes32(MAX_REASON_BYTES)?.to_vec(),
                    time: cursor.time()?,
                },
                _ => return cursor.error("unknown state of a lineage"),
            },
            checkpoints: cursor.opt(Cursor::id)?,
            keys: cursor.opt(Cursor::id)?,
            tags: cursor.opt(Cursor::id)?,
        };
        cursor.finish()?;
        lineage.check().or_else(|problem| cursor.error(problem))?;
        Ok(lineage)
    }

    fn check(&self) -> Result<(), &'static str> {
        if !is_lineage_name(&self.name) {
            return Err("not the name of a lineage");
        }
        if !is_source(&self.source) {
            return Err("the source is not a canonical absolute path");
        }
        if self.host.len() > MAX_HOST_BYTES {
            return Err("the host name is too long");
        }
        if self.next_number == 0 {
            return Err("the next number is 0");
        }
        if let LineageState::Archived { reason, time } = &self.state {
            if reason.len() > MAX_REASON_BYTES {
                return Err("the reason for archiving is too long");
            }
            if time.nanoseconds >= 1_000_000_000 {
                return Err("nanoseconds out of range");
            }
        }
        Ok(())
    }
}

/// What may change about a checkpoint: the value of a row of a lineage's checkpoints map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    /// The checkpoint's id: that of its record.
    pub id: ObjectId,
    /// The record's time, repeated.
    pub time: Time,
    /// Whether retention may not drop it.
    pub pinned: bool,
    /// Its tags, sorted.
    pub tags: Vec<String>,
    /// A note; may be empty.
    pub note: Vec<u8>,
    /// A left-out object of the paths whose content was purged.
    pub purged: Option<ObjectId>,
}

impl CheckpointEntry {
    /// The entry of a new checkpoint.
    pub const fn new(id: ObjectId, time: Time) -> Self {
        Self {
            id,
            time,
            pinned: false,
            tags: Vec::new(),
            note: Vec::new(),
            purged: None,
        }
    }

    /// The value's bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the entry breaks a rule of the format.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check()
            .map_err(|problem| Error::invalid("checkpoint", problem))?;
        let mut out = Encoder::new();
        out.id(&self.id);
        out.time(self.time);
        out.u8(u8::from(self.pinned));
        out.count(self.tags.len());
        for tag in &self.tags {
            out.bytes16(tag.as_bytes());
        }
        out.bytes32(&self.note);
        out.opt(self.purged.as_ref(), Encoder::id);
        Ok(out.finish())
    }

    /// Reads the value.
    ///
    /// # Errors
    /// If the bytes are anything but the encoding of one entry.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        let id = cursor.id()?;
        let time = cursor.time()?;
        let pinned = match cursor.u8()? {
            0 => false,
            1 => true,
            _ => return cursor.error("unknown flags of a checkpoint"),
        };
        let count = cursor.count(2, MAX_TAGS)?;
        let mut tags = Vec::with_capacity(count);
        for _ in 0..count {
            match std::str::from_utf8(cursor.bytes16(MAX_TAG_BYTES)?) {
                Ok(tag) => tags.push(tag.to_owned()),
                Err(_) => return cursor.error("a tag is not UTF-8"),
            }
        }
        let note = cursor.bytes32(MAX_NOTE_BYTES)?.to_vec();
        let purged = cursor.opt(Cursor::id)?;
        cursor.finish()?;
        let entry = Self {
            id,
            time,
            pinned,
            tags,
            note,
            purged,
        };
        entry.check().or_else(|problem| cursor.error(problem))?;
        Ok(entry)
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.time.nanoseconds >= 1_000_000_000 {
            return Err("nanoseconds out of range");
        }
        if self.tags.len() > MAX_TAGS {
            return Err("it has 32 tags, and that is the most");
        }
        if !self.tags.iter().all(|tag| is_tag(tag)) {
            return Err("not a tag");
        }
        if !is_strictly_ascending(self.tags.iter()) {
            return Err("the tags are not in ascending order");
        }
        if self.note.len() > MAX_NOTE_BYTES {
            return Err("the note is longer than 4,096 bytes");
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
