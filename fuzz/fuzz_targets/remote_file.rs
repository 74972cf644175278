#![no_main]
//! See `longhaul_fuzz::remote_file`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::remote_file::run(bytes));
