//! What people type to name a checkpoint: the beginning of an id, `latest`, `latest~N`, `first`, `@TIME`, or a tag.

use jiff::civil;
use jiff::tz::{Offset, TimeZone};

use crate::catalog::view::{Catalog, Found, LineageView, Numbered};
use crate::clock::Time;
use crate::error::{Error, Result, Wanted};
use crate::id::ObjectId;
use crate::name::{escape, is_tag};

/// The fewest digits of an id that are taken as one.
pub const MIN_ID_DIGITS: usize = 4;
/// How many candidates or suggestions an error lists.
const LISTED: usize = 8;

/// A way of naming a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// The beginning of an id, or all of it: lower-case hex digits. Looked for in the whole store.
    Id(String),
    /// The checkpoint of a lineage that has so many later ones: `latest` is 0.
    Latest(u64),
    /// The oldest checkpoint of a lineage.
    First,
    /// The state of a lineage at a moment: its latest checkpoint that is not younger.
    At(Time),
    /// A tag.
    Tag(String),
}

impl Revision {
    /// Reads what was typed. `now` is what times like `@2h` count from; `zone` is where times without an offset are.
    ///
    /// A moment lasts as long as its last part: `@2026-07-01` is all of that day, so the last checkpoint of the day is
    /// found, and `@2026-07-01 14:30:05` finds one of 14:30:05.7.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none of the ways of naming a checkpoint.
    pub fn parse(text: &str, now: Time, zone: &TimeZone) -> Result<Self> {
        if let Some(time) = text.strip_prefix('@') {
            let moment = ago(time, now).or_else(|| moment(time, zone));
            return moment.map(Self::At).ok_or_else(|| {
                let forms = "write @2h or @3d for a time ago, @2026-07-01, @\"2026-07-01 14:30\", or RFC 3339";
                Error::invalid("checkpoint", format!("{text:?} is not a time; {forms}"))
            });
        }
        let back = match text.strip_prefix("latest") {
            Some("") => Some(0),
            Some(rest) => rest.strip_prefix('~').and_then(decimal),
            None => None,
        };
        match text {
            "first" => Ok(Self::First),
            _ if back.is_some() => Ok(Self::Latest(back.unwrap_or_default())),
            _ if is_id_prefix(text) => Ok(Self::Id(text.to_owned())),
            _ if is_tag(text) => Ok(Self::Tag(text.to_owned())),
            _ => {
                let forms = "a checkpoint is named by 4 or more digits of its id, latest, latest~N, first, @TIME or a tag";
                Err(Error::invalid(
                    "checkpoint",
                    format!("{text:?} names none; {forms}"),
                ))
            }
        }
    }

    /// Finds the checkpoint, in `lineage` or, for an id and a tag, anywhere.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Ambiguous`] with the candidates, [`Error::Invalid`] if a lineage is needed and not given;
    /// or if the catalog cannot be read.
    pub fn resolve(
        &self,
        catalog: &Catalog<'_>,
        lineage: Option<&LineageView<'_>>,
    ) -> Result<Found> {
        match (self, lineage) {
            (Self::Id(prefix), _) => by_id(catalog, prefix),
            (Self::Tag(tag), None) => by_tag_anywhere(catalog, tag),
            (Self::Tag(tag), Some(lineage)) => match lineage.tagged(tag)? {
                Some(checkpoint) => Ok(found(lineage, checkpoint)),
                None => Err(no_tag(lineage, tag)?),
            },
            (_, None) => {
                let problem = format!("{} needs a lineage; name one with --lineage", self.text());
                Err(Error::invalid("checkpoint", problem))
            }
            (Self::Latest(back), Some(lineage)) => match lineage.back(*back)? {
                Some(checkpoint) => Ok(found(lineage, checkpoint)),
                None => Err(self.none(lineage)?),
            },
            (Self::First, Some(lineage)) => match lineage.first()? {
                Some(checkpoint) => Ok(found(lineage, checkpoint)),
                None => Err(self.none(lineage)?),
            },
            (Self::At(time), Some(lineage)) => match at(lineage, *time)? {
                Some(checkpoint) => Ok(found(lineage, checkpoint)),
                None => Err(self.none(lineage)?),
            },
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Id(prefix) => prefix.clone(),
            Self::Latest(0) => "latest".to_owned(),
            Self::Latest(back) => format!("latest~{back}"),
            Self::First => "first".to_owned(),
            Self::At(time) => format!("@{}", time.to_rfc3339()),
            Self::Tag(tag) => tag.clone(),
        }
    }

