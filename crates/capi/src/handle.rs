//! What stands behind the opaque pointers of C: objects in places that are never given back to the system, only to others of their kind.
//! So a pointer to an object that was freed is an error, not a fault, as long as its place is not used again.
//!
//! A forked child gets PW_FORKED for each object of its parent, before any lock is taken that a thread of the parent may hold.

use crate::boundary::Result;
use crate::error::{Refusal, pw_error};
use pagewire_memory::fork::{Owner, PerProcess};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Free places that are kept before one is used again: a pointer that was freed is noticed for so many more.
const KEPT: usize = 64;

/// A kind of objects that C programs hold by pointers to `Opaque`.
pub trait Object: Sized + Send + Sync + 'static {
    /// The type that C sees.
    type Opaque;
    /// What a place holds while there is an object of this kind in it.
    const MARK: u64;
    /// For sentences.
    const NAME: &str;

    /// The places of this kind.
    fn places() -> &'static Places<Self>;
}

/// A place for an object. The mark comes first in those of all kinds, so a pointer to another kind is refused, too.
#[repr(C)]
pub struct HandlePlace<T> {
    /// [`Object::MARK`], mixed with the number of the process that made the object (see [`mark`]).
    mark: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

/// What a place holds while a process of this number has an object in it. Numbers of processes are small: no kind's mark becomes another's.
const fn mark<T: Object>(process: u64) -> u64 {
    T::MARK ^ (process << 8)
}

/// Free places. A forked child begins with none.
pub struct Places<T: 'static>(PerProcess<Free<T>>);

struct Free<T: 'static>(VecDeque<&'static HandlePlace<T>>);

// SAFETY: a place in the list is free, so nobody else uses it: it goes with the list to another thread.
unsafe impl<T: Send> Send for Free<T> {}

impl<T> Default for Free<T> {
    fn default() -> Self {
        Free(VecDeque::new())
    }
}

impl<T: Send> Places<T> {
    pub const fn new() -> Self {
        Places(PerProcess::new())
    }
}

impl<T: Send> Default for Places<T> {
    fn default() -> Self {
        Places::new()
    }
}

/// Gives C a pointer to an object.
pub fn hand_out<T: Object>(object: T) -> *mut T::Opaque {
    let free = {
        let mut free = T::places().0.lock();
        if free.0.len() > KEPT { free.0.pop_front() } else { None }
    };
    let place: &'static HandlePlace<T> = free.unwrap_or_else(|| {
        Box::leak(Box::new(HandlePlace { mark: AtomicU64::new(0), value: UnsafeCell::new(None) }))
    });
    // SAFETY: nobody else has the place: it is new, or was taken from the list of free ones.
    unsafe { *place.value.get() = Some(object) };
    place.mark.store(mark::<T>(Owner::this_process().number()), Ordering::Release);
    std::ptr::from_ref(place).cast_mut().cast()
}

/// The object behind a pointer of C.
///
/// # Safety
/// The pointer is NULL, or came from [`hand_out`] for this kind; nobody frees the object while the reference is used (pagewire.h).
pub unsafe fn object<'a, T: Object>(pointer: *const T::Opaque) -> Result<&'a T> {
    // SAFETY: `pointer` is NULL or came from `hand_out` of this kind (this function's `# Safety`), whose places are never unmapped.
    let place = unsafe { place::<T>(pointer) }?;
    let found = place.mark.load(Ordering::Acquire);
    if found != mark::<T>(Owner::current_number()) {
        return Err(not_here::<T>(found));
    }
    // SAFETY: the mark says that it holds an object, which nobody frees meanwhile.
    unsafe { &*place.value.get() }.as_ref().ok_or_else(freed::<T>)
}

