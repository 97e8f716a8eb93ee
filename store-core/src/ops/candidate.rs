//! A directory that claims to be a generation: what it is, before anything in it is believed.

use std::path::Path;

use crate::disk::{self, Dir, Kind};
use crate::format::manifest::{Manifest, ManifestError};
use crate::id::GenerationId;
use crate::{Error, Result, Wanted, layout};

/// A directory with a readable manifest.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) dir: Dir,
    pub(crate) id: GenerationId,
    pub(crate) manifest: Manifest,
    /// The manifest's exact bytes.
    pub(crate) bytes: Vec<u8>,
}

fn invalid(path: &Path, problem: impl Into<String>) -> Error {
    Error::CandidateInvalid {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

impl Candidate {
    /// Opens a directory and reads its manifest; nothing else is looked at.
    ///
    /// # Errors
    /// [`Error::CandidateInvalid`] with what is wrong.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // Without the slash at its end, which would follow a symlink.
        let path: &Path = &path.components().collect::<std::path::PathBuf>();
        match disk::look_at_path_itself(path)? {
            None => {
                let shown = crate::name::escape(path.as_os_str().as_encoded_bytes());
                return Err(Error::not_found(
                    Wanted::Generation,
                    shown,
                    "there is nothing at that path",
                ));
            }
            Some(facts) if facts.kind != Kind::Directory => {
                return Err(invalid(
                    path,
                    format!("it is a {}, not a directory", facts.kind.word()),
                ));
            }
            Some(_) => {}
        }
        let dir = Dir::open_candidate(path)?;
        match dir.look(layout::MANIFEST)? {
            Some(facts) if facts.kind == Kind::File => {}
            Some(facts) => {
                return Err(invalid(
                    path,
                    format!("manifest.json is a {}", facts.kind.word()),
                ));
            }
            None => return Err(invalid(path, "it has no manifest.json")),
        }
        let bytes = dir
            .open_file(layout::MANIFEST)?
            .read_up_to(layout::MAX_MANIFEST_BYTES)?;
        if bytes.len() as u64 > layout::MAX_MANIFEST_BYTES {
            return Err(invalid(path, "manifest.json is longer than 16 MiB"));
        }
        let manifest = Manifest::decode(&bytes).map_err(|error| match error {
            ManifestError::Mismatch(problem) => {
                invalid(path, format!("manifest.json is damaged: {problem}"))
            }
            ManifestError::Unsupported(problem) => invalid(
                path,
                format!("it was written by a newer genstore: {problem}"),
            ),
        })?;
        let id = GenerationId::of_manifest(manifest.sequence, &bytes)
            .ok_or_else(|| invalid(path, "its sequence number is out of range"))?;
        Ok(Self {
            dir,
            id,
            manifest,
            bytes,
        })
    }

    /// Checks the shape: a name that fits, only known files, every pack there with its size.
    pub(crate) fn check_shape(&self) -> Result<()> {
        let path = self.dir.path();
        if let Some(name) = path
            .file_name()
            .and_then(|name| GenerationId::parse(name.as_encoded_bytes()))
            && name != self.id
        {
            return Err(invalid(
                path,
                format!("its manifest is that of {}", self.id),
            ));
        }
        for name in self.dir.list()? {
            let text = disk::as_text(&name).unwrap_or_default();
            let known = text == layout::MANIFEST
                || text == layout::REPAIR_RECEIPT
                || layout::parse_pack_name(text.as_bytes())
                    .is_some_and(|id| self.manifest.packs.iter().any(|pack| pack.id == id));
            if !known {
                let shown = crate::name::escape(name.as_encoded_bytes());
                return Err(invalid(
                    path,
                    format!("it holds {shown}, which does not belong to a generation"),
                ));
            }
            let facts = self.dir.look(text)?;
            if facts.is_none_or(|facts| facts.kind != Kind::File) {
                return Err(invalid(path, format!("{text} is not a regular file")));
            }
        }
        for pack in &self.manifest.packs {
            let name = layout::pack_name(&pack.id);
            match self.dir.look(&name)? {
                Some(facts) if facts.bytes == pack.bytes => {}
                Some(facts) => {
                    return Err(invalid(
                        path,
                        format!("{name} has {} bytes instead of {}", facts.bytes, pack.bytes),
                    ));
                }
                None => return Err(invalid(path, format!("{name} is missing"))),
            }
        }
        Ok(())
    }
}
