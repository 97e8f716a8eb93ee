//! Reading one file or link so that what is stored is what it held at one moment.
//!
//! The file is looked at before and after; if it changed meanwhile it is read again, and in the end given up. A content is
//! never a mixture of two versions.

use std::ffi::CStr;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::format::checkpoint::LeftOutReason;
use crate::format::content::Content;
use crate::format::stat_cache::FileStat;
use crate::objects::ObjectSink;
use crate::objects::chunker::{HashOnly, store_content};
use crate::worktree::door::{self, Found};

/// Files up to this size, in bytes, are held in memory and stored only once they are known to be whole.
const WHOLE_BYTES: u64 = 512 << 10;
/// How often a file that changes while it is read is read, in all.
const ATTEMPTS: u32 = 4;
/// Kernels mark times in ticks of up to this, in nanoseconds: two changes within one leave the same times.
const TICK_NS: i128 = 20_000_000;

/// What became of one file or link.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// It was read; this is what it looked like then.
    Read(FileStat, T),
    /// It is not captured.
    Left(LeftOutReason, String),
    /// Descriptors or memory ran out: nothing about this path, and no way to go on.
    Exhausted(Errno),
}

/// What reading needs to know and may be stopped by.
pub(crate) struct Reader<'a> {
    pub(crate) sink: &'a dyn ObjectSink,
    pub(crate) clock: &'a dyn Clock,
    /// Whom this process acts as: only owners may read without leaving an access time.
    pub(crate) user: u32,
    /// An error if the operation has to stop.
    pub(crate) check: &'a (dyn Fn() -> Result<()> + Sync),
}

/// Why one attempt came to nothing.
enum Failed {
    /// It changed; another attempt may do.
    Changed,
    /// The system said no.
    No(Errno),
    /// It is over: the sink failed, or the caller stops.
    Fatal(Error),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Self::No(errno)
    }
}

impl Reader<'_> {
    /// Reads the file `name`, which `lstat` saw as `seen`, into the sink.
    ///
    /// # Errors
    /// If the sink fails or the operation is stopped. What is wrong with the file is an outcome.
    pub(crate) fn file(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        seen: FileStat,
        buffer: &mut Vec<u8>,
    ) -> Result<Outcome<Content>> {
        let mut seen = seen;
        for attempt in 1.. {
            match self.attempt(parent, name, &seen, buffer) {
                Ok((stat, content)) => return Ok(Outcome::Read(stat, content)),
                // A link or a socket has taken the name: a change like any other.
                Err(Failed::Changed | Failed::No(Errno::LOOP | Errno::NXIO)) => {}
                Err(Failed::No(errno)) => return Ok(left(errno)),
                Err(Failed::Fatal(error)) => return Err(error),
            }
            if attempt == ATTEMPTS {
                break;
            }
            match door::lstat(parent, name) {
                Ok(stat) if Found::of(stat.mode) == Found::File => seen = stat,
                Ok(_) => break,
                Err(errno) => return Ok(left(errno)),
            }
        }
        Ok(Outcome::Left(
            LeftOutReason::Unstable,
            "changed while read".to_owned(),
        ))
    }

    fn attempt(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        seen: &FileStat,
        buffer: &mut Vec<u8>,
    ) -> Result<(FileStat, Content), Failed> {
        let quiet = self.user == 0 || self.user == seen.owner.uid;
        let file = door::open_file(parent, name, quiet)?;
        let before = door::fstat(&file)?;
        let same_file = (before.device, before.inode) == (seen.device, seen.inode);
        if Found::of(before.mode) != Found::File || !same_file {
            return Err(Failed::Changed);
        }
        let twice = is_hot(&before, self.clock.now());
        let content = if before.size <= WHOLE_BYTES {
            self.read_whole(&file, &before, twice, buffer)?
        } else {
            self.read_stream(&file, &before, twice)?
        };
        Ok((before, content))
    }

    /// Small files are put only once they are known to be whole.
    fn read_whole(
        &self,
        file: &OwnedFd,
        before: &FileStat,
        twice: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<Content, Failed> {
        let size = usize::try_from(before.size).map_err(|_| Errno::FBIG)?;
        buffer.resize(size + 1, 0);
        if door::read_full(file, buffer)? != size {
            return Err(Failed::Changed);
        }
        if twice {
            let mut again = vec![0; size + 1];
            door::rewind(file)?;
            let length = door::read_full(file, &mut again)?;
            if length != size || again[..size] != buffer[..size] {
                return Err(Failed::Changed);
            }
        }
        unchanged(file, before)?;
        let mut whole = &buffer[..size];
        let stored = store_content(self.sink, &mut whole, before.size, &unreadable);
        stored.map(|(content, _)| content).map_err(Failed::Fatal)
    }

    /// Large files stream into the sink; what a later change makes useless there is never named.
    fn read_stream(
        &self,
        file: &OwnedFd,
        before: &FileStat,
        twice: bool,
    ) -> Result<Content, Failed> {
        let content = self.stream_once(file, before, self.sink)?;
        if twice {
            door::rewind(file)?;
            if self.stream_once(file, before, &HashOnly)? != content {
                return Err(Failed::Changed);
            }
        }
        unchanged(file, before)?;
        Ok(content)
    }

    fn stream_once(
        &self,
        file: &OwnedFd,
        before: &FileStat,
        sink: &dyn ObjectSink,
    ) -> Result<Content, Failed> {
        let mut stream = Stream {
            file,
            left: before.size.saturating_add(1),
            check: self.check,
            failed: None,
        };
        let stored = store_content(sink, &mut stream, before.size, &unreadable);
        if let Some(failed) = stream.failed {
            return Err(failed);
        }
        match stored {
            Ok((content, length)) if length == before.size => Ok(content),
            Ok(_) => Err(Failed::Changed),
            Err(error) => Err(Failed::Fatal(error)),
        }
    }
}

