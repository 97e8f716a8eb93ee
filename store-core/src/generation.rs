//! Making a generation and publishing it: the write order of `docs/format.md` and design section 4, in one function.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use crate::disk::{self, Dir, File, Kind, PUBLISHED_MODE, Temporary};
use crate::format::manifest::{
    Epoch, Kept, KeptReason, Lost, Manifest, Operation, Origin, PackEntry, PackState, Policy,
};
use crate::id::{GenerationId, ObjectId, StoreId};
use crate::lock::StoreLock;
use crate::root::{Context, Root};
use crate::selector::{self, Live, NextSelector, Raw};
use crate::{Error, Result, SelectorFault, layout};

/// How many superseded generations stay before housekeeping reclaims older ones.
const KEEP_SUPERSEDED: usize = 8;
/// How many superseded generations one commit reclaims at most.
const RECLAIM_PER_COMMIT: u64 = 2;
/// How many it tries, at most: readers may hold some.
const RECLAIM_ATTEMPTS: usize = 16;

/// A sealed pack on its way into a generation.
#[derive(Debug)]
pub(crate) struct NewPack {
    pub(crate) id: ObjectId,
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
    /// Synced already (large packs are, before LOCK is taken).
    pub(crate) synced: bool,
    /// A copy of a pack of the live generation that cannot be linked.
    pub(crate) is_copy: bool,
    pub(crate) file: Temporary,
}

/// A pack that the new generation shares with an existing one.
#[derive(Clone, Debug)]
pub(crate) struct SharedPack {
    pub(crate) entry: PackEntry,
    /// The generation that holds it; only the live one, or one that is being activated and was verified in full.
    pub(crate) from: Dir,
}

/// Whose activation the new generation descends from.
#[derive(Clone, Debug)]
pub(crate) enum EpochChoice {
    /// The same as its parent's.
    Inherit(Epoch),
    /// This very manifest begins one: an activation or init.
    Begin { candidate: Option<GenerationId> },
}

/// Everything that a new generation will be, except what is decided at the last moment (nonce, id).
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) store: StoreId,
    pub(crate) parent: Option<GenerationId>,
    pub(crate) sequence: u64,
    pub(crate) epoch: EpochChoice,
    pub(crate) catalog: ObjectId,
    pub(crate) operation: Operation,
    pub(crate) kept: Vec<Kept>,
    pub(crate) lost: Vec<Lost>,
    pub(crate) origin: Option<Origin>,
    pub(crate) policy: Option<Policy>,
    pub(crate) shared: Vec<SharedPack>,
    /// Packs known to be missing: listed, satisfying no look-up.
    pub(crate) missing: Vec<PackEntry>,
    pub(crate) new_packs: Vec<NewPack>,
}

/// Why a draft was not published.
#[derive(Debug)]
pub(crate) enum NotPublished {
    /// These packs cannot be linked here: they must be copied, outside the lock. The draft is unharmed.
    NeedsCopies {
        packs: Vec<SharedPack>,
        draft: Box<Draft>,
    },
    /// It failed; unless the error is [`Error::PublishUncertain`] the old state is live and untouched.
    Failed(Error),
}

