//! Differential flame graph: the memory of OTHER, coloured by how it differs from that of BASE.
//!
//! Widths are bytes in OTHER. What OTHER no longer holds would have none, so it is as wide as it was in BASE. A box is red
//! where OTHER holds more below it, blue where it holds less, the deeper the larger the share that changed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{self as inferno_flamegraph, Options};
use regex::{Captures, Regex};

use super::model::{Change, Compared};
use super::moment::{self, Life, When};
use super::pair::Pairs;
use super::stack_key::flame_name;
use super::{Error, Run};
use crate::lifecycle::Axis;
use crate::report::bytes::{human, signed};
use crate::report::flamegraph::options;
use crate::report::folded::{self, Names, Value};
use crate::report::query::At;
use crate::report::text::plain::plain;

/// Why there is no flame graph.
#[derive(Debug, thiserror::Error)]
pub enum FlameError {
    /// The runs cannot be compared as asked.
    #[error(transparent)]
    Compare(#[from] Error),
    /// No bytes to draw.
    #[error("there is nothing to draw: neither run holds GPU memory then; --value allocated shows all there was")]
    Empty,
    /// The SVG could not be made.
    #[error("the flame graph could not be drawn")]
    Draw(#[source] std::io::Error),
}

/// A box as inferno draws it: its title, and where it begins and ends.
static BOX: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"<title>(?P<name>[^<]*) \([^<(]*\)</title><rect (?P<place>[^>]*)fill="[^"]*" fg:x="(?P<x>\d+)" fg:w="(?P<w>\d+)"/>"#,
    )
});

#[expect(clippy::expect_used, reason = "a constant pattern: a test compiles it")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// A flame graph of `other` against `base`, with labels on the axes `by` at its root. Equal traces give equal SVGs.
///
/// # Errors
///
/// When the runs cannot be compared at that moment, or hold nothing then.
pub fn render(
    base: &Run<'_, '_>,
    other: &Run<'_, '_>,
    by: &[Axis],
    value: Value,
    when: When,
) -> Result<Vec<u8>, FlameError> {
    let (folded, compared) = fold([base, other], by, value, when)?;
    let stacks = Stacks::new(&folded);
    if stacks.lines.is_empty() {
        return Err(FlameError::Empty);
    }
    let (base, other) = (plain(base.name), plain(other.name));
    let mut options: Options<'_> = options();
    options.title = format!("{other} against {base}: GPU memory {}", what(value, &compared));
    options.subtitle = Some(subtitle(&stacks, &base, &other));
    options.no_sort = true;
    // Nothing but boxes has a colour.
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    let mut svg = Vec::new();
    let lines = stacks.lines.iter().map(String::as_str);
    inferno_flamegraph::from_lines(&mut options, lines, &mut svg).map_err(FlameError::Draw)?;
    Ok(stacks.coloured(&String::from_utf8_lossy(&svg)).into_bytes())
}

/// Bytes of both runs by folded stack.
pub(in crate::report) fn fold(
    runs: [&Run<'_, '_>; 2],
    by: &[Axis],
    value: Value,
    when: When,
) -> Result<(BTreeMap<String, Change>, Compared), Error> {
    let when =
        if value == Value::Live { when } else { When::At(if value == Value::Peak { At::Peak } else { At::End }) };
    let lives = runs.map(Life::new);
    let (moments, compared) = moment::moments(runs, &lives, when)?;
    let pairs = Pairs::new(runs);
    let mut folded: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (side, run) in runs.into_iter().enumerate() {
        let names = Names {
            root: &|axis, row| match (axis, pairs.of(side, row.process)) {
                (Axis::Rank | Axis::Process, Some(place)) => pairs.places[place].label.clone(),
                _ => run.axes.label(axis, run.axes.cell(axis, row)).into_owned(),
            },
            frame: &flame_name,
        };
        let sums = folded::sums(run.axes, by, |row| value == Value::Allocated || moments[side].is_live(row), &names);
        for (stack, bytes) in sums {
            folded.entry(stack).or_default()[side] = bytes;
        }
    }
    Ok((folded.into_iter().map(|(stack, [base, other])| (stack, Change::new(base, other))).collect(), compared))
}

