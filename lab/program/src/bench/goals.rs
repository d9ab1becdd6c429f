//! What the project demands of itself: the least that a figure must reach beside a peer.

use crate::figures::Line;

/// What a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// This ratio to the peer.
    Ratio(f64),
    /// At most so many microseconds, whatever the peer needs.
    Microseconds(f64),
    /// This ratio to the peer, or at most so many microseconds more than it.
    RatioOrMore(f64, f64),
}

const ANY: &[u64] = &[];

/// Benchmark, path, sizes (none: any), beginning of the peer's name, goal.
type Row = (&'static str, &'static str, &'static [u64], &'static str, Goal);

#[rustfmt::skip]
const GOALS: &[Row] = &[
    ("reg_mr", "-", ANY, "", Goal::Microseconds(0.5)),
    ("dereg_mr", "-", ANY, "", Goal::Microseconds(0.25)),
    ("write_lat", "local", &[8], "UCX 1.22", Goal::Ratio(1.0)),
    ("write_bw", "local", &[1 << 20, 4 << 20], "UCX 1.22", Goal::Ratio(1.0)),
    ("send_lat", "local", &[8], "libfabric", Goal::Ratio(1.5)),
    ("send_lat", "udp", &[8], "UCX", Goal::Ratio(1.0)),
    ("write_bw", "udp", &[1 << 16, 1 << 18, 1 << 20], "UCX", Goal::Ratio(1.0)),
    // As to a target that polls; a tenth is noise.
    ("write_to_sleeping", "local", ANY, "Pagewire", Goal::Ratio(0.9)),
    ("write_to_computing", "local", ANY, "Pagewire", Goal::Ratio(0.9)),
    ("write_to_stopped", "local", ANY, "Pagewire", Goal::Ratio(0.9)),
    ("zero_fill_write", "udp", ANY, "first touch", Goal::Microseconds(2.0)),
    ("absent_write", "local", ANY, "bound", Goal::Ratio(0.9)),
    ("absent_write", "udp", ANY, "bound", Goal::Ratio(0.9)),
    ("absent_write_pia", "local", ANY, "page by page", Goal::Ratio(2.0)),
    ("absent_write_pia", "udp", ANY, "page by page", Goal::Ratio(2.0)),
    ("swapped_write", "local", ANY, "bound", Goal::Ratio(0.9)),
    ("swapped_write", "udp", ANY, "bound", Goal::Ratio(0.9)),
    // At most half as long again.
    ("slow_page_target", "local", ANY, "without", Goal::Ratio(1.0 / 1.5)),
    ("slow_page_target", "udp", ANY, "without", Goal::Ratio(1.0 / 1.5)),
    ("slow_page_poster", "local", ANY, "without", Goal::Ratio(1.0 / 1.5)),
    ("slow_page_poster", "udp", ANY, "without", Goal::Ratio(1.0 / 1.5)),
    // At most a tenth more.
    ("hostile_faults", "local", ANY, "without", Goal::Ratio(1.0 / 1.1)),
    ("hostile_faults", "udp", ANY, "without", Goal::Ratio(1.0 / 1.1)),
    ("hostile_faults_p99", "local", ANY, "without", Goal::Ratio(1.0 / 1.1)),
    ("hostile_faults_p99", "udp", ANY, "without", Goal::Ratio(1.0 / 1.1)),
    ("hostile_faults_rate", "local", ANY, "without", Goal::Ratio(1.0 / 1.1)),
    ("hostile_faults_rate", "udp", ANY, "without", Goal::Ratio(1.0 / 1.1)),
    // At most a fifth more time, or 3 ns.
    ("heap", "-", ANY, "mimalloc", Goal::RatioOrMore(1.0 / 1.2, 0.003)),
    ("heap_new", "-", &[128], "malloc", Goal::Ratio(30.0)),
    ("view", "local", ANY, "a copy", Goal::Ratio(1.5)),
    ("counter", "local", ANY, "remote atomics", Goal::Ratio(1.0)),
    ("counter", "udp", ANY, "remote atomics", Goal::Ratio(1.0)),
    // At most 60 ns more on mapped memory, and a twentieth over udp.
    ("get_logged", "local", ANY, "no logging", Goal::RatioOrMore(1.0 / 1.05, 0.06)),
    ("get_logged", "udp", ANY, "no logging", Goal::Ratio(1.0 / 1.05)),
    // At most a fifth more.
    ("log_order", "local", ANY, "no order", Goal::Ratio(1.0 / 1.2)),
    ("log_order", "udp", ANY, "no order", Goal::Ratio(1.0 / 1.2)),
    ("checkpoint", "-", ANY, "a full copy", Goal::Ratio(20.0)),
    ("start", "-", ANY, "", Goal::Microseconds(2000.0)),
    ("create_qp", "local", ANY, "", Goal::Microseconds(10.0)),
    ("create_qp", "udp", ANY, "", Goal::Microseconds(10.0)),
    // At most three times as long.
    ("many_qps_write", "local", ANY, "", Goal::Ratio(1.0 / 3.0)),
    ("many_qps_write", "udp", ANY, "", Goal::Ratio(1.0 / 3.0)),
    ("many_qps_send", "local", ANY, "", Goal::Ratio(1.0 / 3.0)),
    ("many_qps_send", "udp", ANY, "", Goal::Ratio(1.0 / 3.0)),
];