/// Takes the object behind a pointer of C, which is not valid any more.
///
/// # Safety
/// As for [`object`]; nobody else uses the object.
pub unsafe fn take_back<T: Object>(pointer: *mut T::Opaque) -> Result<T> {
    // SAFETY: `pointer` is NULL or came from `hand_out` of this kind (`# Safety` of `object`), whose places are never unmapped.
    let place = unsafe { place::<T>(pointer) }?;
    let own = mark::<T>(Owner::current_number());
    if let Err(found) = place.mark.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed) {
        return Err(not_here::<T>(found));
    }
    // SAFETY: of those who free it this thread alone has changed the mark, and nobody uses it.
    let object = unsafe { &mut *place.value.get() }.take();
    T::places().0.lock().0.push_back(place);
    object.ok_or_else(freed::<T>)
}

/// # Safety
/// The pointer is NULL, not aligned, or came from [`hand_out`].
unsafe fn place<T: Object>(pointer: *const T::Opaque) -> Result<&'static HandlePlace<T>> {
    let place: *const HandlePlace<T> = pointer.cast();
    if place.is_null() {
        return Err(Refusal::argument(format!("the {} is NULL", T::NAME)));
    }
    if !place.is_aligned() {
        return Err(Refusal::new(pw_error::PW_HANDLE, format!("the pointer is no {}", T::NAME)));
    }
    // SAFETY: places live for ever.
    Ok(unsafe { &*place })
}

/// Why this process has no object in a place that holds another mark.
#[cold]
fn not_here<T: Object>(found: u64) -> Refusal {
    if !(0..Owner::current_number()).any(|process| found == mark::<T>(process)) {
        return freed::<T>();
    }
    let name = T::NAME;
    Refusal::new(
        pw_error::PW_FORKED,
        format!(
            "this process was forked from the one that has the {name}, which stays the parent's: make one here"
        ),
    )
}

fn freed<T: Object>() -> Refusal {
    let name = T::NAME;
    Refusal::new(
        pw_error::PW_HANDLE,
        format!("the pointer is no {name}: it was freed before, or is something else"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number(u32);
    struct opaque_number;
    static NUMBERS: Places<Number> = Places::new();

    impl Object for Number {
        type Opaque = opaque_number;
        const MARK: u64 = 0x1234;
        const NAME: &str = "number";
        fn places() -> &'static Places<Self> {
            &NUMBERS
        }
    }

    #[test]
    fn a_pointer_that_was_freed_is_refused_until_its_place_is_used_again() {
        let first = hand_out(Number(7));
        // SAFETY: pointers of `hand_out`, used by this thread alone.
        unsafe {
            assert_eq!(object::<Number>(first).unwrap().0, 7);
            assert_eq!(take_back::<Number>(first).unwrap().0, 7);
            assert!(object::<Number>(first).is_err() && take_back::<Number>(first).is_err());
            for number in 0..KEPT as u32 {
                let other = hand_out(Number(number));
                assert_ne!(other, first);
                take_back::<Number>(other).unwrap();
            }
            assert!(object::<Number>(first).is_err());
            assert!(object::<Number>(std::ptr::null()).is_err());
            assert!(object::<Number>(first.wrapping_byte_add(1)).is_err());
        }
    }

    #[test]
    fn object_of_parent_is_refused_in_child() {
        let first = hand_out(Number(7));
        // As another thread of the parent may hold it.
        let held = NUMBERS.0.lock();
        // SAFETY: the child uses pointers of `hand_out` alone, and ends by _exit(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let is_forked = |refusal: Option<Refusal>| {
                refusal.is_some_and(|refusal| refusal.record() == pw_error::PW_FORKED)
            };
            let own = hand_out(Number(8));
            // SAFETY: pointers of `hand_out`, used by this thread alone.
            let holds = unsafe {
                is_forked(object::<Number>(first).err())
                    && is_forked(take_back::<Number>(first).err())
                    && is_forked(take_back::<Number>(first).err())
                    && take_back::<Number>(own).is_ok_and(|number| number.0 == 8)
            };
            // SAFETY: _exit(2) has no preconditions.
            unsafe { libc::_exit(i32::from(!holds)) };
        }
        let mut status = -1;
        // SAFETY: waitpid(2) of our own child, with a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        drop(held);
        // SAFETY: a pointer of `hand_out`, used by this thread alone.
        assert_eq!(unsafe { take_back::<Number>(first) }.unwrap().0, 7);
    }
}
