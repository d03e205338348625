//! Options that `run` and `attach` share.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use tracer::collect::setup::Tensors;
use tracer::report::clock;

/// When tracing ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the last traced process has exited.
    #[default]
    Exit,
    /// When a log line says that the server serves.
    Serving,
    /// After a time.
    Duration(Duration),
}

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "exit" => Ok(Self::Exit),
            "serving" => Ok(Self::Serving),
            time => match clock::parse_duration(time) {
                Ok(Duration::ZERO) => Err("nothing can be traced in no time".to_owned()),
                Ok(duration) => Ok(Self::Duration(duration)),
                Err(_) => Err("give exit, serving, or a duration like 90s or 5m".to_owned()),
            },
        }
    }
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Do it.
    On,
    /// Do not.
    Off,
}

/// How much is recorded of `PyTorch`'s caching allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TensorsChoice {
    /// Every block; Python frames of those of 1 MiB and more.
    Auto,
    /// Every block with its Python frames.
    On,
    /// No blocks.
    Off,
}

impl From<TensorsChoice> for Tensors {
    fn from(choice: TensorsChoice) -> Self {
        match choice {
            TensorsChoice::Auto => Self::Auto,
            TensorsChoice::On => Self::On,
            TensorsChoice::Off => Self::Off,
        }
    }
}

/// Options that `run` and `attach` share.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Tracing {
    /// Trace file to write [default: vramtrace.COMMAND.PID.vrt]
    #[arg(short, long, value_name = "FILE", value_parser = trace_path)]
    pub(crate) output: Option<PathBuf>,

    /// Overwrite FILE if it exists
    #[arg(long)]
    pub(crate) force: bool,

    /// End tracing when the last traced process exits, when the server says it serves, or after a time (90s, 5m); the
    /// target goes on without probes
    #[arg(long, value_name = "exit|serving|DURATION", default_value = "exit")]
    pub(crate) until: Until,

    /// Rules of your own, before the built-in ones (docs/rules.md): which log lines are kept, and which one begins
    /// `serving`; may be given again. The trace does not hold them: give them to `report` too
    #[arg(long = "rules", value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,

    /// Record the native call stack of each allocation
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true)]
    pub(crate) native_stacks: Switch,

    /// Record the blocks of PyTorch's caching allocator: all, with the Python line of those of 1 MiB and more (auto) or
    /// of each (on); or none (off)
    #[arg(long, value_name = "auto|on|off", default_value = "auto", hide_possible_values = true)]
    pub(crate) tensors: TensorsChoice,

    /// Also probe this library (a CUDA library in a place of its own); may be given again
    #[arg(long = "lib", value_name = "PATH")]
    pub(crate) libraries: Vec<PathBuf>,

    /// Say what is done; twice: every probe
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Tracing {
    /// The file to write: the one asked for, or `vramtrace.COMMAND.PID.vrt` in the current directory.
    pub(crate) fn output_path(&self, command: &str, pid: u32) -> PathBuf {
        self.output.clone().unwrap_or_else(|| default_name(command, pid).into())
    }
}

/// `vramtrace.COMMAND.PID.vrt`, of COMMAND's last part only what is safe in a file name.
fn default_name(command: &str, pid: u32) -> String {
    let base = command.rsplit('/').next().unwrap_or(command);
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = base.chars().filter(|c| is_safe(*c)).take(40).collect();
    let name = name.trim_matches('.');
    if name.is_empty() { format!("vramtrace.{pid}.vrt") } else { format!("vramtrace.{name}.{pid}.vrt") }
}

/// A path to write a trace to. What looks like a slip of the pen is refused, with what to write instead.
pub(crate) fn trace_path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("an empty name is no file".to_owned()),
        "-" => Err("a trace goes to a file: standard output is the target's own".to_owned()),
        dash if dash.starts_with('-') => {
            Err(format!("it looks like an option; for a file of that name write ./{dash}"))
        }
        path => Ok(path.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracing_ends_at_exit_or_after_a_time() {
        assert_eq!("exit".parse(), Ok(Until::Exit));
        assert_eq!("serving".parse(), Ok(Until::Serving));
        assert_eq!("1m30s".parse(), Ok(Until::Duration(Duration::from_secs(90))));
        for text in ["Serving", "0", "", "soon", "-5"] {
            assert!(text.parse::<Until>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn default_names_are_safe() {
        assert_eq!(default_name("/usr/bin/python3", 7), "vramtrace.python3.7.vrt");
        assert_eq!(default_name("../..", 7), "vramtrace.7.vrt");
        assert_eq!(default_name("a b;$(c)\n", 7), "vramtrace.abc.7.vrt");
    }

    #[test]
    fn slips_of_the_pen_are_no_paths() {
        for text in ["", "-", "--force", "-v"] {
            assert!(trace_path(text).is_err(), "{text:?}");
        }
        assert_eq!(trace_path("./-v"), Ok(PathBuf::from("./-v")));
    }
}
