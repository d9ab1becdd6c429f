//! The inputs of the models by number: what each is called, what it is, and who says so.
//!
//! A model reads its costs by the methods that [`table`] makes, one of the name of each field. They record the read ([`crate::computed`]).

mod active;
mod frrwp;
mod jbmt;
mod part;
mod reuse;

use super::{ActiveCosts, FrrwpCosts, JbmtCosts, JbmtLimits, PartCosts, ReuseCosts};
use crate::computed::InputSet;
use crate::figure::Place;

pub(super) use active::ASSUMED;
pub(super) use part::COUNTS;

/// Where an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The paper's text, in this section.
    Text(&'static str),
    /// Another text or standard, by its name.
    Other(&'static str),
    /// Nobody gives it.
    Assumption,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Text(section) => write!(f, "section {section}"),
            Source::Other(name) => f.write_str(name),
            Source::Assumption => f.write_str("assumption"),
        }
    }
}

/// An input of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// What it is.
    pub name: &'static str,
    /// Its values, of each system of the paper; none where it is no number.
    pub values: &'static [f64],
    /// Their unit.
    pub unit: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// The numbers of the paper that it is, or is a rounding of: none of them can be predicted from it.
    pub states: &'static [(Place, &'static str)],
}

impl Input {
    const fn new(
        name: &'static str,
        values: &'static [f64],
        unit: &'static str,
        source: Source,
        states: &'static [(Place, &'static str)],
    ) -> Input {
        Input { name, values, unit, source, states }
    }
}

/// Defines the inputs of a struct of costs, from a first number on, and the methods that read its fields.
macro_rules! table {
    ($costs:ident from $first:literal: $($number:literal $field:ident: $type:ty = $input:expr;)*) => {
        impl $costs {
            /// The number of the first input.
            pub(in crate::unit_costs) const FIRST: u32 = $first;
            /// The inputs, in the order of their numbers.
            pub(in crate::unit_costs) const INPUTS: &'static [Input] = &[$($input),*];

            $(
                #[doc = concat!("Reads `", stringify!($field), "`; the read is recorded.")]
                pub(crate) fn $field(&self) -> $type {
                    crate::computed::read($first + $number);
                    self.$field
                }
            )*
        }

        #[cfg(test)]
        #[test]
        fn numbers_are_consecutive() {
            let numbers = [$($number as usize),*];
            assert!(numbers.iter().enumerate().all(|(index, number)| index == *number), "{numbers:?}");
        }
    };
}

use table;

/// The first number and the inputs of each struct of costs.
const TABLES: [(u32, &[Input]); 7] = [
    (PartCosts::FIRST, PartCosts::INPUTS),
    (COUNTS, part::APPLICATION_INPUTS),
    (JbmtCosts::FIRST, JbmtCosts::INPUTS),
    (JbmtLimits::FIRST, JbmtLimits::INPUTS),
    (FrrwpCosts::FIRST, FrrwpCosts::INPUTS),
    (ReuseCosts::FIRST, ReuseCosts::INPUTS),
    (ActiveCosts::FIRST, ActiveCosts::INPUTS),
];

/// The inputs of all models.
pub fn all_inputs() -> impl Iterator<Item = &'static Input> {
    TABLES.iter().flat_map(|(_, inputs)| inputs.iter())
}

impl InputSet {
    /// The inputs themselves.
    pub fn inputs(self) -> impl Iterator<Item = &'static Input> {
        self.numbers().filter_map(|number| {
            let of =
                |(first, inputs): &(u32, &'static [Input])| inputs.get(number.checked_sub(*first)? as usize);
            TABLES.iter().find_map(of)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number is that of one input, and each input of the table is found by its own.
    #[test]
    fn number_is_that_of_one_input() {
        let mut numbers = Vec::new();
        for (first, inputs) in TABLES {
            for (number, input) in (first..).zip(inputs) {
                assert_eq!(InputSet::of(number).inputs().collect::<Vec<_>>(), [input]);
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!((numbers.len(), numbers.last().is_some_and(|last| *last < 128)), (count, true));
    }
}
