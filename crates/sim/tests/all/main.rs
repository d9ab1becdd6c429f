//! All tests of simulated worlds, in one program: building one is cheaper than building many.

mod access_counts;
mod access_logs;
mod at_rest;
mod crashes;
mod datagrams;
mod greeting;
mod groups;
mod holding;
mod intercepted_crashes;
mod mixed_paths;
mod native;
mod page_faults;
mod patience;
mod revocation;
mod scale;
mod shared_window;
mod starvation;
mod streams;
mod support;
mod swarm;
mod workload;
