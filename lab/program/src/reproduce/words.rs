//! Numbers as the table says them.

use pagewire_papers::{Claim, Prediction, Verdict};

/// Three digits that count, as the papers state them.
pub(super) fn number(value: f64) -> String {
    // The bounds are those from which on a number is rounded to one with a digit more.
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn with_unit(number: &str, unit: &str) -> String {
    format!("{number} {unit}").trim_end().to_owned()
}

/// What the text allows, and whether the number is ours.
pub(super) fn stated(claim: &Claim) -> String {
    let (least, most) = claim.stated;
    let range = if least == most {
        format!("{most}")
    } else if most.is_infinite() {
        format!(">= {least}")
    } else if least == 0.0 {
        format!("<= {most}")
    } else {
        format!("{least} to {most}")
    };
    let ours = if claim.bound_by_us { " (bound by us)" } else { "" };
    with_unit(&range, claim.unit) + ours
}

/// What is predicted of a claim; `None`: nothing.
pub(super) fn predicted(claim: &Claim, predicted: Prediction) -> Option<String> {
    let kind = match predicted {
        Prediction::Value(_) => "",
        Prediction::Sum(..) => "sum: ",
        Prediction::Estimate(_) => "estimate: ",
        Prediction::Given => return Some("given".to_owned()),
        Prediction::NotModelled => return None,
    };
    let (least, most) = predicted.range()?;
    let range = if least < most { format!("{} to {}", number(least), number(most)) } else { number(most) };
    Some(format!("{kind}{}", with_unit(&range, claim.unit)))
}

/// The verdict, with the deviation of what is predicted. The distance from a range says nothing where that decides nothing.
pub(super) fn outcome_text(claim: &Claim) -> String {
    let name = claim.verdict().name();
    match deviation(claim) {
        Some(deviation) if claim.verdict() != Verdict::Undecided => format!("{name}, {deviation}"),
        _ => name.to_owned(),
    }
}

/// The range of a number that depends on inputs which no text gives, or which it only bounds, and which of them widen it.
pub(super) fn spread(claim: &Claim) -> Option<String> {
    let (least, most) = claim.varied?;
    let names: Vec<&str> = claim.varied_by.inputs().map(|input| input.name).collect();
    let factor = if least > 0.0 { format!(", {}x apart", number(most / least)) } else { String::new() };
    let by = if names.is_empty() {
        "each input alone moves it by less than a tenth".to_owned()
    } else {
        format!("because of: {}", names.join("; "))
    };
    Some(format!("{} to {}{factor}, {by}", number(least), with_unit(&number(most), claim.unit)))
}

/// How far what is predicted is off, if anything is predicted.
pub(super) fn deviation(claim: &Claim) -> Option<String> {
    let (deviation, (least, most)) = (claim.deviation()?, claim.predicted.range()?);
    // Of numbers that are but bounded, the distance from the bounds says nothing.
    let is_bounded = claim.stated.0 < claim.stated.1 || least < most;
    let is_within = is_bounded && deviation == 0.0;
    // No negative zero.
    let percent = (deviation * 1000.0).round() / 10.0 + 0.0;
    Some(if is_within { "within".to_owned() } else { format!("{percent:+.1} %") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_papers::Computed;

    #[test]
    fn numbers_have_three_digits_that_count() {
        assert_eq!(
            [24058.06, 35.808, 1.4743, 0.0539, 0.0, 99.97, 9.996, -0.0996].map(number),
            ["24058", "35.8", "1.47", "0.054", "0.00", "100", "10.0", "-0.10"]
        );
    }

    #[test]
    fn bounds_and_kinds_are_shown() {
        let claims = pagewire_papers::claims(pagewire_papers::Paper::Part);
        let inputs = claims[0].predicted.inputs();
        let of = |value| Computed { value, inputs };
        let claim = |least, most, bound_by_us| Claim {
            stated: (least, most),
            bound_by_us,
            unit: "us",
            predicted: Prediction::Value(of(2.0)),
            ..claims[0].clone()
        };
        let (open, most, range) =
            (claim(1.0, f64::INFINITY, true), claim(0.0, 1.0, false), claim(1.0, 3.0, false));
        assert_eq!([&open, &most, &range].map(stated), [">= 1 us (bound by us)", "<= 1 us", "1 to 3 us"]);
        let deviations =
            [&open, &most, &range, &claim(1.0, 1.0, false)].map(|claim| deviation(claim).expect("predicted"));
        assert_eq!(deviations, ["within", "+100.0 %", "within", "+100.0 %"]);
        let kinds = [
            Prediction::Sum(of(1.0), of(2.0)),
            Prediction::Estimate(of(1.0)),
            Prediction::Given,
            Prediction::NotModelled,
        ];
        let told = kinds.map(|kind| predicted(&open, kind));
        let expected = [Some("sum: 1.00 to 2.00 us"), Some("estimate: 1.00 us"), Some("given"), None];
        assert_eq!(told, expected.map(|text| text.map(str::to_owned)));
        assert_eq!([outcome_text(&open), outcome_text(&most)], ["bound by us, within", "missed, +100.0 %"]);
        assert_eq!(spread(&open), None);
        let varied = Claim { varied: Some((0.5, 4.0)), varied_by: inputs, ..open };
        let text = spread(&varied).expect("a range");
        assert!(
            text.starts_with("0.50 to 4.00 us, 8.00x apart, because of: ") && text.contains("link"),
            "{text}"
        );
        assert_eq!(outcome_text(&varied), "undecided");
    }
}
