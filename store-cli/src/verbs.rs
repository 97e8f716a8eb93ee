//! What each verb needs, as data: tests go through this table instead of a list of their own.

/// One verb of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// Whether, with these arguments, it needs a live generation that can be trusted (and exits 5 without).
    pub needs_live: bool,
    /// Whether it writes: to the store, or to a work tree. Only such a verb handles Ctrl-C itself.
    pub mutates: bool,
    /// Arguments that run it, after its name, in `{source}` as the current directory. Placeholders: `{source}` a directory that was checkpointed and holds
    /// `a.txt`, `{empty}` an empty directory, `{generation}` a generation of the store.
    pub sample_args: &'static [&'static str],
}

const fn verb(
    name: &'static str,
    needs_live: bool,
    mutates: bool,
    sample_args: &'static [&'static str],
) -> Verb {
    Verb {
        name,
        needs_live,
        mutates,
        sample_args,
    }
}

/// Every verb, in the order of the help. A verb with forms that differ in what they need has a row for each; the first
/// one is its main form.
pub const VERBS: &[Verb] = &[
    verb("init", false, true, &[]),
    verb("checkpoint", true, true, &["{source}"]),
    verb("log", true, false, &["{source}"]),
    verb("log", true, false, &["--all"]),
    verb(
        "log",
        false,
        false,
        &["--all", "--generation", "{generation}"],
    ),
    verb("show", true, false, &["latest"]),
    verb(
        "show",
        false,
        false,
        &["latest", "--generation", "{generation}"],
    ),
    verb("diff", true, false, &["--dir", "{source}"]),
    verb("diff", true, false, &["latest", "latest"]),
    verb(
        "diff",
        false,
        false,
        &["latest", "latest", "--generation", "{generation}"],
    ),
    verb("cat", true, false, &["latest", "a.txt"]),
    verb(
        "cat",
        false,
        false,
        &["latest", "a.txt", "--generation", "{generation}"],
    ),
    verb("restore", true, true, &["latest", "--to", "{empty}"]),
    verb(
        "restore",
        false,
        true,
        &["latest", "--to", "{empty}", "--generation", "{generation}"],
    ),
    verb("verify", true, false, &[]),
    verb("verify", false, false, &["{generation}"]),
    verb("status", false, false, &[]),
    verb("activate", true, true, &["{generation}"]),
    verb(
        "activate",
        false,
        true,
        &["{generation}", "--replace-selector"],
    ),
    verb("undo", true, true, &[]),
    verb("lineage", true, false, &["list"]),
    verb("lineage", true, false, &["show", "{source}"]),
    verb("lineage", true, true, &["rename", "{source}", "other"]),
    verb(
        "lineage",
        true,
        true,
        &["archive", "{source}", "--reason", "done"],
    ),
    verb("lineage", true, true, &["unarchive", "{source}"]),
    verb(
        "lineage",
        false,
        false,
        &["list", "--generation", "{generation}"],
    ),
    verb("tag", true, true, &["latest", "v1"]),
    verb("tag", true, true, &["--remove", "v1"]),
    verb("tag", true, false, &["--list"]),
    verb(
        "tag",
        false,
        false,
        &["--list", "--generation", "{generation}"],
    ),
    verb("pin", true, true, &["latest"]),
    verb("pin", true, true, &["--remove", "latest"]),
    verb("note", true, true, &["latest", "a note"]),
    verb("note", true, true, &["latest", "--clear"]),
    verb("completions", false, false, &["bash"]),
];

/// Whether any form of the verb writes.
pub(crate) fn mutates(name: &str) -> bool {
    VERBS.iter().any(|verb| verb.name == name && verb.mutates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_row_and_every_row_parses() {
        let command = crate::command();
        for known in command
            .get_subcommands()
            .filter(|sub| sub.get_name() != "help")
        {
            assert!(
                VERBS.iter().any(|verb| verb.name == known.get_name()),
                "{} has no row",
                known.get_name()
            );
        }
        for verb in VERBS {
            let line = [&["genstore", verb.name][..], verb.sample_args].concat();
            let parsed = command.clone().try_get_matches_from(line);
            assert!(
                parsed.is_ok(),
                "{} {:?}: {}",
                verb.name,
                verb.sample_args,
                parsed.unwrap_err()
            );
        }
    }
}