impl From<Error> for NotPublished {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Publishes a draft: claim, directory, packs, manifest, one round of syncs, flip.
///
/// # Durability
/// Survives power loss once this returns `Ok`.
pub(crate) fn publish(
    root: &Root,
    lock: &StoreLock,
    context: &Context,
    incoming: &Dir,
    expected: &Raw,
    mut draft: Draft,
) -> Result<(GenerationId, Manifest), NotPublished> {
    let generations = root.sub(layout::GENERATIONS)?;
    // A pack that is written again may well have the id of one that was lost: the new file is the one that counts.
    let fresh: BTreeSet<ObjectId> = draft.new_packs.iter().map(|pack| pack.id).collect();
    draft.shared.retain(|pack| !fresh.contains(&pack.entry.id));
    draft.missing.retain(|pack| !fresh.contains(&pack.id));
    for _ in 0..8 {
        let manifest = compose(&draft, context)?;
        let (id, bytes) = manifest
            .seal()
            .map_err(|problem| Error::invalid("manifest", problem))?;
        // 1. The claim, so that whoever comes after a crash knows what to clean without listing every generation.
        let Some(claim) = Temporary::create_named(incoming, layout::claim_name(&id))? else {
            continue;
        };
        // 2. The directory, under its final name from the beginning.
        let made = match generations.make_dir(&id.to_string()) {
            Ok(false) => continue,
            Ok(true) => Made::open(&generations, &id),
            Err(error) => Err(error),
        };
        let made = match made {
            // An operator's `find -empty -delete` was quicker.
            Err(error) if error.errno() == Some(Errno::NOENT) && generations.is_there()? => {
                continue;
            }
            other => other?,
        };
        match made.fill(&mut draft, &bytes) {
            Ok(()) => {}
            Err(Filling::Vanished) => continue,
            Err(Filling::NeedsCopies(packs)) => {
                return Err(NotPublished::NeedsCopies {
                    packs,
                    draft: Box::new(draft),
                });
            }
            Err(Filling::Failed(error)) => return Err(NotPublished::Failed(error)),
        }
        // 5. Everything that must be durable before the flip, side by side: one wait for the disk.
        let next = NextSelector::prepare(incoming, &id)?;
        made.sync_all(&generations, &next, context.threads)?;
        // 6. The flip and one directory sync: the second wait.
        match selector::flip(root, lock, expected, next) {
            Ok(()) => made.keep(),
            Err(error @ Error::PublishUncertain { .. }) => {
                made.keep();
                return Err(NotPublished::Failed(error));
            }
            Err(error) => {
                // A rename that reports failure may have happened (network file systems): what CURRENT says decides.
                if selector::read_raw(&root.dir).is_ok_and(|raw| raw == Raw::selecting(&id)) {
                    made.keep();
                    let source = std::io::Error::other(error);
                    return Err(NotPublished::Failed(Error::PublishUncertain {
                        generation: id,
                        source,
                    }));
                }
                return Err(NotPublished::Failed(error));
            }
        }
        drop(claim);
        return Ok((id, manifest));
    }
    Err(NotPublished::Failed(Error::Conflict))
}

fn compose(draft: &Draft, context: &Context) -> Result<Manifest> {
    let nonce = disk::random_nonce()?;
    let epoch = match &draft.epoch {
        EpochChoice::Inherit(epoch) => *epoch,
        EpochChoice::Begin { candidate } => Epoch {
            candidate: *candidate,
            nonce,
        },
    };
    let new = draft.new_packs.iter().map(|pack| PackEntry {
        bytes: pack.bytes,
        id: pack.id,
        objects: pack.objects,
        state: PackState::Ok,
    });
    let mut packs: Vec<PackEntry> = draft
        .shared
        .iter()
        .map(|shared| shared.entry)
        .chain(draft.missing.iter().copied())
        .chain(new)
        .collect();
    packs.sort_by_key(|pack| pack.id);
    packs.dedup_by_key(|pack| pack.id);
    let mut kept = draft.kept.clone();
    kept.sort_by_key(|kept| kept.id);
    kept.dedup_by_key(|kept| kept.id);
    Ok(Manifest {
        catalog: draft.catalog,
        created: context.clock.now().to_rfc3339(),
        epoch,
        format: 1,
        kept,
        lost: draft.lost.clone(),
        nonce,
        operation: draft.operation.clone(),
        origin: draft.origin,
        packs,
        parent: draft.parent,
        policy: draft.policy.clone(),
        sequence: draft.sequence,
        store: draft.store,
        writer: Context::writer(),
    })
}

enum Filling {
    /// The directory was removed (an operator's `find -empty -delete`) before anything was in it.
    Vanished,
    NeedsCopies(Vec<SharedPack>),
    Failed(Error),
}

impl From<Error> for Filling {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A generation directory that is being filled. Dropping it removes its files (never the directory), unless it was kept.
struct Made {
    dir: Dir,
    names: std::cell::RefCell<Vec<String>>,
    files: std::cell::RefCell<Vec<File>>,
    kept: std::cell::Cell<bool>,
}

impl Made {
    fn open(generations: &Dir, id: &GenerationId) -> Result<Self> {
        let dir = generations.open_dir(&id.to_string())?;
        // Pinned while it is filled: a cleaner in another process must not take it for garbage.
        dir.pin().or_else(|error| {
            if matches!(error, Error::LocksUnsupported { .. }) {
                Ok(true)
            } else {
                Err(error)
            }
        })?;
        Ok(Self {
            dir,
            names: Vec::new().into(),
            files: Vec::new().into(),
            kept: false.into(),
        })
    }

