//! `init`: from an absent or empty directory to a store, surviving a kill at any point (`docs/format.md` section 3).
//!
//! LOCK comes first and carries a mark, CURRENT comes last. What a directory *is* is decided only while LOCK is held.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::catalog::{Catalog, CatalogEdit};
use crate::disk::{self, Dir, FILE_MODE, Kind, Temporary};
use crate::format::manifest::{Operation, OperationKind, Policy};
use crate::generation::{self, Draft, EpochChoice, NotPublished};
use crate::id::{GenerationId, StoreId};
use crate::lock::{INITIALISING, StoreLock};
use crate::objects::memory::MemoryObjects;
use crate::root::{Context, Root};
use crate::selector::{self, Raw};
use crate::{Error, Result, SelectorFault, layout};

use super::staging::Staging;

/// How to make a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitRequest {
    /// Record no retention rules.
    pub no_policy: bool,
    /// Allow packs to be copied, without limit, where hard links do not work.
    pub copy_packs: bool,
    /// The size that retention aims at, in bytes.
    pub max_size_bytes: Option<u64>,
}

/// A store that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitOutcome {
    /// The store's id.
    pub store: StoreId,
    /// Its first generation.
    pub generation: GenerationId,
    /// Where it is.
    pub path: PathBuf,
    /// An `init` that had been interrupted was finished.
    pub finished: bool,
    /// Whether hard links work there.
    pub links: bool,
}

/// Makes a store at `path`, or finishes one that was being made.
///
/// # Errors
/// [`Error::StoreExists`] if there is one; [`Error::NotAStore`] if the directory holds anything else.
pub(crate) fn init(path: &Path, context: &Context, request: InitRequest) -> Result<InitOutcome> {
    match disk::look_at_path(path)? {
        None => disk::make_root(path)?,
        Some(facts) if facts.kind != Kind::Directory => {
            return Err(Error::NotAStore {
                path: path.to_owned(),
                problem: format!("it is a {}", facts.kind.word()),
            });
        }
        Some(_) => {}
    }
    let dir = Dir::open_root(path)?;
    // Before LOCK is made in it: a directory with anything else in it is somebody else's.
    may_become_a_store(&dir)?;
    let root = Root { dir }.writable(context)?;
    let lock = StoreLock::acquire_for_init(&root.dir, context.wait())?;
    let finished = decide_under_lock(&root, &lock)?;
    root.dir.close_to_others()?;
    lock.mark_initialising(&context.lock_text())?;
    root.dir.sync()?;
    disk::sync_parent(path)?;
    make_fixed_names(&root)?;
    let links = probe_links(&root)?;
    let (generation, store) = publish_first(&root, &lock, context, request)?;
    lock.mark_held(&context.lock_text())?;
    Ok(InitOutcome {
        store,
        generation,
        path: path.to_owned(),
        finished,
        links,
    })
}

/// Whether what stands at `path` is an unfinished init, as far as that can be told without LOCK.
pub(crate) fn looks_unfinished(root: &Root) -> Result<bool> {
    if selector::read_raw(&root.dir)? != Raw::Absent {
        return Ok(false);
    }
    match root.dir.look(layout::LOCK)? {
        Some(facts) if facts.kind == Kind::File => {}
        _ => return Ok(false),
    }
    let text = root.dir.open_file(layout::LOCK)?.read_up_to(4096)?;
    Ok(text.is_empty() || text.starts_with(INITIALISING.as_bytes()))
}

fn may_become_a_store(dir: &Dir) -> Result<()> {
    let mut strange = Vec::new();
    let mut current = false;
    let names = dir.list()?;
    for name in &names {
        current |= name == layout::CURRENT;
        if !layout::is_fixed_name(name.as_bytes()) {
            strange.push(crate::name::escape(name.as_bytes()));
        }
    }
    if current {
        return Err(Error::StoreExists {
            path: dir.path().to_owned(),
        });
    }
    if strange.is_empty() {
        // Init makes LOCK before any other name: without it, these names are somebody else's.
        if names.is_empty() || dir.look(layout::LOCK)?.is_some() {
            return Ok(());
        }
        strange.extend(
            names
                .iter()
                .map(|name| crate::name::escape(name.as_bytes())),
        );
    }
    strange.sort();
    strange.truncate(3);
    Err(Error::NotAStore {
        path: dir.path().to_owned(),
        problem: format!("it is not empty: it holds {}", strange.join(", ")),
    })
}

