//! The papers' experiments on this machine, with the engine: `pagewire reproduce --live`.
//!
//! The work is done by the helper programs `figures` and `registration` (lab/helpers/*.c), and for registered memory by this program itself
//! ([`crate::registered`]), as for hash tables (`table`), counted and logged accesses (`accesses`). All runs that the chosen figures need are
//! made several times in turn, each but once for all figures that share it, after a round that warms up and does not count. Medians of their
//! medians are shown, with the least and the most. Nothing is taken from the model or from a paper.

mod accesses;
mod jobs;
mod numbers;
mod plans;
mod table;

use self::plans::{Along, Plan, PlannedCurve, Run};
use super::load::Load;
use crate::helper::{Failure, Helper, Point, Rights, points};
use crate::limits::LIVE_ROUNDS;
use crate::progress::Progress;
use crate::registered;
use anyhow::{Context, Result};
use pagewire_cli::install::Installation;
use pagewire_cli::stage::Stage;
use pagewire_cli::{interrupt, median};
use pagewire_nic::PathChoice;
use pagewire_papers::{Claim, Curve, Figure, Interval, Paper, Place};
use std::collections::BTreeMap;

/// How absent pages come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// The kernel fills them with zeros, as in the papers.
    Zero,
    /// A thread of the target brings them in (userfaultfd): none is there at once.
    Pager,
}

impl Pages {
    pub(super) const ALL: [Pages; 2] = [Pages::Zero, Pages::Pager];

    /// What follows the name of a curve.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Pages::Zero => "this machine",
            Pages::Pager => "this machine, pages of a pager",
        }
    }

    /// As the helper calls it.
    const fn name(self) -> &'static str {
        match self {
            Pages::Zero => "zero",
            Pages::Pager => "pager",
        }
    }
}

/// What one run gave, of all rounds.
#[derive(Default)]
struct Output {
    /// What is seen of it while it runs.
    title: String,
    points: Vec<Point>,
    failure: Option<Failure>,
}

/// Under which conditions this machine is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions<'a> {
    pub(super) path: PathChoice,
    /// Processes of each job, where a figure is by that; numbers, and figures by something else, are of the first.
    pub(super) processes: &'a [u64],
    /// How often each run is made, after one that warms up.
    pub(super) rounds: u32,
    /// Microseconds by which the network is longer on purpose, of figures by that; empty: there are none.
    pub(super) delays: &'a [u64],
}

/// All that was measured.
pub(super) struct Live {
    path: PathChoice,
    /// Processes of each job, where a figure is by that; the numbers are of the first.
    processes: Vec<u64>,
    plans: Vec<Plan>,
    outputs: Vec<(Run, Output)>,
    /// What else the machine did.
    load: Load,
    /// How often each run is made.
    rounds: u32,
}

impl Live {
    /// Measures what there is of these places.
    ///
    /// # Errors
    /// If the engine is not installed, or a signal has come.
    pub(super) fn measure(paper: Paper, places: &[Place], conditions: Conditions) -> Result<Live> {
        let plans: Vec<Plan> = places.iter().map(|&place| plans::plan(paper, place, conditions)).collect();
        let Conditions { path, processes, rounds, .. } = conditions;
        let load = Load::default();
        let mut live = Live { path, processes: processes.to_vec(), outputs: Vec::new(), plans, load, rounds };
        for plan in &live.plans {
            for PlannedCurve { run, name, pages, .. } in plan.curves.iter().chain(&plan.right) {
                if !live.outputs.iter().any(|(known, _)| known == run) {
                    let title = format!("{}: {name}, {}", plan.place, pages.title());
                    live.outputs.push((run.clone(), Output { title, ..Output::default() }));
                }
            }
        }
        if live.outputs.is_empty() {
            return Ok(live);
        }
        interrupt::watch()?;
        let needs_helper = live.outputs.iter().any(|(run, _)| !is_own(run));
        let stage = if needs_helper { Some(Stage::prepare(&Installation::of_helper()?)?) } else { None };
        let progress = Progress::new(u64::from(rounds + 1) * live.outputs.len() as u64);
        for round in 0..=rounds {
            live.load.look();
            live.round(stage.as_ref(), (round, rounds), &progress)?;
        }
        progress.finish();
        Ok(live)
    }

