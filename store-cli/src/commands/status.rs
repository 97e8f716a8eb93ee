//! `genstore status`.

use serde_json::Value;
use store_core::id::to_hex;
use store_core::name;
use store_core::{GenerationStatus, Status as Report};

use crate::context::Context;
use crate::describe;
use crate::error::{Outcome, exit, one_line};
use crate::output::{self, object};
use crate::units;

/// Reports on the store: its selector, generations, lineages, sizes and warnings
///
/// Works without a live generation: then the exit code is 5, and the report names the command that mends it.
#[derive(clap::Args, Debug)]
pub(crate) struct Status {}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, _: &Status) -> Outcome {
    let report = context.open()?.status()?;
    if report.selector.state != "ok" {
        context.exit = exit::UNTRUSTED;
    }
    if context.json() {
        return answer(context, report);
    }
    tell(context, &report)?;
    for warning in &report.warnings {
        context.line(format!("warning     {}", one_line(&warning.message)))?;
        if let Some(hint) = &warning.hint {
            context.line(format!("            {}", one_line(hint)))?;
        }
    }
    Ok(())
}

fn answer(context: &mut Context, report: Report) -> Outcome {
    let selector = &report.selector;
    let bytes = &report.bytes;
    let policy = report.policy.as_ref().map(|policy| {
        Value::Object(object! {
            "keep_last": policy.keep_last, "keep_within_s": policy.keep_within_s, "keep_daily": policy.keep_daily,
            "keep_weekly": policy.keep_weekly, "keep_monthly": policy.keep_monthly,
            "keep_tags": policy.keep_tags.clone(), "max_size_bytes": policy.max_size_bytes,
            "writable": policy.writable,
        })
    });
    let keys = object! {
        "store": output::text(report.store.as_ref()), "path": output::path(&report.path),
        "selector": object! {
            "state": selector.state, "code": selector.code, "message": selector.message.clone(),
            "current": output::text(selector.current.as_ref()), "raw": selector.raw.as_deref().map(to_hex), "mend": output::text(selector.mend.as_ref()),
        },
        "generations": report.generations.iter().map(generation).collect::<Vec<_>>(),
        "lineages": report.lineages.iter().map(describe::lineage).collect::<Vec<_>>(),
        "bytes": object! {
            "live": bytes.live, "superseded_only": bytes.superseded_only, "evidence": bytes.evidence,
            "incoming": bytes.incoming, "cache": bytes.cache, "total": bytes.total,
        },
        "husks": report.husks, "packs": report.packs, "lock_holder": report.lock_holder.clone(), "policy": policy,
        "maintain_due": report.maintain_due,
    };
    context.warn(report.warnings);
    context.answer(keys)
}

fn generation(generation: &GenerationStatus) -> Value {
    Value::Object(object! {
        "id": generation.id.to_string(), "state": generation.state, "bytes": generation.bytes,
        "own_bytes": generation.own_bytes, "created": generation.created.clone(),
        "operation": generation.operation,
    })
}

fn tell(context: &mut Context, report: &Report) -> Outcome {
    let selector = &report.selector;
    let store = report
        .store
        .map_or_else(|| "unknown".to_owned(), |id| id.to_string());
    context.line(format!(
        "store       {} ({store})",
        name::quote_path(&report.path)
    ))?;
    let current = selector
        .current
        .map_or_else(|| "none".to_owned(), |id| id.to_string());
    match selector.code {
        None => context.line(format!("live        {current}"))?,
        Some(code) => {
            context.line(format!(
                "selector    UNTRUSTED, {code}: {}",
                selector.message
            ))?;
            context.line(format!("names       {current}"))?;
        }
    }
    let bytes = &report.bytes;
    context.line(format!(
        "size        {}: live {}, superseded only {}, evidence {}, temporary {}, cache {}",
        units::size(bytes.total),
        units::size(bytes.live),
        units::size(bytes.superseded_only),
        units::size(bytes.evidence),
        units::size(bytes.incoming),
        units::size(bytes.cache),
    ))?;
    if let Some(holder) = &report.lock_holder {
        context.line(format!("lock        {}", name::escape(holder.as_bytes())))?;
    }
    context.line(format!(
        "holds       {}, {}",
        units::counted(report.packs, "pack", "packs"),
        units::counted(report.husks, "emptied directory", "emptied directories"),
    ))?;
    for lineage in &report.lineages {
        context.line(format!("lineage     {}", describe::lineage_line(lineage)))?;
    }
    for generation in report
        .generations
        .iter()
        .filter(|generation| generation.state != "husk")
    {
        let created = generation.created.as_deref().unwrap_or("-");
        context.line(format!(
            "generation  {}  {}  {}, its own {}  {created}",
            generation.id,
            generation.state,
            units::size(generation.bytes),
            units::size(generation.own_bytes),
        ))?;
    }
    Ok(())
}
