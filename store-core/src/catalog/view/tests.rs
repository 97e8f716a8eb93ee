use super::*;
use crate::catalog::edit::CatalogEdit;
use crate::catalog::edit::tests::{finished, lineage_of, record, time};
use crate::objects::memory::MemoryObjects;

fn with_lineages<'s>(objects: &'s MemoryObjects, lineages: &[(&str, &str)]) -> Catalog<'s> {
    let mut edit = CatalogEdit::new(&Catalog::empty(objects));
    for (name, source) in lineages {
        edit.ensure_lineage(name.as_bytes(), source.as_bytes(), b"", None)
            .unwrap();
    }
    finished(edit, objects)
}

fn discovered(catalog: &Catalog<'_>, path: &str) -> Option<String> {
    let view = catalog.discover(path.as_bytes()).unwrap()?;
    Some(String::from_utf8(view.lineage.name).unwrap())
}

#[test]
fn the_nearest_source_owns_a_path() {
    let objects = MemoryObjects::new();
    let catalog = with_lineages(
        &objects,
        &[
            ("/a/b", "/a/b"),
            ("/a", "/a"),
            ("deep", "/a/b/c/d"),
            ("/a/b-c", "/a/b-c"),
            ("/z", "/z"),
        ],
    );
    for (path, owner) in [
        ("/a/b", Some("/a/b")),
        ("/a/b/c", Some("/a/b")),
        ("/a/b/c/d/e/f", Some("deep")),
        ("/a/bc", Some("/a")),
        ("/a/b-c/x", Some("/a/b-c")),
        ("/a/b-", Some("/a")),
        ("/zz", None),
        ("/z/z", Some("/z")),
        ("/", None),
        ("", None),
    ] {
        assert_eq!(discovered(&catalog, path).as_deref(), owner, "{path}");
    }
    let root = with_lineages(&objects, &[("everything", "/"), ("/a", "/a")]);
    assert_eq!(discovered(&root, "/").as_deref(), Some("everything"));
    assert_eq!(discovered(&root, "/b/c").as_deref(), Some("everything"));
    assert_eq!(discovered(&root, "/a").as_deref(), Some("/a"));
}

