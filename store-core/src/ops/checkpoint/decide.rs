//! What is decided on the state under LOCK: whether anything changed, and what the record says (I5).

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::catalog::{Catalog, CatalogEdit};
use crate::disk;
use crate::format::catalog::{CheckpointRef, LineageState};
use crate::format::checkpoint::{Actor, CheckpointRecord, Counts, HardLinkState, Role};
use crate::format::manifest::{Manifest, Request};
use crate::id::ObjectId;
use crate::objects::{Class, ObjectSink, ObjectSource};
use crate::root::host_name;
use crate::worktree::compare::{self, Side};
use crate::{Error, Result};

use super::CheckpointRequest;
use super::capture::Captured;
use super::source::Source;
use crate::ops::annotate;
use crate::ops::base::Base;
use crate::ops::commit::Verdict;
use crate::ops::read::Either;
use crate::ops::staging::Staging;

pub(super) fn refuse_read_only(manifest: &Manifest) -> Result<()> {
    if manifest
        .policy
        .as_ref()
        .is_some_and(|policy| !policy.writable)
    {
        return Err(Error::refused(
            "store_read_only",
            "this store is a read-only copy",
            "checkpoint into the original store",
        ));
    }
    Ok(())
}

/// An existing checkpoint that answers the request.
#[derive(Clone, Debug)]
pub(super) struct Existing {
    pub(super) at: CheckpointRef,
    pub(super) record: CheckpointRecord,
}

pub(super) fn latest(catalog: &Catalog<'_>, lineage: &[u8]) -> Result<Option<Existing>> {
    let Some(view) = catalog.lineage(lineage)? else {
        return Ok(None);
    };
    let Some(latest) = view.latest()? else {
        return Ok(None);
    };
    let record = catalog.record(&latest.entry.id)?;
    Ok(Some(Existing {
        at: CheckpointRef {
            lineage: lineage.to_vec(),
            number: latest.number,
            id: latest.entry.id,
        },
        record,
    }))
}

pub(super) fn known_key(
    catalog: &Catalog<'_>,
    lineage: &[u8],
    request: &CheckpointRequest,
) -> Result<Option<Existing>> {
    let Some(key) = &request.key else {
        return Ok(None);
    };
    let Some(view) = catalog.lineage(lineage)? else {
        return Ok(None);
    };
    let Some(found) = view.keyed(request.role, key)? else {
        return Ok(None);
    };
    let record = catalog.record(&found.entry.id)?;
    Ok(Some(Existing {
        at: CheckpointRef {
            lineage: lineage.to_vec(),
            number: found.number,
            id: found.entry.id,
        },
        record,
    }))
}

/// Remembers new trees while they are not in a pack yet, so that "the same but for mtimes of directories" can be decided.
pub(super) struct TreeTap<'a> {
    pub(super) sink: &'a dyn ObjectSink,
    pub(super) trees: Option<Mutex<HashMap<ObjectId, Vec<u8>>>>,
}

impl<'a> TreeTap<'a> {
    pub(super) fn new(sink: &'a dyn ObjectSink, remember: bool) -> Self {
        Self {
            sink,
            trees: remember.then(Mutex::default),
        }
    }

    pub(super) fn into_trees(self) -> Trees {
        Trees(
            self.trees
                .map(|trees| trees.into_inner().unwrap_or_else(PoisonError::into_inner))
                .unwrap_or_default(),
        )
    }
}

impl ObjectSink for TreeTap<'_> {
    fn put(&self, bytes: &[u8], class: Class) -> Result<ObjectId> {
        let id = self.sink.put(bytes, class)?;
        if let (Class::Tree, Some(trees)) = (class, &self.trees) {
            trees
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id, bytes.to_vec());
        }
        Ok(id)
    }
}

/// New trees by id.
pub(super) struct Trees(HashMap<ObjectId, Vec<u8>>);

impl ObjectSource for Trees {
    fn get(&self, id: &ObjectId, _limit: usize) -> Result<Vec<u8>> {
        self.0.get(id).cloned().ok_or_else(|| Error::ObjectMissing {
            object: *id,
            needed: None,
            place: "new trees".into(),
        })
    }

    fn contains(&self, id: &ObjectId) -> Result<bool> {
        Ok(self.0.contains_key(id))
    }
}

pub(super) fn store_list<T>(
    sink: &dyn ObjectSink,
    list: &[T],
    encode: impl Fn(&[T]) -> Result<Vec<u8>>,
) -> Result<Option<ObjectId>> {
    if list.is_empty() {
        return Ok(None);
    }
    sink.put(&encode(list)?, Class::Tree).map(Some)
}

/// What is to be committed, once the state under LOCK is known.
pub(super) struct Change<'a> {
    #[cfg(feature = "planted")]
    pub(super) planted: (Option<crate::planted::Bug>, &'a Base),
    pub(super) request: &'a CheckpointRequest,
    pub(super) source: &'a Source,
    pub(super) name: &'a [u8],
    pub(super) captured: &'a Captured,
    pub(super) trees: &'a Trees,
    pub(super) rules: Option<ObjectId>,
    pub(super) left_out: Option<ObjectId>,
    pub(super) healed: u64,
}

