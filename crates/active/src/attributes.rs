//! Attributes of pages, in words.

use crate::log::AccessLog;
use pagewire::access_log::{PageAttributes, PageFlags};
use pagewire::{Error, Node, Region, Result, Token};
use std::ops::{Bound, RangeBounds};

/// Gives attributes to pages of a region (PAPERS AA-2).
pub trait AttributesOf {
    /// Begins to describe the attributes of the pages that `bytes` are: whole pages of 4,096 bytes, the first of which begins where the region
    /// does. What is not named is as in ordinary memory, whatever it was before.
    fn attributes(&self, bytes: impl RangeBounds<u64>) -> PageSetting<'_>;
}

/// Sets attributes of a region.
type SetAttributes<'r> = dyn Fn(Bytes, PageAttributes) -> Result<()> + 'r;

/// A range of bytes, as the caller wrote it.
type Bytes = (Bound<u64>, Bound<u64>);

/// Attributes that are being described. They count when one of [`to`](Self::to), [`to_fault_log`](Self::to_fault_log) and [`set`](Self::set)
/// returns.
#[must_use = "nothing changes until `to`, `to_fault_log` or `set` is called"]
pub struct PageSetting<'r> {
    set: Box<SetAttributes<'r>>,
    bytes: Bytes,
    flags: PageFlags,
    redirects_puts: bool,
    refuses_puts: bool,
}

/// What logs.
const LOGGING: PageFlags = PageFlags::LOG_READ
    .union(PageFlags::LOG_READ_DATA)
    .union(PageFlags::LOG_WRITE)
    .union(PageFlags::LOG_WRITE_DATA);

impl<T, K: pagewire::Kind> AttributesOf for Region<T, K> {
    fn attributes(&self, bytes: impl RangeBounds<u64>) -> PageSetting<'_> {
        PageSetting::by(|bytes, page| self.set_attributes(bytes, page), bytes)
    }
}

/// Gives attributes to pages that a token names: memory that is exported by its address (`pagewire::raw`), as C programs do it.
pub trait AttributesOfTokens {
    /// Begins to describe the attributes of the pages that `bytes` are, for accesses by this token alone: whole pages of 4,096 bytes, the
    /// first of which begins where the token's bytes do. As [`AttributesOf::attributes`].
    fn attributes_of(&self, token: &Token, bytes: impl RangeBounds<u64>) -> PageSetting<'_>;
}

impl AttributesOfTokens for Node {
    fn attributes_of(&self, token: &Token, bytes: impl RangeBounds<u64>) -> PageSetting<'_> {
        let token = *token;
        PageSetting::by(move |bytes, page| self.set_attributes_raw(&token, bytes, page), bytes)
    }
}

impl<'r> PageSetting<'r> {
    /// Begins to describe attributes that a function sets: of memory that is no region of a node, as those of verbs programs.
    pub fn by(
        set: impl Fn((Bound<u64>, Bound<u64>), PageAttributes) -> Result<()> + 'r,
        bytes: impl RangeBounds<u64>,
    ) -> Self {
        PageSetting {
            set: Box::new(set),
            bytes: (bytes.start_bound().cloned(), bytes.end_bound().cloned()),
            flags: PageFlags::READ | PageFlags::WRITE,
            redirects_puts: false,
            refuses_puts: false,
        }
    }
}

impl PageSetting<'_> {
    fn with(mut self, flags: PageFlags) -> Self {
        self.flags |= flags;
        self
    }

    fn without(mut self, flags: PageFlags) -> Self {
        self.flags -= flags;
        self
    }

    /// Puts go to the log with their data, and not to memory (W=0, WL=1, WLD=1).
    pub fn redirect_puts(mut self) -> Self {
        self.redirects_puts = true;
        self.without(PageFlags::WRITE).with(PageFlags::LOG_WRITE | PageFlags::LOG_WRITE_DATA)
    }

    /// Puts are refused: the caller gets a remote access error (W=0, WLD=0). With [`log_puts`](Self::log_puts) it is logged that there was one.
    pub fn refuse_puts(mut self) -> Self {
        self.refuses_puts = true;
        self.without(PageFlags::WRITE)
    }

    /// Gets are refused: the caller gets a remote access error (R=0).
    pub fn refuse_gets(self) -> Self {
        self.without(PageFlags::READ)
    }

    /// Metadata of puts and atomics are logged (WL=1).
    pub fn log_puts(self) -> Self {
        self.with(PageFlags::LOG_WRITE)
    }

    /// What puts write is logged, and the operands of atomics (WL=1, WLD=1).
    pub fn log_put_data(self) -> Self {
        self.with(PageFlags::LOG_WRITE | PageFlags::LOG_WRITE_DATA)
    }

    /// Metadata of gets are logged (RL=1).
    pub fn log_gets(self) -> Self {
        self.with(PageFlags::LOG_READ)
    }

    /// What gets return is logged (RL=1, RLD=1).
    pub fn log_get_data(self) -> Self {
        self.with(PageFlags::LOG_READ | PageFlags::LOG_READ_DATA)
    }

    /// What was described, if it contradicts itself nowhere.
    fn checked(&self) -> Result<PageFlags> {
        let wrong = match self.refuses_puts {
            true if self.redirects_puts => "puts are redirected and refused: choose one",
            true if self.flags.contains(PageFlags::LOG_WRITE_DATA) => {
                "puts are refused and their data logged, but a refused put has none: log_puts logs that there was one"
            }
            _ => return Ok(self.flags),
        };
        Err(contradiction(wrong))
    }

    /// Sets the attributes, with records in a log (E=1).
    ///
    /// # Errors
    /// `Argument`: puts are refused, and redirected or logged with their data, too. Else as those of [`Region::set_attributes`].
    pub fn to(self, log: &AccessLog) -> Result<()> {
        // A forked child may have pages of its own, and a log of its parent.
        log.check_owner()?;
        let flags = self.checked()?;
        let user_domain = log.user_domain();
        (self.set)(self.bytes, PageAttributes { flags: flags | PageFlags::TO_ACCESS_LOG, user_domain })
    }

    /// Sets the attributes, with metadata in the fault log of the process (E=0), which
    /// [`Node::take_logged_faults`](pagewire::Node::take_logged_faults) reads.
    ///
    /// # Errors
    /// `Argument`: puts are redirected, which takes an access log; or as [`to`](Self::to) says. Else as those of
    /// [`Region::set_attributes`].
    pub fn to_fault_log(self) -> Result<()> {
        let flags = self.checked()?;
        if self.redirects_puts {
            return Err(contradiction("puts are redirected, and there is no access log to take them"));
        }
        (self.set)(self.bytes, PageAttributes { flags, user_domain: 0 })
    }

    /// Sets attributes that log nothing: ordinary pages, or pages that refuse gets or puts.
    ///
    /// # Errors
    /// `Argument`: something is to be logged. Else as those of [`Region::set_attributes`].
    pub fn set(self) -> Result<()> {
        let flags = self.checked()?;
        if flags.intersects(LOGGING) {
            return Err(contradiction(
                "accesses are to be logged: name their log by `to`, or `to_fault_log`",
            ));
        }
        (self.set)(self.bytes, PageAttributes { flags, user_domain: 0 })
    }
}

/// Attributes that contradict each other, or need a log.
fn contradiction(why: &str) -> Error {
    Error::Argument { what: "attributes of pages", why: why.to_owned() }
}
