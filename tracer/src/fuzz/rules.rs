//! Rules that users write, and lines and frames of a hostile target that rules are applied to.

use std::{hint::black_box, sync::LazyLock};

use super::{outputs, scenario};
use crate::{
    ledger::{Book, LogLine},
    lifecycle::{Rules, logs},
    trace::record::{Frame, FrameKind},
};

/// A run to apply rules to.
static BOOK: LazyLock<Book> = LazyLock::new(|| scenario::book(&scenario::seeds()[5]));

/// A rules file up to the first NUL, then lines of a server and of its stacks.
pub fn rules(data: &[u8]) {
    let (file, lines) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let lines = String::from_utf8_lossy(lines);
    lines.split('\n').for_each(line);
    let Ok(rules) = Rules::alone(&String::from_utf8_lossy(file)) else { return };
    for rule in rules.all() {
        black_box(rules.says(rule));
    }
    let mut book = BOOK.clone();
    for (number, text) in lines.split('\n').take(64).enumerate() {
        black_box((rules.is_interesting(text), rules.phase_of_line(text)));
        let (function, file) = text.split_once(' ').unwrap_or((text, ""));
        let kind = if number % 2 == 0 { FrameKind::Python } else { FrameKind::Native };
        let (function, module, file) = (function.to_owned(), file.to_owned(), Some(file.to_owned()));
        black_box(rules.of_frame(&Frame { function: function.clone(), module, file, kind, ..Frame::default() }));
        if let Some(frame) = book.frames.get_mut(number) {
            frame.function = function;
        }
        if !book.processes.is_empty() {
            let process = number % book.processes.len();
            book.processes[process].title = text.to_owned();
            book.logs.push(LogLine { t: 1000 * number as u64, process, fd: 1, text: text.to_owned() });
        }
    }
    outputs::report(&book, &rules, data.len());
}

/// What is done with a line before any rule.
fn line(text: &str) {
    let parsed = logs::parse(text);
    assert!(text.ends_with(parsed.message), "a message that is no part of its line");
    black_box((logs::arguments(text), logs::printed_memory(text), logs::coordinates(text)));
    let kept = logs::clean(text);
    assert!(kept.len() <= logs::MAX_LINE + 64, "a line of any length is kept");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let standard = [include_str!("../lifecycle/rules/sglang.toml"), include_str!("../lifecycle/rules/torch.toml")];
    // The head of the file, and a few rules at a time.
    let rules = standard.iter().flat_map(|text| {
        let (head, rules) = text.split_once("[[rule]]").unwrap_or((text, ""));
        let rules: Vec<&str> = rules.split("[[rule]]").collect();
        let part = |rules: &[&str]| format!("{head}[[rule]]{}", rules.join("[[rule]]"));
        rules.chunks(12).map(part).collect::<Vec<_>>()
    });
    let lines = "[2026-11-29 15:12:32 TP0] Load weight begin. avail mem=94.50 GB\n\
                 server_args=ServerArgs(a=1, b='x', c=[1, 2])\nload_model model_runner.py\n";
    rules.map(|text| [text.as_bytes(), &[0], lines.as_bytes()].concat()).collect()
}

pub(super) fn words() -> Vec<String> {
    let keys = [
        "[[rule]]",
        "name = ",
        "phase = ",
        "owner = ",
        "role = ",
        "log = ",
        "until = ",
        "python = [",
        "native = [",
        "calls = [",
        "during = [",
        "fallback = true",
        "weak = true",
        "tree = true",
        "capture = true",
        "versions = ",
        "title = ",
        "command = ",
        "kinds = [",
        "package = ",
        "covers = ",
        "format = 1",
        "kv_cache",
        "weights",
        "avail mem=",
        "server_args=ServerArgs(",
        "non-default args: {",
        " with config: ",
        "LLM engine (v",
    ];
    keys.map(str::to_owned).to_vec()
}