    /// Makes each run once; what round 0 gives warms up, and does not count. Every other round goes backwards, so that no run always follows the
    /// same one.
    fn round(
        &mut self,
        stage: Option<&Stage>,
        (round, rounds): (u32, u32),
        progress: &Progress,
    ) -> Result<()> {
        let path = self.path;
        let mut order: Vec<usize> = (0..self.outputs.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let (run, output) = &mut self.outputs[index];
            let which =
                if round == 0 { "warming up".to_owned() } else { format!("round {round} of {rounds}") };
            progress.start(&format!("{}, {which}", output.title));
            match once(stage, run, path)? {
                Ok(points) if round > 0 => output.points.extend(points),
                Ok(_) => {}
                Err(failure) => output.failure = Some(failure),
            }
            interrupt::check()?;
            progress.step();
        }
        Ok(())
    }

    /// What is to be said before anything else: what else the machine did, how often each run was made, and how many WRITEs failed.
    pub(super) fn first_lines(&self) -> Vec<String> {
        let points = self.outputs.iter().flat_map(|(_, output)| &output.points);
        let values = |name: &str| {
            points.clone().filter_map(|point| point.values.get(name).copied().flatten()).sum::<f64>()
        };
        let (times, failed) = (values("times"), values("failed"));
        let writes = match (times + failed, failed) {
            (0.0, _) => None,
            (all, 0.0) => Some(format!("None of {all} WRITEs failed.")),
            (all, failed) => Some(format!(
                "{failed} of {all} WRITEs failed and are not counted: the retry counter was exceeded."
            )),
        };
        let too_few = match self.has_enough_rounds() {
            true => "",
            false => ", too seldom for the least and the most to hold the median",
        };
        let rounds = format!("Each run was made {} times after one to warm up{too_few}.", self.rounds);
        [self.load.sentence(), rounds].into_iter().chain(writes).collect()
    }

    /// What a curve's run gave under a name, for each value of x the values of all rounds.
    fn values(&self, curve: &PlannedCurve, name: &str) -> BTreeMap<u64, Vec<f64>> {
        let outputs = self.outputs.iter().filter(|(run, _)| *run == curve.run);
        let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for point in outputs.flat_map(|(_, output)| &output.points) {
            let value = point.values.get(name).copied().flatten();
            if let Some((x, value)) = curve.along.x(point).zip(value) {
                values.entry(x).or_default().push(value);
            }
        }
        values
    }

    /// For each value of x the least and the most of all rounds, if these differ.
    fn intervals(&self, curve: &PlannedCurve) -> Vec<Interval> {
        let ends = |(x, values): (u64, Vec<f64>)| {
            let least = values.iter().copied().min_by(f64::total_cmp)?;
            let most = values.iter().copied().max_by(f64::total_cmp)?;
            (least < most).then_some((x as f64, least, most))
        };
        self.values(curve, curve.value).into_iter().filter_map(ends).collect()
    }

    /// What a curve's run gave under a name, for each value of x the median of all rounds.
    fn points(&self, curve: &PlannedCurve, name: &str) -> Vec<(f64, f64)> {
        let values = self.values(curve, name);
        let medians = values.into_iter().filter_map(|(x, mut values)| Some((x as f64, median(&mut values)?)));
        match curve.along {
            // A part is drawn from the ground up.
            Along::Part(_) => medians.flat_map(|(x, value)| [(x, 0.0), (x, value)]).collect(),
            Along::Size | Along::Percent(_) | Along::Pages | Along::SizeAt(_) => medians.collect(),
        }
    }

