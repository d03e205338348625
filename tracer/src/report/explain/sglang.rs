//! `SGLang`'s budget: which readings are A and P, and what the formula leaves.

use super::figure::{Figure, Found, fraction, rest_bytes, signed, smallest_fraction};
use super::kv_budget::{Case, KvBudget};
use super::lines::{Pool, Said};
use super::readings::{Asked, Function, between, first_line};
use crate::lifecycle::{Version, logs};
use crate::report::bytes::human;
use crate::report::frames::file_name;
use crate::report::summary::since_start;

const FORMULA: &str = "rest_bytes = available_bytes - pre_load_bytes * (1 - mem_fraction_static)";

const MODEL_RUNNER: &str = "sglang/srt/model_executor/model_runner.py";
const MIXIN: &str = "sglang/srt/model_executor/model_runner_kv_cache_mixin.py";
const CONFIGURATOR: &str = "sglang/srt/mem_cache/kv_cache_configurator.py";
const BOOTSTRAP: &str = "sglang/srt/distributed/bootstrap.py";

/// Functions that read A.
const AVAILABLE: [Function; 4] = [
    (MODEL_RUNNER, "profile_max_num_token"),
    (MIXIN, "profile_max_num_token"),
    (MIXIN, "_profile_available_bytes"),
    (CONFIGURATOR, "_profile_available_bytes"),
];
/// Functions that read P, as the last but one of their readings: the last is for the check that ranks are balanced.
const PRE_LOAD: [Function; 3] = [
    (MODEL_RUNNER, "init_torch_distributed"),
    (BOOTSTRAP, "init_torch_distributed"),
    (BOOTSTRAP, "measure_pre_model_load_memory"),
];
/// Beginnings of the lines before and after the readings for P.
const INIT_BEGINS: [&str; 2] = ["Init parallel ends", "Init torch distributed begin"];
const INIT_ENDS: [&str; 2] = ["Memory baseline taken", "Init torch distributed ends"];
/// Lines after which A is read.
const LOADED: [&str; 3] =
    ["Load weight end", "LoRA adapter loading completes", "LoRA adapter loading from tensors completes"];

/// What tells the version: a function that reads, or the beginning of a line; first and last version read that has it.
enum Tells {
    Function(Function),
    Line(&'static str),
}
use Tells::{Function as F, Line};
const VERSIONS: [(Tells, &str, &str); 14] = [
    (F((MODEL_RUNNER, "profile_max_num_token")), "", "0.5.6"),
    (F((MIXIN, "profile_max_num_token")), "0.5.9", "0.5.9"),
    (F((MIXIN, "_profile_available_bytes")), "0.5.10", "0.5.15"),
    (F((CONFIGURATOR, "_profile_available_bytes")), "0.5.17", ""),
    (F((MODEL_RUNNER, "init_torch_distributed")), "", "0.5.15"),
    (F((BOOTSTRAP, "init_torch_distributed")), "0.5.17", "0.5.19"),
    (F((BOOTSTRAP, "measure_pre_model_load_memory")), "0.5.21", ""),
    (Line("Init torch distributed ends. mem usage"), "0.4.3", "0.5.6"),
    (Line("Init torch distributed ends. elapsed"), "0.5.9", "0.5.19"),
    (Line("Memory baseline taken"), "0.5.21", ""),
    (Line("KV Cache is allocated. #tokens"), "", "0.5.12"),
    (Line("KV Cache is allocated. dtype"), "0.5.13", ""),
    (Line("Capture cuda graph begin"), "", "0.5.13"),
    (Line("Capture target "), "0.5.14", ""),
];

/// What one rank's own readings and lines say.
pub(super) struct Own {
    budget: KvBudget,
    available: Option<(u64, Figure)>,
    pre_load: Option<(u64, Figure)>,
    fraction: Option<(f64, Figure)>,
    /// Ranks that take the least together, as the arguments have it.
    size: Option<u64>,
}

/// `None` for a process that sizes no KV cache of `SGLang`.
pub(super) fn own(case: &Case<'_, '_>) -> Option<Own> {
    let pool = pool_line(case.lines);
    let (available, pre_load) = (available(case), pre_load(case));
    let error = case.error().filter(|error| error.contains("mem-fraction-static"));
    let is_rank = pool.is_some() || error.is_some() || first_line(case.lines, &LOADED).is_some();
    // An error in the launcher repeats the rank's.
    if available.is_none() && pre_load.is_none() && !is_rank {
        return None;
    }
    let last = case.lines.iter().rev().find(|said| said.message.starts_with("max_total_num_tokens="));
    let printed: Option<Pool> = case.lines.iter().find_map(Said::pool);
    let size = |name| case.arguments.number(name).map_or(1, |n| n as u64);
    let sized_at = available.as_ref().map(|(t, _, _)| since_start(case.book(), *t));
    let budget = KvBudget {
        server: "sglang",
        versions: versions(case),
        formula: FORMULA,
        time_ns: sized_at,
        own_available_bytes: available.as_ref().map(|(_, bytes, _)| *bytes),
        own_pre_load_bytes: pre_load.as_ref().map(|(bytes, _)| *bytes),
        printed_pool_bytes: printed.map(|pool| pool.bytes),
        tokens: printed.map(|pool| pool.tokens),
        max_total_tokens: case.arguments.number("max_total_tokens").map(|n| n as u64),
        context_tokens: last.and_then(|said| value(said.message, "context_len")),
        error,
        ..case.budget()
    };
    Some(Own {
        budget,
        available: available.map(|(_, bytes, figure)| (bytes, figure)),
        pre_load,
        fraction: mem_fraction(case),
        size: case.arguments.root.map(|_| size("tp_size") * size("pp_size")),
    })
}

fn pool_line<'a, 'b>(lines: &'a [Said<'b>]) -> Option<&'a Said<'b>> {
    lines.iter().find(|said| said.is_of_pool())
}

