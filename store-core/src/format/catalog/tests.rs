use std::fmt::Debug;

use super::*;

/// Every truncation, every appended byte and every changed byte of an encoding either fails to decode or is itself the
/// encoding of what was decoded.
pub(crate) fn assert_canonical<T: Debug, E: Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, E>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    assert_eq!(encode(&decode(bytes).unwrap()), bytes);
    for end in 0..bytes.len() {
        decode(&bytes[..end]).expect_err("a truncation was accepted");
    }
    decode(&[bytes, &[0]].concat()).expect_err("a byte left over was accepted");
    let mut changed = bytes.to_vec();
    // Of long encodings, each single bit.
    let flips: Vec<u8> = if bytes.len() < 1000 {
        (1..=255).collect()
    } else {
        (0..8).map(|bit| 1 << bit).collect()
    };
    for at in 0..bytes.len() {
        for &flip in &flips {
            changed[at] = bytes[at] ^ flip;
            if let Ok(value) = decode(&changed) {
                assert_eq!(encode(&value), changed, "byte {at}, decoded as {value:?}");
            }
        }
        changed[at] = bytes[at];
    }
}

fn id(n: u8) -> ObjectId {
    ObjectId::from_bytes([n; 32])
}

fn lineage(state: LineageState) -> Lineage {
    Lineage {
        name: b"/home/u/p".to_vec(),
        source: b"/home/u/p".to_vec(),
        host: b"box".to_vec(),
        identity: Some(SourceIdentity {
            device: 7,
            inode: 1 << 40,
        }),
        next_number: 3,
        state,
        checkpoints: Some(id(1)),
        keys: None,
        tags: Some(id(2)),
    }
}

fn entry() -> CheckpointEntry {
    CheckpointEntry {
        id: id(9),
        time: Time {
            seconds: -5,
            nanoseconds: 1,
        },
        pinned: true,
        tags: vec!["good".into(), "v1.0".into()],
        note: b"a note \xff".to_vec(),
        purged: Some(id(3)),
    }
}

fn leaf(keys: &[&[u8]]) -> Node {
    let row = |key: &&[u8]| LeafRow {
        key: key.to_vec(),
        value: b"v".to_vec(),
    };
    Node {
        level: 0,
        rows: Rows::Leaf(keys.iter().map(row).collect()),
    }
}

fn branch(level: u8, rows: &[(&[u8], u64)]) -> Node {
    let row = |&(key, count): &(&[u8], u64)| BranchRow {
        key: key.to_vec(),
        child: id(4),
        count,
    };
    Node {
        level,
        rows: Rows::Branch(rows.iter().map(row).collect()),
    }
}

#[test]
fn every_object_has_one_encoding() {
    for root in [
        CatalogRoot::default(),
        CatalogRoot {
            lineages: Some(id(1)),
            sources: None,
            ids: Some(id(2)),
        },
    ] {
        assert_canonical(&root.encode(), CatalogRoot::decode, CatalogRoot::encode);
    }
    for node in [
        leaf(&[b"", b"a", b"b"]),
        branch(3, &[(b"a", 1), (b"b", 64)]),
    ] {
        let bytes = node.encode().unwrap();
        assert_canonical(&bytes, Node::decode, |node| node.encode().unwrap());
    }
    for state in [
        LineageState::Active,
        LineageState::Moving {
            to: StoreId::from_bytes([5; 16]),
        },
        LineageState::Archived {
            reason: b"old".to_vec(),
            time: Time {
                seconds: 1,
                nanoseconds: 2,
            },
        },
    ] {
        let bytes = lineage(state).encode().unwrap();
        assert_canonical(&bytes, Lineage::decode, |lineage| lineage.encode().unwrap());
    }
    for entry in [entry(), CheckpointEntry::new(id(1), Time::default())] {
        let bytes = entry.encode().unwrap();
        assert_canonical(&bytes, CheckpointEntry::decode, |entry| {
            entry.encode().unwrap()
        });
    }
}

