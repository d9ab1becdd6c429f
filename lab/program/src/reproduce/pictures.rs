//! The picture of a figure: its panels, in one file, and its row on the sheet of its paper.

use super::marks::Mark;
use crate::chart::{Axis, Curve, Drawing, Panel, Part, Picture, Row, Stated, Unit, size};
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
    pub(super) title: &'static str,
    pub(super) curves: Vec<Drawn>,
}

/// The picture of a figure: a panel for each origin.
pub(super) fn picture(paper: &str, figure: &Figure, origins: &[Origin], marks: &[Mark]) -> Picture {
    Picture {
        title: title(paper, figure),
        source: source(paper, origins),
        panels: panels(figure, origins, marks),
    }
}

/// The figure on the sheet: the numbers that the text states of it, the model, in which those that are points are diamonds, and this machine if it
/// was measured at all.
pub(super) fn row(
    figure: &Figure,
    origins: &[Origin],
    (marks, numbers): (&[Mark], Vec<String>),
    is_live: bool,
) -> Row {
    let panel = |heading: &str, lines| Panel { heading: heading.to_owned(), drawing: Drawing::Lines(lines) };
    let none = "the text has no number of it".to_owned();
    let mut panels = panels(figure, origins, marks);
    panels.insert(0, panel("paper", if numbers.is_empty() { vec![none] } else { numbers }));
    if is_live && origins.len() < 2 {
        panels.push(panel("this machine", vec!["not measured".to_owned()]));
    }
    Row { title: format!("{}: {}", figure.place, plain_title(figure)), panels }
}

fn panels(figure: &Figure, origins: &[Origin], marks: &[Mark]) -> Vec<Panel> {
    let Some((model, measured)) = origins.split_first() else { return Vec::new() };
    let panel = |origin: &Origin, drawing| Panel { heading: origin.title.to_owned(), drawing };
    let merged: Vec<Vec<Drawn>> = origins.iter().map(|origin| without_doubles(&origin.curves)).collect();
    let names = names(&merged);
    let first = match figure.shape {
        Shape::Course => course(figure),
        Shape::Parts(count) => shares(figure, count, marks),
        Shape::Groups(names) => groups(figure, names),
        Shape::Curves => curves(figure, (&merged, 0), &names, marks),
    };
    let others = measured.iter().enumerate();
    let others =
        others.map(|(index, origin)| panel(origin, curves(figure, (&merged, index + 1), &names, &[])));
    std::iter::once(panel(model, first)).chain(others).collect()
}

/// What is shown, and where it stands in which paper.
fn title(paper: &str, figure: &Figure) -> String {
    format!("{}, {}: {}", paper.to_uppercase(), figure.place, plain_title(figure))
}

/// The title; the picture has the names of what a table numbers.
fn plain_title(figure: &Figure) -> String {
    match figure.shape {
        Shape::Groups(_) => figure.title.replace(" (1)", "").replace(" (2)", "").replace(" (3)", ""),
        _ => figure.title.to_owned(),
    }
}

fn source(paper: &str, origins: &[Origin]) -> String {
    let paper = match paper {
        "part" => "PART: page faults during RDMA as errors of transmission",
        "frrwp" => "FRRWP: overlapped registration and conditional writes",
        "reuse" => "REUSE: an allocator of registered memory",
        "active" => "Active Access: handlers on put and get",
        _ => "JBMT: RDMA with dynamic page pinning, onloaded",
    };
    let origin = |origin: &Origin| match origin.title {
        "model" => "a model of the paper's machine",
        other => other,
    };
    let origins: Vec<&str> = origins.iter().map(origin).collect();
    format!("{paper}. Shown: {}.", origins.join("; "))
}

/// Curves that are the same become one, under all their names.
fn without_doubles(curves: &[Drawn]) -> Vec<Drawn> {
    let mut merged: Vec<Drawn> = Vec::new();
    for curve in curves {
        match merged.iter_mut().find(|known| known.points == curve.points) {
            Some(known) => known.name = format!("{}; {}", known.name, curve.name),
            None => merged.push(curve.clone()),
        }
    }
    merged
}

