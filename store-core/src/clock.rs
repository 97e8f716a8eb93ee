//! Time as a value: callers may bring their own clock, and nothing else in the crate asks the system for the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment: seconds since 1970-01-01T00:00:00Z (negative before it) and nanoseconds below 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds since the epoch.
    pub seconds: i64,
    /// Nanoseconds of the second, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Time {
    /// A moment from its parts; `None` if the nanoseconds are out of range.
    pub const fn new(seconds: i64, nanoseconds: u32) -> Option<Self> {
        if nanoseconds < 1_000_000_000 {
            Some(Self {
                seconds,
                nanoseconds,
            })
        } else {
            None
        }
    }

    /// This moment, earlier by whole seconds.
    #[must_use]
    pub const fn minus_seconds(self, seconds: i64) -> Self {
        Self {
            seconds: self.seconds.saturating_sub(seconds),
            nanoseconds: self.nanoseconds,
        }
    }

    /// RFC 3339 in UTC with nanoseconds; moments outside the years 1 to 9999 are clamped (it is text for people).
    pub fn to_rfc3339(self) -> String {
        let clamped = self.seconds.clamp(-62_135_596_800, 253_402_207_200);
        let nanoseconds = i32::try_from(self.nanoseconds).unwrap_or(0);
        match jiff::Timestamp::new(clamped, 0) {
            Ok(second) => {
                let text = second.strftime("%Y-%m-%dT%H:%M:%S").to_string();
                format!("{text}.{nanoseconds:09}Z")
            }
            Err(_) => "0001-01-01T00:00:00.000000000Z".to_owned(),
        }
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self {
                seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self {
                        seconds: -whole,
                        nanoseconds: 0,
                    },
                    part => Self {
                        seconds: -whole - 1,
                        nanoseconds: 1_000_000_000 - part,
                    },
                }
            }
        }
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The wall-clock time now.
    fn now(&self) -> Time;
    /// A monotonic reading, for waits and deadlines.
    fn monotonic(&self) -> Duration;
}

/// The system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the system's clock"
    )]
    fn now(&self) -> Time {
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(
            now.tv_sec.unsigned_abs(),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_keep_their_nanoseconds() {
        let time: Time = (UNIX_EPOCH - Duration::new(1, 250_000_000)).into();
        assert_eq!(
            time,
            Time {
                seconds: -2,
                nanoseconds: 750_000_000
            }
        );
        assert_eq!(time.to_rfc3339(), "1969-12-31T23:59:58.750000000Z");
        assert_eq!(
            Time::default().to_rfc3339(),
            "1970-01-01T00:00:00.000000000Z"
        );
        assert_eq!(
            Time {
                seconds: i64::MAX,
                nanoseconds: 1
            }
            .to_rfc3339()
            .len(),
            30
        );
        assert_eq!(Time::new(0, 1_000_000_000), None);
    }
}
