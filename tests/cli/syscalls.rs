//! What each verb asks of the system, through strace: names, order, flags.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use genstore_tests::strace::{self, Call, waits_in_a_row};
use genstore_tests::{Dir, Genstore};

use crate::verbs::{each_in_turn, rich_store};
use crate::{checkpoint, store};

/// Where a fixture's store is, as strace shows paths.
fn place(dir: &Dir) -> String {
    dir.store().to_str().unwrap().to_owned()
}

fn below<'p>(path: &'p str, place: &str) -> Option<&'p str> {
    path.strip_prefix(place)
        .filter(|rest| rest.starts_with('/'))
        .map(|rest| &rest[1..])
}

/// Rules that hold for every call of every verb.
fn check(what: &str, calls: &[Call], dir: &Dir) {
    let (store, tree) = (place(dir), dir.tree().to_str().unwrap().to_owned());
    for call in calls {
        never_a_directory(what, call, &store);
        opens_are_safe(what, call, &store);
        published_files_are_never_written(what, call, &store);
        the_work_tree_is_never_written(what, call, &tree);
        assert_ne!(
            call.name, "sync",
            "{what}: a sync of the whole machine: {}",
            call.line
        );
    }
}

/// No directory of the store is removed or renamed, by any call.
fn never_a_directory(what: &str, call: &Call, store: &str) {
    if let Some((path, directory)) = call.removed() {
        assert!(
            !directory || below(&path, store).is_none(),
            "{what}: removes a directory: {}",
            call.line
        );
    }
    if let Some((from, to)) = call
        .moved()
        .filter(|_| call.name.starts_with("rename") && call.ok())
        && (below(&from, store).is_some() || below(&to, store).is_some())
    {
        // Directories of a store have these names and no others.
        let directory = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let fixed = [
                "generations",
                "incoming",
                "receipts",
                "turns",
                "jobs",
                "cache",
            ]
            .contains(&name);
            fixed || (name.starts_with("gen-") && !name.contains('.'))
        };
        assert!(
            !directory(&from) && !directory(&to),
            "{what}: renames a directory: {}",
            call.line
        );
    }
}

/// Every open is close-on-exec; below the store every open is no-follow and of one component.
fn opens_are_safe(what: &str, call: &Call, store: &str) {
    if !call.is_open() {
        return;
    }
    let flags = call.open_flags();
    assert!(
        flags.contains("O_CLOEXEC"),
        "{what}: not close-on-exec: {}",
        call.line
    );
    let path = call.open_path();
    // `.` is the directory that is open already; listing it needs a handle of its own.
    if below(&path, store).is_some() && call.text(1) != "." {
        assert!(
            flags.contains("O_NOFOLLOW"),
            "{what}: follows links: {}",
            call.line
        );
        assert!(
            !call.text(1).contains('/'),
            "{what}: more than one component: {}",
            call.line
        );
    }
}

/// A published file is opened for reading only, and nothing about it changes but its number of links.
fn published_files_are_never_written(what: &str, call: &Call, store: &str) {
    let published = |path: &str| {
        below(path, store).is_some_and(|rest| {
            rest.starts_with("generations/gen-") && rest.matches('/').count() == 2
        })
    };
    if call.is_open() && published(&call.open_path()) {
        let flags = call.open_flags();
        let writes = flags.contains("O_WRONLY") || flags.contains("O_RDWR");
        assert!(
            !writes || flags.contains("O_CREAT|O_EXCL") || flags.contains("O_EXCL"),
            "{what}: writes a published file: {}",
            call.line
        );
    }
    if matches!(
        call.name.as_str(),
        "truncate" | "chmod" | "fchmodat" | "utimensat" | "chown" | "fchownat"
    ) && call.ok()
    {
        let path = if call.args.len() > 1 && call.args[1].starts_with('"') {
            call.at(0, 1)
        } else {
            call.text(0)
        };
        assert!(
            !published(&path),
            "{what}: changes a published file: {}",
            call.line
        );
    }
}

