//! The map of `docs/format.md` section 8: a copy-on-write B+-tree of nodes of at most 64 rows.
//!
//! Invariants: nodes in memory obey the rules of the format at every moment between calls; a node that differs from what is
//! stored has no `origin`, and neither has any node above it; stored nodes are never touched. Nodes of an edit stay in
//! memory until [`Map::finish`], so that one commit writes each changed node once.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{damaged, load};
use crate::error::{Error, Result};
use crate::format::catalog::{
    BranchRow, LeafRow, MAX_LEVEL, MAX_ROWS, Node as StoredNode, Rows as StoredRows,
};
use crate::id::ObjectId;
use crate::objects::{Class, ObjectSink, ObjectSource};

/// Siblings that together have at most so many rows become one node. Less than a full node, so that a map whose size
/// hovers does not split and merge in turn.
const MERGED_ROWS: usize = 48;

/// What [`Map::scan`] calls with each key and value.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'v;

/// A map as it is stored, and what was changed about it since.
#[derive(Clone)]
pub struct Map<'s> {
    source: &'s dyn ObjectSource,
    top: Option<Child>,
}

#[derive(Clone)]
enum Child {
    Stored(ObjectId),
    Loaded(Arc<Node>),
}

#[derive(Clone)]
struct Node {
    /// The object that holds exactly this; `None` once it was changed.
    origin: Option<ObjectId>,
    level: u8,
    rows: Rows,
}

#[derive(Clone)]
enum Rows {
    Leaf(Vec<LeafRow>),
    Branch(Vec<Branch>),
}

#[derive(Clone)]
struct Branch {
    key: Vec<u8>,
    count: u64,
    child: Child,
}

impl Node {
    fn first_key(&self) -> &[u8] {
        match &self.rows {
            Rows::Leaf(rows) => rows.first().map_or(&[], |row| &row.key),
            Rows::Branch(rows) => rows.first().map_or(&[], |row| &row.key),
        }
    }

    fn last_key(&self) -> &[u8] {
        match &self.rows {
            Rows::Leaf(rows) => rows.last().map_or(&[], |row| &row.key),
            Rows::Branch(rows) => rows.last().map_or(&[], |row| &row.key),
        }
    }

    fn count(&self) -> u64 {
        match &self.rows {
            Rows::Leaf(rows) => rows.len() as u64,
            Rows::Branch(rows) => rows.iter().map(|row| row.count).sum(),
        }
    }

    fn len(&self) -> usize {
        match &self.rows {
            Rows::Leaf(rows) => rows.len(),
            Rows::Branch(rows) => rows.len(),
        }
    }
}

impl Branch {
    fn over(node: Node) -> Self {
        let (key, count) = (node.first_key().to_vec(), node.count());
        Self {
            key,
            count,
            child: Child::Loaded(Arc::new(node)),
        }
    }

    /// Promises again what the node below, which was changed, holds now.
    fn refresh(&mut self) {
        if let Child::Loaded(node) = &self.child {
            self.key = node.first_key().to_vec();
            self.count = node.count();
        }
    }
}

/// The row under which `key` belongs; `None` if it is below all.
fn owner(rows: &[Branch], key: &[u8]) -> Option<usize> {
    rows.partition_point(|row| row.key.as_slice() <= key)
        .checked_sub(1)
}

fn upper_bound<'b>(rows: &'b [Branch], index: usize, upper: Option<&'b [u8]>) -> Option<&'b [u8]> {
    rows.get(index + 1).map(|row| row.key.as_slice()).or(upper)
}

/// Reads a node that nothing but a map's name promises anything about.
fn load_top(source: &dyn ObjectSource, id: &ObjectId) -> Result<Node> {
    let stored = load(source, id, StoredNode::decode)?;
    let rows = match stored.rows {
        StoredRows::Leaf(rows) => Rows::Leaf(rows),
        StoredRows::Branch(rows) => {
            let branch = |row: BranchRow| Branch {
                key: row.key,
                count: row.count,
                child: Child::Stored(row.child),
            };
            Rows::Branch(rows.into_iter().map(branch).collect())
        }
    };
    Ok(Node {
        origin: Some(*id),
        level: stored.level,
        rows,
    })
}

/// Reads the node of a row, and holds it to what the row and its neighbour promise.
fn load_child(
    source: &dyn ObjectSource,
    id: &ObjectId,
    level: u8,
    row: &Branch,
    upper: Option<&[u8]>,
) -> Result<Node> {
    let node = load_top(source, id)?;
    let problem = if node.level.checked_add(1) != Some(level) {
        "a map node is not on the level that the node above it promises"
    } else if node.first_key() != row.key {
        "a map node does not begin with the key that the node above it promises"
    } else if node.count() != row.count {
        "a map node does not hold as many rows as the node above it promises"
    } else if upper.is_some_and(|upper| node.last_key() >= upper) {
        "a map node holds keys that belong to its neighbour"
    } else {
        return Ok(node);
    };
    Err(damaged(id, problem))
}

