//! `vramtrace completions` and `vramtrace man`: for packages and for one's own shell.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, io};

use anyhow::Context;
use clap_complete::Shell;

use super::output;

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace completions bash > ~/.local/share/bash-completion/completions/vramtrace
  vramtrace completions zsh > \"${fpath[1]}/_vramtrace\"
  vramtrace completions fish > ~/.config/fish/completions/vramtrace.fish";

/// Print what lets a shell complete vramtrace's commands, options and formats
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Shell to print it for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script.
pub(super) fn execute(args: &Args, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "vramtrace", &mut script);
    output::to_stdout(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Write the manual pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "EXAMPLES:\n  vramtrace man ~/.local/share/man/man1")]
pub(super) struct Man {
    /// Directory to write them to; it must exist, and pages in it are replaced
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Writes the pages.
pub(super) fn manual(args: &Man, command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    for command in shown.chain([command.clone()]) {
        let page = clap_mangen::Man::new(command);
        let path = args.directory.join(page.get_filename());
        let write = || -> io::Result<()> {
            let mut text = Vec::new();
            page.render(&mut text)?;
            // What stands after the options is examples, with a heading of its own.
            fs::write(&path, String::from_utf8_lossy(&text).replace(".SH EXTRA\nEXAMPLES:\n", ".SH EXAMPLES\n"))
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
