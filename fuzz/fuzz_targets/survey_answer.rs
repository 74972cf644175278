#![no_main]
//! See `longhaul_fuzz::survey_answer`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::survey_answer::run(bytes));
