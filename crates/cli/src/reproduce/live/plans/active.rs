//! What is run for Active Access: the hash table by scheme, counted puts and logged gets.

use super::{Along, FaultHandling, PageIn, Pages, Place, PlannedCurve, Run};
use crate::reproduce::live::{accesses, table};

/// Parts of inserts that collide, in percent. All figures share the runs.
const COLLISIONS: &str = "5,25,50";

const TABLE: &str = "two processes of this machine, 20,000 inserts each, every chain verified; a thread that handles shares a processor with the inserts where \
    there are no more processors than processes; an event wakes for each record or message";
const NO_HARDWARE: &str =
    "not measured: the engine intercepts accesses in software, and this machine has no IOMMU that does";
const NO_SHARE: &str =
    "not measured: with two processes there is no choice of how many handle; figure 7a has AM-Onload";
const NO_BUFFER: &str =
    "not measured: the engine has no translation buffer; pages are looked up in tables in memory";
const ONE_CALLER: &str = "one process accesses the memory of another one, and waits for each access; a thread of the owner looks at the log, and never \
    sleeps; of A-KV, Allreduce and AM nothing is made here";
const NO_SORT: &str = "not measured: the sort is not run by each of these schemes here";
const NO_POWER: &str = "not measured: power is by the model alone";
const NO_COMPUTATION: &str = "not measured: the processes do not compute between two inserts";

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

/// The curves of a place, and what is to be said of it.
pub(super) fn plan(place: Place) -> (Vec<PlannedCurve>, Vec<&'static str>) {
    let all = |percent| SCHEMES.map(|(name, scheme)| curve(name, scheme, Along::SizeAt(percent))).to_vec();
    let by_collisions = Along::Percent(table::PROCESSES);
    match place {
        Place::Figure(1) => (vec![curve("RMA", "rma", by_collisions)], vec![TABLE]),
        Place::Panel(6, 'c') => {
            (vec![curve("AA", "aa-poll", by_collisions), curve("RMA", "rma", by_collisions)], vec![TABLE])
        }
        Place::Panel(7, 'a') => (all(5), vec![TABLE]),
        Place::Panel(7, 'b') => (all(25), vec![TABLE]),
        Place::Panel(6, 'd') => (vec![], vec![NO_SHARE]),
        Place::Panel(7, 'c') => (vec![], vec![NO_BUFFER]),
        Place::Panel(7, 'd') => (
            vec![
                access("AA-Poll", "counter"),
                access("RMA", "counter_rma"),
                access("No-Cnt", "counter_none"),
            ],
            vec![ONE_CALLER],
        ),
        Place::Panel(9, 'a') => (
            vec![access("AA", "get_logged"), access("RMA", "get_logged_rma"), access("No-FT", "get")],
            vec![ONE_CALLER],
        ),
        Place::Panel(8, _) => (vec![], vec![NO_POWER]),
        Place::Panel(9, _) => (vec![], vec![NO_SORT]),
        Place::Section("5.2.1") => (vec![], vec![NO_COMPUTATION]),
        _ => (vec![], vec![NO_HARDWARE]),
    }
}

fn curve(name: &str, scheme: &str, along: Along) -> PlannedCurve {
    planned(name, table::NAME, &[scheme, COLLISIONS], along)
}

fn access(name: &str, measurement: &str) -> PlannedCurve {
    planned(name, accesses::NAME, &[measurement], Along::Size)
}

fn planned(name: &str, helper: &'static str, words: &[&str], along: Along) -> PlannedCurve {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    let run = Run { helper, words, page_in: PageIn::Dynamic, page_faults: FaultHandling::Stash };
    PlannedCurve { pages: Pages::Zero, name: name.to_owned(), run, along, value: "rate" }
}
