//! Runs the README's commands verbatim.
//!
//! A block is run if an HTML comment `<!-- tested -->` stands right before its fence. All tested blocks of the page run as one script,
//! in a clone-like directory, with `cargo run --release --` replaced by the binary under test.

use std::fs;
use std::process::Command;

use genstore_tests::dir::Dir;
use genstore_tests::source::workspace;

use crate::GENSTORE;

/// The tested blocks of a page, in order.
fn tested_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "<!-- tested -->" {
            continue;
        }
        while lines.peek().is_some_and(|line| line.trim().is_empty()) {
            lines.next();
        }
        let fence = lines.next().unwrap_or_default();
        assert!(
            fence.starts_with("```sh"),
            "a tested block has to be a ```sh block, not {fence:?}"
        );
        blocks.push(
            lines
                .by_ref()
                .take_while(|line| !line.starts_with("```"))
                .flat_map(|line| [line, "\n"])
                .collect(),
        );
    }
    blocks
}

/// What a newcomer types, with the built binary in place of a build; prompts are no part of it.
fn script(blocks: &[String]) -> String {
    let text = blocks
        .concat()
        .replace("cargo run --release --", "genstore")
        .replace("cargo run -r --", "genstore");
    text.lines()
        .flat_map(|line| [line.strip_prefix("$ ").unwrap_or(line), "\n"])
        .collect()
}

#[test]
fn the_commands_of_the_readme_run() {
    let page = workspace().join("README.md");
    let Ok(page) = fs::read_to_string(page) else {
        panic!("there is no README.md");
    };
    let blocks = tested_blocks(&page);
    assert!(!blocks.is_empty(), "README.md has no tested block");
    let script = script(&blocks);
    assert!(
        script.contains("genstore checkpoint"),
        "the main job is not among the tested commands:\n{script}"
    );
    assert!(
        !script.contains("cargo test"),
        "the tests cannot run themselves"
    );

    let dir = Dir::new();
    for name in ["README.md", "Cargo.toml", "docs/format.md"] {
        dir.write(name, fs::read(workspace().join(name)).unwrap());
    }
    fs::create_dir(dir.path("bin")).unwrap();
    std::os::unix::fs::symlink(GENSTORE, dir.path("bin/genstore")).unwrap();
    let path = format!(
        "{}:{}",
        dir.path("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("sh")
        .args(["-e", "-u", "-c", &script])
        .current_dir(dir.tree())
        .env_clear()
        .env("PATH", path)
        .env("HOME", dir.path("home"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n--- script\n{script}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // The default store was made on first use.
    assert!(dir.path("home/.local/share/genstore/CURRENT").is_file());
}

#[test]
fn tested_blocks_are_found() {
    let page = "text\n```sh\nnot this\n```\n<!-- tested -->\n```sh\n$ cargo run --release -- checkpoint .\n```\n<!-- tested -->\n\n```sh\necho two\n```\n";
    assert_eq!(
        script(&tested_blocks(page)),
        "genstore checkpoint .\necho two\n"
    );
}
