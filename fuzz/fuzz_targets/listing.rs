#![no_main]
//! See `longhaul_fuzz::listing`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::listing::run(bytes));
