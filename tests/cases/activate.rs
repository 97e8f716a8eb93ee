use std::fs;

use genstore_tests::strace;
use genstore_tests::tree::Frozen;

use crate::activate::candidate;
use crate::init::{kill_points, run_and_kill};
use crate::{checkpoint, store};

#[test]
fn case_001_a_repaired_store_goes_live_without_renaming_a_directory() {
    let (dir, genstore) = store();
    let candidate = candidate(&dir, "candidate");
    let target = candidate.to_str().unwrap();
    // The only pack: the catalog is damaged too, so nobody can say that nothing is left behind.
    damage(&dir.packs()[0]);
    genstore.run(["verify"]).exit(4);
    // A file system on which files of `incoming/` cannot be renamed into place: the contents are copied, hashed and synced.
    if strace::is_here() {
        let current = dir.current();
        let injected = genstore.clone().under(strace::prefix(
            dir.path("log").as_path(),
            "trace=?rename,renameat,renameat2",
            &["-e", "inject=?rename,renameat,renameat2:error=EIO"],
        ));
        let ran = injected.run(["activate", target, "--leave-behind"]);
        assert_eq!(ran.status.code(), Some(1), "{ran}");
        assert_eq!(
            dir.current(),
            current,
            "the old selection stays on any failure"
        );
    }
    let kept = Frozen::of(&dir.store()).only(&["generations/"]);
    let (ran, calls) = if strace::is_here() {
        strace::trace(&genstore, ["activate", target, "--leave-behind"], &[])
    } else {
        (
            genstore.run(["activate", target, "--leave-behind"]),
            Vec::new(),
        )
    };
    ran.exit(0);
    for call in calls {
        if let Some((from, to)) = call.moved().filter(|_| call.name.starts_with("rename")) {
            let file = from.ends_with(".tmp") || from.ends_with(".pack") || from.ends_with(".json");
            assert!(file, "only files are renamed: {from} → {to}");
        }
    }
    kept.assert_kept_in(&Frozen::of(&dir.store()));
    assert_eq!(genstore.json(["verify"])["ok"], true);
}

fn damage(pack: &std::path::Path) {
    let mut bytes = fs::read(pack).unwrap();
    bytes[18] ^= 1;
    fs::remove_file(pack).unwrap();
    fs::write(pack, bytes).unwrap();
}

#[test]
fn case_096_an_error_after_the_flip_keeps_what_was_published() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    let one = candidate(&dir, "one");
    let (_, calls) = strace::trace(&genstore, ["activate", one.to_str().unwrap()], &[]);
    let current = format!("{}/CURRENT", dir.store().display());
    let flip = calls
        .iter()
        .find(|call| call.ok() && call.moved().is_some_and(|(_, to)| to == current))
        .unwrap();
    // Every call after the flip fails in turn, in a run of its own.
    let mut tried = 0;
    for call in calls
        .iter()
        .filter(|call| call.span.0 > flip.span.0 && call.thread == flip.thread)
    {
        if ![
            "fsync", "unlinkat", "openat", "mkdirat", "write", "renameat", "flock", "fchmod",
        ]
        .contains(&call.name.as_str())
        {
            continue;
        }
        let same = calls.iter().filter(|other| {
            other.thread == call.thread && other.name == call.name && other.span.0 <= call.span.0
        });
        let number = same.count();
        fails_after_the_flip(&call.name, number);
        tried += 1;
    }
    assert!(tried > 0);
}

/// Runs one activation in which that call fails: whatever the answer is, a published generation stays.
fn fails_after_the_flip(call: &str, number: usize) {
    let (dir, genstore) = store();
    let one = candidate(&dir, "one");
    let before = dir.current();
    let inject = format!("inject={call}:error=EIO:when={number}");
    let traced = format!("trace={call}");
    let injected =
        genstore
            .clone()
            .under(strace::prefix(&dir.path("log"), &traced, &["-e", &inject]));
    let ran = injected.run(["activate", one.to_str().unwrap(), "--json"]);
    let code = ran.status.code();
    if dir.current() == before {
        // strace counts from the start of the process, threads come and go: this one hit before the flip.
        assert_ne!(code, Some(0), "{call} {number}: {ran}");
    } else if code != Some(0) && ran.json()["schema"] == "genstore.error/1" {
        assert_eq!(
            (code, ran.error().code.as_str()),
            (Some(1), "publish_uncertain"),
            "{call} {number}: {ran}"
        );
    }
    assert!(
        dir.live().join("manifest.json").is_file(),
        "{call} {number}: what CURRENT names is there"
    );
    assert_eq!(genstore.json(["verify"])["ok"], true, "{call} {number}");
    dir.write("a.txt", "goes on\n");
    checkpoint(&genstore);
}

#[test]
fn case_097_a_crash_at_any_step_of_an_activation_blocks_nothing() {
    if !strace::is_here() {
        return;
    }
    let place = |dir: &genstore_tests::Dir| dir.store().to_str().unwrap().to_owned();
    let (dir, genstore) = store();
    let one = candidate(&dir, "one");
    let (_, calls) = strace::trace(&genstore, ["activate", one.to_str().unwrap()], &[]);
    let points = kill_points(&calls, &place(&dir));
    assert!(points.len() > 10, "{points:?}");
    for point in points {
        let (dir, genstore) = store();
        let one = candidate(&dir, "one");
        let was = Frozen::of(&one);
        let existing = Frozen::of(&dir.live());
        let old = dir.live();
        run_and_kill(&genstore, &["activate", one.to_str().unwrap()], &point);
        // Whatever it left: the old or the new state, and the same command ends well.
        genstore.json(["log"]);
        genstore.ok(["activate", one.to_str().unwrap()]);
        assert_eq!(genstore.json(["verify"])["ok"], true, "{point:?}");
        dir.write("a.txt", "goes on\n");
        checkpoint(&genstore);
        assert_eq!(
            fs::read_dir(dir.store().join("incoming")).unwrap().count(),
            0,
            "{point:?} left something in incoming/"
        );
        was.assert_unchanged(&Frozen::of(&one), "the candidate");
        existing.assert_unchanged(&Frozen::of(&old), "the generation that was live");
    }
}
