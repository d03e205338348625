//! Placing probes in what a process maps: libraries of the probe table, its libc, its dynamic linker.

use std::{collections::HashSet, io};

use object::{Object as _, ObjectSymbol as _};
use tracer_ebpf::cookie;

use super::{
    elf::ElfFile,
    files::{descriptor_path, head_of},
    find,
    kernel::{DriverHook, Kernel, Point, Probes},
    plan::{self, Plan},
};
use crate::{
    probe::{self, Effect, Group},
    trace::record,
};

/// Largest dynamic linker read whole: glibc's is 0.2 MiB, musl's (with its libc) 0.7 MiB.
const LINKER_BYTES: u64 = 16 << 20;

/// Files whose probes are in place. Files are told apart by device and inode, whatever their paths.
#[derive(Debug)]
pub struct Placer {
    hook: DriverHook,
    /// Place the probes of [`Group::Tensors`] too.
    tensors: bool,
    done: HashSet<(u64, u64)>,
    /// Libcs (true) and dynamic linkers; musl's file is both.
    parts: HashSet<(bool, u64, u64)>,
    libraries: u32,
}

/// What one look at a process brought.
#[derive(Debug, Default)]
pub struct Placed {
    /// Libraries newly probed, in order of their numbers.
    pub libraries: Vec<record::Library>,
    /// What could not be done.
    pub notices: Vec<String>,
}

impl Placer {
    /// Nothing is placed yet. `tensors`: place probes on `PyTorch`'s caching allocator too.
    #[must_use]
    pub fn new(hook: DriverHook, tensors: bool) -> Self {
        Self { hook, tensors, done: HashSet::new(), parts: HashSet::new(), libraries: 0 }
    }

    /// Places probes in all that process `pid` maps now and that has none yet.
    pub fn process(&mut self, kernel: &mut Kernel, pid: u32) -> Placed {
        let mut placed = self.runtime(kernel, pid);
        for library in find::mapped_by(pid).libraries {
            self.library(kernel, &library, &mut placed);
        }
        placed
    }

    /// Places probes in the libc and the dynamic linker that a process maps, if they have none yet.
    pub fn runtime(&mut self, kernel: &mut Kernel, pid: u32) -> Placed {
        let mut placed = Placed::default();
        for file in find::runtime_of(pid) {
            self.part(kernel, &file, &mut placed);
        }
        placed
    }

    /// Places a probe in the dynamic linker of a process that is not traced (yet).
    pub fn linker(&mut self, kernel: &mut Kernel, pid: u32, placed: &mut Placed) {
        for file in find::runtime_of(pid).iter().filter(|file| file.part == find::Part::Linker) {
            self.part(kernel, file, placed);
        }
    }

    fn part(&mut self, kernel: &mut Kernel, file: &find::Runtime, placed: &mut Placed) {
        if !self.parts.insert((file.part == find::Part::Libc, file.device, file.inode)) {
            return;
        }
        let result = match file.part {
            find::Part::Linker => place_linker(kernel, file),
            find::Part::Libc if self.hook == DriverHook::Libc => place_ioctl(kernel, file),
            find::Part::Libc => Ok(()),
        };
        if let Err(e) = result {
            placed.notices.push(format!("{}: {e}", file.shown));
        }
    }

    /// Places the probe table's rows in one library, if it has none yet.
    pub fn library(&mut self, kernel: &mut Kernel, library: &find::Library, placed: &mut Placed) {
        if !self.done.insert((library.device, library.inode)) {
            return;
        }
        match place_table(kernel, library, self.libraries, self.tensors) {
            Ok(record) => {
                self.libraries += 1;
                placed.libraries.push(record);
            }
            Err(e) => placed.notices.push(format!("no probes in {}: {e}", library.shown)),
        }
    }
}

