//! Names for processes, GPUs and kinds.

use std::collections::HashMap;

use crate::ledger::{Book, GpuRef, Kind, ProcessInfo};

/// Longest title kept in a process label, in characters.
const TITLE: usize = 40;

/// `pid title`, with `#life` when this is not the pid's first process.
///
/// A title set by the process (`sglang::scheduler_TP0`) counts more than its command line, of which the program and, for
/// an interpreter, the script or module it runs are kept.
#[must_use]
pub fn process_label(process: &ProcessInfo, life: u32) -> String {
    let pid = pid_label(process, life);
    let title = short_title(process);
    if title.is_empty() { pid } else { format!("{pid} {title}") }
}

/// Labels for each process, all different, by pid alone and with its title: a pid that came back gets `#2`, and where a
/// book is of several hosts, the host is named.
pub(super) fn labels(book: &Book) -> Vec<(String, String)> {
    let mut lives: HashMap<(usize, u32), u32> = HashMap::new();
    let label = |(number, process): (usize, &ProcessInfo)| {
        let life = *lives.entry((book.host_of(number), process.pid)).and_modify(|n| *n += 1).or_insert(1);
        let host = book.host_name(number).map(|host| format!(" on {host}")).unwrap_or_default();
        (pid_label(process, life) + &host, process_label(process, life) + &host)
    };
    book.processes.iter().enumerate().map(label).collect()
}

/// Label of a GPU of a book, with its host where that is of several.
pub(super) fn gpu_name(book: &Book, gpu: usize) -> String {
    let label = book.gpus.get(gpu).map_or_else(|| gpu_label(&GpuRef::default()), gpu_label);
    book.gpu_host(gpu).map_or_else(|| label.clone(), |host| format!("{label} of {host}"))
}

/// `pid`, with `#life` when this is not the pid's first process.
fn pid_label(process: &ProcessInfo, life: u32) -> String {
    if life > 1 { format!("{}#{life}", process.pid) } else { process.pid.to_string() }
}

fn short_title(process: &ProcessInfo) -> String {
    let words: Vec<&str> = process.title.split_whitespace().collect();
    let from_command: Vec<&str> = process.command.iter().map(|word| word.trim()).collect();
    // A title that is the command line over again tells no more than the command.
    let words = if words.is_empty() || words == from_command { from_command } else { words };
    let Some((program, arguments)) = words.split_first() else { return String::new() };
    let mut title = base_name(program).to_owned();
    if let Some(script) = interpreted(&title, arguments) {
        title = format!("{title} {script}");
    }
    title.chars().take(TITLE).collect()
}

/// What an interpreter runs: its first argument that is no option, or `-m module`.
fn interpreted<'a>(program: &str, arguments: &[&'a str]) -> Option<&'a str> {
    const INTERPRETERS: [&str; 5] = ["python", "bash", "sh", "perl", "node"];
    let stem = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&stem) {
        return None;
    }
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match *word {
            "-m" => return rest.next().copied(),
            "-c" => return Some("-c"),
            option if option.starts_with('-') => {}
            script => return Some(base_name(script)),
        }
    }
    None
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// `GPU 0`, or what else is known of it.
#[must_use]
pub fn gpu_label(gpu: &GpuRef) -> String {
    match (gpu.index, gpu.uuid.as_str(), gpu.instance) {
        (Some(index), ..) => format!("GPU {index}"),
        // `GPU-` and the first group of the UUID tell one machine's GPUs apart.
        (None, uuid, _) if !uuid.is_empty() => uuid.chars().take(12).collect(),
        (None, _, Some(instance)) => format!("GPU instance {instance}"),
        (None, _, None) => "GPU ?".to_owned(),
    }
}

/// Name of a kind, as in JSON.
#[must_use]
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Context => "context",
        Kind::Module => "module",
        Kind::LocalMemory => "local_memory",
        Kind::Channel => "channel",
        Kind::CudaMalloc => "cuda_malloc",
        Kind::Vmm => "vmm",
        Kind::Pool => "pool",
        Kind::GraphExec => "graph_exec",
        Kind::IpcImport => "ipc_import",
        Kind::Host => "host",
        Kind::PreAttach => "pre_attach",
        Kind::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(title: &str, command: &[&str]) -> String {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        process_label(&ProcessInfo { pid: 9, title: title.to_owned(), command, ..ProcessInfo::default() }, 1)
    }

    #[test]
    fn processes_are_named_by_what_they_run() {
        let python = ["/opt/venv/bin/python3.12", "-u", "-m", "sglang.launch_server", "--tp", "8"];
        assert_eq!(label("", &python), "9 python3.12 sglang.launch_server");
        assert_eq!(label(&python.join(" "), &python), "9 python3.12 sglang.launch_server");
        assert_eq!(label("sglang::scheduler_TP0", &python), "9 sglang::scheduler_TP0");
        assert_eq!(label("", &["python3", "/srv/train.py", "--lr", "1"]), "9 python3 train.py");
        assert_eq!(label("", &["python3", "-c", "import torch"]), "9 python3 -c");
        assert_eq!(label("", &["/usr/bin/nvtop"]), "9 nvtop");
        assert_eq!(label("", &["/"]), "9 /");
        assert_eq!(label("", &[]), "9");
    }

    #[test]
    fn gpus_are_named_by_what_is_known() {
        let gpu = |index, uuid: &str, instance| gpu_label(&GpuRef { index, uuid: uuid.to_owned(), instance });
        assert_eq!(gpu(Some(3), "GPU-5d1f0c9a-1111", Some(1)), "GPU 3");
        assert_eq!(gpu(None, "GPU-5d1f0c9a-1111", Some(1)), "GPU-5d1f0c9a");
        assert_eq!(gpu(None, "", Some(1)), "GPU instance 1");
        assert_eq!(gpu(None, "", None), "GPU ?");
    }

    #[test]
    fn kinds_are_named_as_in_json() {
        for kind in super::super::KINDS {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind_name(kind));
        }
    }
}
