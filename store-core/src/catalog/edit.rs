//! Making the next catalog out of one. Everything stays in memory until [`CatalogEdit::finish`].
//!
//! Invariants: after each call that returns `Ok` the maps agree with each other as `docs/format.md` section 8 demands. A
//! request that cannot be met is refused before anything is changed.

use std::collections::BTreeMap;

use crate::catalog::map::Map;
use crate::catalog::view::{Catalog, LineageView, key_key};
use crate::catalog::{contradiction, entry_value, number_value};
use crate::clock::Time;
use crate::error::{Error, Result, Wanted};
use crate::format::catalog::{
    CatalogRoot, CheckpointEntry, LeafRow, Lineage, LineageState, SourceIdentity, is_source,
    number_bytes, source_key,
};
use crate::format::checkpoint::{MAX_KEY_BYTES, Role};
use crate::id::ObjectId;
use crate::name::{escape, is_lineage_name, is_tag, quote};
use crate::objects::{Class, ObjectSink, ObjectSource};

/// What a dropped checkpoint took with it: all that bringing it back needs, besides its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The name of its lineage.
    pub lineage: Vec<u8>,
    /// The number that it had.
    pub number: u64,
    /// Its entry, tags included.
    pub entry: CheckpointEntry,
    /// The keys that named it.
    pub keys: Vec<(Role, Vec<u8>)>,
}

/// How a dropped checkpoint came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Its new number.
    pub number: u64,
    /// Tags that it had and that are another checkpoint's now.
    pub tags_taken: Vec<String>,
    /// Keys that named it and that name another checkpoint now.
    pub keys_taken: Vec<(Role, Vec<u8>)>,
}

/// What setting a tag did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagChange {
    /// The checkpoint had it already.
    Unchanged,
    /// No checkpoint of the lineage had it.
    Added,
    /// Another checkpoint of the lineage had it.
    Moved {
        /// Its number.
        from: u64,
    },
}

/// A catalog in the making. After an error of the store (as opposed to a refused request) it must be thrown away.
#[must_use = "an edit changes nothing until it is finished"]
pub struct CatalogEdit<'s> {
    source: &'s dyn ObjectSource,
    lineages: Map<'s>,
    sources: Map<'s>,
    ids: Map<'s>,
    open: BTreeMap<Vec<u8>, Open<'s>>,
}

/// A lineage that was looked at.
struct Open<'s> {
    view: LineageView<'s>,
    /// The lineage as it is stored; `None` if it is not.
    stored: Option<Lineage>,
}

impl<'s> CatalogEdit<'s> {
    /// An edit of `base`.
    pub fn new(base: &Catalog<'s>) -> Self {
        Self {
            source: base.source,
            lineages: base.lineages.clone(),
            sources: base.sources.clone(),
            ids: base.ids.clone(),
            open: BTreeMap::new(),
        }
    }

