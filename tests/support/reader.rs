//! Runs `tests/format/reader.py`, the second reader that shares no code with genstore.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::machine;

fn reader() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("format/reader.py")
}

/// The page that the reader was written from.
pub fn format_page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/format.md")
}

/// Runs the reader. `None` where Python or zstd are missing (never on CI).
///
/// # Errors
/// What the reader found wrong.
///
/// # Panics
/// On CI, if it cannot run.
pub fn run<I, S>(args: I) -> Option<Result<String, String>>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    if !machine::has("python3") {
        crate::skip("python3 is not installed");
        return None;
    }
    let output = Command::new("python3")
        .arg("-B")
        .arg(reader())
        .args(args)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Some(Ok(String::from_utf8(output.stdout).unwrap())),
        Some(77) => {
            crate::skip(&err);
            None
        }
        _ => Some(Err(err)),
    }
}

/// Checks a whole store with the reader, and returns what it found in it.
///
/// # Panics
/// If the reader says that something is not as `docs/format.md` says.
#[track_caller]
pub fn check(store: &Path) -> Option<Value> {
    match run([store])? {
        Ok(text) => Some(serde_json::from_str(&text).unwrap()),
        Err(problem) => panic!("the second reader rejects {}: {problem}", store.display()),
    }
}
