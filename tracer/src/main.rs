//! The `vramtrace` command.

fn main() {}
