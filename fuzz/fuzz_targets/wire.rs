//! See `tracer::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: tracer::fuzz::begin("wire"), |data: &[u8]| tracer::fuzz::wire(data));
