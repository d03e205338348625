//! Which traced processes have probes on what they write, and where in a libc those go.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io,
};

use super::{
    elf::ElfFile,
    files::descriptor_path,
    find::{self, Part, Runtime},
    kernel::{Kernel, Writes},
};

/// Bytes of a function looked at.
const PROLOGUE: u64 = 24;

/// A libc: device and inode of its file.
type Key = (u64, u64);

/// A libc and where it writes. Kept open: the process whose path led to it may be gone when it is needed.
#[derive(Debug)]
struct Libc {
    file: File,
    writes: Writes,
}

/// Places probes on the writes of traced processes, each once.
#[derive(Debug, Default)]
pub struct Follower {
    /// Libcs met so far; `None`: one that cannot be probed.
    libcs: HashMap<Key, Option<Libc>>,
    /// Libcs probed in each live process.
    covered: HashMap<u32, HashSet<Key>>,
    /// Why the kernel refuses such probes.
    refused: Option<String>,
}

impl Follower {
    /// Probes the writes of a traced process, by the libcs that it maps. Gives what could not be done, each thing once.
    pub fn process(&mut self, kernel: &mut Kernel, pid: u32) -> Vec<String> {
        let mut notices = Vec::new();
        for libc in find::runtime_of(pid).iter().filter(|file| file.part == Part::Libc) {
            let key = (libc.device, libc.inode);
            self.libcs.entry(key).or_insert_with(|| match Libc::open(libc) {
                Ok(found) => Some(found),
                Err(e) => {
                    notices.push(format!("{}: {e}: log lines of its processes are not seen", libc.shown));
                    None
                }
            });
            notices.extend(self.place(kernel, pid, key));
        }
        notices
    }

    /// A process forked. The child has its parent's libcs, and most likely so have the programs that it executes: what they
    /// map is not looked at, since every moment counts.
    pub fn forked(&mut self, kernel: &mut Kernel, parent: u32, child: u32) -> Vec<String> {
        let libcs = self.covered.get(&parent).cloned().unwrap_or_default();
        libcs.into_iter().filter_map(|key| self.place(kernel, child, key)).collect()
    }

    /// A process ended.
    pub fn exited(&mut self, pid: u32) {
        self.covered.remove(&pid);
    }

    /// Why no output is seen, if the kernel refuses the probes.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    fn place(&mut self, kernel: &mut Kernel, pid: u32, key: Key) -> Option<String> {
        let libc = self.libcs.get(&key)?.as_ref()?;
        if self.refused.is_some() || !self.covered.entry(pid).or_default().insert(key) {
            return None;
        }
        let error = kernel.follow(pid, &descriptor_path(&libc.file), &libc.writes).err()?;
        let refused = format!("libc's write cannot be probed: {error}");
        self.refused = Some(refused.clone());
        Some(format!("{refused}: log lines are not seen, nor what they alone tell"))
    }
}

impl Libc {
    fn open(libc: &Runtime) -> io::Result<Self> {
        let file = libc.open()?;
        let elf = ElfFile::of(&libc.path, file.try_clone()?).map_err(io::Error::other)?;
        Ok(Self { file, writes: writes_of(&elf)? })
    }
}

/// Where `write` and `writev` of a libc are probed. glibc's stdio comes through `write` too, by a hidden name of the same
/// address; musl's makes its own system call and is not seen.
fn writes_of(file: &ElfFile) -> io::Result<Writes> {
    let offsets = |name: &str| -> io::Result<Vec<u64>> {
        let definitions = file.resolve([name]).map_err(io::Error::other)?;
        let mut offsets: Vec<u64> = definitions.iter().filter_map(|d| d.offset.ok()).collect();
        offsets.dedup();
        Ok(offsets.into_iter().map(|offset| offset + cheaper(file, offset)).collect())
    };
    let writes = Writes { write: offsets("write")?, writev: offsets("writev")? };
    if writes.write.is_empty() {
        return Err(io::Error::other("it has no write function"));
    }
    Ok(writes)
}

/// Bytes from a function's beginning to a place where a probe costs less and sees the same arguments.
fn cheaper(file: &ElfFile, offset: u64) -> u64 {
    let code = (1..=PROLOGUE).rev().find_map(|len| file.bytes(offset, len, "code lies beyond its end").ok());
    thread_test(&code.unwrap_or_default())
}

/// Length of glibc's test for a single thread (`SINGLE_THREAD_P`, sysdeps/unix/sysv/linux/single-thread.h), if code begins
/// with it. The kernel single-steps the test's instructions, but does the jump behind them itself, at a fraction of the cost
/// (arch/x86/kernel/uprobes.c, `branch_setup_xol_ops`). The test changes no argument.
fn thread_test(code: &[u8]) -> u64 {
    let (test, rest) = match code {
        // cmpb $0, __libc_single_threaded(%rip), since 2.32; cmpl $0, __libc_multiple_threads(%rip)
        [0x80 | 0x83, 0x3d, _, _, _, _, 0x00, rest @ ..] => (7, rest),
        // mov __libc_multiple_threads(%rip), %eax; test %eax, %eax
        [0x8b, 0x05, _, _, _, _, 0x85, 0xc0, rest @ ..] => (8, rest),
        // mov %fs:0x18, %eax; test %eax, %eax
        [0x64, 0x8b, 0x04, 0x25, 0x18, 0, 0, 0, 0x85, 0xc0, rest @ ..] => (10, rest),
        _ => return 0,
    };
    // je or jne to what does the rest.
    if matches!(rest, [0x74 | 0x75, ..]) { test } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_for_threads_is_passed_over() {
        let code = [0x80, 0x3d, 0x91, 0x32, 0x0e, 0x00, 0x00, 0x74, 0x17, 0xb8, 1, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(thread_test(&code), 7);
        let old = [0x64, 0x8b, 0x04, 0x25, 0x18, 0, 0, 0, 0x85, 0xc0, 0x75, 0x10];
        assert_eq!(thread_test(&old), 10);
        assert_eq!(thread_test(&[0x8b, 0x05, 1, 2, 3, 4, 0x85, 0xc0, 0x75, 0x10]), 8);
        for other in [&code[..7], &[0x80, 0x3d, 1, 2, 3, 4, 0, 0x90], &[0xb8, 1, 0, 0, 0, 0x0f, 0x05], &[]] {
            assert_eq!(thread_test(other), 0, "{other:x?}");
        }
    }

    #[test]
    fn our_own_libc_writes() {
        let libc = find::runtime_of(std::process::id()).into_iter().find(|r| r.part == Part::Libc).unwrap();
        let writes = Libc::open(&libc).unwrap().writes;
        assert_eq!((writes.write.len(), writes.writev.len()), (1, 1), "{writes:?}");
        let own = ElfFile::open(std::path::Path::new("/proc/self/exe")).unwrap();
        assert!(writes_of(&own).is_err());
    }
}
