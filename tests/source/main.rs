//! What a compiler does not check about the sources: banned calls, layers, dead files, lengths, places that are nobody's business.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed step fails the test"
)]

use std::collections::BTreeSet;

use genstore_tests::source::{Source, all, code_lines, declaration, is_test_file, rust};

/// Files that may ask the system for things on disk: the door to the store, and the door to people's files.
const DOORS: [&str; 3] = [
    "store-core/src/disk.rs",
    "store-core/src/lock.rs",
    "store-core/src/worktree/door.rs",
];

/// Calls that only a door may make. They either follow links, turn errors into `false`, or bypass the order of steps.
const DOOR_ONLY: [&str; 30] = [
    "fs::rename",
    "fs::remove_dir",
    "fs::remove_file",
    "fs::hard_link",
    "fs::copy",
    "fs::write",
    "fs::read(",
    "fs::read_to_string",
    "fs::read_dir",
    "fs::create_dir",
    "fs::canonicalize",
    "fs::metadata",
    "fs::symlink_metadata",
    "fs::set_permissions",
    "File::open",
    "File::create",
    "OpenOptions",
    "std::os::unix::fs::symlink",
    "renameat",
    "unlinkat",
    "linkat",
    "mkdirat",
    "openat",
    "openat2",
    "symlinkat",
    "fsync(",
    "fdatasync(",
    "syncfs",
    "utimensat",
    "fchmodat",
];

/// Calls that no shipped code may make. The second word says where they belong.
const NOWHERE: [(&str, &str); 11] = [
    ("process::exit", "main returns an exit code"),
    ("SystemTime::now", "time comes from the store's clock"),
    ("env::var", "the environment belongs to the command line"),
    ("println!", "output goes through store-cli/src/output.rs"),
    ("print!", "output goes through store-cli/src/output.rs"),
    ("dbg!", "output goes through store-cli/src/output.rs"),
    (
        ".unwrap()",
        "errors are values; a proven invariant says why with expect(\"BUG: …\")",
    ),
    ("todo!", "nothing unfinished is shipped"),
    ("unimplemented!", "nothing unfinished is shipped"),
    ("remove_dir", "no directory of a store is ever removed"),
    ("REMOVEDIR", "no directory of a store is ever removed"),
];

/// Where a banned call has its one right place.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("store-core/src/clock.rs", "SystemTime::now"),
    ("store-cli/src/context.rs", "env::var"),
    // A restore may remove directories of a work tree, and only there.
    ("store-core/src/worktree/", "REMOVEDIR"),
    ("store-core/src/worktree/", "remove_dir"),
];

/// The sources that are shipped, without files of tests.
fn shipped() -> Vec<Source> {
    let files = rust();
    let is_shipped = |source: &Source| {
        source.path.starts_with("store-core/src/") || source.path.starts_with("store-cli/src/")
    };
    files
        .iter()
        .filter(|source| is_shipped(source) && !is_test_file(source, &files))
        .cloned()
        .collect()
}

/// Banned calls in a source, with their lines.
fn banned(source: &Source) -> Vec<String> {
    let door = DOORS.contains(&source.path.as_str());
    let mut found = Vec::new();
    for (number, line) in code_lines(&source.text) {
        let allowed = |call: &str| {
            EXCEPTIONS
                .iter()
                .any(|(path, exception)| source.path.starts_with(path) && call.contains(exception))
        };
        let mut report =
            |call: &str, why: &str| found.push(format!("{}:{number}: {call}: {why}", source.path));
        for call in DOOR_ONLY
            .iter()
            .filter(|call| !door && has_call(&line, call) && !allowed(call))
        {
            report(call, "only a door to the disk asks for this");
        }
        for (call, why) in NOWHERE
            .iter()
            .filter(|(call, _)| has_call(&line, call) && !allowed(call))
        {
            report(call, why);
        }
    }
    found
}

