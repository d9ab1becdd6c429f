//! Distributed transactions on cells of several stores.

use crate::boundary::{Result, array, bytes, bytes_of, call, give, optional, path_of, place};
use crate::error::{Refusal, pw_error};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use pagewire::Node;
use pagewire_experimental::transactions::{
    Client, MAX_VALUE, ServedStore, Steps, Store, StoreOptions, StoreToken, TransactionError,
};
use parking_lot::Mutex;
use std::ffi::{c_char, c_void};
use std::io::ErrorKind;
use std::sync::Arc;

/// Cells of this process, which transactions of any process get and put.
pub struct pw_transaction_store {
    _opaque: [u8; 0],
}

/// Who makes transactions on the cells of stores, one at a time.
pub struct pw_transaction_client {
    _opaque: [u8; 0],
}

/// What becomes of a store.
enum State {
    Made(Box<Store>),
    Served(ServedStore),
    /// It could not be served.
    Failed,
}

/// A store, and its node, which stays until the store is freed.
pub struct OwnStore {
    state: Mutex<State>,
    token: StoreToken,
    value_bytes: usize,
    node: Arc<Node>,
}

impl Object for OwnStore {
    type Opaque = pw_transaction_store;
    const MARK: u64 = u64::from_be_bytes(*b"pw_store");
    const NAME: &str = "store";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OwnStore> = Places::new();
        &PLACES
    }
}

/// A client, and its node, which stays until the client is closed.
pub struct OpenClient {
    steps: Mutex<Steps>,
    _node: Arc<Node>,
}

impl Object for OpenClient {
    type Opaque = pw_transaction_client;
    const MARK: u64 = u64::from_be_bytes(*b"pw_clien");
    const NAME: &str = "client of stores";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OpenClient> = Places::new();
        &PLACES
    }
}

/// Bytes of a value of a cell at most.
pub const PW_MOST_CELL_BYTES: usize = 4096;

const _: () = assert!(PW_MOST_CELL_BYTES == MAX_VALUE);

/// What a store is made of.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_transaction_store_options {
    /// Cells, 1 or more.
    pub cells: u32,
    /// Bytes of the value of each: a multiple of 8, at most PW_MOST_CELL_BYTES.
    pub value_bytes: usize,
    /// The file in which what is committed survives the death of the process. NULL: it does not.
    pub journal: *const c_char,
}

/// Bytes of a token of a store.
pub const PW_TRANSACTION_STORE_TOKEN_SIZE: usize = 116;

/// What clients and other stores need to reach a store: plain bytes, to be sent by any means.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pw_transaction_store_token {
    /// Opaque.
    pub bytes: [u8; PW_TRANSACTION_STORE_TOKEN_SIZE],
}

const _: () = assert!(PW_TRANSACTION_STORE_TOKEN_SIZE == StoreToken::LEN);

impl From<TransactionError> for Refusal {
    fn from(error: TransactionError) -> Self {
        let code = match error {
            TransactionError::Setup(error) => return error.into(),
            TransactionError::Conflict => pw_error::PW_CONFLICT,
            TransactionError::StoreLost { .. } => pw_error::PW_PEER_LOST,
            TransactionError::Unknown { .. } => pw_error::PW_UNDECIDED,
            TransactionError::Range { .. }
            | TransactionError::Length { .. }
            | TransactionError::NotStarted => pw_error::PW_ARGUMENT,
        };
        Refusal::new(code, error.to_string())
    }
}

/// Makes the memory of a store, whose values are zeros. All owners tell each other their tokens (pw_transaction_store_export), and call pw_transaction_store_serve() then. *store is NULL after an
/// error. The node stays until pw_transaction_store_free().
///
/// PW_ARGUMENT; PW_LIMIT: the cells take more than 1 GiB, with 128 bytes for each beside its value; PW_NO_MEMORY, PW_HEAP; as pw_log_make(), as it takes a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_store_make(
    node: *mut pw_node,
    options: *const pw_transaction_store_options,
    store: *mut *mut pw_transaction_store,
) -> pw_error {
    call(|| {
        let to = place(store, "store")?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let node = unsafe { node_of(node) }?;
        let from = place(options.cast_mut(), "options")?;
        // SAFETY: options (pagewire_experimental.h), aligned and not NULL.
        let options = unsafe { options_of(from.read()) }?;
        let made = Store::new(node, &options)?;
        let token = made.token();
        let state = Mutex::new(State::Made(Box::new(made)));
        let made = OwnStore { state, token, value_bytes: options.value, node: node.clone() };
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(hand_out(made)) };
        Ok(())
    })
}

