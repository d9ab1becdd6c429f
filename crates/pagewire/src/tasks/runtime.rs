//! What needs an asynchronous runtime: waiting for the descriptor of a node.
//!
//! An [`Operation`](crate::Operation) and a [signal](crate::Signal::reaches) need none: any executor polls them. [`Runtime`] says what a runtime adds; `pagewire::tokio` and
//! `pagewire::async_io` are the same calls over either one.

use crate::error::{Result, system};
use crate::nodes::node::Node;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What a runtime adds to futures.
pub(crate) trait Runtime {
    /// A descriptor that the runtime watches.
    type Watched<'n>;

    fn watch(descriptor: BorrowedFd<'_>) -> io::Result<Self::Watched<'_>>;

    /// Ends when the descriptor is readable.
    fn readable(watched: &Self::Watched<'_>) -> impl Future<Output = io::Result<()>> + Send;
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

/// The calls of a runtime's module: they are those of this one, by the runtime that is given.
macro_rules! calls {
    ($runtime:ident) => {
        use crate::Node;
        use crate::error::{Result, system};
        use crate::tasks::runtime::{self, Runtime as _};

        /// The [descriptor](Node::descriptor) of a node, which this runtime watches.
        pub struct Ready<'n>(<$runtime as runtime::Runtime>::Watched<'n>);

        impl<'n> Ready<'n> {
            /// Has the runtime watch a node. Call it within the runtime, and keep it: what ends before does not count.
            ///
            /// # Errors
            /// `System`: there is no descriptor left, or the runtime does not watch it.
            pub fn of(node: &'n Node) -> Result<Self> {
                runtime::watch::<$runtime>(node).map(Ready)
            }

            /// Waits until something is ready that [`Node::descriptor`] names, and was not taken. Dropping the future changes nothing.
            ///
            /// # Errors
            /// `System`: the runtime has ended, or cannot look.
            pub async fn wait(&self) -> Result<()> {
                $runtime::readable(&self.0).await.map_err(system("a node's descriptor cannot be watched"))
            }
        }
    };
}

pub(crate) use calls;
