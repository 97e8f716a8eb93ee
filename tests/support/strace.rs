//! System calls of a command, through strace.
//!
//! A fresh machine has only a Rust toolchain, gcc and git; `.ci/run` installs strace. Where it is missing, tests say so and pass, but never on CI.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::genstore::{Genstore, Ran};
use crate::machine;

/// Calls that touch files or file descriptors.
const TRACED: &str = "trace=?open,openat,?openat2,?creat,?rename,?renameat,renameat2,?unlink,unlinkat,?rmdir,?mkdir,mkdirat,\
?link,linkat,?symlink,symlinkat,?mknod,mknodat,write,pwrite64,writev,pwritev,?pwritev2,ftruncate,?truncate,fallocate,\
fsync,fdatasync,sync_file_range,syncfs,sync,?chmod,fchmod,fchmodat,?chown,fchown,fchownat,?lchown,utimensat,\
copy_file_range,sendfile,flock,socket,pipe2,dup,dup3,fcntl,?memfd_create,setxattr,fsetxattr,lsetxattr,removexattr,\
fremovexattr,lremovexattr,read,pread64,readlinkat,mmap,execve,?kill,?tkill,?tgkill";

/// Whether strace is here. If not, says that the test is skipped; on CI that fails.
pub fn is_here() -> bool {
    let here = machine::has("strace");
    if !here {
        crate::skip("strace is not installed");
    }
    here
}

/// One system call that ended.
#[derive(Clone, Debug)]
pub struct Call {
    /// The thread.
    pub thread: u32,
    /// When it began and ended, in seconds.
    pub span: (f64, f64),
    /// Its name.
    pub name: String,
    /// Its arguments as strace shows them.
    pub args: Vec<String>,
    /// Its result as strace shows it.
    pub result: String,
    /// The whole line, for messages.
    pub line: String,
}

impl Call {
    /// Whether it succeeded.
    pub fn ok(&self) -> bool {
        !self.result.starts_with('-') && !self.result.starts_with('?')
    }

    /// The path behind a file descriptor argument: `4</tmp/store>`.
    pub fn descriptor(&self, arg: usize) -> &str {
        self.args.get(arg).map_or("", |arg| between(arg))
    }

    /// A string argument.
    pub fn text(&self, arg: usize) -> String {
        let quoted = self.args.get(arg).map_or("", String::as_str);
        quoted
            .trim_end_matches("...")
            .trim_matches('"')
            .replace("\\\"", "\"")
    }

    /// The path that a directory descriptor and a name mean together.
    pub fn at(&self, directory: usize, name: usize) -> String {
        let name = self.text(name);
        if name.starts_with('/') {
            name
        } else {
            format!("{}/{name}", self.descriptor(directory))
        }
    }

    /// The path of the file that an open returned.
    pub fn opened(&self) -> &str {
        between(&self.result)
    }

    /// Whether it opened a file.
    pub fn is_open(&self) -> bool {
        matches!(self.name.as_str(), "open" | "openat" | "openat2" | "creat")
    }

    /// Path that an open was asked for.
    pub fn open_path(&self) -> String {
        if self.name.starts_with("openat") {
            self.at(0, 1)
        } else {
            self.text(0)
        }
    }

    /// Flags of an open.
    pub fn open_flags(&self) -> &str {
        self.args
            .get(if self.name.starts_with("openat") {
                2
            } else {
                1
            })
            .map_or("", String::as_str)
    }

    /// Source and destination of a rename or link.
    pub fn moved(&self) -> Option<(String, String)> {
        match self.name.as_str() {
            "rename" | "link" => Some((self.text(0), self.text(1))),
            "renameat" | "renameat2" | "linkat" => Some((self.at(0, 1), self.at(2, 3))),
            _ => None,
        }
    }

    /// Path that an `unlink` or `rmdir` removes, and whether it removes a directory.
    pub fn removed(&self) -> Option<(String, bool)> {
        match self.name.as_str() {
            "unlink" => Some((self.text(0), false)),
            "rmdir" => Some((self.text(0), true)),
            "unlinkat" => Some((
                self.at(0, 1),
                self.args
                    .get(2)
                    .is_some_and(|flags| flags.contains("AT_REMOVEDIR")),
            )),
            _ => None,
        }
    }

    /// Path that a sync makes durable.
    pub fn synced(&self) -> Option<&str> {
        matches!(self.name.as_str(), "fsync" | "fdatasync").then(|| self.descriptor(0))
    }
}

fn between(text: &str) -> &str {
    match (text.find('<'), text.rfind('>')) {
        (Some(from), Some(to)) if from < to => &text[from + 1..to],
        _ => "",
    }
}

/// Runs a command under strace; what it answered, and its calls in the order in which they began.
///
/// # Panics
/// If strace cannot run it.
pub fn trace<I, S>(genstore: &Genstore, args: I, options: &[&str]) -> (Ran, Vec<Call>)
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    let log = tempfile::NamedTempFile::new().unwrap();
    let ran = genstore
        .clone()
        .under(prefix(log.path(), TRACED, options))
        .run(args);
    let calls = parse(&fs::read_to_string(log.path()).unwrap());
    assert!(!calls.is_empty(), "strace traced nothing: {ran}");
    (ran, calls)
}

