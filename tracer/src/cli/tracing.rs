//! What `run` and `attach` share: set-up, progress, the last line.

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use tracer::{
    attach::{check::preflight, find, kernel::DriverHook, user::Invoker},
    collect::{
        drive::End,
        session::{Session, Summary},
        setup::Setup,
    },
    lifecycle::{Rules, RulesError},
    report::bytes,
};

use super::options::{Switch, Tracing, Until};

/// Where driver ioctls are read, for kernels and targets that the default does not suit: `libc`, `module`, `fuse` or
/// `syscall`.
const HOOK_ENV: &str = "VRAMTRACE_DRIVER_HOOK";

/// Time after which `attach --until serving` says what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Set-up for options, with rights checked first so that the error names the line to type.
pub(super) fn setup(options: &Tracing, output: Option<PathBuf>, owner: Option<Invoker>) -> anyhow::Result<Setup> {
    preflight()?;
    let hook = match std::env::var(HOOK_ENV) {
        Ok(text) => text.parse().map_err(|e| anyhow::anyhow!("{HOOK_ENV}: {e}"))?,
        Err(_) => DriverHook::Libc,
    };
    Ok(Setup {
        output,
        force: options.force,
        owner,
        hook,
        stacks: options.native_stacks == Switch::On,
        tensors: options.tensors.into(),
        command: Vec::new(),
        matcher: None,
        rules: rules(options)?,
        live: false,
    })
}

/// Places probes in the libraries named with `--lib`, before anything runs.
pub(super) fn place_libraries(session: &mut Session, options: &Tracing) -> anyhow::Result<()> {
    for path in &options.libraries {
        let library = find::named(path).context("--lib")?;
        session.place_library(&library)?;
    }
    Ok(())
}

/// The rules to go by. Ask for them before anything is started, so that a slip in a file costs nothing.
pub(super) fn rules(options: &Tracing) -> Result<Rules, RulesError> {
    Rules::with_files(&options.rules)
}

/// Says at once when `--until serving` will never come.
pub(super) fn warn_blind(options: &Tracing, session: &Session) {
    if let (Until::Serving, Some(why)) = (options.until, session.no_output()) {
        say!("vramtrace: log lines cannot be seen ({why}), so --until serving ends with the last process");
    }
}

/// Says what `--until serving` came to. `whose`: what goes on, or has ended.
pub(super) fn served(options: &Tracing, end: End, whose: &str) {
    match (options.until, end) {
        (Until::Serving, End::Serving) => {
            say!("vramtrace: serving: tracing has ended and all probes are gone; {whose} goes on");
        }
        (Until::Serving, End::Child | End::Processes) => {
            say!(
                "vramtrace: no log line said that {whose} serves (a rule of phase `serving`: vramtrace run --help, --rules)"
            );
        }
        _ => {}
    }
}

/// What `attach --until serving` waits for, said once when it waits long: a server that serves already does not say so again, and
/// nothing else that can be seen of it tells for sure.
pub(super) struct Waiting {
    /// When to say it; `None`: not any more.
    at: Option<Instant>,
}

impl Waiting {
    pub(super) fn new(options: &Tracing) -> Self {
        Self { at: (options.until == Until::Serving).then(|| Instant::now() + PATIENCE) }
    }

    pub(super) fn update(&mut self, session: &Session) {
        if self.at.is_some_and(|at| Instant::now() >= at) && !session.serving() {
            self.at = None;
            say!(
                "vramtrace: still waiting for a log line that says that the server serves; one that serves already does not \
                 say it again: Ctrl-C ends tracing, the server goes on"
            );
        }
    }
}

/// Longest time to trace, if it was limited.
pub(super) const fn limit(options: &Tracing) -> Option<Duration> {
    match options.until {
        Until::Exit | Until::Serving => None,
        Until::Duration(duration) => Some(duration),
    }
}

/// A line on the terminal that says what goes on; nothing where the target's own output shares it.
pub(super) struct Progress(Option<(ProgressBar, Instant)>);

impl Progress {
    pub(super) fn new(shown: bool) -> Self {
        Self((shown && std::io::stderr().is_terminal()).then(|| {
            let style =
                ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            (ProgressBar::new_spinner().with_style(style), Instant::now())
        }))
    }

    pub(super) fn update(&self, session: &Session) {
        if let Some((bar, begun)) = &self.0 {
            let (processes, seconds) = (session.live(), begun.elapsed().as_secs());
            let (events, probes) = (session.count(), session.placed());
            bar.set_message(format!(
                "{seconds} s: {processes} processes, {probes} probes, {events} events (Ctrl-C ends tracing, not the target)"
            ));
            bar.tick();
        }
    }

    pub(super) fn done(&self) {
        if let Some((bar, _)) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// `1 traced process still runs`, `2 traced processes still run`.
pub(super) fn still_running(count: usize) -> String {
    if count == 1 { "1 traced process still runs".to_owned() } else { format!("{count} traced processes still run") }
}

/// The last line: where the file is and what opens it.
pub(super) fn last_line(path: &Path, summary: Summary) {
    let lost = if summary.lost == 0 { "none lost".to_owned() } else { format!("{} LOST", summary.lost) };
    let running = match summary.running {
        0 => String::new(),
        n => format!("; {}", still_running(n)),
    };
    let (shown, size, events) = (path.display(), bytes::human(summary.bytes), summary.events);
    say!("vramtrace: wrote {shown} ({size}, {events} events, {lost}{running}). See it: vramtrace report {shown}");
}
