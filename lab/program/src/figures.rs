//! Figures of Pagewire beside those of peers, measured in turn.

use anyhow::Result;
use pagewire_cli::{interrupt, median};
use serde::Serialize;

/// One figure beside one peer's.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The benchmark.
    pub bench: &'static str,
    /// Message or region size in bytes, or how many queue pairs there are.
    pub size: u64,
    /// The path: local, udp, or - where none is involved.
    pub path: &'static str,
    /// Pagewire's median; null if it could not be had.
    pub value: Option<f64>,
    /// us or MB/s (10^6 bytes a second).
    pub unit: &'static str,
    /// What it is compared with; null if that is not installed.
    pub peer: Option<String>,
    /// The peer's median; null if it is not installed or failed.
    pub peer_value: Option<f64>,
    /// Above 1: Pagewire is better. Null where there is no figure, or the peer's was published for another machine: both say nothing of each other.
    pub ratio: Option<f64>,
}

/// How the name of a peer begins whose figure was published, of the machine that follows.
pub const PUBLISHED: &str = "published: ";

impl Line {
    /// A figure of a benchmark, with size, path and unit, beside one peer and its figure.
    pub fn new(
        (bench, size, path, unit): (&'static str, u64, &'static str, &'static str),
        value: Option<f64>,
        (peer, peer_value): (Option<String>, Option<f64>),
    ) -> Line {
        let is_of_other_machine = peer.as_deref().is_some_and(|name| name.starts_with(PUBLISHED));
        let ratio = value
            .zip(peer_value)
            .filter(|(v, p)| *v > 0.0 && *p > 0.0 && !is_of_other_machine)
            .map(|(value, peer)| if unit == "us" { peer / value } else { value / peer });
        Line { bench, size, path, value, unit, peer, peer_value, ratio }
    }
}

/// Figures of several rounds, and what was said where there was none.
#[derive(Default)]
pub struct Figures {
    values: Vec<f64>,
    complaint: Option<String>,
}

impl Figures {
    /// Adds what a round gave.
    pub fn add(&mut self, figure: Result<f64, String>) {
        match figure {
            Ok(value) => self.values.push(value),
            Err(complaint) => self.complaint = Some(complaint),
        }
    }

    /// The median; says on standard error what was wrong in a round.
    pub fn median(mut self, whose: &str) -> Option<f64> {
        if let Some(complaint) = &self.complaint {
            pagewire_cli::tell!("pagewire: {whose}: {complaint}");
        }
        median(&mut self.values)
    }
}

/// How one figure is had; the inner error says what went wrong with a run.
pub type Measure<'a> = Box<dyn Fn() -> Result<Result<f64, String>> + 'a>;

/// A peer's name, and how its figure is had; `None` if it is not installed.
pub type Peer<'a> = Option<(String, Measure<'a>)>;

/// What is measured: benchmark, size, path, unit.
pub type What = (&'static str, u64, &'static str, &'static str);

/// Measures Pagewire and its peers in turn.
pub fn beside(what: What, own: &Measure, peers: Vec<Peer>, rounds: u32) -> Result<Vec<Line>> {
    let mut value = Figures::default();
    let mut values: Vec<Figures> = peers.iter().map(|_| Figures::default()).collect();
    for _ in 0..rounds {
        value.add(own()?);
        for (peer, figures) in peers.iter().zip(&mut values) {
            if let Some((_, measure)) = peer {
                figures.add(measure()?);
            }
            interrupt::check()?;
        }
        interrupt::check()?;
    }
    let title = format!("{} {} B {}", what.0, what.1, what.2);
    let value = value.median(&title);
    let line = |(peer, figures): (Peer, Figures)| {
        let name = peer.map(|(name, _)| name);
        let peer_value = figures.median(&format!("{title}: {}", name.as_deref().unwrap_or_default()));
        Line::new(what, value, (name, peer_value))
    };
    Ok(peers.into_iter().zip(values).map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_means_better_in_both_units() {
        let faster = Line::new(("a", 8, "udp", "us"), Some(1.0), (Some("p".into()), Some(2.0)));
        let wider = Line::new(("a", 8, "udp", "MB/s"), Some(2.0), (Some("p".into()), Some(1.0)));
        assert_eq!((faster.ratio, wider.ratio), (Some(2.0), Some(2.0)));
        assert_eq!(Line::new(("a", 8, "udp", "us"), Some(1.0), (Some("p".into()), None)).ratio, None);
    }

    /// Hardware of a paper and this machine are no pair of which one could be better.
    #[test]
    fn published_figure_has_no_ratio() {
        let published = Some(format!("{PUBLISHED}PART, Zynq"));
        let line = Line::new(("a", 8, "udp", "us"), Some(1.0), (published, Some(38.0)));
        assert_eq!((line.value, line.peer_value, line.ratio), (Some(1.0), Some(38.0), None));
    }

    #[test]
    fn a_line_has_the_promised_fields() {
        let line = |peer| Line::new(("a", 8, "udp", "us"), Some(1.0), peer);
        let text = |line: Line| serde_json::to_string(&line).expect("plain data");
        let beside = r#"{"bench":"a","size":8,"path":"udp","value":1.0,"unit":"us","peer":"p","peer_value":2.0,"ratio":2.0}"#;
        assert_eq!(text(line((Some("p".into()), Some(2.0)))), beside);
        let alone = r#"{"bench":"a","size":8,"path":"udp","value":1.0,"unit":"us","peer":null,"peer_value":null,"ratio":null}"#;
        assert_eq!(text(line((None, None))), alone);
    }
}
