use super::*;
use crate::catalog::edit::CatalogEdit;
use crate::catalog::edit::tests::{finished, lineage_of, record, time};
use crate::objects::memory::MemoryObjects;

/// 2026-07-01T12:00:00Z.
const NOW: Time = Time {
    seconds: 1_782_907_200,
    nanoseconds: 250_000_000,
};

fn zone() -> TimeZone {
    TimeZone::fixed(Offset::from_seconds(2 * 3600).unwrap())
}

fn parse(text: &str) -> Result<Revision> {
    Revision::parse(text, NOW, &zone())
}

fn moment_of(text: &str) -> String {
    match parse(text).unwrap() {
        Revision::At(time) => time.to_rfc3339(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_told_apart() {
    let full = "0123456789abcdef".repeat(4);
    for (text, expected) in [
        ("latest", Revision::Latest(0)),
        ("latest~0", Revision::Latest(0)),
        ("latest~12", Revision::Latest(12)),
        ("first", Revision::First),
        ("beef", Revision::Id("beef".into())),
        ("1234567", Revision::Id("1234567".into())),
        (&full, Revision::Id(full.clone())),
        ("abc", Revision::Tag("abc".into())),
        ("BEEF", Revision::Tag("BEEF".into())),
        ("v1.0", Revision::Tag("v1.0".into())),
        ("latest-good", Revision::Tag("latest-good".into())),
        ("日本", Revision::Tag("日本".into())),
    ] {
        assert_eq!(parse(text).unwrap(), expected, "{text}");
    }
    for bad in [
        "",
        "latest~",
        "latest~x",
        "latest~+1",
        "latest~99999999999999999999",
        "first~1",
        "v~1",
        "-x",
        "a b",
    ] {
        assert_eq!(parse(bad).unwrap_err().code(), "invalid", "{bad}");
    }
}

#[test]
fn times_last_as_long_as_their_last_part() {
    for (text, expected) in [
        ("@2026-07-01", "2026-07-01T21:59:59.999999999Z"),
        ("@2026-07-01 14:30", "2026-07-01T12:30:59.999999999Z"),
        ("@2026-07-01 14:30:05", "2026-07-01T12:30:05.999999999Z"),
        ("@2026-07-01T14:30:05", "2026-07-01T12:30:05.999999999Z"),
        ("@2026-07-01T14:30:05Z", "2026-07-01T14:30:05.999999999Z"),
        ("@2026-07-01t14:30:05.25z", "2026-07-01T14:30:05.259999999Z"),
        (
            "@2026-07-01T14:30:05.123456789+00:00",
            "2026-07-01T14:30:05.123456789Z",
        ),
        ("@2026-07-01T14:30-05:30", "2026-07-01T20:00:59.999999999Z"),
        ("@1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.599999999Z"),
        ("@2h", "2026-07-01T10:00:00.250000000Z"),
        ("@1d12h", "2026-06-30T00:00:00.250000000Z"),
        ("@90s", "2026-07-01T11:58:30.250000000Z"),
        ("@1w", "2026-06-24T12:00:00.250000000Z"),
        ("@15m", "2026-07-01T11:45:00.250000000Z"),
    ] {
        assert_eq!(moment_of(text), expected, "{text}");
    }
    for bad in [
        "@",
        "@now",
        "@5",
        "@h",
        "@-2h",
        "@2y",
        "@2h ",
        "@99999999999999999999h",
        "@9999999999999999999w",
        "@2026",
        "@2026-7-1",
        "@2026-13-01",
        "@2026-02-30",
        "@2026-07-01 ",
        "@2026-07-01 14",
        "@2026-07-01 24:00",
        "@2026-07-01 14:30:60",
        "@2026-07-01 14:30:05.",
        "@2026-07-01 14:30:05.1234567891",
        "@2026-07-01 14:30.5",
        "@2026-07-01 14:30:05+2",
        "@2026-07-01 14:30:05+02:60",
        "@2026-07-01 14:30:05Zulu",
        "@2026-07-01Z",
        "@2026-07-0日",
        "@日本日本",
        "@9999-12-31",
    ] {
        assert_eq!(parse(bad).unwrap_err().code(), "invalid", "{bad}");
    }
}

#[test]
fn local_times_follow_the_zone_through_its_changes() {
    let Ok(zone) = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3") else {
        panic!("a POSIX zone")
    };
    let end = |text: &str| match Revision::parse(text, NOW, &zone).unwrap() {
        Revision::At(time) => time.to_rfc3339(),
        other => panic!("{other:?}"),
    };
    assert_eq!(end("@2026-01-15"), "2026-01-15T22:59:59.999999999Z");
    assert_eq!(end("@2026-07-15"), "2026-07-15T21:59:59.999999999Z");
    assert_eq!(end("@2026-03-29"), "2026-03-29T21:59:59.999999999Z");
}

fn resolve(catalog: &Catalog<'_>, lineage: Option<&str>, text: &str) -> Result<u64> {
    let view = lineage.map(|name| catalog.expect_lineage(name.as_bytes()).unwrap());
    Ok(parse(text)?.resolve(catalog, view.as_ref())?.number)
}

#[test]
fn places_in_a_lineage_are_found() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 10));
    edit.drop_checkpoint(b"/p", 9).unwrap();
    edit.drop_checkpoint(b"/p", 1).unwrap();
    edit.ensure_lineage(b"empty", b"/e", b"", None).unwrap();
    let catalog = finished(edit, &objects);
    let at = |text| resolve(&catalog, Some("/p"), text);
    assert_eq!(at("latest").unwrap(), 10);
    assert_eq!(at("latest~1").unwrap(), 8);
    assert_eq!(at("latest~7").unwrap(), 2);
    assert_eq!(at("first").unwrap(), 2);
    let error = at("latest~8").unwrap_err();
    assert_eq!(error.code(), "checkpoint_not_found");
    assert!(error.to_string().contains("has 8 checkpoints"), "{error}");
    for text in ["latest", "first", "@1s"] {
        let error = resolve(&catalog, Some("empty"), text).unwrap_err();
        assert!(error.to_string().contains("no checkpoints"), "{error}");
        let error = resolve(&catalog, None, text).unwrap_err();
        assert_eq!(error.code(), "invalid");
        assert!(error.to_string().contains("--lineage"), "{error}");
    }
}

