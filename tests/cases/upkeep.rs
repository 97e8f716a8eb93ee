//! What pruning and collection will build on, as far as checkpoints alone can show it.

use std::fs;

use genstore_tests::dir::set_mtime;
use genstore_tests::random::Random;
use genstore_tests::tree::Frozen;
use genstore_tests::{Genstore, strace};

use crate::init::{kill_points, run_and_kill};
use crate::{checkpoint, store, text};

const DAY: i64 = 86_400;

fn temporary_bytes(genstore: &Genstore) -> u64 {
    genstore.json(["status"])["bytes"]["incoming"]
        .as_u64()
        .unwrap()
}

#[test]
fn case_061_aborted_writes_are_shown_and_reclaimed() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    dir.write("big", Random::new(1).bytes(2 << 20));
    let (_, calls) = strace::trace(&genstore, ["checkpoint"], &[]);
    let points: Vec<_> = kill_points(&calls, &format!("{}/incoming", dir.store().display()));
    let mut seen = 0;
    for (round, point) in points.iter().cycle().take(20).enumerate() {
        dir.write("big", Random::new(round as u64 + 2).bytes(2 << 20));
        run_and_kill(&genstore, &["checkpoint"], point);
        seen = seen.max(temporary_bytes(&genstore));
    }
    assert!(seen > 0, "no kill left anything, so nothing was shown");
    assert!(seen < 16 << 20, "garbage piles up: {seen} bytes");
    assert_eq!(genstore.json(["checkpoint", "--force"])["complete"], true);
    assert_eq!(
        temporary_bytes(&genstore),
        0,
        "the next writer takes it away"
    );
    assert_eq!(genstore.json(["verify"])["ok"], true);
}

#[test]
fn case_115_leftover_temporary_files_go_and_foreign_ones_stay() {
    let (dir, genstore) = store();
    let incoming = dir.store().join("incoming");
    for kind in ["pack", "current", "cache", "receipt", "manifest"] {
        fs::write(
            incoming.join(format!("{kind}-{}.tmp", "ab".repeat(16))),
            "left by a crash",
        )
        .unwrap();
    }
    fs::write(
        incoming.join(format!("gen-0000000099-{}.claim", "cd".repeat(16))),
        "",
    )
    .unwrap();
    fs::write(incoming.join("somebody-elses"), "mine").unwrap();
    // One whose writer lives is not touched.
    let held = incoming.join(format!("pack-{}.tmp", "ef".repeat(16)));
    fs::write(&held, "in use").unwrap();
    let lock = fs::File::open(&held).unwrap();
    lock.lock().unwrap();
    dir.write("a.txt", "changed\n");
    checkpoint(&genstore);
    let mut left: Vec<_> = fs::read_dir(&incoming)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            format!("pack-{}.tmp", "ef".repeat(16)),
            "somebody-elses".to_owned()
        ]
    );
    drop(lock);
    dir.write("a.txt", "changed again\n");
    checkpoint(&genstore);
    assert!(!held.exists());
}

#[test]
fn case_074_everything_listed_can_be_restored() {
    let (dir, genstore) = store();
    for round in 0..10 {
        dir.write(format!("f{}", round % 3), format!("{round}\n"));
        checkpoint(&genstore);
        if round % 4 == 3 {
            genstore.ok(["undo"]);
        }
    }
    let log = genstore.json(["log"]);
    let rows = log["checkpoints"].as_array().unwrap();
    assert!(rows.len() > 5);
    for row in rows {
        let id = text(&row["id"]);
        genstore.ok(["restore", &id, "--to", dir.path(&id).to_str().unwrap()]);
    }
}

#[test]
fn case_091_clocks_that_differ_block_nothing() {
    let (dir, genstore) = store();
    for (number, shift) in [-400 * DAY, 400 * DAY, -4000 * DAY, 20_000 * DAY]
        .iter()
        .enumerate()
    {
        let now = 1_800_000_000;
        for entry in walkdir::WalkDir::new(dir.store()).contents_first(true) {
            set_mtime(entry.unwrap().path(), now + shift, 0);
        }
        set_mtime(&dir.write("a.txt", format!("{number}\n")), now + shift, 0);
        checkpoint(&genstore);
        dir.write(format!("new-{number}"), "x");
        checkpoint(&genstore);
    }
    let log = genstore.json(["log"]);
    let numbers: Vec<_> = log["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["number"].as_u64().unwrap())
        .collect();
    assert_eq!(
        numbers,
        (1..=9).rev().collect::<Vec<_>>(),
        "order comes from numbers, not from clocks"
    );
    assert_eq!(genstore.json(["verify"])["ok"], true);
    assert!(genstore.json(["undo"])["generation"].is_string());
}

#[test]
fn case_005_the_selected_generation_is_never_stale() {
    let (dir, genstore) = store();
    let live = dir.live();
    for entry in walkdir::WalkDir::new(&live).contents_first(true) {
        set_mtime(entry.unwrap().path(), 1_000_000_000, 0);
    }
    set_mtime(&dir.store().join("CURRENT"), 1_000_000_000, 0);
    let before = Frozen::of(&dir.store()).only(&["generations", "CURRENT"]);
    for args in [
        &["status"][..],
        &["verify"],
        &["checkpoint"],
        &["log"],
        &[
            "restore",
            "latest",
            "--to",
            dir.path("out").to_str().unwrap(),
        ],
    ] {
        genstore.ok(args);
        before.assert_unchanged(
            &Frozen::of(&dir.store()).only(&["generations", "CURRENT"]),
            &args.join(" "),
        );
    }
    // And when it is superseded, it goes by rank, not by age.
    dir.write("a.txt", "changed\n");
    checkpoint(&genstore);
    assert!(live.join("manifest.json").exists());
}

#[test]
fn case_022_an_unplugged_volume_is_unreachable_not_deleted() {
    let (dir, genstore) = store();
    let volume = dir.path("volume");
    fs::create_dir_all(volume.join("project")).unwrap();
    fs::write(volume.join("project/file"), "x").unwrap();
    checkpoint(&genstore.clone().within(volume.join("project")));
    let state = || {
        let lineages = genstore.json(["lineage", "list"]);
        let rows = lineages["lineages"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["source"].as_str().unwrap().ends_with("volume/project"))
            .unwrap();
        text(&row["source_state"])
    };
    assert_eq!(state(), "present");
    // The mount point without its volume: another inode, a `.keep` in it.
    fs::rename(&volume, dir.path("elsewhere")).unwrap();
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join(".keep"), "").unwrap();
    assert_eq!(state(), "unreachable");
    // Proven: the same parent, and the project is gone from it.
    fs::remove_dir_all(&volume).unwrap();
    fs::rename(dir.path("elsewhere"), &volume).unwrap();
    fs::rename(volume.join("project"), dir.path("moved")).unwrap();
    fs::write(volume.join("other"), "x").unwrap();
    assert_eq!(state(), "missing");
    let log = genstore.json(["log", "--all"]);
    assert_eq!(
        log["checkpoints"].as_array().map(Vec::len),
        Some(2),
        "nothing is dropped for it"
    );
}
