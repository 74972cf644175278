#![no_main]
//! See `longhaul_fuzz::sender`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::sender::run(bytes));
