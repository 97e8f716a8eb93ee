//! `undo`: publishes the inverse of one operation on *today's* catalog. Undo of undo is redo.

use std::collections::BTreeMap;

use crate::catalog::{CatalogEdit, Removed};
use crate::format::catalog::{CheckpointEntry, CheckpointRef, LineageState};
use crate::format::manifest::{
    Activation, Applied, LineageAction, LineageRequest, Manifest, NoteRequest, OperationKind,
    PinRequest, Request, TagAction, TagRequest, Writer,
};
use crate::id::{GenerationId, ObjectId};
use crate::objects::ObjectSource;
use crate::root::{Context, Root, host_name};
use crate::{Error, Result};

use super::Published;
use super::activate::{self, ActivateOptions, ActivateTarget};
use super::base::{Access, Base};
use super::commit::{self, Verdict};

/// What an undo would take back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndoPlan {
    /// The generation that the operation had made.
    pub generation: GenerationId,
    /// The operation.
    pub verb: String,
    /// Who did it.
    pub writer: Writer,
    /// The lineage concerned, if it is one.
    pub lineage: Option<Vec<u8>>,
    /// When, RFC 3339.
    pub created: String,
    /// The checkpoint concerned, if it is one.
    pub checkpoint: Option<ObjectId>,
    /// One sentence: what will be undone.
    pub what: String,
    kind: OperationKind,
    applied: Applied,
    before: Option<GenerationId>,
}

fn unavailable(what: impl Into<String>, problem: impl Into<String>) -> Error {
    Error::UndoUnavailable {
        what: what.into(),
        problem: problem.into(),
    }
}

/// Says what would be undone: the operation that made `generation`, by default the latest.
///
/// # Errors
/// [`Error::UndoUnavailable`] says why not; [`Error::Refused`] for an operation by somebody else or on another lineage
/// than `here`, unless its generation is named.
pub(crate) fn plan(
    root: &Root,
    context: &Context,
    generation: Option<&GenerationId>,
    here: Option<&[u8]>,
) -> Result<UndoPlan> {
    let base = Base::open(root, context, Access::Read)?;
    let named = generation.is_some();
    let id = generation.copied().unwrap_or(base.live.id);
    let manifest = if id == base.live.id {
        base.manifest().clone()
    } else {
        let not_held = || {
            unavailable(
                id.to_string(),
                "that generation is not held any more, or was never live",
            )
        };
        if !base.manifest().kept.iter().any(|kept| kept.id == id) {
            return Err(not_held());
        }
        match Base::open_generation(root, context, &id, Access::Read) {
            Ok(held) => held.manifest().clone(),
            // Reclaimed by the commit that made the live generation.
            Err(Error::NotFound { .. }) => return Err(not_held()),
            Err(error) => return Err(error),
        }
    };
    let plan = describe(id, &manifest)?;
    if !named {
        refuse_others(&plan, here)?;
    }
    Ok(plan)
}

fn refuse_others(plan: &UndoPlan, here: Option<&[u8]>) -> Result<()> {
    let name_it = format!("to undo it all the same: genstore undo {}", plan.generation);
    let user = rustix::process::geteuid().as_raw();
    if plan.writer.uid != user || plan.writer.host != host_name() {
        return Err(Error::refused(
            "undo_not_yours",
            format!(
                "the latest operation ({}) is by user {} on {}",
                plan.what, plan.writer.uid, plan.writer.host
            ),
            name_it,
        ));
    }
    if let (Some(lineage), Some(here)) = (plan.lineage.as_deref(), here)
        && lineage != here
    {
        return Err(Error::refused(
            "undo_other_lineage",
            format!(
                "the latest operation ({}) is on lineage {}, not on {}",
                plan.what,
                crate::name::escape(lineage),
                crate::name::escape(here)
            ),
            name_it,
        ));
    }
    Ok(())
}

