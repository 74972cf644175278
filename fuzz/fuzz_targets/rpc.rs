#![no_main]
//! See `longhaul_fuzz::rpc`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::rpc::run(bytes));
