//! Walk, backup and performance: what a checkpoint takes, what it says about the rest, and what it costs.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;

use genstore_tests::dir::{chmod, disk_bytes};
use genstore_tests::tree::{Frozen, assert_same, snapshot};
use genstore_tests::{Dir, Over, machine, strace};
use serde_json::Value;

use crate::init::{kill_points, run_and_kill};
use crate::names::hard_names;
use crate::{checkpoint, fixture, left_out, name, store, text};

#[test]
fn case_015_every_name_is_captured_changed_and_brought_back() {
    let (dir, genstore) = fixture();
    for hard in hard_names() {
        dir.write(&hard, "before");
    }
    let expected = snapshot(&dir.tree());
    checkpoint(&genstore);
    for hard in hard_names() {
        dir.write(&hard, "after");
    }
    let to = dir.tree();
    genstore.ok([
        "restore",
        "latest",
        "--to",
        to.to_str().unwrap(),
        "--overwrite",
        "--yes",
    ]);
    assert_same(&expected, &snapshot(&dir.tree()));
    // Limits hold for names of every form.
    for hard in hard_names() {
        dir.write(&hard, vec![b'x'; 2000]);
    }
    let made = genstore.json(["checkpoint", "--max-file-size", "1K"]);
    let left = left_out(&made);
    for hard in hard_names() {
        assert!(
            left.contains_key(&hard),
            "{} got past the limit",
            hard.escape_ascii()
        );
    }
}

#[test]
fn case_019_one_unreadable_path_does_not_stop_the_rest() {
    let (dir, genstore) = fixture();
    let file = dir.write("root-only", "x");
    let closed = dir.write("closed/in", "x");
    let fifo = dir.tree().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    dir.mkdir("nested/.git");
    machine::give_to_nobody(dir.root());
    chmod(&file, 0);
    chmod(closed.parent().unwrap(), 0);
    let genstore = genstore.as_nobody();
    let made = genstore.json_exit(3, ["checkpoint"]);
    assert_eq!(
        (&made["created"], &made["complete"]),
        (&Value::Bool(true), &Value::Bool(false)),
        "{made}"
    );
    let left = left_out(&made);
    assert!(
        left.contains_key(&b"root-only"[..]) && left.contains_key(&b"closed"[..]),
        "{made}"
    );
    let log = genstore.json(["log"]);
    assert_eq!(
        log["checkpoints"][0]["complete"], false,
        "the log says so too"
    );
    // What could not be captured is never deleted by a restore.
    let to = dir.tree();
    let ran = genstore.run([
        "restore",
        "latest",
        "--to",
        to.to_str().unwrap(),
        "--delete",
        "--overwrite",
        "--yes",
    ]);
    assert!(matches!(ran.status.code(), Some(0 | 3)), "{ran}");
    chmod(closed.parent().unwrap(), 0o700);
    assert!(
        file.exists() && closed.exists() && fs::symlink_metadata(&fifo).is_ok(),
        "{ran}"
    );
}

#[test]
fn case_055_the_work_tree_is_never_written_to_even_when_killed() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = fixture();
    dir.write("nested/.git/HEAD", "ref: refs/heads/main\n");
    dir.write("nested/code.c", "int main;\n");
    dir.write("module/.git", "gitdir: ../.git/modules/module\n");
    let before = Frozen::of(&dir.tree());
    let (_, calls) = strace::trace(&genstore, ["checkpoint"], &[]);
    before.assert_unchanged(&Frozen::of(&dir.tree()), "a checkpoint");
    for point in kill_points(&calls, dir.root().to_str().unwrap()) {
        run_and_kill(&genstore, &["checkpoint", "--force"], &point);
        before.assert_unchanged(&Frozen::of(&dir.tree()), &format!("a kill at {point:?}"));
    }
}

