//! Reading a catalog: lineages, their checkpoints, and who owns a path.

use crate::catalog::edit::Removed;
use crate::catalog::map::{Map, Scan};
use crate::catalog::{contradiction, damaged, entry_value, id_value, load, number_value};
use crate::error::{Error, Result, Wanted};
use crate::format::catalog::{
    CatalogRoot, CheckpointEntry, CheckpointRef, LeafRow, Lineage, number_bytes, parse_number,
    parse_source_key, source_key,
};
use crate::format::checkpoint::{CheckpointRecord, MAX_KEY_BYTES, Role};
use crate::id::ObjectId;
use crate::name::escape;
use crate::objects::ObjectSource;

/// A catalog, as one state of a store has it.
#[derive(Clone)]
pub struct Catalog<'s> {
    root: Option<ObjectId>,
    pub(super) source: &'s dyn ObjectSource,
    pub(super) lineages: Map<'s>,
    pub(super) sources: Map<'s>,
    pub(super) ids: Map<'s>,
}

/// A checkpoint's entry and its number in its lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// The number.
    pub number: u64,
    /// The entry.
    pub entry: CheckpointEntry,
}

/// A checkpoint that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name of its lineage.
    pub lineage: Vec<u8>,
    /// Its number there.
    pub number: u64,
    /// Its entry.
    pub entry: CheckpointEntry,
}

impl Found {
    /// Which checkpoint it is.
    pub fn reference(&self) -> CheckpointRef {
        CheckpointRef {
            lineage: self.lineage.clone(),
            number: self.number,
            id: self.entry.id,
        }
    }
}

impl<'s> Catalog<'s> {
    /// The catalog with this root.
    ///
    /// # Errors
    /// If the root cannot be read or is not a catalog root.
    pub fn open(source: &'s dyn ObjectSource, root: &ObjectId) -> Result<Self> {
        let maps = load(source, root, CatalogRoot::decode)?;
        Ok(Self::of_maps(source, Some(*root), &maps))
    }

    /// The catalog of a new store.
    pub fn empty(source: &'s dyn ObjectSource) -> Self {
        Self::of_maps(source, None, &CatalogRoot::default())
    }

    fn of_maps(source: &'s dyn ObjectSource, root: Option<ObjectId>, maps: &CatalogRoot) -> Self {
        Self {
            root,
            source,
            lineages: Map::open(source, maps.lineages),
            sources: Map::open(source, maps.sources),
            ids: Map::open(source, maps.ids),
        }
    }

