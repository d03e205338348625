use proptest::prelude::*;

use super::text::{FORMAT, File, RuleText};
use super::*;
use crate::ledger::Kind;

#[test]
fn the_standard_rules_are_rules() {
    let rules = Rules::standard();
    assert!(rules.all().len() > 90, "{} rules", rules.all().len());
    assert_eq!(rules.covers().len(), BUILT_IN.len());
    let (mut phases, roots) = (rules.phases().to_vec(), phase::PHASES);
    for root in roots {
        assert!(phases.iter().any(|phase| phase == root), "no rule names {root}");
    }
    assert!(phases.is_sorted_by_key(|phase| phase::order(phase)));
    phases.sort_unstable();
    phases.dedup();
    assert_eq!(phases.len(), rules.phases().len());
    for role in Role::ALL {
        assert!(rules.all().iter().any(|rule| rule.says == Says::Role(role)), "no rule names {role:?}");
    }
}

/// What the standard rules say, in order: a change is seen in review.
#[test]
fn listing() {
    let rules = Rules::standard();
    let line = |rule: &Rule| {
        let versions = rule.versions.as_ref().map(|range| format!(" [{range}]")).unwrap_or_default();
        format!("{}/{}{versions}: {}\n", rule.file, rule.name, rules.says(rule))
    };
    insta::assert_snapshot!(rules.all().iter().map(line).collect::<String>());
}

fn error(text: &str) -> String {
    Rules::merge(&[("my.toml", text)]).unwrap_err().to_string()
}

#[test]
fn errors_name_file_rule_and_fix() {
    let rule = |body: &str| format!("format = 1\n[[rule]]\nname = \"mine\"\n{body}\n");
    let cases = [
        "",
        "format = 2",
        "format = 1\nrules = []",
        "format = 1\n[[rule]]\nphase = \"weights\"\nlog = 'x'",
        "format = 1\n[[rule]\n",
        &rule(""),
        &rule("phase = \"weights\"\nrole = \"draft\"\nlog = 'x'"),
        &rule("phase = \"weights\""),
        &rule("phase = \"training\"\nlog = 'x'"),
        &rule("role = \"master\"\ntitle = 'x'"),
        &rule("owner = \"My Lib\"\nnative = [\"libmy.so\"]"),
        &rule("phase = \"weights\"\nlog = '('"),
        &rule("phase = \"weights\"\nlog = '(?:a{1000}){1000}'"),
        &rule("phase = \"weights\"\npython = [\"/abs.py: f\"]"),
        &rule("phase = \"weights\"\npython = [\"a.py: f\"]\ncalls = [\"cuMemAlloc\"]"),
        &rule("phase = \"weights\"\npython = [\"a.py: f\"]\ntree = true"),
        &rule("phase = \"weights\"\nlog = 'x'\nfallback = true"),
        &rule("role = \"draft\"\npython = [\"a.py: f\"]\nduring = [\"warmup\"]"),
        &rule("phase = \"weights\"\ncalls = [\"x\"]\nfallback = true"),
        &rule("owner = \"x\"\nlog = 'x'"),
        &rule("phase = \"weights\"\nnative = [\"libx.so*\"]"),
        &rule("phase = \"weights\"\nlog = 'x'\nversions = \">=1\""),
        &rule("phase = \"weights\"\nkinds = [\"memory\"]"),
        &(rule("phase = \"weights\"\nlog = 'x'") + "[[rule]]\nname = \"mine\"\nphase = \"weights\"\nlog = 'y'\n"),
        "format = 1\npackage = \"x\"\ncovers = \"all\"",
    ];
    let errors: Vec<_> = cases.iter().map(|text| error(text)).collect();
    assert!(errors.iter().all(|error| error.starts_with("my.toml: ") && !error.contains('\n')), "{errors:#?}");
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Rules::with_files(&["/nonexistent/my.toml"]).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/my.toml: cannot be read: No such file"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my.toml");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(Rules::with_files(&[&path]).unwrap_err().to_string().contains("UTF-8"));
    std::fs::write(&path, vec![b'#'; MAX_FILE as usize + 1]).unwrap();
    assert!(Rules::with_files(&[&path]).unwrap_err().to_string().contains("larger"));
    std::fs::write(&path, "format = 1\n[[rule]]\nname = \"mine\"\nphase = \"serving.mine\"\nlog = '^mine'\n").unwrap();
    let rules = Rules::with_files(&[&path]).unwrap();
    assert_eq!((rules.all()[0].name.as_str(), rules.phase_of_line("mine")), ("mine", Some("serving.mine")));
}

