//! The stat cache: what the files of a checkpoint looked like to `stat` when they were read. `docs/format.md` section 10.
//!
//! Read where it lies: [`StatCache::open`] checks the whole buffer's hash once, and everything after that borrows.
//! Directories are found by links from their parents, so a walk merges its sorted names with a block's sorted entries and
//! never builds a map. A subtree is one position-independent range of bytes, so a new cache copies it whole.

use crate::clock::Time;
use crate::format::codec::{Cursor, Decoded, Encoder};
use crate::format::tree::{EntryRef, Kind, MODE_BITS, Node, Owner};
use crate::id::{Nonce, ObjectId, StoreId};

const MAGIC: &[u8; 8] = b"GENSTATC";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 4 + 16 + 16 + 32 + 32 + 32 + 12 + 8;
/// Where the header names the checkpoint: behind magic, version, zero, store, epoch and lineage.
const CHECKPOINT_AT: usize = 8 + 4 + 4 + 16 + 16 + 32;
const TRAILER_BYTES: usize = 32;
const BLOCK_HEAD_BYTES: usize = 8 + 8 + 8 + 32 + 4;
/// The shortest entry: a directory of a one-byte name without owner, and its distance.
const MIN_ENTRY_BYTES: usize = 22 + 8;

const RACY: u8 = 1;
const OWN_DEVICE: u8 = 2;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

/// What `lstat` says about a file, as far as it shows whether the file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The whole of `st_mode`: kind and permission bits.
    pub mode: u32,
    /// The size in bytes.
    pub size: u64,
    /// When the content was last modified.
    pub mtime: Time,
    /// When the inode was last changed.
    pub ctime: Time,
    /// Whose it is.
    pub owner: Owner,
}

impl FileStat {
    /// The permission bits.
    pub fn permissions(&self) -> u16 {
        u16::try_from(self.mode & u32::from(MODE_BITS)).unwrap_or(MODE_BITS)
    }

    /// Whether the file could change once more without its times showing it, at a walk that began at `walk_start`.
    pub fn is_racy(&self, walk_start: Time, window_s: i64) -> bool {
        self.mtime.max(self.ctime) >= walk_start.minus_seconds(window_s)
    }
}

/// What a stat cache describes. It is used only for exactly this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHeader {
    /// The store.
    pub store: StoreId,
    /// The epoch's nonce.
    pub epoch: Nonce,
    /// The BLAKE3 of the lineage's name.
    pub lineage: ObjectId,
    /// The checkpoint whose trees the cache names.
    pub checkpoint: ObjectId,
    /// The BLAKE3 of the ids of the packs that were known to be missing or damaged.
    pub damage: ObjectId,
    /// When the walk began.
    pub walk_start: Time,
}

/// A stat cache whose hash was checked. Entries are decoded as they are met; a problem there only means "not cached".
#[derive(Clone, Copy, Debug)]
pub struct StatCache<'a> {
    body: &'a [u8],
    header: CacheHeader,
    root: usize,
}

impl<'a> StatCache<'a> {
    /// Checks magic, version and hash of the whole buffer.
    ///
    /// # Errors
    /// If anything is not as it was written. The caller then goes on without a cache.
    pub fn open(bytes: &'a [u8]) -> Decoded<Self> {
        let mut cursor = Cursor::new(bytes);
        if bytes.len() < HEADER_BYTES + BLOCK_HEAD_BYTES + TRAILER_BYTES {
            return cursor.error("too short for a stat cache");
        }
        cursor.tag(MAGIC, "not a stat cache")?;
        if cursor.u32()? != VERSION || cursor.u32()? != 0 {
            return cursor.error("unknown version of the stat cache");
        }
        let header = CacheHeader {
            store: cursor.nonce()?,
            epoch: cursor.nonce()?,
            lineage: cursor.id()?,
            checkpoint: cursor.id()?,
            damage: cursor.id()?,
            walk_start: cursor.time()?,
        };
        let root = cursor.u64()?;
        let (body, trailer) = bytes.split_at(bytes.len() - TRAILER_BYTES);
        if blake3::hash(body).as_bytes() != trailer {
            return cursor.error("the stat cache's hash is wrong");
        }
        match usize::try_from(root) {
            Ok(root) if root >= HEADER_BYTES && root < body.len() => {
                Ok(Self { body, header, root })
            }
            _ => cursor.error("the root's block is out of bounds"),
        }
    }