/// The node of a row, loaded into the tree so that it can be changed.
fn load_mut<'n>(
    source: &dyn ObjectSource,
    rows: &'n mut [Branch],
    index: usize,
    level: u8,
    upper: Option<&[u8]>,
) -> Result<&'n mut Node> {
    if let Child::Stored(id) = rows[index].child {
        let bound = upper_bound(rows, index, upper);
        let node = load_child(source, &id, level, &rows[index], bound)?;
        rows[index].child = Child::Loaded(Arc::new(node));
    }
    match &mut rows[index].child {
        Child::Loaded(node) => Ok(Arc::make_mut(node)),
        Child::Stored(_) => unreachable!("BUG: the row was loaded just above"),
    }
}

/// A node on the way down, and the key that everything under it is below.
struct Frame {
    node: Arc<Node>,
    upper: Option<Vec<u8>>,
}

impl Frame {
    fn enter(&self, source: &dyn ObjectSource, rows: &[Branch], index: usize) -> Result<Self> {
        let upper = upper_bound(rows, index, self.upper.as_deref());
        let node = match &rows[index].child {
            Child::Loaded(node) => Arc::clone(node),
            Child::Stored(id) => Arc::new(load_child(
                source,
                id,
                self.node.level,
                &rows[index],
                upper,
            )?),
        };
        Ok(Self {
            node,
            upper: upper.map(<[u8]>::to_vec),
        })
    }
}

impl<'s> Map<'s> {
    /// The map whose top node is `top`; `None` is the empty map. Nothing is read yet.
    pub fn open(source: &'s dyn ObjectSource, top: Option<ObjectId>) -> Self {
        Self {
            source,
            top: top.map(Child::Stored),
        }
    }

    /// Whether the map has no rows.
    pub fn is_empty(&self) -> bool {
        self.top.is_none()
    }

    fn top(&self) -> Result<Option<Frame>> {
        let node = match &self.top {
            None => return Ok(None),
            Some(Child::Loaded(node)) => Arc::clone(node),
            Some(Child::Stored(id)) => Arc::new(load_top(self.source, id)?),
        };
        Ok(Some(Frame { node, upper: None }))
    }

    /// How many rows there are.
    ///
    /// # Errors
    /// If the top node cannot be read.
    pub fn count(&self) -> Result<u64> {
        Ok(self.top()?.map_or(0, |top| top.node.count()))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If a node on the way cannot be read, or is not what the node above it promises.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(mut frame) = self.top()? else {
            return Ok(None);
        };
        loop {
            let next = match &frame.node.rows {
                Rows::Leaf(rows) => {
                    let found = rows.binary_search_by(|row| row.key.as_slice().cmp(key));
                    return Ok(found.ok().map(|at| rows[at].value.clone()));
                }
                Rows::Branch(rows) => match owner(rows, key) {
                    None => return Ok(None),
                    Some(index) => frame.enter(self.source, rows, index)?,
                },
            };
            frame = next;
        }
    }

