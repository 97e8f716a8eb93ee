use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use genstore_tests::dir::chmod;
use genstore_tests::tree::{Frozen, assert_same, snapshot};
use genstore_tests::{Dir, Genstore, machine};
use serde_json::Value;

use crate::names::hard_names;
use crate::{checkpoint, fixture, name, store};

/// Puts a checkpoint back into the tree itself: the nearest that `restore` comes to a rollback.
fn back(dir: &Dir, genstore: &Genstore, more: &[&str]) -> genstore_tests::Ran {
    let to = dir.tree();
    let mut args = vec![
        "restore",
        "latest",
        "--to",
        to.to_str().unwrap(),
        "--overwrite",
        "--delete",
        "--yes",
        "--json",
    ];
    args.extend(more);
    genstore.run(args)
}

fn paths(list: &Value) -> Vec<Vec<u8>> {
    list.as_array()
        .unwrap_or_else(|| panic!("not a list: {list}"))
        .iter()
        .map(|row| name(row.get("path").unwrap_or(row)))
        .collect()
}

#[test]
fn case_017_a_failed_unlink_is_listed_as_failed() {
    if !machine::is_root() {
        genstore_tests::skip("another user's directory needs root");
        return;
    }
    let (dir, genstore) = fixture();
    dir.write("closed/kept", "x");
    machine::give_to_nobody(dir.root());
    let genstore = genstore.as_nobody();
    checkpoint(&genstore);
    let extra = dir.write("closed/extra", "to be removed");
    // Somebody else's directory: whoever restores can neither write to it nor change that.
    std::os::unix::fs::chown(dir.tree().join("closed"), Some(0), Some(0)).unwrap();
    let ran = back(&dir, &genstore, &[]).exit(3);
    let done = ran.json();
    assert!(
        paths(&done["failed"]).contains(&b"closed/extra".to_vec()),
        "{ran}"
    );
    assert!(
        !paths(&done["removed"]).contains(&b"closed/extra".to_vec()),
        "{ran}"
    );
    assert!(extra.exists());
}