    /// What it describes.
    pub const fn header(&self) -> &CacheHeader {
        &self.header
    }

    /// The root directory.
    ///
    /// # Errors
    /// If its block cannot be what was written.
    pub fn root(&self) -> Decoded<CachedDir<'a>> {
        self.directory_at(self.root)
    }

    /// The directory whose block begins there, as [`CachedLink::Directory`] says.
    ///
    /// # Errors
    /// If there is no block.
    pub fn directory_at(&self, start: usize) -> Decoded<CachedDir<'a>> {
        let mut cursor = Cursor::new(self.body);
        if start < HEADER_BYTES {
            return cursor.error("a block in the header");
        }
        cursor.take(start)?;
        let length = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
        let subtree = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
        let Some(end) = start
            .checked_add(length)
            .filter(|&end| end <= self.body.len())
        else {
            return cursor.error("a block that goes on behind the end");
        };
        if length < BLOCK_HEAD_BYTES || subtree < length || subtree > end - HEADER_BYTES {
            return cursor.error("lengths of a block that cannot be");
        }
        // Of the block's own bytes only: what lies behind it has no say in how many entries it can have.
        let mut cursor = Cursor::new(&self.body[..end]);
        cursor.take(start + 2 * 8)?;
        let device = cursor.u64()?;
        let tree = cursor.id()?;
        let count = cursor.count(MIN_ENTRY_BYTES, usize::MAX)?;
        Ok(CachedDir {
            bytes: &self.body[..end],
            start,
            subtree,
            device,
            tree,
            count,
        })
    }

    /// The directory of that path (components joined by `/`, empty for the root), found from the root by links.
    ///
    /// # Errors
    /// If a block on the way cannot be what was written.
    pub fn find(&self, path: &[u8]) -> Decoded<Option<CachedDir<'a>>> {
        let mut directory = self.root()?;
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            let mut found = None;
            for entry in directory.entries() {
                let entry = entry?;
                if entry.entry.name == name {
                    found = Some(entry.link);
                    break;
                }
            }
            let Some(CachedLink::Directory { block }) = found else {
                return Ok(None);
            };
            directory = self.directory_at(block)?;
        }
        Ok(Some(directory))
    }
}

/// One directory of a stat cache.
#[derive(Clone, Copy, Debug)]
pub struct CachedDir<'a> {
    /// The cache's bytes up to the end of this block.
    bytes: &'a [u8],
    start: usize,
    subtree: usize,
    device: u64,
    tree: ObjectId,
    count: usize,
}

impl<'a> CachedDir<'a> {
    /// The id of its tree object.
    pub const fn tree(&self) -> ObjectId {
        self.tree
    }

    /// How many entries it has.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no entries.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The device that it and (unless they say otherwise) its files are on.
    pub const fn device(&self) -> u64 {
        self.device
    }

    /// Its entries, sorted by name. After an error the iteration ends.
    pub fn entries(&self) -> CachedEntries<'a> {
        CachedEntries {
            directory: *self,
            at: self.start + BLOCK_HEAD_BYTES,
            left: self.count,
            ended: false,
        }
    }

    /// The entry at a place that [`CachedEntry::at`] gave.
    ///
    /// # Errors
    /// If there is none.
    pub fn entry_at(&self, at: usize) -> Decoded<CachedEntry<'a>> {
        let mut cursor = Cursor::new(self.bytes);
        cursor.take(at)?;
        let entry = EntryRef::decode(&mut cursor)?;
        let tree_end = cursor.position();
        let link = match entry.kind() {
            Kind::Directory => {
                let distance = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
                match self.start.checked_sub(distance) {
                    Some(block) if distance > 0 => CachedLink::Directory { block },
                    _ => return cursor.error("a distance that leads nowhere"),
                }
            }
            Kind::File | Kind::Symlink => self.leaf(&mut cursor)?,
        };
        let end = cursor.position();
        Ok(CachedEntry {
            entry,
            link,
            at,
            encoded: &self.bytes[at..tree_end],
            whole: &self.bytes[at..end],
        })
    }

    fn leaf(&self, cursor: &mut Cursor<'a>) -> Decoded<CachedLink> {
        let flags = cursor.u8()?;
        if flags & !(RACY | OWN_DEVICE) != 0 {
            return cursor.error("unknown flags");
        }
        let inode = cursor.u64()?;
        let ctime = cursor.time()?;
        let device = if flags & OWN_DEVICE == 0 {
            self.device
        } else {
            cursor.u64()?
        };
        Ok(CachedLink::Leaf {
            racy: flags & RACY != 0,
            device,
            inode,
            ctime,
        })
    }

    /// This directory and all below it, to be copied into the next cache as they are.
    pub const fn subtree(&self) -> Subtree {
        let end = self.bytes.len();
        Subtree {
            piece: Piece::Old {
                start: end - self.subtree,
                end,
            },
            bytes: self.subtree as u64,
            block_bytes: (end - self.start) as u64,
        }
    }
}

