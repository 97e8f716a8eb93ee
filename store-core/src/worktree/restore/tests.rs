//! Restores of real trees.

#![expect(clippy::disallowed_methods, reason = "tests make their own trees")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{
    Action, ApplyRequest, RestoreMode, RestorePlan, RestoreReport, RestoreRequest, apply, plan,
};
use crate::error::Result;
use crate::format::content::Content;
use crate::format::tree::{Extra, Node};
use crate::id::ObjectId;
use crate::objects::memory::MemoryObjects;
use crate::objects::{Class, ObjectSink, ObjectSource};
use crate::progress::{Cancel, NoProgress};
use crate::worktree::capture::RootMeta;
use crate::worktree::testing::{Scene, Take, Taken, flatten, nobody, pool, take};

const DELETE: RestoreMode = RestoreMode::Overwrite { delete: true };
const OVERWRITE: RestoreMode = RestoreMode::Overwrite { delete: false };

/// A restore in the making.
struct Put<'a> {
    memory: &'a MemoryObjects,
    tree: ObjectId,
    root_meta: Option<RootMeta>,
    paths: Vec<Vec<u8>>,
    mode: RestoreMode,
    owner: bool,
    protected: &'a (dyn Fn(&[u8]) -> bool + Sync),
    pool: &'a rayon::ThreadPool,
}

impl<'a> Put<'a> {
    fn new(memory: &'a MemoryObjects, taken: &Taken, mode: RestoreMode) -> Self {
        Self {
            memory,
            tree: taken.captured.root_tree,
            root_meta: Some(taken.captured.root_meta),
            paths: Vec::new(),
            mode,
            owner: false,
            protected: &|_| false,
            pool: pool(),
        }
    }

    fn paths(mut self, paths: &[&str]) -> Self {
        self.paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        self
    }

    fn plan(&self, target: &Path) -> Result<RestorePlan> {
        plan(&RestoreRequest {
            source: self.memory,
            root_tree: self.tree,
            root_meta: self.root_meta,
            paths: &self.paths,
            target,
            mode: self.mode,
            owner: self.owner,
            protected: self.protected,
            pool: self.pool,
            progress: &NoProgress,
            cancel: &Cancel::new(),
        })
    }

    fn apply(&self, plan: &RestorePlan) -> Result<RestoreReport> {
        apply_from(plan, self.memory, self.pool)
    }

    fn run(&self, target: &Path) -> Result<RestoreReport> {
        self.apply(&self.plan(target)?)
    }
}

fn apply_from(
    plan: &RestorePlan,
    source: &dyn ObjectSource,
    pool: &rayon::ThreadPool,
) -> Result<RestoreReport> {
    let cancel = Cancel::new();
    apply(
        plan,
        &ApplyRequest {
            source,
            order: None,
            pool,
            progress: &NoProgress,
            cancel: &cancel,
        },
    )
}

/// What a restored directory is, seen by a fresh capture: names, contents, modes, times, links.
fn seen(path: &Path) -> (ObjectId, RootMeta) {
    let root = crate::worktree::Root::open(path).unwrap();
    let taken = Take::default()
        .of(&root, &MemoryObjects::default())
        .unwrap();
    assert!(
        taken.captured.left_out.is_empty(),
        "{:?}",
        taken.captured.left_out
    );
    (taken.captured.root_tree, taken.captured.root_meta)
}

fn is(path: &Path, taken: &Taken) -> bool {
    seen(path) == (taken.captured.root_tree, taken.captured.root_meta)
}

fn failures(report: &RestoreReport) -> Vec<String> {
    report
        .failed
        .iter()
        .map(|f| format!("{}: {}", crate::name::escape(&f.path), f.reason))
        .collect()
}

