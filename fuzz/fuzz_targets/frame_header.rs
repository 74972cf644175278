#![no_main]
//! See `longhaul_fuzz::frame_header`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::frame_header::run(bytes));
