#![no_main]
//! See `longhaul_fuzz::transfer_frame`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::transfer_frame::run(bytes));
