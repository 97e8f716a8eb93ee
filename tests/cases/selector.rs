use std::fs;
use std::os::unix::fs::symlink;

use genstore_tests::tree::Frozen;

use crate::selector_faults::faults;
use crate::store;

/// Every fault is tried against every verb in `selector_faults`; here: nothing falls back to anything, least of all to another store.
#[test]
fn case_004_a_malformed_pointer_never_falls_back() {
    let (dir, genstore) = store();
    // A healthy default store is at hand, and must not be used.
    genstore.clone().on_default_store().ok(["checkpoint"]);
    let default = dir.path("home/.local/share/genstore");
    let was = Frozen::of(&default);
    let good = dir.current();
    for fault in faults()
        .into_iter()
        .filter(|fault| fault.code == "selector_malformed")
    {
        fs::write(dir.store().join("CURRENT"), &good).unwrap();
        fault.make(&dir);
        let before = Frozen::of(&dir.store());
        assert_eq!(
            genstore.fails(5, ["checkpoint"]).code,
            "selector_malformed",
            "{}",
            fault.name
        );
        assert_eq!(
            genstore.fails(5, ["log"]).code,
            "selector_malformed",
            "{}",
            fault.name
        );
        let status = genstore.json_exit(5, ["status"]);
        assert_eq!(status["selector"]["state"], "untrusted", "{}", fault.name);
        before.assert_unchanged(&Frozen::of(&dir.store()), fault.name);
    }
    was.assert_unchanged(&Frozen::of(&default), "the default store");
}

#[test]
fn case_132_the_store_and_its_ancestors_may_be_symlinks() {
    let (dir, genstore) = store();
    fs::create_dir(dir.path("real")).unwrap();
    fs::rename(dir.store(), dir.path("real/store")).unwrap();
    symlink(dir.path("real"), dir.path("ancestor")).unwrap();
    symlink(dir.path("ancestor/store"), dir.path("link")).unwrap();
    for store in ["link", "ancestor/store"] {
        let genstore = genstore.clone().on(dir.path(store));
        dir.write("a.txt", store);
        crate::checkpoint(&genstore);
        assert_eq!(genstore.json(["verify"])["ok"], true);
        assert_eq!(genstore.json(["status"])["selector"]["state"], "ok");
    }
    // Below the store nothing may be one.
    let genstore = genstore.on(dir.path("real/store"));
    let incoming = dir.path("real/store/incoming");
    fs::remove_dir(&incoming).unwrap();
    symlink(dir.path("elsewhere"), &incoming).unwrap();
    fs::create_dir(dir.path("elsewhere")).unwrap();
    dir.write("a.txt", "again");
    let ran = genstore.run(["checkpoint"]);
    assert_eq!(ran.status.code(), Some(5), "{ran}");
    assert_eq!(
        fs::read_dir(dir.path("elsewhere")).unwrap().count(),
        0,
        "nothing is written through a link"
    );
}
