#![no_main]
//! See `longhaul_fuzz::server_session`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::server_session::run(bytes));
