//! Which rank a process is, what it does in the server, and what it is called in reports.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;

use super::attribute::Attribution;
use super::label::{gpu_name, labels};
use super::logs::{self, Coordinate};
use super::rules::{Role, Rules, Says};
use crate::ledger::{Allocation, Book, ProcessInfo};
use crate::text;

/// Longest title or command line looked at, bytes.
const MAX_TITLE: usize = 4096;

/// Dimensions in the order in which ranks are listed.
const DIMENSIONS: [&str; 9] = ["DP", "PP", "PCP", "ATTN_CP", "CP", "MOE_DP", "TP", "DCP", "EP"];

/// Titles of processes that are ranks: `SGLang`'s scheduler, vLLM's workers and, where it has none, engine.
static TITLE: LazyLock<Regex> = LazyLock::new(|| {
    let title = r"^(?:sglang::scheduler|[^: ]{1,64}::(?:Worker|(?P<engine>(?:DP)?EngineCore)))(?P<rank>(?:_[A-Z_]{2,8}\d{1,6})*)(?:_\d{1,6})?$";
    regex(title)
});

#[expect(clippy::expect_used, reason = "constant patterns: a test compiles every one")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// What tells the rank of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankEvidence {
    /// Its title: `sglang::scheduler_TP3`.
    Title,
    /// The prefix of the lines it writes.
    LogPrefix,
    /// `RANK` in its environment, as torchrun sets it.
    Environment,
    /// The largest communicator it is in.
    Communicator,
    /// A title without a rank: the only one of its server.
    OnlyOne,
    /// It is alone on its GPU among its like.
    Device,
    /// Nothing: it is no rank.
    #[default]
    None,
}

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Name in reports, unlike that of any other process: `DP0 TP3`, `rank 3`, `tokenizer 1203`, `490 python3 train.py`.
    pub label: String,
    /// Places in parallel dimensions, where named.
    pub coordinates: Vec<Coordinate>,
    /// Rank and size of the largest communicator it is in.
    pub world: Option<(u32, u32)>,
    /// What tells the rank.
    pub evidence: RankEvidence,
}

/// Ranks and roles of all processes.
#[derive(Debug)]
pub(super) struct Ranks {
    pub(super) ranks: Vec<Rank>,
    pub(super) roles: Vec<Role>,
    /// Processes in the order of reports, and the place of each in it.
    pub(super) order: Vec<usize>,
    pub(super) place: Vec<u32>,
}

impl Ranks {
    /// `rows`: one at least of the book's that are alike.
    pub(super) fn new(book: &Book, rules: &Rules, attribution: &Attribution<'_>, rows: &[&Allocation]) -> Self {
        let mut ranks = ranks(book);
        by_device(book, rows, &mut ranks);
        let roles = roles(book, rules, attribution, rows, &ranks);
        name(book, &mut ranks, &roles);
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        order.sort_by_key(|&n| (sort_key(&ranks[n]), n));
        let mut place = vec![0; order.len()];
        for (at, &process) in (0_u32..).zip(&order) {
            place[process] = at;
        }
        Self { ranks, roles, order, place }
    }
}

/// Ranks first, by their places in each dimension, then by number.
fn sort_key(rank: &Rank) -> (bool, Vec<(usize, u32)>, Option<u32>) {
    let of = |(dimension, n): &Coordinate| {
        (DIMENSIONS.iter().position(|known| known == dimension).unwrap_or(DIMENSIONS.len()), *n)
    };
    let mut places: Vec<_> = rank.coordinates.iter().map(of).collect();
    places.sort_unstable();
    (rank.evidence == RankEvidence::None, places, rank.world.map(|(rank, _)| rank))
}