    /// Steps 3 and 4: links, then new packs, then the manifest.
    fn fill(&self, draft: &mut Draft, manifest: &[u8]) -> Result<(), Filling> {
        self.link_shared(&draft.shared)?;
        let mut waiting = std::mem::take(&mut draft.new_packs).into_iter();
        while let Some(pack) = waiting.next() {
            if let Err((pack, error)) = self.move_in(pack) {
                let vanished =
                    error.errno() == Some(Errno::NOENT) && self.names.borrow().is_empty();
                draft.new_packs = std::iter::once(pack).chain(waiting).collect();
                return Err(if vanished {
                    Filling::Vanished
                } else {
                    Filling::Failed(error)
                });
            }
        }
        let file = match self.dir.create(layout::MANIFEST, PUBLISHED_MODE) {
            Err(error) if error.errno() == Some(Errno::NOENT) && self.names.borrow().is_empty() => {
                return Err(Filling::Vanished);
            }
            other => other?,
        };
        self.names.borrow_mut().push(layout::MANIFEST.to_owned());
        file.append(manifest)?;
        self.files.borrow_mut().push(file);
        Ok(())
    }

    fn link_shared(&self, shared: &[SharedPack]) -> Result<(), Filling> {
        let mut unlinkable = Vec::new();
        for (done, pack) in shared.iter().enumerate() {
            let name = layout::pack_name(&pack.entry.id);
            match pack.from.link_into(&name, &self.dir) {
                Ok(()) => self.names.borrow_mut().push(name),
                Err(error) => match error.errno() {
                    Some(Errno::MLINK) => unlinkable.push(pack.clone()),
                    // These are answers about the file system, not about one file: the rest would fail alike.
                    Some(Errno::PERM | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) => {
                        unlinkable.extend(shared[done..].iter().cloned());
                        break;
                    }
                    Some(Errno::NOENT) if done == 0 && pack.from.look(&name)?.is_some() => {
                        return Err(Filling::Vanished);
                    }
                    _ => return Err(Filling::Failed(error)),
                },
            }
        }
        if unlinkable.is_empty() {
            Ok(())
        } else {
            Err(Filling::NeedsCopies(unlinkable))
        }
    }

    #[expect(
        clippy::result_large_err,
        reason = "the pack is handed back, and this is not a hot path"
    )]
    fn move_in(&self, pack: NewPack) -> std::result::Result<(), (NewPack, Error)> {
        let name = layout::pack_name(&pack.id);
        let NewPack {
            id,
            bytes,
            objects,
            synced,
            is_copy,
            file,
        } = pack;
        let back = |file, error| {
            (
                NewPack {
                    id,
                    bytes,
                    objects,
                    synced,
                    is_copy,
                    file,
                },
                error,
            )
        };
        if let Err(error) = file.file().set_mode(PUBLISHED_MODE) {
            return Err(back(file, error));
        }
        match file.move_to(&self.dir, &name) {
            Ok(file) => {
                self.names.borrow_mut().push(name);
                if !synced {
                    self.files.borrow_mut().push(file);
                }
                Ok(())
            }
            // `incoming` is another mount: copy, hash; the sync follows with the others.
            Err((file, error)) if error.errno() == Some(Errno::XDEV) => self
                .copy_in(&name, &id, file.file())
                .map_err(|error| back(file, error)),
            Err((file, error)) => Err(back(file, error)),
        }
    }

