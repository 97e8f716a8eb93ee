use serde_json::Value;

use super::*;
use crate::format::catalog::CheckpointRef;
use crate::format::catalog::tests::assert_canonical;

fn id(n: u8) -> ObjectId {
    ObjectId::from_bytes([n; 32])
}

fn generation(n: u64) -> GenerationId {
    GenerationId::of_manifest(n, b"x").unwrap()
}

fn at() -> CheckpointRef {
    CheckpointRef {
        lineage: b"/p \xff".to_vec(),
        number: 7,
        id: id(1),
    }
}

fn manifest() -> Manifest {
    let request = Request::Checkpoint(at());
    Manifest {
        catalog: id(1),
        created: "2026-07-01T00:00:00.000000000Z".into(),
        epoch: Epoch {
            candidate: Some(generation(3)),
            nonce: Nonce::from_bytes([2; 16]),
        },
        format: FORMAT,
        kept: vec![
            Kept {
                id: generation(1),
                reason: KeptReason::Before,
                since: "then".into(),
            },
            Kept {
                id: generation(2),
                reason: KeptReason::Plain,
                since: String::new(),
            },
        ],
        lost: vec![Lost {
            object: id(4),
            reason: LostReason::Purged,
        }],
        nonce: Nonce::from_bytes([5; 16]),
        operation: Operation {
            before: Some(generation(8)),
            counts: BTreeMap::from([("files".into(), 3), ("links".into(), 0)]),
            kind: request.kind(),
            request: request.to_map(),
            retry_of: Some("a \"quoted\" \\ name\n\u{1f}\u{7f}é".into()),
        },
        origin: Some(Origin {
            generation: generation(9),
            store: StoreId::from_bytes([6; 16]),
        }),
        packs: vec![
            PackEntry {
                bytes: 1000,
                id: id(1),
                objects: 1,
                state: PackState::Ok,
            },
            PackEntry {
                bytes: 2000,
                id: id(2),
                objects: 9,
                state: PackState::Missing,
            },
        ],
        parent: Some(generation(8)),
        policy: Some(Policy::default_for_init()),
        sequence: 10,
        store: StoreId::from_bytes([7; 16]),
        writer: Writer {
            boot: "b".into(),
            host: "h".into(),
            pid: 1,
            start_ticks: u64::MAX,
            tool: "genstore 0.1.0".into(),
            uid: 0,
        },
    }
}

fn decode_changed(from: &str, to: &str) -> Result<Manifest, ManifestError> {
    let text = String::from_utf8(manifest().encode()).unwrap();
    assert!(text.contains(from), "{from}");
    Manifest::decode(text.replacen(from, to, 1).as_bytes())
}

#[test]
fn a_manifest_has_one_encoding_and_its_id_is_of_those_bytes() {
    let (id, bytes) = manifest().seal().unwrap();
    assert_eq!((id.sequence(), id.matches(&bytes)), (10, true));
    assert_eq!(Manifest::decode(&bytes), Ok(manifest()));
    assert_canonical(&bytes, Manifest::decode, Manifest::encode);
}

#[test]
fn keys_stand_in_ascending_order_without_white_space() {
    fn canonical(value: &Value, out: &mut String) {
        match value {
            Value::Object(map) => {
                let mut keys: Vec<_> = map.iter().collect();
                keys.sort_unstable_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
                let mut separator = '{';
                for (key, value) in keys {
                    out.push(separator);
                    separator = ',';
                    out.push_str(&Value::from(key.as_str()).to_string());
                    out.push(':');
                    canonical(value, out);
                }
                out.push_str(if map.is_empty() { "{}" } else { "}" });
            }
            Value::Array(list) => {
                out.push('[');
                for (at, value) in list.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    canonical(value, out);
                }
                out.push(']');
            }
            leaf => out.push_str(&leaf.to_string()),
        }
    }
    let bytes = manifest().encode();
    let mut text = String::new();
    canonical(&serde_json::from_slice(&bytes).unwrap(), &mut text);
    assert_eq!(String::from_utf8(bytes).unwrap(), text);
    assert!(
        text.contains(r#""retry_of":"a \"quoted\" \\ name\n\u001f"#),
        "{text}"
    );
}

