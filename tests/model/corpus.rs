//! Every file of every corpus, through its property; every fuzz target has a property, and the other way round.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use genstore_tests::properties::{self, ALL, MUST_FAIL};

/// A corpus is small: what a fuzzer finds on its own need not be kept.
const MAX_FILES: usize = 40;
const MAX_BYTES: u64 = 16 << 10;

pub(crate) fn fuzz() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn files(directory: &str) -> Vec<PathBuf> {
    let directory = fuzz().join(directory);
    let found =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = found.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn stems(directory: &str) -> BTreeSet<String> {
    files(directory)
        .iter()
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_target_has_a_property_and_every_property_a_target_and_a_corpus() {
    let properties: BTreeSet<String> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    let must_fail: BTreeSet<String> = MUST_FAIL.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(stems("fuzz_targets"), &properties | &must_fail);
    assert_eq!(stems("corpus"), properties);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for target in files("fuzz_targets") {
        let name = target.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&target).unwrap();
        let property = name.strip_suffix("_planted").unwrap_or(name);
        assert!(
            text.contains(&format!("genstore_tests::properties::{property}")),
            "{name} drives another property"
        );
        assert!(
            manifest.contains(&format!("name = \"fuzz_{name}\"")),
            "{name} is not built"
        );
    }
}

#[test]
fn every_corpus_keeps_its_property() {
    for (name, property) in ALL {
        let files = files(&format!("corpus/{name}"));
        assert!(
            (1..=MAX_FILES).contains(&files.len()),
            "{name} has {} files",
            files.len()
        );
        for file in files {
            let bytes = fs::read(&file).unwrap();
            assert!(
                bytes.len() as u64 <= MAX_BYTES,
                "{} is too long",
                file.display()
            );
            let checked = std::panic::catch_unwind(|| property(&bytes));
            assert!(
                checked.is_ok(),
                "{} breaks its property (above)",
                file.display()
            );
        }
    }
}

#[test]
fn the_canary_is_found() {
    properties::canary(b"canar");
    assert!(std::panic::catch_unwind(|| properties::canary(b"canary!")).is_err());
}