fn place_table(
    kernel: &mut Kernel,
    library: &find::Library,
    number: u32,
    tensors: bool,
) -> io::Result<record::Library> {
    // One open file is read and probed, whatever becomes of its name: offsets of one file must never go to another.
    let opened = library.open()?;
    let path = descriptor_path(&opened);
    let file = ElfFile::of(&library.path, opened.try_clone()?).map_err(io::Error::other)?;
    let is_wanted = |group: Group| group.by_default() || (tensors && group == Group::Tensors);
    let wanted = probe::of(library.lib).filter(|(_, probe)| is_wanted(probe.group));
    let plan = Plan::new(&file, wanted).map_err(io::Error::other)?;
    let point = |p: &plan::Point| Point { offset: p.offset, cookie: cookie(number, p.probe) };
    let points: Vec<Point> = plan.points.iter().map(point).collect();
    // Blocks have a program of their own.
    let is_block = |point: &Point| probe::by_id(point.cookie as u32).is_some_and(|p| p.effect == Effect::Tensor);
    let (blocks, calls): (Vec<Point>, Vec<Point>) = points.iter().copied().partition(is_block);
    let mut refused = kernel.place(Probes::Api, &path, &calls)?;
    refused.extend(kernel.place(Probes::Blocks, &path, &blocks)?);
    let mut failed: Vec<String> = plan.refused.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    failed.extend(refused.iter().map(|(point, why)| {
        let name = probe::by_id(point.cookie as u32).map_or("?", |p| p.symbol);
        format!("{name}: {why}")
    }));
    Ok(record::Library {
        path: library.shown.clone(),
        build_id: file.build_id(),
        placed: (points.len() - refused.len()) as u32,
        missing: plan.missing.iter().map(|&name| name.to_owned()).collect(),
        failed,
        ..record::Library::default()
    })
}

/// Entry and return of `ioctl`.
fn place_ioctl(kernel: &mut Kernel, libc: &find::Runtime) -> io::Result<()> {
    let opened = libc.open()?;
    let file = ElfFile::of(&libc.path, opened.try_clone()?).map_err(io::Error::other)?;
    let definitions = file.resolve(["ioctl"]).map_err(io::Error::other)?;
    let mut offsets: Vec<u64> = definitions.iter().filter_map(|d| d.offset.ok()).collect();
    offsets.dedup();
    if offsets.is_empty() {
        return Err(io::Error::other("it has no ioctl function: driver calls of its processes are not seen"));
    }
    let points: Vec<_> = offsets.into_iter().map(|offset| Point { offset, cookie: 0 }).collect();
    refuse(
        kernel.place(Probes::Ioctl, &descriptor_path(&opened), &points)?,
        "driver calls of its processes are not seen",
    )
}

/// `_dl_debug_state`, with the distance to `_r_debug` as the cookie.
fn place_linker(kernel: &mut Kernel, linker: &find::Runtime) -> io::Result<()> {
    let missing = "libraries loaded later are not noticed";
    let opened = linker.open()?;
    let data = head_of(&opened, LINKER_BYTES)?;
    let elf = object::File::parse(&*data).map_err(io::Error::other)?;
    let address = |name: &str| {
        let mut symbols = elf.dynamic_symbols().chain(elf.symbols());
        symbols.find(|s| s.is_definition() && s.name() == Ok(name)).map(|s| s.address())
    };
    // musl keeps its debug structure under another name (ldso/dynlink.c).
    let debug = address("_r_debug").or_else(|| address("_dl_debug_addr"));
    let (Some(state), Some(debug)) = (address("_dl_debug_state"), debug) else {
        return Err(io::Error::other(format!("it has no _dl_debug_state: {missing}")));
    };
    let definitions = ElfFile::of(&linker.path, opened.try_clone()?).map_err(io::Error::other)?;
    let definitions = definitions.resolve(["_dl_debug_state"]).map_err(io::Error::other)?;
    let Some(offset) = definitions.first().and_then(|d| d.offset.ok()) else {
        return Err(io::Error::other(format!("_dl_debug_state is no function: {missing}")));
    };
    // The probe may sit behind an endbr64: the distance is from there.
    let skipped = (offset & 0xfff).wrapping_sub(state & 0xfff) & 0xfff;
    let distance = debug.wrapping_sub(state.wrapping_add(skipped));
    let path = descriptor_path(&opened);
    refuse(kernel.place(Probes::Linker, &path, &[Point { offset, cookie: distance }])?, missing)
}

fn refuse(refused: Vec<(Point, String)>, meaning: &str) -> io::Result<()> {
    match refused.into_iter().next() {
        None => Ok(()),
        Some((_, why)) => Err(io::Error::other(format!("{why}: {meaning}"))),
    }
}
