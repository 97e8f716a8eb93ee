//! A small cache of decoded blocks, so that many small objects of one block are not decoded one by one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::ObjectId;
use crate::objects::index::Location;

/// What an entry costs beside its bytes.
const ENTRY_BYTES: usize = 256;

/// A decoded block, and which of its objects were compared with their ids.
pub(crate) struct CachedBlock {
    /// The raw block.
    pub(crate) bytes: Arc<[u8]>,
    checked: Mutex<HashSet<(ObjectId, Location)>>,
}

impl CachedBlock {
    pub(crate) fn new(bytes: Arc<[u8]>) -> Self {
        Self {
            bytes,
            checked: Mutex::default(),
        }
    }

    /// Whether the bytes at this place of the block are known to be those of the object.
    pub(crate) fn is_checked(&self, id: &ObjectId, location: &Location) -> bool {
        lock(&self.checked).contains(&(*id, *location))
    }

    pub(crate) fn set_checked(&self, id: &ObjectId, location: &Location) {
        lock(&self.checked).insert((*id, *location));
    }
}

/// The most recently used blocks, up to a number of bytes.
pub(crate) struct BlockCache {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    blocks: HashMap<(usize, u32), (Arc<CachedBlock>, u64)>,
    bytes: usize,
    clock: u64,
}

impl BlockCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            inner: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, pack: usize, block: u32) -> Option<Arc<CachedBlock>> {
        let mut inner = lock(&self.inner);
        inner.clock += 1;
        let now = inner.clock;
        let (cached, used) = inner.blocks.get_mut(&(pack, block))?;
        *used = now;
        Some(Arc::clone(cached))
    }

    /// Keeps a block, or returns the one that another thread put there first.
    pub(crate) fn put(&self, pack: usize, block: u32, bytes: Arc<[u8]>) -> Arc<CachedBlock> {
        let mut inner = lock(&self.inner);
        if let Some((cached, _)) = inner.blocks.get(&(pack, block)) {
            return Arc::clone(cached);
        }
        inner.clock += 1;
        let now = inner.clock;
        inner.bytes += bytes.len() + ENTRY_BYTES;
        let cached = Arc::new(CachedBlock::new(bytes));
        inner
            .blocks
            .insert((pack, block), (Arc::clone(&cached), now));
        inner.shrink(self.limit);
        cached
    }
}

impl Inner {
    fn shrink(&mut self, limit: usize) {
        while self.bytes > limit {
            let oldest = self
                .blocks
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(key, _)| *key);
            let Some((block, _)) = oldest.and_then(|key| self.blocks.remove(&key)) else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(block.bytes.len() + ENTRY_BYTES);
        }
    }
}

/// A panic elsewhere cannot leave these maps half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_block_goes_first() {
        let cache = BlockCache::new(3 * (1000 + ENTRY_BYTES));
        for block in 0..3 {
            cache.put(0, block, Arc::from(vec![0; 1000]));
        }
        assert!(cache.get(0, 0).is_some());
        cache.put(0, 3, Arc::from(vec![0; 1000]));
        assert!(cache.get(0, 1).is_none());
        assert!([0, 2, 3].iter().all(|block| cache.get(0, *block).is_some()));
        cache.put(1, 0, Arc::from(vec![0; 9000]));
        assert_eq!(lock(&cache.inner).blocks.len(), 0, "larger than the cache");
        assert_eq!(lock(&cache.inner).bytes, 0);
    }
}
