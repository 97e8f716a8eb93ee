#![no_main]
//! `properties::selector` for any bytes.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::selector(bytes));
