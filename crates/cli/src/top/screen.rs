//! The terminal while the display has it, and as it was afterwards.

use anyhow::Result;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, Stdout};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Arc;

type Hook = Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The terminal; dropping it gives it back as it was.
pub struct Screen {
    /// Never dropped: where the terminal has gone that complains on the standard error, which may have gone as well.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// What is told of panics without a display.
    hook: Hook,
}

impl Screen {
    /// Takes the terminal of the standard output.
    ///
    /// # Errors
    /// If it is none, or cannot be written to.
    pub fn take() -> Result<Screen> {
        let hook: Hook = Arc::from(take_hook());
        let (previous, display) = (hook.clone(), std::thread::current().id());
        set_hook(Box::new(move |panic| {
            // Of another thread the display goes on, and shows what failed.
            if std::thread::current().id() == display {
                restore();
                previous(panic);
            }
        }));
        let entered = || -> io::Result<_> {
            enable_raw_mode()?;
            execute!(io::stdout(), EnterAlternateScreen)?;
            Terminal::new(CrosstermBackend::new(io::stdout()))
        };
        match entered() {
            Ok(terminal) => Ok(Screen { terminal: ManuallyDrop::new(terminal), hook }),
            Err(error) => {
                restore();
                put_back(hook);
                Err(error.into())
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A panic has given it back already: done again, what was told of it would be written over.
        if !std::thread::panicking() {
            restore();
            put_back(self.hook.clone());
        }
    }
}

impl Deref for Screen {
    type Target = Terminal<CrosstermBackend<Stdout>>;

    fn deref(&self) -> &Self::Target {
        &self.terminal
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.terminal
    }
}

fn put_back(hook: Hook) {
    set_hook(Box::new(move |panic| hook(panic)));
}

/// As far as it goes: a terminal that has gone needs nothing.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}