#[test]
fn case_058_nested_repositories_are_captured() {
    let (dir, genstore) = fixture();
    dir.write("deep/er/repo/.git/HEAD", "ref: refs/heads/main\n");
    dir.write("deep/er/repo/src/main.c", "int main;\n");
    dir.write("deep/er/module/.git", "gitdir: elsewhere\n");
    dir.write("deep/er/module/lib.c", "int lib;\n");
    let made = genstore.json(["checkpoint"]);
    assert_eq!(made["complete"], true, "{made}");
    assert_eq!(
        genstore
            .ok(["cat", "latest", "deep/er/repo/src/main.c"])
            .out(),
        "int main;\n"
    );
    assert_eq!(
        genstore.ok(["cat", "latest", "deep/er/module/lib.c"]).out(),
        "int lib;\n"
    );
    let left = left_out(&made);
    assert_eq!(
        left.len(),
        2,
        "what is left out is listed once, at its top: {made}"
    );
}

#[test]
fn case_078_a_root_that_is_a_symlink_is_resolved_once() {
    let (dir, genstore) = fixture();
    symlink(dir.tree(), dir.path("link")).unwrap();
    let direct = genstore.json(["checkpoint"]);
    let through = genstore.json(["checkpoint", dir.path("link").to_str().unwrap()]);
    assert_eq!(
        (&through["id"], &through["created"]),
        (&direct["id"], &Value::Bool(false)),
        "{through}"
    );
    assert_eq!(
        name(&through["source"]),
        dir.tree().to_str().unwrap().as_bytes()
    );
    assert_eq!(
        genstore.json(["lineage", "list"])["lineages"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[test]
fn case_086_a_file_that_changes_while_it_is_read_is_never_mixed() {
    let (dir, genstore) = fixture();
    let path = dir.write("busy", vec![b'0'; 3 << 20]);
    let over = Over::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut digit = 0_u8;
            while !over.is_set() {
                digit = (digit + 1) % 10;
                // In place, as a database would: for a moment the file holds two states.
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'0' + digit; 3 << 20], 0)
                    .unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        over.after(|| {
            for _ in 0..6 {
                let ran = genstore.run(["checkpoint", "--json", "--rehash"]);
                let made = ran.json();
                let unstable = left_out(&made)
                    .get(&b"busy"[..])
                    .is_some_and(|reason| reason.contains("unstable"));
                assert_eq!(
                    ran.status.code(),
                    Some(if unstable { 3 } else { 0 }),
                    "{ran}"
                );
                assert_eq!(made["complete"], !unstable);
            }
        });
    });
}

#[test]
fn case_030_a_socket_and_a_fifo_do_not_make_it_incomplete() {
    let (dir, genstore) = fixture();
    let _socket = UnixListener::bind(dir.tree().join("gateway.sock")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        dir.tree().join("pipe"),
        rustix::fs::Mode::RWXU,
    )
    .unwrap();
    let made = genstore.json(["checkpoint"]);
    assert_eq!(made["complete"], true, "{made}");
    let left = left_out(&made);
    assert_eq!(left.len(), 2, "{made}");
    assert!(
        left.values().all(|reason| reason.contains("special")),
        "{left:?}"
    );
}

#[test]
fn case_031_a_failing_stat_is_reported_and_makes_it_incomplete() {
    let (dir, genstore) = fixture();
    dir.write("no-x/file", "x");
    machine::give_to_nobody(dir.root());
    // Its names can be listed, but nothing about them.
    chmod(&dir.tree().join("no-x"), 0o600);
    let made = genstore.as_nobody().json_exit(3, ["checkpoint"]);
    assert_eq!(made["complete"], false);
    assert!(
        left_out(&made).keys().any(|path| path.starts_with(b"no-x")),
        "{made}"
    );
    chmod(&dir.tree().join("no-x"), 0o700);
}

#[test]
fn case_032_a_socket_is_known_by_its_kind_not_by_its_name() {
    let (dir, genstore) = fixture();
    let _socket = UnixListener::bind(dir.tree().join("dev7")).unwrap();
    dir.write("not-a.sock", "a file, whatever it is called");
    let made = genstore.json(["checkpoint"]);
    assert_eq!(
        left_out(&made).keys().collect::<Vec<_>>(),
        [&b"dev7".to_vec()],
        "{made}"
    );
    genstore.ok(["cat", "latest", "not-a.sock"]);
}

