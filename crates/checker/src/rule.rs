//! The rules: what each asks for, and where that stands.

use strum::{EnumIter, EnumString, IntoStaticStr};

/// What a program is expected to do, and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Rule {
    /// An object is there when the program exits.
    LeftObject,
    /// Completions are in a completion queue when the program exits.
    UnpolledCompletions,
    /// Events were taken and not acknowledged.
    UnacknowledgedEvents,
    /// A work request names the local key of a region that was deregistered.
    DeregisteredKey,
    /// A request failed because the region of its remote key was deregistered.
    DeregisteredRemoteKey,
    /// A work request was posted in a state that refuses it.
    WrongState,
    /// More signaled requests than entries of their completion queue.
    SmallCompletionQueue,
    /// A completion found its queue full.
    CompletionQueueOverrun,
    /// A region was deregistered that an outstanding work request names.
    BusyRegion,
    /// A send queue full of unsignaled requests.
    UnsignaledQueue,
    /// An object was used after its end.
    EndedObject,
    /// The bytes of a request changed before its completion.
    ChangedBuffer,
}

impl Rule {
    /// The name, such as `left-object`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The rule with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// All rules.
    pub fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }

    /// What it asks for, in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Rule::LeftObject => "Whoever creates, allocates, registers or opens an object also ends it.",
            Rule::UnpolledCompletions => {
                "A completion says whether its request succeeded, and only polling shows it."
            }
            Rule::UnacknowledgedEvents => {
                "Each event that was taken is acknowledged; the destruction of its object waits for that."
            }
            Rule::DeregisteredKey => {
                "The local key of each scatter-gather element is that of a registered region."
            }
            Rule::DeregisteredRemoteKey => "A region stays registered until no peer accesses it any more.",
            Rule::WrongState => {
                "A queue pair takes send requests from RTS on, and receive requests from INIT on; before, it refuses them."
            }
            Rule::SmallCompletionQueue => {
                "A completion queue has an entry for each completion that may be in it at one time."
            }
            Rule::CompletionQueueOverrun => {
                "A completion queue that is full when a completion comes is in error, with its queue pairs."
            }
            Rule::BusyRegion => {
                "A region stays registered until the work requests that name it have completed."
            }
            Rule::UnsignaledQueue => {
                "Requests leave a send queue when a later signaled one completes and is polled: one in each queue length is signaled."
            }
            Rule::EndedObject => "Nobody uses an object after its end, nor one of a device that was closed.",
            Rule::ChangedBuffer => {
                "The buffers of a request may be written only after its completion was polled."
            }
        }
    }

    /// Where that stands.
    pub fn source(self) -> &'static str {
        match self {
            Rule::LeftObject => {
                "ibv_open_device(3), ibv_alloc_pd(3), ibv_reg_mr(3), ibv_create_cq(3), ibv_create_qp(3)"
            }
            Rule::UnpolledCompletions => "ibv_poll_cq(3)",
            Rule::UnacknowledgedEvents => "ibv_get_cq_event(3), ibv_get_async_event(3)",
            Rule::DeregisteredKey | Rule::DeregisteredRemoteKey => "ibv_reg_mr(3), ibv_post_send(3)",
            Rule::WrongState => "ibv_modify_qp(3); InfiniBand specification, volume 1, 10.3.1",
            Rule::SmallCompletionQueue | Rule::CompletionQueueOverrun => "ibv_create_cq(3), ibv_poll_cq(3)",
            Rule::BusyRegion | Rule::ChangedBuffer => "ibv_post_send(3)",
            Rule::UnsignaledQueue => "ibv_post_send(3), ibv_create_qp(3)",
            Rule::EndedObject => "ibv_destroy_qp(3), ibv_destroy_cq(3), ibv_dereg_mr(3), ibv_close_device(3)",
        }
    }

    /// How to mend it.
    pub fn remedy(self) -> &'static str {
        match self {
            Rule::LeftObject => "End it before the exit, after all that was made from it.",
            Rule::UnpolledCompletions => "Poll the queue until it is empty before the exit.",
            Rule::UnacknowledgedEvents => {
                "Call ibv_ack_cq_events or ibv_ack_async_event for each event that was taken."
            }
            Rule::DeregisteredKey => {
                "Take the key from the region that is registered now, or deregister later."
            }
            Rule::DeregisteredRemoteKey => {
                "Let the peer say that it is done before the region is deregistered."
            }
            Rule::WrongState => "Call ibv_modify_qp with the states in their order first.",
            Rule::SmallCompletionQueue | Rule::CompletionQueueOverrun => {
                "Create the queue with as many entries as requests may be outstanding, or poll before more are posted."
            }
            Rule::BusyRegion => "Poll the completion first, or destroy the queue pair first.",
            Rule::UnsignaledQueue => {
                "Set IBV_SEND_SIGNALED at least once in max_send_wr requests, and poll its completion."
            }
            Rule::EndedObject => {
                "End objects once, in the reverse order of their creation, when no thread uses them."
            }
            Rule::ChangedBuffer => {
                "Use another buffer until the completion was polled, or send the data inline."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for rule in Rule::all() {
            assert_eq!(Rule::from_name(rule.name()), Some(rule));
        }
        assert_eq!(Rule::LeftObject.name(), "left-object");
    }

    #[test]
    fn texts_are_sentences() {
        for rule in Rule::all() {
            for text in [rule.sentence(), rule.remedy()] {
                assert!(text.ends_with('.') && text.starts_with(char::is_uppercase), "{text}");
            }
        }
    }
}
