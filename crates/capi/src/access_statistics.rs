//! Access statistics: what peers do to memory, by page and by source.

use crate::access_log::{PW_REFUSE_GETS, PW_REFUSE_PUTS};
use crate::boundary::{Result, bytes, call, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use pagewire::Node;
use pagewire_active::{AccessStatistics, Counts};
use std::ptr::NonNull;
use std::sync::Arc;

/// Counts what peers do by a token.
pub struct pw_access_statistics {
    _opaque: [u8; 0],
}

/// Statistics, and their node, which stays until they end.
pub struct Counting {
    statistics: AccessStatistics,
    _node: Arc<Node>,
}

impl Object for Counting {
    type Opaque = pw_access_statistics;
    const MARK: u64 = u64::from_be_bytes(*b"pw_coun!");
    const NAME: &str = "access statistics";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<Counting> = Places::new();
        &PLACES
    }
}

/// Puts and atomics are counted.
pub const PW_COUNT_PUTS: u32 = 1;
/// Gets are counted.
pub const PW_COUNT_GETS: u32 = 2;

/// What was counted of a page, of a source, or of all.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_access_counts {
    /// Puts that reached memory.
    pub puts: u64,
    /// Gets that were answered.
    pub gets: u64,
    /// Atomics that were executed.
    pub atomics: u64,
    /// Bytes of these puts and atomics.
    pub bytes_in: u64,
    /// Bytes of these gets.
    pub bytes_out: u64,
    /// Puts and atomics that were refused.
    pub refused_puts: u64,
    /// Gets that were refused.
    pub refused_gets: u64,
    /// Of the puts: nobody knows whether they were made, as their source has died in their midst.
    pub unsure: u64,
}

/// What was counted of a page or of a source.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_numbered_counts {
    /// Of the page, from 0 on; or of the source, as in pw_access.
    pub number: u64,
    /// What was counted.
    pub counts: pw_access_counts,
}

fn of(counts: &Counts) -> pw_access_counts {
    let Counts { puts, gets, atomics, bytes_in, bytes_out, refused_puts, refused_gets, unsure } = *counts;
    pw_access_counts { puts, gets, atomics, bytes_in, bytes_out, refused_puts, refused_gets, unsure }
}

/// Begins to count what peers do by a token of pw_export(), by pages of 4,096 bytes, the first of which begins where the token's bytes do. This sets the
/// attributes of all of its pages (pw_set_attributes), and a checkpoint of the same token sees no puts while it counts. *counting is NULL after an error.
/// The node stays until pw_access_statistics_end().
///
/// counted: PW_COUNT_PUTS, PW_COUNT_GETS, or both by OR; the others cost nothing then. refused: PW_REFUSE_PUTS, PW_REFUSE_GETS, both by OR, or 0: callers get
/// PW_KEY, and it is counted that they tried.
///
/// PW_ARGUMENT, PW_TOKEN; PW_ENGINE: the token is of another node, or was unexported, or as pw_log_make(), as it takes a log; PW_HEAP,
/// PW_NO_MEMORY, PW_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_access_statistics_start(
    node: *mut pw_node,
    token: *const pw_token,
    counted: u32,
    refused: u32,
    counting: *mut *mut pw_access_statistics,
) -> pw_error {
    call(|| {
        let to = place(counting, "counting")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library, and a token (pagewire.h).
        let (node, token) = unsafe { (node_of(node)?, token_of(token)?) };
        let mut options = AccessStatistics::of_token(node, &token);
        options = match counted {
            PW_COUNT_PUTS => options.puts_only(),
            PW_COUNT_GETS => options.gets_only(),
            _ if counted == PW_COUNT_PUTS | PW_COUNT_GETS => options,
            _ => {
                let sentence =
                    format!("'counted' is {counted}: it must be PW_COUNT_PUTS, PW_COUNT_GETS, or both by OR");
                return Err(Refusal::argument(sentence));
            }
        };
        if refused & !(PW_REFUSE_PUTS | PW_REFUSE_GETS) != 0 {
            let sentence = format!(
                "'refused' is {refused}: it must be 0, PW_REFUSE_PUTS, PW_REFUSE_GETS, or both by OR"
            );
            return Err(Refusal::argument(sentence));
        }
        if refused & PW_REFUSE_PUTS != 0 {
            options = options.refuse_puts();
        }
        if refused & PW_REFUSE_GETS != 0 {
            options = options.refuse_gets();
        }
        let started = options.start()?;
        let counting = Counting { statistics: started, _node: node.clone() };
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(counting)) };
        Ok(())
    })
}

/// Counts no more; the pointer is not valid any more. The attributes stay: what would have been refused is, and nothing else is. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_access_statistics_end(counting: *mut pw_access_statistics) -> pw_error {
    if counting.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<Counting>(counting) }.map(drop))
}