/// A tree with something of everything.
fn everything() -> Scene {
    let scene = Scene::new();
    scene
        .file("plain", "x")
        .file("报告.txt", "y")
        .file(b"a\nb\xff", "z")
        .file(" lead", "");
    scene
        .file("A [x] (1).txt", "literal")
        .file("large", pattern(3_000_000));
    scene
        .file("suid", "s")
        .mode("suid", 0o6755)
        .mtime("plain", -5, 123_456_789);
    scene.dir("empty").dir("sticky").mode("sticky", 0o1777);
    scene
        .file("read-only/f", "1")
        .file("read-only/sub/g", "2")
        .link("read-only/l", "f");
    scene
        .link("loop", "loop")
        .link("abs", "/etc/passwd")
        .mtime("abs", 7, 7)
        .mtime("loop", -7, 9);
    scene
        .mode("read-only/f", 0o400)
        .mode("read-only/sub", 0o555)
        .mode("read-only", 0o555);
    for (path, seconds) in [
        ("read-only/sub", 10),
        ("read-only", 20),
        ("empty", -30),
        ("", 40),
    ] {
        scene.mtime(path, seconds, 999_999_999);
    }
    scene.mode("", 0o751);
    scene
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at / 7 % 251).unwrap())
        .collect()
}

#[test]
fn what_was_captured_comes_back_exactly_and_a_second_restore_does_nothing() {
    let scene = everything();
    let (memory, taken) = take(&scene);
    let other = Scene::new();
    let target = other.path("new");
    let report = Put::new(&memory, &taken, RestoreMode::Empty)
        .run(&target)
        .unwrap();
    assert!(report.failed.is_empty(), "{:?}", failures(&report));
    assert!(!report.unfinished);
    let counts = taken.captured.counts;
    let all = counts.files + counts.directories + counts.links;
    assert_eq!(report.restored.len() as u64, all);
    assert!(is(&target, &taken));

    let before = other.look();
    let again = Put::new(&memory, &taken, DELETE);
    let second = again.plan(&target).unwrap();
    assert!(second.is_empty(), "{second}");
    let report = again.apply(&second).unwrap();
    assert_eq!((report.restored.len(), report.removed.len()), (0, 0));
    assert_eq!(report.unchanged, all);
    assert_eq!(other.look(), before);
}

#[test]
fn somebody_without_rights_over_everything_restores_read_only_directories_too() {
    let scene = everything();
    scene.mode("suid", 0o755);
    let (memory, taken) = take(&scene);
    let other = Scene::new();
    other.mode("", 0o777);
    let target = other.path("new");
    let report = nobody().install(|| {
        let put = Put {
            pool: nobody(),
            ..Put::new(&memory, &taken, RestoreMode::Empty)
        };
        put.run(&target).unwrap()
    });
    assert!(report.failed.is_empty(), "{:?}", failures(&report));
    let restored = flatten(&recaptured(&target).0, &recaptured(&target).1);
    for (path, entry) in flatten(&memory, &taken.captured.root_tree) {
        let now = &restored[&path];
        assert_eq!(
            (now.mode, now.mtime),
            (entry.mode, entry.mtime),
            "{}",
            crate::name::escape(&path)
        );
    }
    // And changes within them, which needs them opened up for a while.
    let change = other.path("new/read-only/sub/g");
    std::fs::remove_file(&change).unwrap();
    let report = nobody().install(|| {
        let put = Put {
            pool: nobody(),
            ..Put::new(&memory, &taken, OVERWRITE)
        };
        put.run(&target).unwrap()
    });
    assert!(report.failed.is_empty(), "{:?}", failures(&report));
    assert_eq!(
        report.restored,
        [b"read-only/sub".to_vec(), b"read-only/sub/g".to_vec()]
    );
    let (again, tree) = recaptured(&target);
    assert_eq!(flatten(&again, &tree)[&b"read-only/sub"[..]].mode, 0o555);
}

fn recaptured(path: &Path) -> (MemoryObjects, ObjectId) {
    let memory = MemoryObjects::default();
    let root = crate::worktree::Root::open(path).unwrap();
    let taken = Take::default().of(&root, &memory).unwrap();
    (memory, taken.captured.root_tree)
}

#[test]
fn a_target_that_is_not_empty_is_refused_untouched() {
    let (memory, taken) = take(&everything());
    let other = Scene::new();
    other.file("t/mine", "1");
    let before = other.look();
    let put = Put::new(&memory, &taken, RestoreMode::Empty);
    assert_eq!(
        put.plan(&other.path("t")).unwrap_err().code(),
        "target_not_empty"
    );
    assert_eq!(other.look(), before);
    assert!(put.plan(&other.path("none/below")).is_err());
    other.dir("empty-target");
    put.run(&other.path("empty-target")).unwrap();
    assert!(is(&other.path("empty-target"), &taken));
}