    fn plan(&self, place: Place) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.place == place)
    }

    /// The curves that were measured for a figure or table, with these pages.
    pub(super) fn curves(&self, place: Place, pages: Pages) -> Vec<Curve> {
        self.plan(place).map_or_else(Vec::new, |plan| self.drawn(&plan.curves, pages))
    }

    /// The names of the curves that were to be measured for a figure or table, with these pages.
    pub(super) fn planned_names(&self, place: Place, pages: Pages) -> impl Iterator<Item = &str> {
        let curves = self.plan(place).into_iter().flat_map(|plan| &plan.curves);
        curves.filter(move |curve| curve.pages == pages).map(|curve| curve.name.as_str())
    }

    /// Whether the least and the most of all rounds hold the median, about.
    pub(super) fn has_enough_rounds(&self) -> bool {
        self.rounds >= LIVE_ROUNDS
    }

    fn drawn(&self, planned: &[PlannedCurve], pages: Pages) -> Vec<Curve> {
        let drawn = planned.iter().filter(|curve| curve.pages == pages).map(|curve| Curve {
            intervals: self.intervals(curve),
            ..Curve::measured(curve.name.clone(), self.points(curve, curve.value))
        });
        drawn.filter(|curve| !curve.points.is_empty()).collect()
    }

    /// Those of one figure; on a right-hand axis what the runs give of it, or what follows from those on the left.
    pub(super) fn curves_of(&self, figure: &Figure, pages: Pages) -> Vec<Curve> {
        let own = self.plan(figure.place).map_or(&[][..], |plan| &plan.right);
        match figure.right {
            Some(_) if !own.is_empty() => self.drawn(own, pages),
            Some(right) => right.curves(&self.curves(figure.place, pages)),
            None => self.curves(figure.place, pages),
        }
    }

    /// The points of a curve of the right-hand axis in each round.
    pub(super) fn rounds_of(&self, place: Place, name: &str) -> Vec<Vec<(f64, f64)>> {
        let mut own = self.plan(place).into_iter().flat_map(|plan| &plan.right);
        let Some(curve) = own.find(|curve| curve.name == name) else { return Vec::new() };
        let values = self.values(curve, curve.value);
        // A round that lacks a size is none.
        let count = values.values().map(Vec::len).min().unwrap_or(0);
        let round = |index: usize| values.iter().map(|(x, all)| (*x as f64, all[index])).collect();
        (0..count).map(round).collect()
    }

    /// What is to be said of a figure or table, a line each: why it, or a curve of it, was not measured, or what it is.
    pub(super) fn notes(&self, place: Place) -> Vec<String> {
        let Some(plan) = self.plan(place) else { return Vec::new() };
        let mut notes: Vec<String> = plan.notes.iter().map(|&note| note.to_owned()).collect();
        for curve in &plan.curves {
            let name = format!("{}, {}", curve.name, curve.pages.title());
            let outputs =
                || self.outputs.iter().filter(|(run, _)| *run == curve.run).map(|(_, output)| output);
            let is_empty = self.points(curve, curve.value).is_empty();
            for failure in outputs().filter_map(|output| output.failure.as_ref()) {
                let text = failure.text.split_whitespace().collect::<Vec<_>>().join(" ");
                let what = if is_empty { "not measured" } else { "not in every round" };
                notes.push(format!("{name}: {what}: {text}"));
            }
            let here = || outputs().flat_map(|output| &output.points).filter(|p| curve.along.x(p).is_some());
            let sum = |name: &str| here().filter_map(|point| point.values.get(name).copied().flatten()).sum();
            let (times, failed): (f64, f64) = (sum("times"), sum("failed"));
            if failed > 0.0 {
                notes.push(format!(
                    "{name}: {failed} of {} WRITEs are not counted: the retry counter was exceeded",
                    times + failed
                ));
            } else if here().any(|point| point.values.get(curve.value) == Some(&None)) {
                let what = if is_empty { "not measured" } else { "not of every size" };
                notes.push(format!("{name}: {what}: this user is not permitted to lock so much memory (raise ulimit -l, or run it as root)"));
            }
        }
        notes
    }

    /// Whether something that this machine allows was not to be had.
    pub(super) fn has_failed(&self) -> bool {
        let failed = |output: &Output| {
            output.points.is_empty() && output.failure.as_ref().is_some_and(|failure| !failure.not_here)
        };
        self.outputs.iter().any(|(_, output)| failed(output))
    }

    /// What else the machine did.
    pub(super) const fn load(&self) -> &Load {
        &self.load
    }

    /// The path that was measured.
    pub(super) const fn path(&self) -> PathChoice {
        self.path
    }

    /// What was measured where that is not what the paper measured.
    pub(super) fn measured_as(&self, claim: &Claim) -> Option<&'static str> {
        let measured = Measured { live: self, place: claim.place };
        self.number(claim).and_then(|_| numbers::measured_as(claim, &measured))
    }

    /// What this machine has in place of a number that the paper states, in the same unit.
    pub(super) fn number(&self, claim: &Claim) -> Option<f64> {
        numbers::formula(claim)?(&Measured { live: self, place: claim.place })
    }
}

