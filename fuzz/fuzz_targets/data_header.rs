#![no_main]
//! See `longhaul_fuzz::data_header`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::data_header::run(bytes));
