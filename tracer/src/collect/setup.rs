//! From options to a session that is ready to trace.

use std::{fs::File, io, path::PathBuf};

use nix::{sys::utsname::uname, unistd::geteuid};
use tracer_ebpf::{Control, SPEC_STACK, Spec};

use super::{
    clock,
    ioctl::{self, Abi},
    nvml::Sampler,
    session::{Error, Matcher, Parts, Session},
    sink::Sink,
};
use crate::{
    attach::{
        host::{Rights, Root},
        kernel::{DriverHook, Hold, Kernel, Options},
        place::Placer,
        user::Invoker,
    },
    lifecycle::Rules,
    probe,
    trace::{
        self, Writer,
        record::{Header, MAJOR, MINOR, Record, Source},
    },
};

/// Ring buffer size: a stack sample is 32 KiB, and some 2,000 may wait.
const RING_BYTES: u32 = 1 << 26;
/// include/uapi/linux/capability.h.
const CAP_KILL: u8 = 5;
/// UVM's map-external layout where the driver's version is unknown: that of all branches since 550.54.14.
const UVM_MAP_TAIL: u32 = 9240;

/// Blocks from which on `auto` brings their Python frames, bytes: what fills a GPU comes in such pieces, and a server's
/// tens of thousands of small ones cost a record of 64 bytes each.
const AUTO_STACK_BYTES: u32 = 1 << 20;

/// How much is recorded of `PyTorch`'s caching allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tensors {
    /// Every block, and the Python frames of those of at least 1 MiB.
    #[default]
    Auto,
    /// Every block with its Python frames.
    On,
    /// Nothing: no probe is placed.
    Off,
}

impl Tensors {
    /// The size from which on a block brings its Python frames.
    const fn stack_bytes(self) -> u32 {
        match self {
            Self::On => 0,
            Self::Auto => AUTO_STACK_BYTES,
            Self::Off => u32::MAX,
        }
    }
}

/// What to trace and where to write it.
pub struct Setup {
    /// Trace file, if one is to be written.
    pub output: Option<PathBuf>,
    /// Replace an existing file.
    pub force: bool,
    /// Who owns the file.
    pub owner: Option<Invoker>,
    /// Where driver ioctls are read.
    pub hook: DriverHook,
    /// Copy user stacks.
    pub stacks: bool,
    /// How much to record of `PyTorch`'s caching allocator.
    pub tensors: Tensors,
    /// Command line (`run`), or empty.
    pub command: Vec<String>,
    /// Which processes to trace as they load libcuda, beside those named (`attach`).
    pub matcher: Option<Matcher>,
    /// Which log lines to keep, and which one tells that the server serves.
    pub rules: Rules,
    /// Keep a ledger while tracing goes on ([`Session::ledger`]).
    pub live: bool,
}

impl Setup {
    /// Loads the kernel side, opens the file and writes its header.
    ///
    /// # Errors
    /// Missing rights or kernel features, or a file that cannot be written.
    pub fn start(self) -> Result<Session, Error> {
        let (nvml, nvml_problem) = match Sampler::start() {
            Ok(nvml) => (Some(nvml), None),
            Err(problem) => (None, Some(problem)),
        };
        let driver = nvml.as_ref().and_then(|n| n.driver.clone()).or_else(loaded_driver);
        let abi = driver.as_deref().map_or_else(Abi::default, Abi::of);
        let ledger = if abi.is_known() { Source::Ioctl } else { Source::DriverApi };
        let kernel = Kernel::load(&Options {
            ring_bytes: RING_BYTES,
            stacks: self.stacks,
            block_stack_bytes: self.tensors.stack_bytes(),
            watch_all: self.matcher.is_some(),
            hold: hold(),
            uvm_map_tail: driver.as_deref().and_then(ioctl::uvm_map_tail).unwrap_or(UVM_MAP_TAIL),
            hook: self.hook,
            specs: specs(ledger),
            controls: controls(),
        })?;
        let mut writer = Sink::new(self.file()?, self.live);
        writer.record(&Record::Header(self.header(&kernel, nvml.as_ref(), driver.clone(), ledger)))?;
        let placer = Placer::new(self.hook, self.tensors != Tensors::Off);
        let mut session =
            Session::new(Parts { kernel, placer, writer, nvml, abi, matcher: self.matcher, rules: self.rules })?;
        if let Some(problem) = nvml_problem {
            session.notice(problem)?;
        }
        if ledger == Source::DriverApi {
            let version =
                driver.map_or_else(|| "no NVIDIA driver is loaded".to_owned(), |v| format!("driver {v} is not known"));
            session.notice(format!(
                "{version}: bytes are those that API calls ask for, not those that the driver gives"
            ))?;
        }
        // Most targets share our own libc and dynamic linker: probed now, they need not be held for it.
        session.place_in_ourselves()?;
        session.flush()?;
        Ok(session)
    }

