#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intercom_fuzzing::server_sent_events(input));
