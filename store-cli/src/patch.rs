//! Differences between two states of one path as text: a unified diff that `git apply` and `patch` read, and counts.
//! Pure: contents come in as bytes.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

/// Contents over this are not compared line by line (8 MiB a side).
pub(crate) const MAX_BYTES: u64 = 8 << 20;
/// After this long, a comparison settles for a larger but still correct difference.
const PATIENCE: Duration = Duration::from_secs(5);
/// Lines of context around a change.
const CONTEXT: usize = 3;

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    File,
    /// A symbolic link; its content is its target.
    Link,
    /// A directory; it has no content here.
    Directory,
}

/// What a path holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// More than [`MAX_BYTES`], so that it was not read.
    TooLarge(u64),
}

impl Body {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::TooLarge(length) => *length,
        }
    }
}

/// One state of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// What it is.
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u16,
    /// What it holds.
    pub(crate) body: Body,
}

impl Side {
    fn full_mode(&self) -> String {
        match self.kind {
            Kind::File => format!("10{:04o}", self.mode),
            Kind::Link => "120000".to_owned(),
            Kind::Directory => format!("04{:04o}", self.mode),
        }
    }
}

/// How much of a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    /// Lines added and removed.
    Lines {
        /// Lines only in the new state.
        added: u64,
        /// Lines only in the old state.
        removed: u64,
    },
    /// One side is not text: its sizes in bytes.
    Binary(u64, u64),
    /// One side is over the limit: its sizes in bytes.
    TooLarge(u64, u64),
}

/// Counts what differs between two states of a path.
pub(crate) fn stat(old: Option<&Side>, new: Option<&Side>) -> Stat {
    const NOTHING: &Body = &Body::Bytes(Vec::new());
    let old = old.map_or(NOTHING, |side| &side.body);
    let new = new.map_or(NOTHING, |side| &side.body);
    let (Body::Bytes(old), Body::Bytes(new)) = (old, new) else {
        return Stat::TooLarge(old.len(), new.len());
    };
    if old != new && (is_binary(old) || is_binary(new)) {
        return Stat::Binary(old.len() as u64, new.len() as u64);
    }
    let (mut added, mut removed) = (0, 0);
    for op in compare(&lines(old), &lines(new)) {
        if !matches!(op, DiffOp::Equal { .. }) {
            removed += op.old_range().len() as u64;
            added += op.new_range().len() as u64;
        }
    }
    Stat::Lines { added, removed }
}

/// Appends the difference between two states of `path` to `out`. Nothing if neither mode nor content differ.
pub(crate) fn write(out: &mut Vec<u8>, path: &[u8], old: Option<&Side>, new: Option<&Side>) {
    match (old, new) {
        (Some(a), Some(b)) if a.kind != b.kind => {
            write(out, path, old, None);
            write(out, path, None, new);
        }
        (Some(a), Some(b)) if a.kind == Kind::Directory => {
            if a.mode != b.mode {
                push(
                    out,
                    &[
                        b"directory ",
                        &name("", path),
                        b": mode ",
                        &octal(a),
                        b" -> ",
                        &octal(b),
                        b"\n",
                    ],
                );
            }
        }
        (Some(side), other) | (other, Some(side)) if side.kind == Kind::Directory => {
            let what: &[u8] = if other.is_none() && new.is_none() {
                b"deleted directory "
            } else {
                b"new directory "
            };
            push(
                out,
                &[what, &name("", path), b" (mode ", &octal(side), b")\n"],
            );
        }
        (None, None) => {}
        _ => write_file(out, path, old, new),
    }
}

fn octal(side: &Side) -> Vec<u8> {
    format!("{:04o}", side.mode).into_bytes()
}

fn write_file(out: &mut Vec<u8>, path: &[u8], old: Option<&Side>, new: Option<&Side>) {
    let same_mode = match (old, new) {
        (Some(a), Some(b)) => a.full_mode() == b.full_mode(),
        _ => false,
    };
    let same_body = match (old, new) {
        (Some(a), Some(b)) => a.body == b.body && matches!(a.body, Body::Bytes(_)),
        _ => false,
    };
    if same_mode && same_body {
        return;
    }
    push(
        out,
        &[
            b"diff --git ",
            &name("a/", path),
            b" ",
            &name("b/", path),
            b"\n",
        ],
    );
    match (old, new) {
        (None, Some(side)) => push(
            out,
            &[b"new file mode ", side.full_mode().as_bytes(), b"\n"],
        ),
        (Some(side), None) => push(
            out,
            &[b"deleted file mode ", side.full_mode().as_bytes(), b"\n"],
        ),
        (Some(a), Some(b)) if !same_mode => {
            push(
                out,
                &[
                    b"old mode ",
                    a.full_mode().as_bytes(),
                    b"\nnew mode ",
                    b.full_mode().as_bytes(),
                    b"\n",
                ],
            );
        }
        _ => {}
    }
    if !same_body {
        write_body(
            out,
            path,
            old.map(|side| &side.body),
            new.map(|side| &side.body),
        );
    }
}