    fn copy_in(&self, name: &str, id: &ObjectId, from: &File) -> Result<()> {
        let copy = self.dir.create(name, PUBLISHED_MODE)?;
        self.names.borrow_mut().push(name.to_owned());
        from.copy_into(&copy)?;
        check_hash(&copy, id)?;
        self.files.borrow_mut().push(copy);
        Ok(())
    }

    /// Syncs the new packs, the manifest, this directory, `generations/` and CURRENT's temporary file at the same time.
    fn sync_all(&self, generations: &Dir, next: &NextSelector, threads: usize) -> Result<()> {
        let files = self.files.borrow();
        let mut tasks: Vec<Box<dyn FnOnce() -> Result<()> + Send + '_>> = Vec::new();
        for file in files.iter() {
            tasks.push(Box::new(|| file.sync()));
        }
        let dir = &self.dir;
        tasks.push(Box::new(move || dir.sync()));
        tasks.push(Box::new(|| generations.sync()));
        tasks.push(Box::new(|| next.sync()));
        if threads == 1 {
            return tasks.into_iter().try_for_each(|sync| sync());
        }
        side_by_side(tasks)
    }

    /// Published: its files stay.
    fn keep(&self) {
        self.kept.set(true);
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.kept.get() {
            // Manifest last in, first out; best effort: what stays is claimed and goes with the next writer's cleaning.
            for name in self.names.borrow().iter().rev() {
                self.dir.unlink(name).ok();
            }
        }
    }
}

/// Runs tasks that wait for the disk at the same time; the first error wins.
pub(crate) fn side_by_side(
    mut tasks: Vec<Box<dyn FnOnce() -> Result<()> + Send + '_>>,
) -> Result<()> {
    let Some(mine) = tasks.pop() else {
        return Ok(());
    };
    std::thread::scope(|scope| {
        let mut others = Vec::new();
        for task in tasks {
            let name = std::thread::Builder::new().name("genstore-sync".to_owned());
            match name.spawn_scoped(scope, task) {
                Ok(thread) => others.push(thread),
                Err(source) => return Err(Error::io("start a thread for", "a sync", source)),
            }
        }
        let mut outcome = mine();
        for other in others {
            let other = other.join().unwrap_or(Err(Error::Conflict));
            outcome = outcome.and(other);
        }
        outcome
    })
}

/// Reads a file in full and compares its BLAKE3.
pub(crate) fn check_hash(file: &File, id: &ObjectId) -> Result<()> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let count = file.read_at(&mut buffer, offset)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        offset += count as u64;
    }
    let found = ObjectId::from(hasher.finalize());
    if found == *id {
        return Ok(());
    }
    Err(Error::damaged(
        file.path(),
        None,
        format!("its BLAKE3 is {found}, not the one in its name"),
    ))
}

/// Copies a pack into `incoming/`, hashed and synced, because it cannot be linked.
pub(crate) fn copy_pack(incoming: &Dir, pack: &SharedPack) -> Result<NewPack> {
    let from = pack.from.open_file(&layout::pack_name(&pack.entry.id))?;
    let file = Temporary::create(incoming, "pack")?;
    from.copy_into(file.file())?;
    file.file().sync()?;
    check_hash(file.file(), &pack.entry.id)?;
    Ok(NewPack {
        id: pack.entry.id,
        bytes: pack.entry.bytes,
        objects: pack.entry.objects,
        synced: true,
        is_copy: true,
        file,
    })
}