#[test]
fn of_several_lineages_of_a_source_the_default_one_wins() {
    let objects = MemoryObjects::new();
    let catalog = with_lineages(
        &objects,
        &[("x", "/a"), ("y", "/a"), ("/b", "/b"), ("x2", "/b")],
    );
    match catalog.discover(b"/a/f").err() {
        Some(Error::Ambiguous {
            wanted: Wanted::Lineage,
            candidates,
            ..
        }) => {
            assert_eq!(candidates, ["x", "y"]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(discovered(&catalog, "/b/f").as_deref(), Some("/b"));
    let mut edit = CatalogEdit::new(&catalog);
    edit.archive(b"x", b"", time(1)).unwrap();
    edit.archive(b"/b", b"", time(1)).unwrap();
    let catalog = finished(edit, &objects);
    assert_eq!(discovered(&catalog, "/a").as_deref(), Some("y"));
    assert_eq!(discovered(&catalog, "/b").as_deref(), Some("x2"));
    let mut edit = CatalogEdit::new(&catalog);
    edit.archive(b"x2", b"", time(1)).unwrap();
    assert_eq!(
        discovered(&finished(edit, &objects), "/b").as_deref(),
        Some("/b")
    );
}

#[test]
fn nested_sources_lie_strictly_below() {
    let objects = MemoryObjects::new();
    let catalog = with_lineages(
        &objects,
        &[
            ("/a", "/a"),
            ("/a/b", "/a/b"),
            ("n", "/a/b"),
            ("/a/c/d", "/a/c/d"),
            ("/a-b", "/a-b"),
            ("r", "/"),
        ],
    );
    let nested = |path: &str| -> Vec<String> {
        let nested = catalog.nested(path.as_bytes()).unwrap();
        nested
            .into_iter()
            .map(|(_, name)| String::from_utf8(name).unwrap())
            .collect()
    };
    assert_eq!(nested("/a"), ["/a/b", "n", "/a/c/d"]);
    assert_eq!(nested("/a/b"), Vec::<String>::new());
    assert_eq!(nested("/"), ["/a", "/a-b", "/a/b", "n", "/a/c/d"]);
    assert_eq!(nested("/nowhere"), Vec::<String>::new());
}

#[test]
fn checkpoints_are_found_by_place_number_id_and_prefix() {
    let objects = MemoryObjects::new();
    let catalog = lineage_of(&objects, 300);
    let view = catalog.expect_lineage(b"/p").unwrap();
    assert_eq!(view.count().unwrap(), 300);
    assert_eq!(view.latest().unwrap().unwrap().number, 300);
    assert_eq!(view.first().unwrap().unwrap().number, 1);
    assert_eq!(view.back(299).unwrap().unwrap().number, 1);
    assert_eq!(view.back(300).unwrap(), None);
    let from: Vec<_> = view
        .starting_at(298, false)
        .map(|c| c.unwrap().number)
        .collect();
    assert_eq!(from, [298, 299, 300]);
    let back: Vec<_> = view
        .starting_at(2, true)
        .map(|c| c.unwrap().number)
        .collect();
    assert_eq!(back, [2, 1]);
    let entry = view.checkpoint(77).unwrap().unwrap();
    assert_eq!(
        (entry.id, entry.time),
        (record(&objects, 77, None), time(77))
    );
    assert_eq!(catalog.record(&entry.id).unwrap().time, time(77));
    let found = catalog.find(&entry.id).unwrap().unwrap();
    assert_eq!(
        found.reference(),
        CheckpointRef {
            lineage: b"/p".to_vec(),
            number: 77,
            id: entry.id
        }
    );
    assert_eq!(catalog.find(&ObjectId::of(b"no")).unwrap(), None);

    let text = entry.id.to_string();
    for digits in [6, 7, 63, 64] {
        assert_eq!(
            catalog.ids(&text[..digits], 9).unwrap(),
            [(entry.id, b"/p".to_vec())],
            "{digits}"
        );
    }
    let mut all = Vec::new();
    for digit in "0123456789abcdef".chars() {
        let ids = catalog.ids(&digit.to_string(), 1000).unwrap();
        assert!(ids.iter().all(|(id, _)| id.to_string().starts_with(digit)));
        all.extend(ids);
    }
    assert_eq!((all.len(), all.is_sorted()), (300, true));
    assert_eq!(catalog.ids("0", 2).unwrap().len(), 2);
    let long = format!("{text}0");
    for bad in ["", "ABCD", "xyz", " 12", "+123", long.as_str(), "日本"] {
        assert_eq!(catalog.ids(bad, 9).unwrap_err().code(), "invalid", "{bad}");
    }
}

#[test]
fn contradictions_are_damage_not_absence() {
    let objects = MemoryObjects::new();
    let mut catalog = lineage_of(&objects, 2);
    let ghost = ObjectId::of(b"ghost");
    catalog.ids.insert(ghost.as_bytes(), b"/p").unwrap();
    assert_eq!(catalog.find(&ghost).unwrap_err().code(), "damaged");
    catalog.ids.insert(ghost.as_bytes(), b"nobody").unwrap();
    assert_eq!(catalog.find(&ghost).unwrap_err().code(), "damaged");
    catalog.sources.insert(b"/q\0nobody", b"").unwrap();
    assert_eq!(catalog.discover(b"/q").err().unwrap().code(), "damaged");
    let mut view = catalog.expect_lineage(b"/p").unwrap();
    view.tags.insert(b"t", &number_bytes(9)).unwrap();
    assert_eq!(view.tagged("t").unwrap_err().code(), "damaged");
    view.tags.insert(b"t", b"short").unwrap();
    assert_eq!(view.tagged("t").unwrap_err().code(), "damaged");
    view.checkpoints.insert(b"short", b"").unwrap();
    assert!(view.newest_first().any(|checkpoint| checkpoint.is_err()));
}

#[test]
fn all_objects_of_a_catalog_are_named() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 200));
    edit.ensure_lineage(b"x", b"/x", b"", None).unwrap();
    edit.set_tag(b"/p", 3, "t").unwrap();
    let root = edit.finish(&objects).unwrap();
    // In a store of their own, what is named is enough.
    let copy = MemoryObjects::new();
    let catalog = Catalog::open(&objects, &root).unwrap();
    catalog
        .walk_objects(&mut |id| {
            copy.overwrite(*id, objects.get(id, usize::MAX)?);
            Ok(true)
        })
        .unwrap();
    let copied = Catalog::open(&copy, &root).unwrap();
    assert_eq!(crate::catalog::check(&copied), Vec::<String>::new());
    assert_eq!(copied.count().unwrap(), 200);
    // What is known already is not entered.
    let mut edit = CatalogEdit::new(&catalog);
    edit.set_note(b"/p", 200, b"n").unwrap();
    let next = Catalog::open(&objects, &edit.finish(&objects).unwrap()).unwrap();
    let mut new = 0;
    next.walk_objects(&mut |id| {
        let unknown = !copy.contains(id)?;
        new += u32::from(unknown);
        Ok(unknown)
    })
    .unwrap();
    // Root, lineages leaf, lineage, and a leaf and the top of its checkpoints.
    assert_eq!(new, 5);
}

#[test]
fn what_is_not_a_catalog_is_damage() {
    use crate::objects::{Class, ObjectSink};
    let objects = MemoryObjects::new();
    let id = objects.put(b"something else", Class::Tree).unwrap();
    match Catalog::open(&objects, &id).err() {
        Some(Error::Damaged { object, .. }) => assert_eq!(object, Some(id)),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        Catalog::open(&objects, &ObjectId::of(b""))
            .err()
            .unwrap()
            .code(),
        "object_missing"
    );
}
