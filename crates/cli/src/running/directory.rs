//! What `pagewire serve` and its clients tell each other over TCP: a request and its answers, each one JSON object on a line.
//!
//! Bytes of files never go this way: an answer has a token, by which the client reads or writes them itself.

use crate::limits::{REPLY_BYTES, REQUEST_BYTES, SERVE_PATIENCE, SERVED_NAME};
use anyhow::{Context, Result, bail};
use pagewire::Token;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Instant;

/// Of the messages below. A server answers another one by a refusal that names its own.
pub const VERSION: u32 = 1;

/// The port of `pagewire serve`: the one behind that of RoCEv2.
pub const DEFAULT_PORT: u16 = 4792;

/// The field that stands in requests of all versions.
#[derive(Debug, Deserialize)]
pub struct Head {
    /// [`VERSION`] of who asks.
    pub pagewire_serve: u32,
}

/// A request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub pagewire_serve: u32,
    /// What is asked for.
    #[serde(flatten)]
    pub ask: Ask,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// All names; answered by `Files`.
    List,
    /// What is needed to transfer a file; answered by `Opened`.
    Open {
        /// Its name.
        name: String,
        /// What is to be put into it: [`identity`](crate::serve::identity) of the client's file.
        upload: Option<String>,
    },
    /// The checksum of the first `length` bytes; answered by `Checksum`, behind any number of `Working`.
    Checksum {
        /// The file's name.
        name: String,
        /// Bytes.
        length: u64,
    },
    /// So many bytes of an upload are there: who goes on with it later need not put them again; answered by `Noted`.
    Note {
        /// The file's name.
        name: String,
        /// What is put into it.
        upload: String,
        /// Bytes from the beginning on.
        done: u64,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// All files.
    Files {
        /// In the order of the command line.
        files: Vec<Entry>,
    },
    /// A file, ready to be transferred.
    Opened(Opened),
    /// A checksum is being computed.
    Working {
        /// Bytes of which it is known.
        bytes: u64,
    },
    /// A checksum, in hexadecimal digits.
    Checksum {
        /// SHA-256.
        sha256: String,
    },
    /// It was noted.
    Noted,
    /// It cannot be done.
    Refused {
        /// Why, for people.
        why: String,
    },
}

/// A file that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub length: u64,
    /// Whether it may be written.
    pub writable: bool,
}

/// What is needed to transfer a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The file.
    #[serde(flatten)]
    pub entry: Entry,
    /// Says which bytes it has, as far as that is known without reading them: 16 hexadecimal digits.
    pub identity: String,
    /// Its [`Token`] in hexadecimal digits.
    pub token: String,
    /// Bytes of the upload that are there already.
    pub done: u64,
}

impl Opened {
    /// Its token.
    ///
    /// # Errors
    /// If it is none, or of fewer bytes than the file has.
    pub fn token(&self) -> Result<Token> {
        let digits = self.token.as_bytes();
        let pairs: Option<Vec<u8>> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let token = Token::from_bytes(&pairs.context("the token is no hexadecimal number")?)?;
        if token.length() < self.entry.length {
            bail!("the token is of {} bytes, and the file has {}", token.length(), self.entry.length);
        }
        Ok(token)
    }

    /// Whether its identity may be part of a file's name.
    pub fn has_good_identity(&self) -> bool {
        self.identity.len() == 16 && self.identity.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

/// Bytes in hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a file may be served by this name, and a client may make one of it: a plain name in a directory.
pub fn is_good_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= SERVED_NAME && !name.contains(['/', '\0'])
}

/// A server, and the name of a file there, if one was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPlace {
    /// A name of a host, or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The name of the file.
    pub name: Option<String>,
}

impl FromStr for ServedPlace {
    type Err = String;

