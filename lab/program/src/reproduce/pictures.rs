//! The pictures of a figure: which curves stand in which, under which title.

use super::marks::Mark;
use crate::chart::{Axis, CURVES, Curve, Drawing, Part, Picture, Stated, Unit, size};
use pagewire_papers::{Figure, Interval, Provenance, Shape};

/// A curve, and what it is called in the model.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    /// The name of what it shows, wherever it was had.
    pub(super) base: String,
    /// Its own, which says where.
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Around points of several runs.
    pub(super) intervals: Vec<Interval>,
    /// Where the points come from.
    pub(super) provenance: Provenance,
}

/// Curves of one origin: the model, or this machine.
pub(super) struct Origin {
    /// What follows the name of a file of its own.
    pub(super) suffix: &'static str,
    pub(super) title: &'static str,
    pub(super) curves: Vec<Drawn>,
}

/// The pictures of a figure, each with what follows the figure's name in that of its file.
pub(super) fn pictures(
    paper: &str,
    figure: &Figure,
    origins: &[Origin],
    marks: &[Mark],
) -> Vec<(String, Picture)> {
    let Some((model, measured)) = origins.split_first() else { return Vec::new() };
    let picture = |origins: &[&Origin], drawing| Picture {
        title: title(paper, figure),
        source: source(paper, origins),
        drawing,
    };
    let mut drawn = Vec::new();
    let mut measured: Vec<&Origin> = measured.iter().collect();
    match figure.shape {
        Shape::Course => drawn.push((String::new(), picture(&[model], course(figure)))),
        Shape::Parts(count) => drawn.push((String::new(), picture(&[model], shares(figure, count, marks)))),
        Shape::Groups(names) => drawn.push((String::new(), picture(&[model], groups(figure, names)))),
        Shape::Curves => measured.insert(0, model),
    }
    let merged: Vec<(&Origin, Vec<Drawn>)> =
        measured.into_iter().map(|origin| (origin, without_doubles(&origin.curves))).collect();
    let all = merged.iter().map(|(_, curves)| curves.len()).sum::<usize>();
    // Curves of one thing have one colour, in whichever picture they are.
    let names: Vec<String> = model_names(&merged);
    if all <= CURVES && !merged.is_empty() {
        let shown: Vec<&Origin> = merged.iter().map(|(origin, _)| *origin).collect();
        let sets: Vec<&[Drawn]> = merged.iter().map(|(_, curves)| curves.as_slice()).collect();
        let suffix = if figure.shape == Shape::Curves { "" } else { shown[0].suffix };
        drawn.push((suffix.to_owned(), picture(&shown, curves(figure, &sets, &names, marks))));
        return drawn;
    }
    for (origin, set) in &merged {
        // As many in each, so that none is left with one.
        let pictures = set.len().div_ceil(CURVES).max(1);
        for (index, part) in set.chunks(set.len().div_ceil(pictures).max(1)).enumerate() {
            let suffix = if index == 0 { String::new() } else { format!("-{}", index + 1) };
            let here: Vec<String> = part.iter().map(|curve| curve.base.clone()).collect();
            let names = if pictures == 1 { &names } else { &here };
            let drawing = curves(figure, &[part], names, marks);
            drawn.push((format!("{}{suffix}", origin.suffix), picture(&[origin], drawing)));
        }
    }
    drawn
}

/// What is shown, and where it stands in which paper.
fn title(paper: &str, figure: &Figure) -> String {
    let title = match figure.shape {
        // The picture has the names of what the table numbers.
        Shape::Groups(_) => figure.title.replace(" (1)", "").replace(" (2)", "").replace(" (3)", ""),
        _ => figure.title.to_owned(),
    };
    format!("{}, {}: {title}", paper.to_uppercase(), figure.place)
}

fn source(paper: &str, origins: &[&Origin]) -> String {
    let paper = match paper {
        "part" => "PART: page faults during RDMA as errors of transmission",
        "frrwp" => "FRRWP: overlapped registration and conditional writes",
        "reuse" => "REUSE: an allocator of registered memory",
        "active" => "Active Access: handlers on put and get",
        _ => "JBMT: RDMA with dynamic page pinning, onloaded",
    };
    let origin = |origin: &&Origin| match origin.title {
        "model" => "a model of the paper's machine",
        other => other,
    };
    let origins: Vec<&str> = origins.iter().map(origin).collect();
    format!("{paper}. Shown: {}.", origins.join("; "))
}

