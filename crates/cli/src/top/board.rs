//! What is known of the processes, look by look, and which of it is shown in which order.

use super::inquiry::Answer;
use super::measures::Measure;
use super::rates::{Rates, Readings};
use crate::explain::{Listener, Silence};
use crate::limits::TOP_HISTORY;
use crate::output::report::ProcessReport;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A process of the table. One listener answers for one process.
pub type Key = Listener;

/// A process that is watched.
#[derive(Debug)]
pub struct Watched {
    /// Its number, as the caller sees it.
    pub pid: u32,
    /// What it said last; empty if it never did.
    pub report: ProcessReport,
    /// Since its answer before, if there was one.
    pub rates: Rates,
    /// Why it does not answer at present.
    pub silence: Option<String>,
    /// Its rates over the last minute, the newest last.
    pub history: VecDeque<Past>,
    readings: Option<(Readings, Duration)>,
    /// Its program as the kernel tells of it, if it has not said anything.
    seen: Option<String>,
}

/// Rates between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Past {
    /// The time of the first look.
    pub from: Duration,
    /// The time of the second.
    pub to: Duration,
    /// Of accesses that met an absent page.
    pub faults: f64,
    /// Of bytes.
    pub bytes: f64,
}

impl Watched {
    /// Its program; of one that has said nothing yet what the kernel says of it, `?` if that is not to be seen either.
    pub fn program(&self) -> &str {
        self.text("program").or(self.seen.as_deref()).unwrap_or("?")
    }

    /// A field of text that it gives of itself.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.report.process.get(name).and_then(Value::as_str)
    }

    /// One of its rates; none while it does not answer.
    pub fn rate(&self, measure: Measure) -> Option<f64> {
        measure.of_process(&self.rates)
    }

    fn take(&mut self, pid: u32, told: Result<ProcessReport, String>, at: Duration) {
        self.pid = pid;
        let report = match told {
            Ok(report) => report,
            Err(silence) => {
                self.silence = Some(silence);
                if self.text("program").is_none() {
                    self.seen = crate::explain::program(pid);
                }
                self.rates = Rates::default();
                return;
            }
        };
        self.silence = None;
        let mut readings = Readings::of(&report, at);
        self.report = report;
        if let Some((before, from)) = &self.readings {
            self.rates = readings.since(before);
            let rate = |measure: Measure| measure.of_process(&self.rates).unwrap_or(0.0);
            self.history.push_back(Past {
                from: *from,
                to: at,
                faults: rate(Measure::Faults),
                bytes: rate(Measure::Bytes),
            });
            while self.history.front().is_some_and(|past| past.to + TOP_HISTORY < at) {
                self.history.pop_front();
            }
        }
        self.readings = Some((readings, at));
    }
}

/// By what the table of processes is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By PID, the smallest first.
    Pid,
    /// By name.
    Program,
    /// By a rate, the largest first.
    Rate(Measure),
}

impl Order {
    /// All, as the columns stand.
    pub fn all() -> Vec<Order> {
        let rates = Measure::ALL.into_iter().map(Order::Rate);
        [Order::Pid, Order::Program].into_iter().chain(rates).collect()
    }
}

/// Which processes are shown.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// PIDs, and names of programs; all processes where it is empty.
    pub wanted: Vec<String>,
}

impl Filter {
    /// Whether the process is wanted.
    pub fn admits(&self, watched: &Watched) -> bool {
        self.wanted.is_empty()
            || self.wanted.iter().any(|word| *word == watched.pid.to_string() || word == watched.program())
    }
}

/// All of it.
#[derive(Debug)]
pub struct Board {
    processes: BTreeMap<Key, Watched>,
    filter: Filter,
    /// Processes of other users, which may not be asked.
    foreign: BTreeMap<Key, u32>,
    start: Instant,
    /// How the table is sorted.
    pub order: Order,
    /// The other way round.
    pub reversed: bool,
}

