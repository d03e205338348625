//! Lines that servers write: their prefix, what they say of memory and configuration, and which are worth keeping.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::rules::Rules;
use crate::attach::secret;
use crate::text::prefix;

/// Longest line kept, bytes: `server_args=` takes some ten thousand.
pub const MAX_LINE: usize = 64 << 10;

/// Put at the end of a line that is not whole.
pub(crate) const CUT: char = '…';

/// Parts of lines that state memory, configuration or a failure, beside those that rules name.
const FACTS: [&str; 35] = [
    "avail mem=",
    "available_gpu_mem=",
    "mem usage=",
    "server_args=",
    "non-default args: ",
    "LLM engine (v",
    "Cache is allocated",
    "SWAKVPool mem usage",
    "Available KV cache memory",
    "GPU KV cache size",
    "# GPU blocks:",
    "Memory profiling takes",
    "Free memory on device",
    "memory capacity is unbalanced",
    "Not enough memory",
    "no GPU memory for the KV cache",
    "out of memory",
    "No available memory for the cache blocks",
    "OutOfMemoryError",
    "Failed to CUDA",
    "CUDA error",
    "NCCL WARN",
    "NCCL error",
    "is using nccl==",
    "ustom allreduce is disabled",
    "Setup Custom allreduce failed",
    "All Reduce config:",
    "symmetric memory pool",
    "cuda graph addresses",
    "Using KV cache dtype",
    "VA upper bound",
    "Post-capture KV sizing",
    "host memory",
    "Estimated CUDA graph memory",
    "Scheduler hit an exception",
];

/// A parallel dimension and the place in it: `("TP", 3)`.
pub type Coordinate = (String, u32);

/// A line, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line<'a> {
    /// What the prefix says of the rank: `[("DP", 0), ("TP", 3)]`.
    pub rank: Vec<Coordinate>,
    /// What follows the prefix.
    pub message: &'a str,
}

/// `[2026-11-29 15:12:32 TP0] `, of `SGLang`'s `configure_logger`.
static SGLANG: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?(?P<rank>(?: [A-Z_]{2,8}\d{1,6})*)\] "));
/// `(Worker_TP0 pid=7) INFO 03-08 16:44:28 [gpu_worker.py:456] `, of vLLM's `_FORMAT`; the process may be missing.
static VLLM: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:\((?P<rank>[^()]{1,80}) pid=\d+\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]]{1,120}\] |[\w.]{1,80}:\d+\] )",
    )
});
/// A dimension in a title or prefix, with the names of both servers.
static COORDINATE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:^|[_ ])(?P<dim>DP|PP|PCP|DCP|ATTN_CP|CP|MOE_DP|TP|EP)(?P<n>\d{1,6})"));
/// `(VllmWorker rank=3 pid=7)`, of vLLM before 0.9.
static OLD_RANK: LazyLock<Regex> = LazyLock::new(|| regex(r"\brank=(\d{1,6})\b"));
static MEMORY: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b(?:avail mem|available_gpu_mem)=(?P<whole>\d{1,9})\.(?P<part>\d\d) GB"));

#[expect(clippy::expect_used, reason = "constant patterns: a test compiles every one")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// Takes a line apart. One without a known prefix is all message.
#[must_use]
pub fn parse(line: &str) -> Line<'_> {
    let prefix = SGLANG.captures(line).or_else(|| VLLM.captures(line));
    let Some(prefix) = prefix else { return Line { rank: Vec::new(), message: line } };
    let of_rank = prefix.name("rank").map_or("", |rank| rank.as_str());
    let mut rank = coordinates(of_rank);
    if let (true, Some(old)) = (rank.is_empty(), OLD_RANK.captures(of_rank)) {
        rank.extend(old[1].parse().map(|n| ("TP".to_owned(), n)));
    }
    Line { rank, message: &line[prefix[0].len()..] }
}

/// Sequences that colour a terminal's text (ECMA-48 §5.4): vLLM colours its prefix.
static COLOURS: LazyLock<Regex> = LazyLock::new(|| regex(r"\x1b\[[0-?]*[ -/]*[@-~]"));

/// A line without its colours, as rules match it.
#[must_use]
pub fn plain(line: &str) -> Cow<'_, str> {
    COLOURS.replace_all(line, "")
}

/// The pieces of a line that a progress bar wrote over and over.
pub fn pieces(line: &str) -> impl Iterator<Item = &str> {
    line.split('\r').map(str::trim_end).filter(|piece| !piece.is_empty())
}

