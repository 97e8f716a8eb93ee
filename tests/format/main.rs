//! The worked examples of `docs/format.md`, decoded by this project's code and by the second reader.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed step fails the test"
)]

use std::collections::BTreeMap;
use std::fs;

use genstore_tests::reader;
use serde_json::{Value, json};
use store_core::clock::Time;
use store_core::format::catalog::{CatalogRoot, CheckpointEntry, Lineage, LineageState, Node};
use store_core::format::checkpoint::{self, CheckpointRecord};
use store_core::format::content::ChunkList;
use store_core::format::manifest::Manifest;
use store_core::format::pack;
use store_core::format::selector;
use store_core::format::stat_cache::StatCache;
use store_core::format::tree::Tree;
use store_core::id::{GenerationId, ObjectId};

/// The examples of the page: name → bytes.
fn examples() -> BTreeMap<String, Vec<u8>> {
    let page = fs::read_to_string(reader::format_page()).unwrap();
    let mut found = BTreeMap::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some((form, name)) = line
            .strip_prefix("```")
            .and_then(|fence| fence.split_once(' '))
        else {
            continue;
        };
        let body: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        let bytes = match form {
            "hex" => hex(&body),
            "json" => body.join("\n").into_bytes(),
            _ => continue,
        };
        assert!(
            found.insert(name.to_owned(), bytes).is_none(),
            "{name} is there twice"
        );
    }
    found
}

fn hex(lines: &[&str]) -> Vec<u8> {
    let digits: String = lines
        .iter()
        .filter_map(|line| line.split('#').next())
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .collect();
    store_core::id::from_hex(&digits).expect("an even number of lower-case hex digits")
}

fn example(name: &str) -> Vec<u8> {
    examples()
        .remove(name)
        .unwrap_or_else(|| panic!("the page has no example {name}"))
}

fn id(name: &str) -> ObjectId {
    ObjectId::of(&example(name))
}

/// Decodes an example with this project's code, and encodes what came out.
fn again(name: &str, bytes: &[u8]) -> Vec<u8> {
    match name.trim_end_matches(|c: char| c == '-' || c.is_ascii_digit()) {
        "chunk-list" => ChunkList::decode(bytes).unwrap().encode(),
        "tree" => Tree::decode(bytes).unwrap().encode(),
        "hard-links" => {
            checkpoint::encode_hard_links(&checkpoint::decode_hard_links(bytes).unwrap()).unwrap()
        }
        "rules" => checkpoint::encode_rules(&checkpoint::decode_rules(bytes).unwrap()).unwrap(),
        "left-out" => {
            checkpoint::encode_left_out(&checkpoint::decode_left_out(bytes).unwrap()).unwrap()
        }
        "wrote" => checkpoint::encode_wrote(&checkpoint::decode_wrote(bytes).unwrap()).unwrap(),
        "checkpoint" => CheckpointRecord::decode(bytes).unwrap().encode().unwrap(),
        "checkpoint-entry" => CheckpointEntry::decode(bytes).unwrap().encode().unwrap(),
        "map-leaf" | "map-node" => Node::decode(bytes).unwrap().encode().unwrap(),
        "lineage" => Lineage::decode(bytes).unwrap().encode().unwrap(),
        "catalog-root" => CatalogRoot::decode(bytes).unwrap().encode(),
        "manifest" => Manifest::decode(bytes).unwrap().encode(),
        "selector" => selector::render(&selector::parse(bytes).unwrap()).to_vec(),
        "pack" => again_pack(bytes),
        "stat-cache" => {
            StatCache::open(bytes).unwrap().root().unwrap();
            bytes.to_vec()
        }
        // Captured with a later issue; the second reader decodes them.
        "attributes" | "holes" => bytes.to_vec(),
        other => panic!("nothing decodes {other}"),
    }
}

fn again_pack(bytes: &[u8]) -> Vec<u8> {
    let index = pack::decode_pack(bytes).unwrap();
    index.check_all().unwrap();
    let blocks: Vec<_> = (0..index.block_count())
        .map(|number| index.block(number).unwrap())
        .collect();
    let objects: Vec<_> = index.objects().map(Result::unwrap).collect();
    let end = blocks.last().unwrap().end();
    let mut encoded = bytes[..usize::try_from(end).unwrap()].to_vec();
    encoded.splice(..pack::HEADER_LEN, pack::encode_header());
    encoded.extend(pack::encode_tail(end, &blocks, &objects));
    encoded
}

#[test]
fn every_example_decodes_and_encodes_to_the_same_bytes() {
    let examples = examples();
    assert_eq!(examples.len(), 20, "{:?}", examples.keys());
    for (name, bytes) in examples {
        assert_eq!(again(&name, &bytes), bytes, "{name}");
    }
}

#[test]
fn no_byte_of_an_example_is_superfluous() {
    // One encoding for one content: nothing shorter and nothing longer is accepted.
    for (name, bytes) in examples()
        .into_iter()
        .filter(|(name, _)| !["attributes", "holes"].contains(&name.as_str()))
    {
        for changed in [&bytes[..bytes.len() - 1], &[&bytes[..], b"\0"].concat()] {
            let accepted = std::panic::catch_unwind(|| again(&name, changed));
            assert!(
                accepted.is_err(),
                "{name} with {} bytes instead of {}",
                changed.len(),
                bytes.len()
            );
        }
    }
}

