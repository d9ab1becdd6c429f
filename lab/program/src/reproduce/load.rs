//! What else this machine does while it is measured.

use crate::limits::{BUSY_PERCENT, LIVE_WATCH};
use std::fs;

/// The use of the processors by others, each time that it was looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// Of hundred, before each round; empty where the kernel does not say.
    pub(super) percents: Vec<f64>,
}

impl Load {
    /// Looks at the processors for a moment. Nothing of a measurement runs then.
    pub(super) fn look(&mut self) {
        let before = times(&fs::read_to_string("/proc/stat").unwrap_or_default());
        std::thread::sleep(LIVE_WATCH);
        let after = times(&fs::read_to_string("/proc/stat").unwrap_or_default());
        self.percents.extend(before.zip(after).and_then(|(before, after)| busy(before, after)));
    }

    /// The most that others used.
    pub(super) fn most(&self) -> Option<f64> {
        self.percents.iter().copied().max_by(f64::total_cmp)
    }

    /// Whether the measurements stand beside other work.
    pub(super) fn is_busy(&self) -> bool {
        self.most().is_some_and(|most| most > BUSY_PERCENT)
    }

    /// In a sentence.
    pub(super) fn sentence(&self) -> String {
        match self.most() {
            None => "What else this machine did is not known.".to_owned(),
            Some(most) if self.is_busy() => format!(
                "This machine was busy: before the rounds others used up to {most:.0} % of its processors. Do not rely on what was measured."
            ),
            Some(most) => format!(
                "This machine was idle: before the rounds others used at most {most:.0} % of its processors."
            ),
        }
    }
}

/// Ticks that all processors were busy, and all ticks (proc_stat(5)).
fn times(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let all = ticks.iter().sum();
    // Idle, and waiting for input or output.
    let idle: u64 = ticks.get(3..5)?.iter().sum();
    Some((all - idle, all))
}

fn busy(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let (busy, all) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
    (all > 0).then(|| busy as f64 * 100.0 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_all_that_is_not_idle() {
        let stat =
            |user: u64, idle: u64| format!("cpu  {user} 0 10 {idle} 5 0 0 0 7 7\ncpu0 1 2 3 4 5 6 7 8\n");
        let (before, after) = (times(&stat(100, 900)), times(&stat(130, 970)));
        assert_eq!((before, after), (Some((110, 1_015)), Some((140, 1_115))));
        assert_eq!(busy(before.expect("a line"), after.expect("a line")), Some(30.0));
        assert_eq!((times("nothing"), times("cpu  1 2 x 4 5")), (None, None));
        assert_eq!(busy((5, 10), (5, 10)), None);
    }

    #[test]
    fn first_line_says_whether_the_machine_was_busy() {
        let load = |percents: &[f64]| Load { percents: percents.to_vec() };
        assert!(
            load(&[1.0, 83.0])
                .sentence()
                .starts_with("This machine was busy: before the rounds others used up to 83 %")
        );
        assert!(load(&[1.0, 4.0]).sentence().contains("idle") && !load(&[1.0, 4.0]).is_busy());
        assert!(load(&[]).sentence().contains("not known"));
    }

    #[test]
    fn looking_gives_a_percentage() {
        let mut load = Load::default();
        load.look();
        assert!(load.percents.iter().all(|percent| (0.0..=100.0).contains(percent)));
    }
}
