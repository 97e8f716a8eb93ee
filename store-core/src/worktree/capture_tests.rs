//! Captures of real trees.

#![expect(clippy::disallowed_methods, reason = "tests make their own trees")]

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, SystemClock, Time};
use crate::error::Result;
use crate::format::tree::{Kind, Node};
use crate::id::ObjectId;
use crate::objects::memory::MemoryObjects;
use crate::objects::{Class, ObjectSink};
use crate::worktree::Root;
use crate::worktree::capture::CaptureOptions;
use crate::worktree::rules::RuleOptions;
use crate::worktree::testing::{
    Ahead, Scene, Take, content, flatten, left_out, nobody, paths, take,
};

#[test]
fn names_in_every_form_are_captured_byte_for_byte() {
    let names: [&[u8]; 12] = [
        "报告.txt".as_bytes(),
        b" lead.txt",
        b"trail ",
        b"dot.",
        b"a\tb",
        b"a\nb",
        b"\xff\xfe",
        b"-rf",
        b"A [x] (1).txt",
        b"'\"\\$`",
        b"...",
        "n\u{303}".as_bytes(),
    ];
    let scene = Scene::new();
    for (at, name) in names.iter().enumerate() {
        scene.file(name, format!("content {at}"));
        scene.file([b"d-", *name, b"/", *name].concat(), name);
        scene.link([b"l-", *name].concat(), name);
    }
    let (memory, taken) = take(&scene);
    let all = flatten(&memory, &taken.captured.root_tree);
    assert_eq!(all.len(), names.len() * 4);
    for (at, name) in names.iter().enumerate() {
        assert_eq!(
            content(&memory, &all[*name]),
            format!("content {at}").as_bytes()
        );
        assert_eq!(
            content(&memory, &all[&[b"d-", *name, b"/", *name].concat()]),
            *name
        );
        let link = &all[&[b"l-", *name].concat()];
        assert_eq!(
            link.node,
            Node::Symlink {
                target: name.to_vec()
            }
        );
    }
    let counts = taken.captured.counts;
    assert_eq!(
        (
            counts.files,
            counts.directories,
            counts.links,
            counts.left_out
        ),
        (24, 12, 12, 0)
    );
    assert!(taken.captured.complete && taken.captured.left_out.is_empty());
}

#[test]
fn modes_and_times_are_exact_and_the_root_has_its_own() {
    let scene = Scene::new();
    scene
        .file("old", "x")
        .mode("old", 0o6751)
        .mtime("old", -86_401, 123_456_789);
    scene
        .dir("empty")
        .mode("empty", 0o1700)
        .mtime("empty", 5, 999_999_999);
    scene.link("link", "nowhere").mtime("link", -1, 1);
    scene.mode("", 0o750).mtime("", 77, 7);
    let (memory, taken) = take(&scene);
    let all = flatten(&memory, &taken.captured.root_tree);
    let time = |seconds, nanoseconds| Time {
        seconds,
        nanoseconds,
    };
    assert_eq!(
        (all[&b"old"[..]].mode, all[&b"old"[..]].mtime),
        (0o6751, time(-86_401, 123_456_789))
    );
    assert_eq!(
        (all[&b"empty"[..]].mode, all[&b"empty"[..]].mtime),
        (0o1700, time(5, 999_999_999))
    );
    assert_eq!(all[&b"link"[..]].mtime, time(-1, 1));
    let root = taken.captured.root_meta;
    assert_eq!((root.mode, root.mtime), (0o750, time(77, 7)));
    let stat = scene.root();
    assert_eq!(root.owner, Some(stat.stat().owner));
    assert_eq!(all[&b"old"[..]].owner, root.owner);
}

#[test]
fn special_files_are_listed_by_kind_and_leave_the_capture_complete() {
    let scene = Scene::new();
    scene.file("file", "x").fifo("pipe.txt").dir("d");
    let socket = std::os::unix::net::UnixListener::bind(scene.path("d/dev7")).unwrap();
    let (memory, taken) = take(&scene);
    assert_eq!(
        left_out(&taken.captured),
        ["d/dev7 Special socket", "pipe.txt Special fifo"]
    );
    assert!(taken.captured.complete);
    assert_eq!(paths(&memory, &taken.captured.root_tree), ["d", "file"]);
    drop(socket);
}

