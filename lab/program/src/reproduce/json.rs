//! Numbers and figures as JSON, an object each.

use super::live::{Live, Pages};
use super::marks::marks;
use pagewire_papers::{Claim, Curve, Figure, Place, Prediction};
use serde_json::{Value, json};

/// A number.
pub(super) fn of_claim(paper: &str, claim: &Claim, live: Option<&Live>) -> Value {
    let kind = match claim.predicted {
        Prediction::Value(_) => "predicted",
        Prediction::Sum(..) => "sum",
        Prediction::Estimate(_) => "estimate",
        Prediction::Given => "given",
        Prediction::NotModelled => "not modelled",
    };
    let (least, most) = claim.predicted.range().unzip();
    let (other_least, other_most) = claim.at_other_link.and_then(|other| other.range()).unzip();
    let (varied_least, varied_most) = claim.varied.unzip();
    let percent = |deviation: Option<f64>| deviation.map(|deviation| deviation * 100.0);
    let mut line = json!({
        "paper": paper,
        "place": claim.place.to_string(),
        "what": claim.what,
        "unit": claim.unit,
        "stated_least": claim.stated.0,
        "stated_most": claim.stated.1,
        "bound_by_us": claim.bound_by_us,
        "kind": kind,
        "predicted_least": least,
        "predicted_most": most,
        "varied_least": varied_least,
        "varied_most": varied_most,
        "deviation_percent": percent(claim.deviation()),
        "other_link_least": other_least,
        "other_link_most": other_most,
        "other_link_deviation_percent": percent(claim.deviation_at_other_link()),
        "reason": claim.reason,
    });
    if let Some(live) = live {
        line["this_machine"] = json!(live.number(claim));
    }
    line
}

/// A figure, with the numbers of these claims that are points of its curves.
pub(super) fn of_figure(paper: &str, figure: &Figure, claims: &[Claim], live: Option<&Live>) -> Value {
    let mut line = json!({
        "paper": paper,
        "place": figure.place.to_string(),
        "title": figure.title,
        "basis": figure.basis,
        "x": figure.x.label,
        "y": figure.y.label,
        "curves": of_curves(&figure.curves),
        "stated": marks(figure, claims),
        "notes": figure.notes,
    });
    if let Some(live) = live {
        let curves = |pages| of_curves(&live.curves_of(figure, pages));
        line["this_machine"] = of_live(live, figure.place, curves(Pages::Zero), curves(Pages::Pager));
    }
    line
}

/// A place that has numbers and no figure.
pub(super) fn of_place(paper: &str, place: Place, live: &Live) -> Value {
    json!({
        "paper": paper,
        "place": place.to_string(),
        "this_machine": of_live(live, place, json!({}), json!({})),
    })
}

fn of_live(live: &Live, place: Place, curves: Value, curves_pager: Value) -> Value {
    json!({
        "path": live.path().name(),
        "curves": curves,
        "curves_pager": curves_pager,
        "notes": live.notes(place),
    })
}

fn of_curves(curves: &[Curve]) -> Value {
    curves.iter().map(|curve| (curve.name.clone(), json!(curve.points))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_papers::Paper;

    #[test]
    fn json_says_what_was_predicted_and_what_was_not() {
        let claims = pagewire_papers::claims(Paper::Jbmt);
        let lines: Vec<_> = claims.iter().map(|claim| of_claim("jbmt", claim, None)).collect();
        let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
        assert_eq!(of("given"), 4);
        assert!(of("predicted") >= 3);
        for line in lines {
            let is_predicted = line["kind"] == "predicted" || line["kind"] == "sum";
            for bound in ["predicted_least", "predicted_most"] {
                assert_eq!(is_predicted, line[bound].is_number(), "{line}");
            }
            assert!(line["other_link_least"].is_null(), "JBMT's text has one link: {line}");
        }
    }

    #[test]
    fn json_says_whose_bound_it_is_and_what_the_other_link_makes_of_it() {
        let claims = pagewire_papers::claims(Paper::Part);
        let lines: Vec<_> = claims.iter().map(|claim| of_claim("part", claim, None)).collect();
        let with = |what: &str| lines.iter().find(|line| line["what"] == what).expect("a number");
        let nto = with("4 MB: NTO");
        assert!(nto["other_link_least"].as_f64() < nto["predicted_least"].as_f64());
        assert_eq!(nto["bound_by_us"], false);
        let open = with("4 MB: timeout of 1 ms to 500 us (\"outperform\")");
        assert!(open["bound_by_us"] == true && open["stated_most"].is_null() && open["stated_least"] == 1.0);
        assert_eq!(lines.iter().filter(|line| line["kind"] == "estimate").count(), 1);
    }
}
