//! Measurements that need further processes: this program starts itself once more, as `pagewire-lab probe KIND`.

use crate::native::hash_table::{self, Load};
use crate::native::{Strategy, accesses};
use crate::{datagrams, registered, streams};
use anyhow::{Context, Result};
use clap::ValueEnum;
use nix::unistd::Pid;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::process::{Child, ChildStdin, Command, Stdio};

/// What such a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `holder LENGTH`: prints the address of LENGTH bytes of touched memory, keeps it until its input ends
    Holder,
    /// `answerer ADDRESS SEGMENT THERE BACK`: answers each THERE bytes of datagrams by BACK bytes, until it is killed
    Answerer,
    /// `asker ADDRESS SEGMENT THERE BACK`: prints the microseconds of a round trip to an answerer
    Asker,
    /// `flooder ADDRESS SEGMENT`: sends batches of datagrams until it is killed
    Flooder,
    /// `receiver ADDRESS SEGMENT`: prints the MB/s that it receives of a flooder
    Receiver,
    /// `sink ADDRESS SEGMENT SIZE`: receives messages of SIZE bytes of a source by TCP, until it is killed
    Sink,
    /// `source ADDRESS SEGMENT SIZE`: prints the MB/s that a sink receives
    Source,
    /// `tcp-answerer ADDRESS SEGMENT THERE BACK`: as answerer, by TCP
    #[value(name = "tcp-answerer")]
    TcpAnswerer,
    /// `tcp-asker ADDRESS SEGMENT THERE BACK`: as asker, by TCP
    #[value(name = "tcp-asker")]
    TcpAsker,
    /// `native NAME SIZE TIMES [STRATEGY]`: measures the native interface, with another one where that needs two
    Native,
    /// `hashtable OPERATION SCHEME CELLS INSERTS ROUNDS`: measures the hash table, as a process of a job
    #[value(name = "hashtable")]
    HashTable,
    /// `accesses WORKLOAD SCHEME SIZE TIMES ROUNDS [COMPUTATION [EACH]]`: measures counted or logged accesses, as a process of a job
    Accesses,
    /// `checkpoint SIZE`: measures an incremental checkpoint beside a full copy
    Checkpoint,
    /// `registered WHAT SIZES`: measures registered memory, as a process of a job
    Registered,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Holder => "holder",
            Kind::Answerer => "answerer",
            Kind::Asker => "asker",
            Kind::Flooder => "flooder",
            Kind::Receiver => "receiver",
            Kind::Sink => "sink",
            Kind::Source => "source",
            Kind::TcpAnswerer => "tcp-answerer",
            Kind::TcpAsker => "tcp-asker",
            Kind::Native => "native",
            Kind::HashTable => "hashtable",
            Kind::Accesses => "accesses",
            Kind::Checkpoint => "checkpoint",
            Kind::Registered => "registered",
        }
    }
}

/// Plays such a process.
///
/// # Errors
/// With what the kernel answered, if it refuses.
pub fn serve(kind: Kind, operands: &[String]) -> Result<()> {
    let operand = |index: usize| operands.get(index).context("an operand is missing");
    match kind {
        Kind::Holder => {
            let memory = vec![1_u8; operand(0)?.parse()?];
            println!("{}", memory.as_ptr() as usize);
            io::stdout().flush()?;
            io::stdin().read_to_end(&mut Vec::new())?;
            // Kept alive, and not optimised away, until here.
            std::hint::black_box(&memory);
        }
        Kind::Answerer | Kind::Asker | Kind::Flooder | Kind::Receiver => {
            let address = operand(0)?.parse().context("ADDRESS")?;
            let segment = operand(1)?.parse::<NonZeroUsize>().context("SEGMENT")?.get();
            let lengths = || -> Result<[usize; 2]> { Ok([operand(2)?.parse()?, operand(3)?.parse()?]) };
            match kind {
                Kind::Answerer => datagrams::answer(address, segment, lengths()?)?,
                Kind::Asker => println!("{}", datagrams::round_trip(address, segment, lengths()?)?),
                Kind::Flooder => datagrams::flood(address, segment)?,
                _ => println!("{}", datagrams::receive_flood(address, segment)?),
            }
        }
        Kind::Sink | Kind::Source | Kind::TcpAnswerer | Kind::TcpAsker => {
            let address = operand(0)?.parse().context("ADDRESS")?;
            let lengths = || -> Result<[usize; 2]> { Ok([operand(2)?.parse()?, operand(3)?.parse()?]) };
            match kind {
                Kind::Sink => streams::sink(address, operand(2)?.parse()?)?,
                Kind::Source => println!("{}", streams::source(address, operand(2)?.parse()?)?),
                Kind::TcpAnswerer => streams::answer(address, lengths()?)?,
                _ => println!("{}", streams::round_trip(address, lengths()?)?),
            }
        }
        Kind::Native => {
            let strategy =
                operands.get(3).map(|name| Strategy::from_str(name, false).map_err(anyhow::Error::msg));
            let (size, times) = (operand(1)?.parse()?, operand(2)?.parse()?);
            let figure = crate::native::measure(operand(0)?, size, times, strategy.transpose()?)?;
            if let Some(figure) = figure {
                println!("{}", serde_json::to_string(&figure)?);
            }
        }
        Kind::HashTable => {
            let figure = hash_table::measure(Load::parse(operands)?)?;
            if let Some(figure) = figure {
                println!("{}", serde_json::to_string(&figure)?);
            }
        }
        Kind::Accesses => {
            if let Some(figure) = accesses::measure(accesses::Load::parse(operands)?)? {
                println!("{}", serde_json::to_string(&figure)?);
            }
        }
        Kind::Checkpoint => {
            println!(
                "{}",
                serde_json::to_string(&crate::native::checkpoint::measure(operand(0)?.parse()?)?)?
            );
        }
        Kind::Registered => registered::serve(operand(0)?, operand(1)?)?,
    }
    Ok(())
}

/// This program once more, as such a process.
///
/// # Errors
/// If its own file cannot be found.
pub(crate) fn command(kind: Kind, operands: &[String]) -> Result<Command> {
    pagewire_cli::probe::command(kind.name(), operands)
}

/// Another process, with memory to copy from and to.
#[derive(Debug)]
pub struct Holder {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Where its memory lies, in it.
    pub address: usize,
}

impl Holder {
    /// Starts it, with `length` bytes.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(length: usize) -> Result<Holder> {
        let mut child = command(Kind::Holder, &[length.to_string()])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("no output")?;
        let mut holder = Holder { child, stdin, address: 0 };
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line)?;
        holder.address = line.trim().parse().context("the second process gave no address")?;
        Ok(holder)
    }

    /// Its PID.
    pub fn pid(&self) -> Pid {
        // The kernel's own numbers are positive and below 2^22.
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // End of input ends it.
        drop(self.stdin.take());
        self.child.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_no_bytes_are_refused() {
        for kind in [Kind::Answerer, Kind::Asker, Kind::Flooder, Kind::Receiver] {
            let operands = ["127.0.0.1", "0", "1", "1"].map(String::from);
            let refused = serve(kind, &operands).expect_err("no bytes");
            assert!(format!("{refused:#}").starts_with("SEGMENT: "), "{refused:#}");
        }
    }
}
