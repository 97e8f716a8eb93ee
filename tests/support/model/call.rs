//! What is asked of a store, and what it answers: the same value goes to the store and to the model.

use std::path::PathBuf;
use std::sync::Arc;

use store_core::format::catalog::CheckpointRef;
use store_core::format::checkpoint::{Actor, Role};
use store_core::id::GenerationId;
use store_core::{
    ActivateOptions, ActivateTarget, Activated, Checkpointed, Error, Published, Store,
};

use super::tree::Directory;

/// A checkpoint to be made.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which tree.
    pub tree: usize,
    /// The tree's path.
    pub source: PathBuf,
    /// What is in the tree.
    pub state: Arc<Directory>,
    /// The lineage, if it is named.
    pub lineage: Option<Vec<u8>>,
    /// Where in a turn.
    pub role: Role,
    /// By whom.
    pub actor: Actor,
    /// Even if nothing changed.
    pub force: bool,
    /// A tag to put on it.
    pub tag: Option<String>,
    /// A key.
    pub key: Option<Vec<u8>>,
    /// The message.
    pub message: String,
}

/// One call of the library that may publish something.
#[derive(Clone, Debug)]
pub enum Call {
    Checkpoint(Request),
    Tag {
        at: CheckpointRef,
        tag: String,
        move_it: bool,
    },
    Untag {
        lineage: Vec<u8>,
        tag: String,
    },
    Pin {
        at: CheckpointRef,
        value: bool,
    },
    Note {
        at: CheckpointRef,
        note: Vec<u8>,
    },
    Archive {
        lineage: Vec<u8>,
        reason: String,
    },
    Unarchive {
        lineage: Vec<u8>,
    },
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    Undo {
        named: Option<GenerationId>,
        here: Option<Vec<u8>>,
        leave_behind: bool,
    },
    Activate {
        generation: GenerationId,
        directory: Option<PathBuf>,
        leave_behind: bool,
        replace: bool,
    },
}

/// What the library answered.
#[derive(Debug)]
pub enum Answer {
    Checkpointed(Box<Checkpointed>),
    Published(Published),
    Activated(Activated),
}

impl Call {
    /// Asks the store.
    pub fn run(&self, store: &Store) -> Result<Answer, Error> {
        match self {
            Self::Checkpoint(request) => request.run(store).map(Box::new).map(Answer::Checkpointed),
            Self::Tag { at, tag, move_it } => {
                store.set_tag(at, tag, *move_it).map(Answer::Published)
            }
            Self::Untag { lineage, tag } => store.remove_tag(lineage, tag).map(Answer::Published),
            Self::Pin { at, value } => store.set_pinned(at, *value).map(Answer::Published),
            Self::Note { at, note } => store.set_note(at, note).map(Answer::Published),
            Self::Archive { lineage, reason } => store
                .archive_lineage(lineage, reason)
                .map(Answer::Published),
            Self::Unarchive { lineage } => store.unarchive_lineage(lineage).map(Answer::Published),
            Self::Rename { from, to } => store.rename_lineage(from, to).map(Answer::Published),
            Self::Undo {
                named,
                here,
                leave_behind,
            } => {
                let plan = store.plan_undo(named.as_ref(), here.as_deref())?;
                store.undo(&plan, *leave_behind).map(Answer::Published)
            }
            Self::Activate {
                generation,
                directory,
                leave_behind,
                replace,
            } => {
                let target = match directory {
                    Some(directory) => ActivateTarget::Directory(directory.clone()),
                    None => ActivateTarget::Generation(*generation),
                };
                let options = ActivateOptions {
                    leave_behind: *leave_behind,
                    replace_selector: *replace,
                    ..ActivateOptions::default()
                };
                store.activate(&target, options).map(Answer::Activated)
            }
        }
    }
}

impl Request {
    fn run(&self, store: &Store) -> Result<Checkpointed, Error> {
        let mut builder = store
            .checkpoint(&self.source)
            .message(&self.message)
            .role(self.role)
            .actor(self.actor)
            .force(self.force)
            .tags(self.tag.iter().cloned().collect());
        if let Some(lineage) = &self.lineage {
            builder = builder.lineage(lineage);
        }
        if let Some(key) = &self.key {
            builder = builder.key(key);
        }
        let mut done = builder.run()?;
        done.finish();
        Ok(done)
    }
}
