//! What must hold for any bytes, one function a parser: no panic, bounded work, and whatever decodes encodes to the very same
//! bytes. libFuzzer drives them with its inputs, plain tests with the corpora.
//!
//! A hash that an input would have to guess is put right first, so that what lies behind it is reached too.

#![allow(
    clippy::missing_panics_doc,
    reason = "a property that does not hold panics: that is what they are for"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use store_core::catalog::{self, Catalog};
use store_core::format::catalog::{CatalogRoot, CheckpointEntry, Lineage, Node};
use store_core::format::checkpoint::{
    CheckpointRecord, decode_hard_links, decode_left_out, decode_rules, decode_wrote,
    encode_hard_links, encode_left_out, encode_rules, encode_wrote,
};
use store_core::format::codec::Decoded;
use store_core::format::content::{ChunkList, Content};
use store_core::format::manifest::{Manifest, Request};
use store_core::format::pack::{PackIndex, TRAILER_LEN, decode_pack, encode_header, encode_tail};
use store_core::format::selector;
use store_core::format::stat_cache::{CachedDir, CachedLink, StatCache, StatCacheBuilder};
use store_core::format::tree::{Tree, TreeRef};
use store_core::id::ObjectId;
use store_core::objects::ObjectSource;
use store_core::objects::chunker;
use store_core::objects::index::PackFile;
use store_core::objects::reader::PackSet;
use store_core::{Error, Result};

use crate::model::{self, Options};

/// A property of bytes. It panics if it does not hold.
pub type Property = fn(&[u8]);

/// Every property that has a fuzz target, by the target's name.
pub const ALL: [(&str, Property); 7] = [
    ("selector", selector),
    ("manifest", manifest),
    ("catalog", catalog),
    ("tree", tree),
    ("pack", pack),
    ("stat_cache", stat_cache),
    ("operations", operations),
];

/// Targets that must fail: they show that a failure would be seen.
pub const MUST_FAIL: [&str; 2] = ["canary", "operations_planted"];

/// How many objects a forged graph may make a reader look at.
const PATIENCE: u32 = 2000;

/// The bytes of CURRENT.
pub fn selector(bytes: &[u8]) {
    match selector::parse(bytes) {
        Ok(id) => assert_eq!(selector::render(&id), bytes),
        Err(problem) => assert!(!problem.is_empty()),
    }
}

/// `manifest.json`.
pub fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else {
        return;
    };
    let (id, sealed) = manifest.seal().expect("what was read can be written");
    assert_eq!(sealed, bytes);
    assert!(id.matches(bytes) && id.sequence() == manifest.sequence);
    if let Ok(request) = Request::parse(&manifest.operation) {
        assert_eq!(request.kind(), manifest.operation.kind);
        assert_eq!(request.to_map(), manifest.operation.request);
    }
}

/// Whatever decodes must encode to the same bytes; `true` if it does decode.
fn reencodes<T>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Decoded<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> bool {
    match decode(bytes) {
        Ok(value) => {
            assert!(encode(&value) == bytes, "two encodings of one content");
            true
        }
        Err(error) => {
            assert!(error.at <= bytes.len() && !error.problem.is_empty());
            false
        }
    }
}

/// The objects of a catalog and what hangs on them; then a whole catalog of such objects, linked at will.
pub fn catalog(bytes: &[u8]) {
    const WRITABLE: &str = "what was read can be written";
    let tagged = [
        reencodes(bytes, CatalogRoot::decode, CatalogRoot::encode),
        reencodes(bytes, Node::decode, |node| node.encode().expect(WRITABLE)),
        reencodes(bytes, Lineage::decode, |lineage| {
            lineage.encode().expect(WRITABLE)
        }),
        reencodes(bytes, CheckpointRecord::decode, |record| {
            record.encode().expect(WRITABLE)
        }),
        reencodes(bytes, decode_left_out, |list| {
            encode_left_out(list).expect(WRITABLE)
        }),
        reencodes(bytes, decode_rules, |list| {
            encode_rules(list).expect(WRITABLE)
        }),
        reencodes(bytes, decode_wrote, |list| {
            encode_wrote(list).expect(WRITABLE)
        }),
        reencodes(bytes, decode_hard_links, |list| {
            encode_hard_links(list).expect(WRITABLE)
        }),
    ];
    assert!(
        tagged.into_iter().filter(|decoded| *decoded).count() <= 1,
        "one object of two kinds"
    );
    reencodes(bytes, CheckpointEntry::decode, |entry| {
        entry.encode().expect(WRITABLE)
    });
    let graph = Graph::of(bytes);
    let Ok(catalog) = Catalog::open(&graph, &ObjectId::from_bytes([0; 32])) else {
        return;
    };
    catalog::check(&catalog);
    for lineage in catalog.lineages().map_while(Result::ok) {
        for checkpoint in lineage.newest_first().map_while(Result::ok) {
            catalog.record(&checkpoint.entry.id).ok();
        }
        lineage.latest().ok();
        lineage.back(3).ok();
    }
    catalog.discover(b"/home/someone/project").ok();
}

