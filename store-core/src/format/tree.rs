//! Tree objects, one per directory: `docs/format.md` section 6.
//!
//! [`TreeRef`] walks the entries of encoded bytes without allocating; [`Tree`] owns them. Both reject whatever is not
//! the one encoding of its content.

use crate::clock::Time;
use crate::format::codec::{Cursor, Decoded, Encoder};
use crate::format::content::Content;
use crate::id::ObjectId;
use crate::name::{MAX_NAME_BYTES, is_entry_name};

const TAG: &[u8; 4] = b"tre1";
/// The longest tree object, in bytes (`docs/format.md` section 11).
pub const MAX_TREE_BYTES: usize = 64 << 20;
/// How deep trees may nest (`docs/format.md` section 11).
pub const MAX_DEPTH: usize = 4096;
/// The longest target of a symbolic link, in bytes.
pub const MAX_TARGET_BYTES: usize = 65_535;
/// The permission bits that a mode may have.
pub const MODE_BITS: u16 = 0o7777;
/// The shortest entry: a link with a name and a target of one byte each.
const MIN_ENTRY_BYTES: usize = 22;

const OWNER: u8 = 1;
const XATTRS_SHIFT: u8 = 1;
const HOLES_SHIFT: u8 = 3;

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Something about a file that is an object of its own. "Not captured" differs from "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Extra {
    /// Nobody looked.
    #[default]
    NotCaptured,
    /// There is none.
    Absent,
    /// There is, in this object.
    Present(ObjectId),
}

impl Extra {
    /// The object, if there is one.
    pub const fn object(&self) -> Option<&ObjectId> {
        match self {
            Self::Present(id) => Some(id),
            Self::NotCaptured | Self::Absent => None,
        }
    }

    const fn state(self) -> u8 {
        match self {
            Self::NotCaptured => 0,
            Self::Absent => 1,
            Self::Present(_) => 2,
        }
    }

    fn encode(self, encoder: &mut Encoder) {
        if let Self::Present(id) = self {
            encoder.id(&id);
        }
    }

    fn decode(state: u8, cursor: &mut Cursor<'_>) -> Decoded<Self> {
        match state & 3 {
            0 => Ok(Self::NotCaptured),
            1 => Ok(Self::Absent),
            2 => Ok(Self::Present(cursor.id()?)),
            _ => cursor.error("unknown state of attributes or holes"),
        }
    }

    /// Writes the state as a byte of its own, and then the id: the form outside of trees.
    pub(crate) fn write_tagged(self, encoder: &mut Encoder) {
        encoder.u8(self.state());
        self.encode(encoder);
    }

    /// Reads what [`Self::write_tagged`] writes.
    pub(crate) fn read_tagged(cursor: &mut Cursor<'_>) -> Decoded<Self> {
        match cursor.u8()? {
            state @ 0..=2 => Self::decode(state, cursor),
            _ => cursor.error("neither captured nor not captured"),
        }
    }
}

/// What an entry is. `B` holds bytes: borrowed while walking an encoded tree, owned otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<B = Vec<u8>> {
    /// A regular file.
    File {
        /// Its length in bytes.
        size: u64,
        /// Its bytes.
        content: Content,
        /// Its holes.
        holes: Extra,
    },
    /// A directory.
    Directory {
        /// Its tree.
        tree: ObjectId,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points, as the bytes that `readlink` gave.
        target: B,
    },
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl Kind {
    /// One word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
        }
    }
}

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<B = Vec<u8>> {
    /// Its name: any bytes but `/` and NUL.
    pub name: B,
    /// Its permission bits.
    pub mode: u16,
    /// When it was last modified.
    pub mtime: Time,
    /// Whose it is, if that was captured.
    pub owner: Option<Owner>,
    /// Its extended attributes.
    pub xattrs: Extra,
    /// What it is.
    pub node: Node<B>,
}

/// An entry that borrows from the encoded tree.
pub type EntryRef<'a> = Entry<&'a [u8]>;

impl<B> Entry<B> {
    /// What kind of entry it is.
    pub const fn kind(&self) -> Kind {
        match self.node {
            Node::File { .. } => Kind::File,
            Node::Directory { .. } => Kind::Directory,
            Node::Symlink { .. } => Kind::Symlink,
        }
    }
}

impl<B: AsRef<[u8]>> Entry<B> {
    /// The same entry, owning its bytes.
    pub fn to_owned(&self) -> Entry {
        self.borrowed().map(<[u8]>::to_vec)
    }

