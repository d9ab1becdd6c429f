//! A network that loses, doubles and reorders packets, for tests of this crate alone.

use crate::other::{ROLE, run_with};
use pagewire_fabric::{FaultPlan, HostFabric};
use pagewire_nic::{Nic, Options, PathChoice};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Runs a test in another process whose network loses, doubles and reorders packets.
pub fn on_a_lossy_network(name: &str, test: fn()) {
    if std::env::var_os(ROLE).is_some() {
        pagewire::set_engine_source(lossy_engine);
        test();
        let faults = FAULTS.get().expect("a node was made").fabric().fault_counters();
        for (what, count) in
            [("dropped", &faults.dropped), ("doubled", &faults.duplicated), ("reordered", &faults.reordered)]
        {
            assert!(count.get() > 0, "no packet was {what}");
        }
        return;
    }
    run_with(name, &[("PAGEWIRE_PATH", "udp")]);
}

/// The engine of a lossy network.
static FAULTS: OnceLock<Arc<Nic<HostFabric>>> = OnceLock::new();

fn lossy_engine() -> io::Result<Arc<Nic<HostFabric>>> {
    let plan = FaultPlan { drop: 0.02, duplicate: 0.02, reorder: 0.02, ..FaultPlan::default() };
    let options = Options { path: PathChoice::Udp, ..Options::default() };
    let nic = Nic::new(HostFabric::with_faults(plan)?, options);
    let driven = nic.clone();
    pagewire_fabric::spawn("pagewire-nic", move || driven.run(&AtomicBool::new(false)))?;
    Ok(FAULTS.get_or_init(|| nic).clone())
}
