use super::*;
use crate::catalog::check;
use crate::catalog::map::tests::Random;
use crate::format::checkpoint::{Actor, CheckpointRecord, Counts, Extra, RootMeta};
use crate::id::{Nonce, StoreId};
use crate::objects::memory::MemoryObjects;

const P: &[u8] = b"/p";

/// A record in the store, as a commit leaves it.
pub(crate) fn record(objects: &MemoryObjects, n: u64, key: Option<(Role, &[u8])>) -> ObjectId {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&n.to_le_bytes());
    let record = CheckpointRecord {
        nonce: Nonce::from_bytes(nonce),
        parent: None,
        time: time(n),
        message: vec![],
        key: key.map(|(_, key)| key.to_vec()),
        role: key.map_or(Role::None, |(role, _)| role),
        actor: Actor::None,
        source: P.to_vec(),
        host: vec![],
        tree: ObjectId::of(b"tree"),
        root: RootMeta {
            mode: 0o755,
            mtime: Time::default(),
            owner: None,
            xattrs: Extra::NotCaptured,
        },
        counts: Counts::default(),
        complete: true,
        rules: None,
        left_out: None,
        hard_links: Extra::NotCaptured,
        wrote: None,
        rolled_back_to: None,
    };
    objects
        .put(&record.encode().unwrap(), Class::Catalog)
        .unwrap()
}

pub(crate) fn time(n: u64) -> Time {
    Time {
        seconds: i64::try_from(n).unwrap(),
        nanoseconds: 500_000_000,
    }
}

/// Finishes an edit and opens what came of it, which must be sound.
pub(crate) fn finished<'s>(edit: CatalogEdit<'s>, objects: &'s MemoryObjects) -> Catalog<'s> {
    let root = edit.finish(objects).unwrap();
    let catalog = Catalog::open(objects, &root).unwrap();
    assert_eq!(check(&catalog), Vec::<String>::new());
    catalog
}

/// The lineage `/p` with `count` checkpoints at the seconds 1, 2, ….
pub(crate) fn lineage_of(objects: &MemoryObjects, count: u64) -> Catalog<'_> {
    let mut edit = CatalogEdit::new(&Catalog::empty(objects));
    assert!(edit.ensure_lineage(P, P, b"box", None).unwrap());
    for n in 1..=count {
        assert_eq!(
            edit.add_checkpoint(P, record(objects, n, None), time(n))
                .unwrap(),
            n
        );
    }
    finished(edit, objects)
}

#[test]
fn checkpoints_get_numbers_that_are_never_used_again() {
    let objects = MemoryObjects::new();
    let catalog = lineage_of(&objects, 3);
    let mut edit = CatalogEdit::new(&catalog);
    let removed = edit.drop_checkpoint(P, 3).unwrap();
    assert_eq!(
        edit.drop_checkpoint(P, 3).unwrap_err().code(),
        "checkpoint_not_found"
    );
    assert_eq!(
        edit.add_checkpoint(P, record(&objects, 4, None), time(4))
            .unwrap(),
        4
    );
    assert_eq!(edit.return_checkpoint(&removed).unwrap().number, 5);
    assert_eq!(
        edit.return_checkpoint(&removed).unwrap_err().code(),
        "invalid"
    );
    let catalog = finished(edit, &objects);
    let view = catalog.expect_lineage(P).unwrap();
    let numbers: Vec<_> = view.newest_first().map(|c| c.unwrap().number).collect();
    assert_eq!(numbers, [5, 4, 2, 1]);
    assert_eq!(catalog.find(&removed.entry.id).unwrap().unwrap().number, 5);
    assert_eq!(catalog.count().unwrap(), 4);
}

#[test]
fn dropping_the_only_checkpoint_keeps_the_lineage_and_its_numbers() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 1));
    edit.drop_checkpoint(P, 1).unwrap();
    let catalog = finished(edit, &objects);
    assert!(
        catalog
            .expect_lineage(P)
            .unwrap()
            .latest()
            .unwrap()
            .is_none()
    );
    let mut edit = CatalogEdit::new(&catalog);
    assert_eq!(
        edit.add_checkpoint(P, record(&objects, 2, None), time(2))
            .unwrap(),
        2
    );
}

