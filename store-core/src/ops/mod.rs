//! One verb, one file: each computes what it will do as a value, then does it.

pub(crate) mod activate;
pub(crate) mod annotate;
pub(crate) mod base;
pub(crate) mod candidate;
pub(crate) mod checkpoint;
pub(crate) mod commit;
pub(crate) mod copy;
pub(crate) mod init;
pub(crate) mod read;
pub(crate) mod restore;
pub(crate) mod staging;
pub(crate) mod status;
pub(crate) mod undo;
pub(crate) mod verify;

use crate::Error;
use crate::id::GenerationId;

/// A change of the catalog that was published, or was so already.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Published {
    /// The generation that is live now.
    pub generation: GenerationId,
    /// The one that was live before.
    pub previous: GenerationId,
    /// False: nothing had to be changed.
    pub created: bool,
    /// Things that went wrong without touching the result.
    pub warnings: Vec<Warning>,
}

/// Something that went wrong without touching the result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// Stable code.
    pub code: &'static str,
    /// What went wrong.
    pub message: String,
    /// What to run, if something helps.
    pub hint: Option<String>,
}

impl Warning {
    pub(crate) fn from_error(code: &'static str, error: &Error) -> Self {
        let mut message = error.to_string();
        if let Some(source) = std::error::Error::source(error) {
            message = format!("{message}: {source}");
        }
        Self {
            code,
            message,
            hint: error.hint(),
        }
    }

    pub(crate) fn new(
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            code,
            message: message.into(),
            hint: Some(hint.into()),
        }
    }
}