#[test]
fn a_moment_finds_the_state_of_then_whatever_the_numbers_say() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 10));
    let removed = edit.drop_checkpoint(b"/p", 4).unwrap();
    // Number 11, but of second 4.5.
    edit.return_checkpoint(&removed).unwrap();
    let catalog = finished(edit, &objects);
    let at = |text| resolve(&catalog, Some("/p"), text);
    assert_eq!(at("@1970-01-01T00:00:07Z").unwrap(), 7);
    assert_eq!(at("@1970-01-01T00:00:07.3Z").unwrap(), 6);
    assert_eq!(at("@1970-01-01T00:00:04Z").unwrap(), 11);
    assert_eq!(at("@1970-01-01T00:00:05.2Z").unwrap(), 11);
    assert_eq!(at("@2h").unwrap(), 10);
    let error = at("@1970-01-01T00:00:00Z").unwrap_err();
    assert_eq!(error.code(), "checkpoint_not_found");
    assert!(
        error.to_string().contains("1970-01-01T00:00:01.5"),
        "{error}"
    );
}

#[test]
fn ids_are_looked_for_in_the_whole_store() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 2000));
    edit.ensure_lineage(b"q", b"/q", b"", None).unwrap();
    let id = record(&objects, 1 << 40, None);
    edit.add_checkpoint(b"q", id, time(1)).unwrap();
    let catalog = finished(edit, &objects);
    let view = catalog.expect_lineage(b"/p").unwrap();
    let found = parse(&id.to_string()[..11])
        .unwrap()
        .resolve(&catalog, Some(&view))
        .unwrap();
    assert_eq!(
        (found.lineage.as_slice(), found.number, found.entry.id),
        (&b"q"[..], 1, id)
    );
    assert_eq!(
        resolve(&catalog, None, &"0".repeat(64)).unwrap_err().code(),
        "checkpoint_not_found"
    );
    // Among so many ids some share four digits.
    let ids = catalog.ids("0", 1).unwrap();
    assert_eq!(ids.len(), 1);
    let mut seen = std::collections::BTreeMap::new();
    let shared = view
        .oldest_first()
        .find_map(|checkpoint| {
            let prefix = checkpoint.unwrap().entry.id.to_string()[..4].to_owned();
            let count = seen.entry(prefix.clone()).or_insert(0);
            *count += 1;
            (*count == 2).then_some(prefix)
        })
        .unwrap();
    match resolve(&catalog, None, &shared) {
        Err(Error::Ambiguous {
            wanted: Wanted::Checkpoint,
            candidates,
            ..
        }) => {
            assert!(
                candidates.len() >= 2 && candidates[0].ends_with(" in /p"),
                "{candidates:?}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn tags_are_looked_for_in_the_lineage_or_in_all_of_them() {
    let objects = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&lineage_of(&objects, 3));
    edit.ensure_lineage(b"q", b"/q", b"", None).unwrap();
    edit.add_checkpoint(b"q", record(&objects, 99, None), time(99))
        .unwrap();
    edit.set_tag(b"/p", 1, "both").unwrap();
    edit.set_tag(b"q", 1, "both").unwrap();
    edit.set_tag(b"/p", 2, "one").unwrap();
    let catalog = finished(edit, &objects);
    assert_eq!(resolve(&catalog, Some("/p"), "both").unwrap(), 1);
    assert_eq!(resolve(&catalog, None, "one").unwrap(), 2);
    let error = resolve(&catalog, None, "both").unwrap_err();
    assert_eq!(error.code(), "ambiguous");
    assert!(error.to_string().contains("/p, q"), "{error}");
    assert!(error.hint().unwrap().contains("--lineage"));
    let error = resolve(&catalog, Some("q"), "one").unwrap_err();
    assert_eq!(error.code(), "checkpoint_not_found");
    assert!(error.to_string().contains("has the tags both"), "{error}");
    let error = resolve(&catalog, None, "abc").unwrap_err();
    assert!(error.to_string().contains("4 digits or more"), "{error}");
    let error = resolve(&catalog, Some("q"), "BEEF").unwrap_err();
    assert!(error.to_string().contains("lower case"), "{error}");

    let mut edit = CatalogEdit::new(&catalog);
    edit.archive(b"q", b"", time(1)).unwrap();
    let catalog = finished(edit, &objects);
    assert_eq!(resolve(&catalog, None, "both").unwrap(), 1);
    let mut edit = CatalogEdit::new(&catalog);
    edit.remove_tag(b"/p", "both").unwrap();
    let found = parse("both")
        .unwrap()
        .resolve(&finished(edit, &objects), None)
        .unwrap();
    assert_eq!(found.lineage, b"q");
}