    /// How many checkpoints there are in all lineages.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn count(&self) -> Result<u64> {
        self.ids.count()
    }

    /// The lineages, by name.
    pub fn lineages(&self) -> impl Iterator<Item = Result<LineageView<'s>>> + use<'s> {
        let source = self.source;
        self.lineages
            .rows(None, false)
            .map(move |row| LineageView::of_row(source, &row?))
    }

    /// The lineage of a name.
    ///
    /// # Errors
    /// If the catalog cannot be read. That there is no such lineage is `None`.
    pub fn lineage(&self, name: &[u8]) -> Result<Option<LineageView<'s>>> {
        let Some(value) = self.lineages.get(name)? else {
            return Ok(None);
        };
        LineageView::of_row(
            self.source,
            &LeafRow {
                key: name.to_vec(),
                value,
            },
        )
        .map(Some)
    }

    /// The lineage of a name that has to be there.
    ///
    /// # Errors
    /// [`Error::NotFound`], or if the catalog cannot be read.
    pub fn expect_lineage(&self, name: &[u8]) -> Result<LineageView<'s>> {
        self.lineage(name)?
            .ok_or_else(|| Error::not_found(Wanted::Lineage, escape(name), ""))
    }

    /// The name of the lineage that a checkpoint is in.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn lineage_of(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        self.ids.get(id.as_bytes())
    }

    /// A checkpoint by its id.
    ///
    /// # Errors
    /// If the catalog cannot be read, or contradicts itself.
    pub fn find(&self, id: &ObjectId) -> Result<Option<Found>> {
        let Some(lineage) = self.lineage_of(id)? else {
            return Ok(None);
        };
        let view = self.lineage(&lineage)?;
        let found = view.map(|view| view.find(id)).transpose()?.flatten();
        match found {
            Some(Numbered { number, entry }) => Ok(Some(Found {
                lineage,
                number,
                entry,
            })),
            None => Err(contradiction(format!(
                "checkpoint {id} is listed under the lineage {}, which does not have it",
                escape(&lineage)
            ))),
        }
    }

    /// At most `limit` checkpoints whose ids begin with these lower-case hex digits, each with the name of its lineage.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `prefix` is anything but 1 to 64 lower-case hex digits; or if the catalog cannot be read.
    pub fn ids(&self, prefix: &str, limit: usize) -> Result<Vec<(ObjectId, Vec<u8>)>> {
        let digits = prefix
            .bytes()
            .all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let whole = format!("{prefix:0<64}");
        let (true, true, Some(from)) = (digits, !prefix.is_empty(), ObjectId::parse(&whole)) else {
            return Err(Error::invalid(
                "id",
                format!("{prefix:?} is not the beginning of an id"),
            ));
        };
        let mut found = Vec::new();
        for row in self.ids.rows(Some(from.as_bytes()), false) {
            let row = row?;
            let id = id_value(&row.key, "a key of the ids")?;
            if found.len() == limit || !id.to_string().starts_with(prefix) {
                break;
            }
            found.push((id, row.value));
        }
        Ok(found)
    }

    /// Names every object of the catalog: its root, the nodes of all maps, the lineages. Records are not part of it.
    /// What is under an object is left out if `enter` answers false for it, so that what is known already is not walked
    /// again. An object is named before it is read, and leaves are not read at all.
    ///
    /// # Errors
    /// If an object that has others under it cannot be read; or what `enter` returns.
    pub fn walk_objects(&self, enter: &mut dyn FnMut(&ObjectId) -> Result<bool>) -> Result<()> {
        if let Some(root) = &self.root
            && !enter(root)?
        {
            return Ok(());
        }
        self.sources.walk_nodes(enter)?;
        self.ids.walk_nodes(enter)?;
        self.lineages.walk_nodes(enter)?;
        for row in self.lineages.rows(None, false) {
            let row = row?;
            if enter(&id_value(&row.value, "a lineage")?)? {
                let view = LineageView::of_row(self.source, &row)?;
                for map in [&view.checkpoints, &view.keys, &view.tags] {
                    map.walk_nodes(enter)?;
                }
            }
        }
        Ok(())
    }

    /// A checkpoint's record.
    ///
    /// # Errors
    /// If the record cannot be read or is not a checkpoint record.
    pub fn record(&self, id: &ObjectId) -> Result<CheckpointRecord> {
        load(self.source, id, CheckpointRecord::decode)
    }

    /// The lineage of the nearest registered source that owns `path`, a canonical absolute path: `path` itself, or the first of
    /// its parents that is a source.
    ///
    /// Of several lineages of one source, archived ones count only if all are; then the one that has the source's path as its
    /// name wins, else the only one.
    ///
    /// # Errors
    /// [`Error::Ambiguous`] if that leaves several; or if the catalog cannot be read.
    pub fn discover(&self, path: &[u8]) -> Result<Option<LineageView<'s>>> {
        let mut owner = Some(path);
        while let Some(source) = owner {
            let lineages = self.lineages_of(source)?;
            if !lineages.is_empty() {
                return choose(source, lineages).map(Some);
            }
            owner = parent(source);
        }
        Ok(None)
    }

    /// The lineages of exactly this source, by name.
    ///
    /// # Errors
    /// If the catalog cannot be read, or contradicts itself.
    pub fn lineages_of(&self, source: &[u8]) -> Result<Vec<LineageView<'s>>> {
        let prefix = source_key(source, b"");
        let mut lineages = Vec::new();
        for row in self.sources.rows(Some(&prefix), false) {
            let row = row?;
            let Some(name) = row.key.strip_prefix(prefix.as_slice()) else {
                break;
            };
            match self.lineage(name)? {
                Some(lineage) => lineages.push(lineage),
                None => {
                    return Err(contradiction(format!(
                        "the source {} is listed for the lineage {}, which does not exist",
                        escape(source),
                        escape(name)
                    )));
                }
            }
        }
        Ok(lineages)
    }

    /// Source and name of each lineage whose source lies below `path`, a canonical absolute path.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn nested(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut prefix = path.to_vec();
        if prefix.last() != Some(&b'/') {
            prefix.push(b'/');
        }
        let mut nested = Vec::new();
        for row in self.sources.rows(Some(&prefix), false) {
            let row = row?;
            if !row.key.starts_with(&prefix) {
                break;
            }
            let Some((source, name)) = parse_source_key(&row.key) else {
                return Err(contradiction("a key of the sources is malformed"));
            };
            if source != path {
                nested.push((source.to_vec(), name.to_vec()));
            }
        }
        Ok(nested)
    }
}

