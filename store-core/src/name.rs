//! Names and paths as bytes: limits, reversible display, shell quoting. No I/O.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The longest name of a directory entry, in bytes (`docs/format.md` section 6).
pub const MAX_NAME_BYTES: usize = 4096;

/// Whether `name` may be an entry of a tree.
pub fn is_entry_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name != b"."
        && name != b".."
        && !name.contains(&b'/')
        && !name.contains(&0)
}

/// Whether `name` may be the name of a lineage.
pub fn is_lineage_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= 4096 && !name.contains(&0) && !name.contains(&b'\n')
}

/// Whether `tag` may be a tag: it must not look like another way of naming a checkpoint.
pub fn is_tag(tag: &str) -> bool {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    !tag.is_empty()
        && tag.len() <= 255
        && !tag.starts_with(['-', '@'])
        && tag != "latest"
        && tag != "first"
        && !tag.contains('~')
        && !tag.chars().any(|c| c.is_control() || c.is_whitespace())
        && !((4..=64).contains(&tag.len()) && tag.chars().all(hex))
}

/// A name or path for people, reversible with [`unescape`]: printable UTF-8 stays as it is; a backslash, control
/// characters and bytes that are not UTF-8 become `\\`, `\n`, `\t`, `\xNN`. A leading or trailing space becomes `\x20`.
pub fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len());
    let last = bytes.len().wrapping_sub(1);
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                ' ' if at == 0 || at == last => text.push_str("\\x20"),
                c if c.is_control() || is_invisible(c) => {
                    let mut buffer = [0; 4];
                    for byte in c.encode_utf8(&mut buffer).bytes() {
                        write!(text, "\\x{byte:02x}").expect("writing to a string");
                    }
                }
                c => text.push(c),
            }
            at += c.len_utf8();
        }
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("writing to a string");
        }
        at += chunk.invalid().len();
    }
    text
}

/// Characters that would let a name disguise itself on a terminal.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The bytes that [`escape`] showed. `None` if `text` is not something that it prints.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&kind, tail) = rest.split_first()?;
        rest = tail;
        match kind {
            b'\\' => bytes.push(b'\\'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'x' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                bytes.extend(crate::id::from_hex(digits)?);
                rest = &rest[2..];
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// A path as one word of a POSIX shell, for commands that a hint names.
pub fn quote_path(path: &Path) -> String {
    quote(path.as_os_str().as_bytes())
}

/// Bytes as one word of a POSIX shell; `$'…'` where they are not plain text.
pub fn quote(bytes: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(b);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let shown = escape(bytes);
    if shown.as_bytes() == bytes && !bytes.contains(&b'\'') {
        return format!("'{shown}'");
    }
    let body: String = shown.replace('\'', "\\'");
    format!("$'{body}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_is_reversible() {
        for bytes in [
            &b""[..],
            b"plain",
            b" lead",
            b"trail ",
            b" ",
            b"  ",
            b"a\tb\nc\\d",
            b"\xff\xfe\x00",
            "報告.txt".as_bytes(),
            "a\u{202e}b".as_bytes(),
            b"\\x20",
            b"ab\x80",
            b" \xff ",
        ] {
            let text = escape(bytes);
            assert_eq!(unescape(&text).as_deref(), Some(bytes), "{text}");
            assert!(!text.contains('\n'));
        }
        assert_eq!(escape(b" a b "), "\\x20a b\\x20");
        assert_eq!(unescape("\\q"), None);
        assert_eq!(unescape("\\x4"), None);
    }

    #[test]
    fn tags_cannot_look_like_other_names() {
        for good in ["v1.0", "release/2026", "abc", "deadbeefg", "Latest", "DEAD"] {
            assert!(is_tag(good), "{good}");
        }
        for bad in [
            "",
            "latest",
            "latest~1",
            "first",
            "@2026",
            "-x",
            "dead",
            "0123456789",
            "a b",
            "a\n",
        ] {
            assert!(!is_tag(bad), "{bad}");
        }
    }

    #[test]
    fn quoting_survives_a_shell() {
        assert_eq!(quote(b"/a/b-c"), "/a/b-c");
        assert_eq!(quote(b"/a b"), "'/a b'");
        assert_eq!(quote(b"a'b"), "$'a\\'b'");
        assert_eq!(quote(b"a\nb"), "$'a\\nb'");
    }
}
