//! What an application needs so that a forked child does nothing for its parent. Each call of Pagewire on an object of the parent ends at once in a
//! child, before it takes a lock that a thread of the parent may hold; applications with threads, locks and files of their own do the same by these.
//!
//! ```
//! use pagewire_active::fork::Owner;
//!
//! struct Worker {
//!     owner: Owner,
//!     thread: Option<std::thread::JoinHandle<()>>,
//! }
//!
//! impl Drop for Worker {
//!     fn drop(&mut self) {
//!         let Some(thread) = self.thread.take() else { return };
//!         if self.owner.is_this_process() {
//!             thread.join().unwrap();
//!         } else {
//!             std::mem::forget(thread); // a forked child does not have it
//!         }
//!     }
//! }
//!
//! drop(Worker { owner: Owner::this_process(), thread: Some(std::thread::spawn(|| ())) });
//! ```

pub use pagewire_memory::fork::{KeptFromChildren, Owner, PerProcess};