/// `strace` and its options, for [`Genstore::under`].
pub fn prefix(log: &Path, traced: &str, options: &[&str]) -> Vec<OsString> {
    let mut prefix: Vec<OsString> = [
        "strace",
        "-f",
        "-y",
        "-ttt",
        "-T",
        "-s",
        "4096",
        "-e",
        "signal=none",
        "-e",
    ]
    .map(Into::into)
    .to_vec();
    prefix.push(traced.into());
    prefix.extend(options.iter().map(Into::into));
    prefix.extend(["-o".into(), log.into(), "--".into()]);
    prefix
}

/// Parses strace's log.
pub fn parse(log: &str) -> Vec<Call> {
    let mut unfinished: Vec<(u32, f64, String)> = Vec::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let Some((thread, time, rest)) = split_line(line) else {
            continue;
        };
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            unfinished.push((thread, time, begun.to_owned()));
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some(at) = unfinished.iter().position(|(other, ..)| *other == thread) else {
                continue;
            };
            let (_, start, begun) = unfinished.remove(at);
            let ended = resumed
                .split_once("resumed>")
                .map_or("", |(_, ended)| ended);
            calls.extend(parse_call(
                thread,
                start,
                time,
                &format!("{begun}{ended}"),
                line,
            ));
        } else {
            calls.extend(parse_call(thread, time, time, rest, line));
        }
    }
    calls.sort_by(|a, b| a.span.0.total_cmp(&b.span.0));
    calls
}

fn split_line(line: &str) -> Option<(u32, f64, &str)> {
    let (thread, rest) = line.split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(' ')?;
    Some((thread.parse().ok()?, time.parse().ok()?, rest))
}

fn parse_call(thread: u32, start: f64, end: f64, text: &str, line: &str) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return None;
    }
    let (args, result) = rest.rsplit_once(" = ")?;
    let args = args.trim_end();
    let args = args.strip_suffix(')').unwrap_or(args);
    let took: f64 = result
        .rsplit_once(" <")
        .and_then(|(_, took)| took.trim_end_matches('>').parse().ok())
        .unwrap_or(0.0);
    let result = match result.rsplit_once(" <") {
        Some((before, took)) if took.trim_end_matches('>').parse::<f64>().is_ok() => before,
        _ => result,
    };
    // A line that was not interrupted shows its beginning; its end is that and the time it took.
    let end = if end > start { end } else { start + took };
    Some(Call {
        thread,
        span: (start, end),
        name: name.to_owned(),
        args: split_args(args),
        result: result.trim().to_owned(),
        line: line.to_owned(),
    })
}

fn split_args(text: &str) -> Vec<String> {
    let mut args = vec![String::new()];
    let (mut depth, mut quoted, mut escaped) = (0_i32, false, false);
    for c in text.chars() {
        if quoted {
            quoted = c != '"' || escaped;
            escaped = c == '\\' && !escaped;
        } else {
            match c {
                '"' => quoted = true,
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                ',' if depth == 0 => {
                    args.push(String::new());
                    continue;
                }
                _ => {}
            }
        }
        if let Some(arg) = args.last_mut() {
            arg.push(c);
        }
    }
    args.iter().map(|arg| arg.trim().to_owned()).collect()
}

/// How many of these calls wait one after the other: the longest chain in which each begins after the one before it ended.
pub fn waits_in_a_row<'a>(calls: impl IntoIterator<Item = &'a Call>) -> usize {
    let mut spans: Vec<_> = calls.into_iter().map(|call| call.span).collect();
    spans.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut count, mut free_from) = (0, f64::MIN);
    for (start, end) in spans {
        if start >= free_from {
            count += 1;
            free_from = end;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_put_together_again() {
        let log = "\
10 1.000000 openat(3</s>, \"CURRENT\", O_RDONLY|O_NOFOLLOW|O_CLOEXEC) = 4</s/CURRENT> <0.000010>
11 1.100000 fsync(5</s/a> <unfinished ...>
10 1.200000 renameat(3</s>, \"a, \\\"b\", 3</s>, \"CURRENT\") = 0 <0.100000>
11 1.500000 <... fsync resumed>)       = 0 <0.400000>
10 2.000000 fsync(3</s>) = -1 EIO (Input/output error) <0.000100>
10 2.100000 +++ exited with 0 +++
";
        let calls = parse(log);
        assert_eq!(calls.len(), 4);
        assert_eq!(calls[0].open_path(), "/s/CURRENT");
        assert_eq!(calls[0].opened(), "/s/CURRENT");
        assert_eq!(calls[0].open_flags(), "O_RDONLY|O_NOFOLLOW|O_CLOEXEC");
        assert_eq!(
            (calls[1].synced(), calls[1].span),
            (Some("/s/a"), (1.1, 1.5))
        );
        assert_eq!(
            calls[2].moved(),
            Some(("/s/a, \"b".to_owned(), "/s/CURRENT".to_owned()))
        );
        assert!(calls[1].ok() && !calls[3].ok());
        assert_eq!(waits_in_a_row(&calls[1..3]), 1, "side by side");
        assert_eq!(waits_in_a_row(&calls[1..4]), 2);
    }
}
