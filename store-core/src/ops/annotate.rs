//! Tags, pins, notes, lineages: changes of the catalog alone. Each is one commit and can be undone.

use std::collections::BTreeMap;

use crate::catalog::{CatalogEdit, TagChange};
use crate::format::catalog::{CheckpointRef, LineageState};
use crate::format::manifest::{
    LineageAction, LineageRequest, NoteRequest, PinRequest, Request, TagAction, TagRequest,
};
use crate::id::ObjectId;
use crate::root::{Context, Root};
use crate::{Error, Result, Wanted};

use super::Published;
use super::commit::{self, Verdict};

pub(crate) fn tag_exists(tag: &str, at: &ObjectId) -> Error {
    Error::refused(
        "tag_exists",
        format!(
            "tag {tag:?} is on checkpoint {} already",
            &at.to_string()[..16]
        ),
        format!("move it: genstore tag ID {tag} --move; or choose another tag"),
    )
}

/// Runs one change; `None` from it means that it is so already.
fn publish(
    root: &Root,
    context: &Context,
    change: &mut dyn FnMut(&mut CatalogEdit<'_>) -> Result<Option<Request>>,
) -> Result<Published> {
    let committed = commit::annotate(root, context, &mut |_, edit| {
        Ok(match change(edit)? {
            None => Verdict::Nothing(()),
            Some(request) => Verdict::Publish {
                request,
                counts: BTreeMap::new(),
                value: (),
            },
        })
    })?;
    committed.published()
}

/// The checkpoint must still be there under that number; the number alone may have passed to nobody else.
fn expect(edit: &mut CatalogEdit<'_>, at: &CheckpointRef) -> Result<crate::catalog::Numbered> {
    let found = match edit.lineage(&at.lineage)? {
        Some(lineage) => lineage.find(&at.id)?,
        None => None,
    };
    found.ok_or_else(|| {
        Error::not_found(
            Wanted::Checkpoint,
            at.id.to_string(),
            "it was dropped while this command ran",
        )
    })
}

pub(crate) fn set_tag(
    root: &Root,
    context: &Context,
    at: &CheckpointRef,
    tag: &str,
    move_it: bool,
) -> Result<Published> {
    if !crate::name::is_tag(tag) {
        return Err(Error::invalid(
            "tag",
            format!(
                "{tag:?} cannot be a tag: it looks like an id, `latest`, `first` or `@TIME`, or has spaces"
            ),
        ));
    }
    publish(root, context, &mut |edit| {
        let here = expect(edit, at)?;
        let holder = edit
            .lineage(&at.lineage)?
            .map(|lineage| lineage.tagged(tag))
            .transpose()?
            .flatten();
        match &holder {
            Some(holder) if holder.entry.id != at.id && !move_it => {
                return Err(tag_exists(tag, &holder.entry.id));
            }
            _ => {}
        }
        if edit.set_tag(&at.lineage, here.number, tag)? == TagChange::Unchanged {
            return Ok(None);
        }
        let action = TagAction::Add {
            moved_from: holder.map(|holder| holder.number),
        };
        let checkpoint = CheckpointRef {
            number: here.number,
            ..at.clone()
        };
        Ok(Some(Request::Tag(TagRequest {
            checkpoint,
            tag: tag.to_owned(),
            action,
        })))
    })
}

pub(crate) fn remove_tag(
    root: &Root,
    context: &Context,
    lineage: &[u8],
    tag: &str,
) -> Result<Published> {
    publish(root, context, &mut |edit| {
        let number = edit.remove_tag(lineage, tag)?;
        let checkpoint = reference(edit, lineage, number)?;
        Ok(Some(Request::Tag(TagRequest {
            checkpoint,
            tag: tag.to_owned(),
            action: TagAction::Remove,
        })))
    })
}

fn reference(edit: &mut CatalogEdit<'_>, lineage: &[u8], number: u64) -> Result<CheckpointRef> {
    let entry = match edit.lineage(lineage)? {
        Some(view) => view.checkpoint(number)?,
        None => None,
    };
    let entry =
        entry.ok_or_else(|| Error::not_found(Wanted::Checkpoint, format!("#{number}"), ""))?;
    Ok(CheckpointRef {
        lineage: lineage.to_vec(),
        number,
        id: entry.id,
    })
}

pub(crate) fn set_pinned(
    root: &Root,
    context: &Context,
    at: &CheckpointRef,
    pinned: bool,
) -> Result<Published> {
    publish(root, context, &mut |edit| {
        let here = expect(edit, at)?;
        let was = edit.set_pinned(&at.lineage, here.number, pinned)?;
        if was == pinned {
            return Ok(None);
        }
        let checkpoint = CheckpointRef {
            number: here.number,
            ..at.clone()
        };
        Ok(Some(Request::Pin(PinRequest {
            checkpoint,
            value: pinned,
            was,
        })))
    })
}

pub(crate) fn set_note(
    root: &Root,
    context: &Context,
    at: &CheckpointRef,
    note: &[u8],
) -> Result<Published> {
    publish(root, context, &mut |edit| {
        let here = expect(edit, at)?;
        let was = edit.set_note(&at.lineage, here.number, note)?;
        if was == note {
            return Ok(None);
        }
        let checkpoint = CheckpointRef {
            number: here.number,
            ..at.clone()
        };
        Ok(Some(Request::Note(NoteRequest {
            checkpoint,
            note: note.to_vec(),
            was,
        })))
    })
}

pub(crate) fn archive(
    root: &Root,
    context: &Context,
    name: &[u8],
    reason: &str,
) -> Result<Published> {
    let time = context.clock.now();
    publish(root, context, &mut |edit| {
        if edit.archive(name, reason.as_bytes(), time)?.is_archived() {
            return Ok(None);
        }
        let action = LineageAction::Archive {
            reason: reason.as_bytes().to_vec(),
        };
        Ok(Some(Request::Lineage(LineageRequest {
            lineage: name.to_vec(),
            action,
        })))
    })
}

pub(crate) fn unarchive(root: &Root, context: &Context, name: &[u8]) -> Result<Published> {
    publish(root, context, &mut |edit| {
        let reason = match edit.unarchive(name)? {
            LineageState::Active => return Ok(None),
            LineageState::Archived { reason, .. } => reason,
            LineageState::Moving { .. } => Vec::new(),
        };
        let action = LineageAction::Unarchive { reason };
        Ok(Some(Request::Lineage(LineageRequest {
            lineage: name.to_vec(),
            action,
        })))
    })
}

pub(crate) fn rename(root: &Root, context: &Context, from: &[u8], to: &[u8]) -> Result<Published> {
    publish(root, context, &mut |edit| {
        edit.rename(from, to)?;
        if from == to {
            return Ok(None);
        }
        let action = LineageAction::Rename { to: to.to_vec() };
        Ok(Some(Request::Lineage(LineageRequest {
            lineage: from.to_vec(),
            action,
        })))
    })
}
