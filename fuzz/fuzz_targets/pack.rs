#![no_main]
//! `properties::pack` for any bytes.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::pack(bytes));
