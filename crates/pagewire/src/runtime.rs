//! What needs an asynchronous runtime: waiting for the descriptor of a node, and for signals.
//!
//! An [`Operation`](crate::Operation) needs none: any executor polls it. [`Runtime`] says what a runtime adds; `pagewire::tokio` and
//! `pagewire::async_io` are the same calls over either one.

use crate::completions::Completions;
use crate::error::{Result, system};
use crate::limits::{SIGNAL_SLEEP, SPIN};
use crate::node::Node;
use crate::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::Poll;
use std::time::{Duration, Instant};

/// What a runtime adds to futures.
pub(crate) trait Runtime {
    /// A descriptor that the runtime watches.
    type Watched<'n>;

    fn watch(descriptor: BorrowedFd<'_>) -> io::Result<Self::Watched<'_>>;

    /// Ends when the descriptor is readable.
    fn readable(watched: &Self::Watched<'_>) -> impl Future<Output = io::Result<()>> + Send;

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;
}

/// Has the runtime watch the descriptor of a node.
pub(crate) fn watch<R: Runtime>(node: &Node) -> Result<R::Watched<'_>> {
    R::watch(node.descriptor()?).map_err(system("a runtime cannot watch the node's descriptor"))
}

/// Whether a descriptor is readable now; `WouldBlock`: it is not.
pub(crate) fn is_readable(descriptor: impl AsFd) -> io::Result<()> {
    let mut looked_at = [PollFd::new(&descriptor, PollFlags::IN)];
    match poll(&mut looked_at, Some(&Timespec::default()))? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Looks at signals for a while at each poll, then sleeps between looks, until `holds` does.
pub(crate) async fn wait_for<R: Runtime>(completions: &Completions, mut holds: impl FnMut() -> bool) {
    assert!(!completions.is_forked(), "a signal of the parent is waited for in a forked child");
    let start = Instant::now();
    while !holds() {
        // What this process has started goes on meanwhile.
        completions.poll();
        let waited = start.elapsed();
        if waited < SPIN {
            yield_now().await;
        } else {
            // As a thread that waits for a signal does.
            R::sleep((waited / 10).min(SIGNAL_SLEEP)).await;
        }
    }
}

/// Waits until a signal is as wished, and gives its value.
pub(crate) async fn wait_until<R: Runtime>(signal: &Signal<'_>, wished: impl Fn(u64) -> bool) -> u64 {
    let mut value = 0;
    let holds = || {
        value = signal.value();
        wished(value)
    };
    wait_for::<R>(signal.completions(), holds).await;
    value
}

/// Waits until one of the signals is as wished, and gives its place and value.
pub(crate) async fn wait_any<R: Runtime>(
    signals: &[Signal<'_>],
    wished: impl Fn(u64) -> bool,
) -> Option<(usize, u64)> {
    let completions = signals.first()?.completions();
    let mut found = None;
    let holds = || {
        found = signals.iter().map(Signal::value).enumerate().find(|(_, value)| wished(*value));
        found.is_some()
    };
    wait_for::<R>(completions, holds).await;
    found
}

/// Waits until each of the signals is as wished at once.
pub(crate) async fn wait_all<R: Runtime>(signals: &[Signal<'_>], wished: impl Fn(u64) -> bool) {
    if let Some(first) = signals.first() {
        let holds = || signals.iter().all(|signal| wished(signal.value()));
        wait_for::<R>(first.completions(), holds).await;
    }
}

/// Lets other tasks run once.
async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The calls of a runtime's module: they are those of this one, by the runtime `Own`.
macro_rules! calls {
    () => {
        use crate::error::{Result, system};
        use crate::runtime::{self, Runtime as _};
        use crate::{Node, Signal};

        /// The [descriptor](Node::descriptor) of a node, which this runtime watches.
        pub struct Ready<'n>(<Own as runtime::Runtime>::Watched<'n>);

        impl<'n> Ready<'n> {
            /// Has the runtime watch a node. Call it within the runtime, and keep it: what ends before does not count.
            ///
            /// # Errors
            /// `System`: there is no descriptor left, or the runtime does not watch it.
            pub fn of(node: &'n Node) -> Result<Self> {
                runtime::watch::<Own>(node).map(Ready)
            }

            /// Waits until something is ready that [`Node::descriptor`] names, and was not taken. Dropping the future changes nothing.
            ///
            /// # Errors
            /// `System`: the runtime has ended, or cannot look.
            pub async fn wait(&self) -> Result<()> {
                Own::readable(&self.0).await.map_err(system("a node's descriptor cannot be watched"))
            }
        }

        /// [`Signal::wait_until`] for tasks: it looks at each poll at first, later each time that a timer of the runtime runs out. Dropping
        /// the future changes nothing.
        pub async fn wait_until(signal: &Signal<'_>, wished: impl Fn(u64) -> bool) -> u64 {
            runtime::wait_until::<Own>(signal, wished).await
        }

        /// [`wait_any`](crate::wait_any) for tasks, as [`wait_until`].
        pub async fn wait_any(signals: &[Signal<'_>], wished: impl Fn(u64) -> bool) -> Option<(usize, u64)> {
            runtime::wait_any::<Own>(signals, wished).await
        }

        /// [`wait_all`](crate::wait_all) for tasks, as [`wait_until`].
        pub async fn wait_all(signals: &[Signal<'_>], wished: impl Fn(u64) -> bool) {
            runtime::wait_all::<Own>(signals, wished).await
        }
    };
}

pub(crate) use calls;
