//! The request of an operation as a type, `docs/format.md` section 12. `undo` acts on what this reads, so it is strict.

use std::collections::BTreeMap;

use super::{Operation, OperationKind};
use crate::format::catalog::CheckpointRef;
use crate::id::{GenerationId, ObjectId, from_hex, to_hex};

/// What an operation was asked to do, and what undoing it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A new store.
    Init,
    /// A checkpoint was added.
    Checkpoint(CheckpointRef),
    /// Objects that a checkpoint needs were written again.
    Heal(CheckpointRef),
    /// Another state was made live.
    Activate(Activation),
    /// A tag was added, moved or removed.
    Tag(TagRequest),
    /// A checkpoint was pinned or unpinned.
    Pin(PinRequest),
    /// A checkpoint's note was changed.
    Note(NoteRequest),
    /// A lineage was archived, unarchived or renamed.
    Lineage(LineageRequest),
    /// An operation was undone.
    Undo {
        /// The generation that the operation had made.
        undoes: GenerationId,
        /// The kind of that operation.
        undone_kind: OperationKind,
        /// What was done to undo it.
        applied: Applied,
    },
}

/// The inverse that an undo applied. Undoing the undo needs it in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// A checkpoint was dropped.
    Drop(CheckpointRef),
    /// A dropped checkpoint returned, with a new number.
    Return(CheckpointRef),
    /// Another state was made live.
    Activate(Activation),
    /// A tag was added, moved or removed.
    Tag(TagRequest),
    /// A checkpoint was pinned or unpinned.
    Pin(PinRequest),
    /// A checkpoint's note was changed.
    Note(NoteRequest),
    /// A lineage was archived, unarchived or renamed.
    Lineage(LineageRequest),
}

/// What was made live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The candidate's id, or that of the generation of this store.
    pub candidate: GenerationId,
    /// The candidate's directory; `None` if it was a generation of this store.
    pub directory: Option<Vec<u8>>,
}

/// What happened to a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRequest {
    /// The checkpoint that has the tag now, or had it.
    pub checkpoint: CheckpointRef,
    /// The tag.
    pub tag: String,
    /// What happened.
    pub action: TagAction,
}

/// What happened to a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagAction {
    /// It was set.
    Add {
        /// The number of the checkpoint that had it before.
        moved_from: Option<u64>,
    },
    /// It was removed.
    Remove,
}

/// A checkpoint was pinned or unpinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinRequest {
    /// The checkpoint.
    pub checkpoint: CheckpointRef,
    /// Whether it is pinned now.
    pub value: bool,
    /// Whether it was.
    pub was: bool,
}

/// A checkpoint's note was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteRequest {
    /// The checkpoint.
    pub checkpoint: CheckpointRef,
    /// The note now.
    pub note: Vec<u8>,
    /// The note before.
    pub was: Vec<u8>,
}

/// What happened to a lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineageRequest {
    /// Its name before.
    pub lineage: Vec<u8>,
    /// What happened.
    pub action: LineageAction,
}

/// What happened to a lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineageAction {
    /// It was archived.
    Archive {
        /// Why.
        reason: Vec<u8>,
    },
    /// It was taken back into use.
    Unarchive {
        /// Why it had been archived.
        reason: Vec<u8>,
    },
    /// It got another name.
    Rename {
        /// The new name.
        to: Vec<u8>,
    },
}

type Map = BTreeMap<String, String>;

