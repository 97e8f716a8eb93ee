//! Comparing a store with the model, through nothing but the library's reading methods.

use std::collections::BTreeMap;
use std::path::PathBuf;

use store_core::format::catalog::LineageState;
use store_core::format::manifest::{KeptReason, Request as Done};
use store_core::format::tree::{Entry, Node as Stored};
use store_core::id::GenerationId;
use store_core::{CheckpointInfo, Store, VerifyTarget, View};

use super::catalog::{Catalog, Record};
use super::state::{Generation, Model, same};
use super::tree::{Directory, Node, content, target};

/// An error as the text of a failure.
pub fn failed(what: &str) -> impl Fn(store_core::Error) -> String {
    move |error| {
        let cause = std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default();
        format!("{what}: {} ({error}: {cause})", error.code())
    }
}

/// The live generation: what CURRENT resolves to, its manifest, every lineage's log, and no contradiction in the catalog.
pub fn live(store: &Store, model: &Model) -> Result<(), String> {
    if let Some(fault) = model.fault {
        return untrusted(store, model, fault);
    }
    let view = store.view().map_err(failed("view"))?;
    same("CURRENT", &view.generation(), &model.live)?;
    generation(&view, model, model.current())?;
    same(
        "the catalog's contradictions",
        &view.check_catalog().map_err(failed("check_catalog"))?,
        &Vec::new(),
    )
}

/// That nothing was published: CURRENT's bytes. What it names never changes, and was compared when it was published.
pub fn unmoved(store: &Store, model: &Model) -> Result<(), String> {
    if model.fault.is_some() {
        return Ok(());
    }
    let bytes =
        std::fs::read(store.path().join("CURRENT")).map_err(|error| format!("CURRENT: {error}"))?;
    same(
        "CURRENT",
        &String::from_utf8_lossy(&bytes).into_owned(),
        &format!("{}\n", model.live),
    )
}

/// While CURRENT cannot be trusted: every reader refuses, `status` reports, and generations can still be read by name.
fn untrusted(store: &Store, model: &Model, fault: &str) -> Result<(), String> {
    match store.view() {
        Ok(view) => {
            return Err(format!(
                "{fault}, and yet {} was resolved",
                view.generation()
            ));
        }
        Err(error) => {
            same("the fault", &error.code(), &fault)?;
            same("unavailable", &error.is_unavailable(), &true)?;
        }
    }
    let status = store.status().map_err(failed("status"))?;
    same(
        "the state of the selector",
        &status.selector.state,
        &"untrusted",
    )?;
    same("the fault in status", &status.selector.code, &Some(fault))?;
    past(store, model, &model.live)
}

/// A generation, by its id.
pub fn past(store: &Store, model: &Model, id: &GenerationId) -> Result<(), String> {
    match (store.view_generation(id), model.generation(id)) {
        (Ok(view), Ok(expected)) => generation(&view, model, expected),
        (Err(error), Err(code)) => same("the error", &error.code(), &code),
        (Ok(_), Err(code)) => Err(format!("{id} can be read; expected {code}")),
        (Err(error), Ok(_)) => Err(failed(&format!("view of {id}"))(error)),
    }
}

/// A pinned generation: manifest and logs.
pub fn generation(view: &View, model: &Model, expected: &Generation) -> Result<(), String> {
    let manifest = view.manifest();
    let done = Done::parse(&manifest.operation);
    same(
        "the operation in the manifest",
        &done,
        &Ok(expected.done.clone()),
    )?;
    same(
        "the state before",
        &manifest.operation.before,
        &expected.before,
    )?;
    same("the parent", &manifest.parent, &expected.before)?;
    same(
        "the candidate of the epoch",
        &manifest.epoch.candidate,
        &expected.epoch.1,
    )?;
    let kept: Vec<(GenerationId, KeptReason)> = manifest
        .kept
        .iter()
        .map(|kept| (kept.id, kept.reason))
        .collect();
    let expected_kept: Vec<_> = expected
        .kept
        .iter()
        .map(|kept| (kept.id, kept.reason))
        .collect();
    same("kept generations", &kept, &expected_kept)?;
    logs(view, model, &expected.catalog)
}

