//! Secrets never reach a trace: arguments and variables are cleaned before they are kept.
//!
//! Cleaned too much is harmless, too little is not: what a name or a shape gives away as a secret is replaced by `***`,
//! quoted, nested or not. Counts of language-model tokens (`--max-total-tokens 4096`) stay, for they are configuration.

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

/// What a secret is replaced by.
pub(super) const HIDDEN: &str = "***";

/// A name that holds one of these names a secret.
const STEMS: &str = "token|secret|passw|passphrase|key|credential|auth|cookie|bearer";

static NAME: LazyLock<Regex> = LazyLock::new(|| regex(&format!("(?i){STEMS}")));
/// Names of tokenizers, taken out of a name before it is judged.
static TOKENIZER: LazyLock<Regex> = LazyLock::new(|| regex("(?i)(de)?tokeni[sz](er|ation)s?"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\d{1,9}|\d{1,9}\.\d{1,9}|(?i:true|false|null|none))$"));

/// `name=value`, `"name": "value"`, `Name: Bearer value`, `--name value`, inside a longer text. A value is quoted, or
/// quoted with backslashes (JSON in JSON), or ends at white space or the next parameter of a URL.
static PAIR: LazyLock<Regex> = LazyLock::new(|| {
    let value =
        r#"(?:(?:bearer|basic|token)\s+)?(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\+["'][^"'\\]*|[\\"']*[^\s&"'\\][^\s&"']*)"#;
    regex(&format!(
        r#"(?xi) (?<name> [\w.-]*(?:{STEMS})[\w.-]* ) (?<between> \\*["']?\ *[:=]\s* )
                   (?: (?<count> \d+(?:\.\d+)? | true | false | null | none ) (?<end> [\s,;&}}\])] | $ ) | (?<value> {value} ) )
               | (?<option> --?[\w-]*(?:{STEMS})[\w-]* ) (?<space> \s+ ) (?<next> "[^"]*"|'[^']*'|[^\s-]\S* )"#
    ))
});

/// Shapes that are secrets wherever they stand, and what is left of them.
static SHAPES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let table = [
        // User information of a URL; a password may itself hold `@`, and unescaped `/`.
        (r"(://)[^\s@/]*:\S*@", "${1}***@"),
        (r"(://)[^\s/?#]*@", "${1}***@"),
        (r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}", "${1} ***"),
        // Hugging Face, OpenAI and kin, GitHub, GitLab, NVIDIA, Slack, Google, npm, PyPI.
        (r"\bhf_[A-Za-z0-9]{8,}", HIDDEN),
        (r"\bsk-[\w-]{8,}", HIDDEN),
        (r"\bgh[pousr]_\w{16,}", HIDDEN),
        (r"\bgithub_pat_\w{16,}", HIDDEN),
        (r"\bglpat-[\w-]{16,}", HIDDEN),
        (r"\bnvapi-[\w-]{16,}", HIDDEN),
        (r"\bxox[a-z]-[\w-]{8,}", HIDDEN),
        (r"\bAIza[\w-]{30,}", HIDDEN),
        (r"\b(npm_|pypi-)[\w-]{16,}", HIDDEN),
        // AWS access key ids (IAM identifiers, "unique prefixes").
        (r"\b(AKIA|ASIA)[A-Z0-9]{16}", HIDDEN),
        // JSON web tokens: base64 of `{"`.
        (r"\beyJ[\w-]{8,}(\.[\w-]*){1,4}", HIDDEN),
        (r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY.*", HIDDEN),
    ];
    table.into_iter().map(|(shape, rest)| (regex(shape), rest)).collect()
});

#[expect(clippy::expect_used, reason = "constant patterns: a test compiles every one")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// True when a variable or option of this name and value holds a secret.
fn is_secret(name: &str, value: &str) -> bool {
    let name = TOKENIZER.replace_all(name, "");
    let count = name.to_ascii_lowercase().contains("token") && NUMBER.is_match(value);
    NAME.is_match(&name) && !count
}

