//! File content to chunks and back. `docs/format.md` section 5.
//!
//! Where content is cut depends on the content alone, never on how a reader hands it out; memory is bounded by one buffer.

use std::io::{self, Read};

use fastcdc::v2020::FastCDC;

use crate::format::content::{
    ChunkList, Content, ListRow, MAX_CHUNK_BYTES, MAX_LIST_BYTES, MAX_LIST_DEPTH,
};
use crate::id::ObjectId;
use crate::objects::{Class, ObjectSink, ObjectSource};
use crate::{Error, Result};

/// Files up to this size are one chunk.
const WHOLE_BYTES: usize = 512 << 10;
const MIN_BYTES: usize = 128 << 10;
const AVERAGE_BYTES: usize = 512 << 10;
const MAX_BYTES: usize = 2 << 20;
/// Room for the longest chunk and as much again, so that little is moved when it is filled up.
const BUFFER_BYTES: usize = 2 * MAX_BYTES;
/// A list ends after these many rows at the least (where a row's id says so) and at the most.
const LIST_MIN_ROWS: usize = 16;
const LIST_MAX_ROWS: usize = 512;

/// Hashes objects and stores nothing: content gets the same ids as with a sink that stores.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashOnly;

impl ObjectSink for HashOnly {
    fn put(&self, bytes: &[u8], _: Class) -> Result<ObjectId> {
        Ok(ObjectId::of(bytes))
    }
}

/// Reads content to its end and stores it; returns what to record of it, and its size in bytes.
///
/// `size_hint` is what the size is expected to be, and only saves allocations.
///
/// # Errors
/// What `map_err` makes of an error of the reader, or an error of the sink. Chunks stored before it stay in the sink.
pub fn store_content(
    sink: &dyn ObjectSink,
    reader: &mut dyn Read,
    size_hint: u64,
    map_err: &dyn Fn(io::Error) -> Error,
) -> Result<(Content, u64)> {
    let expected = usize::try_from(size_hint)
        .unwrap_or(WHOLE_BYTES)
        .min(WHOLE_BYTES);
    let mut buffer = Vec::with_capacity(expected + 1);
    fill(reader, &mut buffer, WHOLE_BYTES + 1).map_err(map_err)?;
    if buffer.len() <= WHOLE_BYTES {
        let size = buffer.len() as u64;
        return match buffer.as_slice() {
            [] => Ok((Content::Empty, 0)),
            bytes => Ok((Content::Chunk(sink.put(bytes, Class::Chunk)?), size)),
        };
    }
    store_large(sink, reader, buffer, map_err)
}

/// Adds what the reader has until the buffer holds `length` bytes or the content ends.
fn fill(reader: &mut dyn Read, buffer: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let missing = length.saturating_sub(buffer.len()) as u64;
    reader.take(missing).read_to_end(buffer).map(|_| ())
}

fn store_large(
    sink: &dyn ObjectSink,
    reader: &mut dyn Read,
    mut buffer: Vec<u8>,
    map_err: &dyn Fn(io::Error) -> Error,
) -> Result<(Content, u64)> {
    buffer.reserve_exact(BUFFER_BYTES - buffer.len());
    let mut lists = ListBuilder::new(sink);
    let mut size = 0;
    loop {
        fill(reader, &mut buffer, BUFFER_BYTES).map_err(map_err)?;
        let at_end = buffer.len() < BUFFER_BYTES;
        let mut start = 0;
        // A cut depends on up to MAX_BYTES that follow.
        while start < buffer.len() && (at_end || buffer.len() - start >= MAX_BYTES) {
            let chunk = next_chunk(&buffer[start..]);
            lists.push(0, chunk.len() as u64, sink.put(chunk, Class::Chunk)?)?;
            start += chunk.len();
        }
        size += start as u64;
        if at_end {
            return Ok((lists.finish()?, size));
        }
        buffer.drain(..start);
    }
}

fn next_chunk(bytes: &[u8]) -> &[u8] {
    let cutter = FastCDC::new(bytes, MIN_BYTES, AVERAGE_BYTES, MAX_BYTES);
    let (_, length) = cutter.cut(0, bytes.len());
    // The crate promises 1 to MAX_BYTES; the content must not be lost nor the loop be endless if it does not hold.
    &bytes[..length.clamp(1, bytes.len().min(MAX_BYTES))]
}

/// Builds chunk lists from the bottom up while the chunks arrive.
struct ListBuilder<'a> {
    sink: &'a dyn ObjectSink,
    levels: Vec<Vec<ListRow>>,
}

impl<'a> ListBuilder<'a> {
    fn new(sink: &'a dyn ObjectSink) -> Self {
        Self {
            sink,
            levels: vec![Vec::new()],
        }
    }

