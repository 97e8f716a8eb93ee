//! Wrong input of any kind: one clear line, the right exit code, nothing changed.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use genstore_tests::dir::chmod;
use genstore_tests::tree::{Frozen, snapshot};
use genstore_tests::{Dir, Genstore, machine};

use crate::{GENSTORE, checkpoint, fixture, store, text};

/// Runs it once for people and once for programs; expects code and exit, one clear line, and a store as it was.
#[track_caller]
fn refused(dir: &Dir, genstore: &Genstore, exit: i32, code: &str, args: &[&str]) {
    let frozen = || {
        fs::symlink_metadata(dir.store())
            .ok()
            .map(|_| Frozen::of(&dir.store()).without_notes())
    };
    let (before, tree) = (frozen(), snapshot(&dir.tree()));
    let ran = genstore.run(args).exit(exit).one_clear_line();
    let failed = genstore.fails(exit, args);
    assert_eq!(failed.code, code, "{ran}");
    match (before, frozen()) {
        (Some(before), Some(after)) => before.assert_unchanged(&after, &args.join(" ")),
        (None, None) => {}
        (before, after) => panic!(
            "a store came or went: {} {}",
            before.is_some(),
            after.is_some()
        ),
    }
    assert_eq!(tree, snapshot(&dir.tree()), "the work tree changed");
}

#[test]
fn sources_that_cannot_be_captured() {
    let (dir, genstore) = store();
    refused(
        &dir,
        &genstore,
        7,
        "source_not_found",
        &["checkpoint", "nowhere"],
    );
    refused(&dir, &genstore, 2, "invalid", &["checkpoint", "a.txt"]);
    refused(&dir, &genstore, 2, "invalid", &["checkpoint", ""]);
    symlink("nowhere", dir.path("dangling")).unwrap();
    refused(
        &dir,
        &genstore,
        7,
        "source_not_found",
        &["checkpoint", dir.path("dangling").to_str().unwrap()],
    );
}

#[test]
fn a_source_inside_the_store() {
    let (dir, genstore) = store();
    for inside in ["", "generations", "cache"] {
        let path = dir.store().join(inside);
        refused(
            &dir,
            &genstore,
            8,
            "source_in_store",
            &["checkpoint", path.to_str().unwrap()],
        );
    }
    symlink(dir.store().join("generations"), dir.path("hidden")).unwrap();
    refused(
        &dir,
        &genstore,
        8,
        "source_in_store",
        &["checkpoint", dir.path("hidden").to_str().unwrap()],
    );
}