/// Where an entry leads, or what its file looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedLink {
    /// A directory.
    Directory {
        /// Where its block begins, for [`StatCache::directory_at`].
        block: usize,
    },
    /// A file or link.
    Leaf {
        /// Its times do not prove that it is unchanged.
        racy: bool,
        /// Its device.
        device: u64,
        /// Its inode.
        inode: u64,
        /// When its inode was last changed.
        ctime: Time,
    },
}

/// One entry of a cached directory.
#[derive(Clone, Copy, Debug)]
pub struct CachedEntry<'a> {
    /// The tree entry.
    pub entry: EntryRef<'a>,
    /// What belongs to it.
    pub link: CachedLink,
    /// Where it lies, for [`CachedDir::entry_at`].
    pub at: usize,
    /// The tree entry's encoding, as the directory's tree object holds it.
    pub encoded: &'a [u8],
    whole: &'a [u8],
}

impl CachedEntry<'_> {
    /// Whether a file or link that looks like this now is proven to be the one that was read then.
    pub fn proves_unchanged(&self, now: &FileStat) -> bool {
        let CachedLink::Leaf {
            racy,
            device,
            inode,
            ctime,
        } = self.link
        else {
            return false;
        };
        let (kind, size) = match &self.entry.node {
            Node::File { size, .. } => (S_IFREG, *size),
            Node::Symlink { target } => (S_IFLNK, target.len() as u64),
            Node::Directory { .. } => return false,
        };
        !racy
            && now.mode & S_IFMT == kind
            && now.permissions() == self.entry.mode
            && now.size == size
            && now.inode == inode
            && now.device == device
            && now.mtime == self.entry.mtime
            && now.ctime == ctime
            && self.entry.owner == Some(now.owner)
    }
}

/// The entries of a cached directory.
#[derive(Debug)]
pub struct CachedEntries<'a> {
    directory: CachedDir<'a>,
    at: usize,
    left: usize,
    ended: bool,
}

impl<'a> Iterator for CachedEntries<'a> {
    type Item = Decoded<CachedEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = if self.left > 0 {
            self.directory.entry_at(self.at)
        } else {
            self.ended = true;
            if self.at == self.directory.bytes.len() {
                return None;
            }
            Cursor::new(self.directory.bytes).error("bytes left over in a block")
        };
        match &step {
            Ok(entry) => {
                self.at += entry.whole.len();
                self.left -= 1;
            }
            Err(_) => self.ended = true,
        }
        Some(step)
    }
}

#[derive(Clone, Copy, Debug)]
enum Piece {
    /// A range of the old cache.
    Old { start: usize, end: usize },
    /// A new block of the builder.
    New(usize),
}

/// A directory and all below it, ready for the next cache.
#[derive(Clone, Copy, Debug)]
pub struct Subtree {
    piece: Piece,
    bytes: u64,
    block_bytes: u64,
}

/// One directory's block in the making.
#[derive(Debug)]
pub struct BlockWriter {
    encoder: Encoder,
    device: u64,
    children: Vec<Subtree>,
    children_bytes: u64,
    /// Bytes of the children that were linked so far, and how many they are.
    linked: (u64, usize),
}

impl BlockWriter {
    /// Begins the block of a directory whose sub-directories, in name order, are `children`.
    pub fn new(device: u64, tree: &ObjectId, count: usize, children: Vec<Subtree>) -> Self {
        let children_bytes = children.iter().map(|child| child.bytes).sum();
        let mut encoder = Encoder::new();
        encoder.u64(device);
        encoder.id(tree);
        encoder.count(count);
        Self {
            encoder,
            device,
            children,
            children_bytes,
            linked: (0, 0),
        }
    }