    /// The same entry, borrowing its bytes.
    pub fn borrowed(&self) -> EntryRef<'_> {
        let node = match &self.node {
            Node::File {
                size,
                content,
                holes,
            } => Node::File {
                size: *size,
                content: *content,
                holes: *holes,
            },
            Node::Directory { tree } => Node::Directory { tree: *tree },
            Node::Symlink { target } => Node::Symlink {
                target: target.as_ref(),
            },
        };
        Entry {
            name: self.name.as_ref(),
            mode: self.mode,
            mtime: self.mtime,
            owner: self.owner,
            xattrs: self.xattrs,
            node,
        }
    }

    /// Writes the entry.
    ///
    /// # Panics
    /// If the name or a link's target is longer than the format allows: callers keep its limits.
    pub fn encode(&self, encoder: &mut Encoder) {
        let (kind, holes) = match &self.node {
            Node::File { holes, .. } => (1, *holes),
            Node::Directory { .. } => (2, Extra::NotCaptured),
            Node::Symlink { .. } => (3, Extra::NotCaptured),
        };
        encoder.u8(kind);
        let owner = if self.owner.is_some() { OWNER } else { 0 };
        encoder.u8(owner | self.xattrs.state() << XATTRS_SHIFT | holes.state() << HOLES_SHIFT);
        encoder.bytes16(self.name.as_ref());
        encoder.u16(self.mode);
        encoder.time(self.mtime);
        if let Some(owner) = self.owner {
            encoder.u32(owner.uid);
            encoder.u32(owner.gid);
        }
        self.xattrs.encode(encoder);
        holes.encode(encoder);
        match &self.node {
            Node::File { size, content, .. } => {
                encoder.u64(*size);
                content.encode(encoder);
            }
            Node::Directory { tree } => encoder.id(tree),
            Node::Symlink { target } => encoder.bytes16(target.as_ref()),
        }
    }
}

impl<'a> EntryRef<'a> {
    fn map<B>(self, own: impl Fn(&'a [u8]) -> B) -> Entry<B> {
        let node = match self.node {
            Node::File {
                size,
                content,
                holes,
            } => Node::File {
                size,
                content,
                holes,
            },
            Node::Directory { tree } => Node::Directory { tree },
            Node::Symlink { target } => Node::Symlink {
                target: own(target),
            },
        };
        Entry {
            name: own(self.name),
            mode: self.mode,
            mtime: self.mtime,
            owner: self.owner,
            xattrs: self.xattrs,
            node,
        }
    }

    /// Reads one entry, without allocating.
    ///
    /// # Errors
    /// If the bytes break a rule of `docs/format.md` section 6.
    pub fn decode(cursor: &mut Cursor<'a>) -> Decoded<Self> {
        let kind = cursor.u8()?;
        let flags = cursor.u8()?;
        if flags >> 5 != 0 {
            return cursor.error("unknown entry flags");
        }
        let name = cursor.bytes16(MAX_NAME_BYTES)?;
        if !is_entry_name(name) {
            return cursor.error("not a name for an entry");
        }
        let mode = cursor.u16()?;
        if mode > MODE_BITS {
            return cursor.error("mode out of range");
        }
        let mtime = cursor.time()?;
        let owner = if flags & OWNER == 0 {
            None
        } else {
            Some(Owner {
                uid: cursor.u32()?,
                gid: cursor.u32()?,
            })
        };
        let xattrs = Extra::decode(flags >> XATTRS_SHIFT, cursor)?;
        if kind != 1 && flags >> HOLES_SHIFT != 0 {
            return cursor.error("holes in what is not a file");
        }
        let node = match kind {
            1 => decode_file(flags, cursor)?,
            2 => Node::Directory { tree: cursor.id()? },
            3 => Node::Symlink {
                target: decode_target(cursor)?,
            },
            _ => return cursor.error("unknown kind of entry"),
        };
        Ok(Self {
            name,
            mode,
            mtime,
            owner,
            xattrs,
            node,
        })
    }
}

fn decode_file<'a>(flags: u8, cursor: &mut Cursor<'a>) -> Decoded<Node<&'a [u8]>> {
    let holes = Extra::decode(flags >> HOLES_SHIFT, cursor)?;
    let size = cursor.u64()?;
    let content = Content::decode(cursor)?;
    if !content.fits(size) {
        return cursor.error("content that does not fit the size");
    }
    Ok(Node::File {
        size,
        content,
        holes,
    })
}

