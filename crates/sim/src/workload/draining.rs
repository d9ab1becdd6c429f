//! Queue pairs that go through SQD (`ibv_modify_qp(3)`): what was begun is finished, what is posted meanwhile waits.

use super::connection::SqdPause;
use super::driver::Workload;
use super::{Violation, WorkloadStage};
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::{QpState, QueuePairChange};

/// Nanoseconds in which what was begun must be finished.
const DRAIN_TIME: u64 = 20_000_000_000;
/// Nanoseconds that a queue pair rests at most once it is drained.
const REST: u64 = 300_000;

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Moves one end from RTS to SQD.
    pub(super) fn pause(&mut self, connection: usize, side: usize) -> Result<(), Violation> {
        let link = &self.connections[connection];
        let end = &link.ends[side];
        if end.pause.is_some() || end.failed || link.may_fail {
            return Ok(());
        }
        let party = end.party;
        self.stage.note(connection, &|| format!("party {party} drains its queue pair"));
        self.modify_running(connection, side, QpState::SendQueueDrain, Some(true))?;
        let since = self.stage.now();
        let pause = SqdPause { first: self.next_id, since, drained: false, until: 0 };
        self.connections[connection].ends[side].pause = Some(pause);
        self.report.drains += 1;
        Ok(())
    }

    /// The engine says that the queue pair of this number has drained.
    pub(super) fn drained(&mut self, party: usize, number: u32) -> Result<(), Violation> {
        // What completed before is still in the queues.
        self.poll(party)?;
        let Some((connection, side)) = self.by_number.get(&(party, number)).copied() else { return Ok(()) };
        let until = self.stage.now() + self.random.u64(0..REST);
        let Some(pause) = &mut self.connections[connection].ends[side].pause else { return Ok(()) };
        let again = pause.drained;
        (pause.drained, pause.until) = (true, until);
        if again {
            self.at = Some(connection);
            return Err(self.violation("a queue pair says twice that it has drained".to_owned()));
        }
        Ok(())
    }

    /// No request succeeds that was posted after its queue pair went to SQD, and none at all once that has drained.
    pub(super) fn check_pause(&self, connection: usize, side: usize, id: u64) -> Result<(), Violation> {
        match self.connections[connection].ends[side].pause {
            Some(pause) if pause.drained || id >= pause.first => {
                Err(self.violation(format!("request {id} succeeds in SQD: {pause:?}")))
            }
            _ => Ok(()),
        }
    }

    /// Moves ends that have drained and rested back to RTS. True: it did.
    pub(super) fn go_on(&mut self, connection: usize) -> Result<bool, Violation> {
        let now = self.stage.now();
        let mut acted = false;
        for side in 0..2 {
            let end = &self.connections[connection].ends[side];
            let Some(pause) = end.pause.filter(|_| !self.parties[end.party].dead) else { continue };
            if pause.drained && now >= pause.until {
                let party = end.party;
                // Nothing may have been done since.
                self.poll(party)?;
                if self.connections[connection].ends[side].pause.take().is_some() {
                    self.stage.note(connection, &|| format!("party {party} goes on with its queue pair"));
                    self.modify_running(connection, side, QpState::ReadyToSend, None)?;
                    acted = true;
                }
            } else if !pause.drained && now > pause.since + DRAIN_TIME {
                return Err(self.violation(format!("a queue pair does not drain:{}", self.describe())));
            }
        }
        Ok(acted)
    }

    fn modify_running(
        &mut self,
        connection: usize,
        side: usize,
        state: QpState,
        drained_notify: Option<bool>,
    ) -> Result<(), Violation> {
        let end = &self.connections[connection].ends[side];
        let (party, queue_pair) = (end.party, end.queue_pair.clone());
        let change = QueuePairChange { state: Some(state), drained_notify, ..QueuePairChange::default() };
        match queue_pair.modify(&change) {
            Ok(()) => Ok(()),
            // It ended by itself a moment ago; its completions will tell.
            Err(_) if queue_pair.state() == QpState::Error || !self.stage.is_alive(party) => Ok(()),
            Err(error) => Err(self.violation(format!("a queue pair cannot go to {state:?}: {error}"))),
        }
    }
}
