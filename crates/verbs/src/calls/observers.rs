//! The observers that the environment asks for.

use crate::calls::{CallObserver, counts, failures};
use crate::checking::CheckObserver;
use std::sync::OnceLock;

/// The observers of this process; the first call reads the environment and makes them.
pub fn of_process() -> &'static [Box<dyn CallObserver>] {
    static OBSERVERS: OnceLock<Vec<Box<dyn CallObserver>>> = OnceLock::new();
    OBSERVERS.get_or_init(from_environment)
}

/// Each observer, if a variable of its own asks for it. A wrong value makes none: whoever looks for devices is told of it
/// ([`check_environment`](crate::runtime::process::check_environment)) and refused.
fn from_environment() -> Vec<Box<dyn CallObserver>> {
    let check = CheckObserver::of_process().map(|observer| Box::new(observer) as Box<dyn CallObserver>);
    let observers = [check, failures::observer(), counts::from_environment()];
    observers.into_iter().flatten().collect()
}
