//! `activate` and `undo`: nothing existing changes, readers never notice, nothing newer is dropped silently.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use genstore_tests::dir::copy_dir;
use genstore_tests::tree::Frozen;
use genstore_tests::{Dir, Genstore, Over, reader};
use serde_json::Value;
use store_core::StoreOptions;

use crate::{checkpoint, store, text};

/// A copy of the live generation outside of the store: a candidate that is whole.
pub(crate) fn candidate(dir: &Dir, name: &str) -> PathBuf {
    let to = dir.path(name);
    copy_dir(&dir.live(), &to);
    to
}

fn ids(genstore: &Genstore) -> Vec<String> {
    let log = genstore.json(["log", "--all"]);
    log["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| text(&row["id"]))
        .collect()
}

#[test]
fn activating_a_directory_changes_nothing_that_exists() {
    let (dir, genstore) = store();
    let candidate = candidate(&dir, "candidate");
    dir.write("a.txt", "changed\n");
    checkpoint(&genstore);
    let (kept, was) = (
        Frozen::of(&dir.store()).only(&["generations/"]),
        Frozen::of(&candidate),
    );
    let replaced = dir.current();
    let done = genstore.json(["activate", candidate.to_str().unwrap(), "--leave-behind"]);
    assert_eq!(
        done["left_behind"].as_array().map(Vec::len),
        Some(1),
        "{done}"
    );
    assert_eq!(format!("{}\n", text(&done["generation"])), dir.current());
    assert_eq!(format!("{}\n", text(&done["previous"])), replaced);
    was.assert_unchanged(&Frozen::of(&candidate), "the candidate");
    kept.assert_kept_in(&Frozen::of(&dir.store()));
    assert_eq!(ids(&genstore).len(), 1);
    assert_eq!(genstore.json(["verify"])["ok"], true);
    assert_eq!(
        fs::read_dir(dir.store().join("incoming")).unwrap().count(),
        0
    );
    reader::check(&dir.store());
}

#[test]
fn what_the_candidate_lacks_is_listed_and_refused() {
    let (dir, genstore) = store();
    let candidate = candidate(&dir, "candidate");
    dir.write("a.txt", "changed\n");
    let newer = checkpoint(&genstore);
    let before = Frozen::of(&dir.store()).without_notes();
    let ran = genstore
        .run(["activate", candidate.to_str().unwrap(), "--json"])
        .exit(8);
    assert_eq!(ran.error().code, "left_behind");
    assert!(
        ran.out().contains(&newer[..12]),
        "what is left behind is named: {ran}"
    );
    assert!(ran.error().hint.contains("--leave-behind"), "{ran}");
    before.assert_unchanged(
        &Frozen::of(&dir.store()).without_notes(),
        "a refused activation",
    );
    assert_eq!(ids(&genstore).len(), 2);
}

#[test]
fn the_live_generation_is_already_active() {
    let (dir, genstore) = store();
    let live = dir.current();
    let generation = live.trim_end();
    for target in [
        generation.to_owned(),
        dir.live().to_str().unwrap().to_owned(),
    ] {
        let ran = genstore.ok(["activate", &target]);
        assert!((ran.out() + &ran.err()).contains("already active"), "{ran}");
        assert_eq!(dir.current(), live);
    }
    let candidate = candidate(&dir, "candidate");
    let target = candidate.to_str().unwrap();
    genstore.json(["activate", target]);
    let activated = dir.current();
    assert_ne!(
        activated, live,
        "a copy of the live generation elsewhere is activated: the live one may be damaged"
    );
    let ran = genstore.ok(["activate", target]);
    assert!((ran.out() + &ran.err()).contains("already active"), "{ran}");
    assert_eq!(dir.current(), activated);
}

#[test]
fn what_is_no_candidate_is_refused_before_anything_is_written() {
    let (dir, genstore) = store();
    let whole = candidate(&dir, "whole");
    let no_candidates: Vec<(&str, PathBuf)> = vec![
        ("nothing", dir.path("nowhere")),
        ("an empty directory", {
            fs::create_dir(dir.path("hollow")).unwrap();
            dir.path("hollow")
        }),
        ("a file", dir.tree().join("a.txt")),
        ("a symlink to a candidate", {
            symlink(&whole, dir.path("link")).unwrap();
            dir.path("link")
        }),
        (
            "a foreign file",
            with(&dir, "foreign", |at| {
                fs::write(at.join("notes.txt"), "x").unwrap();
            }),
        ),
        (
            "a missing pack",
            with(&dir, "lacking", |at| fs::remove_file(a_pack(at)).unwrap()),
        ),
        (
            "a shorter pack",
            with(&dir, "shorter", |at| {
                let bytes = fs::read(a_pack(at)).unwrap();
                rewrite(&a_pack(at), &bytes[..bytes.len() - 1]);
            }),
        ),
        (
            "a flipped bit in a pack",
            with(&dir, "flipped", |at| {
                let mut bytes = fs::read(a_pack(at)).unwrap();
                bytes[20] ^= 1;
                rewrite(&a_pack(at), &bytes);
            }),
        ),
        (
            "a pack that is a symlink",
            with(&dir, "linked", |at| {
                let pack = a_pack(at);
                fs::rename(&pack, at.with_extension("pack")).unwrap();
                symlink(at.with_extension("pack"), pack).unwrap();
            }),
        ),
        (
            "a flipped bit in the manifest",
            with(&dir, "manifest", |at| {
                let path = at.join("manifest.json");
                let mut bytes = fs::read(&path).unwrap();
                bytes[10] ^= 1;
                rewrite(&path, &bytes);
            }),
        ),
    ];
    for (what, path) in no_candidates {
        let before = Frozen::of(&dir.store()).without_notes();
        let current = dir.current();
        let ran = genstore.run(["activate", path.to_str().unwrap(), "--json"]);
        let code = ran.status.code().unwrap();
        assert!([1, 2, 4, 7, 8].contains(&code), "{what}: {ran}");
        ran.error();
        assert_eq!(dir.current(), current, "{what}");
        let receipts = Frozen::of(&dir.store()).without_notes();
        before.assert_kept_in(&receipts);
        assert_eq!(
            fs::read_dir(dir.store().join("incoming")).unwrap().count(),
            0,
            "{what}"
        );
    }
}

fn with(dir: &Dir, name: &str, change: impl FnOnce(&std::path::Path)) -> PathBuf {
    let at = candidate(dir, name);
    change(&at);
    at
}

fn a_pack(at: &std::path::Path) -> PathBuf {
    let mut packs: Vec<_> = fs::read_dir(at)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pack"))
        .collect();
    packs.sort();
    packs.remove(0)
}

fn rewrite(path: &std::path::Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn another_stores_candidate_needs_a_word() {
    let (dir, genstore) = store();
    let (other, _) = store();
    let theirs = candidate(&other, "candidate");
    let theirs = theirs.to_str().unwrap();
    let failed = genstore.fails(8, ["activate", theirs, "--leave-behind"]);
    assert!(
        failed.hint.contains("--foreign") || failed.message.contains("--foreign"),
        "{failed:?}"
    );
    genstore.json(["activate", theirs, "--leave-behind", "--foreign"]);
    assert_eq!(genstore.json(["verify"])["ok"], true);
    drop(dir);
}

#[test]
fn readers_see_no_error_through_a_hundred_activations() {
    let (dir, genstore) = store();
    let first = dir.current().trim_end().to_owned();
    dir.write("a.txt", "changed\n");
    checkpoint(&genstore);
    let second = dir.current().trim_end().to_owned();
    let (over, reads) = (Over::default(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| read_until(&dir, &over, &reads));
        }
        scope.spawn(|| {
            while !over.is_set() {
                let ran = genstore.ok(["log", "--all", "--json"]);
                assert!(
                    matches!(
                        ran.json()["checkpoints"].as_array().map(Vec::len),
                        Some(1 | 2)
                    ),
                    "{ran}"
                );
            }
        });
        over.after(|| {
            for round in 0..100 {
                let target = if round % 2 == 0 { &first } else { &second };
                genstore.json(["activate", target, "--leave-behind"]);
            }
        });
    });
    assert!(reads.load(Ordering::Relaxed) > 100);
    assert_eq!(genstore.json(["verify"])["ok"], true);
    assert_eq!(ids(&genstore).len(), 2);
}

