use std::fs;

use genstore_tests::tree::Frozen;
use genstore_tests::{Dir, Genstore, Ran, strace};

use crate::init::{kill_points, run_and_kill};
use crate::{checkpoint, store, text};

/// Runs a command in which calls fail as told.
fn injected(genstore: &Genstore, dir: &Dir, calls: &str, what: &str, args: &[&str]) -> Ran {
    let inject = format!("inject={calls}:{what}");
    let traced = format!("trace={calls}");
    genstore
        .clone()
        .under(strace::prefix(&dir.path("log"), &traced, &["-e", &inject]))
        .run(args)
}

#[test]
fn case_021_a_killed_checkpoint_blocks_nothing() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    dir.write("a.txt", "traced\n");
    let (_, calls) = strace::trace(&genstore, ["checkpoint"], &[]);
    let points = kill_points(&calls, dir.store().to_str().unwrap());
    assert!(points.len() > 10, "{points:?}");
    for (number, point) in points.iter().enumerate() {
        dir.write("a.txt", format!("{number}\n"));
        let before = dir.current();
        run_and_kill(&genstore, &["checkpoint"], point);
        // No help, no waiting for a lock that nobody holds.
        let again = genstore.json(["checkpoint", "--lock-wait", "5"]);
        assert_eq!(again["complete"], true, "{point:?}: {again}");
        assert_ne!(dir.current(), before, "{point:?}");
        assert_eq!(
            genstore.ok(["cat", "latest", "a.txt"]).out(),
            format!("{number}\n"),
            "{point:?}"
        );
    }
    assert_eq!(genstore.json(["verify"])["ok"], true);
    // What the last kill left goes with the next commit.
    genstore.ok(["checkpoint", "--force"]);
    assert_eq!(
        fs::read_dir(dir.store().join("incoming")).unwrap().count(),
        0
    );
    genstore_tests::reader::check(&dir.store());
}

#[test]
fn case_037_exdev_falls_back_to_a_copy_and_ebusy_is_explained() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    let renames = "?rename,renameat,renameat2";
    dir.write("a.txt", "on another mount\n");
    // The first rename of a checkpoint moves its pack: as across two mounts.
    let ran = injected(
        &genstore,
        &dir,
        renames,
        "error=EXDEV:when=1",
        &["checkpoint"],
    );
    assert_eq!(ran.status.code(), Some(0), "{ran}");
    assert_eq!(
        genstore.ok(["cat", "latest", "a.txt"]).out(),
        "on another mount\n"
    );
    assert_eq!(genstore.json(["verify"])["ok"], true);
    let links = injected(
        &genstore,
        &dir,
        "?link,linkat",
        "error=EXDEV",
        &["checkpoint", "--force"],
    );
    assert_eq!(links.status.code(), Some(0), "{links}");
    assert_eq!(genstore.json(["verify"])["ok"], true);

    let before = dir.current();
    dir.write("a.txt", "busy\n");
    let ran = injected(
        &genstore,
        &dir,
        renames,
        "error=EBUSY",
        &["checkpoint", "--json"],
    );
    assert_eq!(ran.status.code(), Some(1), "{ran}");
    assert_eq!(ran.error().code, "resource_busy", "{ran}");
    assert!(!ran.error().hint.is_empty(), "{ran}");
    assert_eq!(dir.current(), before);
    checkpoint(&genstore);
    assert_eq!(
        fs::read_dir(dir.store().join("incoming")).unwrap().count(),
        0
    );
}

