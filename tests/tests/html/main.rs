//! The page of `vramtrace html` in a real browser: what it shows is what the JSON report says, it can be worked by mouse and
//! by keyboard, names from the trace stay text, and nothing is asked of the network.

mod page;

use std::path::Path;

use live_tests::browser::Browser;
use live_tests::live::vramtrace;
use live_tests::sim::{Config, Sim};
use live_tests::synthetic::{self, HOSTILE, MIB, STEPS, Server};
use page::{Opened, agrees, recorded, run};
use serde_json::{Value, json};

const TP8: Server = Server { ranks: 8, events: 600, hostile: false, dies: true };

#[test]
fn a_recorded_program_is_shown_as_reported() {
    for name in ["h200-torch-routes.vrt", "h200-static-runtime.vrt"] {
        let mut page = Opened::trace(&recorded(name)).unwrap();
        agrees(&mut page);
        let detail = page.report["outcome"]["detail"].as_str().unwrap().to_owned();
        assert!(page.text("#outcome").contains(&detail));
        page.is_quiet();
    }
}

#[test]
fn a_server_of_eight_ranks_is_shown_as_reported() {
    let mut page = Opened::synthetic(&TP8).unwrap();
    agrees(&mut page);
    // Not only as reported but as it was.
    page.eval("{ const s = document.querySelector('#where select'); s.value = 'phase'; s.dispatchEvent(new Event('change')) }");
    for (_, phase, mib, ..) in STEPS {
        let top = phase.split('.').next().unwrap();
        let shown = page.bytes(&format!("#heat tr[data-row='{top}']:not(.part) data"));
        assert_eq!(shown[..8], [(mib * MIB) as i64; 8], "{phase}");
    }
    // It died for want of memory: that comes first.
    let first = page.eval("document.querySelector('main > section:not([hidden]):not(#summary) h2').textContent");
    assert_eq!(first, "Out of memory");
    let failure = &page.report["failures"][0];
    let told =
        [&failure["requested_bytes"], &failure["free_bytes"], &failure["held_bytes"]].map(|n| n.as_i64().unwrap());
    assert_eq!(page.bytes("#failures .oom > p data"), told);
    page.is_quiet();
}

/// Memory that is given back for a time is shown apart.
#[test]
fn paused_memory_is_shown() {
    let sim = Sim::start(Config::default()).unwrap();
    let file = sim.scratch().join("run.vrt");
    let mut command = sim.command(vramtrace().unwrap().to_str().unwrap()).unwrap();
    command.args(["run", "--as-root", "-o"]).arg(&file).arg("--").arg(sim.program("scenario")).arg("memory_saver");
    assert!(command.output().unwrap().status.success());
    let mut page = Opened::trace(&file).unwrap();
    agrees(&mut page);
    assert_eq!(page.bytes("#paused-table data"), [130 * MIB as i64]);
    assert!(page.text("#torch").contains("Paused by torch_memory_saver"));
    page.is_quiet();
}

#[test]
fn a_click_zooms_a_key_walks_a_search_marks() {
    let mut page = Opened::synthetic(&TP8).unwrap();
    let focus = "boxName(document.activeElement)";
    page.eval("globalThis.boxName = e => e.getAttribute('aria-label')?.split(', ')[0]");
    page.eval("{ const s = document.querySelectorAll('#flame select')[1]; s.value = 'phase,rank'; s.dispatchEvent(new Event('change')) }");
    page.browser.click(".frame[aria-label^='weights,']").unwrap();
    let wide = "[...document.querySelectorAll('.frame')].find(e => boxName(e) === 'weights').getBoundingClientRect().width / document.getElementById('flames').clientWidth";
    assert!(page.eval(wide).as_f64().unwrap() > 0.95, "the clicked box fills the width");
    assert_eq!(page.eval("document.querySelector('.frame[aria-label^=\"kv_cache,\"]')"), Value::Null);
    assert_eq!(page.eval(focus), "weights");
    for (key, name) in [
        ("ArrowDown", "TP0"),
        ("ArrowRight", "TP1"),
        ("ArrowLeft", "TP0"),
        ("End", "TP7"),
        ("ArrowDown", "main"),
        ("ArrowUp", "TP7"),
        ("Enter", "TP7"),
        ("Escape", "weights"),
        ("Escape", "All"),
        ("Home", "All"),
    ] {
        page.browser.press(key).unwrap();
        assert_eq!(page.eval(focus), name, "after {key}");
    }
    assert_eq!(page.eval("document.querySelectorAll('.frame[tabindex=\"0\"]').length"), 1, "one box takes Tab");
    page.browser.press("/").unwrap();
    for key in ["L", "i", "n", "e", "a", "r"] {
        page.browser.press(key).unwrap();
    }
    assert_eq!(page.eval("document.activeElement.id"), "search");
    let marked = page.eval("[...document.querySelectorAll('.frame.match')].every(e => e.textContent.startsWith('Linear') || e.textContent === '')");
    assert_eq!(marked, true);
    let weights = STEPS.iter().find(|(_, phase, ..)| *phase == "weights").unwrap().2;
    assert_eq!(page.bytes("#found data"), [(8 * weights * MIB) as i64], "no byte is counted twice");
    page.is_quiet();
}

