//! Which paths a walk leaves out: default ignores, `.genstoreignore`, `--exclude`, and `.gitignore` when asked for.
//!
//! Rules that are in doubt never cut: a line that cannot be read is skipped and reported, a rule file that cannot be read
//! cuts nothing and is reported. `--exclude` decides first, then the `.genstoreignore` of the deepest directory upwards,
//! then the `.gitignore`s in the same way, then the defaults; within one file the last line that matches decides, and
//! `!` takes a path after all, default ignores included.

use std::ffi::{CStr, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::format::checkpoint::Rule;
use crate::format::codec::Encoder;
use crate::id::ObjectId;
use crate::worktree::door::{self, Found};

/// The name of this program's own rule files.
pub const RULE_FILE: &CStr = c".genstoreignore";
/// The name of git's rule files, honoured only when asked for.
pub const GIT_RULE_FILE: &CStr = c".gitignore";
/// A rule file longer than this is not applied.
const MAX_RULE_FILE_BYTES: usize = 1 << 20;

const VCS_NAMES: [&[u8]; 4] = [b".git", b".hg", b".svn", b".jj"];
const CACHE_DIRECTORIES: [&[u8]; 2] = [b"node_modules", b"__pycache__"];
pub(crate) const CACHEDIR_TAG: &CStr = c"CACHEDIR.TAG";
pub(crate) const PYVENV_CFG: &CStr = c"pyvenv.cfg";
/// <https://bford.info/cachedir/>
const CACHEDIR_SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Where rules come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOptions {
    /// Whether version-control metadata, caches and virtual environments are left out.
    pub default_ignores: bool,
    /// Whether `.gitignore` files are honoured.
    pub gitignore: bool,
    /// Patterns in gitignore syntax, relative to the root.
    pub exclude: Vec<Vec<u8>>,
}

impl Default for RuleOptions {
    fn default() -> Self {
        Self {
            default_ignores: true,
            gitignore: false,
            exclude: Vec::new(),
        }
    }
}

impl RuleOptions {
    /// The hash that a stat cache carries (`docs/format.md` section 10).
    pub fn hash(&self) -> ObjectId {
        let mut encoder = Encoder::tagged(b"rules/1");
        encoder.flag(self.default_ignores);
        encoder.flag(self.gitignore);
        encoder.count(self.exclude.len());
        for pattern in &self.exclude {
            encoder.bytes32(pattern);
        }
        ObjectId::of(encoder.as_slice())
    }
}

/// A rule that could not be applied; what it would have cut was captured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleWarning {
    /// The rule file, relative to the root.
    pub path: Vec<u8>,
    /// The line, counted from 1; 0 for the whole file.
    pub line: u32,
    /// What is wrong with it.
    pub problem: String,
}

/// What the rules say about a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing cuts it.
    Take,
    /// A `!` rule takes it, whatever the defaults say.
    TakeByRule,
    /// This rule cuts it.
    Cut(Vec<u8>),
}

/// One rule file and those above it.
#[derive(Debug)]
struct Level {
    above: Option<Arc<Level>>,
    patterns: Patterns,
    /// The rule file's path relative to the root.
    place: Vec<u8>,
    /// Length of its directory's path with the slash: what to cut off a path before it is matched.
    prefix: usize,
}

/// Compiled patterns, and what each one is called: its line number and its text as it was written.
#[derive(Debug)]
struct Patterns {
    matcher: Gitignore,
    written: Vec<(u32, Vec<u8>)>,
}

impl Patterns {
    fn judge(&self, path: &[u8], is_dir: bool) -> Match<&(u32, Vec<u8>)> {
        static NAMELESS: (u32, Vec<u8>) = (0, Vec::new());
        self.matcher
            .matched(Path::new(OsStr::from_bytes(path)), is_dir)
            .map(|glob| {
                // The "file" that the matcher remembers for each pattern is its place in `written`.
                let at = glob
                    .from()
                    .and_then(Path::to_str)
                    .and_then(|text| text.parse::<usize>().ok());
                at.and_then(|at| self.written.get(at)).unwrap_or(&NAMELESS)
            })
    }
}

/// Collects patterns one by one.
struct PatternsBuilder {
    builder: GitignoreBuilder,
    written: Vec<(u32, Vec<u8>)>,
}

