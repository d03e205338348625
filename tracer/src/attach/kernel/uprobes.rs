//! Placing uprobes: one link for a library's entries and one for its returns where the kernel can (6.6), else one perf
//! event a probe.

use std::{fmt, io, os::fd::OwnedFd, path::Path};

use aya::{
    Ebpf,
    programs::{
        UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
    },
};

use super::{
    Error, again, closing,
    programs::Programs,
    sys::{self, Point, Purpose},
};

/// How uprobes are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `BPF_TRACE_UPROBE_MULTI`: milliseconds to place and to remove; `CAP_BPF` and `CAP_PERFMON` suffice.
    Multi,
    /// One perf event a probe: needs `CAP_SYS_ADMIN`, and removal takes about 0.1 s a probe.
    Perf,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Multi => "uprobe_multi",
            Self::Perf => "perf",
        })
    }
}

/// What probes are for: which programs they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probes {
    /// Rows of the probe table: entry and return.
    Api,
    /// libc's `ioctl`: entry and return.
    Ioctl,
    /// The dynamic linker's `_dl_debug_state`: entry.
    Linker,
    /// The function that `PyTorch`'s allocator reports each block to: entry.
    Blocks,
    /// The function by which a Python code object ends: entry.
    CodeEnds,
}

impl Probes {
    const ALL: [Self; 5] = [Self::Api, Self::Ioctl, Self::Linker, Self::Blocks, Self::CodeEnds];

    /// Names of the entry program and the return program.
    const fn programs(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Api => ("api_enter", Some("api_return")),
            Self::Ioctl => ("libc_ioctl", Some("libc_ioctl_return")),
            Self::Linker => ("linker_state", None),
            Self::Blocks => ("torch_block", None),
            Self::CodeEnds => ("code_end", None),
        }
    }
}

/// An entry program and its return program, loaded for multi-uprobes.
struct Pair {
    enter: OwnedFd,
    back: Option<OwnedFd>,
}

/// Programs, and the links that hold the probes in place.
pub(super) struct Uprobes {
    /// By [`Probes`], where the kernel has multi-uprobes.
    multi: Option<[Pair; 5]>,
    links: Vec<OwnedFd>,
}

impl Uprobes {
    pub(super) fn new(programs: &Programs, ebpf: &mut Ebpf) -> Result<Self, Error> {
        // For tests of the fallback on a kernel that has the better way.
        if std::env::var_os("VRAMTRACE_PERF_UPROBES").is_none()
            && sys::trivial(Purpose::UprobeMulti).is_ok_and(|program| supports_multi(&program))
            && let Ok(pairs) = load_multi(programs)
        {
            return Ok(Self { multi: Some(pairs), links: Vec::new() });
        }
        for what in Probes::ALL {
            let (enter, back) = what.programs();
            for name in [Some(enter), back].into_iter().flatten() {
                uprobe(ebpf, name)
                    .and_then(|program| again::load(|| program.load()))
                    .map_err(|source| Error::Attach { name, source })?;
            }
        }
        Ok(Self { multi: None, links: Vec::new() })
    }

    pub(super) const fn method(&self) -> Method {
        if self.multi.is_some() { Method::Multi } else { Method::Perf }
    }

    /// Takes away what one link holds for a whole library. Perf's events, one a probe, take a tenth of a second each: they
    /// go with their programs.
    pub(super) fn detach(&mut self) {
        closing::close(std::mem::take(&mut self.links));
    }

    pub(super) fn place(
        &mut self,
        ebpf: &mut Ebpf,
        what: Probes,
        path: &Path,
        points: &[Point],
    ) -> io::Result<Vec<(Point, String)>> {
        if points.is_empty() {
            return Ok(Vec::new());
        }
        let Some(pairs) = &self.multi else { return Ok(place_perf(ebpf, what, path, points)) };
        match pairs[what as usize].attach(path, points) {
            Ok(links) => {
                self.links.extend(links);
                Ok(Vec::new())
            }
            // The kernel refuses a link whole, without saying which point is to blame: find it.
            Err(e) if points.len() == 1 => Ok(vec![(points[0], e.to_string())]),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EACCES | libc::EPERM)) => Err(e),
            Err(_) => {
                let (left, right) = points.split_at(points.len() / 2);
                let mut refused = self.place(ebpf, what, path, left)?;
                refused.extend(self.place(ebpf, what, path, right)?);
                Ok(refused)
            }
        }
    }
}

fn load_multi(programs: &Programs) -> Result<[Pair; 5], Error> {
    let load = |what: Probes| -> Result<Pair, Error> {
        let (enter, back) = what.programs();
        // Reads that wait for pages, where the kernel has them for programs of this kind.
        let load = |name| {
            let sleepable = programs.load(name, Purpose::SleepableUprobeMulti);
            sleepable.or_else(|_| programs.load(name, Purpose::UprobeMulti))
        };
        Ok(Pair { enter: load(enter)?, back: back.map(load).transpose()? })
    };
    let [api, ioctl, linker, blocks, code_ends] = Probes::ALL.map(load);
    Ok([api?, ioctl?, linker?, blocks?, code_ends?])
}

impl Pair {
    /// Return probes first: a call that enters between the two would otherwise be entered and never left.
    fn attach(&self, path: &Path, points: &[Point]) -> io::Result<Vec<OwnedFd>> {
        let mut links = Vec::new();
        if let Some(back) = &self.back {
            links.push(sys::attach_uprobes(back, path, points, true, None)?);
        }
        links.push(sys::attach_uprobes(&self.enter, path, points, false, None)?);
        Ok(links)
    }
}

/// A kernel without the attach type refuses it whatever the path; one with it looks the (absent) file up first. Asked with
/// a program that does nothing: kernels before 6.6 take any attach type at load, and the verifier's time is most of a start.
fn supports_multi(program: &OwnedFd) -> bool {
    let probe =
        sys::attach_uprobes(program, Path::new("/no/such/file"), &[Point { offset: 0, cookie: 0 }], false, None);
    probe.is_err_and(|e| matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EBADF)))
}

fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut UProbe, aya::programs::ProgramError> {
    ebpf.program_mut(name).ok_or(aya::programs::ProgramError::NotLoaded)?.try_into()
}

fn place_perf(ebpf: &mut Ebpf, what: Probes, path: &Path, points: &[Point]) -> Vec<(Point, String)> {
    let mut refused = Vec::new();
    let (enter, back) = what.programs();
    for point in points {
        for name in [back, Some(enter)].into_iter().flatten() {
            let at = || UProbeAttachPoint {
                location: UProbeAttachLocation::AbsoluteOffset(point.offset),
                cookie: Some(point.cookie),
            };
            let placed = uprobe(ebpf, name).and_then(|p| p.attach(at(), path, UProbeScope::AllProcesses));
            if let Err(e) = placed {
                refused.push((*point, e.to_string()));
                break;
            }
        }
    }
    refused
}