impl Board {
    /// An empty board for these processes.
    pub fn new(filter: Filter, start: Instant) -> Board {
        Board {
            processes: BTreeMap::new(),
            filter,
            foreign: BTreeMap::new(),
            start,
            order: Order::Pid,
            reversed: false,
        }
    }

    /// Takes note of an answer.
    pub fn take(&mut self, answer: Answer) {
        let Answer { listener, pid, at, told } = answer;
        let told = match told {
            // One process has one line.
            Ok(reports) => match reports.into_iter().next() {
                Some(report) => Ok(report),
                None => Err("its answer is empty".to_owned()),
            },
            Err(Silence::OtherUser { .. }) => {
                self.foreign.insert(listener, pid);
                return;
            }
            // It ended.
            Err(Silence::NoProcess | Silence::NoEngine) => {
                self.processes.remove(&listener);
                return;
            }
            Err(silence) => Err(silence.to_string()),
        };
        let watched = self.processes.entry(listener).or_insert_with(|| Watched {
            pid,
            report: ProcessReport::default(),
            rates: Rates::default(),
            silence: None,
            history: VecDeque::new(),
            readings: None,
            seen: None,
        });
        watched.take(pid, told, at.saturating_duration_since(self.start));
    }

    /// Forgets the processes that are not among these.
    pub fn keep(&mut self, present: &[Listener]) {
        self.processes.retain(|key, _| present.contains(key));
        self.foreign.retain(|key, _| present.contains(key));
    }

