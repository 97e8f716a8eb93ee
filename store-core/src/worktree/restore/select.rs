//! Which paths of a checkpoint are wanted: all of them, or those that were named, literally.

use std::collections::BTreeMap;

use crate::error::{Error, Result, Wanted};

/// What is wanted of one directory.
#[derive(Debug, Default)]
pub(super) struct Selection {
    whole: bool,
    below: BTreeMap<Vec<u8>, Selection>,
}

/// What is wanted of one name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish<'a> {
    /// All of it.
    Whole,
    /// It only leads to something.
    Through(&'a Selection),
}

pub(super) static EVERYTHING: Selection = Selection {
    whole: true,
    below: BTreeMap::new(),
};

impl Selection {
    pub(super) fn new(paths: &[Vec<u8>]) -> Result<Self> {
        let mut root = Self {
            whole: paths.is_empty(),
            below: BTreeMap::new(),
        };
        for path in paths {
            root.add(path)?;
        }
        Ok(root)
    }

    /// Slashes at the end or doubled, and `.`, mean nothing; `..` is refused, as there is nothing above the root.
    fn add(&mut self, path: &[u8]) -> Result<()> {
        let mut at = self;
        for name in path
            .split(|&b| b == b'/')
            .filter(|name| !matches!(*name, b"" | b"."))
        {
            if name == b".." || name.contains(&0) {
                return Err(Error::invalid(
                    "path",
                    format!(
                        "{:?} is not a path in a checkpoint",
                        crate::name::escape(path)
                    ),
                ));
            }
            at = at.below.entry(name.to_vec()).or_default();
        }
        at.whole = true;
        Ok(())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(super) fn wish(&self, name: &[u8]) -> Option<Wish<'_>> {
        if self.whole {
            return Some(Wish::Whole);
        }
        let below = self.below.get(name)?;
        Some(if below.whole {
            Wish::Whole
        } else {
            Wish::Through(below)
        })
    }

    /// The names that are wanted one by one.
    pub(super) fn named(&self) -> impl Iterator<Item = &[u8]> {
        let whole = self.whole;
        self.below.keys().map(Vec::as_slice).filter(move |_| !whole)
    }

    /// A full path below this, to say what was not found.
    pub(super) fn first_path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = self;
        while let Some((name, below)) = at.below.first_key_value().filter(|_| !at.whole) {
            names.push(name.as_slice());
            at = below;
        }
        names.join(&b'/')
    }

    /// The error for a name in the directory at `directory` that the checkpoint does not have.
    pub(super) fn not_found(&self, directory: &[u8], name: &[u8]) -> Error {
        let rest = self
            .below
            .get(name)
            .map(Self::first_path)
            .unwrap_or_default();
        let parts = [directory, name, &rest]
            .into_iter()
            .filter(|part| !part.is_empty());
        let path = parts.collect::<Vec<_>>().join(&b'/');
        Error::not_found(
            Wanted::Path,
            crate::name::escape(&path),
            "not in this checkpoint",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_literal_and_a_longer_one_is_part_of_a_shorter_one() {
        let paths = [b"a/b/".to_vec(), b"./a//b/c".to_vec(), b"x[y]*".to_vec()];
        let selection = Selection::new(&paths).unwrap();
        assert!(!selection.is_whole());
        let Some(Wish::Through(a)) = selection.wish(b"a") else {
            panic!("a is on the way")
        };
        assert!(matches!(a.wish(b"b"), Some(Wish::Whole)));
        assert!(a.wish(b"c").is_none());
        assert!(matches!(selection.wish(b"x[y]*"), Some(Wish::Whole)));
        assert!(selection.wish(b"xy").is_none());
        assert_eq!(
            selection.not_found(b"", b"a").to_string(),
            "no path \"a/b\" (not in this checkpoint)"
        );
    }

    #[test]
    fn nothing_named_is_everything_and_above_the_root_is_nothing() {
        assert!(Selection::new(&[]).unwrap().is_whole());
        assert!(Selection::new(&[b".".to_vec()]).unwrap().is_whole());
        for bad in [&b"../x"[..], b"a/..", b"a\0"] {
            assert_eq!(
                Selection::new(&[bad.to_vec()]).unwrap_err().code(),
                "invalid"
            );
        }
    }
}