fn ranks(book: &Book) -> Vec<Rank> {
    let prefixes = prefixes(book);
    let worlds = worlds(book);
    let managed = managed_engines(book);
    let rank = |(number, process): (usize, &ProcessInfo)| {
        let world = worlds.get(&number).copied();
        let titled = TITLE.captures(shorten(&process.title)).filter(|_| !managed.contains(&number));
        let of_title = titled.as_ref().map(|title| logs::coordinates(&title["rank"])).unwrap_or_default();
        let of_prefix = prefixes.get(&number).filter(|_| !managed.contains(&number)).cloned().unwrap_or_default();
        let (label, coordinates, evidence) = if !of_title.is_empty() {
            (join(&of_title), of_title, RankEvidence::Title)
        } else if !of_prefix.is_empty() {
            (join(&of_prefix), of_prefix, RankEvidence::LogPrefix)
        } else if let Some(n) = env_rank(book, number) {
            (format!("rank {n}"), Vec::new(), RankEvidence::Environment)
        } else if let Some((n, 2..)) = world {
            (format!("rank {n}"), Vec::new(), RankEvidence::Communicator)
        } else if titled.is_some() {
            ("TP0".to_owned(), vec![("TP".to_owned(), 0)], RankEvidence::OnlyOne)
        } else {
            Default::default()
        };
        let world = env_rank(book, number).map(|n| (n, world.map_or(0, |(_, size)| size))).or(world);
        Rank { label, coordinates, world, evidence }
    };
    book.processes.iter().enumerate().map(rank).collect()
}

/// What the prefix of each process's last line with a rank says.
fn prefixes(book: &Book) -> HashMap<usize, Vec<Coordinate>> {
    let mut prefixes = HashMap::new();
    for log in &book.logs {
        let rank = logs::parse(&log.text).rank;
        if !rank.is_empty() {
            prefixes.insert(log.process, rank);
        }
    }
    prefixes
}

/// Rank and size of the largest communicator that each process is in.
fn worlds(book: &Book) -> HashMap<usize, (u32, u32)> {
    let mut worlds: HashMap<usize, (u32, u32)> = HashMap::new();
    for made in book.communicators.iter().filter(|made| made.result == 0) {
        if let (Some(rank), Some(size)) = (made.rank, made.size)
            && rank < size
            && worlds.get(&made.process).is_none_or(|(_, largest)| size > *largest)
        {
            worlds.insert(made.process, (rank, size));
        }
    }
    worlds
}

/// Engines of vLLM that have workers: these are the ranks.
fn managed_engines(book: &Book) -> Vec<usize> {
    let is_worker = |process: &ProcessInfo| {
        TITLE.captures(shorten(&process.title)).is_some_and(|title| title.name("engine").is_none())
    };
    let all = || book.processes.iter().enumerate();
    let workers = all().filter(|(_, process)| is_worker(process));
    let parents: Vec<(usize, u32)> =
        workers.filter_map(|(number, process)| Some((book.host_of(number), process.parent?))).collect();
    let is_managed = |(number, process): &(usize, &ProcessInfo)| {
        parents.contains(&(book.host_of(*number), process.pid))
            && TITLE.captures(shorten(&process.title)).is_some_and(|title| title.name("engine").is_some())
    };
    all().filter(is_managed).map(|(number, _)| number).collect()
}

/// `RANK` of a process, unless it only has its parent's.
fn env_rank(book: &Book, number: usize) -> Option<u32> {
    let process = &book.processes[number];
    let value = |process: &ProcessInfo| -> Option<u32> {
        process.env.iter().find_map(|variable| variable.strip_prefix("RANK="))?.parse().ok()
    };
    let rank = value(process)?;
    let is_parent = |(n, known): &(usize, &ProcessInfo)| {
        Some(known.pid) == process.parent && book.host_of(*n) == book.host_of(number)
    };
    let parent = book.processes.iter().enumerate().find(is_parent).map(|(_, parent)| parent);
    (parent.and_then(value) != Some(rank)).then_some(rank)
}

/// What processes of one program have in common: host, parent, title, command.
type Program<'b> = (usize, Option<u32>, &'b str, &'b [String]);

