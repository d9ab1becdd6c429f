//! How often pages were brought in for an access that still finds them absent.
//!
//! A packet that comes again while its page is on the way is looked at again, as often as the peer repeats it. Such looks do not
//! count: an access that was tried often enough is simply made, and whoever makes it waits for the page itself.

use crate::inbox::Half;

/// The count of each half of a queue pair.
#[derive(Default)]
pub struct PageWaits([Count; 2]);

#[derive(Default)]
struct Count {
    /// What [`of`](PageWaits::of) gave: whoever finds the page absent and asks for it adds one, whoever finds it clears this.
    asked: u32,
    /// How many of these had an answer before the page was asked for again.
    answered: u32,
    /// Pages came in since `asked` was last given.
    news: bool,
    /// There was an access since [`is_waiting`](PageWaits::is_waiting) was last asked.
    tried: bool,
}

impl PageWaits {
    /// Times in a row that pages were brought in for one half, in vain.
    pub fn of(&mut self, half: Half) -> &mut u32 {
        let count = &mut self.0[half as usize];
        if count.asked == 0 || count.news {
            count.answered = count.asked;
        }
        (count.asked, count.news, count.tried) = (count.answered, false, true);
        &mut count.asked
    }

    /// Whether an access that was tried since the last call waits for a page.
    pub fn is_waiting(&mut self) -> bool {
        let mut waits = false;
        for count in &mut self.0 {
            waits |= std::mem::take(&mut count.tried) && count.asked > 0;
        }
        waits
    }

    /// Pages came in for one of the halves, or turned out not to be mapped. Which one is not told; the other one's count is
    /// one too high then, for as long as it waits.
    pub fn answered(&mut self) {
        for count in &mut self.0 {
            count.news = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An access that finds its page absent, and asks for it.
    fn ask(waits: &mut PageWaits, half: Half) -> u32 {
        let waits = waits.of(half);
        *waits += 1;
        *waits
    }

    #[test]
    fn only_what_had_an_answer_counts() {
        let mut waits = PageWaits::default();
        assert_eq!([(); 20].map(|()| ask(&mut waits, Half::Responder)), [1; 20]);
        waits.answered();
        assert_eq!([(); 20].map(|()| ask(&mut waits, Half::Responder)), [2; 20]);
        for count in 3..10 {
            waits.answered();
            assert_eq!(ask(&mut waits, Half::Responder), count);
        }
        assert_eq!(ask(&mut waits, Half::Requester), 1, "the other half's are its own");
    }

    #[test]
    fn whoever_tries_no_more_does_not_wait() {
        let mut waits = PageWaits::default();
        assert!(!waits.is_waiting());
        ask(&mut waits, Half::Responder);
        assert_eq!([waits.is_waiting(), waits.is_waiting()], [true, false]);
        *waits.of(Half::Responder) = 0;
        assert!(!waits.is_waiting());
    }

    #[test]
    fn an_access_that_was_made_begins_anew() {
        let mut waits = PageWaits::default();
        ask(&mut waits, Half::Requester);
        waits.answered();
        ask(&mut waits, Half::Requester);
        *waits.of(Half::Requester) = 0;
        // The word of what had been asked for besides.
        waits.answered();
        assert_eq!(ask(&mut waits, Half::Requester), 1);
        assert_eq!(ask(&mut waits, Half::Requester), 1);
    }
}