#[test]
fn the_moment_moves_by_keys_and_the_view_by_drag() {
    let mut page = Opened::synthetic(&TP8).unwrap();
    page.eval("document.querySelector('#time input[type=range]').focus()");
    page.browser.press("Home").unwrap();
    assert!(page.text("#held caption").starts_with("Held 0 µs after tracing began"));
    assert_eq!(page.bytes("#held data"), [0; 0]);
    let whole = page.eval("vramtrace.view.to - vramtrace.view.from").as_f64().unwrap();
    page.browser.press("+").unwrap();
    assert_eq!(page.eval("vramtrace.view.to - vramtrace.view.from").as_f64().unwrap(), whole / 2.0);
    page.browser.press("0").unwrap();
    assert_eq!(page.eval("vramtrace.view.to - vramtrace.view.from").as_f64().unwrap(), whole);
    // The browser draws when it comes to it: a drag that begins before the last change is drawn finds no track below it.
    let mut part = 1.0;
    for _ in 0..5 {
        page.eval("new Promise(done => setTimeout(done, 300))");
        let at = page.eval("(() => { const h = document.querySelector('.hit'); h.scrollIntoView({block: 'center', behavior: 'instant'}); const b = h.getBoundingClientRect(); return [b.x + b.width * .25, b.x + b.width * .75, b.y + b.height / 2] })()");
        for (kind, x) in [("mouseMoved", 0), ("mousePressed", 0), ("mouseMoved", 1), ("mouseReleased", 1)] {
            let event = json!({"type": kind, "x": at[x], "y": at[2], "button": "left", "buttons": 1, "clickCount": 1});
            page.browser.call("Input.dispatchMouseEvent", &event).unwrap();
        }
        page.eval("new Promise(done => setTimeout(done, 300))");
        part = page.eval("vramtrace.view.to - vramtrace.view.from").as_f64().unwrap() / whole;
        if part < 1.0 {
            break;
        }
    }
    assert!((0.49..0.51).contains(&part), "half of it is in view: {part}");
    page.is_quiet();
}

