//! `vramtrace attach`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context as _;
use tracer::attach::user::Invoker;
use tracer::collect::{
    drive::{self, Until},
    signals::Signals,
};
use tracer::live::{
    Feed,
    http::{self, Page},
    metrics::{self, Exporter},
};

use super::{
    options::{self, Tracing},
    tracing,
    which::Which,
};

const EXAMPLES: &str = "\
EXAMPLES:
  sudo vramtrace attach --pid 4711 -o server.vrt
  sudo vramtrace attach --match 'sglang|vllm' --until 5m
  sudo vramtrace attach --match sglang --metrics 9400        http://127.0.0.1:9400/metrics

What a process held before tracing began is shown as one line, pre_attach, by NVML's figure.
Ctrl-C ends tracing; the server goes on.";

/// Trace beside a server: the processes that run now, and those they start later
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) tracing: Tracing,

    #[command(flatten)]
    pub(super) which: Which,

    /// Serve live bytes for Prometheus at /metrics of this port (of this machine alone) or address (0.0.0.0:9400)
    #[arg(long, value_name = "ADDR", value_parser = http::address)]
    pub(super) metrics: Option<SocketAddr>,
}

/// Traces until the end that was asked for.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    args.which.check()?;
    tracing::rules(&args.tracing)?;
    let signals = Signals::catch()?;
    let path = args.tracing.output_path("attach", args.which.pid.unwrap_or_else(std::process::id));
    let mut setup = tracing::setup(&args.tracing, Some(path.clone()), Invoker::from_sudo()?)?;
    setup.matcher = args.which.later();
    let mut feed = args.metrics.map(|address| metrics(args, address)).transpose()?;
    setup.live = feed.is_some();
    let mut session = setup.start()?;
    tracing::place_libraries(&mut session, &args.tracing)?;
    args.which.attach(&mut session)?;
    tracing::warn_blind(&args.tracing, &session);
    say!("vramtrace: tracing {} processes with {} probes; Ctrl-C ends it", session.live(), session.placed());
    let until = Until {
        target: None,
        limit: tracing::limit(&args.tracing),
        serving: args.tracing.until == options::Until::Serving,
        last_process: args.which.pid.is_some(),
    };
    let (progress, mut waiting) = (tracing::Progress::new(true), tracing::Waiting::new(&args.tracing));
    let end = drive::drive(&mut session, &until, &signals, |session| {
        progress.update(session);
        waiting.update(session);
        feed.iter_mut().for_each(|feed| feed.update(session));
    });
    progress.done();
    let end = end?;
    let summary = drive::finish(session, end, None)?;
    tracing::served(&args.tracing, end, "the server");
    tracing::last_line(&path, summary);
    Ok(ExitCode::SUCCESS)
}

/// Serves the ledger to come; gives what it is fed with.
fn metrics(args: &Args, address: SocketAddr) -> anyhow::Result<Feed> {
    let page = Page::default();
    let bound = http::serve(address, page.clone(), metrics::CONTENT_TYPE)
        .with_context(|| format!("--metrics: cannot serve at {address}"))?;
    let public = if http::is_public(&bound) { ", to whoever reaches this machine" } else { "" };
    say!("vramtrace: metrics at http://{bound}/metrics{public}");
    let mut exporter = Exporter::default();
    let feed = Feed::start(tracing::rules(&args.tracing)?, move |snapshot| page.set(exporter.text(&snapshot)));
    feed.context("no thread for metrics")
}
