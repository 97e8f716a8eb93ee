//! Capturing a work tree for a checkpoint or a comparison, and the stat cache of a lineage.

use crate::clock::Time;
use crate::disk::{Kind, Temporary};
use crate::format::checkpoint::{Counts, LeftOut, RootMeta, Rule};
use crate::format::stat_cache::{CacheHeader, StatCache};
use crate::id::ObjectId;
use crate::objects::ObjectSink;
use crate::root::{Context, Root};
use crate::worktree;
use crate::worktree::capture::{self, CaptureOptions, CaptureRequest};
use crate::worktree::rules::RuleWarning;
use crate::{Result, layout};

use crate::ops::Warning;
use crate::ops::base::Base;

/// What a capture found, free of what it was made from.
pub(crate) struct Captured {
    pub(crate) root_tree: ObjectId,
    pub(crate) root_meta: RootMeta,
    pub(crate) counts: Counts,
    pub(crate) complete: bool,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) warnings: Vec<RuleWarning>,
    pub(crate) walk_start: Time,
    /// The next stat cache, to be sealed with the checkpoint's id; `None` if the old one says it all.
    pub(super) new_cache: Option<Vec<u8>>,
}

/// Captures a work tree into a sink; for a lineage of a base, also what its next stat cache holds.
pub(crate) fn capture_into(
    root: &Root,
    context: &Context,
    work_tree: &worktree::Root,
    options: &CaptureOptions,
    cache: Option<StatCache<'_>>,
    sink: &dyn ObjectSink,
    cache_for: Option<(&Base, &[u8])>,
) -> Result<Captured> {
    let store = root.dir.facts()?;
    let pool = context.helpers()?;
    let captured = capture::capture(&CaptureRequest {
        root: work_tree,
        options,
        cache,
        sink,
        pool: pool.as_ref(),
        clock: &*context.clock,
        progress: &*context.progress,
        cancel: &context.cancel,
        skip: &[(store.device, store.inode)],
    })?;
    let new_cache = match (&captured.new_cache, cache_for) {
        (Some(cache), Some((base, lineage))) => Some(cache.encode_unsealed(&CacheHeader {
            store: base.manifest().store,
            epoch: base.manifest().epoch.nonce,
            lineage: ObjectId::of(lineage),
            checkpoint: ObjectId::from_bytes([0; 32]),
            damage: base.damage(),
            walk_start: captured.walk_start,
        })),
        _ => None,
    };
    Ok(Captured {
        root_tree: captured.root_tree,
        root_meta: captured.root_meta,
        counts: captured.counts,
        complete: captured.complete,
        rules: captured.rules,
        left_out: captured.left_out,
        warnings: captured.warnings,
        walk_start: captured.walk_start,
        new_cache,
    })
}

pub(super) fn rule_warning(warning: &RuleWarning) -> Warning {
    let path = crate::name::escape(&warning.path);
    let at = if warning.line == 0 {
        path
    } else {
        format!("{path}:{}", warning.line)
    };
    Warning {
        code: "rule_not_applied",
        message: format!("{at}: {}", warning.problem),
        hint: None,
    }
}

/// The stat cache of a lineage, as it lies on disk. Whatever is wrong with it only means that there is none.
pub(crate) fn cache_bytes(root: &Root, lineage: &[u8]) -> Result<Option<Vec<u8>>> {
    /// A tree of some ten million entries.
    const MAX_CACHE_BYTES: u64 = 2 << 30;
    let Ok(dir) = root.sub(layout::CACHE) else {
        return Ok(None);
    };
    let name = layout::cache_name(lineage);
    match dir.look(&name)? {
        Some(facts) if facts.kind == Kind::File && facts.bytes <= MAX_CACHE_BYTES => {}
        _ => return Ok(None),
    }
    Ok(dir
        .open_file(&name)
        .and_then(|file| file.read_up_to(MAX_CACHE_BYTES))
        .ok())
}

/// The cache, if it describes a checkpoint of this lineage that the resolved catalog has.
pub(crate) fn usable_cache<'b>(
    base: &Base,
    lineage: &[u8],
    bytes: &'b [u8],
) -> Option<StatCache<'b>> {
    let cache = StatCache::open(bytes).ok()?;
    let header = cache.header();
    let manifest = base.manifest();
    if header.store != manifest.store
        || header.epoch != manifest.epoch.nonce
        || header.lineage != ObjectId::of(lineage)
        || header.damage != base.damage()
    {
        return None;
    }
    let catalog = base.catalog().ok()?;
    (catalog.lineage_of(&header.checkpoint).ok()??.as_slice() == lineage).then_some(cache)
}

/// Replaces a lineage's stat cache.
pub(super) fn write_cache(root: &Root, lineage: &[u8], bytes: &[u8]) -> Result<()> {
    let cache = root.sub_or_make(layout::CACHE)?;
    let temporary = Temporary::create(&root.sub_or_make(layout::INCOMING)?, "cache")?;
    temporary.file().append(bytes)?;
    temporary
        .move_to(&cache, &layout::cache_name(lineage))
        .map(drop)
        .map_err(|(_, error)| error)
}