impl Request {
    /// The kind of operation.
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Init => OperationKind::Init,
            Self::Checkpoint(_) => OperationKind::Checkpoint,
            Self::Heal(_) => OperationKind::Heal,
            Self::Activate(_) => OperationKind::Activate,
            Self::Tag(_) => OperationKind::Tag,
            Self::Pin(_) => OperationKind::Pin,
            Self::Note(_) => OperationKind::Note,
            Self::Lineage(_) => OperationKind::Lineage,
            Self::Undo { .. } => OperationKind::Undo,
        }
    }

    /// The `request` of the manifest's `operation`.
    pub fn to_map(&self) -> Map {
        let mut out = Map::new();
        match self {
            Self::Init => {}
            Self::Checkpoint(at) | Self::Heal(at) => write_ref(&mut out, at),
            Self::Activate(activation) => activation.write(&mut out),
            Self::Tag(tag) => tag.write(&mut out),
            Self::Pin(pin) => pin.write(&mut out),
            Self::Note(note) => note.write(&mut out),
            Self::Lineage(lineage) => lineage.write(&mut out),
            Self::Undo {
                undoes,
                undone_kind,
                applied,
            } => {
                applied.write(&mut out);
                set(&mut out, "undoes", undoes.to_string());
                set(&mut out, "undone_kind", undone_kind.word());
            }
        }
        out
    }

    /// Reads the request of an operation.
    ///
    /// # Errors
    /// What is missing, malformed or unknown; or that this version has no request for operations of that kind.
    pub fn parse(operation: &Operation) -> Result<Self, String> {
        Self::from_map(operation.kind, &operation.request)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub fn from_map(kind: OperationKind, map: &Map) -> Result<Self, String> {
        let mut fields = Fields { map: map.clone() };
        let request = match kind {
            OperationKind::Init => Self::Init,
            OperationKind::Checkpoint => Self::Checkpoint(fields.checkpoint()?),
            OperationKind::Heal => Self::Heal(fields.checkpoint()?),
            OperationKind::Activate => Self::Activate(Activation::read(&mut fields)?),
            OperationKind::Tag => Self::Tag(TagRequest::read(&mut fields)?),
            OperationKind::Pin => Self::Pin(PinRequest::read(&mut fields)?),
            OperationKind::Note => Self::Note(NoteRequest::read(&mut fields)?),
            OperationKind::Lineage => Self::Lineage(LineageRequest::read(&mut fields)?),
            OperationKind::Undo => Self::Undo {
                undoes: fields.generation("undoes")?,
                undone_kind: fields.parsed("undone_kind", OperationKind::parse)?,
                applied: Applied::read(&mut fields)?,
            },
            other => {
                return Err(format!(
                    "this version cannot read the request of a {}",
                    other.word()
                ));
            }
        };
        fields.finish()?;
        Ok(request)
    }
}

impl Applied {
    fn write(&self, out: &mut Map) {
        let word = match self {
            Self::Drop(at) => {
                write_ref(out, at);
                "drop"
            }
            Self::Return(at) => {
                write_ref(out, at);
                "return"
            }
            Self::Activate(activation) => {
                activation.write(out);
                "activate"
            }
            Self::Tag(tag) => {
                tag.write(out);
                "tag"
            }
            Self::Pin(pin) => {
                pin.write(out);
                "pin"
            }
            Self::Note(note) => {
                note.write(out);
                "note"
            }
            Self::Lineage(lineage) => {
                lineage.write(out);
                "lineage"
            }
        };
        set(out, "applied", word);
    }

    fn read(fields: &mut Fields) -> Result<Self, String> {
        Ok(match fields.take("applied")?.as_str() {
            "drop" => Self::Drop(fields.checkpoint()?),
            "return" => Self::Return(fields.checkpoint()?),
            "activate" => Self::Activate(Activation::read(fields)?),
            "tag" => Self::Tag(TagRequest::read(fields)?),
            "pin" => Self::Pin(PinRequest::read(fields)?),
            "note" => Self::Note(NoteRequest::read(fields)?),
            "lineage" => Self::Lineage(LineageRequest::read(fields)?),
            other => return Err(format!("its applied is {other:?}")),
        })
    }
}

impl Activation {
    fn write(&self, out: &mut Map) {
        set(out, "candidate", self.candidate.to_string());
        if let Some(directory) = &self.directory {
            set(out, "directory", to_hex(directory));
        }
    }

    fn read(fields: &mut Fields) -> Result<Self, String> {
        let candidate = fields.generation("candidate")?;
        let directory = if fields.has("directory") {
            Some(fields.hex("directory")?)
        } else {
            None
        };
        Ok(Self {
            candidate,
            directory,
        })
    }
}

impl TagRequest {
    fn write(&self, out: &mut Map) {
        write_ref(out, &self.checkpoint);
        set(out, "tag", self.tag.as_str());
        let (action, moved_from) = match self.action {
            TagAction::Add { moved_from } => ("add", moved_from),
            TagAction::Remove => ("remove", None),
        };
        set(out, "action", action);
        set(
            out,
            "moved_from",
            moved_from
                .map(|number| number.to_string())
                .unwrap_or_default(),
        );
    }

