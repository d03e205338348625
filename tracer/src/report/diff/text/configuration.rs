//! What was different in how the runs were started.

use crate::report::apart::apart;
use crate::report::diff::Setting;
use crate::report::text::plain::{fit, plain};
use crate::report::text::table::{Column, Table, WIDTH};
use crate::report::text::{Style, sentence};

/// Settings shown.
const ROWS: usize = 12;

/// Settings that differ; those that differ between any two runs in one line.
pub(super) fn table(settings: &[Setting], style: Style) -> String {
    let (noise, telling): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.noise);
    let mut text = String::new();
    if telling.is_empty() {
        text += &sentence("Configuration: no difference seen in arguments, environment, libraries or host");
    } else {
        text += &(style.title("Configuration") + "\n");
        let mut table = Table::new(["Setting", "BASE", "OTHER"].map(Column::Name).to_vec());
        for setting in telling.iter().take(ROWS) {
            let (base, other) = apart(&value(setting.base.as_deref()), &value(setting.other.as_deref()));
            table.row([setting.key.clone(), base, other]);
        }
        text += &table.render();
        if telling.len() > ROWS {
            text += &format!("  … and {} more (--format json lists all)\n", telling.len() - ROWS);
        }
    }
    if !noise.is_empty() {
        let names: Vec<&str> = noise.iter().map(|setting| setting.key.as_str()).collect();
        let line = format!("  as between any two runs: {}", names.join(", "));
        text += &(fit(&plain(&line), WIDTH) + "\n");
    }
    text
}

fn value(value: Option<&str>) -> String {
    match value {
        None => "(not set)".to_owned(),
        Some("") => "(set)".to_owned(),
        Some(value) => value.to_owned(),
    }
}
