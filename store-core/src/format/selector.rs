//! The bytes of `CURRENT`: one generation id and a line feed, `docs/format.md` section 3.

use crate::id::GenerationId;

/// The exact length of `CURRENT`, in bytes.
pub const SELECTOR_BYTES: usize = GenerationId::TEXT_LEN + 1;

/// Parses the bytes of `CURRENT`. A reader that stops after [`SELECTOR_BYTES`] + 1 bytes has read enough to be refused.
///
/// # Errors
/// The precise problem, in words that complete "CURRENT does not hold one generation id: …".
pub fn parse(bytes: &[u8]) -> Result<GenerationId, String> {
    if let Some(line) = bytes.strip_suffix(b"\n")
        && let Some(id) = GenerationId::parse(line)
    {
        return Ok(id);
    }
    Err(problem(bytes))
}

/// The bytes of a `CURRENT` that names `id`.
pub fn render(id: &GenerationId) -> [u8; SELECTOR_BYTES] {
    let mut bytes = [b'\n'; SELECTOR_BYTES];
    bytes[..GenerationId::TEXT_LEN].copy_from_slice(id.to_string().as_bytes());
    bytes
}

/// What is wrong with bytes that are not a selector: the most telling problem first.
fn problem(bytes: &[u8]) -> String {
    if let Some(problem) = foreign_text(bytes) {
        return problem;
    }
    let length = bytes.len();
    let Some(line) = bytes.strip_suffix(b"\n") else {
        return match length {
            0..GenerationId::TEXT_LEN => {
                format!("it is too short ({length} bytes instead of {SELECTOR_BYTES})")
            }
            GenerationId::TEXT_LEN => "it does not end with a line feed".to_owned(),
            _ => format!("it is too long ({length} bytes or more instead of {SELECTOR_BYTES})"),
        };
    };
    match line.len() {
        0 => "it is an empty line".to_owned(),
        length if length < GenerationId::TEXT_LEN => {
            format!(
                "its line is too short ({length} bytes instead of {})",
                GenerationId::TEXT_LEN
            )
        }
        length if length > GenerationId::TEXT_LEN => {
            format!(
                "its line is too long ({length} bytes instead of {})",
                GenerationId::TEXT_LEN
            )
        }
        _ => misspelt(line).to_owned(),
    }
}

/// Bytes that no generation id holds, whatever their number.
fn foreign_text(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return Some("it is empty".to_owned());
    }
    if bytes.starts_with(b"\xef\xbb\xbf")
        || bytes.starts_with(b"\xff\xfe")
        || bytes.starts_with(b"\xfe\xff")
    {
        return Some("it begins with a byte order mark".to_owned());
    }
    let at = |wanted: fn(&u8) -> bool| bytes.iter().position(wanted);
    if let Some(at) = at(|&byte| byte == 0) {
        return Some(format!("it holds a NUL at byte {at}"));
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return Some(format!("it is not UTF-8 at byte {}", error.valid_up_to()));
    }
    if at(|&byte| byte == b'\r').is_some() {
        return Some("it holds a carriage return (a CRLF line end)".to_owned());
    }
    if bytes.iter().rev().skip(1).any(|&byte| byte == b'\n') {
        return Some("it has more than one line".to_owned());
    }
    if let Some(at) = at(|&byte| byte == b' ' || byte == b'\t') {
        return Some(format!("it holds a space at byte {at}"));
    }
    if let Some(at) = at(|&byte| byte == b'/' || byte == b'\\') {
        return Some(format!("it holds a path separator at byte {at}"));
    }
    if let Some(at) = at(u8::is_ascii_uppercase) {
        return Some(format!("it holds an upper-case letter at byte {at}"));
    }
    None
}

/// What is wrong with a line that has the right length.
fn misspelt(line: &[u8]) -> &'static str {
    if !line.starts_with(b"gen-") {
        "it does not begin with gen-"
    } else if !line[4..14].iter().all(u8::is_ascii_digit) {
        "its sequence is not ten decimal digits"
    } else if line[4..14].iter().all(|&digit| digit == b'0') {
        "its sequence is 0"
    } else if line[14] != b'-' {
        "there is no - after its sequence"
    } else {
        "its digest is not 32 lower-case hex digits"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> GenerationId {
        GenerationId::of_manifest(42, b"{}").unwrap()
    }

    #[test]
    fn every_fault_is_named() {
        let good = render(&id());
        let text = std::str::from_utf8(&good).unwrap();
        let line = text.trim_end();
        let cases: Vec<(Vec<u8>, &str)> = vec![
            (vec![], "empty"),
            (b"\n".to_vec(), "an empty line"),
            (b"gen-1".to_vec(), "too short (5 bytes"),
            (b"gen-1\n".to_vec(), "line is too short (5 bytes"),
            (line.into(), "does not end with a line feed"),
            (format!("{line}0\n").into(), "line is too long (48 bytes"),
            (format!("{line}00").into(), "too long (49 bytes"),
            (format!("{line}\r\n").into(), "CRLF"),
            (format!("\u{feff}{line}\n").into(), "byte order mark"),
            (b"\xff\xfeg\0e\0".to_vec(), "byte order mark"),
            (format!("{text}{text}").into(), "more than one line"),
            (format!("{text}\n").into(), "more than one line"),
            (format!("\n{text}").into(), "more than one line"),
            (text.to_uppercase().into(), "upper-case letter at byte 0"),
            (format!("{line} \n").into(), "space at byte 47"),
            (format!("\t{line}").into(), "space at byte 0"),
            (format!("../{text}").into(), "path separator at byte 2"),
            (
                text.replace("gen-0", "gen\\0").into(),
                "path separator at byte 3",
            ),
            (text.replace("gen-0", "gen-\0").into(), "NUL at byte 4"),
            (b"gen-\xff\n".to_vec(), "not UTF-8 at byte 4"),
            (text.replace("gen-", "gem-").into(), "begin with gen-"),
            (text.replace("gen-0", "gen-+").into(), "ten decimal digits"),
            (
                text.replace("gen-0000000042", "gen-0000000000").into(),
                "sequence is 0",
            ),
            (text.replace("42-", "42_").into(), "no - after"),
            (format!("{}g\n", &line[..46]).into(), "hex digits"),
        ];
        for (bytes, expected) in cases {
            let problem = parse(&bytes).unwrap_err();
            assert!(
                problem.contains(expected),
                "{:?}: {problem}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }

    #[test]
    fn one_selector_is_accepted_and_no_byte_of_it_may_change_unseen() {
        let good = render(&id());
        assert_eq!(parse(&good), Ok(id()));
        for at in 0..good.len() {
            assert!(parse(&good[..at]).is_err());
            for flip in 1..=255u8 {
                let mut bytes = good;
                bytes[at] ^= flip;
                match parse(&bytes) {
                    Ok(other) => assert!(other != id() && render(&other) == bytes),
                    Err(problem) => assert!(!problem.is_empty()),
                }
            }
        }
    }
}