    /// The processes to be shown, in order.
    pub fn rows(&self) -> Vec<(&Key, &Watched)> {
        let mut rows: Vec<_> =
            self.processes.iter().filter(|(_, watched)| self.filter.admits(watched)).collect();
        rows.sort_by(|(_, one), (_, other)| {
            let by_pid = one.pid.cmp(&other.pid);
            match self.order {
                Order::Pid => by_pid,
                Order::Program => one.program().cmp(other.program()).then(by_pid),
                Order::Rate(measure) => {
                    let rate = |watched: &Watched| watched.rate(measure).unwrap_or(-1.0);
                    rate(other).total_cmp(&rate(one)).then(by_pid)
                }
            }
        });
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// How many processes of other users there are.
    pub fn foreign(&self) -> usize {
        self.foreign.len()
    }

    /// The words of the command line that no process shown answers to.
    pub fn missing(&self) -> Vec<&str> {
        let found = |word: &str| {
            self.processes.values().any(|watched| {
                watched.silence.is_none() && Filter { wanted: vec![word.to_owned()] }.admits(watched)
            })
        };
        self.filter.wanted.iter().map(String::as_str).filter(|word| !found(word)).collect()
    }

    /// Since the board began.
    pub fn time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::output::report;

    /// The answer of a process to the look at so many seconds from `start`.
    pub fn answer(start: Instant, number: u32, lines: &str, seconds: f64) -> Answer {
        Answer {
            listener: Listener::for_test(number),
            pid: number,
            at: start + Duration::from_secs_f64(seconds),
            told: report::parse(lines).map_err(|error| Silence::Failed(error.to_string())),
        }
    }

    fn lines(pid: u32, program: &str, bytes: u64) -> String {
        format!("{{\"pid\":{pid},\"program\":\"{program}\",\"counters\":{{\"bytes_sent\":{bytes}}}}}\n")
    }

    fn pids(board: &Board) -> Vec<u32> {
        board.rows().iter().map(|(_, watched)| watched.pid).collect()
    }

    #[test]
    fn processes_come_and_go_and_are_sorted_by_what_they_do() {
        let start = Instant::now();
        let mut board = Board::new(Filter::default(), start);
        for (pid, program) in [(3, "b"), (5, "a"), (4, "c")] {
            board.take(answer(start, pid, &lines(pid, program, 0), 0.0));
        }
        assert_eq!(pids(&board), [3, 4, 5]);
        board.order = Order::Program;
        assert_eq!(pids(&board), [5, 3, 4]);
        for (pid, program, bytes) in [(3, "b", 20), (5, "a", 10), (4, "c", 30)] {
            board.take(answer(start, pid, &lines(pid, program, bytes), 2.0));
        }
        board.order = Order::Rate(Measure::Bytes);
        assert_eq!(pids(&board), [4, 3, 5]);
        board.reversed = true;
        assert_eq!(pids(&board), [5, 3, 4]);
        board.keep(&[Listener::for_test(3), Listener::for_test(4)]);
        assert_eq!(pids(&board), [3, 4]);
        board.take(Answer { told: Err(Silence::NoEngine), ..answer(start, 3, "", 3.0) });
        assert_eq!(pids(&board), [4], "one that ended between the list and the question");
    }

    #[test]
    fn one_that_does_not_answer_stays_with_the_reason_and_without_rates() {
        let start = Instant::now();
        let mut board = Board::new(Filter::default(), start);
        board.take(answer(start, 3, &lines(3, "a", 0), 0.0));
        board.take(answer(start, 3, &lines(3, "a", 10), 1.0));
        assert_eq!(board.rows()[0].1.rate(Measure::Bytes), Some(10.0));
        board.take(Answer { told: Err(Silence::Stopped), ..answer(start, 3, "", 4.0) });
        let rows = board.rows();
        assert_eq!((rows[0].1.program(), rows[0].1.rate(Measure::Bytes)), ("a", None));
        assert!(rows[0].1.silence.as_ref().is_some_and(|why| why.contains("stopped")));
        // Its next rate is over all the time that it has not been heard.
        board.take(answer(start, 3, &lines(3, "a", 90), 5.0));
        let rows = board.rows();
        assert_eq!((rows[0].1.rate(Measure::Bytes), &rows[0].1.silence), (Some(20.0), &None));
    }

    /// One that is stopped before it was ever asked.
    #[test]
    fn one_that_never_answered_has_its_name() {
        let (start, own) = (Instant::now(), std::process::id());
        let mut board = Board::new(Filter::default(), start);
        board.take(Answer { told: Err(Silence::Stopped), ..answer(start, own, "", 0.0) });
        let file = std::env::current_exe().expect("this test");
        assert_eq!(board.rows()[0].1.program(), file.file_name().expect("a name").to_string_lossy());
        board.take(answer(start, own, &lines(own, "as it says", 0), 1.0));
        assert_eq!(board.rows()[0].1.program(), "as it says");
    }

    #[test]
    fn only_the_last_minute_is_kept() {
        let start = Instant::now();
        let mut board = Board::new(Filter::default(), start);
        for second in 0..200 {
            board.take(answer(start, 3, &lines(3, "a", second * second), second as f64));
        }
        let rows = board.rows();
        let history = &rows[0].1.history;
        assert_eq!(history.len(), 61);
        assert_eq!(history.back().map(|past| past.bytes), Some(199.0 * 199.0 - 198.0 * 198.0));
        assert_eq!(history.front().map(|past| past.to), Some(Duration::from_secs(139)));
    }

    #[test]
    fn words_name_processes_by_number_or_program() {
        let start = Instant::now();
        let wanted = ["4", "b", "nobody", "77"].map(str::to_owned).to_vec();
        let mut board = Board::new(Filter { wanted }, start);
        for (pid, program) in [(3, "a"), (4, "c"), (5, "b"), (6, "b")] {
            board.take(answer(start, pid, &lines(pid, program, 0), 0.0));
        }
        assert_eq!(pids(&board), [4, 5, 6]);
        assert_eq!(board.missing(), ["nobody", "77"]);
        let other = Answer { told: Err(Silence::OtherUser { owner: 1 }), ..answer(start, 77, "", 0.0) };
        board.take(other);
        assert_eq!((pids(&board).len(), board.foreign()), (3, 1));
    }
}
