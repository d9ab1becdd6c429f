//! The command line of `pagewire checkpoint`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Arguments of `pagewire checkpoint`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire checkpoint table.checkpoint\n  \
    pagewire checkpoint --verify *.checkpoint       read all data, too\n  \
    pagewire checkpoint --extract bytes region-0.checkpoint\n  \
    pagewire checkpoint --now 4711                  of a program under pagewire run --checkpoint\n\n\
    Exit status: 0, 1 if a file is none of checkpoints, or, with --verify or --extract, has none\n\
    or its last one cannot be restored, or a process does not save; 2 for a wrong command line.")]
pub struct CheckpointArguments {
    /// Files of checkpoints, which a process may be saving to
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "now")]
    pub files: Vec<PathBuf>,
    /// Compare all data with their checksums, and say which checkpoints can be restored
    #[arg(long)]
    pub verify: bool,
    /// Write the bytes of the regions of a checkpoint to OUT, one behind the other; OUT must not exist
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath, conflicts_with_all = ["verify", "json"])]
    pub extract: Option<PathBuf>,
    /// With --extract: of this checkpoint, and not of the last one
    #[arg(long, value_name = "N", requires = "extract")]
    pub number: Option<u64>,
    /// Have a process that runs under pagewire run --checkpoint save its regions now, and say what it has saved; may be given several times
    #[arg(long, value_name = "PID", conflicts_with_all = ["files", "verify", "extract"])]
    pub now: Vec<u32>,
    /// One JSON object for each file or process, instead of text
    #[arg(long)]
    pub json: bool,
}