/// The directory that a canonical absolute path is in.
fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    match (slash, path.len()) {
        (0, 1) => None,
        (0, _) => Some(b"/"),
        _ => Some(&path[..slash]),
    }
}

fn choose<'s>(source: &[u8], mut lineages: Vec<LineageView<'s>>) -> Result<LineageView<'s>> {
    if lineages
        .iter()
        .any(|view| !view.lineage.state.is_archived())
    {
        lineages.retain(|view| !view.lineage.state.is_archived());
    }
    let named = lineages.iter().position(|view| view.lineage.name == source);
    if let Some(at) = named.or((lineages.len() == 1).then_some(0)) {
        return Ok(lineages.swap_remove(at));
    }
    Err(Error::Ambiguous {
        wanted: Wanted::Lineage,
        name: escape(source),
        candidates: lineages
            .iter()
            .map(|view| escape(&view.lineage.name))
            .collect(),
    })
}

/// A lineage, as one state of a store has it.
#[derive(Clone)]
pub struct LineageView<'s> {
    /// The lineage object.
    pub lineage: Lineage,
    pub(super) source: &'s dyn ObjectSource,
    pub(super) checkpoints: Map<'s>,
    pub(super) keys: Map<'s>,
    pub(super) tags: Map<'s>,
}

impl<'s> LineageView<'s> {
    /// The lineage of a row of the lineages map.
    pub(super) fn of_row(source: &'s dyn ObjectSource, row: &LeafRow) -> Result<Self> {
        let id = id_value(&row.value, "a lineage")?;
        let lineage = load(source, &id, Lineage::decode)?;
        if lineage.name != row.key {
            return Err(damaged(
                &id,
                "a lineage has another name than the catalog has for it",
            ));
        }
        Ok(Self {
            source,
            checkpoints: Map::open(source, lineage.checkpoints),
            keys: Map::open(source, lineage.keys),
            tags: Map::open(source, lineage.tags),
            lineage,
        })
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.lineage.name
    }

