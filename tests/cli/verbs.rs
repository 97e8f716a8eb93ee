//! `store_cli::VERBS` put to work: every form of every verb, run in a fixture.

use std::ffi::OsString;
use std::fs;

use genstore_tests::{Dir, Genstore};

/// One form of a verb, with its placeholders filled in.
pub(crate) struct Form {
    /// As it is shown in messages.
    pub(crate) shown: String,
    /// The arguments, verb first.
    pub(crate) args: Vec<OsString>,
    /// The row of the table.
    pub(crate) verb: store_cli::Verb,
}

/// All forms of all verbs for that fixture. The tree is the source; `empty-<n>` directories are made as needed.
pub(crate) fn forms(dir: &Dir, generation: &str) -> Vec<Form> {
    let fill = |number: usize, argument: &str| -> OsString {
        match argument {
            "{source}" => dir.tree().into(),
            "{generation}" => generation.into(),
            "{empty}" => {
                let empty = dir.path(format!("empty-{number}"));
                fs::create_dir_all(&empty).unwrap();
                empty.into()
            }
            other => {
                assert!(
                    !other.contains('{'),
                    "a placeholder that nobody fills: {other}"
                );
                other.into()
            }
        }
    };
    store_cli::VERBS
        .iter()
        .enumerate()
        .map(|(number, verb)| {
            let mut args: Vec<OsString> = vec![verb.name.into()];
            args.extend(
                verb.sample_args
                    .iter()
                    .map(|argument| fill(number, argument)),
            );
            Form {
                shown: format!("{} {}", verb.name, verb.sample_args.join(" ")),
                args,
                verb: *verb,
            }
        })
        .collect()
}

/// Runs every form of every verb in turn, each of them where it has to succeed: `{generation}` lacks no checkpoint of the live one.
pub(crate) fn each_in_turn(mut run: impl FnMut(&Dir, &Genstore, &Form)) {
    let (dir, genstore, _) = rich_store();
    let init = genstore.clone().on(dir.path("new-store"));
    for number in 0..store_cli::VERBS.len() {
        let generation = dir.current().trim_end().to_owned();
        genstore.ok(["tag", "latest", &format!("round-{number}")]);
        let form = forms(&dir, &generation).swap_remove(number);
        run(
            &dir,
            if form.verb.name == "init" {
                &init
            } else {
                &genstore
            },
            &form,
        );
        if form.args.iter().any(|arg| arg == "rename") {
            // The forms after it go by the old name.
            genstore.ok(["lineage", "rename", "other", dir.tree().to_str().unwrap()]);
        }
    }
}

/// A store on which every form of every verb has something to work on: two checkpoints, a tag, another generation.
pub(crate) fn rich_store() -> (Dir, Genstore, String) {
    let (dir, genstore) = crate::store();
    dir.write("a.txt", "changed\n");
    crate::checkpoint(&genstore);
    let generation = dir.current().trim_end().to_owned();
    genstore.ok(["tag", "latest", "v0"]);
    dir.write("later.txt", "later\n");
    (dir, genstore, generation)
}

#[test]
fn the_table_lists_every_verb_of_the_command_line() {
    let mut known: Vec<_> = store_cli::VERBS
        .iter()
        .map(|verb| verb.name.to_owned())
        .collect();
    known.sort();
    known.dedup();
    let mut defined: Vec<_> = store_cli::command()
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .filter(|name| name != "help")
        .collect();
    defined.sort();
    assert_eq!(known, defined);
}
