//! The `genstore` program: parse, run, exit code. Everything else is in the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    store_cli::main(std::env::args_os())
}