    fn read(fields: &mut Fields) -> Result<Self, String> {
        let checkpoint = fields.checkpoint()?;
        let tag = fields.take("tag")?;
        let empty = fields.map.get("moved_from").is_some_and(String::is_empty);
        let moved_from = if empty {
            fields.take("moved_from").map(|_| None)
        } else {
            fields.number("moved_from").map(Some)
        }?;
        let action = match (fields.take("action")?.as_str(), moved_from) {
            ("add", moved_from) => TagAction::Add { moved_from },
            ("remove", None) => TagAction::Remove,
            (other, _) => return Err(format!("its action is {other:?}")),
        };
        Ok(Self {
            checkpoint,
            tag,
            action,
        })
    }
}

impl PinRequest {
    fn write(&self, out: &mut Map) {
        write_ref(out, &self.checkpoint);
        set(out, "value", self.value.to_string());
        set(out, "was", self.was.to_string());
    }

    fn read(fields: &mut Fields) -> Result<Self, String> {
        let truth = |word: &str| word.parse::<bool>().ok();
        Ok(Self {
            checkpoint: fields.checkpoint()?,
            value: fields.parsed("value", truth)?,
            was: fields.parsed("was", truth)?,
        })
    }
}

impl NoteRequest {
    fn write(&self, out: &mut Map) {
        write_ref(out, &self.checkpoint);
        set(out, "note", to_hex(&self.note));
        set(out, "was", to_hex(&self.was));
    }

    fn read(fields: &mut Fields) -> Result<Self, String> {
        Ok(Self {
            checkpoint: fields.checkpoint()?,
            note: fields.hex("note")?,
            was: fields.hex("was")?,
        })
    }
}

impl LineageRequest {
    fn write(&self, out: &mut Map) {
        set(out, "lineage", to_hex(&self.lineage));
        let (action, key, value) = match &self.action {
            LineageAction::Archive { reason } => ("archive", "reason", reason),
            LineageAction::Unarchive { reason } => ("unarchive", "reason", reason),
            LineageAction::Rename { to } => ("rename", "to", to),
        };
        set(out, "action", action);
        set(out, key, to_hex(value));
    }

    fn read(fields: &mut Fields) -> Result<Self, String> {
        let lineage = fields.hex("lineage")?;
        let action = match fields.take("action")?.as_str() {
            "archive" => LineageAction::Archive {
                reason: fields.hex("reason")?,
            },
            "unarchive" => LineageAction::Unarchive {
                reason: fields.hex("reason")?,
            },
            "rename" => LineageAction::Rename {
                to: fields.hex("to")?,
            },
            other => return Err(format!("its action is {other:?}")),
        };
        Ok(Self { lineage, action })
    }
}

fn set(out: &mut Map, key: &str, value: impl Into<String>) {
    out.insert(key.to_owned(), value.into());
}

fn write_ref(out: &mut Map, at: &CheckpointRef) {
    set(out, "checkpoint", at.id.to_string());
    set(out, "lineage", to_hex(&at.lineage));
    set(out, "number", at.number.to_string());
}

/// The fields that were not read yet.
struct Fields {
    map: Map,
}

impl Fields {
    fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    fn take(&mut self, key: &str) -> Result<String, String> {
        self.map
            .remove(key)
            .ok_or_else(|| format!("it has no {key}"))
    }

    fn parsed<T>(&mut self, key: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let text = self.take(key)?;
        parse(&text).ok_or_else(|| format!("its {key} is {text:?}"))
    }

    /// A number has one spelling, so that a request has one.
    fn number(&mut self, key: &str) -> Result<u64, String> {
        self.parsed(key, |text| {
            text.parse().ok().filter(|n: &u64| n.to_string() == text)
        })
    }

    fn hex(&mut self, key: &str) -> Result<Vec<u8>, String> {
        self.parsed(key, from_hex)
    }

    fn generation(&mut self, key: &str) -> Result<GenerationId, String> {
        self.parsed(key, |text| GenerationId::parse(text.as_bytes()))
    }

    fn checkpoint(&mut self) -> Result<CheckpointRef, String> {
        Ok(CheckpointRef {
            id: self.parsed("checkpoint", ObjectId::parse)?,
            lineage: self.hex("lineage")?,
            number: self.number("number")?,
        })
    }

    fn finish(self) -> Result<(), String> {
        match self.map.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!("its {key} is unknown")),
        }
    }
}
