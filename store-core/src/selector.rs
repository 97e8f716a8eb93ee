//! CURRENT: reading it so that anything doubtful fails closed, and replacing it as a compare-and-swap (`docs/format.md` section 3).
//!
//! There is no fallback of any kind here, and nothing remembers an answer (I2).

use std::time::Duration;

use rustix::io::Errno;

use crate::disk::{Dir, Kind, Temporary};
use crate::format::manifest::{Manifest, ManifestError};
use crate::format::selector;
use crate::id::GenerationId;
use crate::lock::StoreLock;
use crate::root::{Context, Root};
use crate::{Error, Result, SelectorFault, layout};

/// How often a reader starts over because CURRENT moved under it. Each time is somebody else's success.
const MAX_RESTARTS: u32 = 10_000;

/// The live generation, pinned: its files stay for as long as this value lives.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) id: GenerationId,
    pub(crate) dir: Dir,
    pub(crate) manifest: Manifest,
}

/// What stands where CURRENT should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// Nothing.
    Absent,
    /// A regular file with these bytes (at most the first 4,096).
    File(Vec<u8>),
    /// Something that is not a regular file.
    Other(Kind),
}

impl Raw {
    /// What CURRENT holds when it selects `id`.
    pub(crate) fn selecting(id: &GenerationId) -> Self {
        Self::File(selector::render(id).to_vec())
    }
}

/// Reads what stands at CURRENT without following or waiting for anything.
pub(crate) fn read_raw(root: &Dir) -> Result<Raw> {
    for _ in 0..16 {
        match root.look(layout::CURRENT)? {
            None => return Ok(Raw::Absent),
            Some(facts) if facts.kind != Kind::File => return Ok(Raw::Other(facts.kind)),
            Some(_) => {}
        }
        // Between the look and the open it may be replaced: the open does not follow, and what was opened is examined.
        let file = match root.open_file(layout::CURRENT) {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.errno(),
                    Some(Errno::NOENT | Errno::LOOP | Errno::NXIO)
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        if file.facts()?.kind != Kind::File {
            continue;
        }
        let mut bytes = file.read_up_to(4096)?;
        bytes.truncate(4096);
        return Ok(Raw::File(bytes));
    }
    Err(Error::Conflict)
}

/// What CURRENT selects, by its bytes alone.
pub(crate) fn selected(raw: &Raw) -> Result<GenerationId, SelectorFault> {
    match raw {
        Raw::Absent => Err(SelectorFault::Missing),
        Raw::Other(kind) => Err(SelectorFault::NotRegular { found: kind.word() }),
        Raw::File(bytes) => {
            selector::parse(bytes).map_err(|problem| SelectorFault::Malformed { problem })
        }
    }
}

/// Resolves and pins the live generation.
///
/// # Errors
/// [`Error::Selector`] with the fault's own code when anything about it is doubtful.
pub(crate) fn resolve(root: &Root, context: &Context) -> Result<Live> {
    let mut pause = Duration::from_micros(50);
    for _ in 0..MAX_RESTARTS {
        context.cancel.check()?;
        let raw = read_raw(&root.dir)?;
        let id = selected(&raw).map_err(|fault| untrusted(root, fault))?;
        let found = open_generation(root, &id, context);
        // Only a CURRENT that still says the same makes the findings findings about the live generation.
        if read_raw(&root.dir)? != raw {
            continue;
        }
        match found {
            Ok(Some(dir)) => {
                let manifest =
                    read_manifest(&dir, &id).map_err(|error| as_untrusted(root, error))?;
                return Ok(Live { id, dir, manifest });
            }
            Ok(None) => {
                // Held exclusively although live: a reclaimer that is about to see that it is live.
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(10));
            }
            Err(error) => return Err(as_untrusted(root, error)),
        }
    }
    Err(Error::Conflict)
}

fn untrusted(root: &Root, fault: SelectorFault) -> Error {
    Error::Selector {
        store: root.dir.path().to_owned(),
        fault,
    }
}

fn as_untrusted(root: &Root, error: GenerationFault) -> Error {
    match error {
        GenerationFault::Fault(fault) => untrusted(root, fault),
        GenerationFault::Error(error) => error,
    }
}

/// Why a generation cannot be used: a fault of the generation, or a failure to find out.
#[derive(Debug)]
pub(crate) enum GenerationFault {
    Fault(SelectorFault),
    Error(Error),
}