#[test]
fn an_empty_tree_is_a_tree() {
    let dir = Dir::new();
    let genstore = dir.genstore(GENSTORE);
    let made = genstore.json(["checkpoint"]);
    assert_eq!(
        (
            &made["created"],
            &made["complete"],
            &made["counts"]["files"]
        ),
        (&true.into(), &true.into(), &0.into())
    );
    let out = dir.path("out");
    genstore.json(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_eq!(fs::read_dir(out).unwrap().count(), 0);
}

#[test]
fn everything_ignored_is_not_a_checkpoint_of_nothing() {
    let (dir, genstore) = store();
    dir.write(".genstoreignore", "/*\n");
    refused(&dir, &genstore, 8, "everything_ignored", &["checkpoint"]);
    fs::remove_file(dir.tree().join(".genstoreignore")).unwrap();
    refused(
        &dir,
        &genstore,
        8,
        "everything_ignored",
        &["checkpoint", "--exclude", "*"],
    );
}

#[test]
fn the_whole_machine_and_a_whole_home_need_a_word() {
    let (dir, genstore) = store();
    refused(&dir, &genstore, 8, "wide_source", &["checkpoint", "/"]);
    refused(
        &dir,
        &genstore,
        8,
        "wide_source",
        &["checkpoint", dir.path("home").to_str().unwrap()],
    );
    symlink(dir.path("home"), dir.path("home-link")).unwrap();
    refused(
        &dir,
        &genstore,
        8,
        "wide_source",
        &["checkpoint", dir.path("home-link").to_str().unwrap()],
    );
    fs::write(dir.path("home/file"), "x").unwrap();
    let made = genstore.json([
        "checkpoint",
        dir.path("home").to_str().unwrap(),
        "--allow-wide",
    ]);
    assert_eq!(made["complete"], true, "{made}");
}

#[test]
fn names_of_nothing_and_of_too_much() {
    let (dir, genstore) = store();
    refused(
        &dir,
        &genstore,
        7,
        "checkpoint_not_found",
        &["show", "0123456789abcdef"],
    );
    refused(
        &dir,
        &genstore,
        7,
        "checkpoint_not_found",
        &["show", "latest~9"],
    );
    refused(
        &dir,
        &genstore,
        7,
        "path_not_found",
        &["cat", "latest", "nothing"],
    );
    refused(
        &dir,
        &genstore,
        7,
        "lineage_not_found",
        &["log", "--lineage", "nobody"],
    );
    refused(
        &dir,
        &genstore,
        7,
        "generation_not_found",
        &["verify", "gen-0000000099"],
    );
    refused(
        &dir,
        &genstore,
        7,
        "generation_not_found",
        &["log", "--generation", "gen-0000000099"],
    );
    for word in ["no-such-tag", "@yesterday-ish", "", "~1", "latest~x"] {
        let ran = genstore.run(["show", word]);
        assert!(matches!(ran.status.code(), Some(2 | 7)), "{ran}");
        ran.one_clear_line();
    }
    ambiguous_prefix(&dir, &genstore);
}

/// Two checkpoints whose ids share four digits are found by making some: 65,536 are possible, 400 nearly always have a pair.
fn ambiguous_prefix(dir: &Dir, genstore: &Genstore) {
    // Three digits are too few, whatever they name.
    let id = text(&genstore.json(["show", "latest"])["id"]);
    let ran = genstore.run(["show", &id[..3]]);
    assert!(matches!(ran.status.code(), Some(2 | 7)), "{ran}");
    // Several generations share their first digits.
    dir.write("a.txt", "once more\n");
    checkpoint(genstore);
    refused(
        dir,
        genstore,
        7,
        "ambiguous",
        &["log", "--all", "--generation", "gen-00000000"],
    );
}

#[test]
fn flags_that_make_no_sense() {
    let (dir, genstore) = store();
    for args in [
        &["--no-such-flag"][..],
        &["no-such-verb"],
        &["checkpoint", "--no-such-flag"],
        &["checkpoint", ".", ".."],
        &["restore", "latest"],
        &["restore"],
        &["log", "--limit", "many"],
        &["checkpoint", "--role", "during"],
        &["checkpoint", "--deadline", "soon"],
        &["status", "--lock-wait", "-1"],
    ] {
        let before = Frozen::of(&dir.store());
        let ran = genstore.run(args);
        assert_eq!(ran.status.code(), Some(2), "{ran}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran}");
        let json: Vec<_> = args.iter().copied().chain(["--json"]).collect();
        assert_eq!(genstore.run(json).exit(2).error().code, "usage");
        before.assert_unchanged(&Frozen::of(&dir.store()), &args.join(" "));
    }
    for tag in [
        "latest",
        "abcd1234",
        "@now",
        "-x",
        "a~1",
        "",
        "has space",
        "first",
    ] {
        let ran = genstore.run(["tag", "latest", "--", tag]);
        assert_eq!(ran.status.code(), Some(2), "{ran}");
    }
}

#[test]
fn places_that_hold_no_store() {
    let (dir, genstore) = fixture();
    let absent = dir.path("absent");
    let named = genstore.clone().on_default_store();
    for verb in [
        &["log", "--all"][..],
        &["status"],
        &["verify"],
        &["undo"],
        &["show", "latest"],
    ] {
        let mut args = verb.to_vec();
        args.extend(["--store", absent.to_str().unwrap()]);
        refused(&dir, &named, 7, "store_not_found", &args);
    }
    // A store that was named and is not there is a mistake, not a wish.
    refused(
        &dir,
        &named,
        7,
        "store_not_found",
        &["checkpoint", "--store", absent.to_str().unwrap()],
    );
    let busy = dir.path("busy");
    fs::create_dir(&busy).unwrap();
    fs::write(busy.join("notes.txt"), "mine").unwrap();
    for verb in [&["init"][..], &["checkpoint"]] {
        let mut args = verb.to_vec();
        args.extend(["--store", busy.to_str().unwrap()]);
        refused(&dir, &named, 8, "not_a_store", &args);
    }
    let file = dir.path("a-file");
    fs::write(&file, "").unwrap();
    refused(
        &dir,
        &named,
        8,
        "not_a_store",
        &["checkpoint", "--store", file.to_str().unwrap()],
    );
    assert_eq!(fs::read_to_string(busy.join("notes.txt")).unwrap(), "mine");
    assert_eq!(fs::read_dir(busy).unwrap().count(), 1);
}

#[test]
fn init_on_a_store() {
    let (dir, genstore) = store();
    refused(&dir, &genstore, 8, "store_exists", &["init"]);
}

#[test]
fn targets_that_are_not_empty() {
    let (dir, genstore) = store();
    let full = dir.path("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "mine").unwrap();
    let to = full.to_str().unwrap();
    refused(
        &dir,
        &genstore,
        8,
        "target_not_empty",
        &["restore", "latest", "--to", to],
    );
    refused(
        &dir,
        &genstore,
        7,
        "path_not_found",
        &[
            "restore",
            "latest",
            "--to",
            dir.path("new").to_str().unwrap(),
            "no/such",
        ],
    );
    assert!(
        !dir.path("new").exists(),
        "a restore of nothing leaves nothing"
    );
    let file = full.join("mine");
    let ran = genstore.run(["restore", "latest", "--to", file.to_str().unwrap()]);
    assert_ne!(ran.status.code(), Some(0));
    ran.one_clear_line();
    assert_eq!(fs::read_to_string(full.join("mine")).unwrap(), "mine");
}

#[test]
fn another_users_store() {
    if !machine::is_root() {
        genstore_tests::skip("another user's store needs root");
        return;
    }
    let (dir, genstore) = store();
    let id = text(&genstore.json(["show", "latest"])["id"]);
    machine::give_to_nobody(&dir.store());
    dir.write("a.txt", "changed by root\n");
    refused(&dir, &genstore, 8, "not_owner", &["checkpoint"]);
    refused(&dir, &genstore, 8, "not_owner", &["tag", &id, "v1"]);
    refused(&dir, &genstore, 8, "not_owner", &["undo"]);
    genstore.json(["checkpoint", "--as-owner"]);
    for entry in walkdir::WalkDir::new(dir.store()) {
        let entry = entry.unwrap();
        let uid = fs::symlink_metadata(entry.path()).unwrap().uid();
        assert_eq!(
            uid,
            machine::NOBODY,
            "{} is not the owner's",
            entry.path().display()
        );
    }
    machine::give_to_nobody(dir.root());
    let made = genstore.as_nobody().json(["checkpoint"]);
    assert_eq!(made["complete"], true, "the owner goes on: {made}");
}

#[test]
fn no_permission() {
    let (dir, genstore) = fixture();
    machine::give_to_nobody(dir.root());
    let genstore = genstore.as_nobody();
    let made = genstore.json(["checkpoint"]);
    assert_eq!(made["created"], true);
    chmod(&dir.tree().join("sub"), 0o755);
    // A source that cannot be listed at all.
    let closed = dir.mkdir("closed");
    machine::give_to_nobody(&closed);
    chmod(&closed, 0);
    let ran = genstore
        .run(["checkpoint", closed.to_str().unwrap()])
        .exit(1)
        .one_clear_line();
    assert!(ran.err().contains("closed"), "{ran}");
    chmod(&closed, 0o700);
    // A store that cannot be written.
    dir.write("a.txt", "changed\n");
    chmod(&dir.store().join("generations"), 0o500);
    let before = Frozen::of(&dir.store()).without_notes();
    let failed = genstore.fails(1, ["checkpoint"]);
    assert_eq!(failed.code, "permission_denied", "{failed:?}");
    chmod(&dir.store().join("generations"), 0o500);
    before.assert_unchanged(&Frozen::of(&dir.store()).without_notes(), "no permission");
    chmod(&dir.store().join("generations"), 0o700);
    genstore.ok(["checkpoint"]);
    // A store below a directory that cannot be entered.
    fs::create_dir(dir.path("vault")).unwrap();
    let there = genstore.on(dir.path("vault/store"));
    chmod(&dir.path("vault"), 0o500);
    if !machine::is_root() || dir.path("vault").exists() {
        let failed = there.fails(1, ["checkpoint"]);
        assert_eq!(failed.code, "permission_denied", "{failed:?}");
    }
    chmod(&dir.path("vault"), 0o700);
}

#[test]
fn a_full_disk_changes_nothing_and_leaves_nothing_behind() {
    let (dir, genstore) = fixture();
    let Some(disk) = machine::SmallDisk::mount(&dir.path("disk"), 4096) else {
        return on_a_file_size_limit();
    };
    println!("a full disk: tmpfs of 4 MiB");
    let genstore = genstore.on(disk.path().join("store"));
    let first = text(&genstore.json(["checkpoint"])["id"]);
    let before = Frozen::of(&disk.path().join("store")).without_notes();
    dir.write("big", genstore_tests::random::Random::new(1).bytes(6 << 20));
    let ran = genstore.run(["checkpoint"]).exit(1).one_clear_line();
    assert!(ran.err().contains("No space left"), "{ran}");
    let failed = genstore.fails(1, ["checkpoint"]);
    assert_eq!(failed.code, "disk_full");
    before.assert_unchanged(
        &Frozen::of(&disk.path().join("store")).without_notes(),
        "a full disk",
    );
    let left = fs::read_dir(disk.path().join("store/incoming"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "temporary files are left");
    fs::remove_file(dir.tree().join("big")).unwrap();
    assert_eq!(text(&genstore.json(["show", "latest"])["id"]), first);
    dir.write("small", "fits\n");
    assert_eq!(genstore.json(["checkpoint"])["created"], true);
    assert_eq!(genstore.json(["verify"])["ok"], true);
}

/// Where nothing can be mounted: a limit on the size of any file stands in for the full disk.
fn on_a_file_size_limit() {
    let (dir, genstore) = store();
    println!("a full disk: a file size limit of 64 KiB (nothing can be mounted here)");
    let before = Frozen::of(&dir.store()).without_notes();
    dir.write("big", genstore_tests::random::Random::new(1).bytes(6 << 20));
    let limited = genstore.clone().under([
        "sh",
        "-c",
        "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"",
    ]);
    let ran = limited.run(["checkpoint"]).exit(1).one_clear_line();
    assert!(ran.err().contains("too large"), "{ran}");
    before.assert_unchanged(
        &Frozen::of(&dir.store()).without_notes(),
        "a file size limit",
    );
    assert_eq!(genstore.json(["checkpoint"])["created"], true);
}

#[test]
fn a_held_lock_is_waited_for_and_then_named() {
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    let lock = fs::File::open(dir.store().join("LOCK")).unwrap();
    lock.lock().unwrap();
    refused(
        &dir,
        &genstore,
        6,
        "store_busy",
        &["checkpoint", "--lock-wait", "0.2"],
    );
    refused(
        &dir,
        &genstore,
        6,
        "store_busy",
        &["tag", "latest", "v1", "--lock-wait", "0"],
    );
    // Readers do not need it.
    genstore.ok(["log"]);
    genstore.ok(["verify"]);
    lock.unlock().unwrap();
    assert_eq!(genstore.json(["checkpoint"])["created"], true);
}
