//! Memory that reacts: attributes of pages, access logs and their handlers.

use crate::boundary::{Result, call, give, optional, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::handler::{Handler, fault_access, pw_handler};
use crate::node::{node_of, pw_node};
use crate::operation::{Running, hand_over, pw_operation};
use crate::remote::{pw_remote, remote_of};
use pagewire::Node;
use pagewire_active::{AccessLog, AttributesOfTokens, Events, LogOptions, Logs, PageSetting, Serving};
use std::time::Duration;

/// What peers did to pages that name it.
pub struct pw_log {
    _opaque: [u8; 0],
}

/// A thread that serves a log.
pub struct pw_serving {
    _opaque: [u8; 0],
}

impl Object for AccessLog {
    type Opaque = pw_log;
    const MARK: u64 = u64::from_be_bytes(*b"pw_log!!");
    const NAME: &str = "access log";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<AccessLog> = Places::new();
        &PLACES
    }
}

impl Object for Serving {
    type Opaque = pw_serving;
    const MARK: u64 = u64::from_be_bytes(*b"pw_serv!");
    const NAME: &str = "serving";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<Serving> = Places::new();
        &PLACES
    }
}

/// A record whose access began after another one had ended is never handled before it, whoever made them.
pub const PW_ORDERED: u32 = 0;
/// Only the records of one source are in order.
pub const PW_UNORDERED: u32 = 1;

/// Puts go to the log with their data, and not to memory.
pub const PW_REDIRECT_PUTS: u32 = 1;
/// Puts and atomics are refused: the caller gets PW_KEY, and nothing moves.
pub const PW_REFUSE_PUTS: u32 = 2;
/// Gets and atomics are refused.
pub const PW_REFUSE_GETS: u32 = 4;
/// Puts and atomics are logged, without data.
pub const PW_LOG_PUTS: u32 = 8;
/// Puts and atomics are logged with what they write, or their operands.
pub const PW_LOG_PUT_DATA: u32 = 16;
/// Gets are logged, without data.
pub const PW_LOG_GETS: u32 = 32;
/// Gets are logged with what they return.
pub const PW_LOG_GET_DATA: u32 = 64;

/// To the last byte of the token.
pub const PW_TO_END: u64 = u64::MAX;

/// All logs of a peer (pw_flush_handled).
pub const PW_ALL_DOMAINS: u32 = u32::MAX;

/// When a thread that sleeps is woken: what comes first. A source that has less than a quarter of its space left wakes it, too, and so does a flush of handlers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_events {
    /// A source has so many records, 1 or more.
    pub threshold: u64,
    /// So many nanoseconds have passed, 1 or more.
    pub interval: u64,
}

/// What was done with a log.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct pw_counts {
    /// Records that the handler was called with.
    pub handled: u64,
    /// Of these: the handler has failed (pw_handler_failed).
    pub failed: u64,
}

/// Makes an access log. *log is NULL after an error.
///
/// bytes: space for each source, a connection of a peer; a record takes 48, and its data. A source whose space is used up waits, and nobody else does.
/// sources: how many at once, 4096 at most, or 0 for 256; one more waits until another one has left. order: PW_ORDERED or PW_UNORDERED.
///
/// PW_ARGUMENT; PW_ENGINE: the numbers cannot be, the process has had 1,024 logs, or there is no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_log_make(
    node: *mut pw_node,
    bytes: usize,
    sources: usize,
    order: u32,
    log: *mut *mut pw_log,
) -> pw_error {
    call(|| {
        let to = place(log, "log")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let mut options = LogOptions::new(bytes);
        options.is_ordered = match order {
            PW_ORDERED => true,
            PW_UNORDERED => false,
            _ => {
                return Err(Refusal::argument(format!(
                    "'order' is {order}: it must be PW_ORDERED or PW_UNORDERED"
                )));
            }
        };
        if sources > 0 {
            options.sources = sources;
        }
        let made = node.access_log_with(&options)?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(made)) };
        Ok(())
    })
}

