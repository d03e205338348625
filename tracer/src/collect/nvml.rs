//! NVML's figures: the yardstick the ledger is held against.
//!
//! Queries take driver locks and milliseconds, so they run on a thread of their own.

use std::{
    ffi::OsString,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use nvml_wrapper::{Nvml, enums::device::UsedGpuMemory, error::NvmlError};

use super::clock::monotonic_ns;
use crate::attach::host::rights::privileged_by_file;
use crate::trace::record::{Gpu, Nvml as Sample, NvmlProcess};

/// Library to load in place of `libnvidia-ml.so.1`: the simulated driver's.
pub const LIBRARY_ENV: &str = "VRAMTRACE_NVML";

/// The sampling thread.
pub struct Sampler {
    requests: Sender<()>,
    samples: Receiver<Vec<Sample>>,
    in_flight: bool,
    /// GPUs listed at start.
    pub gpus: Vec<Gpu>,
    /// Driver version.
    pub driver: Option<String>,
}

impl Sampler {
    /// Loads NVML and starts the thread.
    ///
    /// # Errors
    /// NVML is not installed, or the driver is not loaded: one sentence.
    pub fn start() -> Result<Self, String> {
        let nvml = load().map_err(|e| format!("NVML is not available ({e}): no figures to compare the ledger with"))?;
        let gpus = list(&nvml).map_err(|e| format!("NVML lists no GPUs: {e}"))?;
        let driver = nvml.sys_driver_version().ok();
        let (requests, inbox) = channel::<()>();
        let (outbox, samples) = channel();
        thread::Builder::new()
            .name("nvml".into())
            .spawn(move || {
                while inbox.recv().is_ok() {
                    if outbox.send(sample(&nvml)).is_err() {
                        break;
                    }
                }
            })
            .map_err(|e| format!("no thread for NVML: {e}"))?;
        Ok(Self { requests, samples, in_flight: false, gpus, driver })
    }

    /// Asks for a sample, unless one is on its way.
    pub fn request(&mut self) {
        if !self.in_flight {
            self.in_flight = self.requests.send(()).is_ok();
        }
    }

    /// True while a sample is on its way.
    #[must_use]
    pub const fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// The sample asked for, when it has come.
    pub fn receive(&mut self) -> Option<Vec<Sample>> {
        let samples = self.samples.try_recv().ok()?;
        self.in_flight = false;
        Some(samples)
    }

    /// Waits for the sample on its way, `limit` at most.
    pub fn wait(&mut self, limit: std::time::Duration) -> Option<Vec<Sample>> {
        if !self.in_flight {
            return None;
        }
        let samples = self.samples.recv_timeout(limit).ok()?;
        self.in_flight = false;
        Some(samples)
    }
}

fn load() -> Result<Nvml, NvmlError> {
    match std::env::var_os(LIBRARY_ENV).filter(|_| !privileged_by_file()) {
        Some(path) => Nvml::builder().lib_path(&path).init(),
        // The unversioned name belongs to development packages.
        None => Nvml::builder().lib_path(&OsString::from("libnvidia-ml.so.1")).init(),
    }
}

fn list(nvml: &Nvml) -> Result<Vec<Gpu>, NvmlError> {
    (0..nvml.device_count()?)
        .map(|index| {
            let device = nvml.device_by_index(index)?;
            Ok(Gpu {
                index,
                uuid: device.uuid()?,
                name: device.name().unwrap_or_default(),
                pci: device.pci_info().map(|p| p.bus_id).unwrap_or_default(),
                total_bytes: device.memory_info().map(|m| m.total).unwrap_or_default(),
            })
        })
        .collect()
}

/// One sample a GPU; a GPU that does not answer is left out.
fn sample(nvml: &Nvml) -> Vec<Sample> {
    let count = nvml.device_count().unwrap_or(0);
    (0..count).filter_map(|index| sample_one(nvml, index).ok()).collect()
}

fn sample_one(nvml: &Nvml, index: u32) -> Result<Sample, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let uuid = device.uuid()?;
    let begin = monotonic_ns();
    let memory = device.memory_info()?;
    // A process that both computes and draws is in both lists, with the same figure.
    let mut processes = device.running_compute_processes()?;
    processes.extend(device.running_graphics_processes().unwrap_or_default());
    let t = monotonic_ns();
    let mut processes: Vec<_> = processes
        .iter()
        .map(|p| NvmlProcess {
            pid: p.pid,
            bytes: match p.used_gpu_memory {
                // Some R570 drivers say u64::MAX for "not available".
                UsedGpuMemory::Used(bytes) if bytes != u64::MAX => Some(bytes),
                _ => None,
            },
        })
        .collect();
    processes.sort_by_key(|p| p.pid);
    processes.dedup_by_key(|p| p.pid);
    Ok(Sample { begin, t, uuid, used: memory.used, free: memory.free, reserved: memory.reserved, processes })
}
