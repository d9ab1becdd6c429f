//! Capture of the packets that leave and come in, as a pcap file (LINKTYPE_RAW, nanoseconds).
//!
//! The datagrams in it are put together from what this process knows: IP and UDP headers are those that the kernel
//! writes or has taken off (the identification is recovered from the ICRC), the ICRC is the real one. The hot path
//! copies a packet into a bounded queue; a thread writes.

use crate::counters::Counters;
use crate::fabric::{ReceivedDatagram, Route};
use crate::limits::{CAPTURE_FLUSH, CAPTURE_QUEUE};
use crate::udp::MessageInfo;
use pagewire_memory::above_low_numbers;
use pagewire_memory::fork::PerProcess;
use pagewire_wire::Icrc;
use pagewire_wire::datagram::NetworkHeader;
use pagewire_wire::etherparse::UdpHeader;
use pagewire_wire::packet::{self, ICRC_LEN};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names the capture. Each process writes a file of its own: its number is put in front of the extension, so that
/// `trace.pcap` becomes `trace.1234.pcap`.
pub const CAPTURE_VARIABLE: &str = "PAGEWIRE_PCAP";

/// pcap with nanoseconds, in this machine's byte order.
const MAGIC: u32 = 0xA1B2_3C4D;
/// Packets begin with an IPv4 or IPv6 header (LINKTYPE_RAW).
const LINK_TYPE: u32 = 101;
/// Bytes of a record in front of the packet.
const RECORD: usize = 16;
/// The longest headers: IPv6 and UDP.
const HEADERS: usize = 48;

/// An open capture.
pub struct Capture {
    queue: Mutex<Option<SyncSender<Vec<u8>>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    counters: Arc<Counters>,
    path: PathBuf,
}

/// A packet with the ICRC that it would have as the first datagram of its flow; 0 between addresses of different families.
fn with_icrc(
    (source, source_port): (IpAddr, u16),
    (destination, port): (IpAddr, u16),
    bytes: &[u8],
) -> Vec<u8> {
    let mut sealed = [bytes, &[0; ICRC_LEN]].concat();
    if let Some(icrc) = Icrc::between(source, destination, source_port, port) {
        packet::seal(&icrc, 0, &mut sealed);
    }
    sealed
}

/// Captures to be finished when the process exits.
static OPEN: PerProcess<Vec<Arc<Capture>>> = PerProcess::new();
static AT_EXIT: Once = Once::new();