#[test]
fn the_examples_hang_together() {
    let record = CheckpointRecord::decode(&example("checkpoint")).unwrap();
    assert_eq!(
        record.time,
        Time {
            seconds: 1_700_000_000,
            nanoseconds: 123_456_789
        }
    );
    assert_eq!(
        (record.message.as_slice(), record.key.as_deref()),
        (&b"before the tests"[..], Some(&b"turn-7"[..]))
    );
    assert_eq!(
        (record.role.word(), record.actor.word()),
        (Some("before"), Some("agent"))
    );
    assert_eq!(record.tree, id("tree-2"));
    assert_eq!(
        (record.rules, record.left_out, record.wrote),
        (Some(id("rules")), Some(id("left-out")), Some(id("wrote")))
    );
    assert_eq!(record.hard_links.object(), Some(&id("hard-links")));
    assert_eq!(
        (
            record.counts.files,
            record.counts.bytes,
            record.counts.left_out
        ),
        (2, 6, 2)
    );

    let entry = CheckpointEntry::decode(&example("checkpoint-entry")).unwrap();
    assert_eq!(
        (entry.id, entry.time, entry.pinned),
        (id("checkpoint"), record.time, true)
    );
    assert_eq!(
        (entry.tags.as_slice(), entry.note.as_slice()),
        (&["v1".to_owned()][..], &b"a note"[..])
    );

    let lineage = Lineage::decode(&example("lineage-1")).unwrap();
    assert_eq!(
        (lineage.checkpoints, lineage.next_number),
        (Some(id("map-leaf")), 2)
    );
    assert_eq!(lineage.state, LineageState::Active);
    assert!(
        Lineage::decode(&example("lineage-2"))
            .unwrap()
            .state
            .is_archived()
    );

    let manifest = Manifest::decode(&example("manifest")).unwrap();
    assert_eq!(manifest.catalog, id("catalog-root"));
    assert_eq!(manifest.packs[0].id, id("pack"));
    assert_eq!(manifest.packs[0].bytes, example("pack").len() as u64);
    assert_eq!(
        manifest.operation.request["checkpoint"],
        id("checkpoint").to_string()
    );
    let named = selector::parse(&example("selector")).unwrap();
    assert_eq!(
        Some(named),
        GenerationId::of_manifest(2, &example("manifest"))
    );
}

#[test]
fn the_second_reader_decodes_the_examples_to_the_values_that_the_page_tells() {
    let Some(found) = reader::run(["--examples".as_ref(), reader::format_page().as_os_str()])
    else {
        return;
    };
    let found: Value = serde_json::from_str(&found.unwrap()).unwrap();
    let text = |text: &str| Value::from(store_core::id::to_hex(text.as_bytes()));
    let expected = [
        ("/tree-2/value/0/kind", json!("dir")),
        ("/tree-2/value/0/tree", json!(id("tree-1"))),
        ("/tree-2/value/1/name", text("hello")),
        ("/tree-2/value/1/mode", json!(0o4750)),
        ("/tree-2/value/1/mtime", json!([-1, 999_999_999])),
        ("/tree-2/value/1/owner", json!([1000, 100])),
        (
            "/tree-2/value/1/content",
            json!([1, ObjectId::of(b"hello\n")]),
        ),
        ("/tree-2/value/2/target", text("../target")),
        ("/tree-2/value/3/name", json!("ff0a")),
        ("/tree-2/value/3/xattrs", json!(id("attributes"))),
        ("/tree-2/value/3/holes", json!(id("holes"))),
        (
            "/chunk-list/value/rows/1",
            json!([6, ObjectId::of(b"hello\n")]),
        ),
        (
            "/attributes/value",
            json!([[text("user.note"), text("keep")]]),
        ),
        ("/holes/value", json!([[4096, 8192], [65_536, 4096]])),
        ("/hard-links/value", json!([[text("a/one"), text("b/two")]])),
        ("/wrote/value/0", json!([text("gone"), null])),
        (
            "/left-out/value/1",
            json!([text("run/socket"), 2, text("socket")]),
        ),
        ("/checkpoint/value/key", text("turn-7")),
        (
            "/checkpoint/value/counts",
            json!({"files": 2, "dirs": 1, "links": 1, "bytes": 6, "left_out": 2}),
        ),
        ("/checkpoint/value/complete", json!(true)),
        ("/checkpoint/value/rolled_back_to", json!(null)),
        ("/checkpoint-entry/value/tags", json!([text("v1")])),
        ("/map-node/value/level", json!(1)),
        (
            "/map-node/value/rows/1",
            json!(["0000000000000041", "bb".repeat(32), 40]),
        ),
        ("/lineage-1/value/identity", json!([2049, 77])),
        ("/lineage-2/value/state", json!("archived")),
        ("/manifest/value/operation/kind", json!("checkpoint")),
        ("/selector/value/sequence", json!(2)),
        (
            "/stat-cache/value/root/entries/0/1/entries/0/1",
            json!({"racy": true, "inode": 42, "ctime": [1001, 6], "device": null}),
        ),
    ];
    for (pointer, value) in expected {
        assert_eq!(found.pointer(pointer), Some(&value), "{pointer}");
    }
    for (name, bytes) in examples() {
        assert_eq!(
            found[&name]["blake3"],
            json!(ObjectId::of(&bytes)),
            "{name}"
        );
    }
}
