//! What is run for Active Access: the hash table, counted and logged accesses and a sort by scheme, and puts beside a region with attributes.

use super::{Along, Conditions, FaultHandling, PageIn, Pages, Place, PlannedCurve, Run, list};
use crate::reproduce::live::{accesses, table};

/// Parts of inserts that collide, in percent. All figures share the runs.
const COLLISIONS: &str = "5,25,50";
/// Those of figures 7a and 7b.
const FEW_COLLIDE: u64 = 5;
const MORE_COLLIDE: u64 = 25;
/// Parts of the run time that are computation, in percent (5.2.1: 0 to 95).
const COMPUTATION: &str = "0,50,75,90,95";
/// Bytes of a get of the sort, as in the model.
const SORT_SIZES: &str = "8,64,512,4096,32768";
/// Bytes of puts: words, as near to the model's packets and messages as those come.
const PACKETS: &str = "64,128,256,512,1024,1512";
const MESSAGES: &str = "64,256,1024,4096,16384,65536";

const TABLE: &str = "processes of this machine, 20,000 inserts each, every chain verified; a thread that handles shares a processor with the inserts where \
    there are no more processors than processes; an event wakes for each record or message";
const DELAYED: &str = "two processes of this machine, or the first of --processes, 5,000 inserts each, of RMA 500; each packet of each process leaves so much later \
    (PAGEWIRE_DELAY); every chain verified; a thread that handles shares a processor with the inserts where there are no more processors than processes";
const LOOKS: &str = "assumed: AM and AM-Exp look for messages after each 8 own inserts, as the text has no interval; each 4 and each 16 stand beside";
const ALL_AT_ONE: &str =
    "the two processes insert into each other's part; a call of RMA is waited for, a put of AA is not";
const HANDLING: &str = "of the processes here so many own all elements and only handle messages, the others only insert; the axis is of these processes, not \
    of 32; with two there is no choice (--processes)";
const STREAMS: &str = "puts of one process here, 16 under way, to a region without attributes: no other region has any (no-iommu), or another one of its owner \
    has, which nobody accesses (e-iommu); the engine does in software what an IOMMU would, and has neither packets nor TCP and UDP streams of others";
const NO_BUFFER: &str = "not measured: the engine has no translation buffer, so that its size, associativity and eviction are by the model alone; pages are \
    looked up in tables in memory";
const ACCESSES: &str = "processes of this machine, 20,000 accesses each to random other ones, 16 under way; counts are compared page by page with what was \
    accessed, and logs record by record";
const SUMS: &str = "assumed: Allreduce after each 16 accesses, and looks of AA-Poll and A-KV after each 8; sums after each 8 and each 32 stand beside";
const LOGS: &str = "a log has space for all gets of a run, as one that is trimmed at checkpoints; AA writes it while the get is made, RMA by an atomic that \
    reserves space and a put, AM by a message that the owner handles after each 8 own gets (assumed)";
const LOGS_LOOKS: &str = "AM with looks after each 4 and each 16 stands beside";
const SORTED: &str = "processes of this machine sort 32,768 keys of 8 bytes each (the paper 1 GB); the exchange alone is timed; the result is verified, and each get \
    in the logs";
const COMPUTED: &str = "5,000 inserts of each process, 5 % collisions; the same computation for all schemes between two inserts, which is this part of the run time of \
    AA-Poll as measured here";
const NO_POWER: &str = "not measured: power is by the model alone";
const GIVEN: &str = "not measured: it is given, and the engine has no such hardware";

/// The schemes by their names in the figures, and on the command line.
const SCHEMES: [(&str, &str); 9] = [
    ("AA-Int", "aa-int"),
    ("AA-Poll", "aa-poll"),
    ("AA-SP", "aa-sp"),
    ("RMA", "rma"),
    ("AM", "am"),
    ("AM-Exp", "am-exp"),
    ("AM-Onload", "am-onload"),
    ("AM-Ints", "am-ints"),
    ("AM-Aggregated", "am-aggregated"),
];