    /// How many checkpoints it has.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn count(&self) -> Result<u64> {
        self.checkpoints.count()
    }

    /// Its checkpoints, the highest number first.
    pub fn newest_first(&self) -> Checkpoints<'s> {
        Checkpoints {
            rows: self.checkpoints.rows(None, true),
        }
    }

    /// Its checkpoints, the lowest number first.
    pub fn oldest_first(&self) -> Checkpoints<'s> {
        Checkpoints {
            rows: self.checkpoints.rows(None, false),
        }
    }

    /// Its checkpoints from a number on, in either direction.
    pub fn starting_at(&self, number: u64, reverse: bool) -> Checkpoints<'s> {
        Checkpoints {
            rows: self.checkpoints.rows(Some(&number_bytes(number)), reverse),
        }
    }

    /// The checkpoint with the highest number.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn latest(&self) -> Result<Option<Numbered>> {
        self.newest_first().next().transpose()
    }

    /// The checkpoint with the lowest number.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn first(&self) -> Result<Option<Numbered>> {
        self.oldest_first().next().transpose()
    }

    /// The checkpoint that has `back` later ones.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn back(&self, back: u64) -> Result<Option<Numbered>> {
        let count = self.count()?;
        let Some(place) = count.checked_sub(1).and_then(|last| last.checked_sub(back)) else {
            return Ok(None);
        };
        self.checkpoints
            .at(place)?
            .map(|row| numbered(&row))
            .transpose()
    }

    /// The checkpoint with a number.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn checkpoint(&self, number: u64) -> Result<Option<CheckpointEntry>> {
        let value = self.checkpoints.get(&number_bytes(number))?;
        value.map(|value| entry_value(number, &value)).transpose()
    }

    /// The checkpoint with an id. Looks through the lineage, the newest first.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn find(&self, id: &ObjectId) -> Result<Option<Numbered>> {
        for checkpoint in self.newest_first() {
            let checkpoint = checkpoint?;
            if checkpoint.entry.id == *id {
                return Ok(Some(checkpoint));
            }
        }
        Ok(None)
    }

    /// The checkpoint that was made with a key, in a role.
    ///
    /// # Errors
    /// If the catalog cannot be read, or contradicts itself.
    pub fn keyed(&self, role: Role, key: &[u8]) -> Result<Option<Numbered>> {
        let value = self.keys.get(&key_key(role, key))?;
        value
            .map(|value| self.named(number_value(&value)?, "a key"))
            .transpose()
    }

    /// The checkpoint that has a tag.
    ///
    /// # Errors
    /// If the catalog cannot be read, or contradicts itself.
    pub fn tagged(&self, tag: &str) -> Result<Option<Numbered>> {
        let value = self.tags.get(tag.as_bytes())?;
        value
            .map(|value| self.named(number_value(&value)?, "a tag"))
            .transpose()
    }

    /// Its tags in byte order, each with the number of its checkpoint.
    pub fn tags(&self) -> impl Iterator<Item = Result<(String, u64)>> + use<'s> {
        self.tags.rows(None, false).map(|row| {
            let row = row?;
            match String::from_utf8(row.key) {
                Ok(tag) => Ok((tag, number_value(&row.value)?)),
                Err(_) => Err(contradiction("a tag is not UTF-8")),
            }
        })
    }

    /// What dropping a checkpoint would take away, which is what bringing it back needs.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn removal(&self, number: u64) -> Result<Option<Removed>> {
        let Some(entry) = self.checkpoint(number)? else {
            return Ok(None);
        };
        let keys = self.keys_of(number, &entry.id)?;
        Ok(Some(Removed {
            lineage: self.name().to_vec(),
            number,
            entry,
            keys,
        }))
    }

    /// The keys that name a checkpoint. Its record has the only one there can be; without the record, all keys are searched.
    fn keys_of(&self, number: u64, id: &ObjectId) -> Result<Vec<(Role, Vec<u8>)>> {
        let record = match load(self.source, id, CheckpointRecord::decode) {
            Ok(record) => record,
            Err(Error::ObjectMissing { .. } | Error::Damaged { .. }) => {
                return self.search_keys(number);
            }
            Err(error) => return Err(error),
        };
        let Some(key) = record.key else {
            return Ok(Vec::new());
        };
        let value = self.keys.get(&key_key(record.role, &key))?;
        let named = value.as_deref().and_then(parse_number) == Some(number);
        Ok(if named {
            vec![(record.role, key)]
        } else {
            Vec::new()
        })
    }

    fn search_keys(&self, number: u64) -> Result<Vec<(Role, Vec<u8>)>> {
        let mut found = Vec::new();
        for row in self.keys.rows(None, false) {
            let row = row?;
            if number_value(&row.value)? == number {
                let (role, key) =
                    parse_key(&row.key).ok_or_else(|| contradiction("a key is malformed"))?;
                found.push((role, key.to_vec()));
            }
        }
        Ok(found)
    }

    fn named(&self, number: u64, by: &str) -> Result<Numbered> {
        match self.checkpoint(number)? {
            Some(entry) => Ok(Numbered { number, entry }),
            None => Err(contradiction(format!(
                "{by} of the lineage {} names checkpoint {number}, which it does not have",
                escape(self.name())
            ))),
        }
    }
}

/// The key of a row of a lineage's keys map.
pub(super) fn key_key(role: Role, key: &[u8]) -> Vec<u8> {
    [&[role.to_byte()], key].concat()
}

/// Role and key of a row of a lineage's keys map.
pub(super) fn parse_key(bytes: &[u8]) -> Option<(Role, &[u8])> {
    let (&role, key) = bytes.split_first()?;
    let fits = (1..=MAX_KEY_BYTES).contains(&key.len());
    Role::from_byte(role)
        .filter(|_| fits)
        .map(|role| (role, key))
}

fn numbered(row: &LeafRow) -> Result<Numbered> {
    match parse_number(&row.key) {
        Some(number) if number > 0 => Ok(Numbered {
            number,
            entry: entry_value(number, &row.value)?,
        }),
        _ => Err(contradiction("a checkpoint's number is malformed")),
    }
}

/// The checkpoints of a lineage, one after the other.
pub struct Checkpoints<'s> {
    rows: Scan<'s>,
}

impl Iterator for Checkpoints<'_> {
    type Item = Result<Numbered>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next().map(|row| numbered(&row?))
    }
}

#[cfg(test)]
mod tests;
