//! Real input: thousands of real files there and back, and what one changed file costs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use genstore_tests::dir::{chmod, disk_bytes, set_mtime};
use genstore_tests::tree::{Frozen, assert_same, snapshot};
use genstore_tests::{Dir, Genstore, machine, reader};

use crate::{GENSTORE, text};

/// What one changed file may cost on disk, directories and links included.
const COST_OF_ONE_CHANGE: u64 = 64 << 10;

/// Everything is captured: real trees hold directories that the default rules leave out.
const ALL: &str = "--no-default-ignores";

#[test]
fn a_real_tree_comes_back_exactly() {
    let (dir, memory) = (Dir::new(), machine::quick_directory());
    let tree = memory.path();
    let genstore = dir.genstore(GENSTORE).within(tree);
    let files = machine::real_tree(tree, 5_000);
    add_rarities(tree);

    let made = genstore.json(["checkpoint", ALL, "-m", "a real tree"]);
    assert_eq!(made["complete"], true, "{made}");
    assert_eq!(made["left_out"].as_array().map(Vec::len), Some(0), "{made}");
    assert!(
        made["counts"]["files"].as_u64().unwrap() + made["counts"]["links"].as_u64().unwrap()
            >= files as u64
    );

    let out = dir.path("out");
    genstore.json(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_same(&snapshot(tree), &snapshot(&out));
    assert_eq!(genstore.json(["verify"])["ok"], true);

    unchanged_makes_no_generation(&dir, &genstore);
    one_change_is_cheap(&dir, &genstore, &a_file_of(tree));
}

/// What a registry may not hold: empty directories, links of every kind, odd modes and times.
fn add_rarities(tree: &Path) {
    let write = |name: &str, content: &str| {
        let path = tree.join("rare").join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let empty = tree.join("rare/empty");
    fs::create_dir_all(empty.join("deep")).unwrap();
    chmod(&write("private", "secret"), 0o600);
    chmod(&write("setuid", "#!/bin/sh\n"), 0o4755);
    // Only root can read what nobody may.
    chmod(
        &write("closed", "nothing allowed"),
        if machine::is_root() { 0 } else { 0o400 },
    );
    write("zero", "");
    set_mtime(&write("precise", "x"), 1_234_567_890, 123_456_789);
    symlink("nowhere at all", tree.join("rare/dangling")).unwrap();
    symlink("..", tree.join("rare/up")).unwrap();
    symlink("/", tree.join("rare/root")).unwrap();
    set_mtime(&tree.join("rare/up"), 1_000_000_000, 7);
    chmod(&empty, 0o711);
    set_mtime(&empty, 1_111_111_111, 999_999_999);
    set_mtime(tree, 1_222_222_222, 1);
}

fn unchanged_makes_no_generation(dir: &Dir, genstore: &Genstore) {
    let current = dir.current();
    let before = Frozen::of(&dir.store()).without_notes();
    let again = genstore.json(["checkpoint", ALL]);
    assert_eq!(again["created"], false, "{again}");
    assert_eq!(dir.current(), current);
    before.assert_unchanged(
        &Frozen::of(&dir.store()).without_notes(),
        "an unchanged checkpoint",
    );
    let rehashed = genstore.json(["checkpoint", ALL, "--rehash"]);
    assert_eq!(rehashed["created"], false, "{rehashed}");
    assert_eq!(rehashed["id"], again["id"]);
}

fn one_change_is_cheap(dir: &Dir, genstore: &Genstore, file: &Path) {
    // Its cache is there already, and none of it is racy any more.
    genstore.json(["checkpoint", ALL]);
    for round in 0..3 {
        let before = disk_bytes(&dir.store());
        fs::write(file, format!("changed {round}\n")).unwrap();
        let made = genstore.json(["checkpoint", ALL]);
        assert_eq!(made["created"], true, "{made}");
        let cost = disk_bytes(&dir.store()).saturating_sub(before);
        assert!(
            cost <= COST_OF_ONE_CHANGE,
            "one changed file costs {cost} bytes of disk in round {round}: {made}"
        );
    }
}

fn a_file_of(tree: &Path) -> std::path::PathBuf {
    walkdir::WalkDir::new(tree)
        .min_depth(3)
        .into_iter()
        .map(Result::unwrap)
        .find(|entry| entry.file_type().is_file() && entry.metadata().unwrap().len() > 100)
        .unwrap()
        .into_path()
}

#[test]
fn one_changed_file_among_80_000_is_cheap() {
    let dir = Dir::new();
    let tree = machine::quick_directory();
    let genstore = dir.genstore(GENSTORE).within(tree.path());
    machine::many_files(tree.path(), 800, 100);
    let made = genstore.json(["checkpoint", ALL]);
    assert_eq!(made["counts"]["files"], 80_000, "{made}");
    unchanged_makes_no_generation(&dir, &genstore);
    one_change_is_cheap(&dir, &genstore, &tree.path().join("d0400/f050"));
    assert_eq!(genstore.json(["verify"])["ok"], true);
}

#[test]
fn the_second_reader_finds_the_same_tree_in_the_store() {
    let dir = Dir::new();
    let genstore = dir.genstore(GENSTORE);
    machine::real_tree(&dir.tree(), 300);
    add_rarities(&dir.tree());
    // More than one chunk: a file that is cut, and one chunk list.
    dir.write(
        "large",
        genstore_tests::random::Random::new(7).bytes(5 << 20),
    );
    dir.write("repeats", "the same line\n".repeat(200_000));
    let made = genstore.json([
        "checkpoint",
        ALL,
        "--tag",
        "v1",
        "-m",
        "read by another program",
    ]);
    let Some(found) = reader::check(&dir.store()) else {
        return;
    };
    assert_eq!(
        found["foreign"].as_array().map(Vec::len),
        Some(0),
        "{}",
        found["foreign"]
    );
    let checkpoint = &found["lineages"][0]["checkpoints"][0];
    assert_eq!(checkpoint["id"], made["id"]);
    assert_eq!(checkpoint["tags"][0], "v1");
    assert_eq!(
        checkpoint["message"],
        text(&serde_json::Value::from(hex(b"read by another program")))
    );
    assert_same(&snapshot(&dir.tree()), &snapshot_of(checkpoint));
}

fn hex(bytes: &[u8]) -> String {
    store_core::id::to_hex(bytes)
}

/// What the second reader found in a checkpoint, in the form of a snapshot.
pub(crate) fn snapshot_of(checkpoint: &serde_json::Value) -> genstore_tests::tree::Snapshot {
    let entries = checkpoint["entries"].as_object().unwrap();
    let mut found: genstore_tests::tree::Snapshot = entries
        .iter()
        .map(|(path, meta)| (crate::unhex(path), meta_of(meta)))
        .collect();
    let mut root = checkpoint["root"].clone();
    root["kind"] = "dir".into();
    found.insert(Vec::new(), meta_of(&root));
    found
}

fn meta_of(meta: &serde_json::Value) -> genstore_tests::tree::Meta {
    let kind = match meta["kind"].as_str().unwrap() {
        "file" => "file",
        "dir" => "dir",
        _ => "link",
    };
    // Where nothing is stored (an empty file has no content, a link no mode that counts) the file system's own word is used.
    genstore_tests::tree::Meta {
        kind,
        mode: u32::try_from(meta["mode"].as_u64().unwrap()).unwrap(),
        mtime: (
            meta["mtime"][0].as_i64().unwrap(),
            meta["mtime"][1].as_i64().unwrap(),
        ),
        size: meta["size"].as_u64().unwrap_or(0),
        content: (kind == "file").then(|| text(&meta["blake3"])),
        target: meta["target"].as_str().map(crate::unhex),
    }
}
