//! Asks all processes at once, each by a thread of its own: one that is stopped keeps nobody waiting.

use crate::explain::{Listener, Silence, listening};
use crate::limits::TOP_ASKED_AT_ONCE;
use crate::output::report::ProcessReport;
use anyhow::Result;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// What a process says, or why it says nothing.
#[derive(Debug)]
pub struct Answer {
    /// Who was asked.
    pub listener: Listener,
    /// Its number here, where it has one, else in its own PID namespace.
    pub pid: u32,
    /// When the answer came.
    pub at: Instant,
    /// The answer.
    pub told: Result<Vec<ProcessReport>, Silence>,
}

/// The questions that are on their way.
#[derive(Debug)]
pub struct Inquiry {
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
    /// Not yet asked.
    waiting: VecDeque<Listener>,
    /// Asked, without an answer so far.
    asked: BTreeSet<Listener>,
}

impl Default for Inquiry {
    fn default() -> Self {
        let (sender, answers) = channel();
        Inquiry { sender, answers, waiting: VecDeque::new(), asked: BTreeSet::new() }
    }
}

impl Inquiry {
    /// Asks all that there are, but for those whose answer to an earlier question is still awaited; gives all that there are.
    ///
    /// # Errors
    /// If no list of sockets can be had, or no thread can be started.
    pub fn begin(&mut self) -> Result<Vec<Listener>> {
        let present = listening()?;
        self.waiting = present.iter().filter(|listener| !self.asked.contains(listener)).cloned().collect();
        self.ask()?;
        Ok(present)
    }

    /// The next answer, if there is one before `deadline`; `None` also if none is to come.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn next(&mut self, deadline: Instant) -> io::Result<Option<Answer>> {
        if self.asked.is_empty() {
            return Ok(None);
        }
        let patience: Duration = deadline.saturating_duration_since(Instant::now());
        // The other reason of an error, that all senders are gone, cannot be: one is here.
        let Ok(answer) = self.answers.recv_timeout(patience) else { return Ok(None) };
        self.asked.remove(&answer.listener);
        self.ask()?;
        Ok(Some(answer))
    }

    fn ask(&mut self) -> io::Result<()> {
        while self.asked.len() < TOP_ASKED_AT_ONCE {
            let Some(listener) = self.waiting.pop_front() else { break };
            let (sender, question) = (self.sender.clone(), listener.clone());
            std::thread::Builder::new().name("pagewire-ask".to_owned()).spawn(move || {
                let (pid, told) = catch_unwind(AssertUnwindSafe(|| question.ask())).unwrap_or_else(|_| {
                    (question.number(), Err(Silence::Failed("its answer could not be read".to_owned())))
                });
                // Nobody waits for it when the display ends.
                let _ = sender.send(Answer { listener: question, pid, at: Instant::now(), told });
            })?;
            self.asked.insert(listener);
        }
        Ok(())
    }
}
