//! Builds the simulated libraries and programs, and prints the directory they are in.

use live_tests::shims;

fn main() -> anyhow::Result<()> {
    println!("{}", shims::build()?.display());
    Ok(())
}