/// # Safety
/// Its journal is NULL, or a string.
unsafe fn options_of(given: pw_transaction_store_options) -> Result<StoreOptions> {
    let pw_transaction_store_options { cells, value_bytes: value, journal } = given;
    if cells == 0 {
        return Err(Refusal::argument("'cells' is 0: a store has 1 or more"));
    }
    if value == 0 || value % 8 != 0 || value > PW_MOST_CELL_BYTES {
        let sentence =
            format!("'value_bytes' is {value}: it must be a multiple of 8 from 8 to {PW_MOST_CELL_BYTES}");
        return Err(Refusal::argument(sentence));
    }
    let journal = if journal.is_null() {
        None
    } else {
        // SAFETY: `journal` is not NULL, as checked here; pagewire.h asks for a string with a NUL at its end that is valid for the call.
        Some(unsafe { path_of(journal, "journal") }?)
    };
    Ok(StoreOptions { cells, value, journal })
}

/// Gives the token by which clients and other stores reach a store.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_store_export(
    store: *mut pw_transaction_store,
    token: *mut pw_transaction_store_token,
) -> pw_error {
    call(|| {
        let to = place(token, "token")?;
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let bytes = unsafe { object::<OwnStore>(store) }?.token.to_bytes();
        // SAFETY: the caller's place (pagewire_experimental.h).
        unsafe { to.write(pw_transaction_store_token { bytes }) };
        Ok(())
    })
}

/// # Safety
/// So many tokens.
unsafe fn tokens_of(tokens: *const pw_transaction_store_token, count: usize) -> Result<Vec<StoreToken>> {
    // SAFETY: `tokens` has `count` elements that are valid for the call (pagewire.h); `array` checks NULL and alignment.
    let tokens = unsafe { array(tokens, count, "tokens") }?;
    tokens.iter().map(|token| Ok(StoreToken::from_bytes(&token.bytes)?)).collect()
}

/// Takes up what the journal has, and starts the thread that handles accesses.
///
/// position: of this store in the list. tokens: of all stores, count of them, in the order that all have. PW_ARGUMENT: the token at the position is not that of this store, one stands
/// twice in the list, or the store is served already, or could not be before; PW_TOKEN; PW_FILE: the journal is none, is damaged, or is that of other cells or of another position, and stays as it is; PW_IN_USE: another store has it; PW_SYSTEM: it cannot be read. Behind these free the store, and make another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_store_serve(
    store: *mut pw_transaction_store,
    position: usize,
    tokens: *const pw_transaction_store_token,
    count: usize,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and so many tokens (pagewire_experimental.h).
        let (own, tokens) = unsafe { (object::<OwnStore>(store)?, tokens_of(tokens, count)?) };
        if tokens.get(position) != Some(&own.token) {
            let sentence =
                format!("'tokens' has {count}, and that at the position {position} is not of this store");
            return Err(Refusal::argument(sentence));
        }
        let mut state = own.state.lock();
        match std::mem::replace(&mut *state, State::Failed) {
            State::Made(made) => {
                let served = made.serve(&own.node, position, &tokens).map_err(refused)?;
                *state = State::Served(served);
            }
            other => {
                *state = other;
                return Err(Refusal::argument("the store is served already, or could not be served"));
            }
        }
        Ok(())
    })
}

/// Why stores cannot be served or used. What is wrong with a journal or a list has codes of its own.
fn refused(error: pagewire::Error) -> Refusal {
    let pagewire::Error::System { why, .. } = &error else { return error.into() };
    let code = match why.kind() {
        ErrorKind::InvalidData => pw_error::PW_FILE,
        ErrorKind::ResourceBusy => pw_error::PW_IN_USE,
        _ => pw_error::PW_SYSTEM,
    };
    Refusal::new(code, error.to_string())
}

