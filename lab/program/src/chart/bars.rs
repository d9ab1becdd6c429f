//! Bars: the course of something, parts of a whole, groups by category.

use super::axis::{Along, Scale, Unit};
use super::canvas::{Anchor, Canvas, Drawn, Key, Mark};
use super::{Axis, Labels, Panel, Part, Span};

/// Of the place of a bar or group, the share that it takes.
const FILLED: f64 = 0.7;

/// The share of the plot's width that one bar of a group takes at most.
const WIDEST: f64 = 0.15;

impl Panel {
    /// A bar for each part, where it begins and ends, its name left of it and its length right of it.
    pub(super) fn course(&self, width: f64, unit: Unit, spans: &[Span]) -> Option<Drawn> {
        let end = spans.iter().map(|span| span.2).reduce(f64::max)?;
        let longest = spans.iter().map(|span| span.0.chars().count()).max()?;
        let mut canvas = Canvas::with_left((&self.heading, width), &[], Canvas::left_of(longest));
        let axis = Axis { label: "time since the beginning", unit, logarithmic: false };
        let along = Scale::upwards(axis, &[0.0, end * 1.06]);
        canvas.axes(&along, &Scale::categories("", &[]), Along::Numbers);
        let height = 1.0 / spans.len() as f64;
        for (index, (name, from, to)) in spans.iter().enumerate() {
            let middle = 1.0 - (index as f64 + 0.5) * height;
            let top = canvas.place(along.share(*from), middle + height * FILLED / 2.0);
            let bottom = canvas.place(along.share(*to), middle - height * FILLED / 2.0);
            canvas.bar(top, bottom, 0);
            let (left, line) = canvas.place(0.0, middle);
            canvas.text((left - 8.0, line + 4.5), Anchor::End, name);
            canvas.text((bottom.0 + 6.0, line + 4.5), Anchor::Start, &unit.text(to - from));
        }
        Some(canvas.finish())
    }

    /// A bar for each category, as high as all others, cut into the shares of its parts, the whole written above it.
    pub(super) fn shares(
        &self,
        width: f64,
        (unit, categories): (Unit, &[String]),
        (parts, beside): (&[Part], &[Part]),
        stated: &[(Option<usize>, usize, f64)],
    ) -> Option<Drawn> {
        let value = |part: &Part, category: usize| part.1.get(category).copied().flatten().unwrap_or(0.0);
        let wholes: Vec<f64> = (0..categories.len())
            .map(|category| parts.iter().map(|part| value(part, category)).sum())
            .collect();
        if wholes.is_empty() || wholes.iter().any(|whole| *whole <= 0.0) {
            return None;
        }
        let keys = |parts: &[Part], first: usize, mark| {
            let key =
                move |(index, part): (usize, &Part)| Key { name: part.0.clone(), style: first + index, mark };
            parts.iter().enumerate().map(key).collect::<Vec<_>>()
        };
        let mut all = keys(parts, 0, Mark::Box);
        all.extend(keys(beside, parts.len(), Mark::Line));
        all.extend((!stated.is_empty()).then(Key::stated));
        let mut canvas = Canvas::new((&self.heading, width), &all);
        let shares =
            |part: &Part| (0..categories.len()).map(|at| value(part, at) / wholes[at]).fold(1.0, f64::max);
        let highest = beside.iter().map(shares).fold(1.0, f64::max);
        let axis = Axis { label: "share of the sum of all parts", unit: Unit::Percent, logarithmic: false };
        let upwards = Scale::upwards(axis, &[0.0, 100.0 * highest]);
        let along = Scale::categories("message size; above the bars: the sum of all parts", categories);
        canvas.axes(&along, &upwards, Along::Categories);
        for (category, whole) in wholes.iter().enumerate() {
            let edge = |side: f64| along.share(category as f64 + 0.5 + side * FILLED / 2.0);
            let (left, right) = (edge(-1.0), edge(1.0));
            let height = |amount: f64| upwards.share(100.0 * amount / whole);
            let mut below = 0.0;
            for (index, part) in parts.iter().enumerate() {
                let above = below + value(part, category);
                canvas.bar(canvas.place(left, height(above)), canvas.place(right, height(below)), index);
                below = above;
            }
            let tops = beside.iter().map(|part| height(value(part, category)));
            let top = tops.fold(height(*whole), f64::max);
            for (index, part) in beside.iter().enumerate() {
                let line = height(value(part, category));
                let ends = [canvas.place(left, line), canvas.place(right, line)];
                canvas.line(&ends, parts.len() + index);
            }
            let (x, y) = canvas.place((left + right) / 2.0, top);
            canvas.text((x, y - 8.0), Anchor::Middle, &unit.text(*whole));
            for (of, _, number) in stated.iter().filter(|stated| stated.1 == category) {
                // That of the whole stands for no part: grey.
                let colour = of.map_or(6, |index| parts.len() + index);
                canvas.diamond(canvas.place(right - (right - left) * 0.12, height(*number)), colour);
            }
        }
        Some(canvas.finish())
    }

    /// Bars side by side for each category, the value above each.
    pub(super) fn groups(
        &self,
        width: f64,
        (unit, labels): (Unit, Labels),
        categories: &[String],
        bars: &[Part],
    ) -> Option<Drawn> {
        let mut values: Vec<f64> = bars.iter().flat_map(|bar| bar.1.iter().copied().flatten()).collect();
        if values.is_empty() {
            return None;
        }
        // A bar begins at 0.
        values.push(0.0);
        let key = |(index, bar): (usize, &Part)| Key { name: bar.0.clone(), style: index, mark: Mark::Box };
        let keys: Vec<Key> = bars.iter().enumerate().map(key).collect();
        let mut canvas = Canvas::new((&self.heading, width), &keys);
        let upwards = Scale::upwards(Axis { label: labels.1, unit, logarithmic: false }, &values);
        let along = Scale::categories(labels.0, categories);
        canvas.axes(&along, &upwards, Along::Categories);
        // One bar alone would be a wall.
        let wide = (FILLED / bars.len() as f64).min(WIDEST * categories.len() as f64);
        for (index, bar) in bars.iter().enumerate() {
            let filled = bar.1.iter().enumerate().filter_map(|(category, value)| Some((category, (*value)?)));
            for (category, value) in filled {
                let left = category as f64 + 0.5 + wide * (index as f64 - bars.len() as f64 / 2.0);
                let (from, to) = (along.share(left), along.share(left + wide));
                let (zero, end) = (upwards.share(0.0), upwards.share(value));
                canvas.bar(canvas.place(from, zero.max(end)), canvas.place(to, zero.min(end)), index);
                let (x, y) = canvas.place((from + to) / 2.0, zero.max(end));
                // Where bars stand close their values would cover each other.
                let room = canvas.place(to, 0.0).0 - canvas.place(from, 0.0).0;
                if room > 20.0 {
                    canvas.text((x, y - 6.0), Anchor::Middle, &unit.text(value));
                }
            }
        }
        Some(canvas.finish())
    }
}