/// Frees a log; the pointer is not valid any more. Servings go on until they are ended. Behind that nobody reads the log: its pages refuse what they would have
/// redirected, and what they would have logged goes to the fault log. NULL: nothing is done.
///
/// PW_HANDLE; PW_IN_HANDLER: a handler of the log calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_log_free(log: *mut pw_log) -> pw_error {
    if log.is_null() {
        return pw_error::PW_OK;
    }
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        if unsafe { object::<AccessLog>(log) }?.is_in_handler() {
            return Err(in_handler("pw_log_free: a handler cannot free its own log"));
        }
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        drop(unsafe { take_back::<AccessLog>(log) }?);
        Ok(())
    })
}

/// The user domain of a log, by which its records and pw_flush_handled() name it: 0 to 1023. PW_ALL_DOMAINS: the log is none, and pw_error_message() says
/// so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_log_domain(log: *const pw_log) -> u32 {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| Ok(unsafe { object::<AccessLog>(log) }?.user_domain().into()), |_| PW_ALL_DOMAINS)
}

/// Sets the attributes of pages, for accesses by a token of pw_export(). When it returns, later accesses obey, on all paths. What is not named is as in
/// ordinary memory, whatever it was before. Other tokens of the same memory are as they were.
///
/// offset, length: of the first byte, and how many: whole pages of 4,096 bytes, the first of which begins where the token's bytes do; the last one may be
/// shorter. PW_TO_END for the rest. attributes: PW_REDIRECT_PUTS and its like by OR, 0 for ordinary pages. log: which log gets the records. NULL: the fault
/// log of the process, without data; nothing can be redirected then.
///
/// PW_BOUNDS: the range cuts a page, or leaves the token's bytes; PW_ARGUMENT; PW_TOKEN; PW_ENGINE: the token is of another node, or was unexported, or a
/// stopped peer is within an access.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_set_attributes(
    node: *mut pw_node,
    token: *const pw_token,
    offset: u64,
    length: u64,
    attributes: u32,
    log: *mut pw_log,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and a token (pagewire.h).
        let (node, token) = unsafe { (node_of(node)?, token_of(token)?) };
        // SAFETY: a pointer of this library (pagewire.h).
        let log = if log.is_null() { None } else { Some(unsafe { object::<AccessLog>(log) }?) };
        let end = if length == PW_TO_END { token.length() } else { offset.saturating_add(length) };
        if offset > end {
            let length = token.length();
            let sentence = format!("attributes from byte {offset} on of a token with {length} bytes");
            return Err(Refusal::new(pw_error::PW_BOUNDS, sentence));
        }
        let described = described(node.attributes_of(&token, offset..end), attributes)?;
        match log {
            Some(log) => described.to(log)?,
            None => described.to_fault_log()?,
        }
        Ok(())
    })
}

pub(crate) fn described<'n>(mut setting: PageSetting<'n>, attributes: u32) -> Result<PageSetting<'n>> {
    type Change<'n> = fn(PageSetting<'n>) -> PageSetting<'n>;
    let changes: [(u32, Change<'n>); 7] = [
        (PW_REDIRECT_PUTS, PageSetting::redirect_puts),
        (PW_REFUSE_PUTS, PageSetting::refuse_puts),
        (PW_REFUSE_GETS, PageSetting::refuse_gets),
        (PW_LOG_PUTS, PageSetting::log_puts),
        (PW_LOG_PUT_DATA, PageSetting::log_put_data),
        (PW_LOG_GETS, PageSetting::log_gets),
        (PW_LOG_GET_DATA, PageSetting::log_get_data),
    ];
    if attributes >= 2 * PW_LOG_GET_DATA {
        let sentence = format!("'attributes' is {attributes:#x}, which has a bit that is no attribute");
        return Err(Refusal::argument(sentence));
    }
    for (_, change) in changes.into_iter().filter(|(bit, _)| attributes & bit != 0) {
        setting = change(setting);
    }
    Ok(setting)
}

