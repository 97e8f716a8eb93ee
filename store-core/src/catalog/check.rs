//! Looking for contradictions in a catalog: every rule of `docs/format.md` section 8 that no single object can show.

use std::collections::BTreeMap;

use crate::catalog::map::Map;
use crate::catalog::view::{Catalog, LineageView, parse_key};
use crate::error::{Error, Result};
use crate::format::catalog::{LeafRow, parse_number, parse_source_key, source_key};
use crate::id::ObjectId;
use crate::name::escape;

/// Everything that is wrong with a catalog, in words; nothing if it is sound. Reads every object of the catalog, and no
/// records. What cannot be read is reported, and the rest is still looked at.
pub fn check(catalog: &Catalog<'_>) -> Vec<String> {
    let mut check = Check {
        catalog,
        problems: Vec::new(),
        seen: BTreeMap::new(),
    };
    for row in check.rows(&catalog.lineages, "lineages") {
        match LineageView::of_row(catalog.source, &row) {
            Ok(view) => check.lineage(&view),
            Err(error) => check.problem(format!("lineage {}: {}", escape(&row.key), full(&error))),
        }
    }
    check.sources();
    check.ids();
    check.problems
}

struct Check<'c, 's> {
    catalog: &'c Catalog<'s>,
    problems: Vec<String>,
    /// Each checkpoint that a lineage has, with that lineage's name.
    seen: BTreeMap<ObjectId, Vec<u8>>,
}

/// A checkpoint of the lineage being checked: what of it the other maps repeat.
type Tags = BTreeMap<u64, Vec<String>>;

impl Check<'_, '_> {
    fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn ok<T>(&mut self, result: Result<T>, what: &str) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(format!("{what}: {}", full(&error)));
                None
            }
        }
    }

    /// The rows of a map, as far as they can be read.
    fn rows(&mut self, map: &Map<'_>, what: &str) -> Vec<LeafRow> {
        map.rows(None, false)
            .map_while(|row| self.ok(row, what))
            .collect()
    }

    fn lineage(&mut self, view: &LineageView<'_>) {
        let name = escape(view.name());
        let key = source_key(&view.lineage.source, view.name());
        if let Some(None) = self.ok(self.catalog.sources.get(&key), "sources") {
            self.problem(format!("lineage {name}: its source is not listed for it"));
        }
        let tags = self.checkpoints(view, &name);
        self.keys(view, &name, &tags);
        self.tags(view, &name, tags);
    }

    fn checkpoints(&mut self, view: &LineageView<'_>, name: &str) -> Tags {
        let mut tags = Tags::new();
        let what = format!("lineage {name}: checkpoints");
        let checkpoints: Vec<_> = view
            .oldest_first()
            .map_while(|c| self.ok(c, &what))
            .collect();
        for checkpoint in checkpoints {
            let (number, id) = (checkpoint.number, checkpoint.entry.id);
            if number >= view.lineage.next_number {
                self.problem(format!(
                    "lineage {name}: checkpoint {number} is not below its next number"
                ));
            }
            if self.seen.insert(id, view.name().to_vec()).is_some() {
                self.problem(format!(
                    "lineage {name}: checkpoint {id} is in the catalog twice"
                ));
            }
            let listed = self.ok(self.catalog.ids.get(id.as_bytes()), "ids");
            if listed.is_some_and(|listed| listed.as_deref() != Some(view.name())) {
                self.problem(format!(
                    "lineage {name}: checkpoint {id} is not listed under its id"
                ));
            }
            tags.insert(number, checkpoint.entry.tags);
        }
        tags
    }

    fn keys(&mut self, view: &LineageView<'_>, name: &str, checkpoints: &Tags) {
        for row in self.rows(&view.keys, &format!("lineage {name}: keys")) {
            if parse_key(&row.key).is_none() {
                self.problem(format!(
                    "lineage {name}: the key {} is malformed",
                    escape(&row.key)
                ));
            }
            match parse_number(&row.value) {
                Some(number) if checkpoints.contains_key(&number) => {}
                _ => self.problem(format!(
                    "lineage {name}: a key names a checkpoint that it does not have"
                )),
            }
        }
    }

    fn tags(&mut self, view: &LineageView<'_>, name: &str, mut checkpoints: Tags) {
        for row in self.rows(&view.tags, &format!("lineage {name}: tags")) {
            let number = parse_number(&row.value);
            let tags = number.and_then(|number| checkpoints.get_mut(&number));
            match tags.and_then(|tags| {
                tags.iter()
                    .position(|tag| tag.as_bytes() == row.key)
                    .map(|at| tags.remove(at))
            }) {
                Some(_) => {}
                None => self.problem(format!(
                    "lineage {name}: the tag {} names a checkpoint that does not have it",
                    escape(&row.key)
                )),
            }
        }
        for (number, tags) in checkpoints {
            for tag in tags {
                self.problem(format!(
                    "lineage {name}: the tag {tag} of checkpoint {number} is not listed"
                ));
            }
        }
    }

    fn sources(&mut self) {
        for row in self.rows(&self.catalog.sources, "sources") {
            let Some((source, name)) = parse_source_key(&row.key) else {
                self.problem(format!(
                    "sources: the key {} is malformed",
                    escape(&row.key)
                ));
                continue;
            };
            if !row.value.is_empty() {
                self.problem(format!("sources: {} has a value", escape(source)));
            }
            let lineage = self.catalog.lineage(name);
            // A lineage that cannot be read was reported above.
            if lineage.is_ok_and(|lineage| lineage.is_none_or(|view| view.lineage.source != source))
            {
                self.problem(format!(
                    "sources: {} is listed for {}, which does not have it",
                    escape(source),
                    escape(name)
                ));
            }
        }
    }

    fn ids(&mut self) {
        for row in self.rows(&self.catalog.ids, "ids") {
            let Ok(bytes) = <[u8; ObjectId::LEN]>::try_from(row.key.as_slice()) else {
                self.problem(format!("ids: the key {} is malformed", escape(&row.key)));
                continue;
            };
            let id = ObjectId::from_bytes(bytes);
            if self.seen.get(&id) != Some(&row.value) {
                let name = escape(&row.value);
                self.problem(format!(
                    "ids: {id} is listed under {name}, which does not have it"
                ));
            }
        }
    }
}

fn full(error: &Error) -> String {
    use std::error::Error as _;
    error
        .source()
        .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests;
