#![no_main]
//! `properties::operations` for any bytes.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::operations(bytes));
