//! The simulated CUDA stack as a test uses it: a driver daemon, libraries to run programs against, its truth.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::TempDir;

use crate::shims;
use crate::truth::Truth;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of GPUs.
    pub gpus: u32,
    /// Bytes that CUDA can allocate on each.
    pub gpu_bytes: u64,
    /// Let device instances count down while NVML's indices count up.
    pub reverse_instances: bool,
}

impl Default for Config {
    /// One H200.
    fn default() -> Self {
        Self { gpus: 1, gpu_bytes: 150_109_880_320, reverse_instances: false }
    }
}

/// A running simulation. Dropping it stops the daemon and takes its mount away.
#[derive(Debug)]
pub struct Sim {
    directory: TempDir,
    driver: Child,
    shims: &'static Path,
    /// Directory of the libraries that programs load.
    libraries: PathBuf,
}

/// What NVML says at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Smi {
    /// Used bytes by GPU index and process.
    pub processes: BTreeMap<(u32, u32), u64>,
    /// Used bytes by GPU index.
    pub used: BTreeMap<u32, u64>,
}

impl Sim {
    /// Builds the libraries (the first time) and starts a driver. Needs root: the driver mounts a file system.
    ///
    /// # Errors
    /// When there is no C compiler, no `/dev/fuse`, no permission to mount, or no `sim-driver` beside the test binary.
    pub fn start(config: Config) -> Result<Self> {
        let shims = shims::build()?;
        let directory = tempfile::Builder::new().prefix("vramtrace-sim-").tempdir()?;
        // Traced programs may run as another user.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let mount = directory.path().join("dev");
        fs::create_dir(&mount)?;
        let mut command = Command::new(driver_path()?);
        command.arg("--mount").arg(&mount).arg("--truth").arg(directory.path().join("truth.jsonl"));
        command.args(["--gpus", &config.gpus.to_string(), "--gpu-bytes", &config.gpu_bytes.to_string()]);
        if config.reverse_instances {
            command.arg("--reverse-instances");
        }
        let mut driver =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot run sim-driver")?;
        let mut line = String::new();
        let ready = driver.stdout.take().map(BufReader::new).context("sim-driver has no output")?.read_line(&mut line);
        let sim = Self { directory, driver, shims, libraries: shims.to_owned() };
        ready?;
        ensure!(line.starts_with("ready "), "sim-driver did not start (its error is above)");
        Ok(sim)
    }

