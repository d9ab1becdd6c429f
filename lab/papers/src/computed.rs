//! Numbers that know what they were computed from.
//!
//! Each input of a model has a number (`unit_costs::inputs`), and whoever reads one is recorded. [`Computed`] holds a value and the inputs that
//! were read for it. What the papers' numbers and figures are made of comes from [`computed`] alone: [`strictly`] refuses an input that is read
//! elsewhere. So an input that a number does not name had no influence on it.

use std::cell::Cell;
use std::ops::{Add, Div, Mul, Sub};

/// Inputs of the models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputSet(u128);

impl InputSet {
    /// None.
    pub const EMPTY: InputSet = InputSet(0);

    /// The input of that number.
    pub(crate) const fn of(number: u32) -> InputSet {
        InputSet(1 << number)
    }

    /// Those of either set.
    pub const fn with(self, other: InputSet) -> InputSet {
        InputSet(self.0 | other.0)
    }

    /// Whether an input is in it.
    pub const fn has(self, number: u32) -> bool {
        self.0 & (1 << number) != 0
    }

    /// The numbers of its inputs.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (0..u128::BITS).filter(move |&number| self.has(number))
    }
}

/// Who reads inputs now.
#[derive(Clone, Copy)]
enum Reader {
    /// Anybody, unrecorded.
    Any,
    /// Nobody: numbers and figures are being put together.
    Nobody,
    /// A computation, which has read these.
    Computation(InputSet),
}

thread_local! {
    static READER: Cell<Reader> = const { Cell::new(Reader::Any) };
}

/// Puts a reader back when a scope ends, also by a panic.
struct Scope(Reader);

impl Scope {
    fn enter(reader: Reader) -> Scope {
        Scope(READER.replace(reader))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let outer = match (self.0, READER.get()) {
            (Reader::Computation(outer), Reader::Computation(inner)) => {
                Reader::Computation(outer.with(inner))
            }
            (outer, _) => outer,
        };
        READER.set(outer);
    }
}

/// Records that the input of that number is read.
///
/// # Panics
/// If it is read outside of a computation, within [`strictly`].
pub(crate) fn read(number: u32) {
    match READER.get() {
        Reader::Any => {}
        Reader::Nobody => panic!("input {number} is read outside of a computation"),
        Reader::Computation(inputs) => READER.set(Reader::Computation(inputs.with(InputSet::of(number)))),
    }
}

/// Runs what puts numbers or figures together; it may read no input but within [`computed`].
pub(crate) fn strictly<T>(make: impl FnOnce() -> T) -> T {
    let _scope = Scope::enter(Reader::Nobody);
    make()
}

/// Gives what `value` gives, and the inputs that it reads.
pub(crate) fn recorded<T>(value: impl FnOnce() -> T) -> (T, InputSet) {
    let _scope = Scope::enter(Reader::Computation(InputSet::EMPTY));
    let value = value();
    match READER.get() {
        Reader::Computation(inputs) => (value, inputs),
        Reader::Any | Reader::Nobody => unreachable!("each scope within has ended"),
    }
}

/// A number, with the inputs that it is computed from.
pub(crate) fn computed(value: impl FnOnce() -> f64) -> Computed {
    let (value, inputs) = recorded(value);
    Computed { value, inputs }
}

/// A value, and what it was computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computed {
    /// The value.
    pub value: f64,
    /// The inputs that were read for it.
    pub inputs: InputSet,
}

impl Computed {
    /// The value changed by a function that reads no input.
    pub(crate) fn map(self, change: impl FnOnce(f64) -> f64) -> Computed {
        Computed { value: change(self.value), ..self }
    }

    /// The smaller of both; either decides which it is.
    pub(crate) fn min(self, other: Computed) -> Computed {
        Computed { value: self.value.min(other.value), inputs: self.inputs.with(other.inputs) }
    }
}

macro_rules! operator {
    ($trait:ident, $name:ident, $sign:tt) => {
        impl $trait for Computed {
            type Output = Computed;

            fn $name(self, other: Computed) -> Computed {
                Computed { value: self.value $sign other.value, inputs: self.inputs.with(other.inputs) }
            }
        }

        impl $trait<f64> for Computed {
            type Output = Computed;

            fn $name(self, other: f64) -> Computed {
                self.map(|value| value $sign other)
            }
        }

        impl $trait<Computed> for f64 {
            type Output = Computed;

            fn $name(self, other: Computed) -> Computed {
                other.map(|value| self $sign value)
            }
        }
    };
}

operator!(Add, add, +);
operator!(Sub, sub, -);
operator!(Mul, mul, *);
operator!(Div, div, /);

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(number: u32) -> f64 {
        read(number);
        f64::from(number)
    }

    #[test]
    fn number_names_what_was_read_for_it() {
        let (one, other) = (computed(|| reads(3)), computed(|| reads(5) + computed(|| reads(7)).value));
        let both = 2.0 * (one / other) - 1.0;
        assert_eq!((one.inputs, other.inputs.numbers().collect::<Vec<_>>()), (InputSet::of(3), vec![5, 7]));
        assert_eq!(both.inputs.numbers().collect::<Vec<_>>(), [3, 5, 7]);
        assert!((both.value - (2.0 * 3.0 / 12.0 - 1.0)).abs() < 1e-12);
        assert_eq!(one.min(other), Computed { value: 3.0, inputs: both.inputs });
    }

    #[test]
    fn input_is_not_read_outside_of_a_computation() {
        assert_eq!(reads(1), 1.0);
        let refused = std::panic::catch_unwind(|| strictly(|| reads(1)));
        assert!(refused.is_err());
        assert_eq!(strictly(|| computed(|| reads(2))).inputs, InputSet::of(2));
        assert_eq!(reads(1), 1.0, "the scope has ended by the panic, too");
    }
}
