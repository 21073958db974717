#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intercom_fuzzing::overlong_scan(input));
