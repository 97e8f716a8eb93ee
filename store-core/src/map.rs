//! The one use of `unsafe`: a read-only map of a sealed pack, for its index on a checkpoint's path.
//!
//! A map is undefined behaviour if the file changes under it and a signal if the file shrinks or the disk fails. So: only
//! files that are published (mode 0400, never written again), only after their size was checked, only on local file
//! systems, and never where a failing disk must give an error (verify, repair, activate, restore, backup read).

#![allow(
    unsafe_code,
    reason = "one map of a sealed file; the reasons are above"
)]

use std::sync::Arc;

use crate::disk::File;
use crate::objects::index::PackMap;

struct Mapped(memmap2::Mmap);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Maps a sealed pack; `None` if the system will not.
pub(crate) fn map_sealed(file: &File, bytes: u64) -> Option<PackMap> {
    let length = usize::try_from(bytes).ok()?;
    let mut options = memmap2::MmapOptions::new();
    options.len(length);
    // SAFETY: the file is a published pack: nothing in this program writes to it again, its size was just checked to be
    // `bytes`, and everything read from the map is bounds-checked and, where it is an object, hashed.
    let map = unsafe { options.map(&file.as_fd()) }.ok()?;
    Some(Arc::new(Mapped(map)))
}
