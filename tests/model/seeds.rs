//! Seeds for the fuzzers, made by the real encoders: `UPDATE_CORPUS=1 cargo test -p genstore-tests --test model seeds`.
//! They change only when somebody wants them to: each is an input that once was as it should be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;

use genstore_tests::model::BYTES;
use genstore_tests::random::Random;
use store_core::catalog::{Catalog, CatalogEdit};
use store_core::clock::Time;
use store_core::format::catalog::{
    CatalogRoot, CheckpointEntry, Lineage, LineageState, Node, SourceIdentity,
};
use store_core::format::checkpoint::{
    Actor, CheckpointRecord, Counts, Extra, LeftOut, LeftOutReason, Owner, Role, RootMeta, Rule,
    Wrote, encode_hard_links, encode_left_out, encode_rules, encode_wrote,
};
use store_core::format::content::{ChunkList, Content, ListRow};
use store_core::format::tree::{Entry, Node as TreeNode, Tree};
use store_core::id::{Nonce, ObjectId};
use store_core::objects::memory::MemoryObjects;
use store_core::objects::writer::{PackSinkFile, PackWriter};
use store_core::objects::{Class, ObjectSink, ObjectSource};
use store_core::{ActivateOptions, ActivateTarget, InitRequest, Store, StoreOptions};

use crate::corpus::fuzz;
use crate::sequences::sequence;

/// A clock far ahead of the files, so that stat caches hold what is trusted.
struct Ahead;

impl store_core::clock::Clock for Ahead {
    fn now(&self) -> Time {
        Time {
            seconds: 4_000_000_000,
            nanoseconds: 1,
        }
    }

    fn monotonic(&self) -> std::time::Duration {
        store_core::clock::SystemClock.monotonic()
    }
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    let directory = fuzz().join("corpus").join(target);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(name), bytes).unwrap();
}

fn id(text: &str) -> ObjectId {
    ObjectId::of(text.as_bytes())
}

const TIME: Time = Time {
    seconds: 1_790_000_000,
    nanoseconds: 123_456_789,
};

#[test]
fn seeds() {
    if std::env::var_os("UPDATE_CORPUS").is_none() {
        return;
    }
    of_a_store();
    trees();
    catalogs();
    packs();
    operations();
}