/// The packs of a generation as they are now: each one's presence and size are looked at, nothing is read.
pub(crate) fn examine_packs(dir: &Dir, manifest: &Manifest) -> Result<Vec<PackEntry>> {
    manifest
        .packs
        .iter()
        .map(|entry| {
            let found = dir.look(&layout::pack_name(&entry.id))?;
            let state = match found {
                Some(facts) if facts.kind == Kind::File && facts.bytes == entry.bytes => {
                    PackState::Ok
                }
                Some(facts) if facts.kind == Kind::File => PackState::Damaged,
                _ => PackState::Missing,
            };
            // What was found wrong once stays wrong until `maintain` drops it, even if a file of the right size is back.
            let state = if entry.state == PackState::Ok {
                state
            } else {
                entry.state
            };
            Ok(PackEntry { state, ..*entry })
        })
        .collect()
}

/// The superseded generations that are still held, now that `live` is superseded too.
///
/// A generation leaves the list only when its directory is empty or gone; whatever cannot be found out is kept.
pub(crate) fn kept_after(
    root: &Root,
    live: &Live,
    reason: KeptReason,
    now: &str,
) -> Result<Vec<Kept>> {
    let generations = root.sub(layout::GENERATIONS)?;
    let mut kept: Vec<Kept> = live
        .manifest
        .kept
        .iter()
        .filter(|kept| holds_something(&generations, &kept.id))
        .map(|kept| Kept {
            reason: reason_now(kept, now),
            ..kept.clone()
        })
        .collect();
    kept.push(Kept {
        id: live.id,
        reason,
        since: now.to_owned(),
    });
    Ok(kept)
}

/// The state before an undo or an activation is held for 24 hours, then it is superseded like any other.
fn reason_now(kept: &Kept, now: &str) -> KeptReason {
    let parse = |text: &str| text.parse::<jiff::Timestamp>().ok();
    match (kept.reason, parse(&kept.since), parse(now)) {
        (KeptReason::Before, Some(since), Some(now))
            if now.duration_since(since).as_hours() >= 24 =>
        {
            KeptReason::Plain
        }
        (reason, ..) => reason,
    }
}

/// Whether a generation's directory holds anything; "cannot be found out" counts as yes.
pub(crate) fn holds_something(generations: &Dir, id: &GenerationId) -> bool {
    match generations.open_dir(&id.to_string()) {
        Ok(dir) => !dir.is_empty().is_ok_and(|empty| empty),
        Err(error) => error.errno() != Some(Errno::NOENT),
    }
}

/// Removes what crashed writers left in `incoming/`. Only under LOCK. Returns the highest sequence that a claim named.
pub(crate) fn clean_incoming(root: &Root, incoming: &Dir, live: Option<&Live>) -> Result<u64> {
    let mut highest = 0;
    for name in incoming.list()? {
        let claimed = layout::parse_claim_name(name.as_bytes());
        if let Some(id) = claimed {
            highest = highest.max(id.sequence());
        }
        if claimed.is_some() || layout::is_any_temporary(name.as_bytes()) {
            clean_one(root, incoming, &name, claimed, live)?;
        }
    }
    Ok(highest)
}

fn clean_one(
    root: &Root,
    incoming: &Dir,
    name: &OsString,
    claimed: Option<GenerationId>,
    live: Option<&Live>,
) -> Result<()> {
    let Some(name) = disk::as_text(name) else {
        return Ok(());
    };
    let Ok(file) = incoming.open_file(name) else {
        return Ok(());
    };
    let mine = file.facts()?;
    // A directory of such a name is foreign: reported by status, and never touched.
    if mine.kind != Kind::File || !file.try_lock_exclusive()? {
        return Ok(());
    }
    if !incoming
        .look(name)?
        .is_some_and(|there| there.same_inode(&mine))
    {
        return Ok(());
    }
    if let Some(id) = claimed {
        // Without a trusted state nobody can say what was published: then a claimed generation is kept.
        let known =
            |live: &Live| live.id == id || live.manifest.kept.iter().any(|kept| kept.id == id);
        if live.is_some_and(|live| !known(live)) {
            let generations = root.sub(layout::GENERATIONS)?;
            if !empty_generation(&generations, &id)? {
                return Ok(());
            }
        }
    }
    incoming.unlink(name)?;
    Ok(())
}

