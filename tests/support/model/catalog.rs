//! The model of a catalog: what each lineage has, and what each change makes of it. Written from the design, not from the code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use store_core::clock::Time;
use store_core::format::catalog::CheckpointRef;
use store_core::format::checkpoint::{Actor, Role};
use store_core::id::ObjectId;

use super::tree::Directory;

/// The stable code of the error that is predicted.
pub type Code = &'static str;

/// A checkpoint as it was acknowledged.
#[derive(Clone, Debug)]
pub struct Record {
    /// The lineage's latest checkpoint when it was committed.
    pub parent: Option<ObjectId>,
    /// When its walk began.
    pub time: Time,
    /// The tree that it is of.
    pub tree: usize,
    /// What was in the tree.
    pub state: Arc<Directory>,
    /// Where in a turn.
    pub role: Role,
    /// By whom.
    pub actor: Actor,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its message.
    pub message: String,
}

/// What may change about a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: ObjectId,
    /// Its tags.
    pub tags: BTreeSet<String>,
    /// Whether it is pinned.
    pub pinned: bool,
    /// Its note.
    pub note: Vec<u8>,
}

/// One lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Which tree it is of.
    pub tree: usize,
    /// The number of the next checkpoint.
    pub next: u64,
    /// Why it is archived, if it is.
    pub archived: Option<Vec<u8>>,
    /// Its checkpoints by number.
    pub checkpoints: BTreeMap<u64, Entry>,
    /// Its keys.
    pub keys: BTreeMap<(Role, Vec<u8>), u64>,
}

impl Lineage {
    fn new(tree: usize) -> Self {
        Self {
            tree,
            next: 1,
            archived: None,
            checkpoints: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// The checkpoint with the highest number.
    pub fn latest(&self) -> Option<(u64, &Entry)> {
        self.checkpoints
            .iter()
            .next_back()
            .map(|(number, entry)| (*number, entry))
    }

    /// The number of a checkpoint.
    pub fn find(&self, id: &ObjectId) -> Option<u64> {
        self.checkpoints
            .iter()
            .find(|(_, entry)| entry.id == *id)
            .map(|(number, _)| *number)
    }

    /// The checkpoint that has a tag.
    pub fn tagged(&self, tag: &str) -> Option<(u64, ObjectId)> {
        let (number, entry) = self
            .checkpoints
            .iter()
            .find(|(_, entry)| entry.tags.contains(tag))?;
        Some((*number, entry.id))
    }
}

/// All lineages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// By name.
    pub lineages: BTreeMap<Vec<u8>, Lineage>,
}

impl Catalog {
    /// The lineage of that name.
    pub fn lineage(&self, name: &[u8]) -> Result<&Lineage, Code> {
        self.lineages.get(name).ok_or("lineage_not_found")
    }

    /// The same, to be changed.
    pub fn lineage_mut(&mut self, name: &[u8]) -> Result<&mut Lineage, Code> {
        self.lineages.get_mut(name).ok_or("lineage_not_found")
    }

    /// Whether some lineage has the checkpoint.
    pub fn has(&self, id: &ObjectId) -> bool {
        self.lineages
            .values()
            .any(|lineage| lineage.find(id).is_some())
    }

    /// Every checkpoint, by lineage and number.
    pub fn checkpoints(&self) -> Vec<CheckpointRef> {
        let of = |(name, lineage): (&Vec<u8>, &Lineage)| -> Vec<CheckpointRef> {
            let at = |(number, entry): (&u64, &Entry)| CheckpointRef {
                lineage: name.clone(),
                number: *number,
                id: entry.id,
            };
            lineage.checkpoints.iter().map(at).collect()
        };
        self.lineages.iter().flat_map(of).collect()
    }

    /// The number of a checkpoint in a lineage.
    pub fn number_of(&self, at: &CheckpointRef) -> Option<u64> {
        self.lineages.get(&at.lineage)?.find(&at.id)
    }

    /// Adds a checkpoint of a tree, with its key and tag, and returns its number.
    pub fn add(&mut self, name: &[u8], id: ObjectId, record: &Record, tag: Option<&String>) -> u64 {
        let lineage = self
            .lineages
            .entry(name.to_vec())
            .or_insert_with(|| Lineage::new(record.tree));
        let number = lineage.next;
        lineage.next += 1;
        let tags = tag.into_iter().cloned().collect();
        lineage.checkpoints.insert(
            number,
            Entry {
                id,
                tags,
                pinned: false,
                note: Vec::new(),
            },
        );
        if let Some(key) = &record.key {
            lineage.keys.insert((record.role, key.clone()), number);
        }
        number
    }

    /// Drops a checkpoint with everything that names it.
    pub fn drop_checkpoint(&mut self, name: &[u8], number: u64) -> Result<Entry, Code> {
        let lineage = self.lineage_mut(name)?;
        lineage.keys.retain(|_, named| *named != number);
        lineage
            .checkpoints
            .remove(&number)
            .ok_or("checkpoint_not_found")
    }

    /// Brings a checkpoint back under a new number, with what nobody else has taken meanwhile.
    pub fn bring_back(
        &mut self,
        name: &[u8],
        mut entry: Entry,
        key: Option<(Role, Vec<u8>)>,
    ) -> Result<u64, Code> {
        let lineage = self.lineage_mut(name)?;
        entry.tags.retain(|tag| lineage.tagged(tag).is_none());
        let number = lineage.next;
        lineage.next += 1;
        lineage.checkpoints.insert(number, entry);
        if let Some(key) = key {
            lineage.keys.entry(key).or_insert(number);
        }
        Ok(number)
    }

    /// Puts a tag on a checkpoint, taking it from whoever has it.
    pub fn set_tag(&mut self, name: &[u8], number: u64, tag: &str) -> Result<(), Code> {
        let lineage = self.lineage_mut(name)?;
        for entry in lineage.checkpoints.values_mut() {
            entry.tags.remove(tag);
        }
        let entry = lineage
            .checkpoints
            .get_mut(&number)
            .ok_or("checkpoint_not_found")?;
        entry.tags.insert(tag.to_owned());
        Ok(())
    }

    /// Takes a tag from a checkpoint.
    pub fn remove_tag(&mut self, name: &[u8], tag: &str) -> Result<(), Code> {
        for entry in self.lineage_mut(name)?.checkpoints.values_mut() {
            entry.tags.remove(tag);
        }
        Ok(())
    }

    /// The entry of a checkpoint, to be changed.
    pub fn entry_mut(&mut self, name: &[u8], number: u64) -> Result<&mut Entry, Code> {
        self.lineage_mut(name)?
            .checkpoints
            .get_mut(&number)
            .ok_or("checkpoint_not_found")
    }

    /// Renames a lineage.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Code> {
        self.lineage(from)?;
        if from == to {
            return Ok(());
        }
        if self.lineages.contains_key(to) {
            return Err("invalid");
        }
        if let Some(lineage) = self.lineages.remove(from) {
            self.lineages.insert(to.to_vec(), lineage);
        }
        Ok(())
    }
}