#[test]
fn case_051_changes_by_any_process_are_in_the_snapshot() {
    let (dir, genstore) = store();
    let status = std::process::Command::new("sh")
        .args([
            "-c",
            "echo shell > made; mv a.txt moved; rm -r sub; mkdir -p new/dir",
        ])
        .current_dir(dir.tree())
        .status()
        .unwrap();
    assert!(status.success());
    let changed = snapshot(&dir.tree());
    checkpoint(&genstore);
    let first = snapshot_of_first(&dir, &genstore);
    assert!(first.contains_key(&b"sub/b.txt"[..]) && !first.contains_key(&b"moved"[..]));
    let out = dir.path("out");
    genstore.ok(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_same(&changed, &snapshot(&out));
}

fn snapshot_of_first(dir: &Dir, genstore: &Genstore) -> genstore_tests::tree::Snapshot {
    let out = dir.path("first");
    genstore.ok(["restore", "first", "--to", out.to_str().unwrap()]);
    snapshot(&out)
}

#[test]
fn case_052_a_deleted_file_comes_back() {
    let (dir, genstore) = store();
    let expected = snapshot(&dir.tree());
    fs::remove_file(dir.tree().join("sub/b.txt")).unwrap();
    let done = back(&dir, &genstore, &[]).exit(0).json();
    assert!(
        paths(&done["restored"]).contains(&b"sub/b.txt".to_vec()),
        "{done}"
    );
    assert!(
        !paths(&done["restored"]).contains(&b"a.txt".to_vec()),
        "what is there is left alone: {done}"
    );
    assert_same(&expected, &snapshot(&dir.tree()));
}

#[test]
fn case_057_what_was_ignored_then_or_is_ignored_now_is_never_deleted() {
    let (dir, genstore) = fixture();
    dir.write(".genstoreignore", "then.log\n");
    let then = dir.write("then.log", "ignored then");
    checkpoint(&genstore);
    // The rules change: what was ignored is no more, and something else is.
    dir.write(".genstoreignore", "now.log\n");
    let now = dir.write("now.log", "ignored now");
    let ran = back(&dir, &genstore, &[]);
    assert!(matches!(ran.status.code(), Some(0 | 3)), "{ran}");
    assert_eq!(fs::read_to_string(then).unwrap(), "ignored then", "{ran}");
    assert_eq!(fs::read_to_string(now).unwrap(), "ignored now", "{ran}");
    assert_eq!(
        fs::read_to_string(dir.tree().join(".genstoreignore")).unwrap(),
        "then.log\n"
    );
}

#[test]
fn case_067_restoring_what_is_there_is_a_no_op() {
    let (dir, genstore) = store();
    let again = genstore.json(["checkpoint"]);
    assert_eq!(again["created"], false);
    let before = Frozen::of(&dir.tree());
    let done = back(&dir, &genstore, &[]).exit(0).json();
    assert_eq!(
        (
            paths(&done["restored"]).len(),
            paths(&done["removed"]).len()
        ),
        (0, 0),
        "{done}"
    );
    before.assert_unchanged(&Frozen::of(&dir.tree()), "a restore of the present state");
}

#[test]
fn case_075_a_second_restore_writes_nothing() {
    let (dir, genstore) = fixture();
    symlink("a.txt", dir.tree().join("link")).unwrap();
    symlink("nowhere", dir.tree().join("dangling")).unwrap();
    checkpoint(&genstore);
    let out = dir.path("out");
    let to = out.to_str().unwrap();
    genstore.ok(["restore", "latest", "--to", to]);
    let before = Frozen::of(&out);
    for flags in [
        &["--overwrite"][..],
        &["--overwrite", "--delete"],
        &["--overwrite", "--yes"],
    ] {
        let mut args = vec!["restore", "latest", "--to", to];
        args.extend(flags);
        let done = genstore.json(args);
        assert_eq!(paths(&done["restored"]).len(), 0, "{done}");
        before.assert_unchanged(&Frozen::of(&out), "a second restore");
    }
}

#[test]
fn case_099_what_holds_no_content_is_never_called_restored() {
    let (dir, genstore) = fixture();
    dir.write("dir/one", "1");
    dir.write("dir/deep/two", "2");
    dir.write("large", vec![b'x'; 20_000]);
    let made = genstore.json(["checkpoint", "--max-file-size", "10K"]);
    assert!(crate::left_out(&made).contains_key(&b"large"[..]), "{made}");
    let expected = snapshot(&dir.tree().join("dir"));
    fs::remove_dir_all(dir.tree().join("dir")).unwrap();
    dir.write("large", "changed");
    let done = back(&dir, &genstore, &[]).json();
    assert_same(&expected, &snapshot(&dir.tree().join("dir")));
    assert!(
        !paths(&done["restored"]).contains(&b"large".to_vec()),
        "{done}"
    );
    let failed = genstore.fails(
        7,
        [
            "restore",
            "latest",
            "--to",
            dir.path("out").to_str().unwrap(),
            "large",
        ],
    );
    assert_eq!(failed.code, "path_not_found");
}

#[test]
fn case_106_names_with_brackets_are_names() {
    let (dir, genstore) = fixture();
    for hard in hard_names() {
        dir.write(&hard, &hard);
    }
    checkpoint(&genstore);
    for (number, hard) in hard_names().iter().enumerate() {
        let out = dir.path(format!("out-{number}"));
        let args = [
            OsStr::new("restore"),
            OsStr::new("latest"),
            OsStr::new("--to"),
            out.as_os_str(),
            OsStr::new("--"),
            OsStr::from_bytes(hard),
        ];
        genstore.ok(args);
        assert_eq!(&fs::read(out.join(OsStr::from_bytes(hard))).unwrap(), hard);
        assert_eq!(fs::read_dir(out).unwrap().count(), 1, "and nothing else");
    }
    // Nothing matched is an error, not a success.
    let failed = genstore.fails(
        7,
        [
            "restore",
            "latest",
            "--to",
            dir.path("none").to_str().unwrap(),
            "A [y] (1).txt",
        ],
    );
    assert_eq!(failed.code, "path_not_found");
}

#[test]
fn case_129_a_directory_comes_back_with_everything_in_it() {
    let (dir, genstore) = fixture();
    for number in 0..50 {
        dir.write(
            format!("album/{}/{number}", number % 5),
            format!("{number}"),
        );
    }
    dir.mkdir("album/empty");
    let expected = snapshot(&dir.tree().join("album"));
    checkpoint(&genstore);
    fs::remove_dir_all(dir.tree().join("album")).unwrap();
    dir.write("a.txt", "the person's own edit\n");
    let to = dir.tree();
    let done = genstore.json([
        "restore",
        "latest",
        "--to",
        to.to_str().unwrap(),
        "--overwrite",
        "--yes",
        "album",
    ]);
    assert_eq!(done["failed"], serde_json::json!([]), "{done}");
    assert_same(&expected, &snapshot(&dir.tree().join("album")));
    assert_eq!(
        fs::read_to_string(dir.tree().join("a.txt")).unwrap(),
        "the person's own edit\n"
    );
}

#[test]
fn case_016_a_file_over_the_limit_is_kept() {
    let (dir, genstore) = fixture();
    dir.write("over", vec![b'o'; 2 << 20]);
    dir.write("at", vec![b'a'; 1 << 20]);
    dir.write("grows", vec![b'g'; 1000]);
    let made = genstore.json(["checkpoint", "--max-file-size", "1M"]);
    assert!(
        crate::left_out(&made)[&b"over"[..]].contains("limit"),
        "{made}"
    );
    for file in ["over", "at", "grows"] {
        let bytes = [
            fs::read(dir.tree().join(file)).unwrap(),
            vec![b'+'; 2 << 20],
        ]
        .concat();
        dir.write(file, bytes);
    }
    let done = back(&dir, &genstore, &[]).json();
    let over = fs::read(dir.tree().join("over")).unwrap();
    assert_eq!(
        over.len(),
        4 << 20,
        "what the checkpoint does not hold stays as it is: {done}"
    );
    assert!(
        !paths(&done["restored"]).contains(&b"over".to_vec())
            && !paths(&done["removed"]).contains(&b"over".to_vec()),
        "{done}"
    );
    assert_eq!(
        fs::metadata(dir.tree().join("at")).unwrap().len(),
        1 << 20,
        "a file of exactly the limit is captured"
    );
    assert_eq!(fs::metadata(dir.tree().join("grows")).unwrap().len(), 1000);
}

#[test]
fn case_064_rules_that_cannot_be_read_never_mean_no_rules() {
    let (dir, genstore) = fixture();
    let rules = dir.write(".genstoreignore", "secret.log\n");
    let ignored = dir.write("secret.log", "ignored");
    machine::give_to_nobody(dir.root());
    let genstore = genstore.as_nobody();
    checkpoint(&genstore);
    chmod(&rules, 0);
    let before = dir.current();
    let ran = genstore.run(["checkpoint", "--json"]);
    match ran.status.code() {
        // An error, or everything that these rules could have protected is treated as protected.
        Some(1 | 8) => assert_eq!(dir.current(), before, "{ran}"),
        Some(3) => assert!(
            crate::left_out(&ran.json()).contains_key(&b".genstoreignore"[..]),
            "{ran}"
        ),
        _ => panic!("{ran}"),
    }
    back(&dir, &genstore, &[]);
    assert_eq!(
        fs::read_to_string(ignored).unwrap(),
        "ignored",
        "a rule file that cannot be read protects nothing?"
    );
    chmod(&rules, 0o644);
}

#[test]
fn case_122_a_restore_asks_before_it_replaces_anything() {
    let (dir, genstore) = store();
    dir.write("a.txt", "a week of work\n");
    let mine = dir.write("new.txt", "more work\n");
    let before = Frozen::of(&dir.tree());
    let to = dir.tree();
    let to = to.to_str().unwrap();
    genstore.run(["restore", "latest", "--to", to]).exit(8);
    for flags in [
        &["--overwrite"][..],
        &["--delete"],
        &["--overwrite", "--delete"],
    ] {
        let mut args = vec!["restore", "latest", "--to", to];
        args.extend(flags);
        let failed = genstore.fails(8, args.clone());
        assert!(
            failed.hint.contains("--yes") || failed.hint.contains("--overwrite"),
            "{failed:?}"
        );
        args.push("--dry-run");
        genstore.run(args);
        before.assert_unchanged(&Frozen::of(&dir.tree()), "nobody said yes");
    }
    let plan = genstore.json([
        "restore",
        "latest",
        "--to",
        to,
        "--overwrite",
        "--delete",
        "--dry-run",
    ]);
    assert_eq!(
        paths(&plan["plan"]["replace"]),
        [b"a.txt".to_vec()],
        "{plan}"
    );
    assert_eq!(
        paths(&plan["plan"]["remove"]),
        [b"new.txt".to_vec()],
        "{plan}"
    );
    // A checkpoint first, and nothing is lost.
    let saved = checkpoint(&genstore);
    genstore.ok([
        "restore",
        "latest~1",
        "--to",
        to,
        "--overwrite",
        "--delete",
        "--yes",
    ]);
    assert!(!mine.exists());
    assert_eq!(genstore.ok(["cat", &saved, "new.txt"]).out(), "more work\n");
}