#[test]
fn links_are_links_wherever_they_lead() {
    let scene = Scene::new();
    scene
        .link("loop", "loop")
        .link("up", "..")
        .link("out", "/etc/hostname")
        .link("abs", "/");
    scene.dir("d").link("d/self", ".");
    let (memory, taken) = take(&scene);
    let all = flatten(&memory, &taken.captured.root_tree);
    assert_eq!(all.len(), 6);
    assert_eq!(
        all.values().filter(|e| e.kind() == Kind::Symlink).count(),
        5
    );
    assert_eq!(taken.captured.counts.bytes, 0);
}

#[test]
fn metadata_of_version_control_is_cut_at_its_top_and_the_rest_of_a_nested_repository_is_not() {
    let scene = Scene::new();
    scene
        .file("nested/.git/objects/aa", "x")
        .file("nested/src/main.rs", "y");
    scene
        .file("worktree/.git", "gitdir: elsewhere")
        .file("worktree/a", "z");
    scene
        .file("js/node_modules/p/index.js", "")
        .file("py/__pycache__/a.pyc", "");
    scene.file("venv/pyvenv.cfg", "").file("venv/lib/x", "");
    scene
        .file(
            "cache/CACHEDIR.TAG",
            "Signature: 8a477f597d28d172789f06886806bc55",
        )
        .file("cache/big", "");
    let before = scene.look();
    let (memory, taken) = take(&scene);
    assert_eq!(
        left_out(&taken.captured),
        [
            "cache Rule default: CACHEDIR.TAG",
            "js/node_modules Rule default: node_modules",
            "nested/.git Rule default: .git",
            "py/__pycache__ Rule default: __pycache__",
            "venv Rule default: pyvenv.cfg",
            "worktree/.git Rule default: .git",
        ]
    );
    let expected = [
        "js",
        "nested",
        "nested/src",
        "nested/src/main.rs",
        "py",
        "worktree",
        "worktree/a",
    ];
    assert_eq!(paths(&memory, &taken.captured.root_tree), expected);
    assert_eq!(taken.captured.counts.left_out, 6);
    assert_eq!(scene.look(), before, "the work tree was written to");

    let options = CaptureOptions {
        rules: RuleOptions {
            default_ignores: false,
            ..RuleOptions::default()
        },
        ..CaptureOptions::default()
    };
    let all = Take {
        options,
        ..Take::default()
    }
    .of(&scene.root(), &memory)
    .unwrap();
    assert!(all.captured.left_out.is_empty());
    assert_eq!(all.captured.counts.files, 10);
}

#[test]
fn the_root_itself_is_never_cut() {
    let scene = Scene::new();
    scene.file("pyvenv.cfg", "").file(
        "CACHEDIR.TAG",
        "Signature: 8a477f597d28d172789f06886806bc55",
    );
    let (memory, taken) = take(&scene);
    assert_eq!(
        paths(&memory, &taken.captured.root_tree),
        ["CACHEDIR.TAG", "pyvenv.cfg"]
    );
}

#[test]
fn a_rule_that_takes_a_directory_overrides_what_is_in_it() {
    let scene = Scene::new();
    scene.file(".genstoreignore", "!/venv/\n!node_modules/\n");
    scene.file("venv/pyvenv.cfg", "").file("node_modules/p", "");
    let (memory, taken) = take(&scene);
    assert!(taken.captured.left_out.is_empty());
    assert!(paths(&memory, &taken.captured.root_tree).contains(&"venv/pyvenv.cfg".to_owned()));
}

