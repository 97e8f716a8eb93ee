//! `manifest.json`, `docs/format.md` section 9: canonical JSON that says what a generation is.
//!
//! The fields of every struct here stand in ascending order of their keys, because that is the order of their bytes.

mod request;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{GenerationId, Nonce, ObjectId, StoreId};

pub use request::{Activation, Applied, LineageAction, LineageRequest, NoteRequest, PinRequest};
pub use request::{Request, TagAction, TagRequest};

/// The format of this version.
pub const FORMAT: u64 = 1;
/// The longest manifest.
pub const MAX_MANIFEST_BYTES: usize = 16 << 20;
/// The most packs of a generation.
pub const MAX_PACKS: usize = 65_536;
const MAX_PACK_OBJECTS: u64 = 1 << 26;

/// Why bytes are not a manifest that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not the canonical bytes of a manifest.
    #[error("{0}")]
    Mismatch(String),
    /// Written by a newer genstore.
    #[error("{0}")]
    Unsupported(String),
}

/// What a generation is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The catalog root.
    pub catalog: ObjectId,
    /// RFC 3339 in UTC with nanoseconds, for people only.
    pub created: String,
    /// The activation that this state descends from.
    pub epoch: Epoch,
    /// Always [`FORMAT`].
    pub format: u64,
    /// Superseded generations that are still held, ascending by id.
    pub kept: Vec<Kept>,
    /// Objects known to be lost, ascending by object.
    pub lost: Vec<Lost>,
    /// Fresh for each attempt, so that no id ever comes back.
    pub nonce: Nonce,
    /// The operation that made this generation.
    pub operation: Operation,
    /// What a backup is a copy of.
    pub origin: Option<Origin>,
    /// The packs, ascending by id.
    pub packs: Vec<PackEntry>,
    /// The live generation that this one was made from.
    pub parent: Option<GenerationId>,
    /// Retention, or none.
    pub policy: Option<Policy>,
    /// As in the generation's id.
    pub sequence: u64,
    /// The store.
    pub store: StoreId,
    /// Who wrote it.
    pub writer: Writer,
}

/// The last activation (or `init`) that a state descends from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// The candidate that was activated; none for `init`.
    pub candidate: Option<GenerationId>,
    /// The nonce of that activation's manifest.
    pub nonce: Nonce,
}

/// A superseded generation that is still held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The generation.
    pub id: GenerationId,
    /// Why it is held.
    pub reason: KeptReason,
    /// Since when it is superseded, RFC 3339.
    pub since: String,
}

/// Why a superseded generation is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeptReason {
    /// It is the state before a prune, undo or activation.
    Before,
    /// An activation replaced it.
    Evidence,
    /// Nothing special.
    Plain,
}

/// An object known to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// The object.
    pub object: ObjectId,
    /// How it went.
    pub reason: LostReason,
}

/// How a lost object went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LostReason {
    /// By damage.
    Lost,
    /// On purpose.
    Purged,
}

/// The operation that made a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The generation that was live before it.
    pub before: Option<GenerationId>,
    /// Figures for people.
    pub counts: BTreeMap<String, u64>,
    /// What was done.
    pub kind: OperationKind,
    /// With what; see [`Request`].
    pub request: BTreeMap<String, String>,
    /// The receipt of an earlier attempt at the same thing.
    pub retry_of: Option<String>,
}

/// What an operation does. Those after `Note` are reserved for later verbs of format 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names of verbs")]
pub enum OperationKind {
    Init,
    Checkpoint,
    Heal,
    Activate,
    Undo,
    Lineage,
    Tag,
    Pin,
    Note,
    Prune,
    Policy,
    Maintain,
    Purge,
    Adopt,
    Import,
    Repair,
    Rollback,
}

impl OperationKind {
    /// Every kind of format 1.
    pub const ALL: [Self; 17] = [
        Self::Init,
        Self::Checkpoint,
        Self::Heal,
        Self::Activate,
        Self::Undo,
        Self::Lineage,
        Self::Tag,
        Self::Pin,
        Self::Note,
        Self::Prune,
        Self::Policy,
        Self::Maintain,
        Self::Purge,
        Self::Adopt,
        Self::Import,
        Self::Repair,
        Self::Rollback,
    ];

    /// The word in the manifest.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Checkpoint => "checkpoint",
            Self::Heal => "heal",
            Self::Activate => "activate",
            Self::Undo => "undo",
            Self::Lineage => "lineage",
            Self::Tag => "tag",
            Self::Pin => "pin",
            Self::Note => "note",
            Self::Prune => "prune",
            Self::Policy => "policy",
            Self::Maintain => "maintain",
            Self::Purge => "purge",
            Self::Adopt => "adopt",
            Self::Import => "import",
            Self::Repair => "repair",
            Self::Rollback => "rollback",
        }
    }

    /// The kind of a word in the manifest.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// What a backup is a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The generation that was copied.
    pub generation: GenerationId,
    /// The store that it was in.
    pub store: StoreId,
}

/// A pack of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackEntry {
    /// Its length.
    pub bytes: u64,
    /// The BLAKE3 of its whole content; its name.
    pub id: ObjectId,
    /// How many objects it holds.
    pub objects: u64,
    /// Whether it can be read.
    pub state: PackState,
}

/// Whether a pack can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackState {
    /// It is there.
    Ok,
    /// It is not in the directory, and satisfies no look-up.
    Missing,
    /// It is there with the wrong size, and satisfies no look-up.
    Damaged,
}