/// # Safety
/// As for [`object`]; `counts` is NULL, or a place.
unsafe fn write_counts(
    counting: *mut pw_access_statistics,
    counts: *mut pw_access_counts,
    what: impl FnOnce(&AccessStatistics) -> Counts,
) -> pw_error {
    call(|| {
        // SAFETY: `counting` is NULL or a live `pw_access_statistics`: pagewire.h lets nobody free it during the call; `object` checks the mark.
        let Counting { statistics, .. } = unsafe { object::<Counting>(counting) }?;
        let to = place(counts, "counts")?;
        // SAFETY: the caller's place, aligned and not NULL.
        unsafe { to.write(of(&what(statistics))) };
        Ok(())
    })
}

/// All that was counted. Whatever had ended at its caller before is in it.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_access_statistics_total(
    counting: *mut pw_access_statistics,
    counts: *mut pw_access_counts,
) -> pw_error {
    // SAFETY: a pointer of this library, and a place (pagewire.h).
    unsafe { write_counts(counting, counts, AccessStatistics::total) }
}

/// What was counted of a page, from 0 on: zeros for one that the token does not have. An access of several pages counts in each.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_access_statistics_page(
    counting: *mut pw_access_statistics,
    page: u64,
    counts: *mut pw_access_counts,
) -> pw_error {
    let page = usize::try_from(page).unwrap_or(usize::MAX);
    // SAFETY: a pointer of this library, and a place (pagewire.h).
    unsafe { write_counts(counting, counts, |counting| counting.page(page)) }
}

/// Sets all counters to zero, and gives the total that there was.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_access_statistics_reset(
    counting: *mut pw_access_statistics,
    counts: *mut pw_access_counts,
) -> pw_error {
    // SAFETY: a pointer of this library, and a place (pagewire.h).
    unsafe { write_counts(counting, counts, AccessStatistics::reset) }
}

/// # Safety
/// As for [`object`]; `list` has `most` places, and `count` is one, or NULL.
unsafe fn list(
    counting: *mut pw_access_statistics,
    (to, most): (*mut pw_numbered_counts, usize),
    count: *mut usize,
    what: impl FnOnce(&AccessStatistics) -> Vec<(u64, Counts)>,
) -> Result<()> {
    // SAFETY: `counting` is NULL or a live `pw_access_statistics`: pagewire.h lets nobody free it while `list` reads it.
    let Counting { statistics, .. } = unsafe { object::<Counting>(counting) }?;
    let said = place(count, "count")?;
    let first = if most == 0 { NonNull::dangling() } else { place(to, "list")? };
    bytes(to.cast(), most.saturating_mul(size_of::<pw_numbered_counts>()), "list")?;
    let all = what(statistics);
    for (index, (number, counts)) in all.iter().take(most).enumerate() {
        // SAFETY: the list has `most` places, and `index` is less.
        unsafe { first.add(index).write(pw_numbered_counts { number: *number, counts: of(counts) }) };
    }
    // SAFETY: the caller's place, aligned and not NULL.
    unsafe { said.write(all.len()) };
    Ok(())
}

/// The pages that were accessed most, and no page that was not: the first one most, of equal ones the lower.
///
/// list: most places, NULL if most is 0. *count gets how many there are. PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_access_statistics_hottest(
    counting: *mut pw_access_statistics,
    list: *mut pw_numbered_counts,
    most: usize,
    count: *mut usize,
) -> pw_error {
    let hottest = |counting: &AccessStatistics| {
        let pages = counting.hottest(most).into_iter();
        pages.map(|(page, counts)| (page as u64, counts)).collect()
    };
    // SAFETY: a pointer of this library, and places (pagewire.h).
    call(|| unsafe { self::list(counting, (list, most), count, hottest) })
}

/// What each peer did, by the number of a source of its, which is one of its connections: see pw_source_find().
///
/// list: most places, NULL if most is 0. *count gets how many peers there are, which may be more. PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_access_statistics_sources(
    counting: *mut pw_access_statistics,
    list: *mut pw_numbered_counts,
    most: usize,
    count: *mut usize,
) -> pw_error {
    // SAFETY: a pointer of this library, and places (pagewire.h).
    call(|| unsafe { self::list(counting, (list, most), count, AccessStatistics::sources) })
}

/// Makes a token by which peers read the counters with pw_open() and pw_get(): a pw_access_counts for each page. They may lag behind by what was not counted
/// yet, and nobody who counts is delayed. It ends with the statistics.
///
/// PW_ARGUMENT, PW_HANDLE; PW_ENGINE: there are too many exports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_access_statistics_export(
    counting: *mut pw_access_statistics,
    token: *mut pw_token,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let Counting { statistics, .. } = unsafe { object::<Counting>(counting) }?;
        let to = place(token, "token")?;
        let made = statistics.export()?;
        // SAFETY: the caller's place for a token (pagewire.h).
        unsafe { to.write(pw_token { bytes: made.to_bytes() }) };
        Ok(())
    })
}
