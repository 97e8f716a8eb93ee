//! Verify and repair: damage is named by checkpoint and path, spares everything else, and heals where the source still has the content.

use std::fs;
use std::path::{Path, PathBuf};

use genstore_tests::random::Random;
use genstore_tests::tree::{assert_same, snapshot};
use genstore_tests::{Dir, Genstore};
use serde_json::Value;

use crate::{checkpoint, fixture, name, store, text};

fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
    genstore_tests::dir::chmod(path, 0o400);
}

/// Too much for a pack to be merged on a checkpoint's path: it stays in the pack that it came in.
const LARGE: usize = 9 << 20;

fn one() -> Vec<u8> {
    Random::new(1).bytes(LARGE)
}

fn two() -> Vec<u8> {
    Random::new(2).bytes(300_000)
}

/// The id of the second of them.
fn second(genstore: &Genstore) -> String {
    let log = genstore.json(["log"]);
    let row = log["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["number"] == 2)
        .unwrap();
    text(&row["id"])
}

/// Three checkpoints. The second brought `one.bin`, whose content does not compress; its pack holds that, the second checkpoint's own
/// record and tree, and nothing else that the third needs.
fn with_content() -> (Dir, Genstore) {
    let (dir, genstore) = fixture();
    dir.write("two.bin", two());
    checkpoint(&genstore);
    dir.write("one.bin", one());
    checkpoint(&genstore);
    dir.write("a.txt", "third\n");
    checkpoint(&genstore);
    (dir, genstore)
}

/// The pack that holds these bytes, and where in it.
fn find(dir: &Dir, bytes: &[u8]) -> (PathBuf, usize) {
    let needle = &bytes[1000..1100];
    dir.packs()
        .into_iter()
        .find_map(|pack| {
            let content = fs::read(&pack).unwrap();
            content
                .windows(needle.len())
                .position(|window| window == needle)
                .map(|at| (pack, at))
        })
        .expect("the content is stored as it is")
}

fn flip_in(dir: &Dir, bytes: &[u8]) {
    let (pack, at) = find(dir, bytes);
    let mut content = fs::read(&pack).unwrap();
    content[at] ^= 1;
    replace(&pack, &content);
}

/// The damaged paths of checkpoints (rows without a checkpoint are about the store's own files).
fn damaged_paths(report: &Value) -> Vec<Vec<u8>> {
    let rows = report["damage"].as_array().unwrap().iter();
    let mut paths: Vec<_> = rows
        .filter(|row| !row["checkpoint"].is_null() && !row["path"].is_null())
        .map(|row| name(&row["path"]))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[test]
fn case_084_one_flipped_byte_costs_one_file() {
    let (dir, genstore) = with_content();
    flip_in(&dir, &one());
    let report = genstore.json_exit(4, ["verify"]);
    assert_eq!(damaged_paths(&report), [b"one.bin".to_vec()], "{report}");
    // The others are whole, and the bad one is never handed out.
    let out = dir.path("out");
    let ran = genstore.run(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert!(matches!(ran.status.code(), Some(3 | 4)), "{ran}");
    let ran = genstore.run(["cat", "latest", "one.bin"]);
    assert_eq!(ran.status.code(), Some(4), "{ran}");
    assert!(
        ran.stdout.len() < LARGE && !ran.stdout.windows(64).any(|bytes| bytes == [0; 64]),
        "nothing is invented"
    );
    let whole = dir.path("whole");
    genstore.ok([
        "restore",
        "latest",
        "--to",
        whole.to_str().unwrap(),
        "two.bin",
    ]);
    assert_eq!(fs::read(whole.join("two.bin")).unwrap(), two());
    genstore.ok(["cat", "latest", "a.txt"]);
    // One flipped byte in the manifest: the selector says so.
    let manifest = dir.live().join("manifest.json");
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[30] ^= 1;
    replace(&manifest, &bytes);
    assert_eq!(genstore.fails(5, ["log"]).code, "manifest_mismatch");
}

#[test]
fn case_083_damage_names_checkpoint_path_and_what_to_run() {
    let (dir, genstore) = with_content();
    let id = text(&genstore.json(["show", "latest"])["id"]);
    flip_in(&dir, &two());
    let report = genstore.json_exit(4, ["verify"]);
    let row = report["damage"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["checkpoint"] == id.as_str())
        .unwrap();
    assert_eq!(name(&row["path"]), b"two.bin", "{report}");
    let said = genstore.run(["verify"]).exit(4);
    let words = said.out() + &said.err();
    for needed in ["two.bin", &id[..8], "genstore "] {
        assert!(words.contains(needed), "{needed} is missing: {said}");
    }
}

#[test]
fn case_095_a_file_changed_inside_the_store_is_named() {
    let (dir, genstore) = with_content();
    let second = second(&genstore);
    let (pack, _) = find(&dir, &one());
    let mut bytes = fs::read(&pack).unwrap();
    bytes.extend_from_slice(b"edited in place");
    replace(&pack, &bytes);
    let report = genstore.json_exit(4, ["verify"]);
    assert!(
        damaged_paths(&report).contains(&b"one.bin".to_vec()),
        "{report}"
    );
    let said = genstore.run(["verify"]).exit(4).out();
    assert!(said.contains("one.bin"), "{said}");
    // The work tree still has it: the next checkpoint writes it again.
    heals(&dir, &genstore, &second);
}

/// The next checkpoint of the same tree writes again what the store lacks: the latest and the first checkpoint are whole.
/// The second one's own record went with its pack; only that stays damaged, and is named.
fn heals(dir: &Dir, genstore: &Genstore, second: &str) {
    let made = genstore.json(["checkpoint"]);
    assert!(made["healed"].as_u64().unwrap() > 0, "{made}");
    let out = dir.path("healed");
    genstore.ok(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_same(&snapshot(&dir.tree()), &snapshot(&out));
    let first = dir.path("first");
    genstore.ok(["restore", "first", "--to", first.to_str().unwrap()]);
    let report = genstore.run(["verify", "--json"]).json();
    let rows = report["damage"].as_array().unwrap();
    assert!(
        rows.iter()
            .all(|row| row["checkpoint"].is_null() || row["checkpoint"] == second),
        "{report}"
    );
}

#[test]
fn case_089_a_lost_object_is_written_again_and_old_checkpoints_heal() {
    let (dir, genstore) = with_content();
    let second = second(&genstore);
    let (pack, _) = find(&dir, &one());
    fs::remove_file(pack).unwrap();
    heals(&dir, &genstore, &second);
}

#[test]
fn case_112_a_lost_object_of_an_earlier_state_is_not_assumed_present() {
    let (dir, genstore) = with_content();
    let second = second(&genstore);
    // It is only an earlier checkpoint's; then the same content comes back under another name.
    fs::remove_file(dir.tree().join("one.bin")).unwrap();
    checkpoint(&genstore);
    let (pack, _) = find(&dir, &one());
    for generation in fs::read_dir(dir.store().join("generations")).unwrap() {
        let copy = generation.unwrap().path().join(pack.file_name().unwrap());
        if copy.exists() {
            fs::remove_file(copy).unwrap();
        }
    }
    dir.write("again.bin", one());
    heals(&dir, &genstore, &second);
    // The third checkpoint, which relied on the lost pack too, has its content back.
    assert_eq!(genstore.ok(["cat", "latest~2", "one.bin"]).stdout, one());
}

#[test]
fn case_006_a_store_without_one_of_its_directories_heals() {
    for missing in ["incoming", "cache", "receipts", "turns", "jobs"] {
        let (dir, genstore) = store();
        fs::remove_dir_all(dir.store().join(missing)).unwrap();
        dir.write("a.txt", missing);
        let ran = genstore.run(["checkpoint", "--json"]);
        assert_eq!(ran.status.code(), Some(0), "without {missing}: {ran}");
        assert_eq!(genstore.ok(["cat", "latest", "a.txt"]).out(), missing);
    }
    // The one that holds everything is not made up: absence is not emptiness.
    let (dir, genstore) = store();
    fs::rename(dir.store().join("generations"), dir.path("taken")).unwrap();
    let ran = genstore.run(["checkpoint"]).exit(5).one_clear_line();
    assert!(ran.err().contains("hint:"), "{ran}");
    genstore.run(["status"]).exit(5);
    assert!(!dir.store().join("generations").exists());
}

#[test]
fn case_007_a_marker_file_is_not_enough() {
    let (dir, genstore) = with_content();
    // Everything is there but the objects.
    for pack in dir.packs() {
        fs::remove_file(pack).unwrap();
    }
    let report = genstore.json_exit(4, ["verify"]);
    assert_eq!(report["ok"], false);
    for quick in [&["verify", "--quick"][..], &["verify"]] {
        genstore.run(quick).exit(4);
    }
    let ran = genstore.run(["status"]);
    assert!(
        matches!(ran.status.code(), Some(0 | 4 | 5)),
        "status still reports: {ran}"
    );
    assert!(
        dir.live().join("manifest.json").exists(),
        "what is left is kept"
    );
}

#[test]
fn case_118_missing_data_is_an_error_everywhere() {
    let (dir, genstore) = with_content();
    let (pack, _) = find(&dir, &one());
    fs::remove_file(pack).unwrap();
    let report = genstore.json_exit(4, ["verify"]);
    assert!(
        damaged_paths(&report).contains(&b"one.bin".to_vec()),
        "{report}"
    );
    let out = dir.path("out");
    let ran = genstore.run(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_eq!(ran.status.code(), Some(4), "{ran}");
    assert!(
        (ran.out() + &ran.err()).contains("one.bin"),
        "the path is named: {ran}"
    );
    assert!(
        !out.exists() || fs::read_dir(&out).unwrap().count() == 0,
        "nothing is written before all is known to be there"
    );
    genstore.run(["cat", "latest", "one.bin"]).exit(4);
}
