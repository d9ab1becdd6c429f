//! The table of perftest combinations, `perftest-combinations.tsv`.

use anyhow::{Context, Result, ensure};

/// What must come of a combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Both ends succeed.
    Runs,
    /// perftest refuses, with this message.
    Refused(String),
}

/// One test, transport and option of perftest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// The program.
    pub program: String,
    /// RC, UC or UD.
    pub transport: String,
    /// The options, as words.
    pub options: Vec<String>,
    /// What must come of it.
    pub expected: Expected,
}

const TABLE: &str = include_str!("../perftest-combinations.tsv");

/// The programs of the table.
pub const PROGRAMS: [&str; 8] = [
    "ib_send_lat",
    "ib_send_bw",
    "ib_write_lat",
    "ib_write_bw",
    "ib_read_lat",
    "ib_read_bw",
    "ib_atomic_lat",
    "ib_atomic_bw",
];

/// The transports of the table.
pub const TRANSPORTS: [&str; 3] = ["RC", "UC", "UD"];

/// The options of the table.
pub const OPTIONS: [&str; 13] = [
    "-",
    "-a",
    "-q 16",
    "-b",
    "-e",
    "-I 64",
    "-r 64",
    "-t 64",
    "--use-srq",
    "-m 256",
    "-m 1024",
    "-m 4096",
    "-o 4",
];

/// How many combinations must run; the rest must be refused.
pub const RUNNING: usize = 132;

/// Reads the table.
///
/// # Errors
/// If a line is not in the format.
pub fn table() -> Result<Vec<Combination>> {
    TABLE.lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

fn parse(line: &str) -> Result<Combination> {
    let mut fields = line.split('\t');
    let mut field = || fields.next().with_context(|| format!("a field is missing: {line}"));
    let (program, transport, options, outcome) = (field()?, field()?, field()?, field()?);
    let expected = match outcome.strip_prefix("refused: ") {
        Some(message) => Expected::Refused(message.to_owned()),
        None => {
            ensure!(outcome == "runs", "an unknown outcome: {line}");
            Expected::Runs
        }
    };
    let options = if options == "-" { "" } else { options };
    Ok(Combination {
        program: program.to_owned(),
        transport: transport.to_owned(),
        options: options.split_whitespace().map(str::to_owned).collect(),
        expected,
    })
}

/// The table is the whole product of programs, transports and options, each once, with the promised number running.
///
/// # Errors
/// If it is not.
pub fn table_is_whole() -> Result<()> {
    let table = table()?;
    for program in PROGRAMS {
        for transport in TRANSPORTS {
            for options in OPTIONS {
                let words: Vec<&str> = options.split_whitespace().filter(|word| *word != "-").collect();
                let count = table
                    .iter()
                    .filter(|c| c.program == program && c.transport == transport && c.options == words)
                    .count();
                ensure!(count == 1, "{program} -c {transport} {options} stands {count} times in the table");
            }
        }
    }
    let product = PROGRAMS.len() * TRANSPORTS.len() * OPTIONS.len();
    ensure!(table.len() == product, "{} lines instead of {product}", table.len());
    let running = table.iter().filter(|c| c.expected == Expected::Runs).count();
    ensure!(running == RUNNING, "{running} combinations run instead of {RUNNING}");
    Ok(())
}
