#![no_main]
//! See `longhaul_fuzz::client_session`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::client_session::run(bytes));
