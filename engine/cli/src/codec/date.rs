//! Times as in JavaScript's `Date`: milliseconds since 1970, written in ISO 8601 with years of four
//! or six digits.

const DAY_MS: i64 = 86_400_000;
/// Maximum distance from 1970 that a `Date` can hold, in both directions.
const MAX_MS: f64 = 8.64e15;

/// Whether a `Date` can hold a time.
pub(crate) fn is_time(ms: f64) -> bool {
    ms.fract() == 0.0 && ms.abs() <= MAX_MS
}

/// Returns the days since 1970 of a date in the proleptic Gregorian calendar. The calculation
/// begins its years in March.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Formats a time for which [`is_time`] holds.
pub(crate) fn format(ms: f64) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "a time is an integer far below 2^63")]
    let ms = ms as i64;
    let (year, month, day) = date_of(ms.div_euclid(DAY_MS));
    let rest = ms.rem_euclid(DAY_MS);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    let year = match year {
        0..=9999 => format!("{year:04}"),
        _ => format!("{year:+07}"),
    };
    format!(
        "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        rest % 1000
    )
}

/// Reads a text from its start.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        (*first == byte).then(|| self.0 = rest)
    }

    /// Reads a number of exactly `count` digits.
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'))
        })
    }

    fn within(&mut self, count: usize, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        self.digits(count).filter(|number| range.contains(number))
    }

    fn year(&mut self) -> Option<i64> {
        match self.0.first()? {
            b'+' => self.take(b'+').and_then(|()| self.digits(6)),
            b'-' => self
                .take(b'-')
                .and_then(|()| self.digits(6))
                .filter(|year| *year != 0)
                .map(|year| -year),
            _ => self.digits(4),
        }
    }

    fn day(&mut self) -> Option<i64> {
        let year = self.year()?;
        self.take(b'-')?;
        let month = self.within(2, 1..=12)?;
        self.take(b'-')?;
        let day = self.within(2, 1..=31)?;
        let days = days_of(year, month, day);
        // Refuses days after the end of their month, such as the 31st of a shorter one.
        (date_of(days) == (year, month, day)).then_some(days)
    }

    /// Reads `HH:MM`, `HH:MM:SS` or `HH:MM:SS.s` as milliseconds; drops finer digits.
    fn time(&mut self) -> Option<i64> {
        let hour = self.within(2, 0..=23)?;
        self.take(b':')?;
        let minute = self.within(2, 0..=59)?;
        let (mut second, mut ms) = (0, 0);
        if self.take(b':').is_some() {
            second = self.within(2, 0..=59)?;
            if self.take(b'.').is_some() {
                let mut weight = 100;
                ms = self.digits(1)? * weight;
                while let Some(digit) = self.0.first().filter(|byte| byte.is_ascii_digit()) {
                    weight /= 10;
                    ms += i64::from(digit - b'0') * weight;
                    self.0 = &self.0[1..];
                }
            }
        }
        Some(((hour * 60 + minute) * 60 + second) * 1000 + ms)
    }

    /// Reads `Z`, `+HH:MM` or `-HH:MM` as the milliseconds to subtract.
    fn zone(&mut self) -> Option<i64> {
        if self.take(b'Z').is_some() {
            return Some(0);
        }
        let sign = if self.take(b'+').is_some() {
            1
        } else {
            self.take(b'-').map(|()| -1)?
        };
        let hour = self.within(2, 0..=23)?;
        self.take(b':')?;
        Some(sign * (hour * 60 + self.within(2, 0..=59)?) * 60_000)
    }
}

/// Parses a day, or a day and a time with its zone. Returns `None` for any other text and for times
/// that a `Date` cannot hold.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let mut reader = Reader(text.as_bytes());
    let mut ms = reader.day()? * DAY_MS;
    if reader.take(b'T').is_some() {
        ms += reader.time()?;
        ms -= reader.zone()?;
    }
    #[allow(clippy::cast_precision_loss, reason = "six digits of years give less than 2^53")]
    let ms = ms as f64;
    (reader.0.is_empty() && is_time(ms)).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_javascript() {
        let cases = [
            (0.0, "1970-01-01T00:00:00.000Z"),
            (-1.0, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000.0, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599_999.0, "2024-12-31T23:59:59.999Z"),
            (253_402_300_800_000.0, "+010000-01-01T00:00:00.000Z"),
            (-62_167_219_200_001.0, "-000001-12-31T23:59:59.999Z"),
            (MAX_MS, "+275760-09-13T00:00:00.000Z"),
            (-MAX_MS, "-271821-04-20T00:00:00.000Z"),
        ];
        for (ms, text) in cases {
            assert_eq!(format(ms), text);
            assert_eq!(parse(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn other_ways_to_write_a_time_are_read() {
        assert_eq!(parse("1970-01-02"), Some(86_400_000.0));
        assert_eq!(parse("1970-01-01T01:00+01:00"), Some(0.0));
        assert_eq!(parse("1970-01-01T00:00:01.5-00:30"), Some(1_801_500.0));
        assert_eq!(parse("1970-01-01T00:00:00.1239Z"), Some(123.0));
    }

    #[test]
    fn malformed_times_are_refused() {
        for text in [
            "",
            "now",
            "1970",
            "1970-13-01",
            "2023-02-29",
            "1970-01-01T00:00",
            "1970-01-01T24:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00Zx",
            "-000000-01-01",
            "+275760-09-13T00:00:00.001Z",
            "١٩٧٠-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(!is_time(0.5) && !is_time(f64::NAN) && !is_time(f64::INFINITY));
    }
}
