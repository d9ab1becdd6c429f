//! The engine of this process: all its nodes share it.

use crate::error::{Error, Result, system};
use pagewire_fabric::HostFabric;
use pagewire_nic::{Nic, Options, PathChoice};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The world around the engine.
pub(crate) type Host = HostFabric;

static ENGINE: Mutex<Option<Arc<Nic<Host>>>> = Mutex::new(None);

/// The engine of this process. The first call starts it, with the path that `PAGEWIRE_PATH` asks for.
pub(crate) fn engine() -> Result<Arc<Nic<Host>>> {
    let mut engine = ENGINE.lock();
    if let Some(running) = &*engine {
        return if running.fabric().is_forked_child() { Err(Error::Forked) } else { Ok(running.clone()) };
    }
    let options = Options { path: path()?, ..Options::default() };
    let nic = Nic::new(HostFabric::new().map_err(system("the engine cannot start"))?, options);
    let driven = nic.clone();
    pagewire_fabric::spawn("pagewire-nic", move || driven.run(&AtomicBool::new(false)))
        .map_err(system("the engine's thread cannot start"))?;
    Ok(engine.insert(nic).clone())
}

fn path() -> Result<PathChoice> {
    const VARIABLE: &str = "PAGEWIRE_PATH";
    match std::env::var_os(VARIABLE) {
        None => Ok(PathChoice::default()),
        Some(value) => (value.to_string_lossy().parse())
            .map_err(|why| Error::Environment { variable: VARIABLE, why: format!("{why}") }),
    }
}
