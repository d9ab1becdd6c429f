//! Numbers and figures as JSON, an object each.

use super::comparison::Comparison;
use super::crossings;
use super::live::{Live, Pages};
use super::marks::marks;
use super::rows::Rows;
use pagewire_papers::unit_costs::Input;
use pagewire_papers::{Claim, Curve, Figure, InputSet, Place, Prediction, Verdict};
use serde_json::{Value, json};

/// All that there is: numbers, figures, what was measured beside neither, inputs, and last the counts.
pub(super) fn of_all(paper: &str, rows: &Rows, figures: &[Figure], live: Option<&Live>) -> Vec<Value> {
    let claims = rows.claims();
    let mut lines: Vec<Value> = live.iter().map(|live| of_machine(paper, live)).collect();
    lines.extend(claims.iter().map(|claim| of_claim(paper, claim, live)));
    lines.extend(figures.iter().map(|figure| of_figure(paper, figure, claims, live)));
    let places = super::without_figure(claims, figures, live);
    lines.extend(places.into_iter().map(|(place, live)| of_place(paper, place, live)));
    lines.extend(rows.inputs().into_iter().map(|input| of_input(paper, input)));
    lines.extend((!claims.is_empty()).then(|| of_counts(paper, claims)));
    lines
}

/// What is to be known of this machine while it was measured.
fn of_machine(paper: &str, live: &Live) -> Value {
    let load = live.load();
    json!({ "paper": paper, "machine": live.first_lines(), "is_busy": load.is_busy(), "busy_percents": load.percents })
}

/// What numbers are computed from.
fn of_input(paper: &str, input: &Input) -> Value {
    json!({
        "paper": paper,
        "input": input.name,
        "values": input.values,
        "unit": input.unit,
        "source": input.source.to_string(),
    })
}

/// How many numbers have which verdict.
fn of_counts(paper: &str, claims: &[Claim]) -> Value {
    let counts = Verdict::count(claims).map(|(verdict, count)| (verdict.name().to_owned(), json!(count)));
    json!({ "paper": paper, "numbers": claims.len(), "counts": Value::from_iter(counts) })
}

/// The names of inputs.
pub(super) fn names(inputs: InputSet) -> Vec<&'static str> {
    inputs.inputs().map(|input| input.name).collect()
}

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
        "verdict": claim.verdict().name(),
        "inputs": names(claim.predicted.inputs()),
        "predicted_least": least,
        "predicted_most": most,
        "varied_least": varied_least,
        "varied_most": varied_most,
        "varied_by": names(claim.varied_by),
        "deviation_percent": percent(claim.deviation()),
        "other_link_least": other_least,
        "other_link_most": other_most,
        "other_link_deviation_percent": percent(claim.deviation_at_other_link()),
        "reason": claim.reason,
    });
    if let Some(live) = live {
        line["this_machine"] = json!(live.number(claim));
        line["measured_as"] = json!(live.measured_as(claim));
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
        "provenance": provenance(&figure.curves),
        "intervals": intervals(&figure.curves),
        "stated": marks(figure, claims),
        "notes": figure.notes,
    });
    if let Some(live) = live {
        let curves = |pages| live.curves_of(figure, pages);
        let (zero, pager) = (curves(Pages::Zero), curves(Pages::Pager));
        line["this_machine"] = of_live(live, figure.place, of_curves(&zero), of_curves(&pager));
        line["this_machine"]["intervals"] = intervals(&zero);
        line["this_machine"]["intervals_pager"] = intervals(&pager);
        line["this_machine"]["crossings"] = crossings::of_live(figure, live);
        if let Some(comparison) = Comparison::of(figure, Some(live)) {
            line["this_machine"]["comparison"] = comparison.json();
        }
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

/// Of each curve the values of x, and the least and the most there.
fn intervals(curves: &[Curve]) -> Value {
    let with = curves.iter().filter(|curve| !curve.intervals.is_empty());
    with.map(|curve| (curve.name.clone(), json!(curve.intervals))).collect()
}

/// Where each curve comes from: stated, or computed from which inputs.
fn provenance(curves: &[Curve]) -> Value {
    let of = |curve: &Curve| {
        let provenance = curve.provenance;
        json!({ "is": provenance.name(), "inputs": names(provenance.inputs()) })
    };
    curves.iter().map(|curve| (curve.name.clone(), of(curve))).collect()
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
        assert_eq!(of("given"), 5);
        assert!(of("predicted") >= 3);
        for line in lines {
            let is_predicted = line["kind"] == "predicted" || line["kind"] == "sum";
            for bound in ["predicted_least", "predicted_most"] {
                assert_eq!(is_predicted, line[bound].is_number(), "{line}");
            }
            assert_eq!(
                is_predicted,
                line["inputs"].as_array().is_some_and(|names| !names.is_empty()),
                "{line}"
            );
            assert!(line["other_link_least"].is_null(), "JBMT's text has one link: {line}");
        }
    }

    #[test]
    fn figures_of_several_runs_have_intervals() {
        let figures = pagewire_papers::figures(Paper::Part);
        let of = |number| {
            let figure =
                figures.iter().find(|figure| figure.place == Place::Figure(number)).expect("a figure");
            of_figure("part", figure, &[], None)
        };
        let seeds = of(14)["intervals"]["PIO 64 KiB"].clone();
        assert!(
            seeds.as_array().is_some_and(|all| all.iter().all(|one| one[1].as_f64() < one[2].as_f64())),
            "{seeds}"
        );
        assert_eq!(of(9)["intervals"], json!({}));
        assert_eq!(of(9)["provenance"]["Transfer-Only"]["is"], "computed");
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
