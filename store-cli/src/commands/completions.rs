//! `genstore completions`.

use clap_complete::aot::{Generator as _, Shell as Target};

use crate::context::Context;
use crate::error::Outcome;
use crate::output::object;

/// Prints a completion script for a shell
#[derive(clap::Args, Debug)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Completions) -> Outcome {
    let (word, target) = match args.shell {
        Shell::Bash => ("bash", Target::Bash),
        Shell::Zsh => ("zsh", Target::Zsh),
        Shell::Fish => ("fish", Target::Fish),
    };
    let mut command = crate::command();
    command.set_bin_name("genstore");
    command.build();
    let mut script = Vec::new();
    target.generate(&command, &mut script);
    if context.json() {
        let text = String::from_utf8_lossy(&script).into_owned();
        return context.answer(object! { "shell": word, "script": text });
    }
    Ok(context.out.raw(&script)?)
}