/// A text without the secrets in it.
pub(crate) fn text(text: &str) -> String {
    let hide = |found: &Captures<'_>| {
        let part = |name| found.name(name).map_or("", |part| part.as_str());
        // One alternative matched: the other's parts are empty.
        let name = format!("{}{}", part("name"), part("option"));
        let value = format!("{}{}{}", part("count"), part("value"), part("next"));
        let value = if is_secret(&name, &value) { HIDDEN } else { &value };
        format!("{name}{}{}{value}{}", part("between"), part("space"), part("end"))
    };
    let mut cleaned = PAIR.replace_all(text, hide);
    for (shape, rest) in SHAPES.iter() {
        if let Cow::Owned(text) = shape.replace_all(&cleaned, *rest) {
            cleaned = Cow::Owned(text);
        }
    }
    cleaned.into_owned()
}

/// Value of a variable; `None` when its name says that it is a secret.
pub(super) fn variable(name: &str, value: &str) -> Option<String> {
    (!is_secret(name, value)).then(|| text(value))
}

/// Arguments without secrets: values of options and assignments that name one, and whatever looks like one.
pub(super) fn arguments(argv: &[String]) -> Vec<String> {
    let mut cleaned = Vec::with_capacity(argv.len());
    let mut option: Option<&str> = None;
    for argument in argv {
        let is_option = argument.starts_with("--") && argument[2..].starts_with(|c: char| c.is_ascii_alphabetic());
        if let Some(name) = option.filter(|name| !is_option && is_secret(name, argument)) {
            cleaned.push(HIDDEN.to_owned());
            // `--api-keys A B C`: an option in the plural takes several.
            option = name.to_ascii_lowercase().ends_with('s').then_some(name);
            continue;
        }
        option = argument.starts_with('-').then_some(argument.as_str());
        cleaned.push(match argument.split_once('=') {
            Some((name, value)) if is_name(name) && is_secret(name, value) => format!("{name}={HIDDEN}"),
            _ => text(argument),
        });
    }
    cleaned
}

fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(NAME.is_match("API_KEY") && !SHAPES.is_empty() && !NUMBER.is_match("x") && PAIR.is_match("key=1"));
    }

    #[test]
    fn a_servers_configuration_stays_as_it_is() {
        let line = "python3 -m sglang.launch_server --model-path /models/Qwen3-8B --tp 8 --max-total-tokens 4096 \
            --tokenizer-path /models/t --tokenizer-mode auto --skip-tokenizer-init --mem-fraction-static 0.55 \
            --speculative-num-draft-tokens 4 --host=0.0.0.0 --port 30000 --dist-init-addr tcp://10.0.0.1:5000 \
            --json-model-override-args {\"max_new_tokens\":128,\"rope_scaling\":{\"factor\":4.0}}";
        assert_eq!(arguments(&words(line)), words(line));
        assert_eq!(variable("TOKENIZERS_PARALLELISM", "false").as_deref(), Some("false"));
        assert_eq!(variable("SGLANG_MAX_NEW_TOKENS", "128").as_deref(), Some("128"));
        assert_eq!(variable("LD_LIBRARY_PATH", "/usr/local/cuda/lib64").as_deref(), Some("/usr/local/cuda/lib64"));
    }

    #[test]
    fn named_secrets_are_hidden_in_every_form() {
        let hidden = |argv: &[&str]| arguments(&argv.iter().map(|&a| a.to_owned()).collect::<Vec<_>>()).join(" ");
        assert_eq!(hidden(&["vllm", "--api-key", "abc", "--tp", "2"]), "vllm --api-key *** --tp 2");
        assert_eq!(hidden(&["vllm", "--api-keys", "abc", "-def", "--tp"]), "vllm --api-keys *** *** --tp");
        assert_eq!(hidden(&["--api-key=a b&c"]), "--api-key=***");
        assert_eq!(hidden(&["env", "HF_TOKEN=abc", "run"]), "env HF_TOKEN=*** run");
        assert_eq!(hidden(&["--enable-auth", "--tp", "2"]), "--enable-auth --tp 2");
        assert_eq!(
            hidden(&["sh", "-c", "exec env HF_TOKEN=abc vllm --api-key 'a b' x"]),
            "sh -c exec env HF_TOKEN=*** vllm --api-key *** x"
        );
        assert_eq!(hidden(&["f(max_tokens=128,hf_token=abc)"]), "f(max_tokens=128,hf_token=***");
        assert_eq!(hidden(&["token=128abc"]), "token=***");
        assert_eq!(hidden(&["x --password=\"never closed"]), "x --password=*** closed");
        assert_eq!(hidden(&["{\"hf_token\": \"a\\\"b\", \"tp\": 2}"]), "{\"hf_token\": ***, \"tp\": 2}");
        assert_eq!(hidden(&["Authorization: Bearer abc"]), "Authorization: ***");
        assert_eq!(hidden(&["redis://me:p@ss/word@host/0"]), "redis://***@host/0");
        assert_eq!(hidden(&["https://me@host/path@v1"]), "https://***@host/path@v1");
        assert_eq!(hidden(&["https://host/a?x=1&access_token=abc&y=2"]), "https://host/a?x=1&access_token=***&y=2");
        assert_eq!(variable("NCCL_SECRET", "abc"), None);
    }

    /// A secret that no pattern can know by its shape.
    fn plain() -> impl Strategy<Value = String> {
        "[A-Za-z][A-Za-z0-9]{11,30}"
    }

    fn known() -> impl Strategy<Value = String> {
        prop_oneof![
            "hf_[A-Za-z0-9]{34}",
            "sk-(proj-)?[A-Za-z0-9]{20,48}",
            "gh[pousr]_[A-Za-z0-9]{36}",
            "github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
            "(AKIA|ASIA)[A-Z0-9]{16}",
            "eyJ[A-Za-z0-9_-]{20}\\.eyJ[A-Za-z0-9_-]{20}\\.[A-Za-z0-9_-]{20}",
            "nvapi-[A-Za-z0-9_-]{64}",
            "glpat-[A-Za-z0-9_-]{20}",
        ]
    }

    fn secret_name() -> impl Strategy<Value = String> {
        let stem = prop::sample::select(vec![
            "token",
            "secret",
            "password",
            "passwd",
            "api_key",
            "key",
            "credentials",
            "auth",
            "cookie",
            "passphrase",
        ]);
        ("[a-z]{0,6}_?", stem, "(_[a-z]{1,4})?", any::<bool>()).prop_map(|(before, stem, after, upper)| {
            let name = format!("{before}{stem}{after}");
            if upper { name.to_uppercase() } else { name }
        })
    }

    proptest! {
        #[test]
        fn planted_secrets_never_survive(
            name in secret_name(), secret in plain(), known in known(), around in "[a-z ./:=-]{0,12}", form in 0..12_usize,
        ) {
            let dashed = name.replace('_', "-");
            let planted = match form {
                0 => vec![format!("--{dashed}"), secret.clone()],
                1 => vec![format!("--{dashed}={secret}")],
                2 => vec![format!("{name}={secret}")],
                3 => vec![format!("{{\"{name}\": \"{secret}\"}}")],
                4 => vec![format!("{{\"x\": \"{{\\\"{name}\\\": \\\"{secret}\\\"}}\"}}")],
                5 => vec![format!("{around} https://user:{secret}@host/{around}")],
                6 => vec![format!("https://{secret}@host/")],
                7 => vec![format!("https://host/p?a=1&{name}={secret}&b=2")],
                8 => vec!["-H".into(), format!("Authorization: Bearer {secret}")],
                9 => vec![format!("python --{dashed} {secret} --tp 8")],
                10 => vec![format!("{name}: '{secret}'")],
                _ => vec![format!("run(\"{name}='{secret}'\")")],
            };
            let mut argv = vec!["server".to_owned(), around.clone()];
            argv.extend(planted);
            argv.extend([format!("{around} {known}"), format!("x={known}"), format!("[\"{known}\"]")]);
            let cleaned = arguments(&argv);
            prop_assert!(!cleaned.iter().any(|argument| argument.contains(&secret)), "{cleaned:?}");
            prop_assert!(!cleaned.iter().any(|argument| argument.contains(&known)), "{cleaned:?}");
            prop_assert_eq!(cleaned.len(), argv.len());
            prop_assert_eq!(variable(&name, &secret), None);
            prop_assert!(variable("CUDA_X", &known).is_none_or(|value| !value.contains(&known)));
        }

        #[test]
        fn any_text_is_taken(argv in prop::collection::vec(any::<String>(), 0..6)) {
            prop_assert_eq!(arguments(&argv).len(), argv.len());
        }
    }
}
