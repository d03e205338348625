//! See `tracer::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: tracer::fuzz::begin("foreign"), |data: &[u8]| tracer::fuzz::foreign(data));
