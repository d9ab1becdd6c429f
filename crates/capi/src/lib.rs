//! The C ABI of the native interface: `pw_*` over the crate `pagewire`, and nothing else. No queue, no protocol is kept here.
//!
//! The archive of this crate has the verbs, too. `scripts/link-library` links it into the one shared object of Pagewire, so a process has
//! one engine for both. The first call that needs the engine starts it.
//!
//! `include/pagewire.h` is made from these sources by cbindgen; `tests/header.rs` says whether it is current, and how to make it anew.
//! Comments of exported items are therefore for C programmers.
//!
//! | module | what it has |
//! |---|---|
//! | [`version`], [`error`] | which library this is; codes and sentences |
//! | [`language`] | the names of calls in sentences, as each language has them |
//! | [`boundary`] | no panic crosses it, every refusal becomes a code |
//! | [`handle`] | what stands behind opaque pointers |
//! | [`node`], [`export`], [`heap`] | this process: its job, its exported memory, its registered heap |
//! | [`mapped_file`] | files whose pages peers access |
//! | [`malloc`] | malloc(3) of unmodified programs from that heap |
//! | [`remote`], [`atomics`], [`operation`], [`signal`] | memory of others: put, get, atomics, what was started, words to wait for |
//! | [`waits`] | waits for several operations |
//! | [`part`] | parts of a job, by colour |
//! | [`access_log`], [`handler`] | memory that reacts: attributes of pages, access logs, and the functions that handle their records |
//! | [`table`], [`access_statistics`], [`checkpoint`], [`logged_process`] | applications of it: a hash table, access statistics, checkpoints, logged puts and gets |
//! | [`table_elements`] | a loop over the elements of a hash table, and what is done to all of them or to an expected one |
//! | [`durable_table`] | hash tables that outlive their processes |
//! | [`parity`] | checkpoints of several processes, whose XOR another one keeps |
//! | [`built_in`], [`batch`] | handlers that need no code of the owner; puts that go together |
//! | [`conditional`] | writes that wait for their release |
//! | `experimental` | what may change with any release (`include/pagewire_experimental.h`, the feature `experimental`) |
//! | [`verbs`], [`verbs_regions`] | those of verbs programs (`include/pagewire_verbs.h`) |

#![allow(non_camel_case_types)]
// The comments say what a pointer must be in terms of C.
#![allow(clippy::missing_safety_doc)]

pub mod access_log;
pub mod access_statistics;
pub mod atomics;
pub mod batch;
pub mod boundary;
pub mod built_in;
pub mod checkpoint;
pub mod conditional;
pub mod durable_table;
pub mod error;
#[cfg(feature = "experimental")]
pub mod experimental;
pub mod export;
pub mod handle;
pub mod handler;
pub mod heap;
pub mod language;
pub mod logged_process;
pub mod malloc;
pub mod mapped_file;
pub mod node;
pub mod operation;
pub mod parity;
pub mod part;
mod raw_memory;
pub mod remote;
pub mod signal;
pub mod source;
pub mod table;
pub mod table_elements;
pub mod verbs;
pub mod verbs_regions;
pub mod version;
pub mod waits;

// Its symbols are the other half of the shared object.
use pagewire_verbs as _;