#[test]
fn a_missing_object_is_found_before_the_first_byte_is_written() {
    for large in [false, true] {
        let scene = Scene::new();
        scene.file("a", "1").file(
            "z",
            if large {
                pattern(2_000_000)
            } else {
                b"2".to_vec()
            },
        );
        let (memory, taken) = take(&scene);
        let entry = &flatten(&memory, &taken.captured.root_tree)[&b"z"[..]];
        memory.remove(&last_chunk(&memory, entry));
        let other = Scene::new();
        let error = Put::new(&memory, &taken, RestoreMode::Empty).run(&other.path("new"));
        assert_eq!(error.unwrap_err().code(), "object_missing");
        assert_eq!(other.look().len(), 1, "the target was made");
    }
}

fn last_chunk(memory: &MemoryObjects, entry: &crate::format::tree::Entry) -> ObjectId {
    let crate::format::tree::Node::File { size, content, .. } = &entry.node else {
        panic!("no file")
    };
    let mut last = None;
    let mut visit = |id: ObjectId, _| {
        last = Some(id);
        Ok(())
    };
    crate::objects::chunker::visit_chunks(memory, content, *size, &mut visit).unwrap();
    last.unwrap()
}

/// A source in which one object goes bad after the plan was made.
struct Spoiled<'a> {
    memory: &'a MemoryObjects,
    bad: ObjectId,
}

impl ObjectSource for Spoiled<'_> {
    fn get(&self, id: &ObjectId, limit: usize) -> Result<Vec<u8>> {
        if *id == self.bad {
            return Err(crate::Error::damaged("pack", Some(*id), "a bad block"));
        }
        self.memory.get(id, limit)
    }

    fn contains(&self, id: &ObjectId) -> Result<bool> {
        self.memory.contains(id)
    }
}

#[test]
fn bad_content_never_has_a_final_name_and_the_next_restore_completes() {
    let scene = everything();
    let (memory, taken) = take(&scene);
    let all = flatten(&memory, &taken.captured.root_tree);
    for victim in [&b"large"[..], b"plain"] {
        let other = Scene::new();
        let target = other.path("new");
        let put = Put::new(&memory, &taken, RestoreMode::Empty);
        let planned = put.plan(&target).unwrap();
        let spoiled = Spoiled {
            memory: &memory,
            bad: last_chunk(&memory, &all[victim]),
        };
        let report = apply_from(&planned, &spoiled, pool()).unwrap();
        assert!(report.unfinished);
        assert_eq!(report.failed.len(), 1);
        assert_eq!(report.failed[0].path, victim);
        let names = other.look();
        assert!(
            !names.keys().any(|path| path.ends_with(victim)),
            "a final name"
        );
        assert!(
            !names
                .keys()
                .any(|path| path.windows(4).any(|w| w == b"-tmp")),
            "a temporary file"
        );
        assert!(names.contains_key(&b"new/.genstore-restore-incomplete"[..]));

        // As a kill leaves it: half a file under a final name, and a temporary file.
        other
            .mode("new", 0o755)
            .file("new/plain", "ha")
            .mode("new/read-only", 0o755);
        let litter = format!("new/read-only/.genstore-tmp-{}", "0a".repeat(16));
        other.file(&litter, "half");
        let report = put.run(&target).unwrap();
        assert!(report.failed.is_empty(), "{:?}", failures(&report));
        assert!(!report.unfinished);
        assert!(is(&target, &taken));
    }
}

