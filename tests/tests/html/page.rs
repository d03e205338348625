//! A page of `vramtrace html` in a browser, and the JSON that it must agree with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use live_tests::browser::Browser;
use live_tests::live::vramtrace;
use live_tests::synthetic::{self, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A page in a browser, and the JSON that it must agree with.
pub(crate) struct Opened {
    _directory: TempDir,
    pub(crate) browser: Browser,
    pub(crate) report: Value,
}

/// Standard output of the command, which must succeed.
pub(crate) fn run(arguments: &[&str]) -> Result<String> {
    let output = Command::new(vramtrace()?).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

impl Opened {
    pub(crate) fn trace(trace: &Path) -> Result<Self> {
        Self::with(tempfile::tempdir()?, trace, &[])
    }

    pub(crate) fn synthetic(server: &Server) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let trace = directory.path().join("server.vrt");
        synthetic::write(&trace, server)?;
        Self::with(directory, &trace, &[])
    }

    pub(crate) fn with(directory: TempDir, trace: &Path, more: &[&str]) -> Result<Self> {
        let (trace, page) = (trace.to_string_lossy(), directory.path().join("page.html"));
        run(&[&["html", &trace, "-o", &page.to_string_lossy()], more].concat())?;
        let report = serde_json::from_str(&run(&["report", &trace, "--format", "json"])?)?;
        let mut browser = Browser::start()?;
        browser.open(&page)?;
        Ok(Self { _directory: directory, browser, report })
    }

    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        self.browser.eval(expression).unwrap()
    }

    /// Bytes that stand in the elements that `selector` finds, in their order.
    pub(crate) fn bytes(&mut self, selector: &str) -> Vec<i64> {
        let find = format!("[...document.querySelectorAll({})].map(e => Number(e.value))", json!(selector));
        self.eval(&find).as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect()
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        let found = self.eval(&format!("document.querySelector({}).textContent", json!(selector)));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// Every process and GPU of the JSON report.
    fn devices(&self) -> Vec<Value> {
        let processes = self.report["processes"].as_array().unwrap().iter();
        processes.flat_map(|process| process["devices"].as_array().unwrap().clone()).collect()
    }

    pub(crate) fn is_quiet(&mut self) {
        let complaints = self.browser.complaints().unwrap();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

pub(crate) fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(name)
}

fn sum(cells: &[Value], key: &str) -> i64 {
    cells.iter().map(|cell| cell[key].as_i64().unwrap()).sum()
}

/// The heat table by `axis` against the cells of the JSON report: each row, each column, the totals.
fn heat_is_the_report(page: &mut Opened, axis: &str) {
    let devices = page.devices();
    let mut expected: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (n, device) in devices.iter().enumerate() {
        for cell in device["cells"].as_array().unwrap() {
            let label = cell[axis].as_str().unwrap();
            let top = if axis == "phase" { label.split('.').next().unwrap() } else { label };
            let row = expected.entry(top.to_owned()).or_insert_with(|| vec![0; devices.len()]);
            row[n] += cell["live_bytes"].as_i64().unwrap();
        }
    }
    for (label, row) in expected.iter().filter(|(_, row)| row.iter().any(|bytes| *bytes > 0)) {
        let mut shown = page.bytes(&format!("#heat tr[data-row='{label}']:not(.part) data"));
        let mut row: Vec<i64> = row.iter().copied().filter(|bytes| *bytes > 0).collect();
        if devices.len() > 1 {
            row.push(row.iter().sum());
        }
        assert_eq!(std::mem::take(&mut shown), row, "{axis} {label}");
    }
    let with_sum = |key: &str, total: &Value| {
        let mut row: Vec<i64> = devices.iter().map(|device| device[key].as_i64().unwrap()).collect();
        row.extend((devices.len() > 1).then(|| total[key].as_i64().unwrap()));
        row
    };
    let total = page.report["total"].clone();
    assert_eq!(page.bytes("#heat tr[data-row='total'] data"), with_sum("live_bytes", &total));
    assert_eq!(page.bytes("#heat tr[data-row='peak'] data"), with_sum("peak_bytes", &total));
}

/// Everything that a reader can compare with the JSON report.
pub(crate) fn agrees(page: &mut Opened) {
    let first = page.eval("vramtrace.page.timeline.by");
    for axis in ["phase", "kind", "owner"] {
        let choose =
            "const s = document.querySelector('#where select'); s.value = AXIS; s.dispatchEvent(new Event('change'))";
        page.eval(&format!("{{ {} }}", choose.replace("AXIS", &json!(axis).to_string())));
        heat_is_the_report(page, axis);
    }
    assert!(["phase", "kind"].contains(&first.as_str().unwrap()));
    let total = page.report["total"]["live_bytes"].as_i64().unwrap();
    assert_eq!(page.bytes(".lede data"), [total]);
    // Stacks: all of them at the root, and the biggest as listed.
    let root = |page: &mut Opened| page.eval("Number(document.querySelector('.frame').dataset.bytes)").as_i64();
    assert_eq!(root(page), Some(total));
    let stacks = page.report["stacks"].as_array().unwrap().clone();
    let listed: Vec<i64> = stacks.iter().map(|stack| stack["live_bytes"].as_i64().unwrap()).collect();
    assert_eq!(page.bytes("#stacks tbody data"), listed);
    let choose = |value: &str| {
        let choose =
            "const s = document.querySelector('#flame select'); s.value = V; s.dispatchEvent(new Event('change'))";
        format!("{{ {} }}", choose.replace('V', &json!(value).to_string()))
    };
    page.eval(&choose("allocated"));
    assert_eq!(root(page), page.report["total"]["allocated_bytes"].as_i64());
    page.eval(&choose("peak"));
    assert_eq!(root(page), Some(sum(&page.devices(), "peak_bytes")));
    // Time line: each track's highest point is the peak, and at the moment looked at it holds what the report says.
    let peaks = page.eval("vramtrace.tracks.map(t => Math.max(...t.total))");
    let held = page
        .eval("vramtrace.tracks.map((t, n) => t.total[vramtrace.pointAt(t, vramtrace.columns.filter(c => c.device.peak_bytes)[n].device.at_ns)])");
    let devices: Vec<_> = page.devices().into_iter().filter(|device| device["peak_bytes"] != 0).collect();
    assert_eq!(peaks, json!(devices.iter().map(|device| &device["peak_bytes"]).collect::<Vec<_>>()));
    assert_eq!(held, json!(devices.iter().map(|device| &device["live_bytes"]).collect::<Vec<_>>()));
}
