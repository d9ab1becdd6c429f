//! Real tries that need a second process: this command starts itself once more, as `pagewire probe KIND`.

use crate::limits::PROBE_PATIENCE;
use crate::native::Strategy;
use crate::native::accesses;
use crate::native::hash_table::{self, Load};
use crate::output::datagrams;
use crate::registered;
use crate::running::pair::Running;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::sched::CloneFlags;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::{self, IoSliceMut, Read, Write};
use std::num::NonZeroUsize;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

/// What the second process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `reader PID ADDRESS`: prints the 8 bytes at ADDRESS of the process PID
    Reader,
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
    /// `native NAME SIZE TIMES [STRATEGY]`: measures the native interface, with another one where that needs two
    Native,
    /// `hashtable OPERATION SCHEME CELLS INSERTS ROUNDS`: measures the hash table, as a process of a job
    #[value(name = "hashtable")]
    HashTable,
    /// `accesses WORKLOAD SCHEME SIZE TIMES ROUNDS [COMPUTATION [EACH]]`: measures counted or logged accesses, as a process of a job
    Accesses,
    /// Makes a network namespace, in a user namespace where that is needed
    Namespaces,
    /// `checkpoint SIZE`: measures an incremental checkpoint beside a full copy
    Checkpoint,
    /// `registered WHAT SIZES`: measures registered memory, as a process of a job
    Registered,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Reader => "reader",
            Kind::Holder => "holder",
            Kind::Answerer => "answerer",
            Kind::Asker => "asker",
            Kind::Flooder => "flooder",
            Kind::Receiver => "receiver",
            Kind::Native => "native",
            Kind::HashTable => "hashtable",
            Kind::Accesses => "accesses",
            Kind::Namespaces => "namespaces",
            Kind::Checkpoint => "checkpoint",
            Kind::Registered => "registered",
        }
    }
}

/// Plays the second process.
///
/// # Errors
/// With what the kernel answered, if it refuses.
pub fn serve(kind: Kind, operands: &[String]) -> Result<()> {
    let operand = |index: usize| operands.get(index).context("an operand is missing");
    match kind {
        Kind::Reader => {
            let pid = Pid::from_raw(operand(0)?.parse()?);
            let base = operand(1)?.parse()?;
            let mut bytes = [0; 8];
            process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &[RemoteIoVec { base, len: 8 }])?;
            println!("{}", u64::from_ne_bytes(bytes));
        }
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
            println!("{}", serde_json::to_string(&crate::checkpoint::measure(operand(0)?.parse()?)?)?);
        }
        Kind::Registered => registered::serve(operand(0)?, operand(1)?)?,
        Kind::Namespaces => {
            let with_user = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
            // Root needs no user namespace, if it has its capabilities.
            let direct =
                nix::unistd::geteuid().is_root() && nix::sched::unshare(CloneFlags::CLONE_NEWNET).is_ok();
            if !direct {
                nix::sched::unshare(with_user)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn command(kind: Kind, operands: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["probe", kind.name()]).args(operands);
    Ok(command)
}

fn ask(kind: Kind, operands: &[String]) -> Result<String> {
    let finished = Running::start(command(kind, operands)?)?.wait_until(Instant::now() + PROBE_PATIENCE);
    let output = finished.output.trim().trim_start_matches("pagewire: ");
    if !finished.success() {
        bail!("{}", if output.is_empty() { finished.verdict() } else { output.to_owned() });
    }
    Ok(output.to_owned())
}

/// Whether a process of this user that is no ancestor of ours may read our memory (asked of a child: under Yama's
/// scope 1 an ancestor may read its children, and nobody else may read anybody).
///
/// # Errors
/// With the kernel's refusal.
pub fn cross_memory_read() -> Result<()> {
    let nonce: Box<[u8; 8]> =
        Box::new(u64::from(std::process::id()).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_ne_bytes());
    let address = nonce.as_ptr() as usize;
    let answer = ask(Kind::Reader, &[std::process::id().to_string(), address.to_string()])?;
    if answer != u64::from_ne_bytes(*std::hint::black_box(nonce)).to_string() {
        bail!("other bytes than those of this process came back");
    }
    Ok(())
}

/// Whether this user may make a network namespace, if need be in a user namespace.
///
/// # Errors
/// With the kernel's refusal.
pub fn namespaces() -> Result<()> {
    ask(Kind::Namespaces, &[]).map(drop)
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