    /// The error for a lineage that has checkpoints, but none there.
    fn none(&self, lineage: &LineageView<'_>) -> Result<Error> {
        let name = escape(lineage.name());
        let detail = match (self, lineage.first()?) {
            (_, None) => format!("the lineage {name} has no checkpoints"),
            (Self::At(_), Some(first)) => {
                let time = first.entry.time.to_rfc3339();
                format!("the first checkpoint of the lineage {name} is of {time}")
            }
            (_, Some(_)) => format!("the lineage {name} has {} checkpoints", lineage.count()?),
        };
        Ok(Error::not_found(Wanted::Checkpoint, self.text(), detail))
    }
}

fn is_id_prefix(text: &str) -> bool {
    (MIN_ID_DIGITS..=ObjectId::LEN * 2).contains(&text.len())
        && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

fn found(lineage: &LineageView<'_>, checkpoint: Numbered) -> Found {
    Found {
        lineage: lineage.name().to_vec(),
        number: checkpoint.number,
        entry: checkpoint.entry,
    }
}

fn by_id(catalog: &Catalog<'_>, prefix: &str) -> Result<Found> {
    let ids = catalog.ids(prefix, LISTED)?;
    match ids.as_slice() {
        [] => Err(Error::not_found(Wanted::Checkpoint, prefix, "")),
        [(id, _)] => match catalog.find(id)? {
            Some(found) => Ok(found),
            None => Err(Error::not_found(Wanted::Checkpoint, prefix, "")),
        },
        several => Err(Error::Ambiguous {
            wanted: Wanted::Checkpoint,
            name: prefix.to_owned(),
            candidates: several
                .iter()
                .map(|(id, name)| format!("{id} in {}", escape(name)))
                .collect(),
        }),
    }
}

/// A tag that only one lineage of the store has. Archived lineages count only if no other has it.
fn by_tag_anywhere(catalog: &Catalog<'_>, tag: &str) -> Result<Found> {
    let (mut active, mut archived) = (Vec::new(), Vec::new());
    for lineage in catalog.lineages() {
        let lineage = lineage?;
        if let Some(checkpoint) = lineage.tagged(tag)? {
            let list = if lineage.lineage.state.is_archived() {
                &mut archived
            } else {
                &mut active
            };
            list.push(found(&lineage, checkpoint));
        }
    }
    let mut matches = if active.is_empty() { archived } else { active };
    match (matches.pop(), matches.as_slice()) {
        (None, _) => Err(Error::not_found(Wanted::Checkpoint, tag, not_an_id(tag))),
        (Some(only), []) => Ok(only),
        (Some(last), _) => {
            matches.push(last);
            let candidates = matches
                .iter()
                .take(LISTED)
                .map(|found| escape(&found.lineage))
                .collect();
            Err(Error::Ambiguous {
                wanted: Wanted::Tag,
                name: tag.to_owned(),
                candidates,
            })
        }
    }
}

/// The state at a moment. Numbers need not follow the clock (it may have been set, and checkpoints return under new numbers),
/// so times decide, and numbers only between equal ones.
fn at(lineage: &LineageView<'_>, time: Time) -> Result<Option<Numbered>> {
    let mut best: Option<Numbered> = None;
    for checkpoint in lineage.oldest_first() {
        let checkpoint = checkpoint?;
        let better = best
            .as_ref()
            .is_none_or(|best| checkpoint.entry.time >= best.entry.time);
        if better && checkpoint.entry.time <= time {
            best = Some(checkpoint);
        }
    }
    Ok(best)
}

fn no_tag(lineage: &LineageView<'_>, tag: &str) -> Result<Error> {
    let tags = lineage
        .tags()
        .take(LISTED + 1)
        .collect::<Result<Vec<_>>>()?;
    let mut names: Vec<_> = tags
        .iter()
        .take(LISTED)
        .map(|(tag, _)| tag.as_str())
        .collect();
    if tags.len() > LISTED {
        names.push("…");
    }
    let name = escape(lineage.name());
    let mut detail = if names.is_empty() {
        format!("the lineage {name} has no tags")
    } else {
        format!("the lineage {name} has the tags {}", names.join(", "))
    };
    let id = not_an_id(tag);
    if !id.is_empty() {
        detail = format!("{id}; {detail}");
    }
    Ok(Error::not_found(Wanted::Checkpoint, tag, detail))
}

/// Why what was looked for as a tag was not looked for as an id, if it might have been meant as one.
fn not_an_id(tag: &str) -> &'static str {
    let hex = tag.bytes().all(|c| c.is_ascii_hexdigit());
    match tag.len() {
        _ if !hex => "",
        0..MIN_ID_DIGITS => "an id needs 4 digits or more",
        MIN_ID_DIGITS..=64 => "the digits of an id are lower case",
        _ => "an id has 64 digits",
    }
}

