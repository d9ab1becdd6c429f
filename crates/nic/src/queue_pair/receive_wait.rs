//! How long a UC or UD message waits for a receive before it is dropped. A program that is about to post one may just not be
//! running; while it has completions to take, it has not come to what follows them.

/// Nanoseconds for a program that has taken all its completions.
const IDLE: u64 = 50_000_000;
/// Nanoseconds for one that has not.
const BEHIND: u64 = 1_000_000_000;

/// The wait of a queue pair's next message.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWait {
    since: Option<Since>,
    waits: bool,
}

#[derive(Debug, Clone, Copy)]
struct Since {
    /// No receive was there.
    begun: u64,
    /// Nor a completion that the program had still to take.
    idle: u64,
    /// When that was looked at last: what waits is looked at all the time.
    looked: u64,
}

impl ReceiveWait {
    /// Whether the message that was looked at last waits.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Before the next look: what waited may be gone.
    pub(crate) fn look_anew(&mut self) {
        self.waits = false;
    }

    /// There is a receive.
    pub(crate) fn end(&mut self) {
        *self = ReceiveWait::default();
    }

    /// There is none at the time `now`; `behind`: the program has completions to take. Gives whether the message waits on.
    pub(crate) fn go_on(&mut self, now: u64, behind: bool) -> bool {
        let anew = Since { begun: now, idle: now, looked: now };
        let since = self.since.get_or_insert(anew);
        if now.saturating_sub(since.looked) > IDLE {
            *since = anew;
        }
        since.looked = now;
        if behind {
            since.idle = now;
        }
        self.waits = now.saturating_sub(since.idle) < IDLE && now.saturating_sub(since.begun) < BEHIND;
        self.waits
    }
}
