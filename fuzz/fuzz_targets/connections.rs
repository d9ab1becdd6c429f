#![no_main]

use libfuzzer_sys::fuzz_target;
use pagewire_fuzz::FuzzTarget;

fuzz_target!(|bytes: &[u8]| {
    FuzzTarget::Connections.run(bytes);
});