/// Calls a handler with the records that there are, one after the other, but with most at most: peers may make new ones as fast as they are read. It does not
/// wait, and takes none while another thread handles one. handler: see pw_handler. counts: gets how many; NULL if nobody asks.
///
/// PW_IN_HANDLER: a handler of the log calls. PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_log_poll(
    log: *mut pw_log,
    most: usize,
    handler: pw_handler,
    context: *mut std::ffi::c_void,
    counts: *mut pw_counts,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let log = unsafe { object::<AccessLog>(log) }?;
        let to = counts_place(counts)?;
        let handler = Handler::new(handler, context)?;
        if log.is_in_handler() {
            return Err(in_handler(
                "pw_log_poll: a record is handled when the handler of the one before has returned",
            ));
        }
        let mut failed = 0;
        // SAFETY: the caller's function takes its context (pagewire.h).
        let handled = log.poll_at_most(most, |access| failed += u64::from(!unsafe { handler.call(&access) }));
        to.write(pw_counts { handled: handled as u64, failed });
        Ok(())
    })
}

/// Calls a handler with each record as it comes, in a thread of its own, which sleeps while there is none. *serving is NULL after an error.
///
/// events: when the thread is woken; NULL: at each record, and every 100 ms. handler, context: see pw_handler; they are used until pw_serving_end() has returned.
///
/// PW_ARGUMENT; PW_SYSTEM: the thread cannot start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_log_serve(
    log: *mut pw_log,
    events: *const pw_events,
    handler: pw_handler,
    context: *mut std::ffi::c_void,
    serving: *mut *mut pw_serving,
) -> pw_error {
    let start = |log: &AccessLog, handler: Handler| {
        // SAFETY: NULL, or events (pagewire.h).
        let events = unsafe { events_of(events) }?;
        // SAFETY: the caller's function takes its context in any thread (pagewire.h).
        Ok(log.serve_events(&events, move |access| unsafe { handler.call_or_unwind(&access) })?)
    };
    // SAFETY: this function's own promise.
    unsafe { serve(log, handler, context, serving, start) }
}

/// pw_log_serve() by a thread that never sleeps: the shortest time, for a processor of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_log_serve_polling(
    log: *mut pw_log,
    handler: pw_handler,
    context: *mut std::ffi::c_void,
    serving: *mut *mut pw_serving,
) -> pw_error {
    let start = |log: &AccessLog, handler: Handler| {
        // SAFETY: the caller's function takes its context in any thread (pagewire.h).
        Ok(log.serve_polling(move |access| unsafe { handler.call_or_unwind(&access) })?)
    };
    // SAFETY: this function's own promise.
    unsafe { serve(log, handler, context, serving, start) }
}

/// # Safety
/// As for [`object`]; `serving` is NULL, or a place.
unsafe fn serve(
    log: *mut pw_log,
    handler: pw_handler,
    context: *mut std::ffi::c_void,
    serving: *mut *mut pw_serving,
    start: impl FnOnce(&AccessLog, Handler) -> Result<Serving>,
) -> pw_error {
    call(|| {
        let to = place(serving, "serving")?;
        // SAFETY: the caller's place for the result, aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: `log` is NULL or a live `pw_log`: pagewire.h lets nobody free it during the call; `object` checks NULL and the mark.
        let log = unsafe { object::<AccessLog>(log) }?;
        let started = start(log, Handler::new(handler, context)?)?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(started)) };
        Ok(())
    })
}

/// # Safety
/// NULL, or events.
unsafe fn events_of(events: *const pw_events) -> Result<Events> {
    if events.is_null() {
        return Ok(Events::default());
    }
    let at = place(events.cast_mut(), "events")?;
    // SAFETY: the caller's promise; aligned and not NULL.
    let pw_events { threshold, interval } = unsafe { at.read() };
    if threshold == 0 || interval == 0 {
        return Err(Refusal::argument(
            "'events' has a threshold or an interval of 0: a thread that never sleeps is pw_log_serve_polling()",
        ));
    }
    Ok(Events { threshold, interval: Duration::from_nanos(interval) })
}

/// What a serving has done so far.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_serving_counts(serving: *mut pw_serving, counts: *mut pw_counts) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let serving = unsafe { object::<Serving>(serving) }?;
        let to = place(counts, "counts")?;
        CountsPlace(Some(to)).write(counts_of(serving.summary()));
        Ok(())
    })
}

