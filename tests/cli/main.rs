//! The binary, from outside: real trees, every wrong input, every selector fault, system calls, kills, and the cases that broke other systems.
//!
//! Declared by `store-cli`, because `CARGO_BIN_EXE_genstore` exists only there.

#![allow(
    missing_docs,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests touch files as any other program would, and a failed step fails the test"
)]

mod activate;
#[path = "../cases/mod.rs"]
mod cases;
mod format;
mod init;
mod names;
mod outputs;
mod readme;
mod real_tree;
mod regressions;
mod selector_faults;
mod syscalls;
mod verbs;
mod wrong_input;

use genstore_tests::{Dir, Genstore};
use serde_json::Value;

/// The command under test.
pub(crate) const GENSTORE: &str = env!("CARGO_BIN_EXE_genstore");

/// A fixture whose tree holds a few files, and the command for it. There is no store yet.
pub(crate) fn fixture() -> (Dir, Genstore) {
    let dir = Dir::new();
    dir.write("a.txt", "first\n");
    dir.write("sub/b.txt", "second\n");
    dir.mkdir("empty");
    let genstore = dir.genstore(GENSTORE);
    (dir, genstore)
}

/// A fixture with one checkpoint.
pub(crate) fn store() -> (Dir, Genstore) {
    let (dir, genstore) = fixture();
    checkpoint(&genstore);
    (dir, genstore)
}

/// Makes a checkpoint of the current directory that has to be complete and new; its id.
#[track_caller]
pub(crate) fn checkpoint(genstore: &Genstore) -> String {
    let made = genstore.json(["checkpoint"]);
    assert_eq!(
        (&made["created"], &made["complete"]),
        (&Value::Bool(true), &Value::Bool(true)),
        "{made}"
    );
    text(&made["id"])
}

/// A JSON string.
#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a string: {value}"))
        .to_owned()
}

/// The bytes of a name in JSON: a string, or `{"bytes": hex}`.
#[track_caller]
pub(crate) fn name(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        _ => unhex(&text(&value["bytes"])),
    }
}

/// Bytes from hex.
pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// `left_out` of a checkpoint's answer as path → reason.
pub(crate) fn left_out(made: &Value) -> std::collections::BTreeMap<Vec<u8>, String> {
    made["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (name(&row["path"]), text(&row["reason"])))
        .collect()
}