#[test]
fn a_users_rules_go_first() {
    let mine = "format = 1\n[[rule]]\nname = \"mine\"\nphase = \"serving.mine\"\nlog = '^Load weight begin'\n";
    let rules = Rules::merge(&[("my.toml", mine)]).unwrap();
    assert_eq!(rules.phase_of_line("Load weight begin. avail mem=1.00 GB"), Some("serving.mine"));
    assert_eq!(rules.all().len(), Rules::standard().all().len() + 1);
    // The order of phases is that of a server's life, whoever names them.
    let at = |name: &str| rules.phases().iter().position(|phase| phase == name).unwrap();
    assert!(at("warmup") < at("serving") && at("serving") < at("serving.mine") && at("serving.mine") < at("shutdown"));
}

#[test]
fn a_line_is_of_the_first_rule_that_fits() {
    let rules = Rules::standard();
    let name = |line: &str| rules.of_line(line).0.map(|log| rules.rule(log.rule).name.as_str());
    assert_eq!(name("Capture target prefill CUDA graph end. elapsed=2.81 s"), Some("log-prefill-graphs-end"));
    assert_eq!(name("Capture piecewise CUDA graph end. Time"), Some("log-graphs-end"));
    assert_eq!(name("Capture cuda graph begin. This can take up to several minutes."), Some("log-decode-graphs-begin"));
    assert_eq!(name("Capture target verify CUDA graph begin. backend=full"), Some("log-decode-graphs-begin"));
    assert_eq!(name("Capture draft decode CUDA graph begin."), Some("log-draft-graphs-begin"));
    assert_eq!(name("Capture draft cuda graph begin. This can"), Some("log-draft-graphs-begin"));
    assert_eq!(name("Capture draft prefill CUDA graph begin. backend"), Some("log-prefill-graphs-begin"));
    let (begins, ends) = rules.of_line("FlashInfer autotune completed.");
    assert!(begins.is_none());
    assert_eq!(ends.iter().map(|rule| rules.rule(*rule).name.as_str()).collect::<Vec<_>>(), ["log-autotune"]);
}

fn rule_text() -> impl Strategy<Value = RuleText> {
    let phase = prop::sample::select(vec!["weights", "cuda_graph.prefill", "serving"]).prop_map(str::to_owned);
    let frame = prop::sample::select(vec!["a/b.py: f g*", "b.py", "c/*.py: C.m"]).prop_map(str::to_owned);
    let frames = prop::collection::vec(frame, 1..3);
    (phase, frames, any::<(bool, bool)>(), "[a-z]{1,6}", 0..4_u8).prop_map(|(phase, frames, (one, two), word, form)| {
        let empty = RuleText::default();
        match form {
            0 => RuleText { phase: Some(phase), python: frames, fallback: one, ..empty },
            1 => RuleText { phase: Some(phase.clone()), calls: vec![word], capture: one, during: vec![phase], ..empty },
            2 => RuleText { phase: Some(phase), until: one.then(|| word.clone()), log: Some(word), tree: two, ..empty },
            _ => RuleText { owner: Some(word), native: vec!["lib*.so".to_owned()], kinds: vec![Kind::Vmm], ..empty },
        }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(texts in prop::collection::vec(rule_text(), 0..6)) {
        let name = |(n, text)| RuleText { name: format!("rule-{n}"), ..text };
        let file = File { format: FORMAT, rules: texts.into_iter().enumerate().map(name).collect(), ..File::default() };
        let written = toml::to_string(&file).unwrap();
        prop_assert_eq!(toml::from_str::<File>(&written).unwrap(), file.clone());
        let rules = Rules::merge(&[("my.toml", &written)]).unwrap();
        for (rule, text) in rules.all().iter().zip(&file.rules) {
            prop_assert_eq!(&rule.name, &text.name);
            prop_assert_eq!(rule.python.iter().map(ToString::to_string).collect::<Vec<_>>(), text.python.clone());
            let said = [&text.phase, &text.owner].into_iter().flatten().next().unwrap();
            prop_assert!(rules.says(rule).ends_with(said.as_str()));
        }
        // The same text gives the same rules.
        let again = Rules::merge(&[("my.toml", &written)]).unwrap();
        prop_assert_eq!(format!("{:?}", again.all()), format!("{:?}", rules.all()));
    }

    #[test]
    fn any_file_is_survived(text: String, field in "[a-z]{1,8}", value in "[\\PC]{0,12}") {
        let _ = Rules::merge(&[("my.toml", &text)]);
        let _ = Rules::merge(&[("my.toml", &format!("format = 1\n[[rule]]\nname = \"x\"\n{field} = '{value}'\n"))]);
    }
}
