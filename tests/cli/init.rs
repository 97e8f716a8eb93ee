//! `init` survives a kill at every step, and sixteen first checkpoints at once make one store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use genstore_tests::strace::{self, Call};
use genstore_tests::tree::Frozen;
use genstore_tests::{Dir, Genstore, reader};

use crate::{GENSTORE, fixture, text};

/// Calls that change something on disk, as strace names them.
pub(crate) const CHANGING: [&str; 21] = [
    "mkdir",
    "mkdirat",
    "openat",
    "open",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "unlink",
    "unlinkat",
    "fchmod",
    "fallocate",
    "ftruncate",
    "copy_file_range",
];

/// Every (call, n) of a traced run below `place`: where a kill is tried.
pub(crate) fn kill_points(calls: &[Call], place: &str) -> Vec<(String, usize)> {
    // strace counts per thread and per call; the points of all threads together cover every moment.
    let mut seen: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    let mut points = BTreeSet::new();
    for call in calls
        .iter()
        .filter(|call| CHANGING.contains(&call.name.as_str()))
    {
        let number = seen.entry((call.thread, &call.name)).or_default();
        *number += 1;
        let creates = !call.is_open() || call.open_flags().contains("O_CREAT");
        if creates && call.line.contains(place) {
            points.insert((call.name.clone(), *number));
        }
    }
    points.into_iter().collect()
}

/// Runs a command that is killed at that point. Whether it was.
pub(crate) fn run_and_kill(
    genstore: &Genstore,
    args: &[&str],
    (call, number): &(String, usize),
) -> bool {
    let inject = format!("inject={call}:signal=KILL:when={number}");
    let log = tempfile::NamedTempFile::new().unwrap();
    let traced = format!("trace={call}");
    let ran = genstore
        .clone()
        .under(strace::prefix(log.path(), &traced, &["-e", &inject]))
        .run(args);
    // strace kills itself with the same signal.
    ran.killed_by(9) || ran.status.code() == Some(137)
}

#[test]
fn init_makes_what_the_format_says() {
    let (dir, genstore) = fixture();
    let made = genstore.json(["init"]);
    assert_eq!(made["schema"], "genstore.init/1");
    let mut names: Vec<_> = fs::read_dir(dir.store())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        ".gitignore",
        "CURRENT",
        "LOCK",
        "cache",
        "generations",
        "incoming",
        "jobs",
        "receipts",
        "reserve",
        "turns",
    ];
    assert_eq!(names, expected);
    reader::check(&dir.store());
    assert_eq!(genstore.json(["verify"])["ok"], true);
    assert_eq!(
        genstore.json(["log", "--all"])["checkpoints"],
        serde_json::json!([])
    );
}

#[test]
fn init_does_not_depend_on_the_umask() {
    let (dir, genstore) = fixture();
    for umask in ["000", "077", "777"] {
        let store = dir.path(format!("store-{umask}"));
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        let masked = genstore.clone().on(&store).under(["sh", "-c", &script]);
        masked.ok(["init"]);
        masked.ok(["checkpoint"]);
        // The reader checks every mode.
        reader::check(&store);
    }
}

#[test]
fn init_finishes_an_init_that_was_killed_at_any_step() {
    killed_at_every_step(&["init"]);
}

#[test]
fn the_first_checkpoint_finishes_an_init_that_was_killed_at_any_step() {
    killed_at_every_step(&["checkpoint"]);
}

