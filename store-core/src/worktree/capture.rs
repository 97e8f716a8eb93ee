//! Capture: a work tree becomes trees and chunks in an [`ObjectSink`]. The work tree is only ever read.
//!
//! What happens to a path is decided in one place each: rules in `rules`, the walk in `walk`, the reading of one file in
//! `read`. Here is what a caller asks for and gets.

use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
pub use crate::format::checkpoint::{Counts, RootMeta};
use crate::format::checkpoint::{LeftOut, LeftOutReason, Rule};
use crate::format::stat_cache::{CacheHeader, StatCache, StatCacheBuilder, Subtree};
use crate::format::tree::Extra;
use crate::id::ObjectId;
use crate::objects::ObjectSink;
use crate::progress::{Cancel, Phase, Progress};
use crate::worktree::door::Root;
use crate::worktree::rules::{RuleOptions, RuleWarning};
use crate::worktree::walk::Walk;

/// What to capture, and how far to go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Where rules come from.
    pub rules: RuleOptions,
    /// Give up beyond this many entries.
    pub max_entries: Option<u64>,
    /// Give up when the clock's monotonic reading passes this.
    pub deadline: Option<Duration>,
    /// Leave out files longer than this, in bytes.
    pub max_file_size: Option<u64>,
    /// Leave out directories on other file systems than the root's.
    pub one_file_system: bool,
    /// Read every file, whatever the stat cache says.
    pub rehash: bool,
}

/// One capture.
#[derive(Clone, Copy)]
pub struct CaptureRequest<'a, 'c> {
    /// The work tree.
    pub root: &'a Root,
    /// What to capture.
    pub options: &'a CaptureOptions,
    /// What the files of the latest checkpoint looked like. The caller vouches that the checkpoint that it describes is in
    /// the catalog and undamaged: trees that are found unchanged are not written again. `None` reads and writes everything.
    pub cache: Option<StatCache<'c>>,
    /// Where objects go.
    pub sink: &'a dyn ObjectSink,
    /// The threads to walk and read with; `None`: the caller's own.
    pub pool: Option<&'a rayon::ThreadPool>,
    /// Where the time comes from.
    pub clock: &'a dyn Clock,
    /// Hears how far the walk is.
    pub progress: &'a dyn Progress,
    /// Stops the walk.
    pub cancel: &'a Cancel,
    /// Directories to leave out, by device and inode: the store itself.
    pub skip: &'a [(u64, u64)],
}

impl std::fmt::Debug for CaptureRequest<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureRequest")
            .field("root", &self.root)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What a capture found. It borrows only the stat cache that was given.
#[derive(Debug)]
pub struct Captured<'c> {
    /// The root's tree. It is in the sink unless a stat cache showed that the latest checkpoint has it.
    pub root_tree: ObjectId,
    /// The root's own metadata.
    pub root_meta: RootMeta,
    /// How much it is.
    pub counts: Counts,
    /// Whether nothing was unreadable or unstable.
    pub complete: bool,
    /// Every path that is not in the trees, sorted, each once, cut directories at their top.
    pub left_out: Vec<LeftOut>,
    /// Rules that could not be applied.
    pub warnings: Vec<RuleWarning>,
    /// The rules that applied, the overriding ones last.
    pub rules: Vec<Rule>,
    /// When the walk began.
    pub walk_start: Time,
    /// What the next stat cache holds; `None` if the old one still says it all.
    pub new_cache: Option<NewCache<'c>>,
}

impl Captured<'_> {
    /// Whether the stat cache given still describes the tree exactly, so that none need be written.
    pub const fn cache_is_current(&self) -> bool {
        self.new_cache.is_none()
    }
}

/// The content of a new stat cache, waiting for the checkpoint that it will describe.
#[derive(Debug)]
pub struct NewCache<'c> {
    pub(crate) builder: StatCacheBuilder<'c>,
    pub(crate) root: Subtree,
}

impl NewCache<'_> {
    /// The cache's bytes. The trees that it names must be those of `header.checkpoint`.
    pub fn encode(&self, header: &CacheHeader) -> Vec<u8> {
        self.builder.encode(&self.root, header)
    }

    /// The same, to be completed with [`crate::format::stat_cache::seal`] once the checkpoint's id is known.
    pub fn encode_unsealed(&self, header: &CacheHeader) -> Vec<u8> {
        self.builder.encode_unsealed(&self.root, header)
    }
}

/// Walks and reads a work tree.
///
/// What could not be read is listed and makes the capture incomplete; it is not an error.
///
/// # Errors
/// - [`Error::Io`]: the root itself could not be read, or descriptors or memory ran out.
/// - [`Error::Cancelled`]: the caller cancelled, or the deadline passed.
/// - [`Error::Refused`]: `too_many_entries`; `everything_ignored` if rules left nothing; `directory_too_large`.
/// - [`Error::Invalid`]: an exclude pattern is not one.
/// - whatever the sink answers.
///
/// Nothing was written but objects that nothing names.
pub fn capture<'c>(request: &CaptureRequest<'_, 'c>) -> Result<Captured<'c>> {
    request.progress.begin(Phase::Capture, None);
    let walk_start = request.clock.now();
    let walk = Walk::new(request, walk_start)?;
    let done = walk.run()?;
    let root = done.root;
    let mut rules = done.rules;
    add_option_rules(request.options, &mut rules);
    let new_cache = NewCache {
        builder: done.builder,
        root: root.subtree,
    };
    let complete = !done.left_out.iter().any(|left| {
        matches!(
            left.reason,
            LeftOutReason::Unreadable | LeftOutReason::Unstable
        )
    });
    Ok(Captured {
        root_tree: root.tree,
        root_meta: RootMeta {
            mode: root.stat.permissions(),
            mtime: root.stat.mtime,
            owner: Some(root.stat.owner),
            xattrs: Extra::NotCaptured,
        },
        counts: Counts {
            left_out: done.left_out.len() as u64,
            ..done.counts
        },
        complete,
        left_out: done.left_out,
        warnings: done.warnings,
        rules,
        walk_start,
        new_cache: if root.same_cache {
            None
        } else {
            Some(new_cache)
        },
    })
}

fn add_option_rules(options: &CaptureOptions, rules: &mut Vec<Rule>) {
    let mut add = |rule: String| {
        rules.push(Rule {
            origin: b"-option".to_vec(),
            rule: rule.into_bytes(),
        });
    };
    if let Some(bytes) = options.max_file_size {
        add(format!("--max-file-size: {bytes}"));
    }
    if options.one_file_system {
        add("--one-file-system".to_owned());
    }
}

/// The error of rules that leave nothing of a tree that is not empty.
pub(crate) fn everything_ignored(cut: &[LeftOut]) -> Error {
    let mut error = Error::refused(
        "everything_ignored",
        "the rules leave nothing of this tree",
        "see which rule cuts what, and change it; or add --no-default-ignores",
    );
    if let Error::Refused { items, .. } = &mut error {
        *items = cut
            .iter()
            .take(20)
            .map(|left| {
                let (path, rule) = (
                    crate::name::escape(&left.path),
                    crate::name::escape(&left.rule),
                );
                format!("{path} ({rule})")
            })
            .collect();
    }
    error
}