/// What a small store has: selectors, manifests of each kind of operation, packs, stat caches.
fn of_a_store() {
    let place = tempfile::tempdir().unwrap();
    let (path, source) = (place.path().join("store"), place.path().join("source"));
    fs::create_dir_all(source.join("src/deep")).unwrap();
    for (name, text) in [
        ("README", "read me\n"),
        ("src/lib.rs", "//! A library.\n"),
        ("src/deep/empty", ""),
    ] {
        fs::write(source.join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("src/lib.rs", source.join("link")).unwrap();
    let options = || {
        StoreOptions::new()
            .threads(1)
            .clock(std::sync::Arc::new(Ahead))
    };
    options().init(&path, InitRequest::default()).unwrap();
    let store = options().open(&path).unwrap();
    keep(&store, "init");
    let first = store
        .checkpoint(&source)
        .message("first")
        .key(b"k")
        .role(Role::Before)
        .run()
        .unwrap();
    keep(&store, "checkpoint");
    let at = store
        .view()
        .unwrap()
        .find("latest", Some(&first.lineage))
        .unwrap()
        .reference();
    store.set_tag(&at, "v1", false).unwrap();
    keep(&store, "tag");
    store.set_pinned(&at, true).unwrap();
    keep(&store, "pin");
    store.set_note(&at, b"a note").unwrap();
    keep(&store, "note");
    store.archive_lineage(&first.lineage, "old").unwrap();
    keep(&store, "lineage");
    let plan = store.plan_undo(None, None).unwrap();
    store.undo(&plan, false).unwrap();
    keep(&store, "undo");
    fs::set_permissions(source.join("README"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(source.join("src/new"), "new".repeat(99)).unwrap();
    store.checkpoint(&source).run().unwrap();
    keep(&store, "second");
    let before = store.view().unwrap().manifest().parent.unwrap();
    let options = ActivateOptions {
        leave_behind: true,
        ..ActivateOptions::default()
    };
    store
        .activate(&ActivateTarget::Generation(before), options)
        .unwrap();
    keep(&store, "activate");
}

/// The live selector, manifest and newest stat cache, under a name.
fn keep(store: &Store, name: &str) {
    let current = fs::read(store.path().join("CURRENT")).unwrap();
    write("selector", name, &current);
    let generation = String::from_utf8(current).unwrap();
    let directory = store.path().join("generations").join(generation.trim());
    write(
        "manifest",
        name,
        &fs::read(directory.join("manifest.json")).unwrap(),
    );
    for (number, file) in fs::read_dir(&directory).unwrap().enumerate() {
        let file = file.unwrap().path();
        if name == "second"
            && file
                .extension()
                .is_some_and(|extension| extension == "pack")
        {
            write(
                "pack",
                &format!("store-{number}"),
                &fs::read(&file).unwrap(),
            );
        }
    }
    for file in fs::read_dir(store.path().join("cache")).unwrap() {
        let file = file.unwrap().path();
        if file
            .extension()
            .is_some_and(|extension| extension == "stat")
        {
            write("stat_cache", name, &fs::read(&file).unwrap());
        }
    }
}

fn entry(name: &[u8], node: TreeNode) -> Entry {
    Entry {
        name: name.to_vec(),
        mode: 0o644,
        mtime: TIME,
        owner: None,
        xattrs: Extra::NotCaptured,
        node,
    }
}

fn trees() {
    let file = |size, content, holes| TreeNode::File {
        size,
        content,
        holes,
    };
    let mut full = Tree {
        entries: vec![
            entry(b" a", file(0, Content::Empty, Extra::NotCaptured)),
            entry(b"b", file(1, Content::Chunk(id("b")), Extra::Absent)),
            entry(
                b"c",
                file(9 << 20, Content::List(id("c")), Extra::Present(id("holes"))),
            ),
            entry(b"d", TreeNode::Directory { tree: id("d") }),
            entry(
                b"\xff\n",
                TreeNode::Symlink {
                    target: b"../\xfe".to_vec(),
                },
            ),
        ],
    };
    full.entries[1].owner = Some(Owner {
        uid: 1000,
        gid: 100,
    });
    full.entries[3].xattrs = Extra::Present(id("xattrs"));
    write("tree", "empty", &Tree::default().encode());
    write("tree", "full", &full.encode());
    let list = |level, lengths: &[(u64, u8)]| ChunkList {
        level,
        rows: lengths
            .iter()
            .map(|(length, to)| ListRow {
                length: *length,
                id: ObjectId::from_bytes([*to; 32]),
            })
            .collect(),
    };
    write("tree", "list", &list(0, &[(5, 1), (8 << 20, 2)]).encode());
    write("tree", "lists", &list(3, &[(1 << 40, 1), (7, 2)]).encode());
    // A size, then objects that name each other by the first byte of an id.
    let graph = [
        list(1, &[(7, 1), (5, 2)]).encode(),
        list(0, &[(4, 3), (3, 4)]).encode(),
        list(0, &[(4, 3), (1, 5)]).encode(),
    ];
    let graph: Vec<Vec<u8>> = graph
        .into_iter()
        .chain([b"four".to_vec(), b"six".to_vec(), b"1".to_vec()])
        .collect();
    write(
        "tree",
        "content",
        &[&12u32.to_le_bytes()[..], &joined(&graph)].concat(),
    );
    let ring = joined(&[list(1, &[(7, 0), (5, 0)]).encode()]);
    write("tree", "ring", &[&12u32.to_le_bytes()[..], &ring].concat());
}

/// Objects, each behind its length.
fn joined(objects: &[Vec<u8>]) -> Vec<u8> {
    let length = |object: &Vec<u8>| u16::try_from(object.len()).unwrap().to_le_bytes();
    objects
        .iter()
        .flat_map(|object| [&length(object)[..], object].concat())
        .collect()
}

fn record() -> CheckpointRecord {
    CheckpointRecord {
        nonce: Nonce::from_bytes([7; 16]),
        parent: Some(id("parent")),
        time: TIME,
        message: b"a message".to_vec(),
        key: Some(b"key".to_vec()),
        role: Role::After,
        actor: Actor::Agent,
        source: b"/home/someone/project".to_vec(),
        host: b"host".to_vec(),
        tree: id("tree"),
        root: RootMeta {
            mode: 0o755,
            mtime: TIME,
            owner: Some(Owner { uid: 1, gid: 2 }),
            xattrs: Extra::Absent,
        },
        counts: Counts {
            files: 1,
            directories: 2,
            links: 3,
            bytes: 4,
            left_out: 5,
        },
        complete: true,
        rules: Some(id("rules")),
        left_out: Some(id("left out")),
        hard_links: Extra::Present(id("hard links")),
        wrote: Some(id("wrote")),
        rolled_back_to: None,
    }
}

fn lineage(state: LineageState) -> Lineage {
    Lineage {
        name: b"project".to_vec(),
        source: b"/home/someone/project".to_vec(),
        host: b"host".to_vec(),
        identity: Some(SourceIdentity {
            device: 1,
            inode: 2,
        }),
        next_number: 4,
        state,
        checkpoints: Some(id("checkpoints")),
        keys: None,
        tags: Some(id("tags")),
    }
}

fn catalogs() {
    write(
        "catalog",
        "root",
        &CatalogRoot {
            lineages: Some(id("l")),
            sources: None,
            ids: Some(id("i")),
        }
        .encode(),
    );
    write(
        "catalog",
        "lineage",
        &lineage(LineageState::Active).encode().unwrap(),
    );
    let archived = LineageState::Archived {
        reason: b"old".to_vec(),
        time: TIME,
    };
    write(
        "catalog",
        "lineage-archived",
        &lineage(archived).encode().unwrap(),
    );
    let moving = LineageState::Moving {
        to: Nonce::from_bytes([3; 16]),
    };
    write(
        "catalog",
        "lineage-moving",
        &lineage(moving).encode().unwrap(),
    );
    let mut entry = CheckpointEntry::new(id("checkpoint"), TIME);
    write("catalog", "entry", &entry.encode().unwrap());
    (entry.pinned, entry.tags, entry.note) = (
        true,
        vec!["good".to_owned(), "v1".to_owned()],
        b"note".to_vec(),
    );
    entry.purged = Some(id("purged"));
    write("catalog", "entry-full", &entry.encode().unwrap());
    write("catalog", "record", &record().encode().unwrap());
    let bare = CheckpointRecord {
        parent: None,
        key: None,
        rules: None,
        wrote: None,
        ..record()
    };
    write("catalog", "record-bare", &bare.encode().unwrap());
    let rule = Rule {
        origin: b"src/.genstoreignore".to_vec(),
        rule: b"*.o".to_vec(),
    };
    let default = Rule {
        origin: b"-default".to_vec(),
        rule: b".git".to_vec(),
    };
    write("catalog", "rules", &encode_rules(&[default, rule]).unwrap());
    let left = |path: &[u8], reason, rule: &[u8]| LeftOut {
        path: path.to_vec(),
        reason,
        rule: rule.to_vec(),
    };
    let left = [
        left(b"a/b", LeftOutReason::Rule, b"b"),
        left(b"socket", LeftOutReason::Special, b"socket"),
    ];
    write("catalog", "left-out", &encode_left_out(&left).unwrap());
    let wrote = [
        Wrote {
            path: b"a".to_vec(),
            digest: Some([9; 32]),
        },
        Wrote {
            path: b"b".to_vec(),
            digest: None,
        },
    ];
    write("catalog", "wrote", &encode_wrote(&wrote).unwrap());
    let groups = [
        vec![b"a".to_vec(), b"b/c".to_vec()],
        vec![b"d".to_vec(), b"e".to_vec(), b"f".to_vec()],
    ];
    write(
        "catalog",
        "hard-links",
        &encode_hard_links(&groups).unwrap(),
    );
    whole_catalog();
}

/// Remembers in which order objects were put.
#[derive(Default)]
struct Ordered(MemoryObjects, Mutex<Vec<ObjectId>>);

impl ObjectSink for Ordered {
    fn put(&self, bytes: &[u8], class: Class) -> store_core::Result<ObjectId> {
        let id = self.0.put(bytes, class)?;
        self.1.lock().unwrap().push(id);
        Ok(id)
    }
}

/// A catalog with two lineages, its root first; each id's first byte is replaced by the place of the object that it names.
fn whole_catalog() {
    let objects = Ordered::default();
    let nothing = MemoryObjects::new();
    let mut edit = CatalogEdit::new(&Catalog::empty(&nothing));
    for (name, checkpoints) in [(&b"one"[..], 70u8), (b"two", 2)] {
        edit.ensure_lineage(name, b"/home/someone", b"host", None)
            .unwrap();
        for number in 1..=checkpoints {
            let mut nonce = [number; 16];
            nonce[0] = name[0];
            let record = CheckpointRecord {
                nonce: Nonce::from_bytes(nonce),
                ..record()
            };
            let id = objects
                .put(&record.encode().unwrap(), Class::Catalog)
                .unwrap();
            edit.add_checkpoint(name, id, TIME).unwrap();
        }
        edit.set_tag(name, 1, "v1").unwrap();
        edit.set_key(name, Role::After, b"key", 2).unwrap();
    }
    edit.finish(&objects).unwrap();
    let mut order: Vec<ObjectId> = objects.1.into_inner().unwrap();
    order.reverse();
    let mut bytes: Vec<Vec<u8>> = order
        .iter()
        .map(|id| objects.0.get(id, 1 << 20).unwrap())
        .collect();
    for (place, id) in order.iter().enumerate() {
        for object in &mut bytes {
            let found = object
                .windows(32)
                .position(|window| window == id.as_bytes());
            // In a map of ids they are keys, whose order counts.
            if let (Some(at), Ok(place)) = (found, u8::try_from(place))
                && (object.starts_with(b"cat1")
                    || object.starts_with(b"lin1")
                    || object.starts_with(b"map1\x01"))
            {
                object[at] = place;
            }
        }
    }
    bytes.truncate(20);
    write("catalog", "whole", &joined(&bytes));
    for (number, object) in bytes
        .iter()
        .filter(|object| object.starts_with(b"map1"))
        .take(4)
        .enumerate()
    {
        assert!(Node::decode(object).is_ok());
        write("catalog", &format!("node-{number}"), object);
    }
}

/// A pack that is written to memory.
struct Growing(Vec<u8>);

impl PackSinkFile for Growing {
    fn append(&mut self, bytes: &[u8]) -> store_core::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

fn packs() {
    let pack = |name: &str, objects: &[(Vec<u8>, Class)]| {
        let writer = PackWriter::new(
            Box::new(|_| Ok(false)),
            Box::new(|| Ok(Growing(Vec::new()))),
            u64::MAX,
        );
        for (bytes, class) in objects {
            writer.put(bytes, *class).unwrap();
        }
        let sealed = writer.seal().unwrap().pop().unwrap();
        write("pack", name, &sealed.file.0);
    };
    let mut random = Random::new(1);
    pack("one", &[(b"one".to_vec(), Class::Chunk)]);
    pack("empty-object", &[(Vec::new(), Class::Chunk)]);
    pack(
        "raw",
        &[
            (random.bytes(100), Class::Chunk),
            (random.bytes(9), Class::Chunk),
        ],
    );
    pack(
        "zstd",
        &[
            (b"the same again and ".repeat(20), Class::Tree),
            (b"again and ".repeat(30), Class::Tree),
        ],
    );
    let mixed = [Class::Chunk, Class::Tree, Class::Catalog]
        .map(|class| (b"all work and no play ".repeat(9), class));
    pack(
        "mixed",
        &mixed
            .into_iter()
            .chain([(random.bytes(40), Class::Catalog)])
            .collect::<Vec<_>>(),
    );
}

/// Sequences of the plain test, and some that go straight at one thing.
fn operations() {
    for seed in 0..12 {
        write("operations", &format!("seeded-{seed}"), &sequence(seed));
    }
    let file = |content| [0, 0, content, 0];
    let checkpoint = [116, 0, 0b1, 0];
    let undo = [196, 0, 1, 1];
    let (tag, activate, fault, mend) = (
        [169, 0, 0, 0],
        [215, 1, 1, 1],
        [225, 0, 0, 0],
        [230, 0, 0, 0],
    );
    let sequence = |name: &str, operations: &[[u8; BYTES]]| {
        write("operations", name, operations.as_flattened());
    };
    sequence(
        "undo-redo",
        &[
            file(1),
            checkpoint,
            file(2),
            checkpoint,
            undo,
            undo,
            undo,
            checkpoint,
        ],
    );
    sequence(
        "activate",
        &[
            file(1),
            checkpoint,
            file(2),
            checkpoint,
            activate,
            file(3),
            checkpoint,
            undo,
        ],
    );
    sequence(
        "mend",
        &[
            file(1),
            checkpoint,
            fault,
            checkpoint,
            mend,
            file(2),
            checkpoint,
        ],
    );
    sequence(
        "tags",
        &[
            file(1),
            checkpoint,
            tag,
            file(2),
            checkpoint,
            undo,
            tag,
            undo,
            undo,
        ],
    );
    let both = [159, 0, 0b1, 0b0001_0000];
    sequence(
        "meanwhile",
        &[file(1), checkpoint, [0, 1, 1, 0], both, file(2), both],
    );
    assert!(Path::new(&fuzz().join("corpus/operations/meanwhile")).is_file());
}
