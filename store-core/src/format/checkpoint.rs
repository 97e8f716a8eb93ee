//! Checkpoint records and the objects that hang on them, `docs/format.md` section 7 (hard links: section 6).
//!
//! `encode` keeps the same rules as `decode`, so that nothing is ever written that could not be read back.

use std::collections::HashSet;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::format::catalog::{MAX_HOST_BYTES, MAX_SOURCE_BYTES, is_source, is_strictly_ascending};
use crate::format::codec::{Cursor, Decoded, Encoder};
pub use crate::format::tree::{Extra, Owner};
use crate::id::{Nonce, ObjectId};
use crate::name::is_entry_name;

/// The longest message.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// The longest key.
pub const MAX_KEY_BYTES: usize = 1024;
/// The longest of the objects that hang on a record.
pub const MAX_LIST_BYTES: usize = 64 << 20;

/// Where in a turn a checkpoint stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Not part of a turn.
    #[default]
    None,
    /// Made before the agent acted.
    Before,
    /// Made after the agent acted.
    After,
}

impl Role {
    /// The byte in the format.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Before => 1,
            Self::After => 2,
        }
    }

    /// The role of a byte in the format.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::None,
            1 => Self::Before,
            2 => Self::After,
            _ => return None,
        })
    }

    /// The word for people and for JSON; `None` for [`Role::None`].
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Before => Some("before"),
            Self::After => Some("after"),
        }
    }
}

/// Who made the changes that a checkpoint captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// Not said.
    #[default]
    None,
    /// An agent.
    Agent,
    /// A person.
    Person,
    /// A watcher, on a person's behalf.
    Watch,
    /// A rollback.
    Rollback,
}

impl Actor {
    /// The byte in the format.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Agent => 1,
            Self::Person => 2,
            Self::Watch => 3,
            Self::Rollback => 4,
        }
    }

    /// The actor of a byte in the format.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::None,
            1 => Self::Agent,
            2 => Self::Person,
            3 => Self::Watch,
            4 => Self::Rollback,
            _ => return None,
        })
    }

    /// The word for people and for JSON; `None` for [`Actor::None`].
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Agent => Some("agent"),
            Self::Person => Some("person"),
            Self::Watch => Some("watch"),
            Self::Rollback => Some("rollback"),
        }
    }
}

/// Extended attributes: not captured, none, or an attribute object.
pub type XattrState = Extra;
/// Hard links: not captured, none, or a hard-link object.
pub type HardLinkState = Extra;

/// The metadata of the source directory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootMeta {
    /// Permission bits.
    pub mode: u16,
    /// Modification time.
    pub mtime: Time,
    /// The owner, if captured.
    pub owner: Option<Owner>,
    /// Extended attributes.
    pub xattrs: XattrState,
}

/// What a checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// The sum of the files' sizes.
    pub bytes: u64,
    /// Paths left out, each counted once at its top.
    pub left_out: u64,
}

/// An immutable checkpoint record. Its id is the checkpoint's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Random, so that no two records are alike.
    pub nonce: Nonce,
    /// The lineage's latest checkpoint when this one was committed.
    pub parent: Option<ObjectId>,
    /// When the walk started.
    pub time: Time,
    /// The message; any bytes, may be empty.
    pub message: Vec<u8>,
    /// The caller's key, for retries.
    pub key: Option<Vec<u8>>,
    /// Where in a turn it stands.
    pub role: Role,
    /// Who made the changes.
    pub actor: Actor,
    /// The canonical path of the source.
    pub source: Vec<u8>,
    /// The host; may be empty.
    pub host: Vec<u8>,
    /// The root tree.
    pub tree: ObjectId,
    /// The source directory's own metadata.
    pub root: RootMeta,
    /// What it holds.
    pub counts: Counts,
    /// False if something was unreadable or unstable.
    pub complete: bool,
    /// The rules object in force, if there were rules.
    pub rules: Option<ObjectId>,
    /// The left-out object, if something was left out.
    pub left_out: Option<ObjectId>,
    /// Hard links among its files.
    pub hard_links: HardLinkState,
    /// The wrote object: what the turn declared as written.
    pub wrote: Option<ObjectId>,
    /// The checkpoint that a rollback put back.
    pub rolled_back_to: Option<ObjectId>,
}

