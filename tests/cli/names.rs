//! Names in every form, and everything a tree can hold that is not a plain file.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use genstore_tests::dir::{chmod, set_mtime};
use genstore_tests::tree::{assert_same, snapshot};
use genstore_tests::{Dir, Over, machine};
use serde_json::Value;

use crate::{GENSTORE, fixture, left_out, name, text};

/// File names that have broken programs.
pub(crate) fn hard_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "報告.txt",
        "naïve café",
        " lead.txt",
        "trail.txt ",
        "dot.",
        "a\tb",
        "a\nb",
        "\n",
        "a\rb",
        "quote\"s",
        "it's",
        "back\\slash",
        "\\x41",
        "\\n",
        "A [x] (1).txt",
        "[a-z]*",
        "*",
        "?",
        "{a,b}",
        "$HOME",
        "`id`",
        "$(id)",
        "a;b",
        "a|b",
        "a&b",
        "#comment",
        "!bang",
        "-rf",
        "--",
        "--help",
        "~",
        "~root",
        "%s%n",
        "a:b",
        "CON",
        "con.txt",
        "...",
        ".hidden",
        "..hidden",
        "שלום עולם",
        "\u{202e}txt.exe",
        "e\u{301}",
        "\u{e9}",
        "\u{feff}bom",
        "\u{200b}",
        "\u{1f600}",
        "\x01\x02\x1b[31mred",
        "\x7f",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.push(b"\xff\xfe".to_vec());
    names.push(b"latin1-\xe9.txt".to_vec());
    names.push(b"half-\xe5\xa0".to_vec());
    names.push(b"\xed\xa0\x80surrogate".to_vec());
    names.push(vec![b'n'; 255]);
    names.push([b"\xf0\x9f\x98\x80".repeat(63), b"abc".to_vec()].concat());
    names
}

/// Makes a file, a directory and a link under every hard name.
fn with_hard_names(dir: &Dir) {
    for (number, name) in hard_names().iter().enumerate() {
        dir.write(
            [b"files/", name.as_slice()].concat(),
            format!("content {number}"),
        );
        dir.write(
            [b"dirs/", name.as_slice(), b"/inside"].concat(),
            format!("inside {number}"),
        );
        dir.mkdir("links");
        let link = dir.tree().join("links").join(OsStr::from_bytes(name));
        symlink(OsStr::from_bytes(name), link).unwrap();
    }
}

