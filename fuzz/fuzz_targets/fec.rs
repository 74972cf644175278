#![no_main]
//! See `longhaul_fuzz::fec`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::fec::run(bytes));
