//! The `genstore` command line, as a library so that tests can ask it for its verbs and its reference page.
//!
//! `main` parses, runs one verb and returns an exit code. A verb is an argument struct, whose doc comment is the help,
//! and one function in `commands/`; everything it decides is decided in `store_core`.

mod capture;
mod cli;
mod commands;
mod context;
mod describe;
mod error;
mod interrupt;
mod location;
mod output;
mod patch;
mod progress;
mod reference;
mod units;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use error::one_line;

pub use reference::reference;
pub use verbs::{VERBS, Verb};

/// The definition of the command line.
pub fn command() -> clap::Command {
    cli::Cli::command()
}

/// Runs one command line and returns its exit code. `arguments` begin with the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    raise_open_files();
    let code = match cli::Cli::try_parse_from(&arguments) {
        Ok(cli) => context::run(cli),
        Err(error) => explain_usage(&error, &arguments),
    };
    ExitCode::from(code)
}

/// A generation's packs are all open at once, and every directory on the way down a tree is.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where this is not allowed, the lower limit still serves all but the largest stores.
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .unwrap_or_default();
}

/// Prints help and version as they are, and wrong usage in the form that was asked for.
fn explain_usage(error: &clap::Error, arguments: &[OsString]) -> u8 {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    let json = arguments
        .iter()
        .skip(1)
        .take_while(|word| *word != "--")
        .any(|word| word == "--json");
    let no_verb = matches!(
        error.kind(),
        DisplayHelpOnMissingArgumentOrSubcommand | MissingSubcommand
    );
    if !error.use_stderr() {
        return print_help(error);
    }
    if no_verb && !json {
        // The whole help, for somebody who typed only `genstore`; if it cannot be written, the exit code says enough.
        drop(error.print());
        return error::exit::USAGE;
    }
    let (message, hint) = if no_verb {
        (
            "a verb is missing".to_owned(),
            "list them: genstore --help".to_owned(),
        )
    } else {
        usage_lines(&error.render().to_string())
    };
    if !json {
        output::say(&format!("genstore: {message}"));
        output::say(&format!("hint: {hint}"));
        return error::exit::USAGE;
    }
    let keys = error::document("usage", &message, Some(hint), error::exit::USAGE);
    let mut output = output::Output::stdout();
    drop(
        output
            .document("error", &keys)
            .and_then(|()| output.flush()),
    );
    error::exit::USAGE
}

/// Prints what `--help` or `--version` asked for, in colour on a terminal.
fn print_help(error: &clap::Error) -> u8 {
    use std::io::IsTerminal as _;
    let written = if std::io::stdout().is_terminal() {
        error.print().map_err(output::failed)
    } else {
        let mut output = output::Output::stdout();
        output
            .raw(error.render().to_string().as_bytes())
            .and_then(|()| output.flush())
    };
    match written.map_err(error::Failure::from) {
        Err(failure) if !output::is_broken_pipe(failure.error()) => {
            failure.tell(false);
            failure.exit_code()
        }
        _ => error::exit::DONE,
    }
}

/// The parser's explanation as one line, and its usage or tip as the hint.
fn usage_lines(text: &str) -> (String, String) {
    let mut paragraphs = text
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = paragraphs.next().unwrap_or_default();
    let message = message
        .strip_prefix("error: ")
        .unwrap_or(&message)
        .to_owned();
    let kept = |part: &String| !part.is_empty() && !part.starts_with("For more information");
    let hint: Vec<String> = paragraphs
        .filter(kept)
        .map(|part| {
            one_line(
                part.trim_start_matches("Usage: ")
                    .trim_start_matches("tip: "),
            )
        })
        .collect();
    (
        message,
        if hint.is_empty() {
            "genstore --help".to_owned()
        } else {
            hint.join("; ")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(line: &[&str]) -> (String, String) {
        let error = cli::Cli::try_parse_from(line).unwrap_err();
        usage_lines(&error.render().to_string())
    }

    #[test]
    fn wrong_usage_is_one_line_and_a_hint() {
        let (message, hint) = usage(&["genstore", "log", "--bogus"]);
        assert_eq!(message, "unexpected argument '--bogus' found");
        assert!(hint.contains("genstore log"), "{hint}");
        let (message, hint) = usage(&["genstore", "cat"]);
        assert!(
            message.contains("required arguments") && message.contains("<ID> <PATH>"),
            "{message}"
        );
        assert!(hint.starts_with("genstore cat"), "{hint}");
        let (message, _) = usage(&["genstore", "init", "--max-size", "9X"]);
        assert!(
            message.contains("unknown unit") && !message.contains('\n'),
            "{message}"
        );
    }

    #[test]
    fn a_limit_is_raised_to_what_is_allowed() {
        use rustix::process::{Resource, getrlimit};
        raise_open_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
