use super::*;
use crate::report::testbook::{TestBook, any_book};
use crate::report::text::tests::{exact_run, out_of_memory};
use proptest::prelude::*;
use serde_json::Value;

const HOSTILE: &str = "</script><script>alert(1)</script>\u{202e}{{script}}<!--";

fn page(t: &TestBook, name: &str) -> String {
    let axes = Axes::new(&t.book);
    render(Shown { axes: &axes, name }, None, At::End).unwrap()
}

/// What stands between two marks.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    page.split_once(from).unwrap().1.split_once(to).unwrap().0
}

fn data(page: &str) -> Value {
    serde_json::from_str(between(page, r#"id="data">"#, "</script>")).unwrap()
}

#[test]
fn the_policy_lets_the_pages_own_script_and_style_run_and_nothing_else() {
    let page = page(&out_of_memory(), "server.vrt");
    let policy = between(&page, r#"Content-Security-Policy" content=""#, "\"");
    let script = between(&page, r#"<script type="module">"#, "</script>");
    let style = between(&page, "<style>", "</style>");
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    assert!(policy.contains(&format!("script-src '{}';", hash(script))), "{policy}");
    assert!(policy.contains(&format!("style-src '{}';", hash(style))), "{policy}");
    // The digest of nothing, as every browser has it.
    assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"] {
        let allowed = if sink == "http://" { 1 } else { 0 }; // the name of SVG
        assert_eq!(page.matches(sink).count(), allowed, "{sink}");
    }
}

#[test]
fn hostile_names_stay_text() {
    let mut t = out_of_memory();
    let plain = page(&t, "server.vrt");
    t.book.processes[0].title = HOSTILE.to_owned();
    t.book.header.command = vec![HOSTILE.to_owned()];
    t.book.frames.iter_mut().for_each(|frame| frame.function = HOSTILE.to_owned());
    t.book.allocations.iter_mut().for_each(|row| row.calls = [HOSTILE.to_owned()].into());
    t.book.losses.insert(HOSTILE.to_owned(), 1);
    let page = page(&t, HOSTILE);
    for mark in ["<script", "</script", "<!--", "<style"] {
        assert_eq!(page.matches(mark).count(), plain.matches(mark).count(), "{mark}");
    }
    assert!(!page.contains('\u{202e}'));
    assert_eq!(data(&page)["name"], HOSTILE.replace('\u{202e}', "\\u{202e}"));
}

#[test]
fn without_data_a_page_is_small() {
    let page = page(&exact_run(), "server.vrt");
    assert!(page.len() < 110_000, "{} bytes", page.len());
}

#[test]
fn what_is_left_out_is_counted() {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(1, "a"), t.gpu(0));
    for pid in 2..500 {
        t.process(pid, "idle");
    }
    t.allocate(process, gpu, 5);
    (0..300).for_each(|size| t.fail(process, gpu, size));
    let data = data(&page(&t, "x"));
    let report = &data["report"];
    assert_eq!(report["processes"].as_array().unwrap().len(), 1);
    assert_eq!((&report["left_out"]["idle_processes"], &report["left_out"]["failures"]), (&498.into(), &100.into()));
    assert_eq!(report["failures"][199]["requested_bytes"], 299, "the last one is what the process died of");
}

#[test]
fn a_comparison_is_the_one_of_diff() {
    let (base, other) = (exact_run(), out_of_memory());
    let axes = [&base, &other].map(|t| Axes::new(&t.book));
    let shown = |n: usize, name| Shown { axes: &axes[n], name };
    let page = render(shown(1, "other.vrt"), Some(shown(0, "base.vrt")), At::End).unwrap();
    let runs = [(0, "base.vrt"), (1, "other.vrt")].map(|(n, name)| diff::Run { name, axes: &axes[n] });
    let expected = diff::Diff::new(&runs[0], &runs[1], &diff::Question::default()).unwrap();
    let mut shown = data(&page)["diff"].clone();
    assert_eq!(shown.as_object_mut().unwrap().remove("left_out"), Some(0.into()));
    // The flame graph of what came and went sums to the difference.
    let flame = shown.as_object_mut().unwrap().remove("flame").unwrap();
    let sum =
        |column: usize| flame["rows"].as_array().unwrap().iter().map(|row| row[column].as_i64().unwrap()).sum::<i64>();
    assert_eq!(sum(4) - sum(5), expected.bytes.delta_bytes);
    // Read back from text as the page's own was.
    assert_eq!(shown, serde_json::from_str::<Value>(&diff::json::render(&expected)).unwrap());
}

#[test]
fn a_moment_that_is_not_there_is_named_with_its_trace() {
    let t = exact_run();
    let axes = Axes::new(&t.book);
    let error = render(Shown { axes: &axes, name: "server.vrt" }, None, At::Oom).unwrap_err().to_string();
    assert!(error.starts_with("server.vrt: no call failed for want of memory"), "{error}");
}

proptest! {
    #[test]
    fn any_ledger_gives_one_page(book in any_book()) {
        let axes = Axes::new(&book);
        let render = || render(Shown { axes: &axes, name: "x.vrt" }, None, At::End).unwrap();
        let page = render();
        prop_assert_eq!(&page, &render());
        let report = crate::report::Summary::of(&axes, &crate::report::Query::suiting(&axes, At::End)).unwrap();
        let data = data(&page);
        prop_assert_eq!(&data["report"]["total"], &serde_json::to_value(report.total).unwrap());
    }
}