/// Retention rules. `None` means that a rule is not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Packs may be copied, without limit, where hard links do not work.
    pub copy_packs: bool,
    /// One a day for this many days.
    pub keep_daily: Option<u64>,
    /// The last so many.
    pub keep_last: Option<u64>,
    /// One a month for this many months.
    pub keep_monthly: Option<u64>,
    /// Those with one of these tags.
    pub keep_tags: Vec<String>,
    /// One a week for this many weeks.
    pub keep_weekly: Option<u64>,
    /// Those younger than this.
    pub keep_within_s: Option<u64>,
    /// Drop the oldest beyond this size.
    pub max_size_bytes: Option<u64>,
    /// False for a backup: it accepts no checkpoints.
    pub writable: bool,
}

impl Policy {
    /// What `init` writes: the last 100, and one a day for 30 days.
    pub const fn default_for_init() -> Self {
        let mut policy = Self::keep_everything();
        policy.keep_daily = Some(30);
        policy.keep_last = Some(100);
        policy
    }

    /// No retention rule at all.
    pub const fn keep_everything() -> Self {
        Self {
            copy_packs: false,
            keep_daily: None,
            keep_last: None,
            keep_monthly: None,
            keep_tags: Vec::new(),
            keep_weekly: None,
            keep_within_s: None,
            max_size_bytes: None,
            writable: true,
        }
    }
}

/// The process that wrote a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    /// The id of the boot.
    pub boot: String,
    /// The host.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// When it started, in clock ticks since the boot.
    pub start_ticks: u64,
    /// The program and its version.
    pub tool: String,
    /// The effective user.
    pub uid: u32,
}

impl Manifest {
    /// The canonical bytes. To publish them, use [`Manifest::seal`], which checks them first.
    ///
    /// # Panics
    /// Never: a manifest has no value that JSON cannot hold.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("BUG: a manifest has only string keys and whole numbers")
    }

    /// The canonical bytes and the id of the generation that they make.
    ///
    /// # Errors
    /// The rule of the format that the manifest breaks: it could not be read back.
    pub fn seal(&self) -> Result<(GenerationId, Vec<u8>), String> {
        self.check()?;
        let bytes = self.encode();
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(format!("it is longer than {MAX_MANIFEST_BYTES} bytes"));
        }
        let id = GenerationId::of_manifest(self.sequence, &bytes);
        Ok((id.ok_or("its sequence is out of range")?, bytes))
    }

    /// Reads a manifest. That the bytes are those of a generation's id is for the caller to check, before this.
    ///
    /// # Errors
    /// - [`ManifestError::Unsupported`]: another `format`, or a field or word that this version does not know.
    /// - [`ManifestError::Mismatch`]: anything else that is not the canonical encoding of a manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            let problem = format!("it is longer than {MAX_MANIFEST_BYTES} bytes");
            return Err(ManifestError::Mismatch(problem));
        }
        let manifest: Self = match serde_json::from_slice(bytes) {
            Ok(manifest) => manifest,
            Err(error) => return Err(explain(bytes, &error)),
        };
        if manifest.format != FORMAT {
            return Err(ManifestError::Unsupported(format!(
                "its format is {}",
                manifest.format
            )));
        }
        manifest.check().map_err(ManifestError::Mismatch)?;
        if manifest.encode() != bytes {
            let problem = "it is not in canonical form".to_owned();
            return Err(ManifestError::Mismatch(problem));
        }
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("its format is {}", self.format));
        }
        if self.sequence == 0 || self.sequence > GenerationId::MAX_SEQUENCE {
            return Err("its sequence is out of range".to_owned());
        }
        if self.packs.len() > MAX_PACKS {
            return Err(format!("it lists more than {MAX_PACKS} packs"));
        }
        let ascending = super::catalog::is_strictly_ascending;
        if !ascending(self.packs.iter().map(|pack| pack.id)) {
            return Err("its packs are not in ascending order".to_owned());
        }
        if let Some(pack) = self
            .packs
            .iter()
            .find(|p| !(1..=MAX_PACK_OBJECTS).contains(&p.objects))
        {
            return Err(format!(
                "the number of objects of pack {} is out of range",
                pack.id
            ));
        }
        if !super::catalog::is_strictly_ascending(self.kept.iter().map(|kept| kept.id)) {
            return Err("its kept generations are not in ascending order".to_owned());
        }
        if !super::catalog::is_strictly_ascending(self.lost.iter().map(|lost| lost.object)) {
            return Err("its lost objects are not in ascending order".to_owned());
        }
        Ok(())
    }
}

/// The one field that every format has.
#[derive(Deserialize)]
struct Look {
    format: u64,
}

/// Why bytes are not a manifest of this version: another format counts before anything else that is wrong.
fn explain(bytes: &[u8], error: &serde_json::Error) -> ManifestError {
    match serde_json::from_slice::<Look>(bytes) {
        Ok(look) if look.format != FORMAT => {
            ManifestError::Unsupported(format!("its format is {}", look.format))
        }
        Ok(_) => classify(error),
        Err(error) => {
            ManifestError::Mismatch(format!("it is not a JSON object with a format: {error}"))
        }
    }
}

/// Tells a manifest of a newer genstore from a damaged one. serde has no kind for this, only words; a test holds it to
/// them. A duplicate field, a missing one or one of another type is damage.
fn classify(error: &serde_json::Error) -> ManifestError {
    let problem = error.to_string();
    if problem.starts_with("unknown field") || problem.starts_with("unknown variant") {
        ManifestError::Unsupported(problem)
    } else {
        ManifestError::Mismatch(problem)
    }
}

#[cfg(test)]
mod tests;