/// Processes of one command, each alone on a GPU of its own: the GPU is their rank.
fn by_device(book: &Book, rows: &[&Allocation], ranks: &mut [Rank]) {
    let mut gpus: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for row in rows {
        let of_process = gpus.entry(row.process).or_default();
        if !of_process.contains(&row.gpu) {
            of_process.push(row.gpu);
        }
    }
    let mut alike: BTreeMap<Program<'_>, Vec<(usize, usize)>> = BTreeMap::new();
    for (&process, gpus) in &gpus {
        if let (&[gpu], RankEvidence::None) = (&gpus[..], ranks[process].evidence) {
            let info = &book.processes[process];
            alike
                .entry((book.host_of(process), info.parent, &info.title, &info.command))
                .or_default()
                .push((gpu, process));
        }
    }
    for mut group in alike.into_values().filter(|group| group.len() > 1) {
        group.sort_unstable();
        // A parent says that they are children of one program; a shared GPU, that they are not ranks.
        if book.processes[group[0].1].parent.is_none() || group.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            continue;
        }
        for (gpu, process) in group {
            let label = gpu_name(book, gpu);
            ranks[process] = Rank { label, evidence: RankEvidence::Device, ..std::mem::take(&mut ranks[process]) };
        }
    }
}

/// What each process does: by its title, else by the stacks of its memory, else by its lines or its command.
fn roles(book: &Book, rules: &Rules, attribution: &Attribution<'_>, rows: &[&Allocation], ranks: &[Rank]) -> Vec<Role> {
    let mut by_stack: HashMap<usize, Role> = HashMap::new();
    for row in rows {
        if let Some(verdict) = attribution.role(row.stack) {
            // Roles are in order: the target model makes a process one of the target's, whatever else it does.
            by_stack.entry(row.process).and_modify(|role| *role = verdict.cell.min(*role)).or_insert(verdict.cell);
        }
    }
    let role_of = |numbers: &[u16], text: &str| {
        let fits = |&&number: &&u16| {
            let rule = rules.rule(number);
            rule.title.as_ref().or(rule.command.as_ref()).is_some_and(|regex| regex.is_match(text))
        };
        numbers.iter().find(fits).and_then(|number| match rules.rule(*number).says {
            Says::Role(role) => Some(role),
            _ => None,
        })
    };
    let role = |(number, process): (usize, &ProcessInfo)| {
        let by_lines = || (ranks[number].evidence == RankEvidence::LogPrefix).then_some(Role::Target);
        role_of(&rules.titles, shorten(&process.title))
            .or_else(|| by_stack.get(&number).copied())
            .or_else(by_lines)
            .or_else(|| role_of(&rules.commands, shorten(&process.command.join(" "))))
            .unwrap_or(Role::Other)
    };
    book.processes.iter().enumerate().map(role).collect()
}

/// Gives each process a label of its own.
fn name(book: &Book, ranks: &mut [Rank], roles: &[Role]) {
    let pids = labels(book);
    let mut same: HashMap<String, usize> = HashMap::new();
    for rank in ranks.iter() {
        *same.entry(rank.label.clone()).or_default() += 1;
    }
    for (number, rank) in ranks.iter_mut().enumerate() {
        let (pid, process) = &pids[number];
        if rank.evidence == RankEvidence::None {
            rank.label = match roles[number] {
                Role::Other => process.clone(),
                role => format!("{} {pid}", role.name()),
            };
        } else if same[&rank.label] > 1 {
            // Two servers in one trace, or one that was started again.
            rank.label = format!("{} ({pid})", rank.label);
        }
    }
}

fn join(coordinates: &[Coordinate]) -> String {
    let parts: Vec<_> = coordinates.iter().map(|(dimension, n)| format!("{dimension}{n}")).collect();
    parts.join(" ")
}

fn shorten(text: &str) -> &str {
    text::prefix(text, MAX_TITLE)
}

#[cfg(test)]
mod tests;
