#![no_main]
//! `properties::canary` for any bytes.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::canary(bytes));
