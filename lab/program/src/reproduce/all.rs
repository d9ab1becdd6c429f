//! `pagewire reproduce all`: each paper in turn, and none twice.
//!
//! A paper that is complete has a file which says with which options it was made. So an interrupted command goes on where it was, and other options
//! begin anew.

use super::name_and_paper;
use crate::arguments::{ReproduceArguments, ReproducedPaper};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const PAPERS: [ReproducedPaper; 5] = [
    ReproducedPaper::Part,
    ReproducedPaper::Jbmt,
    ReproducedPaper::Frrwp,
    ReproducedPaper::Reuse,
    ReproducedPaper::Active,
];

/// Reproduces those that are not complete; gives the greatest exit status of all.
///
/// # Errors
/// If something cannot be written, or a signal has come.
pub(super) fn reproduce(arguments: &ReproduceArguments) -> Result<u8> {
    let Some(directory) = arguments.out.as_deref() else {
        pagewire_cli::tell!("pagewire: all papers are reproduced into files: name a directory by --out");
        return Ok(2);
    };
    if arguments.figure.is_some() || arguments.table.is_some() {
        pagewire_cli::tell!("pagewire: --figure and --table are of one paper: name it");
        return Ok(2);
    }
    crate::chart::prepare("--out", directory)?;
    let options = options(arguments);
    let mut status = 0;
    for paper in PAPERS {
        let name = name_and_paper(paper).0;
        if is_complete(directory, name, &options) {
            pagewire_cli::tell!("pagewire: {name} is complete in {}", directory.display());
            continue;
        }
        let one = ReproduceArguments { paper, ..arguments.clone() };
        let done = super::reproduce(&one)?;
        status = status.max(done);
        if done == 0 {
            let file = file(directory, name);
            fs::write(&file, &options).with_context(|| file.display().to_string())?;
        }
    }
    Ok(status)
}

fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}-complete"))
}

/// What the files of a paper depend on.
fn options(arguments: &ReproduceArguments) -> String {
    let ReproduceArguments { live, path, processes, rounds, .. } = arguments;
    let measured = if *live { format!("live {path:?} {processes:?} {rounds}") } else { "model".to_owned() };
    format!("{} {measured}\n", env!("CARGO_PKG_VERSION"))
}

fn is_complete(directory: &Path, name: &str, options: &str) -> bool {
    fs::read_to_string(file(directory, name)).is_ok_and(|made| made == options)
}