fn write_body(out: &mut Vec<u8>, path: &[u8], old: Option<&Body>, new: Option<&Body>) {
    let label = |prefix, side: Option<&Body>| match side {
        Some(_) => name(prefix, path),
        None => b"/dev/null".to_vec(),
    };
    let (from, to) = (label("a/", old), label("b/", new));
    let nothing = Body::Bytes(Vec::new());
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    let (Body::Bytes(old), Body::Bytes(new)) = (old, new) else {
        let sizes = format!(
            " differ ({} and {} bytes, more than 8 MiB: not shown)\n",
            old.len(),
            new.len()
        );
        push(out, &[b"Files ", &from, b" and ", &to, sizes.as_bytes()]);
        return;
    };
    if old == new {
        return;
    }
    if is_binary(old) || is_binary(new) {
        push(out, &[b"Binary files ", &from, b" and ", &to, b" differ\n"]);
        return;
    }
    // GNU patch ends a name at white space unless a tab follows it.
    let end: &[u8] = if path.contains(&b' ') { b"\t\n" } else { b"\n" };
    push(out, &[b"--- ", &from, end, b"+++ ", &to, end]);
    let (old, new) = (lines(old), lines(new));
    for group in group_diff_ops(compare(&old, &new), CONTEXT) {
        write_hunk(out, &group, &old, &new);
    }
}

fn write_hunk(out: &mut Vec<u8>, ops: &[DiffOp], old: &[&[u8]], new: &[&[u8]]) {
    let (Some(first), Some(last)) = (ops.first(), ops.last()) else {
        return;
    };
    let range = |start: usize, end: usize| match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    };
    let before = range(first.old_range().start, last.old_range().end);
    let after = range(first.new_range().start, last.new_range().end);
    push(out, &[format!("@@ -{before} +{after} @@\n").as_bytes()]);
    for op in ops {
        if let DiffOp::Equal { .. } = op {
            op.old_range()
                .for_each(|index| write_line(out, b" ", old[index]));
        } else {
            op.old_range()
                .for_each(|index| write_line(out, b"-", old[index]));
            op.new_range()
                .for_each(|index| write_line(out, b"+", new[index]));
        }
    }
}

fn write_line(out: &mut Vec<u8>, sign: &[u8], line: &[u8]) {
    push(out, &[sign, line]);
    if !line.ends_with(b"\n") {
        out.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}

fn push(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Lines with their ends. Only a line feed ends a line: a lone carriage return does not, for `patch` neither.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|&byte| byte == b'\n').collect()
}

fn compare(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(Instant::now() + PATIENCE))
}

/// Whether bytes are not text, by git's sign: a NUL byte.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.contains(&0)
}