fn decode_target<'a>(cursor: &mut Cursor<'a>) -> Decoded<&'a [u8]> {
    let target = cursor.bytes16(MAX_TARGET_BYTES)?;
    if target.is_empty() || target.contains(&0) {
        cursor.error("not a link's target")
    } else {
        Ok(target)
    }
}

/// Begins a tree of `count` entries; the caller then encodes exactly that many, sorted by name.
pub fn begin(encoder: &mut Encoder, count: usize) {
    encoder.raw(TAG);
    encoder.count(count);
}

/// An encoded tree, read where it lies.
#[derive(Clone, Copy, Debug)]
pub struct TreeRef<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> TreeRef<'a> {
    const HEAD_BYTES: usize = TAG.len() + 4;

    /// Looks at the head of an encoded tree. The entries are checked as they are read.
    ///
    /// # Errors
    /// If it is no tree, over the limit, or promises more entries than its bytes can hold.
    pub fn parse(bytes: &'a [u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        if bytes.len() > MAX_TREE_BYTES {
            return cursor.error("a tree over the limit");
        }
        cursor.tag(TAG, "not a tree")?;
        let count = cursor.count(MIN_ENTRY_BYTES, usize::MAX)?;
        Ok(Self { bytes, count })
    }

    /// How many entries it has.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no entry.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its entries in order. After an error the iteration ends; bytes left over are an error at the end.
    pub fn entries(&self) -> Entries<'a> {
        let mut cursor = Cursor::new(self.bytes);
        let skipped = cursor.take(Self::HEAD_BYTES);
        debug_assert!(skipped.is_ok(), "the head was parsed");
        Entries {
            cursor,
            left: self.count,
            last: None,
            ended: false,
        }
    }
}

/// The entries of an encoded tree.
#[derive(Debug)]
pub struct Entries<'a> {
    cursor: Cursor<'a>,
    left: usize,
    last: Option<&'a [u8]>,
    ended: bool,
}

impl<'a> Entries<'a> {
    fn step(&mut self) -> Decoded<Option<EntryRef<'a>>> {
        if self.left == 0 {
            self.cursor.finish()?;
            return Ok(None);
        }
        let entry = EntryRef::decode(&mut self.cursor)?;
        if self.last.is_some_and(|last| last >= entry.name) {
            return self.cursor.error("names out of order");
        }
        self.last = Some(entry.name);
        self.left -= 1;
        Ok(Some(entry))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Decoded<EntryRef<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step
    }
}

/// A directory: entries sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Its entries, sorted by name as unsigned bytes.
    pub entries: Vec<Entry>,
}