/// Digits and nothing else: `parse` alone would take a sign.
fn decimal(text: &str) -> Option<u64> {
    text.bytes()
        .all(|c| c.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

/// A time ago: one or more numbers, each with its unit: `90s`, `10m`, `2h`, `3d`, `1w`, `1d12h`.
fn ago(text: &str, now: Time) -> Option<Time> {
    let mut rest = text;
    let mut seconds = 0u64;
    while !rest.is_empty() {
        let (digits, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let unit = tail.chars().next()?;
        let unit_seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return None,
        };
        seconds = seconds.checked_add(decimal(digits)?.checked_mul(unit_seconds)?)?;
        rest = &tail[unit.len_utf8()..];
    }
    (!text.is_empty())
        .then(|| i64::try_from(seconds).ok())
        .flatten()
        .map(|s| now.minus_seconds(s))
}

/// The last nanosecond of a moment: `YYYY-MM-DD`, then perhaps a space or `T` and `HH:MM`, `:SS`, a fraction, and an offset.
fn moment(text: &str, zone: &TimeZone) -> Option<Time> {
    let mut rest = text;
    let year = number(&mut rest, 4)?;
    let month = part(&mut rest, "-", 2)?;
    let day = part(&mut rest, "-", 2)?;
    let date = civil::Date::new(i16::try_from(year).ok()?, narrow(month)?, narrow(day)?).ok()?;
    if rest.is_empty() {
        let next = date
            .tomorrow()
            .ok()?
            .to_zoned(zone.clone())
            .ok()?
            .timestamp();
        return before(next);
    }
    rest = rest.strip_prefix([' ', 'T', 't'])?;
    let hour = number(&mut rest, 2)?;
    let minute = part(&mut rest, ":", 2)?;
    let second = if rest.starts_with(':') {
        Some(part(&mut rest, ":", 2)?)
    } else {
        None
    };
    let fraction = if second.is_some() {
        fraction(&mut rest)?
    } else {
        None
    };
    let zone = if rest.is_empty() {
        zone.clone()
    } else {
        TimeZone::fixed(offset(rest)?)
    };
    // Without seconds the whole minute is meant, without a fraction the whole second.
    let (second, nanosecond) = (second.unwrap_or(59), fraction.unwrap_or(999_999_999));
    let time = civil::Time::new(
        narrow(hour)?,
        narrow(minute)?,
        narrow(second)?,
        i32::try_from(nanosecond).ok()?,
    );
    let moment = date
        .to_datetime(time.ok()?)
        .to_zoned(zone)
        .ok()?
        .timestamp();
    before(
        moment
            .checked_add(jiff::SignedDuration::from_nanos(1))
            .ok()?,
    )
}

/// The nanosecond before a moment. jiff counts the parts of a second away from zero, this crate always up.
fn before(moment: jiff::Timestamp) -> Option<Time> {
    let nanoseconds = moment.as_nanosecond() - 1;
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).ok()?;
    Time::new(
        seconds,
        u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).ok()?,
    )
}

fn number(rest: &mut &str, digits: usize) -> Option<u32> {
    let (text, tail) = rest.split_at_checked(digits)?;
    *rest = tail;
    u32::try_from(decimal(text)?).ok()
}

fn part(rest: &mut &str, separator: &str, digits: usize) -> Option<u32> {
    *rest = rest.strip_prefix(separator)?;
    number(rest, digits)
}

fn narrow(number: u32) -> Option<i8> {
    i8::try_from(number).ok()
}

/// A fraction of a second, in nanoseconds: the last one that begins with these digits.
#[expect(
    clippy::option_option,
    reason = "none is a malformed fraction, some of none is no fraction"
)]
fn fraction(rest: &mut &str) -> Option<Option<u32>> {
    let Some(tail) = rest.strip_prefix(['.', ',']) else {
        return Some(None);
    };
    let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=9).contains(&digits) {
        return None;
    }
    let (text, tail) = tail.split_at(digits);
    *rest = tail;
    Some(Some(format!("{text:9<9}").parse().ok()?))
}

/// `Z`, or an offset such as `+02:00`.
fn offset(text: &str) -> Option<Offset> {
    if matches!(text, "Z" | "z") {
        return Some(Offset::UTC);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let mut rest = text.strip_prefix(['+', '-'])?;
    let hours = number(&mut rest, 2)?;
    let minutes = part(&mut rest, ":", 2)?;
    if !rest.is_empty() || hours > 23 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * i32::try_from(hours * 3600 + minutes * 60).ok()?).ok()
}

#[cfg(test)]
mod tests;