impl Goal {
    /// The goal of a line, if it has one.
    pub(super) fn of(line: &Line) -> Option<Goal> {
        let peer = line.peer.as_deref().unwrap_or_default();
        let mut rows = GOALS.iter().filter(|(bench, path, sizes, start, _)| {
            let sized = sizes.is_empty() || sizes.contains(&line.size);
            (*bench, *path) == (line.bench, line.path) && sized && peer.starts_with(start)
        });
        rows.next().map(|row| row.4)
    }

    /// Whether the line reaches it; `None` if a figure is missing.
    pub(super) fn is_reached(self, line: &Line) -> Option<bool> {
        match self {
            Goal::Ratio(least) => Some(line.ratio? >= least),
            Goal::Microseconds(most) => Some(line.value? <= most),
            Goal::RatioOrMore(least, more) => {
                Some(line.ratio? >= least || line.value? <= line.peer_value? + more)
            }
        }
    }

    /// For the table.
    pub(super) fn text(self) -> String {
        match self {
            Goal::Ratio(least) => format!("{least:.2}x"),
            Goal::Microseconds(most) => format!("{most} us"),
            Goal::RatioOrMore(least, more) => format!("{least:.2}x or {more} us more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bench: &'static str, size: u64, value: f64, peer: &str) -> Line {
        Line::new((bench, size, "local", "us"), Some(value), (Some(peer.to_owned()), Some(2.0)))
    }

    #[test]
    fn a_goal_is_that_of_its_size_and_peer() {
        assert_eq!(Goal::of(&line("write_lat", 8, 1.0, "UCX 1.22.0 over posix,cma")), Some(Goal::Ratio(1.0)));
        assert_eq!(Goal::of(&line("write_lat", 8, 1.0, "UCX 1.13.1 over posix,cma")), None);
        assert_eq!(Goal::of(&line("write_lat", 4096, 1.0, "UCX 1.22.0 over posix,cma")), None);
    }

    #[test]
    fn goal_is_reached_or_not_or_unknown() {
        let mut line = line("a", 8, 1.6, "p");
        assert_eq!(Goal::Ratio(1.5).is_reached(&line), Some(false));
        assert_eq!(Goal::Ratio(1.2).is_reached(&line), Some(true));
        assert_eq!(Goal::Microseconds(1.7).is_reached(&line), Some(true));
        assert_eq!(Goal::RatioOrMore(1.5, 0.0).is_reached(&line), Some(true));
        line = Line::new(("a", 8, "-", "us"), Some(0.008), (Some("p".to_owned()), Some(0.0055)));
        assert_eq!(Goal::RatioOrMore(1.0, 0.003).is_reached(&line), Some(true));
        assert_eq!(Goal::RatioOrMore(1.0, 0.002).is_reached(&line), Some(false));
        assert_eq!(Goal::RatioOrMore(0.6, 0.0).is_reached(&line), Some(true));
        (line.value, line.ratio) = (None, None);
        assert_eq!(Goal::RatioOrMore(1.2, 1.0).is_reached(&line), None);
        assert_eq!(Goal::Ratio(1.2).is_reached(&line), None);
    }
}
