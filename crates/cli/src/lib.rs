//! The `pagewire` command.
//!
//! Everything here stands beside the engine, never inside it: programs are started with the engine
//! preloaded ([`run`]), and again with each of their calls failing once ([`fail_each`]); live ones are asked what they do ([`explain`], [`top`]), the machine is examined
//! ([`doctor`]), and other people's programs are run in pairs ([`demo`]). Files are served as regions and fetched ([`serve`],
//! [`transfer`]), as any program of the native interface would do it. Further commands are programs that an installation has beside
//! it ([`external`]). They and the end-to-end tests use [`hosts`] and [`pair`] too, so that a demonstration, a measurement and a test
//! run the same way.
//!
//! It must never touch a program's memory or packets itself, and it needs no root.
#![forbid(unsafe_code)]

/// Writes a line to standard error. Where that cannot be written to there is nobody to be told, which is no failure of what is done.
#[macro_export]
macro_rules! tell {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(anstream::stderr(), $($what)*);
    }};
}

/// Which limit is in the way, and how to raise it, if one explains the error (see [`pagewire_fabric::shortage`]).
pub fn limit_in_the_way(error: &anyhow::Error) -> Option<String> {
    let code = |cause: &(dyn std::error::Error + 'static)| {
        let of_io = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        let of_nix = || cause.downcast_ref::<nix::Error>().map(|errno| *errno as i32);
        of_io
            .or_else(of_nix)
            .or_else(|| cause.downcast_ref::<rustix::io::Errno>().map(|errno| errno.raw_os_error()))
    };
    let mut codes = error.chain().filter_map(code);
    codes.find_map(|code| pagewire_fabric::shortage(&std::io::Error::from_raw_os_error(code)))
}

/// Starts no thread where there can be none: indicatif's own would panic.
pub fn threads_can_be_had() -> bool {
    std::thread::Builder::new().spawn(|| {}).is_ok_and(|thread| thread.join().is_ok())
}

pub mod arguments;
pub mod cdi;
pub mod checkpoint;
pub mod demo;
pub mod doctor;
pub mod exit;
pub mod explain;
pub mod external;
pub mod fail_each;
pub mod failures;
pub mod limits;
mod output;
pub mod run;
mod running;
pub mod serve;
pub mod top;
pub mod transfer;

pub use output::median::median;
pub use output::report;
pub use output::table;
pub use output::watched;
pub use running::directory;
pub use running::hosts;
pub use running::install;
pub use running::interrupt;
pub use running::launch;
pub use running::pair;
pub use running::perftest;
pub use running::preload;
pub use running::probe;
pub use running::stage;
pub use running::swap;
pub use running::workload;
