//! Processes: which there are, and which come from which.

use std::{collections::HashSet, fs, str::FromStr};

/// All process ids now.
#[must_use]
pub fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The process that a process or thread id belongs to; none when there is none such.
#[must_use]
pub fn process_of(id: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// A process and its descendants now, parents before children.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = processes().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let (mut tree, mut seen, mut next) = (vec![root], HashSet::from([root]), 0);
    while let Some(&pid) = tree.get(next) {
        next += 1;
        tree.extend(
            parents.iter().filter(|(child, parent)| *parent == pid && seen.insert(*child)).map(|(child, _)| child),
        );
    }
    tree
}

/// A process and those it comes from, itself first.
#[must_use]
pub fn ancestors(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    while let Some(parent) = line.last().and_then(|&pid| parent(pid)).filter(|parent| *parent != 0) {
        // Numbers may be used again while we look.
        if line.contains(&parent) {
            break;
        }
        line.push(parent);
    }
    line
}

/// When a process was started: clock ticks since boot. With its number that names a process for good, since numbers are used
/// again.
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    field(pid, 22)
}

/// True for a process that is gone, or a zombie of which no thread is left: its parent has yet to wait for it.
#[must_use]
pub fn has_ended(pid: u32) -> bool {
    let is_zombie = || field::<char>(pid, 3) == Some('Z') && field::<u32>(pid, 20).is_some_and(|threads| threads <= 1);
    matches!(fs::exists(format!("/proc/{pid}")), Ok(false)) || is_zombie()
}

fn parent(pid: u32) -> Option<u32> {
    field(pid, 4)
}

/// A field of `/proc/PID/stat`, counted from 1 as in `proc_pid_stat(5)`. The second is a name that may hold anything.
fn field<T: FromStr>(pid: u32, number: usize) -> Option<T> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_belong_to_their_process() {
        let own = std::thread::spawn(|| process_of(nix::unistd::gettid().as_raw().cast_unsigned())).join().unwrap();
        assert_eq!((own, process_of(std::process::id())), (Some(std::process::id()), Some(std::process::id())));
        assert_eq!(process_of(0), None);
    }

    #[test]
    fn children_are_found() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let tree = descendants(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tree[0], std::process::id());
        assert!(tree.contains(&child.id()));
        assert!(!tree.contains(&1));
    }

    #[test]
    fn a_child_starts_after_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let (own, later) = (started(std::process::id()).unwrap(), started(child.id()).unwrap());
        assert!(!has_ended(child.id()));
        child.kill().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(started(child.id()).is_some(), "a zombie");
        child.wait().unwrap();
        assert!(has_ended(child.id()));
        assert!(own > 0 && own <= later, "{own} {later}");
        assert_eq!((started(child.id()), started(u32::MAX)), (None, None));
    }

    #[test]
    fn ancestors_reach_the_first_process() {
        let line = ancestors(std::process::id());
        assert_eq!((line[0], line.last()), (std::process::id(), Some(&1)));
        assert_eq!(ancestors(u32::MAX), [u32::MAX]);
    }
}
