//! What is in a directory, sorted, and what the old stat cache says beside it.

use std::cmp::Ordering as Order;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::format::stat_cache::{CachedDir, CachedEntries, CachedEntry};
use crate::worktree::door;

/// The old cache's entries beside a sorted listing.
pub(super) struct Candidates<'c> {
    entries: Option<CachedEntries<'c>>,
    head: Option<CachedEntry<'c>>,
    /// Whether the old cache had exactly the names that were asked for.
    exact: bool,
}

impl<'c> Candidates<'c> {
    pub(super) fn new(cached: Option<&CachedDir<'c>>) -> Self {
        let mut this = Self {
            entries: cached.map(CachedDir::entries),
            head: None,
            exact: cached.is_some(),
        };
        this.advance();
        this
    }

    pub(super) fn advance(&mut self) {
        self.head = match self.entries.as_mut().and_then(Iterator::next) {
            Some(Ok(entry)) => Some(entry),
            Some(Err(_)) => {
                self.exact = false;
                None
            }
            None => None,
        };
    }

    pub(super) fn find(&mut self, name: &[u8]) -> Option<CachedEntry<'c>> {
        loop {
            match self.head.map(|head| head.entry.name.cmp(name)) {
                Some(Order::Less) => {
                    self.exact = false;
                    self.advance();
                }
                Some(Order::Equal) => {
                    let found = self.head;
                    self.advance();
                    return found;
                }
                Some(Order::Greater) | None => {
                    self.exact = false;
                    return None;
                }
            }
        }
    }

    pub(super) fn is_exact(&self) -> bool {
        self.exact && self.head.is_none()
    }
}

/// The names of one directory, NUL-terminated in one buffer, sorted.
#[derive(Default)]
pub(super) struct Listing {
    names: Vec<u8>,
    rows: Vec<(u32, u32, FileType)>,
}

impl Listing {
    pub(super) fn read(handle: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let mut listing = Self::default();
        let mut overflow = false;
        door::list(handle, |name, kind| {
            let bytes = name.to_bytes_with_nul();
            let start = listing.names.len();
            match (u32::try_from(start), u32::try_from(start + bytes.len())) {
                (Ok(start), Ok(end)) => {
                    listing.names.extend_from_slice(bytes);
                    listing.rows.push((start, end, kind));
                }
                _ => overflow = true,
            }
        })?;
        if overflow {
            return Err(Errno::OVERFLOW);
        }
        let names = &listing.names;
        listing
            .rows
            .sort_unstable_by(|a, b| bytes_of(names, a).cmp(bytes_of(names, b)));
        // A directory that changes while it is listed may give a name twice.
        listing
            .rows
            .dedup_by(|a, b| bytes_of(names, a) == bytes_of(names, b));
        Ok(listing)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&CStr, FileType)> {
        self.rows.iter().filter_map(|row| {
            let bytes = self.names.get(row.0 as usize..row.1 as usize)?;
            Some((CStr::from_bytes_with_nul(bytes).ok()?, row.2))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn contains(&self, name: &CStr) -> bool {
        self.rows
            .binary_search_by(|row| bytes_of(&self.names, row).cmp(name.to_bytes_with_nul()))
            .is_ok()
    }
}

fn bytes_of<'n>(names: &'n [u8], row: &(u32, u32, FileType)) -> &'n [u8] {
    &names[row.0 as usize..row.1 as usize]
}