#[test]
fn what_cannot_be_read_is_listed_once_and_makes_it_incomplete() {
    let scene = Scene::new();
    scene
        .file("good", "x")
        .file("secret", "y")
        .mode("secret", 0);
    scene
        .file("no-list/a", "")
        .file("no-list/b", "")
        .mode("no-list", 0o711);
    scene
        .file("no-search/a", "")
        .file("no-search/b", "")
        .mode("no-search", 0o744);
    scene.file("none/a", "").mode("none", 0o700);
    scene
        .dir("only-dirs/a")
        .dir("only-dirs/b")
        .mode("only-dirs", 0o744);
    scene.dir("empty-no-search").mode("empty-no-search", 0o744);
    scene
        .file("rules/.genstoreignore", "*\n")
        .mode("rules/.genstoreignore", 0o600);
    scene.file("rules/kept", "");
    let memory = MemoryObjects::default();
    let taken = Take {
        pool: nobody(),
        ..Take::default()
    }
    .of(&scene.root(), &memory)
    .unwrap();
    for path in ["no-list", "no-search", "none"] {
        scene.mode(path, 0o755);
    }
    let lines = left_out(&taken.captured);
    if rustix::process::geteuid().is_root() {
        assert_eq!(
            lines,
            [
                "no-list Unreadable permission denied",
                "no-search Unreadable permission denied",
                "none Unreadable permission denied",
                "only-dirs Unreadable permission denied",
                "rules/.genstoreignore Unreadable its rules were not applied: permission denied",
                "secret Unreadable permission denied",
            ]
        );
        let expected = ["empty-no-search", "good", "rules", "rules/kept"];
        assert_eq!(paths(&memory, &taken.captured.root_tree), expected);
    } else {
        assert!(
            lines.contains(&"secret Unreadable permission denied".to_owned()),
            "{lines:?}"
        );
    }
    assert!(!taken.captured.complete);
}

#[test]
fn an_unchanged_tree_puts_nothing_and_needs_no_new_cache() {
    let scene = Scene::new();
    for at in 0..40 {
        scene.file(format!("d{}/e/f{at}", at % 5), format!("{at}"));
    }
    scene
        .link("d0/link", "e")
        .dir("empty")
        .file("large", vec![7; 700_000]);
    let (_, first) = take(&scene);
    let sink = MemoryObjects::default();
    let again = Take {
        cache: first.cache.as_deref(),
        ..Take::default()
    };
    let second = again.of(&scene.root(), &sink).unwrap();
    assert_eq!(sink.puts(), 0);
    assert_eq!(second.captured.root_tree, first.captured.root_tree);
    assert_eq!(second.captured.counts, first.captured.counts);
    assert!(second.is_current());

    let options = CaptureOptions {
        rehash: true,
        ..CaptureOptions::default()
    };
    let rehashed = Take { options, ..again }.of(&scene.root(), &sink).unwrap();
    assert!(sink.puts() >= 41, "--rehash reads every file");
    assert_eq!(rehashed.captured.root_tree, first.captured.root_tree);
    assert!(rehashed.is_current());
}

#[test]
fn racy_files_are_read_again_until_their_times_prove_something() {
    let scene = Scene::new();
    scene.file("f", "one").link("l", "f").dir("d");
    let memory = MemoryObjects::default();
    let now = Take {
        clock: &SystemClock,
        ..Take::default()
    };
    let first = now.of(&scene.root(), &memory).unwrap();
    // The same size and the same times, as a change within one tick leaves them.
    let sink = MemoryObjects::default();
    let second = Take {
        cache: first.cache.as_deref(),
        ..now
    }
    .of(&scene.root(), &sink)
    .unwrap();
    assert_eq!(sink.puts(), 1, "the file, but no tree");
    assert_eq!(second.captured.root_tree, first.captured.root_tree);
    assert!(second.is_current(), "still as racy as it was");
    let later = Take {
        cache: first.cache.as_deref(),
        ..Take::default()
    };
    let third = later.of(&scene.root(), &sink).unwrap();
    assert_eq!(sink.puts(), 2);
    assert!(!third.is_current());
    let fourth = Take {
        cache: third.cache.as_deref(),
        ..later
    }
    .of(&scene.root(), &sink)
    .unwrap();
    assert_eq!(sink.puts(), 2, "proven now");
    assert!(fourth.is_current());
}

#[test]
fn a_future_time_is_racy() {
    let scene = Scene::new();
    scene.file("f", "one").mtime("f", 4_000_000_000, 0);
    let (_, first) = take(&scene);
    let sink = MemoryObjects::default();
    Take {
        cache: first.cache.as_deref(),
        ..Take::default()
    }
    .of(&scene.root(), &sink)
    .unwrap();
    assert_eq!(sink.puts(), 1);
}

