//! Operations that were started.

use crate::boundary::{Result, call, ffi_call, place};
use crate::error::{Refusal, pw_error};
use crate::handle::{Object, Places, hand_out, object, take_back};
use pagewire::raw::RawBuffer;
use pagewire::{Acceptance, Canceller, HeldWrite, Operation, Waitable};
use parking_lot::Mutex;
use std::ffi::c_int;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// An operation that was started.
pub struct pw_operation {
    _opaque: [u8; 0],
}

/// What stands behind a pw_operation.
pub struct Started {
    pub(crate) state: Mutex<State>,
    /// Of a conditional write: other threads end it by this while one waits.
    pub canceller: Option<Canceller>,
}

/// What is known of an operation.
pub enum State {
    Running(Running),
    Ended(Result<()>),
}

/// An operation by what it gives.
pub enum Running {
    Buffer(Operation<RawBuffer>),
    Signal(Operation<()>),
    Word(Operation<u64>, WordPlace),
    SignedWord(Operation<i64>, WordPlace<i64>),
    Half(Operation<u32>, WordPlace<u32>),
    SignedHalf(Operation<i32>, WordPlace<i32>),
    /// A flush of handlers.
    Flushed(Operation<Vec<u64>>),
    Held(HeldWrite<RawBuffer>),
    Acceptance(Acceptance, WordPlace),
}

/// Where the word of an atomic goes, if anywhere.
#[derive(Clone, Copy)]
pub struct WordPlace<W = u64>(Option<NonNull<W>>);

// SAFETY: an address; whoever takes the result of the operation writes there, and the caller has promised that it may be (pagewire.h).
unsafe impl<W> Send for WordPlace<W> {}

impl<W> WordPlace<W> {
    /// A place for the word, or NULL.
    pub fn new(word: *mut W) -> Result<Self> {
        if word.is_null() { Ok(WordPlace(None)) } else { Ok(WordPlace(Some(place(word, "before")?))) }
    }

    fn write(self, word: W) {
        if let Some(place) = self.0 {
            // SAFETY: the caller's place, aligned, valid until the result is taken (pagewire.h).
            unsafe { place.write(word) };
        }
    }
}

impl Object for Started {
    type Opaque = pw_operation;
    const MARK: u64 = u64::from_be_bytes(*b"pw_oper!");
    const NAME: &str = "operation";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<Started> = Places::new();
        &PLACES
    }
}

impl Running {
    /// Waits for the end.
    pub fn wait(self) -> Result<()> {
        match self {
            Running::Buffer(operation) => drop(operation.wait()?),
            Running::Signal(operation) => operation.wait()?,
            Running::Word(operation, place) => place.write(operation.wait()?),
            Running::SignedWord(operation, place) => place.write(operation.wait()?),
            Running::Half(operation, place) => place.write(operation.wait()?),
            Running::SignedHalf(operation, place) => place.write(operation.wait()?),
            Running::Flushed(operation) => drop(operation.wait()?),
            Running::Held(held) => drop(held.wait().into_result()?),
            Running::Acceptance(released, place) => place.write(released.wait()?),
        }
        Ok(())
    }

    /// Waits for the end, for so long at most. False: it has not come.
    fn ends_within(&self, patience: Duration) -> Result<bool> {
        Ok(match self {
            Running::Buffer(operation) => operation.ends_within(patience),
            Running::Signal(operation) => operation.ends_within(patience),
            Running::Word(operation, _) => operation.ends_within(patience),
            Running::SignedWord(operation, _) => operation.ends_within(patience),
            Running::Half(operation, _) => operation.ends_within(patience),
            Running::SignedHalf(operation, _) => operation.ends_within(patience),
            Running::Flushed(operation) => operation.ends_within(patience),
            Running::Held(held) => held.ends_within(patience),
            Running::Acceptance(released, _) => released.ends_within(patience)?,
        })
    }

    fn is_done(&self) -> bool {
        match self {
            Running::Buffer(operation) => operation.is_done(),
            Running::Signal(operation) => operation.is_done(),
            Running::Word(operation, _) => operation.is_done(),
            Running::SignedWord(operation, _) => operation.is_done(),
            Running::Half(operation, _) => operation.is_done(),
            Running::SignedHalf(operation, _) => operation.is_done(),
            Running::Flushed(operation) => operation.is_done(),
            Running::Held(held) => held.is_done(),
            Running::Acceptance(released, _) => released.is_done(),
        }
    }

    /// For waits for several.
    pub fn waitable(&self) -> &dyn Waitable {
        match self {
            Running::Buffer(operation) => operation,
            Running::Signal(operation) => operation,
            Running::Word(operation, _) => operation,
            Running::SignedWord(operation, _) => operation,
            Running::Half(operation, _) => operation,
            Running::SignedHalf(operation, _) => operation,
            Running::Flushed(operation) => operation,
            Running::Held(held) => held,
            Running::Acceptance(released, _) => released,
        }
    }

    /// Has somebody woken at the end, or gives the result.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Running::Buffer(operation) => {
                Pin::new(operation).poll(context).map(|end| end.map(drop).map_err(Refusal::from))
            }
            Running::Signal(operation) => Pin::new(operation).poll(context).map_err(Refusal::from),
            Running::Flushed(operation) => {
                Pin::new(operation).poll(context).map(|end| end.map(drop).map_err(Refusal::from))
            }
            Running::Word(operation, place) => poll_word(operation, *place, context),
            Running::SignedWord(operation, place) => poll_word(operation, *place, context),
            Running::Half(operation, place) => poll_word(operation, *place, context),
            Running::SignedHalf(operation, place) => poll_word(operation, *place, context),
            Running::Held(held) => Pin::new(held)
                .poll(context)
                .map(|outcome| outcome.into_result().map(drop).map_err(Refusal::from)),
            Running::Acceptance(released, place) => {
                let place = *place;
                Pin::new(released)
                    .poll(context)
                    .map(|end| end.map(|length| place.write(length)).map_err(Refusal::from))
            }
        }
    }
}