fn what(value: Value, compared: &Compared) -> String {
    match (value, &compared.phase, compared.at.as_str()) {
        (Value::Allocated, ..) => "ever allocated".to_owned(),
        (_, Some(phase), _) => format!("live at the end of {phase}"),
        (_, None, "end") => "live at the end".to_owned(),
        (_, None, "peak") => "live at the peak".to_owned(),
        (_, None, "oom") => "live when memory ran out".to_owned(),
        (_, None, time) => format!("live {time} after tracing began"),
    }
}

fn subtitle(stacks: &Stacks, base: &str, other: &str) -> String {
    let total = stacks.change(0, stacks.width());
    let mut text = format!(
        "{} → {}, {} · red: more in {other} than in {base}, blue: less · widths: bytes in {other}",
        human(total.base_bytes),
        human(total.other_bytes),
        signed(total.delta_bytes)
    );
    if stacks.gone > 0 {
        text += &format!(", and in {base} where {other} has none ({})", human(stacks.gone));
    }
    text
}

/// Stacks from left to right.
struct Stacks {
    /// As inferno reads them.
    lines: Vec<String>,
    /// Where each ends, and the bytes of both runs up to there.
    ends: Vec<(u64, [u128; 2])>,
    /// Bytes of stacks that BASE alone has.
    gone: u64,
}

impl Stacks {
    fn new(folded: &BTreeMap<String, Change>) -> Self {
        let width = |change: &Change| if change.other_bytes == 0 { change.base_bytes } else { change.other_bytes };
        let line = |(stack, change): (&String, &Change)| (format!("{stack} {}", width(change)), *change);
        let mut lines: Vec<(String, Change)> = folded.iter().map(line).collect();
        // The order in which inferno wants them.
        lines.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut ends = Vec::with_capacity(lines.len());
        let (mut end, mut sums, mut gone) = (0_u64, [0_u128; 2], 0_u64);
        for (_, change) in &lines {
            end = end.saturating_add(width(change));
            gone = gone.saturating_add(if change.other_bytes == 0 { change.base_bytes } else { 0 });
            sums = [sums[0] + u128::from(change.base_bytes), sums[1] + u128::from(change.other_bytes)];
            ends.push((end, sums));
        }
        Self { lines: lines.into_iter().map(|(line, _)| line).collect(), ends, gone }
    }

    fn width(&self) -> u64 {
        self.ends.last().map_or(0, |(end, _)| *end)
    }

    /// Bytes of the stacks from `x` to `x + w`: those below a box.
    fn change(&self, x: u64, w: u64) -> Change {
        let upto = |x: u64| match self.ends.partition_point(|(end, _)| *end <= x) {
            0 => [0, 0],
            n => self.ends[n - 1].1,
        };
        let (from, to) = (upto(x), upto(x.saturating_add(w)));
        let [base, other] = [0, 1].map(|side| u64::try_from(to[side].saturating_sub(from[side])).unwrap_or(u64::MAX));
        Change::new(base, other)
    }

    /// The picture with each box coloured and titled by what changed below it. (inferno colours innermost frames alone,
    /// and here these are all calls that allocate.)
    fn coloured(&self, svg: &str) -> String {
        let redraw = |found: &Captures<'_>| {
            let number = |name: &str| found[name].parse().unwrap_or(0);
            let (x, w) = (number("x"), number("w"));
            let change = self.change(x, w);
            let (name, place, colour) = (&found["name"], &found["place"], colour(change));
            let (before, now, delta) =
                (human(change.base_bytes), human(change.other_bytes), signed(change.delta_bytes));
            format!(
                r#"<title>{name} ({before} → {now}, {delta})</title><rect {place}fill="{colour}" fg:x="{x}" fg:w="{w}"/>"#
            )
        };
        BOX.replace_all(svg, redraw).into_owned()
    }
}