#[test]
fn a_dropped_checkpoint_comes_back_with_what_is_still_free() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 2));
    let id = record(&objects, 9, Some((Role::Before, b"turn")));
    let number = edit.add_checkpoint(P, id, time(9)).unwrap();
    assert_eq!(
        edit.set_key(P, Role::Before, b"turn", number).unwrap(),
        None
    );
    edit.set_tag(P, number, "mine").unwrap();
    edit.set_tag(P, number, "shared").unwrap();
    edit.set_pinned(P, number, true).unwrap();
    edit.set_note(P, number, b"a note").unwrap();
    let mut edit = CatalogEdit::new(&finished(edit, &objects));
    let removed = edit.drop_checkpoint(P, number).unwrap();
    assert_eq!(removed.keys, [(Role::Before, b"turn".to_vec())]);
    assert_eq!(removed.entry.tags, ["mine", "shared"]);
    let catalog = finished(edit, &objects);
    let view = catalog.expect_lineage(P).unwrap();
    assert!(view.keyed(Role::Before, b"turn").unwrap().is_none());
    assert!(view.tagged("mine").unwrap().is_none());
    assert!(catalog.find(&id).unwrap().is_none());

    let mut edit = CatalogEdit::new(&catalog);
    edit.set_tag(P, 1, "shared").unwrap();
    let returned = edit.return_checkpoint(&removed).unwrap();
    assert_eq!(returned.tags_taken, ["shared"]);
    let catalog = finished(edit, &objects);
    let view = catalog.expect_lineage(P).unwrap();
    let back = view.keyed(Role::Before, b"turn").unwrap().unwrap();
    assert_eq!((back.number, back.entry.pinned), (returned.number, true));
    assert_eq!(
        (back.entry.tags, back.entry.note),
        (vec!["mine".to_owned()], b"a note".to_vec())
    );
    assert_eq!(view.tagged("shared").unwrap().unwrap().number, 1);
    assert!(view.keyed(Role::After, b"turn").unwrap().is_none());
}

#[test]
fn keys_go_with_their_checkpoint_even_when_its_record_is_lost() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 1));
    let id = record(&objects, 9, Some((Role::After, b"k")));
    let number = edit.add_checkpoint(P, id, time(9)).unwrap();
    edit.set_key(P, Role::After, b"k", number).unwrap();
    edit.set_key(P, Role::None, b"other", 1).unwrap();
    let catalog = finished(edit, &objects);
    objects.remove(&id).unwrap();
    let mut edit = CatalogEdit::new(&catalog);
    assert_eq!(
        edit.drop_checkpoint(P, number).unwrap().keys,
        [(Role::After, b"k".to_vec())]
    );
    let catalog = finished(edit, &objects);
    let view = catalog.expect_lineage(P).unwrap();
    assert!(view.keyed(Role::After, b"k").unwrap().is_none());
    assert!(view.keyed(Role::None, b"other").unwrap().is_some());
}

#[test]
fn a_tag_has_one_checkpoint() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 3));
    assert_eq!(edit.set_tag(P, 1, "t").unwrap(), TagChange::Added);
    assert_eq!(edit.set_tag(P, 1, "t").unwrap(), TagChange::Unchanged);
    assert_eq!(
        edit.set_tag(P, 2, "t").unwrap(),
        TagChange::Moved { from: 1 }
    );
    for bad in ["latest", "deadbeef", "a b", ""] {
        assert_eq!(edit.set_tag(P, 1, bad).unwrap_err().code(), "invalid");
    }
    assert_eq!(
        edit.set_tag(P, 9, "t").unwrap_err().code(),
        "checkpoint_not_found"
    );
    for n in 0..32 {
        edit.set_tag(P, 3, &format!("t{n}")).unwrap();
    }
    assert_eq!(edit.set_tag(P, 3, "t").unwrap_err().code(), "invalid");
    let catalog = finished(edit, &objects);
    let view = catalog.expect_lineage(P).unwrap();
    assert_eq!(view.tagged("t").unwrap().unwrap().number, 2);
    assert!(view.checkpoint(1).unwrap().unwrap().tags.is_empty());
    assert_eq!(view.tags().count(), 33);
    let mut edit = CatalogEdit::new(&catalog);
    assert_eq!(edit.remove_tag(P, "t").unwrap(), 2);
    assert_eq!(edit.remove_tag(P, "t").unwrap_err().code(), "tag_not_found");
    assert!(
        finished(edit, &objects)
            .expect_lineage(P)
            .unwrap()
            .tagged("t")
            .unwrap()
            .is_none()
    );
}