impl CheckpointRecord {
    /// The object's bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the record breaks a rule of the format.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check()
            .map_err(|problem| Error::invalid("checkpoint", problem))?;
        let mut out = Encoder::tagged(b"ckp1");
        out.nonce(&self.nonce);
        out.opt(self.parent.as_ref(), Encoder::id);
        out.time(self.time);
        out.bytes32(&self.message);
        out.opt(self.key.as_ref(), |out, key| out.bytes16(key));
        out.u8(self.role.to_byte());
        out.u8(self.actor.to_byte());
        out.bytes32(&self.source);
        out.bytes16(&self.host);
        out.id(&self.tree);
        encode_root(&self.root, &mut out);
        let counts = &self.counts;
        for count in [
            counts.files,
            counts.directories,
            counts.links,
            counts.bytes,
            counts.left_out,
        ] {
            out.u64(count);
        }
        out.flag(self.complete);
        out.opt(self.rules.as_ref(), Encoder::id);
        out.opt(self.left_out.as_ref(), Encoder::id);
        self.hard_links.write_tagged(&mut out);
        out.opt(self.wrote.as_ref(), Encoder::id);
        out.opt(self.rolled_back_to.as_ref(), Encoder::id);
        Ok(out.finish())
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If the bytes are anything but the encoding of one record.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        cursor.tag(b"ckp1", "not a checkpoint record")?;
        let record = Self {
            nonce: cursor.nonce()?,
            parent: cursor.opt(Cursor::id)?,
            time: cursor.time()?,
            message: cursor.bytes32(MAX_MESSAGE_BYTES)?.to_vec(),
            key: cursor.opt(|cursor| Ok(cursor.bytes16(MAX_KEY_BYTES)?.to_vec()))?,
            role: decode_role(&mut cursor)?,
            actor: decode_actor(&mut cursor)?,
            source: cursor.bytes32(MAX_SOURCE_BYTES)?.to_vec(),
            host: cursor.bytes16(MAX_HOST_BYTES)?.to_vec(),
            tree: cursor.id()?,
            root: decode_root(&mut cursor)?,
            counts: Counts {
                files: cursor.u64()?,
                directories: cursor.u64()?,
                links: cursor.u64()?,
                bytes: cursor.u64()?,
                left_out: cursor.u64()?,
            },
            complete: cursor.flag()?,
            rules: cursor.opt(Cursor::id)?,
            left_out: cursor.opt(Cursor::id)?,
            hard_links: Extra::read_tagged(&mut cursor)?,
            wrote: cursor.opt(Cursor::id)?,
            rolled_back_to: cursor.opt(Cursor::id)?,
        };
        cursor.finish()?;
        record.check().or_else(|problem| cursor.error(problem))?;
        Ok(record)
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.message.len() > MAX_MESSAGE_BYTES {
            return Err("the message is longer than 64 KiB");
        }
        if self
            .key
            .as_ref()
            .is_some_and(|key| key.is_empty() || key.len() > MAX_KEY_BYTES)
        {
            return Err("a key has 1 to 1,024 bytes");
        }
        if !is_source(&self.source) {
            return Err("the source is not a canonical absolute path");
        }
        if self.host.len() > MAX_HOST_BYTES {
            return Err("the host name is too long");
        }
        if self.root.mode > 0o7777 {
            return Err("the root's mode is out of range");
        }
        if self.time.nanoseconds >= 1_000_000_000 || self.root.mtime.nanoseconds >= 1_000_000_000 {
            return Err("nanoseconds out of range");
        }
        Ok(())
    }
}

fn encode_root(root: &RootMeta, out: &mut Encoder) {
    out.u16(root.mode);
    out.time(root.mtime);
    out.opt(root.owner.as_ref(), |out, owner| {
        out.u32(owner.uid);
        out.u32(owner.gid);
    });
    root.xattrs.write_tagged(out);
}

fn decode_root(cursor: &mut Cursor<'_>) -> Decoded<RootMeta> {
    Ok(RootMeta {
        mode: cursor.u16()?,
        mtime: cursor.time()?,
        owner: cursor.opt(|cursor| {
            Ok(Owner {
                uid: cursor.u32()?,
                gid: cursor.u32()?,
            })
        })?,
        xattrs: Extra::read_tagged(cursor)?,
    })
}

fn decode_role(cursor: &mut Cursor<'_>) -> Decoded<Role> {
    match Role::from_byte(cursor.u8()?) {
        Some(role) => Ok(role),
        None => cursor.error("unknown role"),
    }
}

fn decode_actor(cursor: &mut Cursor<'_>) -> Decoded<Actor> {
    match Actor::from_byte(cursor.u8()?) {
        Some(actor) => Ok(actor),
        None => cursor.error("unknown actor"),
    }
}

/// A rule that was in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rule file's path relative to the root, or `-default`, `-exclude`, `-option`.
    pub origin: Vec<u8>,
    /// The rule's text.
    pub rule: Vec<u8>,
}

/// Why a path is not in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOutReason {
    /// A rule excludes it.
    Rule,
    /// A socket, FIFO or device.
    Special,
    /// It could not be read. Makes a checkpoint incomplete.
    Unreadable,
    /// It kept changing while it was read. Makes a checkpoint incomplete.
    Unstable,
    /// It was there when its directory was listed, and gone after.
    Vanished,
    /// It is the store.
    Store,
    /// It is over a limit.
    Limit,
    /// It is on another file system.
    OtherFileSystem,
}

