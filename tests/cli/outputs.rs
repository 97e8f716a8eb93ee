//! What programs rely on: one JSON document with fixed keys, exit codes, streams, broken pipes, Ctrl-C.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use genstore_tests::tree::Frozen;
use serde_json::Value;

use crate::verbs::{each_in_turn, rich_store};
use crate::{fixture, store, text};

/// Fixed keys of each verb's document.
const KEYS: [(&str, &[&str]); 6] = [
    (
        "checkpoint",
        &[
            "id",
            "generation",
            "created",
            "complete",
            "lineage",
            "left_out",
            "counts",
        ],
    ),
    ("log", &["checkpoints"]),
    ("verify", &["ok", "damage"]),
    (
        "status",
        &["selector", "generations", "lineages", "bytes", "warnings"],
    ),
    ("diff", &["changes"]),
    ("activate", &["generation", "previous", "left_behind"]),
];

#[test]
fn every_verb_answers_with_one_document() {
    each_in_turn(|_, genstore, form| {
        if form.verb.name == "completions" {
            return;
        }
        let document = genstore.json(&form.args);
        assert_eq!(
            document["schema"],
            format!("genstore.{}/1", form.verb.name),
            "{}",
            form.shown
        );
        let fixed = KEYS
            .iter()
            .find(|(verb, _)| *verb == form.verb.name)
            .map_or(&[][..], |(_, keys)| keys);
        for key in fixed {
            assert!(
                document.get(key).is_some(),
                "{} lacks {key}: {document}",
                form.shown
            );
        }
    });
}