#[test]
fn pins_and_notes_answer_with_what_was() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 1));
    assert!(!edit.set_pinned(P, 1, true).unwrap());
    assert!(edit.set_pinned(P, 1, true).unwrap());
    assert_eq!(edit.set_note(P, 1, b"one").unwrap(), b"");
    assert_eq!(edit.set_note(P, 1, b"two").unwrap(), b"one");
    assert_eq!(
        edit.set_note(P, 1, &[0; 4097]).unwrap_err().code(),
        "invalid"
    );
    let entry = finished(edit, &objects)
        .expect_lineage(P)
        .unwrap()
        .checkpoint(1)
        .unwrap()
        .unwrap();
    assert_eq!((entry.pinned, entry.note), (true, b"two".to_vec()));
}

#[test]
fn archived_and_moving_lineages_accept_no_checkpoints() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 2));
    let removed = edit.drop_checkpoint(P, 1).unwrap();
    assert_eq!(
        edit.archive(P, b"why", time(5)).unwrap(),
        LineageState::Active
    );
    let archived = LineageState::Archived {
        reason: b"why".to_vec(),
        time: time(5),
    };
    assert_eq!(edit.archive(P, b"again", time(6)).unwrap(), archived);
    let id = record(&objects, 7, None);
    assert_eq!(
        edit.add_checkpoint(P, id, time(7)).unwrap_err().code(),
        "lineage_archived"
    );
    assert_eq!(edit.return_checkpoint(&removed).unwrap().number, 3);
    assert_eq!(edit.unarchive(P).unwrap(), archived);
    edit.set_state(
        P,
        LineageState::Moving {
            to: StoreId::from_bytes([1; 16]),
        },
    )
    .unwrap();
    let error = edit.add_checkpoint(P, id, time(7)).unwrap_err();
    assert_eq!(error.code(), "lineage_moving");
    assert!(
        error
            .hint()
            .unwrap()
            .contains("genstore lineage unarchive /p")
    );
    assert_eq!(
        edit.archive(P, &[0; 5000], time(5)).unwrap_err().code(),
        "invalid"
    );
    edit.unarchive(P).unwrap();
    assert_eq!(edit.add_checkpoint(P, id, time(7)).unwrap(), 4);
    assert!(
        !finished(edit, &objects)
            .expect_lineage(P)
            .unwrap()
            .lineage
            .state
            .is_archived()
    );
}

#[test]
fn everything_follows_a_rename() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 100));
    edit.ensure_lineage(b"other", b"/q", b"", None).unwrap();
    edit.set_tag(P, 2, "t").unwrap();
    assert_eq!(edit.rename(P, b"other").unwrap_err().code(), "invalid");
    assert_eq!(edit.rename(P, b"").unwrap_err().code(), "invalid");
    assert_eq!(
        edit.rename(b"nobody", b"n").unwrap_err().code(),
        "lineage_not_found"
    );
    edit.rename(P, P).unwrap();
    edit.rename(P, b"new").unwrap();
    assert!(edit.lineage(P).unwrap().is_none());
    // The old name is free again, for the same source too.
    assert!(edit.ensure_lineage(P, P, b"", None).unwrap());
    let catalog = finished(edit, &objects);
    let names: Vec<_> = catalog
        .lineages()
        .map(|view| view.unwrap().lineage.name)
        .collect();
    assert_eq!(names, [P, b"new", b"other"]);
    let id = catalog
        .expect_lineage(b"new")
        .unwrap()
        .checkpoint(50)
        .unwrap()
        .unwrap()
        .id;
    assert_eq!(catalog.find(&id).unwrap().unwrap().lineage, b"new");
    assert_eq!(catalog.lineages_of(P).unwrap().len(), 2);
}

#[test]
fn a_lineage_follows_its_source() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 1));
    let identity = Some(SourceIdentity {
        device: 1,
        inode: 2,
    });
    assert!(
        !edit
            .ensure_lineage(P, b"/moved", b"host", identity)
            .unwrap()
    );
    for (name, source) in [
        (&b""[..], &b"/a"[..]),
        (b"x", b"a"),
        (b"x", b"/a/"),
        (b"a\nb", b"/a"),
    ] {
        assert_eq!(
            edit.ensure_lineage(name, source, b"", None)
                .unwrap_err()
                .code(),
            "invalid"
        );
    }
    assert_eq!(
        edit.ensure_lineage(b"x", b"/x", &[b'h'; 300], None)
            .unwrap_err()
            .code(),
        "invalid"
    );
    let catalog = finished(edit, &objects);
    assert!(catalog.lineages_of(P).unwrap().is_empty());
    let moved = catalog.lineages_of(b"/moved").unwrap();
    assert_eq!((moved[0].name(), moved[0].lineage.identity), (P, identity));
    assert_eq!(moved[0].count().unwrap(), 1);
}