#[test]
fn one_change_puts_one_file_and_the_trees_above_it() {
    let scene = Scene::new();
    scene.file("a/b/c", "1").file("a/x/y", "2").file("z/w", "3");
    let (_, first) = take(&scene);
    scene.file("a/b/c", "changed");
    let sink = MemoryObjects::default();
    let again = Take {
        cache: first.cache.as_deref(),
        ..Take::default()
    };
    let second = again.of(&scene.root(), &sink).unwrap();
    assert_eq!(sink.puts(), 4, "the file, b, a and the root");
    let (_, fresh) = take(&scene);
    assert_eq!(second.captured.root_tree, fresh.captured.root_tree);
    assert_eq!(second.cache, fresh.cache);
}

/// Whatever happens between two walks, the second finds with a cache exactly what it finds without.
#[test]
fn a_walk_with_a_cache_finds_what_a_walk_without_one_finds() {
    let scene = Scene::new();
    let mut seed = 0x9e37_79b9_u64;
    let mut next = |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut cache: Option<Vec<u8>> = None;
    for round in 0..80 {
        for _ in 0..=next(4) {
            let path = format!(
                "{}/{}",
                ["a", "b", "a/c", "b/d/e"][usize::try_from(next(4)).unwrap()],
                next(4)
            );
            let exists = std::fs::symlink_metadata(scene.path(&path)).is_ok();
            let parent = scene.path(path.rsplit_once('/').unwrap().0);
            if std::fs::create_dir_all(parent).is_err() {
                continue;
            }
            if exists {
                scene.remove(&path);
            }
            match next(6) {
                0 => drop(scene.dir(&path)),
                1 => drop(scene.link(&path, format!("{round}"))),
                2 => drop(scene.fifo(&path)),
                3 => {}
                _ => drop(scene.file(&path, format!("{}", next(3)))),
            }
        }
        let sink = MemoryObjects::default();
        let with = Take {
            cache: cache.as_deref(),
            ..Take::default()
        }
        .of(&scene.root(), &sink)
        .unwrap();
        let (_, without) = take(&scene);
        assert_eq!(
            with.captured.root_tree, without.captured.root_tree,
            "round {round}"
        );
        assert_eq!(
            with.captured.counts, without.captured.counts,
            "round {round}"
        );
        let new = with.cache.or(cache);
        assert_eq!(new, without.cache, "round {round}");
        cache = new;
    }
}

/// A sink during whose work something happens.
struct Meanwhile<F> {
    memory: MemoryObjects,
    happens: F,
}

impl<F: Fn() + Sync> ObjectSink for Meanwhile<F> {
    fn put(&self, bytes: &[u8], class: Class) -> Result<ObjectId> {
        (self.happens)();
        self.memory.put(bytes, class)
    }
}

fn append(scene: &Scene, path: &str) {
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(scene.path(path))
        .unwrap();
    file.write_all(b"more").unwrap();
}

#[test]
fn a_file_that_changes_while_it_is_read_is_read_again() {
    let scene = Scene::new();
    scene.file("large", vec![1; 2_000_000]);
    let left = AtomicU64::new(2);
    let sink = Meanwhile {
        memory: MemoryObjects::default(),
        happens: || {
            let again =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            if again.is_ok() {
                append(&scene, "large");
            }
        },
    };
    let taken = Take::default().of(&scene.root(), &sink).unwrap();
    assert!(taken.captured.complete, "{:?}", taken.captured.left_out);
    let all = flatten(&sink.memory, &taken.captured.root_tree);
    assert_eq!(
        content(&sink.memory, &all[&b"large"[..]]),
        scene.read("large")
    );
}