/// Objects that name each other however they like: the first byte of an id says which one is meant. A reader that relied
/// on ids being hashes would go round in circles.
struct Graph {
    objects: Vec<Vec<u8>>,
    patience: AtomicU32,
}

impl Graph {
    /// Cuts an input into objects, each behind its length.
    fn of(mut bytes: &[u8]) -> Self {
        let mut objects = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
            let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
            let (object, rest) = rest.split_at(length);
            objects.push(object.to_vec());
            bytes = rest;
        }
        Self {
            objects,
            patience: AtomicU32::new(PATIENCE),
        }
    }
}

impl ObjectSource for Graph {
    fn get(&self, id: &ObjectId, limit: usize) -> Result<Vec<u8>> {
        let missing = || Error::ObjectMissing {
            object: *id,
            place: "the input".into(),
            needed: None,
        };
        let patience = self
            .patience
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        patience.map_err(|_| missing())?;
        let object = self
            .objects
            .get(usize::from(id.as_bytes()[0]))
            .ok_or_else(missing)?;
        if object.len() <= limit {
            Ok(object.clone())
        } else {
            Err(missing())
        }
    }

    fn contains(&self, id: &ObjectId) -> Result<bool> {
        Ok(usize::from(id.as_bytes()[0]) < self.objects.len())
    }
}

/// Trees and chunk lists; then a file's content of such lists, linked at will.
pub fn tree(bytes: &[u8]) {
    if reencodes(bytes, Tree::decode, Tree::encode) {
        let tree = Tree::decode(bytes).expect("it just did");
        let borrowed = TreeRef::parse(bytes).expect("the head of a whole tree");
        assert_eq!(borrowed.len(), tree.entries.len());
        for (entry, borrowed) in tree.entries.iter().zip(borrowed.entries()) {
            assert_eq!(Ok(entry.borrowed()), borrowed);
            assert_eq!(tree.find(&entry.name), Some(entry));
        }
    }
    reencodes(bytes, ChunkList::decode, ChunkList::encode);
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let size = u64::from(u32::from_le_bytes(*size));
    let graph = Graph::of(rest);
    let content = Content::List(ObjectId::from_bytes([0; 32]));
    let mut written = 0;
    let mut write = |piece: &[u8]| {
        written += piece.len() as u64;
        assert!(written <= size, "more than the file's size");
        Ok(())
    };
    if chunker::read_content(&graph, &content, size, &mut write).is_ok() {
        assert_eq!(written, size, "less than the file's size");
    }
}

/// A pack that is read from memory.
struct MemoryPack(Vec<u8>);

impl PackFile for MemoryPack {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(buffer.len());
        let Some(bytes) = end.and_then(|end| self.0.get(start..end)) else {
            let source = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(Error::Io {
                op: "read",
                path: self.path(),
                source,
            });
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("memory.pack")
    }
}

/// A pack: its frame, every object in it, and what a check says about it.
pub fn pack(bytes: &[u8]) {
    check_pack(bytes.to_vec());
    if let Some(mended) = with_right_index_hash(bytes) {
        check_pack(mended);
    }
}

fn check_pack(bytes: Vec<u8>) {
    let id = ObjectId::of(&bytes);
    let decoded = match decode_pack(&bytes) {
        Ok(index) => {
            assert!(
                encode_pack(&bytes, &index) == bytes,
                "two encodings of one pack"
            );
            true
        }
        Err(_) => false,
    };
    let set = PackSet::new(
        "memory",
        vec![(id, Arc::new(MemoryPack(bytes)) as Arc<dyn PackFile>)],
    );
    let mut problems = 0;
    let report = set
        .verify_pack(0, &mut |_| problems += 1)
        .expect("the only pack");
    assert_eq!(report.problems, problems);
    assert_eq!(report.index_usable, decoded, "two opinions about one index");
    let mut good = 0;
    for row in set.objects(0).unwrap_or_default() {
        match set.get(&row.id, 1 << 20) {
            Ok(object) => {
                assert_eq!(ObjectId::of(&object), row.id, "an object with other bytes");
                good += 1;
            }
            Err(_) => assert!(report.bad.contains(&row.id) || row.length > 1 << 20),
        }
    }
    if decoded {
        assert!(
            good <= report.good,
            "an object that a check finds bad can be read"
        );
    }
}