#[test]
fn overwriting_writes_only_what_differs() {
    let scene = Scene::new();
    scene
        .file("same", "1")
        .file("content", "22")
        .file("mode", "3")
        .file("time", "4")
        .file("d/in", "5");
    scene
        .link("link", "to")
        .link("other-link", "x")
        .file("gone", "6")
        .file("was-file", "7");
    scene.dir("was-dir").link("was-link", "y");
    let (memory, taken) = take(&scene);
    let same = scene.root();
    scene
        .file("content", "23")
        .mode("mode", 0o600)
        .mtime("time", 5, 5)
        .file("d/extra", "mine");
    scene
        .remove("other-link")
        .link("other-link", "changed")
        .remove("gone");
    scene
        .remove("was-file")
        .link("was-file", "/etc/hostname")
        .remove("was-link")
        .file("was-link", "f");
    scene
        .remove("was-dir")
        .file("was-dir", "a file now")
        .fifo("fifo");
    let put = Put::new(&memory, &taken, OVERWRITE);
    let planned = put.plan(same.path()).unwrap();
    let changes: Vec<_> = planned
        .changes()
        .into_iter()
        .map(|(p, a)| (String::from_utf8(p).unwrap(), a))
        .collect();
    let expected = [
        ("content", Action::Replace),
        ("d", Action::SetMetadata),
        ("gone", Action::Create),
        ("mode", Action::SetMetadata),
        ("other-link", Action::Replace),
        ("time", Action::SetMetadata),
        ("was-dir", Action::Replace),
        ("was-file", Action::Replace),
        ("was-link", Action::Replace),
    ];
    assert_eq!(
        changes,
        expected.map(|(path, action)| (path.to_owned(), action))
    );
    let inode = |path: &str| {
        std::os::unix::fs::MetadataExt::ino(&std::fs::symlink_metadata(scene.path(path)).unwrap())
    };
    let before = inode("same");
    let report = put.apply(&planned).unwrap();
    assert!(report.failed.is_empty(), "{:?}", failures(&report));
    assert_eq!(inode("same"), before);
    assert_eq!(
        scene.read("d/extra"),
        b"mine",
        "nothing is removed without being asked"
    );
    let again = put.plan(same.path()).unwrap();
    assert!(again.is_empty(), "{again}");

    let delete = Put::new(&memory, &taken, DELETE);
    let report = delete.run(same.path()).unwrap();
    assert_eq!(report.removed, [b"d/extra"]);
    assert_eq!(report.kept.len(), 1, "{:?}", report.kept);
    assert_eq!(report.kept[0].path, b"fifo");
    scene.remove("fifo").mtime(
        "",
        taken.captured.root_meta.mtime.seconds,
        taken.captured.root_meta.mtime.nanoseconds.into(),
    );
    assert!(is(same.path(), &taken));
}

#[test]
fn content_is_compared_by_hash_whatever_the_times_say() {
    let scene = Scene::new();
    scene.file("small", "one").mtime("small", 5, 5);
    scene.file("large", pattern(1_500_000)).mtime("large", 5, 5);
    let (memory, taken) = take(&scene);
    let mut other = pattern(1_500_000);
    other[1_400_000] ^= 1;
    scene.file("small", "two").mtime("small", 5, 5);
    scene.file("large", other).mtime("large", 5, 5);
    let report = Put::new(&memory, &taken, OVERWRITE)
        .run(&scene.path(""))
        .unwrap();
    assert_eq!(report.restored, [b"large", b"small"]);
    assert_eq!(scene.read("small"), b"one");
    assert_eq!(scene.read("large"), pattern(1_500_000));
}

#[test]
fn removing_spares_what_is_protected_and_the_way_to_it() {
    let scene = Scene::new();
    scene.file("a", "1");
    let (memory, taken) = take(&scene);
    scene
        .file("x/y/keep", "1")
        .file("x/y/go", "2")
        .file("x/z/go", "3")
        .file("top", "4");
    scene.file("node_modules/p/q", "5");
    let protected = |path: &[u8]| path == b"x/y/keep" || path == b"node_modules";
    let put = Put {
        protected: &protected,
        ..Put::new(&memory, &taken, DELETE)
    };
    let planned = put.plan(&scene.path("")).unwrap();
    let report = put.apply(&planned).unwrap();
    assert!(report.failed.is_empty(), "{:?}", failures(&report));
    let names = ["top", "x/y/go", "x/z", "x/z/go"].map(|name| name.as_bytes().to_vec());
    assert_eq!(report.removed, names);
    assert_eq!(scene.read("x/y/keep"), b"1");
    assert_eq!(scene.read("node_modules/p/q"), b"5");
    assert_eq!(report.kept.len(), 2);
}