impl Capture {
    /// The capture that [`CAPTURE_VARIABLE`] asks for, if it does.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn from_environment(counters: &Arc<Counters>) -> io::Result<Option<Arc<Self>>> {
        match std::env::var_os(CAPTURE_VARIABLE) {
            Some(path) if !path.is_empty() => {
                let path = with_number(Path::new(&path), std::process::id());
                // One file for all fabrics of this process.
                let open = OPEN.lock();
                if let Some(open) = open.iter().find(|capture| capture.path == path) {
                    return Ok(Some(open.clone()));
                }
                drop(open);
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("{CAPTURE_VARIABLE}: {}: {error}", path.display()))
                };
                Ok(Some(Self::create(&path, counters.clone()).map_err(named)?))
            }
            _ => Ok(None),
        }
    }

    /// Writes to a file, which is made anew.
    ///
    /// # Errors
    /// The file cannot be made, or there is no thread.
    pub fn create(path: &Path, counters: Arc<Counters>) -> io::Result<Arc<Self>> {
        let mut file = BufWriter::new(File::from(above_low_numbers(File::create(path)?.into())?));
        file.write_all(&MAGIC.to_ne_bytes())?;
        file.write_all(&2u16.to_ne_bytes())?;
        file.write_all(&4u16.to_ne_bytes())?;
        // Time zone and accuracy are always zero; then the longest packet.
        file.write_all(&[0; 8])?;
        file.write_all(&65_535u32.to_ne_bytes())?;
        file.write_all(&LINK_TYPE.to_ne_bytes())?;
        file.flush()?;
        let (sender, receiver) = sync_channel(CAPTURE_QUEUE);
        let (name, counted) = (path.to_owned(), counters.clone());
        let writer = crate::threads::spawn("pagewire-pcap", move || write(file, &receiver, &name, &counted))?;
        let capture = Arc::new(Capture {
            queue: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(writer)),
            counters,
            path: path.to_owned(),
        });
        OPEN.lock().push(capture.clone());
        AT_EXIT.call_once(|| {
            // SAFETY: the function only uses what is static, and may run at any exit(3).
            if unsafe { libc::atexit(finish_all) } != 0 {
                log::debug!("the last packets before exit may be missing from the capture");
            }
        });
        Ok(capture)
    }

    /// A packet that was handed to the kernel.
    pub fn sent(&self, route: &Route, source_port: u16, identification: u16, bytes: &[u8]) {
        let hops = if route.hop_limit == 0 { crate::udp::DEFAULT_HOPS } else { route.hop_limit };
        let network = headers(route.source, route.destination, route.traffic_class, hops, identification);
        self.add(network, source_port, route.port, bytes);
    }

    /// A packet that left by a stream, without ICRC: shown as the datagram that it would be.
    pub fn sent_by_stream(&self, route: &Route, source_port: u16, bytes: &[u8]) {
        let sealed = with_icrc((route.source, source_port), (route.destination, route.port), bytes);
        self.sent(route, source_port, 0, &sealed);
    }

    /// A packet that came by a stream to a port of this side.
    pub fn received_by_stream(&self, packet: &ReceivedDatagram<'_>, port: u16) {
        let &ReceivedDatagram { source, source_port, destination, traffic_class, hop_limit, bytes, .. } =
            packet;
        let sealed = with_icrc((source, source_port), (destination, port), bytes);
        let network = headers(source, destination, traffic_class, hop_limit, 0);
        self.add(network, source_port, port, &sealed);
    }

    /// A packet that came in, whether intact or not.
    pub fn received(&self, arrival: &MessageInfo, port: u16, icrc: Option<&Icrc>, bytes: &[u8]) {
        let identification = icrc.and_then(|icrc| icrc.recover_identification(bytes)).unwrap_or(0);
        let MessageInfo { source, destination, traffic_class, hop_limit, .. } = *arrival;
        let network = headers(source, destination, traffic_class, hop_limit, identification);
        self.add(network, arrival.source_port, port, bytes);
    }

    fn add(&self, network: Option<NetworkHeader>, source_port: u16, port: u16, bytes: &[u8]) {
        let Some(network) = network else { return };
        let mut record = vec![0; RECORD + HEADERS + bytes.len()];
        let at = RECORD + network.header_len() + UdpHeader::LEN;
        record[at..at + bytes.len()].copy_from_slice(bytes);
        let Ok(length) = network.emit(source_port, port, bytes.len(), &mut record[RECORD..]) else { return };
        record.truncate(RECORD + length);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let fields = [now.as_secs() as u32, now.subsec_nanos(), length as u32, length as u32];
        for (to, field) in record.chunks_mut(4).zip(fields) {
            to.copy_from_slice(&field.to_ne_bytes());
        }
        let kept = self.queue.lock().as_ref().is_some_and(|queue| queue.try_send(record).is_ok());
        if !kept {
            self.counters.capture_lost.add(1);
        }
    }

    /// Writes what is left and ends the capture.
    fn finish(&self) {
        drop(self.queue.lock().take());
        if let Some(writer) = self.writer.lock().take() {
            if writer.join().is_err() {
                log::debug!("the capture's thread failed");
            }
        }
    }
}

extern "C" fn finish_all() {
    finish_captures();
}

/// Ends the captures of this process: what they have lost is known then. What comes behind it is in none.
pub fn finish_captures() {
    // A thread that exits while another opens a capture does not wait for it.
    let Some(mut open) = OPEN.try_lock() else { return };
    for capture in open.drain(..) {
        capture.finish();
    }
}