/// Inserts between two looks, where they are not varied: as `pagewire bench` has them.
const INTERVAL: &str = "8";

/// With other assumed inputs: the curve, the scheme, and how many inserts or accesses lie between two looks or sums.
const TABLE_VARIED: [(&str, &str, &str); 4] = [
    ("AM, looks each 4", "am", "4"),
    ("AM, looks each 16", "am", "16"),
    ("AM-Exp, looks each 4", "am-exp", "4"),
    ("AM-Exp, looks each 16", "am-exp", "16"),
];
const COUNTER: [(&str, &str, &str); 7] = [
    ("AA-Poll", "aa-poll", "0"),
    ("RMA", "rma", "0"),
    ("A-KV", "a-kv", "0"),
    ("Allreduce", "allreduce", "0"),
    ("No-Cnt", "none", "0"),
    ("Allreduce, each 8", "allreduce", "8"),
    ("Allreduce, each 32", "allreduce", "32"),
];
const GETS: [(&str, &str, &str); 6] = [
    ("No-FT", "none", "0"),
    ("AA", "aa", "0"),
    ("AM", "am", "0"),
    ("RMA", "rma", "0"),
    ("AM, looks each 4", "am", "4"),
    ("AM, looks each 16", "am", "16"),
];
const SORT: [(&str, &str); 4] = [("No-FT", "none"), ("AA", "aa"), ("AM", "am"), ("RMA", "rma")];

/// The curves of a place, and what is to be said of it.
pub(super) fn plan(place: Place, conditions: Conditions) -> (Vec<PlannedCurve>, Vec<&'static str>) {
    let Conditions { processes, delays, .. } = conditions;
    let first = processes.first().copied().unwrap_or(2);
    let by_collisions = |name, scheme| table_curve(name, scheme, INTERVAL, processes, Along::Percent(first));
    match place {
        Place::Figure(1) => (vec![by_collisions("RMA", "rma")], vec![TABLE]),
        Place::Panel(6, 'a') => (streams("", PACKETS), vec![STREAMS]),
        Place::Panel(6, 'b') => (streams("puts, ", MESSAGES), vec![STREAMS]),
        Place::Panel(6, 'c') => {
            (vec![by_collisions("AA", "aa-poll"), by_collisions("RMA", "rma")], vec![TABLE, ALL_AT_ONE])
        }
        Place::Panel(6, 'd') => {
            let most = processes.iter().copied().max().unwrap_or(2);
            (vec![planned("AM-Onload", table::HANDLERS, &[&most.to_string()], Along::Size)], vec![HANDLING])
        }
        Place::Panel(7, 'a') => (by_processes(FEW_COLLIDE, processes), vec![TABLE, LOOKS]),
        Place::Panel(7, 'b') => (by_processes(MORE_COLLIDE, processes), vec![TABLE, LOOKS]),
        Place::Delayed(7, 'a') => (by_delay(FEW_COLLIDE, first, delays), vec![DELAYED, LOOKS]),
        Place::Delayed(7, 'b') => (by_delay(MORE_COLLIDE, first, delays), vec![DELAYED, LOOKS]),
        Place::Panel(7, 'c') => (vec![], vec![NO_BUFFER]),
        Place::Panel(7, 'd') => (access_curves("counter", &COUNTER, processes), vec![ACCESSES, SUMS]),
        Place::Panel(9, 'a') => {
            (access_curves("get_logged", &GETS, processes), vec![ACCESSES, LOGS, LOGS_LOOKS])
        }
        Place::Panel(9, 'b') => (
            SORT.map(|(name, scheme)| {
                planned(name, accesses::SORT, &["sort", scheme, &first.to_string(), SORT_SIZES], Along::Size)
            })
            .to_vec(),
            vec![SORTED, LOGS],
        ),
        Place::Panel(8, _) => (vec![], vec![NO_POWER]),
        Place::Section("5.2.1") => (
            SCHEMES
                .map(|(name, scheme)| {
                    let words = [scheme, COMPUTATION, &first.to_string()];
                    planned(name, table::COMPUTATION, &words, Along::Percent(first))
                })
                .to_vec(),
            vec![COMPUTED],
        ),
        _ => (vec![], vec![GIVEN]),
    }
}

