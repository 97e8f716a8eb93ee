//! How the library's values look: as JSON for programs, as text for people. Nothing is decided here.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use store_core::format::catalog::CheckpointRef;
use store_core::format::catalog::LineageState;
use store_core::format::checkpoint::{Counts, LeftOut, LeftOutReason};
use store_core::format::tree::{Entry, Node};
use store_core::id::{GenerationId, ObjectId};
use store_core::name;
use store_core::{CheckpointInfo, LineageInfo, Published};

use crate::output::{self, append, object};
use crate::units;

/// How many digits of an id people are shown.
const SHORT: usize = 16;

/// The digits of an id that people are shown; they can be given back.
pub(crate) fn short(id: &ObjectId) -> String {
    let mut text = id.to_string();
    text.truncate(SHORT);
    text
}

/// A checkpoint in JSON.
pub(crate) fn checkpoint(info: &CheckpointInfo, generation: GenerationId) -> Map<String, Value> {
    let record = &info.record;
    object! {
        "id": info.id.to_string(), "lineage": output::name(&info.lineage), "number": info.number,
        "time": output::time(record.time), "message": output::name(&record.message), "tags": info.tags.clone(),
        "complete": record.complete, "generation": generation.to_string(), "parent": output::text(record.parent.as_ref()),
        "role": record.role.word(), "actor": record.actor.word(), "key": record.key.as_deref().map(output::name),
        "pinned": info.pinned, "note": output::name(&info.note), "source": output::name(&record.source),
        "host": output::name(&record.host), "tree": record.tree.to_string(), "counts": counts(&record.counts),
    }
}

/// A checkpoint's place in JSON.
pub(crate) fn reference(at: &CheckpointRef) -> Value {
    Value::Object(object! {
        "id": at.id.to_string(), "lineage": output::name(&at.lineage), "number": at.number,
    })
}

/// A checkpoint's place for people.
pub(crate) fn place(at: &CheckpointRef) -> String {
    format!(
        "{}  {} #{}",
        short(&at.id),
        name::escape(&at.lineage),
        at.number
    )
}

/// Counts in JSON.
pub(crate) fn counts(counts: &Counts) -> Value {
    Value::Object(object! {
        "files": counts.files, "directories": counts.directories, "links": counts.links, "bytes": counts.bytes,
        "left_out": counts.left_out,
    })
}

/// What a published change adds to an answer.
pub(crate) fn published(published: &Published) -> Map<String, Value> {
    object! {
        "generation": published.generation.to_string(), "created": published.created,
        "previous": published.previous.to_string(),
    }
}

/// Left-out paths in JSON.
pub(crate) fn left_out(list: &[LeftOut]) -> Value {
    let row = |item: &LeftOut| {
        Value::Object(object! {
            "path": output::name(&item.path), "reason": item.reason.word(), "rule": output::name(&item.rule),
        })
    };
    list.iter().map(row).collect()
}

/// How many paths were left out, and why: `left out 12 (9 default rules, 3 special)`.
pub(crate) fn left_out_summary(list: &[LeftOut]) -> String {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for item in list {
        *kinds.entry(left_out_kind(item)).or_default() += 1;
    }
    if kinds.is_empty() {
        return "left out 0".to_owned();
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, number)| format!("{} {kind}", units::count(*number)))
        .collect();
    format!(
        "left out {} ({})",
        units::count(list.len() as u64),
        kinds.join(", ")
    )
}

/// The words for a left-out path in a count. Which kind of rule cut it stands at the beginning of the rule.
fn left_out_kind(item: &LeftOut) -> &'static str {
    match item.reason {
        LeftOutReason::Rule if item.rule.starts_with(b"default: ") => "default rules",
        LeftOutReason::Rule if item.rule.starts_with(b"--exclude: ") => "--exclude",
        LeftOutReason::Rule => "ignore files",
        LeftOutReason::Limit => "over a limit",
        LeftOutReason::Store => "the store itself",
        LeftOutReason::OtherFileSystem => "on other file systems",
        reason => reason.word(),
    }
}

