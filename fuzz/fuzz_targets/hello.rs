#![no_main]
//! See `longhaul_fuzz::hello`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::hello::run(bytes));