/// The names of what is shown, in the order of their styles.
fn names(panels: &[Vec<Drawn>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for curve in panels.iter().flatten() {
        if !names.contains(&curve.base) {
            names.push(curve.base.clone());
        }
    }
    names
}

fn axis(axis: pagewire_papers::Axis) -> Axis {
    let unit = Unit::of(axis.label);
    let label = match (unit, axis.label) {
        (Unit::Bytes, _) => "size",
        (Unit::Microseconds, _) => "time",
        (Unit::Rate, _) => "bandwidth",
        (Unit::Times, _) => "ratio",
        (Unit::Percent, "%") => "difference",
        (Unit::Percent, label) => label.trim_start_matches("% ").trim_start_matches("of "),
        (_, "s") => "seconds",
        (_, label) => label,
    };
    Axis { label, unit, logarithmic: axis.logarithmic }
}

/// The points of a curve, and the ends of its intervals.
fn extent(curve: &Drawn) -> Vec<(f64, f64)> {
    let ends = curve.intervals.iter().flat_map(|&(x, least, most)| [(x, least), (x, most)]);
    curve.points.iter().copied().chain(ends).collect()
}

/// One panel of curves; the others decide its axes, too.
fn curves(
    figure: &Figure,
    (panels, own): (&[Vec<Drawn>], usize),
    names: &[String],
    marks: &[Mark],
) -> Drawing {
    let style = |base: &str| names.iter().position(|name| name == base).unwrap_or(0);
    let curve = |curve: &Drawn| Curve {
        name: curve.name.clone(),
        style: style(&curve.base),
        points: curve.points.clone(),
        intervals: curve.intervals.clone(),
    };
    let of =
        |mark: &Mark| panels[own].iter().find(|curve| curve.name.split("; ").any(|name| name == mark.curve));
    let stated = |mark: &Mark| Some(Stated { style: style(&of(mark)?.base), at: (mark.x, mark.y) });
    let others =
        panels.iter().enumerate().filter(|(index, _)| *index != own && figure.shape == Shape::Curves);
    Drawing::Curves {
        axes: (axis(figure.x), axis(figure.y)),
        curves: panels[own].iter().map(curve).collect(),
        stated: marks.iter().filter_map(stated).collect(),
        beside: others.flat_map(|(_, curves)| curves).flat_map(extent).collect(),
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
    let label = match figure.y.label {
        "x" => "relative energy",
        "ms" => "time that page faults add",
        label => label,
    };
    Drawing::Groups {
        unit: Unit::of(figure.y.label),
        labels: (figure.x.label, label),
        categories: names.iter().map(|&name| name.to_owned()).collect(),
        bars: figure.curves.iter().map(bar).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_papers::{Paper, Place};

    fn of(paper: Paper, place: Place) -> Picture {
        let figures = pagewire_papers::figures(paper);
        let figure = figures.iter().find(|figure| figure.place == place).expect("a figure");
        let drawn = |curve: &pagewire_papers::Curve| Drawn {
            base: curve.name.clone(),
            name: curve.name.clone(),
            points: curve.points.clone(),
            intervals: Vec::new(),
            provenance: curve.provenance,
        };
        let model = Origin { title: figure.basis, curves: figure.curves.iter().map(drawn).collect() };
        let marks = super::super::marks::marks(figure, &pagewire_papers::claims(paper));
        picture("part", figure, &[model], &marks)
    }

    fn only(picture: Picture) -> Drawing {
        let [panel] = &picture.panels[..] else { panic!("{} panels", picture.panels.len()) };
        panel.drawing.clone()
    }

    /// A figure is one picture, as in the paper, and each of its curves has a style of its own; two that are the same are one under both names.
    #[test]
    fn figure_is_one_picture_with_a_style_for_each_curve() {
        for (number, count) in [(9, 4), (12, 6), (14, 11), (15, 5)] {
            let picture = of(Paper::Part, Place::Figure(number));
            assert!(picture.title.starts_with(&format!("PART, figure {number}: ")), "{}", picture.title);
            let Drawing::Curves { curves, .. } = only(picture) else { panic!("curves") };
            let mut styles: Vec<usize> = curves.iter().map(|curve| curve.style).collect();
            styles.sort_unstable();
            styles.dedup();
            assert_eq!((styles.len(), curves.len()), (count, count), "figure {number}");
        }
        let Drawing::Curves { curves, .. } = only(of(Paper::Part, Place::Figure(12))) else {
            panic!("curves")
        };
        assert!(curves.iter().any(|curve| curve.name == "PIO; PI4"));
    }

    /// What is measured has the style of what it is measured beside, in a panel of its own; the sheet has what the paper states before both.
    #[test]
    fn panels_stand_side_by_side() {
        let figures = pagewire_papers::figures(Paper::Part);
        let figure = figures.iter().find(|figure| figure.place == Place::Figure(9)).expect("figure 9");
        let drawn = |curve: &pagewire_papers::Curve| Drawn {
            base: curve.name.clone(),
            name: curve.name.clone(),
            points: curve.points.clone(),
            intervals: vec![(4096.0, 1.0, 2.0)],
            provenance: curve.provenance,
        };
        let origin = |title, curves: &[pagewire_papers::Curve]| Origin {
            title,
            curves: curves.iter().map(drawn).collect(),
        };
        let origins = [origin("model", &figure.curves), origin("this machine", &figure.curves[1..2])];
        let marks = super::super::marks::marks(figure, &pagewire_papers::claims(Paper::Part));
        let panels = picture("part", figure, &origins, &marks).panels;
        let [model, here] = &panels[..] else { panic!("two panels") };
        let (Drawing::Curves { curves: of_model, stated, .. }, Drawing::Curves { curves, .. }) =
            (&model.drawing, &here.drawing)
        else {
            panic!("curves")
        };
        assert_eq!((curves[0].style, &curves[0].name), (of_model[1].style, &of_model[1].name));
        assert!(!stated.is_empty() && curves[0].intervals.len() == 1);
        let headings = |row: Row| row.panels.into_iter().map(|panel| panel.heading).collect::<Vec<_>>();
        assert_eq!(
            headings(row(figure, &origins, (&marks, vec![]), true)),
            ["paper", "model", "this machine"]
        );
        let alone = row(figure, &origins[..1], (&[], vec!["4 us".to_owned()]), true);
        let lines = |index: usize| match &alone.panels[index].drawing {
            Drawing::Lines(lines) => lines[0].clone(),
            _ => String::new(),
        };
        assert_eq!([lines(0), lines(2)], ["4 us", "not measured"]);
    }

    #[test]
    fn breakdowns_are_bars_and_categories_have_names() {
        let Drawing::Shares { parts, beside, stated, categories, .. } =
            only(of(Paper::Part, Place::Figure(13)))
        else {
            panic!("parts")
        };
        assert_eq!((parts.len(), beside.len(), stated.len()), (7, 1, 2));
        assert_eq!(categories.first().map(String::as_str), Some("4 KiB"));
        assert!(
            stated.iter().any(|stated| stated.0.is_none()) && stated.iter().any(|stated| stated.0 == Some(0))
        );
        assert!(matches!(only(of(Paper::Jbmt, Place::Figure(7))), Drawing::Shares { .. }));
        assert!(matches!(only(of(Paper::Part, Place::Figure(10))), Drawing::Course { .. }));
        let Drawing::Groups { categories, .. } = only(of(Paper::Part, Place::Table(5))) else {
            panic!("groups")
        };
        assert_eq!(categories, ["LAMMPS", "HPL", "HPCG"]);
    }
}