#[test]
fn a_directory_with_content_makes_way_only_when_removing_was_asked_for() {
    let scene = Scene::new();
    scene.file("f", "1").link("l", "x");
    let (memory, taken) = take(&scene);
    scene.remove("f").file("f/mine", "2").remove("l").dir("l");
    let report = Put::new(&memory, &taken, OVERWRITE)
        .run(&scene.path(""))
        .unwrap();
    assert_eq!(
        failures(&report),
        ["f: a directory with content is in the way; add --delete to remove it"]
    );
    assert_eq!(report.restored, [b"l"]);
    assert_eq!(scene.read("f/mine"), b"2");

    let protected = |path: &[u8]| path == b"f/mine";
    let put = Put {
        protected: &protected,
        ..Put::new(&memory, &taken, DELETE)
    };
    let report = put.run(&scene.path("")).unwrap();
    assert_eq!(report.failed.len(), 1, "{:?}", failures(&report));
    assert_eq!(scene.read("f/mine"), b"2");

    let report = Put::new(&memory, &taken, DELETE)
        .run(&scene.path(""))
        .unwrap();
    assert!(report.failed.is_empty(), "{:?}", failures(&report));
    assert_eq!(
        (scene.read("f"), report.removed),
        (b"1".to_vec(), vec![b"f/mine".to_vec()])
    );
}

/// `a/b/c/f` with a link planted at one of the components, to a directory that looks like what it replaces.
fn planted(at: usize) -> (Scene, PathBuf, Vec<&'static str>) {
    let components = ["a", "a/b", "a/b/c", "a/b/c/f"];
    let scene = Scene::new();
    scene
        .file("outside/b/c/f", "safe")
        .file("outside/c/f", "safe")
        .file("outside/f", "safe");
    scene.dir("t/a/b/c");
    let name = format!("t/{}", components[at]);
    if std::fs::symlink_metadata(scene.path(&name)).is_ok() {
        scene.remove(&name);
    }
    let outside = if at == 3 {
        scene.path("outside/f")
    } else {
        scene.path("outside")
    };
    scene.link(&name, outside.to_str().unwrap());
    let target = scene.path("t");
    (scene, target, components.to_vec())
}

#[test]
fn a_planted_link_is_never_followed_whichever_component_it_is() {
    let source = Scene::new();
    source.file("a/b/c/f", "restored");
    let (memory, taken) = take(&source);
    for at in 0..4 {
        let (scene, target, components) = planted(at);
        let outside = |scene: &Scene| {
            let all = scene.look().into_iter();
            all.filter(|(path, _)| path.starts_with(b"outside"))
                .collect::<Vec<_>>()
        };
        let before = outside(&scene);
        let put = Put::new(&memory, &taken, DELETE).paths(&["a/b/c/f"]);
        let report = put.run(&target).unwrap();
        assert_eq!(outside(&scene), before, "followed at {}", components[at]);
        if at == 3 {
            assert_eq!(scene.read("t/a/b/c/f"), b"restored");
            assert!(
                std::fs::symlink_metadata(scene.path("t/a/b/c/f"))
                    .unwrap()
                    .is_file()
            );
        } else {
            let expected = format!("{}: a symbolic link is in the way", components[at]);
            assert_eq!(failures(&report), [expected]);
        }

        // Wanted as a whole, the link itself is replaced.
        let (scene, target, _) = planted(at);
        let before = outside(&scene);
        let report = Put::new(&memory, &taken, OVERWRITE).run(&target).unwrap();
        assert!(report.failed.is_empty(), "{:?}", failures(&report));
        assert_eq!(outside(&scene), before);
        assert_eq!(scene.read("t/a/b/c/f"), b"restored");
        assert!(
            std::fs::symlink_metadata(scene.path("t/a"))
                .unwrap()
                .is_dir()
        );
    }
}

