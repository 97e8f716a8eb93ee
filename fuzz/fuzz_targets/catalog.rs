#![no_main]
//! `properties::catalog` for any bytes.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::catalog(bytes));