/// # Safety
/// As for [`object`].
unsafe fn served<R>(
    store: *mut pw_transaction_store,
    work: impl FnOnce(&ServedStore) -> Result<R>,
) -> Result<R> {
    // SAFETY: `store` is NULL or a live store: pagewire.h lets nobody free it during the call, so the lock outlives `work`.
    match &*unsafe { object::<OwnStore>(store) }?.state.lock() {
        State::Served(served) => work(served),
        _ => Err(Refusal::argument("the store is not served: call pw_transaction_store_serve() before")),
    }
}

/// A store that was lost is back, at the position that it had, with another token.
///
/// PW_LIMIT: there is no such position; PW_ARGUMENT: also, this store is not served; PW_TOKEN, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_store_replace(
    store: *mut pw_transaction_store,
    position: usize,
    token: *const pw_transaction_store_token,
) -> pw_error {
    call(|| {
        // SAFETY: a token, and a pointer of this library (pagewire_experimental.h).
        unsafe { served(store, |store| Ok(store.replace(position, &tokens_of(token, 1)?[0])?)) }
    })
}

/// Gets the committed value of a cell of this process's own store.
///
/// value: size bytes, as many as a value has. version: gets how many transactions have written it; NULL if nobody asks. PW_ARGUMENT: also, there is no such cell, or the store is not served.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_store_cell(
    store: *mut pw_transaction_store,
    cell: u32,
    value: *mut c_void,
    size: usize,
    version: *mut u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let expected = unsafe { object::<OwnStore>(store) }?.value_bytes;
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let found = unsafe { served(store, |store| Ok(store.cell(cell))) }?;
        let found = found.ok_or_else(|| Refusal::argument(format!("the store has no cell {cell}")))?;
        // SAFETY: the caller's places (pagewire_experimental.h).
        unsafe { give_value(found, expected, (value, size), version) }
    })
}

/// # Safety
/// So many bytes, and a place or NULL.
unsafe fn give_value(
    (found, bytes_found): (u64, Vec<u8>),
    expected: usize,
    (value, size): (*mut c_void, usize),
    version: *mut u64,
) -> Result<()> {
    let to = optional(version, "version")?;
    let start = check_size(value, size, expected)?;
    // SAFETY: the caller's promise; as many bytes as the value has.
    unsafe {
        start.copy_from(bytes_found.as_ptr(), bytes_found.len().min(size));
        if let Some(to) = to {
            to.write(found);
        }
    }
    Ok(())
}

/// Where a value goes to.
fn check_size(value: *mut c_void, size: usize, expected: usize) -> Result<*mut u8> {
    if size != expected {
        let sentence = format!("'size' is {size}, and a value of the store has {expected} bytes");
        return Err(Refusal::argument(sentence));
    }
    Ok(bytes(value.cast_const().cast(), size, "value")?.as_ptr())
}

/// Whether a store is served, and commits. held: gets how many attempts of transactions hold cells now; NULL if nobody asks.
///
/// PW_SYSTEM: its journal cannot be written, and it commits nothing any more; PW_ARGUMENT: it is not served; PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_store_check(
    store: *mut pw_transaction_store,
    held: *mut usize,
) -> pw_error {
    call(|| {
        let to = optional(held, "held")?;
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let (count, failure) = unsafe { served(store, |store| Ok((store.held(), store.failure()))) }?;
        if let Some(to) = to {
            // SAFETY: the caller's place (pagewire_experimental.h), aligned and not NULL.
            unsafe { to.write(count) };
        }
        match failure {
            None => Ok(()),
            Some(why) => {
                let sentence = format!(
                    "the store commits nothing any more, because its journal cannot be written: {why}"
                );
                Err(Refusal::new(pw_error::PW_SYSTEM, sentence))
            }
        }
    })
}

/// Ends a store; the pointer is not valid any more. Transactions of others get PW_PEER_LOST. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_store_free(store: *mut pw_transaction_store) -> pw_error {
    if store.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire_experimental.h).
    call(|| unsafe { take_back::<OwnStore>(store) }.map(drop))
}

