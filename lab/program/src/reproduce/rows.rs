//! Numbers that may be shown.

use anyhow::{Result, bail};
use pagewire_papers::unit_costs::Input;
use pagewire_papers::{Claim, InputSet};

/// Numbers of one paper. None of them is computed from the paper's own value of it, or from nothing: only such are printed or written.
#[derive(Debug)]
pub(super) struct Rows(Vec<Claim>);

impl Rows {
    /// Takes numbers in.
    ///
    /// # Errors
    /// If one is refused ([`Claim::refusal`]).
    pub(super) fn of(claims: Vec<Claim>) -> Result<Rows> {
        if let Some(refusal) = claims.iter().find_map(Claim::refusal) {
            bail!("{refusal}: it is given, not predicted");
        }
        Ok(Rows(claims))
    }

    /// The numbers.
    pub(super) fn claims(&self) -> &[Claim] {
        &self.0
    }

    /// What these numbers are computed from, in the order in which it is lettered.
    pub(super) fn inputs(&self) -> Vec<&'static Input> {
        let all = self.0.iter().fold(InputSet::EMPTY, |set, claim| set.with(claim.predicted.inputs()));
        all.inputs().collect()
    }

    /// The letters of what one number is computed from, runs of them shortened: `a-d f`.
    pub(super) fn letters(&self, claim: &Claim) -> String {
        let all = self.inputs();
        let of = |input| all.iter().position(|known| *known == input);
        let indices: Vec<usize> = claim.predicted.inputs().inputs().filter_map(of).collect();
        let mut parts: Vec<(usize, usize)> = Vec::new();
        for index in indices {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                _ => parts.push((index, index)),
            }
        }
        let part = |(first, last): (usize, usize)| match last - first {
            0 => letter(first),
            1 => format!("{} {}", letter(first), letter(last)),
            _ => format!("{}-{}", letter(first), letter(last)),
        };
        parts.into_iter().map(part).collect::<Vec<_>>().join(" ")
    }
}

/// The letter of an input by its place: a to z, then A to Z.
pub(super) fn letter(index: usize) -> String {
    let letters: Vec<char> = ('a'..='z').chain('A'..='Z').collect();
    letters.get(index).map_or_else(|| format!("({index})"), char::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_papers::{Paper, Place, Prediction, Provenance};

    /// The printer gets no number that is computed from the paper's value of it.
    #[test]
    fn number_computed_from_itself_is_not_taken_in() {
        let figures = pagewire_papers::figures(Paper::Frrwp);
        let kernel = figures.iter().find(|figure| figure.place == Place::Figure(2)).expect("figure 2");
        let Provenance::Computed(inputs) = kernel.curves[1].provenance else { panic!("computed") };
        let card = pagewire_papers::Computed { value: 40.0, inputs };
        let mut claims = pagewire_papers::claims(Paper::Frrwp);
        let row =
            claims.iter_mut().find(|claim| claim.what == "4 KB: ordinary registration").expect("table 1");
        row.predicted = Prediction::Sum(card, card);
        let refusal = Rows::of(claims).expect_err("refused").to_string();
        assert!(refusal.contains("table 1") && refusal.contains("given, not predicted"), "{refusal}");
    }

    #[test]
    fn letters_name_what_a_number_is_computed_from() {
        for paper in Paper::ALL {
            let rows = Rows::of(pagewire_papers::claims(paper)).expect("none is refused");
            for claim in rows.claims() {
                let is_computed = claim.predicted.range().is_some();
                assert_eq!(is_computed, !rows.letters(claim).is_empty(), "{}", claim.what);
            }
            assert!(rows.inputs().len() < 52);
        }
        let rows = Rows::of(pagewire_papers::claims(Paper::Jbmt)).expect("none is refused");
        let link = rows.claims().iter().find(|claim| claim.what == "peak bandwidth").expect("figure 5");
        assert!(rows.letters(link).contains('-'), "{}", rows.letters(link));
        assert_eq!([letter(0), letter(26), letter(60)], ["a", "A", "(60)"]);
    }
}
