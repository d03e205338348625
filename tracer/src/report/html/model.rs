//! What the page's script draws: the JSON report, the time line and the stacks in one document.

use serde_json::{Value, json};

use super::clean::clean;
use super::flame::Flame;
use super::timeline::Timeline;
use super::{Error, Shown};
use crate::lifecycle::{Axis, PHASES};
use crate::report::diff::flame::fold;
use crate::report::diff::{Diff, Question, Run, When};
use crate::report::folded;
use crate::report::query::{At, Query};
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
/// When a trace has no such moment.
pub(super) fn page(shown: Shown<'_>, base: Option<Shown<'_>>, at: At) -> Result<Value, Error> {
    let axes = shown.axes;
    let of_trace = |error| Error::Query(shown.name.to_owned(), error);
    let summary = Summary::of(axes, &Query::suiting(axes, at)).map_err(of_trace)?;
    let (timeline, flame) = (Timeline::new(axes), Flame::new(axes, at).map_err(of_trace)?);
    let diff = base.map(|base| changes(base, shown)).transpose()?;
    Ok(clean(json!({
        "schema": SCHEMA,
        "name": shown.name,
        "phases": PHASES,
        "meanings": meanings(&summary),
        "report": report(&summary),
        "timeline": timeline,
        "flame": flame,
        "diff": diff,
    })))
}

/// The JSON of `vramtrace diff`, without the far end of its stacks (how many were left out is said), and the stacks that
/// changed as a flame graph.
fn changes(base: Shown<'_>, other: Shown<'_>) -> Result<Value, Error> {
    let (base, other) = (Run { name: base.name, axes: base.axes }, Run { name: other.name, axes: other.axes });
    let diff = Diff::new(&base, &other, &Question::default())?;
    let left_out = diff.stacks.len().saturating_sub(KEPT);
    let mut diff = serde_json::to_value(&diff).expect("a comparison holds strings, numbers and maps with string keys");
    if let Some(stacks) = diff["stacks"].as_array_mut() {
        stacks.truncate(KEPT);
    }
    diff["left_out"] = json!(left_out);
    let folded = fold([&base, &other], &[Axis::Rank, Axis::Phase], folded::Value::Live, When::default())?.0;
    diff["flame"] = json!(Flame::of_changes(&folded));
    Ok(diff)
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
    for list in ["failures", "notices", "groups", "printed_memory", "evidence", "errors"] {
        if let Some(entries) = report[list].as_array_mut() {
            let from = entries.len().saturating_sub(KEPT);
            // The last failures are what a server dies of; of other lists the first entries say most.
            if list == "failures" {
                drop(entries.drain(..from));
            } else {
                entries.truncate(KEPT);
            }
            left_out.insert(list.to_owned(), json!(from));
        }
    }
    report["left_out"] = Value::Object(left_out);
    report
}
