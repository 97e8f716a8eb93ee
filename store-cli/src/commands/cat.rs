//! `genstore cat`.

use std::ffi::OsString;

use serde_json::Value;
use store_core::id::to_hex;
use store_core::{Error, Result};

use crate::cli::{GenerationArg, LineageArg};
use crate::context::Context;
use crate::describe;
use crate::error::Outcome;
use crate::output::{self, object};

/// The largest file that goes into a JSON document (64 MiB).
const MAX_JSON_BYTES: usize = 64 << 20;

/// Writes a file's content, as a checkpoint holds it, to standard output
///
/// Every object is checked before its bytes are written. With --json the content is `text`, or `bytes` in hex.
#[derive(clap::Args, Debug)]
pub(crate) struct Cat {
    /// The checkpoint: 4 or more digits of its id, `latest`, `latest~N`, `first`, `@TIME` or a tag.
    #[arg(value_name = "ID")]
    id: String,
    /// The file, relative to the captured directory.
    #[arg(value_name = "PATH")]
    path: OsString,
    #[command(flatten)]
    lineage: LineageArg,
    #[command(flatten)]
    generation: GenerationArg,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Cat) -> Outcome {
    let store = context.open()?;
    let view = args.generation.view(&store)?;
    let info = context.find(&view, &args.id, args.lineage.lineage.as_deref())?;
    let path = context.inside(&args.path)?;
    if !context.json() {
        let out = &mut context.out;
        view.cat(&info, &path, &mut |bytes| out.raw(bytes))?;
        return Ok(());
    }
    let mut keys = describe::entry(&view.entry(&info, &path)?);
    let mut whole = Vec::new();
    view.cat(&info, &path, &mut |bytes| collect(&mut whole, bytes))?;
    let (key, value) = match String::from_utf8(whole) {
        Ok(text) => ("text", text),
        Err(error) => ("bytes", to_hex(error.as_bytes())),
    };
    keys.insert(key.to_owned(), Value::from(value));
    keys.extend(object! { "checkpoint": info.id.to_string(), "path": output::name(&path) });
    context.answer(keys)
}

fn collect(content: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    if content.len() + bytes.len() > MAX_JSON_BYTES {
        let problem =
            "the file has more than 64 MiB, too much for a JSON document; leave --json away"
                .to_owned();
        return Err(Error::Invalid {
            what: "cat --json",
            problem,
        });
    }
    content.extend_from_slice(bytes);
    Ok(())
}
