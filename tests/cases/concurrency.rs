use std::fs;
use std::process::Child;
use std::time::Duration;

use genstore_tests::tree::Frozen;
use genstore_tests::{Dir, Genstore, Over, strace};
use rustix::process::{Pid, Signal, kill_process};

use crate::{checkpoint, store, text};

/// A checkpoint that is stopped in the middle, while it holds LOCK: every sync of it takes ten minutes.
fn stuck_writer(dir: &Dir, genstore: &Genstore) -> Child {
    let prefix = strace::prefix(
        &dir.path("log"),
        "trace=fsync,fdatasync",
        &["-e", "inject=fsync,fdatasync:delay_enter=600000000"],
    );
    let child = genstore
        .clone()
        .under(prefix)
        .command(["checkpoint"])
        .spawn()
        .unwrap();
    let lock = fs::File::open(dir.store().join("LOCK")).unwrap();
    while lock.try_lock().is_ok() {
        lock.unlock().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Ends strace and what it runs.
fn kill(mut child: Child) {
    // The tracee is the child's child; strace takes it along.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let tracees = fs::read_to_string(children).unwrap_or_default();
    for pid in tracees
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter_map(Pid::from_raw)
    {
        // It may be gone already.
        kill_process(pid, Signal::KILL).ok();
    }
    drop(child.kill());
    drop(child.wait());
}

#[test]
fn case_014_a_busy_lock_is_waited_for_and_never_reported_as_success() {
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    let lock = fs::File::open(dir.store().join("LOCK")).unwrap();
    lock.lock().unwrap();
    let failed = genstore.fails(6, ["checkpoint", "--lock-wait", "0.3"]);
    assert_eq!(failed.code, "store_busy");
    let waiting = genstore.command(["checkpoint", "--json"]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let before = dir.current();
    drop(lock);
    let output = waiting.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_ne!(dir.current(), before);
    assert_eq!(genstore.ok(["cat", "latest", "a.txt"]).out(), "changed\n");
}

#[test]
fn case_066_a_restore_from_a_store_that_is_being_wiped_deletes_nothing() {
    let (dir, genstore) = store();
    dir.write("a.txt", "edited\n");
    dir.write("extra", "made since\n");
    for file in dir.packs() {
        fs::remove_file(file).unwrap();
    }
    let before = Frozen::of(&dir.tree());
    let to = dir.tree();
    let ran = genstore.run([
        "restore",
        "latest",
        "--to",
        to.to_str().unwrap(),
        "--overwrite",
        "--delete",
        "--yes",
    ]);
    assert!(matches!(ran.status.code(), Some(1 | 4 | 5)), "{ran}");
    before.assert_unchanged(&Frozen::of(&dir.tree()), "a restore that cannot be whole");

    // Content alone is gone: everything needed is known to be there before the first byte is written.
    let (dir, genstore) = store();
    for number in 0..40 {
        dir.write(
            format!("big-{number}"),
            genstore_tests::random::Random::new(number).bytes(200_000),
        );
    }
    checkpoint(&genstore);
    let largest = dir
        .packs()
        .into_iter()
        .max_by_key(|pack| fs::metadata(pack).unwrap().len())
        .unwrap();
    fs::remove_file(largest).unwrap();
    let before = Frozen::of(&dir.tree());
    let ran = genstore.run([
        "restore",
        "latest",
        "--to",
        to_str(&dir),
        "--overwrite",
        "--delete",
        "--yes",
    ]);
    assert!(matches!(ran.status.code(), Some(0 | 4)), "{ran}");
    before.assert_unchanged(
        &Frozen::of(&dir.tree()),
        "the tree is as the checkpoint says, or nothing was done",
    );
    fs::remove_file(dir.tree().join("big-0")).unwrap();
    let before = Frozen::of(&dir.tree());
    let failed = genstore.fails(
        4,
        [
            "restore",
            "latest",
            "--to",
            to_str(&dir),
            "--overwrite",
            "--delete",
            "--yes",
        ],
    );
    assert!(!failed.hint.is_empty(), "{failed:?}");
    before.assert_unchanged(&Frozen::of(&dir.tree()), "a restore whose content is gone");
}

fn to_str(dir: &Dir) -> &'static str {
    // The fixture outlives the command; a leaked path keeps the call sites short.
    Box::leak(dir.tree().to_str().unwrap().to_owned().into_boxed_str())
}

#[test]
fn case_080_a_lock_dies_with_its_holder() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    let child = stuck_writer(&dir, &genstore);
    // Readers do not wait for a writer.
    assert_eq!(genstore.json(["verify"])["ok"], true);
    let failed = genstore.fails(6, ["checkpoint", "--lock-wait", "0.2"]);
    assert_eq!(failed.code, "store_busy");
    assert!(
        failed.message.contains("pid"),
        "the holder is named: {failed:?}"
    );
    kill(child);
    let made = genstore.json(["checkpoint", "--lock-wait", "10"]);
    assert_eq!(made["created"], true, "{made}");
    assert_eq!(genstore.json(["verify"])["ok"], true);
}

#[test]
fn case_081_a_stopped_writer_still_holds_its_lock() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    let child = stuck_writer(&dir, &genstore);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let before = dir.current();
    let failed = genstore.fails(6, ["checkpoint", "--lock-wait", "1"]);
    assert_eq!(failed.code, "store_busy");
    assert_eq!(dir.current(), before);
    kill_process(pid, Signal::CONT).unwrap();
    kill(child);
    assert_eq!(
        genstore.json(["checkpoint", "--lock-wait", "10"])["created"],
        true
    );
}

#[test]
fn case_113_verify_beside_a_writer_reports_no_damage() {
    let (dir, genstore) = store();
    let over = Over::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rounds = 0;
            while !over.is_set() || rounds < 5 {
                let ran = genstore.run(["verify", "--json"]);
                assert_eq!(ran.status.code(), Some(0), "{ran}");
                rounds += 1;
            }
        });
        over.after(|| {
            for round in 0..30 {
                dir.write(
                    format!("file-{round}"),
                    genstore_tests::random::Random::new(round).bytes(50_000),
                );
                checkpoint(&genstore);
            }
        });
    });
    assert_eq!(
        genstore.json(["log"])["checkpoints"]
            .as_array()
            .map(Vec::len),
        Some(31)
    );
}

#[test]
fn case_113_writers_of_one_lineage_lose_nothing() {
    let (dir, genstore) = store();
    let children: Vec<_> = (0..8)
        .map(|number| {
            let message = format!("writer {number}");
            genstore
                .command(["checkpoint", "--force", "--json", "-m", &message])
                .spawn()
                .unwrap()
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        ids.insert(text(
            &serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["id"],
        ));
    }
    assert_eq!(ids.len(), 8);
    let log = genstore.json(["log"]);
    let rows = log["checkpoints"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    for (newer, older) in rows.iter().zip(&rows[1..]) {
        assert_eq!(newer["parent"], older["id"], "a chain: {log}");
    }
    genstore_tests::reader::check(&dir.store());
}
