//! Flame graph of bytes, as SVG.

use std::collections::BTreeMap;
use std::path::Path;

use inferno::flamegraph::color::BasicPalette;
use inferno::flamegraph::{self, Options, Palette};

use super::folded::{self, Value};
use super::query::{self, At};
use super::text::plain::plain;
use super::{bytes, trust};
use crate::lifecycle::{Axes, Axis};

/// Why there is no flame graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace has no such moment.
    #[error(transparent)]
    Query(#[from] query::Error),
    /// No bytes to draw.
    #[error(
        "there is nothing to draw: no {0}; --value peak shows what was held at most, --value allocated all there was"
    )]
    Empty(String),
    /// The SVG could not be made.
    #[error("the flame graph could not be drawn")]
    Draw(#[source] std::io::Error),
}

/// A flame graph of the book of `axes`, read from the file `name`, with labels on the axes `by` at its root. Equal traces
/// give equal SVGs.
///
/// # Errors
///
/// When there is no such moment, or no memory at it.
pub fn render(axes: &Axes<'_>, by: &[Axis], name: &Path, value: Value, at: At) -> Result<Vec<u8>, Error> {
    let folded = folded::collapse(axes, by, value, at)?;
    let what = describe(value, at);
    if folded.is_empty() {
        return Err(Error::Empty(what));
    }
    let name = name.file_name().unwrap_or(name.as_os_str()).to_string_lossy();
    let mut options = options();
    options.title = format!("{}: {what}", plain(&name));
    options.subtitle = Some(plain(&subtitle(axes, &folded)));
    let lines: Vec<String> = folded.iter().map(|(stack, bytes)| format!("{stack} {bytes}")).collect();
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg).map_err(Error::Draw)?;
    Ok(svg)
}

/// How all flame graphs look.
pub(super) fn options() -> Options<'static> {
    let mut options = Options::default();
    options.count_name = "bytes".to_owned();
    options.name_type = "Frame:".to_owned();
    // Colours by name: equal frames look alike in the graphs of two runs.
    options.hash = true;
    options.colors = Palette::Basic(BasicPalette::Mem);
    options.deterministic = true;
    options.image_width = Some(1600);
    options
}

fn describe(value: Value, at: At) -> String {
    match (value, at) {
        (Value::Allocated, _) => "GPU memory ever allocated".to_owned(),
        (Value::Peak, _) | (Value::Live, At::Peak) => "GPU memory live at the peak".to_owned(),
        (Value::Live, At::End) => "GPU memory live at the end".to_owned(),
        (Value::Live, At::Oom) => "GPU memory live when memory ran out".to_owned(),
        (Value::Live, At::Time(_)) => format!("GPU memory live {at} after tracing began"),
    }
}

/// The total, and what makes it less than certain.
fn subtitle(axes: &Axes<'_>, folded: &BTreeMap<String, u64>) -> String {
    let book = axes.book();
    let total = folded.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let mut text = bytes::human(total);
    let lost: u64 = book.losses.iter().filter(|(why, _)| trust::costs_bytes(book, why)).map(|(_, count)| count).sum();
    if lost > 0 {
        text += &format!(" · {lost} events LOST");
    }
    let outcome = trust::outcome(book, axes);
    if matches!(outcome.kind, "truncated" | "oom") {
        text += &format!(" · {}: {}", outcome.kind.to_uppercase(), outcome.detail);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::TestBook;
    use crate::report::text::tests::{exact_run, out_of_memory};

    fn draw(t: &TestBook, name: &str) -> Result<String, Error> {
        let svg = render(&Axes::new(&t.book), &folded::ROOTS, Path::new(name), Value::Live, At::End)?;
        Ok(String::from_utf8(svg).unwrap())
    }

    fn svg(t: &TestBook) -> String {
        draw(t, "/srv/server.vrt").unwrap()
    }

    #[test]
    fn it_names_the_file_the_value_and_the_bytes() {
        let svg = svg(&exact_run());
        assert!(svg.contains("server.vrt: GPU memory live at the end"));
        assert!(svg.contains("754.0 MiB"));
        assert!(svg.contains("<title>cudaMalloc (cuda_malloc) (247,463,936 bytes, 31.30%)</title>"));
    }

    #[test]
    fn it_is_the_same_every_time() {
        assert_eq!(svg(&out_of_memory()), svg(&out_of_memory()));
    }

    #[test]
    fn hostile_names_stay_text() {
        let hostile = r#"</title><script>alert("1")</script>&'\u{1b}"#;
        let mut t = exact_run();
        t.book.processes[0].title = hostile.to_owned();
        for frame in &mut t.book.frames {
            frame.function = hostile.to_owned();
        }
        for row in &mut t.book.allocations {
            row.calls = [hostile.to_owned()].into();
        }
        let svg = draw(&t, r#"<script>"&.vrt"#).unwrap();
        assert!(!svg.contains("<script>alert") && !svg.contains(r#"<script>""#), "a name became markup");
        // The graph's own script is the only one.
        assert_eq!(svg.matches("<script").count(), 1);
    }

    #[test]
    fn nothing_to_draw_is_an_error_that_says_what_to_do() {
        let mut t = TestBook::new();
        t.process(1, "a");
        let error = draw(&t, "x.vrt").unwrap_err().to_string();
        assert!(error.contains("no GPU memory live at the end") && error.contains("--value peak"), "{error}");
    }

    #[test]
    fn a_truncated_or_lossy_trace_says_so_in_the_picture() {
        let mut t = exact_run();
        t.book.outcome = None;
        t.book.losses.insert("ring_full".to_owned(), 3);
        let svg = svg(&t);
        assert!(svg.contains("TRUNCATED") && svg.contains("3 events LOST"));
    }
}