/// Ends a serving, when its handler has returned; the pointer is not valid any more. Records that come later stay in the log. counts: gets what it has done;
/// NULL if nobody asks.
///
/// The handler itself may call it. Then it does not wait: the handler is called no more when it has returned, and counts have the record that it is at. Two
/// handlers that end each other's servings wait for each other.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_serving_end(serving: *mut pw_serving, counts: *mut pw_counts) -> pw_error {
    call(|| {
        let to = counts_place(counts)?;
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        let serving = unsafe { take_back::<Serving>(serving) }?;
        to.write(counts_of(serving.end()));
        Ok(())
    })
}

fn counts_of(summary: pagewire_active::Summary) -> pw_counts {
    pw_counts { handled: summary.handled, failed: summary.panicked }
}

/// Where counts go, if anywhere.
#[derive(Clone, Copy)]
struct CountsPlace(Option<std::ptr::NonNull<pw_counts>>);

fn counts_place(counts: *mut pw_counts) -> Result<CountsPlace> {
    Ok(CountsPlace(optional(counts, "counts")?))
}

impl CountsPlace {
    fn write(self, counts: pw_counts) {
        if let Some(place) = self.0 {
            // SAFETY: the caller's place, aligned, valid for the call (pagewire.h).
            unsafe { place.write(counts) };
        }
    }
}

fn in_handler(sentence: &str) -> Refusal {
    Refusal::new(pw_error::PW_IN_HANDLER, sentence)
}

/// Takes the records of the fault log of the process, and calls a handler with each: accesses to pages that have no log. It keeps 4,096 of them. dropped: gets
/// how many found no space there since the beginning; NULL if nobody asks.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_take_faults(
    node: *mut pw_node,
    handler: pw_handler,
    context: *mut std::ffi::c_void,
    dropped: *mut u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node: &Node = unsafe { node_of(node) }?;
        let handler = Handler::new(handler, context)?;
        let to = optional(dropped, "dropped")?;
        let (records, lost) = node.take_logged_faults();
        for record in &records {
            // SAFETY: the caller's function takes its context (pagewire.h).
            unsafe { handler.call(&fault_access(record)) };
        }
        if let Some(to) = to {
            // SAFETY: the caller's place, aligned, valid for the call (pagewire.h).
            unsafe { to.write(lost) };
        }
        Ok(())
    })
}

/// # Safety
/// As for [`object`].
unsafe fn flush(remote: *mut pw_remote, domain: u32) -> Result<Running> {
    // SAFETY: `remote` is NULL or a live `pw_remote`: pagewire.h lets nobody close it during the call; `object` checks NULL and the mark.
    let remote = unsafe { remote_of(remote) }?;
    let domain = match u16::try_from(domain) {
        Ok(domain) if domain < 1024 => Some(domain),
        _ if domain == PW_ALL_DOMAINS => None,
        _ => {
            let sentence =
                format!("'domain' is {domain}: it must be one of a log, 0 to 1023, or PW_ALL_DOMAINS");
            return Err(Refusal::argument(sentence));
        }
    };
    Ok(Running::Flushed(remote.flush_handled(domain)))
}

/// Waits until the owner's handlers have returned for all accesses to this peer that were started before. domain: only those that are in one log of the owner
/// (pw_log_domain() there), or PW_ALL_DOMAINS. It has them begin at once, whatever number of records or time their thread waits for (pw_events). It ends at once
/// where nothing was logged. What is started behind it does not wait for it. While a handler does not return it does not end, either: see
/// pw_flush_handled_start() for a bound. A handler that waits so for its own log waits for itself.
///
/// PW_ARGUMENT, PW_PEER_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_flush_handled(remote: *mut pw_remote, domain: u32) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| unsafe { flush(remote, domain) }?.wait())
}

/// Starts a flush of handlers: pw_wait_for() bounds the wait. As pw_flush_handled() and pw_put_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_flush_handled_start(
    remote: *mut pw_remote,
    domain: u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: a pointer of this library, and a place for an operation (pagewire.h).
    call(|| hand_over(unsafe { flush(remote, domain) }?, operation))
}
