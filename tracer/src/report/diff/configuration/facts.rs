//! What a trace says of a run's configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::{argv, environment};
use crate::ledger::{Book, ProcessInfo};
use crate::lifecycle::{RankEvidence, logs};
use crate::report::diff::Run;
use crate::report::diff::model::Source;
use crate::report::diff::pair::holding;
use crate::report::diff::stack_key::library;
use crate::report::frames::file_name;
use crate::trace::record::{self, Library};

/// Characters kept of a build id: enough to tell builds apart.
const BUILD_ID: usize = 12;

/// Values by where they come from and their name.
pub(super) type Facts = BTreeMap<(Source, String), String>;

pub(super) fn facts(run: &Run<'_, '_>) -> Facts {
    let book = run.axes.book();
    let mut facts = Facts::new();
    let mut add = |source: Source, values: BTreeMap<String, String>| {
        facts.extend(values.into_iter().map(|(name, value)| ((source, name), value)));
    };
    let main = main(run);
    let command = match (&book.header.command[..], main) {
        ([], Some(main)) => &main.command,
        _ => &book.header.command,
    };
    add(Source::Argument, argv::options(command));
    add(Source::ServerArgument, server_arguments(book));
    // Compilers and shells that a server starts have variables of their own.
    let holding = holding(run.axes).into_iter().filter_map(|process| book.processes.get(process));
    add(Source::Environment, environment::variables(main.into_iter().chain(holding)));
    add(Source::Library, libraries(&book.libraries));
    add(Source::Host, host(book));
    add(Source::Tracer, tracer(book));
    facts
}

/// The outermost traced ancestor of the ranks, or of what holds memory.
fn main<'b>(run: &Run<'_, 'b>) -> Option<&'b ProcessInfo> {
    let book = run.axes.book();
    let is_rank = |process: &&usize| run.axes.ranks()[**process].evidence != RankEvidence::None;
    let order = run.axes.order();
    let first = order.iter().find(is_rank).or_else(|| order.first())?;
    let mut process = book.processes.get(*first)?;
    let here = book.host_of(*first);
    // As many steps as there are processes at most: a damaged trace may have a circle of parents.
    for _ in 0..book.processes.len() {
        let is_parent =
            |(n, known): &(usize, &ProcessInfo)| Some(known.pid) == process.parent && book.host_of(*n) == here;
        match book.processes.iter().enumerate().find(is_parent).map(|(_, parent)| parent) {
            Some(parent) if !parent.command.is_empty() => process = parent,
            _ => break,
        }
    }
    Some(process)
}

/// What servers printed of their arguments; of two lines that name one, the last.
fn server_arguments(book: &Book) -> BTreeMap<String, String> {
    book.logs.iter().filter_map(|log| logs::arguments(&log.text)).flatten().collect()
}

/// Builds of each probed library.
fn libraries(libraries: &[Library]) -> BTreeMap<String, String> {
    let mut builds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for found in libraries {
        let name = file_name(&found.path);
        builds.entry(library(name).into_owned()).or_default().insert(build(name, found));
    }
    let joined = |(name, builds): (String, BTreeSet<String>)| {
        (name, environment::join(&builds.iter().map(String::as_str).collect()))
    };
    builds.into_iter().map(joined).collect()
}

/// `580.159.04 (build 0a1b2c3d4e5f)`; the path where neither version nor build is known.
fn build(name: &str, found: &Library) -> String {
    let version = name.split_once(".so.").map(|(_, version)| version);
    let id = found.build_id.as_deref().map(|id| id.chars().take(BUILD_ID).collect::<String>());
    match (version, id) {
        (Some(version), Some(id)) => format!("{version} (build {id})"),
        (None, Some(id)) => format!("build {id}"),
        (Some(version), None) => version.to_owned(),
        (None, None) => found.path.clone(),
    }
}

fn host(book: &Book) -> BTreeMap<String, String> {
    let header = &book.header;
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for gpu in &header.gpus {
        *names.entry(&gpu.name).or_default() += 1;
    }
    let gpus: Vec<String> = names.into_iter().map(|(name, count)| format!("{count} × {name}")).collect();
    let facts = [
        ("host", header.host.clone()),
        ("kernel", header.kernel.clone()),
        ("driver", header.driver.clone().unwrap_or_default()),
        ("GPUs", gpus.join(", ")),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn tracer(book: &Book) -> BTreeMap<String, String> {
    let header = &book.header;
    let ledger = match header.ledger {
        record::Source::Ioctl => "driver ioctls",
        record::Source::DriverApi => "driver API calls",
    };
    let began = if header.attached { "beside running processes" } else { "with the command" };
    let facts = [("vramtrace", header.tool.as_str()), ("ledger", ledger), ("tracing began", began)];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
