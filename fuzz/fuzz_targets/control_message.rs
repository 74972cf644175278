#![no_main]
//! See `longhaul_fuzz::control_message`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::control_message::run(bytes));
