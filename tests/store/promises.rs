//! What the library promises to the program that embeds it.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use genstore_tests::Dir;
use genstore_tests::tree::Frozen;
use store_core::clock::{Clock, Time};
use store_core::progress::Cancel;
use store_core::{CheckpointInfo, Error, Store, StoreOptions, VerifyTarget, View};

fn new_store(dir: &Dir, options: StoreOptions) -> Store {
    dir.write("a.txt", "first\n");
    options.open_or_init(&dir.store()).unwrap().0
}

#[test]
fn handles_may_be_shared_and_sent() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Store>();
    shared::<StoreOptions>();
    shared::<View>();
    shared::<CheckpointInfo>();
    shared::<Error>();
}

#[test]
fn one_handle_serves_many_threads() {
    let dir = Dir::new();
    let store = new_store(&dir, StoreOptions::new());
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (store, dir) = (&store, &dir);
            scope.spawn(move || {
                let source = dir.mkdir(format!("source-{number}"));
                for round in 0..3 {
                    dir.write(format!("source-{number}/file"), format!("{number} {round}"));
                    let made = store.checkpoint(&source).run().unwrap();
                    assert!(made.created && made.complete);
                    assert_eq!(made.number, round + 1);
                }
            });
        }
    });
    let view = store.view().unwrap();
    let lineages = view.lineages().unwrap();
    assert_eq!(lineages.len(), 8);
    assert!(lineages.iter().all(|lineage| lineage.checkpoints == 3));
    assert!(store.verify(&VerifyTarget::Live, false).unwrap().ok);
    assert_eq!(store.check_catalog().unwrap(), Vec::<String>::new());
}

/// A clock that goes back by a day with every reading.
struct Backwards(AtomicI64);

impl Clock for Backwards {
    fn now(&self) -> Time {
        Time {
            seconds: self.0.fetch_sub(86_400, Ordering::Relaxed),
            nanoseconds: 0,
        }
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn a_clock_that_goes_back_blocks_nothing() {
    let dir = Dir::new();
    let clock = Arc::new(Backwards(AtomicI64::new(1_000_000)));
    let store = new_store(&dir, StoreOptions::new().clock(clock));
    let mut ids = Vec::new();
    for round in 0..30 {
        dir.write("a.txt", format!("{round}"));
        ids.push(store.checkpoint(&dir.tree()).run().unwrap().id);
    }
    let view = store.view().unwrap();
    let mut listed = Vec::new();
    view.log(None, None, &mut |checkpoint| {
        listed.push(checkpoint.id);
        Ok(())
    })
    .unwrap();
    listed.reverse();
    assert_eq!(listed, ids, "order comes from numbers");
    assert!(store.verify(&VerifyTarget::Live, false).unwrap().ok);
}

#[test]
fn a_cancelled_operation_changes_nothing() {
    let dir = Dir::new();
    let store = new_store(&dir, StoreOptions::new());
    store.checkpoint(&dir.tree()).run().unwrap();
    dir.write("a.txt", "changed\n");
    let before = Frozen::of(&dir.store()).without_notes();
    let cancel = Cancel::new();
    cancel.cancel();
    let cancelled = StoreOptions::new()
        .cancel(cancel)
        .open(&dir.store())
        .unwrap();
    let error = cancelled.checkpoint(&dir.tree()).run().unwrap_err();
    assert_eq!(error.code(), "cancelled");
    let error = store
        .checkpoint(&dir.tree())
        .deadline(Duration::ZERO)
        .run()
        .unwrap_err();
    assert_eq!(error.code(), "deadline");
    before.assert_unchanged(
        &Frozen::of(&dir.store()).without_notes(),
        "a cancelled checkpoint",
    );
    assert_eq!(
        std::fs::read_dir(dir.store().join("incoming"))
            .unwrap()
            .count(),
        0
    );
}

/// Everything that the library does, in one go; run in a process of its own by the test below.
#[test]
fn a_whole_tour() {
    let dir = Dir::new();
    let store = new_store(&dir, StoreOptions::new());
    let made = store.checkpoint(&dir.tree()).message("tour").run().unwrap();
    dir.write("b.txt", "second\n");
    let mut second = store.checkpoint(&dir.tree()).run().unwrap();
    second.finish();
    let at = store
        .view()
        .unwrap()
        .find("latest", Some(&made.lineage))
        .unwrap()
        .reference();
    store.set_tag(&at, "v1", false).unwrap();
    let plan = store.plan_undo(None, Some(&made.lineage)).unwrap();
    store.undo(&plan, false).unwrap();
    store.status().unwrap();
    assert!(store.verify(&VerifyTarget::Live, false).unwrap().ok);
    // And where it fails.
    std::fs::remove_file(&dir.packs()[0]).unwrap();
    assert!(!store.verify(&VerifyTarget::Live, false).unwrap().ok);
    std::fs::remove_file(dir.store().join("CURRENT")).unwrap();
    assert!(
        store
            .checkpoint(&dir.tree())
            .run()
            .unwrap_err()
            .is_unavailable()
    );
}

#[test]
fn the_library_never_prints() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "promises::a_whole_tour",
            "--nocapture",
            "--test-threads=1",
        ])
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}");
    let harness =
        |line: &str| line.is_empty() || line.starts_with("running ") || line.starts_with("test ");
    assert!(
        out.lines().all(harness) && out.contains("1 passed"),
        "the library printed: {out}"
    );
    assert!(
        output.stderr.is_empty(),
        "the library printed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
