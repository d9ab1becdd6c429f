//! What is done to all elements of a hash table, or to one of them as long as it is the expected one.

use crate::boundary::{Result, bytes_of, call, place};
use crate::error::{Refusal, pw_error};
use crate::handle::object;
use crate::table::{OpenTable, PW_ABSENT, pw_element, pw_table};
use pagewire_active::hash_table::{Element, TableCursor};
use std::ffi::{c_int, c_void};

/// Where a loop over the elements of a table is. All 0: at the beginning.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_table_cursor {
    /// The rank of the process whose elements come next.
    pub rank: usize,
    /// The hash of the key from which on they come.
    pub hash: u64,
}

/// What a loop hands the elements of a table to. The element and its bytes are good until it returns. It may call everything but pw_table_free() for the
/// table. Another value than 0 ends the loop.
pub type pw_element_function =
    Option<unsafe extern "C" fn(context: *mut c_void, element: *const pw_element) -> c_int>;

/// Hands over all elements of a table, in any order. Each element that is there during the whole loop comes exactly once, with a value that it has had
/// meanwhile. One that is inserted or deleted meanwhile comes once or not at all. The loop holds nothing that others wait for.
///
/// each: is called by this thread, with the context. PW_ARGUMENT, PW_HANDLE; as pw_table_lookup(), and then not all elements came.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_for_each(
    table: *mut pw_table,
    each: pw_element_function,
    context: *mut c_void,
) -> pw_error {
    call(|| {
        let mut cursor = TableCursor::default();
        loop {
            // SAFETY: a pointer of this library (pagewire.h).
            let part = unsafe { next_part(table, &mut cursor) }?;
            // SAFETY: a function that may be called with this context (pagewire.h).
            if part.is_empty() || !unsafe { hand_over(&part, each, context) }? {
                return Ok(());
            }
        }
    })
}

/// Hands over the next elements of a loop, some at a time, and moves its cursor behind them: for loops that are not one call, of which pw_table_for_each() says
/// what they give.
///
/// *count: gets how many they are, 0 if there are no more. each: its value is not looked at. PW_ARGUMENT, PW_HANDLE; as pw_table_lookup(), and the cursor stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_next(
    table: *mut pw_table,
    cursor: *mut pw_table_cursor,
    each: pw_element_function,
    context: *mut c_void,
    count: *mut usize,
) -> pw_error {
    call(|| {
        let (at, said) = (place(cursor, "cursor")?, place(count, "count")?);
        // SAFETY: the caller's cursor (pagewire.h), aligned and not NULL.
        let pw_table_cursor { rank, hash } = unsafe { at.read() };
        let mut next = TableCursor { rank, hash };
        // SAFETY: a pointer of this library (pagewire.h).
        let part = unsafe { next_part(table, &mut next) }?;
        for element in &part {
            // SAFETY: a function that may be called with this context (pagewire.h).
            unsafe { hand_over(std::slice::from_ref(element), each, context) }?;
        }
        // SAFETY: the caller's places (pagewire.h), aligned and not NULL.
        unsafe {
            at.write(pw_table_cursor { rank: next.rank, hash: next.hash });
            said.write(part.len());
        }
        Ok(())
    })
}

/// # Safety
/// A pointer of this library.
unsafe fn next_part(table: *mut pw_table, cursor: &mut TableCursor) -> Result<Vec<Element>> {
    // SAFETY: `table` is NULL or a live `pw_table`: pagewire.h lets nobody free it during the call; `object` checks NULL and the mark.
    let table = unsafe { object::<OpenTable>(table) }?;
    // What is called with the elements may call for the table.
    let part = table.shared().next_elements(cursor)?;
    Ok(part)
}

/// Calls a function with elements until it ends the loop: false.
///
/// # Safety
/// The function may be called with this context.
unsafe fn hand_over(part: &[Element], each: pw_element_function, context: *mut c_void) -> Result<bool> {
    let each = each.ok_or_else(|| Refusal::argument("'each' is NULL: it must be a function"))?;
    for (key, value) in part {
        let element = pw_element { key: *key, value: value.as_ptr().cast(), length: value.len() };
        // SAFETY: the caller's promise; the element and its bytes live until it returns.
        if unsafe { each(context, &element) } != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes all elements of a table, of the volumes of all processes, behind everything that this process did before. One process calls this, and others
/// need not. Each volume is emptied at one instant, but not all at the same one: what others insert meanwhile may stay or not. When this returns all are emptied.
///
/// As pw_table_flush(); as pw_table_checkpoint(), which the owner of a durable volume makes first. Then some volumes are emptied, and others have all their elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_clear(table: *mut pw_table) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<OpenTable>(table) }?.shared().clear()?))
}

/// Sets the value of a key if it is the expected one. It is atomic against all that is done to the key, by whomever, and it has happened when this returns,
/// behind everything that this process did to the same key before.
///
/// expected: of expected_length bytes. value: the new one, of length bytes. A length of PW_ABSENT stands for no value, so this inserts a key that is not there,
/// replaces or deletes a value. *was_set: gets 1, or 0 if the value is another one than expected. PW_ARGUMENT, also: the key is 0, or both values together
/// are too long; else as pw_table_insert(). Where a process is lost meanwhile it may have happened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_table_compare_and_set(
    table: *mut pw_table,
    key: u64,
    expected: *const c_void,
    expected_length: u64,
    value: *const c_void,
    length: u64,
    was_set: *mut c_int,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let table = unsafe { object::<OpenTable>(table) }?;
        let said = place(was_set, "was_set")?;
        // SAFETY: so many bytes (pagewire.h).
        let (expected, new) =
            unsafe { (value_of(expected, expected_length, "expected")?, value_of(value, length, "value")?) };
        let is_set = table.shared().compare_and_set(key, expected, new)?;
        // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
        unsafe { said.write(is_set.into()) };
        Ok(())
    })
}

/// The bytes of a value, or none.
///
/// # Safety
/// So many bytes that nobody changes during the call, unless there are none.
unsafe fn value_of<'n>(start: *const c_void, length: u64, name: &str) -> Result<Option<&'n [u8]>> {
    if length == PW_ABSENT {
        return Ok(None);
    }
    // SAFETY: `start` has `length` bytes that are valid for the call (pagewire.h); `bytes_of` checks NULL and the range.
    unsafe { bytes_of(start, length as usize, name) }.map(Some)
}
