//! See `tracer::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: tracer::fuzz::begin("pickle"), |data: &[u8]| tracer::fuzz::pickle(data));