#[test]
fn every_name_comes_back_byte_for_byte() {
    let dir = Dir::new();
    let genstore = dir.genstore(GENSTORE);
    with_hard_names(&dir);
    let made = genstore.json(["checkpoint"]);
    assert_eq!(
        (&made["complete"], left_out(&made).len()),
        (&Value::Bool(true), 0),
        "{made}"
    );
    let expected = snapshot(&dir.tree());
    let out = dir.path("out");
    genstore.json(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_same(&expected, &snapshot(&out));

    // And by the names that the listing prints, one by one.
    let shown = genstore.json(["show", "latest", "--files"]);
    let listed: Vec<_> = shown["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| name(&entry["path"]))
        .collect();
    let mut walked: Vec<_> = expected
        .keys()
        .filter(|path| !path.is_empty())
        .cloned()
        .collect();
    let mut sorted = listed.clone();
    walked.sort();
    sorted.sort();
    assert_eq!(sorted, walked);
    for (number, hard) in hard_names().iter().enumerate() {
        let path = [b"files/", hard.as_slice()].concat();
        let ran = genstore.ok([
            OsStr::new("cat"),
            OsStr::new("latest"),
            OsStr::new("--"),
            OsStr::from_bytes(&path),
        ]);
        assert_eq!(ran.out(), format!("content {number}"));
    }
}

#[test]
fn a_change_under_a_hard_name_is_seen_and_undone() {
    let dir = Dir::new();
    let genstore = dir.genstore(GENSTORE);
    with_hard_names(&dir);
    genstore.json(["checkpoint"]);
    let expected = snapshot(&dir.tree());
    for name in hard_names() {
        dir.write([b"files/", name.as_slice()].concat(), "changed");
        fs::remove_dir_all(dir.tree().join("dirs").join(OsStr::from_bytes(&name))).unwrap();
    }
    let answer = genstore.json(["diff", "latest"]);
    let changed: Vec<_> = answer["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| name(&row["path"]))
        .collect();
    for hard in hard_names() {
        assert!(
            changed.contains(&[b"files/", hard.as_slice()].concat()),
            "{}",
            hard.escape_ascii()
        );
    }
    let to = dir.tree();
    genstore.json([
        "restore",
        "latest",
        "--to",
        to.to_str().unwrap(),
        "--overwrite",
        "--delete",
        "--yes",
    ]);
    assert_same(&expected, &snapshot(&dir.tree()));
}

#[test]
fn sockets_fifos_and_devices_are_listed_and_leave_the_checkpoint_complete() {
    let (dir, genstore) = fixture();
    let _listening = UnixListener::bind(dir.tree().join("gateway.sock")).unwrap();
    let _other = UnixListener::bind(dir.tree().join("dev7")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        dir.tree().join("pipe"),
        rustix::fs::Mode::RWXU,
    )
    .unwrap();
    let made = genstore.json(["checkpoint"]);
    assert_eq!(made["complete"], true, "{made}");
    let left = left_out(&made);
    let special: Vec<_> = left
        .keys()
        .map(|path| path.escape_ascii().to_string())
        .collect();
    assert_eq!(special, ["dev7", "gateway.sock", "pipe"], "{made}");
    assert!(
        left[&b"pipe"[..]].contains("fifo") || left[&b"pipe"[..]].contains("special"),
        "{left:?}"
    );
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_captured() {
    let (dir, genstore) = fixture();
    dir.write("closed/inside", "x");
    let file = dir.write("unreadable", "x");
    machine::give_to_nobody(dir.root());
    chmod(&file, 0);
    chmod(&dir.tree().join("closed"), 0);
    // Listable, but nothing in it can be looked at.
    dir.write("no-x/inside", "x");
    machine::give_to_nobody(&dir.tree().join("no-x"));
    chmod(&dir.tree().join("no-x"), 0o600);
    let genstore = genstore.as_nobody();
    let made = genstore.json_exit(3, ["checkpoint"]);
    assert_eq!(
        (&made["created"], &made["complete"]),
        (&Value::Bool(true), &Value::Bool(false)),
        "{made}"
    );
    let left = left_out(&made);
    for path in ["unreadable", "closed"] {
        assert!(
            left.contains_key(path.as_bytes()),
            "{path} is not listed: {made}"
        );
    }
    assert!(left.keys().any(|path| path.starts_with(b"no-x")), "{made}");
    assert!(
        left.values().all(|reason| reason.contains("unreadable")),
        "{left:?}"
    );
    genstore.ok(["cat", "latest", "a.txt"]);
    chmod(&dir.tree().join("closed"), 0o700);
    chmod(&dir.tree().join("no-x"), 0o700);
}

#[test]
fn links_are_kept_as_links_also_in_a_loop() {
    let (dir, genstore) = fixture();
    symlink("loop-b", dir.tree().join("loop-a")).unwrap();
    symlink("loop-a", dir.tree().join("loop-b")).unwrap();
    symlink(".", dir.tree().join("self")).unwrap();
    symlink("../../../../etc/hostname", dir.tree().join("sub/out")).unwrap();
    symlink("/etc", dir.tree().join("etc")).unwrap();
    let made = genstore.json(["checkpoint"]);
    assert_eq!(made["counts"]["links"], 5, "{made}");
    let out = dir.path("out");
    genstore.json(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_same(&snapshot(&dir.tree()), &snapshot(&out));
}

#[test]
fn nested_repositories_are_captured_without_their_metadata_and_untouched() {
    let (dir, genstore) = fixture();
    dir.write("vendored/.git/HEAD", "ref: refs/heads/main\n");
    dir.write("vendored/src.c", "int main;\n");
    dir.write("submodule/.git", "gitdir: ../.git/modules/submodule\n");
    dir.write("submodule/src.c", "int sub;\n");
    dir.mkdir("empty-repository/.git");
    let before = snapshot(&dir.tree());
    let made = genstore.json(["checkpoint"]);
    let left = left_out(&made);
    let names: Vec<_> = left
        .keys()
        .map(|path| path.escape_ascii().to_string())
        .collect();
    assert_eq!(
        names,
        ["empty-repository/.git", "submodule/.git", "vendored/.git"],
        "{made}"
    );
    assert_eq!(made["complete"], true);
    genstore.ok(["cat", "latest", "vendored/src.c"]);
    genstore.ok(["cat", "latest", "submodule/src.c"]);
    assert_same(&before, &snapshot(&dir.tree()));

    let all = genstore.json(["checkpoint", "--no-default-ignores"]);
    assert_eq!(left_out(&all).len(), 0, "{all}");
    let out = dir.path("out");
    genstore.json(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_same(&before, &snapshot(&out));
}

#[test]
fn times_before_1970_and_far_ahead_and_the_roots_own_metadata_come_back() {
    let (dir, genstore) = fixture();
    set_mtime(&dir.write("old", "x"), -1, 999_999_999);
    set_mtime(&dir.write("older", "x"), -2_000_000_000, 1);
    set_mtime(&dir.write("future", "x"), 4_000_000_000, 5);
    set_mtime(&dir.write("epoch", "x"), 0, 0);
    chmod(&dir.tree(), 0o750);
    set_mtime(&dir.tree(), -86_400, 123);
    let expected = snapshot(&dir.tree());
    genstore.json(["checkpoint"]);
    let out = dir.path("out");
    genstore.json(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_same(&expected, &snapshot(&out));
    let root = &snapshot(&out)[&Vec::new()];
    assert_eq!((root.mode, root.mtime), (0o750, (-86_400, 123)));
}

#[test]
fn a_file_that_grows_while_it_is_read_is_whole_or_named() {
    let (dir, genstore) = fixture();
    let path = dir.write("growing.log", "");
    let over = Over::default();
    std::thread::scope(|scope| {
        scope.spawn(|| append_until(&path, &over));
        over.after(|| {
            for _ in 0..10 {
                let ran = genstore.run(["checkpoint", "--json"]);
                let made = ran.json();
                let left = left_out(&made);
                match ran.status.code() {
                    Some(0) => assert!(left.is_empty(), "{ran}"),
                    Some(3) => assert!(left[&b"growing.log"[..]].contains("unstable"), "{ran}"),
                    _ => panic!("{ran}"),
                }
                if left.is_empty() {
                    whole_lines(
                        &genstore
                            .ok(["cat", &text(&made["id"]), "growing.log"])
                            .out(),
                    );
                }
            }
        });
    });
    let made = genstore.json(["checkpoint"]);
    assert_eq!(made["complete"], true, "nobody writes any more: {made}");
}

fn append_until(path: &Path, over: &Over) {
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    let mut number = 0_u64;
    while !over.is_set() {
        // One write each: what was there at any one moment is a number of whole lines.
        file.write_all(format!("{number:0>4000}\n").as_bytes())
            .unwrap();
        number += 1;
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// A state that the file really had: whole lines, counted up.
fn whole_lines(content: &str) {
    assert!(
        content.is_empty() || content.ends_with('\n'),
        "a torn line was captured"
    );
    for (number, line) in content.lines().enumerate() {
        assert_eq!(
            line.parse::<usize>().unwrap(),
            number,
            "a mixed state was captured"
        );
    }
}

#[test]
fn the_store_inside_its_source_is_left_out_by_identity() {
    let (dir, genstore) = fixture();
    let genstore = genstore.on(dir.tree().join("sub/store"));
    let made = genstore.json(["checkpoint"]);
    let left = left_out(&made);
    assert!(left.contains_key(&b"sub/store"[..]), "{made}");
    assert_eq!(made["complete"], true);
    assert_eq!(
        genstore.json(["checkpoint"])["created"],
        false,
        "the store's own changes are no change of the tree"
    );
    // Under another name it is still the same directory.
    fs::rename(dir.tree().join("sub/store"), dir.tree().join("renamed")).unwrap();
    let made = genstore
        .clone()
        .on(dir.tree().join("renamed"))
        .json(["checkpoint"]);
    assert!(left_out(&made).contains_key(&b"renamed"[..]), "{made}");
}
