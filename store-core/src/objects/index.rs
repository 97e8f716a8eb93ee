//! Pack files as seen from here, and their indexes. No system calls: the door to the disk implements [`PackFile`].

use std::path::PathBuf;
use std::sync::Arc;

use crate::format::codec::DecodeError;
use crate::format::pack::{HEADER_LEN, PackIndex, TRAILER_LEN, Trailer, check_header};
use crate::id::ObjectId;
use crate::{Error, Result};

/// A whole pack file mapped into memory.
pub type PackMap = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A sealed pack file, open for reading.
pub trait PackFile: Send + Sync {
    /// How long the file is, in bytes, as found when it was opened.
    fn len(&self) -> u64;

    /// Fills the buffer from a place in the file.
    ///
    /// # Errors
    /// If the bytes cannot be read, also when the file ends before them.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// The file's path, for messages.
    fn path(&self) -> PathBuf;

    /// The whole file as a map, where its index may be used from one. Then the index's hash is not checked.
    fn map(&self) -> Option<PackMap> {
        None
    }

    /// Whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The bytes of an index: read, or a part of a map.
#[derive(Clone)]
pub enum IndexBytes {
    /// Read into memory.
    Read(Vec<u8>),
    /// From `start` to `end` of a map.
    Mapped {
        /// The whole file.
        map: PackMap,
        /// Where the index begins.
        start: usize,
        /// Where it ends.
        end: usize,
    },
}

impl AsRef<[u8]> for IndexBytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped { map, start, end } => {
                map.as_ref().as_ref().get(*start..*end).unwrap_or_default()
            }
        }
    }
}

/// The index of an open pack.
pub type Index = PackIndex<IndexBytes>;

pub(crate) fn damaged(file: &dyn PackFile, error: DecodeError) -> Error {
    Error::damaged(file.path(), None, error.to_string())
}

/// Opens a pack's index for look-ups.
///
/// From a map only the structure is checked; an index that is read is also compared with its hash, and its order checked.
///
/// # Errors
/// [`Error::Damaged`] if the file is no pack or a rule of its index is broken, [`Error::Io`] if it cannot be read.
pub fn open_index(file: &dyn PackFile) -> Result<Index> {
    if let Some(map) = file.map() {
        return map_index(file, map).map_err(|error| damaged(file, error));
    }
    let index = read_index(file)?;
    index
        .check_hash()
        .and_then(|()| index.check_order())
        .map_err(|error| damaged(file, error))?;
    Ok(index)
}

fn map_index(file: &dyn PackFile, map: PackMap) -> Result<Index, DecodeError> {
    let short = DecodeError {
        problem: "too short for a pack",
        at: 0,
    };
    let bytes: &[u8] = map.as_ref().as_ref();
    let (header, _) = bytes.split_at_checked(HEADER_LEN).ok_or(short)?;
    check_header(header)?;
    let end = bytes.len().checked_sub(TRAILER_LEN).ok_or(short)?;
    let trailer = Trailer::decode(&bytes[end..], file.len())?;
    let start = usize::try_from(trailer.index_offset).map_err(|_| short)?;
    PackIndex::new(trailer, IndexBytes::Mapped { map, start, end })
}

/// Reads a pack's header, trailer and index, and checks their structure; hash and object table are the caller's to check.
///
/// # Errors
/// As [`open_index`].
pub(crate) fn read_index(file: &dyn PackFile) -> Result<Index> {
    let Some(tail_at) = file.len().checked_sub(TRAILER_LEN as u64) else {
        return Err(damaged(
            file,
            DecodeError {
                problem: "too short for a pack",
                at: 0,
            },
        ));
    };
    let mut header = [0; HEADER_LEN];
    file.read_exact_at(&mut header, 0)?;
    check_header(&header).map_err(|error| damaged(file, error))?;
    let mut tail = [0; TRAILER_LEN];
    file.read_exact_at(&mut tail, tail_at)?;
    let trailer = Trailer::decode(&tail, file.len()).map_err(|error| damaged(file, error))?;
    // The trailer was compared with the file's length and the limits, so this is no more than the file holds.
    let length = usize::try_from(trailer.index_length).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(length).is_err() {
        let source = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        return Err(Error::io("read the index of", file.path(), source));
    }
    bytes.resize(length, 0);
    file.read_exact_at(&mut bytes, trailer.index_offset)?;
    PackIndex::new(trailer, IndexBytes::Read(bytes)).map_err(|error| damaged(file, error))
}

/// Where a copy of an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The pack, by its place in the [`PackSet`](crate::objects::reader::PackSet).
    pub pack: usize,
    /// The block of that pack.
    pub block: u32,
    /// Where the object begins in the raw block.
    pub offset: u32,
    /// How long it is, in bytes.
    pub length: u32,
}

/// Checks an object against its id and returns its bytes within a raw block.
///
/// # Errors
/// [`Error::Damaged`] if the bytes are others, naming `file`.
pub fn object_in<'b>(
    block: &'b [u8],
    location: &Location,
    id: &ObjectId,
    file: &dyn PackFile,
) -> Result<&'b [u8]> {
    let start = location.offset as usize;
    let bytes = block.get(start..start.saturating_add(location.length as usize));
    match bytes {
        Some(bytes) if ObjectId::of(bytes) == *id => Ok(bytes),
        _ => Err(Error::damaged(
            file.path(),
            Some(*id),
            format!("object {id} has other bytes"),
        )),
    }
}
