//! The arguments of `pagewire serve`, `get` and `put`.

use crate::running::directory::{DEFAULT_PORT, ServedPlace};
use clap::{Args, ValueHint};
use std::net::IpAddr;
use std::path::PathBuf;

/// Arguments of `pagewire serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire serve model.bin &                              then: pagewire get localhost:model.bin\n  \
    pagewire serve --address 192.0.2.7 *.bin                for other hosts, too\n  \
    pagewire serve --writable --size 4G                     4 GiB of memory: pagewire put file 127.0.0.1:memory\n  \
    pagewire serve --writable --size 100M result.bin        a file that clients fill\n\n\
    Whoever can connect to the port can read the files, with --writable change them, too.\n\
    Nothing is encrypted. It serves until SIGINT, SIGTERM or SIGHUP.\n\n\
    Exit status: 0 if it was ended by one of these, 1 if it cannot serve, 2 for a wrong command line.")]
pub struct ServeArguments {
    /// The files; their names are what clients ask for
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "size")]
    pub files: Vec<PathBuf>,
    /// Without FILE: serve so much fresh memory, as 'memory'; with one: make the file so long (10, 4K, 512M, 1G, ...)
    #[arg(long, value_name = "BYTES", requires = "writable", value_parser = bytes)]
    pub size: Option<u64>,
    /// Clients only read, which is the default
    #[arg(long, conflicts_with = "writable")]
    pub read_only: bool,
    /// Clients may write, too
    #[arg(long)]
    pub writable: bool,
    /// Where to listen: an address of this host, or 0.0.0.0 or :: for all of them
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// The TCP port to listen on; 0: any that is free
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// One JSON object for each file, instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pagewire get`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire get host:model.bin                     into model.bin\n  \
    pagewire get host:4800:model.bin -o copy.bin    from another port\n  \
    pagewire get host:a host:b -o copies/           several at once, into a directory\n  \
    pagewire get host                               what there is\n\n\
    A transfer that was interrupted goes on where it was if the same command runs again.\n\n\
    Exit status: 0, 1 if a file was not had, 128 + N if signal N interrupted it,\n\
    2 for a wrong command line.")]
pub struct GetArguments {
    /// What to get: HOST:NAME or HOST:PORT:NAME; HOST or HOST:PORT alone lists what the server has
    #[arg(value_name = "HOST[:PORT]:NAME", required = true)]
    pub sources: Vec<ServedPlace>,
    /// Write to FILE, or into the directory FILE; where it is not given, to the name that the file has at the server
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
    /// Only list what the servers have
    #[arg(long)]
    pub list: bool,
    /// One JSON object for each file, instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pagewire put`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire put result.bin host:result.bin\n  \
    pagewire put a.bin b.bin host:4800              several at once, under their own names\n\n\
    The server must have been started with --writable, and have at least as many bytes of that name.\n\
    A transfer that was interrupted goes on where it was if the same command runs again.\n\n\
    Exit status: 0, 1 if a file was not put, 128 + N if signal N interrupted it,\n\
    2 for a wrong command line.")]
pub struct PutArguments {
    /// The files
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    pub files: Vec<PathBuf>,
    /// Where to: HOST:NAME or HOST:PORT:NAME; HOST or HOST:PORT alone: under the names of the files
    #[arg(value_name = "HOST[:PORT][:NAME]", required = true)]
    pub destination: ServedPlace,
    /// One JSON object for each file, instead of text
    #[arg(long)]
    pub json: bool,
}

/// A count of bytes: digits, and K, M, G or T for multiples of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "it is to be a count of bytes: 10, 4K, 512M, 1G, 2T".to_owned();
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    // A file has at most so many (off_t).
    count.checked_mul(1 << shift).filter(|count| i64::try_from(*count).is_ok()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_bytes_have_units() {
        for (text, count) in
            [("0", 0), ("10", 10), ("4K", 4096), ("3m", 3 << 20), ("2G", 2 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(bytes(text), Ok(count), "{text}");
        }
        for wrong in ["", "K", "-1", "1.5G", "4 K", "99999999999999999999", "9000000T", "1KK", "1é"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