fn logs(view: &View, model: &Model, expected: &Catalog) -> Result<(), String> {
    let lineages = view.lineages().map_err(failed("lineages"))?;
    let names: Vec<&Vec<u8>> = lineages.iter().map(|lineage| &lineage.name).collect();
    same("the lineages", &names, &expected.lineages.keys().collect())?;
    for (found, expected) in lineages.iter().zip(expected.lineages.values()) {
        same(
            "how many checkpoints",
            &found.checkpoints,
            &(expected.checkpoints.len() as u64),
        )?;
        let latest = found.latest.as_ref().map(|at| (at.number, at.id));
        same(
            "the latest",
            &latest,
            &expected.latest().map(|(number, entry)| (number, entry.id)),
        )?;
        let archived = match &found.state {
            LineageState::Archived { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        same("why archived", &archived, &expected.archived)?;
        let mut rest = expected.checkpoints.iter().rev();
        let mut problem = Ok(());
        let mut visit = |info: CheckpointInfo| {
            problem = problem.clone().and_then(|()| {
                let (number, entry) = rest.next().ok_or("the log is too long")?;
                same("the id", &info.id, &entry.id)?;
                same("the number", &info.number, number)?;
                same(
                    "the tags",
                    &info.tags,
                    &entry.tags.iter().cloned().collect(),
                )?;
                same("the pin", &info.pinned, &entry.pinned)?;
                same("the note", &info.note, &entry.note)?;
                record(&info, &model.records[&entry.id])
            });
            Ok(())
        };
        view.log(Some(&found.name), None, &mut visit)
            .map_err(failed("log"))?;
        problem.map_err(|problem| {
            format!("log of {}: {problem}", String::from_utf8_lossy(&found.name))
        })?;
        if rest.next().is_some() {
            return Err(format!(
                "log of {}: too short",
                String::from_utf8_lossy(&found.name)
            ));
        }
    }
    Ok(())
}

fn record(info: &CheckpointInfo, expected: &Record) -> Result<(), String> {
    let found = &info.record;
    same("the parent", &found.parent, &expected.parent)?;
    same("the time", &found.time, &expected.time)?;
    same("the role", &found.role, &expected.role)?;
    same("the actor", &found.actor, &expected.actor)?;
    same("the key", &found.key, &expected.key)?;
    same(
        "the message",
        &found.message.as_slice(),
        &expected.message.as_bytes(),
    )?;
    same(
        "the root's mode",
        &u32::from(found.root.mode),
        &expected.state.mode,
    )
}

/// Every file, link and directory of every live checkpoint, with contents.
pub fn contents(view: &View, model: &Model, expected: &Catalog) -> Result<(), String> {
    for (name, lineage) in &expected.lineages {
        let mut found = Vec::new();
        let mut visit = |info| {
            found.push(info);
            Ok(())
        };
        view.log(Some(name), None, &mut visit)
            .map_err(failed("log"))?;
        for info in found {
            same(
                "a checkpoint of the log",
                &lineage.find(&info.id).is_some(),
                &true,
            )?;
            checkpoint(view, &info, &model.records[&info.id].state)
                .map_err(|problem| format!("checkpoint {}: {problem}", info.id))?;
        }
    }
    Ok(())
}

fn checkpoint(view: &View, info: &CheckpointInfo, expected: &Directory) -> Result<(), String> {
    let mut found: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
    let mut visit = |path: &[u8], entry: &Entry| {
        found.insert(path.to_vec(), entry.clone());
        Ok(())
    };
    view.list(info, b"", true, &mut visit)
        .map_err(failed("list"))?;
    let mut problem = Ok(());
    expected.visit(&mut |path, node| {
        let shown = String::from_utf8_lossy(path).into_owned();
        let compared = match found.remove(path) {
            None => Err("it is missing".to_owned()),
            Some(entry) => entry_is(view, &entry, node),
        };
        if let Err(what) = compared {
            problem = Err(format!("{shown}: {what}"));
        }
    });
    problem?;
    same(
        "paths that should not be there",
        &found.keys().collect(),
        &Vec::new(),
    )
}

fn entry_is(view: &View, entry: &Entry, expected: &Node) -> Result<(), String> {
    let mode = u32::from(entry.mode);
    match (&entry.node, expected) {
        (
            Stored::File { size, .. },
            Node::File {
                content: choice,
                mode: expected,
                mtime,
            },
        ) => {
            let bytes = content(*choice);
            same("size", size, &(bytes.len() as u64))?;
            same("mode", &mode, expected)?;
            same("mtime", &entry.mtime.seconds, mtime)?;
            let mut found = Vec::new();
            let mut write = |piece: &[u8]| {
                found.extend_from_slice(piece);
                Ok(())
            };
            view.read_content(entry, &mut write)
                .map_err(failed("read"))?;
            same("the content is right", &(found == bytes), &true)
        }
        (Stored::Symlink { target: found }, Node::Link { target: choice }) => {
            same("target", &found.as_slice(), &target(*choice))
        }
        (Stored::Directory { .. }, Node::Directory(expected)) => {
            same("mode", &mode, &expected.mode)
        }
        (found, expected) => Err(format!("{found:?}\n   expected: {expected:?}")),
    }
}

/// The live generation or a directory, in full.
pub fn verify(store: &Store, target: &VerifyTarget) -> Result<(), String> {
    let report = store.verify(target, false).map_err(failed("verify"))?;
    same("damage", &report.damage, &Vec::new())?;
    same("verified", &report.ok, &true)
}

/// The generations that `status` shows, each with its state.
pub fn status(store: &Store, model: &Model, sources: &[PathBuf]) -> Result<(), String> {
    let status = store.status().map_err(failed("status"))?;
    if model.fault.is_some() {
        return Ok(());
    }
    same("the selector's state", &status.selector.state, &"ok")?;
    same(
        "the live generation",
        &status.selector.current,
        &Some(model.live),
    )?;
    same(
        "sources",
        &status
            .lineages
            .iter()
            .all(|lineage| lineage.source_state == "present"),
        &true,
    )?;
    same("how many sources", &sources.len(), &2)?;
    for found in &status.generations {
        let expected = match model.generations.get(&found.id) {
            None => return Err(format!("{} was never published", found.id)),
            Some(generation) if generation.reclaimed => "husk",
            Some(_) if found.id == model.live => "live",
            Some(_) => match model
                .current()
                .kept
                .iter()
                .find(|kept| kept.id == found.id)
                .map(|kept| kept.reason)
            {
                Some(KeptReason::Plain) => "superseded",
                Some(KeptReason::Before) => "before",
                Some(KeptReason::Evidence) => "evidence",
                None => "unknown",
            },
        };
        same(
            &format!("the state of {}", found.id),
            &found.state,
            &expected,
        )?;
    }
    let there = |generation: &&Generation| !generation.reclaimed;
    let shown = status
        .generations
        .iter()
        .filter(|found| found.state != "husk")
        .count();
    same(
        "how many generations",
        &shown,
        &model.generations.values().filter(there).count(),
    )?;
    same("the warnings", &status.warnings, &Vec::new())
}
