//! Completions as they come to their queues: late ones, and points at which the process ends.

use crate::calls::failures::{apply, decide, queue_pair_with, rules};
use crate::runtime::engine::Host;
use pagewire_failures::{Action, EventOpcode, FailureEvent, Point};
use pagewire_nic::{Completion, CompletionDelays, CompletionOpcode, CompletionQueue};
use std::sync::Arc;

/// Asks the rules about each completion.
struct RulesOfCompletions;

impl CompletionDelays for RulesOfCompletions {
    fn delay(&self, completion: &Completion) -> Option<u64> {
        let event = FailureEvent {
            object: queue_pair_with(completion.queue_pair),
            qp_num: Some(completion.queue_pair),
            opcode: Some(opcode_of(completion.opcode)),
            wr_id: Some(completion.wr_id),
            ..FailureEvent::at(Point::Completion)
        };
        match apply::end_or_stop(decide(&event)?)? {
            Action::Delay(delay) => Some(delay),
            other => {
                log::debug!("{other} does nothing to a completion");
                None
            }
        }
    }
}

fn opcode_of(opcode: CompletionOpcode) -> EventOpcode {
    match opcode {
        CompletionOpcode::Send => EventOpcode::Send,
        CompletionOpcode::Write => EventOpcode::RdmaWrite,
        CompletionOpcode::Read => EventOpcode::RdmaRead,
        CompletionOpcode::CompareSwap => EventOpcode::AtomicCmpAndSwp,
        CompletionOpcode::FetchAdd => EventOpcode::AtomicFetchAndAdd,
        CompletionOpcode::AtomicWrite => EventOpcode::AtomicWrite,
        CompletionOpcode::Flush => EventOpcode::Flush,
        CompletionOpcode::BindWindow => EventOpcode::BindMw,
        CompletionOpcode::LocalInvalidate => EventOpcode::LocalInv,
        CompletionOpcode::Receive => EventOpcode::Recv,
        CompletionOpcode::ReceiveWriteImmediate => EventOpcode::RecvRdmaWithImm,
    }
}

/// Has the rules asked about each completion of a queue, if one of them is about completions.
pub fn watch(queue: &CompletionQueue<Host>) {
    if rules().is_some_and(|rules| rules.concern(|point| point == Point::Completion)) {
        queue.delay_completions(Arc::new(RulesOfCompletions));
    }
}