/// Connects to stores. *client is NULL after an error. The node stays until pw_transaction_client_close(). Calls of several threads wait for each other. A node has one client
/// of a store: threads that make transactions at the same time have a node each.
///
/// tokens: of all stores, count of them, 64 at most, in the order that all have. PW_LIMIT: also, the node has a client of one of them already; PW_ARGUMENT: also,
/// a store is served at another position; PW_TOKEN; as pw_open(), and as pw_log_make(), as it takes a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_client_open(
    node: *mut pw_node,
    tokens: *const pw_transaction_store_token,
    count: usize,
    client: *mut *mut pw_transaction_client,
) -> pw_error {
    call(|| {
        let to = place(client, "client")?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library, and so many tokens (pagewire_experimental.h).
        let (node, tokens) = unsafe { (node_of(node)?, tokens_of(tokens, count)?) };
        let steps = Mutex::new(Steps::new(Client::new(node, &tokens).map_err(refused)?));
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(hand_out(OpenClient { steps, _node: node.clone() })) };
        Ok(())
    })
}

/// # Safety
/// As for [`object`].
unsafe fn steps<R>(
    client: *mut pw_transaction_client,
    work: impl FnOnce(&mut Steps) -> Result<R>,
) -> Result<R> {
    // SAFETY: `client` is NULL or a live client: pagewire.h lets nobody free it during the call, so the lock outlives `work`.
    work(&mut unsafe { object::<OpenClient>(client) }?.steps.lock())
}

/// Bytes of a value of the cells of a store, by its position in the tokens. 0: there is no such store, or it is no client, and pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_client_value_bytes(
    client: *mut pw_transaction_client,
    store: usize,
) -> usize {
    let none = || Refusal::argument(format!("the client has no store {store}"));
    // SAFETY: a pointer of this library (pagewire_experimental.h).
    give(|| unsafe { steps(client, |steps| steps.value_bytes(store).ok_or_else(none)) }, |_| 0)
}

/// Starts a transaction. One that was started and has not ended is given up.
///
/// again: the last one is tried again, behind a pause of up to 3.2 ms, and keeps its age, by which it wins in the end. PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_start(client: *mut pw_transaction_client, again: bool) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        unsafe {
            steps(client, |steps| {
                steps.start(again);
                Ok(())
            })
        }
    })
}

/// Gets the value of a cell, by one get. Values may not belong together before the transaction learns of its conflict: it does not commit then.
///
/// store: its position in the tokens. value: size bytes, as many as a value has. version: gets how many transactions have written it, PW_ABSENT of a cell that this transaction has put; NULL if
/// nobody asks. PW_CONFLICT: another transaction has won, and nothing of this one is done: start it again; PW_PEER_LOST: the store is gone; PW_ARGUMENT: also, there is no such store or cell, or no
/// transaction was started; PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_get(
    client: *mut pw_transaction_client,
    store: usize,
    cell: u32,
    value: *mut c_void,
    size: usize,
    version: *mut u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and places (pagewire_experimental.h).
        unsafe {
            steps(client, |steps| {
                // get() refuses a store that does not exist.
                let expected = steps.value_bytes(store).unwrap_or(size);
                check_size(value, size, expected)?;
                let found = steps.get(store, cell)?;
                give_value(found, expected, (value, size), version)
            })
        }
    })
}

/// Puts a value into a cell, when the transaction commits.
///
/// value: length bytes, as many as a value has. As pw_transaction_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_put(
    client: *mut pw_transaction_client,
    store: usize,
    cell: u32,
    value: *const c_void,
    length: usize,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and so many bytes (pagewire_experimental.h).
        unsafe {
            let value = bytes_of(value, length, "value")?;
            steps(client, |steps| Ok(steps.put(store, cell, value)?))
        }
    })
}

/// Commits: when it returns, all is done, and every transaction that starts later sees it. The transaction has ended, whatever this gives.
///
/// PW_CONFLICT, PW_PEER_LOST: nothing was done; PW_UNDECIDED: all or nothing was done; PW_ARGUMENT: no transaction was started; PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_commit(client: *mut pw_transaction_client) -> pw_error {
    // SAFETY: a pointer of this library (pagewire_experimental.h).
    call(|| unsafe { steps(client, |steps| Ok(steps.commit()?)) })
}

/// Gives a transaction up: nothing of it is done. Nothing is done if none was started.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_abort(client: *mut pw_transaction_client) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        unsafe {
            steps(client, |steps| {
                steps.abort();
                Ok(())
            })
        }
    })
}

/// Closes a client, whose transaction is given up; the pointer is not valid any more. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_transaction_client_close(client: *mut pw_transaction_client) -> pw_error {
    if client.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire_experimental.h).
    call(|| unsafe { take_back::<OpenClient>(client) }.map(drop))
}