#[test]
fn a_change_that_leaves_the_size_is_noticed_too() {
    use std::os::unix::fs::FileExt;
    let scene = Scene::new();
    scene.file("large", vec![1; 2_000_000]).mtime("large", 5, 5);
    let once = AtomicU64::new(0);
    let sink = Meanwhile {
        memory: MemoryObjects::default(),
        happens: || {
            if once.fetch_add(1, Ordering::Relaxed) == 0 {
                let file = std::fs::OpenOptions::new()
                    .write(true)
                    .open(scene.path("large"))
                    .unwrap();
                file.write_all_at(b"first", 0).unwrap();
                file.write_all_at(b"last", 1_999_996).unwrap();
            }
        },
    };
    let taken = Take::default().of(&scene.root(), &sink).unwrap();
    assert!(taken.captured.complete);
    let all = flatten(&sink.memory, &taken.captured.root_tree);
    assert_eq!(
        content(&sink.memory, &all[&b"large"[..]]),
        scene.read("large")
    );
}

#[test]
fn a_file_that_never_rests_is_unstable_and_never_mixed() {
    let scene = Scene::new();
    scene.file("large", vec![1; 2_000_000]).file("small", "x");
    let sink = Meanwhile {
        memory: MemoryObjects::default(),
        happens: || append(&scene, "large"),
    };
    let taken = Take::default().of(&scene.root(), &sink).unwrap();
    assert_eq!(
        left_out(&taken.captured),
        ["large Unstable changed while read"]
    );
    assert!(!taken.captured.complete);
    assert_eq!(paths(&sink.memory, &taken.captured.root_tree), ["small"]);
}