/// A checkpoint, or any other verb of these, never writes to the work tree.
fn the_work_tree_is_never_written(what: &str, call: &Call, tree: &str) {
    let inside = |path: &str| path == tree || below(path, tree).is_some();
    if call.is_open() && inside(&call.open_path()) {
        let flags = call.open_flags();
        assert!(
            !["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"]
                .iter()
                .any(|flag| flags.contains(flag)),
            "{what}: {}",
            call.line
        );
    }
    let changes = [
        "mkdir",
        "mkdirat",
        "unlink",
        "unlinkat",
        "rmdir",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "chmod",
        "fchmod",
        "fchmodat",
        "chown",
        "fchown",
        "fchownat",
        "utimensat",
        "truncate",
        "ftruncate",
        "setxattr",
        "fsetxattr",
        "lsetxattr",
        "write",
        "pwrite64",
        "mknodat",
    ];
    if changes.contains(&call.name.as_str()) {
        let named = match call.moved() {
            Some((from, to)) => vec![from, to],
            None if call.args.get(1).is_some_and(|name| name.starts_with('"'))
                && call.name.ends_with("at") =>
            {
                vec![call.at(0, 1)]
            }
            None => vec![call.text(0), call.descriptor(0).to_owned()],
        };
        assert!(
            !named.iter().any(|path| inside(path)),
            "{what}: changes the work tree: {}",
            call.line
        );
    }
}

#[test]
fn every_verb_keeps_to_the_rules() {
    if !strace::is_here() {
        return;
    }
    each_in_turn(|dir, genstore, form| {
        let (ran, calls) = strace::trace(genstore, &form.args, &[]);
        assert_eq!(ran.status.code(), Some(0), "{}: {ran}", form.shown);
        check(&form.shown, &calls, dir);
        if !form.verb.mutates && form.verb.name != "completions" {
            reads_only(&form.shown, &calls, dir);
        }
    });
}

/// A reading verb changes nothing in the store.
fn reads_only(what: &str, calls: &[Call], dir: &Dir) {
    let store = place(dir);
    for call in calls.iter().filter(|call| call.ok()) {
        let writes = call.is_open()
            && ["O_WRONLY", "O_RDWR", "O_CREAT"]
                .iter()
                .any(|flag| call.open_flags().contains(flag));
        assert!(
            !writes || below(&call.open_path(), &store).is_none(),
            "{what}: opens for writing: {}",
            call.line
        );
        assert!(
            call.moved().is_none() && call.removed().is_none(),
            "{what}: {}",
            call.line
        );
        if call.name.starts_with("write") || call.name.starts_with("pwrite") {
            assert!(
                below(call.descriptor(0), &store).is_none(),
                "{what}: {}",
                call.line
            );
        }
    }
}

/// The commit that a trace shows: its calls up to the rename onto CURRENT, that rename, and those after it.
struct Commit<'c> {
    before: Vec<&'c Call>,
    flip: &'c Call,
    after: Vec<&'c Call>,
}

fn commit<'c>(what: &str, calls: &'c [Call], dir: &Dir) -> Commit<'c> {
    let current = format!("{}/CURRENT", place(dir));
    let flips: Vec<_> = calls
        .iter()
        .filter(|call| call.ok() && call.moved().is_some_and(|(_, to)| to == current))
        .collect();
    assert_eq!(
        flips.len(),
        1,
        "{what}: one rename onto CURRENT, not {}",
        flips.len()
    );
    let flip = flips[0];
    Commit {
        before: calls
            .iter()
            .filter(|call| call.span.1 <= flip.span.0)
            .collect(),
        flip,
        after: calls
            .iter()
            .filter(|call| call.span.0 >= flip.span.1)
            .collect(),
    }
}

/// Section 4, step 5: everything durable before the rename, the store's directory after it.
fn synced_in_order(what: &str, calls: &[Call], dir: &Dir, new_pack: bool) {
    let store = place(dir);
    let Commit {
        before,
        flip,
        after,
    } = commit(what, calls, dir);
    let synced: Vec<&str> = before
        .iter()
        .filter(|call| call.ok())
        .filter_map(|call| call.synced())
        .collect();
    let has = |wanted: &dyn Fn(&str) -> bool| {
        synced
            .iter()
            .filter_map(|path| below(path, &store))
            .any(wanted)
    };
    let live = dir.current().trim_end().to_owned();
    assert!(
        has(&|path| path == format!("generations/{live}")),
        "{what}: the generation's directory: {synced:?}"
    );
    assert!(
        has(&|path| path == format!("generations/{live}/manifest.json")),
        "{what}: the manifest: {synced:?}"
    );
    assert!(
        has(&|path| path == "generations"),
        "{what}: generations/: {synced:?}"
    );
    assert!(
        has(&|path| path.starts_with("incoming/current-")),
        "{what}: CURRENT's temporary file: {synced:?}"
    );
    if new_pack {
        assert!(
            has(&|path| path.contains(".pack") || path.starts_with("incoming/pack-")),
            "{what}: the pack: {synced:?}"
        );
    }
    let (from, _) = flip.moved().unwrap();
    assert!(
        below(&from, &store).is_some_and(|path| path.starts_with("incoming/current-")),
        "{what}: {}",
        flip.line
    );
    let first = after
        .iter()
        .find_map(|call| call.synced())
        .unwrap_or_default();
    assert_eq!(
        first, store,
        "{what}: the store's directory is synced first after the rename"
    );
    // Nothing is removed between the rename and that sync.
    let early = after
        .iter()
        .take_while(|call| call.synced() != Some(&store))
        .find(|call| call.removed().is_some());
    assert!(
        early.is_none(),
        "{what}: removed before the rename was durable: {}",
        early.unwrap().line
    );
    manifest_is_last(what, &before, &store, &live);
}

