//! `PyTorch`'s own memory history, where there is a GPU.

use std::process::Command;

use super::Bench;
use crate::command::{output, root};

/// What it costs a block, in a line; or why that was not measured. Never a number that was not.
pub(super) fn line(bench: &Bench<'_>) -> String {
    let mut command = Command::new(&bench.args.python);
    command.arg(root().join("tests/programs/torch_history.py"));
    match output(&mut command) {
        Ok(text) => text,
        Err(error) => {
            let error = error.to_string();
            let why = error.lines().last().unwrap_or_default().rsplit("not run: ").next().unwrap_or_default();
            format!("PyTorch's memory history: not run: {why}")
        }
    }
}
