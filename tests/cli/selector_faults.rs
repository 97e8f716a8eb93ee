//! Every fault of the selector × every verb: its own code, exit 5, no byte changed, no hang, and a way out.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use genstore_tests::tree::Frozen;
use genstore_tests::{Dir, Genstore, machine};
use serde_json::Value;

use crate::verbs::{forms, rich_store};

/// Nothing that resolves a selector may take this long, even on a loaded machine.
const HANG: Duration = Duration::from_secs(20);

/// A fault: its name, the code that answers it, and how it is made.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) code: &'static str,
    make: Box<dyn Fn(&Dir) + Send + Sync>,
}

fn fault(
    name: &'static str,
    code: &'static str,
    make: impl Fn(&Dir) + Send + Sync + 'static,
) -> Fault {
    Fault {
        name,
        code,
        make: Box::new(make),
    }
}

/// `CURRENT` with other bytes, made from the right ones.
fn bytes(name: &'static str, change: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Fault {
    fault(name, "selector_malformed", move |dir| {
        let line = dir.current();
        fs::write(dir.store().join("CURRENT"), change(line.trim_end())).unwrap();
    })
}

/// `CURRENT` replaced by something that is not a regular file.
fn instead(name: &'static str, make: impl Fn(&Dir, &Path) + Send + Sync + 'static) -> Fault {
    fault(name, "selector_not_regular", move |dir| {
        let current = dir.store().join("CURRENT");
        fs::rename(&current, dir.path("CURRENT.good")).unwrap();
        make(dir, &current);
    })
}

/// Something done to the live generation's directory.
fn live(
    name: &'static str,
    code: &'static str,
    make: impl Fn(&Dir, &Path) + Send + Sync + 'static,
) -> Fault {
    fault(name, code, move |dir| make(dir, &dir.live()))
}

fn malformed() -> Vec<Fault> {
    vec![
        bytes("empty", |_| Vec::new()),
        bytes("no line feed", |id| id.into()),
        bytes("no line feed but the right length", |id| {
            format!("{id} ").into()
        }),
        bytes("CRLF", |id| format!("{id}\r\n").into()),
        bytes("a byte order mark", |id| format!("\u{feff}{id}\n").into()),
        bytes("two lines", |id| format!("{id}\n{id}\n").into()),
        bytes("an empty second line", |id| format!("{id}\n\n").into()),
        bytes("upper case", |id| format!("{}\n", id.to_uppercase()).into()),
        bytes("a leading space", |id| format!(" {id}\n").into()),
        bytes("a trailing space", |id| format!("{id} \n").into()),
        bytes("a name, a space and a word", |id| {
            format!("{} default\n", &id[..39]).into()
        }),
        bytes("a path upwards", |_| b"../generations/x\n".to_vec()),
        bytes("a path upwards of the right length", |_| {
            format!("{:.<47}\n", "../").into()
        }),
        bytes("an absolute path", |_| b"/etc/passwd\n".to_vec()),
        bytes("a separator inside", |id| {
            format!("{}/{}\n", &id[..20], &id[21..]).into()
        }),
        bytes("a NUL", |id| {
            format!("{}\0{}\n", &id[..20], &id[21..]).into()
        }),
        bytes("not UTF-8", |id| [&id.as_bytes()[..46], b"\xff\n"].concat()),
        bytes("sequence 0", |id| {
            format!("gen-0000000000{}\n", &id[14..]).into()
        }),
        bytes("a sign in the sequence", |id| {
            format!("gen-+{}\n", &id[5..]).into()
        }),
        bytes("48 NULs", |_| vec![0; 48]),
        bytes("a megabyte", |id| format!("{id}\n").repeat(22_000).into()),
        bytes("the word default", |_| b"default\n".to_vec()),
    ]
}

fn not_regular() -> Vec<Fault> {
    let mut faults = vec![
        instead("a symlink to the right bytes", |dir, at| {
            symlink(dir.path("CURRENT.good"), at).unwrap();
        }),
        instead("a dangling symlink", |_, at| {
            symlink("nowhere", at).unwrap();
        }),
        instead("a symlink to itself", |_, at| {
            symlink("CURRENT", at).unwrap();
        }),
        instead("a directory", |_, at| fs::create_dir(at).unwrap()),
        instead("a FIFO", |_, at| make_fifo(at)),
        instead("a socket", |_, at| {
            drop(std::os::unix::net::UnixListener::bind(at).unwrap());
        }),
    ];
    if machine::is_root() {
        faults.push(instead("a device", |_, at| {
            let made = Command::new("mknod")
                .arg(at)
                .args(["c", "1", "3"])
                .status()
                .unwrap();
            assert!(made.success());
        }));
    }
    faults
}