impl LeftOutReason {
    const ALL: [Self; 8] = [
        Self::Rule,
        Self::Special,
        Self::Unreadable,
        Self::Unstable,
        Self::Vanished,
        Self::Store,
        Self::Limit,
        Self::OtherFileSystem,
    ];

    /// The byte in the format.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Rule => 1,
            Self::Special => 2,
            Self::Unreadable => 3,
            Self::Unstable => 4,
            Self::Vanished => 5,
            Self::Store => 6,
            Self::Limit => 7,
            Self::OtherFileSystem => 8,
        }
    }

    /// The reason of a byte in the format.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.to_byte() == byte)
    }

    /// The word for people and for JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Special => "special",
            Self::Unreadable => "unreadable",
            Self::Unstable => "unstable",
            Self::Vanished => "vanished",
            Self::Store => "store",
            Self::Limit => "limit",
            Self::OtherFileSystem => "other_file_system",
        }
    }

    /// Whether a checkpoint that leaves something out for this reason is incomplete.
    pub const fn makes_incomplete(self) -> bool {
        matches!(self, Self::Unreadable | Self::Unstable)
    }
}

/// A path that is not in a checkpoint. A directory that is cut is listed once, at its top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Relative to the root; empty for the root itself.
    pub path: Vec<u8>,
    /// Why.
    pub reason: LeftOutReason,
    /// The rule, error, kind or limit.
    pub rule: Vec<u8>,
}

/// A path that a turn declared as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Relative to the root.
    pub path: Vec<u8>,
    /// BLAKE3 of the whole file; `None` means that the path was removed.
    pub digest: Option<[u8; 32]>,
}

/// Whether `path` is relative to a root: components joined by `/`, each one that a directory entry may have.
pub fn is_relative_path(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').all(is_entry_name)
}

/// The bytes of a rules object.
///
/// # Errors
/// [`Error::Invalid`] if there are no rules, or too many for one object.
pub fn encode_rules(rules: &[Rule]) -> Result<Vec<u8>> {
    encode_list(b"rul1", "rules", rules, &check_rules, |out, rule| {
        out.bytes32(&rule.origin);
        out.bytes32(&rule.rule);
    })
}

/// Reads a rules object: the rules in the order in which they apply.
///
/// # Errors
/// If the bytes are anything but the encoding of one rules object.
pub fn decode_rules(bytes: &[u8]) -> Decoded<Vec<Rule>> {
    decode_list(b"rul1", bytes, 8, &check_rules, |cursor| {
        Ok(Rule {
            origin: cursor.bytes32(MAX_LIST_BYTES)?.to_vec(),
            rule: cursor.bytes32(MAX_LIST_BYTES)?.to_vec(),
        })
    })
}

fn check_rules(rules: &[Rule]) -> Result<(), &'static str> {
    let known = |origin: &[u8]| {
        matches!(origin, b"-default" | b"-exclude" | b"-option") || is_relative_path(origin)
    };
    if rules.iter().all(|rule| known(&rule.origin)) {
        Ok(())
    } else {
        Err("the origin of a rule is neither a path nor a known word")
    }
}

/// The bytes of a left-out object. Paths must be in ascending order of their bytes, none twice.
///
/// # Errors
/// [`Error::Invalid`] if there is nothing, too much for one object, or a path that is no relative path.
pub fn encode_left_out(list: &[LeftOut]) -> Result<Vec<u8>> {
    encode_list(b"out1", "left out", list, &check_left_out, |out, left| {
        out.bytes32(&left.path);
        out.u8(left.reason.to_byte());
        out.bytes32(&left.rule);
    })
}

/// Reads a left-out object.
///
/// # Errors
/// If the bytes are anything but the encoding of one left-out object.
pub fn decode_left_out(bytes: &[u8]) -> Decoded<Vec<LeftOut>> {
    decode_list(b"out1", bytes, 9, &check_left_out, |cursor| {
        let path = cursor.bytes32(MAX_LIST_BYTES)?.to_vec();
        let Some(reason) = LeftOutReason::from_byte(cursor.u8()?) else {
            return cursor.error("unknown reason");
        };
        Ok(LeftOut {
            path,
            reason,
            rule: cursor.bytes32(MAX_LIST_BYTES)?.to_vec(),
        })
    })
}

fn check_left_out(list: &[LeftOut]) -> Result<(), &'static str> {
    if !list
        .iter()
        .all(|left| left.path.is_empty() || is_relative_path(&left.path))
    {
        return Err("not a relative path");
    }
    ascending(list.iter().map(|left| &left.path))
}

