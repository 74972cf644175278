#![no_main]
//! See `longhaul_fuzz::scenario`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::scenario::run(bytes));
