#![no_main]
//! See `longhaul_fuzz::channel`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::channel::run(bytes));
