#![no_main]
//! `properties::operations` for a store with a planted bug: it must be found.

use store_core::StoreOptions;
use store_core::planted::Bug;

fn planted() -> StoreOptions {
    StoreOptions::new().planted(Bug::WrongParent)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| genstore_tests::properties::operations_with(
    bytes, &planted
));
