//! What a sequence is made of. Four bytes are one operation, whatever they hold: a cut or mutated input is a sequence too.

use arbitrary::{Arbitrary, Result, Unstructured};

/// One step. The numbers choose among what exists when its turn comes, so every operation can follow every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are choices, each taken modulo what there is to choose from"
)]
pub enum Operation {
    /// Writes a file, in place of whatever is there, with the directories above it.
    Write {
        tree: u8,
        path: u8,
        content: u8,
        mtime: u8,
    },
    /// Removes a file, a link, or a directory with all in it.
    Remove { tree: u8, path: u8 },
    /// Makes a directory.
    MakeDirectory { tree: u8, path: u8 },
    /// Makes a symbolic link in place of whatever is there.
    Link { tree: u8, path: u8, target: u8 },
    /// Changes permission bits.
    ChangeMode { tree: u8, path: u8, mode: u8 },
    /// Moves something to another name.
    Move { tree: u8, from: u8, to: u8 },
    /// Changes only a directory's mtime, which is not a change of the state.
    Touch { tree: u8, path: u8, mtime: u8 },
    /// Checkpoints a tree; while that is on its way, somebody else may do something in the store.
    Checkpoint {
        ask: Ask,
        meanwhile: Option<Meanwhile>,
    },
    /// Puts a tag on a checkpoint.
    Tag { at: At, tag: u8, move_it: bool },
    /// Takes a tag away.
    Untag { lineage: u8, tag: u8 },
    /// Pins or unpins a checkpoint.
    Pin { at: At, value: bool },
    /// Changes a note.
    Note { at: At, note: u8 },
    /// Archives a lineage, or takes it back into use.
    Archive { lineage: u8, value: bool },
    /// Renames a lineage.
    Rename { lineage: u8, to: u8 },
    /// Undoes the latest operation (of an undo: a redo), or only if it is on a lineage.
    Undo {
        here: Option<u8>,
        leave_behind: bool,
    },
    /// Undoes the operation that made a generation.
    UndoNamed { generation: u8, leave_behind: bool },
    /// Makes a generation of the store live; while it is verified, somebody may make a checkpoint.
    Activate {
        generation: u8,
        leave_behind: bool,
        meanwhile: Option<u8>,
    },
    /// Makes a copy of a generation elsewhere live.
    ActivateCopy { generation: u8, leave_behind: bool },
    /// Breaks CURRENT, or what it names.
    Break { fault: u8, generation: u8 },
    /// Mends CURRENT: by activating a generation, or by putting its bytes back.
    Mend { generation: u8, by_hand: bool },
    /// Opens the store again, perhaps with another clock.
    Reopen { trusting: bool },
    /// Pins a generation, as a long reader does.
    Hold { generation: u8 },
    /// Lets the oldest held generation go.
    Release,
    /// Lets time pass.
    Wait { hours: u8 },
    /// Reads a generation that is not live.
    Look { generation: u8 },
    /// Reads every file of every checkpoint.
    Contents,
    /// Verifies the live generation in full.
    Verify,
    /// Compares what `status` shows.
    Status,
    /// Deletes the derived data.
    DropCache,
    /// Removes emptied generation directories, as an operator may.
    DropHusks,
}

/// Which checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub lineage: u8,
    pub checkpoint: u8,
}

/// How a checkpoint is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub tree: u8,
    pub lineage: Option<u8>,
    pub role: u8,
    pub actor: u8,
    pub force: bool,
    pub tag: Option<u8>,
    pub key: Option<u8>,
}

/// What somebody else does between the beginning of a checkpoint and its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    Checkpoint { tree: u8 },
    Undo,
    Tag { at: At, tag: u8 },
    Activate { generation: u8 },
}

/// How many bytes make an operation.
pub const BYTES: usize = 4;

impl Arbitrary<'_> for Operation {
    fn arbitrary(u: &mut Unstructured<'_>) -> Result<Self> {
        let bytes: [u8; BYTES] = u.arbitrary()?;
        Ok(Self::decode(bytes))
    }
}

