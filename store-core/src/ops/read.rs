//! Reading a pinned generation: lineages, checkpoints, entries, contents, differences. Changes nothing.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::catalog::{Catalog, Found, LineageView, Revision};
use crate::disk::{self, Kind as FileKind};
use crate::format::catalog::{CheckpointRef, LineageState};
use crate::format::checkpoint::{CheckpointRecord, LeftOut, Rule, decode_left_out, decode_rules};
use crate::format::manifest::Manifest;
use crate::format::tree::{Entry, Node, Tree};
use crate::id::{GenerationId, ObjectId};
use crate::objects::chunker;
use crate::objects::{ObjectSource, memory::MemoryObjects};
use crate::root::{Context, Root, host_name};
use crate::worktree;
use crate::worktree::capture::CaptureOptions;
use crate::worktree::compare::{self, Change, Side};
use crate::{Error, Result, Wanted};

use super::base::{Access, Base};

/// The longest left-out or rules object that is read, in bytes.
const MAX_LIST_BYTES: usize = 64 << 20;

/// A pinned generation: its files stay for as long as this value lives.
pub struct View {
    pub(crate) base: Base,
    pub(crate) root: Root,
    pub(crate) context: Context,
}

/// A lineage and what is known of its source now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineageInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// The canonical path of its source.
    pub source: Vec<u8>,
    /// The host that the source is on.
    pub host: Vec<u8>,
    /// How many checkpoints it has.
    pub checkpoints: u64,
    /// Its latest checkpoint.
    pub latest: Option<CheckpointRef>,
    /// Whether it is in use.
    pub state: LineageState,
    /// `present`, `missing` (proven: the parent is there, the same as ever), `unreachable` (not proven), or `other host`.
    pub source_state: &'static str,
}

/// A checkpoint with everything that is recorded about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// Its id.
    pub id: ObjectId,
    /// The name of its lineage.
    pub lineage: Vec<u8>,
    /// Its number there.
    pub number: u64,
    /// The immutable record.
    pub record: CheckpointRecord,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether retention must spare it.
    pub pinned: bool,
    /// Its note.
    pub note: Vec<u8>,
}

impl CheckpointInfo {
    /// Which checkpoint it is.
    pub fn reference(&self) -> CheckpointRef {
        CheckpointRef {
            lineage: self.lineage.clone(),
            number: self.number,
            id: self.id,
        }
    }
}

/// What a comparison with a work tree left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorktreeDiff {
    /// Paths of the work tree that were not compared, with reasons.
    pub left_out: Vec<LeftOut>,
    /// False if something could not be read.
    pub complete: bool,
}

impl View {
    pub(crate) fn open(
        root: &Root,
        context: &Context,
        generation: Option<&GenerationId>,
    ) -> Result<Self> {
        let base = match generation {
            None => Base::open(root, context, Access::Read)?,
            Some(id) => Base::open_generation(root, context, id, Access::Read)?,
        };
        Ok(Self {
            base,
            root: root.clone(),
            context: context.clone(),
        })
    }

    /// The generation that is read.
    pub fn generation(&self) -> GenerationId {
        self.base.live.id
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        self.base.manifest()
    }