#[test]
fn a_newer_genstore_is_told_from_damage() {
    for (from, to) in [
        (r#""format":1"#, r#""format":2"#),
        (r#""format":1,"#, r#""format":2,"whatever":{"a":[1]},"#),
        (r#""kept":"#, r#""keep":[],"kept":"#),
        (r#"{"bytes":1000"#, r#"{"bits":1,"bytes":1000"#),
        (r#""kind":"checkpoint""#, r#""kind":"teleport""#),
        (r#""state":"ok""#, r#""state":"compressed""#),
        (r#""reason":"before""#, r#""reason":"because""#),
        (r#""boot":"b""#, r#""boot":"b","cpu":1"#),
        (r#""keep_daily":30"#, r#""keep_daily":30,"keep_hourly":2"#),
    ] {
        let error = decode_changed(from, to).unwrap_err();
        assert!(
            matches!(error, ManifestError::Unsupported(_)),
            "{to}: {error:?}"
        );
    }
    for (from, to) in [
        (r#""format":1"#, r#""format":"1""#),
        (r#""format":1"#, r#""format":1.0"#),
        (r#""format":1,"#, ""),
        (r#""format":1,"#, r#""format":1,"format":1,"#),
        (r#""format":1,"#, r#""format": 1,"#),
        (r#""origin":{"#, r#""origin":null,"origin":{"#),
        (r#""files":3,"#, r#""files":3,"files":3,"#),
        (r#""sequence":10"#, r#""sequence":0"#),
        (r#""sequence":10"#, r#""sequence":10000000000"#),
        (r#""sequence":10"#, r#""sequence":-1"#),
        (r#""sequence":10"#, r#""sequence":1e1"#),
        (r#""objects":9"#, r#""objects":0"#),
        (r#""objects":9"#, r#""objects":67108865"#),
        ("genstore 0.1.0", r"genstore\u00200.1.0"),
        (r"\n", r"\u000a"),
        (r#""uid":0}"#, r#""uid":0}}"#),
        (r#""uid":0}"#, r#""uid":0}x"#),
        (r#""uid":0}"#, "\"uid\":0}\n"),
    ] {
        let error = decode_changed(from, to).unwrap_err();
        assert!(
            matches!(error, ManifestError::Mismatch(_)),
            "{to}: {error:?}"
        );
    }
    for bytes in [&b""[..], b"[]", b"null", b"{}", b"\xff", b"[[[[[[[["] {
        assert!(matches!(
            Manifest::decode(bytes),
            Err(ManifestError::Mismatch(_))
        ));
    }
    let deep = [b"{\"format\":1,\"a\":".to_vec(), vec![b'['; 1 << 20]].concat();
    assert!(matches!(
        Manifest::decode(&deep),
        Err(ManifestError::Mismatch(_))
    ));
    let long = vec![b' '; MAX_MANIFEST_BYTES + 1];
    assert!(matches!(
        Manifest::decode(&long),
        Err(ManifestError::Mismatch(_))
    ));
}

#[test]
fn an_absent_optional_field_is_not_null() {
    let mut none = manifest();
    (none.origin, none.policy, none.parent) = (None, None, None);
    none.epoch.candidate = None;
    let bytes = none.encode();
    assert_eq!(Manifest::decode(&bytes), Ok(none));
    let text = String::from_utf8(bytes).unwrap();
    for field in [
        r#""origin":null,"#,
        r#""policy":null,"#,
        r#""parent":null,"#,
        r#""candidate":null,"#,
    ] {
        let changed = text.replacen(field, "", 1);
        assert_ne!(changed, text);
        let error = Manifest::decode(changed.as_bytes()).unwrap_err();
        assert!(matches!(error, ManifestError::Mismatch(_)), "{error:?}");
    }
}

#[test]
fn what_could_not_be_read_back_is_not_sealed() {
    let pack = |n| PackEntry {
        bytes: 1,
        id: id(n),
        objects: 1,
        state: PackState::Ok,
    };
    let kept = |n| Kept {
        id: generation(n),
        reason: KeptReason::Plain,
        since: String::new(),
    };
    let lost = |n| Lost {
        object: id(n),
        reason: LostReason::Lost,
    };
    let big: Vec<_> = (0..=u32::try_from(MAX_PACKS).unwrap())
        .map(|n| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            PackEntry {
                id: ObjectId::from_bytes(bytes),
                ..pack(0)
            }
        })
        .collect();
    for bad in [
        Manifest {
            packs: vec![pack(2), pack(1)],
            ..manifest()
        },
        Manifest {
            packs: vec![pack(1), pack(1)],
            ..manifest()
        },
        Manifest {
            packs: big,
            ..manifest()
        },
        Manifest {
            kept: vec![kept(2), kept(1)],
            ..manifest()
        },
        Manifest {
            lost: vec![lost(1), lost(1)],
            ..manifest()
        },
        Manifest {
            sequence: 0,
            ..manifest()
        },
        Manifest {
            sequence: GenerationId::MAX_SEQUENCE + 1,
            ..manifest()
        },
        Manifest {
            format: 2,
            ..manifest()
        },
        Manifest {
            created: "x".repeat(MAX_MANIFEST_BYTES),
            ..manifest()
        },
    ] {
        bad.seal().unwrap_err();
    }
}

fn requests() -> Vec<Request> {
    let tag = |action| TagRequest {
        checkpoint: at(),
        tag: "v1".into(),
        action,
    };
    let lineage = |action| LineageRequest {
        lineage: b"l".to_vec(),
        action,
    };
    let activation = |directory| Activation {
        candidate: generation(3),
        directory,
    };
    let pin = PinRequest {
        checkpoint: at(),
        value: true,
        was: false,
    };
    let note = NoteRequest {
        checkpoint: at(),
        note: b"\xff".to_vec(),
        was: vec![],
    };
    let applied = [
        Applied::Drop(at()),
        Applied::Return(at()),
        Applied::Activate(activation(None)),
        Applied::Tag(tag(TagAction::Remove)),
        Applied::Pin(pin.clone()),
        Applied::Note(note.clone()),
        Applied::Lineage(lineage(LineageAction::Archive { reason: vec![] })),
    ];
    let undo = |applied| Request::Undo {
        undoes: generation(4),
        undone_kind: OperationKind::Undo,
        applied,
    };
    let mut requests = vec![
        Request::Init,
        Request::Checkpoint(at()),
        Request::Heal(at()),
        Request::Activate(activation(None)),
        Request::Activate(activation(Some(b"/tmp/c".to_vec()))),
        Request::Tag(tag(TagAction::Add { moved_from: None })),
        Request::Tag(tag(TagAction::Add {
            moved_from: Some(3),
        })),
        Request::Tag(tag(TagAction::Remove)),
        Request::Pin(pin),
        Request::Note(note),
        Request::Lineage(lineage(LineageAction::Archive {
            reason: b"why".to_vec(),
        })),
        Request::Lineage(lineage(LineageAction::Unarchive {
            reason: b"why".to_vec(),
        })),
        Request::Lineage(lineage(LineageAction::Rename { to: b"n".to_vec() })),
    ];
    requests.extend(applied.map(undo));
    requests
}

#[test]
fn requests_survive_the_manifest_and_are_read_strictly() {
    for request in requests() {
        let (kind, map) = (request.kind(), request.to_map());
        assert_eq!(Request::from_map(kind, &map), Ok(request));
        let mut more = map.clone();
        more.insert("zzz".into(), String::new());
        assert!(Request::from_map(kind, &more).unwrap_err().contains("zzz"));
        for key in map.keys() {
            let mut fewer = map.clone();
            fewer.remove(key);
            // Only the directory may be absent: it says how the activation was asked for.
            assert_eq!(
                Request::from_map(kind, &fewer).is_ok(),
                key == "directory",
                "{kind:?} {key}"
            );
            let mut other = map.clone();
            other.insert(key.clone(), "+?".into());
            assert_eq!(
                Request::from_map(kind, &other).is_ok(),
                key == "tag",
                "{kind:?} {key}"
            );
        }
    }
    let mut map = Request::Checkpoint(at()).to_map();
    map.insert("number".into(), "07".into());
    assert!(Request::from_map(OperationKind::Checkpoint, &map).is_err());
    assert!(
        Request::from_map(OperationKind::Prune, &BTreeMap::new())
            .unwrap_err()
            .contains("prune")
    );
}

#[test]
fn kinds_have_one_word() {
    for kind in OperationKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
        assert_eq!(OperationKind::parse(kind.word()), Some(kind));
    }
    assert_eq!(OperationKind::parse("Init"), None);
}
