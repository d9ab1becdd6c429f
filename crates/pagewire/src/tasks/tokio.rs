//! For tasks of tokio (feature `tokio`): waiting for the descriptor of a node. Operations and signals need no runtime.
//!
//! The runtime needs its I/O driver (`enable_io`).
//!
//! ```
//! use pagewire::{Node, Rights, tokio::Ready};
//!
//! async fn run() -> pagewire::Result<()> {
//!     let node = Node::alone()?;
//!     let table = node.zeroed::<u64>(16)?;
//!     let remote = node.open(&table.export(Rights::all())?)?;
//!     let ready = Ready::of(&node)?;
//!     let put = remote.put_signal(0, vec![5u64], remote.signal(120).add(1));
//!     table.signal(120)?.reaches(|count| count == 1).await?;
//!     ready.wait().await?; // The put has ended, and its result was not taken.
//!     assert_eq!(put.await?, [5]);
//!     Ok(())
//! }
//! tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run()).unwrap();
//! ```

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use std::io;
use std::os::fd::BorrowedFd;

/// This runtime.
struct TokioRuntime;

impl crate::tasks::runtime::Runtime for TokioRuntime {
    type Watched<'n> = AsyncFd<BorrowedFd<'n>>;

    // Its successor (tokio 1.54) is unsafe, for descriptors that may be closed meanwhile. A borrowed one is not.
    #[allow(deprecated)]
    fn watch(descriptor: BorrowedFd<'_>) -> io::Result<Self::Watched<'_>> {
        AsyncFd::with_interest(descriptor, Interest::READABLE)
    }

    async fn readable(watched: &Self::Watched<'_>) -> io::Result<()> {
        // The runtime is told of changes only, so it is looked at what it says.
        watched
            .async_io(Interest::READABLE, |descriptor| crate::tasks::runtime::is_readable(descriptor))
            .await
    }
}

crate::tasks::runtime::calls!(TokioRuntime);