#[test]
fn nodes_that_break_a_rule_are_neither_written_nor_read() {
    let many: Vec<Vec<u8>> = (0..=64).map(|n| vec![n]).collect();
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    assert!(leaf(&many[..MAX_ROWS]).encode().is_ok());
    for bad in [
        leaf(&[]),
        leaf(&many),
        leaf(&[b"b", b"a"]),
        leaf(&[b"a", b"a"]),
        branch(0, &[(b"a", 1)]),
        branch(MAX_LEVEL + 1, &[(b"a", 1)]),
        branch(1, &[(b"a", 0)]),
        branch(1, &[(b"a", u64::MAX), (b"b", 1)]),
        Node {
            level: 1,
            ..leaf(&[b"a"])
        },
    ] {
        assert_eq!(bad.encode().unwrap_err().code(), "invalid", "{bad:?}");
    }
    let bytes = leaf(&[b"a", b"b"]).encode().unwrap();
    let at = bytes.iter().position(|&byte| byte == b'b').unwrap();
    let mut same = bytes;
    same[at] = b'a';
    assert!(Node::decode(&same).is_err());
    let mut deep = branch(1, &[(b"a", 1)]).encode().unwrap();
    deep[4] = MAX_LEVEL + 1;
    assert!(Node::decode(&deep).is_err());
}

#[test]
fn a_full_node_of_the_largest_rows_is_still_an_object() {
    let mut largest = entry();
    largest.note = vec![0; MAX_NOTE_BYTES];
    largest.tags = (0..MAX_TAGS)
        .map(|n| format!("{n:0>width$}x", width = MAX_TAG_BYTES - 1))
        .collect();
    let value = largest.encode().unwrap();
    let rows = (0..64).map(|n| LeafRow {
        key: number_bytes(n).to_vec(),
        value: value.clone(),
    });
    let node = Node {
        level: 0,
        rows: Rows::Leaf(rows.collect()),
    };
    assert!(Node::decode(&node.encode().unwrap()).unwrap() == node);
    let long = vec![b'x'; MAX_LINEAGE_NAME_BYTES];
    let key = |n: u64| {
        [
            &source_key(&[b'/'; MAX_SOURCE_BYTES], &long),
            &number_bytes(n)[..],
        ]
        .concat()
    };
    let rows = (0..64).map(|n| LeafRow {
        key: key(n),
        value: vec![],
    });
    assert!(
        Node {
            level: 0,
            rows: Rows::Leaf(rows.collect())
        }
        .encode()
        .is_ok()
    );
}

#[test]
fn entries_and_lineages_that_break_a_rule_are_not_written() {
    let tags = |tags: &[&str]| CheckpointEntry {
        tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
        ..entry()
    };
    let numbered: Vec<_> = (0..=MAX_TAGS).map(|n| format!("t{n:02}")).collect();
    let too_many: Vec<&str> = numbered.iter().map(String::as_str).collect();
    assert!(tags(&too_many[1..]).encode().is_ok());
    for bad in [
        tags(&too_many),
        tags(&["b", "a"]),
        tags(&["a", "a"]),
        tags(&["latest"]),
        CheckpointEntry {
            note: vec![0; MAX_NOTE_BYTES + 1],
            ..entry()
        },
    ] {
        assert!(bad.encode().is_err(), "{bad:?}");
    }
    let good = || lineage(LineageState::Active);
    for bad in [
        Lineage {
            name: vec![],
            ..good()
        },
        Lineage {
            name: b"a\nb".to_vec(),
            ..good()
        },
        Lineage {
            source: b"relative".to_vec(),
            ..good()
        },
        Lineage {
            host: vec![b'h'; MAX_HOST_BYTES + 1],
            ..good()
        },
        Lineage {
            next_number: 0,
            ..good()
        },
        Lineage {
            state: LineageState::Archived {
                reason: vec![0; MAX_REASON_BYTES + 1],
                time: Time::default(),
            },
            ..good()
        },
    ] {
        assert!(bad.encode().is_err(), "{bad:?}");
    }
}

#[test]
fn sources_are_canonical_absolute_paths() {
    for good in ["/", "/a", "/a/b c", "/..."] {
        assert!(is_source(good.as_bytes()), "{good}");
        let key = source_key(good.as_bytes(), b"name/x");
        assert_eq!(
            parse_source_key(&key),
            Some((good.as_bytes(), &b"name/x"[..]))
        );
    }
    for bad in ["", "a", "//", "/a/", "/a//b", "/a/./b", "/a/..", "/a\0b"] {
        assert!(!is_source(bad.as_bytes()), "{bad}");
    }
    assert!(!is_source(
        format!("/{}", "a/".repeat(3000).trim_end_matches('/')).as_bytes()
    ));
    assert_eq!(parse_source_key(b"/a"), None);
    assert_eq!(parse_source_key(b"/a\0"), None);
}

#[test]
fn numbers_sort_as_bytes() {
    let mut numbers = [1, 255, 256, 65_536, u64::MAX, 2];
    numbers.sort_unstable_by_key(|&n| number_bytes(n));
    assert!(numbers.is_sorted());
    assert_eq!(parse_number(&number_bytes(77)), Some(77));
    assert_eq!(parse_number(&[0; 7]), None);
}
