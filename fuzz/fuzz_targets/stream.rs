#![no_main]
//! See `longhaul_fuzz::stream`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::stream::run(bytes));
