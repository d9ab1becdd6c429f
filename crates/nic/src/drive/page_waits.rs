//! How often pages were brought in for an access that still finds them absent.
//!
//! A packet that comes again while its page is on the way is looked at again, as often as the peer repeats it. Such looks do not
//! count: an access that was tried often enough is simply made, and whoever makes it waits for the page itself.

use crate::inbox::Half;
use crate::limits::{MOST_PAGE_LOOK, PAGE_LOOK};
use arrayvec::ArrayVec;
use pagewire_paging::{Ahead, Stretch};
use std::ops::Range;
use std::sync::Arc;

/// The count of each half of a queue pair.
pub struct PageWaits([Count; 2]);

/// How often in a row pages were brought in for one half of a queue pair.
pub struct Asked {
    half: Half,
    /// Whoever finds the page absent and asks for it adds one, whoever finds it clears this.
    pub times: u32,
    /// The same for pages of a peer.
    pub far_times: u32,
    /// When the access that waits found its pages absent.
    since: Option<u64>,
    /// Counts the waits: what was brought in for an earlier one may be told late.
    wait: u8,
    /// What is brought in beyond what is accessed.
    pub ahead: Ahead,
    /// Bytes that follow what is accessed in the same transfer, where that is known.
    pub to_come: u64,
    /// Many pages of what is accessed next come while it is moved: threads may help.
    pub many_absent: bool,
    /// The last absent pages that were met were cheap.
    pub met_cheap: bool,
    /// What was brought in for them ended here.
    pub met_until: u64,
    /// What helpers bring in, the last ones of it.
    stretches: ArrayVec<Arc<Stretch>, STRETCHES>,
    /// A word for the peer.
    peer: u64,
}

/// Stretches of memory that helpers bring in for one half of a queue pair while it says how far it has come itself.
const STRETCHES: usize = 8;

impl Asked {
    /// An access waits, since `now` if this is its first time: true.
    pub fn begin_wait(&mut self, now: u64) -> bool {
        self.times += 1;
        self.is_first(now)
    }

    /// The same for pages of a peer, of which it is counted how often they were asked for in a row.
    pub fn begin_far_wait(&mut self, now: u64) -> bool {
        self.far_times += 1;
        self.is_first(now)
    }

    fn is_first(&mut self, now: u64) -> bool {
        let first = self.since.is_none();
        if first {
            (self.since, self.wait) = (Some(now), self.wait.wrapping_add(1));
        }
        first
    }

    /// Whether an access waits.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Pages that came in for an access that still waits were gone again when it was tried.
    pub fn is_in_vain(&self) -> bool {
        self.times > 1
    }

    /// The access that waited is made; for how long it waited, if it did.
    pub fn end_wait(&mut self, now: u64) -> Option<u64> {
        self.times = 0;
        self.since.take().map(|since| now.saturating_sub(since))
    }

    /// For whom pages are asked for: the queue pairs of one peer share the threads that one asker may have.
    pub fn asker(&self) -> u64 {
        self.peer << 1 | self.half as u64
    }

    /// Helpers bring this in from now on.
    pub fn add_stretch(&mut self, stretch: Arc<Stretch>) {
        if self.stretches.is_full() {
            self.stretches.remove(0);
        }
        self.stretches.push(stretch);
    }

    /// This comes in without helpers.
    pub fn reach(&mut self, own: &Range<u64>) {
        self.stretches.retain(|stretch| stretch.reach(own));
    }

    /// Where the transfer ends of which an access ends here, if that is known.
    pub fn known_end(&self, end: u64) -> Option<u64> {
        (self.to_come > 0).then(|| end.saturating_add(self.to_come))
    }

    /// The word for pages that are asked for on behalf of a queue pair with this number.
    pub fn token(&self, number: u32) -> u64 {
        u64::from(number) | u64::from(self.place()) << 32
    }

    /// The half and the wait: which of the bits that tell of them.
    fn place(&self) -> u32 {
        self.half as u32 * WAITS_TOLD + u32::from(self.wait) % WAITS_TOLD
    }
}

