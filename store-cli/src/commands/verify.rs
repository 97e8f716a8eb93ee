//! `genstore verify`.

use std::ffi::{OsStr, OsString};

use serde_json::Value;
use store_core::name;
use store_core::{Damage, Store, VerifyReport, VerifyTarget};

use crate::context::{self, Context, Target};
use crate::describe;
use crate::error::{Outcome, exit};
use crate::output::{self, append, object};
use crate::units;

/// Checks a generation: every pack, every object, every file of every checkpoint
///
/// Damage is told as the checkpoints and paths that it concerns, and the exit code is 4. Changes nothing.
#[derive(clap::Args, Debug)]
pub(crate) struct Verify {
    /// A generation of the store (`gen-…`, or a unique prefix), or a generation's directory anywhere; without it, the
    /// live generation.
    #[arg(value_name = "GEN|DIR")]
    target: Option<OsString>,
    /// Checks everything but the stored bodies.
    #[arg(long)]
    quick: bool,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Verify) -> Outcome {
    let (store, target) = match &args.target {
        None => (context.open()?, VerifyTarget::Live),
        Some(argument) => target(context, argument)?,
    };
    let report = store.verify(&target, args.quick)?;
    if !report.ok {
        context.exit = exit::DAMAGE;
    }
    if context.json() {
        return context.answer(object! {
            "ok": report.ok, "damage": report.damage.iter().map(damage).collect::<Vec<_>>(),
            "generation": output::text(report.generation.as_ref()), "packs": report.packs,
            "objects": report.objects, "bytes": report.bytes, "checkpoints": report.checkpoints,
            "quick": report.quick,
        });
    }
    tell(context, &report)
}

/// What to verify, and the store that looks at it. A directory needs no other store than itself, if there is none.
fn target(context: &Context, argument: &OsStr) -> Outcome<(Store, VerifyTarget)> {
    let store = match context.open() {
        Ok(store) => store,
        Err(failure)
            if failure.error().code() == "store_not_found" && !context::is_generation(argument) =>
        {
            let directory = context.directory(argument)?;
            context.options().open(&directory).map_err(|_| failure)?
        }
        Err(failure) => return Err(failure),
    };
    let target = match context.target(&store, argument)? {
        Target::Generation(id) => VerifyTarget::Generation(id),
        Target::Directory(path) => VerifyTarget::Directory(path),
    };
    Ok((store, target))
}

fn damage(damage: &Damage) -> Value {
    Value::Object(object! {
        "checkpoint": output::text(damage.checkpoint.as_ref()),
        "lineage": damage.lineage.as_deref().map(output::name), "path": damage.path.as_deref().map(output::name),
        "object": output::text(damage.object.as_ref()), "bytes": damage.bytes, "problem": damage.problem.clone(),
    })
}

fn tell(context: &mut Context, report: &VerifyReport) -> Outcome {
    for damage in &report.damage {
        context.line(damage_line(damage))?;
    }
    let verdict = if report.ok { "ok" } else { "DAMAGED" };
    let generation = report
        .generation
        .map_or_else(|| "the directory".to_owned(), |id| id.to_string());
    let depth = if report.quick {
        " (bodies were not read)"
    } else {
        ""
    };
    context.line(format!(
        "{verdict}: {generation}: {}, {}, {}, {}{depth}",
        units::counted(report.checkpoints, "checkpoint", "checkpoints"),
        units::counted(report.packs, "pack", "packs"),
        units::counted(report.objects, "object", "objects"),
        units::size(report.bytes),
    ))?;
    if !report.ok {
        context.out.flush()?;
        context.complain(
            "hint: checkpoints and paths that are not named are intact and can be restored; `genstore status` lists \
             other generations, `genstore verify GEN` checks one, and `genstore activate GEN` makes it live",
        );
    }
    Ok(())
}

/// `damaged: lineage, checkpoint, path: problem (object)`.
fn damage_line(damage: &Damage) -> String {
    let mut places: Vec<String> = Vec::new();
    if let Some(lineage) = &damage.lineage {
        places.push(format!("lineage {}", name::escape(lineage)));
    }
    if let Some(checkpoint) = &damage.checkpoint {
        places.push(format!("checkpoint {}", describe::short(checkpoint)));
    }
    if let Some(path) = &damage.path {
        places.push(format!("path {}", name::escape(path)));
    }
    let mut line = "damaged: ".to_owned();
    if !places.is_empty() {
        line.push_str(&places.join(", "));
        line.push_str(": ");
    }
    line.push_str(&damage.problem);
    if let Some(object) = damage
        .object
        .map(|id| id.to_string())
        .filter(|id| !damage.problem.contains(id))
    {
        append!(line, " (object {object})");
    }
    line
}
