//! Versions of Python packages, and ranges of them.

use std::fmt;
use std::str::FromStr;

/// A released version: the numbers of `0.5.10.post2` up to its first word. Zeros at the end do not count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = Vec::new();
        for part in text.trim().trim_start_matches('v').split(['.', '+', '-']) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            let Ok(number) = digits.parse() else { break };
            numbers.push(number);
            // `10rc1`: what follows a word is no part of the release.
            if digits.len() < part.len() {
                break;
            }
        }
        if numbers.is_empty() {
            return Err(format!("`{text}` is no version"));
        }
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        Ok(Self(numbers))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// `>=0.5.14, <0.5.21`: bounds that all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range(Vec<(Bound, Version)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    AtLeast,
    Above,
    AtMost,
    Below,
}

const BOUNDS: [(&str, Bound); 4] =
    [(">=", Bound::AtLeast), ("<=", Bound::AtMost), (">", Bound::Above), ("<", Bound::Below)];

impl Range {
    /// True when it holds `version`.
    #[must_use]
    pub fn holds(&self, version: &Version) -> bool {
        self.0.iter().all(|(bound, limit)| match bound {
            Bound::AtLeast => version >= limit,
            Bound::Above => version > limit,
            Bound::AtMost => version <= limit,
            Bound::Below => version < limit,
        })
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no range of versions: write it like `>=0.5.14, <0.5.21`");
        let bound = |part: &str| {
            let part = part.trim();
            let (sign, bound) = BOUNDS.iter().find(|(sign, _)| part.starts_with(sign)).ok_or_else(wrong)?;
            Ok((*bound, part[sign.len()..].parse().map_err(|_| wrong())?))
        };
        text.split(',').map(bound).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |bound: &Bound| BOUNDS.iter().find(|(_, known)| known == bound).map_or("", |(sign, _)| sign);
        let bounds: Vec<_> = self.0.iter().map(|(bound, version)| format!("{}{version}", sign(bound))).collect();
        f.write_str(&bounds.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("0.5.9") < version("0.5.10"));
        assert_eq!(version("0.5.6.post2"), version("0.5.6"));
        assert_eq!(version("v2.11.0+cu130"), version("2.11"));
        assert_eq!(version("0.5.10rc1"), version("0.5.10"));
        assert!("".parse::<Version>().is_err() && "main".parse::<Version>().is_err());
        assert_eq!(version("0.5.6.post2").to_string(), "0.5.6");
    }

    #[test]
    fn ranges_hold_what_lies_between_their_bounds() {
        let range: Range = ">=0.5.14, <0.5.21".parse().unwrap();
        let holds = |text: &str| range.holds(&text.parse().unwrap());
        assert!(holds("0.5.14") && holds("0.5.20.post1") && !holds("0.5.21") && !holds("0.5.13"));
        assert_eq!(range.to_string(), ">=0.5.14, <0.5.21");
        for bad in ["", "0.5", "=0.5", ">=", ">=x", ">=0.5,"] {
            assert!(bad.parse::<Range>().is_err(), "{bad:?}");
        }
    }
}