    /// `HOST`, `HOST:PORT`, `HOST:NAME` or `HOST:PORT:NAME`; an IPv6 address stands in brackets.
    fn from_str(text: &str) -> Result<ServedPlace, String> {
        let (host, rest) = match text.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => {
                let rest = rest.strip_prefix(':');
                (host, Some(rest.ok_or("behind ']' there is to be ':' and a port or a name")?))
            }
            None => text.split_once(':').map_or((text, None), |(host, rest)| (host, Some(rest))),
        };
        if host.is_empty() {
            return Err("there is no host: write HOST:NAME, as localhost:model.bin".to_owned());
        }
        let rest = rest.unwrap_or_default();
        let (first, behind) =
            rest.split_once(':').map_or((rest, None), |(first, behind)| (first, Some(behind)));
        let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
        let (port, name) = if is_number {
            (first.parse().map_err(|_| format!("{first} is no port"))?, behind.unwrap_or_default())
        } else {
            (DEFAULT_PORT, rest)
        };
        Ok(ServedPlace { host: host.to_owned(), port, name: (!name.is_empty()).then(|| name.to_owned()) })
    }
}

impl fmt::Display for ServedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        self.name.as_ref().map_or(Ok(()), |name| write!(f, ":{}", crate::output::report::printable(name)))
    }
}

/// A connection to a server.
pub struct Client {
    stream: BufReader<TcpStream>,
    server: String,
}

/// Ends the connection of a client: who waits for an answer gets an error.
pub struct Closer(TcpStream);

impl Closer {
    /// Ends it.
    pub fn close(self) {
        // One that the server has ended already has nobody who waits.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Client {
    /// Connects to the server of a place.
    ///
    /// # Errors
    /// If it cannot be reached; the error says how that may be mended.
    pub fn connect(place: &ServedPlace) -> Result<Client> {
        let server = ServedPlace { name: None, ..place.clone() }.to_string();
        let addresses: Vec<SocketAddr> = (place.host.as_str(), place.port)
            .to_socket_addrs()
            .with_context(|| format!("the host '{}' has no address", place.host))?
            .collect();
        let mut refused = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, SERVE_PATIENCE) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(SERVE_PATIENCE))?;
                    stream.set_write_timeout(Some(SERVE_PATIENCE))?;
                    return Ok(Client { stream: BufReader::new(stream), server });
                }
                Err(error) => refused = Some(error),
            }
        }
        let why = refused.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into());
        Err(anyhow::Error::new(why).context(format!(
            "no server can be reached at {server} (is 'pagewire serve' running there, with --address for other hosts?)"
        )))
    }

    /// The address of this host that the connection has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn own_address(&self) -> Result<IpAddr> {
        Ok(self.stream.get_ref().local_addr()?.ip().to_canonical())
    }

    /// What ends the connection from another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn closer(&self) -> Result<Closer> {
        Ok(Closer(self.stream.get_ref().try_clone()?))
    }

    /// Asks for something, and gives the first answer.
    ///
    /// # Errors
    /// If the server refuses, or gives no answer that makes sense.
    pub fn ask(&mut self, ask: Ask) -> Result<Reply> {
        let mut line = serde_json::to_vec(&Request { pagewire_serve: VERSION, ask })?;
        line.push(b'\n');
        let sent = self.stream.get_mut().write_all(&line);
        sent.with_context(|| format!("the server at {} takes no request", self.server))?;
        self.reply()
    }

    /// The next answer.
    ///
    /// # Errors
    /// As those of [`ask`](Self::ask).
    pub fn reply(&mut self) -> Result<Reply> {
        let deadline = Instant::now() + SERVE_PATIENCE;
        let line = read_line(&mut self.stream, REPLY_BYTES, deadline)
            .with_context(|| format!("the server at {} does not answer", self.server))?;
        match serde_json::from_slice(&line) {
            Ok(Reply::Refused { why }) => {
                bail!(ServerRefusal(crate::output::report::printable(&why)))
            }
            Ok(reply) => Ok(reply),
            Err(_) => bail!("what answers at {} is no 'pagewire serve' of this version", self.server),
        }
    }
}

/// What a server has refused, and why, as it says.
#[derive(Debug)]
pub struct ServerRefusal(String);

impl std::fmt::Display for ServerRefusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ServerRefusal {}