/// What a manifest names is in place before the manifest has its name.
fn manifest_is_last(what: &str, before: &[&Call], store: &str, live: &str) {
    let directory = format!("{store}/generations/{live}");
    let made = |name: &str, call: &Call| {
        (call.is_open()
            && call.open_flags().contains("O_CREAT")
            && call.open_path() == format!("{directory}/{name}"))
            || call
                .moved()
                .is_some_and(|(_, to)| to == format!("{directory}/{name}"))
    };
    let manifest = before.iter().position(|call| made("manifest.json", call));
    let manifest = manifest.unwrap_or_else(|| panic!("{what}: no manifest was made"));
    let late = before[manifest..].iter().find(|call| {
        call.moved()
            .is_some_and(|(_, to)| to.starts_with(&directory) && to.ends_with(".pack"))
    });
    assert!(
        late.is_none(),
        "{what}: a pack came after the manifest: {}",
        late.unwrap().line
    );
}

/// A verb's arguments on a store where it publishes.
fn publishing(dir: &Dir) -> Vec<(&'static str, Vec<String>, bool)> {
    let first = fs::read_dir(dir.store().join("generations"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| *name != dir.current().trim_end())
        .max()
        .unwrap();
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    vec![
        ("checkpoint", words(&["checkpoint"]), true),
        ("tag", words(&["tag", "latest", "v9"]), true),
        ("pin", words(&["pin", "latest"]), true),
        ("note", words(&["note", "latest", "text"]), true),
        // Undoing a note gives a catalog that was stored before: there may be no new pack.
        ("undo", words(&["undo"]), false),
        (
            "activate",
            words(&["activate", &first, "--leave-behind"]),
            false,
        ),
    ]
}

#[test]
fn everything_is_durable_before_it_is_visible() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore, _) = rich_store();
    for (what, args, new_pack) in publishing(&dir) {
        let (ran, calls) = strace::trace(&genstore, &args, &[]);
        ran.exit(0);
        synced_in_order(what, &calls, &dir, new_pack);
    }
    let candidate = crate::activate::candidate(&dir, "candidate");
    let (ran, calls) = strace::trace(&genstore, ["activate", candidate.to_str().unwrap()], &[]);
    ran.exit(0);
    synced_in_order("activate DIR", &calls, &dir, true);
    check("activate DIR", &calls, &dir);
    candidate_is_only_read(&calls, &candidate);
}

fn candidate_is_only_read(calls: &[Call], candidate: &std::path::Path) {
    let candidate = candidate.to_str().unwrap();
    for call in calls {
        if call.is_open() && call.open_path().starts_with(candidate) {
            let flags = call.open_flags();
            assert!(
                !flags.contains("O_WRONLY") && !flags.contains("O_RDWR"),
                "{}",
                call.line
            );
            assert!(
                flags.contains("O_NOFOLLOW") || call.open_path() == candidate,
                "{}",
                call.line
            );
        }
        // Read, not mapped: a failing disk must give an error, not a signal.
        assert!(
            call.name != "mmap" || !call.line.contains(candidate),
            "{}",
            call.line
        );
    }
}

/// A write to standard output.
fn is_answer(call: &Call) -> bool {
    call.name == "write" && call.args[0].starts_with("1<")
}

