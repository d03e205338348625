//! Other ways to watch the same calls: what is run beside the bench, and what it must have seen of it.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::Bench;
use crate::command::{as_root, found, output};

/// The probed function, and the bytes it is told.
pub(super) const CALL: &str = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
/// Longest wait for a peer to begin, or to print what it has.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a bpftrace script does at the return of a call, whose size argument it kept at the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// Sums sizes by result.
    Sum,
    /// Sums sizes by result and native stack.
    SumByStack,
    /// Prints each call with its native stack.
    Print,
}

impl Script {
    fn text(self, library: &Path) -> String {
        let at_return = match self {
            Self::Sum => "@bytes[retval] = sum(@size[tid]);",
            Self::SumByStack => "@bytes[retval, ustack] = sum(@size[tid]);",
            Self::Print => r#"printf("call %d %d %d %s\n", tid, @size[tid], retval, ustack);"#,
        };
        let call = format!("{}:{CALL}", library.display());
        // Probes are placed in this order, so that the first "ready" comes when the others are in.
        format!(
            "uprobe:{call} {{ @size[tid] = arg0; }}\n\
             uretprobe:{call} {{ {at_return} @calls = count(); delete(@size[tid]); }}\n\
             interval:ms:100 {{ printf(\"ready\\n\"); }}\n"
        )
    }
}

/// A peer that runs. Dropping it ends it.
pub(super) struct Peer {
    child: Child,
    said: PathBuf,
}

impl Peer {
    /// Starts bpftrace, and waits until its probes are in.
    pub(super) fn bpftrace(bench: &Bench<'_>, script: Script) -> Result<Self> {
        let file = bench.dir.join("peer.bt");
        fs::write(&file, script.text(&bench.library("libc10.so")))?;
        let mut command = as_root("bpftrace")?;
        command.arg(file);
        Self::start(bench, command, "ready")
    }

    /// Starts bcc's memleak on process `pid`, and waits until its probes are in: when it reports for the first time.
    pub(super) fn memleak(bench: &Bench<'_>, pid: u32) -> Result<Self> {
        let mut command = as_root("unshare")?;
        command.args(["--mount", "sh", "-c", &with_headers()?, "memleak-bpfcc"]);
        command.args(["--pid", &pid.to_string(), "--older", "0", "--obj"]).arg(bench.library("libbench-malloc.so"));
        command.arg("1");
        Self::start(bench, command, "outstanding allocations")
    }

    fn start(bench: &Bench<'_>, mut command: Command, sign: &str) -> Result<Self> {
        let said = bench.dir.join("peer.out");
        let file = File::create(&said)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let mut peer = Self { child, said };
        peer.wait_for(sign)?;
        Ok(peer)
    }

    fn text(&self) -> Result<String> {
        let mut text = Vec::new();
        File::open(&self.said)?.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn wait_for(&mut self, sign: &str) -> Result<()> {
        let begin = Instant::now();
        while !self.text()?.contains(sign) {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status}): {}", self.text()?.trim());
            }
            ensure!(begin.elapsed() < PATIENCE, "it did not begin: {}", self.text()?.trim());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits until it has printed no more for a while: a peer that prints is behind.
    fn settle(&self) -> Result<()> {
        let begin = Instant::now();
        let size = || fs::metadata(&self.said).map(|meta| meta.len());
        let mut before = 0;
        // Every 100 ms there is a line that says "ready".
        while size()? > before + 100 && begin.elapsed() < PATIENCE {
            before = size()?;
            thread::sleep(Duration::from_millis(500));
        }
        Ok(())
    }