/// The pack again, from what its index says.
fn encode_pack(bytes: &[u8], index: &PackIndex<&[u8]>) -> Vec<u8> {
    let blocks: Vec<_> = (0..index.block_count())
        .map(|block| index.block(block).expect("checked"))
        .collect();
    let objects: Vec<_> = index.objects().map(|row| row.expect("checked")).collect();
    let end = index.trailer().index_offset;
    let blocks_end = usize::try_from(end).expect("within the bytes");
    let mut again = encode_header();
    again.extend_from_slice(&bytes[again.len()..blocks_end]);
    again.extend(encode_tail(end, &blocks, &objects));
    again
}

/// The same bytes with the trailer's hash made that of the index, and its length that of the file.
fn with_right_index_hash(bytes: &[u8]) -> Option<Vec<u8>> {
    let tail_at = bytes.len().checked_sub(TRAILER_LEN)?;
    let offset = u64::from_le_bytes(*bytes[tail_at..].first_chunk()?);
    let start = usize::try_from(offset)
        .ok()
        .filter(|start| *start <= tail_at)?;
    let mut mended = bytes.to_vec();
    let hash = ObjectId::of(&bytes[start..tail_at]);
    mended[tail_at + 32..tail_at + 64].copy_from_slice(hash.as_bytes());
    mended[tail_at + 72..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    Some(mended)
}

/// A stat cache.
pub fn stat_cache(bytes: &[u8]) {
    const HASH_BYTES: usize = 32;
    check_stat_cache(bytes);
    if let Some(end) = bytes.len().checked_sub(HASH_BYTES) {
        let mut mended = bytes.to_vec();
        let hash = ObjectId::of(&bytes[..end]);
        mended[end..].copy_from_slice(hash.as_bytes());
        check_stat_cache(&mended);
    }
}

fn check_stat_cache(bytes: &[u8]) {
    let Ok(cache) = StatCache::open(bytes) else {
        return;
    };
    let Ok(root) = cache.root() else { return };
    walk(&cache, root);
    cache.find(b"src/lib.rs").ok();
    // A cache that is made of the old root alone says the same, in the same bytes if there was nothing else in the old one.
    let again = StatCacheBuilder::new(Some(cache)).encode(&root.subtree(), cache.header());
    assert!(again.len() <= bytes.len());
    let copy = StatCache::open(&again).expect("what was written can be read");
    assert_eq!(copy.header(), cache.header());
    let copied = copy.root().expect("the root was copied");
    assert_eq!(
        (copied.tree(), copied.len(), copied.device()),
        (root.tree(), root.len(), root.device())
    );
    if again.len() == bytes.len() {
        assert!(again == bytes, "two encodings of one stat cache");
    }
}

/// Follows the links, for as long as a reader would have patience.
fn walk<'a>(cache: &StatCache<'a>, root: CachedDir<'a>) {
    let mut waiting = vec![root];
    let mut seen = 0;
    while let Some(directory) = waiting.pop() {
        for entry in directory.entries().map_while(std::result::Result::ok) {
            seen += 1;
            if seen > PATIENCE {
                return;
            }
            if let CachedLink::Directory { block } = entry.link {
                waiting.extend(cache.directory_at(block));
            }
        }
    }
}

/// Operations on a store and on its model.
pub fn operations(bytes: &[u8]) {
    operations_with(bytes, &model::honest);
}

/// The same for a store with a planted bug, which must fail.
pub fn operations_with(bytes: &[u8], options: &Options) {
    if let Err(failure) = model::run(bytes, options) {
        panic!("{failure}");
    }
}

/// Must fail: a fuzzer that does not find this finds nothing. Only one that sees its way through comparisons does.
pub fn canary(bytes: &[u8]) {
    assert!(
        !bytes.starts_with(b"canary"),
        "the canary was found, as it must be"
    );
}
