//! Sets the loopback interface of a new network namespace up, by rtnetlink(7): without another program, which an ordinary user could give
//! no capability of the namespace.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// rtnetlink(7): sets flags of an interface.
const RTM_NEWLINK: u16 = 16;
/// netlink(7): a request that is answered even if it succeeds.
const REQUEST_WITH_ACK: u16 = 1 | 4;
/// netlink(7): an error, or 0, as the answer.
const NLMSG_ERROR: u16 = 2;
/// netdevice(7): the interface is up.
const IFF_UP: u32 = 1;
/// The loopback interface is the first that a namespace has.
const LOOPBACK_INDEX: i32 = 1;
/// struct nlmsghdr and struct ifinfomsg.
const MESSAGE_BYTES: u32 = 32;

/// Sets it up.
///
/// # Errors
/// The kernel's.
pub fn raise() -> Result<(), Errno> {
    // NETLINK_ROUTE is protocol 0, which is none to rustix.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    outcome(&answer[..length])
}

fn request() -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(MESSAGE_BYTES.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST_WITH_ACK.to_ne_bytes());
    // Sequence number and port: this socket asks once.
    message.extend([0; 8]);
    // Family and type of the interface: any.
    message.extend([0; 4]);
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message
}

fn outcome(answer: &[u8]) -> Result<(), Errno> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(Errno::from_raw_os_error(-error)),
        _ => Err(Errno::BADMSG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let answer = |kind: u16, error: i32| {
            let mut answer = vec![36, 0, 0, 0];
            answer.extend(kind.to_ne_bytes());
            answer.extend([0; 10]);
            answer.extend(error.to_ne_bytes());
            answer
        };
        assert_eq!(request().len(), MESSAGE_BYTES as usize);
        assert_eq!(outcome(&answer(NLMSG_ERROR, 0)), Ok(()));
        assert_eq!(outcome(&answer(NLMSG_ERROR, -1)), Err(Errno::PERM));
        assert_eq!(outcome(&answer(3, 0)), Err(Errno::BADMSG));
        assert_eq!(outcome(&[]), Err(Errno::BADMSG));
    }
}
