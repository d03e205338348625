//! Writes a trace of a server of eight ranks that never ran: what `cargo xtask bench` reads.
//! `synthetic-trace FILE EVENTS`, of all ranks together.

use std::path::PathBuf;

use anyhow::{Context, Result};
use live_tests::synthetic::{self, Server};

const RANKS: u32 = 8;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let usage = "synthetic-trace FILE EVENTS";
    let file = PathBuf::from(args.next().context(usage)?);
    let events: u64 = args.next().and_then(|n| n.to_str()?.parse().ok()).context(usage)?;
    let server = Server { ranks: RANKS, events: events / u64::from(RANKS), hostile: false, dies: false };
    synthetic::write(&file, &server)
}
