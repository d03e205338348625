//! What the page's script draws: the JSON report, the time line and the stacks in one document.

use serde_json::{Value, json};

use super::Shown;
use super::clean::clean;
use super::flame::Flame;
use super::timeline::Timeline;
use crate::lifecycle::PHASES;
use crate::report::query::{self, At, Query};
use crate::report::summary::Summary;
use crate::report::trust;

/// Name and version of the page's data.
const SCHEMA: &str = "vramtrace.html/1";
/// Entries kept of each list of the report whose length the traced program decides.
const KEPT: usize = 200;

/// The page's data.
///
/// # Errors
///
/// When the trace has no such moment.
pub(super) fn page(shown: Shown<'_>, at: At) -> Result<Value, query::Error> {
    let axes = shown.axes;
    let summary = Summary::of(axes, &Query::suiting(axes, at))?;
    let (timeline, flame) = (Timeline::new(axes), Flame::new(axes, at)?);
    Ok(clean(json!({
        "schema": SCHEMA,
        "name": shown.name,
        "phases": PHASES,
        "meanings": meanings(&summary),
        "report": report(&summary),
        "timeline": timeline,
        "flame": flame,
    })))
}

/// What each loss means.
fn meanings(summary: &Summary) -> Value {
    summary.losses.keys().map(|why| (why.clone(), json!(trust::loss_meaning(why)))).collect()
}

/// The JSON report without NVML's samples, which the time line holds, without idle processes and the far ends of long lists;
/// what was left out is counted.
fn report(summary: &Summary) -> Value {
    let mut report = serde_json::to_value(summary).expect("a summary holds strings, numbers and maps with string keys");
    let mut left_out = serde_json::Map::new();
    if let Some(processes) = report["processes"].as_array_mut() {
        let all = processes.len();
        processes.retain(|process| {
            let holds = |key: &str| process[key].as_u64() != Some(0);
            process["devices"].as_array().is_some_and(|devices| !devices.is_empty())
                || holds("host_bytes")
                || holds("imported_bytes")
        });
        left_out.insert("idle_processes".to_owned(), json!(all - processes.len()));
        for device in processes.iter_mut().filter_map(|process| process["devices"].as_array_mut()).flatten() {
            device.as_object_mut().map(|device| device.remove("nvml"));
        }
    }
    for list in ["failures", "notices", "groups", "printed_memory", "evidence"] {
        if let Some(entries) = report[list].as_array_mut() {
            let from = entries.len().saturating_sub(KEPT);
            // The last failures are what a server dies of; of other lists the first entries say most.
            if list == "failures" {
                drop(entries.drain(..from))
            } else {
                entries.truncate(KEPT)
            }
            left_out.insert(list.to_owned(), json!(from));
        }
    }
    report["left_out"] = Value::Object(left_out);
    report
}
