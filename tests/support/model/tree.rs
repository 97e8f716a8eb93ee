//! A tiny work tree, in memory and on disk. Both are edited together, so that what is in memory is what a checkpoint must hold.
//!
//! Everything that `stat` can show is set explicitly: two trees that are equal here are equal on disk. Contents of one
//! length are all the same, so whoever trusts an unchanged `stat` is right to.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

/// The paths that operations choose from. A name may be a file now and a directory later.
const PATHS: [&[u8]; 10] = [
    b"a", b"b", b"c\n", b"d", b"d/a", b"d/\xff", b"d/e", b"d/e/a", b"f/a", b"f/g/h",
];
const CONTENTS: u8 = 8;
const LENGTHS: [usize; CONTENTS as usize] = [0, 1, 7, 100, 1000, 4000, 4001, 9000];
const LINKS: u8 = 3;
const TARGETS: [&[u8]; LINKS as usize] = [b"a", b"../x", b"\xfe/nowhere"];
const FILE_MODES: [u32; 4] = [0o644, 0o600, 0o755, 0o4711];
const DIRECTORY_MODES: [u32; 2] = [0o755, 0o700];
/// Long before any clock that the store is given.
const EPOCH: i64 = 900_000_000;

/// The bytes of a content.
pub fn content(choice: u8) -> Vec<u8> {
    let choice = usize::from(choice) % LENGTHS.len();
    let length = LENGTHS[choice];
    if choice.is_multiple_of(2) {
        return b"all work and no play "
            .iter()
            .copied()
            .cycle()
            .take(length)
            .collect();
    }
    // Bytes that do not compress.
    let mut bytes = vec![0; length];
    blake3::Hasher::new()
        .update(&[u8::try_from(choice).unwrap_or(0)])
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// A file, link or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A file: which content, mode, and mtime in seconds.
    File {
        /// Which content.
        content: u8,
        /// Permission bits.
        mode: u32,
        /// When it was last modified.
        mtime: i64,
    },
    /// A symbolic link: which target.
    Link {
        /// Which target.
        target: u8,
    },
    /// A directory.
    Directory(Directory),
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Permission bits.
    pub mode: u32,
    /// When it was last modified, in seconds.
    pub mtime: i64,
    /// What is in it.
    pub entries: BTreeMap<Vec<u8>, Node>,
}

impl Default for Directory {
    fn default() -> Self {
        Self {
            mode: DIRECTORY_MODES[0],
            mtime: EPOCH,
            entries: BTreeMap::new(),
        }
    }
}

/// What a tree holds, as a checkpoint counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// The sum of the files' sizes.
    pub bytes: u64,
}

impl Directory {
    /// Whether two directories are the same state: mtimes of directories do not count.
    pub fn same_state(&self, other: &Self) -> bool {
        self.mode == other.mode
            && self.entries.len() == other.entries.len()
            && self
                .entries
                .iter()
                .zip(&other.entries)
                .all(|((name, node), (other_name, other))| {
                    name == other_name
                        && match (node, other) {
                            (Node::Directory(below), Node::Directory(other)) => {
                                below.same_state(other)
                            }
                            (node, other) => node == other,
                        }
                })
    }

    /// How much there is below it.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.visit(&mut |_, node| match node {
            Node::File {
                content: choice, ..
            } => {
                counts.files += 1;
                counts.bytes += length(*choice) as u64;
            }
            Node::Link { .. } => counts.links += 1,
            Node::Directory(_) => counts.directories += 1,
        });
        counts
    }

    /// Every path below it, directories before what is in them.
    pub fn visit(&self, visit: &mut dyn FnMut(&[u8], &Node)) {
        fn below(directory: &Directory, path: &mut Vec<u8>, visit: &mut dyn FnMut(&[u8], &Node)) {
            for (name, node) in &directory.entries {
                let length = path.len();
                if length > 0 {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                visit(path, node);
                if let Node::Directory(directory) = node {
                    below(directory, path, visit);
                }
                path.truncate(length);
            }
        }
        below(self, &mut Vec::new(), visit);
    }

    fn find(&self, path: &[u8]) -> Option<&Node> {
        match split(path) {
            (name, None) => self.entries.get(name),
            (name, Some(rest)) => match self.entries.get(name)? {
                Node::Directory(below) => below.find(rest),
                _ => None,
            },
        }
    }

    fn find_mut(&mut self, path: &[u8]) -> Option<&mut Node> {
        match split(path) {
            (name, None) => self.entries.get_mut(name),
            (name, Some(rest)) => match self.entries.get_mut(name)? {
                Node::Directory(below) => below.find_mut(rest),
                _ => None,
            },
        }
    }

    /// The directory that a path is in, made if nothing is there; `None` if something else is.
    fn parent_of(&mut self, path: &[u8]) -> Option<&mut Self> {
        match split(path) {
            (_, None) => Some(self),
            (name, Some(rest)) => {
                let node = self
                    .entries
                    .entry(name.to_vec())
                    .or_insert_with(|| Node::Directory(Self::default()));
                match node {
                    Node::Directory(below) => below.parent_of(rest),
                    _ => None,
                }
            }
        }
    }
}

fn length(choice: u8) -> usize {
    LENGTHS[usize::from(choice) % LENGTHS.len()]
}

fn split(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|byte| *byte == b'/') {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    }
}

fn last_name(path: &[u8]) -> Vec<u8> {
    path.rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or(path)
        .to_vec()
}

fn path(choice: u8) -> &'static [u8] {
    PATHS[usize::from(choice) % PATHS.len()]
}

/// The bytes of a link's target.
pub fn target(choice: u8) -> &'static [u8] {
    TARGETS[usize::from(choice) % TARGETS.len()]
}