    fn push(&mut self, level: usize, length: u64, id: ObjectId) -> Result<()> {
        if level == self.levels.len() {
            if level == usize::from(MAX_LIST_DEPTH) {
                return Err(Error::invalid(
                    "file",
                    "larger than chunk lists can describe",
                ));
            }
            self.levels.push(Vec::new());
        }
        let rows = &mut self.levels[level];
        rows.push(ListRow { length, id });
        let may_end = rows.len() >= LIST_MIN_ROWS && id.as_bytes()[0].trailing_zeros() >= 7;
        if may_end || rows.len() >= LIST_MAX_ROWS {
            self.close(level)?;
        }
        Ok(())
    }

    /// Stores the list that is open on a level, as a row of the level above.
    fn close(&mut self, level: usize) -> Result<()> {
        let (id, length) = self.store(level)?;
        self.push(level + 1, length, id)
    }

    fn store(&mut self, level: usize) -> Result<(ObjectId, u64)> {
        let rows = std::mem::take(&mut self.levels[level]);
        let number = u8::try_from(level).expect("BUG: more levels than the limit");
        let list = ChunkList {
            level: number,
            rows,
        };
        let length = list.rows.iter().map(|row| row.length).sum();
        Ok((self.sink.put(&list.encode(), Class::Tree)?, length))
    }

    fn finish(mut self) -> Result<Content> {
        let mut level = 0;
        loop {
            let is_top = level + 1 == self.levels.len();
            match (is_top, self.levels[level].as_slice()) {
                // One piece alone needs no list above it.
                (true, [row]) if level == 0 => return Ok(Content::Chunk(row.id)),
                (true, [row]) => return Ok(Content::List(row.id)),
                (true, _) => return Ok(Content::List(self.store(level)?.0)),
                (false, []) => {}
                (false, _) => self.close(level)?,
            }
            level += 1;
        }
    }
}

fn broken(id: &ObjectId, problem: impl Into<String>) -> Error {
    Error::damaged(format!("object {id}"), Some(*id), problem)
}

/// Calls `visit` with each chunk of a file's content and its length in bytes, in order. Reads chunk lists, no chunks.
///
/// The lengths passed to `visit` add up to `size`.
///
/// # Errors
/// If a list cannot be read, or breaks a rule, or lengths do not add up; and what `visit` returns.
pub fn visit_chunks(
    source: &dyn ObjectSource,
    content: &Content,
    size: u64,
    visit: &mut dyn FnMut(ObjectId, u64) -> Result<()>,
) -> Result<()> {
    if !content.fits(size) {
        let problem = format!("content that cannot be {size} bytes long");
        return Err(match content.id() {
            Some(id) => broken(id, problem),
            None => Error::damaged("a tree", None, problem),
        });
    }
    match content {
        Content::Empty => Ok(()),
        Content::Chunk(id) => visit(*id, size),
        Content::List(id) => {
            let list = read_list(source, id, size)?;
            if list.rows.len() < 2 {
                return Err(broken(id, "a chunk list for one piece"));
            }
            visit_list(source, &list, visit)
        }
    }
}

fn read_list(source: &dyn ObjectSource, id: &ObjectId, size: u64) -> Result<ChunkList> {
    let bytes = source.get(id, MAX_LIST_BYTES)?;
    let list = ChunkList::decode(&bytes).map_err(|error| broken(id, error.to_string()))?;
    if list.total() != Some(size) {
        return Err(broken(
            id,
            format!("lengths that do not add up to {size} bytes"),
        ));
    }
    Ok(list)
}

/// As deep as the level, which is below [`MAX_LIST_DEPTH`] and falls by one each time.
fn visit_list(
    source: &dyn ObjectSource,
    list: &ChunkList,
    visit: &mut dyn FnMut(ObjectId, u64) -> Result<()>,
) -> Result<()> {
    for row in &list.rows {
        if list.level == 0 {
            visit(row.id, row.length)?;
            continue;
        }
        let below = read_list(source, &row.id, row.length)?;
        if below.level + 1 != list.level {
            return Err(broken(&row.id, "a chunk list of another level"));
        }
        visit_list(source, &below, visit)?;
    }
    Ok(())
}