/// A line of at most `most` bytes, by this time.
///
/// # Errors
/// If it does not come, or is longer.
pub fn read_line(
    stream: &mut BufReader<TcpStream>,
    most: u64,
    deadline: Instant,
) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        stream.get_ref().set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
        let most = most - line.len() as u64;
        // One byte tells that there is more than fits; what is buffered is taken before the stream is read again.
        let count = match stream.fill_buf() {
            Ok([]) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // What a time-out of the socket gives.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        };
        if count as u64 > most {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "it says too much"));
        }
        stream.by_ref().take(count as u64).read_to_end(&mut line)?;
        if line.ends_with(b"\n") {
            return Ok(line);
        }
    }
}

/// Reads a request; `Err` has what to answer in its place, if anything.
///
/// # Errors
/// With the refusal; `None` where there is nobody to answer.
pub fn read_request(stream: &mut BufReader<TcpStream>, deadline: Instant) -> Result<Ask, Option<Reply>> {
    let refused = |why: String| Err(Some(Reply::Refused { why }));
    let line = match read_line(stream, REQUEST_BYTES, deadline) {
        Ok(line) => line,
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return refused(format!("a request has at most {REQUEST_BYTES} bytes"));
        }
        Err(_) => return Err(None),
    };
    match serde_json::from_slice(&line) {
        Ok(Head { pagewire_serve: VERSION }) => {}
        Ok(Head { pagewire_serve: other }) => {
            return refused(format!(
                "the client speaks version {other} of 'pagewire serve', and the server version {VERSION}: use the same Pagewire at both ends"
            ));
        }
        Err(_) => return refused("this is no request to 'pagewire serve'".to_owned()),
    }
    match serde_json::from_slice(&line) {
        Ok(Request { ask, .. }) => Ok(ask),
        Err(error) => refused(format!("the request makes no sense: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, port: u16, name: Option<&str>) -> ServedPlace {
        ServedPlace { host: host.into(), port, name: name.map(str::to_owned) }
    }

    #[test]
    fn places_are_hosts_ports_and_names() {
        for (text, expected) in [
            ("host", place("host", DEFAULT_PORT, None)),
            ("host:", place("host", DEFAULT_PORT, None)),
            ("host:model.bin", place("host", DEFAULT_PORT, Some("model.bin"))),
            ("host:4800", place("host", 4800, None)),
            ("host:4800:", place("host", 4800, None)),
            ("host:4800:4800", place("host", 4800, Some("4800"))),
            ("host:a:b", place("host", DEFAULT_PORT, Some("a:b"))),
            ("host:1:a:b", place("host", 1, Some("a:b"))),
            ("127.0.0.1:7z", place("127.0.0.1", DEFAULT_PORT, Some("7z"))),
            ("[::1]", place("::1", DEFAULT_PORT, None)),
            ("[fd00::2]:4800:x", place("fd00::2", 4800, Some("x"))),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for wrong in ["", ":x", "[]:x", "[::1]x", "host:70000:x"] {
            assert!(wrong.parse::<ServedPlace>().is_err(), "{wrong}");
        }
        assert_eq!(place("::1", 5, Some("a\nb")).to_string(), "[::1]:5:a\u{FFFD}b");
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let entry = Entry { name: "a\"b".into(), length: u64::MAX, writable: true };
        let opened = Opened { entry: entry.clone(), identity: "0".repeat(16), token: "00".into(), done: 3 };
        for reply in [
            Reply::Files { files: vec![entry] },
            Reply::Opened(opened),
            Reply::Working { bytes: 1 },
            Reply::Noted,
            Reply::Refused { why: "no".into() },
        ] {
            let text = serde_json::to_string(&reply).unwrap();
            assert!(!text.contains('\n'));
            assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply, "{text}");
        }
        for ask in [Ask::List, Ask::Open { name: "a".into(), upload: None }] {
            let text = serde_json::to_string(&Request { pagewire_serve: VERSION, ask: ask.clone() }).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&text).unwrap().ask, ask, "{text}");
        }
    }

    #[test]
    fn names_of_files_are_plain() {
        assert!(["a", "a b", ".a", "a..", "ü"].into_iter().all(is_good_name));
        let long = "a".repeat(256);
        assert!(!["", ".", "..", "a/b", "/a", "a\0b", &long].into_iter().any(is_good_name));
    }
}
