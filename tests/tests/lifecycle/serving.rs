//! `attach --until serving` beside a server that serves already, which will not say so again.

use anyhow::{Result, ensure};
use live_tests::live::{Talk, attach, wait_until};
use nix::sys::signal::Signal;

use super::start;

#[test]
fn a_long_wait_is_explained() -> Result<()> {
    let (sim, file) = start()?;
    let mut server = Talk::server(sim.command("server")?)?;
    let mut tracer = attach(&sim, &file, &["--pid", &server.server_pid().to_string(), "--until", "serving"])?;
    let mut said = String::new();
    wait_until("what it waits for", || {
        said.push_str(&tracer.errors());
        Ok(said.contains("still waiting for a log line that says that the server serves"))
    })?;
    tracer.signal(Signal::SIGINT)?;
    ensure!(tracer.wait()?.success());
    server.order("alloc 3")
}
