use std::collections::BTreeMap;

use super::*;
use crate::objects::memory::MemoryObjects;

/// A seeded generator (`SplitMix64`), so that a failure can be run again.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The rows of each node, level by level from the leaves; checks every promise on the way, and that nodes are not sparse.
fn shape(objects: &MemoryObjects, top: Option<ObjectId>) -> Vec<Vec<usize>> {
    fn walk(
        objects: &MemoryObjects,
        node: &Node,
        upper: Option<&[u8]>,
        shape: &mut Vec<Vec<usize>>,
    ) {
        shape.resize_with(shape.len().max(usize::from(node.level) + 1), Vec::new);
        shape[usize::from(node.level)].push(node.len());
        let Rows::Branch(rows) = &node.rows else {
            return;
        };
        for (index, row) in rows.iter().enumerate() {
            let Child::Stored(id) = &row.child else {
                panic!("not stored")
            };
            let bound = upper_bound(rows, index, upper);
            let child = load_child(objects, id, node.level, row, bound).unwrap();
            walk(objects, &child, bound, shape);
        }
    }
    let mut sizes = Vec::new();
    if let Some(top) = top {
        walk(objects, &load_top(objects, &top).unwrap(), None, &mut sizes);
    }
    for level in &sizes {
        assert!(
            level.len() < 4 || level.iter().sum::<usize>() / level.len() > 20,
            "sparse: {level:?}"
        );
    }
    sizes
}

fn rows(map: &Map<'_>, from: Option<&[u8]>, reverse: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    map.rows(from, reverse)
        .map(|row| row.map(|row| (row.key, row.value)).unwrap())
        .collect()
}

fn compare(
    map: &Map<'_>,
    model: &Model,
    random: &mut Random,
    key: impl Fn(&mut Random) -> Vec<u8>,
) {
    let all: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(rows(map, None, false), all);
    assert_eq!(map.count().unwrap(), all.len() as u64);
    assert_eq!(map.is_empty(), all.is_empty());
    let pair = |row: Option<LeafRow>| row.map(|row| (row.key, row.value));
    assert_eq!(pair(map.first().unwrap()), all.first().cloned());
    assert_eq!(pair(map.last().unwrap()), all.last().cloned());
    assert_eq!(map.at(all.len() as u64).unwrap(), None);
    for _ in 0..4 {
        let from = key(random);
        let after: Vec<_> = model
            .range(from.clone()..)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert_eq!(rows(map, Some(&from), false), after);
        let before = model
            .range(..=from.clone())
            .rev()
            .map(|(k, v)| (k.clone(), v.clone()));
        assert_eq!(rows(map, Some(&from), true), before.collect::<Vec<_>>());
        assert_eq!(map.get(&from).unwrap(), model.get(&from).cloned());
        if !all.is_empty() {
            let place = random.index(all.len());
            assert_eq!(
                pair(map.at(place as u64).unwrap()),
                Some(all[place].clone())
            );
        }
    }
}

/// Random edits, finished and opened again at random, against a `BTreeMap`.
fn against_model(seed: u64, operations: u32, key: impl Fn(&mut Random) -> Vec<u8>) {
    let objects = MemoryObjects::new();
    let mut random = Random(seed);
    let mut model = Model::new();
    let mut map = Map::open(&objects, None);
    let mut removing = 30;
    for operation in 0..operations {
        if operation % 2000 == 0 {
            // Phases of growth and of decline, down to nothing.
            removing = [20, 50, 95][random.index(3)];
        }
        let at = match random.below(8) {
            0 if !model.is_empty() => {
                let from = key(&mut random);
                model
                    .range(from..)
                    .next()
                    .or(model.first_key_value())
                    .unwrap()
                    .0
                    .clone()
            }
            _ => key(&mut random),
        };
        if random.below(100) < removing {
            let existing = model
                .range(at.clone()..)
                .next()
                .map_or(at, |(key, _)| key.clone());
            assert_eq!(map.remove(&existing).unwrap(), model.remove(&existing));
        } else {
            let value = random.below(5).to_le_bytes()[..random.index(8)].to_vec();
            assert_eq!(map.insert(&at, &value).unwrap(), model.insert(at, value));
        }
        if random.below(300) == 0 {
            compare(&map, &model, &mut random, &key);
            let top = map.finish(&objects).unwrap();
            shape(&objects, top);
            map = Map::open(&objects, top);
            compare(&map, &model, &mut random, &key);
        }
    }
    while let Some((key, value)) = model.pop_last() {
        assert_eq!(map.remove(&key).unwrap(), Some(value));
    }
    assert!(map.is_empty());
    assert_eq!(map.finish(&objects).unwrap(), None);
}

