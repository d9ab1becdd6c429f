//! `pagewire top`: how busy live processes are, look by look.
//!
//! They are found and asked as `pagewire explain` does it; what is shown are the differences between two answers. On a terminal it is
//! a display that goes on until it is quitted ([`view`]), elsewhere a table ([`plain`]).

mod board;
mod inquiry;
mod keys;
mod measures;
mod plain;
mod rates;
mod screen;
mod view;

use crate::arguments::TopArguments;
use crate::explain;
use crate::limits::{EXPLAIN_PATIENCE, TOP_TICK};
use crate::running::interrupt;
use anyhow::{Result, ensure};
use board::{Board, Filter};
use inquiry::Inquiry;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use screen::Screen;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime};
use view::{Status, View};

/// Shows the rates; gives the exit status: 1 if a process that was named did not answer (the display: 0).
///
/// # Errors
/// If they cannot be shown, no list of sockets can be had, or a signal ended the display.
pub fn top(arguments: &TopArguments) -> Result<u8> {
    let board = Board::new(Filter { wanted: arguments.processes.clone() }, Instant::now());
    let interval = arguments.interval;
    if arguments.json {
        return print_objects(board, interval, arguments.once);
    }
    if arguments.once || !has_terminal() {
        return print_tables(board, interval);
    }
    live(board, interval)
}

/// Whether there is a terminal that can be drawn on and read from.
fn has_terminal() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|kind| kind.is_empty() || kind == "dumb");
    !dumb && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Asks all, and waits until all have answered, but not longer than `patience`.
fn look(inquiry: &mut Inquiry, board: &mut Board, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    let present = inquiry.begin()?;
    board.keep(&present);
    while let Some(answer) = inquiry.next(deadline)? {
        board.take(answer);
    }
    Ok(())
}

fn print_tables(mut board: Board, interval: Duration) -> Result<u8> {
    let mut inquiry = Inquiry::default();
    // To be connected to and to answer may each take the patience.
    look(&mut inquiry, &mut board, 2 * EXPLAIN_PATIENCE)?;
    std::thread::sleep(interval);
    look(&mut inquiry, &mut board, 2 * EXPLAIN_PATIENCE)?;
    let mut out = anstream::stdout().lock();
    if board.rows().is_empty() && board.missing().is_empty() {
        writeln!(
            out,
            "No process in this network namespace has a Pagewire device open (start one: pagewire run -- PROGRAM)."
        )?;
    } else if !board.rows().is_empty() {
        plain::write_tables(&mut out, &board)?;
    }
    out.flush()?;
    Ok(tell_missing(&board))
}

fn print_objects(mut board: Board, interval: Duration, once: bool) -> Result<u8> {
    let mut inquiry = Inquiry::default();
    let mut next = Instant::now();
    let mut first = true;
    // One that does not answer in time is in the next object, if there is one.
    let patience = if once { 2 * EXPLAIN_PATIENCE } else { interval };
    loop {
        look(&mut inquiry, &mut board, patience)?;
        if !first {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{}", plain::object(&board, interval, SystemTime::now()))?;
            out.flush()?;
            if once {
                return Ok(tell_missing(&board));
            }
        }
        first = false;
        next = (next + interval).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Says why processes that were named are not shown; gives the exit status.
fn tell_missing(board: &Board) -> u8 {
    if board.foreign() > 0 {
        crate::tell!("pagewire: {} of other users not shown: only they and root may ask", board.foreign());
    }
    let missing = board.missing();
    for word in &missing {
        match word.parse() {
            Ok(pid) => match explain::reports(pid) {
                Err(silence) => crate::tell!("pagewire: {}: {silence}", explain::titled(pid)),
                Ok(_) => crate::tell!("pagewire: process {pid} began to answer too late"),
            },
            Err(_) => crate::tell!("pagewire: no process that answers runs a program called {word}"),
        }
    }
    u8::from(!missing.is_empty())
}

/// The display, until a key or a signal ends it.
fn live(mut board: Board, interval: Duration) -> Result<u8> {
    interrupt::watch()?;
    let colours = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
    let mut view = View { colours, ..View::default() };
    let mut inquiry = Inquiry::default();
    let mut trouble: Option<String> = None;
    let mut next = Instant::now();
    let mut shown = board.time(next);
    let mut screen = Screen::take()?;
    loop {
        interrupt::check()?;
        let now = Instant::now();
        if now >= next && !view.paused {
            match inquiry.begin() {
                Ok(present) => {
                    board.keep(&present);
                    trouble = None;
                }
                Err(error) => trouble = Some(format!("{error:#}")),
            }
            next = now + interval;
        }
        // While it pauses the answers wait; they are of the time at which they came.
        if !view.paused {
            loop {
                match inquiry.next(now) {
                    Ok(Some(answer)) => board.take(answer),
                    Ok(None) => break,
                    // For want of threads, for instance: that may pass.
                    Err(error) => {
                        trouble = Some(error.to_string());
                        break;
                    }
                }
            }
            shown = board.time(now);
        }
        let status = Status { interval, now: shown, trouble: trouble.as_deref() };
        screen.draw(|frame| view::draw(frame, &board, &mut view, status))?;
        wait_for_terminal(TOP_TICK)?;
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()? {
                if key.kind != KeyEventKind::Release
                    && keys::press(key, &mut board, &mut view) == ControlFlow::Break(())
                {
                    return Ok(0);
                }
            }
        }
    }
}

/// Waits until something comes from the terminal, a signal does, or so much time has passed. Whoever reads events from a terminal that has gone
/// reads its end for ever (crossterm 0.28).
fn wait_for_terminal(longest: Duration) -> Result<()> {
    let stdin = std::io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    let longest = Timespec::try_from(longest)?;
    match poll(&mut terminal, Some(&longest)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    ensure!(!terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR), "the terminal has gone");
    Ok(())
}