fn poll_word<W: Send + 'static>(
    operation: &mut Operation<W>,
    place: WordPlace<W>,
    context: &mut Context<'_>,
) -> Poll<Result<()>> {
    let end = Pin::new(operation).poll(context);
    end.map(|end| end.map(|word| place.write(word)).map_err(Refusal::from))
}

/// Gives C an operation. Without a place for it nobody asks for its result, which a flush tells then.
pub(crate) fn hand_over(running: Running, operation: *mut *mut pw_operation) -> Result<()> {
    if operation.is_null() {
        return Ok(());
    }
    let to = place(operation, "operation")?;
    let canceller = if let Running::Held(held) = &running { Some(held.canceller()) } else { None };
    let started = Started { state: Mutex::new(State::Running(running)), canceller };
    // SAFETY: the caller's place for the operation (pagewire.h).
    unsafe { to.write(hand_out(started)) };
    Ok(())
}

impl Started {
    /// The result, for which `wait` waits if it is not there yet.
    fn wait(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let State::Ended(result) = &*state {
            return result.clone();
        }
        let running = std::mem::replace(&mut *state, State::Ended(Err(interrupted())));
        let State::Running(running) = running else { return Err(interrupted()) };
        let result = running.wait();
        *state = State::Ended(result.clone());
        result
    }

    /// [`wait`](Self::wait) for so long at most. `None`: it has not ended.
    pub fn wait_within(&self, patience: Duration) -> Option<Result<()>> {
        let start = Instant::now();
        // Another thread may wait for it.
        let state = self.state.try_lock_for(patience)?;
        if let State::Running(running) = &*state {
            match running.ends_within(patience.saturating_sub(start.elapsed())) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(refusal) => return Some(Err(refusal)),
            }
        }
        drop(state);
        Some(self.wait())
    }
}

pub(crate) fn unfinished() -> Refusal {
    Refusal::new(pw_error::PW_UNFINISHED, "the operation has not ended yet")
}

fn interrupted() -> Refusal {
    Refusal::new(pw_error::PW_DEFECT, "the operation was lost in a defect of Pagewire")
}

/// Waits until the operation has ended: the bytes are visible at the target, or at the caller for a get. It may be called again, and gives
/// the same. pw_operation_free() frees the operation.
///
/// The failure of the operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_wait(operation: *mut pw_operation) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    ffi_call(|| unsafe { object::<Started>(operation) }?.wait())
}

/// pw_wait() for so many nanoseconds at most: PW_UNFINISHED if the operation has not ended by then. For waits that something else may interrupt.
///
/// PW_UNFINISHED; the failure of the operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_wait_for(operation: *mut pw_operation, nanoseconds: u64) -> pw_error {
    ffi_call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let started = unsafe { object::<Started>(operation) }?;
        started.wait_within(Duration::from_nanos(nanoseconds)).unwrap_or_else(|| Err(unfinished()))
    })
}

/// Whether the operation has ended: PW_UNFINISHED if not, else as pw_wait(). It polls the engine once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_test(operation: *mut pw_operation) -> pw_error {
    ffi_call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let started = unsafe { object::<Started>(operation) }?;
        match started.state.try_lock().as_deref() {
            // Another thread waits for it.
            None => return Err(unfinished()),
            Some(State::Running(running)) if !running.is_done() => return Err(unfinished()),
            Some(_) => {}
        }
        started.wait()
    })
}

/// Has 8 bytes (the number 1) written to a descriptor once the operation has ended, or at once if it has: for an eventfd(2) in an event loop.
/// pw_test() then gives the result. The descriptor must stay open until then, and must not block.
///
/// PW_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_notify(operation: *mut pw_operation, descriptor: c_int) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let started = unsafe { object::<Started>(operation) }?;
        if descriptor < 0 {
            return Err(Refusal::argument("'descriptor' is negative"));
        }
        let waker = Waker::from(Arc::new(EndDescriptor(descriptor)));
        let mut state = started.state.lock();
        let ended = match &mut *state {
            State::Ended(_) => None,
            State::Running(running) => match running.poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Ok(()),
                Poll::Ready(result) => Some(result),
            },
        };
        if let Some(result) = ended {
            *state = State::Ended(result);
        }
        waker.wake();
        Ok(())
    })
}

/// A descriptor that is written to when an operation has ended.
struct EndDescriptor(c_int);

impl Wake for EndDescriptor {
    fn wake(self: Arc<Self>) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes of this frame.
        let written = unsafe { libc::write(self.0, one.as_ptr().cast(), one.len()) };
        // An eventfd that is full is readable, as it should be.
        if written < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::WouldBlock {
            log::warn!("descriptor {}: {}", self.0, std::io::Error::last_os_error());
        }
    }
}

/// Frees an operation; the pointer is not valid any more. One that has not ended goes on, and still needs its buffer: pw_flush() waits for it
/// and tells its failure. NULL: nothing is done.
///
/// PW_HANDLE: it was freed before. That is noticed as long as its place is not used for another operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_operation_free(operation: *mut pw_operation) -> pw_error {
    if operation.is_null() {
        return pw_error::PW_OK;
    }
    ffi_call(|| {
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        drop(unsafe { take_back::<Started>(operation) }?);
        Ok(())
    })
}
