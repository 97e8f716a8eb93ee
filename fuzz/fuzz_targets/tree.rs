#![no_main]
//! `properties::tree` for any bytes.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::tree(bytes));