#[test]
fn a_link_planted_after_the_plan_is_not_followed_either() {
    let source = Scene::new();
    source.file("a/b/f", "restored").file("a/b/d/g", "2");
    let (memory, taken) = take(&source);
    for component in ["a", "a/b"] {
        let scene = Scene::new();
        scene.dir("t/a/b").dir("outside");
        let put = Put::new(&memory, &taken, OVERWRITE);
        let planned = put.plan(&scene.path("t")).unwrap();
        let name = format!("t/{component}");
        scene
            .remove(&name)
            .link(&name, scene.path("outside").to_str().unwrap());
        let report = put.apply(&planned).unwrap();
        assert!(!report.failed.is_empty());
        assert!(
            failures(&report)
                .iter()
                .any(|line| line.starts_with("a/b/f: ")),
            "{:?}",
            failures(&report)
        );
        assert_eq!(std::fs::read_dir(scene.path("outside")).unwrap().count(), 0);
    }
}

#[test]
fn what_changed_after_the_plan_is_left_alone() {
    let scene = Scene::new();
    scene
        .file("replace", "1")
        .file("set", "2")
        .link("link", "x");
    let (memory, taken) = take(&scene);
    scene
        .file("replace", "edit")
        .mode("set", 0o600)
        .remove("link")
        .link("link", "y")
        .file("extra", "3");
    let put = Put::new(&memory, &taken, DELETE);
    let planned = put.plan(&scene.path("")).unwrap();
    for path in ["replace", "set", "extra"] {
        scene.file(path, "a person's work").mtime(path, 9, 9);
    }
    scene.remove("link").link("link", "z");
    let report = put.apply(&planned).unwrap();
    assert_eq!(
        failures(&report),
        ["extra", "link", "replace", "set"]
            .map(|path| format!("{path}: changed since the plan was made"))
    );
    for path in ["replace", "set", "extra"] {
        assert_eq!(scene.read(path), b"a person's work");
    }
    assert!(
        !scene
            .look()
            .keys()
            .any(|path| path.starts_with(b".genstore"))
    );
}

#[test]
fn named_paths_are_literal_and_whole() {
    let scene = everything();
    scene
        .file("d/sub/one", "1")
        .file("d/two", "2")
        .file("d[x]/other", "3");
    let (memory, taken) = take(&scene);
    let other = Scene::new();
    let target = other.path("new");
    let put = Put::new(&memory, &taken, RestoreMode::Empty).paths(&[
        "A [x] (1).txt",
        "d/sub",
        "报告.txt",
    ]);
    let report = put.run(&target).unwrap();
    assert!(report.failed.is_empty(), "{:?}", failures(&report));
    let names = other
        .look()
        .into_keys()
        .filter(|path| path.starts_with(b"new/"))
        .collect::<Vec<_>>();
    let expected = [
        "new/A [x] (1).txt",
        "new/d",
        "new/d/sub",
        "new/d/sub/one",
        "new/报告.txt",
    ];
    assert_eq!(names, expected.map(|name| name.as_bytes().to_vec()));

    for (missing, shown) in [
        ("none", "none"),
        ("d/nope/x", "d/nope/x"),
        ("d/two/x", "d/two/x"),
        ("d*", "d*"),
    ] {
        let put = Put::new(&memory, &taken, OVERWRITE).paths(&["plain", missing]);
        let error = put.plan(&target).unwrap_err();
        assert_eq!(error.code(), "path_not_found");
        assert!(
            error.to_string().contains(&format!("\"{shown}\"")),
            "{error}"
        );
    }
}

#[test]
fn what_is_outside_the_named_paths_is_not_touched_even_when_removing() {
    let scene = Scene::new();
    scene.file("d/a", "1").file("e/b", "2").mtime("e", 5, 5);
    let (memory, taken) = take(&scene);
    scene
        .file("d/extra", "3")
        .file("e/extra", "4")
        .file("extra", "5")
        .remove("d/a");
    let report = Put::new(&memory, &taken, DELETE)
        .paths(&["d"])
        .run(&scene.path(""))
        .unwrap();
    assert_eq!(report.removed, [b"d/extra"]);
    assert_eq!(
        report.restored,
        [b"d".to_vec(), b"d/a".to_vec()],
        "the directory for its time"
    );
    assert_eq!(
        (scene.read("extra"), scene.read("e/extra")),
        (b"5".to_vec(), b"4".to_vec())
    );
}