#[test]
fn a_map_is_a_sorted_map() {
    against_model(1, 20_000, |random| {
        random.below(3000).to_be_bytes().to_vec()
    });
    against_model(2, 20_000, |random| {
        let mut key = ObjectId::of(&random.below(20_000).to_le_bytes())
            .as_bytes()
            .to_vec();
        key.truncate(random.index(33));
        key
    });
    against_model(3, 10_000, |random| vec![b'x'; random.index(200)]);
}

#[test]
fn numbers_in_order_leave_full_nodes_and_cost_few_writes() {
    let objects = MemoryObjects::new();
    let mut top = None;
    for number in 1..=10_000u64 {
        let before = objects.puts();
        let mut map = Map::open(&objects, top);
        map.insert(&number.to_be_bytes(), b"entry").unwrap();
        top = map.finish(&objects).unwrap();
        // One node of each level, also when a new one is begun.
        assert!(
            objects.puts() - before <= 3,
            "{number}: {} writes",
            objects.puts() - before
        );
    }
    let shape = shape(&objects, top);
    assert_eq!(shape.len(), 3);
    for level in &shape[..2] {
        let (_last, full) = level.split_last().unwrap();
        assert!(full.iter().all(|&len| len == MAX_ROWS), "{level:?}");
    }
}

#[test]
fn random_keys_fill_nodes_more_than_half() {
    let objects = MemoryObjects::new();
    let mut map = Map::open(&objects, None);
    for n in 0..10_000u64 {
        map.insert(ObjectId::of(&n.to_le_bytes()).as_bytes(), b"lineage")
            .unwrap();
    }
    let top = map.finish(&objects).unwrap();
    // Nodes that came and went during the edit were never written.
    let sizes = shape(&objects, top);
    assert_eq!(sizes.iter().map(Vec::len).sum::<usize>(), objects.len());
    let leaves = sizes[0].len();
    assert!(leaves < 10_000 / 40, "{leaves} leaves");
}

#[test]
fn an_edit_that_changes_nothing_writes_nothing() {
    let (objects, top) = numbered(1000);
    let puts = objects.puts();
    let mut map = Map::open(&objects, Some(top));
    map.insert(&5u64.to_be_bytes(), b"v").unwrap();
    map.remove(b"no such key").unwrap();
    map.remove(&[0xff; 9]).unwrap();
    assert_eq!(map.finish(&objects).unwrap(), Some(top));
    assert_eq!(objects.puts(), puts);
}

#[test]
fn an_older_top_still_shows_the_older_map() {
    let (objects, top) = numbered(500);
    let mut map = Map::open(&objects, Some(top));
    let scan = map.rows(None, false);
    for n in 0..500u64 {
        map.remove(&n.to_be_bytes()).unwrap();
    }
    assert!(map.is_empty());
    assert_eq!(scan.count(), 500);
    assert_eq!(Map::open(&objects, Some(top)).count().unwrap(), 500);
}