#[test]
fn hostile_names_are_text_and_break_no_layout() {
    let mut page = Opened::synthetic(&Server { ranks: 3, events: 300, hostile: true, dies: true }).unwrap();
    agrees(&mut page);
    assert_eq!(page.eval("typeof window.owned"), "undefined");
    assert_eq!(page.eval("document.scripts.length"), 2);
    assert_eq!(page.eval("document.querySelectorAll('img, iframe, object, embed').length"), 0);
    let text = page.eval("document.body.innerText").as_str().unwrap().to_owned();
    assert!(text.contains("gpu17") && text.contains(HOSTILE[2]), "names are shown as they are");
    // What turns a line around is written out.
    let page_text = page.eval("document.body.textContent").as_str().unwrap().to_owned();
    assert!(!page_text.contains('\u{202e}') && page_text.contains("\\u{202e}"));
    for width in [1280, 390] {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        page.browser.call("Emulation.setDeviceMetricsOverride", &size).unwrap();
        page.eval("new Promise(done => setTimeout(done, 300))");
        let wide = page.eval("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= width, "{wide} px at {width}");
    }
    page.is_quiet();
}

#[test]
fn many_events_are_drawn_in_buckets_that_keep_the_highest() {
    let mut page = Opened::synthetic(&Server { ranks: 2, events: 8_000, hostile: false, dies: false }).unwrap();
    assert_eq!(page.eval("vramtrace.tracks.every(t => !t.exact && t.at.length <= 4100)"), true);
    agrees(&mut page);
    let least =
        page.eval("vramtrace.tracks.every(t => t.low.every((low, n) => low <= t.total[n] && t.last[n] <= t.total[n]))");
    assert_eq!(least, true);
    let note = page.text("#time-note");
    assert!(note.contains("in buckets of 500 ms") && note.contains("the most held in each"), "{note}");
    page.is_quiet();
}

#[test]
fn a_comparison_shows_what_diff_says() {
    let directory = tempfile::tempdir().unwrap();
    let [base, other] = ["base.vrt", "other.vrt"].map(|name| directory.path().join(name));
    synthetic::write(&base, &Server { ranks: 2, events: 100, hostile: false, dies: false }).unwrap();
    synthetic::write(&other, &Server { ranks: 2, events: 300, hostile: true, dies: false }).unwrap();
    let [base, other] = [base, other].map(|path| path.to_string_lossy().into_owned());
    let diff: Value = serde_json::from_str(&run(&["diff", &base, &other, "--format", "json"]).unwrap()).unwrap();
    let mut page = Opened::with(directory, Path::new(&other), &["--vs", &base]).unwrap();
    assert_eq!(page.bytes("#delta data"), [diff["total_delta_bytes"].as_i64().unwrap()]);
    let ranks = diff["ranks"].as_array().unwrap();
    let mut totals: Vec<i64> = ranks
        .iter()
        .filter(|r| r["base_bytes"] != 0 || r["other_bytes"] != 0)
        .map(|r| r["delta_bytes"].as_i64().unwrap())
        .collect();
    totals.push(totals.iter().sum());
    assert_eq!(page.bytes("#changes tr[data-row='total'] data"), totals);
    let listed = page.bytes("#stack-changes td:nth-child(3) data");
    let stacks = diff["stacks"].as_array().unwrap();
    assert!(!listed.is_empty());
    let mut root = |value: &str| {
        page.eval(&format!("{{ const s = document.querySelector('#flame select'); s.value = '{value}'; s.dispatchEvent(new Event('change')) }}"));
        page.eval("Number(document.querySelector('.frame')?.dataset.bytes ?? 0)").as_i64().unwrap()
    };
    assert_eq!(root("more") - root("less"), diff["total_delta_bytes"].as_i64().unwrap());
    assert_eq!(listed, stacks.iter().take(40).map(|s| s["delta_bytes"].as_i64().unwrap()).collect::<Vec<_>>());
    page.is_quiet();
}

#[test]
fn it_can_be_used_without_eyes_or_mouse() {
    let mut page = Opened::synthetic(&TP8).unwrap();
    let tree = page.browser.call("Accessibility.getFullAXTree", &json!({})).unwrap();
    let nodes: Vec<(String, String)> = tree["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["ignored"] != true)
        .map(|node| {
            [&node["role"], &node["name"]].map(|field| field["value"].as_str().unwrap_or_default().to_owned()).into()
        })
        .collect();
    for landmark in ["banner", "navigation", "main", "contentinfo"] {
        assert_eq!(nodes.iter().filter(|(role, _)| role == landmark).count(), 1, "{landmark}");
    }
    const NAMED: [&str; 12] = [
        "button",
        "link",
        "combobox",
        "slider",
        "searchbox",
        "checkbox",
        "table",
        "tree",
        "treeitem",
        "image",
        "heading",
        "region",
    ];
    for (role, name) in nodes.iter().filter(|(role, _)| NAMED.contains(&role.as_str())) {
        assert!(!name.trim().is_empty(), "a {role} has no name");
    }
    let levels =
        page.eval("[...document.querySelectorAll('h1, h2, h3')].filter(h => h.offsetParent).map(h => +h.tagName[1])");
    let levels: Vec<i64> = levels.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
    assert!(levels.first() == Some(&1) && levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
    page.browser.press("Tab").unwrap();
    assert_eq!(page.eval("document.activeElement.className"), "skip", "the first stop leads to the report");
}

/// Contrast of text by WCAG 2.2 (relative luminance), in both colour schemes.
#[test]
fn text_can_be_read_in_light_and_dark() {
    let mut page = Opened::trace(&recorded("h200-torch-routes.vrt")).unwrap();
    let contrast = "(() => { const c = s => { const e = document.createElement('i'); e.style.color = s; document.body.append(e); \
        const v = getComputedStyle(e).color.match(/[\\d.]+/g).slice(0, 3).map(n => n / 255).map(n => n <= .04045 ? n / 12.92 : ((n + .055) / 1.055) ** 2.4); \
        e.remove(); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; }; \
        const r = (a, b) => { const [x, y] = [c(`var(--${a})`), c(`var(--${b})`)].sort((p, q) => q - p); return (x + .05) / (y + .05); }; \
        return [['ink', 'bg'], ['ink', 'card'], ['soft', 'bg'], ['soft', 'card'], ['soft', 'hover'], ['accent', 'card'], ['bad', 'card'], ['ink', 'bad-bg'], \
        ['ink', 'warn-bg'], ['frame-ink', 'python'], ['frame-ink', 'native'], ['frame-ink', 'call'], ['frame-ink', 'plumbing']].map(([a, b]) => [a, b, r(a, b)]); })()";
    for scheme in ["light", "dark"] {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        page.browser.call("Emulation.setEmulatedMedia", &media).unwrap();
        for pair in page.eval(contrast).as_array().unwrap() {
            assert!(pair[2].as_f64().unwrap() >= 4.5, "{scheme}: {pair}");
        }
    }
}

/// The other tests' silence means something.
#[test]
fn the_browser_hears_what_a_page_says_and_asks_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("loud.html");
    std::fs::write(&path, "<script>console.error('x'); throw 1</script><img src='http://127.0.0.1:9/x.png'>").unwrap();
    let mut browser = Browser::start().unwrap();
    browser.open(&path).unwrap();
    let complaints = browser.complaints().unwrap();
    for method in ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.requestWillBeSent"] {
        assert!(complaints.iter().any(|event| event["method"] == method), "{method}: {complaints:?}");
    }
}

#[test]
fn it_prints() {
    let mut page = Opened::synthetic(&TP8).unwrap();
    let printed = page.browser.call("Page.printToPDF", &json!({"printBackground": true})).unwrap();
    assert!(printed["data"].as_str().unwrap().len() > 50_000);
    page.is_quiet();
}
