//! Packs in memory, for tests.

use std::path::PathBuf;
use std::sync::Arc;

use crate::objects::index::{PackFile, PackMap};
use crate::objects::writer::PackSinkFile;
use crate::{Error, Result};

/// Pseudo-random bytes that zstd cannot shrink.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// A small generator for seeded loops.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub(crate) fn size(&mut self, limit: u64) -> usize {
        usize::try_from(self.below(limit)).unwrap()
    }
}

/// A pack that is written to memory; fails once it holds `room` bytes.
pub(crate) struct MemoryFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) room: usize,
}

impl MemoryFile {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            room: usize::MAX,
        }
    }
}

impl PackSinkFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.bytes.len() + bytes.len() > self.room {
            let full = std::io::Error::from_raw_os_error(28);
            return Err(Error::io("write", "memory", full));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// A pack that is read from memory.
pub(crate) struct MemoryPack {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) mapped: bool,
    /// Reads that touch this place fail.
    pub(crate) unreadable_at: Option<u64>,
}

impl MemoryPack {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: Arc::new(bytes),
            mapped: false,
            unreadable_at: None,
        }
    }
}

impl PackFile for MemoryPack {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + buffer.len() as u64;
        if self
            .unreadable_at
            .is_some_and(|at| (offset..end).contains(&at))
        {
            return Err(Error::io(
                "read",
                self.path(),
                std::io::Error::from_raw_os_error(5),
            ));
        }
        let start = usize::try_from(offset).unwrap();
        let Some(bytes) = self.bytes.get(start..start + buffer.len()) else {
            let end = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(Error::io("read", self.path(), end));
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("memory.pack")
    }

    fn map(&self) -> Option<PackMap> {
        self.mapped.then(|| Arc::clone(&self.bytes) as PackMap)
    }
}