#[test]
fn a_scan_reads_a_node_at_a_time() {
    let (objects, top) = numbered(10_000);
    let map = Map::open(&objects, Some(top));
    for reverse in [false, true] {
        let before = objects.gets();
        let mut seen = 0;
        map.scan(Some(&5000u64.to_be_bytes()), reverse, &mut |_, _| {
            seen += 1;
            Ok(if seen == 10 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })
        .unwrap();
        assert_eq!(seen, 10);
        assert!(objects.gets() - before <= 4);
    }
    let before = objects.gets();
    assert_eq!(map.at(9_999).unwrap().unwrap().key, 9_999u64.to_be_bytes());
    assert_eq!(objects.gets() - before, 3);
}

fn numbered(count: u64) -> (MemoryObjects, ObjectId) {
    let objects = MemoryObjects::new();
    let mut map = Map::open(&objects, None);
    for n in 0..count {
        map.insert(&n.to_be_bytes(), b"v").unwrap();
    }
    let top = map.finish(&objects).unwrap().unwrap();
    (objects, top)
}

#[test]
fn all_nodes_are_named_once_and_leaves_are_not_read() {
    let (objects, top) = numbered(10_000);
    let mut named = Vec::new();
    let gets = objects.gets();
    Map::open(&objects, Some(top))
        .walk_nodes(&mut |id| {
            named.push(*id);
            Ok(true)
        })
        .unwrap();
    assert!(
        objects.gets() - gets < 10,
        "{} reads",
        objects.gets() - gets
    );
    named.sort_unstable();
    assert_eq!(named, objects.ids());
    let mut named = 0;
    Map::open(&objects, Some(top))
        .walk_nodes(&mut |id| {
            named += 1;
            Ok(*id == top)
        })
        .unwrap();
    assert_eq!(named, 1 + 3);
}

/// A map of two leaves with keys 1 to 3 and 4 to 6, with a top node that says something else about the second.
fn lying(change: impl FnOnce(&mut BranchRow), level: u8) -> (MemoryObjects, ObjectId, ObjectId) {
    let objects = MemoryObjects::new();
    let leaf = |keys: [u8; 3]| {
        let row = |key: u8| LeafRow {
            key: vec![key],
            value: vec![],
        };
        let node = StoredNode {
            level: 0,
            rows: StoredRows::Leaf(keys.map(row).into()),
        };
        objects
            .put(&node.encode().unwrap(), Class::Catalog)
            .unwrap()
    };
    let (first, second) = (leaf([1, 2, 3]), leaf([4, 5, 6]));
    let mut row = BranchRow {
        key: vec![4],
        child: second,
        count: 3,
    };
    change(&mut row);
    let blamed = row.child;
    let rows = vec![
        BranchRow {
            key: vec![1],
            child: first,
            count: 3,
        },
        row,
    ];
    let top = StoredNode {
        level,
        rows: StoredRows::Branch(rows),
    };
    let top = objects.put(&top.encode().unwrap(), Class::Catalog).unwrap();
    (objects, top, blamed)
}

#[test]
fn nodes_that_are_not_what_was_promised_are_damage_that_is_named() {
    let first = |row: &mut BranchRow| row.child = first_leaf();
    let cases = [
        lying(|row| row.count = 4, 1),
        lying(|row| row.key = vec![3, 5], 1),
        lying(first, 1),
    ];
    for (objects, top, blamed) in cases {
        let mut map = Map::open(&objects, Some(top));
        for error in [
            map.get(&[5]).unwrap_err(),
            map.insert(&[5], b"").unwrap_err(),
            map.remove(&[5]).unwrap_err(),
            map.last().unwrap_err(),
            map.rows(None, false).find_map(Result::err).unwrap(),
        ] {
            match error {
                Error::Damaged { object, .. } => assert_eq!(object, Some(blamed)),
                other => panic!("{other:?}"),
            }
        }
    }
    let (objects, top, _) = lying(|_| (), 2);
    assert_eq!(
        Map::open(&objects, Some(top)).get(&[1]).unwrap_err().code(),
        "damaged"
    );
    // A first leaf that reaches into the second one's keys.
    let (objects, top, _) = lying(|row| row.key = vec![2], 1);
    assert_eq!(
        Map::open(&objects, Some(top)).get(&[1]).unwrap_err().code(),
        "damaged"
    );
}

fn first_leaf() -> ObjectId {
    let row = |key: u8| LeafRow {
        key: vec![key],
        value: vec![],
    };
    let node = StoredNode {
        level: 0,
        rows: StoredRows::Leaf([1, 2, 3].map(row).into()),
    };
    ObjectId::of(&node.encode().unwrap())
}

#[test]
fn a_scan_ends_after_an_error() {
    let (objects, top) = numbered(200);
    let leaf = Map::open(&objects, Some(top)).rows(None, true).count();
    assert_eq!(leaf, 200);
    let mut leaves = Vec::new();
    let map = Map::open(&objects, Some(top));
    map.walk_nodes(&mut |id| {
        leaves.push(*id);
        Ok(true)
    })
    .unwrap();
    objects.remove(&leaves[2]).unwrap();
    let rows: Vec<_> = map.rows(None, false).collect();
    assert_eq!(rows.len(), MAX_ROWS + 1);
    assert_eq!(
        rows[MAX_ROWS].as_ref().unwrap_err().code(),
        "object_missing"
    );
}

#[test]
fn damage_beside_a_row_does_not_keep_it_from_being_removed() {
    let (objects, top) = numbered(130);
    let mut leaves = Vec::new();
    let mut map = Map::open(&objects, Some(top));
    map.walk_nodes(&mut |id| {
        leaves.push(*id);
        Ok(true)
    })
    .unwrap();
    // Nodes: the top, leaves of 64, 64 and 2. Shrinking the middle one would look at the last one to merge with it.
    objects.remove(&leaves[3]).unwrap();
    for n in 64..128u64 {
        assert!(map.remove(&n.to_be_bytes()).unwrap().is_some());
    }
    assert_eq!(map.count().unwrap(), 66);
}

/// A node of each level above a leaf up to `level`, each with the one below as its only row.
fn tower(objects: &MemoryObjects, keys: &[u8], level: u8) -> ObjectId {
    let put = |node: StoredNode| {
        objects
            .put(&node.encode().unwrap(), Class::Catalog)
            .unwrap()
    };
    let row = |&n: &u8| LeafRow {
        key: vec![n],
        value: vec![],
    };
    let mut id = put(StoredNode {
        level: 0,
        rows: StoredRows::Leaf(keys.iter().map(row).collect()),
    });
    for level in 1..=level {
        let rows = vec![BranchRow {
            key: vec![keys[0]],
            child: id,
            count: keys.len() as u64,
        }];
        id = put(StoredNode {
            level,
            rows: StoredRows::Branch(rows),
        });
    }
    id
}

#[test]
fn a_map_as_deep_as_may_be_is_still_a_map() {
    let objects = MemoryObjects::new();
    let top = tower(&objects, &(0..64).collect::<Vec<_>>(), MAX_LEVEL);
    let mut map = Map::open(&objects, Some(top));
    assert_eq!(map.get(&[63]).unwrap(), Some(vec![]));
    map.insert(&[200], b"").unwrap();
    assert_eq!(map.count().unwrap(), 65);
    let top = map.finish(&objects).unwrap();
    assert_eq!(shape(&objects, top).len(), usize::from(MAX_LEVEL) + 1);
    // A removal makes it as deep as it needs to be.
    let mut map = Map::open(&objects, top);
    map.remove(&[200]).unwrap();
    assert_eq!(shape(&objects, map.finish(&objects).unwrap()), [[64]]);
}

#[test]
fn a_map_that_could_grow_too_deep_is_refused() {
    let objects = MemoryObjects::new();
    let row = |key: u8| {
        let child = tower(&objects, &[key], MAX_LEVEL - 1);
        BranchRow {
            key: vec![key],
            child,
            count: 1,
        }
    };
    let rows = StoredRows::Branch((0..64).map(row).collect());
    let top = StoredNode {
        level: MAX_LEVEL,
        rows,
    }
    .encode()
    .unwrap();
    let top = objects.put(&top, Class::Catalog).unwrap();
    let mut map = Map::open(&objects, Some(top));
    assert_eq!(map.insert(&[200], b"").unwrap_err().code(), "invalid");
    assert_eq!(map.finish(&objects).unwrap(), Some(top));
}