#[test]
fn a_file_that_grows_in_a_loop_is_captured_as_it_was_at_one_moment() {
    let scene = Scene::new();
    let line = |at: usize| format!("line {at}\n");
    scene.file("f", line(0));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .open(scene.path("f"))
                .unwrap();
            for at in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                file.write_all(line(at).as_bytes()).unwrap();
            }
        });
        for _ in 0..50 {
            let memory = MemoryObjects::default();
            let clock = SystemClock;
            let taken = Take {
                clock: &clock,
                ..Take::default()
            }
            .of(&scene.root(), &memory)
            .unwrap();
            let all = flatten(&memory, &taken.captured.root_tree);
            match all.get(&b"f"[..]) {
                Some(entry) => {
                    let bytes = content(&memory, entry);
                    let Node::File { size, .. } = entry.node else {
                        panic!("not a file")
                    };
                    assert_eq!(bytes.len() as u64, size);
                    assert!(bytes.ends_with(b"\n") && scene.read("f").starts_with(&bytes));
                }
                None => assert!(!taken.captured.complete),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A clock that makes something happen at its nth reading: the walk reads it once, then before each file.
struct Bell<F> {
    readings: AtomicU64,
    happens: F,
}

impl<F: Fn(u64) + Send + Sync> Clock for Bell<F> {
    fn now(&self) -> Time {
        (self.happens)(self.readings.fetch_add(1, Ordering::Relaxed));
        Ahead(3600).now()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.readings.load(Ordering::Relaxed))
    }
}

#[test]
fn what_vanishes_between_listing_and_reading_is_no_error() {
    let scene = Scene::new();
    scene.file("a", "1").file("b", "2");
    let happens = |reading| {
        if reading == 1 {
            scene.remove("b");
        }
    };
    let clock = Bell {
        readings: AtomicU64::new(0),
        happens,
    };
    let memory = MemoryObjects::default();
    let taken = Take {
        clock: &clock,
        ..Take::default()
    }
    .of(&scene.root(), &memory)
    .unwrap();
    assert_eq!(left_out(&taken.captured), ["b Vanished "]);
    assert!(taken.captured.complete);
    assert_eq!(paths(&memory, &taken.captured.root_tree), ["a"]);
}

#[test]
fn a_link_or_fifo_that_takes_a_files_name_is_neither_followed_nor_waited_for() {
    for fifo in [true, false] {
        let scene = Scene::new();
        scene.file("a", "1").file("b", "2");
        let happens = |reading| {
            if reading == 1 {
                scene.remove("b");
                if fifo {
                    scene.fifo("b")
                } else {
                    scene.link("b", "/etc/passwd")
                };
            }
        };
        let clock = Bell {
            readings: AtomicU64::new(0),
            happens,
        };
        let memory = MemoryObjects::default();
        let taken = Take {
            clock: &clock,
            ..Take::default()
        }
        .of(&scene.root(), &memory)
        .unwrap();
        assert_eq!(left_out(&taken.captured), ["b Unstable changed while read"]);
        assert_eq!(paths(&memory, &taken.captured.root_tree), ["a"]);
    }
}

#[test]
fn limits_stop_the_walk_or_leave_out_what_is_over_them() {
    let scene = Scene::new();
    scene
        .file("a", "12345")
        .file("d/b", "123456")
        .link("d/link", "a long target that is no file");
    let memory = MemoryObjects::default();
    let with = |options| {
        Take {
            options,
            ..Take::default()
        }
        .of(&scene.root(), &memory)
    };
    let base = CaptureOptions::default;

    let taken = with(CaptureOptions {
        max_file_size: Some(5),
        ..base()
    })
    .unwrap();
    assert_eq!(left_out(&taken.captured), ["d/b Limit larger than 5 bytes"]);
    assert!(taken.captured.complete);
    assert_eq!(
        paths(&memory, &taken.captured.root_tree),
        ["a", "d", "d/link"]
    );

    assert!(
        with(CaptureOptions {
            max_entries: Some(4),
            ..base()
        })
        .is_ok()
    );
    let error = with(CaptureOptions {
        max_entries: Some(3),
        ..base()
    })
    .unwrap_err();
    assert_eq!(error.code(), "too_many_entries");

    let error = with(CaptureOptions {
        deadline: Some(Duration::ZERO),
        ..base()
    })
    .unwrap_err();
    assert_eq!(error.code(), "deadline");
}

#[test]
fn a_limit_that_is_lowered_between_walks_is_not_undone_by_the_cache() {
    let scene = Scene::new();
    scene.file("a", "12345").file("b", "1");
    let (memory, first) = take(&scene);
    let options = CaptureOptions {
        max_file_size: Some(2),
        ..CaptureOptions::default()
    };
    let again = Take {
        options,
        cache: first.cache.as_deref(),
        ..Take::default()
    };
    let second = again.of(&scene.root(), &memory).unwrap();
    assert_eq!(paths(&memory, &second.captured.root_tree), ["b"]);
    scene.file(".genstoreignore", "b\n");
    let again = Take {
        cache: first.cache.as_deref(),
        ..Take::default()
    };
    let third = again.of(&scene.root(), &memory).unwrap();
    assert_eq!(
        paths(&memory, &third.captured.root_tree),
        [".genstoreignore", "a"]
    );
}

#[test]
fn cancelling_stops_the_walk() {
    use crate::progress::{Cancel, NoProgress};
    use crate::worktree::capture::{CaptureRequest, capture};
    let scene = Scene::new();
    scene.file("a", "1");
    let cancel = Cancel::new();
    cancel.cancel();
    let (root, options, sink) = (
        scene.root(),
        CaptureOptions::default(),
        MemoryObjects::default(),
    );
    let error = capture(&CaptureRequest {
        root: &root,
        options: &options,
        cache: None,
        sink: &sink,
        pool: Some(crate::worktree::testing::pool()),
        clock: &SystemClock,
        progress: &NoProgress,
        cancel: &cancel,
        skip: &[],
    });
    assert_eq!(error.unwrap_err().code(), "cancelled");
}

#[test]
fn rules_that_leave_nothing_are_refused() {
    let everything = |rules: &str, files: &[&str]| {
        let scene = Scene::new();
        for file in files {
            scene.file(file, "x");
        }
        if !rules.is_empty() {
            scene.file(".genstoreignore", rules);
        }
        Take::default()
            .of(&scene.root(), &MemoryObjects::default())
            .map(|_| ())
            .map_err(|e| e.code())
    };
    assert_eq!(everything("/*\n", &["a", "d/b"]), Err("everything_ignored"));
    assert_eq!(
        everything("/*\n!.genstoreignore\n", &["a"]),
        Err("everything_ignored")
    );
    assert_eq!(
        everything("", &["node_modules/a"]),
        Err("everything_ignored")
    );
    assert_eq!(everything("", &[".git/config"]), Ok(()));
    assert_eq!(everything("*\n", &[".git/config"]), Ok(()));
    assert_eq!(everything("", &[]), Ok(()));
    assert_eq!(everything("*\n!keep\n", &["a", "keep"]), Ok(()));
}

#[test]
fn the_store_itself_is_left_out_wherever_it_is() {
    let scene = Scene::new();
    scene.file("a", "1").file("sub/store/CURRENT", "x");
    let store = Root::open(&scene.path("sub/store")).unwrap();
    let skip = [(store.stat().device, store.stat().inode)];
    let memory = MemoryObjects::default();
    let taken = Take {
        skip: &skip,
        ..Take::default()
    }
    .of(&scene.root(), &memory)
    .unwrap();
    assert_eq!(left_out(&taken.captured), ["sub/store Store "]);
    assert_eq!(paths(&memory, &taken.captured.root_tree), ["a", "sub"]);
}

#[test]
fn other_file_systems_are_left_out_when_asked() {
    let root = Root::open("/dev".as_ref()).unwrap();
    let mounted = Root::open("/dev/shm".as_ref()).or_else(|_| Root::open("/dev/pts".as_ref()));
    let Some(mounted) = mounted
        .ok()
        .filter(|m| m.stat().device != root.stat().device)
    else {
        eprintln!("skipped: nothing is mounted below /dev here");
        return;
    };
    let options = CaptureOptions {
        one_file_system: true,
        ..CaptureOptions::default()
    };
    let taken = Take {
        options,
        ..Take::default()
    }
    .of(&root, &MemoryObjects::default())
    .unwrap();
    let name = mounted.path().file_name().unwrap().to_str().unwrap();
    assert!(left_out(&taken.captured).contains(&format!("{name} OtherFileSystem ")));
}

#[test]
fn an_unreadable_root_is_an_error() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "skipped: only root can give up a right that it had when it opened the directory"
        );
        return;
    }
    let scene = Scene::new();
    scene.file("a", "1");
    let root = scene.root();
    scene.mode("", 0o700);
    let error = Take {
        pool: nobody(),
        ..Take::default()
    }
    .of(&root, &MemoryObjects::default())
    .unwrap_err();
    assert_eq!(error.code(), "permission_denied");
}