    fn catalog(&self) -> Result<Catalog<'_>> {
        self.base.catalog()
    }

    /// Looks for contradictions in the catalog; for tests.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    #[doc(hidden)]
    pub fn check_catalog(&self) -> Result<Vec<String>> {
        Ok(crate::catalog::check(&self.catalog()?))
    }

    /// Every lineage, by name.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn lineages(&self) -> Result<Vec<LineageInfo>> {
        self.catalog()?
            .lineages()
            .map(|lineage| lineage_info(&lineage?))
            .collect()
    }

    /// One lineage.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none of that name.
    pub fn lineage(&self, name: &[u8]) -> Result<LineageInfo> {
        lineage_info(&self.catalog()?.expect_lineage(name)?)
    }

    /// The lineage whose source is the nearest one that owns a path; links in the path are resolved first.
    ///
    /// # Errors
    /// [`Error::Ambiguous`] if several lineages have that source.
    pub fn discover(&self, path: &Path) -> Result<Option<LineageInfo>> {
        let path = canonical_as_far_as_possible(path)?;
        self.catalog()?
            .discover(path.as_os_str().as_bytes())?
            .map(|lineage| lineage_info(&lineage))
            .transpose()
    }

    /// The lineages whose source lies below a path.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn nested(&self, path: &Path) -> Result<Vec<LineageInfo>> {
        let path = canonical_as_far_as_possible(path)?;
        let catalog = self.catalog()?;
        let found = catalog.nested(path.as_os_str().as_bytes())?;
        found
            .iter()
            .map(|(_, lineage)| lineage_info(&catalog.expect_lineage(lineage)?))
            .collect()
    }

    /// The checkpoint that people mean: an id prefix, `latest`, `latest~N`, `first`, `@TIME` or a tag.
    ///
    /// # Errors
    /// [`Error::NotFound`] or [`Error::Ambiguous`].
    pub fn find(&self, revision: &str, lineage: Option<&[u8]>) -> Result<CheckpointInfo> {
        let catalog = self.catalog()?;
        let parsed = Revision::parse(
            revision,
            self.context.clock.now(),
            &jiff::tz::TimeZone::system(),
        )?;
        let lineage = lineage
            .map(|name| catalog.expect_lineage(name))
            .transpose()?;
        let found = parsed.resolve(&catalog, lineage.as_ref())?;
        Self::info(&catalog, found)
    }

    fn info(catalog: &Catalog<'_>, found: Found) -> Result<CheckpointInfo> {
        let record = catalog.record(&found.entry.id)?;
        Ok(CheckpointInfo {
            id: found.entry.id,
            lineage: found.lineage,
            number: found.number,
            record,
            tags: found.entry.tags,
            pinned: found.entry.pinned,
            note: found.entry.note,
        })
    }

    /// Calls `visit` with the newest checkpoints of one lineage or of all, newest first.
    ///
    /// # Errors
    /// If the catalog cannot be read; and what `visit` returns.
    pub fn log(
        &self,
        lineage: Option<&[u8]>,
        limit: Option<usize>,
        visit: &mut dyn FnMut(CheckpointInfo) -> Result<()>,
    ) -> Result<()> {
        let catalog = self.catalog()?;
        let limit = limit.unwrap_or(usize::MAX);
        let Some(name) = lineage else {
            return Self::log_all(&catalog, limit, visit);
        };
        for numbered in catalog.expect_lineage(name)?.newest_first().take(limit) {
            let numbered = numbered?;
            let found = Found {
                lineage: name.to_vec(),
                number: numbered.number,
                entry: numbered.entry,
            };
            visit(Self::info(&catalog, found)?)?;
        }
        Ok(())
    }

    /// All lineages, each in the order of its numbers, merged by time: a clock that went back reorders nothing within one.
    fn log_all(
        catalog: &Catalog<'_>,
        limit: usize,
        visit: &mut dyn FnMut(CheckpointInfo) -> Result<()>,
    ) -> Result<()> {
        let mut heads = Vec::new();
        // Damage in one lineage hides no other: the rest is shown first, and then the error is the answer.
        let mut damage = Ok(());
        for lineage in catalog.lineages() {
            let lineage = match lineage {
                Ok(lineage) => lineage,
                Err(error) => {
                    damage = damage.and(Err(error));
                    continue;
                }
            };
            let mut rest = lineage.newest_first();
            match rest.next() {
                Some(Ok(next)) => heads.push((next, lineage.name().to_vec(), rest)),
                Some(Err(error)) => damage = damage.and(Err(error)),
                None => {}
            }
        }
        for _ in 0..limit {
            let newest = heads
                .iter()
                .enumerate()
                .max_by_key(|(_, (next, ..))| next.entry.time)
                .map(|(at, _)| at);
            let Some(at) = newest else { break };
            let (next, name, rest) = &mut heads[at];
            let (name, after) = (name.clone(), rest.next());
            let shown = match after {
                Some(Ok(after)) => std::mem::replace(next, after),
                Some(Err(error)) => {
                    damage = damage.and(Err(error));
                    heads.swap_remove(at).0
                }
                None => heads.swap_remove(at).0,
            };
            visit(Self::info(
                catalog,
                Found {
                    lineage: name,
                    number: shown.number,
                    entry: shown.entry,
                },
            )?)?;
        }
        damage
    }

    /// What a checkpoint left out, with reasons.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn left_out(&self, checkpoint: &CheckpointInfo) -> Result<Vec<LeftOut>> {
        self.list_of(checkpoint.record.left_out.as_ref(), decode_left_out)
    }

    /// The rules that were in force.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn rules(&self, checkpoint: &CheckpointInfo) -> Result<Vec<Rule>> {
        self.list_of(checkpoint.record.rules.as_ref(), decode_rules)
    }

    /// The options of a walk under the rules that a checkpoint was made with. Rule files are those of the work tree now.
    ///
    /// # Errors
    /// If the list of rules cannot be read.
    pub fn capture_options(&self, checkpoint: &CheckpointInfo) -> Result<CaptureOptions> {
        let mut options = CaptureOptions::default();
        options.rules.default_ignores = false;
        for rule in self.rules(checkpoint)? {
            match rule.origin.as_slice() {
                b"-default" => options.rules.default_ignores = true,
                b"-exclude" => options.rules.exclude.push(rule.rule),
                b"-option" => option_rule(&mut options, &rule.rule),
                file if file == b".gitignore" || file.ends_with(b"/.gitignore") => {
                    options.rules.gitignore = true;
                }
                _ => {}
            }
        }
        Ok(options)
    }

    fn list_of<T>(
        &self,
        id: Option<&ObjectId>,
        decode: impl Fn(&[u8]) -> crate::format::codec::Decoded<Vec<T>>,
    ) -> Result<Vec<T>> {
        let Some(id) = id else { return Ok(Vec::new()) };
        let bytes = self.base.objects.get(id, MAX_LIST_BYTES)?;
        decode(&bytes)
            .map_err(|error| Error::damaged(format!("object {id}"), Some(*id), error.to_string()))
    }

    /// The entry at a path of a checkpoint, taken literally.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none.
    pub fn entry(&self, checkpoint: &CheckpointInfo, path: &[u8]) -> Result<Entry> {
        match find_entry(&self.base.objects, &checkpoint.record.tree, path)? {
            Some(entry) => Ok(entry),
            None => Err(self.path_not_found(checkpoint, path)),
        }
    }

    /// The error for a path that a checkpoint does not have; it says why, if the path was left out.
    pub(crate) fn path_not_found(&self, checkpoint: &CheckpointInfo, path: &[u8]) -> Error {
        let short = &checkpoint.id.to_string()[..16];
        let below = |left: &LeftOut| {
            path == left.path
                || path
                    .strip_prefix(left.path.as_slice())
                    .is_some_and(|rest| rest.starts_with(b"/"))
        };
        let left = self
            .left_out(checkpoint)
            .ok()
            .and_then(|list| list.into_iter().find(below));
        let detail = match left {
            Some(left) => format!(
                "it was left out of checkpoint {short}: {} {}",
                left.reason.word(),
                crate::name::escape(&left.rule)
            ),
            None => format!("in checkpoint {short}"),
        };
        Error::not_found(Wanted::Path, crate::name::escape(path), detail)
    }

    /// Calls `visit` with the entries below a directory of a checkpoint (the empty path: its root), each with its path.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such directory; and what `visit` returns.
    pub fn list(
        &self,
        checkpoint: &CheckpointInfo,
        path: &[u8],
        recursive: bool,
        visit: &mut dyn FnMut(&[u8], &Entry) -> Result<()>,
    ) -> Result<()> {
        let tree = if path.is_empty() {
            checkpoint.record.tree
        } else {
            let entry = self.entry(checkpoint, path)?;
            match entry.node {
                Node::Directory { tree } => tree,
                _ => return visit(path, &entry),
            }
        };
        self.list_tree(tree, path.to_vec(), recursive, visit)
    }

    /// Depth first, with a stack of its own: trees may be thousands deep.
    fn list_tree(
        &self,
        tree: ObjectId,
        path: Vec<u8>,
        recursive: bool,
        visit: &mut dyn FnMut(&[u8], &Entry) -> Result<()>,
    ) -> Result<()> {
        let mut stack = vec![(
            path,
            load_tree(&self.base.objects, &tree)?.entries.into_iter(),
        )];
        while let Some((path, entries)) = stack.last_mut() {
            let Some(entry) = entries.next() else {
                stack.pop();
                continue;
            };
            let below = join(path, &entry.name);
            visit(&below, &entry)?;
            if let (Node::Directory { tree }, true) = (&entry.node, recursive) {
                if stack.len() > crate::format::tree::MAX_DEPTH {
                    return Err(Error::damaged(
                        format!("object {tree}"),
                        Some(*tree),
                        "trees nest too deep",
                    ));
                }
                let entries = load_tree(&self.base.objects, tree)?.entries.into_iter();
                stack.push((below, entries));
            }
        }
        Ok(())
    }

    /// The content of a file of a checkpoint, in pieces, each checked before it is passed on.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such file; and what `write` returns.
    pub fn cat(
        &self,
        checkpoint: &CheckpointInfo,
        path: &[u8],
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let entry = self.entry(checkpoint, path)?;
        match entry.node {
            Node::File { .. } => self.read_content(&entry, write),
            Node::Symlink { .. } => Err(not_a_file(path, "a symbolic link")),
            Node::Directory { .. } => Err(not_a_file(path, "a directory")),
        }
    }

    /// The content of a file's entry, in pieces.
    ///
    /// # Errors
    /// If it cannot be read; and what `write` returns.
    pub fn read_content(
        &self,
        entry: &Entry,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match &entry.node {
            Node::File { size, content, .. } => {
                chunker::read_content(&self.base.objects, content, *size, write)
            }
            _ => Ok(()),
        }
    }

    /// Calls `visit` with what differs between two checkpoints; equal sub-trees are not entered.
    ///
    /// # Errors
    /// If a tree cannot be read; and what `visit` returns.
    pub fn diff(
        &self,
        a: &CheckpointInfo,
        b: &CheckpointInfo,
        visit: &mut dyn FnMut(Change) -> Result<()>,
    ) -> Result<()> {
        let objects = &self.base.objects;
        changes(
            Side {
                source: objects,
                tree: Some(a.record.tree),
            },
            Side {
                source: objects,
                tree: Some(b.record.tree),
            },
            visit,
        )
    }

    /// Calls `visit` with what differs between a checkpoint and a work tree. Reads the work tree, writes nothing.
    ///
    /// # Errors
    /// If the directory cannot be walked; and what `visit` returns.
    pub fn diff_worktree(
        &self,
        a: &CheckpointInfo,
        dir: &Path,
        options: &CaptureOptions,
        visit: &mut dyn FnMut(Change) -> Result<()>,
    ) -> Result<WorktreeDiff> {
        let trees = MemoryObjects::new();
        let sink = TreesOnly(&trees);
        let bytes = super::checkpoint::cache_bytes(&self.root, &a.lineage)?;
        let cache = bytes
            .as_deref()
            .and_then(|bytes| super::checkpoint::usable_cache(&self.base, &a.lineage, bytes));
        let both = Either(&trees, &self.base.objects);
        let work_tree = worktree::Root::open_source(dir)?;
        let captured = super::checkpoint::capture_into(
            &self.root,
            &self.context,
            &work_tree,
            options,
            cache,
            &sink,
            None,
        )?;
        changes(
            Side {
                source: &self.base.objects,
                tree: Some(a.record.tree),
            },
            Side {
                source: &both,
                tree: Some(captured.root_tree),
            },
            visit,
        )?;
        Ok(WorktreeDiff {
            left_out: captured.left_out,
            complete: captured.complete,
        })
    }
}