/// White where nothing changed; red for more and blue for less, full where all of it is new or gone.
fn colour(change: Change) -> String {
    let most = change.base_bytes.max(change.other_bytes).max(1);
    let share = change.delta_bytes.unsigned_abs() as f64 / most as f64;
    // The square root, so that a small share of a large box still shows.
    let pale = 250 - (share.min(1.0).sqrt() * 170.0).round() as u8;
    match change.delta_bytes {
        0 => "rgb(250,250,250)".to_owned(),
        1.. => format!("rgb(255,{pale},{pale})"),
        _ => format!("rgb({pale},{pale},255)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Book;
    use crate::lifecycle::Axes;
    use crate::report::query::Moments;
    use crate::report::testbook::{TestBook, any_book};
    use proptest::prelude::*;

    fn draw(base: &Book, other: &Book) -> Result<String, FlameError> {
        let (base, other) = (Axes::new(base), Axes::new(other));
        let runs = [Run { name: "a.vrt", axes: &base }, Run { name: "b.vrt", axes: &other }];
        let svg = render(&runs[0], &runs[1], &[Axis::Rank], Value::Live, When::default())?;
        Ok(String::from_utf8(svg).unwrap())
    }

    /// A process with bytes from some functions.
    fn book(held: &[(&str, u64)]) -> Book {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(7, "server"), t.gpu(0));
        for (function, bytes) in held {
            let stack = t.stack(&[("main", "server"), (function, "server")]);
            let row = t.allocate(process, gpu, *bytes);
            t.book.allocations[row].stack = Some(stack);
        }
        t.book
    }

    fn title(svg: &str, name: &str) -> String {
        let found = BOX.captures_iter(svg).find(|found| &found["name"] == name);
        found.map_or_else(|| panic!("no {name} in {svg}"), |found| found[0].to_owned())
    }

    #[test]
    fn boxes_say_what_changed_below_them_in_either_direction() {
        let (old, new) =
            (book(&[("grow", 1000), ("same", 500), ("gone", 100)]), book(&[("grow", 3000), ("same", 500)]));
        let svg = draw(&old, &new).unwrap();
        assert!(svg.contains("b.vrt against a.vrt: GPU memory live at the end"), "{svg}");
        assert!(svg.contains("red: more in b.vrt than in a.vrt"), "{svg}");
        assert!(svg.contains("widths: bytes in b.vrt, and in a.vrt where b.vrt has none (100 B)"), "{svg}");
        assert!(svg.contains("<title>grow (1000 B → 2.9 KiB, +2.0 KiB)</title>"), "{svg}");
        assert!(title(&svg, "same").contains(r#"fill="rgb(250,250,250)""#));
        assert!(title(&svg, "grow").contains(r#"fill="rgb(255,111,111)""#), "{}", title(&svg, "grow"));
        assert!(title(&svg, "gone").contains(r#"fill="rgb(80,80,255)""#), "all of it is gone");
        assert!(title(&svg, "all").contains("1.6 KiB → 3.4 KiB, +1.9 KiB"), "{}", title(&svg, "all"));

        let back = draw(&new, &old).unwrap();
        assert!(
            title(&back, "grow").contains(r#"fill="rgb(111,111,255)""#) && title(&back, "grow").contains("-2.0 KiB")
        );
        assert!(title(&back, "gone").contains(r#"fill="rgb(255,80,80)""#), "all of it is new");
        assert!(back.contains("widths: bytes in b.vrt</text>"), "nothing is in a.vrt alone");
    }

    #[test]
    fn nothing_in_either_run_is_an_error() {
        let empty = TestBook::new().book;
        assert!(matches!(draw(&empty, &empty), Err(FlameError::Empty)));
    }

    #[test]
    fn names_stay_text() {
        let hostile = "</title><script>alert(1)</script>";
        let svg = draw(&book(&[(hostile, 5)]), &book(&[(hostile, 6)])).unwrap();
        assert!(!svg.contains("<script>alert"), "a name became markup");
    }

    proptest! {
        #[test]
        fn every_box_is_titled_and_the_root_has_the_totals(base in any_book(), other in any_book()) {
            let Ok(svg) = draw(&base, &other) else { return Ok(()) };
            prop_assert_eq!(svg.matches("<rect x=").count() - 1, BOX.find_iter(&svg).count());
            let live = |book: &Book| {
                let moments = Moments::new(&Axes::new(book), At::End).unwrap();
                book.allocations.iter().filter(|row| moments.is_live(row)).map(|row| row.bytes).sum::<u64>()
            };
            let totals = format!("({} → {}, ", human(live(&base)), human(live(&other)));
            prop_assert!(title(&svg, "all").contains(&totals), "{}", title(&svg, "all"));
        }
    }
}