/// What measures a run in place of a helper program.
type Measure = fn(PathChoice, &[String]) -> Result<jobs::Measured>;

/// What this program measures itself.
const OWN: [(&str, Measure); 9] = [
    (registered::NAME, registered::run),
    (registered::VIEWS, registered::run_views),
    (table::NAME, table::run),
    (table::COMPUTATION, table::run_computing),
    (table::HANDLERS, table::run_handling),
    (table::DELAYED, table::run_delayed),
    (accesses::NAME, accesses::run),
    (accesses::SORT, accesses::run_sort),
    (accesses::STREAM, accesses::run_stream),
];

fn own(helper: &str) -> Option<Measure> {
    OWN.iter().find(|(name, _)| *name == helper).map(|(_, measure)| *measure)
}

/// Whether this program does it itself.
fn is_own(run: &Run) -> bool {
    own(run.helper).is_some()
}

/// One run; the inner error says what went wrong with it.
fn once(stage: Option<&Stage>, run: &Run, path: PathChoice) -> Result<Result<Vec<Point>, Failure>> {
    if let Some(measure) = own(run.helper) {
        return measure(path, &run.words);
    }
    let stage = stage.context("the engine is prepared for helper programs")?;
    let helper = match Helper::find(stage, run.helper) {
        Ok(helper) => helper,
        Err(failure) => return Ok(Err(failure)),
    };
    let strategies = ["--page-in", run.page_in.name(), "--page-faults", run.page_faults.name()];
    let options: Vec<&str> = ["--path", path.name()].into_iter().chain(strategies).collect();
    Ok(helper.run(Rights::Caller, &options, &run.words)?.and_then(|output| points(&output)))
}

/// One figure's measurements, as formulas ask for them: those of pages that the kernel fills.
struct Measured<'a> {
    live: &'a Live,
    place: Place,
}