impl PatternsBuilder {
    fn new() -> Self {
        Self {
            builder: GitignoreBuilder::new(""),
            written: Vec::new(),
        }
    }

    fn add(&mut self, number: u32, line: &[u8]) -> std::result::Result<(), String> {
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
        let from = PathBuf::from(self.written.len().to_string());
        self.builder
            .add_line(Some(from), &without_braces(text))
            .map_err(|e| e.to_string())?;
        self.written.push((number, line.to_vec()));
        Ok(())
    }

    fn build(self) -> std::result::Result<Patterns, String> {
        let matcher = self.builder.build().map_err(|e| e.to_string())?;
        Ok(Patterns {
            matcher,
            written: self.written,
        })
    }
}

/// Braces mean nothing to git, but alternatives to the matcher: taken so, they would cut what git does not.
fn without_braces(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '[' => class_length(rest).unwrap_or(1),
            '{' | '}' => {
                text.push('\\');
                1
            }
            c => c.len_utf8(),
        };
        let (head, tail) = rest.split_at(length);
        text.push_str(head);
        rest = tail;
    }
    text
}

/// The length of the character class that `text` begins with, if it is closed.
fn class_length(text: &str) -> Option<usize> {
    let negated = text[1..].starts_with(['!', '^']);
    // A bracket that comes first belongs to the class.
    let first = if negated { 2 } else { 1 };
    let first = if text[first..].starts_with(']') {
        first + 1
    } else {
        first
    };
    text[first..].find(']').map(|at| first + at + 1)
}

/// The rule files that apply in one directory, deepest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    own: Option<Arc<Level>>,
    git: Option<Arc<Level>>,
}

/// Why a rule file cuts nothing.
#[derive(Debug)]
pub(crate) enum NotLoaded {
    /// It went away.
    Gone,
    /// It could not be read.
    Unreadable(Errno),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Applied {
    /// Rules that are overridden come first.
    rank: u8,
    place: Vec<u8>,
    line: u32,
    rule: Vec<u8>,
}

/// All rules of one walk.
#[derive(Debug)]
pub(crate) struct Rules {
    options: RuleOptions,
    exclude: Option<Patterns>,
    applied: Mutex<Vec<Applied>>,
    warnings: Mutex<Vec<RuleWarning>>,
}

impl Rules {
    /// # Errors
    /// [`Error::Invalid`] if an `--exclude` pattern is not one.
    pub(crate) fn new(options: &RuleOptions) -> Result<Self> {
        let mut builder = PatternsBuilder::new();
        for pattern in &options.exclude {
            let shown = crate::name::escape(pattern);
            builder.add(0, pattern).map_err(|problem| {
                Error::invalid("exclude pattern", format!("{shown}: {problem}"))
            })?;
        }
        let exclude = builder
            .build()
            .map_err(|problem| Error::invalid("exclude patterns", problem))?;
        Ok(Self {
            options: options.clone(),
            exclude: (!exclude.matcher.is_empty()).then_some(exclude),
            applied: Mutex::default(),
            warnings: Mutex::default(),
        })
    }

    /// Whether [`Self::judge`] looks at the path and not only at the name.
    pub(crate) fn needs_path(&self, chain: &Chain) -> bool {
        self.exclude.is_some() || chain.own.is_some() || chain.git.is_some()
    }

    /// The names of rule files that are honoured.
    pub(crate) fn rule_files(&self) -> &'static [&'static CStr] {
        if self.options.gitignore {
            &[RULE_FILE, GIT_RULE_FILE]
        } else {
            &[RULE_FILE]
        }
    }

    /// What the rules say about the entry `name`; `path` is its path relative to the root if [`Self::needs_path`].
    pub(crate) fn judge(&self, chain: &Chain, path: &[u8], name: &[u8], is_dir: bool) -> Verdict {
        if let Some(exclude) = &self.exclude {
            match exclude.judge(path, is_dir) {
                Match::Ignore((_, pattern)) => {
                    return Verdict::Cut([b"--exclude: ", pattern.as_slice()].concat());
                }
                Match::Whitelist(_) => return Verdict::TakeByRule,
                Match::None => {}
            }
        }
        for level in [&chain.own, &chain.git] {
            let verdict = judge_levels(level.as_deref(), path, is_dir);
            if verdict != Verdict::Take {
                return verdict;
            }
        }
        match self.default_rule(name, is_dir) {
            Some(word) => Verdict::Cut([b"default: ", word].concat()),
            None => Verdict::Take,
        }
    }

