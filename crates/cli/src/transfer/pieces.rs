//! A transfer in pieces, several of which are under way at a time and end in their order.

use super::bars::Bar;
use super::hasher::Hasher;
use crate::limits::{TRANSFER_PATIENCE, TRANSFER_PIECE, TRANSFER_TICK, TRANSFER_WINDOW};
use crate::running::interrupt;
use anyhow::{Result, bail};
use pagewire::Operation;
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// Starts the operation of a piece, whose buffer has as many bytes as are to be transferred there.
pub(super) type Start<'a> = dyn FnMut(u64, Vec<u8>) -> Result<Operation<Vec<u8>>> + 'a;

/// Transfers the bytes of a range. Each piece is started by `start`; `ended` takes each in order, and the bytes up to its end are there.
pub(super) fn transfer(
    bytes: Range<u64>,
    hasher: &mut Hasher,
    bar: &Bar,
    start: &mut Start,
    ended: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut next = bytes.start;
    let mut in_flight = VecDeque::with_capacity(TRANSFER_WINDOW);
    loop {
        while next < bytes.end && in_flight.len() < TRANSFER_WINDOW {
            let count = (bytes.end - next).min(TRANSFER_PIECE as u64);
            let buffer = hasher.buffer(count as usize)?;
            in_flight.push_back((next, start(next, buffer)?));
            next += count;
        }
        let Some((offset, operation)) = in_flight.pop_front() else { return Ok(()) };
        let buffer = wait(operation)?;
        ended(offset, &buffer)?;
        bar.set(offset + buffer.len() as u64);
        hasher.add(buffer)?;
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for an operation, but not for ever, and not when the command is interrupted.
fn wait(operation: Operation<Vec<u8>>) -> Result<Vec<u8>> {
    interrupt::check()?;
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut operation = pin!(operation);
    let deadline = Instant::now() + TRANSFER_PATIENCE;
    loop {
        match operation.as_mut().poll(&mut context) {
            Poll::Ready(Ok(buffer)) => return Ok(buffer),
            Poll::Ready(Err(error)) => return Err(pagewire::Error::from(error).into()),
            Poll::Pending => {}
        }
        std::thread::park_timeout(TRANSFER_TICK);
        interrupt::check()?;
        if Instant::now() > deadline {
            bail!(
                "nothing has come from the server for {} s: it may be stopped",
                TRANSFER_PATIENCE.as_secs()
            );
        }
    }
}
