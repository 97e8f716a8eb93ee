//! Sizes, durations, counts and times: parsed from arguments, and shown to people. Exact integer arithmetic; no I/O.

use std::time::Duration;

use store_core::clock::Time;

/// Fractions are read to this many digits.
const FRACTION_DIGITS: u32 = 9;
const FRACTION: u128 = 10u128.pow(FRACTION_DIGITS);

/// Parses a size in bytes: `4096`, `64K`, `1.5GiB`, `20MB`.
///
/// `K M G T` and `KiB MiB GiB TiB` are powers of 1,024; `kB MB GB TB` are powers of 1,000. Case does not matter.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = number_and_unit(text, "size, such as 4096, 64K or 1.5GiB")?;
    let factor: u128 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => {
            return Err(format!(
                "unknown unit {unit:?}; use K, M, G, T, KiB … or kB, MB …"
            ));
        }
    };
    let bytes = number.checked_mul(factor).ok_or("the size is too large")? / FRACTION;
    u64::try_from(bytes).map_err(|_| "the size is too large".to_owned())
}

/// Parses a duration: `90` (seconds), `1.5s`, `250ms`, `10m`, `2h`, `1d`, or parts after each other: `1h30m`.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "duration, such as 90, 1.5s, 250ms, 10m or 1h30m";
    let mut rest = text;
    let mut total: u128 = 0;
    loop {
        let end = rest
            .find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let length = rest[end..]
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len() - end);
        let (part, tail) = rest.split_at(end + length);
        let (number, unit) = number_and_unit(part, FORM)?;
        let nanoseconds: u128 = match unit {
            "" if part.len() == text.len() => 1_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "" => return Err("each part of a duration needs a unit: ms, s, m, h or d".to_owned()),
            _ => return Err(format!("unknown unit {unit:?}; use ms, s, m, h or d")),
        };
        let part = number
            .checked_mul(nanoseconds)
            .ok_or("the duration is too long")?
            / FRACTION;
        total = total.checked_add(part).ok_or("the duration is too long")?;
        rest = tail;
        if rest.is_empty() {
            break;
        }
    }
    let seconds = u64::try_from(total / 1_000_000_000).map_err(|_| "the duration is too long")?;
    let nanoseconds =
        u32::try_from(total % 1_000_000_000).map_err(|_| "the duration is too long")?;
    Ok(Duration::new(seconds, nanoseconds))
}

/// A decimal number, scaled by [`FRACTION`], and the letters after it.
fn number_and_unit<'t>(text: &'t str, form: &str) -> Result<(u128, &'t str), String> {
    let wrong = || format!("not a {form}");
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(fraction) || (number.contains('.') && fraction.is_empty()) {
        return Err(wrong());
    }
    let whole: u64 = whole
        .parse()
        .map_err(|_| "the number is too large".to_owned())?;
    let kept = &fraction[..fraction.len().min(FRACTION_DIGITS as usize)];
    let mut scaled: u128 = 0;
    for index in 0..FRACTION_DIGITS as usize {
        let digit = kept.as_bytes().get(index).map_or(0, |b| b - b'0');
        scaled = scaled * 10 + u128::from(digit);
    }
    Ok((u128::from(whole) * FRACTION + scaled, unit))
}

/// A count with a comma between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and a noun that agrees with it.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A size for people: one decimal, powers of 1,000 (`33.1 MB`).
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    // Tenths of the unit, rounded half up; a value that rounds to 1000.0 moves on to the next unit.
    let mut unit: u128 = 1_000;
    for name in UNITS {
        let tenths = (u128::from(bytes) * 10 + unit / 2) / unit;
        if tenths < 10_000 || name == "EB" {
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
        unit *= 1_000;
    }
    format!("{bytes} B")
}

/// A moment for people: local date, time and offset.
pub(crate) fn local(time: Time) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(at) => at
            .to_zoned(jiff::tz::TimeZone::system())
            .strftime("%Y-%m-%d %H:%M:%S %:z")
            .to_string(),
        Err(_) => time.to_rfc3339(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1b", 1),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("64kB", 64_000),
            ("1.5M", 1_572_864),
            ("20MB", 20_000_000),
            ("2g", 2 << 30),
            ("1TiB", 1 << 40),
            ("1TB", 1_000_000_000_000),
            ("0.0009765625K", 0), // the tenth digit is not read
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in [
            "",
            "K",
            "1.",
            ".5K",
            "1..5",
            "-1",
            "+1",
            "1 K",
            "1X",
            "1e3",
            "18446744073709551616",
            "99999999T",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_add_their_parts() {
        for (text, milliseconds) in [
            ("0", 0),
            ("90", 90_000),
            ("1.5", 1_500),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1d1ms", 86_400_001),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for bad in [
            "",
            "s",
            "1h30",
            "1w",
            "1 h",
            "-1s",
            "1.s",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_shown_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_204), "1,204");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(counted(2_000, "file", "files"), "2,000 files");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_000), "1.0 kB");
        assert_eq!(size(33_149_000), "33.1 MB");
        assert_eq!(size(999_960), "1.0 MB");
        assert_eq!(size(u64::MAX), "18.4 EB");
    }

    #[test]
    fn times_out_of_range_do_not_panic() {
        assert!(
            local(Time {
                seconds: i64::MAX,
                nanoseconds: 0
            })
            .starts_with("9999")
        );
        assert!(
            local(Time {
                seconds: i64::MIN,
                nanoseconds: 0
            })
            .starts_with("0001")
        );
    }
}
