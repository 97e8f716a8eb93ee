//! `docs/format.md`, its worked examples and the second reader.

use std::fs;

use genstore_tests::random::Random;
use genstore_tests::tree::assert_same;
use genstore_tests::{reader, tree};

use crate::real_tree::snapshot_of;
use crate::{checkpoint, store};

#[test]
fn the_second_reader_has_the_same_blake3() {
    let dir = genstore_tests::Dir::new();
    let mut args = vec![std::ffi::OsString::from("--hash")];
    let mut expected = Vec::new();
    for length in [
        0,
        1,
        63,
        64,
        65,
        1023,
        1024,
        1025,
        2048,
        3072,
        5000,
        31_744,
        1 << 20,
        (1 << 20) + 1025,
    ] {
        let bytes = Random::new(7).bytes(length);
        args.push(dir.write(format!("{length}"), &bytes).into());
        expected.push(tree::hash(&bytes));
    }
    let Some(found) = reader::run(args) else {
        return;
    };
    assert_eq!(found.unwrap().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_second_reader_agrees_after_every_kind_of_operation() {
    let (dir, genstore) = store();
    let mut random = Random::new(42);
    for round in 0..12 {
        dir.write(format!("round/{round}"), random.bytes(2000));
        checkpoint(&genstore);
        match round {
            2 => drop(genstore.ok(["tag", "latest", "v1"])),
            3 => drop(genstore.ok(["tag", "latest", "v1", "--move"])),
            4 => drop(genstore.ok(["pin", "latest~1"])),
            5 => drop(genstore.ok(["note", "latest", "a note"])),
            6 | 7 => drop(genstore.ok(["undo"])),
            8 => drop(genstore.ok(["tag", "--remove", "v1"])),
            9 => {
                let candidate = crate::activate::candidate(&dir, "candidate");
                genstore.ok(["activate", candidate.to_str().unwrap()]);
            }
            _ => {}
        }
    }
    genstore.ok(["lineage", "rename", dir.tree().to_str().unwrap(), "renamed"]);
    let Some(found) = reader::check(&dir.store()) else {
        return;
    };
    assert_eq!(found["foreign"], serde_json::json!([]));
    assert_eq!(found["incoming"], serde_json::json!([]));
    assert_eq!(found["current"], dir.current().trim_end());
    let latest = found["lineages"][0]["checkpoints"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    assert_same(&tree::snapshot(&dir.tree()), &snapshot_of(latest));
}

/// A reader that accepts everything would prove nothing.
#[test]
fn the_second_reader_notices_damage() {
    let (dir, _genstore) = store();
    if reader::check(&dir.store()).is_none() {
        return;
    }
    let pack = dir.packs().remove(0);
    let bytes = fs::read(&pack).unwrap();
    for at in [0, 20, bytes.len() / 2, bytes.len() - 90, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        replace(&pack, &flipped);
        assert!(
            reader::run([dir.store()]).unwrap().is_err(),
            "a flipped bit at {at} was not noticed"
        );
    }
    replace(&pack, &bytes);
    assert!(reader::run([dir.store()]).unwrap().is_ok());
    let manifest = dir.live().join("manifest.json");
    let good = fs::read(&manifest).unwrap();
    replace(&manifest, &[&good[..], b"\n"].concat());
    assert!(reader::run([dir.store()]).unwrap().is_err());
}

fn replace(path: &std::path::Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
    genstore_tests::dir::chmod(path, 0o400);
}

#[test]
fn the_second_reader_uses_nothing_of_genstore() {
    let text =
        fs::read_to_string(genstore_tests::source::workspace().join("tests/format/reader.py"))
            .unwrap();
    let allowed = [
        "array",
        "ctypes",
        "ctypes.util",
        "json",
        "os",
        "re",
        "stat",
        "struct",
        "sys",
    ];
    for line in text
        .lines()
        .filter(|line| line.starts_with("import ") || line.starts_with("from "))
    {
        let module = line.split_whitespace().nth(1).unwrap();
        assert!(allowed.contains(&module), "{line}");
    }
    assert!(!text.contains("subprocess") && !text.contains("os.system"));
}
