#![no_main]
//! See `longhaul_fuzz::journal`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::journal::run(bytes));
