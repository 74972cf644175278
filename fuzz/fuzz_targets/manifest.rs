#![no_main]
//! See `longhaul_fuzz::manifest`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::manifest::run(bytes));
