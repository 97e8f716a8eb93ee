#![no_main]
//! `properties::manifest` for any bytes.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::manifest(bytes));
