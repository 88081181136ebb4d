#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    mangrove_engine::testing::fuzzing::operations(bytes);
});
