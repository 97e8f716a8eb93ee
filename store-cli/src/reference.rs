//! The reference page `docs/cli.md`, made from the definition of the command line and the tables of codes.

use clap::{Arg, ArgAction, Command};

use crate::error::{CODES, EXITS};
use crate::output::append;

const HEAD: &str = "# The command line

This page is generated from the definition of the command line: `UPDATE_DOCS=1 cargo test -p store-cli` writes it anew.

";

const JSON: &str = "## JSON

With `--json` every verb writes exactly one document to standard output: `{\"schema\":\"genstore.<verb>/1\", …}`, or
`{\"schema\":\"genstore.error/1\",\"code\":…,\"message\":…,\"hint\":…,\"exit\":…}` (also for wrong usage). Keys may be added
to a schema; none goes or changes its meaning. A name or path that is not UTF-8 is `{\"bytes\":\"<hex>\"}`. Times are
RFC 3339 in UTC. Every answer has `warnings`, a list of `{code, message, hint}`.

| schema | keys |
|---|---|
";

/// The keys of each verb's answer.
const SCHEMAS: &[(&str, &str)] = &[
    ("init", "`store` `generation` `path` `finished` `links`"),
    (
        "checkpoint",
        "`id` `generation` `created` (a new generation was published) `complete` `lineage` `number` \
         `left_out[{path,reason,rule}]` `counts{files,directories,links,bytes,left_out}` \
         `changes{added,modified,removed,type_changed}` `source` `previous` `healed` `maintain_due` `store_created`",
    ),
    (
        "log",
        "`generation`, `checkpoints[]` newest first, each `id lineage number time message tags complete generation \
         parent role actor key pinned note source host tree counts`",
    ),
    (
        "show",
        "one checkpoint as in `log`; on demand `files[{path,kind,mode,mtime,size,target}]` `left_out[]` \
         `rules[{origin,rule}]`",
    ),
    (
        "diff",
        "`changes[{path,change,differs,old,new}]` (`change`: `A` `M` `D` `T`; with `--stat` `added removed binary`, with \
         `--patch` `patch`) `complete` `left_out[]` `old` `new`",
    ),
    (
        "cat",
        "`checkpoint` `path` `kind` `mode` `mtime` `size`, and `text`, or `bytes` in hex",
    ),
    (
        "restore",
        "`checkpoint` `to` `dry_run` `plan{create,replace,remove,unchanged,kept,failed}` `restored[]` `removed[]` `unchanged` \
         `kept[{path,reason}]` `failed[{path,reason}]` `complete`",
    ),
    (
        "verify",
        "`ok` `damage[{checkpoint,lineage,path,object,bytes,problem}]` `generation` `packs` `objects` `bytes` \
         `checkpoints` `quick`",
    ),
    (
        "status",
        "`store` `path` `selector{state,code,message,current,raw,mend}` `generations[{id,state,bytes,own_bytes,created,operation}]` \
         `lineages[]` `bytes{live,superseded_only,evidence,incoming,cache,total}` `husks` `packs` `lock_holder` `policy` \
         `maintain_due`",
    ),
    (
        "activate",
        "`generation` `previous` `left_behind[{id,lineage,number}]` `carried[]` `already`",
    ),
    (
        "undo",
        "`generation` `previous` `created` `undone{generation,verb,writer,lineage,created,checkpoint,what}`",
    ),
    (
        "lineage",
        "`action`; `list`: `lineages[{name,source,host,checkpoints,latest,state,source_state}]`; `show`: those keys; \
         otherwise `lineage` `generation` `previous` `created`",
    ),
    (
        "tag",
        "`tag` `checkpoint{id,lineage,number}` `generation` `previous` `created`; `--list`: `tags[{tag,checkpoint}]`",
    ),
    (
        "pin",
        "`checkpoint{…}` `pinned` `generation` `previous` `created`",
    ),
    (
        "note",
        "`checkpoint{…}` `note` `generation` `previous` `created`",
    ),
    ("completions", "`shell` `script`"),
    (
        "progress",
        "with `--progress json`, lines on standard error: `phase` `files` `bytes` `total`",
    ),
];

/// The text of `docs/cli.md`.
pub fn reference() -> String {
    let mut command = crate::command();
    command.build();
    let mut page = HEAD.to_owned();
    paragraph(&mut page, &about(&command));
    page.push_str("## Global options\n\n");
    options(&mut page, &command, Arg::is_global_set);
    for verb in command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        describe(&mut page, verb, "##");
    }
    codes(&mut page);
    page.push_str(JSON);
    for (schema, keys) in SCHEMAS {
        append!(page, "| `genstore.{schema}/1` | {keys} |\n");
    }
    page
}

