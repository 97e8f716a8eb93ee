use super::*;
use crate::catalog::edit::CatalogEdit;
use crate::catalog::edit::tests::{finished, lineage_of, record, time};
use crate::format::catalog::{CatalogRoot, CheckpointEntry, number_bytes};
use crate::format::checkpoint::Role;
use crate::objects::memory::MemoryObjects;
use crate::objects::{Class, ObjectSink};

/// A sound catalog of one lineage with a tag and a key, changed by `change` where it likes.
fn spoilt(change: impl Fn(&mut Spoil<'_>)) -> Vec<String> {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 3));
    edit.set_tag(b"/p", 2, "t").unwrap();
    edit.set_key(b"/p", Role::Before, b"k", 1).unwrap();
    let catalog = finished(edit, &objects);
    let view = catalog.expect_lineage(b"/p").unwrap();
    let (lineages, sources, ids) = (
        catalog.lineages.clone(),
        catalog.sources.clone(),
        catalog.ids.clone(),
    );
    let mut spoil = Spoil {
        objects: &objects,
        lineages,
        sources,
        ids,
        view,
    };
    change(&mut spoil);
    let Spoil {
        mut lineages,
        sources,
        ids,
        view,
        ..
    } = spoil;
    let mut lineage = view.lineage;
    lineage.checkpoints = view.checkpoints.finish(&objects).unwrap();
    lineage.keys = view.keys.finish(&objects).unwrap();
    lineage.tags = view.tags.finish(&objects).unwrap();
    let id = objects
        .put(&lineage.encode().unwrap(), Class::Catalog)
        .unwrap();
    lineages.insert(b"/p", id.as_bytes()).unwrap();
    let root = CatalogRoot {
        lineages: lineages.finish(&objects).unwrap(),
        sources: sources.finish(&objects).unwrap(),
        ids: ids.finish(&objects).unwrap(),
    };
    let root = objects.put(&root.encode(), Class::Catalog).unwrap();
    check(&Catalog::open(&objects, &root).unwrap())
}

struct Spoil<'s> {
    objects: &'s MemoryObjects,
    lineages: Map<'s>,
    sources: Map<'s>,
    ids: Map<'s>,
    view: LineageView<'s>,
}

impl Spoil<'_> {
    fn change_entry(&mut self, number: u64, change: impl Fn(&mut CheckpointEntry)) {
        let mut entry = self.view.checkpoint(number).unwrap().unwrap();
        change(&mut entry);
        let value = entry.encode().unwrap();
        self.view
            .checkpoints
            .insert(&number_bytes(number), &value)
            .unwrap();
    }
}

type Change<'c> = &'c dyn Fn(&mut Spoil<'_>);

#[test]
fn every_contradiction_is_found() {
    assert_eq!(spoilt(|_| ()), Vec::<String>::new());
    let id = |spoil: &Spoil<'_>, number| spoil.view.checkpoint(number).unwrap().unwrap().id;
    let cases: [(&str, Change<'_>); 19] = [
        ("not below its next number", &|s| {
            s.view.lineage.next_number = 3;
        }),
        ("not listed under its id", &|s| {
            drop(s.ids.remove(id(s, 1).as_bytes()));
        }),
        ("not listed under its id", &|s| {
            drop(s.ids.insert(id(s, 1).as_bytes(), b"other"));
        }),
        ("which does not have it", &|s| {
            drop(s.ids.insert(&[7; 32], b"/p"));
        }),
        ("ids: the key", &|s| drop(s.ids.insert(&[7; 31], b"/p"))),
        ("in the catalog twice", &|s| {
            let first = id(s, 1);
            s.change_entry(2, |entry| entry.id = first);
        }),
        ("its source is not listed", &|s| {
            drop(s.sources.remove(b"/p\0/p"));
        }),
        ("which does not have it", &|s| {
            drop(s.sources.insert(b"/q\0/p", b""));
        }),
        ("which does not have it", &|s| {
            drop(s.sources.insert(b"/q\0nobody", b""));
        }),
        ("sources: the key", &|s| drop(s.sources.insert(b"/q", b""))),
        ("has a value", &|s| drop(s.sources.insert(b"/p\0/p", b"x"))),
        ("does not have it", &|s| {
            drop(s.view.tags.insert(b"t", &number_bytes(1)));
        }),
        ("does not have it", &|s| {
            drop(s.view.tags.insert(b"u", &number_bytes(2)));
        }),
        ("is not listed", &|s| drop(s.view.tags.remove(b"t"))),
        ("is not listed", &|s| {
            s.change_entry(1, |entry| entry.tags.push("v".to_owned()));
        }),
        ("a key names", &|s| {
            drop(s.view.keys.insert(b"\x01k", &number_bytes(9)));
        }),
        ("is malformed", &|s| {
            drop(s.view.keys.insert(b"\x07k", &number_bytes(1)));
        }),
        ("is malformed", &|s| {
            drop(s.view.checkpoints.insert(&number_bytes(2), b"?"));
        }),
        ("lineage other: ", &|s| {
            let mut other = s.view.lineage.clone();
            other.name = b"another".to_vec();
            let id = s
                .objects
                .put(&other.encode().unwrap(), Class::Catalog)
                .unwrap();
            s.lineages.insert(b"other", id.as_bytes()).unwrap();
        }),
    ];
    for (at, (expected, change)) in cases.into_iter().enumerate() {
        let problems = spoilt(change);
        assert!(
            problems.iter().any(|p| p.contains(expected)),
            "{at} {expected}: {problems:?}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_reported_and_the_rest_is_looked_at() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 3));
    edit.ensure_lineage(b"z", b"/z", b"", None).unwrap();
    edit.add_checkpoint(b"z", record(&objects, 77, None), time(77))
        .unwrap();
    let catalog = finished(edit, &objects);
    let view = catalog.expect_lineage(b"/p").unwrap();
    objects.remove(&view.lineage.checkpoints.unwrap()).unwrap();
    let problems = check(&catalog);
    assert!(
        problems[0].starts_with("lineage /p: checkpoints: object"),
        "{problems:?}"
    );
    assert!(
        !problems.iter().any(|problem| problem.contains("lineage z")),
        "{problems:?}"
    );
}