fn killed_at_every_step(finish: &[&str]) {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = fixture();
    let place = dir.root().to_str().unwrap().to_owned();
    let (ran, calls) = strace::trace(
        &genstore.clone().on(dir.path("deep/er/trace")),
        ["init"],
        &[],
    );
    ran.exit(0);
    let points = kill_points(&calls, &place);
    assert!(points.len() > 15, "init changes more than that: {points:?}");
    let mut killed = 0;
    for (number, point) in points.iter().enumerate() {
        let store = dir.path(format!("deep-{number}/er/store"));
        let genstore = genstore.clone().on(&store);
        killed += usize::from(run_and_kill(&genstore, &["init"], point));
        let whole = store.join("CURRENT").exists();
        let ran = genstore.run(finish);
        // An init that had got to its end is a store, and init says so.
        let expected = if whole && finish[0] == "init" { 8 } else { 0 };
        assert_eq!(
            ran.status.code(),
            Some(expected),
            "after a kill at {point:?}: {ran}"
        );
        genstore.ok(["checkpoint"]);
        assert_eq!(genstore.json(["verify"])["ok"], true);
        assert_eq!(
            fs::read_dir(store.join("incoming")).unwrap().count(),
            0,
            "after a kill at {point:?}"
        );
        if number % 5 == 0 {
            reader::check(&store);
        }
    }
    assert!(killed > 15, "only {killed} runs were killed");
}

#[test]
fn init_leaves_what_is_not_its_own_alone() {
    for (name, make) in strange_directories() {
        let dir = Dir::new();
        let genstore = dir.genstore(GENSTORE);
        fs::create_dir(dir.store()).unwrap();
        make(&dir);
        let before = Frozen::of(&dir.store());
        for verb in ["init", "checkpoint"] {
            let ran = genstore.run([verb]);
            assert!(matches!(ran.status.code(), Some(5 | 8)), "{name}: {ran}");
            // LOCK may have been looked at, but nothing came, went or changed.
            before.assert_unchanged(&Frozen::of(&dir.store()), name);
        }
    }
}

type Make = fn(&Dir);

/// Directories that are neither empty nor an unfinished init.
fn strange_directories() -> Vec<(&'static str, Make)> {
    vec![
        ("a foreign file", |dir| {
            fs::write(dir.store().join("notes"), "mine").unwrap();
        }),
        ("a foreign file beside init's names", |dir| {
            fs::write(dir.store().join("LOCK"), "initialising 1").unwrap();
            fs::create_dir(dir.store().join("generations")).unwrap();
            fs::write(dir.store().join("notes"), "mine").unwrap();
        }),
        ("a lock of a store that lives", |dir| {
            fs::write(dir.store().join("LOCK"), "held 1 host").unwrap();
            fs::create_dir(dir.store().join("generations")).unwrap();
        }),
        ("a store without CURRENT", |dir| {
            fs::remove_dir(dir.store()).unwrap();
            let genstore = dir.genstore(GENSTORE);
            dir.write("x", "x");
            crate::checkpoint(&genstore);
            fs::remove_file(dir.store().join("CURRENT")).unwrap();
        }),
        ("CURRENT alone", |dir| {
            fs::write(dir.store().join("CURRENT"), "").unwrap();
        }),
    ]
}

#[test]
fn sixteen_first_checkpoints_at_once_make_one_store() {
    let dir = Dir::new();
    let sources: Vec<_> = (0..16)
        .map(|number| {
            let source = dir.path(format!("source-{number}"));
            fs::create_dir(&source).unwrap();
            fs::write(source.join("file"), format!("{number}")).unwrap();
            source
        })
        .collect();
    let genstore = dir.genstore(GENSTORE).on_default_store();
    let mut children: Vec<_> = sources
        .iter()
        .map(|source| {
            genstore
                .clone()
                .within(source)
                .command(["checkpoint", "--json"])
                .spawn()
                .unwrap()
        })
        .collect();
    let mut acknowledged = BTreeSet::new();
    for child in children.drain(..) {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{} {}",
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
        let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(made["created"], true, "{made}");
        acknowledged.insert(text(&made["id"]));
    }
    assert_eq!(acknowledged.len(), 16);
    let found = genstore.json(["log", "--all"]);
    let listed: BTreeSet<_> = found["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| text(&row["id"]))
        .collect();
    assert_eq!(listed, acknowledged);
    assert_eq!(
        genstore.json(["status"])["lineages"]
            .as_array()
            .map(Vec::len),
        Some(16)
    );
    assert_eq!(genstore.json(["verify"])["ok"], true);
    let store = dir.path("home/.local/share/genstore");
    let one: BTreeSet<_> = fs::read_dir(dir.path("home/.local/share"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(one, BTreeSet::from([store.clone()]));
    reader::check(&store);
}
