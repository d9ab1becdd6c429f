//! For tasks of async-io (feature `async-io`), as smol and async-std have them: waiting for the descriptor of a node.
//! Operations and signals need no runtime.
//!
//! ```
//! use pagewire::{Node, Rights, async_io::Ready};
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
//! async_io::block_on(run()).unwrap();
//! ```

use ::async_io::Async;
use std::io;
use std::os::fd::BorrowedFd;

/// This runtime.
struct AsyncIoRuntime;

impl crate::tasks::runtime::Runtime for AsyncIoRuntime {
    type Watched<'n> = Async<BorrowedFd<'n>>;

    fn watch(descriptor: BorrowedFd<'_>) -> io::Result<Self::Watched<'_>> {
        Async::new_nonblocking(descriptor)
    }

    async fn readable(watched: &Self::Watched<'_>) -> io::Result<()> {
        watched.read_with(|descriptor| crate::tasks::runtime::is_readable(descriptor)).await
    }
}

crate::tasks::runtime::calls!(AsyncIoRuntime);