#[test]
fn case_033_a_link_is_stored_as_a_link() {
    let (dir, genstore) = fixture();
    symlink("/etc/passwd", dir.tree().join("outside")).unwrap();
    symlink("/etc", dir.tree().join("outside-dir")).unwrap();
    checkpoint(&genstore);
    let ran = genstore.run(["cat", "latest", "outside"]);
    assert!(!ran.out().contains("root:"), "{ran}");
    let out = dir.path("out");
    genstore.ok(["restore", "latest", "--to", out.to_str().unwrap()]);
    assert_eq!(
        fs::read_link(out.join("outside")).unwrap().to_str(),
        Some("/etc/passwd")
    );
    assert_eq!(
        fs::read_link(out.join("outside-dir")).unwrap().to_str(),
        Some("/etc")
    );
    let files = genstore.json(["show", "latest", "--files"]);
    assert!(
        !files.to_string().contains("outside-dir/"),
        "nothing below the link: {files}"
    );
}

#[test]
fn case_087_other_inode_numbers_are_only_slower() {
    let (dir, genstore) = store();
    let id = text(&genstore.json(["show", "latest"])["id"]);
    // The same tree on other inodes, as after a remount of some file systems.
    let inode = fs::metadata(dir.tree().join("a.txt")).unwrap().ino();
    let status = std::process::Command::new("cp")
        .arg("-a")
        .arg(dir.tree())
        .arg(dir.path("copy"))
        .status()
        .unwrap();
    assert!(status.success());
    fs::rename(dir.tree(), dir.path("old")).unwrap();
    fs::rename(dir.path("copy"), dir.tree()).unwrap();
    assert_ne!(fs::metadata(dir.tree().join("a.txt")).unwrap().ino(), inode);
    let again = genstore.within(dir.tree()).json(["checkpoint"]);
    assert_eq!(
        (&again["created"], text(&again["id"])),
        (&Value::Bool(false), id),
        "{again}"
    );
}

#[test]
fn case_125_a_huge_root_is_refused_or_bounded_and_leaves_nothing() {
    let (dir, genstore) = store();
    let before = Frozen::of(&dir.store()).without_notes();
    for wide in ["/", dir.path("home").to_str().unwrap()] {
        assert_eq!(genstore.fails(8, ["checkpoint", wide]).code, "wide_source");
    }
    let late = genstore.fails(
        1,
        ["checkpoint", "/", "--allow-wide", "--deadline", "0.05s"],
    );
    assert_eq!(late.code, "deadline", "{late:?}");
    dir.write("x", "more entries than allowed");
    let failed = genstore.run(["checkpoint", "--max-entries", "2", "--json"]);
    assert!(matches!(failed.status.code(), Some(1 | 8)), "{failed}");
    before.assert_unchanged(&Frozen::of(&dir.store()).without_notes(), "a refused root");
    assert_eq!(
        fs::read_dir(dir.store().join("incoming")).unwrap().count(),
        0
    );
}

#[test]
fn case_126_two_worktrees_of_one_tree_share_their_content() {
    let dir = Dir::new();
    let genstore = dir.genstore(crate::GENSTORE);
    let bytes = genstore_tests::random::Random::new(5).bytes(4 << 20);
    dir.write("big", &bytes);
    fs::create_dir(dir.path("second")).unwrap();
    fs::write(dir.path("second/same"), &bytes).unwrap();
    checkpoint(&genstore);
    let before = disk_bytes(&dir.store());
    checkpoint(&genstore.clone().within(dir.path("second")));
    let cost = disk_bytes(&dir.store()) - before;
    assert!(cost < 128 << 10, "the second tree costs {cost} bytes");
    assert_eq!(
        genstore.json(["lineage", "list"])["lineages"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
}