#[test]
fn an_unlink_that_fails_is_reported_as_failed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes root to make a directory that belongs to somebody else");
        return;
    }
    let scene = Scene::new();
    scene.file("d/keep", "1");
    let (memory, taken) = take(&scene);
    scene.file("d/extra", "2");
    let report = nobody().install(|| {
        let put = Put {
            pool: nobody(),
            ..Put::new(&memory, &taken, DELETE)
        };
        put.run(&scene.path("")).unwrap()
    });
    assert!(report.removed.is_empty());
    assert!(
        failures(&report).contains(&"d/extra: permission denied".to_owned()),
        "{:?}",
        failures(&report)
    );
    assert_eq!(scene.read("d/extra"), b"2");
}

#[test]
fn owners_come_back_only_when_asked_for() {
    use std::os::unix::fs::MetadataExt;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let scene = Scene::new();
    scene
        .file("f", "1")
        .mode("f", 0o4755)
        .link("l", "f")
        .dir("d");
    for path in ["f", "l", "d"] {
        std::os::unix::fs::lchown(scene.path(path), Some(1234), Some(4321)).unwrap();
    }
    scene.mode("f", 0o4755);
    let (memory, taken) = take(&scene);
    for owner in [false, true] {
        let other = Scene::new();
        let put = Put {
            owner,
            ..Put::new(&memory, &taken, RestoreMode::Empty)
        };
        let report = put.run(&other.path("new")).unwrap();
        assert!(report.failed.is_empty(), "{:?}", failures(&report));
        for path in ["new/f", "new/l", "new/d"] {
            let stat = std::fs::symlink_metadata(other.path(path)).unwrap();
            assert_eq!(
                (stat.uid(), stat.gid()),
                if owner { (1234, 4321) } else { (0, 0) }
            );
        }
        let stat = std::fs::symlink_metadata(other.path("new/f")).unwrap();
        assert_eq!(
            stat.mode() & 0o7777,
            0o4755,
            "set-id bits survive a change of owner"
        );
    }
}

#[test]
fn what_cannot_be_set_is_reported_and_the_content_is_there() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes root to capture a file of somebody else");
        return;
    }
    let scene = Scene::new();
    scene.file("f", "1");
    let (memory, taken) = take(&scene);
    let other = Scene::new();
    other.mode("", 0o777);
    let report = nobody().install(|| {
        let put = Put {
            owner: true,
            pool: nobody(),
            ..Put::new(&memory, &taken, RestoreMode::Empty)
        };
        put.run(&other.path("new")).unwrap()
    });
    assert!(
        failures(&report)
            .iter()
            .any(|line| line == "f: owner: operation not permitted"),
        "{:?}",
        failures(&report)
    );
    assert!(report.restored.is_empty());
    assert!(!report.unfinished, "no content is missing");
    assert_eq!(other.read("new/f"), b"1");
}

