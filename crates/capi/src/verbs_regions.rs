//! Regions of verbs programs: checkpoints, and attributes of their pages (`pagewire_verbs.h`, which is written by hand).

use crate::access_log::{PW_TO_END, described, pw_log};
use crate::boundary::{call, optional, path_of};
use crate::checkpoint::{pw_saved, write_saved};
use crate::error::{Refusal, of_save, pw_error};
use crate::handle::object;
use crate::verbs::check_region;
use pagewire_active::{AccessLog, PageSetting};
use pagewire_verbs::abi::ibv_mr;
use pagewire_verbs::checkpoint::{self, RefusedSave};
use pagewire_verbs::{
    OwnAttributesError, RegionAttributesError, checkpoint_region, make_flush_region, restore_region,
    set_region_attributes,
};
use std::ffi::c_char;
use std::ops::Bound;

impl From<RefusedSave> for Refusal {
    fn from(refused: RefusedSave) -> Self {
        match refused {
            RefusedSave::NoRegion => Refusal::argument("'mr' is no memory region"),
            RefusedSave::NoFile => Refusal::argument(
                "'file' is NULL, and the region is saved nowhere yet: name a file, or start the program by pagewire run --checkpoint",
            ),
            RefusedSave::Chosen(path) => Refusal::argument(format!(
                "the region is saved to {} (pagewire run --checkpoint): 'file' must be NULL or this",
                path.display()
            )),
            RefusedSave::Full(most) => Refusal::new(
                pw_error::PW_LIMIT,
                format!("{most} regions are saved, and no more can be: deregister one before"),
            ),
            RefusedSave::Save(error) => Refusal::new(of_save(&error), error.to_string()),
        }
    }
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_region(
    mr: *mut ibv_mr,
    file: *const c_char,
    saved: *mut pw_saved,
) -> pw_error {
    call(|| {
        let to = optional(saved, "saved")?;
        // SAFETY: NULL, or a string (pagewire_verbs.h).
        let file = if file.is_null() { None } else { Some(unsafe { path_of(file, "file") }?) };
        // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
        unsafe { check_region(mr) }?;
        // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
        let done = unsafe { checkpoint_region(mr, file.as_deref()) }?;
        // SAFETY: the caller's place for it (pagewire_verbs.h).
        unsafe { write_saved(to, done) };
        Ok(())
    })
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_restore_region(
    mr: *mut ibv_mr,
    file: *const c_char,
    number: u64,
    restored: *mut u64,
) -> pw_error {
    call(|| {
        let to = optional(restored, "restored")?;
        // SAFETY: NULL, or a string (pagewire_verbs.h).
        let file = unsafe { path_of(file, "file") }?;
        // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
        unsafe { check_region(mr) }?;
        // SAFETY: NULL, or a region that nobody uses meanwhile (pagewire_verbs.h).
        let number = unsafe { restore_region(mr, &file, (number > 0).then_some(number)) }?;
        if let Some(to) = to {
            // SAFETY: the caller's place for it (pagewire_verbs.h), aligned and not NULL.
            unsafe { to.write(number) };
        }
        Ok(())
    })
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_all(saved: *mut u64) -> pw_error {
    call(|| {
        let to = optional(saved, "saved")?;
        let round = checkpoint::save_all().ok_or_else(|| {
            Refusal::new(
                pw_error::PW_ENGINE,
                "the program was not started by pagewire run --checkpoint: save regions by pw_checkpoint_region()",
            )
        })?;
        if let Some(to) = to {
            // SAFETY: the caller's place for it (pagewire_verbs.h), aligned and not NULL.
            unsafe { to.write(round.saved()) };
        }
        match round.first_error() {
            Some(error) => Err(Refusal::new(pw_error::PW_ENGINE, error)),
            None => Ok(()),
        }
    })
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_set_region_attributes(
    mr: *mut ibv_mr,
    offset: u64,
    length: u64,
    attributes: u32,
    log: *mut pw_log,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire_verbs.h).
        let log = if log.is_null() { None } else { Some(unsafe { object::<AccessLog>(log) }?) };
        // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
        unsafe { check_region(mr) }?;
        let end = if length == PW_TO_END {
            // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h); a program may read it.
            unsafe { mr.as_ref() }.map_or(offset, |mr| mr.length as u64)
        } else {
            offset.saturating_add(length)
        };
        let set = |(start, end): (Bound<u64>, Bound<u64>), page| {
            let (Bound::Included(start), Bound::Excluded(end)) = (start, end) else {
                unreachable!("as given below")
            };
            // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
            unsafe { set_region_attributes(mr, start..end, page) }.map_err(refused)
        };
        let described = described(PageSetting::by(set, offset..end), attributes)?;
        match log {
            Some(log) => described.to(log)?,
            None => described.to_fault_log()?,
        }
        Ok(())
    })
}

/// pagewire_verbs.h
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_make_flush_region(mr: *mut ibv_mr) -> pw_error {
    call(|| {
        // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
        unsafe { check_region(mr) }?;
        // SAFETY: NULL, or a region that is not deregistered meanwhile (pagewire_verbs.h).
        match unsafe { make_flush_region(mr) } {
            Err(RegionAttributesError::NoFlushRegion) => Err(Refusal::argument(
                "'mr' is to be 8 bytes long, and registered with IBV_ACCESS_REMOTE_READ as the only right of peers",
            )),
            made => Ok(made.map_err(refused)?),
        }
    })
}

fn refused(error: RegionAttributesError) -> pagewire::Error {
    let engine = |why| pagewire::Error::Engine { what: "attributes of pages", why };
    match error {
        RegionAttributesError::NoRegion => engine(pagewire_verbs::engine_refusal("'mr' is no memory region")),
        RegionAttributesError::Refused(OwnAttributesError::Watched) => {
            engine(pagewire_verbs::engine_refusal(
                "the region's accesses are counted, or it is saved to checkpoints: a page has one log",
            ))
        }
        RegionAttributesError::NoFlushRegion => {
            engine(pagewire_verbs::engine_refusal("'mr' cannot be a region of flushes"))
        }
        RegionAttributesError::Refused(OwnAttributesError::Flushes) => {
            engine(pagewire_verbs::engine_refusal(
                "READs of the region wait for handlers: its page has no attributes",
            ))
        }
        RegionAttributesError::Refused(OwnAttributesError::HasAttributes) => engine(
            pagewire_verbs::engine_refusal("pages of the region have attributes: register a word of its own"),
        ),
        RegionAttributesError::Refused(OwnAttributesError::Attributes(error)) => {
            pagewire::Error::Attributes(error)
        }
        RegionAttributesError::Refused(OwnAttributesError::Engine(why)) => engine(why),
    }
}