/// Curves that are the same become one, under all their names, where all then stand in one picture.
fn without_doubles(curves: &[Drawn]) -> Vec<Drawn> {
    let mut merged: Vec<Drawn> = Vec::new();
    for curve in curves {
        match merged.iter_mut().find(|known| known.points == curve.points) {
            Some(known) => known.name = format!("{}; {}", known.name, curve.name),
            None => merged.push(curve.clone()),
        }
    }
    if merged.len() > CURVES { curves.to_vec() } else { merged }
}

/// The names of what is shown, in the order of their colours.
fn model_names(sets: &[(&Origin, Vec<Drawn>)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for curve in sets.iter().flat_map(|(_, curves)| curves) {
        if !names.contains(&curve.base) {
            names.push(curve.base.clone());
        }
    }
    names
}

fn axis(axis: pagewire_papers::Axis) -> Axis {
    let unit = Unit::of(axis.label);
    let label = match (unit, axis.label) {
        (Unit::Bytes, _) => "message size",
        (Unit::Microseconds, _) => "time",
        (Unit::Rate, _) => "bandwidth",
        (Unit::Times, _) => "ratio",
        (Unit::Percent, "%") => "longer by",
        (Unit::Percent, "% of pages absent") => "pages absent",
        (_, label) => label,
    };
    Axis { label, unit, logarithmic: axis.logarithmic }
}

fn curves(figure: &Figure, sets: &[&[Drawn]], names: &[String], marks: &[Mark]) -> Drawing {
    let colour = |base: &str| names.iter().position(|name| name == base).unwrap_or(0);
    let curve = |(set, curve): (usize, &Drawn)| Curve {
        name: curve.name.clone(),
        colour: colour(&curve.base),
        dashed: set > 0,
        points: curve.points.clone(),
    };
    let all = sets.iter().enumerate().flat_map(|(set, curves)| curves.iter().map(move |curve| (set, curve)));
    let is_here =
        |mark: &&Mark| sets[0].iter().any(|curve| curve.name.split("; ").any(|name| name == mark.curve));
    let stated = |mark: &Mark| {
        let of = sets[0].iter().find(|curve| curve.name.split("; ").any(|name| name == mark.curve));
        Stated { colour: of.map_or(0, |curve| colour(&curve.base)), at: (mark.x, mark.y) }
    };
    Drawing::Curves {
        axes: (axis(figure.x), axis(figure.y)),
        curves: all.map(curve).collect(),
        stated: marks.iter().filter(is_here).map(stated).collect(),
    }
}

fn course(figure: &Figure) -> Drawing {
    let span = |curve: &pagewire_papers::Curve| {
        let ends = (curve.points.first()?.1, curve.points.last()?.1);
        Some((curve.name.clone(), ends.0, ends.1))
    };
    Drawing::Course { unit: Unit::Microseconds, spans: figure.curves.iter().filter_map(span).collect() }
}

fn shares(figure: &Figure, count: usize, marks: &[Mark]) -> Drawing {
    let (parts, others) = figure.curves.split_at(count.min(figure.curves.len()));
    let sizes: Vec<f64> =
        parts.first().map(|part| part.points.iter().map(|point| point.0).collect()).unwrap_or_default();
    let values = |curve: &pagewire_papers::Curve| -> Part {
        (curve.name.clone(), curve.points.iter().map(|point| Some(point.1)).collect())
    };
    let sum =
        |at: usize| parts.iter().filter_map(|part| part.points.get(at)).map(|point| point.1).sum::<f64>();
    // The sum of the parts is the height of the bars.
    let is_sum = |curve: &&pagewire_papers::Curve| {
        curve.points.iter().enumerate().all(|(at, point)| (point.1 - sum(at)).abs() <= 1e-6 * point.1.abs())
    };
    let beside: Vec<&pagewire_papers::Curve> = others.iter().filter(|curve| !is_sum(curve)).collect();
    let stated = |mark: &Mark| {
        let category = sizes.iter().position(|size| *size == mark.x)?;
        Some((beside.iter().position(|curve| curve.name == mark.curve), category, mark.y))
    };
    Drawing::Shares {
        unit: Unit::of(figure.y.label),
        categories: sizes.iter().map(|bytes| size(*bytes)).collect(),
        parts: parts.iter().map(values).collect(),
        beside: beside.iter().map(|curve| values(curve)).collect(),
        stated: marks.iter().filter_map(stated).collect(),
    }
}

fn groups(figure: &Figure, names: &[&str]) -> Drawing {
    let scale = if figure.y.label == "ms" { 1_000.0 } else { 1.0 };
    let bar = |curve: &pagewire_papers::Curve| -> Part {
        (curve.name.clone(), curve.points.iter().map(|point| Some(point.1 * scale)).collect())
    };
    Drawing::Groups {
        unit: Unit::of(figure.y.label),
        categories: names.iter().map(|&name| name.to_owned()).collect(),
        bars: figure.curves.iter().map(bar).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_papers::{Paper, Place};

    fn of(paper: Paper, place: Place) -> Vec<(String, Picture)> {
        let figures = pagewire_papers::figures(paper);
        let figure = figures.iter().find(|figure| figure.place == place).expect("a figure");
        let drawn = |curve: &pagewire_papers::Curve| Drawn {
            base: curve.name.clone(),
            name: curve.name.clone(),
            points: curve.points.clone(),
            intervals: Vec::new(),
            provenance: curve.provenance,
        };
        let model =
            Origin { suffix: "", title: figure.basis, curves: figure.curves.iter().map(drawn).collect() };
        let marks = super::super::marks::marks(figure, &pagewire_papers::claims(paper));
        pictures("part", figure, &[model], &marks)
    }

    /// Twelve curves become two pictures, seven of which two are the same one of six; none has more.
    #[test]
    fn no_picture_has_more_than_six_curves() {
        for (number, pictures) in [(9, 1), (12, 1), (14, 2), (15, 1)] {
            let drawn = of(Paper::Part, Place::Figure(number));
            assert_eq!(drawn.len(), pictures, "figure {number}");
            for (suffix, picture) in drawn {
                let Drawing::Curves { curves, .. } = picture.drawing else { panic!("curves") };
                assert!((1..=CURVES).contains(&curves.len()), "{suffix}");
                let mut colours: Vec<usize> = curves.iter().map(|curve| curve.colour).collect();
                colours.sort_unstable();
                colours.dedup();
                assert_eq!(colours.len(), curves.len(), "each has a colour of its own");
                let kinds = curves.iter().map(|curve| curve.name.split(' ').next().unwrap_or_default());
                let kinds: std::collections::BTreeSet<&str> = kinds.collect();
                assert!(number != 14 || kinds.len() == 1, "PIO and PIA have a picture each: {kinds:?}");
                assert!(picture.title.starts_with(&format!("PART, figure {number}: ")), "{}", picture.title);
            }
        }
    }

    #[test]
    fn breakdowns_are_bars_and_categories_have_names() {
        let Drawing::Shares { parts, beside, stated, categories, .. } =
            &of(Paper::Part, Place::Figure(13))[0].1.drawing
        else {
            panic!("parts")
        };
        assert_eq!((parts.len(), beside.len(), stated.len()), (7, 1, 2));
        assert_eq!(categories.first().map(String::as_str), Some("4 KiB"));
        assert!(
            stated.iter().any(|stated| stated.0.is_none()) && stated.iter().any(|stated| stated.0 == Some(0))
        );
        assert!(matches!(of(Paper::Jbmt, Place::Figure(7))[0].1.drawing, Drawing::Shares { .. }));
        assert!(matches!(of(Paper::Part, Place::Figure(10))[0].1.drawing, Drawing::Course { .. }));
        let Drawing::Groups { categories, .. } = &of(Paper::Part, Place::Table(5))[0].1.drawing else {
            panic!("groups")
        };
        assert_eq!(categories, &["LAMMPS", "HPL", "HPCG"]);
    }
}