/// Writes what comes. From the first failure on nothing is written any more, and all that is not in the file is counted as lost; the user,
/// who has asked for the file, is told once.
fn write(file: BufWriter<File>, queue: &Receiver<Vec<u8>>, path: &Path, counters: &Counters) {
    let (mut file, mut unwritten) = (Some(file), 0);
    loop {
        let record = queue.recv_timeout(Duration::from_millis(CAPTURE_FLUSH));
        let result = match (&mut file, &record) {
            (None, Ok(_)) => {
                counters.capture_lost.add(1);
                Ok(())
            }
            (None, Err(_)) => Ok(()),
            (Some(file), Ok(record)) => {
                let full = file.buffer().len() + record.len() > file.capacity();
                let made_room = if full { file.flush().inspect(|()| unwritten = 0) } else { Ok(()) };
                unwritten += 1;
                made_room.and_then(|()| file.write_all(record))
            }
            (Some(file), Err(_)) => file.flush().inspect(|()| unwritten = 0),
        };
        if let Err(error) = result {
            counters.capture_lost.add(unwritten);
            // What it holds is not to be written later.
            drop(file.take().map(BufWriter::into_parts));
            // Where that cannot be said, nothing is: the program has nothing to do with it.
            let _ = writeln!(io::stderr(), "pagewire: {}: {error}: the capture ends here", path.display());
        }
        if matches!(record, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
    }
}

fn headers(
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    identification: u16,
) -> Option<NetworkHeader> {
    let mut network = NetworkHeader::between(source, destination, traffic_class, hop_limit)?;
    if let NetworkHeader::Ipv4(header) = &mut network {
        header.identification = identification;
    }
    Some(network)
}

/// A path with a process number in front of its extension.
fn with_number(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().map(OsString::from).unwrap_or_default();
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_wire::datagram::Datagram;
    use pagewire_wire::packet;

    #[test]
    fn numbers_stand_in_front_of_the_extension() {
        assert_eq!(with_number(Path::new("/tmp/a.b/trace.pcap"), 7), Path::new("/tmp/a.b/trace.7.pcap"));
        assert_eq!(with_number(Path::new("trace"), 7), Path::new("trace.7"));
    }

    #[test]
    fn what_the_disk_has_no_room_for_is_counted() {
        let counters = Arc::<Counters>::default();
        // Every write to it fails for want of room.
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (sender, receiver) = sync_channel(CAPTURE_QUEUE);
        for _ in 0..3 {
            sender.send(vec![0; 100]).unwrap();
        }
        let writer = std::thread::spawn({
            let counters = counters.clone();
            move || write(BufWriter::with_capacity(150, full), &receiver, Path::new("full"), &counters)
        });
        drop(sender);
        writer.join().unwrap();
        assert_eq!(counters.capture_lost.get(), 3);
    }

    #[test]
    fn what_is_in_the_file_is_not_lost() {
        let counters = Arc::<Counters>::default();
        let (reader, pipe) = io::pipe().unwrap();
        let (sender, receiver) = sync_channel(CAPTURE_QUEUE);
        let writer = std::thread::spawn({
            let counters = counters.clone();
            let file = BufWriter::with_capacity(250, File::from(std::os::fd::OwnedFd::from(pipe)));
            move || write(file, &receiver, Path::new("pipe"), &counters)
        });
        let mut reader = File::from(std::os::fd::OwnedFd::from(reader));
        (0..5).for_each(|_| sender.send(vec![7; 100]).unwrap());
        let mut there = [0; 400];
        io::Read::read_exact(&mut reader, &mut there).unwrap();
        // The last of them comes when there is nothing more for a moment.
        io::Read::read_exact(&mut reader, &mut there[..100]).unwrap();
        drop(reader);
        (0..3).for_each(|_| sender.send(vec![7; 100]).unwrap());
        drop(sender);
        writer.join().unwrap();
        assert_eq!(counters.capture_lost.get(), 3);
    }

    #[test]
    fn packets_are_whole_datagrams() {
        let path = std::env::temp_dir().join(format!("pagewire-capture-{}.pcap", std::process::id()));
        let capture = Capture::create(&path, Arc::default()).unwrap();
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let icrc = Icrc::ipv4(source, destination, 4791, 4791, true);
        let mut bytes = vec![3; 12 + 16 + 4];
        packet::seal(&icrc, 0x1234, &mut bytes);
        let arrival = MessageInfo {
            source: source.into(),
            source_port: 4791,
            destination: destination.into(),
            traffic_class: 1,
            hop_limit: 2,
            segment: bytes.len(),
            length: bytes.len(),
        };
        capture.received(&arrival, 4791, Some(&icrc), &bytes);
        capture.finish();
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let datagram = Datagram::parse(&file[24 + RECORD..]).unwrap();
        assert_eq!(datagram.payload, bytes);
        assert_eq!(datagram.identification(), 0x1234);
        assert!(datagram.icrc().verify(0x1234, datagram.payload));
        assert_eq!(file.len(), 24 + RECORD + 28 + bytes.len());
    }
}
