use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use genstore_tests::random::Random;

use crate::names::hard_names;
use crate::{checkpoint, fixture, left_out, name, store, text};

#[test]
fn case_025_a_listing_from_a_parent_names_what_is_below() {
    let (dir, genstore) = fixture();
    dir.mkdir("a/b");
    dir.write("a/b/file", "x");
    let id = checkpoint(&genstore.clone().within(dir.tree().join("a/b")));
    // From inside: the lineage that owns the place.
    dir.mkdir("a/b/c/d");
    let log = genstore
        .clone()
        .within(dir.tree().join("a/b/c/d"))
        .json(["log"]);
    assert_eq!(text(&log["checkpoints"][0]["id"]), id);
    // From above: not silence, but where they are.
    let ran = genstore.clone().within(dir.tree().join("a")).run(["log"]);
    let said = ran.out() + &ran.err();
    assert!(said.contains("a/b"), "{ran}");
    if ran.status.code() != Some(0) {
        let ran = ran.exit(7);
        assert!(ran.err().contains("hint:"), "{ran}");
    }
    let all = genstore.within(dir.tree().join("a")).json(["log", "--all"]);
    assert_eq!(all["checkpoints"].as_array().map(Vec::len), Some(1));
}

#[test]
fn case_068_a_plain_directory_needs_no_repository() {
    let (dir, genstore) = fixture();
    assert!(!dir.tree().join(".git").exists());
    let id = checkpoint(&genstore.env("PATH", "/nonexistent"));
    assert_eq!(id.len(), 64);
}

#[test]
fn case_108_printed_names_can_be_fed_back() {
    let (dir, genstore) = fixture();
    for hard in hard_names() {
        dir.write([b"in/", hard.as_slice()].concat(), &hard);
    }
    checkpoint(&genstore);
    let listing = genstore.ok(["show", "latest", "--files"]).out();
    let lines: Vec<_> = listing
        .lines()
        .filter(|line| line.starts_with("in/"))
        .collect();
    assert_eq!(
        lines.len(),
        hard_names().len(),
        "one line a name, whatever is in it"
    );
    let mut read = Vec::new();
    for line in lines {
        let ran = genstore.ok(["cat", "latest", "--escaped", "--", line]);
        read.push(ran.stdout);
    }
    let mut names = hard_names();
    names.sort();
    read.sort();
    assert_eq!(read, names, "what was printed names the same file");
    // NUL-separated raw bytes, for programs without JSON.
    let raw = genstore.ok(["show", "latest", "--files", "-z"]).stdout;
    let raw: Vec<_> = raw
        .split(|byte| *byte == 0)
        .filter(|path| path.starts_with(b"in/"))
        .collect();
    assert_eq!(raw.len(), names.len());
    for path in raw {
        let args = ["cat", "latest", "--"]
            .map(OsString::from)
            .into_iter()
            .chain([OsString::from_vec(path.to_vec())]);
        assert_eq!(genstore.ok(args).stdout, path[3..]);
    }
    // JSON holds the bytes of what is not text.
    let files = genstore.json(["show", "latest", "--files"]);
    for row in files["files"].as_array().unwrap() {
        let path = name(&row["path"]);
        assert!(
            row["path"].is_string() == std::str::from_utf8(&path).is_ok(),
            "{row}"
        );
        assert!(
            fs::symlink_metadata(dir.tree().join(OsStr::from_bytes(&path))).is_ok(),
            "{row}"
        );
    }
}

#[test]
fn case_114_a_listing_goes_on_past_an_incomplete_generation() {
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    checkpoint(&genstore);
    let generations = dir.store().join("generations");
    let half = format!("gen-0000000050-{}", "ab".repeat(16));
    fs::create_dir(generations.join(&half)).unwrap();
    fs::write(
        generations
            .join(&half)
            .join(format!("{}.pack", "cd".repeat(32))),
        "half",
    )
    .unwrap();
    let torn = format!("gen-0000000051-{}", "ef".repeat(16));
    fs::create_dir(generations.join(&torn)).unwrap();
    fs::write(generations.join(&torn).join("manifest.json"), "{\"half\":").unwrap();
    fs::create_dir(generations.join("not-ours")).unwrap();
    let status = genstore.json(["status"]);
    let rows = status["generations"].as_array().unwrap();
    let state = |id: &str| {
        rows.iter()
            .find(|row| row["id"] == id)
            .map(|row| text(&row["state"]))
    };
    assert_eq!(state(&half).as_deref(), Some("incomplete"), "{status}");
    assert_eq!(state(&torn).as_deref(), Some("incomplete"), "{status}");
    assert_eq!(
        state(dir.current().trim_end()).as_deref(),
        Some("live"),
        "{status}"
    );
    assert!(rows.len() >= 4, "the others are shown: {status}");
    assert_eq!(
        genstore.json(["log"])["checkpoints"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    dir.write("a.txt", "goes on\n");
    checkpoint(&genstore);
    assert!(
        generations.join("not-ours").exists(),
        "foreign names are never touched"
    );
}

#[test]
fn case_120_one_big_file_blocks_nothing() {
    let (dir, genstore) = fixture();
    let big = dir.tree().join("big.bin");
    fs::File::create(&big).unwrap().set_len(500 << 20).unwrap();
    let made = genstore.json(["checkpoint", "--max-file-size", "100M"]);
    assert_eq!(
        (&made["created"], &made["complete"]),
        (&true.into(), &true.into()),
        "{made}"
    );
    let left = left_out(&made);
    assert!(left[&b"big.bin"[..]].contains("limit"), "{made}");
    let said = genstore
        .ok([
            "checkpoint",
            "--max-file-size",
            "100M",
            "--verbose",
            "--force",
        ])
        .out();
    assert!(said.contains("big.bin"), "{said}");
    assert_eq!(genstore.ok(["cat", "latest", "a.txt"]).out(), "first\n");
}

#[test]
fn case_124_a_failing_restore_says_so() {
    let (dir, genstore) = store();
    let target = dir.path("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("mine"), Random::new(1).bytes(10)).unwrap();
    for args in [
        vec!["restore", "latest", "--to", target.to_str().unwrap()],
        vec!["restore", "0123456789", "--to", "new"],
        vec!["restore", "latest", "--to", "new", "no/such/path"],
        vec!["restore", "latest", "--to", "a.txt"],
        vec!["restore", "latest", "--to", "no/such/parent/at/all/../x"],
    ] {
        let ran = genstore.run(&args);
        assert_ne!(ran.status.code(), Some(0), "{ran}");
        ran.one_clear_line();
    }
}