/// Each scheme, and those that look for messages also with other intervals: the curve, the scheme, and inserts between two looks.
fn schemes() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    SCHEMES.into_iter().map(|(name, scheme)| (name, scheme, INTERVAL)).chain(TABLE_VARIED)
}

fn by_processes(percent: u64, processes: &[u64]) -> Vec<PlannedCurve> {
    let along = Along::SizeAt(percent);
    schemes().map(|(name, scheme, interval)| table_curve(name, scheme, interval, processes, along)).collect()
}

fn by_delay(percent: u64, processes: u64, delays: &[u64]) -> Vec<PlannedCurve> {
    let (percent, processes, delays) = (percent.to_string(), processes.to_string(), list(delays));
    let curve = |(name, scheme, interval)| {
        planned(name, table::DELAYED, &[scheme, &percent, interval, &processes, &delays], Along::Size)
    };
    schemes().map(curve).collect()
}

fn table_curve(name: &str, scheme: &str, interval: &str, processes: &[u64], along: Along) -> PlannedCurve {
    planned(name, table::NAME, &[scheme, COLLISIONS, &list(processes), interval], along)
}

fn access_curves(workload: &str, curves: &[(&str, &str, &str)], processes: &[u64]) -> Vec<PlannedCurve> {
    let curve = |&(name, scheme, each): &(&str, &str, &str)| {
        planned(name, accesses::NAME, &[workload, scheme, &list(processes), each], Along::Size)
    };
    curves.iter().map(curve).collect()
}

fn streams(prefix: &str, sizes: &str) -> Vec<PlannedCurve> {
    let curve = |(name, measurement): (&str, &str)| {
        planned(&format!("{prefix}{name}"), accesses::STREAM, &[measurement, sizes], Along::Size)
    };
    [("no-iommu", "put_bw"), ("e-iommu", "put_bw_beside")].map(curve).to_vec()
}

fn planned(name: &str, helper: &'static str, words: &[&str], along: Along) -> PlannedCurve {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    let run = Run { helper, words, page_in: PageIn::Dynamic, page_faults: FaultHandling::Stash };
    PlannedCurve { pages: Pages::Zero, name: name.to_owned(), run, along, value: "rate" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_nic::PathChoice;

    /// Each scheme of the paper and ours, with AM and AM-Exp after each 4, 8 and 16 own inserts, at each delay.
    #[test]
    fn every_scheme_is_measured_at_every_delay() {
        let conditions =
            Conditions { path: PathChoice::Udp, processes: &[2, 4], rounds: 7, delays: &[0, 5, 100] };
        let of = |place| plan(place, conditions).0;
        for (letter, percent) in [('a', "5"), ('b', "25")] {
            let curves = of(Place::Delayed(7, letter));
            let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
            let by_processes = of(Place::Panel(7, letter));
            assert_eq!(names, by_processes.iter().map(|curve| curve.name.as_str()).collect::<Vec<_>>());
            assert_eq!(names.len(), SCHEMES.len() + TABLE_VARIED.len());
            assert!(SCHEMES.iter().all(|(name, _)| names.contains(name)));
            for curve in curves {
                let words: Vec<&str> = curve.run.words.iter().map(String::as_str).collect();
                let [_, collisions, interval, processes, delays] = words[..] else { panic!("{words:?}") };
                assert_eq!((collisions, processes, delays), (percent, "2", "0,5,100"));
                assert!(["4", "8", "16"].contains(&interval), "{interval}");
            }
        }
    }
}
