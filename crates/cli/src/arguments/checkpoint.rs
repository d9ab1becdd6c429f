//! The command line of `pagewire checkpoint`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Arguments of `pagewire checkpoint`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire checkpoint table.checkpoint\n  \
    pagewire checkpoint --verify *.checkpoint       read all data, too\n\n\
    Exit status: 0, 1 if a file is damaged or is none of checkpoints,\n\
    2 for a wrong command line.")]
pub struct CheckpointArguments {
    /// Files of checkpoints, which a process may be saving to
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    pub files: Vec<PathBuf>,
    /// Compare all data with their checksums
    #[arg(long)]
    pub verify: bool,
    /// One JSON object for each file, instead of text
    #[arg(long)]
    pub json: bool,
}