/// `name=123` in a line.
fn value(message: &str, name: &str) -> Option<u64> {
    let (_, after) = message.split_once(&format!("{name}="))?;
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn mem_fraction(case: &Case<'_, '_>) -> Option<(f64, Figure)> {
    let (text, from) = case.arguments.get("mem_fraction_static")?;
    let value: f64 = text.parse().ok().filter(|value| (0.0..=1.0).contains(value))?;
    let words = match from {
        Found::CommandLine => "given on the command line",
        _ => "printed in server_args",
    };
    let text = format!("{value} {words}");
    Some((value, Figure { figure: "mem_fraction_static", bytes: None, from, text }))
}

/// The rank's A: when it was read, bytes, and evidence.
fn available(case: &Case<'_, '_>) -> Option<(u64, u64, Figure)> {
    let figure = |bytes, from, text| Figure { figure: "available", bytes: Some(bytes), from, text };
    let of_target = || case.readings.iter().filter(|asked| !asked.is_draft);
    if let Some((asked, (file, function))) = of_target().find_map(|asked| Some((asked, asked.among(&AVAILABLE)?))) {
        let text = format!("read in {function} ({})", file_name(file));
        return Some((asked.reading.t, asked.reading.free, figure(asked.reading.free, Found::ReadingByFrame, text)));
    }
    let sized = case.lines.iter().find(|said| said.is_of_pool() || said.is_no_pool()).map_or(u64::MAX, |said| said.t);
    let is_loaded = |said: &&Said<'_>| said.t <= sized && LOADED.iter().any(|begin| said.message.starts_with(begin));
    let loaded = case.lines.iter().rev().find(is_loaded)?;
    let sized = sized.min(case.pools.born.filter(|born| *born > loaded.t).unwrap_or(u64::MAX));
    if let Some(asked) = between(case.readings, loaded.t, sized).first().filter(|_| sized < u64::MAX) {
        let text = format!("first reading after the line \"{}\"", mark(loaded));
        return Some((asked.reading.t, asked.reading.free, figure(asked.reading.free, Found::ReadingByOrder, text)));
    }
    let bytes = of_centi_gib(logs::printed_memory(loaded.message)?);
    let text = format!("printed with \"{}\", to a hundredth of a GiB", mark(loaded));
    Some((loaded.t, bytes, figure(bytes, Found::Printed, text)))
}

/// The rank's P.
fn pre_load(case: &Case<'_, '_>) -> Option<(u64, Figure)> {
    let figure = |bytes, from, text| Some((bytes, Figure { figure: "pre_load", bytes: Some(bytes), from, text }));
    let by_frame: Vec<(&Asked<'_>, Function)> = (case.readings.iter().filter(|asked| !asked.is_draft))
        .filter_map(|asked| Some((asked, asked.among(&PRE_LOAD)?)))
        .collect();
    if let [.., (asked, (file, function)), _] = by_frame[..] {
        let text = format!("read in {function} ({})", file_name(file));
        return figure(asked.reading.free, Found::ReadingByFrame, text);
    }
    let ends = INIT_ENDS.iter().find_map(|end| first_line(case.lines, &[end]));
    let begins = INIT_BEGINS.iter().find_map(|begin| first_line(case.lines, &[begin]));
    if let (Some(begins), Some(ends)) = (begins, ends)
        && let [.., asked, _] = between(case.readings, begins.t, ends.t)
    {
        let text = format!("last reading but one before the line \"{}\"", mark(ends));
        return figure(asked.reading.free, Found::ReadingByOrder, text);
    }
    printed_pre_load(case, ends)
}

/// P by the figure of `Load weight begin`, and what the ledger says was taken since P was read.
fn printed_pre_load(case: &Case<'_, '_>, ends: Option<&Said<'_>>) -> Option<(u64, Figure)> {
    let begin = first_line(case.lines, &["Load weight begin"])?;
    let printed = of_centi_gib(logs::printed_memory(begin.message)?);
    let live = |t| case.book().live_at(t, |row| Some(row.gpu) == case.gpu);
    let (before, after) = ends.map_or((0, 0), |ends| (live(ends.t), live(begin.t)));
    let bytes = (printed + after).saturating_sub(before);
    let since = match after.cmp(&before) {
        std::cmp::Ordering::Greater => format!(", and {} taken since the line before", human(after - before)),
        std::cmp::Ordering::Less => format!(", less {} freed since the line before", human(before - after)),
        std::cmp::Ordering::Equal => String::new(),
    };
    let text = format!("printed with \"{}\", to a hundredth of a GiB{since}", mark(begin));
    Some((bytes, Figure { figure: "pre_load", bytes: Some(bytes), from: Found::Printed, text }))
}

fn of_centi_gib(hundredths: u64) -> u64 {
    ((u128::from(hundredths) << 30) / 100) as u64
}

/// A line up to its first figure.
fn mark<'a>(said: &Said<'a>) -> &'a str {
    said.message.split(['.', ',', '=', ':']).next().unwrap_or_default()
}

