//! The report as JSON: [`Summary`] as it stands, schema `vramtrace.report/1`.

use super::summary::Summary;

/// `summary` as one JSON document, ended by a newline.
#[must_use]
pub fn render(summary: &Summary) -> String {
    let text = serde_json::to_string_pretty(summary);
    text.expect("a summary holds strings, numbers and maps with string keys only") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::query::Query;
    use crate::report::testbook::{TestBook, any_book};
    use crate::report::text::tests::{exact_run, out_of_memory};
    use proptest::prelude::*;
    use serde_json::Value;

    fn rendered(t: &TestBook) -> Value {
        serde_json::from_str(&render(&Summary::new(&t.book, &Query::default()).unwrap())).unwrap()
    }

    #[test]
    fn of_an_exact_run() {
        insta::assert_snapshot!(render(&Summary::new(&exact_run().book, &Query::default()).unwrap()));
    }

    #[test]
    fn of_a_run_out_of_memory() {
        insta::assert_snapshot!(render(&Summary::new(&out_of_memory().book, &Query::default()).unwrap()));
    }

    #[test]
    fn the_keys_that_others_rely_on_are_there() {
        let json = rendered(&out_of_memory());
        assert_eq!(json["schema"], "vramtrace.report/1");
        assert_eq!(json["ledger"], "ioctl");
        let keys = |value: &Value, keys: &[&str]| {
            for key in keys {
                assert!(value.get(key).is_some(), "`{key}` is missing in {value}");
            }
        };
        keys(&json, &["outcome", "lost_events", "explained_percent", "processes", "failures", "kv_budget"]);
        keys(&json["outcome"], &["kind", "detail"]);
        keys(&json["processes"][0], &["pid", "rank", "role", "command", "devices"]);
        let device = &json["processes"][0]["devices"][0];
        keys(device, &["index", "uuid", "live_bytes", "peak_bytes", "nvml", "cells"]);
        keys(&device["nvml"][0], &["time_ns", "nvml_bytes", "live_bytes", "quiet"]);
        keys(&device["cells"][0], &["phase", "kind", "owner", "live_bytes", "peak_bytes", "allocated_bytes", "count"]);
        keys(&json["failures"][0], &["pid", "rank", "api", "requested_bytes", "free_bytes", "phase", "stack"]);
    }

    #[test]
    fn without_a_quiet_sample_the_share_is_unknown() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        t.allocate(process, gpu, 1 << 20);
        t.sample(process, gpu, 0, false);
        assert_eq!(rendered(&t)["explained_percent"], Value::Null);
    }

    proptest! {
        #[test]
        fn devices_and_cells_sum_to_the_total(book in any_book()) {
            let summary = Summary::new(&book, &Query::default()).unwrap();
            let total = summary.total.live_bytes;
            prop_assert_eq!(summary.cells.iter().map(|c| c.bytes.live_bytes).sum::<u64>(), total);
            // A GPU's figure is of one moment; the total may be of another in each process. What a process that is looked at
            // later frees before that is in the one and not in the other.
            let on_gpus = summary.gpus.iter().map(|g| g.bytes.live_bytes).sum::<u64>();
            prop_assert!(on_gpus >= total || !summary.one_moment, "{on_gpus} of {total}");
            for gpu in &summary.gpus {
                let at = book.header.t + gpu.at_ns;
                let index = book.gpus.iter().position(|g| g.uuid == gpu.uuid).unwrap();
                prop_assert_eq!(book.live_at(at, |row| row.gpu == index), gpu.bytes.live_bytes);
                prop_assert!(gpu.bytes.live_bytes <= gpu.bytes.peak_bytes);
            }
            prop_assert_eq!(summary.devices().map(|(_, d)| d.bytes.live_bytes).sum::<u64>(), total);
            for (_, device) in summary.devices() {
                let cells: u64 = device.cells.iter().map(|cell| cell.bytes.live_bytes).sum();
                prop_assert_eq!(cells, device.bytes.live_bytes);
            }
            prop_assert!(serde_json::from_str::<Value>(&render(&summary)).is_ok());
        }
    }
}
