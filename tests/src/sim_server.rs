//! The simulated `SGLang` server (`tests/server`) as a test uses it: traced from its start to its end, and its own account of
//! whom its memory serves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::live::vramtrace;
use crate::pythons;
use crate::sim::{Config, Sim, target_directory};
use crate::truth::{Truth, What};

/// A server to run.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// Its arguments (`tests/server/sglang/srt/server_args.py` lists them), separated by spaces.
    pub arguments: String,
    /// Environment variables beside the usual ones.
    pub environment: Vec<(String, String)>,
    /// Arguments of `vramtrace run`.
    pub options: Vec<String>,
}

/// What a traced server left.
#[derive(Debug)]
pub struct Traced {
    /// The simulation, still running.
    pub sim: Sim,
    /// The trace.
    pub file: PathBuf,
    /// The driver's truth, with the server's labels.
    pub truth: Truth,
    /// How `vramtrace run` ended: the server's exit code, or 128 and its signal.
    pub code: Option<i32>,
    /// What both wrote to standard error.
    pub log: String,
}

/// A cell of the server's account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// As reports name it: `TP0`, `DP0 TP1`.
    pub rank: String,
    /// Phase.
    pub phase: String,
    /// Owner.
    pub owner: String,
    /// Role.
    pub role: String,
}

impl Server {
    /// A server with these arguments.
    #[must_use]
    pub fn new(arguments: &str) -> Self {
        Self { arguments: arguments.to_owned(), ..Self::default() }
    }

    /// The same with an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it under `vramtrace run` on GPUs of its own until it ends.
    ///
    /// # Errors
    /// When something cannot be started.
    pub fn trace(&self, config: Config) -> Result<Traced> {
        self.trace_in(Sim::start(config)?, "server.vrt")
    }

    /// The same in a simulation that is there already; `name` is the trace's.
    ///
    /// # Errors
    /// When something cannot be started.
    pub fn trace_in(&self, sim: Sim, name: &str) -> Result<Traced> {
        let (file, output) = self.record(&sim, name)?;
        let (log, truth) = (String::from_utf8_lossy(&output.stderr).into_owned(), sim.settled()?);
        Ok(Traced { sim, file, truth, code: output.status.code(), log })
    }

    /// The trace and the tracer's output alone, where others still use the simulation.
    ///
    /// # Errors
    /// When something cannot be started.
    pub fn record(&self, sim: &Sim, name: &str) -> Result<(PathBuf, Output)> {
        let file = sim.scratch().join(name);
        let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
        command.args(["run", "--as-root", "-o"]).arg(&file).args(&self.options).arg("--");
        self.finish(&mut command)?;
        let output = command.output()?;
        ensure!(file.exists(), "no trace: {}", String::from_utf8_lossy(&output.stderr));
        Ok((file, output))
    }

    /// Puts the interpreter, the server and its environment at the end of a command.
    fn finish(&self, command: &mut Command) -> Result<()> {
        let python = pythons::all()?.into_iter().rfind(|python| python.version >= (3, 9)).context("no CPython")?;
        command.arg(python.program).args(["-m", "sglang.launch_server"]).args(self.arguments.split_whitespace());
        command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("server"));
        command.env("PYTHONPYCACHEPREFIX", target_directory()?.join("sim/pycache"));
        // What a test is about must not come from whoever runs it.
        for name in ["SGLANG_FORCE_CUSTOM_AR_PCIE", "NCCL_CUMEM_ENABLE", "PYTORCH_CUDA_ALLOC_CONF"] {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(())
    }
}

impl Traced {
    /// When the server reached a named point (`ready`, `served`), `CLOCK_MONOTONIC` nanoseconds.
    ///
    /// # Errors
    /// It did not.
    pub fn mark(&self, wanted: &str) -> Result<u64> {
        let is_it = |what: &What| matches!(what, What::Mark { name, .. } if name == wanted);
        let event = self.truth.events.iter().find(|event| is_it(&event.what));
        Ok(event.with_context(|| format!("the server is not {wanted}: {}", self.log))?.t)
    }

    /// Bytes of GPU memory by cell: live at `t`, and all that was allocated until then.
    ///
    /// # Errors
    /// Memory without a label.
    pub fn cells(&self, t: u64) -> Result<BTreeMap<Cell, (u64, u64)>> {
        let mut cells: BTreeMap<Cell, (u64, u64)> = BTreeMap::new();
        for event in self.truth.events.iter().take_while(|event| event.t <= t) {
            match &event.what {
                What::Alloc(piece) if !piece.host => {
                    let cell = cells.entry(Cell::of(&piece.label)?).or_default();
                    cell.0 += piece.bytes;
                    cell.1 += piece.bytes;
                }
                What::Free(piece) | What::Reclaim(piece) if !piece.host => {
                    cells.entry(Cell::of(&piece.label)?).or_default().0 -= piece.bytes;
                }
                _ => {}
            }
        }
        Ok(cells)
    }
}

impl Cell {
    fn of(label: &str) -> Result<Self> {
        let [rank, role, phase, owner] =
            label.split('|').collect::<Vec<_>>().try_into().ok().with_context(|| format!("no label: {label:?}"))?;
        let [rank, role, phase, owner] = [rank, role, phase, owner].map(str::to_owned);
        Ok(Self { rank, phase, owner, role })
    }
}