    /// Writes what was changed and returns the id of the new root; the base's id if nothing was.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn finish(mut self, sink: &dyn ObjectSink) -> Result<ObjectId> {
        for (name, open) in self.open {
            let LineageView {
                mut lineage,
                checkpoints,
                keys,
                tags,
                ..
            } = open.view;
            lineage.checkpoints = checkpoints.finish(sink)?;
            lineage.keys = keys.finish(sink)?;
            lineage.tags = tags.finish(sink)?;
            if open.stored.as_ref() != Some(&lineage) {
                let id = sink.put(&lineage.encode()?, Class::Catalog)?;
                self.lineages.insert(&name, id.as_bytes())?;
            }
        }
        let root = CatalogRoot {
            lineages: self.lineages.finish(sink)?,
            sources: self.sources.finish(sink)?,
            ids: self.ids.finish(sink)?,
        };
        sink.put(&root.encode(), Class::Catalog)
    }

    /// A lineage as it is at this point of the edit.
    ///
    /// # Errors
    /// If the catalog cannot be read. That there is no such lineage is `None`.
    pub fn lineage(&mut self, name: &[u8]) -> Result<Option<LineageView<'s>>> {
        Ok(self.open(name)?.map(|open| open.view.clone()))
    }

    /// The name of the lineage that a checkpoint is in, at this point of the edit.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn lineage_of(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        self.ids.get(id.as_bytes())
    }

    fn open(&mut self, name: &[u8]) -> Result<Option<&mut Open<'s>>> {
        if !self.open.contains_key(name) {
            let Some(value) = self.lineages.get(name)? else {
                return Ok(None);
            };
            let row = LeafRow {
                key: name.to_vec(),
                value,
            };
            let view = LineageView::of_row(self.source, &row)?;
            let stored = Some(view.lineage.clone());
            self.open.insert(name.to_vec(), Open { view, stored });
        }
        Ok(self.open.get_mut(name))
    }

    fn expect(&mut self, name: &[u8]) -> Result<&mut LineageView<'s>> {
        match self.open(name)? {
            Some(open) => Ok(&mut open.view),
            None => Err(Error::not_found(Wanted::Lineage, escape(name), "")),
        }
    }

    /// Makes sure that a lineage exists and has this source, host and identity. Returns whether it is new.
    ///
    /// A lineage that has another source follows the new one; whether that is wanted is for the caller to decide before.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name or the source may not be one; or if the catalog cannot be read.
    pub fn ensure_lineage(
        &mut self,
        name: &[u8],
        source: &[u8],
        host: &[u8],
        identity: Option<SourceIdentity>,
    ) -> Result<bool> {
        let mut lineage = match self.open(name)? {
            Some(open) => open.view.lineage.clone(),
            None => new_lineage(name, source),
        };
        let old_source = std::mem::replace(&mut lineage.source, source.to_vec());
        lineage.host = host.to_vec();
        lineage.identity = identity;
        checked_lineage(&lineage)?;
        if old_source != source {
            self.sources.remove(&source_key(&old_source, name))?;
        }
        self.sources.insert(&source_key(source, name), b"")?;
        if let Some(open) = self.open.get_mut(name) {
            open.view.lineage = lineage;
            return Ok(false);
        }
        let empty = || Map::open(self.source, None);
        let (checkpoints, keys, tags) = (empty(), empty(), empty());
        let view = LineageView {
            lineage,
            source: self.source,
            checkpoints,
            keys,
            tags,
        };
        self.open.insert(name.to_vec(), Open { view, stored: None });
        Ok(true)
    }

    /// Adds a checkpoint to a lineage and returns its number.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the lineage; [`Error::Refused`] (`lineage_moving`, `lineage_archived`) if it accepts no
    /// checkpoints; [`Error::Invalid`] if the checkpoint is in the catalog already; or if the catalog cannot be read.
    pub fn add_checkpoint(&mut self, lineage: &[u8], id: ObjectId, time: Time) -> Result<u64> {
        let view = self.expect(lineage)?;
        refuse_closed(&view.lineage)?;
        self.append(lineage, &CheckpointEntry::new(id, time))
    }

    /// Gives an entry the lineage's next number.
    fn append(&mut self, lineage: &[u8], entry: &CheckpointEntry) -> Result<u64> {
        if let Some(other) = self.ids.get(entry.id.as_bytes())? {
            let problem = format!("{} is in the lineage {} already", entry.id, escape(&other));
            return Err(Error::invalid("checkpoint", problem));
        }
        let value = entry.encode()?;
        let view = self.expect(lineage)?;
        let number = view.lineage.next_number;
        let Some(next) = number.checked_add(1) else {
            return Err(Error::invalid("lineage", "it has no numbers left"));
        };
        view.checkpoints.insert(&number_bytes(number), &value)?;
        view.lineage.next_number = next;
        self.ids.insert(entry.id.as_bytes(), lineage)?;
        Ok(number)
    }

    /// Drops a checkpoint and everything that names it. Its number is not used again.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the lineage or the checkpoint; or if the catalog cannot be read.
    pub fn drop_checkpoint(&mut self, lineage: &[u8], number: u64) -> Result<Removed> {
        let view = self.expect(lineage)?;
        let Some(removed) = view.removal(number)? else {
            return Err(no_checkpoint(lineage, number));
        };
        view.checkpoints.remove(&number_bytes(number))?;
        for tag in &removed.entry.tags {
            view.tags.remove(tag.as_bytes())?;
        }
        for (role, key) in &removed.keys {
            view.keys.remove(&key_key(*role, key))?;
        }
        self.ids.remove(removed.entry.id.as_bytes())?;
        Ok(removed)
    }

    /// Brings a dropped checkpoint back, under a new number, with its pin, its note, and those of its tags and keys that no
    /// other checkpoint of the lineage has taken since. An archived lineage accepts it.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the lineage; [`Error::Refused`] (`lineage_moving`) while another store adopts it;
    /// [`Error::Invalid`] if the checkpoint is in the catalog already; or if the catalog cannot be read.
    pub fn return_checkpoint(&mut self, removed: &Removed) -> Result<Returned> {
        removed
            .keys
            .iter()
            .try_for_each(|(_, key)| check_key(key))?;
        let view = self.expect(&removed.lineage)?;
        if !view.lineage.state.is_archived() {
            refuse_closed(&view.lineage)?;
        }
        let mut entry = removed.entry.clone();
        let mut tags_taken = Vec::new();
        for tag in std::mem::take(&mut entry.tags) {
            let taken = view.tags.get(tag.as_bytes())?.is_some();
            if taken {
                tags_taken.push(tag);
            } else {
                entry.tags.push(tag);
            }
        }
        let mut keys_taken = Vec::new();
        let mut keys_free = Vec::new();
        for (role, key) in &removed.keys {
            let taken = view.keys.get(&key_key(*role, key))?.is_some();
            if taken {
                &mut keys_taken
            } else {
                &mut keys_free
            }
            .push((*role, key.clone()));
        }
        let number = self.append(&removed.lineage, &entry)?;
        let view = self.expect(&removed.lineage)?;
        for tag in &entry.tags {
            view.tags.insert(tag.as_bytes(), &number_bytes(number))?;
        }
        for (role, key) in &keys_free {
            view.keys
                .insert(&key_key(*role, key), &number_bytes(number))?;
        }
        Ok(Returned {
            number,
            tags_taken,
            keys_taken,
        })
    }

    /// Lets a key, in a role, name a checkpoint: the key and role of its record. Returns the number that it named before.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the lineage or the checkpoint; [`Error::Invalid`] if the key is empty or too long; or if the
    /// catalog cannot be read.
    pub fn set_key(
        &mut self,
        lineage: &[u8],
        role: Role,
        key: &[u8],
        number: u64,
    ) -> Result<Option<u64>> {
        check_key(key)?;
        let view = self.expect(lineage)?;
        expect_entry(view, number)?;
        let previous = view
            .keys
            .insert(&key_key(role, key), &number_bytes(number))?;
        previous.map(|value| number_value(&value)).transpose()
    }

    /// Gives a checkpoint a tag, taking it from another one of the lineage that may have it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it may not be a tag, or the checkpoint has too many; [`Error::NotFound`] without the lineage or the
    /// checkpoint; or if the catalog cannot be read.
    pub fn set_tag(&mut self, lineage: &[u8], number: u64, tag: &str) -> Result<TagChange> {
        if !is_tag(tag) {
            return Err(Error::invalid("tag", format!("{tag:?} may not be a tag")));
        }
        let view = self.expect(lineage)?;
        let mut entry = expect_entry(view, number)?;
        let Err(at) = entry.tags.binary_search_by(|other| other.as_str().cmp(tag)) else {
            return Ok(TagChange::Unchanged);
        };
        entry.tags.insert(at, tag.to_owned());
        let value = entry.encode()?;
        let holder = view
            .tags
            .get(tag.as_bytes())?
            .map(|value| number_value(&value))
            .transpose()?;
        if let Some(from) = holder {
            take_tag(view, from, tag)?;
        }
        view.checkpoints.insert(&number_bytes(number), &value)?;
        view.tags.insert(tag.as_bytes(), &number_bytes(number))?;
        Ok(holder.map_or(TagChange::Added, |from| TagChange::Moved { from }))
    }

    /// Takes a tag away and returns the number of the checkpoint that had it.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the lineage or the tag; or if the catalog cannot be read.
    pub fn remove_tag(&mut self, lineage: &[u8], tag: &str) -> Result<u64> {
        let view = self.expect(lineage)?;
        let Some(value) = view.tags.get(tag.as_bytes())? else {
            let detail = format!("in the lineage {}", escape(lineage));
            return Err(Error::not_found(Wanted::Tag, tag, detail));
        };
        let number = number_value(&value)?;
        take_tag(view, number, tag)?;
        view.tags.remove(tag.as_bytes())?;
        Ok(number)
    }

    /// Pins or unpins a checkpoint and returns whether it was pinned.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the lineage or the checkpoint; or if the catalog cannot be read.
    pub fn set_pinned(&mut self, lineage: &[u8], number: u64, pinned: bool) -> Result<bool> {
        self.change(lineage, number, |entry| {
            std::mem::replace(&mut entry.pinned, pinned)
        })
    }

    /// Sets a checkpoint's note and returns the one before.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is too long; [`Error::NotFound`] without the lineage or the checkpoint; or if the catalog cannot
    /// be read.
    pub fn set_note(&mut self, lineage: &[u8], number: u64, note: &[u8]) -> Result<Vec<u8>> {
        self.change(lineage, number, |entry| {
            std::mem::replace(&mut entry.note, note.to_vec())
        })
    }

    fn change<T>(
        &mut self,
        lineage: &[u8],
        number: u64,
        change: impl FnOnce(&mut CheckpointEntry) -> T,
    ) -> Result<T> {
        let view = self.expect(lineage)?;
        let mut entry = expect_entry(view, number)?;
        let was = change(&mut entry);
        view.checkpoints
            .insert(&number_bytes(number), &entry.encode()?)?;
        Ok(was)
    }

    /// Sets whether a lineage accepts checkpoints, and returns what was so before.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the reason is too long; [`Error::NotFound`] without the lineage; or if the catalog cannot be read.
    pub fn set_state(&mut self, lineage: &[u8], state: LineageState) -> Result<LineageState> {
        let view = self.expect(lineage)?;
        let mut changed = view.lineage.clone();
        let was = std::mem::replace(&mut changed.state, state);
        checked_lineage(&changed)?;
        view.lineage = changed;
        Ok(was)
    }

    /// Archives a lineage: kept, out of use. Returns what was so before; one that is archived already stays as it is.
    ///
    /// # Errors
    /// As [`CatalogEdit::set_state`].
    pub fn archive(&mut self, lineage: &[u8], reason: &[u8], time: Time) -> Result<LineageState> {
        let state = self.expect(lineage)?.lineage.state.clone();
        if state.is_archived() {
            return Ok(state);
        }
        self.set_state(
            lineage,
            LineageState::Archived {
                reason: reason.to_vec(),
                time,
            },
        )
    }

    /// Takes an archived or moving lineage back into use. Returns what was so before.
    ///
    /// # Errors
    /// As [`CatalogEdit::set_state`].
    pub fn unarchive(&mut self, lineage: &[u8]) -> Result<LineageState> {
        self.set_state(lineage, LineageState::Active)
    }

    /// Gives a lineage another name. Its source stays.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the lineage; [`Error::Invalid`] if the new name may not be one, or is another lineage's; or if
    /// the catalog cannot be read.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        if !is_lineage_name(to) {
            return Err(Error::invalid(
                "lineage",
                format!("{} may not be its name", escape(to)),
            ));
        }
        self.expect(from)?;
        if from == to {
            return Ok(());
        }
        if self.open(to)?.is_some() {
            return Err(Error::invalid(
                "lineage",
                format!("{} exists already", escape(to)),
            ));
        }
        let Some(mut open) = self.open.remove(from) else {
            return Err(Error::not_found(Wanted::Lineage, escape(from), ""));
        };
        for checkpoint in open.view.oldest_first() {
            self.ids.insert(checkpoint?.entry.id.as_bytes(), to)?;
        }
        self.sources
            .remove(&source_key(&open.view.lineage.source, from))?;
        self.sources
            .insert(&source_key(&open.view.lineage.source, to), b"")?;
        self.lineages.remove(from)?;
        open.view.lineage.name = to.to_vec();
        open.stored = None;
        self.open.insert(to.to_vec(), open);
        Ok(())
    }
}

