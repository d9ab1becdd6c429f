//! Refusals that stop a program for a reason which an `errno` value does not show: one line on standard error says what is wrong.

use crate::boundary::Errno;
use crate::runtime::messages::say;
use log::LevelFilter;
use pagewire_nic::Error;
use std::io::{IsTerminal, stderr};

/// Says why a queue pair does not go to RTR, where standard error is a terminal or `PAGEWIRE_LOG` asks for a log. Gives the `errno`.
pub fn of_rtr(queue_pair: u32, error: Error) -> Errno {
    if stderr().is_terminal() || log::max_level() != LevelFilter::Off {
        say(format_args!("queue pair {queue_pair:#x} is refused RTR: {error}"));
    }
    error.into()
}
