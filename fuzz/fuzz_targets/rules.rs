//! See `tracer::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: tracer::fuzz::begin("rules"), |data: &[u8]| tracer::fuzz::rules(data));