/// What the decision under LOCK came to.
pub(super) struct Decided {
    pub(super) at: CheckpointRef,
    pub(super) record: CheckpointRecord,
    pub(super) previous: Option<Existing>,
}

impl Change<'_> {
    pub(super) fn decide(
        &self,
        now: &Base,
        edit: &mut CatalogEdit<'_>,
        staging: &Staging<'_>,
    ) -> Result<Verdict<Decided>> {
        refuse_read_only(now.manifest())?;
        let catalog = now.catalog()?;
        refuse_unavailable(&catalog, self.name)?;
        refuse_other_source(&catalog, self.name, self.source)?;
        if let Some(known) = known_key(&catalog, self.name, self.request)? {
            return self.unchanged(now, &known, edit);
        }
        let latest = latest(&catalog, self.name)?;
        if let Some(latest) = &latest
            && !self.request.force
            && self.says_the_same(now, latest)?
        {
            return self.unchanged(now, latest, edit);
        }
        self.add(now, latest, edit, staging)
    }

    /// Whether a new record would say nothing that the latest one does not.
    fn says_the_same(&self, now: &Base, latest: &Existing) -> Result<bool> {
        let (record, captured) = (&latest.record, self.captured);
        let asked = self.request.role != Role::None || self.request.actor != Actor::None;
        let as_before = record.role == self.request.role
            && record.actor == self.request.actor
            && record.key.as_deref() == self.request.key.as_deref();
        // With a role or an actor a record is made, so that a turn always has its *before*.
        if asked && !as_before {
            return Ok(false);
        }
        if record.root.mode != captured.root_meta.mode
            || record.root.owner != captured.root_meta.owner
        {
            return Ok(false);
        }
        if record.tree == captured.root_tree {
            return Ok(true);
        }
        let both = Either(self.trees, &now.objects);
        let same = compare::same_state(
            Side {
                source: &now.objects,
                tree: Some(record.tree),
            },
            Side {
                source: &both,
                tree: Some(captured.root_tree),
            },
        );
        match same {
            // The old tree is lost: what is there now is new in any case.
            Err(Error::ObjectMissing { .. } | Error::Damaged { .. }) => Ok(false),
            other => other,
        }
    }

    fn unchanged(
        &self,
        now: &Base,
        latest: &Existing,
        edit: &mut CatalogEdit<'_>,
    ) -> Result<Verdict<Decided>> {
        let decided = existing(latest.clone());
        let new_tags = self.new_tags(now, &latest.at)?;
        if new_tags.len() > 1 {
            // An operation has one inverse: two tags at once could not be undone.
            return Err(Error::refused(
                "one_tag_at_a_time",
                "nothing changed, and an existing checkpoint gets one tag at a time",
                format!(
                    "run `genstore tag {} TAG` for each",
                    &latest.at.id.to_string()[..16]
                ),
            ));
        }
        if let Some(tag) = new_tags.first() {
            let action = crate::format::manifest::TagAction::Add { moved_from: None };
            for tag in &new_tags {
                edit.set_tag(self.name, latest.at.number, tag)?;
            }
            let tag = crate::format::manifest::TagRequest {
                checkpoint: latest.at.clone(),
                tag: tag.clone(),
                action,
            };
            return Ok(Verdict::Publish {
                request: Request::Tag(tag),
                counts: BTreeMap::new(),
                value: decided,
            });
        }
        // Damage is recorded with the healing, so that what was written again is known to be all there was to write.
        let healed = self.healed > 0 && latest.record.tree == self.captured.root_tree;
        if healed || now.has_unrecorded_damage() {
            let counts = BTreeMap::from([("healed".to_owned(), self.healed)]);
            return Ok(Verdict::Publish {
                request: Request::Heal(latest.at.clone()),
                counts,
                value: decided,
            });
        }
        Ok(Verdict::Nothing(decided))
    }

    /// The tags that the checkpoint does not have yet; one that another checkpoint has is refused.
    fn new_tags(&self, now: &Base, at: &CheckpointRef) -> Result<Vec<String>> {
        let catalog = now.catalog()?;
        let view = catalog.lineage(self.name)?;
        let mut new = Vec::new();
        for tag in &self.request.tags {
            match view
                .as_ref()
                .map(|view| view.tagged(tag))
                .transpose()?
                .flatten()
            {
                Some(found) if found.entry.id == at.id => {}
                Some(found) => return Err(annotate::tag_exists(tag, &found.entry.id)),
                None if new.contains(tag) => {}
                None => new.push(tag.clone()),
            }
        }
        Ok(new)
    }

    fn add(
        &self,
        now: &Base,
        latest: Option<Existing>,
        edit: &mut CatalogEdit<'_>,
        staging: &Staging<'_>,
    ) -> Result<Verdict<Decided>> {
        let record = self.record(latest.as_ref())?;
        let id = staging.put(&record.encode()?, Class::Catalog)?;
        let source = self.source.path.as_os_str().as_bytes();
        edit.ensure_lineage(
            self.name,
            source,
            host_name().as_bytes(),
            self.source.identity,
        )?;
        let number = edit.add_checkpoint(self.name, id, record.time)?;
        if let Some(key) = &self.request.key {
            edit.set_key(self.name, self.request.role, key, number)?;
        }
        for tag in self.new_tags(
            now,
            &CheckpointRef {
                lineage: self.name.to_vec(),
                number,
                id,
            },
        )? {
            edit.set_tag(self.name, number, &tag)?;
        }
        let at = CheckpointRef {
            lineage: self.name.to_vec(),
            number,
            id,
        };
        let counts = counts_for_manifest(&record.counts, self.healed);
        let request = Request::Checkpoint(at.clone());
        Ok(Verdict::Publish {
            request,
            counts,
            value: Decided {
                at,
                record,
                previous: latest,
            },
        })
    }

    #[cfg(feature = "planted")]
    fn planted_parent(
        &self,
        parent: Option<ObjectId>,
        under_lock: Option<&Existing>,
    ) -> Result<Option<ObjectId>> {
        use crate::planted::Bug;
        let (bug, base) = &self.planted;
        Ok(match bug {
            None => parent,
            Some(Bug::WrongParent) => under_lock.and_then(|latest| latest.record.parent),
            Some(Bug::StaleParent) => {
                latest(&base.catalog()?, self.name)?.map(|latest| latest.at.id)
            }
        })
    }

    fn record(&self, latest: Option<&Existing>) -> Result<CheckpointRecord> {
        let parent = latest.map(|latest| latest.at.id);
        #[cfg(feature = "planted")]
        let parent = self.planted_parent(parent, latest)?;
        Ok(CheckpointRecord {
            nonce: disk::random_nonce()?,
            parent,
            time: self.captured.walk_start,
            message: self.request.message.clone(),
            key: self.request.key.clone(),
            role: self.request.role,
            actor: self.request.actor,
            source: self.source.path.as_os_str().as_bytes().to_vec(),
            host: host_name().into_bytes(),
            tree: self.captured.root_tree,
            root: self.captured.root_meta,
            counts: self.captured.counts,
            complete: self.captured.complete,
            rules: self.rules,
            left_out: self.left_out,
            hard_links: HardLinkState::NotCaptured,
            wrote: None,
            rolled_back_to: None,
        })
    }
}