    /// Ends it; gives how many of the calls its own account has.
    pub(super) fn end(mut self, script: Option<Script>) -> Result<u64> {
        if script == Some(Script::Print) {
            self.settle()?;
        } else {
            thread::sleep(Duration::from_millis(1500));
        }
        // SIGINT is how one ends these tools: they print their maps then.
        let signalled = below(self.child.id())?;
        output(as_root("kill")?.args(["-INT", &signalled.to_string()]))?;
        self.child.wait()?;
        let text = self.text()?;
        Ok(match script {
            Some(Script::Print) => text.lines().filter(|line| line.starts_with("call ")).count() as u64,
            Some(_) => number_behind(&text, "@calls: ").unwrap_or(0),
            None => allocations(&text),
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The process that a command ended up in: sudo(8) and unshare(1) may stay in front of it.
fn below(pid: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    children.split_ascii_whitespace().next().map_or(Ok(pid), |child| below(child.parse()?))
}

/// `/bin/sh` text that runs what follows. bcc compiles its programs against kernel headers, of which memleak uses none that
/// depends on the version. Where the running kernel's are not installed, Debian's stand in, in a mount namespace of its own.
fn with_headers() -> Result<String> {
    let release = output(Command::new("uname").arg("-r"))?;
    if Path::new("/lib/modules").join(&release).join("build").exists() {
        return Ok(r#"exec "$0" "$@""#.to_owned());
    }
    let mut sources: Vec<PathBuf> = fs::read_dir("/usr/src")?.filter_map(|e| Some(e.ok()?.path())).collect();
    sources.sort();
    let ending = |end: &str| {
        let fits = |path: &&PathBuf| {
            path.to_string_lossy().contains("linux-headers-") && path.to_string_lossy().ends_with(end)
        };
        sources.iter().rev().find(fits).map(|path| path.display().to_string())
    };
    let (build, source) = ending("-amd64").zip(ending("-common")).context("no kernel headers (linux-headers-amd64)")?;
    let modules = format!("/lib/modules/{release}");
    Ok(format!(
        "mount -t tmpfs none /lib/modules && mkdir {modules} && ln -s {build} {modules}/build && \
         ln -s {source} {modules}/source && exec \"$0\" \"$@\""
    ))
}

/// The number behind the last `sign`.
pub(super) fn number_behind(text: &str, sign: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(sign)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Allocations in memleak's last report: `N bytes in N allocations from stack`.
fn allocations(text: &str) -> u64 {
    let last = text.rsplit_once("outstanding allocations").map_or("", |(_, last)| last);
    last.lines().filter_map(|line| line.split_once(" bytes in ")?.1.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Debian packages of the peers; what cannot be had leaves its rows out, with the reason.
pub(super) fn install() -> Result<()> {
    let wanted = [
        ("bpftrace", "bpftrace", "bench: a peer"),
        ("memleak-bpfcc", "bpfcc-tools", "bench: a peer"),
        ("memleak-bpfcc", "linux-headers-amd64", "bench: bcc compiles its programs"),
    ];
    let headers = with_headers().is_ok();
    let missing = |(program, package, _): &(&str, &str, &str)| {
        if *package == "linux-headers-amd64" { !headers } else { !found(program) && !found_in_sbin(program) }
    };
    let packages: Vec<_> = wanted.into_iter().filter(missing).map(|(_, package, why)| (package, why)).collect();
    if packages.is_empty() { Ok(()) } else { crate::setup::packages(&packages) }
}

/// Administrators' programs are not on everybody's PATH.
fn found_in_sbin(program: &str) -> bool {
    Path::new("/usr/sbin").join(program).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_have_seen() {
        assert_eq!(number_behind("@calls: 3\n\n@calls: 1100\n", "@calls: "), Some(1100));
        assert_eq!(number_behind("nothing", "@calls: "), None);
        let text = "[1] Top 10 stacks with outstanding allocations:\n\t9 bytes in 1 allocations from stack\n\
                    [2] Top 10 stacks with outstanding allocations:\n\t51200 bytes in 100 allocations from stack\n\
                    \t\t0x7f\tdeep\n\t512 bytes in 1 allocations from stack\n";
        assert_eq!(allocations(text), 101);
    }

    #[test]
    fn scripts_probe_the_call_and_say_when_they_are_in() {
        for script in [Script::Sum, Script::SumByStack, Script::Print] {
            let text = script.text(Path::new("/lib/libc10.so"));
            assert!(text.starts_with(&format!("uprobe:/lib/libc10.so:{CALL} ")), "{text}");
            assert!(text.trim_end().ends_with("\"ready\\n\"); }"), "{text}");
            assert_eq!(text.contains("ustack"), script != Script::Sum);
        }
    }
}