/// Under LOCK: is this new, an unfinished init (true), or something that must not be touched?
fn decide_under_lock(root: &Root, lock: &StoreLock) -> Result<bool> {
    let path = || root.dir.path().to_owned();
    may_become_a_store(&root.dir)?;
    let text = lock.text()?;
    if !text.is_empty() && !text.starts_with(INITIALISING) {
        // A finished store that lost its CURRENT. Absence is damage, never "new".
        return Err(Error::Selector {
            store: path(),
            fault: SelectorFault::Missing,
        });
    }
    let not_init = |problem: &str| {
        Err(Error::NotAStore {
            path: path(),
            problem: problem.to_owned(),
        })
    };
    let mut anything = !text.is_empty();
    if root.dir.look(layout::GENERATIONS)?.is_some() {
        anything = true;
        let generations = root.sub(layout::GENERATIONS)?;
        let mut with_content = 0;
        for name in generations.list()? {
            let Some(id) = GenerationId::parse(name.as_bytes()) else {
                return not_init("its generations directory holds foreign names");
            };
            if !generation::holds_something(&generations, &id) {
                continue;
            }
            with_content += 1;
            let dir = generations.open_dir(&id.to_string())?;
            match selector::read_manifest(&dir, &id) {
                Ok(manifest) if manifest.operation.kind != OperationKind::Init => {
                    return Err(Error::Selector {
                        store: path(),
                        fault: SelectorFault::Missing,
                    });
                }
                // The process died before or while it wrote the manifest.
                Ok(_) => {}
                Err(selector::GenerationFault::Fault(SelectorFault::ManifestMissing {
                    ..
                })) if holds_only_an_init(&dir)? => {}
                Err(selector::GenerationFault::Fault(SelectorFault::ManifestMismatch {
                    ..
                })) if is_torn_manifest(&dir)? && holds_only_an_init(&dir)? => {}
                // Anything else may be a store that lost its CURRENT: damage, never "new".
                Err(selector::GenerationFault::Fault(_)) => {
                    return Err(Error::Selector {
                        store: path(),
                        fault: SelectorFault::Missing,
                    });
                }
                Err(selector::GenerationFault::Error(error)) => return Err(error),
            }
        }
        if with_content > 1 {
            return Err(Error::Selector {
                store: path(),
                fault: SelectorFault::Missing,
            });
        }
    }
    Ok(anything)
}

/// Whether a generation without a whole manifest holds no more than an init puts there: one pack with an empty catalog.
fn holds_only_an_init(dir: &Dir) -> Result<bool> {
    const MAX_INIT_BYTES: u64 = 1024;
    let mut bytes = 0;
    for name in dir.list()? {
        let Some(name) = disk::as_text(&name) else {
            return Ok(false);
        };
        if name != layout::MANIFEST {
            bytes += dir.look(name)?.map_or(0, |facts| facts.bytes);
        }
    }
    Ok(bytes <= MAX_INIT_BYTES)
}

/// Whether a manifest ends before its JSON does: it was being written. A whole one with another hash is damage.
fn is_torn_manifest(dir: &Dir) -> Result<bool> {
    let bytes = dir
        .open_file(layout::MANIFEST)?
        .read_up_to(layout::MAX_MANIFEST_BYTES)?;
    let torn =
        serde_json::from_slice::<serde_json::Value>(&bytes).is_err_and(|error| error.is_eof());
    Ok(torn)
}