impl Measured<'_> {
    fn points(&self, curve: &str, name: Option<&str>) -> Option<Vec<(f64, f64)>> {
        let curves = &self.live.plan(self.place)?.curves;
        let curve = curves.iter().find(|c| c.pages == Pages::Zero && c.name == curve)?;
        Some(self.live.points(curve, name.unwrap_or(curve.value)))
    }

    /// A point of a curve.
    fn at(&self, curve: &str, x: u64) -> Option<f64> {
        self.points(curve, None)?.into_iter().find(|point| point.0 == x as f64).map(|point| point.1)
    }

    /// Of the same runs, what came before the transfer.
    fn before(&self, curve: &str, x: u64) -> Option<f64> {
        self.points(curve, Some("before"))?.into_iter().find(|point| point.0 == x as f64).map(|point| point.1)
    }

    /// A point of a curve by processes, of the fewest that were measured.
    fn of_processes(&self, curve: &str) -> Option<f64> {
        self.at(curve, *self.live.processes.first()?)
    }

    /// The names of the curves, of pages that the kernel fills.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.live.planned_names(self.place, Pages::Zero)
    }

    /// The values of a curve.
    fn all(&self, curve: &str) -> Vec<f64> {
        self.points(curve, None).unwrap_or_default().into_iter().map(|point| point.1).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::helper;

    /// As if each run had printed, in two rounds, for each size and percentage of its words, a value that tells where it is from.
    pub(in crate::reproduce) fn invented(paper: Paper, path: PathChoice) -> Live {
        let places = super::super::known(&pagewire_papers::claims(paper), &pagewire_papers::figures(paper));
        let conditions = Conditions { path, processes: &PROCESSES, rounds: 2, delays: &[] };
        let plans: Vec<Plan> =
            places.into_iter().map(|place| plans::plan(paper, place, conditions)).collect();
        let mut outputs: Vec<(Run, Output)> = Vec::new();
        for run in plans.iter().flat_map(|plan| &plan.curves).map(|curve| &curve.run) {
            let numbers =
                |word: &String| -> Vec<u64> { word.split(',').map(|n| n.parse().unwrap()).collect() };
            let is_write = run.words[0] == "write";
            let sizes: Vec<u64> = match run.helper {
                "registration" | registered::VIEWS => run.words.iter().flat_map(numbers).collect(),
                registered::NAME => numbers(&run.words[1]),
                table::NAME | table::COMPUTATION | accesses::NAME => numbers(&run.words[2]),
                table::HANDLERS => vec![1],
                accesses::SORT => numbers(&run.words[3]),
                _ => run.words.last().map(numbers).unwrap(),
            };
            let percents = match run.helper {
                table::NAME | table::COMPUTATION => numbers(&run.words[1]),
                _ if is_write => numbers(&run.words[4]),
                _ => vec![0],
            };
            let mut text = String::new();
            for size in sizes {
                for percent in &percents {
                    text += &format!(
                        "{{\"size\":{size},\"percent\":{percent},\"before\":1,\"transfer\":2,\"whole\":3,\"post\":4,\
                         \"touch\":5,\"rate\":6,\"reg_mr\":7,\"dereg_mr\":8,\"times\":9,\"failed\":0,\"lock\":4,\"unlock\":1,\"lock_kib\":1,\
                         \"unlock_kib\":1,\"new\":1,\"new_least\":1,\"new_most\":2,\"by_hand\":4,\"reused\":1,\
                         \"again_by_hand\":3,\"put\":1,\"registered\":2,\"view_registered\":2,\"view_by_hand\":3,\"view_copied\":3,\"copied\":3,\"traditional\":8,\
                         \"conditional\":5,\"none_traditional\":8,\"none_conditional\":5,\"none_saved\":3,\"lock_traditional\":8,\"lock_conditional\":5,\
                         \"lock_saved\":3,\"work_traditional\":8,\"work_conditional\":5,\"work_saved\":3,\"saved\":3,\"rule\":2,\"client\":1,\"server\":1,\"round_trip\":1,\"client_beside\":1,\"server_beside\":1}}\n"
                    );
                }
            }
            let mut points = helper::points(&text).expect("as the helper prints");
            points.extend(points.clone());
            outputs.push((run.clone(), Output { points, ..Output::default() }));
        }
        Live { path, processes: PROCESSES.to_vec(), plans, outputs, load: Load::default(), rounds: 2 }
    }

    /// Two rounds that differ make an interval around their median; all WRITEs are told in a sentence.
    #[test]
    fn rounds_that_differ_make_intervals() {
        let mut live = invented(Paper::Part, PathChoice::Udp);
        assert!(
            live.first_lines()[1].starts_with("Each run was made 2 times")
                && live.first_lines()[1].contains("too seldom")
        );
        let interval = |live: &Live| {
            let curves = live.curves(Place::Figure(12), Pages::Zero);
            let curve = curves.into_iter().find(|curve| curve.name == "PIO").expect("PIO");
            curve.intervals.first().copied()
        };
        assert_eq!(interval(&live), None);
        assert!(live.first_lines()[2].starts_with("None of "), "{:?}", live.first_lines());
        for (_, output) in &mut live.outputs {
            for (index, point) in output.points.iter_mut().enumerate() {
                point.values.insert("whole".to_owned(), Some(1.0 + index as f64));
                point.values.insert("failed".to_owned(), Some(1.0));
            }
        }
        let (x, least, most) = interval(&live).expect("an interval");
        assert!(x == 4096.0 && least == 1.0 && most > least, "{least} {most}");
        assert!(
            live.first_lines()[2].contains(" WRITEs failed and are not counted"),
            "{:?}",
            live.first_lines()
        );
    }

    /// Registration in the kernel, the parts of a completion, fast registration, and strategies that no engine here has.
    const FRRWP_NOT_MEASURED: [Place; 4] =
        [Place::Figure(2), Place::Figure(5), Place::Table(1), Place::Section("5")];

    /// The translation buffer, and power.
    const ACTIVE_NOT_MEASURED: [Place; 3] =
        [Place::Panel(7, 'c'), Place::Panel(8, 'a'), Place::Panel(8, 'b')];

    /// Processes of a job.
    const PROCESSES: [u64; 2] = [2, 4];

    /// Every figure that the model has is measured over UDP, but those of applications and of a card's own work, which say so.
    #[test]
    fn each_figure_is_made_of_what_was_printed() {
        for paper in Paper::ALL {
            let live = invented(paper, PathChoice::Udp);
            for figure in pagewire_papers::figures(paper) {
                let curves = live.curves_of(&figure, Pages::Zero);
                let is_of_applications =
                    paper == Paper::Part && matches!(figure.place, Place::Table(_) | Place::Section(_));
                let is_of_a_card = paper == Paper::Frrwp && FRRWP_NOT_MEASURED.contains(&figure.place);
                let is_of_hardware = paper == Paper::Active && ACTIVE_NOT_MEASURED.contains(&figure.place);
                if is_of_applications || is_of_a_card || is_of_hardware {
                    assert!(curves.is_empty() && !live.notes(figure.place).is_empty(), "{}", figure.place);
                    continue;
                }
                assert!(!curves.is_empty(), "{}", figure.place);
                let values = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
                // What was printed is alike for all: one is less than another one by nothing.
                let is_difference = figure.right.is_some() && paper == Paper::Active;
                assert!(values.clone().all(|value| value <= 8.0));
                assert!(is_difference || values.clone().any(|value| value > 0.0), "{}", figure.place);
            }
        }
    }

    #[test]
    fn curves_go_along_sizes_percentages_or_parts() {
        let live = invented(Paper::Part, PathChoice::Udp);
        let curve = |figure, name: &str| {
            let curves = live.curves(Place::Figure(figure), Pages::Pager);
            curves.into_iter().find(|curve| curve.name == name).unwrap_or_else(|| panic!("{name}")).points
        };
        let xs = |points: Vec<(f64, f64)>| points.into_iter().map(|point| point.0).collect::<Vec<_>>();
        assert_eq!(xs(curve(12, "PIO"))[..2], [4096.0, 16384.0]);
        assert_eq!(xs(curve(14, "PIA 64 KiB")), [0.0, 1.0, 5.0, 20.0, 40.0, 80.0, 100.0]);
        assert_eq!(curve(10, "the whole, ERR"), [(8.0, 0.0), (8.0, 3.0)]);
    }

    #[test]
    fn a_figure_that_is_not_measured_says_why() {
        let part = invented(Paper::Part, PathChoice::Local);
        for place in [Place::Figure(11), Place::Figure(15), Place::Table(3)] {
            assert!(Pages::ALL.iter().all(|&pages| part.curves(place, pages).is_empty()), "{place}");
            let notes = part.notes(place);
            assert!(notes.len() == 1 && notes[0].contains("not measured"), "{place}: {notes:?}");
        }
        assert!(!part.has_failed());
    }

    /// The engine's ERR leaves sooner than that of the paper's NTO: the curve says so, and a note how.
    #[test]
    fn curve_without_timeouts_has_the_name_of_its_early_err() {
        let live = invented(Paper::Part, PathChoice::Udp);
        for pages in Pages::ALL {
            let names: Vec<String> =
                live.curves(Place::Figure(15), pages).into_iter().map(|curve| curve.name).collect();
            assert!(names.contains(&plans::NTO.to_owned()) && !names.contains(&"NTO".to_owned()));
        }
        assert!(live.notes(Place::Figure(15)).iter().any(|note| note.starts_with(plans::NTO)));
    }

    /// Between two Pagewires the timer is no acknowledgement timeout.
    #[test]
    fn figures_of_timeouts_say_when_packets_are_sent_again() {
        let live = invented(Paper::Part, PathChoice::Udp);
        for figure in [11, 15] {
            let place = Place::Figure(figure);
            assert!(live.notes(place).iter().any(|note| note == plans::REPEATED_EARLY), "{place}");
        }
        let of_timeouts = pagewire_papers::claims(Paper::Part)
            .into_iter()
            .filter(|claim| claim.what.contains("its part of the latency"))
            .filter_map(|claim| live.number(&claim));
        assert_eq!(of_timeouts.count(), 0);
    }

    #[test]
    fn failures_are_notes_and_null_is_no_figure() {
        let mut live = invented(Paper::Part, PathChoice::Udp);
        let set = |output: &mut Output, name: &str, value| {
            for point in &mut output.points {
                point.values.insert(name.to_owned(), value);
            }
        };
        for (run, output) in &mut live.outputs {
            if run.words.contains(&"lock".to_owned()) {
                set(output, "whole", None);
            } else if run.words.contains(&"pager".to_owned()) {
                output.points.clear();
                output.failure = Some(Failure { text: "exit status 77\nno pager".into(), not_here: true });
            } else if run.page_faults.name() == "timeout" {
                set(output, "failed", Some(1.0));
                set(output, "whole", None);
            }
        }
        let notes = live.notes(Place::Figure(12)).join("\n");
        assert!(notes.contains("Pin-NoPres-Pg(s), this machine: not measured: this user"), "{notes}");
        assert!(notes.contains("PIO, this machine, pages of a pager: not measured: exit status 77 no pager"));
        let notes = live.notes(Place::Figure(11)).join("\n");
        assert!(notes.contains("retry counter") && !notes.contains("this user"), "{notes}");
        assert!(live.curves(Place::Figure(12), Pages::Pager).is_empty());
        assert!(!live.has_failed());
        for (_, output) in &mut live.outputs {
            output.points.clear();
            output.failure = Some(Failure { text: "exit status 1".into(), not_here: false });
        }
        assert!(live.has_failed());
    }

    /// What is planned for Active Access is what its processes take.
    #[test]
    fn planned_accesses_are_jobs() {
        let live = invented(Paper::Active, PathChoice::Local);
        let of_accesses = |run: &&Run| [accesses::NAME, accesses::SORT].contains(&run.helper);
        let runs: Vec<&Run> = live.outputs.iter().map(|(run, _)| run).filter(of_accesses).collect();
        assert!(runs.len() >= 17);
        for run in runs {
            assert!(accesses::tests::are_jobs(run.helper, &run.words), "{run:?}");
        }
    }

    /// A formula names curves that exist.
    #[test]
    fn every_formula_gives_a_number_of_what_was_measured() {
        for (paper, least) in
            [(Paper::Part, 25), (Paper::Jbmt, 4), (Paper::Frrwp, 1), (Paper::Reuse, 15), (Paper::Active, 14)]
        {
            let live = invented(paper, PathChoice::Udp);
            let claims = pagewire_papers::claims(paper);
            let with_formula = claims.iter().filter(|claim| numbers::formula(claim).is_some());
            assert!(
                with_formula.clone().all(|claim| live.number(claim).is_some()),
                "{:?}",
                with_formula.clone().find(|claim| live.number(claim).is_none())
            );
            assert!(with_formula.count() >= least);
        }
        let claims = Paper::ALL.map(pagewire_papers::claims).concat();
        assert!(numbers::all().all(|(place, what, _)| {
            claims.iter().filter(|claim| claim.place == *place && claim.what == *what).count() == 1
        }));
    }
}
