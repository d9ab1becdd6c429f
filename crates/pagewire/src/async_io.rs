//! For tasks of async-io (feature `async-io`), as smol and async-std have them: waiting for the descriptor of a node, and for signals.
//! Operations need no runtime.
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
//!     pagewire::async_io::wait_until(&table.signal(120)?, |count| count == 1).await;
//!     ready.wait().await?; // The put has ended, and its result was not taken.
//!     assert_eq!(put.await?, [5]);
//!     Ok(())
//! }
//! async_io::block_on(run()).unwrap();
//! ```

use ::async_io::{Async, Timer};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// This runtime.
struct Own;

impl crate::runtime::Runtime for Own {
    type Watched<'n> = Async<BorrowedFd<'n>>;

    fn watch(descriptor: BorrowedFd<'_>) -> io::Result<Self::Watched<'_>> {
        Async::new_nonblocking(descriptor)
    }

    async fn readable(watched: &Self::Watched<'_>) -> io::Result<()> {
        watched.read_with(|descriptor| crate::runtime::is_readable(descriptor)).await
    }

    async fn sleep(time: Duration) {
        Timer::after(time).await;
    }
}

crate::runtime::calls!();