fn make_fixed_names(root: &Root) -> Result<()> {
    for name in layout::DIRECTORIES {
        if !root.dir.make_dir(name)? {
            root.sub(name)?;
        }
    }
    make_file(&root.dir, layout::GITIGNORE, |file| file.append(b"*\n"))?;
    match make_file(&root.dir, layout::RESERVE, |file| {
        file.allocate(layout::RESERVE_BYTES)
    }) {
        // The reserve helps on a full disk; a disk that is full already cannot give it. A later commit makes it.
        Err(error) if error.code() == "disk_full" => {
            root.dir.unlink(layout::RESERVE)?;
            Ok(())
        }
        other => other,
    }
}

/// Makes a small fixed file. A shorter one that a kill left behind is made again.
fn make_file(dir: &Dir, name: &str, fill: impl Fn(&disk::File) -> Result<()>) -> Result<()> {
    if dir
        .look(name)?
        .is_some_and(|facts| facts.kind == Kind::File)
    {
        dir.unlink(name)?;
    }
    let made = match dir.create(name, FILE_MODE) {
        Err(error) if error.errno() == Some(Errno::EXIST) => {
            let found = dir.look(name)?.map_or("file", |facts| facts.kind.word());
            return Err(Error::FixedNameTaken {
                path: dir.path_of(name),
                found,
                expected: Kind::File.word(),
            });
        }
        other => other?,
    };
    fill(&made)?;
    made.sync()
}

/// Whether hard links work between `incoming` and a generation's place.
fn probe_links(root: &Root) -> Result<bool> {
    let incoming = root.sub(layout::INCOMING)?;
    let probe = Temporary::create(&incoming, "pack")?;
    Ok(probe.can_be_linked(&root.sub(layout::CACHE)?))
}

fn publish_first(
    root: &Root,
    lock: &StoreLock,
    context: &Context,
    request: InitRequest,
) -> Result<(GenerationId, StoreId)> {
    let incoming = root.sub(layout::INCOMING)?;
    let sequence = clean_leftovers(root, &incoming)? + 1;
    let staging = Staging::new(&incoming, None);
    let nothing = MemoryObjects::new();
    let catalog = CatalogEdit::new(&Catalog::empty(&nothing)).finish(&staging)?;
    let new_store = disk::random_nonce()?;
    let defaults = Policy::default_for_init();
    let kept_rules = if request.no_policy {
        Policy::keep_everything()
    } else {
        defaults
    };
    let policy = Policy {
        copy_packs: request.copy_packs,
        max_size_bytes: request.max_size_bytes,
        ..kept_rules
    };
    let draft = Draft {
        store: new_store,
        parent: None,
        sequence,
        epoch: EpochChoice::Begin { candidate: None },
        catalog,
        operation: Operation {
            before: None,
            counts: BTreeMap::new(),
            kind: OperationKind::Init,
            request: BTreeMap::new(),
            retry_of: None,
        },
        kept: Vec::new(),
        lost: Vec::new(),
        origin: None,
        policy: Some(policy),
        shared: Vec::new(),
        missing: Vec::new(),
        new_packs: staging.seal()?,
    };
    match generation::publish(root, lock, context, &incoming, &Raw::Absent, draft) {
        Ok((generation, _)) => Ok((generation, new_store)),
        Err(NotPublished::Failed(error)) => Err(error),
        Err(NotPublished::NeedsCopies { .. }) => Err(Error::Conflict),
    }
}

/// Empties what an interrupted init left; returns the highest sequence used.
fn clean_leftovers(root: &Root, incoming: &Dir) -> Result<u64> {
    let generations = root.sub(layout::GENERATIONS)?;
    let mut highest = 0;
    for name in generations.list()? {
        if let Some(id) = GenerationId::parse(name.as_bytes()) {
            highest = highest.max(id.sequence());
            if !generation::empty_generation(&generations, &id)? {
                return Err(Error::Conflict);
            }
        }
    }
    Ok(highest.max(generation::clean_incoming(root, incoming, None)?))
}