/// Places in parallel dimensions that a title's or a prefix's end names, in its order: `_DP0_TP3`, ` DP0 TP3`.
#[must_use]
pub fn coordinates(text: &str) -> Vec<Coordinate> {
    let pair = |found: regex::Captures<'_>| Some((found["dim"].to_owned(), found["n"].parse().ok()?));
    COORDINATE.captures_iter(text).filter_map(pair).collect()
}

/// True for lines that a trace keeps under the standard rules.
#[must_use]
pub fn interesting(line: &str) -> bool {
    Rules::standard().is_interesting(line)
}

impl Rules {
    /// True for lines that a trace keeps: a rule names it, or it states memory, configuration or a failure.
    #[must_use]
    pub fn is_interesting(&self, line: &str) -> bool {
        FACTS.iter().any(|fact| line.contains(fact))
            || pieces(line).any(|piece| {
                let (begins, ends) = self.of_line(parse(piece).message);
                begins.is_some() || !ends.is_empty()
            })
    }

    /// Phase that a line begins, if a rule names it: for `--until serving`.
    #[must_use]
    pub fn phase_of_line(&self, line: &str) -> Option<&str> {
        let begun = pieces(line).filter_map(|piece| self.of_line(parse(piece).message).0);
        let rule = begun.filter(|log| !log.weak).last()?.rule;
        self.phase_of(rule).map(|phase| self.phases()[usize::from(phase)].as_str())
    }
}

/// A line as a trace keeps it: without secrets, colours and control characters, of bounded length.
#[must_use]
pub fn clean(line: &str) -> String {
    let whole = line.len() <= MAX_LINE;
    let kept = if whole { line } else { prefix(line, MAX_LINE - CUT.len_utf8()) };
    let visible: String = plain(kept).chars().filter(|c| !c.is_control() || matches!(c, '\r' | '\t')).collect();
    let text = secret::text(&visible);
    if whole { text } else { text + CUT.encode_utf8(&mut [0; 4]) }
}

/// Free memory that a line of `SGLang` prints, in hundredths of a GiB: `avail mem=139.13 GB` is 13913.
#[must_use]
pub fn printed_memory(line: &str) -> Option<u64> {
    let found = MEMORY.captures(line)?;
    Some(found["whole"].parse::<u64>().ok()? * 100 + found["part"].parse::<u64>().ok()?)
}

/// Arguments that a server prints at its start, by name: `SGLang`'s `server_args=ServerArgs(…)`, vLLM's
/// `non-default args: {…}` and `… LLM engine (v0.10.0) with config: …` (its version under `vllm_version`).
#[must_use]
pub fn arguments(line: &str) -> Option<BTreeMap<String, String>> {
    let message = parse(line).message;
    if let Some((_, text)) = message.split_once("server_args=ServerArgs(") {
        return Some(pairs(text, '='));
    }
    if let Some((_, text)) = message.split_once("non-default args: ") {
        return Some(pairs(text.trim_start_matches('{'), ':'));
    }
    let (before, text) = message.split_once(" with config: ")?;
    let (_, version) = before.split_once("LLM engine (v")?;
    let mut pairs = pairs(text, '=');
    pairs.insert("vllm_version".to_owned(), version.split(')').next().unwrap_or_default().to_owned());
    Some(pairs)
}

/// Pairs of a Python `repr`, parted by commas outside brackets and quotes, up to the bracket that closes them.
fn pairs(text: &str, between: char) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    let (mut depth, mut quote, mut escaped, mut start) = (0_u32, None, false, 0);
    for (at, c) in text.char_indices() {
        if let Some(open) = quote {
            let ends = c == open && !escaped;
            escaped = c == '\\' && !escaped;
            quote = quote.filter(|_| !ends);
            continue;
        }
        match c {
            '\'' | '"' => quote = Some(c),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                pairs.extend(pair(&text[start..at], between));
                return pairs;
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                pairs.extend(pair(&text[start..at], between));
                start = at + 1;
            }
            _ => {}
        }
    }
    // The line may have been cut short: what is left then is no whole value.
    if quote.is_none() && depth == 0 {
        pairs.extend(pair(text[start..].trim_end_matches('.'), between));
    }
    pairs
}

fn pair(text: &str, between: char) -> Option<(String, String)> {
    let (name, value) = text.split_once(between)?;
    let unquoted = |text: &str| {
        let text = text.trim();
        let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
        quoted('\'').or_else(|| quoted('"')).unwrap_or(text).to_owned()
    };
    let name = unquoted(name);
    (!name.is_empty()).then(|| (name, unquoted(value)))
}

#[cfg(test)]
mod tests;