    fn file(&self) -> Result<Option<Writer<File>>, trace::Error> {
        let Some(path) = &self.output else { return Ok(None) };
        let Some(owner) = &self.owner else { return Ok(Some(Writer::create(path, self.force)?)) };
        let (force, uid, gid) = (self.force, owner.uid.as_raw(), owner.gid.as_raw());
        let create = || Writer::create_owned(path, force, uid, gid);
        let name = || path.display().to_string();
        match owner.with_files_of(create).map_err(|source| trace::Error::Io { path: name(), source })? {
            Err(trace::Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                let told = format!("{source}; {}", owner.whose_file());
                Err(trace::Error::Io { path: name(), source: io::Error::new(source.kind(), told) })
            }
            file => Ok(Some(file?)),
        }
    }

    fn header(&self, kernel: &Kernel, nvml: Option<&Sampler>, driver: Option<String>, ledger: Source) -> Header {
        let system = uname().ok();
        let text = |part: Option<&std::ffi::OsStr>| part.map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
        Header {
            format: "vramtrace".to_owned(),
            major: MAJOR,
            minor: MINOR,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            t: clock::monotonic_ns(),
            unix_ns: clock::unix_ns(),
            host: text(system.as_ref().map(nix::sys::utsname::UtsName::nodename)),
            kernel: text(system.as_ref().map(nix::sys::utsname::UtsName::release)),
            driver,
            gpus: nvml.map(|n| n.gpus.clone()).unwrap_or_default(),
            command: self.command.clone(),
            ledger,
            hook: kernel.hook().to_string(),
            probes: kernel.method().to_string(),
            attached: self.command.is_empty(),
        }
    }
}

/// The kernel side's part of the table. Where API calls are the ledger, those that own bytes bring their stacks.
fn specs(ledger: Source) -> Vec<Spec> {
    let stack =
        |probe: &probe::Probe| if ledger == Source::DriverApi && probe.effect.owns_bytes() { SPEC_STACK } else { 0 };
    probe::table()
        .iter()
        .map(|probe| {
            let spec = probe.spec();
            Spec { flags: spec.flags | stack(probe), ..spec }
        })
        .collect()
}

/// Whoever we may send a signal (kill(2)). Others are probed while they run, which the trace says.
fn hold() -> Hold {
    let may_any = Rights::read(&Root::default()).is_some_and(|rights| rights.effective >> CAP_KILL & 1 == 1);
    if may_any { Hold::Anybody } else { Hold::OfUser(geteuid().as_raw()) }
}

fn controls() -> Vec<(u32, Control)> {
    let plain = (ioctl::CMD_GPU_GET_ID_INFO_V2, Control { fd: Control::NO_FD, tail: 0 });
    let with_fd = ioctl::FD_CONTROLS.iter().map(|c| (c.cmd, Control { fd: c.fd, tail: c.tail }));
    std::iter::once(plain).chain(with_fd).collect()
}

/// Version of the loaded driver, from where it works without NVML.
fn loaded_driver() -> Option<String> {
    let version = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(version.trim().to_owned())
}
