//! The hash table of figures 7a and 7b over networks that are longer on purpose (`--delay`): the paper's machine had a network, and two processes of one
//! host have none. The models have no such figure.

use crate::arguments::{FigureNumber, ReproduceArguments, ReproducedPaper};
use pagewire_nic::PathChoice;
use pagewire_papers::{Axis, Figure, Place, Shape};

const DELAY: Axis = Axis { label: "us of delay", logarithmic: false };
const RATE: Axis = Axis { label: "inserts/s", logarithmic: true };

/// Those figures, without curves: these are measured.
pub(super) fn figures() -> Vec<Figure> {
    let figure = |(letter, title)| Figure {
        place: Place::Delayed(7, letter),
        title,
        basis: "measured alone",
        x: DELAY,
        y: RATE,
        curves: Vec::new(),
        shape: Shape::Curves,
        right: None,
        notes: &["neither the paper nor its model has this figure: it is of this machine alone"],
    };
    let titles = [
        "hash table: inserts by network delay, 5 % collisions",
        "hash table: inserts by network delay, 25 % collisions",
    ];
    ['a', 'b'].into_iter().zip(titles).map(figure).collect()
}

/// What is wrong with a command line that asks for delays; `None`: nothing, or it asks for none.
pub(super) fn refusal(arguments: &ReproduceArguments) -> Option<&'static str> {
    if arguments.delay.is_empty() {
        return None;
    }
    let is_of_table = match arguments.figure {
        None => arguments.table.is_none(),
        Some(FigureNumber { number, letter }) => number == 7 && matches!(letter, None | Some('a' | 'b')),
    };
    if !matches!(arguments.paper, ReproducedPaper::Active) || !is_of_table {
        return Some("--delay is for figures 7a and 7b of active");
    }
    (arguments.path == Some(PathChoice::Local))
        .then_some("--delay delays packets, and the path local has none: take --path udp or tcp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn refused(words: &str) -> Option<&'static str> {
        let words = format!("pagewire reproduce {words}");
        match Arguments::try_parse_from(words.split(' ')).map(|arguments| arguments.command) {
            Ok(Command::Reproduce(arguments)) => refusal(&arguments),
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn delays_are_of_packets_and_of_the_hash_table() {
        for words in [
            "active --live --delay 0,5,20",
            "active --live --delay 5 --figure 7 --path tcp",
            "active --live --delay 5 --figure 7b --path udp",
            "part --live --path local",
        ] {
            assert_eq!(refused(words), None, "{words}");
        }
        for words in ["part --live --delay 5", "active --live --delay 5 --figure 7c", "all --live --delay 5"]
        {
            assert_eq!(refused(words), Some("--delay is for figures 7a and 7b of active"), "{words}");
        }
        let local = refused("active --live --delay 5 --path local").expect("no packets");
        assert!(local.contains("local has none"), "{local}");
    }

    #[test]
    fn delay_needs_live() {
        let words = "pagewire reproduce active --delay 5".split(' ');
        assert_eq!(Arguments::try_parse_from(words).expect_err("no --live").exit_code(), 2);
    }
}