    fn default_rule(&self, name: &[u8], is_dir: bool) -> Option<&'static [u8]> {
        if !self.options.default_ignores {
            return None;
        }
        let named = |list: &'static [&'static [u8]]| list.iter().copied().find(|&n| n == name);
        match name.first() {
            Some(b'.') => named(&VCS_NAMES),
            Some(b'n' | b'_') if is_dir => named(&CACHE_DIRECTORIES),
            _ => None,
        }
    }

    /// The default rule that cuts a directory because of what is in it.
    pub(crate) fn marker_rule(
        &self,
        handle: BorrowedFd<'_>,
        has_tag: bool,
        has_pyvenv: bool,
    ) -> Option<&'static [u8]> {
        if !self.options.default_ignores {
            return None;
        }
        if has_tag && is_cache_tag(handle) {
            return Some(b"default: CACHEDIR.TAG");
        }
        let is_file =
            |name| door::lstat(handle, name).is_ok_and(|s| Found::of(s.mode) == Found::File);
        if has_pyvenv && is_file(PYVENV_CFG) {
            return Some(b"default: pyvenv.cfg");
        }
        None
    }

    /// Adds the rule file `name` of the directory at `directory` (relative to the root) to `chain`.
    ///
    /// # Errors
    /// The chain is as it was, and the caller lists the file.
    pub(crate) fn load(
        &self,
        chain: &mut Chain,
        handle: BorrowedFd<'_>,
        directory: &[u8],
        name: &CStr,
    ) -> std::result::Result<(), NotLoaded> {
        let mut place = directory.to_vec();
        if !place.is_empty() {
            place.push(b'/');
        }
        let prefix = place.len();
        place.extend_from_slice(name.to_bytes());
        let warn = |problem: &str| {
            self.warn(RuleWarning {
                path: place.clone(),
                line: 0,
                problem: problem.to_owned(),
            });
        };
        let text = match read_rule_file(handle, name) {
            Ok(Text::Lines(text)) => text,
            Ok(Text::NotRegular) => {
                warn("not a regular file; its rules were not applied");
                return Ok(());
            }
            Ok(Text::TooLong) => {
                warn("longer than 1 MiB; its rules were not applied");
                return Ok(());
            }
            Err(Errno::NOENT) => return Err(NotLoaded::Gone),
            Err(errno) => return Err(NotLoaded::Unreadable(errno)),
        };
        let own = name == RULE_FILE;
        match self.parse(&text, &place, if own { 3 } else { 2 }) {
            Ok(patterns) if patterns.matcher.is_empty() => {}
            Ok(patterns) => {
                let slot = if own { &mut chain.own } else { &mut chain.git };
                *slot = Some(Arc::new(Level {
                    above: slot.take(),
                    patterns,
                    place,
                    prefix,
                }));
            }
            Err(problem) => warn(&format!("{problem}; its rules were not applied")),
        }
        Ok(())
    }

    fn parse(&self, text: &[u8], place: &[u8], rank: u8) -> std::result::Result<Patterns, String> {
        let mut builder = PatternsBuilder::new();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (line, number) in text.split(|&b| b == b'\n').zip(1u32..) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if let Err(problem) = builder.add(number, line) {
                let problem = format!("{problem}; the line was skipped");
                self.warn(RuleWarning {
                    path: place.to_vec(),
                    line: number,
                    problem,
                });
            }
        }
        let patterns = builder.build()?;
        let applied = patterns.written.iter().map(|(line, rule)| Applied {
            rank,
            place: place.to_vec(),
            line: *line,
            rule: rule.clone(),
        });
        self.applied
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(applied);
        Ok(patterns)
    }

    fn warn(&self, warning: RuleWarning) {
        self.warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(warning);
    }

    /// The rules that applied, the overriding ones last, and those that could not be.
    pub(crate) fn finish(self) -> (Vec<Rule>, Vec<RuleWarning>) {
        let mut applied = self
            .applied
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        applied.sort();
        let mut rules = Vec::new();
        let mut add = |place: &[u8], rule: &[u8]| {
            rules.push(Rule {
                origin: place.to_vec(),
                rule: rule.to_vec(),
            });
        };
        if self.options.default_ignores {
            for name in VCS_NAMES.iter().chain(&CACHE_DIRECTORIES) {
                add(b"-default", name);
            }
            add(b"-default", CACHEDIR_TAG.to_bytes());
            add(b"-default", PYVENV_CFG.to_bytes());
        }
        if self.options.gitignore {
            add(b"-option", b"--gitignore");
        }
        for rule in &applied {
            add(&rule.place, &rule.rule);
        }
        for pattern in &self.options.exclude {
            add(b"-exclude", pattern);
        }
        let mut warnings = self
            .warnings
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        warnings.sort();
        (rules, warnings)
    }
}

