#![no_main]

use libfuzzer_sys::fuzz_target;
use pagewire_fuzz::Target;

fuzz_target!(|bytes: &[u8]| {
    Target::WireRoundtrip.run(bytes);
});
