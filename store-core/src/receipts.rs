//! Receipts: one file per operation that acts beyond one commit; *intent* synced before the act, *outcome* after it.
//!
//! The before-state of a commit is in its manifest, which is authoritative; a receipt adds what the manifest cannot hold
//! (what failed, what was there before an untrusted selector was replaced).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::disk::{self, Dir, FILE_MODE, Temporary};
use crate::root::{Context, Root};
use crate::{Result, layout};

/// What a receipt says. Names that may hold any bytes are hex.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Receipt {
    pub(crate) schema: &'static str,
    pub(crate) verb: String,
    pub(crate) state: State,
    pub(crate) started: String,
    pub(crate) finished: Option<String>,
    pub(crate) writer: crate::format::manifest::Writer,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) details: BTreeMap<String, String>,
}

/// How far the operation came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Intent,
    Done,
    Failed,
}

/// An open receipt: its intent is durable, its outcome is not known yet.
#[derive(Debug)]
pub(crate) struct OpenReceipt {
    dir: Dir,
    name: String,
    receipt: Receipt,
}

impl OpenReceipt {
    /// Writes and syncs the intent. If that fails the act must not start.
    pub(crate) fn begin(
        root: &Root,
        context: &Context,
        verb: &str,
        sequence: u64,
        before: Option<String>,
        details: BTreeMap<String, String>,
    ) -> Result<Self> {
        let dir = root.sub_or_make(layout::RECEIPTS)?;
        let random = disk::random_nonce()?.to_string();
        let name = format!("{sequence:010}-{verb}-{}.json", &random[..16]);
        let receipt = Receipt {
            schema: "genstore.receipt/1",
            verb: verb.to_owned(),
            state: State::Intent,
            started: context.clock.now().to_rfc3339(),
            finished: None,
            writer: Context::writer(),
            before,
            after: None,
            error: None,
            details,
        };
        let file = dir.create(&name, FILE_MODE)?;
        file.append(&encode(&receipt))?;
        file.sync()?;
        dir.sync()?;
        Ok(Self { dir, name, receipt })
    }

    /// Adds a detail to the outcome.
    pub(crate) fn note(&mut self, key: &str, value: String) {
        self.receipt.details.insert(key.to_owned(), value);
    }

    /// Writes the outcome in place of the intent (a temporary file and a rename).
    ///
    /// # Errors
    /// If it cannot be written; the operation's own result stands all the same, so callers make this a warning.
    pub(crate) fn finish(
        mut self,
        root: &Root,
        context: &Context,
        outcome: Result<String, String>,
    ) -> Result<()> {
        self.receipt.finished = Some(context.clock.now().to_rfc3339());
        match outcome {
            Ok(after) => {
                self.receipt.state = State::Done;
                self.receipt.after = Some(after);
            }
            Err(error) => {
                self.receipt.state = State::Failed;
                self.receipt.error = Some(error);
            }
        }
        let incoming = root.sub_or_make(layout::INCOMING)?;
        let temporary = Temporary::create(&incoming, "receipt")?;
        temporary.file().append(&encode(&self.receipt))?;
        temporary.file().sync()?;
        match temporary.move_to(&self.dir, &self.name) {
            Ok(_) => {}
            // `incoming` is another mount: the temporary file goes beside the receipt.
            Err((_, error)) if error.errno() == Some(rustix::io::Errno::XDEV) => {
                let beside = Temporary::create(&self.dir, "receipt")?;
                beside.file().append(&encode(&self.receipt))?;
                beside.file().sync()?;
                beside
                    .move_to(&self.dir, &self.name)
                    .map_err(|(_, error)| error)?;
            }
            Err((_, error)) => return Err(error),
        }
        self.dir.sync()
    }
}

fn encode(receipt: &Receipt) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(receipt).expect("BUG: a receipt is plain data");
    bytes.push(b'\n');
    bytes
}