/// Whether a name is version-control metadata: a tree of nothing else may make a checkpoint of nothing.
pub(crate) fn is_vcs_name(name: &[u8]) -> bool {
    VCS_NAMES.contains(&name)
}

/// Whether a name is that of a rule file.
pub(crate) fn is_rule_file(name: &[u8]) -> bool {
    name == RULE_FILE.to_bytes() || name == GIT_RULE_FILE.to_bytes()
}

fn judge_levels(mut level: Option<&Level>, path: &[u8], is_dir: bool) -> Verdict {
    while let Some(this) = level {
        let relative = path.get(this.prefix..).unwrap_or(path);
        match this.patterns.judge(relative, is_dir) {
            Match::Ignore((line, text)) => {
                let line = format!(":{line}: ");
                return Verdict::Cut([this.place.as_slice(), line.as_bytes(), text].concat());
            }
            Match::Whitelist(_) => return Verdict::TakeByRule,
            Match::None => level = this.above.as_deref(),
        }
    }
    Verdict::Take
}

enum Text {
    Lines(Vec<u8>),
    NotRegular,
    TooLong,
}

fn read_rule_file(handle: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Text> {
    let file = match door::open_file(handle, name, false) {
        Err(Errno::LOOP) => return Ok(Text::NotRegular),
        answer => answer?,
    };
    let stat = door::fstat(&file)?;
    if Found::of(stat.mode) != Found::File {
        return Ok(Text::NotRegular);
    }
    let mut text = vec![0; MAX_RULE_FILE_BYTES + 1];
    let length = door::read_full(&file, &mut text)?;
    if length > MAX_RULE_FILE_BYTES {
        return Ok(Text::TooLong);
    }
    text.truncate(length);
    Ok(Text::Lines(text))
}

fn is_cache_tag(handle: BorrowedFd<'_>) -> bool {
    let read = || {
        let file = door::open_file(handle, CACHEDIR_TAG, false)?;
        let mut head = [0; CACHEDIR_SIGNATURE.len()];
        let regular = Found::of(door::fstat(&file)?.mode) == Found::File;
        let length = if regular {
            door::read_full(&file, &mut head)?
        } else {
            0
        };
        Ok::<_, Errno>(length == head.len() && head == *CACHEDIR_SIGNATURE)
    };
    read().unwrap_or(false)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make their own trees")]
mod tests {
    use super::*;
    use crate::worktree::Root;

    fn rules(options: &RuleOptions) -> Rules {
        Rules::new(options).unwrap()
    }

    fn cut(text: &str) -> Verdict {
        Verdict::Cut(text.as_bytes().to_vec())
    }

    fn judge(rules: &Rules, chain: &Chain, path: &[u8], is_dir: bool) -> Verdict {
        let name = path.rsplit(|&b| b == b'/').next().unwrap();
        rules.judge(chain, path, name, is_dir)
    }

    /// A chain as a walk would make it: one rule file per directory, from the root down.
    fn chain(rules: &Rules, files: &[(&str, &CStr, &[u8])]) -> Chain {
        let mut chain = Chain::default();
        for (directory, name, text) in files {
            let temp = tempfile::tempdir().unwrap();
            std::fs::write(temp.path().join(OsStr::from_bytes(name.to_bytes())), text).unwrap();
            let root = Root::open(temp.path()).unwrap();
            rules
                .load(&mut chain, root.handle(), directory.as_bytes(), name)
                .unwrap();
        }
        chain
    }

    #[test]
    fn defaults_cut_metadata_of_any_kind_but_caches_only_as_directories() {
        let rules = rules(&RuleOptions::default());
        let none = Chain::default();
        assert!(!rules.needs_path(&none));
        for name in [".git", ".hg", ".svn", ".jj"] {
            for is_dir in [true, false] {
                assert_eq!(
                    judge(&rules, &none, name.as_bytes(), is_dir),
                    cut(&format!("default: {name}"))
                );
            }
        }
        for name in ["node_modules", "__pycache__"] {
            assert_eq!(
                judge(&rules, &none, name.as_bytes(), true),
                cut(&format!("default: {name}"))
            );
            assert_eq!(judge(&rules, &none, name.as_bytes(), false), Verdict::Take);
        }
        for name in [".gitignore", ".gitx", "git", "node_module", "x"] {
            assert_eq!(judge(&rules, &none, name.as_bytes(), true), Verdict::Take);
        }
        let off = Rules::new(&RuleOptions {
            default_ignores: false,
            ..RuleOptions::default()
        })
        .unwrap();
        assert_eq!(judge(&off, &none, b".git", true), Verdict::Take);
    }

    #[test]
    fn deeper_files_override_and_lines_are_named() {
        let rules = rules(&RuleOptions::default());
        let chain = chain(
            &rules,
            &[
                (
                    "",
                    RULE_FILE,
                    b"# logs\n\n*.log\r\n/top\n!node_modules/\nbuild/\n" as &[u8],
                ),
                ("a/b", RULE_FILE, b"!keep.log\n/local\n"),
            ],
        );
        assert_eq!(
            judge(&rules, &chain, b"a/b/x.log", false),
            cut(".genstoreignore:3: *.log")
        );
        assert_eq!(
            judge(&rules, &chain, b"a/b/keep.log", false),
            Verdict::TakeByRule
        );
        assert_eq!(
            judge(&rules, &chain, b"a/b/c/keep.log", false),
            Verdict::TakeByRule
        );
        assert_eq!(
            judge(&rules, &chain, b"a/b/local", false),
            cut("a/b/.genstoreignore:2: /local")
        );
        assert_eq!(judge(&rules, &chain, b"a/b/c/local", false), Verdict::Take);
        assert_eq!(judge(&rules, &chain, b"a/b/top", false), Verdict::Take);
        assert_eq!(
            judge(&rules, &chain, b"top", false),
            cut(".genstoreignore:4: /top")
        );
        assert_eq!(
            judge(&rules, &chain, b"a/b/node_modules", true),
            Verdict::TakeByRule
        );
        assert_eq!(
            judge(&rules, &chain, b"a/b/build", true),
            cut(".genstoreignore:6: build/")
        );
        assert_eq!(judge(&rules, &chain, b"a/b/build", false), Verdict::Take);
        assert_eq!(
            judge(&rules, &chain, b"a/b/\xff\xfe.log", false),
            cut(".genstoreignore:3: *.log")
        );
        let (in_force, warnings) = rules.finish();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(in_force.contains(&Rule {
            origin: b"a/b/.genstoreignore".to_vec(),
            rule: b"/local".to_vec()
        }));
    }

    #[test]
    fn exclude_decides_before_files_and_own_files_before_git() {
        let options = RuleOptions {
            gitignore: true,
            exclude: vec![b"*.tmp".to_vec(), b"!mine.log".to_vec()],
            ..RuleOptions::default()
        };
        let rules = rules(&options);
        let chain = chain(
            &rules,
            &[
                ("", RULE_FILE, b"!a.tmp\n*.log\n!taken.o\n" as &[u8]),
                ("", GIT_RULE_FILE, b"*.o\n"),
                ("d", GIT_RULE_FILE, b"!x.log\n"),
            ],
        );
        assert_eq!(
            judge(&rules, &chain, b"d/a.tmp", false),
            cut("--exclude: *.tmp")
        );
        assert_eq!(
            judge(&rules, &chain, b"d/mine.log", false),
            Verdict::TakeByRule
        );
        assert_eq!(
            judge(&rules, &chain, b"d/x.log", false),
            cut(".genstoreignore:2: *.log")
        );
        assert_eq!(
            judge(&rules, &chain, b"d/x.o", false),
            cut(".gitignore:1: *.o")
        );
        assert_eq!(
            judge(&rules, &chain, b"d/taken.o", false),
            Verdict::TakeByRule
        );
    }

    #[test]
    fn a_bad_line_is_skipped_and_reported() {
        let rules = rules(&RuleOptions::default());
        let chain = chain(&rules, &[("s", RULE_FILE, b"[z-a]\n*.o\n\xff\n" as &[u8])]);
        assert_eq!(
            judge(&rules, &chain, b"s/x.o", false),
            cut("s/.genstoreignore:2: *.o")
        );
        assert_eq!(judge(&rules, &chain, b"s/b", false), Verdict::Take);
        let (_, warnings) = rules.finish();
        let lines: Vec<u32> = warnings.iter().map(|w| w.line).collect();
        assert_eq!(lines, [1, 3], "{warnings:?}");
        assert!(warnings.iter().all(|w| w.path == b"s/.genstoreignore"));
    }

    #[test]
    fn braces_are_plain_characters_as_in_git() {
        let rules = rules(&RuleOptions::default());
        let chain = chain(
            &rules,
            &[("", RULE_FILE, b"*.{a,b}\n[{}]x\n\\{y\n{z\n[]{]w\n" as &[u8])],
        );
        assert_eq!(judge(&rules, &chain, b"f.a", false), Verdict::Take);
        for (name, rule) in [
            (&b"f.{a,b}"[..], ":1: *.{a,b}"),
            (b"{x", ":2: [{}]x"),
            (b"}x", ":2: [{}]x"),
            (b"{y", ":3: \\{y"),
            (b"{z", ":4: {z"),
            (b"]w", ":5: []{]w"),
            (b"{w", ":5: []{]w"),
        ] {
            assert_eq!(
                judge(&rules, &chain, name, false),
                cut(&format!(".genstoreignore{rule}"))
            );
        }
        assert_eq!(judge(&rules, &chain, b"\\x", false), Verdict::Take);
    }

    #[test]
    fn a_bad_exclude_pattern_is_refused() {
        for pattern in [&b"[z-a]"[..], b"\xff"] {
            let options = RuleOptions {
                exclude: vec![pattern.to_vec()],
                ..RuleOptions::default()
            };
            assert_eq!(Rules::new(&options).unwrap_err().code(), "invalid");
        }
    }

    #[test]
    fn a_linked_or_huge_rule_file_cuts_nothing_and_is_reported() {
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", temp.path().join(".genstoreignore")).unwrap();
        std::fs::write(
            temp.path().join(".gitignore"),
            vec![b'x'; MAX_RULE_FILE_BYTES + 1],
        )
        .unwrap();
        let root = Root::open(temp.path()).unwrap();
        let rules = rules(&RuleOptions {
            gitignore: true,
            ..RuleOptions::default()
        });
        let mut chain = Chain::default();
        for name in rules.rule_files() {
            rules.load(&mut chain, root.handle(), b"", name).unwrap();
        }
        assert!(!rules.needs_path(&chain));
        assert_eq!(rules.finish().1.len(), 2);
    }

    #[test]
    fn only_a_real_tag_marks_a_cache_directory() {
        let temp = tempfile::tempdir().unwrap();
        let tag = temp.path().join("CACHEDIR.TAG");
        let root = Root::open(temp.path()).unwrap();
        let rules = rules(&RuleOptions::default());
        let rule = || rules.marker_rule(root.handle(), true, true);
        std::fs::write(&tag, b"Signature: something else, long enough to be one.").unwrap();
        assert_eq!(rule(), None);
        std::fs::write(&tag, [CACHEDIR_SIGNATURE, &b"\n# comment"[..]].concat()).unwrap();
        assert_eq!(rule(), Some(&b"default: CACHEDIR.TAG"[..]));
        std::fs::rename(&tag, temp.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", &tag).unwrap();
        assert_eq!(rule(), None, "a link is never followed");
        std::fs::create_dir(temp.path().join("pyvenv.cfg")).unwrap();
        assert_eq!(rule(), None);
        std::fs::remove_dir(temp.path().join("pyvenv.cfg")).unwrap();
        std::fs::write(temp.path().join("pyvenv.cfg"), b"").unwrap();
        assert_eq!(rule(), Some(&b"default: pyvenv.cfg"[..]));
    }
}