/// Of the eight values of `choice`, the last `of` are one of so many; the others are none.
fn seldom(choice: u8, of: u8) -> Option<u8> {
    choice.checked_sub(8 - of)
}

impl Operation {
    /// The sequence that an input stands for; at most `limit` operations.
    pub fn sequence(bytes: &[u8], limit: usize) -> Vec<Self> {
        let mut u = Unstructured::new(bytes);
        let mut operations = Vec::new();
        while u.len() >= BYTES && operations.len() < limit {
            operations.extend(u.arbitrary::<Self>());
        }
        operations
    }

    fn decode([kind, a, b, c]: [u8; BYTES]) -> Self {
        let (tree, path) = (a & 1, a >> 1);
        let generation = a;
        let flag = c & 1 == 1;
        match kind {
            0..=59 => Self::Write {
                tree,
                path,
                content: b,
                mtime: c,
            },
            60..=75 => Self::Remove { tree, path },
            76..=82 => Self::MakeDirectory { tree, path },
            83..=92 => Self::Link {
                tree,
                path,
                target: b,
            },
            93..=101 => Self::ChangeMode {
                tree,
                path,
                mode: b,
            },
            102..=111 => Self::Move {
                tree,
                from: path,
                to: b,
            },
            112..=115 => Self::Touch {
                tree,
                path,
                mtime: b,
            },
            116..=158 => Self::Checkpoint {
                ask: Ask::decode(a, b, c),
                meanwhile: None,
            },
            159..=168 => Self::Checkpoint {
                ask: Ask::decode(a, b, c),
                meanwhile: Some(Meanwhile::decode(b, c)),
            },
            169..=177 => Self::Tag {
                at: At::decode(a, b),
                tag: c >> 1,
                move_it: flag,
            },
            178..=180 => Self::Untag { lineage: a, tag: b },
            181..=185 => Self::Pin {
                at: At::decode(a, b),
                value: flag,
            },
            186..=190 => Self::Note {
                at: At::decode(a, b),
                note: c,
            },
            191..=193 => Self::Archive {
                lineage: a,
                value: flag,
            },
            194..=195 => Self::Rename { lineage: a, to: b },
            196..=209 => Self::Undo {
                here: (b & 3 == 0).then_some(a),
                leave_behind: flag,
            },
            210..=214 => Self::UndoNamed {
                generation,
                leave_behind: flag,
            },
            215..=221 => Self::Activate {
                generation,
                leave_behind: c & 3 != 0,
                meanwhile: (b & 3 == 0).then_some(b >> 2),
            },
            222..=224 => Self::ActivateCopy {
                generation,
                leave_behind: c & 3 != 0,
            },
            225..=229 => Self::Break {
                fault: b,
                generation,
            },
            230..=233 => Self::Mend {
                generation,
                by_hand: flag,
            },
            234..=236 => Self::Reopen { trusting: flag },
            237..=240 => Self::Hold { generation },
            241..=243 => Self::Release,
            244..=246 => Self::Wait { hours: a },
            247..=248 => Self::Look { generation },
            249..=250 => Self::Contents,
            251 => Self::Verify,
            252..=253 => Self::Status,
            254 => Self::DropCache,
            255 => Self::DropHusks,
        }
    }
}

impl At {
    const fn decode(lineage: u8, checkpoint: u8) -> Self {
        Self {
            lineage,
            checkpoint,
        }
    }
}

impl Ask {
    fn decode(a: u8, b: u8, c: u8) -> Self {
        Self {
            tree: a & 1,
            lineage: seldom((a >> 1) & 7, 3),
            role: (a >> 4) & 3,
            actor: c & 3,
            force: b & 3 == 0,
            tag: seldom((b >> 2) & 7, 3),
            key: seldom((b >> 5) & 7, 3),
        }
    }
}

impl Meanwhile {
    fn decode(b: u8, c: u8) -> Self {
        let choice = c >> 4;
        match (c >> 2) & 3 {
            0 => Self::Checkpoint { tree: choice & 1 },
            1 => Self::Undo,
            2 => Self::Tag {
                at: At::decode(choice & 3, choice >> 2),
                tag: b,
            },
            _ => Self::Activate { generation: choice },
        }
    }
}
