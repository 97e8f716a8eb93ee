//! Faults that were found by breaking, using and reading the product, each with its right value.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use genstore_tests::tree::snapshot;
use genstore_tests::{Dir, Genstore};

use crate::{checkpoint, fixture, store, text};

/// Flips one bit of a published file: `at` counts from the end where it is negative.
fn flip(path: &Path, at: i64) {
    let mut bytes = fs::read(path).unwrap();
    let length = i64::try_from(bytes.len()).unwrap();
    let place = usize::try_from(if at < 0 { length + at } else { at }).unwrap();
    bytes[place] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The largest pack of the live generation: the one with the data.
fn data_pack(dir: &Dir) -> PathBuf {
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    dir.packs().into_iter().max_by_key(size).unwrap()
}

fn restore_in_place(dir: &Dir, genstore: &Genstore, id: &str) -> genstore_tests::Ran {
    let to = dir.tree();
    genstore.run([
        "restore",
        id,
        "--to",
        to.to_str().unwrap(),
        "--delete",
        "--yes",
    ])
}

/// The latest checkpoint comes back exactly as the tree is.
fn assert_restored(dir: &Dir, genstore: &Genstore, out: &str) {
    let to = dir.path(out);
    let _done = genstore.ok(["restore", "latest", "--to", to.to_str().unwrap()]);
    let (expected, found) = (snapshot(&dir.tree()), snapshot(&to));
    genstore_tests::tree::assert_same(&expected, &found);
}

#[test]
fn a_healed_pack_may_have_the_id_of_the_lost_one() {
    // One thread and a small tree: what is captured again is packed to the very same bytes.
    let (dir, genstore) = fixture();
    dir.write("noise", genstore_tests::random::Random::new(3).bytes(5_000));
    let first = genstore.json(["checkpoint", "--threads", "1"]);
    fs::remove_file(data_pack(&dir)).unwrap();
    let healed = genstore.json(["checkpoint", "--threads", "1"]);
    assert_eq!(
        (&healed["id"], &healed["created"]),
        (&first["id"], &true.into())
    );
    assert_eq!(genstore.json(["verify"])["ok"], true);
    assert_restored(&dir, &genstore, "out");
    assert_eq!(genstore.json(["checkpoint"])["created"], false);
}

#[test]
fn one_flipped_bit_of_an_index_stops_no_commit() {
    for at in [3, -5, -60] {
        let (dir, genstore) = store();
        let mut commits = 0;
        for pack in dir.packs() {
            let whole = fs::read(&pack).unwrap();
            flip(&pack, at);
            // The catalog's newest pack cannot be written again from the source: that is for `repair`.
            let readable = genstore.run(["log"]).status.success();
            if readable {
                dir.write("a.txt", format!("{at} {}\n", pack.display()));
                let made = genstore.json(["checkpoint"]);
                assert_eq!(made["complete"], true, "{at} {}", pack.display());
                assert_restored(&dir, &genstore, &format!("out{at}{}", made["id"]));
                commits += 1;
            }
            if let Some(name) = pack.file_name().map(|name| dir.live().join(name))
                && fs::symlink_metadata(&name).is_ok()
            {
                fs::remove_file(&name).unwrap();
                fs::write(&name, whole).unwrap();
            }
        }
        assert!(commits >= 2, "init's pack and the data's are of that kind");
    }
}

#[test]
fn rehash_writes_again_what_lies_damaged_at_its_full_size() {
    let (dir, genstore) = fixture();
    dir.write(
        "noise",
        genstore_tests::random::Random::new(7).bytes(50_000),
    );
    checkpoint(&genstore);
    flip(&data_pack(&dir), 2_000);
    let _damage = genstore.run(["verify"]).exit(4);
    let healed = genstore.json(["checkpoint", "--rehash"]);
    assert!(healed["healed"].as_u64().unwrap() > 0, "{healed}");
    assert_restored(&dir, &genstore, "out");
}

#[test]
fn init_takes_over_nobodys_directory() {
    let (dir, genstore) = fixture();
    let place = dir.path("someone");
    fs::create_dir_all(place.join("cache")).unwrap();
    fs::write(place.join(".gitignore"), "target\n").unwrap();
    fs::write(place.join("cache/user"), "precious").unwrap();
    let before = snapshot(&place);
    let failed = genstore.on(&place).fails(8, ["init"]);
    assert_eq!(failed.code, "not_a_store");
    genstore_tests::tree::assert_same(&before, &snapshot(&place));
}

#[test]
fn init_finishes_no_store_that_lost_its_selector() {
    let (dir, genstore) = store();
    let live = dir.live();
    for entry in fs::read_dir(dir.store().join("generations")).unwrap() {
        let path = entry.unwrap().path();
        if path != live {
            fs::remove_dir_all(path).unwrap();
        }
    }
    fs::remove_file(dir.store().join("CURRENT")).unwrap();
    fs::write(dir.store().join("LOCK"), "").unwrap();
    let manifest = fs::read(live.join("manifest.json")).unwrap();
    let torn = manifest[..100].to_vec();
    let mut flipped = manifest.clone();
    flipped[5] ^= 1;
    for broken in [Some(flipped), Some(torn), Some(manifest), None] {
        fs::remove_file(live.join("manifest.json")).ok();
        if let Some(bytes) = &broken {
            fs::write(live.join("manifest.json"), bytes).unwrap();
        }
        let packs = dir_names(&live);
        let failed = genstore.fails(5, ["init"]);
        assert_eq!(failed.code, "selector_missing");
        assert_eq!(dir_names(&live), packs);
    }
}

fn dir_names(path: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    names
}

#[test]
fn delete_removes_nothing_while_rules_cannot_be_read() {
    let ways: [fn(&Dir); 3] = [
        |dir| {
            fs::rename(dir.tree().join(".genstoreignore"), dir.path("aside")).unwrap();
            symlink(dir.path("aside"), dir.tree().join(".genstoreignore")).unwrap();
        },
        |dir| {
            let mut rules = fs::read(dir.tree().join(".genstoreignore")).unwrap();
            rules.resize(1_100_000, b'#');
            dir.write(".genstoreignore", rules);
        },
        |dir| {
            fs::remove_file(dir.tree().join(".genstoreignore")).unwrap();
            let made = Command::new("mkfifo")
                .arg(dir.tree().join(".genstoreignore"))
                .status();
            assert!(made.unwrap().success());
        },
    ];
    for spoil in ways {
        let (dir, genstore) = store();
        let first = text(&genstore.json(["log"])["checkpoints"][0]["id"]);
        dir.write("x.log", "never captured");
        dir.write("kept/deep", "never captured");
        dir.write(".genstoreignore", "*.log\nkept/\n");
        spoil(&dir);
        let ran = restore_in_place(&dir, &genstore, &first)
            .exit(8)
            .one_clear_line();
        assert!(ran.err().contains(".genstoreignore"), "{ran}");
        assert_eq!(
            fs::read(dir.tree().join("x.log")).unwrap(),
            b"never captured"
        );
        assert_eq!(
            fs::read(dir.tree().join("kept/deep")).unwrap(),
            b"never captured"
        );
    }
}

#[test]
fn delete_run_twice_spares_the_same() {
    let (dir, genstore) = store();
    dir.write("x.log", "never captured");
    dir.write(".genstoreignore", "*.log\n");
    for _ in 0..2 {
        let _done = restore_in_place(&dir, &genstore, "first").exit(0);
        assert_eq!(
            fs::read(dir.tree().join("x.log")).unwrap(),
            b"never captured"
        );
    }
}

#[test]
fn delete_spares_what_the_rules_of_then_left_out() {
    let (dir, genstore) = fixture();
    dir.write(".genstoreignore", "*.log\n");
    checkpoint(&genstore);
    fs::remove_file(dir.tree().join(".genstoreignore")).unwrap();
    dir.write("app.log", "made later");
    dir.write("sub/app.log", "made later");
    // Defaults cut nothing then, for there was nothing to cut.
    dir.write("node_modules/x", "made later");
    dir.write("surplus", "not ignored by anybody");
    let _done = restore_in_place(&dir, &genstore, "latest").exit(0);
    for kept in ["app.log", "sub/app.log", "node_modules/x"] {
        assert_eq!(
            fs::read(dir.tree().join(kept)).unwrap(),
            b"made later",
            "{kept}"
        );
    }
    assert!(
        fs::symlink_metadata(dir.tree().join("surplus")).is_err(),
        "an exact mirror otherwise"
    );
}

#[test]
fn a_foreign_directory_in_incoming_blocks_nobody() {
    let (dir, genstore) = store();
    let zeros = "0".repeat(32);
    let names = [
        format!("pack-{zeros}.tmp"),
        format!("gen-0000000009-{zeros}.claim"),
    ];
    for name in &names {
        fs::create_dir(dir.store().join("incoming").join(name)).unwrap();
    }
    dir.write("a.txt", "changed\n");
    checkpoint(&genstore);
    for name in &names {
        assert!(
            dir.store().join("incoming").join(name).is_dir(),
            "what is not ours is not touched"
        );
    }
}

#[test]
fn an_interrupted_restore_is_completed_by_the_same_command() {
    let (dir, genstore) = store();
    let out = dir.path("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join(".genstore-restore-incomplete"), "").unwrap();
    fs::write(out.join("a.txt"), "").unwrap();
    let _done = genstore.ok(["restore", "latest", "--to", out.to_str().unwrap()]);
    genstore_tests::tree::assert_same(&snapshot(&dir.tree()), &snapshot(&out));
}

#[test]
fn a_path_that_is_nowhere_is_not_no_difference() {
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    assert_eq!(
        genstore
            .fails(7, ["diff", "latest", "--", "nonexistent"])
            .code,
        "path_not_found"
    );
    let _same = genstore.ok(["diff", "latest", "--", "sub/b.txt"]);
    dir.write("new", "only in the directory");
    assert!(
        genstore
            .ok(["diff", "latest", "--", "new"])
            .out()
            .contains("A new")
    );
}

#[test]
fn a_hint_acts_on_the_store_that_was_named() {
    let (dir, genstore) = store();
    let other = dir.path("other store");
    let _made = genstore.ok(["--store", other.to_str().unwrap(), "init"]);
    let failed = genstore.fails(7, ["--store", other.to_str().unwrap(), "show", "abcd1234"]);
    let hint = failed.hint;
    assert!(
        hint.contains(&format!("--store '{}'", other.display())),
        "{hint}"
    );
}

#[test]
fn what_is_not_there_is_not_damage() {
    let (dir, genstore) = store();
    assert_eq!(
        genstore
            .fails(7, ["activate", dir.path("nowhere").to_str().unwrap()])
            .code,
        "generation_not_found"
    );
    // Eight superseded generations are held; older ones are emptied.
    let first = fs::read_dir(dir.store().join("generations")).unwrap();
    let first = first
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .min()
        .unwrap();
    for number in 0..12 {
        dir.write("a.txt", format!("{number}"));
        checkpoint(&genstore);
    }
    assert_eq!(
        genstore.fails(7, ["log", "--generation", &first]).code,
        "generation_not_found"
    );
}

#[test]
fn a_candidate_behind_a_link_is_refused_with_a_slash_too() {
    let (dir, genstore) = store();
    let candidate = dir.path("candidate");
    genstore_tests::dir::copy_dir(&dir.live(), &candidate);
    let link = dir.path("link");
    symlink(&candidate, &link).unwrap();
    for end in ["", "/"] {
        let path = format!("{}{end}", link.display());
        assert_eq!(
            genstore.fails(4, ["activate", &path]).code,
            "candidate_invalid",
            "{path}"
        );
    }
}

#[test]
fn a_known_key_says_that_nothing_was_compared_and_still_gets_its_tag() {
    let (dir, genstore) = fixture();
    let made = genstore.json(["checkpoint", "--key", "k"]);
    dir.write("a.txt", "changed\n");
    let ran = genstore.ok(["checkpoint", "--key", "k"]);
    assert!(ran.out().contains("made before with this key"), "{ran}");
    assert!(!ran.out().contains("nothing changed"), "{ran}");
    let tagged = genstore.json(["checkpoint", "--key", "k", "--tag", "t1"]);
    assert_eq!(tagged["id"], made["id"]);
    assert_eq!(genstore.json(["show", "t1"])["id"], made["id"]);
}