/// Whether a line has that call, and not only a longer word that ends like it.
fn has_call(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        call.starts_with('.') || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Exceptions that the code itself states, with a reason, next to the line.
fn is_excused(source: &Source, finding: &str) -> bool {
    let number: usize = finding.split(':').nth(1).unwrap().parse().unwrap();
    let lines: Vec<_> = source.text.lines().collect();
    let begins_function = |line: &&str| {
        let line = line
            .trim_start()
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub ");
        line.starts_with("fn ")
    };
    // The attribute stands on the statement, or on the function around it.
    let function = lines[..number]
        .iter()
        .rposition(begins_function)
        .unwrap_or(0);
    let nearby = lines[function.saturating_sub(5).min(number.saturating_sub(6))..number].concat();
    nearby.contains("disallowed_methods") && nearby.contains("reason = ")
}

#[test]
fn only_the_doors_touch_the_disk() {
    let found: Vec<_> = shipped()
        .iter()
        .flat_map(|source| {
            banned(source)
                .into_iter()
                .filter(|finding| !is_excused(source, finding))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A scanner that finds nothing proves nothing: what it must catch is planted here.
#[test]
fn planted_calls_are_caught() {
    let planted = |path: &str, line: &str| {
        banned(&Source {
            path: path.into(),
            text: format!("fn f() {{\n    {line}\n}}\n"),
        })
    };
    for line in [
        "std::fs::rename(a, b)?;",
        "use std::fs; fs::rename(a, b)?;",
        "rustix::fs::renameat(a, b, c, d)?;",
        "std::fs::remove_dir_all(path)?;",
        "let file = File::open(path)?;",
        "let text = read().unwrap();",
        "println!(\"done\");",
        "std::process::exit(1);",
        "let now = SystemTime::now();",
    ] {
        assert!(
            !planted("store-core/src/ops/verify.rs", line).is_empty(),
            "not caught: {line}"
        );
    }
    for line in [
        "// std::fs::rename(a, b)",
        "let s = \"std::fs::rename\";",
        "self.rename(a, b)?;",
        "worktree.open(path)?;",
    ] {
        assert!(
            planted("store-core/src/ops/verify.rs", line).is_empty(),
            "caught by mistake: {line}"
        );
    }
    assert!(planted("store-core/src/disk.rs", "renameat(a, b, c, d)?;").is_empty());
    assert!(
        !planted(
            "store-core/src/disk.rs",
            "unlinkat(d, n, AtFlags::REMOVEDIR)?;"
        )
        .is_empty(),
        "not even in the door"
    );
}

#[test]
fn unsafe_code_is_in_one_module() {
    for source in shipped()
        .iter()
        .filter(|source| source.path != "store-core/src/map.rs")
    {
        for (number, line) in code_lines(&source.text) {
            assert!(
                !has_call(&line, "unsafe ") && !has_call(&line, "allow(unsafe_code"),
                "{}:{number}: {line}",
                source.path
            );
        }
    }
}

/// The layer of each module of store-core, as `docs/architecture.md` has it.
fn layer(path: &str) -> Option<(u8, String)> {
    let inside = path.strip_prefix("store-core/src/")?;
    let module = inside
        .split('/')
        .next()
        .unwrap()
        .trim_end_matches(".rs")
        .to_owned();
    let layer = match module.as_str() {
        "error" | "id" | "name" | "clock" | "progress" | "layout" | "planted" => 0,
        "format" => 1,
        "disk" | "lock" => 2,
        "map" | "root" | "selector" | "generation" | "objects" | "catalog" | "worktree"
        | "receipts" => 3,
        "ops" => 4,
        "store" => 5,
        "lib" => 6,
        other => panic!("{other} has no layer: add it here and to docs/architecture.md"),
    };
    Some((layer, module))
}

/// Modules of the crate that a line uses.
fn uses(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + 7..];
        if let Some(list) = rest.strip_prefix('{') {
            let list = list.split('}').next().unwrap_or_default();
            found.extend(list.split(',').map(|item| {
                item.split("::")
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            }));
        } else {
            found.push(
                rest.chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect(),
            );
        }
    }
    found
}

#[test]
fn a_layer_uses_only_lower_ones() {
    let mut wrong = Vec::new();
    for source in shipped()
        .iter()
        .filter(|source| source.path.starts_with("store-core/src/"))
    {
        let (own, module) = layer(&source.path).unwrap();
        let code: String = code_lines(&source.text)
            .into_iter()
            .map(|(_, line)| line + " ")
            .collect();
        for used in uses(&code)
            .into_iter()
            .filter(|used| used.starts_with(|c: char| c.is_lowercase()))
        {
            let path = format!("store-core/src/{used}.rs");
            let Some((other, _)) = known(&used).then(|| layer(&path).unwrap()) else {
                continue;
            };
            if used != module && other > own {
                wrong.push(format!(
                    "{} (layer {own}) uses {used} (layer {other})",
                    source.path
                ));
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn known(module: &str) -> bool {
    let files: BTreeSet<String> = rust().into_iter().map(|source| source.path).collect();
    files.contains(&format!("store-core/src/{module}.rs"))
        || files.contains(&format!("store-core/src/{module}/mod.rs"))
}

#[test]
fn every_source_file_is_part_of_its_crate() {
    let files = rust();
    for file in files.iter().filter(|file| {
        file.path.starts_with("store-core/src/") || file.path.starts_with("store-cli/src/")
    }) {
        let root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
        assert!(
            root || declaration(file, &files).is_some(),
            "{} belongs to no module",
            file.path
        );
    }
}

#[test]
fn files_and_lines_can_be_read() {
    for source in rust() {
        let shipped = code_lines(&source.text)
            .iter()
            .filter(|(_, line)| !line.trim().is_empty())
            .count();
        assert!(
            shipped <= 1100,
            "{} has {shipped} lines of code",
            source.path
        );
        for (number, line) in source.text.lines().enumerate() {
            let length = line.chars().count();
            assert!(
                length <= 170,
                "{}:{}: {length} characters",
                source.path,
                number + 1
            );
        }
    }
}

#[test]
fn the_project_stands_on_its_own() {
    // Put together here, so that this file does not name them either.
    let places = [
        ["/wo", "rk/"],
        ["DESIGN", ".md"],
        ["STYLE", ".md"],
        ["CASES", ".md"],
        ["BRIEF", ".md"],
        ["API", ".md"],
    ]
    .map(|parts| parts.concat());
    for source in all() {
        for (number, line) in source.text.lines().enumerate() {
            for place in &places {
                assert!(
                    !line.contains(place.as_str()),
                    "{}:{}: {place}",
                    source.path,
                    number + 1
                );
            }
        }
    }
}

#[test]
fn every_module_says_what_it_is() {
    for source in shipped() {
        assert!(
            source.text.starts_with("//!"),
            "{} has no head",
            source.path
        );
    }
}

#[test]
fn manifests_share_the_workspace_lints() {
    for source in all()
        .iter()
        .filter(|source| source.path.ends_with("/Cargo.toml"))
    {
        assert!(
            source.text.contains("[lints]\nworkspace = true"),
            "{} has lints of its own",
            source.path
        );
    }
}
