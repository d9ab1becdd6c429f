//! What a thread does while it waits for an operation, where it must not only wait.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// Work of a thread that goes on while it waits for operations. Handlers of access logs have one: what they wait for may wait for their log.
pub trait WhileWaiting: Send + Sync {
    /// Does a part of the work. It does not wait.
    fn make_progress(&self);

    /// How long an operation is waited for. Then the connection to its peer is given up: its operations end with
    /// [`PeerLost`](crate::Failure::PeerLost), and the next one connects anew.
    fn patience(&self) -> Duration;
}

thread_local!(static CURRENT: RefCell<Option<Arc<dyn WhileWaiting>>> = const { RefCell::new(None) });

/// Calls `body`. Where it waits for an operation, or for a flush, `work` goes on.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::waiting::{WhileWaiting, while_waiting};
/// use pagewire::{Node, Rights};
/// use std::sync::Arc;
/// struct Bounded;
/// impl WhileWaiting for Bounded {
///     fn make_progress(&self) {}
///     fn patience(&self) -> std::time::Duration {
///         std::time::Duration::from_secs(10)
///     }
/// }
/// let node = Node::alone()?;
/// let table = node.zeroed::<u64>(1)?;
/// let remote = node.open(&table.export(Rights::WRITE)?)?;
/// while_waiting(Arc::new(Bounded), || remote.put_value(0, 7u64).wait())?;
/// # Ok(())
/// # }
/// ```
pub fn while_waiting<R>(work: Arc<dyn WhileWaiting>, body: impl FnOnce() -> R) -> R {
    /// Puts back what there was before, also where the body panics.
    struct Former(Option<Arc<dyn WhileWaiting>>);
    impl Drop for Former {
        fn drop(&mut self) {
            CURRENT.with(|current| *current.borrow_mut() = self.0.take());
        }
    }
    let _former = Former(CURRENT.with(|current| current.borrow_mut().replace(work)));
    body()
}

/// What the calling thread goes on with while it waits.
pub(crate) fn current() -> Option<Arc<dyn WhileWaiting>> {
    CURRENT.with(|current| current.borrow().clone())
}