    /// Gives programs copies of the libraries that no other simulation has.
    ///
    /// # Errors
    /// When they cannot be copied.
    pub fn own_libraries(&mut self) -> Result<()> {
        let libraries = self.directory.path().join("lib");
        fs::create_dir(&libraries)?;
        for entry in fs::read_dir(self.shims)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"lib")) {
                fs::copy(&path, libraries.join(path.file_name().unwrap_or_default()))?;
            }
        }
        self.libraries = libraries;
        Ok(())
    }

    /// Makes [`Sim::scratch`] a root directory to change to: with a libc and dynamic linker of its own, the libraries in
    /// `/lib`, the devices in `/dev`, and `/server`. Gives the environment for programs in it.
    ///
    /// # Errors
    /// When something cannot be copied.
    pub fn make_root(&mut self) -> Result<Vec<(&'static str, OsString)>> {
        self.own_libraries()?;
        let root = self.scratch();
        fs::create_dir(root.join("lib64"))?;
        fs::copy("/lib64/ld-linux-x86-64.so.2", root.join("lib64/ld-linux-x86-64.so.2"))?;
        // The one that this program runs on, wherever the distribution keeps it.
        let maps = fs::read_to_string("/proc/self/maps")?;
        let libc = maps.lines().find_map(|line| line.split_once('/').filter(|(_, path)| path.ends_with("/libc.so.6")));
        fs::copy(Path::new("/").join(libc.context("no libc.so.6")?.1), root.join("lib/libc.so.6"))?;
        fs::copy(self.program("server"), root.join("server"))?;
        Ok(vec![("VRAMTRACE_SIM_DEV", "/dev".into()), ("LD_LIBRARY_PATH", "/lib".into())])
    }

    /// Directory of the libraries that programs load.
    #[must_use]
    pub fn libraries(&self) -> &Path {
        &self.libraries
    }

    /// Directory with `nvidiactl`, `nvidia0`, … and `nvidia-uvm`.
    #[must_use]
    pub fn devices(&self) -> PathBuf {
        self.directory.path().join("dev")
    }

    /// A directory for the test's own files, gone with the simulation.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.directory.path()
    }

    /// `libnvidia-ml.so.1` that knows this driver (with [`Sim::environment`]).
    #[must_use]
    pub fn nvml_library(&self) -> PathBuf {
        self.shims.join("libnvidia-ml.so.1")
    }

    /// Environment variables for a program that shall find this simulation.
    ///
    /// # Errors
    /// When the copy of libcuda for `late_library` cannot be made.
    pub fn environment(&self) -> Result<Vec<(&'static str, OsString)>> {
        let odd = self.directory.path().join("odd place").join("libcuda-copy.so");
        if !odd.exists() {
            fs::create_dir_all(self.directory.path().join("odd place"))?;
            fs::copy(self.shims.join("libcuda.so.1"), &odd)?;
        }
        Ok(vec![
            ("VRAMTRACE_SIM_DEV", self.devices().into()),
            ("LD_LIBRARY_PATH", self.libraries.clone().into()),
            ("VRAMTRACE_NVML", self.nvml_library().into()),
            ("VRAMTRACE_SIM_ODD_LIBCUDA", odd.into()),
        ])
    }

    /// A command that runs `program` (a path, or the name of a built program such as `scenario`) in this simulation.
    ///
    /// # Errors
    /// As [`Sim::environment`].
    pub fn command(&self, program: &str) -> Result<Command> {
        let path = if program.contains('/') { PathBuf::from(program) } else { self.program(program) };
        let mut command = Command::new(path);
        command.envs(self.environment()?);
        Ok(command)
    }

    /// Path of a built program (`scenario`, `scenario-static`, `smi`).
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.shims.join(name)
    }

    /// Kills the driver. Requests to it fail from then on; its truth so far stays, and so does its mount, as device files do.
    ///
    /// # Errors
    /// It is gone already.
    pub fn kill_driver(&mut self) -> Result<()> {
        self.driver.kill()?;
        self.driver.wait()?;
        Ok(())
    }

    /// The driver's truth so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn truth(&self) -> Result<Truth> {
        Truth::read(&self.directory.path().join("truth.jsonl"))
    }

    /// The truth once every process is gone and the driver has heard of it: closing a FUSE file does not wait for the
    /// daemon, so an exit may be over before its memory is.
    ///
    /// # Errors
    /// When a control file is still open after five seconds.
    pub fn settled(&self) -> Result<Truth> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let truth = self.truth()?;
            let Some((_, pid)) = truth.open_files().into_iter().next() else { return Ok(truth) };
            if Instant::now() > deadline {
                bail!("a driver file of process {pid} is still open");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What NVML says now.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn smi(&self) -> Result<Smi> {
        let output = self.command("smi")?.output()?;
        ensure!(output.status.success(), "smi failed: {}", output.status);
        let mut smi = Smi::default();
        for line in String::from_utf8(output.stdout)?.lines() {
            let mut words = line.split(' ');
            let what = words.next().unwrap_or_default();
            let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>()?;
            match (what, &numbers[..]) {
                ("process", &[gpu, pid, bytes]) => {
                    smi.processes.insert((u32::try_from(gpu)?, u32::try_from(pid)?), bytes);
                }
                ("gpu", &[gpu, _total, _reserved, _free, used]) => {
                    smi.used.insert(u32::try_from(gpu)?, used);
                }
                _ => bail!("smi said {line}"),
            }
        }
        Ok(smi)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // The daemon ends with its input, and unmounts then.
        drop(self.driver.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Ok(None) = self.driver.try_wait() {
            if Instant::now() > deadline {
                _ = self.driver.kill();
                _ = self.driver.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A killed daemon leaves its mount; an error says that there is none.
        _ = detach(&self.devices());
    }
}

/// Takes a mount away, even one with open files.
///
/// # Errors
/// The system's, `EINVAL` for a directory that is no mount.
pub fn detach(mount: &Path) -> std::io::Result<()> {
    let path = std::ffi::CString::new(mount.as_os_str().as_bytes())?;
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    if unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

/// Cargo's target directory: the one this test binary was built into.
///
/// # Errors
/// When the binary is in none.
pub fn target_directory() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let target = exe.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists());
    Ok(target.with_context(|| format!("{} is in no target directory", exe.display()))?.to_owned())
}

/// A binary of this workspace, in the same profile as the running one.
///
/// # Errors
/// When it was not built.
pub fn workspace_binary(name: &str) -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let found = exe.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| anyhow!("{name} is not built: cargo build -p live-tests -p tracer"))
}

fn driver_path() -> Result<PathBuf> {
    workspace_binary("sim-driver")
}
