//! What stands behind the opaque pointers of C: objects in places that are never given back to the system, only to others of their kind.
//! So a pointer to an object that was freed is an error, not a fault, as long as its place is not used again.

use crate::boundary::Result;
use crate::error::{Refusal, pw_error};
use parking_lot::Mutex;
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
pub struct Place<T> {
    mark: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

/// Free places.
pub struct Places<T: 'static>(Mutex<VecDeque<&'static Place<T>>>);

// SAFETY: the list has a lock; a place in it is free, so nobody else uses it.
unsafe impl<T: Send> Sync for Places<T> {}

impl<T> Places<T> {
    pub const fn new() -> Self {
        Places(Mutex::new(VecDeque::new()))
    }
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Places::new()
    }
}

/// Gives C a pointer to an object.
pub fn hand_out<T: Object>(object: T) -> *mut T::Opaque {
    let free = {
        let mut free = T::places().0.lock();
        if free.len() > KEPT { free.pop_front() } else { None }
    };
    let place: &'static Place<T> = free.unwrap_or_else(|| {
        Box::leak(Box::new(Place { mark: AtomicU64::new(0), value: UnsafeCell::new(None) }))
    });
    // SAFETY: nobody else has the place: it is new, or was taken from the list of free ones.
    unsafe { *place.value.get() = Some(object) };
    place.mark.store(T::MARK, Ordering::Release);
    std::ptr::from_ref(place).cast_mut().cast()
}

/// The object behind a pointer of C.
///
/// # Safety
/// The pointer is NULL, or came from [`hand_out`] for this kind; nobody frees the object while the reference is used (pagewire.h).
pub unsafe fn object<'a, T: Object>(pointer: *const T::Opaque) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    let place = unsafe { place::<T>(pointer) }?;
    if place.mark.load(Ordering::Acquire) != T::MARK {
        return Err(freed::<T>());
    }
    // SAFETY: the mark says that it holds an object, which nobody frees meanwhile.
    unsafe { &*place.value.get() }.as_ref().ok_or_else(freed::<T>)
}

/// Takes the object behind a pointer of C, which is not valid any more.
///
/// # Safety
/// As for [`object`]; nobody else uses the object.
pub unsafe fn take_back<T: Object>(pointer: *mut T::Opaque) -> Result<T> {
    // SAFETY: the caller's promise.
    let place = unsafe { place::<T>(pointer) }?;
    if place.mark.compare_exchange(T::MARK, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(freed::<T>());
    }
    // SAFETY: of those who free it this thread alone has changed the mark, and nobody uses it.
    let object = unsafe { &mut *place.value.get() }.take();
    T::places().0.lock().push_back(place);
    object.ok_or_else(freed::<T>)
}

/// # Safety
/// The pointer is NULL, not aligned, or came from [`hand_out`].
unsafe fn place<T: Object>(pointer: *const T::Opaque) -> Result<&'static Place<T>> {
    let place: *const Place<T> = pointer.cast();
    if place.is_null() {
        return Err(Refusal::argument(format!("the {} is NULL", T::NAME)));
    }
    if !place.is_aligned() {
        return Err(Refusal::new(pw_error::PW_HANDLE, format!("the pointer is no {}", T::NAME)));
    }
    // SAFETY: places live for ever.
    Ok(unsafe { &*place })
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
}