fn of_the_generation() -> Vec<Fault> {
    vec![
        bytes("the id of no generation", |id| {
            format!("{}{}\n", &id[..15], "0".repeat(32)).into()
        })
        .coded("generation_missing"),
        live(
            "the directory is gone",
            "generation_missing",
            |dir, live| {
                fs::rename(live, dir.path("taken")).unwrap();
            },
        ),
        live(
            "a symlink to the right directory",
            "generation_not_directory",
            |dir, live| {
                fs::rename(live, dir.path("taken")).unwrap();
                symlink(dir.path("taken"), live).unwrap();
            },
        ),
        live("a file", "generation_not_directory", |dir, live| {
            fs::rename(live, dir.path("taken")).unwrap();
            fs::write(live, "not a directory").unwrap();
        }),
        live(
            "a FIFO in place of the directory",
            "generation_not_directory",
            |dir, live| {
                fs::rename(live, dir.path("taken")).unwrap();
                make_fifo(live);
            },
        ),
        live("no manifest", "manifest_missing", |_, live| {
            fs::remove_file(live.join("manifest.json")).unwrap();
        }),
        live("an empty directory", "manifest_missing", |dir, live| {
            fs::rename(live, dir.path("taken")).unwrap();
            fs::create_dir(live).unwrap();
        }),
        live("a symlink as manifest", "manifest_missing", |dir, live| {
            fs::rename(live.join("manifest.json"), dir.path("manifest.json")).unwrap();
            symlink(dir.path("manifest.json"), live.join("manifest.json")).unwrap();
        }),
        live("a FIFO as manifest", "manifest_missing", |_, live| {
            fs::remove_file(live.join("manifest.json")).unwrap();
            make_fifo(&live.join("manifest.json"));
        }),
        live(
            "one flipped bit in the manifest",
            "manifest_mismatch",
            |_, live| {
                rewrite_manifest(live, |bytes| {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                });
            },
        ),
        live("a shorter manifest", "manifest_mismatch", |_, live| {
            rewrite_manifest(live, |bytes| bytes.truncate(bytes.len() - 1));
        }),
        live("an empty manifest", "manifest_mismatch", |_, live| {
            rewrite_manifest(live, Vec::clear);
        }),
        live(
            "another generation's manifest",
            "manifest_mismatch",
            |dir, live| {
                let other = fs::read_dir(dir.store().join("generations"))
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .find(|path| path != live && path.join("manifest.json").is_file())
                    .unwrap();
                rewrite_manifest(live, |bytes| {
                    *bytes = fs::read(other.join("manifest.json")).unwrap();
                });
            },
        ),
        fault("format 2", "manifest_unsupported", |dir| {
            republish(dir, |manifest| {
                manifest.insert("format".into(), 2.into());
            });
        }),
        fault("an unknown field", "manifest_unsupported", |dir| {
            republish(dir, |manifest| {
                manifest.insert("surprise".into(), Value::Null);
            });
        }),
        fault(
            "a manifest that is not canonical",
            "manifest_mismatch",
            |dir| {
                republish_bytes(dir, |bytes| {
                    let text = String::from_utf8(bytes).unwrap();
                    text.replacen(':', ": ", 1).into_bytes()
                });
            },
        ),
    ]
}

impl Fault {
    fn coded(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn make(&self, dir: &Dir) {
        (self.make)(dir);
    }
}

/// Every fault of the selector and of what it names.
pub(crate) fn faults() -> Vec<Fault> {
    let mut faults = vec![fault("missing", "selector_missing", |dir| {
        fs::rename(dir.store().join("CURRENT"), dir.path("CURRENT.good")).unwrap();
    })];
    faults.extend(malformed());
    faults.extend(not_regular());
    faults.extend(of_the_generation());
    faults
}

fn make_fifo(at: &Path) {
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        at,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
}

fn rewrite_manifest(live: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let path = live.join("manifest.json");
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    // Another inode: the manifest itself is read-only, and root would not notice.
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
}

/// Publishes a changed copy of the live generation with a right id, as a newer genstore would.
fn republish(dir: &Dir, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    republish_bytes(dir, |bytes| {
        let mut manifest =
            serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).unwrap();
        change(&mut manifest);
        serde_json::to_vec(&manifest).unwrap()
    });
}