#[test]
fn an_edit_of_nothing_gives_the_same_root() {
    let objects = MemoryObjects::new();
    let catalog = lineage_of(&objects, 200);
    let base = CatalogEdit::new(&catalog).finish(&objects).unwrap();
    let mut edit = CatalogEdit::new(&catalog);
    edit.ensure_lineage(P, P, b"box", None).unwrap();
    edit.set_pinned(P, 7, false).unwrap();
    let stored = objects.len();
    assert_eq!(edit.finish(&objects).unwrap(), base);
    assert_eq!(objects.len(), stored);
}

#[test]
fn a_commit_writes_a_path_not_a_list() {
    let objects = MemoryObjects::new();
    let mut catalog = lineage_of(&objects, 5000);
    for n in 5001..5100 {
        let id = record(&objects, n, None);
        let before = objects.len();
        let mut edit = CatalogEdit::new(&catalog);
        edit.add_checkpoint(P, id, time(n)).unwrap();
        let root = edit.finish(&objects).unwrap();
        // Root, lineages leaf, lineage; three levels of checkpoints; three of ids, with a rare split.
        assert!(
            objects.len() - before <= 10,
            "{} objects",
            objects.len() - before
        );
        catalog = Catalog::open(&objects, &root).unwrap();
    }
    assert_eq!(check(&catalog), Vec::<String>::new());
}

/// One random request. Refusals are part of it.
fn act(
    edit: &mut CatalogEdit<'_>,
    objects: &MemoryObjects,
    random: &mut Random,
    dropped: &mut Vec<Removed>,
) -> Result<()> {
    let names: [&[u8]; 4] = [b"/a", b"/a/b", b"named", b"moved"];
    let sources: [&[u8]; 3] = [b"/a", b"/a/b", b"/c"];
    let lineage = names[random.index(4)];
    let number = 1 + random.below(40);
    let tag = format!("tag-{}", random.below(6));
    let role = [Role::None, Role::Before, Role::After][random.index(3)];
    let key = [b'k', u8::try_from(random.below(9)).unwrap()];
    match random.below(14) {
        0 => edit
            .ensure_lineage(lineage, sources[random.index(3)], b"h", None)
            .map(drop),
        1..=4 => {
            let n = random.next() >> 2;
            let with_key = (random.below(2) == 0).then_some((role, &key[..]));
            let id = record(objects, n, with_key);
            let number = edit.add_checkpoint(lineage, id, time(n))?;
            if with_key.is_some() {
                edit.set_key(lineage, role, &key, number)?;
            }
            Ok(())
        }
        5..=6 => edit
            .drop_checkpoint(lineage, number)
            .map(|removed| dropped.push(removed)),
        7 => match dropped.pop() {
            Some(removed) => edit.return_checkpoint(&removed).map(drop),
            None => Ok(()),
        },
        8..=9 => edit.set_tag(lineage, number, &tag).map(drop),
        10 => edit.remove_tag(lineage, &tag).map(drop),
        11 => edit.set_note(lineage, number, tag.as_bytes()).map(drop),
        12 if random.below(2) == 0 => edit.archive(lineage, b"r", time(1)).map(drop),
        12 => edit.unarchive(lineage).map(drop),
        _ => edit.rename(lineage, names[random.index(4)]),
    }
}

#[test]
fn no_sequence_of_edits_makes_the_maps_disagree() {
    for seed in 0..12 {
        let objects = MemoryObjects::new();
        let mut random = Random(seed);
        let mut catalog = Catalog::empty(&objects);
        let mut dropped = Vec::new();
        let mut done = 0;
        for _ in 0..40 {
            let mut edit = CatalogEdit::new(&catalog);
            for _ in 0..=random.below(40) {
                match act(&mut edit, &objects, &mut random, &mut dropped) {
                    Ok(()) => done += 1,
                    Err(Error::NotFound { .. } | Error::Invalid { .. } | Error::Refused { .. }) => {
                    }
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            catalog = finished(edit, &objects);
        }
        assert!(done > 100, "seed {seed}: only {done} requests were granted");
    }
}
