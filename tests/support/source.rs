//! Scans the sources of the workspace: what a compiler does not check.

use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's directory.
///
/// # Panics
/// Never: this package lies in it.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// A text file of the workspace.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// All text files that belong to the project: what git would know, without asking it (a source archive has no git).
///
/// # Panics
/// If the workspace cannot be read.
pub fn all() -> Vec<Source> {
    const LEFT_OUT: [&str; 5] = ["target", ".git", "artifacts", "coverage", "__pycache__"];
    let top = workspace();
    walkdir::WalkDir::new(&top)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| !LEFT_OUT.iter().any(|name| entry.file_name() == *name))
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().is_file())
        .filter_map(|entry| {
            let path = entry
                .path()
                .strip_prefix(&top)
                .unwrap()
                .to_str()?
                .to_owned();
            Some(Source {
                path,
                text: fs::read_to_string(entry.path()).ok()?,
            })
        })
        .collect()
}

/// The Rust sources among [`all`].
///
/// # Panics
/// If the workspace cannot be read.
pub fn rust() -> Vec<Source> {
    all()
        .into_iter()
        .filter(|source| {
            Path::new(&source.path)
                .extension()
                .is_some_and(|kind| kind == "rs")
        })
        .collect()
}

/// Lines of code that is shipped: comments, the content of strings and everything under `#[cfg(test)]` blanked out.
/// Line numbers start at 1.
pub fn code_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<_> = blank(text).lines().map(str::to_owned).collect();
    let mut number = 0;
    while number < lines.len() {
        if lines[number].trim() == "#[cfg(test)]" {
            number = blank_item(&mut lines, number);
        } else {
            number += 1;
        }
    }
    lines
        .into_iter()
        .enumerate()
        .map(|(number, line)| (number + 1, line))
        .collect()
}

/// Blanks an item from its attribute on: to its semicolon, or to the end of its braces. The number of the line after it.
fn blank_item(lines: &mut [String], start: usize) -> usize {
    let mut depth = 0_i32;
    for (number, line) in lines.iter_mut().enumerate().skip(start) {
        let line = std::mem::take(line);
        let opened = depth > 0 || line.contains('{');
        depth += i32::try_from(line.matches('{').count()).unwrap_or(0);
        depth -= i32::try_from(line.matches('}').count()).unwrap_or(0);
        if depth <= 0 && (opened || line.trim_end().ends_with(';')) {
            return number + 1;
        }
    }
    lines.len()
}

/// The text without comments and without the content of strings and characters; lines stay where they are.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(length) = string_length(rest, &code) {
            code.push_str("\"\"");
            length
        } else if let Some(length) = character_length(rest) {
            code.push_str("' '");
            length
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        rest = &rest[skipped..];
    }
    code
}

/// Length of the string literal that begins here.
fn string_length(rest: &str, before: &str) -> Option<usize> {
    let in_word = before
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || c == '_');
    let raw = rest
        .strip_prefix('r')
        .filter(|_| !in_word || before.ends_with('b'));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(1 + hashes + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()));
    }
    let body = rest.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if c == '"' && !escaped {
            return Some(at + 2);
        }
        escaped = c == '\\' && !escaped;
    }
    Some(rest.len())
}

/// Length of the character literal that begins here; a lifetime is none.
fn character_length(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    let first = body.chars().next()?;
    if first == '\\' {
        return body[2..].find('\'').map(|at| at + 4);
    }
    body[first.len_utf8()..]
        .starts_with('\'')
        .then_some(first.len_utf8() + 2)
}

/// Whether a file holds only tests: its module is declared under `#[cfg(test)]`.
pub fn is_test_file(source: &Source, all: &[Source]) -> bool {
    declaration(source, all).is_some_and(|under_test| under_test)
}

/// Whether the module of a file is declared under `#[cfg(test)]`; `None` if nobody declares it.
pub fn declaration(source: &Source, all: &[Source]) -> Option<bool> {
    let (directory, name) = source.path.rsplit_once('/')?;
    let (directory, module) = match name {
        "mod.rs" => directory.rsplit_once('/')?,
        _ => (directory, name.trim_end_matches(".rs")),
    };
    let parents = ["mod.rs", "lib.rs", "main.rs"].map(|name| format!("{directory}/{name}"));
    let by_path = format!("#[path = \"{name}\"]");
    for parent in all.iter().filter(|file| {
        parents.contains(&file.path)
            || file.path == format!("{directory}.rs")
            || file.text.contains(&by_path)
    }) {
        let lines: Vec<_> = parent.text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            let declares = line.ends_with(&format!("mod {module};"))
                || (number > 0 && lines[number - 1] == by_path);
            if declares {
                let attributes = lines[..number]
                    .iter()
                    .rev()
                    .take_while(|line| line.starts_with("#["));
                return Some(attributes.into_iter().any(|line| *line == "#[cfg(test)]"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_tests_are_not_code() {
        let text = "let a = \"std::fs::rename\"; // std::fs::rename\nlet q = '\"'; std::fs::rename(a, b);\n\
                    #[cfg(test)]\nmod tests {\nstd::fs::rename }\nlet r = r#\"fs::rename \"\\\"#;\n#[cfg(test)]\nmod fs::rename;\nfs::rename;";
        let lines = code_lines(text);
        let hits: Vec<_> = lines
            .iter()
            .filter(|(_, line)| line.contains("fs::rename"))
            .map(|(n, _)| *n)
            .collect();
        assert_eq!(hits, [2, 9]);
    }
}