/// Resolves in a loop, through one handle, and reads a file each time.
fn read_until(dir: &Dir, over: &Over, reads: &AtomicUsize) {
    let store = StoreOptions::new().open(&dir.store()).unwrap();
    while !over.is_set() {
        let view = store.view().unwrap();
        let lineage = view.lineages().unwrap().remove(0);
        let checkpoint = view.find("latest", Some(&lineage.name)).unwrap();
        let mut content = Vec::new();
        let mut keep = |bytes: &[u8]| {
            content.extend_from_slice(bytes);
            Ok(())
        };
        view.cat(&checkpoint, b"a.txt", &mut keep).unwrap();
        assert!(
            content == b"first\n" || content == b"changed\n",
            "{}",
            content.escape_ascii()
        );
        reads.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn two_activations_at_once_come_in_turn_or_one_is_busy() {
    let (dir, genstore) = store();
    let one = candidate(&dir, "one");
    let two = candidate(&dir, "two");
    let children: Vec<_> = [one, two]
        .iter()
        .map(|at| {
            genstore
                .command(["activate", at.to_str().unwrap(), "--json"])
                .spawn()
                .unwrap()
        })
        .collect();
    let codes: Vec<_> = children
        .into_iter()
        .map(|child| child.wait_with_output().unwrap().status.code())
        .collect();
    assert!(
        codes.iter().all(|code| matches!(code, Some(0 | 6))) && codes.contains(&Some(0)),
        "{codes:?}"
    );
    assert_eq!(genstore.json(["verify"])["ok"], true);
}

#[test]
fn undo_drops_a_checkpoint_and_redo_brings_it_back() {
    let (dir, genstore) = store();
    let first = ids(&genstore);
    dir.write("a.txt", "changed\n");
    let second = checkpoint(&genstore);
    let ran = genstore.ok(["undo"]);
    assert!(
        (ran.out() + &ran.err()).contains("checkpoint"),
        "it says what it undoes: {ran}"
    );
    assert_eq!(ids(&genstore), first);
    genstore.json(["undo"]);
    assert_eq!(
        ids(&genstore),
        [second.clone(), first[0].clone()],
        "undo of undo is redo"
    );
    genstore.ok(["cat", &second, "a.txt"]);
    assert_eq!(genstore.json(["verify"])["ok"], true);
    reader::check(&dir.store());
    // Its number is never used again.
    let numbers: Vec<_> = numbers(&genstore);
    dir.write("a.txt", "once more\n");
    checkpoint(&genstore);
    let later = self::numbers(&genstore);
    assert!(later[0] > numbers[0], "{later:?} after {numbers:?}");
}

fn numbers(genstore: &Genstore) -> Vec<u64> {
    let log = genstore.json(["log", "--all"]);
    log["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["number"].as_u64().unwrap())
        .collect()
}

#[test]
fn undo_answers_an_activation_with_what_it_replaced() {
    let (dir, genstore) = store();
    let candidate = candidate(&dir, "candidate");
    dir.write("a.txt", "changed\n");
    checkpoint(&genstore);
    let before = ids(&genstore);
    genstore.json(["activate", candidate.to_str().unwrap(), "--leave-behind"]);
    assert_eq!(ids(&genstore).len(), 1);
    genstore.json(["undo"]);
    assert_eq!(ids(&genstore), before);
    assert_eq!(genstore.json(["verify"])["ok"], true);
    reader::check(&dir.store());
}

#[test]
fn undo_of_small_changes() {
    let (dir, genstore) = store();
    let id = ids(&genstore).remove(0);
    let row = |genstore: &Genstore| genstore.json(["show", &id]);
    for args in [
        &["tag", "latest", "v1"][..],
        &["pin", "latest"],
        &["note", "latest", "remember"],
    ] {
        let before = row(&genstore);
        genstore.ok(args);
        assert_ne!(
            without_generation(row(&genstore)),
            without_generation(before.clone()),
            "{args:?}"
        );
        genstore.ok(["undo"]);
        assert_eq!(
            without_generation(row(&genstore)),
            without_generation(before),
            "{args:?}"
        );
    }
    let name = dir.tree();
    let lineages = || genstore.json(["lineage", "list"])["lineages"].clone();
    let before = lineages();
    genstore.ok([
        "lineage",
        "archive",
        name.to_str().unwrap(),
        "--reason",
        "done",
    ]);
    assert_ne!(lineages(), before);
    genstore.ok(["undo"]);
    assert_eq!(lineages(), before);
    reader::check(&dir.store());
}

fn without_generation(mut value: Value) -> Value {
    value["generation"] = Value::Null;
    value
}

#[test]
fn what_cannot_be_undone_says_why() {
    let (dir, genstore) = crate::fixture();
    genstore.ok(["init"]);
    let failed = genstore.fails(1, ["undo"]);
    assert_eq!(failed.code, "undo_unavailable", "{failed:?}");
    drop(dir);
}

#[test]
fn another_lineages_operation_has_to_be_named() {
    let (dir, genstore) = store();
    let other = dir.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "x").unwrap();
    let elsewhere = genstore.clone().within(&other);
    let first = dir.current();
    checkpoint(&elsewhere);
    let generation = dir.current().trim_end().to_owned();
    let failed = genstore.fails(8, ["undo"]);
    assert!(
        failed.hint.contains(&generation),
        "the hint names it: {failed:?}"
    );
    genstore.json(["undo", &generation]);
    assert_ne!(dir.current(), first);
    assert_eq!(ids(&genstore).len(), 1);
}