/// Calls `write` with the pieces of a file's content, in order, each checked against its id.
///
/// # Errors
/// If a chunk or list cannot be read or has another length than recorded; and what `write` returns. What was passed to
/// `write` before is right, but not all.
pub fn read_content(
    source: &dyn ObjectSource,
    content: &Content,
    size: u64,
    write: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    visit_chunks(source, content, size, &mut |id, length| {
        let bytes = source.get(&id, MAX_CHUNK_BYTES)?;
        if bytes.len() as u64 != length {
            return Err(broken(
                &id,
                format!("{} bytes long instead of {length}", bytes.len()),
            ));
        }
        write(&bytes)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::*;
    use crate::objects::testing::{Random, noise};

    #[derive(Default)]
    struct Map(Mutex<HashMap<ObjectId, Vec<u8>>>);

    impl Map {
        fn len(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    impl ObjectSink for Map {
        fn put(&self, bytes: &[u8], _: Class) -> Result<ObjectId> {
            let id = ObjectId::of(bytes);
            self.0.lock().unwrap().insert(id, bytes.to_vec());
            Ok(id)
        }
    }

    impl ObjectSource for Map {
        fn get(&self, id: &ObjectId, limit: usize) -> Result<Vec<u8>> {
            match self.0.lock().unwrap().get(id) {
                Some(bytes) if bytes.len() <= limit => Ok(bytes.clone()),
                Some(_) => Err(broken(id, "too long")),
                None => Err(Error::ObjectMissing {
                    object: *id,
                    needed: None,
                    place: "map".into(),
                }),
            }
        }

        fn contains(&self, id: &ObjectId) -> Result<bool> {
            Ok(self.0.lock().unwrap().contains_key(id))
        }
    }

    /// Hands bytes out in pieces of random length.
    struct Pieces<'a>(&'a [u8], Random);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.1.below(50) == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let length = (1 + self.1.size(100_000)).min(buffer.len());
            self.0.read(&mut buffer[..length])
        }
    }

    fn map_err(error: io::Error) -> Error {
        Error::io("read", "test", error)
    }

    fn store(sink: &dyn ObjectSink, bytes: &[u8], hint: u64) -> (Content, u64) {
        let mut reader = Pieces(bytes, Random(hint + 1));
        store_content(sink, &mut reader, hint, &map_err).unwrap()
    }

    fn read(source: &dyn ObjectSource, content: &Content, size: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        read_content(source, content, size, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    #[test]
    fn content_of_every_size_comes_back_whatever_the_hint() {
        let all = noise(1, 9 << 20);
        let edges = [
            0,
            1,
            WHOLE_BYTES - 1,
            WHOLE_BYTES,
            WHOLE_BYTES + 1,
            MAX_BYTES,
            BUFFER_BYTES,
        ];
        for size in edges.into_iter().chain([BUFFER_BYTES + 1, 9 << 20]) {
            let bytes = &all[..size];
            let map = Map::default();
            let (content, stored) = store(&map, bytes, size as u64);
            assert_eq!(stored, size as u64);
            for hint in [0, 1000, u64::MAX - 1] {
                assert_eq!(
                    store(&HashOnly, bytes, hint),
                    (content, stored),
                    "size {size}"
                );
            }
            assert!(read(&map, &content, stored).unwrap() == bytes);
            match size {
                0 => assert_eq!(content, Content::Empty),
                1..=WHOLE_BYTES => assert_eq!(content, Content::Chunk(ObjectId::of(bytes))),
                _ => assert!(content.fits(stored)),
            }
        }
    }

    #[test]
    fn a_long_run_of_zeros_is_cut_at_the_maximum() {
        let map = Map::default();
        let (content, size) = store(&map, &vec![0; 9 << 20], 0);
        let mut lengths = Vec::new();
        visit_chunks(&map, &content, size, &mut |_, length| {
            lengths.push(length);
            Ok(())
        })
        .unwrap();
        assert_eq!(lengths, [2 << 20, 2 << 20, 2 << 20, 2 << 20, 1 << 20]);
    }

    #[test]
    fn cuts_keep_to_their_bounds_and_an_insertion_changes_few_chunks() {
        let mut bytes = noise(2, 40 << 20);
        let map = Map::default();
        let (content, size) = store(&map, &bytes, 0);
        let mut lengths = Vec::new();
        visit_chunks(&map, &content, size, &mut |_, length| {
            lengths.push(length);
            Ok(())
        })
        .unwrap();
        let (_, inner) = lengths.split_last().unwrap();
        assert!(
            inner
                .iter()
                .all(|length| (MIN_BYTES as u64..=MAX_BYTES as u64).contains(length))
        );
        assert!(
            (40..160).contains(&lengths.len()),
            "{} chunks",
            lengths.len()
        );
        let before = map.len();
        bytes.splice(20 << 20..20 << 20, *b"inserted");
        let (edited, size) = store(&map, &bytes, 0);
        assert!(
            map.len() - before <= 6,
            "{} new objects",
            map.len() - before
        );
        assert!(read(&map, &edited, size).unwrap() == bytes);
    }

    #[test]
    fn cuts_stay_where_they_are_when_the_chunker_is_updated() {
        // Not part of the format, but with other cuts every large file would be stored again.
        let (content, _) = store(&HashOnly, &noise(3, 5 << 20), 0);
        let id = content.id().map(ToString::to_string);
        assert_eq!(
            id.as_deref(),
            Some("2d7cec67054b893969709e0dd564f3496b13f16c9fe7a37ea40195f905878643")
        );
    }

    /// Feeds the list builder directly: content of this many chunks would be large.
    fn list_of(map: &Map, rows: &[(u64, ObjectId)]) -> Content {
        let mut lists = ListBuilder::new(map);
        for (length, id) in rows {
            lists.push(0, *length, *id).unwrap();
        }
        lists.finish().unwrap()
    }

    #[test]
    fn lists_of_any_number_of_rows_are_walked_in_order() {
        for count in [1u64, 2, 15, 16, 17, 511, 512, 513, 1025, 30_000] {
            // The second kind never ends a list by its ids, so that only the maximum of rows does.
            for mask in [0, 1] {
                let row = |n: u64| {
                    let mut id = *ObjectId::of(&n.to_le_bytes()).as_bytes();
                    id[0] |= mask;
                    (1 + n % 1000, ObjectId::from_bytes(id))
                };
                let rows: Vec<_> = (0..count).map(row).collect();
                let size = rows.iter().map(|(length, _)| length).sum();
                let map = Map::default();
                let content = list_of(&map, &rows);
                assert_eq!(matches!(content, Content::Chunk(_)), count == 1);
                let mut seen = Vec::new();
                visit_chunks(&map, &content, size, &mut |id, length| {
                    seen.push((length, id));
                    Ok(())
                })
                .unwrap();
                assert!(seen == rows, "{count} rows");
            }
        }
    }

    #[test]
    fn a_row_put_in_early_rewrites_few_lists() {
        let row = |n: u64| (1000, ObjectId::of(&n.to_le_bytes()));
        let mut rows: Vec<_> = (0..20_000).map(row).collect();
        let map = Map::default();
        list_of(&map, &rows);
        let before = map.len();
        rows.insert(10, row(1 << 40));
        list_of(&map, &rows);
        assert!(
            before > 50 && map.len() - before <= 6,
            "{} of {before}",
            map.len() - before
        );
    }

    #[test]
    fn lists_that_break_a_rule_are_damage() {
        let map = Map::default();
        let chunk = map.put(b"abc", Class::Chunk).unwrap();
        let put = |level, rows: &[(u64, ObjectId)]| {
            let rows = rows.iter().map(|(length, id)| ListRow {
                length: *length,
                id: *id,
            });
            map.put(
                &ChunkList {
                    level,
                    rows: rows.collect(),
                }
                .encode(),
                Class::Tree,
            )
            .unwrap()
        };
        let good = put(0, &[(3, chunk), (3, chunk)]);
        let check = |content, size| read(&map, &content, size).map_err(|error| error.code());
        assert_eq!(check(Content::List(good), 6), Ok(b"abcabc".to_vec()));
        let damaged = Err("damaged");
        assert_eq!(check(Content::List(good), 7), damaged, "another size");
        assert_eq!(
            check(Content::Chunk(chunk), 4),
            damaged,
            "a chunk of another size"
        );
        assert_eq!(check(Content::Empty, 1), damaged);
        assert_eq!(check(Content::Chunk(chunk), 0), damaged);
        assert_eq!(check(Content::List(chunk), 3), damaged, "not a list");
        let one = put(0, &[(3, chunk)]);
        assert_eq!(
            check(Content::List(one), 3),
            damaged,
            "a list for one chunk"
        );
        let wrong = put(0, &[(2, chunk), (4, chunk)]);
        assert_eq!(check(Content::List(wrong), 6), damaged, "lengths of chunks");
        let level = put(2, &[(6, good), (6, good)]);
        assert_eq!(check(Content::List(level), 12), damaged, "a level left out");
        let sums = put(1, &[(6, good), (7, good)]);
        assert_eq!(check(Content::List(sums), 13), damaged, "lengths of lists");
        let lost = put(0, &[(3, chunk), (1, ObjectId::of(b"lost"))]);
        assert_eq!(check(Content::List(lost), 4), Err("object_missing"));
        let fine = put(1, &[(6, good), (3, one)]);
        assert_eq!(check(Content::List(fine), 9), Ok(b"abcabcabc".to_vec()));
    }

    #[test]
    fn a_reader_that_fails_fails_the_whole() {
        struct Failing(usize);
        impl Read for Failing {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let length = buffer.len().min(self.0);
                self.0 -= length;
                if length == 0 {
                    Err(io::Error::from_raw_os_error(5))
                } else {
                    Ok(length)
                }
            }
        }
        for good in [0, 1000, 1 << 20, 6 << 20] {
            let result = store_content(&HashOnly, &mut Failing(good), 10, &map_err);
            assert_eq!(result.unwrap_err().code(), "io");
        }
    }
}