pub(super) fn existing(found: Existing) -> Decided {
    Decided {
        at: found.at.clone(),
        record: found.record.clone(),
        previous: Some(found),
    }
}

pub(super) fn counts_for_manifest(counts: &Counts, healed: u64) -> BTreeMap<String, u64> {
    let mut map = BTreeMap::from([
        ("bytes".to_owned(), counts.bytes),
        ("directories".to_owned(), counts.directories),
        ("files".to_owned(), counts.files),
        ("left_out".to_owned(), counts.left_out),
        ("links".to_owned(), counts.links),
    ]);
    if healed > 0 {
        map.insert("healed".to_owned(), healed);
    }
    map
}

pub(super) fn refuse_unavailable(catalog: &Catalog<'_>, name: &[u8]) -> Result<()> {
    let Some(lineage) = catalog.lineage(name)? else {
        return Ok(());
    };
    let shown = crate::name::escape(name);
    match &lineage.lineage.state {
        LineageState::Active => Ok(()),
        LineageState::Moving { to } => Err(Error::refused(
            "lineage_moving",
            format!("lineage {shown} is moving to store {to}"),
            "checkpoint into that store, or run `genstore lineage unarchive` to cancel the move",
        )),
        LineageState::Archived { .. } => Err(Error::refused(
            "lineage_archived",
            format!("lineage {shown} is archived"),
            format!(
                "take it back into use: genstore lineage unarchive {}",
                crate::name::quote(name)
            ),
        )),
    }
}

/// A lineage is the series of one source. It follows a directory that moved, but never mixes two that both exist.
pub(super) fn refuse_other_source(
    catalog: &Catalog<'_>,
    name: &[u8],
    source: &Source,
) -> Result<()> {
    let Some(lineage) = catalog.lineage(name)? else {
        return Ok(());
    };
    let known = &lineage.lineage.source;
    if known == source.path.as_os_str().as_bytes() || lineage.lineage.host != host_name().as_bytes()
    {
        return Ok(());
    }
    let known = Path::new(std::ffi::OsStr::from_bytes(known));
    if disk::look_at_path(known).is_ok_and(|found| found.is_none()) {
        return Ok(());
    }
    Err(Error::refused(
        "lineage_has_other_source",
        format!(
            "lineage {} is the history of {}",
            crate::name::escape(name),
            crate::name::quote_path(known)
        ),
        "give this source a lineage of its own with --lineage NAME",
    ))
}