/// Waits of one half that are told apart.
const WAITS_TOLD: u32 = 32;

/// For whom pages with this [word](Asked::token) were brought in: a bit for the wait of one half, and the number of the queue pair.
pub fn asker(token: u64) -> (u64, u32) {
    (1 << ((token >> 32) % 64), token as u32)
}

/// Whether there are any of one half among such bits.
pub fn tells_of(waits: u64, half: Half) -> bool {
    waits >> (half as u32 * WAITS_TOLD) & u64::from(u32::MAX) != 0
}

struct Count {
    /// What [`of`](PageWaits::of) gave.
    asked: Asked,
    /// How many of these had an answer before the page was asked for again.
    answered: u32,
    /// The same of a peer's pages.
    answered_far: u32,
    /// Pages came in since `asked` was last given.
    news: bool,
    /// There was an access since [`next_look`](PageWaits::next_look) was last asked.
    tried: bool,
    /// Since when nothing new was heard of what the access waits for, as far as `next_look` knows.
    unchanged_since: Option<u64>,
}

impl Default for PageWaits {
    fn default() -> Self {
        let asked = |half| {
            let (times, far_times, since, wait, to_come, met_until, peer) = (0, 0, None, 0, 0, 0, 0);
            let (ahead, stretches) = (Ahead::default(), ArrayVec::new());
            let (many_absent, met_cheap) = (false, false);
            Asked {
                half,
                times,
                far_times,
                since,
                wait,
                ahead,
                to_come,
                many_absent,
                met_cheap,
                met_until,
                stretches,
                peer,
            }
        };
        let count = |half| {
            let (answered, answered_far, news, tried, unchanged_since) = (0, 0, false, false, None);
            Count { asked: asked(half), answered, answered_far, news, tried, unchanged_since }
        };
        PageWaits([Half::Requester, Half::Responder].map(count))
    }
}

impl PageWaits {
    /// Times in a row that pages were brought in for one half, in vain.
    pub fn of(&mut self, half: Half) -> &mut Asked {
        let count = &mut self.0[half as usize];
        if count.asked.times == 0 || count.news {
            count.answered = count.asked.times;
        }
        if count.asked.far_times == 0 || count.news {
            count.answered_far = count.asked.far_times;
        }
        (count.asked.times, count.news, count.tried) = (count.answered, false, true);
        count.asked.far_times = count.answered_far;
        (count.asked.to_come, count.asked.many_absent) = (0, false);
        &mut count.asked
    }

    /// For whom pages are brought in from now on.
    pub fn set_peer(&mut self, peer: u64) {
        for count in &mut self.0 {
            count.asked.peer = peer;
        }
    }

    /// When an access that waits for a page, and was tried since the last call, is to be tried again, whatever is heard of the page:
    /// more seldom the longer nothing is. `u64::MAX`: there is none.
    pub fn next_look(&mut self, now: u64) -> u64 {
        let mut next = u64::MAX;
        for count in &mut self.0 {
            let asked = count.asked.times > 0 || count.asked.far_times > 0;
            if !std::mem::take(&mut count.tried) {
                continue;
            }
            if !asked {
                count.unchanged_since = None;
                continue;
            }
            let waited = now.saturating_sub(*count.unchanged_since.get_or_insert(now));
            next = next.min(now + (waited / 4).clamp(PAGE_LOOK, MOST_PAGE_LOOK));
        }
        next
    }

