//! Sizes for people: binary units, the same rounding everywhere.

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `bytes` in binary units: `512 B`, `518.0 MiB`, `21.71 GiB`. Exact below 1 KiB; else rounded half up, to a tenth, from
/// GiB on to a hundredth.
#[must_use]
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    for (n, unit) in UNITS.iter().enumerate() {
        let decimals = if n < 2 { 1 } else { 2 };
        let scale = 10_u128.pow(decimals);
        let size = 1_u128 << (10 * (n + 1));
        let scaled = (u128::from(bytes) * scale + size / 2) / size;
        // After rounding, so that 1023.96 MiB reads `1.00 GiB` and never `1024.0 MiB`.
        if scaled < 1024 * scale || n == UNITS.len() - 1 {
            let (whole, part) = (scaled / scale, scaled % scale);
            return format!("{whole}.{part:0width$} {unit}", width = decimals as usize);
        }
    }
    unreachable!("the last unit takes every size")
}

/// `a - b` with its sign: `+2.0 MiB`, `-1.50 GiB`, `0 B`.
#[must_use]
pub fn difference(a: u64, b: u64) -> String {
    match a.cmp(&b) {
        std::cmp::Ordering::Less => format!("-{}", human(b - a)),
        std::cmp::Ordering::Equal => "0 B".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", human(a - b)),
    }
}

/// A difference with its sign: `+2.0 MiB`, `-1.50 GiB`, `0 B`.
#[must_use]
pub fn signed(delta: i64) -> String {
    if delta < 0 { difference(0, delta.unsigned_abs()) } else { difference(delta.unsigned_abs(), 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_read_well() {
        let cases: [(u64, &str); 12] = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (518 << 20, "518.0 MiB"),
            (123_731_968, "118.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (1023 << 20, "1023.0 MiB"),
            (21 << 30 | 727 << 20, "21.71 GiB"),
            (150_109_880_320, "139.80 GiB"),
            (u64::MAX, "16.00 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn differences_have_signs() {
        assert_eq!(difference(3 << 20, 1 << 20), "+2.0 MiB");
        assert_eq!(difference(0, 512), "-512 B");
        assert_eq!(difference(7, 7), "0 B");
        assert_eq!(difference(0, u64::MAX), "-16.00 EiB");
        assert_eq!([signed(2 << 20), signed(0), signed(i64::MIN)], ["+2.0 MiB", "0 B", "-8.00 EiB"]);
    }

    proptest! {
        #[test]
        fn any_size_is_short_and_near(bytes: u64) {
            let text = human(bytes);
            prop_assert!(text.len() <= 11, "{text}");
            let (number, unit) = text.split_once(' ').unwrap();
            let shift = UNITS.iter().position(|u| *u == unit).map_or(0, |n| 10 * (n + 1));
            let back = number.parse::<f64>().unwrap() * 2_f64.powi(shift as i32);
            prop_assert!((back - bytes as f64).abs() <= bytes as f64 * 0.05, "{bytes} as {text}");
        }
    }
}
