//! The names in a store (`docs/format.md` section 2). No I/O.

use crate::id::{GenerationId, Nonce, ObjectId};

/// The selector.
pub(crate) const CURRENT: &str = "CURRENT";
/// The file whoever publishes holds locked.
pub(crate) const LOCK: &str = "LOCK";
/// Keeps version control away from a store inside a work tree.
pub(crate) const GITIGNORE: &str = ".gitignore";
/// Space set aside for cleaning up a full disk.
pub(crate) const RESERVE: &str = "reserve";
/// The reserve's size in bytes.
pub(crate) const RESERVE_BYTES: u64 = 1 << 20;
/// The directory of generations.
pub(crate) const GENERATIONS: &str = "generations";
/// The directory of writers at work.
pub(crate) const INCOMING: &str = "incoming";
/// The directory of receipts.
pub(crate) const RECEIPTS: &str = "receipts";
/// The directory of open turns.
pub(crate) const TURNS: &str = "turns";
/// The directory of job records.
pub(crate) const JOBS: &str = "jobs";
/// The directory of derived data.
pub(crate) const CACHE: &str = "cache";
/// A generation's manifest.
pub(crate) const MANIFEST: &str = "manifest.json";
/// What `repair` leaves in a candidate.
pub(crate) const REPAIR_RECEIPT: &str = "repair.json";
/// Every directory that `init` makes.
pub(crate) const DIRECTORIES: [&str; 6] = [GENERATIONS, INCOMING, RECEIPTS, TURNS, JOBS, CACHE];

/// The longest manifest, in bytes (`docs/format.md` section 11).
pub(crate) const MAX_MANIFEST_BYTES: u64 = 16 << 20;

/// Whether `init` makes a file or directory of this name in the store's root.
pub(crate) fn is_fixed_name(name: &[u8]) -> bool {
    let fixed = |known: &str| known.as_bytes() == name;
    [CURRENT, LOCK, GITIGNORE, RESERVE].into_iter().any(fixed)
        || DIRECTORIES.into_iter().any(fixed)
        || is_temporary(name, "current")
}

/// The name of a pack file.
pub(crate) fn pack_name(id: &ObjectId) -> String {
    format!("{id}.pack")
}

/// The pack that a file name names.
pub(crate) fn parse_pack_name(name: &[u8]) -> Option<ObjectId> {
    ObjectId::parse(std::str::from_utf8(name.strip_suffix(b".pack")?).ok()?)
}

/// The name of the claim for a generation.
pub(crate) fn claim_name(id: &GenerationId) -> String {
    format!("{id}.claim")
}

/// The generation that a claim's name names.
pub(crate) fn parse_claim_name(name: &[u8]) -> Option<GenerationId> {
    GenerationId::parse(name.strip_suffix(b".claim")?)
}

/// The kinds of temporary files.
pub(crate) const TEMPORARY_KINDS: [&str; 5] = ["pack", "current", "cache", "receipt", "manifest"];

/// The name of a temporary file.
pub(crate) fn temporary_name(kind: &str, nonce: &Nonce) -> String {
    debug_assert!(
        TEMPORARY_KINDS.contains(&kind),
        "BUG: unknown kind of temporary file {kind}"
    );
    format!("{kind}-{nonce}.tmp")
}

/// Whether a name is that of a temporary file of this kind.
pub(crate) fn is_temporary(name: &[u8], kind: &str) -> bool {
    name.strip_prefix(kind.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"-"))
        .and_then(|rest| rest.strip_suffix(b".tmp"))
        .and_then(|hex| std::str::from_utf8(hex).ok())
        .is_some_and(|hex| Nonce::parse(hex).is_some())
}

/// Whether a name is that of any temporary file.
pub(crate) fn is_any_temporary(name: &[u8]) -> bool {
    TEMPORARY_KINDS
        .into_iter()
        .any(|kind| is_temporary(name, kind))
}

/// The name of a lineage's stat cache.
pub(crate) fn cache_name(lineage: &[u8]) -> String {
    format!("{}.stat", ObjectId::of(lineage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_nothing_else_does() {
        let pack = ObjectId::of(b"x");
        assert_eq!(parse_pack_name(pack_name(&pack).as_bytes()), Some(pack));
        assert_eq!(parse_pack_name(b"x.pack"), None);
        let id = GenerationId::of_manifest(7, b"m").unwrap();
        assert_eq!(parse_claim_name(claim_name(&id).as_bytes()), Some(id));
        let name = temporary_name("pack", &Nonce::from_bytes([7; 16]));
        assert!(is_any_temporary(name.as_bytes()));
        assert!(!is_any_temporary(b"pack-.tmp") && !is_any_temporary(b"other-00.tmp"));
        assert!(is_fixed_name(b"CURRENT") && is_fixed_name(b"jobs") && !is_fixed_name(b"src"));
    }
}