/// Calls `visit` with every change, until it fails.
pub(crate) fn changes(
    old: Side<'_>,
    new: Side<'_>,
    visit: &mut dyn FnMut(Change) -> Result<()>,
) -> Result<()> {
    let mut outcome = Ok(());
    compare::diff(old, new, &mut |change| match visit(change) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            outcome = Err(error);
            ControlFlow::Break(())
        }
    })?;
    outcome
}

/// Keeps trees and chunk lists, hashes chunks.
struct TreesOnly<'a>(&'a MemoryObjects);

impl crate::objects::ObjectSink for TreesOnly<'_> {
    fn put(&self, bytes: &[u8], class: crate::objects::Class) -> Result<ObjectId> {
        if class == crate::objects::Class::Chunk {
            Ok(ObjectId::of(bytes))
        } else {
            self.0.put(bytes, class)
        }
    }
}

/// The first source that has an object.
pub(crate) struct Either<'a>(
    pub(crate) &'a dyn ObjectSource,
    pub(crate) &'a dyn ObjectSource,
);

impl ObjectSource for Either<'_> {
    fn get(&self, id: &ObjectId, limit: usize) -> Result<Vec<u8>> {
        if self.0.contains(id)? {
            self.0.get(id, limit)
        } else {
            self.1.get(id, limit)
        }
    }

    fn contains(&self, id: &ObjectId) -> Result<bool> {
        Ok(self.0.contains(id)? || self.1.contains(id)?)
    }
}