fn republish_bytes(dir: &Dir, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let live = dir.live();
    let bytes = change(fs::read(live.join("manifest.json")).unwrap());
    let digest = &blake3::hash(&bytes).to_hex()[..32];
    let sequence = &dir.current()[4..14];
    let id = format!("gen-{sequence}-{digest}");
    let directory = dir.store().join("generations").join(&id);
    genstore_tests::dir::copy_dir(&live, &directory);
    rewrite_manifest(&directory, |manifest| *manifest = bytes);
    fs::write(dir.store().join("CURRENT"), format!("{id}\n")).unwrap();
}

/// Forms that need no live generation, by name: the exemptions of the design. A form is exempt for one of these reasons only.
fn exempt(verb: &str, args: &[&str]) -> bool {
    match verb {
        "status" | "init" | "completions" => true,
        "verify" => !args.is_empty() && args != ["--quick"],
        "activate" => args.contains(&"--replace-selector"),
        _ => args.contains(&"--generation"),
    }
}

#[test]
fn the_exemptions_are_those_of_the_design() {
    for verb in store_cli::VERBS {
        assert_eq!(
            verb.needs_live,
            !exempt(verb.name, verb.sample_args),
            "{} {:?}",
            verb.name,
            verb.sample_args
        );
    }
}

/// Runs every verb that needs the live generation, and expects the fault's code and nothing else.
fn refuse(dir: &Dir, genstore: &Genstore, generation: &str, fault: &Fault) {
    let before = Frozen::of(&dir.store());
    let tree = Frozen::of(&dir.tree());
    for form in forms(dir, generation)
        .iter()
        .filter(|form| form.verb.needs_live)
    {
        let mut args = form.args.clone();
        args.push("--json".into());
        let what = format!("{} on `{}`", form.shown, fault.name);
        let ran = genstore.clone().limit(HANG).run(&args);
        assert_eq!(ran.status.code(), Some(5), "{what}: {ran}");
        let failed = ran.error();
        assert_eq!(failed.code, fault.code, "{what}: {ran}");
        assert!(
            failed.hint.contains("genstore status") || failed.hint.contains("mv "),
            "{what}: {ran}"
        );
        before.assert_unchanged(&Frozen::of(&dir.store()), &what);
        let target = form
            .args
            .iter()
            .position(|arg| arg == "--to")
            .map(|at| PathBuf::from(&form.args[at + 1]));
        if let Some(target) = target {
            assert_eq!(
                fs::read_dir(target).unwrap().count(),
                0,
                "{what}: something was restored"
            );
        }
    }
    tree.assert_unchanged(&Frozen::of(&dir.tree()), fault.name);
}

/// `status` still reports everything, exits 5, and names the way out.
fn reports(dir: &Dir, genstore: &Genstore, fault: &Fault) -> Value {
    let before = Frozen::of(&dir.store());
    let ran = genstore
        .clone()
        .limit(HANG)
        .run(["status", "--json"])
        .exit(5);
    let status = ran.json();
    assert_eq!(status["schema"], "genstore.status/1", "{ran}");
    assert_eq!(
        status["selector"]["state"], "untrusted",
        "`{}`: {ran}",
        fault.name
    );
    assert_eq!(
        status["selector"]["code"], fault.code,
        "`{}`: {ran}",
        fault.name
    );
    assert!(
        status["generations"].is_array() && status["bytes"].is_object(),
        "{ran}"
    );
    let shown = genstore.clone().limit(HANG).run(["status"]).exit(5);
    let said = shown.out() + &shown.err();
    assert!(
        said.contains("--replace-selector"),
        "`{}` without a way out: {shown}",
        fault.name
    );
    assert!(
        said.contains("genstore activate"),
        "`{}` without a command: {shown}",
        fault.name
    );
    before.assert_unchanged(&Frozen::of(&dir.store()), fault.name);
    status
}

