#![no_main]
//! See `longhaul_fuzz::receiver`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::receiver::run(bytes));
