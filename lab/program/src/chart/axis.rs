//! Axes: where a number stands, and which numbers are written.

use super::Axis;

/// Of what numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, in powers of two.
    Bytes,
    /// Time.
    Microseconds,
    /// 10^6 bytes a second.
    Rate,
    /// Of a ratio.
    Times,
    /// Of hundred.
    Percent,
    /// Things.
    Count,
}

impl Unit {
    /// That of a label of the papers' figures and of the benchmarks.
    pub fn of(label: &str) -> Unit {
        match label {
            "bytes" => Unit::Bytes,
            "us" | "ms" => Unit::Microseconds,
            "MB/s" => Unit::Rate,
            "x" => Unit::Times,
            label if label.starts_with('%') => Unit::Percent,
            _ => Unit::Count,
        }
    }

    /// A number with its unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Bytes => size(value),
            Unit::Microseconds => time(value),
            Unit::Rate if value >= 1000.0 => format!("{} GB/s", plain(value / 1000.0)),
            Unit::Rate => format!("{} MB/s", plain(value)),
            Unit::Times => format!("{}x", plain(value)),
            Unit::Percent => format!("{} %", plain(value)),
            Unit::Count if value >= 1e6 => format!("{} million", plain(value / 1e6)),
            Unit::Count => plain(value),
        }
    }
}

/// Three digits that count, and no zeros behind them; thousands are set apart.
fn plain(value: f64) -> String {
    if value.abs() >= 1000.0 {
        let digits = format!("{:.0}", value.abs());
        let cut = digits.len() % 3;
        let (first, rest) = digits.split_at(cut);
        let groups = rest.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
        let parts: Vec<String> =
            [first.to_owned()].into_iter().filter(|part| !part.is_empty()).chain(groups).collect();
        return format!("{}{}", if value < 0.0 { "-" } else { "" }, parts.join(","));
    }
    let decimals = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) };
    let text = format!("{value:.*}", decimals as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Bytes in the largest power of 1024 that goes into them.
pub fn size(bytes: f64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes >= f64::from(1_u32 << shift));
    unit.map_or_else(
        || format!("{} B", plain(bytes)),
        |(name, shift)| format!("{} {name}", plain(bytes / f64::from(1_u32 << shift))),
    )
}

fn time(microseconds: f64) -> String {
    match microseconds.abs() {
        us if us >= 1e6 => format!("{} s", plain(microseconds / 1e6)),
        us if us >= 1e3 => format!("{} ms", plain(microseconds / 1e3)),
        us if us > 0.0 && us < 1.0 => format!("{} ns", plain(microseconds * 1e3)),
        _ => format!("{} us", plain(microseconds)),
    }
}

/// What stands along a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Numbers,
    Categories,
}

/// The least part of the axis along between two numbers of it: what the longest takes in a panel.
const ROOM: f64 = 0.125;

/// Values are near each other if the least is more than this part of the most: from 0 on they would lie on each other.
const NEAR: f64 = 0.75;

/// An axis with its ends and its numbers.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    label: String,
    logarithmic: bool,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl Scale {
    /// The axis along, of these values: they themselves are written where they have room.
    pub(super) fn along(axis: Axis, values: &[f64]) -> Scale {
        let mut own = values.to_vec();
        own.sort_by(f64::total_cmp);
        own.dedup();
        let (least, most) = (own[0], own[own.len() - 1]);
        let mut scale = Scale::between(axis, least, most);
        let margin = if axis.logarithmic { 1.15 } else { (most - least).max(1.0) * 0.03 };
        (scale.low, scale.high) =
            if axis.logarithmic { (least / margin, most * margin) } else { (least - margin, most + margin) };
        let shares: Vec<f64> = own.iter().map(|&value| scale.share(value)).collect();
        let have_room = shares.windows(2).all(|pair| pair[1] - pair[0] > ROOM);
        let chosen = if have_room {
            own
        } else if axis.unit == Unit::Bytes && axis.logarithmic {
            powers_of_two(least, most)
        } else {
            numbers(axis.logarithmic, least, most)
        };
        scale.ticks = chosen.into_iter().map(|value| (value, axis.unit.text(value))).collect();
        scale
    }

    /// The axis upwards, of these values: it begins with 0 unless it is logarithmic, or all values are near each other.
    pub(super) fn upwards(axis: Axis, values: &[f64]) -> Scale {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut scale = if axis.logarithmic {
            Scale::between(axis, least / 1.4, most * 1.4)
        } else {
            let are_near = least < most && least > NEAR * most;
            let (bottom, top) = if are_near { (least, most) } else { (least.min(0.0), most.max(0.0)) };
            let margin = ((top - bottom) * 0.08).max(f64::MIN_POSITIVE);
            Scale::between(axis, if are_near || bottom < 0.0 { bottom - margin } else { 0.0 }, top + margin)
        };
        let chosen = numbers(axis.logarithmic, scale.low, scale.high);
        scale.ticks = chosen.into_iter().map(|value| (value, axis.unit.text(value))).collect();
        scale
    }

    /// Categories, each in the middle of its part.
    pub(super) fn categories(label: &str, names: &[String]) -> Scale {
        let ticks =
            names.iter().enumerate().map(|(index, name)| (index as f64 + 0.5, name.clone())).collect();
        Scale { label: label.to_owned(), logarithmic: false, low: 0.0, high: names.len() as f64, ticks }
    }

    fn between(axis: Axis, low: f64, high: f64) -> Scale {
        Scale { label: axis.label.to_owned(), logarithmic: axis.logarithmic, low, high, ticks: Vec::new() }
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// Where a value stands, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let place = |value: f64| if self.logarithmic { value.ln() } else { value };
        (place(value) - place(self.low)) / (place(self.high) - place(self.low)).max(f64::MIN_POSITIVE)
    }
}

