//! Address handles, and addresses taken from received datagrams.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, number, pointer, status};
use crate::calls::Call;
use crate::connection_manager::PAGEWIRE_CM_OPENED;
use crate::objects::context::ContextObject;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null};
use crate::objects::protection::ProtectionDomainObject;
use crate::runtime::engine::Host;
use crate::runtime::leftovers::{Leftover, Membership};
use libc::{ENOENT, c_int};
use pagewire_failures::Verb;
use pagewire_nic::AddressHandle;
use pagewire_nic::attributes::AddressVector;
use pagewire_nic::device::{Device, Gid};
use std::cell::UnsafeCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An address handle as programs see it.
#[repr(C)]
pub struct AddressHandleObject {
    public: UnsafeCell<ibv_ah>,
    handle: Arc<AddressHandle<Host>>,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_ah`.
unsafe impl Object<ibv_ah> for AddressHandleObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl AddressHandleObject {
    /// The engine's address handle.
    pub fn handle(&self) -> &Arc<AddressHandle<Host>> {
        &self.handle
    }
}

/// From the program's address vector to the engine's.
pub fn vector_from(attributes: &ibv_ah_attr) -> AddressVector {
    AddressVector {
        // SAFETY: every view of a GID is 16 plain bytes.
        destination_gid: unsafe { attributes.grh.dgid.raw },
        flow_label: attributes.grh.flow_label,
        source_gid_index: attributes.grh.sgid_index,
        hop_limit: attributes.grh.hop_limit,
        traffic_class: attributes.grh.traffic_class,
        destination_lid: attributes.dlid,
        service_level: attributes.sl,
        source_path_bits: attributes.src_path_bits,
        static_rate: attributes.static_rate,
        is_global: attributes.is_global != 0,
        port: attributes.port_num,
    }
}

/// And back.
pub fn attributes_of(vector: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: vector.destination_gid },
            flow_label: vector.flow_label,
            sgid_index: vector.source_gid_index,
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        dlid: vector.destination_lid,
        sl: vector.service_level,
        src_path_bits: vector.source_path_bits,
        static_rate: vector.static_rate,
        is_global: u8::from(vector.is_global),
        port_num: vector.port,
    }
}

/// Without a GRH an address vector names a LID. That of a port of RoCE is 0, so only the port itself can be meant: datagram sockets of
/// librdmacm (rsocket(7)) make such a handle for what a program sends to its own address. A program without a connection manager has
/// forgotten the GRH; it is refused later, with a hint.
fn to_own_port(vector: AddressVector, gids: &[Gid], has_connection_manager: bool) -> AddressVector {
    let own = gids.iter().enumerate().find(|(_, gid)| !gid.is_empty());
    match own.and_then(|(index, gid)| Some((u8::try_from(index).ok()?, gid.raw()))) {
        Some((source_gid_index, destination_gid))
            if has_connection_manager && !vector.is_global && vector.destination_lid == 0 =>
        {
            AddressVector { is_global: true, source_gid_index, destination_gid, ..vector }
        }
        _ => vector,
    }
}

/// # Safety
/// `pd` is NULL or allocated.
unsafe fn create(pd: *mut ibv_pd, attributes: &ibv_ah_attr) -> Result<*mut ibv_ah> {
    // SAFETY: the caller promises that `pd` is NULL or allocated.
    let domain = unsafe { ProtectionDomainObject::of(pd) }?;
    // SAFETY: the context of an allocated protection domain is open.
    let device = unsafe { ContextObject::of(domain.context()) }?.context().port();
    let vector =
        to_own_port(vector_from(attributes), &device.gids, PAGEWIRE_CM_OPENED.load(Ordering::Acquire));
    let handle = domain.domain().create_ah(&vector)?;
    let public = ibv_ah { context: domain.context(), pd, handle: 0 };
    let object = AddressHandleObject {
        public: UnsafeCell::new(public),
        membership: domain.leftovers().add(Leftover::AddressHandle(handle.clone())),
        handle,
        epoch: epoch(),
    };
    Ok(Box::new(object).publish())
}

/// `ibv_create_ah(3)`.
///
/// # Safety
/// `pd` is NULL or allocated; `attributes` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attributes: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller promises that `pd` is NULL or allocated, and that `attributes` is NULL or valid.
    pointer(Call::on(Verb::CreateAh, pd), || unsafe { create(pd, &*not_null(attributes)?) })
}

/// `ibv_destroy_ah(3)`.
///
/// # Safety
/// `ah` is NULL or created, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    status(Call::on(Verb::DestroyAh, ah), || {
        // SAFETY: the caller promises that `ah` is NULL or created.
        let object = unsafe { AddressHandleObject::of(ah) }?;
        object.membership.end(|| object.handle.destroy())?;
        // SAFETY: `of` found `ah`, and the caller promises that nobody uses it any more.
        unsafe { AddressHandleObject::free(ah) };
        Ok(())
    })
}

/// What the 40 bytes in front of a datagram say.
#[derive(Debug, PartialEq, Eq)]
struct GrhOrigin {
    source: IpAddr,
    destination: IpAddr,
    flow_label: u32,
    traffic_class: u8,
}

/// Reads the global routing header of a received datagram: over IPv4 its last 20 bytes are the IP header, whose
/// checksum tells it from an IPv6 header that happens to look alike (InfiniBand specification, annex A17.4.5.2).
fn origin_of(header: &[u8; 40]) -> Option<GrhOrigin> {
    let ip = &header[20..];
    let looks_like_v4 = ip[0] == 0x45 && ones_complement_sum(ip) == 0xFFFF;
    if looks_like_v4 {
        let address = |at: usize| IpAddr::V4(Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]));
        return Some(GrhOrigin {
            source: address(12),
            destination: address(16),
            flow_label: 0,
            traffic_class: ip[1],
        });
    }
    if header[0] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| {
        let mut raw = [0; 16];
        raw.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(raw))
    };
    Some(GrhOrigin {
        source: address(8),
        destination: address(24),
        flow_label: u32::from_be_bytes([0, header[1] & 0xF, header[2], header[3]]),
        traffic_class: header[0] << 4 | header[1] >> 4,
    })
}

fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The address vector that answers a received datagram.
fn reply_vector(device: &Device, wc: &ibv_wc, header: Option<&[u8; 40]>, port: u8) -> Result<ibv_ah_attr> {
    if port != 1 {
        return invalid("port number");
    }
    let mut attributes = ibv_ah_attr::zeroed();
    attributes.dlid = wc.slid;
    attributes.sl = wc.sl;
    attributes.src_path_bits = wc.dlid_path_bits;
    attributes.port_num = port;
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(attributes);
    }
    let Some(origin) = header.and_then(origin_of) else { return invalid("the GRH is of no IP version") };
    let index = device.gids.iter().position(|gid| gid.raw() == gid_of(origin.destination));
    attributes.is_global = 1;
    attributes.grh = ibv_global_route {
        dgid: ibv_gid { raw: gid_of(origin.source) },
        flow_label: origin.flow_label,
        sgid_index: index.and_then(|index| u8::try_from(index).ok()).ok_or(Errno(ENOENT))?,
        hop_limit: 0xFF,
        traffic_class: origin.traffic_class,
    };
    Ok(attributes)
}

/// `ibv_init_ah_from_wc(3)`: 0, or -1 with `errno` set.
///
/// # Safety
/// `context` is NULL or open; the others are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attributes: *mut ibv_ah_attr,
) -> c_int {
    number(Call::on(Verb::InitAhFromWc, context), || {
        // SAFETY: the caller promises that `context` is NULL or open and the others NULL or valid; a GRH is 40 plain bytes.
        unsafe {
            let device = ContextObject::of(context)?.context().port();
            let vector = reply_vector(&device, &*not_null(wc)?, grh.cast::<[u8; 40]>().as_ref(), port)?;
            not_null(attributes)?.write(vector);
        }
        Ok(0)
    })
}

/// `ibv_create_ah_from_wc(3)`.
///
/// # Safety
/// `pd` is NULL or allocated; the others are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    pointer(Call::on(Verb::CreateAhFromWc, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated and the others NULL or valid; a GRH is 40 plain bytes.
        unsafe {
            let device = ProtectionDomainObject::of(pd)?.domain().context().port();
            create(pd, &reply_vector(&device, &*not_null(wc)?, grh.cast::<[u8; 40]>().as_ref(), port)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_nic::device::global_routing_header;

    #[test]
    fn an_ipv4_header_is_read() {
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
        let header = global_routing_header(source, destination, 0x68, 64, 100);
        let expected = GrhOrigin { source, destination, flow_label: 0, traffic_class: 0x68 };
        assert_eq!(origin_of(&header), Some(expected));
    }

    #[test]
    fn an_ipv6_header_is_read() {
        let (source, destination) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let mut header = global_routing_header(source, destination, 0xA5, 64, 100);
        (header[2], header[3]) = (0x12, 0x34);
        header[1] |= 0x3;
        let expected = GrhOrigin { source, destination, flow_label: 0x31234, traffic_class: 0xA5 };
        assert_eq!(origin_of(&header), Some(expected));
    }

    proptest::proptest! {
        #[test]
        fn a_reply_goes_to_the_sender(source: [u8; 4], destination: [u8; 4], traffic_class: u8, hop_limit: u8, payload: u16) {
            let (source, destination) = (IpAddr::from(source), IpAddr::from(destination));
            let header = global_routing_header(source, destination, traffic_class, hop_limit, payload);
            let expected = GrhOrigin { source, destination, flow_label: 0, traffic_class };
            proptest::prop_assert_eq!(origin_of(&header), Some(expected));
        }

        #[test]
        fn any_bytes_are_read(header: [[u8; 20]; 2]) {
            let mut bytes = [0; 40];
            bytes.copy_from_slice(header.as_flattened());
            let version = bytes[0] >> 4;
            proptest::prop_assert!(origin_of(&bytes).is_none() || version == 6 || bytes[20] == 0x45);
        }
    }

    #[test]
    fn rubbish_is_refused() {
        assert_eq!(origin_of(&[0; 40]), None);
        let mut header = [0; 40];
        header[20] = 0x45;
        assert_eq!(origin_of(&header), None, "the checksum is wrong");
    }

    #[test]
    fn without_grh_own_port_is_meant_where_connection_manager_is() {
        let own = Gid { address: [192, 0, 2, 7].into(), interface: 0 };
        let gids = [Gid::EMPTY, own];
        let plain = vector_from(&attributes_with_lid(0));
        let made = to_own_port(plain, &gids, true);
        assert!(made.is_global);
        assert_eq!((made.source_gid_index, made.destination_gid), (1, own.raw()));
        // A forgotten GRH, another port's LID, a port without an address: left as they are, to be refused.
        let elsewhere = vector_from(&attributes_with_lid(5));
        for (vector, gids, has) in
            [(plain, &gids[..], false), (elsewhere, &gids, true), (plain, &gids[..1], true)]
        {
            assert_eq!(to_own_port(vector, gids, has), vector);
        }
        let global = AddressVector { is_global: true, source_gid_index: 0, ..plain };
        assert_eq!(to_own_port(global, &gids, true), global);
    }

    fn attributes_with_lid(dlid: u16) -> ibv_ah_attr {
        attributes_of(&AddressVector {
            destination_gid: [0; 16],
            flow_label: 0,
            source_gid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
            destination_lid: dlid,
            service_level: 0,
            source_path_bits: 0,
            static_rate: 0,
            is_global: false,
            port: 1,
        })
    }

    #[test]
    fn vectors_survive_a_round_trip() {
        let vector = AddressVector {
            destination_gid: [9; 16],
            flow_label: 7,
            source_gid_index: 2,
            hop_limit: 64,
            traffic_class: 3,
            destination_lid: 5,
            service_level: 1,
            source_path_bits: 6,
            static_rate: 4,
            is_global: true,
            port: 1,
        };
        assert_eq!(vector_from(&attributes_of(&vector)), vector);
    }
}