/// The bytes of a wrote object. Paths must be in ascending order of their bytes, none twice.
///
/// # Errors
/// [`Error::Invalid`] if there is nothing, too much for one object, or a path that is no relative path.
pub fn encode_wrote(list: &[Wrote]) -> Result<Vec<u8>> {
    encode_list(b"wro1", "wrote", list, &check_wrote, |out, wrote| {
        out.bytes32(&wrote.path);
        out.opt(wrote.digest.as_ref(), |out, digest| out.raw(digest));
    })
}

/// Reads a wrote object.
///
/// # Errors
/// If the bytes are anything but the encoding of one wrote object.
pub fn decode_wrote(bytes: &[u8]) -> Decoded<Vec<Wrote>> {
    decode_list(b"wro1", bytes, 5, &check_wrote, |cursor| {
        Ok(Wrote {
            path: cursor.bytes32(MAX_LIST_BYTES)?.to_vec(),
            digest: cursor.opt(|cursor| Ok(*cursor.id()?.as_bytes()))?,
        })
    })
}

fn check_wrote(list: &[Wrote]) -> Result<(), &'static str> {
    if !list.iter().all(|wrote| is_relative_path(&wrote.path)) {
        return Err("not a relative path");
    }
    ascending(list.iter().map(|wrote| &wrote.path))
}

/// The paths of one inode.
pub type HardLinkGroup = Vec<Vec<u8>>;

/// The bytes of a hard-link object. The paths of each group, and the groups by their first path, must be in ascending
/// order; no path twice.
///
/// # Errors
/// [`Error::Invalid`] if there is nothing, too much for one object, or a path that is no relative path.
pub fn encode_hard_links(groups: &[HardLinkGroup]) -> Result<Vec<u8>> {
    encode_list(
        b"hln1",
        "hard links",
        groups,
        &check_hard_links,
        |out, group| {
            out.count(group.len());
            for path in group {
                out.bytes32(path);
            }
        },
    )
}

/// Reads a hard-link object.
///
/// # Errors
/// If the bytes are anything but the encoding of one hard-link object.
pub fn decode_hard_links(bytes: &[u8]) -> Decoded<Vec<HardLinkGroup>> {
    decode_list(b"hln1", bytes, 4 + 2 * 5, &check_hard_links, |cursor| {
        let count = cursor.count(5, usize::MAX)?;
        (0..count)
            .map(|_| Ok(cursor.bytes32(MAX_LIST_BYTES)?.to_vec()))
            .collect()
    })
}

fn check_hard_links(groups: &[HardLinkGroup]) -> Result<(), &'static str> {
    let mut seen = HashSet::new();
    for group in groups {
        if group.len() < 2 {
            return Err("a group of hard links has fewer than two paths");
        }
        if !group.iter().all(|path| is_relative_path(path)) {
            return Err("not a relative path");
        }
        ascending(group.iter())?;
        if !group.iter().all(|path| seen.insert(path)) {
            return Err("a path is in two groups");
        }
    }
    ascending(groups.iter().map(|group| &group[0]))
}

fn ascending<'p>(paths: impl Iterator<Item = &'p Vec<u8>> + Clone) -> Result<(), &'static str> {
    if is_strictly_ascending(paths) {
        Ok(())
    } else {
        Err("the paths are not in ascending order")
    }
}

type Check<'c, T> = &'c dyn Fn(&[T]) -> Result<(), &'static str>;

fn encode_list<T>(
    tag: &[u8],
    what: &'static str,
    list: &[T],
    check: Check<'_, T>,
    write: impl Fn(&mut Encoder, &T),
) -> Result<Vec<u8>> {
    if list.is_empty() {
        return Err(Error::invalid(what, "an empty list has no object"));
    }
    check(list).map_err(|problem| Error::invalid(what, problem))?;
    let mut out = Encoder::tagged(tag);
    out.count(list.len());
    for item in list {
        write(&mut out, item);
        if out.len() > MAX_LIST_BYTES {
            return Err(Error::invalid(
                what,
                "the list is longer than an object may be (64 MiB)",
            ));
        }
    }
    Ok(out.finish())
}

fn decode_list<T>(
    tag: &[u8],
    bytes: &[u8],
    min_size: usize,
    check: Check<'_, T>,
    read: impl Fn(&mut Cursor<'_>) -> Decoded<T>,
) -> Decoded<Vec<T>> {
    let mut cursor = Cursor::new(bytes);
    if bytes.len() > MAX_LIST_BYTES {
        return cursor.error("longer than an object may be");
    }
    cursor.tag(tag, "an object of another kind")?;
    let count = cursor.count(min_size, usize::MAX)?;
    if count == 0 {
        return cursor.error("an empty list has no object");
    }
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(read(&mut cursor)?);
    }
    cursor.finish()?;
    check(&list).or_else(|problem| cursor.error(problem))?;
    Ok(list)
}

#[cfg(test)]
mod tests;