/// Unlinks our files of a generation that is not live: manifest first and synced (the mark), then the packs.
/// `false`: somebody has it pinned, or it could not be opened; nothing was changed. The directory stays.
pub(crate) fn empty_generation(generations: &Dir, id: &GenerationId) -> Result<bool> {
    let dir = match generations.open_dir(&id.to_string()) {
        Ok(dir) => dir,
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(true),
        Err(_) => return Ok(false),
    };
    match dir.try_lock_exclusive() {
        Ok(true) => {}
        // Without locks nobody can prove that no reader is there.
        Ok(false) | Err(Error::LocksUnsupported { .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    if dir.unlink(layout::MANIFEST)? {
        dir.sync()?;
    }
    for name in dir.list()? {
        let Some(text) = disk::as_text(&name) else {
            continue;
        };
        let ours =
            text == layout::REPAIR_RECEIPT || layout::parse_pack_name(text.as_bytes()).is_some();
        if ours
            && dir
                .look(text)?
                .is_some_and(|facts| facts.kind != Kind::Directory)
        {
            dir.unlink(text)?;
        }
    }
    Ok(true)
}

/// Reclaims at most two superseded generations beyond the newest eight. Only under LOCK, only after a durable commit.
pub(crate) fn reclaim_step(root: &Root, live: &Manifest) -> Result<u64> {
    let plain: Vec<&Kept> = live
        .kept
        .iter()
        .filter(|kept| kept.reason == KeptReason::Plain)
        .collect();
    let beyond = plain.len().saturating_sub(KEEP_SUPERSEDED);
    let generations = root.sub(layout::GENERATIONS)?;
    let mut reclaimed = 0;
    // One that a reader pins is passed over, so that a few long readers do not stop all reclaiming.
    for kept in plain[..beyond].iter().take(RECLAIM_ATTEMPTS) {
        if empty_generation(&generations, &kept.id)? {
            reclaimed += 1;
        }
        if reclaimed == RECLAIM_PER_COMMIT {
            break;
        }
    }
    Ok(reclaimed)
}

/// Once after each boot: lists `generations/` for what a power loss left without a claim.
///
/// A directory without a valid manifest was never published: its files go. One with a valid manifest that no list
/// names may have been acknowledged to somebody: it is returned, to be kept as evidence (unknown means kept).
pub(crate) fn scan_after_boot(root: &Root, live: &Live, now: &str) -> Result<Vec<Kept>> {
    let generations = root.sub(layout::GENERATIONS)?;
    let known: BTreeSet<GenerationId> = live
        .manifest
        .kept
        .iter()
        .map(|kept| kept.id)
        .chain(std::iter::once(live.id))
        .collect();
    let mut found = Vec::new();
    for name in generations.list()? {
        let Some(id) = GenerationId::parse(name.as_bytes()) else {
            continue;
        };
        if known.contains(&id) || !holds_something(&generations, &id) {
            continue;
        }
        let Ok(dir) = generations.open_dir(&id.to_string()) else {
            continue;
        };
        match selector::read_manifest(&dir, &id) {
            Ok(_)
            | Err(
                selector::GenerationFault::Error(_)
                | selector::GenerationFault::Fault(SelectorFault::ManifestUnsupported { .. }),
            ) => {
                found.push(Kept {
                    id,
                    reason: KeptReason::Evidence,
                    since: now.to_owned(),
                });
            }
            Err(selector::GenerationFault::Fault(_)) => {
                drop(dir);
                empty_generation(&generations, &id)?;
            }
        }
    }
    Ok(found)
}