/// A limit of the walk, as the rules object records it.
fn option_rule(options: &mut CaptureOptions, rule: &[u8]) {
    let text = String::from_utf8_lossy(rule);
    if let Some(bytes) = text.strip_prefix("--max-file-size: ") {
        options.max_file_size = bytes.parse().ok();
    } else if text == "--one-file-system" {
        options.one_file_system = true;
    } else if text == "--gitignore" {
        options.rules.gitignore = true;
    }
}

fn not_a_file(path: &[u8], what: &str) -> Error {
    Error::invalid(
        "path",
        format!("{} is {what}, not a file", crate::name::escape(path)),
    )
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        name.to_vec()
    } else {
        [path, b"/", name].concat()
    }
}

/// Reads and decodes a tree.
pub(crate) fn load_tree(source: &dyn ObjectSource, id: &ObjectId) -> Result<Tree> {
    let bytes = source.get(id, crate::format::pack::MAX_BLOCK_BYTES as usize)?;
    Tree::decode(&bytes)
        .map_err(|error| Error::damaged(format!("object {id}"), Some(*id), error.to_string()))
}

/// The entry at a path, or `None`.
pub(crate) fn find_entry(
    source: &dyn ObjectSource,
    root: &ObjectId,
    path: &[u8],
) -> Result<Option<Entry>> {
    let mut tree = load_tree(source, root)?;
    let mut components = path.split(|byte| *byte == b'/').peekable();
    while let Some(name) = components.next() {
        let Some(entry) = tree.find(name) else {
            return Ok(None);
        };
        if components.peek().is_none() {
            return Ok(Some(entry.clone()));
        }
        let Node::Directory { tree: below } = &entry.node else {
            return Ok(None);
        };
        tree = load_tree(source, below)?;
    }
    Ok(None)
}

