//! The table of perftest combinations, `perftest-combinations.tsv`.

use anyhow::{Context, Result, ensure};

/// What must come of a combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Both ends succeed.
    Runs,
    /// perftest refuses while it reads its arguments or opens the device, with this message.
    Refused(String),
    /// What it asks of the device at a connection is refused, and both ends say so; this is the client's message.
    Denied(String),
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

/// How many combinations of the product must run; the rest must be refused.
pub const RUNNING: usize = 132;

/// The line of the table behind which more combinations stand, chosen one by one.
const CHOSEN: &str = "# Chosen one by one.";

/// Reads the table.
///
/// # Errors
/// If a line is not in the format.
pub fn table() -> Result<Vec<Combination>> {
    parse_all(TABLE)
}

fn parse_all(text: &str) -> Result<Vec<Combination>> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(parse).collect()
}

fn parse(line: &str) -> Result<Combination> {
    let mut fields = line.split('\t');
    let mut field = || fields.next().with_context(|| format!("a field is missing: {line}"));
    let (program, transport, options, outcome) = (field()?, field()?, field()?, field()?);
    let expected = match outcome.split_once(": ") {
        Some(("refused", message)) => Expected::Refused(message.to_owned()),
        Some(("denied", message)) => Expected::Denied(message.to_owned()),
        _ => {
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

/// The table begins with the whole product of programs, transports and options, each once, with the promised number
/// running; behind it no combination stands twice either.
///
/// # Errors
/// If it is not so.
pub fn table_is_whole() -> Result<()> {
    let (product, chosen) = TABLE.split_once(CHOSEN).context("no combinations are chosen one by one")?;
    let (table, chosen) = (parse_all(product)?, parse_all(chosen)?);
    for (place, one) in chosen.iter().enumerate() {
        let same = |other: &&Combination| {
            (&other.program, &other.transport, &other.options) == (&one.program, &one.transport, &one.options)
        };
        ensure!(
            table.iter().chain(&chosen[place + 1..]).find(same).is_none(),
            "{} -c {} {} stands in the table twice",
            one.program,
            one.transport,
            one.options.join(" ")
        );
    }
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
