//! Steps in the lives of processes.

use serde::{Deserialize, Serialize};

/// A step in a process's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// When.
    pub t: u64,
    /// Process (thread group) id, initial PID namespace.
    pub pid: u32,
    /// What happened.
    #[serde(flatten)]
    pub step: Step,
}

/// What happened to a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Tracing of it began; it ran before.
    Attached(Image),
    /// It was forked.
    Forked {
        /// Parent process id.
        parent: u32,
    },
    /// It executed a new image.
    Exec(Image),
    /// Its title (`/proc/PID/cmdline`) changed without exec.
    Title {
        /// New title.
        title: String,
    },
    /// Its last thread began to exit.
    Exit {
        /// Exit code, when it exited.
        code: Option<i32>,
        /// Signal, when one killed it.
        signal: Option<i32>,
    },
}

/// What a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// Arguments. Values that look like secrets are replaced by `***`.
    pub argv: Vec<String>,
    /// Executable's path.
    pub exe: String,
    /// Parent process id.
    pub parent: u32,
    /// Selected environment variables, `NAME=value`; secrets are left out.
    pub env: Vec<String>,
}