    /// The row at a place in key order, counted from 0.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn at(&self, mut place: u64) -> Result<Option<LeafRow>> {
        let Some(mut frame) = self.top()? else {
            return Ok(None);
        };
        loop {
            let next = match &frame.node.rows {
                Rows::Leaf(rows) => {
                    return Ok(usize::try_from(place)
                        .ok()
                        .and_then(|place| rows.get(place))
                        .cloned());
                }
                Rows::Branch(rows) => {
                    let mut index = 0;
                    while index < rows.len() && place >= rows[index].count {
                        place -= rows[index].count;
                        index += 1;
                    }
                    if index == rows.len() {
                        return Ok(None);
                    }
                    frame.enter(self.source, rows, index)?
                }
            };
            frame = next;
        }
    }

    /// The row with the lowest key.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn first(&self) -> Result<Option<LeafRow>> {
        self.rows(None, false).next().transpose()
    }

    /// The row with the highest key.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn last(&self) -> Result<Option<LeafRow>> {
        self.rows(None, true).next().transpose()
    }

    /// The rows in key order, or in reverse, starting with the key `from` (or with the nearest one in that direction).
    /// One node of each level is held at a time. The rows are those of this moment: later edits do not show.
    pub fn rows(&self, from: Option<&[u8]>, reverse: bool) -> Scan<'s> {
        Scan {
            source: self.source,
            start: self.top.clone().map(|top| (top, from.map(<[u8]>::to_vec))),
            stack: Vec::new(),
            reverse,
        }
    }

    /// Calls `visit` for each row of [`Map::rows`] until it breaks.
    ///
    /// # Errors
    /// As [`Map::get`], or what `visit` returns.
    pub fn scan(&self, from: Option<&[u8]>, reverse: bool, visit: &mut Visit<'_>) -> Result<()> {
        for row in self.rows(from, reverse) {
            let row = row?;
            if visit(&row.key, &row.value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Names every stored node, each before it is read; leaves are not read. What is under a node is left out if `enter`
    /// answers false for it.
    ///
    /// # Errors
    /// As [`Map::get`], or what `enter` returns.
    pub fn walk_nodes(&self, enter: &mut dyn FnMut(&ObjectId) -> Result<bool>) -> Result<()> {
        let Some(Child::Stored(id)) = &self.top else {
            return Ok(());
        };
        if !enter(id)? {
            return Ok(());
        }
        let mut stack = Vec::from_iter(self.top()?);
        while let Some(frame) = stack.pop() {
            let Rows::Branch(rows) = &frame.node.rows else {
                continue;
            };
            for (index, row) in rows.iter().enumerate() {
                let Child::Stored(id) = &row.child else {
                    continue;
                };
                if enter(id)? && frame.node.level > 1 {
                    stack.push(frame.enter(self.source, rows, index)?);
                }
            }
        }
        Ok(())
    }

    /// Sets the value of a key and returns the one before. A value that is there already changes nothing.
    ///
    /// # Errors
    /// If a node on the way cannot be read; nothing was changed.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        if key.len() > usize::from(u16::MAX) {
            return Err(Error::invalid("map", "a key is too long"));
        }
        let source = self.source;
        let Some(top) = self.load_top_mut()? else {
            let rows = Rows::Leaf(vec![LeafRow {
                key: key.to_vec(),
                value: value.to_vec(),
            }]);
            self.top = Some(Child::Loaded(Arc::new(Node {
                origin: None,
                level: 0,
                rows,
            })));
            return Ok(None);
        };
        if top.level == MAX_LEVEL && top.len() == MAX_ROWS {
            return Err(Error::invalid("map", "too deep"));
        }
        let Inserted { previous, split } = insert_into(source, top, key, value, None, true)?;
        if let Some(right) = split {
            let level = top.level + 1;
            let empty = Node {
                origin: None,
                level: 0,
                rows: Rows::Leaf(Vec::new()),
            };
            let left = std::mem::replace(top, empty);
            let rows = Rows::Branch(vec![Branch::over(left), Branch::over(right)]);
            *top = Node {
                origin: None,
                level,
                rows,
            };
        }
        Ok(previous)
    }

    /// Removes a key and returns its value.
    ///
    /// # Errors
    /// If a node on the way cannot be read; nothing was changed.
    pub fn remove(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let source = self.source;
        let Some(top) = self.load_top_mut()? else {
            return Ok(None);
        };
        let removed = remove_from(source, top, key, None)?;
        if removed.is_some() {
            self.shrink();
        }
        Ok(removed)
    }

    /// Writes the nodes that were changed, each once, and returns the id of the top node.
    ///
    /// # Errors
    /// If the sink fails, or a row is larger than a node may be.
    pub fn finish(self, sink: &dyn ObjectSink) -> Result<Option<ObjectId>> {
        self.top.as_ref().map(|top| write(top, sink)).transpose()
    }

    fn load_top_mut(&mut self) -> Result<Option<&mut Node>> {
        if let Some(Child::Stored(id)) = self.top {
            self.top = Some(Child::Loaded(Arc::new(load_top(self.source, &id)?)));
        }
        Ok(match &mut self.top {
            Some(Child::Loaded(node)) => Some(Arc::make_mut(node)),
            Some(Child::Stored(_)) | None => None,
        })
    }

    /// Takes away top nodes that have nothing, or only one node, under them.
    fn shrink(&mut self) {
        loop {
            let Some(Child::Loaded(top)) = &mut self.top else {
                return;
            };
            let top = Arc::make_mut(top);
            match &mut top.rows {
                Rows::Leaf(rows) if rows.is_empty() => self.top = None,
                Rows::Branch(rows) if rows.is_empty() => self.top = None,
                Rows::Branch(rows) if rows.len() == 1 => {
                    // Only a top node that was held to its promise may take the place of the one that promised. If it cannot
                    // be read, the map stays a level deeper, which the format allows.
                    if load_mut(self.source, rows, 0, top.level, None).is_err() {
                        return;
                    }
                    let child = rows[0].child.clone();
                    self.top = Some(child);
                }
                _ => return,
            }
        }
    }
}

