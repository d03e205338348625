//! `cargo xtask demo`.
pub(crate) fn main() -> anyhow::Result<()> {
    anyhow::bail!("to come")
}
