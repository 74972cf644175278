#![no_main]
//! See `longhaul_fuzz::share`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::share::run(bytes));
