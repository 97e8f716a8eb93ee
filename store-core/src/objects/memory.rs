//! A map of objects in memory: what tests, fuzzing and benches use in place of packs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Class, ObjectSink, ObjectSource};
use crate::id::ObjectId;
use crate::{Error, Result};

/// Objects in memory, with counters of how often they were read and stored.
#[derive(Debug, Default)]
pub struct MemoryObjects {
    objects: Mutex<HashMap<ObjectId, Vec<u8>>>,
    gets: AtomicU64,
    puts: AtomicU64,
}

impl MemoryObjects {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<ObjectId, Vec<u8>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects().is_empty()
    }

    /// The ids of all objects, sorted.
    pub fn ids(&self) -> Vec<ObjectId> {
        let mut ids: Vec<_> = self.objects().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Takes an object away, as damage does. Returns its bytes.
    pub fn remove(&self, id: &ObjectId) -> Option<Vec<u8>> {
        self.objects().remove(id)
    }

    /// Puts bytes in an object's place, whatever they hash to, as damage does.
    pub fn overwrite(&self, id: ObjectId, bytes: Vec<u8>) {
        self.objects().insert(id, bytes);
    }

    /// How many reads there were.
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    /// How many objects were handed in, whether they were there already or not.
    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::Relaxed)
    }
}

impl ObjectSource for MemoryObjects {
    fn get(&self, id: &ObjectId, limit: usize) -> Result<Vec<u8>> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let objects = self.objects();
        let Some(bytes) = objects.get(id) else {
            return Err(Error::ObjectMissing {
                object: *id,
                needed: None,
                place: "memory".into(),
            });
        };
        if bytes.len() > limit {
            return Err(Error::damaged(
                "memory",
                Some(*id),
                format!("longer than {limit} bytes"),
            ));
        }
        if ObjectId::of(bytes) != *id {
            return Err(Error::damaged(
                "memory",
                Some(*id),
                "its bytes have another hash",
            ));
        }
        Ok(bytes.clone())
    }

    fn contains(&self, id: &ObjectId) -> Result<bool> {
        Ok(self.objects().contains_key(id))
    }
}

impl ObjectSink for MemoryObjects {
    fn put(&self, bytes: &[u8], _class: Class) -> Result<ObjectId> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        let id = ObjectId::of(bytes);
        self.objects().entry(id).or_insert_with(|| bytes.to_vec());
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_checked_before_they_are_returned() {
        let objects = MemoryObjects::new();
        let id = objects.put(b"abc", Class::Tree).unwrap();
        assert_eq!(objects.put(b"abc", Class::Tree).unwrap(), id);
        assert_eq!((objects.len(), objects.puts()), (1, 2));
        assert_eq!(objects.get(&id, 3).unwrap(), b"abc");
        assert_eq!(objects.get(&id, 2).unwrap_err().code(), "damaged");
        objects.overwrite(id, b"abd".to_vec());
        assert_eq!(objects.get(&id, 3).unwrap_err().code(), "damaged");
        assert!(objects.remove(&id).is_some());
        assert_eq!(objects.get(&id, 3).unwrap_err().code(), "object_missing");
        assert!(!objects.contains(&id).unwrap());
    }
}