    /// A file or link that was not read again.
    pub fn kept(&mut self, cached: &CachedEntry<'_>) {
        // "The directory's device" means the one of the block that it was copied from.
        match cached.link {
            CachedLink::Leaf {
                racy,
                device,
                inode,
                ctime,
            } if device != self.device => {
                self.encoder.raw(cached.encoded);
                self.link(racy, device, inode, ctime);
            }
            _ => self.encoder.raw(cached.whole),
        }
    }

    /// A file or link that was read.
    pub fn leaf(&mut self, entry: &EntryRef<'_>, stat: &FileStat, racy: bool) {
        entry.encode(&mut self.encoder);
        self.link(racy, stat.device, stat.inode, stat.ctime);
    }

    fn link(&mut self, racy: bool, device: u64, inode: u64, ctime: Time) {
        let own = device != self.device;
        self.encoder
            .u8(if racy { RACY } else { 0 } | if own { OWN_DEVICE } else { 0 });
        self.encoder.u64(inode);
        self.encoder.time(ctime);
        if own {
            self.encoder.u64(device);
        }
    }

    /// The next sub-directory.
    ///
    /// # Panics
    /// If there are more of them than children were given.
    pub fn directory(&mut self, entry: &EntryRef<'_>) {
        let (bytes, index) = self.linked;
        let child = self
            .children
            .get(index)
            .expect("BUG: more directories than children");
        let child_end = bytes + child.bytes;
        entry.encode(&mut self.encoder);
        self.encoder
            .u64(self.children_bytes - child_end + child.block_bytes);
        self.linked = (child_end, index + 1);
    }
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    subtree_bytes: u64,
    children: Vec<Subtree>,
}

/// Names the checkpoint that an unsealed cache describes, and adds the hash over all of it.
pub fn seal(unsealed: &mut Vec<u8>, checkpoint: &ObjectId) {
    if let Some(field) = unsealed.get_mut(CHECKPOINT_AT..CHECKPOINT_AT + ObjectId::LEN) {
        field.copy_from_slice(checkpoint.as_bytes());
    }
    let hash = blake3::hash(unsealed);
    unsealed.extend_from_slice(hash.as_bytes());
}

/// Collects the blocks of a new stat cache, in any order, children before parents.
#[derive(Debug)]
pub struct StatCacheBuilder<'a> {
    old: Option<StatCache<'a>>,
    blocks: Vec<Block>,
}

impl<'a> StatCacheBuilder<'a> {
    /// Begins a cache that may take over subtrees of `old`.
    pub const fn new(old: Option<StatCache<'a>>) -> Self {
        Self {
            old,
            blocks: Vec::new(),
        }
    }

    /// Takes a finished block.
    pub fn add(&mut self, block: BlockWriter) -> Subtree {
        debug_assert_eq!(
            block.linked.1,
            block.children.len(),
            "every child was linked"
        );
        let bytes = block.encoder.finish();
        let block_bytes = bytes.len() as u64 + 16;
        let subtree_bytes = block.children_bytes + block_bytes;
        self.blocks.push(Block {
            bytes,
            subtree_bytes,
            children: block.children,
        });
        Subtree {
            piece: Piece::New(self.blocks.len() - 1),
            bytes: subtree_bytes,
            block_bytes,
        }
    }

    /// The whole cache: `root` and everything under it.
    pub fn encode(&self, root: &Subtree, header: &CacheHeader) -> Vec<u8> {
        let mut bytes = self.encode_unsealed(root, header);
        seal(&mut bytes, &header.checkpoint);
        bytes
    }

    /// The same without its trailer: the checkpoint is named, and the hash added, by [`seal`].
    pub fn encode_unsealed(&self, root: &Subtree, header: &CacheHeader) -> Vec<u8> {
        let mut out = Encoder::tagged(MAGIC);
        out.u32(VERSION);
        out.u32(0);
        out.nonce(&header.store);
        out.nonce(&header.epoch);
        out.id(&header.lineage);
        out.id(&header.checkpoint);
        out.id(&header.damage);
        out.time(header.walk_start);
        out.u64(HEADER_BYTES as u64 + root.bytes - root.block_bytes);
        self.write_subtree(root, &mut out);
        out.finish()
    }

