//! Two recorded traces compared, from outside.

use std::process::Command;

const STATIC: &str = "../tests/traces/h200-static-runtime.vrt";
const ROUTES: &str = "../tests/traces/h200-torch-routes.vrt";

/// Standard output of a run that must succeed without a word on standard error.
fn stdout(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vramtrace")).args(arguments).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn json_has_the_keys_that_others_rely_on_and_sums_up() {
    let text = stdout(&["diff", STATIC, ROUTES, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], "vramtrace.diff/1");
    for key in
        ["configuration", "total_delta_bytes", "ranks", "stacks", "verdict", "cells", "compared", "base", "other"]
    {
        assert!(json.get(key).is_some(), "`{key}` is missing");
    }
    for key in ["key", "base", "other"] {
        assert!(json["configuration"][0].get(key).is_some(), "`{key}` is missing");
    }
    let deltas = |list: &serde_json::Value| -> i64 {
        list.as_array().unwrap().iter().map(|entry| entry["delta_bytes"].as_i64().unwrap()).sum()
    };
    let total = json["total_delta_bytes"].as_i64().unwrap();
    assert_ne!(total, 0);
    assert_eq!([deltas(&json["ranks"]), deltas(&json["stacks"]), deltas(&json["cells"])], [total; 3]);
    for rank in json["ranks"].as_array().unwrap() {
        assert_eq!(deltas(&rank["phases"]), rank["delta_bytes"].as_i64().unwrap(), "{rank}");
    }
    let back = stdout(&["diff", ROUTES, STATIC, "--format", "json"]);
    let back: serde_json::Value = serde_json::from_str(&back).unwrap();
    assert_eq!(back["total_delta_bytes"], -total);
}

#[test]
fn the_picture_names_both_runs_and_the_direction() {
    let svg = stdout(&["flamegraph", ROUTES, "--vs", STATIC, "-o", "-"]);
    assert!(svg.contains("h200-torch-routes.vrt against h200-static-runtime.vrt: GPU memory live at the end"));
    assert!(svg.contains("red: more in h200-torch-routes.vrt than in h200-static-runtime.vrt, blue: less"));
    let peak = stdout(&["flamegraph", ROUTES, "--vs", STATIC, "--value", "peak", "-o", "-"]);
    assert!(peak.contains("GPU memory live at the peak"));
    let equal = stdout(&["flamegraph", ROUTES, "--vs", ROUTES, "-o", "-"]);
    let boxes = equal.matches("\" fg:x=").count();
    assert_eq!(equal.matches(r#"fill="rgb(250,250,250)" fg:x="#).count(), boxes, "nothing is red or blue");
}