/// At most seven powers of two, as far from each other as it takes.
fn powers_of_two(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.log2().ceil() as i32, most.log2().floor() as i32);
    let step = [1, 2, 4, 5, 10].into_iter().find(|step| (last - first) / step < 7).unwrap_or(10);
    let aligned = |power: &i32| power % step == 0;
    (first..=last).filter(aligned).map(|power| 2_f64.powi(power)).collect()
}

/// Round numbers between two ends: decades, with what lies between them where there are few; or equal steps.
fn numbers(logarithmic: bool, low: f64, high: f64) -> Vec<f64> {
    if logarithmic {
        let decades = (high / low).log10();
        let within: &[f64] = match decades {
            few if few < 1.2 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            few if few < 3.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let all = (first..=last).flat_map(|power| within.iter().map(move |digit| digit * 10_f64.powi(power)));
        return all.filter(|value| (low..=high).contains(value)).collect();
    }
    let rough = (high - low) / 6.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * decade).find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * decade);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|count| count as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_units() {
        for (unit, value, text) in [
            (Unit::Bytes, 1.0, "1 B"),
            (Unit::Bytes, 100.0, "100 B"),
            (Unit::Bytes, 4096.0, "4 KiB"),
            (Unit::Bytes, 4_194_304.0, "4 MiB"),
            (Unit::Bytes, 1_099_511_627_776.0, "1,024 GiB"),
            (Unit::Microseconds, 0.25, "250 ns"),
            (Unit::Microseconds, 38.0, "38 us"),
            (Unit::Microseconds, 3_600.0, "3.6 ms"),
            (Unit::Microseconds, 0.0, "0 us"),
            (Unit::Rate, 20_000.0, "20 GB/s"),
            (Unit::Times, 1.5, "1.5x"),
            (Unit::Percent, -0.2, "-0.2 %"),
            (Unit::Count, 1489.0, "1,489"),
            (Unit::Count, 20_000_000.0, "20 million"),
        ] {
            assert_eq!(unit.text(value), text);
        }
    }

    #[test]
    fn no_two_numbers_of_an_axis_collide() {
        let axis = |unit, logarithmic| Axis { label: "", unit, logarithmic };
        let sizes: Vec<f64> = (0..25).map(|power| 2_f64.powi(power)).collect();
        let percents = [0.0, 1.0, 5.0, 20.0, 40.0, 80.0, 100.0];
        let scales = [
            Scale::along(axis(Unit::Bytes, true), &sizes),
            Scale::along(axis(Unit::Bytes, true), &sizes[3..17]),
            Scale::along(axis(Unit::Percent, false), &percents),
            Scale::along(axis(Unit::Bytes, true), &[64.0]),
        ];
        for scale in scales {
            assert!(!scale.ticks().is_empty(), "{scale:?}");
            for pair in scale.ticks().windows(2) {
                assert!(scale.share(pair[1].0) - scale.share(pair[0].0) > ROOM, "{scale:?}");
            }
        }
        let linear = |values: &[f64]| Scale::upwards(axis(Unit::Count, false), values).low;
        assert!(linear(&[1.0, 2.0]) == 0.0 && linear(&[-1.0, 1.0]) < -1.0 && linear(&[15.0, 17.0]) > 14.0);
        assert_eq!(linear(&[0.0, 15.0, 17.0]), 0.0);
        for (low, high) in [(0.3, 0.9), (1.0, 30.0), (2.0, 50_000.0)] {
            let scale = Scale::upwards(axis(Unit::Microseconds, true), &[low, high]);
            assert!(scale.ticks().len() >= 2, "{scale:?}");
            for pair in scale.ticks().windows(2) {
                assert!(scale.share(pair[1].0) - scale.share(pair[0].0) > 0.04, "{scale:?}");
            }
        }
    }
}