/// A tree as deep as this cannot be named by a path.
fn deep(scene: &Scene, levels: usize) {
    use rustix::fs::{Mode, OFlags};
    let open = |parent: &std::os::fd::OwnedFd| {
        rustix::fs::openat(
            parent,
            c"d",
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .unwrap()
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut handle = rustix::fs::open(scene.path(""), flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&handle, c"d", Mode::RWXU).unwrap();
        handle = open(&handle);
    }
    rustix::fs::symlinkat(c"end", &handle, c"l").unwrap();
}

#[test]
fn three_thousand_levels_are_captured() {
    let scene = Scene::new();
    deep(&scene, 3000);
    let (memory, taken) = take(&scene);
    assert_eq!(taken.captured.counts.directories, 3000);
    assert_eq!(taken.captured.counts.links, 1);
    assert!(taken.captured.complete);
    let sink = MemoryObjects::default();
    let again = Take {
        cache: taken.cache.as_deref(),
        ..Take::default()
    };
    let second = again.of(&scene.root(), &sink).unwrap();
    assert_eq!(
        (sink.puts(), second.captured.root_tree),
        (0, taken.captured.root_tree)
    );
    drop(memory);
}

#[test]
fn what_is_deeper_than_the_format_allows_is_listed() {
    let scene = Scene::new();
    deep(&scene, 4100);
    let (_, taken) = take(&scene);
    assert_eq!(taken.captured.counts.directories, 4095);
    assert_eq!(taken.captured.left_out.len(), 1);
    assert_eq!(taken.captured.left_out[0].path.len(), 4096 * 2 - 1);
}

#[test]
fn a_linked_root_is_captured_as_what_it_leads_to() {
    let scene = Scene::new();
    scene.file("real/a", "1").link("link", "real");
    let root = Root::open(&scene.path("link")).unwrap();
    let memory = MemoryObjects::default();
    let taken = Take::default().of(&root, &memory).unwrap();
    assert_eq!(paths(&memory, &taken.captured.root_tree), ["a"]);
    assert!(root.path().ends_with("real"));
}