struct Inserted {
    previous: Option<Vec<u8>>,
    /// The new right-hand neighbour of the node, if it had to be split.
    split: Option<Node>,
}

fn insert_into(
    source: &dyn ObjectSource,
    node: &mut Node,
    key: &[u8],
    value: &[u8],
    upper: Option<&[u8]>,
    right_edge: bool,
) -> Result<Inserted> {
    let level = node.level;
    match &mut node.rows {
        Rows::Leaf(rows) => match rows.binary_search_by(|row| row.key.as_slice().cmp(key)) {
            Ok(at) => {
                let previous = std::mem::replace(&mut rows[at].value, value.to_vec());
                if previous != value {
                    node.origin = None;
                }
                Ok(Inserted {
                    previous: Some(previous),
                    split: None,
                })
            }
            Err(at) => {
                let row = LeafRow {
                    key: key.to_vec(),
                    value: value.to_vec(),
                };
                let split = place(rows, at, row, right_edge, &mut node.origin);
                let split = split.map(|rows| Node {
                    origin: None,
                    level,
                    rows: Rows::Leaf(rows),
                });
                Ok(Inserted {
                    previous: None,
                    split,
                })
            }
        },
        Rows::Branch(rows) => {
            let index = owner(rows, key).unwrap_or(0);
            let bound = upper_bound(rows, index, upper).map(<[u8]>::to_vec);
            let last = index + 1 == rows.len();
            let child = load_mut(source, rows, index, level, upper)?;
            let inserted = insert_into(
                source,
                child,
                key,
                value,
                bound.as_deref(),
                right_edge && last,
            )?;
            if child.origin.is_none() {
                rows[index].refresh();
                node.origin = None;
            }
            let Some(right) = inserted.split else {
                return Ok(inserted);
            };
            let split = place(
                rows,
                index + 1,
                Branch::over(right),
                right_edge,
                &mut node.origin,
            );
            let split = split.map(|rows| Node {
                origin: None,
                level,
                rows: Rows::Branch(rows),
            });
            Ok(Inserted {
                previous: inserted.previous,
                split,
            })
        }
    }
}

/// Puts a row where it belongs, and returns the rows of a new right-hand neighbour if they are too many now.
///
/// At the right edge of the map a full node is left as it is and the row begins the neighbour: keys that ascend leave full
/// nodes behind.
fn place<T>(
    rows: &mut Vec<T>,
    at: usize,
    row: T,
    right_edge: bool,
    origin: &mut Option<ObjectId>,
) -> Option<Vec<T>> {
    if right_edge && at == MAX_ROWS {
        return Some(vec![row]);
    }
    *origin = None;
    rows.insert(at, row);
    (rows.len() > MAX_ROWS).then(|| rows.split_off(rows.len() / 2))
}

fn remove_from(
    source: &dyn ObjectSource,
    node: &mut Node,
    key: &[u8],
    upper: Option<&[u8]>,
) -> Result<Option<Vec<u8>>> {
    let level = node.level;
    match &mut node.rows {
        Rows::Leaf(rows) => match rows.binary_search_by(|row| row.key.as_slice().cmp(key)) {
            Ok(at) => {
                node.origin = None;
                Ok(Some(rows.remove(at).value))
            }
            Err(_) => Ok(None),
        },
        Rows::Branch(rows) => {
            let Some(index) = owner(rows, key) else {
                return Ok(None);
            };
            let bound = upper_bound(rows, index, upper).map(<[u8]>::to_vec);
            let child = load_mut(source, rows, index, level, upper)?;
            let Some(removed) = remove_from(source, child, key, bound.as_deref())? else {
                return Ok(None);
            };
            if child.len() == 0 {
                rows.remove(index);
            } else {
                rows[index].refresh();
                let merged = index > 0 && merge(source, rows, index - 1, level, upper).is_some();
                if !merged && index + 1 < rows.len() {
                    merge(source, rows, index, level, upper);
                }
            }
            node.origin = None;
            Ok(Some(removed))
        }
    }
}

