//! Takes one operation after the other to a real store in a directory of its own, and to the model.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use store_core::clock::{Clock, SystemClock, Time};
use store_core::format::catalog::CheckpointRef;
use store_core::format::checkpoint::{Actor, Role};
use store_core::id::GenerationId;
use store_core::progress::{Phase, Progress};
use store_core::{Error, InitRequest, Store, StoreOptions, VerifyTarget, View};

use super::call::{Answer, Call, Request};
use super::catalog::Lineage;
use super::check;
use super::operation::{Ask, At, Meanwhile, Operation};
use super::state::{Model, same};
use super::tree::WorkTree;

/// How many operations are refused because of a broken CURRENT before somebody mends it.
const PATIENCE: u32 = 3;
/// A clock behind every file: nothing that `stat` says is trusted.
const DISTRUSTING: i64 = 1_000_000_000;
/// A clock far ahead of every file: the stat cache is used.
const TRUSTING: i64 = 4_000_000_000;

/// Makes the options under which stores are opened.
pub type Options = dyn Fn() -> StoreOptions + Sync;

/// A clock that stands still until it is told to go on.
#[derive(Debug, Default)]
struct ModelClock(AtomicI64);

impl Clock for ModelClock {
    fn now(&self) -> Time {
        Time {
            seconds: self.0.load(Ordering::Relaxed),
            nanoseconds: 0,
        }
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

/// Asks the store something as soon as another operation on it has begun.
struct Interruption {
    at: Phase,
    store: Store,
    call: Mutex<Option<Call>>,
    answer: Mutex<Option<Result<Answer, Error>>>,
}

impl Progress for Interruption {
    fn begin(&self, phase: Phase, _total: Option<u64>) {
        if phase != self.at {
            return;
        }
        let call = self
            .call
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(call) = call {
            let answer = call.run(&self.store);
            *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        }
    }
}

/// A directory that goes when this does.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = scratch_place().join(format!("genstore-model-{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        // The store records canonical paths.
        Ok(Self(path.canonicalize()?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Memory where there is such a file system, unless the caller names a place: syncs are not what is tested here.
fn scratch_place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if std::env::var_os("TMPDIR").is_none() && memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// A store, two trees, and what must be in them.
pub struct Driver<'o> {
    options: &'o Options,
    clock: Arc<ModelClock>,
    store: Store,
    model: Model,
    trees: Vec<WorkTree>,
    views: Vec<View>,
    /// A path that a planted fault made, and what stood at CURRENT.
    planted: Option<PathBuf>,
    good: Vec<u8>,
    refused: u32,
    checkpoints: u64,
    // Last, so that it goes last.
    scratch: Scratch,
}

type Outcome = Result<(), String>;

fn io(error: std::io::Error) -> String {
    format!("BUG: the test's own files: {error}")
}

impl<'o> Driver<'o> {
    /// A new store and two empty trees.
    pub fn new(options: &'o Options) -> Result<Self, String> {
        let scratch = Scratch::new().map_err(io)?;
        let trees = ["one", "two"].map(|name| WorkTree::new(scratch.0.join(name)).map_err(io));
        let trees: Vec<WorkTree> = trees.into_iter().collect::<Result<_, _>>()?;
        let clock = Arc::new(ModelClock(TRUSTING.into()));
        let path = scratch.0.join("store");
        let open = || {
            options()
                .threads(1)
                .clock(Arc::clone(&clock) as Arc<dyn Clock>)
        };
        let made = open()
            .init(&path, InitRequest::default())
            .map_err(check::failed("init"))?;
        let store = open().open(&path).map_err(check::failed("open"))?;
        let sources = trees.iter().map(|tree| tree.path.clone()).collect();
        let model = Model::new(made.generation, sources, clock.now());
        Ok(Self {
            options,
            clock,
            store,
            model,
            trees,
            views: Vec::new(),
            planted: None,
            good: Vec::new(),
            refused: 0,
            checkpoints: 0,
            scratch,
        })
    }

    /// How many checkpoints were made.
    pub const fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    fn open(&self) -> StoreOptions {
        (self.options)()
            .threads(1)
            .clock(Arc::clone(&self.clock) as Arc<dyn Clock>)
    }

    fn tree(&mut self, choice: u8) -> &mut WorkTree {
        let count = self.trees.len();
        &mut self.trees[usize::from(choice) % count]
    }

    /// Does one operation and compares store and model.
    pub fn step(&mut self, operation: &Operation) -> Outcome {
        if let Some(edited) = self.edit(operation) {
            return edited.map_err(io);
        }
        if self.model.fault.is_some() && self.refused >= PATIENCE {
            self.mend(0, false)?;
        }
        self.store_step(operation)
    }

    /// Changes of the trees; `None`: the operation is none.
    fn edit(&mut self, operation: &Operation) -> Option<std::io::Result<()>> {
        Some(match *operation {
            Operation::Write {
                tree,
                path,
                content,
                mtime,
            } => self.tree(tree).write(path, content, mtime),
            Operation::Remove { tree, path } => self.tree(tree).remove(path),
            Operation::MakeDirectory { tree, path } => self.tree(tree).make_directory(path),
            Operation::Link { tree, path, target } => self.tree(tree).link(path, target),
            Operation::ChangeMode { tree, path, mode } => self.tree(tree).change_mode(path, mode),
            Operation::Move { tree, from, to } => self.tree(tree).rename(from, to),
            Operation::Touch { tree, path, mtime } => self.tree(tree).touch(path, mtime),
            _ => return None,
        })
    }

    fn store_step(&mut self, operation: &Operation) -> Outcome {
        match *operation {
            Operation::Checkpoint { ask, meanwhile } => {
                let call = Call::Checkpoint(self.request(&ask));
                self.call(
                    &call,
                    meanwhile.and_then(|other| self.meanwhile(other)),
                    Phase::Capture,
                )
            }
            Operation::Activate {
                generation,
                leave_behind,
                meanwhile,
            } => {
                let generation = self.generation(generation);
                let call = Call::Activate {
                    generation,
                    directory: None,
                    leave_behind,
                    replace: false,
                };
                let other = meanwhile.map(|tree| Call::Checkpoint(self.request(&Ask::plain(tree))));
                self.call(&call, other, Phase::Verify)
            }
            Operation::ActivateCopy {
                generation,
                leave_behind,
            } => self.activate_copy(generation, leave_behind),
            Operation::Break { fault, generation } => self.break_current(fault, generation),
            Operation::Mend {
                generation,
                by_hand,
            } => self.mend(generation, by_hand),
            Operation::Reopen { trusting } => self.reopen(trusting),
            Operation::Hold { generation } => self.hold(generation),
            Operation::Release => self.release(),
            Operation::Wait { hours } => self.wait(hours),
            Operation::Look { generation } => {
                check::past(&self.store, &self.model, &self.generation(generation))
            }
            Operation::Contents => self.contents(),
            Operation::Verify => self.verify(),
            Operation::Status => check::status(&self.store, &self.model, &self.sources()),
            Operation::DropCache => self.drop_cache(),
            Operation::DropHusks => self.drop_husks(),
            _ => match self.plain_call(operation) {
                Some(call) => self.call(&call, None, Phase::Capture),
                None => Ok(()),
            },
        }
    }

    /// Calls that need nothing but their arguments; `None` if there is nothing that they could be about.
    fn plain_call(&self, operation: &Operation) -> Option<Call> {
        Some(match *operation {
            Operation::Tag { at, tag, move_it } => Call::Tag {
                at: self.at(at)?,
                tag: tag_name(tag),
                move_it,
            },
            Operation::Untag { lineage, tag } => Call::Untag {
                lineage: self.lineage(lineage)?,
                tag: tag_name(tag),
            },
            Operation::Pin { at, value } => Call::Pin {
                at: self.at(at)?,
                value,
            },
            Operation::Note { at, note } => Call::Note {
                at: self.at(at)?,
                note: note_text(note),
            },
            Operation::Archive {
                lineage,
                value: true,
            } => Call::Archive {
                lineage: self.lineage(lineage)?,
                reason: "old".to_owned(),
            },
            Operation::Archive {
                lineage,
                value: false,
            } => Call::Unarchive {
                lineage: self.lineage(lineage)?,
            },
            Operation::Rename { lineage, to } => Call::Rename {
                from: self.lineage(lineage)?,
                to: lineage_name(to),
            },
            Operation::Undo { here, leave_behind } => {
                let here = here.and_then(|here| self.lineage(here));
                Call::Undo {
                    named: None,
                    here,
                    leave_behind,
                }
            }
            Operation::UndoNamed {
                generation,
                leave_behind,
            } => Call::Undo {
                named: Some(self.generation(generation)),
                here: None,
                leave_behind,
            },
            _ => return None,
        })
    }

    /// Somebody else's call, as far as there is something that it could be about.
    fn meanwhile(&self, other: Meanwhile) -> Option<Call> {
        Some(match other {
            Meanwhile::Checkpoint { tree } => Call::Checkpoint(self.request(&Ask::plain(tree))),
            Meanwhile::Undo => Call::Undo {
                named: None,
                here: None,
                leave_behind: true,
            },
            Meanwhile::Tag { at, tag } => Call::Tag {
                at: self.at(at)?,
                tag: tag_name(tag),
                move_it: true,
            },
            Meanwhile::Activate { generation } => {
                let generation = self.generation(generation);
                Call::Activate {
                    generation,
                    directory: None,
                    leave_behind: true,
                    replace: false,
                }
            }
        })
    }

    /// Asks the store, with somebody else's call in the middle, and compares everything.
    fn call(&mut self, call: &Call, other: Option<Call>, at: Phase) -> Outcome {
        let base = self.model.live;
        let answer = match other {
            None => call.run(&self.store),
            Some(other) => {
                let interruption = Arc::new(Interruption {
                    at,
                    store: self.store.clone(),
                    call: Mutex::new(Some(other.clone())),
                    answer: Mutex::default(),
                });
                let progress = Arc::clone(&interruption) as Arc<dyn Progress>;
                let interrupted = self.open().progress(progress).open(self.store.path());
                let answer = call.run(&interrupted.map_err(check::failed("open"))?);
                let other_answer = interruption
                    .answer
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                if let Some(other_answer) = other_answer {
                    self.settle_meanwhile(call, &other, &other_answer)
                        .map_err(|problem| format!("meanwhile, {other:?}: {problem}"))?;
                }
                answer
            }
        };
        self.settle(call, &base, &answer)
            .map_err(|problem| format!("{call:?}: {problem}"))?;
        // What the answer holds (a pin, work that can wait) is done with before anything else is looked at.
        drop(answer);
        if self.model.live == base {
            check::unmoved(&self.store, &self.model)
        } else {
            check::live(&self.store, &self.model)
        }
    }

    /// What somebody else did while `call` was on its way, with the generation pinned that it is to make live.
    fn settle_meanwhile(
        &mut self,
        call: &Call,
        other: &Call,
        answer: &Result<Answer, Error>,
    ) -> Outcome {
        let pinned = match call {
            Call::Activate {
                generation,
                directory: None,
                ..
            } => Some(*generation),
            _ => None,
        };
        let held = self.model.held.len();
        self.model.held.extend(pinned);
        let settled = self.settle(other, &self.model.live.clone(), answer);
        self.model.held.truncate(held);
        settled
    }

    fn settle(
        &mut self,
        call: &Call,
        base: &GenerationId,
        answer: &Result<Answer, Error>,
    ) -> Outcome {
        self.refused += u32::from(self.model.fault.is_some());
        self.checkpoints +=
            u64::from(matches!(answer, Ok(Answer::Checkpointed(done)) if done.created));
        let planned = self.model.plan(call, base);
        self.model.settle(planned, answer)
    }

    fn request(&self, ask: &Ask) -> Request {
        let tree = usize::from(ask.tree) % self.trees.len();
        Request {
            tree,
            source: self.trees[tree].path.clone(),
            state: Arc::new(self.trees[tree].root.clone()),
            lineage: ask.lineage.map(lineage_name),
            role: [Role::None, Role::None, Role::Before, Role::After][usize::from(ask.role % 4)],
            actor: [Actor::None, Actor::None, Actor::Agent, Actor::Person]
                [usize::from(ask.actor % 4)],
            force: ask.force,
            tag: ask.tag.map(tag_name),
            key: ask.key.map(|key| vec![b'k', key % 3]),
            message: format!("message {}", self.checkpoints),
        }
    }

    fn sources(&self) -> Vec<PathBuf> {
        self.trees.iter().map(|tree| tree.path.clone()).collect()
    }

    fn lineage_at(&self, choice: u8) -> Option<(&Vec<u8>, &Lineage)> {
        let lineages = &self.model.current().catalog.lineages;
        lineages
            .iter()
            .nth(usize::from(choice) % lineages.len().max(1))
    }

    fn lineage(&self, choice: u8) -> Option<Vec<u8>> {
        self.lineage_at(choice).map(|(name, _)| name.clone())
    }

    fn at(&self, at: At) -> Option<CheckpointRef> {
        let (name, lineage) = self.lineage_at(at.lineage)?;
        let place = usize::from(at.checkpoint) % lineage.checkpoints.len().max(1);
        let (number, entry) = lineage.checkpoints.iter().nth(place)?;
        Some(CheckpointRef {
            lineage: name.clone(),
            number: *number,
            id: entry.id,
        })
    }

    /// A generation, most often a recent one.
    fn generation(&self, choice: u8) -> GenerationId {
        let count = self.model.generations.len();
        let place = usize::from(choice) % count.min(if choice < 128 { 6 } else { 64 });
        *self
            .model
            .generations
            .keys()
            .rev()
            .nth(place)
            .unwrap_or(&self.model.live)
    }

    fn directory_of(&self, id: &GenerationId) -> PathBuf {
        self.store.path().join("generations").join(id.to_string())
    }

    fn activate_copy(&mut self, choice: u8, leave_behind: bool) -> Outcome {
        let generation = self.generation(choice);
        if self.model.generation(&generation).is_err() {
            return Ok(());
        }
        let directory = self.scratch.0.join("candidate");
        fs::remove_dir_all(&directory).ok();
        fs::create_dir(&directory).map_err(io)?;
        for file in fs::read_dir(self.directory_of(&generation)).map_err(io)? {
            let file = file.map_err(io)?;
            fs::copy(file.path(), directory.join(file.file_name())).map_err(io)?;
        }
        let call = Call::Activate {
            generation,
            directory: Some(directory),
            leave_behind,
            replace: false,
        };
        self.call(&call, None, Phase::Copy)
    }

    /// Breaks CURRENT, or makes it name something broken. No generation is harmed.
    fn break_current(&mut self, fault: u8, choice: u8) -> Outcome {
        if self.model.fault.is_some() {
            return Ok(());
        }
        let current = self.store.path().join("CURRENT");
        self.good = fs::read(&current).map_err(io)?;
        self.refused = 0;
        fs::remove_file(&current).map_err(io)?;
        let code = self.plant(fault, choice, &current).map_err(io)?;
        self.model.fault = Some(code);
        self.model.blocked = current.symlink_metadata().is_ok_and(|found| found.is_dir());
        check::live(&self.store, &self.model)
    }

    fn plant(&mut self, fault: u8, choice: u8, current: &Path) -> std::io::Result<&'static str> {
        let other = self.generation(choice).to_string();
        let malformed: [Vec<u8>; 6] = [
            Vec::new(),
            self.good[..47].to_vec(),
            [&self.good[..], b"\n"].concat(),
            self.good.to_ascii_uppercase(),
            [&self.good[..47], b"\r\n"].concat(),
            [b"\xef\xbb\xbf", &self.good[..]].concat(),
        ];
        match fault % 16 {
            0 => return Ok("selector_missing"),
            1 => std::os::unix::fs::symlink(format!("generations/{other}"), current)?,
            2 => std::os::unix::fs::symlink("generations/nowhere", current)?,
            3 => fs::create_dir(current)?,
            4 => rustix::fs::mknodat(
                rustix::fs::CWD,
                current,
                rustix::fs::FileType::Fifo,
                0o600.into(),
                0,
            )?,
            choice @ 5..=10 => {
                fs::write(current, &malformed[usize::from(choice - 5)])?;
                return Ok("selector_malformed");
            }
            choice => return self.name_something_broken(choice, current),
        }
        Ok("selector_not_regular")
    }

    /// CURRENT is well-formed, and what it names is not a generation.
    fn name_something_broken(
        &mut self,
        choice: u8,
        current: &Path,
    ) -> std::io::Result<&'static str> {
        let manifest: &[u8] = br#"{"format":2}"#;
        let id = GenerationId::of_manifest(4_000_000_000, manifest)
            .map(|id| id.to_string())
            .unwrap_or_default();
        fs::write(current, format!("{id}\n"))?;
        let place = self.store.path().join("generations").join(&id);
        if choice == 11 {
            return Ok("generation_missing");
        }
        self.planted = Some(place.clone());
        if choice == 12 {
            fs::write(&place, "")?;
            return Ok("generation_not_directory");
        }
        fs::create_dir(&place)?;
        match choice {
            13 => return Ok("manifest_missing"),
            14 => fs::write(place.join("manifest.json"), br#"{"format":1}"#)?,
            _ => {
                fs::write(place.join("manifest.json"), manifest)?;
                return Ok("manifest_unsupported");
            }
        }
        Ok("manifest_mismatch")
    }

    /// What an operator does about it: clears the way, then activates a generation, or puts the bytes back.
    fn mend(&mut self, choice: u8, by_hand: bool) -> Outcome {
        if self.model.fault.is_none() {
            return Ok(());
        }
        let current = self.store.path().join("CURRENT");
        if let Some(planted) = self.planted.take() {
            fs::remove_dir_all(&planted)
                .or_else(|_| fs::remove_file(&planted))
                .map_err(io)?;
        }
        if self.model.blocked {
            let generation = self.model.live;
            self.call(
                &Call::Activate {
                    generation,
                    directory: None,
                    leave_behind: true,
                    replace: true,
                },
                None,
                Phase::Verify,
            )?;
            fs::remove_dir(&current).map_err(io)?;
            (self.model.blocked, self.model.fault) = (false, Some("selector_missing"));
            check::live(&self.store, &self.model)?;
        }
        if by_hand {
            fs::remove_file(&current).ok();
            fs::write(&current, &self.good).map_err(io)?;
            self.model.fault = None;
            return check::live(&self.store, &self.model);
        }
        let mut generation = self.generation(choice);
        if self.model.generation(&generation).is_err() {
            generation = self.model.live;
        }
        // With the planted generation gone, the fault may be another one; what it is does not matter any more.
        let call = Call::Activate {
            generation,
            directory: None,
            leave_behind: false,
            replace: true,
        };
        self.call(&call, None, Phase::Verify)
    }

    fn reopen(&mut self, trusting: bool) -> Outcome {
        let base = if trusting { TRUSTING } else { DISTRUSTING };
        self.set_clock(base);
        self.store = self
            .open()
            .open(self.store.path())
            .map_err(check::failed("open"))?;
        check::live(&self.store, &self.model)
    }

    fn set_clock(&mut self, seconds: i64) {
        self.clock.0.store(seconds, Ordering::Relaxed);
        self.model.now = self.clock.now();
    }

    fn wait(&mut self, hours: u8) -> Outcome {
        let hours = if hours < 200 {
            i64::from(hours % 8)
        } else {
            25
        };
        self.set_clock(self.model.now.seconds + hours * 3600);
        Ok(())
    }

    fn hold(&mut self, choice: u8) -> Outcome {
        let id = self.generation(choice);
        if self.model.generation(&id).is_ok() && self.views.len() < 3 {
            self.views.push(
                self.store
                    .view_generation(&id)
                    .map_err(check::failed("view"))?,
            );
            self.model.held.push(id);
        }
        Ok(())
    }

    /// A reader that is done: all that it pinned was still there.
    fn release(&mut self) -> Outcome {
        if self.views.is_empty() {
            return Ok(());
        }
        let view = self.views.remove(0);
        let id = self.model.held.remove(0);
        same("a pinned generation", &view.generation(), &id)?;
        let expected = self.model.generation(&id)?;
        check::generation(&view, &self.model, expected)?;
        check::contents(&view, &self.model, &expected.catalog)
    }

    fn contents(&self) -> Outcome {
        if self.model.fault.is_some() {
            return Ok(());
        }
        let view = self.store.view().map_err(check::failed("view"))?;
        check::contents(&view, &self.model, &self.model.current().catalog)
    }

    fn verify(&self) -> Outcome {
        match self.model.fault {
            None => check::verify(&self.store, &VerifyTarget::Live),
            Some(fault) => {
                let code = self
                    .store
                    .verify(&VerifyTarget::Live, false)
                    .err()
                    .map(|error| error.code());
                same("verify of what cannot be trusted", &code, &Some(fault))?;
                check::verify(&self.store, &VerifyTarget::Generation(self.model.live))
            }
        }
    }

    fn drop_cache(&mut self) -> Outcome {
        for file in fs::read_dir(self.store.path().join("cache")).map_err(io)? {
            fs::remove_file(file.map_err(io)?.path()).map_err(io)?;
        }
        Ok(())
    }

    fn drop_husks(&mut self) -> Outcome {
        for (id, generation) in &self.model.generations {
            if generation.reclaimed {
                // It may be gone already.
                fs::remove_dir(self.directory_of(id)).ok();
            }
        }
        Ok(())
    }

    /// The end of a sequence: readers let go, CURRENT is mended, and everything is read and verified.
    pub fn finish(&mut self) -> Outcome {
        while !self.views.is_empty() {
            self.release()?;
        }
        self.mend(0, false)?;
        check::live(&self.store, &self.model)?;
        if self.checkpoints.is_multiple_of(4) {
            check::status(&self.store, &self.model, &self.sources())?;
        }
        self.contents()?;
        self.verify()?;
        let left = fs::read_dir(self.store.path().join("incoming"))
            .map_err(io)?
            .count();
        same("files left in incoming", &left, &0)
    }
}

impl Ask {
    /// A checkpoint of a tree with nothing special about it.
    const fn plain(tree: u8) -> Self {
        Self {
            tree,
            lineage: None,
            role: 0,
            actor: 0,
            force: false,
            tag: None,
            key: None,
        }
    }
}

fn tag_name(choice: u8) -> String {
    ["good", "v1", "Überholt"][usize::from(choice % 3)].to_owned()
}

fn lineage_name(choice: u8) -> Vec<u8> {
    [&b"alpha"[..], b"beta\xff", b"gamma delta"][usize::from(choice % 3)].to_vec()
}

fn note_text(choice: u8) -> Vec<u8> {
    match choice % 3 {
        0 => Vec::new(),
        choice => vec![choice; usize::from(choice) * 40],
    }
}
