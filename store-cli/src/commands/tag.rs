//! `genstore tag`.

use serde_json::Value;
use store_core::{CheckpointInfo, Published, View};
use store_core::{Error, Wanted, name};

use crate::cli::{GenerationArg, LineageArg};
use crate::context::Context;
use crate::describe;
use crate::error::Outcome;
use crate::output::{self, object};

/// Names a checkpoint, lists names, or takes one away
#[derive(clap::Args, Debug)]
pub(crate) struct Tag {
    /// The checkpoint: 4 or more digits of its id, `latest`, `latest~N`, `first`, `@TIME` or a tag.
    #[arg(value_name = "ID", required_unless_present_any = ["list", "remove"], conflicts_with_all = ["list", "remove"])]
    id: Option<String>,
    /// The tag. It cannot look like one of the other ways to name a checkpoint.
    #[arg(value_name = "NAME", required_unless_present_any = ["list", "remove"])]
    name: Option<String>,
    /// Takes the tag from another checkpoint of the lineage.
    #[arg(long = "move", conflicts_with_all = ["list", "remove"])]
    move_it: bool,
    /// Lists the tags of every lineage, or of --lineage.
    #[arg(short, long, conflicts_with = "remove")]
    list: bool,
    /// Takes a tag away.
    #[arg(long, value_name = "NAME")]
    remove: Option<String>,
    #[command(flatten)]
    lineage: LineageArg,
    #[command(flatten)]
    generation: GenerationArg,
}

/// Runs the verb.
pub(crate) fn run(context: &mut Context, args: &Tag) -> Outcome {
    if args.generation.generation.is_some() && !args.list {
        let problem =
            "only --list reads another generation; tags are set on the live one".to_owned();
        return Err(Error::Invalid {
            what: "--generation",
            problem,
        }
        .into());
    }
    match (&args.id, &args.name, &args.remove) {
        (Some(id), Some(name), _) => set(context, args, id, name),
        (_, _, Some(name)) => remove(context, args, name),
        _ => list(context, args),
    }
}

fn set(context: &mut Context, args: &Tag, id: &str, tag: &str) -> Outcome {
    let store = context.open()?;
    let info = context.find(&store.view()?, id, args.lineage.lineage.as_deref())?;
    let published = store.set_tag(&info.reference(), tag, args.move_it)?;
    changed(context, tag, &info, &published, "tagged")
}

fn remove(context: &mut Context, args: &Tag, tag: &str) -> Outcome {
    let store = context.open()?;
    let info = owner(context, args, &store.view()?, tag)?;
    let published = store.remove_tag(&info.lineage, tag)?;
    changed(context, tag, &info, &published, "took the tag from")
}

/// The checkpoint that has the tag: in the named lineage, else in the current directory's, else in the only one.
fn owner(context: &Context, args: &Tag, view: &View, tag: &str) -> Outcome<CheckpointInfo> {
    let not_found = |detail: &str| Error::NotFound {
        wanted: Wanted::Tag,
        name: tag.to_owned(),
        detail: detail.to_owned(),
    };
    let named = args.lineage.lineage.as_deref();
    let lineage = context
        .lineage(view, named, std::path::Path::new("."))?
        .map(|lineage| lineage.name);
    let tagged = tagged(view, lineage.as_deref())?;
    let mut owners = tagged
        .into_iter()
        .filter(|info| info.tags.iter().any(|known| known == tag));
    match (owners.next(), owners.next()) {
        (None, _) => Err(not_found(if lineage.is_some() {
            "in this lineage"
        } else {
            "in any lineage"
        })
        .into()),
        (Some(info), None) => Ok(info),
        (Some(one), Some(other)) => {
            let candidates = [one, other]
                .into_iter()
                .chain(owners)
                .map(|info| name::escape(&info.lineage))
                .collect();
            Err(Error::Ambiguous {
                wanted: Wanted::Lineage,
                name: tag.to_owned(),
                candidates,
            }
            .into())
        }
    }
}

/// Every checkpoint with a tag, newest first.
fn tagged(view: &View, lineage: Option<&[u8]>) -> Outcome<Vec<CheckpointInfo>> {
    let mut found = Vec::new();
    view.log(lineage, None, &mut |info| {
        if !info.tags.is_empty() {
            found.push(info);
        }
        Ok(())
    })?;
    Ok(found)
}

fn list(context: &mut Context, args: &Tag) -> Outcome {
    let store = context.open()?;
    let view = args.generation.view(&store)?;
    let lineage = args
        .lineage
        .lineage
        .as_deref()
        .map(|name| context.bytes(name))
        .transpose()?;
    let tagged = tagged(&view, lineage.as_deref())?;
    let pairs = tagged
        .iter()
        .flat_map(|info| info.tags.iter().map(move |tag| (tag, info)));
    if context.json() {
        let row = |(tag, info): (&String, &CheckpointInfo)| {
            Value::Object(object! {
                "tag": tag.clone(), "checkpoint": describe::reference(&info.reference()),
            })
        };
        let rows: Vec<Value> = pairs.map(row).collect();
        return context
            .answer(object! { "tags": rows, "generation": view.generation().to_string() });
    }
    for (tag, info) in pairs {
        context.line(format!("{tag}  {}", describe::place(&info.reference())))?;
    }
    Ok(())
}

fn changed(
    context: &mut Context,
    tag: &str,
    info: &CheckpointInfo,
    published: &Published,
    done: &str,
) -> Outcome {
    context.warn(published.warnings.clone());
    let at = info.reference();
    if context.json() {
        let mut keys = describe::published(published);
        keys.extend(object! {
            "tag": tag, "checkpoint": describe::reference(&at), "lineage": output::name(&info.lineage),
        });
        return context.answer(keys);
    }
    let done = if published.created {
        done
    } else {
        "nothing to do:"
    };
    context.line(format!("{done} {}: {tag}", describe::place(&at)))
}