/// A tree in memory and on disk.
#[derive(Debug)]
pub struct WorkTree {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub root: Directory,
}

impl WorkTree {
    /// An empty tree.
    pub fn new(path: PathBuf) -> std::io::Result<Self> {
        fs::create_dir(&path)?;
        let tree = Self {
            path,
            root: Directory::default(),
        };
        set_mode(&tree.path, tree.root.mode)?;
        set_mtime(&tree.path, tree.root.mtime)?;
        Ok(tree)
    }

    fn on_disk(&self, path: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(path))
    }

    /// Writes a file.
    pub fn write(&mut self, to: u8, choice: u8, mtime: u8) -> std::io::Result<()> {
        let (to, choice) = (path(to), choice % CONTENTS);
        let mtime = EPOCH + i64::from(mtime % 4);
        let mode = FILE_MODES[0];
        self.put(
            to,
            Node::File {
                content: choice,
                mode,
                mtime,
            },
            |file| {
                fs::write(file, content(choice))?;
                set_mode(file, mode)?;
                set_mtime(file, mtime)
            },
        )
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, at: u8) -> std::io::Result<()> {
        let at = path(at);
        if matches!(self.root.find(at), Some(Node::Directory(_))) {
            return Ok(());
        }
        self.put(at, Node::Directory(Directory::default()), |_| Ok(()))
    }

    /// Makes a symbolic link.
    pub fn link(&mut self, at: u8, choice: u8) -> std::io::Result<()> {
        let choice = choice % LINKS;
        self.put(path(at), Node::Link { target: choice }, |link| {
            std::os::unix::fs::symlink(OsStr::from_bytes(target(choice)), link)?;
            set_mtime(link, EPOCH)
        })
    }

    /// Puts something at a path, in place of what is there, unless a file or link is above it.
    fn put(
        &mut self,
        at: &[u8],
        node: Node,
        make: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let Some(parent) = self.root.parent_of(at) else {
            return Ok(());
        };
        parent.entries.insert(last_name(at), node);
        let place = self.on_disk(at);
        remove(&place)?;
        let above = place.parent().unwrap_or(&self.path);
        fs::create_dir_all(above)?;
        make(&place)?;
        self.settle(at)
    }

    /// Removes whatever is at a path.
    pub fn remove(&mut self, at: u8) -> std::io::Result<()> {
        let at = path(at);
        if self.root.find(at).is_none() {
            return Ok(());
        }
        if let Some(parent) = self.root.parent_of(at) {
            parent.entries.remove(&last_name(at));
        }
        remove(&self.on_disk(at))?;
        self.settle(at)
    }

    /// Moves something, in place of what is there.
    pub fn rename(&mut self, from: u8, to: u8) -> std::io::Result<()> {
        let (from, to) = (path(from), path(to));
        // Neither into itself nor over what holds it.
        if from.starts_with(to) || to.starts_with(from) {
            return Ok(());
        }
        let Some(node) = self.root.find(from).cloned() else {
            return Ok(());
        };
        let source = self.on_disk(from);
        self.put(to, node, |place| fs::rename(&source, place))?;
        // Unless the put was refused.
        if fs::symlink_metadata(&source).is_err() {
            if let Some(parent) = self.root.parent_of(from) {
                parent.entries.remove(&last_name(from));
            }
            self.settle(from)?;
        }
        Ok(())
    }

    /// Changes permission bits; of the root too.
    pub fn change_mode(&mut self, at: u8, choice: u8) -> std::io::Result<()> {
        let at = if usize::from(at) % (PATHS.len() + 1) == PATHS.len() {
            &b""[..]
        } else {
            path(at)
        };
        let place = self.on_disk(at);
        let mode = if at.is_empty() {
            self.root.mode = DIRECTORY_MODES[usize::from(choice) % DIRECTORY_MODES.len()];
            self.root.mode
        } else {
            match self.root.find_mut(at) {
                Some(Node::File { mode, .. }) => {
                    *mode = FILE_MODES[usize::from(choice) % FILE_MODES.len()];
                    *mode
                }
                Some(Node::Directory(below)) => {
                    below.mode = DIRECTORY_MODES[usize::from(choice) % DIRECTORY_MODES.len()];
                    below.mode
                }
                Some(Node::Link { .. }) | None => return Ok(()),
            }
        };
        set_mode(&place, mode)
    }

    /// Changes a directory's mtime.
    pub fn touch(&mut self, at: u8, mtime: u8) -> std::io::Result<()> {
        let at = path(at);
        let Some(Node::Directory(below)) = self.root.find_mut(at) else {
            return Ok(());
        };
        below.mtime = EPOCH + i64::from(mtime % 4);
        let mtime = below.mtime;
        set_mtime(&self.on_disk(at), mtime)
    }

    /// Gives every directory on the way to a path, and the directory at it, the mode and mtime that it has in memory.
    fn settle(&self, at: &[u8]) -> std::io::Result<()> {
        let mut ends: Vec<usize> = (0..at.len()).filter(|end| at[*end] == b'/').collect();
        ends.push(at.len());
        for end in ends.into_iter().rev() {
            if let Some(Node::Directory(below)) = self.root.find(&at[..end]) {
                let place = self.on_disk(&at[..end]);
                if !place.try_exists()? {
                    fs::create_dir(&place)?;
                }
                set_mode(&place, below.mode)?;
                set_mtime(&place, below.mtime)?;
            }
        }
        set_mtime(&self.path, self.root.mtime)
    }
}

fn remove(place: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(place),
        Ok(_) => fs::remove_file(place),
        Err(_) => Ok(()),
    }
}

fn set_mode(place: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(place, fs::Permissions::from_mode(mode))
}

fn set_mtime(place: &Path, seconds: i64) -> std::io::Result<()> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 5,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}