/// Range of versions by all that tells.
fn versions(case: &Case<'_, '_>) -> Option<String> {
    let is_met = |tells: &Tells| match tells {
        F(function) => case.readings.iter().any(|asked| asked.among(&[*function]).is_some()),
        Line(begin) => case.lines.iter().any(|said| said.message.starts_with(begin)),
    };
    let met = || VERSIONS.iter().filter(|(tells, _, _)| is_met(tells));
    let least: Option<Version> = met().filter_map(|(_, least, _)| least.parse().ok()).max();
    let most: Option<Version> = met().filter_map(|(_, _, most)| most.parse().ok()).min();
    let bounds = [least.map(|v| format!(">={v}")), most.map(|v| format!("<={v}"))];
    let range = bounds.into_iter().flatten().collect::<Vec<_>>().join(", ");
    (!range.is_empty()).then_some(range)
}

/// Budgets of ranks that take the least of their readings together.
pub(super) fn budgets(team: Vec<(usize, Own)>) -> Vec<(usize, KvBudget)> {
    let least = |of: fn(&Own) -> Option<&(u64, Figure)>| {
        let all = team.iter().filter_map(|(_, own)| Some((of(own)?, own)));
        all.min_by_key(|((bytes, _), _)| *bytes)
            .map(|((bytes, figure), own)| (*bytes, figure.clone(), own.budget.rank.clone()))
    };
    let available = least(|own| own.available.as_ref());
    let pre_load = least(|own| own.pre_load.as_ref());
    let seen = team.len() as u64;
    let budget = |(process, own): (usize, Own)| {
        let Own { mut budget, fraction, size, .. } = own;
        let mut evidence = Vec::new();
        let mut take = |figure: &Option<(u64, Figure, String)>, is_own: Option<u64>| {
            let (bytes, figure, rank) = figure.clone()?;
            let text = if is_own == Some(bytes) {
                figure.text
            } else {
                format!("{} by {rank}, the least of {seen} ranks", figure.text)
            };
            evidence.push(Figure { text, ..figure });
            Some(bytes)
        };
        budget.available_bytes = take(&available, budget.own_available_bytes);
        budget.pre_load_bytes = take(&pre_load, budget.own_pre_load_bytes);
        budget.mem_fraction_static = fraction.map(|(value, figure)| {
            evidence.push(figure);
            value
        });
        budget.evidence = evidence;
        let unseen = size.filter(|size| *size > seen);
        budget.missing.extend(
            unseen.map(|size| format!("the readings of {} of {size} ranks, which were not traced", size - seen)),
        );
        conclude(&mut budget);
        (process, budget)
    };
    team.into_iter().map(budget).collect()
}

