//! Times for people: durations as typed and as shown, dates of traces.

use std::time::Duration;

/// Units a duration may be given in, with their nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads `90`, `1.5s`, `850ms`, `2m`, `1m30s`; a bare number is seconds.
///
/// # Errors
///
/// A sentence that names what could not be read.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a duration like 90, 1.5s, 850ms or 1m30s".to_owned();
    let mut rest = text.trim();
    let mut total = 0_u64;
    let mut first = true;
    while first || !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        // Only a number that stands alone may lack its unit: `1m30` would be a guess.
        let unit = if unit.is_empty() && first && tail.is_empty() { "s" } else { unit };
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let nanos = number.parse::<f64>().map_err(|_| wrong())? * *size as f64;
        if !(0.0..9e18).contains(&nanos) {
            return Err("too long a time".to_owned());
        }
        total = total.checked_add(nanos.round() as u64).ok_or_else(wrong)?;
        rest = tail;
        first = false;
    }
    Ok(Duration::from_nanos(total))
}

/// Nanoseconds as `850 ms`, `12.345 s`, `3 min 05 s`, `2 h 07 min`.
#[must_use]
pub fn format(nanos: u64) -> String {
    let (millis, seconds) = (nanos / 1_000_000, nanos / 1_000_000_000);
    match seconds {
        0 => format!("{millis} ms"),
        1..=119 => format!("{seconds}.{:03} s", millis % 1000),
        120..=7199 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Nanoseconds since the Unix epoch as `2026-11-29 14:56:47 UTC`.
#[must_use]
pub fn format_utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin on 1 March end with the leap day; 719,468 days lie between 0000-03-01 and 1970-01-01.
    let day = day + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{date:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read() {
        let cases =
            [("90", 90_000), ("1.5s", 1_500), ("850ms", 850), ("2m", 120_000), ("1m30s", 90_000), ("1h", 3_600_000)];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "s", "-1", "1m30", "1.2.3s", "5 s", "1e9", "5 parsecs", "end", "9999999999h", "1s;"] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn times_read_well() {
        let shown = [0, 999_999_999, 12_345_678_901, 119_999_999_999, 185_000_000_000, 7_620_000_000_000].map(format);
        assert_eq!(shown, ["0 ms", "999 ms", "12.345 s", "119.999 s", "3 min 05 s", "2 h 07 min"]);
    }

    #[test]
    fn dates_are_right() {
        // From `date -u -d @N`.
        let cases = [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_963_607, "2026-11-29 14:46:47 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ];
        for (seconds, text) in cases {
            assert_eq!(format_utc(seconds * 1_000_000_000), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_upsets_the_reader(text in "[0-9a-z. ]{0,24}") {
            let _ = parse_duration(&text);
        }

        #[test]
        fn any_time_is_shown(nanos: u64) {
            prop_assert!(!format(nanos).is_empty());
            prop_assert!(format_utc(nanos).ends_with(" UTC"));
        }
    }
}
