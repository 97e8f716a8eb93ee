//! `genstore restore`.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value};
use store_core::{CheckpointInfo, PathReason, RestorePlan, RestoreReport, RestoreRequest};
use store_core::{Error, name};

use crate::cli::{GenerationArg, LineageArg};
use crate::context::Context;
use crate::error::{Failure, Outcome, exit};
use crate::output::{self, object};
use crate::units;

/// Writes a checkpoint's files out
///
/// DIR must be absent or empty, unless --overwrite (files that differ are replaced) or --delete (what the checkpoint
/// does not hold is removed) is given: then the plan is shown first, and carried out after a yes at the terminal or with
/// --yes. What cannot be restored is named, and the exit code is 3.
#[derive(clap::Args, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Restore {
    /// The checkpoint: 4 or more digits of its id, `latest`, `latest~N`, `first`, `@TIME` or a tag.
    #[arg(value_name = "ID")]
    id: String,
    /// Only these paths and what is below them, relative to the captured directory.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Where to.
    #[arg(long, value_name = "DIR")]
    to: OsString,
    #[command(flatten)]
    lineage: LineageArg,
    /// Replaces files that differ.
    #[arg(long)]
    overwrite: bool,
    /// Removes what the checkpoint does not hold.
    #[arg(long)]
    delete: bool,
    /// Shows the plan and stops.
    #[arg(long)]
    dry_run: bool,
    /// Carries the plan out without asking.
    #[arg(short, long)]
    yes: bool,
    /// Restores owners (the default for root).
    #[arg(long, overrides_with = "no_owner")]
    owner: bool,
    /// Does not restore owners (the default for others).
    #[arg(long)]
    no_owner: bool,
    #[command(flatten)]
    generation: GenerationArg,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Restore) -> Outcome {
    let store = context.open()?;
    let view = args.generation.view(&store)?;
    let info = context.find(&view, &args.id, args.lineage.lineage.as_deref())?;
    let to = context.directory(&args.to)?;
    let request = RestoreRequest {
        to: to.clone(),
        paths: context.all_inside(&args.paths)?,
        overwrite: args.overwrite,
        delete: args.delete,
        owner: args.owner || (!args.no_owner && rustix::process::geteuid().is_root()),
    };
    let planned = store.restore(&view, &info, request)?;
    let plan = planned.plan().clone();
    let shown = !context.json() && (args.dry_run || is_destructive(&plan));
    if shown {
        tell_plan(context, &plan, args.dry_run)?;
    }
    if args.dry_run {
        return answer(
            context,
            &Restored {
                info: &info,
                to: &to,
                plan: &plan,
                report: None,
                shown,
            },
        );
    }
    // Into an empty directory (or one that an interrupted restore left) nothing of anybody's is replaced.
    if is_destructive(&plan) && (args.overwrite || args.delete) && !args.yes {
        confirm(context, &plan)?;
    }
    let report = planned.apply()?;
    if !info.record.complete {
        context.note("genstore: the checkpoint is incomplete: `genstore show ID --left-out` lists what could not be captured");
    }
    if !is_complete(&report) {
        context.exit = exit::INCOMPLETE;
    }
    answer(
        context,
        &Restored {
            info: &info,
            to: &to,
            plan: &plan,
            report: Some(&report),
            shown,
        },
    )
}

/// Whether something that exists would be replaced or removed.
fn is_destructive(plan: &RestorePlan) -> bool {
    !plan.replace.is_empty() || !plan.remove.is_empty()
}

/// Asks for a yes, or refuses where nobody can be asked.
fn confirm(context: &mut Context, plan: &RestorePlan) -> Outcome {
    let (replaced, removed) = (plan.replace.len() as u64, plan.remove.len() as u64);
    let what = format!(
        "{} would be replaced and {} removed",
        units::counted(replaced, "path", "paths"),
        units::count(removed),
    );
    let message = match context.ask(&format!("{what}. Carry this out?"))? {
        Some(true) => return Ok(()),
        Some(false) => format!("{what}; the answer was no, and nothing was changed"),
        None => format!("{what}; nothing was changed"),
    };
    let hint = "look at the plan with --dry-run, then add --yes".to_owned();
    let error = Error::Refused {
        code: "plan_not_confirmed",
        message,
        hint,
        items: Vec::new(),
    };
    Err(Failure::from(error).with_detail("plan", plan_keys(plan)))
}