    /// Children first, with a stack of its own: trees may be as deep as the format allows.
    fn write_subtree(&self, root: &Subtree, out: &mut Encoder) {
        let mut stack = vec![(root.piece, 0)];
        while let Some((piece, next_child)) = stack.pop() {
            match piece {
                Piece::Old { start, end } => {
                    let old = self.old.as_ref().and_then(|old| old.body.get(start..end));
                    out.raw(old.expect("BUG: a range of another cache"));
                }
                Piece::New(index) => {
                    let block = &self.blocks[index];
                    if let Some(child) = block.children.get(next_child) {
                        stack.push((piece, next_child + 1));
                        stack.push((child.piece, 0));
                    } else {
                        out.u64(block.bytes.len() as u64 + 16);
                        out.u64(block.subtree_bytes);
                        out.raw(&block.bytes);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::content::Content;
    use crate::format::tree::{Entry, Extra};

    const OWNER: Owner = Owner { uid: 1, gid: 2 };
    const MTIME: Time = Time {
        seconds: 1000,
        nanoseconds: 5,
    };
    const CTIME: Time = Time {
        seconds: 1001,
        nanoseconds: 6,
    };

    fn header() -> CacheHeader {
        CacheHeader {
            store: Nonce::from_bytes([1; 16]),
            epoch: Nonce::from_bytes([2; 16]),
            lineage: ObjectId::of(b"lineage"),
            checkpoint: ObjectId::of(b"checkpoint"),
            damage: ObjectId::of(b"damage"),
            walk_start: Time {
                seconds: 2000,
                nanoseconds: 0,
            },
        }
    }

    fn entry<'a>(name: &'a [u8], node: Node<&'a [u8]>) -> EntryRef<'a> {
        Entry {
            name,
            mode: 0o644,
            mtime: MTIME,
            owner: Some(OWNER),
            xattrs: Extra::NotCaptured,
            node,
        }
    }

    fn file(name: &[u8]) -> EntryRef<'_> {
        entry(
            name,
            Node::File {
                size: 3,
                content: Content::Chunk(ObjectId::of(b"abc")),
                holes: Extra::NotCaptured,
            },
        )
    }

    fn stat() -> FileStat {
        FileStat {
            device: 7,
            inode: 9,
            mode: S_IFREG | 0o644,
            size: 3,
            mtime: MTIME,
            ctime: CTIME,
            owner: OWNER,
        }
    }

    fn tree(name: &[u8]) -> ObjectId {
        ObjectId::of(name)
    }

    /// `a/{x,y/{z}}  b/  f`
    fn build() -> Vec<u8> {
        let mut builder = StatCacheBuilder::new(None);
        let mut y = BlockWriter::new(7, &tree(b"y"), 1, Vec::new());
        y.leaf(&file(b"z"), &stat(), true);
        let y = builder.add(y);
        let b = builder.add(BlockWriter::new(7, &tree(b"b"), 0, Vec::new()));
        let mut a = BlockWriter::new(7, &tree(b"a"), 2, vec![y]);
        a.leaf(&file(b"x"), &stat(), false);
        a.directory(&entry(b"y", Node::Directory { tree: tree(b"y") }));
        let a = builder.add(a);
        let mut root = BlockWriter::new(7, &tree(b""), 3, vec![a, b]);
        root.directory(&entry(b"a", Node::Directory { tree: tree(b"a") }));
        root.directory(&entry(b"b", Node::Directory { tree: tree(b"b") }));
        root.leaf(
            &file(b"f"),
            &FileStat {
                device: 8,
                ..stat()
            },
            false,
        );
        let root = builder.add(root);
        builder.encode(&root, &header())
    }

    fn names(directory: &CachedDir<'_>) -> Vec<String> {
        directory
            .entries()
            .map(|e| String::from_utf8(e.unwrap().entry.name.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn directories_are_found_by_links() {
        let bytes = build();
        let cache = StatCache::open(&bytes).unwrap();
        assert_eq!(*cache.header(), header());
        for (path, expected) in [
            ("", vec!["a", "b", "f"]),
            ("a", vec!["x", "y"]),
            ("a/y", vec!["z"]),
            ("b", vec![]),
        ] {
            let directory = cache.find(path.as_bytes()).unwrap().unwrap();
            assert_eq!(names(&directory), expected, "{path}");
            assert_eq!(
                directory.tree(),
                tree(path.rsplit('/').next().unwrap().as_bytes())
            );
        }
        assert!(cache.find(b"c").unwrap().is_none());
        assert!(cache.find(b"f").unwrap().is_none());
    }

    #[test]
    fn a_subtree_is_copied_into_the_next_cache_as_it_is() {
        let bytes = build();
        let cache = StatCache::open(&bytes).unwrap();
        let mut builder = StatCacheBuilder::new(Some(cache));
        let a = cache.find(b"a").unwrap().unwrap().subtree();
        let b = cache.find(b"b").unwrap().unwrap().subtree();
        let old = cache.root().unwrap();
        let mut root = BlockWriter::new(7, &old.tree(), 3, vec![a, b]);
        for cached in old.entries() {
            let cached = cached.unwrap();
            match cached.link {
                CachedLink::Directory { .. } => root.directory(&cached.entry),
                CachedLink::Leaf { .. } => root.kept(&cached),
            }
        }
        let root = builder.add(root);
        assert_eq!(builder.encode(&root, &header()), bytes);
        let whole = StatCacheBuilder::new(Some(cache)).encode(&old.subtree(), &header());
        assert_eq!(whole, bytes);
    }

    #[test]
    fn only_an_identical_stat_proves_that_a_file_is_unchanged() {
        let bytes = build();
        let cache = StatCache::open(&bytes).unwrap();
        let directory = cache.find(b"a").unwrap().unwrap();
        let cached = directory.entries().next().unwrap().unwrap();
        assert!(cached.proves_unchanged(&stat()));
        let later = Time {
            seconds: 1000,
            nanoseconds: 6,
        };
        for changed in [
            FileStat {
                device: 8,
                ..stat()
            },
            FileStat { inode: 8, ..stat() },
            FileStat {
                mode: S_IFREG | 0o600,
                ..stat()
            },
            FileStat {
                mode: S_IFLNK | 0o644,
                ..stat()
            },
            FileStat { size: 4, ..stat() },
            FileStat {
                mtime: later,
                ..stat()
            },
            FileStat {
                ctime: later,
                ..stat()
            },
            FileStat {
                owner: Owner { uid: 0, gid: 2 },
                ..stat()
            },
        ] {
            assert!(!cached.proves_unchanged(&changed), "{changed:?}");
        }
        let racy = cache
            .find(b"a/y")
            .unwrap()
            .unwrap()
            .entries()
            .next()
            .unwrap()
            .unwrap();
        assert!(!racy.proves_unchanged(&stat()));
        let own_device = cache.root().unwrap().entries().nth(2).unwrap().unwrap();
        assert!(own_device.proves_unchanged(&FileStat {
            device: 8,
            ..stat()
        }));
        assert!(!own_device.proves_unchanged(&stat()));
    }

    #[test]
    fn the_racy_window_counts_both_times_and_the_future() {
        let at = |mtime, ctime| FileStat {
            mtime: Time {
                seconds: mtime,
                nanoseconds: 0,
            },
            ctime: Time {
                seconds: ctime,
                nanoseconds: 0,
            },
            ..stat()
        };
        let start = Time {
            seconds: 100,
            nanoseconds: 0,
        };
        assert!(!at(97, 97).is_racy(start, 2));
        assert!(at(98, 0).is_racy(start, 2));
        assert!(at(0, 98).is_racy(start, 2));
        assert!(at(5000, 0).is_racy(start, 2));
        assert!(at(0, 41).is_racy(start, 60));
        assert!(!at(0, 39).is_racy(start, 60));
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let bytes = build();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(StatCache::open(&changed).is_err(), "{at}");
        }
        for end in 0..bytes.len() {
            assert!(StatCache::open(&bytes[..end]).is_err(), "{end}");
        }
    }

    /// A forged cache with a right hash must not make a reader panic or run for ever.
    #[test]
    fn a_forged_cache_is_only_ever_not_cached() {
        let bytes = build();
        for at in HEADER_BYTES - 8..bytes.len() - TRAILER_BYTES {
            for value in [0, 1, 0x7f, 0xff] {
                let mut forged = bytes.clone();
                forged[at] = value;
                let end = forged.len() - TRAILER_BYTES;
                let hash = *blake3::hash(&forged[..end]).as_bytes();
                forged[end..].copy_from_slice(&hash);
                let Ok(cache) = StatCache::open(&forged) else {
                    continue;
                };
                let mut seen = 0;
                let mut todo: Vec<_> = cache.root().into_iter().collect();
                while let Some(directory) = todo.pop() {
                    for entry in directory.entries().map_while(Result::ok) {
                        seen += 1;
                        if let CachedLink::Directory { block } = entry.link {
                            todo.extend(cache.directory_at(block));
                        }
                    }
                }
                assert!(seen < 100);
            }
        }
    }
}
