//! Who handles the active messages of a process: itself between its own inserts, or a thread.

use super::Looks;
use super::messages::{Inbox, Receiver};
use super::volume::OwnVolume;
use anyhow::{Context, Error, Result};
use pagewire::{Node, Token};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Own inserts between two looks, where nothing else is said.
pub(in crate::native) const INTERVAL: u32 = 8;
/// As often a process that backs off doubles that at most.
const DOUBLINGS: u32 = 5;

pub(super) enum Handling {
    /// By the process itself.
    Own(RefCell<Own>),
    Thread(Thread),
}

pub(super) struct Own {
    receiver: Receiver,
    volume: Arc<OwnVolume>,
    backs_off: bool,
    /// The least interval, and the present one.
    least: u32,
    interval: u32,
    inserts: u32,
}

pub(super) struct Thread {
    ends: Arc<AtomicBool>,
    failure: mpsc::Receiver<Error>,
    thread: Option<JoinHandle<()>>,
}

impl Handling {
    /// `to`: the volume that messages change, and the inboxes of all.
    pub fn start(
        node: &Arc<Node>,
        inbox: Arc<Inbox>,
        to: (Arc<OwnVolume>, &[Token]),
        looks: Looks,
    ) -> Result<Handling> {
        let (volume, tokens) = to;
        let receiver = Receiver::open(node, inbox.clone(), tokens)?;
        let is_woken = match looks {
            Looks::Regularly(interval) | Looks::BacksOff(interval) => {
                let backs_off = matches!(looks, Looks::BacksOff(_));
                let own = Own { receiver, volume, backs_off, least: interval, interval, inserts: 0 };
                return Ok(Handling::Own(RefCell::new(own)));
            }
            Looks::Thread => false,
            Looks::Events => true,
        };
        let (ends, (failed, failure)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let ended = ends.clone();
        let run = move || {
            if let Err(error) = serve(receiver, &volume, &inbox, (is_woken, &ended)) {
                // Whoever would read it has ended.
                let _ = failed.send(error);
            }
        };
        let thread = std::thread::Builder::new().name("active-messages".into()).spawn(run);
        let thread = Some(thread.context("a thread that handles messages")?);
        Ok(Handling::Thread(Thread { ends, failure, thread }))
    }

    /// Handles what has come, if it is time for it. `waits`: the process has nothing else to do.
    pub fn poll(&self, waits: bool) -> Result<()> {
        match self {
            Handling::Own(own) => own.borrow_mut().poll(waits),
            Handling::Thread(Thread { failure, .. }) => {
                if waits {
                    std::thread::yield_now();
                }
                failure.try_recv().map_or(Ok(()), Err)
            }
        }
    }
}

impl Own {
    fn poll(&mut self, waits: bool) -> Result<()> {
        self.inserts += 1;
        if !waits && self.inserts < self.interval {
            return Ok(());
        }
        self.inserts = 0;
        let volume = &self.volume;
        let handled = self.receiver.handle(|_, keys| insert_all(volume, keys))?;
        if self.backs_off {
            self.interval =
                if handled == 0 { (self.interval * 2).min(self.least << DOUBLINGS) } else { self.least };
        }
        if waits && handled == 0 {
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn insert_all(volume: &OwnVolume, keys: &[AtomicU64]) -> Result<()> {
    keys.iter().try_for_each(|key| volume.insert(key.load(Ordering::Relaxed)))
}

fn serve(
    mut receiver: Receiver,
    volume: &OwnVolume,
    inbox: &Inbox,
    (is_woken, ends): (bool, &AtomicBool),
) -> Result<()> {
    let mut known = 0;
    while !ends.load(Ordering::Acquire) {
        let handled = receiver.handle(|_, keys| insert_all(volume, keys))?;
        match (handled, is_woken) {
            // A message may have come behind the look: its count is above the one known before that.
            (0, true) => known = inbox.wait(known)?,
            (0, false) => std::hint::spin_loop(),
            _ => {}
        }
    }
    Ok(())
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // What it failed of is in `failure`.
            let _ = thread.join();
        }
    }
}