impl Tree {
    /// Reads a tree.
    ///
    /// # Errors
    /// If the bytes are not the one encoding of a tree.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let tree = TreeRef::parse(bytes)?;
        let entries = tree.entries().map(|entry| entry.map(|e| e.to_owned()));
        Ok(Self {
            entries: entries.collect::<Decoded<_>>()?,
        })
    }

    /// Writes the tree into `encoder`, which may hold memory of an earlier one.
    pub fn encode_into(&self, encoder: &mut Encoder) {
        begin(encoder, self.entries.len());
        for entry in &self.entries {
            entry.encode(encoder);
        }
    }

    /// The tree's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        self.encode_into(&mut encoder);
        encoder.finish()
    }

    /// The entry of that name.
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.name.as_slice().cmp(name))
            .ok()?;
        self.entries.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &[u8], size: u64, content: Content) -> Entry {
        Entry {
            name: name.to_vec(),
            mode: 0o644,
            mtime: Time {
                seconds: -5,
                nanoseconds: 7,
            },
            owner: Some(Owner {
                uid: 1000,
                gid: 100,
            }),
            xattrs: Extra::NotCaptured,
            node: Node::File {
                size,
                content,
                holes: Extra::NotCaptured,
            },
        }
    }

    fn sample() -> Tree {
        let id = ObjectId::of(b"x");
        let mut holed = file(b"c", 9 << 20, Content::List(id));
        holed.node = Node::File {
            size: 9 << 20,
            content: Content::List(id),
            holes: Extra::Present(id),
        };
        holed.xattrs = Extra::Absent;
        let mut directory = file(b"d", 0, Content::Empty);
        directory.node = Node::Directory { tree: id };
        directory.xattrs = Extra::Present(ObjectId::of(b"y"));
        directory.owner = None;
        let mut link = file(b"\xff\n", 0, Content::Empty);
        link.node = Node::Symlink {
            target: b"../\xfe".to_vec(),
        };
        Tree {
            entries: vec![
                file(b" a", 0, Content::Empty),
                file(b"b", 1, Content::Chunk(id)),
                holed,
                directory,
                link,
            ],
        }
    }

    #[test]
    fn what_is_decoded_encodes_to_the_same_bytes() {
        for tree in [Tree::default(), sample()] {
            let bytes = tree.encode();
            let decoded = Tree::decode(&bytes).unwrap();
            assert_eq!(decoded, tree);
            assert_eq!(decoded.encode(), bytes);
            assert_eq!(TreeRef::parse(&bytes).unwrap().len(), tree.entries.len());
        }
        assert_eq!(Tree::default().encode(), b"tre1\0\0\0\0");
        assert_eq!(sample().find(b"b"), Some(&sample().entries[1]));
        assert_eq!(sample().find(b"bb"), None);
    }

    #[test]
    fn every_truncation_and_every_extra_byte_is_rejected() {
        let bytes = sample().encode();
        for end in 0..bytes.len() {
            assert!(Tree::decode(&bytes[..end]).is_err(), "{end}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(Tree::decode(&longer).is_err());
    }

    #[test]
    fn a_changed_byte_never_decodes_to_the_same_tree() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                if let Ok(tree) = Tree::decode(&changed) {
                    assert_eq!(
                        tree.encode(),
                        changed,
                        "two encodings of one tree at byte {at}"
                    );
                }
            }
        }
    }

    fn rejected(entries: Vec<Entry>) -> &'static str {
        Tree::decode(&Tree { entries }.encode())
            .unwrap_err()
            .problem
    }

    #[test]
    fn each_rule_of_section_6_is_checked() {
        let id = ObjectId::of(b"x");
        let ok = |name: &[u8]| file(name, 1, Content::Chunk(id));
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(rejected(vec![ok(name)]), "not a name for an entry");
        }
        assert_eq!(
            rejected(vec![ok(&[b'n'; 4097])]),
            "a byte string is too long"
        );
        assert_eq!(rejected(vec![ok(b"b"), ok(b"a")]), "names out of order");
        assert_eq!(rejected(vec![ok(b"a"), ok(b"a")]), "names out of order");
        assert_eq!(
            rejected(vec![file(b"a", 1, Content::Empty)]),
            "content that does not fit the size"
        );
        assert_eq!(
            rejected(vec![file(b"a", 0, Content::Chunk(id))]),
            "content that does not fit the size"
        );
        assert_eq!(
            rejected(vec![file(b"a", 0, Content::List(id))]),
            "content that does not fit the size"
        );
        assert_eq!(
            rejected(vec![file(b"a", (8 << 20) + 1, Content::Chunk(id))]),
            "content that does not fit the size"
        );
        let mut mode = ok(b"a");
        mode.mode = 0o10000;
        assert_eq!(rejected(vec![mode]), "mode out of range");
        let mut time = ok(b"a");
        time.mtime.nanoseconds = 1_000_000_000;
        assert_eq!(rejected(vec![time]), "nanoseconds out of range");
        for target in [&b""[..], b"a\0"] {
            let mut link = ok(b"a");
            link.node = Node::Symlink {
                target: target.to_vec(),
            };
            assert_eq!(rejected(vec![link]), "not a link's target");
        }
    }

    #[test]
    fn unknown_kinds_flags_and_counts_are_rejected() {
        let bytes = Tree {
            entries: vec![sample().entries.swap_remove(4)],
        }
        .encode();
        let problem = |at: usize, value: u8| {
            let mut changed = bytes.clone();
            changed[at] = value;
            Tree::decode(&changed).unwrap_err().problem
        };
        assert_eq!(problem(8, 0), "unknown kind of entry");
        assert_eq!(problem(8, 4), "unknown kind of entry");
        assert_eq!(problem(9, 1 << 5), "unknown entry flags");
        assert_eq!(
            problem(9, 1 | 3 << 1),
            "unknown state of attributes or holes"
        );
        assert_eq!(problem(9, 1 | 1 << 3), "holes in what is not a file");
        assert_eq!(problem(7, 0xff), "a count is larger than what follows");
        assert_eq!(problem(3, b'2'), "not a tree");
    }
}
