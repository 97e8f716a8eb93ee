//! LOCK: one publisher at a time (`docs/format.md` section 3).
//!
//! The operating system holds the lock, not the file's existence: it goes with its process, and nothing ever has to be
//! unlocked by hand. The file is never replaced; its text is for people.

use std::time::Duration;

use crate::clock::Clock;
use crate::disk::{Dir, File, Kind};
use crate::progress::Cancel;
use crate::{Error, Result, layout};

/// What begins LOCK's text while `init` has not finished.
pub(crate) const INITIALISING: &str = "initialising ";
const HELD: &str = "held ";

/// How long to wait, and on which clock.
#[derive(Clone, Copy)]
pub(crate) struct Wait<'a> {
    pub(crate) limit: Duration,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) cancel: &'a Cancel,
}

/// The exclusive right to publish in one store. Released when dropped.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
}

impl StoreLock {
    /// Waits for LOCK and describes the holder in it.
    ///
    /// # Errors
    /// [`Error::StoreBusy`] with the holder's description when the wait is over; the lock is never skipped or broken.
    pub(crate) fn acquire(root: &Dir, wait: Wait<'_>, description: &str) -> Result<Self> {
        let lock = Self::take(root, wait, false)?;
        lock.describe(HELD, description)?;
        Ok(lock)
    }

    /// Waits for LOCK without changing its text, making the file if it is not there: `init` decides on the text.
    pub(crate) fn acquire_for_init(root: &Dir, wait: Wait<'_>) -> Result<Self> {
        Self::take(root, wait, true)
    }

    fn take(root: &Dir, wait: Wait<'_>, make: bool) -> Result<Self> {
        let started = wait.clock.monotonic();
        let mut pause = Duration::from_millis(1);
        loop {
            wait.cancel.check()?;
            let file = open(root, make)?;
            if file.try_lock_exclusive()? {
                let lock = Self { file };
                if lock.is_still_the_lock(root)? {
                    return Ok(lock);
                }
                // Somebody replaced the file by hand between the open and the lock: the name decides.
                continue;
            }
            let waited = wait.clock.monotonic().saturating_sub(started);
            if waited >= wait.limit {
                return Err(Error::StoreBusy {
                    holder: holder(&file),
                    waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                });
            }
            std::thread::sleep(pause.min(wait.limit.saturating_sub(waited)));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Whether the name LOCK is still the inode that is held.
    pub(crate) fn is_still_the_lock(&self, root: &Dir) -> Result<bool> {
        let held = self.file.facts()?;
        Ok(root
            .look(layout::LOCK)?
            .is_some_and(|there| there.same_inode(&held)))
    }

    /// What LOCK said when it was taken.
    pub(crate) fn text(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.file.read_up_to(4096)?).into_owned())
    }

    /// Marks an unfinished `init`, durably.
    pub(crate) fn mark_initialising(&self, description: &str) -> Result<()> {
        self.file.set_mode(crate::disk::FILE_MODE)?;
        self.describe(INITIALISING, description)?;
        self.file.sync()
    }

    /// Replaces the mark of an unfinished `init`.
    pub(crate) fn mark_held(&self, description: &str) -> Result<()> {
        self.describe(HELD, description)
    }

    fn describe(&self, state: &str, description: &str) -> Result<()> {
        match self
            .file
            .rewrite(format!("{state}{description}\n").as_bytes())
        {
            // The text is for people: a full disk must not stop whoever wants to free space.
            Err(error) if error.code() == "disk_full" => Ok(()),
            other => other,
        }
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        self.file.unlock();
    }
}

fn open(root: &Dir, make: bool) -> Result<File> {
    let opened = if make {
        root.open_or_make_file(layout::LOCK)
    } else {
        root.open_file_to_lock(layout::LOCK)
    };
    let found = match &opened {
        Ok(file) => Some(file.facts()?),
        Err(_) => root.look(layout::LOCK)?,
    };
    match found {
        Some(facts) if facts.kind != Kind::File => Err(Error::FixedNameTaken {
            path: root.path_of(layout::LOCK),
            found: facts.kind.word(),
            expected: Kind::File.word(),
        }),
        // A store that lost its LOCK gets a new one: nobody can be holding a name that does not exist,
        // and whoever held the old inode finds out before it flips.
        None if !make => root.open_or_make_file(layout::LOCK),
        _ => opened,
    }
}

/// Who holds the lock, as LOCK tells it.
pub(crate) fn holder(file: &File) -> String {
    let text = file.read_up_to(4096).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default();
    let told = line
        .strip_prefix(HELD)
        .or_else(|| line.strip_prefix(INITIALISING))
        .unwrap_or(line);
    if told.is_empty() {
        "LOCK is held by an unknown process".to_owned()
    } else {
        format!("held by {told}")
    }
}

/// Who holds LOCK now, if anybody does. Takes nothing away from anybody.
pub(crate) fn current_holder(root: &Dir) -> Result<Option<String>> {
    match root.look(layout::LOCK)? {
        Some(facts) if facts.kind == Kind::File => {}
        _ => return Ok(None),
    }
    let file = root.open_file(layout::LOCK)?;
    if !file.is_locked()? {
        return Ok(None);
    }
    Ok(Some(holder(&file)))
}
