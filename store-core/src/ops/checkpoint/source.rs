//! Which directory is checkpointed, and to which lineage.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::disk::{self, Kind};
use crate::format::catalog::SourceIdentity;
use crate::root::{Context, Root};
use crate::worktree;
use crate::{Error, Result, Wanted};

use super::CheckpointRequest;
use crate::ops::base::{Access, Base};

/// Names that mark the top of a project.
const MARKERS: [&str; 12] = [
    ".git",
    ".hg",
    ".jj",
    ".svn",
    ".genstoreignore",
    "Cargo.toml",
    "package.json",
    "pyproject.toml",
    "go.mod",
    "pom.xml",
    "CMakeLists.txt",
    "Makefile",
];

/// The source that a path belongs to: the nearest registered one that owns it, else the nearest directory at or above it
/// that holds a marker, never at or above the home directory; else the path itself.
pub(super) fn discovered(
    root: &Root,
    context: &Context,
    request: &CheckpointRequest,
) -> Result<PathBuf> {
    let path = disk::canonical(&request.source)?;
    let base = Base::open(root, context, Access::Mapped)?;
    if let Some(lineage) = base.catalog()?.discover(path.as_os_str().as_bytes())? {
        return Ok(PathBuf::from(std::ffi::OsStr::from_bytes(
            &lineage.lineage.source,
        )));
    }
    let home = request
        .home
        .as_ref()
        .and_then(|home| disk::canonical(home).ok());
    for place in path.ancestors() {
        if place == Path::new("/") || home.as_ref().is_some_and(|home| home.starts_with(place)) {
            break;
        }
        for marker in MARKERS {
            if disk::look_at_path_itself(&place.join(marker))?.is_some() {
                return Ok(place.to_owned());
            }
        }
    }
    Ok(path)
}

/// The source directory: canonical, open, and where its parent stands.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) identity: Option<SourceIdentity>,
}

pub(super) fn open_source(root: &Root, request: &CheckpointRequest) -> Result<Source> {
    let path = disk::canonical(&request.source).map_err(|error| match error {
        Error::Io { path, source, .. } => worktree::no_source(&path, source),
        other => other,
    })?;
    let facts = disk::look_at_path(&path)?;
    if facts.is_none_or(|facts| facts.kind != Kind::Directory) {
        return Err(Error::invalid(
            "source",
            format!(
                "{} is not a directory",
                crate::name::quote_path(&request.source)
            ),
        ));
    }
    let store = disk::canonical(root.dir.path())?;
    if path.starts_with(&store) {
        return Err(Error::refused(
            "source_in_store",
            format!(
                "{} is inside the store {}",
                crate::name::quote_path(&path),
                crate::name::quote_path(&store)
            ),
            "checkpoint another directory, or keep the store elsewhere",
        ));
    }
    let home = request
        .home
        .as_ref()
        .and_then(|home| disk::canonical(home).ok());
    let wide = path == Path::new("/") || home.as_ref().is_some_and(|home| home.starts_with(&path));
    if wide && !request.allow_wide {
        return Err(Error::refused(
            "wide_source",
            format!(
                "{} is the whole home directory or more",
                crate::name::quote_path(&path)
            ),
            "name a project directory, or add --allow-wide",
        ));
    }
    let identity = match path.parent().map(disk::look_at_path) {
        Some(Ok(Some(parent))) => Some(SourceIdentity {
            device: parent.device,
            inode: parent.inode,
        }),
        _ => None,
    };
    Ok(Source { path, identity })
}

/// The lineage to commit to: the named one, or the source's path.
pub(super) fn lineage_name(
    base: &Base,
    request: &CheckpointRequest,
    source: &Source,
) -> Result<Vec<u8>> {
    if let Some(name) = &request.lineage {
        return Ok(name.clone());
    }
    let path = source.path.as_os_str().as_bytes();
    // A source that is registered under one name of its own keeps it: a second lineage would split its history.
    let catalog = base.catalog()?;
    if catalog.lineage(path)?.is_none() {
        let active: Vec<_> = catalog
            .lineages_of(path)?
            .into_iter()
            .filter(|lineage| !lineage.lineage.state.is_archived())
            .collect();
        match &active[..] {
            [] => {}
            [only] => return Ok(only.name().to_vec()),
            several => {
                return Err(Error::Ambiguous {
                    wanted: Wanted::Lineage,
                    name: crate::name::escape(path),
                    candidates: several
                        .iter()
                        .map(|lineage| crate::name::escape(lineage.name()))
                        .collect(),
                });
            }
        }
    }
    Ok(path.to_vec())
}