#[test]
fn a_commit_waits_for_the_disk_twice() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    // Each sync takes half a second: those that run side by side overlap on any machine.
    let slow = "inject=fsync,fdatasync,sync_file_range,syncfs:delay_enter=500000";
    let (ran, calls) = strace::trace(&genstore, ["checkpoint"], &["-e", slow]);
    ran.exit(0);
    let Commit {
        before,
        flip,
        after,
    } = commit("checkpoint", &calls, &dir);
    let syncs = |calls: &[&Call]| {
        calls
            .iter()
            .filter(|call| call.synced().is_some())
            .map(|call| (*call).clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        waits_in_a_row(&syncs(&before)),
        1,
        "before the rename: {:#?}",
        syncs(&before)
    );
    // After it, until the answer: the store's directory.
    let answer = after.iter().position(|call| is_answer(call)).unwrap();
    let after = syncs(&after[..answer]);
    assert_eq!(
        (after.len(), after[0].synced()),
        (1, Some(place(&dir).as_str())),
        "{after:#?}"
    );
    assert!(after[0].span.0 >= flip.span.1);
}

#[test]
fn an_answer_that_relies_on_another_writer_syncs_first() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    let store = place(&dir);
    let current = dir.current();
    for args in [&["checkpoint"][..], &["activate", current.trim_end()]] {
        let (ran, calls) = strace::trace(&genstore, args, &[]);
        let ran = ran.exit(0);
        assert_eq!(dir.current(), current, "{ran}");
        let answer = calls.iter().position(is_answer).unwrap();
        let synced = calls[..answer]
            .iter()
            .any(|call| call.synced() == Some(&store) && call.ok());
        assert!(
            synced,
            "{args:?} answered before the store's directory was synced"
        );
    }
}

#[test]
fn the_answer_comes_after_the_last_sync() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    let (ran, calls) = strace::trace(&genstore, ["checkpoint", "--json"], &[]);
    ran.exit(0);
    let Commit { after, .. } = commit("checkpoint", &calls, &dir);
    let store = place(&dir);
    let synced = after
        .iter()
        .position(|call| call.synced() == Some(&store))
        .unwrap();
    let answer = after.iter().position(|call| is_answer(call)).unwrap();
    assert!(synced < answer);
}

#[test]
fn published_files_are_read_only_and_shared_by_link() {
    let (dir, genstore) = store();
    let first = dir.packs();
    dir.write("a.txt", "changed\n");
    checkpoint(&genstore);
    for entry in walkdir::WalkDir::new(dir.store().join("generations")).min_depth(2) {
        let meta = fs::symlink_metadata(entry.unwrap().path()).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o400);
    }
    let second = dir.packs();
    let shared: Vec<PathBuf> = first
        .iter()
        .filter(|pack| {
            second
                .iter()
                .any(|other| other.file_name() == pack.file_name())
        })
        .cloned()
        .collect();
    for pack in shared {
        let here = fs::metadata(&pack).unwrap();
        let there = fs::metadata(dir.live().join(pack.file_name().unwrap())).unwrap();
        assert_eq!(here.ino(), there.ino(), "a shared pack is one inode");
    }
}

/// A planted program that does what is forbidden has to be caught, or the rules above prove nothing.
#[test]
fn the_rules_catch_a_forbidden_call() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    let live = dir.live();
    let forbidden = [
        (
            "rename of a directory",
            format!("mv {0} {0}x && mv {0}x {0}", live.display()),
        ),
        (
            "removal of a directory",
            format!("mkdir {0}/cache/x && rmdir {0}/cache/x", place(&dir)),
        ),
        (
            "write to a published file",
            format!("chmod u+w {0}/manifest.json", live.display()),
        ),
        (
            "write to the work tree",
            format!("touch {}/a.txt", dir.tree().display()),
        ),
        (
            "an open that follows links",
            format!("cat {}/CURRENT", place(&dir)),
        ),
    ];
    for (what, script) in forbidden {
        let calls = trace_shell(&genstore, &script);
        let caught = std::panic::catch_unwind(|| check(what, &calls, &dir));
        assert!(caught.is_err(), "{what} was not caught");
    }
}

fn trace_shell(genstore: &Genstore, script: &str) -> Vec<Call> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let traced = "trace=open,openat,rename,renameat,renameat2,rmdir,unlinkat,mkdir,fchmodat,?fchmodat2,chmod,utimensat";
    let mut command = std::process::Command::new("strace");
    command
        .args(&strace::prefix(log.path(), traced, &[])[1..])
        .args(["sh", "-c", script]);
    assert!(command.status().unwrap().success());
    let calls = strace::parse(&fs::read_to_string(log.path()).unwrap());
    assert!(
        calls.iter().any(genstore_tests::strace::Call::ok),
        "{}",
        genstore.binary().display()
    );
    calls
}