impl From<Error> for GenerationFault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Opens and pins a generation's directory. `None`: somebody holds it exclusively.
pub(crate) fn open_generation(
    root: &Root,
    id: &GenerationId,
    context: &Context,
) -> Result<Option<Dir>, GenerationFault> {
    let name = id.to_string();
    let missing = || GenerationFault::Fault(SelectorFault::GenerationMissing { id: *id });
    let generations = match root.sub(layout::GENERATIONS) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Err(missing()),
        other => other?,
    };
    let dir = match generations.open_dir(&name) {
        Ok(dir) => dir,
        Err(error) => {
            return Err(match generations.look(&name)? {
                None => missing(),
                Some(facts) if facts.kind != Kind::Directory => {
                    GenerationFault::Fault(SelectorFault::GenerationNotDirectory {
                        id: *id,
                        found: facts.kind.word(),
                    })
                }
                Some(_) => error.into(),
            });
        }
    };
    match dir.pin() {
        Ok(true) => Ok(Some(dir)),
        Ok(false) => Ok(None),
        Err(Error::LocksUnsupported { .. }) if context.single_host => Ok(Some(dir)),
        Err(error) => Err(error.into()),
    }
}

/// Reads a generation's manifest and checks it against the generation's id before anything in it is believed.
pub(crate) fn read_manifest(dir: &Dir, id: &GenerationId) -> Result<Manifest, GenerationFault> {
    let fault = |fault| Err(GenerationFault::Fault(fault));
    let missing = SelectorFault::ManifestMissing { id: *id };
    match dir.look(layout::MANIFEST)? {
        Some(facts) if facts.kind == Kind::File => {}
        _ => return fault(missing),
    }
    let file = match dir.open_file(layout::MANIFEST) {
        Ok(file) => file,
        Err(error)
            if matches!(
                error.errno(),
                Some(Errno::NOENT | Errno::LOOP | Errno::NXIO)
            ) =>
        {
            return fault(missing);
        }
        Err(error) => return Err(error.into()),
    };
    let mismatch = |problem: String| fault(SelectorFault::ManifestMismatch { id: *id, problem });
    let bytes = file.read_up_to(layout::MAX_MANIFEST_BYTES)?;
    if bytes.len() as u64 > layout::MAX_MANIFEST_BYTES {
        return mismatch("it is longer than 16 MiB".to_owned());
    }
    if !id.matches(&bytes) {
        return mismatch("its BLAKE3 is not the one in the generation's id".to_owned());
    }
    let manifest = match Manifest::decode(&bytes) {
        Ok(manifest) => manifest,
        Err(ManifestError::Mismatch(problem)) => return mismatch(problem),
        Err(ManifestError::Unsupported(problem)) => {
            return fault(SelectorFault::ManifestUnsupported { id: *id, problem });
        }
    };
    if manifest.sequence != id.sequence() {
        return mismatch(format!("it says sequence {}", manifest.sequence));
    }
    Ok(manifest)
}

/// CURRENT's next content, written but not yet in place.
#[derive(Debug)]
pub(crate) struct NextSelector {
    temporary: Temporary,
    id: GenerationId,
}

impl NextSelector {
    /// Writes the temporary file; the caller syncs it with everything else that must be durable first.
    pub(crate) fn prepare(incoming: &Dir, id: &GenerationId) -> Result<Self> {
        let temporary = Temporary::create(incoming, "current")?;
        temporary.file().append(&selector::render(id))?;
        Ok(Self { temporary, id: *id })
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.temporary.file().sync()
    }
}

/// Replaces CURRENT, if it still holds `expected`. The one commit point (I4).
///
/// # Durability
/// Everything that `next` selects must be durable already. Once this returns `Ok`, so is the selection.
///
/// # Errors
/// - [`Error::Conflict`]: CURRENT or LOCK is not what it was; nothing changed.
/// - [`Error::FixedNameTaken`]: CURRENT is a directory; nothing changed.
/// - [`Error::PublishUncertain`]: CURRENT is replaced, but the sync after it failed.
pub(crate) fn flip(
    root: &Root,
    lock: &StoreLock,
    expected: &Raw,
    next: NextSelector,
) -> Result<()> {
    if !lock.is_still_the_lock(&root.dir)? || read_raw(&root.dir)? != *expected {
        return Err(Error::Conflict);
    }
    if *expected == Raw::Other(Kind::Directory) {
        return Err(Error::FixedNameTaken {
            path: root.dir.path_of(layout::CURRENT),
            found: Kind::Directory.word(),
            expected: Kind::File.word(),
        });
    }
    let NextSelector { temporary, id } = next;
    match temporary.move_to(&root.dir, layout::CURRENT) {
        Ok(_) => {}
        Err((_, error)) if error.errno() == Some(Errno::XDEV) => {
            // `incoming` is another mount: the temporary file goes beside CURRENT.
            let beside = Temporary::create(&root.dir, "current")?;
            beside.file().append(&selector::render(&id))?;
            beside.file().sync()?;
            beside
                .move_to(&root.dir, layout::CURRENT)
                .map_err(|(_, error)| error)?;
        }
        Err((_, error)) => return Err(error),
    }
    root.dir.sync().map_err(|error| match error {
        Error::Io { source, .. } => Error::PublishUncertain {
            generation: id,
            source,
        },
        other => other,
    })
}
