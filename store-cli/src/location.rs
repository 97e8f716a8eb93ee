//! Where the store is. A pure function of `--store` and the environment; nothing here touches the disk.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use store_core::Error;

/// Where the store is, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The store's directory.
    pub(crate) path: PathBuf,
    /// Whether `--store` named it. Only a store that nobody named is created on first use.
    pub(crate) explicit: bool,
}

/// Finds the store: `--store`, else `$GENSTORE_DIR`, else `$XDG_DATA_HOME/genstore`, else `~/.local/share/genstore`.
///
/// Empty variables count as unset. A relative `$XDG_DATA_HOME` is ignored, as the XDG Base Directory
/// Specification demands.
///
/// # Errors
/// [`Error::Invalid`] if `--store` is empty, or if nothing says where the store is.
pub(crate) fn locate(
    store: Option<&Path>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Location, Error> {
    if let Some(path) = store {
        if path.as_os_str().is_empty() {
            return Err(Error::Invalid {
                what: "--store",
                problem: "the directory's name is empty".into(),
            });
        }
        return Ok(Location {
            path: path.to_owned(),
            explicit: true,
        });
    }
    let variable = |name: &str| {
        environment(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let path = variable("GENSTORE_DIR")
        .or_else(|| {
            variable("XDG_DATA_HOME")
                .filter(|data| data.is_absolute())
                .map(|data| data.join("genstore"))
        })
        .or_else(|| variable("HOME").map(|home| home.join(".local/share/genstore")));
    match path {
        Some(path) => Ok(Location {
            path,
            explicit: false,
        }),
        None => Err(Error::Invalid {
            what: "store location",
            problem: "neither --store nor $GENSTORE_DIR is given, and $HOME is not set".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(
        store: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Result<(String, bool), &'static str> {
        let lookup = |name: &str| {
            environment
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        locate(store.map(Path::new), lookup)
            .map(|location| {
                (
                    location.path.to_string_lossy().into_owned(),
                    location.explicit,
                )
            })
            .map_err(|error| error.code())
    }

    #[test]
    fn the_nearest_word_wins() {
        let all = [
            ("GENSTORE_DIR", "g"),
            ("XDG_DATA_HOME", "/x"),
            ("HOME", "/h"),
        ];
        assert_eq!(at(Some("s"), &all), Ok(("s".into(), true)));
        assert_eq!(at(None, &all), Ok(("g".into(), false)));
        assert_eq!(at(None, &all[1..]), Ok(("/x/genstore".into(), false)));
        assert_eq!(
            at(None, &all[2..]),
            Ok(("/h/.local/share/genstore".into(), false))
        );
    }

    #[test]
    fn empty_and_relative_values_count_as_unset() {
        let home = ("HOME", "/h");
        let default = Ok(("/h/.local/share/genstore".to_owned(), false));
        assert_eq!(at(None, &[("GENSTORE_DIR", ""), home]), default);
        assert_eq!(at(None, &[("XDG_DATA_HOME", ""), home]), default);
        assert_eq!(at(None, &[("XDG_DATA_HOME", "data"), home]), default);
    }

    #[test]
    fn no_place_at_all_is_a_usage_error() {
        assert_eq!(at(None, &[]), Err("invalid"));
        assert_eq!(at(None, &[("HOME", "")]), Err("invalid"));
        assert_eq!(at(Some(""), &[("HOME", "/h")]), Err("invalid"));
    }
}