/// Applies the formula and puts it in words.
fn conclude(budget: &mut KvBudget) {
    let inputs = [
        (budget.available_bytes.is_none(), "free memory after the weights (A)"),
        (budget.pre_load_bytes.is_none(), "free memory before the weights (P)"),
        (budget.mem_fraction_static.is_none(), "mem_fraction_static, neither printed nor given"),
    ];
    budget.missing.extend(inputs.into_iter().filter(|(missing, _)| *missing).map(|(_, name)| name.to_owned()));
    if let (Some(available), Some(before)) = (budget.available_bytes, budget.pre_load_bytes) {
        budget.smallest_fraction = smallest_fraction(available, before);
        if let Some(fraction) = budget.mem_fraction_static {
            budget.reserve_bytes = Some((before as f64 * (1.0 - fraction)).round() as u64);
            budget.rest_bytes = Some(rest_bytes(available, before, fraction));
        }
    }
    let has_pool = budget.tokens.is_some() || budget.pool_bytes.is_some_and(|bytes| bytes > 0);
    budget.fits = match (budget.error.is_some(), budget.rest_bytes) {
        (true, _) => Some(false),
        (false, Some(rest)) if !has_pool => Some(rest > 0),
        _ => has_pool.then_some(true),
    };
    budget.sentence = sentence(budget);
}

fn sentence(budget: &KvBudget) -> String {
    let verdict = if budget.fits == Some(false) { "KV pool cannot be sized" } else { "KV pool" };
    let (Some(available), Some(before), Some(f), Some(rest)) =
        (budget.available_bytes, budget.pre_load_bytes, budget.mem_fraction_static, budget.rest_bytes)
    else {
        let error = budget.error.as_ref().map_or(String::new(), |error| format!(" (\"{error}\")"));
        let verdict = if budget.fits == Some(false) { verdict } else { "KV budget not known" };
        return format!("{verdict}{error}: the trace does not hold {}", budget.missing.join("; "));
    };
    let (a, p, f, rest_text) = (human(available), human(before), fraction(f), signed(rest));
    let formula = format!("{a} free after the weights (A) - {p} before them (P) × (1 - {f}) = {rest_text}");
    if budget.fits == Some(false) {
        return format!("{verdict}: {formula}; {}", remedy(available, before, rest, budget));
    }
    format!("{verdict}: {formula}{}", outcome(budget, rest))
}

/// What would make room.
fn remedy(available: u64, before: u64, rest: i64, budget: &KvBudget) -> String {
    if rest > 0 {
        return "that is too little for one page of tokens".to_owned();
    }
    match budget.smallest_fraction {
        Some(least) => format!(
            "--mem-fraction-static {} or more leaves room ({}: {})",
            fraction(least),
            fraction(least),
            signed(rest_bytes(available, before, least))
        ),
        None => "no --mem-fraction-static leaves room: the weights take all".to_owned(),
    }
}

/// What the pool got of it.
fn outcome(budget: &KvBudget, rest: i64) -> String {
    let Some(pool) = budget.pool_bytes.or(budget.printed_pool_bytes) else { return String::new() };
    let tokens = budget.tokens.map_or(String::new(), |tokens| format!(" for {tokens} tokens"));
    let got = format!("; the pool got {}{tokens}", human(pool));
    // Bookkeeping beside K and V, and rounding to whole pages, are far below that.
    let short = u64::try_from(rest).unwrap_or(0).saturating_sub(pool);
    match budget.max_total_tokens {
        _ if short < pool / 20 => got,
        Some(most) => format!("{got}, {} less than the budget: --max-total-tokens {most}", human(short)),
        None => format!("{got}, {} less than the budget", human(short)),
    }
}
