//! See `tracer::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: tracer::fuzz::begin("elf"), |data: &[u8]| tracer::fuzz::elf(data));