/// Makes one node of the rows at `left` and right of it, if they are sparse enough. A neighbour that cannot be read is left
/// alone: damage in one node must not keep rows of another from being removed.
fn merge(
    source: &dyn ObjectSource,
    rows: &mut Vec<Branch>,
    left: usize,
    level: u8,
    upper: Option<&[u8]>,
) -> Option<()> {
    let known_leaves = level == 1;
    if known_leaves && rows[left].count.saturating_add(rows[left + 1].count) > MERGED_ROWS as u64 {
        return None;
    }
    let left_len = load_mut(source, rows, left, level, upper).ok()?.len();
    let right = load_mut(source, rows, left + 1, level, upper).ok()?;
    if left_len + right.len() > MERGED_ROWS {
        return None;
    }
    let right = right.clone();
    let into = load_mut(source, rows, left, level, upper).ok()?;
    match (&mut into.rows, right.rows) {
        (Rows::Leaf(into), Rows::Leaf(rows)) => into.extend(rows),
        (Rows::Branch(into), Rows::Branch(rows)) => into.extend(rows),
        _ => return None,
    }
    into.origin = None;
    rows[left].refresh();
    rows.remove(left + 1);
    Some(())
}

/// Writes what is not stored yet under `child`, the lowest first.
fn write(child: &Child, sink: &dyn ObjectSink) -> Result<ObjectId> {
    let node = match child {
        Child::Stored(id) => return Ok(*id),
        Child::Loaded(node) => node,
    };
    if let Some(id) = node.origin {
        return Ok(id);
    }
    let rows = match &node.rows {
        Rows::Leaf(rows) => StoredRows::Leaf(rows.clone()),
        Rows::Branch(rows) => {
            let mut stored = Vec::with_capacity(rows.len());
            for row in rows {
                let child = write(&row.child, sink)?;
                stored.push(BranchRow {
                    key: row.key.clone(),
                    child,
                    count: row.count,
                });
            }
            StoredRows::Branch(stored)
        }
    };
    sink.put(
        &StoredNode {
            level: node.level,
            rows,
        }
        .encode()?,
        Class::Catalog,
    )
}

/// The rows of a map, one after the other. After an error there is nothing more.
pub struct Scan<'s> {
    source: &'s dyn ObjectSource,
    /// Where to begin; taken by the first call.
    start: Option<(Child, Option<Vec<u8>>)>,
    /// The nodes on the way down, each with the number of its rows that were passed already (counted from its end when going
    /// in reverse).
    stack: Vec<(Frame, usize)>,
    reverse: bool,
}

impl Scan<'_> {
    /// How many rows of a node lie before the key at which to begin.
    fn passed(&self, node: &Node, from: Option<&[u8]>) -> usize {
        let Some(from) = from else { return 0 };
        match (&node.rows, self.reverse) {
            (Rows::Leaf(rows), false) => rows.partition_point(|row| row.key.as_slice() < from),
            (Rows::Leaf(rows), true) => {
                rows.len() - rows.partition_point(|row| row.key.as_slice() <= from)
            }
            (Rows::Branch(rows), false) => owner(rows, from).unwrap_or(0),
            (Rows::Branch(rows), true) => {
                owner(rows, from).map_or(rows.len(), |index| rows.len() - 1 - index)
            }
        }
    }

    /// Goes down to the first leaf, leaving the way there on the stack.
    fn descend(&mut self, top: &Child, from: Option<&[u8]>) -> Result<()> {
        let node = match top {
            Child::Loaded(node) => Arc::clone(node),
            Child::Stored(id) => Arc::new(load_top(self.source, id)?),
        };
        let mut frame = Frame { node, upper: None };
        loop {
            let passed = self.passed(&frame.node, from);
            let next = match &frame.node.rows {
                Rows::Branch(rows) if passed < rows.len() => {
                    let index = if self.reverse {
                        rows.len() - 1 - passed
                    } else {
                        passed
                    };
                    Some(frame.enter(self.source, rows, index)?)
                }
                _ => None,
            };
            self.stack
                .push((frame, if next.is_some() { passed + 1 } else { passed }));
            match next {
                Some(next) => frame = next,
                None => return Ok(()),
            }
        }
    }

    fn step(&mut self) -> Result<Option<LeafRow>> {
        if let Some((top, from)) = self.start.take() {
            self.descend(&top, from.as_deref())?;
        }
        while let Some((frame, passed)) = self.stack.last_mut() {
            let len = frame.node.len();
            if *passed == len {
                self.stack.pop();
                continue;
            }
            let index = if self.reverse {
                len - 1 - *passed
            } else {
                *passed
            };
            *passed += 1;
            match &frame.node.rows {
                Rows::Leaf(rows) => return Ok(Some(rows[index].clone())),
                Rows::Branch(rows) => {
                    let next = frame.enter(self.source, rows, index)?;
                    self.stack.push((next, 0));
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<LeafRow>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.step();
        if row.is_err() {
            self.stack.clear();
        }
        row.transpose()
    }
}

#[cfg(test)]
pub(crate) mod tests;