/// What stands for a failed read while it goes through the chunker; the stream itself remembers which it was.
fn unreadable(error: io::Error) -> Error {
    Error::io("read", "the work tree", error)
}

/// Whether the file changed so lately that another change could have left the same times.
fn is_hot(stat: &FileStat, now: Time) -> bool {
    let ns = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    ns(stat.mtime.max(stat.ctime)) + TICK_NS >= ns(now)
}

fn unchanged(file: &OwnedFd, before: &FileStat) -> Result<(), Failed> {
    if door::fstat(file)? == *before {
        Ok(())
    } else {
        Err(Failed::Changed)
    }
}

/// What a refusal of the system means for a path.
pub(crate) fn left<T>(errno: Errno) -> Outcome<T> {
    match errno {
        Errno::NOENT => Outcome::Left(LeftOutReason::Vanished, String::new()),
        errno if door::is_exhaustion(errno) => Outcome::Exhausted(errno),
        errno => Outcome::Left(LeftOutReason::Unreadable, reason(errno)),
    }
}

/// An error as a reason that stands in a checkpoint: no number, no capital.
pub(crate) fn reason(errno: Errno) -> String {
    match errno {
        Errno::ACCESS => "permission denied".to_owned(),
        Errno::PERM => "operation not permitted".to_owned(),
        Errno::IO => "input/output error".to_owned(),
        errno => io::Error::from(errno).to_string(),
    }
}

/// Reads the link `name`, which `lstat` saw as `seen`.
pub(crate) fn link(parent: BorrowedFd<'_>, name: &CStr, seen: FileStat) -> Outcome<Vec<u8>> {
    let mut before = seen;
    for _ in 0..ATTEMPTS {
        let target = match door::read_link(parent, name) {
            Ok(target) => target,
            // It is no link any more.
            Err(Errno::INVAL) => break,
            Err(errno) => return left(errno),
        };
        match door::lstat(parent, name) {
            Ok(after) if after == before => return Outcome::Read(after, target),
            Ok(after) if Found::of(after.mode) == Found::Symlink => before = after,
            Ok(_) => break,
            Err(errno) => return left(errno),
        }
    }
    Outcome::Left(LeftOutReason::Unstable, "changed while read".to_owned())
}

/// A file as a reader that can be stopped, never gives more than was promised, and remembers whose fault a failure is.
struct Stream<'a> {
    file: &'a OwnedFd,
    left: u64,
    check: &'a (dyn Fn() -> Result<()> + Sync),
    failed: Option<Failed>,
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if want == 0 {
            return Ok(0);
        }
        let answer = (self.check)().map_err(Failed::Fatal);
        match answer.and_then(|()| door::read(self.file, &mut buffer[..want]).map_err(Failed::No)) {
            Ok(got) => {
                self.left -= got as u64;
                Ok(got)
            }
            Err(failed) => {
                self.failed = Some(failed);
                Err(io::Error::other("the work tree could not be read"))
            }
        }
    }
}