#[test]
fn a_tree_that_no_path_can_name_is_restored() {
    let memory = MemoryObjects::default();
    let scene = Scene::new();
    let levels = 3000;
    let mut tree = crate::format::tree::Tree::default();
    let mtime = crate::clock::Time {
        seconds: 12,
        nanoseconds: 34,
    };
    let entry = |name: &[u8], node| crate::format::tree::Entry {
        name: name.to_vec(),
        mode: 0o755,
        mtime,
        owner: None,
        xattrs: crate::format::tree::Extra::NotCaptured,
        node,
    };
    for level in 0..levels {
        let below = memory.put(&tree.encode(), Class::Tree).unwrap();
        let content = Content::Chunk(memory.put(b"x", Class::Chunk).unwrap());
        let file = Node::File {
            size: 1,
            content,
            holes: Extra::NotCaptured,
        };
        tree = crate::format::tree::Tree {
            entries: vec![entry(b"d", Node::Directory { tree: below })],
        };
        if level % 100 == 0 {
            tree.entries.push(entry(b"f", file));
        }
    }
    let root = memory.put(&tree.encode(), Class::Tree).unwrap();
    let (_, taken) = take(&scene);
    let put = Put {
        tree: root,
        ..Put::new(&memory, &taken, RestoreMode::Empty)
    };
    let target = scene.path("t");
    let report = put.run(&target).unwrap();
    assert!(report.failed.is_empty(), "{:?}", report.failed.len());
    assert_eq!(report.restored.len(), levels + levels / 100);
    let (seen, seen_tree) = recaptured(&target);
    let side = |source, tree| crate::worktree::compare::Side {
        source,
        tree: Some(tree),
    };
    let mut different = 0;
    let count = &mut |_| {
        different += 1;
        std::ops::ControlFlow::Continue(())
    };
    crate::worktree::compare::diff(side(&memory, root), side(&seen, seen_tree), count).unwrap();
    assert_eq!(different, 0);
    let second = Put {
        mode: DELETE,
        ..put
    }
    .plan(&target)
    .unwrap();
    assert!(second.is_empty());
    // And all of it goes again.
    let nothing = memory
        .put(&crate::format::tree::Tree::default().encode(), Class::Tree)
        .unwrap();
    let report = Put {
        tree: nothing,
        ..Put::new(&memory, &taken, DELETE)
    }
    .run(&target)
    .unwrap();
    assert_eq!(report.removed.len(), levels + levels / 100);
}

/// A source that remembers what was asked for.
struct Listening<'a> {
    memory: &'a MemoryObjects,
    asked: Mutex<Vec<ObjectId>>,
}

impl ObjectSource for Listening<'_> {
    fn get(&self, id: &ObjectId, limit: usize) -> Result<Vec<u8>> {
        self.asked.lock().unwrap().push(*id);
        self.memory.get(id, limit)
    }

    fn contains(&self, id: &ObjectId) -> Result<bool> {
        self.memory.contains(id)
    }
}

#[test]
fn files_are_written_in_the_order_of_their_packs() {
    let scene = Scene::new();
    for at in 0..30 {
        scene.file(format!("{at}"), format!("content {at}"));
    }
    let (memory, taken) = take(&scene);
    let other = Scene::new();
    let one = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    let put = Put {
        pool: &one,
        ..Put::new(&memory, &taken, RestoreMode::Empty)
    };
    let planned = put.plan(&other.path("new")).unwrap();
    let source = Listening {
        memory: &memory,
        asked: Mutex::default(),
    };
    let key = |id: &ObjectId| u64::from_le_bytes(id.as_bytes()[8..16].try_into().unwrap());
    let request = ApplyRequest {
        source: &source,
        order: Some(&key),
        pool: &one,
        progress: &NoProgress,
        cancel: &Cancel::new(),
    };
    apply(&planned, &request).unwrap();
    let asked: Vec<u64> = source.asked.lock().unwrap().iter().map(key).collect();
    assert_eq!(asked.len(), 30);
    assert!(asked.is_sorted());
}

#[test]
fn a_file_that_has_the_markers_name_is_restored_last() {
    let scene = Scene::new();
    scene
        .file(".genstore-restore-incomplete", "captured")
        .file("a", "1");
    let (memory, taken) = take(&scene);
    let other = Scene::new();
    let report = Put::new(&memory, &taken, RestoreMode::Empty)
        .run(&other.path("new"))
        .unwrap();
    assert!(report.failed.is_empty(), "{:?}", failures(&report));
    assert!(is(&other.path("new"), &taken));
}

#[test]
fn cancelling_leaves_the_marker() {
    let (memory, taken) = take(&everything());
    let other = Scene::new();
    let put = Put::new(&memory, &taken, RestoreMode::Empty);
    let planned = put.plan(&other.path("new")).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let request = ApplyRequest {
        source: &memory,
        order: None,
        pool: pool(),
        progress: &NoProgress,
        cancel: &cancel,
    };
    assert_eq!(apply(&planned, &request).unwrap_err().code(), "cancelled");
    assert!(
        other
            .look()
            .contains_key(&b"new/.genstore-restore-incomplete"[..])
    );
    put.run(&other.path("new")).unwrap();
    assert!(is(&other.path("new"), &taken));
}