/// The plan for people: what goes, what changes, and how much comes; what stays and what cannot be done, and why.
fn tell_plan(context: &mut Context, plan: &RestorePlan, all: bool) -> Outcome {
    let mut lists = vec![("remove", &plan.remove), ("replace", &plan.replace)];
    if all {
        lists.push(("create", &plan.create));
    }
    for (verb, paths) in lists {
        for path in paths {
            context.line(format!("{verb} {}", name::escape(path)))?;
        }
    }
    for (verb, list) in [("keep", &plan.kept), ("cannot restore", &plan.failed)] {
        for PathReason { path, reason } in list {
            context.line(format!("{verb} {}: {reason}", name::escape(path)))?;
        }
    }
    context.line(format!(
        "plan: create {}, replace {}, remove {}; unchanged {}",
        units::count(plan.create.len() as u64),
        units::count(plan.replace.len() as u64),
        units::count(plan.remove.len() as u64),
        units::count(plan.unchanged),
    ))
}

fn plan_keys(plan: &RestorePlan) -> Map<String, Value> {
    object! {
        "create": output::names(&plan.create), "replace": output::names(&plan.replace),
        "remove": output::names(&plan.remove), "unchanged": plan.unchanged, "kept": reasons(&plan.kept),
        "failed": reasons(&plan.failed),
    }
}

fn reasons(list: &[PathReason]) -> Value {
    let row = |PathReason { path, reason }: &PathReason| {
        Value::Object(object! { "path": output::name(path), "reason": reason.clone() })
    };
    list.iter().map(row).collect()
}

/// A restore, carried out or (without a report) only planned.
struct Restored<'a> {
    info: &'a CheckpointInfo,
    to: &'a Path,
    plan: &'a RestorePlan,
    report: Option<&'a RestoreReport>,
    /// Whether people have seen the plan.
    shown: bool,
}

fn answer(context: &mut Context, restored: &Restored<'_>) -> Outcome {
    if !context.json() {
        return restored.report.map_or(Ok(()), |report| {
            tell(context, restored.shown, restored.to, report)
        });
    }
    let nothing = RestoreReport::default();
    let report = restored.report.unwrap_or(&nothing);
    context.answer(object! {
        "checkpoint": restored.info.id.to_string(), "to": output::path(restored.to),
        "dry_run": restored.report.is_none(), "plan": plan_keys(restored.plan),
        "restored": output::names(&report.restored), "removed": output::names(&report.removed),
        "unchanged": report.unchanged, "kept": reasons(&report.kept), "failed": reasons(&report.failed),
        "complete": restored.report.is_some() && is_complete(report),
    })
}

fn is_complete(report: &RestoreReport) -> bool {
    report.failed.is_empty() && !report.unfinished
}

fn tell(context: &mut Context, shown: bool, to: &Path, report: &RestoreReport) -> Outcome {
    for PathReason { path, reason } in report.kept.iter().filter(|_| !shown) {
        context.note(&format!("genstore: kept {}: {reason}", name::escape(path)));
    }
    for PathReason { path, reason } in &report.failed {
        context.complain(&format!(
            "genstore: not restored, {}: {reason}",
            name::escape(path)
        ));
    }
    if report.unfinished {
        context.complain("genstore: not everything could be written; once the cause named above is mended, the same command completes it");
    }
    let (restored, removed) = (report.restored.len() as u64, report.removed.len() as u64);
    if restored + removed == 0 && is_complete(report) {
        return context.line(format!(
            "nothing to do: {} is as in the checkpoint",
            name::quote_path(to)
        ));
    }
    context.line(format!(
        "restored {} to {}; removed {}, unchanged {}, kept {}, failed {}",
        units::counted(restored, "path", "paths"),
        name::quote_path(to),
        units::count(removed),
        units::count(report.unchanged),
        units::count(report.kept.len() as u64),
        units::count(report.failed.len() as u64),
    ))
}