#[test]
fn case_079_a_failing_write_publishes_nothing() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    let writes = "write,pwrite64,writev,pwritev,fallocate,ftruncate,fsync,fdatasync,mkdirat,linkat,copy_file_range";
    dir.write("a.txt", "traced\n");
    let (_, calls) = strace::trace(&genstore, ["checkpoint"], &[]);
    let place = dir.store().to_str().unwrap().to_owned();
    let current = format!("{place}/CURRENT");
    let flip = calls
        .iter()
        .position(|call| call.moved().is_some_and(|(_, to)| to == current))
        .unwrap();
    let before_flip: Vec<_> = calls[..flip].to_vec();
    let points: Vec<_> = kill_points(&before_flip, &place)
        .into_iter()
        .filter(|(call, _)| writes.split(',').any(|name| name == call))
        .collect();
    assert!(points.len() > 5, "{points:?}");
    for error in ["ENOSPC", "EIO", "EDQUOT", "EROFS"] {
        for (number, (call, when)) in points.iter().enumerate() {
            dir.write("a.txt", format!("{error} {number}\n"));
            let before = dir.current();
            let ran = injected(
                &genstore,
                &dir,
                call,
                &format!("error={error}:when={when}"),
                &["checkpoint", "--json"],
            );
            let what = format!("{call} {when} {error}");
            if dir.current() == before {
                assert_eq!(ran.status.code(), Some(1), "{what}: {ran}");
                ran.error();
            } else {
                // It failed where it does not matter: in what is for people, or in a fallback.
                assert!(matches!(ran.status.code(), Some(0 | 1)), "{what}: {ran}");
                assert_eq!(
                    genstore.ok(["cat", "latest", "a.txt"]).out(),
                    format!("{error} {number}\n"),
                    "{what}"
                );
            }
        }
        assert_eq!(genstore.json(["verify"])["ok"], true, "{error}");
    }
    let again = genstore.json(["checkpoint", "--force"]);
    assert_eq!(again["created"], true, "{again}");
    assert_eq!(
        fs::read_dir(dir.store().join("incoming")).unwrap().count(),
        0
    );
    genstore_tests::reader::check(&dir.store());
}

/// The order of syncs; `syscalls` checks each step, and what may follow.
#[test]
fn case_092_everything_a_pointer_needs_is_synced_before_it() {
    if !strace::is_here() {
        return;
    }
    let (dir, genstore) = store();
    dir.write("a.txt", "changed\n");
    let (_, calls) = strace::trace(&genstore, ["checkpoint"], &[]);
    let store = dir.store().to_str().unwrap().to_owned();
    let live = format!("{store}/generations/{}", dir.current().trim_end());
    let ended = |wanted: &str| {
        let call = calls
            .iter()
            .find(|call| call.ok() && call.synced() == Some(wanted));
        call.unwrap_or_else(|| panic!("{wanted} was not synced"))
            .span
            .1
    };
    let current = format!("{store}/CURRENT");
    let flip = calls
        .iter()
        .find(|call| call.moved().is_some_and(|(_, to)| to == current))
        .unwrap();
    for needed in [
        live.clone(),
        format!("{live}/manifest.json"),
        format!("{store}/generations"),
    ] {
        assert!(
            ended(&needed) <= flip.span.0,
            "{needed} was synced after the flip"
        );
    }
    // Its new pack, under whichever of its two names.
    let pack = calls.iter().find(|call| {
        call.ok()
            && call
                .synced()
                .is_some_and(|path| path.contains("/pack-") || path.ends_with(".pack"))
    });
    assert!(
        pack.is_some_and(|call| call.span.1 <= flip.span.0),
        "the pack was not synced before the flip"
    );
    assert!(ended(&store) >= flip.span.1);
}

#[test]
fn case_079_a_full_disk_keeps_the_last_state() {
    let (dir, genstore) = store();
    let id = text(&genstore.json(["show", "latest"])["id"]);
    dir.write("big", genstore_tests::random::Random::new(3).bytes(3 << 20));
    let before = Frozen::of(&dir.store()).without_notes();
    let limited = genstore.clone().under([
        "sh",
        "-c",
        "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\"",
    ]);
    let ran = limited.run(["checkpoint"]).exit(1).one_clear_line();
    before.assert_unchanged(&Frozen::of(&dir.store()).without_notes(), &ran.to_string());
    assert_eq!(text(&genstore.json(["show", "latest"])["id"]), id);
}