fn describe(page: &mut String, command: &Command, level: &str) {
    let mut command = command.clone();
    let name = command
        .get_bin_name()
        .unwrap_or(command.get_name())
        .to_owned();
    append!(page, "{level} {name}\n\n");
    paragraph(page, &about(&command));
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    append!(page, "```\n{usage}\n```\n\n");
    options(page, &command, |argument| !argument.is_global_set());
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        describe(page, sub, &format!("{level}#"));
    }
}

/// The parser takes the full stop of a one-line help away.
fn end_sentence(text: &mut String) {
    if !text.is_empty() && !text.ends_with(['.', ':']) {
        text.push('.');
    }
}

fn about(command: &Command) -> String {
    command
        .get_long_about()
        .or(command.get_about())
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn paragraph(page: &mut String, text: &str) {
    if !text.is_empty() {
        for (index, part) in text.trim_end().split("\n\n").enumerate() {
            let mut part = part.to_owned();
            if index == 0 {
                end_sentence(&mut part);
            }
            append!(page, "{part}\n\n");
        }
    }
}

/// A table of the arguments that `wanted` picks.
fn options(page: &mut String, command: &Command, wanted: impl Fn(&Arg) -> bool) {
    let rows: Vec<&Arg> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && wanted(argument))
        .filter(|argument| !matches!(argument.get_id().as_str(), "help" | "version"))
        .collect();
    if rows.is_empty() {
        return;
    }
    page.push_str("| argument | meaning |\n|---|---|\n");
    for argument in rows {
        let spelling = spelling(argument).replace('|', "\\|");
        append!(page, "| `{spelling}` | {} |\n", meaning(argument));
    }
    page.push('\n');
}

/// How an argument is typed.
fn spelling(argument: &Arg) -> String {
    let values = argument
        .get_value_names()
        .filter(|_| argument.get_action().takes_values())
        .map(|names| {
            names
                .iter()
                .map(clap::builder::Str::as_str)
                .collect::<Vec<_>>()
                .join(" ")
        });
    let mut spelling = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => String::new(),
    };
    if let Some(values) = values {
        if !spelling.is_empty() {
            spelling.push(' ');
        }
        spelling.push_str(&values);
    }
    if argument.is_positional() && matches!(argument.get_action(), ArgAction::Append) {
        spelling.push('…');
    }
    spelling
}

/// What an argument means: its help, its possible values, its default.
fn meaning(argument: &Arg) -> String {
    let help = argument
        .get_long_help()
        .or(argument.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut meaning = help
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|");
    end_sentence(&mut meaning);
    if argument.get_action().takes_values() {
        let possible = argument.get_possible_values();
        if !possible.is_empty() {
            let names: Vec<String> = possible
                .iter()
                .map(|value| format!("`{}`", value.get_name()))
                .collect();
            append!(meaning, " One of {}.", names.join(", "));
        }
        let defaults = argument.get_default_values();
        if let [default] = defaults
            && !argument.is_hide_default_value_set()
        {
            append!(meaning, " Default: `{}`.", default.to_string_lossy());
        }
    }
    meaning
}

fn codes(page: &mut String) {
    page.push_str("## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (exit, meaning) in EXITS {
        append!(page, "| {exit} | {meaning} |\n");
    }
    page.push_str("\n## Error codes\n\n| code | exit | meaning |\n|---|---|---|\n");
    for (code, exit, meaning) in CODES {
        append!(page, "| `{code}` | {exit} | {meaning} |\n");
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the page is no part of a store; UPDATE_DOCS is for developers"
    )]
    fn the_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, reference()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == reference(),
            "docs/cli.md is not current: UPDATE_DOCS=1 cargo test -p store-cli"
        );
    }

    #[test]
    fn every_verb_and_option_is_on_the_page() {
        let page = reference();
        let mut command = crate::command();
        command.build();
        for verb in command
            .get_subcommands()
            .filter(|verb| verb.get_name() != "help")
        {
            assert!(
                page.contains(&format!("\n## genstore {}\n", verb.get_name())),
                "{}",
                verb.get_name()
            );
            assert!(
                SCHEMAS.iter().any(|(schema, _)| *schema == verb.get_name()),
                "{}",
                verb.get_name()
            );
            assert!(
                verb.get_about().is_some(),
                "{} has no help",
                verb.get_name()
            );
            for argument in verb.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    verb.get_name(),
                    argument.get_id()
                );
            }
        }
        assert!(page.contains("`--lock-wait SECONDS`"));
    }
}