/// One left-out path for people: its reason, its name, and the rule.
pub(crate) fn left_out_line(item: &LeftOut) -> String {
    let mut line = format!("{}: {}", item.reason.word(), name::escape(&item.path));
    if !item.rule.is_empty() {
        append!(line, " ({})", name::escape(&item.rule));
    }
    line
}

/// An entry in JSON, without its path.
pub(crate) fn entry(entry: &Entry) -> Map<String, Value> {
    let mut map = object! {
        "kind": entry.kind().word(), "mode": format!("{:04o}", entry.mode), "mtime": output::time(entry.mtime),
    };
    if let Some(owner) = entry.owner {
        map.extend(object! { "uid": owner.uid, "gid": owner.gid });
    }
    match &entry.node {
        Node::File { size, .. } => map.extend(object! { "size": *size }),
        Node::Symlink { target } => map.extend(object! { "target": output::name(target) }),
        Node::Directory { .. } => {}
    }
    map
}

/// A lineage in JSON.
pub(crate) fn lineage(info: &LineageInfo) -> Map<String, Value> {
    let mut map = object! {
        "name": output::name(&info.name), "source": output::name(&info.source), "host": output::name(&info.host),
        "checkpoints": info.checkpoints, "latest": info.latest.as_ref().map(reference),
        "state": state_word(&info.state), "source_state": info.source_state,
    };
    match &info.state {
        LineageState::Active => {}
        LineageState::Moving { to } => map.extend(object! { "moving_to": to.to_string() }),
        LineageState::Archived { reason, time } => map.extend(object! {
            "reason": output::name(reason), "archived": output::time(*time),
        }),
    }
    map
}

/// A lineage on one line for people.
pub(crate) fn lineage_line(info: &LineageInfo) -> String {
    let held = units::counted(info.checkpoints, "checkpoint", "checkpoints");
    let mut line = format!("{}  {held}", name::escape(&info.name));
    if let Some(latest) = &info.latest {
        append!(line, ", latest {} #{}", short(&latest.id), latest.number);
    }
    if info.source != info.name {
        append!(line, ", source {}", name::escape(&info.source));
    }
    if info.source_state != "present" {
        append!(line, ", source {}", info.source_state);
    }
    match &info.state {
        LineageState::Active => {}
        LineageState::Moving { to } => append!(line, ", moving to store {to}"),
        LineageState::Archived { reason, .. } => {
            append!(line, ", archived: {}", name::escape(reason));
        }
    }
    line
}

fn state_word(state: &LineageState) -> &'static str {
    match state {
        LineageState::Active => "active",
        LineageState::Moving { .. } => "moving",
        LineageState::Archived { .. } => "archived",
    }
}

/// A message's first line for people.
pub(crate) fn headline(message: &[u8]) -> String {
    name::escape(
        message
            .split(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default(),
    )
}

/// A raw path, or a readable line: what ends the line depends on `--null`.
pub(crate) fn row(prefix: &str, path: &[u8], null: bool) -> Vec<u8> {
    let mut row = prefix.as_bytes().to_vec();
    if null {
        row.extend_from_slice(path);
        row.push(0);
    } else {
        row.extend_from_slice(name::escape(path).as_bytes());
        row.push(b'\n');
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_out_paths_are_counted_by_kind() {
        let item = |reason, rule: &str| LeftOut {
            path: b"p".to_vec(),
            reason,
            rule: rule.into(),
        };
        assert_eq!(left_out_summary(&[]), "left out 0");
        let list = [
            item(LeftOutReason::Rule, "default: .git"),
            item(LeftOutReason::Rule, "default: node_modules"),
            item(LeftOutReason::Rule, "--exclude: *.o"),
            item(LeftOutReason::Rule, ".genstoreignore:1: x"),
            item(LeftOutReason::Special, "fifo"),
        ];
        let expected = "left out 5 (1 --exclude, 2 default rules, 1 ignore files, 1 special)";
        assert_eq!(left_out_summary(&list), expected);
        assert_eq!(left_out_line(&list[4]), "special: p (fifo)");
    }

    #[test]
    fn rows_are_readable_or_raw() {
        assert_eq!(row("A ", b"a\nb\xff", false), b"A a\\nb\\xff\n");
        assert_eq!(row("A ", b"a\nb\xff", true), b"A a\nb\xff\0");
    }
}
