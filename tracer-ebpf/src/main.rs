//! BPF programs.
#![no_std]
#![no_main]