/// A name as git writes it in patches: as it is, or in double quotes with C escapes where it has to be.
fn name(prefix: &str, path: &[u8]) -> Vec<u8> {
    let special = |byte: &u8| byte.is_ascii_control() || *byte == b'"' || *byte == b'\\';
    if std::str::from_utf8(path).is_ok() && !path.iter().any(special) {
        return [prefix.as_bytes(), path].concat();
    }
    let mut text = format!("\"{prefix}").into_bytes();
    for &byte in path {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', byte]),
            b'\t' => text.extend(b"\\t"),
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            b' '..=b'~' => text.push(byte),
            _ => text.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    text.push(b'"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &[u8]) -> Side {
        Side {
            kind: Kind::File,
            mode: 0o644,
            body: Body::Bytes(text.to_vec()),
        }
    }

    fn patch(path: &[u8], old: Option<&Side>, new: Option<&Side>) -> String {
        let mut out = Vec::new();
        write(&mut out, path, old, new);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_change_is_a_unified_diff_with_context() {
        let old = file(b"1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        let new = file(b"1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n");
        let expected = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -2,8 +2,9 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n+10\n";
        assert_eq!(patch(b"f", Some(&old), Some(&new)), expected);
        assert_eq!(
            stat(Some(&old), Some(&new)),
            Stat::Lines {
                added: 2,
                removed: 1
            }
        );
    }

    #[test]
    fn missing_line_ends_and_carriage_returns_are_kept() {
        let old = file(b"a\rb\r\nlast\r");
        let new = file(b"a\rb\nlast\r");
        assert_eq!(
            patch(b"f", Some(&old), Some(&new)),
            "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\rb\r\n+a\rb\n last\r\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn new_deleted_and_empty_files_have_their_headers() {
        let one = file(b"x\n");
        assert_eq!(
            patch(b"f", None, Some(&one)),
            "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n"
        );
        assert_eq!(
            patch(b"f", Some(&one), None),
            "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        );
        assert_eq!(
            patch(b"f", None, Some(&file(b""))),
            "diff --git a/f b/f\nnew file mode 100644\n"
        );
    }

    #[test]
    fn modes_links_and_directories_are_told_apart() {
        let plain = file(b"x");
        let executable = Side {
            mode: 0o755,
            ..plain.clone()
        };
        assert_eq!(
            patch(b"f", Some(&plain), Some(&executable)),
            "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"
        );
        assert_eq!(patch(b"f", Some(&plain), Some(&plain)), "");
        let link = Side {
            kind: Kind::Link,
            mode: 0o777,
            body: Body::Bytes(b"x".to_vec()),
        };
        let both = patch(b"f", Some(&plain), Some(&link));
        assert!(
            both.contains("deleted file mode 100644") && both.contains("new file mode 120000"),
            "{both}"
        );
        let directory = Side {
            kind: Kind::Directory,
            mode: 0o755,
            body: Body::Bytes(Vec::new()),
        };
        assert_eq!(
            patch(b"d", None, Some(&directory)),
            "new directory d (mode 0755)\n"
        );
        assert_eq!(
            patch(b"d", Some(&directory), None),
            "deleted directory d (mode 0755)\n"
        );
        let private = Side {
            mode: 0o700,
            ..directory.clone()
        };
        assert_eq!(
            patch(b"d", Some(&directory), Some(&private)),
            "directory d: mode 0755 -> 0700\n"
        );
        let replaced = patch(b"d", Some(&directory), Some(&plain));
        assert!(
            replaced.starts_with("deleted directory d") && replaced.contains("new file mode"),
            "{replaced}"
        );
    }

    #[test]
    fn binary_and_large_contents_are_not_shown() {
        let (old, new) = (file(b"a\n"), file(b"a\0"));
        assert!(patch(b"f", Some(&old), Some(&new)).ends_with("Binary files a/f and b/f differ\n"));
        assert_eq!(stat(Some(&old), Some(&new)), Stat::Binary(2, 2));
        let large = Side {
            body: Body::TooLarge(MAX_BYTES + 1),
            ..old.clone()
        };
        assert!(
            patch(b"f", Some(&old), Some(&large)).contains("(2 and 8388609 bytes, more than 8 MiB")
        );
        assert_eq!(stat(None, Some(&large)), Stat::TooLarge(0, MAX_BYTES + 1));
        assert!(
            patch(b"f", Some(&large), Some(&large)).contains("differ"),
            "what was not read is not equal"
        );
    }

    #[test]
    fn names_are_quoted_as_git_does() {
        assert_eq!(name("a/", b"plain name"), b"a/plain name");
        assert_eq!(name("a/", "報".as_bytes()), "a/報".as_bytes());
        assert_eq!(
            name("a/", b"t\tq\"b\\n\n\xff"),
            b"\"a/t\\tq\\\"b\\\\n\\n\\377\""
        );
        assert!(patch(b"a b", None, Some(&file(b"x\n"))).contains("+++ b/a b\t\n"));
    }

    /// Whether git turns `old` into `new` with the patch that is written for them.
    #[expect(clippy::disallowed_methods, reason = "files of a test's own directory")]
    fn git_applies(path: &str, old: Option<&[u8]>, new: Option<&[u8]>) {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join(path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        if let Some(old) = old {
            std::fs::write(&place, old).unwrap();
        }
        let text = patch(
            path.as_bytes(),
            old.map(file).as_ref(),
            new.map(file).as_ref(),
        );
        let mut git = Command::new("git")
            .args(["apply", "--whitespace=nowarn", "-"])
            .current_dir(&directory)
            .env(
                "GIT_CEILING_DIRECTORIES",
                directory.path().parent().unwrap(),
            )
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        git.stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        assert!(git.wait().unwrap().success(), "{path:?}\n{text}");
        assert_eq!(
            std::fs::read(&place).ok().as_deref(),
            new,
            "{path:?}\n{text}"
        );
    }

    #[test]
    fn git_applies_what_is_written() {
        let long: Vec<u8> = (0..200)
            .flat_map(|line| format!("line {line}\n").into_bytes())
            .collect();
        let edited: Vec<u8> = (0..200)
            .filter(|line| line % 50 != 3)
            .flat_map(|line| format!("line {line}\n").into_bytes())
            .collect();
        for (old, new) in [
            (&b"a\nb\n"[..], &b"a\nc\n"[..]),
            (b"a", b"b"),
            (b"a\n", b"a"),
            (b"a", b"a\n"),
            (b"a\rb\r", b"a\rc\r"),
            (b"a\r\nb\r\n", b"a\r\nb\n"),
            (b"x\n", b""),
            (b"", b"x"),
            (b"--- a\n+++ b\n", b"@@ -1 +1 @@\n"),
            (&long, &edited),
        ] {
            git_applies("dir/f", Some(old), Some(new));
        }
        for path in [
            "a b",
            "\ttab",
            "quote\"s",
            "back\\slash",
            "new\nline",
            "報告",
            "-dash",
            "trail ",
        ] {
            git_applies(path, Some(b"old\n"), Some(b"new\n"));
            git_applies(path, None, Some(b"new\n"));
            git_applies(path, Some(b"old\n"), None);
        }
    }
}