fn describe(generation: GenerationId, manifest: &Manifest) -> Result<UndoPlan> {
    let operation = &manifest.operation;
    let verb = operation.kind.word();
    let request = Request::parse(operation)
        .map_err(|problem| unavailable(format!("{verb} {generation}"), problem))?;
    let applied = match request {
        Request::Checkpoint(at) => Applied::Return(at),
        Request::Activate(activation) => Applied::Activate(activation),
        Request::Tag(tag) => Applied::Tag(tag),
        Request::Pin(pin) => Applied::Pin(pin),
        Request::Note(note) => Applied::Note(note),
        Request::Lineage(lineage) => Applied::Lineage(lineage),
        Request::Undo { applied, .. } => applied,
        Request::Init => return Err(unavailable("init", "there is no state before it")),
        Request::Heal(_) => return Err(unavailable("heal", "it only added lost objects again")),
    };
    let (lineage, checkpoint, what) = words(&applied, operation.kind == OperationKind::Undo);
    Ok(UndoPlan {
        generation,
        verb: verb.to_owned(),
        writer: manifest.writer.clone(),
        lineage,
        created: manifest.created.clone(),
        checkpoint,
        what,
        kind: operation.kind,
        applied,
        before: operation.before,
    })
}

fn short(id: &ObjectId) -> String {
    id.to_string()[..16].to_owned()
}

fn words(applied: &Applied, of_undo: bool) -> (Option<Vec<u8>>, Option<ObjectId>, String) {
    let of = |at: &CheckpointRef, what: String| (Some(at.lineage.clone()), Some(at.id), what);
    match applied {
        Applied::Return(at) if of_undo => {
            of(at, format!("the return of checkpoint {}", short(&at.id)))
        }
        Applied::Return(at) => of(at, format!("checkpoint {}", short(&at.id))),
        Applied::Drop(at) => of(at, format!("the undo of checkpoint {}", short(&at.id))),
        Applied::Activate(activation) => (
            None,
            None,
            format!("the activation of {}", activation.candidate),
        ),
        Applied::Tag(tag) => {
            let done = if tag.action == TagAction::Remove {
                "removal of tag"
            } else {
                "tag"
            };
            of(
                &tag.checkpoint,
                format!(
                    "the {done} {:?} on checkpoint {}",
                    tag.tag,
                    short(&tag.checkpoint.id)
                ),
            )
        }
        Applied::Pin(pin) => {
            let done = if pin.value { "pin" } else { "unpin" };
            of(
                &pin.checkpoint,
                format!("the {done} of checkpoint {}", short(&pin.checkpoint.id)),
            )
        }
        Applied::Note(note) => of(
            &note.checkpoint,
            format!("the note on checkpoint {}", short(&note.checkpoint.id)),
        ),
        Applied::Lineage(request) => {
            let name = crate::name::escape(&request.lineage);
            let done = match &request.action {
                LineageAction::Archive { .. } => format!("the archiving of lineage {name}"),
                LineageAction::Unarchive { .. } => format!("the unarchiving of lineage {name}"),
                LineageAction::Rename { to } => format!(
                    "the renaming of lineage {name} to {}",
                    crate::name::escape(to)
                ),
            };
            // Renamed: the lineage that it is on now has the new name.
            let now = match &request.action {
                LineageAction::Rename { to } => to.clone(),
                _ => request.lineage.clone(),
            };
            (Some(now), None, done)
        }
    }
}

/// Publishes the inverse.
pub(crate) fn undo(
    root: &Root,
    context: &Context,
    plan: &UndoPlan,
    leave_behind: bool,
) -> Result<Published> {
    if let Applied::Activate(_) = &plan.applied {
        return undo_activation(root, context, plan, leave_behind);
    }
    // Redo brings back the entry as it was (tags, pin, note): the state before the undo has it, if it is still held.
    let former = match &plan.applied {
        Applied::Drop(at) => former_entry(root, context, plan, at)?,
        _ => None,
    };
    let committed = commit::annotate(root, context, &mut |now, edit| {
        if let (Applied::Drop(at), false) = (&plan.applied, plan.kind == OperationKind::Checkpoint)
        {
            // The objects must still be there: `maintain` may have proved them dead.
            if !now.objects.contains(&at.id)? {
                return Err(unavailable(&plan.what, "its objects are gone"));
            }
        }
        let applied = invert(plan, edit, former.as_ref(), now)?;
        let request = Request::Undo {
            undoes: plan.generation,
            undone_kind: plan.kind,
            applied,
        };
        Ok(Verdict::Publish {
            request,
            counts: BTreeMap::new(),
            value: (),
        })
    })?;
    committed.published()
}