/// Each verb's process start is the cost of this test: the faults are shared out to as many fixtures as the machine has threads.
fn in_parallel(faults: Vec<Fault>, each: impl Fn(&Fault) + Sync) {
    let queue = std::sync::Mutex::new(faults.into_iter());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    match next {
                        Some(fault) => each(&fault),
                        None => break,
                    }
                }
            });
        }
    });
}

#[test]
fn every_fault_is_refused_by_every_verb_and_explained_by_status() {
    in_parallel(faults(), |fault| {
        let (dir, genstore, generation) = rich_store();
        fault.make(&dir);
        refuse(&dir, &genstore, &generation, fault);
        reports(&dir, &genstore, fault);
    });
}

#[test]
fn every_fault_has_its_own_code() {
    let mut codes: BTreeMap<_, usize> = BTreeMap::new();
    for fault in faults() {
        *codes.entry(fault.code).or_default() += 1;
    }
    let expected = [
        "generation_missing",
        "generation_not_directory",
        "manifest_mismatch",
        "manifest_missing",
        "manifest_unsupported",
        "selector_malformed",
        "selector_missing",
        "selector_not_regular",
    ];
    assert_eq!(codes.into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn reading_an_explicit_generation_needs_no_selector() {
    let (dir, genstore, generation) = rich_store();
    let expected = genstore.json(["log", "--all", "--generation", &generation]);
    for fault in [
        faults().remove(0),
        not_regular().remove(4),
        malformed().remove(0),
    ] {
        let (dir, genstore, generation) = rich_store();
        fault.make(&dir);
        let before = Frozen::of(&dir.store());
        for form in forms(&dir, &generation)
            .iter()
            .filter(|form| form.args.iter().any(|arg| arg == "--generation"))
        {
            let ran = genstore.clone().limit(HANG).run(&form.args);
            // What is asked for is in that generation, and only there; none of these may be refused because of CURRENT.
            assert_eq!(
                ran.status.code(),
                Some(0),
                "{} on `{}`: {ran}",
                form.shown,
                fault.name
            );
        }
        before.assert_unchanged(&Frozen::of(&dir.store()), fault.name);
    }
    assert_eq!(
        genstore.json(["log", "--all", "--generation", &generation]),
        expected
    );
    drop(dir);
}

#[test]
fn the_command_that_status_prints_mends_every_fault() {
    in_parallel(faults(), |fault| {
        let (dir, genstore, _) = rich_store();
        let before = genstore.json(["log", "--all"]);
        fault.make(&dir);
        let shown = genstore.run(["status"]).exit(5);
        let said = shown.out() + &shown.err();
        let current = dir.store().join("CURRENT");
        if fs::symlink_metadata(&current).is_ok_and(|meta| meta.is_dir()) {
            // Directories are the operator's to move, and the report says so.
            assert!(said.contains("mv "), "`{}`: {shown}", fault.name);
            let failed = genstore.fails(
                5,
                ["activate", &first_generation(&said), "--replace-selector"],
            );
            assert!(failed.hint.contains("mv "), "`{}`: {failed:?}", fault.name);
            fs::rename(&current, dir.store().join("CURRENT.aside")).unwrap();
        }
        let generation = first_generation(&said);
        let ran = genstore.run([
            "activate",
            &generation,
            "--replace-selector",
            "--json",
            "--leave-behind",
        ]);
        assert_eq!(ran.status.code(), Some(0), "`{}`: {ran}", fault.name);
        let ran = genstore.run(["verify"]);
        assert_eq!(ran.status.code(), Some(0), "`{}`: {ran}", fault.name);
        // Where the live generation itself is whole, nothing at all is lost.
        if fault.code.starts_with("selector_") {
            assert_eq!(
                genstore.json(["log", "--all"])["checkpoints"]
                    .as_array()
                    .map(Vec::len),
                before["checkpoints"].as_array().map(Vec::len),
                "`{}`",
                fault.name
            );
        }
        assert!(genstore.json(["checkpoint"])["created"].as_bool().is_some());
    });
}

/// The generation in the command that a status report suggests.
fn first_generation(said: &str) -> String {
    let command = said
        .find("genstore activate")
        .unwrap_or_else(|| panic!("no command in {said}"));
    let rest = &said[command..];
    let at = rest
        .find("gen-")
        .unwrap_or_else(|| panic!("no generation in {rest}"));
    rest[at..at + 47].to_owned()
}
