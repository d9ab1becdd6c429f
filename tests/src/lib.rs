//! End-to-end tests: Debian's own programs, byte for byte, on an installed Pagewire.
//!
//! They need the install tree of `make build` and run every program as an unprivileged user with a locked-memory limit
//! of 0, between network namespaces of their own: other users of the machine's ports do not disturb them. They never
//! depend on speed: each run has a time limit far above its need, which only says that nothing hangs.
#![forbid(unsafe_code)]

pub mod basics;
pub mod checked;
pub mod checkpoint;
pub mod combinations;
pub mod command;
pub mod compile;
pub mod connection_ipv6;
pub mod connection_manager;
pub mod connection_manager_calls;
pub mod connection_manager_ends;
pub mod connection_manager_users;
pub mod connection_storm;
pub mod connection_tools;
pub mod crowd;
pub mod death;
pub mod device_files;
pub mod encrypted;
pub mod fail_each;
pub mod failures;
pub mod faults;
pub mod ground;
pub mod heap;
pub mod instructions;
pub mod killed;
pub mod limits;
pub mod memory_group;
pub mod motion;
pub mod not_checked;
pub mod paths;
pub mod perftest;
pub mod pingpong;
pub mod pool;
pub mod queue_pairs;
pub mod resets;
pub mod serve;
pub mod shortage;
pub mod stack;
pub mod tools;
pub mod trust;
pub mod ucx;
pub mod watch;
pub mod wire;
