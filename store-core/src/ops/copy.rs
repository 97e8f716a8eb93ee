//! Carrying a checkpoint with everything it needs from one state into another: each object is read, checked and put.

use std::collections::HashSet;

use crate::catalog::CatalogEdit;
use crate::format::catalog::CheckpointRef;
use crate::format::content::Content;
use crate::format::pack::MAX_BLOCK_BYTES;
use crate::format::tree::Node;
use crate::id::ObjectId;
use crate::objects::chunker;
use crate::objects::{Class, ObjectSink, ObjectSource};
use crate::{Error, Result, Wanted};

use super::base::Base;
use super::read::load_tree;
use super::staging::Staging;

/// Copies one checkpoint of `from` into `edit` and `staging`, with its keys, tags, pin and note. Its number is given anew.
pub(crate) fn checkpoint(
    from: &Base,
    at: &CheckpointRef,
    edit: &mut CatalogEdit<'_>,
    staging: &Staging<'_>,
) -> Result<()> {
    let catalog = from.catalog()?;
    let lineage = catalog.expect_lineage(&at.lineage)?;
    let found = lineage.find(&at.id)?.ok_or_else(|| {
        Error::not_found(
            Wanted::Checkpoint,
            at.id.to_string(),
            "it is not in that lineage",
        )
    })?;
    let record = catalog.record(&at.id)?;
    let beside = [
        record.hard_links.object().copied(),
        record.root.xattrs.object().copied(),
    ];
    for id in [record.rules, record.left_out, record.wrote]
        .into_iter()
        .chain(beside)
        .flatten()
    {
        object(from, &id, Class::Tree, staging)?;
    }
    trees(from, record.tree, staging)?;
    object(from, &at.id, Class::Catalog, staging)?;
    let source = &lineage.lineage;
    edit.ensure_lineage(&at.lineage, &source.source, &source.host, source.identity)?;
    let removed = crate::catalog::Removed {
        lineage: at.lineage.clone(),
        number: found.number,
        keys: keys_of(&record),
        entry: found.entry,
    };
    edit.return_checkpoint(&removed)?;
    Ok(())
}

/// The key that a record was made with.
pub(crate) fn keys_of(
    record: &crate::format::checkpoint::CheckpointRecord,
) -> Vec<(crate::format::checkpoint::Role, Vec<u8>)> {
    record
        .key
        .iter()
        .map(|key| (record.role, key.clone()))
        .collect()
}

fn object(from: &Base, id: &ObjectId, class: Class, staging: &Staging<'_>) -> Result<()> {
    let bytes = from.objects.get(id, MAX_BLOCK_BYTES as usize)?;
    staging.put(&bytes, class)?;
    Ok(())
}

/// A tree and all below it; what was copied once is not read again.
fn trees(from: &Base, root: ObjectId, staging: &Staging<'_>) -> Result<()> {
    let mut seen = HashSet::from([root]);
    let mut waiting = vec![root];
    while let Some(id) = waiting.pop() {
        object(from, &id, Class::Tree, staging)?;
        for entry in load_tree(&from.objects, &id)?.entries {
            for extra in super::verify::extras_of(&entry) {
                if seen.insert(extra) {
                    object(from, &extra, Class::Tree, staging)?;
                }
            }
            match entry.node {
                Node::Directory { tree } => {
                    if seen.insert(tree) {
                        waiting.push(tree);
                    }
                }
                Node::File { size, content, .. } => {
                    if content.id().is_some_and(|id| seen.insert(*id)) {
                        content_of(from, &content, size, staging)?;
                    }
                }
                Node::Symlink { .. } => {}
            }
        }
    }
    Ok(())
}

fn content_of(from: &Base, content: &Content, size: u64, staging: &Staging<'_>) -> Result<()> {
    if let Content::List(id) = content {
        lists(from, id, staging)?;
    }
    chunker::visit_chunks(&from.objects, content, size, &mut |chunk, _| {
        object(from, &chunk, Class::Chunk, staging)
    })
}

fn lists(from: &Base, id: &ObjectId, staging: &Staging<'_>) -> Result<()> {
    let bytes = from
        .objects
        .get(id, crate::format::content::MAX_LIST_BYTES)?;
    staging.put(&bytes, Class::Tree)?;
    let list = crate::format::content::ChunkList::decode(&bytes)
        .map_err(|error| Error::damaged(format!("object {id}"), Some(*id), error.to_string()))?;
    if list.level > 0 {
        for row in &list.rows {
            lists(from, &row.id, staging)?;
        }
    }
    Ok(())
}
