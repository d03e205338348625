//! The report as one web page that needs no network: everything it shows stands in it.
//!
//! The page holds the JSON report (less what would make it large), a time line and the stacks; its script draws them.
//! Names come from the traced machine and may be hostile: they reach the page as JSON in which no `<` stands, and the
//! document as text nodes. A content security policy lets nothing but the page's own script and style run.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

mod clean;
mod flame;
mod marks;
mod model;
mod timeline;

use super::diff;
use super::query::{self, At};
use crate::lifecycle::Axes;

/// The document, with `{{…}}` where its parts go.
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// The script's files, in order. They share one scope, that of a module.
const SCRIPT: [&str; 13] = [
    include_str!("js/data.js"),
    include_str!("js/dom.js"),
    include_str!("js/overview.js"),
    include_str!("js/matrix.js"),
    include_str!("js/track.js"),
    include_str!("js/timetext.js"),
    include_str!("js/timeline.js"),
    include_str!("js/tree.js"),
    include_str!("js/flame.js"),
    include_str!("js/tables.js"),
    include_str!("js/versus.js"),
    include_str!("js/torch.js"),
    include_str!("js/main.js"),
];

/// A trace to show.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// What is in it. Both traces of a comparison must be read by the same rules.
    pub axes: &'a Axes<'a>,
    /// Name of its file.
    pub name: &'a str,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace has no such moment.
    #[error("{0}: {1}")]
    Query(String, query::Error),
    /// The traces cannot be compared.
    #[error(transparent)]
    Diff(#[from] diff::Error),
}

/// The page of a trace, live bytes at the moment `at`, beside what changed since `base` (at the moments that suit a
/// comparison). Equal traces give equal pages.
///
/// # Errors
///
/// When a trace has no such moment.
pub fn render(shown: Shown<'_>, base: Option<Shown<'_>>, at: At) -> Result<String, Error> {
    let data = model::page(shown, base, at)?.to_string().replace('<', "\\u003c");
    let script = SCRIPT.join("\n");
    let title = format!("{} – vramtrace", super::text::plain::plain(shown.name));
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(STYLE)
    );
    let parts = [
        ("policy", policy.as_str()),
        ("title", &escape(&title)),
        ("style", STYLE),
        ("data", &data),
        ("script", &script),
    ];
    Ok(fill(PAGE, &parts))
}

/// What a content security policy calls an inline script or style.
fn hash(content: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(content)))
}

/// `text` as it may stand in an element or a quoted attribute.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' | '<' | '>' | '"' | '\'' => {
                let _ = write!(escaped, "&#{};", c as u32);
            }
            c => escaped.push(c),
        }
        escaped
    })
}

/// `template` with its `{{name}}`s replaced, once: what a part holds is never taken for a name.
fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let mut page = String::with_capacity(parts.iter().map(|(_, part)| part.len()).sum::<usize>() + template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        page += before;
        page += parts.iter().find(|(part, _)| *part == name).map_or("", |(_, content)| content);
        rest = after;
    }
    page + rest
}

#[cfg(test)]
mod tests;