/// A path with its links resolved; a tail that does not exist (any more) is kept as it is.
pub(crate) fn canonical_as_far_as_possible(path: &Path) -> Result<std::path::PathBuf> {
    match disk::canonical(path) {
        Ok(path) => Ok(path),
        Err(error) if error.errno() == Some(rustix::io::Errno::NOENT) => {
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
                    Ok(canonical_as_far_as_possible(parent)?.join(name))
                }
                (_, Some(name)) => Ok(canonical_as_far_as_possible(Path::new("."))?.join(name)),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// A lineage with the state of its source. Absence is only called that when it is proven.
fn lineage_info(lineage: &LineageView<'_>) -> Result<LineageInfo> {
    let object = &lineage.lineage;
    let latest = lineage.latest()?.map(|latest| CheckpointRef {
        lineage: object.name.clone(),
        number: latest.number,
        id: latest.entry.id,
    });
    Ok(LineageInfo {
        name: object.name.clone(),
        source: object.source.clone(),
        host: object.host.clone(),
        checkpoints: lineage.count()?,
        latest,
        state: object.state.clone(),
        source_state: source_state(object),
    })
}

fn source_state(lineage: &crate::format::catalog::Lineage) -> &'static str {
    if !lineage.host.is_empty() && lineage.host != host_name().as_bytes() {
        return "other host";
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(&lineage.source));
    match disk::look_at_path_itself(path) {
        Ok(Some(facts)) if facts.kind == FileKind::Directory => return "present",
        Ok(Some(_)) | Err(_) => return "unreachable",
        Ok(None) => {}
    }
    let parent = path.parent().map(disk::look_at_path);
    match (parent, &lineage.identity) {
        (Some(Ok(Some(parent))), Some(was))
            if parent.device == was.device && parent.inode == was.inode =>
        {
            // The same parent, and it is there: unless it is an empty mount point, the source is gone.
            if path.parent().is_some_and(is_empty_mount_point) {
                "unreachable"
            } else {
                "missing"
            }
        }
        _ => "unreachable",
    }
}

fn is_empty_mount_point(path: &Path) -> bool {
    let Ok(dir) = disk::Dir::open_root(path) else {
        return true;
    };
    let (Ok(here), Some(Ok(Some(above)))) = (dir.facts(), path.parent().map(disk::look_at_path))
    else {
        return true;
    };
    here.device != above.device && dir.is_empty().unwrap_or(true)
}