    /// Pages came in for some waits (a bit for each, see [`asker`]), or turned out not to be mapped.
    pub fn answered(&mut self, waits: u64) {
        for count in &mut self.0 {
            if waits & 1 << count.asked.place() != 0 {
                (count.news, count.unchanged_since) = (true, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An access that finds its page absent, and asks for it.
    fn ask(waits: &mut PageWaits, half: Half) -> u32 {
        let asked = waits.of(half);
        asked.begin_wait(7);
        asked.times
    }

    /// What it asked for came in.
    fn answer(waits: &mut PageWaits, half: Half) {
        let told = tell(waits, half);
        waits.answered(told);
    }

    /// What tells of the page that is asked for now.
    fn tell(waits: &mut PageWaits, half: Half) -> u64 {
        let (told, number) = asker(waits.0[half as usize].asked.token(77));
        assert_eq!(number, 77);
        assert_eq!(
            [Half::Requester, Half::Responder].map(|which| tells_of(told, which)),
            [half == Half::Requester, half == Half::Responder]
        );
        told
    }

    #[test]
    fn only_what_had_an_answer_counts() {
        let mut waits = PageWaits::default();
        assert_eq!([(); 20].map(|()| ask(&mut waits, Half::Responder)), [1; 20]);
        answer(&mut waits, Half::Responder);
        assert_eq!([(); 20].map(|()| ask(&mut waits, Half::Responder)), [2; 20]);
        for count in 3..10 {
            answer(&mut waits, Half::Requester);
            assert_eq!(ask(&mut waits, Half::Responder), count - 1, "nothing came for this half");
            answer(&mut waits, Half::Responder);
            assert_eq!(ask(&mut waits, Half::Responder), count);
        }
        assert_eq!(ask(&mut waits, Half::Requester), 1, "the other half's are its own");
    }

    #[test]
    fn whoever_tries_no_more_does_not_wait() {
        let mut waits = PageWaits::default();
        assert_eq!(waits.next_look(0), u64::MAX);
        ask(&mut waits, Half::Responder);
        assert_eq!([(); 2].map(|()| waits.next_look(7)), [7 + PAGE_LOOK, u64::MAX]);
        waits.of(Half::Responder).times = 0;
        assert_eq!(waits.next_look(8), u64::MAX);
    }

    #[test]
    fn what_waits_long_is_looked_at_seldom_until_something_is_heard() {
        const HOUR: u64 = 3_600_000_000_000;
        let looks = |waits: &mut PageWaits, from: u64, to: u64| {
            let (mut now, mut looks) = (from, 0);
            while now < to {
                ask(waits, Half::Responder);
                now = waits.next_look(now);
                looks += 1;
            }
            looks
        };
        let mut waits = PageWaits::default();
        let at_first = looks(&mut waits, 0, 10 * PAGE_LOOK);
        assert!((7..=10).contains(&at_first), "{at_first} looks at first");
        let seldom = HOUR / MOST_PAGE_LOOK;
        let later = looks(&mut waits, 10 * PAGE_LOOK, HOUR);
        assert!((seldom..seldom + 30).contains(&later), "{later} looks in an hour");
        answer(&mut waits, Half::Responder);
        assert_eq!(looks(&mut waits, HOUR, HOUR + 10 * PAGE_LOOK), at_first, "as at first");
    }

    #[test]
    fn an_access_that_was_made_begins_anew() {
        let mut waits = PageWaits::default();
        ask(&mut waits, Half::Requester);
        answer(&mut waits, Half::Requester);
        ask(&mut waits, Half::Requester);
        waits.of(Half::Requester).end_wait(8);
        // The word of what had been asked for besides.
        answer(&mut waits, Half::Requester);
        assert_eq!(ask(&mut waits, Half::Requester), 1);
        assert_eq!(ask(&mut waits, Half::Requester), 1);
    }

    #[test]
    fn what_is_told_late_is_no_answer_to_the_next_wait() {
        for half in [Half::Requester, Half::Responder] {
            let mut waits = PageWaits::default();
            ask(&mut waits, half);
            let late = tell(&mut waits, half);
            // Somebody else brought its page in.
            waits.of(half).end_wait(8);
            ask(&mut waits, half);
            waits.answered(late);
            assert_eq!(ask(&mut waits, half), 1, "its page did not come in vain");
            let (own, both) = (tell(&mut waits, half), late | tell(&mut waits, half));
            assert_ne!(own, late);
            waits.answered(both);
            assert_eq!(ask(&mut waits, half), 2);
        }
    }
}
