//! Messages whose records are put together: a long put has several, and over udp each packet of a put has one.

use crate::access::Access;
use std::borrow::Cow;
use std::collections::HashMap;

/// Messages that are not whole yet, by source.
#[derive(Default)]
pub(crate) struct Assembler(HashMap<u64, Vec<u8>>);

impl Assembler {
    /// The message that an access of a redirecting page ends. `None`: there is more to come, or it is none.
    pub fn take<'a>(&mut self, access: &Access<'a>) -> Option<Cow<'a, [u8]>> {
        // A redirected access whose record was taken away is made again, or its source is dead.
        if access.may_have_written() || !access.was_redirected() {
            return None;
        }
        if access.is_first() && access.is_last() {
            self.0.remove(&access.source());
            return Some(access.bytes().into());
        }
        let parts = self.0.entry(access.source()).or_default();
        if access.is_first() {
            parts.clear();
        }
        parts.extend_from_slice(access.bytes());
        if access.is_last() { self.0.remove(&access.source()).map(Cow::Owned) } else { None }
    }
}