fn new_lineage(name: &[u8], source: &[u8]) -> Lineage {
    Lineage {
        name: name.to_vec(),
        source: source.to_vec(),
        host: Vec::new(),
        identity: None,
        next_number: 1,
        state: LineageState::Active,
        checkpoints: None,
        keys: None,
        tags: None,
    }
}

/// Refuses a lineage that could not be written, while nothing has been changed yet.
fn checked_lineage(lineage: &Lineage) -> Result<()> {
    if !is_lineage_name(&lineage.name) {
        return Err(Error::invalid(
            "lineage",
            format!("{} may not be its name", escape(&lineage.name)),
        ));
    }
    if !is_source(&lineage.source) {
        let problem = format!(
            "{} is not a canonical absolute path",
            escape(&lineage.source)
        );
        return Err(Error::invalid("source", problem));
    }
    lineage.encode().map(drop)
}

/// Refuses new checkpoints for a lineage that is archived or about to move.
fn refuse_closed(lineage: &Lineage) -> Result<()> {
    let name = escape(&lineage.name);
    let unarchive = format!("genstore lineage unarchive {}", quote(&lineage.name));
    match &lineage.state {
        LineageState::Active => Ok(()),
        LineageState::Moving { to } => Err(Error::refused(
            "lineage_moving",
            format!("the lineage {name} is moving to the store {to} and accepts no checkpoints"),
            format!("run the adoption again there to finish it, or cancel it: {unarchive}"),
        )),
        LineageState::Archived { .. } => Err(Error::refused(
            "lineage_archived",
            format!("the lineage {name} is archived and accepts no checkpoints"),
            format!("take it back into use: {unarchive}"),
        )),
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if (1..=MAX_KEY_BYTES).contains(&key.len()) {
        return Ok(());
    }
    Err(Error::invalid("key", "a key has 1 to 1,024 bytes"))
}

fn no_checkpoint(lineage: &[u8], number: u64) -> Error {
    let detail = format!("in the lineage {}", escape(lineage));
    Error::not_found(Wanted::Checkpoint, format!("number {number}"), detail)
}

fn expect_entry(view: &LineageView<'_>, number: u64) -> Result<CheckpointEntry> {
    view.checkpoint(number)?
        .ok_or_else(|| no_checkpoint(view.name(), number))
}

/// Takes a tag out of a checkpoint's entry.
fn take_tag(view: &mut LineageView<'_>, number: u64, tag: &str) -> Result<()> {
    let key = number_bytes(number);
    let value = view.checkpoints.get(&key)?;
    let mut entry = match value {
        Some(value) => entry_value(number, &value)?,
        None => {
            return Err(contradiction(format!(
                "the tag {tag:?} names checkpoint {number}, which does not exist"
            )));
        }
    };
    entry.tags.retain(|other| other != tag);
    view.checkpoints.insert(&key, &entry.encode()?)?;
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
