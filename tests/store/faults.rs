//! CURRENT is broken and mended under one live handle, for every method.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use genstore_tests::{Dir, source};
use store_core::id::GenerationId;
use store_core::{
    ActivateOptions, ActivateTarget, Error, Result, Store, StoreOptions, VerifyTarget,
};

/// What the methods work with.
struct Setting {
    dir: Dir,
    store: Store,
    lineage: Vec<u8>,
    generation: GenerationId,
}

impl Setting {
    fn new() -> Self {
        let dir = Dir::new();
        dir.write("a.txt", "first\n");
        let (store, created) = StoreOptions::new().open_or_init(&dir.store()).unwrap();
        assert!(created);
        let made = store.checkpoint(&dir.tree()).run().unwrap();
        Self {
            generation: made.generation,
            lineage: made.lineage.clone(),
            dir,
            store,
        }
    }

    fn latest(&self) -> store_core::CheckpointInfo {
        let view = self.store.view_generation(&self.generation).unwrap();
        view.find("latest", Some(&self.lineage)).unwrap()
    }
}

type Method = fn(&Setting) -> Result<()>;

/// Every method of `Store` that needs the live generation, by name.
fn methods() -> Vec<(&'static str, Method)> {
    vec![
        ("view", |at| at.store.view().map(drop)),
        ("checkpoint", |at| {
            at.store
                .checkpoint(&at.dir.tree())
                .force(true)
                .run()
                .map(drop)
        }),
        ("verify", |at| {
            at.store.verify(&VerifyTarget::Live, false).map(drop)
        }),
        ("activate", |at| {
            let target = ActivateTarget::Generation(at.generation);
            let options = ActivateOptions {
                leave_behind: true,
                ..ActivateOptions::default()
            };
            at.store.activate(&target, options).map(drop)
        }),
        ("plan_undo", |at| {
            at.store.plan_undo(None, Some(&at.lineage)).map(drop)
        }),
        ("set_tag", |at| {
            at.store
                .set_tag(&at.latest().reference(), "v1", true)
                .map(drop)
        }),
        ("remove_tag", |at| {
            at.store.set_tag(&at.latest().reference(), "v2", true)?;
            at.store.remove_tag(&at.lineage, "v2").map(drop)
        }),
        ("set_pinned", |at| {
            at.store
                .set_pinned(&at.latest().reference(), true)
                .map(drop)
        }),
        ("set_note", |at| {
            at.store
                .set_note(&at.latest().reference(), b"note")
                .map(drop)
        }),
        ("archive_lineage", |at| {
            at.store.archive_lineage(&at.lineage, "done").map(drop)
        }),
        ("unarchive_lineage", |at| {
            at.store.unarchive_lineage(&at.lineage).map(drop)
        }),
        ("rename_lineage", |at| {
            at.store.rename_lineage(&at.lineage, b"other")?;
            at.store.rename_lineage(b"other", &at.lineage).map(drop)
        }),
        ("check_catalog", |at| at.store.check_catalog().map(drop)),
        ("undo", |at| {
            let plan = at.store.plan_undo(None, Some(&at.lineage))?;
            at.store.undo(&plan, true).map(drop)
        }),
    ]
}

/// Methods that need no live generation: where the store is, and what reads an explicit generation. `restore` takes a view.
const EXEMPT: [&str; 6] = [
    "open",
    "path",
    "view_generation",
    "find_generation",
    "status",
    "restore",
];

#[test]
fn the_table_names_every_method_of_the_handle() {
    let text = fs::read_to_string(source::workspace().join("store-core/src/store.rs")).unwrap();
    let block = text
        .split("\nimpl Store {")
        .nth(1)
        .unwrap()
        .split("\n}\n")
        .next()
        .unwrap();
    let defined: BTreeSet<_> = block
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub fn "))
        .map(|rest| rest.split(['(', '<']).next().unwrap().to_owned())
        .collect();
    let tested: BTreeSet<_> = methods()
        .iter()
        .map(|(name, _)| *name)
        .chain(EXEMPT)
        .map(str::to_owned)
        .collect();
    assert_eq!(defined, tested);
}

type Break = fn(&Path);

/// Faults that a rename mends: what stood there is put aside.
fn faults() -> Vec<(&'static str, Break)> {
    vec![
        ("selector_missing", |_| {}),
        ("selector_malformed", |current| {
            fs::write(current, "default\n").unwrap();
        }),
        ("selector_malformed", |current| {
            fs::write(current, "").unwrap();
        }),
        ("selector_not_regular", |current| {
            fs::create_dir(current).unwrap();
        }),
        ("selector_not_regular", |current| {
            std::os::unix::fs::symlink("CURRENT.aside", current).unwrap();
        }),
        ("selector_not_regular", |current| {
            rustix::fs::mkfifoat(rustix::fs::CWD, current, rustix::fs::Mode::RWXU).unwrap();
        }),
        ("generation_missing", |current| {
            fs::write(current, format!("gen-0000000001-{}\n", "ab".repeat(16))).unwrap();
        }),
    ]
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

#[test]
fn one_handle_lives_through_every_fault() {
    for (code, make) in faults() {
        for (name, method) in methods() {
            let at = Setting::new();
            // Unarchiving and undoing need something to reverse.
            if name == "unarchive_lineage" {
                at.store.archive_lineage(&at.lineage, "done").unwrap();
            }
            let (current, aside) = (
                at.dir.store().join("CURRENT"),
                at.dir.store().join("CURRENT.aside"),
            );
            fs::rename(&current, &aside).unwrap();
            make(&current);
            let error = method(&at).expect_err(name);
            assert_eq!(error.code(), code, "{name}: {error}");
            assert!(
                error.is_unavailable() && error.hint().is_some(),
                "{name}: {error}"
            );
            let status = at.store.status().unwrap();
            assert_eq!(
                (status.selector.state, status.selector.code),
                ("untrusted", Some(code)),
                "{name}"
            );
            // An explicit generation can be read all the while.
            assert_eq!(at.latest().number, 1);
            remove(&current);
            fs::rename(&aside, &current).unwrap();
            method(&at).unwrap_or_else(|error| panic!("{name} after the mend of {code}: {error}"));
            assert_eq!(at.store.status().unwrap().selector.state, "ok");
        }
    }
}

#[test]
fn a_store_opens_on_an_untrusted_selector_and_not_on_nothing() {
    let at = Setting::new();
    fs::write(at.dir.store().join("CURRENT"), "x").unwrap();
    let store = Store::open(&at.dir.store()).unwrap();
    assert!(store.view().err().unwrap().is_unavailable());
    let nothing = Store::open(&at.dir.path("nothing")).unwrap_err();
    assert!(matches!(nothing, Error::StoreNotFound { .. }) && !nothing.is_unavailable());
}

#[test]
fn a_selector_that_comes_back_while_a_view_is_held_changes_nothing_for_the_view() {
    let at = Setting::new();
    let view = at.store.view().unwrap();
    fs::rename(at.dir.store().join("CURRENT"), at.dir.store().join("aside")).unwrap();
    let checkpoint = view.find("latest", Some(&at.lineage)).unwrap();
    let mut content = Vec::new();
    view.cat(&checkpoint, b"a.txt", &mut |bytes| {
        content.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    assert_eq!(content, b"first\n");
}
