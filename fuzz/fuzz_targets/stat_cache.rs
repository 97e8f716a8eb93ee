#![no_main]
//! `properties::stat_cache` for any bytes.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::stat_cache(bytes));