fn undo_activation(
    root: &Root,
    context: &Context,
    plan: &UndoPlan,
    leave_behind: bool,
) -> Result<Published> {
    let Some(before) = plan.before else {
        return Err(unavailable(
            &plan.what,
            "what it replaced could not be trusted and has no generation",
        ));
    };
    let applied = Applied::Activate(Activation {
        candidate: before,
        directory: None,
    });
    let request = Request::Undo {
        undoes: plan.generation,
        undone_kind: plan.kind,
        applied,
    };
    let options = ActivateOptions {
        leave_behind,
        ..ActivateOptions::default()
    };
    let target = ActivateTarget::Generation(before);
    let done =
        activate::activate_as(root, context, &target, options, Some(request)).map_err(|error| {
            match error {
                Error::NotFound { .. } => {
                    unavailable(&plan.what, "the generation that it replaced was reclaimed")
                }
                other => other,
            }
        })?;
    Ok(Published {
        generation: done.generation,
        previous: done.previous.unwrap_or(done.generation),
        created: !done.already,
        warnings: done.warnings,
    })
}

fn former_entry(
    root: &Root,
    context: &Context,
    plan: &UndoPlan,
    at: &CheckpointRef,
) -> Result<Option<Removed>> {
    let Some(before) = plan.before else {
        return Ok(None);
    };
    let base = match Base::open_generation(root, context, &before, Access::Read) {
        Ok(base) => base,
        // Reclaimed meanwhile: the checkpoint returns without what was noted on it.
        Err(Error::NotFound { .. } | Error::Damaged { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let catalog = base.catalog()?;
    let Some(lineage) = catalog.lineage(&at.lineage)? else {
        return Ok(None);
    };
    let Some(found) = lineage.find(&at.id)? else {
        return Ok(None);
    };
    let keys = super::copy::keys_of(&catalog.record(&at.id)?);
    Ok(Some(Removed {
        lineage: at.lineage.clone(),
        number: found.number,
        entry: found.entry,
        keys,
    }))
}

/// Applies the inverse of what was applied, and says what that was.
fn invert(
    plan: &UndoPlan,
    edit: &mut CatalogEdit<'_>,
    former: Option<&Removed>,
    now: &Base,
) -> Result<Applied> {
    match &plan.applied {
        Applied::Return(at) => {
            let here = find(edit, at, &plan.what)?;
            edit.drop_checkpoint(&at.lineage, here)?;
            Ok(Applied::Drop(CheckpointRef {
                number: here,
                ..at.clone()
            }))
        }
        Applied::Drop(at) => {
            if edit.lineage_of(&at.id)?.is_some() {
                return Err(unavailable(&plan.what, "the checkpoint is there already"));
            }
            let removed = match former {
                Some(former) => former.clone(),
                None => bare_entry(now, at)?,
            };
            let number = edit.return_checkpoint(&removed)?.number;
            Ok(Applied::Return(CheckpointRef {
                number,
                ..at.clone()
            }))
        }
        Applied::Tag(tag) => invert_tag(plan, edit, tag).map(Applied::Tag),
        Applied::Pin(pin) => {
            let number = find(edit, &pin.checkpoint, &plan.what)?;
            let was = edit.set_pinned(&pin.checkpoint.lineage, number, pin.was)?;
            let checkpoint = CheckpointRef {
                number,
                ..pin.checkpoint.clone()
            };
            Ok(Applied::Pin(PinRequest {
                checkpoint,
                value: pin.was,
                was,
            }))
        }
        Applied::Note(note) => {
            let number = find(edit, &note.checkpoint, &plan.what)?;
            let was = edit.set_note(&note.checkpoint.lineage, number, &note.was)?;
            if was != note.note {
                return Err(unavailable(&plan.what, "the note was changed since"));
            }
            let checkpoint = CheckpointRef {
                number,
                ..note.checkpoint.clone()
            };
            Ok(Applied::Note(NoteRequest {
                checkpoint,
                note: note.was.clone(),
                was,
            }))
        }
        Applied::Lineage(request) => invert_lineage(plan, edit, request, now).map(Applied::Lineage),
        Applied::Activate(_) => Err(unavailable(
            &plan.what,
            "an activation is undone by an activation",
        )),
    }
}

fn find(edit: &mut CatalogEdit<'_>, at: &CheckpointRef, what: &str) -> Result<u64> {
    let found = match edit.lineage(&at.lineage)? {
        Some(lineage) => lineage.find(&at.id)?,
        None => None,
    };
    found
        .map(|found| found.number)
        .ok_or_else(|| unavailable(what, "the checkpoint is not there any more"))
}

fn bare_entry(now: &Base, at: &CheckpointRef) -> Result<Removed> {
    let record = now.catalog()?.record(&at.id)?;
    let keys = super::copy::keys_of(&record);
    let entry = CheckpointEntry::new(at.id, record.time);
    Ok(Removed {
        lineage: at.lineage.clone(),
        number: at.number,
        entry,
        keys,
    })
}

fn invert_tag(plan: &UndoPlan, edit: &mut CatalogEdit<'_>, tag: &TagRequest) -> Result<TagRequest> {
    let lineage = &tag.checkpoint.lineage;
    let changed = || unavailable(&plan.what, "the tag was changed since");
    let holder = match edit.lineage(lineage)? {
        Some(view) => view.tagged(&tag.tag)?,
        None => return Err(unavailable(&plan.what, "the lineage is gone")),
    };
    match (tag.action, holder) {
        (TagAction::Remove, None) => {
            let number = find(edit, &tag.checkpoint, &plan.what)?;
            edit.set_tag(lineage, number, &tag.tag)?;
            let checkpoint = CheckpointRef {
                number,
                ..tag.checkpoint.clone()
            };
            Ok(TagRequest {
                checkpoint,
                tag: tag.tag.clone(),
                action: TagAction::Add { moved_from: None },
            })
        }
        (TagAction::Add { moved_from }, Some(holder)) if holder.entry.id == tag.checkpoint.id => {
            let back = match (moved_from, edit.lineage(lineage)?) {
                (Some(number), Some(view)) => {
                    view.checkpoint(number)?.map(|entry| (number, entry.id))
                }
                _ => None,
            };
            if let Some((number, id)) = back {
                edit.set_tag(lineage, number, &tag.tag)?;
                let checkpoint = CheckpointRef {
                    lineage: lineage.clone(),
                    number,
                    id,
                };
                let action = TagAction::Add {
                    moved_from: Some(holder.number),
                };
                Ok(TagRequest {
                    checkpoint,
                    tag: tag.tag.clone(),
                    action,
                })
            } else {
                edit.remove_tag(lineage, &tag.tag)?;
                Ok(TagRequest {
                    action: TagAction::Remove,
                    ..tag.clone()
                })
            }
        }
        _ => Err(changed()),
    }
}

fn invert_lineage(
    plan: &UndoPlan,
    edit: &mut CatalogEdit<'_>,
    request: &LineageRequest,
    now: &Base,
) -> Result<LineageRequest> {
    let changed = || unavailable(&plan.what, "the lineage was changed since");
    let lineage = request.lineage.clone();
    match &request.action {
        LineageAction::Archive { reason } => {
            if !edit.unarchive(&lineage)?.is_archived() {
                return Err(changed());
            }
            Ok(LineageRequest {
                lineage,
                action: LineageAction::Unarchive {
                    reason: reason.clone(),
                },
            })
        }
        LineageAction::Unarchive { reason } => {
            let time = now
                .catalog()?
                .expect_lineage(&lineage)?
                .latest()?
                .map(|latest| latest.entry.time);
            let state = LineageState::Archived {
                reason: reason.clone(),
                time: time.unwrap_or_default(),
            };
            if edit.set_state(&lineage, state)?.is_archived() {
                return Err(changed());
            }
            Ok(LineageRequest {
                lineage,
                action: LineageAction::Archive {
                    reason: reason.clone(),
                },
            })
        }
        LineageAction::Rename { to } => {
            edit.rename(to, &lineage)?;
            Ok(LineageRequest {
                lineage: to.clone(),
                action: LineageAction::Rename { to: lineage },
            })
        }
    }
}
