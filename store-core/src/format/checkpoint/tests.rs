use super::*;
use crate::format::catalog::tests::assert_canonical;

fn id(n: u8) -> ObjectId {
    ObjectId::from_bytes([n; 32])
}

fn smallest() -> CheckpointRecord {
    CheckpointRecord {
        nonce: Nonce::from_bytes([1; 16]),
        parent: None,
        time: Time::default(),
        message: vec![],
        key: None,
        role: Role::None,
        actor: Actor::None,
        source: b"/".to_vec(),
        host: vec![],
        tree: id(2),
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
    }
}

fn largest() -> CheckpointRecord {
    CheckpointRecord {
        parent: Some(id(3)),
        time: Time {
            seconds: -1,
            nanoseconds: 999_999_999,
        },
        message: b"before the \xff refactoring".to_vec(),
        key: Some(b"turn-7".to_vec()),
        role: Role::Before,
        actor: Actor::Rollback,
        source: b"/home/u/p".to_vec(),
        host: b"box".to_vec(),
        root: RootMeta {
            mode: 0o7777,
            mtime: Time {
                seconds: i64::MIN,
                nanoseconds: 0,
            },
            owner: Some(Owner {
                uid: 1000,
                gid: u32::MAX,
            }),
            xattrs: Extra::Present(id(4)),
        },
        counts: Counts {
            files: 1,
            directories: 2,
            links: 3,
            bytes: u64::MAX,
            left_out: 5,
        },
        complete: false,
        rules: Some(id(5)),
        left_out: Some(id(6)),
        hard_links: Extra::Present(id(7)),
        wrote: Some(id(8)),
        rolled_back_to: Some(id(9)),
        ..smallest()
    }
}

#[test]
fn every_object_has_one_encoding() {
    for record in [smallest(), largest()] {
        let bytes = record.encode().unwrap();
        assert_eq!(CheckpointRecord::decode(&bytes).unwrap(), record);
        assert_canonical(&bytes, CheckpointRecord::decode, |record| {
            record.encode().unwrap()
        });
    }
    let rules = encode_rules(&[
        Rule {
            origin: b"-default".to_vec(),
            rule: b".git".to_vec(),
        },
        Rule {
            origin: b"sub/.genstoreignore".to_vec(),
            rule: vec![],
        },
    ]);
    assert_canonical(&rules.unwrap(), decode_rules, |list| {
        encode_rules(list).unwrap()
    });
    let left_out = encode_left_out(&[
        LeftOut {
            path: vec![],
            reason: LeftOutReason::OtherFileSystem,
            rule: vec![],
        },
        LeftOut {
            path: b"a".to_vec(),
            reason: LeftOutReason::Rule,
            rule: b"*.o".to_vec(),
        },
        LeftOut {
            path: b"a/b".to_vec(),
            reason: LeftOutReason::Special,
            rule: b"fifo".to_vec(),
        },
    ]);
    assert_canonical(&left_out.unwrap(), decode_left_out, |list| {
        encode_left_out(list).unwrap()
    });
    let wrote = encode_wrote(&[
        Wrote {
            path: b"a".to_vec(),
            digest: Some([7; 32]),
        },
        Wrote {
            path: b"b".to_vec(),
            digest: None,
        },
    ]);
    assert_canonical(&wrote.unwrap(), decode_wrote, |list| {
        encode_wrote(list).unwrap()
    });
    let links = encode_hard_links(&[
        vec![b"a".to_vec(), b"z/a".to_vec()],
        vec![b"b".to_vec(), b"c".to_vec(), b"d".to_vec()],
    ]);
    assert_canonical(&links.unwrap(), decode_hard_links, |list| {
        encode_hard_links(list).unwrap()
    });
}

#[test]
fn records_that_break_a_rule_are_not_written() {
    for bad in [
        CheckpointRecord {
            message: vec![0; MAX_MESSAGE_BYTES + 1],
            ..smallest()
        },
        CheckpointRecord {
            key: Some(vec![]),
            ..smallest()
        },
        CheckpointRecord {
            key: Some(vec![0; MAX_KEY_BYTES + 1]),
            ..smallest()
        },
        CheckpointRecord {
            source: b"a".to_vec(),
            ..smallest()
        },
        CheckpointRecord {
            host: vec![b'h'; 256],
            ..smallest()
        },
        CheckpointRecord {
            root: RootMeta {
                mode: 0o10000,
                ..smallest().root
            },
            ..smallest()
        },
        CheckpointRecord {
            time: Time {
                seconds: 0,
                nanoseconds: 1_000_000_000,
            },
            ..smallest()
        },
    ] {
        assert_eq!(bad.encode().unwrap_err().code(), "invalid");
    }
    let longest = CheckpointRecord {
        message: vec![0; MAX_MESSAGE_BYTES],
        key: Some(vec![0; MAX_KEY_BYTES]),
        ..smallest()
    };
    assert!(CheckpointRecord::decode(&longest.encode().unwrap()).unwrap() == longest);
}

#[test]
fn lists_that_break_a_rule_are_not_written() {
    let left = |path: &str| LeftOut {
        path: path.into(),
        reason: LeftOutReason::Store,
        rule: vec![],
    };
    for bad in [
        vec![],
        vec![left("b"), left("a")],
        vec![left("a"), left("a")],
        vec![left("/a")],
        vec![left("a/../b")],
        vec![left("a/")],
    ] {
        assert!(encode_left_out(&bad).is_err(), "{bad:?}");
    }
    assert!(
        encode_wrote(&[Wrote {
            path: vec![],
            digest: None
        }])
        .is_err()
    );
    assert!(
        encode_rules(&[Rule {
            origin: b"-other".to_vec(),
            rule: vec![]
        }])
        .is_ok()
    );
    assert!(
        encode_rules(&[Rule {
            origin: b"/etc/ignore".to_vec(),
            rule: vec![]
        }])
        .is_err()
    );
    let group =
        |paths: &[&str]| -> HardLinkGroup { paths.iter().map(|&path| path.into()).collect() };
    for bad in [
        vec![],
        vec![group(&["a"])],
        vec![group(&["b", "a"])],
        vec![group(&["b", "c"]), group(&["a", "d"])],
        vec![group(&["a", "c"]), group(&["b", "c"])],
    ] {
        assert!(encode_hard_links(&bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_count_is_believed_only_as_far_as_the_bytes_go() {
    for tag in [b"rul1", b"out1", b"wro1", b"hln1"] {
        let bytes = [&tag[..], &u32::MAX.to_le_bytes(), &[0; 32]].concat();
        assert!(decode_rules(&bytes).is_err() && decode_left_out(&bytes).is_err());
        assert!(decode_wrote(&bytes).is_err() && decode_hard_links(&bytes).is_err());
    }
}

#[test]
fn reasons_have_their_own_bytes_and_two_make_a_checkpoint_incomplete() {
    let known: Vec<_> = (0..=255).filter_map(LeftOutReason::from_byte).collect();
    assert_eq!(known, LeftOutReason::ALL);
    let incomplete: Vec<_> = known
        .iter()
        .filter(|reason| reason.makes_incomplete())
        .collect();
    assert_eq!(
        incomplete,
        [&LeftOutReason::Unreadable, &LeftOutReason::Unstable]
    );
}
