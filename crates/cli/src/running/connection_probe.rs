//! `pagewire probe connection`: connects to itself by `/dev/infiniband/rdma_cm`, as librdmacm would, in a process that the engine is preloaded
//! into. No queue pair is made: messages alone go to and fro.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};

/// What programs open.
pub const DEVICE_FILE: &str = "/dev/infiniband/rdma_cm";

/// Numbers and sizes of the kernel's `rdma_user_cm.h`.
mod abi {
    pub const CREATE_ID: u32 = 0;
    pub const BIND_IP: u32 = 2;
    pub const RESOLVE_IP: u32 = 3;
    pub const RESOLVE_ROUTE: u32 = 4;
    pub const QUERY_ROUTE: u32 = 5;
    pub const CONNECT: u32 = 6;
    pub const LISTEN: u32 = 7;
    pub const ACCEPT: u32 = 8;
    pub const GET_EVENT: u32 = 12;
    pub const ADDR_RESOLVED: u32 = 0;
    pub const ROUTE_RESOLVED: u32 = 2;
    pub const CONNECT_REQUEST: u32 = 4;
    pub const CONNECT_RESPONSE: u32 = 5;
    pub const ESTABLISHED: u32 = 9;
    pub const RDMA_PS_TCP: u16 = 0x0106;
    pub const IBV_QPT_RC: u8 = 2;
    /// Of a `struct rdma_ucm_conn_param`.
    pub const PARAM: usize = 272;
    pub const PARAM_VALID: usize = 271;
    /// The longest answer, that to `GET_EVENT`.
    pub const ANSWER: usize = 336;
    /// Where the port of the source stands in the answer to `QUERY_ROUTE`.
    pub const SOURCE_PORT: usize = 138;
}

/// Any number: nobody looks for such a queue pair.
const QUEUE_PAIR: u32 = 0x0050_4557;
/// For looking up a route, in milliseconds.
const TIMEOUT: u32 = 2000;

/// An event channel, and what it answers.
struct Channel {
    file: File,
    answer: [AtomicU8; abi::ANSWER],
}

impl Channel {
    fn write(&mut self, command: u32, body: &[&[u8]]) -> Result<()> {
        let body = body.concat();
        let sizes = [body.len() as u16, abi::ANSWER as u16].map(u16::to_ne_bytes).concat();
        let bytes = [&command.to_ne_bytes()[..], &sizes, &body].concat();
        let written = self.file.write(&bytes).with_context(|| format!("command {command} of rdma_cm"))?;
        ensure!(written == bytes.len(), "command {command} of rdma_cm was cut off");
        Ok(())
    }

    /// Where answers go.
    fn response(&self) -> [u8; 8] {
        (self.answer.as_ptr() as u64).to_ne_bytes()
    }

    fn byte(&self, at: usize) -> u8 {
        self.answer[at].load(Ordering::Acquire)
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_ne_bytes([0, 1, 2, 3].map(|place| self.byte(at + place)))
    }

    fn create(&mut self) -> Result<u32> {
        let kind = [&abi::RDMA_PS_TCP.to_ne_bytes()[..], &[abi::IBV_QPT_RC], &[0; 5]].concat();
        let response = self.response();
        self.write(abi::CREATE_ID, &[&1_u64.to_ne_bytes(), &response, &kind])?;
        Ok(self.number(0))
    }

    /// Waits for an event; gives its ID.
    fn expect(&mut self, event: u32) -> Result<u32> {
        let response = self.response();
        self.write(abi::GET_EVENT, &[&response])?;
        let (id, found, status) = (self.number(8), self.number(12), self.number(16) as i32);
        ensure!(found == event, "event {found} with status {status} came, not {event}");
        Ok(id)
    }

    /// Answers a request, or (not `valid`) an answer.
    fn accept(&mut self, id: u32, valid: bool) -> Result<()> {
        let param = parameters(valid);
        self.write(abi::ACCEPT, &[&1_u64.to_ne_bytes(), &param, &id.to_ne_bytes(), &[0; 12]])
    }
}

fn address(address: Ipv4Addr, port: u16) -> Vec<u8> {
    let family = (nix::libc::AF_INET as u16).to_ne_bytes();
    [&family[..], &port.to_be_bytes(), &address.octets(), &[0; 20]].concat()
}

fn parameters(valid: bool) -> [u8; abi::PARAM] {
    let mut param = [0; abi::PARAM];
    param[..4].copy_from_slice(&QUEUE_PAIR.to_ne_bytes());
    param[abi::PARAM_VALID] = u8::from(valid);
    param
}

/// Listens, connects to that over the loopback device, and accepts.
///
/// # Errors
/// What the device file answered, or which event did not come.
pub fn connect_to_self() -> Result<()> {
    let file = File::options().read(true).write(true).open(DEVICE_FILE).context(DEVICE_FILE)?;
    let mut channel = Channel { file, answer: [const { AtomicU8::new(0) }; abi::ANSWER] };
    let listener = channel.create()?.to_ne_bytes();
    let any = address(Ipv4Addr::UNSPECIFIED, 0);
    channel.write(abi::BIND_IP, &[&[0; 8], &any, &listener])?;
    channel.write(abi::LISTEN, &[&listener, &1_u32.to_ne_bytes()])?;
    let response = channel.response();
    channel.write(abi::QUERY_ROUTE, &[&response, &listener, &[0; 4]])?;
    let port = u16::from_be_bytes([0, 1].map(|place| channel.byte(abi::SOURCE_PORT + place)));

    let active = channel.create()?;
    let (id, timeout) = (active.to_ne_bytes(), TIMEOUT.to_ne_bytes());
    let peer = address(Ipv4Addr::LOCALHOST, port);
    channel.write(abi::RESOLVE_IP, &[&[0; 28], &peer, &id, &timeout])?;
    channel.expect(abi::ADDR_RESOLVED)?;
    channel.write(abi::RESOLVE_ROUTE, &[&id, &timeout])?;
    channel.expect(abi::ROUTE_RESOLVED)?;
    channel.write(abi::CONNECT, &[&parameters(true), &id, &[0; 12]])?;
    let request = channel.expect(abi::CONNECT_REQUEST)?;
    // The event names the listener by the user's number, and the new ID by its own.
    channel.accept(request, true)?;
    ensure!(channel.expect(abi::CONNECT_RESPONSE)? == active, "another ID was answered");
    channel.accept(active, false)?;
    ensure!(channel.expect(abi::ESTABLISHED)? == request, "another ID is established");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_as_long_as_the_kernel_has_them() {
        assert_eq!(address(Ipv4Addr::LOCALHOST, 7174)[..8], [2, 0, 0x1c, 0x06, 127, 0, 0, 1]);
        assert_eq!((address(Ipv4Addr::LOCALHOST, 0).len(), parameters(true)[271]), (28, 1));
    }
}
