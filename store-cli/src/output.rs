//! Standard output, and how values look in JSON. Lines for people, or exactly one JSON document; never both.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value};
use store_core::clock::Time;
use store_core::id::to_hex;
use store_core::{Error, Result};

/// The path that errors name when standard output cannot be written.
const STANDARD_OUTPUT: &str = "standard output";

/// Standard output, buffered and locked for the whole run.
pub(crate) struct Output(Box<dyn Write>);

impl Output {
    /// Locks standard output.
    pub(crate) fn stdout() -> Self {
        Self(Box::new(BufWriter::with_capacity(
            1 << 16,
            io::stdout().lock(),
        )))
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// [`Error::Io`], also when the reader has gone away (see [`is_broken_pipe`]).
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(failed)
    }

    /// Writes one line.
    ///
    /// # Errors
    /// As [`Output::raw`].
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<()> {
        self.raw(text.as_ref().as_bytes())?;
        self.raw(b"\n")
    }

    /// Writes the one JSON document of a run, schema first.
    ///
    /// # Errors
    /// As [`Output::raw`].
    pub(crate) fn document(&mut self, schema: &str, keys: &Map<String, Value>) -> Result<()> {
        let mut write = || -> io::Result<()> {
            self.0.write_all(b"{\"schema\":")?;
            serde_json::to_writer(&mut self.0, &format!("genstore.{schema}/1"))?;
            for (key, value) in keys {
                self.0.write_all(b",")?;
                serde_json::to_writer(&mut self.0, key)?;
                self.0.write_all(b":")?;
                serde_json::to_writer(&mut self.0, value)?;
            }
            self.0.write_all(b"}\n")
        };
        write().map_err(failed)
    }

    /// Hands everything written so far to the system.
    ///
    /// # Errors
    /// As [`Output::raw`].
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(failed)
    }
}

/// The error of an answer that could not be written.
pub(crate) fn failed(source: io::Error) -> Error {
    Error::Io {
        op: "write",
        path: STANDARD_OUTPUT.into(),
        source,
    }
}

/// Whether an error says that standard output could not be written.
pub(crate) fn is_output(error: &Error) -> bool {
    matches!(error, Error::Io { path, .. } if path == Path::new(STANDARD_OUTPUT))
}

/// Whether an error says that the reader of standard output has gone away, which is no error at all.
pub(crate) fn is_broken_pipe(error: &Error) -> bool {
    is_output(error)
        && matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}

/// Writes a line to standard error. A message that cannot be written does not turn success into failure.
pub(crate) fn say(text: &str) {
    let written = writeln!(io::stderr().lock(), "{text}");
    drop(written);
}

/// A JSON object from keys and values.
macro_rules! object {
    ($($key:literal: $value:expr),* $(,)?) => {{
        let mut map = ::serde_json::Map::new();
        $(map.insert($key.to_owned(), ::serde_json::Value::from($value));)*
        map
    }};
}
pub(crate) use object;

/// Appends formatted text to a string.
macro_rules! append {
    ($text:expr, $($format:tt)*) => {{
        use ::std::fmt::Write as _;
        ::std::write!($text, $($format)*).expect("BUG: writing to a string cannot fail");
    }};
}
pub(crate) use append;

/// A name or path in JSON: a string, or `{"bytes": "<hex>"}` where it is not UTF-8.
pub(crate) fn name(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => Value::Object(object! { "bytes": to_hex(bytes) }),
    }
}

/// A path in JSON, as [`name`].
pub(crate) fn path(path: &Path) -> Value {
    use std::os::unix::ffi::OsStrExt as _;
    name(path.as_os_str().as_bytes())
}

/// A list of names in JSON.
pub(crate) fn names<T: AsRef<[u8]>>(list: &[T]) -> Value {
    list.iter().map(|bytes| name(bytes.as_ref())).collect()
}

/// A time in JSON: RFC 3339, UTC, nanoseconds.
pub(crate) fn time(at: Time) -> Value {
    Value::from(at.to_rfc3339())
}

/// A value's text, or null.
pub(crate) fn text<T: ToString>(value: Option<&T>) -> Value {
    value.map_or(Value::Null, |value| Value::from(value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_text_are_hex() {
        assert_eq!(name("報告 .txt".as_bytes()), Value::from("報告 .txt"));
        assert_eq!(name(b"a\tb"), Value::from("a\tb"));
        assert_eq!(name(b"\xff\x00a").to_string(), r#"{"bytes":"ff0061"}"#);
        assert_eq!(
            names(&[&b"a"[..], b"\x80"]).to_string(),
            r#"["a",{"bytes":"80"}]"#
        );
    }

    struct Sink(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .map_err(|_| io::ErrorKind::Other)?
                .extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_document_is_one_line_and_begins_with_its_schema() {
        let shared = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut output = Output(Box::new(Sink(shared.clone())));
        output
            .document("log", &object! { "b": 1, "a": "x\n" })
            .unwrap();
        output.flush().unwrap();
        let written = String::from_utf8(shared.lock().unwrap().clone()).unwrap();
        assert_eq!(
            written,
            "{\"schema\":\"genstore.log/1\",\"a\":\"x\\n\",\"b\":1}\n"
        );
    }

    #[test]
    fn only_a_broken_pipe_of_standard_output_is_forgiven() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&failed(pipe())));
        assert!(!is_broken_pipe(&failed(io::Error::from(
            io::ErrorKind::StorageFull
        ))));
        assert!(!is_broken_pipe(&Error::Io {
            op: "write",
            path: "/x".into(),
            source: pipe()
        }));
    }
}
