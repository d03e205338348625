//! See `tracer::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: tracer::fuzz::begin("trace_lines"), |data: &[u8]| tracer::fuzz::trace_lines(data));