#[test]
fn the_log_has_its_keys_newest_first() {
    let (_dir, genstore, _) = rich_store();
    let log = genstore.json(["log"]);
    let rows = log["checkpoints"].as_array().unwrap();
    for row in rows {
        for key in [
            "id",
            "lineage",
            "number",
            "time",
            "message",
            "tags",
            "complete",
            "generation",
        ] {
            assert!(row.get(key).is_some(), "{row} lacks {key}");
        }
        assert_eq!(text(&row["id"]).len(), 64);
    }
    let numbers: Vec<_> = rows
        .iter()
        .map(|row| row["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [2, 1]);
}

#[test]
fn text_goes_to_stdout_and_complaints_to_stderr() {
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    let ran = genstore.ok(["checkpoint"]);
    let out = ran.out();
    let id = out.lines().next().unwrap_or_default();
    assert_eq!(id.len(), 64, "the id is the first line: {ran}");
    assert_eq!(
        out.lines().count(),
        2,
        "and one line of what changed: {ran}"
    );
    assert!(ran.err().is_empty(), "quiet otherwise: {ran}");
    let failed = genstore
        .run(["show", "0123456789abcdef"])
        .exit(7)
        .one_clear_line();
    assert!(failed.stdout.is_empty());
}

#[test]
fn a_broken_pipe_is_no_error() {
    let (dir, genstore) = fixture();
    for number in 0..2000 {
        dir.write(format!("many/{number}-{}", "x".repeat(100)), "");
    }
    genstore.ok(["checkpoint"]);
    let mut child = genstore
        .command(["show", "latest", "--files"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut one = [0];
    child.stdout.take().unwrap().read_exact(&mut one).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let (dir, genstore) = store();
    // Enough to be in the middle of it.
    for number in 0..40 {
        dir.write(
            format!("big-{number}"),
            genstore_tests::random::Random::new(number).bytes(1 << 20),
        );
    }
    let before = Frozen::of(&dir.store()).without_notes();
    let child = genstore.command(["checkpoint", "--json"]).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    // As soon as it writes: a temporary file is there.
    while fs::read_dir(dir.store().join("incoming")).unwrap().count() == 0 {
        std::thread::yield_now();
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    if output.status.code() == Some(0) {
        // It was quicker than the signal: then it is a whole checkpoint.
        assert_eq!(answer["created"], true);
    } else {
        assert_eq!(
            (output.status.code(), &answer["code"]),
            (Some(1), &Value::from("cancelled")),
            "{answer}"
        );
        before.assert_unchanged(&Frozen::of(&dir.store()).without_notes(), "Ctrl-C");
    }
    assert_eq!(
        fs::read_dir(dir.store().join("incoming")).unwrap().count(),
        0
    );
    assert!(genstore.json(["checkpoint"])["id"].is_string());
}

#[test]
fn progress_for_programs_is_one_json_value_a_line() {
    let (dir, genstore) = fixture();
    for number in 0..200 {
        dir.write(format!("f{number}"), format!("{number}"));
    }
    let ran = genstore.ok(["checkpoint", "--json", "--progress", "json"]);
    ran.json();
    for line in ran.err().lines() {
        let _: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn the_store_is_where_it_is_said_to_be() {
    let (dir, genstore) = fixture();
    let named = genstore.clone().on_default_store();
    named
        .clone()
        .env("XDG_DATA_HOME", dir.path("xdg"))
        .ok(["checkpoint"]);
    assert!(dir.path("xdg/genstore/CURRENT").is_file());
    named.ok(["checkpoint"]);
    assert!(dir.path("home/.local/share/genstore/CURRENT").is_file());
    genstore.ok(["checkpoint"]);
    assert!(dir.store().join("CURRENT").is_file());
    let explicit = dir.path("explicit");
    genstore.ok(["init", "--store", explicit.to_str().unwrap()]);
    genstore.ok(["checkpoint", "--store", explicit.to_str().unwrap()]);
    assert!(explicit.join("CURRENT").is_file());
}

#[test]
fn completions_and_help_work_without_a_store() {
    let (dir, genstore) = fixture();
    for shell in ["bash", "zsh", "fish"] {
        let ran = genstore.ok(["completions", shell]);
        assert!(ran.out().contains("genstore"), "{ran}");
    }
    let help = genstore.ok(["--help"]).out();
    for verb in store_cli::VERBS {
        assert!(help.contains(verb.name), "the help lacks {}", verb.name);
        genstore.ok([verb.name, "--help"]);
    }
    assert!(genstore.ok(["--version"]).out().starts_with("genstore "));
    assert!(!dir.store().exists(), "asking for help makes no store");
}

#[test]
fn a_checkpoint_is_found_in_every_way_that_names_one() {
    let (dir, genstore) = store();
    let first = text(&genstore.json(["show", "latest"])["id"]);
    dir.write("a.txt", "changed\n");
    let second = text(&genstore.json(["checkpoint", "--tag", "v1"])["id"]);
    let time = text(&genstore.json(["show", &first])["time"]);
    for (revision, expected) in [
        ("latest", &second),
        ("latest~0", &second),
        ("latest~1", &first),
        ("first", &first),
        ("v1", &second),
        (&second[..12], &second),
        (&first, &first),
        (&format!("@{time}"), &first),
    ] {
        assert_eq!(
            &text(&genstore.json(["show", revision])["id"]),
            expected,
            "{revision}"
        );
    }
    // From a directory inside of the tree the same lineage is meant.
    let inside = genstore.within(dir.tree().join("sub"));
    assert_eq!(text(&inside.json(["show", "latest"])["id"]), second);
}

#[test]
fn keys_make_a_retry_find_the_first_try() {
    let (dir, genstore) = store();
    dir.write("a.txt", "one\n");
    let first = genstore.json(["checkpoint", "--key", "turn-1", "--role", "before"]);
    dir.write("a.txt", "two\n");
    let again = genstore.json(["checkpoint", "--key", "turn-1", "--role", "before"]);
    assert_eq!(
        (&again["id"], &again["created"]),
        (&first["id"], &Value::Bool(false))
    );
    let after = genstore.json([
        "checkpoint",
        "--key",
        "turn-1",
        "--role",
        "after",
        "--actor",
        "agent",
    ]);
    assert_eq!(after["created"], true);
    assert_ne!(after["id"], first["id"]);
}

#[test]
fn diff_tells_added_modified_deleted_and_changed_kinds() {
    let (dir, genstore) = store();
    dir.write("modified", "one\ntwo\n");
    dir.write("deleted", "x");
    dir.write("kind", "x");
    crate::checkpoint(&genstore);
    dir.write("modified", "one\n2\n");
    fs::remove_file(dir.tree().join("deleted")).unwrap();
    fs::remove_file(dir.tree().join("kind")).unwrap();
    std::os::unix::fs::symlink("a.txt", dir.tree().join("kind")).unwrap();
    dir.write("added", "new\n");
    let shown = genstore.ok(["diff"]).out();
    let mut lines: Vec<_> = shown.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["A added", "D deleted", "M modified", "T kind"]);
    let document = genstore.json(["diff"]);
    let rows: Vec<_> = document["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (text(&row["path"]), text(&row["change"])))
        .collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.contains(&("kind".into(), "T".into())), "{rows:?}");
    let patch = genstore.ok(["diff", "--patch"]).out();
    assert!(
        patch.contains("-two\n") && patch.contains("+2\n"),
        "{patch}"
    );
    crate::checkpoint(&genstore);
    let between = genstore.ok(["diff", "latest~1", "latest"]).out();
    assert_eq!(between, shown);
    assert_eq!(genstore.ok(["diff"]).out(), "", "nothing changed since");
    genstore
        .run(["diff", "latest~1", "latest", "--exit-code"])
        .exit(1);
}
